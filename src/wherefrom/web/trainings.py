"""Trainings that were started from the page, one at a time.

A training is `wherefrom study` as a child of the page, which is signalled by its handle alone and
ends with the page. The command is always composed here from checked fields: nothing that lies in
the served folder is run or imported.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from wherefrom.errors import UserError
from wherefrom.model.config import SIZES
from wherefrom.model.mixers import VARIANTS
from wherefrom.storage import make_folder, write_json, write_whole
from wherefrom.training.recipes import shipped_recipes
from wherefrom.web.runs import NEW_NAME, Record, RunIndex, read_end
from wherefrom.web.uploads import PRIVATE_FOLDER, UploadedText

LOG_TAIL_BYTES = 4_000  # that are shown
MAX_REQUEST_BYTES = 10_000
NICENESS = "5"  # so that the page answers while a training runs
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
    uploaded: bool = Field(False, description="train on the text that was uploaded for this name")


class Trainings:
    """The trainings of one served folder; `.wherefrom/NAME.json` is the request for each."""

    def __init__(self, index: RunIndex) -> None:
        self.index = index
        self._folder = index.root / PRIVATE_FOLDER
        self._lock = threading.Lock()
        self._name = ""  # of the training that was started last
        self._process: subprocess.Popen[bytes] | None = None
        self._is_stopping = False

    def start(self, request: TrainingRequest) -> Record:
        """Start a new training and return its state."""
        with self._lock:
            self.index.new_folder(request.name)
            return self._launch(request, resume=False)

    def resume(self, name: str) -> Record:
        """Continue a training that was stopped."""
        with self._lock:
            request = self._read(name)
            if request is None:
                raise UserError(
                    f'"{name[:60]}" was not started from this page; '
                    "repeat its command with --resume."
                )
            return self._launch(request, resume=(self.index.root / name).exists())

    def stop(self, name: str) -> Record:
        """Do what Ctrl-C does: the training finishes its step, saves, and ends."""
        with self._lock:
            if self.running() != name:
                raise UserError(f'no training of "{name[:60]}" is going on that this page started.')
            self.interrupt()
            return self.state(name) or {}

    def interrupt(self) -> None:
        """Interrupt the training that is running, if any."""
        if self._process is not None and self._process.poll() is None and not self._is_stopping:
            self._process.send_signal(signal.SIGINT)
            self._is_stopping = True

    def running(self) -> str | None:
        """The name of the training that is running, if any."""
        is_running = self._process is not None and self._process.poll() is None
        return self._name if is_running else None

    def state(self, name: str) -> Record | None:
        """The state of the training of this run, or None if no page started it."""
        if self._read(name) is None:
            return None
        out, running = self.index.root / name, self.running() == name
        in_twin = not (out / "run.json").is_file()
        summary = self.index.summary(name, out)
        finished = summary["status"] == "finished" and summary["recall"] is not None
        log = read_end(self._log_file(name), LOG_TAIL_BYTES)
        return {
            "name": name,
            "running": running,
            "stopping": running and self._is_stopping,
            "finished": finished and not running,
            "resumable": not running and not finished,
            "stage": "the twin that learns from questions only" if in_twin else "the model",
            "progress": self.index.progress(out / "twins" / "scratch" if in_twin else out),
            "said": log.decode("utf-8", "replace").strip(),
        }

    def all(self) -> list[Record]:
        """The state of every training, the one that runs first."""
        names = [path.stem for path in sorted(self._folder.glob("*.json"))]
        states = [state for name in names if (state := self.state(name))]
        return sorted(states, key=lambda state: not state["running"])

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
        words = ["study", *text, "--out", str(self.index.root / request.name)]
        words += ["--seed", str(request.seed)]
        for option in ("recipe", "variant", "size"):
            if chosen := getattr(request, option):
                words += [f"--{option}", chosen]
        if request.minutes:
            words += ["--minutes", f"{request.minutes:g}"]
        return words

    def _launch(self, request: TrainingRequest, *, resume: bool) -> Record:
        if running := self.running():
            raise UserError(
                f'"{running}" is training; one training at a time is enough for one machine: wait '
                "for it, or stop it first."
            )
        command = self.compose(request) + ["--resume"] * resume
        make_folder(self._folder)
        write_json(self._folder / f"{request.name}.json", request.model_dump())
        log_file = self._log_file(request.name)
        write_whole(log_file, "")  # a new file, whatever is there: a link is not followed
        with open(log_file, "ab") as log:
            self._process = subprocess.Popen(
                # -P: a module in the served folder is not on the path of imports
                ["nice", "-n", NICENESS, sys.executable, "-P", "-m", "wherefrom", *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C in a terminal reaches it by the page alone
                cwd=self.index.root,
                env=_safe_environment(),
            )
        self._name, self._is_stopping = request.name, False
        return self.state(request.name) or {}

    def _log_file(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _read(self, name: str) -> TrainingRequest | None:
        """The request for a training, which may have been written by somebody else, or None."""
        if NEW_NAME.fullmatch(name):
            with suppress(ValueError):
                text = read_end(self._folder / f"{name}.json", MAX_REQUEST_BYTES)
                request = TrainingRequest.model_validate_json(text)
                return request if request.name == name else None
        return None


def _safe_environment() -> dict[str, str]:
    """This environment without relative folders in PYTHONPATH.

    An empty entry would be the served folder itself, and a relative one a folder inside it.
    """
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    absolute = os.pathsep.join(os.path.abspath(path) for path in paths if path)
    return {**os.environ, "PYTHONPATH": absolute}
