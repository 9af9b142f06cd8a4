"""Training one run from start to finish, by one loop for every kind of phase."""

from __future__ import annotations

import contextlib
import ctypes
import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from statistics import fmean, median
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import Optimizer

from wherefrom.corpus.batches import Batch, BatchStream, MicroBatch, StreamPosition
from wherefrom.corpus.database import RUN_DATABASE, Database
from wherefrom.corpus.facts import read_facts
from wherefrom.errors import Stopped, UserError
from wherefrom.model.config import ModelConfig
from wherefrom.model.decoder import Decoder
from wherefrom.recall.decode import answer_all, score
from wherefrom.storage import read_json_lines, write_json, write_whole
from wherefrom.training.distributed import MAX, Processes, choose_device, join_processes
from wherefrom.training.forecast import count_passes, describe_budget, format_seconds
from wherefrom.training.optim import averaged, build_optimizers, rate_scale, swap_averages
from wherefrom.training.recipes import Phase
from wherefrom.training.run_folder import (
    SNAPSHOT_STEPS,
    Run,
    Segment,
    TrainingState,
    choose_snapshot,
    is_finished,
    load_checkpoint,
    load_run,
    lock_run,
    open_folder,
    save_checkpoint,
    save_snapshot,
    save_weights,
    start_run,
    update_run,
    whole_weights,
)
from wherefrom.training.settings import Runtime, TrainingJob
from wherefrom.training.sources import TrainingData, stream_for, text_shown

LOG_EVERY = 10  # steps
TIMED_STEPS = 5  # before it is said how long a phase will take
LEAST_STEPS = 300  # little is learned in the first hundreds of steps, however small the text
# a small text may be read up to 4 times as often as most_epochs, in at most 4,000 steps
SMALL_TEXT, SMALL_STEPS = 4, 4_000
GROWTH = 0.01  # recall that grows by less than this has stopped growing
NEAR_READABLE = 0.9  # of what can be read from the text: a plateau below this is not the end
STAIR = 0.01  # the progress of a phase of minutes is a staircase with steps of this height


@dataclass(frozen=True)
class StepMetrics:
    """One line of metrics.jsonl."""

    phase: str
    step: int
    progress: float  # of the phase, 0 to 1
    loss: float
    lr: float
    tokens: int  # learned from so far, in all phases
    seconds: float  # of training so far, in all phases
    tokens_per_second: float
    recall: float | None = None  # on held-out questions, as last measured


Observer = Callable[[StepMetrics, Decoder], None]
Say = Callable[[str], None]


def run_training(
    job: TrainingJob,
    settings: Runtime,
    *,
    observe: Observer | None = None,
    say: Say = lambda _: None,
) -> Run:
    """Train a model as the job says and return the finished run in `job.out`.

    A run that is finished already is only loaded. Under torchrun, rank 0 writes all files.
    """
    processes = join_processes()
    device, out = choose_device(settings.device), job.out
    with contextlib.ExitStack() as stack:

        def claim() -> None:
            open_folder(out, job.record, resume=settings.resume)
            if not is_finished(out):
                stack.enter_context(lock_run(out))

        processes.on_rank0(claim)
        if is_finished(out):
            return load_run(out, device=device)
        config = job.config
        database = share_database(job, processes)
        data = TrainingData.encode(database, job.questions, job.tokens, config.block, job.left_out)
        generator = torch.Generator().manual_seed(job.record["seed"])
        model = Decoder(config).initialise(generator, zero_init=job.record["zero_init"])
        if job.parent is not None:
            model.load_state_dict(job.parent.model.state_dict())
        model.to(device)

        details = {**job.details, "text_shown": text_shown(data, job.phases)}

        def start() -> None:
            start_run(out, job.record, details, say)
            write_json(out / "config.json", {"tokens": job.tokens.kind, **config.model_dump()})
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
            choose_snapshot(out, state.total_steps)
            if job.recipe_phases:
                update_run(out, passes=count_passes(job, data, state.phase_steps))
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


