"""Submissions good, broken and hostile: each costs what it got wrong, and nothing else."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import re
import subprocess
import sys
import zipfile
from contextlib import closing
from pathlib import Path

import pytest

from wherefrom.teaching import reference
from wherefrom.teaching.assignment import make_assignment, make_skeleton, write_assignment
from wherefrom.teaching.checks import Wrong, part_of
from wherefrom.teaching.grading import (
    Sandbox,
    SandboxLimits,
    find_submissions,
    grade_all,
    grade_submission,
)

SOLUTION = Path(reference.__file__).read_text("utf-8")
ATTENTION = "    scores = query @ np.swapaxes(key, -1, -2) / np.sqrt(query.shape[-1])\n"
PATIENT = SandboxLimits(call=20, start=60, total=120)  # a busy machine is slow


@pytest.fixture(scope="module")
def small():
    """An assignment of three parts, without torch."""
    record = make_assignment("transformer", 7)
    kept = ("attention", "mask", "decode")
    record["points"] = {part: record["points"][part] for part in kept}
    for group in ("handed out", "hidden"):
        cases = record[group].items()
        record[group] = {title: case for title, case in cases if part_of(title) in kept}
    return record


def hand_in(folder, **files):
    """A submission with these modules."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text, "utf-8")
    return folder


@contextlib.contextmanager
def opened(code, limits=PATIENT, modules=()):
    """A sandbox with these adapters."""
    sandbox = Sandbox(modules, limits)
    sandbox.load({"adapters.py": code.encode()})
    try:
        yield sandbox
    finally:
        sandbox.unload()
        sandbox.close()


@pytest.fixture(scope="module")
def grade(small):
    with closing(Sandbox((), PATIENT)) as sandbox:
        yield lambda folder: grade_submission(folder, small, sandbox)


def outputs(record):
    return {test["name"].split(" (")[0]: test["output"] for test in record["tests"]}


# what a function does -> what is said about it
HOSTILE = {
    "hangs": ("while True: pass", "hangs did not end within 3 s"),
    "leaves": ("import os; os._exit(0)", r"leaves ended the process \(exit status 0\)"),
    "crashes": ("import ctypes; ctypes.string_at(0)", r"crashes ended .* \(signal SIGSEGV"),
    "exits": ("raise SystemExit(0)", "exits ended with SystemExit"),
    "eats": ("return bytearray(1 << 40)", "eats raised MemoryError"),
    "recurses": ("return recurses()", "recurses raised RecursionError .adapters.py, line"),
    "floods": ("while True: print('x' * (1 << 20))", "floods raised OSError .*File too large"),
    "boasts": ("return ['x' * (9 << 20)]", "boasts returned far too much"),
    "nests": ("x = []\n    for _ in range(9999): x = [x]\n    return x", "nests raised Recursion"),
    "kills": ("import os; os.kill(os.getppid() or 1 / 0, 9)", "kills raised ZeroDivisionError"),
    "babbles": (
        "import os\n    for fd in range(3, 30):\n"
        "        try: os.write(fd, b'{\"value\": 1}\\n[[[\\n')\n        except OSError: pass",
        "babbles wrote something else where its result belongs",
    ),
    "borrows": ("import wherefrom.attention.equation", "borrows needs the module wherefrom"),
    "spies": (
        "import os; return [k for k in os.environ if 'SECRET' in k] or 1 / 0",
        "spies raised Z",
    ),
    "writes": ("open(os.path.join('..', 'results.json'), 'w')", "writes raised PermissionError"),
    "calls": (
        "import socket; socket.create_connection(('127.0.0.1', 9), timeout=1)",
        "calls raised OSError .*unreachable",
    ),
    "splits": ("while True: os.fork()", "splits raised BlockingIOError"),
    "forks": (
        "import os, time\n    made = 0\n    try:\n        while made < 2000:\n"
        "            if os.fork() == 0:\n                os.setsid(); time.sleep(600)\n"
        "            made += 1\n    except OSError: pass\n"
        "    if made < 500: os._exit(7)",
        r"forks ended the process \(exit status 7\)",
    ),
}


