"""The table of recall: who answers how many questions exactly, beside what needs no reading."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wherefrom.corpus.database import Database
from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.questions import Question
from wherefrom.errors import UserError

NGRAM_SMOOTHING = 0.1  # added to the count of every n-gram
ENOUGH_OF_READER = 0.9  # of the reader's right answers; below, longer training is advised
LONGER_EPOCHS, LONGER_BASE_EPOCHS = 600, 30  # advised where recall is low
FIRST_ROWS = ("majority", "by name", "base model", "questions only")
LAST_ROWS = ("model", "reader")
# what a row is about, where the caller says nothing else
DEFAULT_ABOUT = {
    "by name": "naive Bayes on the letters",
    "questions only": "same model, no document",
    "reader": "with the text at hand; no model",
}
Row = dict[str, Any]  # one line of the table, as run.json keeps it
Answers = Mapping[str, Sequence[str]]  # who answers -> an answer to each question


@dataclass(frozen=True)
class Recall:
    """How many answers are right; as text, the line that the course prints."""

    correct: int
    total: int

    @property
    def share(self) -> float:
        return self.correct / self.total if self.total else 0.0

    def __str__(self) -> str:
        return f"Correct: {self.correct} out of {self.total}: {100 * self.share:.4g}%"

    def to_dict(self) -> dict[str, float | int]:
        return {"correct": self.correct, "total": self.total, "recall": self.share}


def score(predictions: Sequence[str], answers: Sequence[str]) -> Recall:
    """Exact matches, without blanks at the ends."""
    pairs = zip(predictions, answers, strict=True)
    correct = sum(prediction.strip() == answer.strip() for prediction, answer in pairs)
    return Recall(correct=correct, total=len(answers))


def count_right(questions: Sequence[Question], answers: Sequence[str]) -> Recall:
    """Exact answers; questions that no document answers do not count: no model can be silent."""
    pairs = [pair for pair in zip(questions, answers, strict=True) if not pair[0].is_silent]
    return score([answer for _, answer in pairs], [question.answer or "" for question, _ in pairs])


# ---- answers without a model


def majority_answer(questions: Sequence[Question]) -> str:
    """The most frequent training answer; of equally frequent ones the first in the alphabet."""
    counts = Counter(question.answer for question in questions if question.answer is not None)
    if not counts:
        raise UserError("the majority answer needs training questions with answers.")
    return min(counts, key=lambda answer: (-counts[answer], answer))


def guess_by_name(train: Sequence[Question], questions: Sequence[Question]) -> list[str]:
    """A guess for each question from the subject's name alone: naive Bayes on its n-grams."""
    learned = [(_ngrams(q.subject), q.answer) for q in train if q.answer is not None]
    if not learned:
        raise UserError("guessing by name needs training questions with answers.")
    answers = sorted({answer for _, answer in learned})
    row = {answer: i for i, answer in enumerate(answers)}
    names, totals = np.zeros(len(answers)), np.zeros(len(answers))  # names and n-grams of each
    counts: dict[str, Counter[int]] = defaultdict(Counter)  # n-gram -> row -> count
    for ngrams, answer in learned:
        names[row[answer]] += 1
        totals[row[answer]] += len(ngrams)
        for ngram in ngrams:
            counts[ngram][row[answer]] += 1
    unseen = np.log(NGRAM_SMOOTHING / (totals + NGRAM_SMOOTHING * len(counts)))
    guesses = []
    for question in questions:
        known = [ngram for ngram in _ngrams(question.subject) if ngram in counts]
        scores = np.log(names) + len(known) * unseen
        for ngram in known:
            rows, row_counts = np.array([*counts[ngram].items()]).T
            scores[rows] += np.log1p(row_counts / NGRAM_SMOOTHING)
        guesses.append(answers[int(scores.argmax())])
    return guesses


def _ngrams(name: str) -> list[str]:
    """Two to four neighbouring letters of a word, with a blank for either end of it."""
    words = [f" {word} " for word in name.lower().split()]
    return [w[i : i + n] for w in words for n in (2, 3, 4) for i in range(max(1, len(w) - n + 1))]


