"""Recall is exact match, printed as the course prints it."""

from __future__ import annotations

import pytest

from wherefrom.recall.evaluate import Recall, score


def test_recall_prints_as_the_course_prints_it_and_is_a_record():
    for correct, total, share in (
        (72, 500, "14.4"),
        (25, 500, "5"),
        (9, 9, "100"),
        (1, 3, "33.33"),
    ):
        printed = f"Correct: {correct} out of {total}: {share}%"
        assert str(Recall(correct, total)) == printed
    assert Recall(72, 500).to_dict() == {"correct": 72, "total": 500, "recall": 0.144}
    assert score([], []) == Recall(0, 0)
    assert Recall(0, 0).share == 0


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
    assert score(["x", said, "y"], ["x", right, "x"]) == Recall(1 + correct, 3)
