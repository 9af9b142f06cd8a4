"""A submission in a process of its own, with limits; only arguments and results travel.

The process is asked for one result at a time over a socket. What is right is known here and not
there, so code that lies about its results has to lie with the right numbers. A hang, a crash or a
forbidden act costs the function that was called; a new process goes on with the others.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from wherefrom.errors import UserError
from wherefrom.teaching import checks

BOOT = (
    "import sys; sys.path.insert(0, sys.argv[2]); import wherefrom.teaching.worker as w; w.main()"
)
PYTHON = os.path.abspath(sys.executable)  # another user may not read the way to it
PROCESSES = 32
LARGEST_REPLY = 8 << 20
LARGEST_FILE = 16 << 20
LARGEST_SUBMISSION = 50 << 20
CODE = ("adapters.py", "transformer.py", "model.py")


@dataclass(frozen=True)
class SandboxLimits:
    """Seconds for a call, for loading the code and for all of a submission; memory in GB."""

    call: float = 10
    start: float = 30
    total: float = 60
    memory: float = 2


class Sandbox:
    """Runs one submission; `call` is the call that the checks make."""

    def __init__(self, folder: Path, limits: SandboxLimits, adapters: str) -> None:
        if sys.platform == "win32":
            raise UserError("students' code is run on Linux and macOS only.")
        self.limits = limits
        self.deadline = time.monotonic() + limits.total
        self.broken: dict[
            str, str
        ] = {}  # function -> why it is not called again; "" is all of them
        self.namespaces = self.isolated = True  # whether they are wanted, and whether there are any
        self.process: subprocess.Popen[bytes] | None = None
        self.job = Path(tempfile.mkdtemp(prefix="wherefrom-grade-"))
        self.job.chmod(0o755)
        self.work = self.job / "work"
        self.user = 50_000 + secrets.randbelow(10_000) if os.getuid() == 0 else 0
        try:
            self._copy(folder, adapters)
        except BaseException:
            self.close()
            raise

    def call(self, name: str, *arguments: Any) -> Any:
        """The function's result as JSON holds it; Wrong with a sentence if there is none."""
        why = self.broken.get("") or self.broken.get(name)
        if why is None and time.monotonic() > self.deadline:
            why = self.broken[""] = f"the {self.limits.total:g} s for one submission are used up"
        if why:
            raise checks.Wrong(why)
        if self.process is None:
            self._start()
        try:
            number = secrets.token_hex(8)
            request = {"id": number, "name": name, "args": checks.plain(arguments)}
            until = min(self.deadline, time.monotonic() + self.limits.call)
            reply = self._exchange(name, until, request)
        except checks.Wrong as wrong:
            self.broken[name] = str(wrong)
            self._stop()
            raise
        if reply.get("id") != number:
            self._stop()
            raise checks.Wrong(f"{name} wrote something else where its result belongs")
        if "wrong" in reply:
            raise checks.Wrong(str(reply["wrong"])[:600])
        return reply.get("value")

    def printed(self) -> str:
        """The end of what the code has printed."""
        path = self.job / "printed"
        if not path.exists():
            return ""
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 1000))
            text = file.read().decode("utf-8", "replace")
        return "".join(c for c in text if c.isprintable() or c == "\n")

    def close(self) -> None:
        """End all that was started and remove what was copied."""
        self._stop()
        shutil.rmtree(self.job, ignore_errors=True)

    def _start(self) -> None:
        self.channel, theirs = socket.socketpair()
        self.buffer, self.inner = bytearray(), 0
        known = {"RLIMIT_AS": int(self.limits.memory * (1 << 30)), "RLIMIT_FSIZE": LARGEST_FILE}
        cpu = {"RLIMIT_CPU": int(self.limits.total) + 1, "RLIMIT_CORE": 0, "RLIMIT_NOFILE": 256}
        processes = {"RLIMIT_NPROC": PROCESSES + (0 if self.user else _threads_of(os.getuid()))}
        told = {
            "channel": theirs.fileno(),
            "namespaces": self.namespaces,
            "user": self.user,
            "keep_reading": self.user and not _public_python(),
            "limits": {**known, **cpu, **processes},
        }
        environment = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": str(self.work)}
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        with open(self.job / "printed", "ab") as printed, theirs:
            self.process = subprocess.Popen(
                [PYTHON, "-IBuc", BOOT, json.dumps(told), str(self.job / "lib")],
                cwd=self.work,
                env={**environment, **threads, "TMPDIR": str(self.work)},
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        until = min(self.deadline, time.monotonic() + self.limits.start)
        try:
            first = self._exchange("loading the code", until)
            self.inner, self.isolated = first["pid"], first["isolated"]
            ready = self._exchange("loading the code", until)
            if "wrong" in ready:
                raise checks.Wrong(str(ready["wrong"])[:600])
        except checks.Wrong as wrong:
            self.broken[""] = str(wrong)
            self._stop()
            raise

    def _exchange(self, name: str, until: float, request: Any = None) -> dict[str, Any]:
        """Send a request, if there is one, and wait for a line."""
        try:
            self.channel.settimeout(max(0.01, until - time.monotonic()))
            if request is not None:
                self.channel.sendall(json.dumps(request).encode() + b"\n")
            while b"\n" not in self.buffer:
                self.channel.settimeout(max(0.01, until - time.monotonic()))
                received = self.channel.recv(1 << 16)
                if not received:
                    raise BrokenPipeError
                self.buffer += received
                if len(self.buffer) > LARGEST_REPLY or time.monotonic() > until:
                    raise TimeoutError
            line, _, self.buffer = self.buffer.partition(b"\n")
            reply = json.loads(line)
        except TimeoutError:
            if len(self.buffer) > LARGEST_REPLY:
                raise checks.Wrong(f"{name} returned far too much") from None
            allowed = self.limits.call if request else self.limits.start
            raise checks.Wrong(f"{name} did not end within {allowed:g} s") from None
        except OSError:
            raise checks.Wrong(f"{name} ended the process ({self._how_it_ended()})") from None
        except (ValueError, RecursionError):
            reply = None
        return reply if isinstance(reply, dict) else {}

    def _how_it_ended(self) -> str:
        assert self.process is not None
        try:
            code = self.process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            return "it closed the channel"
        if code < 128:
            return f"exit status {code}"
        try:
            return (
                f"signal {signal.Signals(code - 128).name}; is there an endless recursion or loop?"
            )
        except ValueError:
            return f"exit status {code}"

    def _stop(self) -> None:
        """End the process, its group, and with its first process its whole namespace."""
        if self.process is None:
            return
        if self.inner and self.process.poll() is None:
            with contextlib.suppress(OSError):
                os.kill(self.inner, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)
        while not self.isolated and (left := self._stray()):  # children that left the group
            for number in left:
                with contextlib.suppress(OSError):
                    os.kill(number, signal.SIGKILL)
            time.sleep(0.01)
        self.process.wait()
        self.channel.close()
        self.process = None

    def _stray(self) -> list[int]:
        """Living processes of this submission: by their user, or by their command line."""
        found, mark = [], str(self.job).encode()
        for folder in _processes_of(self.user or os.getuid()):
            with contextlib.suppress(OSError):  # it may have ended; of a dead one it is empty
                command = (folder / "cmdline").read_bytes()
                if mark in command or (self.user and command):
                    found.append(int(folder.name))
        return found

    def _copy(self, folder: Path, adapters: str) -> None:
        """Regular files only, so that a link leads nowhere; and the modules the process needs."""
        source, size = find_code(folder), 0
        for root, folders, files in os.walk(source):
            folders[:] = [name for name in folders if not name.startswith((".", "__"))]
            target = self.work / Path(root).relative_to(source)
            target.mkdir(exist_ok=True)
            for path in (Path(root, name) for name in files):
                if stat.S_ISREG(path.lstat().st_mode):
                    size += path.lstat().st_size
                    if size > LARGEST_SUBMISSION:
                        most = LARGEST_SUBMISSION >> 20
                        raise UserError(f"the submission is larger than {most} MB.")
                    shutil.copyfile(path, target / path.name)
        if not (self.work / "adapters.py").exists():
            (self.work / "adapters.py").write_text(adapters, encoding="utf-8")
        if self.user:
            for path in (self.work, *self.work.rglob("*")):
                os.chown(path, self.user, self.user)
        write_modules(self.job / "lib", ("checks", "worker"))


def find_code(folder: Path) -> Path:
    """The folder, or the one inside it, that holds the code."""
    for depth in ("", "*/", "*/*/"):
        for path in [path for name in CODE for path in sorted(folder.glob(depth + name))]:
            if path.parent.resolve().is_relative_to(folder.resolve()):  # no link leads out
                return path.parent
    raise UserError(f"there is none of {', '.join(CODE)}.")


def write_modules(folder: Path, names: Iterable[str]) -> None:
    """These modules of ours as a package that holds nothing else of Wherefrom."""
    teaching = folder / "wherefrom" / "teaching"
    teaching.mkdir(parents=True)
    for package in (teaching.parent, teaching):
        (package / "__init__.py").touch()
    for name in names:
        shutil.copyfile(Path(__file__).with_name(f"{name}.py"), teaching / f"{name}.py")


@cache
def _public_python() -> bool:
    """Whether a user without any rights can run this Python with numpy."""
    command = [PYTHON, "-I", "-c", "import numpy"]
    try:
        ended = subprocess.run(
            command, user=50_000, group=50_000, extra_groups=[], env={}, cwd="/", check=False,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    except OSError:
        return False
    return ended.returncode == 0


def _processes_of(user: int) -> Iterator[Path]:
    """The folders in /proc of a user's processes."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if folder.stat().st_uid == user:
                yield folder


def _threads_of(user: int) -> int:
    """How many threads a user has: a limit of processes counts all of them."""
    return sum(len(list(folder.glob("task/*"))) for folder in _processes_of(user))
