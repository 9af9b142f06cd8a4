"""The record of a run: run.json as one typed, versioned object, and the hashes of the run's files.

A run is one whole. `RunRecord.files` has the SHA-256 of every file of the folder that a verdict or
a report depends on, and `data` those of the text and the questions; run.json has a checksum of its
own. A file is compared with its hash whenever it is read: all of its bytes, since its size and time
can stay the same when it changes (150 MB take 0.1 to 0.3 s). What does not match is refused, or
made again where that is possible, with a sentence that names the file.
"""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from wherefrom.corpus.database import FORMAT, RUN_DATABASE, Database
from wherefrom.errors import UserError
from wherefrom.model.config import ModelConfig
from wherefrom.storage import Content, read_json, sha256_of, sync_folder, write_all, write_json
from wherefrom.training.recipes import Phase

RECORD_FILE = "run.json"
CHECKSUM = "checksum"  # the key of run.json for the hash of everything else in it

TRAIN_AGAIN = "put it back from a copy of the run, or train again with another --out"
GO_ON = "repeat the command that made the run, with --resume"
JUDGE_AGAIN = "make it again with `wherefrom judge`"
# every file of a run that a verdict or a report depends on -> what to do if it is not the run's
RUN_FILES = {
    "config.json": TRAIN_AGAIN,
    "tokenizer.json": TRAIN_AGAIN,
    "model.safetensors": TRAIN_AGAIN,
    "snapshots": TRAIN_AGAIN,  # the folder of one file, whose name is a number of steps
    "model": TRAIN_AGAIN,  # the folder of a model of others, or of its adapter
    "metrics.jsonl": TRAIN_AGAIN,
    "pace.jsonl": TRAIN_AGAIN,
    "twins/scratch/model.safetensors": TRAIN_AGAIN,
    RUN_DATABASE: GO_ON,
    "before.json": GO_ON,
    "knowledge.json": GO_ON,
    "calibration.json": GO_ON,
    "judgement.json": JUDGE_AGAIN,
    "names.json": "make it again with `wherefrom names`",
    "origins.json": "make it again with `wherefrom names`",
    "leaning.json": "make it again with `wherefrom trace --unseen`",
    "gradients.safetensors": "make it again with `wherefrom trace`",
    "twins/twins.json": "make it again with `wherefrom twins`",
    "without.json": "make it again with `wherefrom twins --without`",
}


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SourceRecord(_Part):
    """A file, or a parent run, that a run learned from or was asked."""

    path: str
    relative_path: str
    sha256: str
    documents: int | None = None
    questions: int | None = None


class JobRecord(_Part):
    """All that decides the weights of a run; it must be the same when the run is resumed.

    Texts are there as hashes. without: lines of the text that have no loss; twin_of: the weights of
    the run that is repeated without them.
    """

    kind: str
    model: ModelConfig
    phases: tuple[Phase, ...]
    seed: int
    zero_init: bool
    tokens: str
    vocabulary: str | None = None
    corpus: str | None = None
    documents: str | None = None
    questions: str | None = None
    parent: str | None = None
    stopping_questions: str | None = None
    twin_of: str | None = None
    without: tuple[int, ...] = ()


class AuditJobRecord(_Part):
    """All that decides the answers and the confidence of an audit."""

    weights: str
    questions: str
    unseen: str | None
    documents: str | None = None
    prompt: str | None
    shots: int
    risk: float
    seed: int


class BaseJobRecord(_Part):
    """All that decides the weights of a model of others that is trained on a text.

    base, weights: where the model was, and the hash of its weights. prompt: what a question is put
    into. rank, alpha: of the adapters, None where all weights are trained. Texts are there as
    hashes. without, twin_of: as in a JobRecord.
    """

    base: str
    weights: str
    corpus: str
    documents: str | None
    questions: str | None
    prompt: str
    wording: Literal["plain", "chat"]
    rank: int | None
    alpha: int | None
    rate: float
    schedule: str = "linear"
    warmup_steps: int
    clip: float
    weight_decay: float = 0.0
    batch: int
    steps: int
    reads_documents: bool = True
    risk: float
    seed: int
    twin_of: str | None = None
    without: tuple[int, ...] = ()


