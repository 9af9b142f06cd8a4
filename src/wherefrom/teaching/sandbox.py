"""The sandbox that runs students' code: bubblewrap where it works, else a process with limits.

The grader calls a submission's functions over a socket and judges the results itself. Inside are
only the submission, `runner.py`, `checks.py` and Python's libraries: no solution and no right
result, so code can neither look them up nor forge its score.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import json
import os
import pwd
import random
import secrets
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from wherefrom.errors import UserError
from wherefrom.teaching.checks import Wrong, plain

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parent  # holds the reference solution
PYTHON = os.path.abspath(sys.executable)
MAX_REPLY_BYTES = 8 << 20
MAX_FILE_BYTES = 16 << 20
MAX_DISK_BYTES = 128 << 20  # of all files that a submission writes, in bubblewrap
MAX_PROCESSES = 32
MAX_NOTES = 20
PRINTED_BYTES = 1000  # of what the code printed last
STOP_SECONDS = 10  # until processes that were killed are gone
TICK_SECONDS = 0.1  # between two looks at the memory
# one of these users runs a submission that root grades
USERS = itertools.cycle(random.SystemRandom().sample(range(50_000, 60_000), 10_000))
SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/etc/ld.so.cache", "/etc/localtime")
JOB_INSIDE, DISK_INSIDE = "/wherefrom-job", "/submission"  # paths inside of bubblewrap
CPU = "/sys/devices/system/cpu"
OTHER_READABLE = ("/dev", "/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", CPU)


class SandboxLimits(NamedTuple):
    """Seconds per call, for loading the code, and per submission; memory in GB."""

    call: float = 10
    start: float = 30
    total: float = 60
    memory: float = 2


@dataclass(frozen=True)
class Protection:
    """What this system offers to contain a submission."""

    bubblewrap: str = ""  # its path, if it works here
    why_plain: str = ""  # why it is not used
    memory_group: bool = False  # the kernel can limit the memory of all processes together

    def gaps(self) -> list[str]:
        """What is not protected, as sentences."""
        found = []
        if not self.bubblewrap:
            who = "an unused user" if os.getuid() == 0 else "you"
            found.append(
                f"Students' code runs without bubblewrap ({self.why_plain}), as {who}: it can "
                f"reach the network, fill the disk and, through a C library, read what {who} can "
                "read. Grade strangers where bwrap works, or in a container."
            )
        if not self.memory_group:
            found.append(
                "This system gives us no memory control group: the memory of all processes of a "
                f"submission is measured every {TICK_SECONDS:g} s, so it may pass the limit for a "
                "moment."
            )
        return found


@cache
def find_protection() -> Protection:
    """Try out what works on this system."""
    if sys.platform == "win32":
        raise UserError("students' code is run on Linux and macOS only.")
    group = make_memory_group(1 << 30)
    if group is not None:
        group.rmdir()
    program = shutil.which("bwrap") or ""
    why_plain = try_bubblewrap(program) if program else "it is not installed"
    if not why_plain:
        return Protection(program, "", group is not None)
    if os.getuid() == 0 and not all_can_read(python_folders()):
        raise UserError(
            f"bubblewrap cannot be used ({why_plain}), and {sys.base_prefix} can be read by root "
            "alone, so no other user can run students' code; install bubblewrap, or use a Python "
            "that every user can read."
        )
    return Protection("", why_plain, group is not None)


def try_bubblewrap(program: str) -> str:
    """Why bubblewrap does not work on this system, or "" if it does."""
    with tempfile.TemporaryDirectory(prefix="wherefrom-grade-") as folder:
        command = [*enter_bubblewrap(program, Path(folder)), PYTHON, "-I", "-c", "import numpy"]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if not ended.returncode:
        return ""
    lines = ended.stderr.strip().splitlines() or [f"exit status {ended.returncode}"]
    return f"it does not work here: {lines[-1]}"


def all_can_read(folders: Sequence[str]) -> bool:
    """Whether every user can read these folders."""
    paths = [path for folder in folders for path in (Path(folder), *Path(folder).parents)]
    return all(path.stat().st_mode & 0o005 == 0o005 for path in paths)


def library_folder() -> str:
    """The folder in which numpy is installed."""
    found = importlib.util.find_spec("numpy")
    if found is None or found.origin is None:
        raise UserError("students' code needs numpy, which is not installed.")
    return str(Path(found.origin).parents[1])


def python_folders() -> list[str]:
    """Folders that Python and its libraries are read from."""
    return list(dict.fromkeys([sys.prefix, sys.base_prefix, library_folder()]))


def enter_bubblewrap(program: str, job: Path) -> list[str]:
    """The command that runs another one in a file system with Python and this job alone."""
    command = [program, "--die-with-parent", "--new-session"]
    if os.getuid() == 0:  # no user namespace: runner.py becomes another user
        command += ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"]
        command += ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        command += ["--unshare-all"]
    for folder in ("/tmp", DISK_INSIDE):
        command += ["--size", str(MAX_DISK_BYTES), "--perms", "1777", "--tmpfs", folder]
    for path in SYSTEM:
        command += ["--ro-bind-try", path, path]
    for folder in python_folders():
        for parent in reversed(Path(folder).parents[:-1]):
            command += ["--perms", "0755", "--dir", str(parent)]
        command += ["--ro-bind", folder, folder]
        if PACKAGE.is_relative_to(Path(folder).resolve()):
            command += ["--tmpfs", str(PACKAGE)]
    command += ["--ro-bind", str(job), JOB_INSIDE, "--proc", "/proc", "--dev", "/dev"]
    command += ["--size", str(MAX_DISK_BYTES), "--perms", "1777", "--tmpfs", "/dev/shm"]
    command += ["--ro-bind-try", CPU, CPU, "--remount-ro", "/dev", "--remount-ro", "/"]
    return [*command, "--chdir", DISK_INSIDE, "--"]


def make_memory_group(limit_bytes: int) -> Path | None:
    """A new control group with this limit, or None if the system does not let us make one."""
    for parent, limit_file, swap_file, swap in find_memory_groups():
        group = parent / f"wherefrom-{secrets.token_hex(8)}"
        with contextlib.suppress(OSError):
            group.mkdir()
            try:
                with open(group / limit_file, "r+") as file:
                    file.write(str(limit_bytes))
            except OSError:
                group.rmdir()
                continue
            with contextlib.suppress(OSError), open(group / swap_file, "r+") as file:
                file.write(str(limit_bytes) if swap else "0")  # a kernel may not count swap
            return group
    return None


def find_memory_groups() -> Iterator[tuple[Path, str, str, bool]]:
    """(group, its file for memory, its file for swap, whether that one counts memory as well).

    Of version 1 and of version 2, first our own group, then the one around it: a group of version 2
    that has processes can have no group with limits inside.
    """
    try:
        lines = Path("/proc/self/cgroup").read_text("utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        number, kinds, own = line.split(":", 2)
        if kinds == "memory":
            hierarchy = "/sys/fs/cgroup/memory"
            files = ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", True)
        elif number == "0":
            hierarchy = "/sys/fs/cgroup"
            files = ("memory.max", "memory.swap.max", False)
        else:
            continue
        group = Path(hierarchy, own.lstrip("/"))
        for parent in (group, group.parent):
            if parent.is_relative_to(hierarchy) and (parent / "cgroup.procs").exists():
                yield (parent, *files)


class TimedOut(Wrong):
    """A function did not end in time."""


class Sandbox:
    """Runs the functions of one submission.

    A function that hangs, crashes or takes too much fails alone: a new process runs the others.
    """

    def __init__(
        self,
        files: Mapping[str, bytes],
        limits: SandboxLimits,
        protection: Protection | None = None,
    ) -> None:
        self.limits, self.protection = limits, protection or find_protection()
        self.deadline = time.monotonic() + limits.total
        self.broken: dict[str, str] = {}  # function ("" for all) -> why it is not called again
        self.printed = b""  # the end of what the code printed
        self.refused: list[str] = []  # what the code tried and was not allowed to
        self.process: subprocess.Popen[bytes] | None = None
        self.group: Path | None = None
        self.user = unused_user() if os.getuid() == 0 else 0
        self.token = f"WHEREFROM_SUBMISSION={secrets.token_hex(16)}"
        self.job = Path(tempfile.mkdtemp(prefix="wherefrom-grade-"))
        self.job.chmod(0o755)
        for name in ("runner.py", "checks.py"):
            shutil.copyfile(HERE / name, self.job / name)
        (self.job / "files").mkdir()
        for name, content in files.items():
            path = self.job / "files" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        if self.user and not self.protection.bubblewrap:
            for path in (self.job / "files", *(self.job / "files").rglob("*")):
                os.chown(path, self.user, self.user)

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        shutil.rmtree(self.job, ignore_errors=True)

    def call(self, name: str, rows: Sequence[Sequence[Any]]) -> Any:
        """The function's result for each row, as JSON values; raises Wrong if there is none."""
        why = self.broken.get("") or self.broken.get(name)
        if why is None and time.monotonic() > self.deadline:
            why = self.broken[""] = f"the {self.limits.total:g} s for one submission are used up"
        if why:
            raise Wrong(why)
        if is_fresh := self.process is None:
            self._start()
        number = secrets.token_hex(8)
        try:
            request = {"id": number, "name": name, "rows": plain(rows)}
            reply = self._exchange(name, self.limits.call, request)
            if reply.get("id") != number:
                raise Wrong(f"{name} wrote something else where its result belongs")
        except Wrong as wrong:
            self._stop()
            if not is_fresh and not isinstance(wrong, TimedOut):
                return self.call(name, rows)  # an earlier call may have left threads or processes
            self.broken[name] = str(wrong)
            raise
        if "wrong" in reply:
            raise Wrong(str(reply["wrong"])[:600])
        return reply.get("values")

    def take_printed(self) -> str:
        """The end of what the code has printed since the last time."""
        text, self.printed = self.printed.decode("utf-8", "replace"), b""
        return "".join(c for c in text if c.isprintable() or c == "\n")

    # ---- the process

    def _start(self) -> None:
        """Start the process of this submission and wait until the code is loaded."""
        memory = int(self.limits.memory * (1 << 30))
        if self.protection.memory_group:
            self.group = make_memory_group(memory)
        self.channel, theirs = socket.socketpair()
        printed, printed_end = os.pipe()
        notes, notes_end = os.pipe()
        in_bubblewrap = bool(self.protection.bubblewrap)
        job = Path(JOB_INSIDE) if in_bubblewrap else self.job
        more = ["/tmp"] if in_bubblewrap else []
        setup = {
            "channel": theirs.fileno(),
            "notes": notes_end,
            "user": self.user,
            "limits": self._process_limits(memory),
            "copy_from": str(job / "files") if in_bubblewrap else "",
            "folder": f"{DISK_INSIDE}/files" if in_bubblewrap else str(job / "files"),
            "libraries": library_folder(),
            "readable": [str(job), *more, *python_folders(), *SYSTEM, *OTHER_READABLE],
            "hidden": str(PACKAGE),
        }
        command = [PYTHON, "-IBu", str(job / "runner.py"), json.dumps(setup)]
        if in_bubblewrap:
            command = [*enter_bubblewrap(self.protection.bubblewrap, self.job), *command]
        if self.group is not None:  # a shell joins the group before anything else runs
            join = 'echo 0 > "$0" && exec "$@"'
            command = ["/bin/sh", "-c", join, str(self.group / "cgroup.procs"), *command]
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
        self.buffers = {self.channel.fileno(): bytearray(), printed: bytearray()}
        self.buffers[notes] = bytearray()
        self.pipes = (printed, notes)
        try:
            ready = self._exchange("loading the code", self.limits.start)
            if "ready" not in ready:
                raise Wrong(str(ready.get("wrong", "the code wrote to the grader's channel"))[:600])
        except Wrong as wrong:
            self.broken[""] = str(wrong)
            self._stop()
            raise

    def _process_limits(self, memory: int) -> dict[str, int]:
        """The limits of each process."""
        processes = MAX_PROCESSES
        if not self.user:  # some kernels count all that the user runs
            processes += sum(1 for _ in Path("/proc").glob("[0-9]*/task/*"))
        return {
            "RLIMIT_AS": memory,
            "RLIMIT_FSIZE": MAX_FILE_BYTES,
            "RLIMIT_CPU": int(self.limits.total) + 1,
            "RLIMIT_CORE": 0,
            "RLIMIT_NOFILE": 256,
            "RLIMIT_NPROC": processes,
        }

    def _environment(self, folder: object) -> dict[str, str]:
        threads = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        name, value = self.token.split("=")
        return {
            "PATH": "/usr/bin:/bin",
            "LANG": "C.UTF-8",
            name: value,
            "HOME": str(folder),
            "TMPDIR": str(folder),
            **dict.fromkeys(threads, "1"),
        }

    def _exchange(self, name: str, seconds: float, request: Any = None) -> dict[str, Any]:
        """Send a request, if given, and return the next reply."""
        until = min(self.deadline, time.monotonic() + seconds)
        unsent = b"" if request is None else json.dumps(request).encode() + b"\n"
        replies = self.buffers[self.channel.fileno()]
        self.channel.setblocking(False)
        with selectors.DefaultSelector() as selector:
            for file in self.pipes:
                selector.register(file, selectors.EVENT_READ)
            both = selectors.EVENT_READ | selectors.EVENT_WRITE
            selector.register(self.channel, both if unsent else selectors.EVENT_READ)
            next_look = time.monotonic()
            while b"\n" not in replies:
                ready = selector.select(TICK_SECONDS)
                for key, events in ready:
                    if events & selectors.EVENT_WRITE and not (unsent := self._send(unsent)):
                        selector.modify(self.channel, selectors.EVENT_READ)
                    if events & selectors.EVENT_READ and not self._read(key.fd):
                        selector.unregister(key.fileobj)
                if len(replies) > MAX_REPLY_BYTES:
                    raise Wrong(f"{name} returned far too much")
                if self.channel not in selector.get_map() or (not ready and self._has_ended()):
                    raise Wrong(f"{name} ended the process ({self._how_it_ended()})")
                if time.monotonic() > until:
                    raise TimedOut(f"{name} did not end within {seconds:g} s")
                if time.monotonic() > next_look:
                    next_look = time.monotonic() + TICK_SECONDS
                    if self._takes_too_much():
                        raise Wrong(f"{name} took more than {self.limits.memory:g} GB")
        line, _, rest = replies.partition(b"\n")
        replies[:] = rest
        try:
            reply = json.loads(line)
        except (ValueError, RecursionError):
            return {}
        return reply if isinstance(reply, dict) else {}

    def _has_ended(self) -> bool:
        return self.process is None or self.process.poll() is not None

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
        buffer = self.buffers[file]
        buffer += received
        if file == self.pipes[0]:
            self.printed = (self.printed + bytes(buffer))[-PRINTED_BYTES:]
            buffer.clear()
        elif file == self.pipes[1]:
            *lines, rest = bytes(buffer).split(b"\n")
            buffer[:] = rest[:PRINTED_BYTES]
            for line in lines:
                self._note(line)
        return bool(received)

    def _note(self, line: bytes) -> None:
        with contextlib.suppress(ValueError, RecursionError):
            what = json.loads(line)
            if isinstance(what, str) and len(self.refused) < MAX_NOTES:
                shown = "".join(c for c in what[:300] if c.isprintable())
                self.refused = list(dict.fromkeys([*self.refused, shown]))

    def _how_it_ended(self) -> str:
        assert self.process is not None
        for file in self.pipes:  # read what is left
            os.set_blocking(file, False)
            while self._read(file):
                pass
        try:
            code = self.process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            return "it closed the channel"
        code = code if code >= 0 else 128 - code
        if code == 128 + signal.SIGKILL and self._was_out_of_memory():
            return f"it took more than {self.limits.memory:g} GB"
        with contextlib.suppress(ValueError):
            name = signal.Signals(code - 128).name
            return f"signal {name}; is there an endless recursion or loop?"
        return f"exit status {code}"

    def _was_out_of_memory(self) -> bool:
        """Whether the kernel ended a process of the control group for its memory."""
        if self.group is None:
            return False
        for name in ("memory.events", "memory.oom_control"):  # of version 2 and of version 1
            with contextlib.suppress(OSError):
                for line in (self.group / name).read_text("utf-8").splitlines():
                    if line.startswith("oom_kill ") and line != "oom_kill 0":
                        return True
        return False

    def _takes_too_much(self) -> bool:
        """Whether all processes together take more memory than allowed, if no group limits it."""
        if self.group is not None or not sys.platform.startswith("linux"):
            return False
        allowed = self.limits.memory * (1 << 20)  # kilobytes
        if sum(kilobytes for _, kilobytes in self._processes()) <= allowed:
            return False
        return sum(proportional_memory(*process) for process in self._processes()) > allowed

    def _processes(self) -> Iterator[tuple[int, int]]:
        """(number, kilobytes of memory) of every process of this submission.

        They run as a user of their own, or else have our token in their environment.
        """
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError, ValueError):
                status = read_fields(path / "status")
                if self.user:
                    is_ours = int(status["Uid"].split()[0]) == self.user
                else:
                    is_ours = self.token.encode() in (path / "environ").read_bytes()
                if is_ours and "VmRSS" in status:
                    yield int(path.name), sum_kilobytes(status, "RssAnon", "RssShmem", "VmSwap")

    def _stop(self) -> None:
        """End the process and everything that it started."""
        if self.process is None:
            return
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        until = time.monotonic() + STOP_SECONDS
        while (left := [number for number, _ in self._processes()]) and time.monotonic() < until:
            for number in left:
                with contextlib.suppress(OSError):
                    os.kill(number, signal.SIGKILL)
            time.sleep(0.01)
        self.channel.close()
        for file in self.pipes:
            os.close(file)
        if self._was_out_of_memory():
            self.refused.append(f"take more than {self.limits.memory:g} GB")
        while self.group is not None and time.monotonic() < until:
            try:
                self.group.rmdir()
                self.group = None
            except OSError:  # its last process is still ending
                time.sleep(0.01)
        self.process, self.group = None, None


def read_fields(path: Path) -> dict[str, str]:
    """The lines "name: value" of a file of /proc."""
    lines = path.read_text("utf-8", "replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def sum_kilobytes(fields: Mapping[str, str], *names: str) -> int:
    return sum(int(fields.get(name, "0 kB").split()[0]) for name in names)


def proportional_memory(process: int, kilobytes: int) -> int:
    """Kilobytes that a process takes, where pages that it shares with others count in parts."""
    with contextlib.suppress(OSError, ValueError):
        fields = read_fields(Path(f"/proc/{process}/smaps_rollup"))
        return sum_kilobytes(fields, "Pss_Anon", "Pss_Shmem", "SwapPss")
    return kilobytes


def unused_user() -> int:
    """The number of a user who does not exist and runs nothing."""
    running = set()
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            running.add(path.stat().st_uid)
    existing = {user.pw_uid for user in pwd.getpwall()}
    return next(number for number in USERS if number not in running | existing)
