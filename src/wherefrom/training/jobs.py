"""Training one run from start to finish: a new one, one that was stopped, or a twin of another.

A twin takes the run's own vocabulary, shape, seed, phases and questions, and as many steps at the
same learning rates: a run that was given minutes or epochs left a record of how they became steps
(`pace.jsonl`), which is followed instead of the clock. Documents are left out quietly: the batches
and their order stay, and rows made of those documents count nothing. With nothing left out, the
twin's weights are the run's to the last bit (on the same number of threads).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import torch

from wherefrom.corpus.documents import Document
from wherefrom.corpus.questions import Question
from wherefrom.errors import Stopped, UserError
from wherefrom.model.decoder import Decoder
from wherefrom.storage import write_json, write_whole
from wherefrom.training.checkpoint import Segment, load_weights, save_weights, whole_weights
from wherefrom.training.distributed import choose_device, join_processes
from wherefrom.training.loop import Observer, peak_memory, train
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
)
from wherefrom.training.settings import Runtime, TrainingJob
from wherefrom.training.sources import TrainingData


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
        data = TrainingData.encode(
            job.documents, job.questions, job.tokens, job.config.block, job.left_out
        )
        generator = torch.Generator().manual_seed(job.record["seed"])
        model = Decoder(job.config).initialise(generator, zero_init=job.record["zero_init"])
        if job.parent is not None:
            load_weights(job.parent.folder / "model.safetensors", model)
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


def retrain(
    run: Run,
    documents: Sequence[Document],
    questions: Sequence[Question],
    out: Path,
    *,
    without: Collection[int] = (),
    settings: Runtime | None = None,
    observe: Observer | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Run:
    """The run once more, quietly without the documents on some lines; a finished twin is loaded.

    `documents` and `questions` are those of the run. Steps and learning rates are those that the
    run took, whatever its budget was; the start, the batches and their order are its own as well.
    Rows made of the documents that are left out, or of questions about their subjects, count
    nothing. With nothing left out the weights are the run's.
    """
    before = run.info["job"]
    left_out = sorted({*before.get("without", ()), *without})
    phases, segments = same_steps(run)
    record = {
        **before,
        "kind": "left out",
        "phases": [phase.model_dump(mode="json") for phase in phases],
        "documents": digest_of([document.text for document in documents]),
        "twin_of": run.info["sha256"],
        "without": left_out,
    }
    data = {
        what: {**source, "relative_path": os.path.relpath(source["path"], out)}
        for what, source in run.info["data"].items()
    }
    job = TrainingJob(
        out=Path(out),
        tokens=run.tokens,
        record=record,
        details={
            "kind": "left out",
            "templates": list(run.templates),
            "data": data,
            **{key: run.info[key] for key in ("left_out", "not_learned") if key in run.info},
        },
        documents=documents,
        questions=questions,
        segments=segments,
        left_out=left_out,
    )
    return run_training(job, settings or Runtime(device="cpu"), observe=observe, say=say)


def same_steps(run: Run) -> tuple[list[Phase], list[Segment]]:
    """The run's phases and how their minutes became steps; epochs become that many steps."""
    record = run.folder / "pace.jsonl"
    lines = record.read_text(encoding="utf-8").splitlines() if record.exists() else ()
    segments = [Segment(**json.loads(line)) for line in lines]
    phases = [Phase(**fields) for fields in run.info["job"]["phases"]]
    for index, phase in enumerate(phases):
        if phase.steps is None:
            steps = [segment.step + 1 for segment in segments if segment.phase == index]
            if not steps:
                raise UserError(
                    f"{record} does not say how many steps {run.folder} took; no twin can "
                    "follow it."
                )
            if phase.epochs is not None:
                changed = {"epochs": None, "most_epochs": None, "steps": steps[-1]}
                phases[index] = phase.model_copy(update=changed)
    return phases, segments
