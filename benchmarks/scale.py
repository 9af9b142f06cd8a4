"""Recall, time and bits stored against the number of people and the size of the model.

    python benchmarks/scale.py [--people 1000,3000,10000,30000] [--sizes small]
        [--minutes-per-thousand 1] [--seeds 0] [--threads N]

A row trains the speedrun on an embedded world of so many invented people, for minutes in
proportion to the people, so that every fact is met about equally often, and asks about train, dev
and unseen people (at most 3,000 of each, namesakes left out). Rows that are in the JSON lines are
not repeated, and one that was stopped goes on.

Bits stored, after Allen-Zhu and Li 2024 (Physics of Language Models 3.3), who count what a model
must hold to name the attributes of people; here only birthplaces that are recalled exactly count,
so this is a lower bound (names, dates and the other facts of the documents come on top):

    p(a)  = (n_a + 1) / (N + K)      how often a is a training answer: N answers, K places
    h(a)  = log2(1 / p(a))           its surprise for someone who knows places, not people
    s(S)  = mean over a split S of [answered exactly] * h(answer)
    bits  = |train| * max(0, s(train) - s(unseen)) + |dev| * max(0, s(dev) - s(unseen))
    bits per parameter = bits / parameters

s(unseen) is what the same model gets right about people it never read of: guesses, not memory. A
model that recalls everybody stores the people's whole entropy and no more, however large it is;
so bits per parameter say something about capacity only where recall has begun to fall.

The last table carries the best row over to all biographies of Wikipedia: parameters at its bits per
parameter, tokens at its exposures a person, 6 FLOPs a parameter and token, on --gpus GPUs of which
each keeps up --flops (125e12 would be 40 % of an A100 in bfloat16).
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

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

from wherefrom.corpus.world import Person, World, make_world, write_world
from wherefrom.model.config import make_config, parse_size
from wherefrom.model.decoder import count_parameters
from wherefrom.training.recipes import load_recipe

ASKED = 3000  # of a split
WIKIPEDIA = 2_000_000  # biographies in the English one, rounded
GPU_FLOPS = 7.8e12  # 40 % of an A100's 19.5 TFLOP/s in float32, which is what the loop trains in
GOOD = 0.8  # recall of a row that may be carried over


def surprise(answers: Sequence[str], places: int) -> dict[str, float]:
    """h(a) in bits for every training answer; "" stands for a place that is none of them."""
    counts = Counter(answers)
    total = len(answers) + places
    return {**{a: math.log2(total / (n + 1)) for a, n in counts.items()}, "": math.log2(total)}


def bits_said(people: Sequence[Person], said: Sequence[str], bits: dict[str, float]) -> float:
    """s(S): the mean surprise of what was answered exactly."""
    right = [
        bits.get(person.birthplace, bits[""])
        for person, answer in zip(people, said, strict=True)
        if answer == person.birthplace
    ]
    return sum(right) / max(1, len(people))


def stored_bits(shares: dict[str, float], counts: dict[str, int]) -> float:
    """Bits beyond guessing, summed over everybody who is written about."""
    return sum(
        counts[split] * max(0.0, shares[split] - shares["unseen"]) for split in ("train", "dev")
    )


def label(settings: Record) -> str:
    return f"{settings['people']:,} people, {settings['size']}, seed {settings['seed']}"


def people_of(world: World, split: str) -> list[Person]:
    return [person for person in world.of_split(split) if not person.namesake]


def train_row(settings: Record, folder: str) -> Record:
    """Train on one world and ask about its people."""
    import torch

    from wherefrom.corpus.documents import read_documents
    from wherefrom.corpus.questions import read_questions
    from wherefrom.recall.decode import answer_all
    from wherefrom.training.loop import run_training
    from wherefrom.training.recipes import Budget
    from wherefrom.training.settings import Settings

    torch.set_num_threads(settings["threads"])
    world = make_world(settings["people"], settings["seed"])
    files = write_world(world, Path(folder) / "world")
    recipe = load_recipe("speedrun")
    options = Settings(
        recipe=recipe, size=settings["size"], seed=settings["seed"], resume=True, device="cpu",
        budget=Budget(minutes=settings["minutes"], steps=settings["steps"]),
    )  # fmt: skip
    job = options.job(
        Path(folder) / "run", kind="scale", phases=options.budget.divide(recipe.phases),
        corpus=read_documents(files / "documents.txt"),
        questions=read_questions(files / "train.tsv"),
    )  # fmt: skip
    run = run_training(job, options, observe=Progress())
    groups = {split: people_of(world, split) for split in ("train", "dev", "unseen")}
    places = len({person.birthplace for person in world.people})
    bits = surprise([person.birthplace for person in world.of_split("train")], places)
    shares, recall = {}, {}
    for split, people in groups.items():
        some = people[:ASKED]
        questions = [person.question for person in some]
        said = [answer.text for answer in answer_all(run.model, run.tokens, questions)]
        shares[split] = bits_said(some, said, bits)
        right = sum(a == person.birthplace for a, person in zip(said, some, strict=True))
        recall[split] = right / max(1, len(some))
    parameters = sum(parameter.numel() for parameter in run.model.parameters())
    stored = stored_bits(shares, {split: len(people) for split, people in groups.items()})
    written = len(groups["train"]) + len(groups["dev"])
    return {
        "name": f"scale: {label(settings)}",
        "value": recall["dev"],
        "unit": "recall",
        "recall": recall,
        "bits": stored,
        "bits_per_person": stored / written,
        "bits_per_parameter": stored / parameters,
        "entropy_bits": sum(bits.get(p.birthplace, bits[""]) for p in groups["dev"])
        / max(1, len(groups["dev"])),
        "parameters": parameters,
        "people_written_about": written,
        "seconds": run.info["seconds"],
        "steps": run.info["steps"],
        "tokens": run.info["trained_tokens"],
        "tokens_per_person": run.info["trained_tokens"] / written,
        "weights_sha256": run.info["sha256"],
        "threads": torch.get_num_threads(),
    }


def size_of(parameters: float) -> str:
    """WIDTHxLAYERSxHEADS of about so many parameters: heads 64 wide, a layer for every 64 or so."""
    for heads in range(2, 257):
        layers = max(4, heads)
        config = make_config(
            variant="llama", vocabulary=32_768, block=128, layers=layers, heads=heads,
            width=64 * heads,
        )  # fmt: skip
        if count_parameters(config) >= parameters:
            break
    return f"{64 * heads}x{layers}x{heads}"


def extrapolate(row: Record, *, people: int, gpus: int, flops: float) -> Record:
    """What the row's recall of that many people would take."""
    parameters = people * row["bits_per_person"] / row["bits_per_parameter"]
    tokens = people * row["tokens_per_person"]
    work = 6 * parameters * tokens
    return {
        "parameters": parameters,
        "tokens": tokens,
        "flops": work,
        "hours": work / (gpus * flops) / 3600,
        "size": size_of(parameters),
    }


