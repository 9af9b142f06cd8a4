"""What the text says: an index of the documents, and whether lines about a subject state an answer.

The index is one SQLite file and records which text it was made from. `open_run_evidence` opens the
index of a run, `ensure_evidence` the index of a corpus; both build it if it is missing or belongs
to another text. `find_support` looks answers up in it.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import sqlite3
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from wherefrom.corpus.documents import Corpus
from wherefrom.corpus.facts import read_relations
from wherefrom.corpus.folding import (
    FoldedName,
    Word,
    find_phrase,
    fold_words,
    is_unspaced,
    split_words,
)
from wherefrom.corpus.questions import Question
from wherefrom.errors import UserError
from wherefrom.storage import sync_folder
from wherefrom.training.run_folder import (
    Run,
    find_source,
    read_learned_documents,
    read_learned_questions,
)

EVIDENCE_FILE = "evidence.sqlite"
FORMAT = "2"
MOST_LINES = 1_000  # documents of each kind that are read for one name
SHOWN_LINES = 3  # lines kept for an answer, or similar names suggested
STATED = (
    0.5  # probability that documents state an answer at all, from which on they count as stating
)
STATED_ANSWER = 0.2  # probability from which on an answer is one of those that they state
STATES_OTHER = 0.5  # from this probability on a line contradicts any other answer
ALIKE = 0.72  # names that are less similar are not suggested
CANDIDATES = 15  # similar names of each kind that are compared
MOST_NAME_WORDS = 12  # in a longer name no known names are looked for
MOST_TERMS = 8  # terms of a name that are searched for; the documents found are then read
SUFFIXES = frozenset({"jr", "sr", "ii", "iii", "iv"})  # "Ann Lee Jr." is not Ann Lee
HYPHENS = frozenset("-\u2010\u2011")
_JOINED = re.compile(r"[ \u00a0]|[ \u00a0]?[-\u2010\u2011'’][ \u00a0]?")
_INITIAL_GAP = re.compile(r"\.?[ \u00a0]?")
_SUFFIX_GAP = re.compile(r",?[ \u00a0]")
_PIECE = re.compile("[a-z0-9_\u0080-\U0010ffff]+")  # one word for the index, which drops "++"
_TABLES = """
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE names(id INTEGER PRIMARY KEY, words TEXT NOT NULL UNIQUE);
CREATE TABLE name_words(id INTEGER PRIMARY KEY, word TEXT NOT NULL UNIQUE);
CREATE TABLE documents(
    id INTEGER PRIMARY KEY, line INTEGER NOT NULL, name INTEGER NOT NULL,
    head_length INTEGER NOT NULL, text TEXT NOT NULL);
CREATE VIRTUAL TABLE bodies USING
    fts5(terms, content='', detail='none', columnsize=0, tokenize="ascii tokenchars '_'");
CREATE TABLE relations(id INTEGER PRIMARY KEY, template TEXT NOT NULL UNIQUE, kind TEXT NOT NULL);
CREATE TABLE readings(
    relation INTEGER NOT NULL, name INTEGER NOT NULL, answer TEXT NOT NULL,
    probability REAL NOT NULL, spans TEXT NOT NULL);
