"""What each ingredient of the speedrun is worth: the recipe with one thing changed at a time.

    python benchmarks/ablation.py CORPUS TRAIN [--rows shipped,asked-0] [--seeds 0,1,2]
        [--minutes 7 | --steps N] [--threads N]

Every row trains on the whole corpus and on the training questions but for those of 300 people,
drawn by the row's seed, whose documents stay in the corpus: recall is the share of their questions
that is answered exactly. Dev questions are never opened. A row that is in the JSON lines with the
same settings (recipe, budget, data, seed, threads) is not repeated, and one that was stopped goes
on from its last checkpoint. Minutes are fair to nobody on a machine that others use: there, give
--steps and read the tokens. `--list` names the rows.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rows import (
    Progress,
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

from wherefrom.corpus.documents import hash_file
from wherefrom.corpus.questions import QuestionSet
from wherefrom.errors import UserError, did_you_mean
from wherefrom.training.recipes import Mixture, Phase, Recipe, load_recipe

HELD_OUT = 300  # people
Change = Callable[[Recipe], Recipe]


def set_all(**fields: Any) -> Change:
    """Fields of the recipe itself."""
    return lambda recipe: Recipe(**{**recipe.model_dump(), **fields})


def set_phases(change: Callable[[Phase], dict[str, Any]]) -> Change:
    """Fields of every phase, computed from what they were."""

    def apply(recipe: Recipe) -> Recipe:
        phases = [{**phase.model_dump(), **change(phase)} for phase in recipe.phases]
        return Recipe(**{**recipe.model_dump(), "phases": phases})

    return apply


def phases(**fields: Any) -> Change:
    return set_phases(lambda _: fields)


def scaled(field: str, factor: float) -> Change:
    def change(phase: Phase) -> dict[str, Any]:
        before = getattr(phase, field)
        return {field: type(before)(before * factor)}

    return set_phases(change)


def shares(**values: float) -> Change:
    """Some objectives at these shares of the examples; the others keep their proportions."""

    def change(phase: Phase) -> dict[str, Any]:
        before = phase.mixture.shares()
        others = {key: x for key, x in before.items() if key not in values}
        left = (1 - sum(values.values())) / sum(others.values())
        return {"mixture": {**{key: x * left for key, x in others.items()}, **values}}

    return set_phases(change)


def without(*names: str) -> Change:
    """Some objectives left out, with their share given to the others that read documents."""

    def change(phase: Phase) -> dict[str, Any]:
        shares = phase.mixture.shares()
        gone = sum(shares.pop(name, 0.0) for name in names)
        reading = {key: x for key, x in shares.items() if key != "question"}
        factor = 1 + gone / sum(reading.values())
        return {
            "mixture": {key: x * (factor if key in reading else 1) for key, x in shares.items()}
        }

    return set_phases(change)


def text_instead(recipe: Recipe) -> Recipe:
    """What salient spans take, half each for plain text and span corruption."""

    def change(phase: Phase) -> dict[str, Any]:
        before = phase.mixture.shares()
        half = before.pop("salient", 0.0) / 2
        more = {key: before.get(key, 0.0) + half for key in ("text", "span")}
        return {"mixture": {**before, **more}}

    return set_phases(change)(recipe)


def questions_at_the_end(recipe: Recipe) -> Recipe:
    """All documents first, then all questions; each phase warms up and decays on its own."""
    first, last = [], []
    for phase in recipe.phases:
        reads = phase.mixture.shares()
        asks = reads.pop("question", 0.0) / sum(phase.mixture.shares().values())
        if reads:
            share = phase.share * (1 - asks)
            first.append({**phase.model_dump(), "mixture": Mixture(**reads), "share": share})
        if asks > 0:
            ends = {"name": f"{phase.name}, questions", "share": phase.share * asks}
            last.append({**phase.model_dump(), "mixture": Mixture(question=1.0), **ends})
    return Recipe(**{**recipe.model_dump(), "phases": [*first, *last]})


ROWS: dict[str, tuple[str, Change]] = {
    "shipped": ("speedrun as it is shipped", lambda recipe: recipe),
    "asked-0": ("facts drawn evenly (`asked_fact_prob = 0`)", phases(asked_fact_prob=0.0)),
    "asked-70": (
        "seven facts of ten by what is asked for (`asked_fact_prob = 0.7`)",
        phases(asked_fact_prob=0.7),
    ),
    "asked-1": ("only by what is asked for (`asked_fact_prob = 1`)", phases(asked_fact_prob=1.0)),
    "no-salient": ("plain text and span corruption instead of salient spans", text_instead),
    "text": ("with plain text and span corruption, 7 % each", shares(text=0.07, span=0.07)),
    "no-names": ("names are not learned on their own", without("name")),
    "windows-4-2": ("windows of 4 + 2 words", phases(left_words=4, right_words=2)),
    "windows-8-6": ("windows of 8 + 6 words", phases(left_words=8, right_words=6)),
    "context-1": ("the words of a window learned like the fact", phases(context_loss_weight=1.0)),
    "lead-0": ("names always at the beginning", phases(prefix_prob=0.0)),
    "lead-1": ("words before every name", phases(prefix_prob=1.0)),
    "questions-end": ("questions only at the end", questions_at_the_end),
    "questions-15": ("questions 15 % of the examples", shares(question=0.15)),
    "questions-30": ("questions 30 % of the examples", shares(question=0.30)),
    "adamw": ("AdamW instead of Muon, at the same rate", phases(optimizer="adamw")),
    "adamw-third": (
        "AdamW instead of Muon, at a third of the rate",
        set_phases(lambda phase: {"optimizer": "adamw", "lr": phase.lr / 3}),
    ),
    "muon-half": ("Muon at half the rate", scaled("muon_lr", 0.5)),
    "muon-double": ("Muon at twice the rate", scaled("muon_lr", 2.0)),
    "bpe-1500": ("a vocabulary of 1,500", set_all(tokens="bpe", vocabulary=1500)),
    "bpe-3000": ("a vocabulary of 3,000", set_all(tokens="bpe", vocabulary=3000)),
    "bpe-8000": ("a vocabulary of 8,000", set_all(tokens="bpe", vocabulary=8000)),
    "chars": ("characters", set_all(tokens="chars")),
    "no-silent": ("no zero start", set_all(zero_init=False)),
    "dropout": ("dropout 0.1", set_all(dropout=0.1)),
    "deep": ("narrower and deeper (96x6x4)", set_all(size="96x6x4")),
    "wide": ("wider and shallower (192x2x4)", set_all(size="192x2x4")),
    "no-average": ("the last weights instead of their mean", phases(average=0.0)),
    "falling": (
        "a rate that falls from the half on instead of the mean",
        phases(average=0.0, floor=0.0, decay_from=0.5, schedule="linear", most_epochs=None),
    ),
    "rate-half": (
        "half the rates",
        set_phases(lambda phase: {"lr": phase.lr / 2, "muon_lr": phase.muon_lr / 2}),
    ),
    "more-derived": (
        "derived .77, salient .10, names .08",
        shares(derived=0.77, salient=0.10, name=0.08),
    ),
    "no-clip": ("gradients not clipped", phases(clip=None)),
    "batch-half": ("batches half as large", scaled("batch_tokens", 0.5)),
    "batch-double": ("batches twice as large", scaled("batch_tokens", 2.0)),
    "rotary": ("the variant `rotary` instead of `llama`", set_all(variant="rotary")),
}


def changed_recipe(row: str, base: str) -> Recipe:
    """The recipe of a row: a change that the recipe cannot take is one sentence."""
    if row not in ROWS:
        raise UserError(f'there is no row "{row}".{did_you_mean(row, ROWS)}')
    return ROWS[row][1](load_recipe(base))


def hold_out(train: QuestionSet, people: int, seed: int) -> tuple[QuestionSet, QuestionSet]:
    """The questions to learn from, and those of `people` people to be judged by."""
    subjects = sorted({question.subject for question in train.questions})
    if people >= len(subjects):
        raise UserError(
            f"{people} people are to be held out and {train.path} asks about {len(subjects)}; "
            "give fewer with --held-out."
        )
    drawn = np.random.default_rng([seed, people]).choice(len(subjects), people, replace=False)
    out = {subjects[at] for at in drawn}

    def part(name: str, inside: bool) -> QuestionSet:
        kept = tuple(q for q in train.questions if (q.subject in out) == inside)
        return replace(train, questions=kept, sha256=f"{train.sha256}, {name} {people}, {seed}")

    return part("without", False), part("only", True)


def train_row(settings: Record, corpus: str, train: str, folder: str, base: str) -> Record:
    """Train one row and ask it the questions that were held out."""
    import torch

    from wherefrom.corpus.documents import read_documents
    from wherefrom.corpus.questions import read_questions
    from wherefrom.recall.decode import answer_all, score
    from wherefrom.training.loop import run_training
    from wherefrom.training.recipes import Budget
    from wherefrom.training.settings import Settings

    torch.set_num_threads(settings["threads"])
    recipe = changed_recipe(settings["row"], base)
    questions = read_questions(train)
    questions.require_answers()
    learn, judge = hold_out(questions, settings["held_out"], settings["seed"])
    asked = [question.text for question in judge.questions]
    options = Settings(
        recipe=recipe, budget=Budget(minutes=settings["minutes"], steps=settings["steps"]),
        seed=settings["seed"], resume=True, device="cpu",
    )  # fmt: skip
    job = options.job(
        folder, kind="ablation", phases=options.budget.divide(recipe.phases),
        corpus=read_documents(corpus), questions=learn, letters_from=asked,
    )  # fmt: skip
    run = run_training(job, options, observe=Progress())
    answers = [answer.text for answer in answer_all(run.model, run.tokens, asked)]
    recall = score(answers, [question.answer or "" for question in judge.questions])
    return {
        "name": f"ablation: {settings['row']}, seed {settings['seed']}",
        "value": recall.share,
        "unit": "recall",
        "correct": recall.correct,
        "total": recall.total,
        "seconds": run.info["seconds"],
        "steps": run.info["steps"],
        "tokens": run.info["trained_tokens"],
        "parameters": sum(p.numel() for p in run.model.parameters()),
        "weights_sha256": run.info["sha256"],
        "threads": torch.get_num_threads(),
    }


def markdown(rows: list[Record]) -> str:
    """The table of docs/recipe.md: recall, and how far from the shipped recipe on equal seeds."""
    by_name: dict[str, dict[int, Record]] = {}
    for row in rows:
        by_name.setdefault(row["settings"]["row"], {})[row["settings"]["seed"]] = row
    shipped = by_name.get("shipped", {})
    lines = []
    for name, runs in by_name.items():
        both = [runs[seed]["value"] - shipped[seed]["value"] for seed in runs if seed in shipped]
        apart = f"{100 * statistics.fmean(both):+.1f}" if both and name != "shipped" else ""
        lines.append(
            (
                ROWS[name][0],
                percent([run["value"] for run in runs.values()]),
                apart,
                f"{statistics.fmean(run['steps'] for run in runs.values()):,.0f}",
                f"{statistics.fmean(run['tokens'] for run in runs.values()) / 1e6:.2f} M",
                f"{statistics.fmean(run['seconds'] for run in runs.values()):,.0f} s",
                len(runs),
            )
        )
    head = ("changed", "recall", "points", "steps", "tokens", "trained", "seeds")
    return table(head, lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path, nargs="?")
    parser.add_argument("train", type=Path, nargs="?")
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--seeds", type=numbers, default=[0])
    parser.add_argument("--minutes", type=float, help="of training a row (7 if no --steps)")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--held-out", type=int, default=HELD_OUT, help="people to be judged by")
    parser.add_argument("--recipe", default="speedrun", help="what is changed, one thing at a time")
    parser.add_argument("--list", action="store_true", help="name the rows and stop")
    add_row_options(parser, "ablation.jsonl")
    options = parser.parse_args()
    if options.list:
        print(table(("row", "changed"), [(name, about) for name, (about, _) in ROWS.items()]))
        return
    if options.corpus is None or options.train is None:
        parser.error("a corpus and training questions are needed")
    if options.minutes is None and options.steps is None:
        options.minutes = 7.0
    data = {name: hash_file(getattr(options, name)) for name in ("corpus", "train")}
    names = options.rows.split(",")
    recipes = {name: changed_recipe(name, options.recipe) for name in names}
    plan = [
        {
            "row": name,
            "seed": seed,
            "minutes": options.minutes,
            "steps": options.steps,
            "held_out": options.held_out,
            "threads": options.threads,
            "recipe": recipe_digest(recipes[name]),
            **data,
        }
        for seed in options.seeds
        for name in names
    ]
    measure = partial(_measure, options=options)
    print(markdown(measure_rows(plan, measure, options.out)))


def _measure(settings: Record, options: argparse.Namespace) -> Record:
    name = f"{settings['row']}-seed{settings['seed']}-{digest(settings)}"
    folder = options.runs / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    arguments = (settings, str(options.corpus), str(options.train), str(folder), options.recipe)
    row = run_apart(train_row, *arguments, threads=settings["threads"])
    if not options.keep_runs:
        forget_run(folder)
    return row


if __name__ == "__main__":
    sys.exit(run_main(main))
