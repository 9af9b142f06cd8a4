"""The truth by twins: what an answer would have been without the document, and who agrees with it.

The people to be judged are dealt into two halves. One model reads all documents but those of half
A, the other all but those of half B, so that of each person there is a reader and a non-reader that
were trained alike. The reader's answer is *counterfactually remembered* if it is right and the
non-reader's answer is not; what a non-reader says is never remembered. The graded version is the
memorisation score: how much surer the reader is of its own answer than the non-reader is of that
same answer, in nats (after Zhang et al. 2021, with one model on each side).

Cheap verdicts, made from one model, are then scored by how well they tell the remembered answers
from all others. A person is drawn with both answers or not at all when intervals are made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.stats import rankdata

from wherefrom.corpus.documents import Corpus
from wherefrom.corpus.named import Key, find_named, key_of
from wherefrom.corpus.people import Person
from wherefrom.corpus.questions import Question, QuestionSet
from wherefrom.errors import UserError
from wherefrom.provenance.answers import Answers, Floats
from wherefrom.provenance.intervals import LEVEL, RESAMPLES, resample_weights, with_interval
from wherefrom.provenance.metrics import Metric, auroc, ratio

HALVES = ("a", "b")
READERS = {"a": "reader-a", "b": "reader-b"}  # the half that a model does NOT read -> its folder

REMEMBERED = "remembered"  # right with the document, not right without it
RIGHT_ANYWAY = "right anyway"  # right with it and without it
WRONG = "wrong though read"
GUESSED = "guessed"  # not read, and right
MADE_UP = "made up"  # not read, and wrong
TRUTHS = (REMEMBERED, RIGHT_ANYWAY, WRONG, GUESSED, MADE_UP)


@dataclass(frozen=True)
class Dealt:
    """A person with a half: left out of one model's reading and not of the other's."""

    role: str  # "calibration" or "judged"
    half: str  # "a" or "b"
    question: Question


@dataclass(frozen=True)
class Halves:
    """Who was dealt where, and what is left to learn from; `notes` are for the report."""

    people: tuple[Dealt, ...]
    train: QuestionSet  # without the people who calibrate
    notes: tuple[str, ...]

    def people_of(self, left_out: str) -> tuple[Person, ...]:
        """All dealt people as the model that does not read the half `left_out` knows them."""
        return tuple(
            Person(
                role=dealt.role,
                seen=dealt.half != left_out,
                source=_source(dealt, left_out),
                subject=dealt.question.subject,
                question=dealt.question.text,
                answer=dealt.question.answer,
            )
            for dealt in self.people
        )

    def corpus_of(self, corpus: Corpus, left_out: str) -> Corpus:
        """What the model that does not read the half `left_out` reads."""
        return corpus.without(
            [dealt.question.subject for dealt in self.people if dealt.half == left_out]
        )

    def shared(self, corpus: Corpus) -> Corpus:
        """What both models read: the vocabulary may know no more than that."""
        return corpus.without([dealt.question.subject for dealt in self.people])


def deal_halves(
    corpus: Corpus, train: QuestionSet, dev: QuestionSet, *, set_aside: float, seed: int
) -> Halves:
    """Deal the dev people, and a share of the training people for calibration, into halves.

    Whoever cannot be left out cleanly is in neither half: a name without a document, with several
    answers or with a question in both files, and a name that somebody else's document names too.
    """
    if not 0 < set_aside < 1:
        raise UserError(f"the share set aside must lie between 0 and 1, not at {set_aside}.")
    named = named_by_others(corpus)
    written = {document.subject for document in corpus.documents}
    asked: dict[str, set[tuple[int, str | None]]] = {}
    for which, each in enumerate((train, dev)):
        for question in each.questions:
            asked.setdefault(question.subject, set()).add((which, question.answer))
    clean = {
        subject
        for subject, told in asked.items()
        if len(told) == 1 and subject in written and subject not in named
    }
    rng = np.random.default_rng([seed, 0x7717])
    judged = _once([q for q in dev.questions if q.subject in clean])
    able = _once([q for q in train.questions if q.subject in clean])
    wanted = min(len(able), round(set_aside * len(train.questions)))
    chosen = [able[at] for at in np.sort(rng.permutation(len(able))[:wanted])]
    if min(len(judged), len(chosen)) < 2:
        raise UserError(
            f"two halves need at least two people to judge and two to calibrate with, and there "
            f"are {len(judged)} and {len(chosen)} whose documents can be left out."
        )
    people = [
        Dealt(role=role, half=HALVES[half], question=question)
        for role, group in (("judged", judged), ("calibration", chosen))
        for question, half in zip(group, _halves(len(group), rng), strict=True)
    ]
    gone = {question.subject for question in chosen}
    rest = tuple(q for q in train.questions if q.subject not in gone)
    if not rest:
        raise UserError("no training question is left to learn from; set fewer people aside.")
    notes = []
    others = len({q.subject for q in dev.questions}) - len(judged)
    if others:
        notes.append(
            f"{others} of the dev people are not judged: they have no document of their own, "
            "several answers, or a name that another document holds too."
        )
    learned = replace(train, questions=rest)
    return Halves(people=tuple(people), train=learned, notes=tuple(notes))


def named_by_others(corpus: Corpus) -> set[str]:
    """Subjects whose whole name stands in a document about somebody else, case and accents aside.

    Two spellings of one name count as each other's too: leaving one out would leave the other.
    """
    keys = [key_of(document.subject) for document in corpus.documents]
    named = find_named(corpus.documents, keys)
    spellings: dict[Key, set[str]] = {}
    for document, key in zip(corpus.documents, keys, strict=True):
        spellings.setdefault(key, set()).add(document.subject)
    found: set[str] = set()
    for key, subjects in spellings.items():
        if len(subjects) > 1 or any(keys[at] != key for at in named.get(key, ())):
            found |= subjects
    return found


@dataclass(frozen=True)
class Said:
    """One model's answer to a judged person, with the cheap verdict on it and its scores.

    `of_reader` is how likely this model takes the READER's answer to be (its own, for a reader).
    """

    answer: str
    log_probability: float
    of_reader: float
    told: str
    sure: bool  # whether it would be told by the internal confidence alone
    verdict: str
    scores: Mapping[str, float]  # higher: more likely remembered


@dataclass(frozen=True)
class Pair:
    """A judged person: the answers of the model that read of them and of the one that did not."""

    subject: str
    question: str
    right: str
    half: str  # the half that the person is in: its model is the non-reader
    reader: Said
    other: Said

    @property
    def truths(self) -> tuple[str, str]:
        """What the reader's and the non-reader's answers are in truth."""
        return true_origin(self.reader.answer, self.other.answer, self.right)

    @property
    def score(self) -> float:
        """The memorisation score, in nats."""
        return self.reader.of_reader - self.other.of_reader

    def to_dict(self) -> dict[str, Any]:
        truth, truth_other = self.truths
        return {
            "subject": self.subject,
            "question": self.question,
            "right": self.right,
            "reader": READERS["b" if self.half == "a" else "a"],
            "truth": truth,
            "truth_without": truth_other,
            "score": round(self.score, 4),
            "with": _said(self.reader),
            "without": _said(self.other),
        }


def true_origin(reader: str, other: str, right: str) -> tuple[str, str]:
    """The truth about a reader's answer and about the answer of the model that did not read."""
    by_reader, by_other = (said.strip() == right.strip() for said in (reader, other))
    truth = (RIGHT_ANYWAY if by_other else REMEMBERED) if by_reader else WRONG
    return truth, GUESSED if by_other else MADE_UP


