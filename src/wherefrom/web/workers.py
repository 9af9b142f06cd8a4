"""Processes that compute for the page, each call under a budget of time and memory.

A call that takes too long, or that nobody waits for any more, is stopped by ending its process; the
next call starts a new one. All processes are forks of one fork server, which has imported what they
need, so starting one takes milliseconds.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import resource
import shutil
import signal
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import forkserver, util
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from wherefrom.errors import UserError

Result = TypeVar("Result")

CONTEXT = multiprocessing.get_context("forkserver")
PRELOADED = (  # what workers use; a module that is missing here is imported by the first call
    "wherefrom.provenance.audited",
    "wherefrom.provenance.attribution.trace",
    "wherefrom.report.study_report",
    "wherefrom.report.workbench_figures",
    "wherefrom.web.model_process",
    "wherefrom.web.workbench",
)
GRACE_SECONDS = 2.0  # a shorter call is finished although its client has gone
ALARM_SECONDS = 30  # beyond the budget a process ends itself, in case the page has gone
MEMORY_BYTES = 2 * 2**30  # of a process that computes for the workbench and the report


class BusyError(Exception):
    """Too much is being asked at once."""


class OverBudgetError(UserError):
    """A computation took too long or too much memory and was stopped."""


class WorkerFailedError(Exception):
    """A call raised an error that is not the user's; the message has its traceback."""


def start_fork_server() -> None:
    """Start importing what workers need, so that the first call does not wait for it."""
    # a module that lies in the folder where the page was started must not be imported
    os.environ["PYTHONSAFEPATH"] = "1"
    CONTEXT.set_forkserver_preload(list(PRELOADED))
    forkserver.ensure_running()


def end_all() -> None:
    """End every worker at once, whatever it does, and leave no file behind."""
    for process in multiprocessing.active_children():
        process.kill()
    shutil.rmtree(util.get_temp_dir(), ignore_errors=True)  # where the fork server's socket lies


class Workers:
    """Up to `count` processes; `waiting` more calls wait for one, and others get BusyError."""

    def __init__(
        self, count: int, waiting: int, *, memory_bytes: int = MEMORY_BYTES, niceness: int = 5
    ) -> None:
        self._free = asyncio.Semaphore(count)
        self._max_calls = count + waiting
        self._calls = 0
        self._limits = (memory_bytes, niceness)
        self._idle: list[Worker] = []  # the last used has most in its caches

    async def run(self, function: Callable[..., Result], *arguments: Any, seconds: float) -> Result:
        """What `function` returns; stopped after `seconds`, or when this task is cancelled."""
        if self._calls >= self._max_calls:
            raise BusyError
        self._calls += 1
        try:
            async with self._free:
                return await self._run(function, arguments, seconds)
        finally:
            self._calls -= 1

    async def _run(
        self, function: Callable[..., Result], arguments: tuple[Any, ...], seconds: float
    ) -> Result:
        worker = self._pop_idle()
        if worker is None:  # a new process may have to wait for the fork server
            worker = await asyncio.to_thread(Worker, self._limits)
        call = asyncio.create_task(worker.call(function, arguments, seconds))
        try:
            return await asyncio.shield(call)
        except asyncio.CancelledError:
            await asyncio.wait([call], timeout=GRACE_SECONDS)
            raise
        finally:
            if call.done():
                self._idle.append(worker)
            else:
                worker.end()
                call.cancel()

    def _pop_idle(self) -> Worker | None:
        """An idle process; one that has ended, for whatever reason, is dropped."""
        while self._idle:
            worker = self._idle.pop()
            if worker.is_usable():
                return worker
        return None


class Worker:
    """One process that makes one call at a time; it ends when this object is dropped."""

    def __init__(self, limits: tuple[int, int]) -> None:
        start_fork_server()
        self._connection, theirs = CONTEXT.Pipe()
        self._process = CONTEXT.Process(target=_answer_calls, args=(theirs, *limits), daemon=True)
        self._process.start()
        theirs.close()
        self._was_ended = False

    async def call(
        self, function: Callable[..., Result], arguments: tuple[Any, ...], seconds: float
    ) -> Result:
        """What `function`, which its module's name leads to, returns in the process."""
        loop = asyncio.get_running_loop()
        has_replied = asyncio.Event()
        loop.add_reader(self._connection, has_replied.set)
        try:
            self._connection.send((function, arguments, seconds))
            async with asyncio.timeout(seconds):
                await has_replied.wait()
            result, problem = self._connection.recv()
        except TimeoutError:
            self.end()
            raise OverBudgetError(
                f"this took longer than {seconds:.0f} seconds and was stopped; ask for something "
                "smaller."
            ) from None
        except (EOFError, ConnectionError):
            self.end()
            raise OverBudgetError(
                "this was stopped because it needed more memory or time than the page allows; ask "
                "for something smaller."
            ) from None
        finally:
            loop.remove_reader(self._connection)
        if problem is not None:
            raise problem
        return result

    def is_usable(self) -> bool:
        """Whether the process waits for a call; once it has ended, there is an end to be read."""
        return not self._was_ended and not self._connection.poll()

    def end(self) -> None:
        """End the process, whatever it does."""
        if not self._was_ended and self._process.is_alive():
            self._process.kill()
        self._was_ended = True


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
