"""Where an exact number goes as beta grows: to zero, to a constant, up or down, for every n.

A softmax at a large beta depends only on which logits run away from which. Each logit is a
quotient of polynomials in beta, so its fate is that of its leading term, and its direction is
the sign of the leading coefficient. That coefficient may depend on n, and `trend` answers only
if its sign is the same for every n; `trend_at` answers for one n.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from wherefrom.attention.checker.exact_scalars import (
    BETA,
    Field,
    N,
    Polynomial,
    Scalar,
    certain_sign,
    evaluate_at,
    symbols,
)

Kind = Literal["zero", "constant", "up", "down", "unclear"]
MAX_ROOT_BOUND = 2_000  # integers n up to here are tried one by one


@dataclass(frozen=True)
class Trend:
    """The leading behaviour sign * |coefficient| * beta**order."""

    kind: Kind
    order: Fraction = Fraction(0)
    sign: int = 0
    value: float | None = None  # of the limit, when it is a constant that does not depend on n

    @property
    def vanishes(self) -> bool:
        return self.kind == "zero"


ZERO = Trend("zero", order=Fraction(-1))


def trend(field: Field, x: Scalar) -> Trend:
    """The fate of x for every n >= field.least_n at once, or "unclear"."""
    if x.is_zero:
        return ZERO
    top, top_order = _lead(x.numerator)
    bottom, bottom_order = _lead(x.denominator)
    order = top_order - bottom_order
    sign = sign_for_all(field, top) * sign_for_all(field, bottom)
    if sign == 0:
        return Trend("unclear", order)
    value = None
    if order == 0 and N not in _symbols_within(field, top) | _symbols_within(field, bottom):
        value = evaluate_at(top, {N: 1.0}, field.atoms) / evaluate_at(bottom, {N: 1.0}, field.atoms)
    return Trend(_kind(order, sign), order, sign, value)


def trend_at(field: Field, x: Scalar, n: int) -> Trend:
    """The fate of x for one n, found among the terms that do not vanish there."""
    if x.is_zero:
        return ZERO
    top, bottom = _at(field, x.numerator, n), _at(field, x.denominator, n)
    if not bottom or not all(map(math.isfinite, (*top.values(), *bottom.values()))):
        return Trend("unclear")
    if not top:
        return ZERO
    order = max(top) - max(bottom)
    value = top[max(top)] / bottom[max(bottom)]
    sign = 1 if value > 0 else -1
    return Trend(_kind(order, sign), order, sign, value if order == 0 else None)


def sign_for_all(field: Field, polynomial: Polynomial) -> int:
    """+1 or -1 if a polynomial without beta has that sign for every n >= least_n, else 0."""
    certain = certain_sign(polynomial, field.least_n)
    if certain:
        return certain
    used = _symbols_within(field, polynomial)
    if not used:
        return 0
    if N not in used:  # constants such as sqrt(2) - 1: far from zero is certain enough
        value = evaluate_at(polynomial, {N: 1.0}, field.atoms)
        size = sum(abs(evaluate_at({m: c}, {N: 1.0}, field.atoms)) for m, c in polynomial.items())
        return int(math.copysign(1, value)) if abs(value) > 1e-9 * size else 0
    if used != {N} or symbols(polynomial) != {N}:
        return 0
    coefficients = {int(dict(m).get(N, Fraction(0))): c for m, c in polynomial.items()}
    lead = coefficients[max(coefficients)]
    bound = 1 + max(abs(c / lead) for c in coefficients.values())  # Cauchy: no root beyond
    if bound > MAX_ROOT_BOUND:
        return 0
    sign = 1 if lead > 0 else -1
    values = (
        sum(c * n**power for power, c in coefficients.items())
        for n in range(field.least_n, int(bound) + 2)
    )
    return sign if all(sign * value > 0 for value in values) else 0


def _kind(order: Fraction, sign: int) -> Kind:
    if order < 0:
        return "zero"
    if order == 0:
        return "constant"
    return "up" if sign > 0 else "down"


def _lead(polynomial: Polynomial) -> tuple[Polynomial, Fraction]:
    """The coefficient of the highest power of beta, and that power."""
    orders = {monomial: dict(monomial).get(BETA, Fraction(0)) for monomial in polynomial}
    highest = max(orders.values())
    lead = {
        tuple(pair for pair in monomial if pair[0] != BETA): coefficient
        for monomial, coefficient in polynomial.items()
        if orders[monomial] == highest
    }
    return lead, highest


def _at(field: Field, polynomial: Polynomial, n: int) -> dict[Fraction, float]:
    """Power of beta -> coefficient at this n, without those that are zero there."""
    total: dict[Fraction, float] = {}
    size: dict[Fraction, float] = {}
    for monomial, coefficient in polynomial.items():
        order = dict(monomial).get(BETA, Fraction(0))
        rest = tuple(pair for pair in monomial if pair[0] != BETA)
        value = evaluate_at({rest: coefficient}, {N: float(n)}, field.atoms)
        total[order] = total.get(order, 0.0) + value
        size[order] = size.get(order, 0.0) + abs(value)
    return {order: v for order, v in total.items() if not abs(v) <= 1e-12 * size[order] < math.inf}


def _symbols_within(field: Field, polynomial: Polynomial) -> set[str]:
    """Symbols, with n for a root or logarithm that has n inside."""
    used: set[str] = set()
    for symbol in symbols(polynomial):
        atom = field.atoms.get(symbol)
        used |= {symbol} if atom is None else {symbol} | symbols(atom.argument)
    return used
