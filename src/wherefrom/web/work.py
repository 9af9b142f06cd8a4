"""Work that takes a while, done in threads: questions together, other things a few at a time.

Concurrent questions wait a moment for each other and go through the model as one batch, or as one
for each processor. Everything else passes a gate. Whoever comes when too many are waiting is
told so at once, which is better than being told nothing for a minute.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, ParamSpec, TypeVar

Asked = TypeVar("Asked")
Told = TypeVar("Told")
Given = ParamSpec("Given")

LINGER = 0.004  # seconds that the first question waits for company


class BusyError(Exception):
    """Too much is being asked at once."""

    sentence = "Too much is being asked of this page at once; try again in a moment."


class Gate:
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


class Desk(Generic[Asked, Told]):
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
