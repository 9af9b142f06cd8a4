"""What the documents state: which span of a text answers which kind of question.

A relation is a kind of question, given by its template ("Where was {subject} born?"). For each
relation a reader is trained on the questions whose answer stands in a document about their subject:
a log-linear model that picks the answer among the document's spans, by the words around a span, its
spelling and its position. The reader then reads every document, and what it finds is written to the
table `facts` of the database. It works in any language, with or without capitals.

Where no question helps, the facts of a document are its informative spans: rare words, joined where
they occur together more often than by chance.
"""

from __future__ import annotations

import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from wherefrom.corpus.database import AskedRelation, Database, Fact
from wherefrom.corpus.documents import Document
from wherefrom.corpus.folding import fold_words, split_words
from wherefrom.corpus.questions import Question, question_rows
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
from wherefrom.storage import digest_of

T = TypeVar("T")
Floats = NDArray[np.float64]
FEWEST = 5  # training answers found in documents, below which no reader is trained
# a template of so few questions may be another wording of a relation,
FEWEST_REWORDED, MOST_REWORDED = 3, 50
SAME = 0.8  # if the relation's reader answers this share of them rightly
MOST_LABELS = 5_000  # documents with known answers that a reader is trained on
ENOUGH_LABELS = 1_000  # from this many on it is not trained on its own readings
ROUNDS = 2  # of training on its own readings,
MOST_READINGS = 1_500  # of so many documents,
CALIBRATION_READINGS = 300  # documents without a label that are read while calibrating
CONFIDENT = 0.6  # where the probability of an answer is higher than this,
CONFIDENT_SILENT = 0.97  # or that of no answer
NEGATIVES = 80  # spans of a document that compete with its answer in training
PENALTY = 1.0  # on the squared weights
ITERATIONS = 40
NEGLIGIBLE = 15.0  # a span whose score is this much below the best is no answer
MOST_ANSWERS = 6  # of a subject
LEAST_PROBABILITY = 0.02  # of an answer that is not the most likely one
LEAST_STATED = 0.02  # probability that documents state an answer, below which nothing is read
SILENT = 0  # the key that stands for "not stated"
NEAR_WORDS = 6  # words around an answer, without which its document does not state it
FOLDS, ENOUGH_TO_HALVE = 4, 200  # folds of the labelled documents; 2 from so many documents on
LEFT_UNASKED = 0.3  # share of the unasked documents that state an answer, below which none does
IMPOSSIBLE = -1e9  # a score
LEAST_LOG_ODDS = -50.0
READ_CHARACTERS = 50_000  # of text that is read at once,
COUNTED_CHARACTERS = 250_000  # and whose words are counted at once
CHUNK = 50_000  # spans that are scored at once
COMMON = 0.1  # share of the documents from which on a word is not informative
ASSOCIATED = 0.3  # normalised pointwise mutual information of words that belong together


def read_facts(database: Database, questions: Sequence[Question]) -> Database:
    """Write the relations of the questions and what the documents state for each of them.

    Returns the database; if it is a saved one with the facts of other questions, a new one.
    """
    digest = digest_of(question_rows(questions)) or ""
    if database.about.get("questions_sha256") == digest:
        return database
    if database.file is not None:
        database = database.select(lambda document: True)
    database.start_facts(digest)
    by_template: dict[str, list[Question]] = defaultdict(list)
    expected: dict[int, set[str]] = defaultdict(set)  # the answers that a document should state
    for question in questions:
        if question.answer is not None:
            by_template[question.template].append(question)
            for doc in database.documents_about(fold_words(question.subject)):
                expected[doc].update(() if question.is_silent else (question.answer,))
    documents = database.documents
    rules = learn_rules([(documents[doc], answers) for doc, answers in expected.items()])
    relations, readers = [], []
    for relation_id, (template, asked) in enumerate(by_template.items(), start=1):
        reader = RelationReader(relation_id, database, rules, asked, expected)
        answered = sum(not question.is_silent for question in asked)
        found = answered - len(reader.missing)
        if found >= FEWEST:
            reader.train()
            readers.append(reader)
        kind = kind_of([q.answer or "" for q in asked if not q.is_silent])
        missing = tuple(reader.missing)
        relations.append(AskedRelation(template, answered, found, missing, kind=kind))
    # all documents about a subject are read together
    parts = _batch_by_size(
        database.by_subject(),
        lambda subject: sum(len(document.text) for _, document in subject[1]),
        READ_CHARACTERS,
    )
    for part in parts if readers else ():
        subjects = np.array([number for number, about in part for _ in about])
        spans = Spans(dict(chain.from_iterable(about for _, about in part)), rules)
        features = spans.features(np.arange(len(spans)))
        for reader in readers:
            database.add_facts(reader.read(spans, features, subjects))
    for relation_id, relation in enumerate(relations, start=1):
        database.add_relation(relation_id, relation)
    same = [_find_same(r, by_template[r.template], relations, database) for r in relations]
    for relation_id, other in enumerate(same, start=1):
        if other:
            database.set_same(relation_id, 1 + relations.index(other))
    return database


