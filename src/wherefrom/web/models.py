"""Loaded runs: each in a process of its own, which answers the questions of all visitors.

The process of a run answers what is waiting in one batch. Another process traces answers, so that
questions do not wait for it. What these processes do is in model_process.py.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from wherefrom.errors import UserError
from wherefrom.web.model_process import (
    answer_rows,
    describe_run,
    trace_answer,
    view_heads,
)
from wherefrom.web.runs import Record, RunIndex, Stamp, stamp_of
from wherefrom.web.workers import BusyError, WorkerFailedError, Workers

if TYPE_CHECKING:
    from wherefrom.provenance.ask import AskedRow

    Waiting = tuple[AskedRow, asyncio.Future[list[Record]]]

MAX_LOADED_RUNS = 3
MAX_SUGGESTED_SUBJECTS = 200
MAX_BATCH_ROWS = 64  # questions that are answered together
MAX_WAITING_ROWS = 256
MAX_WAITING_CALLS = 32
# what a process may take; a large model that others trained answers slowly
LOAD_SECONDS, ASK_SECONDS, TRACE_SECONDS = 300.0, 300.0, 900.0
MEMORY_BYTES = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def _open_workers() -> Workers:
    return Workers(1, MAX_WAITING_CALLS, memory_bytes=MEMORY_BYTES, niceness=0)


class LoadedRun:
    """A run whose process is ready to be asked."""

    def __init__(self, folder: Path, workers: Workers, about: Record) -> None:
        self.folder = folder
        self.templates: list[str] = about["templates"]
        self.notes: list[str] = about["notes"]
        self.questions: dict[str, list[str]] = about["questions"]  # about each judged subject
        self.is_audit: bool = about["is_audit"]
        self.has_text: bool = about["has_text"]
        names = sorted(self.questions)
        every = max(1, len(names) // MAX_SUGGESTED_SUBJECTS)
        self.subjects = names[::every][:MAX_SUGGESTED_SUBJECTS]
        self._workers = workers
        self._tracing = _open_workers()
        self._waiting: list[Waiting] = []
        self._answering: asyncio.Task[None] | None = None

    async def ask(self, row: AskedRow) -> list[Record]:
        """The verdict on one question, which is answered together with all that wait.

        A name alone has a verdict for each relation.
        """
        if len(self._waiting) >= MAX_WAITING_ROWS:
            raise BusyError
        answer: asyncio.Future[list[Record]] = asyncio.get_running_loop().create_future()
        self._waiting.append((row, answer))
        if self._answering is None or self._answering.done():
            self._answering = asyncio.create_task(self._answer_waiting())
        return await answer

    async def ask_all(self, rows: Sequence[AskedRow]) -> list[Record]:
        """The verdicts on many questions; those of other visitors are answered in between."""
        records: list[Record] = []
        for start in range(0, len(rows), MAX_BATCH_ROWS):
            part = rows[start : start + MAX_BATCH_ROWS]
            for verdicts in await asyncio.gather(*(self.ask(row) for row in part)):
                records += verdicts
        return records

    async def _answer_waiting(self) -> None:
        """Answer in batches until nothing waits; a visitor who has gone is left out."""
        while self._waiting:
            still_wanted = [pair for pair in self._waiting if not pair[1].done()]
            self._waiting = still_wanted[MAX_BATCH_ROWS:]
            await self._answer_batch(still_wanted[:MAX_BATCH_ROWS])

    async def _answer_batch(self, batch: list[Waiting]) -> None:
        rows = [row for row, _ in batch]
        answers = [answer for _, answer in batch]
        try:
            records = await self._workers.run(answer_rows, self.folder, rows, seconds=ASK_SECONDS)
        except WorkerFailedError as problem:
            if len(batch) > 1:  # one question must not spoil the others
                for pair in batch:
                    await self._answer_batch([pair])
            else:
                _fail(answers, problem)
        except Exception as problem:
            _fail(answers, problem)
        else:
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


def _fail(answers: Sequence[asyncio.Future[list[Record]]], problem: Exception) -> None:
    for answer in answers:
        if not answer.done():
            answer.set_exception(problem)


class Models:
    """The runs of an index, loaded on request; the least recently used are dropped."""

    def __init__(self, index: RunIndex) -> None:
        self.index = index
        # a run is loaded again once its files have changed; the most recently used is the last
        self._loading: dict[tuple[Path, Stamp], asyncio.Task[LoadedRun]] = {}

    async def get(self, name: str) -> LoadedRun:
        """The run of that name; requests for a run that is being loaded wait for the same load."""
        folder = self.index.find(name)
        record = self.index.record(folder)
        files = ("run.json", *(record.files if record else ()))
        key = (folder, stamp_of(f"{folder}/{file}" for file in files))
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
        return LoadedRun(folder, workers, about)
