"""What the documents state: which span of a text answers which kind of question.

A relation is a kind of question, given by its template ("Where was {subject} born?"). For each
relation a reader is trained on the questions whose answer stands in a document about their subject:
a log-linear model that picks the answer among the document's spans, by the words around a span, its
spelling and its position. The reader then reads every document. It works in any language, with or
without capitals.

Where no question helps, the facts of a document are its informative spans: rare words, joined where
they occur together more often than by chance.
"""

from __future__ import annotations

import json
from array import array
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from wherefrom.corpus.documents import Document, Documents, SubjectNames
from wherefrom.corpus.folding import FoldedName, fold_words, split_words
from wherefrom.corpus.packed import Packed, RecordFile
from wherefrom.corpus.questions import Question
from wherefrom.corpus.spans import (
    BITS,
    Features,
    Hashes,
    Ints,
    SpanRules,
    Spans,
    Words,
    hash_text,
    learn_rules,
    look_up,
    mix,
    phrase_key,
)

T = TypeVar("T")
Floats = NDArray[np.float64]
Scores = NDArray[np.float32]
FEWEST = 5  # training answers found in documents, below which no reader is trained
# a template of so few questions may be another wording of a relation,
FEWEST_REWORDED, MOST_REWORDED = 3, 50
SAME = 0.8  # if the relation's reader answers this share of them rightly
MOST_LABELS = 5_000  # documents with known answers that a reader is trained on
ENOUGH_LABELS = 1_000  # from this many on it is not trained on its own readings
ROUNDS = 2  # of training on its own readings,
MOST_READINGS = 1_500  # of so many documents,
CONFIDENT = 0.6  # where the probability of an answer is higher than this
NEGATIVES = 80  # spans of a document that compete with its answer in training
PENALTY = 1.0  # on the squared weights
ITERATIONS = 40
NEGLIGIBLE = 15.0  # a span whose score is this much below the best is no answer
MOST_ANSWERS = 6  # of a subject
LEAST_PROBABILITY = 0.02  # of an answer that is not the most likely one
FOLDS = 5  # of the labelled documents, each scored by a reader of the others,
ENOUGH_HELD_OUT = 300  # until so many are scored
DEVIATIONS_BELOW = 2.5  # the mean score of answers, where nothing is read any more
LEAST_DEVIATIONS = (1.5, 1.0)  # of these scores, and of the part without known answers
READ_CHARACTERS = 50_000  # of text that is read at once,
COUNTED_CHARACTERS = 250_000  # and whose words are counted at once
CHUNK = 50_000  # spans that are scored at once
COMMON = 0.1  # share of the documents from which on a word is not informative
ASSOCIATED = 0.3  # normalised pointwise mutual information of words that belong together


@dataclass(frozen=True)
class StatedAnswer:
    """An answer that documents state: its text, its probability, and the spans that state it, each
    with its document, start and end."""

    text: str
    probability: float
    spans: Sequence[Sequence[int]]


class StatedAnswers:
    """The answers of one relation by subject, the most likely first; they are in a file.

    names: the subjects of the documents; numbers: those that have answers, in ascending order.
    """

    def __init__(self, names: SubjectNames) -> None:
        self._names, self.numbers = names, array("i")
        self._answers = RecordFile(
            lambda content: tuple(StatedAnswer(*row) for row in json.loads(content))
        )

    def add(self, number: int, answers: Sequence[StatedAnswer]) -> None:
        """Add the answers about a subject, whose number is higher than all before."""
        self.numbers.append(number)
        rows = [(answer.text, answer.probability, answer.spans) for answer in answers]
        self._answers.append(json.dumps(rows).encode())

    def get(self, name: FoldedName) -> tuple[StatedAnswer, ...]:
        """The answers about a subject; none for one that is not known."""
        number = self._names.number(name)
        i = bisect_left(self.numbers, number)
        known = i < len(self.numbers) and self.numbers[i] == number
        return self._answers[i] if known else ()

    def values(self) -> Iterator[tuple[StatedAnswer, ...]]:
        return iter(self._answers)

    def items(self) -> Iterator[tuple[FoldedName, tuple[StatedAnswer, ...]]]:
        names = (fold_words(self._names.spelling(number)) for number in self.numbers)
        return zip(names, self._answers, strict=True)

    def __len__(self) -> int:
        return len(self.numbers)


