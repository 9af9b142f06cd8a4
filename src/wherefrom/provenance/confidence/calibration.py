"""From signals to a probability, and from probabilities to a threshold with a guarantee.

Columns of numbers in, probabilities out: by a penalised logistic regression, or by the product of
two. It does not matter which model the numbers come from. A fit is kept as plain numbers, and using
it needs numpy alone; scipy is imported only to fit.

The guarantee: among the answers shown, at most a share of `risk` is wrong. It holds for subjects
like those that it was tested on, with confidence 1 - delta over which of them were drawn. The
thresholds of a fixed grid are tested downwards by `wherefrom.provenance.guarantee`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from wherefrom.errors import UserError
from wherefrom.provenance.guarantee import (
    count_from,
    fewest_answers,
    pass_in_order,
    tail,
    upper_bound,
)
from wherefrom.provenance.metrics import Bools, Floats

STRENGTHS = np.logspace(-2, 3, 6)  # of the penalty strength / 2 * |weights|^2 on the summed loss
FOLDS = 5
MOST = 12.0  # logits are clipped to this: nothing is certain
FEWEST = 20  # with fewer subjects, or fewer than FEWEST_EACH right or wrong ones, a fit has a note
FEWEST_EACH = 5
FAR = 3.0  # the wrong answer that is added lies this many deviations on the bad side of the mean
HALF = 0.5  # no answer below is shown, whatever is guaranteed
NEVER = 1.0  # the threshold that no probability reaches
GRID = np.round(np.arange(999, 499, -1) / 1000, 3)  # 0.999, 0.998, ..., 0.5
LIKELY = 0.25  # the delta of an estimate: 27 answers without a mistake at a risk of 5 %
UNSEEN_RISK = 0.01  # share of unseen subjects that may be given an answer

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

    def probability(self, signals: Mapping[str, ArrayLike]) -> Floats:
        """The probability of each row; a column that is not there is missing in all rows."""
        columns = _columns(signals)
        rows = next(iter(columns.values())).size
        logits = np.full(rows, self.intercept)
        for name, signal in self.signals.items():
            values = columns.get(name, np.full(rows, np.nan))
            logits = logits + signal.scaled(values) * signal.weight
        return sigmoid(np.clip(logits, -MOST, MOST))


@dataclass(frozen=True, kw_only=True)
class Product:
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
    def signals(self) -> set[str]:
        """The names of all signals that it takes."""
        return {*self.given.signals, *(self.seen.signals if self.seen else ())}

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
    a wrong one FAR on the bad side, so that a fit on few answers still believes the signs.
    """
    columns, right = _columns(signals), np.asarray(correct, dtype=np.bool_)
    weight = np.ones(right.size) if counts is None else np.asarray(counts, dtype=np.float64)
    measured = {name: _measure(values, weight) for name, values in columns.items()}
    used = {name: signal for name, signal in measured.items() if signal is not None}
    table = np.empty((right.size, len(used)))
    for i, (name, signal) in enumerate(used.items()):
        table[:, i] = signal.scaled(columns[name])
    held = np.array([(signs or {}).get(name, 0) for name in used], dtype=int)
    added = np.stack((np.zeros(held.size), -FAR * held))
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
    elif right.size < FEWEST or min(right.sum(), (~right).sum()) < FEWEST_EACH:
        note = "with so few right or wrong ones, the probabilities are rough."
    if note:
        note = f"{right.sum()} of {right.size} calibration answers are right: {note}"
    about: dict[str, Any] = {"subjects": right.size, "right": int(right.sum()), "note": note}
    fit = Calibration(signals=weighted, intercept=intercept, strength=strength, **about)
    return fit, sigmoid(np.clip(logits[best], -MOST, MOST))


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


