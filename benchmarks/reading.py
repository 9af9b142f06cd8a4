"""How well the reader reads texts as people have them, without any training.

    python benchmarks/reading.py manpages debian potters --seed 3
    python benchmarks/reading.py --untuned                 texts that nothing was tuned on
    python benchmarks/reading.py --contradictions          two documents that disagree

Texts of made_texts.py are written to a temporary folder and read as `wherefrom study` reads them.
found: stated answers that are read exactly; missed: stated answers where nothing is read; shown:
questions that no document answers, where something is read. Nothing is read where the documents
are more likely to be silent than not.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections import Counter
from pathlib import Path

from made_texts import KINDS, NOT_TUNED, contradict, make_text, write

from wherefrom.corpus.facts import is_stated, read_facts, stating_documents
from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.matching import match_documents
from wherefrom.study import StudyFiles, read_input


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
            is_read = is_stated(answers)
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


def measure_contradictions(seed: int, count: int = 30) -> tuple[int, int]:
    """How many of some contradictions are read with both values, each with its own line; and how
    many lines are said to state a value that they do not state."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rng = random.Random(seed)
        text = make_text("painters", seed)
        disputed = contradict(text, rng, count)
        documents = write(folder, text, labels=40, asked=40, seed=seed)
        files = StudyFiles(documents, folder / "train.tsv", folder / "dev.tsv")
        given = read_input(files, folder)
        database = read_facts(given.corpus, given.train.questions)
        matcher = match_documents(given.train, given.corpus)
        both = wrong = 0
        for asked, values in disputed.items():
            question = matcher.understand(asked)
            answers = database.extracted(question.template, fold_words(question.subject))
            read = {}
            for answer, stating in zip(answers, stating_documents(answers), strict=True):
                lines = {database.documents[document].line for document in stating}
                wrong += len(lines - {values.get(answer.text, 0)})
                if lines:
                    read[answer.text] = lines
            both += all(line in read.get(value, ()) for value, line in values.items())
    return both, wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kinds", nargs="*", default=KINDS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--labels", type=int, default=40, help="training questions of a relation")
    parser.add_argument("--asked", type=int, default=60, help="dev questions of a relation")
    parser.add_argument("--mistakes", type=int, default=0, help="mistakes to print for each text")
    parser.add_argument("--contradictions", action="store_true", help="measure these instead")
    parser.add_argument("--untuned", action="store_true", help="the texts of NOT_TUNED")
    options = parser.parse_args()
    if options.contradictions:
        both, wrong = measure_contradictions(options.seed)
        print(f"both values with their lines: {both} of 30; wrong lines: {wrong}")
        return
    print("text         stated  found   missed  silent  shown   CPU s")
    kinds = NOT_TUNED if options.untuned else options.kinds
    for kind in kinds:
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
