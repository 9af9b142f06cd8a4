"""The laws again, by simulation: draw the keys, attend, count.

Nothing of `laws` is used here, so the two can check each other. Draws come in antithetic pairs
(a noise and its negative): the pair's average is the independent unit from which every standard
error is computed. Work is done in chunks, so a million trials take no more memory than a thousand.

Keys are drawn in full, n x d normals a trial, as long as that is cheap; beyond that only their
components along the queries are drawn, which have the same joint law. The result says which.

Shapes: t pairs in a chunk, h heads, n keys, d wide.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wherefrom.attention.equation import log_sum_exp, softmax_over_keys
from wherefrom.attention.noise import A, NoisyKeys
from wherefrom.errors import UserError

Floats = NDArray[np.float64]
Draw = Callable[[int], Floats]

WHOLE_KEYS = 4096  # normals a trial up to which the keys are drawn in full
CHUNK = 1 << 19  # numbers held at once, 4 MB: stays in the processor's cache and out of the way
BINS = 50
LEAST, MOST = 1_000, 100_000_000  # trials
MOST_LOGITS = 2_000_000_000  # logits in all: some minutes


@dataclass(frozen=True)
class Estimate:
    """A simulated number and its standard error."""

    value: float
    error: float


@dataclass(frozen=True)
class WeightTrials:
    """What was seen of one weight over all trials."""

    logit_mean: Estimate
    logit_sd: Estimate
    mean: Estimate
    sd: Estimate
    p_below_half: Estimate
    histogram: NDArray[np.int64]  # counts in BINS equal bins of [0, 1]


@dataclass(frozen=True)
class HeadsTrials:
    """All heads' weights on their targets, and the average over heads of the weight on a."""

    count: int
    drawn: str  # "keys" or "logits"
    heads: tuple[WeightTrials, ...]
    average: WeightTrials


