"""Run folders: starting and loading a run, finding the newest, and finding what a run learned from.

A run folder can be moved or copied. Whoever needs its text or its questions gets them from
`read_learned_documents` and `read_learned_questions`, which look for the recorded files and accept
only those whose hash is the recorded one.
"""

from __future__ import annotations

import fcntl
import os
import platform
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from wherefrom.corpus.documents import Corpus, read_documents
from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.questions import Question, QuestionSet, read_questions
from wherefrom.corpus.subjects import LEFT_OUT, SET_ASIDE, SUBJECTS_FILE, read_subjects
from wherefrom.corpus.tokenizer import Tokenizer
from wherefrom.errors import UserError
from wherefrom.model.config import make_config
from wherefrom.model.decoder import Decoder
from wherefrom.results import Printable
from wherefrom.storage import make_folder, read_json, sha256_of, write_json
from wherefrom.training.checkpoint import load_weights

FORMAT = 1
LOCK = "run.lock"
PARTS = {
    "documents.tsv",
    "twins",
    "world",
    LOCK,
}  # what a study may put into a folder before its model is started
DECIDES_BITS = ("threads", "torch", "numpy", "tokenizers")  # of `versions`, by rounding
CONTENT = {  # what a job knows by its hash alone
    "corpus": "the corpus has",
    "documents": "the documents have",
    "parent": "the run that it goes on from has",
    "questions": "the questions have",
    "vocabulary": "the text that its vocabulary comes from has",
}
DEEPEST = 3  # folders below the one that is searched for the newest run
MOST_PARENTS = 20  # runs that a run may go back to, one finetuned from the other


@dataclass(frozen=True, repr=False)
class Run(Printable):
    """A trained model with its vocabulary and its records."""

    folder: Path
    model: Decoder
    tokens: Tokenizer
    info: dict[str, Any]

    @property
    def templates(self) -> tuple[str, ...]:
        """How its questions are worded, if it was taught any."""
        return tuple(self.info.get("templates", ()))

    def summary(self) -> list[tuple[str, str]]:
        config, info = self.model.config, self.info
        shape = f"{config.variant}, {config.width}x{config.layers}x{config.heads}"
        rows = [(str(self.folder), f"{info.get('kind')}, {info.get('status')}"), ("model", shape)]
        rows.append(("questions", "; ".join(self.templates)))
        results = info.get("results") or ()
        return rows + [(row["name"], f"{row['correct']} of {row['total']}") for row in results]


