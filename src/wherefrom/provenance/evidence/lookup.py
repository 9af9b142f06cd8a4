"""What documents say: whether one names a subject, and whether it states an answer."""

from __future__ import annotations

import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple, Self

from wherefrom.corpus.folding import Word, find_phrase, fold_words, is_unspaced, split_words
from wherefrom.errors import UserError

SUFFIXES = frozenset({"jr", "sr", "ii", "iii", "iv"})  # they make another person of a name
_JOINED = re.compile(r"[ \u00a0]|[ \u00a0]?[-\u2010\u2011'’][ \u00a0]?")
_INITIAL_GAP = re.compile(r"\.?[ \u00a0]?")
_SUFFIX_GAP = re.compile(r",?[ \u00a0]")
_SENTENCE_ENDS = re.compile(r"[.!?…。！？؟]")


@dataclass(frozen=True)
class Reading:
    """What a document is to a question."""

    about: bool  # its own subject has this name
    names: bool  # it is about the subject or names it in its text
    states: bool  # its text holds the answer, outside the subject's name


def read_document(
    text: str,
    head_length: int,
    subject: Sequence[str],
    answer: Sequence[str] | None,
    is_name: Callable[[str], bool],
) -> Reading:
    """Read a document whose first `head_length` characters are its own subject's name.

    `subject` and `answer` are folded words; `is_name` tells whether a folded word is part of the
    name of anybody whom the corpus has a document about.
    """
    about = tuple(word.folded for word in split_words(text[:head_length])) == tuple(subject)
    body = text[head_length:]
    words = split_words(body)
    folded = [word.folded for word in words]
    found = find_phrase(folded, subject)
    size = len(subject)
    names = about or any(not _is_longer(body, words, at, size, is_name) for at in found)
    states = False
    if names and answer:
        own = set(subject)
        states = any(
            not (own.issuperset(answer) and _is_self(body, words, at, len(answer), own))
            and not _is_new(body, words, at)
            for at in find_phrase(folded, answer)
        )
    return Reading(about=about, names=names, states=states)


def _is_longer(
    text: str, words: Sequence[Word], at: int, size: int, is_name: Callable[[str], bool]
) -> bool:
    """Whether the phrase is part of a longer name: "Mary Ann Clark", "Ann Clark Jr."."""
    if is_unspaced(words[at].folded):
        return False
    for near, side in ((at - 1, -1), (at + size, 1)):
        if not 0 <= near < len(words) or is_unspaced(words[near].folded):
            continue
        word = words[near]
        gap = _gap(text, words, min(near, at + size - 1 if side > 0 else near))
        if side > 0 and word.folded in SUFFIXES and _SUFFIX_GAP.fullmatch(gap):
            return True
        first = text[word.start]
        if first.islower() or not first.isalpha():
            continue
        if word.end - word.start == 1:  # an initial; behind a name it needs a mere space
            if (_INITIAL_GAP if side < 0 else _JOINED).fullmatch(gap):
                return True
        elif _JOINED.fullmatch(gap) and (gap.strip() in {"-", "‐", "‑"} or is_name(word.folded)):
            return True
    return False


def _is_self(text: str, words: Sequence[Word], at: int, size: int, own: set[str]) -> bool:
    """Whether a part of the subject's name stands for the subject: "London was born in ..."."""
    if at == 0 or _SENTENCE_ENDS.search(_gap(text, words, at - 1)):
        return True
    if words[at - 1].folded in own and _JOINED.fullmatch(_gap(text, words, at - 1)):
        return True
    behind = at + size
    return (
        behind < len(words)
        and words[behind].folded in own
        and _JOINED.fullmatch(_gap(text, words, behind - 1)) is not None
    )


def _is_new(text: str, words: Sequence[Word], at: int) -> bool:
    """ "New York", "New England": named after the place, and another one."""
    if at == 0 or words[at - 1].folded != "new":
        return False
    return text[words[at - 1].start].isupper() and _gap(text, words, at - 1) in {" ", "-"}


