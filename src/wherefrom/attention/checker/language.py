"""The expression language: texts such as "q=beta*(k_a+k_b)" in, checked formulas out.

Nothing of a text is handed to Python: `reading` gives tokens, `_Parser` copies them through an
allow-list into `Node`s, and only those are evaluated. Vectors are columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import reduce
from typing import TYPE_CHECKING, Any

from wherefrom.attention.checker.reading import (
    MAX_LENGTH,
    ExpressionError,
    FixedFactorError,
    Statement,
    Token,
    decimal_points,
    ranges,
    say,
    split,
    tokenize,
    without_prose,
)
from wherefrom.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from wherefrom.attention.checker import Problem, Variable

__all__ = ["MAX_LENGTH", "ExpressionError", "evaluate", "parse", "read_construction"]

MAX_NODES = 120
MAX_DEPTH = 25
MAX_POWER = 8
MAX_NUMBER = 10**12  # of a number that is written; results have their own cap
MAX_SOLVES = 4  # inv and pinv cost a factorisation each
MAX_BLOCKS = 12
# other spellings of one letter for the large factor; two different letters are two factors
SAME_LETTER = {"lambda": "lam", "t_1": "t1", "t_2": "t2"}
# how many arguments each function takes: least, most
FUNCTIONS = dict.fromkeys(
    ("abs", "exp", "inv", "log", "norm", "pinv", "sqrt", "transpose", "unit"), (1, 1)
)
FUNCTIONS |= {"dot": (2, 2), "outer": (2, 2), "hstack": (2, MAX_BLOCKS)}
BY_NAME = ("exp", "log", "sin", "cos")  # may be written without brackets, as in sin t
ENTRYWISE = ("relu", "softmax", "layernorm", "mask")  # of a matrix, some row by row
ALIASES = {"ReLU": "relu", "LayerNorm": "layernorm", "causal": "mask", "inner": "dot"}
ALIASES |= {"Θ": "O", "Theta": "O", "ln": "log", "inverse": "inv", "matmul": "dot"}
CLOSING = {"(": ")", "{": "}", "[": "]"}
BINARY = {"+": 1, "-": 1} | dict.fromkeys("*/@·⊙⊗", 2)  # operator -> how tightly it binds
FACTOR_BEGINS = ("name", "(", "{", "[", "frac", "sqrt", "sum", "⟨")  # of a product without a sign
ONE = ("1",)


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
            return algebra.matrix(node.number)
        if node.op == "name":
            return algebra.values[node.name]
        arguments = [value(child) for child in node.arguments]
        try:
            exponent = [int(node.number)] if node.op == "**" else []
            return algebra.apply(node.op, arguments + exponent)
        except UndefinedError as problem:
            raise ExpressionError(
                str(problem), expression.source, node.column, too_large=problem.too_large
            ) from None

    return value(expression.tree)


def write(node: Node, level: float = 0) -> str:
    """The node as it could be written again, in brackets if it binds less than `level`."""
    op, parts, binds = node.op, node.arguments, 4.0
    if op == "number":
        whole = node.number.denominator == 1
        exact = whole or Fraction(str(float(node.number))) != node.number
        text = str(node.number) if exact else f"{float(node.number):g}"
        binds = 4 if whole and node.number >= 0 else 2
    elif op == "name":
        text = node.name
    elif op in ("**", "pow"):
        power = str(node.number) if op == "**" else write(parts[1], 4)
        text, binds = f"{write(parts[0], 4)}**{power}", 3
    elif op == "transpose":
        text = f"{write(parts[0], 4)}.T"
    elif op == "*" and parts[0].op == "number" and parts[0].number == -1:
        text, binds = f"-{write(parts[1], 2)}", 1.5
    elif op in "+-":
        text, binds = f"{write(parts[0], 1)} {op} {write(parts[1], 2)}", 1
    elif op in "*/@":
        text, binds = f"{write(parts[0], 1.5)}{op}{write(parts[1], 3)}", 2
    else:
        inner = ", ".join(map(write, parts))
        text = f"[{inner}]" if op in ("hstack", "vstack") else f"{op}({inner})"
    return f"({text})" if binds < level else text


def parse(
    source: str, known: Mapping[str, str], refused: Mapping[str, str], shapes: Mapping[str, Shape]
) -> Expression:
    """Read one expression. `known`: spelling -> name, `refused`: name -> why it may not be written,
    `shapes`: name -> shape, which decides between the products."""
    tokens = tokenize(source, {*known, *refused, *FUNCTIONS, *ALIASES})
    return _Parser(source, tokens, known, refused, shapes).read()


@dataclass
class _Parser:
    """One pass from tokens to nodes, refusing whatever is not in the list."""

    source: str
    tokens: Sequence[Token]
    known: Mapping[str, str]
    refused: Mapping[str, str]
    shapes: Mapping[str, Shape]
    functions: Mapping[str, tuple[int, int]] = field(default_factory=lambda: FUNCTIONS)
    position: int = 0  # of the next token
    depth: int = 0  # atoms within atoms
    nodes: int = 0
    solves: int = 0
    factor: str = ""
    bars: tuple[str, ...] = ()  # norms and absolute values that are open
    names: set[str] = field(default_factory=set)

    def read(self) -> Expression:
        if not self.tokens:
            raise self.error(say("empty"))
        tree = self.expression()
        if self.kind:
            raise self.unexpected()
        tree, shape = self.typed(tree)
        written = self.source[self.tokens[0].column - 1 : self.tokens[-1].end - 1].strip()
        return Expression(self.source, tree, frozenset(self.names), self.factor, written, shape)

    def error(self, sentence: str, column: int = 0) -> ExpressionError:
        """An error at a column, or at the next token."""
        if not column and self.tokens:
            column = self.tokens[self.position].column if self.kind else self.tokens[-1].end
        return ExpressionError(sentence, self.source, column)

    def unexpected(self) -> ExpressionError:
        if self.kind in ("<", ">", "≫", "≪", "≠", "="):
            return self.error(say("comparison"))
        if self.kind == "word":
            return self.error(say("a_word", word=self.text[:40]))
        return self.error(say({"±": "two_signs", "∞": "infinity"}.get(self.kind, "incomplete")))

    @property
    def kind(self) -> str:
        return self.tokens[self.position].kind if self.position < len(self.tokens) else ""

    @property
    def text(self) -> str:
        return self.tokens[self.position].text if self.kind else ""

    def take(self, *kinds: str) -> Token | None:
        """The next token, if it is one of these."""
        if self.kind not in kinds or not self.kind:
            return None
        self.position += 1
        return self.tokens[self.position - 1]

    def expect(self, kind: str) -> None:
        if not self.take(kind):
            raise self.unexpected()

    def node(self, op: str, column: int, *arguments: Node, **rest: Any) -> Node:
        self.nodes += 1
        self.solves += op in ("inv", "pinv")
        if self.nodes > MAX_NODES:
            raise self.error(say("too_many_parts", most=MAX_NODES), column)
        if self.solves > MAX_SOLVES:
            raise self.error(say("too_many_inverses", most=MAX_SOLVES), column)
        return Node(op, column, arguments, **rest)

    def number(self, value: int | Fraction, column: int) -> Node:
        return self.node("number", column, number=Fraction(value))

    def negative(self, node: Node, column: int) -> Node:
        return self.node("*", column, self.number(-1, column), node)

    def expression(self, level: int = 1) -> Node:
        """A sum (level 1), a product (level 2) or one factor with its signs (level 3)."""
        signs = list[Token]()
        while sign := self.take("+", "-"):
            signs.append(sign)
        left = self.power()
        for sign in reversed(signs):
            left = self.negative(left, sign.column) if sign.kind == "-" else left
        while True:
            opens_bar = self.kind in ("‖", "|") and self.kind not in self.bars
            binds = BINARY.get(self.kind, 0)
            if binds >= level and (sign := self.take(self.kind)):
                left = self.node(sign.kind, left.column, left, self.expression(binds + 1))
            elif level < 3 and (opens_bar or self.kind in FACTOR_BEGINS):  # as in 2 k_a
                left = self.node("*", left.column, left, self.power())
            else:
                return left

    def power(self) -> Node:
        base = self.atom()
        while True:
            if self.take("'", "⊤"):
                base = self.node("transpose", base.column, base)
            elif self.take("^"):
                base = self.raised(base)
            elif "norm" in (base.op, *_ops(base)[:1]) and (self.kind, self.text) == ("name", "_2"):
                self.position += 1  # the Euclidean norm
            else:
                return base

    def raised(self, base: Node) -> Node:
        """A base and what follows ^: a transpose, an inverse, a root or a power."""
        end, column = self.tokens[self.position - 1].end, base.column
        opened = self.take("{", "(")
        minus = self.take("-")
        turned = self.text in ("T", "t", "H") and self.text not in self.known
        if self.take("⊤", "*") or (turned and self.take("name")):
            made = self.node("transpose", column, base)
        elif self.take("†", "+"):
            made = self.node("pinv", column, base)
        elif "pow" in self.functions and (opened or self.kind == "name"):
            power = self.expression() if opened else self.atom()
            made = self.node("pow", column, base, self.negative(power, end) if minus else power)
        else:
            token = self.take("number")
            try:
                value = Fraction(token.text if token else "")
                if opened and self.take("/") and (below := self.take("number")):
                    value /= Fraction(below.text)
            except (ValueError, ZeroDivisionError):
                raise self.error(say("bad_power", most=MAX_POWER), end) from None
            if value > MAX_POWER:
                raise self.error(say("power_too_large", most=MAX_POWER), end)
            if value == Fraction(1, 2):
                made = self.node("sqrt", column, base)
            elif value.denominator != 1:
                raise self.error(say("bad_power", most=MAX_POWER), end)
            elif minus and value == 1:
                made, minus = self.node("inv", column, base), None
            else:
                made = self.node("**", column, base, number=value)
            if minus:
                made = self.node("/", column, self.number(1, column), made)
        if opened:
            self.expect(CLOSING[opened.kind])
        return made

    def atom(self) -> Node:
        """A number, a name, a call, a sum over keys, or anything in brackets or bars."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.error(say("too_deep", most=MAX_DEPTH))
        if not self.kind:
            raise self.error(say("incomplete"))
        before, token = self.tokens[max(0, self.position - 1)], self.tokens[self.position]
        touches = before.end == token.column and before.kind in ("name", ")", "]")
        self.position += 1
        match token.kind:
            case "number":
                made = self.literal(token)
            case "name":
                made = self.named(token)
            case "[" if touches and "]" in (t.kind for t in self.tokens[self.position :][:2]):
                raise self.error(say("square_brackets"), before.column)
            case "(" | "{" | "[":
                made = replace(self.blocks(token), column=token.column)
            case "‖" | "|":
                op = "norm" if token.kind == "‖" else "bars"
                made = self.node(op, token.column, self.group(token.kind))
            case "⟨":
                left = self.expression()
                self.expect(",")
                made = self.node("dot", token.column, left, self.group("⟩"))
            case "frac":
                top = self.fraction_part()
                made = self.node("/", token.column, top, self.fraction_part())
            case "sqrt":
                made = self.node("sqrt", token.column, self.fraction_part())
            case "sum":
                made = self.big_sum(token)
            case _:
                self.position -= 1
                raise self.unexpected()
        self.depth -= 1
        return made

    def group(self, closing: str) -> Node:
        return self.items(closing)[0][0]

    def items(self, closing: str, separators: str = "", spaced: bool = False) -> list[list[Node]]:
        """Expressions up to a closing bracket, in rows that end with a semicolon; `spaced`: entries
        may be numbers with blanks between them, as in [1 0; 0 1]."""
        outer = self.bars
        self.bars = (*outer, closing) if closing in ("‖", "|") else ()
        rows = [[self.expression()]]
        while self.kind in tuple(separators) or (spaced and self.kind in ("number", "-")):
            rows += [[]] if self.take(";") else []
            self.take(",", "|")
            rows[-1].append(self.expression())
        self.expect(closing)
        self.bars = outer
        return rows

    def blocks(self, token: Token) -> Node:
        """[A, B], which is hstack(A, B); rows in brackets, which are below each other; or x."""
        rows, column = (
            self.items(CLOSING[token.kind], ",;|", spaced=token.kind == "["),
            token.column,
        )
        if max(len(rows), *map(len, rows)) > MAX_BLOCKS:
            raise self.error(say("too_many_blocks", most=MAX_BLOCKS), column)
        parts = [x[0] if len(x) == 1 else self.node("hstack", column, *x) for x in rows]
        below = len(rows) > 1 or all(part.op == "hstack" for part in rows[0])
        parts = parts if len(rows) > 1 else rows[0]
        op = "vstack" if below else "hstack"
        return parts[0] if len(parts) == 1 else self.node(op, column, *parts)

    def fraction_part(self) -> Node:
        """What follows a command: a group, or one digit or name."""
        if opened := self.take("{", "("):
            return self.group(CLOSING[opened.kind])
        if self.kind == "number" and len(self.text) == 2 and self.text.isdigit():  # as in \frac12
            both, i = self.tokens[self.position], self.position
            digits = [
                replace(both, text=x, column=both.column + j) for j, x in enumerate(both.text)
            ]
            self.tokens = [*self.tokens[:i], *digits, *self.tokens[i + 1 :]]
        return self.atom()

    def literal(self, token: Token) -> Node:
        value = Fraction(token.text) if len(token.text) < 40 else Fraction(MAX_NUMBER + 1)
        if value > MAX_NUMBER:
            raise self.error(say("number_too_large"), token.column)
        if 0 < value < Fraction(1, MAX_NUMBER):
            raise self.error(say("number_too_small"), token.column)
        return self.number(value, token.column)

    def named(self, token: Token) -> Node:
        """What a name stands for, with its arguments if it is a function."""
        name = ALIASES.get(token.text, token.text)
        if name not in self.known:
            if name in self.functions:
                return self.call(name, token.column)
            if name == "e" and self.take("^"):
                power = self.group("}") if self.take("{") else self.expression(3)
                return self.node("exp", token.column, power)
        return self.given(token.text, token.column)

    def given(self, name: str, column: int) -> Node:
        """The node of a name that may be written."""
        if name not in self.known:
            raise self.error(self.refused.get(name) or self.unknown(name), column)
        stands_for = self.known[name]
        self.names.add(stands_for)
        if stands_for == "beta":
            letter = SAME_LETTER.get(name, name)
            if letter != (self.factor or letter):
                raise self.error(say("two_factors", one=self.factor, other=letter), column)
            self.factor = letter
        return self.node("name", column, name=stands_for)

    def unknown(self, name: str) -> str:
        """The sentence about a name without a meaning, which has just been taken."""
        said = name[:40]
        if self.kind == "(" and len(name) > 2:
            return say("no_function", said=said, meant=did_you_mean(said, self.functions))
        if self.kind == "[":
            return say("which_key", said=said)
        factor = (
            " A large factor is written beta." if len(name) == 1 and "beta" in self.known else ""
        )
        return say(
            "no_name", said=said, meant=factor + did_you_mean(said, set(self.known.values()))
        )

    def call(self, name: str, column: int) -> Node:
        if not self.take("("):
            if name not in BY_NAME or self.kind not in ("name", "number", "{", "frac"):
                raise self.error(say("a_function", name=name), column)
            inner = self.power()  # \exp\beta
            while name in ("sin", "cos") and self.kind in ("name", "/"):  # sin t theta, sin t/2
                op = "/" if self.take("/") else "*"
                inner = self.node(op, column, inner, self.power())
            return self.node(name, column, inner)
        arguments = [] if self.kind == ")" else self.items(")", ",")[0]
        least, most = self.functions[name]
        if not least <= len(arguments) <= most:
            takes = f"{least if least == most else f'{least} to {most}'} argument{'s' * (most > 1)}"
            raise self.error(say("arguments", name=name, takes=takes, has=len(arguments)), column)
        return self.node(name, column, *arguments)

    def big_sum(self, token: Token) -> Node:
        """A sum over keys, k_i, or over a basis, a_i a_i^T, as the name that stands for it."""
        column, picked, sign = token.column, list[str](), ""
        subscript = self.take("name")
        if subscript is None or not subscript.text.startswith("_"):
            raise self.error(say("sum_without_index"), column)
        index = subscript.text[1:]
        if not index and self.take("{"):
            inside = self.braced()
            index, *picked = [t.text for t in inside if t.kind in ("name", "word")] or ["i"]
            kinds = {t.kind for t in inside}
            sign = "-" if kinds & {"≠", "∉"} else "+" if "∈" in kinds else ""
        if self.take("^"):  # up to where
            self.braced() if self.take("{") else self.take(self.kind)
        factors = list[Node]()  # as in \sum_i \beta k_i
        while self.kind and not self.text.endswith(f"_{index}"):
            factors.append(self.power())
            self.take("*", "·")
        name = self.text
        stem = name.removesuffix(f"_{index}")
        if not stem or not self.take("name"):
            raise self.error(say("unknown_sum"), column)
        if self.text == name and stem.upper() in self.known:  # a_i a_i^T
            self.position += 1
            if not self.take("'"):
                self.take("^")
                self.expect("⊤")
            basis = self.given(stem.upper(), column)
            total = self.node("@", column, basis, self.node("transpose", 0, basis))
        elif "sum_all" in self.known.values():
            total = self.sum_of_keys(stem, picked if sign else [], sign, column)
        else:
            raise self.error(say("unknown_sum"), column)
        return reduce(lambda x, y: self.node("*", column, x, y), [*factors, total])

    def braced(self) -> list[Token]:
        """The tokens up to the brace that closes the one just taken."""
        first, depth = self.position, 1
        while depth and self.kind:
            depth += (self.kind == "{") - (self.kind == "}")
            self.position += 1
        return list(self.tokens[first : self.position - 1])

    def sum_of_keys(self, stem: str, picked: list[str], sign: str, column: int) -> Node:
        """All keys, those picked (sign +), or all but those (sign -)."""
        some = next(x for x in "abj" if f"{stem}_{x}" in {*self.known, *self.refused, f"{stem}_j"})
        self.given(f"{stem}_{some}", column)  # keys of this name exist, or it says why not
        everything = set(picked) == {x for x in "abj" if f"{stem}_{x}" in self.known}
        if sign == "-" and everything and picked:
            return self.given("sum_others", column)
        keys = [self.given(f"{stem}_{letter}", column) for letter in picked]
        start = [] if sign == "+" and keys else [self.given("sum_all", column)]
        return reduce(lambda x, y: self.node(sign, column, x, y), [*start, *keys])

    def typed(self, node: Node) -> tuple[Node, Shape]:
        """The node with every product as the one that the shapes allow, and its shape."""
        if node.op in ("name", "number"):
            return node, self.shapes[node.name] if node.name else Shape()
        parts, shapes = zip(*map(self.typed, node.arguments), strict=True)
        op, first, last = node.op, shapes[0], shapes[-1]
        if op == "⊙" and not (first.is_number or last.is_number):
            raise self.error(say("entry_by_entry"), node.column)
        if op in ("*", "·", "⊙"):
            product = "dot" if op == "·" and first.is_column and last.is_column else "@"
            op = "*" if first.is_number or last.is_number else product
        elif op == "dot" and not (first.is_column and last.is_column):
            op = "@"  # numpy's
        elif op == "⊗":
            op = "outer"
        elif op == "bars":
            op = "abs" if first.is_number else "norm"
        elif op == "inv" and first.is_number:
            op, parts = "/", (Node("number", node.column, number=Fraction(1)), *parts)
            shapes = (Shape(), *shapes)
        shape = _shape(op, shapes)
        if isinstance(shape, str):
            raise self.error(shape, node.column)
        return replace(node, op=op, arguments=parts), shape


