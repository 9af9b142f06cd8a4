"""Judging queries: copy, average, and the averages over noisy keys.

The order of work: try a proof for all n; look for the smallest n at which the limit misses the
goal; if neither settles it, ask the numbers. Whatever algebra says is then tried on drawn keys
with the attention equation itself, and a contradiction there is a fault of the checker, which
it reports as inconclusive.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from wherefrom.attention.checker import key_trials
from wherefrom.attention.checker.construction import Construction
from wherefrom.attention.checker.counterexample import key_counterexample
from wherefrom.attention.checker.failure import RISK, failure_probability, weight_on_a
from wherefrom.attention.checker.key_proofs import beta_formula, proves_fixed, proves_stretched
from wherefrom.attention.checker.key_readings import (
    Reading,
    bounded,
    error_at,
    readings_by_n,
    risk_at,
)
from wherefrom.attention.checker.language import ExpressionError
from wherefrom.attention.checker.query_model import QueryModel
from wherefrom.attention.checker.result import BetaNeeded, CheckResult, Counterexample, Failure

REPORTED_N = 10
BETA_N = (3, REPORTED_N, 25, 100, 1000)  # where the beta that is needed is reported


def judge_keys(construction: Construction, tolerance: float, seed: int) -> CheckResult:
    """The verdict on a query or a pair of queries."""
    model = QueryModel(construction)
    stretched = construction.problem.noise == "stretched"
    proved = proves_stretched(model) if stretched else proves_fixed(model)
    draft = CheckResult(
        problem=construction.problem.name,
        construction=construction.texts,
        verdict="proved",
        because="",
        tolerance=tolerance,
        seed=seed,
        derived=model.derived(),
        notes=_notes(construction, model),
    )
    if not proved:
        readings = readings_by_n(model, tolerance)
        failing = [n for n, reading in readings.items() if reading.ok is False]
        if failing:
            return _refuted(draft, model, min(failing), readings[min(failing)])
        if any(reading.ok is None for reading in readings.values()):
            return replace(
                draft,
                verdict="inconclusive",
                because="the algebra does not reach this formula, and the numbers do not settle "
                "as beta grows.",
            )
        draft = replace(draft, verdict="holds", because=_why_only_holds(model, readings))
    needed = _beta_needed(model, tolerance)
    if needed is None:
        return replace(
            draft,
            verdict="inconclusive",
            because="no beta on the ladder reaches the tolerance, though the limit should.",
        )
    draft = replace(draft, beta=needed)
    if construction.problem.noise != "none":
        draft = replace(draft, failure=_failure(model, needed.value, tolerance, seed))
    return _tried(draft, model)


def _tried(draft: CheckResult, model: QueryModel) -> CheckResult:
    """Algebra against drawn keys, then the assumptions one by one."""
    rng = np.random.default_rng(draft.seed)
    trial = key_trials.confirm(model, draft, rng)
    if trial.contradiction:
        return replace(draft, verdict="inconclusive", because=trial.contradiction)
    because = draft.because or _why_proved(model)
    assumptions = key_trials.assumptions(model, draft, rng)
    return replace(draft, because=because, checked=trial.summary, assumptions=assumptions)


def _beta_needed(model: QueryModel, tolerance: float) -> BetaNeeded | None:
    by_n: dict[int, float] = {}
    for n in sorted({model.problem.least_n, *BETA_N}):
        if n <= model.largest_n:
            least = _least_beta(model, n, tolerance)
            if least is None:
                return None
            by_n[n] = least
    if not model.uses_beta():
        return BetaNeeded("none: the formula has no large factor", 0.0, REPORTED_N, by_n)
    if model.problem.noise == "stretched":
        formula = f"P(misplaced > eps) <= {RISK:g} (from the exact law of e)"
    else:
        formula = beta_formula(model)
    return BetaNeeded(formula, by_n[REPORTED_N], REPORTED_N, by_n)


def _least_beta(model: QueryModel, n: int, tolerance: float) -> float | None:
    """The smallest factor from which on everything is within the tolerance, by bisection."""
    stretched = model.problem.noise == "stretched"

    def good(beta: float) -> bool:
        try:
            if stretched:
                return risk_at(model, beta, n, tolerance) <= RISK
            return error_at(model, beta, n) <= tolerance
        except ExpressionError:
            return False

    rungs = [1e-6, 0.01, 0.1, *model.rungs(n)]
    if stretched:  # the exact failure rate costs a millisecond: fewer rungs, fewer digits
        rungs = [beta for beta in rungs if math.log10(beta).is_integer()]
    low, high = None, None
    for beta in reversed(rungs):
        if not good(beta):
            low = beta
            break
        high = beta
    if high is None:
        return None
    if low is None:
        return 0.0
    for _ in range(16 if stretched else 60):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if good(middle) else (middle, high)
    return high


def _failure(model: QueryModel, needed: float, tolerance: float, seed: int) -> Failure | None:
    """The failure rate at the beta that is needed, or at the first round one from 10 on."""
    n = REPORTED_N
    beta = model.usable_beta(n) if needed < 10 else needed
    if beta is None:
        return None
    if not model.uses_beta():
        beta = 1.0
    heads = [bounded(head) for head in model.logits(beta, n)]
    rng = np.random.default_rng([seed, 1])
    if model.problem.noise == "isotropic":
        return key_trials.isotropic_failure(model, beta, n, tolerance, rng)
    given, aside, in_all = failure_probability(heads, n, tolerance, backwards_aside=len(heads) > 1)
    simulated, error, samples = key_trials.simulate(
        model, n, beta, tolerance, key_trials.VANISHING, rng
    )
    return Failure(
        meaning=f"more than {tolerance:g} of the weight is misplaced (alpha -> 0)",
        n=n,
        beta=beta,
        probability=given,
        set_aside=aside,
        in_all=in_all,
        simulated=simulated,
        standard_error=error,
        samples=samples,
        spread=weight_on_a(heads, n)[1],
        alpha_allowed=key_trials.alpha_allowed(model, beta, n, tolerance)
        if len(heads) == 1
        else None,
    )


def _refuted(draft: CheckResult, model: QueryModel, n: int, reading: Reading) -> CheckResult:
    because = reading.sentence
    if math.isinf(reading.size):
        return replace(
            draft,
            verdict="refuted",
            because=because + ("" if because.endswith(".") else "."),
            counterexample=Counterexample({"n": n, "d": n}, {}, because),
        )
    if not model.uses_beta():
        because += "; nothing in the formula grows with beta"
    elif model.same_queries():
        because += "; the queries are the same, so this is one head written twice"
    else:
        because += _unequal(model, n)
    example = key_counterexample(model, n, draft.tolerance)
    failure = None
    if model.problem.noise == "stretched":
        failure = _failure(model, 0.0, draft.tolerance, draft.seed)
    return replace(
        draft, verdict="refuted", because=because + ".", counterexample=example, failure=failure
    )


def _unequal(model: QueryModel, n: int) -> str:
    """A cause worth naming: the two wanted logits drift apart, or a random length is amplified."""
    if model.exact is None or len(model.exact) > 1 or len(model.picked) < 2:
        return ""
    (logits,) = model.exact
    if model.problem.noise == "stretched":
        if logits["a"].is_zero:
            return ""
        return f"; q has the component {logits['a']} along the noisy direction mu_a"
    apart = model.difference_at(logits["a"], logits["b"], n)
    if apart.kind in ("up", "down"):
        gap = model.field.subtract(logits["a"], logits["b"])
        return f"; k_a.q - k_b.q = {gap} grows with beta, so one of the two takes all"
    return ""


def _why_proved(model: QueryModel) -> str:
    if model.problem.noise == "stretched":
        if model.exact is not None and all(head["a"].is_zero for head in model.exact):
            return (
                "for every n: no query has a component along mu_a, so the length of k_a does not "
                "matter, and every other key loses its weight as beta grows."
            )
        return "for every n and every length e not set aside, the weights tend to 1/2, 1/2, 0."
    if len(model.picked) == 1:
        return "for every n: the logit of j runs away from all others as beta grows."
    return "for every n: the logits of a and b agree and run away from all others as beta grows."


def _why_only_holds(model: QueryModel, readings: dict[int, Reading]) -> str:
    worst = max(reading.size for reading in readings.values())
    sizes = f"n = {min(readings)} to {max(readings):,}"
    if model.exact is None:
        return f"in numbers, for {sizes}; the exact algebra does not reach this formula."
    if worst == 0 and model.problem.noise != "stretched":
        return f"for {sizes}, one by one; a sign could not be settled for every n at once."
    what = "the failure rate" if model.problem.noise == "stretched" else "the misplaced share"
    return (
        f"within this tolerance for {sizes}, but not for every tolerance: {what} "
        f"tends to {worst:.3g} at worst, which no beta removes."
    )


def _notes(construction: Construction, model: QueryModel) -> tuple[str, ...]:
    notes = []
    text = " ".join(construction.texts.values())
    if any(x in text for x in ("t1", "t_1")) and any(x in text for x in ("t2", "t_2")):
        notes.append("t1 and t2 are read as one large factor, beta.")
    if model.problem.name == "two-heads":
        beta = model.usable_beta(5)
        if beta is not None and any(head[0] > 0 for head in model.logits(beta, 5)):
            notes.append("samples with k_a.q < 0 because the key points backwards are set aside.")
    return tuple(notes)
