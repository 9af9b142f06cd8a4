"""Drawn keys against what the algebra said, and the assumptions bent one at a time.

Everything here runs the attention equation on whole key matrices in random position.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import DTypeLike
from scipy.special import ndtri

from wherefrom.attention.checker.failure import RISK, SD
from wherefrom.attention.checker.instances import STRAIGHT, Bend, key_instance
from wherefrom.attention.checker.language import ExpressionError, evaluate
from wherefrom.attention.checker.numeric import Numeric
from wherefrom.attention.checker.result import Assumption, CheckResult, Failure
from wherefrom.attention.equation import attend

if TYPE_CHECKING:
    from wherefrom.attention.checker.query_model import QueryModel

SIZES = ((3, 5), (10, 11), (25, 26))  # n and d of the drawn instances
DRAWS = 7
SAMPLES = 4_000
GATE = 5.0  # standard errors between law and simulation that are a fault of ours
ALPHA = 1e-6  # the blur at which the isotropic problem reports its failure rate
VANISHING = 1e-14  # stands for alpha -> 0 in a simulation
LARGE = (100.0, 300.0, 1000.0)  # factors at which a bent assumption is tried


@dataclass(frozen=True)
class Trial:
    """What the drawn instances said."""

    summary: str
    contradiction: str = ""


def confirm(model: QueryModel, draft: CheckResult, rng: np.random.Generator) -> Trial:
    """Run the equation on drawn keys at 1.1 times the beta that was promised."""
    worst, count = 0.0, 0
    failure = draft.failure
    if failure is not None and failure.simulated is not None and failure.standard_error:
        expected = failure.in_all
        if abs(failure.simulated - expected) > GATE * failure.standard_error:
            return Trial(
                "",
                f"the exact failure rate {expected:.4f} and the simulated one "
                f"{failure.simulated:.4f} disagree: a fault of the checker.",
            )
    assert draft.beta is not None
    for n, d in SIZES:
        beta = 1.1 * draft.beta.by_n[n] + 1e-9
        for _ in range(DRAWS):
            count += 1
            try:
                worst = max(worst, _share_missed(model, n, d, beta, rng, draft.tolerance))
            except ExpressionError as problem:
                return Trial(
                    "", f"at beta = {beta:.4g} the formula has no value: {problem.sentence}"
                )
    limit = RISK if model.problem.noise == "stretched" else 0.0
    sizes = ", ".join(str(n) for n, _ in SIZES)
    summary = f"{count} drawn instances, n = {sizes}, with the attention equation"
    if worst > limit + 0.02:
        return Trial(summary, "drawn keys contradict what was found: a fault of the checker.")
    return Trial(summary)


def _share_missed(
    model: QueryModel,
    n: int,
    d: int,
    beta: float,
    rng: np.random.Generator,
    tolerance: float,
    bend: Bend = STRAIGHT,
    dtype: DTypeLike = np.float64,
) -> float:
    """The share of lengths e for which too much weight is misplaced (0 or 1 without noise)."""
    values, keys = key_instance(model.problem, n=n, d=d, beta=beta, rng=rng, bend=bend)
    algebra = Numeric(values, dtype)
    queries = np.hstack(
        [evaluate(x, algebra) for x in model.construction.expressions.values()]
    ).T  # (heads, d)
    stretched = model.problem.noise == "stretched"
    chances = (np.arange(200) + 0.5) / 200
    if stretched and len(queries) > 1:
        chances = float(0.5 * math.erfc(1.0)) + chances * (1 - 0.5 * math.erfc(1.0))
    lengths = 1 + SD * ndtri(chances) if stretched else np.ones(1)
    drawn = np.repeat(keys[None], len(lengths), axis=0).astype(dtype)
    drawn[:, 0] *= lengths[:, None].astype(dtype)
    weights = attend(queries, drawn, drawn).weights.mean(axis=-2)
    target = np.zeros(n)
    for index, group in enumerate(model.picked):
        target[index] = model.problem.target[group]
    wrong = 0.5 * np.abs(weights - target).sum(axis=-1)
    return float(np.mean(wrong > tolerance * (1 + 1e-9) + 1e-12))


def assumptions(
    model: QueryModel, draft: CheckResult, rng: np.random.Generator
) -> tuple[Assumption, ...]:
    """Which assumptions of the problem the construction needs, by giving them up in turn."""
    noun = "key" if model.problem.noise == "none" else "mean"
    found = [
        _bent(model, draft, rng, f"{noun}s of equal norm", Bend(norms=True)),
        _bent(model, draft, rng, f"{noun}s that are orthogonal", Bend(angles=True)),
        _single_precision(model, draft, rng),
    ]
    if draft.failure is not None and draft.failure.set_aside > 0:
        chance = draft.failure.in_all
        found.append(
            Assumption(
                "samples with k_a.q < 0 are set aside",
                chance > RISK,
                f"counting them, {chance:.2%} of all samples fail at beta = "
                f"{draft.failure.beta:.4g}",
            )
        )
    return tuple(found)


def _bent(
    model: QueryModel, draft: CheckResult, rng: np.random.Generator, name: str, bend: Bend
) -> Assumption:
    limit = RISK if model.problem.noise == "stretched" else 0.0
    missed = tried = 0
    for n, d in SIZES:
        for _ in range(DRAWS):
            shares = []
            state = rng.integers(2**32)
            for beta in LARGE:
                try:
                    again = np.random.default_rng(state)
                    shares.append(
                        _share_missed(model, n, d, beta, again, draft.tolerance, bend) > limit
                    )
                except ExpressionError:
                    break
            tried += 1
            missed += not shares or shares[-1]
    word = "without it" if missed else "also without it"
    return Assumption(
        name, missed > 0, f"{word} {tried - missed} of {tried} drawn instances reach the goal"
    )


def _single_precision(
    model: QueryModel, draft: CheckResult, rng: np.random.Generator
) -> Assumption:
    assert draft.beta is not None
    limit = RISK + 0.02 if model.problem.noise == "stretched" else 0.0
    needed = 1.1 * draft.beta.value + 1e-9
    kept = []
    for factor in (1.0, 100.0, 10_000.0):
        try:
            share = _share_missed(
                model, 10, 11, needed * factor, rng, draft.tolerance, dtype=np.float32
            )
        except ExpressionError:
            break
        if share > limit:
            break
        kept.append(needed * factor)
    if not kept:
        return Assumption("double precision", True, f"float32 fails at beta = {needed:.4g}")
    return Assumption(
        "double precision", False, f"float32 reaches the goal up to beta = {kept[-1]:.4g} at least"
    )


def simulate(
    model: QueryModel,
    n: int,
    beta: float,
    tolerance: float,
    alpha: float,
    rng: np.random.Generator,
) -> tuple[float, float, int]:
    """How often the goal is missed over drawn keys, with its standard error.

    Stretched: too much weight is misplaced. Isotropic: the split between a and b is uneven.
    """
    values, means = key_instance(model.problem, n=n, d=n, beta=beta, rng=rng)
    algebra = Numeric(values)
    queries = np.hstack([evaluate(x, algebra) for x in model.construction.expressions.values()]).T
    keys = means + math.sqrt(alpha) * rng.standard_normal((SAMPLES, n, n))
    if model.problem.noise == "stretched":
        keys[:, 0] += SD * rng.standard_normal((SAMPLES, 1)) * means[0]
    weights = attend(queries, keys, keys[..., :1]).weights.mean(axis=-2)
    if model.problem.noise == "stretched":
        target = np.array([0.5, 0.5] + [0.0] * (n - 2))
        missed = 0.5 * np.abs(weights - target).sum(axis=-1) > tolerance
    else:
        split = weights[:, 0] / (weights[:, 0] + weights[:, 1])
        missed = np.abs(split - 0.5) > tolerance
    share = float(missed.mean())
    return share, math.sqrt(max(share * (1 - share), 1 / SAMPLES) / SAMPLES), SAMPLES


def alpha_allowed(model: QueryModel, beta: float, n: int, tolerance: float) -> float | None:
    """The largest alpha for which the split between a and b stays even in 95 of 100 samples.

    k_a.q - k_b.q gains the variance 2 alpha |q|^2, and the split is off by more than eps when
    the difference exceeds ln((1/2+eps)/(1/2-eps)).
    """
    if tolerance >= 0.5:
        return None
    size = max(_length(model, head, n) for head in model.logits(beta, n))
    level = math.log((0.5 + tolerance) / (0.5 - tolerance))
    if size == 0 or not math.isfinite(size):
        return None
    return float((level / (-ndtri(RISK / 2) * math.sqrt(2) * size)) ** 2)


def isotropic_failure(
    model: QueryModel, beta: float, n: int, tolerance: float, rng: np.random.Generator
) -> Failure:
    """The blur alone: the exact chance that a and b are not even, beside a simulation."""
    (head,) = model.logits(beta, n)
    spread = math.sqrt(2 * ALPHA) * _length(model, head, n)
    level = math.log((0.5 + tolerance) / (0.5 - tolerance)) if tolerance < 0.5 else math.inf
    centre = head[0] - head[1]
    chance = (
        0.5
        * (
            math.erfc((level - centre) / spread / math.sqrt(2))
            + math.erfc((level + centre) / spread / math.sqrt(2))
        )
        if spread > 0
        else float(abs(centre) > level)
    )
    share, error, samples = simulate(model, n, beta, tolerance, ALPHA, rng)
    return Failure(
        meaning=f"a and b are off the even split by more than {tolerance:g}, at alpha = {ALPHA:g}",
        n=n,
        beta=beta,
        probability=chance,
        set_aside=0.0,
        in_all=chance,
        simulated=share,
        standard_error=error,
        samples=samples,
        alpha_allowed=alpha_allowed(model, beta, n, tolerance),
    )


def _length(model: QueryModel, head: tuple[float, ...], n: int) -> float:
    """|q| of a query with these logits over orthonormal means."""
    squares = [model.count(g, n) * x * x for g, x in zip(model.groups, head, strict=True)]
    return math.sqrt(sum(squares))
