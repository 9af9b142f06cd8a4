"""The exact law of attention weights when the keys are noisy, for one head and for several.

The setting: key i is drawn from N(mu_i, Sigma_i), the means orthonormal, the draws independent.
Every key has the isotropic part alpha I; key a also has stretch mu_a mu_a^T (1/2 in the homework).
A rotation changes no logit, so mu_i is the i-th unit vector; a is key 0, b is key 1.

One head has independent Gaussian logits. If no other logit is random (alpha = 0), or with two keys,
logit(a_j) is Gaussian too: the weight is logit-normal. Otherwise the moments are integrals, and the
distribution is left to trials. Where no exact number is known, the law has None and says why.

Every integrand is analytic in a strip around the real line and vanishes at both ends, so the plain
trapezoid rule errs by exp(-2 pi w / h) for a strip of half-width w and a step h: to about 1e-15.

Shapes: h heads, n keys, g kinds of key (equal mean and deviation), v points on the axis.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, logsumexp, ndtr

from wherefrom.errors import Printable, UserError

Floats = NDArray[np.float64]

A, B = 0, 1  # the two keys whose values are wanted
LOGIT_NORMAL, INDEPENDENT, FIXED = "logit-normal", "independent Gaussian logits", "not random"
ONLY_MOMENTS = (
    "several logits are random: the moments of the weight are exact, and its distribution is left "
    "to trials."
)
REACH = 9.0  # standard deviations kept on each side: what is cut off is 2 Phi(-9) = 2e-19
STRIP = math.pi * 6 / 7  # the pole is at i pi; its fourth power costs another exp(-6)
AXIS_STEP = 11 / 64  # error |Gamma(4 + iw)| at w = 2 pi / h: below 1e-16 up to the fourth moment
MAX_NODES = 1_000_000  # on one side of one axis: limits time and memory
MAX_SD = 1000.0  # of a logit among several random ones: a wider one takes seconds


def normal_nodes(spread: float) -> tuple[Floats, Floats]:
    """Nodes z and weights p with sum(p f(spread * z)) = E f(spread * Z) for Z standard normal.
    f is made of powers of the logistic function; the step leaves exp(-36) = 2e-16."""
    if spread == 0:
        return np.zeros(1), np.ones(1)
    step = min(0.25, 2 * math.pi * STRIP / (36 * max(abs(spread), 1.0)))
    count = math.ceil(REACH / step)
    if count > MAX_NODES:
        widest = MAX_NODES / REACH * 2 * math.pi * STRIP / 36
        raise UserError(
            f"a logit with a standard deviation of {abs(spread):.3g} is too wide for the "
            f"quadrature; the widest it takes is {widest:.0f}."
        )
    z = np.arange(-count, count + 1, dtype=np.float64) * (REACH / count)
    weights: Floats = np.exp(-z * z / 2)
    return z, weights / weights.sum()


class IndependentLogits:
    """Softmax weights a of independent Gaussian logits s_i ~ N(means_i, sds_i^2).

    With y_i = exp(s_i + v), E_i = E exp(-y_i) and T_i(p) = E[y_i^p exp(-y_i)] / E_i,

        E a_j^p = integral dv  (prod_i E_i) T_j(p) / Gamma(p),

    since 1/W^p = integral u^(p-1) exp(-uW) du / Gamma(p) and u = exp(v). Keys of one kind share
    their factors, so the cost grows with the number of kinds and not with n.
    """

    def __init__(self, means: Floats, sds: Floats, *, powers: int = 4) -> None:
        """`powers` is the number of moments wanted, 1 to 4."""
        if sds.max() > MAX_SD:
            raise UserError(
                f"with several random logits the exact integral takes deviations up to "
                f"{MAX_SD:.0f}; one of them is {sds.max():.3g}."
            )
        kinds, kind_of, counts = np.unique(
            np.stack([means, sds], axis=1), axis=0, return_inverse=True, return_counts=True
        )
        self.kind_of, self.counts = kind_of.reshape(-1), counts.astype(np.float64)
        self.powers = powers
        # left end: even the sum of all y is below exp(-40); right end: some y is above exp(6)
        left = -float(np.max(kinds[:, 0] + REACH * kinds[:, 1] + np.log(counts))) - 40.0
        right = -float(np.max(kinds[:, 0] - REACH * kinds[:, 1])) + 6.0
        first, last = math.floor(left / AXIS_STEP), math.ceil(right / AXIS_STEP)
        self.axis = AXIS_STEP * np.arange(first, last + 1)
        averages = np.array([self._averages(mean, sd) for mean, sd in kinds])  # (g, 1 + powers, v)
        zeroth = np.maximum(averages[:, 0], 1e-300)  # E_i; below, only rounding is left
        self.ratios = averages[:, 1:] / zeroth[:, None]  # T_i(p), (g, powers, v)
        self.product = np.exp(self.counts @ np.log(zeroth)) * AXIS_STEP  # (v,)

    def _averages(self, mean: float, sd: float) -> Floats:
        """E[y^p exp(-y)] for p = 0..powers along the axis, (1 + powers, v)."""
        if sd <= 4 * AXIS_STEP:  # a table of nodes at each point of the axis
            z, p = normal_nodes(sd)
            y = np.exp(np.minimum(mean + self.axis[:, None] + sd * z, 7.0))
            mass = np.exp(-y)
            return np.stack([np.einsum("vz,z->v", y**k * mass, p) for k in range(self.powers + 1)])
        # A wide Gaussian has its nodes on a grid of the axis's own step, x in [-40, 7]; z depends
        # on the distance of node and axis point alone, so the averages are correlations. By parts,
        # E exp(-y) is the integral of y exp(-y) P(s + v < x) dx, which vanishes at both ends too.
        first, last = math.ceil((-40.0 - mean) / AXIS_STEP), math.ceil((7.0 - mean) / AXIS_STEP)
        y = np.exp(mean + AXIS_STEP * np.arange(first, last))
        gaps = np.arange(1 - len(self.axis), len(y)) + first - round(self.axis[0] / AXIS_STEP)
        z = gaps * (AXIS_STEP / sd)
        density = np.exp(-z * z / 2) / (math.sqrt(2 * math.pi) * sd)
        rows = [(ndtr(z), y * np.exp(-y))]
        rows += [(density, y**k * np.exp(-y)) for k in range(1, self.powers + 1)]
        return np.stack([np.correlate(kernel, f * AXIS_STEP)[::-1] for kernel, f in rows])

    def moments(self, key: int) -> Floats:
        """E a_key^p for p = 1..powers, (powers,)."""
        gammas = np.array([1.0, 1.0, 2.0, 6.0])[: self.powers]
        return (self.ratios[self.kind_of[key]] @ self.product) / gammas

    def log_sum_masses(self) -> Floats:
        """The mass at each point of the axis of G - ln W, W the sum of exp(s_i), G a Gumbel.
        If X is exponential then P(X > uW) = E exp(-uW), and ln X is a Gumbel of the minimum."""
        return self.product * (self.counts @ self.ratios[:, 0])

    def log_sum_moments(self) -> tuple[float, float]:
        """Mean and variance of ln W: the Gumbel's own are -gamma and pi^2/6."""
        p = self.log_sum_masses()
        centre = float(p @ self.axis)
        variance = float(p @ (self.axis - centre) ** 2) - math.pi**2 / 6
        return -float(np.euler_gamma) - centre, max(variance, 0.0)


