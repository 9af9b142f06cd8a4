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
from wherefrom.attention.checker.algebra import Field, NotExactError, Scalar
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
Variants = Callable[[Floats, int, np.random.Generator, int], Iterator[tuple[str, Floats]]]
WORDS = ("x1", "x2", "x3")
Matrix = NDArray[Any]
MAX_MAGNITUDE = 1e100
TOO_LARGE = f"the numbers become too large to compute with here (above {MAX_MAGNITUDE:.0e})."
MAX_SIZE = 64  # rows or columns of a matrix of an instance
SMALLEST = 1e-300  # stands for what is smaller and not zero; nothing may divide by it
FUNCTIONS: dict[str, Callable[[float], float]] = {"sqrt": math.sqrt, "abs": abs}
FUNCTIONS |= {"exp": lambda x: max(math.exp(x), SMALLEST), "log": math.log}
PLAIN: dict[str, Callable[[Any, Any], Any]] = {"+": operator.add, "-": operator.sub}
PLAIN |= {"*": operator.mul, "**": operator.pow}
PRODUCTS: dict[str, Callable[[Matrix, Matrix], Matrix]] = {
    **PLAIN,
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
    rows = np.eye(named + 2, named + 3, dtype=int).astype(object)
    others, everything = [0] * named + [root, 0, 0], [1] * named + [root, 0, 0]
    values = _key_names(problem, rows, others, everything, everything[:-1])
    return values | {"beta": beta, "n": n}


def _key_names(problem: Problem, rows: Any, others: Any, everything: Any, ones: Any) -> Values:
    stem, table = ("mu", "Mu") if problem.noise != "none" else ("k", "K")
    identity = np.eye(rows.shape[1], dtype=int).astype(rows.dtype)
    values: Values = {table: rows, "I": identity, "ones": ones}
    values |= {"sum_others": others, "sum_all": everything}
    for index, group in enumerate(list(problem.target)[:-1]):
        values[f"{stem}_{group}"] = rows[index]
        values[f"e_{group}"] = np.eye(len(rows), dtype=int).astype(rows.dtype)[index]
    return values


def space_values(A: Any, B: Any, C: Any) -> Values:
    """A, B, C, S, D and I for three bases that complete one another."""
    S = np.hstack([A, B, C])
    D = np.diag([1] * A.shape[1] + [0] * (B.shape[1] + C.shape[1])).astype(S.dtype)
    return {"A": A, "B": B, "C": C, "S": S, "D": D, "I": np.eye(len(S), dtype=int).astype(S.dtype)}


def space_instance(m: int, p: int, r: int, rng: np.random.Generator | None = None) -> Values:
    basis = orthonormal(m + p + r, m + p + r, rng).T
    return space_values(basis[:, :m], basis[:, m : m + p], basis[:, m + p :])


def word_values(u: Any, beta: float | Scalar) -> Values:
    """u_a..u_d, the three words, beta and I, for the rows u."""
    named = dict(zip("abcd", u, strict=True))
    values: Values = {f"u_{name}": vector for name, vector in named.items()}
    values |= {"x1": u[3] + u[1], "x2": u[0], "x3": u[2] + u[1]}
    return values | {"beta": beta, "I": np.eye(u.shape[1], dtype=int).astype(u.dtype)}


def word_instance(d: int, beta: float, rng: np.random.Generator | None = None) -> Values:
    return word_values(beta * orthonormal(4, d, rng), beta)


def unequal_norms(
    rows: Floats, named: int, rng: np.random.Generator, draws: int
) -> Iterator[tuple[str, Floats]]:
    """Orthogonal rows of other lengths: one row after another stretched, then drawn lengths."""
    for index in range(min(len(rows), named + 1)):
        for length in (1.4, 0.7):
            stretched = rows.copy()
            stretched[index] *= length
            which = "abcd"[index] if index < named else "another"
            yield f"{which} stretched to {length:g} of its length", stretched
    for _ in range(draws):
        lengths = rng.uniform(0.7, 1.4, size=(len(rows), 1))
        yield "lengths drawn between 0.7 and 1.4", rows * lengths


def oblique_angles(
    rows: Floats, named: int, rng: np.random.Generator, draws: int
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
    for _ in range(draws):
        spread = rng.uniform(0.1, 1.0) * size
        yield "directions drawn at random", turned(rows + spread * rng.standard_normal(rows.shape))


def shown(values: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """Some of the values as plain lists, for a counterexample."""
    return {name: np.round(np.asarray(values[name], float), 6).tolist() for name in names}


class Numeric:
    """The algebra of floating point matrices over the values of one instance.
    Plain numbers are Python's own, which are faster than matrices of one entry."""

    dtype: Any = np.float64

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = {name: self.matrix(value) for name, value in values.items()}

    def matrix(self, value: Any) -> Matrix:
        array = np.asarray(value, dtype=self.dtype)
        return array if array.ndim == 2 else array.reshape(-1, 1)

    def number(self, value: Fraction) -> Any:
        return float(value)

    def name(self, name: str) -> Any:
        value = self.values[name]
        return float(value[0, 0]) if name in ("beta", "n", "d") else value

    def power(self, base: Any, exponent: int) -> Any:
        return self.apply("**", (base, float(exponent) if type(base) is float else exponent))

    def apply(self, op: str, arguments: Sequence[Any]) -> Any:
        x, y = arguments[0], arguments[-1]
        if op in FUNCTIONS:
            return self.function(op, x)
        if op in ENTRYWISE:
            return self.entrywise(op, x)
        if op == "/" or op == "unit":
            return self.checked(self.divide(x, y if op == "/" else self.norm(x)))
        if type(x) is float and type(y) is float and op in PLAIN:
            try:
                value = PLAIN[op](x, y)
            except OverflowError:
                value = math.inf
            rounded = op in ("*", "**") and value == 0 and x and y
            return self.checked(SMALLEST if rounded else value)
        blocks = [self.matrix(a) if type(a) is float else a for a in arguments]
        x, y = blocks[0], blocks[-1]
        with np.errstate(over="ignore", invalid="ignore"):
            if op in ("inv", "pinv"):
                return self.checked(self.inverse(x, pseudo=op == "pinv"))
            if op in ("hstack", "vstack"):
                return self.checked((np.hstack if op == "hstack" else np.vstack)(blocks))
            return self.checked(self.norm(x) if op == "norm" else PRODUCTS[op](x, y))

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

    def divide(self, x: Any, y: Any) -> Any:
        below = y if type(y) is float else y.item()
        if below == 0:
            raise UndefinedError("this divides by zero.")
        if abs(below) <= 10 * SMALLEST:
            raise UndefinedError("this divides by too small a number.", too_large=True)
        return x / below

    def norm(self, x: Matrix) -> Any:
        return float(np.linalg.norm(x))

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

    def function(self, name: str, x: Any) -> Any:
        at = x if type(x) is float else x.item()
        if name == "sqrt" and at < 0:
            raise UndefinedError("this is the square root of a negative number.")
        if name == "log" and at <= 0:
            raise UndefinedError("this is the logarithm of a number that is not positive.")
        if name == "log" and at <= 10 * SMALLEST:
            raise UndefinedError("this number is too small to compute with.", too_large=True)
        try:
            return self.checked(FUNCTIONS[name](at))
        except OverflowError:
            return self.checked(math.inf)

    def checked(self, value: Any) -> Any:
        """The value, unless it is too large."""
        if type(value) is not float and max(value.shape) > MAX_SIZE:
            raise UndefinedError(f"a matrix may have {MAX_SIZE} rows or columns at most.")
        largest = abs(value) if type(value) is float else np.max(np.abs(value), initial=0.0)
        if not largest <= MAX_MAGNITUDE:
            raise UndefinedError(TOO_LARGE, too_large=True)
        return value


class Exact(Numeric):
    """The same algebra over exact numbers; NotExactError where there is no exact form."""

    dtype = object

    def __init__(self, field: Field | Decimals, values: Mapping[str, Any]) -> None:
        self.field: Any = field
        super().__init__(values)

    def matrix(self, value: Any) -> Matrix:
        array = super().matrix(value).copy()
        for index, x in np.ndenumerate(array):
            array[index] = x if isinstance(x, Scalar) else self.field.rational(x)
        return array

    def number(self, value: Fraction) -> Matrix:
        return self.matrix(value)

    def name(self, name: str) -> Matrix:
        return self.values[name]

    def checked(self, value: Matrix) -> Matrix:
        if max(value.shape) > MAX_SIZE:
            raise NotExactError
        return value

    def divide(self, x: Matrix, y: Matrix) -> Matrix:
        return np.asarray(x * (self.field.rational(1) / y.item()))

    def entrywise(self, op: str, x: Matrix) -> Matrix:
        raise NotExactError

    def norm(self, x: Matrix) -> Matrix:
        return self.function("sqrt", x.T @ x if x.shape[1] == 1 else x @ x.T)

    def function(self, name: str, x: Matrix) -> Matrix:
        return self.matrix(self.field.function(name, x.item()))

    def inverse(self, x: Matrix, *, pseudo: bool) -> Matrix:
        """Gauss and Jordan; a pivot that may be zero for some n is put down as a doubt.
        The pseudo-inverse is found by the normal equations, without rows and columns of zeros."""
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


class Decimals:
    """Numbers of 500 digits in the place of a Field."""

    context = decimal.Context(500, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX)

    def rational(self, value: Any) -> decimal.Decimal:
        if isinstance(value, decimal.Decimal):
            return value
        top, below = Fraction(value).as_integer_ratio()
        return decimal.Decimal(top) / decimal.Decimal(below)

    def function(self, name: str, x: decimal.Decimal) -> decimal.Decimal:
        return {"sqrt": x.sqrt, "exp": x.exp, "log": x.ln, "abs": x.copy_abs}[name]()


class Digits(Exact):
    """The same algebra with very many digits, without inverses. A term that is lost beside another
    one, being smaller by the factor `least`, is a number too small to compute with."""

    def __init__(self, values: Mapping[str, Any], least: str) -> None:
        self.least = decimal.Decimal(least)
        super().__init__(Decimals(), values)

    def apply(self, op: str, arguments: Sequence[Any]) -> Any:
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
    """Formulas, with their names, that are said to equal what is judged and do not."""
    rng, problem = np.random.default_rng(0), read.problem
    for name, form in read.again if problem.family in INSTANCES else ():
        algebra = Numeric(INSTANCES[problem.family](problem, 5, rng))
        x, y = (np.asarray(evaluate(each, algebra)) for each in (form, read.expressions[name]))
        if x.shape != y.shape or not np.allclose(x, y, rtol=1e-9, atol=1e-9):
            yield name, form
