"""The noisy keys of the averages: k_a = e mu_a with e ~ N(1, 1/2), or keys that are blurred.

Claims for every n and every length e, the exact failure rate at one n, its simulation, and a
search for keys without an assumption on which the goal is missed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from wherefrom.attention.equation import attend
from wherefrom.checker.field import Field, NotExactError, Number, StepBudget, TooLargeError
from wherefrom.checker.goals import Claim, Decision, decide
from wherefrom.checker.grammar import ExpressionError
from wherefrom.checker.results import Assumption, CheckResult, Failure
from wherefrom.checker.spaces import Floats, Matrix, NoValueError, evaluate, orthonormal

if TYPE_CHECKING:
    from wherefrom.checker.problems.queries import Queries, Reading
    from wherefrom.checker.reading import Construction

SD = math.sqrt(0.5)  # of the length e
RISK = 0.05  # the share of samples that may miss the tolerance
REACH = 9.0  # standard deviations beyond which nothing is counted: 1e-18
FAR = (1e9, 1e30, 1e100)  # where the limit of a failure rate is read off
SHARE_CHANGE = 1e-3  # of samples, from one far beta to the next, that is still a limit
SHARE_ROUNDING = 1e-6  # the same where there is no exact form
SAMPLES = 4_000
ALPHA = 1e-6  # the blur at which the isotropic problem reports its failure rate
VANISHING = 1e-14  # stands for alpha -> 0 in a simulation
SEARCHED = ((3, 5), (10, 12))  # n and d at which a counterexample to an assumption is searched
DRAWS = 8  # of rows that break an assumption, after the chosen ones
# logits of a (at e = 1) and of b, that of each other key less that of b, which may be small beside
# both, and that of each other key
Head = tuple[float, ...]
GAPS: tuple[Callable[[Head], float], ...] = (  # which decide the weights for every e
    lambda head: head[0],
    lambda head: head[0] - head[1],
    lambda head: head[2],
)


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
        room = Fraction(draft.tolerance) - Fraction(outside)
        return draft.proved(because, _positive(field, room))
    samples = (0.0, 2.0, 1.0, -1.0, 3.0, -2.0, 4.0, low - 1, high + 1)
    e = next(e for e in samples if not low <= e <= high)
    because = (
        f"e ~ N(1, 1/2) has the standard deviation 0.707, so {outside:.1%} of the samples lie "
        f"outside {low:g} to {high:g}."
    )
    sentence = f"e = {e:g} is as good a sample as any, and outside the range."
    return draft.refuted(because, sentence, numbers={"e": e})


def _positive(field: Field, value: Fraction) -> dict[str, Any]:
    from wherefrom.checker.goals import certificate

    return certificate(decide(field, [Claim(field.number(value), "positive")]))


def decide_stretched(field: Field, heads: Sequence[dict[str, Number]]) -> Decision:
    """The heads' weights on a tend to shares that average 1/2, for every n and every e that is not
    set aside. NotExactError if no share is clear."""
    asides = [decide(field, [Claim(head["a"], "grows")]) for head in heads]
    # e < 0 is set aside if one of several heads looks along mu_a
    positive = len(heads) > 1 and any(
        _all_true(field, [claim]) for d in asides for claim in d.claims[:1]
    )
    claims: list[Claim] = []
    total = Fraction(0)
    for index, head in enumerate(heads):
        a, b, others = (head[g] for g in ("a", "b", "others"))
        options = [
            (Fraction(1, 2), [Claim(a, "vanishes"), Claim(b, "vanishes"), Claim(-others, "grows")]),
            (Fraction(1), [*_ahead(a, b, positive), *_ahead(a, others, positive)]),
            (Fraction(0), [Claim(b - others, "grows"), *_ahead(-a, -b, positive)]),
        ]
        chosen = next(
            ((share, own) for share, own in options if own and _all_true(field, own)), None
        )
        if chosen is None:
            raise NotExactError
        total += chosen[0]
        claims += [*chosen[1]]
        if a.is_zero:
            claims.append(Claim(a, "vanishes", f"a of {index}"))
    if 2 * total != len(heads):
        raise NotExactError
    if positive:
        claims.append(
            next(
                Claim(h["a"], "grows", "")
                for h in heads
                if _all_true(field, [Claim(h["a"], "grows")])
            )
        )
    return decide(field, claims)


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


def _all_true(field: Field, claims: list[Claim]) -> bool:
    from wherefrom.checker.asymptotics import asymptotics
    from wherefrom.checker.goals import is_true

    return all(is_true(piece, c.must) for c in claims for piece in asymptotics(c.number))


def reading_at(queries: Queries, n: int) -> Reading:
    """How often the goal is missed at one n, as beta grows: the share at three far betas, trusted
    if it has settled and, without algebra, every logit and gap has settled or grows."""
    from wherefrom.checker.problems.queries import Reading, is_moving

    if n > 10**300:
        return Reading(None, math.nan, "this is too large for the law of e")
    exact = queries.exact_heads_at(n) is not None
    betas = queries.settled_betas(n) if exact else FAR
    if betas is None or not (exact or queries.has_moderate_numbers(n)):
        return Reading(None, math.nan, "the numbers become too large to compute with")
    rows, without_value = [], []
    for beta in betas:
        try:
            rows.append(queries.heads_at(n, beta))
        except NoValueError as problem:
            without_value.append(problem)
    if without_value:
        if not rows and exact:
            raise without_value[0]
        return Reading(None, math.nan, "the formula has no value at some beta")
    shares = [failure_probability(row, n, queries.eps)[0] for row in rows]
    inside = [share <= RISK for share in shares]
    sentence = (
        f"at n = {n}, however large beta is, c misses the average by more than {queries.eps:g} in "
        f"{shares[-1]:.1%} of the samples"
    )
    if all(inside):
        return Reading(True, shares[-1], sentence)
    settled = abs(shares[2] - shares[1]) <= (SHARE_CHANGE if exact else SHARE_ROUNDING)
    moving = not exact and any(
        is_moving(*(of_gap(row[head]) for row in rows))
        for head in range(len(rows[0]))
        for of_gap in GAPS
    )
    if not any(inside) and shares[2] > RISK + SHARE_CHANGE and settled and not moving:
        return Reading(False, shares[-1], sentence)
    return Reading(None, shares[-1], "the weights change too slowly with beta to see their limit")


def outnumbered_at(lead: float, named: int, eps: float) -> set[int]:
    """The n around which a constant lead is lost among the other keys."""
    if lead > 600:
        return set()
    edge = int(named + named * math.exp(lead) * eps / (1 - eps))
    return {max(named + 1, edge + step) for step in (0, 1, 2)} | {4 * edge + 10}


def goodness(queries: Queries, n: int, heads: Any) -> Callable[[float], bool]:
    """Whether the goal is reached at a beta, from exact logits, quickly in floats."""
    from wherefrom.checker.field import by_power
    from wherefrom.checker.spaces import Digits

    arithmetic = Digits(queries.budget, 40)
    groups = queries.groups

    def terms(x: Number) -> list[list[tuple[float, float]]]:
        parts = []
        for poly in (x.top, x.bottom):
            own = []
            for order, part in by_power(poly, "beta").items():
                value = arithmetic.value(Number(x.field, part, {(): Fraction(1)}), n)
                own.append((float(order), float(value)))
            parts.append(own)
        return parts

    def at(parts: list[list[tuple[float, float]]], beta: float) -> float:
        top, bottom = (sum(c * beta**p for p, c in own) for own in parts)
        return max(min(top / bottom, 1e300), -1e300) if bottom else math.nan

    if queries.stretched:
        tables = [
            [terms(x) for x in (head["a"], head["b"], head["others"] - head["b"], head["others"])]
            for head in heads
        ]

        def good(beta: float) -> bool:
            rows = [tuple(at(parts, beta) for parts in table) for table in tables]
            return failure_probability(rows, n, queries.eps)[0] <= RISK

        return good
    (head,) = heads
    first = groups[0]
    gaps = [terms(head[g] - head[first]) for g in groups]
    counts = [1.0] * queries.named + [float(n - queries.named)]
    target = [*queries.problem.target.values()]

    def good_share(beta: float) -> bool:
        try:
            logits = [at(parts, beta) for parts in gaps]
        except OverflowError:
            return True
        if any(math.isnan(x) for x in logits):
            return False
        top = max(logits)
        masses = [c * math.exp(max(x - top, -700)) for c, x in zip(counts, logits, strict=True)]
        total = sum(masses)
        share = 0.5 * sum(abs(m / total - t) for m, t in zip(masses, target, strict=True))
        return share <= queries.eps * (1 + 1e-12)

    return good_share


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


def failure(queries: Queries, needed: float) -> Failure | None:
    """How often noise spoils the result at n = 10 and this beta (10 at least), also simulated."""
    n, beta = 10, max(needed, 10.0)
    try:
        heads = queries.heads_at(n, beta)
        simulated, error = simulate(queries, n, beta)
    except (NoValueError, TooLargeError):
        return None
    alpha = None
    if queries.stretched:
        meaning = f"more than {queries.eps:g} of the weight is misplaced"
        given, aside, in_all = failure_probability(heads, n, queries.eps)
    else:
        # ln(a_a/a_b) ~ N(gap, 2 alpha |q|^2): a share beyond 1/2 +- eps is an uneven split
        meaning = f"a and b split their weight more unevenly than 1/2 +- {queries.eps:g}"
        length = float(np.linalg.norm(queries.queries(orthonormal(n, n), beta)))
        level = math.log((0.5 + queries.eps) / (0.5 - queries.eps))
        centre = heads[0][0] - heads[0][1]
        width = 2 * math.sqrt(ALPHA) * length
        tails = ((level - side) / width if width else math.inf for side in (centre, -centre))
        given, aside = 0.5 * sum(map(math.erfc, tails)), 0.0
        in_all = given
        alpha = (level / (1.959964 * math.sqrt(2) * length)) ** 2 if length else None
    return Failure(meaning, n, beta, given, aside, in_all, simulated, error, SAMPLES, alpha)


def simulate(queries: Queries, n: int, beta: float) -> tuple[float, float]:
    """How often the goal is missed over drawn keys, with its standard error."""
    rng = np.random.default_rng([queries.draft.seed, 1])
    means = orthonormal(n, n, rng)
    rows = queries.queries(means, beta)
    alpha = VANISHING if queries.stretched else ALPHA
    keys = means + math.sqrt(alpha) * rng.standard_normal((SAMPLES, n, n))
    kept = np.ones(SAMPLES, dtype=bool)
    if queries.stretched:
        e = 1 + SD * rng.standard_normal((SAMPLES, 1))
        keys[:, 0] += (e - 1) * means[0]
        if len(rows) > 1 and (rows @ means[0] > 0).any():
            kept = e[:, 0] >= 0
    weights = attend(rows, keys, keys[..., :1]).weights.mean(axis=-2)
    named, others = np.split(weights, [queries.named], axis=-1)
    weights = np.concatenate([named, others.sum(axis=-1, keepdims=True)], axis=-1)
    wrong = 0.5 * np.abs(weights - [*queries.problem.target.values()]).sum(axis=-1)
    if not queries.stretched:
        wrong = np.abs(weights[:, 0] / (weights[:, 0] + weights[:, 1]) - 0.5)
    share, count = float((wrong[kept] > queries.eps).mean()), int(kept.sum())
    return share, math.sqrt(max(share * (1 - share), 1 / count) / count)


# ---- which assumptions are needed


def unequal_norms(
    rows: Matrix, named: int, rng: np.random.Generator
) -> Iterator[tuple[str, Matrix]]:
    """Orthogonal rows of other lengths: one row after another stretched, then drawn lengths."""
    for index in range(min(len(rows), named + 1)):
        for length in (1.4, 0.7):
            stretched = rows.copy()
            stretched[index] *= length
            which = "abcd"[index] if index < named else "another"
            yield f"{which} stretched to {length:g} of its length", stretched
    for _ in range(DRAWS):
        lengths = rng.uniform(0.7, 1.4, size=(len(rows), 1))
        yield "lengths drawn between 0.7 and 1.4", rows * lengths


def oblique_angles(
    rows: Matrix, named: int, rng: np.random.Generator
) -> Iterator[tuple[str, Matrix]]:
    """Rows of the same lengths at other angles: another row turned between the named ones, each
    row turned towards another, then drawn directions."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)

    def turned(changed: Matrix) -> Matrix:
        return changed / np.linalg.norm(changed, axis=1, keepdims=True) * lengths

    for weight in (0.2, 0.5):
        between = rows.copy()
        between[-1] = rows[:named].sum(axis=0) + weight * rows[-1]
        yield "another one between the named ones", turned(between)
    for index in range(min(len(rows), named + 1)):
        for sign in (0.5, -0.5):
            tilted = rows.copy()
            tilted[index] += sign * rows[index - 1]
            yield "one tilted towards another", turned(tilted)
    size = np.linalg.norm(rows) / np.sqrt(rows.size)
    for _ in range(DRAWS):
        spread = rng.uniform(0.1, 1.0) * size
        yield "directions drawn at random", turned(rows + spread * rng.standard_normal(rows.shape))


