"""Queries over keys that are known or blurred a little: copy, average and noisy-average.

First claims about the exact logits for every n; then, at single n, the exact limit of the weights.
A counterexample is computed with the attention equation.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any

import mpmath
import numpy as np

from wherefrom.attention.equation import attend, softmax_over_keys
from wherefrom.checker.assumptions import Variants, oblique_angles, unequal_norms
from wherefrom.checker.asymptotics import asymptotics, has_growing_root
from wherefrom.checker.betas import ROUND_BETAS, ROUNDING, least_beta, showing_beta
from wherefrom.checker.field import (
    FLAT,
    GROWING,
    ONE,
    Field,
    NotExactError,
    Number,
    Poly,
    StepBudget,
    TooLargeError,
    by_order,
    names,
)
from wherefrom.checker.goals import Claim, Decision, certificate, decide, limit_weights
from wherefrom.checker.grammar import ExpressionError
from wherefrom.checker.reading import Construction
from wherefrom.checker.results import Assumption, BetaNeeded, CheckResult, Counterexample, Failure
from wherefrom.checker.spaces import (
    Exact,
    Floats,
    Matrix,
    NoValueError,
    evaluate,
    key_blocks,
    key_values,
    orthonormal,
)

SMALL_N = 10  # so many n are tried from the least one on
LARGER_N = (15, 20, 30, 50, 100, 1000, 10**4, 10**6, 10**9, 10**12, 10**20, 10**50, 10**100)
MAX_DIGITS = 1000
NOT_EXACT = "exact algebra does not reach this formula, and no n that was tried refutes it."
OUTSIDE_ITS_DOMAIN = "it divides by zero, or a root or a logarithm has no value."
REPORTED_N = 10
BETA_N = (3, REPORTED_N, 25, 100, 1000)  # where the beta that is needed is reported
SHOWN_N = 12  # keys that are written out one by one
MAX_LEAD = 600  # e to this is still a float
SHOWN_ERROR = 1e-12  # a misplaced share below it is rounding
SEARCHED = ((3, 5), (10, 12))  # n and d at which a counterexample to an assumption is searched
SEARCHED_BETAS = (5.0, 20.0, 200.0, 1e4, 1e6)
SAMPLED = ((4, 1.3), (7, 2.1), (9, 1.7))  # n and beta at which exact logits are measured


@dataclass(frozen=True)
class Reading:
    """What happens at one n as beta grows: is the goal reached (None: unknown), the limit of what
    must be small, and a sentence about it."""

    reached: bool | None
    error: float
    sentence: str


def judge(construction: Construction, draft: CheckResult, budget: StepBudget) -> CheckResult:
    return Queries(construction, draft, budget).judge()


class Queries:
    """The queries of one construction as logits of groups of keys."""

    lengths: tuple[float, ...] = (1.0,)  # of k_a in a counterexample
    allowed_misses = 0.0  # the share of samples that may miss the tolerance
    what_fails = "the weight is misplaced"
    ladder: tuple[tuple[int, int], int, int] = ((-3, 16), 12, 50)  # see least_beta

    def __init__(self, construction: Construction, draft: CheckResult, budget: StepBudget) -> None:
        self.expressions = construction.expressions
        self.problem, self.draft, self.budget = construction.problem, draft, budget
        self.groups = tuple(self.problem.target)
        self.named = len(self.groups) - 1
        self.noisy = self.problem.noise != "none"
        self.eps = draft.tolerance
        self.uses_beta = any("beta" in e.names for e in self.expressions.values())
        self.exact_at: dict[int, list[dict[str, Number]] | None] = {}

    # ---- logits, exactly and in floats

    def exact_heads(self, field: Field) -> list[dict[str, Number]]:
        """For each query the exact logit of each group."""
        count = field.n - field.number(self.named)
        root = field.root(count)
        lone = field.at_n == self.named + 1
        values = key_blocks(self.groups, self.noisy, field.beta, field.n, root, lone)
        heads = []
        for expression in self.expressions.values():
            q = evaluate(expression, Exact(field), values).ravel().tolist()
            logits = [*q[: self.named], field.quotient(*_over_root(field, q[self.named], root))]
            heads.append(dict(zip(self.groups, logits, strict=True)))
        return heads

    def exact_heads_at(self, n: int) -> list[dict[str, Number]] | None:
        """The same at one n; None where there is no exact form. What is divided by or is under a
        root is looked at here: an exact number does not tell that it has no value."""
        if n not in self.exact_at:
            field = Field(self.budget, n, n)
            try:
                heads = self.exact_heads(field)
                obliged = decide(field, [])
                if obliged.is_refuted:
                    first = next(iter(self.expressions.values()))
                    raise NoValueError(OUTSIDE_ITS_DOMAIN, first.source, 1)
                self.exact_at[n] = heads if obliged.is_proved else None
            except (NotExactError, TooLargeError):
                self._keep_budget()
                self.exact_at[n] = None
        return self.exact_at[n]

    def _keep_budget(self) -> None:
        """Go on where one number was too large, but not where the budget is spent."""
        if self.budget.left < 0:
            raise TooLargeError

    def gaps_at(self, n: int, beta: float | int, e: float = 1.0) -> Matrix:
        """For each head the logit of each group less the largest, as floats; differences are taken
        exactly, since logits may be alike to any number of digits."""
        heads = self.exact_heads_at(n)
        if heads is None:
            raise NotExactError
        rows = []
        for head in heads:
            first = head[self.groups[0]] * head[self.groups[0]].field.number(Fraction(e))
            gaps = [value_at(head[g] - first, n, beta) for g in self.groups[1:]]
            top = max([0, *gaps])
            rows.append([float(max(x - top, -1e300)) for x in (mpmath.mpf(0), *gaps)])
        return np.array(rows)

    def weights_at(self, n: int, beta: float | int, e: float = 1.0) -> Matrix:
        """The weight of each group, averaged over the heads, by the attention equation."""
        return self.weights_of_gaps(self.gaps_at(n, beta, e), n)

    def weights_of_gaps(self, gaps: Matrix, n: int) -> Matrix:
        counts = np.array([0.0] * self.named + [math.log(n - self.named)])
        return np.asarray(softmax_over_keys(gaps + counts).mean(axis=0))

    def misplaced(self, weights: Matrix) -> float:
        """Half the sum of |weight - wanted| over the groups."""
        return float(0.5 * np.abs(weights - [*self.problem.target.values()]).sum())

    def queries(self, keys: Matrix, beta: float, floats: Floats | None = None) -> Matrix:
        """The queries over these keys (or means), one a row, in floats."""
        values = key_values(self.groups, self.noisy, keys, beta)
        arithmetic = floats or Floats(self.budget)
        return np.hstack([evaluate(x, arithmetic, values) for x in self.expressions.values()]).T

    # ---- the verdict

    def judge(self) -> CheckResult:
        decision = None
        with contextlib.suppress(NotExactError, TooLargeError, ExpressionError):
            decision = self.claims()
        self._keep_budget()
        if decision is not None and decision.is_proved:
            return self.proved(decision)
        critical = set[int]()
        if decision is not None:
            critical = decision.turning_points()
            for claim in decision.claims:
                growing = claim.number.names & set(GROWING)
                critical |= near_zeros(claim.number, everywhere=not growing)
        return self.at_single_n(critical, is_exact=decision is not None)

    def claims(self) -> Decision:
        """What must be true for every n, of the exact logits."""
        field = Field(self.budget, self.problem.least_n)
        heads = self.exact_heads(field)
        self.draft = replace(self.draft, derived=tuple(self.derived(heads)))
        return self.decide(field, heads)

    def decide(self, field: Field, heads: Sequence[dict[str, Number]]) -> Decision:
        (head,) = heads
        first = self.groups[0]
        claims = [Claim(head[first] - head["others"], "grows", f"{first} - others")]
        for group in self.groups[1:-1]:
            claims.append(Claim(head[first] - head[group], "vanishes", f"{first} - {group}"))
        return decide(field, claims)

    def derived(self, heads: Sequence[dict[str, Number]]) -> Iterator[str]:
        for name, head in zip(self.expressions, heads, strict=True):
            for group, value in head.items():
                key, ending = ("i", " for every other i") if group == "others" else (group, "")
                yield f"k_{key}.{name} = {self.describe_logit(group, value)}{ending}"

    def describe_logit(self, group: str, logit: Number) -> str:
        return str(logit)

    def samples(self) -> Iterator[dict[str, Any]]:
        """Logits over drawn keys, in floats: what the exact ones must agree with."""
        rng = np.random.default_rng(self.draft.seed)
        for n, beta in SAMPLED:
            keys, floats = orthonormal(n, n + 2, rng), Floats(self.budget)
            try:
                logits = keys @ self.queries(keys, beta, floats).T
            except (TooLargeError, NoValueError):
                continue
            sample: dict[str, Any] = {"n": n, "beta": beta, "scale": floats.largest}
            for head, column in enumerate(logits.T):
                by_group = dict(zip(self.groups, [*column[: self.named], column[-1]], strict=True))
                for g in self.groups:
                    sample[f"{g} of {head}"] = float(by_group[g])
                    for h in self.groups:
                        sample[f"{g} - {h}"] = float(by_group[g] - by_group[h])
            yield sample

    def proved(self, decision: Decision) -> CheckResult:
        proof = certificate(decision, list(self.samples()))
        result = self.draft.proved(self.reason(decision), proof)
        return self.with_figures(result) if result.verdict == "proved" else result

    def reason(self, decision: Decision) -> str:
        """Why a proved construction is right."""
        if self.named == 1:
            lead = "the lead of k_j.q over every other k_i.q grows with beta, without bound."
        else:
            lead = "k_a.q and k_b.q agree, and their lead over every other k_i.q grows with beta."
        return f"for every n: {lead}"

    def with_figures(self, result: CheckResult) -> CheckResult:
        """What passed, with the beta it needs, its failure rate and its assumptions."""
        try:
            needed = self.beta_needed()
        except TooLargeError:
            needed = None
        if needed is None:
            return replace(
                result, notes=(*result.notes, "the beta that is needed is beyond what is computed.")
            )
        failure = self.failure(needed.value)
        result = replace(result, beta=needed, failure=failure)
        return replace(result, assumptions=tuple(self.assumptions(failure)))

    # ---- single n

    def at_single_n(self, critical: set[int], *, is_exact: bool) -> CheckResult:
        """Decide at the n worth trying, in increasing order; the first that fails refutes."""
        lead = self.constant_lead()
        if lead is not None:
            critical = critical | outnumbered_at(lead, self.named, self.eps)
        least = self.problem.least_n
        tried = {*range(least, least + SMALL_N), *LARGER_N, *critical}
        readings: dict[int, Reading] = {}
        for n in sorted(x for x in tried if x >= least):
            reading = self.reading_at(n)
            if reading.reached is False:
                return self.refuted_at(*self.smallest(max(readings, default=n), n))
            readings[n] = reading
        if lead is not None and lead > math.log(10.0) * 300:
            return self.outnumbered(lead)
        unknown = [n for n, reading in readings.items() if reading.reached is None]
        if unknown:
            why = readings[unknown[0]].sentence or "no limit was found"
            because = f"at n = {unknown[0]} {why}; nothing decides whether the goal is reached."
            return self.draft.inconclusive(because)
        if not is_exact:
            return self.draft.inconclusive(NOT_EXACT)
        return self.with_figures(self.draft.holds(self.list_of_trials(readings)))

    def list_of_trials(self, readings: dict[int, Reading]) -> str:
        sizes = ", ".join(_short(n) for n in readings)
        worst = max(reading.error for reading in readings.values())
        betas = "in the limit of large beta" if self.uses_beta else "without a large factor"
        text = f"the goal is reached {betas} at n = {sizes}"
        if worst > SHOWN_ERROR:
            text += "; within this tolerance but not within every one: "
            text += f"{worst:.3g} of {self.what_fails}"
        return text + ". That is no proof for any other n."

    def reading_at(self, n: int) -> Reading:
        try:
            heads = self.exact_heads_at(n)
            if heads is None:
                return Reading(None, math.nan, "the formula has no exact form")
            return self.exact_reading(heads, n)
        except NoValueError as problem:
            return Reading(
                False, math.inf, f"at n = {n} the formula has no value: {problem.sentence}"
            )
        except TooLargeError:
            self._keep_budget()
            return Reading(None, math.nan, "the numbers become too large to compute with")

    def exact_reading(self, heads: list[dict[str, Number]], n: int) -> Reading:
        """The limit of the weights by the exact orders of the gaps."""
        (head,) = heads
        counts = [1] * self.named + [n - self.named]
        weights = limit_weights([head[g] for g in self.groups], n, counts)
        if weights is None:
            return Reading(None, math.nan, "the sign of a number is not decided")
        error = self.misplaced(weights)
        return Reading(error <= self.eps * (1 + ROUNDING), error, self.tends(weights, n))

    def tends(self, weights: Matrix, n: int) -> str:
        verb = "tend to" if self.uses_beta else "are"
        shares = self.tell(weights, "{}: {:.3g}", "all others together")
        return f"at n = {_short(n)} the weights {verb} {shares}"

    def tell(self, weights: Matrix | list[float], form: str, others: str) -> str:
        """The weight of each group in words."""
        labels = (*self.groups[:-1], others)
        return ", ".join(form.format(name, w) for name, w in zip(labels, weights, strict=True))

    def smallest(self, good: int, bad: int) -> tuple[int, Reading]:
        """The smallest n between a good one and a bad one at which the goal is missed."""
        reading = self.reading_at(bad)
        while bad - good > 1:
            middle = (good + bad) // 2
            found = self.reading_at(middle)
            if found.reached is False:
                bad, reading = middle, found
            else:
                good = middle
        return bad, reading

    def constant_lead(self) -> float | None:
        """How far the named logits are ahead of the others, if neither n nor beta changes it."""
        if any(e.names & {"beta", "n"} for e in self.expressions.values()):
            return None
        leads = []
        for n in (10, 1000):
            try:
                gaps = self.gaps_at(n, 1)
            except (ExpressionError, TooLargeError, NotExactError):
                return None
            leads.append(float((gaps[:, :-1].max(axis=1) - gaps[:, -1]).max()))
        return leads[0] if math.isclose(*leads, rel_tol=1e-9) and leads[0] > 0 else None

    # ---- refutations

    def refuted_at(self, n: int, reading: Reading) -> CheckResult:
        """With what is wrong in the limit, and the first round beta and length that show it."""
        if math.isinf(reading.error):
            return self.draft.refuted(
                reading.sentence.removesuffix(".") + ".", reading.sentence, {"n": n, "d": n}
            )
        because = reading.sentence + self.hint(n)
        example = self.counterexample(n)
        if example is None:
            return self.draft.inconclusive(f"{because}; but no beta that was tried shows it.")
        return replace(self.draft, verdict="refuted", because=because + ".", counterexample=example)

    def hint(self, n: int) -> str:
        if not self.uses_beta:
            return "; nothing in the formula grows with beta"
        heads = self.exact_heads_at(n)
        return self.exact_hint(heads) if heads is not None else ""

    def exact_hint(self, heads: list[dict[str, Number]]) -> str:
        """What the exact logits tell about a query that is wrong."""
        if self.named == 2:
            gap = heads[0]["a"] - heads[0]["b"]
            (piece,) = asymptotics(gap)
            if piece.sign and piece.order > FLAT:
                return f"; k_a.q - k_b.q = {gap} grows with beta, so one of the two takes all"
        return ""

    def counterexample(self, n: int) -> Counterexample | None:
        """The first round beta (and length of k_a) at which the attention equation misses the goal
        and a larger beta does not repair it."""
        betas = ROUND_BETAS if self.uses_beta else (1.0,)
        for beta, e in itertools.product(betas, self.lengths):
            error_at = partial(self.misplaced_at, n, e)
            found = showing_beta(error_at, self.eps, [beta])
            if found is not None:
                return self.example_at(n, beta, e, self.weights_at(n, beta, e), found[1])
        return None

    def misplaced_at(self, n: int, e: float, beta: float) -> float:
        return self.misplaced(self.weights_at(n, beta, e))

    def example_at(
        self, n: int, beta: float, e: float, weights: Matrix, error: float
    ) -> Counterexample:
        numbers: dict[str, Any] = {"beta": beta} if self.uses_beta else {}
        if len(self.lengths) > 1:
            numbers["e"] = e
        if n <= SHOWN_N and beta <= 1e12:
            with contextlib.suppress(NoValueError, TooLargeError):
                keys = orthonormal(n, n)
                queries = self.queries(keys, beta)
                keys[0] *= e
                result = attend(queries, keys, np.eye(n))
                tables = {"keys": keys, "queries": queries, "logits": result.scores}
                tables["weights"] = result.weights.mean(axis=0)
                numbers |= {name: np.round(table, 6).tolist() for name, table in tables.items()}
        by_group = np.round(weights, 6).tolist()
        numbers["weights_by_group"] = dict(zip(self.groups, by_group, strict=True))
        numbers["wanted_by_group"] = dict(self.problem.target)
        numbers["misplaced"] = round(error, 6) if error > 1.01 * self.eps else error
        at = [f"n = {_short(n)}", *(f"{x} = {numbers[x]:g}" for x in ("beta", "e") if x in numbers)]
        amount = f"{error:.4g}" if error > 1.01 * self.eps else f"just over {self.eps:g}"
        sentence = (
            f"with {', '.join(at)} the weights are "
            f"{self.tell(by_group, '{} {:.4g}', 'the others')}: "
            f"{amount} of the weight is misplaced, and {self.eps:g} is allowed."
        )
        return Counterexample({"n": n, "d": n}, numbers, sentence)

    def outnumbered(self, lead: float) -> CheckResult:
        """A lead that nothing increases is lost among enough other keys: from n = e^lead on."""
        reach = max(self.lengths) ** 2  # longer than k_a is in any sample
        log_n = reach * lead + math.log(self.named)
        digits = log_n / math.log(10)
        share = softmax_over_keys(np.array([math.log(self.named) + reach * lead, log_n]))[1]
        because = (
            f"the lead over the other keys' logits is {lead:.6g} at every n and beta, so these "
            f"keys together have more weight from n = 10^{digits:.5g} on; nothing in the formula "
            "grows with beta."
        )
        sentence = f"with 10^{digits:.5g} keys the others have at least {share:.2g} of the weight."
        return self.draft.refuted(because, sentence, numbers={"lead": lead, "log10_n": digits})

    # ---- the beta that is needed

    def beta_needed(self) -> BetaNeeded | None:
        """The beta that is needed at several n, and its closed form if there is one."""
        by_n: dict[int, float] = {}
        for n in sorted({self.problem.least_n, *BETA_N}):
            least = self.least_beta(n)
            if least is None:
                return None
            by_n[n] = least
        if not self.uses_beta:
            return BetaNeeded("none: the formula has no large factor", 0.0, REPORTED_N, by_n)
        return BetaNeeded(self.beta_formula(), by_n[REPORTED_N], REPORTED_N, by_n)

    def beta_formula(self) -> str:
        below = "eps" if self.named == 1 else f"{self.named}*eps"
        level = f"ln((n-{self.named})*(1-eps)/({below}))"
        try:
            field = Field(self.budget, self.problem.least_n)
            (head,) = self.exact_heads(field)
        except (NotExactError, TooLargeError, ExpressionError):
            return f"k_a.q - k_i.q >= {level}"
        first = self.groups[0]
        if any(not (head[first] - head[g]).is_zero for g in self.groups[1:-1]):
            return "the misplaced share is at most eps, from this beta on"
        gap = head[first] - head["others"]
        terms = list(gap.top.items())
        if len(terms) == 1 and gap.bottom == ONE and {s for s, _ in terms[0][0]} == {"beta"}:
            (((_, order),), size) = terms[0]
            over = f"/{size if size.denominator == 1 else f'({size})'}" if size != 1 else ""
            if order == 1:
                return f"beta >= {level}{over}"
            return f"beta >= ({level}{over})**({1 / Fraction(order)})"
        return f"{gap} >= {level}"

    def least_beta(self, n: int) -> float | None:
        """The smallest factor from which on everything is within the tolerance."""
        if not self.uses_beta:
            return 0.0
        heads = self.exact_heads_at(n)
        return None if heads is None else least_beta(self.goodness(heads, n), *self.ladder)

    def goodness(self, heads: list[dict[str, Number]], n: int) -> Callable[[float], bool]:
        """Is the goal reached at this beta?"""
        (head,) = heads
        gaps = [beta_function(head[g] - head[self.groups[0]], n) for g in self.groups]

        def good(beta: float) -> bool:
            values = np.array([gap(beta) for gap in gaps])
            if np.isnan(values).any():
                return False
            return self.misplaced(self.weights_of_gaps(values[None], n)) <= self.eps * (1 + 1e-12)

        return good

    # ---- the assumptions

    def failure(self, needed: float) -> Failure | None:
        """How often noise spoils the result, where there is a law of it."""
        return None

    def by_group(self, weights: Matrix) -> Matrix:
        """The weights of the named keys, and of all others together."""
        named, others = np.split(weights, [self.named], axis=-1)
        return np.concatenate([named, others.sum(axis=-1, keepdims=True)], axis=-1)

    def assumptions(self, failed: Failure | None) -> Iterator[Assumption]:
        """Which assumptions of the problem the construction needs, by giving them up in turn."""
        noun = "mean" if self.noisy else "key"
        rng = np.random.default_rng([self.draft.seed, 2])
        yield self.search_assumption(f"{noun}s of equal norm", unequal_norms, rng)
        yield self.search_assumption(f"{noun}s that are orthogonal", oblique_angles, rng)

    def search_assumption(
        self, name: str, variants: Variants, rng: np.random.Generator
    ) -> Assumption:
        """Look for keys without the assumption on which the goal is missed however large beta is.
        Without a find, the assumption is not needed if the logits are the same over all of the
        keys: they are analytic in the keys, and agree everywhere if at random points."""
        tried, same = 0, True
        for n, d in SEARCHED:
            straight = orthonormal(n, d, rng)
            try:
                expected = straight @ self.queries(straight, 2.0).T
            except (NoValueError, TooLargeError):
                return Assumption(name, None, "the formula is too large for floating point")
            for what, keys in variants(straight, self.named, rng):
                tried += 1
                where = f"with n = {n} and {what}"
                try:
                    again = keys @ self.queries(keys, 2.0).T
                except NoValueError:
                    return Assumption(name, True, f"{where}, the formula has no value")
                except TooLargeError:
                    continue
                same = same and bool(np.allclose(again, expected, rtol=1e-8, atol=1e-8))
                weights = self.missed_in_the_limit(keys)
                if weights is not None:
                    shares = self.tell(weights, "{} {:.3g}", "the others")
                    return Assumption(name, True, f"{where}, the weights tend to {shares}")
        if same:
            return Assumption(name, False, f"{tried} sets of keys without it have the same logits")
        return Assumption(name, None, f"no counterexample in {tried} sets, some chosen to break it")

    def missed_in_the_limit(self, keys: Matrix) -> Matrix | None:
        """The weights over these keys if they miss the goal and larger beta does not help."""
        errors, weights = [0.0], None
        lengths = self.typical_lengths()
        for beta in SEARCHED_BETAS:
            try:
                rows = self.queries(keys, beta)
            except (NoValueError, TooLargeError):
                break
            drawn = np.repeat(keys[None], len(lengths), axis=0)
            drawn[:, 0] *= lengths[:, None]
            result = attend(rows, drawn, drawn)
            if float(np.abs(result.scores).max()) > 1e10:  # rounding swamps the differences
                break
            by_group = self.by_group(result.weights.mean(axis=-2))
            wrong = 0.5 * np.abs(by_group - [*self.problem.target.values()]).sum(axis=-1)
            missed = float(np.mean(wrong > self.eps * (1 + ROUNDING) + 1e-12)) > self.allowed_misses
            weights = by_group[int(np.argmax(wrong))]
            errors.append(float(wrong.max()) if missed else 0.0)
        stuck = errors[-1] > 0 and len(errors) > 2 and errors[-1] >= 0.999 * errors[-2]
        return weights if stuck else None

    def typical_lengths(self) -> Matrix:
        """Lengths of k_a with which a search tries the keys."""
        return np.ones(1)


def digits_at(beta: float | int) -> int:
    return int(min(MAX_DIGITS, 60 + 10 * math.log10(max(beta, 10))))


def value_at(x: Number, n: int, beta: float | int) -> Any:
    """With so many digits that terms of very different size do not hide each other."""
    with mpmath.workdps(digits_at(beta)):
        return x.value(mpmath.mp, n=mpmath.mpf(n), beta=mpmath.mpf(beta))


def beta_function(x: Number, n: int) -> Callable[[float], float]:
    """An exact number at one n as a function of beta, in floats (cut off at 1e300); where floats
    do not do, with many digits."""
    parts: list[list[tuple[float, float]]] = []
    in_floats = not (x.names & {"exp(beta)", "log(beta)"} or has_growing_root(x))
    for poly in (x.top, x.bottom) if in_floats else ():
        terms = by_order(poly).items()
        values = [
            (float(p[1]), Number(x.field, rest, ONE).value(mpmath.mp, n=n)) for p, rest in terms
        ]
        parts.append([(power, float(factor)) for power, factor in values])

    def value(beta: float) -> float:
        if not in_floats:
            return float(max(min(value_at(x, n, beta), 1e300), -1e300))
        top, bottom = (sum(factor * beta**power for power, factor in terms) for terms in parts)
        return max(min(top / bottom, 1e300), -1e300) if bottom else math.nan

    return value


def outnumbered_at(lead: float, named: int, eps: float) -> set[int]:
    """The n around which a constant lead is lost among the other keys."""
    if lead > MAX_LEAD:
        return set()
    edge = int(named + named * math.exp(lead) * eps / (1 - eps))
    return {max(named + 1, edge + step) for step in (0, 1, 2)} | {4 * edge + 10}


def _over_root(field: Field, x: Number, root: Number) -> tuple[Poly, Poly]:
    """x / root as polynomials; root is positive for every n, so this is no obligation."""
    return field.times(x.top, root.bottom), field.times(x.bottom, root.top)


def near_zeros(x: Number, everywhere: bool = False) -> set[int]:
    """Whole n near which the leading coefficient of a number with a logarithm of n (or, if
    `everywhere`, of any number) is smallest; what happens there is decided at those n."""
    field = x.field
    logs = [
        name for name in x.names if name in field.atoms and field.atoms[name].kind in ("log", "exp")
    ]
    if not everywhere and not any(names(field.atoms[name].argument) for name in logs):
        return set()
    if x.is_zero or "n" not in str(x):
        return set()
    coefficients = by_order(x.top)
    lead = Number(field, coefficients[max(coefficients)], ONE)
    if has_growing_root(lead):
        return set()

    def size(n: int) -> float:
        with mpmath.workdps(30):
            return float(abs(lead.value(mpmath.mp, n=mpmath.mpf(n))))

    grid = sorted({field.least_n + k for k in range(40)} | {int(1.2**k) for k in range(20, 190)})
    sizes = [size(n) for n in grid]
    found = set[int]()
    for i in range(1, len(grid) - 1):
        before, after = sizes[i - 1], sizes[i + 1]
        if sizes[i] <= min(before, after) and sizes[i] < max(before, after):
            low, high = grid[i - 1], grid[i + 1]
            while high - low > 2:
                third = (high - low) // 3
                if size(low + third) < size(high - third):
                    high -= third
                else:
                    low += third
                if third == 0:
                    break
            found |= set(range(low, high + 1))
    return found


def _short(n: int) -> str:
    """A number of keys, as a power of ten if it is a large one."""
    digits = str(n)
    if n >= 10**6 and digits.strip("0") == "1":
        return f"10^{len(digits) - 1}"
    return digits
