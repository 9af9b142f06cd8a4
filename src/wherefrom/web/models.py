"""Loaded runs, and the threads that answer from them.

As many threads as processors answer, so that models never compete for them; a run answers one
caller at a time. One more thread loads runs, so that questions to a loaded run do not wait for it;
another traces answers.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from wherefrom.errors import UserError
from wherefrom.web.runs import Record, RunIndex, Stamp, stamp_of

if TYPE_CHECKING:
    from wherefrom.provenance.ask import Asker
    from wherefrom.provenance.attribution.trace import Tracer
    from wherefrom.provenance.verdicts import Verdict

A = TypeVar("A")

LANES = min(2, os.cpu_count() or 1)  # questions that are answered at once
MOST_WAITING = 256  # questions that wait for a model
MOST_LOADED = 3
MOST_SUGGESTED = 200  # subjects that are offered
FILES = ("run.json", "model.safetensors", "calibration.json", "evidence.sqlite")


class BusyError(Exception):
    """Too much is being asked at once."""


class Limiter:
    """A pool of threads: `at_once` calls run, `waiting` more wait, and others get BusyError."""

    def __init__(
        self, at_once: int, waiting: int, initializer: Callable[[], None] | None = None
    ) -> None:
        self._threads = ThreadPoolExecutor(at_once, initializer=initializer)
        self._most = at_once + waiting
        self._calls = 0

    async def run(self, function: Callable[..., A], *arguments: Any) -> A:
        """What `function` returns in one of the threads."""
        if self._calls >= self._most:
            raise BusyError
        self._calls += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, function, *arguments)
        finally:
            self._calls -= 1


class LoadedRun:
    """A run ready to be asked."""

    def __init__(self, folder: Path, workers: Limiter, tracing: Limiter) -> None:
        from wherefrom.audit.runs import open_asker
        from wherefrom.corpus.subjects import read_subjects

        self.folder = folder
        self.asker = open_asker(folder)
        self.templates, self.kind = self.asker.run.templates, self.asker.run.info.get("kind")
        self.questions: dict[str, list[str]] = {}  # about each judged subject, as it was asked
        with suppress(UserError):  # without names, everything can still be asked
            for row in read_subjects(folder):
                if row.role == "judged":
                    self.questions.setdefault(row.subject, []).append(row.question)
        names = sorted(self.questions)
        self.subjects = names[:: max(1, len(names) // MOST_SUGGESTED)][:MOST_SUGGESTED]
        self._workers, self._tracing = workers, tracing
        self._turn = threading.Lock()
        self._tracer: Tracer | None = None

    async def run(self, function: Callable[[Asker], A]) -> A:
        """What `function` returns for the asker, which no other call uses meanwhile."""

        def work() -> A:
            with self._turn:
                return function(self.asker)

        return await self._workers.run(work)

    async def trace(self, question: str) -> Record:
        """Which lines pushed the answer; the first trace of a run makes the index of its text."""
        from wherefrom.provenance.attribution.trace import Tracer
        from wherefrom.training.run_folder import load_run

        def work() -> Record:  # on its own copy of the weights: others ask meanwhile
            self._tracer = self._tracer or Tracer(load_run(self.folder))
            return self._tracer.trace(question)

        return await self._tracing.run(work)


class Models:
    """The runs of an index, loaded on request; the least recently used are dropped."""

    def __init__(self, index: RunIndex) -> None:
        self.index = index
        self._workers, self._loader, self._tracing = (
            Limiter(at_once, MOST_WAITING, _use_one_thread) for at_once in (LANES, 1, 1)
        )
        # a run is loaded again once its files have changed; the most recently used is the last
        self._loading: dict[tuple[Path, Stamp], asyncio.Task[LoadedRun]] = {}

    async def get(self, name: str) -> LoadedRun:
        """The run of that name; requests for a run that is being loaded wait for the same load."""
        folder = self.index.find(name)
        key = (folder, stamp_of(folder / file for file in FILES))
        loading = self._loading.pop(key, None)
        if loading is None:
            task = self._loader.run(LoadedRun, folder, self._workers, self._tracing)
            loading = asyncio.create_task(task)
        self._loading[key] = loading
        if len(self._loading) > MOST_LOADED:
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


def _use_one_thread() -> None:
    """One torch thread for each thread of the pool: more would compete with each other."""
    import torch

    torch.set_num_threads(1)


def to_records(verdicts: Sequence[Verdict]) -> list[Record]:
    """Verdicts as dictionaries, with their sentence and the lines about names that look alike."""
    keys = ("line", "text", "subject")
    return [
        {
            **verdict.to_dict(),
            "sentence": verdict.error or verdict.sentence(),
            "similar": [{key: getattr(line, key) for key in keys} for line in verdict.similar],
        }
        for verdict in verdicts
    ]
