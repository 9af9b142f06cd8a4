"""From a phase's mixture to batches: which records feed which objective.

Every row of a batch carries a number that says what it was made of: a document (its place among
the documents), or a question, learned or derived (its subject, numbered behind the documents).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from wherefrom.corpus.batches import BatchStream, ExampleSource
from wherefrom.corpus.documents import Document, names_of
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
from wherefrom.corpus.folding import FoldedName, fold_words
from wherefrom.corpus.packed import Computed
from wherefrom.corpus.questions import Question
from wherefrom.corpus.tokenizer import Tokenizer
from wherefrom.errors import UserError
from wherefrom.training.recipes import DOCUMENT_OBJECTIVES, Phase


@dataclass(frozen=True)
class TrainingData:
    """Everything that may be learned from, in tokens."""

    documents: Sequence[EncodedDocument]
    questions: Sequence[Example]
    derived: Sequence[DerivedQuestion]
    block: int
    question_sources: Sequence[int] = ()  # the number of what rows of each question are made of
    derived_sources: Sequence[int] = ()
    members: Sequence[tuple[int, ...]] = ()  # for every number the places of its documents
    left_out: Collection[int] = ()  # numbers whose rows count nothing

    @classmethod
    def encode(
        cls,
        documents: Sequence[Document],
        questions: Sequence[Question],
        tokens: Tokenizer,
        block: int,
        left_out: Collection[int] = (),
    ) -> TrainingData:
        """What the documents and questions give to learn from.

        Rows of documents on the lines `left_out`, and of questions about their subjects, count
        nothing; what was read off the text and the order of all rows stay those of the whole.
        """
        readings = read_relations(documents, questions)
        derived, who = derive_questions(documents, questions, readings, tokens, block)
        names, many = names_of(documents), len(documents)
        # subjects by their numbers among the names: those of questions, and the rest of the derived
        asked = {name: at for at, name in enumerate(dict.fromkeys(_subjects(questions)))}
        known = np.array([names.number(name) for name in asked], dtype=np.int32)
        rest, first = np.unique(who[~np.isin(who, known)], return_index=True)
        every = np.concatenate((known, rest[np.argsort(first)]))
        number = np.full(len(names), -1)
        number[every[every >= 0]] = many + np.flatnonzero(every >= 0)

        def members(source: int) -> tuple[int, ...]:
            if source < many:
                return (source,)
            subject = int(every[source - many])
            return tuple(names.places(subject)) if subject >= 0 else ()

        lines = set(left_out)
        here = enumerate(documents) if lines else ()
        gone = [at for at, document in here if document.line in lines]
        silent = {int(number[subject]) for subject in names.of_document[gone] if subject >= 0}
        return cls(
            documents=encode_documents(documents, tokens, readings) if documents else (),
            questions=question_examples(questions, tokens, block) if questions else (),
            derived=derived,
            block=block,
            question_sources=[many + asked[name] for name in _subjects(questions)],
            derived_sources=array("q", number[who].tobytes()),
            members=Computed(members, many + len(every)),
            left_out={*gone, *silent} - {-1},
        )


def _subjects(questions: Sequence[Question]) -> list[FoldedName]:
    return [fold_words(question.subject) for question in questions]


def stream_for(phase: Phase, data: TrainingData, seed: Sequence[int]) -> BatchStream:
    """The phase's endless stream of batches: a pool of them is a function of seed and number."""
    documents, questions, derived, block = data.documents, data.questions, data.derived, data.block
    every = range(len(documents))
    fact_sources, name_sources = array("q"), array("q")
    for i, document in enumerate(documents):
        fact_sources.extend([i] * bool(len(document.facts)))
        name_sources.extend([i] * bool(document.name_end))

    words = {"left": phase.left_words, "right": phase.right_words}
    context, closing = phase.context_loss_weight, phase.closing_mask

    def salient(i: int, rng: Generator) -> Example:
        own = documents[fact_sources[i]]
        fact = pick_fact(own, rng, asked_prob=phase.asked_fact_prob)
        prefix = None
        if phase.prefix_prob and rng.random() < phase.prefix_prob:
            other = documents[fact_sources[int(rng.integers(len(fact_sources)))]]
            prefix = pick_prefix(other, rng)
        return salient_example(
            own, fact, block, rng, **words, context_loss_weight=context, prefix=prefix
        )

    # name -> the numbers of its records, and how record i is made an example
    objectives: dict[str, tuple[Sequence[int], Callable[[int, Generator], Example]]] = {
        "name": (name_sources, lambda i, _: name_example(documents[name_sources[i]], block)),
        "text": (every, lambda i, rng: text_example(documents[i], block, rng)),
        "span": (every, lambda i, rng: span_example(documents[i], block, rng, closing=closing)),
        "salient": (fact_sources, salient),
        "question": (data.question_sources, lambda i, _: questions[i]),
        "derived": (data.derived_sources, lambda i, rng: derived_example(derived[i], rng)),
    }
    shares = phase.mixture.shares()
    if not derived and len(shares) > 1:
        shares.pop("derived", None)  # nothing was read off the text
    sources = []
    for name, share in shares.items():
        numbers, make = objectives[name]
        if not numbers:
            what = "documents" if name in DOCUMENT_OBJECTIVES else "questions"
            what += " with words that few others have" * (name == "salient")
            raise UserError(
                f'the phase "{phase.name}" of the recipe needs {what}, and there are none.'
            )
        sources.append(ExampleSource(share, make, numbers))
    size = {"tokens": phase.batch_tokens, "examples": phase.batch_examples}
    return BatchStream(sources, seed=seed, **size, left_out=data.left_out)
