"""The whole model in torch, as the part "variants" asks for it.

The course's size: vocabulary 256, block 128 (so 127 inputs), 4 layers, 8 heads, width 256,
feed-forward 1024; LayerNorm before each half of a block and before the head, which has no bias.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

VOCABULARY, BLOCK, LAYERS, HEADS, WIDTH, LATENTS = 256, 128, 4, 8, 256, 64


class CourseBlock(nn.Module):
    """x + mix(norm(x)), then x + feed(norm(x)); it mixes by attention, or as a synthesizer."""

    def __init__(self, variant: str) -> None:
        super().__init__()
        self.variant = variant
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        if variant == "synthesizer":
            self.columns = nn.Parameter(torch.randn(WIDTH // HEADS, BLOCK - 1) * 0.02)
            self.column_bias = nn.Parameter(torch.zeros(BLOCK - 1))
        else:
            self.key = nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor, source: Tensor, mask: Tensor) -> Tensor:
        def heads(y: Tensor) -> Tensor:
            return y.unflatten(-1, (HEADS, -1)).transpose(1, 2)

        normed = self.norm1(source)
        query, value = heads(self.query(self.norm1(x))), heads(self.value(normed))
        if self.variant == "synthesizer":
            length = x.shape[1]
            scores = F.relu(query) @ self.columns[:, :length] + self.column_bias[:length]
            context = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1) @ value
        else:
            key = heads(self.key(normed))
            if self.variant == "rotary":
                query, key = turn(query), turn(key)
            context = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        x = x + self.out(context.transpose(1, 2).flatten(-2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class CourseModel(nn.Module):
    """Ids (B, T) to logits (B, T, vocabulary)."""

    def __init__(self, variant: str) -> None:
        super().__init__()
        self.variant = variant
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        if variant != "rotary":
            self.positions = nn.Parameter(torch.zeros(BLOCK, WIDTH))
        if variant == "perceiver":
            self.basis = nn.Parameter(torch.randn(LATENTS, WIDTH) * 0.02)
        self.blocks = nn.ModuleList(CourseBlock(variant) for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x, length = self.embed(ids), ids.shape[1]
        if self.variant != "rotary":
            x = x + self.positions[:length]
        if self.variant == "perceiver":
            (down, *inside, up), stride = self.blocks, BLOCK // LATENTS
            ends = torch.arange(1, length // stride + 1) * stride - 1
            read = torch.arange(length)[None, :] <= ends[:, None]
            z = down(self.basis[: len(ends)].expand(len(ids), -1, -1), x, read)
            for block in inside:
                z = block(z, z, torch.ones(len(ends), len(ends), dtype=torch.bool).tril())
            x = up(x, z, ends[None, :] <= torch.arange(length)[:, None])
        else:
            for block in self.blocks:
                x = block(x, x, torch.ones(length, length, dtype=torch.bool).tril())
        return self.head(self.norm(x))


def turn(x: Tensor) -> Tensor:
    """Rotary positions; see rotary() in transformer.py."""
    length, width = x.shape[-2:]
    speeds = 10_000.0 ** (-torch.arange(0, width, 2) / width)
    angles = torch.arange(length)[:, None] * speeds
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)


def build_model(variant: str) -> nn.Module:
    """A new model of the course's size: "vanilla", "rotary", "synthesizer" or "perceiver".

    Called with ids (B, T) it returns logits (B, T, 256), or a tuple that begins with them. vanilla
    has learned positions; rotary turns queries and keys instead and has no table; a head of the
    synthesizer shares its columns B (32, 127) and b2 (127,) with the other heads of its layer; the
    perceiver has 64 latents and the masks of perceiver_masks(128, 64), so that everything is read.
    """
    return CourseModel(variant)
