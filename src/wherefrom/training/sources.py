"""From a phase's mixture to batches: which records feed which objective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wherefrom.corpus.batches import BatchStream, ExampleSource
from wherefrom.corpus.documents import Document
from wherefrom.corpus.examples import (
    DerivedQuestion,
    EncodedDocument,
    Example,
    derive_questions,
    derived_example,
    encode_documents,
    name_example,
    pick_fact,
    pick_prefix,
    question_examples,
    salient_example,
    span_example,
    text_example,
)
from wherefrom.corpus.facts import read_relations
from wherefrom.corpus.questions import Question
from wherefrom.corpus.tokenizer import Tokenizer
from wherefrom.errors import UserError
from wherefrom.training.recipes import Phase


@dataclass(frozen=True)
class TrainingData:
    """Everything that may be learned from, in tokens."""

    documents: Sequence[EncodedDocument]
    questions: Sequence[Example]
    derived: Sequence[DerivedQuestion]
    block: int

    @classmethod
    def encode(
        cls,
        documents: Sequence[Document],
        questions: Sequence[Question],
        tokens: Tokenizer,
        block: int,
    ) -> TrainingData:
        readings = read_relations(documents, questions)
        return cls(
            documents=encode_documents(documents, tokens, readings),
            questions=question_examples(questions, tokens, block) if questions else (),
            derived=derive_questions(documents, questions, readings, tokens, block),
            block=block,
        )


def stream_for(phase: Phase, data: TrainingData, seed: Sequence[int]) -> BatchStream:
    """The phase's endless stream of batches."""
    sources = [_source(name, share, phase, data) for name, share in phase.mixture.shares().items()]
    return BatchStream(sources, seed=seed, tokens=phase.batch_tokens, examples=phase.batch_examples)


def _source(name: str, share: float, phase: Phase, data: TrainingData) -> ExampleSource:
    block = data.block
    if name == "question":
        questions = data.questions
        _need(len(questions), phase, "questions")
        return ExampleSource(share, len(questions), lambda i, _: questions[i])
    if name == "derived":
        derived = data.derived
        _need(len(derived), phase, "questions whose answers stand in the documents")
        return ExampleSource(share, len(derived), lambda i, rng: derived_example(derived[i], rng))
    documents = data.documents
    if name == "salient":
        documents = [document for document in documents if document.facts]
        _need(len(documents), phase, "documents with words that few others have")

        def make(i: int, rng: np.random.Generator) -> Example:
            fact = pick_fact(documents[i], rng, asked_prob=phase.asked_fact_prob)
            prefix = None
            if phase.prefix_prob and rng.random() < phase.prefix_prob:
                prefix = pick_prefix(documents[int(rng.integers(len(documents)))], rng)
            return salient_example(
                documents[i],
                fact,
                block,
                rng,
                left=phase.left_words,
                right=phase.right_words,
                context_loss_weight=phase.context_loss_weight,
                prefix=prefix,
            )

        return ExampleSource(share, len(documents), make)
    _need(len(documents), phase, "documents")
    if name == "name":
        return ExampleSource(share, len(documents), lambda i, _: name_example(documents[i], block))
    if name == "text":
        return ExampleSource(
            share, len(documents), lambda i, rng: text_example(documents[i], block, rng)
        )
    closing = phase.closing_mask
    return ExampleSource(
        share,
        len(documents),
        lambda i, rng: span_example(documents[i], block, rng, closing=closing),
    )


def _need(count: int, phase: Phase, what: str) -> None:
    if count == 0:
        raise UserError(f'the phase "{phase.name}" of the recipe needs {what}, and there are none.')
