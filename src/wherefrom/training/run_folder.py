"""Run folders: starting, loading and locking a run, its checkpoints, and what it learned from.

A run folder can be moved or copied. Its text and questions are looked for at their old place and
beside the run, and only files with the recorded hash are accepted. A checkpoint is two files:
`step-N.safetensors` has weights and optimizer state; `step-N.json`, written last, has all other
state and the hash of the first. The newest two are kept.
"""

from __future__ import annotations

import json
import os
import platform
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter
from safetensors.torch import load_file, save
from torch import Tensor, nn
from torch.optim import Optimizer

from wherefrom.corpus.batches import StreamPosition
from wherefrom.corpus.database import RUN_DATABASE, Database, read_documents
from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.questions import QuestionSet, question_rows, read_questions
from wherefrom.corpus.split import read_learned
from wherefrom.corpus.tokenizer import Tokenizer
from wherefrom.errors import Printable, UserError
from wherefrom.model.config import make_config
from wherefrom.model.decoder import Decoder
from wherefrom.storage import (
    digest_of,
    make_folder,
    read_json,
    sha256_of,
    write_json,
    write_whole,
)
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
HASHED_FIELDS = (
    "corpus",
    "documents",
    "parent",
    "questions",
    "stopping_questions",
    "vocabulary",
)  # keys of a job
MAX_RUN_DEPTH = 3  # how many folders below `runs` a run may lie to be found as the newest
KEPT_CHECKPOINTS = 2
SNAPSHOT_FOLDER, SNAPSHOT_AT, SNAPSHOT_RATIO = "snapshots", 0.38, 1.25
SNAPSHOT_STEPS = frozenset(round(4 * SNAPSHOT_RATIO**k) for k in range(80))


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
        """Tokens of a question with the one that ends it, and how many the model reads."""
        return len(self.tokens.encode(question)) + 1, self.model.config.longest_input

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
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
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


@dataclass(frozen=True)
class SourceFile:
    """A file or parent run that the run in `folder` learned from."""

    what: str  # corpus, questions, dev or parent
    folder: Path
    run: RunRecord  # of that folder
    record: SourceRecord  # what it says about the file

    @property
    def noun(self) -> str:
        return {"corpus": "corpus", "parent": "run"}.get(self.what, "question file")

    def locate(self) -> Path:
        """Where it is now: at its old place, the same one relative to the run, or in the run."""
        path, changed = self._find()
        if path is not None:
            return path
        problem = f"the {self.noun} {self.record.path} that {self.folder} learned from is not there"
        problem += " any more"
        if changed:
            problem = f"{changed} has changed since {self.folder} learned from it"
        raise UserError(
            f"{problem}; put the {self.noun} back, or put a copy of it into {self.folder}."
        )

    def describe_change(self) -> str | None:
        """A sentence if the file is there and is not what it was; None also if it is gone."""
        path, changed = self._find()
        if path is not None or changed is None:
            return None
        return (
            f"{changed} has changed since {self.folder} learned from it; what is said here is "
            f"about the {self.noun} as it was."
        )

    def _find(self) -> tuple[Path | None, Path | None]:
        """Where it is unchanged; and else, where it is changed."""
        old = Path(self.record.path)
        moved = Path(os.path.normpath(self.folder / self.record.relative_path))
        changed = None
        for path in (old, moved, self.folder / "world" / old.name, self.folder / old.name):
            file = path / "model.safetensors" if self.what == "parent" else path
            if file.is_file():
                if sha256_of(file) == self.record.sha256:
                    return path, None
                changed = changed or path
        return None, changed

    def check_part(self, what: str, digest: str | None) -> None:
        """Refuse texts that are not those that the run learned from, by their hash."""
        if digest != getattr(self.run.job, what):
            raise UserError(
                f"{self.folder} learned from a part of {self.record.path}, and run.json does "
                "not say which; train again."
            )


def find_source(run: Run, what: str) -> SourceFile | None:
    """The corpus, questions or dev questions that a run or its parents learned from, if any."""
    folder, record = run.folder, run.record
    while True:
        sources = record.sources
        if what in sources:
            return SourceFile(what, folder, record, sources[what])
        if "parent" not in sources:
            return None
        folder = SourceFile("parent", folder, record, sources["parent"]).locate()
        record = read_record(folder)


