"""The sandbox for students' code: bubblewrap where it works, else a process with limits.

The grader calls a submission's functions over a socket and judges the results itself. Inside are
only the submission, `runner.py`, `checks.py` and Python's libraries: no solution and no right
result, so code can neither look them up nor forge its score.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from wherefrom.errors import UserError
from wherefrom.teaching.checks import Wrong, encode
from wherefrom.teaching.isolation import MemoryGroup, Protection, unused_user
from wherefrom.teaching.process import Observed, SandboxLimits, SandboxProcess, TimedOut

__all__ = ["Sandbox", "SandboxLimits", "find_protection"]

HERE = Path(__file__).resolve().parent
MAX_WRONG_CHARS = 600
PROBE_LIMITS = SandboxLimits(call=60, start=60, total=120)
# it imports a module that runner.py does not: the user who runs the code must be able to
PROBE = b"import wave\n\n\ndef works():\n    return True\n"


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
        self.observed = Observed()
        self.process: SandboxProcess | None = None
        self.user = unused_user() if os.getuid() == 0 else 0
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
        is_fresh = self.process is None
        process = self.process or self._start()
        number = secrets.token_hex(8)
        request = {"id": number, "name": name, "rows": encode(rows)}
        try:
            reply = process.exchange(name, self._seconds(self.limits.call), request)
            if reply.get("id") != number:
                raise Wrong(f"{name} wrote something else where its result belongs")
        except Wrong as wrong:
            self._stop()
            if not is_fresh and not isinstance(wrong, TimedOut):
                return self.call(name, rows)  # an earlier call may have left threads or processes
            self.broken[name] = str(wrong)
            raise
        if "wrong" in reply:
            raise Wrong(str(reply["wrong"])[:MAX_WRONG_CHARS])
        return reply.get("values")

    def cancel(self) -> None:
        """End a call that another thread waits for; no other one is made."""
        self.broken[""] = "the grading was stopped"
        process = self.process
        if process is not None:
            process.kill()

    def take_printed(self) -> str:
        """The end of what the code has printed since the last time."""
        text = self.observed.printed.decode("utf-8", "replace")
        self.observed.printed = b""
        return "".join(c for c in text if c.isprintable() or c == "\n")

    def _seconds(self, allowed: float) -> float:
        """The seconds allowed, or what is left for the whole submission."""
        return max(0.0, min(allowed, self.deadline - time.monotonic()))

    def _start(self) -> SandboxProcess:
        """Start the process of this submission and wait until the code is loaded.

        Raises OSError if the sandbox itself does not start.
        """
        process = SandboxProcess(self.job, self.user, self.limits, self.protection, self.observed)
        self.process = process
        try:
            process.exchange("starting", self.limits.start)
        except Wrong as problem:
            self._stop()
            printed = self.take_printed().strip().splitlines()
            why = printed[-1] if printed else str(problem)
            raise OSError(f"the sandbox did not start: {why}") from None
        try:
            reply = process.exchange("loading the code", self._seconds(self.limits.start))
            if "ready" not in reply:
                wrong = reply.get("wrong", "the code wrote to the grader's channel")
                raise Wrong(str(wrong)[:MAX_WRONG_CHARS])
        except Wrong as wrong:
            self.broken[""] = str(wrong)
            self._stop()
            raise
        return process

    def _stop(self) -> None:
        if self.process is not None:
            self.process.stop()
        self.process = None


@cache
def find_protection() -> Protection:
    """The best protection that works on this system, found by running a function in it."""
    if sys.platform == "win32":
        raise UserError("students' code is run on Linux and macOS only.")
    group = MemoryGroup.make(1 << 30)
    if group is not None:
        group.remove()
    program = shutil.which("bwrap")
    why_plain = "it is not installed"
    if program:
        protection = Protection(program, "", group is not None)
        why_not = try_protection(protection)
        if not why_not:
            return protection
        why_plain = f"it does not work here: {why_not}"
    protection = Protection("", why_plain, group is not None)
    why_not = try_protection(protection)
    if why_not:
        raise UserError(
            f"students' code cannot be run here. Without bubblewrap ({why_plain}): {why_not}. "
            "Install bubblewrap, or use a Python that every user can read."
        )
    return protection


def try_protection(protection: Protection) -> str:
    """Why students' code cannot be run with this protection, or "" if it can."""
    with Sandbox({"adapters.py": PROBE}, PROBE_LIMITS, protection) as sandbox:
        try:
            sandbox.call("works", [[]])
        except (Wrong, OSError) as problem:
            return str(problem)
    return ""
