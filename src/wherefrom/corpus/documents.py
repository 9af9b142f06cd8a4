"""Documents: one per line, `Name. text` or `subject TAB text`, so that each knows its subject.

Other forms of text are converted to the second one first (corpus/formats.py).
"""

from __future__ import annotations

import hashlib
import io
import re
from array import array
from bisect import bisect_left
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from wherefrom.corpus.folding import FoldedName, fold_words
from wherefrom.corpus.packed import Computed, RecordFile
from wherefrom.errors import UserError

# A full stop after one of these belongs to the name: "A. G. E. Blake. Anthony Blake was ..."
ABBREVIATIONS = frozenset({"Dr", "Jr", "Mr", "Mrs", "Ms", "Prof", "Sr", "St"})
LONGEST_DOCUMENT = 1_000_000
QUESTION_MARKS = ("?", "？", "؟")
STOPS = "。।።။។۔։"  # full stops that no space need follow
LONGEST_TAIL = 60  # characters of a name after an initial
LONGEST_PARTICLE = 3


@dataclass(frozen=True, slots=True)
class Document:
    """One line: its number, its subject ("" for none), and its text, which opens with that."""

    line: int
    subject: str
    text: str

    @property
    def body(self) -> str:
        """What follows the subject and its full stop."""
        return self.text[len(self.subject) + 2 :] if self.subject else self.text


class Documents(Sequence[Document]):
    """Documents whose text is in a temporary file; each is read from there when it is needed.

    Two objects with the same documents are equal and have the same hash, so that results can be
    cached by them.
    """

    def __init__(self, documents: Iterable[Document] = ()) -> None:
        self._texts = RecordFile(bytes)
        self._lines, self._subject_lengths = array("q"), array("i")
        for document in documents:
            self.add(document.line, len(document.subject), document.text)

    def add(self, line: int, subject_length: int, text: str) -> None:
        """Add a document whose subject is the first `subject_length` characters of its text.

        Half a surrogate pair, which only JSON can hold, becomes a question mark.
        """
        self._texts.append(text.encode("utf-8", "replace"))
        self._lines.append(line)
        self._subject_lengths.append(subject_length)

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(len(self))[index]]
        i = range(len(self))[index]
        return _unpack(self._texts[i], self._lines[i], self._subject_lengths[i])

    def __iter__(self) -> Iterator[Document]:
        return map(_unpack, self._texts, self._lines, self._subject_lengths)

    @cached_property
    def names(self) -> SubjectNames:
        """The subjects, by their folded names."""
        return SubjectNames(self)

    @cached_property
    def _digest(self) -> bytes:
        digest = hashlib.sha256()
        for document in self:
            digest.update(f"{document.line}\t{len(document.subject)}\t{document.text}\n".encode())
        return digest.digest()

    def __hash__(self) -> int:
        return hash(self._digest)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Documents) and self._digest == other._digest)


def _unpack(raw: bytes, line: int, subject_length: int) -> Document:
    text = raw.decode("utf-8")
    return Document(line, text[:subject_length], text)


class SubjectNames(Mapping[FoldedName, str]):
    """The subjects of documents by their folded names, numbered in the order of appearance.

    As a mapping it gives the spelling in the last document about a subject. of_document: the number
    of each document's subject, -1 for none. To save memory, only a 64-bit hash of each name is
    kept.
    """

    def __init__(self, documents: Sequence[Document]) -> None:
        self._documents = documents
        names = (fold_words(document.subject) for document in documents)
        hashes = np.fromiter(map(_hash_name, names), np.uint64)
        about = np.flatnonzero(hashes)
        keys, first, inverse = np.unique(hashes[about], return_index=True, return_inverse=True)
        self._keys = array("Q", keys.tobytes())
        self._numbers = np.argsort(np.argsort(first)).astype(np.int32)
        self.of_document = np.full(len(documents), -1, dtype=np.int32)
        self.of_document[about] = self._numbers[inverse]
        # indices of the documents about the first subject, then the second, ...
        order = np.argsort(self.of_document[about], kind="stable")
        self._places = about[order].astype(np.int32)
        self._starts = np.searchsorted(self.of_document[self._places], np.arange(len(keys) + 1))

    def number(self, name: FoldedName) -> int:
        """The number of a subject, -1 if no document is about it."""
        key = _hash_name(name)
        i = bisect_left(self._keys, key)
        return int(self._numbers[i]) if i < len(self._keys) and self._keys[i] == key else -1

    def places(self, number: int) -> list[int]:
        """The indices of the documents about a subject, by its number."""
        return self._places[self._starts[number] : self._starts[number + 1]].tolist()

    def about(self, name: FoldedName) -> list[int]:
        """The indices of the documents about a subject, by its name."""
        number = self.number(name)
        return self.places(number) if number >= 0 else []

    def spelling(self, number: int) -> str:
        """A subject as the last document about it spells it."""
        return self._documents[self.places(number)[-1]].subject

    def __getitem__(self, name: FoldedName) -> str:
        if (number := self.number(name)) < 0:
            raise KeyError(name)
        return self.spelling(number)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, tuple) and self.number(name) >= 0

    def __iter__(self) -> Iterator[FoldedName]:
        return (fold_words(self.spelling(number)) for number in range(len(self)))

    def __len__(self) -> int:
        return len(self._keys)


def _hash_name(name: FoldedName) -> int:
    """64 bits that stand for a folded name; 0 for no name."""
    digest = hashlib.blake2b("\0".join(name).encode("utf-8", "surrogatepass"), digest_size=8)
    return int.from_bytes(digest.digest(), "little") if name else 0


