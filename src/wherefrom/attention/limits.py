"""Two limits that a map of attention weights hides.

* A head of width d_k cannot draw every map: the logarithm of the map, once each row's mean is
  taken off, has rank at most d_k.
* A map is not what makes the output: other weights, usually many, give the same output.

Shapes: T tokens, maps (T, T) with rows that sum to one, tokens X (T, d), values (T, e).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wherefrom.errors import UserError

Floats = NDArray[np.float64]


def width_needed(attention_map: Floats) -> int:
    """The least d_k with which one head can have this map: rank(ln A (I - 11^T/T)).

    Proof: ln A = S - z 1^T with scores S = X Q K^T X^T of rank <= d_k, and taking each row's mean
    off (the factor on the right) removes z 1^T; so the rank is at most d_k. Conversely, with
    T <= d and X of full rank any score matrix of rank d_k can be had: see `realise_map`.
    """
    return int(np.linalg.matrix_rank(_centred_log(attention_map), tol=1e-9))


def realise_map(attention_map: Floats, tokens: Floats, d_k: int) -> tuple[Floats, Floats]:
    """Q and K, (d, d_k), such that softmax(X Q K^T X^T) is the map.

    Proof: factor the centred logarithm L = U W^T with d_k columns by its singular values; X has a
    right inverse X^+, so Q = X^+ U and K = X^+ W have X Q K^T X^T = L, and the softmax of L is the
    map because a row's constant cancels.
    """
    tokens = np.asarray(tokens, dtype=np.float64)
    centred = _centred_log(attention_map)
    if tokens.ndim != 2 or np.linalg.matrix_rank(tokens) < len(centred):
        raise UserError("the tokens must be linearly independent: T <= d and X of full rank.")
    needed = width_needed(attention_map)
    if d_k < needed:
        raise UserError(f"this map needs a head of width {needed}; {d_k} is too narrow.")
    left, sizes, right = np.linalg.svd(centred)
    inverse = np.linalg.pinv(tokens)
    root = np.sqrt(sizes[:d_k])
    Q: Floats = inverse @ (left[:, :d_k] * root)
    K: Floats = inverse @ (right[:d_k].T * root)
    return Q, K


@dataclass(frozen=True)
class OtherWeights:
    """How free the weights are at a fixed output, and a second set of them if there is one.

    `dimension` is that of the affine set of weights with the same c and the same sum; `weights`
    is a corner of those that are not negative, or None if the given weights are the only ones.
    """

    dimension: int
    weights: Floats | None
    distance: float  # total variation between the two: half the sum of absolute differences


def freedom(values: Floats) -> int:
    """T - rank([V, 1]): the dimension of the weights that give one and the same c.

    Proof: a and a + z give the same c and both sum to one iff z^T [V, 1] = 0.
    """
    values = np.asarray(values, dtype=np.float64)
    space = np.hstack([values, np.ones((len(values), 1))])
    return int(len(values) - np.linalg.matrix_rank(space))


def second_weights(values: Floats, weights: Floats) -> OtherWeights:
    """Weights other than the given ones that give the same c, far away from them.

    All such weights form a polytope: w >= 0 with [V, 1]^T w fixed. Two of its corners are found by
    linear programs, the one with the least on the heaviest key and the one with the most on the
    lightest, and the further of the two is shown.
    """
    values = np.asarray(values, dtype=np.float64)
    weights = np.asarray(weights, dtype=np.float64)
    if values.ndim != 2 or weights.shape != (len(values),):
        raise UserError(f"{values.shape} values cannot have {weights.shape} weights, one a value.")
    if (weights < 0).any() or abs(float(weights.sum()) - 1) > 1e-6:
        raise UserError("weights must be 0 or more and sum to one.")
    count = freedom(values)
    if count == 0:
        return OtherWeights(0, None, 0.0)
    heaviest, lightest = np.zeros(len(weights)), np.zeros(len(weights))
    heaviest[int(weights.argmax())], lightest[int(weights.argmin())] = 1.0, -1.0
    corners = [_corner(values, weights, objective) for objective in (heaviest, lightest)]
    moved = [float(np.abs(corner - weights).sum() / 2) for corner in corners]
    best = int(np.argmax(moved))
    if moved[best] <= 1e-9:
        return OtherWeights(count, None, 0.0)
    return OtherWeights(count, corners[best], moved[best])


def _corner(values: Floats, weights: Floats, objective: Floats) -> Floats:
    """The weights with the same output that minimise the objective; the given ones if none is
    found to be better."""
    from scipy.optimize import linprog

    largest = max(1.0, float(np.abs(values).max()))
    space = np.hstack([values / largest, np.ones((len(values), 1))])
    # fewer, orthonormal equations say the same and keep the solver's tolerance meaningful
    _, sizes, right = np.linalg.svd(space.T, full_matrices=False)
    rank = int((sizes > 1e-12 * sizes[0]).sum())
    equations = right[:rank]
    found = linprog(objective, A_eq=equations, b_eq=equations @ weights, bounds=(0, 1))
    if not found.success or found.x is None:
        return weights
    # what the solver's tolerance left over is put back within the given row space
    corner = np.maximum(found.x - equations.T @ (equations @ (found.x - weights)), 0.0)
    result: Floats = corner / corner.sum()
    return result


def _centred_log(attention_map: Floats) -> Floats:
    array = np.asarray(attention_map, dtype=np.float64)
    if array.ndim != 2 or array.shape[0] != array.shape[1]:
        raise UserError(f"a map is square, T x T; this one is {array.shape}.")
    if not (array > 0).all() or float(np.abs(array.sum(axis=1) - 1).max()) > 1e-9:
        raise UserError("a map has positive entries and rows that sum to one.")
    logs = np.log(array)
    result: Floats = logs - logs.mean(axis=1, keepdims=True)
    return result
