"""Problem and construction in, verdict out: the public call of the checker.

    check("average", ["q=beta*(k_a+k_b)"]).verdict == "proved"

What may not be written raises an ExpressionError (or another UserError) with a sentence; every
construction that may be written gets a CheckResult.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from wherefrom.attention.checker.instances import (
    Numeric,
    key_values,
    orthonormal,
    space_instance,
    word_instance,
)
from wherefrom.attention.checker.judge_claims import judge_cost, judge_hull, judge_variance
from wherefrom.attention.checker.judge_extraction import judge_extraction, wrong_shape_example
from wherefrom.attention.checker.judge_positions import (
    judge_permutation,
    judge_rotary,
    judge_sinusoids,
    judge_synthesizer,
)
from wherefrom.attention.checker.judge_queries import judge_queries
from wherefrom.attention.checker.judge_words import judge_words
from wherefrom.attention.checker.language import (
    Construction,
    ExpressionError,
    evaluate,
    read_construction,
)
from wherefrom.attention.checker.logits import probability_between
from wherefrom.attention.checker.problems import (
    CheckResult,
    Counterexample,
    Failure,
    Problem,
    Variable,
    find_problem,
)
from wherefrom.errors import UserError

__all__ = ["CheckResult", "check"]

JUDGES: dict[str, Callable[[Construction, CheckResult], CheckResult]] = {
    "permutation": judge_permutation,
    "synthesizer": judge_synthesizer,
    "sinusoids": judge_sinusoids,
    "rotary": judge_rotary,
    "cost": judge_cost,
    "hull": judge_hull,
    "keys": judge_queries,
    "extract": judge_extraction,
    "words": judge_words,
}


def check(
    problem: str,
    construction: str | Sequence[str],
    *,
    tolerance: float | None = None,
    seed: int = 0,
) -> CheckResult:
    """Judge a construction, given as one text such as "q=beta*(k_a+k_b)" or as several."""
    stated = find_problem(problem)
    allowed = stated.tolerance if tolerance is None else tolerance
    if not 1e-12 <= allowed <= 0.4:
        raise UserError(f"the tolerance must lie between 1e-12 and 0.4; it is {allowed:g}.")
    if not 0 <= seed < 2**63:
        raise UserError(f"the seed must be a whole number from 0 up; it is {seed}.")
    texts = [construction] if isinstance(construction, str) else construction
    if stated.family == "variance":
        return judge_variance(
            stated, texts, CheckResult(stated.name, {}, "proved", "", allowed, seed)
        )
    read = _read(stated, texts)
    if stated.family in ("keys", "extract", "words"):
        _compare_forms(read)
    draft = CheckResult(stated.name, read.texts, "proved", "", allowed, seed, read_as=read.read_as)
    if "low" in read.expressions:
        return _judge_range(read, draft)
    for wanted in stated.wanted:
        written = read.expressions.get(wanted.name)
        if written and str(wanted.shape) != "any" and written.shape != wanted.shape:
            return _wrong_shape(read, draft, wanted)
    return JUDGES[stated.family](read, draft)


def _read(problem: Problem, texts: Sequence[str]) -> Construction:
    """The construction; a name with a second shape has it where the first does not fit."""
    try:
        return read_construction(problem, texts)
    except ExpressionError:
        other = [replace(g, shape=g.second) if g.second else g for g in problem.givens]
        if other == problem.givens:
            raise
        try:
            return read_construction(replace(problem, givens=other), texts)
        except ExpressionError:
            pass
        raise


def _compare_forms(read: Construction) -> None:
    """Formulas that are said to be equal, as in V = ... = ..., must be: the last one is judged."""
    rng = np.random.default_rng(0)
    values = {
        "keys": lambda: key_values(read.problem, orthonormal(5, 7, rng), 1.7),
        "extract": lambda: space_instance(2, 3, 1, rng),
        "words": lambda: word_instance(5, 1.7, rng),
    }[read.problem.family]()
    for name, other in read.again:
        last = read.expressions[name]
        x, y = (np.asarray(evaluate(each, Numeric(values))) for each in (other, last))
        if x.shape != y.shape or not np.allclose(x, y, rtol=1e-9, atol=1e-9):
            raise UserError(
                f'{name} is said to be "{other.written}" and "{last.written}", which are not '
                "equal; write one of them."
            )


def _wrong_shape(construction: Construction, draft: CheckResult, wanted: Variable) -> CheckResult:
    """A formula with a meaning but of the wrong shape is an answer, and a wrong one."""
    problem, name = construction.problem, wanted.name
    got = str(construction.expressions[name].shape)
    hint = ""
    if problem.family == "extract":
        example = wrong_shape_example(construction)
        if got == "m x d":
            hint = ": it gives the coordinates of v_a, not v_a itself"
    elif problem.family not in ("keys", "words"):
        sentence = f"{name} must have the rows and columns {wanted.shape}, whatever n and d are."
        example = Counterexample({}, {}, sentence)
    else:
        n = problem.least_n
        sizes, values = {"d": 4}, word_instance(4, 2.0)
        if problem.family == "keys":
            sizes, values = {"n": n, "d": n}, key_values(problem, orthonormal(n, n), 2.0)
        numbers_of = Numeric(values)
        value = numbers_of.matrix(evaluate(construction.expressions[name], numbers_of))
        at = " and ".join(f"{key} = {size}" for key, size in sizes.items())
        sentence = f"with {at}, {name} comes out as {value.shape[0]} x {value.shape[1]}."
        numbers = {"beta": 2.0, name: np.round(value, 6).tolist()}
        example = Counterexample(sizes, numbers, sentence)
    because = f"{name} is {got} and must be {wanted.shape}{hint}."
    return replace(draft, verdict="refuted", because=because, counterexample=example)


def _judge_range(construction: Construction, draft: CheckResult) -> CheckResult:
    """low <= e <= high for the length e of the noisy key: what share of samples is inside?"""
    low, high = (_plain_number(construction, name) for name in ("low", "high"))
    inside = probability_between(low, high)
    outside = 1 - inside
    failure = Failure("e lies outside the range", 0, 0.0, outside, 0.0, outside)
    derived = (f"P({low:g} <= e <= {high:g}) = {inside:.6f}",)
    draft = replace(draft, derived=derived, failure=failure)
    if outside <= draft.tolerance:
        because = f"the length e ~ N(1, 1/2) lies between {low:g} and {high:g} in {inside:.4%} of "
        return replace(draft, because=because + "the samples.")
    samples = (0.0, 2.0, 1.0, -1.0, 3.0, -2.0, 4.0, low - 1, high + 1)
    e = next(e for e in samples if not low <= e <= high)
    because = f"e ~ N(1, 1/2) has the standard deviation 0.707, so {outside:.1%} of the samples "
    because += f"lie outside {low:g} to {high:g}."
    sentence = f"e = {e:g} is as good a sample as any, and outside the range."
    example = Counterexample({}, {"e": e}, sentence)
    return replace(draft, verdict="refuted", because=because, counterexample=example)


def _plain_number(construction: Construction, name: str) -> float:
    expression = construction.expressions[name]
    value = float(np.asarray(evaluate(expression, Numeric({}))).item())
    if not -1e6 <= value <= 1e6:
        raise ExpressionError(f"{name} must lie within a million of 0.", expression.source, 1)
    return value
