"""What a perceiver costs: is a written count of multiplications right up to constants?

On L >= 3, l >= m >= 1 and d >= 1 sums of products with positive factors are compared term by term,
in powers of L - 2, l/m, m and d, each of which is 1 at least and free of the others: a term is
dominated if and only if its powers lie below a mean of the others' powers, which a linear
programme in fractions decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from wherefrom.checker.field import (
    ONE,
    Field,
    NotExactError,
    Number,
    Poly,
    StepBudget,
    by_power,
    names,
    substitute,
    write,
)
from wherefrom.checker.linear import solve_nonnegative
from wherefrom.checker.reading import Construction
from wherefrom.checker.results import CheckResult
from wherefrom.checker.spaces import Exact, NoValueError, evaluate_number

SIZES = ("L", "l", "m", "d")
FEED_FORWARD_FACTOR = 4
DIFFERENCE_SHOWN = 100  # the two counts differ by this factor in a counterexample
Powers = tuple[int, ...]  # of L - 2, l, m and d
Dominated = dict[Powers, dict[Powers, Fraction]]  # a term -> weights of the terms above it


class Counts(Exact):
    """Exact numbers in which O(x) is x: constants do not matter."""

    def function(self, name: str, *arguments: Any) -> Any:
        return arguments[0] if name == "O" else super().function(name, *arguments)


def model_cost(model: str, L: Any, l: Any, m: Any, d: Any) -> Any:  # noqa: E741
    """The multiplications of all layers for one sequence, exactly, for numbers of any kind.
    L layers, l tokens, m latents, width d; the perceiver has one block down, L - 2 inside and one
    up. Masked products are counted, as the models compute them."""

    def times(count: int, x: Any) -> Any:
        return sum([x] * (count - 1), x)

    def block(queries: Any, keys: Any) -> Any:
        """Projections, output and feed-forward; keys and values; scores and context."""
        per_query = times(2 + 2 * FEED_FORWARD_FACTOR, queries * d * d)
        return per_query + times(2, keys * d * d) + times(2, queries * keys * d)

    if model == "vanilla":
        return L * block(l, l)
    inside = block(m, m)
    return block(m, l) + L * inside - inside - inside + block(l, m)


def judge(construction: Construction, draft: CheckResult, budget: StepBudget) -> CheckResult:
    """Every written cost; the first that is wrong decides."""
    verdicts, reasons, counts = [], [], []
    for name, expression in construction.expressions.items():
        try:
            field = Field(budget, 1)
            sizes = {size: field.symbol(size) for size in SIZES}
            written = _count(evaluate_number(expression, Counts(field), sizes))
            says = _in_powers_of_grown_layers(field, written)
        except (NotExactError, NoValueError):
            return draft.inconclusive(f"{name} must be a sum of products of L, l, m and d.")
        exact = model_cost(name, *(field.symbol(x) for x in SIZES))
        line = f"{name} multiplies exactly {_text(exact.top)} times"
        draft = replace(draft, derived=(*draft.derived, line))
        without_d = "d" not in names(written)
        does = _model_count(field, name, without_d)
        if not says or min(says.values()) < 0:
            terms = write(says)
            return draft.inconclusive(f"{name} has negative terms ({terms}), and is not compared.")
        missing, below = _compare(_powers(does), _powers(says), budget)
        extra, above = _compare(_powers(says), _powers(does), budget)
        if missing and not extra and not without_d and _is_attention(does, says, budget):
            rest = _text({_key(max(missing, key=sum)): Fraction(1)})
            reasons.append(
                f"{name} is right for the attention alone; projections and feed-forward add "
                f"{rest}, which counts once d is as large as l"
            )
            verdicts.append("holds")
        elif missing or extra:
            return _refuted(draft, name, says, does, extra or missing, too_large=bool(extra))
        else:
            factors = dict(zip(_powers(says), says.values(), strict=True))
            count = {"model": name, "d_is_fixed": without_d, "written": factors}
            counts.append(count | {"above": above, "below": below})
            fixed = ", with d held fixed" if without_d else ""
            reasons.append(f"{name} is right up to a constant{fixed}")
    because = "; ".join(reasons) + "."
    if "holds" in verdicts:
        return draft.holds(because)
    return draft.proved(because, {"kind": "costs", "counts": counts})


def _in_powers_of_grown_layers(field: Field, count: Poly) -> Poly:
    """With L written as (L - 2) + 2, in powers of L - 2, which is 1 at least."""
    grown = field.symbol("L") + field.number(2)
    total = field.number(0)
    for power, rest in by_power(count, "L").items():
        total = total + Number(field, rest, ONE) * grown ** int(power)
    return total.top


def _model_count(field: Field, name: str, without_d: bool) -> Poly:
    """What the model multiplies, in powers of L - 2 and the other sizes."""
    L, l, m, d = (field.symbol(x) for x in SIZES)  # noqa: E741
    count = model_cost(name, L, l, m, field.number(1) if without_d else d)
    return _in_powers_of_grown_layers(field, count.top)


def _count(x: Number) -> Poly:
    """The polynomial of a count; NotExactError if it is none."""
    whole = all(power.denominator == 1 and power > 0 for key in x.top for _, power in key)
    # sizes are positive, so that a divisor without minus signs is never zero
    divisors = [part for y, _ in x.field.obligations for part in (y.top, y.bottom)]
    safe = all(min(part.values()) > 0 and names(part) <= set(SIZES) for part in divisors)
    if x.bottom != ONE or not names(x.top) <= set(SIZES) or not whole or not safe:
        raise NotExactError
    return x.top


def _powers(count: Poly) -> list[Powers]:
    return [tuple(int(dict(key).get(x, 0)) for x in SIZES) for key in count]


def _key(powers: Powers) -> Any:
    return tuple(sorted((x, p) for x, p in zip(SIZES, powers, strict=True) if p))


def _free(powers: Powers) -> list[Fraction]:
    """Powers of L - 2, l/m, m and d: l = (l/m) m."""
    L, l, m, d = map(Fraction, powers)  # noqa: E741
    return [L, l, l + m, d]


def _compare(
    terms: Sequence[Powers], others: Sequence[Powers], budget: StepBudget
) -> tuple[dict[Powers, list[Fraction]], Dominated]:
    """Terms that outgrow the others, each with a direction in which it does; and how each of the
    rest is dominated: the weights of the mean of others that it lies below."""
    rivals = [_free(powers) for powers in others]
    zero, one = Fraction(0), Fraction(1)
    columns = [[*rival, one] for rival in rivals]
    columns += [
        [-one if i == k else zero for i in range(len(SIZES))] + [zero] for k in range(len(SIZES))
    ]
    outgrowing: dict[Powers, list[Fraction]] = {}
    dominated = Dominated()
    for powers in terms:
        term = _free(powers)
        weights, direction = solve_nonnegative(columns, [*term, one], budget)
        if weights is None:
            outgrowing[powers] = direction[:-1]
        else:
            means = zip(others, weights[: len(rivals)], strict=True)
            dominated[powers] = {other: weight for other, weight in means if weight}
    return outgrowing, dominated


def _is_attention(does: Poly, says: Poly, budget: StepBudget) -> bool:
    """Are at least the terms of the attention itself, those with d to the first power, there?"""
    attention = [powers for powers in _powers(does) if powers[3] < 2]
    return not _compare(attention, _powers(says), budget)[0]


def _text(count: Poly) -> str:
    """With the factors of each product in the order of SIZES."""
    ordered = {
        tuple(sorted(key, key=lambda pair: SIZES.index(pair[0]))): c for key, c in count.items()
    }
    return write(ordered)


def _refuted(
    draft: CheckResult,
    name: str,
    written: Poly,
    exact: Poly,
    worst: dict[Powers, list[Fraction]],
    *,
    too_large: bool,
) -> CheckResult:
    """Sizes in the direction of the worst term at which the two counts differ a hundredfold."""
    powers, direction = max(worst.items(), key=lambda item: sum(item[0]))
    largest = max(direction)
    steps = [int(x / largest * 4) if largest else 1 for x in direction]
    for scale in (2**k for k in range(1, 40)):
        L, ratio, m, d = (scale**step for step in steps)
        sizes = {"L": L, "l": ratio * m, "m": m, "d": d}
        says, does = (substitute(count, sizes, Fraction) for count in (written, exact))
        if (says > DIFFERENCE_SHOWN * does) if too_large else (does > DIFFERENCE_SHOWN * says):
            sizes["L"] = L + 2
            shown = [x for x in SIZES if x != "d" or "d" in names(exact)]
            at = ", ".join(f"{x} = {sizes[x]:,}" for x in shown)
            sentence = (
                f"with {at} the model multiplies {float(does):,.0f} times and what is written is "
                f"{float(says):,.0f}; as these sizes grow, no constant makes up for that."
            )
            term = _text({_key(powers): Fraction(1)}) if any(powers) else "1"
            what = f"{term} is {'too large' if too_large else 'missing'}"
            numbers = {"written": float(says), "counted": float(does)}
            return draft.refuted(f"{name}: the term {what}.", sentence, sizes, numbers)
    return draft.inconclusive(f"{name} could not be compared term by term.")
