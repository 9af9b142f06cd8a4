"""The file behind the evidence: made in one step, and known by the text that it was made from.

SQLite holds the documents, who they are about, and two full-text tables (FTS5): the words of the
documents with their neighbours in pairs, so that a full name is looked up in one step however
common its words are, and the trigrams of the names. The words are folded before they get there;
the tokenizer only cuts at spaces.

A file appears under its name when it is whole. Its last entry is the hash of the corpus, and its
length is checked when it is opened, so a half-written or cut file is never searched.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path

from wherefrom.corpus.documents import Corpus, Document
from wherefrom.errors import UserError
from wherefrom.provenance.folding import fold_words, trigrams
from wherefrom.provenance.namesakes import word_term

FORMAT = 1
APPLICATION = 0x57464556  # "WFEV", in SQLite's header
_FTS = "fts5(terms, content='', detail='none', columnsize=0, tokenize=\"ascii tokenchars '_'\")"
_TABLES = f"""
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE names(id INTEGER PRIMARY KEY, words TEXT NOT NULL UNIQUE);
CREATE TABLE name_words(id INTEGER PRIMARY KEY, word TEXT NOT NULL UNIQUE);
CREATE TABLE gram_counts(
    gram TEXT PRIMARY KEY, names INTEGER NOT NULL, words INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE documents(
    id INTEGER PRIMARY KEY, line INTEGER NOT NULL, name INTEGER NOT NULL,
    head_length INTEGER NOT NULL, text TEXT NOT NULL);
CREATE VIRTUAL TABLE bodies USING {_FTS};
CREATE VIRTUAL TABLE name_grams USING {_FTS};
CREATE VIRTUAL TABLE word_grams USING {_FTS};
"""


def build_evidence(corpus: Corpus, path: str | Path) -> None:
    """Write the index of a corpus to `path`; until it is whole, what was there stays."""
    path = Path(path)
    temporary = path.parent / f".{path.name}.{secrets.token_hex(8)}"
    try:
        try:
            with closing(sqlite3.connect(temporary, isolation_level=None)) as database:
                _fill(database, corpus)
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


def connect(path: Path) -> sqlite3.Connection:
    """A read-only connection to a whole index, or a sentence about what is wrong with it."""
    if not path.is_file():
        raise UserError(
            f"there is no evidence at {path}; it is made from the corpus that the run was "
            "trained on."
        )
    try:
        database = sqlite3.connect(
            f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True, check_same_thread=False
        )
    except sqlite3.Error as problem:
        raise broken(path, problem) from None
    try:
        pages, size, application, version = (
            database.execute(f"PRAGMA {field}").fetchone()[0]
            for field in ("page_count", "page_size", "application_id", "user_version")
        )
        if application != APPLICATION:
            raise broken(path, "it is not an index of Wherefrom")
        if version != FORMAT:
            raise broken(path, f"its format is {version} and this version reads {FORMAT}")
        if pages * size != path.stat().st_size or "corpus_sha256" not in read_meta(database):
            raise broken(path, "it was not written to its end")
    except sqlite3.Error as problem:
        database.close()
        raise broken(path, problem) from None
    except BaseException:
        database.close()
        raise
    return database


def read_meta(database: sqlite3.Connection) -> dict[str, str]:
    """What the index says of itself."""
    return dict(database.execute("SELECT key, value FROM meta"))


def broken(path: Path, why: object) -> UserError:
    return UserError(f"the evidence {path} cannot be used: {why}; build it again from the corpus.")


def hash_documents(documents: Iterable[Document]) -> str:
    """The hash of the lines themselves: a corpus with people left out keeps its file's hash."""
    digest = hashlib.sha256()
    for document in documents:
        digest.update(f"{document.line}\t{document.text}\n".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def body_terms(words: tuple[str, ...]) -> list[str]:
    """What a body is found by: its words, and its neighbours in pairs."""
    return [*words, *(f"{a}_{b}" for a, b in pairwise(words))]


def _fill(database: sqlite3.Connection, corpus: Corpus) -> None:
    database.execute("PRAGMA journal_mode=OFF").fetchall()
    database.execute("PRAGMA synchronous=OFF")
    database.execute(f"PRAGMA application_id={APPLICATION}")
    database.execute(f"PRAGMA user_version={FORMAT}")
    database.executescript(_TABLES)
    database.execute("BEGIN")
    names: dict[tuple[str, ...], int] = {}
    for document in corpus.documents:
        names.setdefault(fold_words(document.subject), len(names) + 1)
    _fill_names(database, names)
    database.executemany(
        "INSERT INTO documents VALUES (?, ?, ?, ?, ?)",
        (
            (at, d.line, names[fold_words(d.subject)], len(d.subject), d.text)
            for at, d in enumerate(corpus.documents, start=1)
        ),
    )
    database.execute("CREATE INDEX documents_by_name ON documents(name)")
    database.executemany("INSERT INTO bodies(rowid, terms) VALUES (?, ?)", _bodies(corpus))
    for table in ("bodies", "name_grams", "word_grams"):
        database.execute(f"INSERT INTO {table}({table}) VALUES ('optimize')")
    facts = {
        "format": str(FORMAT),
        "documents": str(len(corpus.documents)),
        "documents_sha256": hash_documents(corpus.documents),
        "corpus_sha256": corpus.sha256,
    }
    database.executemany("INSERT INTO meta VALUES (?, ?)", facts.items())
    database.execute("COMMIT")


def _bodies(corpus: Corpus) -> Iterator[tuple[int, str]]:
    for at, document in enumerate(corpus.documents, start=1):
        words = fold_words(document.text[len(document.subject) :])
        yield at, " ".join(dict.fromkeys(body_terms(words)))


def _fill_names(database: sqlite3.Connection, names: dict[tuple[str, ...], int]) -> None:
    database.executemany(
        "INSERT INTO names VALUES (?, ?)", ((at, " ".join(words)) for words, at in names.items())
    )
    parts = sorted({word for words in names for word in words})
    database.executemany("INSERT INTO name_words VALUES (?, ?)", enumerate(parts, start=1))
    in_names: Counter[str] = Counter()
    in_words: Counter[str] = Counter()
    for words, at in names.items():
        found = trigrams(words)
        in_names.update(found)
        terms = " ".join([*found, *map(word_term, words)])
        database.execute("INSERT INTO name_grams(rowid, terms) VALUES (?, ?)", (at, terms))
    for at, word in enumerate(parts, start=1):
        found = trigrams([word])
        in_words.update(found)
        terms = " ".join(found)
        database.execute("INSERT INTO word_grams(rowid, terms) VALUES (?, ?)", (at, terms))
    database.executemany(
        "INSERT INTO gram_counts VALUES (?, ?, ?)",
        ((gram, in_names[gram], in_words[gram]) for gram in sorted(in_names)),
    )
