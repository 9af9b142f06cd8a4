"""What the text says: the lines about a subject, and whether they state an answer.

Lines are looked up in the database of a run (corpus/database.py). `open_run_evidence` opens it, and
makes it again if it is missing or broken. `find_support` looks answers up in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from wherefrom.corpus.database import RUN_DATABASE, Database, ExtractedAnswer
from wherefrom.corpus.facts import is_stated, kind_of, read_facts, stating_documents
from wherefrom.corpus.folding import (
    FoldedName,
    Word,
    find_phrase,
    fold_words,
    is_unspaced,
    split_words,
)
from wherefrom.corpus.questions import Question
from wherefrom.corpus.reader import MIN_PROBABILITY
from wherefrom.errors import UserError
from wherefrom.training.learned_files import (
    find_source,
    read_learned_documents,
    read_learned_questions,
)
from wherefrom.training.record import check_file, discard_changed, update_run
from wherefrom.training.run_folder import Run, is_run

MAX_READ_DOCUMENTS = 1_000  # documents of each kind that are read for one name
MIN_SHOWN_LINES = 3  # lines kept for an answer, or similar names suggested,
MAX_SHOWN_LINES = 6  # or more if so many different values are stated
MIN_NAME_SIMILARITY = 0.72  # names that are less similar are not suggested
MAX_COMPARED_NAMES = 15  # similar names of each kind that are compared
MAX_KEPT_NAMES = 1_000  # for which the similar names are kept in memory
MAX_DIVIDED_NAME_WORDS = 12  # in a longer name no known names are looked for
MAX_SEARCHED_NAME_WORDS = 12  # of a name; the documents found are then read
NAME_SUFFIXES = frozenset({"jr", "sr", "ii", "iii", "iv"})  # "Ann Lee Jr." is not Ann Lee
HYPHENS = frozenset("-\u2010\u2011")
_JOINED = re.compile(r"[ \u00a0]|[ \u00a0]?[-\u2010\u2011'’][ \u00a0]?")
_INITIAL_GAP = re.compile(r"\.?[ \u00a0]?")
_SUFFIX_GAP = re.compile(r",?[ \u00a0]")


@dataclass(frozen=True)
class EvidenceLine:
    """A document that is about a subject or mentions it."""

    line: int
    text: str
    subject: str  # of the document, as it spells the name
    about: bool  # the document's subject is the one asked about
    states_answer: bool = False
    states: str = ""  # the answer, or another value, that it states for the relation
    document: int = -1  # its index


class EvidenceCount(NamedTuple):
    """How many documents name the subject, and how many of those are about it."""

    naming: int
    about: int


class Evidence(AbstractContextManager["Evidence"]):
    """A saved database, in which lines and facts are looked up; threads may share it."""

    def __init__(self, database: Database) -> None:
        self.database = database
        # a name in no document is looked up twice: to understand the question, and for the verdict
        self._find_similar_once = lru_cache(MAX_KEPT_NAMES)(self._find_similar)

    def find(self, subject: str, *, most: int = MAX_READ_DOCUMENTS) -> list[EvidenceLine]:
        """Lines about the subject, then lines that mention it, each in the order of the text.

        most: of either kind; -1 for all.
        """
        name = fold_words(subject)
        if not name:
            return []
        subject_id = self.database.subject_id(name)
        about = self._lines("subject_id = ?", subject_id, most=most, about=True)
        phrase = f'"{" ".join(name[:MAX_SEARCHED_NAME_WORDS])}"'
        found = "SELECT rowid FROM documents_search WHERE documents_search MATCH ?"
        where = f"subject_id IS NOT ? AND id IN ({found})"
        others = self._lines(where, subject_id, phrase, most=most)
        return about + [line for line in others if self._mentions(line, name)]

    def find_similar(self, subject: str) -> list[EvidenceLine]:
        """The first line about each of the subjects whose names are most similar."""
        return list(self._find_similar_once(fold_words(subject)))

    def _find_similar(self, words: FoldedName) -> list[EvidenceLine]:
        from rapidfuzz import fuzz, process

        similarity: dict[int, float] = {}  # by the number of a subject
        options: Any = {"limit": MAX_COMPARED_NAMES, "score_cutoff": 100 * MIN_NAME_SIMILARITY}
        for ordered, names in zip((words, sorted(words)), self._names, strict=True):
            matches = process.extract(" ".join(ordered), names, scorer=fuzz.ratio, **options)
            for _, score, i in matches:
                similarity[i + 1] = max(similarity.get(i + 1, 0.0), min(score / 100, 0.99))
        if len(words) == 1:  # a first or last name alone
            query = "SELECT id, name FROM subjects WHERE ' ' || name || ' ' LIKE ? LIMIT ?"
            for subject_id, name in self._fetch(query, f"% {words[0]} %", MAX_COMPARED_NAMES):
                similarity.setdefault(subject_id, fuzz.ratio(words[0], name) / 100)
        elif (
            len(words) <= MAX_DIVIDED_NAME_WORDS
        ):  # a name among other words: "the town of Ostmere"
            ends = range(1, len(words) + 1)
            inside = {" ".join(words[start:end]) for end in ends for start in range(end)}
            query = f"SELECT id FROM subjects WHERE name IN ({', '.join('?' * len(inside))})"
            for (subject_id,) in self._fetch(query, *inside):
                similarity.setdefault(subject_id, MIN_NAME_SIMILARITY)
        ranked = sorted(similarity, key=lambda subject_id: (similarity[subject_id], subject_id))
        best = ranked[: -MIN_SHOWN_LINES - 1 : -1]
        return [line for one in best for line in self._lines("subject_id = ?", one, most=1)]

    def count(self, subject: str) -> EvidenceCount:
        """All documents that name the subject, counted."""
        lines = self.find(subject, most=-1)
        return EvidenceCount(len(lines), sum(line.about for line in lines))

    def readings(self, subject: str, template: str) -> list[ExtractedAnswer] | None:
        """What documents about the subject state for a relation, most likely first.

        None if the text could not be read for that relation: too few of its questions are known.
        """
        was_read, _ = self._relations.get(template, (False, ""))
        return self.database.extracted(template, fold_words(subject)) if was_read else None

    def sample_facts(self, template: str, most: int) -> list[tuple[str, str, int, int]]:
        """Some facts of a relation: the answer, a text that states it, and its start and end."""
        facts: list[tuple[str, str, int, int]] = []
        for _, answers in self.database.all_extracted(template):
            likeliest = answers[0]
            if likeliest.probability >= MIN_PROBABILITY:
                for document, start, end in likeliest.spans:
                    text = self.database.documents[document].text
                    facts.append((likeliest.text, text, start, end))
            if len(facts) >= most:
                break
        return facts

    def lines_about(self, name: str) -> dict[int, str]:
        """The numbers and texts of the lines about a subject."""
        return {line.line: line.text for line in self.find(name) if line.about}

    def has_name_word(self, word: str) -> bool:
        """Whether a folded word is part of the name of a subject."""
        return bool(self._fetch("SELECT 1 FROM name_words WHERE word = ?", word))

    def is_of_kind(self, answer: str, template: str) -> bool:
        """Whether an answer is a number exactly if the relation's known answers are numbers.

        True if no answers of the relation are known, or both kinds are.
        """
        _, kind = self._relations.get(template, (False, ""))
        return kind not in ("words", "numbers") or kind == kind_of([answer])

    def close(self) -> None:
        self.database.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _mentions(self, line: EvidenceLine, name: FoldedName) -> bool:
        """Whether a document's text holds the name, and not only as part of a longer one."""
        body = line.text[len(line.subject) :]
        words = split_words(body)
        starts = find_phrase([word.folded for word in words], name)
        if is_unspaced(name[0]):
            return bool(starts)
        for start in starts:
            first, last = start - 1, start + len(name)  # the neighbours of the name
            if first >= 0 and self._extends(body, words[first], words[first : first + 2]):
                continue
            if last < len(words) and self._extends(body, words[last], words[last - 1 : last + 1]):
                continue
            return True
        return False

    def _extends(self, body: str, word: Word, pair: Sequence[Word]) -> bool:
        """Whether a word makes a longer name of its neighbour, as in "Mary Ann Clark"; both are the
        `pair`, in their order."""
        is_behind = word is pair[1]
        gap, initial = body[pair[0].end : pair[1].start], body[word.start]
        if is_behind and word.folded in NAME_SUFFIXES and _SUFFIX_GAP.fullmatch(gap):
            return True
        if is_unspaced(word.folded) or initial.islower() or not initial.isalpha():
            return False
        if word.end - word.start == 1:  # "J. Ann Lee"; behind a name no full stop may part them
            return (_JOINED if is_behind else _INITIAL_GAP).fullmatch(gap) is not None
        if not _JOINED.fullmatch(gap):
            return False
        is_name_word = "SELECT 1 FROM name_words WHERE word = ?"
        return gap.strip() in HYPHENS or bool(self._fetch(is_name_word, word.folded))

    @cached_property
    def _names(self) -> tuple[list[str], list[str]]:
        """All folded names by number (from 1), and the same with the words of each sorted."""
        names = [name for (name,) in self._fetch("SELECT name FROM subjects ORDER BY id")]
        return names, [" ".join(sorted(name.split())) for name in names]

    @cached_property
    def _relations(self) -> dict[str, tuple[bool, str]]:
        """By template: whether the text could be read for it, and the kind of its answers."""
        query = (
            "SELECT template, EXISTS(SELECT 1 FROM facts WHERE relation_id = relations.id), kind "
            "FROM relations"
        )
        return {template: (bool(read), kind) for template, read, kind in self._fetch(query)}

    def _lines(
        self, where: str, *values: Any, most: int, about: bool = False
    ) -> list[EvidenceLine]:
        """Documents in the order of the text."""
        query = f"SELECT id, line, text, subject FROM documents WHERE {where} ORDER BY id LIMIT ?"
        rows = self._fetch(query, *values, most)
        return [
            EvidenceLine(line, text, spelled, about, document=document)
            for document, line, text, spelled in rows
        ]

    def _fetch(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        return self.database.fetch(query, *values)


def open_run_evidence(run: Run, *, say: Callable[[str], None] = lambda _: None) -> Evidence | None:
    """The evidence of a run, or None if the run read no documents.

    The database is in the run's folder or in that of the run that it continues. If neither can be
    used, it is made again from the text, and `say` is called with a sentence about that.
    """
    source = find_source(run, "corpus")
    if source is None:
        return None
    asked = find_source(run, "questions")
    expected = {"source_sha256": source.record.sha256}
    if not getattr(source.run.job, "without", ()):
        expected["documents_sha256"] = getattr(source.run.job, "documents", None) or ""
        if asked is not None:
            expected["questions_sha256"] = asked.run.job.questions or ""
    problem = ""
    for folder in dict.fromkeys((run.folder, source.folder)):
        try:
            database = Database.open(check_file(folder, RUN_DATABASE))
        except UserError as broken:
            problem = problem or str(broken).rstrip(".")
            continue
        if "documents_sha256" in expected and expected.items() <= database.about.items():
            return Evidence(database)
        database.close()
    try:
        database = read_learned_documents(source)
    except UserError as missing:
        raise UserError(f"{problem}; it cannot be made again, since {missing}") from None
    questions: Sequence[Question] = ()
    try:
        questions = read_learned_questions(asked).questions if asked else ()
    except UserError as missing:
        say(f"answers are looked up by their words alone, because {missing}")
    why = f"{problem}; " if problem else ""
    say(f"{why}making the database of the documents again from {database.source}")
    return Evidence(save_database(database, run.folder / RUN_DATABASE, questions))


def save_database(database: Database, file: Path, questions: Sequence[Question] = ()) -> Database:
    """The database in `file` with these documents and the facts of the questions."""
    database = read_facts(database, questions)
    if is_run(file.parent):
        discard_changed(file.parent, file.name)
    database.save(file)
    if is_run(file.parent) and file.is_file():
        update_run(file.parent, wrote=(file.name,))
    return database


@dataclass(frozen=True)
class StatedValue:
    """A value that documents state for a relation, with its probability and their lines."""

    answer: str
    probability: float
    lines: tuple[int, ...]
    is_answer: bool = False  # it is what the model says


@dataclass(frozen=True)
class Support:
    """What the evidence says about one answer and its subject.

    seen: documents name the subject. states_other: they state another answer. lines: those shown.
    similar: lines about similar names, if none names the subject. stated: every value that they
    state, the likeliest first. probability: that the answer is what the lines state for this
    relation. of_kind: the answer is a number exactly if the relation's answers are.
    """

    seen: bool
    states_answer: bool
    states_other: bool
    lines: tuple[EvidenceLine, ...]
    similar: tuple[EvidenceLine, ...]
    stated: tuple[StatedValue, ...] = ()
    probability: float = 0.0
    of_kind: bool = True

    @property
    def others(self) -> tuple[StatedValue, ...]:
        """The values that are stated and are not the answer."""
        return tuple(value for value in self.stated if not value.is_answer)

    @property
    def share(self) -> float:
        """The answer's share of what different lines state; 1 where they do not contradict it."""
        own = sum(value.probability for value in self.stated if value.is_answer)
        where = {line for value in self.stated if value.is_answer for line in value.lines}
        against = [value for value in self.others if where.isdisjoint(value.lines)]
        total = own + sum(value.probability for value in against)
        return own / total if own and against else 1.0


def find_support(
    evidence: Evidence,
    subjects: Sequence[str],
    answers: Sequence[str],
    known_answers: Sequence[str],
    *,
    templates: Sequence[str] | None = None,
    only_lines: Sequence[Collection[int]] | None = None,
) -> list[Support]:
    """The support of each answer about each subject; `templates` are the relations asked for.

    What was read for a relation decides. If nothing could be read for it, any words of a line
    about the subject state an answer; other answers that it may state are the `known_answers`.
    only_lines: for each question the lines that it is about, if not all about the subject: none.
    """
    known = list(dict.fromkeys(known_answers))
    relations = templates if templates is not None else [""] * len(subjects)
    chosen = only_lines if only_lines is not None else [()] * len(subjects)
    rows = zip(subjects, answers, relations, chosen, strict=True)
    return [
        _support(evidence, subject, answer, template, known, only)
        for subject, answer, template, only in rows
    ]


def _support(
    evidence: Evidence,
    subject: str,
    answer: str,
    template: str,
    known: Sequence[str],
    only: Collection[int],
) -> Support:
    of_kind = evidence.is_of_kind(answer, template)
    lines = [line for line in evidence.find(subject) if not only or line.line in only]
    if not lines:
        similar = tuple(evidence.find_similar(subject))
        return Support(False, False, False, (), similar, of_kind=of_kind)
    readings = evidence.readings(subject, template)
    if readings is None:
        readings = _read_words(lines, subject, answer, known)
    elif only:
        readings = _restrict(readings, {line.document for line in lines})
    words = fold_words(answer) if of_kind else ()
    line_of = {line.document: line.line for line in lines}
    stated = []
    for reading, documents in zip(readings, stating_documents(readings), strict=True):
        where = tuple(line_of[document] for document in documents if document in line_of)
        is_answer = fold_words(reading.text) == words
        if where and is_stated(readings):
            stated.append(StatedValue(reading.text, reading.probability, where, is_answer))
    probability = sum(r.probability for r in readings if fold_words(r.text) == words)
    others = [reading for reading in readings if fold_words(reading.text) != words]
    contradicts = bool(others) and others[0].probability >= MIN_PROBABILITY
    states_answer = any(value.is_answer for value in stated)
    return Support(
        seen=True,
        states_answer=states_answer,
        states_other=contradicts and not states_answer,
        lines=_choose_lines(lines, stated),
        similar=(),
        stated=tuple(stated),
        probability=probability,
        of_kind=of_kind,
    )


def _restrict(
    readings: Sequence[ExtractedAnswer], documents: Collection[int]
) -> list[ExtractedAnswer]:
    """What some of the documents about a subject state; the probabilities have the same sum."""
    kept = []
    for reading in readings:
        pairs = list(zip(reading.spans, reading.chances, strict=True))
        here = [(span, chance) for span, chance in pairs if span[0] in documents]
        if here:
            spans, chances = zip(*here, strict=True)
            kept.append(ExtractedAnswer(reading.text, sum(chances), spans, chances))
    total, left = (sum(each.probability for each in several) for several in (readings, kept))
    scaled = [each._replace(probability=each.probability * total / left) for each in kept]
    return sorted(scaled, key=lambda reading: -reading.probability)


def _choose_lines(
    lines: Sequence[EvidenceLine], stated: Sequence[StatedValue]
) -> tuple[EvidenceLine, ...]:
    """The lines to show: one of each stated value, the answer first, then others."""
    values = sorted(stated, key=lambda value: not value.is_answer)
    states: dict[int, StatedValue] = {}
    for value in values:
        for number in value.lines:
            states.setdefault(number, value)
    first = [value.lines[0] for value in values]

    def order(line: EvidenceLine) -> tuple[bool, bool, bool, int]:
        value = states.get(line.line) if line.about else None
        is_own = value is not None and value.is_answer
        return (line.line not in first, not is_own, not line.about, line.line)

    shown = sorted(lines, key=order)[: max(MIN_SHOWN_LINES, min(len(first), MAX_SHOWN_LINES))]
    marked = []
    for line in shown:
        if line.about and line.line in states:
            value = states[line.line]
            line = replace(line, states=value.answer, states_answer=value.is_answer)
        marked.append(line)
    return tuple(sorted(marked, key=lambda line: (not line.states_answer, not line.states)))


def _read_words(
    lines: Sequence[EvidenceLine], subject: str, answer: str, known: Sequence[str]
) -> list[ExtractedAnswer]:
    """The answer and the known answers whose words are in lines about the subject.

    The subject's own name states nothing. Nor does a known answer that is only part of a longer
    one in the same line ("York" in "New York").
    """
    phrases = {_phrase(text): text for text in (answer, *known)}
    name_words = set(fold_words(subject))
    stated: dict[str, list[tuple[int, int, int]]] = {}
    for line in lines:
        if line.about:
            body = _phrase(line.text[len(line.subject) :])
            here = [p for p in phrases if p in body and not {*p.split()} <= name_words]
            for phrase in here:
                is_part = any(phrase in longer for longer in here if longer != phrase)
                if phrase == _phrase(answer) or not is_part:
                    span = (line.document, 0, len(line.text))
                    stated.setdefault(phrases[phrase], []).append(span)
    return [ExtractedAnswer(text, 1.0, tuple(spans)) for text, spans in stated.items()]


@lru_cache(maxsize=10_000)
def _phrase(text: str) -> str:
    """Folded words between blanks, so that `in` finds whole words."""
    return f" {' '.join(fold_words(text))} "
