"""The laws again, by simulation, and the comparison of the two.

`simulate` draws the keys, attends and counts; it uses nothing of the laws' mathematics, so the two
can check each other. Draws come in antithetic pairs (a noise and its negative), the independent
unit from which every standard error is computed. Work is done in chunks, in bounded memory. Beyond
WHOLE_KEYS only the components of the keys along the queries are drawn: the same joint law.

`compare` measures the gap of law and trials in standard errors. Beyond 5 this tool is wrong and
says so: 3 would raise a false alarm every few dozen runs, 5 about once in a hundred thousand.

Shapes: t pairs in a chunk, h heads, n keys, d wide.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wherefrom.attention.equation import log_sum_exp, softmax_over_keys
from wherefrom.attention.laws import FIXED, A, HeadsLaw
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

    histogram: NDArray[np.int64]  # counts in BINS equal bins of [0, 1]
    logit_mean: Estimate
    logit_sd: Estimate
    mean: Estimate
    sd: Estimate
    p_below_half: Estimate


@dataclass(frozen=True, eq=False)
class HeadsTrials:
    """All heads' weights on their targets, and the average over heads of the weight on a."""

    count: int
    drawn: str  # "keys" or "logits"
    heads: tuple[WeightTrials, ...]
    average: WeightTrials


