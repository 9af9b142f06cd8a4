"""Texts that were uploaded, and trainings that were started from the page.

A training is `wherefrom study` in a session of its own, which outlives the page: what is known of
it stands in a file beside the runs, and stopping it is Ctrl-C. Its command is always composed here
from checked fields: nothing that lies in the served folder is run or imported.
"""

from __future__ import annotations

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

from pydantic import BaseModel, Field

from wherefrom.errors import UserError
from wherefrom.model.config import SIZES
from wherefrom.model.mixers import VARIANTS
from wherefrom.storage import make_folder, read_json, write_json, write_whole
from wherefrom.training.recipes import shipped_recipes
from wherefrom.web.runs import NEW_NAME, Record, RunIndex

FOLDER = ".wherefrom"  # inside the served folder
LOG_TAIL = 4_000  # bytes of a log that are shown
SUFFIXES = {".txt", ".tsv", ".md", ".csv", ".json", ".jsonl", ".ndjson"}
EVERY = 5  # of the questions one is kept to judge by, where none were given for that
OPTIONS = ("subject_field", "text_field", "template")  # of `wherefrom study`
# the recipes that come with the package, the one for a first study before the others
RECIPES = sorted(shipped_recipes(), key=lambda name: (name != "speedrun", name))


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
            write_json(self._folder / f"{name}.json", {**known, "stopping": True})
            return self.state(name) or known

    def state(self, name: str) -> Record | None:
        """The state of the training of this run, or None if the page did not start it."""
        known = self._read(name)
        if known is None:
            return None
        out, running, log = self.index.root / name, _is_running(known), b""
        in_twin = not (out / "run.json").is_file()
        summary = self.index.summary(name, out)
        finished = summary["status"] == "finished" and summary["recall"] is not None
        with suppress(OSError), open(self._folder / f"{name}.log", "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LOG_TAIL))
            log = file.read()
        return {
            "name": name,
            "running": running,
            "stopping": bool(known.get("stopping")) and running,
            "finished": finished and not running,
            "resumable": not running and not finished,
            "stage": "the twin without pretraining" if in_twin else "the model",
            "progress": self.index.progress(out / "twins" / "scratch" if in_twin else out),
            "command": ["wherefrom", *known["command"]],
            "said": log.decode("utf-8", "replace").strip(),
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
        # an empty entry would be the served folder itself, and a relative one a folder inside it
        paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        absolute = os.pathsep.join(os.path.abspath(path) for path in paths if path)
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
                env={**os.environ, "PYTHONPATH": absolute},
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
        write_json(self._folder / f"{request.name}.json", record)
        self.index.refresh()
        return self.state(request.name) or record

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
            files, options = self._uploaded(request.name)
            given = [(key.replace("_", "-"), value) for key, value in options.items() if value]
            text = [*map(str, files), *(f"--{key}={value}" for key, value in given)]
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
            record = read_json(self._folder / f"{name}.json")
            request = {**record["request"], "name": name}
            TrainingRequest.model_validate(request)
            known = {"pid": int(record["pid"]), "since": float(record["since"])}
            command = [str(word) for word in record["command"]]
            return {**record, **known, "request": request, "command": command}
        except (UserError, OSError, LookupError, TypeError, ValueError):
            return None

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
        folder = self._text_folder(name)
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
                train = b"".join(line for at, line in enumerate(lines) if at % EVERY)
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

        folder, (paths, options) = self._text_folder(name), self._uploaded(name)
        templates = [options["template"]] if options["template"] else []
        fields = {key: options[key] or None for key in ("subject_field", "text_field")}
        read = read_input(StudyFiles(*paths), folder, templates=templates, **fields)
        readings = read_relations(read.corpus.documents, read.train.questions)
        notes = [*read.notes, *describe_readings(readings, paths[1])]
        first = read.corpus.documents[:3]
        return {
            "name": name,
            "documents": len(read.corpus.documents),
            "questions": len(read.train.questions),
            "judged_by": len(read.dev.questions),
            "notes": [note.replace(f"{folder}/", "") for note in notes],
            "examples": [{"subject": each.subject, "text": each.text} for each in first],
        }

    def _uploaded(self, name: str) -> tuple[list[Path], dict[str, str]]:
        """The files of an uploaded text, and the options that it was given."""
        folder = self._text_folder(name)
        if not (folder / "options.json").is_file():
            raise UserError(f'no text was uploaded for a run "{name[:60]}".')
        options = read_json(folder / "options.json")
        files = [*sorted(folder.glob("corpus*"))[:1], folder / "train.tsv", folder / "dev.tsv"]
        return files, {key: str(options.get(key) or "") for key in OPTIONS}

    def _text_folder(self, name: str) -> Path:
        return self._folder / "texts" / (name if NEW_NAME.fullmatch(name) else ".")


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
