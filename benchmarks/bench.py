"""The quick side-by-side set: what `make bench` runs, in under a quarter of an hour.

    python benchmarks/bench.py [--only throughput,decoding] [--folder benchmarks/results]

Each part is a command of its own that appends JSON lines with machine, versions and commit to its
file; here they run one after the other, and what they wrote is set side by side in one table: ours,
the rival or the goal, how many times better ours is, and the spread of that between its quarters.
The long rows (accuracy, ablation, scale) have their own commands.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from records import RESULTS
from rows import read_rows, say, table

from wherefrom.cli import TORCH_READS

HERE = Path(__file__).parent
PARTS: dict[str, list[str]] = {
    "checker": ["--repeats", "3"],
    "evidence": ["--documents", "3000", "30000"],
    "throughput": ["--quick"],
    "decoding": ["--quick"],
    "lengths": ["--quick"],
}


def run_part(name: str, arguments: list[str], out: Path) -> tuple[bool, list[dict[str, Any]]]:
    """Whether a part ended well, and the records that it added."""
    before = len(read_rows(out))
    command = [sys.executable, str(HERE / f"{name}.py"), *arguments, "--out", str(out)]
    around = {**TORCH_READS, "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(
        command, env={**around, **os.environ}, stdout=subprocess.DEVNULL, check=False
    )
    return done.returncode == 0, read_rows(out)[before:]


def side_by_side(record: dict[str, Any]) -> tuple[str, str, str, str, str]:
    """A record as a line: what, ours, rival, ratio, spread."""
    value, unit = record["value"], record["unit"]
    spread = f"{record['spread']:.2g}" if "spread" in record else ""
    if "rival" in record:
        sides = (_number(record[side], record["sides_unit"]) for side in ("ours", "rival"))
        return (record["name"], *sides, f"{value:.2f}", spread)
    if "peak_gflops" in record:
        sides = (_number(record[key], "GFLOP/s") for key in ("gflops", "peak_gflops"))
        return (record["name"], *sides, f"{value:.2f}", spread)
    if "goal" in record:
        goal = f"goal {_number(record['goal'], unit)}"
        ratio = f"{record['goal'] / value:.1f}" if value else ""
        return (record["name"], _number(value, unit), goal, ratio, f"{spread} {unit}")
    name = record["name"]
    if "documents" in record:
        name = f"{name}, {record['documents']:,} documents"
    said = _number(value, unit) if isinstance(value, int | float) else f"{value} {unit}"
    if "written" in record:
        written = record["written"]
        rival = f"{written:.2f}" if isinstance(written, float) else str(written)
        return (name, said, f"written cost {rival}", "", spread)
    return (name, said, "", "", spread)


def _number(value: float, unit: str) -> str:
    return f"{value:,.0f} {unit}" if abs(value) >= 1000 else f"{value:.3g} {unit}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--folder", type=Path, default=RESULTS, help="where the JSON lines go")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    rows, failed, began = [], [], time.monotonic()
    for name in options.only.split(","):
        if name not in PARTS:
            parser.error(f'there is no part "{name}"; known: {", ".join(PARTS)}')
        say(f"{name} ({time.monotonic() - began:.0f} s so far)")
        well, records = run_part(name, PARTS[name], options.folder / f"{name}.jsonl")
        rows += [side_by_side(record) for record in records]
        failed += [] if well else [name]
    print(table(("what", "ours", "rival or goal", "ratio", "spread"), rows))
    say(f"{time.monotonic() - began:.0f} s in all; JSON lines in {options.folder}")
    for name in failed:
        say(f"{name} failed: see above")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
