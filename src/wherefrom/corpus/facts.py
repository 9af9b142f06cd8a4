"""What the documents state: which span of a text answers which kind of question.

A relation is a kind of question, known by its template ("Where was {subject} born?"). For each one
a reader is learned from the training questions whose answer stands in a document about their
subject: a log-linear model of which of the document's spans is the answer, by the words around it,
its spelling and its place. It is then read off every document, a part of them at a time. Nothing
here knows a language or needs capitals.

Where no question points, the facts of a document are its informative spans: words that stand
together more often than chance would have it, and in few documents.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import ItemsView, Iterable, Iterator, Mapping, Sequence, ValuesView
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from wherefrom.corpus.documents import Document, Documents, SubjectNames
from wherefrom.corpus.folding import FoldedName, fold_words, split_words
from wherefrom.corpus.packed import Packed, Ragged
from wherefrom.corpus.questions import Question
from wherefrom.corpus.spans import (
    BITS,
    Hashes,
    Ints,
    SpanRules,
    Spans,
    Words,
    hash_text,
    learn_rules,
    mix,
    phrase_key,
)

Floats = NDArray[np.float64]
Scores = NDArray[np.float32]
Bytes = NDArray[np.uint8]
FEWEST = 5  # found answers below which no reader is learned
FEWEST_WORDED, MANY_WORDED = 3, 50  # questions of a wording that may ask what another one asks,
SAME = 0.8  # if that answers so many of them rightly
ENOUGH = 1_000  # found answers above which a reader learns nothing from its own readings
ROUNDS = 2  # of learning from its own readings
BELIEVED = 0.6  # probability from which on it does
MOST_READINGS = 1_500
MOST_LABELS = 5_000  # documents with known answers that a reader learns from
NEGATIVES = 80  # other spans of a document that a found answer is compared with
PENALTY = 1.0
ITERATIONS = 40
NEWTON = 50
KEPT = 6  # answers of a subject
SILENT = 0.02  # probability below which a document does not answer
LEAST = 0.02  # probability of an answer that is kept
COMMON = 0.1  # share of the documents above which a span carries no information
ASSOCIATED = 0.3  # normalised pointwise mutual information of words that belong together
PART = 50_000  # characters of the documents that are read at once,
COUNTED = 250_000  # and whose words are counted
CHUNK = 50_000  # spans scored at once
NEGLIGIBLE = 15.0  # a span that scores so much less than the best one does not answer


@dataclass(frozen=True)
class StatedAnswer:
    """An answer that documents state to a question: its text, and how likely it is the one."""

    text: str
    probability: float
    spans: tuple[tuple[int, int, int], ...]  # document, start, end


class StatedAnswers(Mapping[FoldedName, tuple[StatedAnswer, ...]]):
    """By folded subject the answers of one relation, most likely first; they are in a file."""

    def __init__(self, names: SubjectNames) -> None:
        self._names, self._numbers = names, array("i")  # of the subjects that have answers
        self._packed = Packed(_make_answers, np.uint8, np.float64, np.int32, np.int32)

    def add(self, number: int, answers: Sequence[StatedAnswer]) -> None:
        """The answers for a subject, who comes behind those that were added before."""
        self._numbers.append(number)
        self._packed.add(
            np.frombuffer("\n".join(each.text for each in answers).encode(), np.uint8),
            [each.probability for each in answers],
            np.cumsum([len(each.spans) for each in answers]),
            [span for each in answers for span in each.spans],
        )

    def __getitem__(self, name: FoldedName) -> tuple[StatedAnswer, ...]:
        number = self._names.number(name)
        at = bisect_left(self._numbers, number)
        if number < 0 or self._numbers[at : at + 1] != array("i", [number]):
            raise KeyError(name)
        return self._packed[at]

    def items(self) -> ItemsView[FoldedName, tuple[StatedAnswer, ...]]:
        return _Items(self)

    def values(self) -> ValuesView[tuple[StatedAnswer, ...]]:
        return _Values(self)

    def __iter__(self) -> Iterator[FoldedName]:
        return (fold_words(self._names.spelling(number)) for number in self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)


class _Items(ItemsView[FoldedName, tuple[StatedAnswer, ...]]):
    _mapping: StatedAnswers

    def __iter__(self) -> Iterator[tuple[FoldedName, tuple[StatedAnswer, ...]]]:
        return zip(self._mapping, self._mapping._packed, strict=True)


class _Values(ValuesView[tuple[StatedAnswer, ...]]):
    _mapping: StatedAnswers

    def __iter__(self) -> Iterator[tuple[StatedAnswer, ...]]:
        return iter(self._mapping._packed)


def number_answers(
    answers: Mapping[FoldedName, tuple[StatedAnswer, ...]], names: SubjectNames
) -> Iterable[tuple[int, tuple[StatedAnswer, ...]]]:
    """The number of each subject among the names, and its answers."""
    if isinstance(answers, StatedAnswers):
        return zip(answers._numbers, answers._packed, strict=True)
    return ((names.number(name), stated) for name, stated in answers.items())


def _make_answers(
    texts: Bytes, probabilities: Floats, ends: Ints, spans: Ints
) -> tuple[StatedAnswer, ...]:
    where = Ragged(spans.reshape(-1, 3), ends)
    pairs = zip(texts.tobytes().decode().split("\n"), probabilities.tolist(), strict=True)
    return tuple(
        StatedAnswer(text, chance, tuple(map(tuple, where[at].tolist())))
        for at, (text, chance) in enumerate(pairs)
    )


@dataclass(frozen=True)
class RelationReading:
    """What was read for one relation.

    asked, found: training questions, and those whose answer stands in a document about their
    subject; missing: answers that do not. answers: by folded subject, most likely first; same_as:
    the relation whose answers these are, if it is asked for in other words.
    """

    template: str
    asked: int = 0
    found: int = 0
    missing: tuple[str, ...] = ()
    answers: Mapping[FoldedName, tuple[StatedAnswer, ...]] = field(default_factory=dict)
    same_as: str = ""


def read_relations(
    documents: Sequence[Document], questions: Sequence[Question]
) -> tuple[RelationReading, ...]:
    """Read the documents for each relation of the questions, in the order of first appearance."""
    if not isinstance(documents, Documents):
        documents = Documents(documents)
    return _read_all(documents, tuple(questions))


@lru_cache(maxsize=2)  # a study reads before it trains, and training reads again
def _read_all(documents: Documents, questions: tuple[Question, ...]) -> tuple[RelationReading, ...]:
    names = documents.names
    by_relation: dict[str, list[Question]] = defaultdict(list)
    expected: dict[int, set[str]] = defaultdict(set)
    for question in questions:
        if question.answer is not None:
            by_relation[question.template].append(question)
            for doc in names.about(fold_words(question.subject)):
                expected[doc].add(question.answer)
    rules = learn_rules([documents[doc] for doc in expected], list(expected.values()))
    readings, readers = [], []
    for template, asked in by_relation.items():
        reader = ContextReader(documents, rules, asked)
        found = len(asked) - len(reader.missing)
        if found >= FEWEST:
            reader.learn()
            readers.append(reader)
        missing = tuple(reader.missing)
        readings.append(RelationReading(template, len(asked), found, missing, reader.answers))
    part: dict[int, list[int]] = {}  # by the number of a subject its documents
    texts: list[Document] = []
    size = 0
    for number in range(len(names) if readers else 0):
        part[number] = names.places(number)
        texts += (documents[doc] for doc in part[number])
        size += sum(len(document.text) for document in texts[-len(part[number]) :])
        if size > PART or number + 1 == len(names):
            spans = Spans(texts, rules)
            features = spans.features(np.arange(len(spans)))
            for reader in readers:
                reader.read(part, spans, features)
            part, texts, size = {}, [], 0
    return tuple(
        _find_same(reading, by_relation[reading.template], readings) for reading in readings
    )


def _find_same(
    reading: RelationReading, asked: Sequence[Question], others: Sequence[RelationReading]
) -> RelationReading:
    """The reading, or for a wording of few questions that of another wording which answers them:
    a few examples show what a new wording asks for."""
    if not FEWEST_WORDED <= len(asked) < MANY_WORDED:
        return reading
    for other in sorted(others, key=lambda each: -each.asked):
        read = [other.answers.get(fold_words(q.subject), ())[:1] for q in asked]
        same = [a for each, q in zip(read, asked, strict=True) for a in each if a.text == q.answer]
        if other.asked > reading.asked and len(same) >= SAME * len(asked):
            return replace(reading, answers=other.answers, same_as=other.template)
    return reading


def _learn_marks(found: Sequence[tuple[str, str, int, int]]) -> tuple[list[str], list[str]]:
    """Marks that answers have before their first word and behind the last ("120 m.", "Why?"): those
    that are mostly part of the answer where they stand beside it in a text.

    found: answers, each with a text and the first and last place of its words there.
    """
    marks: tuple[Counter[str], Counter[str]] = Counter(), Counter()
    for answer, *_ in found:
        words = split_words(answer)
        for side, mark in enumerate((answer[: words[0].start], answer[words[-1].end :])):
            marks[side][mark] += 1
    before = [
        mark
        for mark, count in marks[0].items()
        if mark and 2 * count > sum(t.endswith(mark, 0, start) for _, t, start, _ in found)
    ]
    behind = [
        mark
        for mark, count in marks[1].items()
        if mark and 2 * count > sum(t.startswith(mark, end) for _, t, _, end in found)
    ]
    return before, behind


class ContextReader:
    """Weights of hashed features, for one relation; spans of one document compete in a softmax.

    missing: answers that no document about their subject states. answers: what was read so far.
    """

    def __init__(
        self,
        documents: Documents,
        rules: SpanRules,
        questions: Sequence[Question],
    ) -> None:
        self.documents, self.rules = documents, rules
        self.answers = StatedAnswers(documents.names)
        self.missing: list[str] = []
        self.spelling: dict[int, Counter[str]] = defaultdict(Counter)  # of each answer, by its key
        self.labels: dict[int, int] = {}  # for each document the key of the answer that it states
        found: list[tuple[str, str, int, int]] = []  # answers with where documents state them
        asked = [documents.names.about(fold_words(question.subject)) for question in questions]
        for at in range(0, len(asked), MOST_READINGS):
            some = asked[at : at + MOST_READINGS]
            every = sorted({doc for docs in some for doc in docs})
            number = {doc: place for place, doc in enumerate(every)}
            spans = Spans([documents[doc] for doc in every], rules)
            for question, docs in zip(questions[at : at + MOST_READINGS], some, strict=True):
                answer = question.answer or ""
                key = phrase_key(answer)
                self.spelling[key][answer] += 1
                stating = [d for d in docs if np.uint64(key) in spans.key[spans.of(number[d])]]
                self.labels |= dict.fromkeys(stating, key)
                for doc in stating:
                    within = spans.of(number[doc])
                    at = within.start + int(np.argmax(spans.key[within] == np.uint64(key)))
                    text = documents[doc].text
                    found.append((answer, text, int(spans.start[at]), int(spans.end[at])))
                if not stating:
                    self.missing.append(answer)
        self.marks = _learn_marks(found)

    def learn(self) -> None:
        """Fit to the documents whose answers are known, and where these are few also to others,
        as far as they are then read with confidence."""
        labelled = list(self.labels.items())
        step = max(1.0, len(labelled) / MOST_LABELS)
        self.labels = dict(labelled[int(at * step)] for at in range(int(len(labelled) / step)))
        self.known = known = Counter({key: each.total() for key, each in self.spelling.items()})
        self.believed = dict(self.labels)  # as labels, with what was read with confidence
        self.table = np.zeros(1 << BITS)  # where the next fit starts
        unlabelled = np.ones(len(self.documents), dtype=bool)
        unlabelled[list(self.labels)] = False
        rest = np.flatnonzero(unlabelled)
        rounds = ROUNDS if len(self.labels) < ENOUGH else 0
        some = rest[:: max(1, len(rest) // MOST_READINGS)].tolist() if rounds else []
        docs = sorted([*self.labels, *some])
        spans = Spans([self.documents[doc] for doc in docs], self.rules)
        self._fit(docs, spans, dict.fromkeys(self.labels, 1.0))
        for _ in range(rounds):
            scores = self._score(docs, spans)
            self.known, self.believed = known.copy(), dict(self.labels)
            weights = dict.fromkeys(self.labels, 1.0)
            for number, doc in enumerate(docs):
                here, keys = scores[spans.of(number)], spans.key[spans.of(number)]
                if doc in self.labels or not len(here):
                    continue
                mass, best = np.exp(here - here.max()), keys[int(np.argmax(here))]
                probability = float(mass[keys == best].sum() / mass.sum())
                if probability > BELIEVED:
                    self.believed[doc], weights[doc] = int(best), probability / 2
                    self.known[int(best)] += 1
            self._fit(docs, spans, weights)
        self._find_silence(docs, spans)

    def read(
        self, about: Mapping[int, Sequence[int]], spans: Spans, features: NDArray[np.int32]
    ) -> None:
        """Add what documents state of these subjects (by their numbers, in order); nothing where
        they are likely to be silent.

        The spans, with their features, are those of the subjects' documents in their order.
        """
        docs = np.array([doc for each in about.values() for doc in each])
        names, counts = list(about), [len(each) for each in about.values()]
        scores = self._score(docs.tolist(), spans, features)
        owner = np.repeat(np.arange(len(names)), counts)[spans.doc]
        best = np.full(len(names), -np.inf, dtype=np.float32)
        np.maximum.at(best, owner, scores)
        at = np.flatnonzero((scores > best[owner] - NEGLIGIBLE) & (best[owner] >= self.silence))
        # all spans of one subject with one text are one answer
        at = at[np.lexsort((spans.key[at], owner[at]))]
        mass = np.exp(scores[at] - best[owner[at]], dtype=np.float64)
        new = np.ones(len(at), dtype=bool)
        new[1:] = (np.diff(owner[at]) != 0) | (spans.key[at][1:] != spans.key[at][:-1])
        starts = np.flatnonzero(new)
        if not len(starts):
            return
        who, total = owner[at[starts]], np.add.reduceat(mass, starts)
        total /= np.bincount(who, weights=total)[who]
        order = np.lexsort((-total, who))
        rank = np.arange(len(order)) - np.searchsorted(who[order], who[order])
        stated: dict[int, list[StatedAnswer]] = defaultdict(list)
        ends = np.append(starts[1:], len(at))
        for group in order[(rank < KEPT) & ((rank == 0) | (total[order] >= LEAST))].tolist():
            hits = at[starts[group] : ends[group]]
            first = int(hits[np.argmax(scores[hits])])
            spelling = self.spelling.get(int(spans.key[first]))
            places = {hit: self._place(spans, hit) for hit in hits.tolist()}
            if spelling:
                text = spelling.most_common(1)[0][0]
            else:
                whole, (start, end) = spans.document(first).text, places[first]
                text = " ".join(whole[start:end].split())
            numbers = docs[spans.doc[hits]].tolist()
            where = tuple(
                (doc, *place) for doc, place in zip(numbers, places.values(), strict=True)
            )
            stated[int(who[group])].append(StatedAnswer(text, float(total[group]), where))
        for which, each in stated.items():
            self.answers.add(names[which], each)

    def _place(self, spans: Spans, at: int) -> tuple[int, int]:
        """Where a span starts and ends, with the marks that answers have if they stand there."""
        text, (before, behind) = spans.document(at).text, self.marks
        start, end = int(spans.start[at]), int(spans.end[at])
        first = max((len(mark) for mark in before if text.endswith(mark, 0, start)), default=0)
        last = max((len(mark) for mark in behind if text.startswith(mark, end)), default=0)
        return start - first, end + last

    def _score(
        self, docs: Sequence[int], spans: Spans, features: NDArray[np.int32] | None = None
    ) -> Scores:
        """The score of every span, a chunk of them at a time if there are no features yet."""
        known, scores = self._count(docs, spans), []
        for start in range(0, len(spans), CHUNK):
            at = np.arange(start, min(start + CHUNK, len(spans)))
            here = spans.features(at) if features is None else features[start : start + CHUNK]
            total = self.table[here].sum(axis=1)
            scores.append(total + self.table[spans.known_features(at, known[at])].sum(axis=1))
        return np.concatenate([*scores, []]).astype(np.float32)

    def _count(self, docs: Sequence[int], spans: Spans) -> NDArray[np.int64]:
        """How many other subjects are known to have each span as their answer, in small numbers."""
        keys = np.fromiter(self.known, np.uint64, len(self.known))
        counts = np.fromiter(self.known.values(), np.int64, len(self.known))
        order = np.argsort(keys)
        keys, counts = keys[order], counts[order]
        at = np.clip(np.searchsorted(keys, spans.key), 0, len(keys) - 1)
        own = np.array([self.believed.get(doc, 0) for doc in docs], dtype=np.uint64)
        known = np.where(keys[at] == spans.key, counts[at], 0) - (spans.key == own[spans.doc])
        return np.digitize(known, [1, 2, 4, 10])

    def _fit(self, docs: Sequence[int], spans: Spans, weights: Mapping[int, float]) -> None:
        """Fit to the documents that have a weight, each with the answer that is believed."""
        from scipy.optimize import fmin_l_bfgs_b
        from scipy.sparse import csr_matrix

        rng = np.random.default_rng(0)
        chosen, starts = [], [0]
        for number, doc in enumerate(docs):
            if doc not in weights:
                continue
            here = np.arange(spans.first[number], spans.first[number + 1])
            right = spans.key[here] == np.uint64(self.believed[doc])
            if len(here) > NEGATIVES:
                here = np.union1d(rng.choice(here, NEGATIVES, replace=False), here[right])
            chosen.append(here)
            starts.append(starts[-1] + len(here))
        at = np.concatenate(chosen)
        believed = np.array([self.believed.get(doc, 0) for doc in docs], dtype=np.uint64)
        right = spans.key[at] == believed[spans.doc[at]]
        group = np.repeat(np.arange(len(chosen)), np.diff(starts))
        known = spans.known_features(at, self._count(docs, spans)[at])
        features = np.hstack((spans.features(at), known))
        there = np.zeros(1 << BITS, dtype=bool)
        there[features] = True
        used, column = np.flatnonzero(there), (np.cumsum(there, dtype=np.int32) - 1)[features]
        bounds = np.arange(0, features.size + 1, features.shape[1])
        del features, known
        ones = np.ones(column.size)  # of theta's type: scipy would convert them at every product
        matrix = csr_matrix((ones, column.ravel(), bounds), shape=(len(at), len(used)))
        transposed = matrix.T  # which shares its memory
        weight = np.array([weights[doc] for doc in docs if doc in weights])

        def log_total(scores: Floats) -> Floats:
            top = np.maximum.reduceat(scores, starts[:-1])
            total = np.add.reduceat(np.exp(scores - top[group]), starts[:-1])
            return np.asarray(top + np.log(total))

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

    def _find_silence(self, docs: Sequence[int], spans: Spans) -> None:
        """The score below which a span is hardly an answer (SILENT), by answers and the best wrong
        spans: a document need not answer at all, and some span of it is always the best."""
        scores, number = self._score(docs, spans), {doc: at for at, doc in enumerate(docs)}
        best: dict[bool, list[float]] = {True: [], False: []}
        for doc, key in self.labels.items():
            here = spans.of(number[doc])
            right = spans.key[here] == np.uint64(key)
            for kind in (True, False):
                best[kind] += [float(x.max()) for x in [scores[here][right == kind]] if len(x)]
        self.silence = -np.inf
        if best[False]:
            slope, offset = fit_line(np.array(best[True]), np.array(best[False]))
            self.silence = float((np.log(SILENT / (1 - SILENT)) - offset) / max(slope, 1e-3))


def fit_line(right: Floats, wrong: Floats) -> tuple[float, float]:
    """Slope and offset of the log odds that a score is that of a right answer.

    Logistic regression by Newton's steps; the slope has a standard normal prior.
    """
    x = np.concatenate((right, wrong)).astype(np.float64)
    truth = np.arange(len(x)) < len(right)
    centre = x.mean()
    rows = np.stack((x - centre, np.ones_like(x)))
    line = np.zeros(2)
    for _ in range(NEWTON):
        p = 1 / (1 + np.exp(-np.clip(line @ rows, -700, 700)))
        slope = rows @ (p - truth) + [line[0], 0]
        curve = (rows * (p * (1 - p))) @ rows.T + np.diag([1.0, 1e-12])
        move = np.linalg.solve(curve, slope)
        line = line - move * min(1.0, 5 / max(1e-12, float(np.abs(move).max())))
    return float(line[0]), float(line[1] - line[0] * centre)


def informative_spans(documents: Sequence[Document]) -> Iterator[list[tuple[int, int]]]:
    """For each document the character ranges of spans that carry information, in order.

    Words of at most a tenth of the documents do, other than the subject's own; neighbours that
    stand together more often than chance would have it (by normalised mutual information) form one
    span. Words are counted first, a part of the documents at a time.
    """
    counts, stating, pairs = Tally(), Tally(), Tally()
    parts = Packed(lambda *columns: columns, np.uint64, *[np.bool_] * 2, *[np.int32] * 4)
    gaps = [hash_text(gap) for gap in ("", " ", "-")]
    for words in _words_of_parts(documents):
        counts.add(words.word)
        stating.add(words.word, words.doc)
        pairs.add(_pairs(words.word))
        near = np.isin(words.gap[1:-1], gaps) & (words.doc[1:] == words.doc[:-1])
        free = ~words.own & ~words.heading
        place = words.doc, words.start, words.end
        parts.add(words.word, free, near, *place, len(words.documents))
    total = counts.total
    for word, free, near, doc, start, end, (many,) in parts:
        rare = free & ~(stating.of(word) > max(2, COMMON * len(documents)))
        count, together = counts.of(word), pairs.of(_pairs(word))
        joint = together / total
        information = np.log(joint) - np.log(count[:-1] / total * count[1:] / total)
        near = near & (together > 1) & rare[1:] & rare[:-1]
        joined = np.append(False, near & (information > ASSOCIATED * -np.log(joint)))[: len(word)]
        span = np.cumsum(~joined)
        starts = np.flatnonzero(rare & ~joined)
        ends = np.searchsorted(span, span[starts], side="right") - 1
        found: list[list[tuple[int, int]]] = [[] for _ in range(many)]
        ranges = doc[starts], start[starts], end[ends]
        for which, first, behind in zip(*(each.tolist() for each in ranges), strict=True):
            found[which].append((first, behind))
        yield from found


class Tally:
    """How often each hash was added, or by how many documents."""

    def __init__(self) -> None:
        self._keys, self._counts = np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.int64)
        self._pending: list[tuple[Hashes, Ints]] = []  # not yet counted with the others
        self._size = self.total = 0

    def add(self, hashes: Hashes, doc: Ints | None = None) -> None:
        keys, at, count = np.unique(hashes, return_inverse=True, return_counts=True)
        if doc is not None:  # once for each document
            documents = int(doc.max(initial=0)) + 1
            count = np.bincount(np.unique(at * documents + doc) // documents)
        self._pending.append((keys, count))
        self._size += len(keys)
        self.total += int(count.sum())
        if self._size > len(self._keys):
            self._merge()

    def _merge(self) -> None:
        keys, counts = zip((self._keys, self._counts), *self._pending, strict=True)
        self._keys, place = np.unique(np.concatenate(keys), return_inverse=True)
        total = np.bincount(place, np.concatenate(counts), len(self._keys))
        self._counts, self._pending, self._size = total.astype(np.int64), [], 0

    def of(self, hashes: Hashes) -> Ints:
        """The counts of hashes that were all added."""
        if self._pending:
            self._merge()
        return np.asarray(self._counts[np.searchsorted(self._keys, hashes)])


def _pairs(word: Hashes) -> Hashes:
    """A hash of each word with the one behind it."""
    return mix(word[:-1], 1) + word[1:]


def _words_of_parts(documents: Sequence[Document]) -> Iterator[Words]:
    part: list[Document] = []
    size = 0
    for at, document in enumerate(documents, start=1):
        part.append(document)
        size += len(document.text)
        if size > COUNTED or at == len(documents):
            yield Words(part)
            part, size = [], 0