def kind_of(answers: Sequence[str]) -> str:
    """ "numbers" if each answer has digits and no letters, "words" if none is so, else "mixed"."""
    numbers = sum(
        any(c.isdigit() for c in answer) and not any(c.isalpha() for c in answer)
        for answer in answers
    )
    return {0: "words", len(answers): "numbers"}.get(numbers, "mixed")


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


def _find_same(
    relation: AskedRelation,
    questions: Sequence[Question],
    others: Sequence[AskedRelation],
    database: Database,
) -> AskedRelation | None:
    """For a template of few questions, another relation whose facts answer them: a few examples
    show that both ask for the same."""
    if not FEWEST_REWORDED <= len(questions) < MOST_REWORDED:
        return None
    for other in sorted(others, key=lambda other: -other.asked):
        right = 0
        for question in questions:
            answers = database.extracted(other.template, fold_words(question.subject))
            right += bool(answers) and answers[0].text == question.answer
        if other.asked > relation.asked and right >= SAME * len(questions):
            return other
    return None


class RelationReader:
    """Finds the answers to one relation: a softmax over the spans of a document, whose scores are
    sums of the weights of hashed features.

    missing: training answers that no document about their subject states.
    unasked: documents about subjects that the training file asks about other relations only; if
    few of them seem to state an answer, the file asks about what is stated, and they are silent.
    """

    def __init__(
        self,
        relation_id: int,
        database: Database,
        rules: SpanRules,
        questions: Sequence[Question],
        asked_about: Collection[int] = (),
    ) -> None:
        """asked_about: the documents about subjects of all training questions."""
        self.relation_id, self.documents, self.rules = relation_id, database.documents, rules
        self.unasked = set(asked_about)
        self.missing: list[str] = []
        self.spellings: dict[int, Counter[str]] = defaultdict(Counter)  # of answers, by their key
        self.labels: dict[int, int] = {}  # document -> key of the answer that it states
        stated: list[tuple[str, str, int, int]] = []  # answer, text, start and end of its words
        for first in range(0, len(questions), MOST_READINGS):
            batch = questions[first : first + MOST_READINGS]
            about = [database.documents_about(fold_words(question.subject)) for question in batch]
            docs = sorted({doc for indices in about for doc in indices})
            self.unasked.difference_update(docs)
            spans = Spans({doc: self.documents[doc] for doc in docs}, rules)
            for question, indices in zip(batch, about, strict=True):
                answer = question.answer or ""
                if question.is_silent:
                    self.labels.update(dict.fromkeys(indices, SILENT))
                    continue
                key = phrase_key(answer)
                self.spellings[key][answer] += 1
                stating = [doc for doc in indices if np.uint64(key) in spans.key[spans.of(doc)]]
                for doc in stating:
                    self.labels[doc] = key
                    here = spans.of(doc)
                    row = here.start + int(np.argmax(spans.key[here] == np.uint64(key)))
                    text = self.documents[doc].text
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
        some = []
        if len(self.labels) < ENOUGH_LABELS:
            unlabelled = np.setdiff1d(np.arange(len(self.documents)), list(self.labels))
            some = unlabelled[:: max(1, len(unlabelled) // MOST_READINGS)].tolist()
        unasked = sorted(self.unasked.difference(self.labels))
        unasked = unasked[:: max(1, len(unasked) // MOST_READINGS)]
        docs = sorted({*self.labels, *some, *unasked})
        spans = Spans({doc: self.documents[doc] for doc in docs}, self.rules)
        if unasked:
            self._learn(spans, self.labels, 0)
            scores = self._score(spans)
            stated = [self._log_odds(scores[spans.of(doc)]) > 0 for doc in unasked]
            if np.mean(stated) < LEFT_UNASKED:
                self.labels |= dict.fromkeys(unasked, SILENT)
        fewer = {*self.labels, *some[:: max(1, len(some) // CALIBRATION_READINGS)]}
        self._calibrate(Spans({doc: self.documents[doc] for doc in sorted(fewer)}, self.rules))
        self._learn(spans, self.labels, ROUNDS if some else 0)

    def _learn(self, spans: Spans, labels: Mapping[int, int], rounds: int) -> None:
        """Fit the weights to the labels and then, some rounds, to what is read as well."""
        known = Counter({key: count.total() for key, count in self.spellings.items()})
        self.known = known  # key of an answer -> how many subjects have it
        self.believed = dict(labels)  # the labels, and what was read with confidence
        self.weights = np.zeros(1 << BITS)  # of the features
        self.none = 0.0  # the score of "not stated"
        self._fit(spans, dict.fromkeys(labels, 1.0))
        for _ in range(rounds):
            scores = self._score(spans)
            self.known, self.believed = known.copy(), dict(labels)
            importance = dict.fromkeys(labels, 1.0)
            for doc in spans.docs.tolist():
                here = spans.of(doc)
                if doc in self.labels or here.start == here.stop:
                    continue
                answer, probability = self._believe(scores[here], spans.key[here])
                if probability > (CONFIDENT_SILENT if answer == SILENT else CONFIDENT):
                    self.believed[doc], importance[doc] = answer, probability / 2
                    self.known[answer] += answer != SILENT
            self._fit(spans, importance)

    def _believe(self, scores: NDArray[np.float32], keys: Hashes) -> tuple[int, float]:
        """The likeliest answer of a document, or SILENT, by its spans; and how likely it is."""
        stated = 1 / (1 + np.exp(-self._log_odds(scores)))
        mass, best = np.exp(scores - scores.max()), keys[int(np.argmax(scores))]
        probability = float(stated * mass[keys == best].sum() / mass.sum())
        if probability >= 1 - stated:
            return int(best), probability
        return SILENT, float(1 - stated)

    def read(self, spans: Spans, features: Features, subject: Ints) -> list[Fact]:
        """What documents state about their subjects; nothing about a subject whose documents are
        more likely to be silent.

        spans: of all documents about some subjects, in the order of the subjects' numbers; subject:
        the number of each document's subject.
        """
        owner = (subject - subject[0])[spans.doc]  # the subject of each span, counted from 0
        scores = self._score(spans, features)
        best = np.full(subject[-1] - subject[0] + 1, -np.inf, dtype=np.float32)
        np.maximum.at(best, owner, scores)
        total = np.bincount(owner, np.exp(scores - best[owner], dtype=np.float64), len(best))
        log_odds = np.maximum(best + np.log(np.maximum(total, 1.0)) - self.none, LEAST_LOG_ODDS)
        stated = 1 / (1 + np.exp(-(self.slope * log_odds + self.offset)))
        likely = (scores > best[owner] - NEGLIGIBLE) & (stated[owner] >= LEAST_STATED)
        rows = np.flatnonzero(likely)
        if not len(rows):
            return []
        # spans of one subject with the same key are one answer: sort them into groups
        rows = rows[np.lexsort((spans.key[rows], owner[rows]))]
        mass = np.exp(scores[rows] - best[owner[rows]], dtype=np.float64)
        new = np.ones(len(rows), dtype=bool)
        new[1:] = (np.diff(owner[rows]) != 0) | (np.diff(spans.key[rows]) != 0)
        starts = np.flatnonzero(new)
        ends = np.append(starts[1:], len(rows))
        about, probability = owner[rows[starts]], np.add.reduceat(mass, starts)
        probability *= stated[about] / np.bincount(about, weights=probability)[about]
        # the groups of each subject, the most likely first
        order = np.lexsort((-probability, about))
        rank = np.arange(len(order)) - np.searchsorted(about[order], about[order])
        kept = (rank < MOST_ANSWERS) & ((rank == 0) | (probability[order] >= LEAST_PROBABILITY))
        facts = []
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
            number, each = int(subject[0] + about[group]), float(probability[group]) / len(same)
            for doc, place in zip(spans.docs[spans.doc[same]].tolist(), places, strict=True):
                facts.append(Fact(self.relation_id, number, text, each, doc, *place))
        return facts

    def _place(self, spans: Spans, row: int) -> tuple[int, int]:
        """Start and end of a span, with the marks around it that answers of the relation have."""
        text, (before, behind) = spans.document(row).text, self.marks
        start, end = int(spans.start[row]), int(spans.end[row])
        first = max((len(mark) for mark in before if text.endswith(mark, 0, start)), default=0)
        last = max((len(mark) for mark in behind if text.startswith(mark, end)), default=0)
        return start - first, end + last

    def _score(self, spans: Spans, features: Features | None = None) -> NDArray[np.float32]:
        """The score of every span; features that are not given are computed a chunk at a time."""
        known, scores = self._count_known(spans), []
        for start in range(0, len(spans), CHUNK):
            rows = np.arange(start, min(start + CHUNK, len(spans)))
            here = spans.features(rows) if features is None else features[start : start + CHUNK]
            total = self.weights[here].sum(axis=1)
            scores.append(total + self.weights[spans.known_features(rows, known[rows])].sum(axis=1))
        return np.concatenate([*scores, []]).astype(np.float32)

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
        """Fit the weights to the documents that have an importance, with their believed answers.

        Every document counts twice: as it is, where its answer competes with its other spans and
        with "not stated"; and without the words near its answer, where "not stated" is right. A
        document that is known or believed to be silent counts as it is, with "not stated" right.
        The loss is the negative log-likelihood with a penalty on the squared weights.
        """
        from scipy.optimize import fmin_l_bfgs_b
        from scipy.sparse import csr_matrix

        rng = np.random.default_rng(0)
        is_answer = self._is_answer(spans)
        docs = [doc for doc in spans.docs.tolist() if doc in importance and _length(spans.of(doc))]
        chosen, starts = [], [0]
        for doc in docs:
            here = np.arange(spans.of(doc).start, spans.of(doc).stop)
            if len(here) > NEGATIVES:
                some = rng.choice(here, NEGATIVES, replace=False)
                here = np.union1d(some, here[is_answer[here]])
            chosen.append(here)
            starts.append(starts[-1] + len(here))
        rows = np.concatenate(chosen)
        right, far = is_answer[rows], ~_near_answers(spans, is_answer)[rows]
        group = np.repeat(np.arange(len(docs)), np.diff(starts))  # the document of each row
        silent_weight = np.array([importance[doc] for doc in docs])
        stated_weight = silent_weight * np.logical_or.reduceat(right, starts[:-1])
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
            weights, none = theta[:-1], theta[-1]
            scores = np.asarray(matrix @ weights)
            everything = np.logaddexp(log_total(scores), none)
            answers = log_total(np.where(right, scores, IMPOSSIBLE))
            others = np.logaddexp(log_total(np.where(far, scores, IMPOSSIBLE)), none)
            given = np.exp(np.where(right, scores - answers[group], IMPOSSIBLE))
            slope = stated_weight[group] * (np.exp(scores - everything[group]) - given)
            wrong = np.exp(np.where(far, scores - others[group], IMPOSSIBLE))
            slope += silent_weight[group] * wrong
            value = stated_weight @ (everything - answers) + silent_weight @ (others - none)
            value += PENALTY / 2 * weights @ weights
            none_slope = stated_weight @ np.exp(none - everything)
            none_slope += silent_weight @ (np.exp(none - others) - 1)
            gradient = np.asarray(transposed @ slope) + PENALTY * weights
            return float(value), np.append(gradient, none_slope)

        start = np.append(self.weights[used], self.none)
        fitted, _, _ = fmin_l_bfgs_b(loss, start, maxiter=ITERATIONS, factr=1e10)
        self.weights = np.zeros(1 << BITS)
        self.weights[used], self.none = fitted[:-1], float(fitted[-1])

    def _calibrate(self, spans: Spans) -> None:
        """Fit the probability that documents state an answer, given the log odds by the scores.

        The odds are those of labelled documents, as they are and without the words near their
        answers, by weights that were learned without the labels of these documents.
        """
        documents = sorted(self.labels)
        folds = 2 if len(documents) >= ENOUGH_TO_HALVE else FOLDS
        stated, silent = [], []
        for fold in range(folds):
            held_out = documents[fold::folds]
            others = {doc: key for doc, key in self.labels.items() if doc not in set(held_out)}
            self._learn(spans, others, 1 if folds == FOLDS else 0)
            part = Spans({doc: self.documents[doc] for doc in held_out}, self.rules)
            scores = self._score(part)
            answers = np.array([self.labels[doc] for doc in held_out], dtype=np.uint64)
            far = ~_near_answers(part, part.key == answers[part.doc])
            for doc in held_out:
                here = part.of(doc)
                if self.labels[doc] != SILENT:
                    stated.append(self._log_odds(scores[here]))
                silent.append(self._log_odds(scores[here][far[here]]))
        self.slope, self.offset = fit_line(np.array(stated), np.array(silent))

    def _log_odds(self, scores: NDArray[np.float32]) -> float:
        """By the scores of some spans, the log odds that one of them answers."""
        if not len(scores):
            return LEAST_LOG_ODDS
        top = float(scores.max())
        total = top + float(np.log(np.exp(scores - top).sum()))
        return max(LEAST_LOG_ODDS, total - self.none)


def _length(part: slice) -> int:
    return int(part.stop - part.start)


def _near_answers(spans: Spans, is_answer: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether each span is within a few words of an answer, in the same sentence."""
    words = spans.words
    near = np.zeros(len(words), dtype=bool)
    for row in np.flatnonzero(is_answer).tolist():
        first, last = int(spans.first_word[row]), int(spans.last_word[row])
        around = slice(max(0, first - NEAR_WORDS), last + NEAR_WORDS + 1)
        near[around] |= words.sentence[around] == words.sentence[first]
    return near[spans.first_word] | near[spans.last_word]


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


def fit_line(right: Floats, wrong: Floats) -> tuple[float, float]:
    """Slope and offset of the log odds that a score belongs to a right answer, by logistic
    regression; the slope has a standard normal prior."""
    from scipy.optimize import minimize
    from scipy.special import expit

    scores = np.concatenate((right, wrong)).astype(np.float64)
    truth = np.arange(len(scores)) < len(right)
    centre = scores.mean()
    rows = np.stack((scores - centre, np.ones_like(scores)))

    def loss(line: Floats) -> tuple[float, Floats]:
        log_odds = line @ rows
        value = np.logaddexp(0, log_odds).sum() - log_odds[truth].sum() + line[0] ** 2 / 2
        return float(value), rows @ (expit(log_odds) - truth) + [line[0], 0]

    slope, offset = minimize(loss, np.zeros(2), jac=True).x
    return float(slope), float(offset - slope * centre)


def informative_spans(documents: Sequence[Document]) -> Iterator[list[tuple[int, int]]]:
    """For each document the start and end of its informative spans, in order.

    A word is informative if at most a tenth of the documents have it and it is no word of the
    subject's name. Neighbours that occur together more often than by chance (normalised mutual
    information) are one span. All words are counted first, and kept in a file meanwhile.
    """
    counts, document_counts, pair_counts, total = Tally(), Tally(), Tally(), 0
    gaps = [hash_text(gap) for gap in ("", " ", "-")]
    with tempfile.TemporaryFile() as file:
        parts = 0
        for batch in _batch_by_size(documents, lambda d: len(d.text), COUNTED_CHARACTERS):
            words = Words(batch)
            parts, total = parts + 1, total + len(words)
            counts.add(words.word)
            pair_counts.add(_pairs(words.word))
            # each word of a document once
            keys = mix(words.word, 2) + words.doc.astype(np.uint64)
            document_counts.add(words.word[np.unique(keys, return_index=True)[1]])
            adjacent = np.isin(words.gap[1:-1], gaps) & (words.doc[1:] == words.doc[:-1])
            free = ~words.own & ~words.heading
            size = np.array(len(batch))
            for column in (words.word, free, adjacent, words.doc, words.start, words.end, size):
                np.save(file, column, allow_pickle=False)
        file.seek(0)
        for _ in range(parts):
            word, free, adjacent, doc, start, end, size = (np.load(file) for _ in range(7))
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
            spans: list[list[tuple[int, int]]] = [[] for _ in range(int(size))]
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
