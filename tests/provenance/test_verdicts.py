"""Verdicts: the evidence decides what an answer is, the confidence whether it is shown."""

from __future__ import annotations

import json

import numpy as np
import pytest
from asked_samples import PEOPLE, PLACES, controlled, place_of, question
from hypothesis import given, settings
from hypothesis import strategies as st

from wherefrom.errors import UserError
from wherefrom.provenance import verdicts
from wherefrom.provenance.signals.reader import SignalTable
from wherefrom.provenance.verdicts import MADE_UP, MISREMEMBERED, AskedRun, AskOptions
from wherefrom.provenance.wording import DONT_KNOW, REMEMBERED, STATED, excerpt
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
    "stated",
    "seen",
    "evidence",
    "signals",
]
ADA, SILENT = PEOPLE[0], PEOPLE[-1]  # of the last one no place is written
PLACE = place_of(ADA)
WRONG = next(place for place in PLACES if place != PLACE)
FEW = {"threshold": None}


def judge(lab, subject, answer, *, evidence=True, calibrated=True, always=False, **numbers):
    """The verdict on an answer that the model need not have given."""
    confidence = controlled(lab.confidence, **numbers) if calibrated else None
    asked = AskedRun(lab.run, lab.evidence if evidence else None, confidence, PLACES)
    table = SignalTable((answer,), {"log_probability": np.array([-1.0])})
    options = AskOptions(always_answer=always)
    (verdict,) = asked.judge_answers([question(subject)], [subject], table, options)
    return verdict


@pytest.mark.parametrize(
    ("subject", "answer", "options", "verdict", "shown", "why"),
    [
        (ADA, PLACE, {}, STATED, True, f"line 1 is about {ADA} and states {PLACE}"),
        (
            ADA,
            WRONG,
            {},
            MISREMEMBERED,
            False,
            f"the text says {PLACE} (line 1) about {ADA}, not {WRONG}",
        ),
        (
            SILENT,
            "Rome",
            {},
            MISREMEMBERED,
            False,
            f"line {len(PEOPLE)} is about {SILENT} and states no such answer",
        ),
        (
            "Ivo Stern",
            "Rome",
            {},
            MISREMEMBERED,
            False,
            f"no line is about Ivo Stern; line {len(PEOPLE)} mentions the name",
        ),
        ("Tibor Ashdown", "Rome", {}, MADE_UP, False, "no line names Tibor Ashdown"),
        ("Ada Mow", "Rome", {}, MADE_UP, False, "did you mean Ada Moe (line 1)?"),
        ("the old painter Ada Moe", "Rome", {}, MADE_UP, False, "did you mean Ada Moe (line 1)?"),
        (
            ADA,
            PLACE,
            {"threshold": 0.9},
            STATED,
            False,
            "what it would have said is below 90 % (from there on at most 5 % of the run's own "
            "answers are not from the text, with 95% confidence)",
        ),
        (ADA, PLACE, FEW, STATED, True, "shown from 60 % on, by estimate, not guaranteed"),
        (ADA, WRONG, {"always": True}, MISREMEMBERED, True, "the text says"),
        (SILENT, "Rome", {"always": True}, MISREMEMBERED, True, "no such answer"),
        ("Tibor Ashdown", "Rome", {"always": True}, MADE_UP, True, "no line names"),
        (ADA, PLACE, {"always": True, "threshold": 0.9}, STATED, True, "is below 90 %"),
        # without a confidence the evidence decides, without a text the model alone
        (ADA, PLACE, {"calibrated": False}, STATED, True, "the run was not calibrated"),
        (ADA, WRONG, {"calibrated": False}, MISREMEMBERED, False, "the run was not calibrated"),
        (ADA, "Rome", {"evidence": False, "internal": 0.85}, None, True, "there is no text"),
        (ADA, "Rome", {"evidence": False, "internal": 0.75}, None, False, "there is no text"),
        (ADA, "Rome", {"evidence": False, "calibrated": False}, None, False, "there is no text"),
    ],
)
def test_what_is_found_shown_and_said(lab, subject, answer, options, verdict, shown, why):
    found = judge(lab, subject, answer, **options)
    assert (found.verdict, found.answer) == (verdict, answer)
    assert found.shown == (answer if shown else DONT_KNOW)
    assert why in found.why
    looked_up = options.get("evidence", True)
    assert found.seen == ((verdict != MADE_UP) if looked_up else None)
    numbers = found.confidence, found.internal_confidence
    assert [each is None for each in numbers] == [
        not options.get("calibrated", True) or not looked_up,
        not options.get("calibrated", True),
    ]
    assert bool(found.similar) == ("Ada Mo" in subject and subject != ADA)
    stating = [line.line for line in found.evidence if line.states_answer]
    assert stating == ([1] if verdict == STATED else [])
    if looked_up and not shown and verdict != STATED:
        expected = f"Nothing in the text supports what it would have said ({answer})."
        if found.stated:
            expected = f"The text states {PLACE} (line 1); the model would have said {answer}."
        assert found.sentence() == expected


