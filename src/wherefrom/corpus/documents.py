"""Documents: one per line, `Name. text` or `subject TAB text`, so that each knows its subject.

Other forms of text are converted to the second one first (corpus/formats.py). The documents of a
text are kept in a database (corpus/database.py).
"""

from __future__ import annotations

import hashlib
import io
import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wherefrom.errors import UserError

# A full stop after one of these belongs to the name: "A. G. E. Blake. Anthony Blake was ..."
ABBREVIATIONS = frozenset({"Dr", "Jr", "Mr", "Mrs", "Ms", "Prof", "Sr", "St"})
MAX_DOCUMENT_CHARACTERS = 1_000_000
QUESTION_MARKS = ("?", "？", "؟")
STOPS = "。।።။។۔։"  # full stops that no space need follow
MAX_TAIL_CHARACTERS = 60  # characters of a name after an initial
MAX_PARTICLE_LETTERS = 3


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
    if len(text) > MAX_DOCUMENT_CHARACTERS:
        raise UserError(
            f"{where}: a document may have {MAX_DOCUMENT_CHARACTERS:,} characters and this one has "
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
            words = (w for w in re.findall(r"\w+", added) if len(w) > MAX_PARTICLE_LETTERS)
            if len(added) > MAX_TAIL_CHARACTERS or any(word[0].islower() for word in words):
                return name
        name = longer
        last_word = re.split(r"[ .]", name)[-1]
        if len(last_word) != 1 and last_word not in ABBREVIATIONS:
            return name
    return name
