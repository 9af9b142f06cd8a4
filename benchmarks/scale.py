"""What a larger text costs: time, tokens and memory until the model knows what can be read.

    python benchmarks/scale.py [--people 1000,3000,10000,30000] [--seeds 0]

Each row trains the default recipe on an embedded world of so many people, until recall on a sample
of the dev questions reaches 95 % of the reader's recall, and at most as long as the recipe says.
Measuring is not counted as training. CPU seconds, of all threads, hardly depend on what else the
machine does; wall-clock seconds do. Bits per parameter are the facts that the model then knows
(recall times stated facts) times the entropy of their relation's answers, over all parameters.
The exponents are slopes of the logarithms between neighbouring sizes.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

from rows import (
    Progress,
    Record,
    add_row_options,
    measure_trainings,
    numbers,
    prepare_training,
    recipe_digest,
    run_main,
    table,
)

from wherefrom.training.recipes import load_recipe

RECIPE = "pointed"
ENOUGH = 0.95  # of the reader's recall
ASKED = 1000  # dev questions at most
ASK_AGAIN = 1.04  # recall is measured when the steps have grown by this factor
FIRST_STEPS = 200  # before recall is measured for the first time


class EnoughError(Exception):
    """Ends a training: the model knows enough."""


class UntilEnough(Progress):
    """Observes a training and ends it when the model knows enough."""

    def __init__(self, tokens: Any, questions: list[Any], enough: float) -> None:
        super().__init__()
        self.tokens, self.questions, self.enough = tokens, questions, enough
        self.next_step = FIRST_STEPS
        self.recall = 0.0
        self.parameters = 0
        self.asking_cpu_seconds = 0.0
        self.last: Any = None

    def __call__(self, tick: Any, model: Any) -> None:
        from wherefrom.recall.decode import answer_all

        super().__call__(tick, model)
        self.last = tick
        self.parameters = sum(p.numel() for p in model.parameters())
        if tick.step < self.next_step:
            return
        self.next_step = max(tick.step + 1, round(tick.step * ASK_AGAIN))
        start = time.process_time()
        answers = answer_all(model, self.tokens, [q.text for q in self.questions])
        right = [answer.text == q.answer for answer, q in zip(answers, self.questions, strict=True)]
        self.recall = sum(right) / len(right)
        self.asking_cpu_seconds += time.process_time() - start
        if self.recall >= self.enough:
            raise EnoughError


def train_row(settings: Record, folder: Path) -> Record:
    """Train until the model knows enough."""
    import numpy as np

    from wherefrom.study import embedded_files
    from wherefrom.training.loop import run_training

    world = embedded_files(folder / "world", people=settings["people"], seed=settings["seed"])
    files = [world.corpus, world.train, world.dev]
    prepared, options = prepare_training(files, load_recipe(RECIPE), settings, folder)
    dev = [question for question in prepared.given.dev.questions if not question.is_silent]
    order = np.random.default_rng(settings["seed"]).permutation(len(dev))[:ASKED]
    asked = [dev[i] for i in sorted(order.tolist())]
    reader = prepared.recall_of_reader().share
    job = prepared.job(folder / "run")
    watch = UntilEnough(job.tokens, asked, ENOUGH * reader)
    reached = False
    start = time.process_time()
    try:
        run_training(job, options, observe=watch)
    except EnoughError:
        reached = True
    cpu_seconds = time.process_time() - start - watch.asking_cpu_seconds
    bits = bits_of_facts(prepared)
    return {
        "name": f"{settings['people']:,} people, seed {settings['seed']}",
        "value": watch.last.seconds,
        "unit": "seconds",
        "cpu_seconds": cpu_seconds,
        "reached": reached,
        "recall": watch.recall,
        "reader": reader,
        "documents": len(prepared.split.corpus.documents),
        "steps": watch.last.step,
        "tokens": watch.last.tokens,
        "parameters": watch.parameters,
        "bits_of_facts": bits,
        "bits_per_parameter": watch.recall * bits / watch.parameters,
    }


def bits_of_facts(prepared: Any) -> float:
    """Facts that the reader reads, times the entropy of their relation's answers."""
    bits, corpus = 0.0, prepared.split.corpus
    for relation in corpus.relations():
        answers = corpus.all_extracted(relation.template)
        counts = Counter(likeliest.text for _, (likeliest, *_) in answers)
        total = counts.total()
        bits += sum(count * math.log2(total / count) for count in counts.values())
    return bits


def markdown(rows: list[Record]) -> str:
    head = (
        "people",
        "95 % of the reader",
        "seconds",
        "CPU seconds",
        "tokens",
        "peak MB",
        "bits/parameter",
    )
    lines = []
    for row in rows:
        lines.append(
            (
                f"{row['settings']['people']:,}",
                "reached" if row["reached"] else f"not reached ({row['recall']:.1%})",
                f"{row['value']:.0f}",
                f"{row['cpu_seconds']:.0f}",
                f"{row['tokens'] / 1e6:.1f} M",
                f"{row['peak_mb']:.0f}",
                f"{row['bits_per_parameter']:.2f}",
            )
        )
    return table(head, lines)


def exponents(rows: list[Record]) -> str:
    """How time grows between neighbouring sizes: seconds ~ people ** exponent."""
    lines = []
    for before, after in pairwise(sorted(rows, key=lambda row: row["settings"]["people"])):
        people = after["settings"]["people"] / before["settings"]["people"]
        if people > 1:
            slope = {
                key: math.log(after[key] / before[key]) / math.log(people)
                for key in ("value", "cpu_seconds", "tokens")
            }
            lines.append(
                f"{before['settings']['people']:,} to {after['settings']['people']:,} people: "
                f"seconds {slope['value']:.2f}, CPU seconds {slope['cpu_seconds']:.2f}, "
                f"tokens {slope['tokens']:.2f}"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--people", type=numbers, default=[1000, 3000, 10_000, 30_000])
    parser.add_argument("--seeds", type=numbers, default=[0])
    add_row_options(parser, "scale.jsonl")
    options = parser.parse_args()
    plan = [
        {
            "row": f"{people:,} people",
            "people": people,
            "recipe_digest": recipe_digest(load_recipe(RECIPE)),
            "threads": options.threads,
            "seed": seed,
        }
        for people in options.people
        for seed in options.seeds
    ]
    rows = measure_trainings(plan, train_row, options)
    print(markdown(rows))
    print(exponents(rows))


if __name__ == "__main__":
    sys.exit(run_main(main))
