"""Atomic writing of files: a file is complete under its name, or it is not there."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from wherefrom.errors import UserError

Content = bytes | str | Iterable[bytes]
MAX_RECORD_BYTES = 1 << 30


def write_whole(path: str | Path, content: Content) -> None:
    """Write `content` to `path` in one step; the folder must exist."""
    write_all({Path(path): content})


def write_all(contents: Mapping[Path, Content]) -> None:
    """Write several files; none is replaced before all of them are on the disk."""
    written: dict[Path, Path] = {}  # temporary name -> name
    path = Path()
    try:
        for path, content in contents.items():
            temporary = path.parent / f".{path.name}.{secrets.token_hex(8)}"
            written[temporary] = path
            with temporary.open("xb") as file:
                content = content.encode("utf-8") if isinstance(content, str) else content
                file.writelines([content] if isinstance(content, bytes) else content)
                file.flush()
                os.fsync(file.fileno())
        for temporary, path in written.items():
            os.replace(temporary, path)
        for folder in {path.parent for path in contents}:
            sync_folder(folder)
    except OSError as problem:
        raise UserError(
            f"{path} cannot be written: {problem.strerror}; what was there before is unchanged."
        ) from None
    finally:
        for temporary in written:
            with suppress(OSError):  # it is not there, or nothing can be written at all
                temporary.unlink()


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk, so that a rename outlives a power cut."""
    with suppress(OSError):  # a file system or a system that cannot do it
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_json(path: str | Path, record: Any) -> None:
    """Write a record as indented JSON; NaN and infinity are refused."""
    write_whole(path, format_json(record))


def format_json(record: Any) -> str:
    """A record as indented JSON; NaN and infinity are refused."""
    return json.dumps(record, ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def read_json(path: str | Path, kind: type = object) -> Any:
    """The record in a JSON file; a UserError if it is missing, broken, too large or too deep.

    kind: dict or list, if the record must be one.
    """
    return _parse(read_bytes(path), path, kind)


def read_json_lines(path: str | Path) -> list[dict[str, Any]]:
    """The records in a file of JSON lines that grows, which are objects; none if it is missing.

    A last line that was cut short as the writer was killed is left out.
    """
    if not Path(path).is_file():
        return []
    *lines, last = read_bytes(path).split(b"\n")
    records = [
        _parse(line, f"{path}, line {number}", dict)
        for number, line in enumerate(lines, start=1)
        if line.strip()
    ]
    with suppress(UserError):
        records += [_parse(last, path, dict)] if last.strip() else []
    return records


def read_bytes(path: str | Path) -> bytes:
    """The bytes of a record; a UserError if it is missing, no plain file, or too large."""
    path = Path(path)
    try:
        if path.exists() and not path.is_file():
            raise UserError(f"{path} is not a file.")
        if path.stat().st_size > MAX_RECORD_BYTES:
            raise UserError(f"{path} has more than {MAX_RECORD_BYTES:,} bytes.")
        return path.read_bytes()
    except FileNotFoundError:
        raise UserError(f"{path} does not exist.") from None
    except OSError as problem:
        raise UserError(f"{path} cannot be read: {problem.strerror}.") from None


def _parse(text: bytes, where: str | Path, kind: type) -> Any:
    """The JSON value in a text; NaN and infinity are refused."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON number")

    try:
        value = json.loads(text, parse_constant=refuse)
        if not isinstance(value, kind):
            wanted = "an object" if kind is dict else "a list"
            raise ValueError(f"{wanted} was expected")
    except RecursionError:
        raise UserError(f"{where} is nested too deep to be a record that was written.") from None
    except ValueError as problem:  # also of bytes that are not UTF-8, and of absurd numbers
        raise UserError(f"{where} is not the JSON that was written there: {problem}.") from None
    return value


def make_folder(path: str | Path) -> Path:
    """Make the folder if it does not exist; a UserError says why it cannot be made."""
    path = Path(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise UserError(f"{path} is a file; a folder was expected.") from None
    except OSError as problem:
        raise UserError(f"the folder {path} cannot be made: {problem.strerror}.") from None
    return path


def digest_of(texts: Iterable[str]) -> str | None:
    """The hash of the texts as lines, None for no text."""
    digest, count = hashlib.sha256(), 0
    for count, text in enumerate(texts, start=1):
        digest.update(f"\n{text}".encode() if count > 1 else text.encode())
    return digest.hexdigest() if count else None


def sha256_of(path: str | Path) -> str:
    """SHA-256 of a file's bytes, in hex."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
