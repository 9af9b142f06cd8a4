"""Hostile code in the sandbox, with bubblewrap and without: each function costs itself alone."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from wherefrom.errors import UserError
from wherefrom.teaching import isolation, reference
from wherefrom.teaching.checks import Wrong
from wherefrom.teaching.isolation import MemoryGroup, Protection
from wherefrom.teaching.sandbox import Sandbox, SandboxLimits, find_protection

PATIENT = SandboxLimits(call=20, start=60, total=120)  # a busy machine is slow


def plain_protection():
    group = MemoryGroup.make(1 << 30)
    if group is not None:
        group.remove()
    return Protection("", "the test asks for a plain process", group is not None)


@pytest.fixture(scope="module", params=["bubblewrap", "plain process"])
def protection(request, sandbox_works):
    """What contains the code; both kinds are tested on a system that has bubblewrap."""
    if request.param == "plain process":
        return plain_protection()
    found = find_protection()
    if not found.bubblewrap:
        pytest.skip(f"bubblewrap: {found.why_plain}")
    return found


def opened(code, protection, limits=PATIENT):
    """A sandbox with this text as adapters.py."""
    return Sandbox({"adapters.py": code.encode()}, limits, protection)


# what a function does -> what is said about it
HOSTILE = {
    "hangs": ("while True: pass", "hangs did not end within 2 s"),
    "leaves": ("os._exit(0)", r"leaves ended the process \(exit status 0\)"),
    "crashes": ("os.kill(os.getpid(), 11)", r"crashes ended .* \(signal SIGSEGV"),
    "exits": ("raise SystemExit(0)", "exits ended with SystemExit"),
    "eats": ("return bytearray(1 << 40)", "eats raised MemoryError"),
    "recurses": ("return recurses()", "recurses raised RecursionError .adapters.py, line"),
    "floods": ("while True: print('x' * (1 << 20))", "floods did not end within 2 s"),
    "boasts": ("return ['x' * (9 << 20)]", "boasts returned far too much"),
    "nests": ("x = []\n    for _ in range(9999): x = [x]\n    return x", "nests raised Recursion"),
    "babbles": (
        "for fd in range(3, 30):\n"
        "        try: os.write(fd, b'{\"value\": 1}\\n[[[\\n')\n        except OSError: pass",
        "babbles wrote something else where its result belongs",
    ),
    "borrows": (
        "import wherefrom.attention.equation",
        "borrows (needs the module wherefrom|raised PermissionError)",
    ),
    "spies": ("return [k for k in os.environ if 'SECRET' in k] or 1 / 0", "spies raised Zero"),
    "writes": ("open('../results.json', 'w')", "writes raised (Permission|OS)Error"),
    "splits": ("while True: os.fork()", "splits raised BlockingIOError"),
    "spins": (
        "import _thread\n    while True: _thread.start_new_thread(time.sleep, (9,))",
        "spins raised RuntimeError",
    ),
    "reads": ("return open('/etc/passwd').read()", "reads raised PermissionError"),
    "lists": ("return os.listdir('/etc')", "lists raised PermissionError"),
    "starts": ("os.system('true')", "starts raised PermissionError"),
    "replaces": ("os.execv('/bin/true', ['true'])", "replaces raised PermissionError"),
}
# of these a plain process is not protected
CONTAINED = {
    "calls": (
        "import socket; socket.create_connection(('127.0.0.1', 9), timeout=1)",
        "calls raised OSError .*unreachable|calls raised ConnectionRefusedError",
    ),
    "kills": ("os.kill(1, 9); return 1 / 0", "kills raised (ZeroDivision|Permission)Error"),
    "fills": (
        "for i in range(100): open(str(i), 'wb').write(bytes(15 << 20))",
        "fills raised OSError .*No space left",
    ),
    "peeks": ("return len(os.listdir('/proc/1')) and 1 / 0", "peeks raised PermissionError"),
}


@pytest.fixture(scope="module")
def running(protection):
    # modules that a plain process of another user may not be able to read are loaded before
    text = "import os\nimport time\n\n\ndef good(x):\n    return [x, os.getpid()]\n"
    for name, (body, _) in (HOSTILE | CONTAINED).items():
        text += f"\n\ndef {name}():\n    {body}\n"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SECRET", "1")
        with opened(text, protection, SandboxLimits(call=2, start=60, total=300)) as running:
            yield running


@pytest.mark.parametrize("name", [*HOSTILE, *CONTAINED])
def test_a_hostile_function_costs_itself_alone(name, running, protection):
    if name in CONTAINED and not protection.bubblewrap:
        pytest.skip("a plain process is not protected from this, and `gaps` says so")
    running.call("good", [[1]])
    with pytest.raises(Wrong) as told:
        running.call(name, [[]])
    assert re.match((HOSTILE | CONTAINED)[name][1], str(told.value)), told.value
    assert running.call("good", [[5]])[0][0] == 5
    assert not (running.job / "results.json").exists()
    if name == "leaves":  # a function that ended its process is not called again
        process = running.process
        with pytest.raises(Wrong, match="exit status 0"):
            running.call(name, [[]])
        assert running.process is process


def test_what_the_code_tried_is_noted(protection):
    code = (
        "def acts(what):\n    try:\n        return str(eval(what))\n"
        "    except OSError as error:\n        return type(error).__name__\n"
    )
    tried = {
        "open('/etc/passwd').read()": "PermissionError",
        f"open({str(Path(reference.__file__))!r}).read()": "PermissionError",
        "__import__('os').listdir('/home')": "PermissionError",
        "open('own', 'w').write('x') + len(open('own').read())": "2",
    }
    with opened(code, protection) as running:
        found = running.call("acts", [[what] for what in tried])
        assert found == list(tried.values())
    noted = " ".join(running.observed.refused)
    assert "/etc/passwd" in noted
    assert reference.__file__ in noted
    assert "/home" in noted
    assert "own" not in noted


STEALS = """
import os, sys
where = [*sys.path, os.path.dirname(sys.modules["checks"].__file__), {package!r}]
names = ("wherefrom/teaching/reference.py", "teaching/reference.py", "reference.py")
found = [os.path.join(folder, name) for folder in where for name in names]


