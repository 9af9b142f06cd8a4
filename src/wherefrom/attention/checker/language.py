"""The expression language: texts such as "q=beta*(k_a+k_b)" in, checked formulas out.

A construction comes from somebody unknown, so it is never handed to Python. `parse` lets Python's
own parser build a syntax tree (which runs nothing) and copies it node by node through an
allow-list into `Node`s; only those are ever evaluated. Vectors are columns: `k_a.T @ k_b` is a
number and `u_b @ u_b.T` a matrix.

An `Algebra` gives the nodes a meaning: shapes in letters (here), floating point matrices and
exact ones (`algebra`). Everything that may not be written ends in an ExpressionError, the only
exception that leaves this module: one sentence with the column and a caret under it.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Protocol, TypeVar

from wherefrom.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from wherefrom.attention.checker.problems import Problem

MAX_LENGTH = 400  # characters of one expression
MAX_NODES = 120
MAX_DEPTH = 25
MAX_POWER = 8
MAX_NUMBER = 10**12  # of a number that is written; results have their own cap
MAX_SOLVES = 4  # inv and pinv cost a factorisation each

# one character for one character, so that columns stay where the writer sees them
SPELLINGS = str.maketrans({"−": "-", "–": "-", "·": "*", "⋅": "*", "×": "*", "∗": "*"})
# other spellings of one letter for the large factor; two different letters are two factors
SAME_LETTER = {"β": "beta", "λ": "lam", "lambda_": "lam", "t_1": "t1", "t_2": "t2"}

ONE_ARGUMENT = ("abs", "exp", "inv", "log", "norm", "pinv", "sqrt", "transpose", "unit")
# how many arguments each function takes: least, most
FUNCTIONS = dict.fromkeys(ONE_ARGUMENT, (1, 1)) | {"dot": (2, 2), "outer": (2, 2), "hstack": (2, 4)}
FUNCTION_ALIASES = {"inner": "dot", "ln": "log", "inverse": "inv", "normalize": "unit"}
OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.MatMult: "@",
}
REFUSED_NODES: dict[type[ast.expr], str] = {
    ast.BoolOp: "and / or",
    ast.Compare: "a comparison",
    ast.IfExp: "a condition",
    ast.JoinedStr: "text",
    ast.Lambda: "a function of your own (for a large factor write lam or beta)",
    ast.List: "a list",
    ast.Subscript: "an index in square brackets",
    ast.Tuple: "a list",
}


class ExpressionError(UserError):
    """Something that may not be written, with the place where it stands."""

    def __init__(self, sentence: str, source: str, column: int, *, too_large: bool = False) -> None:
        shown = "".join(c if c.isprintable() else "?" for c in source[:MAX_LENGTH])
        self.sentence = sentence
        self.too_large = too_large
        self.column = max(1, min(column, len(shown) + 1))
        caret = " " * (self.column - 1) + "^"
        super().__init__(f"column {self.column}: {sentence}\n  {shown}\n  {caret}")


class UndefinedError(ArithmeticError):
    """Raised by an algebra for an operation without a result; `evaluate` adds the column."""

    def __init__(self, sentence: str, *, too_large: bool = False) -> None:
        super().__init__(sentence)
        self.too_large = too_large  # for a float, though it may have a value


@dataclass(frozen=True)
class Node:
    """One operation: "number", "name", one of + - * / @ **, or a function of the table."""

    op: str
    column: int
    arguments: tuple[Node, ...] = ()
    number: Fraction = Fraction(0)  # of "number", and the exponent of "**"
    name: str = ""


@dataclass(frozen=True)
class Expression:
    """A parsed expression with the text it came from and the names in it."""

    source: str
    tree: Node
    names: frozenset[str]
    factor: str  # the letter that stands for the large factor, if one does


T = TypeVar("T")


class Algebra(Protocol[T]):
    """What the nodes mean. Each method may raise UndefinedError with a sentence."""

    def number(self, value: Fraction) -> T: ...
    def name(self, name: str) -> T: ...
    def power(self, base: T, exponent: int) -> T: ...
    def apply(self, op: str, arguments: Sequence[T]) -> T: ...


def evaluate(expression: Expression, algebra: Algebra[T]) -> T:
    """The value of an expression in an algebra; what has no value is an ExpressionError."""

    def value(node: Node) -> T:
        if node.op == "number":
            return algebra.number(node.number)
        if node.op == "name":
            return algebra.name(node.name)
        arguments = [value(child) for child in node.arguments]
        try:
            if node.op == "**":
                return algebra.power(arguments[0], int(node.number))
            return algebra.apply(node.op, arguments)
        except UndefinedError as problem:
            raise ExpressionError(
                str(problem), expression.source, node.column, too_large=problem.too_large
            ) from None

    return value(expression.tree)


def parse(
    source: str,
    known: Mapping[str, str],
    refused: Mapping[str, str] | None = None,
    offset: int = 0,
    shown: str = "",
) -> Expression:
    """Read one expression.

    known    every spelling that may be written -> the name it stands for
    refused  names with a reason of their own for not being writable, as a sentence
    offset   where the expression begins inside `shown`, the text that the caret points into
    """
    return _Reader(source, known, refused or {}, offset, shown or source).read()


@dataclass
class _Reader:
    """One pass from Python's syntax tree to ours, refusing whatever is not in the list."""

    source: str
    known: Mapping[str, str]
    refused: Mapping[str, str]
    offset: int
    shown: str
    text: str = ""  # the source without the blanks around it
    start: int = 0  # and where it begins
    nodes: int = 0
    solves: int = 0
    factor: str = ""
    names: set[str] = field(default_factory=set)

    def error(self, sentence: str, index: int) -> ExpressionError:
        return ExpressionError(sentence, self.shown, index + 1 + self.offset)

    def read(self) -> Expression:
        if len(self.source) > MAX_LENGTH:
            sentence = f"an expression may have {MAX_LENGTH} characters and this has "
            raise self.error(f"{sentence}{len(self.source)}.", MAX_LENGTH)
        text = self.source.translate(SPELLINGS)
        for index, character in enumerate(text):
            if not (character.isprintable() or character == "\t"):
                raise self.error("only characters that can be seen may be written.", index)
        self.text, self.start = text.strip(), len(text) - len(text.lstrip())
        if not self.text:
            raise self.error("an expression is expected here.", 0)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Python's advice on what is about to be refused
                tree = ast.parse(self.text, mode="eval")
        except SyntaxError as problem:
            at = self.start + max(0, (problem.offset or 1) - 1)
            sentence = "this is not a complete formula (is an operator or a bracket missing?)."
            if "nested" in str(problem.msg):
                sentence = "this is nested too deeply to be read."
            if "lambda" in self.text:
                at = self.start + self.text.find("lambda")
                sentence = "lambda is a word of Python; write lam or beta."
            raise self.error(sentence, at) from None
        except (ValueError, MemoryError, RecursionError, OverflowError):
            raise self.error("this is nested too deeply to be read.", self.start) from None
        return Expression(self.shown, self.node(tree.body, 1), frozenset(self.names), self.factor)

    def at(self, node: ast.expr) -> int:
        """Python counts columns in UTF-8 bytes; a person counts characters."""
        line = self.text.encode()[: node.col_offset]
        return self.start + len(line.decode(errors="ignore"))

    def node(self, node: ast.expr, depth: int) -> Node:
        self.nodes += 1
        index = self.at(node)
        column = index + 1 + self.offset
        if self.nodes > MAX_NODES:
            raise self.error(f"a formula may have {MAX_NODES} parts and this has more.", index)
        if depth > MAX_DEPTH:
            raise self.error(f"brackets may be nested {MAX_DEPTH} deep and no deeper.", index)
        match node:
            case ast.Constant():
                return Node("number", column, number=self.literal(node.value, index))
            case ast.Name():
                return Node("name", column, name=self.resolve(node.id, index))
            case ast.UnaryOp(op=ast.UAdd()):
                return self.node(node.operand, depth + 1)
            case ast.UnaryOp(op=ast.USub()):
                minus = Node("number", column, number=Fraction(-1))
                return Node("*", column, (minus, self.node(node.operand, depth + 1)))
            case ast.UnaryOp():
                raise self.error("only the signs + and - may stand before a term.", index)
            case ast.BinOp(op=ast.Pow()):
                return self.power(node, depth, column)
            case ast.BinOp(op=ast.BitXor()):
                sentence = "^ is not a power here; write ** for a power and .T for a transpose."
                raise self.error(sentence, self.at(node.right) - 1)
            case ast.BinOp() if type(node.op) not in OPERATORS:
                raise self.error("only + - * / @ and ** may join two terms.", index)
            case ast.BinOp():
                # a + b + c nests to the left in Python's tree, and nobody sees a bracket there
                sides = self.node(node.left, depth), self.node(node.right, depth + 1)
                return Node(OPERATORS[type(node.op)], column, sides)
            case ast.Attribute(attr="T"):
                return Node("transpose", column, (self.node(node.value, depth + 1),))
            case ast.Attribute():
                raise self.error("the only thing that may follow a dot is T, for transpose.", index)
            case ast.Call():
                return self.call(node, depth, column)
        what = REFUSED_NODES.get(type(node), "this")
        raise self.error(f"{what} may not be written here.", index)

    def literal(self, value: object, index: int) -> Fraction:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error("only plain numbers may be written, such as 2 or 0.5.", index)
        if value != value or abs(value) > MAX_NUMBER:
            raise self.error("a written number may be 1e12 at most; beta is for large ones.", index)
        if 0 < abs(value) < 1 / MAX_NUMBER:
            raise self.error("a written number may not be below 1e-12, except 0.", index)
        return Fraction(value) if isinstance(value, int) else Fraction(repr(value))

    def resolve(self, name: str, index: int) -> str:
        if name in self.known:
            self.names.add(self.known[name])
            if self.known[name] == "beta":
                letter = SAME_LETTER.get(name, name)
                if letter != (self.factor or letter):
                    raise self.error(
                        f"{self.factor} and {letter} are two large factors, and nothing says how "
                        "they compare; write one letter if they are equal.",
                        index,
                    )
                self.factor = letter
            return self.known[name]
        if name in self.refused:
            raise self.error(self.refused[name], index)
        if name in FUNCTIONS or name in FUNCTION_ALIASES:
            raise self.error(f"{name} is a function; write {name}(...).", index)
        meant = did_you_mean(name[:40], set(self.known.values()))
        raise self.error(f'there is no name "{name[:40]}" in this problem.{meant}', index)

    def power(self, node: ast.BinOp, depth: int, column: int) -> Node:
        power, index = node.right, self.at(node.right)
        if isinstance(power, ast.Name) and power.id == "T":
            raise self.error("a transpose is written .T, as in A.T.", index)
        if not (isinstance(power, ast.Constant) and type(power.value) is int):
            raise self.error(
                f"a power must be a written whole number from 0 to {MAX_POWER} "
                "(sqrt(x) and 1/x are there for the others).",
                index,
            )
        if not 0 <= power.value <= MAX_POWER:
            raise self.error(f"a power may be 0 to {MAX_POWER}.", index)
        base = self.node(node.left, depth + 1)
        return Node("**", column, (base,), number=Fraction(power.value))

    def call(self, node: ast.Call, depth: int, column: int) -> Node:
        index = self.at(node)
        if not isinstance(node.func, ast.Name):
            raise self.error("a product needs its sign: write * or @ before the bracket.", index)
        name = FUNCTION_ALIASES.get(node.func.id, node.func.id)
        if name in self.known:
            raise self.error(f"a product needs its sign: write {name}*(...).", index)
        if name not in FUNCTIONS:
            meant = did_you_mean(name[:40], FUNCTIONS)
            raise self.error(f'there is no function "{name[:40]}".{meant}', index)
        least, most = FUNCTIONS[name]
        count = len(node.args) + len(node.keywords)
        if node.keywords or not least <= count <= most:
            takes = f"{least if least == most else f'{least} to {most}'} argument"
            plural = "s" if most > 1 else ""
            raise self.error(f"{name} takes {takes}{plural}, and this has {count}.", index)
        self.solves += name in ("inv", "pinv")
        if self.solves > MAX_SOLVES:
            raise self.error(f"inv and pinv may be used {MAX_SOLVES} times together.", index)
        return Node(name, column, tuple(self.node(child, depth + 1) for child in node.args))


