"""The runs of the served folder: found by name, with what their records say.

A record that is broken, changed or of another version is refused with a sentence. A file is read
again only after it has changed, so that a page that refreshes every two seconds costs little.
"""

from __future__ import annotations

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

from pydantic import BaseModel, ConfigDict

from wherefrom.corpus.folding import fold_words
from wherefrom.errors import UserError, did_you_mean
from wherefrom.storage import read_json
from wherefrom.training.record import JobRecord, RunRecord, check_file, read_record
from wherefrom.training.run_folder import AUDIT

Record = dict[str, Any]
Stamp = tuple[tuple[str, int, int, int, int], ...]

MAX_DEPTH = 4  # folders below the served one; twins lie two below their run
MAX_RUNS = 500
MAX_TWINS = 200
WALK_SECONDS = 1.0  # for which the names of runs are kept
NEW_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}")
SKIPPED_FOLDERS = {"checkpoints", "events", "world"}
MAX_METRICS_BYTES = 4_000_000  # of metrics.jsonl, from its end
MAX_POINTS = 600
RESULT_COLUMNS = ("name", "about", "correct", "total", "recall", "seconds")


class Point(BaseModel):
    """A line of metrics.jsonl, as far as it is drawn."""

    model_config = ConfigDict(allow_inf_nan=False)

    phase: str = ""
    step: int
    loss: float | None = None
    lr: float | None = None
    seconds: float | None = None
    tokens_per_second: float | None = None
    progress: float = 0.0
    recall: float | None = None


class UnknownRunError(UserError):
    """There is no run of that name."""


def stamp_of(paths: Iterable[str | Path]) -> Stamp:
    """A value that changes when one of these files does, appears or disappears.

    The time of the last change of a file's status, unlike that of its content, cannot be set.
    """
    stamp = []
    for path in paths:
        with suppress(OSError):
            state = os.stat(path)
            times = (state.st_mtime_ns, state.st_ctime_ns)
            stamp.append((str(path), state.st_ino, state.st_size, *times))
    return tuple(stamp)


@lru_cache(4 * MAX_RUNS)
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


def _read_points(path: Path) -> list[Record]:
    """The recorded steps, thinned evenly; lines that are cut short or not a step are skipped."""
    points = []
    for line in read_end(path, MAX_METRICS_BYTES).splitlines():
        with suppress(ValueError):
            points.append(Point.model_validate_json(line).model_dump())
    every, last = math.ceil(len(points) / MAX_POINTS), len(points) - 1
    return [
        point
        for i, point in enumerate(points)
        if i % every == 0 or i == last or point["recall"] is not None
    ]


def _read_record_or_none(folder: Path) -> RunRecord | None:
    with suppress(UserError):
        return read_record(folder)
    return None


def _read_twin(folder: Path) -> Record:
    """What is recorded of a twin without some subjects; empty if it is not as the twin wrote it."""
    with suppress(UserError):
        return dict(read_json(check_file(folder, "without.json"), dict))
    return {}


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

    def record(self, folder: Path) -> RunRecord | None:
        """The record of a run, None if it is broken."""
        record: RunRecord | None = _read_once(
            _read_record_or_none, folder, stamp_of([f"{folder}/run.json"])
        )
        return record

    def stamp_of_records(self, folder: Path) -> Stamp:
        """A value that changes when a record that a report is made from does."""
        records = [*folder.glob("*"), *folder.glob("twins/*.json"), *folder.glob("twins/*/*.json*")]
        return stamp_of(sorted(records))

    def summary(self, name: str, folder: Path) -> Record:
        """What the list of runs shows of one."""
        record = self.record(folder)
        calibrated = (folder / "calibration.json").is_file()
        summary: Record = {
            "name": name,
            "status": "unreadable",
            **dict.fromkeys(("kind", "seconds", "steps", "started", "seed", "variant", "size")),
            **dict.fromkeys(("recall", "correct", "total")),
            "can_answer": (folder / "model.safetensors").is_file(),
            "calibrated": calibrated,
            "is_twin": "/twins/" in f"/{name}",
        }
        if record is None:
            return summary
        shown = {key: getattr(record, key) for key in ("status", "kind", "steps", "started")}
        summary |= {**shown, "seconds": record.seconds or None, "seed": record.job.seed}
        if isinstance(record.job, JobRecord):
            model = record.job.model
            size = f"{model.width}x{model.layers}x{model.heads}"
            summary |= {"variant": model.variant, "size": size}
        for row in record.results:
            if row["name"] == "model":
                summary |= {key: row[key] for key in ("recall", "correct", "total")}
        if record.kind == AUDIT:  # whose model is elsewhere
            summary["can_answer"] = calibrated
        return summary

    def details(self, name: str, folder: Path) -> Record:
        """The summary, and beside it text, command, results and versions."""
        record = self.record(folder) or read_record(folder)  # which says what is wrong
        return {
            **self.summary(name, folder),
            "templates": list(record.templates),
            "results": [{key: row.get(key) for key in RESULT_COLUMNS} for row in record.results],
            "versions": record.versions,
            "sha256": record.sha256,
            "command": ["wherefrom", *record.command[1:]] if record.command else [],
            "data": [
                {
                    "what": what,
                    "file": os.path.basename(source.path),
                    "sha256": source.sha256,
                    "count": source.documents or source.questions,
                }
                for what, source in record.data.items()
            ],
        }

    def curve(self, folder: Path) -> list[Record]:
        """The training so far, thinned evenly; empty before the first line."""
        path = folder / "metrics.jsonl"
        points: list[Record] = _read_once(_read_points, path, stamp_of([path]))
        return points

    def progress(self, folder: Path) -> Record:
        """How far training has come: the share of all phases that is done, and the seconds left."""
        points, record = self.curve(folder), self.record(folder)
        if not points:
            return {**dict.fromkeys(("phase", "loss", "recall", "left")), "share": 0.0, "step": 0}
        last, share, seconds = points[-1], points[-1]["progress"], points[-1]["seconds"]
        phases = record.job.phases if record and isinstance(record.job, JobRecord) else ()
        names, shares = [phase.name for phase in phases], [phase.share for phase in phases]
        if last["phase"] in names:
            i = names.index(last["phase"])
            share = (sum(shares[:i]) + share * shares[i]) / sum(shares)
        share = min(1.0, max(0.0, share))
        left = seconds * (1 - share) / share if seconds and share > 0 else None
        recalls = [point["recall"] for point in points if point["recall"] is not None]
        kept = {key: last[key] for key in ("phase", "step", "loss")}
        return {**kept, "recall": recalls[-1] if recalls else None, "share": share, "left": left}

    def twins_without(self, folder: Path, subject: str | None = None) -> list[Record]:
        """What twins say that never read about the subject (about any if None), by their records.

        Twins of an earlier training in the same folder are left out.
        """
        run = self.record(folder)
        twins = []
        for twin in sorted(folder.glob("twins/without-*"))[:MAX_TWINS]:
            files = [twin / "without.json", twin / "run.json"]
            record = _read_once(_read_twin, twin, stamp_of(files))
            is_inside = twin.resolve().is_relative_to(folder)
            if run is None or not is_inside or record.get("twin_of") != run.sha256:
                continue
            people = record.get("people", [record])
            for person in people:
                if subject is None or fold_words(person["subject"]) == fold_words(subject):
                    answers = {key: person[key]["answer"] for key in ("with", "without")}
                    twins.append({**person, **answers})
                    if len(people) > 1:
                        note = f"this twin was trained without {len(people)} subjects at once."
                        twins[-1]["notes"] = [*person["notes"], note]
        return twins
