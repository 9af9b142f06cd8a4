"""Training as a run folder sees it: how it ended, its weights and what it cost are written down."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from wherefrom.corpus.tokens import Tokens
from wherefrom.errors import Stopped, UserError
from wherefrom.model.decoder import Decoder
from wherefrom.storage import read_json
from wherefrom.training.checkpoint import whole_weights
from wherefrom.training.loop import CHECKPOINT_EVERY, Observer, train
from wherefrom.training.memory import peak_memory
from wherefrom.training.processes import Processes
from wherefrom.training.recipes import Phase
from wherefrom.training.run import save_model, update_run
from wherefrom.training.sources import TrainingData


def is_finished(out: Path) -> bool:
    """Whether the folder holds a run that needs no more training."""
    has_weights = (out / "model.safetensors").exists()
    return has_weights and bool(read_json(out / "run.json")["status"] == "finished")


def train_and_keep(
    model: Decoder,
    tokens: Tokens,
    phases: Sequence[Phase],
    data: TrainingData,
    out: Path,
    *,
    seed: int,
    processes: Processes,
    resume: bool = False,
    observe: Observer | None = None,
    compiled: bool = False,
    checkpoint_every: float = CHECKPOINT_EVERY,
) -> None:
    """Train to the end and leave a finished run in `out`; a run that is stopped is marked so."""
    try:
        outcome = train(
            model,
            phases,
            data,
            out,
            seed=seed,
            resume=resume,
            observe=observe,
            processes=processes,
            compiled=compiled,
            checkpoint_every=checkpoint_every,
        )
    except (Stopped, UserError) as end:
        if processes.leads:
            update_run(out, status="stopped" if isinstance(end, Stopped) else "failed")
        raise
    weights = whole_weights(model)

    def finish() -> None:
        digest = save_model(out, model.config, tokens, weights)
        update_run(
            out,
            status="finished",
            sha256=digest,
            steps=outcome.steps,
            trained_tokens=outcome.tokens,
            seconds=round(outcome.seconds, 2),
            peak_mb=round(peak_memory(), 1),
        )

    processes.lead(finish)
