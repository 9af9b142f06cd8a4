"""Three words x1 = u_d + u_b, x2 = u_a, x3 = u_c + u_b: keys, queries and values for them.

Over orthogonal u of norm beta the logits x_j^T K^T Q x_i and the values are exact numbers. The
weights tend to those of the largest logits; what is lost, |weight - limit| times the distance of
the values, must vanish as well, also for the words that keep no weight. Nothing that can be written
tells one unused direction from another, so one of them stands for all.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np

from wherefrom.attention.equation import attend
from wherefrom.checker.assumptions import search_assumptions
from wherefrom.checker.asymptotics import asymptotics, follows
from wherefrom.checker.betas import least_beta, showing_beta
from wherefrom.checker.field import FLAT, Field, StepBudget, TooLargeError
from wherefrom.checker.goals import (
    Claim,
    Decision,
    certificate,
    decide,
    is_true,
    limit_value,
    limit_weights,
)
from wherefrom.checker.reading import Construction
from wherefrom.checker.results import BetaNeeded, CheckResult
from wherefrom.checker.spaces import (
    Arithmetic,
    Exact,
    Floats,
    Matrix,
    NoValueError,
    evaluate,
    orthonormal,
    word_values,
)

FAR_BETAS = (1e20, 1e40)  # where a miss that grows with beta shows, whatever its constants are
WORD_NAMES = ("x1", "x2", "x3")
ROUND_BETAS = (4, 10, 2, 100, 1000, 10**4, 10**6, 10**8, 10**10, 10**13, 10**16, 10**30, 10**60)
MEASURED_BETAS = (1.3, 2.0, 1.7)  # where exact logits are compared with measured ones
SEARCHED_BETAS = (24.0, 240.0)
MAX_DIGITS = 1300


@dataclass(frozen=True)
class Row:
    """The logits of one word, the values of all three, and what its context should be."""

    word: int
    logits: list[Any]  # numbers of the arithmetic that it was computed in
    values: list[list[Any]]
    goal: list[Any]


def judge(construction: Construction, draft: CheckResult, budget: StepBudget) -> CheckResult:
    return ThreeWords(construction, draft, budget).judge()


class ThreeWords:
    """The matrices of one construction over three words."""

    def __init__(self, construction: Construction, draft: CheckResult, budget: StepBudget) -> None:
        self.expressions = construction.expressions
        self.draft, self.budget, self.eps = draft, budget, draft.tolerance

    def rows(self, arithmetic: Arithmetic, u: Matrix, beta: Any) -> list[Row]:
        """Logits, values and goal of each word that has one."""
        names = word_values(u, beta)
        if "x2" in self.expressions:  # c2 may speak of the new x2
            names["x2"] = evaluate(self.expressions["x2"], arithmetic, names).ravel()
        written = {
            name: evaluate(expression, arithmetic, names)
            for name, expression in self.expressions.items()
            if name != "x2"
        }
        words = [arithmetic.matrix(names[x]) for x in WORD_NAMES]
        if "V" in written:
            u_b, u_c = (arithmetic.matrix(row) for row in u[1:3])
            goals = {1: u_b - u_c, 2: u_b}
            product = written.get("W")
            product = written["K"].T @ written["Q"] if product is None else product
            values = [written["V"] @ word for word in words]
        else:
            goals = {2: written["c2"]}
            product, values = None, words
        rows = []
        for i, goal in goals.items():
            query = words[i - 1] if product is None else product @ words[i - 1]
            logits = [(word.T @ query).item() for word in words]
            contents = [value.ravel().tolist() for value in values]
            rows.append(Row(i, logits, contents, goal.ravel().tolist()))
        return rows

    # ---- the verdict

    def judge(self) -> CheckResult:
        field = Field(self.budget, 1, 1)
        axes = Exact(field).matrix(np.eye(4, 5, dtype=int).astype(object))
        try:
            self.exact = self.rows(Exact(field), axes * field.beta, field.beta)
        except NoValueError as problem:
            sentence = f"with u_a..u_d along the axes: {problem.sentence}"
            because = f"the formula has no value: {problem.sentence}"
            return self.draft.refuted(because, sentence, {"d": 4})
        lines = [f"logits of word {x.word}: {', '.join(map(str, x.logits))}" for x in self.exact]
        self.draft = replace(self.draft, derived=tuple(lines))
        winners = [_winners(row) for row in self.exact]
        claims = [
            c for row, best in zip(self.exact, winners, strict=True) for c in _claims(row, best)
        ]
        decision = decide(field, claims)
        if all(winners) and decision.is_proved:
            return self.proved(decision, winners)
        for row, best in zip(self.exact, winners, strict=True):
            for claims, is_exact in _lost_values(row, best):
                because = "a word that loses its weight has a value that grows faster"
                if _are_true(claims) is False and is_exact and self.is_missed_far_off():
                    return self.refuted(because)
                if not _are_true(claims):
                    return self.draft.inconclusive(f"it is not decided whether {because}.")
        ends = [_end(row, best) for row, best in zip(self.exact, winners, strict=True)]
        if None in ends or any(pieces[0].sign is None for pieces in decision.pieces):
            return self.draft.inconclusive("exact algebra does not decide where a word ends.")
        error, sentence = max(filter(None, ends), key=lambda end: end[0])
        if error <= self.eps * (1 - 1e-9):
            sentence = sentence.replace(" and not to ", " and should tend to ")
            because = f"{sentence}: {error:.3g} beta off, which is within this tolerance."
            return self.with_figures(self.draft.holds(because))
        if error < self.eps * (1 + 1e-9):
            return self.draft.inconclusive(f"{sentence}: as far off as the tolerance allows.")
        return self.refuted(sentence)

    def proved(self, decision: Decision, winners: list[list[int]]) -> CheckResult:
        limits = []
        for row, best in zip(self.exact, winners, strict=True):
            shares = ", ".join(str(Fraction(int(j in best), len(best))) for j in range(3))
            limits.append(f"the weights of word {row.word} tend to ({shares})")
        because = f"for every d: {' and '.join(limits)}, whose values are the goal."
        result = self.draft.proved(because, certificate(decision, list(self.samples())))
        return self.with_figures(result) if result.verdict == "proved" else result

    def samples(self) -> Iterator[dict[str, Any]]:
        """Logits over drawn u, in floats: what the exact ones must agree with."""
        rng = np.random.default_rng(self.draft.seed)
        for beta in MEASURED_BETAS:
            floats = Floats(self.budget)
            try:
                rows = self.rows(floats, beta * orthonormal(4, 7, rng), beta)
            except (NoValueError, TooLargeError):
                continue
            sample: dict[str, Any] = {"n": 1, "beta": beta, "scale": floats.largest}
            for row in rows:
                sample["scale"] = max(sample["scale"], *(abs(float(x)) for x in row.logits))
                for i, x in enumerate(row.logits, start=1):
                    for j, y in enumerate(row.logits, start=1):
                        sample[f"{row.word}: {i} - {j}"] = float(x - y)
            yield sample

    def refuted(self, because: str) -> CheckResult:
        """With d = 4 and u along the axes, at the first round beta that shows it."""
        found = showing_beta(lambda beta: self.worst(beta)[0], self.eps, ROUND_BETAS)
        if found is None:
            return self.draft.inconclusive(f"{because}; but no beta that was tried shows it.")
        error, word, tables = self.worst(found[0])
        numbers: dict[str, Any] = {"beta": float(found[0]), "error": error}
        numbers |= {name: [round(x, 6) for x in table] for name, table in tables.items()}
        sentence = (
            f"with d = 4, beta = {found[0]:g} and u_a..u_d along the axes, "
            f"c{word} = {numbers[f'c{word}']} and the goal is {numbers['goal']}, "
            f"which is {error:.4g} beta from its goal; {self.eps:g} is allowed."
        )
        return self.draft.refuted(because + ".", sentence, {"d": 4}, numbers)

    def is_missed_far_off(self) -> bool:
        """Whether the goals are missed at large betas; what the values of several words that lose
        their weight add up to may also be the goal."""
        try:
            return all(self.worst(beta)[0] > self.eps for beta in FAR_BETAS)
        except TooLargeError:
            return False

    def worst(self, beta: float) -> tuple[float, int, dict[str, list[float]]]:
        """The word that is farthest from its goal with d = 4 and u along the axes: the distance in
        units of beta, the word, its weights, context and goal, with many digits."""
        if any("exp(beta)" in x.names for row in self.exact for v in row.values for x in v):
            raise TooLargeError  # such values may cancel beyond any number of digits
        found = []
        with mpmath.workdps(int(min(MAX_DIGITS, 60 + 20 * math.log10(max(beta, 10))))):
            for row in self.exact:
                table = [[x - row.logits[0] for x in row.logits], *row.values, row.goal]
                logits, *values, goal = (
                    [x.value(mpmath.mp, n=1, beta=mpmath.mpf(beta)) for x in numbers]
                    for numbers in table
                )
                masses = [mpmath.exp(max(x - max(logits), -10_000_000)) for x in logits]
                weights = [mass / sum(masses) for mass in masses]
                context = [
                    sum(w * v for w, v in zip(weights, entries, strict=True))
                    for entries in zip(*values, strict=True)
                ]
                gaps = [c - g for c, g in zip(context, goal, strict=True)]
                error = mpmath.sqrt(sum(gap**2 for gap in gaps)) / beta
                tables = {"weights": weights, f"c{row.word}": context[:4], "goal": goal[:4]}
                shown = {name: [*map(float, x)] for name, x in tables.items()}
                found.append((float(error), row.word, shown))
        return max(found, key=lambda word: word[0])

    # ---- figures

    def float_errors(self, u: Matrix, beta: float) -> dict[int, float]:
        """The distance of each word's context from its goal in units of beta, in floats."""
        errors = {}
        for row in self.rows(Floats(self.budget), u, beta):
            logits = np.array([row.logits], dtype=float)
            result = attend(logits, np.eye(3), np.array(row.values, dtype=float))
            errors[row.word] = float(np.linalg.norm(result.context[0] - row.goal)) / beta
        return errors

    def error_over(self, u: Matrix, beta: float) -> float:
        """The largest of them over u of this shape, 0 if it is allowed; nan without a value."""
        try:
            error = max(self.float_errors(beta * u, beta).values())
        except (NoValueError, TooLargeError):
            return math.nan
        return error if error > self.eps else 0.0

    def with_figures(self, result: CheckResult) -> CheckResult:
        axes = np.eye(4)
        needed = least_beta(lambda beta: self.error_over(axes, beta) == 0, (-1, 4))
        if needed is None:
            note = "the beta that is needed is beyond what is computed."
            return replace(result, notes=(*result.notes, note))
        formula = "error(beta) <= eps*beta from this beta on"
        with contextlib.suppress(NoValueError, TooLargeError):  # as in u_a/(beta - 2)
            errors = self.float_errors(2 * axes, 2.0).items()
            at_two = ", ".join(f"|c{word} - goal| = {2 * error:.4f}" for word, error in errors)
            formula += f" (at beta = 2: {at_two})"
        beta = BetaNeeded(formula, needed, 3, {3: needed})
        drawn = [orthonormal(4, 7, np.random.default_rng(self.draft.seed))]
        found = search_assumptions("u", drawn, 4, self.error_over, SEARCHED_BETAS, self.draft.seed)
        return replace(result, beta=beta, assumptions=tuple(found))