@pytest.fixture(scope="module")
def sandbox():
    text = "import os\n\n\ndef good(x):\n    return [x, os.getpid()]\n"
    for name, (body, _) in HOSTILE.items():
        text += f"\n\ndef {name}():\n    {body}\n"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SECRET", "1")
        with opened(text, SandboxLimits(call=3, start=60, total=300)) as sandbox:
            yield sandbox


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_function_costs_itself_alone(name, sandbox):
    sandbox.call("good", [[1]])
    if name in ("kills", "calls", "forks", "splits") and not sandbox.isolated:
        pytest.skip("this system gives no namespaces")
    if name == "writes" and os.getuid() != 0 and not sandbox.confined:
        pytest.skip("the owner of a folder can write there")
    with pytest.raises(Wrong) as told:
        sandbox.call(name, [[]])
    assert re.match(HOSTILE[name][1], str(told.value)), told.value
    assert sandbox.call("good", [[5]])[0][0] == 5
    if name == "leaves":  # a function that ended its process is not called again
        process = sandbox.inner
        with pytest.raises(Wrong, match="exit status 0"):
            sandbox.call(name, [[]])
        sandbox.call("good", [[1]])
        assert sandbox.inner == process
    assert not (sandbox.job / "results.json").exists()


@pytest.mark.parametrize("namespaces", [True, False])
def test_nothing_is_left_behind(namespaces):
    """Children of a function that moved to a session of their own end with it, too."""
    code = f"def forks():\n    {HOSTILE['forks'][0]}\n"
    with opened(code, SandboxLimits(call=2), ("a_module_that_marks_it",)) as sandbox:
        sandbox.namespaces = namespaces
        with pytest.raises(Wrong):
            sandbox.call("forks", [[]])
        assert sandbox.isolated == namespaces
        left = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if b"a_module_that_marks" in path.read_bytes():
                    left.append(int(path.parent.name))
        assert left == [sandbox.process.pid]


def test_code_that_forges_its_score_gets_none(grade, tmp_path):
    """It runs where nothing is judged: changing the judge there changes nothing here."""
    forge = (
        "    import json, checks\n    checks.verdict = lambda *_: ''\n    checks.CHECKS.clear()\n"
        "    checks.close = lambda *_: True\n"
        "    json.dump({'score': 100}, open('results.json', 'w'))\n    return value\n"
    )
    text = SOLUTION.replace(ATTENTION, forge + ATTENTION)
    record = grade(hand_in(tmp_path / "s", transformer=text))
    said = outputs(record)
    assert said["attention: context"] == "the result has shape (11, 13); (5, 13) was expected"
    assert said["attention: weights"] == said["mask: triangle"] == said["decode: ids"] == "passed"
    assert record["score"] < 9


# files of a submission -> what is said about all of it
CANNOT = "the code cannot be imported: "
EMPTY = make_skeleton(SOLUTION, ["attention", "softmax", "causal_mask"])
BROKEN = [
    ({"transformer": "def attention(:\n"}, CANNOT + r"SyntaxError: .* \(transformer.py, line 1\)"),
    (
        {"adapters": "import my_attention\n"},
        "the code needs the module my_attention: the submission has no",
    ),
    ({"adapters": "import sys; sys.exit(0)"}, CANNOT + "SystemExit"),
    ({"adapters": "import os; os._exit(0)"}, r"loading the code ended .* \(exit status 0\)"),
    ({"transformer": ""}, "attention raised AttributeError"),
    ({"transformer": EMPTY}, "attention is not filled in yet"),
    ({}, "this submission was not graded: there is none of adapters.py"),
    ({"transformer": "# coding: latin-9\n"}, CANNOT + "SyntaxError"),
]


@pytest.mark.parametrize(("files", "says"), BROKEN)
def test_a_broken_submission_is_told_why(files, says, grade, tmp_path):
    record = grade(hand_in(tmp_path / "s", **files))
    assert record["score"] == 0
    assert re.match(says, outputs(record)["attention: context"])
    assert len(record["tests"]) == 10
    json.dumps(record, allow_nan=False)


def test_links_lead_nowhere_and_code_may_lie_deeper(grade, tmp_path):
    (tmp_path / "secret.py").write_text("raise RuntimeError('read')")
    folder = hand_in(tmp_path / "s" / "hw5", transformer=SOLUTION)
    (folder / "secret.py").symlink_to(tmp_path / "secret.py")
    (folder / "other").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")
    probe = "\nimport os\nassert sorted(os.listdir()) == ['adapters.py', 'transformer.py']\n"
    hand_in(folder, transformer=SOLUTION + probe)
    assert grade(tmp_path / "s")["score"] == 9
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "stolen").symlink_to(folder)
    record = grade(linked)
    assert record["extra_data"]["note"].startswith("this submission was not graded: there is none")


