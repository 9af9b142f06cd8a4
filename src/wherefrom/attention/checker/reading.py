"""What people write, in LaTeX, Unicode or plain text (`spellings.toml`), as tokens and formulas."""

from __future__ import annotations

import html
import re
import tomllib
import unicodedata
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import reduce
from importlib.resources import files
from operator import methodcaller
from typing import Any

from wherefrom.errors import UserError

MAX_LENGTH = 3000  # characters of one text


def load_data(name: str) -> dict[str, Any]:
    """A TOML file of this package."""
    return tomllib.loads(files(__package__).joinpath(name).read_text(encoding="utf-8"))


WORDING, DATA = load_data("wording.toml"), load_data("spellings.toml")


def say(sentence: str, **values: object) -> str:
    """A sentence of wording.toml, filled in."""
    return str(WORDING[sentence]).format(**values)


GREEK, FRACTIONS, SYMBOLS, COMMANDS = (
    dict(zip(text.split()[::2], text.split()[1::2], strict=True))
    for text in DATA["tables"].values()
)
SYMBOLS |= {c: c for c in "-+*/@^()[]{},;=<>|'"}
CUTS, JOINS, SMALL, OTHERS = (set(text.split()) for text in DATA["words"].values())
WORDS = CUTS | JOINS | SMALL | OTHERS
LETTERS = GREEK | {c: f"_{x}" for c, x in zip("₀₁₂₃₄₅₆₇₈₉ₐⱼᵢₙ", "0123456789ajin", strict=True)}
RAISED = DATA["parts"]["raised"]


def _pattern(text: str) -> str:
    """The pattern with the parts that it names in angle brackets filled in."""
    return reduce(lambda t, part: t.replace(f"<{part[0]}>", part[1]), DATA["parts"].items(), text)


TOKEN = re.compile(
    "|".join(f"(?P<{kind}>{_pattern(text)})" for kind, text in DATA["tokens"].items()), re.DOTALL
)
RANGE = re.compile("|".join(map(_pattern, DATA["patterns"]["ranges"])))
FILLED: dict[str, Callable[[re.Match[str]], str]] = {
    "html": lambda m: html.unescape(m[0]).replace("\xa0", " "),
    "letter": lambda m: LETTERS[m[0]],
    "raised": lambda m: "^" + m[0].translate(str.maketrans(RAISED, "0123456789-+⊤")),
    "math": lambda m: f" {m[1]}{' ' if m[2] in WORDS else ';'}",
    # & ends an entry, two backslashes end a row
    "matrix": lambda m: m[1] + m[2].replace("&", ",").replace("\\\\", "↵ ").replace("\n", " "),
}
REWRITTEN = [
    (re.compile(_pattern(pattern)), FILLED.get(template, methodcaller("expand", template)))
    for pattern, template in DATA["patterns"]["rewritten"]
]
MATH = re.compile(r"\$\$?([^$]+)\$\$?|\\\[(.+?)\\\]|\\\((.+?)\\\)", re.DOTALL)
WHY_NOT = {'"': "quotes", "`": "quotes", ".": "other_dots"}


class ExpressionError(UserError):
    """Something that may not be written, with the place where it stands."""

    def __init__(self, sentence: str, source: str, column: int, *, too_large: bool = False) -> None:
        shown = "".join(c if c.isprintable() else " " for c in source[:MAX_LENGTH])
        self.sentence = sentence
        self.too_large = too_large
        self.column = max(1, min(column, len(shown) + 1))
        caret = " " * (self.column - 1) + "^"
        super().__init__(f"column {self.column}: {sentence}\n  {shown}\n  {caret}")


class FixedFactorError(ExpressionError):
    """A large factor that is said to be small, or a number."""


@dataclass(frozen=True)
class Token:
    """A name, a number, a word of prose or a symbol, and its columns in the text."""

    kind: str  # "name", "number", "word" or the symbol itself
    text: str
    column: int
    end: int  # the column after it


@dataclass
class Statement:
    """Formulas that are said to be equal, and the names that they are given."""

    names: list[Token] = field(default_factory=list)
    formulas: list[list[Token]] = field(default_factory=list)


