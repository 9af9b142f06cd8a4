"""The loop: one for pretraining, finetuning and everything mixed.

What a step does depends on the weights, the batch, the step's number and the pace, all of which a
checkpoint and the run's records restore; so a run that was stopped goes on to the same weights as
one that was not.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from math import isfinite
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import torch
from torch import nn
from torch.nn import functional as F

from wherefrom.corpus.batches import Batch, MicroBatch, StreamPosition
from wherefrom.errors import Stopped, UserError
from wherefrom.model.decoder import Decoder
from wherefrom.storage import write_whole
from wherefrom.training.checkpoint import Progress, load_checkpoint, save_checkpoint
from wherefrom.training.distributed import Processes
from wherefrom.training.optim import build_optimizers, rate_scale
from wherefrom.training.recipes import Phase
from wherefrom.training.sources import TrainingData, stream_for


def peak_memory() -> float:
    """The most memory this process has held, in MB.

    Linux hands ru_maxrss down from parent to child, so a child of a large process would look
    large; VmHWM starts anew with every program and is taken where there is one.
    """
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    import resource

    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size / (1024 * 1024 if sys.platform == "darwin" else 1024)


FIRST_STEPS = 2  # slow for reasons of their own, so not counted
FIRST_LOOK = 4  # steps before the first estimate
LOOK_EVERY = 5.0  # seconds between estimates


class Pace(Protocol):
    """The interface that the loop needs."""

    def progress(self, step: int) -> float: ...

    def after_step(self, step: int, seconds: float) -> None: ...


class StepPace:
    """A fixed number of steps."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def progress(self, step: int) -> float:
        return step / self.steps

    def after_step(self, step: int, seconds: float) -> None:
        """Time does not matter here."""


@dataclass(frozen=True)
class Segment:
    """From `step` on, progress grows from `progress` by `per_step` a step."""

    phase: int
    step: int
    progress: float
    per_step: float


