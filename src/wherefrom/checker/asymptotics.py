"""The one decision procedure: what becomes of an exact number as beta grows, for every n.

The whole numbers n >= least_n are cut into intervals. On each the leading power of beta and its
sign are decided for all real n in it, or the interval is a single n; what cannot be decided is
said to be unknown. Nothing is rounded, except that a constant such as log(3) - e/2 is enclosed.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import comb, lcm
from typing import Literal

import mpmath

from wherefrom.checker.field import (
    FLAT,
    ONE,
    Field,
    Number,
    Order,
    Poly,
    SymbolValues,
    add,
    by_order,
    by_power,
    names,
    scale,
)

LARGEST_N = 10**40  # beyond it the sign of a polynomial is called unknown
MAX_PIECES = 2000
MAX_LOGARITHM_PIECES = 24  # no cutting finds where a logarithm of n crosses a polynomial
ENCLOSURE_BITS = 200


Must = Literal["grows", "vanishes", "zero", "not above", "nonzero", "positive", "nonnegative"]


def follows(must: Must, order: Order, sign: int) -> bool:
    """Is a number of this order and sign what it must be, once beta is large?"""
    return {
        "grows": order > FLAT and sign > 0,
        "vanishes": sign == 0 or order < FLAT,
        "zero": sign == 0,
        "not above": sign <= 0 or order < FLAT,
        "nonzero": sign != 0,
        "positive": sign > 0,
        "nonnegative": sign >= 0,
    }[must]


@dataclass(frozen=True)
class Piece:
    """For every n from low to high (None: without end) the number is sign * c times the powers of
    exp(beta), beta and log(beta) in order, c > 0, up to terms of smaller order; sign 0: it is zero;
    sign None: unknown."""

    low: int
    high: int | None
    order: Order
    sign: int | None


@dataclass(frozen=True)
class Lead:
    """The leading term of a polynomial on an interval of n."""

    order: Order
    sign: int
    coefficient: Number


def asymptotics(x: Number) -> list[Piece]:
    """Order and sign of a number for every n of its field, in increasing n."""
    field = x.field
    start = field.least_n if field.at_n is None else field.at_n
    waiting: list[tuple[int, int | None]] = [(start, field.at_n)]
    found: list[Piece] = []
    most = MAX_LOGARITHM_PIECES if _is_transcendental(field, x) else MAX_PIECES
    while waiting:
        low, high = waiting.pop()
        field.budget.spend(20)
        top = lead_on(field, x.top, low, high)
        bottom = lead_on(field, x.bottom, low, high)
        if top is not None and bottom is not None and bottom.sign:
            order = minus(top.order, bottom.order) if top.sign else FLAT
            found.append(Piece(low, high, order, top.sign * bottom.sign))
        elif low == high or low > LARGEST_N or len(found) > most:
            found.append(Piece(low, high, FLAT, None))
        else:
            middle = 2 * low + 8 if high is None else (low + high) // 2
            waiting += [(middle + 1, high), (low, middle)]
    return found


def _is_transcendental(field: Field, x: Number) -> bool:
    """Does it hold a logarithm or an exponential of n?"""
    held = [field.atoms[name] for name in x.names if name in field.atoms]
    return any(atom.kind in ("log", "exp") and names(atom.argument) for atom in held)


def minus(x: Order, y: Order) -> Order:
    return tuple(a - b for a, b in zip(x, y, strict=True))


def lead_on(field: Field, x: Poly, low: int, high: int | None) -> Lead | None:
    """The leading term, if its order and sign are the same on the whole interval. The newest root
    s of what grows with beta is split off: A + B s has the larger of both leading terms or, where
    these cancel, it is (A^2 - B^2 s^2) / (A - B s)."""
    roots = [name for name in names(x) if name in field.squares and field.grows(name)]
    if not roots:
        parts = by_order(x)
        for order in sorted(parts, reverse=True):
            sign = sign_on(field, parts[order], low, high)
            if sign is None:
                return None
            if sign:
                return Lead(order, sign, Number(field, parts[order], ONE))
        return Lead(FLAT, 0, field.number(0))
    newest = max(roots, key=lambda name: field.atoms[name].index)
    parts_of_root, inside = by_power(x, newest), field.squares[newest]
    A, B = parts_of_root.get(0, {}), parts_of_root.get(1, {})
    first, factor, square = (lead_on(field, part, low, high) for part in (A, B, inside))
    if first is None or factor is None or square is None or square.sign < 0:
        return None
    if not factor.sign or not square.sign:
        return first
    order = tuple(p + Fraction(q) / 2 for p, q in zip(factor.order, square.order, strict=True))
    root = [field.root_of(part) for part in (square.coefficient.top, square.coefficient.bottom)]
    coefficient = factor.coefficient * field.quotient(*root)
    second = Lead(order, factor.sign, coefficient)
    if not first.sign or first.order != second.order:
        return max(first, second, key=lambda lead: (lead.sign != 0, lead.order))
    total = first.coefficient + coefficient
    signs = [sign_on(field, part, low, high) for part in (total.top, total.bottom)]
    if None in signs:
        return None
    if total.top and signs[0]:
        return Lead(order, signs[0] * (signs[1] or 0), total)
    squares = field.times(A, A), field.times(field.times(B, B), inside)
    gap = lead_on(field, add(squares[0], scale(squares[1], -1)), low, high)
    if gap is None:
        return None
    double = first.coefficient + first.coefficient
    rest = gap.coefficient * field.quotient(double.bottom, double.top)
    return Lead(minus(gap.order, order), first.sign * gap.sign, rest)


def has_growing_root(x: Number) -> bool:
    """Does it hold a root of what grows with beta?"""
    return any(x.field.grows(name) for name in x.names & set(x.field.squares))


def sign_on(field: Field, x: Poly, low: int, high: int | None) -> int | None:
    """The sign of a polynomial in n and atoms on an interval; None if it changes or is unknown.
    The newest atom is split off: sign(A + B s) follows from the signs of A, B and, if those
    differ, of A^2 - B^2 s^2."""
    field.budget.spend(4 + 4 * len(x))
    used = names(x) - {"n"}
    if not used:
        return _polynomial_sign(x, low, high)
    held = [name for name in used if name in field.atoms]
    if len(held) < len(used):  # a symbol of which nothing is known
        return None
    newest = max(held, key=lambda name: field.atoms[name].index)
    atom, parts = field.atoms[newest], by_power(x, newest)
    if atom.kind != "sqrt":
        return _positive_atom_sign(field, x, newest, low, high)
    without, factor = parts.get(0, {}), parts.get(1, {})
    signs = [sign_on(field, part, low, high) for part in (without, factor, atom.argument)]
    if signs[2] == 0:
        return signs[0]
    if signs[0] is None or signs[1] is None or signs[2] != 1:
        return None
    if signs[0] * signs[1] >= 0:
        return signs[0] or signs[1]
    squares = (field.times(without, without), field.times(factor, factor))
    gap = add(squares[0], scale(field.times(squares[1], atom.argument), -1))
    sign = sign_on(field, gap, low, high)
    return None if sign is None else signs[0] * sign


def _positive_atom_sign(field: Field, x: Poly, name: str, low: int, high: int | None) -> int | None:
    """Of a polynomial in a logarithm, an exponential or a constant: if that is positive and all
    coefficients agree, or by an enclosure at one n."""
    atom = field.atoms[name]
    above_one = add(atom.argument, {(): Fraction(-1)})
    positive = atom.kind != "log" or sign_on(field, above_one, low, high) == 1
    if positive:
        signs = {sign_on(field, part, low, high) for part in by_power(x, name).values()} - {0}
        if len(signs) <= 1:
            return signs.pop() if signs else 0
    if "n" not in names(x) and (low == high or not _is_transcendental(field, Number(field, x, x))):
        try:
            value = enclose(field, x, low)
        except (ValueError, ZeroDivisionError):  # a root or logarithm without a value at this n
            return None
        if value.a == value.b == 0:
            return 0
        return 1 if value.a > 0 else -1 if value.b < 0 else None
    return None


def enclose(field: Field, x: Poly, n: int) -> mpmath.ctx_iv.ivmpf:
    """An interval that holds the value of a polynomial without beta at this n."""
    field.budget.spend(50 * len(x))
    mpmath.iv.prec = ENCLOSURE_BITS
    return SymbolValues(field.atoms, mpmath.iv, {"n": mpmath.iv.mpf(n)}).of(x)


def _polynomial_sign(x: Poly, low: int, high: int | None) -> int | None:
    """The sign of a polynomial in n on an interval: with n = low + m, or (low + high m)/(1 + m),
    m >= 0, it is clear if no two coefficients differ in sign."""
    if not x:
        return 0
    powers = {int(key[0][1]) if key else 0: c for key, c in x.items()}
    common = lcm(*(c.denominator for c in powers.values()))
    degree = max(powers)
    p = [int(powers.get(k, 0) * common) for k in range(degree + 1)]
    if low == high:
        value = sum(c * low**k for k, c in enumerate(p))
        return (value > 0) - (value < 0)
    shifted = _shift(p, low)
    if high is not None:
        # with n = low + (high - low) m/(1 + m), all times (1 + m)^degree
        stretched = [c * (high - low) ** k for k, c in enumerate(shifted)]
        shifted = [
            sum(stretched[k] * comb(degree - k, j - k) for k in range(j + 1))
            for j in range(degree + 1)
        ]
    if not shifted[0] or (high is not None and not shifted[-1]):
        return None  # zero at an end
    signs = {c > 0 for c in shifted if c}
    return None if len(signs) > 1 else 1 if signs.pop() else -1


def _shift(p: list[int], by: int) -> list[int]:
    """The coefficients of p(m + by)."""
    p = list(p)
    for i in range(len(p)):
        for k in range(len(p) - 2, i - 1, -1):
            p[k] += by * p[k + 1]
    return p
