"""What every benchmark writes: JSON lines that say what was measured, how often, and on what.

A record has a name, a value with its unit, the spread of its repeats, and the surroundings:
machine, versions, commit and time. Ratios are measured in one run with the sides alternating: the
machine's speed changes from minute to minute.
"""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("wherefrom", "numpy", "torch", "transformers", "tokenizers", "scikit-learn")


def surroundings() -> dict[str, Any]:
    """What the numbers were measured on."""
    from wherefrom.training.run_folder import commit

    return {
        "machine": _processor(),
        "system": platform.system(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in PACKAGES if _installed(name)},
        "commit": commit(),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def summarise(name: str, values: Sequence[float], unit: str, **details: Any) -> dict[str, Any]:
    """The median of repeats with the range between their quarters."""
    ordered = sorted(values)
    quarters = statistics.quantiles(ordered, n=4) if len(ordered) > 1 else [ordered[0]] * 3
    return {
        "name": name,
        "value": statistics.median(ordered),
        "unit": unit,
        "spread": quarters[2] - quarters[0],
        "lowest": ordered[0],
        "highest": ordered[-1],
        "repeats": len(ordered),
        **details,
    }


def measure(run: Callable[[], object], repeats: int) -> list[float]:
    """Seconds of each repeat, after one that warms up."""
    run()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return seconds


def keep(records: Sequence[dict[str, Any]], file: str | Path) -> None:
    """Print the records and append them to a file (a bare name goes to benchmarks/results)."""
    path = RESULTS / file if Path(file).parent == Path(".") else Path(file)
    path.parent.mkdir(parents=True, exist_ok=True)
    around = surroundings()
    with open(path, "a", encoding="utf-8") as out:
        for record in records:
            line = json.dumps({**record, **around}, allow_nan=False)
            print(line)
            out.write(line + "\n")


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _installed(name: str) -> bool:
    try:
        version(name)
    except ModuleNotFoundError:
        return False
    return True
