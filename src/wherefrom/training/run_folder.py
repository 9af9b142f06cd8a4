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
from wherefrom.corpus.tokenizer import Tokenizer
from wherefrom.errors import UserError
from wherefrom.model.config import make_config
from wherefrom.model.decoder import Decoder
from wherefrom.results import Printable
from wherefrom.storage import make_folder, read_json, sha256_of, write_json
from wherefrom.training.checkpoint import load_weights

FORMAT = 1
LOCK = "run.lock"
AUDIT = "audit"  # the kind of a run that holds no model of its own (wherefrom.audit)
PARTS = {"documents.tsv", "twins", "world", LOCK}  # what may be there before a model is started
DECIDES_BITS = ("threads", "torch", "numpy", "tokenizers")  # of `versions`, by rounding
CONTENT = {  # what a job knows by its hash alone
    "corpus": "the corpus has",
    "documents": "the documents have",
    "parent": "the run that it goes on from has",
    "probes": "the questions held out have",
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

    def measure(self, question: str) -> tuple[int, int]:
        """Tokens of a question with the one behind it, and how many the model reads."""
        return len(self.tokens.encode(question)) + 1, self.model.config.longest_input

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

    The kernel releases the lock on `run.lock` however the process ends. The thread that holds a
    lock may take it again.
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
    if is_run(folder):
        if not resume:
            raise UserError(
                f"{folder} already holds a run; add --resume to go on with it, or choose another "
                "--out."
            )
    elif folder.exists():
        inside = [path.name for path in folder.iterdir()] if folder.is_dir() else [folder.name]
        if any(name not in PARTS and not name.startswith(".run.json.") for name in inside):
            raise UserError(f"{folder} exists and is not a run; choose another --out.")


def open_folder(folder: Path, job: Mapping[str, Any], *, resume: bool) -> None:
    """Make the folder of a new run, or check that an old one is of this very job, key by key.

    `job` is everything that decides the weights.
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
    """Whether the folder holds a run that needs no more training, or an audit that is complete."""
    info = read_json(folder / "run.json") if is_run(folder) else {}
    has_weights = (folder / "model.safetensors").exists() or info.get("kind") == AUDIT
    return has_weights and info.get("status") == "finished"


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
    info, weights = read_json(folder / "run.json"), folder / "model.safetensors"
    if info.get("kind") == AUDIT:
        raise UserError(
            f"{folder} is the audit of a model that others trained: ask, judge, report and serve "
            "work on it, and nothing that needs a model of ours."
        )
    if not weights.is_file():
        raise UserError(
            f"the run {folder} has not finished training; go on with it by repeating its command "
            "with --resume."
        )
    if info.get("sha256") and sha256_of(weights) != info["sha256"]:
        raise UserError(f"{weights} is not the file that the run wrote: its hash has changed.")
    fields = read_json(folder / "config.json")
    fields.pop("tokens", None)
    model = Decoder(make_config(**fields))
    broken = folder / "tokenizer.json"
    try:
        tokens = Tokenizer.from_json(broken.read_text(encoding="utf-8"))
        broken = weights
        load_weights(weights, model, device)
    except (OSError, RuntimeError, ValueError, KeyError, TypeError):
        raise UserError(f"{broken} is missing, broken, or not of this model's shape.") from None
    return Run(folder=folder, model=model.to(device).eval(), tokens=tokens, info=info)


def versions() -> dict[str, str]:
    """What the numbers of a run may depend on."""
    return {
        "commit": commit(),
        "python": platform.python_version(),
        "threads": str(torch.get_num_threads()),
        **{name: version(name) for name in ("wherefrom", "torch", "numpy", "tokenizers")},
    }


def commit() -> str:
    """The state of the source that runs, if it is a checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    try:
        answer = subprocess.check_output(command, stderr=subprocess.DEVNULL, text=True, timeout=5)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return answer.strip()


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


def describe_file(path: Path, digest: str, folder: Path, **counts: int) -> dict[str, Any]:
    """The record of a file (or a parent run) that run.json keeps, for `find_source`."""
    where = {"path": os.path.abspath(path), "relative_path": os.path.relpath(path, folder)}
    return {**where, "sha256": digest, **counts}


@dataclass(frozen=True)
class SourceFile:
    """What a run learned from, a file or a run, as run.json records it.

    folder, info: of the run that read it, which is the run itself or one that it goes on from.
    """

    what: str
    folder: Path
    info: dict[str, Any]
    record: dict[str, Any]

    def locate(self) -> Path:
        """Where it is now; only what has the recorded hash is accepted.

        Looked for at its old place, at the same place relative to the run folder, and inside the
        run folder, where an embedded world is and where anybody may put a copy.
        """
        what = {"corpus": "corpus", "parent": "run"}.get(self.what, "question file")
        folder, was = self.folder, Path(self.record.get("path", ""))
        moved = Path(os.path.normpath(folder / self.record.get("relative_path", was)))
        there = []
        for place in (was, moved, folder / "world" / was.name, folder / was.name):
            if is_run(place) if what == "run" else place.is_file():
                there.append(place)
                is_file = place.is_file()
                digest = sha256_of(place) if is_file else read_json(place / "run.json")["sha256"]
                if digest == self.record.get("sha256"):
                    return place
        problem = f"the {what} {was} that {folder} learned from is not there any more"
        if there:
            problem = f"{there[0]} has changed since {folder} learned from it"
        raise UserError(f"{problem}; put the {what} back, or put a copy of it into {folder}.")


def find_source(run: Run, what: str) -> SourceFile | None:
    """The corpus, questions or dev questions that a run or its parents learned from, if any."""
    folder, info = run.folder, run.info
    for _ in range(MOST_PARENTS):
        data = {**info.get("data", {}), "dev": info.get("dev")}
        if data.get(what):
            return SourceFile(what, folder, info, data[what])
        if not data.get("parent"):
            return None
        folder = SourceFile("parent", folder, info, data["parent"]).locate()
        info = read_json(folder / "run.json")
    raise UserError(f"{run.folder} goes back to more than {MOST_PARENTS} runs.")


def read_learned_documents(source: SourceFile) -> Corpus:
    """The documents that the run read: its corpus without the subjects that were left out.

    Those that a twin left out quietly stand in its batches and were not learned.
    """
    corpus = read_documents(source.locate())
    gone = set(map(fold_words, source.info.get("left_out", ())))
    kept = tuple(d for d in corpus.documents if fold_words(d.subject) not in gone)
    _check_part(source, "documents", [document.text for document in kept])
    quiet = set(source.info["job"].get("without", ()))
    return replace(corpus, documents=tuple(d for d in kept if d.line not in quiet))


def read_learned_questions(source: SourceFile) -> QuestionSet:
    """The questions that the run learned: its file without subjects set aside or left out."""
    file = read_questions(source.locate(), source.info.get("templates", ()))
    excluded = (*source.info.get("left_out", ()), *source.info.get("not_learned", ()))
    gone = set(map(fold_words, excluded))
    kept = tuple(q for q in file.questions if fold_words(q.subject) not in gone)
    _check_part(source, "questions", question_rows(kept))
    return replace(file, questions=kept)


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
