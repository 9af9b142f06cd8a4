"""Questions: whom each is about is read off the file, whatever it asks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wherefrom.corpus.questions import infer_template, match_template, read_questions
from wherefrom.errors import UserError

BORN = "Where was {subject} born?"


def written(folder: Path, *rows: str) -> Path:
    path = folder / "questions.tsv"
    path.write_text("".join(row + "\n" for row in rows), encoding="utf-8")
    return path


def refusal(path: Path, template: str | None = None) -> str:
    with pytest.raises(UserError) as caught:
        read_questions(path, template)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    "subjects",
    [
        ["Ann Lee", "Bo Ek"],
        ["Ann Lee", "Anna Berg"],  # share first letters
        ["Ann Lee", "Bo Dee"],  # share last letters
        ["Al", "Alan"],  # one starts the other
        ["Bo", "Jumbo"],  # one ends the other
        ["Ann Lee", "Ann Berg"],  # share a whole first name
        ["Ann Lee", "Bo Lee"],  # share a whole last name
        ["Ann Mary Lee", "Ann Mary Berg", "Ann Mary Ek"],
        ["Ann Mary Lee", "Bo Mary Lee"],
        ["Élodie Ünal", "Élise Ökal"],
        ["Ann", "Ann Lee"],  # one starts the other, by a whole word
        ["Lee", "Ann Lee"],
        ["Bo", "Bobo"],
    ],
)
def test_the_shared_wording_is_found_whatever_the_subjects_share(subjects):
    questions = [BORN.format(subject=subject) for subject in subjects]
    template = infer_template(questions, "here")
    assert template == BORN
    assert [match_template(template, question) for question in questions] == subjects


@pytest.mark.parametrize(
    "template",
    [
        "Who wrote {subject}?",
        "{subject} died in which year?",
        "Capital: {subject}",
        "In which US state does {subject}'s mother live?",
        "Which river does {subject} lie on, the Rhine or the Elbe?",
    ],
)
def test_any_relation_and_either_end_of_the_question_will_do(template):
    subjects = ["Berlin Mitte", "Köln", "Bad Ems", "Cochem"]
    questions = [template.replace("{subject}", subject) for subject in subjects]
    assert infer_template(questions, "here") == template


def test_wording_without_spaces_has_to_be_given():
    questions = ["林の出身地は？", "森田の出身地は？"]
    with pytest.raises(UserError, match="--template"):
        infer_template(questions, "here")
    assert match_template("{subject}の出身地は？", questions[1]) == "森田"


@given(
    subjects=st.lists(
        # in no name does a blank stand before punctuation, where a shared ending could be cut
        st.text("abcAB .-'é", min_size=1, max_size=12).map(
            lambda s: "Zoë" + re.sub(r" +(?=\W)", "", s.strip()) + "q"
        ),
        min_size=2,
        max_size=6,
        unique=True,
    )
)
def test_an_inferred_template_fits_every_question_and_gives_the_question_back(subjects):
    questions = [f"Who taught {subject} chess?" for subject in subjects]
    template = infer_template(questions, "here")
    for question in questions:
        found = match_template(template, question)
        assert found is not None
        assert template.replace("{subject}", found) == question


def test_one_question_alone_has_no_shared_wording_and_says_what_to_give(tmp_path):
    path = written(tmp_path, "Where was Ann Lee born?\tOslo")
    message = refusal(path)
    assert str(path) in message
    assert "--template" in message
    assert "third column" in message
    assert read_questions(path, BORN).questions[0].subject == "Ann Lee"


def test_the_same_question_twice_is_still_one_question(tmp_path):
    row = "Where was Ann Lee born?\tOslo"
    assert "--template" in refusal(written(tmp_path, row, row))


def test_questions_that_share_nothing_are_refused(tmp_path):
    assert "share no wording" in refusal(written(tmp_path, "Oslo or Rome?\tx", "Who is Bo\ty"))


def test_a_question_that_does_not_fit_the_given_template_is_named_by_line(tmp_path):
    path = written(tmp_path, "Where was Ann Lee born?\tOslo", "Who is Bo?\tLund")
    message = refusal(path, BORN)
    assert f"{path}, line 2" in message


@pytest.mark.parametrize("template", ["Where?", "{subject}", "{subject} and {subject}?", ""])
def test_a_template_without_one_slot_and_some_words_is_refused(tmp_path, template):
    assert "template" in refusal(written(tmp_path, "Where was Ann Lee born?\tOslo"), template)


def test_a_question_that_leaves_no_subject_does_not_match():
    assert match_template(BORN, "Where was born?") is None
    assert match_template(BORN, "Where was  born?") is None


def test_the_third_column_names_the_subject_and_needs_no_shared_wording(tmp_path):
    path = written(tmp_path, "Who sang?\tOslo\tAnn Lee", "Ran he?\tyes\tBo Ek")
    asked = read_questions(path)
    assert [question.subject for question in asked.questions] == ["Ann Lee", "Bo Ek"]
    assert [question.answer for question in asked.questions] == ["Oslo", "yes"]
    assert asked.template is None


def test_a_file_without_answers_is_read_and_refused_where_answers_are_needed(tmp_path):
    path = written(tmp_path, "Where was Ann Lee born?", "Where was Bo Ek born?")
    asked = read_questions(path)
    assert not asked.answered
    assert [question.answer for question in asked.questions] == [None, None]
    with pytest.raises(UserError, match=r"line 1: an answer was expected"):
        asked.require_answers()


def test_a_file_with_answers_passes_where_answers_are_needed(tmp_path):
    path = written(tmp_path, "Where was Ann Lee born?\tOslo", "Where was Bo Ek born?\tLund")
    asked = read_questions(path)
    asked.require_answers()
    assert asked.answered


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("Where was Bo Ek born?", "1 column where the first row has 2"),
        ("Where was Bo Ek born?\tLund\tBo Ek", "3 columns where the first row has 2"),
        ("Where was Bo Ek born?\tLund\tBo Ek\tmore", "4 columns"),
        ("Where was Bo Ek born?\t", "the answer is empty"),
        ("\tLund", "the question is empty"),
        ("Where was " + "o" * 2000 + " born?\tLund", "2,000"),
    ],
    ids=["short", "long", "four", "no-answer", "no-question", "endless"],
)
def test_a_ragged_row_is_refused_with_file_and_line(tmp_path, row, says):
    path = written(tmp_path, "Where was Ann Lee born?\tOslo", "", row)
    message = refusal(path)
    assert f"{path}, line 3" in message
    assert says in message


def test_windows_lines_a_bom_and_blanks_around_cells_change_nothing(tmp_path):
    path = tmp_path / "questions.tsv"
    path.write_bytes(
        b"\xef\xbb\xbfWhere was Ann Lee born? \t Oslo\r\n\r\nWhere was Bo Ek born?\tLund"
    )
    asked = read_questions(path)
    assert asked.template == BORN
    assert [(q.line, q.text, q.subject, q.answer) for q in asked.questions] == [
        (1, "Where was Ann Lee born?", "Ann Lee", "Oslo"),
        (3, "Where was Bo Ek born?", "Bo Ek", "Lund"),
    ]
