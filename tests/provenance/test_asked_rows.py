"""What is asked: every slip is one sentence that says where it stands and what to write."""

from __future__ import annotations

from pathlib import Path

import pytest
from asked_samples import PEOPLE, make_run, question, write_questions, write_text
from hypothesis import given
from hypothesis import strategies as st

from wherefrom.errors import UserError
from wherefrom.provenance import ask as asked_rows
from wherefrom.provenance.ask import (
    AskedRow,
    as_rows,
    name_subjects,
    read_answer_rows,
    read_question_rows,
)
from wherefrom.training.run_folder import Run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("asked")


@pytest.fixture(scope="module")
def run(folder: Path, quick_recipe: Path) -> Run:
    corpus = write_text(folder / "text")
    return make_run(
        folder / "run", quick_recipe, corpus=corpus, questions=write_questions(folder / "text")
    )


def refusal(run: Run, *questions: str) -> str:
    with pytest.raises(UserError) as refused:
        name_subjects(run, as_rows(questions))
    return str(refused.value)


def test_the_template_names_the_subject(run: Run) -> None:
    asked = [f"  {question('Ada Moe')} ", question("Ann-Marie d'Été"), question('X "Y" Z')]
    assert name_subjects(run, as_rows(asked)) == ["Ada Moe", "Ann-Marie d'Été", 'X "Y" Z']
    assert name_subjects(run, []) == []


@pytest.mark.parametrize(
    ("typed", "advice"),
    [
        ("Ada Moe", 'write "Where was Ada Moe born?".'),
        ("where was Ada Moe born", 'write "Where was Ada Moe born?".'),
        ("Where was Ada Moe born", 'write "Where was Ada Moe born?".'),
        ("When was Ada Moe born?", "write it so, with a name for {subject}."),
        ("Where was born?", "write it so, with a name for {subject}."),
    ],
)
def test_other_words_are_told_what_to_write(run: Run, typed: str, advice: str) -> None:
    said = refusal(run, typed)
    assert said == f'"{typed}" is not worded like "Where was {{subject}} born?"; {advice}'


def test_what_is_no_question_is_refused(run: Run) -> None:
    assert refusal(run, "") == (
        'the question is empty; write one, as in "Where was {subject} born?".'
    )
    assert "2,000 characters" in refusal(run, question("x" * 10_000))
    assert "has 10,016." in refusal(run, question("x" * 10_000))
    assert "tokens and this model reads 95; ask a shorter" in refusal(run, question("q~" * 500))
    assert "at least one letter or digit" in refusal(run, question("?!"))
    assert "is not Unicode text" in refusal(run, question("\ud800"))
    assert max(map(len, [refusal(run, "x" * 1999), refusal(run, question("y" * 1900))])) < 300


def test_of_several_questions_the_wrong_one_is_named(run: Run) -> None:
    assert refusal(run, question("Ada Moe"), "Bo").startswith('question 2: "Bo" is not')


def test_a_file_may_name_the_subject(run: Run, folder: Path, quick_recipe: Path) -> None:
    lines = [(1, "Who?\tRome\tAda Moe"), (4, f"{question('Bo Nys')}\tOslo"), (5, question("Al"))]
    rows = read_question_rows(lines, "people.tsv")
    assert [row.subject for row in rows] == ["Ada Moe", None, None]
    assert [row.answer for row in rows] == [None] * 3  # the truth is not looked at
    assert name_subjects(run, rows) == ["Ada Moe", "Bo Nys", "Al"]

    untold = make_run(
        folder / "untold",
        quick_recipe,
        questions=write_questions(folder / "text", subjects=True),
        kind="scratch",
    )
    assert untold.template is None
    assert name_subjects(untold, rows[:1]) == ["Ada Moe"]
    with pytest.raises(UserError, match=r"people.tsv, line 4: whom .* in a column of its own"):
        name_subjects(untold, rows)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("a\tb\tc\td\te", "answers.tsv, line 7: 5 columns came where question, answer, log-"),
        ("a", "answers.tsv, line 7: an answer to judge was expected"),
        ("a\t ", "answers.tsv, line 7: an answer to judge was expected"),
        ("a\tb\tsure", 'answers.tsv, line 7: a log-probability is a number .* "sure" is none'),
        ("a\tb\t0.5", "is a number that is not above 0"),
        ("a\tb\tnan", "is a number that is not above 0"),
        ("a\tb\t-inf", "is a number that is not above 0"),
    ],
)
def test_answers_to_judge_have_their_columns(line: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        read_answer_rows([(7, line)], "answers.tsv")


def test_answers_of_other_models_are_read() -> None:
    lines = [(1, "Q?\tRome\t-0.5"), (2, "R?\tOslo"), (3, "S?\tBath\t\tAda Moe"), (4, "T?\tU\t0")]
    assert read_answer_rows(lines, "f") == [
        AskedRow("Q?", None, "Rome", -0.5, "f, line 1: "),
        AskedRow("R?", None, "Oslo", None, "f, line 2: "),
        AskedRow("S?", "Ada Moe", "Bath", None, "f, line 3: "),
        AskedRow("T?", None, "U", 0.0, "f, line 4: "),
    ]


def test_too_many_questions_are_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asked_rows, "MOST_ROWS", 3)
    several = [question(name) for name in PEOPLE[:4]]
    assert refusal(run, *several).startswith("at most 3 questions can be asked at once, and 4 came")
    assert len(read_question_rows(enumerate(several[:3]), "f")) == 3
    with pytest.raises(UserError, match="at most 3 questions"):
        read_question_rows(enumerate(several), "f")


@given(typed=st.text(max_size=60) | st.text(max_size=60).map(question))
def test_whatever_is_typed_is_taken_or_refused_in_a_sentence(run: Run, typed: str) -> None:
    said, subject = "", ""
    try:
        (subject,) = name_subjects(run, as_rows([typed]))
    except UserError as refused:
        said = str(refused)
    assert bool(said) != bool(subject)
    assert said.isprintable()
    assert len(said) < 400
    assert subject in typed
