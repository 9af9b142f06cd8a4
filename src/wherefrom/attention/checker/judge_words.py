"""Judging K, Q, V for the three words, and answers to what the words become without them.

x1 = u_d + u_b, x2 = u_a, x3 = u_c + u_b. Row i attends with the logits x_j^T K^T Q x_i to the
values V x_j. In the exact algebra over the orthogonal u both are polynomials in beta, the norm of
the u; the limit of the softmax is found from the leading terms, and c_i is compared with its goal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from wherefrom.attention.checker.construction import Construction
from wherefrom.attention.checker.exact_scalars import NotExactError
from wherefrom.attention.checker.instances import STRAIGHT, Bend, shown, word_instance
from wherefrom.attention.checker.language import ExpressionError, evaluate
from wherefrom.attention.checker.numeric import Numeric
from wherefrom.attention.checker.result import Assumption, BetaNeeded, CheckResult, Counterexample
from wherefrom.attention.checker.word_proofs import WORDS, WordProof
from wherefrom.attention.equation import attend

Floats = NDArray[np.floating[Any]]
RUNGS = (
    1.0,
    1.5,
    2.0,
    3.0,
    4.0,
    6.0,
    8.0,
    12.0,
    16.0,
    24.0,
    32.0,
    64.0,
    128.0,
    256.0,
    512.0,
    1024.0,
)
DIMENSIONS = (4, 5, 7, 11, 16)
DRAWS = 4
STILL_FALLING = 0.999  # an error that falls by more from rung to rung may yet arrive


@dataclass(frozen=True)
class Row:
    """What one word attends to: weights, context, and where the context should be."""

    word: int
    weights: Floats
    context: Floats
    goal: Floats

    def error(self, beta: float) -> float:
        return float(np.linalg.norm(self.context - self.goal)) / beta


def judge_words(construction: Construction, tolerance: float, seed: int) -> CheckResult:
    """The verdict on matrices for the words, or on what c2 is said to be."""
    draft = CheckResult(
        problem=construction.problem.name,
        construction=construction.texts,
        verdict="proved",
        because="",
        tolerance=tolerance,
        seed=seed,
    )
    try:
        proof = WordProof(construction)
        draft = replace(draft, derived=tuple(proof.lines))
        proved, wrong = proof.settled(), proof.wrong
    except NotExactError:
        proved, wrong = False, ""
    errors = {beta: _worst(construction, beta) for beta in RUNGS}
    usable = [error for error in errors.values() if error is not None]
    if len(usable) < 4:
        if not usable:
            _rows(construction, word_instance(d=4, beta=RUNGS[0]))  # says what is wrong, and where
        because = "the numbers overflow before the large factor is large."
        return replace(draft, verdict="inconclusive", because=because)
    within = [error <= tolerance for error in usable[-3:]]
    settled = bool(wrong) or not usable[-1] < STILL_FALLING * usable[-2]
    if not proved and not any(within) and settled:
        example = _counterexample(construction, tolerance)
        because = (wrong or f"{_misses(construction)} misses its goal however large beta is") + "."
        return replace(draft, verdict="refuted", because=because, counterexample=example)
    if not all(within):
        because = "the numbers do not settle as beta grows."
        if proved:
            because = "the limit is right, but no beta that fits a float shows it."
        return replace(draft, verdict="inconclusive", because=because)
    if not proved:
        because = (
            wrong + ", but within this tolerance."
            if wrong
            else "in numbers; the exact algebra does not reach this formula."
        )
        draft = replace(draft, verdict="holds", because=because)
    else:
        draft = replace(draft, because="for every d: " + proof.because)
    return _tried(replace(draft, beta=_beta_needed(construction, tolerance)), construction)


def _rows(
    construction: Construction, values: dict[str, Any], dtype: DTypeLike = np.float64
) -> list[Row]:
    """The rows that have a goal, by the attention equation."""
    written = dict(construction.expressions)
    if "x2" in written:
        values["x2"] = np.asarray(evaluate(written.pop("x2"), Numeric(values, dtype))).ravel()
    algebra = Numeric(values, dtype)
    given = {n: np.asarray(evaluate(e, algebra)) for n, e in written.items()}
    words = np.stack([np.asarray(values[x], dtype) for x in WORDS])
    if "V" in given:
        product = given["W"] if "W" in given else given["K"].T @ given["Q"]
        goals = {1: values["u_b"] - values["u_c"], 2: values["u_b"]}
        contents = words @ given["V"].T
    else:
        product, contents = np.eye(words.shape[1], dtype=dtype), words
        goals = {2: given["c2"].ravel()}
    result = attend(words @ product.T, words, contents)
    return [Row(i, result.weights[i - 1], result.context[i - 1], goal) for i, goal in goals.items()]


def _worst(construction: Construction, beta: float) -> float | None:
    """The largest error at one beta on the standard basis; None where it overflows."""
    try:
        rows = _rows(construction, word_instance(d=4, beta=beta))
    except ExpressionError:
        return None
    worst = max(row.error(beta) for row in rows)
    return worst if math.isfinite(worst) else None


def _misses(construction: Construction) -> str:
    rows = _rows(construction, word_instance(d=4, beta=8.0))
    return f"c{max(rows, key=lambda row: row.error(8.0)).word}"


def _beta_needed(construction: Construction, tolerance: float) -> BetaNeeded:
    low, high = 0.0, RUNGS[-1]
    for beta in reversed(RUNGS):
        error = _worst(construction, beta)
        if error is None:
            high = beta
        elif error > tolerance:
            low = beta
            break
        else:
            high = beta
    for _ in range(40 if low else 0):
        middle = (low + high) / 2
        error = _worst(construction, middle)
        low, high = (low, middle) if error is not None and error <= tolerance else (middle, high)
    at = {2.0: _rows(construction, word_instance(d=4, beta=2.0))}
    told = ", ".join(f"|c{row.word} - goal| = {row.error(1.0):.4f}" for row in at[2.0])
    return BetaNeeded(f"error(beta) <= eps*beta (at beta = 2: {told})", high, 3, {3: high})


def _counterexample(construction: Construction, tolerance: float) -> Counterexample | None:
    """d = 4 and u = beta times the standard basis, at the first round beta that shows it."""
    for beta in (4.0, 8.0, 16.0, 32.0, 128.0):
        values = word_instance(d=4, beta=beta)
        try:
            rows = _rows(construction, values)
        except ExpressionError:
            continue
        row = max(rows, key=lambda r: r.error(beta))
        if row.error(beta) > tolerance:
            context, goal = np.round(row.context, 4), np.round(row.goal, 4)
            numbers: dict[str, Any] = shown(values, WORDS) | {
                "beta": beta,
                "weights": np.round(row.weights, 6).tolist(),
                f"c{row.word}": context.tolist(),
                "goal": goal.tolist(),
            }
            sentence = (
                f"with d = 4, beta = {beta:g} and u_a..u_d along the axes, c{row.word} = "
                f"{context.tolist()} and the goal is {goal.tolist()}."
            )
            return Counterexample({"d": 4}, numbers, sentence)
    return None


def _tried(draft: CheckResult, construction: Construction) -> CheckResult:
    assert draft.beta is not None
    rng = np.random.default_rng(draft.seed)
    beta = 1.05 * draft.beta.value
    worst = max(_drawn(construction, d, beta, rng) for d in DIMENSIONS for _ in range(DRAWS))
    if worst > draft.tolerance:
        because = "drawn words contradict the algebra: a fault of the checker."
        return replace(draft, verdict="inconclusive", because=because)
    bends = {
        "u of equal norm": Bend(norms=True),
        "u that are orthogonal": Bend(angles=True),
    }
    found = []
    for name, bend in bends.items():
        errors = [
            _drawn(construction, d, 24.0, rng, bend) for d in DIMENSIONS[1:] for _ in range(DRAWS)
        ]
        right = sum(error <= draft.tolerance for error in errors)
        word = "also without it" if right == len(errors) else "without it"
        evidence = f"{word} {right} of {len(errors)} drawn instances reach the goal"
        found.append(Assumption(name, right < len(errors), evidence))
    single = _drawn(construction, 7, beta, rng, dtype=np.float32)
    evidence = f"float32 errs by {single:.2g} at beta = {beta:.4g}"
    found.append(Assumption("double precision", single > draft.tolerance, evidence))
    return replace(
        draft,
        checked=f"{DRAWS * len(DIMENSIONS)} drawn instances, d = "
        f"{', '.join(map(str, DIMENSIONS))}, with the attention equation",
        assumptions=tuple(found),
    )


def _drawn(
    construction: Construction,
    d: int,
    beta: float,
    rng: np.random.Generator,
    bend: Bend = STRAIGHT,
    dtype: DTypeLike = np.float64,
) -> float:
    values = word_instance(d=d, beta=beta, rng=rng, bend=bend)
    try:
        return max(row.error(beta) for row in _rows(construction, values, dtype))
    except ExpressionError:
        return math.inf
