"""A run with what it learned, to be trained again quietly; and a bank of such models.

docs/trace.md has the format of a bank: `bank.json`, `questions.jsonl`, `models.jsonl`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from wherefrom.corpus.documents import Corpus, Document
from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.questions import Question, read_questions
from wherefrom.corpus.subjects import JUDGED, read_subjects
from wherefrom.corpus.tokenizer import MASK
from wherefrom.errors import UserError
from wherefrom.provenance.signals.likelihood import encode_answers, score_answers
from wherefrom.provenance.verdicts import shorten
from wherefrom.recall.decode import answer_all, encode_prompts
from wherefrom.storage import make_folder, read_json, write_json, write_whole
from wherefrom.training.loop import Observer, run_training
from wherefrom.training.run_folder import (
    Run,
    find_source,
    read_learned_documents,
    read_learned_questions,
)
from wherefrom.training.settings import Runtime, twin_job
from wherefrom.training.sources import TrainingData

NOISE_SHARE = 0.95  # of what cannot matter lies below the noise floor
Record = dict[str, Any]
Row = tuple[Tensor, Tensor]  # token ids and loss weights
Count = Callable[[str, int], Callable[[int], None]]  # shows how much of a number is done


def no_count(what: str, total: int) -> Callable[[int], None]:
    return lambda more: None


@dataclass(frozen=True, eq=False)
class LearnedRun:
    """A run, its text, the questions that it learned, and its dev questions if they are there."""

    run: Run
    corpus: Corpus
    questions: tuple[Question, ...]
    dev: tuple[Question, ...]

    @property
    def documents(self) -> Sequence[Document]:
        return self.corpus.documents

    @cached_property
    def data(self) -> TrainingData:
        """All of it in tokens, as it was trained on."""
        block = self.run.model.config.block
        return TrainingData.encode(self.documents, self.questions, self.run.tokens, block)

    def documents_about(self, name: str) -> tuple[Document, ...]:
        """The documents about a subject, or a sentence with the nearest names."""
        wanted = fold_words(name)
        found = tuple(d for d in self.documents if wanted and fold_words(d.subject) == wanted)
        if not found:
            near = get_close_matches(name, {d.subject for d in self.documents}, cutoff=0.6)
            raise UserError(
                f'no document is about "{shorten(name)}", so there is nothing to leave out; '
                f"near names: {', '.join(sorted(near)) or 'none'}."
            )
        return found

    def retrain(
        self,
        without: Collection[int],
        folder: Path,
        *,
        seed: int = 0,
        settings: Runtime | None = None,
        observe: Observer | None = None,
    ) -> Run:
        """The run once more without the documents on those lines; a finished twin is loaded.

        seed: added to the run's, for another start and another order.
        """
        unknown = sorted(set(without) - {document.line for document in self.documents})
        if unknown:
            raise UserError(f"{self.corpus.path} has no document on line {unknown[0]}.")
        job = {**self.run.info["job"], "seed": self.run.info["job"]["seed"] + seed}
        make_folder(folder.parent)
        twin = twin_job(
            replace(self.run, info={**self.run.info, "job": job}),
            self.documents,
            self.questions,
            folder,
            without,
        )
        settings = settings or Runtime(device="cpu", resume=True)
        return run_training(twin, settings, observe=observe)


def open_learned(run: Run) -> LearnedRun:
    """The run with what it learned, or a sentence why it cannot be trained again."""
    if run.info["job"].get("without"):
        forgot = run.info["kind"] == "forgotten"
        which = "has forgotten some of what it read" if forgot else "is a twin itself"
        raise UserError(f"{run.folder} {which}; give the run that it was made of.")
    read, asked, dev = (find_source(run, what) for what in ("corpus", "questions", "dev"))
    if read is None or asked is None or not read.folder == asked.folder == run.folder:
        raise UserError(
            f"{run.folder} did not learn documents and questions in one training, so nothing can "
            "be left out of it or traced; give a run that study made."
        )
    corpus, learned = read_learned_documents(read), read_learned_questions(asked).questions
    held: tuple[Question, ...] = ()
    with suppress(UserError):  # without the file nobody else is compared
        held = read_questions(dev.locate(), run.templates).questions if dev else ()
    return LearnedRun(run, corpus, learned, held)


def likelihoods(run: Run, questions: Sequence[str], answers: Sequence[str]) -> list[float]:
    """log p of each answer to its question, with the mark that ends it."""
    prompts = encode_prompts(run.model, run.tokens, questions)
    found = score_answers(run.model, prompts, encode_answers(run.tokens, answers))
    return [float(value) for value in found]


def outcome(run: Run, questions: Sequence[str], answers: Sequence[str] | None = None) -> Record:
    """A model's own `answers` to questions, and `log_probability` of them or of given answers."""
    said = [each.text for each in answer_all(run.model, run.tokens, questions)]
    found = likelihoods(run, questions, said if answers is None else answers)
    return {"log_probability": [round(value, 4) for value in found], "answers": said}


