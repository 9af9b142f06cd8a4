r"""What people write, as tokens: LaTeX, Unicode and plain text, split into formulas and conditions.

    $q=t(k_a+k_b),\ t \gg 0$     q = βμ_a + βμ_b     M = AAᵀ     q1 = beta*mu_a; q2 = beta*mu_b

`tokenize` turns a text into `Token`s with columns in that text; different spellings of one thing
give the same token. `split` cuts the tokens into `Statement`s (names, and the formulas said
to equal them) and checks side conditions. Nothing here is evaluated; `language` parses the tokens.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from wherefrom.errors import UserError

MAX_LENGTH = 800  # characters of one text


def _table(text: str) -> dict[str, str]:
    """Spellings in pairs: what is written, what it stands for."""
    words = text.split()
    return dict(zip(words[::2], words[1::2], strict=True))


def _words(text: str) -> set[str]:
    return set(text.split())


GREEK = _table(
    "α alpha β beta γ gamma ε epsilon κ kappa λ lambda μ mu τ tau θ theta π pi ω omega φ phi ℓ ell"
)
SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉ₐⱼᵢₙ", "0123456789ajin")
SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ᵀ", "0123456789-+T")
SYMBOLS = _table("""
    − - – - · · ⋅ · • · × * ∗ * ÷ / ⊙ ⊙ ∘ ⊙ ≈ = ≃ = ≅ = ≔ = ≫ ≫ ≪ ≪ ≥ > ≤ < → → ∞ ∞ ∈ ∈ ≠ ≠
    ∉ ∉ ∥ ‖ ‖ ‖ ⟨ ⟨ ⟩ ⟩ ′ ' ’ ' † † ∑ sum Σ sum ± ± ∝ ∝ ⊤ ⊤
""")
COMMANDS = _table("""
    cdot · times * ast * odot ⊙ circ ⊙ div / approx = simeq = coloneqq = gg ≫ ll ≪ ge > geq > gt >
    le < leq < lt < to → rightarrow → infty ∞ in ∈ ne ≠ neq ≠ not ≠ notin ∉ Vert ‖ lVert ‖ rVert ‖
    vert | lvert | rvert | langle ⟨ rangle ⟩ top ⊤ intercal ⊤ prime ⊤ dagger † pm ± propto ∝
    sum sum frac frac dfrac frac tfrac frac sqrt sqrt mathbb set quad quad qquad quad tag quad
    forall for therefore ; Rightarrow ; implies ;