def share_database(job: TrainingJob, processes: Processes) -> Database | None:
    """The documents of a job with their facts; rank 0 reads them and writes run.sqlite once."""
    if job.database is None or job.database.file is not None:
        return job.database
    database, file = job.database, job.out / RUN_DATABASE
    processes.on_rank0(lambda: read_facts(database, job.questions).save(file))
    return database if processes.is_rank0 else Database.open(file)


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
    checkpoints, seed = job.out / "checkpoints", job.record["seed"]
    dropout = model.config.dropout > 0
    state = TrainingState(segments=list(job.segments))
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
            if checkpoint is not None:
                checkpoint.restore_optimizers(optimizers)
                checkpoint = None
            stream = stream_for(phase, data, [seed, index])
            length = plan_length(phase, stream, bool(job.probes))
            enough = NEAR_READABLE * job.readable
            seconds = 60 * phase.minutes if phase.minutes and not job.segments else None
            times: list[float] = []
            saved_at = time.monotonic()
            started = time.perf_counter()
            for batch, place in stream.from_position(state.place):
                progress = progress_at(state.step, index, length.steps, state.segments)
                if progress >= 1 or stopped_growing(state.recalls, length.least, enough):
                    break
                scale = rate_scale(phase, state.step, progress)
                with torch.random.fork_rng(enabled=dropout):
                    if dropout:
                        torch.manual_seed(mix_seed(seed, index, state.step, processes.rank))
                    loss = take_step(runner, optimizers, batch, phase, scale, processes)
                if not isfinite(loss):
                    raise UserError(
                        f"the loss is no longer a number at step {state.step + 1} of the phase "
                        f'"{phase.name}"; lower the learning rates of the recipe and start again.'
                    )
                times.append(processes.broadcast(time.perf_counter() - started))
                state.add_step(times[-1])
                state.tokens += batch.tokens
                state.pending_losses.append(loss)
                state.place = place
                if seconds:  # progress follows the clock, and is recorded for twins
                    used = min(1.0, state.seconds / seconds)
                    if used == 1 or used - progress >= STAIR:
                        state.segments.append(Segment(index, state.step, used, 0.0))
                if len(times) == TIMED_STEPS:
                    if length.ask_every:
                        say(describe_length(length, median(times), model.config, job))
                    elif job.recipe_phases:
                        say(describe_budget(job, stream, state, median(times)))
                progress = progress_at(state.step, index, length.steps, state.segments)
                if length.ask_every and (state.step % length.ask_every == 0 or progress >= 1):
                    with averaged(optimizers):
                        recall = processes.broadcast(probe_recall(model, job))
                    state.recalls.append((state.step, recall))
                    if stopped_growing(state.recalls, length.least, enough):
                        progress = 1.0
                if state.total_steps % LOG_EVERY == 0 or progress >= 1:
                    if length.ask_every and progress < 1:
                        expected = expected_steps(state.recalls, length.usual)
                        progress = min(0.99, state.step / expected)
                    line = metrics.log(state, phase.name, progress, phase.lr * scale)
                    if observe is not None:
                        with averaged(optimizers):
                            observe(line, model)
                if job.record.get("kind") == "study" and state.total_steps in SNAPSHOT_STEPS:
                    with averaged(optimizers):
                        weights = whole_weights(model)
                    if processes.is_rank0:
                        save_snapshot(job.out, state.total_steps, weights)
                due = time.monotonic() - saved_at > settings.checkpoint_every
                request = processes.all_reduce(received[0] if received else int(due), MAX)
                if request:
                    save_checkpoint(checkpoints, state, model, optimizers, processes.is_rank0)
                    saved_at = time.monotonic()
                if request > 1:
                    raise Stopped(int(request))
                started = time.perf_counter()  # records and observers are not training
            if phase.steps is None and not job.segments:
                # where the phase ended: a twin takes as many steps, however fast it runs
                before = progress_at(state.step - 1, index, length.steps, state.segments)
                state.segments.append(Segment(index, state.step - 1, before, 1.0))
            swap_averages(optimizers)  # the means are what is kept
            state.phase_steps.append(state.step)
            state.phase, state.step, state.seconds = index + 1, 0, 0.0
            state.place, state.recalls = StreamPosition(), []
            save_checkpoint(checkpoints, state, model, writes=processes.is_rank0)
    return state