def assumptions(queries: Queries, failed: Failure | None) -> Iterator[Assumption]:
    """Which assumptions of the problem the construction needs, by giving them up in turn."""
    noun = "mean" if queries.noisy else "key"
    rng = np.random.default_rng([queries.draft.seed, 2])
    yield _search(queries, f"{noun}s of equal norm", unequal_norms, rng)
    yield _search(queries, f"{noun}s that are orthogonal", oblique_angles, rng)
    if failed is not None and failed.set_aside > 0:
        evidence = (
            f"counting them, {failed.in_all:.2%} of all samples fail at beta = {failed.beta:.4g}"
        )
        yield Assumption("samples with k_a.q < 0 are set aside", failed.in_all > RISK, evidence)


def _search(queries: Queries, name: str, variants: Any, rng: np.random.Generator) -> Assumption:
    """Look for keys without the assumption on which the goal is missed however large beta is.
    Without a find, the assumption is not needed if the logits are the same over all of the keys:
    they are analytic in the keys, so those that agree at random points agree everywhere."""
    tried, same = 0, True
    for n, d in SEARCHED:
        straight = orthonormal(n, d, rng)
        try:
            expected = straight @ queries.queries(straight, 2.0).T
        except (NoValueError, TooLargeError):
            return Assumption(name, None, "the formula is too large for floating point")
        for what, keys in variants(straight, queries.named, rng):
            tried += 1
            where = f"with n = {n} and {what}"
            try:
                again = keys @ queries.queries(keys, 2.0).T
            except NoValueError:
                return Assumption(name, True, f"{where}, the formula has no value")
            except TooLargeError:
                continue
            same = same and bool(np.allclose(again, expected, rtol=1e-8, atol=1e-8))
            weights = _missed_in_the_limit(queries, keys)
            if weights is not None:
                shares = queries.tell(weights, "{} {:.3g}", "the others")
                return Assumption(name, True, f"{where}, the weights tend to {shares}")
    if same:
        return Assumption(name, False, f"{tried} sets of keys without it have the same logits")
    return Assumption(name, None, f"no counterexample in {tried} sets, some chosen to break it")


