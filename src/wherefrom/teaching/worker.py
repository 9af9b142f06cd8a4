"""The process that runs a student's code: it gives up its rights, then answers calls.

It reads a line {"id", "name", "args"} from the channel, calls the function and writes {"id",
"value"} or {"id", "wrong"}. Of what is expected it knows nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import resource
import socket
import sys
from typing import Any

from wherefrom.teaching import checks

NEW_IPC, NEW_USER, NEW_PID, NEW_NET = 0x08000000, 0x10000000, 0x20000000, 0x40000000
KEEP_CAPS, NO_NEW_PRIVILEGES = 8, 38  # for prctl
CAPABILITY_VERSION, READ_SEARCH = 0x20080522, 1 << 2


def main() -> None:
    """Isolate this process as argv[1] says, load adapters.py of this folder, answer calls."""
    told = json.loads(sys.argv[1])
    channel = socket.socket(fileno=told["channel"])

    def send(**record: Any) -> None:
        channel.sendall(json.dumps(record).encode() + b"\n")

    isolated = told["namespaces"] and sys.platform == "linux" and _unshare()
    waits, told_pid = os.pipe()
    child = os.fork()  # the first process of the new namespace: all others end with it
    if child:
        send(pid=child, isolated=isolated)
        channel.close()
        os.close(told_pid)
        ended = os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        assert ended is not None
        os._exit(ended.si_status + 128 * (ended.si_code != os.CLD_EXITED))
    os.close(told_pid)
    os.read(waits, 1)  # until the number of this process was sent
    os.close(waits)
    _give_up_rights(told)
    sys.path[0] = os.getcwd()
    sys.modules["checks"] = checks  # adapters.py may use it
    try:
        call = checks.caller(importlib.import_module("adapters"))
    except BaseException as error:
        send(wrong=f"the code cannot be imported: {type(error).__name__}: {error}"[:500])
        return
    send(ready=True)
    for line in channel.makefile("r", encoding="utf-8"):
        request = json.loads(line)
        try:
            send(id=request["id"], value=call(request["name"], *checks.restore(request["args"])))
        except checks.Wrong as wrong:
            send(id=request["id"], wrong=str(wrong))
        except BaseException as error:
            send(id=request["id"], wrong=f"{request['name']} ended with {type(error).__name__}")


def _unshare() -> bool:
    """Processes and network of our own, where the kernel lets us."""
    user = os.getuid()
    flags = NEW_IPC | NEW_PID | NEW_NET | (NEW_USER if user else 0)
    if ctypes.CDLL(None).unshare(flags) != 0:
        return False
    if user:
        with contextlib.suppress(OSError), open("/proc/self/uid_map", "w") as file:
            file.write(f"{user} {user} 1")
    return True


def _give_up_rights(told: dict[str, Any]) -> None:
    """Another user where we are root, no way back, and limits."""
    libc = ctypes.CDLL(None)
    keep = READ_SEARCH if told["keep_reading"] else 0  # this Python is readable for root alone
    if told["user"]:
        if keep:
            libc.prctl(KEEP_CAPS, 1, 0, 0, 0)
        os.setgroups([])
        os.setresgid(*[told["user"]] * 3)
        os.setresuid(*[told["user"]] * 3)
    if sys.platform == "linux":
        libc.capset((ctypes.c_uint32 * 2)(CAPABILITY_VERSION), (ctypes.c_uint32 * 6)(keep, keep))
        libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    for name, value in told["limits"].items():
        with contextlib.suppress(OSError, ValueError):  # not every system knows every limit
            resource.setrlimit(getattr(resource, name), (value, value))