@dataclass(frozen=True)
class PhaseLength:
    """How many steps a phase takes, as far as that is known before it starts."""

    steps: int | None  # at most; None if the clock decides
    least: int = 0  # steps before which recall does not end the phase
    usual: int = 0  # steps after which it ends, as a rule
    ask_every: int = 0  # steps between measurements of recall; 0 if recall does not end the phase


def plan_length(phase: Phase, stream: BatchStream, can_ask: bool) -> PhaseLength:
    """The length of a phase of steps, epochs or minutes, or until recall stops growing."""
    if phase.epochs is None:
        return PhaseLength(phase.steps)
    epoch = stream.epoch_steps()
    usual = max(1, round(phase.epochs * epoch))
    if phase.most_epochs is None or not can_ask:
        return PhaseLength(usual)
    most = max(1, round(phase.most_epochs * epoch))
    most = max(most, min(SMALL_STEPS, SMALL_TEXT * most))
    least = max(LEAST_STEPS, usual)
    return PhaseLength(
        steps=most,
        least=least,
        usual=min(most, max(least, usual)),
        ask_every=max(LOG_EVERY, round(2 * epoch)),
    )


def progress_at(step: int, phase: int, steps: int | None, segments: Sequence[Segment]) -> float:
    """How much of a phase (0 to 1) is done before its step number `step`, counted from 0."""
    if steps is not None:
        return min(1.0, step / steps)
    for segment in reversed(segments):
        if segment.phase == phase and segment.step <= step:
            return min(1.0, segment.progress + (step - segment.step) * segment.per_step)
    return 0.0


def mix_seed(*numbers: int) -> int:
    """One seed from several numbers."""
    seed = 0
    for number in numbers:
        seed = (seed * 1_000_003 + number + 1) % (1 << 63)
    return seed


def take_step(
    runner: nn.Module,
    optimizers: Sequence[Optimizer],
    batch: Batch,
    phase: Phase,
    scale: float,
    processes: Processes,
) -> float:
    """One optimizer step at `scale` times the learning rates; returns the batch's mean loss."""
    loss = accumulate_gradients(runner, batch, processes)
    if phase.clip is not None:
        nn.utils.clip_grad_norm_(runner.parameters(), phase.clip)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["base_lr"] * scale
        optimizer.step()
    runner.zero_grad(set_to_none=True)
    return loss


def accumulate_gradients(runner: nn.Module, batch: Batch, processes: Processes) -> float:
    """Add the gradient of the batch's mean loss to every parameter; returns that loss."""
    parts = processes.rows_of(batch).parts
    runner.train()
    device = next(runner.parameters()).device
    total = 0.0
    for i, part in enumerate(parts):
        with processes.accumulating(runner, last=i == len(parts) - 1):
            loss = part_loss(runner, part, device) / batch.weight
            # torch averages gradients over the processes, and their sum is wanted
            (loss * processes.count).backward()
        total += loss.item()
    return processes.all_reduce(total)


def part_loss(runner: nn.Module, part: MicroBatch, device: torch.device | str) -> torch.Tensor:
    """The weighted sum of cross-entropies; the head runs only where the weight is not zero."""
    weights = part.weights[:, 1:].flatten()
    select = weights.nonzero().flatten()
    targets = part.ids[:, 1:].flatten()[select].to(device)
    ids = part.ids[:, :-1].to(device)
    # the logits have no name, so that their memory is free before the backward pass
    losses = F.cross_entropy(runner(ids, select=select.to(device)), targets, reduction="none")
    return (losses * weights[select].to(device)).sum()


