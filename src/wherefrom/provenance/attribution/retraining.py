"""A run with what it learned: what a trace, twins and forgetting need of it.

`own_run.py` implements it for models of ours, `base_run.py` for models that others trained, and
`opening.py` opens either. Rows are token ids with the weights of their losses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
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
from wherefrom.corpus.folding import FoldedName, fold_words
from wherefrom.corpus.questions import Question
from wherefrom.errors import UserError, shorten
from wherefrom.model.interface import LanguageModel
from wherefrom.model.own import OwnModel
from wherefrom.provenance.audited import BaseRun
from wherefrom.provenance.signals.likelihood import encode_answers, score_answers
from wherefrom.provenance.signals.reader import relation_of
from wherefrom.recall.decode import answer_all, encode_prompts
from wherefrom.training.loop import Observer, Say
from wherefrom.training.run_folder import Run
from wherefrom.training.settings import Runtime

NOISE_SHARE = 0.95  # of what cannot matter lies below the noise floor
Record = dict[str, Any]
Row = tuple[Tensor, Tensor]  # token ids and loss weights


@dataclass(eq=False)
class Continuation:
    """A finished training that goes on without some lines, to forget them.

    losses: of its next batches. optimizers: each group has its rate as `base_lr`. near_rows: rows
    near what is to be forgotten that each step repeats.
    """

    model: LanguageModel
    parameters: list[torch.nn.Parameter]
    losses: Iterator[Tensor]
    optimizers: Sequence[torch.optim.Optimizer]
    steps: int
    near_rows: int = 0


@dataclass(frozen=True, eq=False)
class LearnedRun(ABC):
    """A run, its text, the questions that it learned, and its dev questions if they are there."""

    run: Run
    corpus: Database
    questions: tuple[Question, ...]
    dev: tuple[Question, ...]

    # ---- what an implementation gives

    @abstractmethod
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

    @abstractmethod
    def training_rows(
        self, only: Collection[int] | None = None, examples: int = 1
    ) -> tuple[list[Row], list[list[int]]]:
        """Examples of each training record, and of each the documents that it stands for.

        only: of records that stand for one of these documents.
        """

    @abstractmethod
    def answer_rows(self, question: str, subject: str, answer: str, windows: int = 0) -> list[Row]:
        """The question with its answer, and windows around facts of its relation with them.

        The windows are drawn from all documents, whomever they are about, with the subject's name
        instead of theirs.
        """

    @abstractmethod
    def open_snapshot(self, say: Say) -> LanguageModel:
        """The model at the weights that it kept from a third of its training, or at the end."""

    @abstractmethod
    def continue_training(self, without: Collection[int]) -> Continuation:
        """The training that goes on, from the run's weights, without the loss of some lines."""

    @abstractmethod
    def save_model(self, model: LanguageModel, out: Path) -> Record:
        """Write a model of this kind into `out`; the fields of run.json that say which it is."""

    @property
    def is_in_nats(self) -> bool:
        """Whether pushes in nats were measured for runs of this kind."""
        return False

    # ---- what follows from it

    @property
    def documents(self) -> Sequence[Document]:
        return self.corpus.documents

    @cached_property
    def subjects(self) -> list[FoldedName]:
        """The folded name that each document is about."""
        return [fold_words(document.subject) for document in self.documents]

    def relation_id(self, question: str, subject: str) -> int:
        """The number of the relation that a question asks for; 0 if the text has none such."""
        query = "SELECT id FROM relations WHERE template = ?"
        found = self.corpus.fetch(query, relation_of(question, subject)) if subject else []
        return found[0][0] if found else 0

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


def likelihoods(run: Run, questions: Sequence[str], answers: Sequence[str]) -> list[float]:
    """log p of each answer to its question, with the token that ends it."""
    if isinstance(run, BaseRun):
        return run.score_answers(questions, answers)
    prompts = encode_prompts(run.model, run.tokens, questions)
    model = OwnModel(run.model, run.tokens)
    return score_answers(model, prompts, encode_answers(run.tokens, answers)).tolist()


def answers_of(run: Run, questions: Sequence[str], answers: Sequence[str] | None = None) -> Record:
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
    of_run = answers_of(learned.run, questions)
    of_twin = answers_of(twin, questions, of_run["answers"])
    changed = np.not_equal(of_run["answers"], of_twin["answers"]).sum()
    gaps = np.abs(np.subtract(of_run["log_probability"], of_twin["log_probability"]))
    return {
        "others": {"people": len(questions), "other_answer": int(changed)},
        "noise_floor": round(float(np.quantile(gaps, NOISE_SHARE)), 4),
    }


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
