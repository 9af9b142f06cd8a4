"""Judging M: does it take v_a back out of v_a + v_b?

M (v_a + v_b) = v_a for all v_a in span(A), v_b in span(B) says M A = A and M B = 0. Let C complete
A and B to an orthonormal basis. In the basis [A B C] every matrix that can be written is made of
blocks; since m, p and r may be any sizes, a block between different parts is zero and one between
equal parts a multiple of the identity. So m = p = r = 1 decides it exactly for all sizes. The
basis is a turned one, in which D (written in the basis S) is not taken for A A^T.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from wherefrom.attention.checker.algebra import Field, NotExactError, Scalar
from wherefrom.attention.checker.instances import (
    Exact,
    Matrix,
    Numeric,
    Values,
    shown,
    space_instance,
    space_values,
)
from wherefrom.attention.checker.language import Construction, ExpressionError, evaluate
from wherefrom.attention.checker.problems import Assumption, CheckResult, Counterexample

# m, p, r from the smallest up; then pairwise different so that nothing fits by accident
SMALLEST = ((1, 1, 0), (1, 1, 1), (2, 1, 0), (1, 2, 0), (2, 3, 1))
SIZES = ((1, 1, 0), (2, 3, 0), (3, 2, 5), (5, 7, 1), (11, 3, 2))
DRAWS = 5
TURNED = ((1, -8, 4), (4, 4, 7), (8, -1, -4))  # nine times an orthonormal basis, as columns


def judge_extraction(construction: Construction, draft: CheckResult) -> CheckResult:
    """The verdict on a matrix of the right shape."""
    because = "M A = A and M B = 0 for all sizes, by A^T A = I, B^T B = I and A^T B = 0."
    draft = replace(draft, because=because)
    exact = _exact(construction)
    if exact is None:
        because = (
            "M s was v_a on every instance that was drawn. That is no proof: the exact algebra "
        )
        because += "does not reach this formula."
        draft = replace(draft, verdict="holds", because=because)
    else:
        keeps, leaks = exact
        derived = (f"M A = {_times(keeps, 'A')}", f"M B = {_times(leaks, 'B')}")
        draft = replace(draft, derived=derived)
        what = _what_goes_wrong(keeps, leaks)
        if what:
            if max(abs(keeps.at(1.0, 1) - 1), abs(leaks.at(1.0, 1))) > draft.tolerance:
                return _refuted(draft, construction, what)
            because = f"within this tolerance only: {what}."
            draft = replace(draft, verdict="holds", because=because)
    rng = np.random.default_rng(draft.seed)
    drawn = [space_instance(*size, rng) for size in SIZES for _ in range(DRAWS)]
    worst = max(_error(construction, values, rng) for values in drawn)
    if worst > draft.tolerance:
        if exact is not None and worst > 1e-6:
            because = "drawn matrices contradict the algebra: a fault of the checker."
            return replace(draft, verdict="inconclusive", because=because)
        return _refuted(draft, construction, "M (v_a + v_b) is not v_a")
    checked = f"{len(drawn)} drawn instances over {len(SIZES)} sizes, largest error {worst:.1e}"
    found = tuple(_assumptions(construction, draft.tolerance, rng))
    return replace(draft, checked=checked, assumptions=found)


def wrong_shape_example(construction: Construction) -> Counterexample:
    """d = 2, m = p = 1: what a matrix of the wrong shape does to s."""
    values = space_instance(1, 1, 0)
    M, s = _matrix(construction, values), np.array([1.0, 1.0])
    numbers: dict[str, Any] = shown(values, ("A", "B")) | {"M": M.tolist(), "s": s.tolist()}
    if M.shape[1] == 2:
        numbers["M s"] = (M @ s).tolist()
    sentence = f"with d = 2 and m = p = 1, M is {M.shape[0]} x {M.shape[1]}, and v_a has 2 entries."
    return Counterexample({"d": 2, "m": 1, "p": 1}, numbers, sentence)


def _exact(construction: Construction) -> tuple[Scalar, Scalar] | None:
    """The factors by which M multiplies A and B, if it does no more than that."""
    turned = np.array([[Fraction(x, 9) for x in row] for row in TURNED], dtype=object)
    algebra = Exact(Field(), space_values(turned[:, :1], turned[:, 1:2], turned[:, 2:]))
    try:
        M = evaluate(construction.expressions["M"], algebra)
        A, B = algebra.values["A"], algebra.values["B"]
        keeps, leaks = (A.T @ M @ A).item(), (B.T @ M @ B).item()
        rest = [*(M @ A - A * keeps).flat, *(M @ B - B * leaks).flat]
    except NotExactError:
        return None
    return (keeps, leaks) if all(x.is_zero for x in rest) else None


def _times(factor: Scalar, name: str) -> str:
    return {"0": "0", "1": name}.get(str(factor), f"{factor} {name}")


def _what_goes_wrong(keeps: Scalar, leaks: Scalar) -> str:
    wrong = []
    if str(keeps) != "1":
        wrong.append(f"it returns {_times(keeps, 'v_a')} where v_a is wanted")
        if str(keeps) == "2" and leaks.is_zero:
            wrong.append("which is right for the average (v_a + v_b)/2 and not for the sum")
    if not leaks.is_zero:
        wrong.append(f"it lets {_times(leaks, 'v_b')} through")
    return ", ".join(wrong)


def _matrix(construction: Construction, values: Values) -> Matrix:
    algebra = Numeric(values)
    return algebra.matrix(evaluate(construction.expressions["M"], algebra))


def _error(construction: Construction, values: Values, rng: np.random.Generator) -> float:
    """|M s - v_a| / (|v_a| + |v_b|) for vectors drawn from the two spans."""
    v_a, v_b = (values[name] @ rng.standard_normal(values[name].shape[1]) for name in "AB")
    try:
        missed = _matrix(construction, values) @ (v_a + v_b) - v_a
    except ExpressionError:
        return float("inf")
    return float(np.linalg.norm(missed) / (np.linalg.norm(v_a) + np.linalg.norm(v_b)))


def _refuted(draft: CheckResult, construction: Construction, what: str) -> CheckResult:
    """With the smallest standard or turned basis and the simplest v_a and v_b that M gets wrong."""
    draft = replace(draft, verdict="refuted", because=what + ".")
    turned = space_values(*np.hsplit(np.array([[0.6, -0.8], [0.8, 0.6]]), [1, 2]))
    for values in (*(space_instance(*size) for size in SMALLEST), turned):
        d, m, p = len(values["S"]), values["A"].shape[1], values["B"].shape[1]
        try:
            M = _matrix(construction, values)
        except ExpressionError:
            continue
        one, other = values["A"].sum(axis=1), values["B"].sum(axis=1)
        for v_a, v_b in ((one, 0 * one), (0 * one, other), (one, other)):
            got = M @ (v_a + v_b)
            if np.linalg.norm(got - v_a) > draft.tolerance:
                named = values | {"M": M, "v_a": v_a, "v_b": v_b, "M s": got}
                numbers = shown(named, ("A", "B", "M", "v_a", "v_b", "M s"))
                sentence = (
                    f"with d = {d}, v_a = {numbers['v_a']} and v_b = {numbers['v_b']}, "
                    f"M s = {numbers['M s']}."
                )
                example = Counterexample({"d": d, "m": m, "p": p}, numbers, sentence)
                return replace(draft, counterexample=example)
    return draft


def _assumptions(
    construction: Construction, tolerance: float, rng: np.random.Generator
) -> Iterator[Assumption]:
    """Each assumption given up on bases drawn at random, the smallest sizes first.

    Both sides of M A = A and M B = 0 are analytic in the bases, so equations that hold at random
    points hold everywhere; one that fails is a counterexample.
    """
    argument = f"M A = A and M B = 0 over bases of {len(SIZES)} sizes drawn without it, so over all"
    for name in ("bases that are orthonormal", "spaces that are orthogonal"):
        evidence = ""
        for m, p, r in SIZES:
            straight = space_instance(m, p, r, rng)
            A, B, C = (straight[part] for part in "ABC")
            if name.startswith("bases"):
                A = A @ (np.eye(m) + 0.4 * rng.standard_normal((m, m)) / np.sqrt(m)) * 1.3
                B = B @ (np.eye(p) + 0.4 * rng.standard_normal((p, p)) / np.sqrt(p)) * 0.8
            else:
                B = B + A @ rng.uniform(0.2, 0.5, size=(m, p)) / np.sqrt(m)
                C = C + 0.3 * B @ rng.standard_normal((p, r))
            values = space_values(A, B, C)
            error = _error(construction, values, rng)
            if error > max(tolerance, 1e-9):
                bases = ", ".join(f"{x} = {y}" for x, y in shown(values, ("A", "B")).items())
                evidence = f"with d = {m + p + r}, {bases}, M s misses v_a by {error:.2g}"
                break
        yield Assumption(name, bool(evidence), evidence or argument)
