"""Grading students' code: the sandbox that runs it, and the points as CSV and for Gradescope.

The sandbox returns results over a socket and does not know the right ones, so code cannot forge
its score. The checks of a part have equal weight; half of the points are for the handed-out cases
and half for the hidden ones.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
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
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

from wherefrom.errors import UserError
from wherefrom.storage import make_folder, read_json, write_json, write_whole
from wherefrom.teaching.checks import Wrong, part_of, plain, restore, verdict

PYTHON = os.path.abspath(sys.executable)  # another user may not be able to resolve it
LARGEST_REPLY, LARGEST_FILE, LARGEST_SUBMISSION = 8 << 20, 16 << 20, 50 << 20
CODE = ("adapters.py", "transformer.py", "model.py")
FORMULA = ("=", "+", "-", "@", "\t")  # a cell that starts so is a formula in a spreadsheet
GROUPS = {"handed out": "visible", "hidden": "after_published"}  # cases -> Gradescope's visibility
Record = dict[str, Any]


class SandboxLimits(NamedTuple):
    """Seconds per call, for loading the code, and per submission; memory in GB."""

    call: float = 10
    start: float = 30
    total: float = 60
    memory: float = 2


class Sandbox:
    """Runs submissions, one after the other, in processes that worker.py forks.

    If a function hangs, crashes or is stopped, only that function fails; a new process runs the
    others.
    """

    def __init__(self, modules: Sequence[str], limits: SandboxLimits) -> None:
        if sys.platform == "win32":
            raise UserError("students' code is run on Linux and macOS only.")
        self.modules, self.limits = modules, limits
        self.namespaces = True  # wanted
        self.isolated = self.confined = True  # what the system provides
        self.busy = self.running = False  # a process is forked; it answers calls
        self._launch()

    def _launch(self) -> None:
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

    def load(self, files: Mapping[str, bytes]) -> None:
        """Copy a submission to the folder in which it will run."""
        self.deadline = time.monotonic() + self.limits.total
        self.broken: dict[str, str] = {}  # function ("" for all) -> why it is not called again
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

    def unload(self) -> None:
        """Kill the submission's processes and remove its folder."""
        self._stop()
        shutil.rmtree(self.job, ignore_errors=True)

    def close(self) -> None:
        self.process.kill()  # and with it all that it has started
        self.process.wait()
        self.control.close()

    def call(self, name: str, rows: Sequence[Sequence[Any]]) -> Any:
        """The function's result for each row, as JSON values; raises Wrong if there is none."""
        why = self.broken.get("") or self.broken.get(name)
        if why is None and time.monotonic() > self.deadline:
            why = self.broken[""] = f"the {self.limits.total:g} s for one submission are used up"
        if why:
            raise Wrong(why)
        if fresh := not self.running:
            self._start()
        number = secrets.token_hex(8)
        try:
            request = {"id": number, "name": name, "rows": plain(rows)}
            reply = self._exchange(name, self.limits.call, request)
        except Wrong as wrong:
            self.broken[name] = str(wrong)
            self._stop()
            raise
        if reply.get("id") != number:
            self._stop()
            if not fresh:  # processes of an earlier call may have written this
                return self.call(name, rows)
            raise Wrong(f"{name} wrote something else where its result belongs")
        if "wrong" in reply:
            raise Wrong(str(reply["wrong"])[:600])
        return reply["values"]

    def printed(self) -> str:
        """The last 1,000 bytes that the code printed."""
        path = self.job / "printed"
        text = path.read_bytes()[-1000:].decode("utf-8", "replace") if path.exists() else ""
        return "".join(c for c in text if c.isprintable() or c == "\n")

    def _start(self) -> None:
        """Fork the process of this submission, with its limits."""
        if self.process.poll() is not None:
            self.close()
            self._launch()
        self.channel, theirs = socket.socketpair()
        self.buffer, self.busy, self.running, self.inner = bytearray(), True, True, 0
        limits = {
            "RLIMIT_AS": int(self.limits.memory * (1 << 30)),
            "RLIMIT_FSIZE": LARGEST_FILE,
            "RLIMIT_CPU": int(self.limits.total) + 1,
            "RLIMIT_CORE": 0,
            "RLIMIT_NOFILE": 256,
            "RLIMIT_NPROC": 32,
        }
        told = {"folder": str(self.work), "namespaces": self.namespaces, "user": self.user}
        message = json.dumps({**told, "limits": limits}).encode()
        with open(self.job / "printed", "ab") as printed, theirs:
            socket.send_fds(self.control, [message], [theirs.fileno(), printed.fileno()])
        try:
            first = self._exchange("loading the code", self.limits.start)
            self.inner, self.isolated = first["pid"], first["isolated"]
            self.confined = first["confined"]
            ready = self._exchange("loading the code", self.limits.start)
            if "wrong" in ready:
                raise Wrong(str(ready["wrong"])[:600])
        except Wrong as wrong:
            self.broken[""] = str(wrong)
            self._stop()
            raise

    def _exchange(self, name: str, seconds: float, request: Any = None) -> Record:
        """Send a request, if given, and return the next reply."""
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
                    raise Wrong(f"{name} returned far too much")
                if time.monotonic() > until:
                    raise TimeoutError
            line, _, self.buffer = self.buffer.partition(b"\n")
            reply = json.loads(line)
        except TimeoutError:
            raise Wrong(f"{name} did not end within {seconds:g} s") from None
        except OSError:
            code = self._wait(1)
            how = "it closed the channel" if code is None else f"exit status {code}"
            with contextlib.suppress(ValueError):
                name_of_signal = signal.Signals((code or 0) - 128).name
                how = f"signal {name_of_signal}; is there an endless recursion or loop?"
            raise Wrong(f"{name} ended the process ({how})") from None
        except (ValueError, RecursionError):
            reply = None
        return reply if isinstance(reply, dict) else {}

    def _wait(self, seconds: float) -> int | None:
        """The exit status of the forked process, or None if it still runs."""
        with contextlib.suppress(OSError, ValueError):
            self.control.settimeout(seconds)
            status = int(self.control.recv(16))
            self.busy = False
            return status
        return None

    def _stop(self) -> None:
        """Kill the process and everything it started."""
        if not self.running:
            return
        if self.busy:
            with contextlib.suppress(OSError):
                os.kill(self.inner or self.process.pid, signal.SIGKILL)
            if self._wait(10) is None:
                self.process.kill()  # the next start runs a new one
                self.process.wait()
        self.channel.close()
        self.busy = self.running = False


