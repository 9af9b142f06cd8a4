"""Exact vectors and matrices over keys that are orthogonal by assumption.

What may be written about n orthonormal keys never tells the "other" keys apart, so every vector
is a combination of k_a, k_b and the sum of the others, for every n at once. A matrix is a
multiple of the identity plus a combination of outer products of those few vectors. The only
facts used are the inner products of the basis, which is what "proved" means in a verdict.

Spaces: "1" the numbers, "d" where the vectors live, "n" one entry for every key. The matrix K
(n x d, the keys as rows) takes k_a to the unit vector e_a and back; on everything that can be
written K.T @ K acts as the identity, and K @ K.T is it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from fractions import Fraction

from wherefrom.attention.checker.exact_limits import sign_for_all
from wherefrom.attention.checker.exact_scalars import BETA, Field, NotExactError, Scalar, symbols
from wherefrom.attention.checker.formula import UndefinedError

Parts = dict[tuple[str, str], Scalar]


@dataclass(frozen=True)
class Exact:
    """identity * J + the sum of parts[i, j] * outer(basis_i, basis_j), from cols to rows."""

    rows: str
    cols: str
    parts: Parts = dataclass_field(default_factory=dict)
    identity: Scalar | None = None

    @property
    def is_number(self) -> bool:
        return self.rows == self.cols == "1"


class ExactVectors:
    """The algebra over an orthogonal basis with known squared lengths."""

    def __init__(
        self, field: Field, squares: Mapping[str, Scalar], names: Mapping[str, Exact]
    ) -> None:
        self.field = field
        self.squares = dict(squares)
        self.names = dict(names)

    def scalar(self, value: Scalar) -> Exact:
        return Exact("1", "1", {} if value.is_zero else {("1", "1"): value})

    def vector(self, coefficients: Mapping[str, Scalar], space: str = "d") -> Exact:
        parts = {(i, "1"): c for i, c in coefficients.items() if not c.is_zero}
        return Exact(space, "1", parts)

    def value(self, x: Exact) -> Scalar:
        return x.parts.get(("1", "1"), self.field.rational(0))

    def coefficients(self, x: Exact) -> dict[str, Scalar]:
        zero = self.field.rational(0)
        return {i: x.parts.get((i, "1"), zero) for i in self.squares}

    def number(self, value: Fraction) -> Exact:
        return self.scalar(self.field.rational(value))

    def name(self, name: str) -> Exact:
        if name not in self.names:
            raise NotExactError
        return self.names[name]

    def add(self, left: Exact, right: Exact) -> Exact:
        parts = dict(left.parts)
        for key, value in right.parts.items():
            parts[key] = self.field.add(parts[key], value) if key in parts else value
        identity = left.identity or right.identity
        if left.identity and right.identity:
            identity = self.field.add(left.identity, right.identity)
        return _made(left.rows, left.cols, parts, identity)

    def scale(self, left: Exact, right: Exact) -> Exact:
        number, other = (left, right) if left.is_number else (right, left)
        factor = self.value(number)
        parts = {key: self.field.multiply(factor, v) for key, v in other.parts.items()}
        identity = other.identity and self.field.multiply(factor, other.identity)
        return _made(other.rows, other.cols, parts, identity)

    def divide(self, left: Exact, right: Exact) -> Exact:
        return self.scale(self.scalar(self.reciprocal(self.value(right))), left)

    def multiply(self, left: Exact, right: Exact) -> Exact:
        parts: Parts = {}

        def put(key: tuple[str, str], value: Scalar) -> None:
            parts[key] = self.field.add(parts[key], value) if key in parts else value

        if right.identity is not None:
            for key, value in left.parts.items():
                put(key, self.field.multiply(value, right.identity))
        if left.identity is not None:
            for key, value in right.parts.items():
                put(key, self.field.multiply(left.identity, value))
        for (i, j), value in left.parts.items():
            for (k, end), other in right.parts.items():
                if j == k:
                    square = self.squares.get(j, self.field.rational(1))
                    put((i, end), self.field.multiply(self.field.multiply(value, other), square))
        identity = None
        if left.identity is not None and right.identity is not None:
            identity = self.field.multiply(left.identity, right.identity)
        return _made(left.rows, right.cols, parts, identity)

    def power(self, base: Exact, exponent: int) -> Exact:
        return self.scalar(self.field.power(self.value(base), exponent))

    def call(self, function: str, arguments: Sequence[Exact]) -> Exact:
        first = arguments[0]
        if function == "transpose":
            return self.transpose(first)
        if function == "dot":
            return self.multiply(self.transpose(first), arguments[1])
        if function == "outer":
            return self.multiply(first, self.transpose(arguments[1]))
        if function == "norm":
            return self.scalar(self.norm(first))
        if function == "unit":
            return self.divide(first, self.scalar(self.norm(first)))
        if function == "sqrt":
            return self.scalar(self.field.sqrt(self.value(first)))
        if function in ("exp", "log"):
            return self.scalar(self.field.function(function, self.value(first)))
        if function == "abs":
            return self.absolute(first)
        if function == "inv":
            return self.inverse(first)
        if function == "pinv":
            return self.pseudo_inverse(first)
        raise NotExactError

    def transpose(self, x: Exact) -> Exact:
        parts = {(j, i): value for (i, j), value in x.parts.items()}
        return Exact(x.cols, x.rows, parts, x.identity)

    def norm(self, x: Exact) -> Scalar:
        column = x if x.cols == "1" else self.transpose(x)
        return self.field.sqrt(self.value(self.multiply(self.transpose(column), column)))

    def absolute(self, x: Exact) -> Exact:
        value = self.value(x)
        if value.is_zero:
            return x
        moves = BETA in symbols(value.numerator) | symbols(value.denominator)
        if moves and (len(value.numerator) != 1 or len(value.denominator) != 1):
            raise NotExactError  # the sign may change with beta
        sign = 1
        for polynomial in (value.numerator, value.denominator):
            sign *= sign_for_all(self.field, polynomial)
        if sign == 0:
            raise NotExactError
        return self.scalar(self.field.multiply(self.field.rational(sign), value))

    def inverse(self, x: Exact) -> Exact:
        """Of a number, or of a matrix that is diagonal in the basis."""
        if x.is_number:
            return self.scalar(self.reciprocal(self.value(x)))
        if x.identity is None or x.rows != x.cols or any(i != j for i, j in x.parts):
            raise NotExactError
        whole = self.reciprocal(x.identity)
        parts: Parts = {}
        for (i, _), value in x.parts.items():
            along = self.field.add(x.identity, self.field.multiply(value, self.squares[i]))
            change = self.field.subtract(self.reciprocal(along), whole)
            parts[i, i] = self.field.divide(change, self.squares[i])
        return _made(x.rows, x.cols, parts, whole)

    def pseudo_inverse(self, x: Exact) -> Exact:
        """Of K or K.T, whose rows are orthonormal, of the identity, and of a vector."""
        if x.identity is not None and not x.parts:
            return Exact(x.cols, x.rows, {}, self.reciprocal(x.identity))
        if "1" in (x.rows, x.cols) and x.parts:
            column = x if x.cols == "1" else self.transpose(x)
            square = self.multiply(self.transpose(column), column)
            return self.divide(self.transpose(x), square)
        raise NotExactError

    def reciprocal(self, value: Scalar) -> Scalar:
        if value.is_zero:
            raise UndefinedError("this divides by zero.")
        return self.field.divide(self.field.rational(1), value)


def _made(rows: str, cols: str, parts: Parts, identity: Scalar | None) -> Exact:
    kept = {key: value for key, value in parts.items() if not value.is_zero}
    return Exact(rows, cols, kept, None if identity is None or identity.is_zero else identity)
