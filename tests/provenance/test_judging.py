"""A run judged by people kept for it: a study so small that it knows nothing, and says so."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from wherefrom.corpus.documents import read_documents
from wherefrom.corpus.questions import read_questions
from wherefrom.corpus.subjects import CALIBRATION, JUDGED, read_subjects, write_subjects
from wherefrom.errors import UserError
from wherefrom.provenance.confidence.fit import load_confidence
from wherefrom.provenance.judging import judge as judging
from wherefrom.provenance.judging.judge import (
    judge_run,
    require_evidence,
    trained_questions,
    write_judgement,
)
from wherefrom.provenance.judging.metrics import Answers, right_given_at_precision
from wherefrom.provenance.names import probe_run, write_origins
from wherefrom.provenance.verdicts import Threshold, Verdict, give_verdicts
from wherefrom.recall.decode import answer_all
from wherefrom.study import embedded_files, run_study
from wherefrom.training.recipes import Budget, load_recipe
from wherefrom.training.run_folder import Run, load_run
from wherefrom.training.settings import Settings

FEW = {"resamples": 20}


@pytest.fixture(scope="module")
def studied(tmp_path_factory: pytest.TempPathFactory, quick_recipe: Path) -> Path:
    """A finished study of a few people; tests read it and leave it as it is."""
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("judged") / "run"
    files = embedded_files(out / "world", people=60, seed=2)
    settings = Settings(recipe=load_recipe(str(quick_recipe)), budget=Budget(steps=20), seed=2)
    run_study(files, settings, out, set_aside=0.3)
    return out


@pytest.fixture
def own(studied: Path, tmp_path: Path) -> Run:
    """A copy to be changed."""
    return load_run(shutil.copytree(studied, tmp_path / "run"))


def test_the_judged_people_are_judged_and_nobody_else(studied: Path) -> None:
    run = load_run(studied)
    people = read_subjects(studied)
    judgement = judge_run(run, **FEW)
    expected = [person for person in people if person.role == JUDGED]
    assert [one.person for one in judgement.people] == expected
    calibrating = {person.subject for person in people if person.role == CALIBRATION}
    assert calibrating
    assert calibrating.isdisjoint(one.person.subject for one in judgement.people)
    record = judgement.to_dict()
    assert record["people"] == {
        "judged": len(expected),
        "seen": sum(person.seen for person in expected),
        "unseen": sum(not person.seen for person in expected),
        "calibration": len(calibrating),
    }
    assert list(record["scores"])[:3] == ["internal", "checked", "always answer"]
    assert "name support" in record["scores"]


def test_what_was_said_is_what_the_model_says_and_right_is_exact(studied: Path) -> None:
    run = load_run(studied)
    judgement = judge_run(run, **FEW)
    questions = [one.person.question for one in judgement.people]
    said = [answer.text.strip() for answer in answer_all(run.model, run.tokens, questions)]
    assert [one.said for one in judgement.people] == said
    with require_evidence(run) as evidence:
        for one in judgement.people:
            assert one.right == (one.said == one.person.answer)
            assert one.naming == evidence.count(one.person.subject).naming
            assert one.about == evidence.count(one.person.subject).about
            assert one.shown <= (one.verdict == "remembered")


def test_a_judgement_is_plain_json_and_the_same_every_time(studied: Path) -> None:
    run = load_run(studied)
    first, second = (json.dumps(judge_run(run, **FEW).to_dict(), allow_nan=False) for _ in range(2))
    assert first == second


def test_another_risk_is_another_promise_and_another_precision(studied: Path) -> None:
    run = load_run(studied)
    assert judge_run(run, **FEW).record["risk"] == load_confidence(run).internal.guarantee.risk
    record = judge_run(run, risk=0.3, **FEW).record
    assert record["guarantees"]["internal"]["risk"] == 0.3
    assert record["guarantees"]["checked"]["risk"] == 0.3
    assert record["precision"] == 0.7
    unpromised = [note for note in record["notes"] if "no threshold can promise" in note]
    assert all("at most 30.0% wrong" in note for note in unpromised)
    with pytest.raises(UserError, match="risk must lie between 0 and 1"):
        judge_run(run, risk=1.5, **FEW)


def test_the_numbers_are_those_of_these_people_at_this_risk(
    studied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The little model knows nothing and is as sure of all: so both are made up here."""
    run = load_run(studied)
    said = {one.person.subject: one.said for one in judge_run(run, **FEW).people}
    people = [
        replace(person, answer=said[person.subject])
        if person.subject in said and number % 2
        else person
        for number, person in enumerate(read_subjects(studied))
    ]

    def unevenly_sure(*arguments: Any, **options: Any) -> list[Verdict]:
        given = give_verdicts(*arguments, **options)
        given[0] = replace(given[0], signals={**given[0].signals, "entropy": None})
        steps = np.linspace(0, 1, len(given))
        return [
            replace(one, internal_confidence=sure) for one, sure in zip(given, steps, strict=True)
        ]

    monkeypatch.setattr(judging, "give_verdicts", unevenly_sure)
    thresholds = {False: 0.3, True: 0.0}
    monkeypatch.setattr(
        judging, "find_threshold", lambda *_, checked: Threshold(thresholds[checked], None)
    )
    judgement = judge_run(run, people=people, risk=0.6, **FEW)
    judged, scores = judgement.people, judgement.record["scores"]
    assert [one.shown_internal for one in judged] == [
        one.internal_confidence >= 0.3 for one in judged
    ]
    assert (scores["internal"]["threshold"], scores["checked"]["threshold"]) == (0.3, 0.0)
    grades = scores["checked"]["groups"]["together"]["grades"]
    withheld = sum(one.verdict != "remembered" for one in judged)
    assert 0 < grades["not_attempted"] == withheld
    assert {"internal"} == {"internal", "checked"} & {
        one["score"] for one in judgement.record["stated"]
    }
    unknown = "predictive entropy is unknown for 1 answers and least sure of those."
    assert unknown in judgement.record["notes"]
    assert {one.verdict for one in judged if one.right} == {"guessed"}
    assert "guessed" not in {one.verdict for one in judged if not one.right}
    right = [one.right for one in judged]
    answers = Answers([one.internal_confidence for one in judged], right)
    expected = right_given_at_precision(0.4)(answers).value
    assert expected != right_given_at_precision(0.95)(answers).value
    found = scores["internal"]["groups"]["together"]["metrics"]["right_given_at_precision"]
    assert found["value"] == pytest.approx(expected)


