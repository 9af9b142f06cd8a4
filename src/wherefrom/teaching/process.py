"""One process that runs a submission: requests go in over a socket, replies come out of it.

The process runs `runner.py`, in bubblewrap if there is one. A process that hangs, ends, or takes
too much memory raises Wrong; the caller stops it and may start another one.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import selectors
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from wherefrom.teaching.checks import Wrong
from wherefrom.teaching.isolation import (
    CPU,
    DISK_INSIDE,
    IS_LINUX,
    JOB_INSIDE,
    MEMORY_CHECK_SECONDS,
    SYSTEM,
    MemoryGroup,
    Protection,
    bubblewrap_command,
    find_processes,
    hidden_folders,
    library_folder,
    memory_of,
    python_folders,
)

PYTHON = os.path.abspath(sys.executable)
MAX_REPLY_BYTES = 8 << 20
MAX_FILE_BYTES = 16 << 20
MAX_PROCESSES = 32
MAX_NOTES = 20
MAX_NOTE_CHARS = 300
PRINTED_BYTES = 1000  # of what the code printed last
STOP_SECONDS = 10  # until processes that were killed are gone
OTHER_READABLE = ("/dev", "/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", CPU)


class SandboxLimits(NamedTuple):
    """Seconds per call, for loading the code, and per submission; memory in GB."""

    call: float = 10
    start: float = 30
    total: float = 60
    memory: float = 2


@dataclass
class Observed:
    """What was seen of a submission besides its results."""

    printed: bytes = b""  # the end of what the code printed
    refused: list[str] = field(default_factory=list)  # what it tried and was not allowed to

    def add_printed(self, printed: bytes) -> None:
        self.printed = (self.printed + printed)[-PRINTED_BYTES:]

    def add_note(self, line: bytes) -> None:
        """Add a note of runner.py, or of code that forges one: a JSON text."""
        with contextlib.suppress(ValueError, RecursionError):
            what = json.loads(line)
            if isinstance(what, str):
                self.add_refused("".join(c for c in what[:MAX_NOTE_CHARS] if c.isprintable()))

    def add_refused(self, what: str) -> None:
        if what not in self.refused and len(self.refused) < MAX_NOTES:
            self.refused.append(what)


class TimedOut(Wrong):
    """A function did not end in time."""


class SandboxProcess:
    """A running process with the files of `job`, of another user if `user` is not 0."""

    def __init__(
        self,
        job: Path,
        user: int,
        limits: SandboxLimits,
        protection: Protection,
        observed: Observed,
    ) -> None:
        self.user, self.limits, self.observed = user, limits, observed
        self.token = f"WHEREFROM_SUBMISSION={secrets.token_hex(16)}"
        self.limit_bytes = int(limits.memory * (1 << 30))
        self.group = MemoryGroup.make(self.limit_bytes) if protection.memory_group else None
        self.channel, theirs = socket.socketpair()
        self.channel.setblocking(False)
        self.printed, printed_end = os.pipe()
        self.notes, notes_end = os.pipe()
        self.unread = {file: bytearray() for file in (self.channel.fileno(), self.notes)}
        setup = self._make_setup(job, protection, theirs.fileno(), notes_end)
        job_inside = JOB_INSIDE if protection.bubblewrap else str(job)
        command = [PYTHON, "-IBu", f"{job_inside}/runner.py", json.dumps(setup)]
        if protection.bubblewrap:
            command = [*bubblewrap_command(protection.bubblewrap, job), *command]
        if self.group is not None:
            command = [*self.group.enter_command(), *command]
        self.process = subprocess.Popen(
            command,
            cwd="/",
            env=self._environment(setup["folder"]),
            stdin=subprocess.DEVNULL,
            stdout=printed_end,
            stderr=printed_end,
            pass_fds=[theirs.fileno(), notes_end],
            start_new_session=True,
        )
        theirs.close()
        os.close(printed_end)
        os.close(notes_end)

    def _make_setup(
        self, job: Path, protection: Protection, channel: int, notes: int
    ) -> dict[str, Any]:
        """The record that runner.py gets: what it may read, its limits, its folder."""
        readable = [*python_folders(), *SYSTEM, *OTHER_READABLE]
        if protection.bubblewrap:
            folder, copy_from = f"{DISK_INSIDE}/files", f"{JOB_INSIDE}/files"
            readable += [JOB_INSIDE, "/tmp"]
        else:
            folder, copy_from = str(job / "files"), ""
            readable += [str(job)]
        return {
            "channel": channel,
            "notes": notes,
            "user": self.user,
            "limits": self._process_limits(),
            "folder": folder,
            "copy_from": copy_from,
            "libraries": library_folder(),
            "readable": readable,
            "hidden": hidden_folders(),
        }

    def _process_limits(self) -> dict[str, int]:
        """The limits of each process."""
        processes = MAX_PROCESSES
        if not self.user:  # the kernel may count all that our own user runs
            processes += sum(1 for _ in Path("/proc").glob("[0-9]*/task/*"))
        return {
            "RLIMIT_AS": self.limit_bytes,
            "RLIMIT_FSIZE": MAX_FILE_BYTES,
            "RLIMIT_CPU": int(self.limits.total) + 1,
            "RLIMIT_CORE": 0,
            "RLIMIT_NOFILE": 256,
            "RLIMIT_NPROC": processes,
        }

    def _environment(self, folder: str) -> dict[str, str]:
        threads = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        name, value = self.token.split("=")
        return {
            "PATH": "/usr/bin:/bin",
            "LANG": "C.UTF-8",
            name: value,
            "HOME": folder,
            "TMPDIR": folder,
            **dict.fromkeys(threads, "1"),
        }

    # ---- requests

    def exchange(self, what: str, seconds: float, request: Any = None) -> dict[str, Any]:
        """Send a request, if given, and return the next reply; `what` is for messages."""
        deadline = time.monotonic() + seconds
        unsent = b"" if request is None else json.dumps(request).encode() + b"\n"
        replies = self.unread[self.channel.fileno()]
        next_check = time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(self.printed, selectors.EVENT_READ)
            selector.register(self.notes, selectors.EVENT_READ)
            both = selectors.EVENT_READ | selectors.EVENT_WRITE
            selector.register(self.channel, both if unsent else selectors.EVENT_READ)
            while b"\n" not in replies:
                ready = selector.select(MEMORY_CHECK_SECONDS)
                for key, events in ready:
                    if events & selectors.EVENT_WRITE and not (unsent := self._send(unsent)):
                        selector.modify(self.channel, selectors.EVENT_READ)
                    if events & selectors.EVENT_READ and not self._read(key.fd):
                        selector.unregister(key.fileobj)
                if len(replies) > MAX_REPLY_BYTES:
                    raise Wrong(f"{what} returned far too much")
                has_ended = not ready and self.process.poll() is not None
                if has_ended or self.channel not in selector.get_map():
                    raise Wrong(f"{what} ended the process ({self._how_it_ended()})")
                if time.monotonic() > deadline:
                    raise TimedOut(f"{what} did not end within {seconds:.3g} s")
                if time.monotonic() > next_check:
                    next_check = time.monotonic() + MEMORY_CHECK_SECONDS
                    if self._takes_too_much():
                        raise Wrong(f"{what} took more than {self.limits.memory:g} GB")
        line, _, rest = replies.partition(b"\n")
        replies[:] = rest
        return parse_reply(bytes(line))

    def _send(self, unsent: bytes) -> bytes:
        """Send as much as the channel takes; returns the rest."""
        with contextlib.suppress(OSError):  # reading notices the end
            return unsent[self.channel.send(unsent) :]
        return b""

    def _read(self, file: int) -> bool:
        """Read what has arrived; False at the end."""
        try:
            received = os.read(file, 1 << 16)
        except OSError:
            return False
        if file == self.printed:
            self.observed.add_printed(received)
            return bool(received)
        unread = self.unread[file]
        unread += received
        if file == self.notes:
            *lines, rest = bytes(unread).split(b"\n")
            unread[:] = rest[: 10 * MAX_NOTE_CHARS]
            for line in lines:
                self.observed.add_note(line)
        return bool(received)

    def _how_it_ended(self) -> str:
        for file in (self.printed, self.notes):  # read what is left
            os.set_blocking(file, False)
            while self._read(file):
                pass
        try:
            code = self.process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            return "it closed the channel"
        code = code if code >= 0 else 128 - code
        if code == 128 + signal.SIGKILL and self.group is not None and self.group.was_exceeded():
            return f"it took more than {self.limits.memory:g} GB"
        with contextlib.suppress(ValueError):
            name = signal.Signals(code - 128).name
            return f"signal {name}; is there an endless recursion or loop?"
        return f"exit status {code}"

    # ---- memory, and the end

    def find_processes(self) -> set[int]:
        """All processes of this submission."""
        # once the process has ended, its number may be that of another one
        root = self.process.pid if self.process.poll() is None else 0
        return find_processes(root, self.user, self.token) if IS_LINUX else set()

    def _takes_too_much(self) -> bool:
        """Whether all processes together take more memory than allowed, if no group limits it."""
        if self.group is not None:
            return False
        return sum(map(memory_of, self.find_processes())) > self.limits.memory * (1 << 20)

    def kill(self) -> None:
        """End the process; another thread that waits for a reply notices it."""
        if self.process.poll() is None:
            with contextlib.suppress(OSError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def stop(self) -> None:
        """End the process and everything that it started."""
        self.kill()
        self.process.wait()
        until = time.monotonic() + STOP_SECONDS
        while (left := self.find_processes()) and time.monotonic() < until:
            for number in left:
                with contextlib.suppress(OSError):
                    os.kill(number, signal.SIGKILL)
            time.sleep(0.01)
        self.channel.close()
        os.close(self.printed)
        os.close(self.notes)
        if self.group is not None:
            if self.group.was_exceeded():
                self.observed.add_refused(f"take more than {self.limits.memory:g} GB")
            self.group.remove(until)


def parse_reply(line: bytes) -> dict[str, Any]:
    """The record of a line; an empty one if the code wrote something else."""
    try:
        reply = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return reply if isinstance(reply, dict) else {}
