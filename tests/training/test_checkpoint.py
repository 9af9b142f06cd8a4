"""Checkpoints come back whole, or the one before them does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from training_samples import make_model, make_phase, same_weights

from wherefrom.corpus.batches import StreamPosition
from wherefrom.model.decoder import Decoder
from wherefrom.storage import sha256_of
from wherefrom.training.optim import build_optimizers
from wherefrom.training.run_folder import (
    TrainingState,
    load_checkpoint,
    save_checkpoint,
)

NEWEST = "step-000000030"


def learned(kind: str, steps: int) -> tuple[Decoder, list[torch.optim.Optimizer]]:
    """A model and its optimizers after some steps on noise."""
    model = make_model("vanilla")
    optimizers = build_optimizers(model, make_phase(optimizer=kind))
    generator = torch.Generator().manual_seed(2)
    for _ in range(steps):
        for parameter in model.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        for optimizer in optimizers:
            optimizer.step()
    return model, optimizers


def save_three(folder: Path) -> None:
    for step in (10, 20, 30):
        model, optimizers = learned("adamw", step // 10)
        save_checkpoint(folder, TrainingState(total_steps=step), model, optimizers)


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_weights_optimizers_and_state_come_back_and_the_next_step_is_the_same(
    tmp_path: Path, kind: str
) -> None:
    model, optimizers = learned(kind, 3)
    state = TrainingState(
        phase=1,
        step=7,
        total_steps=107,
        place=StreamPosition(3, 5),
        seconds=1.25,
        total_seconds=9.5,
        tokens=1234,
        pending_losses=(0.1, 0.7),
    )
    save_checkpoint(tmp_path, state, model, optimizers)
    found = load_checkpoint(tmp_path)
    assert found is not None
    assert found.state == state
    other = make_model("vanilla")
    found.restore_model(other)
    assert same_weights(model, other)
    fresh = build_optimizers(other, make_phase(optimizer=kind))
    found.restore_optimizers(fresh)
    for old, new in zip(optimizers, fresh, strict=True):
        before, after = old.state_dict()["state"], new.state_dict()["state"]
        assert before
        assert before.keys() == after.keys()
        for number, moments in before.items():
            assert moments.keys() == after[number].keys()
            assert all(torch.equal(moments[key], after[number][key]) for key in moments)
    for which, acting in ((model, optimizers), (other, fresh)):
        for parameter in which.parameters():
            parameter.grad = torch.ones_like(parameter)
        for optimizer in acting:
            optimizer.step()
    assert same_weights(model, other)


def test_two_are_kept_with_their_hashes_and_what_a_kill_left_is_swept_away(tmp_path: Path) -> None:
    (tmp_path / ".step-000000005.safetensors.ab12").write_bytes(b"half")
    (tmp_path / "step-000000005.safetensors").write_bytes(b"no record")
    save_three(tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    stems = ("step-000000020", NEWEST)
    assert names == [stem + ending for stem in stems for ending in (".json", ".safetensors")]
    record = json.loads((tmp_path / f"{NEWEST}.json").read_text())
    assert record["sha256"] == sha256_of(tmp_path / f"{NEWEST}.safetensors")


def flipped(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])  # in the last tensor: the file still loads


@pytest.mark.parametrize(
    ("ending", "damage"),
    [
        (".safetensors", lambda content: content[:-100]),
        (".safetensors", flipped),
        (".safetensors", None),
        (".json", None),
        (".json", lambda content: content[:40]),
        (".json", lambda content: b"[]\n"),
    ],
)
def test_a_broken_newest_one_falls_back_to_the_one_before(
    tmp_path: Path, ending: str, damage
) -> None:
    save_three(tmp_path)
    broken = tmp_path / (NEWEST + ending)
    broken.unlink() if damage is None else broken.write_bytes(damage(broken.read_bytes()))
    found = load_checkpoint(tmp_path)
    assert found is not None
    assert found.state.total_steps == 20
    model = make_model("vanilla")
    found.restore_model(model)
    assert same_weights(model, learned("adamw", 2)[0])


def test_none_that_is_good_is_none(tmp_path: Path) -> None:
    assert load_checkpoint(tmp_path / "nowhere") is None
    save_checkpoint(tmp_path, TrainingState(total_steps=30), make_model("vanilla"), [])
    weights = tmp_path / f"{NEWEST}.safetensors"
    weights.write_bytes(flipped(weights.read_bytes()))
    assert load_checkpoint(tmp_path) is None