@dataclass(frozen=True)
class RelationReading:
    """What was read for one relation.

    asked: training questions; found: those whose answer stands in a document about their subject;
    missing: the answers of the others. same_as: the relation that this one is another wording of,
    if any; the answers are then those of that relation.
    """

    template: str
    asked: int
    found: int
    missing: tuple[str, ...]
    answers: StatedAnswers
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
    by_template: dict[str, list[Question]] = defaultdict(list)
    expected: dict[int, set[str]] = defaultdict(set)  # the answers that a document should state
    for question in questions:
        if question.answer is not None:
            by_template[question.template].append(question)
            for doc in names.about(fold_words(question.subject)):
                expected[doc].add(question.answer)
    rules = learn_rules([(documents[doc], answers) for doc, answers in expected.items()])
    readings, readers = [], []
    for template, asked in by_template.items():
        reader = RelationReader(documents, rules, asked)
        found = len(asked) - len(reader.missing)
        if found >= FEWEST:
            reader.train()
            readers.append(reader)
        missing = tuple(reader.missing)
        readings.append(RelationReading(template, len(asked), found, missing, reader.answers))
    # all documents about a subject are read together
    subjects = ([(doc, documents[doc]) for doc in names.places(n)] for n in range(len(names)))
    parts = _batch_by_size(
        subjects, lambda about: sum(len(document.text) for _, document in about), READ_CHARACTERS
    )
    for part in parts if readers else ():
        spans = Spans(dict(chain.from_iterable(part)), rules)
        features = spans.features(np.arange(len(spans)))
        for reader in readers:
            reader.read(spans, features)
    return tuple(
        _reworded(reading, by_template[reading.template], readings) for reading in readings
    )


