"""The exact law of several heads under noisy keys: their average is what the next layer sees.

Every head has its own exact `WeightLaw`. What the average c = (c_1 + ... + c_H)/H does depends on
how the heads move together, and that is known exactly in three cases for a pair of heads:

* the two ask the same query: they are one head written twice, and nothing cancels;
* no key's two logits are correlated: jointly Gaussian, hence independent;
* only key a is noisy (alpha = 0): then head h gives a_h to key a and splits 1 - a_h among the
  others in fixed proportions, and E a_g a_h is a double integral over two normals.

For any other pair the moments of the average are for trials alone, and the law says so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from wherefrom.attention.equation import log_sum_exp, softmax_over_keys
from wherefrom.attention.laws import WeightLaw, law_of_logits
from wherefrom.attention.noise import A, NoisyKeys
from wherefrom.attention.quadrature import IndependentLogits, logistic, normal_nodes
from wherefrom.errors import UserError

Floats = NDArray[np.float64]

MOST_PAIRS = 20_000_000  # nodes of a double integral: 160 MB, and a second of time
CORRELATED = (
    "heads {0} and {1} see the same noise through different queries, so the spread of their "
    "average is for trials alone; each head's own law is exact."
)


@dataclass(frozen=True)
class ContextLaw:
    """Mean (e,) and covariance (e, e) of c for given values; no covariance if only trials know."""

    mean: Floats
    covariance: Floats | None
    why_no_covariance: str = ""


@dataclass(frozen=True)
class HeadsLaw:
    """One or more heads over the same noisy keys; c is the average of what they give.

    Head h is reported by its weight on key `targets[h]`, the key that it is meant to copy.
    """

    keys: NoisyKeys
    queries: Floats  # (h, d)
    targets: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "queries", self.keys.check_queries(self.queries))
        if len(self.targets) != len(self.queries):
            raise UserError(
                f"each head needs one target key; there are {len(self.queries)} heads "
                f"and {len(self.targets)} targets."
            )

    @cached_property
    def heads(self) -> tuple[WeightLaw, ...]:
        """Each head's exact law of its weight on its target."""
        return tuple(self.weight_law(head, key) for head, key in enumerate(self.targets))

    def weight_law(self, head: int, key: int) -> WeightLaw:
        """The exact law of the weight that `head` puts on `key`."""
        if (head, key) not in self._known:
            self._known[head, key] = law_of_logits(self._means[head], self._sds[head], key)
        return self._known[head, key]

    @cached_property
    def p_negative(self) -> float:
        """P(k_a . q_1 < 0): the cases that the homework sets aside."""
        mean, sd = self._means[0, A], self._sds[0, A]
        return float(ndtr(-mean / sd)) if sd > 0 else float(mean < 0)

    @cached_property
    def mean_weights(self) -> Floats:
        """E of the average weight on each key, (n,); means add whatever the dependence."""
        every = np.stack([self._mean_of_head(head) for head in range(len(self.queries))])
        result: Floats = every.mean(axis=0)
        return result

    @property
    def why_no_spread(self) -> str:
        """Empty, or the sentence that says why only trials know the spread of the average."""
        for g in range(len(self.queries)):
            for h in range(g):
                if self._relation(g, h) == "correlated":
                    return CORRELATED.format(h + 1, g + 1)
        return ""

    def spread(self, key: int = A) -> float | None:
        """The standard deviation of the average weight on `key`, or None."""
        if self.why_no_spread:
            return None
        count = len(self.queries)
        total = sum(self._covariance_of_pair(g, h, key) for g in range(count) for h in range(count))
        return math.sqrt(max(total, 0.0)) / count

    def weight_covariance(self) -> Floats:
        """The covariance of the average weights, (n, n); a sentence where only trials know it."""
        if self.why_no_spread:
            raise UserError(self.why_no_spread)
        count, n = len(self.queries), self.keys.n
        total = np.zeros((n, n))
        for g in range(count):
            for h in range(count):
                total += self._full_covariance_of_pair(g, h)
        return total / count**2

    def context(self, values: Floats) -> ContextLaw:
        """Mean and covariance of c for values (n, e): both linear in those of the weights."""
        array = np.asarray(values, dtype=np.float64)
        if array.ndim != 2 or len(array) != self.keys.n:
            raise UserError(f"values must be {self.keys.n} rows; they are {array.shape}.")
        mean: Floats = self.mean_weights @ array
        if self.why_no_spread:
            return ContextLaw(mean, None, self.why_no_spread)
        return ContextLaw(mean, array.T @ self.weight_covariance() @ array)

    def average_curve(self, points: int = 2001) -> tuple[Floats, Floats] | None:
        """(x, P(average weight on a <= x)) where one normal drives every head the same way.

        Then the average is an increasing (or decreasing) function of that normal, and its
        distribution function is the normal one, carried along. None in any other case.
        """
        loading = self.queries @ self.keys.factor
        if self.keys.alpha > 0 or loading.shape[1] != 1:
            return None
        slopes = loading[:, 0]
        if (slopes < 0).any() and (slopes > 0).any():
            return None
        z = np.linspace(-6.5, 6.5, points)
        x = np.mean(
            [logistic(self._offset(h) + abs(slope) * z) for h, slope in enumerate(slopes)], axis=0
        )
        return x, ndtr(z)

    @cached_property
    def _known(self) -> dict[tuple[int, int], WeightLaw]:
        return {}

    @cached_property
    def _spread_out(self) -> dict[int, IndependentLogits]:
        return {}

    @cached_property
    def _means(self) -> Floats:
        return self.keys.logit_means(self.queries)

    @cached_property
    def _sds(self) -> Floats:
        return self.keys.logit_sds(self.queries)

    def _offset(self, head: int) -> float:
        """The mean of head's logit of its weight on a, when only key a is noisy."""
        return float(self._means[head, A] - log_sum_exp(np.delete(self._means[head], A)))

    def _mean_of_head(self, head: int) -> Floats:
        if self.keys.alpha > 0:
            law = self._independent(head)
            result: Floats = law.moments()[0][law.kind_of]
            return result
        on_a = self.weight_law(head, A).mean
        mean: Floats = self._shares(head) * (1 - on_a)
        mean[A] = on_a
        return mean

    def _shares(self, head: int) -> Floats:
        """How head splits what key a leaves: (n,), zero at a."""
        still = np.arange(self.keys.n) != A
        shares: Floats = softmax_over_keys(self._means[head], still)
        return shares

    def _variance(self, head: int, key: int) -> float:
        if self.keys.alpha == 0:
            return self.weight_law(head, key).sd ** 2
        law = self._independent(head)
        first, second = law.moments()[:, law.kind_of[key]]
        return max(float(second - first * first), 0.0)

    def _independent(self, head: int) -> IndependentLogits:
        if head not in self._spread_out:
            means, sds = self._means[head], self._sds[head]
            self._spread_out[head] = IndependentLogits(means, sds, powers=2)
        return self._spread_out[head]

    def _relation(self, g: int, h: int) -> str:
        if np.array_equal(self.queries[g], self.queries[h]):
            return "same"
        if self.keys.alpha == 0:
            return "only a"
        pair = self.queries[[g, h]]
        scale = self.keys.alpha * float(np.prod(np.linalg.norm(pair, axis=1)))
        worst = max(
            abs(float(self.keys.head_covariance(pair, of_a=of_a)[0, 1])) for of_a in (False, True)
        )
        return "independent" if worst <= 1e-14 * scale else "correlated"

    def _covariance_of_pair(self, g: int, h: int, key: int) -> float:
        relation = self._relation(g, h)
        if relation == "independent":
            return 0.0
        if relation == "same":
            return self._variance(g, key)
        along = [1.0 if key == A else -float(self._shares(head)[key]) for head in (g, h)]
        return along[0] * along[1] * self._joint_covariance(g, h)

    def _full_covariance_of_pair(self, g: int, h: int) -> Floats:
        relation = self._relation(g, h)
        if relation == "independent":
            return np.zeros((self.keys.n, self.keys.n))
        if self.keys.alpha > 0:
            return self._independent(g).covariance()
        directions = [-self._shares(head) for head in (g, h)]
        for direction in directions:
            direction[A] = 1.0
        result: Floats = np.outer(*directions) * self._joint_covariance(g, h)
        return result

    def _joint_covariance(self, g: int, h: int) -> float:
        """Cov(a_g, a_h) of two heads' weights on a when only key a is noisy."""
        between = self.keys.head_covariance(self.queries[[g, h]], of_a=True)
        first, second = math.sqrt(between[0, 0]), math.sqrt(between[1, 1])
        if first == 0 or second == 0:
            return 0.0
        rho = float(np.clip(between[0, 1] / (first * second), -1.0, 1.0))
        left = math.sqrt(1 - rho * rho) if 1 - abs(rho) > 1e-15 else 0.0
        z, p = normal_nodes(max(first, second))
        y, r = normal_nodes(second * left) if left else (np.zeros(1), np.ones(1))
        if len(z) * len(y) > MOST_PAIRS:
            raise UserError(
                f"two heads whose logits deviate by {first:.3g} and {second:.3g} are too wide for "
                "the double integral; a smaller beta is needed."
            )
        a_g = logistic(self._offset(g) + first * z)
        a_h = logistic(self._offset(h) + second * (rho * z[:, None] + left * y)) @ r
        return float(p @ (a_g * a_h) - (p @ a_g) * (p @ a_h))
