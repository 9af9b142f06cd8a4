"""The database of a run: one SQLite file with the documents, what they state, and what was asked.

The text is read into a database in a temporary file, and the reader (corpus/reader.py) adds the
facts. When training starts, `save` brings it into the run folder as run.sqlite, complete or not at
all. From then on only the questions (corpus/split.py) and the answers (provenance/answers.py) are
written.
"""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from itertools import groupby, islice
from math import fsum
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from wherefrom.corpus.documents import (
    QUESTION_MARKS,
    Document,
    check_length,
    find_subject,
    hash_file,
    read_lines,
)
from wherefrom.corpus.folding import FoldedName, fold_words
from wherefrom.errors import UserError
from wherefrom.storage import digest_of, sync_folder

T = TypeVar("T")
RUN_DATABASE = "run.sqlite"
FORMAT: Literal[6] = 6  # of run folders: of this database and of run.json
WRITTEN = "questions: "  # in `about`, before a role whose questions were written
ROWS_AT_ONCE = 1_000  # that are read or written by one statement
SCHEMA = """
CREATE TABLE about(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE subjects(
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE);         -- the folded words of the name
CREATE TABLE documents(
    id INTEGER PRIMARY KEY,             -- 0, 1, 2, ... in the order of the text
    line INTEGER NOT NULL,              -- in the file
    subject TEXT NOT NULL,              -- as this document spells it, '' for none
    text TEXT NOT NULL,                 -- which starts with the subject
    subject_id INTEGER REFERENCES subjects(id));
CREATE TABLE relations(
    id INTEGER PRIMARY KEY,
    template TEXT NOT NULL UNIQUE,      -- "Where was {subject} born?"
    asked INTEGER NOT NULL,             -- training questions,
    found INTEGER NOT NULL,             -- those whose answer a document states,
    missing TEXT NOT NULL,              -- and the answers of the others, as JSON
    same_as TEXT NOT NULL,              -- the relation that this one words differently, or ''
    kind TEXT NOT NULL,                 -- of the answers: words, numbers or mixed
    reading_check TEXT NOT NULL);       -- how well it is read (ReadingCheck, as JSON) or 'null'
CREATE TABLE facts(
    relation_id INTEGER NOT NULL REFERENCES relations(id),
    subject_id INTEGER NOT NULL REFERENCES subjects(id),
    answer TEXT NOT NULL,
    probability REAL NOT NULL,          -- that this span states it; the sum is that of the answer
    document_id INTEGER NOT NULL REFERENCES documents(id),
    start INTEGER NOT NULL,             -- the characters of the text that state it
    end INTEGER NOT NULL);
CREATE TABLE questions(
    id INTEGER PRIMARY KEY,
    role TEXT NOT NULL,                 -- train, stopping, calibration, fitting or judged
    seen INTEGER NOT NULL,              -- 1 if a document names the subject
    source TEXT NOT NULL,               -- "train", "dev", "set aside", "left out", "invented", ...
    subject TEXT NOT NULL,
    question TEXT NOT NULL,
    answer TEXT,                        -- the right one, NULL if there is none
    template TEXT NOT NULL);            -- its relation
CREATE TABLE answers(                   -- and one column more for each signal
    id INTEGER PRIMARY KEY,
    question TEXT NOT NULL,
    answered_by TEXT NOT NULL,          -- "model", "majority", "by name", "reader", a run
    template TEXT NOT NULL,             -- its relation
    subject TEXT NOT NULL,
    truth TEXT,                         -- the right answer, NULL if there is none
    answer TEXT NOT NULL,
    is_right INTEGER,                   -- NULL if the text does not state the truth
    line INTEGER,                       -- in the file of dev questions, NULL if it is not there
    record TEXT,                        -- what an audit reads beside an answer, as JSON
    -- of the model's answers to judged questions:
    source TEXT,                        -- as in `questions`
    seen INTEGER,                       -- 1 if a document names the subject
    verdict TEXT,
    shown INTEGER,                      -- whether `ask` shows it: with the text,
    shown_internal INTEGER,             -- and by the model alone
    confidence REAL,                    -- probability that it is right: with the text,
    internal_confidence REAL,           -- and by the model alone
    from_text REAL,                     -- probability that the text states it: with the text,
    internal_from_text REAL,            -- and by the model alone
    stated INTEGER,                     -- whether, by the reader, a document states this answer,
    in_text INTEGER,                    -- the same by the embedded world's record, if there is one,
    states_truth INTEGER,               -- the truth,
    reads_any INTEGER,                  -- or any answer
    naming INTEGER,                     -- documents that name the subject,
    about INTEGER,                      -- and documents about it
    UNIQUE(question, answered_by));
CREATE INDEX facts_by_subject ON facts(relation_id, subject_id);
CREATE INDEX facts_by_document ON facts(document_id);
"""
# made when the database is saved; the index has folded words
SEARCH = """
CREATE VIRTUAL TABLE documents_search USING fts5(words, content='', tokenize='ascii');
CREATE TABLE name_words(word TEXT PRIMARY KEY) WITHOUT ROWID;
"""


