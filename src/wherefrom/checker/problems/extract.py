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
DRAWN_SIZES = ((1, 1, 0), (2, 3, 0), (3, 2, 5))
MIXES = "no small basis refutes it; it mixes R^d with the columns of S, or has no exact form."
Sides = tuple[str, str]  # the spaces of rows and columns
AMBIENT, NUMBERING, EITHER = "R^d", "columns of S", "either"


def judge(construction: Construction, draft: CheckResult, budget: StepBudget) -> CheckResult:
    bases = Bases(construction.expressions["M"], draft, budget)
    try:
        if not set(_sides(bases.expression.tree)) <= {AMBIENT, EITHER}:
            raise NotExactError
        return bases.judge_exactly()
    except NotExactError:
        return bases.counterexample("M (v_a + v_b) is not v_a") or draft.inconclusive(MIXES)
    except NoValueError as problem:
        return bases.judge_without_value(problem.sentence)


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
        decision = decide(field, claims + [Claim(entry, "zero") for entry in mixed])
        if decision.is_proved:
            because = "M A = A and M B = 0 for all sizes, by A^T A = I, B^T B = I and A^T B = 0."
            result = self.draft.proved(because, certificate(decision, list(self.samples())))
            return replace(result, assumptions=tuple(self.assumptions()))
        wrong = _faults(keeps, leaks)
        if max(map(_largest, (keeps - one, leaks, *mixed))) > self.draft.tolerance:
            no_basis = f"{wrong}; but no small basis shows it."
            return self.counterexample(wrong) or self.draft.inconclusive(no_basis)
        return self.draft.holds(
            f"right only within this tolerance: {wrong}. The gap is the same for every size."
        )

    def gaps(self, values: Values) -> tuple[dict[str, float], float]:
        """The largest entries of M A - A and M B over these bases in floats, and of all values on
        the way, to which rounding is relative."""
        floats = Floats(self.budget)
        M = evaluate(self.expression, floats, values)
        gaps = {"M A - A": M @ values["A"] - values["A"], "M B": M @ values["B"]}
        return {name: float(np.abs(gap).max()) for name, gap in gaps.items()}, floats.largest

    def samples(self) -> Iterator[dict[str, Any]]:
        """What was measured on drawn bases, which the exact blocks must agree with."""
        for m, p, r in DRAWN_SIZES:
            columns = orthonormal(m + p + r, m + p + r, self.rng).T
            try:
                gaps, largest = self.gaps(space_values(columns, m, p))
            except (NoValueError, TooLargeError):
                continue
            yield {"n": 1, "beta": 1.0, "scale": largest, **gaps}

    def judge_without_value(self, no_value: str) -> CheckResult:
        """Refuted, if a small basis has no value either; no_value: what the blocks have none of."""
        for values, sizes in _small_bases():
            try:
                evaluate(self.expression, Exact(Field(self.budget, 1, 1)), values)
            except NoValueError as problem:
                sentence = f"with d = {sizes['d']}: {problem.sentence}"
                return self.draft.refuted(f"M has no value: {no_value}", sentence, sizes)
            except (NotExactError, TooLargeError):
                continue
        return self.draft.inconclusive(f"in the basis [A, B, C] it has no value: {no_value}")

    def counterexample(self, because: str) -> CheckResult | None:
        """The smallest standard or turned basis and the simplest v_a and v_b that M gets wrong,
        computed in fractions: a factor of 1e12 would make an error out of rounding."""
        for values, sizes in _small_bases():
            try:
                M = evaluate(self.expression, Exact(Field(self.budget, 1, 1)), values)
            except (NotExactError, NoValueError, TooLargeError):
                continue
            v_a, v_b = (values[name].sum(axis=1) for name in "AB")
            for pair in ((v_a, 0 * v_b), (0 * v_a, v_b), (v_a, v_b)):
                found = self.misses(because, values | {"M": M}, pair, sizes)
                if found is not None:
                    return found
        return None

    def misses(
        self, because: str, values: Values, pair: tuple[Matrix, Matrix], sizes: dict[str, int]
    ) -> CheckResult | None:
        """Refuted, if M misses v_a by more than the tolerance."""
        M, (v_a, v_b) = values["M"], pair
        number = M[0, 0].field.number
        s = [number(x) for x in v_a + v_b]
        got = [sum((x * y for x, y in zip(row, s, strict=True)), number(0)) for row in M]
        gaps = [_largest(x - number(y)) for x, y in zip(got, v_a, strict=True)]
        error = math.hypot(*gaps) / sum(math.hypot(*map(float, v)) for v in pair)
        if error <= self.draft.tolerance:
            return None
        tables = {"A": values["A"], "B": values["B"], "M": M, "v_a": v_a, "v_b": v_b, "M s": got}
        numbers = shown({name: np.vectorize(_float)(x) for name, x in tables.items()}, [*tables])
        sentence = (
            f"with d = {sizes['d']}, v_a = {numbers['v_a']} and v_b = {numbers['v_b']}, "
            f"M s = {numbers['M s']}, off by {error:.2g}."
        )
        return self.draft.refuted(because + ".", sentence, sizes, numbers)

    def assumptions(self) -> Iterator[Assumption]:
        """Each assumption given up on bases drawn at random, the smallest sizes first."""
        for name in ("bases that are orthonormal", "spaces that are orthogonal"):
            used, evidence = None, f"no counterexample in {len(DRAWN_SIZES)} sets of drawn bases"
            for m, p, r in DRAWN_SIZES:
                S = orthonormal(m + p + r, m + p + r, self.rng).T.copy()
                if name.startswith("bases"):
                    S[:, :m] *= 1.3
                    S[:, m : m + p] *= 0.8
                else:
                    S[:, m : m + p] += S[:, :m] @ self.rng.uniform(0.2, 0.5, size=(m, p))
                try:
                    error = max(self.gaps(space_values(S, m, p))[0].values())
                except (NoValueError, TooLargeError):
                    continue
                if error > max(self.draft.tolerance, 1e-9):
                    used = True
                    evidence = f"with d = {m + p + r}, m = {m} and p = {p}, M errs by {error:.2g}"
                    break
            yield Assumption(name, used, evidence)