class MinutePace:
    """A number of seconds, turned into recorded stretches of steady pace."""

    def __init__(self, seconds: float, record: Path, phase: int, *, writes: bool = True) -> None:
        self.budget = seconds
        self.phase = phase
        self._record = record
        self._writes = writes  # of several processes one keeps the record
        self._stretches = [Segment(phase, 0, 0.0, 0.0), *self._read()]
        self._looks = 0
        self._last_step, self._last_seconds = 0, 0.0
        self._known_until = self._stretches[-1].step

    def progress(self, step: int) -> float:
        for stretch in reversed(self._stretches):
            if stretch.step <= step:
                along = stretch.progress + (step - stretch.step) * stretch.per_step
                return min(1.0, along)
        return 0.0

    def after_step(self, step: int, seconds: float) -> None:
        """`step` steps are done and took `seconds` in all: look again now and then."""
        self._looks += 1  # and not `step`: the first steps after a resume are slow as well
        if step <= self._known_until or self._looks <= FIRST_STEPS:
            self._last_step, self._last_seconds = step, seconds
            return
        taken = step - self._last_step
        due = FIRST_LOOK if self._known_until == 0 else 1
        enough = seconds - self._last_seconds >= min(LOOK_EVERY, self.budget / 50)
        if seconds < self.budget and (taken < due or not enough):
            return
        speed = (seconds - self._last_seconds) / taken
        left = (self.budget - seconds) / speed
        at = self.progress(step)
        per_step = (1 - at) / left if left > 0.5 else 1.0
        self._add(Segment(self.phase, step, at, per_step))
        self._last_step, self._last_seconds = step, seconds

    def _add(self, stretch: Segment) -> None:
        if self._writes:
            with open(self._record, "a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(stretch)) + "\n")
                file.flush()
                os.fsync(file.fileno())
        self._stretches.append(stretch)
        self._known_until = stretch.step

    def _read(self) -> list[Segment]:
        """What was decided before; a last line cut short by a kill was never used, and goes."""
        if not self._record.exists():
            return []
        text = self._record.read_text(encoding="utf-8")
        whole, _, torn = text.rpartition("\n")
        if torn and self._writes:
            write_whole(self._record, whole + "\n" if whole else "")
        stretches = [Segment(**json.loads(line)) for line in whole.splitlines()]
        return [stretch for stretch in stretches if stretch.phase == self.phase]


LOG_EVERY = 10  # steps
CHECKPOINT_EVERY = 60.0  # seconds


@dataclass(frozen=True)
class Tick:
    """What the loop tells about itself as it goes."""

    phase: str
    step: int
    progress: float  # of the phase
    loss: float
    lr: float
    tokens: int  # learned from so far, all phases
    seconds: float  # of training so far, all phases
    tokens_per_second: float


@dataclass(frozen=True)
class Outcome:
    """What training cost."""

    steps: int
    tokens: int
    seconds: float
    final_loss: float


Observer = Callable[[Tick, Decoder], None]


def train(
    model: Decoder,
    phases: Sequence[Phase],
    data: TrainingData,
    folder: Path,
    *,
    seed: int,
    resume: bool = False,
    observe: Observer | None = None,
    processes: Processes | None = None,
    compiled: bool = False,
    checkpoint_every: float = CHECKPOINT_EVERY,
) -> Outcome:
    """Train `model` in place through all phases, keeping `folder` fit to resume from."""
    processes = processes or Processes()
    checkpoints = folder / "checkpoints"
    state = Progress()
    checkpoint = load_checkpoint(checkpoints) if resume else None
    if checkpoint is not None:
        state = checkpoint.progress
        checkpoint.restore_model(model)
    told = state.total_steps - len(state.pending_losses)
    metrics = Metrics(folder, after=told, writes=processes.is_rank0)
    inner: nn.Module = torch.compile(model, dynamic=True) if compiled else model  # type: ignore[assignment]
    runner = processes.wrap(inner)
    last_loss = float("nan")
    with GracefulInterrupt() as interrupt, metrics:
        for index in range(state.phase, len(phases)):
            phase = phases[index]
            optimizers = build_optimizers(model, phase)
            if checkpoint is not None and checkpoint.progress.phase == index:
                checkpoint.restore_optimizers(optimizers)
            stream = stream_for(phase, data, [seed, index])
            pace = _pace(phase, stream.epoch_steps, folder, index, writes=processes.is_rank0)
            saved_at = time.monotonic()
            clock = time.perf_counter()
            for batch, place in stream.from_position(state.place):
                if (progress := pace.progress(state.step)) >= 1:
                    break
                scale = rate_scale(phase, state.step, progress)
                for optimizer in optimizers:
                    for group in optimizer.param_groups:
                        group["lr"] = group["base_lr"] * scale
                noise = [seed, index, state.step, processes.rank] if model.config.dropout else None
                last_loss = _step(runner, batch, optimizers, phase, processes, noise)
                _refuse_divergence(last_loss, phase, state.step + 1)
                seconds = processes.broadcast(state.seconds + time.perf_counter() - clock)
                state = replace(
                    state,
                    step=state.step + 1,
                    total_steps=state.total_steps + 1,
                    place=place,
                    tokens=state.tokens + batch.tokens,
                    total_seconds=state.total_seconds + seconds - state.seconds,
                    seconds=seconds,
                    pending_losses=(*state.pending_losses, last_loss),
                )
                pace.after_step(state.step, state.seconds)
                if state.total_steps % LOG_EVERY == 0:
                    state = metrics.log(state, phase, phase.lr * scale, pace, observe, model)
                due = time.monotonic() - saved_at > checkpoint_every
                wish = processes.broadcast(2 if interrupt.asked else int(due))
                if wish > 0:
                    save_checkpoint(
                        checkpoints, state, model, optimizers, writes=processes.is_rank0
                    )
                    saved_at = time.monotonic()
                if wish > 1:
                    raise Stopped
                clock = time.perf_counter()  # records and observers are not training
            if state.pending_losses:
                last = state.step - 1
                rate = phase.lr * rate_scale(phase, last, pace.progress(last))
                state = metrics.log(state, phase, rate, pace, observe, model)
            state = replace(state, phase=index + 1, step=0, place=StreamPosition(), seconds=0.0)
            checkpoint = None
            save_checkpoint(checkpoints, state, model, [], writes=processes.is_rank0)
    return Outcome(
        steps=state.total_steps,
        tokens=state.tokens,
        seconds=state.total_seconds,
        final_loss=last_loss,
    )


def _step(
    runner: nn.Module,
    batch: Batch,
    optimizers: Sequence[torch.optim.Optimizer],
    phase: Phase,
    processes: Processes,
    noise: list[int] | None,
) -> float:
    """One optimizer step on one batch; returns the batch's mean loss."""
    mine = processes.rows_of(batch)
    runner.train()
    device = next(runner.parameters()).device
    total = 0.0
    with _seeded_noise(noise):
        for number, part in enumerate(mine.parts, start=1):
            with processes.accumulating(runner, last=number == len(mine.parts)):
                loss = part_loss(runner, part, device) / batch.weight
                # gradients are averaged over processes, and a mean of sums is wanted
                (loss * processes.count).backward()
            total += loss.item()
    if phase.clip is not None:
        nn.utils.clip_grad_norm_(runner.parameters(), phase.clip)
    for optimizer in optimizers:
        optimizer.step()
    runner.zero_grad(set_to_none=True)
    return processes.all_reduce_sum(total)


def _refuse_divergence(loss: float, phase: Phase, step: int) -> None:
    if not isfinite(loss):
        raise UserError(
            f'the loss is no longer a number at step {step} of the phase "{phase.name}"; lower '
            "the learning rates of the recipe and start again."
        )


def part_loss(runner: nn.Module, part: MicroBatch, device: torch.device | str) -> torch.Tensor:
    """The weighted sum of cross-entropies of a part; the head sees only positions that count."""
    weights = part.weights[:, 1:].flatten()
    select = weights.nonzero().flatten()
    targets = part.ids[:, 1:].flatten()[select].to(device)
    logits = runner(part.ids[:, :-1].to(device), select=select.to(device))
    losses = F.cross_entropy(logits, targets, reduction="none")
    return (losses * weights[select].to(device)).sum()


def _pace(
    phase: Phase, epoch_steps: Callable[[], float], folder: Path, index: int, *, writes: bool
) -> Pace:
    if phase.minutes is not None:
        return MinutePace(60 * phase.minutes, folder / "pace.jsonl", index, writes=writes)
    if phase.steps is not None:
        return StepPace(phase.steps)
    assert phase.epochs is not None
    return StepPace(max(1, round(phase.epochs * epoch_steps())))


class Metrics:
    """`metrics.jsonl` and TensorBoard events: a line each few steps, none twice after a resume."""

    def __init__(self, folder: Path, *, after: int, writes: bool) -> None:
        self._path = folder / "metrics.jsonl"
        self._events = folder / "events"
        self._after = after
        self._writes = writes
        self._file: Any = None
        self._board: Any = None
        self._last = (0, 0.0)

    def __enter__(self) -> Metrics:
        if self._writes:
            if self._path.exists():
                self._forget_later_lines()
            self._file = open(self._path, "a", encoding="utf-8")
            from wherefrom.training.board import Board

            self._board = Board(self._events, after=self._after)
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
            self._board.close()

    def log(
        self,
        state: Progress,
        phase: Phase,
        lr: float,
        pace: Pace,
        observe: Observer | None,
        model: Decoder,
    ) -> Progress:
        """Write down the mean loss since the last line, and tell the observer."""
        tokens, seconds = self._last
        speed = (state.tokens - tokens) / max(1e-9, state.total_seconds - seconds)
        self._last = (state.tokens, state.total_seconds)
        tick = Tick(
            phase=phase.name,
            step=state.total_steps,
            progress=min(1.0, pace.progress(state.step)),
            loss=sum(state.pending_losses) / len(state.pending_losses),
            lr=lr,
            tokens=state.tokens,
            seconds=state.total_seconds,
            tokens_per_second=speed,
        )
        if self._file is not None:
            self._file.write(json.dumps(tick.__dict__) + "\n")
            self._file.flush()
            self._board.add(tick.step, {"loss": tick.loss, "lr": tick.lr, "tokens/s": speed})
        if observe is not None:
            observe(tick, model)
        return replace(state, pending_losses=())

    def _forget_later_lines(self) -> None:
        kept = []
        for line in self._path.read_text(encoding="utf-8").splitlines():
            try:
                step = json.loads(line)["step"]
            except (ValueError, KeyError):
                continue  # cut short by a kill
            if step <= self._after:
                kept.append(line)
        write_whole(self._path, "".join(line + "\n" for line in kept))


class GracefulInterrupt:
    """Ctrl-C asks the loop to finish its step; a second one does not wait."""

    def __enter__(self) -> GracefulInterrupt:
        self.asked = False
        self._before: Any = None
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._ask)
        return self

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)


@contextmanager
def _seeded_noise(seed: list[int] | None) -> Iterator[None]:
    """Dropout's randomness for one step, a function of the seed and the step alone."""
    if seed is None:
        yield
        return
    mixed = 0
    for number in seed:
        mixed = (mixed * 1_000_003 + number + 1) % (1 << 63)
    with torch.random.fork_rng():
        torch.manual_seed(mixed)
        yield