# ---- submissions


def read_assignment(path: Path) -> Record:
    """The assignment.json of a teacher's folder: name, points, adapters and cases."""
    record = restore(read_json(path))
    if not isinstance(record, dict) or not {"points", "adapters", *GROUPS} <= set(record):
        raise UserError(f"{path} is not the assignment.json of a teacher's folder.")
    return record


def find_submissions(folder: Path) -> dict[str, Path]:
    """Student -> folder; a folder that itself holds code is one submission."""
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder of submissions.")
    if any((folder / name).exists() for name in CODE):
        return {folder.resolve().name: folder}
    found = [path for path in sorted(folder.iterdir()) if path.is_dir() and path.name[0] != "."]
    if not found:
        raise UserError(f"{folder} holds no submissions: one folder per student was expected.")
    return {path.name: path for path in found}


def read_submission(folder: Path, adapters: str = "") -> dict[str, bytes]:
    """Name -> content of the regular files beside the code; links are ignored.

    Adds the assignment's adapters.py if none was handed in.
    """
    inside = (path for depth in ("", "*/", "*/*/") for name in CODE
              for path in sorted(folder.glob(depth + name))
              if path.parent.resolve().is_relative_to(folder.resolve()))  # fmt: skip
    code = next(inside, None)
    if code is None:
        raise UserError(f"there is none of {', '.join(CODE)}.")
    found: dict[str, bytes] = {}
    size = 0
    for root, folders, files in os.walk(code.parent):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__")))
        for path in (Path(root, name) for name in sorted(files)):
            if stat.S_ISREG(path.lstat().st_mode):
                size += path.lstat().st_size
                if size > LARGEST_SUBMISSION:
                    raise UserError(f"the submission is larger than {LARGEST_SUBMISSION >> 20} MB.")
                found[str(path.relative_to(code.parent))] = path.read_bytes()
    return {"adapters.py": adapters.encode(), **found}


def start_sandbox(assignment: Mapping[str, Any], limits: SandboxLimits) -> Sandbox:
    """A sandbox that has loaded the libraries of this assignment."""
    return Sandbox(["torch"] if "variants" in assignment["points"] else [], limits)


