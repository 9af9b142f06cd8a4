"""The decoder: token ids in, next-token logits out, for every variant.

    h = embed(ids) (+ positions)
    h = h + mix(norm(h));  h = h + feed(norm(h))     in each block
    logits = head(norm(h))

A latent variant runs its middle blocks on a shorter sequence: in the first block a learned basis
attends to the input, in the last block the input attends to the result. Training and decoding with
a cache use the same code.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from wherefrom.errors import UserError
from wherefrom.model.config import ModelConfig
from wherefrom.model.mixers import (
    AttentionRecord,
    Cache,
    Rotation,
    Variant,
    find_variant,
    select_rows,
)


class FeedForward(nn.Module):
    """W2 gelu(W1 x), or W2 (silu(W1 x) * W3 x), 8/3 as wide inside (Shazeer 2020)."""

    def __init__(self, width: int, variant: Variant) -> None:
        super().__init__()
        self.gated = variant.feedforward == "swiglu"
        hidden = swiglu_width(width) if self.gated else 4 * width
        self.up = nn.Linear(width, hidden * (1 + self.gated), bias=variant.bias)
        self.down = nn.Linear(hidden, width, bias=variant.bias)

    def forward(self, x: Tensor) -> Tensor:
        if not self.gated:
            return self.down(F.gelu(self.up(x)))
        gate, value = self.up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * value)


class Block(nn.Module):
    """x + mix(norm(x)), then x + feed(norm(x))."""

    def __init__(self, config: ModelConfig, variant: Variant) -> None:
        super().__init__()
        self.norm1 = _norm(config, variant)
        self.mixer = variant.mixer(config, bias=variant.bias)
        self.norm2 = _norm(config, variant)
        self.feed = FeedForward(config.width, variant)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self, x: Tensor, source: Tensor | None = None, select: Tensor | None = None, **mixing: Any
    ) -> Tensor:
        """select: flat indices into B*T; after the mixing only these positions are computed."""
        source = None if source is None else self.norm1(source)
        mixed = self.mixer(self.norm1(x), source, select=select, **mixing)
        x = select_rows(x, select) + self.dropout(mixed)
        return x + self.dropout(self.feed(self.norm2(x)))


class LatentBasis(nn.Module):
    """The perceiver's basis (Jaegle et al. 2021) and its masks.

    Latent j attends to inputs up to position `ends[j]`, and positions from there on may attend to
    it. The ends are spread over the block, so that all of it is read.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.basis = nn.Parameter(torch.empty(config.latents, config.width))
        self.stride = -(-config.block // config.latents)
        self.ends = torch.arange(1, config.latents + 1) * self.stride - 1

    def new_latents(self, start: int, stop: int) -> slice:
        """The latents that complete while positions start .. stop-1 are read."""
        last = len(self.ends)
        return slice(min(start // self.stride, last), min(stop // self.stride, last))

    def down_mask(self, latents: slice, stop: int) -> Tensor:
        """(latents, inputs): inputs up to a latent's end."""
        return torch.arange(stop)[None, :] <= self.ends[latents][:, None]

    def up_mask(self, start: int, stop: int, latents: int) -> Tensor:
        """(positions, latents): latents that are complete."""
        return self.ends[:latents][None, :] <= torch.arange(start, stop)[:, None]


class Decoder(nn.Module):
    """The model: token ids (B, T) to logits (B, T, vocabulary)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.variant = find_variant(config.variant)
        if self.variant.latent and (config.layers < 3 or config.latents > config.block):
            raise UserError(
                f"the {config.variant} needs at least 3 layers (down, one inside, up) and at most "
                f"as many latents as a block has tokens ({config.block}), not {config.layers} "
                f"layers and {config.latents} latents."
            )
        self.embed = nn.Embedding(config.vocabulary, config.width)
        learned = self.variant.positions == "learned"
        self.positions = nn.Parameter(torch.zeros(config.block, config.width)) if learned else None
        self.rotation = None if learned else Rotation(config.head_width, config.block)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config, self.variant) for _ in range(config.layers))
        self.latent = LatentBasis(config) if self.variant.latent else None
        self.norm = _norm(config, self.variant)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)

    def initialise(self, generator: torch.Generator, *, zero_init: bool = False) -> Decoder:
        """Set the initial weights as in GPT-2: matrices N(0, 0.02), biases 0, norms 1, learned
        positions 0. With `zero_init` the last matrix of every branch and the head are 0 as well."""
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02, generator=generator)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
        for name, parameter in self.named_parameters():
            if name.endswith(("columns", "basis")):
                nn.init.normal_(parameter, std=0.02, generator=generator)
            if zero_init and name.endswith(("mixer.out.weight", "feed.down.weight", "head.weight")):
                nn.init.zeros_(parameter)
        return self

    def forward(self, ids: Tensor, **how: Any) -> Tensor:
        """Logits for each position; the options are those of `hidden`."""
        return cast(Tensor, self.head(self.hidden(ids, **how)))

    def hidden(
        self,
        ids: Tensor,
        *,
        cache: Cache | None = None,
        select: Tensor | None = None,
        record: list[AttentionRecord] | None = None,
    ) -> Tensor:
        """The last normalised hidden state of each position, before the head.

        cache: of the tokens before `ids`; it is extended. select: flat indices into B*T, the only
        positions that the last block computes and that are returned. record: a list to which each
        layer appends its attention.
        """
        start = 0 if cache is None else cache.length
        stop = start + ids.shape[1]
        if stop > self.config.longest_input:
            raise UserError(
                f"the input has {stop} tokens; this model reads {self.config.longest_input}."
            )
        x = self.embed(ids)
        if self.positions is not None:
            x = x + self.positions[start:stop]
        x = self.dropout(x)
        caches = [None] * len(self.blocks) if cache is None else cache.layers
        *below, (last, last_cache) = zip(self.blocks, caches, strict=True)
        if self.latent is None:
            for block, layer_cache in below:
                x = block(x, rotation=self.rotation, cache=layer_cache, record=record)
            x = last(x, rotation=self.rotation, cache=last_cache, record=record, select=select)
        else:
            (down, down_cache), *inside = below
            new = self.latent.new_latents(start, stop)
            basis = self.latent.basis[new].expand(x.shape[0], -1, -1)
            mask = self.latent.down_mask(new, stop).to(x.device)
            z = down(basis, x, mask=mask, cache=down_cache, record=record)
            for block, layer_cache in inside:
                z = block(z, cache=layer_cache, record=record)
            mask = self.latent.up_mask(start, stop, new.stop).to(x.device)
            x = last(x, z, mask=mask, cache=last_cache, record=record, select=select)
        if cache is not None:
            cache.length = stop
        return cast(Tensor, self.norm(x))


def swiglu_width(width: int) -> int:
    """8/3 of the width, rounded up to a multiple of 16 for the matrix units."""
    return -(-8 * width // 48) * 16


def count_parameters(config: ModelConfig) -> int:
    """Parameters of a model of this shape, without allocating it."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in Decoder(config).parameters())


def _norm(config: ModelConfig, variant: Variant) -> nn.Module:
    if variant.norm == "layer":
        return nn.LayerNorm(config.width)
    return nn.RMSNorm(config.width, eps=1e-5)
