"""The shape of what was written, in letters: does the formula fit together for every size?

Shapes are checked before any number is computed, with the sizes left as letters (d, n, m, p).
So `A @ B.T` is refused because m and p need not be equal, even where an example has m = p,
and a construction whose final shape is wrong can be told so in the problem's own letters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from wherefrom.attention.checker.formula import UndefinedError

ONE = ("1",)


@dataclass(frozen=True)
class Shape:
    """Rows and columns, each a sum of letters: hstack(A, B) has the columns m+p."""

    rows: tuple[str, ...] = ONE
    columns: tuple[str, ...] = ONE

    @property
    def is_number(self) -> bool:
        return self.rows == ONE and self.columns == ONE

    @property
    def is_column(self) -> bool:
        return self.columns == ONE and self.rows != ONE

    def __str__(self) -> str:
        if self.is_number:
            return "a number"
        return f"{_letters(self.rows)} x {_letters(self.columns)}"


class Shapes:
    """The algebra of shapes over the names of one problem."""

    def __init__(self, names: Mapping[str, Shape]) -> None:
        self.names = names

    def number(self, value: Fraction) -> Shape:
        return Shape()

    def name(self, name: str) -> Shape:
        return self.names[name]

    def add(self, left: Shape, right: Shape) -> Shape:
        if left != right:
            raise UndefinedError(f"{left} and {right} cannot be added: the shapes differ.")
        return left

    def scale(self, left: Shape, right: Shape) -> Shape:
        if left.is_number:
            return right
        if right.is_number:
            return left
        raise UndefinedError(
            f"* is for a number times something, and this is {left} times {right}; "
            "write @ for a product of matrices, dot(x, y) or outer(x, y) for one of vectors."
        )

    def divide(self, left: Shape, right: Shape) -> Shape:
        if not right.is_number:
            raise UndefinedError(f"one can divide by a number only, and this is {right}.")
        return left

    def multiply(self, left: Shape, right: Shape) -> Shape:
        if left.columns != right.rows:
            hint = ""
            if left.is_column and right.is_column:
                hint = "; write dot(x, y) or x.T @ y for a number, outer(x, y) for a matrix"
            elif left.is_number or right.is_number:
                hint = "; write * to multiply by a number"
            raise UndefinedError(f"{left} times {right} does not fit together{hint}.")
        return Shape(left.rows, right.columns)

    def power(self, base: Shape, exponent: int) -> Shape:
        if not base.is_number:
            raise UndefinedError(f"a power is of a number, and this is {base}.")
        return base

    def call(self, function: str, arguments: Sequence[Shape]) -> Shape:
        first = arguments[0]
        if function == "transpose":
            return Shape(first.columns, first.rows)
        if function == "pinv":
            return Shape(first.columns, first.rows)
        if function == "inv":
            if first.rows != first.columns:
                raise UndefinedError(f"inv needs a square matrix, and this is {first}; try pinv.")
            return first
        if function == "hstack":
            if any(shape.rows != first.rows for shape in arguments):
                raise UndefinedError("hstack needs matrices with the same rows.")
            columns = tuple(letter for shape in arguments for letter in shape.columns)
            return Shape(first.rows, columns)
        if function in ("dot", "outer"):
            if not all(shape.is_column for shape in arguments):
                got = " and ".join(map(str, arguments))
                raise UndefinedError(f"{function} takes two vectors (columns), and got {got}.")
            if function == "outer":
                return Shape(first.rows, arguments[1].rows)
            if first != arguments[1]:
                raise UndefinedError(
                    f"dot needs two vectors of one length, got {first} and {arguments[1]}."
                )
            return Shape()
        if function in ("norm", "unit"):
            if ONE not in (first.rows, first.columns):
                raise UndefinedError(f"{function} takes a vector, and this is {first}.")
            return Shape() if function == "norm" else first
        if not first.is_number:
            raise UndefinedError(f"{function} takes a number, and this is {first}.")
        return first


def _letters(parts: tuple[str, ...]) -> str:
    return "d" if parts == ("m", "p", "r") else "+".join(parts)