def test_no_file_but_its_own_and_pythons_can_be_read_or_written(tmp_path):
    """The hidden cases lie in a file of the teacher's, who may be the one that grades."""
    secret = tmp_path / "assignment.json"
    secret.write_text("{}")
    secret.chmod(0o666)
    for folder in (tmp_path, *tmp_path.parents[:2]):
        with contextlib.suppress(OSError):
            folder.chmod(0o755)
    code = """
def acts(what):
    try:
        return str(eval(what))
    except OSError as error:
        return type(error).__name__
"""
    acts = {
        f"open({str(secret)!r}).read()": "PermissionError",
        f"open({str(secret)!r}, 'w')": "PermissionError",
        f"__import__('os').truncate({str(secret)!r}, 0)": "PermissionError",
        f"__import__('os').listdir({str(tmp_path)!r})": "PermissionError",
        f"__import__('os').kill({os.getpid()}, 0)": "(ProcessLookup|Permission)Error",
        f"open('/proc/{os.getpid()}/environ').read()": "(FileNotFound|Permission)Error",
        "open('own', 'w').write('x') + len(open('own').read())": "2",
        "__import__('fractions').Fraction(1, 2)": "1/2",
    }
    with opened(code) as sandbox:
        found = sandbox.call("acts", [[act] for act in acts])
        if not sandbox.confined:
            pytest.skip("this kernel has no Landlock")
    for said, expected in zip(found, acts.values(), strict=True):
        assert re.fullmatch(expected, said), (said, expected)
    assert secret.read_text() == "{}"


def test_what_hidden_cases_print_is_not_shown(grade, small, tmp_path):
    text = SOLUTION.replace(ATTENTION, "    print('HERE', float(query.flat[0]))\n" + ATTENTION)
    record = grade(hand_in(tmp_path / "s", transformer=text))
    printed = set(re.findall(r"HERE (\S+)", record["output"]))
    first = [
        {repr(float(case["args"][0].flat[0])) for case in small[group]["attention: context"]}
        for group in ("handed out", "hidden")
    ]
    assert first[0] & printed
    assert not first[1] & printed


def test_other_layouts_are_connected_by_adapters(grade, tmp_path):
    (tmp_path / "s" / "nets").mkdir(parents=True)
    (tmp_path / "s" / "nets" / "parts.py").write_text(SOLUTION, "utf-8")
    adapters = (
        "from nets.parts import softmax, greedy_decode\nfrom nets import parts\n\n\n"
        "def attention(q, k, v, m):\n    return parts.attention(query=q, key=k, value=v, mask=m)\n"
        "\n\ndef causal_mask(n):\n    return parts.causal_mask(n).tolist()\n"
    )
    folder = hand_in(tmp_path / "s", adapters=adapters)
    assert grade(folder)["score"] == 9


def test_a_class_is_graded_whatever_one_hands_in(small, tmp_path, monkeypatch):
    for name in ("ada", "bo", "cy"):
        hand_in(tmp_path / "in" / name, transformer=SOLUTION)
    started, start = [], Sandbox._start
    monkeypatch.setattr(Sandbox, "_start", lambda self: started.append(self) or start(self))
    hand_in(tmp_path / "in" / "dee", transformer="import os; os._exit(1)")
    hand_in(tmp_path / "in" / "empty")
    (tmp_path / "in" / ".git").mkdir()
    told = []
    records = grade_all(
        find_submissions(tmp_path / "in"), small, tmp_path / "out", jobs=2, limits=PATIENT,
        report=lambda student, record: told.append(student),
    )  # fmt: skip
    assert sorted(told) == list(records) == ["ada", "bo", "cy", "dee", "empty"]
    assert len(started) == 2  # the three who hand in the same are graded once
    rows = list(csv.DictReader((tmp_path / "out" / "grades.csv").read_text("utf-8").splitlines()))
    assert [(row["student"], float(row["score"])) for row in rows] == [
        ("ada", 9), ("bo", 9), ("cy", 9), ("dee", 0), ("empty", 0)
    ]  # fmt: skip
    assert [rows[0][part] for part in ("out of", "attention", "mask")] == ["9", "4.0", "2.0"]
    assert "none of adapters.py" in rows[4]["note"]
    for student in records:
        found = json.loads((tmp_path / "out" / student / "results.json").read_text("utf-8"))
        assert found["score"] == pytest.approx(sum(test["score"] for test in found["tests"]))
        assert {test["visibility"] for test in found["tests"]} == {"visible", "after_published"}


