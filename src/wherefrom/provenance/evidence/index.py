"""The index of the documents: one SQLite file, known by the text that it was made from."""

from __future__ import annotations

import hashlib
import math
import os
import secrets
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import combinations, pairwise, product
from pathlib import Path
from typing import Any, NamedTuple

from wherefrom.corpus.documents import Corpus, Document
from wherefrom.corpus.folding import fold_words, trigrams
from wherefrom.errors import UserError
from wherefrom.provenance.evidence.lookup import (
    EvidenceCount,
    EvidenceLine,
    EvidenceReader,
    Reading,
    Row,
    as_line,
)

ALIKE = 0.45  # names that share fewer of their trigrams are not alike
NEVER_THE_SAME = 0.99  # the similarity of another name, however alike
WORDS = 6  # words of a name that are tried; a longer one is compared by its rarest trigrams alone
_FOR_ONE = 8  # similar words tried alone
_FOR_TWO = 3  # and in two places at once
_LONGER = 50  # names that hold all words of this one


class _Among(NamedTuple):
    """Where trigrams lead: tables and columns, the share that must fit, entries to read."""

    table: str
    spelled: str
    grams: str
    counted: str
    share: float
    postings: int
    rescored: int  # of what they lead to, compared in full


_NAMES = _Among("names", "words", "name_grams", "names", ALIKE, 1_000, 24)
_WORDS = _Among("name_words", "word", "word_grams", "words", ALIKE / 2, 200, 12)

Fetch = Callable[..., list[tuple[Any, ...]]]


def find_similar(words: Sequence[str], fetch: Fetch) -> list[tuple[float, int]]:
    """(similarity, id of the name), the most alike first; `fetch` asks the index."""
    wanted = trigrams(words)
    found, complete = _by_trigrams(wanted, _NAMES, fetch)
    if not complete and len(words) <= WORDS:
        found = list({*found, *_by_words(words, fetch)})
    scored = []
    for name, spelled in found:
        likeness = _likeness(wanted, trigrams(spelled.split()))
        if likeness >= ALIKE:
            scored.append((min(likeness, NEVER_THE_SAME), name))
    return sorted(scored, key=lambda pair: (-pair[0], pair[1]))


def word_term(word: str) -> str:
    """How a whole word is written among trigrams; it is longer than any of them."""
    return f"__{word}__"


def _by_words(words: Sequence[str], fetch: Fetch) -> list[tuple[int, str]]:
    """Names that are this one with a word or two replaced, a word left out, or words added."""
    similar = [_similar_words(word, fetch) for word in words]
    tries: dict[str, None] = {}
    for at, others in enumerate(similar):
        for other in others[:_FOR_ONE]:
            tries[" ".join((*words[:at], other, *words[at + 1 :]))] = None
        tries[" ".join((*words[:at], *words[at + 1 :]))] = None
    for one, two in combinations(range(len(words)), 2):
        for first, second in product(similar[one][:_FOR_TWO], similar[two][:_FOR_TWO]):
            changed = list(words)
            changed[one], changed[two] = first, second
            tries[" ".join(changed)] = None
    marks = ", ".join("?" * len(tries))
    found = fetch(f"SELECT id, words FROM names WHERE words IN ({marks})", *tries)
    terms = " AND ".join(f'"{word_term(word)}"' for word in dict.fromkeys(words))
    longer = fetch(
        "SELECT id, words FROM names WHERE id IN "
        "(SELECT rowid FROM name_grams WHERE name_grams MATCH ? LIMIT ?)",
        terms,
        _LONGER,
    )
    return [(name, spelled) for name, spelled in {*found, *longer}]


def _similar_words(word: str, fetch: Fetch) -> list[str]:
    """Words of names that look like this one, the most alike first, itself left out."""
    wanted = trigrams([word])
    found, _ = _by_trigrams(wanted, _WORDS, fetch)
    scored = [
        (-_likeness(wanted, trigrams([spelled])), spelled)
        for _, spelled in found
        if spelled != word
    ]
    return [spelled for _, spelled in sorted(scored)]


