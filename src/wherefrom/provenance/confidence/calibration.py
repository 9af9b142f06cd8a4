"""From signals to a probability, and from probabilities to a threshold with a guarantee.

Columns of numbers in, probabilities out by a penalised logistic fit or the product of two, whatever
model the numbers are of. The record of a fit holds plain numbers and needs numpy alone; scipy is
imported where something is fitted.

The guarantee: among the answers shown, at most `risk` are wrong. It is about subjects like those it
was made on, and holds with confidence 1 - delta over the luck of who they were. Thresholds of a
fixed grid are tested downwards from a start that no grade has chosen, each by the exact binomial
tail (the bound of Clopper and Pearson), and the first failure ends it, so that trying many costs
nothing (fixed-sequence testing; Angelopoulos et al. 2021).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from wherefrom.errors import UserError
from wherefrom.provenance.metrics import Bools, Floats

STRENGTHS = np.logspace(-2, 3, 6)  # of the penalty strength / 2 * |weights|^2 on the summed loss
FOLDS = 5
MOST = 12.0  # logits beyond are not believed: nothing is certain
FEWEST = 20  # fewer subjects, or fewer than FEWEST_EACH right or wrong, are said to be few
FEWEST_EACH = 5
FAR = 3.0  # deviations to the bad side of the mean, of the wrong answer that is added
HALF = 0.5  # nothing is shown below, whatever is guaranteed
NEVER = 1.0  # the threshold that no probability reaches
GRID = np.round(np.arange(999, 499, -1) / 1000, 3)  # 0.999, 0.998, ..., 0.5
LIKELY = 0.25  # the delta of an estimate: 27 answers without a mistake at a risk of 5 %
UNSEEN_RISK = 0.01  # share of unseen subjects that may be given an answer

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


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """The lowest threshold that is guaranteed, or a sentence why none is, and an estimate.

    given, wrong: answers at the threshold, guaranteed or estimated. bound: the upper confidence
    bound of the share wrong at a guaranteed one. estimate: the threshold to use where none is
    guaranteed. unseen, unseen_given: unseen subjects, and those given an answer at the threshold.
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
        """From which confidence on answers are shown: as guaranteed, or else as estimated."""
        found = self.estimate if self.threshold is None else self.threshold
        return NEVER if found is None else max(HALF, found)


def guarantee_threshold(
    confidence: ArrayLike,
    correct: ArrayLike,
    *,
    risk: float = 0.05,
    delta: float = 0.05,
    unseen: ArrayLike = (),
    unseen_risk: float = UNSEEN_RISK,
    what: str = "wrong",
) -> Guarantee:
    """The lowest threshold at which "at most `risk` wrong" holds with confidence 1 - delta.

    One row per subject, with probabilities by fits without it; below 0 for what is never shown.
    A threshold must also give at most `unseen_risk` of the `unseen`, or one, an answer (of these;
    it is not guaranteed of others). Where none passes, one is estimated: the lowest that would pass
    with delta = LIKELY, and at least 1 - risk; if there is none, nothing is shown. `what` an error
    is.
    """
    for name, value in (("risk", risk), ("delta", delta)):
        if not 0 < value < 1:
            raise UserError(f"the {name} must lie between 0 and 1, not at {value}.")
    sure, hits = np.asarray(confidence, dtype=np.float64), np.asarray(correct, dtype=np.bool_)
    others = np.asarray(unseen, dtype=np.float64)
    given, wrong, strangers = (count_from(each) for each in (sure, sure[~hits], others))
    # where the probabilities themselves, and no grade, give the best hope of passing both tests
    doubt = np.array([(1 - sure[sure >= at]).sum() for at in GRID])
    allowed = max(1.0, unseen_risk * others.size)
    failing = tail(np.floor(doubt), given, risk)
    if others.size >= fewest_answers(unseen_risk, delta):
        failing += np.floor(doubt * others.size / max(1, sure.size)) > allowed
    failed = (tail(wrong, given, risk) > delta) | (strangers > allowed)
    start = int(np.argmin(failing))
    ended = start + int(np.argmax(np.append(failed[start:], True)))
    within = (tail(wrong, given, risk) <= LIKELY) & (strangers <= allowed)
    at = ended - 1 if ended > start else int(within.nonzero()[0].max(initial=-1))
    about: dict[str, Any] = {"risk": risk, "delta": delta, "subjects": sure.size}
    some, bad, met = (int(x[at]) if at >= 0 else 0 for x in (given, wrong, strangers))
    about |= {"given": some, "wrong": bad, "unseen": others.size, "unseen_given": met}
    if ended > start:
        return Guarantee(threshold=float(GRID[at]), bound=upper_bound(bad, some, delta), **about)
    estimate = NEVER if at < 0 else max(float(GRID[at]), round(1 - risk, 6))
    least = f"{GRID[start]:.3g}"
    why = f"{int(wrong[start])} of {int(given[start])} answers from {least} on are {what}; "
    why += f"it takes at least {fewest_answers(risk, delta)}, and more with mistakes"
    if tail(wrong[start], given[start], risk) <= delta:  # the other test failed
        why = f"{int(strangers[start])} of {others.size} unseen subjects have {least} or more; "
        why += f"{int(allowed)} may"
    reason = (
        f'no threshold can guarantee "at most {risk:.1%} {what}" with {1 - delta:.0%} confidence '
        f"on {sure.size} subjects ({why}); "
    )
    reason += (
        f"answers are shown from {estimate:.3g} on, by estimate ({bad} of {some} are {what})."
        if some
        else "nor can one be estimated, so that no answer is shown."
    )
    return Guarantee(threshold=None, reason=reason, estimate=estimate, **about)


def count_from(values: Floats) -> Floats:
    """How many values there are from each threshold of the grid on."""
    return np.asarray(values.size - np.searchsorted(np.sort(values), GRID, side="left"))


def tail(wrong: ArrayLike, given: ArrayLike, risk: float) -> Floats:
    """How likely so few are wrong among so many, were each wrong with probability `risk`."""
    from scipy.special import bdtr

    return np.asarray(bdtr(np.asarray(wrong, dtype=float), np.asarray(given, dtype=int), risk))


def upper_bound(wrong: int, given: int, delta: float) -> float:
    """Clopper and Pearson's one-sided bound: the largest risk that is not yet refuted."""
    from scipy.special import betaincinv

    return 1.0 if wrong >= given else float(betaincinv(wrong + 1, given - wrong, 1 - delta))


def fewest_answers(risk: float, delta: float) -> int:
    """The fewest answers, none of them wrong, from which `risk` can be guaranteed."""
    return math.ceil(math.log(delta) / math.log1p(-risk) - 1e-9)