def tokenize(text: str, known: Collection[str]) -> list[Token]:
    """The tokens of a text; a run of letters is cut into `known` names if it is made of them."""
    if len(text) > MAX_LENGTH:
        sentence = say("text_too_long", most=MAX_LENGTH, length=len(text))
        raise ExpressionError(sentence, text, MAX_LENGTH + 1)
    plain, columns = _normalise(text)
    tokens, depth = list[Token](), 0
    for match in TOKEN.finditer(plain):
        kind, written, start = str(match.lastgroup), match[0], match.start()
        pieces = [(kind, written)]  # kind and text of each token
        if kind == "skip" or (kind == "line" and depth):  # inside brackets a line may end
            continue
        if kind == "letters":
            names = [written] if written in known else _cut(written, known)
            pieces = [("number" if name.isdigit() else "name", name) for name in names]
            if written in WORDS and written not in known:
                pieces = [("word", written)]
        elif kind == "matrix":
            pieces = [("[" if written.startswith(r"\b") else "]", written)] * 2
        elif kind == "text":
            words = re.findall(r"\w+", written[5:])
            pieces = [("name", w) if w in known else ("word", w.lower()) for w in words]
        elif kind == "command":
            name = written[1:]
            if name not in COMMANDS:
                raise ExpressionError(say("no_command", said=written), text, columns[start])
            pieces = [(COMMANDS[name], name if COMMANDS[name] == "name" else written)]
        elif kind == "symbol":
            if written not in SYMBOLS:
                why = WHY_NOT.get(written, "not_written" if written.isprintable() else "unseen")
                raise ExpressionError(say(why, said=written), text, columns[start])
            kinds = "],[" if SYMBOLS[written] == "row" else [SYMBOLS[written]]
            pieces = [(kind, written) for kind in kinds]
        elif kind == "number":
            pieces = [("number", FRACTIONS.get(written, written))]
        elif kind == "line":
            pieces = [(";", written)]
        for kind, part in pieces:
            depth = max(0, depth + (kind in "([{") - (kind in ")]}"))
            tokens.append(Token(kind, part, columns[start], columns[match.end()]))
            start += len(part) if match.lastgroup == "letters" else 0
    return tokens