def _winners(row: Row) -> list[int]:
    """The words over which no other logit grows; [] if their logits differ or are unknown."""
    best = []
    for j, logit in enumerate(row.logits):
        pieces = [asymptotics(other - logit)[0] for other in row.logits]
        if any(piece.sign is None for piece in pieces):
            return []
        if not any(follows("grows", piece.order, piece.sign or 0) for piece in pieces):
            best.append(j)
    return best


def _claims(row: Row, best: list[int]) -> Iterator[Claim]:
    """What makes the context of a word tend to its goal, in units of beta."""
    if not best:
        return
    first = best[0]
    for j, logit in enumerate(row.logits):
        if j not in best:
            yield Claim(row.logits[first] - logit, "grows", f"{row.word}: {first + 1} - {j + 1}")
    field = row.logits[0].field
    share = field.number(Fraction(1, len(best)))
    for entry, goal in enumerate(row.goal):
        values = [row.values[j][entry] for j in best]
        mean = sum(values[1:], values[0]) * share
        yield Claim((mean - goal) / field.beta, "vanishes")
        for j, value in itertools.product(best[1:], values[1:]):
            gap = row.logits[j] - row.logits[first]
            yield Claim(gap * (value - values[0]) / field.beta, "vanishes")
    for j in best[1:]:
        gap = row.logits[first] - row.logits[j]
        yield Claim(gap, "vanishes", f"{row.word}: {first + 1} - {j + 1}")
    for claims, _ in _lost_values(row, best):
        yield from claims


