"""The mixers, each against a plain implementation of its equation."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from model_samples import BLOCK, HEAD, HEADS, LENGTH, ROWS, shaken, shape

from wherefrom.model.mixers import Heads, Rotation, Synthesizer, apply_rotary

WIDTH = HEADS * HEAD


def linear(layer: torch.nn.Linear, x: np.ndarray) -> np.ndarray:
    return x @ layer.weight.detach().numpy().T + layer.bias.detach().numpy()


def rotated(x: np.ndarray) -> np.ndarray:
    """Pairs (i, i + D/2) as complex numbers, each times e^(i position theta)."""
    half = HEAD // 2
    theta = 10_000.0 ** (-np.arange(half) / half)
    z = (x[:, :half] + 1j * x[:, half:]) * np.exp(1j * np.arange(LENGTH)[:, None] * theta)
    return np.concatenate((z.real, z.imag), axis=1)


@pytest.mark.parametrize("kind", ["plain", "rotary", "synthesizer"])
def test_each_mixer_is_its_equation(kind):
    """softmax(Q K^T / sqrt(D)) V with queries and keys rotated or not, or
    softmax(ReLU(X A + b1) B + b2) (X V): causal, head by head and row by row."""
    mixer_class = Synthesizer if kind == "synthesizer" else Heads
    mixer = shaken(mixer_class(shape("vanilla"), bias=True))
    x = torch.randn(ROWS, LENGTH, WIDTH, generator=torch.Generator().manual_seed(2)).double()
    mixed = np.zeros((ROWS, LENGTH, WIDTH))
    for row in range(ROWS):
        for head in range(HEADS):
            columns = slice(head * HEAD, (head + 1) * HEAD)
            if kind == "synthesizer":
                hidden = np.maximum(linear(mixer.scorer, x[row].numpy())[:, columns], 0)
                scores = hidden @ mixer.columns.detach().numpy()
                scores = scores + mixer.column_bias.detach().numpy()
                value = linear(mixer.value, x[row].numpy())[:, columns]
            else:
                joint = linear(mixer.qkv, x[row].numpy()).reshape(LENGTH, 3, WIDTH)[:, :, columns]
                query, key, value = joint.transpose(1, 0, 2)
                if kind == "rotary":
                    query, key = rotated(query), rotated(key)
                scores = query @ key.T / math.sqrt(HEAD)
            for t in range(LENGTH):
                weights = np.exp(scores[t, : t + 1] - scores[t, : t + 1].max())
                mixed[row, t, columns] = weights / weights.sum() @ value[: t + 1]
    got = mixer(x, rotation=Rotation(HEAD, BLOCK) if kind == "rotary" else None)
    # the tables of sines are kept in single precision, about 6e-8
    close = 1e-5 if kind == "rotary" else 1e-9
    expected = linear(mixer.out, mixed)
    np.testing.assert_allclose(got.detach().numpy(), expected, rtol=close, atol=close)


@pytest.mark.parametrize("mixer", [Heads, Synthesizer])
def test_no_square_of_the_length_is_kept_for_the_derivative(mixer):
    sizes: list[int] = []
    long = mixer(shape("vanilla", block=1024), bias=True)

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        sizes.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        long(torch.randn(1, 1023, WIDTH))
    assert max(sizes) < 1023**2


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()


ANGLES = noise(5, 7, seed=1).detach()  # 5 positions, heads of width 14


def rotation(joint: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return apply_rotary(joint, ANGLES.cos(), ANGLES.sin(), heads=2)


def complex_rotation(joint: torch.Tensor) -> tuple[torch.Tensor, ...]:
    query, key, value = joint.view(3, 5, 3, 2, 14).permute(2, 0, 3, 1, 4)
    angle = torch.polar(torch.ones_like(ANGLES), ANGLES)
    turned = [torch.complex(*x.chunk(2, dim=-1)) * angle for x in (query, key)]
    return *(torch.cat((z.real, z.imag), dim=-1) for z in turned), value


def test_a_rotation_is_a_product_of_complex_numbers():
    joint = noise(3, 5, 84)
    torch.testing.assert_close(rotation(joint), complex_rotation(joint))
    assert torch.autograd.gradcheck(rotation, (joint,))
