"""The setting of the noisy keys: what is random, and what that makes of a query's logits.

Key i is drawn from N(mu_i, Sigma_i), the means orthonormal, the draws independent. Every key has
the isotropic part alpha I; key a alone has something on top, in the homework 1/2 mu_a mu_a^T,
which leaves its direction and stretches its length. Laws and trials both start here, so they
cannot disagree about the question.

A rotation takes any orthonormal means to the first n axes and changes no logit, so mu_i is the
i-th unit vector; a is key 0 and b is key 1. A covariance is given in those coordinates.

Shapes: n keys of width d >= n, h heads, r columns of the factor of key a's extra covariance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from wherefrom.errors import UserError

Floats = NDArray[np.float64]

A, B = 0, 1  # the two keys whose values are wanted


@dataclass(frozen=True)
class NoisyKeys:
    """n keys of width d, each with alpha I; key a also has `covariance`, or stretch mu_a mu_a^T."""

    n: int
    d: int
    alpha: float = 0.0
    stretch: float = 0.5
    covariance: Floats | None = None

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
        if self.covariance is not None and self.covariance.shape != (self.d, self.d):
            raise UserError(
                f"the covariance of key a must be {self.d} x {self.d}; "
                f"it is {' x '.join(map(str, self.covariance.shape))}."
            )
        _ = self.factor  # a covariance that is none is refused here, not at its first use

    @cached_property
    def factor(self) -> Floats:
        """F (d, r) with F F^T = the covariance that key a has beyond alpha I."""
        if self.covariance is None:
            column = np.zeros((self.d, 1))
            column[A, 0] = math.sqrt(self.stretch)
            return column if self.stretch > 0 else column[:, :0]
        matrix = np.asarray(self.covariance, dtype=np.float64)
        if not np.isfinite(matrix).all() or not np.allclose(matrix, matrix.T, rtol=1e-9, atol=0):
            raise UserError("the covariance of key a must be a symmetric matrix of finite numbers.")
        values, vectors = np.linalg.eigh(matrix)
        rounding = 1e-12 * max(float(np.abs(values).max()), 1e-300)
        if values.min() < -rounding:
            raise UserError(
                "the covariance of key a must have no negative eigenvalue; "
                f"its smallest is {values.min():.6g}."
            )
        kept = values > rounding
        factor: Floats = vectors[:, kept] * np.sqrt(values[kept])
        return factor

    def check_queries(self, queries: Floats) -> Floats:
        """The queries as (h, d) floats, or a sentence that says what is wrong with them."""
        array = np.atleast_2d(np.asarray(queries, dtype=np.float64))
        if array.ndim != 2 or array.shape[1] != self.d or array.shape[0] == 0:
            raise UserError(
                f"queries must be heads x {self.d}; they are {' x '.join(map(str, array.shape))}."
            )
        if not np.isfinite(array).all():
            raise UserError("a query must be made of finite numbers.")
        return array

    def logit_means(self, queries: Floats) -> Floats:
        """mu_i . q_h, (h, n): the first n coordinates of each query."""
        return queries[:, : self.n]

    def logit_sds(self, queries: Floats) -> Floats:
        """The standard deviation of k_i . q_h, (h, n)."""
        isotropic = self.alpha * (queries**2).sum(axis=1, keepdims=True)
        variances = np.repeat(isotropic, self.n, axis=1)
        variances[:, A] += ((queries @ self.factor) ** 2).sum(axis=1)
        result: Floats = np.sqrt(variances)
        return result

    def head_covariance(self, queries: Floats, *, of_a: bool) -> Floats:
        """The covariance (h, h) of one key's logits across heads: key a's, or any other key's."""
        shared: Floats = self.alpha * (queries @ queries.T)
        if not of_a:
            return shared
        loading = queries @ self.factor
        result: Floats = shared + loading @ loading.T
        return result
