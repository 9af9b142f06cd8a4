"""Trainings that were started from the page: processes of their own, which outlive it.

Each is `wherefrom study` in a session of its own. What is known of it stands in a file beside the
runs, so a server that was closed and started again finds its trainings where they are; stopping
one is Ctrl-C, after which it can be resumed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wherefrom.errors import UserError
from wherefrom.storage import make_folder, read_json, write_json
from wherefrom.web.runs import RunIndex, progress_of, summarise

KEPT = ".wherefrom"  # the folder of these files, inside the served one
AT_ONCE = 1
LAST_WORDS = 4_000  # bytes of a log that are shown


@dataclass(frozen=True)
class TrainingRequest:
    """What somebody asked for on the page, checked field by field where it came in."""

    name: str
    minutes: float
    recipe: str
    variant: str | None
    size: str | None
    seed: int
    people: int
    files: tuple[str, ...] = ()

    def command(self, out: Path) -> list[str]:
        words = ["study", *self.files, "--out", str(out), "--recipe", self.recipe]
        words += ["--minutes", f"{self.minutes:g}", "--seed", str(self.seed)]
        if not self.files:
            words += ["--people", str(self.people)]
        if self.variant:
            words += ["--variant", self.variant]
        if self.size:
            words += ["--size", self.size]
        return words


class Trainings:
    """All trainings of one served folder."""

    def __init__(self, shelf: RunIndex) -> None:
        self.shelf = shelf
        self._folder = shelf.root / KEPT
        self._turn = threading.Lock()

    def start(self, wish: TrainingRequest) -> dict[str, Any]:
        """Start a new training and return what is known of it."""
        with self._turn:
            out = self.shelf.place_for(wish.name)
            self._refuse_too_many()
            return self._launch(wish.name, wish.command(out))

    def resume(self, name: str) -> dict[str, Any]:
        """Go on with a training that was stopped."""
        with self._turn:
            known = self._read(name)
            if known is None:
                raise UserError(
                    f'"{name[:60]}" was not started from this page; '
                    "repeat its command with --resume."
                )
            if known["running"]:
                raise UserError(f'"{name}" is training already.')
            self._refuse_too_many()
            started = (Path(known["out"]) / "run.json").exists() or Path(known["out"]).exists()
            words = [word for word in known["command"] if word != "--resume"]
            return self._launch(name, [*words, "--resume"] if started else words)

    def stop(self, name: str) -> dict[str, Any]:
        """Ctrl-C: it finishes its step, saves, and ends."""
        with self._turn:
            known = self._read(name)
            if known is None or not known["running"]:
                raise UserError(f'no training of "{name[:60]}" is going on that this page started.')
            os.kill(known["pid"], signal.SIGINT)
            known["stopping"] = True
            write_json(self._file(name), {k: v for k, v in known.items() if k != "running"})
            return self.of(name) or known

    def of(self, name: str) -> dict[str, Any] | None:
        """What is known of the training of this run, or None if the page did not start it."""
        known = self._read(name)
        if known is None:
            return None
        out = Path(known["out"])
        twin, whole = out / "twins" / "scratch", summarise(name, out)
        in_twin = not (out / "run.json").is_file()
        stage = "the twin without pretraining" if in_twin else "the model"
        done = whole["status"] == "finished" and whole["recall"] is not None
        return {
            "name": name,
            "running": known["running"],
            "stopping": bool(known.get("stopping")) and known["running"],
            "finished": done and not known["running"],
            "resumable": not known["running"] and not done,
            "stage": stage,
            "progress": progress_of(twin if in_twin else out),
            "command": ["wherefrom", *known["command"]],
            "said": "" if known["running"] else self._last_words(name),
            "since": known["since"],
        }

    def all(self) -> list[dict[str, Any]]:
        """Every training that the page knows of, those that run first, then the latest."""
        if not self._folder.is_dir():
            return []
        names = [path.stem for path in sorted(self._folder.glob("*.json"))]
        found = [known for name in names if (known := self.of(name))]
        return sorted(found, key=lambda known: (not known["running"], -known["since"]))

    def leave(self) -> list[str]:
        """Wait until no training is halfway started; the names of those that go on."""
        with self._turn:
            return [known["name"] for known in self.all() if known["running"]]

    def _refuse_too_many(self) -> None:
        running = [known["name"] for known in self.all() if known["running"]]
        if len(running) >= AT_ONCE:
            raise UserError(
                f'"{running[0]}" is training; one training at a time is enough for one machine: '
                "wait for it, or stop it first."
            )

    def _launch(self, name: str, words: list[str]) -> dict[str, Any]:
        make_folder(self._folder)
        with open(self._folder / f"{name}.log", "wb") as log:
            child = subprocess.Popen(
                [sys.executable, "-m", "wherefrom", *words, "--quiet"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=self.shelf.root,
            )
        # it may outlive this server; if not, somebody has to notice its end
        threading.Thread(target=child.wait, daemon=True).start()
        record = {
            "name": name,
            "pid": child.pid,
            "born": birth_of(child.pid),
            "since": round(time.time(), 3),
            "out": str(self.shelf.root / name),
            "command": words,
        }
        write_json(self._file(name), record)
        self.shelf.forget()
        return self.of(name) or record

    def _read(self, name: str) -> dict[str, Any] | None:
        path = self._file(name)
        if "/" in name or "\0" in name or name.startswith(".") or not path.is_file():
            return None
        try:
            record = read_json(path)
            born = record["born"]
            running = born is not None and birth_of(int(record["pid"])) == born
            known = {**record, "running": running, "command": [str(w) for w in record["command"]]}
            known["since"] = float(record["since"])
            inside = Path(known["out"]).resolve().is_relative_to(self.shelf.root)
        except (UserError, KeyError, TypeError, ValueError):
            return None
        return known if inside else None

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.json"

    def _last_words(self, name: str) -> str:
        try:
            with open(self._folder / f"{name}.log", "rb") as log:
                log.seek(max(0, os.fstat(log.fileno()).st_size - LAST_WORDS))
                return log.read().decode("utf-8", "replace").strip()
        except OSError:
            return ""


def birth_of(pid: int) -> str | None:
    """When a process was born, so that another of the same number is not taken for it."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        return None if fields[0] in "ZX" else fields[19]
    except (OSError, IndexError):
        pass
    if os.path.isdir("/proc/self"):
        return None
    found = subprocess.run(  # macOS and other systems without /proc
        ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return found.stdout.strip() or None
