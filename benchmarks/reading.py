"""How well the reader reads texts as people have them, without any training.

    python benchmarks/reading.py manpages debian potters --seed 3

Texts of made_texts.py are written to a temporary folder and read as `wherefrom study` reads them.
found: stated answers that are read exactly; missed: stated answers where nothing is read; shown:
questions that no document answers, where something is read. Nothing is read where the documents
are more likely to be silent than not.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from pathlib import Path

from made_texts import KINDS, make_text, write

from wherefrom.corpus.facts import read_facts
from wherefrom.corpus.folding import fold_words
from wherefrom.study import StudyFiles, read_input

STATED = 0.5  # probability that documents state an answer, from which on one is read


def measure(kind: str, *, seed: int, labels: int, asked: int, mistakes: int) -> Counter[str]:
    """Counts of one text, with a line for each of some mistakes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = make_text(kind, seed)
        documents = write(folder, text, labels=labels, asked=asked, seed=seed)
        files = StudyFiles(documents, folder / "train.tsv", folder / "dev.tsv")
        given = read_input(files, folder)
        began = time.process_time()
        database = read_facts(given.corpus, given.train.questions)
        seconds = time.process_time() - began
        counts: Counter[str] = Counter(milliseconds=round(1000 * seconds))
        per_relation: dict[str, Counter[str]] = {}
        for question in given.dev.questions:
            answers = database.extracted(question.template, fold_words(question.subject))
            is_read = sum(answer.probability for answer in answers) >= STATED
            said = answers[0].text if is_read else ""
            kinds = ["silent", "shown" * is_read] if question.is_silent else ["stated"]
            if not question.is_silent:
                kinds += ["missed" * (not is_read), "found" * (said == question.answer)]
            counts.update(filter(None, kinds))
            per_relation.setdefault(question.template, Counter()).update(filter(None, kinds))
            wrong = said != ("" if question.is_silent else question.answer)
            if wrong and mistakes > 0:
                mistakes -= 1
                print(f"  {question.text}  {question.answer!r} read as {said!r}")
        for template, found in per_relation.items() if mistakes else ():
            print(f"  {template} {dict(found)}")
        for reading in database.relations() if mistakes else ():
            print(f"  {reading.template}: {reading.found} of {reading.asked} in the text")
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kinds", nargs="*", default=KINDS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--labels", type=int, default=40, help="training questions of a relation")
    parser.add_argument("--asked", type=int, default=60, help="dev questions of a relation")
    parser.add_argument("--mistakes", type=int, default=0, help="mistakes to print for each text")
    options = parser.parse_args()
    print("text         stated  found   missed  silent  shown   CPU s")
    for kind in options.kinds:
        counts = measure(
            kind,
            seed=options.seed,
            labels=options.labels,
            asked=options.asked,
            mistakes=options.mistakes,
        )
        stated, silent = max(1, counts["stated"]), max(1, counts["silent"])
        shares = counts["found"] / stated, counts["missed"] / stated, counts["shown"] / silent
        found, missed, shown = (f"{share:7.1%}" for share in shares)
        print(
            f"{kind:12} {counts['stated']:6} {found} {missed} {counts['silent']:6} {shown}"
            f" {counts['milliseconds'] / 1000:7.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
