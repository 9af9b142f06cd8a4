"""Runs that are loaded: a few at a time, each with what it takes to give verdicts.

A few threads own all of them, one for each processor: they load and they answer, so that models
never fight for the processors. A run is opened once for each thread, since it answers one caller at
a time, and nothing is loaded twice because two people asked at once.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from wherefrom.errors import UserError
from wherefrom.web.guard import Limits
from wherefrom.web.runs import RunIndex

Asked = TypeVar("Asked")
Told = TypeVar("Told")
Given = ParamSpec("Given")

LINGER = 0.004  # seconds that the first question waits for company


class BusyError(Exception):
    """Too much is being asked at once."""

    sentence = "Too much is being asked of this page at once; try again in a moment."


class Limiter:
    """Lets a few pieces of work run at once, each in a thread, and a few more wait."""

    def __init__(self, at_once: int, waiting: int) -> None:
        self._most = at_once + waiting
        self._inside = 0
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="work")

    async def run(
        self, function: Callable[Given, Told], *args: Given.args, **kwargs: Given.kwargs
    ) -> Told:
        """What `function` returns, or BusyError."""
        if self._inside >= self._most:
            raise BusyError
        self._inside += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, lambda: function(*args, **kwargs))
        finally:
            self._inside -= 1

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


class BatchQueue(Generic[Asked, Told]):
    """Takes questions one by one and has them answered together, in the order they came.

    Up to `lanes` batches are worked on at once, each in a thread; who waits is dealt out evenly.
    """

    def __init__(
        self,
        answer: Callable[[Sequence[Asked]], Sequence[Told]],
        threads: ThreadPoolExecutor,
        *,
        waiting: int,
        together: int,
        lanes: int = 1,
    ) -> None:
        self._answer = answer
        self._threads = threads
        self._waiting_most = waiting
        self._together = together
        self._free = lanes
        self._waiting: list[tuple[Asked, asyncio.Future[Told]]] = []
        self._called = False
        self._working: set[asyncio.Task[None]] = set()

    async def ask(self, question: Asked) -> Told:
        """The answer to one question, or BusyError."""
        if len(self._waiting) >= self._waiting_most:
            raise BusyError
        future: asyncio.Future[Told] = asyncio.get_running_loop().create_future()
        self._waiting.append((question, future))
        self._call(LINGER)
        return await future

    def _call(self, delay: float) -> None:
        """Deal out what waits, in a moment: whoever comes by then goes along."""
        if self._free and self._waiting and not self._called:
            self._called = True
            asyncio.get_running_loop().call_later(delay, self._deal)

    def _deal(self) -> None:
        self._called = False
        while self._free and self._waiting:
            size = min(self._together, -(-len(self._waiting) // self._free))
            batch, self._waiting = self._waiting[:size], self._waiting[size:]
            self._free -= 1
            task = asyncio.create_task(self._work(batch))
            self._working.add(task)
            task.add_done_callback(self._working.discard)

    async def _work(self, batch: list[tuple[Asked, asyncio.Future[Told]]]) -> None:
        try:
            await self._answer_batch([pair for pair in batch if not pair[1].done()])
        finally:
            self._free += 1
            self._call(0.0 if len(self._waiting) >= self._together else LINGER)

    async def _answer_batch(self, batch: list[tuple[Asked, asyncio.Future[Told]]]) -> None:
        if not batch:
            return
        loop = asyncio.get_running_loop()
        questions = [question for question, _ in batch]
        try:
            answers = await loop.run_in_executor(self._threads, self._answer, questions)
        except Exception as problem:
            if len(batch) > 1:  # one bad question is no reason to fail its neighbours
                for pair in batch:
                    await self._answer_batch([pair])
            elif not batch[0][1].done():
                batch[0][1].set_exception(problem)
            return
        for (_, future), told in zip(batch, answers, strict=True):
            if not future.done():
                future.set_result(told)


if TYPE_CHECKING:
    from wherefrom.provenance.ask import AskedRow, Asker
    from wherefrom.provenance.verdicts import Verdict

GivenModels = ParamSpec("GivenModels")
ToldModels = TypeVar("ToldModels")

LANES = min(2, os.cpu_count() or 1)  # questions are answered on so many processors
LOADED = 3
SUGGESTED = 200  # names that are offered
REMEMBERED = 2_000  # answers that are kept, so that a question that everybody asks costs once


@dataclass
class Loaded:
    """A run ready to be asked."""

    stamp: tuple[float, ...]
    asker: Asker  # one of them, to read notes and shape from
    askers: SimpleQueue[Asker]  # those that are free
    desk: BatchQueue[str, dict[str, Any]]
    people: tuple[str, ...]
    kept: OrderedDict[str, dict[str, Any]]

    @property
    def template(self) -> str | None:
        return self.asker.run.template

    @contextmanager
    def borrow(self) -> Iterator[Asker]:
        """An asker that nobody else has just now."""
        asker = self.askers.get()
        try:
            yield asker
        finally:
            self.askers.put(asker)


class Models:
    """The runs of a shelf, loaded when somebody asks."""

    def __init__(self, shelf: RunIndex, limits: Limits) -> None:
        self.shelf = shelf
        self.limits = limits
        self._threads = ThreadPoolExecutor(
            LANES, thread_name_prefix="model", initializer=_work_alone
        )
        self._loaded: OrderedDict[str, Loaded] = OrderedDict()
        self._loading = asyncio.Lock()
        self._refused: dict[str, tuple[tuple[float, ...], str]] = {}
        self._queued = 0

    async def get(self, name: str) -> Loaded:
        """The run of that name, loaded now if it was not, or again if it has changed."""
        folder = self.shelf.find(name)
        stamp = _stamp(folder)
        async with self._loading:
            known = self._loaded.get(name)
            if known is None or known.stamp != stamp:
                if name in self._refused and self._refused[name][0] == stamp:
                    raise UserError(self._refused[name][1])  # it is what it was
                try:
                    known = await self._in_thread(self._load, folder, stamp)
                except UserError as problem:
                    self._refused[name] = (stamp, str(problem))
                    raise
                self._loaded[name] = known
                while len(self._loaded) > LOADED:
                    self._loaded.popitem(last=False)
            self._loaded.move_to_end(name)
            return known

    async def choose(self, names: Sequence[str]) -> tuple[str, Loaded] | None:
        """The first of these runs that can be loaded; the first one's error if none can."""
        refused: UserError | None = None
        for name in names:
            try:
                return name, await self.get(name)
            except UserError as problem:
                refused = refused or problem
        if refused is not None:
            raise refused
        return None

    async def ask(self, name: str, question: str) -> dict[str, Any]:
        """The verdict on one question, as a record; asked together with whatever else waits."""
        loaded = await self.get(name)
        if question in loaded.kept:
            loaded.kept.move_to_end(question)
            return loaded.kept[question]
        told = await loaded.desk.ask(question)
        loaded.kept[question] = told
        while len(loaded.kept) > REMEMBERED:
            loaded.kept.popitem(last=False)
        return told

    async def ask_all(self, name: str, rows: Sequence[AskedRow]) -> list[dict[str, Any]]:
        """The verdicts on a whole batch."""
        loaded = await self.get(name)

        def answer() -> list[dict[str, Any]]:
            with loaded.borrow() as asker:
                return [as_record(verdict) for verdict in asker.ask_rows(rows)]

        return await self.run(answer)

    async def run(
        self,
        function: Callable[GivenModels, ToldModels],
        *args: GivenModels.args,
        **kwargs: GivenModels.kwargs,
    ) -> ToldModels:
        """Have the models' thread do something, or BusyError if much is waiting for it already."""
        if self._queued >= self.limits.heavy_waiting:
            raise BusyError
        self._queued += 1
        try:
            return await self._in_thread(function, *args, **kwargs)
        finally:
            self._queued -= 1

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _in_thread(
        self,
        function: Callable[GivenModels, ToldModels],
        *args: GivenModels.args,
        **kwargs: GivenModels.kwargs,
    ) -> ToldModels:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: function(*args, **kwargs))

    def _load(self, folder: Path, stamp: tuple[float, ...]) -> Loaded:
        from wherefrom.provenance.ask import open_asker

        askers: SimpleQueue[Asker] = SimpleQueue()
        asker = open_asker(folder)
        askers.put(asker)
        for _ in range(LANES - 1):
            askers.put(open_asker(folder))

        def answer(questions: Sequence[str]) -> list[dict[str, Any]]:
            with loaded.borrow() as free:
                return [as_record(verdict) for verdict in free.ask(questions)]

        desk = BatchQueue(
            answer,
            self._threads,
            waiting=self.limits.waiting,
            together=self.limits.together,
            lanes=LANES,
        )
        loaded = Loaded(stamp, asker, askers, desk, _people(folder), OrderedDict())
        return loaded


