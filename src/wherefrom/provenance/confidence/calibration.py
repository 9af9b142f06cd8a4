"""From signals to a probability: a penalised logistic fit, or the product of two.

Columns of numbers in, probabilities out, whatever model the numbers are of. The record of a fit
holds plain numbers and needs numpy alone; scipy is imported where something is fitted.
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
MOST = 12.0  # logits beyond are not believed: nothing is certain
FEWEST = 20  # fewer subjects, or fewer than FEWEST_EACH right or wrong, are said to be few
FEWEST_EACH = 5
FAR = 3.0  # deviations to the bad side of the mean, of the wrong answer that is added

Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Signs = Mapping[str, int]


class SignalWeight(NamedTuple):
    """One signal's numbers: value -> within [low, high] -> (value - mean) / scale -> * weight.

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
    """A fitted probability: signals -> logit -> sigmoid.

    strength: the penalty that was chosen. note: what a reader must know.
    """

    signals: Mapping[str, SignalWeight]
    intercept: Number
    strength: Number = 0.0
    subjects: int
    right: int
    note: str | None = None

    def probability(self, signals: Mapping[str, ArrayLike]) -> Floats:
        """The probability for each row; a signal that is not there is missing for all."""
        columns = _columns(signals)
        rows = next(iter(columns.values())).size
        logits = np.full(rows, self.intercept)
        for name, signal in self.signals.items():
            values = columns.get(name, np.full(rows, np.nan))
            logits = logits + signal.scaled(values) * signal.weight
        return sigmoid(np.clip(logits, -MOST, MOST))


@dataclass(frozen=True, kw_only=True)
class Product:
    """p(seen) * p(as hoped | seen) + p(unseen) * guessed: two questions that other signals answer.

    seen: by the model alone, or None where the text tells (column "seen").
    """

    seen: Calibration | None
    given: Calibration
    guessed: Number

    def probability(self, signals: Mapping[str, ArrayLike]) -> Floats:
        """The probability for each row."""
        by_model = self.seen
        seen = np.asarray(signals["seen"]) if by_model is None else by_model.probability(signals)
        return np.asarray(seen * self.given.probability(signals) + (1 - seen) * self.guessed)


def fit_calibration(
    signals: Mapping[str, ArrayLike],
    correct: ArrayLike,
    *,
    signs: Signs | None = None,
    counts: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    seed: int,
) -> tuple[Calibration, Floats]:
    """Fit on subjects set aside; the calibration, and each row's probability by fits without it.

    `signs`: +1 or -1 where a signal's direction is to be held. `counts` is how many subjects each
    row stands for: a row that counts 2 acts as two rows would. `groups`: rows of one number are
    held out together. To every fit two answers are added, a right one with all signals at their
    mean and a wrong one FAR on the bad side: with few answers it believes the signs, not nothing.
    """
    columns, right = _columns(signals), np.asarray(correct, dtype=np.bool_)
    rows = next(iter(columns.values())).shape
    many = np.ones(rows) if counts is None else np.asarray(counts, dtype=np.float64)
    measured = {name: _measure(values, many) for name, values in columns.items()}
    weights = {name: each for name, each in measured.items() if each is not None}
    about: dict[str, Any] = {"subjects": right.size, "right": int(right.sum())}
    few = right.size < FEWEST or min(right.sum(), (~right).sum()) < FEWEST_EACH
    if few or not weights:
        about["note"] = f"{about['right']} of {right.size} calibration answers are right: " + (
            "too few right or wrong ones to learn from, so that the probabilities are rough."
            if weights
            else "no signal varies, so that all get the same probability."
        )
    table = np.empty((right.size, len(weights)))
    for at, (name, each) in enumerate(weights.items()):
        table[:, at] = each.scaled(columns[name])
    held = np.array([(signs or {}).get(name, 0) for name in weights], dtype=int)
    added = np.stack((np.zeros(held.size), -FAR * held))
    folds = assign_folds(right, np.random.default_rng(seed), groups)

    def fit_rows(rows: Bools, strength: float) -> Floats:
        """Weights and intercept by some rows and the two that are added."""
        known, goal = np.concatenate((table[rows], added)), np.append(right[rows], (True, False))
        return fit_logistic(known, goal, held, np.append(many[rows], (1, 1)), strength)

    logits = np.empty((STRENGTHS.size, right.size))
    for out in (folds == fold for fold in range(FOLDS)):
        for at, strength in enumerate(STRENGTHS):
            beta = fit_rows(~out, strength)
            logits[at, out] = table[out] @ beta[:-1] + beta[-1]
    best = int(np.argmin(np.logaddexp(0.0, np.where(right, -logits, logits)) @ many))
    strength = float(STRENGTHS[best])
    *fitted, intercept = fit_rows(np.ones_like(right), strength).tolist()
    chosen = {
        name: each._replace(weight=value)
        for (name, each), value in zip(weights.items(), fitted, strict=True)
    }
    found = Calibration(signals=chosen, intercept=intercept, strength=strength, **about)
    return found, sigmoid(np.clip(logits[best], -MOST, MOST))


def sigmoid(logits: Floats) -> Floats:
    """1 / (1 + exp(-logits)) without overflow; scipy's would have to be imported to answer."""
    small = np.exp(-np.abs(logits))
    return np.where(logits >= 0, 1.0, small) / (1.0 + small)


def fit_logistic(
    columns: Floats, targets: ArrayLike, signs: NDArray[np.int_], counts: Floats, strength: float
) -> Floats:
    """Weights and, last, the intercept: minimise summed log loss + strength / 2 * |weights|^2.

    columns (n, d), targets (n), signs (d): +1 or -1 holds the weight on that side of zero, which
    scikit-learn's LogisticRegression cannot: with few subjects, signals that resemble each other
    would get weights of the wrong sign. The intercept is free and not penalised.
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
    """A fold for each row, the same for rows of one group; right and wrong are spread evenly."""
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
    """Mean, spread and range over these subjects; None for a signal that does not vary.

    Values are kept within that range, infinite ones too: what lies beyond it is as strong as the
    strongest seen, not stronger.
    """
    there = np.isfinite(values)
    finite, many = values[there], counts[there]
    if not finite.size or np.ptp(finite) <= 1e-12 * np.abs(finite).max():  # but for rounding
        return None
    mean = float(np.average(finite, weights=many))
    scale = float(np.sqrt(np.average((finite - mean) ** 2, weights=many)))
    return SignalWeight(mean, scale, float(finite.min()), float(finite.max()))
