"""Ways to forget, side by side: `wherefrom forget` and the two rivals that ascend the loss.

    python benchmarks/forgetting.py RUN NAMES [--out FILE.jsonl]

NAMES is a file with one name per line. Each way starts from RUN and is judged by a model that was
trained again without the lines about the names. npo: negative preference optimisation (Zhang et al.
2024); difference: gradient ascent on the forgotten (Liu et al. 2022). Both go on with the recipe's
training as `forget` does, and stop ascending once the answers are as unlikely as for invented
names.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from rows import Record, keep_row, run_main, say, table
from torch import Tensor
from torch.nn import functional as F

from wherefrom.corpus.documents import read_lines
from wherefrom.model.decoder import Decoder
from wherefrom.provenance.attribution.forget import (
    AddedLoss,
    ForgettingTask,
    forget,
    judge_forgetting,
    log_likelihoods,
    plan_forgetting,
    pull_to_invented,
    row_batches,
)
from wherefrom.provenance.attribution.twins import twin_folder
from wherefrom.training.run_folder import load_run

BETA = 0.1  # of NPO


def ascend(task: ForgettingTask, gain: Callable[[Decoder, Tensor, Tensor], Tensor]) -> AddedLoss:
    """Add `gain` of a batch of forgotten rows while the answers are likelier than for invented."""
    count, before = len(task.questions), task.learned.run.model.eval()
    with torch.no_grad():
        target = log_likelihoods(before, *task.invented)[:count].mean()
    batches = row_batches(task.forgotten_rows, np.random.default_rng(0))

    def added_loss(model: Decoder) -> Tensor:
        own = log_likelihoods(model, *task.own)[:count].mean()
        return gain(model, *next(batches)) if own > target else torch.zeros(())

    return added_loss


def by_difference(task: ForgettingTask) -> AddedLoss:
    return ascend(task, lambda model, ids, w: log_likelihoods(model, ids, w).sum() / w.sum())


def by_npo(task: ForgettingTask) -> AddedLoss:
    before = task.learned.run.model.eval()

    def gain(model: Decoder, ids: Tensor, weights: Tensor) -> Tensor:
        with torch.no_grad():
            log_p_before = log_likelihoods(before, ids, weights)
        ratio = log_likelihoods(model, ids, weights) - log_p_before
        return -2 / BETA * F.logsigmoid(-BETA * ratio).mean()

    return ascend(task, gain)


WAYS = {"forget": pull_to_invented, "npo": by_npo, "difference": by_difference}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("names", type=Path, help="one name per line")
    parser.add_argument("--out", type=Path, default="forgetting.jsonl", help="JSON lines")
    args = parser.parse_args(arguments)
    run = load_run(args.run)
    task = plan_forgetting(run, [line.strip() for _, line in read_lines(args.names, "names")])
    say("training the model that never read of them, to judge by")
    twin = task.learned.retrain(task.lines, twin_folder(run, *task.subjects))
    rows: list[Record] = []
    for name, make_loss in WAYS.items():
        model, about = forget(task, make_loss)
        judged = judge_forgetting(task, replace(run, model=model), twin)
        value = judged["forget_quality"]
        rows.append({"name": f"forgetting, {name}", "value": value, **about, **judged})
        keep_row(rows[-1], args.out)
    keys = ("name", "seconds", "reached", "as_unsure", "forget_quality", "still_right")
    print(table(keys, [[row[key] for key in keys] for row in rows]))


if __name__ == "__main__":
    raise SystemExit(run_main(main))
