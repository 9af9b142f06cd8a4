"""Training one run from start to finish, by one loop for every kind of phase."""

from __future__ import annotations

import contextlib
import json
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from math import isfinite
from statistics import median

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import Optimizer

from wherefrom.corpus.batches import Batch, MicroBatch
from wherefrom.corpus.database import RUN_DATABASE, Database
from wherefrom.corpus.facts import read_facts
from wherefrom.corpus.split import write_learned
from wherefrom.errors import Stopped, UserError
from wherefrom.model.decoder import Decoder
from wherefrom.recall.decode import answer_all
from wherefrom.recall.table import score
from wherefrom.storage import format_json, write_whole
from wherefrom.training.checkpoints import (
    SNAPSHOT_STEPS,
    Checkpoint,
    TrainingState,
    choose_snapshot,
    load_checkpoint,
    save_checkpoint,
    save_snapshot,
    save_weights,
    whole_weights,
)
from wherefrom.training.distributed import MAX, Processes, choose_device, join_processes
from wherefrom.training.forecast import count_all_passes, describe_length
from wherefrom.training.memory import keep_freed_memory, peak_memory, trim_memory
from wherefrom.training.metrics import MetricsWriter, StepMetrics
from wherefrom.training.optim import averaged, build_optimizers, rate_scale, swap_averages
from wherefrom.training.pace import LOG_STEPS, Pace
from wherefrom.training.recipes import Phase
from wherefrom.training.record import keep_files, update_run
from wherefrom.training.run_folder import (
    Run,
    is_finished,
    load_run,
    lock_run,
    open_folder,
    start_run,
)
from wherefrom.training.settings import Runtime, TrainingJob
from wherefrom.training.sources import TrainingData, stream_for, text_shown

TIMED_STEPS = 5  # before it is said how long a phase will take

Observer = Callable[[StepMetrics, Decoder], None]
Say = Callable[[str], None]
Count = Callable[[str, int], Callable[[int], None]]  # shows how much of a number is done


def no_count(what: str, total: int) -> Callable[[int], None]:
    return lambda more: None


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
    keep_freed_memory()
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
        database, block = share_database(job, processes), job.config.block
        data = TrainingData.encode(database, job.questions, job.tokens, block, job.left_out)
        model = make_model(job).to(device)
        processes.on_rank0(lambda: write_start(job, data, say))
        try:
            state = train(model, data, job, settings, processes=processes, observe=observe, say=say)
        except (Stopped, UserError) as end:
            if processes.is_rank0:
                update_run(out, status="stopped" if isinstance(end, Stopped) else "failed")
            raise
        weights = whole_weights(model)
        processes.on_rank0(lambda: write_end(job, data, state, weights))
        return load_run(out, device=device)


def make_model(job: TrainingJob) -> Decoder:
    """The model before training: new, or that of the parent run."""
    generator = torch.Generator().manual_seed(job.record.seed)
    model = Decoder(job.config).initialise(generator, zero_init=job.record.zero_init)
    if job.parent is not None:
        model.load_state_dict(job.parent.model.state_dict())
    return model


def write_start(job: TrainingJob, data: TrainingData, say: Say) -> None:
    """Write the files that a run has before it is trained."""
    details = {"kind": job.record.kind, "text_shown": text_shown(data, job.phases)}
    start_run(job.out, job.record, {**details, **job.details}, say)
    shape = {"tokens": job.tokens.kind, **job.config.model_dump()}
    files = {"config.json": format_json(shape), "tokenizer.json": job.tokens.to_json()}
    keep_files(job.out, files)


def write_end(
    job: TrainingJob, data: TrainingData, state: TrainingState, weights: dict[str, torch.Tensor]
) -> None:
    """Write the files of a trained model, and in run.json that it is finished."""
    out = job.out
    wrote = ("model.safetensors", "metrics.jsonl", *choose_snapshot(out, state.total_steps))
    if state.segments:
        lines = [json.dumps(asdict(segment)) + "\n" for segment in state.segments]
        write_whole(out / "pace.jsonl", "".join(lines))
        wrote += ("pace.jsonl",)
    if (out / RUN_DATABASE).is_file():
        wrote += (RUN_DATABASE,)
    digest = save_weights(out / "model.safetensors", weights)
    update_run(
        out,
        wrote=wrote,
        passes=count_all_passes(job, data, state.phase_steps),
        status="finished",
        sha256=digest,
        steps=state.total_steps,
        trained_tokens=state.tokens,
        seconds=round(state.total_seconds, 2),
        peak_mb=round(peak_memory(), 1),
    )


