"""The same formulas in floating point, on keys and matrices that were actually drawn.

Everything is a matrix (a vector is d x 1, a number 1 x 1) of one dtype, float64 or float32, so
that a construction can be tried in the precision that a model would run it in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from wherefrom.attention.checker.formula import TooLargeError, UndefinedError

Matrix = NDArray[np.floating[Any]]
MAX_MAGNITUDE = 1e100
MAX_SIZE = 64  # rows or columns of a matrix of an instance


class Numeric:
    """The algebra of numpy matrices over the values of one instance."""

    def __init__(self, values: Mapping[str, Any], dtype: DTypeLike = np.float64) -> None:
        self.dtype = np.dtype(dtype)
        self.values = {name: self.matrix(value) for name, value in values.items()}
        self.limit = min(MAX_MAGNITUDE, float(np.finfo(self.dtype).max) / 1e3)

    def matrix(self, value: Any) -> Matrix:
        array = np.asarray(value, dtype=self.dtype)
        if array.ndim < 2:
            array = array.reshape(-1, 1)
        if max(array.shape) > MAX_SIZE:
            raise UndefinedError(f"a matrix may have {MAX_SIZE} rows or columns.")
        return array

    def number(self, value: Fraction) -> Matrix:
        return self.checked(self.matrix(float(value)))

    def name(self, name: str) -> Matrix:
        return self.values[name]

    def add(self, left: Matrix, right: Matrix) -> Matrix:
        return self.checked(left + right)

    def scale(self, left: Matrix, right: Matrix) -> Matrix:
        with np.errstate(over="ignore", invalid="ignore"):
            return self.checked(left * right)

    def divide(self, left: Matrix, right: Matrix) -> Matrix:
        if right.item() == 0:
            raise UndefinedError("this divides by zero.")
        with np.errstate(over="ignore", invalid="ignore"):
            return self.checked(left / right)

    def multiply(self, left: Matrix, right: Matrix) -> Matrix:
        with np.errstate(over="ignore", invalid="ignore"):
            return self.checked(left @ right)

    def power(self, base: Matrix, exponent: int) -> Matrix:
        with np.errstate(over="ignore", invalid="ignore"):
            return self.checked(base**exponent)

    def call(self, function: str, arguments: Sequence[Matrix]) -> Matrix:
        first = arguments[0]
        with np.errstate(over="ignore", invalid="ignore"):
            return self.checked(self.apply(function, first, arguments))

    def apply(self, function: str, first: Matrix, arguments: Sequence[Matrix]) -> Matrix:
        if function == "transpose":
            return first.T
        if function == "dot":
            return first.T @ arguments[1]
        if function == "outer":
            return first @ arguments[1].T
        if function == "hstack":
            return np.hstack(list(arguments))
        if function == "norm":
            return self.matrix(np.linalg.norm(first))
        if function == "unit":
            return self.divide(first, self.matrix(np.linalg.norm(first)))
        if function in ("inv", "pinv"):
            return self.inverse(function, first)
        if function == "sqrt" and first.item() < 0:
            raise UndefinedError("this is the square root of a negative number.")
        if function == "log" and first.item() <= 0:
            raise UndefinedError("this is the logarithm of a number that is not positive.")
        scalar: Any = {"sqrt": np.sqrt, "exp": np.exp, "log": np.log, "abs": np.abs}[function]
        return self.matrix(scalar(first))

    def inverse(self, function: str, first: Matrix) -> Matrix:
        if first.size == 0:
            return first.T
        try:
            if function == "pinv":
                return self.matrix(np.linalg.pinv(first))
            if np.linalg.cond(first) > 0.1 / np.finfo(self.dtype).eps:
                raise UndefinedError("this matrix has no inverse.")
            return self.matrix(np.linalg.inv(first))
        except np.linalg.LinAlgError:
            raise UndefinedError("this matrix has no inverse.") from None

    def checked(self, value: Matrix) -> Matrix:
        if max(value.shape) > MAX_SIZE:
            raise UndefinedError(f"a matrix may have {MAX_SIZE} rows or columns at most.")
        if value.size and not float(np.max(np.abs(value))) <= self.limit:
            raise TooLargeError(f"the numbers grow beyond {self.limit:.0e} here.")
        return value
