"""Judging M: does it take v_a back out of v_a + v_b?

M (v_a + v_b) = v_a for all v_a in span(A), v_b in span(B) says M A = A and M B = 0, two
equations between matrices, which the block algebra decides for all sizes at once.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from wherefrom.attention.checker.construction import Construction
from wherefrom.attention.checker.exact_blocks import Block, ExactBlocks
from wherefrom.attention.checker.exact_scalars import NotExactError
from wherefrom.attention.checker.instances import STRAIGHT, Bend, shown, space_instance
from wherefrom.attention.checker.language import ExpressionError, evaluate
from wherefrom.attention.checker.numeric import Numeric
from wherefrom.attention.checker.result import Assumption, CheckResult, Counterexample

# m, p, r from the smallest up; then pairwise different so that nothing fits by accident
SMALLEST = ((1, 1, 0), (1, 1, 1), (2, 1, 0), (1, 2, 0), (2, 3, 1))
SIZES = ((1, 1, 0), (2, 3, 0), (3, 2, 5), (5, 7, 1), (11, 3, 2))
DRAWS = 5


def judge_extract(construction: Construction, tolerance: float, seed: int) -> CheckResult:
    """The verdict on a matrix of the right shape."""
    draft = CheckResult(
        problem=construction.problem.name,
        construction=construction.texts,
        verdict="proved",
        because="M A = A and M B = 0 for all sizes, by A^T A = I, B^T B = I and A^T B = 0.",
        tolerance=tolerance,
        seed=seed,
    )
    block = _exact(construction)
    if block is not None:
        keeps, leaks = block.table[0][0], block.table[1][1]
        derived = (f"M A = {_times(keeps, 'A')}", f"M B = {_times(leaks, 'B')}")
        draft = replace(draft, derived=derived)
        if keeps != 1 or leaks != 0:
            what = _what_goes_wrong(keeps, leaks)
            if max(abs(keeps - 1), abs(leaks)) > tolerance:
                return _refuted(draft, construction, what)
            draft = replace(draft, verdict="holds", because=f"within this tolerance only: {what}.")
    rng = np.random.default_rng(seed)
    worst = 0.0
    for m, p, r in SIZES:
        for _ in range(DRAWS):
            worst = max(worst, _error(construction, space_instance(m=m, p=p, r=r, rng=rng), rng))
    if worst > tolerance:
        if block is not None and worst > 1e-6:
            because = "drawn matrices contradict the algebra: a fault of the checker."
            return replace(draft, verdict="inconclusive", because=because)
        return _refuted(draft, construction, "M (v_a + v_b) is not v_a")
    if block is None:
        because = "on every drawn instance; the exact algebra does not reach this formula."
        draft = replace(draft, verdict="holds", because=because)
    return replace(
        draft,
        checked=f"{DRAWS * len(SIZES)} drawn instances over {len(SIZES)} sizes, "
        f"largest error {worst:.1e}",
        assumptions=_assumptions(construction, tolerance, rng),
    )


def wrong_shape_example(construction: Construction) -> Counterexample:
    """d = 2, m = p = 1: what a matrix of the wrong shape does to s."""
    values = space_instance(m=1, p=1, r=0)
    M = np.asarray(evaluate(construction.expressions["M"], Numeric(values)), float)
    s = np.array([1.0, 1.0])
    numbers: dict[str, Any] = shown(values, ("A", "B")) | {"M": M.tolist(), "s": s.tolist()}
    if M.shape[1] == 2:
        numbers["M s"] = (M @ s).tolist()
    sentence = f"with d = 2 and m = p = 1, M is {M.shape[0]} x {M.shape[1]}, and v_a has 2 entries."
    return Counterexample({"d": 2, "m": 1, "p": 1}, numbers, sentence)


def _exact(construction: Construction) -> Block | None:
    try:
        return evaluate(construction.expressions["M"], ExactBlocks())
    except NotExactError:
        return None


def _times(factor: Fraction, name: str) -> str:
    return "0" if factor == 0 else name if factor == 1 else f"{factor} {name}"


def _what_goes_wrong(keeps: Fraction, leaks: Fraction) -> str:
    wrong = []
    if keeps != 1:
        wrong.append(f"it returns {_times(keeps, 'v_a')} where v_a is wanted")
        if keeps == 2 and leaks == 0:
            wrong.append("which is right for the average (v_a + v_b)/2 and not for the sum")
    if leaks != 0:
        wrong.append(f"it lets {_times(leaks, 'v_b')} through")
    return ", ".join(wrong)


def _error(
    construction: Construction,
    values: dict[str, Any],
    rng: np.random.Generator,
    dtype: DTypeLike = np.float64,
) -> float:
    """|M s - v_a| / (|v_a| + |v_b|) for vectors drawn from the two spans."""
    A, B = values["A"], values["B"]
    v_a = A @ rng.standard_normal(A.shape[1])
    v_b = B @ rng.standard_normal(B.shape[1])
    M = np.asarray(evaluate(construction.expressions["M"], Numeric(values, dtype)), dtype)
    missed = M @ (v_a + v_b).astype(dtype) - v_a
    return float(np.linalg.norm(missed) / (np.linalg.norm(v_a) + np.linalg.norm(v_b)))


def _refuted(draft: CheckResult, construction: Construction, what: str) -> CheckResult:
    return replace(
        draft,
        verdict="refuted",
        because=what + ".",
        counterexample=_counterexample(construction, draft.tolerance),
    )


def _counterexample(construction: Construction, tolerance: float) -> Counterexample | None:
    """The smallest standard-basis instance, and the simplest v_a and v_b, that M gets wrong."""
    for m, p, r in SMALLEST:
        values = space_instance(m=m, p=p, r=r)
        try:
            M = np.asarray(evaluate(construction.expressions["M"], Numeric(values)), float)
        except ExpressionError:
            continue
        one, zero = values["A"].sum(axis=1), np.zeros(m + p + r)
        other = values["B"].sum(axis=1)
        for v_a, v_b in ((one, zero), (zero, other), (one, other)):
            got = M @ (v_a + v_b)
            if np.linalg.norm(got - v_a) > tolerance:
                numbers: dict[str, Any] = shown(values, ("A", "B")) | {
                    "M": np.round(M, 6).tolist(),
                    "v_a": v_a.tolist(),
                    "v_b": v_b.tolist(),
                    "M s": np.round(got, 6).tolist(),
                }
                sentence = (
                    f"with d = {m + p + r}, v_a = {v_a.tolist()} and v_b = {v_b.tolist()}, "
                    f"M s = {np.round(got, 6).tolist()}."
                )
                return Counterexample({"d": m + p + r, "m": m, "p": p}, numbers, sentence)
    return None


def _assumptions(
    construction: Construction, tolerance: float, rng: np.random.Generator
) -> tuple[Assumption, ...]:
    bends = {
        "bases that are orthonormal": Bend(norms=True),
        "spaces that are orthogonal": Bend(angles=True),
    }
    found = []
    for name, bend in bends.items():
        right = sum(
            _bent_error(construction, size, rng, bend) <= max(tolerance, 1e-9)
            for size in SIZES
            for _ in range(DRAWS)
        )
        tried = DRAWS * len(SIZES)
        word = "also without it" if right == tried else "without it"
        found.append(
            Assumption(name, right < tried, f"{word} {right} of {tried} drawn instances are right")
        )
    single = max(_bent_error(construction, size, rng, STRAIGHT, np.float32) for size in SIZES)
    # float32 keeps 7 digits; a well-conditioned product of a few matrices loses one or two
    found.append(
        Assumption("double precision", single > 1e-5, f"float32 errs by {single:.1e} at most")
    )
    return tuple(found)


def _bent_error(
    construction: Construction,
    size: tuple[int, int, int],
    rng: np.random.Generator,
    bend: Bend,
    dtype: DTypeLike = np.float64,
) -> float:
    m, p, r = size
    try:
        values = space_instance(m=m, p=p, r=r, rng=rng, bend=bend)
        return _error(construction, values, rng, dtype)
    except ExpressionError:
        return float("inf")