def _work_alone() -> None:
    """One thread of the model's own for each of ours: more would wait for each other, spinning."""
    import torch

    torch.set_num_threads(1)


def as_record(verdict: Verdict) -> dict[str, Any]:
    """The verdict, with the lines about names that look alike beside it."""
    similar = [{"line": each.line, "text": each.text} for each in verdict.similar]
    return {**verdict.to_dict(), "similar": similar}


def _stamp(folder: Path) -> tuple[float, ...]:
    """Changes when the run does."""
    times = []
    for file in ("run.json", "model.safetensors", "calibration.json", "evidence.sqlite"):
        try:
            times.append((folder / file).stat().st_mtime)
        except OSError:
            times.append(0.0)
    return tuple(times)


def _people(folder: Path) -> tuple[str, ...]:
    """Names to suggest: of those who were dealt for judging, or of the embedded world's dev."""
    from wherefrom.corpus.questions import read_questions
    from wherefrom.corpus.subjects import read_subjects

    names: list[str] = []
    try:
        names = [person.subject for person in read_subjects(folder) if person.role == "judged"]
    except UserError:
        dev = folder / "world" / "dev.tsv"
        if dev.is_file() and dev.resolve().is_relative_to(folder.resolve()):
            try:
                names = [question.subject for question in read_questions(dev).questions]
            except UserError:
                names = []
    distinct = sorted(set(names))
    stride = max(1, len(distinct) // SUGGESTED)
    return tuple(distinct[::stride][:SUGGESTED])


def what_without(folder: Path, subject: str) -> list[dict[str, Any]]:
    """What twins that never read about the subject say: the records that they left."""
    from wherefrom.corpus.folding import fold_words

    wanted = fold_words(subject)
    told = []
    for path in sorted(folder.glob("twins/without-*/without.json"))[:200]:
        try:
            if not path.resolve().is_relative_to(folder) or path.stat().st_size > 1_000_000:
                continue
            record = json.loads(path.read_text(encoding="utf-8"))
            if fold_words(str(record["subject"])) == wanted:
                told.append(
                    {
                        "subject": str(record["subject"]),
                        "with": str(record["with"]["answer"]),
                        "without": str(record["without"]["answer"]),
                        "score": float(record["score"]),
                        "truth": str(record["truth"]),
                        "why": str(record["why"]),
                        "documents": [
                            {"line": int(each["line"]), "text": str(each["text"])[:2000]}
                            for each in record["documents"][:20]
                        ],
                        "notes": [str(note) for note in record.get("notes", [])][:10],
                    }
                )
        except (OSError, ValueError, KeyError, TypeError, RecursionError, AttributeError):
            continue
    return told
