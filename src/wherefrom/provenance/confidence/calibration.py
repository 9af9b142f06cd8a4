"""From signals to a probability: a penalised logistic fit with a curve over its logits.

Columns of numbers in, probabilities out, whatever model the numbers are of. The record of a fit
holds plain numbers and needs numpy alone; scipy and scikit-learn are imported where something is
fitted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from wherefrom.errors import UserError
from wherefrom.provenance.metrics import Answers, Bools, Floats, as_flags, ece, log_loss

RANKING = 0.05  # share of the sigmoid in a bent probability, which keeps the order of equals
STRENGTHS = np.logspace(-2, 3, 6)  # of the penalty strength / 2 * |weights|^2 on the summed loss
FOLDS = 5
KNOTS = 50
FEWEST = 20  # fewer subjects, or fewer than FEWEST_EACH right or wrong: no weights are fitted
FEWEST_EACH = 5

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
    """A fitted probability: signals -> logit -> slope * logit + offset -> curve, or sigmoid.

    knots, heights: the curve, straight lines between. strength: the penalty that was chosen.
    note: what a reader must know.
    """

    signals: Mapping[str, SignalWeight]
    intercept: Number
    slope: Annotated[Number, Field(gt=0)] = 1.0
    offset: Number = 0.0
    knots: tuple[Number, ...] = ()
    heights: tuple[Number, ...] = ()
    strength: Number = 0.0
    subjects: int
    right: int
    note: str | None = None

    def __post_init__(self) -> None:
        heights = np.array(self.heights)
        rises = (np.diff(self.knots) > 0).all() and (np.diff(heights) >= -1e-12).all()
        if len(self.knots) != heights.size or not rises or ((heights < 0) | (heights > 1)).any():
            raise ValueError("the curve must rise from 0 to 1 over its knots")

    def logits(self, signals: Mapping[str, ArrayLike]) -> Floats:
        """What decides the order, for each row; a signal that is not there is missing for all."""
        columns = _columns(signals)
        rows = next(iter(columns.values())).size
        logits = np.full(rows, self.intercept)
        for name, signal in self.signals.items():
            values = columns.get(name, np.full(rows, np.nan))
            logits = logits + signal.scaled(values) * signal.weight
        return logits

    def bend(self, logits: ArrayLike) -> Floats:
        """Probabilities from logits, in the same order."""
        scaled = self.slope * np.asarray(logits, dtype=np.float64) + self.offset
        return bend(scaled, self.knots, self.heights)

    def probability(self, signals: Mapping[str, ArrayLike]) -> Floats:
        """The probability for each row."""
        return self.bend(self.logits(signals))


def bend(logits: Floats, knots: tuple[float, ...], heights: tuple[float, ...]) -> Floats:
    """The curve where there is one, with a little of the sigmoid."""
    if not knots:
        return sigmoid(logits)
    return np.asarray((1 - RANKING) * np.interp(logits, knots, heights) + RANKING * sigmoid(logits))


def fit_calibration(
    signals: Mapping[str, ArrayLike],
    correct: ArrayLike,
    *,
    signs: Signs | None = None,
    counts: ArrayLike | None = None,
    fits: Bools | None = None,
    bent: bool = True,
    seed: int,
) -> tuple[Calibration, Floats]:
    """Fit on subjects set aside; the calibration, and each subject's logit by fits without it.

    `signs`: +1 or -1 where a signal's direction is to be held. `counts` is how many subjects each
    row stands for: a row that counts 2 acts as two rows would. `fits`: the rows that may decide
    weights, and so the order of answers; the others only help to scale and bend what comes out,
    so that they can test thresholds of the logit. Without `bent` there is no curve.
    """
    columns, right = _columns(signals), as_flags(correct, "correct")
    rows = next(iter(columns.values())).shape
    many = np.ones(rows) if counts is None else np.asarray(counts, dtype=np.float64)
    if not (right.shape == many.shape == rows and (many > 0).all()):
        raise UserError(f"each of {rows[0]} subjects needs a grade and a count above 0.")
    total = int(right.sum())
    use = np.ones(rows, dtype=np.bool_) if fits is None else fits
    measured = {name: _measure(values[use], many[use]) for name, values in columns.items()}
    weights = {name: each for name, each in measured.items() if each is not None}
    fewer = min(int(right[use].sum()), int((~right[use]).sum()))
    if use.sum() < FEWEST or fewer < FEWEST_EACH or not weights:
        share = (float(many @ right) + 1) / (float(many.sum()) + 2)
        why = "too few right or wrong answers" if weights else "no signal that varies"
        same = Calibration(
            signals={},
            intercept=float(np.log(share / (1 - share))),
            subjects=right.size,
            right=total,
            note=f"{total} of {right.size} calibration answers are right: {why} to fit weights on, "
            "so that all get the same probability.",
        )
        return same, same.logits(columns)

    table = np.stack([each.scaled(columns[name]) for name, each in weights.items()], axis=1)
    held = np.array([(signs or {}).get(name, 0) for name in weights])
    folds = assign_folds(right, np.random.default_rng(seed))
    own = folds if use.all() else assign_folds(right[use], np.random.default_rng(seed))
    strength, held_out = choose_strength(table[use], right[use], own, held, many[use])
    beta = fit_logistic(table[use], right[use], held, many[use], strength)
    logits = table @ beta[:-1] + beta[-1]
    logits[use] = held_out
    slope, offset = (1.0, 0.0) if use.all() else fit_scale(logits, right, many)
    scaled = slope * logits + offset
    knots, heights = choose_curve(scaled, right, folds, many) if bent else ((), ())
    *fitted, intercept = beta.tolist()
    calibration = Calibration(
        signals={
            name: each._replace(weight=value)
            for (name, each), value in zip(weights.items(), fitted, strict=True)
        },
        intercept=intercept,
        slope=slope,
        offset=offset,
        knots=knots,
        heights=heights,
        strength=strength,
        subjects=right.size,
        right=total,
    )
    return calibration, logits


def fit_scale(logits: Floats, correct: Bools, many: Floats) -> tuple[float, float]:
    """Platt's slope, which is above 0, and offset: logits that are right on these subjects."""
    spread = float(logits.std()) or 1.0
    rising = np.ones(1, dtype=int)
    slope, offset = fit_logistic((logits / spread)[:, None], correct, rising, many, 1.0)
    return max(float(slope), 1e-3) / spread, float(offset)


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