@dataclass(frozen=True)
class NoisyKeys:
    """n keys of width d, each with noise alpha I; key a also has stretch mu_a mu_a^T."""

    n: int
    d: int
    alpha: float = 0.0
    stretch: float = 0.5

    def __post_init__(self) -> None:
        if self.n < 2:
            raise UserError(f"there must be at least 2 keys, a and b; n is {self.n}.")
        if self.d < self.n:
            raise UserError(
                f"{self.n} orthonormal means need a width of at least {self.n}; d is {self.d}."
            )
        for name, size in (("alpha", self.alpha), ("the stretch", self.stretch)):
            if not (math.isfinite(size) and size >= 0):
                raise UserError(f"{name} is a variance and must be 0 or more; it is {size}.")

    def logit_sds(self, queries: Floats) -> Floats:
        """The standard deviation of k_i . q_h, (h, n)."""
        isotropic = self.alpha * (queries**2).sum(axis=1, keepdims=True)
        variances = np.repeat(isotropic, self.n, axis=1)
        variances[:, A] += self.stretch * queries[:, A] ** 2
        return np.sqrt(variances)


@dataclass(frozen=True)
class WeightLaw:
    """The law of a weight in (0, 1): its numbers, and its distribution where that is known.
    `p_below_half` is None, and `cdf` and `pdf` raise a UserError, where only trials can answer;
    `why_no_distribution` then says so in a sentence."""

    form: str
    logit_mean: float
    logit_sd: float
    mean: float
    sd: float
    fourth: float  # the fourth central moment, for the standard error of a simulated variance
    why_no_distribution: str = ""

    @property
    def p_below_half(self) -> float | None:
        """P(weight < 1/2), or None where only trials can answer."""
        if self.form == FIXED:  # the only law with a mass at one point, where < is not <=
            return float(self.mean < 0.5)
        return None if self.why_no_distribution else float(self.cdf(np.array(0.5)))

    def cdf(self, x: Floats) -> Floats:
        """P(weight <= x)."""
        logits = self._logit(x)
        if self.form == FIXED:
            return np.where(logits >= self.logit_mean, 1.0, 0.0)
        return ndtr((logits - self.logit_mean) / self.logit_sd)

    def pdf(self, x: Floats) -> Floats:
        """The density at x, for x strictly between 0 and 1."""
        logits = self._logit(x)
        if self.form == FIXED:
            raise UserError("a weight that is not random has no density.")
        z = (logits - self.logit_mean) / self.logit_sd
        density = np.exp(-z * z / 2) / (math.sqrt(2 * math.pi) * self.logit_sd)
        return density / (x * (1 - x))

    def _logit(self, x: Floats) -> Floats:
        if self.why_no_distribution:
            raise UserError(self.why_no_distribution)
        return logit(np.asarray(x, dtype=np.float64))


