"""Written answers and code by one rubric, from the command line to the files that are written."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from wherefrom.teaching import reference, sandbox
from wherefrom.teaching.assignment import make_assignment, make_skeleton, write_assignment
from wherefrom.teaching.grading import Grader
from wherefrom.teaching.isolation import Protection
from wherefrom.teaching.results import gradescope_record
from wherefrom.teaching.rubric import Reason, Rubric, RubricQuestion, read_rubric
from wherefrom.teaching.sandbox import SandboxLimits
from wherefrom.teaching.submissions import read_submissions

SOLUTION = Path(reference.__file__).read_text("utf-8")
ATTENTION = "    scores = query @ np.swapaxes(key, -1, -2) / np.sqrt(query.shape[-1])\n"
PATIENT = SandboxLimits(call=20, start=60, total=120)  # a busy machine is slow
PARTS = {"attention": 4, "mask": 2, "decode": 3}  # without torch
CHECKS = 5 * 2  # of these parts, handed out and hidden


@pytest.fixture(scope="module")
def rubric():
    questions = tuple(
        RubricQuestion(part, kind="code", points=points) for part, points in PARTS.items()
    )
    return Rubric(questions, make_assignment(PARTS, 7))


@pytest.fixture(scope="module")
def grade(rubric, sandbox_works):
    """The result of the folder of one student."""
    return lambda folder: Grader(rubric, PATIENT).grade(*read_submissions(folder, of_one=True))


def hand_in(folder, **files):
    """A submission with these modules."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text, "utf-8")
    return folder


def outputs(result):
    """Title of a check -> what is wrong, on the hidden cases."""
    return {answer.name.split(" (")[0]: answer.sentence for answer in result.answers}


def test_code_that_forges_its_score_gets_none(grade, tmp_path):
    """It runs where nothing is judged: changing the judge there changes nothing here."""
    forge = (
        "    import json, checks\n    checks.verdict = lambda *_: ''\n    checks.CHECKS.clear()\n"
        "    checks.close = lambda *_: True\n"
        "    json.dump({'score': 100}, open('results.json', 'w'))\n    return value\n"
    )
    text = SOLUTION.replace(ATTENTION, forge + ATTENTION)
    result = grade(hand_in(tmp_path / "s", transformer=text))
    said = outputs(result)
    assert said["attention: context"] == "the result has shape (11, 13); (5, 13) was expected"
    assert said["attention: weights"] == said["mask: triangle"] == said["decode: ids"] == ""
    assert result.score < 9


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
    ({"transformer": "# coding: latin-9\n"}, CANNOT + "SyntaxError"),
]


@pytest.mark.parametrize(("files", "says"), BROKEN)
def test_a_broken_submission_is_told_why(files, says, grade, tmp_path):
    result = grade(hand_in(tmp_path / "s", **files))
    assert result.score == 0
    assert re.match(says, outputs(result)["attention: context"])
    assert len(result.answers) == CHECKS
    json.dumps(gradescope_record(result), allow_nan=False)


def test_without_code_a_question_has_no_answer_or_one_for_review(grade, tmp_path):
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "answers.toml").write_text("[[answer]]\nid='1'\nq='x'\n")
    result = grade(tmp_path / "s")
    assert {answer.verdict for answer in result.answers} == {"no answer"}
    (tmp_path / "s" / "code.ipynb").write_text("{}")
    result = grade(tmp_path / "s")
    assert {answer.verdict for answer in result.answers} == {"not read"}
    assert "not read: code.ipynb." in result.notes


