"""Trainings that were started from the page.

A training is `wherefrom study` under a supervisor (supervisor.py), in a session of its own, which
outlives the page. The page signals no process: to stop a training it writes a file, and the
supervisor interrupts its own child. The command is always composed here from checked fields:
nothing that lies in the served folder is run or imported.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field, FiniteFloat

from wherefrom.errors import UserError
from wherefrom.model.config import SIZES
from wherefrom.model.mixers import VARIANTS
from wherefrom.storage import make_folder, write_json, write_whole
from wherefrom.training.recipes import shipped_recipes
from wherefrom.web.runs import NEW_NAME, Record, RunIndex, open_at_once, read_end, read_record
from wherefrom.web.uploads import PRIVATE_FOLDER, UploadedText

LOG_TAIL_BYTES = 4_000  # that are shown
SUPERVISOR = "wherefrom.web.supervisor"
RECIPES = sorted(shipped_recipes())


class TrainingRequest(BaseModel):
    """What a new training can be given; checked when the form comes in, and again on resume."""

    name: str = Field(max_length=100, description="a name for the new run")
    minutes: Annotated[float, Field(gt=0, le=600)] | Literal[""] = Field(
        "", description="how long to train; as long as it helps if empty"
    )
    recipe: str = Field("", max_length=60, description="the default of `wherefrom study` if empty")
    variant: str = Field("", max_length=60, description="the recipe's if empty")
    size: str = Field("", max_length=40, description="the recipe's if empty")
    seed: int = Field(0, ge=0, lt=2**31)
    people: int = Field(3000, ge=50, le=20_000, description="of the embedded world")
    texts_of: str = Field("", max_length=300, description="train on the files of this run instead")
    uploaded: bool = Field(False, description="train on the text that was uploaded for this name")


class TrainingRecord(BaseModel):
    """The file that is kept of a training; it may have been written by somebody else."""

    request: TrainingRequest
    since: FiniteFloat
    command: list[str]  # to be shown; what runs is composed again


class Trainings:
    """All trainings of one served folder, one at a time."""

    def __init__(self, index: RunIndex) -> None:
        self.index = index
        self._folder = index.root / PRIVATE_FOLDER
        self._lock = threading.Lock()

    def start(self, request: TrainingRequest) -> Record:
        """Start a new training and return its state."""
        with self._lock:
            self.index.new_folder(request.name)
            return self._launch(request, resume=False)

    def resume(self, name: str) -> Record:
        """Continue a training that was stopped."""
        with self._lock:
            record = self._read(name)
            if record is None:
                raise UserError(
                    f'"{name[:60]}" was not started from this page; '
                    "repeat its command with --resume."
                )
            return self._launch(record.request, resume=(self.index.root / name).exists())

    def stop(self, name: str) -> Record:
        """Ask for what Ctrl-C does: the training finishes its step, saves, and ends."""
        with self._lock:
            if self._read(name) is None or not self._is_running(name):
                raise UserError(f'no training of "{name[:60]}" is going on that a page started.')
            write_whole(self._stop_file(name), "")
            return self.state(name) or {}

    def state(self, name: str) -> Record | None:
        """The state of the training of this run, or None if no page started it."""
        record = self._read(name)
        if record is None:
            return None
        out, running = self.index.root / name, self._is_running(name)
        in_twin = not (out / "run.json").is_file()
        summary = self.index.summary(name, out)
        finished = summary["status"] == "finished" and summary["recall"] is not None
        log = read_end(self._log_file(name), LOG_TAIL_BYTES)
        return {
            "name": name,
            "running": running,
            "stopping": running and self._stop_file(name).exists(),
            "finished": finished and not running,
            "resumable": not running and not finished,
            "stage": "the twin that learns from questions only" if in_twin else "the model",
            "progress": self.index.progress(out / "twins" / "scratch" if in_twin else out),
            "command": ["wherefrom", *record.command],
            "said": log.decode("utf-8", "replace").strip(),
            "since": record.since,
        }

    def all(self) -> list[Record]:
        """The state of every training, those that run first, then the latest."""
        names = [path.stem for path in sorted(self._folder.glob("*.json"))]
        states = [state for name in names if (state := self.state(name))]
        return sorted(states, key=lambda state: (not state["running"], -state["since"]))

    def running(self) -> list[str]:
        """The names of trainings that are running; one that is being started is waited for."""
        with self._lock:
            return [state["name"] for state in self.all() if state["running"]]

    def compose(self, request: TrainingRequest) -> list[str]:
        """The words of `wherefrom study` for a request, or UserError for what it does not take."""
        for what, chosen, known in (
            ("recipe", request.recipe, RECIPES),
            ("variant", request.variant, VARIANTS),
            ("size", request.size, SIZES),
        ):
            if chosen and chosen not in known:
                raise UserError(f"there is no {what} of that name; there are {', '.join(known)}.")
        text = ["--people", str(request.people)]
        if request.uploaded:
            text = UploadedText(self.index.root, request.name).study_arguments()
        elif request.texts_of:
            text = self.index.text_files(self.index.find(request.texts_of)) or []
            if not text:
                raise UserError("the files that this run learned from are not there any more.")
        words = ["study", *text, "--out", str(self.index.root / request.name)]
        words += ["--seed", str(request.seed)]
        for option in ("recipe", "variant", "size"):
            if chosen := getattr(request, option):
                words += [f"--{option}", chosen]
        if request.minutes:
            words += ["--minutes", f"{request.minutes:g}"]
        return words

    def _launch(self, request: TrainingRequest, *, resume: bool) -> Record:
        for state in self.all():
            if state["running"]:
                raise UserError(
                    f'"{state["name"]}" is training; one training at a time is enough for one '
                    "machine: wait for it, or stop it first."
                )
        command = self.compose(request) + ["--resume"] * resume
        make_folder(self._folder)
        record = TrainingRecord(request=request, since=round(time.time(), 3), command=command)
        write_json(self._folder / f"{request.name}.json", record.model_dump())
        stop_file, log_file = self._stop_file(request.name), self._log_file(request.name)
        stop_file.unlink(missing_ok=True)
        write_whole(log_file, "")  # a new file, whatever is there: a link is not followed
        with open(log_file, "ab") as log:
            # the training inherits the lock with its output, and holds it until it ends
            fcntl.flock(log, fcntl.LOCK_EX)
            supervisor = subprocess.Popen(
                # -P: a module in the served folder is not on the path of imports
                [sys.executable, "-P", "-m", SUPERVISOR, str(stop_file), *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=self.index.root,
                env=_safe_environment(),
            )
        # without a thread that waits for it, it would stay as a zombie
        threading.Thread(target=supervisor.wait, daemon=True).start()
        return self.state(request.name) or {}

    def _log_file(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _stop_file(self, name: str) -> Path:
        return self._folder / f"{name}.stop"

    def _is_running(self, name: str) -> bool:
        """Whether a training still holds the lock on its log."""
        try:
            with open(self._log_file(name), "rb", opener=open_at_once) as log:
                fcntl.flock(log, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as problem:
            return isinstance(problem, BlockingIOError)
        return False

    def _read(self, name: str) -> TrainingRecord | None:
        """The record of a training, or None if there is none that can be used."""
        if NEW_NAME.fullmatch(name):
            with suppress(ValueError):
                record = TrainingRecord.model_validate(read_record(self._folder / f"{name}.json"))
                return record if record.request.name == name else None
        return None


def _safe_environment() -> dict[str, str]:
    """This environment without relative folders in PYTHONPATH.

    An empty entry would be the served folder itself, and a relative one a folder inside it.
    """
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    absolute = os.pathsep.join(os.path.abspath(path) for path in paths if path)
    return {**os.environ, "PYTHONPATH": absolute}
