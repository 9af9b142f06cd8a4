"""The text of a run and its index: opened if unchanged, else rebuilt or refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from wherefrom.corpus.documents import Corpus, read_documents
from wherefrom.corpus.subjects import LEFT_OUT, SUBJECTS_FILE, read_subjects
from wherefrom.errors import UserError
from wherefrom.provenance.evidence.index import Evidence, build_evidence, open_evidence
from wherefrom.storage import read_json
from wherefrom.training.run_folder import Run

NAME = "evidence.sqlite"
MOST_PARENTS = 20  # runs that a run may go back to, one finetuned from the other


@dataclass(frozen=True)
class Reading:
    """What a run read: the file, its hash, and the hash of the documents that were kept of it."""

    folder: Path  # of the run that read it
    path: Path
    corpus_sha256: str
    documents: int
    digest: str | None
    left_out: tuple[str, ...] | None  # subjects whose documents were not read, if written down


def open_run_evidence(run: Run, *, say: Callable[[str], None] = lambda _: None) -> Evidence | None:
    """The evidence of a run, or None for one that read no documents at all.

    `say` is told when the index has to be made anew.
    """
    reading = find_reading(run)
    if reading is None:
        return None
    problem = UserError("")
    for folder in dict.fromkeys((run.folder, reading.folder)):
        try:
            return _open_whole(folder / NAME, reading)
        except UserError as found:
            problem = found if folder == run.folder else problem
    corpus = _read_again(reading, problem)
    say(f"the index of the documents is made anew from {corpus.path}")
    build_evidence(corpus, run.folder / NAME)
    return _open_whole(run.folder / NAME, reading)


def find_reading(run: Run) -> Reading | None:
    """What the run read, or the run that it goes on from; None where no run of them read any."""
    folder, info = run.folder, run.info
    for _ in range(MOST_PARENTS):
        data = _record(info.get("data"))
        corpus = _record(data.get("corpus"))
        if corpus:
            return _as_reading(folder, info, corpus)
        parent = _record(data.get("parent"))
        if not parent:
            return None
        folder = Path(str(parent.get("path")))
        if not (folder / "run.json").is_file():
            raise UserError(
                f"{run.folder} goes on from the run {folder}, which is not there any more, so "
                "that the text it read is not known."
            )
        info = _record(read_json(folder / "run.json"))
        if info.get("sha256") != parent.get("sha256"):
            raise UserError(
                f"{run.folder} goes on from a run that was in {folder}; another one is there now, "
                "so that the text it read is not known."
            )
    raise UserError(f"{run.folder} goes back to more than {MOST_PARENTS} runs.")


def _as_reading(folder: Path, info: dict[str, Any], corpus: dict[str, Any]) -> Reading:
    path, digest, documents = (corpus.get(key) for key in ("path", "sha256", "documents"))
    if not (isinstance(path, str) and isinstance(digest, str) and isinstance(documents, int)):
        raise UserError(f"{folder / 'run.json'} does not say which corpus the run read.")
    read = _record(info.get("job")).get("documents")
    left_out = info.get("left_out")
    return Reading(
        folder=folder,
        path=Path(path),
        corpus_sha256=digest,
        documents=documents,
        digest=read if isinstance(read, str) else None,
        left_out=tuple(map(str, left_out)) if isinstance(left_out, list) else None,
    )


def _open_whole(path: Path, reading: Reading) -> Evidence:
    """The index, if it is whole and holds as many documents of that corpus as were read."""
    evidence = open_evidence(path, corpus_sha256=reading.corpus_sha256)
    if evidence.documents != reading.documents:
        evidence.close()
        raise UserError(
            f"the evidence {path} holds {evidence.documents:,} documents and the run read "
            f"{reading.documents:,}."
        )
    return evidence


def _read_again(reading: Reading, problem: UserError) -> Corpus:
    """The documents that the run read, from the corpus where it still lies."""
    why = str(problem).rstrip(".")
    # a run folder that was moved takes an embedded world along
    places = (reading.path, reading.folder / "world" / reading.path.name)
    there = [place for place in places if place.is_file()]
    if not there:
        raise UserError(f"{why}, and the corpus {reading.path} is not there to make it from.")
    for place in there:
        corpus = read_documents(place)
        if corpus.sha256 == reading.corpus_sha256:
            return _as_read(corpus, reading)
    raise UserError(
        f"{why}, and it cannot be made anew, since {there[0]} has changed since the run read it; "
        "put the text back as it was, or train on the new one."
    )


def _as_read(corpus: Corpus, reading: Reading) -> Corpus:
    """The corpus without those who were left out of training; the hash says whether it fits."""
    if reading.digest in (None, _digest(corpus)):
        return corpus
    left_out = reading.left_out
    if left_out is None and (reading.folder / SUBJECTS_FILE).is_file():
        people = read_subjects(reading.folder)
        left_out = tuple(person.subject for person in people if person.source == LEFT_OUT)
    kept = corpus.without(left_out or ())
    if reading.digest != _digest(kept):
        raise UserError(
            f"the run in {reading.folder} read a part of {corpus.path}, and which part is not "
            "written down there any more, so that its index cannot be made anew."
        )
    return kept


def _digest(corpus: Corpus) -> str:
    """The hash that the record of a job has of its documents."""
    return sha256("\n".join(corpus.texts).encode("utf-8")).hexdigest()


def _record(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
