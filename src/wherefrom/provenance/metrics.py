"""How well a confidence tells right answers from wrong ones: one formula for each number.

A measure is a formula over weighted people. With every weight 1 it is the number itself; with
the weights of a resample it is one draw of the bootstrap (intervals.py), so a number and its
interval can never come from two formulas. What cannot be computed (nobody, all right, all
wrong, a score that is no probability) has no value and a sentence that says why; never a NaN.

Shapes: n people, r rows of weights, g groups of equal confidence. Definitions with formulas
and reasons: docs/calibration.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wherefrom.errors import UserError
from wherefrom.provenance.answers import Answers, Floats

SURE = 1e-12  # log loss takes a probability for at least this far from 0 and from 1
BINS = 10


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A number with its interval, or a sentence why there is none.

    A reason beside a value is what the reader must know about it.
    """

    value: float | None
    reason: str | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Measure:
    """A named formula: `measure(answers)` is the number, `values` the formula over weights.

    `values` gives one number a row of weights, NaN where that row leaves it undefined; the NaN
    stays between here and the intervals. `undefined` is the sentence for the people as they are.
    """

    name: str
    values: Callable[[Answers, Floats], Floats]
    undefined: Callable[[Answers], str | None]
    note: Callable[[float], str | None] = lambda value: None

    def __call__(self, answers: Answers) -> Metric:
        reason = self.undefined(answers)
        if reason is not None:
            return Metric(value=None, reason=reason)
        value = float(self.values(answers, np.ones((1, len(answers))))[0])
        assert np.isfinite(value), f"{self.name} is undefined and does not say why"
        return Metric(value=value, reason=self.note(value))


def ratio(above: Floats, below: Floats) -> Floats:
    """above / below, NaN where below is 0."""
    shape = np.broadcast_shapes(above.shape, below.shape)
    return np.divide(above, below, out=np.full(shape, np.nan), where=below > 0)


def nobody(answers: Answers) -> str | None:
    return None if len(answers) else "nobody was asked."


def one_kind(answers: Answers) -> str | None:
    if len(answers) and answers.correct.all():
        return "all answers are right, so there is no wrong one to tell from them."
    if len(answers) and not answers.correct.any():
        return "all answers are wrong, so there is no right one to tell from them."
    return nobody(answers)


def no_right(answers: Answers) -> str | None:
    if len(answers) and not answers.correct.any():
        return "no answer is right, so there is no share of the right ones."
    return nobody(answers)


def no_probability(answers: Answers) -> str | None:
    score = answers.confidence
    if len(answers) and (score.min() < 0 or score.max() > 1):
        return "the score is not a probability: it leaves the range from 0 to 1."
    return nobody(answers)


def no_unseen(answers: Answers) -> str | None:
    if answers.seen is None:
        return "it is not known who was seen."
    return "nobody unseen was asked." if answers.seen.all() else None


def auroc_values(answers: Answers, weights: Floats) -> Floats:
    right = answers.by_group(weights * answers.correct)
    wrong = answers.by_group(weights * ~answers.correct)
    above = np.cumsum(right, axis=1) - right / 2  # right answers surer than the group, ties half
    pairs = right.sum(axis=1) * wrong.sum(axis=1)
    return ratio((above * wrong).sum(axis=1), pairs)


def augrc_values(answers: Answers, weights: Floats) -> Floats:
    group = answers.by_group(weights)
    wrong = answers.by_group(weights * ~answers.correct)
    given_wrong = np.cumsum(wrong, axis=1) - wrong / 2  # the middle of each straight piece
    return ratio((given_wrong * group).sum(axis=1), weights.sum(axis=1) ** 2)


def share_at_precision(precision: float, *, of_right: bool) -> Callable[..., Floats]:
    def values(answers: Answers, weights: Floats) -> Floats:
        given = np.cumsum(answers.by_group(weights), axis=1)
        right = np.cumsum(answers.by_group(weights * answers.correct), axis=1)
        # a hair of tolerance, so that 19 of 20 is 95 % in floating point too
        enough = (right >= precision * given - 1e-9) & (given > 0)
        share = ratio(right, right[:, -1:]) if of_right else ratio(given, given[:, -1:])
        return np.where(np.isnan(share[:, -1]), np.nan, np.where(enough, share, 0.0).max(axis=1))

    return values


