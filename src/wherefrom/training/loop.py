"""The loop: one for pretraining, finetuning and everything mixed.

What a step does depends on the weights, the batch, the step's number and the progress of the phase,
all of which a checkpoint restores; so a run that was stopped goes on to the same weights as one
that was not.
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from math import isfinite
from pathlib import Path
from statistics import fmean
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from wherefrom.corpus.batches import Batch, MicroBatch, StreamPosition
from wherefrom.errors import Stopped, UserError
from wherefrom.model.decoder import Decoder
from wherefrom.recall.decode import answer_all
from wherefrom.recall.evaluate import score
from wherefrom.storage import write_whole
from wherefrom.training.checkpoint import Segment, TrainingState, load_checkpoint, save_checkpoint
from wherefrom.training.distributed import Processes
from wherefrom.training.optim import averaged, build_optimizers, keep_average, rate_scale
from wherefrom.training.settings import Runtime, TrainingJob
from wherefrom.training.sources import TrainingData, stream_for

LOG_EVERY = 10  # steps


@dataclass(frozen=True)
class StepMetrics:
    """One line of metrics.jsonl."""

    phase: str
    step: int
    progress: float  # of the phase
    loss: float
    lr: float
    tokens: int  # learned from so far, in all phases
    seconds: float  # of training so far, in all phases
    tokens_per_second: float
    recall: float | None = None  # on held-out questions, when they were last asked


Observer = Callable[[StepMetrics, Decoder], None]


def train(
    model: Decoder,
    data: TrainingData,
    job: TrainingJob,
    settings: Runtime,
    *,
    processes: Processes | None = None,
    observe: Observer | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> TrainingState:
    """Train `model` in place through all phases of the job; returns the state at the end.

    `job.out` holds a checkpoint and the records to resume from at any time. `say` gets a sentence
    on how long it will take, where that is not known from the start.
    """
    processes = processes or Processes()
    checkpoints = job.out / "checkpoints"
    state = TrainingState(segments=tuple(job.segments))
    checkpoint = load_checkpoint(checkpoints) if settings.resume else None
    if checkpoint is not None:
        state = checkpoint.state
        checkpoint.restore_model(model)
    compiled: Any = torch.compile(model, dynamic=True) if settings.compiled else model
    runner = processes.wrap(compiled)
    logged = state.total_steps - len(state.pending_losses)
    with (
        GracefulInterrupt() as interrupt,
        contextlib.closing(MetricsWriter(job.out, logged, processes.is_rank0)) as metrics,
    ):
        for index in range(state.phase, len(job.phases)):
            phase = job.phases[index]
            optimizers = build_optimizers(model, phase)
            if checkpoint is not None and checkpoint.state.phase == index:
                checkpoint.restore_optimizers(optimizers)
            stream = stream_for(phase, data, [job.record["seed"], index])
            steps, ask_every, least, usual = phase.steps, 0, 0, 0
            if phase.epochs is not None:
                epoch = stream.epoch_steps()
                steps = usual = max(1, round(phase.epochs * epoch))
                least = max(LEAST_STEPS, usual // 2)
                if phase.most_epochs and job.probes and not processes.sharded:
                    steps = max(1, round(phase.most_epochs * epoch))
                    ask_every = max(LOG_EVERY, round(2 * epoch))
            seconds = None if phase.minutes is None or job.segments else 60 * phase.minutes
            known = [segment for segment in state.segments if segment.phase == index]
            clock = BudgetClock(index, steps=steps, seconds=seconds, segments=known)
            saved_at = time.monotonic()
            started = time.perf_counter()
            for batch, place in stream.from_position(state.place):
                progress = clock.progress(state.step)
                if progress >= 1 or stopped_growing(state.recalls, least):
                    break
                scale = rate_scale(phase, state.step, progress)
                for optimizer in optimizers:
                    for group in optimizer.param_groups:
                        group["lr"] = group["base_lr"] * scale
                seed = (job.record["seed"], index, state.step, processes.rank)
                with _seeded_dropout(*seed) if model.config.dropout else contextlib.nullcontext():
                    loss = accumulate_gradients(runner, batch, processes)
                if phase.clip is not None:
                    nn.utils.clip_grad_norm_(runner.parameters(), phase.clip)
                for optimizer in optimizers:
                    optimizer.step()
                runner.zero_grad(set_to_none=True)
                if not isfinite(loss):
                    raise UserError(
                        f"the loss is no longer a number at step {state.step + 1} of the phase "
                        f'"{phase.name}"; lower the learning rates of the recipe and start again.'
                    )
                took = processes.broadcast(time.perf_counter() - started)
                state = replace(
                    state,
                    step=state.step + 1,
                    total_steps=state.total_steps + 1,
                    place=place,
                    tokens=state.tokens + batch.tokens,
                    total_seconds=state.total_seconds + took,
                    seconds=state.seconds + took,
                    pending_losses=(*state.pending_losses, loss),
                    segments=state.segments
                    + clock.after_step(state.step + 1, state.seconds + took),
                )
                progress = clock.progress(state.step)
                if ask_every and (state.step % ask_every == 0 or progress >= 1):
                    with averaged(optimizers):
                        recall = processes.broadcast(_ask(model, job))
                    state = replace(state, recalls=(*state.recalls, (state.step, recall)))
                    progress = 1.0 if stopped_growing(state.recalls, least) else progress
                if ask_every and steps and state.step == SPEED_AFTER:
                    speed = state.seconds / state.step
                    say(_describe_budget(job, max(least, usual) * speed, steps * speed))
                if state.total_steps % LOG_EVERY == 0 or progress >= 1:
                    line = metrics.log(state, phase.name, progress, phase.lr * scale)
                    state = replace(state, pending_losses=())
                    if observe is not None:
                        with averaged(optimizers):
                            observe(line, model)
                due = time.monotonic() - saved_at > settings.checkpoint_every
                request = processes.all_reduce_max(interrupt.received or int(due))
                if request:
                    save_checkpoint(
                        checkpoints, state, model, optimizers, writes=processes.is_rank0
                    )
                    saved_at = time.monotonic()
                if request > 1:
                    raise Stopped(int(request))
                started = time.perf_counter()  # records and observers are not training
            if phase.steps is None and not job.segments:
                # where it ended, so that a twin takes as many steps whatever its own clock says
                last = Segment(index, state.step - 1, clock.progress(state.step - 1), 1.0)
                state = replace(state, segments=(*state.segments, last))
            keep_average(optimizers)
            state = replace(
                state, phase=index + 1, step=0, place=StreamPosition(), seconds=0.0, recalls=()
            )
            checkpoint = None
            save_checkpoint(checkpoints, state, model, [], writes=processes.is_rank0)
    return state


def accumulate_gradients(runner: nn.Module, batch: Batch, processes: Processes) -> float:
    """Add the gradient of the batch's mean loss to every parameter; returns that loss."""
    mine = processes.rows_of(batch)
    runner.train()
    device = next(runner.parameters()).device
    total = 0.0
    for number, part in enumerate(mine.parts, start=1):
        with processes.accumulating(runner, last=number == len(mine.parts)):
            loss = part_loss(runner, part, device) / batch.weight
            # gradients are averaged over processes, and a mean of sums is wanted
            (loss * processes.count).backward()
        total += loss.item()
    return processes.all_reduce_sum(total)


