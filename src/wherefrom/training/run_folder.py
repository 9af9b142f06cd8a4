"""Run folders: starting, loading, locking and finding a run."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from wherefrom.corpus.database import RUN_DATABASE
from wherefrom.corpus.tokenizer import Tokenizer
from wherefrom.errors import Printable, UserError
from wherefrom.model.config import make_config
from wherefrom.model.decoder import Decoder
from wherefrom.storage import make_folder, read_json
from wherefrom.training.record import (
    AnyJob,
    BaseJobRecord,
    JobRecord,
    RunRecord,
    SourceRecord,
    check_file,
    read_record,
    write_record,
)

LOCK_FILE = "run.lock"
MODEL_FILES = ("config.json", "tokenizer.json", "model.safetensors")
AUDIT = "audit"  # the kind of a run that holds no model of its own (wherefrom.audit)
BASE = "base"  # the kind of a study of a model that others trained (wherefrom.huggingface)
MODEL_FOLDER = "model"  # where such a study keeps what it trained
# what a folder may hold before its run starts
FOLDER_PARTS = {"checkpoints", "model", "model.part", "twins", "world", LOCK_FILE}
FOLDER_PARTS |= {"documents.tsv", "train.tsv", "dev.tsv"}  # converted from other formats
FOLDER_PARTS |= {RUN_DATABASE}
DECIDES_BITS = ("threads", "torch", "numpy", "tokenizers")  # versions that change rounding
# fields of a job that are hashes of texts
HASHED_FIELDS = ("corpus", "documents", "parent", "questions", "stopping_questions", "vocabulary")
MAX_RUN_DEPTH = 3  # how many folders below `runs` a run may lie to be found as the newest


@dataclass(frozen=True, repr=False)
class Run(Printable):
    """A trained model with its vocabulary and its records."""

    folder: Path
    model: Decoder
    tokens: Tokenizer
    record: RunRecord

    @property
    def templates(self) -> tuple[str, ...]:
        """The wordings of its questions, if it learned any."""
        return self.record.templates

    @property
    def job(self) -> JobRecord:
        """What it was trained on and how, without the run that it started from."""
        job = self.record.job
        assert isinstance(job, JobRecord)
        return job

    def measure(self, question: str) -> tuple[int, int]:
        """Tokens of a question with the one that ends it, at most; and how many the model reads."""
        longest = self.model.config.longest_input
        byte_count = len(question.encode())
        if self.tokens.kind == "bpe" and byte_count < longest:  # each token has a byte or more
            return byte_count + 1, longest
        return len(self.tokens.encode(question)) + 1, longest

    def summary(self) -> list[tuple[str, str]]:
        config, record = self.model.config, self.record
        shape = f"{config.variant}, {config.width}x{config.layers}x{config.heads}"
        rows = [(str(self.folder), f"{record.kind}, {record.status}"), ("model", shape)]
        rows.append(("questions", "; ".join(self.templates)))
        counts = [(row["name"], f"{row['correct']} of {row['total']}") for row in record.results]
        return rows + counts


@contextmanager
def lock_run(folder: Path) -> Iterator[None]:
    """Keep other processes out of a run folder; a UserError names the process that is in it.

    The lock ends with the process, however that ends. The thread that holds it may take it again.
    """
    try:
        import fcntl  # which Windows does not have
    except ModuleNotFoundError:
        raise UserError(
            "a run folder is locked as Linux and macOS lock files; on Windows, use Wherefrom in "
            "WSL (Windows Subsystem for Linux)."
        ) from None
    key, thread = folder.resolve(), threading.get_ident()
    if _locked.get(key) == thread:
        yield
        return
    try:
        opened = open(folder / LOCK_FILE, "a+", encoding="utf-8")  # noqa: SIM115
    except OSError as problem:
        raise UserError(
            f"{folder} cannot be written to: {problem.strerror}; use a copy that can be."
        ) from None
    with opened as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise UserError(
                f"{folder} is in use by {file.read() or 'another process'}; wait until it ends."
            ) from None
        except OSError:
            pass  # a file system without locks
        with suppress(OSError):  # on a full disk the lock holds without a name in it
            file.truncate(0)
            os.write(file.fileno(), f"process {os.getpid()} on {socket.gethostname()}".encode())
        _locked[key] = thread
        try:
            yield
        finally:
            del _locked[key]
            file.truncate(0)


_locked: dict[Path, int] = {}  # folder -> the thread of this process that holds its lock


def check_folder(folder: Path, *, resume: bool) -> None:
    """Refuse a folder in which a run can neither start nor go on; writes nothing."""
    if is_run(folder):
        if not resume:
            raise UserError(
                f"{folder} already holds a run; add --resume to go on with it, or choose another "
                "--out."
            )
        return
    try:
        exists = folder.exists()
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else [folder.name]
        parent = next(parent for parent in folder.resolve().parents if parent.exists())
    except OSError as problem:
        raise UserError(
            f"{str(folder)[:60]} cannot be made: {problem.strerror}; choose another --out."
        ) from None
    if exists and any(
        name not in FOLDER_PARTS and not name.startswith(".run.json.") for name in names
    ):
        raise UserError(f"{folder} exists and is not a run; choose another --out.")
    if not exists and not (parent.is_dir() and os.access(parent, os.W_OK)):
        raise UserError(
            f"{folder} cannot be made: {parent} is no folder that can be written to; use one that "
            "can be."
        )


def open_folder(folder: Path, job: AnyJob, *, resume: bool) -> None:
    """Make the folder of a new run, or check that the run in it has the same job."""
    check_folder(folder, resume=resume)
    if is_run(folder):
        jobs = read_record(folder).job, job
        before, after = (_leaves(each.model_dump(mode="json")) for each in jobs)
        for key in sorted({*before, *after}):
            if before.get(key) != after.get(key):
                change = f"{key} was {before.get(key)} and is now {after.get(key)}"
                if key in HASHED_FIELDS:
                    change = f"the text of its {key} changed since it started"
                raise UserError(
                    f"{folder} cannot be resumed: {change}; repeat the first command, or choose "
                    "another --out."
                )
    make_folder(folder)


def _leaves(record: Any, prefix: str = "") -> dict[str, Any]:
    """The values of a nested record, under keys such as "phases.0.lr"."""
    if not isinstance(record, Mapping | list):
        return {prefix[:-1]: record}
    leaves: dict[str, Any] = {}
    for name, value in record.items() if isinstance(record, Mapping) else enumerate(record):
        leaves |= _leaves(value, f"{prefix}{name}.")
    return leaves


def is_run(folder: str | Path) -> bool:
    """Whether a folder holds a run, finished or not."""
    try:
        return str(folder) != "" and (Path(folder) / "run.json").is_file()
    except (OSError, ValueError):  # a question is no path: too long, or with a NUL in it
        return False


def is_finished(folder: Path) -> bool:
    """Whether the folder holds a run that needs no more training, or an audit that is complete."""
    if not is_run(folder):
        return False
    record = read_record(folder)
    has_weights = (folder / "model.safetensors").exists() or record.kind == AUDIT
    has_weights |= isinstance(record.job, BaseJobRecord) and (folder / MODEL_FOLDER).is_dir()
    return has_weights and record.status == "finished"


def start_run(
    folder: Path, job: AnyJob, details: Mapping[str, Any], say: Callable[[str], None]
) -> None:
    """Write run.json as training starts or goes on; `say` why a resumed run may end differently."""
    before = read_record(folder) if is_run(folder) else None
    now = {
        "commit": commit(),
        "python": platform.python_version(),
        "threads": str(torch.get_num_threads()),
        **{name: version(name) for name in ("wherefrom", "torch", "numpy", "tokenizers")},
    }
    fields = {
        "command": tuple(sys.argv),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        **(dict(before) if before else {}),
        **details,
        "job": job,
        "status": "training",
        "versions": now,
    }
    was = before.versions if before else {}
    changed = [key for key in DECIDES_BITS if was.get(key, now[key]) != now[key]]
    if before and changed:
        fields["earlier_versions"] = (*before.earlier_versions, was)
        names = ", ".join(f"{key} was {was[key]} and is now {now[key]}" for key in changed)
        say(
            f"{folder} resumes under other conditions ({names}), so its weights may differ in the "
            "last bits from those of an uninterrupted run."
        )
    write_record(folder, RunRecord.model_validate(fields))


def commit() -> str:
    """The git commit of this source, or "unknown"."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    try:
        answer = subprocess.check_output(command, stderr=subprocess.DEVNULL, text=True, timeout=5)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return answer.strip()


