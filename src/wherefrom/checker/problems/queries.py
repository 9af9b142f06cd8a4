"""Queries over keys: copy, average, noisy-average, and with a key of varying length.

First claims about the exact logits for every n; then, at single n, the exact limit of large beta.
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
from statistics import NormalDist
from typing import Any

import mpmath
import numpy as np

from wherefrom.attention.equation import attend, softmax_over_keys
from wherefrom.checker.assumptions import search_assumptions
from wherefrom.checker.asymptotics import asymptotics, follows, has_growing_root
from wherefrom.checker.betas import ROUND_BETAS, ROUNDING, least_beta, showing_beta
from wherefrom.checker.field import (
    FLAT,
    ONE,
    Field,
    NotExactError,
    Number,
    StepBudget,
    TooLargeError,
    UndefinedError,
    by_order,
)
from wherefrom.checker.goals import (
    Claim,
    Decision,
    certificate,
    decide,
    limit_weights,
    value_at,
    weights_at,
)
from wherefrom.checker.grammar import ExpressionError
from wherefrom.checker.problems.stretched import (
    LENGTHS,
    RISK,
    SD,
    Head,
    failure_probability,
    head_of,
    judge_range,
    length_claims,
    limit_head,
)
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
REPORTED_N = 10
BETA_N = (3, REPORTED_N, 25, 100, 1000)  # where the beta that is needed is reported
SHOWN_N = 12  # keys that are written out one by one
MAX_LEAD = 600  # e to this is still a float
SHOWN_ERROR = 1e-12  # a misplaced share below it is rounding
SEARCHED = ((3, 5), (10, 12))  # n and d at which a counterexample to an assumption is searched
SEARCHED_BETAS = (5.0, 20.0, 200.0, 1e4, 1e6)
MAX_SCORE = 1e10  # of a logit in floats; rounding swamps differences of larger ones
SAMPLED = ((4, 1.3), (7, 2.1), (9, 1.7))  # n and beta at which exact logits are measured


@dataclass(frozen=True)
class Reading:
    """What happens at one n as beta grows: is the goal reached (None: unknown), the limit of what
    must be small, and a sentence about it."""

    reached: bool | None
    error: float
    sentence: str


def judge(construction: Construction, draft: CheckResult, budget: StepBudget) -> CheckResult:
    if "low" in construction.expressions:
        return judge_range(construction, draft, budget)
    return Queries(construction, draft, budget).judge()


class Queries:
    """The queries of one construction as logits of groups of keys."""

    def __init__(self, construction: Construction, draft: CheckResult, budget: StepBudget) -> None:
        self.expressions = construction.expressions
        self.problem, self.draft, self.budget = construction.problem, draft, budget
        self.groups = tuple(self.problem.target)
        self.wanted = [*self.problem.target.values()]
        self.named = len(self.groups) - 1
        self.noisy = self.problem.noise != "none"
        self.stretched = self.problem.noise == "stretched"
        self.lengths = LENGTHS if self.stretched else (1.0,)
        self.eps = draft.tolerance
        self.uses_beta = any("beta" in e.names for e in self.expressions.values())
        self.exact_at: dict[int, list[dict[str, Number]]] = {}

    # ---- logits, exactly and in floats

    def exact_heads(self, field: Field) -> list[dict[str, Number]]:
        """For each query the exact logit of each group."""
        root = field.root(field.n - field.number(self.named))
        lone = field.at_n == self.named + 1
        values = key_blocks(self.groups, self.noisy, field.beta, field.n, root, lone)
        heads = []
        for expression in self.expressions.values():
            q = evaluate(expression, Exact(field), values).ravel().tolist()
            # the root is positive for every n, so to divide by it is no obligation
            top, bottom = q[self.named].top, q[self.named].bottom
            times = field.times
            others = field.quotient(times(top, root.bottom), times(bottom, root.top))
            heads.append(dict(zip(self.groups, [*q[: self.named], others], strict=True)))
        return heads

    def exact_heads_at(self, n: int) -> list[dict[str, Number]]:
        """The same at one n; NotExactError where there is no exact form. What is divided by or is
        under a root is looked at here: an exact number does not tell that it has no value."""
        if n not in self.exact_at:
            field = Field(self.budget, n, n)
            heads = self.exact_heads(field)
            obliged = decide(field, [])
            if obliged.is_refuted:
                source = next(iter(self.expressions.values())).source
                why = "this divides by zero, or a root or a logarithm has no value."
                raise NoValueError(why, source, 1)
            if not obliged.is_proved:
                raise NotExactError
            self.exact_at[n] = heads
        return self.exact_at[n]

    def counts(self, n: int) -> list[int]:
        """How many keys each group has."""
        return [1] * self.named + [n - self.named]

    def weights(self, n: int, e: float, beta: float) -> Matrix:
        """The weight of each group, averaged over the heads, for a length e of the first key."""
        rows = []
        for head in self.exact_heads_at(n):
            first, *rest = head.values()
            logits = [first * first.field.number(Fraction(e)), *rest]
            rows.append(weights_at(logits, n, beta, self.counts(n)))
        return np.asarray(np.mean(rows, axis=0))

    def misplaced(self, weights: Matrix) -> float:
        """Half the sum of |weight - wanted| over the groups."""
        return float(0.5 * np.abs(weights - self.wanted).sum())

    def misplaced_at(self, n: int, e: float, beta: float) -> float:
        """UndefinedError where the formula has no value at this beta, as sqrt(beta - 33) at 10."""
        for x, need in self.exact_heads_at(n)[0]["others"].field.obligations:
            if not follows(need, FLAT, int(mpmath.sign(value_at(x, n, beta)))):
                raise UndefinedError
        return self.misplaced(self.weights(n, e, beta))

    def float_heads(self, n: int, beta: float) -> list[Head]:
        """For the law of the length e."""
        heads = []
        for head in self.exact_heads_at(n):
            a, b, others = head.values()
            heads.append(head_of(*(value_at(x, n, beta) for x in (a, b, others - b, others))))
        return heads

    def queries(self, keys: Matrix, beta: float, floats: Floats | None = None) -> Matrix:
        """The queries over these keys (or means), one a row, in floats."""
        values = key_values(self.groups, self.noisy, keys, beta)
        arithmetic = floats or Floats(self.budget)
        return np.hstack([evaluate(x, arithmetic, values) for x in self.expressions.values()]).T

    # ---- the verdict

    def judge(self) -> CheckResult:
        decision, half = None, StepBudget(self.budget.left // 2)  # the rest is for single n
        self.budget.left -= half.left
        with contextlib.suppress(NotExactError, TooLargeError, ExpressionError):
            field = Field(half, self.problem.least_n)
            heads = self.exact_heads(field)
            self.draft = replace(self.draft, derived=tuple(self.derived(heads)))
            decision = decide(field, self.claims(field, heads))
        self.budget.left += max(half.left, 0)
        if decision is None or not decision.is_proved:
            return self.at_single_n(decision)
        proof = certificate(decision, list(self.samples()))
        result = self.draft.proved(self.reason(decision), proof)
        return self.with_figures(result) if result.verdict == "proved" else result

    def claims(self, field: Field, heads: Sequence[dict[str, Number]]) -> list[Claim]:
        """What must be true for every n, of the exact logits."""
        if self.stretched:
            return length_claims(field, heads)
        (head,) = heads
        first = self.groups[0]
        claims = [Claim(head[first] - head["others"], "grows", f"{first} - others")]
        for group in self.groups[1:-1]:
            claims.append(Claim(head[first] - head[group], "vanishes", f"{first} - {group}"))
        return claims

    def derived(self, heads: Sequence[dict[str, Number]]) -> Iterator[str]:
        for name, head in zip(self.expressions, heads, strict=True):
            for group, logit in head.items():
                key, ending = ("i", " for every other i") if group == "others" else (group, "")
                text = str(logit)
                if self.stretched and group == "a" and not logit.is_zero:
                    text = f"e*{text}" if text.isalnum() else f"e*({text})"
                yield f"k_{key}.{name} = {text}{ending}"

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

    def reason(self, decision: Decision) -> str:
        """Why a proved construction is right."""
        if not self.stretched:
            lead = "the lead of k_j.q over every other k_i.q grows with beta, without bound."
            if self.named == 2:
                lead = (
                    "k_a.q and k_b.q agree, and their lead over every other k_i.q grows with beta."
                )
            return f"for every n: {lead}"
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

    # ---- single n

    def at_single_n(self, decision: Decision | None) -> CheckResult:
        """Decide at the n worth trying, in increasing order; the first that fails refutes."""
        lead, least = self.constant_lead(), self.problem.least_n
        tried = {*range(least, least + SMALL_N), *LARGER_N, *self.outnumbered_at(lead)}
        if decision is not None:
            tried |= decision.turning_points()
            for claim, pieces in zip(decision.claims, decision.pieces, strict=True):
                bounded = all(piece.order <= FLAT for piece in pieces)
                tried |= near_zeros(claim.number, everywhere=bounded)
        readings: dict[int, Reading] = {}
        for n in sorted(x for x in tried if x >= least):
            reading = self.reading_at(n)
            if reading.reached is False:
                return self.refuted_at(*self.smallest(max(readings, default=n), n, reading))
            readings[n] = reading
        if lead > MAX_LEAD:
            return self.outnumbered(lead)
        unknown = [n for n, reading in readings.items() if reading.reached is None]
        if unknown:
            why = readings[unknown[0]].sentence
            because = f"at n = {unknown[0]} {why}; nothing decides whether the goal is reached."
            return self.draft.inconclusive(because)
        if decision is None:
            return self.draft.inconclusive("exact algebra does not reach this formula for every n.")
        return self.with_figures(self.draft.holds(self.list_of_trials(readings)))

    def list_of_trials(self, readings: dict[int, Reading]) -> str:
        sizes = ", ".join(_short(n) for n in readings)
        worst = max(reading.error for reading in readings.values())
        betas = "in the limit of large beta" if self.uses_beta else "without a large factor"
        text = f"the goal is reached {betas} at n = {sizes}"
        if worst > SHOWN_ERROR:
            what = "the samples fail" if self.stretched else "the weight is misplaced"
            text += f"; within this tolerance but not within every one: {worst:.3g} of {what}"
        return text + ". That is no proof for any other n."

    def reading_at(self, n: int) -> Reading:
        try:
            heads = self.exact_heads_at(n)
            return self.share_of_samples(heads, n) if self.stretched else self.limit(heads[0], n)
        except NoValueError as problem:
            no_value = f"at n = {n} the formula has no value: {problem.sentence}"
            return Reading(False, math.inf, no_value)
        except NotExactError:
            return Reading(None, math.nan, "the formula has no exact form")
        except TooLargeError:
            return Reading(None, math.nan, "the numbers become too large to compute with")

    def limit(self, head: dict[str, Number], n: int) -> Reading:
        """The limit of the weights by the exact orders of the gaps."""
        weights = limit_weights([*head.values()], n, self.counts(n))
        if weights is None:
            return Reading(None, math.nan, "the sign of a number is not decided")
        error = self.misplaced(weights)
        verb = "tend to" if self.uses_beta else "are"
        shares = self.tell(weights, "{}: {:.3g}", "all others together")
        sentence = f"at n = {_short(n)} the weights {verb} {shares}"
        return Reading(error <= self.eps * (1 + ROUNDING), error, sentence)

    def share_of_samples(self, heads: list[dict[str, Number]], n: int) -> Reading:
        """How often the goal is missed in the limit, by the law of the length e."""
        share = failure_probability([limit_head(head, n) for head in heads], n, self.eps)[0]
        sentence = (
            f"at n = {_short(n)}, however large beta is, c misses the average by more than "
            f"{self.eps:g} in {share:.1%} of the samples"
        )
        if abs(share - RISK) < ROUNDING:
            return Reading(None, share, f"a share of {RISK:g} of the samples fails")
        return Reading(share < RISK, share, sentence)

    def tell(self, weights: Matrix | list[float], form: str, others: str) -> str:
        """The weight of each group in words."""
        labels = (*self.groups[:-1], others)
        return ", ".join(form.format(name, w) for name, w in zip(labels, weights, strict=True))

    def smallest(self, good: int, bad: int, reading: Reading) -> tuple[int, Reading]:
        """The smallest n between a good one and a bad one at which the goal is missed."""
        while bad - good > 1:
            middle = (good + bad) // 2
            found = self.reading_at(middle)
            if found.reached is False:
                bad, reading = middle, found
            else:
                good = middle
        return bad, reading

    # ---- a lead that nothing increases

    def constant_lead(self) -> float:
        """How far the named logits are ahead of the others, if neither n nor beta changes it."""
        if any(e.names & {"beta", "n"} for e in self.expressions.values()):
            return 0.0
        leads = []
        for n in (10, 1000):
            try:
                heads = self.exact_heads_at(n)
                rows = [[value_at(x, n, 1) for x in head.values()] for head in heads]
            except (ExpressionError, TooLargeError, NotExactError):
                return 0.0
            leads.append(float(max(max(named) - others for *named, others in rows)))
        return max(0.0, leads[0]) if math.isclose(*leads, rel_tol=1e-9) else 0.0

    def outnumbered_at(self, lead: float) -> set[int]:
        """The n around which a constant lead is lost among the other keys."""
        return outnumbered_at(lead, self.named, self.eps) if 0 < lead <= MAX_LEAD else set()

    def outnumbered(self, lead: float) -> CheckResult:
        if math.isinf(lead):
            return self.draft.inconclusive("a constant lead is too large to compute with.")
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

    # ---- refutations

    def refuted_at(self, n: int, reading: Reading) -> CheckResult:
        """With what is wrong in the limit, and the first round beta and length that show it."""
        if math.isinf(reading.error):
            because = reading.sentence.removesuffix(".") + "."
            return self.draft.refuted(because, reading.sentence, {"n": n, "d": n})
        because = reading.sentence + self.hint(self.exact_heads_at(n))
        betas = ROUND_BETAS if self.uses_beta else (1.0,)
        for beta, e in itertools.product(betas, self.lengths):
            found = showing_beta(partial(self.misplaced_at, n, e), self.eps, [beta])
            if found is not None:
                example = self.example_at(n, beta, e, found[1])
                failure = self.failure(10.0) if self.stretched else None
                result = replace(self.draft, verdict="refuted", because=because + ".")
                return replace(result, counterexample=example, failure=failure)
        return self.draft.inconclusive(f"{because}; but no beta that was tried shows it.")

    def hint(self, heads: list[dict[str, Number]]) -> str:
        """What the exact logits tell about a query that is wrong."""
        if not self.uses_beta:
            return "; nothing in the formula grows with beta"
        first = heads[0]
        if self.stretched and len(heads) > 1:
            same = all(first[g] == heads[1][g] for g in self.groups)
            return "; the queries are the same, so this is one head written twice" if same else ""
        if self.stretched and not first["a"].is_zero:
            return f"; q has the component {first['a']} along the noisy direction mu_a"
        if not self.stretched and self.named == 2:
            gap = first["a"] - first["b"]
            (piece,) = asymptotics(gap)
            if piece.sign and piece.order > FLAT:
                return f"; k_a.q - k_b.q = {gap} grows with beta, so one of the two takes all"
        return ""

    def example_at(self, n: int, beta: float, e: float, error: float) -> Counterexample:
        numbers: dict[str, Any] = {"beta": beta} if self.uses_beta else {}
        if self.stretched:
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
        by_group = np.round(self.weights(n, e, beta), 6).tolist()
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

    # ---- figures

    def with_figures(self, result: CheckResult) -> CheckResult:
        """What passed, with the beta it needs, its failure rate and its assumptions."""
        try:
            needed = self.beta_needed()
        except (NotExactError, TooLargeError, ExpressionError):
            needed = None
        if needed is None:
            note = "the beta that is needed is beyond what is computed."
            return replace(result, notes=(*result.notes, note))
        result = replace(result, beta=needed)
        found = [*self.assumptions()]
        if self.stretched:
            failure = self.failure(max(needed.value, 10.0))
            result = replace(result, failure=failure)
            if failure is not None and failure.set_aside:
                note = "samples in which k_a points backwards (e < 0, so k_a.q < 0) are set aside."
                result = replace(result, notes=(*result.notes, note))
                rate = f"{failure.in_all:.2%} of all samples fail at beta = {failure.beta:.4g}"
                name = "samples with k_a.q < 0 are set aside"
                found.append(Assumption(name, failure.in_all > RISK, f"counting them, {rate}"))
        return replace(result, assumptions=tuple(found))

    def beta_needed(self) -> BetaNeeded | None:
        """The beta that is needed at several n, and its closed form if there is one."""
        by_n: dict[int, float] = {}
        for n in sorted({self.problem.least_n, *BETA_N}):
            ladder = ((-3, 9), 2, 16) if self.stretched else ((-3, 16), 12, 50)
            least = least_beta(self.goodness(n), *ladder) if self.uses_beta else 0.0
            if least is None:
                return None
            by_n[n] = least
        return BetaNeeded(self.beta_formula(), by_n[REPORTED_N], REPORTED_N, by_n)

    def goodness(self, n: int) -> Callable[[float], bool]:
        """Is the goal reached at this beta?"""
        heads = self.exact_heads_at(n)
        if self.stretched:
            tables = [[x["a"], x["b"], x["others"] - x["b"], x["others"]] for x in heads]

            def good(beta: float) -> bool:
                rows = [head_of(*(_quick_value(x, n, beta) for x in table)) for table in tables]
                return failure_probability(rows, n, self.eps)[0] <= RISK

            return good
        first = heads[0][self.groups[0]]
        gaps = [logit - first for logit in heads[0].values()]
        multiples = np.log(self.counts(n))

        def is_near(beta: float) -> bool:
            logits = [float(max(min(_quick_value(gap, n, beta), 1e300), -1e300)) for gap in gaps]
            error = self.misplaced(softmax_over_keys(np.array(logits) + multiples))
            return error <= self.eps * (1 + 1e-12)

        return is_near

    def beta_formula(self) -> str:
        if not self.uses_beta:
            return "none: the formula has no large factor"
        if self.stretched:
            return f"P(more than eps of the weight is misplaced) <= {RISK:g}, by the law of e"
        below = "eps" if self.named == 1 else f"{self.named}*eps"
        level = f"ln((n-{self.named})*(1-eps)/({below}))"
        with contextlib.suppress(NotExactError, TooLargeError, ExpressionError):
            (head,) = self.exact_heads(Field(self.budget, self.problem.least_n))
            first, *more, others = head.values()
            gap = first - others
            terms = [*gap.top.items()]
            simple = len(terms) == 1 and gap.bottom == ONE and gap.names == {"beta"}
            if simple and all((first - x).is_zero for x in more):
                (((_, order),), size) = terms[0]
                over = f"/{size if size.denominator == 1 else f'({size})'}" if size != 1 else ""
                if order == 1:
                    return f"beta >= {level}{over}"
                return f"beta >= ({level}{over})**({1 / Fraction(order)})"
        return "the misplaced share is at most eps, from this beta on"

    def failure(self, beta: float) -> Failure | None:
        """How often the length spoils the result at n = 10 and this beta."""
        meaning = f"more than {self.eps:g} of the weight is misplaced"
        try:
            heads = self.float_heads(REPORTED_N, beta)
        except (NotExactError, ExpressionError, TooLargeError):
            return None
        rates = failure_probability(heads, REPORTED_N, self.eps)
        return Failure(meaning, REPORTED_N, beta, *rates)

    def assumptions(self) -> Iterator[Assumption]:
        """Which assumptions of the problem the construction needs, by giving them up in turn."""
        rng = np.random.default_rng([self.draft.seed, 2])
        noun = "means" if self.noisy else "keys"
        drawn = [orthonormal(n, d, rng) for n, d in SEARCHED]
        lengths = np.ones(1)
        if self.stretched:
            law = NormalDist(1, SD)
            lengths = np.array([law.inv_cdf(k / 100) for k in range(1, 100)])
            lengths = lengths[lengths > 0] if len(self.expressions) > 1 else lengths
        error_at = partial(self.error_over, lengths)
        yield from search_assumptions(
            noun, drawn, self.named, error_at, SEARCHED_BETAS, self.draft.seed
        )

    def error_over(self, lengths: Matrix, keys: Matrix, beta: float) -> float:
        """The misplaced share over these keys, 0 if it is allowed in enough samples."""
        try:
            rows = self.queries(keys, beta)
        except NoValueError:
            return math.inf
        except TooLargeError:
            return math.nan
        drawn = np.repeat(keys[None], len(lengths), axis=0)
        drawn[:, 0] *= lengths[:, None]
        result = attend(rows, drawn, drawn)
        if float(np.abs(result.scores).max()) > MAX_SCORE:
            return math.nan
        weights = result.weights.mean(axis=-2)
        wanted = np.zeros(len(keys))
        wanted[: self.named] = self.wanted[: self.named]
        wrong = 0.5 * np.abs(weights - wanted).sum(axis=-1)
        missed = float(np.mean(wrong > self.eps * (1 + ROUNDING) + 1e-12))
        return float(wrong.max()) if missed > (RISK + 0.02 if self.stretched else 0) else 0.0


def _quick_value(x: Number, n: int, beta: float) -> Any:
    """In floats, or with many digits where these may cancel or do not do."""
    if not (x.names & {"exp(beta)", "log(beta)"} or has_growing_root(x)):
        with contextlib.suppress(TooLargeError):
            return x.value(mpmath.fp, n=float(n), beta=beta)
    return value_at(x, n, beta)


def outnumbered_at(lead: float, named: int, eps: float) -> set[int]:
    """The n around which a constant lead over the other keys is lost."""
    if lead > MAX_LEAD:
        return set()
    edge = int(named + named * math.exp(lead) * eps / (1 - eps))
    return {max(named + 1, edge + step) for step in (0, 1, 2)} | {4 * edge + 10}


def near_zeros(x: Number, everywhere: bool = False) -> set[int]:
    """Whole n near which the leading coefficient of a number with a logarithm of n (or, if
    `everywhere`, of any number) is smallest; what happens there is decided at those n."""
    if x.is_zero:
        return set()
    field, coefficients = x.field, by_order(x.top)
    lead = Number(field, coefficients[max(coefficients)], ONE)
    transcendental = "log(" in str(lead) or "exp(" in str(lead)
    if "n" not in str(lead) or has_growing_root(lead) or not (everywhere or transcendental):
        return set()

    def size(n: int) -> float:
        try:
            with mpmath.workdps(30):
                return float(abs(lead.value(mpmath.mp, n=mpmath.mpf(n))))
        except TooLargeError:  # or no value
            return math.inf

    grid = sorted({field.least_n + k for k in range(40)} | {int(1.2**k) for k in range(20, 190)})
    sizes = [size(n) for n in grid]
    found = set[int]()
    for i in range(1, len(grid) - 1):
        before, after = sizes[i - 1], sizes[i + 1]
        if sizes[i] <= min(before, after) and sizes[i] < max(before, after):
            low, high = grid[i - 1], grid[i + 1]
            while high - low > 2:
                third = max(1, (high - low) // 3)
                if size(low + third) < size(high - third):
                    high -= third
                else:
                    low += third
            found |= set(range(low, high + 1))
    return found


def _short(n: int) -> str:
    """A number of keys, as a power of ten if it is a large one."""
    digits = str(n)
    if n >= 10**6 and digits.strip("0") == "1":
        return f"10^{len(digits) - 1}"
    return digits