""")
ASCII = _table(">> ≫ << ≪ -> → => ; := = == = <= < >= > ** ^ != ≠")
SKIPPED = _words("left right big Big bigl bigr Bigl Bigr displaystyle limits rm bf begin end label")
STYLES = _words(
    "mathbf mathrm mathit mathcal mathsf boldsymbol bm vec operatorname textbf textit bar"
)
LETTERS = STYLES | set(GREEK.values())
# words of prose: what begins a condition, what begins another formula, what says how large
CUTS = _words("where with for as if when such st given provided assuming")
JOINS = _words("and then so let set hence thus choose define take")
SMALL = _words("small negative tiny zero vanishing")
WORDS = CUTS | JOINS | SMALL
WORDS |= _words("large big huge positive infinity enough sufficiently larger very arbitrarily")
WORDS |= _words("is a an the some any all constant scalar factor that number real we of be are to")
WORDS |= _words("tends goes grows each every i identity basis chosen")


TWO_SIGNS = "± is two signs at once; if it stands for a letter such as t, write that letter."


class ExpressionError(UserError):
    """Something that may not be written, with the place where it stands."""

    def __init__(self, sentence: str, source: str, column: int, *, too_large: bool = False) -> None:
        shown = "".join(c if c.isprintable() else " " for c in source[:MAX_LENGTH])
        self.sentence = sentence
        self.too_large = too_large
        self.column = max(1, min(column, len(shown) + 1))
        caret = " " * (self.column - 1) + "^"
        super().__init__(f"column {self.column}: {sentence}\n  {shown}\n  {caret}")


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
    """The tokens of a text; a run of letters is cut into `known` names where it is made of them."""
    if len(text) > MAX_LENGTH:
        sentence = f"an expression may have {MAX_LENGTH} characters and this has {len(text)}."
        raise ExpressionError(sentence, text, MAX_LENGTH + 1)
    return list(_Tokenizer(text, known).tokens())


class _Tokenizer:
    """A text from left to right; `at` is where the reading stands."""

    def __init__(self, text: str, known: Collection[str]) -> None:
        # one character for one, so that columns stay where the writer sees them
        raised = {chr(code) for table in (SUBSCRIPTS, SUPERSCRIPTS) for code in table}
        plain = (c if c in raised else unicodedata.normalize("NFKC", c) for c in text)
        self.text = "".join(p if len(p) == 1 else c for p, c in zip(plain, text, strict=True))
        self.known = known
        self.at = 0
        self.before = ""  # the kind of the last token
        self.in_matrix = False  # between \\begin{pmatrix} and its end

    def tokens(self) -> Iterator[Token]:
        while self.at < len(self.text):
            start = self.at
            for kind, text, first in self.read():
                self.before = kind
                yield Token(kind, text, first + 1, self.at + 1)
            if self.at == start:
                what = self.text[start]
                sentence = f'"{what}" may not be written here.'
                if what in '"`':
                    sentence = "text in quotes may not be written here, only names and numbers."
                elif what == ".":
                    sentence = "the only thing that may follow a dot is T, for transpose."
                elif not what.isprintable():
                    sentence = "only characters that can be seen may be written."
                raise ExpressionError(sentence, self.text, start + 1)

    def read(self) -> Iterator[tuple[str, str, int]]:
        """The next token or tokens as (kind, text, index); none for what is left out."""
        start, c = self.at, self.text[self.at]
        if self.in_matrix and self.take(r"\s*&"):
            yield ",", ",", start
            return
        if self.in_matrix and self.take(r"\s*\\\\"):
            for kind in "],[":
                yield kind, kind, start
            return
        if found := self.take(r"[ \t\r~$&]+|\\[,;:! ()\[\]\\]"):
            return
        if found := self.take(r"\n+"):
            yield ";", found, start
        elif found := self.take(r"[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+"):
            yield "number", found, start
        elif self.take(r"\\[|]|\|\|"):
            yield "‖", "‖", start
        elif self.take(r"\\begin\s*\{[pbv]?matrix\}"):
            self.in_matrix = True
            yield "[", "[", start
            yield "[", "[", start
        elif self.take(r"\\end\s*\{[pbv]?matrix\}"):
            self.in_matrix = False
            yield "]", "]", start
            yield "]", "]", start
        elif found := self.take(r"\\[{}]"):
            yield found[1], found[1], start
        elif found := self.take(r"\\text\s*\{[^{}]*\}"):
            for word in re.findall(r"\w+", found[5:]):
                known = word in self.known
                yield "name" if known else "word", word if known else word.lower(), start
        elif self.before == "^" and self.take(r"T(?!\w*_)"):
            yield "⊤", "T", start  # as in A^TA
        elif (c.isalpha() and c not in "ᵀΣ") or c == "_" or self.command() in LETTERS:
            yield from self.run_of_letters()
        elif found := self.take(r"\\[a-zA-Z]+"):
            name = found[1:]
            if name in COMMANDS:
                yield COMMANDS[name], found, start
            elif name in ("exp", "log", "ln", "det", "min", "max", "sin", "cos"):
                yield "name", name, start
            elif name not in SKIPPED:
                raise ExpressionError(f'the command "{found}" is not known.', self.text, start + 1)
            elif name in ("begin", "end", "label"):
                self.take(r"\s*\{[^{}]*\}")
        elif found := self.take(r"[⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ᵀ]+"):
            yield "^", "^", start
            plain = found.translate(SUPERSCRIPTS)
            symbol = {"T": "⊤", "+": "†"}.get(plain)
            yield (symbol or "power", plain, start)
        elif self.take(r"\.T(?![\w(])"):
            yield "^", "^", start
            yield "⊤", "T", start
        elif self.take(r"\.(?=\s*($|[\n$;(]|\\q?quad))"):
            return  # the end of a sentence
        elif found := self.take(r"\*\*|>>|<<|->|=>|:=|==|<=|>=|!=|[-+*/@^()\[\]{},;=<>|']"):
            yield ASCII.get(found, found), found, start
        elif c in SYMBOLS:
            self.at += 1
            yield SYMBOLS[c], c, start

    def take(self, pattern: str) -> str:
        found = re.compile(pattern).match(self.text, self.at)
        if found:
            self.at = found.end()
        return found[0] if found else ""

    def command(self) -> str:
        found = re.compile(r"\\([a-zA-Z]+)").match(self.text, self.at)
        return found[1] if found else ""

    def run_of_letters(self) -> Iterator[tuple[str, str, int]]:
        """Names that stand side by side, such as βμ_a, t(..., AA or \\mathbf{k}_{a}."""
        letters: list[tuple[str, int]] = []  # each with its index in the text
        self.letters_into(letters)
        word = "".join(text for text, _ in letters)
        if word in WORDS and word not in self.known:
            yield "word", word, letters[0][1]
            return
        for name, first in _cut(letters, self.known):
            yield "number" if name.isdigit() else "name", name, first

    def letters_into(self, letters: list[tuple[str, int]]) -> None:
        while self.at < len(self.text):
            start, c = self.at, self.text[self.at]
            name = self.command()
            if name in STYLES:
                self.at += len(name) + 1
                inner = self.take(r"\s*\{[^{}]*\}").strip()[1:-1]
                letters.extend((part, start) for part in re.findall(r"\w", inner.replace("\\", "")))
            elif name in GREEK.values():
                if letters and letters[-1][0] != "_":
                    return
                self.at += len(name) + 1
                letters.append((name, start))
                if not self.text.startswith("_", self.at):
                    return
            elif c == "_" and (found := self.take(r"_\s*\{\s*\\?[a-z]*\{?\s*(\w+)\s*\}?\s*\}")):
                inner = re.sub(r"\\[a-z]+|\W", "", found[1:])
                letters.append((f"_{inner}", start))
            elif c in GREEK:
                self.at += 1
                letters.append((GREEK[c], start))
            elif c.isalnum() and c.translate(SUBSCRIPTS) != c:
                self.at += 1
                letters.append((f"_{c.translate(SUBSCRIPTS)}", start))
            elif (c.isalnum() and c.translate(SUPERSCRIPTS) == c) or c == "_":
                self.at += 1
                letters.append((c, start))
            else:
                return


def _cut(letters: list[tuple[str, int]], known: Collection[str]) -> list[tuple[str, int]]:
    """The letters as known names, the longest first, if they are made of them; else as one name."""
    whole = "".join(text for text, _ in letters)

    def cut(i: int) -> list[tuple[str, int]] | None:
        if i == len(letters):
            return []
        for j in range(len(letters), i, -1):
            name = "".join(text for text, _ in letters[i:j])
            if name in known or (i > 0 and name.isdigit()):
                rest = cut(j)
                if rest is not None:
                    return [(name, letters[i][1]), *rest]
        return None

    if whole in known or len(letters) > 24:
        return [(whole, letters[0][1])]
    return cut(0) or [(whole, letters[0][1])]


def split(
    text: str, tokens: list[Token], wanted: Collection[str], factors: Collection[str]
) -> list[Statement]:
    """The statements of a text. Side conditions are checked and left out.

    wanted   names that are asked for
    factors  names of the large factor, of which a condition may speak
    """
    found: list[Statement] = []
    for clause in _clauses(tokens):
        parts = _parts(clause)
        for token in clause:
            if token.kind == "∝":
                sentence = "∝ leaves the factor open; write it, as in q = beta*(...)."
                raise ExpressionError(sentence, text, token.column)
        leading = [part[0] for part in parts[:-1] if len(part) == 1]
        names = [token for token in leading if token.text in wanted]
        if len(parts) > 1 and not parts[0] and found:  # "= ..." goes on with what was said before
            found[-1].formulas += [part for part in parts[1:] if part]
        elif names:
            formulas = [part for part in parts if part and part[0] not in names]
            found.append(Statement(names, formulas))
        elif _is_condition(clause, factors) or (leading and leading[0].text in factors):
            _check_condition(text, clause, factors)
        elif len(parts) > 1 and parts[0]:
            found.append(Statement(parts[0][:1], parts[1:]))
        elif not found and "word" not in {token.kind for token in clause}:
            found.append(Statement([], [clause]))
        else:
            _check_condition(text, clause, factors)
    return found


def _clauses(tokens: list[Token]) -> Iterator[list[Token]]:
    """The tokens between commas, semicolons and words such as "where", outside brackets."""
    depth, clause = 0, list[Token]()
    for i, token in enumerate(tokens):
        depth += (token.kind in "([{") - (token.kind in ")]}")
        ends = depth <= 0 and token.kind in (",", ";", "quad", "∈", "for")
        if token.kind == "word" and token.text in CUTS | JOINS and depth <= 0:
            ends = True
        if token.kind == "(" and depth == 1 and _is_remark(tokens[i:]):
            ends = True
        if ends:
            if clause:
                yield clause
            clause = [token] if token.kind in ("∈", "(", "for") or token.text in CUTS else []
        else:
            clause.append(token)
    if clause:
        yield clause


def _is_remark(tokens: list[Token]) -> bool:
    """Is this bracket a remark such as (beta >> 0) or the number of an equation?"""
    inside, depth = [], 0
    for token in tokens:
        depth += (token.kind in "([{") - (token.kind in ")]}")
        if depth == 0:
            break
        inside.append(token)
    prose = any(token.text in WORDS - {"a", "i"} for token in inside if token.kind == "word")
    return prose or bool({"≫", "≪", ">", "<", "→"} & {token.kind for token in inside})


def _parts(clause: list[Token]) -> list[list[Token]]:
    """The clause between its equals signs that are outside brackets."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in clause:
        depth += (token.kind in "([{") - (token.kind in ")]}")
        if token.kind == "=" and depth <= 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def _is_condition(clause: list[Token], factors: Collection[str]) -> bool:
    kinds = {token.kind for token in clause}
    speaks = any(token.kind == "name" and token.text in factors for token in clause)
    return bool(kinds & {"≫", "≪", ">", "<", "→", "∈", "for", "set"}) or (
        speaks and "word" in kinds
    )


def _check_condition(text: str, clause: list[Token], factors: Collection[str]) -> None:
    """Refuse a condition that is not one on a large factor."""
    first = clause[0]
    said = text[first.column - 1 : clause[-1].end - 1].strip()
    kinds = [token.kind for token in clause]
    words = {token.text for token in clause if token.kind == "word"}
    named = [i for i, token in enumerate(clause) if token.kind == "name" and token.text in factors]
    if set(kinds) <= {"(", ")", "number"} or "∈" in kinds or kinds[0] == "for":
        return  # the number of an equation, or in which space something lies
    if "±" in kinds:
        raise ExpressionError(TWO_SIGNS, text, first.column)
    if not named:
        if words and set(kinds) <= {"word", "name", "(", ")"}:
            return  # prose
        raise ExpressionError(f'"{said}" is not understood.', text, first.column)
    at = named[0]
    after, front = kinds[at + 1 : at + 2], kinds[at - 1 : at] if at else []
    small = words & SMALL or {"≪", "<"} & set(after) or {"≫", ">"} & set(front)
    if "→" in after and "∞" not in kinds and "word" not in kinds:
        small = {"→"}
    if "=" in kinds or small:
        letter = clause[at].text
        raise ExpressionError(
            f'"{said}" does not let {letter} grow, and {letter} is read as a large factor; write '
            "the number itself into the formula.",
            text,
            first.column,
        )
