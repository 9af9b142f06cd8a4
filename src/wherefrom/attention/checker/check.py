"""Problem and construction in, verdict out: the public call of the checker.

    check("average", ["q=beta*(k_a+k_b)"]).verdict == "proved"

What may not be written raises an ExpressionError (or another UserError) with a sentence; every
construction that may be written gets a CheckResult.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from wherefrom.attention.checker.construction import Construction, read_construction
from wherefrom.attention.checker.failure import probability_between
from wherefrom.attention.checker.instances import key_instance, word_instance
from wherefrom.attention.checker.judge_extract import judge_extract, wrong_shape_example
from wherefrom.attention.checker.judge_keys import judge_keys
from wherefrom.attention.checker.judge_words import judge_words
from wherefrom.attention.checker.language import ExpressionError, evaluate
from wherefrom.attention.checker.numeric import Numeric
from wherefrom.attention.checker.problems import Problem, find_problem
from wherefrom.attention.checker.result import CheckResult, Counterexample, Failure
from wherefrom.errors import UserError

Judge = Callable[[Construction, float, int], CheckResult]
JUDGES: dict[str, Judge] = {
    "keys": judge_keys,
    "extract": judge_extract,
    "words": judge_words,
}


def check(
    problem_name: str,
    assignments: Sequence[str],
    *,
    tolerance: float | None = None,
    seed: int = 0,
) -> CheckResult:
    """Judge one construction, given as texts such as "q=beta*(k_a+k_b)"."""
    problem = find_problem(problem_name)
    allowed = _tolerance(problem, tolerance)
    if not 0 <= seed < 2**63:
        raise UserError(f"the seed must be a whole number from 0 up; it is {seed}.")
    construction = read_construction(problem, assignments)
    if "low" in construction.expressions:
        return _range_claim(construction, allowed, seed)
    wrong = construction.wrong_shape()
    if wrong is not None:
        return _wrong_shape(construction, allowed, seed)
    return JUDGES[problem.family](construction, allowed, seed)


def _tolerance(problem: Problem, tolerance: float | None) -> float:
    if tolerance is None:
        return problem.tolerance
    if not 1e-12 <= tolerance <= 0.4:
        raise UserError(f"the tolerance must lie between 1e-12 and 0.4; it is {tolerance:g}.")
    return tolerance


def _wrong_shape(construction: Construction, tolerance: float, seed: int) -> CheckResult:
    """A formula with a meaning but of the wrong shape is an answer, and a wrong one."""
    wrong = construction.wrong_shape()
    assert wrong is not None
    name, got, wanted = wrong
    is_coordinates = construction.problem.name == "extract" and str(got) == "m x d"
    hint = ": it gives the coordinates of v_a, not v_a itself" if is_coordinates else ""
    if construction.problem.family == "extract":
        example = wrong_shape_example(construction)
    else:
        example = _shape_example(construction, name)
    return CheckResult(
        problem=construction.problem.name,
        construction=construction.texts,
        verdict="refuted",
        because=f"{name} is {got} and must be {wanted}{hint}.",
        tolerance=tolerance,
        seed=seed,
        counterexample=example,
    )


def _shape_example(construction: Construction, name: str) -> Counterexample:
    problem = construction.problem
    if problem.family == "keys":
        sizes = {"n": problem.least_n, "d": problem.least_n}
        values = key_instance(problem, n=sizes["n"], d=sizes["d"], beta=2.0)[0]
    else:
        sizes = {"d": 4}
        values = word_instance(d=4, beta=2.0)
    value = np.asarray(evaluate(construction.expressions[name], Numeric(values)), float)
    at = " and ".join(f"{key} = {size}" for key, size in sizes.items())
    sentence = f"with {at}, {name} comes out as {value.shape[0]} x {value.shape[1]}."
    return Counterexample(sizes, {"beta": 2.0, name: np.round(value, 6).tolist()}, sentence)


def _range_claim(construction: Construction, tolerance: float, seed: int) -> CheckResult:
    """low <= e <= high for the length e of the noisy key: what share of samples is inside?"""
    low, high = (_plain_number(construction, name) for name in ("low", "high"))
    inside = probability_between(low, high)
    outside = 1 - inside
    draft = CheckResult(
        problem=construction.problem.name,
        construction=construction.texts,
        verdict="proved",
        because=f"the length e ~ N(1, 1/2) lies between {low:g} and {high:g} in {inside:.4%} of "
        "the samples.",
        tolerance=tolerance,
        seed=seed,
        derived=(f"P({low:g} <= e <= {high:g}) = {inside:.6f}",),
        failure=Failure(
            meaning="e lies outside the range",
            n=0,
            beta=0.0,
            probability=outside,
            set_aside=0.0,
            in_all=outside,
        ),
    )
    if outside <= tolerance:
        return draft
    e = next(
        e for e in (0.0, 2.0, 1.0, -1.0, 3.0, -2.0, 4.0, low - 1, high + 1) if not low <= e <= high
    )
    return replace(
        draft,
        verdict="refuted",
        because=f"e ~ N(1, 1/2) has the standard deviation 0.707, so {outside:.1%} of the samples "
        f"lie outside {low:g} to {high:g}.",
        counterexample=Counterexample(
            {}, {"e": e}, f"e = {e:g} is as good a sample as any, and outside the range."
        ),
    )


def _plain_number(construction: Construction, name: str) -> float:
    expression = construction.expressions[name]
    value = float(evaluate(expression, Numeric({})).item())
    if not -1e6 <= value <= 1e6:
        raise ExpressionError(f"{name} must lie within a million of 0.", expression.source, 1)
    return value


__all__ = ["CheckResult", "check"]
