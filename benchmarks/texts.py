"""Texts and questions of other kinds than the embedded world's, made by rules, to try studies on.

    python benchmarks/texts.py a5 WIKI TRAIN DEV --out DIR   place, year and living
    python benchmarks/texts.py korean --out DIR              also chinese, japanese, turkish, hebrew

Each folder gets documents.txt, train.tsv and dev.tsv. For A5 a rule reads a year of birth and an
occupation off the lines; who is in which file stays as A5 has it. The biographies of the other
languages are invented, in three wordings each, with other places as distractors.
"""

from __future__ import annotations

import argparse
import random
import re
import tomllib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from wherefrom.corpus.database import read_documents
from wherefrom.corpus.questions import read_questions

LANGUAGES = tomllib.loads(Path(__file__).with_name("texts.toml").read_text(encoding="utf-8"))
PEOPLE = 1_500
STOPS = "and who whose born in from for at of with known by on based best that active since to as"
LIVING = re.compile(
    r"\b(?:is|was|became) an? ((?:[\w'-]+ )*?[a-z][a-z'-]+)"
    rf"(?= (?:{STOPS.replace(' ', '|')})\b| [.(-]|[,.);])"
)
BORN_IN = re.compile(r"\b[Bb]orn\b[^.;)]*?\b(1\d{3}|20[01]\d)\b")
IN_BRACKETS = re.compile(r"[^(]{0,60}\((?:c\. )?[^)]{0,25}?\b(1\d{3})\b")
FEWEST_PAIRS, FEWEST_WORDS = 5, 2  # how often an occupation of two words, and any, must occur
Rows = dict[str, list[tuple[str, str]]]


def year_of(text: str) -> str | None:
    found = BORN_IN.search(text[:160]) or IN_BRACKETS.match(text)
    return found[1] if found else None


def living_of(text: str) -> str | None:
    """The last one or two lower-case words of "was a ...": "film director"."""
    found = LIVING.search(text)
    tail: list[str] = []
    for word in reversed(found[1].split() if found else ()):
        if not word.islower() or len(tail) == 2:
            break
        tail.insert(0, word)
    return " ".join(tail) or None


def make_a5(wiki: Path, train: Path, dev: Path) -> tuple[str, dict[str, Rows]]:
    """The text, and for each relation the rows of train and dev."""
    corpus = read_documents(wiki)
    bodies = {d.subject: d.text[len(d.subject) + 2 :] for d in reversed(corpus.documents)}
    common = Counter(filter(None, map(living_of, bodies.values())))
    relations: dict[str, Rows] = {
        name: {"train": [], "dev": []} for name in ("place", "year", "living")
    }
    for part, path in (("train", train), ("dev", dev)):
        for question in read_questions(path).questions:
            name = question.subject
            body = bodies.pop(name, None)
            if body is None:
                continue
            relations["place"][part].append((question.text, question.answer or ""))
            if year := year_of(body):
                relations["year"][part].append((f"In which year was {name} born?", year))
            living = living_of(body)
            if living and " " in living and common[living] < FEWEST_PAIRS:
                living = living.split()[-1]
            if living and common[living] >= FEWEST_WORDS:
                relations["living"][part].append((f"What did {name} do for a living?", living))
    return "".join(document.text + "\n" for document in corpus.documents), relations


def make_language(name: str, people: int, seed: int) -> tuple[str, Rows]:
    """Invented biographies, and two questions about each person."""
    words, rng = LANGUAGES[name], random.Random(seed)
    lists = {key: words[key].split() for key in ("first", "second", "places", "jobs")}
    weights = [1 / (rank + 3) for rank in range(len(lists["places"]))]
    rows: Rows = {"train": [], "dev": []}
    lines: dict[str, str] = {}
    while len(lines) < people:
        subject = words["join"].join((rng.choice(lists["first"]), rng.choice(lists["second"])))
        if rng.random() < 0.75:
            subject += words["join"] + rng.choice(lists["second"])
        if subject in lines:
            continue
        place = rng.choices(lists["places"], weights)[0]
        other, third = rng.sample([p for p in lists["places"] if p != place], 2)
        fields = {"s": subject, "p": place, "q": other, "r": third, "y": rng.randint(1880, 1990)}
        fields["j"] = rng.choice(lists["jobs"])
        lines[subject] = f"{subject}. {rng.choice(words['texts']).format(**fields)}"
        part = "train" if rng.random() < 0.75 else "dev"
        answers = (fields["p"], fields["j"])
        asked = (wording.format(s=subject) for wording in words["ask"])
        rows[part] += zip(asked, map(str, answers), strict=True)
    return "".join(line + "\n" for line in lines.values()), rows


def write(folder: Path, text: str, rows: Rows) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "documents.txt").write_text(text, encoding="utf-8")
    for part, pairs in rows.items():
        lines = "".join(f"{question}\t{answer}\n" for question, answer in pairs)
        (folder / f"{part}.tsv").write_text(lines, encoding="utf-8")


def together(relations: Sequence[Rows], seed: int) -> Rows:
    """All relations in one file, shuffled."""
    mixed = {part: [row for rows in relations for row in rows[part]] for part in ("train", "dev")}
    for pairs in mixed.values():
        random.Random(seed).shuffle(pairs)
    return mixed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=["a5", *LANGUAGES])
    parser.add_argument("files", nargs="*", type=Path, help="of a5: WIKI TRAIN DEV")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--people", type=int, default=PEOPLE)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.kind != "a5":
        write(options.out, *make_language(options.kind, options.people, options.seed))
        return
    if len(options.files) != 3:
        parser.error("a5 takes WIKI TRAIN DEV")
    text, relations = make_a5(*options.files)
    for name, rows in relations.items():
        write(options.out / name, text, rows)
    write(options.out / "all", text, together(list(relations.values()), options.seed))


if __name__ == "__main__":
    main()