class ReadingCheck(NamedTuple):
    """A relation read for subjects whose answers are known, by readers that did not learn them.

    asked: subjects with an answer; found: read rightly; missed: nothing read. silent: subjects
    without an answer, or with the words around it taken away; false: something read all the same.
    mistakes: answers with what was read instead ("" for nothing), the commonest first.
    """

    asked: int
    found: int
    missed: int
    silent: int
    false: int
    mistakes: tuple[tuple[str, str], ...] = ()


class AskedRelation(NamedTuple):
    """A kind of question, and how many of its training answers stand in the documents.

    missing: the answers that stand in none. same_as: the relation that this one words differently;
    its facts are those of that relation. kind: of the answers, "words", "numbers" or "mixed".
    check: how well it was read where the answers are known, None if too few are.
    """

    template: str
    asked: int
    found: int
    missing: tuple[str, ...]
    same_as: str = ""
    kind: str = "words"
    check: ReadingCheck | None = None


class Fact(NamedTuple):
    """A span of a document that may state the answer to a relation: one row of the table."""

    relation_id: int
    subject_id: int
    answer: str
    probability: float
    document_id: int
    start: int
    end: int


class ExtractedAnswer(NamedTuple):
    """All facts of one answer: its text, its probability, (document, start, end) of each, and the
    probability of each."""

    text: str
    probability: float
    spans: tuple[tuple[int, int, int], ...]
    chances: tuple[float, ...] = ()


class DocumentTable(Sequence[Document]):
    """The documents of a database in the order of the text, each read when it is needed."""

    def __init__(self, database: Database) -> None:
        self._fetch = database.fetch
        ((self._count,),) = self._fetch("SELECT count(*) FROM documents")

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        chosen = range(self._count)[index]
        if isinstance(chosen, range):
            return [self[i] for i in chosen]
        query = "SELECT line, subject, text FROM documents WHERE id = ?"
        return Document(*self._fetch(query, chosen)[0])

    def __iter__(self) -> Iterator[Document]:
        query = "SELECT line, subject, text FROM documents WHERE id >= ? ORDER BY id LIMIT ?"
        for first in range(0, self._count, ROWS_AT_ONCE):
            for row in self._fetch(query, first, ROWS_AT_ONCE):
                yield Document(*row)


