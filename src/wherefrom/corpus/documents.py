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
from numpy.typing import NDArray

from wherefrom.corpus.folding import FoldedName, fold_words
from wherefrom.corpus.packed import Computed, RecordFile
from wherefrom.errors import UserError

# A full stop after one of these belongs to the name: "A. G. E. Blake. Anthony Blake was ..."
ABBREVIATIONS = frozenset({"Dr", "Jr", "Mr", "Mrs", "Ms", "Prof", "Sr", "St"})
LONGEST_DOCUMENT = 1_000_000
QUESTION_MARKS = ("?", "？", "؟")
STOPS = "。।።။។۔։"  # full stops that no space need follow
LONGEST_REST = 60  # characters of a name behind an initial
LONGEST_PARTICLE = 3


@dataclass(frozen=True)
class TextFile:
    """A file's non-blank lines as (line number, text), and the hash of its bytes."""

    path: Path
    sha256: str
    lines: tuple[tuple[int, str], ...]


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
    """Documents whose text is in a temporary file: none of them is in memory but while it is read.

    Two of the same documents are equal, and have one hash. `some` are the places of those that are
    meant, if not all of the file.
    """

    def __init__(self, documents: Iterable[Document] = ()) -> None:
        self._texts, self._lines, self._heads = RecordFile(bytes), array("q"), array("i")
        self._some: NDArray[np.int64] | None = None
        for document in documents:
            self.add(document.line, len(document.subject), document.text)

    def add(self, line: int, head: int, text: str) -> None:
        """Add a document whose subject is the first `head` characters of its text."""
        self._texts.append(text.encode("utf-8", "surrogatepass"))
        self._lines.append(line)
        self._heads.append(head)

    def select(self, keep: Callable[[Document], bool]) -> Documents:
        """Those that are to be kept, in the same file; all of them are these very documents."""
        some = array("q", (at for at, document in enumerate(self) if keep(document)))
        if len(some) == len(self):
            return self
        places = np.array(some, dtype=np.int64)
        chosen = Documents.__new__(Documents)
        chosen._texts, chosen._lines, chosen._heads = self._texts, self._lines, self._heads
        chosen._some = places if self._some is None else self._some[places]
        return chosen

    def __len__(self) -> int:
        return len(self._lines) if self._some is None else len(self._some)

    def __getitem__(self, at: Any) -> Any:
        index = range(len(self))[at]
        if isinstance(index, range):
            return [self[each] for each in index]
        place = index if self._some is None else int(self._some[index])
        return self._make(self._texts[place], self._lines[place], self._heads[place])

    def __iter__(self) -> Iterator[Document]:
        if self._some is None:
            return map(self._make, self._texts, self._lines, self._heads)
        return (self[at] for at in range(len(self)))

    def _make(self, raw: bytes, line: int, head: int) -> Document:
        text = raw.decode("utf-8", "surrogatepass")
        return Document(line, text[:head], text)

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
        if isinstance(other, Documents):
            return self is other or self._digest == other._digest
        return NotImplemented


def hash_name(name: FoldedName) -> int:
    """64 bits that stand for a folded name."""
    digest = hashlib.blake2b("\0".join(name).encode("utf-8", "surrogatepass"), digest_size=8)
    return int.from_bytes(digest.digest(), "little")


class SubjectNames(Mapping[FoldedName, str]):
    """The subjects of documents by their folded names, numbered in the order of appearance.

    As a mapping: how the last document about a subject spells its name. of_document: the number of
    each document's subject, -1 for none. Of a name 64 bits are kept, and 28 bytes for a document.
    """

    def __init__(self, documents: Sequence[Document]) -> None:
        self._documents = documents
        folded = (fold_words(document.subject) for document in documents)
        hashes = np.fromiter((hash_name(each) if each else 0 for each in folded), np.uint64)
        about = np.flatnonzero(hashes)
        keys, first, inverse = np.unique(hashes[about], return_index=True, return_inverse=True)
        number = np.argsort(np.argsort(first))
        self._keys, self._numbers = array("Q", keys.tobytes()), number.astype(np.int32)
        self.of_document = np.full(len(documents), -1, dtype=np.int32)
        self.of_document[about] = self._numbers[inverse]
        # the documents about the first subject, the second, ...
        order = np.argsort(self.of_document[about], kind="stable")
        self._places = about[order].astype(np.int32)
        self._starts = np.searchsorted(self.of_document[self._places], np.arange(len(keys) + 1))

    def number(self, name: FoldedName) -> int:
        """The number of a subject, -1 if no document is about it."""
        key = hash_name(name)
        at = bisect_left(self._keys, key)
        return int(self._numbers[at]) if at < len(self._keys) and self._keys[at] == key else -1

    def places(self, number: int) -> list[int]:
        """Where the documents about a subject are."""
        return self._places[self._starts[number] : self._starts[number + 1]].tolist()

    def about(self, name: FoldedName) -> list[int]:
        """The same for a name: none if no document is about it."""
        number = self.number(name) if name else -1
        return self.places(number) if number >= 0 else []

    def spelling(self, number: int) -> str:
        """A subject as the last document about it spells it."""
        last = self._places[self._starts[number + 1] - 1]
        return self._documents[int(last)].subject

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


