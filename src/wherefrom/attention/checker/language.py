"""The expression language: texts such as "q=beta*(k_a+k_b)" in, checked formulas out.

A construction comes from somebody unknown, so nothing of it is handed to Python. `reading` gives
tokens, `_Parser` copies them through an allow-list into `Node`s, and only those are evaluated.
Vectors are columns: `k_a.T @ k_b` is a number and `u_b @ u_b.T` a matrix. A product without a
sign, or with * between matrices, is the one that the shapes allow; `write` shows what was read.

An algebra gives the nodes a meaning: floating point matrices or exact ones (`instances`). What may
not be written is an ExpressionError, the only exception that leaves this module: one sentence with
the column and a caret under it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from wherefrom.attention.checker.reading import (
    MAX_LENGTH,
    TWO_SIGNS,
    ExpressionError,
    Statement,
    Token,
    split,
    tokenize,
)
from wherefrom.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from wherefrom.attention.checker.problems import Problem

__all__ = ["MAX_LENGTH", "ExpressionError", "evaluate", "parse", "read_construction"]

MAX_NODES = 120
MAX_DEPTH = 25
MAX_POWER = 8
MAX_NUMBER = 10**12  # of a number that is written; results have their own cap
MAX_SOLVES = 4  # inv and pinv cost a factorisation each

# other spellings of one letter for the large factor; two different letters are two factors
SAME_LETTER = {"lambda": "lam", "lambda_": "lam", "t_1": "t1", "t_2": "t2"}

ONE_ARGUMENT = ("abs", "exp", "inv", "log", "norm", "pinv", "sqrt", "transpose", "unit")
# how many arguments each function takes: least, most
FUNCTIONS = dict.fromkeys(ONE_ARGUMENT, (1, 1)) | {
    "dot": (2, 2),
    "outer": (2, 2),
    "hstack": (2, 12),
}
BY_NAME = ("exp", "log", "sin", "cos")  # may be written without brackets, as in sin t
ENTRYWISE = ("relu", "softmax", "layernorm", "mask")  # of a matrix, some row by row
FUNCTION_ALIASES = {
    "ReLU": "relu",
    "LayerNorm": "layernorm",
    "causal": "mask",
    "inner": "dot",
    "ln": "log",
    "inverse": "inv",
    "normalize": "unit",
}


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
    written: str  # the part of the source that it is
    shape: Shape


def evaluate(expression: Expression, algebra: Any) -> Any:
    """The value of an expression in an algebra; what has no value is an ExpressionError."""

    def value(node: Node) -> Any:
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


def write(node: Node) -> str:
    """The node as it could be written again, in the strict form of the language."""

    def inside(node: Node, level: float) -> str:
        text, own = _written(node)
        return f"({text})" if own < level else text

    def _written(node: Node) -> tuple[str, float]:
        op, parts = node.op, node.arguments
        if op == "number":
            value = node.number
            whole = value.denominator == 1
            exact = whole or Fraction(str(float(value))) != value
            return str(value) if exact else f"{float(value):g}", 4 if whole and value >= 0 else 2
        if op == "name":
            return node.name, 4
        if op == "**":
            return f"{inside(parts[0], 4)}**{node.number}", 3
        if op == "transpose":
            return f"{inside(parts[0], 4)}.T", 4
        if op == "*" and parts[0].op == "number" and parts[0].number == -1:
            return f"-{inside(parts[1], 2)}", 1.5
        if op in "+-":
            return f"{inside(parts[0], 1)} {op} {inside(parts[1], 2)}", 1
        if op == "pow":
            return f"{inside(parts[0], 4)}**{inside(parts[1], 4)}", 3
        if op in ("hstack", "vstack"):
            return f"[{', '.join(inside(part, 0) for part in parts)}]", 4
        if op in "*/@":
            return f"{inside(parts[0], 1.5)}{op}{inside(parts[1], 3)}", 2
        return f"{op}({', '.join(inside(part, 0) for part in parts)})", 4

    return inside(node, 0)


def parse(
    source: str,
    known: Mapping[str, str],
    refused: Mapping[str, str] | None = None,
    shapes: Mapping[str, Shape] | None = None,
    more: Sequence[str] = (),
) -> Expression:
    """Read one expression.

    known    every spelling that may be written -> the name it stands for
    refused  names with a reason of their own for not being writable, as a sentence
    shapes   of the names; with them products are the ones that the shapes allow
    more     functions besides the usual ones
    """
    functions = FUNCTIONS | dict.fromkeys(more, (1, 1))
    vocabulary = {*known, *(refused or {}), *functions, *FUNCTION_ALIASES}
    tokens = tokenize(source, vocabulary)
    return _Parser(source, tokens, known, refused or {}, shapes or {}, functions).read()


INCOMPLETE = "this is not a complete formula (is an operator or a bracket missing?)."
OPENING = {"(": ")", "{": "}", "[": "]"}


@dataclass
class _Parser:
    """One pass from tokens to nodes, refusing whatever is not in the list."""

    source: str
    tokens: Sequence[Token]
    known: Mapping[str, str]
    refused: Mapping[str, str]
    shapes: Mapping[str, Shape]
    functions: Mapping[str, tuple[int, int]] = field(default_factory=lambda: FUNCTIONS)
    at: int = 0
    nodes: int = 0
    solves: int = 0
    factor: str = ""
    index: str = ""  # of the sum that is being read, as in k_i
    bars: tuple[str, ...] = ()  # norms and absolute values that are open
    names: set[str] = field(default_factory=set)

    def read(self) -> Expression:
        if not self.tokens:
            raise self.error("an expression is expected here.")
        tree = self.sum(1)
        if self.at < len(self.tokens):
            raise self.error(self.unexpected())
        tree, shape = self.typed(tree) if self.shapes else (tree, Shape())
        written = self.source[self.tokens[0].column - 1 : self.tokens[-1].end - 1].strip()
        return Expression(self.source, tree, frozenset(self.names), self.factor, written, shape)

    def error(self, sentence: str, column: int = 0) -> ExpressionError:
        end = self.tokens[-1].end if self.tokens else 1
        here = self.tokens[self.at].column if self.at < len(self.tokens) else end
        return ExpressionError(sentence, self.source, column or here)

    def unexpected(self) -> str:
        kind = self.kind
        if kind == "±":
            return TWO_SIGNS
        if kind in ("<", ">", "≫", "≪", "≠", "=", "!="):
            return "a comparison may not be written here."
        if kind == "word":
            return f'the word "{self.tokens[self.at].text[:40]}" may not be written here.'
        return INCOMPLETE

    @property
    def kind(self) -> str:
        return self.tokens[self.at].kind if self.at < len(self.tokens) else ""

    def take(self, *kinds: str) -> Token | None:
        """The next token, if it is one of these."""
        if self.kind not in kinds or not self.kind:
            return None
        self.at += 1
        return self.tokens[self.at - 1]

    def expect(self, kind: str) -> None:
        if not self.take(kind):
            raise self.error(self.unexpected())

    def node(self, op: str, column: int, *arguments: Node, **rest: Any) -> Node:
        self.nodes += 1
        self.solves += op in ("inv", "pinv")
        if self.nodes > MAX_NODES:
            raise self.error(f"a formula may have {MAX_NODES} parts and this has more.", column)
        if self.solves > MAX_SOLVES:
            raise self.error(f"inv and pinv may be used {MAX_SOLVES} times together.", column)
        return Node(op, column, arguments, **rest)

    def sum(self, depth: int) -> Node:
        left = self.term(depth)
        while sign := self.take("+", "-"):
            left = self.node(sign.kind, left.column, left, self.term(depth))
        return left

    def term(self, depth: int) -> Node:
        left = self.unary(depth)
        while True:
            if sign := self.take("*", "/", "@", "·", "⊙"):
                left = self.node(sign.kind, left.column, left, self.unary(depth))
            elif self.starts_factor():
                left = self.node("*", left.column, left, self.power(depth))
            else:
                return left

    def starts_factor(self) -> bool:
        """Does a factor without a sign follow, as in 2 k_a or t(k_a + k_b)?"""
        if self.kind in ("‖", "|"):
            return self.kind not in self.bars
        return self.kind in ("name", "(", "{", "[", "frac", "sqrt", "sum", "⟨")

    def unary(self, depth: int) -> Node:
        self.deep(depth)
        if self.take("+"):
            return self.unary(depth + 1)
        if sign := self.take("-"):
            minus = self.node("number", sign.column, number=Fraction(-1))
            return self.node("*", sign.column, minus, self.unary(depth + 1))
        return self.power(depth)

    def deep(self, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise self.error(f"brackets may be nested {MAX_DEPTH} deep and no deeper.")

    def power(self, depth: int) -> Node:
        base = self.atom(depth)
        while True:
            if self.take("'"):
                base = self.node("transpose", base.column, base)
            elif self.take("^"):
                base = self.raised(base, depth)
            elif (
                "norm" in (base.op, *_ops(base)[:1])
                and self.kind == "name"
                and self.tokens[self.at].text == "_2"
            ):
                self.at += 1  # the Euclidean norm, as ever
            else:
                return base

    def raised(self, base: Node, depth: int) -> Node:
        """A base and what follows ^: a transpose, an inverse or a power."""
        column, closing = self.tokens[self.at - 1].end, ""
        if opened := self.take("{", "("):
            closing = OPENING[opened.kind]
        sign = self.take("-")
        if self.take("⊤") or (self.kind == "name" and self.tokens[self.at].text == "T"):
            self.at += self.kind == "name" and self.tokens[self.at - 1].kind != "⊤"
            made = self.node("transpose", base.column, base)
        elif self.take("†", "+"):
            made = self.node("pinv", base.column, base)
        elif "pow" in self.functions and (closing or self.kind == "name"):
            power = self.sum(depth + 1) if closing else self.atom(depth + 1)
            minus = self.node("number", column, number=Fraction(-1))
            power = self.node("*", column, minus, power) if sign else power
            made = self.node("pow", base.column, base, power)
        else:
            value = self.exponent(column, in_bracket=bool(closing))
            made = self.to_power(base, value, -1 if sign else 1)
        if closing:
            self.expect(closing)
        return made

    def exponent(self, column: int, *, in_bracket: bool) -> Fraction:
        sentence = f"a power must be a written whole number from 0 to {MAX_POWER} "
        sentence += "(sqrt(x) and 1/x are there for the others)."
        if not (token := self.take("number", "power")):
            raise self.error(sentence, column)
        try:
            value = Fraction(token.text)
            if in_bracket and self.take("/") and (below := self.take("number")):
                value /= Fraction(below.text)
        except (ValueError, ZeroDivisionError):
            raise self.error(sentence, column) from None
        if value.denominator not in (1, 2) or (value.denominator == 2 and abs(value) > 1):
            raise self.error(sentence, column)
        if abs(value) > MAX_POWER:
            raise self.error(f"a power may be 0 to {MAX_POWER}.", column)
        return value

    def to_power(self, base: Node, value: Fraction, sign: int) -> Node:
        column, value = base.column, sign * value
        if value == -1:
            return self.node("inv", column, base)
        if value.denominator == 2:
            made = self.node("sqrt", column, base)
        else:
            made = self.node("**", column, base, number=abs(value))
        one = self.node("number", column, number=Fraction(1))
        return self.node("/", column, one, made) if value < 0 else made

    def atom(self, depth: int) -> Node:
        self.deep(depth)
        if self.at >= len(self.tokens):
            raise self.error(INCOMPLETE)
        token = self.tokens[self.at]
        self.at += 1
        match token.kind:
            case "number":
                return self.node("number", token.column, number=self.literal(token))
            case "name":
                return self.named(token, depth)
            case "(" | "{":
                outer, self.bars = self.bars, ()
                inner = self.blocks(token, depth)
                self.bars = outer
                return replace(inner, column=token.column)
            case "[":
                before = self.tokens[self.at - 2] if self.at > 1 else token
                if before.end == token.column and before.kind in ("name", ")", "]"):
                    sentence = "an index in square brackets may not be written here."
                    raise self.error(sentence, before.column)
                return self.blocks(token, depth)
            case "‖" | "|":
                inner = self.group(depth, token.kind)
                return self.node("norm" if token.kind == "‖" else "bars", token.column, inner)
            case "⟨":
                left = self.sum(depth + 1)
                self.expect(",")
                return self.node("dot", token.column, left, self.group(depth, "⟩"))
            case "frac":
                sides = self.fraction_part(depth), self.fraction_part(depth)
                return self.node("/", token.column, *sides)
            case "sqrt":
                return self.node("sqrt", token.column, self.fraction_part(depth))
            case "sum":
                return self.big_sum(token, depth)
        self.at -= 1
        raise self.error(self.unexpected())

    def group(self, depth: int, closing: str) -> Node:
        outer = self.bars
        self.bars = (*outer, closing) if closing in ("‖", "|") else ()
        inner = self.sum(depth + 1)
        self.expect(closing)
        self.bars = outer
        return inner

    def blocks(self, token: Token, depth: int) -> Node:
        """[A, B], which is hstack(A, B); rows in brackets, which stand below each other; or x."""
        parts = [self.sum(depth + 1)]
        while self.take(",", ";", "|"):
            parts.append(self.sum(depth + 1))
        self.expect(OPENING[token.kind])
        if len(parts) > FUNCTIONS["hstack"][1]:
            most = FUNCTIONS["hstack"][1]
            raise self.error(f"at most {most} blocks may stand side by side.", token.column)
        below = all(part.op == "hstack" for part in parts)
        op = "vstack" if below else "hstack"
        return parts[0] if len(parts) == 1 else self.node(op, token.column, *parts)

    def fraction_part(self, depth: int) -> Node:
        """What follows a command: a group, or one digit or name."""
        if opened := self.take("{", "("):
            return self.group(depth, OPENING[opened.kind])
        token = self.tokens[self.at] if self.at < len(self.tokens) else None
        if token and token.kind == "number" and len(token.text) == 2 and token.text.isdigit():
            first, second = (  # as in \frac12
                Token("number", digit, token.column + i, token.column + i + 1)
                for i, digit in enumerate(token.text)
            )
            self.tokens = [*self.tokens[: self.at], first, second, *self.tokens[self.at + 1 :]]
        return self.atom(depth + 1)

    def literal(self, token: Token) -> Fraction:
        value = Fraction(token.text) if len(token.text) < 40 else Fraction(MAX_NUMBER + 1)
        if value > MAX_NUMBER:
            sentence = "a written number may be 1e12 at most; beta is for large ones."
            raise self.error(sentence, token.column)
        if 0 < value < Fraction(1, MAX_NUMBER):
            raise self.error("a written number may not be below 1e-12, except 0.", token.column)
        return value

    def named(self, token: Token, depth: int) -> Node:
        name = FUNCTION_ALIASES.get(token.text, token.text)
        if name not in self.known:
            if name in self.functions:
                return self.call(name, token, depth)
            if name == "e" and self.take("^"):
                opened = self.take("{")
                power = self.group(depth, "}") if opened else self.unary(depth + 1)
                return self.node("exp", token.column, power)
            if self.index and name.endswith("_" + self.index):
                return self.node("indexed", token.column, name=name.removesuffix("_" + self.index))
        return self.node("name", token.column, name=self.resolve(token))

    def resolve(self, token: Token) -> str:
        name = token.text
        if name in self.known:
            self.names.add(self.known[name])
            if self.known[name] == "beta":
                letter = SAME_LETTER.get(name, name)
                if letter != (self.factor or letter):
                    raise self.error(
                        f"{self.factor} and {letter} are two large factors, and nothing says how "
                        "they compare; write one letter if they are equal.",
                        token.column,
                    )
                self.factor = letter
            return self.known[name]
        if name in self.refused:
            raise self.error(self.refused[name], token.column)
        if self.kind == "(" and len(name) > 2:
            meant = did_you_mean(name[:40], self.functions)
            raise self.error(f'there is no function "{name[:40]}".{meant}', token.column)
        meant = did_you_mean(name[:40], set(self.known.values()))
        if len(name) == 1 and "beta" in self.known:
            meant = f" A large factor is written beta.{meant}"
        raise self.error(f'there is no name "{name[:40]}" in this problem.{meant}', token.column)

    def call(self, name: str, token: Token, depth: int) -> Node:
        if not self.take("("):
            if name in BY_NAME and self.kind in ("name", "number", "{", "frac"):  # \exp\beta
                inner = self.power(depth + 1)
                while name in ("sin", "cos") and self.kind in ("name", "/"):  # sin t theta, sin t/2
                    op = "/" if self.take("/") else "*"
                    inner = self.node(op, token.column, inner, self.power(depth + 1))
                return self.node(name, token.column, inner)
            raise self.error(f"{name} is a function; write {name}(...).", token.column)
        outer, self.bars = self.bars, ()
        arguments = [] if self.kind == ")" else [self.sum(depth + 1)]
        while self.take(","):
            arguments.append(self.sum(depth + 1))
        least, most = self.functions[name]
        if self.kind == "=" or not least <= len(arguments) <= most:
            takes = f"{least if least == most else f'{least} to {most}'} argument"
            plural, count = "s" if most > 1 else "", len(arguments)
            sentence = f"{name} takes {takes}{plural}, and this has {count}."
            raise self.error(sentence, token.column)
        self.expect(")")
        self.bars = outer
        return self.node(name, token.column, *arguments)

    def big_sum(self, token: Token, depth: int) -> Node:
        """A sum over keys, k_i, or over a basis, a_i a_i^T, as the name that stands for it."""
        self.index, chosen, left_out = "i", list[str](), list[str]()
        subscript = self.take("name")
        if subscript is None or not subscript.text.startswith("_"):
            raise self.error("a sum needs its index, as in \\sum_i.", token.column)
        if subscript.text == "_" and self.take("{"):
            inside = self.braced()
            words = [t.text for t in inside if t.kind in ("name", "word")]
            self.index, *named = words or ["i"]
            kinds = {t.kind for t in inside}
            if kinds & {"≠", "!=", "∉"}:
                left_out = named
            elif "∈" in kinds:
                chosen = named
        else:
            self.index = subscript.text[1:]
        if self.take("^"):  # up to where
            if self.take("{"):
                self.braced()
            else:
                self.at += 1
        body = self.term(depth + 1)
        factors = _factors(body)
        indexed = [i for i, f in enumerate(factors) if "indexed" in (f.op, *_ops(f))]
        stems = {(*factors[i].arguments, factors[i])[0].name for i in indexed}
        ops = [factors[i].op for i in indexed]
        stem, self.index = stems.pop() if len(stems) == 1 else "", ""
        adjacent = indexed == list(range(indexed[0], indexed[0] + len(indexed))) if indexed else 0
        if adjacent and ops == ["indexed"] and "sum_all" in self.known.values():
            total = self.sum_of_keys(stem, chosen, left_out, token)
        elif adjacent and ops == ["indexed", "transpose"] and stem.upper() in self.known:
            basis = self.node("name", token.column, name=stem.upper())
            self.names.add(stem.upper())
            total = self.node("@", token.column, basis, self.node("transpose", 0, basis))
        else:
            sentence = "this sum is not understood; sums over keys and a_i a_i^T can be written."
            raise self.error(sentence, token.column)
        whole = [*factors[: indexed[0]], total, *factors[indexed[-1] + 1 :]]
        made = whole[0]
        for factor in whole[1:]:
            made = self.node("*", token.column, made, factor)
        return made

    def braced(self) -> list[Token]:
        """The tokens up to the brace that closes the one just taken."""
        first, depth = self.at, 1
        while depth and self.kind:
            depth += (self.kind == "{") - (self.kind == "}")
            self.at += 1
        return list(self.tokens[first : self.at - 1])

    def sum_of_keys(self, stem: str, chosen: list[str], left_out: list[str], at: Token) -> Node:
        """All keys, those chosen, or all but some."""

        def key(letter: str) -> Node:
            name = Token("name", f"{stem}_{letter}", at.column, at.end)
            return self.node("name", at.column, name=self.resolve(name))

        def total(name: str) -> Node:
            self.names.add(name)
            return self.node("name", at.column, name=name)

        key(next(x for x in "abj" if f"{stem}_{x}" in {*self.known, *self.refused, f"{stem}_j"}))
        named = {x for x in "abj" if f"{stem}_{x}" in self.known}
        if set(left_out) == named and left_out:
            return total("sum_others")
        made = None if chosen else total("sum_all")
        for letter in chosen or left_out:
            sign = "+" if chosen else "-"
            made = self.node(sign, at.column, made, key(letter)) if made else key(letter)
        assert made is not None
        return made

    def typed(self, node: Node) -> tuple[Node, Shape]:
        """The node with every product as the one that the shapes allow, and its shape."""
        if node.op == "name":
            return node, self.shapes[node.name]
        if node.op == "number":
            return node, Shape()
        if node.op == "indexed":
            raise self.error("an index stands for nothing outside a sum.", node.column)
        parts, shapes = zip(*map(self.typed, node.arguments), strict=True)
        op, first, last = node.op, shapes[0], shapes[-1]
        if op == "⊙" and not (first.is_number or last.is_number):
            raise self.error("a product entry by entry may not be written here.", node.column)
        if op in ("*", "·", "⊙"):
            product = "dot" if op == "·" and first.is_column and last.is_column else "@"
            op = "*" if first.is_number or last.is_number else product
        elif op == "bars":
            op = "abs" if first.is_number else "norm"
        elif op == "inv" and first.is_number:
            op, parts = "/", (Node("number", node.column, number=Fraction(1)), *parts)
            shapes = (Shape(), *shapes)
        fits, shape, wrong = _rule(op, shapes)
        if not fits:
            raise self.error(wrong, node.column)
        return replace(node, op=op, arguments=parts), shape


def _factors(node: Node) -> list[Node]:
    if node.op in ("*", "@", "·"):
        return [*_factors(node.arguments[0]), *_factors(node.arguments[1])]
    return [node]


def _ops(node: Node) -> list[str]:
    return [op for part in node.arguments for op in (part.op, *_ops(part))]


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
        if self.is_number or self.rows == ("any",):
            return "a number" if self.is_number else "any"
        sides = (self.rows, self.columns)
        return " x ".join("d" if side == ("m", "p", "r") else "+".join(side) for side in sides)


def _rule(op: str, shapes: Sequence[Shape]) -> tuple[bool, Shape, str]:
    """Of an operation: do the shapes fit, the shape of the result, and the sentence if not.

    Sizes are letters: `A @ B.T` is refused because m and p need not be equal.
    """
    first, last = shapes[0], shapes[-1]
    vectors = first.is_column and last.is_column
    number = first.is_number or last.is_number
    hint = "; write dot(x, y) or x.T @ y for a number, outer(x, y) for a matrix" if vectors else ""
    hint = "; write * to multiply by a number" if number else hint
    turned = Shape(first.columns, first.rows)
    columns = tuple(letter for shape in shapes for letter in shape.columns)
    row_or_column = ONE in (first.rows, first.columns)
    rules = {
        "+": (first == last, first, f"{first} and {last} cannot be added: the shapes differ."),
        "-": (first == last, first, f"{first} and {last} cannot be added: the shapes differ."),
        "*": (number, last if first.is_number else first, ""),
        "/": (last.is_number, first, f"one can divide by a number only, and this is {last}."),
        "@": (
            first.columns == last.rows,
            Shape(first.rows, last.columns),
            f"{first} times {last} does not fit together{hint}.",
        ),
        "**": (first.is_number, first, f"a power is of a number, and this is {first}."),
        "transpose": (True, turned, ""),
        "pinv": (True, turned, ""),
        "inv": (
            first.rows == first.columns,
            first,
            f"inv needs a square matrix, and this is {first}; try pinv.",
        ),
        "hstack": (
            all(shape.rows == first.rows for shape in shapes),
            Shape(first.rows, columns),
            "hstack needs matrices with the same rows.",
        ),
        "vstack": (
            all(shape.columns == first.columns for shape in shapes),
            Shape(tuple(letter for shape in shapes for letter in shape.rows), first.columns),
            "rows below each other need the same number of entries.",
        ),
        **dict.fromkeys(ENTRYWISE, (not first.is_number, first, f"{op} takes a matrix.")),
        "dot": (
            vectors and first == last,
            Shape(),
            f"dot takes two vectors (columns) of one length, and got {first} and {last}.",
        ),
        "outer": (
            vectors,
            Shape(first.rows, last.rows),
            f"outer takes two vectors (columns), and got {first} and {last}.",
        ),
        "norm": (row_or_column, Shape(), f"norm takes a vector, and this is {first}."),
        "unit": (row_or_column, first, f"unit takes a vector, and this is {first}."),
    }
    return rules.get(op, (first.is_number, first, f"{op} takes a number, and this is {first}."))


@dataclass(frozen=True)
class Construction:
    """The formulas of one answer."""

    problem: Problem
    expressions: dict[str, Expression] = field(default_factory=dict)
    again: list[tuple[str, Expression]] = field(default_factory=list)  # said to equal those

    @property
    def texts(self) -> dict[str, str]:
        return {name: e.written for name, e in self.expressions.items()}

    @property
    def read_as(self) -> dict[str, str]:
        return {name: write(e.tree) for name, e in self.expressions.items()}


def read_construction(problem: Problem, texts: Sequence[str]) -> Construction:
    """Read every `name = formula`; what may not be written is an ExpressionError."""
    read = Construction(problem)
    wanted = {s: w for w in problem.wanted for s in (w.name, *w.aliases)}
    spellings = problem.spellings()
    shapes = {given.name: given.shape for given in problem.givens}
    factors = {s for s, name in spellings.items() if name in ("beta", "n")}
    functions = FUNCTIONS | dict.fromkeys(problem.functions.split(), (1, 1))
    vocabulary = {*spellings, *problem.refused, *wanted, *functions, *FUNCTION_ALIASES}
    lines = list[str]()
    for text in texts:
        if lines and text.lstrip("$ \t").startswith("="):  # goes on with the line before
            lines[-1] += f"\n{text}"
        else:
            lines.append(text)
    for text in lines:
        for statement in split(text, tokenize(text, vocabulary), wanted, factors):
            for name in _targets(problem, statement, text):
                target = wanted[name]
                if target.name in read.expressions:
                    raise UserError(f"{target.name} is written twice.")
                known = {} if target.plain else spellings
                formulas = [
                    _Parser(text, tokens, known, problem.refused, shapes, functions).read()
                    for tokens in statement.formulas or [[]]
                ]
                read.expressions[target.name] = formulas[-1]
                read.again.extend((target.name, each) for each in formulas[:-1])
    if not any(set(read.expressions) == set(form) for form in problem.forms):
        forms = " or ".join(", ".join(form) for form in problem.forms)
        got = ", ".join(sorted(read.expressions)) or "nothing"
        raise UserError(f"{problem.name} needs {forms}, and this gives {got}.")
    letters = sorted({e.factor for e in read.expressions.values()} - {""})
    if len(letters) > 1 and problem.family == "words":
        told = " and ".join(letters)
        raise UserError(f"{told} stand for one number here, the norm of every u; write beta.")
    return read


def _targets(problem: Problem, statement: Statement, text: str) -> list[str]:
    """The names that a statement gives to its formula; one that has none is the only one asked."""
    wanted = {s: w.name for w in problem.wanted for s in (w.name, *w.aliases)}
    if not statement.names:
        if len(problem.forms[0]) == 1:
            return problem.forms[0]
        names = " or ".join(" ".join(f'"{n}=..."' for n in form) for form in problem.forms)
        raise ExpressionError(f"{problem.name} expects {names}.", text, 1)
    for token in statement.names:
        if token.text not in wanted:
            asked = " or ".join(" and ".join(form) for form in problem.forms)
            sentence = f'{problem.name} asks for {asked}, and this begins with "{token.text[:40]}".'
            raise ExpressionError(sentence, text, token.column)
    return [token.text for token in statement.names]
