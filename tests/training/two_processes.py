"""What two processes do together, started by torchrun; test_distributed.py checks the results."""

from __future__ import annotations

import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.distributed_c10d import _set_pg_timeout
from training_samples import make_model, make_phase, read_metrics, training_data

from wherefrom.cli import main
from wherefrom.corpus import batches
from wherefrom.corpus.database import read_documents
from wherefrom.corpus.questions import read_questions
from wherefrom.errors import Stopped, UserError
from wherefrom.provenance import after_training
from wherefrom.training import loop
from wherefrom.training.checkpoints import save_weights, whole_weights
from wherefrom.training.distributed import Processes, end_process, join_processes
from wherefrom.training.loop import Observer, run_training
from wherefrom.training.metrics import StepMetrics
from wherefrom.training.recipes import load_recipe
from wherefrom.training.settings import Settings
from wherefrom.training.sources import stream_for

STEPS = 12
LOG_EVERY = 3


def train_one(
    world: Path, recipe: Path, out: Path, observe: Observer | None = None, **options: Any
) -> None:
    """Batches of several parts, one of them smaller than the number of processes."""
    loaded = load_recipe(str(recipe)).model_copy(update={"dropout": 0.0})
    settings = Settings(recipe=loaded, variant="llama", **options)
    job = settings.job(
        out,
        kind="study",
        phases=[make_phase(optimizer="muon", steps=STEPS, batch_examples=7)],
        corpus=read_documents(world / "documents.txt"),
        questions=read_questions(world / "train.tsv"),
    )
    run_training(job, settings, observe=observe)


def descend(processes: Processes) -> dict[str, torch.Tensor]:
    """The weights after one plain step against the gradient, whose length it therefore shows."""
    model = make_model()
    runner = processes.wrap(model)
    batch = stream_for(make_phase(batch_examples=7), training_data(), [1]).pool(0)[0]
    loop.accumulate_gradients(runner, batch, processes)
    torch.optim.SGD(model.parameters(), lr=1.0).step()
    return whole_weights(model)


def work(world: Path, recipe: Path, out: Path) -> None:
    rank = join_processes().rank
    weights = descend(join_processes())
    if rank == 0:
        save_weights(out / "step.safetensors", weights)

    def stop(*_: object) -> None:
        if rank == 1:  # whichever process gets the signal, all stop
            signal.raise_signal(signal.SIGTERM)

    train_one(world, recipe, out / "run")
    with pytest.raises(Stopped) as end:
        train_one(world, recipe, out / "resumed", stop)
    assert end.value.signal_number == signal.SIGTERM
    assert read_metrics(out / "resumed")[-1]["step"] < STEPS
    train_one(world, recipe, out / "resumed", resume=True)
    with pytest.raises(UserError, match="already holds a run; add --resume"):  # on both ranks
        train_one(world, recipe, out / "run")


def kill_rank_1(metrics: StepMetrics, _: Any) -> None:
    """Kill this process half-way if it is rank 1, as the system would that needs its memory."""
    if join_processes().rank == 1 and metrics.step >= STEPS // 2:
        os.kill(os.getpid(), signal.SIGKILL)


def wait_and_fail() -> None:
    """Rank 1 waits for rank 0 longer than gloo does by itself, and fails when rank 0 fails."""
    processes = join_processes()
    _set_pg_timeout(timedelta(seconds=1))
    processes.on_rank0(lambda: time.sleep(2))
    kind = ZeroDivisionError if processes.is_rank0 else RuntimeError
    with pytest.raises(kind, match="division"):
        processes.on_rank0(lambda: 1 // 0)
    _set_pg_timeout(timedelta(minutes=30))


if __name__ == "__main__":
    torch.set_num_threads(1)
    batches.POOL_ROWS = 64
    after_training.MAX_UNSEEN_PER_CALIBRATING = after_training.NAMES_PER_ORIGIN = 1
    world, recipe, out = (Path(word) for word in sys.argv[1:4])
    loop.LOG_STEPS = LOG_EVERY
    if sys.argv[4:]:
        is_resumed = sys.argv[4] == "resumed"
        observe = None if is_resumed else kill_rank_1
        train_one(world, recipe, out, observe, checkpoint_every=0.0, resume=is_resumed)
        end_process(0)
    wait_and_fail()
    work(world, recipe, out)
    loop.LOG_STEPS = 10
    options = ["--people", "40", "--recipe", str(recipe), "--steps", "10", "--json"]
    options += ["--tokens", "bpe"]  # answers of few tokens
    sys.argv = ["wherefrom", "study", *options, "--out", str(out / "study")]
    main()