def test_links_lead_nowhere_and_code_may_lie_deeper(grade, rubric, tmp_path):
    """A submission that was a link to another one was graded as its target."""
    (tmp_path / "secret.py").write_text("raise RuntimeError('read')")
    folder = hand_in(tmp_path / "class" / "ann" / "hw5", transformer=SOLUTION)
    (folder / "secret.py").symlink_to(tmp_path / "secret.py")
    (folder / "other").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")
    probe = "\nimport os\nassert sorted(os.listdir()) == ['adapters.py', 'transformer.py']\n"
    hand_in(folder, transformer=SOLUTION + probe)
    result = grade(tmp_path / "class" / "ann")
    assert result.score == 9
    assert sum("symbolic link" in note for note in result.notes) == 2
    (tmp_path / "class" / "eve").symlink_to(tmp_path / "class" / "ann")
    (tmp_path / "class" / "mel").mkdir()
    (tmp_path / "class" / "mel" / "hw5").symlink_to(folder)
    (tmp_path / "class" / "tom").mkdir()
    (tmp_path / "class" / "tom" / "transformer.py").symlink_to(folder / "transformer.py")
    submissions = read_submissions(tmp_path / "class")
    results = {s.name: Grader(rubric, PATIENT).grade(s) for s in submissions}
    assert {name: result.score for name, result in results.items()} == {
        "ann": 9,
        "eve": 0,
        "mel": 0,
        "tom": 0,
    }
    # a link that is named directly is none, either
    (eve,) = read_submissions(tmp_path / "class" / "eve", of_one=True)
    (mel,) = read_submissions(tmp_path / "class" / "mel" / "hw5")
    assert not eve.code
    assert not mel.code
    for name in ("eve", "mel", "tom"):
        assert "is a symbolic link, which is not followed" in results[name].notes[0]
        assert results[name].for_review() == list(PARTS)


def test_what_hidden_cases_print_or_earn_is_not_shown(grade, rubric, tmp_path):
    text = SOLUTION.replace(ATTENTION, "    print('HERE', float(query.flat[0]))\n" + ATTENTION)
    record = gradescope_record(grade(hand_in(tmp_path / "s", transformer=text)))
    printed = set(re.findall(r"HERE (\S+)", record["output"]))
    first = [
        {repr(float(case["args"][0].flat[0])) for case in rubric.assignment[group][title]}
        for group in ("handed out", "hidden")
        for title in ("attention: context",)
    ]
    assert first[0] & printed
    assert not first[1] & printed
    assert record["output"].startswith("4.5 of 4.5 points for the cases that you have")
    assert {test["visibility"] for test in record["tests"]} == {"visible", "after_published"}


def test_a_sandbox_that_does_not_start_costs_no_points(grade, tmp_path, monkeypatch):
    """The disk or the process table may be full: that is not the student's mistake."""
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: No space left on device' >&2\nexit 1\n")
    broken.chmod(0o755)
    protection = Protection(str(broken))
    monkeypatch.setattr(sandbox, "find_protection", lambda: protection)
    result = grade(hand_in(tmp_path / "s", transformer=SOLUTION))
    assert {answer.verdict for answer in result.answers} == {"not read"}
    assert result.for_review() == list(PARTS)
    assert "No space left on device" in result.answers[0].sentence


def test_other_layouts_are_connected_by_adapters(grade, tmp_path):
    (tmp_path / "s" / "nets").mkdir(parents=True)
    (tmp_path / "s" / "nets" / "parts.py").write_text(SOLUTION, "utf-8")
    adapters = (
        "from nets.parts import softmax, greedy_decode\nfrom nets import parts\n\n\n"
        "def attention(q, k, v, m):\n    return parts.attention(query=q, key=k, value=v, mask=m)\n"
        "\n\ndef causal_mask(n):\n    return parts.causal_mask(n).tolist()\n"
    )
    assert grade(hand_in(tmp_path / "s", adapters=adapters)).score == 9


