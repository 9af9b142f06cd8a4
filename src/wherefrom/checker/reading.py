"""The texts of one answer: clauses, which of them are formulas, and what the conditions say.

Every word is used. A clause is a formula, a condition of `LARGE_CONDITIONS` and its neighbours, or
the answer is not read, with the words shown. Conditions are understood or asked back: T -> 0 makes
T stand for 1/beta, t -> -infinity makes t stand for -beta, t_1 = t_2 makes them one letter.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from wherefrom.checker.grammar import (
    FUNCTION_ALIASES,
    FUNCTIONS,
    Expression,
    ExpressionError,
    Parser,
    Token,
    tokenize,
    write,
)
from wherefrom.errors import UserError

if TYPE_CHECKING:
    from wherefrom.checker.problems import Problem, Variable

MAX_TEXTS = 12
NOT_IN_FORMULAS = {"word", "≫", "≪", ">", "<", "→", "∈", "±", "∝"}
_CONDITION_TABLE = "where with for as if when such st given provided assuming while"
_LEAD_IN_TABLE = "and then so let set hence thus therefore choose define take use we vs versus"
CONDITION_WORDS, LEAD_INS = set(_CONDITION_TABLE.split()), set(_LEAD_IN_TABLE.split())
SMALL_LETTERS = {"epsilon", "eps", "delta"}  # 1/epsilon is a large factor
SAME_LETTER = {"lambda": "lam", "t_1": "t1", "t_2": "t2", "eps": "epsilon"}
# A clause in which F is a large factor, N the number of keys, W what is asked for and # a number
# other than 0.
_SIZE = "(?:very |sufficiently |arbitrarily |extremely )?(?:large|big|huge)(?: enough)?"
_NOUN = "(?:constant|scalar|number|factor|value|parameter|coefficient)"
_REAL = "(?:real |positive |positive real )?"
_GROWS = "(?:→|(?:tends|goes|grows|approaches|diverges|increases)(?: to)?)"
LARGE_CONDITIONS = [
    rf"F (?:is |being |be |are )?(?:a |an |some |any )?{_REAL}{_SIZE}(?: and positive)?"
    rf"(?: positive)?(?: real)?(?: {_NOUN})?",
    rf"(?:a |an |some |any |all |every |each )?{_REAL}{_SIZE} {_REAL}(?:{_NOUN} )?F",
    rf"{_SIZE}",
    r"(?:forall |all |every |any |some )?F (?:≫|>) (?:\+ )?[#0]",
    r"[#0] (?:≪|<) F",
    rf"F {_GROWS} (?:\+ )?(?:∞|infinity)",
    r"F ∈ (?:reals|R)(?: \^ (?:\{ )?\+(?: \})?)?",
    r"F ∈ [\[(] [#0] , (?:\+ )?∞ [\])]",
    r"(?:F (?:is |be )?)?positive",
]
TO_ZERO = [rf"F {_GROWS} (?:zero|0)(?: (?:\^ )?(?:\{{ )?\+(?: \}})?)?"]
TO_MINUS_INFINITY = [rf"F {_GROWS} (?:-|minus|negative) (?:∞|infinity)"]
EQUAL_LETTERS = ["F = F(?: = F)*(?: (?:≫|>) [#0])?"]  # they may also be large
OTHER_CONDITIONS = [
    r"(?:forall |all |every |any |each )N(?: > [0123])?",
    r"(?:W )?∈ (?:reals|R)(?: \^ (?:\{ )?[a-z](?: (?:\*|x|×) ?[a-z])?(?: \})?)?",
    r"I (?:is |= )?(?:the )?(?:[a-z] (?:x|\*|by) [a-z] )?identity(?: matrix)?",
    r"i = (?:a , b|# , #)",
    r"(?:each |every |all |forall )?i(?: ∈ \{ (?:a , b|# , #) \})?",
    r"\( # \)",  # the number of an equation
]


@dataclass(frozen=True)
class Construction:
    """The formulas of one answer."""

    problem: Problem
    expressions: dict[str, Expression] = field(default_factory=dict)
    again: list[tuple[str, Expression]] = field(default_factory=list)  # said to equal those
    notes: tuple[str, ...] = ()

    @property
    def texts(self) -> dict[str, str]:
        return {name: e.written for name, e in self.expressions.items()}

    @property
    def read_as(self) -> dict[str, str]:
        return {name: write(e.tree) for name, e in self.expressions.items()}


@dataclass
class Statement:
    """Formulas that are said to be equal, and the names that they are given."""

    source: str
    names: list[Token]
    formulas: list[list[Token]]


@dataclass
class Reader:
    """What is read off the texts of one answer."""

    problem: Problem
    statements: list[Statement] = field(default_factory=list)
    substituted: dict[str, str] = field(default_factory=dict)  # factor -> "1/beta" or "-beta"
    same_letter: dict[str, str] = field(default_factory=lambda: dict(SAME_LETTER))
    spoken_of: dict[str, tuple[str, list[Token]]] = field(default_factory=dict)  # in conditions

    def __post_init__(self) -> None:
        problem = self.problem
        self.known = problem.spellings()
        if "beta" in self.known.values() and not {"epsilon", "eps"} & set(problem.refused):
            self.known |= dict.fromkeys(SMALL_LETTERS - set(self.known), "beta")
            self.substituted |= dict.fromkeys(SMALL_LETTERS & set(self.known), "1/beta")
        self.wanted: dict[str, Variable] = {
            s: w for w in problem.wanted for s in (w.name, *w.aliases)
        }
        own = {name: (2, 2) if name == "pow" else (1, 1) for name in problem.functions.split()}
        self.functions = FUNCTIONS | own
        self.vocabulary = {*self.known, *problem.refused, *self.wanted, *self.functions}
        self.vocabulary |= set(FUNCTION_ALIASES)
        self.factors = {s for s, name in self.known.items() if name == "beta"}
        self.rows = {s for s, w in self.wanted.items() if str(w.shape) == "any"}
        only = problem.forms[0][0] if len(problem.forms[0]) == 1 else ""
        self.only = only  # what a formula without a name is

    def read(self, text: str) -> None:
        """Add the statements of one text, and apply its conditions."""
        plain, limits = _limits(text)
        tokens = _without_math_marks(tokenize(plain, self.vocabulary), self.wanted)
        for i, token in enumerate(tokens[1:], start=1):  # "vanilla: ..." is vanilla = ...
            if token.kind == ":" and tokens[i - 1].text in self.wanted:
                tokens[i] = replace(token, kind="=")
        tokens = _pairs(tokens, self.wanted)
        for clause in _clauses(tokens):
            self.clause(text, clause)
        for limit in limits:
            self.clause(text, tokenize(limit, self.vocabulary))

    def clause(self, text: str, clause: list[Token]) -> None:
        words, tokens = _split_lead_in(clause)
        if not tokens:
            if words & CONDITION_WORDS:
                raise not_read(text, clause)
            return
        if self.condition(text, tokens):
            return
        if words & CONDITION_WORDS and not self.is_definition(tokens):
            raise self.not_understood(text, clause)
        left, *sides = _divide(tokens, "=")
        sides = [side for side in sides if side]
        last = self.statements[-1] if self.statements else None
        if not sides and last and self.continues_row(last, tokens):
            _extend(last, tokens)
        elif not sides:
            if any(token.kind in NOT_IN_FORMULAS for token in tokens):
                raise self.not_understood(text, clause)
            if last and not (len(self.problem.forms[0]) > 1 and not last.names):
                raise self.not_understood(text, clause)
            self.statements.append(Statement(text, [], [tokens]))
        elif not left:  # "= ..." goes on with the statement before
            if last is None:
                raise not_read(text, clause)
            last.formulas += sides
        else:
            self.definition(text, left, sides, clause)

    def is_definition(self, tokens: list[Token]) -> bool:
        return len(tokens) > 2 and tokens[1].kind == "=" and tokens[0].text in self.wanted

    def continues_row(self, last: Statement, tokens: list[Token]) -> bool:
        """May these be another entry of the row before, as in p = cos(t), sin(t)?"""
        names = {token.text for token in last.names} or {self.only}
        kinds = {token.kind for token in tokens}
        return bool(names & self.rows) and not kinds & NOT_IN_FORMULAS

    def definition(
        self, text: str, left: list[Token], sides: list[list[Token]], clause: list[Token]
    ) -> None:
        name = left[0]
        if [token.kind for token in left[1:]] == ["'"]:  # a name with a prime
            left = left[:1]
        if [token.kind for token in left[1:]] == ["^", "⊤"]:  # q^T = x is q = x^T
            marks = [replace(name, kind=kind, text="") for kind in "()^⊤"]
            sides = [[marks[0], *side, *marks[1:]] for side in sides]
        elif len(left) > 1 and not _is_call(left):
            raise self.not_understood(text, clause)
        if name.kind != "name":
            raise not_read(text, clause)
        if name.text == "q_i" and {"q1", "q2"} <= set(self.wanted):
            for head, key in (("q1", "a"), ("q2", "b")):
                own = [[_indexed(token, key) for token in side] for side in sides]
                self.statements.append(Statement(text, [replace(name, text=head)], own))
            return
        last = self.statements[-1] if self.statements else None
        chain = [side[0] for side in sides[:-1] if len(side) == 1 and side[0].text in self.wanted]
        names = [name, *chain]
        formulas = [side for side in sides if not (len(side) == 1 and side[0] in chain)]
        if last and last.names and last.names[0].text == name.text and name.text in self.rows:
            _extend(last, formulas[-1])  # PE(pos, 2i) = ..., PE(pos, 2i+1) = ...
        else:
            self.statements.append(Statement(text, names, formulas))

    def condition(self, text: str, tokens: list[Token]) -> bool:
        """Is this a condition that is understood? It is applied; one that keeps a factor from
        growing is asked back."""
        said = " ".join(self.canonical(token) for token in tokens)
        letters = [token.text for token in tokens if token.text in self.factors]
        inner = said.removeprefix("( ").removesuffix(" )").removeprefix("[ ").removesuffix(" ]")

        def matches(patterns: list[str]) -> bool:
            return any(re.fullmatch(p, s) for p in patterns for s in (said, inner))

        if matches(EQUAL_LETTERS):
            for letter in letters:
                self.same_letter[letter] = self.same_letter.get(letters[0], letters[0])
            return True
        for patterns, meaning in ((TO_ZERO, "1/beta"), (TO_MINUS_INFINITY, "-beta")):
            if matches(patterns):
                self.substitute(text, tokens, letters[0], meaning)
                return True
        if matches(LARGE_CONDITIONS):
            for letter in letters:
                self.substitute(text, tokens, letter, "")
            return True
        if matches(OTHER_CONDITIONS):
            return True
        first = self.canonical(tokens[0]) == "F" and len(tokens) > 1
        about = letters and not self.statements_use(tokens)
        if about and (first or "F" not in said.split(" = ")[0]) and self.is_condition(tokens):
            words = text[tokens[0].column - 1 : tokens[-1].end - 1].strip()
            raise ExpressionError(
                f'"{words}" does not let {letters[0]} grow, and {letters[0]} is read as a large '
                "factor; write the number itself into the formula, or say that it is large.",
                text,
                tokens[0].column,
            )
        return False

    def is_condition(self, tokens: list[Token]) -> bool:
        """Is it about how large a letter is, and not a formula?"""
        kinds = {token.kind for token in tokens}
        fixed = [t.kind for t in tokens if t.kind != "-"] in (
            ["name", "=", "number"],
            ["number", "=", "name"],
        )
        return fixed or bool(kinds & {"word", "≫", "≪", ">", "<", "→", "∈", "∼"})

    def statements_use(self, tokens: list[Token]) -> bool:
        """Is something asked for or given named, so that this may be a formula?"""
        names = {token.text for token in tokens if token.kind == "name"}
        return bool(names & (set(self.wanted) | set(self.known) - self.factors))

    def substitute(self, text: str, tokens: list[Token], letter: str, meaning: str) -> None:
        self.spoken_of.setdefault(letter, (text, tokens))
        letter = self.same_letter.get(letter, letter)
        before = self.substituted.get(letter)
        if letter in SMALL_LETTERS:
            if meaning != "1/beta":
                raise not_read(text, tokens)
        elif before is not None and before != meaning:
            raise not_read(text, tokens)
        if meaning:
            self.substituted[letter] = meaning

    def canonical(self, token: Token) -> str:
        if token.kind == "name" or token.kind == "number":
            if token.text in self.factors:
                return "F"
            if self.known.get(token.text) == "n":
                return "N"
            if token.text in self.wanted:
                return "W"
            if token.kind == "number":
                return "0" if token.text == "0" else "#"
        return token.text if token.kind in ("name", "word") else token.kind

    def not_understood(self, text: str, clause: list[Token]) -> ExpressionError:
        """The error about a clause that is neither a formula nor a known condition."""
        for token in clause:
            if token.kind == "±":
                sentence = "± is two signs at once; if it stands for a letter, write that letter."
                return ExpressionError(sentence, text, token.column)
            if token.kind == "∝":
                sentence = "∝ does not say the factor; write it, as in q = beta*(...)."
                return ExpressionError(sentence, text, token.column)
        about = [t.text for t in clause if t.kind == "name" and t.text in self.wanted]
        if about and not any(t.kind == "word" for t in clause):
            words = text[clause[0].column - 1 : clause[-1].end - 1].strip()
            sentence = (
                f'"{words}" says what {about[0]} must do; write a formula, as {about[0]} = ...'
            )
            return ExpressionError(sentence, text, clause[0].column)
        return not_read(text, clause)

    def parse(self, statement: Statement, tokens: list[Token], target: Variable) -> Expression:
        shapes = {given.name: given.shape for given in self.problem.givens}
        known = {} if target.plain else self.known
        parser = Parser(
            statement.source,
            tokens,
            known,
            self.problem.refused,
            shapes,
            self.functions,
            self.substituted,
            self.same_letter,
        )
        return parser.read()


def read_construction(problem: Problem, texts: Sequence[str]) -> Construction:
    """Read every `name = formula`; what may not be written is an ExpressionError."""
    if len(texts) > MAX_TEXTS:
        raise UserError(f"an answer has {MAX_TEXTS} texts at most, and this has {len(texts)}.")
    reader = Reader(problem)
    for text in texts:
        reader.read(text)
    forms = " or ".join(" and ".join(form) for form in problem.forms)
    expressions: dict[str, Expression] = {}
    again: list[tuple[str, Expression]] = []
    any_wanted = any(t.text in reader.wanted for s in reader.statements for t in s.names)
    for statement in reader.statements:
        for name, column in _targets(reader, statement, any_wanted):
            if name not in reader.wanted:
                begins = f' (this begins with "{name[:40]}").' if name else ""
                sentence = (
                    f"{problem.name} asks for {forms}; write {forms.split()[0]} = ...{begins}"
                )
                raise ExpressionError(sentence, statement.source, column)
            target = reader.wanted[name]
            *others, last = [
                reader.parse(statement, tokens, target) for tokens in statement.formulas or [[]]
            ]
            if target.name in expressions:
                again.append((target.name, expressions[target.name]))
            expressions[target.name] = last
            again.extend((target.name, expression) for expression in others)
    if not any(set(expressions) == set(form) for form in problem.forms):
        got = ", ".join(sorted(expressions)) or "no formula"
        raise UserError(
            f"{problem.name} needs {forms}, and this gives {got}; write {forms.split()[0]} = ..."
        )
    _refuse_idle_conditions(reader, expressions)
    letters = sorted({e.factor for e in expressions.values()} - {""})
    if len(letters) > 1 and problem.family == "words":  # heads do not mix their factors; these do
        raise UserError(
            f"{' and '.join(letters)} are two large factors, and nothing says how they compare; "
            f"write one letter, or add {letters[0]} = {letters[1]}."
        )
    return Construction(problem, expressions, again, _notes(reader, expressions))


def _refuse_idle_conditions(reader: Reader, expressions: Mapping[str, Expression]) -> None:
    """A condition about a letter that no formula uses would be dropped: ask back. Only that it is
    large may be said where no formula has a factor, or beta is the norm of the given vectors."""
    used = {e.factor for e in expressions.values()} - {""}
    given = {"beta"} if reader.problem.family == "words" else set()
    for letter, (text, tokens) in reader.spoken_of.items():
        own = reader.same_letter.get(letter, letter)
        words = text[tokens[0].column - 1 : tokens[-1].end - 1].strip()
        if reader.substituted.get(own) and own in given:
            sentence = f'not read: "{words[:80]}", but {own} is given in this problem, and large.'
        elif own not in used and (used or reader.substituted.get(own)):
            letters = " and ".join(sorted(used)) or "no factor"
            sentence = (
                f'not read: "{words[:80]}" is about {letter}, and the formula uses {letters}; '
                "write one letter for the large factor."
            )
        else:
            continue
        raise ExpressionError(sentence, text, tokens[0].column)


def _notes(reader: Reader, expressions: Mapping[str, Expression]) -> tuple[str, ...]:
    letters = sorted({e.factor for e in expressions.values()} - {""})
    notes = []
    for letter in letters:
        if reader.substituted.get(letter):
            notes.append(f"{letter} is read as {reader.substituted[letter]}, with a large beta.")
    if len(letters) > 1:
        notes.append(f"{' and '.join(letters)} are read as one large factor, beta.")
    return tuple(notes)


def _targets(reader: Reader, statement: Statement, any_wanted: bool) -> list[tuple[str, int]]:
    """Names and columns of what a statement defines."""
    unnamed = reader.only
    if reader.problem.name == "perceiver-cost":  # only the perceiver has m latents
        letters = {t.text for tokens in statement.formulas for t in tokens}
        unnamed = "perceiver" if {"m", "M"} & letters else "vanilla"
    if not statement.names:
        return [(unnamed, 1)]
    targets = []
    for token in statement.names:
        name = token.text
        own = {t.text for tokens in statement.formulas for t in tokens}
        is_key = "_" in name and not name[-1].isdigit()
        renamed = name not in reader.vocabulary and not is_key  # g = ..., for q
        renamed |= reader.problem.name == "extract" and name not in own  # A = S D S^-1
        if reader.only and renamed and not any_wanted and name not in reader.wanted:
            name = reader.only
        targets.append((name, token.column))
    return targets


def not_read(text: str, clause: Sequence[Token]) -> ExpressionError:
    words = text[clause[0].column - 1 : clause[-1].end - 1].strip() if clause else text
    sentence = (
        f'not read: "{words[:80]}" is neither a formula nor a condition that is known; write '
        "name = formula, and after a comma at most how large the factor is."
    )
    return ExpressionError(sentence, text, clause[0].column if clause else 1)


def _limits(text: str) -> tuple[str, list[str]]:
    r"""The text without \lim_{...}, and what stands in those."""
    pattern = re.compile(r"\\lim\s*_\s*\{([^{}]*)\}")
    limits = [match[1] for match in pattern.finditer(text)]
    return pattern.sub(lambda match: " " * len(match[0]), text), limits


def _without_math_marks(tokens: list[Token], wanted: Collection[str]) -> list[Token]:
    """Without dollars and their like; one that stands before "q = ..." ends what was before."""
    kept: list[Token] = []
    for i, token in enumerate(tokens):
        if token.kind != "$":
            kept.append(token)
            continue
        after = [t for t in tokens[i + 1 : i + 3] if t.kind != "$"]
        begins = len(after) == 2 and after[0].text in wanted and after[1].kind == "="
        if begins and kept and kept[-1].kind not in (";", ",", "word"):
            kept.append(replace(token, kind=";"))
    return kept


def _clauses(tokens: list[Token]) -> list[list[Token]]:
    """The tokens between commas, semicolons, joining words and remarks in brackets."""
    clauses: list[list[Token]] = [[]]
    depth = 0
    for i, token in enumerate(tokens):
        remark = depth == 0 and token.kind in ("(", "[") and _is_remark(tokens[i:])
        begins = (
            token.kind == "forall"
            or (token.kind == "word" and token.text in CONDITION_WORDS | LEAD_INS)
            or (token.kind == "∈" and _follows_formula(clauses[-1], tokens[i + 1 :]))
        )
        if depth == 0 and (remark or begins):
            follows = clauses[-1] and clauses[-1][-1].text in CONDITION_WORDS | LEAD_INS
            if not (begins and follows):  # "and where" is one beginning
                clauses.append([])
        depth += (token.kind in "([{") - (token.kind in ")]}")
        if depth <= 0 and token.kind in (",", ";", ":") and not _in_interval(tokens, i):
            clauses.append([])
        else:
            clauses[-1].append(token)
    return [clause for clause in clauses if clause]


def _follows_formula(clause: list[Token], following: list[Token]) -> bool:
    """Does an ∈ end a formula, as in M = A A^T ∈ R^(d x d)?"""
    has_formula = any(token.kind == "=" for token in clause)
    return has_formula and [token.kind for token in following[:1]] == ["reals"]


def split_clauses(tokens: list[Token]) -> list[tuple[bool, list[Token]]]:
    """The clauses of a text, each with whether it begins as a condition ("where ...")."""
    made = []
    for clause in _clauses(tokens):
        words, rest = _split_lead_in(clause)
        if rest or words & CONDITION_WORDS:
            made.append((bool(words & CONDITION_WORDS), rest or clause))
    return made


def _in_interval(tokens: list[Token], i: int) -> bool:
    """Is this comma in "i = a, b" or "i = 1, 2"?"""
    around = [t.text for t in tokens[max(0, i - 3) : i + 2]]
    return around in (["i", "=", "a", ",", "b"], ["i", "=", "1", ",", "2"])


def _is_remark(tokens: list[Token]) -> bool:
    """Do these tokens begin with a remark in brackets, such as (beta >> 0)?"""
    depth = 0
    for token in tokens:
        depth += (token.kind in "([{") - (token.kind in ")]}")
        word = token.kind == "word" and token.text not in ("a", "i")
        if depth == 0 or word or token.kind in ("≫", "≪", ">", "<", "→"):
            return depth > 0
    return False


def _split_lead_in(clause: list[Token]) -> tuple[set[str], list[Token]]:
    """The words that begin a clause, and the rest."""
    words, start = set[str](), 0
    beginnings = CONDITION_WORDS | LEAD_INS | {"that"}
    while start < len(clause) and (
        clause[start].kind == "forall"
        or (clause[start].kind == "word" and clause[start].text in beginnings)
    ):
        if clause[start].kind == "forall":
            return words | {"for"}, clause[start:]
        words.add(clause[start].text)
        start += 1
    return words, clause[start:]


def _divide(tokens: list[Token], kind: str) -> list[list[Token]]:
    """The tokens between those of a kind, outside brackets."""
    parts, depth = [list[Token]()], 0
    for token in tokens:
        depth += (token.kind in "([{") - (token.kind in ")]}")
        if depth == 0 and token.kind == kind:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def _is_call(left: list[Token]) -> bool:
    """Is this a name with its arguments, as in FFN(X)?"""
    closes = left[-1].kind in (")", "}") and left[1].kind in ("(", "_")
    several = ("number", "+", "*") if any(t.kind == "," for t in left) else ()  # PE(pos, 2i + 1)
    plain = all(t.kind in ("name", ",", "(", ")", *several) for t in left)
    return left[0].kind == "name" and closes and plain


def _indexed(token: Token, key: str) -> Token:
    """mu_i as mu_a."""
    if token.kind == "name" and token.text.endswith("_i"):
        return replace(token, text=token.text[:-1] + key)
    return token


def _pairs(tokens: list[Token], wanted: Collection[str]) -> list[Token]:
    """(q1, q2) = (x, y), q1, q2 = x, y and (q1, q2) = beta (x, y) as q1 = ...; q2 = ..."""
    for i in range(len(tokens) - 3):
        names = [t for t in tokens[i : i + 3 : 2] if t.kind == "name" and t.text in wanted]
        if len(names) < 2 or tokens[i + 1].kind != ",":
            continue
        opened = i > 0 and tokens[i - 1].kind in ("(", "[")
        equal = i + 3 + opened
        if len(tokens) <= equal or tokens[equal].kind != "=":
            return tokens
        start, sign, comma = i - opened, tokens[equal], replace(tokens[i + 1], kind=";")
        statement, *rest = _divide(tokens[equal + 1 :], ";")
        sides = _two_sides(statement)
        if sides is None:
            return tokens
        first, second, more = sides
        made = [names[0], sign, *first, comma, names[1], sign, *second]
        made += [comma, *more] if more else []
        return tokens[:start] + made + [t for part in rest for t in (comma, *part)]
    return tokens


def _two_sides(right: list[Token]) -> tuple[list[Token], list[Token], list[Token]] | None:
    """The two formulas of x, y, of (x, y) or of beta (x, y), and what follows them."""
    parts = _divide(right, ",")
    sides = _pair_in_brackets(parts[0])
    count = 1 if sides else 2
    if len(parts) < count:
        return None
    first, second = sides or parts[:2]
    rest = [t for part in parts[count:] for t in (replace(right[0], kind=";"), *part)]
    return first, second, rest


def _pair_in_brackets(tokens: list[Token]) -> list[list[Token]] | None:
    """The two formulas of (x, y) or of beta (x, y)."""
    if not tokens or tokens[-1].kind not in (")", "]"):
        return None
    depth = 0
    for start in reversed(range(len(tokens))):
        depth += (tokens[start].kind in ")]}") - (tokens[start].kind in "([{")
        if depth == 0:
            break
    inside = _divide(tokens[start + 1 : -1], ",")
    if len(inside) != 2:
        return None
    opened, closed = (replace(tokens[-1], kind=kind) for kind in "()")
    factor = tokens[:start]
    return [[*factor, opened, *part, closed] for part in inside] if factor else inside


def _extend(statement: Statement, entry: list[Token]) -> None:
    """Make the last formula a row, and the entry its last one."""
    row = statement.formulas[-1]
    row = row[1:-1] if row[0].text == "row" else row
    opened, comma, closed = (Token(kind, "row", row[0].column, row[0].column) for kind in "(,)")
    statement.formulas[-1] = [opened, *row, comma, *entry, closed]
