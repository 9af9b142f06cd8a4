"""Averages over noisy keys: k_a = e mu_a with a length e ~ N(1, 1/2), by one query or by two.

First claims for every n and every length e; then, at single n, the share of samples that miss the
goal as beta grows, by the law of e. Of two heads samples with e < 0 are set aside if one of the
heads looks along mu_a. Also the range of e itself, written as low and high.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np

from wherefrom.checker.asymptotics import asymptotics, has_growing_root, sign_on
from wherefrom.checker.field import (
    ONE,
    Field,
    NotExactError,
    Number,
    StepBudget,
    TooLargeError,
    by_order,
)
from wherefrom.checker.goals import Claim, Decision, certificate, decide, is_true
from wherefrom.checker.grammar import ExpressionError
from wherefrom.checker.problems.queries import (
    REPORTED_N,
    Queries,
    Reading,
    beta_function,
    digits_at,
    value_at,
)
from wherefrom.checker.reading import Construction
from wherefrom.checker.results import Assumption, CheckResult, Failure
from wherefrom.checker.spaces import Floats, Matrix, evaluate

SD = math.sqrt(0.5)  # of the length e
RISK = 0.05  # the share of samples that may miss the tolerance
REACH = 9.0  # standard deviations beyond which nothing is counted: 1e-18
LENGTHS = (1.0, 0.5, 1.5, 0.0, 2.0, 0.9, 1.1, 1.01, 0.99, 0.1, -1.0, 3.0, -2.0, 4.0)
MAX_DECADES = 500  # powers of ten of the largest beta that is computed with
SHARE_CHANGE = 1e-3  # of samples, from one far beta to the next, that is still a limit
SMALLEST_FLOAT = 5e-324
# logits of a (at e = 1) and of b, that of each other key less that of b, which may be small beside
# both, and that of each other key
Head = tuple[float, ...]


def judge(construction: Construction, draft: CheckResult, budget: StepBudget) -> CheckResult:
    if "low" in construction.expressions:
        return judge_range(construction, draft, budget)
    return StretchedQueries(construction, draft, budget).judge()


def judge_range(construction: Construction, draft: CheckResult, budget: StepBudget) -> CheckResult:
    """low <= e <= high for the length e of the noisy key: what share of samples is inside?"""
    ends: dict[str, float] = {}
    for name, expression in construction.expressions.items():
        try:
            ends[name] = float(evaluate(expression, Floats(budget), {}).item())
        except (TooLargeError, NotExactError):
            ends[name] = math.inf
        if not -1e6 <= ends[name] <= 1e6:
            raise ExpressionError(f"{name} must lie within a million of 0.", expression.source, 1)
    low, high = ends["low"], ends["high"]
    inside = probability_between(low, high)
    outside = 1 - inside
    failure = Failure("e lies outside the range", 0, 0.0, outside, 0.0, outside)
    derived = (f"P({low:g} <= e <= {high:g}) = {inside:.6f}",)
    draft = replace(draft, derived=derived, failure=failure)
    if abs(outside - draft.tolerance) < 1e-12:
        return draft.inconclusive(
            "the share outside is the tolerance itself, to all digits computed."
        )
    if outside < draft.tolerance:
        share = f"in {inside:.4%} of the samples"
        because = f"the length e ~ N(1, 1/2) lies between {low:g} and {high:g} {share}."
        field = Field(budget)
        room = field.number(Fraction(draft.tolerance) - Fraction(outside))
        return draft.proved(because, certificate(decide(field, [Claim(room, "positive")])))
    samples = (0.0, 2.0, 1.0, -1.0, 3.0, -2.0, 4.0, low - 1, high + 1)
    e = next(e for e in samples if not low <= e <= high)
    because = (
        f"e ~ N(1, 1/2) has the standard deviation 0.707, so {outside:.1%} of the samples lie "
        f"outside {low:g} to {high:g}."
    )
    sentence = f"e = {e:g} is as good a sample as any, and outside the range."
    return draft.refuted(because, sentence, numbers={"e": e})


class StretchedQueries(Queries):
    """One query or two, averaged, over keys of which k_a has a random length."""

    lengths = LENGTHS
    allowed_misses = RISK + 0.02  # of the quantiles of e that a search tries
    what_fails = "the samples fail"
    ladder = ((-3, 9), 2, 16)

    # ---- for every n

    def describe_logit(self, group: str, logit: Number) -> str:
        text = str(logit)
        if group == "a" and not logit.is_zero:
            return f"e*{text}" if text.isalnum() else f"e*({text})"
        return text

    def decide(self, field: Field, heads: Sequence[dict[str, Number]]) -> Decision:
        """The heads' weights on a tend to shares that average 1/2, for every e that is not set
        aside. Where no share is clear, a claim that is false, and numbers whose signs matter."""
        false = Claim(field.number(1), "zero")
        along = [claim for head in heads if _all_true(claim := [Claim(head["a"], "grows")])]
        positive = len(heads) > 1 and bool(along)  # e < 0 is set aside
        claims: list[Claim] = [*along[0]] if positive else []
        total = Fraction(0)
        for index, head in enumerate(heads):
            a, b, others = (head[g] for g in self.groups)
            both = [Claim(a, "vanishes"), Claim(b, "vanishes"), Claim(-others, "grows")]
            options = [
                (Fraction(1, 2), both),
                (Fraction(1), [*_ahead(a, b, positive), *_ahead(a, others, positive)]),
                (Fraction(0), [Claim(b - others, "grows"), *_ahead(-a, -b, positive)]),
            ]
            chosen = next((option for option in options if _all_true(option[1])), None)
            if chosen is None:
                return decide(
                    field, [false, *(Claim(x, "zero") for x in (a, b, others, a - b, b - others))]
                )
            total += chosen[0]
            claims += chosen[1]
            if a.is_zero:
                claims.append(Claim(a, "vanishes", f"a of {index}"))
        if 2 * total != len(heads):
            claims = [false]
        return decide(field, claims)

    def reason(self, decision: Decision) -> str:
        avoided = [claim for claim in decision.claims if claim.name.startswith("a of")]
        if len(avoided) == len(self.expressions):
            return (
                "for every n: no query has a component along mu_a, so the length of k_a does not "
                "matter, and every other key loses its weight as beta grows."
            )
        return (
            "for every n and every length e not set aside, the weights of a, b and all others "
            "tend to 1/2, 1/2 and 0."
        )

    def with_figures(self, result: CheckResult) -> CheckResult:
        result = super().with_figures(result)
        if result.failure is not None and self.sets_samples_aside():
            note = "samples in which k_a points backwards (e < 0, so k_a.q < 0) are set aside."
            result = replace(result, notes=(*result.notes, note))
        return result

    def sets_samples_aside(self) -> bool:
        with contextlib.suppress(ExpressionError, TooLargeError):
            return len(self.expressions) > 1 and any(x[0] > 0 for x in self.heads_at(5, 1e3))
        return False

    # ---- at one n

    def heads_at(self, n: int, beta: float | int) -> list[Head]:
        """For each head the logits of a and b, scaled down if they are beyond floats, the logit of
        another key less that of b, and that logit (both cut off beyond floats)."""
        heads: list[Head] = []
        exact = self.exact_heads_at(n)
        if exact is None:
            raise NotExactError
        for head in exact:
            a, b, others = (value_at(head[g], n, beta) for g in self.groups)
            gap = value_at(head["others"] - head["b"], n, beta)
            with mpmath.workdps(digits_at(beta)):
                most = mpmath.mpf(1e250)
                scale = min(mpmath.mpf(1), most / 1e10 / max(abs(a), abs(b), 1))
                gap, others = (max(min(x, most), -most) for x in (gap, others * scale))
                heads.append(tuple(map(_signed_float, (a * scale, b * scale, gap, others))))
        return heads

    def exact_reading(self, heads: list[dict[str, Number]], n: int) -> Reading:
        """By how often the goal is missed at betas so large that the leading powers decide."""
        betas = self.settled_betas(heads, n)
        if betas is None or n > 10**300:
            return Reading(None, math.nan, "the numbers become too large to compute with")
        shares = [failure_probability(self.heads_at(n, x), n, self.eps)[0] for x in betas]
        sentence = (
            f"at n = {n}, however large beta is, c misses the average by more than {self.eps:g} in "
            f"{shares[-1]:.1%} of the samples"
        )
        if max(shares) <= RISK:
            return Reading(True, shares[-1], sentence)
        settled = abs(shares[2] - shares[1]) <= SHARE_CHANGE
        if min(shares) > RISK and shares[2] > RISK + SHARE_CHANGE and settled:
            return Reading(False, shares[-1], sentence)
        slow = "the weights change too slowly with beta to see their limit"
        return Reading(None, shares[-1], slow)

    def settled_betas(self, heads: Sequence[dict[str, Number]], n: int) -> tuple[int, ...] | None:
        """Betas so large that the leading power decides every exact logit and gap at this n; None
        if that takes more than 1e500."""
        decades = Fraction(9)
        for head in heads:
            a, b, others = (head[g] for g in self.groups)
            for number in (a, b, others - b, a - b, a - others):
                if has_growing_root(number) or "log(beta)" in number.names:
                    return None
                decades = max(decades, decades_until_settled(number, n))
        if decades > MAX_DECADES:
            return None
        return tuple(10 ** math.ceil(decades * k / 2) for k in (2, 3, 4))

    def refuted_at(self, n: int, reading: Reading) -> CheckResult:
        result = super().refuted_at(n, reading)
        if result.verdict != "refuted" or math.isinf(reading.error):
            return result
        return replace(result, failure=self.failure(0.0))

    def exact_hint(self, heads: list[dict[str, Number]]) -> str:
        if len(heads) > 1 and all(heads[0][g] == heads[1][g] for g in self.groups):
            return "; the queries are the same, so this is one head written twice"
        along = heads[0]["a"]
        if len(heads) == 1 and not along.is_zero:
            return f"; q has the component {along} along the noisy direction mu_a"
        return ""

    # ---- figures

    def beta_formula(self) -> str:
        return f"P(more than eps of the weight is misplaced) <= {RISK:g}, by the law of e"

    def goodness(self, heads: list[dict[str, Number]], n: int) -> Callable[[float], bool]:
        tables = []
        for head in heads:
            a, b, others = (head[g] for g in self.groups)
            tables.append([beta_function(x, n) for x in (a, b, others - b, others)])

        def good(beta: float) -> bool:
            rows = [tuple(function(beta) for function in table) for table in tables]
            return failure_probability(rows, n, self.eps)[0] <= RISK

        return good

    def failure(self, needed: float) -> Failure | None:
        """How often the length spoils the result at n = 10 and this beta (10 at least)."""
        n, beta = REPORTED_N, max(needed, 10.0)
        meaning = f"more than {self.eps:g} of the weight is misplaced"
        try:
            rates = failure_probability(self.heads_at(n, beta), n, self.eps)
        except (NotExactError, ExpressionError, TooLargeError):
            return None
        return Failure(meaning, n, beta, *rates)

    def typical_lengths(self) -> Matrix:
        drawn = 1 + SD * np.random.default_rng(3).standard_normal(2000)
        lengths = np.quantile(drawn, np.linspace(0.01, 0.99, 99))
        return np.asarray(lengths[lengths > 0] if len(self.expressions) > 1 else lengths)

    def assumptions(self, failed: Failure | None) -> Iterator[Assumption]:
        yield from super().assumptions(failed)
        if failed is not None and failed.set_aside > 0:
            rate = f"{failed.in_all:.2%} of all samples fail at beta = {failed.beta:.4g}"
            name = "samples with k_a.q < 0 are set aside"
            yield Assumption(name, failed.in_all > RISK, f"counting them, {rate}")


def _signed_float(x: Any) -> float:
    """As a float that is zero only if x is: the sign of a tiny logit of a sets samples aside."""
    if x and not float(x):
        return SMALLEST_FLOAT if x > 0 else -SMALLEST_FLOAT
    return float(x)


def _ahead(a: Number, rival: Number, positive: bool) -> list[Claim]:
    """Claims by which e a - rival grows for every e > 0 (or, if not `positive`, for every e)."""
    if positive and not a.is_zero:
        return [Claim(a, "grows"), Claim(_ratio(rival, a), "not above")]
    if rival.is_zero:
        return [Claim(rival, "grows")]  # which is false: no e a grows for every e
    return [Claim(-rival, "grows"), Claim(_ratio(a, rival), "vanishes")]


def _ratio(x: Number, y: Number) -> Number:
    """x / y without an obligation: the claims beside it say that y grows."""
    field = x.field
    return field.quotient(field.times(x.top, y.bottom), field.times(x.bottom, y.top))


def _all_true(claims: list[Claim]) -> bool:
    return all(is_true(piece, c.must) for c in claims for piece in asymptotics(c.number))


def decades_until_settled(x: Number, n: int) -> Fraction:
    """So many powers of ten beta needs until the leading term of a number exceeds a million times
    the sum of all others, above and below the line."""
    needed = Fraction(0)
    for poly in (x.top, x.bottom):
        terms = []
        for (exponential, order, _), part in by_order(poly).items():
            if sign_on(x.field, part, n, n):
                with mpmath.workdps(60):
                    size = mpmath.log10(abs(Number(x.field, part, ONE).value(mpmath.mp, n=n)))
                terms.append((Fraction(exponential), Fraction(order), Fraction(float(size))))
        if terms:
            top, lead, size = max(terms)
            for exponential, order, other in terms:
                if exponential == top and order < lead:
                    needed = max(needed, (other - size + 8) / (lead - order))
            if lead:  # and the leading term itself is far from 1
                needed = max(needed, (8 - size) / abs(lead))
    return needed


# ---- the law of e


def misplaced(heads: Sequence[Head], e: Matrix, n: int) -> Matrix:
    """Half the sum of |weight - wanted| of the averaged heads, for each e."""
    a, b, gap, others = np.array(heads, dtype=np.float64).T[:, :, None]
    # less the larger of b and the others: the smaller one may be so far below that a is lost
    top, below = np.maximum(b, others), np.minimum(gap, 0.0)
    scores = np.empty((3, len(heads), e.size))
    scores[0], scores[1], scores[2] = a * e - top, below - gap, below + math.log(n - 2)
    weights = np.exp(scores - scores.max(axis=0))
    shares = (weights / weights.sum(axis=0)).mean(axis=1)
    return np.asarray(0.5 * np.abs(shares - [[0.5], [0.5], [0.0]]).sum(axis=0))


def failure_probability(
    heads: Sequence[Head], n: int, tolerance: float
) -> tuple[float, float, float]:
    """P(misplaced > tolerance): among the samples kept, set aside, and in all samples.
    Of several heads samples with e < 0 are set aside if one looks along mu_a, so that k_a.q < 0."""
    intervals = _good_intervals(heads, n, tolerance)
    in_all = max(0.0, 1 - sum(probability_between(low, high) for low, high in intervals))
    if len(heads) == 1 or not any(head[0] > 0 for head in heads):
        return in_all, 0.0, in_all
    aside = probability_between(-math.inf, 0.0)
    kept = sum(probability_between(max(low, 0.0), high) for low, high in intervals)
    return max(0.0, 1 - kept / (1 - aside)), aside, in_all


def probability_between(low: float, high: float) -> float:
    """P(low <= e <= high) for the length e ~ N(1, 1/2), accurate in both tails."""
    u, v = low - 1, high - 1  # in units of sqrt(2) standard deviations
    if u > 0:
        u, v = -v, -u
    return max(0.0, 0.5 * (math.erfc(-v) - math.erfc(-u)))


def _good_intervals(heads: Sequence[Head], n: int, tolerance: float) -> list[tuple[float, float]]:
    """The intervals of e on which the misplaced share is within the tolerance.
    The weight on a turns where a*e meets the other logits; points crowd geometrically around
    every such place, so that a window as narrow as 1e-6 of a logit is not stepped over."""
    low, high = 1 - REACH * SD, 1 + REACH * SD
    near = np.geomspace(1e-6, 1e3, 120)
    near = np.concatenate([-near[::-1], [0.0], near])
    points = [np.linspace(low, high, 501), np.array([0.0, 1.0])]
    for a, b, _, others in heads:
        rest = others + math.log(n - 2)
        for level in (b, rest, float(np.logaddexp(b, rest))):
            if abs(a) >= 1e-300 and abs(level) < 1e300:
                points.append(level / a + near / abs(a))
    grid = np.unique(np.clip(np.concatenate(points), low, high))
    good = misplaced(heads, grid, n) <= tolerance
    flips = np.flatnonzero(good[1:] != good[:-1])
    left, right = grid[flips], grid[flips + 1]
    cuts, rows = np.linspace(0.0, 1.0, 65), np.arange(len(flips))
    for _ in range(8 if len(flips) else 0):  # 64 parts a step: 48 bits
        steps = left[:, None] + (right - left)[:, None] * cuts
        state = (misplaced(heads, steps.ravel(), n) <= tolerance).reshape(steps.shape)
        state[:, -1] = ~good[flips]
        first = np.argmax(state != good[flips][:, None], axis=1)
        left, right = steps[rows, np.maximum(first - 1, 0)], steps[rows, first]
    ends = [-math.inf] * int(good[0]) + [*(left + right) / 2] + [math.inf] * int(good[-1])
    return list(zip(ends[::2], ends[1::2], strict=True))