def test_the_floor_counts_the_documents_that_were_read(studied: Path) -> None:
    record = judge_run(load_run(studied), **FEW).record
    subjects = [d.subject for d in read_documents(studied / "world" / "documents.txt").documents]
    counts = Counter(subjects)
    singletons = sum(counts[subject] == 1 for subject in subjects) / len(subjects)
    miscalibration = record["scores"]["internal"]["groups"]["together"]["metrics"]["ece"]["value"]
    assert record["open_world_floor"]["value"] == pytest.approx(singletons - miscalibration)


def test_everything_is_written_into_the_run(own: Run) -> None:
    before = json.loads((own.folder / "run.json").read_text("utf-8"))
    judgement = judge_run(own, **FEW)
    write_judgement(own, judgement)
    lines = (own.folder / "judged.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [one.to_dict() for one in judgement.people]
    assert json.loads((own.folder / "judgement.json").read_text("utf-8")) == judgement.to_dict()
    after = json.loads((own.folder / "run.json").read_text("utf-8"))
    assert after.pop("judgement") == judgement.summary()
    before.pop("judgement", None)
    assert after == before


def test_a_run_without_people_confidence_or_judged_ones_is_told_so(own: Run) -> None:
    people = read_subjects(own.folder)
    write_subjects(own.folder, [replace(person, role=CALIBRATION) for person in people])
    with pytest.raises(UserError, match="nobody to be judged by"):
        judge_run(own, **FEW)
    (own.folder / "subjects.jsonl").unlink()
    with pytest.raises(UserError, match=r"subjects\.jsonl does not exist"):
        judge_run(own, **FEW)
    (own.folder / "calibration.json").unlink()
    with pytest.raises(UserError, match=r"holds no calibration\.json"):
        judge_run(own, **FEW)


def test_the_trained_questions_are_those_of_nobody_dealt_out(own: Run) -> None:
    path = own.folder / "world" / "train.tsv"
    # the copy was moved: its questions are found in the world that it took along
    asked = trained_questions(own)
    dealt = {person.subject for person in read_subjects(own.folder)}
    everybody = read_questions(path).questions
    assert [question.text for question in asked] == [
        question.text for question in everybody if question.subject not in dealt
    ]
    assert len(asked) < len(everybody)
    own.info["left_out"] = [asked[0].subject.upper()]
    assert trained_questions(own) == asked[1:]
    own.info["data"]["questions"]["path"] = "/nowhere/else.tsv"
    with pytest.raises(UserError, match="is not there any more"):
        trained_questions(own)
    own.info["data"]["questions"]["path"] = str(path)
    path.write_text("Where was Ann Clark born?\tRome\n", "utf-8")
    with pytest.raises(UserError, match="has changed since"):
        trained_questions(own)


def test_names_it_never_saw_are_probed_and_recorded(own: Run) -> None:
    record = probe_run(own, each=2)
    write_origins(own, record)
    assert json.loads((own.folder / "origins.json").read_text("utf-8")) == record
    # chars tokens: names with letters that the text does not have are not asked about
    assert 30 < record["names"] <= 78
    assert len(record["matrix"]) == len(record["origins"])
    assert all(len(row) == len(record["countries"]) for row in record["matrix"])
    assert all(sum(row) == pytest.approx(1) for row in record["matrix"])
    assert len(record["sentences"]) >= 3
    with require_evidence(own) as evidence:
        examples = [one["name"] for row in record["by_origin"] for one in row["examples"]]
        assert len(examples) == record["names"]
        assert not any(evidence.count(name).naming for name in examples)


def test_a_probe_needs_a_wording_and_some_names(own: Run) -> None:
    with pytest.raises(UserError, match="1 to 500 names of each origin"):
        probe_run(own, each=0)
    own.info["template"] = None
    with pytest.raises(UserError, match="share no wording"):
        probe_run(own, each=2)
