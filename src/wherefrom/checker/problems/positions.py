"""Positions: a table of sinusoids in which none comes back, and rotations of pairs.

Pi is irrational, so an angle w t with a rational w never makes a full turn between two whole t,
and one with a rational multiple of pi does; both are decided in fractions. A rotated pair is a
polynomial in z = e^(i t theta), and a product of two depends on the distance alone if and only if
each term has opposite powers of z at the two positions.
"""

from __future__ import annotations

import cmath
import itertools
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
    ONE,
    Field,
    NotExactError,
    Number,
    Poly,
    Power,
    StepBudget,
    TooLargeError,
    add,
    as_whole,
    by_power,
    merge,
    names,
    substitute,
    symbol,
)
from wherefrom.checker.goals import Claim, certificate, decide, is_true
from wherefrom.checker.grammar import Expression
from wherefrom.checker.reading import Construction
from wherefrom.checker.results import CheckResult
from wherefrom.checker.spaces import Exact, NoValueError, Values, evaluate
from wherefrom.errors import UserError

ROUNDING = 1e-9
SEARCHED_POSITIONS = 2_000  # that are compared where no argument decides
SEARCHED_PAIRS = 60  # the smallest equal positions are looked for among so many
MAX_REFLECTED = 20_000
WIDTHS = (2, 4, 6, 8)  # that are tried where d or i remains in the formula


def judge(construction: Construction, draft: CheckResult, budget: StepBudget) -> CheckResult:
    if construction.problem.family == "rotary":
        return Rotary(construction, draft, budget).judge()
    return Table(construction.expressions["p"], draft, budget).judge()


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