ONE = ("1",)


@dataclass(frozen=True)
class Shape:
    """Rows and columns, each a sum of letters: hstack(A, B) has the columns m+p."""

    rows: tuple[str, ...] = ONE
    columns: tuple[str, ...] = ONE

    @property
    def is_number(self) -> bool:
        return self.rows == self.columns == ONE

    @property
    def is_column(self) -> bool:
        return self.columns == ONE and self.rows != ONE

    def __str__(self) -> str:
        if self.is_number:
            return "a number"
        sides = (self.rows, self.columns)
        return " x ".join("d" if side == ("m", "p", "r") else "+".join(side) for side in sides)


class Shapes:
    """The algebra of shapes: does a formula fit together, with the sizes left as letters?

    So `A @ B.T` is refused because m and p need not be equal, even where an example has m = p.
    """

    def __init__(self, names: Mapping[str, Shape]) -> None:
        self.names = names

    def number(self, value: Fraction) -> Shape:
        return Shape()

    def name(self, name: str) -> Shape:
        return self.names[name]

    def power(self, base: Shape, exponent: int) -> Shape:
        if not base.is_number:
            raise UndefinedError(f"a power is of a number, and this is {base}.")
        return base

    def apply(self, op: str, arguments: Sequence[Shape]) -> Shape:
        first, last = arguments[0], arguments[-1]
        wrong = ""
        result = first
        match op:
            case "+" | "-":
                if first != last:
                    wrong = f"{first} and {last} cannot be added: the shapes differ."
            case "*":
                result = last if first.is_number else first
                if not (first.is_number or last.is_number):
                    wrong = (
                        f"* is for a number times something, and this is {first} times {last}; "
                        "write @ for a product of matrices, dot(x, y) or outer(x, y) for one of "
                        "vectors."
                    )
            case "/":
                if not last.is_number:
                    wrong = f"one can divide by a number only, and this is {last}."
            case "@":
                result = Shape(first.rows, last.columns)
                if first.columns != last.rows:
                    wrong = f"{first} times {last} does not fit together{_hint(first, last)}."
            case "transpose" | "pinv":
                result = Shape(first.columns, first.rows)
            case "inv":
                if first.rows != first.columns:
                    wrong = f"inv needs a square matrix, and this is {first}; try pinv."
            case "hstack":
                if any(shape.rows != first.rows for shape in arguments):
                    wrong = "hstack needs matrices with the same rows."
                columns = tuple(letter for shape in arguments for letter in shape.columns)
                result = Shape(first.rows, columns)
            case "dot" | "outer":
                result = Shape(first.rows, last.rows) if op == "outer" else Shape()
                if not (first.is_column and last.is_column):
                    wrong = f"{op} takes two vectors (columns), and got {first} and {last}."
                elif op == "dot" and first != last:
                    wrong = f"dot needs two vectors of one length, got {first} and {last}."
            case "norm" | "unit":
                result = Shape() if op == "norm" else first
                if ONE not in (first.rows, first.columns):
                    wrong = f"{op} takes a vector, and this is {first}."
            case _:
                if not first.is_number:
                    wrong = f"{op} takes a number, and this is {first}."
        if wrong:
            raise UndefinedError(wrong)
        return result


