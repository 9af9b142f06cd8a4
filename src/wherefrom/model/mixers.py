"""Mixers: how positions exchange information. A variant is a mixer and the shape around it.

Shapes: B rows, T positions, C width, H heads, D = C / H.

To add a variant: a mixer class here, its line in VARIANTS, a paragraph in docs/training.md. Every
mixer computes its attention with wherefrom.attention.equation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from wherefrom.attention.equation import attend, attend_fused
from wherefrom.errors import UserError, did_you_mean
from wherefrom.model.config import ModelConfig


@dataclass(frozen=True)
class AttentionRecord:
    """What one layer attended to: weights and scores (B, H, T, keys), values (B, H, keys, D)."""

    weights: Tensor
    scores: Tensor  # -inf where a query may not look
    values: Tensor


@dataclass
class LayerCache:
    """The keys and values of a layer so far: tensors (B, H, T, D), extended by each chunk."""

    length: int = 0
    stores: dict[str, Tensor] = field(default_factory=dict)

    def extend(self, **chunks: Tensor) -> tuple[Tensor, ...]:
        """Append each chunk and return all of each tensor so far, in the order given."""
        for name, chunk in chunks.items():
            before = self.stores.get(name)
            self.stores[name] = chunk if before is None else torch.cat((before, chunk), dim=2)
            self.length = self.stores[name].shape[2]
        return tuple(self.stores[name] for name in chunks)


class Cache:
    """One LayerCache for each layer, and how many tokens were read; all rows are equally long."""

    def __init__(self, layers: int) -> None:
        self.layers = [LayerCache() for _ in range(layers)]
        self.length = 0

    def fork(self, rows: Tensor) -> Cache:
        """A cache of these rows, each of which may come several times; this one is unchanged."""
        fork = Cache(0)
        fork.length = self.length
        for layer in self.layers:
            stores = {name: store.index_select(0, rows) for name, store in layer.stores.items()}
            fork.layers.append(LayerCache(layer.length, stores))
        return fork


class Heads(nn.Module):
    """Multi-head attention: c = softmax(Q K^T / sqrt(D)) V for each head, then one projection.

    Vaswani et al. 2017. Queries come from `x`, keys and values from `source` (or `x` as well).
    """

    def __init__(self, config: ModelConfig, *, bias: bool) -> None:
        super().__init__()
        self.heads = config.heads
        self.dropout = config.dropout
        self.scale = 1 / math.sqrt(config.head_width)
        self._project(config, bias)
        self.out = nn.Linear(config.width, config.width, bias=bias)

    def _project(self, config: ModelConfig, bias: bool) -> None:
        self.qkv = nn.Linear(config.width, 3 * config.width, bias=bias)

    def forward(
        self,
        x: Tensor,
        source: Tensor | None = None,
        *,
        rotation: Rotation | None = None,
        mask: Tensor | None = None,
        cache: LayerCache | None = None,
        record: list[AttentionRecord] | None = None,
        select: Tensor | None = None,
    ) -> Tensor:
        """(B, T, C) to (B, T, C), or to (N, C) with `select`: only these flat indices into B*T.

        Without a `mask` it is causal self-attention. A `record` gets the attention of this layer.
        """
        past = 0 if cache is None else cache.length
        query, key, value = self._read(x, cache, source, rotation)
        causal = mask is None and past == 0  # not by the shapes, on which a compiler cannot branch
        if mask is None and (record is not None or (not causal and query.shape[2] > 1)):
            mask = causal_mask(query.shape[2], key.shape[2], x.device)
        if record is None:
            dropout = self.dropout if self.training else 0.0
            context = self._context(query, key, value, mask=mask, causal=causal, dropout=dropout)
        elif key.shape[2]:
            attended = attend(query, key, value, scale=self.scale, mask=mask)
            scores = attended.scores if mask is None else attended.scores.where(mask, -math.inf)
            record.append(AttentionRecord(attended.weights, scores, value))
            context = attended.context
        else:  # a perceiver before its first latent is complete: nothing to attend to
            empty = query.new_zeros(*query.shape[:3], 0)
            record.append(AttentionRecord(empty, empty, value))
            context = torch.zeros_like(query)
        return self.out(select_rows(context.transpose(1, 2).flatten(2), select))

    def _read(
        self, x: Tensor, cache: LayerCache | None, source: Tensor | None, rotation: Rotation | None
    ) -> tuple[Tensor, ...]:
        """Queries of x, and keys and values of all positions so far, each (B, H, positions, D)."""
        if source is not None:
            width, (weight, bias) = x.shape[-1], (self.qkv.weight, self.qkv.bias)
            query = F.linear(x, weight[:width], None if bias is None else bias[:width])
            key_value = F.linear(source, weight[width:], None if bias is None else bias[width:])
            (query,), (key, value) = _heads(query, 1, self.heads), _heads(key_value, 2, self.heads)
        elif rotation is None:
            query, key, value = _heads(self.qkv(x), 3, self.heads)
        else:
            past = 0 if cache is None else cache.length
            positions = slice(past, past + x.shape[1])
            cos, sin = rotation.cos[positions], rotation.sin[positions]
            query, key, value = apply_rotary(self.qkv(x), cos, sin, self.heads)
        if cache is not None:
            key, value = cache.extend(key=key, value=value)
        return query, key, value

    def _context(self, query: Tensor, key: Tensor, value: Tensor, **how: Any) -> Tensor:
        return cast(Tensor, attend_fused(query, key, value, scale=self.scale, **how))


class Synthesizer(Heads):
    """Dense synthesizer (Tay et al. 2020): c = softmax(ReLU(X A + b1) B + b2) (X V), causal.

    The scores depend on each position alone. They are computed as products of [ReLU(X A + b1), 1]
    and [B^T, b2], the queries and keys of the fused kernel, so that no T x T matrix is in memory.
    """

    def _project(self, config: ModelConfig, bias: bool) -> None:
        self.scale = 1.0
        self.scorer = nn.Linear(config.width, config.width, bias=bias)
        self.value = nn.Linear(config.width, config.width, bias=bias)
        self.columns = nn.Parameter(torch.empty(config.head_width, config.longest_input))
        self.column_bias = nn.Parameter(torch.zeros(config.longest_input))

    def _read(self, x: Tensor, cache: LayerCache | None, *_: object) -> tuple[Tensor, ...]:
        (value,) = _heads(self.value(x), 1, self.heads)
        (scorer,) = _heads(self.scorer(x), 1, self.heads)
        if cache is not None:
            (value,) = cache.extend(value=value)
        length = value.shape[2]
        query = torch.cat((F.relu(scorer), scorer.new_ones(*scorer.shape[:3], 1)), dim=-1)
        key = torch.cat((self.columns[:, :length].T, self.column_bias[:length, None]), dim=-1)
        return query, key.expand(*value.shape[:2], -1, -1), value

    def _context(self, query: Tensor, key: Tensor, value: Tensor, **how: Any) -> Tensor:
        # the kernel needs queries, keys and values of the same width
        return super()._context(query, key, F.pad(value, (0, 1)), **how)[..., :-1]


class Rotation(nn.Module):
    """Tables of rotary positions (Su et al. 2021): (positions, D/2) cosines and sines of the angles
    position * base^(-2i/D), by which `apply_rotary` rotates pair (i, i + D/2)."""

    cos: Tensor
    sin: Tensor

    def __init__(self, head_width: int, longest: int, base: float = 10_000.0) -> None:
        super().__init__()
        half = head_width // 2
        speeds = base ** (-torch.arange(half, dtype=torch.float64) / half)
        angles = torch.arange(longest, dtype=torch.float64)[:, None] * speeds
        self.register_buffer("cos", angles.cos().float(), persistent=False)
        self.register_buffer("sin", angles.sin().float(), persistent=False)
        self.base = base


def apply_rotary(joint: Tensor, cos: Tensor, sin: Tensor, heads: int) -> tuple[Tensor, ...]:
    """Queries, keys and values (B, H, T, D) of the joint projection (B, T, 3 C).

    Pair (i, i + D/2) of queries and keys is rotated by the angle of cos and sin (T, D/2).
    """
    cos, sin = (table.to(joint.dtype)[:, None, None] for table in (cos, sin))
    shaped = joint.unflatten(-1, (3, heads, -1))
    first, second = shaped[:, :, :2].chunk(2, dim=-1)
    rotated_first = torch.addcmul(first * cos, second, sin, value=-1)
    rotated_second = torch.addcmul(second * cos, first, sin)
    rotated = torch.cat((rotated_first, rotated_second), dim=-1)
    query, key = rotated.permute(2, 0, 3, 1, 4).unbind(0)
    return query, key, shaped[:, :, 2].transpose(1, 2)


@dataclass(frozen=True)
class Variant:
    """A mixer and the shape around it; `latent` puts the stack between a down and an up block."""

    mixer: type[Heads]
    about: str
    positions: Literal["learned", "rotary"] = "learned"
    norm: Literal["layer", "rms"] = "layer"
    feedforward: Literal["gelu", "swiglu"] = "gelu"
    bias: bool = True
    latent: bool = False


VARIANTS: dict[str, Variant] = {
    "vanilla": Variant(Heads, "GPT-2's shape: learned positions, LayerNorm, GELU"),
    "rotary": Variant(Heads, "vanilla with rotary positions", positions="rotary"),
    "synthesizer": Variant(Synthesizer, "weights read off each position, keys never compared"),
    "perceiver": Variant(Heads, "a learned basis reads the input, works, is read", latent=True),
    "llama": Variant(
        Heads,
        "Llama's shape: rotary positions, RMSNorm, SwiGLU, no biases",
        positions="rotary",
        norm="rms",
        feedforward="swiglu",
        bias=False,
    ),
}


def find_variant(name: str) -> Variant:
    """The variant of that name; for an unknown one an error that suggests the nearest."""
    if name not in VARIANTS:
        raise UserError(f'there is no variant "{name}".{did_you_mean(name, VARIANTS)}')
    return VARIANTS[name]


def select_rows(x: Tensor, select: Tensor | None) -> Tensor:
    """The rows (N, C) of x (B, T, C) at flat indices; all of x if there are none given."""
    return x if select is None else x.flatten(0, 1).index_select(0, select)


def causal_mask(queries: int, keys: int, device: torch.device) -> Tensor:
    """(queries, keys): True where a query may see a key; the queries are the last positions."""
    positions = torch.arange(keys - queries, keys, device=device)
    return torch.arange(keys, device=device)[None, :] <= positions[:, None]


def _heads(joint: Tensor, parts: int, heads: int) -> tuple[Tensor, ...]:
    """The parts of a joint projection (B, T, parts * C), each (B, H, T, D)."""
    return joint.unflatten(-1, (parts, heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
