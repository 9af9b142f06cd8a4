"""Runs of the served folder: found by name, with what each tells about itself."""

from __future__ import annotations

import json
import math
import os
import re
import time
from pathlib import Path
from typing import Any

from wherefrom.errors import UserError, did_you_mean

DEPTH = 4  # folders below the served one; twins lie two below their run
MOST = 500  # runs that are listed
FRESH = 1.0  # seconds for which a walk is believed
NEW_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}")
SKIPPED = {"checkpoints", "events", "world", "predictions"}


class RunIndex:
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


MOST_BYTES = 8_000_000  # of metrics.jsonl, from its end
MOST_POINTS = 600
LARGEST_RECORD = 5_000_000
RECIPES = {  # where the command names none
    "study": "speedrun",
    "scratch": "speedrun",
    "pretrain": "course",
    "finetune": "course",
}
COLUMNS = ("step", "loss", "lr", "seconds", "tokens_per_second", "progress")


def read_record(folder: Path) -> dict[str, Any]:
    """run.json as a dictionary, empty if it cannot be read."""
    path = folder / "run.json"
    try:
        if path.stat().st_size > LARGEST_RECORD:
            return {}
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def summarise(name: str, folder: Path) -> dict[str, Any]:
    """What the list of runs shows of one."""
    record = read_record(folder)
    model = _part(_part(record, "job"), "model")
    rows = [row for row in _list(record, "results") if isinstance(row, dict)]
    told = next((row for row in rows if row.get("name") == "pretrained"), {})
    kind = _text(record.get("kind"))
    return {
        "name": name,
        "kind": kind,
        "status": _text(record.get("status")) or "unknown",
        "variant": _text(model.get("variant")),
        "size": _size(model),
        "recipe": _recipe(record, kind),
        "recall": _number(told.get("recall")),
        "correct": _number(told.get("correct")),
        "total": _number(told.get("total")),
        "seconds": _number(record.get("seconds")),
        "steps": _number(record.get("steps")),
        "seed": _number(_part(record, "job").get("seed")),
        "started": _text(record.get("started")),
        "can_answer": (folder / "model.safetensors").is_file(),
        "calibrated": (folder / "calibration.json").is_file(),
        "is_twin": "/twins/" in f"/{name}",
    }


def describe(name: str, folder: Path) -> dict[str, Any]:
    """The summary and beside it what was learned from what, by which command, with what result."""
    record = read_record(folder)
    command = [_text(word) or "" for word in _list(record, "command")]
    if command:
        command[0] = "wherefrom"
    results = []
    for row in _list(record, "results"):
        if isinstance(row, dict):
            results.append(
                {
                    "name": _text(row.get("name")) or "",
                    "about": _text(row.get("about")) or "",
                    **{key: _number(row.get(key)) for key in ("correct", "total", "recall")},
                    "seconds": _number(row.get("seconds")),
                }
            )
    data = []
    for what, source in _part(record, "data").items():
        if isinstance(source, dict):
            count = source.get("documents", source.get("questions"))
            data.append(
                {
                    "what": str(what),
                    "file": os.path.basename(_text(source.get("path")) or ""),
                    "sha256": _text(source.get("sha256")) or "",
                    "count": _number(count),
                }
            )
    return {
        **summarise(name, folder),
        "template": _text(record.get("template")),
        "command": command,
        "results": results,
        "data": data,
        "versions": {str(key): str(value)[:80] for key, value in _part(record, "versions").items()},
        "sha256": _text(record.get("sha256")),
    }


def curve(folder: Path) -> dict[str, list[Any]]:
    """The curve of training by columns, thinned out evenly; empty before the first line."""
    points: list[dict[str, Any]] = []
    try:
        with open(folder / "metrics.jsonl", "rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - MOST_BYTES))
            lines = file.read(MOST_BYTES).splitlines()
    except OSError:
        lines = []
    for line in lines:
        try:
            point = json.loads(line)
        except (ValueError, RecursionError):
            continue  # being written, or cut short by a kill
        if isinstance(point, dict) and _number(point.get("step")) is not None:
            points.append(point)
    stride = max(1, math.ceil(len(points) / MOST_POINTS))
    kept = points[::stride]
    if points and kept[-1] is not points[-1]:
        kept.append(points[-1])
    table: dict[str, list[Any]] = {
        column: [_number(point.get(column)) for point in kept] for column in COLUMNS
    }
    return {"phase": [_text(point.get("phase")) or "" for point in kept], **table}


def progress_of(folder: Path) -> dict[str, Any]:
    """How far training has come: the phase, its share, and when it will be done."""
    points = curve(folder)
    record = read_record(folder)
    phases = [p for p in _list(_part(record, "job"), "phases") if isinstance(p, dict)]
    if not points["step"]:
        return {"phase": None, "share": 0.0, "step": 0, "loss": None, "seconds": 0.0}
    phase, within = points["phase"][-1], points["progress"][-1] or 0.0
    names = [_text(p.get("name")) for p in phases]
    shares = [_number(p.get("share")) or 1.0 for p in phases]
    share = within
    if phase in names and len(names) > 1:
        at = names.index(phase)
        share = (sum(shares[:at]) + within * shares[at]) / sum(shares)
    return {
        "phase": phase,
        "share": min(1.0, max(0.0, share)),
        "step": points["step"][-1],
        "loss": points["loss"][-1],
        "seconds": points["seconds"][-1],
    }


def files_of(folder: Path) -> list[str] | None:
    """The three files that a study was given, if they are still there."""
    record = read_record(folder)
    command = [word for word in _list(record, "command") if isinstance(word, str)]
    data = _part(record, "data")
    if record.get("kind") != "study" or len(command) < 5 or command[1] != "study":
        return None
    named = [_part(data, what).get("path") for what in ("corpus", "questions")]
    named.append(_part(record, "dev").get("path"))
    if all(isinstance(path, str) and path in command and os.path.isfile(path) for path in named):
        return [str(Path(str(path)).resolve()) for path in named]
    return None


def _recipe(record: dict[str, Any], kind: str | None) -> str | None:
    command = _list(record, "command")
    for at, word in enumerate(command):
        if word == "--recipe" and at + 1 < len(command):
            return os.path.basename(str(command[at + 1]))[:60]
        if isinstance(word, str) and word.startswith("--recipe="):
            return os.path.basename(word.partition("=")[2])[:60]
    return RECIPES.get(kind or "") if command else None


def _size(model: dict[str, Any]) -> str | None:
    numbers = [_number(model.get(key)) for key in ("width", "layers", "heads")]
    return "x".join(f"{n:g}" for n in numbers if n is not None) if all(numbers) else None


def _part(record: dict[str, Any], key: str) -> dict[str, Any]:
    part = record.get(key)
    return part if isinstance(part, dict) else {}


def _list(record: dict[str, Any], key: str) -> list[Any]:
    part = record.get(key)
    return part[:1000] if isinstance(part, list) else []


def _text(value: Any) -> str | None:
    return value[:500] if isinstance(value, str) else None


def _number(value: Any) -> float | int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, int):
        return value if abs(value) < 2**53 else None
    return value if math.isfinite(value) else None
