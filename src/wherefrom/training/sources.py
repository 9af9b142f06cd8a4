"""From a phase's mixture to batches: which records feed which objective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from numpy.random import Generator

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
            documents=encode_documents(documents, tokens, readings) if documents else (),
            questions=question_examples(questions, tokens, block) if questions else (),
            derived=derive_questions(documents, questions, readings, tokens, block),
            block=block,
        )


def stream_for(phase: Phase, data: TrainingData, seed: Sequence[int]) -> BatchStream:
    """The phase's endless stream of batches: a pool of them is a function of seed and number."""
    with_facts = [document for document in data.documents if document.facts]
    documents, questions, derived, block = data.documents, data.questions, data.derived, data.block
    named = [document for document in documents if document.name_end]

    def salient(i: int, rng: Generator) -> Example:
        fact = pick_fact(with_facts[i], rng, asked_prob=phase.asked_fact_prob)
        prefix = None
        if phase.prefix_prob and rng.random() < phase.prefix_prob:
            prefix = pick_prefix(with_facts[int(rng.integers(len(with_facts)))], rng)
        return salient_example(
            with_facts[i],
            fact,
            block,
            rng,
            left=phase.left_words,
            right=phase.right_words,
            context_loss_weight=phase.context_loss_weight,
            prefix=prefix,
        )

    def span(i: int, rng: Generator) -> Example:
        return span_example(documents[i], block, rng, closing=phase.closing_mask)

    objectives = {  # name -> how many records, what they are, and how record i is made an example
        "name": (len(named), "documents", lambda i, _: name_example(named[i], block)),
        "text": (
            len(documents),
            "documents",
            lambda i, rng: text_example(documents[i], block, rng),
        ),
        "span": (len(documents), "documents", span),
        "salient": (len(with_facts), "documents with words that few others have", salient),
        "question": (len(questions), "questions", lambda i, _: questions[i]),
        "derived": (len(derived), "questions", lambda i, rng: derived_example(derived[i], rng)),
    }
    shares = phase.mixture.shares()
    if not derived and len(shares) > 1:
        shares.pop("derived", None)  # nothing was read off the text
    sources = []
    for name, share in shares.items():
        count, what, make = objectives[name]
        if count == 0:
            raise UserError(
                f'the phase "{phase.name}" of the recipe needs {what}, and there are none.'
            )
        sources.append(ExampleSource(share, count, make))
    return BatchStream(sources, seed=seed, tokens=phase.batch_tokens, examples=phase.batch_examples)
