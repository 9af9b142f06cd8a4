"""The law of a key of varying length: k_a = e mu_a with e ~ N(1, 1/2), for one query or for two.

What is claimed for every n and every length; how often samples miss the goal, at one beta and in
the limit. Of two heads samples with e < 0 are set aside if one of the heads looks along mu_a. Also
the range of e itself, written as low and high.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np

from wherefrom.checker.asymptotics import asymptotics
from wherefrom.checker.field import FLAT, Field, NotExactError, Number, StepBudget, TooLargeError
from wherefrom.checker.goals import Claim, certificate, decide, is_true, limit_value
from wherefrom.checker.grammar import ExpressionError
from wherefrom.checker.reading import Construction
from wherefrom.checker.results import CheckResult, Failure
from wherefrom.checker.spaces import Floats, Matrix, evaluate

SD = math.sqrt(0.5)  # of the length e
RISK = 0.05  # the share of samples that may miss the tolerance
REACH = 9.0  # standard deviations beyond which nothing is counted: 1e-18
LENGTHS = (1.0, 0.5, 1.5, 0.0, 2.0, 0.9, 1.1, 1.01, 0.99, 0.1, -1.0, 3.0, -2.0, 4.0)
LARGEST, UNIT = 1e250, 1e200  # of a logit in floats, and of a logit of a that grows
SMALLEST_FLOAT = 5e-324
# logits of a (at e = 1) and of b, that of each other key less that of b, which may be small beside
# both, and that of each other key
Head = tuple[float, float, float, float]


def judge_range(construction: Construction, draft: CheckResult, budget: StepBudget) -> CheckResult:
    """low <= e <= high for the length e of the noisy key: what share of samples is inside?"""
    ends: dict[str, float] = {}
    for name, expression in construction.expressions.items():
        try:
            ends[name] = float(evaluate(expression, Floats(budget), {}).item())
        except (TooLargeError, NotExactError):
            ends[name] = math.inf
        if not -1e6 <= ends[name] <= 1e6:
            raise ExpressionError(f"{name} must lie within a million of 0.", expression.source, 1)
    low, high = ends["low"], ends["high"]
    inside = probability_between(low, high)
    outside = 1 - inside
    failure = Failure("e lies outside the range", 0, 0.0, outside, 0.0, outside)
    derived = (f"P({low:g} <= e <= {high:g}) = {inside:.6f}",)
    draft = replace(draft, derived=derived, failure=failure)
    if abs(outside - draft.tolerance) < 1e-12:
        return draft.inconclusive("the share outside is the tolerance, to all digits computed.")
    if outside < draft.tolerance:
        share = f"in {inside:.4%} of the samples"
        because = f"the length e ~ N(1, 1/2) lies between {low:g} and {high:g} {share}."
        field = Field(budget)
        room = field.number(Fraction(draft.tolerance) - Fraction(outside))
        return draft.proved(because, certificate(decide(field, [Claim(room, "positive")])))
    e = next(e for e in (0.0, 2.0, 1.0, -1.0, 3.0, low - 1, high + 1) if not low <= e <= high)
    because = (
        f"e ~ N(1, 1/2) has the standard deviation 0.707, so {outside:.1%} of the samples lie "
        f"outside {low:g} to {high:g}."
    )
    sentence = f"e = {e:g} is as good a sample as any, and outside the range."
    return draft.refuted(because, sentence, numbers={"e": e})


# ---- for every n and every length


def length_claims(field: Field, heads: Sequence[Mapping[str, Number]]) -> list[Claim]:
    """The heads' weights on a tend to shares that average 1/2, for every e that is not set aside.
    Where no share is clear, a claim that is false, and numbers whose signs matter."""
    false = Claim(field.number(1), "zero")
    along = [Claim(head["a"], "grows") for head in heads]
    along = [claim for claim in along if _are_true([claim])]
    positive = len(heads) > 1 and bool(along)  # e < 0 is set aside
    claims = along[:1] if positive else []
    total = Fraction(0)
    for index, head in enumerate(heads):
        a, b, others = head["a"], head["b"], head["others"]
        both = [Claim(a, "vanishes"), Claim(b, "vanishes"), Claim(-others, "grows")]
        options = [
            (Fraction(1, 2), both),
            (Fraction(1), [*_ahead(a, b, positive), *_ahead(a, others, positive)]),
            (Fraction(0), [Claim(b - others, "grows"), *_ahead(-a, -b, positive)]),
        ]
        chosen = next((option for option in options if _are_true(option[1])), None)
        if chosen is None:
            return [false, *(Claim(x, "zero") for x in (a, b, others, a - b, b - others))]
        total += chosen[0]
        claims += chosen[1]
        if a.is_zero:
            claims.append(Claim(a, "vanishes", f"a of {index}"))
    return claims if 2 * total == len(heads) else [false]


def _ahead(a: Number, rival: Number, positive: bool) -> list[Claim]:
    """Claims by which e a - rival grows for every e > 0 (or, if not `positive`, for every e)."""
    if positive and not a.is_zero:
        claims = [Claim(a, "grows"), Claim(_ratio(rival, a), "not above")]
        if _are_true(claims):
            return claims
    if rival.is_zero:
        return [Claim(rival, "grows")]  # which is false: no e a grows for every e
    return [Claim(-rival, "grows"), Claim(_ratio(a, rival), "vanishes")]


def _ratio(x: Number, y: Number) -> Number:
    """x / y without an obligation: what stands beside it says that y grows."""
    field = x.field
    return field.quotient(field.times(x.top, y.bottom), field.times(x.bottom, y.top))


def _are_true(claims: list[Claim]) -> bool:
    return all(is_true(piece, c.must) for c in claims for piece in asymptotics(c.number))


# ---- heads in floats, at one n


def limit_head(head: Mapping[str, Number], n: int) -> Head:
    """A head as beta grows; NotExactError if a sign is unknown. Where the logit of a grows, the
    length of the key decides by the limits of the others in units of it."""
    a, b, others = head["a"], head["b"], head["others"]
    (along,) = asymptotics(a)
    gap = limit_value(others - b, n)
    if along.sign and along.order > FLAT:
        size = a if along.sign > 0 else -a
        numbers = [float(along.sign), *(limit_value(_ratio(x, size), n) for x in (b, others))]
        numbers = [x * UNIT for x in numbers]
    else:
        numbers = [limit_value(x, n) for x in (a, b, others)]
    if any(map(math.isnan, (gap, *numbers))):
        raise NotExactError
    first, second, last = (min(max(x, -LARGEST), LARGEST) for x in numbers)
    first = first or (along.sign or 0) * SMALLEST_FLOAT  # its sign sets samples aside
    return first, second, min(max(gap, -LARGEST), LARGEST), last


def head_of(a: Any, b: Any, gap: Any, others: Any) -> Head:
    """From numbers of many digits, which are scaled down if they are beyond floats."""
    largest = mpmath.mpf(LARGEST)
    scale = min(mpmath.mpf(1), largest / 1e10 / max(abs(a), abs(b), 1))
    first = float(a * scale) or float(mpmath.sign(a)) * SMALLEST_FLOAT
    between, last = (float(max(min(x, largest), -largest)) for x in (gap, others * scale))
    return first, float(b * scale), between, last


def misplaced(heads: Sequence[Head], e: Matrix, n: int) -> Matrix:
    """Half the sum of |weight - wanted| of the averaged heads, for each e."""
    a, b, gap, others = np.array(heads, dtype=np.float64).T[:, :, None]
    # less the larger of b and the others: the smaller one may be so far below that a is lost
    top, below = np.maximum(b, others), np.minimum(gap, 0.0)
    scores = np.empty((3, len(heads), e.size))
    scores[0], scores[1], scores[2] = a * e - top, below - gap, below + math.log(n - 2)
    weights = np.exp(scores - scores.max(axis=0))
    shares = (weights / weights.sum(axis=0)).mean(axis=1)
    return np.asarray(0.5 * np.abs(shares - [[0.5], [0.5], [0.0]]).sum(axis=0))


def failure_probability(
    heads: Sequence[Head], n: int, tolerance: float
) -> tuple[float, float, float]:
    """P(misplaced > tolerance): among the samples kept, set aside, and in all samples.
    Of several heads samples with e < 0 are set aside if one looks along mu_a, so that k_a.q < 0."""
    intervals = _good_intervals(heads, n, tolerance)
    in_all = max(0.0, 1 - sum(probability_between(low, high) for low, high in intervals))
    if len(heads) == 1 or not any(head[0] > 0 for head in heads):
        return in_all, 0.0, in_all
    aside = probability_between(-math.inf, 0.0)
    kept = sum(probability_between(max(low, 0.0), high) for low, high in intervals)
    return max(0.0, 1 - kept / (1 - aside)), aside, in_all


def probability_between(low: float, high: float) -> float:
    """P(low <= e <= high) for the length e ~ N(1, 1/2), accurate in both tails."""
    u, v = low - 1, high - 1  # in units of sqrt(2) standard deviations
    if u > 0:
        u, v = -v, -u
    return max(0.0, 0.5 * (math.erfc(-v) - math.erfc(-u)))


def _good_intervals(heads: Sequence[Head], n: int, tolerance: float) -> list[tuple[float, float]]:
    """The intervals of e on which the misplaced share is within the tolerance.
    The weight on a turns where a*e meets the other logits; points crowd geometrically around
    every such place, so that a window as narrow as 1e-6 of a logit is not stepped over."""
    low, high = 1 - REACH * SD, 1 + REACH * SD
    near = np.geomspace(1e-6, 1e3, 120)
    near = np.concatenate([-near[::-1], [0.0], near])
    points = [np.linspace(low, high, 501), np.array([0.0, 1.0])]
    for a, b, _, others in heads:
        rest = others + math.log(n - 2)
        for level in (b, rest, float(np.logaddexp(b, rest))):
            if abs(a) >= 1e-300:
                points.append(level / a + near / abs(a))
    grid = np.unique(np.clip(np.concatenate(points), low, high))
    good = misplaced(heads, grid, n) <= tolerance
    flips = np.flatnonzero(good[1:] != good[:-1])
    left, right = grid[flips], grid[flips + 1]
    cuts, rows = np.linspace(0.0, 1.0, 65), np.arange(len(flips))
    for _ in range(8 if len(flips) else 0):  # 64 parts a step: 48 bits
        steps = left[:, None] + (right - left)[:, None] * cuts
        state = (misplaced(heads, steps.ravel(), n) <= tolerance).reshape(steps.shape)
        state[:, -1] = ~good[flips]
        first = np.argmax(state != good[flips][:, None], axis=1)
        left, right = steps[rows, np.maximum(first - 1, 0)], steps[rows, first]
    ends = [-math.inf] * int(good[0]) + [*(left + right) / 2] + [math.inf] * int(good[-1])
    return list(zip(ends[::2], ends[1::2], strict=True))
