"""The laws again, by simulation, and the comparison of the two.

`simulate` draws the keys, attends and counts; it uses nothing of the laws' mathematics, so the two
can check each other. Draws come in antithetic pairs (a noise and its negative): the pair's average
is the independent unit from which every standard error is computed. Work is done in chunks, so a
million trials take no more memory than a thousand.

Keys are drawn in full, n x d normals per trial, as long as that is cheap; beyond that only their
components along the queries are drawn, which have the same joint law. The result says which.

`compare` measures the gap of law and trials in standard errors. Beyond 5 this tool is wrong and
says so: with a handful of numbers per run, 3 would raise a false alarm every few dozen runs, 5
about once in a hundred thousand.

Shapes: t pairs in a chunk, h heads, n keys, d wide.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wherefrom.attention.equation import log_sum_exp, softmax_over_keys
from wherefrom.attention.laws import FIXED, A, HeadsLaw, NoisyKeys, WeightLaw
from wherefrom.errors import UserError

Floats = NDArray[np.float64]

WHOLE_KEYS = 4096  # normals per trial up to which the keys are drawn in full
CHUNK = 1 << 19  # numbers held at once, 4 MB: stays in the processor's cache
BINS = 50
MIN_TRIALS, MAX_TRIALS = 1_000, 100_000_000
MAX_LOGITS = 2_000_000_000  # in all trials together: some minutes
GATE = 5.0  # standard errors
ROUNDING = 1e-9  # relative: what sums of a million rounded terms may differ by
CANCELLED = 1e-3  # a pair that cancels better than this leaves its error to rare pairs


@dataclass(frozen=True)
class Estimate:
    """A simulated number and its standard error."""

    value: float
    error: float


@dataclass(frozen=True, eq=False)
class WeightTrials:
    """What was seen of one weight over all trials."""

    logit_mean: Estimate
    logit_sd: Estimate
    mean: Estimate
    sd: Estimate
    p_below_half: Estimate
    histogram: NDArray[np.int64]  # counts in BINS equal bins of [0, 1]


@dataclass(frozen=True, eq=False)
class HeadsTrials:
    """All heads' weights on their targets, and the average over heads of the weight on a."""

    count: int
    drawn: str  # "keys" or "logits"
    heads: tuple[WeightTrials, ...]
    average: WeightTrials


