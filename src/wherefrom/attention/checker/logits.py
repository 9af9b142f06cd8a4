"""Written queries as logits, and what becomes of them as beta grows, at one n or at every n.

Nothing that can be written tells the other keys apart, so a query is one logit per group of keys.
"""

from __future__ import annotations

import contextlib
import decimal
import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from wherefrom.attention.checker.algebra import Field, NotExactError, Scalar, Trend
from wherefrom.attention.checker.instances import Digits, Exact, Floats, Numeric, grouped_keys
from wherefrom.attention.checker.language import Construction, ExpressionError, evaluate
from wherefrom.attention.checker.reading import say
from wherefrom.attention.equation import softmax_over_keys

Head = tuple[float, ...]  # logits of a (at e = 1), of b, of each other key
# what happens at one n as beta grows: is the goal reached (None: unknown), the limit of what must
# be small, and a sentence
Reading = tuple[bool | None, float, str]

# the ladder of factors on which "for large beta" is looked at in numbers
RUNGS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1e3, 2e3, 5e3, 1e4, 1e5, 1e6)
HIGH_RUNGS = (1e7, 1e8, 1e9, 1e10, 1e12, 1e14, 1e16, 1e18, 1e20, 1e25, 1e30, 1e45, 1e60, 1e90)
BEYOND = 1e120  # with very many digits
FAR = [1e3, 1e6, 1e9]  # where the limit of a failure probability is read off
LARGEST = 1e290  # logit that is computed with
EVERY_N = 30  # every n up to here is looked at
LADDER_N = (40, 60, 100, *(10**k for k in (3, 4, 5, 6, 9, 12, 20, 40, 80, 160, 240, 300)))
NUMBERS_N = 10**6  # beyond it floats forget a difference such as n*n - (n*n-1)
SD = math.sqrt(0.5)  # of the length e
RISK = 0.05  # the share of samples that may miss the tolerance
REACH = 9.0  # standard deviations beyond which nothing is counted: 1e-18


