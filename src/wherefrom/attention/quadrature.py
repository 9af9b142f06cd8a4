"""Expectations of softmax weights when the logits are independent Gaussians, to about 1e-15.

Every integrand here is analytic in a strip around the real line and dies off at both ends, and
for such functions the plain trapezoid rule converges exponentially: an error of exp(-2 pi w / h)
for a strip of half-width w and a step h. The steps below are chosen from that formula, so the
accuracy is a consequence and not a setting.

Two routes, for the two shapes a law can take:

1. one random number behind everything (`normal_nodes`): E f(m + sZ) for any smooth f, for
   instance the logistic function F(m, s) = E sigma(m + sZ);
2. many independent Gaussian logits (`IndependentLogits`): 1/W = integral of exp(-uW) du turns the
   softmax's quotient into a product over keys, because the expectation of a product of independent
   factors is the product of their expectations.

Shapes: n keys, g kinds of key (keys with equal mean and deviation), v points on the axis.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from wherefrom.errors import UserError

Floats = NDArray[np.float64]

REACH = 9.0  # standard deviations kept on each side: what is cut off is 2 Phi(-9) = 2e-19
STRIP = math.pi * 6 / 7  # the pole is at i pi; its fourth power costs another exp(-6)
AXIS_STEP = 11 / 64  # error |Gamma(4 + iw)| at w = 2 pi / h: below 1e-16 up to the fourth moment
MOST_NODES = 1_000_000  # on one side of one axis: what a law may cost in time and memory
WIDEST = 1000.0  # deviation of a logit among several random ones: beyond, a law takes seconds
EULER_GAMMA = 0.57721566490153286061


def normal_nodes(spread: float) -> tuple[Floats, Floats]:
    """Nodes z and weights p with sum(p f(spread * z)) = E f(spread * Z) for Z standard normal.

    f is a power of the logistic function, or made of such. The strip's half-width is STRIP in x,
    hence STRIP/spread in z, and the step that leaves exp(-36) = 2e-16 is 2 pi STRIP/(36 spread).
    """
    step = 0.25 if spread == 0 else min(0.25, 2 * math.pi * STRIP / (36 * abs(spread)))
    count = math.ceil(REACH / step)
    if count > MOST_NODES:
        widest = MOST_NODES / REACH * 2 * math.pi * STRIP / 36
        raise UserError(
            f"a logit with a standard deviation of {abs(spread):.3g} is too wide for the "
            f"quadrature; the widest it takes is {widest:.0f}."
        )
    z: Floats = np.arange(-count, count + 1, dtype=np.float64) * (REACH / count)
    weights: Floats = np.exp(-z * z / 2)
    return z, weights / weights.sum()


def expected_logistic(mean: float, sd: float, power: int = 1) -> float:
    """E sigma(mean + sd Z)^power: the moments of a logit-normal weight."""
    z, p = normal_nodes(sd)
    return float(p @ logistic(mean + sd * z) ** power)


def logistic(x: Floats) -> Floats:
    """1/(1+exp(-x)), without overflow on either side."""
    small = np.exp(-np.abs(x))
    result: Floats = np.where(x >= 0, 1.0, small) / (1.0 + small)
    return result


@dataclass(frozen=True)
class IndependentLogits:
    """Softmax weights of independent Gaussian logits s_i ~ N(mean_i, sd_i^2).

    With y_i = exp(s_i + v), E_i = E exp(-y_i) and T_i(p) = E[y_i^p exp(-y_i)] / E_i,

        E a_j^p   = integral dv  (prod_i E_i) T_j(p) / Gamma(p)
        E a_j a_k = integral dv  (prod_i E_i) T_j(1) T_k(1)          for j != k,

    since 1/W^p = integral u^(p-1) exp(-uW) du / Gamma(p) and u = exp(v). Keys of one kind share
    their factors, so the cost grows with the number of kinds and not with n.
    """

    means: Floats
    sds: Floats
    step: float = AXIS_STEP
    powers: int = 4  # moments wanted, 1 to 4

    @cached_property
    def _kinds(self) -> tuple[Floats, Floats, NDArray[np.intp], Floats]:
        pairs = np.stack([self.means, self.sds], axis=1)
        kinds, index, counts = np.unique(pairs, axis=0, return_inverse=True, return_counts=True)
        return kinds[:, 0], kinds[:, 1], index.reshape(-1), counts.astype(np.float64)

    @property
    def kind_of(self) -> NDArray[np.intp]:
        """Which kind each key is of, (n,)."""
        return self._kinds[2]

    @property
    def counts(self) -> Floats:
        """How many keys each kind has, (g,)."""
        return self._kinds[3]

    @cached_property
    def _axis(self) -> Floats:
        means, sds, _, counts = self._kinds
        if sds.max() > WIDEST:
            raise UserError(
                f"with several random logits the exact integral takes deviations up to "
                f"{WIDEST:.0f}; one of them is {sds.max():.3g}."
            )
        # left end: even the sum of all y is below exp(-40); right end: some y is above exp(6)
        left = -float(np.max(means + REACH * sds + np.log(counts))) - 40.0
        right = -float(np.max(means - REACH * sds)) + 6.0
        first, last = math.floor(left / self.step), math.ceil(right / self.step)
        return self.step * np.arange(first, last + 1, dtype=np.float64)

    def _factors(self) -> tuple[Floats, Floats]:
        """log E_i, (g, v), and T_i(p) for p = 1..powers, (powers, g, v)."""
        powers = self.powers
        means, sds, _, _ = self._kinds
        v = self._axis
        log_none = np.empty((len(means), len(v)))
        ratios = np.zeros((powers, len(means), len(v)))
        for kind, (mean, sd) in enumerate(zip(means, sds, strict=True)):
            averages = self._average_wide if sd > 4 * self.step else self._average_narrow
            none, *rest = averages(float(mean), float(sd), powers)
            log_none[kind] = np.log(none)
            for power, some in enumerate(rest):
                ratios[power, kind] = some / none
        return log_none, ratios

    # The axis ends where every kind has a y below exp(6) within reach, so E_i never underflows.

    def _average_narrow(self, mean: float, sd: float, powers: int) -> list[Floats]:
        """E[y^p exp(-y)], p = 0..powers, along the axis: a table of nodes at each point."""
        z, p = normal_nodes(sd) if sd > 0 else (np.zeros(1), np.ones(1))
        y = np.exp(np.minimum(mean + self._axis[:, None] + sd * z, 600.0))
        mass = np.exp(-y)
        found = [np.einsum("vz,z->v", mass, p)]
        for _ in range(powers):
            mass *= y
            found.append(np.einsum("vz,z->v", mass, p))
        return found

    def _average_wide(self, mean: float, sd: float, powers: int) -> list[Floats]:
        """The same for a wide Gaussian, whose nodes can lie on the axis's own grid.

        Then neighbouring points share all nodes but one, and the averages are a correlation of
        the Gaussian with one row of values. That row is short: below x = -40 exp(-y) is 1 and
        y^p exp(-y) is 0 (for p > 0), above x = 7 all are 0, to the last bit of a sum of order 1.
        y^4 exp(-y) is analytic and below 80 for an imaginary part of x up to pi/3, so a step of
        11/64 in x leaves 80 exp(-38), and 1/4 in z, far less.
        """
        count, points = math.ceil(REACH * sd / self.step), len(self._axis)
        z = np.arange(-count, count + 1) * (self.step / sd)
        p = np.exp(-z * z / 2)
        p /= p.sum()
        # node k of axis point i is grid place i + k; places low to high make up the short row
        start = mean + self._axis[0] - count * self.step
        ends = [math.ceil((edge - start) / self.step) for edge in (-40.0, 7.0)]
        low, high = (min(max(end, 0), points + 2 * count) for end in ends)
        shifts = low - np.arange(points)  # the node that falls on the row's first place
        certain = np.append(0.0, np.cumsum(p))[np.clip(shifts, 0, len(p))]
        if high == low:
            return [np.maximum(certain, 1e-300)] + [np.zeros(points)] * powers
        y = np.exp(start + self.step * np.arange(low, high))
        before = max(0, points - 1 - low)
        padded = np.pad(p, (before, max(0, low + len(y) - len(p))))
        mass = np.exp(-y)
        found = []
        for _ in range(powers + 1):
            found.append(np.correlate(padded, mass, mode="valid")[shifts + before])
            mass = mass * y
        found[0] = np.maximum(found[0] + certain, 1e-300)
        return found

    @cached_property
    def _tables(self) -> tuple[Floats, Floats]:
        log_none, ratios = self._factors()
        everything: Floats = np.exp(self.counts @ log_none) * self.step
        return everything, ratios

    def moments(self) -> Floats:
        """E a_j^p for p = 1..powers and each kind, (powers, g)."""
        everything, ratios = self._tables
        gammas = np.array([1.0, 1.0, 2.0, 6.0])[: self.powers]
        result: Floats = (ratios @ everything) / gammas[:, None]
        return result

    def products(self) -> Floats:
        """E a_j a_k for two different keys of kinds j and k, (g, g)."""
        everything, ratios = self._tables
        first = ratios[0]
        result: Floats = (first * everything) @ first.T
        return result

    def covariance(self) -> Floats:
        """The covariance of the weights, (n, n)."""
        moments, products, kind = self.moments(), self.products(), self.kind_of
        full = products[np.ix_(kind, kind)]
        np.fill_diagonal(full, moments[1][kind])
        mean = moments[0][kind]
        result: Floats = full - np.outer(mean, mean)
        return result

    def log_sum_axis(self) -> tuple[Floats, Floats]:
        """A density on an axis: that of G - ln W, with W the sum of exp(s_i) and G a Gumbel.

        If X is exponential then P(X > uW) = E exp(-uW); ln X is a Gumbel of the minimum. So the
        Laplace transform of W, as a function of v = ln u, is a distribution function blurred by
        a known law, from which the cumulants and the characteristic function of ln W follow.
        """
        everything, ratios = self._tables
        density: Floats = everything * (self.counts @ ratios[0]) / self.step
        return self._axis, density

    def log_sum_moments(self) -> tuple[float, float]:
        """Mean and variance of ln W: the blur's own cumulants are -gamma and pi^2/6."""
        v, density = self.log_sum_axis()
        p = density * self.step
        centre = float(p @ v)
        variance = float(p @ (v - centre) ** 2) - math.pi**2 / 6
        return -EULER_GAMMA - centre, max(variance, 0.0)
