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
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wherefrom.errors import UserError

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
FIRST_SHARE = 6  # the first test is about the best sixth of the answers, if that is enough
ROOM = 1.5  # it allows one error if there are so many times the answers that this takes


class Guarantee:
    """The lowest threshold that is guaranteed.

    As in scikit-learn, `fit` returns the object, and what it found ends in an underscore:
    `threshold_` (infinite if nothing can be guaranteed: then nothing is shown), `bound_` (the upper
    confidence bound of the share of errors at the threshold; 1 without a threshold), `coverage_`
    (the share of the given answers that are shown), `shown_` and `wrong_` (how many answers of the
    test are shown, and how many of these are errors). `Guarantee(scores, errors)` fits at once.
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
        self, scores: ArrayLike, errors: ArrayLike, groups: ArrayLike | None = None
    ) -> Guarantee:
        """Test thresholds on graded answers.

        scores: higher for answers that are more likely right. errors: whether each is wrong.
        groups: the subject of each; one answer of each subject is drawn for the test, since
        answers about one subject may be wrong together.
        """
        values, wrong = _columns(scores, errors)
        rows = np.arange(values.size) if groups is None else _one_of_each(groups, values.size)
        thresholds = np.unique(values[rows])[::-1]
        shown, failed = (
            count_from(part, thresholds) for part in (values[rows], values[rows][wrong[rows]])
        )
        delta = 1 - self.confidence
        start, end = pass_in_order(shown, failed, rows.size, self.risk, delta)
        i = end - 1
        is_found = end > start
        self.threshold_ = float(thresholds[i]) if is_found else math.inf
        self.shown_ = int(shown[i]) if is_found else 0
        self.wrong_ = int(failed[i]) if is_found else 0
        self.bound_ = upper_bound(self.wrong_, self.shown_, delta) if is_found else 1.0
        self.coverage_ = float((values >= self.threshold_).mean()) if values.size else 0.0
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


def _one_of_each(groups: ArrayLike, count: int) -> NDArray[np.intp]:
    """One row of each group, drawn without regard to scores and errors."""
    names = np.asarray(groups)
    if names.shape != (count,):
        raise UserError(f"groups must name the subject of each of the {count} answers.")
    order = np.random.default_rng(0).permutation(count)
    return np.sort(order[np.unique(names[order], return_index=True)[1]])


def count_from(values: Floats, thresholds: Floats) -> NDArray[np.intp]:
    """How many values reach each threshold."""
    return values.size - np.searchsorted(np.sort(values), thresholds, side="left")


def pass_in_order(
    shown: ArrayLike,
    wrong: ArrayLike,
    answers: int,
    risk: float,
    delta: float,
    refused: ArrayLike = False,
) -> tuple[int, int]:
    """Fixed-sequence testing: where the tests begin, and the first threshold that fails.

    shown, wrong: how many answers each threshold shows, from high to low, and how many of them are
    wrong. answers: of how many. refused: thresholds that fail for another reason. Nothing is
    guaranteed if the first test fails, and all that passed before the first failure is.
    """
    counts = np.asarray(shown)
    failed = np.append((tail(wrong, counts, risk) > delta) | np.asarray(refused), True)
    reached = np.append(counts >= first_count(answers, risk, delta), True)
    start = min(int(np.argmax(reached)), max(0, counts.size - 1))
    return start, start + int(np.argmax(failed[start:]))


def first_count(answers: int, risk: float, delta: float) -> int:
    """How many answers the first test is about."""
    one_error = fewest_answers(risk, delta, errors=1)
    if answers < ROOM * one_error:
        return fewest_answers(risk, delta)
    return max(one_error, answers // FIRST_SHARE)


def tail(wrong: ArrayLike, given: ArrayLike, risk: float) -> Floats:
    """The probability of at most `wrong` errors among `given`, each with probability `risk`."""
    from scipy.special import bdtr

    return np.asarray(bdtr(np.asarray(wrong, dtype=float), np.asarray(given, dtype=int), risk))


def upper_bound(wrong: int, given: int, delta: float) -> float:
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
