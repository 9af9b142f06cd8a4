"""Expectations of softmax weights whose logits are independent Gaussians, to about 1e-15.

Every integrand here is analytic in a strip around the real line and vanishes at both ends. For
such functions the plain trapezoid rule converges exponentially: its error is exp(-2 pi w / h) for
a strip of half-width w and a step h. The steps below follow from that formula. (Adaptive
`scipy.integrate.quad` stops at 1e-10 and takes a call for each number; here one array does all.)

* `normal_nodes`: one random number behind everything, E f(m + sZ) for a smooth f.
* `IndependentLogits`: many random logits. 1/W = integral of exp(-uW) du turns the softmax's
  quotient into a product over keys, and the expectation of a product of independent factors is
  the product of their expectations.

Shapes: n keys, g kinds of key (keys with equal mean and deviation), v points on the axis.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from wherefrom.errors import UserError

Floats = NDArray[np.float64]

REACH = 9.0  # standard deviations kept on each side: what is cut off is 2 Phi(-9) = 2e-19
STRIP = math.pi * 6 / 7  # the pole is at i pi; its fourth power costs another exp(-6)
AXIS_STEP = 11 / 64  # error |Gamma(4 + iw)| at w = 2 pi / h: below 1e-16 up to the fourth moment
MAX_NODES = 1_000_000  # on one side of one axis: limits time and memory
MAX_SD = 1000.0  # of a logit among several random ones: a wider one takes seconds
EULER_GAMMA = 0.57721566490153286061


def normal_nodes(spread: float) -> tuple[Floats, Floats]:
    """Nodes z and weights p with sum(p f(spread * z)) = E f(spread * Z) for Z standard normal.

    f is a power of the logistic function, or made of such. The strip's half-width is STRIP in x,
    hence STRIP/spread in z, and the step that leaves exp(-36) = 2e-16 is 2 pi STRIP/(36 spread).
    """
    step = min(0.25, 2 * math.pi * STRIP / (36 * max(abs(spread), 1.0)))
    count = math.ceil(REACH / step)
    if count > MAX_NODES:
        widest = MAX_NODES / REACH * 2 * math.pi * STRIP / 36
        raise UserError(
            f"a logit with a standard deviation of {abs(spread):.3g} is too wide for the "
            f"quadrature; the widest it takes is {widest:.0f}."
        )
    z: Floats = np.arange(-count, count + 1, dtype=np.float64) * (REACH / count)
    weights: Floats = np.exp(-z * z / 2)
    return z, weights / weights.sum()


class IndependentLogits:
    """Softmax weights a of independent Gaussian logits s_i ~ N(means_i, sds_i^2).

    With y_i = exp(s_i + v), E_i = E exp(-y_i) and T_i(p) = E[y_i^p exp(-y_i)] / E_i,

        E a_j^p = integral dv  (prod_i E_i) T_j(p) / Gamma(p),

    since 1/W^p = integral u^(p-1) exp(-uW) du / Gamma(p) and u = exp(v). Keys of one kind share
    their factors, so the cost grows with the number of kinds and not with n.
    """

    def __init__(
        self, means: Floats, sds: Floats, *, step: float = AXIS_STEP, powers: int = 4
    ) -> None:
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
        self.step, self.powers = step, powers
        # left end: even the sum of all y is below exp(-40); right end: some y is above exp(6)
        left = -float(np.max(kinds[:, 0] + REACH * kinds[:, 1] + np.log(counts))) - 40.0
        right = -float(np.max(kinds[:, 0] - REACH * kinds[:, 1])) + 6.0
        self.axis = step * np.arange(math.floor(left / step), math.ceil(right / step) + 1)
        found = np.array([self._averages(mean, sd) for mean, sd in kinds])  # (g, 1 + powers, v)
        none = np.maximum(found[:, 0], 1e-300)  # E_i; below, only rounding is left
        self.ratios = found[:, 1:] / none[:, None]  # T_i(p), (g, powers, v)
        self.product = np.exp(self.counts @ np.log(none)) * step  # (v,)

    def _averages(self, mean: float, sd: float) -> Floats:
        """E[y^p exp(-y)] for p = 0..powers along the axis, (1 + powers, v)."""
        if sd <= 4 * self.step:  # a table of nodes at each point of the axis
            z, p = normal_nodes(sd) if sd > 0 else (np.zeros(1), np.ones(1))
            y = np.exp(np.minimum(mean + self.axis[:, None] + sd * z, 7.0))
            mass = np.exp(-y)
            return np.stack([np.einsum("vz,z->v", y**k * mass, p) for k in range(self.powers + 1)])
        # A wide Gaussian can have its nodes on a grid of the axis's own step, x in [-40, 7], beyond
        # which y^p exp(-y) vanishes; z depends on the distance of node and axis point alone, so
        # the averages are correlations. Integrating by parts, E exp(-y) is the integral of
        # y exp(-y) P(s + v < x) dx, which vanishes at both ends too. y^4 exp(-y) is below 80 for
        # an imaginary part of x up to pi/3, so a step of 11/64 leaves 80 exp(-38).
        first, last = math.ceil((-40.0 - mean) / self.step), math.ceil((7.0 - mean) / self.step)
        y = np.exp(mean + self.step * np.arange(first, last))
        gaps = np.arange(1 - len(self.axis), len(y)) + first - round(self.axis[0] / self.step)
        z = gaps * (self.step / sd)
        density = np.exp(-z * z / 2) / (math.sqrt(2 * math.pi) * sd)
        rows = [(ndtr(z), y * np.exp(-y))]
        rows += [(density, y**k * np.exp(-y)) for k in range(1, self.powers + 1)]
        return np.stack([np.correlate(kernel, f * self.step)[::-1] for kernel, f in rows])

    def moments(self, key: int) -> Floats:
        """E a_key^p for p = 1..powers, (powers,)."""
        gammas = np.array([1.0, 1.0, 2.0, 6.0])[: self.powers]
        result: Floats = (self.ratios[self.kind_of[key]] @ self.product) / gammas
        return result

    def log_sum_density(self) -> Floats:
        """The density along the axis of G - ln W, with W the sum of exp(s_i) and G a Gumbel.

        If X is exponential then P(X > uW) = E exp(-uW); ln X is a Gumbel of the minimum. So the
        Laplace transform of W, as a function of v = ln u, is a distribution function blurred by
        a known law, from which the cumulants and the characteristic function of ln W follow.
        """
        density: Floats = self.product * (self.counts @ self.ratios[:, 0]) / self.step
        return density

    def log_sum_moments(self) -> tuple[float, float]:
        """Mean and variance of ln W: the blur's own cumulants are -gamma and pi^2/6."""
        p = self.log_sum_density() * self.step
        centre = float(p @ self.axis)
        variance = float(p @ (self.axis - centre) ** 2) - math.pi**2 / 6
        return -EULER_GAMMA - centre, max(variance, 0.0)
