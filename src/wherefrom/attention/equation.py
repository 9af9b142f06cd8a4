"""The attention equation: scores -> weights -> context.

This is the only softmax over keys in the project. The workbench calls it with numpy arrays
(no torch is imported for that), the trained models with torch tensors; both run these lines.

    scores  = scale * query @ key^T          how well each key answers the query
    weights = softmax of scores over keys     non-negative, sum to one
    context = weights @ value                 what the query gets to see

Shapes (any leading dimensions, broadcast against each other):
    query   (..., q, d)  or  (d,) for a single query
    key     (..., n, d)
    value   (..., n, e)
    scores, weights (..., q, n)  or  (n,)
    context (..., q, e)  or  (e,)
    mask    broadcastable to scores, True where the query may look

A query that may look nowhere gets weights of zero and a context of zero: it learns nothing,
and nothing is undefined.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from wherefrom.errors import UserError

Array = Any  # a numpy array or a torch tensor; the functions below keep the kind they are given


@dataclass(frozen=True)
class Attention:
    """What attention returns: the context, the weights that made it, the scores behind those."""

    context: Array
    weights: Array
    scores: Array


def attend(
    query: Array, key: Array, value: Array, *, scale: float = 1.0, mask: Array | None = None
) -> Attention:
    """The equation in the open, with every intermediate; see the module's shape legend."""
    query, key, value = _as_arrays(query, key, value)
    _check_shapes(query, key, value)
    mask = _as_mask(mask, query)
    single = query.ndim == 1
    if single:
        query = query[None, :]
    scores = scale * (query @ key.swapaxes(-1, -2))
    weights = softmax_over_keys(scores, mask)
    context = weights @ value
    if single:
        context, weights, scores = context[..., 0, :], weights[..., 0, :], scores[..., 0, :]
    return Attention(context=context, weights=weights, scores=scores)


def softmax_over_keys(scores: Array, mask: Array | None = None) -> Array:
    """exp(scores) / sum over the last axis, safe for scores of any size; masked keys get 0.

    Subtracting the row's maximum first leaves the quotient unchanged and makes the largest
    exponent 0, so nothing overflows. A row with every key masked comes out as zeros.
    """
    xp = _namespace(scores)
    if mask is not None:
        scores = xp.where(mask, scores, -xp.inf)
    top = xp.amax(scores, axis=-1, keepdims=True)
    top = xp.where(top == -xp.inf, xp.zeros_like(top), top)
    mass = xp.exp(scores - top)
    total = xp.sum(mass, axis=-1, keepdims=True)
    return mass / xp.where(total == 0, xp.ones_like(total), total)


def log_leftover(scores: Array, keep: Array) -> Array:
    """Natural log of the weight that falls outside `keep` (True = kept), exact in the tail.

    1 - weight loses every digit once the weight rounds to one; here the leftover is a quotient
    of two sums of exponentials, each taken in log space, so a leftover of 1e-200 is still right.
    """
    xp = _namespace(scores)
    outside = xp.where(keep, -xp.inf, scores)
    return log_sum_exp(outside) - log_sum_exp(scores)


def attend_fused(
    query: Array,
    key: Array,
    value: Array,
    *,
    scale: float,
    mask: Array | None = None,
    causal: bool = False,
    dropout: float = 0.0,
) -> Array:
    """The context alone, by torch's fused kernel: the same equation where nobody looks inside.

    A test holds it equal to `attend`. `causal` is the mask "key i <= query i" for equal lengths,
    which the kernel can skip half the work for; with a mask besides, both must allow a key.
    """
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    if causal and mask is not None:
        shape = (query.shape[-2], key.shape[-2])
        mask = mask & torch.ones(shape, dtype=torch.bool, device=query.device).tril()
        causal = False
    return scaled_dot_product_attention(
        query, key, value, attn_mask=mask, is_causal=causal, scale=scale, dropout_p=dropout
    )


def log_sum_exp(scores: Array) -> Array:
    """ln(sum of exp(scores)) over the last axis, safe for scores of any size; -inf if none."""
    xp = _namespace(scores)
    if xp is not np:
        return xp.logsumexp(scores, dim=-1)
    from scipy.special import logsumexp

    return logsumexp(scores, axis=-1)


def _namespace(array: Array) -> ModuleType:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return torch
    return np


def _as_arrays(*arrays: Array) -> list[Array]:
    kinds = {_namespace(array) for array in arrays}
    if len(kinds) > 1:
        raise UserError("attend takes all numpy arrays or all torch tensors, not some of each.")
    if kinds != {np}:
        return list(arrays)
    floats = [np.asarray(array) for array in arrays]
    return [a if a.dtype.kind == "f" else a.astype(np.float64) for a in floats]


def _as_mask(mask: Array | None, like: Array) -> Array | None:
    """A mask of truth values, of the same kind as the arrays it masks.

    A mask of numbers is refused: elsewhere it means "add this to the scores", and reading its
    zeros as False would silently turn it around.
    """
    if mask is None:
        return None
    xp = _namespace(like)
    if _namespace(mask) is not xp:
        kind = "numpy array" if xp is np else "torch tensor"
        raise UserError(f"a mask for {kind}s must be a {kind}.")
    if xp is np:
        mask = np.asarray(mask)
    if mask.dtype != (np.bool_ if xp is np else xp.bool):
        raise UserError(f"a mask must be True where the query may look; it holds {mask.dtype}.")
    return mask


def _check_shapes(query: Array, key: Array, value: Array) -> None:
    if key.ndim < 2 or value.ndim < 2 or query.ndim < 1:
        raise UserError(
            "attend expects key (..., n, d) and value (..., n, e); "
            f"it got key {tuple(key.shape)} and value {tuple(value.shape)}."
        )
    if query.shape[-1] != key.shape[-1]:
        raise UserError(
            f"a query and a key must have the same width; query {tuple(query.shape)} has "
            f"{query.shape[-1]} and key {tuple(key.shape)} has {key.shape[-1]}."
        )
    if key.shape[-2] == 0:
        raise UserError("attention needs at least one key; there are none.")
    if key.shape[-2] != value.shape[-2]:
        raise UserError(
            f"each key needs one value; key {tuple(key.shape)} holds {key.shape[-2]} and "
            f"value {tuple(value.shape)} holds {value.shape[-2]}."
        )
