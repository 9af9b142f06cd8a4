"""A threshold on scores with a guarantee: of the answers shown, at most a share of `risk` is wrong.

    found = Guarantee(scores, errors, groups=subjects, risk=0.05, confidence=0.95)
    found.threshold, found.bound, found.coverage
    found.predict(new_scores)            # which of them are shown

The guarantee holds with probability `confidence` over which answers were drawn, for new answers
like those. Thresholds are tested from high to low, each by the exact binomial tail (the bound of
Clopper and Pearson); the first failure ends the tests. So testing many thresholds costs nothing
(fixed-sequence testing; Angelopoulos et al. 2021). The first test is at a count of answers that
follows from their number, the risk and the confidence alone: neither the errors nor the values of
the scores, which may have been fitted to errors, have a say in where the tests begin.

Answers about one subject may be wrong together. Such groups count as fewer answers: as many as
would leave the share of errors as uncertain as it is between the groups (Korn and Graubard 1998).
To this measure one group is added of which all answers are wrong, so that few errors that happen
to lie apart are no evidence; without errors every group counts once, which is exact.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wherefrom.errors import UserError

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
FIRST_SHARE = 6  # the first test is about the best sixth of the answers, if that is enough
ONE_ERROR_FACTOR = 2  # it allows one error if there are so many times the subjects that this takes


class Guarantee:
    """The lowest threshold that is guaranteed.

    As in scikit-learn, `fit` returns the object, and what it found ends in an underscore:
    `threshold_` (infinite if nothing can be guaranteed: then nothing is shown), `bound_` (the upper
    confidence bound of the share of errors at the threshold; 1 without a threshold), `coverage_`
    (the share of the given answers that are shown), `shown_` and `wrong_` (how many answers are
    shown, and how many of these are errors), `first_` (the threshold where the tests began).
    `Guarantee(scores, errors)` fits at once.
    The names without an underscore are the same.
    """

    def __init__(
        self,
        scores: ArrayLike | None = None,
        errors: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        risk: float = 0.05,
        confidence: float = 0.95,
    ) -> None:
        for name, value in (("risk", risk), ("confidence", confidence)):
            if not 0 < value < 1:
                raise UserError(f"the {name} must lie between 0 and 1, not at {value}.")
        self.risk, self.confidence = risk, confidence
        if (scores is None) != (errors is None):
            raise UserError("a guarantee needs scores and errors, one of each for an answer.")
        if scores is not None and errors is not None:
            self.fit(scores, errors, groups)

    def fit(
        self,
        scores: ArrayLike,
        errors: ArrayLike,
        groups: ArrayLike | None = None,
        least: float = -math.inf,
    ) -> Guarantee:
        """Test thresholds on graded answers, from high to low, until one fails.

        scores: higher for answers that are more likely right. errors: whether each is wrong.
        groups: the subject of each answer; without them, every answer is one of its own. least: no
        threshold below is tested; it must not depend on the errors.
        """
        values, wrong = _columns(scores, errors)
        names = np.arange(values.size) if groups is None else np.asarray(groups)
        if names.shape != values.shape:
            raise UserError(f"groups must name the subject of each of the {values.size} answers.")
        self.threshold_, self.bound_, self.first_ = math.inf, 1.0, math.inf
        self.coverage_, self.shown_, self.wrong_ = 0.0, 0, 0
        order = np.argsort(-values, kind="stable")
        order = order[values[order] >= least]
        if not order.size:
            return self
        falling, delta = values[order], 1 - self.confidence
        last = np.flatnonzero(np.append(falling[1:] != falling[:-1], True))  # of each threshold
        shown, errors_shown = last + 1, np.cumsum(wrong[order])[last]
        factor = _design_effects(wrong[order], names[order])[last]
        tails = tail(errors_shown / factor, shown / factor, self.risk)
        failed = np.append(np.where(errors_shown < shown, tails, 1.0) > delta, True)
        subjects = np.unique(names).size
        least_shown = first_count(subjects, self.risk, delta) * values.size / subjects
        reached = shown >= least_shown - 1e-9
        start = int(np.argmax(reached)) if reached.any() else last.size - 1
        self.first_ = float(falling[last[start]])
        i = start + int(np.argmax(failed[start:])) - 1
        if i >= start:
            self.threshold_ = float(falling[last[i]])
            self.shown_, self.wrong_ = int(shown[i]), int(errors_shown[i])
            self.bound_ = upper_bound(self.wrong_ / factor[i], self.shown_ / factor[i], delta)
            self.coverage_ = self.shown_ / values.size
        return self

    def predict(self, scores: ArrayLike) -> Bools:
        """Which answers are shown."""
        return np.asarray(np.asarray(scores, dtype=np.float64) >= self.threshold)

    @property
    def threshold(self) -> float:
        return self._fitted("threshold_")

    @property
    def bound(self) -> float:
        return self._fitted("bound_")

    @property
    def coverage(self) -> float:
        return self._fitted("coverage_")

    def _fitted(self, name: str) -> float:
        if not hasattr(self, name):
            raise UserError("this guarantee has seen no answers yet; call fit(scores, errors).")
        return float(getattr(self, name))

    def __repr__(self) -> str:
        about = f"risk={self.risk:g}, confidence={self.confidence:g}"
        if not hasattr(self, "threshold_"):
            return f"<Guarantee {about}, not fitted>"
        found = f"threshold={self.threshold:.6g}, bound={self.bound:.4g}"
        return f"<Guarantee {about}: {found}, coverage={self.coverage:.4g}>"


def _columns(scores: ArrayLike, errors: ArrayLike) -> tuple[Floats, Bools]:
    try:
        values, raw = np.asarray(scores, dtype=np.float64), np.asarray(errors)
    except (TypeError, ValueError):
        raise UserError("scores must be numbers, one for each answer.") from None
    if values.ndim != 1 or values.shape != raw.shape:
        raise UserError(
            "scores and errors must be two rows of one length; their shapes are "
            f"{values.shape} and {raw.shape}."
        )
    if np.isnan(values).any():
        raise UserError("a score is not a number (nan); leave that answer out.")
    if raw.dtype != np.bool_ and not np.isin(raw, (0, 1)).all():
        raise UserError("errors must be true or false (or 1 and 0), one for each answer.")
    return values, raw.astype(np.bool_)


def _design_effects(errors: Bools, groups: NDArray[Any]) -> Floats:
    """For the first answer, the first two, and so on: how many of them count as one.

    The variance of the number of errors between groups, beside that of as many single answers.
    """
    group = np.unique(groups, return_inverse=True)[1]
    by_group = np.argsort(group, kind="stable")
    is_first = np.append(True, np.diff(group[by_group]) > 0)
    starts = np.flatnonzero(is_first)[np.cumsum(is_first) - 1]
    sums: Floats = np.cumsum(errors[by_group].astype(float)) - errors[by_group]
    answers_before, errors_before = np.empty((2, group.size))  # of the same group
    answers_before[by_group] = np.arange(group.size) - starts
    errors_before[by_group] = sums - sums[starts]
    # sums over groups of errors^2, errors * answers, answers^2
    squared_errors = np.cumsum((2 * errors_before + 1) * errors)
    products = np.cumsum(errors_before + errors * (answers_before + 1))
    squared_sizes = np.cumsum(2 * answers_before + 1)
    count = np.arange(1, group.size + 1)
    share = np.cumsum(errors) / count
    between = squared_errors - 2 * share * products + share**2 * squared_sizes
    size = squared_sizes / count
    return np.maximum(1.0, (between + size**2) / (count * share * (1 - share) + size))


def first_count(answers: int, risk: float, delta: float) -> int:
    """How many answers the first test is about."""
    one_error = fewest_answers(risk, delta, errors=1)
    if answers < ONE_ERROR_FACTOR * one_error:
        return fewest_answers(risk, delta)
    return max(one_error, answers // FIRST_SHARE)


def tail(wrong: ArrayLike, given: ArrayLike, risk: float) -> Floats:
    """The probability of at most `wrong` errors among `given`, each with probability `risk`; both
    may be fractions."""
    from scipy.special import betainc

    errors, answers = np.asarray(wrong, dtype=float), np.asarray(given, dtype=float)
    return np.asarray(1 - betainc(errors + 1, np.maximum(answers - errors, 1e-9), risk))


def upper_bound(wrong: float, given: float, delta: float) -> float:
    """Clopper and Pearson's one-sided bound: the largest risk that is not refuted."""
    from scipy.special import betaincinv

    return 1.0 if wrong >= given else float(betaincinv(wrong + 1, given - wrong, 1 - delta))


def fewest_answers(risk: float, delta: float, errors: int = 0) -> int:
    """The fewest answers from which `risk` can be guaranteed with so many errors among them."""
    if errors == 0:
        return math.ceil(math.log(delta) / math.log1p(-risk) - 1e-9)
    low, high = errors, errors + 1
    while tail(errors, high, risk) > delta:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if tail(errors, middle, risk) <= delta else (middle, high)
    return high
