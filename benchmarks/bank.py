"""A bank: a run trained again on random halves of its subjects, and what each model answers.

    python benchmarks/bank.py RUN --out BANK [--models 32] [--repeats 8]

Models are trained one after another and are not kept; repeat the command to continue a stopped
bank. `benchmarks/attribution.py --bank BANK` judges scores of lines by it. BANK holds

    bank.json        {"format": 1, "run": SHA-256 of the run's weights}
    questions.jsonl  a judged question a line: question, subject, right (the right answer or null),
                     answer (the run's), seen (a document is about the subject)
    models.jsonl     a model a line: half (its number), seed (0, or that of a repeated half),
                     without (the lines left out), log_probability (of the run's answer to every
                     question, in the order of questions.jsonl), answers (the model's own)
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rows import Record, run_main, say

from wherefrom.corpus.documents import Document
from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.split import JUDGED, read_subjects
from wherefrom.errors import UserError
from wherefrom.provenance.attribution.retraining import LearnedRun, open_learned, outcome
from wherefrom.storage import make_folder, read_json, write_json, write_whole
from wherefrom.training.run_folder import Run, load_run

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


def bank_questions(learned: LearnedRun) -> list[Record]:
    """The questions about judged subjects, with what the run answers."""
    judged = [s for s in read_subjects(learned.run.folder) if s.role == JUDGED]
    if not judged:
        raise UserError(f"{learned.run.folder} has no judged subjects to ask about.")
    answers = outcome(learned.run, [s.question for s in judged])["answers"]
    read_about = set(learned.subjects)
    return [
        {
            "question": subject.question,
            "subject": subject.subject,
            "right": subject.answer,
            "answer": answer,
            "seen": fold_words(subject.subject) in read_about,
        }
        for subject, answer in zip(judged, answers, strict=True)
    ]


def fill_bank(
    run: Run,
    out: Path,
    *,
    models: int = 32,
    repeats: int = 8,
    say: Callable[[str], None] = lambda _: None,
) -> Bank:
    """Train the models that a bank lacks, one after another; a stopped bank is continued.

    repeats: how many of the halves are trained once more, from another start in another order.
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
    questions = bank_questions(learned)
    subjects = sorted(set(learned.subjects))
    make_folder(out)
    write_json(out / BANK, about)
    write_lines(out / QUESTIONS, questions)
    rows = read_lines(out / MODELS)
    done = {(row["half"], row["seed"]) for row in rows}
    wanted = [(half, 0) for half in range(models)] + [(half, OTHER_SEED) for half in range(repeats)]
    for half, seed in wanted:
        if (half, seed) not in done:
            say(f"training on half {half + 1}" + (", from another start" if seed else ""))
            order = np.random.default_rng([0xBA4C, half]).permutation(len(subjects))
            without = learned.lines_about({subjects[i] for i in order[: len(subjects) // 2]})
            row = ask_twin(learned, questions, without, out / "model", seed=seed)
            rows.append({"half": half, **row})
            write_lines(out / MODELS, rows)
    return read_bank(out)


def ask_twin(
    learned: LearnedRun,
    questions: Sequence[Record],
    without: Collection[int],
    folder: Path,
    *,
    seed: int = 0,
) -> Record:
    """Train a model without some lines, score the run's answers by it, and delete it."""
    twin = learned.retrain(without, folder, seed=seed)
    texts, answers = ([row[key] for row in questions] for key in ("question", "answer"))
    scored = outcome(twin, texts, answers)
    shutil.rmtree(folder)
    return {"without": sorted(without), "seed": seed, **scored}


def read_bank(out: Path) -> Bank:
    """The bank in a folder."""
    if not (out / MODELS).is_file() or not (out / QUESTIONS).is_file():
        raise UserError(f"{out} holds no bank; make one with benchmarks/bank.py.")
    rows = sorted(read_lines(out / MODELS), key=lambda row: int(row["half"]))
    models, repeated = ([r for r in rows if bool(r["seed"]) == again] for again in (False, True))
    return Bank(read_lines(out / QUESTIONS), models, repeated)


def read_lines(path: Path) -> list[Record]:
    """The records of a JSONL file, none if it does not exist."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def write_lines(path: Path, rows: Sequence[Record]) -> None:
    write_whole(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="folder of the bank")
    parser.add_argument("--models", type=int, default=32, help="each on a random half")
    parser.add_argument("--repeats", type=int, default=8, help="halves trained once more")
    args = parser.parse_args()
    bank = fill_bank(
        load_run(args.run), args.out, models=args.models, repeats=args.repeats, say=say
    )
    say(
        f"{len(bank.models)} models and {len(bank.repeated)} repeated ones, asked "
        f"{len(bank.questions)} questions: {args.out}"
    )


if __name__ == "__main__":
    raise SystemExit(run_main(main))
