"""What is counted or drawn rather than averaged: grades, the risk-coverage curve, reliability.

These are the tables behind the metrics: what a plot needs and a reader can add up by hand. The
two numbers at the end are context for them: the calibration error that chance alone would show,
and the floor that no closed-book model can go below for people it has yet to meet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from wherefrom.errors import UserError
from wherefrom.provenance.answers import Answers, Floats
from wherefrom.provenance.metrics import BINS, Metric, calibration_bins, no_probability


@dataclass(frozen=True)
class Grades:
    """Every question has one grade; an answer below the threshold is not attempted."""

    correct: int
    wrong: int
    not_attempted: int

    @property
    def precision(self) -> float | None:
        """Right among given; none where nothing is given."""
        given = self.correct + self.wrong
        return self.correct / given if given else None


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """One point for every threshold that changes anything, the surest answers first.

    coverage: share of questions answered; risk: share of wrong among the answers given;
    generalised_risk: share of wrong answers given among all questions.
    """

    threshold: Floats
    coverage: Floats
    risk: Floats
    generalised_risk: Floats


@dataclass(frozen=True)
class ReliabilityBin:
    """People of like confidence: what was promised and what came true."""

    low: float
    high: float
    confidence: float
    accuracy: float
    people: int


def grade(answers: Answers, threshold: float) -> Grades:
    """Correct, wrong and not attempted, where answers are given from the threshold on."""
    given = answers.confidence >= threshold
    right = int((given & answers.correct).sum())
    return Grades(right, int(given.sum()) - right, len(answers) - int(given.sum()))


def risk_coverage(answers: Answers) -> RiskCoverage:
    """The curve; without anybody it has no points."""
    if not len(answers):
        return RiskCoverage(*(np.empty(0) for _ in range(4)))
    given = np.cumsum(answers.by_group(np.ones((1, len(answers))))[0])
    wrong = np.cumsum(answers.by_group((~answers.correct[None, :]).astype(np.float64))[0])
    threshold = answers.confidence[answers.order][answers.starts]
    people = len(answers)
    return RiskCoverage(threshold, given / people, wrong / given, wrong / people)


def reliability_table(answers: Answers, *, bins: int = BINS) -> list[ReliabilityBin]:
    """The bins of the expected calibration error, the least sure first, to be drawn."""
    if no_probability(answers) is not None:
        return []
    starts = calibration_bins(answers, bins)
    table = []
    for members in reversed(np.split(answers.order, starts[1:])):
        score = answers.confidence[members]
        table.append(
            ReliabilityBin(
                low=float(score.min()),
                high=float(score.max()),
                confidence=float(score.mean()),
                accuracy=float(answers.correct[members].mean()),
                people=len(members),
            )
        )
    return table


def ece_of_chance(
    answers: Answers, rng: np.random.Generator, *, bins: int = BINS, draws: int = 1000
) -> Metric:
    """The calibration error that a perfectly calibrated score would show on as many people.

    Rights and wrongs are drawn from the confidences themselves; mean and central 95 % of the
    draws. An expected calibration error within this interval is no evidence of miscalibration.
    """
    reason = no_probability(answers)
    if reason is not None:
        return Metric(value=None, reason=reason)
    score = answers.confidence[answers.order]
    gaps = score - (rng.random((draws, score.size)) < score)
    by_bin = np.add.reduceat(gaps, calibration_bins(answers, bins), axis=1)
    errors = np.abs(by_bin).sum(axis=1) / score.size
    low, high = np.quantile(errors, (0.025, 0.975))
    return Metric(value=float(errors.mean()), low=float(low), high=float(high))


def open_world_floor(subjects: Iterable[str], miscalibration: Metric) -> Metric:
    """How often a model that must always answer is bound to make things up about *new* people.

    `subjects` names the person of each document. The share of documents whose person occurs
    only once estimates how likely the next document is about somebody never met (Good and
    Turing); a model that generates facts as often as it believes them must invent at least that
    share, less its miscalibration (Kalai and Vempala 2024, small terms left out). It is no bound
    on the error about people who were read, and none on a model that may say "I don't know".
    """
    counts = Counter(subjects)
    if not counts:
        return Metric(value=None, reason="there are no documents to count singletons in.")
    if miscalibration.value is None:
        return Metric(value=None, reason=f"no miscalibration is known: {miscalibration.reason}")
    if miscalibration.value < 0:
        raise UserError(f"a miscalibration cannot be below 0, and {miscalibration.value} is.")
    singletons = sum(count == 1 for count in counts.values()) / counts.total()
    return Metric(
        value=max(0.0, singletons - miscalibration.value),
        reason="this is about people yet to be met, not about the people asked here.",
    )