class Database(AbstractContextManager["Database"]):
    """The documents of a text and what they state; threads may share it.

    source: the file of the text. file: the SQLite file, None for a temporary one.
    """

    def __init__(self, source: str | Path = "", source_sha256: str = "") -> None:
        """A new database without documents, in a temporary file that SQLite deletes."""
        self.source, self.source_sha256 = Path(source), source_sha256
        self.file: Path | None = None
        self._lock = threading.RLock()
        self._connect("")
        self._connection.execute("PRAGMA journal_mode=OFF").fetchall()
        self._connection.execute("PRAGMA synchronous=OFF")
        self._connection.executescript(SCHEMA)
        self.documents: Sequence[Document] = DocumentTable(self)

    @classmethod
    def of(
        cls, documents: Iterable[Document], source: str | Path = "", source_sha256: str = ""
    ) -> Database:
        """A new database with these documents."""
        database = cls(source, source_sha256)
        database._add_documents(documents)
        return database

    @classmethod
    def open(cls, file: str | Path) -> Database:
        """The database in a run folder; a file that is missing or not whole is a UserError."""
        database = cls.__new__(cls)
        database.file = Path(file)
        database._lock = threading.RLock()
        if not database.file.is_file():
            raise UserError(
                f"there is no database at {file}; it is made from the text that the run learned."
            )
        database._connect(f"{database.file.resolve().as_uri()}?mode=rw")
        try:
            about = database.about
            if about.get("format") != str(FORMAT):
                raise database._broken("it is not a database of this version of Wherefrom")
            ((pages,),) = database.fetch("PRAGMA page_count")
            ((page_bytes,),) = database.fetch("PRAGMA page_size")
            if pages * page_bytes != database.file.stat().st_size:
                raise database._broken("it was not written to its end")
        except BaseException:
            database.close()
            raise
        database.source = Path(about["source"])
        database.source_sha256 = about["source_sha256"]
        database.documents = DocumentTable(database)
        return database

    def reopen(self) -> Database:
        """The same saved database once more, to be closed by itself."""
        assert self.file is not None, "a temporary database has no file"
        return Database.open(self.file)

    def __reduce__(self) -> tuple[Callable[[Path], Database], tuple[Path]]:
        """Another process opens the same file."""
        assert self.file is not None, "a temporary database belongs to one process"
        return Database.open, (self.file,)

    # ---- documents

    def select(self, keep: Callable[[Document], bool]) -> Database:
        """A new database with the documents for which `keep` is true, and no facts."""
        return Database.of(filter(keep, self.documents), self.source, self.source_sha256)

    def without(self, subjects: Collection[str]) -> Database:
        """A new database without the documents about these subjects, or this one if none is."""
        gone = set(subjects)
        return self.select(lambda document: document.subject not in gone) if gone else self

    def _add_documents(self, documents: Iterable[Document]) -> None:
        add_subject = "INSERT OR IGNORE INTO subjects(name) VALUES (?)"
        add_document = (
            "INSERT INTO documents(id, line, subject, text, subject_id) "
            "VALUES (?, ?, ?, ?, (SELECT id FROM subjects WHERE name = ?))"
        )
        for part in _in_batches(enumerate(documents)):
            rows = []
            for i, document in part:
                subject, text = _encodable(document.subject), _encodable(document.text)
                rows.append((i, document.line, subject, text, " ".join(fold_words(subject))))
            self._insert(add_subject, ((row[-1],) for row in rows if row[-1]))
            self._insert(add_document, rows)
        self._write("CREATE INDEX documents_by_subject ON documents(subject_id)")
        self.documents = DocumentTable(self)

    # ---- subjects

    @property
    def subject_count(self) -> int:
        return int(self.fetch("SELECT count(*) FROM subjects")[0][0])

    def subject_id(self, name: FoldedName) -> int:
        """The number of a subject, 1, 2, ... in the order of the text; 0 if no document is about
        it."""
        rows = self.fetch("SELECT id FROM subjects WHERE name = ?", " ".join(name))
        return rows[0][0] if rows else 0

    def subject_of(self, document: int) -> int:
        """The number of the subject that a document is about, 0 for none."""
        query = "SELECT coalesce(subject_id, 0) FROM documents WHERE id = ?"
        return int(self.fetch(query, document)[0][0])

    def documents_of(self, subject_id: int) -> list[int]:
        """The indices of the documents about a subject, by its number."""
        query = "SELECT id FROM documents WHERE subject_id = ? ORDER BY id"
        return [i for (i,) in self.fetch(query, subject_id)]

    def documents_about(self, name: FoldedName) -> list[int]:
        """The indices of the documents about a subject, by its name."""
        return self.documents_of(self.subject_id(name)) if name else []

    def documents_on(self, lines: Collection[int]) -> list[int]:
        """The indices of the documents on some lines of the text."""
        query = "SELECT id FROM documents WHERE line IN (SELECT value FROM json_each(?))"
        return [i for (i,) in self.fetch(query, json.dumps(sorted(lines)))] if lines else []

    def spell(self, subject_id: int) -> str:
        """A subject as the last document about it spells it."""
        query = "SELECT subject FROM documents WHERE subject_id = ? ORDER BY id DESC LIMIT 1"
        return str(self.fetch(query, subject_id)[0][0])

    def spell_names(self, names: Iterable[str]) -> dict[FoldedName, str]:
        """Which of the names are subjects: folded words -> the documents' spelling.

        Of several spellings the given one, if there is one, else the first.
        """
        given = {name: " ".join(fold_words(name)) for name in names}
        query = (
            "SELECT name, subject FROM subjects JOIN documents ON subject_id = subjects.id "
            "WHERE name IN (SELECT value FROM json_each(?)) ORDER BY documents.id DESC"
        )
        rows = self.fetch(query, json.dumps(sorted(set(given.values()))))
        rows.sort(key=lambda row: row[1] in given)  # what comes last wins
        return {tuple(words.split()): subject for words, subject in rows if words}

    def spellings(self) -> dict[FoldedName, str]:
        """All subjects in the order of the text, as the last document about each spells it."""
        query = (
            "SELECT name, subject, max(documents.id) FROM subjects JOIN documents "
            "ON subject_id = subjects.id GROUP BY subjects.id ORDER BY subjects.id"
        )
        return {tuple(name.split(" ")): subject for name, subject, _ in self.fetch(query)}

    def by_subject(self) -> Iterator[tuple[int, list[tuple[int, Document]]]]:
        """Each subject's number with its documents and their indices, in the order of numbers."""
        query = (
            "SELECT subject_id, id, line, subject, text FROM documents "
            "WHERE subject_id > ? AND subject_id <= ? ORDER BY subject_id, id"
        )
        for first in range(0, self.subject_count, ROWS_AT_ONCE):
            rows = self.fetch(query, first, first + ROWS_AT_ONCE)
            for number, about in groupby(rows, lambda row: row[0]):
                yield number, [(row[1], Document(*row[2:])) for row in about]

    # ---- facts

    def start_facts(self, questions_sha256: str) -> None:
        """Remove all facts; new ones will be those of the training questions with this hash."""
        self._write("DELETE FROM facts")
        self._write("DELETE FROM relations")
        self._write("DELETE FROM about WHERE key = 'questions_sha256'")
        row = ("questions_sha256", questions_sha256)
        self._insert("INSERT INTO about(key, value) VALUES (?, ?)", [row])

    def add_facts(self, facts: Iterable[Fact]) -> None:
        self._insert("INSERT INTO facts VALUES (?, ?, ?, ?, ?, ?, ?)", facts)

    def add_relation(self, relation_id: int, relation: AskedRelation) -> None:
        template, asked, found, missing, same_as, kind, check = relation
        row = (relation_id, template, asked, found, json.dumps(missing), same_as, kind)
        marks = ", ".join("?" * (len(row) + 1))
        self._insert(f"INSERT INTO relations VALUES ({marks})", [(*row, json.dumps(check))])

    def set_same(self, relation_id: int, other_id: int) -> None:
        """Give a relation the facts of another one, which it words differently."""
        template = "(SELECT template FROM relations WHERE id = ?)"
        self._write(
            f"UPDATE relations SET same_as = {template} WHERE id = ?", other_id, relation_id
        )
        self._write("DELETE FROM facts WHERE relation_id = ?", relation_id)
        columns = "subject_id, answer, probability, document_id, start, end"
        self._write(
            f"INSERT INTO facts SELECT ?, {columns} FROM facts WHERE relation_id = ? "
            "ORDER BY rowid",
            relation_id,
            other_id,
        )

    def relations(self) -> list[AskedRelation]:
        """The relations of the training questions, in the order of first appearance."""
        query = (
            "SELECT template, asked, found, missing, same_as, kind, reading_check "
            "FROM relations ORDER BY id"
        )
        relations = []
        for template, asked, found, missing, same_as, kind, checked in self.fetch(query):
            check = None
            if (values := json.loads(checked)) is not None:
                check = ReadingCheck(**dict(zip(ReadingCheck._fields, values, strict=True)))
                pairs = tuple((answer, said) for answer, said in check.mistakes)
                check = check._replace(mistakes=pairs)
            relation = AskedRelation(template, asked, found, tuple(json.loads(missing)))
            relations.append(relation._replace(same_as=same_as, kind=kind, check=check))
        return relations

    def stated_subjects(self) -> list[tuple[str, int]]:
        """The template and the subject's number of all that is stated, in this order."""
        query = (
            "SELECT DISTINCT template, relation_id, subject_id FROM facts "
            "JOIN relations ON relation_id = relations.id ORDER BY relation_id, subject_id"
        )
        return [(template, number) for template, _, number in self.fetch(query)]

    def extracted(self, template: str, name: FoldedName) -> list[ExtractedAnswer]:
        """What documents about a subject state for a relation, the most likely answer first."""
        query = (
            "SELECT answer, probability, document_id, start, end FROM facts "
            "WHERE relation_id = (SELECT id FROM relations WHERE template = ?) "
            "AND subject_id = (SELECT id FROM subjects WHERE name = ?) ORDER BY rowid"
        )
        return _group_answers(self.fetch(query, template, " ".join(name)))

    def all_extracted(self, template: str) -> Iterator[tuple[int, list[ExtractedAnswer]]]:
        """The same for every subject that has facts, with its number."""
        query = (
            "SELECT subject_id, answer, probability, document_id, start, end FROM facts "
            "WHERE relation_id = (SELECT id FROM relations WHERE template = ?) "
            "AND subject_id > ? AND subject_id <= ? ORDER BY subject_id, facts.rowid"
        )
        for first in range(0, self.subject_count, ROWS_AT_ONCE):
            rows = self.fetch(query, template, first, first + ROWS_AT_ONCE)
            for number, about in groupby(rows, lambda row: row[0]):
                yield number, _group_answers(row[1:] for row in about)

    # ---- questions

    def write_questions(self, roles: Collection[str], rows: Iterable[tuple[Any, ...]]) -> None:
        """Replace the questions of these roles, all or none; a row has the columns but the id."""
        row_of_roles = [(role,) for role in roles]
        with self._changing() as connection:
            connection.executemany("DELETE FROM questions WHERE role = ?", row_of_roles)
            connection.executemany(
                "INSERT INTO questions(role, seen, source, subject, question, answer, template) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                rows,
            )
            connection.executemany(
                "INSERT OR REPLACE INTO about(key, value) VALUES (?, 'written')",
                [(WRITTEN + role,) for role in roles],
            )

    def questions(self, roles: Collection[str]) -> list[tuple[Any, ...]] | None:
        """The questions of these roles, without their ids; None if they were never written."""
        if any(WRITTEN + role not in self.about for role in roles):
            return None
        query = (
            "SELECT role, seen, source, subject, question, answer, template FROM questions "
            "WHERE role IN (SELECT value FROM json_each(?)) ORDER BY id"
        )
        return self.fetch(query, json.dumps(sorted(roles)))

    # ---- answers

    def write_answers(
        self, rows: Iterable[Mapping[str, Any]], *, clear: Collection[str] = ()
    ) -> None:
        """Write answers, all or none; columns that a row does not have stay as they are.

        A row is that of its `question` and `answered_by`. New columns are added, for signals.
        clear: columns that are emptied first, in all rows. A row stays if it has a line, a verdict
        or a record.
        """
        rows = list(rows)
        with self._changing() as connection:
            for name in sorted({name for row in rows for name in row}.difference(self.columns)):
                connection.execute(f"ALTER TABLE answers ADD COLUMN {_quote(name)} REAL")
            for name in clear:
                connection.execute(f"UPDATE answers SET {_quote(name)} = NULL")
            for row in rows:
                names = ", ".join(map(_quote, row))
                values = ", ".join("?" * len(row))
                update = ", ".join(f"{_quote(name)} = excluded.{_quote(name)}" for name in row)
                connection.execute(
                    f"INSERT INTO answers({names}) VALUES ({values}) "
                    f"ON CONFLICT(question, answered_by) DO UPDATE SET {update}",
                    tuple(row.values()),
                )
            connection.execute(
                "DELETE FROM answers WHERE line IS NULL AND verdict IS NULL AND record IS NULL"
            )

    def answers(self, having: str = "question") -> list[dict[str, Any]]:
        """The answers that have something in this column, with all columns."""
        columns = self.columns
        rows = self.fetch(f"SELECT * FROM answers WHERE {_quote(having)} IS NOT NULL ORDER BY id")
        return [dict(zip(columns, row, strict=True)) for row in rows]

    @property
    def columns(self) -> list[str]:
        """The columns of the table of answers."""
        return [name for _, name, *_ in self.fetch("PRAGMA table_info(answers)")]

    # ---- the file

    @property
    def about(self) -> dict[str, str]:
        """What the database was made from."""
        return dict(self.fetch("SELECT key, value FROM about"))

    @property
    def documents_sha256(self) -> str | None:
        """The hash of the texts, None if there are none."""
        return digest_of(document.text for document in self.documents)

    def save(self, file: str | Path) -> None:
        """Write a temporary database to `file`, whole or not at all, and read it there from now on.

        A file that was made from the same text and questions stays as it is; of another one the
        tables of questions and answers are kept.
        """
        file = Path(file)
        if self.file is not None:
            return
        about = self.about
        about |= {
            "format": str(FORMAT),
            "source": str(self.source),
            "source_sha256": self.source_sha256,
        }
        about |= {"documents": str(len(self.documents))}
        about["documents_sha256"] = self.documents_sha256 or ""
        about.setdefault("questions_sha256", "")
        if not self._is_saved(file, about):
            self._insert("INSERT OR REPLACE INTO about(key, value) VALUES (?, ?)", about.items())
            self._add_search()
            self._keep_asked(file)
            self._replace(file)
        self.close()
        self.__dict__.update(Database.open(file).__dict__)

    def _is_saved(self, file: Path, about: dict[str, str]) -> bool:
        """Whether the file is the database of the same text and questions."""
        with suppress(UserError), Database.open(file) as saved:
            before = saved.about
            return all(before.get(key) == about[key] for key in about if key != "source")
        return False

    def _keep_asked(self, file: Path) -> None:
        """Take over questions and answers of the file that this database is about to replace."""
        with suppress(UserError), Database.open(file) as before:
            roles = [key[len(WRITTEN) :] for key in before.about if key.startswith(WRITTEN)]
            self.write_questions(roles, before.questions(roles) or ())
            self.write_answers(before.answers())

    def _add_search(self) -> None:
        """The full-text index of the folded words behind each subject."""
        self._script(SEARCH)
        add = "INSERT INTO documents_search(rowid, words) VALUES (?, ?)"
        for part in _in_batches(enumerate(self.documents)):
            bodies = ((i, fold_words(d.text[len(d.subject) :])) for i, d in part)
            self._insert(add, [(i, " ".join(words)) for i, words in bodies])
        self._write("INSERT INTO documents_search(documents_search) VALUES ('optimize')")
        names = (name.split(" ") for (name,) in self.fetch("SELECT name FROM subjects"))
        words = sorted({word for name in names for word in name})
        self._insert("INSERT INTO name_words(word) VALUES (?)", ((word,) for word in words))

    def copy_to(self, file: Path) -> None:
        """Write a copy to a new file."""
        with closing(sqlite3.connect(file, isolation_level=None)) as copy, self._lock:
            copy.execute("PRAGMA synchronous=OFF")
            self._connection.backup(copy)
        with file.open("rb") as written:
            os.fsync(written.fileno())

    def _replace(self, file: Path) -> None:
        """Write a copy in the place of `file`, whole or not at all."""
        temporary = file.parent / f".{file.name}.{secrets.token_hex(8)}"
        try:
            self.copy_to(temporary)
            os.replace(temporary, file)
            sync_folder(file.parent)
        except (OSError, sqlite3.Error) as problem:
            why = problem.strerror if isinstance(problem, OSError) else problem
            raise UserError(
                f"the database {file} cannot be written: {why}; what was there before is unchanged."
            ) from None
        finally:
            temporary.unlink(missing_ok=True)

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def fetch(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        try:
            with self._lock:
                return self._connection.execute(query, values).fetchall()
        except sqlite3.Error as problem:
            raise self._broken(problem) from None

    def _connect(self, address: str) -> None:
        self._connection = sqlite3.connect(
            address, uri=True, check_same_thread=False, isolation_level=None
        )

    def _write(self, statement: str, *values: Any) -> None:
        self._try(lambda: self._connection.execute(statement, values))

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        """A transaction on a temporary or a saved database."""
        try:
            with self._lock, self._connection:
                self._connection.execute("BEGIN IMMEDIATE")
                yield self._connection
        except sqlite3.Error as problem:
            raise UserError(
                f"the database {self.file} cannot be written: {problem}; what was there before is "
                "unchanged."
            ) from None

    def _script(self, statements: str) -> None:
        self._try(lambda: self._connection.executescript(statements))

    def _insert(self, statement: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Insert rows into the temporary database in one transaction."""

        def insert() -> None:
            self._connection.execute("BEGIN")
            self._connection.executemany(statement, rows)
            self._connection.execute("COMMIT")

        self._try(insert)

    def _try(self, write: Callable[[], object]) -> None:
        assert self.file is None, "a saved database is only read"
        try:
            with self._lock:
                write()
        except sqlite3.Error as problem:
            raise UserError(
                f"the folder of temporary files ({tempfile.gettempdir()}) cannot be written: "
                f"{problem}; name another one in TMPDIR."
            ) from None

    def _broken(self, why: object) -> UserError:
        return UserError(
            f"the database {self.file or 'in a temporary file'} cannot be used: {why}; it is made "
            "again from the text if it is deleted."
        )


def _in_batches(items: Iterable[T]) -> Iterator[list[T]]:
    """Consecutive items, ROWS_AT_ONCE in each list."""
    iterator = iter(items)
    while batch := list(islice(iterator, ROWS_AT_ONCE)):
        yield batch


def _quote(name: str) -> str:
    """The name of a column in a statement."""
    return '"' + name.replace('"', '""') + '"'


def _encodable(text: str) -> str:
    """The text; half a surrogate pair, which only JSON can hold, becomes a question mark."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _group_answers(rows: Iterable[tuple[Any, ...]]) -> list[ExtractedAnswer]:
    """Rows of answer, probability, document, start and end, by answer."""
    answers = []
    for text, group in groupby(rows, lambda row: row[0]):
        same = list(group)
        probability = fsum(row[1] for row in same)
        spans, chances = tuple(row[2:] for row in same), tuple(row[1] for row in same)
        answers.append(ExtractedAnswer(text, probability, spans, chances))
    return answers


def read_documents(path: str | Path) -> Database:
    """Read a text; a line that does not start with its subject is an error with its number."""
    is_table = all("\t" in line for _, line in read_lines(path, "corpus"))
    database = Database.of(_parse_lines(path, is_table), path, hash_file(path))
    asking = sum(document.subject.endswith(QUESTION_MARKS) for document in database.documents)
    if is_table and asking > len(database.documents) / 2:
        raise UserError(
            f"{path}, line {database.documents[0].line}: these are questions; a corpus has a "
            "subject and a text on each line."
        )
    return database


def _parse_lines(path: str | Path, is_table: bool) -> Iterator[Document]:
    """The documents of a file whose lines are `subject TAB text` or `Name. text`."""
    for number, line in read_lines(path, "corpus"):
        if is_table:
            subject, _, body = line.partition("\t")
            subject, text = subject.strip(), " ".join(body.split())
            text = f"{subject}. {text}" if subject else text
        else:
            text = line.lstrip()
            subject = find_subject(text) or ""
            if not subject:
                raise UserError(
                    f'{path}, line {number}: a document is "Name. text" on one line; '
                    f'no full stop and space ends a name in "{text[:40]}".'
                )
            if text[len(subject)] != ".":  # the full stop of another script
                text = f"{subject}. {text[len(subject) + 1 :].lstrip()}"
        check_length(text, f"{path}, line {number}")
        yield Document(number, subject, text)
