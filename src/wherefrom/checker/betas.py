"""Betas: where limits are read off, which one shows a counterexample, and which one is needed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from wherefrom.checker.field import NotExactError, TooLargeError, UndefinedError
from wherefrom.checker.grammar import ExpressionError

ROUND_BETAS = (
    *(10.0, 20.0, 100.0, 5.0, 1000.0, 2.0, 1e4, 1.0),
    *(1e6, 1e9, 1e12, 1e20, 1e30, 1e60, 1e100),
)
STILL_MISSED = 1000  # a counterexample must also fail at a beta that is so many times larger
ROUNDING = 1e-9  # relative, of an error


def showing_beta(
    error_at: Callable[[float], float], eps: float, betas: Sequence[float] = ROUND_BETAS
) -> tuple[float, float] | None:
    """The first beta at which the error exceeds eps, as it does at a much larger one; the error."""
    for beta in betas:
        try:
            error = error_at(beta)
            later = error_at(STILL_MISSED * beta) if error > eps * (1 + ROUNDING) else 0.0
        except (ExpressionError, TooLargeError, NotExactError, UndefinedError):
            continue
        if later > eps:
            return beta, error
    return None


def least_beta(
    is_good: Callable[[float], bool],
    decades: tuple[int, int],
    steps_per_decade: int = 12,
    bisections: int = 50,
) -> float | None:
    """The beta from which on all is good: the last one of a ladder that is not, and bisection from
    there. 0 if all of the ladder is good; None if its end is not."""
    first, last = (decade * steps_per_decade for decade in decades)
    ladder = [10.0 ** (k / steps_per_decade) for k in range(first, last + 1)]
    bad = next((i for i in reversed(range(len(ladder))) if not is_good(ladder[i])), None)
    if bad is None:
        return 0.0
    if bad == len(ladder) - 1:
        return None
    low, high = ladder[bad], ladder[bad + 1]
    for _ in range(bisections):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if is_good(middle) else (middle, high)
    return high
