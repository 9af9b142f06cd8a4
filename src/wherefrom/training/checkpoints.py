"""The state of a training, its checkpoints, and the snapshot that traces use.

A checkpoint is two files: `step-N.safetensors` has weights and optimizer state; `step-N.json`,
written last, has all other state and the hash of the first. The newest two are kept.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pydantic import TypeAdapter
from safetensors.torch import load_file, save
from torch import Tensor, nn
from torch.optim import Optimizer

from wherefrom.corpus.batches import StreamPosition
from wherefrom.storage import make_folder, sha256_of, write_json, write_whole
from wherefrom.training.record import check_file, read_record

KEPT_CHECKPOINTS = 2
SNAPSHOT_FOLDER = "snapshots"
SNAPSHOT_AT = 0.38  # the share of the steps after which the snapshot is taken
SNAPSHOT_RATIO = 1.25  # between the steps of two candidates
SNAPSHOT_STEPS = frozenset(round(4 * SNAPSHOT_RATIO**k) for k in range(80))


@dataclass(frozen=True)
class PaceSegment:
    """From `step` on, the progress of a phase is `progress`, plus `per_step` for each step."""

    phase: int
    step: int
    progress: float
    per_step: float


@dataclass
class TrainingState:
    """Where a training is: all its numbers that are not tensors."""

    phase: int = 0
    step: int = 0  # in this phase
    total_steps: int = 0
    place: StreamPosition = field(default_factory=StreamPosition)
    seconds: float = 0.0  # of training, in this phase
    total_seconds: float = 0.0
    tokens: int = 0
    pending_losses: list[float] = field(default_factory=list)  # of steps that are not logged yet
    logged_tokens: int = 0  # tokens and seconds at the last line of metrics.jsonl
    logged_seconds: float = 0.0
    segments: list[PaceSegment] = field(default_factory=list)
    recalls: list[tuple[int, float]] = field(default_factory=list)  # in this phase: step, share
    phase_steps: list[int] = field(default_factory=list)  # of the phases that have ended

    def add_step(self, seconds: float, tokens: int, loss: float, position: StreamPosition) -> None:
        """Count a step; position: that of the next batch."""
        self.step += 1
        self.total_steps += 1
        self.seconds += seconds
        self.total_seconds += seconds
        self.tokens += tokens
        self.pending_losses.append(loss)
        self.place = position

    def end_phase(self) -> None:
        """Go on to the next phase."""
        self.phase_steps.append(self.step)
        self.phase, self.step, self.seconds = self.phase + 1, 0, 0.0
        self.place, self.recalls = StreamPosition(), []


def save_checkpoint(
    folder: Path,
    state: TrainingState,
    model: nn.Module,
    optimizers: Sequence[Optimizer] = (),
    writes: bool = True,
) -> None:
    """Write a checkpoint and delete old ones; all processes call it, and one of them `writes`."""
    tensors = {f"model/{name}": tensor for name, tensor in whole_weights(model).items()}
    for index, optimizer in enumerate(optimizers):
        for parameter, moments in optimizer.state_dict()["state"].items():
            for key, tensor in moments.items():
                tensors[f"optimizer/{index}/{parameter}/{key}"] = tensor.contiguous()
    if not writes:
        return
    make_folder(folder)
    stem = f"step-{state.total_steps:09d}"
    digest = save_weights(folder / f"{stem}.safetensors", tensors)
    write_json(folder / f"{stem}.json", {"sha256": digest, "progress": asdict(state)})
    for old in sorted(folder.glob("step-*.json"))[:-KEPT_CHECKPOINTS]:
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
        prefix, tensors = "model/", self.tensors
        names = [name for name in tensors if name.startswith(prefix)]
        model.load_state_dict({name.removeprefix(prefix): tensors[name] for name in names})

    def restore_optimizers(self, optimizers: Sequence[Optimizer]) -> None:
        states: list[dict[int, dict[str, Tensor]]] = [{} for _ in optimizers]
        for name, tensor in self.tensors.items():
            if name.startswith("optimizer/"):
                _, index, number, key = name.split("/")
                states[int(index)].setdefault(int(number), {})[key] = tensor
        for optimizer, state in zip(optimizers, states, strict=True):
            optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def load_checkpoint(folder: Path) -> Checkpoint | None:
    """The newest checkpoint whose hash is right, or None."""
    for record in sorted(folder.glob("step-*.json"), reverse=True):
        weights = record.with_suffix(".safetensors")
        with suppress(OSError, ValueError, KeyError, TypeError):  # cut short or missing
            content = json.loads(record.read_text(encoding="utf-8"))
            if content["sha256"] != sha256_of(weights):
                continue
            state = TypeAdapter(TrainingState).validate_python(content["progress"])
            return Checkpoint(state, load_file(weights))
    return None


# ---- the weights after about a third of the steps, for traces: once an answer is learned, its
# gradient says less. Where training will end is not known before, so a few candidates are kept


def save_snapshot(folder: Path, step: int, weights: dict[str, Tensor]) -> None:
    """Write RUN/snapshots/STEP.safetensors, and delete candidates that are too early by now."""
    save_weights(make_folder(folder / SNAPSHOT_FOLDER) / f"{step}.safetensors", weights)
    for other, path in _snapshots(folder).items():
        if other < step * SNAPSHOT_AT / SNAPSHOT_RATIO:
            path.unlink()


def choose_snapshot(folder: Path, steps: int) -> tuple[str, ...]:
    """Of a run that took `steps` steps, keep only the snapshot nearest to SNAPSHOT_AT of them.

    Returns the name of its file, if there is one.
    """
    candidates = _snapshots(folder)
    best = min(candidates, key=lambda step: abs(step - SNAPSHOT_AT * steps), default=0)
    for step, path in candidates.items():
        if step != best:
            path.unlink()
    return (f"{SNAPSHOT_FOLDER}/{best}.safetensors",) if candidates else ()


def load_snapshot(folder: Path) -> dict[str, Tensor]:
    """The weights by name that the run kept from its training; {} if it kept none."""
    record = read_record(folder)
    for name in record.files:
        if name.startswith(f"{SNAPSHOT_FOLDER}/"):
            return load_file(check_file(folder, name, record))
    return {}


def _snapshots(folder: Path) -> dict[int, Path]:
    return {int(path.stem): path for path in (folder / SNAPSHOT_FOLDER).glob("[0-9]*.safetensors")}


def whole_weights(model: nn.Module) -> dict[str, Tensor]:
    """The weights by name."""
    return {name: tensor.contiguous() for name, tensor in model.state_dict().items()}


def save_weights(path: Path, weights: dict[str, Tensor]) -> str:
    """Write tensors by name as a file; returns its hash."""
    write_whole(path, save(weights))
    return sha256_of(path)
