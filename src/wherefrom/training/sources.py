"""From a phase's mixture to batches: which records feed which objective.

Every row of a batch carries a source number, which says what the row was made of. It is the index
of a document or, for a question, the number of documents plus the number of the question's subject.
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
from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.packed import Computed
from wherefrom.corpus.questions import Question
from wherefrom.corpus.tokenizer import Tokenizer
from wherefrom.errors import UserError
from wherefrom.training.recipes import DOCUMENT_OBJECTIVES, Phase


@dataclass(frozen=True)
class TrainingData:
    """The tokens of everything that a training learns from."""

    documents: Sequence[EncodedDocument]
    questions: Sequence[Example]
    derived: Sequence[DerivedQuestion]
    block: int
    question_sources: Sequence[int]  # the source number of each question
    derived_sources: Sequence[int]
    members: Sequence[tuple[int, ...]]  # source number -> indices of its documents
    left_out: Collection[int]  # source numbers whose rows have no loss

    @classmethod
    def encode(
        cls,
        documents: Sequence[Document],
        questions: Sequence[Question],
        tokens: Tokenizer,
        block: int,
        left_out: Collection[int] = (),
    ) -> TrainingData:
        """Documents and questions in, tokens out.

        Rows made of documents on the lines `left_out`, or of questions about their subjects, have
        no loss. Everything else stays as it is for the whole text: the facts read off the text,
        and the order of the rows.
        """
        readings = read_relations(documents, questions)
        derived, derived_subjects = derive_questions(documents, questions, readings, tokens, block)
        names, count = names_of(documents), len(documents)
        in_no_document = count + len(names)

        def question_source(question: Question) -> int:
            subject = names.number(fold_words(question.subject))
            return count + subject if subject >= 0 else in_no_document

        def documents_of(source: int) -> tuple[int, ...]:
            if source < count:
                return (source,)
            return tuple(names.places(source - count)) if source < in_no_document else ()

        lines = set(left_out)
        gone = (
            [i for i, document in enumerate(documents) if document.line in lines] if lines else []
        )
        gone_subjects = names.of_document[gone]
        return cls(
            documents=encode_documents(documents, tokens, readings) if documents else (),
            questions=question_examples(questions, tokens, block) if questions else (),
            derived=derived,
            block=block,
            question_sources=list(map(question_source, questions)),
            derived_sources=array("q", count + derived_subjects.astype(np.int64)),
            members=Computed(documents_of, in_no_document + 1),
            left_out={*gone, *(count + gone_subjects[gone_subjects >= 0]).tolist()},
        )


def stream_for(phase: Phase, data: TrainingData, seed: Sequence[int]) -> BatchStream:
    """The endless stream of batches of a phase; each pool depends on the seed and its number."""
    documents, block = data.documents, data.block
    with_facts, with_name = array("q"), array("q")  # indices of documents
    for i, document in enumerate(documents):
        if len(document.facts):
            with_facts.append(i)
        if document.name_end:
            with_name.append(i)

    def salient(i: int, rng: Generator) -> Example:
        document = documents[with_facts[i]]
        fact = pick_fact(document, rng, asked_prob=phase.asked_fact_prob)
        prefix = None
        if phase.prefix_prob and rng.random() < phase.prefix_prob:
            other = documents[with_facts[int(rng.integers(len(with_facts)))]]
            prefix = pick_prefix(other, rng)
        return salient_example(
            document,
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

    # objective -> the source number of each of its records, and how record i becomes an example
    objectives: dict[str, tuple[Sequence[int], Callable[[int, Generator], Example]]] = {
        "name": (with_name, lambda i, _: name_example(documents[with_name[i]], block)),
        "text": (range(len(documents)), lambda i, rng: text_example(documents[i], block, rng)),
        "span": (range(len(documents)), span),
        "salient": (with_facts, salient),
        "question": (data.question_sources, lambda i, _: data.questions[i]),
        "derived": (data.derived_sources, lambda i, rng: derived_example(data.derived[i], rng)),
    }
    shares = phase.mixture.shares()
    if not data.derived and len(shares) > 1:
        shares.pop("derived", None)  # nothing was read off the text
    sources = []
    for name, share in shares.items():
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