def _lost_values(row: Row, best: list[int]) -> Iterator[tuple[list[Claim], bool]]:
    """For the words that lose their weight e^-lead, and each entry of their values that grows, in
    units of beta, as e^(p beta) beta^q at most: lead - p beta - q log(beta) grows. And whether it
    grows as fast as that, so that the claim is necessary as well."""
    for j in range(len(row.logits) if best else 0):
        lead = row.logits[best[0]] - row.logits[j]
        field = lead.field
        for value, first in zip(row.values[j], row.values[best[0]], strict=True):
            distance = (value - first) / field.beta
            (piece,) = asymptotics(distance)
            if j in best or piece.sign == 0 or (piece.sign and piece.order <= FLAT):
                continue
            exponential, power, slower = piece.order
            power += slower > 0
            log = field.symbol("log(beta)") * field.number(power)
            rest = lead - field.beta * field.number(exponential) - log
            scale = field.symbol("exp(beta)", -exponential) * field.symbol("beta", -power - 1)
            yield [Claim(distance * scale, "vanishes"), Claim(rest, "grows")], slower == 0


def _are_true(claims: list[Claim]) -> bool | None:
    """None if one is unknown and none is false."""
    truths = [is_true(asymptotics(claim.number)[0], claim.must) for claim in claims]
    return False if False in truths else None if None in truths else True


