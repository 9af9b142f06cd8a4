"""A bank of models, each trained quietly on a random half of the documents: the truth for scores.

docs/trace.md has the format: `bank.json`, `questions.jsonl`, `models.jsonl`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wherefrom.corpus.documents import Document
from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.subjects import JUDGED, read_subjects
from wherefrom.errors import UserError
from wherefrom.provenance.attribution.retraining import LearnedRun, Record, open_learned, outcome
from wherefrom.storage import make_folder, read_json, write_json, write_whole
from wherefrom.training.loop import Observer
from wherefrom.training.run_folder import Run

BANK, QUESTIONS, MODELS = "bank.json", "questions.jsonl", "models.jsonl"
FORMAT = 1
OTHER_SEED = 1_000_003  # added to the run's for a repeated half


@dataclass(frozen=True, eq=False)
class Bank:
    """A bank that was read: its questions, its models, and those of repeated halves."""

    questions: list[Record]
    models: list[Record]
    repeated: list[Record]

    def kept(self, documents: Sequence[Document]) -> NDArray[np.float64]:
        """(models, documents): 1 where a model was trained on a document."""
        lines = [document.line for document in documents]
        return np.array([~np.isin(lines, model["without"]) for model in self.models], dtype=float)


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
    judged = [each for each in read_subjects(run.folder) if each.role == JUDGED]
    if not judged:
        raise UserError(f"{run.folder} has no judged subjects to ask about.")
    subjects = sorted({fold_words(document.subject) for document in learned.documents})
    said = outcome(run, [each.question for each in judged])["answers"]
    questions = [
        {
            "question": each.question,
            "subject": each.subject,
            "right": each.answer,
            "answer": answer,
            "seen": fold_words(each.subject) in subjects,
        }
        for each, answer in zip(judged, said, strict=True)
    ]
    make_folder(out)
    write_json(out / BANK, about)
    rows = _read_lines(out / MODELS)  # without one that was cut
    for name, records in ((QUESTIONS, questions), (MODELS, rows)):
        write_whole(out / name, "".join(_line(record) for record in records))
    done = {(row["half"], row["seed"]) for row in rows}
    wanted = [(half, 0) for half in range(models)] + [(half, OTHER_SEED) for half in range(repeats)]
    for half, seed in wanted:
        if (half, seed) not in done:
            say(f"training on half {half + 1}" + (", from another start" if seed else ""))
            order = np.random.default_rng([0xBA4C, half]).permutation(len(subjects))
            gone = {subjects[at] for at in order[: len(subjects) // 2]}
            without = [d.line for d in learned.documents if fold_words(d.subject) in gone]
            row = ask_twin(learned, questions, without, out / "model", seed=seed, observe=observe)
            with (out / MODELS).open("a", encoding="utf-8") as file:
                file.write(_line({"half": half, **row}))
    return read_bank(out)


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
    texts, answers = ([row[key] for row in questions] for key in ("question", "answer"))
    found = outcome(twin, texts, answers)
    shutil.rmtree(folder)
    return {"without": sorted(without), "seed": seed, **found}


def read_bank(out: Path) -> Bank:
    """The bank in a folder."""
    if not (out / MODELS).is_file() or not (out / QUESTIONS).is_file():
        raise UserError(f"{out} holds no bank; make one with `wherefrom bank`.")
    models = sorted(_read_lines(out / MODELS), key=lambda row: int(row["half"]))
    first = [row for row in models if not row["seed"]]
    return Bank(_read_lines(out / QUESTIONS), first, [row for row in models if row["seed"]])


def _line(row: Record) -> str:
    return json.dumps(row, ensure_ascii=False) + "\n"


def _read_lines(path: Path) -> list[Record]:
    """The whole lines of a file; one that a kill cut short is left out."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        with suppress(ValueError):
            rows.append(json.loads(line))
    return rows
