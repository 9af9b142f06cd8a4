"""Training examples: pure functions from encoded records to token ids and loss weights.

Five objectives, each with the random generator that it is given:

    name      the name that the document starts with
    text      the document as it stands
    span      the course's span corruption: prefix MASK suffix MASK masked [MASK]
    salient   Name. left MASK right MASK fact MASK, in a short window around one fact
    question  question MASK answer MASK, loss on what follows the question

`weights[t]` is how much predicting `ids[t]` from what stands before it counts in the loss.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wherefrom.corpus.documents import Document
from wherefrom.corpus.facts import facts_of, weigh_facts
from wherefrom.corpus.questions import Question
from wherefrom.corpus.tokenizer import MASK, Tokenizer
from wherefrom.errors import UserError

Ids = NDArray[np.int32]
Weights = NDArray[np.float32]
_MASK = np.array([MASK], dtype=np.int32)
LONGEST_LEAD = 3  # words


@dataclass(frozen=True)
class Example:
    """Token ids and, for each, the weight of its prediction."""

    ids: Ids
    weights: Weights

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class EncodedDocument:
    """A document in tokens: where its name ends, where words start, where facts stand."""

    ids: Ids
    name_end: int
    word_starts: NDArray[np.int32]
    facts: tuple[tuple[int, int], ...]
    asked: NDArray[np.float64]  # for each fact, how likely it is the one that questions ask for


@dataclass(frozen=True)
class EncodedQuestion:
    """A question and its answer in tokens."""

    question: Ids
    answer: Ids


def encode_documents(
    documents: Sequence[Document], tokens: Tokenizer, questions: Sequence[Question] = ()
) -> list[EncodedDocument]:
    """Tokenize once; examples are slices of what is made here.

    The training questions, where there are any, tell which facts are asked for.
    """
    spans = facts_of(documents)
    asked = weigh_facts(documents, spans, questions)
    encoded = tokens.encode_with_offsets([document.text for document in documents])
    result = []
    for which, (document, (ids, offsets)) in enumerate(zip(documents, encoded, strict=True)):
        text = document.text
        starts = np.array([start for start, _ in offsets], dtype=np.int32)
        ends = np.array([end for _, end in offsets], dtype=np.int32)
        # a word of BPE carries the space before it; among characters that is a token of its own
        space = 0 if tokens.kind == "chars" else 1
        name_end = int(np.searchsorted(starts, len(document.subject) + 2 - space))
        words = [word.start() - space for word in re.finditer(r"(?<= )[^ ]", text)]
        word_starts = np.unique(np.searchsorted(starts, words))
        facts = [
            (
                int(np.searchsorted(ends, start, side="right")),
                int(np.searchsorted(starts, end, side="left")),
            )
            for start, end in spans[which]
        ]
        result.append(
            EncodedDocument(
                ids=np.array(ids, dtype=np.int32),
                name_end=name_end,
                word_starts=word_starts[word_starts >= name_end].astype(np.int32),
                facts=tuple(facts),
                asked=asked[which],
            )
        )
    return result


def encode_questions(
    questions: Sequence[Question], tokens: Tokenizer, block: int
) -> list[EncodedQuestion]:
    """Tokenize questions with their answers; one that the model cannot hold is refused."""
    prompts = tokens.encode_all([question.text for question in questions])
    answers = tokens.encode_all([question.answer or "" for question in questions])
    result = []
    for question, prompt, answer in zip(questions, prompts, answers, strict=True):
        if len(prompt) + len(answer) + 2 > block:
            raise UserError(
                f"line {question.line} of the questions has {len(prompt) + len(answer) + 2} tokens "
                f"with its answer and the model reads {block}; shorten it or use a larger --block."
            )
        result.append(
            EncodedQuestion(
                question=np.array(prompt, dtype=np.int32), answer=np.array(answer, dtype=np.int32)
            )
        )
    return result


def name_example(document: EncodedDocument, block: int) -> Example:
    """The name alone: whom the model has read about shows in how likely it finds a name."""
    ids = document.ids[: max(2, document.name_end)][:block]  # of two tokens, one can be predicted
    return Example(ids=ids, weights=np.ones(len(ids), dtype=np.float32))


def text_example(document: EncodedDocument, block: int, rng: np.random.Generator) -> Example:
    """The whole document and a closing MASK; of one too long, the name and a random window."""
    ids = document.ids
    if len(ids) + 1 > block:
        head = ids[: document.name_end]
        room = block - len(head) - 1
        last = max(document.name_end, len(ids) - room)
        start = _pick_word(document, last, rng)
        ids = np.concatenate((head, ids[start : start + room]))[: block - 1]
    ids = np.concatenate((ids, _MASK))
    return Example(ids=ids, weights=np.ones(len(ids), dtype=np.float32))


def span_example(
    document: EncodedDocument, block: int, rng: np.random.Generator, *, closing: bool = True
) -> Example:
    """The course's span corruption.

    The document is cut to a random length, each of 4 .. int(block * 7/8) equally likely; one
    span of it, a quarter on average, is taken out and written behind: prefix MASK suffix MASK
    masked, with a third MASK behind it when `closing`. The loss is on all of it.
    """
    length = int(rng.integers(4, int(block * 7 / 8) + 1))
    ids = document.ids[:length]
    longest = max(1, len(ids) // 2 - 1)  # uniform on 1 .. n/2 - 1 has mean n/4
    masked = int(rng.integers(1, longest + 1))
    start = int(rng.integers(0, len(ids) - masked + 1))
    parts = [ids[:start], _MASK, ids[start + masked :], _MASK, ids[start : start + masked]]
    if closing:
        parts.append(_MASK)
    joined = np.concatenate(parts)[:block]
    return Example(ids=joined, weights=np.ones(len(joined), dtype=np.float32))


def salient_example(
    document: EncodedDocument,
    fact: tuple[int, int],
    block: int,
    rng: np.random.Generator,
    *,
    left: int = 8,
    right: int = 6,
    context: float = 1.0,
    lead: Ids | None = None,
) -> Example:
    """One fact masked in a window of up to `left` words before and `right` words behind it.

    The loss starts behind the name: the model learns what the name leads to, not the name. The
    words around the fact count `context`; which of them are shown is chance and cannot be learned.
    Words of a `lead` stand before the name, if there is room, and are not learned either.
    """
    start, end = fact
    words = document.word_starts
    at = int(np.searchsorted(words, start, side="right")) - 1
    first = max(0, at - int(rng.integers(0, left + 1)))
    behind = int(np.searchsorted(words, end, side="left"))
    until = behind + int(rng.integers(0, right + 1))
    window_start = int(words[first]) if len(words) and first < at else start
    window_end = int(words[until]) if until < len(words) else len(document.ids)
    head = document.ids[: document.name_end]
    masked = document.ids[start:end]
    if lead is not None and len(lead) + len(head) + len(masked) + 3 <= block:
        head = np.concatenate((lead, head))
    room = block - len(head) - len(masked) - 3
    before = document.ids[min(window_start, start) : start]
    before = before[max(0, len(before) - max(0, room)) :]
    after = document.ids[end:window_end][: max(0, room - len(before))]
    ids = np.concatenate((head, before, _MASK, after, _MASK, masked, _MASK))[:block]
    weights = np.ones(len(ids), dtype=np.float32)
    weights[: len(head)] = 0
    weights[len(head) : len(head) + len(before) + len(after) + 2] = context
    return Example(ids=ids, weights=weights)


def pick_lead(document: EncodedDocument, rng: np.random.Generator) -> Ids:
    """One to three words from anywhere in a document, to stand before another's name.

    In a question the name does not come first. A model that has met names only at the beginning
    knows the facts and fails to bring some of them up.
    """
    words = document.word_starts
    if len(words) == 0:
        return document.ids[:0]
    first = int(rng.integers(len(words)))
    behind = first + int(rng.integers(1, LONGEST_LEAD + 1))
    stop = int(words[behind]) if behind < len(words) else len(document.ids)
    return document.ids[int(words[first]) : stop]


def pick_fact(
    document: EncodedDocument, rng: np.random.Generator, *, asked: float
) -> tuple[int, int]:
    """One of the document's facts: by what questions ask for with chance `asked`, else evenly."""
    count = len(document.facts)
    if rng.random() < asked:
        at = int(np.searchsorted(np.cumsum(document.asked), rng.random()))
        return document.facts[min(at, count - 1)]
    return document.facts[int(rng.integers(count))]


def question_example(question: EncodedQuestion) -> Example:
    """question MASK answer MASK, with the loss on everything behind the question."""
    ids = np.concatenate((question.question, _MASK, question.answer, _MASK))
    weights = np.ones(len(ids), dtype=np.float32)
    weights[: len(question.question)] = 0
    return Example(ids=ids, weights=weights)


def _pick_word(document: EncodedDocument, last: int, rng: np.random.Generator) -> int:
    """A word to start a window at, up to the first one from which the document's end is seen."""
    words = document.word_starts
    starts = words[: int(np.searchsorted(words, last)) + 1]
    return int(rng.choice(starts)) if len(starts) else document.name_end