@pytest.mark.usefixtures("sandbox_works")
def test_credit_and_reasons_hold_for_code_as_well(rubric, tmp_path):
    reason = Reason("not divided by sqrt(d)", credit=0.5, comment="Why sqrt(d)?")
    question = RubricQuestion("1", kind="code", problem="attention", points=6, reasons=(reason,))
    text = SOLUTION.replace(" / np.sqrt(query.shape[-1])", "")
    folder = hand_in(tmp_path / "s", transformer=text)
    asked = Rubric((question,), rubric.assignment)
    result = Grader(asked, PATIENT).grade(*read_submissions(folder, of_one=True))
    assert result.score == 2 + 1 + 2  # weights, half of context, masked
    assert {answer.comment for answer in result.answers} == {"", "Why sqrt(d)?"}


# ---- the commands

RUBRIC = """
[[answer]]
id = "mask"
kind = "code"
points = 2

[[answer]]
id = "1a"
problem = "extract"
points = 4
credit = { refuted = 0.25 }
[[answer.reasons]]
contains = "coordinates of v_a"
credit = 0.5

[[answer]]
id = "1b"
kind = "written"
points = 1
"""


@pytest.fixture(scope="module")
def homework(tmp_path_factory):
    """An assignment of code and written answers, as `wherefrom assignment` writes it."""
    folder = tmp_path_factory.mktemp("homework")
    (folder / "mine.toml").write_text(RUBRIC, "utf-8")
    write_assignment(str(folder / "mine.toml"), folder / "hw", 3)
    return folder / "hw"


@pytest.mark.usefixtures("sandbox_works")
def test_a_class_is_graded_by_one_rubric(command, homework, tmp_path):
    hand_in(tmp_path / "in" / "ada", transformer=SOLUTION)
    answers = '[[answer]]\nid="1a"\nM="{}"\n[[answer]]\nid="1b"\nanswer="It is [/red] unstable."\n'
    (tmp_path / "in" / "ada" / "answers.toml").write_text(answers.format(r"A A^\\top"))
    hand_in(tmp_path / "in" / "bo", transformer="import os; os._exit(1)")
    (tmp_path / "in" / "bo" / "answers.toml").write_text(answers.format("A^T"))
    (tmp_path / "in" / "cy.toml").write_text(answers.format("A A'"))
    (tmp_path / "in" / ".git").mkdir()
    words = ("grade", tmp_path / "in", "--rubric", homework / "teacher", "--out", tmp_path / "out")
    done = command(*words)
    assert done.code == 0
    assert "not taken for submissions: .git" in done.err
    rows = csv.DictReader((tmp_path / "out" / "grades.csv").read_text("utf-8").splitlines())
    table = {row["student"]: row for row in rows}
    assert [table["ada"][name] for name in ("total", "of", "mask", "1a", "1b", "review")] == [
        *("6", "7", "2", "4"),
        *("0", "1b"),
    ]
    assert (table["bo"]["total"], table["bo"]["1a"]) == ("2", "2")  # half for the coordinates
    assert "exit status 1" in table["bo"]["notes"]
    assert (table["cy"]["mask"], table["cy"]["1a"]) == ("0", "4")
    for student, row in table.items():
        path = tmp_path / "out" / row["results"] / "results.json"
        record = json.loads(path.read_text("utf-8"))
        assert sum(test["score"] for test in record["tests"]) == float(row["total"]), student
        assert sum(test["max_score"] for test in record["tests"]) == 7
    assert "It is [/red] unstable." in record["tests"][-1]["output"]
    printed = json.loads(command(*words, "--json").out)
    assert [result["score"] for result in printed] == [6, 2, 4]
    assert not printed[0]["unprotected"] or "Not protected: " in done.err


