"""Tables of measured numbers in the README and docs, rendered from benchmarks/results.

    python docs/measured.py            # print them
    python docs/measured.py --write    # put them into the pages

A page names a table by a comment such as `<!-- ladder -->` before it and `<!-- /ladder -->` behind.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
SEEDS = (0, 1, 2)
SEEN_ON_RUNG = {
    "questions only": "nothing",
    "ordered": "documents first, without the reader; then questions beside them",
    "unpointed": "documents mixed with questions, without the reader",
    "pointed": "documents, with masks that the reader chooses",
}
Record = dict[str, Any]


def newest(name: str, keys: Sequence[str]) -> dict[tuple[Any, ...], Record]:
    """The last record of a results file for each value of these settings."""
    lines = (RESULTS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    return {tuple(record["settings"][key] for key in keys): record for record in records}


def ladder() -> list[str]:
    """Recall on every rung, three seeds, and the reader's."""
    records = newest("ladder", ("rung", "data", "questions", "seed"))
    columns = (("a5", None), ("a5", 20), ("world", None))

    def cell(rung: str, data: str, questions: int | None, key: str = "value") -> str:
        found = [records.get((rung, data, questions, seed)) for seed in SEEDS]
        shares = [f"{100 * record[key]:.1f}" for record in found if record]
        return f"{', '.join(shares)} %" if shares else ""

    rows = ["| rung (recipe) | what it sees of such a person | A5 | A5, 20 questions | world |"]
    rows.append("|---|---|---|---|---|")
    for rung, sees in SEEN_ON_RUNG.items():
        cells = [cell(rung, *column) for column in columns]
        name = "pointed (default)" if rung == "pointed" else rung
        rows.append(f"| {name} | {sees} | {' | '.join(cells)} |")
    cells = [cell("pointed", *column, "reader") for column in columns]
    rows.append(f"| *the reader* | the text at hand; no model | {' | '.join(cells)} |")
    return rows


def paraphrases() -> list[str]:
    """Recall of the ordered rung by the number of documents about a person, one seed."""
    records = newest("paraphrases", ("objective", "people", "steps", "shuffled", "documents"))
    counts = (1, 2, 5)
    heads = ["1 document", *(f"{count} documents" for count in counts[1:])]
    rows = [f"| sentences | {' | '.join(heads)} |", "|---" * (len(counts) + 1) + "|"]
    for name, is_shuffled in (("fixed order", False), ("shuffled", True)):
        found = [records["text", 300, 1200, is_shuffled, count] for count in counts]
        shares = [f"{100 * record['value']:.1f} %" for record in found]
        rows.append(f"| {name} | {' | '.join(shares)} |")
    return rows


TABLES: dict[str, Callable[[], list[str]]] = {"ladder": ladder, "paraphrases": paraphrases}


def with_tables(page: str) -> str:
    """The page with each table between its two marks."""
    for name, render in TABLES.items():
        marks = re.compile(f"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        table = "\n".join(render())
        page = marks.sub(lambda found, table=table: f"{found[1]}{table}\n{found[2]}", page)
    return page


if __name__ == "__main__":
    if "--write" in sys.argv:
        for path in PAGES:
            path.write_text(with_tables(path.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print("\n\n".join("\n".join(render()) for render in TABLES.values()))
