"""Fitting a logistic curve to few people: penalised, with signs that may be held, cross-validated.

A solver of our own, because the signs of the weights are known beforehand (a likelier answer is
never less likely to be right) and a sign that is held cannot be turned round by 200 people's
noise. scipy minimises; nothing of it is needed to apply the result.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wherefrom.provenance.answers import Bools, Floats

STRENGTHS = np.logspace(-2, 3, 11)  # of the penalty strength / 2 * |weights|^2 on the summed loss
FOLDS = 5


def sigmoid(logits: Floats) -> Floats:
    """1 / (1 + exp(-logits)) without overflow."""
    small = np.exp(-np.abs(logits))
    return np.where(logits >= 0, 1.0, small) / (1.0 + small)


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
) -> Floats:
    """Weights and, last, the intercept: minimise summed log loss + strength / 2 * |weights|^2.

    columns (n, d), targets (n) in [0, 1]; a sign of +1 or -1 holds the weight on that side of
    zero, 0 leaves it free. The intercept is free and not penalised.
    """
    from scipy.optimize import minimize

    width = columns.shape[1]
    held = np.zeros(width, dtype=int) if signs is None else signs
    bounds = [(0.0 if s > 0 else None, 0.0 if s < 0 else None) for s in held] + [(None, None)]

    def objective(beta: Floats) -> tuple[float, Floats]:
        logits = columns @ beta[:-1] + beta[-1]
        loss = np.logaddexp(0.0, logits).sum() - targets @ logits
        error = sigmoid(logits) - targets
        slope = np.append(columns.T @ error + strength * beta[:-1], error.sum())
        return float(loss + strength / 2 * beta[:-1] @ beta[:-1]), slope

    begin = np.zeros(width + 1) if start is None else start
    found = minimize(
        objective,
        begin,
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxiter": 500, "ftol": 1e-12, "gtol": 1e-7},
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
    columns: Floats, correct: Bools, folds: NDArray[np.int_], signs: NDArray[np.int_]
) -> tuple[float, Floats]:
    """The penalty with the least held-out log loss, and every row's held-out logit under it."""
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
            )
            logits[at, out] = columns[out] @ beta[:-1] + beta[-1]
    best = int(np.argmin([losses_of(row, correct).mean() for row in logits]))
    return float(STRENGTHS[best]), logits[best]
