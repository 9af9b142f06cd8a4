"""Checkpoints: all that decides how training goes on, whole or not at all.

A checkpoint is two files. `step-N.safetensors` holds weights and optimizer state; `step-N.json`
holds the rest and the hash of the first, and is written last, so that a checkpoint without a
matching pair does not count. The newest two are kept: if the last one is broken, the one before
it serves. No pickle is read or written.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save
from torch import Tensor, nn
from torch.optim import Optimizer

from wherefrom.corpus.batches import StreamPosition
from wherefrom.storage import make_folder, sha256_of, write_json, write_whole
from wherefrom.training.distributed import gather, shard_like

KEPT = 2


@dataclass(frozen=True)
class Segment:
    """From `step` on, the progress of a phase grows from `progress` by `per_step` a step."""

    phase: int
    step: int
    progress: float
    per_step: float


@dataclass(frozen=True)
class TrainingState:
    """Where a training is: all the numbers that are not tensors.

    segments: how budgets of minutes or epochs have become steps so far. recalls: steps of the phase
    at which held-out questions were asked, with the share that was answered.
    """

    phase: int = 0
    step: int = 0  # in this phase
    total_steps: int = 0
    place: StreamPosition = field(default_factory=StreamPosition)
    seconds: float = 0.0  # of training, in this phase
    total_seconds: float = 0.0
    tokens: int = 0
    pending_losses: tuple[float, ...] = ()
    segments: tuple[Segment, ...] = ()
    recalls: tuple[tuple[int, float], ...] = ()


def save_checkpoint(
    folder: Path,
    state: TrainingState,
    model: nn.Module,
    optimizers: Sequence[Optimizer],
    *,
    writes: bool = True,
) -> None:
    """Write a checkpoint and drop those older than the newest two.

    All processes take part, since each may hold a piece of the tensors; one of them `writes`.
    """
    tensors = {f"model/{name}": tensor for name, tensor in whole_weights(model).items()}
    for index, optimizer in enumerate(optimizers):
        for parameter, moments in optimizer.state_dict()["state"].items():
            for key, tensor in moments.items():
                whole = gather(tensor).contiguous()
                tensors[f"optimizer/{index}/{parameter}/{key}"] = whole
    if not writes:
        return
    make_folder(folder)
    stem = f"step-{state.total_steps:09d}"
    digest = save_weights(folder / f"{stem}.safetensors", tensors)
    write_json(folder / f"{stem}.json", {"sha256": digest, "progress": asdict(state)})
    for old in sorted(folder.glob("step-*.json"))[:-KEPT]:
        old.unlink()
    for weights in folder.glob("step-*.safetensors"):
        if not weights.with_suffix(".json").exists():
            weights.unlink()
    for torn in folder.glob(".step-*"):  # left half written by a kill
        torn.unlink()


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint read back."""

    state: TrainingState
    tensors: dict[str, Tensor]

    def restore_model(self, model: nn.Module) -> None:
        weights = {n[6:]: tensor for n, tensor in self.tensors.items() if n.startswith("model/")}
        model.load_state_dict(weights, strict=True)

    def restore_optimizers(self, optimizers: Sequence[Optimizer]) -> None:
        states: list[dict[int, dict[str, Tensor]]] = [{} for _ in optimizers]
        for name, tensor in self.tensors.items():
            if name.startswith("optimizer/"):
                _, index, parameter, key = name.split("/")
                states[int(index)].setdefault(int(parameter), {})[key] = tensor
        for optimizer, state in zip(optimizers, states, strict=True):
            parameters = [p for group in optimizer.param_groups for p in group["params"]]
            for number, kept in state.items():
                state[number] = {k: shard_like(t, parameters[number]) for k, t in kept.items()}
            optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def load_checkpoint(folder: Path) -> Checkpoint | None:
    """The newest checkpoint whose hash is right, or None when there is none."""
    for record in sorted(folder.glob("step-*.json"), reverse=True):
        weights = record.with_suffix(".safetensors")
        with suppress(OSError, ValueError, KeyError, TypeError):  # torn or missing
            content: dict[str, Any] = json.loads(record.read_text(encoding="utf-8"))
            if content["sha256"] != sha256_of(weights):
                continue
            fields = content["progress"] | {
                "place": StreamPosition(**content["progress"]["place"]),
                "pending_losses": tuple(content["progress"]["pending_losses"]),
                "segments": tuple(Segment(**each) for each in content["progress"]["segments"]),
                "recalls": tuple((step, x) for step, x in content["progress"].get("recalls", ())),
            }
            return Checkpoint(TrainingState(**fields), load_file(weights))
    return None


def whole_weights(model: nn.Module) -> dict[str, Tensor]:
    """The weights by name, each in one piece; all processes must call it at once."""
    return {name: gather(tensor).contiguous() for name, tensor in model.state_dict().items()}


def save_weights(path: Path, weights: dict[str, Tensor]) -> str:
    """Tensors by name as a file; returns its hash."""
    write_whole(path, save(weights))
    return sha256_of(path)


def load_weights(path: Path, model: nn.Module, device: torch.device | str = "cpu") -> None:
    """Every tensor must fit by name and shape."""
    model.load_state_dict(load_file(path, device=str(device)), strict=True)