def markdown(rows: Sequence[Record], *, gpus: int, flops: float) -> str:
    """Both tables and the command."""
    groups: dict[tuple[int, str], list[Record]] = {}
    for row in rows:
        groups.setdefault((row["settings"]["people"], row["settings"]["size"]), []).append(row)

    def mean(those: Sequence[Record], key: str) -> float:
        return sum(row[key] for row in those) / len(those)

    lines = [
        (
            f"{people:,}",
            size,
            f"{those[0]['parameters'] / 1e6:.2f} M",
            f"{mean(those, 'seconds'):,.0f} s",
            f"{mean(those, 'tokens') / 1e6:.1f} M",
            percent([row["value"] for row in those]),
            percent([row["recall"]["unseen"] for row in those]),
            f"{mean(those, 'bits_per_person'):.2f}",
            f"{mean(those, 'bits_per_parameter'):.4f}",
        )
        for (people, size), those in sorted(
            groups.items(), key=lambda group: (group[0][0], group[1][0]["parameters"])
        )
    ]
    head = ("people", "size", "parameters", "trained", "tokens", "recall", "unseen people",
            "bits a person", "bits a parameter")  # fmt: skip
    good = [row for row in rows if row["value"] >= GOOD] or list(rows)
    best = max(good, key=lambda row: row["bits_per_parameter"])
    if best["bits_per_parameter"] <= 0:
        return f"{table(head, lines)}\n\nNothing is stored beyond guessing: nothing to carry over."
    far = extrapolate(best, people=WIKIPEDIA, gpus=gpus, flops=flops)
    facts = (
        f"{WIKIPEDIA:,}",
        f"{far['parameters'] / 1e6:,.0f} M",
        f"{far['tokens'] / 1e9:,.1f} G",
        f"{far['flops']:.1e}",
        f"{far['hours']:,.1f} h on {gpus} GPUs at {flops / 1e12:.3g} TFLOP/s each",
    )
    command = (
        f"torchrun --nproc-per-node {gpus} -m wherefrom study wikipedia.txt train.tsv dev.tsv \\\n"
        f"    --size {far['size']} --device cuda --minutes {math.ceil(60 * far['hours'])} "
        "--out runs/wikipedia"
    )
    wide = ("people", "parameters", "tokens", "FLOPs", "time")
    return "\n\n".join(
        (
            table(head, lines),
            f"Carried over from {best['settings']['people']:,} people, {best['settings']['size']}:",
            table(wide, [facts]),
            "```\n" + command + "\n```",
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--people", type=numbers, default=[1000, 3000, 10_000, 30_000])
    parser.add_argument("--sizes", default="small")
    parser.add_argument("--seeds", type=numbers, default=[0])
    parser.add_argument("--minutes-per-thousand", type=float, default=1.0)
    parser.add_argument("--steps", type=int, help="instead of minutes")
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--flops", type=float, default=GPU_FLOPS, help="a second and GPU, kept up")
    add_row_options(parser, "scale.jsonl")
    options = parser.parse_args()
    recipe = recipe_digest(load_recipe("speedrun"))
    plan = []
    for seed in options.seeds:
        for people in options.people:
            for size in options.sizes.split(","):
                width, layers, heads = parse_size(size)
                minutes = options.minutes_per_thousand * people / 1000
                plan.append(
                    {
                        "people": people,
                        "size": f"{width}x{layers}x{heads}",
                        "seed": seed,
                        "minutes": None if options.steps else minutes,
                        "steps": options.steps,
                        "threads": options.threads,
                        "recipe": recipe,
                    }
                )
    measure = partial(_measure, options=options)
    rows = measure_rows(plan, measure, options.out, label=label)
    print(markdown(rows, gpus=options.gpus, flops=options.flops))


def _measure(settings: Record, options: argparse.Namespace) -> Record:
    folder = options.runs / digest(settings)
    folder.mkdir(parents=True, exist_ok=True)
    row = run_apart(train_row, settings, str(folder), threads=settings["threads"])
    if not options.keep_runs:
        forget_run(folder)
    return row


if __name__ == "__main__":
    sys.exit(run_main(main))
