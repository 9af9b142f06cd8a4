"""A file of answers: read with care, graded one by one, reported in Gradescope's own form."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from wherefrom.attention.checker import grading
from wherefrom.attention.checker.check import check
from wherefrom.attention.checker.grading import apply_rubric, grade, gradescope, read_answers
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
    assert record["output"] == "4 of 9 points."
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
    graded = grade(apply_rubric(read_answers(greedy), read_answers(RUBRIC)))
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
        ("answer = 3", "has no"),
        ("[[answers]]\nid='x'", "only title and"),
        ("[[answer]\n", "not valid TOML"),
        ("[[answer]]\nproblem='copy'", 'needs id = "..."'),
        ("[[answer]]\nid='1'", "needs problem"),
        ("[[answer]]\nid='1'\nproblem='coppy'", 'Did you mean "copy"'),
        ("[[answer]]\nid='1'\nproblem='copy'\npoints=-1", "points must be"),
        ("[[answer]]\nid='1'\nproblem='copy'\npoints=nan", "points must be"),
        ("[[answer]]\nid='1'\nproblem='copy'\npoints=true", "points must be"),
        ("[[answer]]\nid='1'\nproblem='copy'\ntolerance='x'", "tolerance must be"),
        ("[[answer]]\nid='1'\nproblem='copy'\nq=3", "formula in quotes"),
        ("[[answer]]\nid='1'\nproblem='copy'\n" * 2, "two answers"),
        ("[[answer]]\nid='1'\nproblem='copy'\n" * 501, "500 are allowed"),
        ("#" * 1_000_001, "too long"),
    ],
)
def test_a_file_that_is_wrong_is_told_so_in_a_sentence(text: str, words: str) -> None:
    with pytest.raises(UserError, match=re.escape(words)):
        read_answers(text, source="homework.toml")


def test_an_answer_outside_the_rubric_is_an_error() -> None:
    extra = '[[answer]]\nid = "9"\nproblem = "copy"\nq = "beta*k_j"\n'
    with pytest.raises(UserError, match='does not ask for "9"'):
        apply_rubric(read_answers(extra), read_answers(RUBRIC))


def test_a_person_is_asked_where_the_checker_is_not_sure(monkeypatch: pytest.MonkeyPatch) -> None:
    unsure = replace(check("copy", ["q=beta*k_j"]), verdict="inconclusive")
    monkeypatch.setattr(grading, "check", lambda *a, **k: unsure)
    record = gradescope(grade(read_answers(FILE)))
    assert "A person should look at: 1b, 1a, 1d." in record["output"]
    assert [test["score"] for test in record["tests"]] == [0.0, 0.0, 0.0]
