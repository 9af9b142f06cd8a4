"""Loaded runs: each in a process of its own, which answers the questions of all visitors.

The process of a run answers what is waiting in one batch. Another process traces answers, so that
questions do not wait for it. The functions that run in these processes are at the end.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from math import exp
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wherefrom.corpus.questions import find_subject_in
from wherefrom.corpus.tokenizer import MASK_CHARACTER
from wherefrom.errors import UserError
from wherefrom.web.runs import Record, RunIndex, Stamp, stamp_of
from wherefrom.web.workers import BusyError, WorkerFailedError, Workers

if TYPE_CHECKING:
    from wherefrom.provenance.ask import AskedRow, Asker
    from wherefrom.provenance.attribution.trace import Tracer

MAX_LOADED_RUNS = 3
MAX_SUGGESTED_SUBJECTS = 200
MAX_BATCH_ROWS = 64  # questions that are answered together
MAX_WAITING_ROWS = 256
GATHER_SECONDS = 0.01  # for which questions are gathered: a batch costs little more than one
MAX_WAITING_CALLS = 32
MAX_MAP_TOKENS = 80  # beyond this a map is too fine to see
# what a process may take; a large model that others trained answers slowly
LOAD_SECONDS, ASK_SECONDS, TRACE_SECONDS = 300.0, 300.0, 900.0
MEMORY_BYTES = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
RUN_FILES = ("run.json", "model.safetensors", "calibration.json", "evidence.sqlite")
READABLE = str.maketrans({MASK_CHARACTER: "▮", " ": "␣", "\n": "⏎"})


def _open_workers() -> Workers:
    return Workers(1, MAX_WAITING_CALLS, memory_bytes=MEMORY_BYTES, niceness=0)


class LoadedRun:
    """A run whose process is ready to be asked."""

    def __init__(self, folder: Path, workers: Workers, tracing: Workers, about: Record) -> None:
        self.folder = folder
        self.templates: list[str] = about["templates"]
        self.notes: list[str] = about["notes"]
        self.questions: dict[str, list[str]] = about["questions"]  # about each judged subject
        self.is_audit: bool = about["is_audit"]
        self.has_text: bool = about["has_text"]
        names = sorted(self.questions)
        every = max(1, len(names) // MAX_SUGGESTED_SUBJECTS)
        self.subjects = names[::every][:MAX_SUGGESTED_SUBJECTS]
        self._workers, self._tracing = workers, tracing
        self._waiting: deque[tuple[AskedRow, asyncio.Future[Record]]] = deque()
        self._answering: asyncio.Task[None] | None = None

    async def ask(self, row: AskedRow) -> Record:
        """The verdict on one question, which is answered together with all that wait."""
        if len(self._waiting) >= MAX_WAITING_ROWS:
            raise BusyError
        answer: asyncio.Future[Record] = asyncio.get_running_loop().create_future()
        self._waiting.append((row, answer))
        if self._answering is None or self._answering.done():
            self._answering = asyncio.create_task(self._answer_waiting())
        return await answer

    async def ask_all(self, rows: Sequence[AskedRow]) -> list[Record]:
        """The verdicts on many questions; those of other visitors are answered in between."""
        records: list[Record] = []
        for start in range(0, len(rows), MAX_BATCH_ROWS):
            part = rows[start : start + MAX_BATCH_ROWS]
            records += await asyncio.gather(*(self.ask(row) for row in part))
        return records

    async def _answer_waiting(self) -> None:
        """Answer in batches until nothing waits; a visitor who has gone is left out."""
        while self._waiting:
            await asyncio.sleep(GATHER_SECONDS)
            batch: list[tuple[AskedRow, asyncio.Future[Record]]] = []
            while self._waiting and len(batch) < MAX_BATCH_ROWS:
                row, answer = self._waiting.popleft()
                if not answer.done():
                    batch.append((row, answer))
            if batch:
                await self._answer_batch(batch)

    async def _answer_batch(self, batch: list[tuple[AskedRow, asyncio.Future[Record]]]) -> None:
        answers = [answer for _, answer in batch]
        rows = [row for row, _ in batch]
        task = asyncio.ensure_future(
            self._workers.run(ask_run, self.folder, rows, seconds=ASK_SECONDS)
        )

        def stop_if_all_have_gone(_: asyncio.Future[Record]) -> None:
            if all(answer.cancelled() for answer in answers):
                task.cancel()

        for answer in answers:
            answer.add_done_callback(stop_if_all_have_gone)
        try:
            records = await task
        except asyncio.CancelledError:
            return
        except Exception as problem:
            if isinstance(problem, WorkerFailedError) and len(batch) > 1:  # spare the others
                for pair in batch:
                    await self._answer_batch([pair])
            elif not answers[0].done():
                answers[0].set_exception(problem)
            return
        for answer, record in zip(answers, records, strict=True):
            if not answer.done():
                answer.set_result(record)

    async def look_inside(self, question: str, layer: int | None, head: int | None) -> Record:
        """Heads and layers for a question; see `view_heads`."""
        call = self._workers.run
        return await call(view_heads, self.folder, question, layer, head, seconds=ASK_SECONDS)

    async def trace(self, question: str) -> Record:
        """Which lines pushed the answer; the first trace of a run makes the index of its text."""
        return await self._tracing.run(trace_answer, self.folder, question, seconds=TRACE_SECONDS)


class Models:
    """The runs of an index, loaded on request; the least recently used are dropped."""

    def __init__(self, index: RunIndex) -> None:
        self.index = index
        self._tracing = _open_workers()
        # a run is loaded again once its files have changed; the most recently used is the last
        self._loading: dict[tuple[Path, Stamp], asyncio.Task[LoadedRun]] = {}

    async def get(self, name: str) -> LoadedRun:
        """The run of that name; requests for a run that is being loaded wait for the same load."""
        folder = self.index.find(name)
        key = (folder, stamp_of(folder / file for file in RUN_FILES))
        loading = self._loading.pop(key, None)
        if loading is None:
            loading = asyncio.create_task(self._load(folder))
        self._loading[key] = loading
        if len(self._loading) > MAX_LOADED_RUNS:
            del self._loading[next(iter(self._loading))]
        try:
            return await asyncio.shield(loading)
        except Exception:
            self._loading.pop(key, None)  # the next request tries again
            raise

    async def first_of(self, names: Sequence[str]) -> tuple[str, LoadedRun] | None:
        """The first of these runs that can be loaded; the first one's error if none can."""
        problems = []
        for name in names:
            try:
                return name, await self.get(name)
            except UserError as problem:
                problems.append(problem)
        if problems:
            raise problems[0]
        return None

    async def _load(self, folder: Path) -> LoadedRun:
        workers = _open_workers()
        about = await workers.run(describe_run, folder, seconds=LOAD_SECONDS)
        return LoadedRun(folder, workers, self._tracing, about)


