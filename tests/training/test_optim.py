from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from training_samples import make_model, make_phase

from wherefrom.model.mixers import VARIANTS
from wherefrom.training import optim
from wherefrom.training.optim import (
    AdamW,
    Muon,
    WeightAverage,
    averaged,
    build_optimizers,
    orthogonalise,
    rate_scale,
)

# bfloat16 keeps 8 bits, so a product is off by about 2**-8; five rounds of three products each
# let an entry of torch's answer wander by a few of those
BFLOAT16 = 2.0**-8


@pytest.mark.parametrize("shape", [(5, 5), (7, 3), (3, 11)])
def test_orthogonalise_brings_every_singular_value_near_one(shape):
    matrix = torch.randn(*shape, generator=torch.Generator().manual_seed(0))
    u, s, v = torch.linalg.svd(matrix, full_matrices=False)
    matrix = (u * torch.linspace(0.05, 1.0, len(s))) @ v
    values = torch.linalg.svdvals(orthogonalise(matrix[None])[0])
    # the quintics are chosen for speed: they end between 0.73 and 1.27, not at 1
    assert values.min() > 0.73
    assert values.max() < 1.27


@pytest.mark.parametrize("shape", [(6, 6), (12, 4), (4, 12)])
def test_muon_is_torchs_muon_up_to_its_bfloat16(shape, monkeypatch):
    generator = torch.Generator().manual_seed(1)
    start = torch.randn(*shape, generator=generator)
    ours, theirs = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    settings = {"lr": 0.02, "weight_decay": 0.3}
    monkeypatch.setattr(optim, "QUINTICS", [(3.4445, -4.7750, 2.0315)] * 5)
    mine = Muon([ours], **settings)
    reference = torch.optim.Muon([theirs], **settings, momentum=0.95)
    for _ in range(4):
        gradient = torch.randn(*shape, generator=generator)
        before = theirs.detach().clone()
        ours.data.copy_(before)  # each step from the same point: errors do not add up
        ours.grad, theirs.grad = gradient.clone(), gradient.clone()
        mine.step()
        reference.step()
        moved, expected = ours - before, theirs - before
        error = (moved - expected).norm() / expected.norm()
        assert error < 8 * BFLOAT16
        assert error > 0  # it is not torch's own that was tested
    momenta = mine.state[ours]["momentum"], reference.state[theirs]["momentum_buffer"]
    assert torch.equal(*momenta)  # no bfloat16 here


def test_adamw_is_torchs_to_the_last_bit_and_loads_no_compiler():
    generator = torch.Generator().manual_seed(2)
    start = [torch.randn(*shape, generator=generator) for shape in ((7, 5), (11,))]
    ours, theirs = ([nn.Parameter(each.clone()) for each in start] for _ in range(2))
    settings = {"lr": 0.02, "betas": (0.9, 0.97), "weight_decay": 0.3}
    pair = AdamW(ours, **settings), torch.optim.AdamW(theirs, **settings, fused=True)
    for _ in range(4):
        for mine, other in zip(ours, theirs, strict=True):
            mine.grad = torch.randn(mine.shape, generator=generator)
            other.grad = mine.grad.clone()
        for optimizer in pair:
            optimizer.step()
    assert all(map(torch.equal, ours, theirs))
    program = (
        "import sys; from training_samples import make_model, make_phase;"
        "from wherefrom.training.optim import build_optimizers;"
        "model = make_model('llama'); found = build_optimizers(model, make_phase(average=0.1));"
        "model.head.weight.grad = model.head.weight.detach().clone();"
        "[(each.step(), each.state_dict()) for each in found];"
        "assert 'torch._dynamo' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parent)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_every_parameter_has_its_rate_and_only_matrices_that_multiply_decay(kind, variant):
    model = make_model(variant)
    phase = make_phase(optimizer=kind, lr=0.5, muon_lr=0.25, weight_decay=0.3)
    optimizers = build_optimizers(model, phase)
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    members = [id(p) for group in groups for p in group["params"]]
    assert sorted(members) == sorted(map(id, model.parameters()))
    assert all(group["base_lr"] == group["lr"] for group in groups)
    assert {group["lr"] for group in groups} == ({0.5, 0.25} if kind == "muon" else {0.5})
    decaying = {id(p) for group in groups if group["weight_decay"] for p in group["params"]}
    names = {name for name, p in model.named_parameters() if id(p) in decaying}
    assert "embed.weight" not in names
    assert not any("norm" in n or n.endswith("bias") or n == "positions" for n in names)
    assert any(name.endswith("out.weight") for name in names)
    assert ("head.weight" in names) == (kind == "adamw")


def test_the_average_weighs_the_last_steps_and_is_swapped_in_and_out():
    weight = nn.Parameter(torch.zeros(2))
    average = WeightAverage([weight], lr=0.0, share=0.25)
    expected = 0.0
    for step in range(1, 41):
        weight.data.fill_(float(step))
        average.step()
        expected += (step - expected) * 4 / (step + 3)  # the recursion of Shamir and Zhang
    with averaged([average]):
        assert weight[0].item() == pytest.approx(expected, rel=1e-5)
        assert 40 - 0.25 * 40 < weight[0].item() < 40
    assert weight[0].item() == 40


@given(
    st.builds(make_phase, warmup_steps=st.integers(0, 50), floor=st.floats(0, 1)),
    st.integers(0, 10_000),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_the_rate_rises_while_warming_up_and_then_falls_to_the_floor(phase, step, first, later):
    first, later = sorted((first, later))
    scale, warm = rate_scale(phase, step, later), phase.warmup_steps
    assert 0 <= scale <= 1 + 1e-12
    if step >= warm:
        assert phase.floor - 1e-12 <= scale <= rate_scale(phase, step, first) + 1e-12
    assert rate_scale(phase, warm, 0.0) == pytest.approx(1)
    assert rate_scale(phase, warm, 0.5) == pytest.approx(max(0.5, phase.floor))  # a cosine
    assert rate_scale(phase, warm, 1.0) == pytest.approx(phase.floor, abs=1e-12)
