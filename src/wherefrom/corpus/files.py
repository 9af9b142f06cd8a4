"""Reading what users bring: text as lines, with errors that name file and line.

Windows line ends, a byte-order mark, blank lines and a missing last newline are fine; anything
that would silently change what is trained on (bad UTF-8, an empty file) is refused.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from wherefrom.errors import UserError


@dataclass(frozen=True)
class TextFile:
    """A file's non-blank lines as (line number, text), and the hash of its bytes."""

    path: Path
    sha256: str
    lines: tuple[tuple[int, str], ...]


def read_lines(path: str | Path, what: str) -> TextFile:
    """Read `path` as UTF-8 lines; `what` names its role in the error ("corpus", "questions")."""
    path = Path(path)
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise UserError(f"the {what} {path} does not exist; check the path.") from None
    except IsADirectoryError:
        raise UserError(f"the {what} {path} is a folder; a text file was expected.") from None
    except OSError as problem:
        raise UserError(f"the {what} {path} cannot be read: {problem.strerror}.") from None
    lines = []
    for number, line in enumerate(_decode(raw, path, what).split("\n"), start=1):
        line = line.removesuffix("\r")
        if line.strip():
            lines.append((number, line))
    if not lines:
        raise UserError(f"the {what} {path} is empty; it needs at least one line of text.")
    return TextFile(path=path, sha256=hashlib.sha256(raw).hexdigest(), lines=tuple(lines))


def _decode(raw: bytes, path: Path, what: str) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = raw[: problem.start].count(b"\n") + 1
        byte = raw[problem.start]
        raise UserError(
            f"the {what} {path} is not UTF-8: line {line} holds the byte 0x{byte:02x}; "
            "save the file as UTF-8."
        ) from None