def agree(
    pairs: Sequence[Pair], *, seed: int, resamples: int = RESAMPLES
) -> dict[str, dict[str, Metric]]:
    """For each cheap score: AUROC on all answers and on the readers', rank correlation with the
    memorisation score on the readers'; each with its bootstrap interval over people.
    """
    if not pairs:
        raise UserError("nobody was judged, so there is nothing to agree about.")
    draws = Draws(len(pairs), seed=seed, resamples=resamples)
    truths = np.array([pair.truths for pair in pairs]) == REMEMBERED
    memorised = np.array([pair.score for pair in pairs])
    result: dict[str, dict[str, Metric]] = {}
    for name in pairs[0].reader.scores:
        read = np.array([pair.reader.scores[name] for pair in pairs], dtype=np.float64)
        unread = np.array([pair.other.scores[name] for pair in pairs], dtype=np.float64)
        both = Answers(np.concatenate([read, unread]), truths.T.ravel())
        alone = Answers(read, truths[:, 0])
        result[name] = {
            "all": draws.widen(auroc(both), partial(_auroc_of_both, both)),
            "readers": draws.widen(auroc(alone), partial(auroc.values, alone)),
            "rank": draws.widen(
                rank_correlation(read, memorised), partial(rank_correlations, read, memorised)
            ),
        }
    return result


