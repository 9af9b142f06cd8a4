"""The one evaluator, over exact numbers and over floats.

Nothing that can be written tells the other keys apart, nor one unused direction from another. So
every vector and matrix of a problem is made of few blocks, each a multiple of the identity on a
space of any size, and has one coordinate for each block: `key_blocks`, `word_blocks`. The same
formula over all n keys, in floats, is what the attention equation is tried on: `key_values`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wherefrom.attention.equation import softmax_over_keys
from wherefrom.checker.field import (
    Field,
    NotExactError,
    StepBudget,
    TooLargeError,
    UndefinedError,
)
from wherefrom.checker.grammar import ENTRYWISE, Expression, ExpressionError, Node

Matrix = NDArray[Any]
Values = dict[str, Any]

NUMBER_FUNCTIONS = ("sqrt", "abs", "exp", "log", "sin", "cos", "pow", "O")


class Arithmetic:
    """What the operations of a formula mean for matrices; numbers are 1 x 1 matrices."""

    dtype: Any = object

    def __init__(self, budget: StepBudget) -> None:
        self.budget = budget

    def number(self, value: Any) -> Any:
        raise NotImplementedError

    def function(self, name: str, *arguments: Any) -> Any:
        """A function of numbers."""
        raise NotImplementedError

    def is_zero(self, x: Any) -> bool:
        return bool(x == 0)

    def divide(self, x: Any, y: Any) -> Any:
        if self.is_zero(y):
            raise UndefinedError("this divides by zero.")
        return x / y

    def matrix(self, value: Any) -> Matrix:
        array = np.array(value, dtype=object)
        array = array if array.ndim == 2 else array.reshape(-1, 1)
        for index, x in np.ndenumerate(array):
            array[index] = self.number(x)
        return array

    def identity(self, size: int) -> Matrix:
        return self.matrix(np.eye(size, dtype=int).astype(object))

    def apply(self, op: str, arguments: Sequence[Any]) -> Matrix:
        """The value of one operation; UndefinedError where it has none."""
        x, y = arguments[0], arguments[-1]
        self.budget.spend(10 + (x.size * y.shape[1] if isinstance(y, np.ndarray) else x.size))
        if op in NUMBER_FUNCTIONS:
            return self.matrix(self.function(op, *(z.item() for z in arguments)))
        if op in ENTRYWISE:
            return self.entrywise(op, x)
        match op:
            case "+":
                return np.asarray(x + y)
            case "-":
                return np.asarray(x - y)
            case "*":
                return np.asarray(y * x.item() if x.size == 1 else x * y.item())
            case "@" if x.shape[1] == 0:  # C has no columns where the spans of A and B are all
                return self.matrix(np.zeros((x.shape[0], y.shape[1]), dtype=int).astype(object))
            case "@":
                return np.asarray(x @ y)
            case "dot":
                return np.asarray(x.T @ y)
            case "outer":
                return np.asarray(x @ y.T)
            case "transpose":
                return np.asarray(x.T)
            case "hstack" | "vstack":
                return (np.hstack if op == "hstack" else np.vstack)(arguments)
            case "/":
                return self.each(x, lambda entry: self.divide(entry, y.item()))
            case "norm":
                return self.norm(x)
            case "unit":
                length = self.norm(x).item()
                return self.each(x, lambda entry: self.divide(entry, length))
            case "inv":
                return self.inverse(x)
            case "pinv":
                return self.pseudo_inverse(x)
        raise NotExactError

    def each(self, x: Matrix, function: Any) -> Matrix:
        made = np.empty(x.shape, dtype=self.dtype)
        for index, entry in np.ndenumerate(x):
            made[index] = function(entry)
        return made

    def power(self, x: Matrix, exponent: int) -> Matrix:
        result = self.identity(len(x))
        for _ in range(exponent):
            self.budget.spend(10 + x.size * len(x))
            result = result @ x
        return result

    def norm(self, x: Matrix) -> Matrix:
        square = (x.T @ x if x.shape[1] == 1 else x @ x.T).item()
        return self.matrix(self.function("sqrt", square))

    def entrywise(self, op: str, x: Matrix) -> Matrix:
        raise NotImplementedError

    def pseudo_inverse(self, x: Matrix) -> Matrix:
        raise NotImplementedError

    def inverse(self, x: Matrix) -> Matrix:
        """Gauss and Jordan; dividing by a pivot is an obligation as any other division."""
        size = len(x)
        table = np.hstack([x, self.identity(size)])
        for column in range(size):
            pivots = [i for i in range(column, size) if not self.is_zero(table[i, column])]
            if not pivots:
                raise UndefinedError("this matrix has no inverse.")
            self.budget.spend(20 * size)
            table[[column, pivots[0]]] = table[[pivots[0], column]]
            pivot = table[column, column]
            table[column] = [self.divide(entry, pivot) for entry in table[column]]
            for i in range(size):
                if i != column and not self.is_zero(table[i, column]):
                    table[i] = table[i] - table[column] * table[i, column]
        return table[:, size:]


class Exact(Arithmetic):
    """Numbers of a Field."""

    def __init__(self, field: Field) -> None:
        super().__init__(field.budget)
        self.field = field

    def number(self, value: Any) -> Any:
        return self.field.number(value)

    def function(self, name: str, *arguments: Any) -> Any:
        return self.field.function(name, *arguments)

    def is_zero(self, x: Any) -> bool:
        return self.field.vanishes(x)

    def entrywise(self, op: str, x: Matrix) -> Matrix:
        if op != "relu":
            raise NotExactError  # softmax and layernorm of each row, a mask
        return self.each(x, lambda entry: entry if self.field.sign(entry) > 0 else self.number(0))

    def pseudo_inverse(self, x: Matrix) -> Matrix:
        """By independent columns: x = basis @ rest, both of full rank."""
        table, chosen = x.copy(), list[int]()
        for column in range(x.shape[1]):
            row = len(chosen)
            pivots = [i for i in range(row, len(x)) if not self.is_zero(table[i, column])]
            if not pivots:
                continue
            self.budget.spend(20 * x.size)
            table[[row, pivots[0]]] = table[[pivots[0], row]]
            for i in range(row + 1, len(x)):
                if not self.is_zero(table[i, column]):
                    factor = table[i, column] / table[row, column]
                    table[i] = table[i] - table[row] * factor
            chosen.append(column)
        if not chosen:
            return self.matrix(np.zeros(x.T.shape, dtype=int).astype(object))
        basis = x[:, chosen]
        left = self.inverse(basis.T @ basis) @ basis.T
        rest = left @ x
        return np.asarray(rest.T @ self.inverse(rest @ rest.T) @ left)


FLOAT_FUNCTIONS: dict[str, Callable[[float], float]] = {
    "sqrt": math.sqrt,
    "abs": abs,
    "exp": math.exp,
    "log": math.log,
}


class Floats(Arithmetic):
    """Matrices of floats, as large as the instance; this is what a reader would compute."""

    dtype = np.float64

    def __init__(self, budget: StepBudget) -> None:
        super().__init__(budget)
        self.largest = 1.0  # of all values on the way: rounding is relative to it

    def matrix(self, value: Any) -> Matrix:
        array = np.asarray(value, dtype=np.float64)
        return array if array.ndim == 2 else array.reshape(-1, 1)

    def identity(self, size: int) -> Matrix:
        return np.eye(size)

    def apply(self, op: str, arguments: Sequence[Any]) -> Matrix:
        with np.errstate(all="ignore"):
            value = super().apply(op, arguments)
        if not np.isfinite(value).all():
            raise TooLargeError
        if op != "mask":  # what is masked is very negative, and only ever becomes a weight of 0
            self.largest = max(self.largest, float(np.abs(value).max(initial=0.0)))
        return value

    def power(self, x: Matrix, exponent: int) -> Matrix:
        with np.errstate(all="ignore"):
            value = super().power(x, exponent)
        if not np.isfinite(value).all():
            raise TooLargeError
        self.largest = max(self.largest, float(np.abs(value).max(initial=0.0)))
        return value

    def function(self, name: str, *arguments: Any) -> float:
        x = float(arguments[0])
        try:
            return FLOAT_FUNCTIONS[name](x)
        except OverflowError:
            raise TooLargeError from None
        except ValueError:
            of = (
                "square root of a negative number"
                if name == "sqrt"
                else "logarithm of a number that is not positive"
            )
            raise UndefinedError(f"this is the {of}.") from None
        except KeyError:
            raise NotExactError from None

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

    def inverse(self, x: Matrix) -> Matrix:
        try:
            condition = float(np.linalg.cond(x))
            if condition < 0.1 / np.finfo(np.float64).eps:
                inverse = np.linalg.inv(x)
                self.largest = max(
                    self.largest, condition * float(np.abs(inverse).max(initial=0.0))
                )
                return inverse
        except np.linalg.LinAlgError:
            pass
        raise UndefinedError("this matrix has no inverse.")

    def pseudo_inverse(self, x: Matrix) -> Matrix:
        try:
            inverse = np.linalg.pinv(x)
            sizes = float(np.abs(x).max(initial=0.0)) * float(np.abs(inverse).max(initial=0.0))
            self.largest = max(self.largest, sizes * sizes)
            return np.asarray(inverse)
        except np.linalg.LinAlgError:
            raise TooLargeError from None


def evaluate(expression: Expression, arithmetic: Arithmetic, values: Mapping[str, Any]) -> Matrix:
    """The value of a formula; where it has none, an ExpressionError with the column."""
    matrices = {
        name: arithmetic.matrix(x) for name, x in values.items() if name in expression.names
    }

    def value(node: Node) -> Matrix:
        if node.op == "number":
            return arithmetic.matrix(node.number)
        if node.op == "name":
            return matrices[node.name]
        arguments = [value(child) for child in node.arguments]
        try:
            if node.op == "**":
                return arithmetic.power(arguments[0], int(node.number))
            return arithmetic.apply(node.op, arguments)
        except UndefinedError as problem:
            raise NoValueError(str(problem), expression.source, node.column) from None

    return value(expression.tree)


def evaluate_number(
    expression: Expression, arithmetic: Arithmetic, values: Mapping[str, Any]
) -> Any:
    """The value of a formula that must be one number."""
    value = evaluate(expression, arithmetic, values)
    if value.size != 1:
        rows, columns = value.shape
        sentence = f"one number is expected here, and this is a table of {rows} x {columns}."
        raise ExpressionError(sentence, expression.source, expression.tree.column)
    return value.item()


class NoValueError(ExpressionError):
    """The formula has no value here."""


def orthonormal(n: int, d: int, rng: np.random.Generator | None = None) -> Matrix:
    """n orthonormal rows in R^d, n <= d, in random position if there is a generator."""
    if rng is None:
        return np.eye(d)[:n]
    return np.linalg.qr(rng.standard_normal((d, d)))[0][:n]


def key_values(groups: Sequence[str], noisy: bool, keys: Matrix, beta: float) -> Values:
    """The names of the problems about keys, over keys (or their means) as rows."""
    named = len(groups) - 1
    others = keys[named:].sum(axis=0)
    values = _key_names(groups, noisy, keys, others, keys.sum(axis=0), np.ones(len(keys)))
    return values | {"beta": beta, "n": len(keys)}


def key_blocks(
    groups: Sequence[str], noisy: bool, beta: Any, n: Any, root: Any, lone: bool
) -> Values:
    """The same over n orthonormal keys in blocks: each named key, the sum of the others over its
    length `root`, all other combinations of them (there are none if one is `lone`), and the
    directions that no key has."""
    named = len(groups) - 1
    size = named + 1 if lone else named + 2
    rows = np.eye(size, size + 1, dtype=int).astype(object)
    empty = [0] * (size - named - 1)
    others = [0] * named + [root, *empty, 0]
    everything = [1] * named + [root, *empty, 0]
    values = _key_names(groups, noisy, rows, others, everything, everything[:-1])
    return values | {"beta": beta, "n": n}


def _key_names(
    groups: Sequence[str], noisy: bool, rows: Any, others: Any, everything: Any, ones: Any
) -> Values:
    stem, table = ("mu", "Mu") if noisy else ("k", "K")
    values: Values = {table: rows, "I": np.eye(rows.shape[1], dtype=int), "ones": ones}
    values |= {"sum_others": others, "sum_all": everything}
    for index, group in enumerate(groups[:-1]):
        values[f"{stem}_{group}"] = rows[index]
        values[f"e_{group}"] = np.eye(len(rows), dtype=int)[index]
    return values


def word_values(u: Matrix, beta: Any) -> Values:
    """u_a..u_d, the three words, beta and I, for the rows u."""
    values: Values = {f"u_{name}": vector for name, vector in zip("abcd", u, strict=True)}
    values |= {"x1": u[3] + u[1], "x2": u[0], "x3": u[2] + u[1]}
    return values | {"beta": beta, "I": np.eye(u.shape[1], dtype=int)}


def shown(values: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Some of the values as plain lists, for a counterexample."""
    return {name: np.round(np.asarray(values[name], float), 6).tolist() for name in names}
