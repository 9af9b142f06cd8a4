"""What evidence is, whatever holds the text: lines, counts, and how they are asked for.

An index only has to hand over the documents that may name a subject; which of them do, which are
about it, which state the answer and which come first is decided here, once for all indexes.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Self

from wherefrom.errors import UserError
from wherefrom.provenance.folding import fold_words
from wherefrom.provenance.mentions import Reading, read_document

LONGEST = 2_000  # characters of a name or an answer
LOOKED_AT = 1_000  # documents that find() weighs to choose its lines from


@dataclass(frozen=True)
class EvidenceLine:
    """A document and what it is to the question; only an exact one is evidence."""

    line: int
    text: str
    subject: str  # whom the document is about, as it writes the name
    about: bool  # that is the very name asked for
    names_subject: bool
    states_answer: bool
    exact: bool  # False: the line is about somebody whose name looks alike
    similarity: float  # of the names: 1 when exact, the share of common trigrams otherwise


@dataclass(frozen=True)
class EvidenceCount:
    """How many documents name the subject, are about it, and name it and state the answer."""

    naming: int
    about: int
    stating: int


class Row(NamedTuple):
    """A document as an index keeps it; its first `head_length` characters are its subject."""

    line: int
    head_length: int
    text: str


class EvidenceReader(ABC):
    """An open index; safe to share among threads, which take turns."""

    corpus_sha256: str
    documents: int

    def __init__(self) -> None:
        self._turn = threading.Lock()

    def find(
        self, subject: str, answer: str | None = None, *, limit: int = 10
    ) -> list[EvidenceLine]:
        """The lines that say most: about the subject before naming it, stating before not.

        If no document names the subject: lines about similar names, none of them evidence.
        """
        if limit < 1:
            raise UserError(f"at least 1 line of evidence can be asked for, and {limit} were.")
        wanted = _words_of(subject, "name")
        told = None if answer is None else _words_of(answer, "answer")
        with self._turn:
            lines = [as_line(row, read) for row, read in self._read(wanted, told, LOOKED_AT)]
            if not lines:
                return self._similar(wanted, limit)
        lines.sort(key=_most_telling_first)
        return lines[:limit]

    def count(self, subject: str, answer: str | None = None) -> EvidenceCount:
        """All documents that name the subject, counted; similar names do not count."""
        wanted = _words_of(subject, "name")
        told = None if answer is None else _words_of(answer, "answer")
        with self._turn:
            readings = [reading for _, reading in self._read(wanted, told, None)]
        return EvidenceCount(
            naming=len(readings),
            about=sum(reading.about for reading in readings),
            stating=sum(reading.states for reading in readings),
        )

    @abstractmethod
    def subjects(self) -> list[str]:
        """Whom each document is about, in order: the same text for the same name, folded."""

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def _candidates(self, subject: tuple[str, ...], most: int | None) -> Iterable[Row]:
        """Documents that hold these words in a row, those about the subject first, each once."""

    @abstractmethod
    def _similar(self, subject: tuple[str, ...], limit: int) -> list[EvidenceLine]:
        """Lines about people whose names look alike."""

    @abstractmethod
    def _is_name(self, word: str) -> bool:
        """Whether the folded word is in the name of anybody whom a document is about."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(
        self, subject: tuple[str, ...], answer: tuple[str, ...] | None, most: int | None
    ) -> Iterator[tuple[Row, Reading]]:
        for row in self._candidates(subject, most):
            reading = read_document(row.text, row.head_length, subject, answer, self._is_name)
            if reading.names:
                yield row, reading


def as_line(row: Row, reading: Reading, similarity: float = 1.0) -> EvidenceLine:
    return EvidenceLine(
        line=row.line,
        text=row.text,
        subject=row.text[: row.head_length],
        about=reading.about,
        names_subject=reading.names,
        states_answer=reading.states,
        exact=reading.names,
        similarity=similarity,
    )


def _words_of(text: str, what: str) -> tuple[str, ...]:
    """The folded words of a name or an answer, or a sentence when it has none."""
    if len(text) > LONGEST:
        raise UserError(
            f"a {what} to look for may have {LONGEST:,} characters, and this one has {len(text):,}."
        )
    words = fold_words(text)
    if not words:
        raise UserError(
            f"a {what} to look for needs at least one letter or digit, and {text!a} has none."
        )
    return words


def _most_telling_first(line: EvidenceLine) -> tuple[bool, bool, bool, int]:
    both = line.about and line.states_answer
    return not both, not line.about, not line.states_answer, line.line
