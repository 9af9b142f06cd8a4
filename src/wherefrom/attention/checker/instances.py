"""What a formula is tried on, keys, subspaces and words with numbers in them, and its value there.

Without a generator an instance is the simplest there is (the standard basis); with one it is in
random position. Shapes: keys (n, d); A (d, m), B (d, p), C (d, r); u (4, d).
"""

from __future__ import annotations

import decimal
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wherefrom.attention.checker import Problem
from wherefrom.attention.checker.algebra import (
    Field,
    NotExactError,
    Poly,
    Polynomials,
    Scalar,
    symbol,
)
from wherefrom.attention.checker.language import (
    ENTRYWISE,
    Construction,
    Expression,
    UndefinedError,
    evaluate,
)
from wherefrom.attention.equation import softmax_over_keys

Floats = NDArray[np.float64]
Values = dict[str, Any]
Variants = Callable[[Floats, int, np.random.Generator], Iterator[tuple[str, Floats]]]
WORDS = ("x1", "x2", "x3")
Matrix = NDArray[Any]
DRAWS = 8  # of rows that break an assumption, after the chosen ones
MAX_MAGNITUDE = 1e100
TOO_LARGE = f"the numbers become too large to compute with here (above {MAX_MAGNITUDE:.0e})."
MAX_SIZE = 64  # rows or columns of a matrix of an instance
SMALLEST = 1e-300  # stands for what is smaller and not zero; nothing may divide by it
FUNCTIONS: dict[str, Callable[[float], float]] = {"sqrt": math.sqrt, "abs": abs}
FUNCTIONS |= {"exp": math.exp, "log": math.log}
NUMBER_FUNCTIONS = (*FUNCTIONS, "sin", "cos", "pow", "O")
OPERATIONS: dict[str, Callable[[Matrix, Any], Matrix]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "**": operator.pow,
    "@": operator.matmul,
    "dot": lambda x, y: x.T @ y,
    "outer": lambda x, y: x @ y.T,
    "transpose": lambda x, _: x.T,
}


def orthonormal(n: int, d: int, rng: np.random.Generator | None = None) -> Floats:
    """n orthonormal rows in R^d, n <= d, in random position if there is a generator."""
    if rng is None:
        return np.eye(d)[:n]
    return np.linalg.qr(rng.standard_normal((d, d)))[0][:n]


def key_values(problem: Problem, keys: Floats, beta: float) -> Values:
    """The values of the names that may be written, over keys (or their means) as rows."""
    others = keys[len(problem.target) - 1 :].sum(axis=0)
    values = _key_names(problem, keys, others, keys.sum(axis=0), np.ones(len(keys)))
    return values | {"beta": beta, "n": len(keys)}


def grouped_keys(
    problem: Problem, beta: float | Scalar, n: int | Scalar, root: float | Scalar | decimal.Decimal
) -> Values:
    """The same over n orthonormal keys in few coordinates: the named keys, the sum of the others
    over its length `root`, one direction for all other combinations of keys, and one for what no
    key reaches.
    Nothing that can be written tells the other keys apart, so a matrix is a multiple of the
    identity on those last two, and every formula has the same value as over all n keys."""
    named = len(problem.target) - 1
    rows = np.eye(named + 2, named + 3, dtype=int)
    others, everything = [0] * named + [root, 0, 0], [1] * named + [root, 0, 0]
    values = _key_names(problem, rows, others, everything, everything[:-1])
    return values | {"beta": beta, "n": n}


def _key_names(problem: Problem, rows: Any, others: Any, everything: Any, ones: Any) -> Values:
    stem, table = ("mu", "Mu") if problem.noise != "none" else ("k", "K")
    values: Values = {table: rows, "I": np.eye(rows.shape[1], dtype=int), "ones": ones}
    values |= {"sum_others": others, "sum_all": everything}
    for index, group in enumerate(list(problem.target)[:-1]):
        values[f"{stem}_{group}"] = rows[index]
        values[f"e_{group}"] = np.eye(len(rows), dtype=int)[index]
    return values