class Table:
    """p(t), for t = 0, 1, 2, ...: do two positions share a vector?"""

    def __init__(self, expression: Expression, draft: CheckResult, budget: StepBudget) -> None:
        self.expression, self.draft, self.budget = expression, draft, budget

    def entries(self, i: int, d: int | None) -> tuple[Waves, list[Number]]:
        """The entries of the pair i at a width d (None: at every width)."""
        arithmetic = Waves(Field(self.budget, 0))
        field = arithmetic.field
        field.atom("constant", "pi", {})
        width = field.symbol("d") if d is None else field.number(d)
        values: Values = {"t": field.n, "i": i, "d": width, "pi": field.symbol("pi")}
        return arithmetic, evaluate(self.expression, arithmetic, values).ravel().tolist()

    def judge(self) -> CheckResult:
        try:  # the first pair, i = 0, is there for every d
            arithmetic, entries = self.entries(0, None)
            found = self.judge_pair(arithmetic, entries)
            if found is not None:
                return found
        except (NotExactError, NoValueError):
            pass
        uses_width = bool(self.expression.names & {"i", "d"})
        results = []
        for d in WIDTHS if uses_width else (2,):
            try:
                result = self.judge_width(d, uses_width)
            except NoValueError as problem:
                at = f" with d = {d}" if uses_width else ""
                because = f"p has no value{at}: {problem.sentence}"
                return self.draft.refuted(because, because, {"d": d})
            except NotExactError:
                return self.draft.inconclusive(
                    "only angles such as t/3, 2*pi*t/7 or t/10000**(2*i/d) can be judged exactly."
                )
            if result.verdict != "holds":
                return result
            results.append(result)
        if len(results) == 1:
            return results[0]
        widths = ", ".join(map(str, WIDTHS))
        return self.draft.holds(f"at d = {widths}, {results[0].because}")

    def judge_pair(self, arithmetic: Waves, entries: Sequence[Number]) -> CheckResult | None:
        """Proved by one entry in which nothing returns, or refuted where there is no value."""
        field = arithmetic.field
        where = (
            "the pair i = 0, which is there for every d,"
            if "i" in self.expression.names
            else "an entry"
        )
        own = [(x, need) for x, need in field.obligations if x.names <= {"n", "pi"}]
        positive_width = [
            x for x, _ in field.obligations if len(x.top) == 1 and x.names <= {"d", "pi"}
        ]
        if len(own) + len([x for x in positive_width if "d" in x.names]) < len(field.obligations):
            return None
        for number, need in own:
            for piece in decide(Field(self.budget, 0), [Claim(number, need)]).pieces[0]:
                if is_true(piece, need) is False:
                    because = f"p has no value at t = {piece.low}"
                    return self.draft.refuted(f"{because}.", f"{because}.", {"t": piece.low})
        field.obligations = own
        for entry in entries:
            reason = self.never_returns(arithmetic, entry)
            if reason is not None:
                claims, sentence = reason
                decision = decide(field, claims)
                if decision.is_proved:
                    because = f"for all t: {where} {sentence}"
                    return self.draft.proved(because, certificate(decision))
        return None

    def never_returns(self, waves: Waves, entry: Number) -> tuple[list[Claim], str] | None:
        """Claims by which an entry has no value twice, and a sentence."""
        field = waves.field
        widths = by_power(entry.top, "d")
        if len(widths) == 1 and "d" not in names(entry.bottom):  # a power of d is never zero
            entry = Number(field, next(iter(widths.values())), entry.bottom)
        moving = {name for name, wave in waves.waves.items() if wave.moves}
        if entry.names <= {"n", "pi"} and "n" in entry.names:
            gap = _shifted(field, entry) - entry
            for sign in (1, -1):
                claim = Claim(gap if sign == 1 else -gap, "positive")
                if decide(field, [claim]).is_proved:
                    return [claim], "grows (or falls) with every t, and never returns."
            return None
        held = entry.names & set(waves.waves)
        if len(held) != 1 or not held <= moving or entry.bottom != ONE:
            return None
        (name,) = held
        parts = by_power(entry.top, name)
        if not entry.names <= {name, "d", "pi"} or not set(parts) <= {0, 1} or len(parts[1]) != 1:
            return None
        wave = waves.waves[name]
        if not wave.w or wave.reflection is not None:
            return None
        claims = [Claim(field.number(wave.w), "nonzero")]
        return claims, (
            "has an angle that is a rational multiple of t, and pi is irrational: no two whole t "
            "differ by full turns."
        )

    def judge_width(self, d: int, uses_width: bool) -> CheckResult:
        """All entries at one width: equal positions by exact angles, or a search in floats."""
        tables = [self.entries(i, d) for i in range(d // 2)] if uses_width else [self.entries(0, 2)]
        pair = next(_equal_positions(tables), None)
        if pair is not None:
            return self.refuted_at(*pair, tables, f" with d = {d}" if uses_width else "")
        table = np.array([_float_vector(tables, t) for t in range(SEARCHED_POSITIONS)])
        if not np.isfinite(table).all():
            raise NotExactError
        rounded = np.round(table / np.maximum(1.0, np.abs(table).max(axis=0)), 9) + 0.0
        if len(np.unique(rounded, axis=0)) < SEARCHED_POSITIONS:
            return self.draft.inconclusive(
                "two positions agree to nine digits, but no argument shows whether they are equal."
            )
        return self.draft.holds(
            f"no two of the first {SEARCHED_POSITIONS:,} positions share a vector. "
            "That is no proof."
        )

    def refuted_at(
        self, s: int, t: int, tables: list[tuple[Waves, list[Number]]], width: str
    ) -> CheckResult:
        first, second = (_float_vector(tables, position) for position in (s, t))
        if not np.allclose(first, second, rtol=0, atol=1e-6):
            return self.draft.inconclusive("exact angles and floats disagree about two positions.")
        values = [round(x, 6) for x in first]
        because = f"the table comes back to where it was: p({s}) = p({t})."
        sentence = f"positions {s} and {t} have the same vector {values}{width}."
        return self.draft.refuted(because, sentence, {"s": s, "t": t}, {"p": values})


def _equal_positions(tables: list[tuple[Waves, list[Number]]]) -> Iterator[tuple[int, int]]:
    """Pairs of positions that certainly have equal vectors, the smaller ones first: every entry is
    made of waves that meet, or is a quotient of polynomials in t with equal values."""
    waves: list[Wave] = []
    polynomials: list[Number] = []
    for arithmetic, entries in tables:
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

    for t in range(1, SEARCHED_PAIRS):
        for s in range(t):
            if are_equal(s, t):
                yield s, t
    if all(not wave.w for wave in waves):
        candidates = [(0, math.lcm(1, *(wave.period for wave in waves)))]
    else:
        totals = {wave.reflection for wave in waves if wave.w}
        total = totals.pop()
        if totals or total is None:
            return
        candidates = [(s, total - s) for s in range(min((total + 1) // 2, MAX_REFLECTED))]
    for s, t in candidates:
        if are_equal(s, t):
            yield s, t


def _fraction_at(x: Number, t: int) -> Fraction:
    """The value of a quotient of polynomials in t; it has one, or the table would not."""
    top, bottom = (substitute(part, {"n": t}, Fraction) for part in (x.top, x.bottom))
    if not bottom:
        raise NotExactError
    return Fraction(top / bottom)


def _shifted(field: Field, x: Number) -> Number:
    """The number at t + 1."""
    parts = []
    following = field.n + field.number(1)
    for poly in (x.top, x.bottom):
        total = field.number(0)
        for power, rest in by_power(poly, "n").items():
            if power.denominator != 1 or power < 0:
                raise NotExactError
            total = total + Number(field, rest, ONE) * following ** int(power)
        parts.append(total)
    above, below = parts
    return field.quotient(
        field.times(above.top, below.bottom), field.times(above.bottom, below.top)
    )


def _float_vector(tables: list[tuple[Waves, list[Number]]], t: int) -> list[float]:
    """The entries at a position; NotExactError where one has no value."""
    vector = []
    for arithmetic, entries in tables:
        known = {name: wave.at(t) for name, wave in arithmetic.waves.items()}
        known |= {"n": float(t), "pi": math.pi}
        for number, need in arithmetic.field.obligations:
            value = float(number.value(mpmath.fp, **known))
            sign = (value > 0) - (value < 0)
            if not is_true(Piece(0, 0, 0, sign), need):
                raise NotExactError
        vector += [float(entry.value(mpmath.fp, **known)) for entry in entries]
    return vector


# ---- rotations


class Turns(Exact):
    """Polynomials in x1, x2 and e^(i t theta), for the position t of that name."""

    def __init__(self, field: Field, t: str) -> None:
        super().__init__(field)
        self.t, self.imaginary = t, field.symbol("i")

    def function(self, name: str, *arguments: Any) -> Any:
        if name not in ("sin", "cos", "exp"):
            return super().function(name, *arguments)
        angle = -self.imaginary * arguments[0] if name == "exp" else arguments[0]
        forth, back = self.turn(angle, 1), self.turn(angle, -1)
        if name == "exp":
            return forth
        half = self.number(Fraction(1, 2))
        if name == "cos":
            return half * (forth + back)
        return -half * self.imaginary * (forth - back)

    def turn(self, angle: Number, sign: int) -> Number:
        """e^(i angle) for an angle a t theta + b t + c with fractions a, b and c."""
        terms: dict[Any, str] = {
            tuple(sorted(((self.t, 1), ("theta", 1)))): f"z_{self.t}",
            ((self.t, 1),): f"r_{self.t}",
            (): "w",
        }
        if angle.bottom != ONE or set(angle.top) - set(terms):
            raise NotExactError
        powers = tuple((terms[key], as_whole(sign * c)) for key, c in angle.top.items())
        return Number(self.field, {merge((), powers): Fraction(1)}, ONE)


class Rotary:
    """Does the product of two rotated vectors depend on the distance alone?"""

    def __init__(self, construction: Construction, draft: CheckResult, budget: StepBudget) -> None:
        self.expressions, self.draft = construction.expressions, draft
        self.field = Field(budget, 1, 1)
        self.field.squares["i"] = {(): Fraction(-1)}

    def judge(self) -> CheckResult:
        only = "only sums of products of x with cos and sin of multiples of t*theta can be judged."
        try:
            at_s, at_t = (self.matrix_at(t) for t in "st")
        except NotExactError:
            return self.draft.inconclusive(only)
        if at_s is None or at_t is None:
            return self.not_linear(only)
        if any(x.names for x, _ in self.field.obligations):
            return self.draft.inconclusive("what it divides by may be zero at some t, theta or x.")
        products = [
            [at_s[0][b] * at_t[0][c] + at_s[1][b] * at_t[1][c] for c in (0, 1)] for b in (0, 1)
        ]
        entries = [entry for row in products for entry in row]
        if any(entry.bottom != ONE and names(entry.bottom) for entry in entries):
            return self.draft.inconclusive(only)
        monomials = sorted({key for entry in entries for key in entry.top})
        plain = all(
            {name for name, _ in key} <= {"z_s", "z_t", "r_s", "r_t", "i", "w"} for key in monomials
        )
        if plain and all(_is_distance(dict(key)) for key in monomials):
            if any(name[0] in "zr" for key in monomials for name, _ in key):
                because = (
                    "for all s, t, theta, q and k: in the product every power of e^(i s theta) "
                    "meets the opposite one of e^(i t theta), so it depends on s - t alone."
                )
                return self.draft.proved(because, {"kind": "distances", "monomials": monomials})
            return self.constant(products)
        return self.refuted(products, at_t)

    def matrix_at(self, t: str) -> list[list[Number]] | None:
        """The matrix R with y = R x at the position of that name; None if y is not linear in x."""
        field = self.field
        arithmetic = Turns(field, t)
        x1, x2 = field.symbol("x1"), field.symbol("x2")
        values = {"x1": x1, "x2": x2, "x": x1 + arithmetic.imaginary * x2, "t": field.symbol(t)}
        values |= {"theta": field.symbol("theta"), "i": arithmetic.imaginary}
        written = {
            name: evaluate(expression, arithmetic, values)
            for name, expression in self.expressions.items()
        }
        if "R" in written:
            if written["R"].shape != (2, 2):
                raise UserError("R must be a 2 x 2 matrix, as in [[cos(t*theta), ...], [...]].")
            if any(x.names & {"x1", "x2"} for x in written["R"].ravel()):
                return None
            return [[written["R"][row, column] for column in (0, 1)] for row in (0, 1)]
        if "y" in written and written["y"].size == 1:
            y = written["y"].item()
            conjugate = _conjugate(field, y)
            half = field.number(Fraction(1, 2))
            pair = [half * (y + conjugate), -half * arithmetic.imaginary * (y - conjugate)]
        else:
            pair = [
                entry
                for name in ("y", "y1", "y2")
                if name in written
                for entry in written[name].ravel()
            ]
        if len(pair) != 2:
            raise UserError("y has two entries, y1 and y2, or is one complex number.")
        rows = [_linear(field, entry) for entry in pair]
        return None if None in rows else [row for row in rows if row is not None]

    def not_linear(self, only: str) -> CheckResult:
        """Refuted, if the image of twice a vector is not twice its image at t = theta = 1."""
        images = {}
        for factor in (1.0, 2.0):
            arithmetic = Turns(self.field, "t")
            x1, x2 = self.field.symbol("x1"), self.field.symbol("x2")
            values = {"x1": x1, "x2": x2, "x": x1 + arithmetic.imaginary * x2}
            values |= {
                "t": self.field.symbol("t"),
                "theta": self.field.symbol("theta"),
                "i": arithmetic.imaginary,
            }
            at = {"x1": factor, "x2": factor, "t": 1.0, "theta": 1.0, "i": 1j, "w": cmath.exp(1j)}
            at |= {"z_t": cmath.exp(1j), "r_t": cmath.exp(1j)}
            entries = [
                entry
                for expression in self.expressions.values()
                for entry in evaluate(expression, arithmetic, values).ravel()
            ]
            try:
                images[factor] = [complex(entry.value(mpmath.fp, **at)) for entry in entries]
            except (TooLargeError, KeyError):
                return self.draft.inconclusive(only)
        gaps = [abs(2 * x - y) for x, y in zip(images[1.0], images[2.0], strict=True)]
        if max(gaps) < 1e-6:
            return self.draft.inconclusive(only)
        once, twice = (
            [
                round(part, 4)
                for x in images[factor]
                for part in ((x.real, x.imag) if len(gaps) == 1 else (x.real,))
            ]
            for factor in (1.0, 2.0)
        )
        sentence = f"at t = theta = 1, (1, 1) becomes {once} and (2, 2) becomes {twice}."
        because = "the result must be linear in x1 and x2, as a rotation is."
        return self.draft.refuted(because, sentence, {"t": 1}, {"once": once, "twice": twice})

    def constant(self, products: list[list[Number]]) -> CheckResult:
        score = _score(products[0][0], 0, 1)
        if abs(score - _score(products[0][0], 0, 0)) > ROUNDING:
            return self.draft.inconclusive("algebra and numbers disagree about this product.")
        sentence = f"with q = k = (1, 0) it is {score:.4g} at s = t = 0 and at s = 0, t = 1."
        because = "the product does not depend on the positions at all."
        return self.draft.refuted(because, sentence, {"s": 0, "t": 1}, {"product": score})

    def refuted(self, products: list[list[Number]], at_t: list[list[Number]]) -> CheckResult:
        """With the smallest positions at which the product changes though s - t does not."""
        for s, t in sorted(itertools.product(range(6), repeat=2), key=lambda p: (max(p), p)):
            for b, c in itertools.product((0, 1), repeat=2):
                here, there = (_score(products[b][c], s + step, t + step) for step in (0, 1))
                if abs(here - there) > 1e-13 * max(1.0, abs(here)):
                    query, key = (1 - b, b), (1 - c, c)
                    sentence = (
                        f"with theta = 1, q = {query} and k = {key} the product is {here:.13g} at "
                        f"s = {s}, t = {t} and {there:.13g} at s = {s + 1}, t = {t + 1}, where "
                        "s - t "
                        "is the same."
                    )
                    hint = self.wrong_sign(at_t)
                    because = (
                        f"the product of two rotated vectors depends on more than s - t{hint}."
                    )
                    numbers = {
                        "q": query,
                        "k": key,
                        "here": round(here, 6),
                        "there": round(there, 6),
                    }
                    return self.draft.refuted(because, sentence, {"s": s, "t": t}, numbers)
        return self.draft.inconclusive(
            "no two positions show that the product depends on more than s - t; that is no proof."
        )

    def wrong_sign(self, at_t: list[list[Number]]) -> str:
        """Where the sign is the other one, if the matrix is a rotation but for one sign."""
        arithmetic = Turns(self.field, "t")
        angle = self.field.symbol("t") * self.field.symbol("theta")
        cos, sin = (arithmetic.function(name, angle) for name in ("cos", "sin"))
        right = [[cos, -sin], [sin, cos]]
        wrong = [(a, b) for a in (0, 1) for b in (0, 1) if at_t[a][b] != right[a][b]]
        if len(wrong) == 1:
            ((a, b),) = wrong
            if (at_t[a][b] + right[a][b]).is_zero:
                return f"; the sign of x{b + 1} in y{a + 1} is the other one in a rotation"
        return ""


def _is_distance(powers: dict[str, Power]) -> bool:
    return all(powers.get(f"{x}_s", 0) + powers.get(f"{x}_t", 0) == 0 for x in "zr")


def _conjugate(field: Field, y: Number) -> Number:
    if names(y.bottom):
        raise NotExactError
    turned: Poly = {}
    for key, c in y.top.items():
        powers = tuple(
            (name, -p if name[:2] in ("z_", "r_") or name == "w" else p) for name, p in key
        )
        turned = add(turned, {merge((), powers): -c if ("i", 1) in key else c})
    return Number(field, turned, y.bottom)


def _linear(field: Field, y: Number) -> list[Number] | None:
    """The factors of x1 and x2, or None."""
    row: list[Poly] = [{}, {}]
    if names(y.bottom) & {"x1", "x2"}:
        return None
    for key, c in y.top.items():
        powers = dict(key)
        inputs = [powers.pop(x, 0) for x in ("x1", "x2")]
        if sorted(inputs) != [0, 1]:
            return None
        index = inputs.index(1)
        row[index] = add(row[index], {tuple(sorted(powers.items())): c})
    return [field.quotient(part, y.bottom) for part in row]


def _score(product: Number, s: int, t: int) -> float:
    """The product of a query at position s and a key at position t, for theta = 1."""
    at: dict[str, complex] = {"s": s, "t": t, "theta": 1.0, "i": 1j, "w": cmath.exp(1j)}
    at |= {"z_s": cmath.exp(1j * s), "z_t": cmath.exp(1j * t)}
    at |= {"r_s": cmath.exp(1j * s), "r_t": cmath.exp(1j * t)}
    return complex(product.value(mpmath.fp, **at)).real
