"""Queries built by hand: copy one value, average a set, and do it when the keys are noisy.

A design carries what it claims, what it assumes (measured on the keys at hand) and the factor
beta it needs for a tolerance; its proof is the docstring of the function that builds it. In all
of them the tolerance eps bounds the weight that falls outside the wanted keys, so that
|c - wanted| <= eps times the widest distance between values.

Which weights can be had at all is next door, in `reach.py`; matrices in `extraction.py` and
`selfattention.py`.

Shapes: keys (n, d), a query (d,), queries (h, d).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wherefrom.errors import UserError

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Assumption:
    """Something a proof leans on, and by how much the givens at hand depart from it."""

    name: str
    statement: str
    departure: float  # 0 when it holds exactly
    allowed: float = 1e-9

    @property
    def holds(self) -> bool:
        """Whether the departure is rounding and no more."""
        return self.departure <= self.allowed


@dataclass(frozen=True)
class Design:
    """Queries, one a head, with what they claim and what the claim rests on."""

    name: str
    formula: str
    claim: str
    queries: Floats
    beta: float
    tolerance: float
    assumptions: tuple[Assumption, ...]

    @property
    def query(self) -> Floats:
        """The query of a design with one head."""
        if len(self.queries) != 1:
            raise UserError(f"{self.name} has {len(self.queries)} queries, one a head.")
        result: Floats = self.queries[0]
        return result

    @property
    def broken(self) -> tuple[Assumption, ...]:
        """The assumptions that the givens do not meet."""
        return tuple(a for a in self.assumptions if not a.holds)


def beta_to_copy(n: int, tolerance: float) -> float:
    """The margin D after which one weight of n is at least 1 - tolerance.

    Proof: if every other logit is at least D below, the others weigh at most (n-1)e^-D against
    1, so the leftover is at most (n-1)e^-D / (1 + (n-1)e^-D), which is <= eps exactly when
    D >= ln((n-1)(1-eps)/eps).
    """
    return beta_to_average(n, 1, tolerance)


def beta_to_average(n: int, size: int, tolerance: float) -> float:
    """The beta after which `size` logits of beta leave n - size zeros at most `tolerance`.

    Proof: the leftover is (n-s)e^-beta / (s + (n-s)e^-beta); solve for beta. Below zero means
    that even the uniform weights leave less than the tolerance outside.
    """
    if not 0 < tolerance < 1:
        raise UserError(f"a tolerance is between 0 and 1; this one is {tolerance}.")
    if not 1 <= size <= n:
        raise UserError(f"a set of {size} keys cannot be chosen out of {n}.")
    if size == n:
        return 0.0
    return max(0.0, math.log((n - size) * (1 - tolerance) / (size * tolerance)))


def leftover_of_average(n: int, size: int, beta: float) -> float:
    """The weight outside the set for q = beta * (sum of its orthonormal keys)."""
    outside = (n - size) * math.exp(-beta)
    return outside / (size + outside)


def copy_by_own_key(keys: Floats, j: int, *, tolerance: float) -> Design:
    """q = beta k_j copies v_j when all keys have one norm and none equals k_j.

    Proof: the margin is beta min_i (k_j.k_j - k_i.k_j), and by Cauchy-Schwarz k_i.k_j < |k_j|^2
    for a different key of the same norm. beta is the margin that `beta_to_copy` asks for, divided
    by the margin of beta = 1.
    """
    keys = _matrix(keys)
    _check_index(keys, j)
    margins = keys[j] @ keys[j] - np.delete(keys, j, axis=0) @ keys[j]
    margin = float(margins.min()) if len(margins) else math.inf
    if margin <= 0:
        raise UserError(
            f"q = beta k_{j} cannot copy value {j}: another key has at least as large a product "
            f"with it (margin {margin:.6g}); see whether the key can be copied at all."
        )
    beta = beta_to_copy(len(keys), tolerance) / margin if len(keys) > 1 else 0.0
    return Design(
        name="copy by its own key",
        formula=f"q = beta*k_{j}",
        claim=f"the weight on key {j} is at least {1 - tolerance:g}, so c is close to v_{j}",
        queries=(beta * keys[j])[None, :],
        beta=beta,
        tolerance=tolerance,
        assumptions=(_equal_norms(keys),),
    )


def average_of_orthonormal(keys: Floats, chosen: Sequence[int], *, tolerance: float) -> Design:
    """q = beta * sum of the chosen keys averages their values when the keys are orthonormal.

    Proof: k_i.q = beta for a chosen key and 0 for any other, so each chosen weight is
    1/(s + (n-s)e^-beta) and the leftover delta is what `beta_to_average` bounds; exactly,
    c - mean(v_S) = delta (mean(v_rest) - mean(v_S)).
    """
    keys, rows = _matrix(keys), _chosen(keys, chosen)
    beta = beta_to_average(len(keys), len(rows), tolerance)
    return Design(
        name="average of orthonormal keys",
        formula="q = beta*(sum of k_i over S)",
        claim=_averages(rows, tolerance),
        queries=beta * keys[rows].sum(axis=0, keepdims=True),
        beta=beta,
        tolerance=tolerance,
        assumptions=(_orthogonal(keys), _unit_norms(keys)),
    )


def average_of_orthogonal(keys: Floats, chosen: Sequence[int], *, tolerance: float) -> Design:
    """q = beta * sum of k_i/|k_i|^2: the same with norms that differ.

    Proof: k_i.q = beta |k_i|^2/|k_i|^2 = beta for a chosen key, 0 for any other. Without the
    division the two weights of a pair stand as exp(beta (|k_a|^2 - |k_b|^2)) to one.
    """
    keys, rows = _matrix(keys), _chosen(keys, chosen)
    lengths = (keys[rows] ** 2).sum(axis=1, keepdims=True)
    if (lengths == 0).any():
        raise UserError("a key of length zero has the logit 0 whatever the query.")
    beta = beta_to_average(len(keys), len(rows), tolerance)
    return Design(
        name="average of orthogonal keys",
        formula="q = beta*(sum of k_i/|k_i|^2 over S)",
        claim=_averages(rows, tolerance),
        queries=beta * (keys[rows] / lengths).sum(axis=0, keepdims=True),
        beta=beta,
        tolerance=tolerance,
        assumptions=(_orthogonal(keys),),
    )


def average_by_pseudo_inverse(keys: Floats, chosen: Sequence[int], *, tolerance: float) -> Design:
    """q = beta K^+ (sum of e_i) averages any chosen set of linearly independent keys.

    Proof: K has full row rank, so K K^+ = I and the logits Kq are beta on the set and 0 off it,
    as if the keys were orthonormal. Only the query's length, and with it what noise in the keys
    does, grows as they come closer to dependence.
    """
    keys, rows = _matrix(keys), _chosen(keys, chosen)
    target = np.zeros(len(keys))
    target[rows] = 1.0
    unit = np.linalg.pinv(keys) @ target
    beta = beta_to_average(len(keys), len(rows), tolerance)
    missed = float(np.abs(keys @ unit - target).max())
    return Design(
        name="average by pseudo-inverse",
        formula="q = beta*pinv(K)*(sum of e_i over S)",
        claim=_averages(rows, tolerance),
        queries=(beta * unit)[None, :],
        beta=beta,
        tolerance=tolerance,
        assumptions=(
            Assumption("independent", "the keys are linearly independent", missed, allowed=1e-8),
        ),
    )


def _matrix(keys: Floats) -> Floats:
    array = np.asarray(keys, dtype=np.float64)
    if array.ndim != 2 or array.size == 0 or not np.isfinite(array).all():
        raise UserError(f"keys must be a table (n, d) of finite numbers; they are {array.shape}.")
    return array


def _check_index(keys: Floats, j: int) -> None:
    if not 0 <= j < len(keys):
        raise UserError(f"there is no key {j} among {len(keys)}.")


def _chosen(keys: Floats, chosen: Sequence[int]) -> list[int]:
    rows = sorted(set(chosen))
    if len(rows) != len(chosen) or not rows:
        raise UserError(f"the set of keys must be some keys, each once; it is {list(chosen)}.")
    for row in rows:
        _check_index(keys, row)
    return rows


def _averages(rows: Sequence[int], tolerance: float) -> str:
    names = ", ".join(f"v_{row}" for row in rows)
    return f"c is the mean of {names} but for a weight of at most {tolerance:g}"


def _orthogonal(keys: Floats) -> Assumption:
    gram = keys @ keys.T
    off = float(np.abs(gram - np.diag(np.diag(gram))).max())
    return Assumption("orthogonal", "k_i . k_j = 0 for i != j", off)


def _unit_norms(keys: Floats) -> Assumption:
    off = float(np.abs(np.linalg.norm(keys, axis=1) - 1).max())
    return Assumption("unit norms", "|k_i| = 1", off)


def _equal_norms(keys: Floats) -> Assumption:
    norms = np.linalg.norm(keys, axis=1)
    return Assumption("equal norms", "|k_i| is the same for all i", float(np.ptp(norms)))
