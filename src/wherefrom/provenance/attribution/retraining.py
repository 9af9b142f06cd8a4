"""A run with what it learned, to be trained again quietly."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from wherefrom.corpus.database import Database
from wherefrom.corpus.documents import Document
from wherefrom.corpus.facts import read_facts
from wherefrom.corpus.folding import FoldedName, fold_words
from wherefrom.corpus.questions import Question, read_questions
from wherefrom.corpus.tokenizer import MASK
from wherefrom.errors import UserError, shorten
from wherefrom.model.own import OwnModel
from wherefrom.provenance.audited import BaseRun
from wherefrom.provenance.signals.likelihood import encode_answers, score_answers
from wherefrom.recall.decode import answer_all, encode_prompts
from wherefrom.training.learned_files import (
    find_source,
    read_learned_documents,
    read_learned_questions,
)
from wherefrom.training.loop import Observer, run_training
from wherefrom.training.run_folder import Run
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
    corpus: Database
    questions: tuple[Question, ...]
    dev: tuple[Question, ...]

    @property
    def documents(self) -> Sequence[Document]:
        return self.corpus.documents

    @cached_property
    def data(self) -> TrainingData:
        """All of it in tokens, as it was trained on."""
        block = self.run.model.config.block
        return TrainingData.encode(self.corpus, self.questions, self.run.tokens, block)

    @cached_property
    def subjects(self) -> list[FoldedName]:
        """The folded name that each document is about."""
        return [fold_words(document.subject) for document in self.documents]

    def lines_about(self, subjects: Collection[FoldedName]) -> list[int]:
        """The lines of the documents about some subjects."""
        pairs = zip(self.documents, self.subjects, strict=True)
        return [document.line for document, subject in pairs if subject in subjects]

    def documents_about(self, name: str) -> tuple[Document, ...]:
        """The documents about a subject, or a sentence with the nearest names."""
        lines = set(self.lines_about({fold_words(name)} - {()}))
        documents = tuple(document for document in self.documents if document.line in lines)
        if not documents:
            near = get_close_matches(name, {d.subject for d in self.documents}, cutoff=0.6)
            raise UserError(
                f'no document is about "{shorten(name)}", so there is nothing to leave out; '
                f"similar names: {', '.join(sorted(near)) or 'none'}."
            )
        return documents

    def retrain(
        self,
        without: Collection[int],
        folder: Path,
        *,
        seed: int = 0,
        settings: Runtime | None = None,
        observe: Observer | None = None,
    ) -> Run:
        """Train the run again without the documents on those lines, or load it if it is there.

        seed: added to the run's, for another start and another order.
        """
        job = self.run.job.model_copy(update={"seed": self.run.job.seed + seed})
        run = replace(self.run, record=self.run.record.model_copy(update={"job": job}))
        twin = twin_job(run, self.corpus, self.questions, folder, without)
        settings = settings or Runtime(device="cpu", resume=True)
        return run_training(twin, settings, observe=observe)


def open_learned(run: Run) -> LearnedRun:
    """The run with what it learned, or an error if it cannot be trained again."""
    if getattr(run.record.job, "without", ()):
        forgot = run.record.kind == "forgotten"
        which = "has forgotten some of what it read" if forgot else "is a twin itself"
        raise UserError(f"{run.folder} {which}; give the run that it was made of.")
    text, train, dev = (find_source(run, what) for what in ("corpus", "questions", "dev"))
    if text is None or train is None or not text.folder == train.folder == run.folder:
        raise UserError(
            f"{run.folder} did not learn documents and questions in one training, so nothing can "
            "be left out of it or traced; give a run that study made."
        )
    questions = read_learned_questions(train).questions
    corpus = read_facts(read_learned_documents(text), questions)
    dev_questions: tuple[Question, ...] = ()
    with suppress(UserError):  # without the file nobody else is compared
        dev_questions = read_questions(dev.locate(), run.templates).questions if dev else ()
    return LearnedRun(run, corpus, questions, dev_questions)


def likelihoods(run: Run, questions: Sequence[str], answers: Sequence[str]) -> list[float]:
    """log p of each answer to its question, with the token that ends it."""
    if isinstance(run, BaseRun):
        return run.score_answers(questions, answers)
    prompts = encode_prompts(run.model, run.tokens, questions)
    model = OwnModel(run.model, run.tokens)
    return score_answers(model, prompts, encode_answers(run.tokens, answers)).tolist()


def answer_lengths(run: Run, answers: Sequence[str]) -> list[int]:
    """The tokens of each answer, with the one that ends it."""
    if isinstance(run, BaseRun):
        prompt = run.base_job.prompt
        return [len(run.audited.continuation(prompt, answer)) for answer in answers]
    return [len(ids) + 1 for ids in run.tokens.encode_all(answers)]


def outcome(run: Run, questions: Sequence[str], answers: Sequence[str] | None = None) -> Record:
    """A model's own `answers` to questions, and `log_probability` of them or of given answers."""
    if isinstance(run, BaseRun):
        own = run.answer_questions(questions)
    else:
        own = [answer.text for answer in answer_all(run.model, run.tokens, questions)]
    log_p = likelihoods(run, questions, own if answers is None else answers)
    return {"log_probability": [round(value, 4) for value in log_p], "answers": own}


