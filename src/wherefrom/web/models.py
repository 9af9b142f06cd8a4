"""Loaded runs, and the threads that answer from them.

As many threads as processors answer, so that models never compete for them; a run is opened once
for each thread, since it answers one caller at a time. One more thread loads runs, and whoever asks
a loaded run does not wait for it.
"""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Generic, ParamSpec, TypeVar

from wherefrom.errors import UserError
from wherefrom.web.guard import Limits
from wherefrom.web.runs import Record, RunIndex, Stamp, stamp_of

if TYPE_CHECKING:
    from wherefrom.provenance.ask import AskedRow, Asker
    from wherefrom.provenance.attribution.trace import Tracer
    from wherefrom.provenance.verdicts import Verdict

Q = TypeVar("Q")
A = TypeVar("A")
P = ParamSpec("P")

LINGER = 0.004  # seconds that the first question of a batch waits for others
LANES = min(2, os.cpu_count() or 1)  # batches that are answered at once
MOST_LOADED = 3
MOST_SUGGESTED = 200  # subjects that are offered
MOST_KEPT = 2_000  # answers of a run, so that a question that many ask is answered once
FILES = ("run.json", "model.safetensors", "calibration.json", "evidence.sqlite")


class BusyError(Exception):
    """Too much is being asked at once."""

    sentence = "Too much is being asked of this page at once; try again in a moment."


class Limiter:
    """A pool of threads: `at_once` calls run, `waiting` more wait, and the rest get BusyError."""

    def __init__(
        self, at_once: int, waiting: int, initializer: Callable[[], None] | None = None
    ) -> None:
        self.threads = ThreadPoolExecutor(at_once, initializer=initializer)
        self._most = at_once + waiting
        self._calls = 0

    async def run(self, function: Callable[P, A], *args: P.args, **kwargs: P.kwargs) -> A:
        """What `function` returns in one of the threads."""
        if self._calls >= self._most:
            raise BusyError
        self._calls += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self.threads, lambda: function(*args, **kwargs))
        finally:
            self._calls -= 1

    def close(self) -> None:
        self.threads.shutdown(wait=False, cancel_futures=True)


class BatchQueue(Generic[Q, A]):
    """Takes questions one by one and has them answered in batches, in the order they came.

    Up to `lanes` batches of at most `together` questions are answered at once, each in a thread;
    questions that wait are divided evenly between the free lanes.
    """

    def __init__(
        self,
        answer: Callable[[Sequence[Q]], Sequence[A]],
        threads: ThreadPoolExecutor,
        *,
        waiting: int,
        together: int,
        lanes: int = 1,
    ) -> None:
        self._answer = answer
        self._threads = threads
        self._most_waiting = waiting
        self._together = together
        self._lanes = self._free = lanes
        self._waiting: list[tuple[Q, asyncio.Future[A]]] = []
        self._tasks: set[asyncio.Task[None] | None] = set()

    async def ask(self, question: Q) -> A:
        """The answer to one question, or BusyError."""
        if len(self._waiting) >= self._most_waiting:
            raise BusyError
        future: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._waiting.append((question, future))
        if len(self._tasks) < self._lanes:
            self._tasks.add(asyncio.create_task(self._answer_waiting()))
        return await future

    async def _answer_waiting(self) -> None:
        """One lane, until nobody waits."""
        try:
            await asyncio.sleep(LINGER)
            while self._waiting:
                size = min(self._together, -(-len(self._waiting) // self._free))
                batch, self._waiting = self._waiting[:size], self._waiting[size:]
                self._free -= 1
                try:
                    if asking := [pair for pair in batch if not pair[1].done()]:
                        await self._answer_batch(asking)
                finally:
                    self._free += 1
        finally:
            self._tasks.discard(asyncio.current_task())

    async def _answer_batch(self, batch: list[tuple[Q, asyncio.Future[A]]]) -> None:
        loop, questions = asyncio.get_running_loop(), [question for question, _ in batch]
        try:
            answers = await loop.run_in_executor(self._threads, self._answer, questions)
        except Exception as problem:
            if len(batch) > 1:  # one bad question is no reason to fail its neighbours
                for pair in batch:
                    await self._answer_batch([pair])
            elif not batch[0][1].done():
                batch[0][1].set_exception(problem)
            return
        for (_, future), answer in zip(batch, answers, strict=True):
            if not future.done():
                future.set_result(answer)


class LoadedRun:
    """A run ready to be asked: an asker for each thread, and the answers it has given."""

    def __init__(self, folder: Path, workers: Limiter, tracing: Limiter, limits: Limits) -> None:
        from wherefrom.audit.runs import open_asker

        self.folder = folder
        askers = [open_asker(folder) for _ in range(LANES)]
        self.templates = list(askers[0].run.templates)
        self.notes = list(askers[0].notes)
        self.check = askers[0].check
        self.subjects = suggest_subjects(folder)
        self._workers = workers
        self._tracing = tracing
        self._tracer: Tracer | None = None
        self._free: SimpleQueue[Asker] = SimpleQueue()
        for asker in askers:
            self._free.put(asker)
        self._kept: OrderedDict[str, Record] = OrderedDict()
        self._queue: BatchQueue[str, Record] = BatchQueue(
            lambda questions: self._borrow(lambda asker: to_records(asker.ask(questions))),
            workers.threads,
            waiting=limits.waiting,
            together=limits.together,
            lanes=LANES,
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
        return await self._tracing.run(self._trace, question)

    def _trace(self, question: str) -> Record:
        from wherefrom.provenance.attribution.trace import Tracer
        from wherefrom.training.run_folder import load_run

        # weights of its own: gradients are taken while others ask
        self._tracer = self._tracer or Tracer(load_run(self.folder))
        return self._tracer.trace(question)

    def _borrow(self, function: Callable[[Asker], A]) -> A:
        asker = self._free.get()
        try:
            return function(asker)
        finally:
            self._free.put(asker)


class Models:
    """The runs of an index, loaded when somebody asks; the least recently used are dropped."""

    def __init__(self, index: RunIndex, limits: Limits) -> None:
        self.index = index
        self.limits = limits
        self._workers = Limiter(LANES, limits.heavy_waiting, _use_one_thread)
        self._loader = Limiter(1, limits.heavy_waiting, _use_one_thread)
        self._tracing = Limiter(1, limits.heavy_waiting, _use_one_thread)
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


def suggest_subjects(folder: Path) -> list[str]:
    """Names to ask about: subjects that were kept for judging."""
    from wherefrom.corpus.subjects import read_subjects

    names: list[str] = []
    with suppress(UserError):  # without names, everything can still be asked
        names = sorted({one.subject for one in read_subjects(folder) if one.role == "judged"})
    return names[:: max(1, len(names) // MOST_SUGGESTED)][:MOST_SUGGESTED]