def steal(way):
    sys.modules.pop("wherefrom", None)
    for path in filter(os.path.exists, found):
        if way == "open":
            return open(path).read()
        if way == "ctypes":
            import ctypes
            file = ctypes.CDLL(None).open(path.encode(), 0)
            return os.fdopen(file).read() if file >= 0 else "nothing"
    if way == "import":
        import wherefrom.teaching.reference as found_module
        return found_module.__file__
    return "nothing"
"""


@pytest.mark.parametrize("way", ["open", "ctypes", "import"])
def test_the_reference_solution_is_out_of_reach(way, protection, tmp_path):
    """Code that found teaching/reference.py through sys.path used to get all points."""
    if way == "ctypes" and not protection.bubblewrap:
        pytest.skip("a plain process is not protected from this, and `gaps` says so")
    package = str(Path(reference.__file__).parents[1])
    with opened(STEALS.format(package=package), protection) as running:
        try:
            assert running.call("steal", [[way]]) == ["nothing"]
        except Wrong as wrong:
            assert re.search("PermissionError|needs the module wherefrom", str(wrong))  # noqa: PT017


def test_every_copy_of_the_package_is_hidden(protection, tmp_path, monkeypatch):
    """A copy among Python's libraries could be read if another one was imported, or by a link."""
    if not protection.bubblewrap:
        pytest.skip("only bubblewrap hides files")
    (tmp_path / "venv" / "lib" / "wherefrom" / "teaching").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "venv")
    copy = tmp_path / "venv" / "lib" / "wherefrom" / "teaching" / "reference.py"
    copy.write_text("x = 1")
    (tmp_path / "venv" / "lib" / "numpy.py").write_text("")
    folders = [*isolation.python_folders(), str(tmp_path / "link"), str(tmp_path / "venv")]
    monkeypatch.setattr(isolation, "python_folders", lambda: folders)
    monkeypatch.syspath_prepend(str(tmp_path / "venv" / "lib"))
    code = "import os\n\n\ndef exists(path):\n    return os.path.exists(path)\n"
    paths = [
        copy.with_name("reference.py"),
        tmp_path / "link" / "lib" / "wherefrom" / "teaching" / "reference.py",
        tmp_path / "venv" / "lib" / "numpy.py",
        tmp_path / "link" / "lib" / "numpy.py",
    ]
    with opened(code, protection) as running:
        found = running.call("exists", [[str(path)] for path in paths])
    assert found == [False, False, True, True]