def _hint(left: Shape, right: Shape) -> str:
    if left.is_column and right.is_column:
        return "; write dot(x, y) or x.T @ y for a number, outer(x, y) for a matrix"
    return "; write * to multiply by a number" if left.is_number or right.is_number else ""


@dataclass(frozen=True)
class Construction:
    """The formulas of one answer, and the shape of each in letters."""

    problem: Problem
    expressions: dict[str, Expression] = field(default_factory=dict)
    shapes: dict[str, Shape] = field(default_factory=dict)

    @property
    def texts(self) -> dict[str, str]:
        return {n: e.source.split("=", 1)[1].strip() for n, e in self.expressions.items()}


def read_construction(problem: Problem, assignments: Sequence[str]) -> Construction:
    """Parse every `name=formula`; what may not be written is an ExpressionError."""
    read = Construction(problem)
    wanted = {s: w for w in problem.wanted for s in (w.name, *w.aliases)}
    shapes = Shapes({given.name: given.shape for given in problem.givens})
    for text in assignments:
        left, equals, right = text.partition("=")
        name = left.strip()
        if not equals:
            names = " or ".join(" ".join(f'"{n}=..."' for n in form) for form in problem.forms)
            raise ExpressionError(f"{problem.name} expects {names}.", text, 1)
        if name not in wanted:
            meant = did_you_mean(name[:40], {w.name for w in problem.wanted})
            sentence = f'{problem.name} does not ask for "{name[:40]}".{meant}'
            raise ExpressionError(sentence, text, 1)
        target = wanted[name]
        if target.name in read.expressions:
            raise UserError(f"{target.name} is written twice.")
        known = {} if target.plain else problem.spellings()
        expression = parse(right, known, problem.refused, len(left) + 1, text)
        read.expressions[target.name] = expression
        read.shapes[target.name] = evaluate(expression, shapes)
    if not any(set(read.expressions) == set(form) for form in problem.forms):
        forms = " or ".join(", ".join(form) for form in problem.forms)
        got = ", ".join(sorted(read.expressions)) or "nothing"
        raise UserError(f"{problem.name} needs {forms}, and this gives {got}.")
    letters = sorted({e.factor for e in read.expressions.values()} - {""})
    if len(letters) > 1 and problem.family == "words":
        told = " and ".join(letters)
        raise UserError(f"{told} stand for one number here, the norm of every u; write beta.")
    return read
