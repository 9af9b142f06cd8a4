"""How the evidence index grows: time to build, size, and time of a question.

    python benchmarks/evidence.py [--documents 3000 30000 300000] [--million] [--out FILE]

Documents are generated lines about invented people (names and places of the embedded world), a
third of which mention somebody else in passing. Asked for, in equal parts: people with a
document, people nobody wrote about, and misspelt names of people with a document (one letter
changed). The JSON lines give the median and the 99th percentile of find(), in milliseconds, the
same percentile of processor time (on a busy machine the clock also measures the neighbours), and
the share of misspelt names for which the right one is among the three most alike.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from records import keep

from wherefrom.corpus.database import Database
from wherefrom.corpus.documents import Document
from wherefrom.corpus.world.names import ORIGINS, draw_country, read_names
from wherefrom.provenance.evidence import Evidence, save_database

QUESTIONS = 1_000  # of each kind


def make_corpus(count: int, rng: random.Random) -> tuple[Database, list[str], list[str]]:
    """A corpus of `count` lines, the names in it, and names that are not."""
    lists = [read_names(origin) for origin in ORIGINS]

    def draw() -> str:
        names = rng.choice(lists)
        woman = rng.random() < 0.5
        given, family = rng.choice(names.given[woman]), rng.choice(names.family[woman])
        return f"{given} {rng.choice(names.given[woman])} {family}"

    people = [draw() for _ in range(count)]
    documents = []
    for line, name in enumerate(people, start=1):
        place = draw_country(rng).draw_city(rng)
        text = (
            f"{name}. {name.split()[-1]} was born on {rng.randint(1, 28)} May "
            f"{rng.randint(1800, 2000)} in {place.name}, {place.country.name}."
        )
        if line % 3 == 0:
            text += f" Worked for years with {rng.choice(people)}."
        documents.append(Document(line, name, text))
    known = set(people)
    strangers = [name for name in (draw() for _ in range(2 * QUESTIONS)) if name not in known]
    return Database.of(documents, "made-up", f"{count:064d}"), people, strangers


def misspell(name: str, rng: random.Random) -> str:
    """The name with one of its letters changed."""
    at = rng.choice([at for at, letter in enumerate(name) if letter.isalpha()])
    other = rng.choice([letter for letter in "aeionrst" if letter != name[at].lower()])
    return name[:at] + other + name[at + 1 :]


def ask(evidence: Evidence, names: list[str]) -> tuple[list[float], list[float], list[list[str]]]:
    """Milliseconds of every find(), those the processor worked on it, and whom it found."""
    times, worked, found = [], [], []
    for name in names:
        start, cpu = time.perf_counter(), time.thread_time()
        lines = evidence.find(name) or evidence.find_similar(name)
        times.append((time.perf_counter() - start) * 1e3)
        worked.append((time.thread_time() - cpu) * 1e3)
        found.append([line.subject for line in lines])
    return times, worked, found


def measure(count: int, folder: Path) -> list[dict[str, Any]]:
    """All records of one size."""
    rng = random.Random(count)
    corpus, people, strangers = make_corpus(count, rng)
    path = folder / f"{count}.sqlite"
    start = time.perf_counter()
    save_database(corpus, path)
    built = time.perf_counter() - start
    records: list[dict[str, Any]] = [
        {"name": "evidence build", "value": built, "unit": "s", "documents": count},
        {
            "name": "evidence size",
            "value": path.stat().st_size,
            "unit": "bytes",
            "text_bytes": sum(len(d.text.encode()) for d in corpus.documents),
            "documents": count,
        },
    ]
    asked = rng.sample(people, QUESTIONS)
    misspelt = [misspell(name, rng) for name in asked]
    with Evidence(corpus) as evidence:
        ask(evidence, asked[:50])
        for kind, names in (("seen", asked), ("unseen", strangers), ("misspelt", misspelt)):
            times, worked, found = ask(evidence, names[:QUESTIONS])
            record = {
                "name": f"evidence find, {kind}",
                "value": statistics.median(times),
                "unit": "ms",
                "p99": statistics.quantiles(times, n=100)[98],
                "cpu_median": statistics.median(worked),
                "cpu_p99": statistics.quantiles(worked, n=100)[98],
                "repeats": len(times),
                "documents": count,
            }
            if kind == "misspelt":
                right = [name in lines for name, lines in zip(asked, found, strict=True)]
                record["found"] = sum(right) / len(right)
            records.append(record)
    path.unlink()
    return records


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, nargs="+", default=[3_000, 30_000, 300_000])
    parser.add_argument("--million", action="store_true", help="1,000,000 documents as well")
    parser.add_argument("--out", default="evidence.jsonl")
    options = parser.parse_args()
    for size in [*options.documents, *([1_000_000] if options.million else [])]:
        with tempfile.TemporaryDirectory() as scratch:
            keep(measure(size, Path(scratch)), options.out)
