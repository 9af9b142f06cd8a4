"""Answers with a confidence: what every metric, curve and interval is computed from.

Checked once, here, so that no formula has to doubt its input; sorted once, so that no two of
them disagree about ties.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wherefrom.errors import UserError

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Answers:
    """One row a person: the confidence, whether the answer is right, whether the person was seen.

    Sorted by falling confidence where a measure needs it: people of equal confidence form a
    group, and no threshold can part them.
    """

    confidence: Floats
    correct: Bools
    seen: Bools | None = None
    order: NDArray[np.intp] = field(init=False, repr=False)
    starts: NDArray[np.intp] = field(init=False, repr=False)

    def __init__(self, confidence: ArrayLike, correct: ArrayLike, seen: ArrayLike | None = None):
        scores = np.asarray(confidence, dtype=np.float64)
        right = as_flags(correct, "correct")
        known = None if seen is None else as_flags(seen, "seen")
        if scores.ndim != 1 or scores.shape != right.shape:
            raise UserError(
                f"confidence and correctness must be two lists of equal length, one entry a person,"
                f" not of shapes {scores.shape} and {right.shape}."
            )
        if known is not None and known.shape != right.shape:
            raise UserError(
                f"seen must have one entry a person: {right.size} expected, {known.size} came."
            )
        if not np.isfinite(scores).all():
            bad = int(np.flatnonzero(~np.isfinite(scores))[0])
            raise UserError(f"the confidence of person {bad + 1} is {scores[bad]}, not a number.")
        order = np.argsort(-scores, kind="stable")
        falling = scores[order]
        first = np.ones(scores.size, dtype=np.bool_)
        first[1:] = falling[1:] != falling[:-1]
        for name, value in (
            ("confidence", scores),
            ("correct", right),
            ("seen", known),
            ("order", order),
            ("starts", np.flatnonzero(first)),
        ):
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return int(self.correct.size)

    def by_group(self, weights: Floats) -> Floats:
        """Sums of weights over people of equal confidence, the surest first: (r, n) -> (r, g)."""
        return np.asarray(np.add.reduceat(weights[:, self.order], self.starts, axis=1))

    def only(self, chosen: Bools) -> Answers:
        """The same for some of the people."""
        seen = None if self.seen is None else self.seen[chosen]
        return Answers(self.confidence[chosen], self.correct[chosen], seen)


def as_flags(values: ArrayLike, name: str) -> Bools:
    """Yes or no for each person; 0 and 1 will do, anything else is a mistake."""
    array = np.asarray(values)
    if array.dtype != np.bool_ and not np.isin(array, (0, 1)).all():
        raise UserError(f"{name} must be yes or no for each person, not {array.ravel()[:3]}.")
    return array.astype(np.bool_)
