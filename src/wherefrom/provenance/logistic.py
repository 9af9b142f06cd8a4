"""Fitting a logistic curve to few people: penalised, with signs that may be held, cross-validated.

A solver of our own, because the signs of the weights are known beforehand (a likelier answer is
never less likely to be right) and a sign that is held cannot be turned round by 200 people's
noise. A second step may bend the curve where people held out show that it must be bent. scipy
and scikit-learn are needed to fit, and only numpy to apply the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wherefrom.provenance.answers import Answers, Bools, Floats
from wherefrom.provenance.metrics import ece, log_loss
from wherefrom.provenance.probability import NO_CURVE, Curve, sigmoid, squash

STRENGTHS = np.logspace(-2, 3, 6)  # of the penalty strength / 2 * |weights|^2 on the summed loss
FOLDS = 5
OFTEN = 0.05  # a signal missing for at least this share gets a weight for being missing
KNOTS = 50


@dataclass(frozen=True, eq=False)
class Table:
    """Signals made comparable: columns (n, d), their signs, and the numbers that made them so.

    The first columns are the signals; absent[i] is the column that says signal i is missing.
    """

    columns: Floats
    signs: NDArray[np.int_]
    spreads: list[dict[str, Any]]
    absent: list[int | None]


def losses_of(logits: Floats, correct: Bools) -> Floats:
    """Each person's log loss at these logits."""
    return np.asarray(np.logaddexp(0.0, np.where(correct, -logits, logits)))


def fit_logistic(
    columns: Floats,
    targets: Floats,
    *,
    strength: float,
    signs: NDArray[np.int_] | None = None,
    start: Floats | None = None,
    exact: bool = True,
    counts: Floats | None = None,
) -> Floats:
    """Weights and, last, the intercept: minimise summed log loss + strength / 2 * |weights|^2.

    columns (n, d), targets (n) in [0, 1]; a sign of +1 or -1 holds the weight on that side of
    zero, 0 leaves it free. The intercept is free and not penalised. Not exact is good enough to
    compare penalties. `counts` is how many people each row stands for, one if not given.
    """
    from scipy.optimize import minimize

    width = columns.shape[1]
    held = np.zeros(width, dtype=int) if signs is None else signs
    many = np.ones(targets.size) if counts is None else counts
    bounds = [(0.0 if s > 0 else None, 0.0 if s < 0 else None) for s in held] + [(None, None)]

    def objective(beta: Floats) -> tuple[float, Floats]:
        logits = columns @ beta[:-1] + beta[-1]
        loss = many @ (np.logaddexp(0.0, logits) - targets * logits)
        error = many * (sigmoid(logits) - targets)
        slope = np.append(columns.T @ error + strength * beta[:-1], error.sum())
        return float(loss + strength / 2 * beta[:-1] @ beta[:-1]), slope

    begin = np.zeros(width + 1) if start is None else start
    found = minimize(
        objective,
        begin,
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxiter": 500, **({"ftol": 1e-12, "gtol": 1e-7} if exact else {"ftol": 1e-8})},
    )
    return np.asarray(found.x, dtype=np.float64)


def deal_folds(
    correct: Bools, groups: NDArray[np.int_], rng: np.random.Generator, *, folds: int = FOLDS
) -> NDArray[np.int_]:
    """A fold for each row: rows of one group stay together, right and wrong are spread evenly."""
    names, member = np.unique(groups, return_inverse=True)
    mostly_right = np.bincount(member, weights=correct) * 2 > np.bincount(member)
    shuffled = rng.permutation(names.size)
    dealt = np.empty(names.size, dtype=int)
    dealt[shuffled[np.argsort(mostly_right[shuffled], kind="stable")]] = np.arange(names.size)
    return np.asarray((dealt % folds)[member])


def choose_strength(
    columns: Floats,
    correct: Bools,
    folds: NDArray[np.int_],
    signs: NDArray[np.int_],
    counts: Floats | None = None,
) -> tuple[float, Floats]:
    """The penalty with the least held-out log loss, and every row's held-out logit under it."""
    many = np.ones(correct.size) if counts is None else counts
    logits = np.empty((STRENGTHS.size, correct.size))
    for fold in np.unique(folds):
        out = folds == fold
        beta = None
        for at in reversed(range(STRENGTHS.size)):  # from the strongest, each starts the next
            beta = fit_logistic(
                columns[~out],
                correct[~out].astype(np.float64),
                strength=float(STRENGTHS[at]),
                signs=signs,
                start=beta,
                exact=False,
                counts=many[~out],
            )
            logits[at, out] = columns[out] @ beta[:-1] + beta[-1]
    best = int(np.argmin([many @ losses_of(row, correct) for row in logits]))
    return float(STRENGTHS[best]), logits[best]


