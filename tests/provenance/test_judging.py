"""A run judged by subjects kept for it: on made-up subjects, and on a study that knows nothing."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from wherefrom.corpus.split import (
    CALIBRATION,
    JUDGED,
    SET_ASIDE,
    HeldOutQuestion,
    read_subjects,
    write_subjects,
)
from wherefrom.errors import UserError
from wherefrom.provenance import after_training, judging, metrics
from wherefrom.provenance.answers import read_judged
from wherefrom.provenance.confidence.fit import Confidence, load_confidence
from wherefrom.provenance.judging import VERDICTS, judge_run
from wherefrom.provenance.metrics import Bootstrap, ScoredAnswers
from wherefrom.provenance.rivals import Score, rival_scores
from wherefrom.provenance.signals.reader import RIVALS, SUPPORT
from wherefrom.provenance.verdicts import GUESSED, MADE_UP, AskedRun
from wherefrom.provenance.wording import STATED
from wherefrom.recall.decode import answer_all
from wherefrom.storage import sha256_of
from wherefrom.training.record import update_database
from wherefrom.training.run_folder import load_run

FEW = {"resamples": 20}


def judged(verdict=STATED, *, seen=True, right=True, shown=True, internal=0.9):
    """Said to be stated, right, and shown; `internal` is the confidence."""
    return {
        "template": "",
        "answer": "Rome",
        "seen": seen,
        "right": right,
        "verdict": verdict,
        "shown": shown,
        "shown_internal": internal >= 0.5,
        "in_text": verdict == STATED,
        "about": 1,
    }


def score(values, name="internal", *, ours=True):
    values = np.array(values)
    return Score(name, "", values, values >= 0.5, ours=ours)


def flags(text):
    return np.array([letter == "1" for letter in text])


def measure(scores, correct, seen):
    people = [judged(right=r == "1", seen=s == "1") for r, s in zip(correct, seen, strict=True)]
    bootstrap = Bootstrap(50, 0.95, (0, 0))
    return judging.measure_scores(scores, people, precision=0.95, bootstrap=bootstrap)


def test_the_table_of_verdicts_counts_what_was_said_and_what_is_shown():
    unseen = {"seen": False, "shown": False}
    people = [
        judged(),
        judged(right=False),
        judged(shown=False, internal=0.2),
        judged(MADE_UP, **unseen, right=False, internal=0.7),
        judged(MADE_UP, **unseen, right=False, internal=0.1),
        judged(GUESSED, **unseen, internal=0.1),
    ]
    rows = {(row["subjects"], row["verdict"]): row for row in judging.count_verdicts(people)}
    assert list(rows) == [(whom, verdict) for whom in ("seen", "unseen") for verdict in VERDICTS]
    assert rows["seen", STATED] == {
        "subjects": "seen",
        "verdict": STATED,
        "count": 3,
        "right": 2,
        "wrong": 1,
        "shown": 2,
        "internal_shown": 2,
    }
    made_up = rows["unseen", MADE_UP]
    assert (made_up["count"], made_up["shown"], made_up["internal_shown"]) == (2, 0, 1)
    assert rows["unseen", GUESSED]["right"] == 1
    assert sum(row["count"] for row in rows.values()) == len(people)


def test_numbers_are_those_of_the_metrics_on_each_group():
    values = [0.9, 0.8, 0.7, 0.3, 0.6, 0.2, 0.1, 0.4]
    correct, seen = "11010100", "11111000"
    found = measure([score(values)], correct, seen)["scores"]["internal"]["groups"]
    everyone = ScoredAnswers(values, flags(correct), flags(seen))
    for name, key, answers in (
        ("together", "auroc", everyone),
        ("together", "augrc", everyone),
        ("together", "ece", everyone),
        ("seen", "auroc", everyone.select(flags(seen))),
    ):
        expected = metrics.measure(getattr(metrics, key), answers)["value"]
        assert found[name]["metrics"][key]["value"] == expected
    grades = {"correct": 2, "wrong": 2, "not_attempted": 4, "precision": 0.5, "reason": None}
    assert found["together"]["grades"] == grades
    assert found["seen"]["grades"]["not_attempted"] == 1
    assert found["unseen"]["metrics"]["unseen_unknown"]["value"] == 1
    recall = found["together"]["metrics"]["recall"]
    assert recall["low"] < recall["value"] == 0.5 < recall["high"]


@pytest.mark.parametrize(
    ("correct", "seen"), [("1111", "1111"), ("0000", "1100"), ("0110", "0000"), ("1", "1")]
)
def test_what_is_undefined_says_why_and_nothing_is_nan(correct, seen):
    values = [0.9, 0.5, 0.5, 0.1][: len(correct)]
    scores = [score(values), score([1.0] * len(correct), "always answer", ours=False)]
    found = measure(scores, correct, seen)
    json.dumps(found, allow_nan=False)
    groups = [group for one in found["scores"].values() for group in one["groups"].values()]
    numbers = [metric for group in groups for metric in group["metrics"].values()]
    for metric in numbers:
        assert metric["value"] is not None or metric["reason"]


def test_each_rival_is_tuned_on_the_calibration_subjects_with_the_same_guarantee():
    rng = np.random.default_rng(0)
    right = rng.random(400) < 0.7
    people = [
        HeldOutQuestion(CALIBRATION, bool(seen), SET_ASIDE, f"Ann {at}", f"{at}?", "Rome", "")
        for at, seen in enumerate(right | (rng.random(400) < 0.3))  # no unseen one is right
    ]
    known = {
        "log_probability": np.where(right, -0.1, -2.0) + 0.05 * rng.normal(size=400),
        SUPPORT: np.ones(400),
    }
    ends = {"log_probability": (-2.0, -0.1)}
    asked = {name: np.array(pair) for name, pair in {**ends, SUPPORT: (0, 3)}.items()}
    scores = rival_scores(RIVALS, asked, known, people, right, risk=0.05)
    found = {one.name: one for one in scores}
    assert list(found) == ["greedy likelihood", "name support"]
    for one in scores[:1]:
        assert one.values[0] < one.threshold <= one.values[1]
        assert one.given.tolist() == [False, True]
        assert one.reason is None
    # what does not vary tells nothing: everybody gets the same
    assert len(set(found["name support"].values)) == 1
    assert "can guarantee" in found["name support"].reason


@pytest.fixture
def own(tiny_study, tmp_path):
    """A copy to be changed."""
    return load_run(shutil.copytree(tiny_study, tmp_path / "run"))


def test_the_judged_subjects_are_judged_and_nobody_else_and_all_is_written(own):
    people = read_subjects(own.folder)
    judgement = judge_run(own, **FEW)
    record, expected = judgement.record, [subject for subject in people if subject.role == JUDGED]
    assert [row["subject"] for row in judgement.rows] == [one.subject for one in expected]
    assert record["subjects"] == {
        "judged": len(expected),
        "seen": sum(subject.seen for subject in expected),
        "unseen": sum(not subject.seen for subject in expected),
        "calibration": sum(subject.role == CALIBRATION for subject in people),
    }
    assert record["subjects"]["calibration"] > 0
    assert list(record["scores"])[:3] == ["internal", "checked", "always answer"]
    assert "name support" in record["scores"]
    said = answer_all(own.model, own.tokens, [subject.question for subject in expected])
    assert [row["said"] for row in judgement.rows] == [answer.text.strip() for answer in said]
    with judging.require_evidence(own) as evidence:
        for row in judgement.rows:
            assert row["right"] == (row["said"] == row["answer"])
            assert (row["naming"], row["about"]) == evidence.count(row["subject"])
            assert row["shown"] <= (row["verdict"] == STATED)
    before = json.loads((own.folder / "run.json").read_text("utf-8"))
    judging.write_judgement(own, judge_run(own, **FEW))  # again, and the same
    rows = {row["question"]: row for row in read_judged(own.folder)}
    assert len(rows) == len(judgement.rows)
    for row in judgement.rows:
        assert row.items() <= rows[row["question"]].items()
    assert json.loads((own.folder / "judgement.json").read_text("utf-8")) == record
    after = json.loads((own.folder / "run.json").read_text("utf-8"))
    changed = {key for key in after if after[key] != before[key]}
    assert changed == {"judgement", "files", "checksum"}
    assert after["judgement"] == judgement.summary()
    assert after["files"]["run.sqlite"] == sha256_of(own.folder / "run.sqlite")


def test_the_numbers_are_those_of_these_subjects_at_this_risk(own, monkeypatch):
    """The little model knows nothing and is as sure of all: so both are made up here."""
    said = {row["subject"]: row["said"] for row in judge_run(own, **FEW).rows}
    people = [
        replace(one, answer=said[one.subject]) if one.subject in said and number % 2 else one
        for number, one in enumerate(read_subjects(own.folder))
    ]
    update_database(own.folder, lambda database: write_subjects(database, people))

    give_verdicts = AskedRun.give_verdicts

    def unevenly_sure(*arguments):
        given = give_verdicts(*arguments)
        pairs = zip(given, np.linspace(0, 1, len(given)), strict=True)
        return [replace(one, right={**one.right, "internal": sure}) for one, sure in pairs]

    monkeypatch.setattr(AskedRun, "give_verdicts", unevenly_sure)
    known = load_confidence(own).policies["right"]["internal"].guarantee
    monkeypatch.setattr(Confidence, "guarantee", lambda *_: replace(known, threshold=0.6))
    judgement = judge_run(own, risk=0.6, **FEW)
    found, scores = judgement.rows, judgement.record["scores"]
    for mode, key in (("checked", "shown"), ("internal", "shown_internal")):  # as `ask` shows
        assert scores[mode]["threshold"] == 0.6
        grades = scores[mode]["groups"]["together"]["grades"]
        assert 0 < grades["not_attempted"] == sum(not row[key] for row in found)
    missed = judgement.record["targets"]["right"]["internal"]["missed"]
    given = [row for row in found if row["internal_confidence"] >= 0.6]
    expected = (len(given), sum(not row["right"] for row in given))
    assert (missed["subjects"], missed["count"]) == expected
    # right without a line that states it is guessed, and nothing else is
    assert {row["verdict"] for row in found if row["right"]} <= {GUESSED, STATED}
    assert GUESSED not in {row["verdict"] for row in found if not row["right"]}


def test_a_run_without_people_confidence_or_judged_ones_is_told_so(own):
    people = read_subjects(own.folder)
    calibrating = [replace(person, role=CALIBRATION) for person in people]
    update_database(own.folder, lambda database: write_subjects(database, calibrating))
    for file, said in (
        ("calibration.json", "no held-out questions to judge"),
        ("judgement.json", r"calibration\.json is missing"),
    ):
        with pytest.raises(UserError, match=said):
            judge_run(own, **FEW)
        (own.folder / file).unlink()


def test_how_long_a_stage_still_takes_is_said_every_few_seconds(monkeypatch):
    said, now = [], [100.0]
    monkeypatch.setattr(after_training.time, "monotonic", lambda: now[0])
    estimate = after_training.TimeLeft("asked", 1000, said.append)
    for seconds, people in ((1, 100), (1, 100), (0, 100), (2, 100), (2, 600)):
        now[0] += seconds
        estimate(people)
    assert said == [  # 200 in 2 s
        "asked 200 of 1,000 questions, about 8 s left",
        "asked 400 of 1,000 questions, about 6 s left",
    ]
