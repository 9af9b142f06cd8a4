"""Recall on dev after a budget of training: budgets, seeds, variants, tokens and recipes.

    python benchmarks/accuracy.py CORPUS TRAIN DEV --rows default,seconds,variants,chars,twostep
    python benchmarks/accuracy.py --rows world            (the embedded world, seeds nobody read)
    python benchmarks/accuracy.py --collect RUN [RUN ...] (runs that `wherefrom study` finished)

A row is a whole study, `wherefrom.study.run_study`, in a process of its own; dev is read once a
row, and the table says how many looks it rests on. What is kept of a row: budget, seed, hashes of
data and weights, machine, threads, seconds of training and of everything, and the peak memory.
A collected run has the figures of its run.json; its peak memory is known only if it is there.
Rows that are in the JSON lines with the same settings are not repeated, and a study that was
stopped goes on from its last checkpoint.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from rows import (
    Progress,
    Record,
    add_row_options,
    digest,
    find_row,
    forget_run,
    keep_row,
    measure_rows,
    numbers,
    percent,
    phases_digest,
    run_apart,
    run_main,
    say,
    table,
)

from wherefrom.corpus.documents import hash_file
from wherefrom.errors import UserError, did_you_mean
from wherefrom.model.config import parse_size
from wherefrom.storage import read_json
from wherefrom.training.recipes import Budget, Phase, load_recipe, shipped_recipes

SEEDS = [0, 1, 2]
WORLD_SEEDS = [11, 12, 13]  # 0 and 1 were looked at while the recipe was being found
PEOPLE = 3000
VARIANTS = ("vanilla", "rotary", "synthesizer", "perceiver", "llama")

# name -> what the studies of the row are told, besides the seed
Told = dict[str, Any]
ROWS: dict[str, list[Told]] = {
    "default": [{"recipe": "speedrun"}],  # until recall stops growing
    "seconds": [{"recipe": "speedrun", "minutes": minutes} for minutes in (0.75, 1.5)],
    "variants": [{"recipe": "speedrun", "minutes": 20.0, "variant": name} for name in VARIANTS],
    "chars": [{"recipe": "speedrun", "minutes": 60.0, "tokens": "chars"}],
    "twostep": [{"recipe": "twostep", "minutes": 60.0}],
    "world": [{"recipe": "speedrun", "people": PEOPLE}],
}


def plan_row(told: Told, seed: int, files: dict[str, Path]) -> Record:
    """Everything that decides a row, in the words that a finished run's records have as well."""
    recipe = load_recipe(told["recipe"])
    budget = Budget(minutes=told.get("minutes"), steps=told.get("steps"))
    width, layers, heads = parse_size(told.get("size") or recipe.size)
    if "people" in told:
        data: Record = {"people": told["people"]}
    else:
        data = {name: hash_file(path) for name, path in files.items()}
    return {
        "recipe": recipe.name,
        "phases": phases_digest(budget.divide(recipe.phases)),
        "minutes": told.get("minutes"),
        "steps": told.get("steps"),
        "variant": told.get("variant") or recipe.variant,
        "tokens": told.get("tokens") or recipe.tokens,
        "size": f"{width}x{layers}x{heads}",
        "seed": seed,
        **_if_any(recipe.dropout),
        **data,
    }


def _if_any(dropout: float) -> Record:
    return {"dropout": dropout} if dropout else {}


def label(settings: Record) -> str:
    """The row of the table that these settings belong to."""
    budget = f"{settings['minutes']:g} min" if settings["minutes"] else "until it stops growing"
    budget = f"{settings['steps']} steps" if settings["steps"] else budget
    where = f"world of {settings['people']:,}" if "people" in settings else "text"
    parts = (where, settings["recipe"], settings["variant"], settings["tokens"], settings["size"])
    return ", ".join([*parts, budget])


def read_run(folder: Path) -> Record:
    """The row of a finished study's folder, with its settings."""
    info = read_json(folder / "run.json")
    if info.get("status") != "finished" or "results" not in info:
        raise UserError(
            f"{folder} is not a finished study; go on with it by repeating its command with "
            "--resume."
        )
    job = info["job"]
    phases = [Phase(**fields) for fields in job["phases"]]
    minutes = [phase.minutes for phase in phases]
    steps = [phase.steps for phase in phases]
    known = {
        "minutes": round(sum(minutes), 6) if None not in minutes else None,
        "steps": sum(steps) if None not in steps else None,
    }
    model = job["model"]
    settings: Record = {
        "recipe": _recipe_name(phases, Budget(**known), model["dropout"]),
        "phases": phases_digest(phases),
        **known,
        "variant": model["variant"],
        "tokens": job["tokens"].split()[0],
        "size": f"{model['width']}x{model['layers']}x{model['heads']}",
        "seed": job["seed"],
        **_if_any(model["dropout"]),
    }
    facts = folder / "world" / "facts.jsonl"
    if facts.exists():
        settings["people"] = len(facts.read_text(encoding="utf-8").splitlines())
    else:
        settings["corpus"] = info["data"]["corpus"]["sha256"]
        settings["train"] = info["data"]["questions"]["sha256"]
        settings["dev"] = info["dev"]["sha256"]
    results = {row["name"]: row for row in info["results"]}
    judged = results["pretrained"]
    twin, unseen = (
        results.get(name, {}).get("recall") for name in ("no pretraining", "unseen people")
    )
    return {
        "name": f"accuracy: {label(settings)}, seed {settings['seed']}",
        "value": judged["recall"],
        "unit": "recall",
        "correct": judged["correct"],
        "total": judged["total"],
        "twin": twin,
        "unseen": unseen,
        "questions_learned": info["data"]["questions"]["questions"],
        "seconds": info["seconds"],
        "trained_steps": info["steps"],
        "trained_tokens": info["trained_tokens"],
        "weights_sha256": info["sha256"],
        "threads": info["versions"].get("threads"),
        "run_versions": info["versions"],
        "started": info.get("started"),
        "peak_mb": info.get("peak_mb"),
        "settings": settings,
    }


