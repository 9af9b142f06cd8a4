"""A formula as a tree of five kinds of node, and what it takes to give it a meaning.

An `Algebra` says what a name, a sum or a product is: shapes, floating point numbers, or exact
forms. `evaluate` walks the tree and adds the column to whatever an algebra has to complain about.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol, TypeVar

from wherefrom.errors import UserError

SHOWN = 400  # characters of a text that an error repeats


class ExpressionError(UserError):
    """Something that may not be written, with the place where it stands."""

    def __init__(self, sentence: str, source: str, column: int, *, too_large: bool = False) -> None:
        shown = "".join(c if c.isprintable() else "?" for c in source[:SHOWN])
        self.sentence = sentence
        self.too_large = too_large
        self.column = max(1, min(column, len(shown) + 1))
        caret = " " * (self.column - 1) + "^"
        super().__init__(f"column {self.column}: {sentence}\n  {shown}\n  {caret}")


class UndefinedError(ArithmeticError):
    """Raised by an algebra for an operation without a result; `evaluate` adds the column."""

    too_large = False


class TooLargeError(UndefinedError):
    """The result is a number beyond what is computed with."""

    too_large = True


@dataclass(frozen=True)
class Number:
    """A literal, kept exactly: 0.1 is one tenth."""

    value: Fraction
    column: int


@dataclass(frozen=True)
class Name:
    """One of the names that the problem gives."""

    name: str
    column: int


@dataclass(frozen=True)
class Binary:
    """left operator right, the operator being one of + - * / @."""

    operator: str
    left: Node
    right: Node
    column: int


@dataclass(frozen=True)
class Power:
    """base ** exponent with a written exponent of 0 to 8."""

    base: Node
    exponent: int
    column: int


@dataclass(frozen=True)
class Call:
    """A function of the table above; `.T` is transpose."""

    function: str
    arguments: tuple[Node, ...]
    column: int


Node = Number | Name | Binary | Power | Call


@dataclass(frozen=True)
class Expression:
    """A parsed expression with the text it came from."""

    source: str
    tree: Node
    names: frozenset[str]


T = TypeVar("T")


class Algebra(Protocol[T]):
    """What the nodes mean. Each method may raise UndefinedError with a sentence."""

    def number(self, value: Fraction) -> T: ...
    def name(self, name: str) -> T: ...
    def add(self, left: T, right: T) -> T: ...
    def scale(self, left: T, right: T) -> T: ...
    def divide(self, left: T, right: T) -> T: ...
    def multiply(self, left: T, right: T) -> T: ...
    def power(self, base: T, exponent: int) -> T: ...
    def call(self, function: str, arguments: Sequence[T]) -> T: ...


def evaluate(expression: Expression, algebra: Algebra[T]) -> T:
    """The value of an expression in an algebra; what has no value is an ExpressionError."""

    def value(node: Node) -> T:
        if isinstance(node, Number):
            return algebra.number(node.value)
        if isinstance(node, Name):
            return algebra.name(node.name)
        try:
            if isinstance(node, Power):
                return algebra.power(value(node.base), node.exponent)
            if isinstance(node, Call):
                return algebra.call(node.function, [value(child) for child in node.arguments])
            left, right = value(node.left), value(node.right)
            if node.operator == "-":
                return algebra.add(left, algebra.scale(algebra.number(Fraction(-1)), right))
            operations: dict[str, Callable[[T, T], T]] = {
                "+": algebra.add,
                "*": algebra.scale,
                "/": algebra.divide,
                "@": algebra.multiply,
            }
            return operations[node.operator](left, right)
        except UndefinedError as problem:
            raise ExpressionError(
                str(problem), expression.source, node.column, too_large=problem.too_large
            ) from None

    return value(expression.tree)