class Queries:
    """The queries of one construction as logits of groups of keys: exact, or at one beta and n."""

    def __init__(self, construction: Construction, eps: float = 0.01) -> None:
        self.expressions = construction.expressions
        self.problem = construction.problem
        self.groups = tuple(self.problem.target)
        self.named = len(self.groups) - 1
        self.stretched = self.problem.noise == "stretched"
        self.eps = eps  # the share of the weight that may be misplaced
        self.limit = RISK if self.stretched else eps  # of `error`
        self.field = field = Field(self.problem.least_n)
        self.exact: list[dict[str, Scalar]] = []  # the logits of each head, if they are known
        self.gaps: list[dict[tuple[str, str], Scalar]] = []  # and their differences
        self.at_n: dict[int, Numeric] = {}  # the keys in numbers
        with contextlib.suppress(NotExactError):
            root = field.function("sqrt", field.n - field.rational(self.named))
            algebra = Exact(field, grouped_keys(self.problem, field.beta, field.n, root))
            rows = self.heads_in(algebra, root)
            heads = [dict(zip(self.groups, row, strict=True)) for row in rows]
            self.gaps = [{(g, h): x[g] - x[h] for g in x for h in x} for x in heads]
            self.exact = heads
        moving = any(x.moves for head in self.exact for x in head.values())
        named = any("beta" in expression.names for expression in self.expressions.values())
        self.uses_beta = moving if self.exact else named
        self.logits = cache(self.compute_logits)

    def heads_in(self, algebra: Numeric, root: Any) -> list[tuple[Any, ...]]:
        """For each query the logit of each group, over `grouped_keys` with this root."""
        queries = [evaluate(x, algebra).ravel().tolist() for x in self.expressions.values()]
        return [(*q[: self.named], q[self.named] / root) for q in queries]

    def is_exact_at(self, n: int) -> bool:
        return bool(self.exact) and not self.field.has_doubt(n)

    def compute_logits(self, beta: float, n: int) -> list[Head]:
        """For each query the logit of each group; ExpressionError where there is no value."""
        if not self.is_exact_at(n):
            root = math.sqrt(n - self.named)
            if n not in self.at_n:
                self.at_n[n] = Numeric(grouped_keys(self.problem, beta, n, root))
            algebra = self.at_n[n]
            algebra.values["beta"] = algebra.matrix(beta)
            return self.heads_in(algebra, root)
        source = next(iter(self.expressions.values())).source
        try:
            heads = [tuple(x.at(beta, n) for x in head.values()) for head in self.exact]
        except ZeroDivisionError:
            raise ExpressionError("this divides by zero.", source, 1) from None
        except OverflowError:
            heads = [(math.inf,)]
        if max(abs(x) for head in heads for x in head) > LARGEST:
            sentence = f"the numbers become too large to compute with here (above {LARGEST:g})."
            raise ExpressionError(sentence, source, 1, too_large=True)
        return heads

    def weights_at(self, n: int, beta: float, e: float) -> Floats:
        """The weight of each group, averaged over the heads, where k_a has the length e.
        One head without noise is computed from exact differences, so that large logits keep their
        digits."""
        heads = np.array(self.logits(beta, n))
        if self.is_exact_at(n) and not self.stretched:
            with contextlib.suppress(ZeroDivisionError, OverflowError):
                first = self.groups[0]
                heads = np.array([[self.gaps[0][g, first].at(beta, n) for g in self.groups]])
        heads[:, 0] *= e
        return np.asarray(self.weights(heads, n).mean(axis=0))

    def usable(self, rungs: Sequence[float], n: int, most: int = 100) -> list[float]:
        """The last `most` factors of a ladder at which the queries have values that fit."""
        usable: list[float] = []
        for beta in reversed(rungs):
            with contextlib.suppress(ExpressionError):
                self.logits(beta, n)
                usable.insert(0, beta)
            if len(usable) == most:
                break
        return usable

    def first_usable(self, n: int, least: float = 10.0) -> float | None:
        """The first factor from `least` on at which there is a value, or the last below it."""
        rungs = self.usable(RUNGS + HIGH_RUNGS, n)
        return min((beta for beta in rungs if beta >= least), default=max(rungs, default=None))

    def weights(self, logits: ArrayLike, n: int) -> Floats:
        """The weight of each group, all of its keys together, along the last axis."""
        counts = np.array([1] * self.named + [n - self.named], dtype=float)
        return np.asarray(softmax_over_keys(np.asarray(logits) + np.log(counts)))

    def distance(self, weights: Floats) -> Floats:
        """The misplaced share: half the sum of |weight - wanted| over the groups."""
        return np.asarray(0.5 * np.abs(weights - [*self.problem.target.values()]).sum(axis=-1))

    def error(self, heads: Sequence[Head], n: int) -> float:
        """What must be small: the misplaced share, or how often it exceeds eps."""
        if self.stretched:
            return failure_probability(heads, n, self.eps)[0]
        return float(self.distance(self.weights(heads[0], n)))

    def trend(self, g: str, h: str, n: int | None = None, head: int = 0) -> Trend:
        """What becomes of the gap between the logits of two groups."""
        return self.field.trend(self.gaps[head][g, h], n)

    def proved(self) -> bool:
        """Do the weights tend to the target for every n, as far as algebra can see?"""
        if not self.exact or self.field.doubts:
            return False
        if self.stretched:
            fates = [self._fate(i) for i in range(len(self.exact))]
            known = [fate for fate in fates if fate is not None]
            return len(known) == len(fates) and 2 * sum(known) == len(fates)
        first, *rest = self.groups[: self.named]
        agree = all(self.trend(g, first).kind == "zero" for g in rest)
        return agree and self.trend(first, "others").kind == "up"

    def _fate(self, i: int) -> Fraction | None:
        """The limit of one head's weight on a, if it is the same for every length e that is not set
        aside and b has the rest; else None."""
        a, b, other = (self.field.trend(self.exact[i][g]) for g in ("a", "b", "others"))
        along = [self.field.trend(head["a"]) for head in self.exact]
        # e < 0 is set aside if one of several heads looks along mu_a
        positive = len(along) > 1 and any(t.kind == "up" or (t.value or 0) > 0 for t in along)
        if a.kind == b.kind == "zero" and other.kind == "down":
            return Fraction(1, 2)
        if _outgrows(a, b, "up", positive) and _outgrows(a, other, "up", positive):
            return Fraction(1)
        if self.trend("b", "others", head=i).kind == "up" and _outgrows(a, b, "down", positive):
            return Fraction(0)
        return None

    def readings(self) -> dict[int, Reading]:
        """What happens for large beta at each n that is looked at: all small n, a ladder, and every
        n at which a coefficient changes its sign; only the smallest n that fails, if one does."""
        exact = [*(gap for head in self.gaps for gap in head.values()), *self.field.doubts]
        turns = {m for x in exact for n in self.field.critical_n(x) for m in (n - 1, n)}
        readings: dict[int, Reading] = {}
        least = self.problem.least_n
        for n in sorted({*range(least, EVERY_N + 1), *LADDER_N, *turns} - set(range(least))):
            if not self.exact and n > NUMBERS_N:
                break
            try:
                reading = self.reading_at(n)
            except ExpressionError:  # too large for numbers
                if n <= EVERY_N:
                    raise
                break
            if reading[0] is None and n > EVERY_N:
                break
            if reading[0] is False:
                good, bad = max(readings, default=n), n
                while bad - good > 1:
                    middle = (good + bad) // 2
                    failed = self.reading_at(middle)[0] is False
                    good, bad = (good, middle) if failed else (middle, bad)
                return {bad: self.reading_at(bad)}
            readings[n] = reading
        return readings

    def reading_at(self, n: int) -> Reading:
        """By the limit of the weights where it is clear, else by a ladder of numbers."""
        try:
            if self.stretched or not self.is_exact_at(n):
                return self._ladder_reading(n)
            rivals = {g: {self.trend(h, g, n).kind for h in self.groups} for g in self.groups}
            if any("unclear" in kinds for kinds in rivals.values()):
                return self._ladder_reading(n)
            best = [g for g, kinds in rivals.items() if "up" not in kinds]
            limits = [
                self.trend(g, best[0], n).value or 0.0 if g in best else -math.inf
                for g in self.groups
            ]
            weights = self.weights(limits, n)
            size = float(self.distance(weights))
            return size <= self.eps, size, self._tends(weights, n)
        except ExpressionError as problem:
            if problem.too_large:
                raise
            return False, math.inf, f"at n = {n} the formula has no value: {problem.sentence}"

    def _undefined(self, beta: float, n: int) -> bool:
        """Has the formula no value here, for another reason than its size?"""
        try:
            self.logits(beta, n)
        except ExpressionError as problem:
            return not problem.too_large
        return False

    def _ladder_reading(self, n: int) -> Reading:
        """Numbers only: the last rungs decide, if they agree and no further growth can help.
        log(log(beta)) arrives, but on no ladder, so what still moves is also followed to its end; a
        number that moves less and less converges. Beyond a million numbers may cancel, so those
        rungs can only take a decision back."""
        exact = self.stretched and self.is_exact_at(n)
        last = FAR if exact else self.usable(RUNGS, n, most=3)
        if len(last) < 3 or all(self._undefined(beta, n) for beta in RUNGS[-3:]):
            if not last:
                self.logits(RUNGS[0], n)  # says what is wrong, with its column
            return None, math.nan, ""
        high = self.usable(HIGH_RUNGS, n, most=1 if self.stretched else 3)
        first, second, heads = (np.array(self.logits(beta, n)) for beta in last)
        slower = math.log(last[2] / last[1]) / math.log(last[1] / last[0]) / 2
        still = np.abs(heads - second) <= np.minimum(1e-6, 1e-4 * np.abs(heads))
        still |= np.abs(heads - second) <= slower * np.abs(second - first)
        moved = np.where(still, 0.0, heads - second)
        far = (heads + moved / max(float(np.abs(moved).max()), 1e-300) * LARGEST / 10).tolist()
        tried = (*last[-2 if self.stretched else -3 :], *high)
        sizes = [self.error(self.logits(beta, n), n) for beta in tried]
        within = [size <= self.limit for size in sizes]
        followed = self.error(far, n) <= self.limit
        falling = sizes[len(tried) - len(high) - 1] < 0.999 * sizes[len(tried) - len(high) - 2]
        failed = not (any(within) or followed or falling)
        failed = failed and (exact or self._fails_in_digits(n))
        ok = True if all(within) and followed else False if failed else None
        if self.stretched:
            return ok, sizes[-1], say("average_missed", n=n, eps=self.eps, share=sizes[-1])
        return ok, sizes[-1], self._tends(self.weights(heads[0], n), n)

    def _fails_in_digits(self, n: int) -> bool:
        """Does the goal also fail far out and with 500 digits, where no term is lost in rounding?
        A term so small that even that beta does not show it leaves it open; inverses are not
        tried."""
        with decimal.localcontext(Digits.context):
            root = decimal.Decimal(n - self.named).sqrt()
            for beta, least in ((10.0, "1e-110"), (BEYOND, "0")):
                algebra = Digits(grouped_keys(self.problem, beta, n, root), least)
                try:
                    heads = self.heads_in(algebra, root)
                except (NotExactError, ExpressionError, ArithmeticError) as problem:
                    if beta == BEYOND or not isinstance(problem, ExpressionError):
                        return True
                    if problem.too_large:
                        return False
            most = decimal.Decimal(LARGEST)
            if self.stretched:
                scale = max(1, max(abs(x) for q in heads for x in q) / most)
                far = [tuple(float(x / scale) for x in q) for q in heads]
            else:  # differences decide
                far = [tuple(float(max(x - max(q), -most)) for x in q) for q in heads]
        return self.error(far, n) > self.limit

    def _tends(self, weights: Floats, n: int) -> str:
        shares = self.tell(weights, "{}: {:.3g}", "all others together")
        return f"at n = {n} the weights {'tend to' if self.uses_beta else 'are'} {shares}"

    def tell(self, weights: Iterable[float], form: str, others: str) -> str:
        """The weight of each group in words."""
        names = (*self.groups[:-1], others)
        return ", ".join(form.format(name, w) for name, w in zip(names, weights, strict=True))

    def largest_lead(self) -> float | None:
        """How far the named logits can be ahead of the others, if neither n nor beta changes it.
        Then enough other keys outweigh them, however far that is."""
        if self.exact:
            trends = [self.trend(g, "others", head=i) for i, h in enumerate(self.exact) for g in h]
            if any(t.kind in ("up", "unclear") for t in trends):
                return None
            leads = [t.value if t.kind == "constant" else 0.0 for t in trends]
            known = [lead for lead in leads if lead is not None]
            return max(known) if len(known) == len(leads) else None
        if any(x.names & {"beta", "n"} for x in self.expressions.values()):
            return None
        few, many = (np.array(self.logits(1.0, n)) for n in (10, 10**6))
        return float((few - few[:, -1:]).max()) if np.allclose(few, many) else None


