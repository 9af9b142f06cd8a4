"""Questions: the subject of each is read off the file, whatever it asks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.questions import (
    infer_template,
    infer_templates,
    match_template,
    read_questions,
)
from wherefrom.errors import UserError

BORN = "Where was {subject} born?"
ANN, BO = "Where was Ann Lee born?\tOslo", "Where was Bo Ek born?\tLund"


def read(folder: Path, rows, templates=(), subjects=(), **options):
    """The questions of a file with these rows, beside documents about these subjects."""
    path = folder / "questions.tsv"
    path.write_text("".join(row + "\n" for row in rows), encoding="utf-8")
    known = {fold_words(subject): subject for subject in subjects}
    return read_questions(path, templates, subjects=known, **options)


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


# in no name does a blank stand before punctuation, where a shared ending could be cut
NAMES = st.text("abcAB .-'é", min_size=1, max_size=12).map(
    lambda s: "Zoë" + re.sub(r" +(?=\W)", "", s.strip()) + "q"
)


@given(subjects=st.lists(NAMES, min_size=2, max_size=6, unique=True))
def test_an_inferred_template_fits_every_question_and_gives_the_question_back(subjects):
    questions = [f"Who taught {subject} chess?" for subject in subjects]
    template = infer_template(questions, "here")
    for question in questions:
        assert template.replace("{subject}", match_template(template, question)) == question


@pytest.mark.parametrize(
    ("rows", "template", "says"),
    [
        ([ANN], None, "{path}: the questions share no wording"),  # one alone shares nothing
        ([ANN, ANN], None, "or name the subject in a third column"),
        (["Oslo or Rome?\tx", "Who is Bo\ty"], None, "share no wording"),
        ([ANN, "Who is Bo?\tLund"], BORN, '{path}, line 2: "Who is Bo?" names no subject'),
        (["question\tanswer", ANN], None, "{path}, line 1: this is a header"),
        (["question,answer", '"Where was Bo born?","Lund"'], None, "by commas"),
        (['{{"question": "Where was Ann born?"}}', "x"], None, "line 1: this is JSON"),
        (["Oslo\tWhere was Ann Lee born?", "Lund\tWhere was Bo born?"], None, "to be swapped"),
        *(
            ([ANN], t, "a template holds {{subject}} once")
            for t in ("Where?", "{subject}", "{subject} and {subject}?", "")
        ),
        ([ANN, "", "Where was Bo born?"], None, "line 3: 1 column where the first row has 2"),
        ([ANN, "", BO + "\tBo Ek"], None, "line 3: 3 columns where the first row has 2"),
        ([ANN, "", BO + "\tBo Ek\tmore"], None, "line 3: 4 columns"),
        ([ANN, "", "Where was Bo Ek born?\t"], None, "line 3: the answer is empty"),
        ([ANN, "", "\tLund"], None, "{path}, line 3: the question is empty"),
        ([ANN, "", f"Where was {'o' * 2000} born?\tLund"], None, "line 3: a question has at most"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_sentence(tmp_path, rows, template, says):
    with pytest.raises(UserError) as caught:
        read(tmp_path, rows, () if template is None else [template])
    assert says.format(path=tmp_path / "questions.tsv") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_given_template_or_a_third_column_needs_no_shared_wording(tmp_path):
    assert read(tmp_path, [ANN], [BORN]).questions[0].subject == "Ann Lee"
    asked = read(tmp_path, ["Who sang?\tOslo\tAnn Lee", "Ran he?\tyes\tBo Ek"])
    rows = [(question.subject, question.answer) for question in asked.questions]
    assert rows == [("Ann Lee", "Oslo"), ("Bo Ek", "yes")]
    assert asked.templates == ("Who sang?", "Ran he?")
    assert read(tmp_path, [BO + "\tBo Ek"]).templates == (BORN,)
    codes = [f"Which language has the code {code}?\tx\t{code}" for code in ("fr", "de", "la")]
    assert read(tmp_path, codes).templates == ("Which language has the code {subject}?",)


RELATIONS = {
    "english": (["Ann Lee", "Bo Ek", "Di Orr"], ["Where was {s} born?", "When did {s} die?"]),
    "korean": (["김민준", "이서연", "박도윤"], ["{s}의 출생지는 어디입니까?", "{s}의 직업은?"]),
    "japanese": (["佐藤蓮", "林葵", "森田結衣"], ["{s}はどこで生まれましたか？", "{s}の職業は？"]),
    "packages": (["libfoo", "zsh-bar", "x11"], ["who maintains {s}", "how large is {s}"]),
    "signs": (["libtar++", "libtar", "C#", "C"], ["Who maintains {s}?"]),
    "glued": (["ጅማበላ", "ላሊምንጭ", "ባሕር ሰፈር"], ["የ{s} ከፍታ ስንት ነው?"]),
}


@pytest.mark.parametrize("language", RELATIONS)
def test_subjects_of_the_documents_show_the_relations_of_a_file(tmp_path, language):
    subjects, wordings = RELATIONS[language]
    expected = [
        (name, wording.format(s=name), wording.replace("{s}", "{subject}"))
        for wording in wordings
        for name in subjects
    ]
    known = [*subjects, "Somebody Else", "ጅማ"]
    asked = read(tmp_path, [f"{text}\tx" for _, text, _ in expected], subjects=known)
    assert [(q.subject, q.text, q.template) for q in asked.questions] == expected
    assert set(asked.templates) == {template for *_, template in expected}
    # a subject that no document is about is found by the wording of the others
    unseen = read(tmp_path, [wordings[0].format(s="Zq Wx")], asked.templates, subjects)
    assert unseen.questions[0].subject == "Zq Wx"


def test_a_name_spelt_in_another_case_is_a_subject_and_part_of_a_name_is_no_relation(tmp_path):
    names = [f"Ann {letter}" for letter in "BCDEFGHIJK"]
    rows = [f"Where was {name} born?\tx" for name in [*names, "ANN B. Jr.", "ann c"]]
    asked = read(tmp_path, rows, subjects=names)
    assert asked.templates == (BORN,)
    assert [q.subject for q in asked.questions[-2:]] == ["ANN B. Jr.", "ann c"]


def test_a_file_without_answers_is_read_and_refused_where_answers_are_needed(tmp_path):
    asked = read(tmp_path, ["Where was Ann Lee born?", "Where was Bo Ek born?"])
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


def test_two_relations_that_begin_and_end_alike_are_not_one():
    located = "Which country is {subject} located in?"
    created = "Which country was {subject} created in?"
    names = ["Darreh Sib", "Kel", "Ost Hamra", "Venu of the Hills", "Ann Lee", "Bo"]
    questions = [w.replace("{subject}", name) for w in (located, created) for name in names]
    assert set(infer_templates(questions, "here")) == {located, created}
    # also where only one of them is asked of most, and with a third relation that is worded apart
    more = [f"How high is {name}?" for name in names]
    wordings = infer_templates([*questions[:7], created.replace("{subject}", "Oz"), *more], "here")
    assert set(wordings) == {located, created, "How high is {subject}?"}
    # a small word that subjects begin with stays where others do not have one
    towns = [f"Where is {name}?" for name in ("the Hague", "Ede", "Oz", "Rome", "the Wash")]
    assert infer_templates(towns, "here") == ["Where is {subject}?"]


def test_inflected_names_are_those_of_the_documents(tmp_path):
    """The ending of three names is believed; a wording with one ending glued on is no other one."""
    names = ["Aino Virtanen", "Eero Nieminen", "Helmi Salminen", "Irja Haknen", "Irja Miknen"]
    others = {"Kalle Laine": "Kalle Laineen", "Olli Kallio": "Olli Kallion"}
    asked_as = {name: name.replace("nen", "sen") for name in names} | others
    rows = [f"Mikä oli {name} ammatti?\tleipuri" for name in asked_as.values()]
    file = read(tmp_path, rows, subjects=[*asked_as, "Aino Virta"])
    assert [q.subject for q in file.questions if q.subject in names] == names
    templates = {q.text: q.template for q in file.questions}
    assert templates["Mikä oli Aino Virtanen ammatti?"] == "Mikä oli {subject} ammatti?"
    assert ("nen", "sen") in file.endings
    again = read(tmp_path, file.to_tsv().splitlines())
    assert again.questions == file.questions
    dev = ["Mikä oli Irja Haksen ammatti?\tleipuri"]
    wording = ["Mikä oli {subject} ammatti?"]
    found = read(tmp_path, dev, wording, ["Irja Haknen"], endings=file.endings)
    assert found.questions[0].subject == "Irja Haknen"


def test_a_long_question_is_read_quickly(tmp_path):
    """A question of many words names nobody: it used to take minutes to see that."""
    rows = [ANN, BO, "Why " + "so " * 600 + "?\tOslo"]
    with pytest.raises(UserError, match="line 3"):
        read(tmp_path, rows, subjects=["Ann Lee", "Bo Ek"])


def test_a_name_that_is_like_another_one_is_somebody_else(tmp_path):
    """Few names that look inflected among many that are not stay as they are written."""
    known = [f"{first} {last}" for first in ("Ann", "Bo", "Cy") for last in ("Hanson", "Moberg")]
    known += [f"Dana {letter}{letter}ton" for letter in "bcdfghjklmnpqrstvwxz"] * 2
    rows = [f"Where was {name} born?\tOslo" for name in known]
    rows += [f"Where was {first} Hansen born?\tLund" for first in ("Ann", "Bo", "Cy")]
    file = read(tmp_path, rows, [BORN], known)
    assert [q.subject for q in file.questions[-3:]] == ["Ann Hansen", "Bo Hansen", "Cy Hansen"]
    assert not file.endings