def _gap(text: str, words: Sequence[Word], at: int) -> str:
    """What stands between a word and the next."""
    return text[words[at].end : words[at + 1].start]


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


LINES = 3  # lines that are shown for an answer
_NAMESAKE_LINES = 5  # documents of one similar name, which must not hide the next name

Words = tuple[str, ...]
Phrases = dict[str, list[tuple[Words, str]]]  # first word -> known answers, the longest first


@dataclass(frozen=True)
class Support:
    """What the evidence says of one subject and one answer.

    seen: some document names the subject; states_answer: a line about the subject states the
    answer; states_other: one states another known answer and none states this. `lines` are the
    most telling, `others` the known answers that lines about the subject state instead, and
    `similar` lines about names that look alike, where nobody of this name is known.
    """

    seen: bool
    states_answer: bool
    states_other: bool
    lines: tuple[EvidenceLine, ...]
    similar: tuple[EvidenceLine, ...]
    others: tuple[str, ...] = ()


def find_support(
    evidence: EvidenceReader,
    subjects: Sequence[str],
    answers: Sequence[str],
    known_answers: Sequence[str],
    *,
    limit: int = LINES,
) -> list[Support]:
    """The support of each answer about each subject; `known_answers` are what else can be stated.

    An answer without a letter or digit is stated nowhere; a subject without one is refused.
    """
    known = _by_first_word(tuple(dict.fromkeys(known_answers)))
    return [
        _support(evidence, subject, answer, known, limit)
        for subject, answer in zip(subjects, answers, strict=True)
    ]


def _support(
    evidence: EvidenceReader, subject: str, answer: str, known: Phrases, limit: int
) -> Support:
    said = fold_words(answer)
    told = answer if said else None
    lines = evidence.find(subject, told, limit=limit * _NAMESAKE_LINES)
    if not lines or not lines[0].exact:
        similar = {line.subject: line for line in reversed(lines)}  # each name once
        best = sorted(similar.values(), key=lambda line: -line.similarity)[:limit]
        return Support(False, False, False, (), tuple(best))
    if any(line.about and line.states_answer for line in lines):
        # only a line about the subject states; the rest are shown as naming
        kept = (line if line.about else replace(line, states_answer=False) for line in lines)
        return Support(True, True, False, tuple(kept)[:limit], ())
    own = fold_words(subject)
    lines = evidence.find(subject, told, limit=LOOKED_AT)
    stated = {line.line: _stated(line, own, said, known) for line in lines if line.about}
    others = tuple(dict.fromkeys(place for places in stated.values() for place in places))
    lines.sort(key=lambda line: (not stated.get(line.line), not line.about, line.line))
    kept = (replace(line, states_answer=False) for line in lines[:limit])
    return Support(True, False, bool(others), tuple(kept), (), others)


def _stated(line: EvidenceLine, subject: Words, said: Words, known: Phrases) -> list[str]:
    """The known answers, but the one said, that a line about the subject states, as they stand."""
    head = len(line.subject)
    words = [word.folded for word in split_words(line.text[head:])]
    found: dict[str, None] = {}
    at = 0
    while at < len(words):
        step = 1
        for phrase, answer in known.get(words[at], ()):
            if tuple(words[at : at + len(phrase)]) == phrase:
                step = len(phrase)  # "San Francisco" is not Francisco too
                reading = read_document(line.text, head, subject, phrase, _nobody)
                if phrase != said and reading.states:
                    found[answer] = None
                break
        at += step
    return list(found)


def _nobody(_: str) -> bool:
    """Whether a word is part of a name: not asked for in a document about the subject."""
    return False


@lru_cache(maxsize=8)
def _by_first_word(known: tuple[str, ...]) -> Phrases:
    phrases: Phrases = {}
    for answer in known:
        words = fold_words(answer)
        if words:
            phrases.setdefault(words[0], []).append((words, answer))
    for entries in phrases.values():
        entries.sort(key=lambda entry: -len(entry[0]))
    return phrases
