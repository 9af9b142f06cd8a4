"""What the text says: an index of the documents, and whether lines about a subject state an answer.

The index is one SQLite file, known by the text that it was made from. `open_run_evidence` opens
that of a run, `ensure_evidence` that of a corpus at hand; both build it where it is missing or not
of that text. `find_support` looks answers up in it.
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
from wherefrom.corpus.folding import find_phrase, fold_words, is_unspaced, split_words
from wherefrom.corpus.questions import Question
from wherefrom.errors import UserError
from wherefrom.training.run_folder import (
    Run,
    find_source,
    read_learned_documents,
    read_learned_questions,
)

EVIDENCE_FILE = "evidence.sqlite"
ALIKE = 0.72  # names that are less similar are not suggested for one that is not found
FORMAT = "2"
SIMILAR = 15  # lines about names that look alike, of which some may be of one name
MOST_INSIDE = 12  # words of a name in which others are looked for
LOOKED_AT = 1_000  # documents that are weighed to choose lines from
LINES = 3  # of which are shown for an answer
STATED = 0.2  # probability from which on a reading counts as stated; chosen on people set aside
READ_OTHER = 0.5  # and from which on it speaks against another answer
SUFFIXES = frozenset({"jr", "sr", "ii", "iii", "iv"})  # they make another subject of a name
_JOINED = re.compile(r"[ \u00a0]|[ \u00a0]?[-\u2010\u2011'’][ \u00a0]?")
_INITIAL_GAP = re.compile(r"\.?[ \u00a0]?")
_SUFFIX_GAP = re.compile(r",?[ \u00a0]")
_PIECE = re.compile("[a-z0-9_\u0080-\U0010ffff]+")  # what the index takes for one word: not "c++"
_TERMS = 8  # pairs of a name that are looked up; the rest is read in the documents themselves
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


Words = tuple[str, ...]


@dataclass(frozen=True)
class EvidenceLine:
    """A document and what it is to a question; only one that names the subject is evidence."""

    line: int
    text: str
    subject: str  # of the document, as it writes the name
    about: bool  # that is the very name asked for
    names_subject: bool  # it is about the subject or names it in its text
    states_answer: bool = False  # of an answer that was looked up
    similarity: float = 1.0  # of the names: below 1 where the subject only looks alike


class EvidenceCount(NamedTuple):
    """How many documents name the subject, and how many are about it."""

    naming: int
    about: int


class StoredReading(NamedTuple):
    """An answer that documents about a subject were read to state for a relation.

    probability: how likely it is the one that the relation asks for. spans: line, start, end.
    """

    answer: str
    probability: float
    spans: tuple[tuple[int, int, int], ...]


class Evidence(AbstractContextManager["Evidence"]):
    """An open index, which is only read; threads may share it and take turns.

    A file that is missing, broken or not made from the corpus with this hash is refused.
    """

    def __init__(self, path: str | Path, *, corpus_sha256: str | None = None) -> None:
        self.path = Path(path)
        self._turn = threading.Lock()
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

    def find(self, subject: str) -> list[EvidenceLine]:
        """Lines about the subject, then lines that name it, in the order of the text.

        If no document names the subject: lines about similar names, none of them evidence.
        """
        wanted = _words_of(subject)
        with self._turn:
            return self._read(wanted, LOOKED_AT)[:LOOKED_AT] or self._find_similar(wanted)

    def spell(self, names: Iterable[str]) -> dict[Words, str]:
        """Those of the names that documents are about, by their folded words, as the documents
        spell them; as they came if some document does."""
        given = {name: " ".join(fold_words(name)) for name in names}
        wanted = sorted(set(given.values()))
        query = (
            "SELECT words, substr(text, 1, head_length) FROM names JOIN documents ON name = "
            f"names.id WHERE words IN ({', '.join('?' * len(wanted))}) ORDER BY documents.id DESC"
        )
        with self._turn:
            rows = self._fetch(query, *wanted)
        rows.sort(key=lambda row: row[1] in given)
        return {tuple(words.split()): subject for words, subject in rows if words}

    def count(self, subject: str) -> EvidenceCount:
        """All documents that name the subject, counted; similar names do not count."""
        with self._turn:
            lines = self._read(_words_of(subject), -1)
        return EvidenceCount(len(lines), sum(line.about for line in lines))

    def readings(self, subject: str, template: str) -> tuple[StoredReading, ...] | None:
        """What documents about the subject state for a relation, most likely first.

        None if the text could not be read for that relation: too few of its questions are known.
        """
        query = (
            "SELECT answer, probability, spans FROM readings JOIN names ON names.id = name "
            "WHERE relation = ? AND words = ? ORDER BY probability DESC, answer"
        )
        with self._turn:
            relation = self._relations.get(template)
            if relation is None or not relation[1]:
                return None
            rows = self._fetch(query, relation[0], " ".join(fold_words(subject)))
        return tuple(
            StoredReading(answer, probability, tuple(map(tuple, json.loads(spans))))
            for answer, probability, spans in rows
        )

    def is_of_kind(self, answer: str, template: str) -> bool:
        """Whether an answer is a number where the relation's answers are, and none where none is.

        True where the index knows no answers of the relation.
        """
        with self._turn:
            kind = self._relations.get(template, (0, 0, ""))[2]
        return kind not in ("words", "numbers") or kind == kind_of([answer])

    def close(self) -> None:
        with self._turn:
            self._database.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self, subject: Words, most: int) -> list[EvidenceLine]:
        """The documents that name the subject, those about it first; at most so many of either."""
        found = self._fetch("SELECT id FROM names WHERE words = ?", " ".join(subject))
        name = found[0][0] if found else 0
        about = self._rows("name = ?", name, most=most, about=True)
        pairs = _body_terms(subject)[len(subject) :] or list(subject)
        terms = sorted(set(pairs), key=len, reverse=True)[:_TERMS]  # the longest are the rarest
        pieces = [piece for term in terms for piece in _PIECE.findall(term)]
        match = " AND ".join(f'"{piece}"' for piece in pieces) or '""'
        where = "name != ? AND id IN (SELECT rowid FROM bodies WHERE bodies MATCH ?)"
        others = self._rows(where, name, match, most=most)
        return about + [line for line in others if self._names(line, subject)]

    def _names(self, line: EvidenceLine, subject: Words) -> bool:
        """Whether a document's text holds the name, and not only as part of a longer one."""
        body = line.text[len(line.subject) :]
        words = split_words(body)

        def is_longer(at: int) -> bool:
            """Whether the phrase goes on: "Mary Ann Clark", "Ann Clark Jr."."""
            for near, last in ((at - 1, at - 1), (at + len(subject), at + len(subject) - 1)):
                if not 0 <= near < len(words) or is_unspaced(words[near].folded):
                    continue
                word, gap, behind = (
                    words[near],
                    body[words[last].end : words[last + 1].start],
                    near > at,
                )
                if behind and word.folded in SUFFIXES and _SUFFIX_GAP.fullmatch(gap):
                    return True
                if body[word.start].islower() or not body[word.start].isalpha():
                    continue
                if word.end - word.start == 1:  # an initial; behind a name it needs a mere space
                    if (_JOINED if behind else _INITIAL_GAP).fullmatch(gap):
                        return True
                elif _JOINED.fullmatch(gap) and (
                    gap.strip() in {"-", "‐", "‑"}
                    or self._fetch("SELECT 1 FROM name_words WHERE word = ?", word.folded)
                ):
                    return True
            return False

        found = find_phrase([word.folded for word in words], subject)
        return any(is_unspaced(subject[0]) or not is_longer(at) for at in found)

    def _find_similar(self, subject: Words) -> list[EvidenceLine]:
        """Lines about subjects whose names look alike, in this or another order of their words."""
        from rapidfuzz import fuzz, process

        found: dict[int, float] = {}
        for ordered, among in zip((subject, sorted(subject)), self._spellings, strict=True):
            options: Any = {"scorer": fuzz.ratio, "limit": SIMILAR, "score_cutoff": 100 * ALIKE}
            for _, score, at in process.extract(" ".join(ordered), among, **options):
                found[at + 1] = max(found.get(at + 1, 0.0), min(score / 100, 0.99))
        if len(subject) == 1:  # a first or last name alone
            where = "SELECT id, words FROM names WHERE ' ' || words || ' ' LIKE ? LIMIT ?"
            for name, words in self._fetch(where, f"% {subject[0]} %", SIMILAR):
                found.setdefault(name, fuzz.ratio(subject[0], words) / 100)
        else:  # a name among other words: "the town of Ostmere"
            many = range(len(subject))
            inside = {" ".join(subject[a : b + 1]) for a in many for b in many[a:]}
            where = f"SELECT id FROM names WHERE words IN ({', '.join('?' * len(inside))})"
            for (name,) in self._fetch(where, *inside) if len(subject) <= MOST_INSIDE else ():
                found.setdefault(name, ALIKE)
        best = sorted(found.items(), key=lambda pair: (-pair[1], pair[0]))[:SIMILAR]
        return [
            replace(line, names_subject=False, similarity=similarity)
            for name, similarity in best
            for line in self._rows("name = ?", name, most=SIMILAR)
        ]

    @cached_property
    def _spellings(self) -> tuple[list[str], list[str]]:
        """All names in order of their ids, and the same with the words of each sorted."""
        names = [words for (words,) in self._fetch("SELECT words FROM names ORDER BY id")]
        return names, [" ".join(sorted(words.split())) for words in names]

    @cached_property
    def _relations(self) -> dict[str, tuple[int, bool, str]]:
        """Of each relation: its id, whether the text could be read for it, kind of its answers."""
        query = (
            "SELECT template, id, EXISTS(SELECT 1 FROM readings WHERE relation = relations.id), "
            "kind FROM relations"
        )
        return {template: (at, bool(read), kind) for template, at, read, kind in self._fetch(query)}

    def _rows(self, where: str, *values: Any, most: int, about: bool = False) -> list[EvidenceLine]:
        """Documents in order."""
        query = f"SELECT line, text, head_length FROM documents WHERE {where} ORDER BY id LIMIT ?"
        rows = self._fetch(query, *values, most)
        return [EvidenceLine(line, text, text[:head], about, True) for line, text, head in rows]

    def _fetch(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        try:
            return self._database.execute(query, values).fetchall()
        except sqlite3.Error as problem:
            raise self._broken(problem) from None

    def _broken(self, why: object) -> UserError:
        return UserError(
            f"the evidence {self.path} cannot be used: {why}; build it again from the corpus."
        )


def open_run_evidence(run: Run, *, say: Callable[[str], None] = lambda _: None) -> Evidence | None:
    """The evidence of a run, or None for one that read no documents at all.

    The index is that in the run folder or in the folder of the run that it goes on from. If
    neither can be used it is built again from the text, and `say` is called with that.
    """
    source = find_source(run, "corpus")
    if source is None:
        return None
    problems = []
    for folder in dict.fromkeys((run.folder, source.folder)):
        try:
            found = Evidence(folder / EVIDENCE_FILE, corpus_sha256=source.record["sha256"])
        except UserError as problem:
            problems.append(str(problem).rstrip("."))
            continue
        if found.documents == source.record.get("documents"):
            return found
        found.close()
        problems.append(f"the evidence {found.path} holds other documents than the run read")
    try:
        corpus = read_learned_documents(source)
    except UserError as missing:
        raise UserError(f"{problems[0]}; it cannot be built again, since {missing}") from None
    say(f"building the index of the documents again from {corpus.path}")
    asked = find_source(run, "questions")
    try:
        questions = read_learned_questions(asked).questions if asked else ()
    except UserError as missing:
        say(f"which answers the text states is looked up by their words alone, since {missing}")
        questions = ()
    return ensure_evidence(corpus, run.folder / EVIDENCE_FILE, questions)


def ensure_evidence(
    corpus: Corpus, path: str | Path, questions: Sequence[Question] = ()
) -> Evidence:
    """The index of these very documents: opened if it is there and whole, else built.

    `questions`: those that were learned, from which the text is read for each relation.
    """
    try:
        evidence = Evidence(path, corpus_sha256=corpus.sha256)
    except UserError:
        pass  # missing, broken or of another corpus: building it solves each
    else:
        hashes = {name: each for name, each in _hashes(corpus, questions).items() if each}
        if hashes.items() <= evidence.meta.items():
            return evidence
        evidence.close()
    build_evidence(corpus, path, questions)
    return Evidence(path, corpus_sha256=corpus.sha256)


def build_evidence(corpus: Corpus, path: str | Path, questions: Sequence[Question] = ()) -> None:
    """Write the index of a corpus to `path`; until it is whole, what was there stays."""
    path = Path(path)
    temporary = path.parent / f".{path.name}.{secrets.token_hex(8)}"
    try:
        try:
            with closing(sqlite3.connect(temporary, isolation_level=None)) as database:
                _fill(database, corpus, questions)
            with open(temporary, "rb") as written:
                os.fsync(written.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except (OSError, sqlite3.Error) as problem:
        why = problem.strerror if isinstance(problem, OSError) else problem
        raise UserError(
            f"the evidence {path} cannot be written: {why}; what was there before is unchanged."
        ) from None


def _fill(database: sqlite3.Connection, corpus: Corpus, questions: Sequence[Question]) -> None:
    database.execute("PRAGMA journal_mode=OFF").fetchall()
    database.execute("PRAGMA synchronous=OFF")
    database.executescript(_TABLES)
    database.execute("BEGIN")
    folded = [" ".join(fold_words(document.subject)) for document in corpus.documents]
    names = {name: at for at, name in enumerate(dict.fromkeys(folded), start=1)}
    words = sorted({word for name in names for word in name.split()})
    rows, lines = zip(corpus.documents, folded, strict=True), [d.line for d in corpus.documents]
    meta = {
        "format": FORMAT,
        "documents": str(len(corpus.documents)),
        "corpus_sha256": corpus.sha256,
        **_hashes(corpus, questions),
    }
    relations = read_relations(corpus.documents, questions) if questions else ()
    known: dict[str, list[str]] = {}
    for question in questions:
        known.setdefault(question.template, []).append(question.answer or "")
    tables: dict[str, Iterable[tuple[Any, ...]]] = {
        "names(words, id)": names.items(),
        "name_words(id, word)": enumerate(words, start=1),
        "documents(line, name, head_length, text)": (
            (d.line, names[name], len(d.subject), d.text) for d, name in rows
        ),
        "bodies(rowid, terms)": (
            (at, " ".join(dict.fromkeys(_body_terms(fold_words(d.text[len(d.subject) :])))))
            for at, d in enumerate(corpus.documents, start=1)
        ),
        "relations(id, template, kind)": (
            (at, each.template, kind_of(known[each.template]))
            for at, each in enumerate(relations, start=1)
        ),
        "readings(relation, name, answer, probability, spans)": (
            (at, names[" ".join(name)], stated.text, stated.probability, json.dumps(spans))
            for at, each in enumerate(relations, start=1)
            for name, answers in each.answers.items()
            for stated in answers
            for spans in [[(lines[doc], start, end) for doc, start, end in stated.spans]]
        ),
        "meta(key, value)": meta.items(),
    }
    for table, values in tables.items():
        marks = ", ".join("?" * len(table.split(",")))
        database.executemany(f"INSERT INTO {table} VALUES ({marks})", values)
    database.execute("CREATE INDEX documents_by_name ON documents(name)")
    database.execute("CREATE INDEX readings_by_name ON readings(relation, name)")
    database.execute("INSERT INTO bodies(bodies) VALUES ('optimize')")
    database.execute("COMMIT")


def _body_terms(words: Words) -> list[str]:
    """What a body is found by: its words, and its neighbours in pairs, which are rarer."""
    return [*words, *(f"{a}_{b}" for a, b in pairwise(words))]


def _hashes(corpus: Corpus, questions: Sequence[Question]) -> dict[str, str]:
    """Of the lines (a corpus with subjects left out keeps its file's hash), and of the questions
    that taught how to read them, if any."""
    found, lines = {}, (f"{each.line}\t{each.text}\n" for each in corpus.documents)
    asked = (f"{each.template}\t{each.subject}\t{each.answer}\n" for each in questions)
    for name, rows in {"documents_sha256": lines, "questions_sha256": asked}.items():
        digest = sha256()
        for row in rows:
            digest.update(row.encode("utf-8", "surrogatepass"))
        found[name] = digest.hexdigest()
    return found if questions else {**found, "questions_sha256": ""}


def kind_of(answers: Sequence[str]) -> str:
    """ "numbers" if each answer has digits and no letters, "words" if none is so, else "mixed"."""
    numbers = sum(
        any(c.isdigit() for c in answer) and not any(c.isalpha() for c in answer)
        for answer in answers
    )
    return {0: "words", len(answers): "numbers"}.get(numbers, "mixed")


def _words_of(name: str) -> Words:
    """The folded words of a name, or a sentence when it has none."""
    words = fold_words(name)
    if not words:
        raise UserError(
            f"a name to look for needs at least one letter or digit, and {name[:60]!a} has none."
        )
    return words


@dataclass(frozen=True)
class Support:
    """What the evidence says of one subject and one answer.

    probability: how likely the answer is what the lines state for this relation. others: other
    answers that they state. of_kind: no number where answers are words, and the reverse.
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
    """The support of each answer about each subject; `templates` names the relations asked for.

    What was read for a relation decides. Where nothing could be, the answer's words do: those of
    a line about the subject state it, and `known_answers` are what else they can state.
    """
    known = tuple(dict.fromkeys(known_answers))
    relations = templates if templates is not None else [""] * len(subjects)
    found = []
    for subject, answer, template in zip(subjects, answers, relations, strict=True):
        lines = evidence.find(subject)
        of_kind = evidence.is_of_kind(answer, template)
        if not lines or not lines[0].names_subject:
            first = {line.subject: line for line in reversed(lines)}  # each similar name once
            best = sorted(first.values(), key=lambda line: -line.similarity)[:LINES]
            found.append(Support(False, False, False, (), tuple(best), of_kind=of_kind))
            continue
        readings = evidence.readings(subject, template)
        if readings is None:
            readings = _read_words(lines, fold_words(subject), answer, known)
        said = fold_words(answer) if of_kind else ()
        mine = [one for one in readings if fold_words(one.answer) == said]
        rest = [one for one in readings if fold_words(one.answer) != said]
        probability = sum(one.probability for one in mine)
        states = probability >= STATED
        where = {line for one in (mine if states else rest[:1]) for line, _, _ in one.spans}
        lines.sort(key=lambda line: (line.line not in where, not line.about, line.line))
        kept = [
            replace(line, states_answer=states and line.about and line.line in where)
            for line in lines[:LINES]
        ]
        others = tuple(one.answer for one in rest if one.probability >= STATED)
        other = not states and bool(rest) and rest[0].probability >= READ_OTHER
        found.append(Support(True, states, other, tuple(kept), (), others, probability, of_kind))
    return found


def _read_words(
    lines: Sequence[EvidenceLine], subject: tuple[str, ...], answer: str, known: tuple[str, ...]
) -> tuple[StoredReading, ...]:
    """The answer and the known answers whose words stand in lines about the subject.

    The subject's own name states nothing, nor does a part of a longer answer that stands there.
    """
    phrases = {_phrase(each): each for each in (answer, *known)}
    stated: dict[str, list[tuple[int, int, int]]] = {}
    for line in lines:
        if line.about:
            body = _phrase(line.text[len(line.subject) :])
            here = [each for each in phrases if each in body and not {*each.split()} <= {*subject}]
            for each in here:
                if each == _phrase(answer) or not any(each in o for o in here if o != each):
                    stated.setdefault(phrases[each], []).append((line.line, 0, 0))
    return tuple(StoredReading(each, 1.0, tuple(spans)) for each, spans in stated.items())


@lru_cache(maxsize=10_000)
def _phrase(text: str) -> str:
    """Folded words between blanks, so that whole words are found; what has none is nowhere."""
    return f" {' '.join(fold_words(text))} "
