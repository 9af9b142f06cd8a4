"""The numbers of a judgement, on people made up for the purpose."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wherefrom.corpus.subjects import Subject
from wherefrom.provenance.judging.judge import (
    VERDICTS,
    Judged,
    Judgement,
    compare_with_best,
    count_verdicts,
    judge_scores,
    name_with_truth,
    recall_by_documents,
    tell_stated,
)
from wherefrom.provenance.judging.metrics import Answers, augrc, auroc, ece
from wherefrom.provenance.judging.rivals import Score
from wherefrom.provenance.verdicts import GUESSED, MADE_UP, MISREMEMBERED, REMEMBERED


def person(*, seen: bool = True, answer: str | None = "Rome") -> Subject:
    return Subject("judged", seen, "dev", "Ann Clark", "Where was Ann Clark born?", answer)


def judged(
    verdict: str = REMEMBERED,
    *,
    seen: bool = True,
    right: bool = True,
    shown: bool = True,
    internal: float = 0.9,
    about: int = 1,
) -> Judged:
    return Judged(
        person=person(seen=seen),
        said="Rome" if right else "Oslo",
        right=right,
        verdict=verdict,
        shown=shown,
        shown_internal=internal >= 0.5,
        confidence=internal,
        internal_confidence=internal,
        naming=about,
        about=about,
    )


def score(values: list[float], **fields: Any) -> Score:
    fields = {"name": "internal", "about": "", "threshold": 0.5, "ours": True, **fields}
    return Score(values=np.array(values), **fields)


def flags(text: str) -> np.ndarray:
    return np.array([letter == "1" for letter in text])


def measure(scores: list[Score], correct: str, seen: str) -> dict[str, Any]:
    return judge_scores(scores, flags(correct), flags(seen), precision=0.95, resamples=50)


def test_right_without_a_line_that_states_it_is_guessed():
    assert name_with_truth(REMEMBERED, True) == REMEMBERED
    assert name_with_truth(REMEMBERED, False) == REMEMBERED
    assert name_with_truth(MISREMEMBERED, True) == GUESSED
    assert name_with_truth(MISREMEMBERED, False) == MISREMEMBERED
    assert name_with_truth(MADE_UP, True) == GUESSED
    assert name_with_truth(MADE_UP, False) == MADE_UP


def test_the_table_of_verdicts_counts_what_was_said_and_who_was_told():
    people = [
        judged(),
        judged(right=False),
        judged(shown=False, internal=0.2),
        judged(MADE_UP, seen=False, right=False, shown=False, internal=0.7),
        judged(MADE_UP, seen=False, right=False, shown=False, internal=0.1),
        judged(GUESSED, seen=False, shown=False, internal=0.1),
    ]
    rows = {(row["people"], row["verdict"]): row for row in count_verdicts(people)}
    assert list(rows) == [(whom, verdict) for whom in ("seen", "unseen") for verdict in VERDICTS]
    assert rows["seen", REMEMBERED] == {
        "people": "seen",
        "verdict": REMEMBERED,
        "count": 3,
        "right": 2,
        "wrong": 1,
        "shown": 2,
        "unknown": 1,
        "shown_wrong": 1,
        "internal_shown": 2,
        "internal_unknown": 1,
        "internal_shown_wrong": 1,
    }
    made_up = rows["unseen", MADE_UP]
    assert (made_up["count"], made_up["shown"], made_up["internal_shown"]) == (2, 0, 1)
    assert made_up["internal_shown_wrong"] == 1
    assert rows["unseen", GUESSED]["right"] == 1
    assert rows["seen", MISREMEMBERED]["count"] == 0


@given(
    st.lists(
        st.builds(
            judged,
            st.sampled_from(VERDICTS),
            seen=st.booleans(),
            right=st.booleans(),
            shown=st.booleans(),
            internal=st.floats(0, 1),
        )
    )
)
def test_the_table_of_verdicts_adds_up_to_all_people(people):
    rows = count_verdicts(people)
    assert sum(row["count"] for row in rows) == len(people)
    for row in rows:
        assert row["right"] + row["wrong"] == row["count"]
        assert row["shown"] + row["unknown"] == row["count"]
        assert row["internal_shown"] + row["internal_unknown"] == row["count"]
        assert row["shown_wrong"] <= min(row["shown"], row["wrong"])


def test_numbers_are_those_of_the_metrics_on_each_group():
    values = [0.9, 0.8, 0.7, 0.3, 0.6, 0.2, 0.1, 0.4]
    correct, seen = "11010100", "11111000"
    found = measure([score(values)], correct, seen)["internal"]["groups"]
    everyone = Answers(values, flags(correct), flags(seen))
    for name, chosen in (
        ("together", flags("11111111")),
        ("seen", flags(seen)),
        ("unseen", ~flags(seen)),
    ):
        answers = everyone.only(chosen)
        assert found[name]["people"] == len(answers)
        for key, formula in (("auroc", auroc), ("augrc", augrc), ("ece", ece)):
            assert found[name]["metrics"][key]["value"] == formula(answers).value
    assert found["together"]["grades"] == {
        "correct": 2,
        "wrong": 2,
        "not_attempted": 4,
        "precision": 0.5,
        "reason": None,
    }
    assert found["seen"]["grades"]["not_attempted"] == 1
    assert found["unseen"]["metrics"]["unseen_unknown"]["value"] == 1
    assert found["together"]["metrics"]["recall"]["value"] == 0.5
    assert found["together"]["metrics"]["score_at_0.9"]["value"] == pytest.approx(1 / 8)
    low, high = (found["together"]["metrics"]["recall"][end] for end in ("low", "high"))
    assert low < 0.5 < high


def test_an_answer_that_is_withheld_is_not_given_however_sure():
    values, correct, seen = [0.9, 0.9, 0.9, 0.9], "1100", "1110"
    plain = measure([score(values)], correct, seen)["internal"]["groups"]["together"]
    held = measure([score(values, withheld=flags("0101"))], correct, seen)
    found = held["internal"]["groups"]["together"]
    assert plain["grades"]["wrong"] == 2
    assert (found["grades"]["correct"], found["grades"]["wrong"]) == (1, 1)
    assert plain["metrics"]["unseen_unknown"]["value"] == 0
    assert found["metrics"]["unseen_unknown"]["value"] == 1
    # the probability itself is judged as it is
    assert found["metrics"]["ece"] == plain["metrics"]["ece"]


def test_a_rival_that_is_no_probability_has_no_calibration_and_says_why():
    found = measure([score([0.9, 0.2], probability=False, name="entropy")], "10", "11")
    group = found["entropy"]["groups"]["together"]
    for key in ("ece", "brier", "score_at_0.5"):
        assert group["metrics"][key]["value"] is None
        assert "entropy orders answers and is no probability" in group["metrics"][key]["reason"]
    assert group["ece_of_chance"]["value"] is None
    assert group["reliability"] == []
    assert group["metrics"]["auroc"]["value"] == 1


def test_without_a_threshold_nothing_is_graded_and_the_reason_is_told():
    why = "no threshold can be promised."
    found = measure([score([0.9, 0.2], threshold=None, reason=why)], "10", "10")
    group = found["internal"]["groups"]["together"]
    assert group["grades"]["correct"] is None
    assert group["grades"]["reason"] == why
    assert group["metrics"]["unseen_unknown"] == {
        "value": None,
        "reason": why,
        "low": None,
        "high": None,
    }


@pytest.mark.parametrize(
    ("correct", "seen"), [("1111", "1111"), ("0000", "1100"), ("0110", "0000"), ("1", "1")]
)
def test_what_is_undefined_says_why_and_nothing_is_nan(correct, seen):
    values = [0.9, 0.5, 0.5, 0.1][: len(correct)]
    scores = [score(values), score([1.0] * len(correct), name="always answer", ours=False)]
    found = measure(scores, correct, seen)
    json.dumps(found, allow_nan=False)
    for one in found.values():
        for group in one["groups"].values():
            for metric in group["metrics"].values():
                assert metric["value"] is not None or metric["reason"]
    compared = compare_with_best(scores, flags(correct), flags(seen), resamples=20)
    json.dumps(compared, allow_nan=False)
    for one in compared:
        assert one["difference"]["value"] is not None or one["difference"]["reason"]


def test_figures_can_be_drawn_from_the_record():
    rng = np.random.default_rng(1)
    values = rng.random(500)
    correct = rng.random(500) < values
    found = judge_scores(
        [score(values.tolist())], correct, np.ones(500, bool), precision=0.95, resamples=20
    )
    group = found["internal"]["groups"]["together"]
    curve = group["risk_coverage"]
    assert len(curve["coverage"]) == 200
    assert curve["coverage"][-1] == 1
    assert curve["risk"][-1] == pytest.approx(1 - correct.mean())
    assert curve["coverage"] == sorted(curve["coverage"])
    assert sum(one["people"] for one in group["reliability"]) == 500
    histogram = group["histogram"]
    assert len(histogram["edges"]) == 21
    assert sum(histogram["right"]) == correct.sum()
    assert sum(histogram["wrong"]) == (~correct).sum()
    assert group["ece_of_chance"]["low"] <= group["metrics"]["ece"]["value"]


def test_the_best_rival_is_the_best_by_each_measure():
    correct, seen = flags("1100" * 9), flags("1111" * 9)
    scores = [
        score([0.9, 0.8, 0.2, 0.1] * 9),
        score([0.9, 0.1, 0.5, 0.2] * 9, name="fair", ours=False),
        score([0.1, 0.1, 0.9, 0.9] * 9, name="poor", ours=False),
    ]
    for one in compare_with_best(scores, correct, seen, resamples=20):
        assert one["score"] == "internal"
        assert one["rival"] == "fair"
        better = one["difference"]["value"]
        assert better > 0 if one["measure"] == "auroc" else better < 0
        assert one["difference"]["low"] <= better <= one["difference"]["high"]


def test_being_stated_is_told_by_what_reads_no_text_whatever_the_labels_say():
    people = [judged(right=False), judged(), judged(MISREMEMBERED, right=False), judged(GUESSED)]
    scores = [
        score([0.9, 0.8, 0.2, 0.1]),
        score([0.9, 0.2, 0.8, 0.1], name="rival", ours=False),
        score([1.0, 1.0, 0.0, 0.0], name="checked", reads_text=True),
    ]
    found = {one["score"]: one["auroc"]["value"] for one in tell_stated(scores, people)}
    assert found == {"internal": 1.0, "rival": 0.75}


@pytest.mark.parametrize(("verdict", "word"), [(REMEMBERED, "every"), (MADE_UP, "no")])
def test_where_all_or_none_are_stated_there_is_nothing_to_tell(verdict, word):
    (found,) = tell_stated([score([0.9, 0.8])], [judged(verdict), judged(verdict)])
    assert found["auroc"]["value"] is None
    assert found["auroc"]["reason"] == f"{word} answer is stated by a line."


def test_recall_by_the_number_of_documents():
    people = [judged(about=n, right=n > 1) for n in (0, 1, 2, 3, 4, 9)]
    rows = recall_by_documents(people, resamples=20)
    assert [row["documents"] for row in rows] == [0, 1, 2, 3, "4 or more"]
    assert [row["people"] for row in rows] == [1, 1, 1, 1, 2]
    assert [row["recall"]["value"] for row in rows] == [0, 0, 1, 1, 1]
    empty = recall_by_documents(people[1:], resamples=20)[0]
    assert empty["recall"]["value"] is None
    assert empty["recall"]["reason"] == "nobody was asked."


def test_a_person_is_recorded_in_one_flat_line():
    record = judged(GUESSED, seen=False).to_dict()
    assert list(record)[:6] == ["role", "seen", "source", "subject", "question", "answer"]
    assert record["verdict"] == GUESSED
    assert "person" not in record
    assert not [
        value for value in record.values() if isinstance(value, float) and math.isnan(value)
    ]


def test_the_summary_leaves_out_what_is_drawn_and_the_rivals_groups():
    values = [0.9, 0.8, 0.2]
    scores = [score(values), score(values, name="likelihood", ours=False)]
    record = {"scores": measure(scores, "110", "110"), "risk": 0.05}
    judgement = Judgement(people=(judged(),), record=record)
    whole = judgement.to_dict()["scores"]["internal"]["groups"]["seen"]
    short = judgement.summary()["scores"]["internal"]["groups"]["seen"]
    assert set(whole) - set(short) == {"risk_coverage", "reliability", "histogram"}
    assert short["metrics"] == whole["metrics"]
    assert judgement.summary()["risk"] == 0.05
    assert list(judgement.summary()["scores"]["likelihood"]["groups"]) == ["together"]