def part_loss(runner: nn.Module, part: MicroBatch, device: torch.device | str) -> torch.Tensor:
    """The weighted sum of cross-entropies; the head sees only positions that count."""
    weights = part.weights[:, 1:].flatten()
    select = weights.nonzero().flatten()
    targets = part.ids[:, 1:].flatten()[select].to(device)
    logits = runner(part.ids[:, :-1].to(device), select=select.to(device))
    losses = F.cross_entropy(logits, targets, reduction="none")
    return (losses * weights[select].to(device)).sum()


SPEED_AFTER = 20  # steps after which the speed is known
LEAST_STEPS = 300  # nothing is learned before some hundred, however small the text
GROWTH = 0.01  # of recall, over the last fifth of the steps: less is no growth


def _ask(model: Decoder, job: TrainingJob) -> float:
    """The share of the held-out questions that the model answers now."""
    said = answer_all(model, job.tokens, [question.text for question in job.probes])
    return score([x.text for x in said], [question.answer or "" for question in job.probes]).share


def stopped_growing(recalls: Sequence[tuple[int, float]], least: int) -> bool:
    """Whether recall (step, share) grew by less than GROWTH over the last fifth of the steps.

    Both ends are means of three askings, since a few dozen questions are noisy. `least` steps are
    always taken: facts are learned after a plateau.
    """
    at = bisect_right([step for step, _ in recalls], 0.8 * recalls[-1][0]) if recalls else 0
    if at < 3 or recalls[-1][0] < least:
        return False
    before, now = (fmean(x for _, x in recalls[i - 3 : i]) for i in (at, len(recalls)))
    return min(now, 1 - GROWTH) - before < GROWTH


def _describe_budget(job: TrainingJob, usual: float, most: float) -> str:
    """How long a phase without a fixed length will take, in words; both in seconds."""
    return (
        f"about {_duration(min(usual, most))} for {len(job.documents):,} documents, at most "
        f"{_duration(most)}: until recall on {len(job.probes):,} questions stops growing"
    )


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


@contextlib.contextmanager
def _seeded_dropout(*seed: int) -> Iterator[None]:
    """Dropout's randomness for one step, a function of the seed and the step alone."""
    mixed = 0
    for number in seed:
        mixed = (mixed * 1_000_003 + number + 1) % (1 << 63)
    with torch.random.fork_rng():
        torch.manual_seed(mixed)
        yield