def _outgrows(a: Trend, rival: Trend, way: str, positive: bool) -> bool:
    """Does e*a - rival go to +infinity (way "up") or -infinity ("down") for every e (or e > 0)?"""
    if "unclear" in (a.kind, rival.kind):
        return False
    if positive and a.kind == way:
        return rival.kind != way or rival.order < a.order
    against = "down" if way == "up" else "up"
    return rival.kind == against and (a.order <= 0 or rival.order > a.order)


def misplaced(heads: Sequence[Head], e: Floats, n: int) -> Floats:
    """Half the sum of |weight - wanted| of the averaged heads, for each e."""
    a, b, other = np.array(heads, dtype=np.float64).T[:, :, None]
    scores = np.empty((3, len(heads), e.size))
    scores[0], scores[1], scores[2] = np.clip(a * e, -1e300, 1e300), b, other + math.log(n - 2)
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
    for a, b, other in heads:
        rest = other + math.log(n - 2)
        for level in (b, rest, float(np.logaddexp(b, rest))):
            if abs(a) >= 1e-300 and abs(level) < 1e300:
                points.append(level / a + near / abs(a))
    grid = np.unique(np.clip(np.concatenate(points), low, high))
    good = misplaced(heads, grid, n) <= tolerance
    flips = np.flatnonzero(good[1:] != good[:-1])
    left, right = grid[flips], grid[flips + 1]
    cuts, rows = np.linspace(0.0, 1.0, 65), np.arange(len(flips))
    for _ in range(8 if len(flips) else 0):  # 64 parts a step: 48 bits
        points = left[:, None] + (right - left)[:, None] * cuts
        state = (misplaced(heads, points.ravel(), n) <= tolerance).reshape(points.shape)
        state[:, -1] = ~good[flips]
        first = np.argmax(state != good[flips][:, None], axis=1)
        left, right = points[rows, np.maximum(first - 1, 0)], points[rows, first]
    ends = [-math.inf] * int(good[0]) + [*(left + right) / 2] + [math.inf] * int(good[-1])
    return list(zip(ends[::2], ends[1::2], strict=True))
