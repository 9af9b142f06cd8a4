"""From signals to a probability: columns of numbers in, probabilities out.

By a penalised logistic regression, or by the product of two. It does not matter which model the
numbers come from. A fit is kept as plain numbers, and using it needs numpy alone; scipy is imported
only to fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from wherefrom.provenance.metrics import Bools, Floats

STRENGTHS = np.logspace(-2, 3, 6)  # of the penalty strength / 2 * |weights|^2 on the summed loss
FOLDS = 5
MAX_LOGIT = 12.0  # logits are clipped to this: nothing is certain
MIN_SUBJECTS = (
    20  # with fewer subjects, or fewer than MIN_SUBJECTS_EACH right or wrong ones, a fit has a note
)
MIN_SUBJECTS_EACH = 5
ADDED_DEVIATIONS = (
    3.0  # the wrong answer that is added lies this many deviations on the bad side of the mean
)

Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Signs = Mapping[str, int]


class SignalWeight(NamedTuple):
    """One signal: a value is clipped to [low, high], standardised by mean and scale, and weighted.

    A missing value counts as the mean.
    """

    mean: Number
    scale: Annotated[Number, Field(gt=0)]
    low: Number
    high: Number
    weight: Number = 0.0

    def scaled(self, values: Floats) -> Floats:
        kept = np.clip(np.where(np.isnan(values), self.mean, values), self.low, self.high)
        return np.asarray((kept - self.mean) / self.scale)


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """A fitted probability: the sigmoid of a weighted sum of signals.

    strength: the penalty that was chosen. note: a sentence about what is wrong with the fit.
    """

    signals: Mapping[str, SignalWeight]
    intercept: Number
    strength: Number = 0.0
    subjects: int
    right: int
    note: str | None = None

    @property
    def used(self) -> set[str]:
        """The names of the signals that have a weight."""
        return {name for name, signal in self.signals.items() if signal.weight}

    def probability(self, signals: Mapping[str, ArrayLike]) -> Floats:
        """The probability of each row; a column that is not there is missing in all rows."""
        columns = _columns(signals)
        rows = next(iter(columns.values())).size
        logits = np.full(rows, self.intercept)
        for name, signal in self.signals.items():
            values = columns.get(name, np.full(rows, np.nan))
            logits = logits + signal.scaled(values) * signal.weight
        return sigmoid(np.clip(logits, -MAX_LOGIT, MAX_LOGIT))


@dataclass(frozen=True, kw_only=True)
class SeenMixture:
    """p(seen) * p(hit | seen) + p(unseen) * guessed, since different signals tell the two factors.

    seen: None if the text tells who was seen (column "seen"). given: p(hit | seen). guessed: how
    often an answer about an unseen subject is a hit.
    """

    seen: Calibration | None
    given: Calibration
    guessed: Number

    def probability(self, signals: Mapping[str, ArrayLike]) -> Floats:
        """The probability of each row."""
        seen = self.seen.probability(signals) if self.seen else np.asarray(signals["seen"])
        return np.asarray(seen * self.given.probability(signals) + (1 - seen) * self.guessed)

    @property
    def used(self) -> set[str]:
        """The names of the signals that have a weight."""
        return self.given.used | (self.seen.used if self.seen else set())

    @property
    def note(self) -> str | None:
        if self.given.note or self.seen is None or not self.seen.note:
            return self.given.note
        return (
            f"{self.seen.right} of {self.seen.subjects} calibration questions are about seen "
            "subjects: too few of either kind to tell them apart, so that the probabilities are "
            "rough."
        )


def fit_calibration(
    signals: Mapping[str, ArrayLike],
    correct: ArrayLike,
    *,
    signs: Signs | None = None,
    counts: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    seed: int,
) -> tuple[Calibration, Floats]:
    """Fit on subjects set aside: the calibration, and each row's probability by a fit without it.

    signs: +1 or -1 for a signal whose weight must have that sign. counts: how many subjects each
    row stands for; a row that counts 2 acts as two rows would. groups: rows of one group are held
    out together. Two answers are added to every fit, a right one with all signals at their mean and
    a wrong one ADDED_DEVIATIONS on the bad side, so that a fit on few answers still believes the
    signs.
    """
    columns, right = _columns(signals), np.asarray(correct, dtype=np.bool_)
    weight = np.ones(right.size) if counts is None else np.asarray(counts, dtype=np.float64)
    measured = {name: _measure(values, weight) for name, values in columns.items()}
    used = {name: signal for name, signal in measured.items() if signal is not None}
    table = np.empty((right.size, len(used)))
    for i, (name, signal) in enumerate(used.items()):
        table[:, i] = signal.scaled(columns[name])
    held = np.array([(signs or {}).get(name, 0) for name in used], dtype=int)
    added = np.stack((np.zeros(held.size), -ADDED_DEVIATIONS * held))
    folds = assign_folds(right, np.random.default_rng(seed), groups)

    def fit_rows(rows: Bools, strength: float) -> Floats:
        """Weights and intercept by some rows and the two that are added."""
        inputs, goals = np.concatenate((table[rows], added)), np.append(right[rows], (True, False))
        return fit_logistic(inputs, goals, held, np.append(weight[rows], (1, 1)), strength)

    logits = np.empty((STRENGTHS.size, right.size))
    for fold in range(FOLDS):
        out = folds == fold
        for i, strength in enumerate(STRENGTHS):
            beta = fit_rows(~out, strength)
            logits[i, out] = table[out] @ beta[:-1] + beta[-1]
    best = int(np.argmin(np.logaddexp(0.0, np.where(right, -logits, logits)) @ weight))
    strength = float(STRENGTHS[best])
    *fitted, intercept = fit_rows(np.ones_like(right), strength).tolist()
    weighted = {
        name: signal._replace(weight=value)
        for (name, signal), value in zip(used.items(), fitted, strict=True)
    }
    note = None
    if not used:
        note = "no signal varies, so all get the same probability."
    elif right.size < MIN_SUBJECTS or min(right.sum(), (~right).sum()) < MIN_SUBJECTS_EACH:
        note = "with so few right or wrong ones, the probabilities are rough."
    if note:
        note = f"{right.sum()} of {right.size} calibration answers are right: {note}"
    about: dict[str, Any] = {"subjects": right.size, "right": int(right.sum()), "note": note}
    fit = Calibration(signals=weighted, intercept=intercept, strength=strength, **about)
    return fit, sigmoid(np.clip(logits[best], -MAX_LOGIT, MAX_LOGIT))


def sigmoid(logits: Floats) -> Floats:
    """1 / (1 + exp(-logits)) without overflow; asking imports no scipy."""
    small = np.exp(-np.abs(logits))
    return np.where(logits >= 0, 1.0, small) / (1.0 + small)


def fit_logistic(
    columns: Floats, targets: ArrayLike, signs: NDArray[np.int_], counts: Floats, strength: float
) -> Floats:
    """Weights and, last, the intercept: minimise summed log loss + strength / 2 * |weights|^2.

    columns (n, d), targets (n), signs (d): +1 or -1 keeps the weight on that side of zero, which
    scikit-learn's LogisticRegression cannot do: with few subjects, correlated signals would get
    weights of the wrong sign. The intercept is not penalised.
    """
    from scipy.optimize import minimize

    goal = np.asarray(targets, dtype=np.float64)
    bounds = [(0.0 if s > 0 else None, 0.0 if s < 0 else None) for s in signs] + [(None, None)]

    def objective(beta: Floats) -> tuple[float, Floats]:
        logits = columns @ beta[:-1] + beta[-1]
        loss = counts @ (np.logaddexp(0.0, logits) - goal * logits)
        error = counts * (sigmoid(logits) - goal)
        slope = np.append(columns.T @ error + strength * beta[:-1], error.sum())
        return float(loss + strength / 2 * beta[:-1] @ beta[:-1]), slope

    start = np.zeros(signs.size + 1)
    options: Any = {"maxiter": 500, "ftol": 1e-12, "gtol": 1e-7}
    found = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return np.asarray(found.x, dtype=np.float64)


def assign_folds(
    correct: Bools, rng: np.random.Generator, groups: ArrayLike | None = None
) -> NDArray[np.int_]:
    """A fold for each row, the same for a group's rows; right and wrong ones are spread evenly."""
    first = np.arange(correct.size)
    group = first
    if groups is not None:
        _, first, group = np.unique(np.asarray(groups), return_index=True, return_inverse=True)
    shuffled = rng.permutation(first.size)
    folds = np.empty(first.size, dtype=int)
    order = shuffled[np.argsort(correct[first][shuffled], kind="stable")]
    folds[order] = np.arange(first.size) % FOLDS
    return np.asarray(folds[group])


def _columns(signals: Mapping[str, ArrayLike]) -> dict[str, Floats]:
    return {name: np.asarray(values, dtype=np.float64) for name, values in signals.items()}


def _measure(values: Floats, counts: Floats) -> SignalWeight | None:
    """Mean, deviation and range over these subjects; None for a signal that does not vary.

    Values beyond the range, infinite ones too, will count as its end.
    """
    is_finite = np.isfinite(values)
    finite, counts = values[is_finite], counts[is_finite]
    if not finite.size or np.ptp(finite) <= 1e-12 * np.abs(finite).max():  # up to rounding
        return None
    mean = float(np.average(finite, weights=counts))
    scale = float(np.sqrt(np.average((finite - mean) ** 2, weights=counts)))
    return SignalWeight(mean, scale, float(finite.min()), float(finite.max()))
