"""What a model of others learns from: training rows as text, of documents and of questions.

A row is a prompt and an answer, and only the answer has a loss. The rung is `pointed`: the reader
chooses the span of a document that is blanked out, and no row asks a question that is not in the
training file. Three kinds of rows:

    question  a question of the training file
    pointed   Name. left ___ right, around a span that the reader takes for the answer to a
              relation; the words may be those around the same relation's fact in another document
    salient   the same around any name or number, for documents in which the reader reads nothing

Row i of epoch e is a function of the seed, e and i, so that a training goes on anywhere.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from wherefrom.corpus.database import Database
from wherefrom.corpus.documents import Document
from wherefrom.corpus.examples import spans_that_answer
from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.informative import informative_spans
from wherefrom.corpus.questions import Question
from wherefrom.errors import UserError
from wherefrom.model.huggingface import HuggingFaceModel
from wherefrom.model.interface import ASKED, Ids
from wherefrom.training.recipes import Phase, load_recipe
from wherefrom.training.sources import (
    LEAST_MASKED_PROBABILITY,
    LEAST_WORDING_PROBABILITY,
    window_size,
)

RECIPE = "pointed"  # whose windows and rewording the rows have
BLANK = "___"
QUESTION_SHARE = 0.2  # of the rows of an epoch
SORTED_BATCHES = 8  # batches whose rows are sorted by length together, to need less padding


class BlankedFact(NamedTuple):
    """A span of a document that rows blank out; relation: 0 for a span that no relation asks."""

    document: int
    relation: int
    start: int
    end: int


@dataclass(frozen=True)
class TrainingRow:
    """A prompt and the answer behind it, with the indices of the documents that it stands for."""

    prompt: str
    answer: str
    documents: tuple[int, ...]


@dataclass(frozen=True)
class EncodedRow:
    """The tokens of a row, how many of them are the prompt's, and the weight of its loss."""

    ids: Ids
    prompt_length: int
    weight: float


class RowMaker:
    """The training rows of a text and its training questions.

    prompt: what a question or a window is put into, with {question} in its place. without: lines
    of the text whose rows have no loss; questions about subjects that have no other document have
    none either. Everything else stays as it is for the whole text, the order of the rows too.
    """

    def __init__(
        self,
        database: Database,
        questions: Sequence[Question],
        prompt: str,
        *,
        seed: int,
        without: Collection[int] = (),
        reads_documents: bool = True,
    ) -> None:
        self.database, self.prompt, self.seed = database, prompt, seed
        self.questions = [question for question in questions if not question.is_silent]
        self.documents = list(database.documents)
        self.phase: Phase = load_recipe(RECIPE).phases[0]
        self.facts, wordings = find_facts(database) if reads_documents else ([], [])
        self.wordings: dict[int, list[BlankedFact]] = defaultdict(list)
        for fact in wordings:
            self.wordings[fact.relation].append(fact)
        relations = {fact.relation for fact in self.facts} - {0}
        self.window = window_size(self.phase, len(relations) or None)
        self.gone = set(database.documents_on(without))

    def epoch(self, number: int) -> list[TrainingRow]:
        """The rows of an epoch, shuffled: every fact once, and questions by their share."""
        rows = [self.fact_row(i, self._generator(number, i)) for i in range(len(self.facts))]
        count = len(self.questions)
        if rows:
            share = QUESTION_SHARE / (1 - QUESTION_SHARE)
            count = min(count, max(1, round(share * len(rows))))
        # the questions follow each other in one order through the epochs, so all come equally often
        order = np.random.default_rng([self.seed, 1]).permutation(len(self.questions))
        for i in range(number * count, (number + 1) * count):
            rows.append(self.question_row(int(order[i % len(order)])))
        shuffled = np.random.default_rng([self.seed, 2, number]).permutation(len(rows))
        return [rows[i] for i in shuffled]

    def one_of_each(self, epoch: int = 0) -> list[TrainingRow]:
        """Every fact, as an epoch has it, and every question as one row."""
        facts = [self.fact_row(i, self._generator(epoch, i)) for i in range(len(self.facts))]
        return facts + [self.question_row(i) for i in range(len(self.questions))]

    def question_row(self, index: int) -> TrainingRow:
        """The row of a training question, which stands for the documents about its subject."""
        question = self.questions[index]
        about = self.database.documents_about(fold_words(question.subject))
        return TrainingRow(self._ask(question.text), question.answer or "", tuple(about))

    def fact_row(self, index: int, rng: Generator) -> TrainingRow:
        """A fact's row: the name, and words around the blank, perhaps those of another document."""
        fact = worded = self.facts[index]
        document = self.documents[fact.document]
        others = self.wordings.get(fact.relation, [])
        if fact.relation and others and rng.random() < self.phase.reword_prob:
            worded = others[int(rng.integers(len(others)))]
        left, right = self._draw_window(worded, rng)
        source = self.documents[worded.document]
        if source.subject and source.subject != document.subject:  # words about somebody else
            left, right = (side.replace(source.subject, document.subject) for side in (left, right))
        name = f"{document.subject}. " if document.subject else ""
        answer = document.text[fact.start : fact.end]
        return TrainingRow(self._ask(f"{name}{left}{BLANK}{right}"), answer, (fact.document,))

    def rows_asking(
        self, relation: int, subject: str, answer: str, count: int
    ) -> list[TrainingRow]:
        """Windows around facts of a relation, with this name and this answer instead of theirs."""
        wordings = self.wordings.get(relation, []) if relation and subject else []
        rng, rows = np.random.default_rng(0), []
        for _ in range(count if wordings else 0):
            worded = wordings[int(rng.integers(len(wordings)))]
            left, right = self._draw_window(worded, rng)
            other = self.documents[worded.document].subject
            if other:
                left, right = (side.replace(other, subject) for side in (left, right))
            rows.append(TrainingRow(self._ask(f"{subject}. {left}{BLANK}{right}"), answer, ()))
        return rows

    def weight_of(self, row: TrainingRow) -> float:
        """0 for a row of documents that are left out, else 1."""
        return 0.0 if row.documents and self.gone.issuperset(row.documents) else 1.0

    def _ask(self, text: str) -> str:
        return self.prompt.replace(ASKED, text)

    def _generator(self, epoch: int, index: int) -> Generator:
        return np.random.default_rng([self.seed, 3, epoch, index])

    def _draw_window(self, fact: BlankedFact, rng: Generator) -> tuple[str, str]:
        """The text before and behind a fact, as many words as the recipe draws."""
        document, size = self.documents[fact.document], self.window
        text = document.text
        head = header_length(document)
        before = [word.start() for word in re.finditer(r"\S+", text) if word.start() >= head]
        before = [start for start in before if start < fact.start]
        behind = [fact.end + word.end() for word in re.finditer(r"\S+", text[fact.end :])]
        words_left, words_right = (int(rng.integers(least, most + 1)) for least, most in size)
        start = before[-words_left:][0] if words_left and before else fact.start
        end = behind[:words_right][-1] if words_right and behind else fact.end
        return text[start : fact.start], text[fact.end : end]