def assign_folds(correct: Bools, rng: np.random.Generator) -> NDArray[np.int_]:
    """A fold for each row; right and wrong are spread evenly."""
    shuffled = rng.permutation(correct.size)
    folds = np.empty(correct.size, dtype=int)
    folds[shuffled[np.argsort(correct[shuffled], kind="stable")]] = np.arange(correct.size) % FOLDS
    return folds


def choose_strength(
    columns: Floats, correct: Bools, folds: NDArray[np.int_], signs: NDArray[np.int_], many: Floats
) -> tuple[float, Floats]:
    """The penalty with the least held-out log loss, and every row's held-out logit under it."""
    logits = np.empty((STRENGTHS.size, correct.size))
    for out in (folds == fold for fold in range(FOLDS)):
        for at, strength in enumerate(STRENGTHS):
            beta = fit_logistic(columns[~out], correct[~out], signs, many[~out], strength)
            logits[at, out] = columns[out] @ beta[:-1] + beta[-1]
    losses = np.logaddexp(0.0, np.where(correct, -logits, logits)) @ many
    best = int(np.argmin(losses))
    return float(STRENGTHS[best]), logits[best]


CurvePoints = tuple[tuple[float, ...], tuple[float, ...]]


def choose_curve(
    logits: Floats, correct: Bools, folds: NDArray[np.int_], many: Floats
) -> CurvePoints:
    """Knots and heights of the Venn-Abers curve over held-out logits; none where it does not help.

    It helps if, on subjects held out from the curve too, the mean log loss falls and the expected
    calibration error does not rise.
    """
    curved = np.empty_like(logits)
    for out in (folds == fold for fold in range(FOLDS)):
        curved[out] = bend(logits[out], *fit_curve(logits[~out], correct[~out], many[~out]))
    plain, bent = Answers(sigmoid(logits), correct), Answers(curved, correct)
    loss_falls = log_loss.values(bent, many[None]) < log_loss.values(plain, many[None])
    error_stays = ece.values(bent, many[None]) <= ece.values(plain, many[None])
    return fit_curve(logits, correct, many) if loss_falls and error_stays else ((), ())


def fit_curve(logits: Floats, correct: Bools, counts: Floats) -> CurvePoints:
    """Venn-Abers: fit a rising step function as if the asked subject were wrong, then right.

    p0 and p1 are its heights at the subject; p1 / (1 - p0 + p1) is the probability that loses
    least in the worst case. Taken at up to KNOTS of the logits and joined by straight lines.
    """
    from sklearn.isotonic import isotonic_regression

    places, member = np.unique(logits, return_inverse=True)
    right = np.bincount(member, weights=correct * counts)
    many = np.bincount(member, weights=counts)
    chosen = np.unique(np.linspace(0, places.size - 1, KNOTS).round().astype(int))
    heights = []
    for at in chosen:
        one = np.arange(places.size) == at
        p0 = isotonic_regression(right / (many + one), sample_weight=many + one)[at]
        p1 = isotonic_regression((right + one) / (many + one), sample_weight=many + one)[at]
        heights.append(float(p1 / (1 - p0 + p1)))
    return tuple(places[chosen].tolist()), tuple(heights)


def _columns(signals: Mapping[str, ArrayLike]) -> dict[str, Floats]:
    columns = {name: np.asarray(values, dtype=np.float64) for name, values in signals.items()}
    shapes = {column.shape for column in columns.values()}
    if len(shapes) != 1 or len(next(iter(shapes))) != 1:
        raise UserError("signals must be columns with one number per subject.")
    return columns


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
