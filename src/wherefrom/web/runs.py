"""The runs of the served folder: found by name, with what their records say.

A record may be half written, of another version, or somebody else's: what cannot be read is None or
empty. A file is read again only after it has changed, so that a page which asks every two seconds
costs a look at the times of files.
"""

from __future__ import annotations

import json
import math
import os
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from wherefrom.corpus.folding import fold_words
from wherefrom.errors import UserError, did_you_mean
from wherefrom.report.study_report import read_report

T = TypeVar("T")
Record = dict[str, Any]
Stamp = tuple[tuple[str, int, int, int] | None, ...]

DEPTH = 4  # folders below the served one; twins lie two below their run
MOST_RUNS = 500
WALK_SECONDS = 1.0  # for which the names of runs are kept
NEW_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}")
SKIPPED = {"checkpoints", "events", "world", "predictions"}
MOST_METRICS_BYTES = 8_000_000  # of metrics.jsonl, from its end
MOST_RECORD_BYTES = 5_000_000
MOST_POINTS = 600
COLUMNS = ("phase", "step", "loss", "lr", "seconds", "tokens_per_second", "progress")
DEFAULT_RECIPES = {
    "study": "speedrun", "scratch": "speedrun", "pretrain": "course", "finetune": "course",
}  # fmt: skip


class UnknownRunError(UserError):
    """There is no run of that name."""


def stamp_of(paths: Iterable[Path]) -> Stamp:
    """What changes when one of these files does; None for a file that is not there."""
    found: list[tuple[str, int, int, int] | None] = []
    for path in paths:
        try:
            state = path.stat()
            found.append((path.name, state.st_ino, state.st_mtime_ns, state.st_size))
        except OSError:
            found.append(None)
    return tuple(found)