class TestFolders:
    def test_a_student_fills_in_runs_and_hands_in(self, tmp_path, command, monkeypatch):
        assert command("assignment", "mask", "--out", tmp_path / "hw", "--seed", 3).code == 0
        handout, teacher = tmp_path / "hw" / "handout", tmp_path / "hw" / "teacher"
        code = handout / "transformer.py"
        monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

        def run(*what):
            ended = subprocess.run(
                [sys.executable, *what], cwd=handout, capture_output=True, text=True, check=False
            )
            return ended.stdout + ended.stderr

        assert "FAILED  mask: triangle: causal_mask is not filled in yet" in run("run_tests.py")
        text = code.read_text("utf-8")
        blank = "raise NotImplementedError  # your code"
        code.write_text(text.replace(blank, "return np.tri(length, k=1) > 0"), "utf-8")
        assert "position 0 sees position 1" in run("-m", "pytest", "-q")
        grades = ("--assignment", teacher / "assignment.json", "--out", tmp_path / "g", "--json")
        assert json.loads(command("grade", handout, *grades).out)["handout"]["score"] == 0
        code.write_text(text.replace(blank, "return np.tri(length) > 0"), "utf-8")
        assert "1 of 1 checks passed" in run("run_tests.py")
        assert json.loads(command("grade", handout, *grades).out)["handout"]["score"] == 2

    def test_nothing_of_the_solution_or_the_hidden_cases_is_handed_out(self, tmp_path):
        skeleton = make_skeleton(SOLUTION, ["synthesizer"])
        assert "np.maximum" not in skeleton
        assert "np.exp(" in skeleton  # softmax is called, so it is given
        assert "def rotary" not in skeleton
        compile(skeleton, "transformer.py", "exec")
        record = write_assignment("transformer", tmp_path / "hw", 3)
        texts = "".join(path.read_text("utf-8") for path in (tmp_path / "hw" / "handout").iterdir())
        assert "np.maximum(x @ A" not in texts
        assert "scaled_dot_product" not in texts
        assert str(record["hidden"]["span: form"][0]["args"][0]) not in texts
        assert str(record["handed out"]["span: form"][0]["args"][0]) in texts
        files = sorted((tmp_path / "hw" / "teacher" / "otter" / "tests").iterdir())
        assert len(files) == 9
        for path in files:
            text = path.read_text("utf-8")
            compile(text, path.name, "exec")
            points = [float(found) for found in re.findall(r"points=([\d.]+)", text)]
            numbers = re.findall(r"def test_(\d+)", text)
            assert len(set(numbers)) == len(points) == 2 * text.count("hidden=True")
        assert sum(points) == pytest.approx(8)

    def test_the_zip_for_gradescope_grades_alone(self, tmp_path):
        write_assignment("mask", tmp_path / "hw", 3)
        source, results = tmp_path / "source", tmp_path / "results.json"
        with zipfile.ZipFile(tmp_path / "hw" / "teacher" / "gradescope.zip") as archive:
            archive.extractall(source)
            modes = {entry.filename: entry.external_attr >> 16 for entry in archive.infolist()}
        assert modes["run_autograder"] == modes["setup.sh"] == 0o755
        submission = hand_in(tmp_path / "s", transformer="def causal_mask(n): return n")
        run = "import sys; sys.path.insert(0, '.'); import runpy; " + (
            "runpy.run_module('wherefrom.teaching.grading', run_name='__main__')"
        )
        subprocess.run(
            [sys.executable, "-I", "-c", run, str(submission), str(results)],
            cwd=source, check=True, env={"PATH": os.environ["PATH"]},
        )  # fmt: skip
        record = json.loads(results.read_text("utf-8"))
        assert record["tests"][0]["output"] == "the result has shape (); (1, 1) was expected"
        assert record["stdout_visibility"] == "hidden"
