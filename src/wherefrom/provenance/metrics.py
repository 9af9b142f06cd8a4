"""How well a confidence separates right answers from wrong ones: metrics, curves, intervals.

A measure is a formula over rows of weights, one weight per answer. Weights of 1 give the number
itself, and a row drawn by the bootstrap gives one resample, so that all resamples are one matrix
product: about 50 times as quick as `scipy.stats.bootstrap` with scikit-learn's `roc_auc_score`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wherefrom.errors import UserError

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

BINS = 10  # of the expected calibration error
RESAMPLES = 1000
LEVEL = 0.95
DEFINED = 0.9  # an interval needs this share of the resamples; the others leave it undefined
CELLS = 2_000_000  # weights held at once, so that many answers do not need much memory
LEAST = 1e-12  # log loss takes a probability for at least this far from 0 and from 1
NOBODY = "nobody was asked."


class Answers:
    """One row per answer: its confidence, whether it is right, whether its subject was seen.

    order, starts: the rows by falling confidence, and where each group of equal confidence starts
    in that order. No threshold can part a group.
    """

    def __init__(self, confidence: ArrayLike, correct: ArrayLike, seen: ArrayLike | None = None):
        self.confidence: Floats = np.asarray(confidence, dtype=np.float64)
        self.correct = as_flags(correct, "correct")
        self.seen = None if seen is None else as_flags(seen, "seen")
        shapes = {a.shape for a in (self.confidence, self.correct, self.seen) if a is not None}
        if len(shapes) > 1 or self.confidence.ndim != 1:
            raise UserError(f"confidences and flags need one entry per answer, not {shapes}.")
        if not np.isfinite(self.confidence).all():
            raise UserError("the confidence of an answer must be a number.")
        self.order = np.argsort(-self.confidence, kind="stable")
        falling = self.confidence[self.order]
        self.starts = np.flatnonzero(np.append(True, falling[1:] != falling[:-1])[: falling.size])

    def __len__(self) -> int:
        return int(self.correct.size)

    def by_group(self, weights: Floats) -> Floats:
        """Sums of weights over answers of equal confidence, the surest first: (r, n) -> (r, g)."""
        return np.asarray(np.add.reduceat(weights[:, self.order], self.starts, axis=1))

    def select(self, chosen: Bools) -> Answers:
        """The same for some of the answers."""
        seen = None if self.seen is None else self.seen[chosen]
        return Answers(self.confidence[chosen], self.correct[chosen], seen)


def as_flags(values: ArrayLike, name: str) -> Bools:
    """Booleans, or zeros and ones, as an array; anything else is refused."""
    array = np.asarray(values)
    if array.dtype != np.bool_ and not np.isin(array, (0, 1)).all():
        raise UserError(f"{name} must be yes or no for each answer, not {array.ravel()[:3]}.")
    return array.astype(np.bool_)


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A number with its interval, or a sentence why there is none (or about the number)."""

    value: float | None
    reason: str | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Measure:
    """A formula: `measure(answers)` is its number, `values(answers, weights)` one per row.

    What is not defined is NaN in `values`, and `undefined` says why.
    """

    values: Callable[[Answers, Floats], Floats]
    undefined: str = NOBODY

    def __call__(self, answers: Answers) -> Metric:
        if not len(answers):
            return Metric(value=None, reason=NOBODY)
        value = float(self.values(answers, np.ones((1, len(answers))))[0])
        known = math.isfinite(value)
        return Metric(value=value) if known else Metric(value=None, reason=self.undefined)


def ratio(above: Floats, below: Floats) -> Floats:
    """above / below, NaN where below is 0."""
    shape = np.broadcast_shapes(above.shape, below.shape)
    return np.divide(above, below, out=np.full(shape, np.nan), where=below > 0)


def _auroc(answers: Answers, weights: Floats) -> Floats:
    right = answers.by_group(weights * answers.correct)
    wrong = answers.by_group(weights * ~answers.correct)
    above = np.cumsum(right, axis=1) - right / 2  # right answers surer than the group, ties half
    pairs = right.sum(axis=1) * wrong.sum(axis=1)
    return ratio((above * wrong).sum(axis=1), pairs)


def _augrc(answers: Answers, weights: Floats) -> Floats:
    group = answers.by_group(weights)
    wrong = answers.by_group(weights * ~answers.correct)
    given_wrong = np.cumsum(wrong, axis=1) - wrong / 2  # the middle of each straight piece
    return ratio((given_wrong * group).sum(axis=1), weights.sum(axis=1) ** 2)


def _bins(answers: Answers) -> NDArray[np.intp]:
    """Where each bin starts in the sorted order: equally many answers, equals never parted."""
    cuts = np.arange(BINS) * len(answers) // BINS
    at = answers.starts[np.searchsorted(answers.starts, cuts, side="right") - 1]
    return np.asarray(np.unique(at))


