"""Exact numbers that depend on beta and n, and where they go as beta grows: what proofs use.

A Scalar is a quotient of two polynomials with rational coefficients in beta (whose powers may be
fractions, for sqrt(beta)), in n, and in atoms: positive constants and roots without a rational
value, such as sqrt(2) or sqrt(n - 2). Sums and products are exact; sqrt(n - 2)**2 is n - 2. What
does not fit raises NotExactError, and the caller falls back to floating point.

Why not sympy's fields: they cost 0.3 s of import in a command that takes 0.5 s, they cancel
(n-5)/(n-5) without a word, and no cap bounds the work of their greatest common divisors.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import Literal

from wherefrom.attention.checker.language import UndefinedError

Power = Fraction | int  # whole ones are ints, whose hashes are cheap
Term = tuple[Power, int, tuple[str, ...]]  # power of beta, power of n, atoms with repetition
Polynomial = dict[Term, Fraction]
Kind = Literal["zero", "constant", "up", "down", "unclear"]

MAX_STEPS = 30_000  # products of two terms in one formula: about a tenth of a second
MAX_TERMS = 60
MAX_DEGREE = 64
MAX_BITS = 400
MAX_EXPONENT = 200  # exp of more is beyond the magnitudes that numbers may have
NO_SYMBOL: Term = (0, 0, ())
UNITY: Polynomial = {NO_SYMBOL: Fraction(1)}


class NotExactError(Exception):
    """The exact form does not reach this formula; numbers have to do."""


@dataclass(frozen=True)
class Trend:
    """What becomes of a number as beta grows; `value` is the limit where it is a constant."""

    kind: Kind
    order: Power = -1  # it grows as this power of beta
    value: float | None = None


class Scalar:
    """top / bottom, two polynomials; made and combined within a Field."""

    def __init__(self, field: Field, top: Polynomial, bottom: Polynomial) -> None:
        self.field, self.top, self.bottom = field, top, bottom
        self.at_n: dict[int, list[list[tuple[float, float]]]] = {}  # what `at` has computed

    @property
    def is_zero(self) -> bool:
        return not self.top

    @property
    def moves(self) -> bool:
        """Does beta occur in it?"""
        return any(b for b, _, _ in (*self.top, *self.bottom))

    def __add__(self, other: Scalar) -> Scalar:
        if self.bottom == other.bottom:
            return self.field.quotient(_sum(self.top, other.top), self.bottom)
        times = self.field.times
        top = _sum(times(self.top, other.bottom), times(other.top, self.bottom))
        return self.field.quotient(top, times(self.bottom, other.bottom))

    def __neg__(self) -> Scalar:
        return Scalar(self.field, {term: -c for term, c in self.top.items()}, self.bottom)

    def __sub__(self, other: Scalar) -> Scalar:
        return self + -other

    def __mul__(self, other: Scalar) -> Scalar:
        if self.is_zero or other.is_zero:
            return self.field.rational(0)
        times = self.field.times
        return self.field.quotient(times(self.top, other.top), times(self.bottom, other.bottom))

    def __truediv__(self, other: Scalar) -> Scalar:
        """A divisor that may be zero for some n is put down as a doubt of the field."""
        if other.is_zero:
            raise UndefinedError("this divides by zero.")
        if not self.field.never_zero(other):
            self.field.doubts.append(other)
        times = self.field.times
        return self.field.quotient(times(self.top, other.bottom), times(self.bottom, other.top))

    def __pow__(self, exponent: int) -> Scalar:
        return reduce(Scalar.__mul__, [self] * exponent, self.field.rational(1))

    def __str__(self) -> str:
        top, bottom = show(self.top), show(self.bottom)
        if bottom == "1":
            return top
        wrap = f"({top})" if len(self.top) > 1 else top
        simple = len(self.bottom) == 1 and "*" not in bottom
        return f"{wrap}/{bottom}" if simple else f"{wrap}/({bottom})"

    def at(self, beta: float, n: int) -> float:
        """The value as a float; ZeroDivisionError at a pole, OverflowError beyond all floats."""
        if n not in self.at_n:
            self.at_n[n] = [self.field.floats(part, n) for part in (self.top, self.bottom)]
        top, bottom = (sum(c * beta**b for b, c in part) for part in self.at_n[n])
        if not (math.isfinite(top) and math.isfinite(bottom)):
            raise OverflowError
        return top / bottom


class Field:
    """The numbers that occur in one construction, for n >= least_n, within a budget of steps."""

    def __init__(self, least_n: int = 2) -> None:
        self.least_n = least_n
        self.steps = 0
        self.atoms: dict[str, tuple[str, Polynomial]] = {}  # name -> function, its argument in n
        self.doubts: list[Scalar] = []  # divisors not shown to be non-zero for every n
        self.doubtful: dict[int, bool] = {}  # what `has_doubt` has found
        self.beta = Scalar(self, {(1, 0, ()): Fraction(1)}, UNITY)
        self.n = Scalar(self, {(0, 1, ()): Fraction(1)}, UNITY)

    def rational(self, value: Fraction | int) -> Scalar:
        return Scalar(self, {NO_SYMBOL: Fraction(value)} if value else {}, UNITY)

    def times(self, x: Polynomial, y: Polynomial) -> Polynomial:
        """The product, with the squares of roots written out."""
        self.steps += len(x) * len(y)
        if self.steps > MAX_STEPS:
            raise NotExactError
        product: Polynomial = {}
        for (b, k, atoms), c in x.items():
            for (b2, k2, atoms2), c2 in y.items():
                for term, c3 in self._reduce(_whole(b + b2), k + k2, [*atoms, *atoms2]).items():
                    product[term] = product.get(term, Fraction(0)) + c * c2 * c3
        return _capped({term: c for term, c in product.items() if c})

    def _reduce(self, b: Power, k: int, atoms: list[str]) -> Polynomial:
        if not atoms:
            return {(b, k, ()): Fraction(1)}
        for name, count in Counter(atoms).items():
            function, argument = self.atoms[name]
            if count > 1 and function == "sqrt":
                atoms.remove(name)
                atoms.remove(name)
                return self.times(self._reduce(b, k, atoms), argument)
        return {(b, k, tuple(sorted(atoms))): Fraction(1)}

    def quotient(self, top: Polynomial, bottom: Polynomial) -> Scalar:
        """top / bottom without common powers of n and atoms; a lone beta below goes up."""
        if not top:
            return self.rational(0)
        terms = [*top, *bottom]
        k = min(term[1] for term in terms)
        common = reduce(Counter.__and__, (Counter(term[2]) for term in terms))
        shift: Power = 0
        content = _content(bottom)
        if len(bottom) == 1:
            (((shift, _, _), content),) = bottom.items()
        top, bottom = (
            {
                (_whole(b - shift), j - k, _without(atoms, common)): c / content
                for (b, j, atoms), c in polynomial.items()
            }
            for polynomial in (top, bottom)
        )
        first, scale = next(iter(bottom.items()))
        ratio = top.get(first, Fraction(0)) / scale
        if ratio and top == {term: c * ratio for term, c in bottom.items()}:
            return self.rational(ratio)
        return Scalar(self, top, bottom)

    def function(self, name: str, x: Scalar) -> Scalar:
        """sqrt, abs, exp or log, where it can be written exactly for every beta and n."""
        if x.is_zero and name in ("sqrt", "abs"):
            return x
        if name == "sqrt":
            return self.quotient(self._root(x.top), self._root(x.bottom))
        if name == "abs":
            sign = self.lead(x.top)[1] * self.lead(x.bottom)[1]
            if sign == 0 or (x.moves and len(x.top) + len(x.bottom) > 2):
                raise NotExactError  # the sign may change with n or with beta
            return x if sign > 0 else -x
        value = x.top.get(NO_SYMBOL, Fraction(0))
        constant = set(x.top) <= {NO_SYMBOL} and x.bottom == UNITY
        known = value > 1 if name == "log" else abs(value) <= MAX_EXPONENT
        is_log_n = name == "log" and x.top == self.n.top and x.bottom == UNITY
        if is_log_n or (constant and known):
            return self._atom(name, x.top)
        raise NotExactError

    def _atom(self, function: str, argument: Polynomial) -> Scalar:
        name = f"{function}({show(argument)})"
        self.atoms[name] = (function, argument)
        return Scalar(self, {(0, 0, (name,)): Fraction(1)}, UNITY)

    def _root(self, polynomial: Polynomial) -> Polynomial:
        """The positive root: powers of beta and n, a rational number and an atom of each kind."""
        content = _content(polynomial)
        b = min(b for b, _, _ in polynomial)
        k = min(k for _, k, _ in polynomial) // 2 * 2
        inner = {
            (_whole(c - b), j - k, atoms): v / content for (c, j, atoms), v in polynomial.items()
        }
        if any(c or atoms for c, _, atoms in inner) or self.sign(inner) != 1:
            raise NotExactError
        whole = content.numerator * content.denominator  # sqrt(p/q) = sqrt(p q)/q
        factor = math.isqrt(whole)
        if factor**2 != whole:
            if whole > 10**12:
                raise NotExactError
            factor = max(f for f in range(1, min(factor, 1000) + 1) if whole % f**2 == 0)
        half = _whole(Fraction(b) / 2)
        root: Polynomial = {(half, k // 2, ()): Fraction(factor, content.denominator)}
        for part in ({NO_SYMBOL: Fraction(whole, factor**2)}, inner):
            if part != UNITY:
                root = self.times(root, self._atom("sqrt", part).top)
        return root

    def value(self, polynomial: Polynomial, beta: float, n: int) -> float:
        """In floating point; OverflowError beyond all floats."""
        total = sum(c * beta**b for b, c in self.floats(polynomial, n))
        if not math.isfinite(total):
            raise OverflowError
        return total

    def floats(self, polynomial: Polynomial, n: int) -> list[tuple[float, float]]:
        """Powers of beta and their coefficients at this n; the part in n is summed exactly, so
        that nothing cancels there."""
        return [
            (float(b), math.prod((self._atom_value(atom, n) for atom in atoms), start=float(c)))
            for (b, atoms), c in _at(polynomial, n).items()
        ]

    def _atom_value(self, name: str, n: int) -> float:
        function, argument = self.atoms[name]
        inner = sum(_at(argument, n).values(), Fraction(0))
        if function == "log":
            return math.log(inner.numerator) - math.log(inner.denominator)
        return math.sqrt(inner) if function == "sqrt" else math.exp(inner)

    def sign(self, polynomial: Polynomial, n: int | None = None) -> int:
        """Of a polynomial without beta, at one n or for every n at once; 0 for zero or unclear.

        Atoms are positive, so the sign is certain where the polynomials in n before them agree.
        """
        if n is None:
            signs = {sign for runs in self.runs(polynomial) for _, sign in runs}
            if len(signs) == 1 or self.mentions_n(polynomial):
                return signs.pop() if len(signs) == 1 else 0
            n = 1
        parts = _at(polynomial, n)
        if not any(atoms for _, atoms in parts):
            total = sum(parts.values(), Fraction(0))
            return (total > 0) - (total < 0)
        sizes = [self.value({(b, 0, atoms): c}, 1.0, n) for (b, atoms), c in parts.items()]
        margin = 1e-10 * sum(map(abs, sizes))
        return (sum(sizes) > margin) - (sum(sizes) < -margin)

    def runs(self, polynomial: Polynomial) -> list[list[tuple[int, int]]]:
        """For each product of atoms the sign of the polynomial in n before it, on all integers
        from least_n on, as (first n, sign)."""
        by_atoms: dict[tuple[str, ...], dict[int, Fraction]] = {}
        for (_, k, atoms), c in polynomial.items():
            by_atoms.setdefault(atoms, {})[k] = c
        scale = math.lcm(*(c.denominator for c in polynomial.values()))
        return [
            _sign_runs([int(part.get(k, 0) * scale) for k in range(max(part) + 1)], self.least_n)
            for part in by_atoms.values()
        ]

    def mentions_n(self, polynomial: Polynomial) -> bool:
        """Does n occur, be it inside an atom?"""
        inside = (self.atoms[atom][1] for term in polynomial for atom in term[2])
        return any(k for part in (polynomial, *inside) for _, k, _ in part)

    def never_zero(self, x: Scalar) -> bool:
        """Is x certainly not zero, at any n, once beta is large?"""
        _, sign, coefficient = self.lead(x.top)
        runs = self.runs(coefficient)
        return sign != 0 or (len(runs) == 1 and all(sign for _, sign in runs[0]))

    def has_doubt(self, n: int) -> bool:
        """Was something divided by that is zero at this n, whatever beta is?"""
        if n not in self.doubtful:
            try:
                self.doubtful[n] = any(self.lead(x.top, n)[1] == 0 for x in self.doubts)
            except OverflowError:
                self.doubtful[n] = True
        return self.doubtful[n]

    def critical_n(self, x: Scalar) -> set[int]:
        """The n from which on a coefficient of x has another sign, where that is known."""
        parts = [part for p in (x.top, x.bottom) for part in _by_beta(p).values()]
        return {n for part in parts for runs in self.runs(part) for n, _ in runs[1:]}

    def lead(self, polynomial: Polynomial, n: int | None = None) -> tuple[Power, int, Polynomial]:
        """Power, sign and coefficient of the leading term in beta (at n: that is not zero)."""
        coefficients = _by_beta(polynomial)
        for order in sorted(coefficients, reverse=True):
            sign = self.sign(coefficients[order], n)
            if sign or n is None:
                return order, sign, coefficients[order]
        return 0, 0, {}

    def trend(self, x: Scalar, n: int | None = None) -> Trend:
        """What becomes of x as beta grows, at one n or for every n at once."""
        if x.is_zero:
            return Trend("zero")
        try:
            order, sign, top = self.lead(x.top, n)
            bottom_order, bottom_sign, bottom = self.lead(x.bottom, n)
            order -= bottom_order
            if bottom_sign == 0:
                return Trend("unclear")
            if order < 0 or not top:
                return Trend("zero", order)
            if sign == 0:
                return Trend("unclear")
            if order > 0:
                return Trend("up" if sign * bottom_sign > 0 else "down", order)
            if n is None and (self.mentions_n(top) or self.mentions_n(bottom)):
                return Trend("constant", order)
            value = self.value(top, 1.0, n or 1) / self.value(bottom, 1.0, n or 1)
            return Trend("constant", order, value)
        except (OverflowError, ZeroDivisionError):  # beyond or below what a float can hold
            return Trend("unclear")


def show(polynomial: Polynomial) -> str:
    """The polynomial as it could be written again."""

    def powers(term: Term) -> list[tuple[str, Power]]:
        b, k, atoms = term
        found: dict[str, Power] = {"beta": b, "n": k, **Counter(atoms)}
        return sorted((symbol, e) for symbol, e in found.items() if e)

    rows = [(powers(term), c) for term, c in polynomial.items()]
    text = ""
    for symbols, c in sorted(rows, key=lambda row: (-sum(max(e, -e) for _, e in row[0]), row[0])):
        factors = [
            s if e == 1 else f"{s}**{e}" if e.denominator == 1 and e > 0 else f"{s}**({e})"
            for s, e in symbols
        ]
        size = abs(c)
        if size != 1 or not factors:
            factors.insert(0, str(size) if size.denominator == 1 or not factors else f"({size})")
        sign = "-" if c < 0 else "+" if text else ""
        text += (f" {sign} " if text else sign) + "*".join(factors)
    return text or "0"


def _sign_runs(p: Sequence[int], start: int) -> list[tuple[int, int]]:
    """(first n, sign) of every run of equal signs of a polynomial on the integers from start on.

    Between two sign changes of its difference p(n+1) - p(n), which has a lower degree, p is
    monotone, and where its sign changes is found by bisection: nothing is rounded.
    """

    def sign(n: int) -> int:
        value = sum(c * n**k for k, c in enumerate(p))
        return (value > 0) - (value < 0)

    runs = [(start, sign(start))]
    if len(p) == 1:
        return runs
    step = [sum(p[k] * math.comb(k, j) for k in range(j + 1, len(p))) for j in range(len(p) - 1)]
    pieces = _sign_runs(step, start)
    ends = [n for n, _ in pieces[1:]] + [None]
    for (low, slope), end in zip(pieces, ends, strict=True):
        while slope and sign(low) != slope:
            high = 2 * low + 2 if end is None else end
            while end is None and sign(high) == sign(low):
                high *= 2
            if sign(high) == sign(low):
                break
            before = low
            while high - before > 1:
                middle = (before + high) // 2
                before, high = (middle, high) if sign(middle) == sign(low) else (before, middle)
            low = high
            runs.append((low, sign(low)))
    return runs


def _whole(power: Power) -> Power:
    return power.numerator if power.denominator == 1 else power


def _without(atoms: tuple[str, ...], common: Counter[str]) -> tuple[str, ...]:
    return tuple(sorted((Counter(atoms) - common).elements())) if common else atoms


def _at(polynomial: Polynomial, n: int) -> dict[tuple[Power, tuple[str, ...]], Fraction]:
    """Power of beta and atoms -> their coefficient at this n, where it is not zero."""
    total: dict[tuple[Power, tuple[str, ...]], Fraction] = {}
    for (b, k, atoms), c in polynomial.items():
        total[b, atoms] = total.get((b, atoms), Fraction(0)) + c * n**k
    return {key: c for key, c in total.items() if c}


def _by_beta(polynomial: Polynomial) -> dict[Power, Polynomial]:
    """Power of beta -> its coefficient."""
    found: dict[Power, Polynomial] = {}
    for (b, k, atoms), c in polynomial.items():
        found.setdefault(b, {})[0, k, atoms] = c
    return found


def _content(polynomial: Polynomial) -> Fraction:
    """The largest positive number of which all coefficients are whole multiples."""
    coefficients = polynomial.values()
    common = math.gcd(*(c.numerator for c in coefficients))
    return Fraction(common, math.lcm(*(c.denominator for c in coefficients)))


def _sum(x: Polynomial, y: Polynomial) -> Polynomial:
    total = dict(x)
    for term, c in y.items():
        total[term] = total.get(term, Fraction(0)) + c
    return {term: c for term, c in total.items() if c}


def _capped(polynomial: Polynomial) -> Polynomial:
    bits = (c.numerator.bit_length() + c.denominator.bit_length() for c in polynomial.values())
    degrees = (max(b, -b) + k + len(atoms) for b, k, atoms in polynomial)
    if len(polynomial) > MAX_TERMS or max(degrees, default=0) > MAX_DEGREE:
        raise NotExactError
    if max(bits, default=0) > MAX_BITS:
        raise NotExactError
    return polynomial