def test_a_process_without_its_environment_is_still_found():
    """It counts for the memory of its submission, whatever its parent hid."""
    command = ["/bin/sh", "-c", "env -i /bin/sleep 60 & env -i /bin/sleep 60 & wait"]
    with subprocess.Popen(command, env={"TOKEN": "1"}, start_new_session=True) as process:
        until = time.monotonic() + 20
        found: set[int] = set()
        while len(found) < 3 and time.monotonic() < until:
            found = isolation.find_processes(process.pid, 0, "NO_SUCH_TOKEN=1")
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
    assert len(found) == 3
    assert process.pid in found


EATS = """
import os
import time


def eats():
    for _ in range(10):
        if os.fork() == 0:
            kept = bytearray(150 << 20)
            time.sleep(30)
            os._exit(0)
    time.sleep(3)
    return 1


def good():
    return 1
"""
FORKS = """
import os
import time


def forks():
    for _ in range(5):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(600)
            os._exit(0)
    time.sleep(0.5)
    return 1
"""


def memory_of(user):
    """Kilobytes that all processes of a user take; pages that they share are counted once."""
    total = 0
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if re.search(rf"^Uid:\s+{user}\s", (path / "status").read_text(), re.MULTILINE):
                text = (path / "smaps_rollup").read_text()
                total += int(re.search(r"Pss_Anon:\s+(\d+)", text)[1])
        except (OSError, TypeError):
            continue
    return total


@pytest.mark.skipif(os.getuid() != 0, reason="as root, a user of its own tells what code takes")
@pytest.mark.parametrize("kind", ["control group", "watched"])
def test_the_memory_of_all_processes_together_is_limited(kind, protection):
    """Ten children of 150 MB each used to take 1.6 GB of 0.3."""
    if kind == "control group" and not protection.memory_group:
        pytest.skip("this system gives us no memory control group")
    limits = PATIENT._replace(memory=0.3)
    protection = replace(protection, memory_group=kind == "control group")
    peak, done = [0], threading.Event()
    with opened(EATS, protection, limits) as running:

        def watch():
            while not done.is_set():
                peak[0] = max(peak[0], memory_of(running.user))
                time.sleep(0.02)

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            if kind == "watched":
                with pytest.raises(Wrong, match=r"took more than 0.3 GB"):
                    running.call("eats", [[]])
            else:
                running.call("eats", [[]])  # the kernel ended its children
            assert running.call("good", [[]]) == [1]
        finally:
            done.set()
            watcher.join()
    # processes that ended while the sum was taken count as well; what is watched is so ten times
    # in a second
    allowed = 0.6 if kind == "control group" else 1.2
    assert 50 << 10 < peak[0] < allowed * (1 << 20)
    if kind == "control group":
        assert "take more than 0.3 GB" in running.observed.refused


def test_nothing_is_left_behind(protection):
    """Children that moved to a session of their own end with the sandbox, too."""
    with opened(FORKS, protection) as running:
        assert running.call("forks", [[]]) == [1]
        process = running.process
        assert len(process.find_processes()) >= 6
    assert process.find_processes() == set()
    assert not running.job.exists()
    assert process.group is None or not process.group.folder.exists()


def test_results_of_a_forged_kind_cost_no_memory(protection):
    """A result that called itself an array of long texts made the grader take gigabytes."""
    from wherefrom.teaching.checks import decode

    code = "def f(): return {'array': [0], 'shape': [1], 'kind': 'S1500000000'}"
    with opened(code, protection) as running:
        (found,) = running.call("f", [[]])
    with pytest.raises(Wrong, match="not an array of numbers"):
        decode(found)


def test_what_is_not_protected_is_said():
    safe = Protection("/usr/bin/bwrap", "", True)
    assert safe.gaps() == []
    (plain,) = replace(safe, bubblewrap="", why_plain="it is not installed").gaps()
    assert "without bubblewrap (it is not installed)" in plain
    (watched,) = replace(safe, memory_group=False).gaps()
    assert "measured every 0.1 s" in watched


def test_bubblewrap_that_does_not_work_is_not_used(tmp_path, monkeypatch):
    program = tmp_path / "bwrap"
    program.write_text(
        "#!/bin/sh\necho 'bwrap: No permissions to create a namespace' >&2\nexit 1\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    find_protection.cache_clear()
    try:
        found = find_protection()
        assert not found.bubblewrap
        assert "No permissions to create a namespace" in found.why_plain
    except UserError as error:  # Python itself lies where root alone can read it
        assert os.getuid() == 0
        assert "a Python that every user can read" in str(error)  # noqa: PT017
    finally:
        find_protection.cache_clear()
