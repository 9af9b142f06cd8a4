"""A run trained once more with other documents and nothing else changed: how a twin is made.

The twin takes the run's own vocabulary, shape, seed, phases and questions, and as many steps at the
same learning rates: a run that was given minutes left a record of its pace, which is followed
instead of the clock. With the same documents, the twin's weights are the run's to the last bit (on
the same number of threads).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from wherefrom.corpus.documents import Document
from wherefrom.corpus.questions import Question
from wherefrom.errors import UserError
from wherefrom.model.decoder import Decoder
from wherefrom.storage import write_whole
from wherefrom.training.jobs import digest_of
from wherefrom.training.keeping import is_finished, train_and_keep
from wherefrom.training.loop import CHECKPOINT_EVERY, Observer
from wherefrom.training.pace import MinutePace, Stretch
from wherefrom.training.processes import choose_device, join_processes
from wherefrom.training.recipes import Phase
from wherefrom.training.run import Run, load_run, open_folder, start_run, write_shape
from wherefrom.training.sources import TrainingData, stream_for


def train_again(
    run: Run,
    documents: Sequence[Document],
    questions: Sequence[Question],
    out: Path,
    *,
    instead_of: Sequence[Document],
    device: str = "cpu",
    resume: bool = False,
    observe: Observer | None = None,
    checkpoint_every: float = CHECKPOINT_EVERY,
) -> Run:
    """The run once more with `documents` where it read `instead_of`; a finished twin is loaded.

    Steps and learning rates are those that the run took, whatever its budget was.
    """
    processes = join_processes()
    job = run.info["job"]
    config, tokens, seed = run.model.config, run.tokens, int(job["seed"])
    where = choose_device(device)
    pace = _recorded_pace(run)
    phases = _same_steps(run, instead_of, questions)
    twin_job = {
        **job,
        "kind": "left out",
        "phases": [phase.model_dump(mode="json") for phase in phases],
        "documents": digest_of([document.text for document in documents]),
        "twin_of": run.info["sha256"],
    }
    processes.lead(lambda: open_folder(out, twin_job, resume=resume))
    if is_finished(out):
        return load_run(out, device=where)
    data = TrainingData.encode(documents, questions, tokens, config.block)
    model = Decoder(config).initialise(
        torch.Generator().manual_seed(seed), silent=bool(job["silent_start"])
    )
    model.to(where)

    def start() -> None:
        start_run(out, twin_job, kind="left out", template=run.template, data=run.info["data"])
        write_shape(out, config, tokens)
        if pace and not (out / "pace.jsonl").exists():
            lines = (json.dumps(asdict(stretch)) + "\n" for stretch in pace)
            write_whole(out / "pace.jsonl", "".join(lines))

    processes.lead(start)
    train_and_keep(
        model,
        tokens,
        phases,
        data,
        out,
        seed=seed,
        processes=processes,
        resume=resume,
        observe=observe,
        checkpoint_every=checkpoint_every,
    )
    return load_run(out, device=where)


def _same_steps(
    run: Run, documents: Sequence[Document], questions: Sequence[Question]
) -> list[Phase]:
    """The run's phases; epochs become steps, since an epoch is shorter with a document less."""
    job = run.info["job"]
    phases = [Phase(**fields) for fields in job["phases"]]
    if all(phase.epochs is None for phase in phases):
        return phases
    data = TrainingData.encode(documents, questions, run.tokens, run.model.config.block)
    fixed = []
    for index, phase in enumerate(phases):
        if phase.epochs is not None:
            epoch = stream_for(phase, data, [int(job["seed"]), index]).epoch_steps()
            steps = max(1, round(phase.epochs * epoch))
            phase = phase.model_copy(update={"epochs": None, "steps": steps})
        fixed.append(phase)
    return fixed


def _recorded_pace(run: Run) -> list[Stretch]:
    """How the run's minutes became steps, closed behind its last step so that no clock is read."""
    record = run.folder / "pace.jsonl"
    stretches: list[Stretch] = []
    for index, fields in enumerate(run.info["job"]["phases"]):
        minutes = fields.get("minutes")
        if minutes is None:
            continue
        pace = MinutePace(60 * minutes, record, index, writes=False)
        steps = next((n for n in range(run.info["steps"] + 1) if pace.progress(n) >= 1), None)
        if not steps:
            raise UserError(
                f"{record} does not tell how many steps {run.folder} took; no twin can follow it."
            )
        decided = [Stretch(**json.loads(line)) for line in record.read_text("utf-8").splitlines()]
        stretches += [stretch for stretch in decided if stretch.phase == index]
        stretches.append(Stretch(index, steps - 1, pace.progress(steps - 1), 1.0))
    return stretches