@contextmanager
def lock_run(folder: Path) -> Iterator[None]:
    """Keep other processes out of a run folder, or raise a UserError that names who is in it.

    The kernel holds the lock on `run.lock` and releases it when the process ends in whatever way,
    so that a dead process keeps nobody out. The thread that holds a lock may take it again.
    """
    key, thread = folder.resolve(), threading.get_ident()
    if _locked.get(key) == thread:
        yield
        return
    with open(folder / LOCK, "a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            owner = file.read() or "another process"
            raise UserError(
                f"{folder} is in use by {owner}; wait until it ends, or choose another --out."
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
    """Refuse a folder that a run can neither start nor go on in; touch nothing."""
    if (folder / "run.json").exists():
        if not resume:
            raise UserError(
                f"{folder} already holds a run; add --resume to go on with it, "
                "or choose another --out."
            )
    elif folder.exists():
        inside = [path.name for path in folder.iterdir()] if folder.is_dir() else [folder.name]
        if any(name not in PARTS and not name.startswith(".run.json.") for name in inside):
            raise UserError(f"{folder} exists and is not a run; choose another --out.")


def open_folder(folder: Path, job: Mapping[str, Any], *, resume: bool) -> None:
    """Make the folder of a new run, or check that an old one is of this very job.

    `job` is everything that decides the weights. It is written down when a run starts, and a
    resumed run must match it key by key.
    """
    check_folder(folder, resume=resume)
    if is_run(folder):
        before, after = dict(_leaves(read_json(folder / "run.json").get("job"))), dict(_leaves(job))
        for key in sorted({*before, *after}):
            was, now = before.get(key), after.get(key)
            if was != now:
                change = f"{key} was {was} and is now {now}"
                if key in CONTENT:
                    change = f"{CONTENT[key]} changed since it started"
                raise UserError(
                    f"{folder} cannot be resumed: {change}; repeat the first command, or choose "
                    "another --out."
                )
    make_folder(folder)


def _leaves(record: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Each value of a nested record, under a key such as "phases.0.lr"."""
    if not isinstance(record, Mapping | list):
        yield key, record
        return
    for name, value in record.items() if isinstance(record, Mapping) else enumerate(record):
        yield from _leaves(value, f"{key}.{name}" if key else str(name))


def is_run(folder: str | Path) -> bool:
    """Whether a folder holds a run, finished or not."""
    try:
        return str(folder) != "" and (Path(folder) / "run.json").is_file()
    except (OSError, ValueError):  # a question is no path: too long, or with a NUL in it
        return False


def is_finished(folder: Path) -> bool:
    """Whether the folder holds a run that needs no more training."""
    has_weights = (folder / "model.safetensors").exists()
    return has_weights and read_json(folder / "run.json").get("status") == "finished"


def start_run(
    folder: Path, job: Mapping[str, Any], details: Mapping[str, Any], say: Callable[[str], None]
) -> None:
    """Write run.json as training starts or goes on; `say` when a resumed run may end otherwise."""
    path = folder / "run.json"
    before = read_json(path) if path.exists() else {}
    now = versions()
    info = {
        "format": FORMAT,
        "job": job,
        "command": sys.argv,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        **before,
        **details,
        "status": "training",
        "versions": now,
    }
    was = before.get("versions", {})
    changed = [key for key in DECIDES_BITS if was.get(key, now[key]) != now[key]]
    if changed:
        info["earlier_versions"] = [*before.get("earlier_versions", []), was]
        names = ", ".join(f"{key} was {was[key]} and is now {now[key]}" for key in changed)
        say(
            f"{folder} goes on under other conditions than it started in, so its weights will "
            f"not be those of an uninterrupted run to the last bit: {names}."
        )
    write_json(path, info)


def update_run(folder: Path, **details: Any) -> dict[str, Any]:
    """Add to run.json what has become known."""
    info: dict[str, Any] = {**read_json(folder / "run.json"), **details}
    write_json(folder / "run.json", info)
    return info


def load_run(folder: str | Path, *, device: torch.device | str = "cpu") -> Run:
    """Load a finished run; what is missing or does not fit is one sentence."""
    folder = Path(folder)
    if not is_run(folder):
        raise UserError(f"{folder} is not a run: it holds no run.json.")
    info = read_json(folder / "run.json")
    weights = folder / "model.safetensors"
    if not weights.is_file():
        raise UserError(
            f"the run {folder} has not finished training; go on with it by repeating its command "
            "with --resume."
        )
    if info.get("sha256") and sha256_of(weights) != info["sha256"]:
        raise UserError(f"{weights} is not the file that the run wrote: its hash has changed.")
    fields = read_json(folder / "config.json")
    fields.pop("tokens", None)
    try:
        tokens = Tokenizer.from_json((folder / "tokenizer.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(f"{folder / 'tokenizer.json'} is missing or broken.") from None
    model = Decoder(make_config(**fields))
    try:
        load_weights(weights, model, device)
    except (RuntimeError, OSError, ValueError):
        raise UserError(f"{weights} does not fit the shape in config.json.") from None
    model.to(device).eval()
    return Run(folder=folder, model=model, tokens=tokens, info=info)


def versions() -> dict[str, str]:
    """What the numbers of a run may depend on."""
    return {
        "wherefrom": version("wherefrom"),
        "commit": commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": version("numpy"),
        "tokenizers": version("tokenizers"),
        "threads": str(torch.get_num_threads()),
    }


def commit() -> str:
    """The state of the source that runs, if it is a checkout."""
    try:
        answer = subprocess.run(
            ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"],
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return answer.stdout.strip()


def find_newest_run(below: str | Path = "runs") -> Path:
    """The finished run that was started last; the twins inside a run do not count."""
    patterns = ["/".join(["[!.]*"] * depth) + "/run.json" for depth in range(1, DEEPEST + 1)]
    runs = {record.parent for pattern in patterns for record in Path(below).glob(pattern)}
    finished = []
    for folder in runs:
        with suppress(UserError, AttributeError):  # a broken record
            if runs.isdisjoint(folder.parents) and is_finished(folder):
                finished.append((str(read_json(folder / "run.json").get("started")), str(folder)))
    if not finished:
        raise UserError(
            f"there is no finished run below {below}; name the folder of one, or make one with "
            f"`wherefrom study --out {below}/study`."
        )
    return Path(max(finished)[1])


@dataclass(frozen=True)
class SourceFile:
    """A file that a run learned from: "corpus", "questions" or "dev", as run.json records it.

    folder, info: of the run that read the file, which is the run itself or one that it goes on
    from.
    """

    what: str
    folder: Path
    info: dict[str, Any]
    record: dict[str, Any]

    def locate(self) -> Path:
        """Where the file is now."""
        return _locate("corpus" if self.what == "corpus" else "question file", self)


def describe_file(path: Path, digest: str, folder: Path, **counts: int) -> dict[str, Any]:
    """The record of a file (or a parent run) that run.json keeps, for `find_source`."""
    return {
        "path": os.path.abspath(path),
        "relative_path": os.path.relpath(path, folder),
        "sha256": digest,
        **counts,
    }


def find_source(run: Run, what: str) -> SourceFile | None:
    """The record of the corpus, questions or dev questions that a run or its parents learned from.

    None where no run of them learned from any.
    """
    folder, info = run.folder, run.info
    for _ in range(MOST_PARENTS):
        data = {**info.get("data", {}), "dev": info.get("dev")}
        if data.get(what):
            return SourceFile(what, folder, info, data[what])
        if not data.get("parent"):
            return None
        folder = _locate("run", SourceFile("parent", folder, info, data["parent"]))
        info = read_json(folder / "run.json")
    raise UserError(f"{run.folder} goes back to more than {MOST_PARENTS} runs.")


def _locate(what: str, source: SourceFile) -> Path:
    """Where a recorded file or run is now: only one with the recorded hash is accepted.

    Looked for at its old place, at the same place relative to the run folder, and inside the run
    folder, where an embedded world is and where anybody may put a copy.
    """
    folder, record = source.folder, source.record
    try:
        was, wanted = Path(record["path"]), record["sha256"]
    except (KeyError, TypeError):
        raise UserError(f"{folder / 'run.json'} does not say which {what} the run read.") from None
    moved = Path(os.path.normpath(folder / record.get("relative_path", was)))
    there = []
    for place in (was, moved, folder / "world" / was.name, folder / was.name):
        if is_run(place) if what == "run" else place.is_file():
            there.append(place)
            digest = (
                sha256_of(place) if place.is_file() else read_json(place / "run.json")["sha256"]
            )
            if digest == wanted:
                return place
    problem = f"the {what} {was} that {folder} learned from is not there any more"
    if there:
        problem = f"{there[0]} has changed since {folder} learned from it"
    raise UserError(f"{problem}; put the {what} back, or put a copy of it into {folder}.")


def read_learned_documents(source: SourceFile) -> Corpus:
    """The documents that the run read: its corpus without the subjects that were left out.

    Those that a twin left out quietly stand in its batches and were not learned.
    """
    corpus = read_documents(source.locate())
    gone = _excluded(source, {"left_out": LEFT_OUT})
    kept = tuple(d for d in corpus.documents if fold_words(d.subject) not in gone)
    _check_part(source, "documents", [document.text for document in kept])
    quiet = set(source.info["job"].get("without", ()))
    return replace(corpus, documents=tuple(d for d in kept if d.line not in quiet))


def read_learned_questions(source: SourceFile) -> QuestionSet:
    """The questions that the run learned: its file without subjects set aside or left out."""
    file = read_questions(source.locate(), source.info.get("templates", ()))
    gone = _excluded(source, {"left_out": LEFT_OUT, "not_learned": SET_ASIDE})
    kept = tuple(q for q in file.questions if fold_words(q.subject) not in gone)
    _check_part(source, "questions", question_rows(kept))
    return replace(file, questions=kept)


def _excluded(source: SourceFile, reasons: Mapping[str, str]) -> set[tuple[str, ...]]:
    """The subjects that were kept out of training, by run.json or else by subjects.jsonl."""
    names: list[str] = []
    for key, reason in reasons.items():
        if key in source.info:
            names += source.info[key]
        elif (source.folder / SUBJECTS_FILE).is_file():
            subjects = read_subjects(source.folder)
            names += [each.subject for each in subjects if each.source == reason]
    return {fold_words(name) for name in names}


def _check_part(source: SourceFile, what: str, texts: Sequence[str]) -> None:
    if digest_of(texts) != source.info["job"][what]:
        raise UserError(
            f"the run in {source.folder} learned from a part of {source.record['path']}, and which "
            "part is not written down there any more."
        )


def digest_of(texts: Sequence[str]) -> str | None:
    """The hash by which a job knows texts that it does not keep."""
    return sha256("\n".join(texts).encode("utf-8")).hexdigest() if texts else None


def question_rows(questions: Iterable[Question]) -> list[str]:
    """One line per question, for `digest_of`."""
    return [f"{row.text}\t{row.answer or ''}\t{row.subject}" for row in questions]