AnyJob = JobRecord | AuditJobRecord | BaseJobRecord


class TextShown(_Part):
    """Shares of the text's tokens that training rows show, and that are learned."""

    shown: float
    learned: float


class PassesRecord(_Part):
    """How often a phase went over the text or the questions, and how often the recipe does.

    recipe_passes: None if the recipe trains for minutes.
    """

    phase: str
    over: Literal["text", "questions"]
    steps: int
    passes: float
    recipe_passes: float | None


class RunRecord(_Part):
    """What run.json says about a run.

    sha256: of the weights. model: where the model of others is, for an audit. results, judgement:
    tables, as the report prints them. files: path inside the folder -> SHA-256;
    replacing: the same for a file that is about to take the place of one of them.
    """

    format: Literal[6] = FORMAT
    kind: str
    status: Literal["training", "stopped", "failed", "finished"]
    job: AnyJob
    command: tuple[str, ...] = ()
    started: str = ""
    versions: dict[str, str] = {}
    earlier_versions: tuple[dict[str, str], ...] = ()
    templates: tuple[str, ...] = ()
    data: dict[str, SourceRecord] = {}
    dev: SourceRecord | None = None
    left_out: tuple[str, ...] = ()
    not_learned: tuple[str, ...] = ()
    about_people: bool = True  # its subjects have names as people have
    endings: tuple[tuple[str, str], ...] = ()
    recipe: str = ""
    rung: str = ""
    text_shown: TextShown | None = None
    model: str = ""
    sha256: str = ""
    steps: int = 0
    trained_tokens: int = 0
    seconds: float = 0.0
    earlier_seconds: float = 0.0  # of the runs that it started from
    peak_mb: float = 0.0
    passes: tuple[PassesRecord, ...] = ()
    results: tuple[dict[str, Any], ...] = ()
    notes: tuple[str, ...] = ()
    judgement: dict[str, Any] | None = None
    forgot: dict[str, Any] | None = None
    files: dict[str, str] = {}
    replacing: dict[str, str] = {}

    def for_card(self) -> dict[str, Any]:
        """What the card of an exported model says about the run."""
        kept = {"templates", "data", "dev", "results", "command"}
        return self.model_dump(mode="json", include=kept, exclude_none=True)

    @property
    def sources(self) -> dict[str, SourceRecord]:
        """What it learned from, and the questions that it was evaluated on, by name."""
        return {**self.data, **({"dev": self.dev} if self.dev else {})}


# ---- reading and writing run.json


def read_record(folder: str | Path) -> RunRecord:
    """The record of a run; a UserError if it is missing, broken, changed or of another version."""
    path = Path(folder) / RECORD_FILE
    fields = read_json(path, dict)
    version = fields.get("format")
    if version != FORMAT:
        raise UserError(
            f"{path} is of another version of Wherefrom (format {version!r:.20}, and this version "
            f"reads {FORMAT}); use the version that made the run, or train again."
        )
    if fields.pop(CHECKSUM, None) != _checksum(fields):
        raise UserError(f"{path} has changed since Wherefrom wrote it; {TRAIN_AGAIN}.")
    try:
        return RunRecord.model_validate(fields)
    except ValidationError as problem:
        first: Any = problem.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UserError(f"{path} is broken ({where}: {first['msg']}); {TRAIN_AGAIN}.") from None


def write_record(folder: Path, record: RunRecord) -> None:
    fields = record.model_dump(mode="json")
    write_json(folder / RECORD_FILE, {**fields, CHECKSUM: _checksum(fields)})


def update_run(folder: Path, *, wrote: tuple[str, ...] = (), **details: Any) -> RunRecord:
    """Replace fields of run.json, and record the hashes of files that were just written.

    Nothing is written where nothing changes. Other processes that do the same wait.
    """
    with _updating(folder):
        before = read_record(folder)
        hashes = {name: sha256_of(folder / name) for name in wrote}
        replacing = {name: sha for name, sha in before.replacing.items() if name not in hashes}
        files = {"files": {**before.files, **hashes}, "replacing": replacing}
        after = RunRecord.model_validate({**dict(before), **details, **files})
        if after != before:
            write_record(folder, after)
        return after