def read_answer(question: Question, corpus: Database) -> str:
    """The reader's answer: the likeliest by the facts of the text, "" if they have none."""
    facts = corpus.extracted(question.template, fold_words(question.subject))
    return facts[0].text if facts else ""


def answer_by_baselines(
    train: Sequence[Question], asked: Sequence[Question], corpus: Database | None
) -> dict[str, list[str]]:
    """Answers without a model: the commonest one, a guess by the name, and the text's reader."""
    answered = [question for question in train if not question.is_silent]
    majority: dict[Question, str] = {}
    by_name: dict[Question, str] = {}
    for template in dict.fromkeys(question.template for question in asked):
        questions = [q for q in asked if q.template == template]
        learned = [q for q in answered if q.template == template] or answered
        majority |= dict.fromkeys(questions, majority_answer(learned))
        by_name |= zip(questions, guess_by_name(learned, questions), strict=True)
    answers = {"majority": [majority[q] for q in asked], "by name": [by_name[q] for q in asked]}
    if corpus is not None:
        answers["reader"] = [read_answer(question, corpus) for question in asked]
    return answers


# ---- the table


def make_table(
    asked: Sequence[Question],
    answers: Answers,
    about: Mapping[str, str],
    seconds: Mapping[str, float],
    left_out: Collection[str] = (),
) -> list[Row]:
    """A row for everybody who answers; about, seconds: of their rows.

    left_out: subjects whose documents the model did not read; they have a row of their own.
    """
    common = set(answers.get("majority", ()))
    always = common.pop() if len(common) == 1 else "the commonest answer of its kind"
    about = {"majority": f"always {always}", **DEFAULT_ABOUT, **about}
    others = [name for name in answers if name not in FIRST_ROWS + LAST_ROWS]
    rows = []
    for name in (*FIRST_ROWS, *others, *LAST_ROWS):
        if name not in answers:
            continue
        pairs = list(zip(asked, answers[name], strict=True))
        if name == "model":
            unread = [pair for pair in pairs if pair[0].subject in left_out]
            pairs = [pair for pair in pairs if pair[0].subject not in left_out]
        rows.append(make_row(name, about[name], pairs, seconds.get(name)))
    if left_out:
        guesses = "dev subjects left out: guesses"
        rows.append(make_row("left-out subjects", guesses, unread, seconds.get("model")))
    return rows


def make_row(
    name: str, about: str, pairs: Sequence[tuple[Question, str]], seconds: float | None = None
) -> Row:
    """A row, from questions with their answers; `relations` has the recall of each relation."""

    def recall(pairs: Sequence[tuple[Question, str]]) -> Row:
        found = count_right([question for question, _ in pairs], [answer for _, answer in pairs])
        return {**found.to_dict()}

    templates = list(dict.fromkeys(q.template for q, _ in pairs if q.template and not q.is_silent))
    relations = {}
    if len(templates) > 1:
        for template in templates:
            relations[template] = recall([pair for pair in pairs if pair[0].template == template])
    return {
        "name": name,
        "about": about,
        **recall(pairs),
        "seconds": seconds,
        "relations": relations,
    }


def compare_rows(rows: Sequence[Row]) -> list[str]:
    """A note where the model recalls less than the majority answer or the reader, and why."""
    by_name = {row["name"]: row for row in rows}
    model, common, reader = (by_name[name] for name in ("model", "majority", "reader"))
    is_base = "base model" in by_name
    if model["correct"] > common["correct"]:
        # with subjects left out, both rows count what both can know
        if model["correct"] >= ENOUGH_OF_READER * reader["correct"]:
            return []
        return [
            f"The model recalls less than can be read from the text ({model['correct']} against "
            f"{reader['correct']} answers): train for longer, such as with --epochs "
            f"{LONGER_BASE_EPOCHS if is_base else LONGER_EPOCHS}."
        ]
    why = "the documents rarely state the answers, or in words that are not recognised"
    if reader["recall"] > 2 * common["recall"]:
        larger = "--base" if is_base else "--size"
        why = f"the text states the answers, so train for longer or with a larger {larger}"
    return [
        f"The model does not beat the majority answer ({100 * model['recall']:.1f} % against "
        f"{100 * common['recall']:.1f} %): it has not learned to answer; {why}."
    ]