def calibration_bins(answers: Answers, bins: int = BINS) -> NDArray[np.intp]:
    """Where each bin starts in the sorted order: equally many people, equals never parted."""
    cuts = np.arange(bins) * len(answers) // bins
    at = answers.starts[np.searchsorted(answers.starts, cuts, side="right") - 1]
    return np.asarray(np.unique(at))


def ece_values(bins: int) -> Callable[[Answers, Floats], Floats]:
    def values(answers: Answers, weights: Floats) -> Floats:
        gaps = (weights * (answers.confidence - answers.correct))[:, answers.order]
        by_bin = np.add.reduceat(gaps, calibration_bins(answers, bins), axis=1)
        return ratio(np.abs(by_bin).sum(axis=1), weights.sum(axis=1))

    return values


def mean_of(loss: Callable[[Answers], Floats]) -> Callable[[Answers, Floats], Floats]:
    """The weighted mean of a number that each person has alone."""
    return lambda answers, weights: ratio(weights @ loss(answers), weights.sum(axis=1))


def log_losses(answers: Answers) -> Floats:
    sure = np.clip(answers.confidence, SURE, 1 - SURE)
    return -np.log(np.where(answers.correct, sure, 1 - sure))


auroc = Measure("AUROC", auroc_values, one_kind)
augrc = Measure("AUGRC", augrc_values, nobody)
accuracy = Measure("recall", mean_of(lambda a: a.correct.astype(np.float64)), nobody)
brier = Measure("Brier score", mean_of(lambda a: (a.confidence - a.correct) ** 2), no_probability)
log_loss = Measure("log loss", mean_of(log_losses), no_probability)
ece = Measure("expected calibration error", ece_values(BINS), no_probability)


def never_that_precise(precision: float) -> Callable[[float], str | None]:
    sentence = f"no threshold reaches {precision:.0%} precision, so no answer would be given."
    return lambda value: sentence if value == 0 else None


def coverage_at_precision(precision: float) -> Measure:
    """The largest share of all questions that can be answered with at least this precision."""
    return Measure(
        f"coverage at {precision:.0%} precision",
        share_at_precision(in_unit(precision, "a precision"), of_right=False),
        nobody,
        never_that_precise(precision),
    )


def right_given_at_precision(precision: float) -> Measure:
    """The largest share of the right answers that can be given with at least this precision."""
    return Measure(
        f"right answers given at {precision:.0%} precision",
        share_at_precision(in_unit(precision, "a precision"), of_right=True),
        no_right,
        never_that_precise(precision),
    )


def unseen_told_unknown(threshold: float) -> Measure:
    """The share of unseen people whose confidence is below the threshold: "I don't know"."""

    def values(answers: Answers, weights: Floats) -> Floats:
        assert answers.seen is not None
        unseen = weights * ~answers.seen
        return ratio(unseen @ (answers.confidence < threshold).astype(float), unseen.sum(axis=1))

    return Measure('unseen told "I don\'t know"', values, no_unseen)


def score_at_target(target: float, *, threshold: float | None = None) -> Measure:
    """Mean of +1 for right, -t/(1-t) for wrong, 0 for not attempted, at the confidence target t.

    An answer is given from the threshold on; without one, from t on, which is best for a
    calibrated probability, and then the score must be a probability.
    """
    if not 0 <= target < 1:
        raise UserError(f"a confidence target must be at least 0 and below 1, not {target}.")
    start = target if threshold is None else threshold

    def points(answers: Answers) -> Floats:
        grade = np.where(answers.correct, 1.0, -target / (1 - target))
        return np.where(answers.confidence >= start, grade, 0.0)

    undefined = no_probability if threshold is None else nobody
    return Measure(f"score at confidence target {target:g}", mean_of(points), undefined)


def in_unit(value: float, what: str) -> float:
    if not 0 < value <= 1:
        raise UserError(f"{what} must be above 0 and at most 1, not {value}.")
    return value