def describe_changes(run: Run) -> list[str]:
    """A sentence for each file that the run learned from and that has changed since."""
    sources = [find_source(run, what) for what in ("corpus", "questions")]
    changes = [source.describe_change() for source in sources if source is not None]
    return [change for change in changes if change]


def read_learned_documents(source: SourceFile) -> Database:
    """The documents that the run learned: its file without subjects and lines left out."""
    lines = set(getattr(source.run.job, "without", ()))
    corpus = _open_documents(source)
    if corpus is None:
        corpus = read_documents(source.locate())
        subjects = set(map(fold_words, source.run.left_out))
        if subjects:
            corpus = corpus.select(lambda document: fold_words(document.subject) not in subjects)
        source.check_part("documents", corpus.documents_sha256)
    return corpus.select(lambda document: document.line not in lines) if lines else corpus


def _open_documents(source: SourceFile) -> Database | None:
    """The database in the run folder, if it is of the documents that the run learned."""
    with suppress(UserError):
        database = Database.open(check_file(source.folder, RUN_DATABASE))
        expected = {"source_sha256": source.record.sha256}
        expected["documents_sha256"] = getattr(source.run.job, "documents", None) or ""
        if expected.items() <= database.about.items():
            return database
        database.close()
    return None


def read_learned_questions(source: SourceFile) -> QuestionSet:
    """The questions that the run learned: those of its database, or else of its file.

    The file also has the subjects that were set aside or left out.
    """
    stored = _stored_questions(source)
    if stored is not None:
        return stored
    file = read_questions(source.locate(), source.run.templates)
    excluded = (*source.run.left_out, *source.run.not_learned)
    gone = set(map(fold_words, excluded))
    kept = tuple(q for q in file.questions if fold_words(q.subject) not in gone)
    source.check_part("questions", digest_of(question_rows(kept)))
    return replace(file, questions=kept)


def _stored_questions(source: SourceFile) -> QuestionSet | None:
    """The training questions in the database of the run, if they are those that it learned."""
    with suppress(UserError):
        with Database.open(check_file(source.folder, RUN_DATABASE)) as database:
            questions = tuple(read_learned(database))
        if questions and digest_of(question_rows(questions)) == source.run.job.questions:
            path, templates = Path(source.record.path), source.run.templates
            return QuestionSet(path, source.record.sha256, templates, questions)
    return None


@dataclass(frozen=True)
class Segment:
    """From `step` on, the progress of a phase is `progress`, plus `per_step` for each step."""

    phase: int
    step: int
    progress: float
    per_step: float


@dataclass
class TrainingState:
    """Where a training is: all its numbers that are not tensors."""

    phase: int = 0
    step: int = 0  # in this phase
    total_steps: int = 0
    place: StreamPosition = field(default_factory=StreamPosition)
    seconds: float = 0.0  # of training, in this phase
    total_seconds: float = 0.0
    tokens: int = 0
    pending_losses: list[float] = field(default_factory=list)  # of steps that are not logged yet
    logged_tokens: int = 0  # tokens and seconds at the last line of metrics.jsonl
    logged_seconds: float = 0.0
    segments: list[Segment] = field(default_factory=list)
    recalls: list[tuple[int, float]] = field(default_factory=list)  # in this phase: step, share
    phase_steps: list[int] = field(default_factory=list)  # of the phases that have ended

    def add_step(self, seconds: float, tokens: int, loss: float, position: StreamPosition) -> None:
        """Count a step; position: that of the next batch."""
        self.step += 1
        self.total_steps += 1
        self.seconds += seconds
        self.total_seconds += seconds
        self.tokens += tokens
        self.pending_losses.append(loss)
        self.place = position

    def end_phase(self) -> None:
        """Go on to the next phase."""
        self.phase_steps.append(self.step)
        self.phase, self.step, self.seconds = self.phase + 1, 0, 0.0
        self.place, self.recalls = StreamPosition(), []


