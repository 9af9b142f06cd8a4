"""The exact law of one head's weight on one key, when the keys are noisy.

The logits k_i . q of one query are independent Gaussians, one a key. From there:

* if at most one of them is random (alpha = 0), the weight is `share` times a logit-normal
  variable, and mean, deviation, density and quantiles follow from the normal law;
* with two keys the difference of the logits is Gaussian, so the same holds whatever is random;
* otherwise the moments are the integrals of `quadrature`, and the distribution function comes
  from the characteristic function of logit(a_j) = s_j - ln(sum of the other exp(s_i)).

The last inversion divides by a Gamma function that decays like exp(-pi w/2), which the Gaussian
part exp(-sd_j^2 w^2/2) has to pay for: below sd_j = 1/2 digits are lost, so there the law says
that only trials can answer, and gives no number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import loggamma, ndtr, ndtri

from wherefrom.attention.equation import log_sum_exp
from wherefrom.attention.noise import NoisyKeys
from wherefrom.attention.quadrature import (
    IndependentLogits,
    expected_logistic,
    logistic,
    normal_nodes,
)
from wherefrom.errors import UserError

Floats = NDArray[np.float64]

LOGIT_NORMAL = "logit-normal"
INDEPENDENT = "independent Gaussian logits"
FIXED = "not random"
NARROWEST = 0.5  # least deviation of s_j at which the distribution function is inverted
FINE_STEP = 0.125  # axis step for that inversion: aliasing below exp(-59) at sd_j = 1/2


@dataclass(frozen=True)
class WeightLaw:
    """The law of a weight in (0, 1): its numbers, and its distribution where one is known.

    `p_below_half` is None, and `cdf`, `pdf` and `quantile` refuse, where only trials can answer;
    `why_no_distribution` then says so in a sentence.
    """

    form: str
    logit_mean: float
    logit_sd: float
    mean: float
    sd: float
    fourth: float  # the fourth central moment, for the standard error of a simulated variance
    share: float = 1.0  # weight = share * sigma(location + scale Z) in the logit-normal form
    location: float = 0.0
    scale: float = 0.0
    inversion: _Inversion | None = field(default=None, repr=False)
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
        if self.inversion is not None:
            return self.inversion.cdf(logits)
        if self.scale == 0:
            return np.where(logits >= self.location, 1.0, 0.0)
        result: Floats = ndtr((logits - self.location) / self.scale)
        return result

    def pdf(self, x: Floats) -> Floats:
        """The density at x, for x strictly between 0 and the largest weight possible."""
        logits = self._logit(x)
        part = np.asarray(x, dtype=np.float64) / self.share
        slope = 1 / (self.share * part * (1 - part))
        if self.inversion is not None:
            return self.inversion.pdf(logits) * slope
        if self.scale == 0:
            raise UserError("a weight that is not random has no density.")
        z = (logits - self.location) / self.scale
        result: Floats = np.exp(-z * z / 2) / (math.sqrt(2 * math.pi) * self.scale) * slope
        return result

    def quantile(self, p: float) -> float:
        """The x with P(weight <= x) = p."""
        self._demand_distribution()
        if not 0 < p < 1:
            raise UserError(f"a quantile is asked for a probability between 0 and 1, not {p}.")
        if self.inversion is not None:
            logit = self.inversion.quantile(p)
        else:
            logit = self.location + self.scale * float(ndtri(p))
        return self.share * float(logistic(np.array(logit)))

    def _logit(self, x: Floats) -> Floats:
        self._demand_distribution()
        part = np.asarray(x, dtype=np.float64) / self.share
        with np.errstate(divide="ignore", invalid="ignore"):
            logits = np.log(part) - np.log1p(-part)
        result: Floats = np.where(part <= 0, -np.inf, np.where(part >= 1, np.inf, logits))
        return result

    def _demand_distribution(self) -> None:
        if self.why_no_distribution:
            raise UserError(self.why_no_distribution)


def law_of_weight(keys: NoisyKeys, query: Floats, key: int = 0) -> WeightLaw:
    """The law of the weight that one query puts on one key."""
    queries = keys.check_queries(query)
    if len(queries) != 1:
        raise UserError("the law of one weight takes one query; for several heads see heads.py.")
    return law_of_logits(keys.logit_means(queries)[0], keys.logit_sds(queries)[0], key)


def law_of_logits(means: Floats, sds: Floats, key: int) -> WeightLaw:
    """The law of softmax(s)[key] for independent logits s_i ~ N(means_i, sds_i^2)."""
    n = len(means)
    if not 0 <= key < n:
        raise UserError(f"there is no key {key} among {n}.")
    others = np.arange(n) != key
    noisy = np.flatnonzero(sds > 0)
    if n == 2:
        return _logit_normal(
            location=float(means[key] - means[1 - key]), scale=float(np.hypot(sds[0], sds[1]))
        )
    if len(noisy) == 0 or (len(noisy) == 1 and noisy[0] == key):
        return _logit_normal(
            location=float(means[key] - log_sum_exp(means[others])), scale=float(sds[key])
        )
    if len(noisy) == 1:
        # the other fixed keys share what the noisy one leaves, in fixed proportions
        still = np.arange(n) != noisy[0]
        rest = float(log_sum_exp(means[still]))
        return _logit_normal(
            location=rest - float(means[noisy[0]]),
            scale=float(sds[noisy[0]]),
            share=math.exp(float(means[key]) - rest),
        )
    return _independent(means, sds, key)


def _logit_normal(*, location: float, scale: float, share: float = 1.0) -> WeightLaw:
    z, p = normal_nodes(scale) if scale > 0 else (np.zeros(1), np.ones(1))
    x = location + scale * z
    weight = share * logistic(x)
    mean = float(p @ weight)
    central = weight - mean
    logit_mean, logit_sd = location, scale
    if share < 1:
        # logit(share sigma(x)) = ln share + x - ln(1 + (1 - share) e^x)
        logits = math.log(share) + x - np.logaddexp(0.0, x + math.log1p(-share))
        logit_mean = float(p @ logits)
        logit_sd = math.sqrt(float(p @ (logits - logit_mean) ** 2))
    return WeightLaw(
        form=LOGIT_NORMAL if scale > 0 else FIXED,
        logit_mean=logit_mean,
        logit_sd=logit_sd,
        mean=mean,
        sd=math.sqrt(float(p @ central**2)),
        fourth=float(p @ central**4),
        share=share,
        location=location,
        scale=scale,
    )


def _independent(means: Floats, sds: Floats, key: int) -> WeightLaw:
    every = IndependentLogits(means, sds)
    m1, m2, m3, m4 = (float(row[every.kind_of[key]]) for row in every.moments())
    others = np.arange(len(means)) != key
    rest = IndependentLogits(means[others], sds[others], step=FINE_STEP, powers=1)
    rest_mean, rest_variance = rest.log_sum_moments()
    mean, sd = float(means[key]), float(sds[key])
    wide = sd >= NARROWEST
    logit_sd = math.sqrt(sd**2 + rest_variance)
    return WeightLaw(
        form=INDEPENDENT,
        logit_mean=mean - rest_mean,
        logit_sd=logit_sd,
        mean=m1,
        sd=math.sqrt(max(m2 - m1 * m1, 0.0)),
        fourth=max(m4 - 4 * m1 * m3 + 6 * m1**2 * m2 - 3 * m1**4, 0.0),
        inversion=_Inversion(rest, mean, sd, mean - rest_mean, logit_sd) if wide else None,
        why_no_distribution=""
        if wide
        else (
            f"several logits are random and this key's own has a deviation of {sd:.3g}, below "
            f"{NARROWEST}: its moments are exact, its distribution only trials can give."
        ),
    )


@dataclass(frozen=True)
class _Inversion:
    """The distribution of R = s_j - ln W from its characteristic function.

    v = G - ln W has a density on an axis (see quadrature) and G a Gumbel with E exp(iwG) =
    Gamma(1 + iw); so E exp(iwR) = exp(iw mean - w^2 sd^2/2) E exp(iwv) / Gamma(1 + iw), and
    P(R <= x) = 1/2 - (1/pi) integral of Im(exp(-iwx) E exp(iwR)) / w over w > 0.
    """

    rest: IndependentLogits
    mean: float
    sd: float
    centre: float
    spread: float

    @cached_property
    def _transform(self) -> tuple[Floats, NDArray[np.complex128], float]:
        v, density = self.rest.log_sum_axis()
        # exp(pi w/2 - sd^2 w^2/2) is below exp(-37) from here on
        last = (math.pi / 2 + math.sqrt(math.pi**2 / 4 + 74 * self.sd**2)) / self.sd**2
        # half-integer nodes repeat the law every 2 pi/step: 40 deviations and more lie between
        step = 2 * math.pi / (40 * self.spread + 20)
        w: Floats = (np.arange(math.ceil(last / step), dtype=np.float64) + 0.5) * step
        blurred = np.einsum("wv,v->w", np.exp(1j * np.outer(w, v)), density * self.rest.step)
        own = 1j * w * self.mean - (w * self.sd) ** 2 / 2
        transform: NDArray[np.complex128] = blurred * np.exp(own - loggamma(1 + 1j * w))
        return w, transform, step

    def _clip(self, x: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        inside = np.abs(x - self.centre) < 18 * self.spread + 9
        return np.where(inside, x, self.centre), inside

    def cdf(self, x: Floats) -> Floats:
        w, transform, step = self._transform
        at, inside = self._clip(np.asarray(x, dtype=np.float64))
        wave = np.exp(-1j * np.multiply.outer(at, w)) * transform
        values = np.clip(0.5 - (wave.imag / w).sum(axis=-1) * step / math.pi, 0.0, 1.0)
        result: Floats = np.where(inside, values, (x > self.centre).astype(np.float64))
        return result

    def pdf(self, x: Floats) -> Floats:
        w, transform, step = self._transform
        at, inside = self._clip(np.asarray(x, dtype=np.float64))
        wave = np.exp(-1j * np.multiply.outer(at, w)) * transform
        values = np.maximum(wave.real.sum(axis=-1) * step / math.pi, 0.0)
        result: Floats = np.where(inside, values, 0.0)
        return result

    def quantile(self, p: float) -> float:
        reach = 18 * self.spread + 8
        low, high = self.centre - reach, self.centre + reach
        return float(brentq(lambda x: float(self.cdf(np.array(x))) - p, low, high, xtol=1e-12))


__all__ = [
    "FIXED",
    "INDEPENDENT",
    "LOGIT_NORMAL",
    "WeightLaw",
    "expected_logistic",
    "law_of_logits",
    "law_of_weight",
]
