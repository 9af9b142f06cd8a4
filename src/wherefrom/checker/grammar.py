"""One formula: text to tokens to a tree of operations, with the shape of every part.

Formulas are written in LaTeX, in Unicode or as in a program. Nothing of a text is handed to
Python: tokens are copied through an allow-list into nodes, and only nodes are evaluated. Vectors
are columns. What may not be written is an ExpressionError with its column.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import reduce
from operator import methodcaller
from typing import Any

from wherefrom.errors import UserError, did_you_mean

MAX_LENGTH = 1000  # characters of one text
MAX_NODES = 120
MAX_DEPTH = 25
MAX_POWER = 8
MAX_NUMBER = 10**12  # of a number that is written
MAX_SOLVES = 4  # inv and pinv together
MAX_BLOCKS = 12

_GREEK_TABLE = """
α:alpha β:beta γ:gamma δ:delta ε:epsilon ϵ:epsilon η:eta κ:kappa λ:lambda μ:mu ρ:rho σ:sigma τ:tau
θ:theta π:pi ω:omega φ:phi ℓ:ell
"""
GREEK = dict(pair.split(":") for pair in _GREEK_TABLE.split())
SUBSCRIPTS = dict(zip("₀₁₂₃₄₅₆₇₈₉ₐⱼᵢₙ", "0123456789ajin", strict=True))
RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ᵀ"
FRACTIONS = {"½": "1/2", "⅓": "1/3", "¼": "1/4", "¾": "3/4", "⅔": "2/3"}
# a character, or a LaTeX command -> the kind of token it is
SYMBOLS = {character: character for character in "-+*/@^()[]{},;=<>|':$"}
_SYMBOL_TABLE = """
− - – - · · ⋅ · • · × * ∗ * ÷ / ⊙ ⊙ ∘ ⊙ ≈ = ≃ = ≅ = ≔ = ≡ = ≜ = ← = ≫ ≫ ≪ ≪ ≥ > ≤ < → → ↓ → ∞ ∞ ∈ ∈
≠ ≠ ∉ ∉ ∀ forall ∥ ‖ ‖ ‖ ⟨ ⟨ ⟩ ⟩ ′ ' ’ ' † † √ sqrt ⊗ ⊗ ∑ sum Σ sum ± ± ∝ ∝ ⊤ ⊤ ↵ row ∼ ∼ … …
>> ≫ << ≪ -> → := = == = <= < >= > ** ^ != ≠ ℝ reals
"""
SYMBOLS |= dict(zip(_SYMBOL_TABLE.split()[::2], _SYMBOL_TABLE.split()[1::2], strict=True))
SYMBOLS |= {"||": "‖", r"\|": "‖", r"\{": "{", r"\}": "}"}
_COMMAND_TABLE = """
cdot:· times:* ast:* odot:⊙ circ:⊙ div:/ approx:= simeq:= coloneqq:= equiv:= triangleq:=
leftarrow:= gets:= star:* gg:≫ ll:≪ ge:> geq:> gt:> le:< leq:< lt:< to:→ rightarrow:→
downarrow:→ infty:∞ in:∈ ne:≠ neq:≠ not:≠ notin:∉ Vert:‖ lVert:‖ rVert:‖ vert:| lvert:|
rvert:| langle:⟨ rangle:⟩ top:⊤ intercal:⊤ prime:⊤ dagger:† pm:± propto:∝ sum:sum
frac:frac dfrac:frac tfrac:frac sqrt:sqrt quad:; qquad:; sim:∼ dots:… ldots:… cdots:…
otimes:⊗ Theta:name forall:forall therefore:; Rightarrow:; implies:; exp:name log:name
ln:name det:name min:name max:name sin:name cos:name
"""
COMMANDS = dict(pair.split(":") for pair in _COMMAND_TABLE.split())
_GREEK_WORDS = "|".join(sorted(set(GREEK.values())))
_GREEK_COMMAND = rf"(?:var)?({_GREEK_WORDS})(?![a-zA-Z])"
_STYLE = (
    r"\\(?:mathbf|mathrm|mathit|mathcal|mathsf|boldsymbol|bm|vec|operatorname|textbf|textit|bar"
    r"|hat|tilde|widehat|overline|underline)(?![a-zA-Z])"
)
_MATRIX = r"\{(?:[pbv]?matrix|array)\}"
# what is written -> what is read instead, before the text is cut into tokens
_REWRITTEN: list[tuple[str, str | Callable[[re.Match[str]], str]]] = [
    (r"(?<=[A-Za-z])\^\{?\((\d)\)\}?", r"_\1"),  # q^{(1)}
    (r"\b(?:np|numpy|torch|math|jnp)\.(?:linalg\.|array\b|tensor\b)?", " "),
    (r"\bI_\{?[a-z]\}?(?!\w)|\beye\(\w+\)|\\mathbb\s*\{?[I1]\}?", "I"),
    (r"\\mathbb\s*\{?R\}?", "ℝ"),
    (r"(\\[dt]?frac)\s*(\d)", r"\1{\2}"),  # \frac12 is \frac{1}{2}
    (r"(\\[dt]?frac\{[^{}]*\})\s*(\d)", r"\1{\2}"),
    (r"_\{\([^{}]*\)\}", " "),  # PE_{(pos, 2i)}
    (r"\\boxed\s*\{((?:[^{}]|\{[^{}]*\})*)\}", r"       \1 "),
    (r"(?<=[A-Za-zμ])\[([a-z])\]", r"_\1"),  # k[a]
    (r"\\?\bmax(?:imum)?\s*\(\s*0\s*,", "relu("),
    (
        rf"(?s)(\\begin\s*{_MATRIX})(.*?)(?=\\end)",
        # & ends an entry, two backslashes end a row
        lambda m: m[1] + m[2].replace("&", ",").replace("\\\\", "↵ ").replace("\n", " "),
    ),
    (rf"(?<=[^\W_])(?=\\{_GREEK_COMMAND}|{_STYLE})", " "),  # k_a\beta
    (rf"{_STYLE}\s*\{{([^{{}}]*)\}}", r"\1"),  # \mathbf{k}_{a} is k_a
    (rf"{_STYLE}\s*", " "),
    (r"(\\sum|[∑Σ])\s*_\s*\{\s*(\w)\s*\}", r"\1_\2 "),  # \sum_{i}k_i
    (r"_\s*\{\s*(\\[a-z]+\s*\{\s*|\\alph(?=a\}))?(\w+)\s*\}(?(1)\s*\}?)", r"_\2"),
    (rf"\\{_GREEK_COMMAND}(?=[^\W_])", r"\1 "),
    (rf"\\{_GREEK_COMMAND}", r"\1"),
    (r"(\\[a-zA-Z]+)(?=[^\W\d_a-zA-Z])", r"\1 "),
    (rf"[{''.join(GREEK)}]", lambda m: GREEK[m[0]]),
    (rf"[{''.join(SUBSCRIPTS)}]", lambda m: f"_{SUBSCRIPTS[m[0]]}"),
    (r"\.(?:m?T|t\(\)|transpose\(\))(?![\w(])", "^⊤"),
    (r"(?<=\^)T(?!\w*_)", "⊤"),  # A^TA
    (rf"[{RAISED}]+", lambda m: "^" + m[0].translate(str.maketrans(RAISED, "0123456789-+⊤"))),
]
REWRITTEN = [
    (re.compile(pattern), methodcaller("expand", fill) if isinstance(fill, str) else fill)
    for pattern, fill in _REWRITTEN
]
TOKEN = re.compile(
    r"(?P<matrix>\\(?:begin|end)\s*" + _MATRIX + r"(?:\{[lcr|]+\})?)"
    r"|(?P<line>\n+(?!\s*(?:\+|-\S))|\\\\(?!\s*(?:&\s*)?(?:\\q?quad)?\s*[-+*/]))"
    r"|(?P<skip>[ \t\r~&]+|\n+|\\\\\s*&?\s*\\q?quad|\\[,;:! \\]|\^\{\}"
    r"|\\(?:begin|end)\s*\{(?:align|equation|gather|aligned|split|cases|math|displaymath)\*?\}"
    r"|\\(?:label|tag)\s*\{[^{}]*\}"
    r"|\\(?:left|right|[bB]igg?[lr]?|displaystyle|textstyle|limits|rm|bf)(?![a-zA-Z]))"
    r"|(?P<math>\$\$?|\\[\[\]()])"
    r"|(?P<stop>\.(?=\s*(?:$|\s|\$|\\[\])])))"
    r"|(?P<number>[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+|[½⅓¼¾⅔])"
    r"|(?P<text>\\text\s*\{[^{}]*\})"
    r"|(?P<letters>(?:(?![Σℝ½⅓¼¾⅔])\w)+)"
    r"|(?P<command>\\[a-zA-Z]+)"
    r"|(?P<symbol>\\[|{}]|\|\||\*\*|>>|<<|->|:=|==|<=|>=|!=|.)",
    re.DOTALL,
)
# words of sentences; which of them may stand where is decided in `reading`
_WORD_TABLE = """
where with for as if when such st given provided assuming and then so let set hence thus
therefore choose define take use vs versus while large big huge positive infinity enough
sufficiently larger very arbitrarily extremely is a an the some any all constant scalar
factor that number real we of be are to tends goes grows approaches diverges each every
identity matrix zero minus negative is being fixed small tiny bounded not finite vanishing
vanishingly parameter coefficient value increases costs equals
"""
ENGLISH_WORDS = set(_WORD_TABLE.split())

# how many arguments each function takes: least, most
FUNCTIONS = dict.fromkeys(
    ("abs", "exp", "inv", "log", "norm", "pinv", "sqrt", "transpose", "unit"), (1, 1)
)
FUNCTIONS |= {"dot": (2, 2), "outer": (2, 2), "hstack": (2, MAX_BLOCKS)}
WITHOUT_BRACKETS = ("exp", "log", "sin", "cos")  # as in sin t
ENTRYWISE = ("relu", "softmax", "layernorm", "mask")  # of a matrix, some row by row
FUNCTION_ALIASES = {"ReLU": "relu", "LayerNorm": "layernorm", "causal": "mask", "inner": "dot"}
FUNCTION_ALIASES |= {"Θ": "O", "Theta": "O", "ln": "log", "inverse": "inv", "matmul": "dot"}
CLOSING = {"(": ")", "{": "}", "[": "]"}
BINDING = {"+": 1, "-": 1} | dict.fromkeys("*/@·⊙⊗", 2)  # operator -> how tightly it binds
SIZES_OF_BASES = {"A": "m", "B": "p", "C": "r"}  # how many columns each has
_SET = r"(?:\{ )?(\w+)(?: , (\w+))?(?: \})?"
INDICES = [  # of a sum: over all; over all but some letters; over some letters alone
    (r"(\w+)(?: = 1)?", ""),
    (rf"(\w+) [≠∉] {_SET}", "-"),
    (r"(\w+) = 1 , \1 ≠ (\w+)", "-"),
    (r"(\w+) ≠ (\w+) , \1 ≠ (\w+)", "-"),
    (rf"(\w+) ∈ {_SET}", "+"),
]
FACTOR_BEGINS = ("name", "(", "{", "[", "frac", "sqrt", "sum", "⟨")  # of a product without a sign


class ExpressionError(UserError):
    """Something that may not be written, with the place where it stands."""

    def __init__(self, sentence: str, source: str, column: int) -> None:
        shown = "".join(c if c.isprintable() else " " for c in source[:MAX_LENGTH])
        self.sentence = sentence
        self.column = max(1, min(column, len(shown) + 1))
        caret = " " * (self.column - 1) + "^"
        super().__init__(f"column {self.column}: {sentence}\n  {shown}\n  {caret}")


@dataclass(frozen=True)
class Token:
    """A name, a number, a word or a symbol, and its columns in the text."""

    kind: str  # "name", "number", "word" or the symbol itself
    text: str
    column: int
    end: int  # the column after it


@dataclass(frozen=True)
class Node:
    """One operation: "number", "name", one of + - * / @ **, or a function."""

    op: str
    column: int
    arguments: tuple[Node, ...] = ()
    number: Fraction = Fraction(0)  # of "number", and the exponent of "**"
    name: str = ""

    def walk(self) -> Iterator[Node]:
        """This node and all below it, the inner ones last."""
        yield self
        for part in self.arguments:
            yield from part.walk()

    def parts(self) -> set[str]:
        """Every operation and name."""
        return {node.name or node.op for node in self.walk()}


@dataclass(frozen=True)
class Shape:
    """Rows and columns, each a tuple of sizes that are added: hstack(A, B) has columns (m, p)."""

    rows: tuple[str, ...] = ("1",)
    columns: tuple[str, ...] = ("1",)

    @property
    def is_number(self) -> bool:
        return self.rows == self.columns == ("1",)

    @property
    def is_column(self) -> bool:
        return self.columns == ("1",) and self.rows != ("1",)

    def __str__(self) -> str:
        if self.is_number or self.rows == ("any",):
            return "a number" if self.is_number else "any"
        sides = (self.rows, self.columns)
        return " x ".join("d" if side == ("m", "p", "r") else "+".join(side) for side in sides)


@dataclass(frozen=True)
class Expression:
    """A formula with the text that it came from and the names in it."""

    source: str
    tree: Node
    names: frozenset[str]
    factor: str  # the letter that stands for the large factor, if one does
    written: str  # the part of the source that it is
    shape: Shape


def tokenize(text: str, known: Collection[str]) -> list[Token]:
    """The tokens of a text; a run of letters is cut into `known` names if it is made of them."""
    if len(text) > MAX_LENGTH:
        sentence = f"an expression may have {MAX_LENGTH} characters and this has {len(text)}."
        raise ExpressionError(sentence, text, MAX_LENGTH + 1)
    plain, columns = _normalise(text)
    tokens, depth = list[Token](), 0
    for match in TOKEN.finditer(plain):
        kind, start = str(match.lastgroup), match.start()
        if kind == "skip" or (kind == "line" and depth):  # inside brackets a line may end
            continue
        for piece_kind, piece in _pieces(kind, match[0], known, text, columns[start]):
            depth = max(0, depth + (piece_kind in "([{") - (piece_kind in ")]}"))
            tokens.append(Token(piece_kind, piece, columns[start], columns[match.end()]))
            start += len(piece) if kind == "letters" else 0
    return tokens


def _pieces(
    kind: str, written: str, known: Collection[str], text: str, column: int
) -> list[tuple[str, str]]:
    """Kind and text of the tokens that a match stands for."""
    if kind == "letters":
        if written.lower() in ENGLISH_WORDS and written not in known:
            return [("word", written.lower())]
        parts = [written] if written in known else _cut(written, known)
        return [("number" if part.isdigit() else "name", part) for part in parts]
    if kind == "matrix":
        return [("[" if written.startswith(r"\b") else "]", written)] * 2
    if kind == "text":
        if signs := re.search(r"[^\w\s,.]", written.partition("{")[2][:-1]):
            sentence = f'not read: "{signs[0]}" in \\text; write formulas outside of it.'
            raise ExpressionError(sentence, text, column)
        words = re.findall(r"\w+", written[5:])
        return [("name", w) if w in known else ("word", w.lower()) for w in words]
    if kind == "command":
        meaning = COMMANDS.get(written[1:])
        if meaning is None:
            raise ExpressionError(f'the command "{written}" is not known.', text, column)
        return [(meaning, written[1:] if meaning == "name" else written)]
    if kind == "number":
        return [("number", FRACTIONS.get(written, written))]
    if kind in ("line", "stop"):
        return [(";", written)]
    if kind == "math":
        return [("$", written)]
    if written not in SYMBOLS:
        raise ExpressionError(_why_not(written), text, column)
    kinds = "],[" if SYMBOLS[written] == "row" else [SYMBOLS[written]]
    return [(symbol, written) for symbol in kinds]


def _why_not(character: str) -> str:
    if character in '"`':
        return "text in quotes is not allowed in a formula, only names and numbers."
    if character == ".":
        return "only T, for transpose, may follow a dot."
    if not character.isprintable():
        return "only characters that can be seen may be written."
    return f'"{character}" is not allowed in a formula.'


def _normalise(text: str) -> tuple[str, list[int]]:
    """The text in plain letters, and the column in the given text of each character and the end."""
    kept = set(RAISED) | set(GREEK) | set(SUBSCRIPTS)
    folded = (c if c in kept else unicodedata.normalize("NFKC", c) for c in text)
    plain = "".join(p if len(p) == 1 else c for p, c in zip(folded, text, strict=True))
    columns = list(range(1, len(text) + 2))
    for pattern, fill in REWRITTEN:
        new_text, new_columns, end = "", list[int](), 0
        for match in pattern.finditer(plain):
            start, filled = match.start(), fill(match)
            replaced = columns[start : max(match.end(), start + 1)]
            new_text += plain[end:start] + filled
            new_columns += columns[end:start]
            new_columns += (replaced + replaced[-1:] * len(filled))[: len(filled)]
            end = match.end()
        plain, columns = new_text + plain[end:], new_columns + columns[end:]
    return plain, columns


def _cut(run: str, known: Collection[str]) -> list[str]:
    """A run of letters as known names and numbers, the longest first; as indexed letters, as in
    a_ia_i; or else as one name, as log2, which is not log(2)."""
    if re.match(r"(log|ln|exp)\d", run):
        return [run]
    ways: dict[int, list[str]] = {len(run): []}  # index -> the names from there to the end
    for start in reversed(range(len(run) if len(run) < 100 else 0)):
        for end in range(len(run), start, -1):
            name = run[start:end]
            if end in ways and (name in known or name.isdigit()):
                ways[start] = [name, *ways[end]]
                break
    pairs = re.findall(r"[A-Za-z]_[A-Za-z\d]", run)
    return ways.get(0) or (pairs if "".join(pairs) == run else [run])


def write(node: Node, level: float = 0) -> str:
    """The node as it could be written again, in brackets if it binds less than `level`."""
    op, parts, binds = node.op, node.arguments, 4.0
    if op == "number":
        whole = node.number.denominator == 1
        text = str(node.number) if whole else _write_fraction(node.number)
        binds = 4 if node.number >= 0 and "/" not in text else 2
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


def _write_fraction(value: Fraction) -> str:
    """As a decimal if that is exact and short, else as a fraction; never rounded."""
    for form in (repr(float(value)), f"{float(value):.15g}"):
        if Fraction(form) == value and len(form) <= 18:
            return form
    return str(value)


@dataclass
class Parser:
    """One pass from tokens to nodes, refusing whatever is not in the list."""

    source: str
    tokens: Sequence[Token]
    known: Mapping[str, str]  # spelling -> name
    refused: Mapping[str, str]  # name -> why it may not be written
    shapes: Mapping[str, Shape]
    functions: Mapping[str, tuple[int, int]] = field(default_factory=lambda: FUNCTIONS)
    substituted: Mapping[str, str] = field(default_factory=dict)  # factor -> "1/beta" or "-beta"
    same_letter: Mapping[str, str] = field(default_factory=dict)
    position: int = 0  # of the next token
    depth: int = 0  # atoms within atoms
    nodes: int = 0
    solves: int = 0
    factor: str = ""
    bars: tuple[str, ...] = ()  # norms and absolute values that are open
    names: set[str] = field(default_factory=set)

    def read(self) -> Expression:
        if not self.tokens:
            raise self.error("an expression is expected here.")
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
        if self.kind in ("<", ">", "≫", "≪", "≠", "=", "→", "∈"):
            return self.error("a comparison cannot stand in a formula; write it after a comma.")
        if self.kind == "word":
            return self.error(f'not read: the word "{self.text[:40]}" is not part of a formula.')
        if self.kind == "±":
            return self.error(
                "± is two signs at once; if it stands for a letter, write that letter."
            )
        if self.kind == "∞":
            return self.error("infinity is not a number; write a large factor, beta.")
        return self.error("this is not a complete formula (is an operator or a bracket missing?).")

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
            raise self.error(f"a formula may have {MAX_NODES} parts and this has more.", column)
        if self.solves > MAX_SOLVES:
            raise self.error(f"inv and pinv may be used {MAX_SOLVES} times together.", column)
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
            binds = BINDING.get(self.kind, 0)
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
            elif base.op in ("norm", "bars", "**") and (self.kind, self.text) == ("name", "_2"):
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
            made = self.numeric_power(base, end, in_brackets=bool(opened), minus=bool(minus))
        if opened:
            self.expect(CLOSING[opened.kind])
        return made

    def numeric_power(self, base: Node, end: int, *, in_brackets: bool, minus: bool) -> Node:
        """A power that is a number: 0 to 8, 1/2 for a root, -1 for an inverse."""
        column = base.column
        bad = f"a power must be a whole number from 0 to {MAX_POWER}; write sqrt(x) or 1/x."
        token = self.take("number")
        try:
            value = Fraction(token.text if token else "")
            if in_brackets and self.take("/") and (below := self.take("number")):
                value /= Fraction(below.text)
        except (ValueError, ZeroDivisionError):
            raise self.error(bad, end) from None
        if value > MAX_POWER:
            raise self.error(f"a power may be 0 to {MAX_POWER}; write 1e10 for 10^10.", end)
        if value == Fraction(1, 2):
            made = self.node("sqrt", column, base)
        elif value.denominator != 1:
            raise self.error(bad, end)
        elif minus and value == 1:
            return self.node("inv", column, base)
        else:
            made = self.node("**", column, base, number=value)
        return self.node("/", column, self.number(1, column), made) if minus else made

    def atom(self) -> Node:
        """A number, a name, a call, a sum over keys, or anything in brackets or bars."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.error(f"brackets may be nested {MAX_DEPTH} deep and no deeper.")
        if not self.kind:
            raise self.unexpected()
        before, token = self.tokens[max(0, self.position - 1)], self.tokens[self.position]
        touches = before.end == token.column and before.kind in ("name", ")", "]")
        self.position += 1
        match token.kind:
            case "number":
                made = self.literal(token)
            case "name":
                made = self.named(token)
            case "[" if touches and "]" in (t.kind for t in self.tokens[self.position :][:2]):
                sentence = "an index in square brackets is not allowed; write k_a or k_b."
                raise self.error(sentence, before.column)
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
            case "sqrt" if self.kind == "[":
                raise self.error("not read: only square roots can be written.")
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
        column, start = token.column, self.position
        rows = self.items(CLOSING[token.kind], ",;|", spaced=token.kind == "[")
        inside = self.tokens[start : self.position - 1]
        if max(len(rows), *map(len, rows)) > MAX_BLOCKS:
            raise self.error(f"at most {MAX_BLOCKS} blocks may stand side by side.", column)
        if len(rows) > 1:
            parts = [x[0] if len(x) == 1 else self.node("hstack", column, *x) for x in rows]
            return self.node("vstack", column, *parts)
        parts = rows[0]
        below = token.kind == "[" and (
            all(part.op == "hstack" for part in parts) or _is_column_of_rows(inside)
        )
        if len(parts) == 1:  # [[1, 2]] is a table of one row, and stays one
            return self.node("vstack", column, *parts) if below else parts[0]
        return self.node("vstack" if below else "hstack", column, *parts)

    def fraction_part(self) -> Node:
        """What follows a command: a group, or one digit or name."""
        if opened := self.take("{", "("):
            return self.group(CLOSING[opened.kind])
        return self.atom()

    def literal(self, token: Token) -> Node:
        exponent = re.search(r"[eE]([+-]?\d+)$", token.text)
        small = len(token.text) < 40 and not (exponent and abs(int(exponent[1])) > 40)
        value = Fraction(token.text) if small else Fraction(MAX_NUMBER + 1)
        if value > MAX_NUMBER:
            raise self.error(
                "a written number may be 1e12 at most; beta is for large ones.", token.column
            )
        if 0 < value < Fraction(1, MAX_NUMBER):
            raise self.error("a written number may not be below 1e-12, except 0.", token.column)
        return self.number(value, token.column)

    def named(self, token: Token) -> Node:
        """What a name stands for, with its arguments if it is a function."""
        name = FUNCTION_ALIASES.get(token.text, token.text)
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
        if stands_for != "beta":
            return self.node("name", column, name=stands_for)
        letter = self.same_letter.get(name, name)
        if letter != (self.factor or letter):
            raise self.error(
                f"{self.factor} and {letter} are two large factors, and nothing says how they "
                f"compare; write one letter, or add {self.factor} = {letter}.",
                column,
            )
        self.factor = letter
        made = self.node("name", column, name="beta")
        if self.substituted.get(letter) == "1/beta":
            return self.node("/", column, self.number(1, column), made)
        return self.negative(made, column) if letter in self.substituted else made

    def unknown(self, name: str) -> str:
        """The sentence about a name without a meaning, which has just been taken."""
        said = name[:40]
        if self.kind == "(" and len(name) > 2:
            return f'there is no function "{said}".{did_you_mean(said, self.functions)}'
        if self.kind == "[":
            return (
                f'"{said}[...]" does not say which key is meant; write its letter, as in {said}_a.'
            )
        stem, _, index = name.partition("_")
        keys = sorted(k for k in self.known if k.startswith(f"{stem}_"))
        if index.isdigit() and keys:
            return f'"{said}" is not a name here: the keys are {", ".join(keys)}; write those.'
        hint = " A large factor is written beta." if len(name) == 1 and "beta" in self.known else ""
        meant = did_you_mean(said, set(self.known.values()))
        return f'there is no name "{said}" in this problem.{hint}{meant}'

    def call(self, name: str, column: int) -> Node:
        if not self.take("("):
            if name not in WITHOUT_BRACKETS or self.kind not in ("name", "number", "{", "frac"):
                raise self.error(f"{name} is a function; write {name}(...).", column)
            inner = self.power()  # \exp\beta
            # sin t theta, sin t/2, but not sin t cos t
            while (
                name in ("sin", "cos")
                and self.kind in ("name", "/")
                and self.text not in self.functions
            ):
                op = "/" if self.take("/") else "*"
                inner = self.node(op, column, inner, self.power())
            return self.node(name, column, inner)
        arguments = [] if self.kind == ")" else self.items(")", ",")[0]
        least, most = self.functions[name]
        if not least <= len(arguments) <= most:
            count = str(least) if least == most else f"{least} to {most}"
            raise self.error(
                f"{name} takes {count} argument{'s' * (most > 1)}, and this has {len(arguments)}.",
                column,
            )
        return self.node(name, column, *arguments)

    def big_sum(self, token: Token) -> Node:
        """A sum over keys, k_i, or over a basis, a_i a_i^T, as the name that stands for it."""
        column = token.column
        index, sign, picked, last = self.index_of_sum()
        factors = list[Node]()  # as in \sum_i \beta k_i
        while self.kind and not self.text.endswith(f"_{index}"):
            factors.append(self.power())
            self.take("*", "·")
        stem = self.text.removesuffix(f"_{index}")
        first = self.take("name")
        if not stem or first is None:
            raise self.sum_not_understood(column)
        if self.text == first.text and stem.upper() in self.known:  # a_i a_i^T
            self.position += 1
            if not self.take("'"):
                self.take("^")
                self.expect("⊤")
            if sign or last not in ("", SIZES_OF_BASES.get(stem.upper())):
                raise self.sum_not_understood(column)
            basis = self.given(stem.upper(), column)
            total = self.node("@", column, basis, self.node("transpose", 0, basis))
        elif "sum_all" in self.known.values() and (not last or self.known.get(last) == "n"):
            total = self.sum_of_keys(stem, picked, sign, column)
        else:
            raise self.sum_not_understood(column)
        return reduce(lambda x, y: self.node("*", column, x, y), [*factors, total])

    def sum_not_understood(self, column: int) -> ExpressionError:
        sentence = (
            "not read: this sum; sums over all keys, all but some, or a_i a_i^T can be written."
        )
        return self.error(sentence, column)

    def index_of_sum(self) -> tuple[str, str, list[str], str]:
        """The index, whether picked letters are left out (-) or alone are added (+), those letters,
        and up to where the index goes; any other index is not read."""
        column = self.tokens[self.position - 1].column
        subscript = self.take("name")
        if subscript is None or not subscript.text.startswith("_"):
            raise self.error(r"a sum needs its index, as in \sum_i.", column)
        said = subscript.text[1:]
        if not said and self.take("{"):
            said = self.written(self.braced())
        last = ""
        if self.take("^"):
            end = self.position + 1
            last = self.written(self.braced() if self.take("{") else self.tokens[end - 1 : end])
            self.position = max(self.position, end)
        for pattern, sign in INDICES:
            if found := re.fullmatch(pattern, said):
                index, *picked = found.groups()
                return index, sign, [letter for letter in picked if letter], last
        raise self.sum_not_understood(column)

    def written(self, tokens: Sequence[Token]) -> str:
        kinds = ("name", "word", "number")
        return " ".join(token.text if token.kind in kinds else token.kind for token in tokens)

    def braced(self) -> list[Token]:
        """The tokens up to the brace that closes the one just taken."""
        first, depth = self.position, 1
        while depth and self.kind:
            depth += (self.kind == "{") - (self.kind == "}")
            self.position += 1
        return list(self.tokens[first : self.position - 1])

    def sum_of_keys(self, stem: str, picked: list[str], sign: str, column: int) -> Node:
        """All keys, those picked (sign +), or all but those (sign -)."""
        letters = [x for x in "abj" if f"{stem}_{x}" in self.known]
        if not letters:
            self.given(f"{stem}_a", column)  # says why not
        if sign == "-" and picked and set(picked) == set(letters):
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
        numeric = first.is_number or last.is_number
        if op == "⊙" and not numeric:
            raise self.error("a product entry by entry is not allowed in a formula.", node.column)
        if op in ("*", "·", "⊙"):
            product = "dot" if op == "·" and first.is_column and last.is_column else "@"
            op = "*" if numeric else product
        elif op == "dot" and not (first.is_column and last.is_column):
            op = "@"  # numpy's
        elif op == "⊗":
            op = "outer"
        elif op == "bars":
            op = "abs" if first.is_number else "norm"
        elif op == "inv" and first.is_number:
            op, parts = "/", (Node("number", node.column, number=Fraction(1)), *parts)
            shapes = (Shape(), *shapes)
        shape = result_shape(op, shapes)
        if isinstance(shape, str):
            raise self.error(shape, node.column)
        return replace(node, op=op, arguments=parts), shape