@contextmanager
def _updating(folder: Path) -> Iterator[None]:
    """Let one process at a time read and replace run.json, where the system has such locks."""
    handle = None
    with suppress(ModuleNotFoundError, OSError):  # Windows; a file system without locks
        import fcntl

        handle = os.open(folder, os.O_RDONLY)
        fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)


def _checksum(fields: Mapping[str, Any]) -> str:
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()


# ---- the files of a run


def keep_files(folder: Path, contents: Mapping[str, Content], **details: Any) -> RunRecord:
    """Write files of a run and record their hashes; `details` are fields of run.json."""
    write_all({folder / name: content for name, content in contents.items()})
    return update_run(folder, wrote=tuple(contents), **details)


def update_database(folder: Path, change: Callable[[Database], None], **details: Any) -> RunRecord:
    """Change the database of a run, a new one if it has none; `details` are fields of run.json.

    A copy is changed and takes the place of the file. Before it does, run.json has the hashes of
    both. So whenever this is stopped, the file is one that the run wrote.
    """
    file = folder / RUN_DATABASE
    with _updating(folder):
        before = read_record(folder)
        for abandoned in folder.glob(f".{RUN_DATABASE}.*"):  # by a process that was killed
            abandoned.unlink()
        copy = folder / f".{RUN_DATABASE}.{secrets.token_hex(8)}"
        try:
            if file.exists():
                with Database.open(check_file(folder, RUN_DATABASE, before)) as database:
                    database.copy_to(copy)
            else:
                with Database() as database:
                    database.save(copy)
            with Database.open(copy) as database:
                change(database)
            hashes = {RUN_DATABASE: sha256_of(copy)}
            write_record(folder, before.model_copy(update={"replacing": hashes}))
            os.replace(copy, file)
            sync_folder(folder)
        except (OSError, sqlite3.OperationalError) as problem:
            reason = getattr(problem, "strerror", None) or problem
            raise UserError(
                f"{file} cannot be written: {reason}; what was there before is unchanged."
            ) from None
        finally:
            copy.unlink(missing_ok=True)
        files = {"files": {**before.files, **hashes}, "replacing": {}}
        after = RunRecord.model_validate({**dict(before), **details, **files})
        write_record(folder, after)
        return after


def find_problem(folder: Path, name: str, record: RunRecord | None = None) -> str | None:
    """What is wrong with a file of a run, as a sentence; None if it is as the run wrote it.

    A file that the run did not write, such as one of another run, is wrong as well.
    """
    record = record or read_record(folder)
    recorded = {hashes[name] for hashes in (record.files, record.replacing) if name in hashes}
    path = folder / name
    remedy = RUN_FILES.get(name) or RUN_FILES[name.split("/")[0]]
    if not path.is_file():
        return f"{path} is missing; {remedy}." if recorded else None
    if not recorded:
        return f"{path} is not of this run, which did not write it; {remedy}."
    try:
        matches = sha256_of(path) in recorded
    except OSError as problem:
        return f"{path} cannot be read: {problem.strerror}; {remedy}."
    return None if matches else f"{path} is not the file that the run wrote; {remedy}."


def discard_changed(folder: Path, name: str) -> None:
    """Delete a file of a run that is not as the run wrote it, so that it is made again."""
    if (folder / name).is_file() and find_problem(folder, name) is not None:
        (folder / name).unlink()


def check_file(folder: Path, name: str, record: RunRecord | None = None) -> Path:
    """The path of a file of a run; a UserError if it is not as the run wrote it, or not there."""
    problem = find_problem(folder, name, record)
    if problem is None and not (folder / name).is_file():
        problem = f"{folder} holds no {name}."
    if problem is not None:
        raise UserError(problem)
    return folder / name
