"""Proofs for all n that a query reaches its goal as beta grows, and the beta that it needs.

For fixed keys: c tends to the average over the wanted keys if their logits agree in the limit
and run away from all others; with D the gap, the leftover weight is below eps as soon as
D >= ln(others (1-eps)/(wanted eps)). For the key of varying length the same is asked for every
length e, or every e > 0 where samples that point backwards are set aside.
"""

from __future__ import annotations

from fractions import Fraction

from wherefrom.attention.checker.exact_limits import Trend, trend
from wherefrom.attention.checker.exact_scalars import BETA, Scalar
from wherefrom.attention.checker.query_model import QueryModel


def proves_fixed(model: QueryModel) -> bool:
    """Exact keys: do the weights tend to the target for every n?"""
    if model.exact is None:
        return False
    (logits,) = model.exact
    first, *rest = model.picked
    agree = all(model.difference(logits[g], logits[first]).vanishes for g in rest)
    return agree and model.difference(logits[first], logits["others"]).kind == "up"


def proves_stretched(model: QueryModel) -> bool:
    """k_a of length e: do the averaged weights tend to the target for every n and every e?

    With several heads it is enough to succeed for e > 0.
    """
    if model.exact is None:
        return False
    positive_only = len(model.exact) > 1
    fates = [_fate(model, head, positive_only=positive_only) for head in model.exact]
    known = [fate for fate in fates if fate is not None]
    if len(known) < len(fates):
        return False
    total = [sum(fate[i] for fate in known) / len(known) for i in range(2)]
    return total == [Fraction(1, 2), Fraction(1, 2)]


def _fate(
    model: QueryModel, head: dict[str, Scalar], *, positive_only: bool
) -> tuple[Fraction, Fraction] | None:
    """The limit of one head's weights on a and b if it is the same for every e, else None."""
    a, b, other = (trend(model.field, head[g]) for g in ("a", "b", "others"))
    whole, none, half = Fraction(1), Fraction(0), Fraction(1, 2)
    if a.vanishes and b.vanishes and other.kind == "down":
        return half, half
    if _beats(a, b, positive_only) and _beats(a, other, positive_only):
        return whole, none
    gap = model.difference(head["b"], head["others"])
    if gap.kind == "up" and _loses(a, b, positive_only):
        return none, whole
    return None


def _beats(a: Trend, rival: Trend, positive_only: bool) -> bool:
    """Does e*a - rival grow beyond all bounds for every e (every e > 0)?"""
    if "unclear" in (a.kind, rival.kind):
        return False
    if positive_only and a.kind == "up":
        return rival.kind != "up" or rival.order < a.order
    if a.order <= 0:
        return rival.kind == "down"
    return rival.kind == "down" and rival.order > a.order


def _loses(a: Trend, rival: Trend, positive_only: bool) -> bool:
    """Does rival - e*a grow beyond all bounds for every e (every e > 0)?"""
    if "unclear" in (a.kind, rival.kind):
        return False
    if positive_only and a.kind == "down":
        return rival.kind != "down" or rival.order < a.order
    if a.order <= 0:
        return rival.kind == "up"
    return rival.kind == "up" and rival.order > a.order


def beta_formula(model: QueryModel) -> str:
    """The condition on beta for fixed keys, in closed form where the gap is one power of beta."""
    wanted = len(model.picked)
    others = "n-1" if wanted == 1 else f"n-{wanted}"
    below = "eps" if wanted == 1 else f"{wanted}*eps"
    level = f"ln(({others})*(1-eps)/({below}))"
    if model.exact is None:
        return f"k_a.q - k_i.q >= {level}"
    (logits,) = model.exact
    gap = model.field.subtract(logits[model.picked[0]], logits["others"])
    monomials = list(gap.numerator.items())
    if len(monomials) == 1 and gap.denominator == {(): Fraction(1)}:
        ((monomial, coefficient),) = monomials
        powers = dict(monomial)
        order = powers.pop(BETA, Fraction(0))
        if not powers and order > 0:
            inner = level if coefficient == 1 else f"{level}/{_wrapped(coefficient)}"
            power = "" if order == 1 else f"**({1 / order})"
            return f"beta >= {inner if not power else f'({inner})'}{power}"
    return f"{gap} >= {level}"


def _wrapped(value: Fraction) -> str:
    return str(value) if value.denominator == 1 else f"({value})"
