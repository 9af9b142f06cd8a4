"""Linear systems over the non-negative numbers, in fractions (phase one of the simplex method)."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from wherefrom.checker.field import StepBudget

Vector = list[Fraction]


def solve_nonnegative(
    columns: Sequence[Sequence[Fraction]], target: Sequence[Fraction], budget: StepBudget
) -> tuple[Vector | None, Vector]:
    """x >= 0 with sum_j x_j columns_j = target, and []; or None and y with y.column <= 0 for every
    column and y.target > 0, which shows that there is no such x. Bland's rule: it always ends."""
    signs = [1 if entry >= 0 else -1 for entry in target]
    size, count = len(target), len(columns)
    table = [
        [
            *(sign * Fraction(column[i]) for column in columns),
            *(Fraction(int(i == k)) for k in range(size)),
            sign * Fraction(target[i]),
        ]
        for i, sign in enumerate(signs)
    ]
    # the cost of x is 0 and that of every auxiliary variable 1
    costs = [-sum((row[j] for row in table), Fraction(0)) for j in range(count)]
    costs += [Fraction(0)] * size + [-sum((row[-1] for row in table), Fraction(0))]
    basis = [count + i for i in range(size)]
    while True:
        budget.spend(size * (count + size))
        entering = next((j for j in range(count) if costs[j] < 0), None)
        if entering is None:
            break
        rows = [i for i in range(size) if table[i][entering] > 0]
        leaving = min(rows, key=lambda i: (table[i][-1] / table[i][entering], basis[i]))
        _pivot(table, costs, leaving, entering)
        basis[leaving] = entering
    if costs[-1] < 0:
        return None, [sign * (1 - costs[count + k]) for k, sign in enumerate(signs)]
    x = [Fraction(0)] * count
    for i, j in enumerate(basis):
        if j < count:
            x[j] = table[i][-1]
    return x, []


def _pivot(table: list[Vector], costs: Vector, leaving: int, entering: int) -> None:
    pivot = table[leaving][entering]
    table[leaving] = [entry / pivot for entry in table[leaving]]
    for row in (*table[:leaving], *table[leaving + 1 :], costs):
        factor = row[entering]
        if factor:
            row[:] = [x - factor * y for x, y in zip(row, table[leaving], strict=True)]
