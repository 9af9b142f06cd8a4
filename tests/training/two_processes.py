"""What two processes do together, one after the other; torchrun starts it, the tests judge it."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from training_samples import make_model, make_phase, read_metrics, training_data

from wherefrom.corpus import batches
from wherefrom.corpus.documents import read_documents
from wherefrom.corpus.questions import read_questions
from wherefrom.errors import Stopped, UserError
from wherefrom.model.decoder import Decoder
from wherefrom.training import loop
from wherefrom.training.checkpoint import save_weights, whole_weights
from wherefrom.training.distributed import Processes, end_process, join_processes
from wherefrom.training.jobs import Settings, TrainingJob, run_training
from wherefrom.training.loop import Tick
from wherefrom.training.recipes import load_recipe
from wherefrom.training.sources import stream_for

STEPS = 12
LOG_EVERY = 3


def settings_for(recipe: Path, *, shard: bool = False, resume: bool = False) -> Settings:
    loaded = load_recipe(str(recipe)).model_copy(update={"dropout": 0.0})
    return Settings(recipe=loaded, variant="llama", shard=shard, resume=resume)


def lesson_for(kind: str, world: Path) -> TrainingJob:
    """Batches of several parts, one of them smaller than the number of processes."""
    return TrainingJob(
        kind="study",
        phases=[make_phase(optimizer=kind, steps=STEPS, batch_examples=7)],
        corpus=read_documents(world / "documents.txt"),
        questions=read_questions(world / "train.tsv"),
    )


def interrupt(tick: Tick, model: Decoder) -> None:
    signal.raise_signal(signal.SIGINT)


def descend(processes: Processes) -> dict[str, torch.Tensor]:
    """The weights after one plain step against the gradient, whose length it therefore shows."""
    phase = make_phase(clip=None, batch_examples=7)
    model = make_model()
    runner = processes.wrap(model)
    batch = stream_for(phase, training_data(), [1]).pool(0)[0]
    descent = torch.optim.SGD(model.parameters(), lr=1.0)
    loop._step(runner, batch, [descent], phase, processes, None)
    return whole_weights(model)


def work(world: Path, recipe: Path, out: Path) -> None:
    rank = join_processes().rank
    for engine in ("ddp", "fsdp"):
        weights = descend(join_processes(sharded=engine == "fsdp"))
        if rank == 0:
            save_weights(out / f"step-{engine}.safetensors", weights)
    for kind in ("adamw", "muon"):
        lesson = lesson_for(kind, world)
        run_training(lesson, settings_for(recipe), out / f"ddp-{kind}")
        pieces: set[tuple[int, int]] = set()

        def look(tick: Tick, model: Decoder, pieces: set[tuple[int, int]] = pieces) -> None:
            head: Any = model.head.weight
            pieces.add((head.to_local().numel(), head.numel()))

        run_training(lesson, settings_for(recipe, shard=True), out / f"fsdp-{kind}", observe=look)
        (out / f"pieces-{kind}-{rank}.json").write_text(json.dumps(sorted(pieces)))
    for shard in (False, True):
        lesson = lesson_for("muon", world)
        folder = out / f"resumed-{'fsdp' if shard else 'ddp'}"
        try:
            run_training(lesson, settings_for(recipe, shard=shard), folder, observe=interrupt)
        except Stopped:
            assert read_metrics(folder)[-1]["step"] < STEPS
        else:
            raise AssertionError("it was asked to stop")
        run_training(lesson, settings_for(recipe, shard=shard, resume=True), folder)
    try:
        run_training(lesson, settings_for(recipe), out / "ddp-adamw")
    except UserError as refusal:
        (out / f"refusal-{rank}").write_text(str(refusal))


if __name__ == "__main__":
    torch.set_num_threads(1)
    batches.POOL = 64
    loop.LOG_EVERY = LOG_EVERY
    work(*map(Path, sys.argv[1:]))
    end_process(0)