def space_values(A: Any, B: Any, C: Any) -> Values:
    """A, B, C, S, D and I for three bases that complete one another."""
    S = np.hstack([A, B, C])
    D = np.diag([1] * A.shape[1] + [0] * (B.shape[1] + C.shape[1]))
    return {"A": A, "B": B, "C": C, "S": S, "D": D, "I": np.eye(len(S), dtype=int)}


def space_instance(m: int, p: int, r: int, rng: np.random.Generator | None = None) -> Values:
    basis = orthonormal(m + p + r, m + p + r, rng).T
    return space_values(basis[:, :m], basis[:, m : m + p], basis[:, m + p :])


def word_values(u: Any, beta: float | Scalar) -> Values:
    """u_a..u_d, the three words, beta and I, for the rows u."""
    named = dict(zip("abcd", u, strict=True))
    values: Values = {f"u_{name}": vector for name, vector in named.items()}
    values |= {"x1": u[3] + u[1], "x2": u[0], "x3": u[2] + u[1]}
    return values | {"beta": beta, "I": np.eye(u.shape[1], dtype=int)}


def word_instance(d: int, beta: float, rng: np.random.Generator | None = None) -> Values:
    return word_values(beta * orthonormal(4, d, rng), beta)


def unequal_norms(
    rows: Floats, named: int, rng: np.random.Generator
) -> Iterator[tuple[str, Floats]]:
    """Orthogonal rows of other lengths: one row after another stretched, then drawn lengths."""
    for index in range(min(len(rows), named + 1)):
        for length in (1.4, 0.7):
            stretched = rows.copy()
            stretched[index] *= length
            which = "abcd"[index] if index < named else "another"
            yield f"{which} stretched to {length:g} of its length", stretched
    for _ in range(DRAWS):
        lengths = rng.uniform(0.7, 1.4, size=(len(rows), 1))
        yield "lengths drawn between 0.7 and 1.4", rows * lengths


