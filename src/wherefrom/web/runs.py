"""The runs of the served folder: found by name, with what their records say.

A record may be half written, of another version, or somebody else's: what is missing or of another
type is None or empty. A file is read again only after it has changed, so that a page that refreshes
every two seconds costs little.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from wherefrom.corpus.folding import fold_words
from wherefrom.errors import UserError, did_you_mean

Record = dict[str, Any]
Stamp = tuple[tuple[str, int, int, int], ...]

MAX_DEPTH = 4  # folders below the served one; twins lie two below their run
MAX_RUNS = 500
WALK_SECONDS = 1.0  # for which the names of runs are kept
NEW_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}")
SKIPPED_FOLDERS = {"checkpoints", "events", "world"}
MAX_METRICS_BYTES = 4_000_000  # of metrics.jsonl, from its end
MAX_RECORD_BYTES = 5_000_000
MAX_POINTS = 600
# the forms that records are read in, by example
METRICS = ("step", "loss", "lr", "seconds", "tokens_per_second", "progress", "recall")
POINT: Record = {"phase": "", **dict.fromkeys(METRICS, 0)}
SOURCE = {"path": "", "sha256": "", "documents": 0, "questions": 0}
ROW = {"name": "", "about": "", "correct": 0, "total": 0, "recall": 0, "seconds": 0}
MODEL = {"variant": "", "width": 0, "layers": 0, "heads": 0}
RUN = {
    "kind": "",
    "status": "",
    "started": "",
    "sha256": "",
    "seconds": 0,
    "steps": 0,
    "job": {"model": MODEL, "phases": [{"name": "", "share": 0}], "seed": 0},
    "command": [""],
    "templates": [""],
    "versions": {"*": ""},
    "data": {"*": SOURCE},
    "dev": SOURCE,
    "results": [ROW],
}
WITHOUT = {
    "twin_of": "",
    "subject": "",
    "question": "",
    "truth": "",
    "why": "",
    "score": 0,
    "notes": [""],
    "with": {"answer": ""},
    "without": {"answer": ""},
    "documents": [{"line": 0, "text": ""}],
    "where": {"tokens": [""], "with": 0, "without": 0, "places": {"*": [0]}},
}


class UnknownRunError(UserError):
    """There is no run of that name."""


def conform(value: Any, like: Any) -> Any:
    """The value in the form of an example: what is missing or of another type is None or empty.

    A key "*" of the example stands for any key. NaN, infinity and numbers beyond 2^53 are missing.
    """
    if isinstance(like, dict):
        value = value if isinstance(value, dict) else {}
        if "*" in like:
            return {key: conform(inner, like["*"]) for key, inner in value.items()}
        return {key: conform(value.get(key), inner) for key, inner in like.items()}
    if isinstance(like, list):
        return [conform(item, like[0]) for item in value[:1000]] if isinstance(value, list) else []
    if isinstance(like, str):
        return value[:500] if isinstance(value, str) else None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and abs(value) < 2**53 else None


def stamp_of(paths: Iterable[Path]) -> Stamp:
    """A value that changes when one of these files does, appears or disappears."""
    stamp = []
    for path in paths:
        with suppress(OSError):
            state = path.stat()
            stamp.append((path.name, state.st_ino, state.st_mtime_ns, state.st_size))
    return tuple(stamp)


@lru_cache(2 * MAX_RUNS)
def _read_once(function: Callable[[Path], Any], path: Path, stamp: Stamp) -> Any:
    """What the function makes of a file or folder, until its stamp changes."""
    return function(path)


def open_at_once(path: str, flags: int) -> int:
    """An opener that does not wait until somebody writes into a pipe."""
    return os.open(path, flags | os.O_NONBLOCK)


def read_end(path: Path, max_bytes: int) -> bytes:
    """The last bytes of a file; none of what is not a plain file."""
    with suppress(OSError), open(path, "rb", opener=open_at_once) as file:
        status = os.fstat(file.fileno())
        if stat.S_ISREG(status.st_mode):
            file.seek(max(0, status.st_size - max_bytes))
            return file.read(max_bytes)
    return b""


def read_record(path: Path) -> Record:
    """The JSON object in a file, empty if there is none that can be read."""
    content = read_end(path, MAX_RECORD_BYTES + 1)
    if 0 < len(content) <= MAX_RECORD_BYTES:
        with suppress(ValueError, RecursionError):
            record = json.loads(content)
            return record if isinstance(record, dict) else {}
    return {}


def _read_points(path: Path) -> list[Record]:
    """The recorded steps, thinned evenly; lines that are cut short or not a step are skipped."""
    points = []
    for line in read_end(path, MAX_METRICS_BYTES).splitlines():
        with suppress(ValueError, RecursionError):
            point = conform(json.loads(line), POINT)
            if point["step"] is not None:
                points.append({**point, "phase": point["phase"] or ""})
    every, last = math.ceil(len(points) / MAX_POINTS), len(points) - 1
    return [
        point
        for i, point in enumerate(points)
        if i % every == 0 or i == last or point["recall"] is not None
    ]


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
        self._runs: dict[str, Path] = {}
        self._answering: list[str] | None = None
        self._walked = -math.inf

    def runs(self) -> dict[str, Path]:
        """Name -> folder of every run, in the order of their names."""
        if time.monotonic() - self._walked >= WALK_SECONDS:
            self._runs, self._walked = dict(sorted(self._walk())), time.monotonic()
            self._answering = None
        return self._runs

    def _walk(self) -> Iterator[tuple[str, Path]]:
        """(name, folder) of runs; a link that leads out of the served folder is not followed."""
        start = self.root.parent if self.holds_one else self.root
        count = 0
        for path, folders, files in os.walk(self.root, followlinks=True):
            folder = Path(path)
            if "run.json" in files:
                count += 1
                yield folder.relative_to(start).as_posix(), folder
            if count >= MAX_RUNS or len(folder.relative_to(self.root).parts) >= MAX_DEPTH:
                folders.clear()
            folders[:] = [
                inner
                for inner in sorted(folders)
                if inner[0] != "." and inner not in SKIPPED_FOLDERS and inner.isprintable()
                if (folder / inner).resolve().is_relative_to(self.root)
            ]

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
        folders = self.runs()
        if self._answering is None:
            runs = [self.summary(name, folder) for name, folder in folders.items()]
            runs.sort(key=lambda run: (run["is_twin"], not run["calibrated"]))
            self._answering = [run["name"] for run in runs if run["can_answer"]]
        return self._answering

    def read(self, path: Path, like: Any) -> Record:
        """The JSON object in a file, in the form of an example."""
        return dict(conform(_read_once(read_record, path, stamp_of([path])), like))

    def stamp_of_records(self, folder: Path) -> Stamp:
        """A value that changes when a record that a report is made from does."""
        records = [*folder.glob("*"), *folder.glob("twins/*.json"), *folder.glob("twins/*/*.json*")]
        return stamp_of(sorted(records))

    def summary(self, name: str, folder: Path) -> Record:
        """What the list of runs shows of one."""
        record = self.read(folder / "run.json", RUN)
        model = record["job"]["model"]
        shape = [model[key] for key in ("width", "layers", "heads")]
        rows = [row for row in record["results"] if row["name"] == "model"]
        calibrated = (folder / "calibration.json").is_file()
        is_audit = calibrated and record["kind"] == "audit"  # whose model is elsewhere
        return {
            "name": name,
            "status": record["status"] or "unknown",
            **{key: record[key] for key in ("kind", "seconds", "steps", "started")},
            **{key: rows[0][key] if rows else None for key in ("recall", "correct", "total")},
            "variant": model["variant"],
            "size": "x".join(f"{number:g}" for number in shape) if all(shape) else None,
            "seed": record["job"]["seed"],
            "can_answer": is_audit or (folder / "model.safetensors").is_file(),
            "calibrated": calibrated,
            "is_twin": "/twins/" in f"/{name}",
        }

    def details(self, name: str, folder: Path) -> Record:
        """The summary, and beside it text, command, results and versions."""
        record = self.read(folder / "run.json", RUN)
        return {
            **self.summary(name, folder),
            **{key: record[key] for key in ("templates", "results", "versions", "sha256")},
            "command": ["wherefrom", *record["command"][1:]] if record["command"] else [],
            "data": [
                {
                    "what": what,
                    "file": os.path.basename(source["path"] or ""),
                    "sha256": source["sha256"] or "",
                    "count": source["documents"] or source["questions"],
                }
                for what, source in record["data"].items()
            ],
        }

    def text_files(self, folder: Path) -> list[str] | None:
        """The three files that a study was given, if they are still there."""
        record = self.read(folder / "run.json", RUN)
        sources = [record["data"].get("corpus"), record["data"].get("questions"), record["dev"]]
        paths = [str((source or SOURCE)["path"] or "") for source in sources]
        exist = all(path in record["command"] and os.path.exists(path) for path in paths)
        if record["kind"] == "study" and exist:
            return [str(Path(path).resolve()) for path in paths]
        return None

    def curve(self, folder: Path) -> list[Record]:
        """The training so far, thinned evenly; empty before the first line."""
        path = folder / "metrics.jsonl"
        points: list[Record] = _read_once(_read_points, path, stamp_of([path]))
        return points

    def progress(self, folder: Path) -> Record:
        """How far training has come: the share of all phases that is done, and the seconds left."""
        points = self.curve(folder)
        if not points:
            return {**dict.fromkeys(("phase", "loss", "recall", "left")), "share": 0.0, "step": 0}
        last, phases = points[-1], self.read(folder / "run.json", RUN)["job"]["phases"]
        share, names = last["progress"] or 0.0, [phase["name"] for phase in phases]
        if last["phase"] in names:
            i, shares = names.index(last["phase"]), [abs(phase["share"] or 1.0) for phase in phases]
            share = (sum(shares[:i]) + share * shares[i]) / sum(shares)
        share, seconds = min(1.0, max(0.0, share)), last["seconds"]
        left = seconds * (1 - share) / share if seconds and share > 0 else None
        recalls = [point["recall"] for point in points if point["recall"] is not None]
        kept = {key: last[key] for key in ("phase", "step", "loss")}
        return {**kept, "recall": recalls[-1] if recalls else None, "share": share, "left": left}

    def twins_without(self, folder: Path, subject: str | None = None) -> list[Record]:
        """What twins say that never read about the subject (about any if None), by their records.

        Twins of an earlier training in the same folder are left out.
        """
        weights = self.read(folder / "run.json", {"sha256": ""})["sha256"]
        twins = []
        for path in sorted(folder.glob("twins/without-*/without.json"))[:200]:
            if not path.resolve().is_relative_to(folder):
                continue
            record = self.read(path, {**WITHOUT, "people": [WITHOUT]})
            if record["twin_of"] != weights:
                continue
            people = record.pop("people") or [record]
            for person in people:
                name = fold_words(person["subject"] or "")
                if not person["why"] or not name:
                    continue
                if subject is None or name == fold_words(subject):
                    answers = {key: person[key]["answer"] for key in ("with", "without")}
                    twins.append({**person, **answers})
                    if len(people) > 1:
                        note = f"this twin was trained without {len(people)} subjects at once."
                        twins[-1]["notes"] = [*person["notes"], note]
        return twins
