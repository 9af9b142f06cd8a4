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
from wherefrom.model.interface import LanguageModel
from wherefrom.model.own import OwnModel
from wherefrom.provenance.attribution.forget import (
    EXAMPLES,
    AddedLoss,
    ForgettingPlan,
    is_forgotten,
    judge_forgetting,
    plan_forgetting,
    pull_to_invented,
    row_batches,
    train_on,
)
from wherefrom.provenance.attribution.gradients import log_likelihoods
from wherefrom.provenance.attribution.opening import open_learned
from wherefrom.provenance.attribution.retraining import likelihoods, pad_rows
from wherefrom.provenance.attribution.twins import twin_folder
from wherefrom.training.run_folder import Run

BETA = 0.1  # of NPO
LEAST_SPREAD, MOST_DIVERGENCE = 0.1, 100.0  # of margins over models, in nats; of KLOM
Floats = NDArray[np.float64]
Gain = Callable[[LanguageModel, Tensor, Tensor], Tensor]  # of a batch of rows


def ascend(plan: ForgettingPlan, near_rows: int, gain: Gain) -> AddedLoss:
    """Add `gain` of a batch of forgotten rows while the answers are likelier than for invented."""
    learned = plan.learned
    own = pad_rows([learned.answer_rows(each.question, "", each.answer)[0] for each in plan.right])
    _, about_invented, answers = zip(*plan.right, strict=True)
    target = float(np.mean(likelihoods(learned.run, about_invented, answers)))
    left_out = set(plan.lines)
    documents = [i for i, each in enumerate(learned.documents) if each.line in left_out]
    batches = row_batches(learned.training_rows(documents, EXAMPLES)[0], near_rows)

    def added_loss(model: LanguageModel) -> Tensor:
        log_p = log_likelihoods(model, *own).mean()
        is_likely = bool(log_p > target)
        return gain(model, *next(batches)) if is_likely else torch.zeros((), requires_grad=True)

    return added_loss


def by_difference(plan: ForgettingPlan, model: LanguageModel, near_rows: int) -> AddedLoss:
    def gain(model: LanguageModel, ids: Tensor, weights: Tensor) -> Tensor:
        return log_likelihoods(model, ids, weights).sum() / weights.sum()

    return ascend(plan, near_rows, gain)


def by_npo(plan: ForgettingPlan, model: LanguageModel, near_rows: int) -> AddedLoss:
    before = OwnModel(plan.learned.run.model.eval(), plan.learned.run.tokens)

    def gain(model: LanguageModel, ids: Tensor, weights: Tensor) -> Tensor:
        with torch.no_grad():
            log_p_before = log_likelihoods(before, ids, weights)
        ratio = log_likelihoods(model, ids, weights) - log_p_before
        return -2 / BETA * F.logsigmoid(-BETA * ratio).mean()

    return ascend(plan, near_rows, gain)


WAYS = {"forget": pull_to_invented, "npo": by_npo, "difference": by_difference}


def find_margins(run: Run, plan: ForgettingPlan) -> Floats:
    """log p - log(1 - p) of the right answer to each question."""
    questions, _, answers = zip(*plan.right, strict=True)
    log_p = np.minimum(likelihoods(run, questions, answers), -1e-6)
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


def forget_by(plan: ForgettingPlan, make_loss: Callable[..., AddedLoss]) -> tuple[Run, int]:
    """The run with what it was to forget forgotten, and the steps that this took."""
    model, steps = train_on(plan, make_loss)
    assert isinstance(model, OwnModel)
    return replace(plan.learned.run, model=model.decoder), steps


def judge_by_many(plan: ForgettingPlan, oracles: int, folder: Path) -> list[Record]:
    """KLOM of every way to forget, of the runs themselves, and of half of the oracles."""
    margins: dict[str, list[Floats]] = {}
    for seed in range(1, oracles + 1):
        say(f"training from start {seed} of {oracles}, with the people and without them")
        read, oracle = (
            plan.learned.retrain(lines, folder / f"{name}-{seed}", seed=seed)
            for name, lines in (("read", ()), ("oracle", plan.lines))
        )
        margins.setdefault("oracles", []).append(find_margins(oracle, plan))
        margins.setdefault("not forgotten", []).append(find_margins(read, plan))
        own = replace(plan, learned=replace(plan.learned, run=read))
        for name, make_loss in WAYS.items():
            forgotten, _ = forget_by(own, make_loss)
            margins.setdefault(name, []).append(find_margins(forgotten, plan))
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
    learned = open_learned(args.run)
    names = [line.strip() for _, line in read_lines(args.names, "names")]
    plan = plan_forgetting(learned, names)
    say("training the model that never read of them, to judge by")
    twin = plan.learned.retrain(plan.lines, twin_folder(learned.run, *plan.subjects))
    if args.oracles:
        judged_by_many = judge_by_many(plan, args.oracles, args.runs)
        for row in judged_by_many:
            keep_row(row, args.out)
        keys = ("name", "value", "percentile_95", "questions")
        print(table(keys, [[row[key] for key in keys] for row in judged_by_many]))
    rows: list[Record] = []
    for name, make_loss in WAYS.items():
        forgotten, steps = forget_by(plan, make_loss)
        about = {"steps": steps, "reached": is_forgotten(plan, forgotten)}
        judged = judge_forgetting(plan, forgotten, twin)
        value = judged["as_unsure"] / judged["questions"]
        rows.append({"name": f"forgetting, {name}", "value": value, **about, **judged})
        keep_row(rows[-1], args.out)
    keys = ("name", "steps", "reached", "as_unsure", "questions", "still_right")
    print(table(keys, [[row[key] for key in keys] for row in rows]))


if __name__ == "__main__":
    raise SystemExit(run_main(main))