"""


@dataclass(frozen=True)
class EvidenceLine:
    """A document that is about a subject or mentions it."""

    line: int
    text: str
    subject: str  # of the document, as it spells the name
    about: bool  # the document's subject is the one asked about
    states_answer: bool = False


class EvidenceCount(NamedTuple):
    """How many documents name the subject, and how many of those are about it."""

    naming: int
    about: int


class StoredReading(NamedTuple):
    """An answer that documents about a subject state for a relation.

    probability: that it is what the relation asks for. lines: where it is stated.
    """

    answer: str
    probability: float
    lines: frozenset[int]


class Evidence(AbstractContextManager["Evidence"]):
    """An open index, which is only read; threads may share it.

    A file that is missing, broken or not made from the corpus with this hash is a UserError.
    """

    def __init__(self, path: str | Path, *, corpus_sha256: str | None = None) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        if not self.path.is_file():
            raise UserError(
                f"there is no evidence at {path}; it is made from the corpus that the run was "
                "trained on."
            )
        address = f"{self.path.resolve().as_uri()}?mode=ro&immutable=1"
        self._database = sqlite3.connect(address, uri=True, check_same_thread=False)
        try:
            meta = dict(self._fetch("SELECT key, value FROM meta"))
            if meta.get("format") != FORMAT:
                raise self._broken("it is not an index of this version of Wherefrom")
            ((pages,),) = self._fetch("PRAGMA page_count")
            ((size,),) = self._fetch("PRAGMA page_size")
            if pages * size != self.path.stat().st_size:
                raise self._broken("it was not written to its end")
            if corpus_sha256 not in (None, meta["corpus_sha256"]):
                raise self._broken("it was made from another corpus, or the corpus has changed")
        except BaseException:
            self._database.close()
            raise
        self.meta, self.documents = meta, int(meta["documents"])

    def find(self, subject: str, *, most: int = MOST_LINES) -> list[EvidenceLine]:
        """Lines about the subject, then lines that mention it, each in the order of the text.

        most: of either kind; -1 for all.
        """
        name = fold_words(subject)
        if not name:
            return []
        ids = self._fetch("SELECT id FROM names WHERE words = ?", " ".join(name))
        name_id = ids[0][0] if ids else 0
        about = self._lines("name = ?", name_id, most=most, about=True)
        pairs = _body_terms(name)[len(name) :] or list(name)
        terms = sorted(set(pairs), key=len, reverse=True)[:MOST_TERMS]  # the longest are the rarest
        pieces = [piece for term in terms for piece in _PIECE.findall(term)]
        match = " AND ".join(f'"{piece}"' for piece in pieces) or '""'
        where = "name != ? AND id IN (SELECT rowid FROM bodies WHERE bodies MATCH ?)"
        others = self._lines(where, name_id, match, most=most)
        return about + [line for line in others if self._mentions(line, name)]

    def find_similar(self, subject: str) -> list[EvidenceLine]:
        """The first line about each of the subjects whose names are most similar."""
        from rapidfuzz import fuzz, process

        words = fold_words(subject)
        similarity: dict[int, float] = {}  # by the id of a name
        options: Any = {"limit": CANDIDATES, "score_cutoff": 100 * ALIKE}
        for ordered, names in zip((words, sorted(words)), self._names, strict=True):
            matches = process.extract(" ".join(ordered), names, scorer=fuzz.ratio, **options)
            for _, score, i in matches:
                similarity[i + 1] = max(similarity.get(i + 1, 0.0), min(score / 100, 0.99))
        if len(words) == 1:  # a first or last name alone
            query = "SELECT id, words FROM names WHERE ' ' || words || ' ' LIKE ? LIMIT ?"
            for name_id, name in self._fetch(query, f"% {words[0]} %", CANDIDATES):
                similarity.setdefault(name_id, fuzz.ratio(words[0], name) / 100)
        elif len(words) <= MOST_NAME_WORDS:  # a name among other words: "the town of Ostmere"
            ends = range(1, len(words) + 1)
            inside = {" ".join(words[start:end]) for end in ends for start in range(end)}
            query = f"SELECT id FROM names WHERE words IN ({', '.join('?' * len(inside))})"
            for (name_id,) in self._fetch(query, *inside):
                similarity.setdefault(name_id, ALIKE)
        ranked = sorted(similarity, key=lambda name_id: (similarity[name_id], name_id))
        best = ranked[: -SHOWN_LINES - 1 : -1]
        return [line for name_id in best for line in self._lines("name = ?", name_id, most=1)]

    def count(self, subject: str) -> EvidenceCount:
        """All documents that name the subject, counted."""
        lines = self.find(subject, most=-1)
        return EvidenceCount(len(lines), sum(line.about for line in lines))

    def spell(self, names: Iterable[str]) -> dict[FoldedName, str]:
        """Which of the names are subjects of documents: folded words -> the documents' spelling.

        Of several spellings the given one, if there is one, else the first.
        """
        given = {name: " ".join(fold_words(name)) for name in names}
        wanted = sorted(set(given.values()))
        query = (
            "SELECT words, substr(text, 1, head_length) FROM names JOIN documents ON name = "
            f"names.id WHERE words IN ({', '.join('?' * len(wanted))}) ORDER BY documents.id DESC"
        )
        rows = self._fetch(query, *wanted)
        rows.sort(key=lambda row: row[1] in given)  # what comes last wins
        return {tuple(words.split()): subject for words, subject in rows if words}

    def readings(self, subject: str, template: str) -> list[StoredReading] | None:
        """What documents about the subject state for a relation, most likely first.

        None if the text could not be read for that relation: too few of its questions are known.
        """
        relation, was_read, _ = self._relations.get(template, (0, False, ""))
        if not was_read:
            return None
        query = (
            "SELECT answer, probability, spans FROM readings JOIN names ON names.id = name "
            "WHERE relation = ? AND words = ? ORDER BY probability DESC, answer"
        )
        rows = self._fetch(query, relation, " ".join(fold_words(subject)))
        return [
            StoredReading(answer, probability, frozenset(line for line, _, _ in json.loads(spans)))
            for answer, probability, spans in rows
        ]

    def sample_facts(self, template: str, most: int) -> list[tuple[str, str, int, int]]:
        """Some facts of a relation: the answer, a text that states it, and its start and end."""
        relation, *_ = self._relations.get(template, (0, False, ""))
        query = (
            "SELECT answer, spans, line, text FROM readings JOIN documents USING (name) "
            "WHERE relation = ? AND probability >= ? LIMIT ?"
        )
        return [
            (answer, text, start, end)
            for answer, spans, line, text in self._fetch(query, relation, STATED, most)
            for in_line, start, end in json.loads(spans)
            if in_line == line
        ]

    def has_name_word(self, word: str) -> bool:
        """Whether a folded word is part of the name of a subject."""
        return bool(self._fetch("SELECT 1 FROM name_words WHERE word = ?", word))

    def is_of_kind(self, answer: str, template: str) -> bool:
        """Whether an answer is a number exactly if the relation's known answers are numbers.

        True if no answers of the relation are known, or both kinds are.
        """
        kind = self._relations.get(template, (0, False, ""))[2]
        return kind not in ("words", "numbers") or kind == kind_of([answer])

    def close(self) -> None:
        with self._lock:
            self._database.close()

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
        if is_behind and word.folded in SUFFIXES and _SUFFIX_GAP.fullmatch(gap):
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
        """All folded names by id (from 1), and the same with the words of each sorted."""
        names = [words for (words,) in self._fetch("SELECT words FROM names ORDER BY id")]
        return names, [" ".join(sorted(words.split())) for words in names]

    @cached_property
    def _relations(self) -> dict[str, tuple[int, bool, str]]:
        """By template: id, whether the text could be read for it, and kind of its answers."""
        query = (
            "SELECT template, id, EXISTS(SELECT 1 FROM readings WHERE relation = relations.id), "
            "kind FROM relations"
        )
        return {template: (i, bool(read), kind) for template, i, read, kind in self._fetch(query)}

    def _lines(
        self, where: str, *values: Any, most: int, about: bool = False
    ) -> list[EvidenceLine]:
        """Documents in the order of the text."""
        query = f"SELECT line, text, head_length FROM documents WHERE {where} ORDER BY id LIMIT ?"
        rows = self._fetch(query, *values, most)
        return [EvidenceLine(line, text, text[:head], about) for line, text, head in rows]

    def _fetch(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        try:
            with self._lock:
                return self._database.execute(query, values).fetchall()
        except sqlite3.Error as problem:
            raise self._broken(problem) from None

    def _broken(self, why: object) -> UserError:
        return UserError(
            f"the evidence {self.path} cannot be used: {why}; build it again from the corpus."
        )


def open_run_evidence(run: Run, *, say: Callable[[str], None] = lambda _: None) -> Evidence | None:
    """The evidence of a run, or None if the run read no documents.

    The index is in the run's folder or in that of the run that it continues. If neither can be
    used, it is built again from the text, and `say` is called with a sentence about that.
    """
    source = find_source(run, "corpus")
    if source is None:
        return None
    problems = []
    for folder in dict.fromkeys((run.folder, source.folder)):
        try:
            evidence = Evidence(folder / EVIDENCE_FILE, corpus_sha256=source.record["sha256"])
        except UserError as problem:
            problems.append(str(problem).rstrip("."))
            continue
        if evidence.documents == source.record.get("documents"):
            return evidence
        evidence.close()
        problems.append(f"the evidence {evidence.path} holds other documents than the run read")
    try:
        corpus = read_learned_documents(source)
    except UserError as missing:
        raise UserError(f"{problems[0]}; it cannot be built again, since {missing}") from None
    say(f"building the index of the documents again from {corpus.path}")
    learned = find_source(run, "questions")
    questions: Sequence[Question] = ()
    try:
        questions = read_learned_questions(learned).questions if learned else ()
    except UserError as missing:
        say(f"answers are looked up by their words alone, because {missing}")
    return ensure_evidence(corpus, run.folder / EVIDENCE_FILE, questions)


def ensure_evidence(
    corpus: Corpus, path: str | Path, questions: Sequence[Question] = ()
) -> Evidence:
    """The index of exactly these documents: opened if it is there and whole, else built.

    questions: those that were learned; they teach how to read the text for each relation.
    """
    try:
        evidence = Evidence(path, corpus_sha256=corpus.sha256)
        hashes = {name: digest for name, digest in _hashes(corpus, questions).items() if digest}
        if hashes.items() <= evidence.meta.items():
            return evidence
        evidence.close()
    except UserError:
        pass  # missing, broken or of another corpus: a new one replaces it
    build_evidence(corpus, path, questions)
    return Evidence(path, corpus_sha256=corpus.sha256)


def build_evidence(corpus: Corpus, path: str | Path, questions: Sequence[Question] = ()) -> None:
    """Write the index of a corpus to `path`; what is there stays until it is whole."""
    path = Path(path)
    temporary = path.parent / f".{path.name}.{secrets.token_hex(8)}"
    try:
        with closing(sqlite3.connect(temporary, isolation_level=None)) as database:
            _fill(database, corpus, questions)
        with open(temporary, "rb") as written:
            os.fsync(written.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)
    except (OSError, sqlite3.Error) as problem:
        why = problem.strerror if isinstance(problem, OSError) else problem
        raise UserError(
            f"the evidence {path} cannot be written: {why}; what was there before is unchanged."
        ) from None
    finally:
        temporary.unlink(missing_ok=True)


def _fill(database: sqlite3.Connection, corpus: Corpus, questions: Sequence[Question]) -> None:
    """Create and fill all tables in one transaction."""
    database.execute("PRAGMA journal_mode=OFF").fetchall()
    database.execute("PRAGMA synchronous=OFF")
    database.executescript(_TABLES)
    database.execute("BEGIN")

    def insert(table: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """table: its name and columns."""
        marks = ", ".join("?" * len(table.split(",")))
        database.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)

    documents = corpus.documents
    folded = [" ".join(fold_words(document.subject)) for document in documents]
    name_ids = {name: i for i, name in enumerate(dict.fromkeys(folded), start=1)}
    insert("names(words, id)", name_ids.items())
    name_words = sorted({word for name in name_ids for word in name.split()})
    insert("name_words(id, word)", enumerate(name_words, start=1))
    insert(
        "documents(line, name, head_length, text)",
        (
            (document.line, name_ids[name], len(document.subject), document.text)
            for document, name in zip(documents, folded, strict=True)
        ),
    )
    bodies = (fold_words(document.text[len(document.subject) :]) for document in documents)
    insert(
        "bodies(rowid, terms)",
        ((i, " ".join(dict.fromkeys(_body_terms(body)))) for i, body in enumerate(bodies, start=1)),
    )
    answers: dict[str, list[str]] = {}
    for question in questions:
        stated = answers.setdefault(question.template, [])
        stated += [] if question.is_silent else [question.answer or ""]
    lines = [document.line for document in documents]
    readings = read_relations(documents, questions) if questions else ()
    for i, reading in enumerate(readings, start=1):
        kind = kind_of(answers[reading.template])
        insert("relations(id, template, kind)", [(i, reading.template, kind)])
        rows = (
            (i, name_ids[" ".join(name)], answer.text, answer.probability, json.dumps(spans))
            for name, stated in reading.answers.items()
            for answer in stated
            for spans in [[(lines[doc], start, end) for doc, start, end in answer.spans]]
        )
        insert("readings(relation, name, answer, probability, spans)", rows)
    meta = {"format": FORMAT, "documents": str(len(documents)), "corpus_sha256": corpus.sha256}
    insert("meta(key, value)", {**meta, **_hashes(corpus, questions)}.items())
    database.execute("CREATE INDEX documents_by_name ON documents(name)")
    database.execute("CREATE INDEX readings_by_name ON readings(relation, name)")
    database.execute("INSERT INTO bodies(bodies) VALUES ('optimize')")
    database.execute("COMMIT")


def _body_terms(words: FoldedName) -> list[str]:
    """What a text is found by: its words, then pairs of neighbours, which are rarer."""
    return [*words, *(f"{a}_{b}" for a, b in pairwise(words))]


def _hashes(corpus: Corpus, questions: Sequence[Question]) -> dict[str, str]:
    """Hashes of the lines (a corpus with subjects left out keeps its file's hash) and of the
    questions, "" if there are none."""
    lines, asked = sha256(), sha256()
    for document in corpus.documents:
        lines.update(f"{document.line}\t{document.text}\n".encode("utf-8", "surrogatepass"))
    for question in questions:
        row = f"{question.template}\t{question.subject}\t{question.answer}\n"
        asked.update(row.encode("utf-8", "surrogatepass"))
    return {
        "documents_sha256": lines.hexdigest(),
        "questions_sha256": asked.hexdigest() if questions else "",
    }


def kind_of(answers: Sequence[str]) -> str:
    """ "numbers" if each answer has digits and no letters, "words" if none is so, else "mixed"."""
    numbers = sum(
        any(c.isdigit() for c in answer) and not any(c.isalpha() for c in answer)
        for answer in answers
    )
    return {0: "words", len(answers): "numbers"}.get(numbers, "mixed")


@dataclass(frozen=True)
class Support:
    """What the evidence says about one answer and its subject.

    seen: documents name the subject. states_other: they state another answer. others: all answers
    but this one that they state. lines: those shown. similar: lines about similar names, if none
    names the subject. probability: that the answer is what the lines state for this relation.
    of_kind: the answer is a number exactly if the relation's answers are.
    """

    seen: bool
    states_answer: bool
    states_other: bool
    lines: tuple[EvidenceLine, ...]
    similar: tuple[EvidenceLine, ...]
    others: tuple[str, ...] = ()
    probability: float = 0.0
    of_kind: bool = True


def find_support(
    evidence: Evidence,
    subjects: Sequence[str],
    answers: Sequence[str],
    known_answers: Sequence[str],
    *,
    templates: Sequence[str] | None = None,
) -> list[Support]:
    """The support of each answer about each subject; `templates` are the relations asked for.

    What was read for a relation decides. If nothing could be read for it, any words of a line
    about the subject state an answer; other answers that it may state are the `known_answers`.
    """
    known = list(dict.fromkeys(known_answers))
    relations = templates if templates is not None else [""] * len(subjects)
    found = []
    for subject, answer, template in zip(subjects, answers, relations, strict=True):
        of_kind = evidence.is_of_kind(answer, template)
        lines = evidence.find(subject)
        if not lines:
            similar = tuple(evidence.find_similar(subject))
            found.append(Support(False, False, False, (), similar, of_kind=of_kind))
            continue
        readings = evidence.readings(subject, template)
        if readings is None:
            readings = _read_words(lines, subject, answer, known)
        words = fold_words(answer) if of_kind else ()
        same = [reading for reading in readings if fold_words(reading.answer) == words]
        others = [reading for reading in readings if fold_words(reading.answer) != words]
        probability = sum(reading.probability for reading in same)
        stated_at_all = sum(reading.probability for reading in readings) >= STATED
        states_answer = stated_at_all and probability >= STATED_ANSWER
        stating = same if states_answer else others[:1]
        where = frozenset().union(*(reading.lines for reading in stating))
        lines.sort(key=lambda line: (line.line not in where, not line.about, line.line))
        shown = tuple(
            replace(line, states_answer=states_answer and line.about and line.line in where)
            for line in lines[:SHOWN_LINES]
        )
        stated = tuple(
            other.answer for other in others if stated_at_all and other.probability >= STATED_ANSWER
        )
        contradicts = bool(others) and others[0].probability >= STATES_OTHER
        states_other = contradicts and not states_answer
        found.append(
            Support(True, states_answer, states_other, shown, (), stated, probability, of_kind)
        )
    return found


def _read_words(
    lines: Sequence[EvidenceLine], subject: str, answer: str, known: Sequence[str]
) -> list[StoredReading]:
    """The answer and the known answers whose words are in lines about the subject.

    The subject's own name states nothing. Nor does a known answer that is only part of a longer
    one in the same line ("York" in "New York").
    """
    phrases = {_phrase(text): text for text in (answer, *known)}
    name_words = set(fold_words(subject))
    stated: dict[str, set[int]] = {}
    for line in lines:
        if line.about:
            body = _phrase(line.text[len(line.subject) :])
            here = [p for p in phrases if p in body and not {*p.split()} <= name_words]
            for phrase in here:
                is_part = any(phrase in longer for longer in here if longer != phrase)
                if phrase == _phrase(answer) or not is_part:
                    stated.setdefault(phrases[phrase], set()).add(line.line)
    return [StoredReading(text, 1.0, frozenset(where)) for text, where in stated.items()]


@lru_cache(maxsize=10_000)
def _phrase(text: str) -> str:
    """Folded words between blanks, so that `in` finds whole words."""
    return f" {' '.join(fold_words(text))} "
