"""What a formula is worth: matrices in floating point, and the same in exact numbers.

Everything is a matrix (a vector is d x 1, a number 1 x 1) in a numpy array. `Numeric` holds
float64 or float32, so that a construction can be tried in the precision that a model would run
in; `Exact` holds Scalars, for matrices that are written in an orthonormal basis small enough to
invert by hand (see `instances.grouped_keys`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from wherefrom.attention.checker.algebra import Field, NotExactError, Scalar
from wherefrom.attention.checker.language import UndefinedError

Matrix = NDArray[Any]
MAX_MAGNITUDE = 1e100
MAX_SIZE = 64  # rows or columns of a matrix of an instance
PRODUCTS: dict[str, Callable[[Matrix, Matrix], Matrix]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "@": operator.matmul,
    "dot": lambda x, y: x.T @ y,
    "outer": lambda x, y: x @ y.T,
    "transpose": lambda x, _: x.T,
}


class Numeric:
    """The algebra of floating point matrices over the values of one instance."""

    def __init__(self, values: Mapping[str, Any], dtype: DTypeLike = np.float64) -> None:
        self.dtype = np.dtype(dtype)
        self.limit = min(MAX_MAGNITUDE, float(np.finfo(self.dtype).max) / 1e3)
        self.values = {name: self.matrix(value) for name, value in values.items()}

    def matrix(self, value: Any) -> Matrix:
        array = np.asarray(value, dtype=self.dtype)
        return array if array.ndim == 2 else array.reshape(-1, 1)

    def number(self, value: Fraction) -> Matrix:
        return self.checked(self.matrix(float(value)))

    def name(self, name: str) -> Matrix:
        return self.values[name]

    def power(self, base: Matrix, exponent: int) -> Matrix:
        with np.errstate(over="ignore", invalid="ignore"):
            return self.checked(base**exponent)

    def apply(self, op: str, arguments: Sequence[Matrix]) -> Matrix:
        x, y = arguments[0], arguments[-1]
        with np.errstate(over="ignore", invalid="ignore"):
            if op in PRODUCTS:
                return self.checked(PRODUCTS[op](x, y))
            match op:
                case "/":
                    return self.checked(self.divide(x, y))
                case "hstack":
                    return self.checked(np.hstack(list(arguments)))
                case "norm":
                    return self.checked(self.norm(x))
                case "unit":
                    return self.checked(self.divide(x, self.norm(x)))
                case "inv" | "pinv":
                    return self.checked(self.inverse(x, pseudo=op == "pinv"))
            return self.checked(self.function(op, x))

    def divide(self, x: Matrix, y: Matrix) -> Matrix:
        if y.item() == 0:
            raise UndefinedError("this divides by zero.")
        return np.asarray(x / y)

    def norm(self, x: Matrix) -> Matrix:
        return self.matrix(np.linalg.norm(x))

    def inverse(self, x: Matrix, *, pseudo: bool) -> Matrix:
        if x.size == 0:
            return x.T
        try:
            if pseudo:
                return np.linalg.pinv(x)
            if np.linalg.cond(x) < 0.1 / np.finfo(self.dtype).eps:
                return np.linalg.inv(x)
        except np.linalg.LinAlgError:
            pass
        raise UndefinedError("this matrix has no inverse.")

    def function(self, name: str, x: Matrix) -> Matrix:
        if name == "sqrt" and x.item() < 0:
            raise UndefinedError("this is the square root of a negative number.")
        if name == "log" and x.item() <= 0:
            raise UndefinedError("this is the logarithm of a number that is not positive.")
        if name == "exp" and x.item() < -700:  # it would be 0, and something may divide by it
            raise UndefinedError("this is too small for a number.", too_large=True)
        function: Any = {"sqrt": np.sqrt, "exp": np.exp, "log": np.log, "abs": np.abs}[name]
        return self.matrix(function(x))

    def checked(self, value: Matrix) -> Matrix:
        if max(value.shape) > MAX_SIZE:
            raise UndefinedError(f"a matrix may have {MAX_SIZE} rows or columns at most.")
        if value.size and not float(np.max(np.abs(value))) <= self.limit:
            sentence = f"the numbers grow beyond {self.limit:.0e} here."
            raise UndefinedError(sentence, too_large=True)
        return value


class Exact(Numeric):
    """The same algebra over exact numbers; NotExactError where there is no exact form."""

    def __init__(self, field: Field, values: Mapping[str, Any]) -> None:
        self.field = field
        self.dtype = np.dtype(object)
        self.values = {name: self.matrix(value) for name, value in values.items()}

    def matrix(self, value: Any) -> Matrix:
        array = super().matrix(value).copy()
        for index, x in np.ndenumerate(array):
            array[index] = x if isinstance(x, Scalar) else self.field.rational(x)
        return array

    def number(self, value: Fraction) -> Matrix:
        return self.matrix(value)

    def checked(self, value: Matrix) -> Matrix:
        if max(value.shape) > MAX_SIZE:
            raise NotExactError
        return value

    def divide(self, x: Matrix, y: Matrix) -> Matrix:
        return np.asarray(x * (self.field.rational(1) / y.item()))

    def norm(self, x: Matrix) -> Matrix:
        return self.function("sqrt", x.T @ x if x.shape[1] == 1 else x @ x.T)

    def function(self, name: str, x: Matrix) -> Matrix:
        return self.matrix(self.field.function(name, x.item()))

    def inverse(self, x: Matrix, *, pseudo: bool) -> Matrix:
        """Gauss and Jordan; a pivot that may be zero for some n is put down as a doubt.

        The pseudo-inverse is found by the normal equations, without rows and columns of zeros.
        """
        if pseudo:
            rows, columns = (
                [i for i, line in enumerate(lines) if not all(entry.is_zero for entry in line)]
                for lines in (x, x.T)
            )
            core = x[np.ix_(rows, columns)]
            found = self.matrix(np.zeros(x.T.shape, dtype=int))
            tall = len(rows) >= len(columns)
            try:
                gram = self.inverse(core.T @ core if tall else core @ core.T, pseudo=False)
            except UndefinedError:
                raise NotExactError from None
            found[np.ix_(columns, rows)] = gram @ core.T if tall else core.T @ gram
            return found
        size = len(x)
        table = np.hstack([x, self.matrix(np.eye(size, dtype=int))])
        for column in range(size):
            pivots = [i for i in range(column, size) if not table[i, column].is_zero]
            if not pivots:
                raise UndefinedError("this matrix has no inverse.")
            table[[column, pivots[0]]] = table[[pivots[0], column]]
            table[column] = table[column] * (self.field.rational(1) / table[column, column])
            for i in range(size):
                if i != column and not table[i, column].is_zero:
                    table[i] = table[i] - table[column] * table[i, column]
        return table[:, size:]
