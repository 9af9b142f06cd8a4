"""What contains a submission: bubblewrap, a memory control group of the kernel, a user of its own.

`Protection` says which of these a system has, and what is not protected without them.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import pwd
import random
import secrets
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from wherefrom.errors import UserError

PACKAGE = Path(__file__).resolve().parents[1]  # holds the reference solution
IS_LINUX = sys.platform.startswith("linux")
MAX_DISK_BYTES = 128 << 20  # of all files in one folder that a submission may write, in bubblewrap
MEMORY_CHECK_SECONDS = 0.1  # between two looks at the memory, where no control group limits it
SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/etc/ld.so.cache", "/etc/localtime")
JOB_INSIDE, DISK_INSIDE = "/wherefrom-job", "/submission"  # paths inside of bubblewrap
CPU = "/sys/devices/system/cpu"
# one of these users runs a submission that root grades
USERS = itertools.cycle(random.SystemRandom().sample(range(50_000, 60_000), 10_000))


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
            who = "another user" if os.getuid() == 0 else "you"
            found.append(
                f"Students' code runs without bubblewrap ({self.why_plain}), as {who}. It can use "
                "the network and fill the disk. Only a hook inside Python keeps it from files and "
                f"programs; hostile code gets around it and reads what {who} can read, such as the "
                "reference solution. Grade strangers where bwrap works."
            )
        if not self.memory_group and IS_LINUX:
            found.append(
                "The kernel offers no memory control group: the memory of a submission is measured "
                f"every {MEMORY_CHECK_SECONDS:g} s, so it may exceed the limit for a moment."
            )
        if not IS_LINUX:
            found.append(
                "This system is not Linux: the memory limit holds for each process of a submission "
                "alone, and processes in a session of their own are not ended."
            )
        return found


# ---- bubblewrap


def library_folder() -> str:
    """The folder in which numpy is installed."""
    found = importlib.util.find_spec("numpy")
    if found is None or found.origin is None:
        raise UserError("students' code needs numpy, which is not installed.")
    return str(Path(found.origin).parents[1])


def python_folders() -> list[str]:
    """Folders that Python and its libraries are read from; none lies inside another."""
    folders = {Path(sys.prefix), Path(sys.base_prefix), Path(library_folder())}
    return sorted(str(folder) for folder in folders if not folders & set(folder.parents))


def hidden_folders() -> list[str]:
    """Every copy of this package that Python can import: each holds the reference solution."""
    places = [PACKAGE.parent, *map(Path, sys.path), Path(library_folder())]
    copies = [place.resolve() / PACKAGE.name for place in places]
    return sorted({str(copy) for copy in copies if copy.is_dir()})


def bubblewrap_command(program: str, job: Path) -> list[str]:
    """The command that runs another one in a file system with Python and this job alone."""
    command = [program, "--die-with-parent", "--new-session"]
    if os.getuid() == 0:  # no user namespace: runner.py becomes another user
        command += ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"]
        command += ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        command += ["--unshare-all"]
    for folder in ("/tmp", DISK_INSIDE):
        command += ["--size", str(MAX_DISK_BYTES), "--perms", "1777", "--tmpfs", folder]
    readable = [*SYSTEM, *python_folders(), CPU]
    for path in readable:
        for parent in reversed(Path(path).parents[:-1]):
            command += ["--perms", "0755", "--dir", str(parent)]
        if path in SYSTEM and os.path.islink(path):  # as /lib to /usr/lib
            command += ["--symlink", os.readlink(path), path]
        else:
            command += ["--ro-bind-try", path, path]
    for path in readable:  # after all that could cover them again
        for hidden in map(Path, hidden_folders()):
            real = Path(path).resolve()
            if hidden.is_relative_to(real):
                command += ["--tmpfs", str(Path(path) / hidden.relative_to(real))]
    command += ["--ro-bind", str(job), JOB_INSIDE, "--proc", "/proc", "--dev", "/dev"]
    command += ["--size", str(MAX_DISK_BYTES), "--perms", "1777", "--tmpfs", "/dev/shm"]
    return [*command, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", DISK_INSIDE, "--"]


# ---- memory


class ControlFiles(NamedTuple):
    """Where a control group is made, and the names of its files."""

    parent: Path
    memory: str
    swap: str
    swap_counts_memory: bool


class MemoryGroup:
    """A control group of the kernel: the memory of all its processes together is limited."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def make(cls, limit_bytes: int) -> MemoryGroup | None:
        """A new group with this limit, or None if the system does not let us make one."""
        for files in find_control_files():
            folder = files.parent / f"wherefrom-{secrets.token_hex(8)}"
            with contextlib.suppress(OSError):
                folder.mkdir()
                try:
                    write_control_file(folder / files.memory, limit_bytes)
                except OSError:
                    folder.rmdir()
                    continue
                with contextlib.suppress(OSError):  # the kernel may not count swap
                    write_control_file(
                        folder / files.swap, limit_bytes if files.swap_counts_memory else 0
                    )
                return cls(folder)
        return None

    def enter_command(self) -> list[str]:
        """The command that runs another one in this group."""
        join = 'echo 0 > "$0" && exec "$@"'
        return ["/bin/sh", "-c", join, str(self.folder / "cgroup.procs")]

    def was_exceeded(self) -> bool:
        """Whether the kernel ended a process for the memory of the group."""
        for name in ("memory.events", "memory.oom_control"):  # of version 2 and of version 1
            with contextlib.suppress(OSError):
                for line in (self.folder / name).read_text("utf-8").splitlines():
                    if line.startswith("oom_kill ") and line != "oom_kill 0":
                        return True
        return False

    def remove(self, until: float = 0) -> None:
        """Remove the group; its last process may still be ending."""
        while True:
            try:
                return self.folder.rmdir()
            except OSError:
                if time.monotonic() > until:
                    return None
                time.sleep(0.01)