def law_of_logits(means: Floats, sds: Floats, key: int) -> WeightLaw:
    """The law of softmax(s)[key] for independent logits s_i ~ N(means_i, sds_i^2)."""
    others = np.delete(np.arange(len(means)), key)
    mean, sd = float(means[key]), float(sds[key])
    if len(means) == 2 or not sds[others].any():
        mean -= float(logsumexp(means[others]))
        sd = float(np.hypot(*sds)) if len(means) == 2 else sd
        z, p = normal_nodes(sd)
        weight = expit(mean + sd * z)
        central = weight - p @ weight
        deviation, fourth = math.sqrt(float(p @ central**2)), float(p @ central**4)
        form = LOGIT_NORMAL if sd > 0 else FIXED
        return WeightLaw(form, mean, sd, float(p @ weight), deviation, fourth)
    m1, m2, m3, m4 = map(float, IndependentLogits(means, sds).moments(key))
    other_logits = IndependentLogits(means[others], sds[others], powers=1)
    sum_mean, sum_variance = other_logits.log_sum_moments()
    return WeightLaw(
        form=INDEPENDENT,
        logit_mean=mean - sum_mean,
        logit_sd=math.sqrt(sd**2 + sum_variance),
        mean=m1,
        sd=math.sqrt(max(m2 - m1 * m1, 0.0)),
        fourth=max(m4 - 4 * m1 * m3 + 6 * m1**2 * m2 - 3 * m1**4, 0.0),
        why_no_distribution=ONLY_MOMENTS,
    )


def normalised_law(n: int, beta: float, stretch: float = 0.5) -> tuple[float, float]:
    """Mean and deviation of one head's weight on a, for q = beta(mu_a + mu_b), if keys are divided
    by their length (QK-norm; a LayerNorm before the keys does nearly the same).

    k_a = e mu_a becomes mu_a or, with probability p = P(e < 0), -mu_a: two weights and no other.
    """
    p = float(ndtr(-1 / math.sqrt(stretch))) if stretch > 0 else 0.0
    others = float(np.logaddexp(beta, math.log(n - 2))) if n > 2 else beta
    forward, backward = expit(beta - others), expit(-beta - others)
    return (1 - p) * forward + p * backward, math.sqrt(p * (1 - p)) * (forward - backward)