def grade_submission(folder: Path, assignment: Mapping[str, Any], sandbox: Sandbox) -> Record:
    """The results.json of one submission, in Gradescope's format.

    A submission that cannot be graded gets 0 points and a note.
    """
    printed, note, protected = "", "", True
    wrong: dict[tuple[str, str], str] = {}  # (cases, title of a check) -> what is wrong
    try:
        sandbox.load(read_submission(folder, assignment["adapters"]))
        with contextlib.ExitStack() as ending:
            ending.callback(sandbox.unload)
            for group in GROUPS:
                for title in assignment[group]:
                    wrong[group, title] = verdict(title, sandbox.call, assignment[group])
                # code could print the hidden cases, so only earlier output is shown
                printed = printed or sandbox.printed()
            note, protected = sandbox.broken.get("", ""), sandbox.isolated and sandbox.confined
    except (UserError, OSError) as problem:
        note = f"this submission was not graded: {problem}"
        wrong = {(group, title): note for group in GROUPS for title in assignment[group]}
    tests = []
    for (group, title), sentence in wrong.items():
        part = part_of(title)
        checks = [other for other in assignment[group] if part_of(other) == part]
        most = assignment["points"][part] / len(checks) / len(GROUPS)
        score, output = (0.0, sentence) if sentence else (most, "passed")
        test = gradescope_test(f"{title} ({group} cases)", score, most, not sentence, output)
        tests.append(test | {"visibility": GROUPS[group]})
    score = round(sum(test["score"] for test in tests), 2)
    output = f"{score:g} of {sum(assignment['points'].values()):g} points. {note}".strip()
    if printed:
        output += f"\n\nYour code printed (the end of it):\n{printed}"
    return {
        "score": score,
        "output": output,
        "output_format": "text",
        "stdout_visibility": "hidden",
        "tests": tests,
        "extra_data": {"note": note, "protected": protected},
    }


def gradescope_test(name: str, score: float, most: float, passed: bool, output: str) -> Record:
    """One test in Gradescope's format."""
    status = "passed" if passed else "failed"
    told = {"name": name, "score": score, "max_score": most, "status": status, "output": output}
    return told | {"output_format": "text", "visibility": "visible"}


def as_csv(rows: Iterable[Sequence[object]]) -> str:
    """Rows as CSV; cells that a spreadsheet would run as formulas are quoted."""
    text = io.StringIO()
    for row in rows:
        cells = ("'" + cell if cell.startswith(FORMULA) else cell for cell in map(str, row))
        csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()


def grade_all(
    submissions: Mapping[str, Path],
    assignment: Mapping[str, Any],
    out: Path,
    *,
    jobs: int,
    limits: SandboxLimits,
    report: Callable[[str, Record], None],
) -> dict[str, Record]:
    """Grade all submissions; writes OUT/STUDENT/results.json and OUT/grades.csv.

    Identical submissions are graded once.
    """
    records: dict[str, Record] = {}
    alike: dict[str, list[str]] = {}
    for student, folder in submissions.items():
        try:
            files = repr(sorted(read_submission(folder).items())).encode()
            alike.setdefault(hashlib.sha256(files).hexdigest(), []).append(student)
        except (UserError, OSError):
            alike[str(folder)] = [student]
    sandboxes: SimpleQueue[Sandbox] = SimpleQueue()
    for _ in range(jobs := min(jobs, len(alike))):
        sandboxes.put(start_sandbox(assignment, limits))

    def grade(folder: Path) -> Record:
        sandbox = sandboxes.get()
        try:
            return grade_submission(folder, assignment, sandbox)
        finally:
            sandboxes.put(sandbox)

    try:
        with ThreadPoolExecutor(max_workers=jobs) as pool:
            started = {pool.submit(grade, submissions[each[0]]): each for each in alike.values()}
            for done in as_completed(started):
                for student in started[done]:
                    records[student] = done.result()
                    write_json(make_folder(out / student) / "results.json", records[student])
                    report(student, records[student])
    finally:
        for _ in range(jobs):
            sandboxes.get().close()
    points = assignment["points"]
    rows: list[list[object]] = [["student", "score", "out of", *points, "note"]]
    for student in submissions:
        of_part = dict.fromkeys(points, 0.0)
        for test in records[student]["tests"]:
            of_part[part_of(test["name"])] += test["score"]
        parts = [round(score, 2) for score in of_part.values()]
        total, note = records[student]["score"], records[student]["extra_data"]["note"]
        rows.append([student, total, sum(points.values()), *parts, note])
    write_whole(out / "grades.csv", as_csv(rows))
    return {student: records[student] for student in submissions}


def main() -> None:
    """Grade one submission on Gradescope; argv: its folder, and the results file."""
    submission, results = map(Path, sys.argv[1:3])
    assignment = read_assignment(Path("assignment.json"))
    with closing(start_sandbox(assignment, SandboxLimits())) as sandbox:
        write_json(results, grade_submission(submission, assignment, sandbox))


if __name__ == "__main__":
    main()
