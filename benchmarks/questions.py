"""How recall depends on the number of training questions.

    python benchmarks/questions.py CORPUS TRAIN DEV --numbers 20,50,100,200,500,2000 --seeds 0,1,2
    python docs/figures/make.py        draws docs/figures/few-questions.svg

As many training questions of each relation as a number says are drawn (the seed decides which),
and the default recipe is trained as `wherefrom study` does it, without the twin, the confidence and
the judgement. One JSON line for each number and seed: recall of the dev questions, that of the
reader of the text, and CPU seconds of training.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from records import keep

from wherefrom.corpus.facts import read_relations
from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.questions import Question
from wherefrom.corpus.subjects import split_subjects
from wherefrom.recall.decode import answer_all, score
from wherefrom.study import StudyFiles, StudyInput, hold_out_probes, read_input, read_probes
from wherefrom.training.loop import run_training
from wherefrom.training.recipes import load_recipe
from wherefrom.training.settings import Settings


def draw(questions: Sequence[Question], number: int, seed: int) -> tuple[Question, ...]:
    """Up to `number` questions of each relation."""
    order, counts = list(questions), Counter[str]()
    random.Random(1000 + seed).shuffle(order)
    kept = []
    for question in order:
        counts[question.template] += 1
        kept += [question] * (counts[question.template] <= number)
    return tuple(kept)


def measure(given: StudyInput, number: int, seed: int, out: Path) -> dict[str, Any]:
    """Train on that many questions, and ask the dev questions."""
    train = replace(given.train, questions=draw(given.train.questions, number, seed))
    split = split_subjects(given.corpus, train, given.dev, seed=seed)
    split, probes = hold_out_probes(split, seed=seed)
    readings = read_relations(split.corpus.documents, split.train.questions)
    probes = probes or read_probes(split, readings, seed=seed)
    settings = Settings(recipe=load_recipe("speedrun"), seed=seed)
    job = settings.job(
        out,
        kind="study",
        phases=settings.recipe.phases,
        corpus=split.corpus,
        questions=split.train,
        probes=probes,
    )
    before = time.process_time()
    run = run_training(job, settings)
    seconds = time.process_time() - before
    asked = given.dev.questions
    right = [question.answer or "" for question in asked]
    said = [answer.text for answer in answer_all(run.model, run.tokens, [q.text for q in asked])]
    stated = {r.template: r.answers for r in readings}
    read = [stated.get(q.template, {}).get(fold_words(q.subject), ()) for q in asked]
    return {
        "name": f"{number} questions, seed {seed}",
        "value": score(said, right).share,
        "unit": "recall of dev questions",
        "questions": number,
        "learned": len(split.train.questions),
        "seed": seed,
        "asked": len(asked),
        "reader": score([each[0].text if each else "" for each in read], right).share,
        "cpu_seconds": round(seconds, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs=3, type=Path, metavar="CORPUS TRAIN DEV")
    parser.add_argument("--numbers", default="20,50,100,200,500,2000")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--out", default="questions.jsonl")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        given = read_input(StudyFiles(*options.files), Path(folder))
        for seed in map(int, options.seeds.split(",")):
            for number in map(int, options.numbers.split(",")):
                out = Path(folder) / f"{number}-{seed}"
                keep([measure(given, number, seed, out)], options.out)


if __name__ == "__main__":
    main()