@dataclass(frozen=True, eq=False, repr=False)
class HeadsLaw(Printable):
    """One or more heads over the same noisy keys; c is the average of what they give.
    Head h is reported by its weight on key `targets[h]`, the key that it is meant to copy."""

    keys: NoisyKeys
    queries: Floats  # (h, d)
    targets: tuple[int, ...]

    def summary(self) -> list[tuple[str, str]]:
        spread = "" if self.spread is None else f", deviation {self.spread:.6g}"
        rows = [("mean weight on a", f"{self.mean:.6g}{spread} ({len(self.queries)} heads)")]
        heads = [(f"head {i}", law) for i, law in enumerate(self.heads, start=1)]
        return rows + [(name, f"{h.mean:.6g}, deviation {h.sd:.6g}, {h.form}") for name, h in heads]

    def weight_law(self, head: int, key: int) -> WeightLaw:
        """The exact law of the weight that `head` puts on `key`."""
        query = self.queries[[head]]
        return law_of_logits(query[0, : self.keys.n], self.keys.logit_sds(query)[0], key)

    @cached_property
    def heads(self) -> tuple[WeightLaw, ...]:
        """Each head's exact law of its weight on its target."""
        return tuple(self.weight_law(head, key) for head, key in enumerate(self.targets))

    @cached_property
    def on_a(self) -> tuple[WeightLaw, ...]:
        """Each head's exact law of its weight on key a."""
        return tuple(
            self.heads[head] if target == A else self.weight_law(head, A)
            for head, target in enumerate(self.targets)
        )

    @property
    def p_negative(self) -> float:
        """P(k_a . q_1 < 0): the cases that the homework sets aside."""
        mean, sd = self.queries[0, A], self.keys.logit_sds(self.queries[:1])[0, A]
        return float(ndtr(-mean / sd)) if sd > 0 else float(mean < 0)

    @property
    def mean(self) -> float:
        """E of the average weight on a; means add whatever the dependence."""
        return float(np.mean([law.mean for law in self.on_a]))

    @cached_property
    def spread(self) -> float | None:
        """The standard deviation of the average weight on a, or None (see `why_no_spread`)."""
        if self.why_no_spread:
            return None
        if self.keys.alpha == 0:
            z, p = normal_nodes(max(law.logit_sd for law in self.on_a))
            average = self._average_at(z)
            return math.sqrt(max(float(p @ (average - p @ average) ** 2), 0.0))
        variances = np.array([law.sd**2 for law in self.on_a])
        return math.sqrt(float((self._same * variances).sum())) / len(variances)

    @cached_property
    def why_no_spread(self) -> str:
        """Empty, or the sentence that says why only trials know the spread of the average.
        It is known where one normal moves all heads (alpha = 0), and where any two heads are either
        independent or ask the same query."""
        if self.keys.alpha == 0:
            return ""
        # the covariance of two heads' logits on any key, and that which key a has on top
        shared = self.keys.alpha * (self.queries @ self.queries.T)
        stretched = shared + self.keys.stretch * np.outer(self.queries[:, A], self.queries[:, A])
        lengths = np.linalg.norm(self.queries, axis=1)
        rounding = 1e-14 * self.keys.alpha * np.outer(lengths, lengths)
        apart = np.maximum(np.abs(shared), np.abs(stretched)) <= rounding
        for g, h in np.argwhere(np.tril(~(apart | self._same), -1)):
            return (
                f"heads {h + 1} and {g + 1} see the same noise through different queries, so the "
                "spread of their average is for trials alone; each head's own law is exact."
            )
        return ""

    def average_curve(self, points: int = 2001) -> tuple[Floats, Floats] | None:
        """(x, P(average weight on a <= x)) where one normal drives every head the same way.
        Then the average is a monotone function of that normal. None in any other case."""
        slopes = self.queries[:, A]
        one_way = bool((slopes >= 0).all() or (slopes <= 0).all())
        if self.keys.alpha > 0 or self.keys.stretch == 0 or not one_way:
            return None
        z = np.linspace(-6.5, 6.5, points)
        average = self._average_at(z)
        return (average if average[0] <= average[-1] else average[::-1]), ndtr(z)

    @cached_property
    def _same(self) -> NDArray[np.bool_]:
        """Which heads ask the same query, (h, h)."""
        _, kind = np.unique(self.queries, axis=0, return_inverse=True)
        return np.equal.outer(kind.reshape(-1), kind.reshape(-1))

    def _average_at(self, z: Floats) -> Floats:
        """The average weight on a when the normal behind key a's length is z; alpha is 0."""
        slopes = np.sign(self.queries[:, A]) * [law.logit_sd for law in self.on_a]
        weights = [expit(law.logit_mean + b * z) for law, b in zip(self.on_a, slopes, strict=True)]
        return np.mean(weights, axis=0)
