"""Documents and questions become training examples: token ids, and a loss weight for each.

Six objectives, each a pure function of an encoded record and a random generator:

    name      the name that the document starts with
    text      the document as it is
    span      the course's span corruption: prefix MASK suffix MASK masked [MASK]
    salient   Name. left MASK right MASK fact MASK, in a short window around a name or a number
    pointed   the same around a span that the reader takes for the answer to a relation; the window
              may be reworded: it then stands around the same relation's fact in another document
    question  question MASK answer MASK, with the loss on what follows the question
"""

from __future__ import annotations

import os
import re
import tempfile
import weakref
from array import array
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from wherefrom.corpus.database import Database
from wherefrom.corpus.documents import Document
from wherefrom.corpus.informative import informative_spans
from wherefrom.corpus.questions import Question
from wherefrom.corpus.tokenizer import MASK, Offsets, Tokenizer
from wherefrom.errors import UserError

Ids = NDArray[np.int32]
Floats = NDArray[np.float64]
_MASK = np.array([MASK], dtype=np.int32)
MAX_PREFIX_WORDS = 3
DOCUMENT_ARRAYS = 8  # of whole numbers in an encoded document
CHUNK_DOCUMENTS = 2_000  # documents that are tokenized at once
Span = tuple[int, int]  # start and end
SpanProbabilities = dict[int, dict[Span, float]]  # relation -> span -> that it states the answer


@dataclass(frozen=True, eq=False)
class Example:
    """Token ids; `weights[t]` is how much predicting `ids[t]` from `ids[:t]` counts in the loss;
    source: the number of the record that it was made of."""

    ids: Ids
    weights: NDArray[np.float32]
    source: int = -1

    def __len__(self) -> int:
        return len(self.ids)


class EncodedDocument(NamedTuple):
    """A document in tokens.

    name_end: where its name ends; word_starts: where the words behind the name start; facts: start
    and end of each fact; answers: the tokens of each fact as an answer, without particles that are
    attached to it; salient: indices of the facts that can be masked without asking the reader
    (informative spans that do not start with a lower-case letter; all of them where none does);
    relations: those that the document answers; weights: for each of them the
    probability that each fact is the answer, as far as the reader can tell.
    """

    ids: Ids
    name_end: int
    word_starts: Ids
    facts: Ids  # (facts, 2)
    answers: Sequence[Ids]
    salient: Ids
    relations: Ids
    weights: Floats  # (relations, facts)