def write_control_file(path: Path, value: int) -> None:
    with open(path, "r+") as file:  # it exists; "w" could make one
        file.write(str(value))


def find_control_files() -> Iterator[ControlFiles]:
    """Where a group could be made: inside our own group, then beside it.

    A group of version 2 that has processes can have no group with limits inside.
    """
    try:
        lines = Path("/proc/self/cgroup").read_text("utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        number, kinds, own = line.split(":", 2)
        if kinds == "memory":
            root = Path("/sys/fs/cgroup/memory")
            names = ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", True)
        elif number == "0":
            root = Path("/sys/fs/cgroup")
            names = ("memory.max", "memory.swap.max", False)
        else:
            continue
        group = root / own.lstrip("/")
        for parent in (group, group.parent):
            if parent.is_relative_to(root) and (parent / "cgroup.procs").exists():
                yield ControlFiles(parent, *names)


def read_fields(path: Path) -> dict[str, str]:
    """The lines "name: value" of a file of /proc."""
    lines = path.read_text("utf-8", "replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def find_processes(root: int, user: int, token: str) -> set[int]:
    """The processes of a submission.

    These are the processes of `user`, if one is given; else those below the process `root`, and
    those with the token in their environment, as a process that outlived its parent may be.
    """
    parents, ours = dict[int, int](), set[int]()
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            status = read_fields(path / "status")
            if "VmRSS" not in status:  # a thread of the kernel, or a process that has ended
                continue
            number = int(path.name)
            parents[number] = int(status["PPid"])
            if user:
                is_ours = int(status["Uid"].split()[0]) == user
            else:
                is_ours = number == root or token.encode() in (path / "environ").read_bytes()
            if is_ours:
                ours.add(number)
    below = ours
    while below and not user:
        below = {number for number, parent in parents.items() if parent in below} - ours
        ours |= below
    return ours


def memory_of(process: int) -> int:
    """Kilobytes that a process takes; pages that it shares with others count in parts."""
    with contextlib.suppress(OSError, ValueError):
        fields = read_fields(Path(f"/proc/{process}/smaps_rollup"))
        names = ("Pss_Anon", "Pss_Shmem", "SwapPss")
        return sum(int(fields.get(name, "0 kB").split()[0]) for name in names)
    return 0


def unused_user() -> int:
    """The number of a user who does not exist and runs nothing."""
    running = set()
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            running.add(path.stat().st_uid)
    existing = {user.pw_uid for user in pwd.getpwall()}
    return next(number for number in USERS if number not in running | existing)
