"""Problem and construction in, verdict out: the public call of the checker."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module

import numpy as np

from wherefrom.attention.checker.instances import (
    Numeric,
    Values,
    key_values,
    orthonormal,
    space_instance,
    word_instance,
)
from wherefrom.attention.checker.language import Construction, evaluate, read_construction
from wherefrom.attention.checker.problems import CheckResult, Problem, Variable, find_problem
from wherefrom.attention.checker.reading import ExpressionError, say
from wherefrom.errors import UserError

__all__ = ["CheckResult", "check"]

# values of the smallest instance, or of a larger one in random position
INSTANCES: dict[str, Callable[[Problem, int, np.random.Generator | None], Values]] = {
    "keys": lambda problem, n, rng: key_values(problem, orthonormal(n, n, rng), 2.0),
    "extract": lambda _, n, rng: space_instance(n // 2, (n + 1) // 2, n // 5, rng),
    "words": lambda _, n, rng: word_instance(n, 2.0, rng),
}


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
    texts = [construction] if isinstance(construction, str) else construction
    module = import_module(f"wherefrom.attention.checker.judge_{stated.judge}")
    judge: Callable[..., CheckResult] = getattr(module, f"judge_{stated.family}")
    draft = CheckResult(stated.name, {}, "proved", "", allowed, seed)
    if stated.family == "variance":  # compares two sides, so it reads for itself
        return judge(stated, texts, draft)
    read = _read(stated, texts)
    draft = replace(draft, construction=read.texts, read_as=read.read_as)
    return _wrong_shape(read, draft) or judge(read, draft)


def _read(problem: Problem, texts: Sequence[str]) -> Construction:
    """The construction; a name with a second shape has it where the first does not fit.
    Formulas that are said to be equal, as in V = ... = ..., must be: the last one is judged."""
    try:
        read = read_construction(problem, texts)
    except ExpressionError:
        other = [replace(g, shape=g.second) if g.second else g for g in problem.givens]
        if other != problem.givens:
            with contextlib.suppress(ExpressionError):
                return read_construction(replace(problem, givens=other), texts)
        raise
    rng = np.random.default_rng(0)
    for name, other_form in read.again if problem.family in INSTANCES else ():
        last, numbers = read.expressions[name], Numeric(INSTANCES[problem.family](problem, 5, rng))
        x, y = (np.asarray(evaluate(each, numbers)) for each in (other_form, last))
        if x.shape != y.shape or not np.allclose(x, y, rtol=1e-9, atol=1e-9):
            raise UserError(
                f'{name} is said to be "{other_form.written}" and "{last.written}", which are not '
                "equal; write one of them."
            )
    return read


def _wrong_shape(read: Construction, draft: CheckResult) -> CheckResult | None:
    """A formula with a meaning but of the wrong shape is an answer, and a wrong one."""

    def fits(wanted: Variable) -> bool:
        written = read.expressions.get(wanted.name)
        return not written or str(wanted.shape) == "any" or written.shape == wanted.shape

    wanted = next((wanted for wanted in read.problem.wanted if not fits(wanted)), None)
    if wanted is None:
        return None
    problem, name = read.problem, wanted.name
    got = str(read.expressions[name].shape)
    hint = say("coordinates") if got == "m x d" and problem.family == "extract" else ""
    because = say("wrong_shape", name=name, got=got, wanted=wanted.shape, hint=hint)
    if problem.family not in INSTANCES:
        return draft.refuted(because, say("every_shape", name=name, wanted=wanted.shape))
    n = problem.least_n
    sizes = {"keys": {"n": n, "d": n}, "extract": {"d": 2, "m": 1, "p": 1}, "words": {"d": 4}}
    at = ", ".join(f"{key} = {size}" for key, size in sizes[problem.family].items())
    values = INSTANCES[problem.family](problem, next(iter(sizes[problem.family].values())), None)
    algebra = Numeric(values)
    value = algebra.matrix(evaluate(read.expressions[name], algebra))
    sentence = f"with {at}, {name} comes out as {value.shape[0]} x {value.shape[1]}."
    numbers = {"beta": 2.0} if problem.family != "extract" else {}
    numbers |= {name: np.round(value, 6).tolist()}
    return draft.refuted(because, sentence, sizes[problem.family], numbers)
