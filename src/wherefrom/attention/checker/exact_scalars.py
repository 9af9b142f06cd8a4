"""Exact numbers that depend on beta and n: what a proof for all n computes with.

A Scalar is a quotient of two polynomials with rational coefficients in beta (whose powers may
be fractions, for sqrt(beta)), in n, and in a few positive constants and roots that have no
rational value, such as sqrt(2) or sqrt(n-2). Sums and products are exact; sqrt(n-2)**2 is n-2.
Nothing here is rounded. What does not fit raises NotExactError, and the caller falls back to
numbers. A Field carries a budget of elementary steps, so that no formula takes long.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce

BETA, N = "beta", "n"
Monomial = tuple[tuple[str, Fraction], ...]  # (symbol, exponent), sorted by symbol
Polynomial = dict[Monomial, Fraction]

MAX_STEPS = 30_000  # products of two terms in one formula: about a tenth of a second
MAX_TERMS = 60
MAX_DEGREE = 64
MAX_BITS = 400
MAX_EXPONENT = 200  # exp of more is beyond the magnitudes that numbers may have


class NotExactError(Exception):
    """The exact form does not reach this formula; numbers have to do."""


@dataclass(frozen=True)
class Scalar:
    """numerator / denominator; made and combined by a Field only."""

    numerator: Polynomial
    denominator: Polynomial

    @property
    def is_zero(self) -> bool:
        return not self.numerator

    def __str__(self) -> str:
        top, bottom = show(self.numerator), show(self.denominator)
        if bottom == "1":
            return top
        wrap = f"({top})" if len(self.numerator) > 1 else top
        simple = len(self.denominator) == 1 and "*" not in bottom
        return f"{wrap}/{bottom}" if simple else f"{wrap}/({bottom})"


@dataclass(frozen=True)
class Atom:
    """A positive symbol without a rational value: a root, an exponential or a logarithm."""

    function: str
    argument: Polynomial

    def value(self, n: float) -> float:
        inner = evaluate_at(self.argument, {N: n}, {})
        return float({"sqrt": math.sqrt, "exp": math.exp, "log": math.log}[self.function](inner))


class Field:
    """Arithmetic of Scalars for n >= least_n, within a budget."""

    def __init__(self, *, least_n: int) -> None:
        self.least_n = least_n
        self.steps = 0
        self.atoms: dict[str, Atom] = {}

    def rational(self, value: Fraction | int) -> Scalar:
        return Scalar(_constant(Fraction(value)), _constant(Fraction(1)))

    def symbol(self, name: str) -> Scalar:
        return Scalar({((name, Fraction(1)),): Fraction(1)}, _constant(Fraction(1)))

    def add(self, x: Scalar, y: Scalar) -> Scalar:
        if x.denominator == y.denominator:
            return self._quotient(_sum(x.numerator, y.numerator), x.denominator)
        left = self._times(x.numerator, y.denominator)
        right = self._times(y.numerator, x.denominator)
        return self._quotient(_sum(left, right), self._times(x.denominator, y.denominator))

    def subtract(self, x: Scalar, y: Scalar) -> Scalar:
        return self.add(x, self.multiply(self.rational(-1), y))

    def multiply(self, x: Scalar, y: Scalar) -> Scalar:
        return self._quotient(
            self._times(x.numerator, y.numerator), self._times(x.denominator, y.denominator)
        )

    def divide(self, x: Scalar, y: Scalar) -> Scalar:
        """Only for a y that is certainly not zero for any n."""
        if y.is_zero:
            raise ZeroDivisionError
        return self._quotient(
            self._times(x.numerator, y.denominator), self._times(x.denominator, y.numerator)
        )

    def power(self, x: Scalar, exponent: int) -> Scalar:
        result = self.rational(1)
        for _ in range(exponent):
            result = self.multiply(result, x)
        return result

    def sqrt(self, x: Scalar) -> Scalar:
        """The root of something that is positive for every n, as a polynomial or a symbol."""
        if x.is_zero:
            return x
        return self._quotient(self._root(x.numerator), self._root(x.denominator))

    def function(self, name: str, x: Scalar) -> Scalar:
        """exp or log of a constant or of n, as a positive symbol."""
        if x.denominator != _constant(Fraction(1)) or BETA in symbols(x.numerator):
            raise NotExactError
        constant = not symbols(x.numerator)
        value = x.numerator.get((), Fraction(0)) if constant else None
        if name == "exp":
            if value is None or abs(value) > MAX_EXPONENT:
                raise NotExactError
            if value < 0:
                return self.divide(self.rational(1), self.function("exp", self.rational(-value)))
            return self.rational(1) if value == 0 else self._atom("exp", x.numerator)
        if value is not None and value <= 0:
            raise NotExactError
        if value == 1:
            return self.rational(0)
        if value is not None and value < 1:
            inverse = self._atom("log", _constant(1 / value))
            return self.multiply(self.rational(-1), inverse)
        if value is None and show(x.numerator) != N:
            raise NotExactError
        return self._atom("log", x.numerator)

    def at(self, x: Scalar, *, beta: float, n: float) -> float:
        """The value as a float, infinite where it overflows; ZeroDivisionError at a pole."""
        where = {BETA: beta, N: n}
        top = evaluate_at(x.numerator, where, self.atoms)
        bottom = evaluate_at(x.denominator, where, self.atoms)
        if not math.isfinite(top) or not math.isfinite(bottom):
            return math.inf if math.isnan(top) else math.copysign(math.inf, top)
        return top / bottom

    def _atom(self, function: str, argument: Polynomial) -> Scalar:
        name = f"{function}({show(argument)})"
        self.atoms[name] = Atom(function, argument)
        return self.symbol(name)

    def _root(self, polynomial: Polynomial) -> Polynomial:
        content = reduce(math.gcd, (c.numerator for c in polynomial.values()))
        common = Fraction(content, math.lcm(*(c.denominator for c in polynomial.values())))
        betas = [dict(m).get(BETA, Fraction(0)) for m in polynomial]
        shift = min(betas)
        inner: Polynomial = {}
        for monomial, coefficient in polynomial.items():
            rest = {**dict(monomial), BETA: dict(monomial).get(BETA, Fraction(0)) - shift}
            inner[_monomial(rest.items())] = coefficient / common
        outside: Polynomial = {_monomial([(BETA, shift / 2)]): Fraction(1)}
        outside = self._times(outside, self._root_of_rational(common))
        if inner == _constant(Fraction(1)):
            return outside
        square = _polynomial_root(inner)
        if square is not None and certain_sign(square, self.least_n):
            sign = certain_sign(square, self.least_n)
            return self._times(outside, {m: sign * c for m, c in square.items()})
        if symbols(inner) != {N} or certain_sign(inner, self.least_n) != 1:
            raise NotExactError
        return self._times(outside, self._atom("sqrt", inner).numerator)

    def _root_of_rational(self, value: Fraction) -> Polynomial:
        if value < 0:
            raise NotExactError
        whole = value.numerator * value.denominator  # sqrt(p/q) = sqrt(p q)/q
        root = math.isqrt(whole)
        if root * root == whole:
            return _constant(Fraction(root, value.denominator))
        if whole > 10**12:
            raise NotExactError
        factor = max(f for f in range(1, min(root, 1000) + 1) if whole % (f * f) == 0)
        atom = self._atom("sqrt", _constant(Fraction(whole // factor**2)))
        scale = Fraction(factor, value.denominator)
        return {m: c * scale for m, c in atom.numerator.items()}

    def _times(self, x: Polynomial, y: Polynomial) -> Polynomial:
        self.steps += len(x) * len(y)
        if self.steps > MAX_STEPS:
            raise NotExactError
        product: Polynomial = {}
        for left, a in x.items():
            for right, b in y.items():
                for monomial, c in self._reduce(left, right):
                    product[monomial] = product.get(monomial, Fraction(0)) + a * b * c
        return _capped({m: c for m, c in product.items() if c})

    def _reduce(self, left: Monomial, right: Monomial) -> list[tuple[Monomial, Fraction]]:
        """The product of two monomials with the squares of roots written out."""
        powers = dict(left)
        for symbol, exponent in right:
            powers[symbol] = powers.get(symbol, Fraction(0)) + exponent
        for symbol, exponent in powers.items():
            atom = self.atoms.get(symbol)
            if atom is not None and atom.function == "sqrt" and exponent >= 2:
                rest = _monomial((s, e if s != symbol else e - 2) for s, e in powers.items())
                return list(self._times({rest: Fraction(1)}, atom.argument).items())
        return [(_monomial(powers.items()), Fraction(1))]

    def _quotient(self, top: Polynomial, bottom: Polynomial) -> Scalar:
        if not top:
            return self.rational(0)
        if len(bottom) == 1:  # a denominator of one term goes into the numerator, but for roots
            ((monomial, coefficient),) = bottom.items()
            plain = [(s, -e) for s, e in monomial if s == BETA]
            rest = _monomial((s, e) for s, e in monomial if s != BETA)
            top = self._times(top, {_monomial(plain): 1 / coefficient})
            shared = [dict(m).get(s, Fraction(0)) for m in top for s, _ in rest[:1]]
            if len(rest) == 1 and min(shared) >= rest[0][1]:
                symbol, exponent = rest[0]
                lowered = [
                    ({**dict(m), symbol: dict(m)[symbol] - exponent}, c) for m, c in top.items()
                ]
                return Scalar({_monomial(p.items()): c for p, c in lowered}, _constant(Fraction(1)))
            return Scalar(top, {rest: Fraction(1)})
        first = next(iter(bottom))
        ratio = top.get(first, Fraction(0)) / bottom[first]
        if ratio and top == {m: c * ratio for m, c in bottom.items()}:
            return self.rational(ratio)
        return Scalar(top, bottom)


def symbols(polynomial: Polynomial) -> set[str]:
    """Every symbol that occurs."""
    return {symbol for monomial in polynomial for symbol, _ in monomial}


def show(polynomial: Polynomial) -> str:
    """The polynomial as it could be written again."""
    if not polynomial:
        return "0"
    text = ""
    for monomial, c in sorted(polynomial.items(), key=lambda t: (-_degree(t[0]), t[0])):
        factors = [
            s if e == 1 else f"{s}**{e}" if e.denominator == 1 and e > 0 else f"{s}**({e})"
            for s, e in monomial
        ]
        size = abs(c)
        if size != 1 or not factors:
            factors.insert(0, str(size) if size.denominator == 1 or not factors else f"({size})")
        sign = "-" if c < 0 else "+" if text else ""
        text += (f" {sign} " if text else sign) + "*".join(factors)
    return text


def evaluate_at(polynomial: Polynomial, where: dict[str, float], atoms: dict[str, Atom]) -> float:
    """The polynomial's value in floating point."""
    total = 0.0
    for monomial, coefficient in polynomial.items():
        try:
            term = float(coefficient)
            for symbol, exponent in monomial:
                base = where[symbol] if symbol in where else atoms[symbol].value(where[N])
                term *= base ** float(exponent)
        except OverflowError:
            term = math.copysign(math.inf, coefficient)
        total += term
    return total