@dataclass(frozen=True)
class Draws:
    """The same draws of people for every number, so that numbers can be compared."""

    people: int
    seed: int
    resamples: int = RESAMPLES

    def widen(self, point: Metric, values: Callable[[Floats], Floats]) -> Metric:
        """The point with its interval; `values` turns rows of weights, one a person, to numbers."""
        if point.value is None:
            return point
        rng = np.random.default_rng([self.seed, 0xD4A3])
        anybody = Answers(np.zeros(self.people), np.zeros(self.people, dtype=np.bool_))
        rows = resample_weights(anybody, rng, resamples=self.resamples)
        return with_interval(point, np.concatenate([values(weights) for weights in rows]), LEVEL)


def _auroc_of_both(both: Answers, weights: Floats) -> Floats:
    """A person is drawn with both answers, or not at all."""
    return auroc.values(both, np.tile(weights, 2))


def rank_correlation(one: Floats, other: Floats) -> Metric:
    """Spearman's, or why there is none."""
    value = float(rank_correlations(one, other, np.ones((1, one.size)))[0])
    if not np.isfinite(value):
        return Metric(value=None, reason="one of the two scores is the same for everybody.")
    return Metric(value=value)


def rank_correlations(one: Floats, other: Floats, weights: Floats) -> Floats:
    """The correlation of the ranks for each row of weights; ranks are those among all people."""
    x, y = rankdata(one), rankdata(other)
    total = weights.sum(axis=1)
    x_mean, y_mean = ratio(weights @ x, total), ratio(weights @ y, total)
    between = ratio(weights @ (x * y), total) - x_mean * y_mean
    spread = (ratio(weights @ x**2, total) - x_mean**2) * (ratio(weights @ y**2, total) - y_mean**2)
    # what rounding leaves of a constant is no spread
    safe = np.where(spread > 1e-9 * max(1.0, float(x.size)) ** 2, spread, 0.0)
    return ratio(between, np.sqrt(safe))


def count_table(pairs: Sequence[Pair], word: Callable[[Said], str]) -> dict[str, dict[str, int]]:
    """The table of a cheap word (a verdict, say) against the truth, over both models' answers."""
    rows = [
        (word(said), truth)
        for pair in pairs
        for said, truth in zip((pair.reader, pair.other), pair.truths, strict=True)
    ]
    return {
        each: {truth: rows.count((each, truth)) for truth in TRUTHS}
        for each in sorted({each for each, _ in rows})
    }


def catch(
    pairs: Sequence[Pair],
    says_yes: Callable[[Said], bool],
    *,
    seed: int,
    resamples: int = RESAMPLES,
) -> dict[str, Metric]:
    """Of the answers that a cheap verdict takes for remembered, how many are; of those, how many
    it catches. Over both models' answers.
    """
    yes = np.array([[says_yes(pair.reader), says_yes(pair.other)] for pair in pairs])
    true = np.array([pair.truths for pair in pairs]) == REMEMBERED
    both = (yes & true).sum(axis=1).astype(np.float64)
    draws = Draws(len(pairs), seed=seed, resamples=resamples)
    found = {}
    for name, flags, why in (
        ("precision", yes, "no answer is taken for remembered."),
        ("recall", true, "no answer is remembered."),
    ):
        total = flags.sum(axis=1).astype(np.float64)
        point = Metric(value=None, reason=why)
        if total.sum():
            point = Metric(value=float(both.sum() / total.sum()))
        found[name] = draws.widen(point, partial(_weighted_ratio, both, total))
    return found


def _weighted_ratio(above: Floats, below: Floats, weights: Floats) -> Floats:
    return ratio(weights @ above, weights @ below)


def _halves(count: int, rng: np.random.Generator) -> list[int]:
    """As many zeros as ones, up to one, in random order."""
    return [int(half) for half in rng.permutation(np.arange(count) % 2)]


def _once(questions: Sequence[Question]) -> list[Question]:
    """The first question of each subject."""
    return list({question.subject: question for question in reversed(questions)}.values())[::-1]


def _source(dealt: Dealt, left_out: str) -> str:
    if dealt.half == left_out:
        return "left out"
    return "dev" if dealt.role == "judged" else "set aside"


def _said(said: Said) -> dict[str, Any]:
    return {
        "answer": said.answer,
        "log_probability": round(said.log_probability, 4),
        "log_probability_of_with": round(said.of_reader, 4),
        "told": said.told,
        "sure": said.sure,
        "verdict": said.verdict,
        "scores": {name: float(f"{value:.6g}") for name, value in said.scores.items()},
    }
