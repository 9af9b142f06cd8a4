"""The smallest instance on which a construction fails, with its numbers.

Smallest means: the fewest keys, no spare dimension, keys that are the standard basis, and the
first factor of a short list of round ones at which the failure shows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wherefrom.attention.checker.instances import key_instance
from wherefrom.attention.checker.language import ExpressionError, evaluate
from wherefrom.attention.checker.numeric import Numeric
from wherefrom.attention.checker.query_model import QueryModel
from wherefrom.attention.checker.result import Counterexample
from wherefrom.attention.equation import attend

FACTORS = (10.0, 20.0, 100.0, 5.0, 1000.0, 2.0, 1e4, 1.0, 1e6)
LENGTHS = (1.0, 0.5, 1.5, 0.0, 2.0, 0.9, 1.1, 1.01, 0.99, 0.1)
SHOWN_N = 12  # keys that are written out one by one


def key_counterexample(model: QueryModel, n: int, tolerance: float) -> Counterexample:
    """Numbers for a query problem at this n."""
    stretched = model.problem.noise == "stretched"
    lengths = LENGTHS if stretched else (1.0,)
    best: tuple[dict[str, Any], float] | None = None
    for beta in FACTORS if model.uses_beta() else (1.0,):
        for e in lengths:
            try:
                numbers, error = _numbers(model, n, beta, e)
            except (ExpressionError, OverflowError):
                continue
            if error > tolerance:
                return _told(model, n, numbers, error, tolerance)
            if best is None or error > best[1]:
                best = numbers, error
    if best is None:
        return Counterexample({"n": n, "d": n}, {}, f"the formula has no value at n = {n}.")
    return _told(model, n, best[0], best[1], tolerance)


def _told(
    model: QueryModel, n: int, numbers: dict[str, Any], error: float, tolerance: float
) -> Counterexample:
    at = f"n = {n}" + (f", beta = {numbers['beta']:g}" if "beta" in numbers else "")
    if "e" in numbers:
        at += f", e = {numbers['e']:g}"
    weights = numbers["weights_by_group"]
    told = ", ".join(f"{'the others' if g == 'others' else g} {w:.4g}" for g, w in weights.items())
    amount = f"{error:.4g}" if error > 1.01 * tolerance else f"just over {tolerance:g}"
    sentence = (
        f"with {at} the weights are {told}: {amount} of the weight is misplaced, "
        f"and {tolerance:g} is allowed."
    )
    return Counterexample({"n": n, "d": n}, numbers, sentence)


def _numbers(model: QueryModel, n: int, beta: float, e: float) -> tuple[dict[str, Any], float]:
    problem = model.problem
    numbers: dict[str, Any] = {}
    if model.uses_beta():
        numbers["beta"] = beta
    if problem.noise == "stretched":
        numbers["e"] = e
    if n <= SHOWN_N:
        values, keys = key_instance(problem, n=n, d=n, beta=beta)
        algebra = Numeric(values)
        queries = np.hstack(
            [evaluate(x, algebra) for x in model.construction.expressions.values()]
        ).T
        drawn = keys.copy()
        if problem.noise == "stretched":
            drawn[0] *= e
        result = attend(queries, drawn, np.eye(n))
        weights = result.weights.mean(axis=0)
        numbers["keys"] = drawn.tolist()
        numbers["queries"] = np.round(queries, 6).tolist()
        numbers["logits"] = np.round(result.scores, 6).tolist()
        numbers["weights"] = np.round(weights, 6).tolist()
        picked = len(model.picked)
        grouped = [*weights[:picked].tolist(), float(weights[picked:].sum())]
    else:
        grouped = _grouped(model, n, beta, e)
    by_group = dict(zip(model.groups, grouped, strict=True))
    numbers["weights_by_group"] = {g: round(w, 6) for g, w in by_group.items()}
    numbers["wanted_by_group"] = dict(problem.target)
    error = model.distance(by_group)
    numbers["misplaced"] = round(error, 6)
    return numbers, error


def _grouped(model: QueryModel, n: int, beta: float, e: float) -> list[float]:
    """Weights of the groups from their logits, for an n too large to write out."""
    heads = []
    for head in model.logits(beta, n):
        logits = dict(zip(model.groups, head, strict=True))
        if model.problem.noise == "stretched":
            logits["a"] *= e
        heads.append(list(model.weights(logits, n).values()))
    return [sum(column) / len(heads) for column in zip(*heads, strict=True)]