def names_of(documents: Sequence[Document]) -> SubjectNames:
    """The subjects of any documents."""
    return documents.names if isinstance(documents, Documents) else SubjectNames(documents)


def texts_of(documents: Sequence[Document]) -> Sequence[str]:
    """The texts of documents, which stay where they are."""
    return Computed(
        lambda at: documents[at].text, len(documents), lambda: (d.text for d in documents)
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
        """What tokens are learned from: the texts, and the subjects as well."""
        documents, many = self.documents, len(self.documents)
        return Computed(
            lambda at: documents[at].text if at < many else documents[at - many].subject,
            2 * many,
            lambda: chain((d.text for d in documents), (d.subject for d in documents)),
        )

    def select(self, keep: Callable[[Document], bool]) -> Corpus:
        """The same corpus with the documents that are to be kept."""
        documents = self.documents
        if not isinstance(documents, Documents):
            documents = Documents(documents)
        return replace(self, documents=documents.select(keep))

    def without(self, subjects: Collection[str]) -> Corpus:
        """The same corpus without all documents about these subjects."""
        gone = set(subjects)
        return self.select(lambda document: document.subject not in gone) if gone else self


class Lines:
    """The non-blank lines of a file as (line number, text), read anew each time; `what` names its
    role in errors ("corpus", "questions"). sha256: the hash of its bytes, once all were read."""

    def __init__(self, path: str | Path, what: str) -> None:
        self.path, self._what, self.sha256 = Path(path), what, ""

    def __iter__(self) -> Iterator[tuple[int, str]]:
        number, found, file = 0, False, f"the {self._what} {self.path}"
        try:
            with open(self.path, "rb", buffering=0) as raw:
                hashed = _Hashed(raw)
                for number, line in number_lines(hashed):
                    if "\0" in line:
                        raise UserError(
                            f"{file}, line {number}: a NUL byte was found where text was expected; "
                            "save the file as UTF-8."
                        )
                    if line.strip():
                        found = True
                        yield number, line
                self.sha256 = hashed.digest.hexdigest()
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
        if not found:
            raise UserError(f"{file} is empty; it needs at least one line of text.")


class _Hashed(io.RawIOBase):
    """A file with the hash of what was read of it."""

    def __init__(self, raw: io.RawIOBase) -> None:
        self._raw, self.digest = raw, hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        size = self._raw.readinto(buffer) or 0
        self.digest.update(buffer[:size])
        return size


def number_lines(raw: Any) -> Iterator[tuple[int, str]]:
    """All lines of a text, by their numbers: UTF-8, or UTF-16 with its byte order mark, with any
    line ends."""
    file = io.BufferedReader(raw)
    wide = file.peek(2)[:2] in (BOM_UTF16_LE, BOM_UTF16_BE)
    with io.TextIOWrapper(file, "utf-16" if wide else "utf-8-sig") as text:
        for number, line in enumerate(text, start=1):
            yield number, line.removesuffix("\n")


def read_lines(path: str | Path, what: str) -> TextFile:
    """All lines of a file that fits into memory."""
    lines = Lines(path, what)
    found = tuple(lines)
    return TextFile(lines.path, lines.sha256, found)


def cut_lines(path: Path, raw: bytes) -> TextFile:
    """The non-blank lines of a text, which is or will be the content of `path`."""
    lines = tuple(line for line in number_lines(io.BytesIO(raw)) if line[1].strip())
    return TextFile(path, hashlib.sha256(raw).hexdigest(), lines)


def read_documents(path: str | Path) -> Corpus:
    """Read a corpus; a line that does not start with its subject is refused by its number."""
    lines = Lines(path, "corpus")
    documents = parse_documents(lines.path, lines)
    return Corpus(lines.path, lines.sha256, documents)


def parse_documents(path: Path, lines: Iterable[tuple[int, str]]) -> Documents:
    """The documents of a file's lines, which are gone through more than once."""
    tabs = all("\t" in line for _, line in lines)
    documents = Documents()
    for number, line in lines:
        if tabs:
            subject, _, rest = line.partition("\t")
            subject, text = subject.strip(), " ".join(rest.split())
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
    asking = sum(document.subject.endswith(QUESTION_MARKS) for document in documents if tabs)
    if asking > len(documents) / 2:
        raise UserError(
            f"{path}, line {documents[0].line}: these are questions; a corpus has a subject and a "
            "text on each line."
        )
    return documents


def as_table(documents: Iterable[Document]) -> Iterator[bytes]:
    """Documents as the lines of a file, `subject TAB text`."""
    return (f"{each.subject}\t{each.body}\n".encode() for each in documents)


def hash_table(documents: Iterable[Document]) -> str:
    """The hash of that file."""
    digest = hashlib.sha256()
    for line in as_table(documents):
        digest.update(line)
    return digest.hexdigest()


def check_length(text: str, where: str) -> None:
    """Refuse a document that is longer than any can be."""
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
            rest = longer[len(name) + 1 :]
            words = (w for w in re.findall(r"\w+", rest) if len(w) > LONGEST_PARTICLE)
            if len(rest) > LONGEST_REST or any(word[0].islower() for word in words):
                return name
        name = longer
        tail = re.split(r"[ .]", name)[-1]
        if len(tail) != 1 and tail not in ABBREVIATIONS:
            return name
    return name
