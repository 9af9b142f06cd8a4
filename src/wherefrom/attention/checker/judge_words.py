"""Judging K, Q, V for the three words, and answers to what the words become without them.

x1 = u_d + u_b, x2 = u_a, x3 = u_c + u_b. Row i attends with the logits x_j^T K^T Q x_i to the
values V x_j. Over orthogonal u of norm beta both are polynomials in beta; the softmax tends to
equal shares among the largest logits, and what those shares make of the values is compared with
the goal, coefficient by coefficient.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from wherefrom.attention.checker.algebra import Field, NotExactError
from wherefrom.attention.checker.instances import (
    WORDS,
    Exact,
    Matrix,
    Numeric,
    Values,
    oblique_angles,
    orthonormal,
    shown,
    unequal_norms,
    word_instance,
    word_values,
)
from wherefrom.attention.checker.language import Construction, ExpressionError, evaluate
from wherefrom.attention.checker.problems import Assumption, BetaNeeded, CheckResult, Counterexample
from wherefrom.attention.equation import attend

RUNGS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, *(2.0**k for k in range(5, 11)))
DIMENSIONS = (4, 5, 7, 11, 16)
DRAWS = 4
STILL_FALLING = 0.999  # an error that falls by more from rung to rung may yet arrive


@dataclass(frozen=True, eq=False)
class Row:
    """What one word attends to: weights, context, where it should be, and the distance."""

    word: int
    weights: Matrix
    context: Matrix
    goal: Matrix
    error: float  # in units of beta


@dataclass(frozen=True)
class Proof:
    """The exact logits as lines; the reason why every goal is reached, or what is wrong."""

    lines: tuple[str, ...] = ()
    reached: str = ""
    wrong: str = ""


def judge_words(construction: Construction, draft: CheckResult) -> CheckResult:
    """The verdict on matrices for the words, or on what c2 is said to be."""
    proof = Proof()
    with contextlib.suppress(NotExactError):
        proof = _prove(construction)
    draft = replace(draft, derived=proof.lines)
    found = [_error(construction, word_instance(4, beta), beta) for beta in RUNGS]
    errors = [error for error in found if math.isfinite(error)]
    if len(errors) < 4:
        if not errors:
            _rows(construction, word_instance(4, 1.0), 1.0)  # says what is wrong, and where
        because = "the numbers become too large before beta is large enough to see a limit."
        return replace(draft, verdict="inconclusive", because=because)
    within = [error <= draft.tolerance for error in errors[-3:]]
    settled = bool(proof.wrong) or not errors[-1] < STILL_FALLING * errors[-2]
    if not proof.reached and not any(within) and settled:
        return _refuted(construction, draft, proof)
    if not all(within):
        because = "c1 and c2 change too slowly with beta to see where they end."
        if proof.reached:
            because = "the limit is right, but no beta that a computer can hold shows it."
        return replace(draft, verdict="inconclusive", because=because)
    if proof.reached:
        draft = replace(draft, because="for every d: " + proof.reached)
    else:
        because = (
            "computed in numbers. That is no proof: the exact algebra does not reach this formula."
        )
        because = f"{proof.wrong}, but within this tolerance." if proof.wrong else because
        draft = replace(draft, verdict="holds", because=because)
    needed = _beta_needed(construction, draft.tolerance)
    rng = np.random.default_rng(draft.seed)
    beta = 1.05 * needed.value
    drawn = [word_instance(d, beta, rng) for d in DIMENSIONS for _ in range(DRAWS)]
    if max(_error(construction, values, beta) for values in drawn) > draft.tolerance:
        because = "drawn words contradict the algebra: a fault of the checker."
        return replace(draft, verdict="inconclusive", because=because)
    sizes = ", ".join(map(str, DIMENSIONS))
    checked = f"{len(drawn)} drawn instances, d = {sizes}, with the attention equation"
    assumptions = tuple(_assumptions(construction, draft.tolerance, rng))
    return replace(draft, beta=needed, checked=checked, assumptions=assumptions)


def _given(
    construction: Construction, values: Values, algebra: Numeric
) -> tuple[Matrix, Matrix, Matrix, dict[int, Matrix]]:
    """The words as columns, the product K^T Q, the values as columns, and the goal of each row."""
    written = dict(construction.expressions)
    algebra.values = {name: algebra.matrix(value) for name, value in values.items()}
    if "x2" in written:  # c2 may speak of the new x2
        algebra.values["x2"] = evaluate(written.pop("x2"), algebra)
        values["x2"] = algebra.values["x2"].ravel()
    given = {name: evaluate(expression, algebra) for name, expression in written.items()}
    words = np.hstack([algebra.values[x] for x in WORDS])
    if "V" not in given:
        return words, algebra.values["I"], words, {2: given["c2"]}
    product = given["W"] if "W" in given else given["K"].T @ given["Q"]
    u_b, u_c = algebra.values["u_b"], algebra.values["u_c"]
    return words, product, given["V"] @ words, {1: u_b - u_c, 2: u_b}


def _prove(construction: Construction) -> Proof:
    """The limit of every row that has a goal, in the basis of the four u and one more vector."""
    field = Field()
    algebra = Exact(field, {})
    u = algebra.matrix(np.eye(4, 5, dtype=int)) * field.beta
    words, product, values, goals = _given(construction, word_values(u, field.beta), algebra)
    logits = {i: (words.T @ product @ words[:, [i - 1]]).ravel() for i in goals}
    lines = tuple(f"logits of word {i}: {', '.join(map(str, x))}" for i, x in logits.items())
    told = []
    for i, row in logits.items():
        rivals = [{field.trend(y - x).kind for y in row} for x in row]
        best = [j for j, kinds in enumerate(rivals) if "up" not in kinds]
        if field.doubts or any("unclear" in kinds for kinds in rivals):
            return Proof(lines)
        if any("constant" in rivals[j] for j in best):  # shares that are not equal
            return Proof(lines)
        weights = [Fraction(int(j in best), len(best)) for j in range(len(row))]
        told.append(f"the weights of word {i} tend to ({', '.join(map(str, weights))})")
        got, goal = (
            x.ravel() * (field.rational(1) / field.beta)
            for x in (values @ algebra.matrix(weights), goals[i])
        )
        if not all(field.trend(x - y).kind == "zero" for x, y in zip(got, goal, strict=True)):
            wrong = f"{told[-1]}, so c{i} tends to {_show(got)} and not to {_show(goal)}"
            return Proof(lines, wrong=wrong)
    return Proof(lines, reached=" and ".join(told) + ", whose values are the goal.")


def _show(vector: Matrix) -> str:
    """Coefficients of u_a..u_d as a sum that could be written again."""
    parts = []
    for name, value in zip("abcd", map(str, vector), strict=False):
        if value != "0":
            factor = {"1": "", "-1": "-"}.get(value, f"({value})*")
            parts.append(f"{factor}u_{name}")
    return " + ".join(parts).replace("+ -", "- ") or "0"


def _rows(construction: Construction, values: Values, beta: float) -> list[Row]:
    """The rows that have a goal, by the attention equation."""
    words, product, contents, goals = _given(construction, values, Numeric({}))
    result = attend((product @ words).T, words.T, contents.T)
    found = []
    for i, goal in goals.items():
        context = result.context[i - 1]
        error = float(np.linalg.norm(context - goal.ravel())) / beta
        found.append(Row(i, result.weights[i - 1], context, goal.ravel(), error))
    return found


def _error(construction: Construction, values: Values, beta: float) -> float:
    """The largest distance of a row from its goal; infinite where there is no value."""
    try:
        return max(row.error for row in _rows(construction, values, beta))
    except ExpressionError:
        return math.inf


def _beta_needed(construction: Construction, tolerance: float) -> BetaNeeded:
    """The smallest norm from which on every goal is reached, by bisection."""

    def fails(beta: float) -> bool:
        return tolerance < _error(construction, word_instance(4, beta), beta) < math.inf

    failing = [beta for beta in RUNGS if fails(beta)]
    low = max(failing, default=0.0)
    high = min(beta for beta in RUNGS if beta > low)
    for _ in range(40 if low else 0):
        middle = (low + high) / 2
        low, high = (middle, high) if fails(middle) else (low, middle)
    rows = _rows(construction, word_instance(4, 2.0), 1.0)
    told = ", ".join(f"|c{row.word} - goal| = {row.error:.4f}" for row in rows)
    return BetaNeeded(f"error(beta) <= eps*beta (at beta = 2: {told})", high, 3, {3: high})


def _refuted(construction: Construction, draft: CheckResult, proof: Proof) -> CheckResult:
    """With d = 4 and u = beta times the standard basis, at the first round beta that shows it."""
    draft = replace(draft, verdict="refuted", because=proof.wrong + ".")
    for beta in (4.0, 8.0, 16.0, 32.0, 128.0, *RUNGS[-3:]):
        values = word_instance(4, beta)
        try:
            row = max(_rows(construction, values, beta), key=lambda row: row.error)
        except ExpressionError:
            continue
        if row.error > draft.tolerance:
            context, goal = np.round(row.context, 4).tolist(), np.round(row.goal, 4).tolist()
            numbers: dict[str, Any] = shown(values, WORDS) | {
                "beta": beta,
                "weights": np.round(row.weights, 6).tolist(),
                f"c{row.word}": context,
                "goal": goal,
            }
            sentence = (
                f"with d = 4, beta = {beta:g} and u_a..u_d along the axes, c{row.word} = "
                f"{context} and the goal is {goal}."
            )
            if not proof.wrong:
                because = f"c{row.word} misses its goal however large beta is."
                draft = replace(draft, because=because)
            return replace(draft, counterexample=Counterexample({"d": 4}, numbers, sentence))
    return draft


def _assumptions(
    construction: Construction, tolerance: float, rng: np.random.Generator
) -> Iterator[Assumption]:
    """Look for u without an assumption on which a goal is missed however large beta is."""
    searches = (("u of equal norm", unequal_norms), ("u that are orthogonal", oblique_angles))
    for name, variants in searches:
        tried, found = 0, ""
        for what, u in variants(orthonormal(4, 7, rng), 4, rng, 2 * DRAWS):
            tried += 1
            errors = [_error(construction, word_values(b * u, b), b) for b in (24.0, 240.0)]
            if errors[1] > tolerance and errors[1] >= STILL_FALLING * errors[0]:
                found = f"with d = 7 and {what}, a goal is missed by {errors[1]:.2g} beta"
                break
        evidence = found or f"not refuted by {tried} sets of u, some chosen to break it"
        yield Assumption(name, True if found else None, evidence)
