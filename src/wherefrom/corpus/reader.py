"""The reader of a relation: which span of the documents about a subject answers it, if any does.

A log-linear model picks the answer among the spans, or "not stated", by the words around a span,
its spelling and its position. Both are learned from the training questions. Silence is learned from
their own documents: each is also read without its answer and the words near it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from wherefrom.corpus.database import Database, Fact, ReadingCheck
from wherefrom.corpus.documents import Document
from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.questions import Question
from wherefrom.corpus.spans import (
    FEATURE_BITS,
    Hashes,
    Ints,
    SpanRules,
    Spans,
    look_up,
    phrase_key,
    spans_of,
)
from wherefrom.corpus.spelling import AnswerSpelling, StatedAnswer

Floats = NDArray[np.float64]
Scores = NDArray[np.float32]
MIN_LABELS = 5  # training answers found in documents, below which no reader is trained
MAX_LABELS = 5_000  # subjects with known answers that a reader is trained on
ENOUGH_LABELS = 1_000  # from this many on it is not trained on its own readings
SELF_TRAINING_ROUNDS = 2  # of training on its own readings
MAX_READ_SUBJECTS = 1_500  # subjects without a label that it reads for that, and while calibrating
MAX_CALIBRATION_SUBJECTS = 300
MIN_BELIEVED_PROBABILITY = 0.6  # of an answer on which it is trained,
MIN_BELIEVED_SILENCE = 0.8  # or of "not stated"
FEW_LABELS = 30  # fewer labels than this may lack a wording by chance, and then this is believed:
MIN_BELIEVED_SILENCE_FEW_LABELS = 0.97
MAX_RIVAL_SPANS = 80  # of a subject that compete with its answer in training
WEIGHT_PENALTY = 1.0  # on the squared weights
MAX_ITERATIONS = 40
SILENT = 0  # the key that stands for "not stated"
SILENCED_WORDS = 6  # words on either side of an answer that are removed with it
SILENCED_WEIGHT = 0.5  # of these documents in training, beside the weight of those with an answer
# of all subjects without a label, as silent ones, beside the weight of those with one, until some
# of them are believed: a wording that is common and that no label has does not state an answer
# (not with fewer than FEW_LABELS)
UNLABELLED_WEIGHT = 0.15
MAX_SILENCED_SUBJECTS = 1_000  # subjects whose documents are read without their answer
MIN_UNASKED_SHARE = 0.15  # of the unasked subjects with an answer, below which none has one
MIN_SAME_RECORD_SHARE = 0.9  # of the answers, if they stand in one of several records
FOLDS, MIN_LABELS_OF_TWO_FOLDS = 4, 200  # of the calibration
MIN_PROBABILITY = 0.5  # that documents state an answer, from which on one is read
MIN_KEPT_PROBABILITY = 0.02  # that they state one, or another than the likeliest, to be kept
MAX_ANSWERS = 6  # of a subject that are kept
MAX_SCORE_BELOW_BEST = 15.0  # of a span that can be an answer
MIN_SHARE_OF_BEST_SPAN = 0.01  # of the likeliest span with an answer, for another one to state it
MAX_DOCUMENT_ODDS = 4.0  # of stating an answer, by which the documents about a subject weigh
IMPOSSIBLE_SCORE = -1e9
MIN_LOG_ODDS = -50.0
SHOWN_MISTAKES = 3  # that a check keeps


@dataclass
class Labels:
    """What the training questions of a relation teach.

    answers: subject -> key of the answer that documents state, SILENT if they state none. missing:
    answers that no document about their subject states. silenced: by subject, documents without
    their answer; they are read as those of a subject with the number -subject.
    """

    spelling: AnswerSpelling
    answers: dict[int, int] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    silenced: dict[int, list[Document]] = field(default_factory=dict)

    @classmethod
    def find(cls, database: Database, rules: SpanRules, questions: Sequence[Question]) -> Labels:
        """The answers of the questions in the documents about their subjects."""
        spellings: dict[int, Counter[str]] = defaultdict(Counter)
        stated: list[StatedAnswer] = []
        labels = cls(AnswerSpelling(spellings, ()))
        for first in range(0, len(questions), MAX_READ_SUBJECTS):
            batch = questions[first : first + MAX_READ_SUBJECTS]
            numbers = [database.subject_id(fold_words(question.subject)) for question in batch]
            spans = spans_of(database, {number for number in numbers if number}, rules)
            rows_of: dict[int, list[int]] = {}  # by subject, the spans that are its answer
            for question, number in zip(batch, numbers, strict=True):
                if question.is_silent:
                    labels.answers |= {number: SILENT} if number else {}
                    continue
                answer = question.answer or ""
                key = phrase_key(answer)
                spellings[key][answer] += 1
                here = spans.of(number) if number else slice(0, 0)
                rows = here.start + np.flatnonzero(spans.key[here] == np.uint64(key))
                if not len(rows):
                    labels.missing.append(answer)
                    continue
                labels.answers[number] = key
                _, first_in_document = np.unique(spans.doc[rows], return_index=True)
                stated += [(answer, spans, row) for row in rows[first_in_document].tolist()]
                rows_of[number] = rows.tolist()
            in_records = are_in_records(spans, [rows[0] for rows in rows_of.values()])
            for number, answer_rows in rows_of.items():
                if len(labels.silenced) < MAX_SILENCED_SUBJECTS:
                    labels.silenced[number] = remove_spans(spans, answer_rows, in_records)
        labels.spelling = AnswerSpelling(spellings, stated)
        return labels

    def keep(self, most: int) -> None:
        """Keep the answers of at most so many subjects, at even distances."""
        subjects = list(self.answers)
        step = max(1.0, len(subjects) / most)
        kept = [subjects[int(i * step)] for i in range(int(len(subjects) / step))]
        self.answers = {number: self.answers[number] for number in kept}
        self.silenced = {n: texts for n, texts in self.silenced.items() if n in self.answers}

    def targets(self, without: Collection[int] = ()) -> dict[int, int]:
        """The answers, and silence for the documents without theirs; not of some subjects."""
        known = {n: key for n, key in self.answers.items() if n not in without}
        return known | {-n: SILENT for n in self.silenced if n in known}


class SpanModel:
    """Scores of spans and of "not stated"; a span's is the sum of the weights of its features.

    targets: by subject, the key of the answer that the weights were fitted to. known: how many
    subjects have an answer, by its key.
    """

    def __init__(self, targets: Mapping[int, int], known: Mapping[int, int]) -> None:
        self.targets, self.known = dict(targets), Counter(known)
        self.weights = np.zeros(1 << FEATURE_BITS)
        self.none = 0.0  # the score of "not stated"

    def score(self, spans: Spans) -> Scores:
        """The score of every span."""
        known = spans.known_features(np.arange(len(spans)), self._count_known(spans))
        total = spans.scores(self.weights) + self.weights[known].sum(axis=1)
        return total.astype(np.float32)

    def log_odds(self, group: Ints, scores: Scores, count: int) -> Floats:
        """For each of some groups of spans the log odds that one of them answers."""
        best = np.full(count, -np.inf, dtype=np.float32)
        np.maximum.at(best, group, scores)
        total = np.bincount(group, np.exp(scores - best[group], dtype=np.float64), count)
        log_total = best + np.log(np.maximum(total, 1.0))
        return np.asarray(np.maximum(log_total - self.none, MIN_LOG_ODDS), dtype=np.float64)

    def _is_target(self, spans: Spans) -> NDArray[np.bool_]:
        keys = [self.targets.get(number, SILENT) for number in spans.owners]
        return spans.key == np.array(keys, dtype=np.uint64)[spans.owner]

    def _count_known(self, spans: Spans) -> Ints:
        """How many other subjects have the text of each span as their answer: 0 to 4 stand for
        none, 1, 2 or 3, 4 to 9, and more."""
        counts = look_up(self.known, spans.key, np.uint64(0)).astype(np.int64)
        return np.digitize(counts - self._is_target(spans), [1, 2, 4, 10])

    def fit(
        self, spans: Spans, importance: Mapping[int, float], scores: Scores | None = None
    ) -> None:
        """Fit the weights to the targets of the subjects that have an importance.

        The loss is the negative log-likelihood of the target, an answer or "not stated", with a
        penalty on the squared weights. scores: of the spans by earlier weights, if there are any.
        """
        from scipy.optimize import fmin_l_bfgs_b
        from scipy.sparse import csr_matrix

        is_target = self._is_target(spans)
        subjects = [n for n in spans.owners if n in importance and len(spans.rows_of(n))]
        chosen = _choose_rivals(spans, subjects, is_target, scores)
        starts = np.cumsum([0, *map(len, chosen)])
        rows = np.concatenate(chosen)
        right = is_target[rows]
        group = np.repeat(np.arange(len(subjects)), np.diff(starts))  # the subject of each row
        weight = np.array([importance[number] for number in subjects])
        is_silent = ~np.logical_or.reduceat(right, starts[:-1])
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
            answers = log_total(np.where(right, scores, IMPOSSIBLE_SCORE))
            target = np.where(is_silent, none, answers)
            of_target = np.exp(np.where(right, scores - answers[group], IMPOSSIBLE_SCORE))
            slope = weight[group] * (np.exp(scores - everything[group]) - of_target)
            none_slope = weight @ (np.exp(none - everything) - is_silent)
            value = weight @ (everything - target) + WEIGHT_PENALTY / 2 * weights @ weights
            gradient = np.asarray(transposed @ slope) + WEIGHT_PENALTY * weights
            return float(value), np.append(gradient, none_slope)

        start = np.append(self.weights[used], self.none)
        fitted, _, _ = fmin_l_bfgs_b(loss, start, maxiter=MAX_ITERATIONS, factr=1e10)
        self.weights = np.zeros(1 << FEATURE_BITS)
        self.weights[used], self.none = fitted[:-1], float(fitted[-1])


class RelationReader:
    """Reads the answers to one relation off documents, once it is trained.

    asked_about: the subjects of all training questions; of those that are asked about other
    relations only, hardly any may have an answer, and then they teach silence.
    """

    def __init__(
        self,
        relation_id: int,
        database: Database,
        rules: SpanRules,
        questions: Sequence[Question],
        asked_about: Collection[int],
    ) -> None:
        self.relation_id, self.database, self.rules = relation_id, database, rules
        self.labels = Labels.find(database, rules, questions)
        asked = {database.subject_id(fold_words(question.subject)) for question in questions}
        self._unasked = sorted(set(asked_about) - asked)
        self.check: ReadingCheck | None = None

    def train(self) -> None:
        """Fit the model to the subjects whose answers are known. If these are few, also to other
        subjects, with the answers that were read with confidence."""
        labels = self.labels
        labels.keep(MAX_LABELS)
        others: list[int] = []
        if len(labels.answers) < ENOUGH_LABELS:
            numbers = np.arange(self.database.subject_count) + 1
            others = _thin(np.setdiff1d(numbers, list(labels.answers)).tolist(), MAX_READ_SUBJECTS)
        unasked = _thin(self._unasked, MAX_READ_SUBJECTS)
        spans = self._spans({*labels.targets(), *others, *unasked})
        if unasked:
            model = self._fit(spans, labels.targets(), 0)
            log_odds = model.log_odds(spans.owner, model.score(spans), len(spans.owners))
            stated = [log_odds[spans.owners.index(number)] > 0 for number in unasked]
            if np.mean(stated) < MIN_UNASKED_SHARE:
                labels.answers |= dict.fromkeys(unasked, SILENT)
        self._calibrate({*labels.targets(), *_thin(others, MAX_CALIBRATION_SUBJECTS)})
        rounds = SELF_TRAINING_ROUNDS if others else 0
        self.model = self._fit(spans, labels.targets(), rounds)

    def read(self, spans: Spans) -> list[Fact]:
        """What documents state about their subjects, who own the spans; nothing about a subject
        whose documents are more likely to be silent."""
        owner, scores = spans.owner, self.model.score(spans)
        stated = self._probability(self.model.log_odds(owner, scores, len(spans.owners)))
        scores = self._weigh_documents(spans, scores)
        best = np.full(len(spans.owners), -np.inf, dtype=np.float32)
        np.maximum.at(best, owner, scores)
        likely = scores > best[owner] - MAX_SCORE_BELOW_BEST
        rows = np.flatnonzero(likely & (stated[owner] >= MIN_KEPT_PROBABILITY))
        if not len(rows):
            return []
        # spans of one subject with the same key are one answer: sort them into groups
        rows = rows[np.lexsort((spans.key[rows], owner[rows]))]
        mass = np.exp(scores[rows] - best[owner[rows]], dtype=np.float64)
        new = np.ones(len(rows), dtype=bool)
        new[1:] = (np.diff(owner[rows]) != 0) | (np.diff(spans.key[rows]) != 0)
        starts = np.flatnonzero(new)
        about, probability = owner[rows[starts]], np.add.reduceat(mass, starts)
        probability *= stated[about] / np.bincount(about, weights=probability)[about]
        # the groups of each subject, the most likely first
        order = np.lexsort((-probability, about))
        rank = np.arange(len(order)) - np.searchsorted(about[order], about[order])
        is_likely = (rank == 0) | (probability[order] >= MIN_KEPT_PROBABILITY)
        ends = np.append(starts[1:], len(rows))
        facts: list[Fact] = []
        for group in order[(rank < MAX_ANSWERS) & is_likely].tolist():
            part = slice(starts[group], ends[group])
            facts += self._facts_of(spans, rows[part], mass[part], float(probability[group]))
        return facts

    def _facts_of(
        self, spans: Spans, rows: Ints, mass: Floats, probability: float
    ) -> Iterable[Fact]:
        """The facts of one answer, given the spans that may state it with their relative mass."""
        kept = mass >= MIN_SHARE_OF_BEST_SPAN * mass.max()
        rows, mass = rows[kept], mass[kept]
        text = self.labels.spelling.write(spans, int(rows[int(np.argmax(mass))]))
        number = spans.owners[int(spans.owner[rows[0]])]
        chances = (probability * mass / mass.sum()).tolist()
        for row, chance in zip(rows.tolist(), chances, strict=True):
            place = self.labels.spelling.place(spans, row)
            document = int(spans.docs[spans.doc[row]])
            yield Fact(self.relation_id, number, text, chance, document, *place)

    def _weigh_documents(self, spans: Spans, scores: Scores) -> Scores:
        """The scores, such that a text weighs by its own odds of stating an answer, whatever the
        others state: of two documents that contradict each other both values are kept."""
        text = spans.words.text_of_document[spans.doc]
        log_odds = self.model.log_odds(text, scores, len(spans.docs))
        stated = self._probability(log_odds)
        weight = np.minimum(stated / np.maximum(1 - stated, 1e-9), MAX_DOCUMENT_ODDS)
        shift = np.log(np.maximum(weight, 1e-9)) - log_odds
        return (scores + shift[text]).astype(np.float32)

    def _probability(self, log_odds: Floats) -> Floats:
        """That documents state an answer, given the log odds by the scores."""
        return 1 / (1 + np.exp(-(self._slope * log_odds + self._offset)))

    def _spans(self, subjects: Collection[int]) -> Spans:
        return spans_of(self.database, subjects, self.rules, self.labels.silenced)

    def _fit(self, spans: Spans, targets: Mapping[int, int], rounds: int) -> SpanModel:
        """A model of the targets and then, some rounds, of what it reads itself as well."""
        known = {key: count.total() for key, count in self.labels.spelling.spellings.items()}
        model = SpanModel(targets, known)
        copies = sum(number < 0 for number in targets)
        silence = SILENCED_WEIGHT * (len(targets) - copies) / max(1, copies)
        importance = {number: 1.0 if number > 0 else min(1.0, silence) for number in targets}
        others = [n for n in spans.owners if n > 0 and n not in self.labels.answers]
        others = [n for n in others if len(spans.rows_of(n))] if rounds else []
        doubts: dict[int, float] = {}
        min_silence = MIN_BELIEVED_SILENCE_FEW_LABELS
        if len(self.labels.answers) >= FEW_LABELS:
            doubt = UNLABELLED_WEIGHT * sum(importance.values()) / max(1, len(others))
            doubts, min_silence = dict.fromkeys(others, doubt), MIN_BELIEVED_SILENCE
        model.targets |= dict.fromkeys(doubts, SILENT)
        model.fit(spans, importance | doubts)
        for _ in range(rounds):
            scores = model.score(spans)
            model.targets, model.known = dict(targets), Counter(known)
            believed: dict[int, float] = {}
            for number in others:
                rows = spans.rows_of(number)
                answer, probability = _believe(scores[rows], spans.key[rows], model.none)
                least = min_silence if answer == SILENT else MIN_BELIEVED_PROBABILITY
                if probability > least:
                    model.targets[number], believed[number] = answer, probability / 2
                    model.known[answer] += answer != SILENT
            model.fit(spans, importance | believed, scores)
        return model

    def _calibrate(self, subjects: Collection[int]) -> None:
        """Fit the probability that documents state an answer, given the log odds by the scores.

        The odds are those of labelled subjects, as they are and without the words near their
        answers, by weights that were learned without the labels of these subjects. `check` counts
        what is then read of them.
        """
        spans, labels = self._spans(subjects), self.labels
        row_of = {number: i for i, number in enumerate(spans.owners)}
        numbers = sorted(labels.answers)
        folds = 2 if len(numbers) >= MIN_LABELS_OF_TWO_FOLDS else FOLDS
        stated, silent = [], []  # log odds
        read: list[tuple[str, str]] = []  # pairs of an answer and what is read
        for fold in range(folds):
            held_out = numbers[fold::folds]
            targets = labels.targets(without=set(held_out))
            model = self._fit(spans, targets, 1 if folds == FOLDS else 0)
            scores = model.score(spans)
            log_odds = model.log_odds(spans.owner, scores, len(spans.owners))
            for number in held_out:
                key = labels.answers[number]
                if key == SILENT:
                    silent.append(log_odds[row_of[number]])
                    continue
                stated.append(log_odds[row_of[number]])
                rows = spans.rows_of(number)
                best = int(rows[int(np.argmax(scores[rows]))])
                answer = labels.spelling.usual(key)
                is_right = int(spans.key[best]) == key
                said = answer if is_right else labels.spelling.write(spans, best)
                read.append((answer, said))
                if number in labels.silenced:
                    silent.append(log_odds[row_of[-number]])
        self._slope, self._offset = fit_line(np.array(stated), np.array(silent))
        is_read = self._probability(np.array(stated)) >= MIN_PROBABILITY
        pairs = [(a, b if seen else "") for (a, b), seen in zip(read, is_read, strict=True)]
        false = self._probability(np.array(silent)) >= MIN_PROBABILITY
        mistakes = Counter(pair for pair in pairs if pair[0] != pair[1])
        self.check = ReadingCheck(
            asked=len(pairs),
            found=sum(answer == said for answer, said in pairs),
            missed=len(is_read) - int(is_read.sum()),
            silent=len(silent),
            false=int(false.sum()),
            mistakes=tuple(pair for pair, _ in mistakes.most_common(SHOWN_MISTAKES)),
        )


def _thin(items: Sequence[int], most: int) -> list[int]:
    """About so many of the items, at even distances."""
    return list(items[:: max(1, len(items) // most)])


def _believe(scores: Scores, keys: Hashes, none: float) -> tuple[int, float]:
    """The likeliest answer about a subject, or SILENT, by its spans; and how likely it is."""
    mass = np.exp(np.append(scores, none) - max(float(scores.max()), none))
    best = keys[int(np.argmax(scores))]
    answer, silence = mass[:-1][keys == best].sum() / mass.sum(), mass[-1] / mass.sum()
    return (int(best), float(answer)) if answer >= silence else (SILENT, float(silence))


def _choose_rivals(
    spans: Spans,
    subjects: Sequence[int],
    is_target: NDArray[np.bool_],
    scores: Scores | None,
) -> list[Ints]:
    """For each subject the spans that compete in training: its answers and MAX_RIVAL_SPANS others,
    half of them those with the highest scores, if there are scores.

    Of several documents only those with the answer count: another one may state another value.
    """
    rng, chosen = np.random.default_rng(0), []
    for number in subjects:
        here = spans.rows_of(number)
        if is_target[here].any():
            stating = np.unique(spans.doc[here][is_target[here]])
            here = here[np.isin(spans.doc[here], stating)]
        if len(here) > MAX_RIVAL_SPANS:
            hard, half = here[:0], MAX_RIVAL_SPANS // 2
            if scores is not None:
                hard = here[np.argpartition(scores[here], -half)[-half:]]
            some = rng.choice(here, MAX_RIVAL_SPANS - len(hard), replace=False)
            here = np.unique(np.concatenate((some, hard, here[is_target[here]])))
        chosen.append(here)
    return chosen


def are_in_records(spans: Spans, rows: Sequence[int]) -> bool:
    """Whether most of these answers, each of a text of its own, have others that look alike in the
    text, and nearly all of those come as the same one of them: the first, or the second."""
    before, total = (counts[spans.start_edge[rows]] for counts in spans.alike_counts)
    repeated = before[total > 1]
    same = Counter(repeated.tolist()).most_common(1)
    return 2 * len(repeated) > len(rows) and same[0][1] >= MIN_SAME_RECORD_SHARE * len(repeated)


def remove_spans(spans: Spans, rows: Sequence[int], in_records: bool) -> list[Document]:
    """The documents of these spans, without them and a few words around them in their sentence.

    in_records: spans that look alike go too; else the second record would look like the first one.
    """
    words = spans.words
    if in_records:
        alike, text = spans.alike[spans.start_edge], words.text_of_document[spans.doc]
        is_alike = np.isin(text, text[rows]) & np.isin(alike, alike[rows])
        rows = np.union1d(rows, np.flatnonzero(is_alike)).tolist()
    gone = np.zeros(len(words), dtype=bool)
    for row in rows:
        first, last = int(spans.first_word[row]), int(spans.last_word[row])
        around = slice(max(0, first - SILENCED_WORDS), last + SILENCED_WORDS + 1)
        gone[around] |= words.sentence[around] == words.sentence[first]
    gone &= ~words.heading
    shorter = []
    for doc in sorted({int(spans.doc[row]) for row in rows}):
        document = words.documents[doc]
        here = slice(int(words.first[doc]), int(words.first[doc + 1]))
        # each word with what stands between it and the next one
        starts = words.start[here].tolist()
        pieces = zip(starts, [*starts[1:], len(document.text)], gone[here].tolist(), strict=True)
        kept = [document.text[start:end] for start, end, is_gone in pieces if not is_gone]
        shorter.append(replace(document, text=document.text[: starts[0]] + "".join(kept)))
    return shorter


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