def _is_column_of_rows(tokens: Sequence[Token]) -> bool:
    """Are these rows of one entry each, as in [[0], [1], [2]]?"""
    kinds = [token.kind for token in tokens if token.kind not in ("number", "name", "-", "+")]
    rows = (len(kinds) + 1) // 3
    return rows > 1 and kinds == (["[", "]", ","] * rows)[:-1]


def result_shape(op: str, shapes: Sequence[Shape]) -> Shape | str:
    """The shape of a result, or the sentence that says why the shapes do not fit.
    Sizes are letters: `A @ B.T` is refused because m and p need not be equal."""
    first, last = shapes[0], shapes[-1]
    numeric = first.is_number and last.is_number
    fits, shape = first.is_number, first  # of a function of numbers
    why = f"{op} takes a number, and this is {first}."
    match op:
        case "+" | "-":
            fits = first == last
            why = f"{first} and {last} cannot be added: the shapes differ."
        case "*":
            fits, shape = True, last if first.is_number else first
        case "/":
            fits = last.is_number
            why = f"one can divide by a number only, and this is {last}."
        case "@":
            fits, shape = first.columns == last.rows, Shape(first.rows, last.columns)
            why = f"{first} times {last} does not fit together{_product_hint(first, last)}."
        case "**":
            fits = first.rows == first.columns
            why = f"a power is of a number or a square matrix, and this is {first}."
        case "inv":
            fits = first.rows == first.columns
            why = f"inv needs a square matrix, and this is {first}; try pinv."
        case "transpose" | "pinv":
            fits, shape = True, Shape(first.columns, first.rows)
        case "hstack":
            fits = all(block.rows == first.rows for block in shapes)
            shape = Shape(first.rows, tuple(x for block in shapes for x in block.columns))
            why = "blocks need the same number of rows."
        case "vstack":
            fits = all(block.columns == first.columns for block in shapes)
            shape = Shape(tuple(x for block in shapes for x in block.rows), first.columns)
            why = "rows need the same number of entries."
        case "dot":
            fits, shape = first.is_column and first == last, Shape()
            why = f"dot takes two vectors (columns) of one length, and got {first} and {last}."
        case "outer":
            fits, shape = first.is_column and last.is_column, Shape(first.rows, last.rows)
            why = f"outer takes two vectors (columns), and got {first} and {last}."
        case "norm" | "unit":
            fits, shape = ("1",) in (first.rows, first.columns), Shape() if op == "norm" else first
            why = f"{op} takes a vector, and this is {first}."
        case "pow":
            fits, why = numeric, f"a power is of two numbers, and this is {first} and {last}."
        case _ if op in ENTRYWISE:
            fits, why = not first.is_number, f"{op} takes a matrix."
    return shape if fits else why


def _product_hint(first: Shape, last: Shape) -> str:
    if first.is_number or last.is_number:
        return "; write * to multiply by a number"
    if first.is_column and last.is_column:
        return "; write dot(x, y) or x.T @ y for a number, outer(x, y) for a matrix"
    return ""