def _recipe_name(phases: list[Phase], budget: Budget, dropout: float) -> str:
    """The shipped recipe whose phases these are under the budget, or "own"."""
    for name in shipped_recipes():
        recipe = load_recipe(name)
        if budget.divide(recipe.phases) == phases and recipe.dropout == dropout:
            return name
    return "own"


def study_row(settings: Record, files: dict[str, str], folder: str) -> Record:
    """One study from beginning to end, in this process."""
    import torch

    from wherefrom.study import StudyFiles, embedded_files, run_study
    from wherefrom.training.settings import Settings

    out = Path(folder)
    if "people" in settings:
        inputs = embedded_files(out / "world", people=settings["people"], seed=settings["seed"])
    else:
        paths = {name: Path(path) for name, path in files.items()}
        inputs = StudyFiles(corpus=paths["corpus"], train=paths["train"], dev=paths["dev"])
    began = time.monotonic()
    options = Settings(
        recipe=load_recipe(settings["recipe"]), variant=settings["variant"],
        size=settings["size"], tokens=settings["tokens"], seed=settings["seed"], resume=True,
        budget=Budget(minutes=settings["minutes"], steps=settings["steps"]), device="cpu",
    )  # fmt: skip
    run_study(inputs, options, out, observe=Progress(), say=say)
    row = read_run(out)
    found = {key: value for key, value in row.pop("settings").items() if key in settings}
    if found != settings:  # an hour of training is not thrown away for that
        say(f"  the run says {found} of itself, and {settings} was asked for")
    return {**row, "threads": torch.get_num_threads(), "whole_seconds": time.monotonic() - began}


def collect(folders: list[Path], out: str) -> list[Record]:
    """Rows of finished runs, each kept once (the weights tell)."""
    rows = []
    for folder in folders:
        row = read_run(folder)
        before = find_row(out, row["settings"])
        if before is not None and before["weights_sha256"] == row["weights_sha256"]:
            say(f"{folder} is there already")
        else:
            row["collected_from"] = folder.name
            keep_row(row, out)
        rows.append(row)
    return rows


def markdown(rows: list[Record]) -> str:
    groups: dict[str, list[Record]] = {}
    for row in rows:
        learned = f"{row['questions_learned']:,} questions"  # a study may set some aside
        groups.setdefault(f"{label(row['settings'])}, {learned}", []).append(row)
    lines = []
    for name, runs in groups.items():
        peaks = [run["peak_mb"] for run in runs if run["peak_mb"]]
        unseen = [run["unseen"] for run in runs if run["unseen"] is not None]
        lines.append(
            (
                name,
                percent([run["value"] for run in runs]),
                ", ".join(f"{run['correct']}/{run['total']}" for run in runs),
                ", ".join(str(run["settings"]["seed"]) for run in runs),
                f"{statistics.fmean(run['seconds'] for run in runs):,.0f} s",
                f"{max(peaks):,.0f} MB" if peaks else "",
                percent(unseen) if unseen else "",
            )
        )
    head = ("study", "recall", "correct", "seeds", "trained", "peak memory", "unseen people")
    return f"{table(head, lines)}\n\nLooks at dev: {len(rows)}, one a study."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", type=Path, nargs="*", metavar="CORPUS TRAIN DEV")
    parser.add_argument("--rows", default="", help=f"some of {','.join(ROWS)}")
    parser.add_argument("--seeds", type=numbers, help="0,1,2; for the world 11,12,13")
    parser.add_argument("--collect", type=Path, nargs="+", default=[], metavar="RUN")
    parser.add_argument("--minutes", type=float, help="instead of the rows' own")
    parser.add_argument("--steps", type=int, help="instead of minutes (to try it out)")
    parser.add_argument("--people", type=int, default=PEOPLE, help="of the embedded world")
    add_row_options(parser, "accuracy.jsonl")
    options = parser.parse_args()
    names = options.rows.split(",") if options.rows else []
    for name in names:
        if name not in ROWS:
            parser.error(f'there is no row "{name}".{did_you_mean(name, ROWS)}')
    if set(names) - {"world"} and len(options.files) != 3:
        parser.error("these rows need a corpus, training questions and dev questions")
    if not names and not options.collect:
        parser.error("give --rows or --collect")
    files = dict(zip(("corpus", "train", "dev"), options.files, strict=False))
    plan = []
    for name in names:
        for told in ROWS[name]:
            changed = dict(told)
            if options.minutes or options.steps:
                changed |= {"minutes": options.minutes, "steps": options.steps}
            if "people" in told:
                changed["people"] = options.people
            usual = WORLD_SEEDS if name == "world" else SEEDS
            for seed in options.seeds or usual:
                settings = plan_row(changed, seed, files)
                if settings not in plan:  # the variants' row holds the recipe's own
                    plan.append(settings)
    measure = partial(_measure, options=options, files=files)
    naming = lambda settings: f"{label(settings)}, seed {settings['seed']}"  # noqa: E731
    found = measure_rows(plan, measure, options.out, label=naming)
    print(markdown([*found, *collect(options.collect, options.out)]))


def _measure(settings: Record, options: argparse.Namespace, files: dict[str, Path]) -> Record:
    folder = options.runs / digest(settings)
    paths = {name: str(path) for name, path in files.items()}
    row = run_apart(study_row, settings, paths, str(folder), threads=options.threads)
    if not options.keep_runs:
        forget_run(folder)
    return row


if __name__ == "__main__":
    sys.exit(run_main(main))
