"""Training one run from start to finish: a new one, one that was stopped, or a twin of another.

A twin takes the run's own vocabulary, shape, seed, phases and questions, and as many steps at the
same learning rates: a run that was given minutes left a record of its speed, which is followed
instead of the clock. With the same documents, the twin's weights are the run's to the last bit (on
the same number of threads).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import torch

from wherefrom.corpus.documents import Document
from wherefrom.corpus.questions import Question
from wherefrom.errors import Stopped, UserError
from wherefrom.model.decoder import Decoder
from wherefrom.storage import write_whole
from wherefrom.training.checkpoint import load_weights, save_weights, whole_weights
from wherefrom.training.distributed import choose_device, join_processes
from wherefrom.training.loop import BudgetClock, Observer, peak_memory, train
from wherefrom.training.recipes import Phase
from wherefrom.training.run_folder import (
    Run,
    digest_of,
    is_finished,
    load_run,
    lock_run,
    open_folder,
    start_run,
    update_run,
    write_shape,
)
from wherefrom.training.settings import Runtime, Segment, TrainingJob
from wherefrom.training.sources import TrainingData, stream_for


def run_training(
    job: TrainingJob,
    settings: Runtime,
    *,
    observe: Observer | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Run:
    """Train a model as the job says and leave a finished run in `job.out`.

    A run that is finished already is loaded when resuming, so that a command of several runs can
    be repeated until all of it is done. `say` gets warnings, one sentence each.
    """
    processes = join_processes(sharded=settings.shard)
    device = choose_device(settings.device)
    out = job.out
    with ExitStack() as stack:

        def claim() -> None:
            open_folder(out, job.record, resume=settings.resume)
            if not is_finished(out):
                stack.enter_context(lock_run(out))

        processes.on_rank0(claim)
        if is_finished(out):
            return load_run(out, device=device)
        data = TrainingData.encode(job.documents, job.questions, job.tokens, job.config.block)
        model = Decoder(job.config).initialise(
            torch.Generator().manual_seed(job.seed), zero_init=job.zero_init
        )
        if job.parent is not None:
            load_weights(job.parent.folder / "model.safetensors", model)
        model.to(device)

        def start() -> None:
            start_run(out, job.record, job.details, say)
            write_shape(out, job.config, job.tokens)
            if job.segments and not (out / "pace.jsonl").exists():
                lines = (json.dumps(asdict(segment)) + "\n" for segment in job.segments)
                write_whole(out / "pace.jsonl", "".join(lines))

        processes.on_rank0(start)
        try:
            state = train(model, data, job, settings, processes=processes, observe=observe)
        except (Stopped, UserError) as end:
            if processes.is_rank0:
                update_run(out, status="stopped" if isinstance(end, Stopped) else "failed")
            raise
        weights = whole_weights(model)

        def finish() -> None:
            digest = save_weights(out / "model.safetensors", weights)
            update_run(
                out,
                status="finished",
                sha256=digest,
                steps=state.total_steps,
                trained_tokens=state.tokens,
                seconds=round(state.total_seconds, 2),
                peak_mb=round(peak_memory(), 1),
            )

        processes.on_rank0(finish)
        return load_run(out, device=device)


def retrain(
    run: Run,
    documents: Sequence[Document],
    questions: Sequence[Question],
    out: Path,
    *,
    instead_of: Sequence[Document],
    settings: Runtime | None = None,
    observe: Observer | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Run:
    """The run once more with `documents` where it read `instead_of`; a finished twin is loaded.

    Steps and learning rates are those that the run took, whatever its budget was.
    """
    phases = _same_steps(run, instead_of, questions)
    before = run.info["job"]
    record = {
        **before,
        "kind": "left out",
        "phases": [phase.model_dump(mode="json") for phase in phases],
        "documents": digest_of([document.text for document in documents]),
        "twin_of": run.info["sha256"],
    }
    data = {
        what: {**source, "relative_path": os.path.relpath(source["path"], out)}
        for what, source in run.info["data"].items()
    }
    job = TrainingJob(
        out=Path(out),
        kind="left out",
        phases=phases,
        config=run.model.config,
        tokens=run.tokens,
        seed=int(before["seed"]),
        zero_init=bool(before["zero_init"]),
        documents=documents,
        questions=questions,
        segments=_recorded_segments(run),
        record=record,
        details={"kind": "left out", "templates": list(run.templates), "data": data},
    )
    return run_training(job, settings or Runtime(device="cpu"), observe=observe, say=say)


def _same_steps(
    run: Run, documents: Sequence[Document], questions: Sequence[Question]
) -> list[Phase]:
    """The run's phases; epochs become steps, since an epoch is shorter with a document less."""
    phases = [Phase(**fields) for fields in run.info["job"]["phases"]]
    if all(phase.epochs is None for phase in phases):
        return phases
    data = TrainingData.encode(documents, questions, run.tokens, run.model.config.block)
    for index, phase in enumerate(phases):
        if phase.epochs is not None:
            epoch = stream_for(phase, data, [int(run.info["job"]["seed"]), index]).epoch_steps()
            steps = max(1, round(phase.epochs * epoch))
            phases[index] = phase.model_copy(update={"epochs": None, "steps": steps})
    return phases


def _recorded_segments(run: Run) -> list[Segment]:
    """How the run's minutes became steps, closed behind its last step so that no clock is read."""
    record = run.folder / "pace.jsonl"
    segments: list[Segment] = []
    for index, fields in enumerate(run.info["job"]["phases"]):
        if (minutes := fields.get("minutes")) is None:
            continue
        clock = BudgetClock(seconds=60 * minutes, record=record, phase=index, writes=False)
        steps = next((n for n in range(run.info["steps"] + 1) if clock.progress(n) >= 1), None)
        if not steps:
            raise UserError(
                f"{record} does not say how many steps {run.folder} took; no twin can follow it."
            )
        last = Segment(index, steps - 1, clock.progress(steps - 1), 1.0)
        segments += [*clock.segments[1:], last]
    return segments