def _normalise(text: str) -> tuple[str, list[int]]:
    """The text in plain letters, as `spellings.toml` rewrites it, and the column in the given text
    of each of its characters and of its end."""
    folded = (c if c in RAISED or c in LETTERS else unicodedata.normalize("NFKC", c) for c in text)
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
    a_ia_i; or else as one name."""
    ways: dict[int, list[str]] = {len(run): []}  # index -> the names from there to the end
    for start in reversed(range(len(run) if len(run) < 100 else 0)):
        for end in range(len(run), start, -1):
            name = run[start:end]
            if end in ways and (name in known or name.isdigit()):
                ways[start] = [name, *ways[end]]
                break
    pairs = re.findall(r"[A-Za-z]_[A-Za-z\d]", run)
    return ways.get(0) or (pairs if "".join(pairs) == run else [run])


def decimal_points(text: str) -> str:
    """The text with 0,5 as 0.5."""
    thousands = re.search(r"(?<![\d.,])[1-9]\d?\d?,000(?![\d.,])", text)
    if thousands:
        raise ExpressionError(say("two_ways", said=thousands[0]), text, thousands.start() + 1)
    return re.sub(r"(?<![\d.,])(\d+),(\d+)(?![\d.,])", r"\1.\2", text)


def ranges(text: str) -> list[str]:
    """The text without a range of e, if anything is left of it, and the two ends of the range."""
    match = RANGE.search(text)
    if not match:
        return [text]
    low, high = filter(None, match.groups())
    others = text[: match.start()] + " " * len(match[0]) + text[match.end() :]
    return [others] * bool(others.strip(" $\n.")) + [f"low={low}; high={high}"]


def without_prose(text: str, known: Collection[str], wanted: Collection[str]) -> str:
    """An essay with only those formulas between dollars left that give what is asked for or say how
    large a factor is; nothing is left of a text without four words beside its formulas."""
    if len(re.findall(r"\b[A-Za-z]{3,}", MATH.sub(" ", text))) < 4:
        return ""
    kept = ""
    for match in MATH.finditer(text):
        try:
            tokens = tokenize(str(match[1] or match[2] or match[3]), known)
        except ExpressionError:
            continue
        kinds = [token.kind for token in tokens]
        gives = kinds[1:2] == ["="] and tokens[0].text in wanted
        if gives or (len(tokens) < 5 and {"≫", "≪"} & {*kinds}):
            kept = kept.ljust(match.start()) + match[0].replace("$", " ")[:-1] + ";"
    return kept


def split(
    text: str,
    tokens: list[Token],
    known: Collection[str],
    wanted: Collection[str],
    factors: Collection[str],
    rows: Collection[str] = (),
) -> list[Statement]:
    """The statements of a text. Side conditions are checked; they and prose are left out.
    `known` names have a meaning, `wanted` ones are asked for, conditions are on `factors`, and the
    formulas of `rows` may be rows without brackets ("": also one without a name)."""
    statements: list[Statement] = []
    conditions: list[list[Token]] = []
    tokens = _pairs(tokens, wanted)
    for i in range(1, len(tokens) - 1):  # "q: ...", "let q be ..." and "q as ..." are q = ...
        defines = tokens[i].kind == ":" or tokens[i].text in ("as", "is", "be", "costs")
        if defines and tokens[i - 1].text in wanted and tokens[i + 1].text not in wanted:
            tokens[i] = replace(tokens[i], kind="=", text="=")

    def ends(i: int, token: Token) -> bool:
        joins = token.kind == "word" and token.text in CUTS | JOINS
        remark = token.kind in ("(", "[") and _is_remark(tokens[i:])
        return joins or remark or token.kind in (",", ";", ":", "quad", "∈", "for")

    for clause in filter(None, _divide(tokens, ends, keep=("∈", "(", "[", "for", *CUTS))):
        kinds = {token.kind for token in clause}
        if "∝" in kinds:
            column = next(token.column for token in clause if token.kind == "∝")
            raise ExpressionError(say("factor_open"), text, column)
        left, *sides = _divide(clause, lambda _, token: token.kind == "=")
        if left and left[-1].text in wanted and all(_is_no_name(t, known) for t in left[:-1]):
            left = left[-1:]  # without the prose before the name
        formulas = [side for side in sides if side]
        leading = [side[0] for side in (left, *sides)[: len(sides)] if len(side) == 1]
        names = [token for token in leading if token.text in wanted]
        on_factor = any(t.kind == "name" and t.text in factors for t in clause)
        # the names of the statement before, if this may be another entry of its row
        row = set[str]()
        if statements and statements[-1].formulas:
            row = ({token.text for token in statements[-1].names} or {""}) & {*rows}
        is_formula = not sides and not kinds & {"word", "±"} and kinds & {"name", ","}
        if len(clause) == 1 and clause[0].text in {*wanted, *factors} and len(tokens) > 1:
            continue  # "define q as q = ..."
        unknown = any(_is_prose(t, known) for t in clause if t.kind == "name")
        if unknown and kinds <= {"word", "name"} and not on_factor and len(clause) < len(tokens):
            continue  # prose
        if sides and not left and statements:  # "= ..." goes on with the statement before
            statements[-1].formulas += formulas
        elif names:
            formulas = [side for side in formulas if side[0] not in names]
            if names[0].text in row and formulas:
                _extend(statements[-1], formulas[-1])  # PE_{(pos, 2i)} = ..., PE_{...} = ...
            else:
                statements.append(Statement(names, formulas))
        elif (
            kinds & {"≫", "≪", ">", "<", "→", "∈", "for", "set"}
            or (on_factor and "word" in kinds)
            or (leading and leading[0].text in factors)
        ):
            conditions.append(clause)
        elif sides and left:
            name = next((token for token in left if token.kind != "word"), left[0])
            if [token.kind for token in left[1:]] == ["^", "⊤"]:  # q^T = x is q = x^T
                marks = [replace(name, kind=kind, text="") for kind in "()^⊤"]
                formulas = [[marks[0], *formula, *marks[1:]] for formula in formulas]
            if name.text in row and formulas:
                _extend(statements[-1], formulas[-1])  # PE(pos, 2i) = ..., PE(pos, 2i+1) = ...
            elif any(t.text in wanted and t.kind == "name" for t in clause[1:]):
                conditions.append(clause)
            else:
                statements.append(Statement([name], formulas))
        elif is_formula and row:
            _extend(statements[-1], clause)
        elif (not statements and "word" not in kinds) or (
            is_formula and len(wanted) > 1 and not any(x.names for x in statements)
        ):
            statements.append(Statement([], [clause]))
        else:
            conditions.append(clause)
    wordy = sum(_is_prose(token, known) for token in tokens) > 3
    if wordy:
        named = [x for x in statements if any(token.text in wanted for token in x.names)]
        statements = named or statements
    used = {t.text for x in statements for formula in x.formulas for t in formula}
    for clause in conditions:
        on = {token.text for token in clause if token.kind == "name"} & {*factors}
        if (not on and wordy) or (on and statements and not on & used):
            continue  # in words, or on a letter that no formula has
        _check_condition(text, clause, factors, wanted)
    return statements


def _is_no_name(token: Token, known: Collection[str]) -> bool:
    return token.kind == "word" or (token.kind == "name" and token.text not in known)


def _is_prose(token: Token, known: Collection[str]) -> bool:
    is_word = token.text.isalpha() and len(token.text) > 1
    return token.kind == "word" or (is_word and _is_no_name(token, known))


def _pairs(tokens: list[Token], wanted: Collection[str]) -> list[Token]:
    """(q1, q2) = (x, y) as q1 = x; q2 = y, with or without brackets."""
    for i in range(len(tokens) - 3):
        names = [t for t in tokens[i : i + 3 : 2] if t.text in wanted]
        start, equal = i - (i > 0 and tokens[i - 1].kind in "(["), i + 3
        equal += tokens[equal].kind in ")]"
        if len(names) < 2 or tokens[i + 1].kind != "," or len(tokens) <= equal:
            continue
        right = tokens[equal + 1 :]
        sides = _divide(right, lambda _, t: t.kind in (",", ";"))
        if right and right[0].kind in "([" and len(sides[0]) > 2 and sides[0][-1].kind in ")]":
            sides = _divide(sides[0][1:-1], lambda _, t: t.kind == ",") + sides[1:]
        if tokens[equal].kind == "=" and len(sides) > 1:
            sign, end = tokens[equal], replace(tokens[i + 1], kind=";")
            pairs = [names[0], sign, *sides[0], end, names[1], sign, *sides[1]]
            return tokens[:start] + pairs + [t for side in sides[2:] for t in (end, *side)]
    return tokens


def _extend(statement: Statement, entry: list[Token]) -> None:
    """Make the last formula a row, and the entry its last one."""
    row = statement.formulas[-1]
    row = row[1:-1] if row[0].text == "row" else row
    opened, comma, closed = (Token(kind, "row", row[0].column, row[0].column) for kind in "(,)")
    statement.formulas[-1] = [opened, *row, comma, *entry, closed]


def _divide(
    tokens: list[Token], ends: Callable[[int, Token], bool], keep: Collection[str] = ()
) -> list[list[Token]]:
    """The tokens between those that end a part, outside brackets; some stay, in the next part."""
    parts, depth = [list[Token]()], 0
    for i, token in enumerate(tokens):
        depth += (token.kind in "([{") - (token.kind in ")]}")
        if depth <= (token.kind in ("(", "[")) and ends(i, token):
            parts.append([token] if token.kind in keep or token.text in keep else [])
        else:
            parts[-1].append(token)
    return parts


def _is_remark(tokens: list[Token]) -> bool:
    """Do these tokens begin with a remark in brackets, such as (beta >> 0)?"""
    depth = 0
    for token in tokens:
        depth += (token.kind in "([{") - (token.kind in ")]}")
        prose = token.kind == "word" and token.text not in ("a", "i")
        if depth == 0 or prose or token.kind in ("≫", "≪", ">", "<", "→"):
            return depth > 0
    return False


def _check_condition(
    text: str, clause: list[Token], factors: Collection[str], wanted: Collection[str]
) -> None:
    """Refuse a condition that is not one on a large factor."""
    column, kinds = clause[0].column, [token.kind for token in clause]
    said = text[column - 1 : clause[-1].end - 1].strip()
    if {*kinds} <= {"(", ")", "number"} or {"∈", "∼"} & {*kinds} or kinds[0] == "for":
        return  # the number of an equation, or in which space something lies
    if "±" in kinds:
        raise ExpressionError(say("two_signs"), text, column)
    names = [i for i, kind in enumerate(kinds) if kind == "name"]
    at = next((i for i in names if clause[i].text in factors), None)
    if "word" in kinds and at is None and {*kinds} <= {"word", "name", "(", ")"}:
        return  # prose
    about = next((clause[i].text for i in names if clause[i].text in wanted), "")
    if about and "word" not in kinds:
        raise ExpressionError(say("a_goal", said=said, about=about), text, column)
    if at is None:
        raise ExpressionError(say("not_understood", said=said), text, column)
    before, after = kinds[at - 1 : at] if at else [], kinds[at + 1 : at + 2]
    small = after in (["≪"], ["<"]) or before in (["≫"], [">"])
    small |= after == ["→"] and not {"∞", "word"} & {*kinds}
    for i, token in enumerate(clause):  # "beta is very small"
        small |= token.text in SMALL and {*kinds[min(i, at) + 1 : max(i, at)]} <= {"word"}
    symbols = [i for i, kind in enumerate(kinds) if kind != "word"][:2]
    fixed = symbols[0] == at and [kinds[i] for i in symbols] == ["name", "="]
    if fixed or small or kinds == ["number", "=", "name"]:
        letter = clause[at].text
        raise FixedFactorError(say("does_not_grow", said=said, letter=letter), text, column)