def _batch_by_size(items: Iterable[T], size: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """Consecutive items in lists, each ended by the item with which its size exceeds `most`."""
    batch: list[T] = []
    total = 0
    for item in items:
        batch.append(item)
        total += size(item)
        if total > most:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch


def _reworded(
    reading: RelationReading, questions: Sequence[Question], others: Sequence[RelationReading]
) -> RelationReading:
    """The reading, or for a template of few questions that of another relation which answers them:
    a few examples show that both ask for the same."""
    if not FEWEST_REWORDED <= len(questions) < MOST_REWORDED:
        return reading
    for other in sorted(others, key=lambda other: -other.asked):
        right = 0
        for question in questions:
            answers = other.answers.get(fold_words(question.subject))
            right += bool(answers) and answers[0].text == question.answer
        if other.asked > reading.asked and right >= SAME * len(questions):
            return replace(reading, answers=other.answers, same_as=other.template)
    return reading


class RelationReader:
    """Finds the answers to one relation: a softmax over the spans of a document, whose scores are
    sums of the weights of hashed features.

    missing: training answers that no document about their subject states.
    answers: what was read so far.
    """

    def __init__(
        self, documents: Documents, rules: SpanRules, questions: Sequence[Question]
    ) -> None:
        self.documents, self.rules = documents, rules
        self.answers = StatedAnswers(documents.names)
        self.missing: list[str] = []
        self.spellings: dict[int, Counter[str]] = defaultdict(Counter)  # of answers, by their key
        self.labels: dict[int, int] = {}  # document -> key of the answer that it states
        stated: list[tuple[str, str, int, int]] = []  # answer, text, start and end of its words
        for first in range(0, len(questions), MOST_READINGS):
            batch = questions[first : first + MOST_READINGS]
            about = [documents.names.about(fold_words(question.subject)) for question in batch]
            docs = sorted({doc for indices in about for doc in indices})
            spans = Spans({doc: documents[doc] for doc in docs}, rules)
            for question, indices in zip(batch, about, strict=True):
                answer = question.answer or ""
                key = phrase_key(answer)
                self.spellings[key][answer] += 1
                stating = [doc for doc in indices if np.uint64(key) in spans.key[spans.of(doc)]]
                for doc in stating:
                    self.labels[doc] = key
                    here = spans.of(doc)
                    row = here.start + int(np.argmax(spans.key[here] == np.uint64(key)))
                    text = documents[doc].text
                    stated.append((answer, text, int(spans.start[row]), int(spans.end[row])))
                if not stating:
                    self.missing.append(answer)
        self.marks = _learn_marks(stated)

    def train(self) -> None:
        """Fit the weights to the documents whose answers are known. If these are few, also to other
        documents, with the answers that were read off them with confidence."""
        labelled = list(self.labels.items())
        step = max(1.0, len(labelled) / MOST_LABELS)
        self.labels = dict(labelled[int(i * step)] for i in range(int(len(labelled) / step)))
        rounds = ROUNDS if len(self.labels) < ENOUGH_LABELS else 0
        unlabelled = np.setdiff1d(np.arange(len(self.documents)), list(self.labels))
        some = unlabelled[:: max(1, len(unlabelled) // MOST_READINGS)].tolist() if rounds else []
        docs = sorted([*self.labels, *some])
        spans = Spans({doc: self.documents[doc] for doc in docs}, self.rules)
        known = Counter({key: count.total() for key, count in self.spellings.items()})
        self.known = known  # key of an answer -> how many subjects have it
        self.believed = dict(self.labels)  # the labels, and what was read with confidence
        self.weights = np.zeros(1 << BITS)  # of the features
        importance = dict.fromkeys(self.labels, 1.0)
        self._fit(spans, importance)
        for _ in range(rounds):
            scores, _ = self._score(spans)
            self.known, self.believed = known.copy(), dict(self.labels)
            importance = dict.fromkeys(self.labels, 1.0)
            for doc in docs:
                here, keys = scores[spans.of(doc)], spans.key[spans.of(doc)]
                if doc in self.labels or not len(here):
                    continue
                mass, best = np.exp(here - here.max()), keys[int(np.argmax(here))]
                probability = float(mass[keys == best].sum() / mass.sum())
                if probability > CONFIDENT:
                    self.believed[doc], importance[doc] = int(best), probability / 2
                    self.known[int(best)] += 1
            self._fit(spans, importance)
        self._set_thresholds(spans, importance)

    def read(self, spans: Spans, features: Features) -> None:
        """Add what documents state about their subjects; nothing about a subject around whose best
        span the text is unlike that around known answers.

        spans: of all documents about some subjects, in the order of the subjects' numbers.
        """
        subject = self.documents.names.of_document[spans.docs]
        owner = (subject - subject[0])[spans.doc]  # the subject of each span, counted from 0
        scores, context = self._score(spans, features)
        best = np.full(subject[-1] - subject[0] + 1, -np.inf, dtype=np.float32)
        np.maximum.at(best, owner, scores)
        is_stated = np.zeros(len(best), dtype=bool)
        least_score, least_context = self.thresholds
        is_best = scores == best[owner]
        is_stated[owner[is_best & (scores >= least_score) & (context >= least_context)]] = True
        rows = np.flatnonzero((scores > best[owner] - NEGLIGIBLE) & is_stated[owner])
        if not len(rows):
            return
        # spans of one subject with the same key are one answer: sort them into groups
        rows = rows[np.lexsort((spans.key[rows], owner[rows]))]
        mass = np.exp(scores[rows] - best[owner[rows]], dtype=np.float64)
        new = np.ones(len(rows), dtype=bool)
        new[1:] = (np.diff(owner[rows]) != 0) | (np.diff(spans.key[rows]) != 0)
        starts = np.flatnonzero(new)
        ends = np.append(starts[1:], len(rows))
        about, probability = owner[rows[starts]], np.add.reduceat(mass, starts)
        probability /= np.bincount(about, weights=probability)[about]
        # the groups of each subject, the most likely first
        order = np.lexsort((-probability, about))
        rank = np.arange(len(order)) - np.searchsorted(about[order], about[order])
        kept = (rank < MOST_ANSWERS) & ((rank == 0) | (probability[order] >= LEAST_PROBABILITY))
        answers: dict[int, list[StatedAnswer]] = defaultdict(list)
        for group in order[kept].tolist():
            same = rows[starts[group] : ends[group]]
            places = [self._place(spans, row) for row in same.tolist()]
            best_row = int(np.argmax(scores[same]))
            spellings = self.spellings.get(int(spans.key[same[0]]))
            if spellings:
                text = spellings.most_common(1)[0][0]
            else:
                start, end = places[best_row]
                text = " ".join(spans.document(same[best_row]).text[start:end].split())
            indices = spans.docs[spans.doc[same]].tolist()
            stating = [(doc, *place) for doc, place in zip(indices, places, strict=True)]
            stated = StatedAnswer(text, float(probability[group]), stating)
            answers[int(subject[0] + about[group])].append(stated)
        for number, stated_answers in answers.items():
            self.answers.add(number, stated_answers)

    def _place(self, spans: Spans, row: int) -> tuple[int, int]:
        """Start and end of a span, with the marks around it that answers of the relation have."""
        text, (before, behind) = spans.document(row).text, self.marks
        start, end = int(spans.start[row]), int(spans.end[row])
        first = max((len(mark) for mark in before if text.endswith(mark, 0, start)), default=0)
        last = max((len(mark) for mark in behind if text.startswith(mark, end)), default=0)
        return start - first, end + last

    def _score(self, spans: Spans, features: Features | None = None) -> tuple[Scores, Scores]:
        """The score of every span, and the part of it that does not depend on known answers.

        Features that are not given are computed a chunk at a time.
        """
        known = self._count_known(spans)
        context, of_known = np.zeros((2, len(spans)), dtype=np.float32)
        for start in range(0, len(spans), CHUNK):
            rows = np.arange(start, min(start + CHUNK, len(spans)))
            here = spans.features(rows) if features is None else features[start : start + CHUNK]
            context[rows] = self.weights[here].sum(axis=1)
            of_known[rows] = self.weights[spans.known_features(rows, known[rows])].sum(axis=1)
        return context + of_known, context

    def _count_known(self, spans: Spans) -> Ints:
        """How many other subjects have the text of each span as their answer: 0 to 4 stand for
        none, 1, 2 or 3, 4 to 9, and more."""
        counts = look_up(self.known, spans.key, np.uint64(0)).astype(np.int64)
        return np.digitize(counts - self._is_answer(spans), [1, 2, 4, 10])

    def _is_answer(self, spans: Spans) -> NDArray[np.bool_]:
        """Whether each span has the answer that its document is believed to state."""
        answers = [self.believed.get(doc, 0) for doc in spans.docs.tolist()]
        return spans.key == np.array(answers, dtype=np.uint64)[spans.doc]

    def _fit(self, spans: Spans, importance: Mapping[int, float]) -> None:
        """Fit the weights to the documents that have an importance, with their believed answers, by
        the log-likelihood of the answers with a penalty on the squared weights."""
        from scipy.optimize import fmin_l_bfgs_b
        from scipy.sparse import csr_matrix

        rng = np.random.default_rng(0)
        is_answer = self._is_answer(spans)
        docs = [doc for doc in spans.docs.tolist() if doc in importance]
        chosen, starts = [], [0]
        for doc in docs:
            here = np.arange(spans.of(doc).start, spans.of(doc).stop)
            if len(here) > NEGATIVES:
                some = rng.choice(here, NEGATIVES, replace=False)
                here = np.union1d(some, here[is_answer[here]])
            chosen.append(here)
            starts.append(starts[-1] + len(here))
        rows = np.concatenate(chosen)
        right = is_answer[rows]
        group = np.repeat(np.arange(len(docs)), np.diff(starts))  # the document of each row
        weight = np.array([importance[doc] for doc in docs])
        known = spans.known_features(rows, self._count_known(spans)[rows])
        features = np.hstack((spans.features(rows), known))
        present = np.zeros(1 << BITS, dtype=bool)
        present[features] = True
        used, column = np.flatnonzero(present), (np.cumsum(present, dtype=np.int32) - 1)[features]
        bounds = np.arange(0, features.size + 1, features.shape[1])
        del features, known  # the matrix below is what takes most memory
        ones = np.ones(column.size)  # of theta's type: scipy would convert them at every product
        matrix = csr_matrix((ones, column.ravel(), bounds), shape=(len(rows), len(used)))
        transposed = matrix.T  # which shares its memory

        def log_total(scores: Floats) -> Floats:
            """The logarithm of the sum of exp(score) over each document's rows."""
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

        fitted, _, _ = fmin_l_bfgs_b(loss, self.weights[used], maxiter=ITERATIONS, factr=1e10)
        self.weights = np.zeros(1 << BITS)
        self.weights[used] = fitted

    def _set_thresholds(self, spans: Spans, importance: Mapping[int, float]) -> None:
        """Set the scores below which a document's best span is hardly ever an answer.

        They are far below those of the answers in documents that the reader has not learned: each
        labelled document is scored by weights that were fitted without it. The second score is
        that of spelling and surroundings alone: a known place need not be the one asked for.
        """
        weights, self.thresholds = self.weights, (-np.inf, -np.inf)
        scores_of_answers: list[tuple[float, float]] = []
        for fold in range(FOLDS if len(self.labels) >= FOLDS else 0):
            held_out = set(list(self.labels)[fold::FOLDS])
            self.weights = np.zeros(1 << BITS)
            self._fit(spans, {doc: w for doc, w in importance.items() if doc not in held_out})
            new = Spans({doc: self.documents[doc] for doc in sorted(held_out)}, self.rules)
            both = np.where(self._is_answer(new), self._score(new), -np.inf)
            for doc in held_out:
                score, context = both[:, new.of(doc)].max(axis=1).tolist()
                scores_of_answers.append((score, context))
            if len(scores_of_answers) >= ENOUGH_HELD_OUT:
                break
        self.weights = weights
        if scores_of_answers:
            mean, deviation = np.mean(scores_of_answers, axis=0), np.std(scores_of_answers, axis=0)
            lowest = mean - DEVIATIONS_BELOW * np.maximum(deviation, LEAST_DEVIATIONS)
            self.thresholds = (float(lowest[0]), float(lowest[1]))


def _learn_marks(stated: Sequence[tuple[str, str, int, int]]) -> tuple[list[str], list[str]]:
    """Punctuation that answers have before their first word and behind their last ("120 m.",
    "Why?"), if it mostly belongs to the answer where it stands beside its words in a text.

    stated: answers, each with a text and the start and end of the answer's words there.
    """
    before = Counter(answer[: split_words(answer)[0].start] for answer, *_ in stated)
    behind = Counter(answer[split_words(answer)[-1].end :] for answer, *_ in stated)
    kept_before = [
        mark
        for mark, count in before.items()
        if mark and 2 * count > sum(text.endswith(mark, 0, start) for _, text, start, _ in stated)
    ]
    kept_behind = [
        mark
        for mark, count in behind.items()
        if mark and 2 * count > sum(text.startswith(mark, end) for _, text, _, end in stated)
    ]
    return kept_before, kept_behind


def informative_spans(documents: Sequence[Document]) -> Iterator[list[tuple[int, int]]]:
    """For each document the start and end of its informative spans, in order.

    A word is informative if at most a tenth of the documents have it and it is no word of the
    subject's name. Neighbours that occur together more often than by chance (normalised mutual
    information) are one span. All words are counted first, and kept in a file meanwhile.
    """
    counts, document_counts, pair_counts, total = Tally(), Tally(), Tally(), 0
    parts = Packed(lambda *columns: columns, np.uint64, *[np.bool_] * 2, *[np.int32] * 4)
    gaps = [hash_text(gap) for gap in ("", " ", "-")]
    for batch in _batch_by_size(documents, lambda d: len(d.text), COUNTED_CHARACTERS):
        words = Words(batch)
        total += len(words)
        counts.add(words.word)
        pair_counts.add(_pairs(words.word))
        # each word of a document once
        _, first = np.unique(mix(words.word, 2) + words.doc.astype(np.uint64), return_index=True)
        document_counts.add(words.word[first])
        adjacent = np.isin(words.gap[1:-1], gaps) & (words.doc[1:] == words.doc[:-1])
        free = ~words.own & ~words.heading
        parts.add(words.word, free, adjacent, words.doc, words.start, words.end, len(batch))
    for word, free, adjacent, doc, start, end, (size,) in parts:
        rare = free & (document_counts.of(word) <= max(2, COMMON * len(documents)))
        count, together = counts.of(word), pair_counts.of(_pairs(word))
        joint = together / total
        information = np.log(joint) - np.log(count[:-1] / total * count[1:] / total)
        linked = adjacent & (together > 1) & rare[1:] & rare[:-1]
        linked &= information > ASSOCIATED * -np.log(joint)
        joined = np.append(False, linked)[: len(word)]  # to the word before
        span = np.cumsum(~joined)
        firsts = np.flatnonzero(rare & ~joined)
        lasts = np.searchsorted(span, span[firsts], side="right") - 1
        spans: list[list[tuple[int, int]]] = [[] for _ in range(size)]
        columns = doc[firsts], start[firsts], end[lasts]
        for index, left, right in zip(*(column.tolist() for column in columns), strict=True):
            spans[index].append((left, right))
        yield from spans


class Tally:
    """How often each hash was added.

    New counts are merged with the others when there are more of them, and not each time.
    """

    def __init__(self) -> None:
        self._keys, self._counts = np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.int64)
        self._pending: list[tuple[Hashes, Ints]] = []

    def add(self, hashes: Hashes) -> None:
        self._pending.append(np.unique(hashes, return_counts=True))
        if sum(len(keys) for keys, _ in self._pending) > len(self._keys):
            self._merge()

    def _merge(self) -> None:
        keys, counts = zip((self._keys, self._counts), *self._pending, strict=True)
        self._keys, inverse = np.unique(np.concatenate(keys), return_inverse=True)
        total = np.bincount(inverse, np.concatenate(counts), len(self._keys))
        self._counts, self._pending = total.astype(np.int64), []

    def of(self, hashes: Hashes) -> Ints:
        """The counts of hashes that were all added."""
        if self._pending:
            self._merge()
        return np.asarray(self._counts[np.searchsorted(self._keys, hashes)])


def _pairs(word: Hashes) -> Hashes:
    """A hash of each word together with the next one."""
    return mix(word[:-1], 1) + word[1:]
