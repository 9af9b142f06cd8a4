"""Judging queries: copy, average, and the averages over noisy keys.

A proof for all n, else the smallest n at which the limit misses, else numbers; what comes out is
tried on drawn keys with the attention equation, and a contradiction is a fault of the checker.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache
from statistics import NormalDist
from typing import Any

import numpy as np

from wherefrom.attention.checker.algebra import UNITY
from wherefrom.attention.checker.instances import (
    NO_PROOF,
    Floats,
    Numeric,
    Variants,
    key_values,
    oblique_angles,
    orthonormal,
    unequal_norms,
)
from wherefrom.attention.checker.language import Construction, ExpressionError, evaluate
from wherefrom.attention.checker.logits import (
    EVERY_N,
    HIGH_RUNGS,
    RISK,
    RUNGS,
    SD,
    Queries,
    Reading,
    failure_probability,
    probability_between,
)
from wherefrom.attention.checker.problems import (
    FAULT,
    Assumption,
    BetaNeeded,
    CheckResult,
    Counterexample,
    Failure,
)
from wherefrom.attention.equation import attend

REPORTED_N = 10
BETA_N = (3, REPORTED_N, 25, 100, 1000)  # where the beta that is needed is reported
CONFIRMED_AT = (1.1, 10.0, 1000.0)  # times the beta that is needed
FACTORS = (10.0, 20.0, 100.0, 5.0, 1000.0, 2.0, 1e4, 1.0, 1e6)  # of a counterexample
LENGTHS = (1.0, 0.5, 1.5, 0.0, 2.0, 0.9, 1.1, 1.01, 0.99, 0.1)  # of k_a in a counterexample
SHOWN_N = 12  # keys that are written out one by one
SAMPLES = 4_000
GATE = 5.0  # standard errors between law and simulation that are a fault of ours
ALPHA = 1e-6  # the blur at which the isotropic problem reports its failure rate
VANISHING = 1e-14  # stands for alpha -> 0 in a simulation
SEARCHED = ((3, 5), (10, 12))  # n and d at which a counterexample to an assumption is searched
DRAWS = 8


def judge_keys(construction: Construction, draft: CheckResult) -> CheckResult:
    """The verdict on a query or a pair of queries, or on the range of e."""
    if "low" in construction.expressions:
        return _judge_range(construction, draft)
    model = Queries(construction)
    derived, notes = list[str](), list[str]()
    for name, head in zip(model.expressions, model.exact, strict=False):
        for group, value in head.items():
            text = str(value)
            if group == "a" and model.stretched and not value.is_zero:
                text = f"e*{text}" if text.isalnum() else f"e*({text})"
            key, ending = ("i", " for every other i") if group == "others" else (group, "")
            derived.append(f"k_{key}.{name} = {text}{ending}")
    letters = sorted({expression.factor for expression in model.expressions.values()} - {""})
    if len(letters) > 1:
        notes.append(f"{' and '.join(letters)} are read as one large factor, beta.")
    beta = model.first_usable(5) if len(model.expressions) > 1 else None
    if beta is not None and any(head[0] > 0 for head in model.logits(beta, 5)):
        notes.append("samples in which k_a points backwards (e < 0, so k_a.q < 0) are set aside.")
    draft = decide(model, replace(draft, derived=tuple(derived), notes=tuple(notes)))
    if not draft.passed:
        shown = draft.counterexample is not None and draft.counterexample.sizes.get("n")
        spoilt = model.stretched and draft.verdict == "refuted" and shown
        return replace(draft, failure=_failure(model, 0.0, draft)) if spoilt else draft
    needed = _beta_needed(model, draft.tolerance)
    if needed is None:
        because = "the weights should reach the goal, but at no beta that a computer can hold."
        return draft.judged("inconclusive", because)
    draft = replace(draft, beta=needed)
    if model.problem.noise != "none":
        draft = replace(draft, failure=_failure(model, needed.value, draft))
    fault = _contradiction(model, draft, needed)
    if fault:
        return draft.judged("inconclusive", fault)
    checked = f"random keys at every n from {model.problem.least_n} to {EVERY_N}, with beta from "
    checked += "1.1 to 1000 times what is needed"
    return replace(draft, checked=checked, assumptions=tuple(_assumptions(model, draft)))


def decide(model: Queries, draft: CheckResult) -> CheckResult:
    """The draft with the verdict that algebra and numbers give, before drawn keys confirm it."""
    if model.proved():
        because = "k_a.q and k_b.q agree, and their lead over every other k_i.q grows with beta."
        if model.stretched and all(head["a"].is_zero for head in model.exact):
            because = "no query has a component along mu_a, so the length of k_a does not matter, "
            because += "and every other key loses its weight as beta grows."
        elif model.stretched:
            because = "the weights of a, b and all others tend to 1/2, 1/2 and 0."
            return draft.judged(
                "proved", f"for every n and every length e not set aside, {because}"
            )
        elif model.named == 1:
            because = "the lead of k_j.q over every other k_i.q grows with beta, without bound."
        return draft.judged("proved", f"for every n: {because}")
    readings = model.readings(draft.tolerance)
    n, reading = next(iter(readings.items()))
    if reading[0] is False:
        return _refuted(draft, model, n, reading)
    lead = model.largest_lead()
    if lead is not None:
        return _outnumbered(draft, model, lead)
    if any(ok is None for ok, _, _ in readings.values()):
        because = "the weights change too slowly with beta to see their limit, and "
        no_algebra = "exact algebra cannot handle this formula."
        because += "no argument settles it." if model.exact else no_algebra
        return draft.judged("inconclusive", because)
    worst, most = max(size for _, size, _ in readings.values()), max(readings)
    sizes = f"n = {min(readings)} to "
    sizes += f"{most:,}" if most < 10**7 else f"10^{math.log10(most):.0f}"
    if not model.exact:
        because = f"true in numbers for {sizes}. {NO_PROOF}"
    elif worst == 0 and not model.stretched:
        because = f"the goal is reached at each n that was tried, {sizes}; "
        because += "no argument covers every n."
    else:
        what = "of the samples fail" if model.stretched else "of the weight stays misplaced"
        rest = f": {worst:.3g} {what} at worst, however large beta is" if worst else ""
        because = f"right within this tolerance for {sizes}, but not within every one{rest}."
    return draft.judged("holds", because)


def _judge_range(construction: Construction, draft: CheckResult) -> CheckResult:
    """low <= e <= high for the length e of the noisy key: what share of samples is inside?"""
    low, high = 0.0, 0.0
    for name, expression in construction.expressions.items():
        value = float(np.asarray(evaluate(expression, Numeric({}))).item())
        if not -1e6 <= value <= 1e6:
            raise ExpressionError(f"{name} must lie within a million of 0.", expression.source, 1)
        low, high = (value, high) if name == "low" else (low, value)
    inside = probability_between(low, high)
    outside = 1 - inside
    failure = Failure("e lies outside the range", 0, 0.0, outside, 0.0, outside)
    derived = (f"P({low:g} <= e <= {high:g}) = {inside:.6f}",)
    draft = replace(draft, derived=derived, failure=failure)
    if outside <= draft.tolerance:
        because = f"the length e ~ N(1, 1/2) lies between {low:g} and {high:g} in {inside:.4%} of "
        return draft.judged("proved", because + "the samples.")
    samples = (0.0, 2.0, 1.0, -1.0, 3.0, -2.0, 4.0, low - 1, high + 1)
    e = next(e for e in samples if not low <= e <= high)
    because = f"e ~ N(1, 1/2) has the standard deviation 0.707, so {outside:.1%} of the samples "
    because += f"lie outside {low:g} to {high:g}."
    sentence = f"e = {e:g} is as good a sample as any, and outside the range."
    return draft.refuted(because, sentence, numbers={"e": e})


def _refuted(draft: CheckResult, model: Queries, n: int, reading: Reading) -> CheckResult:
    _, size, because = reading
    if math.isinf(size):
        return draft.refuted(because.removesuffix(".") + ".", because, {"n": n, "d": n})
    along = model.exact[0].get("a") if len(model.exact) == 1 else None
    beta = model.first_usable(5)
    heads = [()] if beta is None else model.logits(beta, 5)
    if not model.uses_beta:
        because += "; nothing in the formula grows with beta"
    elif len(heads) > 1 and np.allclose(heads[0], heads, rtol=1e-12):
        because += "; the queries are the same, so this is one head written twice"
    elif model.stretched and along is not None and not along.is_zero:
        because += f"; q has the component {along} along the noisy direction mu_a"
    elif not model.stretched and along and model.trend("a", "b", n).kind in ("up", "down"):
        gap = model.gaps[0]["a", "b"]
        because += f"; k_a.q - k_b.q = {gap} grows with beta, so one of the two takes all"
    for many in (n, 2 * n, 100 * n):  # at the smallest n it may take a larger beta than can be held
        example = _counterexample(model, many, draft.tolerance)
        if example.numbers.get("misplaced", 1.0) > draft.tolerance:
            break
    return draft.judged("refuted", because + ".", counterexample=example)


def _outnumbered(draft: CheckResult, model: Queries, lead: float) -> CheckResult:
    """A lead that nothing increases is lost among enough other keys: from n = e^lead on."""
    reach = 1 + 10 * SD if model.stretched else 1.0  # longer than k_a is in any sample
    digits = (reach * lead + math.log(model.named)) / math.log(10)
    because = f"the lead over the other keys' logits is {lead:.6g} at every n and beta, so these "
    because += f"keys together have more weight from n = 10^{digits:.5g} on"
    because += "." if model.uses_beta else "; nothing in the formula grows with beta."
    sentence = f"with 10^{digits:.5g} keys the others have at least half of the weight."
    return draft.refuted(because, sentence, numbers={"lead": lead, "log10_n": digits})


def _counterexample(model: Queries, n: int, tolerance: float) -> Counterexample:
    """The standard basis at this n, and the first round beta and length that show the failure."""
    betas = (*FACTORS, *RUNGS, *HIGH_RUNGS) if model.uses_beta else (1.0, 2.0, 10.0)
    numbers: dict[str, Any] = {}
    error = -1.0
    for beta, e in ((b, e) for b in betas for e in (LENGTHS if model.stretched else (1.0,))):
        try:
            tried = _numbers(model, n, beta, e)
        except ExpressionError:
            continue
        lasting = tried["misplaced"] > tolerance and _lasts(model, n, beta, e, tolerance)
        if lasting or tried["misplaced"] > error:
            numbers, error = tried, tried["misplaced"]
        if lasting:
            break
    if not numbers:
        return Counterexample({"n": n, "d": n}, {}, f"the formula has no value at n = {n}.")
    at = [f"n = {n}", *(f"{x} = {numbers[x]:g}" for x in ("beta", "e") if x in numbers)]
    weights = np.array([*numbers["weights_by_group"].values()])
    told = model.tell(weights, "{} {:.4g}", "the others")
    clear = error > 1.01 * tolerance
    numbers["misplaced"] = round(error, 6) if clear else error
    amount = f"{error:.4g}" if clear else f"just over {tolerance:g}"
    sentence = f"with {', '.join(at)} the weights are {told}: {amount} of the weight is misplaced, "
    return Counterexample({"n": n, "d": n}, numbers, f"{sentence}and {tolerance:g} is allowed.")


def _lasts(model: Queries, n: int, beta: float, e: float, tolerance: float) -> bool:
    """Does the goal fail at larger beta too, where there is a value?"""
    for factor in (10.0, 1000.0) if model.uses_beta else ():
        with contextlib.suppress(ExpressionError):
            if _numbers(model, n, factor * beta, e)["misplaced"] <= tolerance:
                return False
    return True


def _numbers(model: Queries, n: int, beta: float, e: float) -> dict[str, Any]:
    """Keys, queries, logits and weights of one instance; weights alone if there are many keys."""
    numbers: dict[str, Any] = {"beta": beta} if model.uses_beta or beta != 1 else {}
    if model.stretched:
        numbers["e"] = e
    far = beta > 1e14 and bool(model.exact) and not model.stretched
    if n <= SHOWN_N and not far:
        keys = orthonormal(n, n)
        queries = _queries(model, keys, beta)
        keys[0] *= e
        result = attend(queries, keys, np.eye(n))
        weights = result.weights.mean(axis=0)
        grouped = _by_group(model, weights)
        numbers["keys"] = keys.tolist()
        for name, table in (("queries", queries), ("logits", result.scores), ("weights", weights)):
            numbers[name] = np.round(table, 6).tolist()
    else:
        logits = np.array(model.differences(beta, n) if far else model.logits(beta, n))
        logits[:, 0] *= e
        grouped = model.weights(logits, n).mean(axis=0)
    rounded = np.round(grouped, 6).tolist()
    numbers["weights_by_group"] = dict(zip(model.groups, rounded, strict=True))
    numbers["wanted_by_group"] = dict(model.problem.target)
    return numbers | {"misplaced": float(model.distance(grouped))}


def _queries(model: Queries, keys: Floats, beta: float) -> Floats:
    """The queries over these keys (or means), one per row."""
    algebra = Numeric(key_values(model.problem, keys, beta))
    return np.hstack([evaluate(x, algebra) for x in model.expressions.values()]).T


def _beta_needed(model: Queries, tolerance: float) -> BetaNeeded | None:
    """The beta that is needed at several n, and the condition in closed form where there is one."""
    by_n: dict[int, float] = {}
    for n in sorted({model.problem.least_n, *BETA_N}):
        least = _least_beta(model, n, tolerance)
        if least is None:
            return None
        by_n[n] = least
    below = "eps" if model.named == 1 else f"{model.named}*eps"
    level = f"ln((n-{model.named})*(1-eps)/({below}))"
    if not model.uses_beta:
        return BetaNeeded("none: the formula has no large factor", 0.0, REPORTED_N, by_n)
    if model.stretched:
        formula = f"P(more than eps of the weight is misplaced) <= {RISK:g}, by the law of e"
    elif not model.exact:
        formula = f"k_a.q - k_i.q >= {level}"
    else:
        gap = model.gaps[0][model.groups[0], "others"]
        key, size = next(iter(gap.top.items()))
        order = dict(key).get("beta", 0)
        inner = level if size == 1 else f"{level}/{size if size.denominator == 1 else f'({size})'}"
        formula = (
            f"beta >= {inner}" if order == 1 else f"beta >= ({inner})**({1 / Fraction(order or 1)})"
        )
        if len(gap.top) + len(key) > 2 or order <= 0 or gap.bottom != UNITY:
            formula = f"{gap} >= {level}"  # not one power of beta
    return BetaNeeded(formula, by_n[REPORTED_N], REPORTED_N, by_n)


def _least_beta(model: Queries, n: int, tolerance: float) -> float | None:
    """The smallest factor from which on everything is within the tolerance, by bisection."""

    def good(beta: float) -> bool:
        try:
            error = model.error(model.logits(beta, n), n, tolerance)
        except ExpressionError:
            return False
        return error <= (RISK if model.stretched else tolerance)

    rungs = [1e-6, 0.01, 0.1, *model.usable(RUNGS + HIGH_RUNGS if model.exact else RUNGS, n)]
    if model.stretched:  # the exact failure rate costs two milliseconds: fewer rungs and digits
        few = {10.0**k for k in (*range(-6, 7), 9, 30)}
        rungs = [beta for beta in rungs if beta in few]
    last = next((i for i in reversed(range(len(rungs))) if not good(rungs[i])), None)
    if last is None:
        return 0.0
    if last == len(rungs) - 1:
        return None
    low, high = rungs[last], rungs[last + 1]
    for _ in range(16 if model.stretched else 60):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if good(middle) else (middle, high)
    return high


def _failure(model: Queries, needed: float, draft: CheckResult) -> Failure | None:
    """The failure rate at the beta that is needed, or at the first round one from 10 on."""
    n, eps = REPORTED_N, draft.tolerance
    beta = model.first_usable(n) if needed < 10 else needed
    if beta is None:
        return None
    beta = beta if model.uses_beta else 1.0
    heads = model.logits(beta, n)
    size = max(math.hypot(a, b, math.sqrt(n - 2) * other) for a, b, other in heads)  # |q|
    level = math.log((0.5 + eps) / (0.5 - eps))  # of k_a.q - k_b.q, where the split is off by eps
    alpha = None
    if 0 < size < math.inf and len(heads) == 1:  # k_a.q - k_b.q gains the variance 2 alpha |q|^2
        alpha = (level / (-NormalDist().inv_cdf(RISK / 2) * math.sqrt(2) * size)) ** 2
    if model.stretched:
        meaning = f"more than {eps:g} of the weight is misplaced (alpha -> 0)"
        given, aside, in_all = failure_probability(heads, n, eps)
    else:
        meaning = f"a and b are off the even split by more than {eps:g}, at alpha = {ALPHA:g}"
        centre, width = heads[0][0] - heads[0][1], math.sqrt(4 * ALPHA) * size
        tails = ((level - side) / width if width else math.inf for side in (centre, -centre))
        given, aside = 0.5 * sum(map(math.erfc, tails)), 0.0
        in_all = given
    simulated, error = _simulate(model, n, beta, draft)
    return Failure(meaning, n, beta, given, aside, in_all, simulated, error, SAMPLES, alpha)


def _simulate(model: Queries, n: int, beta: float, draft: CheckResult) -> tuple[float, float]:
    """How often the goal is missed over drawn keys, with its standard error.
    Stretched: too much weight is misplaced, among the samples that are not set aside. Isotropic:
    the split between a and b is uneven."""
    rng = np.random.default_rng([draft.seed, 1])
    means = orthonormal(n, n, rng)
    queries = _queries(model, means, beta)
    alpha = VANISHING if model.stretched else ALPHA
    keys = means + math.sqrt(alpha) * rng.standard_normal((SAMPLES, n, n))
    kept = np.ones(SAMPLES, dtype=bool)
    if model.stretched:
        e = 1 + SD * rng.standard_normal((SAMPLES, 1))
        keys[:, 0] += (e - 1) * means[0]
        if len(queries) > 1 and (queries @ means[0] > 0).any():
            kept = e[:, 0] >= 0
    weights = attend(queries, keys, keys[..., :1]).weights.mean(axis=-2)
    wrong = model.distance(_by_group(model, weights))
    if not model.stretched:
        wrong = np.abs(weights[:, 0] / (weights[:, 0] + weights[:, 1]) - 0.5)
    share, count = float((wrong[kept] > draft.tolerance).mean()), int(kept.sum())
    return share, math.sqrt(max(share * (1 - share), 1 / count) / count)


def _by_group(model: Queries, weights: Floats) -> Floats:
    """Weights of keys, along the last axis, as weights of groups."""
    named, others = np.split(weights, [model.named], axis=-1)
    return np.concatenate([named, others.sum(axis=-1, keepdims=True)], axis=-1)


@cache
def _lengths(kept_only: bool) -> Floats:
    """200 lengths e of equal probability, without those below 0 if they are set aside."""
    law = NormalDist(1, SD)
    low = law.cdf(0.0) if kept_only else 0.0
    return np.array([law.inv_cdf(low + (1 - low) * (i + 0.5) / 200) for i in range(200)])


def _missed(model: Queries, keys: Floats, beta: float, tolerance: float) -> tuple[bool, Floats]:
    """Whether the goal is missed over these keys or means, and the groups' weights at worst.
    ExpressionError where there is no value, or where rounding swamps the logits."""
    queries = _queries(model, keys, beta)
    lengths = _lengths(len(queries) > 1) if model.stretched else np.ones(1)
    drawn = np.repeat(keys[None], len(lengths), axis=0)
    drawn[:, 0] *= lengths[:, None]
    result = attend(queries, drawn, drawn)
    if float(np.abs(result.scores).max()) * np.finfo(np.float64).eps > 1e-5:
        raise ExpressionError("the logits are too large for floating point.", "", 1, too_large=True)
    weights = _by_group(model, result.weights.mean(axis=-2))
    wrong = model.distance(weights)
    share = float(np.mean(wrong > tolerance * (1 + 1e-9) + 1e-12))
    return share > (RISK + 0.02 if model.stretched else 0.0), weights[int(np.argmax(wrong))]


def _contradiction(model: Queries, draft: CheckResult, needed: BetaNeeded) -> str:
    """What drawn keys say against the verdict, at every n up to 30 and several beta; or nothing."""
    failure = draft.failure
    if failure is not None and failure.simulated is not None and failure.standard_error is not None:
        exact, drawn = failure.probability, failure.simulated
        if abs(drawn - exact) > GATE * failure.standard_error:
            return (
                f"the exact failure rate {exact:.4f} and the simulated one {drawn:.4f} disagree: a "
                "fault of the checker, so a person should judge this."
            )
    rng = np.random.default_rng(draft.seed)
    for n in range(model.problem.least_n, EVERY_N + 1):
        keys = orthonormal(n, n + n % 3, rng)
        least = needed.by_n.get(n, max(needed.by_n.values()))
        fault = _contradiction_at(model, keys, least, draft.tolerance)
        if fault and n not in needed.by_n:  # this n may need more
            least = _least_beta(model, n, draft.tolerance) or least
            fault = _contradiction_at(model, keys, least, draft.tolerance)
        if fault:
            return fault
    return ""


def _contradiction_at(model: Queries, keys: Floats, least: float, tolerance: float) -> str:
    for beta in (factor * least + 1e-9 for factor in CONFIRMED_AT):
        try:
            if _missed(model, keys, beta, tolerance)[0]:
                return FAULT.format(what="drawn keys")
        except ExpressionError as problem:
            if problem.too_large:
                break
            at = f"at n = {len(keys)}, beta = {beta:.4g}"
            return f"{at} the formula has no value: {problem.sentence}"
    return ""


def _assumptions(model: Queries, draft: CheckResult) -> Iterator[Assumption]:
    """Which assumptions of the problem the construction needs, by giving them up in turn."""
    noun = "key" if model.problem.noise == "none" else "mean"
    rng = np.random.default_rng([draft.seed, 2])
    yield _search(model, draft, f"{noun}s of equal norm", unequal_norms, rng)
    yield _search(model, draft, f"{noun}s that are orthogonal", oblique_angles, rng)
    failure = draft.failure
    if failure is not None and failure.set_aside > 0:
        evidence = f"counting them, {failure.in_all:.2%} of all samples fail at beta = "
        evidence += f"{failure.beta:.4g}"
        yield Assumption("samples with k_a.q < 0 are set aside", failure.in_all > RISK, evidence)


def _search(
    model: Queries, draft: CheckResult, name: str, variants: Variants, rng: np.random.Generator
) -> Assumption:
    """Look for keys without the assumption on which the goal is missed however large beta is.
    Without a find, the assumption is not needed if the logits are the same over all of the keys:
    they are analytic in the keys, so those that agree at random points agree everywhere."""
    tried, same = 0, True
    small = model.first_usable(REPORTED_N, least=2.0) or 1.0
    for n, d in SEARCHED:
        straight = orthonormal(n, d, rng)
        logits = straight @ _queries(model, straight, small).T
        for what, keys in variants(straight, model.named, rng, DRAWS):
            tried += 1
            where = f"with n = {n} and {what}"
            try:
                again = keys @ _queries(model, keys, small).T
            except ExpressionError:
                return Assumption(name, True, f"{where}, the formula has no value")
            same = same and bool(np.allclose(again, logits, rtol=1e-8, atol=1e-8))
            weights = _missed_in_the_limit(model, keys, draft.tolerance)
            if weights is not None:
                told = model.tell(weights, "{} {:.3g}", "the others")
                return Assumption(name, True, f"{where}, the weights tend to {told}")
    if same:
        return Assumption(name, False, f"{tried} sets of keys without it have the same logits")
    return Assumption(name, None, f"no counterexample in {tried} sets, some chosen to break it")


def _missed_in_the_limit(model: Queries, keys: Floats, tolerance: float) -> Floats | None:
    """The weights over these keys if they miss the goal and larger beta does not help."""
    errors, weights = [0.0], None
    for beta in (5.0, 10.0, 20.0, 50.0, 200.0, 1e4, 1e6):
        try:
            missed, weights = _missed(model, keys, beta, tolerance)
        except ExpressionError:
            break
        errors.append(float(model.distance(weights)) if missed else 0.0)
    stuck = errors[-1] > 0 and len(errors) > 2 and errors[-1] >= 0.999 * errors[-2]
    return weights if stuck else None
