"""Polynomials in any names, with rational coefficients: the algebra of costs, angles and claims.

A polynomial is a dictionary from monomials, sorted pairs of a symbol and its power (which may be
negative), to coefficients; i*i is -1. Rows in brackets are lists. What does not fit raises
NotExactError.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import reduce
from typing import Any

from wherefrom.attention.checker.algebra import NotExactError
from wherefrom.attention.checker.language import UndefinedError

Monomial = tuple[tuple[str, int], ...]
Terms = dict[Monomial, Fraction]
MAX_TERMS = 400


def constant(value: Fraction | int) -> Terms:
    return {(): Fraction(value)} if value else {}


def symbol(name: str, power: int = 1) -> Terms:
    return {((name, power),): Fraction(1)}


def plus(x: Terms, y: Terms, factor: int = 1) -> Terms:
    total = dict(x)
    for key, c in y.items():
        total[key] = total.get(key, Fraction(0)) + factor * c
    return {key: c for key, c in total.items() if c}


def times(x: Terms, y: Terms) -> Terms:
    if len(x) * len(y) > MAX_TERMS:
        raise NotExactError
    product: Terms = {}
    for key, c in x.items():
        for key2, c2 in y.items():
            powers = dict(key)
            for name, power in key2:
                powers[name] = powers.get(name, 0) + power
            turns = powers.pop("i", 0) % 4  # of i
            powers |= {"i": 1} if turns % 2 else {}
            whole = tuple(sorted((name, power) for name, power in powers.items() if power))
            sign = -1 if turns > 1 else 1
            product[whole] = product.get(whole, Fraction(0)) + sign * c * c2
    return {key: c for key, c in product.items() if c}


def value(terms: Terms, numbers: Mapping[str, complex]) -> complex:
    """The value in floating point; i is the imaginary unit."""
    total = 0j
    for key, c in terms.items():
        part = complex(c)
        for name, power in key:
            part *= (1j if name == "i" else numbers[name]) ** power
        total += part
    return total


def show(terms: Terms) -> str:
    """The polynomial as it could be written again."""
    parts = []
    for key, c in sorted(terms.items(), key=lambda item: (-sum(p for _, p in item[0]), item[0])):
        factors = [name if power == 1 else f"{name}**{power}" for name, power in key]
        if abs(c) != 1 or not factors:
            factors.insert(0, str(abs(c)) if c.denominator == 1 else f"({abs(c)})")
        parts.append(("- " if c < 0 else "+ ") + "*".join(factors))
    text = " ".join(parts)
    return ("-" if text[:1] == "-" else "") + text[2:] or "0"


class Polynomials:
    """What the nodes of a formula mean; `values` are names that stand for something else."""

    def __init__(self, values: Mapping[str, Terms] | None = None) -> None:
        self.values = values or {}

    def number(self, value: Fraction) -> Terms:
        return constant(value)

    def name(self, name: str) -> Terms:
        return self.values[name] if name in self.values else symbol(name)

    def power(self, base: Terms, exponent: int) -> Terms:
        return reduce(times, [base] * exponent, constant(1))

    def apply(self, op: str, arguments: Sequence[Any]) -> Any:
        x, y = arguments[0], arguments[-1]
        if op in ("hstack", "vstack"):
            return list(arguments)
        if op in ("+", "-", "*", "/") and (isinstance(x, list) or isinstance(y, list)):
            return self.entries(op, x, y)
        match op:
            case "+" | "-":
                return plus(x, y, 1 if op == "+" else -1)
            case "*":
                return times(x, y)
            case "/":
                if not y:
                    raise UndefinedError("this divides by zero.")
                if len(y) > 1:
                    raise NotExactError
                ((key, c),) = y.items()
                return times(x, {tuple((s, -p) for s, p in key): 1 / c})
            case "O":
                return x
        raise NotExactError

    def entries(self, op: str, x: Any, y: Any) -> Any:
        """The operation entry by entry; a number goes with each of them."""
        if isinstance(x, list) and isinstance(y, list):
            return [self.apply(op, pair) for pair in zip(x, y, strict=True)]
        if isinstance(x, list):
            return [self.apply(op, (each, y)) for each in x]
        return [self.apply(op, (x, each)) for each in y]
