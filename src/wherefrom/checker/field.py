"""Exact numbers: quotients of polynomials in beta, n and roots or constants such as sqrt(n - 2).

A polynomial is a dictionary {monomial: coefficient}; a monomial is a sorted tuple of (symbol,
power). beta grows, and so do exp(beta) and log(beta), faster and slower than every power of beta;
their powers may be fractions. A symbol that is neither a variable nor n nor one of these is an
*atom* of the field: a root, a logarithm, an exponential, e or pi, with its argument.

Whatever a formula divides by, or takes a root or a logarithm of, is noted as an *obligation* when
it is computed, before anything cancels: (n-5)/(n-5) is 1, and n-5 must not be zero.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import mpmath

Power = Fraction | int
Monomial = tuple[tuple[str, Power], ...]
Poly = dict[Monomial, Fraction]
Need = Literal["nonzero", "positive", "nonnegative"]
Kind = Literal["sqrt", "log", "exp", "constant"]

MAX_TERMS = 120  # of one polynomial
MAX_DEGREE = 64
MAX_BITS = 1200  # of a coefficient
MAX_SQUARE_FACTOR = 1000  # square factors of a number under a root are searched up to here
SIMPLE_EXPONENTS = (("beta", 1), ("log(beta)", 1))
ROUNDING = 1e-9  # that may make what is under a root negative
ONE: Poly = {(): Fraction(1)}
GROWING = ("exp(beta)", "beta", "log(beta)")  # each grows faster than any power of the next
Order = tuple[Power, ...]  # a power of each of them
FLAT: Order = (0, 0, 0)


class NotExactError(Exception):
    """The formula has no exact form in this field; numbers have to do."""


class TooLargeError(Exception):
    """The budget of operations is spent, or a number is too large to compute with."""


class UndefinedError(ArithmeticError):
    """The formula has no value; the text says why."""


class StepBudget:
    """Counts operations, and stops a check that needs too many. One step is about a microsecond."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def spend(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0:
            raise TooLargeError


@dataclass(frozen=True)
class Atom:
    """A symbol that stands for a function of its argument (of which only a root may grow with
    beta), or for one of e, pi and p0 = P(e < 0) P(e >= 0) for a length e ~ N(1, 1/2)."""

    kind: Kind
    argument: Poly
    index: int  # atoms in the argument have smaller ones


def constant(value: Fraction | int) -> Poly:
    return {(): Fraction(value)} if value else {}


def symbol(name: str, power: Power = 1) -> Poly:
    return {((name, power),): Fraction(1)}


def add(x: Poly, y: Poly) -> Poly:
    total = dict(x)
    for key, c in y.items():
        total[key] = total.get(key, Fraction(0)) + c
    return {key: c for key, c in total.items() if c}


def scale(x: Poly, factor: Fraction | int) -> Poly:
    return {key: c * factor for key, c in x.items()} if factor else {}


def names(x: Poly) -> set[str]:
    return {name for key in x for name, _ in key}


def by_power(x: Poly, name: str) -> dict[Power, Poly]:
    """Power of a symbol -> the polynomial that it is multiplied by."""
    parts: dict[Power, Poly] = {}
    for key, c in x.items():
        power: Power = next((p for s, p in key if s == name), 0)
        rest = tuple(pair for pair in key if pair[0] != name)
        parts.setdefault(power, {})[rest] = c
    return parts


def by_order(x: Poly) -> dict[Order, Poly]:
    """Powers of exp(beta), beta and log(beta) -> what they are multiplied by."""
    parts: dict[Order, Poly] = {}
    for key, c in x.items():
        powers = dict(key)
        order = tuple(powers.pop(name, 0) for name in GROWING)
        parts.setdefault(order, {})[tuple(sorted(powers.items()))] = c
    return parts


def merge(x: Monomial, y: Monomial) -> Monomial:
    """The product of two monomials."""
    if not x or not y:
        return x or y
    powers = dict(x)
    for name, power in y:
        powers[name] = powers.get(name, 0) + power
    return tuple(sorted((s, as_whole(p)) for s, p in powers.items() if p))


