"""Does a model that read documents first answer questions about them? It depends on the wordings.

    python benchmarks/paraphrases.py [--seeds 0,1,2]

A known pattern (Physics of Language Models 3.1), in minutes on a CPU: people of the embedded world
get one, two or five documents, each in other words, with their four sentences in a fixed order or
shuffled. A model reads the documents as they are (next-token prediction), then learns questions
about half of the people, with the documents repeated. It is asked about the other half, on the
ordered rung: no reader, and no question about them before.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from rows import (
    Progress,
    Record,
    add_row_options,
    measure_trainings,
    numbers,
    percent,
    prepare_training,
    run_main,
    table,
)

DOCUMENTS = (1, 2, 5)  # for each person
PEOPLE, STEPS, OBJECTIVE = 300, 1200, "text"
FIRST_SHARE = 0.8  # of the steps: documents alone
# five wordings of each relation; a person's documents have different ones
SENTENCES = {
    "birthplace": (
        "{name} was born in {birthplace}.",
        "The birthplace of {name} is {birthplace}.",
        "{name} first saw the light of day in {birthplace}.",
        "{birthplace} is where {name} came into the world.",
        "{name}, a native of {birthplace}, never forgot it.",
    ),
    "birth_year": (
        "The birth of {name} fell into the year {birth_year}.",
        "It was {birth_year} when {name} was born.",
        "The year of birth of {name} was {birth_year}.",
        "In {birth_year} the parents of {name} had a child.",
        "{name} belonged to those born in {birth_year}.",
    ),
    "study": (
        "{name} studied in {study}.",
        "{study} is where {name} went to university.",
        "{name} took a degree in {study}.",
        "At the university of {study}, {name} was a student.",
        "{name} received an education in {study}.",
    ),
    "occupation": (
        "{name} worked as a {occupation}.",
        "By profession {name} was a {occupation}.",
        "{name} earned a living as a {occupation}.",
        "People knew {name} as a {occupation}.",
        "The trade of {name} was that of a {occupation}.",
    ),
}
QUESTIONS = {
    "birthplace": "Where was {name} born?",
    "birth_year": "In which year was {name} born?",
    "study": "Where did {name} study?",
    "occupation": "What did {name} do for a living?",
}


def write_files(folder: Path, settings: Record) -> list[Path]:
    """Documents, training questions about one half of the people, dev questions about the other."""
    from wherefrom.corpus.world import make_world

    seed = settings["seed"]
    people = [p for p in make_world(settings["people"], seed).people if not p.namesake]
    rng = Random(f"paraphrases {seed}")
    documents, train, dev = [], [], []
    for number, person in enumerate(people):
        values = {relation: str(getattr(person, relation)) for relation in SENTENCES}
        values["name"] = person.subject
        orders = {relation: rng.sample(range(5), 5) for relation in SENTENCES}
        for copy in range(settings["documents"]):
            relations = list(SENTENCES)
            if settings["shuffled"]:
                rng.shuffle(relations)
            sentences = [SENTENCES[relation][orders[relation][copy]] for relation in relations]
            documents.append(f"{person.subject}. {' '.join(sentences).format_map(values)}\n")
        questions = train if number % 2 else dev
        for relation, question in QUESTIONS.items():
            questions.append(f"{question.format_map(values)}\t{values[relation]}\n")
    for lines in (documents, train, dev):
        rng.shuffle(lines)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, lines in (("documents.txt", documents), ("train.tsv", train), ("dev.tsv", dev)):
        paths.append(folder / name)
        paths[-1].write_text("".join(lines), encoding="utf-8")
    return paths


def make_recipe() -> Any:
    """The recipe `ordered`, with next-token prediction and a fixed number of steps."""
    from wherefrom.training.recipes import Mixture, load_recipe

    recipe = load_recipe("ordered")
    first = round(FIRST_SHARE * STEPS)
    mixtures = (
        Mixture(text=1.0),
        Mixture(question=0.4, text=0.6),
    )
    phases = []
    for phase, mixture, count in zip(recipe.phases, mixtures, (first, STEPS - first), strict=True):
        length = {"steps": count, "minutes": None, "epochs": None}
        phases.append(phase.model_copy(update={"mixture": mixture, **length}))
    return recipe.model_copy(update={"phases": tuple(phases)})


def train_row(settings: Record, folder: Path) -> Record:
    """Train one model and ask it about the people that it has only read about."""
    from wherefrom.training.loop import run_training

    files = write_files(folder, settings)
    prepared, options = prepare_training(files, make_recipe(), settings, folder, set_aside=0.0)
    run = run_training(prepared.job(folder / "run"), options, observe=Progress())
    recall = prepared.recall(run)
    return {
        "name": settings["row"],
        "value": recall.share,
        "unit": "recall",
        "correct": recall.correct,
        "total": recall.total,
        "seconds": run.record.seconds,
        "tokens": run.record.trained_tokens,
    }


def markdown(rows: Sequence[Record]) -> str:
    """Recall by documents for each person, with and without shuffled sentences."""
    recalls: dict[tuple[bool, int], list[float]] = defaultdict(list)
    for row in rows:
        settings = row["settings"]
        recalls[settings["shuffled"], settings["documents"]].append(row["value"])
    lines = []
    for is_shuffled in (False, True):
        cells = [recalls[is_shuffled, count] for count in DOCUMENTS]
        order = "shuffled" if is_shuffled else "fixed"
        lines.append((order, *(percent(cell) if cell else "" for cell in cells)))
    return table(("sentences", *(f"{count} documents" for count in DOCUMENTS)), lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=numbers, default=[0])
    add_row_options(parser, "paraphrases.jsonl")
    options = parser.parse_args()
    plan = [
        {
            "row": f"{OBJECTIVE}, {count} documents, {'shuffled' if is_shuffled else 'fixed'}",
            "objective": OBJECTIVE,
            "documents": count,
            "shuffled": is_shuffled,
            "people": PEOPLE,
            "steps": STEPS,
            "threads": options.threads,
            "seed": seed,
        }
        for is_shuffled in (False, True)
        for count in DOCUMENTS
        for seed in options.seeds
    ]
    print(markdown(measure_trainings(plan, train_row, options)))


if __name__ == "__main__":
    sys.exit(run_main(main))
