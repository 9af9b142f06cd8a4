"""A construction as somebody wrote it: `q=...` texts in, checked expressions out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wherefrom.attention.checker.language import Expression, ExpressionError, evaluate, parse
from wherefrom.attention.checker.problems import Problem, Wanted
from wherefrom.attention.checker.shapes import Shape, Shapes
from wherefrom.errors import UserError, did_you_mean

MAX_NAMES = 4


@dataclass(frozen=True)
class Construction:
    """The expressions of one answer, each with a shape that fits together in letters."""

    problem: Problem
    expressions: dict[str, Expression]
    texts: dict[str, str]
    shapes: dict[str, Shape]

    @property
    def names(self) -> frozenset[str]:
        """Every given that the answer mentions."""
        return frozenset().union(*(e.names for e in self.expressions.values()))

    def wrong_shape(self) -> tuple[str, Shape, Shape] | None:
        """The first name whose shape is not what the problem asks for: name, got, wanted."""
        for wanted in self.problem.wanted:
            got = self.shapes.get(wanted.name)
            if got is not None and got != wanted.shape:
                return wanted.name, got, wanted.shape
        return None


def read_construction(problem: Problem, assignments: Sequence[str]) -> Construction:
    """Parse every `name=formula`; what may not be written is an ExpressionError."""
    expressions: dict[str, Expression] = {}
    texts: dict[str, str] = {}
    shapes: dict[str, Shape] = {}
    for text in assignments:
        name, expression = _read(problem, text)
        if name in expressions:
            raise UserError(f"{name} is written twice.")
        expressions[name] = expression
        texts[name] = text.split("=", 1)[1].strip()
        shapes[name] = evaluate(expression, Shapes(problem.shapes()))
    _check_form(problem, set(expressions))
    return Construction(problem, expressions, texts, shapes)


def _read(problem: Problem, text: str) -> tuple[str, Expression]:
    left, equals, right = text.partition("=")
    wanted = {s: w for w in problem.wanted for s in (w.name, *w.aliases)}
    if not equals:
        names = " or ".join(" ".join(f'"{n}=..."' for n in form) for form in problem.forms)
        raise ExpressionError(f"{problem.name} expects {names}.", text, 1)
    name = left.strip()
    if name not in wanted:
        known = {w.name for w in problem.wanted}
        raise ExpressionError(
            f'{problem.name} does not ask for "{name[:40]}".{did_you_mean(name[:40], known)}',
            text,
            1,
        )
    target: Wanted = wanted[name]
    expression = parse(
        right,
        known={} if target.plain else problem.spellings(),
        refused=problem.refused,
        offset=len(left) + 1,
        shown=text,
    )
    return target.name, expression


def _check_form(problem: Problem, written: set[str]) -> None:
    if any(written == set(form) for form in problem.forms):
        return
    forms = " or ".join(", ".join(form) for form in problem.forms)
    got = ", ".join(sorted(written)) or "nothing"
    raise UserError(f"{problem.name} needs {forms}, and this gives {got}.")
