from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from training_samples import make_model, make_phase

from wherefrom.corpus.batches import StreamPosition
from wherefrom.model.decoder import Decoder
from wherefrom.storage import sha256_of
from wherefrom.training.checkpoint import (
    Progress,
    load_checkpoint,
    load_weights,
    save_checkpoint,
    save_weights,
    whole_weights,
)
from wherefrom.training.optim import build_optimizers


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
        save_checkpoint(folder, Progress(total_steps=step), model, optimizers)


def weights_equal(a: Decoder, b: Decoder) -> bool:
    ours, theirs = a.state_dict(), b.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[k], theirs[k]) for k in ours)


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_weights_optimizers_and_progress_come_back_as_they_were(tmp_path: Path, kind: str) -> None:
    model, optimizers = learned(kind, 3)
    progress = Progress(
        phase=1,
        step=7,
        total_steps=107,
        place=StreamPosition(3, 5),
        seconds=1.25,
        total_seconds=9.5,
        tokens=1234,
        pending_losses=(0.1, 0.7),
    )
    save_checkpoint(tmp_path, progress, model, optimizers)
    found = load_checkpoint(tmp_path)
    assert found is not None
    assert found.progress == progress
    other = make_model("vanilla")
    found.restore_model(other)
    assert weights_equal(model, other)
    fresh = build_optimizers(other, make_phase(optimizer=kind))
    found.restore_optimizers(fresh)
    for old, new in zip(optimizers, fresh, strict=True):
        before, after = old.state_dict()["state"], new.state_dict()["state"]
        assert before.keys() == after.keys()
        assert before
        for number, state in before.items():
            assert state.keys() == after[number].keys()
            assert all(torch.equal(state[key], after[number][key]) for key in state)


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_the_next_step_is_the_same_to_the_bit(tmp_path: Path, kind: str) -> None:
    model, optimizers = learned(kind, 2)
    save_checkpoint(tmp_path, Progress(), model, optimizers)
    found = load_checkpoint(tmp_path)
    assert found is not None
    other = make_model("vanilla")
    found.restore_model(other)
    fresh = build_optimizers(other, make_phase(optimizer=kind))
    found.restore_optimizers(fresh)
    for which, acting in ((model, optimizers), (other, fresh)):
        for parameter in which.parameters():
            parameter.grad = torch.ones_like(parameter)
        for optimizer in acting:
            optimizer.step()
    assert weights_equal(model, other)


def test_only_two_are_kept(tmp_path: Path) -> None:
    save_three(tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [
        "step-000000020.json",
        "step-000000020.safetensors",
        "step-000000030.json",
        "step-000000030.safetensors",
    ]


def test_what_a_kill_left_half_written_is_swept_away_by_the_next(tmp_path: Path) -> None:
    (tmp_path / ".step-000000005.safetensors.ab12").write_bytes(b"half")
    (tmp_path / "step-000000005.safetensors").write_bytes(b"no record")
    save_three(tmp_path)
    assert len(list(tmp_path.iterdir())) == 4


def test_the_record_holds_the_hash_of_the_weights(tmp_path: Path) -> None:
    save_three(tmp_path)
    record = json.loads((tmp_path / "step-000000030.json").read_text())
    assert record["sha256"] == sha256_of(tmp_path / "step-000000030.safetensors")


def truncate(folder: Path) -> None:
    weights = folder / "step-000000030.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])


def flip_a_bit(folder: Path) -> None:
    weights = folder / "step-000000030.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1  # in the last tensor: the file still loads
    weights.write_bytes(data)


def lose_the_record(folder: Path) -> None:
    (folder / "step-000000030.json").unlink()


def tear_the_record(folder: Path) -> None:
    record = folder / "step-000000030.json"
    record.write_text(record.read_text()[:40])


def lose_the_weights(folder: Path) -> None:
    (folder / "step-000000030.safetensors").unlink()


def empty_the_record(folder: Path) -> None:
    (folder / "step-000000030.json").write_text("[]\n")


BREAKS = [
    truncate,
    flip_a_bit,
    lose_the_record,
    tear_the_record,
    lose_the_weights,
    empty_the_record,
]


@pytest.mark.parametrize("damage", BREAKS)
def test_a_broken_newest_one_falls_back_to_the_one_before(tmp_path: Path, damage) -> None:
    save_three(tmp_path)
    damage(tmp_path)
    found = load_checkpoint(tmp_path)
    assert found is not None
    assert found.progress.total_steps == 20
    model = make_model("vanilla")
    found.restore_model(model)
    assert weights_equal(model, learned("adamw", 2)[0])


def test_none_that_is_good_is_none(tmp_path: Path) -> None:
    assert load_checkpoint(tmp_path / "nowhere") is None
    save_checkpoint(tmp_path, Progress(total_steps=30), make_model("vanilla"), [])
    flip_a_bit(tmp_path)
    assert load_checkpoint(tmp_path) is None


def test_weights_alone_come_back_and_must_fit(tmp_path: Path) -> None:
    model, _ = learned("adamw", 1)
    path = tmp_path / "model.safetensors"
    assert save_weights(path, whole_weights(model)) == sha256_of(path)
    other = make_model("vanilla")
    load_weights(path, other)
    assert weights_equal(model, other)
    with pytest.raises(RuntimeError, match="Unexpected key"):
        load_weights(path, make_model("llama"))
    with pytest.raises(RuntimeError, match="size mismatch"):
        load_weights(path, make_model("vanilla", width=32))
