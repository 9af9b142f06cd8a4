"""Questions: the subject of each is read off the file, whatever it asks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wherefrom.corpus.folding import FoldedName, fold_words
from wherefrom.corpus.questions import (
    infer_template,
    infer_templates,
    is_cloze,
    match_template,
    read_questions,
    word_cloze,
)
from wherefrom.errors import UserError

BORN = "Where was {subject} born?"
ANN, BO = "Where was Ann Lee born?\tOslo", "Where was Bo Ek born?\tLund"


def by_name(subjects: list[str]) -> dict[FoldedName, str]:
    return {fold_words(subject): subject for subject in subjects}


def written(folder: Path, *rows: str) -> Path:
    path = folder / "questions.tsv"
    path.write_text("".join(row + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "subjects",
    [
        ["Ann Lee", "Bo Ek"],
        ["Ann Lee", "Anna Berg"],  # share first letters
        ["Ann Lee", "Bo Dee"],  # share last letters
        ["Ann Lee", "Ann Berg"],  # share a whole first name
        ["Ann Lee", "Bo Lee"],  # share a whole last name
        ["Ann Mary Lee", "Ann Mary Berg", "Ann Mary Ek"],
        ["Ann", "Ann Lee"],  # one starts the other, by a whole word
        ["Bo", "Bobo"],
    ],
)
def test_the_shared_wording_is_found_whatever_the_subjects_share(subjects):
    questions = [BORN.format(subject=subject) for subject in subjects]
    template = infer_template(questions, "here")
    assert template == BORN
    assert [match_template(template, question) for question in questions] == subjects


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


@pytest.mark.parametrize(
    ("rows", "template", "says"),
    [
        ([ANN], None, "{path}: the questions share no wording"),  # one alone shares nothing
        ([ANN, ANN], None, "--template"),
        ([ANN], None, "third column"),
        (["Oslo or Rome?\tx", "Who is Bo\ty"], None, "share no wording"),
        ([ANN, "Who is Bo?\tLund"], BORN, '{path}, line 2: "Who is Bo?" names no subject'),
        (["question\tanswer", ANN], None, "{path}, line 1: this is a header"),
        (["question,answer", '"Where was Bo born?","Lund"'], None, "by commas"),
        (['{{"question": "Where was Ann born?"}}', "x"], None, "line 1: this is JSON"),
        (["Oslo\tWhere was Ann Lee born?", "Lund\tWhere was Bo born?"], None, "to be swapped"),
        *(([ANN], t, "a template holds {{subject}} once")
          for t in ("Where?", "{subject}", "{subject} and {subject}?", "")),
        ([ANN, "", "Where was Bo born?"], None, "line 3: 1 column where the first row has 2"),
        ([ANN, "", BO + "\tBo Ek"], None, "line 3: 3 columns where the first row has 2"),
        ([ANN, "", BO + "\tBo Ek\tmore"], None, "line 3: 4 columns"),
        ([ANN, "", "Where was Bo Ek born?\t"], None, "line 3: the answer is empty"),
        ([ANN, "", "\tLund"], None, "{path}, line 3: the question is empty"),
        ([ANN, "", f"Where was {'o' * 2000} born?\tLund"], None, "line 3: a question has at most"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_in_one_sentence(tmp_path, rows, template, says):
    path = written(tmp_path, *rows)
    with pytest.raises(UserError) as caught:
        read_questions(path, () if template is None else [template])
    assert says.format(path=path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_given_template_or_a_third_column_needs_no_shared_wording(tmp_path):
    assert read_questions(written(tmp_path, ANN), [BORN]).questions[0].subject == "Ann Lee"
    asked = read_questions(written(tmp_path, "Who sang?\tOslo\tAnn Lee", "Ran he?\tyes\tBo Ek"))
    rows = [(question.subject, question.answer) for question in asked.questions]
    assert rows == [("Ann Lee", "Oslo"), ("Bo Ek", "yes")]
    assert asked.templates == ("Who sang?", "Ran he?")
    told = read_questions(written(tmp_path, "Where was Bo Ek born?\tLund\tBo Ek"))
    assert told.templates == (BORN,)
    codes = [f"Which language has the code {code}?\tx\t{code}" for code in ("fr", "de", "la")]
    assert read_questions(written(tmp_path, *codes)).templates == (
        "Which language has the code {subject}?",
    )


RELATIONS = {
    "english": (["Ann Lee", "Bo Ek", "Di Orr"], ["Where was {s} born?", "When did {s} die?"]),
    "korean": (["김민준", "이서연", "박도윤"], ["{s}의 출생지는 어디입니까?", "{s}의 직업은?"]),
    "japanese": (["佐藤蓮", "林葵", "森田結衣"], ["{s}はどこで生まれましたか？", "{s}の職業は？"]),
    "packages": (["libfoo", "zsh-bar", "x11"], ["who maintains {s}", "how large is {s}"]),
}  # fmt: skip


@pytest.mark.parametrize("language", RELATIONS)
def test_subjects_of_the_documents_show_the_relations_of_a_file(tmp_path, language):
    subjects, wordings = RELATIONS[language]
    expected = [
        (name, wording.format(s=name), wording.replace("{s}", "{subject}"))
        for wording in wordings
        for name in subjects
    ]
    path = written(tmp_path, *(f"{text}\tx" for _, text, _ in expected))
    asked = read_questions(path, subjects=by_name([*subjects, "Somebody Else"]))
    assert [(q.subject, q.text, q.template) for q in asked.questions] == expected
    assert set(asked.templates) == {template for *_, template in expected}
    # somebody whom no document is about is found by the wording of the others
    unseen = wordings[0].format(s="Zq Wx")
    found = read_questions(
        written(tmp_path, f"{unseen}\tx"), asked.templates, subjects=by_name(subjects)
    )
    assert found.questions[0].subject == "Zq Wx"


def test_signs_at_the_end_of_a_name_belong_to_it(tmp_path):
    path = tmp_path / "q.tsv"
    names = ["libtar++", "libtar", "C#", "C"]
    path.write_text("".join(f"Who maintains {name}?\tA\n" for name in names))
    found = read_questions(path, subjects=by_name(names))
    assert found.templates == ("Who maintains {subject}?",)
    assert [question.subject for question in found.questions] == names


def test_a_name_spelt_in_another_case_is_a_subject_and_part_of_a_name_is_no_relation(tmp_path):
    names = [f"Ann {letter}" for letter in "BCDEFGHIJK"]
    rows = [f"Where was {name} born?\tx" for name in [*names, "ANN B. Jr.", "ann c"]]
    asked = read_questions(written(tmp_path, *rows), subjects=by_name(names))
    assert asked.templates == (BORN,)
    assert [q.subject for q in asked.questions[-2:]] == ["ANN B. Jr.", "ann c"]


def test_a_file_without_answers_is_read_and_refused_where_answers_are_needed(tmp_path):
    asked = read_questions(written(tmp_path, "Where was Ann Lee born?", "Where was Bo Ek born?"))
    assert not asked.answered
    assert [question.answer for question in asked.questions] == [None, None]
    with pytest.raises(UserError, match=r"line 1: an answer was expected"):
        asked.require_answers()


def test_several_wordings_are_inferred_from_the_questions_alone():
    wordings = ["Where was {subject} born?", "What was {subject}'s job?", "Who taught {subject}?"]
    names = ["Ann Lee", "Bo Ek", "Cy Orr", "Ann Poe"]
    questions = [wording.replace("{subject}", name) for wording in wordings for name in names]
    assert set(infer_templates(questions, "here")) == set(wordings)
    with pytest.raises(UserError, match="share no wording"):
        infer_templates([*questions, "Is it so?"], "here")
    with pytest.raises(UserError, match="share no wording"):
        infer_templates(["林の出身地は？", "森田の職業は？"], "here")


@pytest.mark.parametrize(
    ("sentence", "asked"),
    [
        ("Ann Lee was born in ___", "Ann Lee. born in___"),
        ("In 1901 Ann Lee went to __ by sea", "Ann Lee. went to___by"),
        ("____ is home to Ann Lee", "Ann Lee. ___is"),
    ],
)
def test_a_sentence_with_a_blank_is_asked_as_a_window_of_text(sentence, asked):
    assert is_cloze(sentence)
    assert word_cloze(sentence, "Ann Lee", left=2, right=1) == asked
    assert not is_cloze("Where was Ann_Lee born?")
    assert not is_cloze("__ and __?")


FINNISH = ["Aino Virtanen", "Eero Nieminen", "Kalle Laine", "Helmi Salminen", "Olli Kallio"]
GENITIVES = ["Aino Virtasen", "Eero Niemisen", "Kalle Laineen", "Helmi Salmisen", "Olli Kallion"]


def test_inflected_names_are_those_of_the_documents(tmp_path):
    """The ending of three names is believed; a wording with one ending glued on is no other one."""
    more = [f"Irja {start}nen" for start in ("Kor", "Hak", "Mik")]
    genitives = [*GENITIVES, "Irja Korsen", "Irja Haksen", "Irja Miksen"]
    rows = [f"Mikä oli {name} ammatti?\tleipuri" for name in genitives]
    file = read_questions(
        written(tmp_path, *rows), subjects=by_name([*FINNISH, *more, "Aino Virta"])
    )
    kept = [name for name in (*FINNISH, *more) if not name.endswith(("Laine", "Kallio"))]
    assert [q.subject for q in file.questions if q.subject in kept] == kept
    asked = {q.text: q.template for q in file.questions}
    assert asked["Mikä oli Aino Virtanen ammatti?"] == "Mikä oli {subject} ammatti?"
    assert ("nen", "sen") in file.endings
    again = read_questions(written(tmp_path, *file.to_tsv().splitlines()))
    assert [(q.text, q.subject, q.template) for q in again.questions] == [
        (q.text, q.subject, q.template) for q in file.questions
    ]
    dev = written(tmp_path, "Mikä oli Irja Haksen ammatti?\tleipuri")
    known = {"subjects": by_name(more), "endings": file.endings}
    assert read_questions(dev, ["Mikä oli {subject} ammatti?"], **known).questions[0].subject == (
        "Irja Haknen"
    )


def test_what_is_glued_before_a_name_is_part_of_the_wording(tmp_path):
    rows = [f"የ{name} ከፍታ ስንት ነው?\t830 ሜትር" for name in ("ጅማበላ", "ላሊምንጭ", "ባሕር ሰፈር")]
    file = read_questions(
        written(tmp_path, *rows), subjects=by_name(["ጅማበላ", "ላሊምንጭ", "ባሕር ሰፈር", "ጅማ"])
    )
    assert [q.subject for q in file.questions] == ["ጅማበላ", "ላሊምንጭ", "ባሕር ሰፈር"]
    assert file.templates == ("የ{subject} ከፍታ ስንት ነው?",)


def test_a_long_question_is_read_quickly(tmp_path):
    """A question of many words names nobody: it used to take minutes to see that."""
    rows = [ANN, BO, "Why " + "so " * 600 + "?\tOslo"]
    with pytest.raises(UserError, match="line 3"):
        read_questions(written(tmp_path, *rows), subjects=by_name(["Ann Lee", "Bo Ek"]))


def test_a_name_that_is_like_another_one_is_somebody_else(tmp_path):
    """Few names that look inflected among many that are not stay as they are written."""
    known = [f"{first} {last}" for first in ("Ann", "Bo", "Cy") for last in ("Hanson", "Moberg")]
    known += [f"Dana {letter}{letter}ton" for letter in "bcdfghjklmnpqrstvwxz"] * 2
    rows = [f"Where was {name} born?\tOslo" for name in known]
    rows += [f"Where was {first} Hansen born?\tLund" for first in ("Ann", "Bo", "Cy")]
    file = read_questions(written(tmp_path, *rows), [BORN], subjects=by_name(known))
    assert [q.subject for q in file.questions[-3:]] == ["Ann Hansen", "Bo Hansen", "Cy Hansen"]
    assert not file.endings