def names_of(documents: Sequence[Document]) -> SubjectNames:
    """The subjects of any documents."""
    return documents.names if isinstance(documents, Documents) else SubjectNames(documents)


def texts_of(documents: Sequence[Document]) -> Sequence[str]:
    """The texts of the documents, each read when it is needed."""
    return Computed(
        lambda i: documents[i].text, len(documents), lambda: (d.text for d in documents)
    )


@dataclass(frozen=True)
class Corpus:
    """The documents of one file, and the hash that says which file it was."""

    path: Path
    sha256: str
    documents: Sequence[Document]

    @property
    def texts(self) -> Sequence[str]:
        return texts_of(self.documents)

    @property
    def vocabulary(self) -> Sequence[str]:
        """What tokens are learned from: the texts, then the subjects."""
        documents, count = self.documents, len(self.documents)
        return Computed(
            lambda i: documents[i].text if i < count else documents[i - count].subject,
            2 * count,
            lambda: chain((d.text for d in documents), (d.subject for d in documents)),
        )

    def select(self, keep: Callable[[Document], bool]) -> Corpus:
        """The same corpus with the documents for which `keep` is true."""
        return replace(self, documents=Documents(filter(keep, self.documents)))

    def without(self, subjects: Collection[str]) -> Corpus:
        """The same corpus without all documents about these subjects."""
        gone = set(subjects)
        return self.select(lambda document: document.subject not in gone) if gone else self


def read_lines(path: str | Path, role: str) -> Iterator[tuple[int, str]]:
    """The non-blank lines of a file with their numbers.

    role: what the file is called in errors ("corpus", "questions").
    """
    number, is_empty, file = 0, True, f"the {role} {path}"
    try:
        with open(path, "rb", buffering=0) as raw:
            for number, line in number_lines(raw):
                if "\0" in line:
                    raise UserError(
                        f"{file}, line {number}: a NUL byte was found where text was expected; "
                        "save the file as UTF-8."
                    )
                if line.strip():
                    is_empty = False
                    yield number, line
    except FileNotFoundError:
        raise UserError(f"{file} does not exist; check the path.") from None
    except IsADirectoryError:
        raise UserError(f"{file} is a folder; a text file was expected.") from None
    except OSError as problem:
        raise UserError(f"{file} cannot be read: {problem.strerror}.") from None
    except UnicodeDecodeError as problem:
        line_number = number + problem.object[: problem.start].count(b"\n") + 1
        raise UserError(
            f"{file} is not UTF-8: line {line_number} holds the byte "
            f"0x{problem.object[problem.start]:02x}; save the file as UTF-8."
        ) from None
    if is_empty:
        raise UserError(f"{file} is empty; it needs at least one line of text.")


def hash_file(path: str | Path) -> str:
    """The SHA-256 of a file's bytes; "" for a pipe, which can be read only once."""
    if not Path(path).is_file():
        return ""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def number_lines(raw: Any) -> Iterator[tuple[int, str]]:
    """All lines of an unbuffered binary file with their numbers.

    It is UTF-8, or UTF-16 with a byte order mark, and has any line ends.
    """
    file = io.BufferedReader(raw)
    is_utf16 = file.peek(2)[:2] in (BOM_UTF16_LE, BOM_UTF16_BE)
    with io.TextIOWrapper(file, "utf-16" if is_utf16 else "utf-8-sig") as text:
        for number, line in enumerate(text, start=1):
            yield number, line.removesuffix("\n")


def read_documents(path: str | Path) -> Corpus:
    """Read a corpus; a line that does not start with its subject is an error with its number."""
    is_table = all("\t" in line for _, line in read_lines(path, "corpus"))
    documents = Documents()
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
        documents.add(number, len(subject), text)
    asking = sum(document.subject.endswith(QUESTION_MARKS) for document in documents)
    if is_table and asking > len(documents) / 2:
        raise UserError(
            f"{path}, line {documents[0].line}: these are questions; a corpus has a subject and a "
            "text on each line."
        )
    return Corpus(Path(path), hash_file(path), documents)


def as_table(documents: Iterable[Document]) -> Iterator[bytes]:
    """Documents as the lines of a file, `subject TAB text`."""
    return (f"{document.subject}\t{document.body}\n".encode() for document in documents)


def hash_table(documents: Iterable[Document]) -> str:
    """The SHA-256 of that file."""
    digest = hashlib.sha256()
    for line in as_table(documents):
        digest.update(line)
    return digest.hexdigest()


def check_length(text: str, where: str) -> None:
    """Refuse a document that is longer than any may be."""
    if len(text) > LONGEST_DOCUMENT:
        raise UserError(
            f"{where}: a document may have {LONGEST_DOCUMENT:,} characters and this one has "
            f"{len(text):,}; split it into several."
        )


def find_subject(line: str) -> str | None:
    """The name that a document starts with, or None if no name ends with a full stop and space
    (without the space in scripts that have none).

    The first full stop and space that do not follow an initial or an abbreviation end the name, or
    an earlier one when what follows reads like a sentence ("Malcolm X. He was born in Omaha.").
    """
    name = None
    for stop in re.finditer(rf"\.(?= )|[{STOPS}]", line):
        longer = line[: stop.start()]
        if not longer.strip():
            return None
        if name is not None:  # a name goes on with capitals and short particles ("van den Broek")
            added = longer[len(name) + 1 :]
            words = (w for w in re.findall(r"\w+", added) if len(w) > LONGEST_PARTICLE)
            if len(added) > LONGEST_TAIL or any(word[0].islower() for word in words):
                return name
        name = longer
        last_word = re.split(r"[ .]", name)[-1]
        if len(last_word) != 1 and last_word not in ABBREVIATIONS:
            return name
    return name
