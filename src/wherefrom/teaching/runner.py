"""The program inside the sandbox: it gives up its rights, loads a submission and answers calls.

`sandbox.Sandbox` starts it with one argument, a JSON record. Then it reads lines {"id", "name",
"rows"} from a socket and writes {"id", "values"} or {"id", "wrong"}. It never sees a right result.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import shutil
import socket
import sys
from collections.abc import Callable
from typing import Any

MAX_NOTES = 20
STARTS_PROGRAM = {"os.exec", "os.posix_spawn", "os.spawn", "os.system", "subprocess.Popen"}
READS_FILE = {"open", "os.listdir", "os.scandir"}


def main() -> None:
    setup = json.loads(sys.argv[1])
    checks = import_checks(setup["libraries"])
    channel = socket.socket(fileno=setup["channel"])
    give_up_rights(setup["user"], setup["limits"])
    if setup["copy_from"]:
        shutil.copytree(setup["copy_from"], setup["folder"])
    os.chdir(setup["folder"])
    readable = [os.getcwd(), *setup["readable"]]
    sys.path[:] = [os.getcwd(), *(path for path in sys.path if is_inside(path, readable))]
    sys.addaudithook(make_guard(readable, setup["hidden"], setup["notes"]))
    send(channel, started=True)  # from here on, what goes wrong is the submission's
    answer_calls(channel, checks)
    os._exit(0)  # without the atexit functions of the submission


def import_checks(libraries: str) -> Any:
    """Import checks.py, which lies beside this file, under the name that adapters.py knows."""
    if libraries not in sys.path:
        sys.path.append(libraries)
    sys.path.insert(0, os.path.dirname(__file__))
    checks = importlib.import_module("checks")
    del sys.path[0]
    return checks


def give_up_rights(user: int, limits: dict[str, int]) -> None:
    """Become another user, if one is given, and set the limits."""
    if user:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    for name, value in limits.items():
        with contextlib.suppress(OSError, ValueError):  # not every system knows every limit
            resource.setrlimit(getattr(resource, name), (value, value))


def is_inside(path: str, folders: list[str]) -> bool:
    """Whether a path is one of the folders or lies in one of them, links resolved."""
    real = os.path.realpath(path)
    return any(real == folder or real.startswith(folder + os.sep) for folder in folders)


def make_guard(readable: list[str], hidden: list[str], notes: int) -> Callable[[str, Any], None]:
    """An audit hook that refuses files outside of `readable` and other programs, and notes both.

    Hostile code can get around it, since it runs in the same process: the sandbox around the
    process protects, and this hook tells what was tried.
    """
    readable = [os.path.realpath(path) for path in readable]
    noted: set[str] = set()

    def refuse(what: str) -> None:
        if what not in noted and len(noted) < MAX_NOTES:
            noted.add(what)
            os.write(notes, json.dumps(what[:300]).encode() + b"\n")
        raise PermissionError(f"a submission may not do this: {what}"[:300])

    def guard(event: str, arguments: Any) -> None:
        if event in STARTS_PROGRAM:
            refuse(f"start the program {arguments[0]!r:.100}")
        if event not in READS_FILE or isinstance(arguments[0], int):
            return
        path = os.fsdecode(arguments[0] or ".")
        if is_inside(path, hidden) or not is_inside(path, readable):
            refuse(f"read or write {path}")

    return guard


def answer_calls(channel: socket.socket, checks: Any) -> None:
    """Load adapters.py and run its functions until the grader closes the channel."""
    try:
        call = checks.caller(importlib.import_module("adapters"))
    except BaseException as error:
        wrong = f"the code cannot be imported: {type(error).__name__}: {error}"
        if isinstance(error, ModuleNotFoundError):
            wrong = checks.NO_MODULE.format("the code", error.name)
        send(channel, wrong=wrong[:500])
        return
    send(channel, ready=True)
    for line in channel.makefile("r", encoding="utf-8"):
        request = json.loads(line)
        number, name = request["id"], request["name"]
        try:
            send(channel, id=number, values=call(name, checks.decode(request["rows"])))
        except checks.Wrong as wrong:
            send(channel, id=number, wrong=str(wrong))
        except BaseException as error:
            send(channel, id=number, wrong=f"{name} ended with {type(error).__name__}")


def send(channel: socket.socket, **record: Any) -> None:
    channel.sendall(json.dumps(record).encode() + b"\n")


if __name__ == "__main__":
    main()
