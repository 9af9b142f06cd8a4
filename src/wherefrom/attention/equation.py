"""The attention equation: scores -> weights -> context; the only softmax over keys in the project.

The workbench calls it with numpy arrays (no torch is imported for that), the models with tensors.

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

A query that may look nowhere gets weights of zero and a context of zero.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from wherefrom.errors import UserError

Array = Any  # a numpy array or a torch tensor; the functions below keep the kind they are given


class Attention(NamedTuple):
    """What attention returns: the context, the weights that made it, the scores behind those."""

    context: Array
    weights: Array
    scores: Array


def attend(
    query: Array, key: Array, value: Array, *, scale: float = 1.0, mask: Array | None = None
) -> Attention:
    """The equation in the open, with every intermediate; see the module's shape legend."""
    kinds = {_namespace(array) for array in (query, key, value)}
    if len(kinds) > 1:
        raise UserError("attend takes all numpy arrays or all torch tensors, not some of each.")
    xp = kinds.pop()
    if xp is np:
        arrays = [np.asarray(array) for array in (query, key, value)]
        query, key, value = (a if a.dtype.kind == "f" else a.astype(np.float64) for a in arrays)
    q, k, v = (tuple(array.shape) for array in (query, key, value))
    if not (q and min(len(k), len(v)) >= 2 and q[-1] == k[-1] and k[-2] == v[-2] > 0):
        raise UserError(
            "attend takes a query (..., q, d) or (d,), a key (..., n, d) and a value (..., n, e), "
            f"n at least 1; it got query {q}, key {k} and value {v}."
        )
    mask = np.asarray(mask) if isinstance(mask, list | tuple) else mask
    if mask is not None and _namespace(mask) is not xp:
        kind = "numpy array" if xp is np else "torch tensor"
        raise UserError(f"a mask for {kind}s must be a {kind}.")
    if mask is not None and str(mask.dtype) not in ("bool", "torch.bool"):
        # a mask of numbers means elsewhere "add this to the scores": its zeros are not False
        raise UserError(f"a mask must be True where the query may look; it holds {mask.dtype}.")
    rows = query[None, :] if query.ndim == 1 else query
    scores = scale * (rows @ key.swapaxes(-1, -2))
    weights = softmax_over_keys(scores, mask)
    result = Attention(weights @ value, weights, scores)
    return Attention(*(part[..., 0, :] for part in result)) if query.ndim == 1 else result


def softmax_over_keys(scores: Array, mask: Array | None = None) -> Array:
    """exp(scores) / sum over the last axis, safe for scores of any size; masked keys get 0.
    A row with every key masked comes out as zeros."""
    xp = _namespace(scores)
    if mask is not None:
        scores = xp.where(mask, scores, -xp.inf)
    top = xp.amax(scores, axis=-1, keepdims=True)  # taken off, so that no exponential overflows
    top = xp.where(top == -xp.inf, xp.zeros_like(top), top)
    mass = xp.exp(scores - top)
    total = xp.sum(mass, axis=-1, keepdims=True)
    return mass / xp.where(total == 0, xp.ones_like(total), total)


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
    `causal` is the mask "key i <= query i" for equal lengths; with a mask besides, both must hold.
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


def log_leftover(scores: Array, keep: Array) -> Array:
    """Natural log of the weight that falls outside `keep` (True = kept), exact in the tail.
    1 - weight would lose every digit once the weight rounds to one."""
    outside = _namespace(scores).where(keep, -np.inf, scores)
    return log_sum_exp(outside) - log_sum_exp(scores)


def log_sum_exp(scores: Array) -> Array:
    """ln(sum of exp(scores)) over the last axis, safe for scores of any size; -inf if none."""
    xp = _namespace(scores)
    if xp is not np:
        return xp.logsumexp(scores, dim=-1)
    from scipy.special import logsumexp

    return logsumexp(scores, axis=-1)


def _namespace(array: Array) -> ModuleType:
    torch = sys.modules.get("torch")
    return torch if torch is not None and isinstance(array, torch.Tensor) else np
