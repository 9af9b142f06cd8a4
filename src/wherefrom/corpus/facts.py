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
from dataclasses import replace
from itertools import chain, takewhile
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from wherefrom.corpus.database import (
    AskedRelation,
    Database,
    ExtractedAnswer,
    Fact,
    ReadingCheck,
)
from wherefrom.corpus.documents import Document
from wherefrom.corpus.folding import fold_words, split_words
from wherefrom.corpus.questions import Question, question_rows
from wherefrom.corpus.spans import (
    ABBREVIATED,
    FEATURE_BITS,
    SAMPLED_DOCUMENTS,
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
MOST_ODDS = 4.0  # of stating an answer, by which the documents about a subject weigh
LEAST_WEIGHT = 0.25  # of the weightiest document, below which another states nothing
LEAST_SHARE = 0.2  # of a document's weight, from which on it states an answer
LEAST_STATED = 0.02  # probability that documents state an answer, below which nothing is read
SILENT = 0  # the key that stands for "not stated"
NEAR_WORDS = 6  # words around an answer, without which its document does not state it
MOST_REDUCED = 1_000  # subjects whose documents are also read without these words,
REDUCED_WEIGHT = 0.25  # with this share of the weight of silence
FOLDS, ENOUGH_TO_HALVE = 4, 200  # folds of the labelled documents; 2 from so many documents on
LEFT_UNASKED = 0.15  # share of the unasked documents that state an answer, below which none does
IMPOSSIBLE = -1e9  # a score
LEAST_LOG_ODDS = -50.0
LEAST_SPAN_MASS = 0.01  # of the likeliest span with an answer, below which a span does not state it
HALF = 0.5  # probability that documents state an answer, from which on one is read
MISTAKES = 3  # that a check keeps
READ_CHARACTERS = 50_000  # of text that is read at once,
COUNTED_CHARACTERS = 250_000  # and whose words are counted at once
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
    sample = [
        documents[i] for i in range(0, len(documents), 1 + len(documents) // SAMPLED_DOCUMENTS)
    ]
    rules = learn_rules([(documents[doc], answers) for doc, answers in expected.items()], sample)
    relations, readers = [], []
    known = {database.subject_of(doc) for doc in expected}
    for relation_id, (template, asked) in enumerate(by_template.items(), start=1):
        reader = RelationReader(relation_id, database, rules, asked, known)
        answered = sum(not question.is_silent for question in asked)
        found = answered - len(reader.missing)
        if found >= FEWEST:
            reader.train()
            readers.append(reader)
        kind = kind_of([q.answer or "" for q in asked if not q.is_silent])
        missing = tuple(reader.missing)
        relations.append(
            AskedRelation(template, answered, found, missing, kind=kind, check=reader.check)
        )
    # all documents about a subject are read together
    parts = _batch_by_size(
        database.by_subject(),
        lambda subject: sum(len(document.text) for _, document in subject[1]),
        READ_CHARACTERS,
    )
    for part in parts if readers else ():
        spans = _spans_of(part, rules)
        for reader in readers:
            database.add_facts(reader.read(spans))
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


def stating_documents(answers: Sequence[ExtractedAnswer]) -> list[list[int]]:
    """For each answer about a subject the documents that state it, the surest first.

    A document weighs what its facts weigh together. It states an answer that has a fair share of
    its weight, if it does not weigh much less than another document.
    """
    if not all(answer.chances for answer in answers):  # found by their words alone
        return [list(dict.fromkeys(span[0] for span in answer.spans)) for answer in answers]
    shares: list[dict[int, float]] = []
    weights: dict[int, float] = defaultdict(float)
    for answer in answers:
        share: dict[int, float] = defaultdict(float)
        for (document, _, _), chance in zip(answer.spans, answer.chances, strict=True):
            share[document] += chance
            weights[document] += chance
        shares.append(share)
    least = LEAST_WEIGHT * max(weights.values(), default=0)
    return [
        [
            document
            for document, chance in sorted(share.items(), key=lambda item: -item[1])
            if chance >= LEAST_SHARE * weights[document] and weights[document] >= least
        ]
        for share in shares
    ]


def _spans_of(
    subjects: Iterable[tuple[int, Sequence[tuple[int, Document]]]], rules: SpanRules
) -> Spans:
    """The spans of the documents about some subjects, given by number, who own them."""
    owners, documents = [], {}
    for number, about in subjects:
        for index, document in about:
            owners.append(number)
            documents[index] = document
    return Spans(documents, rules, owners)


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
    """Finds the answers to one relation: a softmax over the spans of all documents about a subject,
    whose scores are sums of the weights of hashed features.

    missing: training answers that no document about their subject states. reduced: by subject,
    documents without their answer; they are read as those of another subject, with the number
    -subject, about which nothing is stated.
    unasked: subjects that the training file asks about other relations only; if few of them seem
    to have an answer, the file asks about what is stated, and the documents about them are silent.
    """

    def __init__(
        self,
        relation_id: int,
        database: Database,
        rules: SpanRules,
        questions: Sequence[Question],
        asked_about: Collection[int] = (),
    ) -> None:
        """asked_about: the subjects of all training questions."""
        self.relation_id, self.database, self.rules = relation_id, database, rules
        self.unasked = set(asked_about)
        self.check: ReadingCheck | None = None
        self.missing: list[str] = []
        self.spellings: dict[int, Counter[str]] = defaultdict(Counter)  # of answers, by their key
        self.labels: dict[int, int] = {}  # subject -> key of the answer that documents state
        self.reduced: dict[int, list[Document]] = {}
        stated: list[tuple[str, Spans, int]] = []  # answer, spans, row of its words
        for first in range(0, len(questions), MOST_READINGS):
            batch = questions[first : first + MOST_READINGS]
            numbers = [database.subject_id(fold_words(question.subject)) for question in batch]
            self.unasked.difference_update(numbers)
            spans = self._spans({number for number in numbers if number})
            answers: dict[int, list[int]] = {}  # subject -> rows of its answer
            for question, number in zip(batch, numbers, strict=True):
                answer = question.answer or ""
                if question.is_silent:
                    if number:
                        self.labels[number] = SILENT
                    continue
                key = np.uint64(phrase_key(answer))
                self.spellings[int(key)][answer] += 1
                here = spans.of(number) if number else slice(0, 0)
                rows = here.start + np.flatnonzero(spans.key[here] == key)
                if len(rows):
                    self.labels[number] = int(key)
                    _, first_in_document = np.unique(spans.doc[rows], return_index=True)
                    stated += [(answer, spans, row) for row in rows[first_in_document].tolist()]
                    answers[number] = rows.tolist()
                else:
                    self.missing.append(answer)
            some = list(answers.values())[: MOST_REDUCED - len(self.reduced)]
            self.reduced |= _remove_near(spans, list(chain.from_iterable(some)))
        self.marks = _learn_marks(stated)
        self.stems = _learn_stems(stated)

    def train(self) -> None:
        """Fit the weights to the subjects whose answers are known. If these are few, also to other
        subjects, with the answers that were read with confidence."""
        labelled = list(self.labels.items())
        step = max(1.0, len(labelled) / MOST_LABELS)
        self.labels = dict(labelled[int(i * step)] for i in range(int(len(labelled) / step)))
        self.reduced = {n: texts for n, texts in self.reduced.items() if n in self.labels}
        some = []
        if len(self.labels) < ENOUGH_LABELS:
            unlabelled = np.setdiff1d(np.arange(self.database.subject_count) + 1, list(self.labels))
            some = unlabelled[:: max(1, len(unlabelled) // MOST_READINGS)].tolist()
        unasked = sorted(self.unasked.difference(self.labels))
        unasked = unasked[:: max(1, len(unasked) // MOST_READINGS)]
        copies = {-number: SILENT for number in self.reduced}
        spans = self._spans({*self.labels, *some, *unasked, *copies})
        if unasked:
            self._learn(spans, self.labels | copies, 0)
            scores = self._score(spans)
            stated = [self._log_odds(scores[spans.of(number)]) > 0 for number in unasked]
            if np.mean(stated) < LEFT_UNASKED:
                self.labels |= dict.fromkeys(unasked, SILENT)
        fewer = {*self.labels, *some[:: max(1, len(some) // CALIBRATION_READINGS)], *copies}
        self._calibrate(self._spans(fewer))
        self._learn(spans, self.labels | copies, ROUNDS if some else 0)

    def _spans(self, subjects: Collection[int]) -> Spans:
        """The spans of the documents about these subjects; -n stands for `reduced[n]`."""
        documents, about = self.database.documents, self.database.documents_of
        parts: list[tuple[int, list[tuple[int, Document]]]] = []
        index = -1  # of a reduced document, which has none in the database
        for number in sorted(subjects):
            if number > 0:
                parts.append((number, [(doc, documents[doc]) for doc in about(number)]))
                continue
            parts.append((number, []))
            for document in self.reduced[-number]:
                parts[-1][1].append((index, document))
                index -= 1
        return _spans_of(parts, self.rules)

    def _learn(self, spans: Spans, labels: Mapping[int, int], rounds: int) -> None:
        """Fit the weights to the labels and then, some rounds, to what is read as well."""
        known = Counter({key: count.total() for key, count in self.spellings.items()})
        self.known = known  # key of an answer -> how many subjects have it
        self.believed = dict(labels)  # the labels, and what was read with confidence
        self.weights = np.zeros(1 << FEATURE_BITS)  # of the features
        self.none = 0.0  # the score of "not stated"
        given = {number: 1.0 if number > 0 else REDUCED_WEIGHT for number in labels}
        self._fit(spans, given)
        for _ in range(rounds):
            scores = self._score(spans)
            self.known, self.believed = known.copy(), dict(labels)
            importance = dict(given)
            for number in spans.owners:
                here = spans.of(number)
                if number in self.labels or number < 0 or here.start == here.stop:
                    continue
                answer, probability = self._believe(scores[here], spans.key[here])
                if probability > (CONFIDENT_SILENT if answer == SILENT else CONFIDENT):
                    self.believed[number], importance[number] = answer, probability / 2
                    self.known[answer] += answer != SILENT
            self._fit(spans, importance, scores)

    def _believe(self, scores: NDArray[np.float32], keys: Hashes) -> tuple[int, float]:
        """The likeliest answer about a subject, or SILENT, by its spans; and how likely it is."""
        stated = 1 / (1 + np.exp(-self._log_odds(scores)))
        mass, best = np.exp(scores - scores.max()), keys[int(np.argmax(scores))]
        probability = float(stated * mass[keys == best].sum() / mass.sum())
        if probability >= 1 - stated:
            return int(best), probability
        return SILENT, float(1 - stated)

    def read(self, spans: Spans) -> list[Fact]:
        """What documents state about their subjects, who own the spans; nothing about a subject
        whose documents are more likely to be silent."""
        owner, scores = spans.owner, self._score(spans)
        stated = self._probability(self._log_odds_of(owner, scores, len(spans.owners)))
        scores = self._weigh_documents(spans, scores)
        best = np.full(len(spans.owners), -np.inf, dtype=np.float32)
        np.maximum.at(best, owner, scores)
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
            here = mass[starts[group] : ends[group]]
            is_likely = here >= LEAST_SPAN_MASS * here.max()
            same, here = same[is_likely], here[is_likely]
            places = [self._place(spans, row) for row in same.tolist()]
            text = self._spell(spans, int(same[int(np.argmax(scores[same]))]))
            number, each = spans.owners[about[group]], probability[group] * here / here.sum()
            indices = spans.docs[spans.doc[same]].tolist()
            for doc, place, chance in zip(indices, places, each.tolist(), strict=True):
                facts.append(Fact(self.relation_id, number, text, chance, doc, *place))
        return facts

    def _log_odds_of(self, group: Ints, scores: NDArray[np.float32], count: int) -> Floats:
        """By the scores of spans in groups, the log odds that one span of a group answers."""
        best = np.full(count, -np.inf, dtype=np.float32)
        np.maximum.at(best, group, scores)
        total = np.bincount(group, np.exp(scores - best[group], dtype=np.float64), count)
        log_total = best + np.log(np.maximum(total, 1.0))
        return np.asarray(np.maximum(log_total - self.none, LEAST_LOG_ODDS), dtype=np.float64)

    def _weigh_documents(self, spans: Spans, scores: NDArray[np.float32]) -> NDArray[np.float32]:
        """The scores, such that a document weighs by its own odds of stating an answer, whatever
        the others state: of two that contradict each other both values are kept."""
        log_odds = self._log_odds_of(spans.doc, scores, len(spans.docs))
        stated = self._probability(log_odds)
        weight = np.minimum(stated / np.maximum(1 - stated, 1e-9), MOST_ODDS)
        shift = np.log(np.maximum(weight, 1e-9)) - log_odds
        return (scores + shift[spans.doc]).astype(np.float32)

    def _probability(self, log_odds: Floats) -> Floats:
        """That documents state an answer, given the log odds by the scores."""
        return 1 / (1 + np.exp(-(self.slope * log_odds + self.offset)))

    def _spell(self, spans: Spans, row: int) -> str:
        """The answer that a span is: as the text has it, or as training answers spell it."""
        start, end = self._place(spans, row)
        text = " ".join(spans.document(row).text[start:end].split())
        spellings = self.spellings.get(int(spans.key[row]))
        if spellings and text not in spellings:
            return spellings.most_common(1)[0][0]
        stem = self.stems.get((spans.ending(row), text[-1:]))
        return text[:-1] + stem if stem and not spellings else text

    def _place(self, spans: Spans, row: int) -> tuple[int, int]:
        """Start and end of a span, with the marks around it that answers of the relation have."""
        start, end = int(spans.start[row]), int(spans.end[row])
        before, behind = self.marks
        for mark in _marks_beside(spans, row, front=True):
            if mark not in before:
                break
            start -= 1
        for mark in _marks_beside(spans, row, front=False):
            if mark not in behind:
                break
            end += 1
        return start, end

    def _score(self, spans: Spans) -> NDArray[np.float32]:
        """The score of every span."""
        rows = np.arange(len(spans))
        known = spans.known_features(rows, self._count_known(spans))
        total = spans.scores(self.weights) + self.weights[known].sum(axis=1)
        return total.astype(np.float32)

    def _count_known(self, spans: Spans) -> Ints:
        """How many other subjects have the text of each span as their answer: 0 to 4 stand for
        none, 1, 2 or 3, 4 to 9, and more."""
        counts = look_up(self.known, spans.key, np.uint64(0)).astype(np.int64)
        return np.digitize(counts - self._is_answer(spans), [1, 2, 4, 10])

    def _is_answer(self, spans: Spans) -> NDArray[np.bool_]:
        """Whether each span has the answer that documents about its subject are believed to
        state."""
        answers = [self.believed.get(number, 0) for number in spans.owners]
        return spans.key == np.array(answers, dtype=np.uint64)[spans.owner]

    def _fit(
        self,
        spans: Spans,
        importance: Mapping[int, float],
        scores: NDArray[np.float32] | None = None,
    ) -> None:
        """Fit the weights to the subjects that have an importance, with their believed answers.

        Every subject counts twice: as it is, where its answer competes with other spans and with
        "not stated"; and without the words near its answer, where "not stated" is right. For this
        the spans near the answer are ignored, and the reduced documents are read. A subject
        that is known or believed to have no answer counts as it is, with "not stated" right.
        The loss is the negative log-likelihood with a penalty on the squared weights.
        scores: of the spans by earlier weights, if there are any.
        """
        from scipy.optimize import fmin_l_bfgs_b
        from scipy.sparse import csr_matrix

        is_answer = self._is_answer(spans)
        subjects = [n for n in spans.owners if n in importance and _length(spans.of(n))]
        chosen = _choose_rows(spans, subjects, is_answer, scores)
        starts = np.cumsum([0, *map(len, chosen)])
        rows = np.concatenate(chosen)
        right, far = is_answer[rows], ~_near_answers(spans, is_answer)[rows]
        group = np.repeat(np.arange(len(subjects)), np.diff(starts))  # the subject of each row
        weight = np.array([importance[number] for number in subjects])
        stated_weight = weight * np.logical_or.reduceat(right, starts[:-1])
        has_copy = np.array([number in self.reduced for number in subjects])
        silent_weight = weight * np.where(has_copy, 1 - REDUCED_WEIGHT, 1.0)
        known = spans.known_features(rows, self._count_known(spans)[rows])
        features = np.hstack((spans.features(rows), known))
        present = np.zeros(1 << FEATURE_BITS, dtype=bool)
        present[features] = True
        used, column = np.flatnonzero(present), (np.cumsum(present, dtype=np.int32) - 1)[features]
        bounds = np.arange(0, features.size + 1, features.shape[1])
        del features, known  # the matrix below is what takes most memory
        ones = np.ones(column.size)  # of theta's type: scipy would convert them at every product
        matrix = csr_matrix((ones, column.ravel(), bounds), shape=(len(rows), len(used)))
        transposed = matrix.T  # which shares its memory

        def log_total(scores: Floats) -> Floats:
            """The logarithm of the sum of exp(score) over each subject's rows."""
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
        self.weights = np.zeros(1 << FEATURE_BITS)
        self.weights[used], self.none = fitted[:-1], float(fitted[-1])

    def _calibrate(self, spans: Spans) -> None:
        """Fit the probability that documents state an answer, given the log odds by the scores.

        The odds are those of labelled subjects, as they are and without the words near their
        answers, by weights that were learned without the labels of these subjects. `check` counts
        what is then read of them.
        """
        subjects = sorted(self.labels)
        folds = 2 if len(subjects) >= ENOUGH_TO_HALVE else FOLDS
        answers = [self.labels.get(number, SILENT) for number in spans.owners]
        far = ~_near_answers(spans, spans.key == np.array(answers, dtype=np.uint64)[spans.owner])
        stated, silent, read = [], [], []  # log odds, and pairs of an answer and what is read
        for fold in range(folds):
            held_out = subjects[fold::folds]
            others = {n: key for n, key in self.labels.items() if n not in set(held_out)}
            others |= {-number: SILENT for number in self.reduced if number in others}
            self._learn(spans, others, 1 if folds == FOLDS else 0)
            scores = self._score(spans)
            for number in held_out:
                here, label = spans.of(number), self.labels[number]
                if label != SILENT:
                    stated.append(self._log_odds(scores[here]))
                    best = here.start + int(np.argmax(scores[here]))
                    answer = self.spellings[label].most_common(1)[0][0]
                    is_right = int(spans.key[best]) == label
                    read.append((answer, answer if is_right else self._spell(spans, best)))
                is_reduced = number in self.reduced
                without = scores[spans.of(-number)] if is_reduced else scores[here][far[here]]
                silent.append(self._log_odds(without))
        self.slope, self.offset = fit_line(np.array(stated), np.array(silent))
        is_read = self._probability(np.array(stated)) >= HALF
        pairs = [(a, b if seen else "") for (a, b), seen in zip(read, is_read, strict=True)]
        found = sum(answer == said for answer, said in pairs)
        wrong = sum((self._probability(np.array(silent)) >= HALF).tolist())
        mistakes = Counter(pair for pair in pairs if pair[0] != pair[1]).most_common(MISTAKES)
        missed = len(is_read) - int(is_read.sum())
        self.check = ReadingCheck(
            len(pairs), found, missed, len(silent), wrong, tuple(pair for pair, _ in mistakes)
        )

    def _log_odds(self, scores: NDArray[np.float32]) -> float:
        """By the scores of some spans, the log odds that one of them answers."""
        if not len(scores):
            return LEAST_LOG_ODDS
        top = float(scores.max())
        total = top + float(np.log(np.exp(scores - top).sum()))
        return max(LEAST_LOG_ODDS, total - self.none)


def _choose_rows(
    spans: Spans,
    subjects: Sequence[int],
    is_answer: NDArray[np.bool_],
    scores: NDArray[np.float32] | None,
) -> list[Ints]:
    """For each subject the spans that compete in training: its answers and NEGATIVES others, half
    of them those with the highest scores, if there are scores.

    Of several documents only those with the answer count: another one may state another value.
    """
    rng, chosen = np.random.default_rng(0), []
    for number in subjects:
        part = spans.of(number)
        here = np.arange(part.start, part.stop)
        if is_answer[part].any():
            stating = np.unique(spans.doc[part][is_answer[part]])
            here = here[np.isin(spans.doc[part], stating)]
        if len(here) > NEGATIVES:
            hard = here[:0]
            if scores is not None:
                hard = here[np.argpartition(scores[here], -NEGATIVES // 2)[-NEGATIVES // 2 :]]
            some = rng.choice(here, NEGATIVES - len(hard), replace=False)
            here = np.unique(np.concatenate((some, hard, here[is_answer[here]])))
        chosen.append(here)
    return chosen


def _length(part: slice) -> int:
    return int(part.stop - part.start)


def _near_answers(spans: Spans, is_answer: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether each span is within a few words of an answer, in the same sentence."""
    near = _near_words(spans, np.flatnonzero(is_answer).tolist())
    return near[spans.first_word] | near[spans.last_word]


def _near_words(spans: Spans, rows: Iterable[int]) -> NDArray[np.bool_]:
    """Whether each word is within a few words of one of these spans, in the same sentence."""
    words = spans.words
    near = np.zeros(len(words), dtype=bool)
    for row in rows:
        first, last = int(spans.first_word[row]), int(spans.last_word[row])
        around = slice(max(0, first - NEAR_WORDS), last + NEAR_WORDS + 1)
        near[around] |= words.sentence[around] == words.sentence[first]
    return near


def _remove_near(spans: Spans, rows: Sequence[int]) -> dict[int, list[Document]]:
    """By owner of these spans, the documents that have them without the words near them."""
    words = spans.words
    near = _near_words(spans, rows) & ~words.heading
    reduced: dict[int, list[Document]] = {}
    owner_of = {int(spans.doc[row]): spans.owners[int(spans.owner[row])] for row in rows}
    for doc, owner in owner_of.items():
        document = words.documents[doc]
        first, behind = int(words.first[doc]), int(words.first[doc + 1])
        # each word with what stands between it and the next one
        starts = words.start[first:behind].tolist()
        ends = [*starts[1:], len(document.text)]
        pieces = zip(starts, ends, near[first:behind].tolist(), strict=True)
        kept = [document.text[start:end] for start, end, is_near in pieces if not is_near]
        text = document.text[: starts[0]] + "".join(kept)
        reduced.setdefault(owner, []).append(replace(document, text=text))
    return reduced


def _marks_beside(spans: Spans, row: int, *, front: bool) -> Iterator[str]:
    """The signs before or behind the words of a span, the nearest first, up to a blank or a word;
    the full stop of an abbreviation is ABBREVIATED."""
    text, words = spans.document(row).text, spans.words
    if front:
        first, at = int(spans.first_word[row]), int(spans.start[row])
        is_first = first == int(words.first[spans.doc[row]])
        stop = 0 if is_first else int(words.end[first - 1])
        beside = text[stop:at][::-1] if at == words.start[first] else ""
    else:
        last, at = int(spans.last_word[row]), int(spans.end[row])
        is_last = last + 1 == int(words.first[spans.doc[row] + 1])
        stop = len(text) if is_last else int(words.start[last + 1])
        beside = text[at:stop] if at == words.end[last] else ""
        if words.gap[last + 1] == hash_text(ABBREVIATED) and beside:
            yield ABBREVIATED
            beside = beside[1:]
    yield from takewhile(lambda mark: not mark.isspace(), beside)


def _learn_marks(stated: Sequence[tuple[str, Spans, int]]) -> tuple[set[str], set[str]]:
    """The signs that answers have before their first word and behind their last ("120 m.", "~/x"),
    if they mostly belong to the answer where they stand beside its words in a text.

    stated: answers, each with the spans of a text and the row of the answer's words.
    """
    kept: list[set[str]] = []
    for front in (True, False):
        inside, beside = Counter[str](), Counter[str]()
        for answer, spans, row in stated:
            words = split_words(answer)
            count = words[0].start if front else len(answer) - words[-1].end
            for i, mark in enumerate(_marks_beside(spans, row, front=front)):
                beside[mark] += 1
                inside[mark] += i < count
                if i >= count:
                    break
        kept.append({mark for mark, count in inside.items() if 2 * count > beside[mark]})
    return kept[0], kept[1]


def _learn_stems(stated: Sequence[tuple[str, Spans, int]]) -> dict[tuple[int, str], str]:
    """How answers end where an ending is cut off a word: by the hash of the ending and the letter
    before it ("n" and "á" of "Gyulán"), the letter of the answer ("a")."""
    letters: dict[tuple[int, str], Counter[str]] = defaultdict(Counter)
    for answer, spans, row in stated:
        ending, text = spans.ending(row), spans.text(row)
        if ending and len(text) == len(answer):
            letters[ending, text[-1]][answer[-1]] += 1
    common = {key: counts.most_common(1)[0] for key, counts in letters.items()}
    return {
        key: letter for key, (letter, count) in common.items() if count > 1 and letter != key[1]
    }


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