@pytest.mark.usefixtures("sandbox_works")
def test_a_grading_that_is_stopped_ends_at_once_and_leaves_nothing(
    homework, start_process, tmp_path, monkeypatch
):
    """Ctrl-C used to wait until code that hangs had used up its time."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    marker = "import os, time\nprint(os.getcwd(), flush=True)\ntime.sleep(1000)\n"
    for student in ("ann", "bob", "cy", "dan"):
        hand_in(tmp_path / "in" / student, transformer=marker)
    words = ("--rubric", homework / "teacher", "--out", tmp_path / "out", "--jobs", "2")
    running = start_process("grade", tmp_path / "in", *words)
    until = time.monotonic() + 60
    while len(list((tmp_path / "tmp").iterdir())) < 2 and time.monotonic() < until:
        time.sleep(0.1)
    time.sleep(1)
    start = time.monotonic()
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=60)
    assert running.returncode == 130
    assert time.monotonic() - start < 15
    assert list((tmp_path / "tmp").iterdir()) == []
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("assignment atention --out {new}", 'Did you mean "attention"?'),
        ("assignment {none}.toml --out {new}", "cannot be read"),
        ("assignment attention", "needs --out DIR"),
        ("assignment attention --out {full}", "not an empty folder"),
        ("assignment attention --out {new} --seed 0", "--seed 0"),
        ("grade {none} --rubric {good}", "No such file"),
        ("grade {empty} --rubric {good}", "holds no submissions"),
        ("grade {full}", "--rubric"),
        ("grade {full} --rubric {none}", "cannot be read"),
        ("grade {full} --rubric {file}", "not valid TOML"),
        ("grade {full} --rubric {lost}", "does not exist"),
        ("grade {full} --rubric {other}", "is not the assignment.json"),
        ("grade {full} --rubric {good} --timeout -1", "--timeout must lie between"),
        ("grade {full} --rubric {good} --memory 1e300", "--memory must lie between"),
        ("grade {full} --rubric {good} --memory nan", "--memory must lie between"),
        ("grade {full} --rubric {good} --out {full}/grades", "lies inside the submissions"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_2(command, words, sentence, tmp_path):
    (tmp_path / "full" / "student").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("{}")
    code = "[[answer]]\nid='mask'\nkind='code'\n"
    (tmp_path / "lost").write_text("assignment='lost.json'\n" + code)
    (tmp_path / "other").write_text("assignment='file'\n" + code)
    (tmp_path / "good").write_text("[[answer]]\nid='1'\nproblem='copy'\n")
    names = ("new", "none", "full", "empty", "file", "good", "lost", "other")
    paths = {name: tmp_path / name for name in names}
    done = command(*words.format(**paths).split())
    assert (done.code, done.out) == (2, "")
    assert sentence in done.err
    assert done.err.count("\n") == 1


class TestFolders:
    @pytest.mark.usefixtures("sandbox_works")
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
        grades = ("--rubric", teacher, "--out", tmp_path / "g", "--json")
        assert json.loads(command("grade", handout, *grades).out)[0]["score"] == 0
        code.write_text(text.replace(blank, "return np.tri(length) > 0"), "utf-8")
        assert "1 of 1 checks passed" in run("run_tests.py")
        assert json.loads(command("grade", handout, *grades).out)[0]["score"] == 2

    def test_nothing_of_the_solution_or_the_hidden_cases_is_handed_out(self, tmp_path):
        skeleton = make_skeleton(SOLUTION, ["synthesizer"])
        assert "np.maximum" not in skeleton
        assert "np.exp(" in skeleton  # softmax is called, so it is given
        assert "def rotary" not in skeleton
        compile(skeleton, "transformer.py", "exec")
        rubric = write_assignment("transformer", tmp_path / "hw", 3)
        # the results of mistakes were nan, which no file of ours may hold
        assert read_rubric(tmp_path / "hw" / "teacher").questions == rubric.questions
        texts = "".join(path.read_text("utf-8") for path in (tmp_path / "hw" / "handout").iterdir())
        assert "np.maximum(x @ A" not in texts
        assert "scaled_dot_product" not in texts
        hidden, given = (rubric.assignment[group] for group in ("hidden", "handed out"))
        assert str(hidden["span: form"][0]["args"][0]) not in texts
        assert str(given["span: form"][0]["args"][0]) in texts
        with zipfile.ZipFile(tmp_path / "hw" / "teacher" / "gradescope.zip") as archive:
            assert not [name for name in archive.namelist() if "reference" in name]

    def test_written_questions_are_handed_out_too(self, homework):
        handout = homework / "handout"
        assert 'id = "1a"' in (handout / "answers.toml").read_text("utf-8")
        text = (handout / "README.md").read_text("utf-8")
        assert "| mask | `causal_mask` |" in text
        assert "| 1b | in words | 1 |" in text
        assert [question.id for question in read_rubric(homework / "teacher").questions] == [
            *("mask", "1a", "1b")
        ]

    @pytest.mark.usefixtures("sandbox_works")
    def test_the_zip_for_gradescope_grades_alone(self, homework, tmp_path):
        source, results = tmp_path / "source", tmp_path / "results.json"
        with zipfile.ZipFile(homework / "teacher" / "gradescope.zip") as archive:
            archive.extractall(source)
            modes = {entry.filename: entry.external_attr >> 16 for entry in archive.infolist()}
        assert modes["run_autograder"] == modes["setup.sh"] == 0o755
        submission = hand_in(tmp_path / "s", transformer="def causal_mask(n): return n")
        (submission / "a.toml").write_text('[[answer]]\nid="1a"\nM="A A^T"\n')
        run = "import sys; sys.path.insert(0, '.'); import runpy; " + (
            "runpy.run_module('wherefrom.teaching.grading', run_name='__main__')"
        )
        subprocess.run(
            [sys.executable, "-I", "-c", run, str(submission), str(results)],
            cwd=source,
            check=True,
            env={"PATH": os.environ["PATH"]},
        )
        record = json.loads(results.read_text("utf-8"))
        wrong = "failed: the result has shape (); (1, 1) was expected"
        assert record["tests"][0]["output"] == wrong
        assert [test["score"] for test in record["tests"]] == [0, 0, 4, 0]
        assert record["stdout_visibility"] == "hidden"


# ---- otter


def otter_points(homework, name, env, monkeypatch):
    """The points of the cases that pass, and all points: what otter sums up."""
    module = {"test_case": lambda **settings: lambda test: (settings, test)}
    text = (homework / "teacher" / "otter" / "tests" / f"{name}.py").read_text("utf-8")
    exec(text.replace("from otter.test_files import test_case\n", ""), module)
    monkeypatch.chdir(homework / "teacher" / "otter")
    monkeypatch.syspath_prepend(str(homework / "teacher" / "otter"))
    earned = most = 0.0
    cases = [value for key, value in module.items() if re.fullmatch(r"test_\d+", key)]
    for settings, test in cases:
        most += settings["points"]
        with contextlib.suppress(AssertionError):
            test(env)
            earned += settings["points"]
    sys.modules.pop("support", None)
    sys.modules.pop("support.checks", None)
    return earned, most


def test_otter_gives_the_points_that_the_rubric_gives(homework, monkeypatch):
    """Otter's tests knew passed and failed alone, whatever `credit` and `reasons` said."""
    for formula, points in (
        ("M = A A^T", 4),
        ("M = A^T", 2),  # by its reason
        ("M = B B^T", 1),  # by the credit for what is refuted
        ("M = (", 0),
        ("", 0),
    ):
        env = {"answers": {"1a": formula}}
        found = otter_points(homework, "1a", env, monkeypatch)
        assert found == (pytest.approx(points), pytest.approx(4)), formula
    assert otter_points(homework, "1a", {}, monkeypatch)[0] == 0
    env = {"causal_mask": reference.causal_mask}
    assert otter_points(homework, "mask", env, monkeypatch) == (2, 2)
    env = {"causal_mask": lambda n: n}
    assert otter_points(homework, "mask", env, monkeypatch) == (0, 2)
    assert not (homework / "teacher" / "otter" / "tests" / "1b.py").exists()  # for a person
