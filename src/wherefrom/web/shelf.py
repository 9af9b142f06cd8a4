"""The shelf: the runs inside the served folder, found by name and by nothing else.

A name is looked up in a list that was made by walking the folder, so no spelling of it can lead
elsewhere; a link that points out of the folder is not followed.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from wherefrom.errors import UserError, did_you_mean

DEPTH = 4  # folders below the served one; twins lie two below their run
MOST = 500  # runs that are listed
FRESH = 1.0  # seconds for which a walk is believed
NEW_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}")
SKIPPED = {"checkpoints", "events", "world", "predictions"}


class Shelf:
    """One run, or a folder of runs."""

    def __init__(self, folder: str | Path) -> None:
        folder = Path(folder)
        if not folder.is_dir():
            raise UserError(
                f"{folder} is not a folder; serve takes a run, or a folder that holds runs."
            )
        self.root = folder.resolve()
        self.holds_one = (self.root / "run.json").is_file()
        self._found: dict[str, Path] = {}
        self._looked = -FRESH

    def runs(self) -> dict[str, Path]:
        """Name -> folder of every run, in the order of their names."""
        if time.monotonic() - self._looked >= FRESH:
            found: dict[str, Path] = {}
            self._walk(self.root, self.root.name if self.holds_one else "", 0, found)
            self._found, self._looked = dict(sorted(found.items())), time.monotonic()
        return self._found

    def find(self, name: str) -> Path:
        """The folder of the run of that name."""
        runs = self.runs()
        if name not in runs:
            shown = name if len(name) <= 60 else name[:57] + "..."
            hint = did_you_mean(shown, runs) if 0 < len(runs) <= 20 else ""
            raise UnknownRunError(f'there is no run "{shown}" here.{hint}')
        return runs[name]

    def place_for(self, name: str) -> Path:
        """Where a new run of that name may be made."""
        if self.holds_one:
            raise UserError(
                "one run is served here; serve the folder that holds it to start others beside it."
            )
        if not NEW_NAME.fullmatch(name):
            raise UserError(
                "the name of a new run is made of letters, digits, dots, dashes and underscores, "
                "starts with a letter or digit, and has at most 60 of them."
            )
        if os.path.lexists(self.root / name):
            raise UserError(f'"{name}" is taken; choose another name.')
        return self.root / name

    def forget(self) -> None:
        """Look again next time: something was made."""
        self._looked = -FRESH

    def _walk(self, folder: Path, name: str, depth: int, found: dict[str, Path]) -> None:
        if len(found) >= MOST:
            return
        if (folder / "run.json").is_file():
            found[name] = folder
        if depth == DEPTH:
            return
        try:
            entries = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir())
        except OSError:
            return
        for entry in entries:
            if entry.startswith(".") or entry in SKIPPED or not _is_text(entry):
                continue
            inner = folder / entry
            if inner.resolve().is_relative_to(self.root):
                self._walk(inner, f"{name}/{entry}" if name else entry, depth + 1, found)


class UnknownRunError(UserError):
    """No run of that name is on the shelf."""


def _is_text(name: str) -> bool:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
