"""Claims that compare variances, such as var_c < var_one or var_one -> 1/4.

c_2 does not move, so Var(c_2) = 0 and Var(c) = Var(c_1)/4 at every n and beta. As beta grows the
weights become steps of the length e, so that, with p0 = P(e < 0) P(e >= 0),
var_one -> 1/4, var_c1 -> p0 and var_norm -> p0/4 for every n. A difference of polynomials in these
is decided by its leading power of beta; the limit of the factor there is enclosed, not rounded.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal

import mpmath
import numpy as np

from wherefrom.checker.asymptotics import has_growing_root, sign_on
from wherefrom.checker.field import (
    Field,
    NotExactError,
    Number,
    Poly,
    StepBudget,
    TooLargeError,
    add,
    by_power,
    names,
    scale,
)
from wherefrom.checker.goals import Claim, certificate, decide
from wherefrom.checker.grammar import ExpressionError, Parser, Token, tokenize, write
from wherefrom.checker.problems import Problem
from wherefrom.checker.reading import Reader, not_read, split_clauses
from wherefrom.checker.results import CheckResult
from wherefrom.checker.spaces import Exact, NoValueError, Values, evaluate_number
from wherefrom.errors import UserError

LEAST_N = 3
TRIED_N, TRIED_BETAS = (3, 4, 10, 100), (10.0, 20.0, 50.0, 200.0, 1000.0)
MAX_LAW_N = 10_000  # the laws have a logit for each key
LAW_ACCURACY = 1e-9  # a difference of variances above it is not rounding
Sign = Literal["<", "<=", "=", ">=", ">", "->"]
_WHICH = r"c_?\{?[12]\}?|c|one|norm\w*"
VARIANCE = re.compile(  # Var(c_1), Var[c], var_{c}, sigma^2(c)
    r"(?:\\(?:mathrm|text|operatorname|mathbb)\s*\{\s*)?(?:\b[Vv]ar(?:iance)?|\bV(?=\s*[\[(])"
    r"|(?:\\sigma|σ)(?:\^?\{?[2²]\}?))\s*\}?\s*"
    rf"(?:[\[(]\s*({_WHICH})\s*[\])]|_\{{?\s*({_WHICH})(?![a-zA-Z_])\}}?)"
)
RELATION_WORDS = [
    (r"\bis at most\b|\\leq?(?![a-z])|≤", "<="),
    (r"\bis at least\b|\\geq?(?![a-z])|≥", ">="),
    (r"\btends to\b|\bapproaches\b|\bgoes to\b", "->"),
    (r"\bis (?:smaller|less|lower) than\b", "<"),
    (r"\bis (?:larger|greater|bigger|higher) than\b", ">"),
    (r"\bequals\b", "="),
]
# the text of a token -> what it compares
RELATIONS: dict[str, Sign] = {"<=": "<=", ">=": ">=", "<": "<", ">": ">", "=": "=", "==": "="}
RELATION_KINDS: dict[str, Sign] = {
    "→": "->",
    "≪": "<",
    "≫": ">",
    "=": "=",
    "<": "<",
    ">": ">",
}


def judge(
    problem: Problem, texts: Sequence[str], draft: CheckResult, budget: StepBudget
) -> CheckResult:
    """Every claim of the texts; the first that is not proved decides, a wrong one before others."""
    claims = [claim for text in texts for claim in _read_claims(problem, text)]
    if not claims:
        raise UserError('a claim compares two things, as in "var_c < var_one".')
    results = []
    for sign, left, right, read in claims:
        claimed = replace(draft, read_as={"claim": read})
        try:
            results.append(Comparison(sign, (left, right), claimed, budget).judge())
        except (NotExactError, TooLargeError):
            because = "only sums and products of the variances, numbers, beta and n are compared."
            results.append(claimed.inconclusive(because))
    order = ("refuted", "inconclusive", "holds", "proved")
    worst = min(results, key=lambda result: order.index(result.verdict))
    read_as = {
        f"claim {i}" if len(results) > 1 else "claim": result.read_as["claim"]
        for i, result in enumerate(results, 1)
    }
    derived = tuple(dict.fromkeys(line for result in results for line in result.derived))
    because = worst.because
    if len(results) > 1 and worst.verdict == "proved":
        because = " ".join(dict.fromkeys(result.because for result in results))
    elif len(results) > 1:
        because = f"claim {results.index(worst) + 1}: {because}"
    return replace(
        worst, because=because, read_as=read_as, derived=derived, construction=dict(read_as)
    )


def _read_claims(problem: Problem, text: str) -> Iterator[tuple[Sign, Any, Any, str]]:
    """The claims of one text: relation, both sides, and how it was understood. Conditions may say
    that beta is large; all other words are an error."""
    plain = VARIANCE.sub(_variance_name, text.replace("₁", "1").replace("₂", "2"))
    for pattern, sign in RELATION_WORDS:
        plain = re.sub(pattern, lambda match, sign=sign: f" {sign} ".ljust(len(match[0])), plain)  # type: ignore[misc]
    reader = Reader(problem)
    tokens = [token for token in tokenize(plain, reader.vocabulary) if token.kind != "$"]
    for lead_in, clause in split_clauses(tokens):
        if reader.condition(text, clause):
            if "beta" in reader.substituted:
                raise not_read(text, clause)
            continue
        if lead_in:
            raise not_read(text, clause)
        places = [i for i, token in enumerate(clause) if token.kind in RELATION_KINDS]
        if not places:
            raise not_read(text, clause)
        ends = [-1, *places, len(clause)]
        sides = [
            _side(problem, reader, text, clause[a + 1 : b]) for a, b in itertools.pairwise(ends)
        ]
        for place, (left, right) in zip(places, itertools.pairwise(sides), strict=True):
            token = clause[place]
            sign = RELATIONS.get(token.text, RELATION_KINDS[token.kind])
            yield sign, left, right, f"{write(left.tree)} {sign} {write(right.tree)}"


def _variance_name(match: re.Match[str]) -> str:
    which = re.sub(r"[_{}]", "", match[1] or match[2])
    name = "var_norm" if which.startswith("norm") else f"var_{which}"
    return name.ljust(len(match[0]))


def _side(problem: Problem, reader: Reader, text: str, tokens: list[Token]) -> Any:
    if not tokens:
        raise ExpressionError('a claim has two sides, as in "var_c < var_one".', text, 1)
    shapes = {given.name: given.shape for given in problem.givens}
    return Parser(text, tokens, problem.spellings(), problem.refused, shapes).read()


class Comparison:
    """left - right as a polynomial in beta, n and the three variances that do not reduce."""

    def __init__(
        self,
        sign: Sign,
        sides: tuple[Any, Any],
        draft: CheckResult,
        budget: StepBudget,
        n: int | None = None,
    ) -> None:
        self.sign, self.sides, self.budget, self.n = sign, sides, budget, n
        self.where = "for every n" if n is None else f"at n = {n}"
        self.field = Field(budget, n or LEAST_N, n)
        self.field.atom("constant", "p0", {})
        values: Values = {"beta": self.field.beta, "n": self.field.n, "var_c2": 0}
        head = self.field.symbol("var_c1")
        values |= {
            "var_one": self.field.symbol("var_one"),
            "var_norm": self.field.symbol("var_norm"),
        }
        values |= {"var_c1": head, "var_c": self.field.number(Fraction(1, 4)) * head}
        try:
            self.left, self.right = (
                evaluate_number(side, Exact(self.field), values) for side in sides
            )
        except NoValueError as problem:
            raise UserError(str(problem)) from None
        self.gap = self.left - self.right
        divides = [names(self.gap.bottom), *(x.names for x, _ in self.field.obligations)]
        if has_growing_root(self.gap) or any(held & set(LIMITS) for held in divides):
            raise NotExactError  # this divides by a variance, or is not analytic in beta
        known = sorted(self.gap.names & set(LIMITS))
        lines = tuple(f"{x} -> {LIMITS[x]} as beta grows, {self.where}" for x in known)
        self.draft = replace(draft, derived=lines)

    def judge(self) -> CheckResult:
        obliged = decide(self.field, [])
        if not obliged.is_proved:
            return self.draft.inconclusive("what it divides by may be zero at some n.")
        if self.gap.is_zero:
            return self.judge_equal()
        order, sign = self.leading()
        if sign is None:
            return self.false_at_one_n() or self.judge_numerically()
        return self.judge_leading(order, sign)

    def false_at_one_n(self) -> CheckResult | None:
        """Refuted at an n at which the sign of the limit changes."""
        if self.n is not None:
            return None
        changes = decide(self.field, [Claim(self.limit_number(), "positive")]).turning_points()
        for n in sorted({LEAST_N, *changes}):
            found = Comparison(self.sign, self.sides, self.draft, self.budget, n).judge()
            if found.verdict == "refuted":
                return found
        return None

    def judge_equal(self) -> CheckResult:
        where = "at every n" if self.n is None else f"at n = {self.n}"
        same = f"the two sides are equal {where}, whatever beta is"
        if self.sign in ("<", ">"):
            return self.refuted(f"{same}, so neither is larger.")
        why = ": c_2 does not move, so Var(c_2) = 0 and Var(c) = Var(c_1)/4."
        return self.draft.proved(same + why, self.certificate(Claim(self.gap, "zero")))

    def leading(self) -> tuple[Fraction, int | None]:
        """The leading power of beta of left - right and the sign of its limit, for every n; None
        if a factor has the limit zero but is not zero, or its sign is not the same for every n."""
        top = by_power(_in_the_limit(self.gap.top), "beta")
        own = by_power(self.gap.top, "beta")
        below = by_power(self.gap.bottom, "beta")
        bottom_order = max(below)
        low, high = (LEAST_N, None) if self.n is None else (self.n, self.n)
        bottom_sign = sign_on(self.field, below[bottom_order], low, high)
        order = max(own)
        limit = top.get(order, {})
        sign = sign_on(self.field, limit, low, high) if limit else 0
        power = Fraction(order) - Fraction(bottom_order)
        if not bottom_sign:
            return power, None
        if self.sign == "->" and (power < 0 or (power == 0 and sign == 0)):
            return power, 0
        return power, sign * bottom_sign if sign else None

    def judge_leading(self, order: Fraction, sign: int) -> CheckResult:
        """A verdict from the leading power of beta and the sign of its factor."""
        vanishes = sign == 0 or order < 0
        claim = Claim(self.limit_number(), "vanishes")
        if self.sign == "->" and vanishes:
            because = f"the difference of the two sides tends to 0 as beta grows, {self.where}."
            return self.draft.proved(because, self.certificate(claim))
        left, right = (self.limit_text(side, 6) for side in (self.left, self.right))
        if left == right:
            left, right = (self.limit_text(side, 20) for side in (self.left, self.right))
        because = f"the left side tends to {left} and the right side to {right}, {self.where}"
        true = {"<": sign < 0, "<=": sign < 0, ">": sign > 0, ">=": sign > 0}.get(self.sign, False)
        if true and sign:
            number = self.limit_number()
            positive = Claim(-number if sign < 0 else number, "positive")
            because += "; so it is true from some beta on."
            return self.draft.proved(because, self.certificate(positive))
        if vanishes and self.sign == "=":
            return self.judge_numerically()
        return self.refuted(f"{because}.")

    def limit_number(self) -> Number:
        """left - right with each variance at its limit."""
        return self.field.quotient(_in_the_limit(self.gap.top), self.gap.bottom)

    def limit_text(self, side: Number, digits: int) -> str:
        """The limit of one side, with so many digits where it is a number."""
        number = self.field.quotient(_in_the_limit(side.top), side.bottom)
        if number.names <= {"p0"}:
            with mpmath.workdps(40):
                value = number.value(mpmath.mp, n=LEAST_N)
            return str(mpmath.nstr(value, digits))
        return str(number)

    def certificate(self, claim: Claim) -> dict[str, Any]:
        return certificate(decide(self.field, [claim]))

    # ---- numbers

    def difference(self, n: int, beta: float) -> float:
        return _by_laws(self.gap, n, beta)

    def judge_numerically(self) -> CheckResult:
        """Where the limits agree: sides that differ at one n and beta are not equal, since both are
        analytic in beta."""
        if self.sign != "=":
            return self.draft.inconclusive("the limits of both sides do not decide this claim.")
        return self.refuted("both sides may have the same limit, but they are not equal.")

    def refuted(self, because: str) -> CheckResult:
        """With both limits; or, if the sides differ by a number or are equal, at one n and beta."""
        has_no_law = self.n is not None and self.n > MAX_LAW_N
        if has_no_law or (self.sign != "=" and self.gap.names):
            left, right = (self.limit_text(side, 20) for side in (self.left, self.right))
            sentence = (
                f"as beta grows, the left side tends to {left} and the right side to {right}."
            )
            at = {} if self.n is None else {"n": self.n}
            return self.draft.refuted(because, sentence, at, {"left": left, "right": right})
        sizes = TRIED_N if self.n is None else (self.n,)
        for n, beta in itertools.product(sizes, TRIED_BETAS):
            gap = self.difference(n, beta)
            if abs(gap) > LAW_ACCURACY or not self.gap.names:
                known = {name: round(x, 6) for name, x in variances(n, beta).items()}
                sides = " and ".join(
                    f"{_by_laws(side, n, beta):.15g}" for side in (self.left, self.right)
                )
                exact = f" (they differ by {gap:.6g})" if gap else ""
                sentence = f"with n = {n} and beta = {beta:g} the sides are {sides}{exact}."
                return self.draft.refuted(because, sentence, {"n": n}, {"beta": beta, **known})
        return self.draft.inconclusive(f"{because} But no n and beta that were tried show it.")


LIMITS = {"var_one": "1/4", "var_c1": "p0 = 0.0724638...", "var_norm": "p0/4"}


def _in_the_limit(poly: Poly) -> Poly:
    """With every variance at its limit: 1/4, p0 and p0/4."""
    factors = {
        "var_one": (Fraction(1, 4), ""),
        "var_c1": (Fraction(1), "p0"),
        "var_norm": (Fraction(1, 4), "p0"),
    }
    total: Poly = {}
    for key, c in poly.items():
        powers: dict[str, Any] = {}
        for name, power in key:
            factor, symbol = factors.get(name, (Fraction(1), name))
            c *= factor ** int(power) if factor != 1 else 1
            if symbol:
                powers[symbol] = powers.get(symbol, 0) + power
        total = add(total, scale({tuple(sorted(powers.items())): Fraction(1)}, c))
    return total


@lru_cache(maxsize=256)
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


def _by_laws(x: Number, n: int, beta: float) -> float:
    """The value of a number in the variances; what cancels exactly has been cancelled before."""
    return float(x.value(mpmath.fp, n=float(n), beta=beta, **variances(n, beta)))