def load_run(folder: str | Path, *, device: torch.device | str = "cpu") -> Run:
    """Load a finished run, or raise a UserError that says what is missing or does not fit."""
    folder = Path(folder)
    if not is_run(folder):
        raise UserError(f"{folder} is not a run: it holds no run.json.")
    record = read_record(folder)
    if record.kind == AUDIT:
        raise UserError(
            f"{folder} is the audit of a model that others trained: ask, judge, report and serve "
            "work on it, and nothing that needs a model trained by Wherefrom."
        )
    if isinstance(record.job, BaseJobRecord):
        raise UserError(
            f"{folder} is the study of a model that others trained: ask, judge, report, serve, "
            "trace, twins, forget, attention and export work on it, and nothing that needs a "
            "model of Wherefrom's own kind."
        )
    if record.status != "finished":
        raise UserError(
            f"the run {folder} has not finished training; go on with it by repeating its command "
            "with --resume."
        )
    for name in MODEL_FILES:
        check_file(folder, name, record)
    fields = read_json(folder / "config.json", dict)
    fields.pop("tokens", None)
    model = Decoder(make_config(**fields))
    broken = folder / "tokenizer.json"
    try:
        tokens = Tokenizer.from_json(broken.read_text(encoding="utf-8"))
        broken = folder / "model.safetensors"
        model.load_state_dict(load_file(broken, device=str(device)))
    except (OSError, RuntimeError, ValueError, KeyError, TypeError):
        raise UserError(f"{broken} is missing, broken, or not of this model's shape.") from None
    return Run(folder=folder, model=model.to(device).eval(), tokens=tokens, record=record)


def find_newest_run(below: str | Path = "runs") -> Path:
    """The finished run that was started last; the twins inside a run do not count."""
    patterns = ["[!.]*/" * depth + "run.json" for depth in range(1, MAX_RUN_DEPTH + 1)]
    runs = {record.parent for pattern in patterns for record in Path(below).glob(pattern)}
    finished = []
    for folder in runs:
        with suppress(UserError):  # a broken record
            if runs.isdisjoint(folder.parents) and is_finished(folder):
                finished.append((read_record(folder).started, str(folder)))
    if not finished:
        raise UserError(
            f"there is no finished run below {below}; name the folder of one, or make one with "
            f"`wherefrom study --out {below}/study`."
        )
    return Path(max(finished)[1])


def describe_file(path: Path, digest: str, folder: Path, **counts: int) -> SourceRecord:
    """How run.json records a file (or a parent run), for `find_source`."""
    return SourceRecord(
        path=os.path.abspath(path),
        relative_path=os.path.relpath(path, folder),
        sha256=digest,
        **counts,
    )