def _ops(node: Node) -> list[str]:
    return [op for part in node.arguments for op in (part.op, *_ops(part))]


def _shape(op: str, shapes: Sequence[Shape]) -> Shape | str:
    """The shape of a result, or the sentence that says why the shapes do not fit.
    Sizes are letters: `A @ B.T` is refused because m and p need not be equal."""
    first, last = shapes[0], shapes[-1]
    vectors = first.is_column and last.is_column
    one_row = ONE in (first.rows, first.columns)
    match op:
        case "+" | "-":
            return first if first == last else say("not_added", first=first, last=last)
        case "*":
            return last if first.is_number else first
        case "/":
            return first if last.is_number else say("not_divided", last=last)
        case "@":
            if first.columns == last.rows:
                return Shape(first.rows, last.columns)
            hint = say("multiply_vectors") if vectors else ""
            hint = say("multiply_numbers") if first.is_number or last.is_number else hint
            return say("not_multiplied", first=first, last=last, hint=hint)
        case "**":
            return first if first.is_number else say("not_raised", first=first)
        case "transpose" | "pinv":
            return Shape(first.columns, first.rows)
        case "inv":
            return first if first.rows == first.columns else say("not_square", first=first)
        case "hstack":
            columns = tuple(letter for shape in shapes for letter in shape.columns)
            same = all(shape.rows == first.rows for shape in shapes)
            return Shape(first.rows, columns) if same else say("uneven_rows")
        case "vstack":
            rows = tuple(letter for shape in shapes for letter in shape.rows)
            same = all(shape.columns == first.columns for shape in shapes)
            return Shape(rows, first.columns) if same else say("uneven_columns")
        case "dot":
            fit = vectors and first == last
            return Shape() if fit else say("no_dot", first=first, last=last)
        case "outer":
            shape = Shape(first.rows, last.rows)
            return shape if vectors else say("no_outer", first=first, last=last)
        case "norm" | "unit":
            shape = Shape() if op == "norm" else first
            return shape if one_row else say("no_vector", op=op, first=first)
    if op in ENTRYWISE:
        return say("no_matrix", op=op) if first.is_number else first
    return first if first.is_number else say("no_number", op=op, first=first)


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
    functions = FUNCTIONS | dict.fromkeys(problem.functions.split(), (1, 1))
    vocabulary = {*spellings, *problem.refused, *wanted, *functions, *ALIASES}
    statements = _statements(problem, texts, vocabulary, wanted)
    only = problem.forms[0][0] if len(problem.forms[0]) == 1 else ""
    forms = " or ".join(" and ".join(form) for form in problem.forms)
    asked = {"problem": problem.name, "asked": forms, "first": forms.split()[0]}
    any_wanted = any(t.text in wanted for _, statement in statements for t in statement.names)
    for text, statement in statements:
        unnamed = only
        if problem.family == "cost":  # only the perceiver has m latents
            letters = {t.text for tokens in statement.formulas for t in tokens}
            unnamed = "perceiver" if {"m", "M"} & letters else "vanilla"
        for name, column in [(t.text, t.column) for t in statement.names] or [(unnamed, 1)]:
            no_key = "_" not in name or name[-1].isdigit()
            if only and no_key and name not in vocabulary and not any_wanted:  # g = ..., for q
                name = only
            if name not in wanted:
                begins = say("begins", name=name[:40]) if name else ""
                raise ExpressionError(say("asks_for", begins=begins, **asked), text, column)
            target = wanted[name]
            if target.name in read.expressions:
                if problem.family not in ("keys", "extract", "words"):
                    raise UserError(f"{target.name} is written twice.")
                read.again.append((target.name, read.expressions[target.name]))
            known = {} if target.plain else spellings
            *others, last = [
                _Parser(text, tokens, known, problem.refused, shapes, functions).read()
                for tokens in statement.formulas or [[]]
            ]
            read.expressions[target.name] = last
            read.again.extend((target.name, expression) for expression in others)
    if not any(set(read.expressions) == set(form) for form in problem.forms):
        got = ", ".join(sorted(read.expressions)) or "no formula"
        raise UserError(say("needs", got=got, **asked))
    factors = sorted({e.factor for e in read.expressions.values()} - {""})
    if len(factors) > 1 and problem.family == "words":
        raise UserError(say("one_norm", letters=" and ".join(factors)))
    return read


def _statements(
    problem: Problem, texts: Sequence[str], vocabulary: set[str], wanted: Mapping[str, Variable]
) -> list[tuple[str, Statement]]:
    """The statements of all texts, each with its text."""
    factors = {s for s, name in problem.spellings().items() if name in ("beta", "n")}
    rows = {name for name, target in wanted.items() if str(target.shape) == "any"}
    if len(problem.forms[0]) == 1 and problem.forms[0][0] in rows:
        rows.add("")
    lines = list[str]()
    for text in texts:
        if lines and text.lstrip("$ \t").startswith("="):  # goes on with the line before
            lines[-1] += f"\n{text}"
        else:
            lines.append(text)
    if not rows:
        lines = [part for line in lines for part in ranges(decimal_points(line))]

    def read(text: str) -> list[Statement]:
        return split(text, tokenize(text, vocabulary), vocabulary, wanted, factors, rows)

    statements = list[tuple[str, Statement]]()
    for line in lines:
        try:
            found = read(line)
        except FixedFactorError:
            raise
        except ExpressionError:
            formulas = without_prose(line, vocabulary, wanted)
            if not formulas:
                raise
            found = read(formulas)
        statements += [(line, statement) for statement in found]
    return statements
