"""Which run is meant when none is named: the newest finished one below a folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wherefrom.errors import UserError
from wherefrom.storage import read_json

DEEPEST = 3  # folders below the one that is searched


def is_run(folder: str | Path) -> bool:
    """Whether a folder holds a run, finished or not."""
    try:
        return str(folder) != "" and (Path(folder) / "run.json").is_file()
    except (OSError, ValueError):  # a question is no path: too long, or with a NUL in it
        return False


def find_newest_run(below: str | Path = "runs") -> Path:
    """The finished run that was started last; the twins inside a run do not count."""
    found = [
        (str(info.get("started", "")), str(folder), folder)
        for folder in _runs(Path(below), DEEPEST)
        if (info := _finished(folder)) is not None
    ]
    if not found:
        raise UserError(
            f"there is no finished run below {below}; name the folder of one, or make one with "
            f"`wherefrom study --out {below}/study`."
        )
    return max(found)[2]


def _runs(folder: Path, deep: int) -> Iterator[Path]:
    try:
        inside = sorted(path for path in folder.iterdir() if path.is_dir())
    except OSError:
        return
    for path in inside:
        if is_run(path):
            yield path
        elif deep > 1 and not path.name.startswith("."):
            yield from _runs(path, deep - 1)


def _finished(folder: Path) -> dict[str, Any] | None:
    """The record of a run that has all of its training behind it."""
    try:
        info = read_json(folder / "run.json")
    except UserError:
        return None
    whole = isinstance(info, dict) and info.get("status") == "finished"
    return info if whole and (folder / "model.safetensors").is_file() else None
