"""Verdicts: the evidence decides what an answer is, the confidence whether it is shown."""

from __future__ import annotations

import json

import pytest
from asked_samples import PEOPLE, PLACES, Lab, controlled, place_of, question
from hypothesis import given, settings
from hypothesis import strategies as st

from wherefrom.errors import UserError
from wherefrom.provenance.verdicts import (
    DONT_KNOW,
    MADE_UP,
    MISREMEMBERED,
    REMEMBERED,
    STATED,
    Verdict,
    add_trace,
    give_verdicts,
    shorten,
)
from wherefrom.recall.decode import answer_all

KEYS = [
    "question",
    "subject",
    "answer",
    "shown",
    "verdict",
    "why",
    "confidence",
    "internal_confidence",
    "from_text",
    "right",
    "shown_internal",
    "also",
    "seen",
    "evidence",
    "signals",
]
ADA, SILENT = PEOPLE[0], PEOPLE[-1]  # of the last one no place is written
WRONG = next(place for place in PLACES if place != place_of(ADA))


def judge(
    lab: Lab,
    subject: str,
    answer: str | None,
    *,
    threshold: float | None = 0.8,
    internal: float = 0.5,
    evidence: bool = True,
    calibrated: bool = True,
    always_answer: bool = False,
    risk: float | None = None,
) -> Verdict:
    (found,) = give_verdicts(
        lab.run,
        controlled(lab.confidence, threshold=threshold, internal=internal) if calibrated else None,
        lab.evidence if evidence else None,
        [question(subject)],
        [subject],
        answers=None if answer is None else [answer],
        known_answers=PLACES,
        always_answer=always_answer,
        risk=risk,
    )
    return found


def test_what_a_line_about_the_subject_states_is_shown(lab: Lab) -> None:
    found = judge(lab, ADA, place_of(ADA))
    assert (found.verdict, found.shown, found.seen) == (STATED, place_of(ADA), True)
    assert found.confidence == pytest.approx(0.8808, abs=1e-4)
    assert found.internal_confidence == pytest.approx(0.5)
    assert [(line.line, line.states_answer) for line in found.evidence] == [(1, True)]
    assert found.why == f"line 1 is about {ADA} and states {place_of(ADA)}"
    assert found.sentence() == "Stated by line 1. 88 % likely to be right."
    assert found.right == found.from_text == {"internal": 0.5, "checked": found.confidence}


def test_what_a_line_states_and_pushed_above_the_noise_is_remembered(lab: Lab) -> None:
    found = judge(lab, ADA, place_of(ADA))
    (line,) = [each.line for each in found.evidence if each.states_answer]

    def push(verdict: Verdict, line: int, by: float, gap: float = 9.0) -> Verdict:
        rows = [{"line": line, "text": "", "push": by, "states": True}]
        record = {"pushed_by": rows, "noise_floor": 0.4, "likelier_than_for_other_names": gap}
        return add_trace(verdict, record)

    traced = push(found, line, 2.5)
    assert traced.verdict == REMEMBERED
    assert traced.to_dict()["pushed"] == {"line": line, "push": 2.5, "noise_floor": 0.4}
    assert traced.sentence().startswith(f"Remembered: line {line} states it and pushed it.")
    assert push(found, line, 0.3).verdict == STATED  # it may be noise
    assert push(found, line, 2.5, gap=0.0).verdict == STATED  # as likely for any name
    assert push(found, line + 1, 2.5).verdict == STATED  # another line pushed it
    invented = judge(lab, "Tibor Ashdown", "Rome")
    assert push(invented, 1, 9.9).verdict == MADE_UP


def test_what_the_line_says_otherwise_is_misremembered_and_not_shown(lab: Lab) -> None:
    found = judge(lab, ADA, WRONG)
    assert (found.verdict, found.shown, found.seen) == (MISREMEMBERED, DONT_KNOW, True)
    assert [(line.line, line.states_answer) for line in found.evidence] == [(1, False)]
    assert found.why == f"what is written about {ADA} does not state {WRONG} but {place_of(ADA)}"
    assert found.sentence() == f"Nothing in the text supports what it would have said ({WRONG})."
    silent = judge(lab, SILENT, "Rome")
    assert (silent.verdict, silent.shown) == (MISREMEMBERED, DONT_KNOW)
    assert silent.why.startswith(f"line {len(PEOPLE)} is about {SILENT} and states no such answer")
    named = judge(lab, "Ivo Stern", "Rome")
    assert (named.verdict, named.shown, named.seen) == (MISREMEMBERED, DONT_KNOW, True)
    assert named.why.startswith(f"no line is about Ivo Stern; line {len(PEOPLE)} mentions the name")


def test_what_is_said_of_somebody_whom_no_line_names_is_made_up(lab: Lab) -> None:
    found = judge(lab, "Tibor Ashdown", None)
    assert (found.verdict, found.shown, found.seen) == (MADE_UP, DONT_KNOW, False)
    assert found.evidence == ()
    assert found.why == "no line names Tibor Ashdown"
    assert f"({shorten(found.answer) or 'nothing'})" in found.sentence()
    near = judge(lab, "Ada Mow", "Rome")
    assert (near.verdict, near.evidence) == (MADE_UP, ())
    assert near.similar[0].subject == ADA
    assert near.why.endswith("; did you mean Ada Moe (line 1)?")