def save_checkpoint(
    folder: Path,
    state: TrainingState,
    model: nn.Module,
    optimizers: Sequence[Optimizer] = (),
    writes: bool = True,
) -> None:
    """Write a checkpoint and delete old ones; all processes call it, and one of them `writes`."""
    tensors = {f"model/{name}": tensor for name, tensor in whole_weights(model).items()}
    for index, optimizer in enumerate(optimizers):
        for parameter, moments in optimizer.state_dict()["state"].items():
            for key, tensor in moments.items():
                tensors[f"optimizer/{index}/{parameter}/{key}"] = tensor.contiguous()
    if not writes:
        return
    make_folder(folder)
    stem = f"step-{state.total_steps:09d}"
    digest = save_weights(folder / f"{stem}.safetensors", tensors)
    write_json(folder / f"{stem}.json", {"sha256": digest, "progress": asdict(state)})
    for old in sorted(folder.glob("step-*.json"))[:-KEPT_CHECKPOINTS]:
        old.unlink()
    for weights in folder.glob("step-*.safetensors"):
        if not weights.with_suffix(".json").exists():
            weights.unlink()
    for torn in folder.glob(".step-*"):  # left half written by a kill
        torn.unlink()


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint read back."""

    state: TrainingState
    tensors: dict[str, Tensor]

    def restore_model(self, model: nn.Module) -> None:
        prefix, tensors = "model/", self.tensors
        names = [name for name in tensors if name.startswith(prefix)]
        model.load_state_dict({name.removeprefix(prefix): tensors[name] for name in names})

    def restore_optimizers(self, optimizers: Sequence[Optimizer]) -> None:
        states: list[dict[int, dict[str, Tensor]]] = [{} for _ in optimizers]
        for name, tensor in self.tensors.items():
            if name.startswith("optimizer/"):
                _, index, number, key = name.split("/")
                states[int(index)].setdefault(int(number), {})[key] = tensor
        for optimizer, state in zip(optimizers, states, strict=True):
            optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def load_checkpoint(folder: Path) -> Checkpoint | None:
    """The newest checkpoint whose hash is right, or None."""
    for record in sorted(folder.glob("step-*.json"), reverse=True):
        weights = record.with_suffix(".safetensors")
        with suppress(OSError, ValueError, KeyError, TypeError):  # cut short or missing
            content = json.loads(record.read_text(encoding="utf-8"))
            if content["sha256"] != sha256_of(weights):
                continue
            state = TypeAdapter(TrainingState).validate_python(content["progress"])
            return Checkpoint(state, load_file(weights))
    return None


# ---- the weights after about a third of the steps, for traces: once an answer is learned, its
# gradient says less. Where training will end is not known before, so a few candidates are kept


def save_snapshot(folder: Path, step: int, weights: dict[str, Tensor]) -> None:
    """Write RUN/snapshots/STEP.safetensors, and delete candidates that are too early by now."""
    save_weights(make_folder(folder / SNAPSHOT_FOLDER) / f"{step}.safetensors", weights)
    for other, path in _snapshots(folder).items():
        if other < step * SNAPSHOT_AT / SNAPSHOT_RATIO:
            path.unlink()


def choose_snapshot(folder: Path, steps: int) -> tuple[str, ...]:
    """Of a run that took `steps` steps, keep only the snapshot nearest to SNAPSHOT_AT of them.

    Returns the name of its file, if there is one.
    """
    candidates = _snapshots(folder)
    best = min(candidates, key=lambda step: abs(step - SNAPSHOT_AT * steps), default=0)
    for step, path in candidates.items():
        if step != best:
            path.unlink()
    return (f"{SNAPSHOT_FOLDER}/{best}.safetensors",) if candidates else ()


def load_snapshot(folder: Path) -> dict[str, Tensor]:
    """The weights by name that the run kept from its training; {} if it kept none."""
    record = read_record(folder)
    for name in record.files:
        if name.startswith(f"{SNAPSHOT_FOLDER}/"):
            return load_file(check_file(folder, name, record))
    return {}


def _snapshots(folder: Path) -> dict[int, Path]:
    return {int(path.stem): path for path in (folder / SNAPSHOT_FOLDER).glob("[0-9]*.safetensors")}


def whole_weights(model: nn.Module) -> dict[str, Tensor]:
    """The weights by name."""
    return {name: tensor.contiguous() for name, tensor in model.state_dict().items()}


def save_weights(path: Path, weights: dict[str, Tensor]) -> str:
    """Write tensors by name as a file; returns its hash."""
    write_whole(path, save(weights))
    return sha256_of(path)
