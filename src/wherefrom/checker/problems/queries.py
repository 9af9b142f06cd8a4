"""Queries over keys that are known or blurred a little: copy, average and noisy-average.

First claims about the exact logits for every n; then, at single n, the limit of the weights, by
exact algebra or with many digits. A counterexample is computed with the attention equation.
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
from wherefrom.checker.asymptotics import asymptotics
from wherefrom.checker.betas import FAR_BETAS, ROUND_BETAS, ROUNDING, least_beta, showing_beta
from wherefrom.checker.field import (
    ONE,
    Field,
    NotExactError,
    Number,
    Poly,
    StepBudget,
    TooLargeError,
    by_power,
    names,
)
from wherefrom.checker.goals import Claim, Decision, certificate, decide, limit_weights
from wherefrom.checker.grammar import ExpressionError
from wherefrom.checker.reading import Construction
from wherefrom.checker.results import Assumption, BetaNeeded, CheckResult, Counterexample, Failure
from wherefrom.checker.spaces import (
    Digits,
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
DIGITS = 1000  # at most, that are computed at a far beta
OUTSIDE_ITS_DOMAIN = "it divides by zero, or a root or a logarithm has no value."
SETTLED = 1e-7  # a gap that changes by less from one far beta to the next has a limit
UNBOUNDED = 1e3  # a gap that grows from one far beta to the next, beyond this, has none
MOST_N_WITHOUT_ALGEBRA = 10**4  # beyond it, far betas may not be large beside n
MAX_DECADES = 500  # powers of ten of the largest beta that is computed with
REPORTED_N = 10
BETA_N = (3, REPORTED_N, 25, 100, 1000)  # where the beta that is needed is reported
SHOWN_N = 12  # keys that are written out one by one
MAX_LEAD = 600  # e to this is still a float
SHOWN_ERROR = 1e-12  # a misplaced share below it is rounding
SAMPLES = 4_000  # of a simulation
ALPHA = 1e-6  # the blur at which the isotropic problem reports its failure rate
SEARCHED = ((3, 5), (10, 12))  # n and d at which a counterexample to an assumption is searched
SEARCHED_BETAS = (5.0, 20.0, 200.0, 1e4, 1e6)
SAMPLED = ((4, 1.3), (7, 2.1), (9, 0.7))  # n and beta at which exact logits are measured


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
    blur = ALPHA  # of the keys in a simulation
    allowed_misses = 0.0  # the share of samples that may miss the tolerance
    what_fails = "the weight is misplaced"
    # decades of beta, steps in each, and bisections, by which the beta that is needed is searched
    exact_ladder: tuple[tuple[int, int], int, int] = ((-3, 16), 12, 50)
    rough_ladder: tuple[tuple[int, int], int, int] = ((-3, 16), 2, 16)

    def __init__(self, construction: Construction, draft: CheckResult, budget: StepBudget) -> None:
        self.expressions = construction.expressions
        self.problem, self.draft, self.budget = construction.problem, draft, budget
        self.groups = tuple(self.problem.target)
        self.named = len(self.groups) - 1
        self.noisy = self.problem.noise != "none"
        self.eps = draft.tolerance
        self.uses_beta = any("beta" in e.names for e in self.expressions.values())
        self.exact_at: dict[int, list[dict[str, Number]] | None] = {}

    # ---- logits, in three arithmetics

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

    def rows_in_digits(self, arithmetic: Digits, n: int, beta: float | int) -> list[list[Any]]:
        """For each head the logit of each group at one n and beta, with many digits."""
        heads = self.exact_heads_at(n)
        if heads is not None:
            return [[arithmetic.value(head[g], n, beta) for g in self.groups] for head in heads]
        root = arithmetic.function("sqrt", arithmetic.number(n - self.named))
        lone = n == self.named + 1
        values = key_blocks(self.groups, self.noisy, Fraction(beta), n, root, lone)
        rows = []
        for expression in self.expressions.values():
            q = evaluate(expression, arithmetic, values).ravel().tolist()
            rows.append([x.value for x in (*q[: self.named], q[self.named] / root)])
        return rows

    def gaps_at(self, n: int, beta: float | int, e: float = 1.0) -> Matrix:
        """For each head the logit of each group less the largest, as floats."""
        return _as_floats(self.gaps_in_digits(n, beta, e))

    def gaps_in_digits(self, n: int, beta: float | int, e: float = 1.0) -> list[list[Any]]:
        digits = int(min(DIGITS, 60 + 10 * math.log10(max(beta, 10))))
        arithmetic = Digits(self.budget, digits)
        gaps = []
        for row in self.rows_in_digits(arithmetic, n, beta):
            stretched = [row[0] * arithmetic.context.mpf(e), *row[1:]] if e != 1.0 else row
            top = max(stretched)
            gaps.append([x - top for x in stretched])
        return gaps

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
        decision, critical = None, set[int]()
        with contextlib.suppress(NotExactError, TooLargeError, ExpressionError):
            decision = self.claims()
        self._keep_budget()
        if decision is not None and decision.is_proved:
            return self.proved(decision)
        if decision is not None:
            critical = decision.turning_points()
            for claim in decision.claims:
                critical |= near_zeros(claim.number, everywhere="beta" not in claim.number.names)
        else:
            critical = self.critical_parts()
        return self.at_single_n(critical)

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
        failure = self.failure(needed.value) if self.noisy else None
        result = replace(result, beta=needed, failure=failure)
        return replace(result, assumptions=tuple(self.assumptions(failure)))

    def floats_at(self, n: int, beta: float) -> list[tuple[float, ...]]:
        """The logit of each group, for each head, as floats (cut off at 1e300)."""
        digits = int(min(DIGITS, 60 + 4 * math.log10(max(beta, 10))))
        arithmetic = Digits(self.budget, digits)
        most = arithmetic.context.mpf(1e300)
        rows = self.rows_in_digits(arithmetic, n, beta)
        return [tuple(float(max(min(x, most), -most)) for x in row) for row in rows]

    def has_moderate_numbers(self, n: int) -> bool:
        """Has no part without beta a size that far betas do not reach?"""
        arithmetic = Digits(self.budget, 30)
        root = arithmetic.function("sqrt", arithmetic.number(n - self.named))
        lone = n == self.named + 1
        values = key_blocks(self.groups, self.noisy, 1, n, root, lone)
        for expression in self.expressions.values():
            for tree in expression.tree.walk():
                if not tree.arguments or "beta" in tree.parts():
                    continue
                table = evaluate(replace(expression, tree=tree), arithmetic, values)
                if any(
                    x.value and abs(arithmetic.context.mag(x.value)) > 200 for x in table.ravel()
                ):
                    return False
        return True

    # ---- single n

    def at_single_n(self, critical: set[int]) -> CheckResult:
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
        return self.with_figures(self.draft.holds(self.list_of_trials(readings)))

    def list_of_trials(self, readings: dict[int, Reading]) -> str:
        sizes = ", ".join(_short(n) for n in readings)
        worst = max(reading.error for reading in readings.values())
        exact = all(self.exact_at.get(n) is not None for n in readings)
        betas = "in the limit of large beta" if exact else "at beta = 1e8, 1e30 and 1e100"
        if not self.uses_beta:
            betas = "without a large factor"
        text = f"the goal is reached {betas} at n = {sizes}"
        if worst > SHOWN_ERROR:
            text += "; within this tolerance but not within every one: "
            text += f"{worst:.3g} of {self.what_fails}"
        return text + ". That is no proof for any other n."

    def reading_at(self, n: int) -> Reading:
        try:
            heads = self.exact_heads_at(n)
            reading = self.exact_reading(heads, n) if heads is not None else None
            return reading or self.far_reading(n)
        except NoValueError as problem:
            return Reading(
                False, math.inf, f"at n = {n} the formula has no value: {problem.sentence}"
            )
        except TooLargeError:
            self._keep_budget()
            return Reading(None, math.nan, "the numbers become too large to compute with")

    def exact_reading(self, heads: list[dict[str, Number]], n: int) -> Reading | None:
        """The limit of the weights by the exact orders of the gaps; None if one is unknown."""
        (head,) = heads
        counts = [1] * self.named + [n - self.named]
        weights = limit_weights([head[g] for g in self.groups], n, counts)
        if weights is None:
            return None
        error = self.misplaced(weights)
        return Reading(error <= self.eps * (1 + ROUNDING), error, self.tends(weights, n))

    def far_reading(self, n: int) -> Reading:
        """Without algebra: the gaps at three far betas, each settled, growing, or unknown."""
        tables, exact_gaps, without_value = [], [], []
        for beta in FAR_BETAS:
            try:
                exact_gaps.append(self.gaps_in_digits(n, beta)[0])
                tables.append(_as_floats([exact_gaps[-1]]))
            except NoValueError as problem:
                without_value.append(problem)
        if without_value:
            if not tables and n <= MOST_N_WITHOUT_ALGEBRA:  # at none of them
                raise without_value[0]
            return Reading(None, math.nan, "the formula has no value at some beta")
        shares = [self.weights_of_gaps(table, n) for table in tables]
        errors = [self.misplaced(weights) for weights in shares]
        inside = [error <= self.eps * (1 + ROUNDING) for error in errors]
        moving = [is_moving(*gaps) for gaps in zip(*exact_gaps, strict=True)]
        if all(inside):
            return Reading(True, errors[-1], self.tends(shares[-1], n))
        moderate = n <= MOST_N_WITHOUT_ALGEBRA and self.has_moderate_numbers(n)
        if any(inside) or any(moving) or not moderate:
            return Reading(
                None, errors[-1], "the weights change too slowly with beta to see their limit"
            )
        return Reading(False, errors[-1], self.tends(shares[-1], n))

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
                rows = np.array(self.floats_at(n, 1.0))
            except (ExpressionError, TooLargeError):
                return None
            leads.append(float((rows[:, :-1].max(axis=1) - rows[:, -1]).max()))
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
        if heads is None:
            return ""
        return self.exact_hint(heads)

    def exact_hint(self, heads: list[dict[str, Number]]) -> str:
        """What the exact logits tell about a query that is wrong."""
        if self.named == 2:
            gap = heads[0]["a"] - heads[0]["b"]
            (piece,) = asymptotics(gap)
            if piece.sign and piece.order > 0:
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

    def critical_parts(self) -> set[int]:
        """The n at which a part of the formula that is exact and has no beta changes its sign."""
        found = set[int]()
        for expression in self.expressions.values():
            for tree in expression.tree.walk():
                if not tree.arguments:
                    continue
                field = Field(self.budget, self.problem.least_n)
                part = replace(expression, tree=tree)
                try:
                    root = field.root(field.n - field.number(self.named))
                    values = key_blocks(self.groups, self.noisy, field.beta, field.n, root, False)
                    value = evaluate(part, Exact(field), values)
                    if value.size == 1 and "beta" not in value.item().names:
                        decision = decide(field, [Claim(value.item(), "nonzero")])
                        found |= decision.turning_points() | near_zeros(value.item())
                except (NotExactError, TooLargeError, ExpressionError):
                    self._keep_budget()
        return found

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
        if heads is None:
            return least_beta(lambda beta: self.is_good(n, beta), *self.rough_ladder)
        return least_beta(self.exact_goodness(heads, n), *self.exact_ladder)

    def is_good(self, n: int, beta: float) -> bool:
        """Is the goal reached at this beta, with many digits?"""
        try:
            return self.misplaced(self.weights_at(n, beta)) <= self.eps
        except (ExpressionError, TooLargeError):
            return True  # too large for numbers is beyond what is asked

    def exact_goodness(self, heads: list[dict[str, Number]], n: int) -> Callable[[float], bool]:
        """The same from exact logits, quickly in floats."""
        (head,) = heads
        gaps = [beta_function(head[g] - head[self.groups[0]], n) for g in self.groups]

        def good(beta: float) -> bool:
            try:
                values = np.array([gap(beta) for gap in gaps])
            except OverflowError:
                return True
            if np.isnan(values).any():
                return False
            return self.misplaced(self.weights_of_gaps(values[None], n)) <= self.eps * (1 + 1e-12)

        return good

    # ---- noise, and the assumptions

    def failure(self, needed: float) -> Failure | None:
        """How often blurred keys spoil the result at n = 10 and this beta (10 at least):
        ln(a_a/a_b) ~ N(gap, 2 alpha |q|^2), and a share beyond 1/2 +- eps is an uneven split."""
        n, beta = REPORTED_N, max(needed, 10.0)
        try:
            (logits,) = self.floats_at(n, beta)
            simulated, error = self.simulate(n, beta)
            length = float(np.linalg.norm(self.queries(orthonormal(n, n), beta)))
        except (NoValueError, TooLargeError):
            return None
        level = math.log((0.5 + self.eps) / (0.5 - self.eps))
        centre, width = logits[0] - logits[1], 2 * math.sqrt(ALPHA) * length
        tails = ((level - side) / width if width else math.inf for side in (centre, -centre))
        rate = 0.5 * sum(map(math.erfc, tails))
        alpha = (level / (1.959964 * math.sqrt(2) * length)) ** 2 if length else None
        meaning = f"a and b split their weight more unevenly than 1/2 +- {self.eps:g}"
        return Failure(meaning, n, beta, rate, 0.0, rate, simulated, error, SAMPLES, alpha)

    def simulate(self, n: int, beta: float) -> tuple[float, float]:
        """How often the goal is missed over drawn keys, with its standard error."""
        rng = np.random.default_rng([self.draft.seed, 1])
        means = orthonormal(n, n, rng)
        rows = self.queries(means, beta)
        keys = means + math.sqrt(self.blur) * rng.standard_normal((SAMPLES, n, n))
        kept = self.draw_lengths(rng, keys, means, rows)
        weights = self.by_group(attend(rows, keys, keys[..., :1]).weights.mean(axis=-2))
        share, count = float(self.is_missed(weights)[kept].mean()), int(kept.sum())
        return share, math.sqrt(max(share * (1 - share), 1 / count) / count)

    def draw_lengths(
        self, rng: np.random.Generator, keys: Matrix, means: Matrix, rows: Matrix
    ) -> Matrix:
        """Stretch the first of the drawn keys, where the problem does so; which samples count."""
        return np.ones(len(keys), dtype=bool)

    def is_missed(self, weights: Matrix) -> Matrix:
        """For each sample, whether a and b split their weight too unevenly."""
        return np.asarray(np.abs(weights[:, 0] / weights[:, :2].sum(axis=1) - 0.5) > self.eps)

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


def beta_function(x: Number, n: int) -> Callable[[float], float]:
    """An exact number at one n as a function of beta, in floats (cut off at 1e300)."""
    parts = []
    for poly in (x.top, x.bottom):
        powers = by_power(poly, "beta").items()
        terms = [(float(p), Number(x.field, rest, ONE).value(mpmath.mp, n=n)) for p, rest in powers]
        parts.append([(power, float(factor)) for power, factor in terms])

    def value(beta: float) -> float:
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
    logs = [name for name in x.names if name in field.atoms and field.atoms[name].kind == "log"]
    if not everywhere and not any(names(field.atoms[name].argument) for name in logs):
        return set()
    if x.is_zero or "n" not in str(x):
        return set()
    coefficients = by_power(x.top, "beta")
    lead = Number(field, coefficients[max(coefficients)], ONE)
    arithmetic = Digits(field.budget, 30)

    def size(n: int) -> float:
        return float(abs(arithmetic.value(lead, n)))

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


def is_moving(first: Any, second: Any, third: Any) -> bool:
    """Is the limit of a gap that was seen at three far betas unclear?"""
    if abs(third - second) <= SETTLED:
        return False
    grows = abs(third) > abs(second) > abs(first) and abs(third) > UNBOUNDED
    return not grows


def _as_floats(gaps: list[list[Any]]) -> Matrix:
    return np.array([[float(max(x, -1e300)) for x in row] for row in gaps])


def _short(n: int) -> str:
    """A number of keys, as a power of ten if it is a large one."""
    digits = str(n)
    if n >= 10**6 and digits.strip("0") == "1":
        return f"10^{len(digits) - 1}"
    return digits