@dataclass(frozen=True, kw_only=True)
class TestedThreshold:
    """The lowest threshold that is guaranteed, or the reason why none is, and an estimate.

    given, wrong: how many answers are shown at the threshold, guaranteed or estimated, and how many
    of them are wrong. bound: the upper confidence bound of the share wrong, if guaranteed.
    estimate: the threshold to use if none is guaranteed. unseen, unseen_given: how many subjects
    are unseen, and how many of them get an answer.
    """

    threshold: float | None
    reason: str | None = None
    risk: float
    delta: float
    subjects: int
    given: int
    wrong: int
    bound: float | None = None
    estimate: float | None = None
    unseen: int = 0
    unseen_given: int = 0

    @property
    def used(self) -> float:
        """The threshold from which on answers are shown: the guaranteed or the estimated one."""
        threshold = self.estimate if self.threshold is None else self.threshold
        return NEVER if threshold is None else max(HALF, threshold)


def guarantee_threshold(
    confidence: ArrayLike,
    correct: ArrayLike,
    *,
    risk: float = 0.05,
    delta: float = 0.05,
    unseen: ArrayLike = (),
    unseen_risk: float = UNSEEN_RISK,
    what: str = "wrong",
) -> TestedThreshold:
    """The lowest threshold at which "at most `risk` wrong" holds with confidence 1 - delta.

    confidence, correct: one row per subject, with probabilities by fits without it; negative for an
    answer that is never shown. A threshold must also give at most `unseen_risk` of the `unseen`, or
    one of them, an answer; this is tested, not guaranteed. If no threshold passes, one is
    estimated: the lowest that would pass with delta = LIKELY, and at least 1 - risk. what: the word
    for an error.
    """
    for name, value in (("risk", risk), ("delta", delta)):
        if not 0 < value < 1:
            raise UserError(f"the {name} must lie between 0 and 1, not at {value}.")
    sure, hits = np.asarray(confidence, dtype=np.float64), np.asarray(correct, dtype=np.bool_)
    others = np.asarray(unseen, dtype=np.float64)
    # at each threshold of the grid
    given, wrong, unseen_given = (
        count_from(values, GRID) for values in (sure, sure[~hits], others)
    )
    p_value = tail(wrong, given, risk)
    most_unseen = max(1.0, unseen_risk * others.size)
    start, ended = pass_in_order(
        given, wrong, sure.size, risk, delta, refused=unseen_given > most_unseen
    )
    is_guaranteed = ended > start
    estimated = (p_value <= LIKELY) & (unseen_given <= most_unseen)
    i = ended - 1 if is_guaranteed else int(estimated.nonzero()[0].max(initial=-1))
    shown, errors, unseen_shown = (
        int(counts[i]) if i >= 0 else 0 for counts in (given, wrong, unseen_given)
    )
    about: dict[str, Any] = {"risk": risk, "delta": delta, "subjects": sure.size, "given": shown}
    about |= {"wrong": errors, "unseen": others.size, "unseen_given": unseen_shown}
    if is_guaranteed:
        bound = upper_bound(errors, shown, delta)
        return TestedThreshold(threshold=float(GRID[i]), bound=bound, **about)
    estimate = NEVER if i < 0 else max(float(GRID[i]), round(1 - risk, 6))
    least = f"{GRID[start]:.3g}"
    if p_value[start] <= delta:  # it is the test of the unseen that failed
        why = f"{int(unseen_given[start])} of {others.size} unseen subjects have {least} or more; "
        why += f"{int(most_unseen)} may"
    else:
        why = f"{int(wrong[start])} of {int(given[start])} answers from {least} on are {what}; "
        why += f"at least {fewest_answers(risk, delta)} are needed, more if some are {what}"
    reason = (
        f'no threshold can guarantee "at most {risk:.1%} {what}" with {1 - delta:.0%} confidence '
        f"on {sure.size} subjects ({why}); "
    )
    reason += (
        f"answers are shown from {estimate:.3g} on, by estimate ({errors} of {shown} are {what})."
        if shown
        else "no answer is shown."
    )
    return TestedThreshold(threshold=None, reason=reason, estimate=estimate, **about)