def multiply(x: Poly, y: Poly, squares: Mapping[str, Poly]) -> Poly:
    """The product, with the squares of roots written out."""
    total: Poly = {}
    for key, c in x.items():
        for key2, c2 in y.items():
            for whole, c3 in _without_squares(merge(key, key2), c * c2, squares).items():
                total[whole] = total.get(whole, Fraction(0)) + c3
    return {key: c for key, c in total.items() if c}


def _without_squares(key: Monomial, c: Fraction, squares: Mapping[str, Poly]) -> Poly:
    for name, power in key:
        if name in squares and power >= 2:
            rest = tuple(pair for pair in key if pair[0] != name)
            odd: Monomial = ((name, 1),) if power % 2 else ()
            product: Poly = {merge(rest, odd): c}
            for _ in range(int(power) // 2):
                product = multiply(product, squares[name], squares)
            return product
    return {key: c}


def substitute(x: Poly, values: Mapping[str, Any], number: Callable[[Fraction], Any]) -> Any:
    """The value of a polynomial in any arithmetic, whose numbers `number` makes of fractions."""
    total = number(Fraction(0))
    for key, c in x.items():
        product = number(c)
        for name, power in key:
            whole = power.denominator == 1
            product *= values[name] ** (int(power) if whole else number(Fraction(power)))
        total += product
    return total


class SymbolValues(dict[str, Any]):
    """Values of symbols in a context of mpmath (mp, fp or iv); those of atoms when asked for."""

    def __init__(self, atoms: Mapping[str, Atom], context: Any, known: Mapping[str, Any]) -> None:
        super().__init__(known)
        self.atoms, self.context = atoms, context

    def number(self, value: Fraction) -> Any:
        return self.context.mpf(value.numerator) / value.denominator

    def of(self, x: Poly) -> Any:
        return substitute(x, self, self.number)

    def __missing__(self, name: str) -> Any:
        context = self.context
        if name in ("exp(beta)", "log(beta)"):
            self[name] = getattr(context, name[:3])(self["beta"])
            return self[name]
        atom = self.atoms[name]
        if atom.kind == "constant":
            self[name] = {"e": context.exp(1), "pi": +context.pi, "p0": _p0(context)}[name]
        else:
            inside = self.of(atom.argument)
            least = {"sqrt": -ROUNDING, "log": 0}.get(atom.kind, -math.inf)
            if context is not mpmath.iv and not inside > least:
                raise UndefinedError
            if context is not mpmath.iv and atom.kind == "sqrt":
                inside = max(inside, 0)
            self[name] = getattr(context, atom.kind)(inside)
        return self[name]


def _p0(context: Any) -> Any:
    """P(e < 0) P(e >= 0) for e ~ N(1, 1/2), where P(e < 0) = erfc(1)/2."""
    if context is not mpmath.iv:
        below = context.erfc(1) / 2
        return below * (1 - below)
    with mpmath.workprec(context.prec):  # intervals have no erfc: leave room for its rounding
        share, room = _p0(mpmath.mp), mpmath.ldexp(1, 20 - context.prec)
        return context.mpf([share - room, share + room])


def _degree(key: Monomial) -> Fraction:
    return sum((abs(Fraction(power)) for _, power in key), Fraction(0))


def as_whole(power: Power) -> Power:
    return power.numerator if power.denominator == 1 else power


def write(x: Poly) -> str:
    """A polynomial as it could be written again."""
    text = ""
    order = sorted(x.items(), key=lambda item: (-_degree(item[0]), item[0]))
    for key, c in order:
        factors = [_write_power(s, p) for s, p in key]
        if abs(c) != 1 or not factors:
            plain = c.denominator == 1 or not factors
            factors.insert(0, str(abs(c)) if plain else f"({abs(c)})")
        sign = "-" if c < 0 else "+" if text else ""
        text += (f" {sign} " if text else sign) + "*".join(factors)
    return text or "0"


def _write_power(name: str, power: Power) -> str:
    if power == 1:
        return name
    return f"{name}**{power}" if power.denominator == 1 and power > 0 else f"{name}**({power})"


class Number:
    """top / bottom, two polynomials of a Field."""

    __slots__ = ("bottom", "field", "top")

    def __init__(self, field: Field, top: Poly, bottom: Poly) -> None:
        self.field, self.top, self.bottom = field, top, bottom

    @property
    def is_zero(self) -> bool:
        return not self.top

    @property
    def names(self) -> set[str]:
        return names(self.top) | names(self.bottom)

    def value(self, context: Any, **symbols: Any) -> Any:
        """At these values of beta, n and other symbols, in a context of mpmath."""
        self.field.budget.spend((1 + context.prec // 100) * (len(self.top) + len(self.bottom)))
        values = SymbolValues(self.field.atoms, context, symbols)
        try:
            return values.of(self.top) / values.of(self.bottom)
        except ArithmeticError:
            raise TooLargeError from None

    def __add__(self, other: Number) -> Number:
        times = self.field.times
        if self.bottom == other.bottom:
            return self.field.quotient(add(self.top, other.top), self.bottom)
        top = add(times(self.top, other.bottom), times(other.top, self.bottom))
        return self.field.quotient(top, times(self.bottom, other.bottom))

    def __neg__(self) -> Number:
        return Number(self.field, scale(self.top, -1), self.bottom)

    def __sub__(self, other: Number) -> Number:
        return self + -other

    def __mul__(self, other: Number) -> Number:
        times = self.field.times
        return self.field.quotient(times(self.top, other.top), times(self.bottom, other.bottom))

    def __truediv__(self, other: Number) -> Number:
        if self.field.vanishes(other):
            raise UndefinedError("this divides by zero.")
        self.field.oblige(other, "nonzero")
        times = self.field.times
        return self.field.quotient(times(self.top, other.bottom), times(self.bottom, other.top))

    def __pow__(self, exponent: int) -> Number:
        power = self.field.number(1)
        for _ in range(exponent):
            power = power * self
        return power

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Number) and (self - other).is_zero

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        top, bottom = write(self.top), write(self.bottom)
        if bottom == "1":
            return top
        top = f"({top})" if len(self.top) > 1 else top
        simple = len(self.bottom) == 1 and "*" not in bottom
        return f"{top}/{bottom}" if simple else f"{top}/({bottom})"


class Field:
    """The numbers of one formula, for every n >= least_n, or at one n if it is given."""

    def __init__(self, budget: StepBudget, least_n: int = 1, n: int | None = None) -> None:
        self.budget, self.least_n, self.at_n = budget, least_n, n
        self.atoms: dict[str, Atom] = {}
        self.obligations: list[tuple[Number, Need]] = []
        self.squares: dict[str, Poly] = {}  # of the roots, and of the imaginary unit
        self.beta = self.symbol("beta")
        self.n = self.symbol("n") if n is None else self.number(n)

    def number(self, value: Any) -> Number:
        return value if isinstance(value, Number) else Number(self, constant(value), ONE)

    def symbol(self, name: str, power: Power = 1) -> Number:
        return Number(self, symbol(name, power), ONE)

    def oblige(self, x: Number, need: Need) -> None:
        """Note what must be true of x, unless it is a number of which that is plain."""
        if names(x.top) or names(x.bottom):
            self.obligations.append((x, need))

    def times(self, x: Poly, y: Poly) -> Poly:
        """The product, with squares of roots written out, within the budget."""
        self.budget.spend(8 + 7 * len(x) * len(y))
        product = multiply(x, y, self.squares)
        if len(product) > MAX_TERMS:
            raise TooLargeError
        for key, c in product.items():
            bits = c.numerator.bit_length() + c.denominator.bit_length()
            if bits > MAX_BITS or _degree(key) > MAX_DEGREE:
                raise TooLargeError
        return product

    def quotient(self, top: Poly, bottom: Poly) -> Number:
        """top / bottom without common symbols; a lone power of beta below goes up."""
        if not top:
            return self.number(0)
        if bottom == ONE:
            return Number(self, top, ONE)
        keys = [dict(key) for key in (*top, *bottom)]
        shared = set.intersection(*map(set, keys))
        common = {name: min(key[name] for key in keys) for name in shared}
        content = _content(bottom)
        if len(bottom) == 1:
            ((key, content),) = bottom.items()
            common |= {name: power for name, power in key if name in GROWING}
        down = tuple((s, -p) for s, p in common.items() if p)
        top, bottom = (
            {merge(key, down): c / content for key, c in part.items()} for part in (top, bottom)
        )
        key, lead = next(iter(bottom.items()))
        ratio = top.get(key, Fraction(0)) / lead
        if ratio and top == scale(bottom, ratio):
            return self.number(ratio)
        return Number(self, top, bottom)

    def sign(self, x: Number) -> int:
        """The sign for every n once beta is large; NotExactError if it changes or is unknown."""
        from wherefrom.checker.asymptotics import lead_on

        low, high = (self.at_n, self.at_n) if self.at_n is not None else (self.least_n, None)
        leads = [lead_on(self, part, low, high) for part in (x.top, x.bottom)]
        if leads[0] is None or leads[1] is None:
            raise NotExactError
        return leads[0].sign * leads[1].sign

    def vanishes(self, x: Number) -> bool:
        """Is x zero, whatever beta is (and n, if it has no value)?"""
        if x.is_zero or not (names(x.top) & set(self.squares)):
            return x.is_zero
        try:
            return self.sign(Number(self, x.top, ONE)) == 0
        except NotExactError:
            return False

    def function(self, name: str, *arguments: Number) -> Number:
        """sqrt, abs, exp or log, where there is an exact form."""
        x = arguments[0]
        if name == "sqrt":
            return self.root(x)
        if name == "abs":
            growing = x.names & set(GROWING)
            alone = len(x.top) == len(x.bottom) == 1 and "log(beta)" not in growing
            if alone or not growing:  # else the sign may be another one for small beta
                with contextlib.suppress(NotExactError):
                    return x if self.sign(x) >= 0 else -x
            return self.root(x * x)
        if name == "exp":
            return self._exponential(x)
        if name == "log":
            return self._logarithm(x)
        raise NotExactError

    def atom(self, kind: Kind, name: str, argument: Poly) -> Poly:
        if name not in self.atoms:
            self.atoms[name] = Atom(kind, argument, len(self.atoms))
            if kind == "sqrt":
                self.squares[name] = argument
        return symbol(name)

    def grows(self, name: str) -> bool:
        """Is this beta or an atom that holds it?"""
        if name not in self.atoms:
            return name in GROWING
        return any(map(self.grows, names(self.atoms[name].argument)))

    def root(self, x: Number) -> Number:
        """The root of top over that of bottom, both positive."""
        if x.is_zero:
            return x
        if not names(x.top) and not names(x.bottom) and _value(x) < 0:
            raise UndefinedError("this is the square root of a negative number.")
        self.oblige(x, "nonnegative")
        if x.bottom != ONE and self.sign(Number(self, x.bottom, ONE)) < 0:
            x = Number(self, scale(x.top, -1), scale(x.bottom, -1))
        return self.quotient(self.root_of(x.top), self.root_of(x.bottom))

    def root_of(self, x: Poly) -> Poly:
        """The positive root of c * beta^p * n^2k * (the rest)."""
        content = _content(x)
        low = {name: min(by_power(x, name)) for name in (*GROWING, "n")}
        low["n"] -= low["n"] % 2
        down = tuple((name, -p) for name, p in low.items() if p)
        inner = {merge(key, down): c / content for key, c in x.items()}
        if len(inner) == 1 and not names(inner):
            content, inner = content * inner[()], ONE
            if content < 0:
                raise UndefinedError("this is the square root of a negative number.")
        # sqrt(p/q) = sqrt(p q)/q, and the square factors of p q come out
        whole = content.numerator * content.denominator
        factor = math.isqrt(whole)
        if factor**2 != whole:
            self.budget.spend(MAX_SQUARE_FACTOR // 5)
            factors = range(1, min(factor, MAX_SQUARE_FACTOR) + 1)
            factor = max(f for f in factors if whole % f**2 == 0)
        half = merge((), tuple((name, Fraction(p) / 2) for name, p in low.items() if p))
        half = tuple((name, as_whole(p)) for name, p in half)
        root: Poly = {half: Fraction(factor, content.denominator)}
        for part in (constant(Fraction(whole, factor**2)), inner):
            if part != ONE:
                root = self.times(root, self.atom("sqrt", f"sqrt({write(part)})", part))
        return root

    def _exponential(self, x: Number) -> Number:
        """e to a fraction and exp(beta) to one, times the exponential of what is left."""
        if x.bottom != ONE:
            raise NotExactError
        product, rest = self.number(1), Poly()
        for key, c in x.top.items():
            name, power = key[0] if len(key) == 1 else ("", 0)
            if (key and (name, power) not in SIMPLE_EXPONENTS) or (not key and abs(c) > MAX_DEGREE):
                rest[key] = c
                continue
            if abs(c) > 1000 or c.denominator > 1000:
                raise NotExactError
            if not key:
                self.atom("constant", "e", {})
            symbol_of = {"": "e", "beta": "exp(beta)", "log(beta)": "beta"}
            product = product * self.symbol(symbol_of[name], as_whole(c))
        if rest:
            for name in names(rest) - {"n"}:
                if name not in self.atoms or self.atoms[name].kind == "exp" or self.grows(name):
                    raise NotExactError
            product = product * Number(self, self.atom("exp", f"exp({write(rest)})", rest), ONE)
        return product

    def _logarithm(self, x: Number) -> Number:
        """A sum of logarithms of numbers above 1, of polynomials in n and of powers of beta."""
        if not names(x.top) and not names(x.bottom):
            value = _value(x)
            if value <= 0:
                raise UndefinedError("this is the logarithm of a number that is not positive.")
            return self._log_of(value.numerator) - self._log_of(value.denominator)
        if x.is_zero or x.names - {"n", *GROWING}:
            raise NotExactError
        self.oblige(x, "positive")
        parts = [self._log_of_poly(poly) for poly in (x.top, x.bottom)]
        return parts[0] - parts[1]

    def _log_of_poly(self, x: Poly) -> Number:
        """Of a power of beta and exp(beta) times a polynomial in n."""
        if len(by_order(x)) > 1:
            raise NotExactError
        (((exponential, power, deeper), x),) = by_order(x).items()
        if deeper:
            raise NotExactError
        content = _content(x)
        inner = scale(x, 1 / content)
        log = self._log_of(content.numerator) - self._log_of(content.denominator)
        log = log + self.number(Fraction(exponential)) * self.beta
        log = log + self.number(Fraction(power)) * self.symbol("log(beta)")
        if inner != ONE:
            log = log + Number(self, self.atom("log", f"log({write(inner)})", inner), ONE)
        return log

    def _log_of(self, whole: int) -> Number:
        if whole == 1:
            return self.number(0)
        return Number(self, self.atom("log", f"log({whole})", constant(whole)), ONE)


def _value(x: Number) -> Fraction:
    return x.top.get((), Fraction(0)) / x.bottom[()]


def _content(x: Poly) -> Fraction:
    """The largest positive number that divides all coefficients into whole numbers."""
    coefficients = x.values()
    common = math.gcd(*(c.numerator for c in coefficients))
    return Fraction(common, math.lcm(*(c.denominator for c in coefficients)))
