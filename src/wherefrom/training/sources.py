"""From a phase's mixture to batches: which records feed which objective.

Every row of a batch carries a source number, which says what the row was made of. It is the index
of a document or, for a question, the number of documents plus the number of the question's subject
in the database (0 if no document is about it).
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from wherefrom.corpus.batches import BatchStream, ExampleSource
from wherefrom.corpus.database import Database
from wherefrom.corpus.examples import (
    EncodedDocument,
    Example,
    Ids,
    WindowSize,
    cloze_example,
    draw_index,
    draw_window,
    encode_documents,
    find_window,
    name_example,
    pick_prefix,
    question_examples,
    span_example,
    text_example,
)
from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.questions import Question
from wherefrom.corpus.tokenizer import Tokenizer
from wherefrom.errors import UserError
from wherefrom.training.recipes import DOCUMENT_OBJECTIVES, Phase

# a document's answer to a relation is masked if it states one with this probability
LEAST_MASKED_PROBABILITY = 0.25
# with fewer questions than this share of the masked answers, questions are this much rarer in the
# rows: the model soon knows them by heart, and then learns the wording of a few names
FEW_QUESTIONS_SHARE, FEW_QUESTIONS_FACTOR = 0.02, 0.3
# the words around a fact reword others if the fact answers its relation with this probability
LEAST_WORDING_PROBABILITY = 0.5


@dataclass(frozen=True)
class TrainingData:
    """The tokens of everything that a training learns from."""

    documents: Sequence[EncodedDocument]
    questions: Sequence[Example]
    block: int
    question_sources: Sequence[int]  # the source number of each question
    database: Database
    left_out: Collection[int] = ()  # source numbers whose rows have no loss

    @classmethod
    def encode(
        cls,
        database: Database | None,
        questions: Sequence[Question],
        tokens: Tokenizer,
        block: int,
        left_out: Collection[int] = (),
    ) -> TrainingData:
        """Documents, facts and questions in, tokens out.

        Rows made of documents on the lines `left_out` have no loss, and neither have questions
        about subjects that have no other document. Everything else stays as it is for the whole
        text: the facts read off the text, and the order of the rows.
        """
        database = database or Database()
        questions = [question for question in questions if not question.is_silent]
        count = len(database.documents)
        names = [fold_words(question.subject) for question in questions]
        gone = set(database.documents_on(left_out))
        subjects = {database.subject_of(i) for i in gone} - {0}
        only_gone = [n for n in subjects if gone.issuperset(database.documents_of(n))]
        return cls(
            documents=encode_documents(database, tokens),
            questions=question_examples(questions, tokens, block),
            block=block,
            question_sources=[count + database.subject_id(name) for name in names],
            database=database,
            left_out=gone | {count + number for number in only_gone},
        )

    @cached_property
    def cloze_records(self) -> ClozeRecords:
        """What the documents have that can be masked."""
        return ClozeRecords(self.documents)

    def documents_of(self, source: int) -> list[int]:
        """The indices of the documents that a source number stands for."""
        count = len(self.documents)
        return [source] if source < count else self.database.documents_of(source - count)


class ClozeRecords:
    """What the two objectives that mask a fact draw from, as rows of two numbers.

    spans: document and index of every salient span that stands in several documents, or of all
    salient spans where a document has no such one. answers: document and row (of its relations) of
    every relation that a document answers. wordings: for each relation the facts whose words may
    reword others, as document and index. relations: how many relations the documents answer.
    """

    def __init__(self, documents: Sequence[EncodedDocument]) -> None:
        spans, answers = array("i"), array("i")
        wordings: dict[int, array[int]] = defaultdict(lambda: array("i"))
        relations: set[int] = set()
        shared = _hashes_in_several(documents)
        for i, document in enumerate(documents):
            relations.update(document.relations.tolist())
            for fact in _shared_spans(document, shared):
                spans.extend((i, fact))
            for row, relation in enumerate(document.relations.tolist()):
                if document.weights[row].sum() < LEAST_MASKED_PROBABILITY:
                    continue
                answers.extend((i, row))
                fact = int(np.argmax(document.weights[row]))
                if document.weights[row, fact] >= LEAST_WORDING_PROBABILITY:
                    wordings[relation].extend((i, fact))
        self.relations = len(relations)
        self.spans, self.answers = _as_pairs(spans), _as_pairs(answers)
        self.wordings = {relation: _as_pairs(pairs) for relation, pairs in wordings.items()}


def _as_pairs(numbers: array[int]) -> NDArray[np.int32]:
    return np.array(numbers, dtype=np.int32).reshape(-1, 2)


def _hashes_in_several(documents: Sequence[EncodedDocument]) -> NDArray[np.uint64]:
    """The hashes of the salient spans that stand in more than one document, in order."""
    hashes = array("Q")
    for document in documents:
        hashes.extend({_hash_span(document, fact) for fact in document.salient.tolist()})
    values, counts = np.unique(np.frombuffer(hashes, dtype=np.uint64), return_counts=True)
    return values[counts > 1]


def _shared_spans(document: EncodedDocument, shared: NDArray[np.uint64]) -> list[int]:
    """The salient spans of a document that other documents have as well, or else all of them."""
    salient = document.salient.tolist()
    hashes = np.array([_hash_span(document, fact) for fact in salient], dtype=np.uint64)
    found = np.isin(hashes, shared)
    return [fact for fact, kept in zip(salient, found, strict=True) if kept] or salient


def _hash_span(document: EncodedDocument, fact: int) -> int:
    content = document.answers[fact].tobytes()
    return int.from_bytes(blake2b(content, digest_size=8).digest())


class ClozeMaker:
    """Makes the examples of the objectives `salient` and `pointed` as a phase says."""

    def __init__(self, phase: Phase, data: TrainingData) -> None:
        self.phase, self.documents, self.block = phase, data.documents, data.block
        self.records = data.cloze_records
        self.salient_size = window_size(phase)
        self.pointed_size = window_size(phase, self.records.relations)

    def maskable(self, objectives: Collection[str]) -> Iterator[tuple[int, int, WindowSize]]:
        """Document, index and window of every fact that some of the objectives can mask."""
        if "salient" in objectives:
            for i, fact in self.records.spans.tolist():
                yield i, fact, self.salient_size
        if "pointed" in objectives:
            for i, row in self.records.answers.tolist():
                for fact in np.flatnonzero(self.documents[i].weights[row]).tolist():
                    yield i, fact, self.pointed_size

    def salient(self, i: int, rng: Generator) -> Example:
        """The example of a salient span."""
        index, fact = self.records.spans[i].tolist()
        document = self.documents[index]
        window = draw_window(document, fact, self.salient_size, rng)
        return self._example(document, fact, window, rng)

    def pointed(self, i: int, rng: Generator) -> Example:
        """The example of a relation that a document answers, perhaps in other words."""
        index, row = self.records.answers[i].tolist()
        document = self.documents[index]
        fact = draw_index(document.weights[row], rng)
        worded, place = document, fact
        wordings = self.records.wordings.get(int(document.relations[row]))
        if wordings is not None and rng.random() < self.phase.reword_prob:
            other, place = wordings[rng.integers(len(wordings))].tolist()
            worded = self.documents[other]
        window = draw_window(worded, place, self.pointed_size, rng)
        return self._example(document, fact, window, rng)

    def _example(
        self, document: EncodedDocument, fact: int, window: tuple[Ids, Ids], rng: Generator
    ) -> Example:
        prefix = None
        if self.phase.prefix_prob and rng.random() < self.phase.prefix_prob:
            prefix = pick_prefix(self.documents[int(rng.integers(len(self.documents)))], rng)
        name = document.ids[: document.name_end]
        weight = self.phase.name_loss_weight
        return cloze_example(name, window, document.answers[fact], self.block, prefix, weight)


def window_size(phase: Phase, relations: int | None = None) -> WindowSize:
    """The windows of a phase: around any span, or around the answers to so many relations.

    The words around an answer tell which of several relations it belongs to. With one relation
    there is nothing to tell apart: windows are half as long, and may be empty, so that the model
    learns to answer whatever the words are. It then needs fewer questions.
    """
    if relations == 1:
        return WindowSize((0, phase.left_words[1] // 2), (0, phase.right_words[1] // 2))
    return WindowSize(phase.left_words, phase.right_words)


def stream_for(phase: Phase, data: TrainingData, seed: Sequence[int]) -> BatchStream:
    """The endless stream of batches of a phase; each pool depends on the seed and its number."""
    documents, block = data.documents, data.block
    with_name = array("i", (i for i, document in enumerate(documents) if document.name_end))
    cloze = ClozeMaker(phase, data)

    def span(i: int, rng: Generator) -> Example:
        return span_example(documents[i], block, rng, closing=phase.closing_mask)

    # objective -> the source number of each of its records, and how record i becomes an example
    objectives: dict[str, tuple[Sequence[int], Callable[[int, Generator], Example]]] = {
        "name": (with_name, lambda i, _: name_example(documents[with_name[i]], block)),
        "text": (range(len(documents)), lambda i, rng: text_example(documents[i], block, rng)),
        "span": (range(len(documents)), span),
        "salient": (cloze.records.spans[:, 0].tolist(), cloze.salient),
        "pointed": (cloze.records.answers[:, 0].tolist(), cloze.pointed),
        "question": (data.question_sources, lambda i, _: data.questions[i]),
    }
    sources = []
    for name, share in _available_shares(phase, data).items():
        numbers, make = objectives[name]
        if not numbers:
            needed = "documents" if name in DOCUMENT_OBJECTIVES else "questions"
            if name == "salient":
                needed += " with words that few others have"
            raise UserError(
                f'the phase "{phase.name}" of the recipe needs {needed}, and there are none.'
            )
        sources.append(ExampleSource(share, make, numbers))
    size = {"tokens": phase.batch_tokens, "examples": phase.batch_examples}
    return BatchStream(sources, seed=seed, **size, left_out=data.left_out)


def _available_shares(phase: Phase, data: TrainingData) -> dict[str, float]:
    """The shares of the objectives; where the reader found no answer, any span is masked, and
    where questions are few, fewer rows are questions."""
    shares, answers = phase.mixture.shares(), len(data.cloze_records.answers)
    if "pointed" not in shares:
        return shares
    if not answers:
        shares["salient"] = shares.get("salient", 0.0) + shares.pop("pointed")
    elif "question" in shares and len(data.questions) < FEW_QUESTIONS_SHARE * answers:
        shares["question"] *= FEW_QUESTIONS_FACTOR
    return shares


def text_shown(data: TrainingData, phases: Sequence[Phase]) -> dict[str, float]:
    """How much of the documents can reach the model, as shares of their tokens.

    shown: tokens that can occur in a training row; learned: tokens that can have a loss there.
    """
    starts = np.cumsum([0, *(len(document.ids) for document in data.documents)])
    shown, learned = np.zeros((2, starts[-1]), dtype=bool)
    for phase in phases:
        objectives = _available_shares(phase, data)
        if "text" in objectives or "span" in objectives:
            shown[:] = learned[:] = True
        if "name" in objectives:
            for document, start in zip(data.documents, starts, strict=False):
                name = slice(start, start + document.name_end)
                shown[name] = learned[name] = True
        for i, fact, size in ClozeMaker(phase, data).maskable(objectives):
            document, start = data.documents[i], starts[i]
            first, last = find_window(document, fact, size.left[1], size.right[1])
            shown[start : start + document.name_end] = True
            shown[start + first : start + last] = True
            fact_start, fact_end = document.facts[fact]
            learned[start + fact_start : start + fact_end] = True
    total = max(1, len(shown))
    return {"shown": int(shown.sum()) / total, "learned": int(learned.sum()) / total}
