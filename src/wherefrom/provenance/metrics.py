"""How well a confidence separates right answers from wrong ones: metrics, curves, intervals.

A measure is a function of the answers and of rows of weights, one weight per answer; it returns a
number per row. Weights of 1 give the measure itself, weights drawn by the bootstrap one resample a
row: about 50 times as fast as `scipy.stats.bootstrap` with scikit-learn's `roc_auc_score`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wherefrom.errors import UserError

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

BINS = 10  # of the expected calibration error
RESAMPLES = 1000
LEVEL = 0.95
DEFINED = 0.9  # an interval needs this share of the resamples to have a value
CELLS = 2_000_000  # weights drawn at once, which bounds memory
ROWS = 100  # resamples that are measured at once


class ScoredAnswers:
    """One row per answer: its confidence, whether it is right, whether its subject was seen.

    order: the rows by falling confidence. starts: where each group of equal confidence starts in
    that order; no threshold can split a group.
    """

    def __init__(self, confidence: ArrayLike, correct: ArrayLike, seen: ArrayLike | None = None):
        self.confidence: Floats = np.asarray(confidence, dtype=np.float64)
        self.correct: Bools = np.asarray(correct, dtype=np.bool_)
        self.seen: Bools | None = None if seen is None else np.asarray(seen, dtype=np.bool_)
        self.order = np.argsort(-self.confidence, kind="stable")
        falling = self.confidence[self.order]
        self.starts = np.flatnonzero(np.append(True, falling[1:] != falling[:-1])[: falling.size])

    def __len__(self) -> int:
        return int(self.correct.size)

    def by_group(self, weights: Floats) -> Floats:
        """Weights (r, n) summed over groups of equal confidence, the highest first: (r, g)."""
        return np.asarray(np.add.reduceat(weights[:, self.order], self.starts, axis=1))

    def select(self, chosen: Bools) -> ScoredAnswers:
        """Some of the answers."""
        seen = None if self.seen is None else self.seen[chosen]
        return ScoredAnswers(self.confidence[chosen], self.correct[chosen], seen)

    def bins(self) -> NDArray[np.intp]:
        """Where each of BINS bins starts in the order: of equal size, but no group is split."""
        cuts = np.arange(BINS) * len(self) // BINS
        return np.unique(self.starts[np.searchsorted(self.starts, cuts, side="right") - 1])


Measure = Callable[[ScoredAnswers, Floats], Floats]  # NaN where it is not defined
Metric = dict[str, Any]  # value, low, high; reason: why one of them is missing


def as_metric(value: Any = None, low: Any = None, high: Any = None, reason: Any = None) -> Metric:
    numbers = {"value": value, "low": low, "high": high}
    plain = {key: None if number is None else float(number) for key, number in numbers.items()}
    return {**plain, "reason": reason}


def ratio(above: Floats, below: Floats) -> Floats:
    """above / below, NaN where below is 0."""
    shape = np.broadcast_shapes(above.shape, below.shape)
    return np.divide(above, below, out=np.full(shape, np.nan), where=below > 0)


def auroc(answers: ScoredAnswers, weights: Floats) -> Floats:
    """How often a right answer has more confidence than a wrong one; ties count half."""
    right = answers.by_group(weights * answers.correct)
    wrong = answers.by_group(weights * ~answers.correct)
    above = np.cumsum(right, axis=1) - right / 2
    return ratio((above * wrong).sum(axis=1), right.sum(axis=1) * wrong.sum(axis=1))


def augrc(answers: ScoredAnswers, weights: Floats) -> Floats:
    """The area under the generalised risk-coverage curve."""
    group = answers.by_group(weights)
    wrong = answers.by_group(weights * ~answers.correct)
    given_wrong = np.cumsum(wrong, axis=1) - wrong / 2  # the middle of each straight piece
    return ratio((given_wrong * group).sum(axis=1), weights.sum(axis=1) ** 2)


def accuracy(answers: ScoredAnswers, weights: Floats) -> Floats:
    """The share of right answers."""
    return ratio(weights @ answers.correct, weights.sum(axis=1))


def ece(answers: ScoredAnswers, weights: Floats) -> Floats:
    """The expected calibration error of probabilities."""
    gaps = (weights * (answers.confidence - answers.correct))[:, answers.order]
    by_bin = np.add.reduceat(gaps, answers.bins(), axis=1)
    return ratio(np.abs(by_bin).sum(axis=1), weights.sum(axis=1))


def coverage_at_precision(precision: float, *, of_right: bool = False) -> Measure:
    """The largest share of the questions that a threshold answers with at least this precision.

    of_right: instead, the largest share of the right answers that such a threshold shows.
    """

    def values(answers: ScoredAnswers, weights: Floats) -> Floats:
        given = np.cumsum(answers.by_group(weights), axis=1)
        right = np.cumsum(answers.by_group(weights * answers.correct), axis=1)
        # a hair of tolerance, so that 19 of 20 is 95 % in floating point too
        enough = (right >= precision * given - 1e-9) & (given > 0)
        share = ratio(right, right[:, -1:]) if of_right else ratio(given, given[:, -1:])
        return np.where(np.isnan(share[:, -1]), np.nan, np.where(enough, share, 0.0).max(axis=1))

    return values


def measure(formula: Measure, answers: ScoredAnswers) -> Metric:
    """The value without an interval, or the reason why there is none."""
    if not len(answers):
        return as_metric(reason="nothing was asked.")
    value = float(formula(answers, np.ones((1, len(answers))))[0])
    if math.isfinite(value):
        return as_metric(value)
    return as_metric(reason="all answers are right or all are wrong.")


def risk_coverage(answers: ScoredAnswers) -> dict[str, Floats]:
    """One point per distinct confidence, the highest first; empty without answers.

    coverage: share of questions answered; risk: share of wrong among the answers given.
    """
    if not len(answers):
        return dict.fromkeys(("threshold", "coverage", "risk"), np.empty(0))
    given = np.cumsum(answers.by_group(np.ones((1, len(answers))))[0])
    wrong = np.cumsum(answers.by_group((~answers.correct[None, :]).astype(np.float64))[0])
    threshold = answers.confidence[answers.order][answers.starts]
    return {"threshold": threshold, "coverage": given / len(answers), "risk": wrong / given}


def reliability_table(answers: ScoredAnswers) -> list[dict[str, Any]]:
    """The bins of the expected calibration error, the lowest confidence first."""
    bins = reversed(np.split(answers.order, answers.bins()[1:])) if len(answers) else ()
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


@dataclass(frozen=True)
class Bootstrap:
    """How intervals are made; one seed draws the same resamples for every measure."""

    resamples: int = RESAMPLES
    level: float = LEVEL
    seed: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        check_level(self.level, self.seed[0])
        if self.resamples < 1:
            raise UserError(f"an interval needs at least one resample, not {self.resamples}.")

    def weights(self, size: int, seen: Bools | None = None) -> Iterator[Floats]:
        """Blocks of rows of weights; a row draws `size` answers, seen and unseen apart."""
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
            yield from (weights[i : i + ROWS] for i in range(0, rows, ROWS))

    def measure(self, measures: Mapping[str, Measure], answers: ScoredAnswers) -> dict[str, Metric]:
        """Each measure by its name; its interval is the central `level` of its resamples."""
        results = {name: measure(formula, answers) for name, formula in measures.items()}
        drawn: dict[str, list[Floats]] = {
            name: [] for name, metric in results.items() if metric["value"] is not None
        }
        for weights in self.weights(len(answers), answers.seen) if drawn else ():
            for name, values in drawn.items():
                values.append(measures[name](answers, weights))
        for name, values in drawn.items():
            resampled = np.concatenate(values)
            known = resampled[np.isfinite(resampled)]
            if known.size < DEFINED * resampled.size:
                why = "no interval: too many resamples of so few subjects leave it undefined."
                results[name]["reason"] = why
            else:
                bounds = np.quantile(known, ((1 - self.level) / 2, (1 + self.level) / 2))
                results[name] = as_metric(results[name]["value"], *bounds)
        return results

    def difference(self, formula: Measure, first: ScoredAnswers, second: ScoredAnswers) -> Metric:
        """formula(first) - formula(second); row i of both is about the same subject."""

        def subtract(_: ScoredAnswers, weights: Floats) -> Floats:
            return formula(first, weights) - formula(second, weights)

        return self.measure({"difference": subtract}, first)["difference"]


def check_level(level: float, seed: int = 0) -> None:
    if not 0 < level < 1:
        raise UserError(f"the level of an interval must lie between 0 and 1, not at {level}.")
    if seed < 0:
        raise UserError(f"the seed must be a whole number from 0 up, not {seed}.")


def share_with_interval(count: int, subjects: int, *, level: float = LEVEL) -> dict[str, Any]:
    """count / subjects with Wilson's interval; without subjects no value and a reason."""
    from scipy.stats import binomtest  # asking needs no scipy

    check_level(level)
    metric = as_metric(reason="no subject is in this group.")
    if subjects:
        interval = binomtest(count, subjects).proportion_ci(level, method="wilson")
        metric = as_metric(count / subjects, interval.low, interval.high)
    return {"count": count, "subjects": subjects, **metric}
