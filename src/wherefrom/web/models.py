"""Loaded runs, and the threads that answer from them.

As many threads as processors answer, so that models never compete for them; a run answers one
caller at a time. One more thread loads runs, and whoever asks a loaded run does not wait for it;
another traces answers.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from wherefrom.errors import UserError
from wherefrom.web.guard import Limits
from wherefrom.web.runs import Record, RunIndex, Stamp, stamp_of

if TYPE_CHECKING:
    from wherefrom.provenance.ask import Asker
    from wherefrom.provenance.attribution.trace import Tracer
    from wherefrom.provenance.verdicts import Verdict

A = TypeVar("A")

LANES = min(2, os.cpu_count() or 1)  # questions that are answered at once
MOST_LOADED = 3
MOST_SUGGESTED = 200  # subjects that are offered
MOST_KEPT = 2_000  # answers of a run, so that a question that many ask is answered once
FILES = ("run.json", "model.safetensors", "calibration.json", "evidence.sqlite")


class BusyError(Exception):
    """Too much is being asked at once."""


class Limiter:
    """A pool of threads: `at_once` calls run, `waiting` more wait, and the rest get BusyError."""

    def __init__(
        self, at_once: int, waiting: int, initializer: Callable[[], None] | None = None
    ) -> None:
        self.threads = ThreadPoolExecutor(at_once, initializer=initializer)
        self._most = at_once + waiting
        self._calls = 0

    async def run(self, function: Callable[..., A], *arguments: Any) -> A:
        """What `function` returns in one of the threads."""
        if self._calls >= self._most:
            raise BusyError
        self._calls += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self.threads, function, *arguments)
        finally:
            self._calls -= 1

    def close(self) -> None:
        self.threads.shutdown(wait=False, cancel_futures=True)


class LoadedRun:
    """A run ready to be asked, and the answers it has given."""

    def __init__(self, folder: Path, workers: Limiter, tracing: Limiter) -> None:
        from wherefrom.audit.runs import open_asker
        from wherefrom.corpus.subjects import read_subjects

        self.folder = folder
        self.asker = open_asker(folder)
        self.templates, self.kind = self.asker.run.templates, self.asker.run.info.get("kind")
        self.questions: dict[str, list[str]] = {}  # of the judged subjects, as they were asked
        with suppress(UserError):  # without names, everything can still be asked
            for one in read_subjects(folder):
                if one.role == "judged":
                    self.questions.setdefault(one.subject, []).append(one.question)
        names = sorted(self.questions)
        self.subjects = names[:: max(1, len(names) // MOST_SUGGESTED)][:MOST_SUGGESTED]
        self._workers, self._tracing = workers, tracing
        self._turn = threading.Lock()
        self._tracer: Tracer | None = None
        self._kept: OrderedDict[str, Record] = OrderedDict()

    async def ask(self, question: str) -> Record:
        """The verdict on one question."""
        if question not in self._kept:
            (self._kept[question],) = await self.run(lambda a: to_records(a.ask([question])))
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(question)
        return self._kept[question]

    async def run(self, function: Callable[[Asker], A]) -> A:
        """What `function` returns for the asker that nobody else uses meanwhile, or BusyError."""

        def work() -> A:
            with self._turn:
                return function(self.asker)

        return await self._workers.run(work)

    async def trace(self, question: str) -> Record:
        """Which lines pushed the answer; the first trace of a run makes the index of its text."""
        from wherefrom.provenance.attribution.trace import Tracer
        from wherefrom.training.run_folder import load_run

        def work() -> Record:  # with weights of its own: gradients are taken while others ask
            self._tracer = self._tracer or Tracer(load_run(self.folder))
            return self._tracer.trace(question)

        return await self._tracing.run(work)


class Models:
    """The runs of an index, loaded when somebody asks; the least recently used are dropped."""

    def __init__(self, index: RunIndex, limits: Limits) -> None:
        self.index = index
        self._workers, self._loader, self._tracing = (
            Limiter(at_once, limits.waiting, _use_one_thread) for at_once in (LANES, 1, 1)
        )
        self._loaded: OrderedDict[str, tuple[Stamp, asyncio.Task[LoadedRun]]] = OrderedDict()

    async def get(self, name: str) -> LoadedRun:
        """The run of that name, loaded now if it was not, or again if it has changed.

        Who asks while it is loaded waits for the same loading.
        """
        folder = self.index.find(name)
        stamp = stamp_of(folder / file for file in FILES)
        known, loading = self._loaded.get(name, (None, None))
        if loading is None or known != stamp:
            task = self._loader.run(LoadedRun, folder, self._workers, self._tracing)
            loading = asyncio.create_task(task)
            self._loaded[name] = (stamp, loading)
        self._loaded.move_to_end(name)
        while len(self._loaded) > MOST_LOADED:
            self._loaded.popitem(last=False)
        try:
            return await asyncio.shield(loading)
        except Exception:
            if self._loaded.get(name) == (stamp, loading):
                del self._loaded[name]
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

    def close(self) -> None:
        for pool in (self._workers, self._loader, self._tracing):
            pool.close()


def _use_one_thread() -> None:
    """One torch thread for each thread of ours: more would compete with each other."""
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