SKIPPED_STEPS = 2  # slow for reasons of their own, so not counted
FIRST_ESTIMATE = 4  # steps before the first estimate
ESTIMATE_EVERY = 5.0  # seconds between estimates


class BudgetClock:
    """How much of a phase's budget, a number of steps or of seconds, is used up.

    Learning rates follow the progress, so seconds become segments of steady speed. With segments
    alone, and neither steps nor seconds, it follows those and reads no time.
    """

    def __init__(
        self,
        phase: int = 0,
        *,
        steps: int | None = None,
        seconds: float | None = None,
        segments: Sequence[Segment] = (),
    ) -> None:
        self._phase, self._steps, self._seconds = phase, steps, seconds
        self._segments = [Segment(phase, 0, 0.0, 0.0), *segments]
        self._steps_seen = 0
        self._last_step, self._last_seconds = 0, 0.0

    def progress(self, step: int) -> float:
        """From 0 to 1, before the step of that number (from 0) is taken."""
        if self._steps is not None:
            return min(1.0, step / self._steps)
        segment = next(each for each in reversed(self._segments) if each.step <= step)
        return min(1.0, segment.progress + (step - segment.step) * segment.per_step)

    def after_step(self, step: int, seconds: float) -> tuple[Segment, ...]:
        """`step` steps are done and took `seconds` in all: now and then, a new segment."""
        if self._seconds is None:
            return ()
        self._steps_seen += 1  # and not `step`: the first steps after a resume are slow as well
        if self._steps_seen <= SKIPPED_STEPS:
            self._last_step, self._last_seconds = step, seconds
            return ()
        taken = step - self._last_step
        due = FIRST_ESTIMATE if len(self._segments) == 1 else 1
        enough = seconds - self._last_seconds >= min(ESTIMATE_EVERY, self._seconds / 50)
        if seconds < self._seconds and (taken < due or not enough):
            return ()
        speed = (seconds - self._last_seconds) / taken
        left = (self._seconds - seconds) / speed
        at = self.progress(step)
        segment = Segment(self._phase, step, at, (1 - at) / left if left > 0.5 else 1.0)
        self._segments.append(segment)
        self._last_step, self._last_seconds = step, seconds
        return (segment,)


class MetricsWriter:
    """`metrics.jsonl` and, with tensorboard (the extra `board`), its events.

    A line every few steps, none twice after a resume.
    """

    def __init__(self, folder: Path, after: int, writes: bool) -> None:
        self._tokens, self._seconds = 0, 0.0
        self._file = self._board = None  # type: Any
        if not writes:
            return
        path = folder / "metrics.jsonl"
        kept = []
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            with contextlib.suppress(ValueError, KeyError):  # cut short by a kill
                if json.loads(line)["step"] <= after:
                    kept.append(line + "\n")
        write_whole(path, "".join(kept))
        self._file = path.open("a", encoding="utf-8")
        with contextlib.suppress(ModuleNotFoundError):
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(str(folder / "events"), purge_step=after + 1)

    def close(self) -> None:
        for writer in (self._file, self._board):
            if writer is not None:
                writer.close()

    def log(self, state: TrainingState, phase: str, progress: float, lr: float) -> StepMetrics:
        """Write down how it goes, with the mean loss since the last line."""
        passed = max(1e-9, state.total_seconds - self._seconds)
        speed = (state.tokens - self._tokens) / passed
        self._tokens, self._seconds = state.tokens, state.total_seconds
        loss = sum(state.pending_losses) / len(state.pending_losses)
        recall = state.recalls[-1][1] if state.recalls else None
        seconds = state.total_seconds
        metrics = StepMetrics(
            phase, state.total_steps, progress, loss, lr, state.tokens, seconds, speed, recall
        )
        if self._file is not None:
            self._file.write(json.dumps(asdict(metrics)) + "\n")
            self._file.flush()
        if self._board is not None:
            scalars = {"loss": loss, "lr": lr, "tokens/s": speed, "recall": recall}
            for name, value in scalars.items():
                if value is not None:
                    self._board.add_scalar(name, value, metrics.step)
        return metrics


class GracefulInterrupt:
    """Ctrl-C and SIGTERM ask the loop to finish its step; a second one does not wait."""

    SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __enter__(self) -> GracefulInterrupt:
        self.received = 0
        self._before: dict[signal.Signals, Any] = {}
        if threading.current_thread() is threading.main_thread():
            self._before = {each: signal.signal(each, self._handle) for each in self.SIGNALS}
        return self

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.received:
            raise KeyboardInterrupt
        self.received = number

    def __exit__(self, *_: object) -> None:
        for each, handler in self._before.items():
            signal.signal(each, handler)


def peak_memory() -> float:
    """The most memory this process has held, in MB.

    VmHWM is taken where there is one: Linux hands ru_maxrss down from parent to child.
    """
    with contextlib.suppress(OSError):
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return int(status.partition("VmHWM:")[2].split()[0]) / 1024
    import resource

    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size / (1024 * 1024 if sys.platform == "darwin" else 1024)