def _ece(answers: Answers, weights: Floats) -> Floats:
    gaps = (weights * (answers.confidence - answers.correct))[:, answers.order]
    by_bin = np.add.reduceat(gaps, _bins(answers), axis=1)
    return ratio(np.abs(by_bin).sum(axis=1), weights.sum(axis=1))


def _mean_of(loss: Callable[[Answers], Floats]) -> Callable[[Answers, Floats], Floats]:
    """The weighted mean of a number that each answer has alone."""
    return lambda answers, weights: ratio(weights @ loss(answers), weights.sum(axis=1))


def _log_losses(answers: Answers) -> Floats:
    sure = np.clip(answers.confidence, LEAST, 1 - LEAST)
    return -np.log(np.where(answers.correct, sure, 1 - sure))


auroc = Measure(_auroc, "all answers are right or all are wrong, so that none can be told apart.")
augrc = Measure(_augrc)  # area under the generalised risk-coverage curve
accuracy = Measure(_mean_of(lambda a: a.correct.astype(np.float64)))
brier = Measure(_mean_of(lambda a: (a.confidence - a.correct) ** 2))
log_loss = Measure(_mean_of(_log_losses))
ece = Measure(_ece)  # expected calibration error, of probabilities


def coverage_at_precision(precision: float, *, of_right: bool = False) -> Measure:
    """The largest share of all questions that can be answered with at least this precision.

    of_right: the share of the right answers that are shown then, instead.
    """
    if not 0 < precision <= 1:
        raise UserError(f"a precision must be above 0 and at most 1, not {precision}.")

    def values(answers: Answers, weights: Floats) -> Floats:
        given = np.cumsum(answers.by_group(weights), axis=1)
        right = np.cumsum(answers.by_group(weights * answers.correct), axis=1)
        # a hair of tolerance, so that 19 of 20 is 95 % in floating point too
        enough = (right >= precision * given - 1e-9) & (given > 0)
        share = ratio(right, right[:, -1:]) if of_right else ratio(given, given[:, -1:])
        return np.where(np.isnan(share[:, -1]), np.nan, np.where(enough, share, 0.0).max(axis=1))

    return Measure(values, "no answer is right, so there is no share of the right ones.")


def risk_coverage(answers: Answers) -> dict[str, Floats]:
    """One point per threshold that changes anything, the surest first; empty without answers.

    coverage: share of questions answered; risk: share of wrong among the answers given.
    """
    if not len(answers):
        return dict.fromkeys(("threshold", "coverage", "risk"), np.empty(0))
    given = np.cumsum(answers.by_group(np.ones((1, len(answers))))[0])
    wrong = np.cumsum(answers.by_group((~answers.correct[None, :]).astype(np.float64))[0])
    threshold = answers.confidence[answers.order][answers.starts]
    return {"threshold": threshold, "coverage": given / len(answers), "risk": wrong / given}


def reliability_table(answers: Answers) -> list[dict[str, Any]]:
    """The bins of the expected calibration error, the least sure first."""
    bins = reversed(np.split(answers.order, _bins(answers)[1:])) if len(answers) else ()
    return [
        {
            "low": float(answers.confidence[members].min()),
            "high": float(answers.confidence[members].max()),
            "confidence": float(answers.confidence[members].mean()),
            "accuracy": float(answers.correct[members].mean()),
            "subjects": len(members),
        }
        for members in bins
    ]


def ece_of_chance(answers: Answers, rng: np.random.Generator, *, draws: int = 1000) -> Metric:
    """The calibration error that a perfectly calibrated score would show on as many answers.

    Rights and wrongs are drawn from the confidences themselves; mean and central 95 % of the
    draws. An expected calibration error within this interval is no evidence of miscalibration.
    """
    if not len(answers):
        return Metric(value=None, reason=NOBODY)
    score = answers.confidence[answers.order]
    gaps = score - (rng.random((draws, score.size)) < score)
    errors = np.abs(np.add.reduceat(gaps, _bins(answers), axis=1)).sum(axis=1) / score.size
    low, high = np.quantile(errors, (0.025, 0.975))
    return Metric(value=float(errors.mean()), low=float(low), high=float(high))


def open_world_floor(subjects: Iterable[str], miscalibration: float | None) -> Metric:
    """How often a model that must always answer is bound to make things up about *new* subjects.

    `subjects` names the subject of each document. The share of documents whose subject occurs
    only once estimates how likely the next document is about a new one (Good and Turing); a model
    that generates facts as often as it believes them must invent at least that share, less its
    miscalibration (Kalai and Vempala 2024, small terms left out).
    """
    counts = Counter(subjects)
    if not counts or miscalibration is None:
        return Metric(value=None, reason="there are no documents, or no miscalibration is known.")
    singletons = sum(times == 1 for times in counts.values()) / counts.total()
    about = "this is about people yet to be met, not about the people asked here."
    return Metric(value=max(0.0, singletons - miscalibration), reason=about)