def _end(row: Row, best: list[int]) -> tuple[float, str] | None:
    """How far the context of a word ends from its goal, in units of beta, and a sentence; None if
    that is not clear: values that grow against each other, or unknown signs."""
    weights = limit_weights([row.logits[j] for j in best], 1) if best else None
    if weights is None:
        return None
    beta = row.logits[0].field.beta
    contexts, goals = [], []
    for entry, goal in enumerate(row.goal):
        parts = [limit_value(row.values[j][entry] / beta, 1) for j in best]
        if len(best) > 1 and any(map(math.isinf, parts)):
            return None
        contexts.append(float(sum(w * x for w, x in zip(weights, parts, strict=True))))
        goals.append(limit_value(goal / beta, 1))
    if any(map(math.isnan, contexts)) or not all(map(math.isfinite, goals)):
        return None
    shares = [0.0] * len(row.logits)
    for j, weight in zip(best, weights, strict=True):
        shares[j] = round(float(weight), 4)
    sentence = (
        f"the weights of word {row.word} tend to ({', '.join(f'{x:g}' for x in shares)}), so "
        f"c{row.word} tends to {_in_u(contexts)} and not to {_in_u(goals)}"
    )
    return math.hypot(*(c - g for c, g in zip(contexts, goals, strict=True))), sentence


def _in_u(coefficients: list[float]) -> str:
    """Coefficients of u_a..u_d as a sum that could be written again."""
    terms = []
    for name, x in zip("abcd", coefficients, strict=False):
        if math.isinf(x):
            terms.append(f"{'-' if x < 0 else ''}(without bound) u_{name}")
        elif abs(x) > 1e-12:
            factor = {"1": "", "-1": "-"}.get(f"{x:.4g}", f"{x:.4g}*")
            terms.append(f"{factor}u_{name}")
    return " + ".join(terms).replace("+ -", "- ") or "0"