def space_values(S: Matrix, m: int, p: int) -> Values:
    """A, B, C, S, D and I of one instance."""
    ones = [1] * m + [0] * (len(S) - m)
    values = {"A": S[:, :m], "B": S[:, m : m + p], "C": S[:, m + p :], "S": S}
    return values | {"D": np.diag(ones), "I": np.eye(len(S), dtype=int)}


def _small_bases() -> Iterator[tuple[Values, dict[str, int]]]:
    """Bases in fractions along the axes, then turned by angles with the cosine 3/5; their sizes."""
    for turned, (m, p, r) in itertools.product((False, True), SMALL_SIZES):
        size = m + p + r
        S = np.array([[Fraction(i == j) for j in range(size)] for i in range(size)])
        for i in [*range(size - 1), *range(size - 1)] if turned else []:
            first, second = S[i].copy(), S[i + 1].copy()
            S[i] = first * Fraction(3, 5) - second * Fraction(4, 5)
            S[i + 1] = first * Fraction(4, 5) + second * Fraction(3, 5)
        yield space_values(S, m, p), {"d": size, "m": m, "p": p}


def _faults(keeps: Number, leaks: Number) -> str:
    faults = []
    if str(keeps) != "1":
        faults.append(f"it returns {_multiple(keeps, 'v_a')} where v_a is wanted")
    if str(keeps) == "2" and leaks.is_zero:
        faults.append("which is right for the average (v_a + v_b)/2 and not for the sum")
    if not leaks.is_zero:
        faults.append(f"it lets {_multiple(leaks, 'v_b')} through")
    return ", ".join(faults) or "M (v_a + v_b) is not v_a"


def _multiple(factor: Number, name: str) -> str:
    return {"0": "0", "1": name}.get(str(factor), f"{factor} {name}")


def _interval(x: Number) -> Any:
    return enclose(x.field, x.top, 1) / enclose(x.field, x.bottom, 1)


def _largest(x: Number) -> float:
    """At least the absolute value of a number."""
    return 0.0 if x.is_zero else float(max(abs(_interval(x).a), abs(_interval(x).b)))


def _float(x: Any) -> float:
    return float(_interval(x).mid) if isinstance(x, Number) else float(x)


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
    identity = EITHER in first or EITHER in last
    other = last if EITHER in first else first
    square = other[0] == other[1]
    match node.op:
        case "*" | "/":
            return last if first == ("1", "1") else first
        case "transpose" | "inv" | "pinv":
            return first[::-1]
        case "@" if identity:
            return other
        case "@" if first[1] == last[0]:
            return first[0], last[1]
        case "+" | "-" if first == last or (identity and square):
            return other
        case "**" if square:
            return first
        case "hstack" if all(part[0] == AMBIENT for part in parts):
            columns = [part[1] for part in parts]
            return (AMBIENT, NUMBERING if columns == ["A", "B", "C"] else "+".join(columns))
    if all(part == ("1", "1") for part in parts):
        return ("1", "1")
    raise NotExactError