def tells_something(column: Floats) -> bool:
    """A signal that is missing for all or the same for all can have no weight."""
    finite = column[np.isfinite(column)]
    if not finite.size:
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        spread = float(finite.std())
    # a spread of rounding errors is none, and one beyond floating point cannot be divided by
    return bool(1e-12 * np.abs(finite).max() < spread < np.inf) and spread > 1e-150


def standardise(
    signals: Mapping[str, Floats], signs: Mapping[str, int], counts: Floats | None = None
) -> Table:
    """Mean 0 and spread 1 over these people; missing is the mean, and a column where frequent.

    Values are kept within the range seen here, infinite ones too: what lies beyond it is as
    strong as the strongest seen, not stronger.
    """
    columns, spreads, missing = [], [], []
    for name, values in signals.items():
        there = np.isfinite(values)
        finite = values[there]
        many = None if counts is None else counts[there]
        mean = float(np.average(finite, weights=many))
        scale = float(np.sqrt(np.average((finite - mean) ** 2, weights=many)))
        low, high = float(finite.min()), float(finite.max())
        spreads.append({"name": name, "mean": mean, "scale": scale, "low": low, "high": high})
        lacking = np.isnan(values)
        columns.append((np.clip(np.where(lacking, mean, values), low, high) - mean) / scale)
        missing.append(lacking)
    shares = [np.average(lacking, weights=counts) for lacking in missing]
    often = [bool(OFTEN <= share <= 1 - OFTEN) for share in shares]
    places = len(columns) + np.cumsum(often) - 1
    held = [signs.get(name, 0) for name in signals] + [0] * sum(often)
    columns += [
        lacking.astype(np.float64)
        for lacking, is_often in zip(missing, often, strict=True)
        if is_often
    ]
    absent = [
        int(place) if is_often else None for place, is_often in zip(places, often, strict=True)
    ]
    return Table(np.stack(columns, axis=1), np.array(held), spreads, absent)


def second_step(
    logits: Floats, correct: Bools, folds: NDArray[np.int_], counts: Floats | None = None
) -> Curve:
    """The Venn-Abers curve over held-out logits, or no curve where it does not help.

    It helps if, on people held out from the curve too, the mean log loss falls and the expected
    calibration error does not rise.
    """
    many = np.ones(correct.size) if counts is None else counts
    curved = np.empty_like(logits)
    for fold in np.unique(folds):
        out = folds == fold
        curved[out] = squash(logits[out], fit_curve(logits[~out], correct[~out], many[~out]))
    plain, bent = Answers(sigmoid(logits), correct), Answers(curved, correct)
    everyone = many[None]
    loss_falls = log_loss.values(bent, everyone) < log_loss.values(plain, everyone)
    error_stays = ece.values(bent, everyone) <= ece.values(plain, everyone)
    return fit_curve(logits, correct, many) if loss_falls and error_stays else NO_CURVE


def fit_curve(logits: Floats, correct: Bools, counts: Floats | None = None) -> Curve:
    """Venn-Abers: fit a rising step function as if the asked person were wrong, then right.

    p0 and p1 are its heights at the person; p1 / (1 - p0 + p1) is the probability that loses
    least in the worst case. Taken at up to KNOTS of the logits and joined by straight lines.
    """
    from sklearn.isotonic import isotonic_regression

    places, member = np.unique(logits, return_inverse=True)
    many = np.ones(correct.size) if counts is None else counts
    right = np.bincount(member, weights=correct * many)
    people = np.bincount(member, weights=many)
    chosen = np.unique(np.linspace(0, places.size - 1, KNOTS).round().astype(int))
    heights = []
    for at in chosen:
        people[at] += 1
        as_wrong = isotonic_regression(right / people, sample_weight=people)[at]
        right[at] += 1
        as_right = isotonic_regression(right / people, sample_weight=people)[at]
        people[at] -= 1
        right[at] -= 1
        heights.append(float(as_right / (1 - as_wrong + as_right)))
    return Curve(tuple(places[chosen].tolist()), tuple(heights))
