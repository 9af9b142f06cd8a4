"""Steps with derivatives by hand are the plain formulas, values and derivatives."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from wherefrom.model.fused import apply_rotary, rms_norm, swiglu

ROWS, LENGTH, HEADS, HEAD = 3, 5, 2, 14


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()


ANGLES = noise(LENGTH, HEAD // 2, seed=1).detach()


def plain_turn(
    joint: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    query, key, value = joint.view(ROWS, LENGTH, 3, HEADS, HEAD).permute(2, 0, 3, 1, 4)

    def turn(x: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, dim=-1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)

    return turn(query), turn(key), value


def test_the_derivatives_are_those_of_finite_differences() -> None:
    turn = lambda joint: apply_rotary(joint, ANGLES.cos(), ANGLES.sin(), HEADS)  # noqa: E731
    assert torch.autograd.gradcheck(turn, noise(ROWS, LENGTH, 3 * HEADS * HEAD))
    assert torch.autograd.gradcheck(swiglu, noise(ROWS, LENGTH, 22))
    assert torch.autograd.gradcheck(
        lambda x, weight: rms_norm(x, weight, 1e-2), (noise(ROWS, LENGTH, 11), noise(11, seed=2))
    )


@pytest.mark.parametrize("learning", [True, False])
def test_the_values_are_those_of_the_plain_formulas(learning: bool) -> None:
    x, weight = noise(ROWS, LENGTH, 11), noise(11, seed=2)
    gate, value = x[..., :10].chunk(2, dim=-1)
    with torch.set_grad_enabled(learning):
        torch.testing.assert_close(rms_norm(x, weight, 1e-2), F.rms_norm(x, (11,), weight, 1e-2))
        torch.testing.assert_close(swiglu(x[..., :10]), F.silu(gate) * value)
        tables = (ANGLES.cos(), ANGLES.sin())
        joint = noise(ROWS, LENGTH, 3 * HEADS * HEAD)
        ours, theirs = apply_rotary(joint, *tables, HEADS), plain_turn(joint, *tables)
        torch.testing.assert_close(ours, theirs)
