"""Training one run from start to finish, by one loop for every kind of phase."""

from __future__ import annotations

import contextlib
import copy
import ctypes
import json
import signal
import sys
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import reduce
from math import isfinite
from pathlib import Path
from statistics import fmean, median
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from wherefrom.corpus.batches import Batch, BatchStream, MicroBatch, StreamPosition
from wherefrom.errors import Stopped, UserError
from wherefrom.model.decoder import Decoder
from wherefrom.recall.decode import answer_all, score
from wherefrom.storage import write_json, write_whole
from wherefrom.training.distributed import Processes, choose_device, join_processes
from wherefrom.training.optim import averaged, averages_of, build_optimizers, rate_scale
from wherefrom.training.recipes import Phase
from wherefrom.training.run_folder import (
    Run,
    Segment,
    TrainingState,
    is_finished,
    load_checkpoint,
    load_run,
    lock_run,
    open_folder,
    save_checkpoint,
    save_weights,
    start_run,
    update_run,
    whole_weights,
)
from wherefrom.training.settings import Runtime, TrainingJob
from wherefrom.training.sources import TrainingData, stream_for

LOG_EVERY = 10  # steps
TIMED_STEPS = 5  # taken and undone before the first, to say how long it will take
LEAST_STEPS = 300  # nothing is learned before some hundred, however small the text
# a small text may be read so much oftener than most_epochs, while that takes fewer steps than this
SMALL_TEXT, SMALL_STEPS = 4, 4_000
GROWTH = 0.01  # of recall, over the last fifth of the steps: less is no growth
STAIR = 0.01  # of a budget of minutes: the learning rate follows it in stairs of this height


@dataclass(frozen=True)
class StepMetrics:
    """One line of metrics.jsonl."""

    phase: str
    step: int
    progress: float  # of the phase, as far as can be told
    loss: float
    lr: float
    tokens: int  # learned from so far, in all phases
    seconds: float  # of training so far, in all phases
    tokens_per_second: float
    recall: float | None = None  # on held-out questions, when they were last asked


Observer = Callable[[StepMetrics, Decoder], None]
Say = Callable[[str], None]


def run_training(
    job: TrainingJob,
    settings: Runtime,
    *,
    observe: Observer | None = None,
    say: Say = lambda _: None,
) -> Run:
    """Train a model as the job says and leave a finished run in `job.out`, if none is there."""
    processes = join_processes(sharded=settings.shard)
    device, out = choose_device(settings.device), job.out
    with contextlib.ExitStack() as stack:

        def claim() -> None:
            open_folder(out, job.record, resume=settings.resume)
            if not is_finished(out):
                stack.enter_context(lock_run(out))

        processes.on_rank0(claim)
        if is_finished(out):
            return load_run(out, device=device)
        data = TrainingData.encode(
            job.documents, job.questions, job.tokens, job.config.block, job.left_out
        )
        generator = torch.Generator().manual_seed(job.record["seed"])
        model = Decoder(job.config).initialise(generator, zero_init=job.record["zero_init"])
        if job.parent is not None:
            model.load_state_dict(job.parent.model.state_dict())
        model.to(device)

        def start() -> None:
            start_run(out, job.record, job.details, say)
            shape = {"tokens": job.tokens.kind, **job.config.model_dump()}
            write_json(out / "config.json", shape)
            write_whole(out / "tokenizer.json", job.tokens.to_json())

        processes.on_rank0(start)
        try:
            state = train(model, data, job, settings, processes=processes, observe=observe, say=say)
        except (Stopped, UserError) as end:
            if processes.is_rank0:
                update_run(out, status="stopped" if isinstance(end, Stopped) else "failed")
            raise
        weights = whole_weights(model)

        def finish() -> None:
            if state.segments:
                lines = [json.dumps(asdict(segment)) + "\n" for segment in state.segments]
                write_whole(out / "pace.jsonl", "".join(lines))
            update_run(
                out,
                status="finished",
                sha256=save_weights(out / "model.safetensors", weights),
                steps=state.total_steps,
                trained_tokens=state.tokens,
                seconds=round(state.total_seconds, 2),
                peak_mb=round(peak_memory(), 1),
            )

        processes.on_rank0(finish)
        return load_run(out, device=device)