def _missed_in_the_limit(queries: Queries, keys: Matrix) -> Matrix | None:
    """The weights over these keys if they miss the goal and larger beta does not help."""
    errors, weights = [0.0], None
    lengths = np.quantile(
        1 + SD * np.random.default_rng(3).standard_normal(2000), np.linspace(0.01, 0.99, 99)
    )
    lengths = lengths[lengths > 0] if len(queries.expressions) > 1 else lengths
    lengths = lengths if queries.stretched else np.ones(1)
    target = [*queries.problem.target.values()]
    for beta in (5.0, 20.0, 200.0, 1e4, 1e6):
        try:
            rows = queries.queries(keys, beta)
        except (NoValueError, TooLargeError):
            break
        drawn = np.repeat(keys[None], len(lengths), axis=0)
        drawn[:, 0] *= lengths[:, None]
        result = attend(rows, drawn, drawn)
        if float(np.abs(result.scores).max()) > 1e10:  # rounding swamps the differences
            break
        shares = result.weights.mean(axis=-2)
        named, others = np.split(shares, [queries.named], axis=-1)
        by_group = np.concatenate([named, others.sum(axis=-1, keepdims=True)], axis=-1)
        wrong = 0.5 * np.abs(by_group - target).sum(axis=-1)
        allowed = RISK + 0.02 if queries.stretched else 0.0
        missed = float(np.mean(wrong > queries.eps * (1 + 1e-9) + 1e-12)) > allowed
        weights = by_group[int(np.argmax(wrong))]
        errors.append(float(wrong.max()) if missed else 0.0)
    stuck = errors[-1] > 0 and len(errors) > 2 and errors[-1] >= 0.999 * errors[-2]
    return weights if stuck else None
