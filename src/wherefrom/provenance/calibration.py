"""From signals to the probability that an answer is right, fitted on people set aside for it.

Standardise, weigh, squash: a logistic regression, since a few hundred people do not feed more.
A second step (Venn-Abers) bends the curve only where held-out people show that it helps. What
was tried and measured, and what the probability does not say: docs/calibration.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wherefrom.errors import UserError
from wherefrom.provenance.answers import Bools, Floats, as_flags
from wherefrom.provenance.logistic import (
    choose_strength,
    deal_folds,
    fit_logistic,
    second_step,
    standardise,
    tells_something,
)
from wherefrom.provenance.probability import (
    NO_CURVE,
    Calibration,
    Signal,
    as_column,
    equal_length,
    squash,
)

__all__ = ["Calibration", "Fitted", "fit_calibration", "fit_with_held_out", "out_of_fold"]
FEWEST = 20  # fewer people, or fewer than FEWEST_EACH right or wrong: no weights are fitted
FEWEST_EACH = 5


@dataclass(frozen=True, eq=False)
class Fitted:
    """A calibration, and the confidence of each calibration person for choosing a threshold.

    held_out: the person's signals weighed by a fit without that person, then bent by the one
    final curve. The curve only rises, so it cannot change the order that those fits gave; with a
    curve for each fold, far fewer thresholds could be promised (docs/calibration.md).
    """

    calibration: Calibration
    held_out: Floats


def graded(correct: ArrayLike, rows: int) -> Bools:
    right = as_flags(correct, "correct")
    if right.shape != (rows,):
        raise UserError(f"there are signals for {rows} people and grades for {right.size}.")
    return right


def numbered(groups: ArrayLike | None, rows: int) -> NDArray[np.int_]:
    people = np.arange(rows) if groups is None else np.unique(groups, return_inverse=True)[1]
    if people.shape != (rows,):
        raise UserError(f"there are signals for {rows} people and groups for {people.size}.")
    return people


def counted(counts: ArrayLike | None, rows: int) -> Floats:
    """How many people each row stands for."""
    many = np.ones(rows) if counts is None else as_column(counts, "counts")
    if many.shape != (rows,) or not (np.isfinite(many) & (many > 0)).all():
        raise UserError(f"each of {rows} people must count for a number above 0.")
    return many


def fit_calibration(
    signals: Mapping[str, ArrayLike],
    correct: ArrayLike,
    *,
    signs: Mapping[str, int] | None = None,
    groups: ArrayLike | None = None,
    counts: ArrayLike | None = None,
    seed: int,
) -> Calibration:
    """The calibration alone; see `fit_with_held_out`."""
    fitted = fit_with_held_out(
        signals, correct, signs=signs, groups=groups, counts=counts, seed=seed
    )
    return fitted.calibration


def fit_with_held_out(
    signals: Mapping[str, ArrayLike],
    correct: ArrayLike,
    *,
    signs: Mapping[str, int] | None = None,
    groups: ArrayLike | None = None,
    counts: ArrayLike | None = None,
    bend: bool = True,
    seed: int,
) -> Fitted:
    """Fit on people set aside. `signs`: +1 or -1 where a signal's direction is to be held.

    `groups` numbers the people where somebody has several rows; they then share a fold. `counts`
    is how many people each row stands for: a row that counts 2 acts as two rows would. Without
    `bend` there is no second step.
    """
    columns = {name: as_column(values, name) for name, values in signals.items()}
    rows = equal_length(columns)
    right = graded(correct, rows)
    for name in signs or {}:
        if name not in columns or (signs or {})[name] not in (-1, 0, 1):
            raise UserError(f"the sign of {name} must be -1, 0 or 1, for a signal that is there.")
    usable = {name: column for name, column in columns.items() if tells_something(column)}
    many = counted(counts, rows)
    fewer = min(int(right.sum()), int((~right).sum()))
    if rows < FEWEST or fewer < FEWEST_EACH or not usable:
        same = constant_calibration(right, many, usable=bool(usable))
        return Fitted(same, same.probability(columns))

    people = numbered(groups, rows)
    table = standardise(usable, signs or {}, many)
    folds = deal_folds(right, people, np.random.default_rng(seed))
    strength, held_out = choose_strength(table.columns, right, folds, table.signs, many)
    beta = fit_logistic(
        table.columns,
        right.astype(np.float64),
        strength=strength,
        signs=table.signs,
        counts=many,
    )
    calibration = Calibration(
        signals=tuple(
            Signal(
                **spread,
                weight=float(beta[at]),
                missing_weight=0.0 if absent is None else float(beta[absent]),
            )
            for at, (spread, absent) in enumerate(zip(table.spreads, table.absent, strict=True))
        ),
        intercept=float(beta[-1]),
        curve=second_step(held_out, right, folds, many) if bend else NO_CURVE,
        strength=strength,
        people=rows,
        right=int(right.sum()),
        note=None,
    )
    return Fitted(calibration, squash(held_out, calibration.curve))


def constant_calibration(correct: Bools, counts: Floats, *, usable: bool) -> Calibration:
    """One probability for everybody, (right + 1) / (people + 2), where no weights can be fitted."""
    why = "too few right or wrong answers" if usable else "no signal that varies"
    rows, right = correct.size, int(correct.sum())
    share = (float(counts @ correct) + 1) / (float(counts.sum()) + 2)
    return Calibration(
        signals=(),
        intercept=float(np.log(share / (1 - share))),
        curve=NO_CURVE,
        strength=0.0,
        people=rows,
        right=right,
        note=f"{right} of {rows} calibration answers are right: {why} to fit weights, so that"
        " everybody gets the same probability.",
    )


def out_of_fold(
    signals: Mapping[str, ArrayLike],
    correct: ArrayLike,
    *,
    signs: Mapping[str, int] | None = None,
    groups: ArrayLike | None = None,
    counts: ArrayLike | None = None,
    seed: int,
) -> Floats:
    """Each person's probability by a calibration fitted, all steps of it, without that person.

    For judging the calibration on its own people; for a threshold take `Fitted.held_out`.
    """
    columns = {name: as_column(values, name) for name, values in signals.items()}
    rows = equal_length(columns)
    right = graded(correct, rows)
    people = numbered(groups, rows)
    many = counted(counts, rows)
    folds = deal_folds(right, people, np.random.default_rng([seed, 1]))
    probability = np.empty(rows)
    for fold in np.unique(folds):
        out = folds == fold
        fitted = fit_calibration(
            {name: column[~out] for name, column in columns.items()},
            right[~out],
            signs=signs,
            groups=people[~out],
            counts=many[~out],
            seed=seed,
        )
        probability[out] = fitted.probability({n: column[out] for n, column in columns.items()})
    return probability
