"""Trainings that were started from the page: processes of their own, which outlive it.

Each is `wherefrom study` in a session of its own. What is known of it stands in a file beside the
runs, so a server that was closed and started again finds its trainings; stopping one is Ctrl-C,
after which it can be resumed. A command is always composed here from checked fields: nothing that
lies in the served folder is run or imported.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from wherefrom.errors import UserError
from wherefrom.model.config import SIZES
from wherefrom.model.mixers import VARIANTS
from wherefrom.storage import make_folder, read_json, write_json
from wherefrom.training.recipes import shipped_recipes
from wherefrom.web.runs import NEW_NAME, Record, RunIndex
from wherefrom.web.texts import FOLDER, Texts

LOG_TAIL = 4_000  # bytes of a log that are shown


class TrainingRequest(BaseModel):
    """What a new training can be given; checked when the form comes in, and again on resume."""

    name: str = Field(max_length=100, description="a name for the new run")
    minutes: Annotated[float, Field(gt=0, le=600)] | Literal[""] = Field(
        "", description="how long to train; as long as it helps if empty"
    )
    recipe: str = Field("speedrun", max_length=60)
    variant: str = Field("", max_length=60, description="the recipe's if empty")
    size: str = Field("", max_length=40, description="the recipe's if empty")
    seed: int = Field(0, ge=0, lt=2**31)
    people: int = Field(3000, ge=50, le=20_000, description="of the embedded world")
    texts_of: str = Field("", max_length=300, description="train on the files of this run instead")
    uploaded: bool = Field(False, description="train on the text that was uploaded for this name")


class Trainings:
    """All trainings of one served folder, one at a time."""

    def __init__(self, index: RunIndex) -> None:
        self.index = index
        self.texts = Texts(index)
        self._folder = index.root / FOLDER
        self._lock = threading.Lock()

    def start(self, request: TrainingRequest) -> Record:
        """Start a new training and return its state."""
        with self._lock:
            self.index.new_folder(request.name)
            return self._launch(request, resume=False)

    def resume(self, name: str) -> Record:
        """Go on with a training that was stopped."""
        with self._lock:
            known = self._read(name)
            if known is None:
                raise UserError(
                    f'"{name[:60]}" was not started from this page; '
                    "repeat its command with --resume."
                )
            request = TrainingRequest.model_validate(known["request"])
            return self._launch(request, resume=(self.index.root / name).exists())

    def stop(self, name: str) -> Record:
        """Ctrl-C: it finishes its step, saves, and ends."""
        with self._lock:
            known = self._read(name)
            if known is None or not _is_running(known):
                raise UserError(f'no training of "{name[:60]}" is going on that this page started.')
            os.kill(known["pid"], signal.SIGINT)
            write_json(self._file(name), {**known, "stopping": True})
            return self.state(name) or known

    def state(self, name: str) -> Record | None:
        """The state of the training of this run, or None if the page did not start it."""
        known = self._read(name)
        if known is None:
            return None
        out, running = self.index.root / name, _is_running(known)
        in_twin = not (out / "run.json").is_file()
        summary = self.index.summary(name, out)
        finished = summary["status"] == "finished" and summary["recall"] is not None
        return {
            "name": name,
            "running": running,
            "stopping": bool(known.get("stopping")) and running,
            "finished": finished and not running,
            "resumable": not running and not finished,
            "stage": "the twin without pretraining" if in_twin else "the model",
            "progress": self.index.progress(out / "twins" / "scratch" if in_twin else out),
            "command": ["wherefrom", *known["command"]],
            "said": self._log_tail(name),
            "since": known["since"],
        }

    def all(self) -> list[Record]:
        """The state of every training, those that run first, then the latest."""
        names = [path.stem for path in sorted(self._folder.glob("*.json"))]
        found = [state for name in names if (state := self.state(name))]
        return sorted(found, key=lambda state: (not state["running"], -state["since"]))

    def close(self) -> list[str]:
        """The names of trainings that go on, once none is halfway started."""
        with self._lock:
            return [state["name"] for state in self.all() if state["running"]]

    def _launch(self, request: TrainingRequest, *, resume: bool) -> Record:
        running = next((state for state in self.all() if state["running"]), None)
        if running is not None:
            raise UserError(
                f'"{running["name"]}" is training; one training at a time is enough for one '
                "machine: wait for it, or stop it first."
            )
        command = self.compose(request) + ["--resume"] * resume
        make_folder(self._folder)
        with open(self._folder / f"{request.name}.log", "wb") as log:
            child = subprocess.Popen(
                # -P: a module in the served folder is not on the path of imports
                [sys.executable, "-P", "-m", "wherefrom", *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=self.index.root,
                env=_environment(),
            )
        # it may outlive this server; if not, its end must be noticed
        threading.Thread(target=child.wait, daemon=True).start()
        record = {
            "request": request.model_dump(),
            "pid": child.pid,
            "born": birth_of(child.pid),
            "since": round(time.time(), 3),
            "command": command,  # to be shown; what runs is composed again
        }
        write_json(self._file(request.name), record)
        self.index.refresh()
        return self.state(request.name) or record

    def compose(self, request: TrainingRequest) -> list[str]:
        """The words of `wherefrom study` for a request, or UserError for what it does not take."""
        for what, chosen, known in (
            ("recipe", request.recipe, recipe_names()),
            ("variant", request.variant, VARIANTS),
            ("size", request.size, SIZES),
        ):
            if chosen and chosen not in known:
                raise UserError(f"there is no {what} of that name; there are {', '.join(known)}.")
        text = ["--people", str(request.people)]
        if request.uploaded:
            text = self.texts.words(request.name)
        elif request.texts_of:
            text = self.index.text_files(self.index.find(request.texts_of)) or []
            if not text:
                raise UserError("the files that this run learned from are not there any more.")
        return [
            *("study", *text, "--out", str(self.index.root / request.name)),
            *("--recipe", request.recipe, "--seed", str(request.seed)),
            *(("--minutes", f"{request.minutes:g}") if request.minutes else ()),
            *(("--variant", request.variant) if request.variant else ()),
            *(("--size", request.size) if request.size else ()),
        ]

    def _read(self, name: str) -> Record | None:
        """The file of a training, if it is one of ours."""
        if not NEW_NAME.fullmatch(name):
            return None
        try:
            record = read_json(self._file(name))
            TrainingRequest.model_validate(record["request"])
            known = {"pid": int(record["pid"]), "since": float(record["since"])}
            command = [str(word) for word in record["command"]]
            request = {**record["request"], "name": name}
            return {**record, **known, "request": request, "command": command}
        except (UserError, OSError, LookupError, TypeError, ValueError):
            return None

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.json"

    def _log_tail(self, name: str) -> str:
        try:
            with open(self._folder / f"{name}.log", "rb") as log:
                log.seek(max(0, os.fstat(log.fileno()).st_size - LOG_TAIL))
                return log.read().decode("utf-8", "replace").strip()
        except OSError:
            return ""


def recipe_names() -> list[str]:
    """The recipes that come with the package, the one for a first study before the others."""
    return sorted(shipped_recipes(), key=lambda name: (name != "speedrun", name))


def _is_running(known: Record) -> bool:
    born = known.get("born")
    return born is not None and birth_of(known["pid"]) == born


def birth_of(pid: int) -> str | None:
    """When a process was born, so that another of the same number is not taken for it."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        return None if fields[0] in "ZX" else fields[19]
    except (OSError, IndexError):
        if os.path.isdir("/proc/self"):
            return None
    found = subprocess.run(  # macOS and other systems without /proc
        ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return found.stdout.strip() or None


def _environment() -> dict[str, str]:
    """This process's, with a PYTHONPATH that means the same in the served folder.

    An empty entry would be the served folder itself, and a relative one a folder inside it.
    """
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    absolute = [os.path.abspath(path) for path in paths if path]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(absolute)}