def train(
    model: Decoder,
    data: TrainingData,
    job: TrainingJob,
    settings: Runtime,
    *,
    processes: Processes | None = None,
    observe: Observer | None = None,
    say: Say = lambda _: None,
) -> TrainingState:
    """Train `model` in place through all phases of the job; returns the state at the end."""
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
    with interrupts() as received, MetricsWriter(job.out, logged, processes.is_rank0) as metrics:
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
                    steps = max(steps, min(SMALL_STEPS, SMALL_TEXT * steps))
                    ask_every = max(LOG_EVERY, round(2 * epoch))
                    usual = min(steps, max(least, usual))
                    say(describe_budget(model, phase, job, stream, usual, steps))
            budget = 0.0 if phase.minutes is None or job.segments else 60 * phase.minutes
            saved_at = time.monotonic()
            started = time.perf_counter()
            for batch, place in stream.from_position(state.place):
                progress = progress_at(state.step, index, steps, state.segments)
                if progress >= 1 or stopped_growing(state.recalls, least):
                    break
                scale = rate_scale(phase, state.step, progress)
                for optimizer in optimizers:
                    for group in optimizer.param_groups:
                        group["lr"] = group["base_lr"] * scale
                with torch.random.fork_rng(enabled=model.config.dropout > 0):
                    if model.config.dropout:  # a function of the seed and the step alone
                        seed = (job.record["seed"], index, state.step, processes.rank)
                        torch.manual_seed(reduce(_mix, seed, 0))
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
                )
                used = min(1.0, state.seconds / budget) if budget else 0.0
                if used == 1 or used - progress >= STAIR:
                    stair = Segment(index, state.step, used, 0.0)
                    state = replace(state, segments=(*state.segments, stair))
                progress = progress_at(state.step, index, steps, state.segments)
                if ask_every and (state.step % ask_every == 0 or progress >= 1):
                    with averaged(optimizers):
                        said = answer_all(model, job.tokens, [probe.text for probe in job.probes])
                    right = [probe.answer or "" for probe in job.probes]
                    recall = processes.broadcast(score([x.text for x in said], right).share)
                    trim_memory()
                    state = replace(state, recalls=(*state.recalls, (state.step, recall)))
                    progress = 1.0 if stopped_growing(state.recalls, least) else progress
                if state.total_steps % LOG_EVERY == 0 or progress >= 1:
                    if ask_every and progress < 1:  # a share of where it will end by itself
                        progress = min(0.99, state.step / expected_steps(state.recalls, usual))
                    line = metrics.log(state, phase.name, progress, phase.lr * scale)
                    state = replace(state, pending_losses=())
                    if observe is not None:
                        with averaged(optimizers):
                            observe(line, model)
                due = time.monotonic() - saved_at > settings.checkpoint_every
                request = processes.all_reduce_max(received[0] if received else int(due))
                if request:
                    save_checkpoint(checkpoints, state, model, optimizers, processes.is_rank0)
                    saved_at = time.monotonic()
                if request > 1:
                    raise Stopped(int(request))
                started = time.perf_counter()  # records and observers are not training
            if phase.steps is None and not job.segments:
                # where it ended, so that a twin takes as many steps whatever its own clock says
                before = progress_at(state.step - 1, index, steps, state.segments)
                last = Segment(index, state.step - 1, before, 1.0)
                state = replace(state, segments=(*state.segments, last))
            for average in averages_of(optimizers):
                average.swap()  # the mean is what is kept
            state = replace(
                state, phase=index + 1, step=0, place=StreamPosition(), seconds=0.0, recalls=()
            )
            checkpoint = None
            save_checkpoint(checkpoints, state, model, writes=processes.is_rank0)
    return state


def progress_at(step: int, phase: int, steps: int | None, segments: Sequence[Segment]) -> float:
    """How much of a phase, 0 to 1, is done before the step of that number (from 0) is taken."""
    if steps is not None:
        return min(1.0, step / steps)
    for each in reversed(segments):
        if each.phase == phase and each.step <= step:
            return min(1.0, each.progress + (step - each.step) * each.per_step)
    return 0.0


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
    ids = part.ids[:, :-1].to(device)
    # the logits have no name, so that their memory is free before the backward pass
    losses = F.cross_entropy(runner(ids, select=select.to(device)), targets, reduction="none")
    return (losses * weights[select].to(device)).sum()


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