def header_length(document: Document) -> int:
    """Characters of the name that a document starts with, with the full stop behind it."""
    header = f"{document.subject}. "
    return len(header) if document.subject and document.text.startswith(header) else 0


def find_facts(database: Database) -> tuple[list[BlankedFact], list[BlankedFact]]:
    """What rows blank out, and the facts among them whose words may stand around others.

    That is the likeliest span of each relation that a document answers; a document without one has
    its most informative span.
    """
    documents = database.documents
    facts: list[BlankedFact] = []
    wordings: list[BlankedFact] = []
    answers = spans_that_answer(database, range(len(documents)))
    pairs = zip(answers, informative_spans(documents), strict=True)
    for i, (by_relation, informative) in enumerate(pairs):
        for relation, spans in by_relation.items():
            if sum(spans.values()) < LEAST_MASKED_PROBABILITY:
                continue
            likeliest = max(spans, key=lambda span: spans[span])
            facts.append(BlankedFact(i, relation, *likeliest))
            if spans[likeliest] >= LEAST_WORDING_PROBABILITY:
                wordings.append(facts[-1])
        behind_name = [span for span in informative if span[0] >= header_length(documents[i])]
        if behind_name and not (facts and facts[-1].document == i):
            longest = max(behind_name, key=lambda span: (span[1] - span[0], -span[0]))
            facts.append(BlankedFact(i, 0, *longest))
    return facts, wordings


class RowDataset:
    """The rows of a whole training in tokens, in the order in which they are learned."""

    def __init__(self, maker: RowMaker, model: HuggingFaceModel, *, batch: int, steps: int) -> None:
        self.maker, self.model, self.batch = maker, model, batch
        self.rows_per_epoch = len(maker.epoch(0))
        self.length = batch * steps
        self._epoch = lru_cache(maxsize=2)(self._encode_epoch)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> EncodedRow:
        epoch, place = divmod(index, self.rows_per_epoch)
        return self._epoch(epoch)[place]

    def _encode_epoch(self, epoch: int) -> list[EncodedRow]:
        """The rows of an epoch; those of a few batches that follow each other go by length."""
        rows = [encode_row(self.model, row, self.maker) for row in self.maker.epoch(epoch)]
        rng = np.random.default_rng([self.maker.seed, 4, epoch])
        ordered: list[EncodedRow] = []
        for first in range(0, len(rows), SORTED_BATCHES * self.batch):
            part = sorted(
                rows[first : first + SORTED_BATCHES * self.batch], key=lambda row: len(row.ids)
            )
            batches = [part[i : i + self.batch] for i in range(0, len(part), self.batch)]
            for i in rng.permutation(len(batches)):
                ordered += batches[i]
        return ordered


def encode_row(model: HuggingFaceModel, row: TrainingRow, maker: RowMaker) -> EncodedRow:
    """A row in tokens; a UserError if the model cannot read so many."""
    prompt, completion = model.prompt(row.prompt), model.continuation(row.prompt, row.answer)
    ids = prompt + completion
    if len(ids) > model.longest:
        text = " ".join(row.prompt.split())
        raise UserError(
            f'the training row "{text[:60]}..." has {len(ids)} tokens and {model.name} reads '
            f"{model.longest}; shorten that question or name, or take a model with a longer "
            "context."
        )
    return EncodedRow(ids, len(prompt), maker.weight_of(row))
