"""The checker: a problem and a written construction in, a verdict and its reasons out.

`proved`        for every n, with a certificate that an independent verifier accepted
`holds`         at the n and beta that the reason lists; that is no proof
`refuted`       with a counterexample that was computed and seen to fail
`inconclusive`  neither could be shown; the reason says what is missing

A text that is not read in full is an error with the words that were not understood. The package
imports nothing else of Wherefrom than the attention equation and the errors.

    reading -> grammar     texts to formulas (trees of operations with shapes)
    spaces                 the evaluator, over exact numbers and over floats
    field, asymptotics     exact numbers; their order and sign in beta for every n
    goals, verifier        claims, certificates, and the verifier that a proof needs
    problems/              the fifteen problems, one module for each family of them
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module

from wherefrom.checker.field import NotExactError, StepBudget, TooLargeError
from wherefrom.checker.grammar import ExpressionError
from wherefrom.checker.problems import PROBLEMS, Problem, find_problem
from wherefrom.checker.reading import Construction, read_construction
from wherefrom.checker.results import CheckResult
from wherefrom.errors import UserError

__all__ = ["PROBLEMS", "CheckResult", "ExpressionError", "Problem", "check", "find_problem"]

MAX_STEPS = 650_000  # of one check; about a second


def check(
    problem: str,
    construction: str | Sequence[str],
    *,
    tolerance: float | None = None,
    seed: int = 0,
) -> CheckResult:
    """Judge a construction, given as one text such as "q=beta*(k_a+k_b)" or as several.
    What may not be written raises an ExpressionError or another UserError with a sentence."""
    stated = find_problem(problem)
    allowed = stated.tolerance if tolerance is None else tolerance
    if not 1e-12 <= allowed <= 0.4:
        raise UserError(f"the tolerance must lie between 1e-12 and 0.4; it is {allowed:g}.")
    if not 0 <= seed < 2**63:
        raise UserError(f"the seed must be a whole number from 0 up; it is {seed}.")
    texts = [construction] if isinstance(construction, str) else list(construction)
    module = import_module(f"wherefrom.checker.problems.{stated.family}")
    draft = CheckResult(stated.name, {}, allowed, seed)
    budget = StepBudget(MAX_STEPS)
    if stated.family == "variance":  # compares two sides, so it reads for itself
        result: CheckResult = module.judge(stated, texts, draft, budget)
        return result
    read = _read(stated, texts)
    draft = replace(draft, construction=read.texts, read_as=read.read_as, notes=read.notes)
    wrong = _wrong_shape(read, draft)
    if wrong is not None:
        return wrong
    try:
        judged: CheckResult = module.judge(read, draft, budget)
        return judged
    except TooLargeError:
        return draft.inconclusive("this formula is too large to decide.")
    except NotExactError:
        return draft.inconclusive("exact algebra does not reach this formula.")


def _read(problem: Problem, texts: Sequence[str]) -> Construction:
    """The construction; a name with a second shape has it where the first does not fit."""
    try:
        read = read_construction(problem, texts)
    except ExpressionError:
        givens = [replace(g, shape=g.second or g.shape) for g in problem.givens]
        if givens != problem.givens:
            with contextlib.suppress(ExpressionError):
                return read_construction(replace(problem, givens=givens), texts)
        raise
    for name, form in read.again:
        last = read.expressions[name]
        if form.tree != last.tree and not _equal_forms(read, form, last):
            raise UserError(
                f'{name} is said to be "{form.written}" and "{last.written}", and these are not '
                "seen to be equal; write one of them."
            )
    return read


def _equal_forms(read: Construction, form: object, last: object) -> bool:
    """Are two formulas for one name the same by exact algebra?"""
    from wherefrom.checker.problems.equality import are_equal

    try:
        return are_equal(read.problem, form, last, StepBudget(MAX_STEPS // 4))
    except (NotExactError, TooLargeError, UserError):
        return False


def _wrong_shape(read: Construction, draft: CheckResult) -> CheckResult | None:
    """A formula with a meaning but of the wrong shape is an answer, and a wrong one."""
    from wherefrom.checker.problems.equality import shape_example

    for wanted in read.problem.wanted:
        expression, name = read.expressions.get(wanted.name), wanted.name
        if not expression or str(wanted.shape) == "any" or expression.shape == wanted.shape:
            continue
        got = str(expression.shape)
        hint = ""
        if got == "m x d" and read.problem.family == "extract":
            hint = ": it gives the coordinates of v_a, not v_a itself"
        because = f"{name} is {got} and must be {wanted.shape}{hint}."
        sizes, shape = shape_example(read.problem, expression)
        at = ", ".join(f"{key} = {size}" for key, size in sizes.items())
        sentence = f"with {at}, {name} comes out as {shape[0]} x {shape[1]}."
        return draft.refuted(because, sentence, sizes, {"rows": shape[0], "columns": shape[1]})
    return None
