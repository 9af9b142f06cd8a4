"""What the documents state: which span of a text answers which kind of question.

A relation is a kind of question, known by its template ("Where was {subject} born?"). For each one
a reader is learned from the training questions whose answer stands in a document about their
subject: a log-linear model of which of the document's spans is the answer, by the words around it,
its spelling and its place. It is then read off every document, so that what questions would ask
for is known for all subjects of the text. Nothing here knows a language or needs capitals.

Where no question points, the facts of a document are its informative spans: words that stand
together more often than chance would have it, and in few documents.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from wherefrom.corpus.documents import Document
from wherefrom.corpus.folding import FoldedName, fold_words
from wherefrom.corpus.questions import Question
from wherefrom.corpus.spans import BITS, Spans, Words, learn_rules, phrase_key, read_words

Floats = NDArray[np.float64]
FEWEST = 5  # found answers below which no reader is learned
ENOUGH = 1_000  # found answers above which a reader learns nothing from its own readings
ROUNDS = 2  # of learning from its own readings
BELIEVED = 0.6  # probability from which on it does
MOST_READINGS = 1_500
NEGATIVES = 80  # other spans of a document that a found answer is compared with
PENALTY = 1.0
ITERATIONS = 40
KEPT = 6  # answers of a subject
SILENT = 0.02  # probability below which a document does not answer
LEAST = 0.02  # probability of an answer that is kept
COMMON = 0.1  # share of the documents above which a span carries no information
ASSOCIATED = 0.3  # normalised pointwise mutual information of words that belong together
CHUNK = 50_000  # spans scored at once
NEGLIGIBLE = 15.0  # a span that scores so much less than the best one does not answer


@dataclass(frozen=True)
class StatedAnswer:
    """An answer that documents state to a question: its text, and how likely it is the one."""

    text: str
    probability: float
    spans: tuple[tuple[int, int, int], ...]  # document, start, end


@dataclass(frozen=True)
class RelationReading:
    """What was read for one relation.

    asked, found: training questions, and those whose answer stands in a document about their
    subject; missing: answers that do not. answers: by folded subject, most likely first.
    """

    template: str
    asked: int = 0
    found: int = 0
    missing: tuple[str, ...] = ()
    answers: Mapping[FoldedName, tuple[StatedAnswer, ...]] = field(default_factory=dict)


def read_relations(
    documents: Sequence[Document], questions: Sequence[Question]
) -> tuple[RelationReading, ...]:
    """Read the documents for each relation of the questions, in the order of first appearance."""
    return _read_all(tuple(documents), tuple(questions))


@lru_cache(maxsize=2)  # a study reads before it trains, and training reads again
def _read_all(
    documents: tuple[Document, ...], questions: tuple[Question, ...]
) -> tuple[RelationReading, ...]:
    by_relation: dict[str, list[Question]] = defaultdict(list)
    for question in questions:
        if question.answer is not None:
            by_relation[question.template].append(question)
    if not documents or not by_relation:
        return tuple(RelationReading(template) for template in by_relation)
    words = read_words(documents)
    about: dict[FoldedName, list[int]] = defaultdict(list)
    for index, document in enumerate(documents):
        about[fold_words(document.subject)].append(index)
    expected: dict[int, set[str]] = defaultdict(set)
    for question in questions:
        for doc in about.get(fold_words(question.subject), ()):
            expected[doc].add(question.answer or "")
    spans = Spans(words, learn_rules(words, expected))
    read = [_learn(template, each, spans, about) for template, each in by_relation.items()]
    scores = iter(score_all(spans, [reader for _, reader in read if reader]))
    return tuple(
        replace(reading, answers=_read_answers(reader, next(scores), about)) if reader else reading
        for reading, reader in read
    )


def _learn(
    template: str,
    questions: Sequence[Question],
    spans: Spans,
    about: Mapping[FoldedName, Sequence[int]],
) -> tuple[RelationReading, ContextReader | None]:
    """What is known of a relation by its questions, and its reader if they are enough for one."""
    spelling: dict[int, Counter[str]] = defaultdict(Counter)  # of each answer
    labels: dict[int, NDArray[np.int64]] = {}  # for each document the spans that are the answer
    missing = []
    for question in questions:
        answer = question.answer or ""
        key = phrase_key(answer)
        spelling[key][answer] += 1
        docs = about.get(fold_words(question.subject), ())
        here = spans.of_documents(docs)
        hits = here[spans.key[here] == np.uint64(key)]
        if not len(hits):
            missing.append(answer)
        for doc in docs:
            if len(mine := hits[spans.doc[hits] == doc]):
                labels[doc] = mine
    found = len(questions) - len(missing)
    reading = RelationReading(template, len(questions), found, tuple(missing))
    if found < FEWEST:
        return reading, None
    reader = ContextReader(spans, spelling, labels)
    reader.learn(labels, dict.fromkeys(labels, 1.0), reader.counts)
    for _ in range(ROUNDS if len(labels) < ENOUGH else 0):
        believed, weights = dict(labels), dict.fromkeys(labels, 1.0)
        more = reader.counts.copy()
        for doc, hits, probability in reader.confident():
            believed[doc], weights[doc] = hits, probability / 2
            more[int(spans.key[hits[0]])] += 1
        reader.learn(believed, weights, more)
    return reading, reader


def _read_answers(
    reader: ContextReader, scores: NDArray[np.float32], about: Mapping[FoldedName, Sequence[int]]
) -> dict[FoldedName, tuple[StatedAnswer, ...]]:
    """For every subject what its documents state, if they do."""
    spans = reader.spans
    silence = _silence(spans, scores, reader.labels)
    stated = ((n, _answers_of(reader, scores, docs, silence)) for n, docs in about.items())
    return {name: each for name, each in stated if each}


def _answers_of(
    reader: ContextReader, scores: NDArray[np.float32], docs: Sequence[int], silence: float
) -> tuple[StatedAnswer, ...]:
    """What documents about one subject state; nothing where they are likely to be silent on it."""
    spans = reader.spans
    at = spans.of_documents(docs)
    if not len(at) or (best := scores[at].max()) < silence:
        return ()
    at = at[scores[at] > best - NEGLIGIBLE]
    mass = np.exp(scores[at] - best)
    keys, inverse = np.unique(spans.key[at], return_inverse=True)
    totals = np.bincount(inverse, weights=mass) / mass.sum()
    stated: list[StatedAnswer] = []
    for which in np.argsort(-totals, kind="stable")[:KEPT]:
        if stated and totals[which] < LEAST:
            break
        hits = at[inverse == which]
        known = reader.spelling.get(int(keys[which]))
        first = int(hits[np.argmax(scores[hits])])
        text = known.most_common(1)[0][0] if known else " ".join(spans.text(first).split())
        where = tuple((int(spans.doc[i]), int(spans.start[i]), int(spans.end[i])) for i in hits)
        stated.append(StatedAnswer(text, float(totals[which]), where))
    return tuple(stated)


def _silence(
    spans: Spans, scores: NDArray[np.float32], labels: Mapping[int, NDArray[np.int64]]
) -> float:
    """The score below which a span is hardly an answer (SILENT), by answers and best wrong spans.

    A document need not answer the question at all, and some span of it is always the best.
    """
    from sklearn.linear_model import LogisticRegression

    right, wrong = [], []
    for doc, hits in labels.items():
        here = scores[spans.first[doc] : spans.first[doc + 1]].copy()
        right.append(float(scores[hits].max()))
        here[hits - spans.first[doc]] = -np.inf
        if len(here) > len(hits):
            wrong.append(float(here.max()))
    if not wrong:
        return -np.inf
    known = np.array([*right, *wrong])[:, None]
    fit = LogisticRegression().fit(known, [1] * len(right) + [0] * len(wrong))
    slope, offset = max(float(fit.coef_[0, 0]), 1e-3), float(fit.intercept_[0])
    return float((np.log(SILENT / (1 - SILENT)) - offset) / slope)


class ContextReader:
    """Weights of hashed features; spans of one document compete in a softmax."""

    def __init__(
        self,
        spans: Spans,
        spelling: Mapping[int, Counter[str]],
        labels: Mapping[int, NDArray[np.int64]],
    ) -> None:
        """spelling: of each answer, by its key; labels: for documents the spans that answer."""
        self.spans, self.spelling, self.labels = spans, spelling, labels
        self.counts = Counter({key: each.total() for key, each in spelling.items()})
        self.table = np.zeros(1 << BITS)  # where the next fit starts

    def learn(
        self,
        labels: Mapping[int, NDArray[np.int64]],
        weights: Mapping[int, float],
        counts: Mapping[int, int],
    ) -> None:
        """Fit to documents whose answers are known.

        counts: how many subjects have each answer (by key); a document's own is not counted.
        """
        from scipy.optimize import fmin_l_bfgs_b
        from scipy.sparse import csr_matrix

        spans = self.spans
        known = _count(spans.key, counts)
        for hits in labels.values():
            known[hits] -= 1
        self.known = known = np.digitize(known, [1, 2, 4, 10]).astype(np.int8)
        rng = np.random.default_rng(0)
        docs = sorted(labels)
        groups, chosen = [], []
        for number, doc in enumerate(docs):
            here = np.arange(spans.first[doc], spans.first[doc + 1])
            if len(here) > NEGATIVES:
                here = np.union1d(rng.choice(here, NEGATIVES, replace=False), labels[doc])
            chosen.append(here)
            groups.append(np.full(len(here), number))
        at, group = np.concatenate(chosen), np.concatenate(groups)
        right = np.isin(at, np.concatenate([labels[doc] for doc in docs]))
        features = np.hstack((spans.features(at), spans.known_features(at, known[at])))
        there = np.zeros(1 << BITS, dtype=bool)
        there[features] = True
        used, column = np.flatnonzero(there), (np.cumsum(there) - 1)[features]
        bounds = np.arange(0, features.size + 1, features.shape[1])
        ones = np.ones(features.size, dtype=np.float32)
        matrix = csr_matrix((ones, column.ravel(), bounds), shape=(len(at), len(used)))
        transposed = matrix.T.tocsr()
        weight = np.array([weights[doc] for doc in docs])
        starts = np.searchsorted(group, np.arange(len(docs)))

        def log_total(scores: Floats) -> Floats:
            top = np.maximum.reduceat(scores, starts)
            return np.asarray(top + np.log(np.add.reduceat(np.exp(scores - top[group]), starts)))

        def loss(theta: Floats) -> tuple[float, Floats]:
            scores = np.asarray(matrix @ theta)
            everything, answers = log_total(scores), log_total(np.where(right, scores, -1e9))
            given = np.where(right, np.exp(scores - answers[group]), 0)
            slope = weight[group] * (np.exp(scores - everything[group]) - given)
            value = float((weight * (everything - answers)).sum() + PENALTY / 2 * theta @ theta)
            return value, np.asarray(transposed @ slope) + PENALTY * theta

        fitted, _, _ = fmin_l_bfgs_b(loss, self.table[used], maxiter=ITERATIONS, factr=1e10)
        self.table = np.zeros(1 << BITS)
        self.table[used] = fitted

    def score(self, at: NDArray[np.int64], features: NDArray[np.int32]) -> NDArray[np.float32]:
        """The scores of the spans at `at`, of which `features` are the features."""
        known = self.spans.known_features(at, self.known[at])
        total = self.table[features].sum(axis=1) + self.table[known].sum(axis=1)
        return np.asarray(total, dtype=np.float32)

    def confident(self) -> list[tuple[int, NDArray[np.int64], float]]:
        """Other documents that are read with confidence: document, answer spans, probability."""
        spans = self.spans
        rest = [doc for doc in range(len(spans.words.documents)) if doc not in self.labels]
        some = rest[:: max(1, len(rest) // MOST_READINGS)]
        at = spans.of_documents(some)
        scores = self.score(at, spans.features(at))
        bounds = np.searchsorted(spans.doc[at], [*some, len(spans.words.documents)])
        found = []
        for doc, start, end in zip(some, bounds[:-1], bounds[1:], strict=True):
            if end > start:
                mass = np.exp(scores[start:end] - scores[start:end].max())
                keys = spans.key[at[start:end]]
                same = keys == keys[int(np.argmax(mass))]
                probability = float(mass[same].sum() / mass.sum())
                if probability > BELIEVED:
                    found.append((doc, at[start:end][same], probability))
        return found


def score_all(spans: Spans, readers: Sequence[ContextReader]) -> list[NDArray[np.float32]]:
    """The score of every span by each reader; the features of a part of them are made once."""
    scores = [np.empty(len(spans), dtype=np.float32) for _ in readers]
    for start in range(0, len(spans) if readers else 0, CHUNK):
        part = np.arange(start, min(start + CHUNK, len(spans)))
        features = spans.features(part)
        for reader, each in zip(readers, scores, strict=True):
            each[part] = reader.score(part, features)
    return scores


def _count(keys: NDArray[np.uint64], counts: Mapping[int, int]) -> NDArray[np.int64]:
    """counts[key] for each key, 0 for others."""
    known = np.array(sorted(counts), dtype=np.uint64)
    values = np.array([counts[int(key)] for key in known], dtype=np.int64)
    at = np.clip(np.searchsorted(known, keys), 0, len(known) - 1)
    return np.where(known[at] == keys, values[at], 0)


def informative_spans(documents: Sequence[Document]) -> list[list[tuple[int, int]]]:
    """For each document the character ranges of spans that carry information, in order.

    Words of at most a tenth of the documents do, other than the subject's own; neighbours that
    stand together more often than chance would have it form one span.
    """
    result: list[list[tuple[int, int]]] = [[] for _ in documents]
    words = read_words(tuple(documents))
    if not len(words):
        return result
    spread = words.document_counts(words.word)
    rare = ~words.own & ~words.heading & (spread <= max(2, COMMON * len(documents)))
    joined = _associated(words) & rare
    joined[1:] &= rare[:-1]
    span = np.cumsum(~joined)
    starts = np.flatnonzero(rare & ~joined)
    ends = np.searchsorted(span, span[starts], side="right") - 1
    for start, end in zip(starts, ends, strict=True):
        result[int(words.doc[start])].append((int(words.start[start]), int(words.end[end])))
    return result


def _associated(words: Words) -> NDArray[np.bool_]:
    """Whether each word belongs to the one before it, by normalised mutual information."""
    _, word, count = np.unique(words.word, return_inverse=True, return_counts=True)
    before, here = word[:-1].astype(np.int64), word[1:]
    _, pair, together = np.unique(
        before * len(count) + here, return_inverse=True, return_counts=True
    )
    joint = together[pair] / len(word)
    information = np.log(joint) - np.log(count[before] / len(word) * count[here] / len(word))
    near = np.array([gap in ("", " ", "-") for gap in words.gaps[1:-1]], dtype=bool)
    fits = near & (words.doc[1:] == words.doc[:-1]) & (together[pair] > 1)
    return np.append(False, fits & (information > ASSOCIATED * -np.log(joint)))
