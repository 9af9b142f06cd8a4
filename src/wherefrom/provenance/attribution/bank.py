"""A bank of models, each trained quietly on a random half of the documents: the truth for scores.

DIR/questions.jsonl, one line per question, in the order that all models are asked:

    question, subject, right     what is asked, and the right answer if it is known
    answer                       what the run itself says
    seen                         whether a document is about the subject

DIR/models.jsonl, one line per model:

    half                         the number of the random half of the subjects that it left out
    without                      the lines of the documents about them
    seed                         0: the run's own start and order; otherwise added to the run's seed
    log_probability              log p of the run's answer to each question
    answers                      what the model itself answers

DIR/bank.json says which run it is of. The weights are not kept.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wherefrom.corpus.documents import Document
from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.subjects import JUDGED, read_subjects
from wherefrom.errors import UserError
from wherefrom.provenance.attribution.retraining import LearnedRun, likelihoods, open_learned
from wherefrom.recall.decode import answer_all
from wherefrom.storage import make_folder, read_json, write_json, write_whole
from wherefrom.training.loop import Observer
from wherefrom.training.run_folder import Run

BANK, QUESTIONS, MODELS = "bank.json", "questions.jsonl", "models.jsonl"
FORMAT = 1
OTHER_SEED = 1_000_003  # added to the run's for a repeated half
Record = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Bank:
    """A bank that was read: its questions, its models, and those of repeated halves."""

    questions: list[Record]
    models: list[Record]
    repeated: list[Record]

    def kept(self, documents: Sequence[Document]) -> NDArray[np.float64]:
        """(models, documents): 1 where a model was trained on a document."""
        lines = [document.line for document in documents]
        gone = [set(model["without"]) for model in self.models]
        return np.array([[float(line not in each) for line in lines] for each in gone])


def draw_half(documents: Sequence[Document], number: int) -> list[int]:
    """The lines that half `number` leaves out: those of a random half of the subjects."""
    subjects = sorted({fold_words(document.subject) for document in documents})
    order = np.random.default_rng([0xBA4C, number]).permutation(len(subjects))
    gone = {subjects[at] for at in order[: len(subjects) // 2]}
    return [document.line for document in documents if fold_words(document.subject) in gone]


def fill_bank(
    run: Run,
    out: Path,
    *,
    models: int = 32,
    repeats: int = 8,
    observe: Observer | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Bank:
    """Train what is missing of a bank, one model after another; a stopped one goes on.

    repeats: of the halves, so many are trained once more from another start in another order.
    """
    if models < 2 or not 0 <= repeats <= models:
        raise UserError(
            "a bank needs at least 2 models, and no more repeated halves than models; "
            f"it was given {models} and {repeats}."
        )
    learned = open_learned(run)
    about = {"format": FORMAT, "run": run.info["sha256"]}
    if (out / BANK).exists() and read_json(out / BANK) != about:
        raise UserError(f"{out} holds the bank of another run; choose another --out.")
    make_folder(out)
    write_json(out / BANK, about)
    questions = ask_run(learned)
    write_whole(out / QUESTIONS, "".join(_line(row) for row in questions))
    rows = _read_lines(out / MODELS)
    write_whole(out / MODELS, "".join(_line(row) for row in rows))  # without one that was cut
    done = {(row["half"], row["seed"]) for row in rows}
    wanted = [(half, 0) for half in range(models)] + [(half, OTHER_SEED) for half in range(repeats)]
    for half, seed in wanted:
        if (half, seed) not in done:
            say(f"training on half {half + 1}" + (", from another start" if seed else ""))
            without = draw_half(learned.documents, half)
            row = ask_twin(learned, questions, without, out / "model", seed=seed, observe=observe)
            with (out / MODELS).open("a", encoding="utf-8") as file:
                file.write(_line({"half": half, **row}))
    return read_bank(out)


def ask_run(learned: LearnedRun) -> list[Record]:
    """The questions of all judged subjects, with what the run answers."""
    run = learned.run
    asked = [each for each in read_subjects(run.folder) if each.role == JUDGED]
    if not asked:
        raise UserError(f"{run.folder} has no judged subjects to ask about.")
    said = answer_all(run.model, run.tokens, [each.question for each in asked])
    read = {fold_words(document.subject) for document in learned.documents}
    return [
        {
            "question": each.question,
            "subject": each.subject,
            "right": each.answer,
            "answer": answer.text,
            "seen": fold_words(each.subject) in read,
        }
        for each, answer in zip(asked, said, strict=True)
    ]


def ask_twin(
    learned: LearnedRun,
    questions: Sequence[Record],
    without: Collection[int],
    folder: Path,
    *,
    seed: int = 0,
    observe: Observer | None = None,
) -> Record:
    """What a model trained without some lines thinks of the run's answers; then it is deleted."""
    twin = learned.retrain(without, folder, seed=seed, observe=observe)
    texts = [row["question"] for row in questions]
    found = likelihoods(twin, texts, [row["answer"] for row in questions])
    said = answer_all(twin.model, twin.tokens, texts)
    shutil.rmtree(folder)
    return {
        "without": sorted(without),
        "seed": seed,
        "log_probability": [round(value, 4) for value in found],
        "answers": [answer.text for answer in said],
    }


def read_bank(out: Path) -> Bank:
    """The bank in a folder."""
    if not (out / MODELS).is_file() or not (out / QUESTIONS).is_file():
        raise UserError(f"{out} holds no bank; make one with `wherefrom bank`.")
    models = _read_lines(out / MODELS)
    first = sorted((row for row in models if not row["seed"]), key=lambda row: int(row["half"]))
    again = sorted((row for row in models if row["seed"]), key=lambda row: int(row["half"]))
    return Bank(_read_lines(out / QUESTIONS), first, again)


def _line(row: Record) -> str:
    return json.dumps(row, ensure_ascii=False) + "\n"


def _read_lines(path: Path) -> list[Record]:
    """The whole lines of a file; one that a kill cut short is left out."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        with suppress(ValueError):
            rows.append(json.loads(line))
    return rows
