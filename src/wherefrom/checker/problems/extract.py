"""M A = A and M B = 0: a matrix that takes v_a back out of v_a + v_b.

R^d is the sum of the spans of A, of B and of the rest, and nothing that can be written tells the
directions within one of them apart. So in the basis S = [A, B, C] every formula is a multiple of
the identity on each span, and m = p = r = 1 decides it for all sizes. That is so for formulas that
keep two spaces apart: R^d, in which A and the rows of S live, and the numbering of the columns of
S, in which D lives. A formula such as D S D mixes them, and is tried on small bases only.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from wherefrom.checker.asymptotics import enclose
from wherefrom.checker.field import Field, NotExactError, Number, StepBudget, TooLargeError
from wherefrom.checker.goals import Claim, certificate, decide
from wherefrom.checker.grammar import Expression, Node
from wherefrom.checker.problems.equality import space_blocks
from wherefrom.checker.reading import Construction
from wherefrom.checker.results import Assumption, CheckResult
from wherefrom.checker.spaces import (
    Exact,
    Floats,
    Matrix,
    NoValueError,
    Values,
    evaluate,
    orthonormal,
    shown,
)

SMALL_SIZES = ((1, 1, 0), (1, 1, 1), (2, 1, 0), (1, 2, 0), (2, 1, 1))  # m, p, r
DRAWN_SIZES = ((1, 1, 0), (2, 3, 0), (3, 2, 5), (5, 7, 1), (11, 3, 2))
Sides = tuple[str, str]  # the spaces of rows and columns
AMBIENT, NUMBERING, EITHER = "R^d", "columns of S", "either"


def judge(construction: Construction, draft: CheckResult, budget: StepBudget) -> CheckResult:
    expression = construction.expressions["M"]
    bases = Bases(expression, draft, budget)
    try:
        if not set(_sides(expression.tree)) <= {AMBIENT, EITHER}:
            raise NotExactError
        return bases.judge_exactly()
    except NotExactError:
        return bases.judge_on_bases("")
    except NoValueError as problem:
        return bases.judge_on_bases(problem.sentence)


class Bases:
    """One matrix M over exact blocks and over drawn bases."""

    def __init__(self, expression: Expression, draft: CheckResult, budget: StepBudget) -> None:
        self.expression, self.draft, self.budget = expression, draft, budget
        self.rng = np.random.default_rng(draft.seed)

    def judge_exactly(self) -> CheckResult:
        """By the multiples of the identity on the three spans."""
        field = Field(self.budget, 1, 1)
        M = evaluate(self.expression, Exact(field), space_blocks())
        keeps, leaks = M[0, 0], M[1, 1]
        derived = (f"M A = {_multiple(keeps, 'A')}", f"M B = {_multiple(leaks, 'B')}")
        self.draft = replace(self.draft, derived=derived)
        one = field.number(1)
        claims = [Claim(keeps - one, "zero", "M A - A"), Claim(leaks, "zero", "M B")]
        mixed = (M[1, 0], M[2, 0], M[0, 1], M[2, 1])
        claims += [Claim(entry, "zero") for entry in mixed]
        decision = decide(field, claims)
        if decision.is_proved:
            because = "M A = A and M B = 0 for all sizes, by A^T A = I, B^T B = I and A^T B = 0."
            result = self.draft.proved(because, certificate(decision, list(self.samples())))
            return replace(result, assumptions=tuple(self.assumptions()))
        wrong = self.faults(keeps, leaks)
        gaps = (_largest(keeps - one), *map(_largest, (leaks, *mixed)))
        if max(gaps) > self.draft.tolerance:
            return self.refuted(wrong)
        return self.draft.holds(
            f"right only within this tolerance: {wrong}. The gap is the same for every size."
        )

    def faults(self, keeps: Number, leaks: Number) -> str:
        faults = []
        if str(keeps) != "1":
            faults.append(f"it returns {_multiple(keeps, 'v_a')} where v_a is wanted")
        if str(keeps) == "2" and leaks.is_zero:
            faults.append("which is right for the average (v_a + v_b)/2 and not for the sum")
        if not leaks.is_zero:
            faults.append(f"it lets {_multiple(leaks, 'v_b')} through")
        return ", ".join(faults) or "M (v_a + v_b) is not v_a"

    def samples(self) -> Iterator[dict[str, Any]]:
        """What was measured on drawn bases, which the exact blocks must agree with."""
        for sizes in DRAWN_SIZES[:3]:
            values = space_instance(*sizes, self.rng)
            floats = Floats(self.budget)
            try:
                M = evaluate(self.expression, floats, values)
            except (NoValueError, TooLargeError):
                continue
            gaps = {"M A - A": M @ values["A"] - values["A"], "M B": M @ values["B"]}
            sample: dict[str, Any] = {name: float(np.abs(gap).max()) for name, gap in gaps.items()}
            yield {"n": 1, "beta": 1.0, "scale": floats.largest, **sample}

    def judge_on_bases(self, no_value: str) -> CheckResult:
        """On the smallest bases; no_value: what blocks have none of."""
        found = self.counterexample("M (v_a + v_b) is not v_a", no_value)
        if found is not None:
            return found
        if no_value:
            return self.draft.inconclusive(f"in the basis [A, B, C] it has no value: {no_value}")
        return self.draft.inconclusive(
            "no small basis refutes it; it mixes R^d with the columns of S, or has no exact form."
        )

    def error(self, values: Values) -> float:
        """|M s - v_a| / (|v_a| + |v_b|) for vectors drawn from the two spans."""
        M = evaluate(self.expression, Floats(self.budget), values)
        v_a, v_b = (
            values[name] @ self.rng.standard_normal((values[name].shape[1], 1)) for name in "AB"
        )
        missed = M @ (v_a + v_b) - v_a
        return float(np.linalg.norm(missed) / (np.linalg.norm(v_a) + np.linalg.norm(v_b)))

    def refuted(self, because: str) -> CheckResult:
        found = self.counterexample(because, "")
        return found or self.draft.inconclusive(f"{because}; but no small basis shows it.")

    def counterexample(self, because: str, no_value: str) -> CheckResult | None:
        """The smallest standard or turned basis and the simplest v_a and v_b that M gets wrong,
        computed in fractions: a factor of 1e12 would make an error out of rounding."""
        for turned, size in itertools.product((False, True), SMALL_SIZES):
            values = fraction_bases(*size, turned)
            sizes = {"d": len(values["A"]), "m": values["A"].shape[1], "p": values["B"].shape[1]}
            try:
                M = evaluate(self.expression, Exact(Field(self.budget, 1, 1)), values)
            except NoValueError as problem:
                if no_value:
                    sentence = f"with d = {sizes['d']}: {problem.sentence}"
                    return self.draft.refuted(f"M has no value: {no_value}", sentence, sizes)
                continue
            except (NotExactError, TooLargeError):
                continue
            for v_a, v_b in _simple_vectors(values):
                found = self.misses(because, values | {"M": M, "v_a": v_a, "v_b": v_b}, sizes)
                if found is not None:
                    return found
        return None

    def misses(self, because: str, values: Values, sizes: dict[str, int]) -> CheckResult | None:
        """Refuted, if M misses v_a by more than the tolerance."""
        M, v_a, v_b = values["M"], values["v_a"], values["v_b"]
        number = M[0, 0].field.number
        s = [number(x) for x in (v_a + v_b).ravel()]
        got = [sum((x * y for x, y in zip(row, s, strict=True)), number(0)) for row in M]
        gaps = [_largest(x - number(y)) for x, y in zip(got, v_a.ravel(), strict=True)]
        length = sum(math.hypot(*map(float, v.ravel())) for v in (v_a, v_b))
        error = math.hypot(*gaps) / length
        if error <= self.draft.tolerance:
            return None
        floats = {name: np.vectorize(float)(values[name]) for name in ("A", "B", "v_a", "v_b")}
        floats |= {"M": np.vectorize(_float)(M), "M s": np.array([_float(x) for x in got])}
        floats |= {name: floats[name].ravel() for name in ("v_a", "v_b")}
        numbers = shown(floats, ("A", "B", "M", "v_a", "v_b", "M s"))
        sentence = (
            f"with d = {sizes['d']}, v_a = {numbers['v_a']} and v_b = {numbers['v_b']}, "
            f"M s = {numbers['M s']}, off by {error:.2g}."
        )
        return self.draft.refuted(because + ".", sentence, sizes, numbers)

    def assumptions(self) -> Iterator[Assumption]:
        """Each assumption given up on bases drawn at random, the smallest sizes first."""
        for name in ("bases that are orthonormal", "spaces that are orthogonal"):
            # both sides are analytic in the bases: what holds at random points holds everywhere
            used: bool | None = False
            evidence = "M A = A and M B = 0 over bases of five sizes drawn without it, so over all"
            for m, p, r in DRAWN_SIZES:
                straight = space_instance(m, p, r, self.rng)
                A, B, C = (straight[part] for part in "ABC")
                if name.startswith("bases"):
                    A = A @ (np.eye(m) + 0.4 * self.rng.standard_normal((m, m)) / np.sqrt(m)) * 1.3
                    B = B @ (np.eye(p) + 0.4 * self.rng.standard_normal((p, p)) / np.sqrt(p)) * 0.8
                else:
                    B = B + A @ self.rng.uniform(0.2, 0.5, size=(m, p)) / np.sqrt(m)
                values = space_values(A, B, C)
                try:
                    error = self.error(values)
                except (NoValueError, TooLargeError):
                    used, evidence = None, "on some bases without it the formula has no value"
                    continue
                if error > max(self.draft.tolerance, 1e-9):
                    bases = ", ".join(f"{x} = {y}" for x, y in shown(values, ("A", "B")).items())
                    evidence = f"with d = {m + p + r}, {bases}, M s misses v_a by {error:.2g}"
                    used = True
                    break
            yield Assumption(name, used, evidence)


def space_values(A: Matrix, B: Matrix, C: Matrix) -> Values:
    """A, B, C, S, D and I of one instance."""
    S = np.hstack([A, B, C])
    ones = [1.0] * A.shape[1] + [0.0] * (len(S) - A.shape[1])
    return {"A": A, "B": B, "C": C, "S": S, "D": np.diag(ones), "I": np.eye(len(S))}


def space_instance(m: int, p: int, r: int, rng: np.random.Generator | None = None) -> Values:
    columns = orthonormal(m + p + r, m + p + r, rng).T
    return space_values(columns[:, :m], columns[:, m : m + p], columns[:, m + p :])


def fraction_bases(m: int, p: int, r: int, turned: bool) -> Values:
    """Bases along the axes, or turned by angles with the cosine 3/5, in fractions."""
    size = m + p + r
    S = np.array([[Fraction(i == j) for j in range(size)] for i in range(size)])
    for i in [*range(size - 1), *range(size - 1)] if turned else []:
        first, second = S[i].copy(), S[i + 1].copy()
        S[i] = first * Fraction(3, 5) - second * Fraction(4, 5)
        S[i + 1] = first * Fraction(4, 5) + second * Fraction(3, 5)
    values = space_values(S[:, :m], S[:, m : m + p], S[:, m + p :])
    return values | {"D": values["D"].astype(int), "I": values["I"].astype(int)}


def _float(x: Number) -> float:
    value = enclose(x.field, x.top, 1) / enclose(x.field, x.bottom, 1)
    return float(value.mid)


def _simple_vectors(values: Values) -> list[tuple[Matrix, Matrix]]:
    v_a, v_b = (values[name].sum(axis=1, keepdims=True) for name in "AB")
    return [(v_a, 0 * v_b), (0 * v_a, v_b), (v_a, v_b)]


def _multiple(factor: Number, name: str) -> str:
    return {"0": "0", "1": name}.get(str(factor), f"{factor} {name}")


def _largest(x: Number) -> float:
    """At least the absolute value of a number."""
    if x.is_zero:
        return 0.0
    value = enclose(x.field, x.top, 1) / enclose(x.field, x.bottom, 1)
    return float(max(abs(value.a), abs(value.b)))


def _sides(node: Node) -> Sides:
    """The spaces that a matrix maps from and to; NotExactError if R^d and the columns of S are
    mixed. The identity fits both."""
    if node.op == "number":
        return ("1", "1")
    if node.op == "name":
        own = {"S": (AMBIENT, NUMBERING), "D": (NUMBERING, NUMBERING), "I": (EITHER, EITHER)}
        return own.get(node.name, (AMBIENT, node.name))
    parts = [_sides(part) for part in node.arguments]
    first, last = parts[0], parts[-1]
    match node.op:
        case "*" | "/":
            return last if first == ("1", "1") else first
        case "+" | "-" | "**" | "@":
            return _sides_of_operation(node.op, first, last)
        case "transpose" | "inv" | "pinv":
            return first[::-1]
        case "hstack" if all(part[0] == AMBIENT for part in parts):
            columns = [part[1] for part in parts]
            return (AMBIENT, NUMBERING if columns == ["A", "B", "C"] else "+".join(columns))
    if all(part == ("1", "1") for part in parts):
        return ("1", "1")
    raise NotExactError


def _sides_of_operation(op: str, first: Sides, last: Sides) -> Sides:
    if op == "@":
        if EITHER in first:
            return last
        if EITHER in last:
            return first
        if first[1] == last[0]:
            return first[0], last[1]
    elif op == "**":
        if first[0] == first[1]:
            return first
    elif first == last:
        return first
    elif EITHER in first and last[0] == last[1]:
        return last
    elif EITHER in last and first[0] == first[1]:
        return first
    raise NotExactError
