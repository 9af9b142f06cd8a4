"""Processes that compute for the page, each call under a budget of time and memory.

A call that takes too long, or that nobody waits for any more, is stopped by ending its process; the
next call starts a new one. All of them are forks of one server process that has imported what they
need, so starting one takes milliseconds.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import resource
import signal
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from queue import LifoQueue
from typing import Any, TypeVar

from wherefrom.errors import UserError

Result = TypeVar("Result")

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["wherefrom.web.preloaded"])
POLL_SECONDS = 0.1  # between two looks at the clock and at the client
GRACE_SECONDS = 2.0  # a shorter call is finished although its client has gone
ALARM_SECONDS = 30  # beyond the budget: a process ends itself in case the page has gone
MEMORY_BYTES = 2 * 2**30  # of a process that computes for the workbench and the report


class BusyError(Exception):
    """Too much is being asked at once."""


class OverBudgetError(UserError):
    """A computation took too long and was stopped."""


class WorkerFailedError(Exception):
    """A call raised an error that is not the user's; the message has its traceback."""


def start_fork_server() -> None:
    """Start importing what workers need, so that the first call does not wait for it."""
    # a module that lies in the folder where the page was started must not be imported
    os.environ["PYTHONSAFEPATH"] = "1"
    forkserver.ensure_running()


def end_all() -> None:
    """End every worker at once, whatever it does."""
    for process in multiprocessing.active_children():
        process.kill()


class Worker:
    """One process that makes one call at a time; it ends when this object is dropped."""

    def __init__(self, memory_bytes: int, niceness: int) -> None:
        self._limits = (memory_bytes, niceness)
        self._process: BaseProcess | None = None
        self._connection: Connection | None = None

    def call(
        self,
        function: Callable[..., Result],
        arguments: tuple[Any, ...],
        seconds: float,
        is_abandoned: Callable[[], bool],
    ) -> Result:
        """What `function`, which its module's name leads to, returns in the process."""
        connection = self._connect()
        began = time.monotonic()
        try:
            connection.send((function, arguments, seconds))
            while not connection.poll(POLL_SECONDS):
                elapsed = time.monotonic() - began
                if elapsed > seconds:
                    raise OverBudgetError(
                        f"this took longer than {seconds:.0f} seconds and was stopped; ask for "
                        "something smaller."
                    )
                if elapsed > GRACE_SECONDS and is_abandoned():
                    raise OverBudgetError("this was stopped, since nobody waits for it any more.")
            result, problem = connection.recv()
        except (EOFError, ConnectionError):
            self.end()
            raise OverBudgetError(
                "this was stopped because it needed more memory or time than the page allows; ask "
                "for something smaller."
            ) from None
        except BaseException:
            self.end()
            raise
        if problem is not None:
            raise problem
        return result

    def end(self) -> None:
        """End the process; the next call starts another."""
        if self._process is not None and self._process.is_alive():
            self._process.kill()
        self._process = self._connection = None

    def _connect(self) -> Connection:
        if self._connection is None:
            start_fork_server()
            self._connection, theirs = CONTEXT.Pipe()
            self._process = CONTEXT.Process(
                target=_answer_calls, args=(theirs, *self._limits), daemon=True
            )
            self._process.start()
            theirs.close()
        return self._connection


def _answer_calls(connection: Connection, memory_bytes: int, niceness: int) -> None:
    """What a worker does until the page drops it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal reaches every process
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    os.nice(niceness)
    while True:
        try:
            function, arguments, seconds = connection.recv()
        except EOFError:
            return
        signal.alarm(int(seconds) + ALARM_SECONDS)
        result = None
        problem: Exception | None = None
        try:
            result = function(*arguments)
        except UserError as mistake:
            problem = UserError(str(mistake))  # subclasses may not be made from a message alone
        except MemoryError:
            problem = OverBudgetError("this needs more memory than the page allows.")
        except Exception:
            problem = WorkerFailedError(traceback.format_exc())
        signal.alarm(0)
        with suppress(BrokenPipeError):
            connection.send((result, problem))


class Limiter:
    """A pool of threads: `count` calls run, `waiting` more wait, and others get BusyError."""

    def __init__(self, count: int, waiting: int) -> None:
        self._threads = ThreadPoolExecutor(count)
        self._max_calls = count + waiting
        self._calls = 0

    async def run(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """What `function` returns in one of the threads."""
        if self._calls >= self._max_calls:
            raise BusyError
        self._calls += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, function, *arguments)
        finally:
            self._calls -= 1


class Workers:
    """`count` processes; `waiting` more calls wait for one of them, and others get BusyError."""

    def __init__(
        self, count: int, waiting: int, *, memory_bytes: int = MEMORY_BYTES, niceness: int = 5
    ) -> None:
        self._watching = Limiter(count, waiting)  # a thread watches each process
        self._free: LifoQueue[Worker] = LifoQueue()  # the last used has most ready
        for _ in range(count):
            self._free.put(Worker(memory_bytes, niceness))

    async def run(self, function: Callable[..., Result], *arguments: Any, seconds: float) -> Result:
        """What `function` returns; stopped after `seconds`, or when this task is cancelled."""
        is_abandoned = threading.Event()

        def call() -> Result:
            worker = self._free.get()
            try:
                return worker.call(function, arguments, seconds, is_abandoned.is_set)
            finally:
                self._free.put(worker)

        try:
            return await self._watching.run(call)
        finally:
            is_abandoned.set()
