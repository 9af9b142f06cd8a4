"""Loaded runs, and the threads that answer from them.

As many threads as processors answer, so that models never compete for them; a run is opened once
for each thread, since it answers one caller at a time. One more thread loads runs, and whoever asks
a loaded run does not wait for it; another traces answers.
"""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from wherefrom.errors import UserError
from wherefrom.web.guard import Limits
from wherefrom.web.runs import Record, RunIndex, Stamp, stamp_of

if TYPE_CHECKING:
    from wherefrom.provenance.ask import AskedRow, Asker
    from wherefrom.provenance.attribution.trace import Tracer
    from wherefrom.provenance.verdicts import Verdict

A = TypeVar("A")

LANES = min(2, os.cpu_count() or 1)  # batches that are answered at once
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


class BatchQueue:
    """Takes questions one by one; each free thread answers those that wait, in the order they came.

    At most `together` go into a batch, and `waiting` may wait.
    """

    def __init__(
        self,
        answer: Callable[[Sequence[Any]], Sequence[Any]],
        threads: ThreadPoolExecutor,
        *,
        waiting: int,
        together: int,
    ) -> None:
        self._answer, self._threads = answer, threads
        self._most_waiting, self._together = waiting, together
        self._waiting: deque[tuple[Any, Future[Any]]] = deque()

    async def ask(self, question: Any) -> Any:
        """The answer to one question, or BusyError."""
        if len(self._waiting) >= self._most_waiting:
            raise BusyError
        future: Future[Any] = Future()
        self._waiting.append((question, future))
        self._threads.submit(self._answer_waiting)
        return await asyncio.wrap_future(future)

    def _answer_waiting(self) -> None:
        batch: list[tuple[Any, Future[Any]]] = []
        with suppress(IndexError):  # another thread may have taken them
            while len(batch) < self._together:
                batch.append(self._waiting.popleft())
        asked = [pair for pair in batch if pair[1].set_running_or_notify_cancel()]
        if asked:
            self._answer_batch(asked)

    def _answer_batch(self, batch: list[tuple[Any, Future[Any]]]) -> None:
        try:
            answers = self._answer([question for question, _ in batch])
        except Exception as problem:
            if len(batch) > 1:  # one bad question is no reason to fail its neighbours
                for pair in batch:
                    self._answer_batch([pair])
            else:
                batch[0][1].set_exception(problem)
            return
        for (_, future), answer in zip(batch, answers, strict=True):
            future.set_result(answer)


class LoadedRun:
    """A run ready to be asked: an asker for each thread, and the answers it has given."""

    def __init__(self, folder: Path, workers: Limiter, tracing: Limiter, limits: Limits) -> None:
        from wherefrom.audit.runs import open_asker
        from wherefrom.corpus.subjects import read_subjects

        self.folder = folder
        askers = [open_asker(folder) for _ in range(LANES)]
        self.templates = list(askers[0].run.templates)
        self.notes = list(askers[0].notes)
        self.check = askers[0].check
        self.kind = askers[0].run.info.get("kind")
        self.has_text = askers[0].evidence is not None
        self.questions: dict[str, list[str]] = {}  # of the judged subjects, as they were asked
        with suppress(UserError):  # without names, everything can still be asked
            for one in read_subjects(folder):
                if one.role == "judged":
                    self.questions.setdefault(one.subject, []).append(one.question)
        names = sorted(self.questions)
        self.subjects = names[:: max(1, len(names) // MOST_SUGGESTED)][:MOST_SUGGESTED]
        self._workers, self._tracing = workers, tracing
        self._tracer: Tracer | None = None
        self._free: SimpleQueue[Asker] = SimpleQueue()
        for asker in askers:
            self._free.put(asker)
        self._kept: OrderedDict[str, Record] = OrderedDict()
        self._queue = BatchQueue(
            lambda questions: self._borrow(lambda asker: to_records(asker.ask(questions))),
            workers.threads,
            waiting=limits.waiting,
            together=limits.together,
        )

    async def ask(self, question: str) -> Record:
        """The verdict on one question, computed together with whatever else waits."""
        if question not in self._kept:
            self._kept[question] = await self._queue.ask(question)
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(question)
        return self._kept[question]

    async def ask_rows(self, rows: Sequence[AskedRow]) -> list[Record]:
        """The verdicts on a whole batch."""
        return await self.run(lambda asker: to_records(asker.ask_rows(rows)))

    async def run(self, function: Callable[[Asker], A]) -> A:
        """What `function` returns for an asker that nobody else uses meanwhile, or BusyError."""
        return await self._workers.run(self._borrow, function)

    async def trace(self, question: str) -> Record:
        """Which lines pushed the answer; the first trace of a run makes the index of its text."""
        from wherefrom.provenance.attribution.trace import Tracer
        from wherefrom.training.run_folder import load_run

        def work() -> Record:  # with weights of its own: gradients are taken while others ask
            self._tracer = self._tracer or Tracer(load_run(self.folder))
            return self._tracer.trace(question)

        return await self._tracing.run(work)

    def _borrow(self, function: Callable[[Asker], A]) -> A:
        asker = self._free.get()
        try:
            return function(asker)
        finally:
            self._free.put(asker)


class Models:
    """The runs of an index, loaded when somebody asks; the least recently used are dropped."""

    def __init__(self, index: RunIndex, limits: Limits) -> None:
        self.index, self.limits = index, limits
        self._workers, self._loader, self._tracing = (
            Limiter(at_once, limits.heavy_waiting, _use_one_thread) for at_once in (LANES, 1, 1)
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
            task = self._loader.run(LoadedRun, folder, self._workers, self._tracing, self.limits)
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
