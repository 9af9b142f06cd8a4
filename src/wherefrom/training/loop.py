"""The loop: one for pretraining, finetuning and everything mixed.

What a step does depends on the weights, the batch, the step's number and the pace, all of which a
checkpoint and the run's records restore; so a run that was stopped goes on to the same weights as
one that was not.
"""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from wherefrom.corpus.batches import Batch, Part, Place
from wherefrom.errors import Stopped, UserError
from wherefrom.model.decoder import Decoder
from wherefrom.storage import write_whole
from wherefrom.training.checkpoint import Progress, load_checkpoint, save_checkpoint
from wherefrom.training.optimizers import build_optimizers, rate_scale
from wherefrom.training.pace import MinutePace, Pace, StepPace
from wherefrom.training.processes import Processes
from wherefrom.training.recipes import Phase
from wherefrom.training.sources import TrainingData, stream_for

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
    metrics = Metrics(folder, after=told, writes=processes.leads)
    inner: nn.Module = torch.compile(model, dynamic=True) if compiled else model  # type: ignore[assignment]
    runner = processes.wrap(inner)
    last_loss = float("nan")
    with _HeedInterrupt() as interrupt, metrics:
        for index in range(state.phase, len(phases)):
            phase = phases[index]
            optimizers = build_optimizers(model, phase)
            if checkpoint is not None and checkpoint.progress.phase == index:
                checkpoint.restore_optimizers(optimizers)
            stream = stream_for(phase, data, [seed, index])
            pace = _pace(phase, stream.epoch_steps, folder, index, writes=processes.leads)
            saved_at = time.monotonic()
            clock = time.perf_counter()
            for batch, place in stream.from_place(state.place):
                if (progress := pace.progress(state.step)) >= 1:
                    break
                scale = rate_scale(phase, state.step, progress)
                for optimizer in optimizers:
                    for group in optimizer.param_groups:
                        group["lr"] = group["base_lr"] * scale
                noise = [seed, index, state.step, processes.rank] if model.config.dropout else None
                last_loss = _step(runner, batch, optimizers, phase, processes, noise)
                _refuse_divergence(last_loss, phase, state.step + 1)
                seconds = processes.agree(state.seconds + time.perf_counter() - clock)
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
                wish = processes.agree(2 if interrupt.asked else int(due))
                if wish > 0:
                    save_checkpoint(checkpoints, state, model, optimizers, writes=processes.leads)
                    saved_at = time.monotonic()
                if wish > 1:
                    raise Stopped
                clock = time.perf_counter()  # records and observers are not training
            if state.pending_losses:
                last = state.step - 1
                rate = phase.lr * rate_scale(phase, last, pace.progress(last))
                state = metrics.log(state, phase, rate, pace, observe, model)
            state = replace(state, phase=index + 1, step=0, place=Place(), seconds=0.0)
            checkpoint = None
            save_checkpoint(checkpoints, state, model, [], writes=processes.leads)
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
    return processes.total(total)


def _refuse_divergence(loss: float, phase: Phase, step: int) -> None:
    if not isfinite(loss):
        raise UserError(
            f'the loss is no longer a number at step {step} of the phase "{phase.name}"; lower '
            "the learning rates of the recipe and start again."
        )


def part_loss(runner: nn.Module, part: Part, device: torch.device | str) -> torch.Tensor:
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


class _HeedInterrupt:
    """Ctrl-C asks the loop to finish its step; a second one does not wait."""

    def __enter__(self) -> _HeedInterrupt:
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
