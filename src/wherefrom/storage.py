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
            temporary.unlink(missing_ok=True)


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
    write_whole(path, json.dumps(record, ensure_ascii=False, indent=2, allow_nan=False) + "\n")


def read_json(path: str | Path) -> Any:
    """The record in a JSON file; a UserError if it is missing or broken."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path} does not exist.") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as problem:
        raise UserError(f"{path} is not the JSON that was written there: {problem}.") from None
    except OSError as problem:
        raise UserError(f"{path} cannot be read: {problem.strerror}.") from None


def read_json_lines(path: str | Path) -> list[Any]:
    """The records in a file of JSON lines that grows; none if it is missing.

    A line that was cut short as the writer was killed is left out.
    """
    path, records = Path(path), []
    for line in path.read_text(encoding="utf-8").split("\n") if path.is_file() else ():
        with suppress(ValueError):
            records.append(json.loads(line))
    return records


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