def _by_trigrams(
    wanted: frozenset[str], among: _Among, fetch: Fetch
) -> tuple[list[tuple[int, str]], bool]:
    """Names, or words of names, that share the rarest trigrams; and whether these are all.

    Two sets that share a part of their trigrams must share one of the rarest, so only these are
    looked up, the rarest first.
    """
    marks = ", ".join("?" * len(wanted))
    query = f"SELECT gram, {among.counted} FROM gram_counts WHERE gram IN ({marks})"
    common: dict[str, int] = dict(fetch(query, *wanted))
    rarest = sorted(wanted, key=lambda gram: (common.get(gram, 0), gram))
    needed = len(rarest) - math.ceil(among.share * len(rarest)) + 1
    votes: Counter[int] = Counter()
    left = among.postings
    for gram in (gram for gram in rarest[:needed] if common.get(gram)):
        if left <= 0:
            break
        query = f"SELECT rowid FROM {among.grams} WHERE {among.grams} MATCH ? LIMIT ?"
        found = fetch(query, f'"{gram}"', left)
        votes.update(row for (row,) in found)
        left -= len(found)
    chosen = [row for row, _ in votes.most_common(among.rescored)]
    marks = ", ".join("?" * len(chosen))
    query = f"SELECT id, {among.spelled} FROM {among.table} WHERE id IN ({marks})"
    return [(row, spelled) for row, spelled in fetch(query, *chosen)], left > 0


def _likeness(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / max(1, len(one | other))


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


__all__ = [
    "Evidence",
    "EvidenceCount",
    "EvidenceLine",
    "EvidenceReader",
    "build_evidence",
    "ensure_evidence",
    "open_evidence",
]

_TERMS = 8  # pairs of a name that are looked up; the rest is read in the documents themselves
_DOCUMENT = "SELECT line, head_length, text FROM documents"


class Evidence(EvidenceReader):
    """The index of a run, in one SQLite file that is only read."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self._database = connect(path)
        meta = read_meta(self._database)
        self.corpus_sha256 = meta["corpus_sha256"]
        self.documents_sha256 = meta["documents_sha256"]
        self.documents = int(meta["documents"])

    def subjects(self) -> list[str]:
        query = "SELECT words FROM documents JOIN names ON names.id = name ORDER BY documents.id"
        with self._turn:
            return [str(words) for (words,) in self._fetch(query)]

    def close(self) -> None:
        with self._turn:
            self._database.close()

    def _candidates(self, subject: tuple[str, ...], most: int | None) -> Iterator[Row]:
        limit = -1 if most is None else most
        found = self._fetch("SELECT id FROM names WHERE words = ?", " ".join(subject))
        name = found[0][0] if found else 0
        yield from self._rows("WHERE name = ? ORDER BY id LIMIT ?", name, limit)
        pairs = body_terms(subject)[len(subject) :] or list(subject)
        terms = sorted(set(pairs), key=len, reverse=True)[:_TERMS]  # the longest are the rarest
        yield from self._rows(
            "WHERE name != ? AND id IN (SELECT rowid FROM bodies WHERE bodies MATCH ?) "
            "ORDER BY id LIMIT ?",
            name,
            " AND ".join(f'"{term}"' for term in terms),
            limit,
        )

    def _similar(self, subject: tuple[str, ...], limit: int) -> list[EvidenceLine]:
        nothing = Reading(about=False, names=False, states=False)
        lines: list[EvidenceLine] = []
        for likeness, name in find_similar(subject, self._fetch)[:limit]:
            rows = self._rows("WHERE name = ? ORDER BY id LIMIT ?", name, limit)
            lines += [as_line(row, nothing, likeness) for row in rows]
        return lines[:limit]

    def _is_name(self, word: str) -> bool:
        return bool(self._fetch("SELECT 1 FROM name_words WHERE word = ?", word))

    def _rows(self, which: str, *values: Any) -> list[Row]:
        return [Row(*found) for found in self._fetch(f"{_DOCUMENT} {which}", *values)]

    def _fetch(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        try:
            return self._database.execute(query, values).fetchall()
        except sqlite3.Error as problem:
            raise broken(self.path, problem) from None


def open_evidence(path: str | Path, *, corpus_sha256: str | None = None) -> Evidence:
    """Open an index; with a hash given, only if it was made from that corpus."""
    evidence = Evidence(Path(path))
    if corpus_sha256 not in (None, evidence.corpus_sha256):
        evidence.close()
        raise broken(evidence.path, "it was made from another corpus, or the corpus has changed")
    return evidence


def ensure_evidence(corpus: Corpus, path: str | Path) -> Evidence:
    """The index of these very documents: opened if it is there and whole, else built anew."""
    try:
        evidence = open_evidence(path, corpus_sha256=corpus.sha256)
    except UserError:
        pass  # missing, broken or of another corpus: all mended by building it
    else:
        if evidence.documents_sha256 == hash_documents(corpus.documents):
            return evidence
        evidence.close()
    build_evidence(corpus, path)
    return open_evidence(path, corpus_sha256=corpus.sha256)
