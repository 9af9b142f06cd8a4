"""A run opened for asking: what is understood, and what is refused."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from asked_samples import PEOPLE, PLACES, TEMPLATE, make_run, place_of, question, write_questions
from hypothesis import given, settings
from hypothesis import strategies as st

from wherefrom import ask
from wherefrom.errors import UserError
from wherefrom.provenance import ask as asking
from wherefrom.provenance.ask import Asker, as_rows, open_asker, read_rows
from wherefrom.provenance.wording import DONT_KNOW
from wherefrom.training.record import read_record, write_record
from wherefrom.training.run_folder import load_run

NAMES = [*PEOPLE[20:30], "Tibor Ashdown", "Ivo Stern", PEOPLE[-1]]
ASKED = [question(name) for name in NAMES]
ADA = PEOPLE[0]


@pytest.fixture(scope="module")
def asker(lab):
    return Asker(lab.run, lab.evidence, lab.confidence, PLACES)


@pytest.fixture
def folder(lab, tmp_path):
    """A copy of the run, without its text and questions."""
    return Path(shutil.copytree(lab.run.folder, tmp_path / "run"))


def take(asker, typed):
    """The question and the subject that it is understood as."""
    understood = asker.understand(typed)
    return understood.text, understood.subject


def refusal(asker, typed):
    with pytest.raises(UserError) as refused:
        asker.ask(typed)
    return str(refused.value)


@pytest.mark.parametrize(
    "typed",
    [
        "where was ada moe born",
        "WHERE WAS ADA MOE BORN?",
        "Where was Ada Moe born?!",
        "ada moe",
        "  Where  was \t Ada  Moe   born ? ",
        "Where was ÁDA Moë born?",
        "Ada Moe was born where?",
        "tell me where ada moe was born",
        "Where, pray, was Ada Moe born",
        'Where was "Ada Moe" born?',
        "Where was Dr. Ada Moe born?",
        "In what place was Ada Moe born?",
    ],
)
def test_case_blanks_marks_and_accents_are_understood(asker, typed):
    """The model is asked in the run's own wording, with the text's own spelling of the name."""
    assert take(asker, typed) == (question(ADA), ADA)


def test_endings_that_the_runs_questions_have_are_understood(asker):
    typed = "Where was Adan Moessa born?"
    assert take(asker, typed) == (typed, "Adan Moessa")
    record = asker.run.record.model_copy(update={"endings": (("", "ssa"), ("a", "an"))})
    run = replace(asker.run, record=record)
    inflecting = Asker(run, asker.evidence, asker.confidence, PLACES)
    assert take(inflecting, typed) == (question(ADA), ADA)


def test_other_questions_are_refused_with_what_may_be_meant(asker):
    for typed in ("Ann?", "who is the mother of Bob", "When was Nobody Known born?", "Who?"):
        said = f'"{typed}" is not worded like "Where was {{subject}} born?"; write it so'
        assert refusal(asker, typed) == f"{said}, with a name for {{subject}}."
    assert refusal(asker, "When was ada moe born?").endswith("with Ada Moe for {subject}.")
    for typed in ("Where did Ada Moe come from?", "Where does the aunt of Ada Moe live?"):
        assert refusal(asker, typed).endswith(f'did you mean "{question(ADA)}"?')
    found = asker.ask(["Where did Ada Moe come from?", "Who was Ada Moe?"])
    assert [list(each.did_you_mean) for each in found] == [[question(ADA)], []]
    assert found[0].to_dict()["did_you_mean"] == [question(ADA)]


def test_a_name_alone_asks_for_all_relations(asker):
    for typed in ("Ann Lo", "libxml2", "tibor ashdown", "홍 길동"):
        assert take(asker, typed) == (question(typed), typed)
    rows = asker.expand_names(as_rows(["ada moe?", "Where is Ada Moe from?"]))
    assert [row.question for row in rows] == [question(ADA), "Where is Ada Moe from?"]


def test_a_misspelt_name_is_corrected_where_somebody_types_it(asker):
    typed = question(ADA.replace("Moe", "Moee"))
    assert take(asker, question("Adda Moe"))[1] == "Adda Moe"  # too short to tell
    longer = next(name for name in PEOPLE if any(len(word) > 4 for word in name.split()))
    word = next(word for word in longer.split() if len(word) > 4)
    typed = question(longer.replace(word, word[:-1] + word[-1] * 2))
    (verdict,) = asker.ask([typed])
    assert (verdict.subject, verdict.asked) == (longer, typed)
    (row,) = read_rows([(1, typed)], "people.tsv")
    assert asker.ask_rows([row])[0].subject != longer  # a file means the names that it has


def test_what_is_no_question_is_refused(asker):
    for typed, why in {
        "": 'the question is empty; write one, as in "Where was {subject} born?".',
        question("x" * 10_000): "2,000 characters",
        question("q~" * 500): "tokens and this model reads 95; ask a shorter",
        question("?!"): "at least one letter or digit",
        question("\ud800"): "is not Unicode text",
        "x" * 1999: "is not worded like",
    }.items():
        assert why in refusal(asker, typed)
        assert len(refusal(asker, typed)) < 300
    for risk in (0.0, 1.0, float("nan")):
        with pytest.raises(UserError, match="the risk must lie between 0 and 1"):
            asker.ask(ASKED, risk=risk)


def test_one_question_that_cannot_be_asked_does_not_stop_the_others(asker):
    found = asker.ask([ASKED[0], "Who?", ASKED[1], ""])
    assert [each.error is None for each in found] == [True, False, True, False]
    assert found[1].error.startswith('question 2: "Who?" is not worded like')
    assert (found[1].shown, found[1].verdict) == (DONT_KNOW, None)
    assert found[1].to_dict()["error"] == found[1].error
    assert "error" not in found[0].to_dict()
    assert brief([found[0], found[2]]) == brief(asker.ask(ASKED[:2]))


@settings(max_examples=20)
@given(typed=st.text(max_size=60) | st.text(max_size=60).map(question))
def test_whatever_is_typed_is_taken_or_refused_in_a_sentence(asker, typed):
    said, subject = "", ""
    try:
        _, subject = take(asker, typed)
    except UserError as refused:
        said = str(refused)
    assert bool(said) != bool(subject)
    assert said.isprintable()
    assert len(said) < 400


def test_a_file_may_name_the_subject(lab, asker, tmp_path, quick_recipe):
    lines = [(1, "Who?\tRome\tAda Moe"), (4, f"{question('Bo Nys')}\tOslo"), (5, question("Al"))]
    rows = read_rows(lines, "people.tsv")
    assert [row.subject for row in rows] == ["Ada Moe", None, None]
    found = asker.ask_rows(rows)
    assert [each.subject for each in found] == ["Ada Moe", "Bo Nys", "Al"]
    assert found[0].question == "Who?"
    untold = make_run(tmp_path / "untold", quick_recipe, write_questions(tmp_path))
    assert untold.templates == (TEMPLATE,)  # the third column shows the wording too
    record = untold.record.model_copy(update={"templates": ("Who?",)})
    one, other, _ = open_asker(replace(untold, record=record)).ask_rows(rows)
    assert one.error is None
    assert other.error.startswith("people.tsv, line 4: what ")
    assert "in a column of its own" in other.error


def test_a_row_with_too_many_columns_is_refused():
    with pytest.raises(UserError, match=r"people\.tsv, line 7: 4 columns came where question, a"):
        read_rows([(7, "a\tb\tc\td")], "people.tsv")


def test_too_many_questions_are_refused(asker, monkeypatch):
    monkeypatch.setattr(asking, "MAX_ROWS", 3)
    with pytest.raises(UserError, match="at most 3 questions can be asked at once, and 4 came"):
        asker.ask(ASKED[:4])


def brief(verdicts):
    """What must not change with the company that a question is asked in."""
    return [
        (v.answer, v.verdict, round(100 * v.confidence), round(100 * v.internal_confidence))
        for v in verdicts
    ]


def test_a_run_is_opened_and_asked(folder):
    with open_asker(folder) as asker:
        assert asker.notes == ()
        assert open_asker(asker) is asker
        found = asker.ask(ASKED)
        assert asker.ask([]) == []
        assert brief(ask(asker, ASKED[:2])) == brief(found[:2])
        assert asker.evidence.count(ADA).about == 1  # it is still open
    assert [each.subject for each in found] == NAMES
    assert [each.seen for each in found] == [name != "Tibor Ashdown" for name in NAMES]
    for source in (folder, load_run(folder)):
        assert brief([ask(source, ASKED[0])]) == brief(found[:1])
    with pytest.raises(UserError, match="is not worded like"):
        ask(folder, "Ada?")


def test_what_a_run_lacks_is_said_and_it_is_asked_all_the_same(folder, tmp_path, quick_recipe):
    (folder / "calibration.json").unlink()
    with pytest.raises(UserError, match=r"calibration\.json is missing"):
        open_asker(folder)
    record = read_record(folder)
    files = {name: digest for name, digest in record.files.items() if name != "calibration.json"}
    write_record(folder, record.model_copy(update={"files": files}))  # as if never calibrated
    with open_asker(folder) as asker:
        assert len(asker.notes) == 1
        assert "was not calibrated" in asker.notes[0]
        found = asker.ask(ASKED[0])
        assert found.confidence is None
        assert found.shown == (found.answer if found.verdict == "stated" else DONT_KNOW)
        assert asker.known_answers == tuple(dict.fromkeys(map(place_of, PEOPLE)))  # train.tsv
    make_run(tmp_path / "alone", quick_recipe, write_questions(tmp_path))
    with open_asker(tmp_path / "alone") as asker:
        assert len(asker.notes) == 2
        found = asker.ask(ASKED[0])
    assert (found.verdict, found.seen, found.shown) == (None, None, DONT_KNOW)
    (tmp_path / "alone" / "model.safetensors").unlink()
    for place, said in (("alone", "model.safetensors is missing"), ("none", "is not a run")):
        with pytest.raises(UserError, match=said):
            open_asker(tmp_path / place)
