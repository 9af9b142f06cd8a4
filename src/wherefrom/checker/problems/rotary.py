"""Turning pairs by their position: does the product of two depend on the distance alone?

A rotated pair is a polynomial in z = e^(i t theta), and a product of two depends on the distance
alone if and only if each term has opposite powers of z at the two positions.
"""

from __future__ import annotations

import cmath
import itertools
from fractions import Fraction
from typing import Any

import mpmath

from wherefrom.checker.field import (
    ONE,
    Field,
    NotExactError,
    Number,
    Poly,
    StepBudget,
    add,
    as_whole,
    merge,
    names,
)
from wherefrom.checker.reading import Construction
from wherefrom.checker.results import CheckResult
from wherefrom.checker.spaces import Exact, Matrix, evaluate
from wherefrom.checker.verifier import verify
from wherefrom.errors import UserError

ROUNDING = 1e-9


def judge(construction: Construction, draft: CheckResult, budget: StepBudget) -> CheckResult:
    return Rotary(construction, draft, budget).judge()


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
            return self.draft.inconclusive("y is not seen to be linear in x1 and x2.")
        if any(x.names for x, _ in self.field.obligations):
            return self.draft.inconclusive("what it divides by may be zero at some t, theta or x.")
        products = [
            [at_s[0][b] * at_t[0][c] + at_s[1][b] * at_t[1][c] for c in (0, 1)] for b in (0, 1)
        ]
        entries = [entry for row in products for entry in row]
        if any(entry.bottom != ONE and names(entry.bottom) for entry in entries):
            return self.draft.inconclusive(only)
        monomials = sorted({key for entry in entries for key in entry.top})
        proof = {"kind": "turns", "monomials": monomials}
        if not verify(proof):
            because = (
                "for all s, t, theta, q and k: in the product every power of e^(i s theta) meets "
                "the opposite one of e^(i t theta), so it depends on s - t alone."
            )
            return self.draft.proved(because, proof)
        if {name for key in monomials for name, _ in key} <= {"i", "w"}:
            return self.constant(products)
        return self.refuted(products, at_t)

    def written_at(self, t: str) -> dict[str, Matrix]:
        """What is written, for x at the position of that name."""
        field, arithmetic = self.field, Turns(self.field, t)
        x1, x2 = field.symbol("x1"), field.symbol("x2")
        values = {"x1": x1, "x2": x2, "x": x1 + arithmetic.imaginary * x2, "t": field.symbol(t)}
        values |= {"theta": field.symbol("theta"), "i": arithmetic.imaginary}
        return {
            name: evaluate(expression, arithmetic, values)
            for name, expression in self.expressions.items()
        }

    def matrix_at(self, t: str) -> list[list[Number]] | None:
        """The matrix R with y = R x at the position of that name; None if y is not linear in x."""
        field, written = self.field, self.written_at(t)
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
            pair = [half * (y + conjugate), -half * field.symbol("i") * (y - conjugate)]
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
