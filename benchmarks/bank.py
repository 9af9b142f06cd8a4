"""A bank: a run trained again without random parts of its text, and what each model answers.

    python benchmarks/bank.py RUN --out BANK [--models 32] [--repeats 8]
    python benchmarks/bank.py RUN --out BANK --share 0.05 --lines --models 40 --repeats 8

A model is trained without a random share of the subjects (half of them by default), or of the
lines. The text is dealt out anew whenever it is used up, so that everything is left out equally
often. Models are trained one after another and are not kept; repeat the command to continue a
stopped bank. `benchmarks/attribution.py --bank BANK` judges scores of lines by it. BANK holds

    bank.json        {"format": 2, "run": SHA-256 of the run's weights, "share": what a model is
                     trained without, "unit": "subjects" or "lines"}
    questions.jsonl  a judged question a line: question, subject, right (the right answer or null),
                     answer (the run's), log_probability (of this answer by the run), seen (a
                     document is about the subject)
    models.jsonl     a model a line: number, seed (0, or that of a repeated model), without (the
                     lines left out), log_probability (of the run's answer to every question, in the
                     order of questions.jsonl), answers (the model's own)
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
from wherefrom.provenance.attribution.opening import open_learned
from wherefrom.provenance.attribution.retraining import LearnedRun, answers_of
from wherefrom.storage import make_folder, read_json, write_json, write_whole

BANK, QUESTIONS, MODELS = "bank.json", "questions.jsonl", "models.jsonl"
FORMAT = 2
OTHER_SEED = 1_000_003  # added to the run's for a repeated model


@dataclass(frozen=True, eq=False)
class Bank:
    """A bank that was read: its questions, its models, and those that were repeated."""

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
    said = answers_of(learned.run, [s.question for s in judged])
    read_about = set(learned.subjects)
    return [
        {
            "question": subject.question,
            "subject": subject.subject,
            "right": subject.answer,
            "answer": answer,
            "log_probability": log_p,
            "seen": fold_words(subject.subject) in read_about,
        }
        for subject, answer, log_p in zip(
            judged, said["answers"], said["log_probability"], strict=True
        )
    ]


@dataclass(frozen=True)
class BankPlan:
    """What the models of a bank are trained without, and how many there are.

    share: of the subjects or, if `by_lines`, of the lines. repeats: how many models are trained
    once more, from another start in another order.
    """

    models: int = 32
    repeats: int = 8
    share: float = 0.5
    by_lines: bool = False

    def __post_init__(self) -> None:
        if self.models < 2 or not 0 <= self.repeats <= self.models:
            raise UserError(
                "a bank needs at least 2 models, and no more repeated models than models; "
                f"it was given {self.models} and {self.repeats}."
            )
        if not 0 < self.share <= 0.5:
            raise UserError(f"--share must be above 0 and at most 0.5, not {self.share}.")

    def lines_without(self, learned: LearnedRun, number: int) -> list[int]:
        """The lines that a model is trained without."""
        subjects = sorted(set(learned.subjects))
        lines = [document.line for document in learned.documents]
        count = len(lines) if self.by_lines else len(subjects)
        size = max(1, int(self.share * count))
        deal, hand = divmod(number, count // size)
        order = np.random.default_rng([0xBA4C, deal]).permutation(count)
        chosen = order[hand * size : (hand + 1) * size].tolist()
        if self.by_lines:
            return sorted(lines[i] for i in chosen)
        return learned.lines_about({subjects[i] for i in chosen})


def fill_bank(
    learned: LearnedRun, out: Path, plan: BankPlan, say: Callable[[str], None] = lambda _: None
) -> Bank:
    """Train the models that a bank lacks, one after another; a stopped bank is continued."""
    about: Record = {"format": FORMAT, "run": learned.run.record.sha256, "share": plan.share}
    about["unit"] = "lines" if plan.by_lines else "subjects"
    if (out / BANK).exists() and read_json(out / BANK) != about:
        raise UserError(f"{out} holds the bank of another run or share; choose another --out.")
    questions = bank_questions(learned)
    make_folder(out)
    write_json(out / BANK, about)
    write_lines(out / QUESTIONS, questions)
    rows = read_lines(out / MODELS)
    done = {(row["number"], row["seed"]) for row in rows}
    wanted = [(number, 0) for number in range(plan.models)]
    wanted += [(number, OTHER_SEED) for number in range(plan.repeats)]
    for number, seed in wanted:
        if (number, seed) not in done:
            say(f"training model {number + 1}" + (", from another start" if seed else ""))
            without = plan.lines_without(learned, number)
            row = ask_twin(learned, questions, without, out / "model", seed=seed)
            rows.append({"number": number, **row})
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
    scored = answers_of(twin, texts, answers)
    shutil.rmtree(folder)
    return {"without": sorted(without), "seed": seed, **scored}


def read_bank(out: Path) -> Bank:
    """The bank in a folder."""
    if not (out / MODELS).is_file() or not (out / QUESTIONS).is_file():
        raise UserError(f"{out} holds no bank; make one with benchmarks/bank.py.")
    rows = sorted(read_lines(out / MODELS), key=lambda row: int(row["number"]))
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
    parser.add_argument("--models", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=8, help="models trained once more")
    parser.add_argument("--share", type=float, default=0.5, help="left out of each model")
    parser.add_argument("--lines", action="store_true", help="leave out lines, not subjects")
    args = parser.parse_args()
    plan = BankPlan(args.models, args.repeats, args.share, args.lines)
    bank = fill_bank(open_learned(args.run), args.out, plan, say)
    say(
        f"{len(bank.models)} models and {len(bank.repeated)} repeated ones, asked "
        f"{len(bank.questions)} questions: {args.out}"
    )


if __name__ == "__main__":
    raise SystemExit(run_main(main))