def oblique_angles(
    rows: Floats, named: int, rng: np.random.Generator
) -> Iterator[tuple[str, Floats]]:
    """Rows of the same lengths at other angles: another row turned between the named ones, each
    row turned towards another, then drawn directions."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)

    def turned(changed: Floats) -> Floats:
        return changed / np.linalg.norm(changed, axis=1, keepdims=True) * lengths

    for weight in (0.2, 0.5):
        between = rows.copy()
        between[-1] = rows[:named].sum(axis=0) + weight * rows[-1]
        yield "another one between the named ones", turned(between)
    for index in range(min(len(rows), named + 1)):
        for sign in (0.5, -0.5):
            tilted = rows.copy()
            tilted[index] += sign * rows[index - 1]
            yield "one tilted towards another", turned(tilted)
    size = np.linalg.norm(rows) / np.sqrt(rows.size)
    for _ in range(DRAWS):
        spread = rng.uniform(0.1, 1.0) * size
        yield "directions drawn at random", turned(rows + spread * rng.standard_normal(rows.shape))


def shown(values: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """Some of the values as plain lists, for a counterexample."""
    return {name: np.round(np.asarray(values[name], float), 6).tolist() for name in names}


class Numeric:
    """What the operations of a formula mean for matrices of floats; numbers are 1 x 1 matrices."""

    dtype: Any = np.float64

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = {name: self.matrix(value) for name, value in values.items()}

    def matrix(self, value: Any) -> Matrix:
        array = np.asarray(value, dtype=self.dtype)
        return array if array.ndim == 2 else array.reshape(-1, 1)

    def apply(self, op: str, arguments: Sequence[Any]) -> Matrix:
        """The value of one operation; UndefinedError where it has none or is too large."""
        x, y = arguments[0], arguments[-1]
        if op in NUMBER_FUNCTIONS:
            return self.function(op, arguments)
        if op in ENTRYWISE:
            return self.entrywise(op, x)
        with np.errstate(over="ignore", invalid="ignore"):
            if op in ("inv", "pinv"):
                value = self.inverse(x, pseudo=op == "pinv")
            elif op in ("hstack", "vstack"):
                value = (np.hstack if op == "hstack" else np.vstack)(arguments)
            elif op == "norm":
                value = self.norm(x)
            elif op in ("/", "unit"):
                value = self.divide(x, y if op == "/" else self.norm(x))
            else:
                value = OPERATIONS[op](x, y)
        if op in ("*", "**") and value.size == 1 and x and y and not value:
            value = self.matrix(SMALLEST)  # the product of two numbers was rounded to zero
        return self.checked(value)

    def entrywise(self, op: str, x: Matrix) -> Matrix:
        """relu of each entry, softmax and layernorm of each row, or a causal mask on top."""
        if op == "relu":
            return np.maximum(x, 0)
        if op == "softmax":
            return np.asarray(softmax_over_keys(x))
        if op == "mask":
            return np.where(np.tri(*x.shape) > 0, x, -1e30)
        centred = x - x.mean(axis=-1, keepdims=True)
        return np.asarray(centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5))

    def divide(self, x: Matrix, y: Matrix) -> Matrix:
        if y.item() == 0:
            raise UndefinedError("this divides by zero.")
        if abs(y.item()) <= 10 * SMALLEST:
            raise UndefinedError("this divides by too small a number.", too_large=True)
        return x / y

    def norm(self, x: Matrix) -> Matrix:
        return self.matrix(np.linalg.norm(x))

    def inverse(self, x: Matrix, *, pseudo: bool) -> Matrix:
        if x.size == 0:
            return x.T
        try:
            if pseudo:
                return np.linalg.pinv(x)
            if np.linalg.cond(x) < 0.1 / np.finfo(np.float64).eps:
                return np.linalg.inv(x)
        except np.linalg.LinAlgError:
            pass
        raise UndefinedError("this matrix has no inverse.")

    def function(self, name: str, arguments: Sequence[Matrix]) -> Matrix:
        x = arguments[0].item()
        if name == "sqrt" and x < 0:
            raise UndefinedError("this is the square root of a negative number.")
        if name == "log" and x <= 0:
            raise UndefinedError("this is the logarithm of a number that is not positive.")
        if name == "log" and x <= 10 * SMALLEST:
            raise UndefinedError("this number is too small to compute with.", too_large=True)
        try:
            value = FUNCTIONS[name](x)
        except OverflowError:
            value = math.inf
        return self.checked(self.matrix(max(value, SMALLEST) if name == "exp" else value))

    def checked(self, value: Matrix) -> Matrix:
        """The value, unless it is too large."""
        if max(value.shape) > MAX_SIZE:
            raise UndefinedError(f"a matrix may have {MAX_SIZE} rows or columns at most.")
        if not np.abs(value).max(initial=0.0) <= MAX_MAGNITUDE:
            raise UndefinedError(TOO_LARGE, too_large=True)
        return value


class Exact(Numeric):
    """The same operations on exact numbers: those of a Field, polynomials, or decimals.
    NotExactError where there is no exact form."""

    dtype = object

    def __init__(self, field: Field | Polynomials | Digits, values: Mapping[str, Any]) -> None:
        self.field: Any = field
        super().__init__(values)

    def matrix(self, value: Any) -> Matrix:
        array = super().matrix(value).copy()
        for index, x in np.ndenumerate(array):
            array[index] = self.field.rational(x)
        return array

    def checked(self, value: Matrix) -> Matrix:
        if max(value.shape) > MAX_SIZE:
            raise NotExactError
        return value

    def divide(self, x: Matrix, y: Matrix) -> Matrix:
        return np.asarray(x * (self.field.rational(1) / y.item()))

    def entrywise(self, op: str, x: Matrix) -> Matrix:
        raise NotExactError

    def norm(self, x: Matrix) -> Matrix:
        return self.function("sqrt", [x.T @ x if x.shape[1] == 1 else x @ x.T])

    def function(self, name: str, arguments: Sequence[Matrix]) -> Matrix:
        return self.matrix(self.field.function(name, *(x.item() for x in arguments)))

    def inverse(self, x: Matrix, *, pseudo: bool) -> Matrix:
        """Gauss and Jordan; the field notes a pivot that may be zero for some n as a doubt.
        The pseudo-inverse is found by the normal equations, without rows and columns of zeros."""
        if pseudo:
            rows, columns = (
                [i for i, line in enumerate(lines) if not all(entry.is_zero for entry in line)]
                for lines in (x, x.T)
            )
            core = x[np.ix_(rows, columns)]
            inverse = self.matrix(np.zeros(x.T.shape, dtype=int))
            tall = len(rows) >= len(columns)
            try:
                gram = self.inverse(core.T @ core if tall else core @ core.T, pseudo=False)
            except UndefinedError:
                raise NotExactError from None
            inverse[np.ix_(columns, rows)] = gram @ core.T if tall else core.T @ gram
            return inverse
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


def polynomials(expression: Expression, field: Polynomials, values: Values) -> Matrix:
    """The value of an expression, with names as symbols unless they have values."""
    symbols = {name: symbol(name) for name in expression.names}
    return np.asarray(evaluate(expression, Exact(field, symbols | values)))


def polynomial(expression: Expression, values: Values) -> Poly:
    """The same for an expression that is a number."""
    value = polynomials(expression, Polynomials(), values)
    if value.size != 1:
        raise NotExactError
    return Poly(value.item())


class Digits(Exact):
    """The same operations on numbers of 500 digits, without inverses. A term that is smaller than
    the other one by the factor `least` is lost beside it: a number too small to compute with."""

    context = decimal.Context(500, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX)

    def __init__(self, values: Mapping[str, Any], least: str) -> None:
        self.least = decimal.Decimal(least)
        super().__init__(self, values)

    def rational(self, value: Any) -> decimal.Decimal:
        if isinstance(value, decimal.Decimal):
            return value
        top, below = Fraction(value).as_integer_ratio()
        return decimal.Decimal(top) / decimal.Decimal(below)

    def function(self, name: str, arguments: Sequence[Matrix]) -> Matrix:
        x = arguments[0].item()
        return self.matrix({"sqrt": x.sqrt, "exp": x.exp, "log": x.ln, "abs": x.copy_abs}[name]())

    def apply(self, op: str, arguments: Sequence[Any]) -> Matrix:
        if op in ("+", "-") and self.least:
            for x, y in zip(*(block.ravel() for block in arguments), strict=True):
                if x and y and not self.least <= abs(x / y) <= 1 / self.least:
                    raise UndefinedError("this number is too small.", too_large=True)
        if op in ("inv", "pinv"):
            raise NotExactError
        return super().apply(op, arguments)


# family -> values of the smallest instance, or of a larger one in random position
INSTANCES: dict[str, Callable[[Problem, int, np.random.Generator | None], Values]] = {
    "keys": lambda problem, n, rng: key_values(problem, orthonormal(n, n, rng), 2.0),
    "extract": lambda _, n, rng: space_instance(n // 2, (n + 1) // 2, n // 5, rng),
    "words": lambda _, n, rng: word_instance(n, 2.0, rng),
}


def unequal_forms(read: Construction) -> Iterator[tuple[str, Expression]]:
    """Names and formulas that the text calls equal to the judged formula, but are not."""
    rng, problem = np.random.default_rng(0), read.problem
    for name, form in read.again if problem.family in INSTANCES else ():
        algebra = Numeric(INSTANCES[problem.family](problem, 5, rng))
        x, y = (evaluate(formula, algebra) for formula in (form, read.expressions[name]))
        if x.shape != y.shape or not np.allclose(x, y, rtol=1e-9, atol=1e-9):
            yield name, form