def expected_steps(recalls: Sequence[tuple[int, float]], usual: int) -> float:
    """Where a phase will end that ends when recall stops growing, had it just stopped."""
    best, grew = 0.0, 0
    for step, share in recalls:
        if share >= best + GROWTH:
            best, grew = share, step
    return max(usual, grew / 0.8)


def describe_budget(
    model: Decoder, phase: Phase, job: TrainingJob, stream: BatchStream, usual: int, most: int
) -> str:
    """How long a phase of no fixed length will take, by a few steps of a copy of the model."""
    rehearsal, times = copy.deepcopy(model), []
    optimizers = build_optimizers(rehearsal, phase)
    with torch.random.fork_rng():
        for batch in stream.pool(0)[:TIMED_STEPS]:
            began = time.perf_counter()
            accumulate_gradients(rehearsal, batch, Processes())
            for optimizer in optimizers:
                optimizer.step()
            rehearsal.zero_grad(set_to_none=True)
            times.append(time.perf_counter() - began)

    def duration(steps: int) -> str:
        seconds = steps * median(times)
        if seconds < 90:
            return f"{seconds:.0f} seconds"
        return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"

    shape = model.config
    return (
        f"width {shape.width}, {shape.layers} layers, a vocabulary of {shape.vocabulary:,}: about "
        f"{duration(min(usual, most))} for {len(job.documents):,} documents, at most "
        f"{duration(most)}, until recall on {len(job.probes):,} questions stops growing"
    )


def _mix(seed: int, number: int) -> int:
    return (seed * 1_000_003 + number + 1) % (1 << 63)


class MetricsWriter(contextlib.ExitStack):
    """`metrics.jsonl` (none of its lines twice after a resume) and, if installed, TensorBoard."""

    def __init__(self, folder: Path, after: int, writes: bool) -> None:
        super().__init__()
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
        self._file = self.enter_context(path.open("a", encoding="utf-8"))
        with contextlib.suppress(ModuleNotFoundError):
            from torch.utils.tensorboard import SummaryWriter

            board = SummaryWriter(str(folder / "events"), purge_step=after + 1)
            self._board = self.enter_context(contextlib.closing(board))

    def log(self, state: TrainingState, phase: str, progress: float, lr: float) -> StepMetrics:
        """Write down how it goes, with the mean loss since the last line."""
        passed = max(1e-9, state.total_seconds - self._seconds)
        line = StepMetrics(
            phase=phase,
            step=state.total_steps,
            progress=progress,
            loss=fmean(state.pending_losses),
            lr=lr,
            tokens=state.tokens,
            seconds=state.total_seconds,
            tokens_per_second=(state.tokens - self._tokens) / passed,
            recall=state.recalls[-1][1] if state.recalls else None,
        )
        self._tokens, self._seconds = state.tokens, state.total_seconds
        if self._file is not None:
            self._file.write(json.dumps(asdict(line)) + "\n")
            self._file.flush()
        if self._board is not None:
            for name in ("loss", "lr", "tokens_per_second", "recall"):
                if getattr(line, name) is not None:
                    self._board.add_scalar(name, getattr(line, name), line.step)
        return line


@contextlib.contextmanager
def interrupts() -> Iterator[list[int]]:
    """Ctrl-C and SIGTERM are put on the list, for the loop to stop; a second one does not wait."""
    received: list[int] = []

    def handle(number: int, _: object) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)

    signals = (signal.SIGINT, signal.SIGTERM)
    in_main = threading.current_thread() is threading.main_thread()
    before = {each: signal.signal(each, handle) for each in signals} if in_main else {}
    try:
        yield received
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def trim_memory() -> None:
    """Give back to the system what glibc keeps of freed memory: a fifth of a study's peak."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def peak_memory() -> float:
    """The most memory this process has held, in MB."""
    with contextlib.suppress(OSError):  # Linux hands ru_maxrss down from parent to child
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return int(status.partition("VmHWM:")[2].split()[0]) / 1024
    import resource

    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size / (1024 * 1024 if sys.platform == "darwin" else 1024)
