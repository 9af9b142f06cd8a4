"""Can key 1 be copied at all; does q copy it; is it a mixture of the others? All in fractions."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from wherefrom.checker.betas import ROUND_BETAS, ROUNDING, least_beta, showing_beta
from wherefrom.checker.field import Field, NotExactError, Number, StepBudget, TooLargeError
from wherefrom.checker.goals import (
    Claim,
    certificate,
    decide,
    limit_value,
    limit_weights,
    weights_at,
)
from wherefrom.checker.grammar import Node
from wherefrom.checker.linear import solve_nonnegative
from wherefrom.checker.reading import Construction
from wherefrom.checker.results import BetaNeeded, CheckResult
from wherefrom.checker.spaces import Exact, Matrix, evaluate
from wherefrom.errors import UserError

Keys = list[list[Fraction]]


def judge(construction: Construction, draft: CheckResult, budget: StepBudget) -> CheckResult:
    field = Field(budget, 1, 1)
    for name, expression in construction.expressions.items():
        if _is_uneven(expression.tree):
            raise UserError(f"{name} is made of numbers, in rows with the same number of entries.")
    try:
        written = {
            name: evaluate(expression, Exact(field), {"beta": field.beta})
            for name, expression in construction.expressions.items()
        }
    except NotExactError:
        if "q" not in construction.expressions:
            raise UserError("keys are given as numbers, one row in brackets each.") from None
        return draft.inconclusive("q has no exact form; write it with numbers and powers of beta.")
    keys = _fractions(written["K"], "K")
    if len(keys) < 2:
        raise UserError(
            f"K has one key, ({_listed(keys[0])}), and needs two at least, one row in brackets "
            "each, as in [[1, 0], [0, 1]]."
        )
    for name in {"q", "w"} & set(written):
        if 1 not in written[name].shape:
            raise UserError(f"{name} must be one row of numbers, as in (1, 2).")
    if "q" in written:
        return _judge_query(draft, keys, written["q"].ravel().tolist(), field)
    if "w" in written:
        (weights,) = _fractions(written["w"].reshape(1, -1), "w")
        return _judge_mixture(draft, keys, weights, field)
    return _judge_keys(draft, keys, budget, field)


def _judge_keys(draft: CheckResult, keys: Keys, budget: StepBudget, field: Field) -> CheckResult:
    """A mixture of the other keys that is key 1, or a direction in which key 1 is ahead."""
    one = Fraction(1)
    columns = [[*key, one] for key in keys[1:]]
    weights, direction = solve_nonnegative(columns, [*keys[0], one], budget)
    if weights is None:
        q = direction[:-1]
        result = _judge_query(draft, keys, [field.number(x) * field.beta for x in q], field)
        because = f"key 1 is a corner of the convex hull, and q = beta*({_listed(q)}) copies it."
        return replace(result, because=because) if result.verdict == "proved" else result
    terms = [(i, x) for i, x in enumerate(weights, start=2) if x]
    mixed = " + ".join(f"k_{i}" if x == 1 else f"{x} k_{i}" for i, x in terms)
    most = _largest_weight(weights)
    because = f"key 1 is {mixed}, so no query gives it more than {most:.4g} of the weight."
    sentence = f"k_1.q is the same mixture of the other k_i.q for every q: {mixed}."
    table = [[float(x) for x in key] for key in keys]
    return draft.refuted(because, sentence, _sizes(keys), {"K": table, "most": most})


def _judge_mixture(
    draft: CheckResult, keys: Keys, weights: list[Fraction], field: Field
) -> CheckResult:
    """Weights over the other keys that make key 1: a proof that it cannot be copied."""
    if len(weights) != len(keys) - 1:
        raise UserError(f"w needs {len(keys) - 1} entries, one for each key but the first.")
    mixed = [
        sum(x * key[i] for x, key in zip(weights, keys[1:], strict=True))
        for i in range(len(keys[0]))
    ]
    wrong = ""
    if min(weights) < 0 or sum(weights) != 1:
        wrong = (
            f"w must be 0 or more and sum to one; it is ({_listed(weights)}) and sums to "
            f"{sum(weights)}."
        )
    elif mixed != keys[0]:
        wrong = f"the mixture is ({_listed(mixed)}) and key 1 is ({_listed(keys[0])})."
    if wrong:
        numbers = {"mixture": [float(x) for x in mixed]}
        return draft.refuted(wrong, wrong, _sizes(keys), numbers)
    most = _largest_weight(weights)
    because = f"key 1 is this mixture of the others, so no query gives it more than {most:.4g}."
    gaps = [*(x - y for x, y in zip(mixed, keys[0], strict=True)), sum(weights) - 1]
    claims = [Claim(field.number(gap), "zero") for gap in gaps]
    claims += [Claim(field.number(weight), "nonnegative") for weight in weights]
    return draft.proved(because, certificate(decide(field, claims)))


def _judge_query(draft: CheckResult, keys: Keys, q: list[Number], field: Field) -> CheckResult:
    """By the leads of key 1 over the others along a written query."""
    if len(q) != len(keys[0]):
        raise UserError(f"q needs {len(keys[0])} entries, as many as each key.")
    leads = []
    for key in keys[1:]:
        parts = [field.number(a - b) * x for x, a, b in zip(q, keys[0], key, strict=True)]
        leads.append(sum(parts, field.number(0)))
    logits = [field.number(0), *(-lead for lead in leads)]

    def error_at(beta: float) -> float:
        """The share on other keys, added up and not as 1 - a_1."""
        return float(weights_at(logits, 1, beta)[1:].sum())

    decision = decide(field, [Claim(lead, "grows") for lead in leads])
    if decision.is_proved:
        because = "the lead of k_1.q over every other k_i.q grows with beta, without bound."
        needed = _beta_needed(error_at, draft.tolerance, len(keys))
        return draft.proved(because, certificate(decision), beta=needed)
    weights = limit_weights(logits, 1)
    if weights is None or not decide(field, []).is_proved:
        return draft.inconclusive("the sign of a lead or of a divisor is not decided.")
    uses_beta = any("beta" in x.names for x in q)
    error = float(weights[1:].sum())
    if error <= draft.tolerance * (1 + ROUNDING):
        kind = "in the limit of large beta" if uses_beta else "without a large factor"
        return draft.holds(
            f"key 1 gets {1 - error:.6g} of the weight {kind}, which is within the tolerance; "
            "not every lead grows with beta."
        )
    i, lead = next((i, x) for i, x in enumerate(leads, start=2) if limit_value(x, 1) != math.inf)
    because = f"k_1.q - k_{i}.q = {lead} does not grow with beta."
    found = showing_beta(error_at, draft.tolerance, ROUND_BETAS if uses_beta else (1.0,))
    if found is None:
        return draft.inconclusive(f"{because} But no beta that was tried shows it.")
    shown = np.round(weights_at(logits, 1, found[0]), 6).tolist()
    numbers: dict[str, Any] = {"beta": found[0]} if uses_beta else {}
    at = f"with beta = {found[0]:g} " if uses_beta else ""
    sentence = f"{at}the weights are {shown}."
    return draft.refuted(because, sentence, _sizes(keys), numbers | {"weights": shown})


def _beta_needed(error_at: Any, eps: float, n: int) -> BetaNeeded | None:
    """The beta from which on key 1 has its share."""
    try:
        needed = least_beta(lambda beta: error_at(beta) <= eps, (-3, 18), 8)
    except TooLargeError:
        return None
    if needed is None:
        return None
    formula = f"the other keys together have at most {eps:g} of the weight from this beta on"
    return BetaNeeded(formula, needed, n, {n: needed})


def _largest_weight(weights: list[Fraction]) -> float:
    """1/(1 + e^H(w)): what a mixture with these weights gets at most."""
    entropy = -sum(float(x) * math.log(x) for x in weights if x)
    return 1 / (1 + math.exp(entropy))


def _is_uneven(node: Node) -> bool:
    """Does a row contain another row, as in [[1, 2], 3]?"""
    inside = node.op == "hstack" and any(part.op in ("hstack", "vstack") for part in node.arguments)
    return inside or any(map(_is_uneven, node.arguments))


def _fractions(table: Matrix, name: str) -> Keys:
    if any(x.names for x in table.ravel()):
        raise UserError(f"{name} is made of fractions, as in [[1, 0], [1/2, 1]].")
    return [[x.top.get((), Fraction(0)) / x.bottom[()] for x in row] for row in table]


def _sizes(keys: Keys) -> dict[str, int]:
    return {"n": len(keys), "d": len(keys[0])}


def _listed(numbers: list[Any]) -> str:
    return ", ".join(map(str, numbers))