@dataclass(frozen=True)
class Bootstrap:
    """How intervals are made: the same seed draws the same resamples for every measure."""

    resamples: int = RESAMPLES
    level: float = LEVEL
    seed: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        check_level(self.level)
        if self.resamples < 1:
            raise UserError(f"an interval needs at least one resample, not {self.resamples}.")

    def reseeded(self, at: int) -> Bootstrap:
        """The same with other resamples."""
        return replace(self, seed=(self.seed[0], at))

    def weights(self, size: int, seen: Bools | None = None) -> Iterator[Floats]:
        """Blocks of shape (r, size); each row draws as many answers, seen and unseen apart."""
        rng = np.random.default_rng(self.seed)
        strata = [np.arange(size)] if seen is None else [seen.nonzero()[0], (~seen).nonzero()[0]]
        block = max(1, CELLS // max(1, size))
        for done in range(0, self.resamples, block):
            rows = min(block, self.resamples - done)
            weights = np.zeros((rows, size))
            for members in strata:
                if members.size:
                    draws = members[rng.integers(members.size, size=(rows, members.size))]
                    np.add.at(weights, (np.arange(rows)[:, None], draws), 1)
            yield weights

    def intervals(
        self,
        points: Mapping[str, Metric],
        formulas: Mapping[str, Callable[[Floats], Floats]],
        size: int,
        seen: Bools | None = None,
    ) -> dict[str, Metric]:
        """The points, each that has a value with the central `level` of its formula's values."""
        defined = [name for name in formulas if points[name].value is not None]
        blocks = [
            [formulas[name](weights) for name in defined]
            for weights in (self.weights(size, seen) if defined else ())
        ]
        drawn = dict(zip(defined, map(np.concatenate, zip(*blocks, strict=True)), strict=True))
        return {
            name: self._with_interval(point, drawn[name]) if name in drawn else point
            for name, point in points.items()
        }

    def measure(self, measures: Mapping[str, Measure], answers: Answers) -> dict[str, Metric]:
        """Each measure by its name, with its interval."""
        points = {name: measure(answers) for name, measure in measures.items()}
        formulas = {name: partial(each.values, answers) for name, each in measures.items()}
        return self.intervals(points, formulas, len(answers), answers.seen)

    def difference(self, measure: Measure, first: Answers, second: Answers) -> Metric:
        """measure(first) - measure(second), where row i of both is the same subject's answer."""
        one, other = measure(first), measure(second)
        if one.value is None or other.value is None:
            return one if one.value is None else other
        points = {"": Metric(value=one.value - other.value)}

        def values(weights: Floats) -> Floats:
            return measure.values(first, weights) - measure.values(second, weights)

        return self.intervals(points, {"": values}, len(first), first.seen)[""]

    def _with_interval(self, point: Metric, values: Floats) -> Metric:
        defined = values[np.isfinite(values)]
        if defined.size < DEFINED * values.size:
            sentence = "no interval: too many resamples of so few people leave it undefined."
            return replace(point, reason=" ".join(filter(None, (point.reason, sentence))))
        low, high = np.quantile(defined, ((1 - self.level) / 2, (1 + self.level) / 2))
        return replace(point, low=float(low), high=float(high))


def check_level(level: float) -> None:
    if not 0 < level < 1:
        raise UserError(f"the level of an interval must lie between 0 and 1, not at {level}.")


def rate(count: int, people: int, *, level: float = LEVEL) -> dict[str, Any]:
    """count / people with Wilson's interval; without anybody no value and a reason."""
    from scipy.stats import binomtest  # asking needs no scipy

    check_level(level)
    found: dict[str, Any] = {"count": count, "subjects": people, "value": None, "low": None}
    if not people:
        return {**found, "high": None, "reason": "nobody is in this group."}
    interval = binomtest(count, people).proportion_ci(level, method="wilson")
    low, high = float(interval.low), float(interval.high)
    return {**found, "value": count / people, "low": low, "high": high, "reason": None}


def compare_rates(event: Bools, group: Bools, *, level: float = LEVEL) -> dict[str, Any]:
    """The share of `event` in the group, among the others, and Newcombe's interval between."""
    one, two = (rate(int(event[g].sum()), int(g.sum()), level=level) for g in (group, ~group))
    gap: dict[str, Any] = dict.fromkeys(("value", "low", "high"))
    if one["value"] is None or two["value"] is None:
        gap["reason"] = "one of the two groups is empty."
    else:
        value = one["value"] - two["value"]
        below = math.hypot(one["value"] - one["low"], two["high"] - two["value"])
        above = math.hypot(one["high"] - one["value"], two["value"] - two["low"])
        gap = {"value": value, "low": value - below, "high": value + above, "reason": None}
    return {"group": one, "others": two, "difference": gap}
