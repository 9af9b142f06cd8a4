"""A file of answers: read with care, graded one by one, reported in Gradescope's own form."""

from __future__ import annotations

import csv
import io
import os
import re
import time
from dataclasses import replace

import pytest

from wherefrom.checker import check, grading
from wherefrom.checker.grading import (
    file_name,
    grade,
    grade_class,
    gradescope,
    read_answers,
    read_submissions,
    table_of_totals,
)
from wherefrom.errors import UserError

ASKED = "[[answer]]\nid='1'\nproblem='copy'\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no"),
        ("[[answers]]\nid='x'", "only title"),
        ("[[answer]\n", "not valid TOML"),
        ("[[answer]]\nproblem='copy'", "id is wrong"),
        ("[[answer]]\nid='1'", "needs problem"),
        ("[[answer]]\nid='1'\nproblem='coppy'", 'Did you mean "copy"'),
        (ASKED + "points=nan", "points is wrong"),
        (ASKED + "q=3", "formula in quotes"),
        (ASKED * 2, "two answers"),
        (ASKED * 501, "500 are allowed"),
        ("#" * 1_000_001, "too long"),
    ],
)
def test_a_file_that_is_wrong_is_told_so_in_a_sentence(text, words):
    with pytest.raises(UserError, match=re.escape(words)):
        read_answers(text)


def test_a_person_is_asked_where_the_checker_is_not_sure(monkeypatch):
    unsure = replace(check("copy", ["q=beta*k_j"]), verdict="inconclusive")
    monkeypatch.setattr(grading, "check", lambda *a, **k: unsure)
    record = gradescope(grade(read_answers(ASKED + "q='beta*k_j'")))
    assert "A person should look at: 1." in record["output"]
    assert [test["score"] for test in record["tests"]] == [0.0]
    assert "score" not in record  # a total at the top would override the sum of the tests


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


def test_a_class_of_two_hundred_with_broken_and_hostile_submissions(tmp_path):
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

    def points(student):
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


def test_the_folder_of_one_student(tmp_path):
    rubric = read_answers(COURSE)
    (nothing,) = read_submissions(tmp_path, rubric, of_one=True)
    assert "nothing was handed in" in nothing.mistakes[0]
    (tmp_path / "answers.toml").write_text(GOOD, "utf-8")
    (tmp_path / "notes.txt").write_text("I found 1b hard.", "utf-8")
    (tmp_path / "more.toml").write_text('[[answer]]\nid = "1a"\nM = "B"\n', "utf-8")
    (graded,) = grade_class(read_submissions(tmp_path, rubric, of_one=True), rubric).values()
    assert [item.score for item in graded[0]] == [3.0, 4.0, 0.0]
    assert "two answers" in graded[1][0]


def test_answers_in_a_table():
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
    (bare,) = grading._read_csv("student,problem,answer\nann,average,q=1\n", "", {})
    assert [(a.id, a.problem) for a in bare.answers] == [("average", "average")]
