"""Exact numbers: polynomials, their quotients in beta and n, and where those go as beta grows.

Not sympy's fields, which cancel (n-5)/(n-5) without a word and take 0.3 s to import.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, reduce
from typing import Any, Literal

from wherefrom.attention.checker.language import UndefinedError

Power = Fraction | int  # whole ones are ints
Monomial = tuple[tuple[str, Power], ...]
Kind = Literal["zero", "constant", "up", "down", "unclear"]

MAX_PRODUCTS = 400  # of terms, in the product of two polynomials
MAX_STEPS = 30_000  # products of two terms in one formula: about a tenth of a second
MAX_TERMS = 60
MAX_DEGREE = 64
MAX_BITS = 400
MAX_EXPONENT = 200  # exp of more is beyond the magnitudes that numbers may have


class NotExactError(Exception):
    """The exact form does not reach this formula; numbers have to do."""


class Poly(dict[Monomial, Fraction]):
    """A polynomial: products of powers of symbols -> their coefficients, none of them zero.
    The square of the symbol i is -1."""

    def __add__(self, other: Poly) -> Poly:
        return _collect((*self.items(), *other.items()))

    def __neg__(self) -> Poly:
        return Poly({key: -c for key, c in self.items()})

    def __sub__(self, other: Poly) -> Poly:
        return self + -other

    def __mul__(self, other: Poly | Fraction | int) -> Poly:
        factor = other if isinstance(other, Poly) else constant(other)
        if len(self) * len(factor) > MAX_PRODUCTS:
            raise NotExactError
        return times(self, factor, IMAGINARY)

    __rmul__ = __mul__

    def __truediv__(self, other: Poly) -> Poly:
        """Only a polynomial of one term can be divided by."""
        if not other:
            raise UndefinedError("this divides by zero.")
        if len(other) > 1:
            raise NotExactError
        ((key, c),) = other.items()
        return self * Poly({tuple((name, -power) for name, power in key): 1 / c})

    def __pow__(self, exponent: int) -> Poly:
        return reduce(Poly.__mul__, [self] * exponent, UNITY)

    def __str__(self) -> str:
        """As it could be written again."""
        text = ""
        order = sorted(self.items(), key=lambda item: (-sum(max(p, -p) for _, p in item[0]), item))
        for key, c in order:
            factors = [
                s if p == 1 else f"{s}**{p}" if p.denominator == 1 and p > 0 else f"{s}**({p})"
                for s, p in key
            ]
            if abs(c) != 1 or not factors:
                whole = c.denominator == 1 or not factors
                factors.insert(0, str(abs(c)) if whole else f"({abs(c)})")
            sign = "-" if c < 0 else "+" if text else ""
            text += (f" {sign} " if text else sign) + "*".join(factors)
        return text or "0"

    @property
    def is_zero(self) -> bool:
        return not self

    @property
    def names(self) -> set[str]:
        return {name for key in self for name, _ in key}

    def by_power(self, name: str) -> dict[Power, Poly]:
        """Power of a symbol -> what it is multiplied by."""
        parts: dict[Power, Poly] = {}
        for key, c in self.items():
            power = dict(key).get(name, 0)
            others = tuple(pair for pair in key if pair[0] != name)
            parts.setdefault(power, Poly())[others] = c
        return parts

    def at(self, numbers: Mapping[str, Any]) -> Any:
        """The value where the symbols are these numbers (or arrays of them)."""
        given = {"i": 1j, **numbers}
        products = (
            math.prod((given[s] ** p for s, p in key), start=float(c)) for key, c in self.items()
        )
        return sum(products)


def constant(value: Fraction | int) -> Poly:
    return Poly({(): Fraction(value)} if value else {})


def symbol(name: str, power: Power = 1) -> Poly:
    return Poly({((name, power),): Fraction(1)})


UNITY = constant(1)
IMAGINARY = {"i": constant(-1)}


def _collect(parts: Iterable[tuple[Monomial, Fraction]]) -> Poly:
    total: dict[Monomial, Fraction] = {}
    for key, c in parts:
        total[key] = total[key] + c if key in total else c
    return Poly({key: c for key, c in total.items() if c})


def times(x: Poly, y: Poly, squares: Mapping[str, Poly]) -> Poly:
    """The product, with the `squares` of symbols written out."""
    parts: list[tuple[Monomial, Fraction]] = []
    for key, c in x.items():
        for key2, c2 in y.items():
            whole = _join(key, key2)
            part = Poly({whole: c * c2})
            for name, power in whole:
                if name in squares and not 0 <= power <= 1:
                    half, odd = divmod(power, 2)
                    bare = Poly({_join(whole, ((name, odd - power),)): c * c2})
                    square = [squares[name]] * abs(int(half))
                    part = reduce(lambda a, b: times(a, b, squares), square, bare)
                    break
            parts.extend(part.items())
    return _collect(parts)


@lru_cache(maxsize=20_000)
def _join(x: Monomial, y: Monomial) -> Monomial:
    powers = dict(x)
    for name, power in y:
        powers[name] = powers.get(name, 0) + power
    whole = ((s, p.numerator if p.denominator == 1 else p) for s, p in powers.items() if p)
    return tuple(sorted(whole))


class Polynomials:
    """Polynomials as the numbers of an `instances.Exact` algebra."""

    def rational(self, value: Poly | Fraction | int) -> Poly:
        return value if isinstance(value, Poly) else constant(value)

    def function(self, name: str, x: Poly, *more: Poly) -> Poly:
        """A function of a number; O(x), an order of magnitude, is read as x."""
        if name != "O":
            raise NotExactError
        return x


@dataclass(frozen=True)
class Trend:
    """What becomes of a number as beta grows; `value` is the limit where it is a constant."""

    kind: Kind
    order: Power = -1  # it grows as this power of beta
    value: float | None = None


class Scalar:
    """top / bottom, two polynomials in beta (whose powers may be fractions), n and atoms: positive
    constants and roots such as sqrt(2) or sqrt(n - 2). Made and combined within a Field."""

    def __init__(self, field: Field, top: Poly, bottom: Poly) -> None:
        self.field, self.top, self.bottom = field, top, bottom
        self.at_n: dict[int, list[list[tuple[float, float]]]] = {}  # what `at` has computed

    @property
    def is_zero(self) -> bool:
        return not self.top

    @property
    def moves(self) -> bool:
        """Does beta occur in it?"""
        return "beta" in self.top.names | self.bottom.names

    def __add__(self, other: Scalar) -> Scalar:
        if self.bottom == other.bottom:
            return self.field.quotient(self.top + other.top, self.bottom)
        times = self.field.times
        top = times(self.top, other.bottom) + times(other.top, self.bottom)
        return self.field.quotient(top, times(self.bottom, other.bottom))

    def __neg__(self) -> Scalar:
        return Scalar(self.field, -self.top, self.bottom)

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
        top, bottom = str(self.top), str(self.bottom)
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
        self.atoms: dict[str, tuple[str, Poly]] = {}  # name -> function, its argument in n
        self.squares: dict[str, Poly] = {}  # of the roots among them
        self.doubts: list[Scalar] = []  # divisors not shown to be non-zero for every n
        self.beta = Scalar(self, symbol("beta"), UNITY)
        self.n = Scalar(self, symbol("n"), UNITY)

    def rational(self, value: Scalar | Fraction | int) -> Scalar:
        return value if isinstance(value, Scalar) else Scalar(self, constant(value), UNITY)

    def times(self, x: Poly, y: Poly) -> Poly:
        """The product, within the caps."""
        self.steps += len(x) * len(y)
        if self.steps > MAX_STEPS:
            raise NotExactError
        product = times(x, y, self.squares)
        bits = (c.numerator.bit_length() + c.denominator.bit_length() for c in product.values())
        degrees = (sum(max(power, -power) for _, power in key) for key in product)
        if len(product) > MAX_TERMS or max(degrees, default=0) > MAX_DEGREE:
            raise NotExactError
        if max(bits, default=0) > MAX_BITS:
            raise NotExactError
        return product

    def quotient(self, top: Poly, bottom: Poly) -> Scalar:
        """top / bottom without common symbols; a lone beta below goes up."""
        if not top:
            return self.rational(0)
        keys = [dict(key) for key in (*top, *bottom)]
        shared = set.intersection(*map(set, keys))
        common = {name: min(key[name] for key in keys) for name in shared}
        content = _content(bottom)
        if len(bottom) == 1:
            ((key, content),) = bottom.items()
            common["beta"] = dict(key).get("beta", 0)
        down = tuple((s, -p) for s, p in common.items() if p)
        top, bottom = (
            Poly({_join(key, down): c / content for key, c in part.items()})
            for part in (top, bottom)
        )
        key, scale = next(iter(bottom.items()))
        ratio = top.get(key, Fraction(0)) / scale
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
        size = x.top.get((), Fraction(0))
        known = size > 1 if name == "log" else abs(size) <= MAX_EXPONENT
        is_log_n = name == "log" and x.top == self.n.top
        if x.bottom == UNITY and (is_log_n or (set(x.top) <= {()} and known)):
            return Scalar(self, self._atom(name, x.top), UNITY)
        raise NotExactError

    def _atom(self, function: str, argument: Poly) -> Poly:
        name = f"{function}({argument})"
        self.atoms[name] = (function, argument)
        if function == "sqrt":
            self.squares[name] = argument
        return symbol(name)

    def _root(self, terms: Poly) -> Poly:
        """The positive root: powers of beta and n, a rational number and an atom of each kind."""
        content = _content(terms)
        beta, n = (min(terms.by_power(name)) for name in ("beta", "n"))
        n -= n % 2
        down = (("beta", -beta), ("n", -n))
        inner = Poly({_join(key, down): c / content for key, c in terms.items()})
        if inner.names - {"n"} or self.sign(inner) != 1:
            raise NotExactError
        whole = content.numerator * content.denominator  # sqrt(p/q) = sqrt(p q)/q
        factor = math.isqrt(whole)
        if factor**2 != whole:
            if whole > 10**12:
                raise NotExactError
            factor = max(f for f in range(1, min(factor, 1000) + 1) if whole % f**2 == 0)
        half = _join((), (("beta", Fraction(beta) / 2), ("n", Fraction(n) / 2)))
        root = Poly({half: Fraction(factor, content.denominator)})
        for part in (constant(Fraction(whole, factor**2)), inner):
            if part != UNITY:
                root = self.times(root, self._atom("sqrt", part))
        return root

    def floats(self, terms: Poly, n: int) -> list[tuple[float, float]]:
        """Powers of beta and their coefficients at this n; the part in n is summed exactly, so
        that nothing cancels there."""
        terms_of_beta = []
        for beta, part in _at(terms, n).by_power("beta").items():
            for key, c in part.items():
                atoms = (self._atom_value(name, n) ** int(power) for name, power in key)
                terms_of_beta.append((float(beta), math.prod(atoms, start=float(c))))
        return terms_of_beta

    def _atom_value(self, name: str, n: int) -> float:
        function, argument = self.atoms[name]
        inner = _at(argument, n).get((), Fraction(0))
        if function == "log":
            return math.log(inner.numerator) - math.log(inner.denominator)
        return math.sqrt(inner) if function == "sqrt" else math.exp(inner)

    def sign(self, terms: Poly, n: int | None = None) -> int:
        """The sign of a polynomial without beta, at one n or for every n; 0 for zero or unclear.
        Atoms are positive, so the sign is certain where the polynomials in n before them agree."""
        if n is None:
            signs = {sign for runs in self.runs(terms) for _, sign in runs}
            if len(signs) == 1 or self.mentions_n(terms):
                return signs.pop() if len(signs) == 1 else 0
            n = 1
        parts = _at(terms, n)
        if set(parts) <= {()}:
            total = parts.get((), 0)
            return (total > 0) - (total < 0)
        sizes = [c for _, c in self.floats(parts, n)]
        margin = 1e-10 * sum(map(abs, sizes))
        return (sum(sizes) > margin) - (sum(sizes) < -margin)

    def runs(self, terms: Poly) -> list[list[tuple[int, int]]]:
        """For each product of atoms the sign of the polynomial in n before it, on all integers
        from least_n on, as (first n, sign)."""
        by_atoms: dict[Monomial, dict[int, Fraction]] = {}
        for power, part in terms.by_power("n").items():
            for atoms, c in part.items():
                by_atoms.setdefault(atoms, {})[int(power)] = c
        scale = math.lcm(*(c.denominator for c in terms.values()))
        return [
            _sign_runs([int(part.get(k, 0) * scale) for k in range(max(part) + 1)], self.least_n)
            for part in by_atoms.values()
        ]

    def mentions_n(self, terms: Poly) -> bool:
        """Does n occur, in a power or inside an atom?"""
        atoms = terms.names - {"beta", "n"}
        return "n" in terms.names or any(self.mentions_n(self.atoms[x][1]) for x in atoms)

    def never_zero(self, x: Scalar) -> bool:
        """Is x certainly not zero, at any n, once beta is large?"""
        _, sign, coefficient = self.lead(x.top)
        runs = self.runs(coefficient)
        return sign != 0 or (len(runs) == 1 and all(sign for _, sign in runs[0]))

    def has_doubt(self, n: int) -> bool:
        """Does the formula divide by something that is zero at this n for every beta?"""
        try:
            return any(self.lead(x.top, n)[1] == 0 for x in self.doubts)
        except OverflowError:
            return True

    def critical_n(self, x: Scalar) -> set[int]:
        """The n from which on a coefficient of x has another sign, where that is known."""
        parts = [part for terms in (x.top, x.bottom) for part in terms.by_power("beta").values()]
        return {n for part in parts for runs in self.runs(part) for n, _ in runs[1:]}

    def lead(self, terms: Poly, n: int | None = None) -> tuple[Power, int, Poly]:
        """Power, sign and coefficient of the leading term in beta (at n: that is not zero)."""
        coefficients = terms.by_power("beta")
        for order in sorted(coefficients, reverse=True):
            sign = self.sign(coefficients[order], n)
            if sign or n is None:
                return order, sign, coefficients[order]
        return 0, 0, Poly()

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
            return Trend("constant", order, Scalar(self, top, bottom).at(1.0, n or 1))
        except (OverflowError, ZeroDivisionError):  # beyond or below what a float can hold
            return Trend("unclear")


def _sign_runs(p: Sequence[int], start: int) -> list[tuple[int, int]]:
    """(first n, sign) of every run of equal signs of a polynomial on the integers from start on.
    Between two sign changes of its difference p(n+1) - p(n), which has a lower degree, p is
    monotone, and where its sign changes is found by bisection: nothing is rounded."""

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


def _at(terms: Poly, n: int) -> Poly:
    """The polynomial at this n."""
    by_n = terms.by_power("n").items()
    return _collect((key, c * n ** int(p)) for p, part in by_n for key, c in part.items())


def _content(terms: Poly) -> Fraction:
    """The largest positive number that divides all coefficients into whole numbers."""
    coefficients = terms.values()
    common = math.gcd(*(c.numerator for c in coefficients))
    return Fraction(common, math.lcm(*(c.denominator for c in coefficients)))
