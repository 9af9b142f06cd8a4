"""A file of answers: read with care, graded one by one, reported in Gradescope's own form."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest

from wherefrom.attention.checker import grading
from wherefrom.attention.checker.check import check
from wherefrom.attention.checker.grading import (
    Submission,
    apply_rubric,
    file_name,
    grade,
    grade_class,
    gradescope,
    otter_tests,
    read_answers,
    read_submissions,
    table_of_totals,
)
from wherefrom.errors import UserError

FILE = """
title = "Homework 5"

[[answer]]
id = "1b"
problem = "average"
points = 4
q = "beta*(k_a+k_b)"

[[answer]]
id = "1a"
problem = "extract"
points = 3
M = "A.T"

[[answer]]
id = "1d"
problem = "two-heads"
points = 2
q1 = "beta*k_a"
q2 = "beta*k_b"
"""

RUBRIC = """
[[answer]]
id = "1b"
problem = "average"
points = 5
tolerance = 0.001
[[answer]]
id = "2"
problem = "copy"
points = 1
"""


def handed_in(text: str) -> Submission:
    return Submission("", tuple(read_answers(text)))


def test_right_wrong_and_not_writable() -> None:
    graded = grade(read_answers(FILE))
    assert [(item.answer.id, item.word, item.score) for item in graded] == [
        ("1b", "proved", 4.0),
        ("1a", "refuted", 0.0),
        ("1d", "not writable", 0.0),
    ]
    assert "write mu_a" in graded[2].sentence
    records = [item.to_dict() for item in graded]
    assert json.loads(json.dumps(records, allow_nan=False)) == records
    assert records[0]["details"]["verdict"] == "proved"
    assert records[2]["details"] is None


def test_gradescope_gets_what_its_format_asks_for() -> None:
    record = gradescope(grade(read_answers(FILE)))
    assert record["output"] == "4 of 9 points. A person should look at: 1d."
    tests = record["tests"]
    assert [test["name"] for test in tests] == [
        "1b (average)",
        "1a (extract)",
        "1d (two-heads)",
    ]
    for test in tests:
        assert (type(test["score"]), type(test["max_score"])) == (float, float)
        assert isinstance(test["output"], str)
        assert test["visibility"] == "visible"
    assert [test["status"] for test in tests] == ["passed", "failed", "failed"]
    assert "counterexample: with d = 2" in tests[1]["output"]
    assert "score" not in record  # a total at the top would override the sum of the tests


def test_a_student_cannot_set_the_points() -> None:
    greedy = '[[answer]]\nid = "1b"\nproblem = "copy"\npoints = 1000\nq = "beta*(k_a+k_b)"\n'
    graded = grade(apply_rubric(handed_in(greedy), read_answers(RUBRIC)).answers)
    assert [(i.answer.problem, i.word, i.score, i.answer.points) for i in graded] == [
        ("average", "proved", 5.0, 5.0),
        ("copy", "no answer", 0.0, 1.0),
    ]
    assert graded[0].answer.tolerance == 0.001


def test_several_students_in_one_file() -> None:
    text = "".join(
        f'[[answer]]\nid = "2"\nstudent = "{who}"\nproblem = "copy"\nq = "{q}"\n'
        for who, q in (("Ada", "beta*k_j"), ("Bo", "k_j"))
    )
    graded = grade(read_answers(text))
    assert [(i.answer.student, i.score) for i in graded] == [("Ada", 1.0), ("Bo", 0.0)]
    assert gradescope(graded)["tests"][0]["name"] == "Ada: 2 (copy)"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no"),
        ("[[answers]]\nid='x'", "only title"),
        ("[[answer]\n", "not valid TOML"),
        ("[[answer]]\nproblem='copy'", "id is wrong"),
        ("[[answer]]\nid='1'", "needs problem"),
        ("[[answer]]\nid='1'\nproblem='coppy'", 'Did you mean "copy"'),
        ("[[answer]]\nid='1'\nproblem='copy'\npoints=-1", "points is wrong"),
        ("[[answer]]\nid='1'\nproblem='copy'\npoints=nan", "points is wrong"),
        ("[[answer]]\nid='1'\nproblem='copy'\npoints=true", "points is wrong"),
        ("[[answer]]\nid='1'\nproblem='copy'\ntolerance='x'", "tolerance is wrong"),
        ("[[answer]]\nid='1'\nproblem='copy'\nq=3", "formula in quotes"),
        ("[[answer]]\nid='1'\nproblem='copy'\n" * 2, "two answers"),
        ("[[answer]]\nid='1'\nproblem='copy'\n" * 501, "500 are allowed"),
        ("#" * 1_000_001, "too long"),
    ],
)
def test_a_file_that_is_wrong_is_told_so_in_a_sentence(text: str, words: str) -> None:
    with pytest.raises(UserError, match=re.escape(words)):
        read_answers(text, source="homework.toml")


def test_a_person_is_asked_where_the_checker_is_not_sure(monkeypatch: pytest.MonkeyPatch) -> None:
    unsure = replace(check("copy", ["q=beta*k_j"]), verdict="inconclusive")
    monkeypatch.setattr(grading, "check", lambda *a, **k: unsure)
    record = gradescope(grade(read_answers(FILE)))
    assert "A person should look at: 1b, 1a, 1d." in record["output"]
    assert [test["score"] for test in record["tests"]] == [0.0, 0.0, 0.0]


COURSE = """
[[answer]]
id = "1a"
problem = "extract"
points = 3
credit = { refuted = 0.25 }
reasons = [{ contains = "coordinates of v_a", credit = 0.5, comment = "Go on to d dimensions." }]
[[answer]]
id = "1b"
problem = "average"
points = 4
reasons = [{ contains = "nothing in the formula grows", credit = 0.5, comment = "How large?" }]
[[answer]]
id = "1c"
kind = "written"
problem = "stretched-average"
show = ["q=beta*(mu_a+mu_b)"]
points = 2
"""
GOOD = """
[[answer]]
id = "1a"
M = "A A^\\top"
[[answer]]
id = "1b"
answer = "$q = \\beta(k_a + k_b)$, where $0 \\ll \\beta$"
[[answer]]
id = "1c"
answer = "c varies between v_a and v_b from sample to sample."
"""
BROKEN = {
    "no-quote": GOOD.replace('M = "A A', "M = A A"),
    "bad-utf8": GOOD.encode() + b"\xff\xfe",
    "unknown-id": GOOD + '[[answer]]\nid = "7"\nM = "A"\n',
    "own-points": GOOD.replace('id = "1a"', 'id = "1a"\npoints = 1000'),
    "twice": GOOD + '[[answer]]\nid = "1a"\nM = "B"\n',
    "empty": "",
    "prose-only": "I think that the answer is A A^T.",
    "no-id": GOOD.replace('id = "1a"', ""),
    "not-a-string": GOOD.replace('"A A^\\top"', "7"),
    "half-a-file": GOOD[:60],
}
HOSTILE = {
    "../../escape": GOOD.replace("A A^\\top", "__import__('os').system('id')"),
    "deep": "x = " + "[" * 5000,
    "huge": GOOD + "#" * 1_100_000,
}


def test_a_class_of_two_hundred_with_broken_and_hostile_submissions(tmp_path: Path) -> None:
    wrong = GOOD.replace("A A^\\top", "A^T").replace("\\beta(k_a", "(k_a").replace("where", ", n")
    wrong = wrong.replace(", n $0 \\ll \\beta$", "")
    for i in range(187):
        (tmp_path / f"student{i:03}.toml").write_text(wrong if i % 3 else GOOD, "utf-8")
    for name, text in (BROKEN | HOSTILE).items():
        content = text if isinstance(text, bytes) else text.encode()
        (tmp_path / f"{file_name(name)}.toml").write_bytes(content)
    os.symlink("/etc/passwd", tmp_path / "link.toml")
    rubric = read_answers(COURSE)
    start = time.process_time()
    graded = grade_class(read_submissions(tmp_path, rubric), rubric)
    assert time.process_time() - start < 20
    assert len(graded) == 201

    def points(student: str) -> list[float]:
        return [item.score for item in graded[student][0]]

    assert points("student000") == [3.0, 4.0, 0.0]
    assert points("student001") == [1.5, 2.0, 0.0]  # partial credit by reason
    assert [item.comment for item in graded["student001"][0]][:2] == [
        "Go on to d dimensions.",
        "How large?",
    ]
    written = graded["student000"][0][2]
    assert (written.word, written.review) == ("written", True)
    assert "c varies" in written.answer.formulas[0]
    assert "samples" in written.sentence  # the checker's figures beside the prose
    assert points("no-quote") == [0.0, 4.0, 0.0]  # the mistake costs its own answer
    assert "not valid TOML" in graded["no-quote"][1][0]
    assert points("own-points") == points("unknown-id") == points("twice") == [3.0, 4.0, 0.0]
    assert 'does not ask for "7"' in graded["unknown-id"][1][0]
    assert "two answers" in graded["twice"][1][0]
    for name in ("bad-utf8", "empty", "prose-only", "deep", "huge", "link"):
        items, mistakes = graded[name]
        assert sum(item.score for item in items) == 0
        assert mistakes, name
        assert gradescope(items, mistakes)["output"].startswith("0 of 9 points.")
    assert points("no-id") == [0.0, 4.0, 0.0]
    assert points("not-a-string") == [0.0, 4.0, 0.0]
    assert points(file_name("../../escape")) == [0.0, 4.0, 0.0]
    assert points("half-a-file")[1:] == [0.0, 0.0]
    rows = list(csv.DictReader(io.StringIO(table_of_totals(graded))))
    assert {row["student"]: row["total"] for row in rows}["student001"] == "3.5"
    assert {row["student"]: row["review"] for row in rows}["student000"] == "1c"


def test_the_folder_of_one_student(tmp_path: Path) -> None:
    rubric = read_answers(COURSE)
    (nothing,) = read_submissions(tmp_path, rubric, of_one=True)
    assert "nothing was handed in" in nothing.mistakes[0]
    (tmp_path / "answers.toml").write_text(GOOD, "utf-8")
    (tmp_path / "notes.txt").write_text("I found 1b hard.", "utf-8")
    (tmp_path / "more.toml").write_text('[[answer]]\nid = "1a"\nM = "B"\n', "utf-8")
    (graded,) = grade_class(read_submissions(tmp_path, rubric, of_one=True), rubric).values()
    assert [item.score for item in graded[0]] == [3.0, 4.0, 0.0]
    assert "two answers" in graded[1][0]


def test_answers_in_a_table() -> None:
    rubric = {answer.id: answer for answer in read_answers(COURSE)}
    for text in (
        "student,id,answer\nann,1b,q = βk_a + βk_b\nann,9,x\nbob,1a,A A'\n",
        "student,1b,1a,9\nann,q = βk_a + βk_b,,x\nbob,,A A',\n",
    ):
        found = {s.student: s for s in grading._read_csv(text, "", rubric)}
        assert [(a.id, a.formulas) for a in found["ann"].answers] == [("1b", ("q = βk_a + βk_b",))]
        assert 'no question "9"' in found["ann"].mistakes[0]
        graded = grade_class(list(found.values()), list(rubric.values()))
        assert [item.word for item in graded["bob"][0]] == ["proved", "no answer", "no answer"]


def test_a_spreadsheet_runs_nothing() -> None:
    answer = replace(read_answers(COURSE)[0], id="=1+1")
    text = table_of_totals({"@cmd": (grade([answer]), ["-x"])})
    assert text.splitlines()[1].startswith("'@cmd,")
    assert text.splitlines()[1].endswith(",'-x")


def test_otter_gets_a_test_for_each_question() -> None:
    tests = otter_tests(read_answers(COURSE))
    assert list(tests) == ["1a.py", "1b.py"]
    space: dict[str, dict] = {}
    exec(tests["1b.py"], space)  # our own text
    assert space["test"]["points"] == 4.0
    code = space["test"]["suites"][0]["cases"][0]["code"]
    assert "wherefrom.check('average', answers['1b']).passed" in code
