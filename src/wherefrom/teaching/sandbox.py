"""A submission in a process of its own, with limits; only arguments and results travel.

The process is asked for results over a socket. What is right is known here and not there, so code
that lies about its results has to lie with the right numbers. A hang, a crash or a forbidden act
costs the function that was called; a new process goes on with the others.
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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wherefrom.errors import UserError
from wherefrom.teaching import checks

PYTHON = os.path.abspath(sys.executable)  # another user may not read the way to it
LARGEST_REPLY, LARGEST_FILE, LARGEST_SUBMISSION = 8 << 20, 16 << 20, 50 << 20
CODE = ("adapters.py", "transformer.py", "model.py")


@dataclass(frozen=True)
class SandboxLimits:
    """Seconds for a call, for loading the code and for all of a submission; memory in GB."""

    call: float = 10
    start: float = 30
    total: float = 60
    memory: float = 2

    def for_system(self) -> dict[str, int]:
        return {
            "RLIMIT_AS": int(self.memory * (1 << 30)),
            "RLIMIT_FSIZE": LARGEST_FILE,
            "RLIMIT_CPU": int(self.total) + 1,
            "RLIMIT_CORE": 0,
            "RLIMIT_NOFILE": 256,
            "RLIMIT_NPROC": 32,
        }


class Launcher:
    """A Python with numpy loaded (see worker.py), which forks the processes of submissions."""

    def __init__(self, modules: Iterable[str] = ()) -> None:
        if sys.platform == "win32":
            raise UserError("students' code is run on Linux and macOS only.")
        self.modules = tuple(modules)
        self._run()

    def _run(self) -> None:
        self.busy = False
        self.control, theirs = socket.socketpair()
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        worker = str(Path(__file__).with_name("worker.py"))
        with theirs:
            self.process = subprocess.Popen(
                [PYTHON, "-IBu", worker, str(theirs.fileno()), *self.modules],
                cwd="/",
                env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", **threads},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def start(self, told: dict[str, Any], *files: int) -> None:
        """Fork a process that is told this and gets these files; it can be one at a time."""
        assert not self.busy
        if self.process.poll() is not None:
            self.close()
            self._run()
        self.busy = True
        socket.send_fds(self.control, [json.dumps(told).encode()], files)

    def wait(self, seconds: float) -> int | None:
        """The exit status of the process that was started, or None if it goes on."""
        try:
            self.control.settimeout(seconds)
            status = int(self.control.recv(16))
        except (OSError, ValueError):
            return None
        self.busy = False
        return status

    def close(self) -> None:
        self.busy = False
        self.process.kill()  # and with it all that it has started
        self.process.wait()
        self.control.close()


class Sandbox:
    """Runs one submission; `call` is the call that the checks make."""

    def __init__(
        self, files: Mapping[str, bytes], limits: SandboxLimits, launcher: Launcher
    ) -> None:
        self.limits, self.launcher = limits, launcher
        self.deadline = time.monotonic() + limits.total
        self.broken: dict[str, str] = {}  # function -> why it is not called again; "" is all
        self.namespaces = self.isolated = self.confined = True  # wanted, and what there is
        self.running, self.inner = False, 0
        self.job = Path(tempfile.mkdtemp(prefix="wherefrom-grade-"))
        self.job.chmod(0o755)
        self.work = self.job / "work"
        self.user = 50_000 + secrets.randbelow(10_000) if os.getuid() == 0 else 0
        self.work.mkdir()
        for name, content in files.items():
            (self.work / name).parent.mkdir(parents=True, exist_ok=True)
            (self.work / name).write_bytes(content)
        if self.user:
            for path in (self.work, *self.work.rglob("*")):
                os.chown(path, self.user, self.user)

    def call(self, name: str, rows: Sequence[Sequence[Any]]) -> Any:
        """The function's results as JSON holds them; Wrong with a sentence if there are none."""
        why = self.broken.get("") or self.broken.get(name)
        if why is None and time.monotonic() > self.deadline:
            why = self.broken[""] = f"the {self.limits.total:g} s for one submission are used up"
        if why:
            raise checks.Wrong(why)
        if fresh := not self.running:
            self._start()
        number = secrets.token_hex(8)
        try:
            request = {"id": number, "name": name, "rows": checks.plain(rows)}
            reply = self._exchange(name, self.limits.call, request)
        except checks.Wrong as wrong:
            self.broken[name] = str(wrong)
            self._stop()
            raise
        if reply.get("id") != number:
            self._stop()
            if not fresh:  # processes of an earlier call may have written it
                return self.call(name, rows)
            raise checks.Wrong(f"{name} wrote something else where its result belongs")
        if "wrong" in reply:
            raise checks.Wrong(str(reply["wrong"])[:600])
        return reply["values"]

    def printed(self) -> str:
        """The end of what the code has printed."""
        path = self.job / "printed"
        text = path.read_bytes()[-1000:].decode("utf-8", "replace") if path.exists() else ""
        return "".join(c for c in text if c.isprintable() or c == "\n")

    def close(self) -> None:
        """End all that was started and remove what was copied."""
        self._stop()
        shutil.rmtree(self.job, ignore_errors=True)

    def _start(self) -> None:
        self.channel, theirs = socket.socketpair()
        self.buffer, self.running, self.inner = bytearray(), True, 0
        told = {
            "folder": str(self.work),
            "namespaces": self.namespaces,
            "user": self.user,
            "limits": self.limits.for_system(),
        }
        with open(self.job / "printed", "ab") as printed, theirs:
            self.launcher.start(told, theirs.fileno(), printed.fileno())
        try:
            first = self._exchange("loading the code", self.limits.start)
            self.inner, self.isolated = first["pid"], first["isolated"]
            self.confined = first["confined"]
            ready = self._exchange("loading the code", self.limits.start)
            if "wrong" in ready:
                raise checks.Wrong(str(ready["wrong"])[:600])
        except checks.Wrong as wrong:
            self.broken[""] = str(wrong)
            self._stop()
            raise

    def _exchange(self, name: str, seconds: float, request: Any = None) -> dict[str, Any]:
        """Send a request, if there is one, and wait for a line."""
        until = min(self.deadline, time.monotonic() + seconds)
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
                if len(self.buffer) > LARGEST_REPLY:
                    raise checks.Wrong(f"{name} returned far too much")
                if time.monotonic() > until:
                    raise TimeoutError
            line, _, self.buffer = self.buffer.partition(b"\n")
            reply = json.loads(line)
        except TimeoutError:
            raise checks.Wrong(f"{name} did not end within {seconds:g} s") from None
        except OSError:
            raise checks.Wrong(f"{name} ended the process ({self._how_it_ended()})") from None
        except (ValueError, RecursionError):
            reply = None
        return reply if isinstance(reply, dict) else {}

    def _how_it_ended(self) -> str:
        code = self.launcher.wait(1)
        if code is None:
            return "it closed the channel"
        with contextlib.suppress(ValueError):
            name = signal.Signals(code - 128).name
            return f"signal {name}; is there an endless recursion or loop?"
        return f"exit status {code}"

    def _stop(self) -> None:
        """End the process, and with it all that it has started."""
        if not self.running:
            return
        if self.launcher.busy:
            with contextlib.suppress(OSError):
                os.kill(self.inner or self.launcher.process.pid, signal.SIGKILL)
            if self.launcher.wait(10) is None:
                self.launcher.close()  # the next start runs a new one
        self.channel.close()
        self.running = False


def read_submission(folder: Path, adapters: str = "") -> dict[str, bytes]:
    """Name -> content of the regular files where the code lies, so that a link leads nowhere.

    The assignment's own adapters.py is added where none was handed in.
    """
    found: dict[str, bytes] = {}
    source, size = find_code(folder), 0
    for root, folders, files in os.walk(source):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__")))
        for path in (Path(root, name) for name in sorted(files)):
            if stat.S_ISREG(path.lstat().st_mode):
                size += path.lstat().st_size
                if size > LARGEST_SUBMISSION:
                    raise UserError(f"the submission is larger than {LARGEST_SUBMISSION >> 20} MB.")
                found[str(path.relative_to(source))] = path.read_bytes()
    return {"adapters.py": adapters.encode(), **found}


def find_code(folder: Path) -> Path:
    """The folder, or the one inside it, that holds the code."""
    for depth in ("", "*/", "*/*/"):
        for path in [path for name in CODE for path in sorted(folder.glob(depth + name))]:
            if path.parent.resolve().is_relative_to(folder.resolve()):  # no link leads out
                return path.parent
    raise UserError(f"there is none of {', '.join(CODE)}.")
