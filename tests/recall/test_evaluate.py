"""Recall is exact match, printed as the course prints it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wherefrom.recall.evaluate import Recall, score


def test_recall_prints_as_the_course_prints_it():
    assert str(Recall(72, 500)) == "Correct: 72 out of 500: 14.4%"
    assert str(Recall(25, 500)) == "Correct: 25 out of 500: 5%"
    assert str(Recall(500, 500)) == "Correct: 500 out of 500: 100%"
    assert str(Recall(0, 500)) == "Correct: 0 out of 500: 0%"
    assert str(Recall(1, 3)) == "Correct: 1 out of 3: 33.33%"


def test_no_questions_are_no_division_by_zero():
    assert Recall(0, 0).share == 0
    assert score([], []) == Recall(0, 0)


def test_recall_as_a_record():
    assert Recall(72, 500).to_dict() == {"correct": 72, "total": 500, "recall": 0.144}


@pytest.mark.parametrize(
    ("said", "right", "correct"),
    [
        ("Oslo", "Oslo", 1),
        (" Oslo ", "Oslo", 1),
        ("oslo", "Oslo", 0),
        ("Oslo, Norway", "Oslo", 0),
        ("New  York", "New York", 0),
        ("", "Oslo", 0),
    ],
)
def test_an_answer_counts_when_it_matches_exactly_blanks_at_the_ends_aside(said, right, correct):
    assert score([said], [right]).correct == correct


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("ab"))))
def test_every_pair_is_counted_in_its_order(pairs):
    recall = score([said for said, _ in pairs], [right for _, right in pairs])
    assert recall == Recall(sum(said == right for said, right in pairs), len(pairs))
