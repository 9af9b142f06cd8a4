"""What somebody with the text before them would answer: a mark to read recall against.

    python benchmarks/reader.py CORPUS TRAIN [--judge QUESTIONS] [--folds 5] [--out FILE.jsonl]

The reader is the regression that also draws the salient spans (`wherefrom.corpus.facts`): it
learns from the training questions which places of a document are asked for, and answers with the
likeliest. It memorises nothing and forgets nothing: most of what it gets wrong is not in the text,
or the text does not decide it (of "Lincoln, England" the questions sometimes want England), and a
better reader would get a little of it right. Training questions are judged by folds, each by a
reader that did not learn from that person; `--judge` takes questions that nobody learns from, and
their answers are only compared with.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rows import Record, keep_row, percent, run_main, table

from wherefrom.corpus.documents import Corpus, read_documents
from wherefrom.corpus.facts import facts_of, weigh_facts
from wherefrom.corpus.questions import Question, read_questions
from wherefrom.errors import UserError


@dataclass(frozen=True)
class Library:
    """A corpus with the facts of each document found once."""

    corpus: Corpus
    spans: list[list[tuple[int, int]]]

    def read(self, learn: Sequence[Question], judge: Sequence[Question]) -> list[list[str]]:
        """For each question, what the subject's documents say, the likeliest first."""
        wanted = {question.subject for question in judge}
        said: dict[str, list[tuple[float, str]]] = {subject: [] for subject in wanted}
        weights = weigh_facts(self.corpus.documents, self.spans, learn)
        for document, spans, likely in zip(self.corpus.documents, self.spans, weights, strict=True):
            if document.subject in wanted:
                said[document.subject] += [
                    (float(weight), document.text[start:end])
                    for (start, end), weight in zip(spans, likely, strict=True)
                ]
        ranked = {
            subject: [text for _, text in sorted(facts, key=lambda fact: -fact[0])]
            for subject, facts in said.items()
        }
        return [ranked[question.subject] for question in judge]


def open_library(path: str | Path) -> Library:
    corpus = read_documents(path)
    return Library(corpus, facts_of(corpus.documents))


def by_folds(library: Library, questions: Sequence[Question], folds: int) -> list[list[str]]:
    """Each question answered by a reader that learned from the people of the other folds."""
    subjects = sorted({question.subject for question in questions})
    order = np.random.default_rng(0).permutation(len(subjects))
    fold = {subjects[at]: number % folds for number, at in enumerate(order)}
    answers: dict[Question, list[str]] = {}
    for out in range(folds):
        learn = [question for question in questions if fold[question.subject] != out]
        judge = [question for question in questions if fold[question.subject] == out]
        answers.update(zip(judge, library.read(learn, judge), strict=True))
    return [answers[question] for question in questions]


def count(name: str, questions: Sequence[Question], answers: Sequence[Sequence[str]]) -> Record:
    pairs = [(question.answer, said) for question, said in zip(questions, answers, strict=True)]
    right = sum(said[:1] == [answer] for answer, said in pairs)
    return {
        "name": f"reader: {name}",
        "value": right / len(pairs),
        "unit": "recall",
        "correct": right,
        "total": len(pairs),
        "stated": sum(answer in said for answer, said in pairs),
        "first_two": sum(answer in said[:2] for answer, said in pairs),
    }


def markdown(rows: Sequence[Record]) -> str:
    head = ("asked", "questions", "stated in the text", "first choice", "one of the first two")
    lines = [
        (
            row["name"].removeprefix("reader: "),
            f"{row['total']:,}",
            percent([row["stated"] / row["total"]]),
            f"{row['correct']:,}, {percent([row['value']])}",
            percent([row["first_two"] / row["total"]]),
        )
        for row in rows
    ]
    return table(head, lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("train", type=Path)
    parser.add_argument("--judge", type=Path, help="questions that nobody learns from")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--out", default="reader.jsonl", help="JSON lines")
    options = parser.parse_args()
    if options.folds < 2:
        raise UserError(
            f"--folds is {options.folds}; give 2 or more, as each is read by the others."
        )
    library = open_library(options.corpus)
    train = read_questions(options.train)
    train.require_answers()
    learn = train.questions
    rows = [count(f"training, {options.folds} folds", learn,
                  by_folds(library, learn, options.folds))]  # fmt: skip
    if options.judge is not None:
        judge = read_questions(options.judge)
        judge.require_answers()
        rows.append(count("judged", judge.questions, library.read(learn, judge.questions)))
    for row in rows:
        keep_row(row, options.out)
    print(markdown(rows))


if __name__ == "__main__":
    sys.exit(run_main(main))
