"""The process that runs students' code: it drops its privileges, then answers calls.

`grading.Sandbox` starts this program. For each submission it forks a child, which isolates itself
and forks the process that loads and calls the student's code. That process reads lines {"id",
"name", "rows"} and writes {"id", "values"} or {"id", "wrong"}. It does not know the right results.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import resource
import signal
import socket
import struct
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, os.path.dirname(__file__))
import checks  # type: ignore[import-not-found]  # adapters.py knows it by this name

del sys.path[0]

NEW_IPC, NEW_USER, NEW_PID, NEW_NET = 0x08000000, 0x10000000, 0x20000000, 0x40000000
PARENT_DIES, KEEP_CAPS, SUBREAPER, NO_NEW_PRIVILEGES = 1, 8, 36, 38  # for prctl
CAPABILITY_VERSION, READ_SEARCH = 0x20080522, 1 << 2
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # Landlock: https://docs.kernel.org
EXECUTE, READ_FILE, READ_FOLDER, TRUNCATE = 1, 4, 8, 1 << 14
READABLE = (
    *(sys.prefix, sys.base_prefix, "/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache"),
    *("/etc/localtime", "/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/sys/devices/system/cpu"),
)
libc = ctypes.CDLL(None)


def main() -> None:
    """Load the modules argv[2:], then fork a process for each request on the socket argv[1]."""
    control = socket.socket(fileno=int(sys.argv[1]))
    for name in sys.argv[2:]:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    sys.modules["wherefrom"] = None  # type: ignore[assignment]  # it holds solutions
    while True:
        message, files, *_ = socket.recv_fds(control, 1 << 16, 2)
        if not message:
            return
        child = os.fork()
        if not child:
            control.close()
            _supervise(json.loads(message), *files)
        for file in files:
            os.close(file)
        _, status = os.waitpid(child, 0)
        control.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))


def _supervise(told: dict[str, Any], channel_file: int, printed: int) -> None:
    """Isolate this process, run the student's code in a child, and exit with its status."""
    channel = socket.socket(fileno=channel_file)
    for stream in (1, 2):
        os.dup2(printed, stream)
    os.setsid()
    os.chdir(told["folder"])
    os.environ["HOME"] = os.environ["TMPDIR"] = told["folder"]
    linux, isolated, user = sys.platform == "linux", False, os.getuid()
    if linux and told["namespaces"]:  # processes and network of our own, where the kernel lets us
        kinds = NEW_IPC | NEW_PID | NEW_NET | (NEW_USER if user else 0)
        isolated = libc.unshare(kinds) == 0
        if isolated and user:
            with contextlib.suppress(OSError), open("/proc/self/uid_map", "w") as file:
                file.write(f"{user} {user} 1")
    if linux:
        libc.prctl(PARENT_DIES, signal.SIGKILL, 0, 0, 0)
        libc.prctl(SUBREAPER, 1, 0, 0, 0)  # a child that leaves its parent comes to us
        libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    confined = linux and _confine()
    waits, tells = os.pipe()
    child = os.fork()  # the first process of the new namespace: all others end with it
    if not child:
        os.close(tells)
        os.read(waits, 1)  # until the number of this process was sent
        os.close(waits)
        _give_up_rights(told, isolated, confined)
        _answer(channel)
        os._exit(0)
    _send(channel, pid=child, isolated=isolated, confined=confined)
    channel.close()
    os.close(tells)
    _, status = os.waitpid(child, 0)
    while left := Path(f"/proc/self/task/{os.getpid()}/children").read_text() if linux else "":
        for number in map(int, left.split()):
            with contextlib.suppress(OSError):
                os.kill(number, signal.SIGKILL)
                os.waitpid(number, 0)
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


def _answer(channel: socket.socket) -> None:
    sys.path.insert(0, os.getcwd())
    try:
        call = checks.caller(importlib.import_module("adapters"))
    except BaseException as error:
        said = f"the code cannot be imported: {type(error).__name__}: {error}"
        if isinstance(error, ModuleNotFoundError):
            said = checks.NO_MODULE.format("the code", error.name)
        _send(channel, wrong=said[:500])
        return
    _send(channel, ready=True)
    for line in channel.makefile("r", encoding="utf-8"):
        request = json.loads(line)
        number, name = request["id"], request["name"]
        try:
            _send(channel, id=number, values=call(name, checks.restore(request["rows"])))
        except checks.Wrong as wrong:
            _send(channel, id=number, wrong=str(wrong))
        except BaseException as error:
            _send(channel, id=number, wrong=f"{name} ended with {type(error).__name__}")


def _send(channel: socket.socket, **record: Any) -> None:
    channel.sendall(json.dumps(record).encode() + b"\n")


def _confine() -> bool:
    """Restrict file access to this folder and Python's own files, by Landlock."""
    version = libc.syscall(CREATE_RULESET, None, 0, 1)
    if version < 1:
        return False
    every = 0x1FFF | (1 << 13 if version > 1 else 0) | (TRUNCATE if version > 2 else 0)
    rules = struct.pack("=QQQ", every, 0, 3) if version > 5 else struct.pack("=Q", every)
    ruleset = libc.syscall(CREATE_RULESET, rules, len(rules), 0)
    reading = EXECUTE | READ_FILE | READ_FOLDER
    allowed = dict.fromkeys((*READABLE, *sys.path), reading)
    devices = {f"/dev/{name}": every & (2 | READ_FILE) for name in ("null", "urandom", "random")}
    for path, rights in {**allowed, **devices, os.getcwd(): every}.items():
        if not os.path.isdir(path):
            rights &= ~READ_FOLDER
        with contextlib.suppress(OSError):  # what cannot be opened cannot be read either
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
            libc.syscall(ADD_RULE, ruleset, 1, struct.pack("=Qi", rights, place), 0)
            os.close(place)
    done = libc.syscall(RESTRICT_SELF, ruleset, 0) == 0
    os.close(ruleset)
    return done


def _give_up_rights(told: dict[str, Any], isolated: bool, confined: bool) -> None:
    """Become another user if we are root, drop capabilities, and set the limits."""
    public = all(folder.stat().st_mode & 5 == 5 for folder in Path(os.__file__).parents)
    keep = 0 if public and not confined else READ_SEARCH  # this Python may be root's alone
    user, limits = told["user"], told["limits"]
    if user:
        libc.prctl(KEEP_CAPS, 1, 0, 0, 0)
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    elif not isolated:  # the limit counts all that the user runs elsewhere
        limits["RLIMIT_NPROC"] += len(list(Path("/proc").glob("[0-9]*/task/*")))
    if sys.platform == "linux":
        keep = keep if user else 0
        libc.capset((ctypes.c_uint32 * 2)(CAPABILITY_VERSION), (ctypes.c_uint32 * 6)(keep, keep))
        libc.prctl(PARENT_DIES, signal.SIGKILL, 0, 0, 0)
    for name, value in limits.items():
        with contextlib.suppress(OSError, ValueError):  # not every system knows every limit
            resource.setrlimit(getattr(resource, name), (value, value))


if __name__ == "__main__":
    main()
