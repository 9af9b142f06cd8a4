"""Formulas that are said to be equal, and the size of one that has the wrong shape."""

from __future__ import annotations

from typing import Any

import numpy as np

from wherefrom.checker.field import Field, NotExactError, StepBudget
from wherefrom.checker.grammar import Expression
from wherefrom.checker.problems import Problem
from wherefrom.checker.spaces import Exact, Values, evaluate, key_blocks, word_values


def block_values(problem: Problem, field: Field) -> Values:
    """The names of a problem in blocks, over a field."""
    if problem.family == "queries":
        groups = tuple(problem.target)
        root = field.root(field.n - field.number(len(groups) - 1))
        noisy = problem.noise != "none"
        return key_blocks(groups, noisy, field.beta, field.n, root, False)
    if problem.family == "words":
        u = Exact(field).matrix(np.eye(4, 5, dtype=int).astype(object))
        return word_values(u * field.beta, field.beta)
    if problem.family == "extract":
        return space_blocks()
    if problem.family == "cost":
        return {given.name: field.symbol(given.name) for given in problem.givens}
    raise NotExactError


def space_blocks() -> Values:
    """A, B, C, S, D and I with one coordinate for each of the three spaces, in the basis S."""
    columns = np.eye(3, dtype=int)
    values: Values = {name: columns[:, [i]] for i, name in enumerate("ABC")}
    return values | {"S": columns, "D": np.diag([1, 0, 0]), "I": columns}


def are_equal(problem: Problem, form: Any, last: Any, budget: StepBudget) -> bool:
    """Are two formulas the same, by exact algebra over the blocks?"""
    field = Field(budget, problem.least_n)
    values = block_values(problem, field)
    first, second = (evaluate(x, Exact(field), values) for x in (form, last))
    if first.shape != second.shape:
        return False
    return all(x == y for x, y in zip(first.ravel(), second.ravel(), strict=True))


SIZES = {"m": 1, "p": 1, "r": 0}


def shape_example(
    problem: Problem, expression: Expression
) -> tuple[dict[str, int], tuple[int, int]]:
    """The smallest sizes of the problem, and rows and columns of a formula there."""
    sizes = {"n": problem.least_n, "d": problem.least_n + 1}
    if problem.family == "extract":
        sizes = {"d": 2, "m": 1, "p": 1}
    elif problem.family == "words":
        sizes = {"d": 4}

    def count(side: tuple[str, ...]) -> int:
        letters = SIZES | sizes | {"1": 1}
        return sum(letters[letter] for letter in side)

    return sizes, (count(expression.shape.rows), count(expression.shape.columns))
