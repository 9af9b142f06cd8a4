"""Can two positions get the same vector?

Pi is irrational, so an angle w t with a rational w never makes a full turn between two whole t,
and one with a rational multiple of pi does; both are decided in fractions.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import mpmath
import numpy as np

from wherefrom.checker.asymptotics import Piece
from wherefrom.checker.field import (
    FLAT,
    ONE,
    Field,
    NotExactError,
    Number,
    StepBudget,
    by_power,
    names,
    substitute,
    symbol,
)
from wherefrom.checker.goals import Claim, certificate, decide, is_true
from wherefrom.checker.grammar import Expression, Node
from wherefrom.checker.reading import Construction
from wherefrom.checker.results import CheckResult
from wherefrom.checker.spaces import Exact, NoValueError, Values, evaluate
from wherefrom.errors import UserError

SEARCHED_POSITIONS = 2_000  # that are compared where no argument decides
SEARCHED_PAIRS = 60  # the smallest equal positions are looked for among so many
MAX_REFLECTED = 20_000
MAX_WIDTH = 128
WIDTHS = (2, 4, 6, 8)  # that are tried where d or i remains in the formula


def judge(construction: Construction, draft: CheckResult, budget: StepBudget) -> CheckResult:
    expression = construction.expressions["p"]
    if any(node.op == "exp" and "i" in node.parts() for node in expression.tree.walk()):
        raise UserError("i is the number of the pair here, not a root of -1; write sin and cos.")
    return Table(expression, draft, budget).judge()


@dataclass(frozen=True)
class Wave:
    """sin or cos of (w + v pi) t + f + g pi, for whole t.

    sin x = sin y iff x - y is a multiple of 2 pi, or x + y is pi and such a multiple; for cos,
    x - y or x + y is one. The rational part and the multiple of pi must agree each."""

    kind: str
    w: Fraction
    v: Fraction
    f: Fraction
    g: Fraction

    @property
    def moves(self) -> bool:
        return bool(self.w or self.v)

    @property
    def period(self) -> int:
        """After which it comes back, if w = 0: the smallest t with v t even."""
        return (self.v / 2).denominator

    @property
    def reflection(self) -> int | None:
        """The s + t, above 0, at which s and t have one value, if w is not 0."""
        total = -2 * self.f / self.w
        if total.denominator != 1 or total < 1:
            return None
        turns = (self.v * total + 2 * self.g) % 2
        return int(total) if turns == (1 if self.kind == "sin" else 0) else None

    def at(self, t: int) -> float:
        step, start = _within_a_turn(self.w), _within_a_turn(self.f)
        angle = step * t + start + math.pi * float((self.v * t + self.g) % 2)
        return math.sin(angle) if self.kind == "sin" else math.cos(angle)

    def meets(self, s: int, t: int) -> bool:
        """Are the values at two positions the same, exactly?"""
        if self.w * (s - t) == 0 and (self.v * (s - t)) % 2 == 0:
            return True
        rational = self.w * (s + t) + 2 * self.f
        turns = self.v * (s + t) + 2 * self.g
        return rational == 0 and turns % 2 == (1 if self.kind == "sin" else 0)


@lru_cache(maxsize=1024)
def _within_a_turn(angle: Fraction) -> float:
    """The angle less full turns; a float holds all its digits only then."""
    with mpmath.workdps(60):
        return float(mpmath.fmod(mpmath.mpf(angle.numerator) / angle.denominator, 2 * mpmath.pi))


class Waves(Exact):
    """Exact numbers in t (the n of the field) and pi, with sin and cos of angles as symbols."""

    def __init__(self, field: Field) -> None:
        super().__init__(field)
        self.waves: dict[str, Wave] = {}

    def function(self, name: str, *arguments: Any) -> Any:
        x = arguments[0]
        if name == "pow":
            return self.power_of(x, arguments[1])
        if name not in ("sin", "cos"):
            return super().function(name, x)
        terms = ((("n", 1),), (("n", 1), ("pi", 1)), (), (("pi", 1),))
        if x.bottom != ONE or set(x.top) - set(terms):
            raise NotExactError
        wave = Wave(name, *(x.top.get(term, Fraction(0)) for term in terms))
        if not any((wave.w, wave.v, wave.f, wave.g)):
            return self.number(0 if name == "sin" else 1)
        self.waves[f"{name}({x})"] = wave
        return Number(self.field, symbol(f"{name}({x})"), ONE)

    def power_of(self, x: Number, power: Number) -> Number:
        exponent = power.top.get((), Fraction(0)) / power.bottom.get((), Fraction(1))
        if power.names or exponent.denominator not in (1, 2) or abs(exponent) > 8:
            raise NotExactError
        base = self.field.root(x) if exponent.denominator == 2 else x
        made = base ** abs(exponent.numerator)
        return self.field.number(1) / made if exponent < 0 else made


Pair = tuple[Waves, list[Number]]  # the entries of one pair


class Table:
    """p(t), for t = 0, 1, 2, ...: do two positions share a vector?"""

    def __init__(self, expression: Expression, draft: CheckResult, budget: StepBudget) -> None:
        self.expression, self.draft, self.budget = expression, draft, budget
        self.uses_width = bool(expression.names & {"i", "d"})

    def entries(self, i: int, d: int | None) -> Pair:
        """The entries of the pair i at a width d (None: at every width)."""
        arithmetic = Waves(Field(self.budget, 0))
        field = arithmetic.field
        field.atom("constant", "pi", {})
        width = field.symbol("d") if d is None else field.number(d)
        values: Values = {"t": field.n, "i": i, "d": width, "pi": field.symbol("pi")}
        return arithmetic, evaluate(self.expression, arithmetic, values).ravel().tolist()

    def judge(self) -> CheckResult:
        with contextlib.suppress(NotExactError, NoValueError):
            has_values = all(_has_a_value_for_every_i(x) for x in self.expression.tree.walk())
            found = self.judge_first_pair(*self.entries(0, None)) if has_values else None
            if found is not None:
                return found
        # small widths, and those at which a part of the formula may be zero
        written = {int(x.number) for x in self.expression.tree.walk() if x.op == "number"}
        widths = {*WIDTHS, *(x for x in written if x % 2 == 0), *(2 * x + 2 for x in written)}
        tried = sorted(x for x in widths if 0 < x <= MAX_WIDTH) if self.uses_width else [2]
        searched = WIDTHS if self.uses_width else (2,)
        for d, search in [*((d, False) for d in tried), *((d, True) for d in searched)]:
            try:
                result = self.judge_width(d, search=search)
            except NoValueError as problem:
                at = f" with d = {d}" if self.uses_width else ""
                because = f"p has no value{at}: {problem.sentence}"
                return self.draft.refuted(because, because, {"d": d})
            except NotExactError:
                return self.draft.inconclusive(
                    "only angles such as t/3, 2*pi*t/7 or t/10000**(2*i/d) can be judged exactly."
                )
            if result is not None:
                return result
        at = f"at d = {', '.join(map(str, WIDTHS))}, " if self.uses_width else ""
        return self.draft.holds(
            f"{at}no two of the first {SEARCHED_POSITIONS:,} positions share a vector. "
            "That is no proof."
        )

    def judge_first_pair(self, waves: Waves, entries: Sequence[Number]) -> CheckResult | None:
        """The pair i = 0 is there for every d: proved by one entry in which nothing returns, or
        refuted where there is no value."""
        field = waves.field
        own = []
        for x, need in field.obligations:
            if x.names <= {"n", "pi"}:
                own.append((x, need))
            elif len(x.top) != 1 or not x.names <= {"d", "pi"}:  # a power of d is never zero
                return None
        field.obligations = own
        obliged = decide(field, [])
        for claim, pieces in zip(obliged.claims, obliged.pieces, strict=True):
            for piece in pieces:
                if is_true(piece, claim.must) is False:
                    because = f"p has no value at t = {piece.low}"
                    return self.draft.refuted(f"{because}.", f"{because}.", {"t": piece.low})
        first = "the pair i = 0, which is there for every d," if self.uses_width else "an entry"
        for entry in entries if obliged.is_proved else ():
            proof, why = _never_returns(waves, entry)
            if proof:
                return self.draft.proved(f"for all t: {first} {why}", proof)
        return None

    def judge_width(self, d: int, *, search: bool) -> CheckResult | None:
        """All entries at one width: equal positions by exact angles or, if asked for, by a search
        in floats; None if no two positions are equal or nearly so."""
        pairs = [self.entries(i, d) for i in range(d // 2 if self.uses_width else 1)]
        equal = next(_equal_positions(pairs), None)
        if equal is not None:
            s, t = equal
            at = f" with d = {d}" if self.uses_width else ""
            values = [round(x, 6) for x in _float_vector(pairs, s)]
            because = f"the table comes back to where it was: p({s}) = p({t})."
            sentence = f"positions {s} and {t} have the same vector {values}{at}."
            return self.draft.refuted(because, sentence, {"s": s, "t": t}, {"p": values})
        if not search:
            return None
        table = np.array([_float_vector(pairs, t) for t in range(SEARCHED_POSITIONS)])
        if not np.isfinite(table).all():
            raise NotExactError
        rounded = np.round(table / np.maximum(1.0, np.abs(table).max(axis=0)), 9) + 0.0
        if len(np.unique(rounded, axis=0)) < SEARCHED_POSITIONS:
            return self.draft.inconclusive(
                "two positions agree to nine digits, but no argument shows whether they are equal."
            )
        return None


def _has_a_value_for_every_i(node: Node) -> bool:
    """Whatever it divides by, or takes a root, a logarithm or a power of, is positive or has no i
    in it."""
    if node.op not in ("/", "sqrt", "log", "pow"):
        return True
    inside = node.arguments[0 if node.op == "pow" else -1]
    return "i" not in inside.parts() or _is_positive(inside)


def _is_positive(node: Node) -> bool:
    """By its parts; i is 0 at least."""
    if node.op == "+":
        others = [part for part in node.arguments if part.name != "i"]
        return bool(others) and all(map(_is_positive, others))
    if node.op in ("*", "/", "sqrt"):
        return all(map(_is_positive, node.arguments))
    if node.op in ("pow", "**"):
        return _is_positive(node.arguments[0])
    return node.number > 0 if node.op == "number" else node.name == "d"


def _never_returns(waves: Waves, entry: Number) -> tuple[dict[str, Any], str]:
    """A certificate that an entry has no value twice, and a sentence; or nothing."""
    field = waves.field
    widths = by_power(entry.top, "d")
    if len(widths) == 1 and "d" not in names(entry.bottom):  # a power of d is never zero
        entry = Number(field, next(iter(widths.values())), entry.bottom)
    if entry.names <= {"n", "pi"} and "n" in entry.names:
        gap = _shifted(field, entry) - entry
        for step in (gap, -gap):
            decision = decide(field, [Claim(step, "positive")])
            if decision.is_proved:
                return certificate(decision), "grows (or falls) with every t, and never returns."
    held = entry.names & set(waves.waves)
    if len(held) != 1 or entry.bottom != ONE or not entry.names <= {*held, "d", "pi"}:
        return {}, ""
    (name,) = held
    parts, wave = by_power(entry.top, name), waves.waves[name]
    if not set(parts) <= {0, 1} or len(parts[1]) != 1 or not wave.w or wave.reflection is not None:
        return {}, ""
    angle = {"kind": "wave", "odd": wave.kind == "sin", "angle": (wave.w, wave.v, wave.f, wave.g)}
    return certificate(decide(field, [])) | angle, (
        "has an angle that is a rational multiple of t, and pi is irrational: no two whole t "
        "differ by full turns."
    )


def _equal_positions(pairs: Sequence[Pair]) -> Iterator[tuple[int, int]]:
    """Pairs of positions that certainly have equal vectors, the smaller ones first: every entry is
    made of waves that meet, or is a quotient of polynomials in t with equal values."""
    waves: list[Wave] = []
    polynomials: list[Number] = []
    for arithmetic, entries in pairs:
        for entry in entries:
            held = entry.names & set(arithmetic.waves)
            if entry.names <= {"n"}:
                polynomials.append(entry)
            elif entry.names - held <= {"pi"}:
                waves += [arithmetic.waves[name] for name in held]
            else:
                return

    def are_equal(s: int, t: int) -> bool:
        return all(wave.meets(s, t) for wave in waves) and all(
            _fraction_at(entry, s) == _fraction_at(entry, t) for entry in polynomials
        )

    candidates = [(s, t) for t in range(1, SEARCHED_PAIRS) for s in range(t)]
    totals = {wave.reflection for wave in waves if wave.w}
    if not totals:
        candidates.append((0, math.lcm(1, *(wave.period for wave in waves))))
    elif len(totals) == 1 and (total := totals.pop()):
        candidates += [(s, total - s) for s in range(min((total + 1) // 2, MAX_REFLECTED))]
    yield from (pair for pair in candidates if are_equal(*pair))


def _fraction_at(x: Number, t: int) -> Fraction:
    """The value of a quotient of polynomials in t; it has one, or the table would not."""
    top, bottom = (substitute(part, {"n": t}, Fraction) for part in (x.top, x.bottom))
    if not bottom:
        raise NotExactError
    return Fraction(top / bottom)


def _shifted(field: Field, x: Number) -> Number:
    """The number at t + 1."""
    following = field.n + field.number(1)
    parts = []
    for poly in (x.top, x.bottom):
        terms = by_power(poly, "n").items()
        if any(power.denominator != 1 or power < 0 for power, _ in terms):
            raise NotExactError
        numbers = [Number(field, rest, ONE) * following ** int(power) for power, rest in terms]
        parts.append(sum(numbers, field.number(0)))
    above, below = parts
    return field.quotient(
        field.times(above.top, below.bottom), field.times(above.bottom, below.top)
    )


def _float_vector(pairs: Sequence[Pair], t: int) -> list[float]:
    """The entries at a position; NotExactError where one has no value."""
    vector = []
    for arithmetic, entries in pairs:
        known = {name: wave.at(t) for name, wave in arithmetic.waves.items()}
        known |= {"n": float(t), "pi": math.pi}
        for number, need in arithmetic.field.obligations:
            value = float(number.value(mpmath.fp, **known))
            if not is_true(Piece(0, 0, FLAT, (value > 0) - (value < 0)), need):
                raise NotExactError
        vector += [float(entry.value(mpmath.fp, **known)) for entry in entries]
    return vector
