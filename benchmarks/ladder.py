"""Recall on every rung of the ladder: what may reach the model about a subject that is asked about.

    python benchmarks/ladder.py world [--rungs pointed,unpointed,ordered] [--seeds 0,1,2]
    python benchmarks/ladder.py A5_FOLDER [--minutes 5] [--questions 20]
    python benchmarks/ladder.py FOLDER_OF_TEXTS_PY --rungs pointed

The rungs are the shipped recipes, and `questions only`, the model that every study trains beside
its own. A row trains one model as `wherefrom study` does, on the embedded world, on A5's files
(wiki.txt, birth_places_train.tsv, birth_dev.tsv) or on documents.txt, train.tsv and dev.tsv of a
folder, such as benchmarks/texts.py makes, and asks it the dev questions once. Beside it
stand the reader, which has the text before it, and the share of the text that training showed.
Without --minutes a recipe trains for as long as it says. Rows that are in the JSON lines with the
same settings are not repeated. `python docs/figures/make.py` draws them.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from functools import partial
from pathlib import Path
from typing import Any

from rows import (
    Progress,
    Record,
    add_row_options,
    measure_trainings,
    numbers,
    percent,
    prepare_training,
    recipe_digest,
    run_main,
    table,
)

from wherefrom.errors import UserError
from wherefrom.training.recipes import load_recipe

PEOPLE = 3000  # of the embedded world
RUNGS = ("questions only", "ordered", "unpointed", "pointed")
A5_FILES = ("wiki.txt", "birth_places_train.tsv", "birth_dev.tsv")
FILES = ("documents.txt", "train.tsv", "dev.tsv")


def train_row(settings: Record, folder: Path, data: str) -> Record:
    """Train the model of one rung and ask it the dev questions."""
    from wherefrom.training.loop import run_training

    files = _files(data, settings, folder)
    recipe, set_aside = load_recipe(settings["recipe"]), None if data == "world" else 0.0
    prepared, options = prepare_training(files, recipe, settings, folder, set_aside)
    only_questions = settings["rung"] == "questions only"
    job = (prepared.questions_only_job if only_questions else prepared.job)(folder / "run")
    run = run_training(job, options, observe=Progress())
    recall, shown = prepared.recall(run), run.record.text_shown
    return {
        "name": f"{settings['data']}, {settings['rung']}, seed {settings['seed']}",
        "value": recall.share,
        "unit": "recall",
        "correct": recall.correct,
        "total": recall.total,
        "reader": prepared.recall_of_reader().share,
        "questions_learned": len(job.questions),
        "text_shown": shown.shown,
        "text_learned": shown.learned,
        "seconds": run.record.seconds,
        "steps": run.record.steps,
        "tokens": run.record.trained_tokens,
        "parameters": sum(p.numel() for p in run.model.parameters()),
    }


def _files(data: str, settings: Record, out: Path) -> list[Path]:
    """The three files of a row; with `questions`, only so many training questions are kept."""
    from wherefrom.study import embedded_files

    if data == "world":
        files = embedded_files(out / "world", people=settings["people"], seed=settings["seed"])
        paths = [files.corpus, files.train, files.dev]
    else:
        is_a5 = (Path(data) / A5_FILES[0]).exists()
        paths = [Path(data) / name for name in (A5_FILES if is_a5 else FILES)]
    if settings["questions"]:
        import numpy as np

        rows = paths[1].read_text(encoding="utf-8").splitlines()
        order = np.random.default_rng(settings["seed"]).permutation(len(rows))
        kept = sorted(order[: settings["questions"]].tolist())
        paths[1] = out / "few.tsv"
        paths[1].parent.mkdir(parents=True, exist_ok=True)
        paths[1].write_text("".join(rows[i] + "\n" for i in kept), encoding="utf-8")
    return paths


def markdown(rows: list[Record]) -> str:
    """One line for each rung and budget: recall of all seeds, the reader's, cost."""
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for row in rows:
        settings = row["settings"]
        key = tuple(settings[name] for name in ("rung", "minutes", "questions"))
        groups.setdefault(key, []).append(row)
    lines = []
    for (rung, minutes, questions), group in groups.items():
        lines.append(
            (
                rung + (f", {minutes:g} min" if minutes else ""),
                questions or "all",
                percent([row["value"] for row in group]),
                percent([row["reader"] for row in group]),
                " / ".join(f"{row['seconds']:.0f}" for row in group),
                f"{statistics.fmean(row['text_shown'] for row in group):.0%}",
                f"{statistics.fmean(row['text_learned'] for row in group):.0%}",
            )
        )
    head = ("rung", "questions", "recall", "reader", "seconds", "text shown", "learned")
    return table(head, lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", help="`world`, or a folder of files")
    parser.add_argument("--rungs", default=",".join(RUNGS))
    parser.add_argument("--seeds", type=numbers, default=[0, 1, 2])
    parser.add_argument("--minutes", type=float, help="of training (default: the recipe's)")
    parser.add_argument("--questions", type=int, help="learn from so many training questions")
    add_row_options(parser, "ladder.jsonl")
    options = parser.parse_args()
    rungs = options.rungs.split(",")
    for rung in rungs:
        if rung not in RUNGS:
            raise UserError(f'there is no rung "{rung}"; choose among {", ".join(RUNGS)}.')
    plan = []
    for rung in rungs:
        recipe = "pointed" if rung == "questions only" else rung
        plan += [
            {
                "data": Path(options.data).name,
                "rung": rung,
                "row": rung,
                "recipe": recipe,
                "recipe_digest": recipe_digest(load_recipe(recipe)),
                "minutes": options.minutes,
                "questions": options.questions,
                "people": PEOPLE if options.data == "world" else None,
                "threads": options.threads,
                "seed": seed,
            }
            for seed in options.seeds
        ]
    train = partial(train_row, data=options.data)
    print(markdown(measure_trainings(plan, train, options)))


if __name__ == "__main__":
    sys.exit(run_main(main))
