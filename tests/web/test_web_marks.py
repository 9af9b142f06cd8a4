"""Names and places are marked where the evidence sees them, and no character is lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from wherefrom.report.sections import mark


def marked(text: str, subject: str, answer: str) -> list[tuple[str, str]]:
    return [(p["kind"], p["text"]) for p in mark(text, subject, answer) if p["kind"]]


def test_the_name_the_family_name_and_the_place() -> None:
    text = "Ann Moe. Moe was born in New  York, as moe is not."
    assert marked(text, "Ann Moe", "New York") == [
        ("name", "Ann Moe"), ("name", "Moe"), ("place", "New  York"),
    ]  # fmt: skip


def test_accents_and_case_make_no_difference() -> None:
    assert marked("LÉON Ødegård, Łódź", "Leon Odegard", "lodz") == [
        ("name", "LÉON Ødegård"), ("place", "Łódź"),
    ]  # fmt: skip


def test_a_word_inside_a_word_is_not_marked() -> None:
    assert marked("Romeo and Parisian", "Ann Rome", "Paris") == []


@given(st.text(), st.text(max_size=8), st.text(max_size=8))
def test_the_pieces_make_up_the_text(text: str, subject: str, answer: str) -> None:
    assert "".join(piece["text"] for piece in mark(text, subject, answer)) == text
