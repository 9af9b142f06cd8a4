"""A run judged by subjects kept for it: on made-up subjects, and on a study that knows nothing."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from wherefrom.corpus.subjects import (
    CALIBRATION,
    JUDGED,
    SET_ASIDE,
    Subject,
    read_subjects,
    write_subjects,
)
from wherefrom.errors import UserError
from wherefrom.provenance import judging, metrics
from wherefrom.provenance.confidence.fit import Confidence
from wherefrom.provenance.judging import (
    RIVALS,
    SUPPORT,
    VERDICTS,
    Judged,
    Score,
    count_verdicts,
    judge_run,
    measure_scores,
    name_with_truth,
    require_evidence,
    rival_scores,
    write_judgement,
)
from wherefrom.provenance.metrics import (
    Answers,
    Bootstrap,
    augrc,
    auroc,
    ece,
)
from wherefrom.provenance.verdicts import (
    GUESSED,
    MADE_UP,
    STATED,
    Verdict,
    give_verdicts,
)
from wherefrom.recall.decode import answer_all
from wherefrom.training.run_folder import Run, load_run

FEW = {"resamples": 20}


def judged(verdict: str = STATED, **fields: Any) -> Judged:
    """Said to be remembered, right, and shown; `internal` is both confidences."""
    values = {"seen": True, "right": True, "shown": True, "internal": 0.9, "about": 1, **fields}
    right, internal, about = values["right"], values["internal"], values["about"]
    return Judged(
        *("judged", values["seen"], "dev", "Ann Clark", "Where was Ann Clark born?", "Rome", ""),
        *("Rome" if right else "Oslo", right, verdict, values["shown"], internal >= 0.5),
        *(internal, internal, about, about, verdict == STATED),
    )


def score(values: list[float], **fields: Any) -> Score:
    fields = {"name": "internal", "about": "", "threshold": 0.5, "ours": True, **fields}
    return Score(values=np.array(values), given=np.array(values) >= 0.5, **fields)


def flags(text: str) -> np.ndarray:
    return np.array([letter == "1" for letter in text])


def measure(scores: list[Score], correct: str, seen: str, **more: Any) -> dict[str, Any]:
    people = [judged(right=r == "1", seen=s == "1") for r, s in zip(correct, seen, strict=True)]
    return measure_scores(scores, people, precision=0.95, bootstrap=Bootstrap(50, 0.95, (0, 0)))


def test_the_table_of_verdicts_counts_what_was_said_and_what_is_shown():
    people = [
        judged(),
        judged(right=False),
        judged(shown=False, internal=0.2),
        judged(MADE_UP, seen=False, right=False, shown=False, internal=0.7),
        judged(MADE_UP, seen=False, right=False, shown=False, internal=0.1),
        judged(GUESSED, seen=False, shown=False, internal=0.1),
    ]
    rows = {(row["subjects"], row["verdict"]): row for row in count_verdicts(people)}
    assert list(rows) == [(whom, verdict) for whom in ("seen", "unseen") for verdict in VERDICTS]
    counts = {"count": 3, "right": 2, "wrong": 1, "shown": 2, "unknown": 1, "shown_wrong": 1}
    internal = {"internal_shown": 2, "internal_unknown": 1, "internal_shown_wrong": 1}
    whom = {"subjects": "seen", "verdict": STATED}
    assert rows["seen", STATED] == {**whom, **counts, **internal}
    made_up = rows["unseen", MADE_UP]
    assert (made_up["count"], made_up["shown"], made_up["internal_shown"]) == (2, 0, 1)
    assert made_up["internal_shown_wrong"] == 1
    assert rows["unseen", GUESSED]["right"] == 1
    assert sum(row["count"] for row in rows.values()) == len(people)


def test_numbers_are_those_of_the_metrics_on_each_group():
    values = [0.9, 0.8, 0.7, 0.3, 0.6, 0.2, 0.1, 0.4]
    correct, seen = "11010100", "11111000"
    found = measure([score(values)], correct, seen)["scores"]["internal"]["groups"]
    everyone = Answers(values, flags(correct), flags(seen))
    for name, chosen in (
        ("together", flags("11111111")),
        ("seen", flags(seen)),
        ("unseen", ~flags(seen)),
    ):
        answers = everyone.select(chosen)
        assert found[name]["subjects"] == len(answers)
        for key, formula in (("auroc", auroc), ("augrc", augrc), ("ece", ece)):
            assert (
                found[name]["metrics"][key]["value"] == metrics.measure(formula, answers)["value"]
            )
    together = found["together"]
    grades = {"correct": 2, "wrong": 2, "not_attempted": 4, "precision": 0.5, "reason": None}
    assert together["grades"] == grades
    assert found["seen"]["grades"]["not_attempted"] == 1
    assert found["unseen"]["metrics"]["unseen_unknown"]["value"] == 1
    recall = together["metrics"]["recall"]
    assert recall["low"] < recall["value"] == 0.5 < recall["high"]


@pytest.mark.parametrize(
    ("correct", "seen"), [("1111", "1111"), ("0000", "1100"), ("0110", "0000"), ("1", "1")]
)
def test_what_is_undefined_says_why_and_nothing_is_nan(correct, seen):
    values = [0.9, 0.5, 0.5, 0.1][: len(correct)]
    scores = [score(values), score([1.0] * len(correct), name="always answer", ours=False)]
    found = measure(scores, correct, seen)
    json.dumps(found, allow_nan=False)
    for one in found["scores"].values():
        for group in one["groups"].values():
            for metric in group["metrics"].values():
                assert metric["value"] is not None or metric["reason"]
    for one in found["against_the_best"]:
        assert one["difference"]["value"] is not None or one["difference"]["reason"]


def test_each_rival_is_tuned_on_the_calibration_subjects_with_the_same_guarantee():
    rng = np.random.default_rng(0)
    right = rng.random(400) < 0.7
    people = [
        Subject(CALIBRATION, bool(seen), SET_ASIDE, f"Ann {at}", f"{at}?", "Rome", "")
        for at, seen in enumerate(right | (rng.random(400) < 0.3))  # no unseen one is right
    ]
    known = {
        "log_probability": np.where(right, -0.1, -2.0) + 0.05 * rng.normal(size=400),
        "entropy": np.where(right, 0.1, 2.0),
        "country_entropy": np.full(400, np.nan),
        SUPPORT: np.ones(400),
    }
    asked = {name: np.array([low, high]) for name, low, high in (
        ("log_probability", -2.0, -0.1), ("entropy", 2.0, 0.1), ("country_entropy", 1.0, 0.5),
        (SUPPORT, 0, 3))}  # fmt: skip
    found = {
        one.name: one
        for one in rival_scores(RIVALS, asked, known, people, right, risk=0.05, delta=0.05)
    }
    known = ("greedy likelihood", "predictive entropy", "name support")
    assert [name for name in RIVALS if name in found] == [*known]  # the others are not known
    for name in ("greedy likelihood", "predictive entropy"):
        unlikely, likely = found[name].values
        assert unlikely < found[name].threshold <= likely
        assert found[name].reason is None
    # what does not vary tells nothing: everybody gets the same
    assert found["name support"].values[0] == found["name support"].values[1]
    assert "can guarantee" in found["name support"].reason


@pytest.fixture
def own(tiny_study: Path, tmp_path: Path) -> Run:
    """A copy to be changed."""
    return load_run(shutil.copytree(tiny_study, tmp_path / "run"))


def test_the_judged_subjects_are_judged_and_nobody_else(tiny_study: Path) -> None:
    run, people = load_run(tiny_study), read_subjects(tiny_study)
    judgement = judge_run(run, **FEW)
    expected = [subject for subject in people if subject.role == JUDGED]
    assert [one.subject for one in judgement.subjects] == [subject.subject for subject in expected]
    calibrating = {subject.subject for subject in people if subject.role == CALIBRATION}
    assert calibrating
    assert calibrating.isdisjoint(one.subject for one in judgement.subjects)
    record = judgement.record
    assert record["subjects"] == {
        "judged": len(expected),
        "seen": sum(subject.seen for subject in expected),
        "unseen": sum(not subject.seen for subject in expected),
        "calibration": sum(subject.role == CALIBRATION for subject in people),
    }
    assert list(record["scores"])[:3] == ["internal", "checked", "always answer"]
    assert "name support" in record["scores"]
    again = judge_run(run, **FEW).record
    assert json.dumps(record, allow_nan=False) == json.dumps(again, allow_nan=False)
    # what was said is what the model says, right is exact, and a record is one flat line
    said = answer_all(run.model, run.tokens, [subject.question for subject in expected])
    assert [one.said for one in judgement.subjects] == [answer.text.strip() for answer in said]
    assert list(asdict(judgement.subjects[0]))[:8] == [*vars(expected[0]), "said"]
    with require_evidence(run) as evidence:
        for one in judgement.subjects:
            assert one.right == (one.said == one.answer)
            count = evidence.count(one.subject)
            assert (one.naming, one.about) == (count.naming, count.about)
            assert one.shown <= (one.verdict == STATED)


def test_the_numbers_are_those_of_these_subjects_at_this_risk(
    own: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The little model knows nothing and is as sure of all: so both are made up here."""
    said = {one.subject: one.said for one in judge_run(own, **FEW).subjects}
    people = [
        replace(person, answer=said[person.subject])
        if person.subject in said and number % 2
        else person
        for number, person in enumerate(read_subjects(own.folder))
    ]
    write_subjects(own.folder, people)

    def unevenly_sure(*arguments: Any, **options: Any) -> list[Verdict]:
        given = give_verdicts(*arguments, **options)
        steps = np.linspace(0, 1, len(given))
        return [
            replace(one, right={**one.right, "internal": sure})
            for one, sure in zip(given, steps, strict=True)
        ]

    def guarantee(confidence: Confidence, target: str, mode: str, *_: Any) -> Any:
        known = confidence.policies["right"]["internal"].guarantee
        return replace(known, threshold=0.5 if mode == "checked" else 0.6)

    monkeypatch.setattr(judging, "give_verdicts", unevenly_sure)
    monkeypatch.setattr(Confidence, "guarantee", guarantee)
    judgement = judge_run(own, risk=0.6, **FEW)
    found, scores = judgement.subjects, judgement.record["scores"]
    assert [one.shown_internal for one in found] == [one.internal_from_text >= 0.6 for one in found]
    assert (scores["internal"]["threshold"], scores["checked"]["threshold"]) == (0.6, 0.5)
    for mode, key in (("checked", "shown"), ("internal", "shown_internal")):
        grades = scores[mode]["groups"]["together"]["grades"]
        assert 0 < grades["not_attempted"] == sum(not getattr(one, key) for one in found)
    policy = judgement.record["targets"]["right"]["internal"]
    given = [one for one in found if one.internal_confidence >= 0.6]
    assert policy["missed"]["subjects"] == len(given)
    assert policy["missed"]["count"] == sum(not one.right for one in given)
    assert {one["score"] for one in judgement.record["stated"]} >= {"internal"}
    assert "checked" not in {one["score"] for one in judgement.record["stated"]}
    # right without a line that states it is guessed, and nothing else is
    assert {one.verdict for one in found if one.right} <= {GUESSED, STATED}
    assert GUESSED not in {one.verdict for one in found if not one.right}
    assert [name_with_truth(MADE_UP, right) for right in (True, False)] == [GUESSED, MADE_UP]


def test_everything_is_written_into_the_run(own: Run) -> None:
    before = json.loads((own.folder / "run.json").read_text("utf-8"))
    judgement = judge_run(own, **FEW)
    write_judgement(own, judgement)
    lines = (own.folder / "judged.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [asdict(one) for one in judgement.subjects]
    assert json.loads((own.folder / "judgement.json").read_text("utf-8")) == judgement.record
    after = json.loads((own.folder / "run.json").read_text("utf-8"))
    assert after.pop("judgement") == judgement.summary()
    before.pop("judgement", None)
    assert after == before


def test_a_run_without_people_confidence_or_judged_ones_is_told_so(own: Run) -> None:
    people = read_subjects(own.folder)
    write_subjects(own.folder, [replace(person, role=CALIBRATION) for person in people])
    with pytest.raises(UserError, match="nothing to be judged by"):
        judge_run(own, **FEW)
    (own.folder / "subjects.jsonl").unlink()
    with pytest.raises(UserError, match=r"subjects\.jsonl does not exist"):
        judge_run(own, **FEW)
    (own.folder / "calibration.json").unlink()
    with pytest.raises(UserError, match=r"holds no calibration\.json"):
        judge_run(own, **FEW)