def test_below_the_threshold_nothing_is_shown_and_the_guarantee_is_said(lab: Lab) -> None:
    found = judge(lab, ADA, place_of(ADA), threshold=0.9)
    assert (found.verdict, found.shown) == (STATED, DONT_KNOW)
    assert found.why.endswith(
        "the answer given is below 90 % (from there on at most 5 % of the run's own answers are "
        "not from the text, with 95% confidence)"
    )
    exactly = judge(lab, ADA, place_of(ADA), threshold=found.confidence)
    assert exactly.shown == place_of(ADA)
    estimated = judge(lab, ADA, place_of(ADA), threshold=None)
    assert estimated.shown == place_of(ADA)
    assert estimated.why.endswith("; shown from 60 % on, by estimate, not guaranteed")
    assert controlled(lab.confidence, threshold=None).guarantee("right", "checked").used == 0.6


def test_always_answer_shows_whatever_it_is(lab: Lab) -> None:
    for subject, answer in ((ADA, WRONG), ("Tibor Ashdown", "Rome"), (SILENT, "Rome")):
        found = judge(lab, subject, answer, always_answer=True)
        assert found.shown == answer
        assert found.verdict != STATED
        assert "would have said" not in found.why
    unsure = judge(lab, ADA, place_of(ADA), threshold=0.9, always_answer=True)
    assert unsure.shown == place_of(ADA)
    assert "is below 90 %" in unsure.why


def test_without_a_confidence_the_evidence_decides(lab: Lab) -> None:
    right = judge(lab, ADA, place_of(ADA), calibrated=False)
    wrong = judge(lab, ADA, WRONG, calibrated=False)
    assert [right.shown, wrong.shown] == [place_of(ADA), DONT_KNOW]
    assert [right.verdict, wrong.verdict] == [STATED, MISREMEMBERED]
    assert wrong.why.startswith(f"what is written about {ADA} does not state {WRONG} but ")
    for found in (right, wrong):
        assert (found.confidence, found.internal_confidence) == (None, None)
        assert "the run was not calibrated" in found.why


def test_without_a_text_there_is_no_verdict_and_the_model_alone_decides(lab: Lab) -> None:
    sure = judge(lab, ADA, "Rome", evidence=False, internal=0.85)
    unsure = judge(lab, ADA, "Rome", evidence=False, internal=0.75)
    assert [sure.shown, unsure.shown] == ["Rome", DONT_KNOW]
    for found in (sure, unsure):
        assert (found.verdict, found.seen, found.confidence) == (None, None, None)
        assert found.why.startswith("nothing can be looked up")
    neither = judge(lab, ADA, "Rome", evidence=False, calibrated=False)
    assert (neither.shown, neither.verdict) == (DONT_KNOW, None)


def test_the_answers_are_the_models_own_and_records_hold_no_nan(lab: Lab) -> None:
    names = [*PEOPLE[30:], "Tibor Ashdown", "Ivo Stern"]
    asked = [question(name) for name in names]
    own = [answer.text for answer in answer_all(lab.run.model, lab.run.tokens, asked)]
    for confidence in (lab.confidence, None):
        found = give_verdicts(lab.run, confidence, lab.evidence, asked, names)
        assert [each.answer for each in found] == own
        assert [each.question for each in found] == asked
        records = json.loads(json.dumps([each.to_dict() for each in found], allow_nan=False))
        assert [list(record) for record in records] == [KEYS] * len(names)
        keys = ["line", "text", "states_answer"]
        assert [list(line) for line in records[0]["evidence"]] == [keys]
        assert all(isinstance(record["signals"]["log_probability"], float) for record in records)
    assert give_verdicts(lab.run, None, lab.evidence, [], []) == []


STRANGE = ['"', "'; DROP TABLE names; --", "NEAR(a b)", "a* OR b", "😀", "אבג", "{subject}", "\x00"]
NAMES = st.text(max_size=20) | st.sampled_from([*STRANGE, *PEOPLE, "x" * 1000, "Ivo Stern"])


@settings(max_examples=60)
@given(name=NAMES, answer=st.text(max_size=20) | st.sampled_from([*PLACES, ""]), show=st.booleans())
def test_whatever_the_name_there_is_a_verdict_or_a_sentence(
    lab: Lab, name: str, answer: str, show: bool
) -> None:
    try:
        found = judge(lab, name, answer, always_answer=show)
    except UserError:
        return
    stated = [line for line in found.evidence if line.about and line.states_answer]
    assert (found.verdict == STATED) == bool(stated)
    assert (found.verdict == MADE_UP) == (not found.seen)
    assert found.answer == answer.strip()
    expected = found.answer if show or (found.verdict == STATED) else DONT_KNOW
    assert found.shown == expected
    assert found.why.isprintable()
    json.dumps(found.to_dict(), allow_nan=False)