def simulate(
    keys: NoisyKeys,
    queries: Floats,
    targets: Sequence[int],
    *,
    count: int,
    rng: np.random.Generator,
) -> HeadsTrials:
    """Draw the keys `count` times (rounded up to pairs) and attend with every query."""
    if not LEAST <= count <= MOST:
        raise UserError(f"trials must be between {LEAST:,} and {MOST:,}; they are {count:,}.")
    asked = keys.check_queries(queries)
    if count * keys.n * len(asked) > MOST_LOGITS:
        most = MOST_LOGITS // (keys.n * len(asked))
        raise UserError(
            f"{count:,} trials of {keys.n:,} keys and {len(asked)} heads would take too long; "
            f"with these keys at most {most:,} trials are run."
        )
    if len(targets) != len(asked):
        raise UserError(f"each head needs one target: {len(asked)} heads, {len(targets)} targets.")
    draw, drawn, size = _logit_noise(keys, asked, rng)
    means = keys.logit_means(asked)
    per_head = [_Tally() for _ in asked]
    average = _Tally()
    for pairs in _chunks((count + 1) // 2, size):
        noise = draw(pairs)  # (h, t, n)
        mean_on_a = np.zeros((2, pairs))
        for head, target in enumerate(targets):
            scores = np.stack([means[head] + noise[head], means[head] - noise[head]])
            weights = softmax_over_keys(scores)
            mean_on_a += weights[..., A] / len(asked)
            per_head[head].add(weights[..., target], _logit(scores, weights, target))
        with np.errstate(divide="ignore"):
            logits = np.log(mean_on_a) - np.log1p(-mean_on_a)
        average.add(mean_on_a, np.clip(logits, -750, 40))
    return HeadsTrials(
        count=2 * ((count + 1) // 2),
        drawn=drawn,
        heads=tuple(tally.report() for tally in per_head),
        average=average.report(),
    )


def _logit(scores: Floats, weights: Floats, target: int) -> Floats:
    """logit of the weight on the target, right also where the weight rounds to one.

    The leftover is the sum of the other weights, never 1 - weight; only where one of the two has
    left the range of floats are the scores asked again, in log space.
    """
    others = (np.arange(scores.shape[-1]) != target).astype(np.float64)
    inside, outside = weights[..., target], np.einsum("...n,n->...", weights, others)
    if min(float(inside.min()), float(outside.min())) > 1e-290:
        logit: Floats = np.log(inside) - np.log(outside)
    else:
        logit = scores[..., target] - log_sum_exp(np.delete(scores, target, axis=-1))
    return logit


def _chunks(pairs: int, size: int) -> Iterator[int]:
    most = max(1, CHUNK // size)
    while pairs > 0:
        yield min(most, pairs)
        pairs -= most


def _logit_noise(
    keys: NoisyKeys, queries: Floats, rng: np.random.Generator
) -> tuple[Draw, str, int]:
    """How to draw the noise of the logits (h, t, n), what is drawn, and how much a trial takes."""
    n, d, h = keys.n, keys.d, len(queries)
    factor, alpha = keys.factor, math.sqrt(keys.alpha)
    whole = alpha == 0 or n * d <= WHOLE_KEYS
    size = max(h * n, d, n * d if alpha > 0 and whole else 0)

    def draw(pairs: int) -> Floats:
        if alpha > 0 and whole:
            every = rng.standard_normal((d, pairs * n))
            # thin products: the threads of a matrix library cost more here than they save
            logits = np.einsum("hd,dm->hm", alpha * queries, every).reshape(h, pairs, n)
        elif alpha > 0:
            along = rng.standard_normal((h, pairs * n))
            logits = (alpha * _root(queries @ queries.T) @ along).reshape(h, pairs, n)
        else:
            logits = np.zeros((h, pairs, n))
        if factor.shape[1]:
            extra = factor @ rng.standard_normal((factor.shape[1], pairs))  # key a, in full
            logits[:, :, A] += queries @ extra
        return logits

    return draw, "keys" if whole else "logits", size


def _root(gram: Floats) -> Floats:
    """R with R R^T = gram, for a gram matrix that may be singular."""
    values, vectors = np.linalg.eigh(gram)
    root: Floats = vectors * np.sqrt(np.maximum(values, 0.0))
    return root


class _Tally:
    """Running sums over antithetic pairs, from which estimates and their errors follow.

    For x and its partner x' the unit is ((x + x')/2, (x^2 + x'^2)/2), about a pilot centre so
    that squares do not cancel; mean and deviation are functions of the two averages, and the
    delta method carries their covariance over.
    """

    def __init__(self) -> None:
        self.pairs = 0
        self.centres: Floats | None = None
        self.sums = np.zeros((2, 2))  # weight and logit; unit 1 and unit 2
        self.squares = np.zeros((2, 2, 2))
        self.below = np.zeros(2)
        self.histogram = np.zeros(BINS, dtype=np.int64)

    def add(self, weight: Floats, logit: Floats) -> None:
        """Take in one chunk: weights and logits, (2, t), partners above each other."""
        if self.centres is None:
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
        assert self.centres is not None
        weight, logit = (self._mean_and_sd(row) for row in (0, 1))
        share = float(self.below[0] / self.pairs)
        between = max(float(self.below[1]) / self.pairs - share**2, 0.0)
        # nothing seen is not nothing there: two imagined odd pairs keep the error honest
        error = math.sqrt((between + 0.5 / self.pairs) / self.pairs)
        return WeightTrials(
            logit_mean=logit[0],
            logit_sd=logit[1],
            mean=weight[0],
            sd=weight[1],
            p_below_half=Estimate(share, error),
            histogram=self.histogram,
        )

    def _mean_and_sd(self, row: int) -> tuple[Estimate, Estimate]:
        assert self.centres is not None
        first, second = self.sums[row] / self.pairs
        covariance = self.squares[row] / self.pairs - np.outer(
            self.sums[row] / self.pairs, self.sums[row] / self.pairs
        )
        variance = max(float(second - first**2), 0.0)
        sd = math.sqrt(variance)
        slope = np.array([-2 * first, 1.0])
        of_variance = math.sqrt(max(float(slope @ covariance @ slope), 0.0) / self.pairs)
        mean_error = math.sqrt(max(float(covariance[0, 0]), 0.0) / self.pairs)
        return (
            Estimate(float(self.centres[row] + first), mean_error),
            Estimate(sd, of_variance / (2 * sd) if sd > 0 else 0.0),
        )
