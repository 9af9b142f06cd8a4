"""What a stranger may write: a small language of vectors and matrices, and nothing else.

A construction arrives as text from somebody we do not know, so it is never handed to Python.
It is parsed to a syntax tree (parsing runs nothing), and the tree is copied node by node through
an allow-list into the nodes of `checker.formula`; only those are ever evaluated.

Vectors are columns: `k_a.T @ k_b` is a number and `u_b @ u_b.T` a matrix. Everything that is
not allowed ends in an ExpressionError, the only exception that leaves this module, whose
message is one sentence with the column and a caret under it.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Mapping
from fractions import Fraction

from wherefrom.attention.checker.formula import (
    Binary,
    Call,
    Expression,
    ExpressionError,
    Name,
    Node,
    Number,
    Power,
    evaluate,
)
from wherefrom.errors import did_you_mean

__all__ = ["FUNCTIONS", "Expression", "ExpressionError", "evaluate", "parse"]

MAX_LENGTH = 400  # characters of one expression
MAX_NODES = 120
MAX_DEPTH = 25
MAX_POWER = 8
MAX_NUMBER = 10**12  # of a number that is written; results have their own cap
MAX_SOLVES = 4  # inv and pinv cost a factorisation each

# one character for one character, so that columns stay where the writer sees them
SPELLINGS = str.maketrans({"−": "-", "–": "-", "·": "*", "⋅": "*", "×": "*", "∗": "*"})

# how many arguments each function takes: least, most
FUNCTIONS: dict[str, tuple[int, int]] = {
    "abs": (1, 1),
    "dot": (2, 2),
    "exp": (1, 1),
    "hstack": (2, 4),
    "inv": (1, 1),
    "log": (1, 1),
    "norm": (1, 1),
    "outer": (2, 2),
    "pinv": (1, 1),
    "sqrt": (1, 1),
    "transpose": (1, 1),
    "unit": (1, 1),
}
FUNCTION_ALIASES = {"inner": "dot", "ln": "log", "inverse": "inv", "normalize": "unit"}

_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.MatMult: "@",
}


def parse(
    source: str,
    *,
    known: Mapping[str, str],
    refused: Mapping[str, str] | None = None,
    offset: int = 0,
    shown: str | None = None,
) -> Expression:
    """Read one expression.

    known    every spelling that may be written -> the name it stands for
    refused  names with a reason of their own for not being writable, as a sentence
    offset   where the expression begins inside `shown`, the text that the caret points into
    """
    return _Reader(source, known, refused or {}, offset, shown or source).read()


class _Reader:
    """One pass from Python's syntax tree to ours, refusing whatever is not in the list."""

    def __init__(
        self,
        source: str,
        known: Mapping[str, str],
        refused: Mapping[str, str],
        offset: int,
        shown: str,
    ) -> None:
        self.source, self.shown, self.offset = source, shown, offset
        self.known, self.refused = known, refused
        self.nodes = self.solves = 0
        self.names: set[str] = set()

    def read(self) -> Expression:
        if len(self.source) > MAX_LENGTH:
            raise self.error(
                f"an expression may have {MAX_LENGTH} characters and this has {len(self.source)}.",
                MAX_LENGTH,
            )
        text = self.source.translate(SPELLINGS)
        for index, character in enumerate(text):
            if not (character.isprintable() or character == "\t"):
                raise self.error("only characters that can be seen may be written.", index)
        if not text.strip():
            raise self.error("an expression is expected here.", 0)
        self.start = len(text) - len(text.lstrip())
        self.text = text.strip()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Python's advice on what is about to be refused
                tree = ast.parse(self.text, mode="eval")
        except SyntaxError as problem:
            raise self.error(*self.explain(problem)) from None
        except (ValueError, MemoryError, RecursionError, OverflowError):
            raise self.error("this is nested too deeply to be read.", self.start) from None
        return Expression(self.shown, self.node(tree.body, 1), frozenset(self.names))

    def explain(self, problem: SyntaxError) -> tuple[str, int]:
        at = self.start + max(0, (problem.offset or 1) - 1)
        if "lambda" in self.text.split("(")[0] or "lambda" in self.text:
            return "lambda is a word of Python; write lam or beta.", self.start + self.text.find(
                "lambda"
            )
        if "nested" in str(problem.msg):
            return "this is nested too deeply to be read.", at
        return "this is not a complete formula (is an operator or a bracket missing?).", at

    def error(self, sentence: str, index: int) -> ExpressionError:
        return ExpressionError(sentence, self.shown, index + 1 + self.offset)

    def at(self, node: ast.expr) -> int:
        """Python counts columns in UTF-8 bytes; a person counts characters."""
        line = self.text.encode()[: node.col_offset]
        return self.start + len(line.decode(errors="ignore"))

    def node(self, node: ast.expr, depth: int) -> Node:
        self.nodes += 1
        index = self.at(node)
        if self.nodes > MAX_NODES:
            raise self.error(f"a formula may have {MAX_NODES} parts and this has more.", index)
        if depth > MAX_DEPTH:
            raise self.error(f"brackets may be nested {MAX_DEPTH} deep and no deeper.", index)
        column = index + 1 + self.offset
        if isinstance(node, ast.Constant):
            return Number(self.literal(node.value, index), column)
        if isinstance(node, ast.Name):
            return Name(self.resolve(node.id, index), column)
        if isinstance(node, ast.UnaryOp):
            return self.sign(node, depth, column)
        if isinstance(node, ast.BinOp):
            return self.binary(node, depth, column)
        if isinstance(node, ast.Attribute):
            if node.attr != "T":
                raise self.error("the only thing that may follow a dot is T, for transpose.", index)
            return Call("transpose", (self.node(node.value, depth + 1),), column)
        if isinstance(node, ast.Call):
            return self.call(node, depth, column)
        raise self.error(f"{_WORDS.get(type(node), 'this')} may not be written here.", index)

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
            return self.known[name]
        if name in self.refused:
            raise self.error(self.refused[name], index)
        if name in FUNCTIONS or name in FUNCTION_ALIASES:
            raise self.error(f"{name} is a function; write {name}(...).", index)
        raise self.error(
            f'there is no name "{name[:40]}" in this problem.'
            f"{did_you_mean(name[:40], set(self.known.values()))}",
            index,
        )

    def sign(self, node: ast.UnaryOp, depth: int, column: int) -> Node:
        if isinstance(node.op, ast.UAdd):
            return self.node(node.operand, depth + 1)
        if not isinstance(node.op, ast.USub):
            raise self.error("only the signs + and - may stand before a term.", self.at(node))
        minus = Number(Fraction(-1), column)
        return Binary("*", minus, self.node(node.operand, depth + 1), column)

    def binary(self, node: ast.BinOp, depth: int, column: int) -> Node:
        if isinstance(node.op, ast.Pow):
            return self.raised(node, depth, column)
        if isinstance(node.op, ast.BitXor):
            raise self.error(
                "^ is not a power here; write ** for a power and .T for a transpose.",
                self.at(node.right) - 1,
            )
        operator = _BINARY.get(type(node.op))
        if operator is None:
            raise self.error("only + - * / @ and ** may join two terms.", self.at(node))
        # a + b + c nests to the left in Python's tree, and nobody sees a bracket there
        left, right = self.node(node.left, depth), self.node(node.right, depth + 1)
        return Binary(operator, left, right, column)

    def raised(self, node: ast.BinOp, depth: int, column: int) -> Node:
        power = node.right
        if isinstance(power, ast.Name) and power.id == "T":
            raise self.error("a transpose is written .T, as in A.T.", self.at(power))
        if not (isinstance(power, ast.Constant) and type(power.value) is int):
            raise self.error(
                f"a power must be a written whole number from 0 to {MAX_POWER} "
                "(sqrt(x) and 1/x are there for the others).",
                self.at(power),
            )
        if not 0 <= power.value <= MAX_POWER:
            raise self.error(f"a power may be 0 to {MAX_POWER}.", self.at(power))
        return Power(self.node(node.left, depth + 1), power.value, column)

    def call(self, node: ast.Call, depth: int, column: int) -> Node:
        index = self.at(node)
        if not isinstance(node.func, ast.Name):
            raise self.error("a product needs its sign: write * or @ before the bracket.", index)
        name = FUNCTION_ALIASES.get(node.func.id, node.func.id)
        if name not in FUNCTIONS:
            if name in self.known:
                raise self.error(f"a product needs its sign: write {name}*(...).", index)
            raise self.error(
                f'there is no function "{name[:40]}".{did_you_mean(name[:40], FUNCTIONS)}', index
            )
        least, most = FUNCTIONS[name]
        if node.keywords or not least <= len(node.args) <= most:
            raise self.error(
                f"{name} takes {least if least == most else f'{least} to {most}'} "
                f"argument{'s' if most > 1 else ''}, and this has "
                f"{len(node.args) + len(node.keywords)}.",
                index,
            )
        self.solves += name in ("inv", "pinv")
        if self.solves > MAX_SOLVES:
            raise self.error(f"inv and pinv may be used {MAX_SOLVES} times together.", index)
        return Call(name, tuple(self.node(child, depth + 1) for child in node.args), column)


_WORDS: dict[type[ast.expr], str] = {
    ast.BoolOp: "and / or",
    ast.Compare: "a comparison",
    ast.Dict: "a dictionary",
    ast.DictComp: "a comprehension",
    ast.GeneratorExp: "a comprehension",
    ast.IfExp: "a condition",
    ast.JoinedStr: "text",
    ast.Lambda: "a function of your own (for a large factor write lam or beta)",
    ast.List: "a list",
    ast.ListComp: "a comprehension",
    ast.NamedExpr: "an assignment",
    ast.Set: "a set",
    ast.SetComp: "a comprehension",
    ast.Starred: "a star",
    ast.Subscript: "an index in square brackets",
    ast.Tuple: "a list",
}
