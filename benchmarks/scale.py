"""Recall against processor time, for worlds of several sizes and models of several sizes.

    python benchmarks/scale.py [--people 300,1000,3000,10000] [--sizes 32x2x2,64x2x2,128x2x4]
        [--seeds 0] [--threads 1]

A row trains the speedrun on an embedded world of so many invented people, held-out people as in a
study, until recall stops growing. The curve is recall on the questions that decide when that is,
against seconds of processor time; the value is recall on all training questions that were held
out. Rows that are in the JSON lines are not repeated, and `python docs/figures/make.py` draws them.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rows import (
    Record,
    add_row_options,
    digest,
    forget_run,
    measure_rows,
    numbers,
    percent,
    recipe_digest,
    run_apart,
    run_main,
    table,
)

from wherefrom.training.recipes import load_recipe


def label(settings: Record) -> str:
    return f"{settings['people']:,} people, {settings['size']}, seed {settings['seed']}"


def train_row(settings: Record, folder: str) -> Record:
    """Train on one world and ask about the people who were held out."""
    import torch

    from wherefrom.corpus.subjects import split_subjects
    from wherefrom.recall.decode import answer_all, score
    from wherefrom.study import embedded_files, hold_out_probes, read_input
    from wherefrom.training.loop import StepMetrics, run_training
    from wherefrom.training.settings import Settings

    torch.set_num_threads(settings["threads"])
    seed, out = settings["seed"], Path(folder) / "run"
    files = embedded_files(Path(folder) / "world", people=settings["people"], seed=seed)
    given = read_input(files, out)
    split = split_subjects(given.corpus, given.train, given.dev, None, set_aside=None, seed=seed)
    split, probes = hold_out_probes(split, seed=seed)
    learned = {question.subject for question in split.train.questions}
    held = [question for question in given.train.questions if question.subject not in learned]
    options = Settings(recipe=load_recipe("speedrun"), size=settings["size"], seed=seed)
    job = options.job(
        out, kind="scale", phases=options.recipe.phases, corpus=split.corpus,
        questions=split.train, probes=probes or held,
    )  # fmt: skip
    curve: list[tuple[int, float, float]] = []  # steps, seconds of processor time, recall
    began = time.process_time()

    def observe(line: StepMetrics, _: object) -> None:
        if line.recall is not None and (not curve or curve[-1][2] != line.recall):
            curve.append((line.step, round(time.process_time() - began, 2), line.recall))

    run = run_training(job, options, observe=observe)
    seconds = time.process_time() - began
    said = answer_all(run.model, run.tokens, [question.text for question in held])
    recall = score([answer.text for answer in said], [question.answer or "" for question in held])
    return {
        "name": f"scale: {label(settings)}",
        "value": recall.share,
        "unit": "recall",
        "asked": recall.total,
        "documents": len(split.corpus.documents),
        "parameters": sum(parameter.numel() for parameter in run.model.parameters()),
        "vocabulary": run.tokens.size,
        "cpu_seconds": seconds,
        "steps": run.info["steps"],
        "tokens": run.info["trained_tokens"],
        "curve": curve,
    }


def markdown(rows: Sequence[Record]) -> str:
    """The table of docs/training.md."""
    groups: dict[tuple[int, int, str], list[Record]] = {}
    for row in rows:
        told = row["settings"]
        groups.setdefault((told["people"], row["parameters"], told["size"]), []).append(row)
    lines = [
        (
            f"{people:,}",
            size,
            f"{parameters / 1e6:.2f} M",
            f"{sum(row['steps'] for row in those) / len(those):,.0f}",
            f"{sum(row['cpu_seconds'] for row in those) / len(those):,.0f}",
            percent([row["value"] for row in those]),
        )
        for (people, parameters, size), those in sorted(groups.items())
    ]
    return table(("people", "size", "parameters", "steps", "CPU seconds", "recall"), lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--people", type=numbers, default=[300, 1000, 3000, 10_000])
    parser.add_argument("--sizes", default="32x2x2,64x2x2,128x2x4")
    parser.add_argument("--seeds", type=numbers, default=[0])
    add_row_options(parser, "scale.jsonl")
    options = parser.parse_args()
    recipe = recipe_digest(load_recipe("speedrun"))
    plan = [
        {"people": people, "size": size, "seed": seed, "threads": options.threads, "recipe": recipe}
        for people in options.people
        for seed in options.seeds
        for size in options.sizes.split(",")
    ]
    rows = measure_rows(plan, partial(_measure, options=options), options.out, label=label)
    print(markdown(rows))


def _measure(settings: Record, options: argparse.Namespace) -> Record:
    folder = options.runs / digest(settings)
    folder.mkdir(parents=True, exist_ok=True)
    row = run_apart(train_row, settings, str(folder), threads=settings["threads"])
    if not options.keep_runs:
        forget_run(folder)
    return row


if __name__ == "__main__":
    sys.exit(run_main(main))
