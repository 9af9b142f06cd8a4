"""What happens to a query for large beta, one n after another: where it fails first.

With exact logits the limit is read off their leading terms. Without, a ladder of factors is
climbed, and its last rungs decide if they agree and nothing is still moving. Under a key of
varying length the chance of failure takes the place of the misplaced share.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from wherefrom.attention.checker.failure import RISK, Head, failure_probability, misplaced
from wherefrom.attention.checker.language import ExpressionError
from wherefrom.attention.checker.query_model import RUNGS, QueryModel

SMALL_N = 12  # every n up to here is looked at, in numbers alone up to 8
LADDER_N = (16, 25, 40, 60, 100, 1_000, 10**4, 10**6, 10**9, 10**12)
STILL_FALLING = 0.999  # an error that falls by more from rung to rung may yet arrive
LENGTHS = np.linspace(-1.0, 3.0, 401)  # where the misplaced share is averaged
FAR = (1e6, 1e9)  # where the limit of a failure probability is read off


@dataclass(frozen=True)
class Reading:
    """How the goal is missed at one n as beta grows: ok, failed or unknown."""

    ok: bool | None
    size: float  # the limit of what must be small
    sentence: str = ""


def readings_by_n(model: QueryModel, tolerance: float) -> dict[int, Reading]:
    """What happens for large beta at each n, small ones first; stops at the first failure."""
    readings: dict[int, Reading] = {}
    small = SMALL_N if model.exact is not None else 8
    ladder = LADDER_N if model.exact is not None else (12, 24, 40)
    for n in [*range(model.problem.least_n, small + 1), *ladder]:
        readings[n] = reading_at(model, n, tolerance)
        if readings[n].ok is False:
            if n > small + 1:
                lower = max(k for k in readings if k < n)
                smallest = _first_failure(model, lower, n, tolerance)
                readings = {smallest: reading_at(model, smallest, tolerance)}
            break
    return readings


def _first_failure(model: QueryModel, good: int, bad: int, tolerance: float) -> int:
    while bad - good > 1:
        middle = (good + bad) // 2
        if reading_at(model, middle, tolerance).ok is False:
            bad = middle
        else:
            good = middle
    return bad


def reading_at(model: QueryModel, n: int, tolerance: float) -> Reading:
    try:
        if model.problem.noise == "stretched":
            return _stretched_reading(model, n, tolerance)
        if model.exact is not None:
            weights = model.limit_weights(n)
            if weights is not None:
                size = model.distance(weights)
                return Reading(size <= tolerance, size, _tends(model, weights, n))
        return _ladder_reading(model, n, tolerance)
    except ExpressionError as problem:
        if problem.too_large:
            raise
        return Reading(False, math.inf, f"at n = {n} the formula has no value: {problem.sentence}")


def _ladder_reading(model: QueryModel, n: int, tolerance: float) -> Reading:
    """Numbers only: the last three rungs decide, if they agree.

    An error that is still falling refutes nothing: log(log(beta)) arrives, but on no ladder.
    """
    rungs = model.rungs(n)
    if len(rungs) < 4:
        if not rungs:
            model.logits(RUNGS[0], n)  # says what is wrong, with its column
        return Reading(None, math.nan)
    last = [error_at(model, beta, n) for beta in rungs[-3:]]
    within = [error <= tolerance for error in last]
    settled = not last[-1] < STILL_FALLING * last[-2]
    ok = True if all(within) else False if settled and not any(within) else None
    heads = model.logits(rungs[-1], n)
    weights = _weights(model, heads[0], n)
    return Reading(ok, last[-1], _tends(model, weights, n))


def _stretched_reading(model: QueryModel, n: int, tolerance: float) -> Reading:
    betas = list(FAR) if model.exact is not None else model.rungs(n)[-2:]
    if len(betas) < 2:
        if not betas:
            model.logits(RUNGS[0], n)
        return Reading(None, math.nan)
    both = [[bounded(head) for head in model.logits(beta, n)] for beta in betas]
    last = failure_probability(both[1], n, tolerance, backwards_aside=len(both[1]) > 1)[0]
    if last <= RISK:
        return Reading(True, last)
    before_mean, last_mean = (float(misplaced(heads, LENGTHS, n).mean()) for heads in both)
    falling = last_mean < STILL_FALLING * before_mean
    sentence = (
        f"at n = {n}, however large beta is, c misses the average by more than {tolerance:g} in "
        f"{last:.1%} of the samples"
    )
    return Reading(None if falling else False, last, sentence)


def error_at(model: QueryModel, beta: float, n: int) -> float:
    """What must be small at one beta: the misplaced share, or how often it is too large."""
    (logits,) = model.logits(beta, n)
    return model.distance(_weights(model, logits, n))


def risk_at(model: QueryModel, beta: float, n: int, tolerance: float) -> float:
    heads = [bounded(head) for head in model.logits(beta, n)]
    return failure_probability(heads, n, tolerance, backwards_aside=len(heads) > 1)[0]


def _weights(model: QueryModel, logits: tuple[float, ...], n: int) -> dict[str, float]:
    return model.weights(dict(zip(model.groups, logits, strict=True)), n)


def _tends(model: QueryModel, weights: dict[str, float], n: int) -> str:
    parts = ", ".join(
        f"{'all others together' if g == 'others' else g}: {w:.3g}" for g, w in weights.items()
    )
    return f"at n = {n} the weights {'tend to' if model.uses_beta() else 'are'} {parts}"


def bounded(head: tuple[float, ...]) -> Head:
    a, b, other = (min(max(x, -1e290), 1e290) for x in head)
    return a, b, other
