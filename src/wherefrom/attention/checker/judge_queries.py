"""Judging queries: copy, average, the averages over noisy keys, and claims about their variances.

A proof for all n, else the smallest n at which the limit misses, else numbers; what comes out is
tried on drawn keys with the attention equation, and a contradiction is a fault of the checker.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from statistics import NormalDist
from typing import Any

import numpy as np

from wherefrom.attention.checker import (
    Assumption,
    BetaNeeded,
    CheckResult,
    Counterexample,
    Failure,
    Problem,
    logits,
)
from wherefrom.attention.checker.algebra import UNITY, NotExactError, Poly, symbol
from wherefrom.attention.checker.instances import (
    Floats,
    Numeric,
    Variants,
    key_values,
    oblique_angles,
    orthonormal,
    polynomial,
    unequal_norms,
)
from wherefrom.attention.checker.language import (
    Construction,
    Expression,
    ExpressionError,
    evaluate,
    parse,
    write,
)
from wherefrom.attention.checker.logits import RISK, SD, Queries, Reading
from wherefrom.attention.checker.reading import decimal_points, say
from wherefrom.attention.equation import attend
from wherefrom.errors import UserError

REPORTED_N = 10
BETA_N = (3, REPORTED_N, 25, 100, 1000)  # where the beta that is needed is reported
ALL_RUNGS = logits.RUNGS + logits.HIGH_RUNGS
CONFIRMED_AT = (1.1, 10.0, 1000.0)  # times the beta that is needed
FACTORS = (10.0, 20.0, 100.0, 5.0, 1000.0, 2.0, 1e4, 1.0, 1e6)  # of a counterexample
LENGTHS = (1.0, 0.5, 1.5, 0.0, 2.0, 0.9, 1.1, 1.01, 0.99, 0.1)  # of k_a in a counterexample
SHOWN_N = 12  # keys that are written out one by one
FLOATS_BETA = 1e14  # beyond it floats lose the difference of two logits
SAMPLES = 4_000
GATE = 5.0  # standard errors between law and simulation that are a fault of ours
ALPHA = 1e-6  # the blur at which the isotropic problem reports its failure rate
VANISHING = 1e-14  # stands for alpha -> 0 in a simulation
SEARCHED = ((3, 5), (10, 12))  # n and d at which a counterexample to an assumption is searched


def judge_keys(construction: Construction, draft: CheckResult) -> CheckResult:
    """The verdict on a query or a pair of queries, or on the range of e."""
    if "low" in construction.expressions:
        return _judge_range(construction, draft)
    return KeysJudge(construction, draft).judge()


def _judge_range(construction: Construction, draft: CheckResult) -> CheckResult:
    """low <= e <= high for the length e of the noisy key: what share of samples is inside?"""
    ends: dict[str, float] = {}
    for name, expression in construction.expressions.items():
        ends[name] = float(np.asarray(evaluate(expression, Numeric({}))).item())
        if not -1e6 <= ends[name] <= 1e6:
            raise ExpressionError(f"{name} must lie within a million of 0.", expression.source, 1)
    low, high = ends["low"], ends["high"]
    inside = logits.probability_between(low, high)
    outside = 1 - inside
    failure = Failure("e lies outside the range", 0, 0.0, outside, 0.0, outside)
    derived = (f"P({low:g} <= e <= {high:g}) = {inside:.6f}",)
    draft = replace(draft, derived=derived, failure=failure)
    if outside <= draft.tolerance:
        return draft.judged("proved", say("range_holds", low=low, high=high, inside=inside))
    samples = (0.0, 2.0, 1.0, -1.0, 3.0, -2.0, 4.0, low - 1, high + 1)
    e = next(e for e in samples if not low <= e <= high)
    because = say("range_too_small", outside=outside, low=low, high=high)
    return draft.refuted(because, say("sample_outside", e=e), numbers={"e": e})


@cache
def _lengths(kept_only: bool) -> Floats:
    """200 lengths e of equal probability, without those below 0 if they are set aside."""
    law = NormalDist(1, SD)
    low = law.cdf(0.0) if kept_only else 0.0
    return np.array([law.inv_cdf(low + (1 - low) * (i + 0.5) / 200) for i in range(200)])


class KeysJudge(Queries):
    """The verdict on the queries of one construction."""

    def __init__(self, construction: Construction, draft: CheckResult) -> None:
        super().__init__(construction, draft.tolerance)
        self.draft = draft

    def judge(self) -> CheckResult:
        derived, notes = list[str](), list[str]()
        for name, head in zip(self.expressions, self.exact, strict=False):
            for group, value in head.items():
                text = str(value)
                if group == "a" and self.stretched and not value.is_zero:
                    text = f"e*{text}" if text.isalnum() else f"e*({text})"
                key, ending = ("i", " for every other i") if group == "others" else (group, "")
                derived.append(f"k_{key}.{name} = {text}{ending}")
        letters = sorted({expression.factor for expression in self.expressions.values()} - {""})
        if len(letters) > 1:
            notes.append(f"{' and '.join(letters)} are read as one large factor, beta.")
        beta = self.first_usable(5) if len(self.expressions) > 1 else None
        if beta is not None and any(head[0] > 0 for head in self.logits(beta, 5)):
            notes.append(say("samples_set_aside"))
        self.draft = replace(self.draft, derived=tuple(derived), notes=tuple(notes))
        draft = self.decide()
        if not draft.passed:
            shown = draft.counterexample is not None and draft.counterexample.sizes.get("n")
            spoilt = self.stretched and draft.verdict == "refuted" and shown
            return replace(draft, failure=self.failure(0.0)) if spoilt else draft
        needed = self.beta_needed()
        if needed is None:
            return draft.judged("inconclusive", say("no_beta_in_reach"))
        draft = replace(draft, beta=needed)
        if self.problem.noise != "none":
            draft = replace(draft, failure=self.failure(needed.value))
        fault = self.contradiction(needed, draft.failure)
        if fault:
            return draft.judged("inconclusive", fault)
        checked = say("random_keys", least=self.problem.least_n, most=logits.EVERY_N)
        return replace(draft, checked=checked, assumptions=tuple(self.assumptions(draft.failure)))

    def decide(self) -> CheckResult:
        """The verdict that algebra and numbers give, before drawn keys confirm it."""
        if self.proved():
            because = "lead_of_two" if self.named > 1 else "lead_of_one"
            if self.stretched:
                avoided = all(head["a"].is_zero for head in self.exact)
                because = "length_avoided" if avoided else "length_in_limit"
            return self.draft.judged("proved", say(because))
        readings = self.readings()
        n, reading = next(iter(readings.items()))
        if reading[0] is False:
            return self.refuted(n, reading)
        lead = self.largest_lead()
        if lead is not None:
            return self.outnumbered(lead)
        if any(ok is None for ok, _, _ in readings.values()):
            reason = "slow_and_unsettled" if self.exact else "slow_and_inexact"
            return self.draft.judged("inconclusive", say(reason))
        worst, most = max(size for _, size, _ in readings.values()), max(readings)
        sizes = f"n = {min(readings)} to "
        sizes += f"{most:,}" if most < 10**7 else f"10^{math.log10(most):.0f}"
        if not self.exact:
            because = say("true_in_numbers", sizes=sizes)
        elif worst == 0 and not self.stretched:
            because = say("reached_at_each_n", sizes=sizes)
        elif worst == 0:
            because = say("within_tolerance", sizes=sizes)
        else:
            what = "of the samples fail" if self.stretched else "of the weight stays misplaced"
            because = say("within_tolerance_at_worst", sizes=sizes, worst=worst, what=what)
        return self.draft.judged("holds", because)

    def refuted(self, n: int, reading: Reading) -> CheckResult:
        """With what is wrong in the limit, and the smallest example of it."""
        _, size, because = reading
        if math.isinf(size):
            sizes = {"n": n, "d": n}
            return self.draft.refuted(because.removesuffix(".") + ".", because, sizes)
        along = self.exact[0].get("a") if len(self.exact) == 1 else None
        beta = self.first_usable(5)
        heads = [()] if beta is None else self.logits(beta, 5)
        if not self.uses_beta:
            because += say("nothing_grows")
        elif len(heads) > 1 and np.allclose(heads[0], heads, rtol=1e-12):
            because += say("one_head_twice")
        elif self.stretched and along is not None and not along.is_zero:
            because += say("along_the_noise", along=along)
        elif not self.stretched and along and self.trend("a", "b", n).kind in ("up", "down"):
            because += say("one_takes_all", gap=self.gaps[0]["a", "b"])
        for larger in (n, 2 * n, 100 * n):  # the smallest n may need a beta beyond all floats
            example = self.counterexample(larger)
            if example.numbers.get("misplaced", 1.0) > self.eps:
                break
        return self.draft.judged("refuted", because + ".", counterexample=example)

    def outnumbered(self, lead: float) -> CheckResult:
        """A lead that nothing increases is lost among enough other keys: from n = e^lead on."""
        reach = 1 + 10 * SD if self.stretched else 1.0  # longer than k_a is in any sample
        digits = (reach * lead + math.log(self.named)) / math.log(10)
        grows = "" if self.uses_beta else say("nothing_grows")
        because = say("outnumbered", lead=lead, digits=digits, grows=grows)
        sentence = f"with 10^{digits:.5g} keys the others have at least half of the weight."
        return self.draft.refuted(because, sentence, numbers={"lead": lead, "log10_n": digits})

    def counterexample(self, n: int) -> Counterexample:
        """The standard basis at this n, and the first round beta and length e that fail for good;
        without such, those at which the most weight is misplaced."""
        betas = (*FACTORS, *ALL_RUNGS) if self.uses_beta else (1.0, 2.0, 10.0)
        error, worst = -1.0, (math.nan, 1.0)
        for beta, e in itertools.product(betas, LENGTHS if self.stretched else (1.0,)):
            try:
                misplaced = self.misplaced(n, beta, e)
            except ExpressionError:
                continue
            lasts = misplaced > self.eps and not self.repaired(n, beta, e)
            if lasts or misplaced > error:
                error, worst = misplaced, (beta, e)
            if lasts:
                break
        if error < 0:
            return Counterexample({"n": n, "d": n}, {}, f"the formula has no value at n = {n}.")
        numbers = self.numbers(n, *worst)
        at = [f"n = {n}", *(f"{x} = {numbers[x]:g}" for x in ("beta", "e") if x in numbers)]
        clear = error > 1.01 * self.eps
        numbers["misplaced"] = round(error, 6) if clear else error
        amount = f"{error:.4g}" if clear else f"just over {self.eps:g}"
        weights = self.tell([*numbers["weights_by_group"].values()], "{} {:.4g}", "the others")
        words = {"at": ", ".join(at), "told": weights, "amount": amount, "eps": self.eps}
        return Counterexample({"n": n, "d": n}, numbers, say("weights_misplaced", **words))

    def misplaced(self, n: int, beta: float, e: float) -> float:
        """The misplaced share of the weight, where k_a has the length e."""
        return float(self.distance(self.weights_at(n, beta, e)))

    def repaired(self, n: int, beta: float, e: float) -> bool:
        """Is the goal reached at a larger beta?"""
        for factor in (10.0, 1000.0) if self.uses_beta else ():
            with contextlib.suppress(ExpressionError):
                if self.misplaced(n, factor * beta, e) <= self.eps:
                    return True
        return False

    def numbers(self, n: int, beta: float, e: float) -> dict[str, Any]:
        """Weights of one instance, with its keys, queries and logits if they are few and exact."""
        numbers: dict[str, Any] = {"beta": beta} if self.uses_beta or beta != 1 else {}
        if self.stretched:
            numbers["e"] = e
        if n <= SHOWN_N and beta <= FLOATS_BETA:
            with contextlib.suppress(ExpressionError):
                keys = orthonormal(n, n)
                queries = self.queries(keys, beta)
                keys[0] *= e
                result = attend(queries, keys, np.eye(n))
                numbers["keys"] = keys.tolist()
                weights = result.weights.mean(axis=0)
                tables = {"queries": queries, "logits": result.scores, "weights": weights}
                numbers |= {name: np.round(table, 6).tolist() for name, table in tables.items()}
        weights = np.round(self.weights_at(n, beta, e), 6)
        numbers["weights_by_group"] = dict(zip(self.groups, weights.tolist(), strict=True))
        return numbers | {"wanted_by_group": dict(self.problem.target)}

    def queries(self, keys: Floats, beta: float) -> Floats:
        """The queries over these keys (or means), one per row."""
        algebra = Numeric(key_values(self.problem, keys, beta))
        return np.hstack([evaluate(x, algebra) for x in self.expressions.values()]).T

    def by_group(self, weights: Floats) -> Floats:
        """Weights of keys, along the last axis, as weights of groups."""
        named, others = np.split(weights, [self.named], axis=-1)
        return np.concatenate([named, others.sum(axis=-1, keepdims=True)], axis=-1)

    def beta_needed(self) -> BetaNeeded | None:
        """The beta that is needed at several n, and its closed form if there is one."""
        by_n: dict[int, float] = {}
        for n in sorted({self.problem.least_n, *BETA_N}):
            least = self.least_beta(n)
            if least is None:
                return None
            by_n[n] = least
        below = "eps" if self.named == 1 else f"{self.named}*eps"
        level = f"ln((n-{self.named})*(1-eps)/({below}))"
        if not self.uses_beta:
            return BetaNeeded("none: the formula has no large factor", 0.0, REPORTED_N, by_n)
        if self.stretched:
            formula = say("risk_of_the_law", risk=RISK)
        elif not self.exact:
            formula = f"k_a.q - k_i.q >= {level}"
        else:
            gap = self.gaps[0][self.groups[0], "others"]
            key, size = next(iter(gap.top.items()))
            order = dict(key).get("beta", 0)
            if len(gap.top) + len(key) > 2 or order <= 0 or gap.bottom != UNITY:
                formula = f"{gap} >= {level}"  # not one power of beta
            else:
                over = f"/{size if size.denominator == 1 else f'({size})'}" if size != 1 else ""
                formula = f"beta >= {level}{over}"
                if order != 1:
                    formula = f"beta >= ({level}{over})**({1 / Fraction(order)})"
        return BetaNeeded(formula, by_n[REPORTED_N], REPORTED_N, by_n)

    def least_beta(self, n: int) -> float | None:
        """The smallest factor from which on everything is within the tolerance, by bisection."""

        def good(beta: float) -> bool:
            try:
                return self.error(self.logits(beta, n), n) <= self.limit
            except ExpressionError:
                return False

        rungs = [1e-6, 0.01, 0.1, *self.usable(ALL_RUNGS if self.exact else logits.RUNGS, n)]
        if self.stretched:  # the exact failure rate costs two milliseconds: fewer rungs and digits
            few = {10.0**k for k in (*range(-6, 7), 9, 30)}
            rungs = [beta for beta in rungs if beta in few]
        last = next((i for i in reversed(range(len(rungs))) if not good(rungs[i])), None)
        if last is None:
            return 0.0
        if last == len(rungs) - 1:
            return None
        low, high = rungs[last], rungs[last + 1]
        for _ in range(16 if self.stretched else 60):
            middle = math.sqrt(low * high)
            low, high = (low, middle) if good(middle) else (middle, high)
        return high

    def failure(self, needed: float) -> Failure | None:
        """The failure rate at the beta that is needed, or at the first round one from 10 on."""
        n, eps = REPORTED_N, self.eps
        beta = self.first_usable(n) if needed < 10 else needed
        if beta is None:
            return None
        beta = beta if self.uses_beta else 1.0
        heads = self.logits(beta, n)
        size = max(math.hypot(a, b, math.sqrt(n - 2) * other) for a, b, other in heads)  # |q|
        # at this k_a.q - k_b.q the split is off by eps; noise adds 2 alpha |q|^2 to its variance
        level, alpha = math.log((0.5 + eps) / (0.5 - eps)), None
        if 0 < size < math.inf and len(heads) == 1:
            alpha = (level / (-NormalDist().inv_cdf(RISK / 2) * math.sqrt(2) * size)) ** 2
        if self.stretched:
            meaning = f"more than {eps:g} of the weight is misplaced (alpha -> 0)"
            given, aside, in_all = logits.failure_probability(heads, n, eps)
        else:
            meaning = f"a and b are off the even split by more than {eps:g}, at alpha = {ALPHA:g}"
            centre, width = heads[0][0] - heads[0][1], math.sqrt(4 * ALPHA) * size
            tails = ((level - side) / width if width else math.inf for side in (centre, -centre))
            given, aside = 0.5 * sum(map(math.erfc, tails)), 0.0
            in_all = given
        simulated, error = self.simulate(n, beta)
        return Failure(meaning, n, beta, given, aside, in_all, simulated, error, SAMPLES, alpha)

    def simulate(self, n: int, beta: float) -> tuple[float, float]:
        """How often the goal is missed over drawn keys, with its standard error.
        Stretched: too much weight is misplaced, among the samples that are not set aside.
        Isotropic: the split between a and b is uneven."""
        rng = np.random.default_rng([self.draft.seed, 1])
        means = orthonormal(n, n, rng)
        queries = self.queries(means, beta)
        alpha = VANISHING if self.stretched else ALPHA
        keys = means + math.sqrt(alpha) * rng.standard_normal((SAMPLES, n, n))
        kept = np.ones(SAMPLES, dtype=bool)
        if self.stretched:
            e = 1 + SD * rng.standard_normal((SAMPLES, 1))
            keys[:, 0] += (e - 1) * means[0]
            if len(queries) > 1 and (queries @ means[0] > 0).any():
                kept = e[:, 0] >= 0
        weights = self.by_group(attend(queries, keys, keys[..., :1]).weights.mean(axis=-2))
        wrong = self.distance(weights)
        if not self.stretched:
            wrong = np.abs(weights[:, 0] / (weights[:, 0] + weights[:, 1]) - 0.5)
        share, count = float((wrong[kept] > self.eps).mean()), int(kept.sum())
        return share, math.sqrt(max(share * (1 - share), 1 / count) / count)

    def missed(self, keys: Floats, beta: float) -> tuple[bool, Floats]:
        """Whether the goal is missed over these keys or means, and the groups' weights at worst.
        ExpressionError where there is no value, or where rounding swamps the logits."""
        queries = self.queries(keys, beta)
        lengths = _lengths(len(queries) > 1) if self.stretched else np.ones(1)
        drawn = np.repeat(keys[None], len(lengths), axis=0)
        drawn[:, 0] *= lengths[:, None]
        result = attend(queries, drawn, drawn)
        if float(np.abs(result.scores).max()) * np.finfo(np.float64).eps > 1e-5:
            sentence = "the logits are too large for floating point."
            raise ExpressionError(sentence, "", 1, too_large=True)
        weights = self.by_group(result.weights.mean(axis=-2))
        wrong = self.distance(weights)
        share = float(np.mean(wrong > self.eps * (1 + 1e-9) + 1e-12))
        return share > (RISK + 0.02 if self.stretched else 0.0), weights[int(np.argmax(wrong))]

    def contradiction(self, needed: BetaNeeded, failure: Failure | None) -> str:
        """What drawn keys say against the verdict, at every n up to 30 and several beta, if so."""
        if failure is not None and failure.simulated is not None:
            exact, drawn = failure.probability, failure.simulated
            if abs(drawn - exact) > GATE * (failure.standard_error or 0.0):
                return say("rates_disagree", exact=exact, drawn=drawn)
        rng = np.random.default_rng(self.draft.seed)
        for n in range(self.problem.least_n, logits.EVERY_N + 1):
            keys = orthonormal(n, n + n % 3, rng)
            least = needed.by_n.get(n, max(needed.by_n.values()))
            fault = self.contradiction_at(keys, least)
            if fault and n not in needed.by_n:  # this n may need more
                fault = self.contradiction_at(keys, self.least_beta(n) or least)
            if fault:
                return fault
        return ""

    def contradiction_at(self, keys: Floats, least: float) -> str:
        for beta in (factor * least + 1e-9 for factor in CONFIRMED_AT):
            try:
                if self.missed(keys, beta)[0]:
                    return say("fault", what="drawn keys")
            except ExpressionError as problem:
                if problem.too_large:
                    break
                at = f"at n = {len(keys)}, beta = {beta:.4g}"
                return f"{at} the formula has no value: {problem.sentence}"
        return ""

    def assumptions(self, failure: Failure | None) -> Iterator[Assumption]:
        """Which assumptions of the problem the construction needs, by giving them up in turn."""
        noun = "key" if self.problem.noise == "none" else "mean"
        rng = np.random.default_rng([self.draft.seed, 2])
        yield self.search(f"{noun}s of equal norm", unequal_norms, rng)
        yield self.search(f"{noun}s that are orthogonal", oblique_angles, rng)
        if failure is not None and failure.set_aside > 0:
            evidence = say("counting_all", in_all=failure.in_all, beta=failure.beta)
            used = failure.in_all > RISK
            yield Assumption("samples with k_a.q < 0 are set aside", used, evidence)

    def search(self, name: str, variants: Variants, rng: np.random.Generator) -> Assumption:
        """Look for keys without the assumption on which the goal is missed however large beta is.
        Without a find, the assumption is not needed if the logits are the same over all of the
        keys: they are analytic in the keys, so those that agree at random points agree everywhere.
        """
        tried, same = 0, True
        small = self.first_usable(REPORTED_N, least=2.0) or 1.0
        for n, d in SEARCHED:
            straight = orthonormal(n, d, rng)
            expected = straight @ self.queries(straight, small).T
            for what, keys in variants(straight, self.named, rng):
                tried += 1
                where = f"with n = {n} and {what}"
                try:
                    again = keys @ self.queries(keys, small).T
                except ExpressionError:
                    return Assumption(name, True, f"{where}, the formula has no value")
                same = same and bool(np.allclose(again, expected, rtol=1e-8, atol=1e-8))
                weights = self.missed_in_the_limit(keys)
                if weights is not None:
                    shares = self.tell(weights, "{} {:.3g}", "the others")
                    return Assumption(name, True, f"{where}, the weights tend to {shares}")
        if same:
            return Assumption(name, False, f"{tried} sets of keys without it have the same logits")
        return Assumption(name, None, say("no_counterexample", tried=tried))

    def missed_in_the_limit(self, keys: Floats) -> Floats | None:
        """The weights over these keys if they miss the goal and larger beta does not help."""
        errors, weights = [0.0], None
        for beta in (5.0, 10.0, 20.0, 50.0, 200.0, 1e4, 1e6):
            try:
                missed, weights = self.missed(keys, beta)
            except ExpressionError:
                break
            errors.append(float(self.distance(weights)) if missed else 0.0)
        stuck = errors[-1] > 0 and len(errors) > 2 and errors[-1] >= 0.999 * errors[-2]
        return weights if stuck else None


# ---- claims about variances

# as beta grows the weights become steps of the length e, so that these limits are exact
P_NEGATIVE = 0.5 * math.erfc(1.0)  # P(e < 0) for e ~ N(1, 1/2)
SAME_LIMIT = 1e-13  # limits that differ by no more than rounding
LIMITS = {
    "var_one": 0.25,
    "var_c1": P_NEGATIVE * (1 - P_NEGATIVE),
    "var_norm": P_NEGATIVE * (1 - P_NEGATIVE) / 4,
}
# c_2 does not move, so that these hold at every n and beta
SAME = {"var_c2": Poly(), "var_c": Fraction(1, 4) * symbol("var_c1")}
VARIANCE = re.compile(
    r"(?:\b[Tt]he\s+)?(?:\\(?:mathrm|text|operatorname|mathbb)\s*\{\s*)?(?:\b[Vv]ar(?:iance)?\}?"
    r"|\b(?:V|Var)(?=\s*[\[(])\}?|(?:\\sigma|σ)(?:\^?\{?[2²]\}?))\s*(?:of\s+)?(?:the\s+)?[\[(_{]*\s*"
    r"(c_?\{?[12]\}?|c|one|norm\w*)(?![a-zA-Z])\}?[\])}]*"
)
RELATIONS = {
    "<=": r"<=|≤|\\leq?\b|is at most", ">=": r">=|≥|\\geq?\b|is at least",
    "->": r"->|→|\\to\b|\\rightarrow\b|tends to|approaches",
    "~": r"~|≈|\\approx\b|is about",
    "<": r"<<|≪|\\ll\b|<|is (?:smaller|less|lower) than",
    ">": r">>|≫|\\gg\b|>|is (?:larger|greater|bigger|higher) than", "=": r"==|=|equals",
}  # fmt: skip
RELATION = re.compile("|".join(f"(?:{pattern})" for pattern in RELATIONS.values()))
TRUE: dict[str, Callable[[float], bool]] = {  # what a relation says of left - right
    "=": lambda gap: abs(gap) < 1e-12,
    "<=": lambda gap: gap < 1e-12,
    ">=": lambda gap: gap > -1e-12,
    "<": lambda gap: gap < 0,
    ">": lambda gap: gap > 0,
    "->": lambda _: False,
    "~": lambda _: False,
}


def judge_variance(problem: Problem, texts: Sequence[str], draft: CheckResult) -> CheckResult:
    """Every claim of the texts; the first that is not right decides."""
    claims = [part for text in texts for part in re.split(r"[;\n]|,(?!\s*\d)|\band\b", text)]
    results = list[CheckResult]()
    stripped = (decimal_points(claim.strip(" $.\t")) for claim in claims)
    for claim in (link for whole in stripped if whole for link in _links(whole)):
        sign, left, right, read = _read_claim(problem, claim)
        claimed = replace(draft, read_as={"claim": read})
        try:
            sides = [polynomial(side, SAME) for side in (left, right)]
            results.append(_compare(claimed, sign, *sides))
        except NotExactError:
            results.append(claimed.judged("inconclusive", say("variances_only")))
        if not results[-1].passed:
            break
    if not results:
        raise UserError('a claim compares two things, as in "var_c < var_one".')
    read_as = {
        f"claim {i}" if len(results) > 1 else "claim": r.read_as["claim"]
        for i, r in enumerate(results, 1)
    }
    worst = next((r for r in results if r.verdict != "proved"), results[-1])
    derived = tuple(dict.fromkeys(line for result in results for line in result.derived))
    return replace(worst, read_as=read_as, derived=derived, construction=dict(read_as))


def _links(claim: str) -> list[str]:
    """a < b < c as a < b and b < c."""
    signs = list(RELATION.finditer(claim))
    starts = [0, *(sign.end() for sign in signs)]
    ends = [*(sign.start() for sign in signs[1:]), len(claim)]
    return [claim[start:end] for start, end in zip(starts, ends, strict=False)]


def _read_claim(problem: Problem, claim: str) -> tuple[str, Expression, Expression, str]:
    """The relation, both sides, and the claim as it was understood; columns stay where they are."""

    def named(variance: re.Match[str]) -> str:
        which = re.sub(r"[_{}]", "", variance[1])
        name = "var_norm" if which.startswith("norm") else f"var_{which}"
        return name.ljust(len(variance[0]))

    plain = VARIANCE.sub(named, claim.replace("₁", "1").replace("₂", "2"))
    relation = RELATION.search(plain)
    if relation is None:
        sentence = 'a claim has one comparison, as in "var_c < var_one" or "var_one -> 1/4".'
        raise ExpressionError(sentence, claim, 1)
    sign = next(name for name, pattern in RELATIONS.items() if re.fullmatch(pattern, relation[0]))
    shapes = {given.name: given.shape for given in problem.givens}
    start, end = relation.span()
    sides = []
    for text, column in ((plain[:start], 1), (" " * end + plain[end:], end + 1)):
        try:
            sides.append(parse(text, problem.spellings(), problem.refused, shapes))
        except ExpressionError as mistake:
            column = mistake.column if text.strip() else column
            raise ExpressionError(mistake.sentence, claim, column) from None
    return sign, sides[0], sides[1], f"{write(sides[0].tree)} {sign} {write(sides[1].tree)}"


def _compare(draft: CheckResult, sign: str, left: Poly, right: Poly) -> CheckResult:
    gap = left - right
    known = sorted(gap.names & set(LIMITS))
    lines = tuple(f"{x} -> {LIMITS[x]:.6g} as beta grows, for every n" for x in known)
    draft = replace(draft, derived=lines)
    if not gap:
        if sign in ("<", ">"):
            return _claim_fails(draft, sign, left, right, say("sides_equal"))
        return draft.judged("proved", say("sides_equal_why"))
    if left.names | right.names <= set(LIMITS):
        ends, limit = [float(side.at(LIMITS)) for side in (left, right)], float(gap.at(LIMITS))
        because = say("sides_tend", left=ends[0], right=ends[1])
        if SAME_LIMIT < abs(limit) <= 1e-9:
            return draft.judged("inconclusive", say("limits_too_close"))
        if sign == "~" and abs(limit) <= max(0.01 * abs(ends[1]), 1e-9):
            return draft.judged("proved", f"{because}: the same to one in a hundred.")
        if abs(limit) > 1e-9 and not (sign != "=" and TRUE[sign](limit)):
            return _claim_fails(draft, sign, left, right, because)
        if abs(limit) > 1e-9:  # by the laws at every n up to 30: the second check of a proof
            if all(TRUE[sign](_at(gap, n, b)) for n in range(3, 31) for b in (200.0, 1000.0)):
                return draft.judged("proved", f"{because}; so it is true from some beta on.")
            return draft.judged("inconclusive", say("fault", what="the laws"))
        if sign == "->":
            return draft.judged("proved", f"{because}.")
    elif sign in ("->", "~"):
        return draft.judged("inconclusive", say("limit_of_a_variance"))
    tried = itertools.product((3, 4, 10, 100), (5.0, 10.0, 20.0, 50.0, 200.0))
    if all(TRUE[sign](_at(gap, n, beta)) for n, beta in tried):
        return draft.judged("holds", say("true_where_tried"))
    why = "same_limit" if sign == "=" else "fails_somewhere"
    return _claim_fails(draft, sign, left, right, say(why))


def variances(n: int, beta: float) -> dict[str, float]:
    """The variances of the weight on a, by the exact laws."""
    from wherefrom.attention.laws import law_of_logits, normalised_law

    both, one, noise = (np.zeros(n) for _ in range(3))
    both[:2], one[0], noise[0] = beta, beta, beta * math.sqrt(0.5)
    of_head = law_of_logits(one, noise, 0).sd ** 2
    return {
        "var_one": law_of_logits(both, noise, 0).sd ** 2,
        "var_c1": of_head,
        "var_c2": 0.0,
        "var_c": of_head / 4,
        "var_norm": normalised_law(n, beta)[1] ** 2,
    }


def _at(side: Poly, n: int, beta: float) -> float:
    return float(side.at({**variances(n, beta), "n": n, "beta": beta}))


def _claim_fails(draft: CheckResult, sign: str, left: Poly, right: Poly, why: str) -> CheckResult:
    """Refuted, with the first n and beta that show it."""
    for n, beta in itertools.product((3, 4, 10, 100), (10.0, 20.0, 50.0, 200.0, 5.0, 1000.0)):
        if not TRUE[sign](_at(left - right, n, beta)):
            exact = {name: round(x, 6) for name, x in variances(n, beta).items()}
            numbers = {"beta": beta, **exact}
            sides = " and ".join(f"{_at(side, n, beta):.6g}" for side in (left, right))
            sentence = say("sides_shown", n=n, beta=beta, sides=sides)
            return draft.refuted(why + ".", sentence, {"n": n}, numbers)
    return draft.judged("inconclusive", say("sides_not_shown", why=why))
