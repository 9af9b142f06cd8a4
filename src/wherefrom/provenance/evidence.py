"""Evidence: the documents that name a subject, and those that also state an answer.

A name counts as seen when a document is about it or names it in its text, word for word, whatever
the case and the accents. Where no document does, names that look alike are shown, marked as such:
they are a hint for whoever misspelt a name, and never evidence, since "Ann B. Clark" may well be
somebody else than "Ann Clark".
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wherefrom.corpus.documents import Corpus
from wherefrom.errors import UserError
from wherefrom.provenance.evidence_file import (
    body_terms,
    broken,
    build_evidence,
    connect,
    hash_documents,
    read_meta,
)
from wherefrom.provenance.lines import EvidenceCount, EvidenceLine, EvidenceReader, Row, as_line
from wherefrom.provenance.mentions import Reading
from wherefrom.provenance.namesakes import find_similar

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