def share_database(job: TrainingJob, processes: Processes) -> Database | None:
    """The documents of a job with their facts; rank 0 reads them and writes run.sqlite once."""
    if job.database is None or job.database.file is not None:
        return job.database
    database, file = job.database, job.out / RUN_DATABASE

    def prepare() -> None:
        read_facts(database, job.questions)
        database.save(file)
        write_learned(database, "train", job.questions)

    processes.on_rank0(prepare)
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
    seed = job.record.seed
    files = TrainingFiles(job, settings, processes)
    state, checkpoint = files.restore(model)
    runner = processes.wrap(model)
    logged = state.total_steps - len(state.pending_losses)
    with interrupts() as received, MetricsWriter(job.out, logged, processes.is_rank0) as metrics:
        for index in range(state.phase, len(job.phases)):
            phase = job.phases[index]
            optimizers = build_optimizers(model, phase)
            if checkpoint is not None:
                checkpoint.restore_optimizers(optimizers)
                checkpoint = None
            stream = stream_for(phase, data, [seed, index])
            pace, times = Pace(job, stream, state), []
            started = time.perf_counter()
            for batch, position in stream.from_position(state.place):
                if pace.is_over:
                    break
                before = pace.progress
                scale = rate_scale(phase, state.step, before)
                with seeded_dropout(model, seed, index, state.step, processes.rank):
                    loss = take_step(runner, optimizers, batch, phase, scale, processes)
                check_loss(loss, phase, state)
                times.append(processes.broadcast(time.perf_counter() - started))
                state.add_step(times[-1], batch.tokens, loss, position)
                pace.follow_clock(before)
                if len(times) == TIMED_STEPS and (length := describe_length(pace, median(times))):
                    say(length)
                if pace.asks_now:
                    with averaged(optimizers):
                        recall = processes.broadcast(measure_recall(model, job))
                    state.recalls.append((state.step, recall))
                if state.total_steps % LOG_STEPS == 0 or pace.is_over:
                    rate = phase.lr * scale
                    line = metrics.log(state, phase.name, pace.expected_progress, rate)
                    if observe is not None:
                        with averaged(optimizers):
                            observe(line, model)
                files.save_snapshot_if_due(state, model, optimizers)
                files.save_checkpoint_if_due(state, model, optimizers, received)
                started = time.perf_counter()  # records and observers are not training
            pace.record_end()
            swap_averages(optimizers)  # the means are what is kept
            state.end_phase()
            files.save_checkpoint(state, model)
    return state


class TrainingFiles:
    """The checkpoints and snapshots of a training; all processes call it, and rank 0 writes."""

    def __init__(self, job: TrainingJob, settings: Runtime, processes: Processes) -> None:
        self.job, self.settings, self.processes = job, settings, processes
        self.checkpoints = job.out / "checkpoints"
        self.saved_at = time.monotonic()

    def restore(self, model: Decoder) -> tuple[TrainingState, Checkpoint | None]:
        """The state to start from; with --resume that of the newest checkpoint, and its weights."""
        checkpoint = load_checkpoint(self.checkpoints) if self.settings.resume else None
        if checkpoint is None:
            return TrainingState(segments=list(self.job.segments)), None
        checkpoint.restore_model(model)
        return checkpoint.state, checkpoint

    def save_checkpoint(
        self, state: TrainingState, model: Decoder, optimizers: Sequence[Optimizer] = ()
    ) -> None:
        save_checkpoint(self.checkpoints, state, model, optimizers, self.processes.is_rank0)
        self.saved_at = time.monotonic()

    def save_checkpoint_if_due(
        self,
        state: TrainingState,
        model: Decoder,
        optimizers: Sequence[Optimizer],
        received: Sequence[int],
    ) -> None:
        """Save a checkpoint every few seconds, and on a signal before all processes stop."""
        due = time.monotonic() - self.saved_at > self.settings.checkpoint_every
        request = self.processes.all_reduce(received[0] if received else int(due), MAX)
        if request:
            self.save_checkpoint(state, model, optimizers)
        if request > 1:
            raise Stopped(int(request))

    def save_snapshot_if_due(
        self, state: TrainingState, model: Decoder, optimizers: Sequence[Optimizer]
    ) -> None:
        if self.job.record.kind != "study" or state.total_steps not in SNAPSHOT_STEPS:
            return
        with averaged(optimizers):
            weights = whole_weights(model)
        if self.processes.is_rank0:
            save_snapshot(self.job.out, state.total_steps, weights)


@contextlib.contextmanager
def seeded_dropout(model: Decoder, *numbers: int) -> Iterator[None]:
    """Seed dropout by these numbers, and leave torch's generator as it was."""
    has_dropout = model.config.dropout > 0
    with torch.random.fork_rng(enabled=has_dropout):
        if has_dropout:
            torch.manual_seed(mix_seed(*numbers))
        yield


def check_loss(loss: float, phase: Phase, state: TrainingState) -> None:
    """Refuse to go on with a loss that is no number."""
    if not isfinite(loss):
        raise UserError(
            f"the loss is no longer a number at step {state.step + 1} of the phase "
            f'"{phase.name}"; lower the learning rates of the recipe and start again.'
        )


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


def measure_recall(model: Decoder, job: TrainingJob) -> float:
    """The share of the stopping questions that the model answers rightly now."""
    questions = job.stopping_questions
    answers = answer_all(model, job.tokens, [question.text for question in questions])
    trim_memory()
    right = [question.answer or "" for question in questions]
    return score([answer.text for answer in answers], right).share


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