def compare_others(learned: LearnedRun, twin: Run, but: Collection[str]) -> Record:
    """How many dev answers about others it read of a twin changes, and 19 in 20 changes of log p.

    Answers about subjects without a document change with any change of the text, and do not count.
    """
    run = learned.run
    read = {fold_words(document.subject) for document in learned.documents}
    read -= {fold_words(name) for name in but}
    asked = [q.text for q in learned.dev if fold_words(q.subject) in read]
    if not asked:
        return {"others": {"people": 0, "other_answer": 0}, "noise_floor": None}
    ours = outcome(run, asked)
    theirs = outcome(twin, asked, ours["answers"])
    changed = np.not_equal(ours["answers"], theirs["answers"]).sum()
    gaps = np.abs(np.subtract(ours["log_probability"], theirs["log_probability"]))
    return {
        "others": {"people": len(asked), "other_answer": int(changed)},
        "noise_floor": round(float(np.quantile(gaps, NOISE_SHARE)), 4),
    }


def answer_row(run: Run, question: str, answer: str) -> Row:
    """Token ids and weights of a question with its answer: the weights are 1 on the answer."""
    prompt, said = run.tokens.encode_all([question, answer])
    ids = [*prompt, MASK, *said, MASK]
    if len(ids) - 1 > run.model.config.longest_input:
        raise UserError(
            f"the question and its answer have {len(ids)} tokens and this model reads "
            f"{run.model.config.longest_input}; ask a shorter one."
        )
    weights = torch.ones(len(ids))
    weights[: len(prompt) + 1] = 0
    return torch.tensor(ids), weights


def invent_names(documents: Sequence[Document], count: int, seed: int = 0) -> list[str]:
    """Names that no document is about: the first words of one subject, the last of another."""
    parts = [document.subject.split() for document in documents if document.subject.strip()]
    known, rng = {fold_words(" ".join(words)) for words in parts}, np.random.default_rng(seed)
    found: list[str] = []
    for first, last in rng.integers(len(parts), size=(20 * count, 2)) if parts else ():
        name = " ".join([*(parts[first][:-1] or parts[first]), parts[last][-1]])
        if fold_words(name) not in known and len(found) < count:
            found.append(name)
    return found


def pad_rows(rows: Sequence[Row]) -> Row:
    """Rows of different lengths as one batch; what is added counts nothing."""
    longest = max(len(ids) for ids, _ in rows)
    pads = [(F.pad(i, (0, longest - len(i))), F.pad(w, (0, longest - len(w)))) for i, w in rows]
    return torch.stack([ids for ids, _ in pads]), torch.stack([weights for _, weights in pads])


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
    judged = [each for each in read_subjects(learned.run.folder) if each.role == JUDGED]
    if not judged:
        raise UserError(f"{learned.run.folder} has no judged subjects to ask about.")
    subjects = {fold_words(document.subject) for document in learned.documents}
    said = outcome(learned.run, [each.question for each in judged])["answers"]
    return [
        {
            "question": each.question,
            "subject": each.subject,
            "right": each.answer,
            "answer": answer,
            "seen": fold_words(each.subject) in subjects,
        }
        for each, answer in zip(judged, said, strict=True)
    ]


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
    questions = bank_questions(learned)
    subjects = sorted({fold_words(document.subject) for document in learned.documents})
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