def compare_others(learned: LearnedRun, twin: Run, left_out: Collection[str]) -> Record:
    """How many dev answers about other subjects a twin changes, and 19 in 20 changes of log p.

    Answers about subjects without a document change with any change of the text, and do not count.
    """
    others = set(learned.subjects) - {fold_words(name) for name in left_out}
    questions = [q.text for q in learned.dev if fold_words(q.subject) in others]
    if not questions:
        return {"others": {"people": 0, "other_answer": 0}, "noise_floor": None}
    of_run = outcome(learned.run, questions)
    of_twin = outcome(twin, questions, of_run["answers"])
    changed = np.not_equal(of_run["answers"], of_twin["answers"]).sum()
    gaps = np.abs(np.subtract(of_run["log_probability"], of_twin["log_probability"]))
    return {
        "others": {"people": len(questions), "other_answer": int(changed)},
        "noise_floor": round(float(np.quantile(gaps, NOISE_SHARE)), 4),
    }


def answer_row(run: Run, question: str, answer: str) -> Row:
    """Token ids of a question with its answer, and loss weights: 1 on the answer, else 0."""
    prompt, completion = run.tokens.encode_all([question, answer])
    ids = [*prompt, MASK, *completion, MASK]
    if len(ids) - 1 > run.model.config.longest_input:
        raise UserError(
            f"the question and its answer have {len(ids)} tokens and this model reads "
            f"{run.model.config.longest_input}; ask a shorter one."
        )
    weights = torch.ones(len(ids))
    weights[: len(prompt) + 1] = 0
    return torch.tensor(ids), weights


def recombine_names(
    documents: Sequence[Document], count: int, *, first: str = "", last: str = ""
) -> list[str]:
    """Names that no document is about: the first words of one subject, the last of another.

    first, last: words to take in place of those of a subject.
    """
    parts = [document.subject.split() for document in documents if document.subject.strip()]
    known = {fold_words(" ".join(words)) for words in parts}
    rng = np.random.default_rng(0)
    names: list[str] = []
    for one, other in rng.integers(len(parts), size=(20 * count, 2)) if parts else ():
        beginning = first or " ".join(parts[one][:-1] or parts[one])
        name = f"{beginning} {last or parts[other][-1]}"
        if fold_words(name) not in known and len(names) < count:
            names.append(name)
    return names


def pad_rows(rows: Sequence[Row]) -> Row:
    """Rows of different lengths as one batch; padding has the weight 0."""
    ids, weights = (pad_sequence(list(column), True) for column in zip(*rows, strict=True))
    return ids, weights