# ---- what runs in the process of a run


@lru_cache(1)
def _open_run(folder: Path) -> Asker:
    """The run of this process, which is opened at its first call."""
    import torch

    from wherefrom.audit.runs import open_asker

    torch.set_num_threads(1)  # several processes with more threads would compete
    return open_asker(folder)


@lru_cache(1)
def _open_tracer(folder: Path) -> Tracer:
    import torch

    from wherefrom.provenance.attribution.trace import Tracer
    from wherefrom.training.run_folder import load_run

    torch.set_num_threads(1)
    return Tracer(load_run(folder))


def describe_run(folder: Path) -> Record:
    """What the page shows of a run before a question is asked."""
    from wherefrom.corpus.subjects import read_subjects
    from wherefrom.training.run_folder import AUDIT

    asker = _open_run(folder)
    questions: dict[str, list[str]] = {}
    with suppress(UserError):  # without names, everything can still be asked
        for row in read_subjects(folder):
            if row.role == "judged":
                questions.setdefault(row.subject, []).append(row.question)
    return {
        "templates": list(asker.run.templates),
        "is_audit": asker.run.info.get("kind") == AUDIT,
        "notes": list(asker.notes),
        "has_text": asker.evidence is not None,
        "questions": questions,
    }


def ask_run(folder: Path, rows: Sequence[AskedRow]) -> list[Record]:
    """Verdicts as dictionaries, with their sentence and the lines about names that look alike."""
    keys = ("line", "text", "subject")
    return [
        {
            **verdict.to_dict(),
            "sentence": verdict.error or verdict.sentence(),
            "similar": [{key: getattr(line, key) for key in keys} for line in verdict.similar],
        }
        for verdict in _open_run(folder).ask_rows(rows)
    ]


def trace_answer(folder: Path, question: str) -> Record:
    """As `wherefrom trace --json` prints it."""
    return _open_tracer(folder).trace(question)


def label_tokens(tokens: Sequence[str | None]) -> list[str]:
    """Tokens as they can be read: the blank, the mask and the end of a line as signs."""
    return [(token or "").translate(READABLE) or "∅" for token in tokens]


def view_heads(folder: Path, question: str, layer: int | None, head: int | None) -> Record:
    """What a run does with the question: answer, heads, layers, and the whole map of one head."""
    from wherefrom.provenance.attribution.twins import logit_lens
    from wherefrom.recall.decode import answer_all
    from wherefrom.recall.inside import look_inside

    asker = _open_run(folder)
    run = asker.run
    question, _ = asker.understand(" ".join(question.split()))
    subject = find_subject_in(run.templates, question)
    view = look_inside(run.model, run.tokens, question, subject)
    if len(view.tokens) > MAX_MAP_TOKENS:
        raise UserError(
            f"this question has {len(view.tokens)} tokens, and a map of more than "
            f"{MAX_MAP_TOKENS} is too fine to see; ask a shorter one."
        )
    (answer,) = answer_all(run.model, run.tokens, [question])
    lens = logit_lens(run, question, answer.text)
    lens["tokens"] = label_tokens(lens["tokens"])
    for row in lens["layers"]:
        row["says"] = label_tokens(row["says"])
    places = {(one.layer, one.head) for one in view.heads}
    return {
        "question": question,
        "answer": answer.text,
        "probability": float(f"{exp(min(0.0, answer.log_probability)):.4g}"),
        "subject": subject,
        "variant": run.model.config.variant,
        "lens": lens,
        "tokens": label_tokens(view.tokens),
        "name": list(view.name),
        "heads": [one.to_dict() for one in view.heads],
        "layers": 1 + max(layer for layer, _ in places),
        "heads_a_layer": 1 + max(head for _, head in places),
        "map": _map_of_head(view, layer, head),
    }


def _map_of_head(view: Any, layer: int | None, head: int | None) -> Record:
    """The map of the head that was asked for, or else of the one that looks at the name most."""
    best = max(view.heads, key=lambda one: one.mass_on_name or 0.0)
    shown = (best.layer if layer is None else layer, best.head if head is None else head)
    if shown not in {(one.layer, one.head) for one in view.heads}:
        shown = (best.layer, best.head)
    weights = view.maps[shown[0]][shown[1]]
    labels = label_tokens(view.tokens)
    rows, columns = (  # a learned basis has no tokens
        labels if count == len(labels) else [f"latent {i}" for i in range(count)]
        for count in weights.shape
    )
    return {
        "layer": shown[0],
        "head": shown[1],
        "rows": rows,
        "columns": columns,
        "weights": weights.round(4).tolist(),
    }
