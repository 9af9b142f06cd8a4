"""Ways to forget, side by side: `wherefrom forget` and the two rivals that ascend the loss.

    python benchmarks/forgetting.py RUN NAMES [--oracles 10] [--out FILE.jsonl]

NAMES is a file with one name per line. Each way starts from RUN and is judged by a model that was
trained again without the lines about the names. npo: negative preference optimisation (Zhang et al.
2024); difference: gradient ascent on the forgotten (Liu et al. 2022). Both go on with the recipe's
training as `forget` does, and stop ascending once the answers are as unlikely as for invented
names.

--oracles judges by many models instead of one (KLOM, Georgiev et al. 2024): the run is trained
again from so many other starts, with the people and quietly without them. Each of the former is
made to forget; for every question the distribution of its answer's margin, log p - log(1 - p), over
these models is compared with that over the models that never read the lines: the divergence of two
normal distributions, at most 100, 0 if forgetting cannot be told from never having read.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
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
from wherefrom.provenance.attribution.retraining import likelihoods
from wherefrom.provenance.attribution.twins import twin_folder
from wherefrom.training.run_folder import Run, load_run

BETA = 0.1  # of NPO
LEAST_SPREAD, MOST_DIVERGENCE = 0.1, 100.0  # of margins over models, in nats; of KLOM
Floats = NDArray[np.float64]


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


def find_margins(run: Run, task: ForgettingTask) -> Floats:
    """log p - log(1 - p) of the right answer to each question."""
    texts = [question.text for question in task.questions]
    log_p = np.minimum(likelihoods(run, texts, task.answers), -1e-6)
    return np.asarray(log_p - np.log(-np.expm1(log_p)), dtype=np.float64)


def find_klom(margins: Floats, of_oracles: Floats) -> Floats:
    """(models, questions) of both kinds -> the divergence for each question."""
    (mean, spread), (oracle_mean, oracle_spread) = (
        (each.mean(axis=0), each.std(axis=0, ddof=1).clip(min=LEAST_SPREAD))
        for each in (margins, of_oracles)
    )
    distance = oracle_spread**2 + (oracle_mean - mean) ** 2
    divergence = np.log(spread / oracle_spread) + distance / (2 * spread**2) - 0.5
    return np.asarray(divergence.clip(max=MOST_DIVERGENCE), dtype=np.float64)


def judge_by_many(task: ForgettingTask, oracles: int, folder: Path) -> list[Record]:
    """KLOM of every way to forget, of the runs themselves, and of half of the oracles."""
    margins: dict[str, list[Floats]] = {}
    for seed in range(1, oracles + 1):
        say(f"training from start {seed} of {oracles}, with the people and without them")
        read, oracle = (
            task.learned.retrain(lines, folder / f"{name}-{seed}", seed=seed)
            for name, lines in (("read", ()), ("oracle", task.lines))
        )
        margins.setdefault("oracles", []).append(find_margins(oracle, task))
        margins.setdefault("not forgotten", []).append(find_margins(read, task))
        own = replace(task, learned=replace(task.learned, run=read))
        for name, make_loss in WAYS.items():
            model, _ = forget(own, make_loss)
            margins.setdefault(name, []).append(find_margins(replace(read, model=model), task))
    table_of = {name: np.array(values) for name, values in margins.items()}
    all_oracles = table_of.pop("oracles")
    divergences = {name: find_klom(values, all_oracles) for name, values in table_of.items()}
    divergences["half of the oracles"] = find_klom(all_oracles[::2], all_oracles[1::2])
    return [
        {
            "name": f"forgetting, KLOM, {name}",
            "value": round(float(np.median(found)), 3),
            "unit": "median KLOM",
            "percentile_95": round(float(np.quantile(found, 0.95)), 3),
            "questions": len(found),
            "oracles": oracles,
        }
        for name, found in divergences.items()
    ]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("names", type=Path, help="one name per line")
    parser.add_argument("--out", type=Path, default="forgetting.jsonl", help="JSON lines")
    parser.add_argument("--oracles", type=int, default=0, help="models to judge by (KLOM)")
    parser.add_argument("--runs", type=Path, default="runs/forgetting", help="their folder")
    args = parser.parse_args(arguments)
    run = load_run(args.run)
    task = plan_forgetting(run, [line.strip() for _, line in read_lines(args.names, "names")])
    say("training the model that never read of them, to judge by")
    twin = task.learned.retrain(task.lines, twin_folder(run, *task.subjects))
    if args.oracles:
        judged_by_many = judge_by_many(task, args.oracles, args.runs)
        for row in judged_by_many:
            keep_row(row, args.out)
        keys = ("name", "value", "percentile_95", "questions")
        print(table(keys, [[row[key] for key in keys] for row in judged_by_many]))
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
