"""A run with what it learned, to be trained again quietly without some of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from wherefrom.corpus.documents import Corpus, Document
from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.questions import Question, read_questions
from wherefrom.errors import UserError
from wherefrom.provenance.signals.likelihood import encode_answers, encode_prompts, score_answers
from wherefrom.provenance.verdicts import shorten
from wherefrom.recall.decode import answer_all
from wherefrom.storage import make_folder
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


@dataclass(frozen=True, eq=False)
class LearnedRun:
    """A run, its text, the questions that it learned, and its dev questions if they are there."""

    run: Run
    corpus: Corpus
    questions: tuple[Question, ...]
    dev: tuple[Question, ...]

    @property
    def documents(self) -> tuple[Document, ...]:
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
        raise UserError(f"{run.folder} is a twin itself; give the run that it is a twin of.")
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


def compare_others(
    run: Run, twin: Run, questions: Sequence[Question], but: Collection[str]
) -> Record:
    """How many questions, but for some subjects, a run and its twin answer otherwise, by chance.

    noise_floor: the change of log p of the run's answer that 19 in 20 stay below; None for nobody.
    """
    gone = {fold_words(name) for name in but}
    asked = [q.text for q in questions if fold_words(q.subject) not in gone]
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
