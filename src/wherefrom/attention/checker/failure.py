"""How often a key of varying length spoils an average, exactly.

With alpha gone, everything random is one number e ~ N(1, 1/2), the length of k_a. The weights of
every head are then functions of e, and so is the misplaced share of the weight. The set of e on
which it stays within the tolerance is a few intervals; their ends are found by bisection and
their probability is a difference of normal distribution functions. No sampling is involved.

A head is given by its logits at e = 1 for the groups a, b and "each of the others".
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from wherefrom.attention.equation import softmax_over_keys

Floats = NDArray[np.float64]
Head = tuple[float, ...]  # logits of a (at e = 1), of b, of each other key

SD = math.sqrt(0.5)
RISK = 0.05  # the share of samples that may miss the tolerance
REACH = 9.0  # standard deviations beyond which nothing is counted: 1e-18


def misplaced(heads: Sequence[Head], e: Floats, n: int) -> Floats:
    """Half the sum of |weight - wanted| of the averaged heads, for each e."""
    return np.asarray(0.5 * np.abs(_weights(heads, e, n) - np.array([0.5, 0.5, 0.0])).sum(axis=-1))


def weight_on_a(heads: Sequence[Head], n: int) -> tuple[float, float]:
    """Mean and standard deviation of the averaged weight on a, by quadrature."""
    steepest = max(1.0, *(abs(head[0]) * SD for head in heads))
    # the trapezoid rule; a logit steeper than 2,000 is a step to any eye
    z = np.linspace(-REACH, REACH, 2 * math.ceil(20 * min(steepest, 2e3)) + 1)
    p = np.exp(-z * z / 2) / np.exp(-z * z / 2).sum()
    weight = _weights(heads, 1 + SD * z, n)[:, 0]
    mean = float(p @ weight)
    return mean, math.sqrt(max(float(p @ (weight - mean) ** 2), 0.0))


def failure_probability(
    heads: Sequence[Head], n: int, tolerance: float, *, backwards_aside: bool
) -> tuple[float, float, float]:
    """P(misplaced > tolerance): among the samples kept, set aside, and in all samples.

    Set aside are the samples with e < 0 if some head looks along mu_a, so that k_a.q < 0.
    """
    intervals = _good_intervals(heads, n, tolerance)
    in_all = max(0.0, 1 - sum(probability_between(low, high) for low, high in intervals))
    if not (backwards_aside and any(head[0] > 0 for head in heads)):
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


def _weights(heads: Sequence[Head], e: Floats, n: int) -> Floats:
    total = np.zeros((len(e), 3))
    for a, b, other in heads:
        scores = np.empty((len(e), 3))
        scores[:, 0] = np.clip(a * e, -1e300, 1e300)
        scores[:, 1] = b
        scores[:, 2] = other + math.log(n - 2)
        total += softmax_over_keys(scores)
    return total / len(heads)


def _good_intervals(heads: Sequence[Head], n: int, tolerance: float) -> list[tuple[float, float]]:
    """The intervals of e on which the misplaced share is within the tolerance.

    The weight on a turns where a*e meets the other logits; points crowd geometrically around
    every such place, so that a window as narrow as 1e-6 of a logit is not stepped over.
    """
    low, high = 1 - REACH * SD, 1 + REACH * SD
    near = np.geomspace(1e-6, 1e3, 120)
    near = np.concatenate([-near[::-1], [0.0], near])
    points = [np.linspace(low, high, 501), np.array([0.0, 1.0])]
    for a, b, other in heads:
        if abs(a) < 1e-300:
            continue
        rest = other + math.log(n - 2)
        for level in (b, rest, max(b, rest) + math.log1p(math.exp(-min(abs(b - rest), 700.0)))):
            if abs(level) < 1e300:
                points.append(level / a + near / abs(a))
    grid = np.unique(np.clip(np.concatenate(points), low, high))
    good = misplaced(heads, grid, n) <= tolerance
    flips = np.flatnonzero(good[1:] != good[:-1])
    left, right = grid[flips], grid[flips + 1]
    cuts = np.linspace(0.0, 1.0, 17)
    rows = np.arange(len(flips))
    for _ in range(12 if len(flips) else 0):  # 16 parts a step: 48 bits
        points = left[:, None] + (right - left)[:, None] * cuts
        state = (misplaced(heads, points.ravel(), n) <= tolerance).reshape(points.shape)
        state[:, -1] = ~good[flips]
        first = np.argmax(state != good[flips][:, None], axis=1)
        left, right = points[rows, np.maximum(first - 1, 0)], points[rows, first]
    ends = [-math.inf] if good[0] else []
    ends += list((left + right) / 2)
    ends += [math.inf] if good[-1] else []
    return list(zip(ends[::2], ends[1::2], strict=True))
