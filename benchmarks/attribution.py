"""How far scores of documents can be believed, judged by models that were really retrained.

    python benchmarks/attribution.py bank RUN --out BANK [--models 32] [--repeats 8]
    python benchmarks/attribution.py flips RUN --out BANK [--made-up 6]
    python benchmarks/attribution.py score RUN --bank BANK

`bank` retrains a run quietly (docs/trace.md) on random halves of its subjects and keeps, as JSON
lines, what each model thinks of the run's own answers to a fixed set of questions: the questions of
dev people, who are in the text, and of unseen people, who are not. `flips` retrains it without the
lines that the gradient method puts on top, and without random ones. `score` compares methods:

    LDS          Spearman's correlation, over the halves, of the sum of a method's scores of what
                 was kept with log p of the answer by the model that was retrained; mean over
                 questions. The ceiling replaces the sum by the log p of a model that was retrained
                 on the same half from another start, in another order.
    MRR, R@10    mean reciprocal rank, and share in the first ten, of the subject's own lines
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rows import Record, run_main, say

from wherefrom.corpus.documents import Document
from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.questions import Question
from wherefrom.corpus.subjects import JUDGED, read_subjects
from wherefrom.errors import UserError
from wherefrom.provenance.attribution.cross_pretraining import likelihoods
from wherefrom.recall.decode import answer_all
from wherefrom.training.jobs import retrain
from wherefrom.training.run_folder import (
    Run,
    find_source,
    load_run,
    read_learned_documents,
    read_learned_questions,
)
from wherefrom.training.settings import Runtime

OTHER_SEED = 1_000_003  # added to the run's for a repeated half


@dataclass(frozen=True)
class Material:
    """A run with what it learned, the questions that models are asked, and its answers to them."""

    run: Run
    documents: tuple[Document, ...]
    learned: tuple[Question, ...]
    asked: tuple[Question, ...]
    answers: tuple[str, ...]

    @classmethod
    def of(cls, folder: Path) -> Material:
        run = load_run(folder)
        corpus, questions = find_source(run, "corpus"), find_source(run, "questions")
        if corpus is None or questions is None:
            raise UserError(f"{folder} did not learn documents and questions in one training.")
        asked = tuple(
            Question(0, each.question, each.subject, each.answer, each.template)
            for each in read_subjects(folder)
            if each.role == JUDGED
        )
        said = answer_all(run.model, run.tokens, [question.text for question in asked])
        return cls(
            run,
            read_learned_documents(corpus).documents,
            read_learned_questions(questions).questions,
            asked,
            tuple(answer.text for answer in said),
        )

    def seen(self) -> list[bool]:
        """Whether a document is about the subject of each question that is asked."""
        subjects = {fold_words(document.subject) for document in self.documents}
        return [fold_words(question.subject) in subjects for question in self.asked]

    def retrain(self, without: Iterable[int], folder: Path, *, seed: int = 0) -> Record:
        """Log p of the run's answers, and the answers, of a model without the documents on lines.

        seed: added to the run's, for another start and order. The weights are not kept.
        """
        info = self.run.info
        job = {**info["job"], "seed": info["job"]["seed"] + seed}
        start = replace(self.run, info={**info, "job": job})
        lines = sorted(without)
        twin = retrain(
            start,
            self.documents,
            self.learned,
            folder,
            without=lines,
            settings=Runtime(device="cpu", resume=True),
        )
        texts = [question.text for question in self.asked]
        said = answer_all(twin.model, twin.tokens, texts)
        found = likelihoods(twin, texts, self.answers)
        shutil.rmtree(folder)
        return {
            "without": lines,
            "seed": seed,
            "log_probability": [round(value, 4) for value in found],
            "answers": [answer.text for answer in said],
        }


def draw_half(documents: Sequence[Document], number: int) -> list[int]:
    """The lines that half `number` leaves out: those of a random half of the subjects."""
    subjects = sorted({fold_words(document.subject) for document in documents})
    order = np.random.default_rng([0xBA4C, number]).permutation(len(subjects))
    gone = {subjects[at] for at in order[: len(subjects) // 2]}
    return [document.line for document in documents if fold_words(document.subject) in gone]


def read_bank(folder: Path, name: str) -> list[Record]:
    path = folder / name
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else ()
    return [json.loads(line) for line in lines]


def append(folder: Path, name: str, row: Record) -> None:
    with (folder / name).open("a", encoding="utf-8") as file:
        file.write(json.dumps(row, ensure_ascii=False) + "\n")


def fill_bank(args: argparse.Namespace) -> int:
    """Train what is missing of the bank, one model after another."""
    material, out = Material.of(args.run), args.out
    out.mkdir(parents=True, exist_ok=True)
    if not (out / "questions.jsonl").exists():
        for at, question in enumerate(material.asked):
            row = {"question": question.text, "subject": question.subject, "right": question.answer}
            append(out, "questions.jsonl", {**row, "answer": material.answers[at]})
    done = {(row["half"], row["seed"]) for row in read_bank(out, "models.jsonl")}
    wanted = [(half, 0) for half in range(args.models)]
    wanted += [(half, OTHER_SEED) for half in range(args.repeats)]
    for half, seed in wanted:
        if (half, seed) in done:
            continue
        row = material.retrain(draw_half(material.documents, half), out / "model", seed=seed)
        append(out, "models.jsonl", {"half": half, **row})
        say(f"half {half}, seed {seed}: done")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(required=True)
    bank = commands.add_parser("bank", help="retrain on random halves")
    bank.add_argument("run", type=Path)
    bank.add_argument("--out", type=Path, required=True)
    bank.add_argument("--models", type=int, default=32)
    bank.add_argument("--repeats", type=int, default=8)
    bank.set_defaults(act=fill_bank)
    args: Any = parser.parse_args(arguments)
    return int(args.act(args))


if __name__ == "__main__":
    run_main(main)
