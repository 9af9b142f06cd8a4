"""The mixers, each against a plain implementation of its equation."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from model_samples import BLOCK, CLOSE, HEAD, HEADS, LENGTH, ROWS, shaken, shape
from torch.nn import functional as F

from wherefrom.model.fused import apply_rotary, rms_norm, swiglu
from wherefrom.model.mixers import Heads, Rotation, Synthesizer


def softmax(scores: np.ndarray) -> np.ndarray:
    mass = np.exp(scores - scores.max())
    return mass / mass.sum()


def as_array(tensor: torch.Tensor | None) -> np.ndarray:
    assert tensor is not None
    return tensor.detach().numpy()


def test_the_synthesizer_is_its_equation():
    """softmax(ReLU(X A + b1) B + b2) (X V), causal, head by head and row by row."""
    mixer = shaken(Synthesizer(shape("synthesizer"), bias=True))
    x = torch.randn(ROWS, LENGTH, HEADS * HEAD, generator=torch.Generator().manual_seed(2)).double()
    A, b1 = as_array(mixer.scorer.weight).T, as_array(mixer.scorer.bias)
    B, b2 = as_array(mixer.columns), as_array(mixer.column_bias)
    V, bv = as_array(mixer.value.weight).T, as_array(mixer.value.bias)
    expected = np.zeros((ROWS, LENGTH, HEADS * HEAD))
    for row in range(ROWS):
        X = x[row].numpy()
        for head in range(HEADS):
            own = slice(head * HEAD, (head + 1) * HEAD)
            scores = np.maximum(X @ A[:, own] + b1[own], 0) @ B + b2
            value = X @ V[:, own] + bv[own]
            for t in range(LENGTH):
                expected[row, t, own] = softmax(scores[t, : t + 1]) @ value[: t + 1]
    expected = expected @ as_array(mixer.out.weight).T + as_array(mixer.out.bias)
    np.testing.assert_allclose(as_array(mixer(x)), expected, **CLOSE)


def turned(x: np.ndarray, position: int, base: float) -> np.ndarray:
    """Pairs (i, i + D/2) as complex numbers, each times e^(i position theta)."""
    half = len(x) // 2
    theta = base ** (-2 * np.arange(half) / (2 * half))
    z = (x[:half] + 1j * x[half:]) * np.exp(1j * position * theta)
    return np.concatenate((z.real, z.imag))


@pytest.mark.parametrize("rotary", [False, True])
def test_attention_is_its_equation_with_and_without_rotary_positions(rotary):
    """softmax(Q K^T / sqrt(D)) V, causal, head by head, queries and keys turned or not."""
    mixer = shaken(Heads(shape("vanilla"), bias=True))
    x = torch.randn(ROWS, LENGTH, HEADS * HEAD, generator=torch.Generator().manual_seed(2)).double()
    joint = as_array(x) @ as_array(mixer.qkv.weight).T + as_array(mixer.qkv.bias)
    expected = np.zeros((ROWS, LENGTH, HEADS * HEAD))
    for row in range(ROWS):
        for head in range(HEADS):
            own = slice(head * HEAD, (head + 1) * HEAD)
            Q, K, V = (joint[row, :, i * HEADS * HEAD :][:, own] for i in range(3))
            if rotary:
                Q = np.stack([turned(q, t, 10_000.0) for t, q in enumerate(Q)])
                K = np.stack([turned(k, t, 10_000.0) for t, k in enumerate(K)])
            for t in range(LENGTH):
                weights = softmax(Q[t] @ K[: t + 1].T / math.sqrt(HEAD))
                expected[row, t, own] = weights @ V[: t + 1]
    expected = expected @ as_array(mixer.out.weight).T + as_array(mixer.out.bias)
    got = as_array(mixer(x, rotation=Rotation(HEAD, BLOCK) if rotary else None))
    # the tables of sines are kept in single precision, about 6e-8
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5 if rotary else 1e-9)


@pytest.mark.parametrize("mixer", [Heads, Synthesizer])
def test_no_square_of_the_length_is_kept_for_the_derivative(mixer):
    sizes: list[int] = []
    long = mixer(shape("vanilla", block=1024), bias=True)
    x = torch.randn(1, 1023, HEADS * HEAD)

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        sizes.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        long(x)
    assert max(sizes) < 1023**2


FEW, SHORT, PAIR, WIDE = 3, 5, 2, 14  # rows, positions, heads, and their width


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()


ANGLES = noise(SHORT, WIDE // 2, seed=1).detach()


def plain_turn(
    joint: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    query, key, value = joint.view(FEW, SHORT, 3, PAIR, WIDE).permute(2, 0, 3, 1, 4)

    def turn(x: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, dim=-1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)

    return turn(query), turn(key), value


def test_the_derivatives_are_those_of_finite_differences() -> None:
    turn = lambda joint: apply_rotary(joint, ANGLES.cos(), ANGLES.sin(), PAIR)  # noqa: E731
    assert torch.autograd.gradcheck(turn, noise(FEW, SHORT, 3 * PAIR * WIDE))
    assert torch.autograd.gradcheck(swiglu, noise(FEW, SHORT, 22))
    assert torch.autograd.gradcheck(
        lambda x, weight: rms_norm(x, weight, 1e-2), (noise(FEW, SHORT, 11), noise(11, seed=2))
    )


@pytest.mark.parametrize("learning", [True, False])
def test_the_values_are_those_of_the_plain_formulas(learning: bool) -> None:
    x, weight = noise(FEW, SHORT, 11), noise(11, seed=2)
    gate, value = x[..., :10].chunk(2, dim=-1)
    with torch.set_grad_enabled(learning):
        torch.testing.assert_close(rms_norm(x, weight, 1e-2), F.rms_norm(x, (11,), weight, 1e-2))
        torch.testing.assert_close(swiglu(x[..., :10]), F.silu(gate) * value)
        tables = (ANGLES.cos(), ANGLES.sin())
        joint = noise(FEW, SHORT, 3 * PAIR * WIDE)
        ours, theirs = apply_rotary(joint, *tables, PAIR), plain_turn(joint, *tables)
        torch.testing.assert_close(ours, theirs)
