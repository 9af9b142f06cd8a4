"""Are questions in other words understood, and is no other question taken for one that is known?

    python benchmarks/asking.py [--part tune|final|all] [--show]

asking.tsv has paraphrases of the questions of several texts, and other questions about the same
subjects, marked "-". Nothing is trained: the reader reads each text, and every question is asked
about three subjects. A paraphrase counts if it is taken for its relation, or asked back with one or
two relations of which one is its own. It is wrong if it is taken for another relation; another
question is wrong if it is taken at all. Odd rows served to choose the rules (`tune`), even rows are
kept for the final figure.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rows import run_main, table

from wherefrom.corpus.database import RUN_DATABASE, read_documents
from wherefrom.corpus.matching import NotUnderstoodError, QuestionMatcher
from wherefrom.corpus.questions import SLOT, read_questions
from wherefrom.corpus.world import make_world, write_world
from wherefrom.corpus.world.generator import RELATIONS
from wherefrom.provenance.ask import make_matcher
from wherefrom.provenance.evidence import Evidence, save_database

TEXTS: dict[str, Any] = tomllib.loads(
    Path(__file__).with_name("asking.toml").read_text(encoding="utf-8")
)
ROWS = Path(__file__).with_name("asking.tsv")
PEOPLE = 300  # of the embedded world
SUBJECTS = 3  # about whom each question is asked
LEARNED = 40  # training questions of a relation
TAKEN, ASKED_BACK, WRONG, REFUSED = "taken", "asked back", "wrong", "refused"


def combine(parts: Sequence[str], glue: str = " ") -> list[str]:
    """Every combination of a word of each part."""
    names = [""]
    for part in parts:
        names = [f"{name}{glue}{word}".strip() for name in names for word in part.split()]
    return names


def write_text(name: str, folder: Path, seed: int) -> tuple[Path, Path, dict[str, str]]:
    """Documents and training questions of a text, and its wordings by relation."""
    documents, train = folder / f"{name}.txt", folder / f"{name}.tsv"
    if name == "people":
        world = write_world(make_world(PEOPLE, seed), folder / "world")
        return world / "documents.txt", world / "train.tsv", RELATIONS
    rules, rng = TEXTS[name], random.Random(seed)
    subjects = combine(rules["subjects"], "" if rules.get("glue") else " ")
    values = {key: combine(parts) for key, parts in rules.items() if len(key) == 1}
    ranges: Mapping[str, Sequence[int]] = rules["small"]
    lines, rows = [], {relation: [] for relation in rules["relations"]}
    for subject in subjects:
        drawn = {key: rng.choice(choices) for key, choices in values.items()}
        drawn |= {key: str(rng.randint(*limits)) for key, limits in ranges.items()}
        text = rng.choice(rules["texts"]).format(s=subject, **drawn)
        lines.append(f"{subject}\t{text}\n")
        for relation, (wording, key) in rules["relations"].items():
            rows[relation].append(f"{wording.format(s=subject)}\t{drawn[key]}\n")
    documents.write_text("".join(lines), encoding="utf-8")
    learned = [row for several in rows.values() for row in rng.sample(several, LEARNED)]
    train.write_text("".join(learned), encoding="utf-8")
    wordings = {name: wording for name, (wording, _) in rules["relations"].items()}
    return documents, train, {name: w.replace("{s}", SLOT) for name, w in wordings.items()}


def read_rows(part: str) -> Iterator[tuple[str, str, str]]:
    """Text, relation and question of the rows of a part."""
    lines = ROWS.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, start=1):
        if part == "all" or (part == "tune") == bool(number % 2):
            text, relation, question = line.split("\t")
            yield text, relation, question


def judge(matcher: QuestionMatcher, question: str, subject: str, wording: str | None) -> str:
    """What becomes of one question; `wording` is None if it asks for no relation of the text."""
    try:
        found = matcher.understand(question.replace("{s}", subject))
    except NotUnderstoodError as refused:
        if wording is None:
            return ASKED_BACK if refused.candidates else REFUSED
        offered = {candidate.template for candidate in refused.candidates}
        return ASKED_BACK if wording in offered and len(offered) <= 2 else REFUSED
    if found.subject != subject:  # about something that is unknown, such as "the mother of Ann"
        return REFUSED
    return TAKEN if found.template == wording else WRONG


def measure(part: str, seed: int, show: bool) -> dict[str, dict[str, Counter[str]]]:
    """Counts of what becomes of the questions, by text, for paraphrases and other questions."""
    rows = list(read_rows(part))
    counts: dict[str, dict[str, Counter[str]]] = {}
    for name in dict.fromkeys(text for text, *_ in rows):
        with tempfile.TemporaryDirectory() as folder:
            documents, train, wordings = write_text(name, Path(folder), seed)
            corpus = read_documents(documents)
            questions = read_questions(train, subjects=corpus.spellings())
            database = save_database(corpus, Path(folder) / RUN_DATABASE, questions.questions)
            with Evidence(database) as evidence:
                matcher = make_matcher(questions.templates, evidence, questions.endings)
                drawn = random.Random(seed).sample(
                    sorted({question.subject for question in questions.questions}), SUBJECTS
                )
                counts[name] = {"paraphrases": Counter(), "others": Counter()}
                for _, relation, question in (row for row in rows if row[0] == name):
                    wording = wordings.get(relation)
                    kind = "paraphrases" if wording else "others"
                    for subject in drawn:
                        found = judge(matcher, question, subject, wording)
                        counts[name][kind][found] += 1
                        is_odd = found == WRONG or (wording and found == REFUSED)
                        if show and is_odd and subject == drawn[0]:
                            print(f"{found}: {name} {relation} {question}", file=sys.stderr)
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=("tune", "final", "all"), default="all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", action="store_true", help="print what went wrong")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    counts = measure(options.part, options.seed, options.show)
    if options.json:
        print(json.dumps(counts, indent=2))
        return
    lines = []
    for kind in ("paraphrases", "others"):
        total: Counter[str] = Counter()
        for name, by_kind in counts.items():
            lines.append(_line(f"{name}, {kind}", by_kind[kind]))
            total += by_kind[kind]
        lines.append(_line(f"all, {kind}", total))
    print(table(("questions", "asked", TAKEN, ASKED_BACK, WRONG, REFUSED), lines))


def _line(name: str, counts: Counter[str]) -> tuple[str, ...]:
    found = [str(counts[key]) for key in (TAKEN, ASKED_BACK, WRONG, REFUSED)]
    return name, str(counts.total()), *found


if __name__ == "__main__":
    sys.exit(run_main(main))