def certain_sign(polynomial: Polynomial, least_n: int) -> int:
    """+1 or -1 if the polynomial in n has that sign for every n >= least_n, else 0.

    With n = least_n + m the sign is certain when no coefficient in m disagrees and the constant
    one is not zero; symbols other than n are positive and do not matter.
    """
    shifted: Polynomial = {}
    for monomial, coefficient in polynomial.items():
        powers = dict(monomial)
        degree = powers.pop(N, Fraction(0))
        for k in range(int(degree) + 1):
            key = _monomial([*powers.items(), (N, Fraction(k))])
            step = coefficient * math.comb(int(degree), k) * Fraction(least_n) ** (int(degree) - k)
            shifted[key] = shifted.get(key, Fraction(0)) + step
    for sign in (1, -1):
        agree = all(sign * c >= 0 for c in shifted.values())
        if agree and any(c and N not in dict(m) for m, c in shifted.items()):
            return sign
    return 0


def _polynomial_root(polynomial: Polynomial) -> Polynomial | None:
    """The square root of a polynomial in n alone, when it is a polynomial."""
    if symbols(polynomial) != {N}:
        return None
    coefficients = {int(dict(m).get(N, Fraction(0))): c for m, c in polynomial.items()}
    degree = max(coefficients)
    lead = coefficients[degree]
    head = Fraction(math.isqrt(lead.numerator), math.isqrt(lead.denominator)) if lead > 0 else 0
    if degree % 2 or not head or head * head != lead:
        return None
    root = {degree // 2: Fraction(head)}
    for power in range(degree // 2 - 1, -1, -1):
        high = degree // 2 + power
        known = sum(root[i] * root[high - i] for i in root if high - i in root)
        root[power] = (coefficients.get(high, Fraction(0)) - known) / (2 * head)
    for power in range(degree + 1):
        square = sum(root[i] * root[power - i] for i in root if power - i in root)
        if square != coefficients.get(power, Fraction(0)):
            return None
    return {_monomial([(N, Fraction(i))]): c for i, c in root.items() if c}


def _constant(value: Fraction) -> Polynomial:
    return {(): value} if value else {}


def _monomial(powers: Iterable[tuple[str, Fraction]]) -> Monomial:
    return tuple(sorted((symbol, exponent) for symbol, exponent in powers if exponent))


def _degree(monomial: Monomial) -> Fraction:
    return sum((abs(exponent) for _, exponent in monomial), Fraction(0))


def _sum(x: Polynomial, y: Polynomial) -> Polynomial:
    total = dict(x)
    for monomial, coefficient in y.items():
        total[monomial] = total.get(monomial, Fraction(0)) + coefficient
    return {m: c for m, c in total.items() if c}


def _capped(polynomial: Polynomial) -> Polynomial:
    too_long = len(polynomial) > MAX_TERMS
    too_high = any(_degree(monomial) > MAX_DEGREE for monomial in polynomial)
    too_big = any(
        c.numerator.bit_length() + c.denominator.bit_length() > MAX_BITS
        for c in polynomial.values()
    )
    if too_long or too_high or too_big:
        raise NotExactError
    return polynomial