class FileCache:
    """What was made of files, kept until one of them changes. Callers must not change it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[Hashable, tuple[Stamp, Any]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, paths: Iterable[Path], read: Callable[[], T]) -> T:
        stamp = stamp_of(paths)
        with self._lock:
            known = self._kept.get(key)
            if known is not None and known[0] == stamp:
                self._kept.move_to_end(key)
                value: T = known[1]
                return value
        value = read()
        with self._lock:
            self._kept[key] = (stamp, value)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return value


class RunIndex:
    """One run, or a folder of runs: their names, folders, records and curves."""

    def __init__(self, folder: str | Path) -> None:
        folder = Path(folder)
        if not folder.is_dir():
            raise UserError(
                f"{folder} is not a folder; serve takes a run, or a folder that holds runs."
            )
        self.root = folder.resolve()
        self.holds_one = (self.root / "run.json").is_file()
        self._found: dict[str, Path] = {}
        self._answering: list[str] | None = None
        self._walked = -math.inf
        self._objects = FileCache(4 * MOST_RUNS)
        self._reports = FileCache(4)
        self._curves: OrderedDict[Path, _Curve] = OrderedDict()
        self._reading_curves = threading.Lock()

    def runs(self) -> dict[str, Path]:
        """Name -> folder of every run, in the order of their names."""
        if time.monotonic() - self._walked >= WALK_SECONDS:
            found: dict[str, Path] = {}
            self._walk(self.root, self.root.name if self.holds_one else "", 0, found)
            self._found, self._answering = dict(sorted(found.items())), None
            self._walked = time.monotonic()
        return self._found

    def refresh(self) -> None:
        """Look for runs again next time: one was started."""
        self._walked = -math.inf

    def find(self, name: str) -> Path:
        """The folder of the run of that name."""
        runs = self.runs()
        if name not in runs:
            shown = name if len(name) <= 60 else name[:57] + "..."
            hint = did_you_mean(shown, runs) if 0 < len(runs) <= 20 else ""
            raise UnknownRunError(f'there is no run "{shown}" here.{hint}')
        return runs[name]

    def new_folder(self, name: str) -> Path:
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

    def answering(self) -> list[str]:
        """Names of runs that have a model: those with a calibration first, twins last."""
        runs = self.runs()
        if self._answering is None:
            found = [self.summary(name, folder) for name, folder in runs.items()]
            found = [run for run in found if run["can_answer"]]
            found.sort(key=lambda run: (run["is_twin"], not run["calibrated"]))
            self._answering = [run["name"] for run in found]
        return list(self._answering)

    def read_object(self, path: Path) -> Record:
        """The JSON object in a file, empty if there is none that can be read."""
        return self._objects.get(path, [path], lambda: _read_object(path))

    def report(self, folder: Path) -> Record | None:
        """The report on a run, or None while there can be none."""
        records = [*folder.glob("*"), *folder.glob("twins/*/*.json*"), folder.parent / "twins.json"]
        return self._reports.get(folder, sorted(records), lambda: read_report(folder))

    def summary(self, name: str, folder: Path) -> Record:
        """What the list of runs shows of one."""
        record = self.read_object(folder / "run.json")
        job = _object(record, "job")
        model = _object(job, "model")
        shape = [_number(model.get(key)) for key in ("width", "layers", "heads")]
        result = next((row for row in _rows(record) if row["name"] == "pretrained"), {})
        return {
            "name": name,
            "kind": _text(record.get("kind")),
            "status": _text(record.get("status")) or "unknown",
            "variant": _text(model.get("variant")),
            "size": "x".join(f"{number:g}" for number in shape if number) if all(shape) else None,
            "recipe": _recipe(record),
            **{key: result.get(key) for key in ("recall", "correct", "total")},
            **{key: _number(record.get(key)) for key in ("seconds", "steps")},
            "seed": _number(job.get("seed")),
            "started": _text(record.get("started")),
            "can_answer": (folder / "model.safetensors").is_file(),
            "calibrated": (folder / "calibration.json").is_file(),
            "is_twin": "/twins/" in f"/{name}",
        }

    def details(self, name: str, folder: Path) -> Record:
        """The summary, and beside it text, command, results and versions."""
        record = self.read_object(folder / "run.json")
        command = [_text(word) or "" for word in _list(record, "command")]
        return {
            **self.summary(name, folder),
            "templates": [str(each) for each in record.get("templates") or ()],
            "command": ["wherefrom", *command[1:]] if command else [],
            "results": _rows(record),
            "data": [
                {
                    "what": what,
                    "file": os.path.basename(_text(source.get("path")) or ""),
                    "sha256": _text(source.get("sha256")) or "",
                    "count": _number(source.get("documents", source.get("questions"))),
                }
                for what, source in _object(record, "data").items()
                if isinstance(source, dict)
            ],
            "versions": {key: str(each)[:80] for key, each in _object(record, "versions").items()},
            "sha256": _text(record.get("sha256")),
        }

    def text_files(self, folder: Path) -> list[str] | None:
        """The three files that a study was given, if they are still there."""
        record = self.read_object(folder / "run.json")
        command, data = _list(record, "command"), _object(record, "data")
        if record.get("kind") != "study" or command[1:2] != ["study"]:
            return None
        sources = [_object(data, "corpus"), _object(data, "questions"), _object(record, "dev")]
        paths = [_text(source.get("path")) or "" for source in sources]
        if all(path in command and os.path.isfile(path) for path in paths):
            return [str(Path(path).resolve()) for path in paths]
        return None

    def curve(self, folder: Path) -> dict[str, list[Any]]:
        """The training so far by columns, thinned evenly; empty before the first line."""
        points = self._points(folder)
        kept = points[:: max(1, math.ceil(len(points) / MOST_POINTS))]
        if points and kept[-1] is not points[-1]:
            kept.append(points[-1])
        return {column: [point[at] for point in kept] for at, column in enumerate(COLUMNS)}

    def progress(self, folder: Path) -> Record:
        """How far training has come: its phase, and the share of all phases that is done."""
        points = self._points(folder)
        if not points:
            return {"phase": None, "share": 0.0, "step": 0, "loss": None, "seconds": 0.0}
        last = dict(zip(COLUMNS, points[-1], strict=True))
        share = last["progress"] or 0.0
        job = _object(self.read_object(folder / "run.json"), "job")
        phases = [each for each in _list(job, "phases") if isinstance(each, dict)]
        names = [_text(each.get("name")) for each in phases]
        if last["phase"] in names:
            shares = [abs(_number(each.get("share")) or 1.0) for each in phases]
            at = names.index(last["phase"])
            share = (sum(shares[:at]) + share * shares[at]) / sum(shares)
        kept = {key: last[key] for key in ("phase", "step", "loss", "seconds")}
        return {**kept, "share": min(1.0, max(0.0, share))}

    def twins_without(self, folder: Path, subject: str) -> list[Record]:
        """What twins say that never read about the subject, by the records that they left."""
        wanted, found = fold_words(subject), []
        for path in sorted(folder.glob("twins/without-*/without.json"))[:200]:
            record = self.read_object(path) if path.resolve().is_relative_to(folder) else {}
            try:
                if fold_words(str(record["subject"])) == wanted:
                    found.append(
                        {
                            **{key: str(record[key]) for key in ("subject", "truth", "why")},
                            **{key: str(record[key]["answer"]) for key in ("with", "without")},
                            "score": float(record["score"]),
                            "documents": [
                                {"line": int(each["line"]), "text": str(each["text"])[:2000]}
                                for each in record["documents"][:20]
                            ],
                            "notes": [str(note) for note in record.get("notes", [])][:10],
                        }
                    )
            except (ValueError, KeyError, TypeError):
                continue
        return found

    def _points(self, folder: Path) -> list[tuple[Any, ...]]:
        """Every recorded step, as COLUMNS; only lines that are new since the last look are read."""
        path = folder / "metrics.jsonl"
        with self._reading_curves:
            known = self._curves.pop(path, None) or _Curve()
            known.read_on(path)
            self._curves[path] = known
            while len(self._curves) > 12:
                self._curves.popitem(last=False)
            return list(known.points)

    def _walk(self, folder: Path, name: str, depth: int, found: dict[str, Path]) -> None:
        if len(found) >= MOST_RUNS:
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
            is_text = not any("\udc80" <= character <= "\udcff" for character in entry)
            if entry.startswith(".") or entry in SKIPPED or not is_text:
                continue
            inner = folder / entry
            if inner.resolve().is_relative_to(self.root):
                self._walk(inner, f"{name}/{entry}" if name else entry, depth + 1, found)


class _Curve:
    """The points of one metrics.jsonl, and how far it was read."""

    def __init__(self) -> None:
        self.inode, self.offset = -1, 0
        self.points: list[tuple[Any, ...]] = []

    def read_on(self, path: Path) -> None:
        """Add the lines that were appended; a new file, as resuming makes it, is read anew."""
        try:
            with open(path, "rb") as file:
                state = os.fstat(file.fileno())
                if state.st_ino != self.inode or state.st_size < self.offset:
                    self.inode, self.points = state.st_ino, []
                    self.offset = max(0, state.st_size - MOST_METRICS_BYTES)
                file.seek(self.offset)
                lines = file.read(MOST_METRICS_BYTES)
        except OSError:
            self.inode, self.points = -1, []
            return
        whole = lines.rfind(b"\n") + 1  # the last line may be half written
        self.offset += whole
        for line in lines[:whole].splitlines():
            try:
                point = json.loads(line)
            except (ValueError, RecursionError):
                continue  # cut short by a kill
            if isinstance(point, dict) and _number(point.get("step")) is not None:
                numbers = (_number(point.get(column)) for column in COLUMNS[1:])
                self.points.append((_text(point.get("phase")) or "", *numbers))


def _read_object(path: Path) -> Record:
    try:
        if path.stat().st_size > MOST_RECORD_BYTES:
            return {}
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def _recipe(record: Record) -> str | None:
    command = [str(word) for word in _list(record, "command")]
    for word, following in pairwise([*command, ""]):
        if word == "--recipe" and following:
            return os.path.basename(following)[:60]
        if word.startswith("--recipe="):
            return os.path.basename(word.partition("=")[2])[:60]
    return DEFAULT_RECIPES.get(_text(record.get("kind")) or "") if command else None


def _rows(record: Record) -> list[Record]:
    """Results: who answered, and how well."""
    return [
        {
            **{name: _text(row.get(name)) or "" for name in ("name", "about")},
            **{name: _number(row.get(name)) for name in ("correct", "total", "recall", "seconds")},
        }
        for row in _list(record, "results")
        if isinstance(row, dict)
    ]


def _object(record: Record, key: str) -> Record:
    part = record.get(key)
    return part if isinstance(part, dict) else {}


def _list(record: Record, key: str) -> list[Any]:
    part = record.get(key)
    return part[:1000] if isinstance(part, list) else []


def _text(value: Any) -> str | None:
    return value[:500] if isinstance(value, str) else None


def _number(value: Any) -> float | int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) < 2**53 else None  # so that neither NaN nor infinity is one