def simulate(law: HeadsLaw, *, count: int, rng: np.random.Generator) -> HeadsTrials:
    """Draw the keys `count` times (rounded up to pairs) and attend with every query.

    Of the law it uses the setting alone: the keys, the queries and the targets.
    """
    keys, queries = law.keys, law.queries
    if not MIN_TRIALS <= count <= MAX_TRIALS:
        raise UserError(
            f"trials must be between {MIN_TRIALS:,} and {MAX_TRIALS:,}; they are {count:,}."
        )
    most = MAX_LOGITS // (keys.n * len(queries))
    if count > most:
        raise UserError(
            f"{count:,} trials of {keys.n:,} keys and {len(queries)} heads would take too long; "
            f"with these keys at most {most:,} trials are run."
        )
    draw, drawn, size = _logit_noise(keys, queries, rng)
    means = keys.logit_means(queries)
    heads, average = [_Tally() for _ in queries], _Tally()
    left = (count + 1) // 2
    while left > 0:
        pairs = min(max(1, CHUNK // size), left)
        left -= pairs
        noise = draw(pairs)  # (h, t, n)
        mean_on_a = np.zeros((2, pairs))
        for head, target in enumerate(law.targets):
            scores = np.stack([means[head] + noise[head], means[head] - noise[head]])
            weights = softmax_over_keys(scores)
            mean_on_a += weights[..., A] / len(queries)
            heads[head].add(weights[..., target], _logit(scores, weights, target))
        with np.errstate(divide="ignore"):
            logits = np.log(mean_on_a) - np.log1p(-mean_on_a)
        average.add(mean_on_a, np.clip(logits, -750, 40))
    reports = tuple(tally.report() for tally in heads)
    return HeadsTrials(2 * ((count + 1) // 2), drawn, reports, average.report())


def _logit(scores: Floats, weights: Floats, target: int) -> Floats:
    """logit of the weight on the target, right also where the weight rounds to one.

    The leftover is the sum of the other weights, never 1 - weight; only where one of the two has
    left the range of floats are the scores used again, in log space.
    """
    others = (np.arange(scores.shape[-1]) != target).astype(np.float64)
    inside, outside = weights[..., target], np.einsum("...n,n->...", weights, others)
    if min(float(inside.min()), float(outside.min())) > 1e-290:
        logit: Floats = np.log(inside) - np.log(outside)
    else:
        logit = scores[..., target] - log_sum_exp(np.delete(scores, target, axis=-1))
    return logit


def _logit_noise(
    keys: NoisyKeys, queries: Floats, rng: np.random.Generator
) -> tuple[Callable[[int], Floats], str, int]:
    """How to draw the noise of the logits (h, t, n), what is drawn, and the numbers per trial."""
    n, d, h = keys.n, keys.d, len(queries)
    alpha = math.sqrt(keys.alpha)
    whole = alpha == 0 or n * d <= WHOLE_KEYS
    if whole:
        along = alpha * queries
    else:  # along along^T = alpha queries queries^T
        values, vectors = np.linalg.eigh(queries @ queries.T)
        along = alpha * vectors * np.sqrt(np.maximum(values, 0.0))
    size = max(h * n, d, n * along.shape[1] if alpha > 0 else 0)

    def draw(pairs: int) -> Floats:
        logits = np.zeros((h, pairs, n))
        if alpha > 0:
            # a thin product: the threads of a matrix library cost more here than they save
            normals = rng.standard_normal((along.shape[1], pairs * n))
            logits = np.einsum("hd,dm->hm", along, normals).reshape(h, pairs, n)
        if keys.stretch > 0:
            length = math.sqrt(keys.stretch) * rng.standard_normal(pairs)  # of key a, beyond 1
            logits[:, :, A] += queries[:, [A]] * length
        return logits

    return draw, "keys" if whole else "logits", size


class _Tally:
    """Running sums over antithetic pairs, from which estimates and their errors follow.

    For x and its partner x' the unit is ((x + x')/2, (x^2 + x'^2)/2), about a pilot centre so
    that squares do not cancel; mean and deviation are functions of the two averages, and the
    delta method carries their covariance over.
    """

    def __init__(self) -> None:
        self.pairs = 0
        self.centres = np.zeros(2)
        self.sums = np.zeros((2, 2))  # weight and logit; unit 1 and unit 2
        self.squares = np.zeros((2, 2, 2))
        self.below = np.zeros(2)
        self.histogram = np.zeros(BINS, dtype=np.int64)

    def add(self, weight: Floats, logit: Floats) -> None:
        """Take in one chunk: weights and logits, (2, t), partners above each other."""
        if self.pairs == 0:
            self.centres = np.array([weight.mean(), logit.mean()])
        self.pairs += weight.shape[1]
        for row, x in enumerate((weight, logit)):
            y = x - self.centres[row]
            units = np.stack([y.mean(axis=0), (y * y).mean(axis=0)])
            self.sums[row] += units.sum(axis=1)
            self.squares[row] += units @ units.T
        low = (logit < 0).mean(axis=0)
        self.below += np.array([low.sum(), (low * low).sum()])
        index = np.minimum((weight.ravel() * BINS).astype(np.int64), BINS - 1)
        self.histogram += np.bincount(index, minlength=BINS)

    def report(self) -> WeightTrials:
        """The estimates so far."""
        share = float(self.below[0] / self.pairs)
        between = max(float(self.below[1]) / self.pairs - share**2, 0.0)
        # an event that was not seen may still happen: two imagined odd pairs widen the error
        below = Estimate(share, math.sqrt((between + 0.5 / self.pairs) / self.pairs))
        return WeightTrials(*self._mean_and_sd(1), *self._mean_and_sd(0), below, self.histogram)

    def _mean_and_sd(self, row: int) -> tuple[Estimate, Estimate]:
        averages = self.sums[row] / self.pairs
        first, second = averages
        covariance = self.squares[row] / self.pairs - np.outer(averages, averages)
        sd = math.sqrt(max(float(second - first**2), 0.0))
        slope = np.array([-2 * first, 1.0])
        of_variance = math.sqrt(max(float(slope @ covariance @ slope), 0.0) / self.pairs)
        mean_error = math.sqrt(max(float(covariance[0, 0]), 0.0) / self.pairs)
        mean = Estimate(float(self.centres[row] + first), mean_error)
        return mean, Estimate(sd, of_variance / (2 * sd) if sd > 0 else 0.0)


@dataclass(frozen=True)
class Agreement:
    """How many numbers were compared, and the one that is furthest off."""

    count: int
    quantity: str
    exact: float
    simulated: float
    deviations: float  # in standard errors

    @property
    def agrees(self) -> bool:
        """Whether every number is within the gate."""
        return self.deviations <= GATE

    @property
    def sentence(self) -> str:
        """The outcome in words."""
        apart = f"{self.deviations:.1f} standard errors apart"
        if self.agrees:
            return (
                f"law and trials agree on {self.count} numbers; "
                f"the furthest is {self.quantity}, {apart}."
            )
        return (
            f"the law says {self.exact:.9g} for {self.quantity} and the trials "
            f"{self.simulated:.9g}, {apart}: "
            "that is a failure of this tool, and neither number should be used."
        )


Gap = tuple[str, float, float, float]  # quantity, exact, simulated, deviations


def compare(law: HeadsLaw, trials: HeadsTrials) -> Agreement:
    """Every number that both the law and the trials give.

    A simulated standard error can be too small: if the law's spread is made by events rarer than
    the trials can see, they see no spread and claim a precision that they do not have. Where the
    law's kurtosis says so (`rare`), its own standard error is the least that counts.
    """
    gaps: list[Gap] = []
    root = math.sqrt(trials.count)
    # kurtosis above count/1000: fewer than about a thousand trials make the spread
    rare = [head.fourth * 1000 > head.sd**4 * trials.count for head in law.heads]
    for head, (exact, seen) in enumerate(zip(law.heads, trials.heads, strict=True)):
        gaps += _weight_gaps(f"head {head + 1}'s", exact, seen, rare[head], root)
    spread, average = law.spread, trials.average
    least = (1.0 if any(rare) else CANCELLED) * (1.0 if spread is None else spread) / root
    gaps.append(_gap("the average's mean weight on a", law.mean, average.mean, least))
    if spread is not None:
        # (x - m)^4 <= (x - m)^2 for weights, so the fourth moment is at most the variance
        least = spread / root if any(rare) else 0.0
        name = "the average's standard deviation"
        gaps.append(_gap(name, spread, average.sd, least, squared=True))
    return Agreement(len(gaps), *max(gaps, key=lambda gap: gap[-1]))


def _weight_gaps(
    whose: str, law: WeightLaw, seen: WeightTrials, rare: bool, root: float
) -> Iterator[Gap]:
    least = (1.0 if rare else CANCELLED) * law.sd / root
    yield _gap(f"{whose} mean weight", law.mean, seen.mean, least)
    least = math.sqrt(law.fourth) / root if rare else 0.0
    yield _gap(f"{whose} standard deviation", law.sd, seen.sd, least, squared=True)
    least = CANCELLED * law.logit_sd / root
    yield _gap(f"{whose} mean logit", law.logit_mean, seen.logit_mean, least)
    yield _gap(f"{whose} logit deviation", law.logit_sd, seen.logit_sd, 0.0, squared=True)
    below = law.p_below_half
    # a weight that is fixed at one half is below it or not by its last bit alone
    if below is not None and law.form != FIXED:
        least = math.sqrt(below * (1 - below)) / root if rare else 0.0
        yield _gap(f"{whose} probability below one half", below, seen.p_below_half, least)


def _gap(quantity: str, exact: float, seen: Estimate, least: float, squared: bool = False) -> Gap:
    """`least` is the smallest standard error that counts.

    Standard deviations are compared `squared`, since a simulated variance has no bias.
    """
    value, error, aim = seen.value, seen.error, exact
    if squared:
        value, error, aim = value**2, 2 * value * error, aim**2
    error = max(error, least)
    gap = max(abs(value - aim) - ROUNDING * max(1.0, abs(aim)), 0.0)
    return quantity, exact, seen.value, 0.0 if gap == 0 else gap / error if error else math.inf
