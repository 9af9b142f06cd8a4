"""Exact matrices over two orthogonal subspaces: the algebra behind the extraction problem.

Let A (d x m), B (d x p) and a completion C (d x r) have orthonormal columns, orthogonal to one
another. In the basis [A B C] every matrix that can be written is made of blocks, and since
m, p and r may be any sizes, a block between different parts must be zero and one between equal
parts a multiple of the identity. So a matrix is a small table of rational numbers whose rows
and columns are labelled with the letters m, p, r: A A^T is diag(1, 0, 0), for every size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from wherefrom.attention.checker.exact_scalars import NotExactError
from wherefrom.attention.checker.formula import UndefinedError

Table = tuple[tuple[Fraction, ...], ...]
SPACE = ("m", "p", "r")
MAX_PARTS = 12  # columns of a table: inverting it stays a matter of microseconds


@dataclass(frozen=True)
class Block:
    """A table of multiples of identity blocks; rows and cols name the parts."""

    rows: tuple[str, ...]
    cols: tuple[str, ...]
    table: Table

    @property
    def is_number(self) -> bool:
        return self.rows == self.cols == ("1",)


class ExactBlocks:
    """The algebra of blocks over the names A, B, C, S = [A B C], D = diag(1..1, 0..0) and I."""

    def number(self, value: Fraction) -> Block:
        return Block(("1",), ("1",), ((value,),))

    def name(self, name: str) -> Block:
        if name in ("I", "S"):
            return _select(SPACE, SPACE)
        if name == "D":
            return Block(SPACE, SPACE, _table(3, 3, lambda i, j: Fraction(i == j == 0)))
        part = {"A": "m", "B": "p", "C": "r"}[name]
        return _select(SPACE, (part,))

    def add(self, left: Block, right: Block) -> Block:
        return Block(
            left.rows,
            left.cols,
            tuple(
                tuple(x + y for x, y in zip(a, b, strict=True))
                for a, b in zip(left.table, right.table, strict=True)
            ),
        )

    def scale(self, left: Block, right: Block) -> Block:
        number, other = (left, right) if left.is_number else (right, left)
        factor = number.table[0][0]
        table = tuple(tuple(_capped(factor * x) for x in row) for row in other.table)
        return Block(other.rows, other.cols, table)

    def divide(self, left: Block, right: Block) -> Block:
        divisor = right.table[0][0]
        if divisor == 0:
            raise UndefinedError("this divides by zero.")
        return self.scale(self.number(1 / divisor), left)

    def multiply(self, left: Block, right: Block) -> Block:
        return Block(left.rows, right.cols, _product(left.table, right.table, len(right.cols)))

    def power(self, base: Block, exponent: int) -> Block:
        return self.number(_capped(base.table[0][0] ** exponent))

    def call(self, function: str, arguments: Sequence[Block]) -> Block:
        first = arguments[0]
        if function == "transpose":
            return _transposed(first)
        if function == "hstack":
            cols = tuple(label for block in arguments for label in block.cols)
            if len(cols) > MAX_PARTS:
                raise NotExactError
            rows = zip(*(block.table for block in arguments), strict=True)
            return Block(first.rows, cols, tuple(tuple(sum(r, ())) for r in rows))
        if function in ("inv", "pinv"):
            return self.inverse(first, pseudo=function == "pinv")
        if function == "abs":
            return self.number(abs(first.table[0][0]))
        if function == "sqrt":
            return self.number(_root(first.table[0][0]))
        raise NotExactError

    def inverse(self, x: Block, *, pseudo: bool) -> Block:
        """Every block is a multiple of the identity, so the small table is inverted instead.

        With independent columns the pseudo-inverse is (X^T X)^-1 X^T, with independent rows
        its mirror image; a table with neither is left to numbers.
        """
        if not pseudo:
            inverted = _inverted(x.table)
            if inverted is None:
                raise UndefinedError("this matrix has no inverse.")
            return Block(x.cols, x.rows, inverted)
        flipped = _transposed(x)
        gram = _inverted(_product(flipped.table, x.table, len(x.cols)))
        if gram is not None:
            table = _product(gram, flipped.table, len(x.rows))
            return Block(x.cols, x.rows, table)
        gram = _inverted(_product(x.table, flipped.table, len(x.rows)))
        if gram is not None:
            return Block(x.cols, x.rows, _product(flipped.table, gram, len(x.rows)))
        if all(
            x.table[i][j] == 0 for i in range(len(x.rows)) for j in range(len(x.cols)) if i != j
        ):
            table = _table(
                len(x.cols),
                len(x.rows),
                lambda i, j: 1 / x.table[j][i] if x.table[j][i] else Fraction(0),
            )
            return Block(x.cols, x.rows, table)
        raise NotExactError


def _select(rows: tuple[str, ...], cols: tuple[str, ...]) -> Block:
    return Block(
        rows, cols, _table(len(rows), len(cols), lambda i, j: Fraction(rows[i] == cols[j]))
    )


def _table(rows: int, cols: int, entry: Callable[[int, int], Fraction]) -> Table:
    return tuple(tuple(entry(i, j) for j in range(cols)) for i in range(rows))


def _transposed(x: Block) -> Block:
    return Block(x.cols, x.rows, _table(len(x.cols), len(x.rows), lambda i, j: x.table[j][i]))


def _product(left: Table, right: Table, width: int) -> Table:
    return tuple(
        tuple(
            _capped(sum((row[k] * right[k][j] for k in range(len(right))), Fraction(0)))
            for j in range(width)
        )
        for row in left
    )


def _inverted(table: Table) -> Table | None:
    """Gauss and Jordan, exactly; None when there is no inverse."""
    size = len(table)
    if any(len(row) != size for row in table):
        return None
    rows = [[*row, *(Fraction(i == j) for j in range(size))] for i, row in enumerate(table)]
    for column in range(size):
        pivot = next((i for i in range(column, size) if rows[i][column]), None)
        if pivot is None:
            return None
        rows[column], rows[pivot] = rows[pivot], rows[column]
        head = rows[column][column]
        rows[column] = [_capped(x / head) for x in rows[column]]
        for i in range(size):
            factor = rows[i][column]
            if i != column and factor:
                rows[i] = [
                    _capped(x - factor * y) for x, y in zip(rows[i], rows[column], strict=True)
                ]
    return tuple(tuple(row[size:]) for row in rows)


def _root(value: Fraction) -> Fraction:
    if value < 0:
        raise UndefinedError("this is the square root of a negative number.")
    root = Fraction(math.isqrt(value.numerator), math.isqrt(value.denominator))
    if root * root != value:
        raise NotExactError
    return root


def _capped(value: Fraction) -> Fraction:
    if value.numerator.bit_length() + value.denominator.bit_length() > 1024:
        raise NotExactError
    return value