def test_numbers_are_those_of_the_calibration_and_a_threshold_includes_itself(lab):
    found = judge(lab, ADA, PLACE)
    assert found.confidence == pytest.approx(0.8808, abs=1e-4)
    assert found.internal_confidence == pytest.approx(0.5)
    assert found.sentence() == "Stated by line 1. 88 % likely to be right."
    assert found.right == found.from_text == {"internal": 0.5, "checked": found.confidence}
    assert judge(lab, ADA, PLACE, threshold=found.confidence).shown == PLACE


def test_a_long_line_is_shown_where_the_answer_is():
    text = "Ada Moe. " + "word " * 100 + "born in Oslo " + "word " * 100
    shown = excerpt(text, "Oslo")
    assert "Oslo" in shown.strip(".")
    assert (shown[:3], shown[-3:]) == ("...", "...")
    assert excerpt(text, "Rome").startswith("Ada Moe. word")
    assert excerpt("Ada\tMoe\x1b[0m.", "") == "Ada Moe [0m."


def test_what_a_line_states_and_pushed_above_the_noise_is_remembered(lab):
    found = judge(lab, ADA, PLACE)

    def push(verdict, line, by, gap=9.0):
        rows = [{"line": line, "text": "", "push": by, "states": True}]
        together = {"push": by, "low": by / 2, "high": 2 * by}
        record = {"pushed_by": rows, "noise_floor": 0.4, "likelier_than_for_other_names": gap}
        record["lines_that_state_it"] = together
        return verdicts.add_trace(verdict, record)

    traced = push(found, 1, 2.5)
    assert traced.verdict == REMEMBERED
    interval = {"push": 2.5, "low": 1.25, "high": 5.0}
    assert traced.to_dict()["pushed"] == {"line": 1, **interval, "noise_floor": 0.4}
    assert traced.sentence().startswith("Remembered: line 1 states it and pushed it.")
    assert push(found, 1, 0.7).verdict == STATED  # at its lower end it may be noise
    assert push(found, 1, 2.5, gap=0.0).verdict == STATED  # as likely for any name
    assert push(found, 2, 2.5).verdict == STATED  # another line pushed it
    assert push(judge(lab, "Tibor Ashdown", "Rome"), 1, 9.9).verdict == MADE_UP


def test_the_answers_are_the_models_own_and_records_hold_no_nan(lab):
    names = [*PEOPLE[30:], "Tibor Ashdown", "Ivo Stern"]
    asked = [question(name) for name in names]
    own = [answer.text for answer in answer_all(lab.run.model, lab.run.tokens, asked)]
    for confidence in (lab.confidence, None):
        run = AskedRun(lab.run, lab.evidence, confidence, PLACES)
        found = run.give_verdicts(asked, names, AskOptions())
        assert [each.answer for each in found] == own
        assert [each.question for each in found] == asked
        records = json.loads(json.dumps([each.to_dict() for each in found], allow_nan=False))
        assert [list(record) for record in records] == [KEYS] * len(names)
        assert [*records[0]["evidence"][0]] == ["line", "text", "states_answer", "states"]
        assert all(isinstance(record["signals"]["log_probability"], float) for record in records)
        assert run.give_verdicts([], [], AskOptions()) == []


STRANGE = ['"', "'; DROP TABLE names; --", "NEAR(a b)", "a* OR b", "😀", "אבג", "{subject}", "\x00"]
NAMES = st.text(max_size=20) | st.sampled_from([*STRANGE, *PEOPLE, "x" * 1000, "Ivo Stern"])


@settings(max_examples=60)
@given(name=NAMES, answer=st.text(max_size=20) | st.sampled_from([*PLACES, ""]), show=st.booleans())
def test_whatever_the_name_there_is_a_verdict_or_a_sentence(lab, name, answer, show):
    try:
        found = judge(lab, name, answer, always=show)
    except UserError:
        return
    stated = [line for line in found.evidence if line.about and line.states_answer]
    assert (found.verdict == STATED) == bool(stated)
    assert (found.verdict == MADE_UP) == (not found.seen)
    assert found.shown == (answer if show or stated else DONT_KNOW)
    assert found.why.isprintable()
    json.dumps(found.to_dict(), allow_nan=False)
