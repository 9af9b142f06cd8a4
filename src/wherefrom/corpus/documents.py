"""Documents: one per line, `Name. text` or `subject TAB text`, so that each knows its subject.

Other forms of text are converted to the second one first (corpus/formats.py).
"""

from __future__ import annotations

import hashlib
import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

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


@dataclass(frozen=True)
class Corpus:
    """The documents of one file, and the hash that says which file it was."""

    path: Path
    sha256: str
    documents: tuple[Document, ...]

    @property
    def texts(self) -> list[str]:
        return [document.text for document in self.documents]

    @property
    def vocabulary(self) -> list[str]:
        """What tokens are learned from: the texts, and the subjects as well."""
        return [*self.texts, *(document.subject for document in self.documents)]

    def without(self, subjects: Collection[str]) -> Corpus:
        """The same corpus without all documents about these subjects."""
        gone = set(subjects)
        return replace(self, documents=tuple(d for d in self.documents if d.subject not in gone))


def read_lines(path: str | Path, what: str) -> TextFile:
    """Read `path` as UTF-8 lines; `what` names its role in the error ("corpus", "questions")."""
    path = Path(path)
    try:
        raw = path.read_bytes()
        file = cut_lines(path, raw)
    except FileNotFoundError:
        raise UserError(f"the {what} {path} does not exist; check the path.") from None
    except IsADirectoryError:
        raise UserError(f"the {what} {path} is a folder; a text file was expected.") from None
    except OSError as problem:
        raise UserError(f"the {what} {path} cannot be read: {problem.strerror}.") from None
    except UnicodeDecodeError as problem:
        line = raw[: problem.start].count(b"\n") + 1
        raise UserError(
            f"the {what} {path} is not UTF-8: line {line} holds the byte "
            f"0x{raw[problem.start]:02x}; save the file as UTF-8."
        ) from None
    if not file.lines:
        raise UserError(f"the {what} {path} is empty; it needs at least one line of text.")
    return file


def cut_lines(path: Path, raw: bytes) -> TextFile:
    """The non-blank lines of a text, which is or will be the content of `path`."""
    numbered = enumerate(decode_text(raw).split("\n"), start=1)
    lines = tuple((number, line) for number, line in numbered if line.strip())
    return TextFile(path, hashlib.sha256(raw).hexdigest(), lines)


def decode_text(raw: bytes) -> str:
    """UTF-8, or UTF-16 with its byte order mark, with any line ends."""
    text = raw.decode("utf-16" if raw[:2] in (BOM_UTF16_LE, BOM_UTF16_BE) else "utf-8-sig")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_documents(path: str | Path) -> Corpus:
    """Read a corpus; a line that does not start with its subject is refused by its number."""
    return parse_documents(read_lines(path, "corpus"))


def parse_documents(file: TextFile) -> Corpus:
    """The documents of a file that was read."""
    tabs = all("\t" in line for _, line in file.lines)
    heads = [line.split("\t")[0].rstrip() for _, line in file.lines] if tabs else []
    if sum(head.endswith(QUESTION_MARKS) for head in heads) > len(heads) / 2:
        raise UserError(
            f"{file.path}, line {file.lines[0][0]}: these are questions; a corpus has a subject "
            "and a text on each line."
        )
    documents = []
    for number, line in file.lines:
        if tabs:
            subject, _, rest = line.partition("\t")
            subject, text = subject.strip(), " ".join(rest.split())
            text = f"{subject}. {text}" if subject else text
        else:
            text = line.lstrip()
            subject = find_subject(text) or ""
            if not subject:
                raise UserError(
                    f'{file.path}, line {number}: a document is "Name. text" on one line; '
                    f'no full stop and space ends a name in "{text[:40]}".'
                )
            if text[len(subject)] != ".":  # the full stop of another script
                text = f"{subject}. {text[len(subject) + 1 :].lstrip()}"
        check_length(text, f"{file.path}, line {number}")
        documents.append(Document(number, subject, text))
    return Corpus(file.path, file.sha256, tuple(documents))


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