class TokenTable(Sequence[EncodedDocument]):
    """Encoded documents in a temporary file, each read from there when it is needed."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115
        # closing the raw file drops what is still buffered: nobody will read it
        weakref.finalize(self, self._file.raw.close)
        self._ends = array("q", [0])

    def add(self, documents: Sequence[EncodedDocument]) -> None:
        """Append some documents, and bring them to the file."""
        try:
            for document in documents:
                content = _to_bytes(document)
                self._file.write(content)
                self._ends.append(self._ends[-1] + len(content))
            self._file.flush()
        except OSError as problem:
            raise UserError(
                f"the folder of temporary files ({tempfile.gettempdir()}) cannot be written: "
                f"{problem.strerror}; name another one in TMPDIR."
            ) from None

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, index: Any) -> Any:
        chosen = range(len(self))[index]
        if isinstance(chosen, range):
            return [self[i] for i in chosen]
        start, end = self._ends[chosen : chosen + 2]
        return _from_bytes(os.pread(self._file.fileno(), end - start, start))


def _to_bytes(document: EncodedDocument) -> bytes:
    """The sizes of the arrays, then the arrays; the weights are last."""
    numbers = [
        _as_ids([document.name_end]),
        document.ids,
        document.word_starts,
        document.facts,
        _as_ids([len(answer) for answer in document.answers]),
        np.concatenate((*document.answers, _as_ids([]))),
        document.salient,
        document.relations,
    ]
    sizes = _as_ids([part.size for part in numbers])
    return b"".join(part.tobytes() for part in (sizes, *numbers, document.weights))


def _from_bytes(content: bytes) -> EncodedDocument:
    sizes = np.frombuffer(content, np.int32, DOCUMENT_ARRAYS).tolist()
    ends = list(accumulate(sizes, initial=DOCUMENT_ARRAYS))
    numbers = np.frombuffer(content, np.int32, ends[-1])
    arrays = [numbers[start:end] for start, end in pairwise(ends)]
    (name_end,), ids, word_starts, facts, lengths, answers, salient, relations = arrays
    answer_ends = accumulate(lengths.tolist(), initial=0)
    return EncodedDocument(
        ids=ids,
        name_end=int(name_end),
        word_starts=word_starts,
        facts=facts.reshape(-1, 2),
        answers=[answers[start:end] for start, end in pairwise(answer_ends)],
        salient=salient,
        relations=relations,
        weights=np.frombuffer(content, np.float64, offset=numbers.nbytes).reshape(
            len(relations), len(lengths)
        ),
    )


def encode_documents(database: Database, tokens: Tokenizer) -> TokenTable:
    """Tokenize the documents once. Their facts are the informative spans and those of the table."""
    documents, encoded = database.documents, TokenTable()
    informative_of_documents = informative_spans(documents)
    for first in range(0, len(documents), CHUNK_DOCUMENTS):
        chunk = documents[first : first + CHUNK_DOCUMENTS]
        informative = [set(spans) for spans in islice(informative_of_documents, len(chunk))]
        answering = spans_that_answer(database, range(first, first + len(chunk)))
        facts = [
            sorted(spans.union(*by_relation.values()))
            for spans, by_relation in zip(informative, answering, strict=True)
        ]
        pairs = zip(chunk, facts, strict=True)
        answer_ids = _encode(tokens, {d.text[a:b] for d, spans in pairs for a, b in spans})
        texts = tokens.encode_with_offsets([document.text for document in chunk])
        rows = []
        for i, document in enumerate(chunk):
            text, (ids, offsets), by_relation = document.text, texts[i], answering[i]
            name_end, word_starts, fact_tokens = _find_tokens(document, facts[i], offsets, tokens)
            named = {span for span in informative[i] if not text[span[0]].islower()}
            maskable = named or informative[i]
            weights = [[spans.get(f, 0.0) for f in facts[i]] for spans in by_relation.values()]
            rows.append(
                EncodedDocument(
                    ids=_as_ids(ids),
                    name_end=name_end,
                    word_starts=word_starts,
                    facts=fact_tokens,
                    answers=[answer_ids[text[start:end]] for start, end in facts[i]],
                    salient=_as_ids([k for k, fact in enumerate(facts[i]) if fact in maskable]),
                    relations=_as_ids(list(by_relation)),
                    weights=np.array(weights),
                )
            )
        encoded.add(rows)
    return encoded


def spans_that_answer(database: Database, documents: range) -> list[SpanProbabilities]:
    """For each of some documents, by relation, the spans that may state its answer.

    The documents about a subject share the probability of its facts. Here it is scaled, so that the
    document with the largest share has all of it, as if there were no other.
    """
    spans: list[SpanProbabilities] = [defaultdict(dict) for _ in documents]
    query = """
        WITH masses AS (
            SELECT relation_id, subject_id, SUM(probability) AS mass FROM facts
            WHERE document_id IN (
                SELECT id FROM documents WHERE subject_id IN (
                    SELECT subject_id FROM documents WHERE id BETWEEN ?1 AND ?2))
            GROUP BY relation_id, subject_id, document_id),
        scales AS (
            SELECT relation_id, subject_id, SUM(mass) / MAX(mass) AS scale FROM masses
            GROUP BY relation_id, subject_id)
        SELECT document_id, relation_id, start, end, probability * scale
        FROM facts JOIN scales USING (relation_id, subject_id)
        WHERE document_id BETWEEN ?1 AND ?2 ORDER BY relation_id, facts.rowid
    """
    for doc, relation, start, end, probability in database.fetch(
        query, documents.start, documents.stop - 1
    ):
        spans[doc - documents.start][relation][start, end] = probability
    return spans


def _find_tokens(
    document: Document, facts: Sequence[Span], offsets: Offsets, tokens: Tokenizer
) -> tuple[int, Ids, Ids]:
    """Where in the tokens of a document its name ends, its other words start, and its facts are."""
    # a BPE token includes the space before its word; with characters the space is a token
    space = 0 if tokens.kind == "chars" else 1
    starts, ends = np.array(offsets, dtype=np.int32).reshape(-1, 2).T
    head = len(document.subject) + 2 - space if document.subject else 0
    name_end = int(np.searchsorted(starts, head))
    words = [word.start() - space for word in re.finditer(r"(?<=\s)\S", document.text)]
    word_starts = np.unique(np.searchsorted(starts, words))
    fact_starts = np.searchsorted(ends, [start for start, _ in facts], side="right")
    fact_ends = np.searchsorted(starts, [end for _, end in facts], side="left")
    return (
        name_end,
        _as_ids(word_starts[word_starts >= name_end]),
        _as_ids(np.stack((fact_starts, fact_ends), axis=1)),
    )


def _as_ids(numbers: ArrayLike) -> Ids:
    return np.asarray(numbers, dtype=np.int32)


def question_examples(
    questions: Sequence[Question], tokens: Tokenizer, block: int
) -> list[Example]:
    """Each question as an example; one that does not fit into `block` tokens is refused."""
    encoded = _encode(tokens, {text for q in questions for text in (q.text, q.answer or "")})
    examples = []
    for question in questions:
        rest = np.concatenate((_MASK, encoded[question.answer or ""], _MASK))
        example = _learn_rest(encoded[question.text], rest)
        if len(example) > block:
            raise UserError(
                f"line {question.line} of the questions has {len(example)} tokens with its answer "
                f"and the model reads {block}; shorten it or use a larger --block."
            )
        examples.append(example)
    return examples


def _encode(tokens: Tokenizer, texts: Collection[str]) -> dict[str, Ids]:
    encoded = (np.array(ids, dtype=np.int32) for ids in tokens.encode_all(list(texts)))
    return dict(zip(texts, encoded, strict=True))


def _learn_rest(prompt: Ids, rest: Ids) -> Example:
    """prompt rest, with no loss on the prompt."""
    example = _learn_all(np.concatenate((prompt, rest)))
    example.weights[: len(prompt)] = 0
    return example


def _learn_all(ids: Ids) -> Example:
    return Example(ids, np.ones(len(ids), dtype=np.float32))


def name_example(document: EncodedDocument, block: int) -> Example:
    """The name alone, and at least two tokens, so that one can be predicted."""
    return _learn_all(document.ids[: max(2, document.name_end)][:block].copy())


def text_example(document: EncodedDocument, block: int, rng: Generator) -> Example:
    """The document and a closing MASK; if it is too long, its name and a random window of it."""
    ids = document.ids
    if len(ids) + 1 > block:
        head = ids[: document.name_end]
        room = block - len(head) - 1
        # any word from which a full window follows, and the first one that reaches the end
        last = max(document.name_end, len(ids) - room)
        words = document.word_starts
        starts = words[: int(np.searchsorted(words, last)) + 1]
        start = int(rng.choice(starts)) if len(starts) else document.name_end
        ids = np.concatenate((head, ids[start : start + room]))[: block - 1]
    return _learn_all(np.concatenate((ids, _MASK)))


def span_example(
    document: EncodedDocument, block: int, rng: Generator, *, closing: bool = True
) -> Example:
    """The course's span corruption: the document is cut to a length of 4 to 7/8 of the block, and
    one span of it, a quarter on average, moves to the end: prefix MASK suffix MASK masked, with a
    third MASK if `closing`."""
    ids = document.ids[: int(rng.integers(4, int(block * 7 / 8) + 1))]
    longest = max(1, len(ids) // 2 - 1)  # uniform on 1 .. n/2 - 1 has mean n/4
    masked = int(rng.integers(1, longest + 1))
    start = int(rng.integers(0, len(ids) - masked + 1))
    parts = [ids[:start], _MASK, ids[start + masked :], _MASK, ids[start : start + masked]]
    return _learn_all(np.concatenate(parts + [_MASK] * closing)[:block])


class WindowSize(NamedTuple):
    """How many words a window has before and behind its fact: the least and the most."""

    left: tuple[int, int]
    right: tuple[int, int]


def find_window(document: EncodedDocument, fact: int, left: int, right: int) -> tuple[int, int]:
    """Start and end, in tokens, of a fact with so many words before and behind it."""
    start, end = document.facts[fact].tolist()
    words = document.word_starts
    word = int(np.searchsorted(words, start, side="right")) - 1  # in which the fact starts
    first = max(0, word - left)
    behind = int(np.searchsorted(words, end, side="left")) + right
    return (
        int(words[first]) if first < word else start,
        int(words[behind]) if behind < len(words) else len(document.ids),
    )


def draw_window(
    document: EncodedDocument, fact: int, size: WindowSize, rng: Generator
) -> tuple[Ids, Ids]:
    """The tokens before and behind a fact, cut at word boundaries; each number of words between
    the limits is equally likely."""
    left, right = (int(rng.integers(least, most + 1)) for least, most in size)
    first, last = find_window(document, fact, left, right)
    start, end = document.facts[fact]
    return document.ids[first:start], document.ids[end:last]


def cloze_example(
    name: Ids,
    window: tuple[Ids, Ids],
    answer: Ids,
    block: int,
    prefix: Ids | None = None,
    name_loss_weight: float = 0.0,
) -> Example:
    """prefix name before MASK behind MASK answer MASK, with the loss on the answer, and with less
    weight on the name: so the model learns whom it reads about.

    A window that is too long is cut at its ends, and there is no prefix if it leaves no room.
    """
    head = name
    if prefix is not None and len(prefix) + len(head) + len(answer) + 3 <= block:
        head = np.concatenate((prefix, head))
    room = max(0, block - len(head) - len(answer) - 3)
    before, behind = window
    before = before[max(0, len(before) - room) :]
    behind = behind[: max(0, room - len(before))]
    prompt = np.concatenate((head, before, _MASK, behind, _MASK))[:block]
    example = _learn_rest(prompt, np.concatenate((answer, _MASK))[: block - len(prompt)])
    example.weights[len(head) - len(name) : len(head)] = name_loss_weight
    return example


def draw_index(probabilities: Floats, rng: Generator) -> int:
    """An index, drawn in proportion to the probabilities, which need not sum to one."""
    total = np.cumsum(probabilities)
    i = int(np.searchsorted(total, rng.random() * total[-1], side="right"))
    return min(i, len(probabilities) - 1)


def pick_prefix(document: EncodedDocument, rng: Generator) -> Ids:
    """One to three words from anywhere in a document, to put before the name of another: in a
    question the name does not come first either."""
    words = document.word_starts
    if len(words) == 0:
        return document.ids[:0]
    first = int(rng.integers(len(words)))
    behind = first + int(rng.integers(1, MAX_PREFIX_WORDS + 1))
    stop = int(words[behind]) if behind < len(words) else len(document.ids)
    return document.ids[int(words[first]) : stop]