def simulate(law: HeadsLaw, *, count: int, rng: np.random.Generator) -> HeadsTrials:
    """Draw the keys `count` times (rounded up to pairs) and attend with every query.
    Of the law it uses the setting alone: the keys, the queries and the targets."""
    keys, queries, h, n = law.keys, law.queries, len(law.queries), law.keys.n
    if not MIN_TRIALS <= count <= MAX_TRIALS:
        raise UserError(
            f"trials must be between {MIN_TRIALS:,} and {MAX_TRIALS:,}; they are {count:,}."
        )
    if count > (most := MAX_LOGITS // (n * h)):
        raise UserError(
            f"{count:,} trials of {n:,} keys and {h} heads would take too long; "
            f"with these keys at most {most:,} trials are run."
        )
    whole = keys.alpha == 0 or n * keys.d <= WHOLE_KEYS
    along = math.sqrt(keys.alpha) * queries
    if not whole:  # along along^T = alpha queries queries^T
        values, vectors = np.linalg.eigh(queries @ queries.T)
        along = math.sqrt(keys.alpha) * vectors * np.sqrt(np.maximum(values, 0.0))
    size = max(h * n, keys.d, n * along.shape[1] if keys.alpha > 0 else 0)  # numbers per trial
    means, others = queries[:, :n], np.arange(n)
    heads, average = [_Tally() for _ in queries], _Tally()
    left = (count + 1) // 2
    while left > 0:
        pairs = min(max(1, CHUNK // size), left)
        left -= pairs
        noise = np.zeros((h, pairs, n))
        if keys.alpha > 0:
            # a thin product: the threads of a matrix library cost more here than they save
            normals = rng.standard_normal((along.shape[1], pairs * n))
            noise = np.einsum("hd,dm->hm", along, normals).reshape(h, pairs, n)
        if keys.stretch > 0:
            length = math.sqrt(keys.stretch) * rng.standard_normal(pairs)  # of key a, beyond 1
            noise[:, :, A] += queries[:, [A]] * length
        mean_on_a = np.zeros((2, pairs))
        for head, target in enumerate(law.targets):
            scores = np.stack([means[head] + noise[head], means[head] - noise[head]])
            weights = softmax_over_keys(scores)
            mean_on_a += weights[..., A] / h
            # the leftover is the sum of the other weights; where it or the weight has left the
            # range of floats, the scores are used again, in log space
            on = weights[..., target]
            off = np.einsum("...n,n->...", weights, (others != target).astype(np.float64))
            if min(float(on.min()), float(off.min())) > 1e-290:
                logits = np.log(on) - np.log(off)
            else:
                logits = scores[..., target] - log_sum_exp(np.delete(scores, target, axis=-1))
            heads[head].add(on, logits)
        with np.errstate(divide="ignore"):
            logits = np.log(mean_on_a) - np.log1p(-mean_on_a)
        average.add(mean_on_a, np.clip(logits, -750, 40))
    reports = tuple(tally.report() for tally in heads)
    drawn = "keys" if whole else "logits"
    return HeadsTrials(2 * ((count + 1) // 2), drawn, reports, average.report())


class _Moments:
    """Running sums over antithetic pairs of a number; its mean and deviation, with their errors.
    For x and its partner x' the unit is ((x + x')/2, (x^2 + x'^2)/2), about a pilot centre so
    that squares do not cancel; the delta method carries the units' covariance over."""

    def __init__(self) -> None:
        self.pairs, self.centre = 0, 0.0
        self.sums = np.zeros(2)
        self.squares = np.zeros((2, 2))

    def add(self, x: Floats) -> None:
        """Take in one chunk, (2, t), partners above each other."""
        if self.pairs == 0:
            self.centre = float(x.mean())
        self.pairs += x.shape[1]
        y = x - self.centre
        units = np.stack([y.mean(axis=0), (y * y).mean(axis=0)])
        self.sums += units.sum(axis=1)
        self.squares += units @ units.T

    def estimates(self) -> tuple[Estimate, Estimate]:
        """The mean and the standard deviation."""
        averages = self.sums / self.pairs
        first, second = averages
        covariance = self.squares / self.pairs - np.outer(averages, averages)
        sd = math.sqrt(max(float(second - first**2), 0.0))
        slope = np.array([-2 * first, 1.0])
        of_variance = math.sqrt(max(float(slope @ covariance @ slope), 0.0) / self.pairs)
        of_mean = math.sqrt(max(float(covariance[0, 0]), 0.0) / self.pairs)
        mean = Estimate(float(self.centre + first), of_mean)
        return mean, Estimate(sd, of_variance / (2 * sd) if sd > 0 else 0.0)


class _Tally:
    """What is kept of one weight: moments of it and of its logit, and a histogram."""

    def __init__(self) -> None:
        self.weight, self.logit, self.below_half = _Moments(), _Moments(), _Moments()
        self.histogram = np.zeros(BINS, dtype=np.int64)

    def add(self, weight: Floats, logit: Floats) -> None:
        """Take in one chunk: weights and logits, (2, t)."""
        self.weight.add(weight)
        self.logit.add(logit)
        self.below_half.add((logit < 0).astype(np.float64))
        index = np.minimum((weight.ravel() * BINS).astype(np.int64), BINS - 1)
        self.histogram += np.bincount(index, minlength=BINS)

    def report(self) -> WeightTrials:
        share, _ = self.below_half.estimates()
        # an event that was not seen may still happen: two imagined odd pairs widen the error
        widened = math.sqrt(share.error**2 + 0.5 / self.below_half.pairs**2)
        moments = (*self.logit.estimates(), *self.weight.estimates())
        return WeightTrials(self.histogram, *moments, Estimate(share.value, widened))


@dataclass(frozen=True)
class Agreement:
    """How many numbers were compared, and the one that is furthest off, in standard errors."""

    count: int
    quantity: str
    exact: float
    simulated: float
    deviations: float

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
                f"law and simulation agree on {self.count} numbers; "
                f"the largest gap is {self.quantity}, {apart}."
            )
        return (
            f"the law says {self.exact:.9g} for {self.quantity} and the simulation "
            f"{self.simulated:.9g}, {apart}: "
            "this is a bug; use neither number."
        )


def compare(law: HeadsLaw, trials: HeadsTrials) -> Agreement:
    """Every number that both the law and the trials give.
    Where the law's spread is made by events rarer than the trials can see (`rare`), they claim a
    precision that they do not have, and the law's own standard error is the least that counts."""
    # quantity, law, trials, least standard error times root; deviations are compared squared,
    # since a simulated variance has no bias
    rows: list[tuple[str, float, Estimate, float]] = []
    any_rare = False
    for number, (exact, seen) in enumerate(zip(law.heads, trials.heads, strict=True), start=1):
        # kurtosis above count/1000: fewer than about a thousand trials make the spread
        rare = exact.fourth * 1000 > exact.sd**4 * trials.count
        any_rare |= rare
        whose, below = f"head {number}'s", exact.p_below_half
        rows += [
            (f"{whose} mean weight", exact.mean, seen.mean, exact.sd * (1 if rare else CANCELLED)),
            (f"{whose} standard deviation", exact.sd, seen.sd, math.sqrt(exact.fourth) * rare),
            (f"{whose} mean logit", exact.logit_mean, seen.logit_mean, CANCELLED * exact.logit_sd),
            (f"{whose} logit deviation", exact.logit_sd, seen.logit_sd, 0.0),
        ]
        # a weight that is fixed at one half is below it or not by its last bit alone
        if below is not None and exact.form != FIXED:
            least = math.sqrt(below * (1 - below)) * rare
            rows.append((f"{whose} probability below one half", below, seen.p_below_half, least))
    spread, average = law.spread, trials.average
    least = (1.0 if any_rare else CANCELLED) * (1.0 if spread is None else spread)
    rows.append(("the average's mean weight on a", law.mean, average.mean, least))
    if spread is not None:
        # (x - m)^4 <= (x - m)^2 for weights, so the fourth moment is at most the variance
        rows.append(("the average's standard deviation", spread, average.sd, spread * any_rare))
    gaps = []
    for quantity, exact_value, seen_value, least in rows:
        value, error, aim = seen_value.value, seen_value.error, exact_value
        if "deviation" in quantity:
            value, error, aim = value**2, 2 * value * error, aim**2
        error = max(error, least / math.sqrt(trials.count))
        gap = max(abs(value - aim) - ROUNDING * max(1.0, abs(aim)), 0.0)
        far = 0.0 if gap == 0 else gap / error if error else math.inf
        gaps.append((quantity, exact_value, seen_value.value, far))
    return Agreement(len(gaps), *max(gaps, key=lambda gap: gap[-1]))