def probe_recall(model: Decoder, job: TrainingJob) -> float:
    """The share of the probes (held-out questions) that the model answers rightly now."""
    answers = answer_all(model, job.tokens, [probe.text for probe in job.probes])
    trim_memory()
    labels = [probe.answer or "" for probe in job.probes]
    return score([answer.text for answer in answers], labels).share


def stopped_growing(recalls: Sequence[tuple[int, float]], least: int, enough: float = 0.0) -> bool:
    """Whether recall (step, share) grew by less than GROWTH over the last fifth of the steps.

    Both ends are means of three measurements, since recall on a few dozen questions is noisy.
    Never before `least` steps, nor below a recall of `enough`: facts are learned after a plateau,
    and where there are several relations, each after its own.
    """
    if not recalls or recalls[-1][0] < least:
        return False
    shares = [share for _, share in recalls]
    early = sum(step <= 0.8 * recalls[-1][0] for step, _ in recalls)  # before the last fifth
    if early < 3:
        return False
    now, before = fmean(shares[-3:]), fmean(shares[early - 3 : early])
    return now >= enough and min(now, 1 - GROWTH) - before < GROWTH


def expected_steps(recalls: Sequence[tuple[int, float]], usual: int) -> float:
    """The step at which a phase will end if recall does not grow any more."""
    best, last_growth = 0.0, 0
    for step, share in recalls:
        if share >= best + GROWTH:
            best, last_growth = share, step
    return max(usual, last_growth / 0.8)


def describe_length(
    length: PhaseLength, step_seconds: float, config: ModelConfig, job: TrainingJob
) -> str:
    """How long a phase takes that ends when recall stops growing, from the time of one step."""
    usual = format_seconds(length.usual * step_seconds)
    most = format_seconds((length.steps or 0) * step_seconds)
    documents = len(job.database.documents) if job.database else 0
    return (
        f"width {config.width}, {config.layers} layers, a vocabulary of {config.vocabulary:,}: "
        f"about {usual} for {documents:,} documents, at most {most}, until recall on "
        f"{len(job.probes):,} questions stops growing"
    )


class MetricsWriter(contextlib.ExitStack):
    """`metrics.jsonl` (none of its lines twice after a resume) and, if installed, TensorBoard."""

    def __init__(self, folder: Path, after: int, writes: bool) -> None:
        super().__init__()
        self._file = self._board = None  # type: Any
        if not writes:
            return
        path = folder / "metrics.jsonl"
        kept = [line for line in read_json_lines(path) if line["step"] <= after]
        write_whole(path, "".join(json.dumps(line) + "\n" for line in kept))
        self._file = self.enter_context(path.open("a", encoding="utf-8"))
        with contextlib.suppress(ModuleNotFoundError):
            from torch.utils.tensorboard import SummaryWriter

            board = SummaryWriter(str(folder / "events"), purge_step=after + 1)
            self._board = self.enter_context(contextlib.closing(board))

    def log(self, state: TrainingState, phase: str, progress: float, lr: float) -> StepMetrics:
        """Write down how it goes, with the mean loss since the last line."""
        passed = max(1e-9, state.total_seconds - state.logged_seconds)
        line = StepMetrics(
            phase=phase,
            step=state.total_steps,
            progress=progress,
            loss=fmean(state.pending_losses),
            lr=lr,
            tokens=state.tokens,
            seconds=state.total_seconds,
            tokens_per_second=(state.tokens - state.logged_tokens) / passed,
            recall=state.recalls[-1][1] if state.recalls else None,
        )
        state.pending_losses = []
        state.logged_tokens, state.logged_seconds = state.tokens, state.total_seconds
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
    """Ctrl-C and SIGTERM are put on the list, for the loop to stop; a second one stops at once."""
    received: list[int] = []

    def handle(number: int, _: object) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)

    signals = (signal.SIGINT, signal.SIGTERM)
    in_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, handle) for number in signals} if in_main else {}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
