"""Rewordings ask the same of the same person in other letters."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from wherefrom.provenance.signals.names import name_forms, reword


def test_punctuation_case_spaces_and_templates():
    found = reword("Where was Ann Lee born?", "Ann Lee", ["Birthplace of {subject}?"])
    assert found == [
        "Where was Ann Lee born",
        "Where was Ann Lee born ?",
        "where was Ann Lee born?",
        "Where  was Ann Lee born?",
        "Birthplace of Ann Lee?",
    ]


def test_other_forms_of_a_name():
    assert name_forms("John F. Kennedy") == ["John Kennedy"]
    assert name_forms("José Núñez") == ["Jose Nunez"]
    assert name_forms('Ann "Nan" Lee') == ["Ann Lee"]
    assert name_forms("Cleo van Orr") == []
    assert name_forms("Plato") == []
    assert "Where was Jose Nunez born?" in reword("Where was José Núñez born?", "José Núñez")


def test_a_question_that_starts_with_the_name_keeps_its_case():
    assert "ann Lee was born where?" not in reword("Ann Lee was born where?", "Ann Lee")


@given(st.text(), st.text())
def test_no_rewording_is_empty_repeated_or_the_question(question, subject):
    found = reword(question, subject)
    assert question not in found
    assert len(found) == len(set(found))
    assert all(text.strip() for text in found)
