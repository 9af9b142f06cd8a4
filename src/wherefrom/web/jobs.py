"""Texts that were uploaded, and trainings that were started from the page.

A training is `wherefrom study` in a session of its own, which outlives the page; a file beside the
runs records it, and Ctrl-C stops it. Its command is always composed here from checked fields:
nothing that lies in the served folder is run or imported.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field, FiniteFloat

from wherefrom.errors import UserError
from wherefrom.model.config import SIZES
from wherefrom.model.mixers import VARIANTS
from wherefrom.storage import make_folder, read_json, write_json, write_whole
from wherefrom.training.recipes import shipped_recipes
from wherefrom.web.runs import NEW_NAME, Record, RunIndex

FOLDER = ".wherefrom"  # inside the served folder
TEXTS = "texts"  # inside that one
LOG_TAIL = 4_000  # bytes of a log that are shown
SUFFIXES = {".txt", ".tsv", ".md", ".csv", ".json", ".jsonl", ".ndjson"}
EVERY = 5  # of the questions one is kept to judge by, where none were given for that
OPTIONS = ("subject_field", "text_field", "template")  # of `wherefrom study`
# the recipes that come with the package, the one for a first study before the others
RECIPES = sorted(shipped_recipes(), key=lambda name: (name != "pointed", name))


class TrainingRequest(BaseModel):
    """What a new training can be given; checked when the form comes in, and again on resume."""

    name: str = Field(max_length=100, description="a name for the new run")
    minutes: Annotated[float, Field(gt=0, le=600)] | Literal[""] = Field(
        "", description="how long to train; as long as it helps if empty"
    )
    recipe: str = Field("pointed", max_length=60)
    variant: str = Field("", max_length=60, description="the recipe's if empty")
    size: str = Field("", max_length=40, description="the recipe's if empty")
    seed: int = Field(0, ge=0, lt=2**31)
    people: int = Field(3000, ge=50, le=20_000, description="of the embedded world")
    texts_of: str = Field("", max_length=300, description="train on the files of this run instead")
    uploaded: bool = Field(False, description="train on the text that was uploaded for this name")


class TrainingRecord(BaseModel):
    """The file that is kept of a training; it may have been written by somebody else."""

    request: TrainingRequest
    pid: int
    since: FiniteFloat
    command: list[str]  # to be shown; what runs is composed again
    stopping: bool = False


class Trainings:
    """All trainings of one served folder, one at a time, and the texts uploaded for them."""

    def __init__(self, index: RunIndex) -> None:
        self.index = index
        self._folder = index.root / FOLDER
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
        """Send Ctrl-C: the training finishes its step, saves, and ends."""
        with self._lock:
            record = self._read(name)
            if record is None or not self._is_running(name):
                raise UserError(f'no training of "{name[:60]}" is going on that this page started.')
            os.kill(record.pid, signal.SIGINT)
            self._write(record.model_copy(update={"stopping": True}))
            return self.state(name) or {}

    def state(self, name: str) -> Record | None:
        """The state of the training of this run, or None if the page did not start it."""
        record = self._read(name)
        if record is None:
            return None
        out, running, log = self.index.root / name, self._is_running(name), b""
        in_twin = not (out / "run.json").is_file()
        summary = self.index.summary(name, out)
        finished = summary["status"] == "finished" and summary["recall"] is not None
        with suppress(OSError), open(self._folder / f"{name}.log", "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LOG_TAIL))
            log = file.read()
        return {
            "name": name,
            "running": running,
            "stopping": record.stopping and running,
            "finished": finished and not running,
            "resumable": not running and not finished,
            "stage": "the twin without pretraining" if in_twin else "the model",
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

    def _launch(self, request: TrainingRequest, *, resume: bool) -> Record:
        for state in self.all():
            if state["running"]:
                raise UserError(
                    f'"{state["name"]}" is training; one training at a time is enough for one '
                    "machine: wait for it, or stop it first."
                )
        command = self.compose(request) + ["--resume"] * resume
        # an empty entry would be the served folder itself, and a relative one a folder inside it
        paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        absolute = os.pathsep.join(os.path.abspath(path) for path in paths if path)
        make_folder(self._folder)
        with open(self._folder / f"{request.name}.log", "wb") as log:
            # the training inherits the lock with its output, and holds it until it ends
            fcntl.flock(log, fcntl.LOCK_EX)
            child = subprocess.Popen(
                # -P: a module in the served folder is not on the path of imports
                [sys.executable, "-P", "-m", "wherefrom", *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=self.index.root,
                env={**os.environ, "PYTHONPATH": absolute},
            )
        threading.Thread(target=child.wait, daemon=True).start()  # or it would stay as a zombie
        since = round(time.time(), 3)
        self._write(TrainingRecord(request=request, pid=child.pid, since=since, command=command))
        return self.state(request.name) or {}

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
            _, files, options = self._uploaded(request.name)
            text = [str(file) for file in files]
            for key, value in options.items():
                if value:
                    text.append(f"--{key.replace('_', '-')}={value}")
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

    def _is_running(self, name: str) -> bool:
        """Whether a training still holds the lock on its log."""
        try:
            with open(self._folder / f"{name}.log", "rb") as log:
                fcntl.flock(log, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as problem:
            return isinstance(problem, BlockingIOError)
        return False

    def _read(self, name: str) -> TrainingRecord | None:
        """The record of a training, or None if there is none that can be used."""
        if NEW_NAME.fullmatch(name):
            with suppress(UserError, OSError, ValueError):
                record = TrainingRecord.model_validate(read_json(self._folder / f"{name}.json"))
                return record if record.request.name == name else None
        return None

    def _write(self, record: TrainingRecord) -> None:
        write_json(self._folder / f"{record.request.name}.json", record.model_dump())

    # ---- texts

    def keep_text(
        self,
        name: str,
        corpus: Sequence[tuple[str, bytes]],
        train: bytes,
        dev: bytes,
        options: Mapping[str, str],
    ) -> Record:
        """Keep what was uploaded, and say how it is understood; nothing stays of what is refused.

        corpus: (name, content) of one file, or of many that become a folder.
        """
        self.index.new_folder(name)
        folder = self._folder / TEXTS / name
        shutil.rmtree(folder, ignore_errors=True)
        make_folder(folder)
        try:
            if len(corpus) > 1:
                for file, content in corpus:
                    path = Path(file.replace("\\", "/")).name
                    if path.startswith(".") or not path.isprintable():
                        raise UserError("each file of the text needs a plain name.")
                    write_whole(make_folder(folder / "corpus") / path, content)
            else:
                suffix = Path(corpus[0][0]).suffix.lower()
                suffix = suffix if suffix in SUFFIXES else ".txt"
                write_whole(folder / f"corpus{suffix}", corpus[0][1])
            if not dev.strip():
                lines = [line for line in train.splitlines(keepends=True) if line.strip()]
                dev = b"".join(lines[::EVERY])
                train = b"".join(line for i, line in enumerate(lines) if i % EVERY)
            write_whole(folder / "train.tsv", train)
            write_whole(folder / "dev.tsv", dev)
            write_json(folder / "options.json", {key: options.get(key, "") for key in OPTIONS})
            return self.describe_text(name)
        except UserError as problem:
            shutil.rmtree(folder, ignore_errors=True)
            raise UserError(str(problem).replace(f"{folder}/", "")) from None

    def describe_text(self, name: str) -> Record:
        """How the files are understood, as sentences; a UserError for what cannot be learned."""
        from wherefrom.corpus.facts import read_relations
        from wherefrom.corpus.formats import describe_readings
        from wherefrom.study import StudyFiles, read_input

        folder, paths, options = self._uploaded(name)
        templates = [options["template"]] if options["template"] else []
        fields = {key: options[key] or None for key in ("subject_field", "text_field")}
        study = read_input(StudyFiles(*paths), folder, templates=templates, **fields)
        documents, questions = study.corpus.documents, study.train.questions
        readings = read_relations(documents, questions)
        notes = [*study.notes, *describe_readings(readings, paths[1])]
        return {
            "name": name,
            "documents": len(documents),
            "questions": len(questions),
            "judged_by": len(study.dev.questions),
            "notes": [note.replace(f"{folder}/", "") for note in notes],
            "examples": [{"subject": one.subject, "text": one.text} for one in documents[:3]],
        }

    def _uploaded(self, name: str) -> tuple[Path, list[Path], dict[str, str]]:
        """The folder and the files of an uploaded text, and the options that it was given."""
        folder = self._folder / TEXTS / name
        if not NEW_NAME.fullmatch(name) or not (folder / "options.json").is_file():
            raise UserError(f'no text was uploaded for a run "{name[:60]}".')
        options = read_json(folder / "options.json")
        files = [*sorted(folder.glob("corpus*"))[:1], folder / "train.tsv", folder / "dev.tsv"]
        return folder, files, {key: str(options.get(key) or "") for key in OPTIONS}
