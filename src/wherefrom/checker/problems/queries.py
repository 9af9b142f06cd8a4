"""Queries: copy, average, and the averages over noisy keys.

First claims about the exact logits for every n; then, at single n, the limit of the weights, by
exact algebra or with many digits. A counterexample is computed with the attention equation.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from wherefrom.attention.equation import attend, softmax_over_keys
from wherefrom.checker import noise
from wherefrom.checker.asymptotics import asymptotics, sign_on
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
from wherefrom.checker.results import BetaNeeded, CheckResult, Counterexample
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
FAR_BETAS = (10**8, 10**30, 10**100)  # where a limit is read off without algebra
DIGITS = 1000  # that are computed there
ROUND_BETAS = (
    10.0,
    20.0,
    100.0,
    5.0,
    1000.0,
    2.0,
    1e4,
    1.0,
    1e6,
    1e9,
    1e12,
    1e20,
    1e30,
    1e60,
    1e100,
)
LENGTHS = (
    1.0,
    0.5,
    1.5,
    0.0,
    2.0,
    0.9,
    1.1,
    1.01,
    0.99,
    0.1,
    -1.0,
    3.0,
    -2.0,
    4.0,
)  # of k_a in a counterexample
OUTSIDE_ITS_DOMAIN = "it divides by zero, or a root or a logarithm has no value."
SETTLED = 1e-7  # a gap that changes by less from one far beta to the next has a limit
UNBOUNDED = 1e3  # a gap that grows from one far beta to the next, beyond this, has none
MOST_N_WITHOUT_ALGEBRA = 10**4  # beyond it, far betas may not be large beside n
MAX_DECADES = 500  # powers of ten of the largest beta that is computed with
REPORTED_N = 10
BETA_N = (3, REPORTED_N, 25, 100, 1000)  # where the beta that is needed is reported
SHOWN_N = 12  # keys that are written out one by one
ROUNDING = 1e-9  # relative, of a share of weight
SAMPLED = ((4, 1.3), (7, 2.1), (9, 0.7))  # n and beta at which exact logits are measured


@dataclass(frozen=True)
class Reading:
    """What happens at one n as beta grows: is the goal reached (None: unknown), the limit of what
    must be small, and a sentence about it."""

    reached: bool | None
    error: float
    sentence: str


def judge(construction: Construction, draft: CheckResult, budget: StepBudget) -> CheckResult:
    """The verdict on a query or a pair of queries, or on the range of e."""
    if "low" in construction.expressions:
        return noise.judge_range(construction, draft, budget)
    return Queries(construction, draft, budget).judge()


class Queries:
    """The queries of one construction as logits of groups of keys."""

    def __init__(self, construction: Construction, draft: CheckResult, budget: StepBudget) -> None:
        self.expressions = construction.expressions
        self.problem, self.draft, self.budget = construction.problem, draft, budget
        self.groups = tuple(self.problem.target)
        self.named = len(self.groups) - 1
        self.noisy = self.problem.noise != "none"
        self.stretched = self.problem.noise == "stretched"
        self.eps = draft.tolerance
        self.limit = noise.RISK if self.stretched else self.eps
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
        if self.stretched:
            return noise.decide_stretched(field, heads)
        (head,) = heads
        first = self.groups[0]
        claims = [Claim(head[first] - head["others"], "grows", f"{first} - others")]
        for group in self.groups[1:-1]:
            claims.append(Claim(head[first] - head[group], "vanishes", f"{first} - {group}"))
        return decide(field, claims)

    def derived(self, heads: Sequence[dict[str, Number]]) -> Iterator[str]:
        for name, head in zip(self.expressions, heads, strict=True):
            for group, value in head.items():
                text = str(value)
                if group == "a" and self.stretched and not value.is_zero:
                    text = f"e*{text}" if text.isalnum() else f"e*({text})"
                key, ending = ("i", " for every other i") if group == "others" else (group, "")
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

    def proved(self, decision: Decision) -> CheckResult:
        if self.stretched:
            along = [c.name for c in decision.claims if c.name.startswith("a of")]
            avoided = len(along) == len(self.expressions)
            because = (
                "for every n and every length e not set aside, the weights of a, b and all others "
                "tend to 1/2, 1/2 and 0."
            )
            if avoided:
                because = (
                    "for every n: no query has a component along mu_a, so the length of k_a does "
                    "not matter, and every other key loses its weight as beta grows."
                )
        elif self.named == 1:
            because = (
                "for every n: the lead of k_j.q over every other k_i.q grows with beta, without "
                "bound."
            )
        else:
            because = (
                "for every n: k_a.q and k_b.q agree, and their lead over every other k_i.q grows "
                "with beta."
            )
        result = self.draft.proved(because, certificate(decision, list(self.samples())))
        if result.verdict != "proved":
            return result
        return self.with_figures(result)

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
        result = replace(result, beta=needed)
        if self.noisy:
            result = replace(result, failure=noise.failure(self, needed.value))
            if self.sets_samples_aside():
                note = "samples in which k_a points backwards (e < 0, so k_a.q < 0) are set aside."
                result = replace(result, notes=(*result.notes, note))
        return replace(result, assumptions=tuple(noise.assumptions(self, result.failure)))

    def sets_samples_aside(self) -> bool:
        with contextlib.suppress(ExpressionError, TooLargeError):
            return len(self.expressions) > 1 and any(x[0] > 0 for x in self.heads_at(5, 1e3))
        return False

    def floats_at(self, n: int, beta: float) -> list[tuple[float, ...]]:
        """The logit of each group, for each head, as floats (cut off at 1e300)."""
        digits = int(min(DIGITS, 60 + 4 * math.log10(max(beta, 10))))
        arithmetic = Digits(self.budget, digits)
        most = arithmetic.context.mpf(1e300)
        rows = self.rows_in_digits(arithmetic, n, beta)
        return [tuple(float(max(min(x, most), -most)) for x in row) for row in rows]

    def heads_at(self, n: int, beta: float | int) -> list[noise.Head]:
        """For each head the logits of a and b, scaled down if they are beyond floats, the logit of
        another key less that of b, and that logit."""
        digits = int(min(DIGITS, 60 + 10 * math.log10(max(beta, 10))))
        arithmetic = Digits(self.budget, digits)
        most = arithmetic.context.mpf(1e250)
        exact = self.exact_heads_at(n)
        heads: list[noise.Head] = []
        for index, (a, b, others) in enumerate(self.rows_in_digits(arithmetic, n, beta)):
            gap = others - b
            if exact is not None:
                gap = arithmetic.value(exact[index]["others"] - exact[index]["b"], n, beta)
            scale = min(arithmetic.context.mpf(1), most / max(abs(a), abs(b), abs(others), 1))
            gap = max(min(gap, most), -most)
            heads.append((float(a * scale), float(b * scale), float(gap), float(others * scale)))
        return heads

    def settled_betas(self, n: int) -> tuple[int, ...] | None:
        """Betas so large that the leading power decides every exact logit and gap at this n; None
        if that takes more than 1e500."""
        decades = Fraction(9)
        for head in self.exact_heads_at(n) or []:
            a, b, others = (head[g] for g in self.groups)
            for number in (a, b, others - b, a - b, a - others):
                decades = max(decades, decades_until_settled(number, n))
        if decades > MAX_DECADES:
            return None
        return tuple(10 ** math.ceil(decades * k / 2) for k in (2, 3, 4))

    def has_moderate_numbers(self, n: int) -> bool:
        """Has no part without beta a size that far betas do not reach?"""
        arithmetic = Digits(self.budget, 30)
        root = arithmetic.function("sqrt", arithmetic.number(n - self.named))
        lone = n == self.named + 1
        values = key_blocks(self.groups, self.noisy, 1, n, root, lone)
        for expression in self.expressions.values():
            for tree in _parts(expression.tree):
                if "beta" in _names(tree):
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
            critical = critical | noise.outnumbered_at(lead, self.named, self.eps)
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
        if worst > 1e-12 and not self.stretched:
            text += (
                f"; within this tolerance but not within every one: {worst:.3g} of the weight is "
            )
            text += "misplaced"
        elif worst > 1e-9:
            text += (
                f"; within this tolerance but not within every one: {worst:.3g} of the samples fail"
            )
        return text + ". That is no proof for any other n."

    def reading_at(self, n: int) -> Reading:
        try:
            if self.stretched:
                return noise.reading_at(self, n)
            heads = self.exact_heads_at(n)
            reading = self.exact_reading(heads[0], n) if heads is not None else None
            return reading or self.far_reading(n)
        except NoValueError as problem:
            return Reading(
                False, math.inf, f"at n = {n} the formula has no value: {problem.sentence}"
            )
        except TooLargeError:
            self._keep_budget()
            return Reading(None, math.nan, "the numbers become too large to compute with")

    def exact_reading(self, head: dict[str, Number], n: int) -> Reading | None:
        """The limit of the weights by the exact orders of the gaps; None if one is unknown."""
        counts = [1] * self.named + [n - self.named]
        weights = limit_weights([head[g] for g in self.groups], n, counts)
        if weights is None:
            return None
        error = self.misplaced(weights)
        return Reading(error <= self.limit * (1 + ROUNDING), error, self.tends(weights, n))

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
        inside = [error <= self.limit * (1 + ROUNDING) for error in errors]
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
        if any(e.names & {"beta", "n"} for e in self.expressions.values()) or (
            self.stretched and len(self.expressions) > 2
        ):
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
        result = replace(
            self.draft, verdict="refuted", because=because + ".", counterexample=example
        )
        if self.stretched:
            result = replace(result, failure=noise.failure(self, 0.0))
        return result

    def hint(self, n: int) -> str:
        if not self.uses_beta:
            return "; nothing in the formula grows with beta"
        heads = self.exact_heads_at(n)
        if heads is None:
            return ""
        if len(heads) > 1 and all(heads[0][g] == heads[1][g] for g in self.groups):
            return "; the queries are the same, so this is one head written twice"
        along = heads[0].get("a")
        if self.stretched and len(heads) == 1 and along is not None and not along.is_zero:
            return f"; q has the component {along} along the noisy direction mu_a"
        if not self.stretched and along is not None:
            gap = along - heads[0]["b"]
            (piece,) = asymptotics(gap)
            if piece.sign and piece.order > 0:
                return f"; k_a.q - k_b.q = {gap} grows with beta, so one of the two takes all"
        return ""

    def counterexample(self, n: int) -> Counterexample | None:
        """The first round beta (and length of k_a) at which the attention equation misses the goal
        and a larger beta does not repair it."""
        betas = ROUND_BETAS if self.uses_beta else (1.0,)
        for beta in betas:
            for e in LENGTHS if self.stretched else (1.0,):
                try:
                    weights = self.weights_at(n, beta, e)
                    later = self.weights_at(n, 1000 * beta, e) if self.uses_beta else weights
                except (NoValueError, TooLargeError):
                    continue
                error = self.misplaced(weights)
                if error > self.eps * (1 + ROUNDING) and self.misplaced(later) > self.eps:
                    return self.example_at(n, beta, e, weights, error)
        return None

    def example_at(
        self, n: int, beta: float, e: float, weights: Matrix, error: float
    ) -> Counterexample:
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
        reach = 1 + 10 * noise.SD if self.stretched else 1.0  # longer than k_a is in any sample
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
            for tree in _parts(expression.tree):
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
        if self.stretched:
            return f"P(more than eps of the weight is misplaced) <= {noise.RISK:g}, by the law of e"
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
        """The smallest factor from which on everything is within the tolerance: the last beta of a
        fine ladder that fails, then bisection."""
        if not self.uses_beta:
            return 0.0
        heads = self.exact_heads_at(n)
        exact = heads is not None
        steps = 2 if self.stretched or not exact else 12  # a decade
        powers = range(-3 * steps, (9 if self.stretched else 16) * steps + 1)
        ladder = [10.0 ** (k / steps) for k in powers]
        good = noise.goodness(self, n, heads) if exact else self.good_in_digits(n)
        last = next((i for i in reversed(range(len(ladder))) if not good(ladder[i])), None)
        if last is None:
            return 0.0
        if last == len(ladder) - 1:
            return None
        low, high = ladder[last], ladder[last + 1]
        for _ in range(16 if self.stretched or not exact else 50):
            middle = math.sqrt(low * high)
            low, high = (low, middle) if good(middle) else (middle, high)
        return high

    def good_in_digits(self, n: int) -> Any:
        def good(beta: float) -> bool:
            try:
                if self.stretched:
                    return (
                        noise.failure_probability(self.heads_at(n, beta), n, self.eps)[0]
                        <= self.limit
                    )
                return self.misplaced(self.weights_at(n, beta)) <= self.limit
            except (ExpressionError, TooLargeError):
                return True  # too large for numbers is beyond what is asked

        return good


def _over_root(field: Field, x: Number, root: Number) -> tuple[Poly, Poly]:
    """x / root as polynomials; root is positive for every n, so this is no obligation."""
    return field.times(x.top, root.bottom), field.times(x.bottom, root.top)


def decades_until_settled(x: Number, n: int) -> Fraction:
    """So many powers of ten beta needs until the leading term of a number exceeds a million times
    the sum of all others, above and below the line."""
    needed = Fraction(0)
    digits = Digits(x.field.budget, 60)
    for poly in (x.top, x.bottom):
        terms = []
        for order, part in by_power(poly, "beta").items():
            if sign_on(x.field, part, n, n):
                size = abs(digits.value(Number(x.field, part, ONE), n))
                terms.append((Fraction(order), Fraction(float(digits.context.log10(size)))))
        if terms:
            lead, size = max(terms)
            for order, other in terms:
                if order < lead:
                    needed = max(needed, (other - size + 8) / (lead - order))
            if lead:  # and the leading term itself is far from 1
                needed = max(needed, (8 - size) / abs(lead))
    return needed


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


def _parts(node: Any) -> Iterator[Any]:
    """Every part of a formula but single names and numbers, the inner ones first."""
    for part in node.arguments:
        yield from _parts(part)
    if node.arguments:
        yield node


def _as_floats(gaps: list[list[Any]]) -> Matrix:
    return np.array([[float(max(x, -1e300)) for x in row] for row in gaps])


def _names(node: Any) -> set[str]:
    return {node.name}.union(*map(_names, node.arguments))


def _short(n: int) -> str:
    """A number of keys, as a power of ten if it is a large one."""
    digits = str(n)
    if n >= 10**6 and digits.strip("0") == "1":
        return f"10^{len(digits) - 1}"
    return digits
