"""A run with what it learned, to be trained again quietly without some of it.

The twin is trained just as the run was, on the same batches in the same order, in which rows made
of the documents that are left out, or of questions about their subjects, count nothing
(training/settings.py).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from wherefrom.corpus.documents import Corpus, Document
from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.questions import Question, read_questions
from wherefrom.errors import UserError
from wherefrom.provenance.signals.likelihood import encode_answers, encode_prompts, score_answers
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

NOISE_SHARE = 0.95  # of the others' answers lie below the noise floor


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
        info = self.run.info
        job = {**info["job"], "seed": info["job"]["seed"] + seed}
        make_folder(folder.parent)
        again = replace(self.run, info={**info, "job": job})
        twin = twin_job(again, self.documents, self.questions, folder, without)
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
    if dev is not None:
        with suppress(UserError):  # without the file nobody else is compared
            held = read_questions(dev.locate(), run.templates).questions
    return LearnedRun(run, corpus, learned, held)


def likelihoods(run: Run, questions: Sequence[str], answers: Sequence[str]) -> list[float]:
    """log p of each answer to its question, with the mark that ends it."""
    prompts = encode_prompts(run.model, run.tokens, questions)
    found = score_answers(run.model, prompts, encode_answers(run.tokens, answers))
    return [float(value) for value in found]


def compare_others(
    run: Run, twin: Run, questions: Sequence[Question], but: Collection[str]
) -> dict[str, Any]:
    """How much the answers to questions differ between a run and its twin, by chance.

    but: subjects that are not asked about. The result has `others` and `noise_floor` as
    leave_one_out.py describes them; the floor is None without others.
    """
    gone = {fold_words(name) for name in but}
    asked = [q.text for q in questions if fold_words(q.subject) not in gone]
    if not asked:
        return {"others": {"people": 0, "other_answer": 0}, "noise_floor": None}
    ours, theirs = (
        [answer.text for answer in answer_all(each.model, each.tokens, asked)]
        for each in (run, twin)
    )
    gaps = np.subtract(likelihoods(run, asked, ours), likelihoods(twin, asked, ours))
    changed = sum(one != other for one, other in zip(ours, theirs, strict=True))
    return {
        "others": {"people": len(asked), "other_answer": changed},
        "noise_floor": round(float(np.quantile(np.abs(gaps), NOISE_SHARE)), 4),
    }
