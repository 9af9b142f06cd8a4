"""Two-fold twins: who is left out of which, what is counted, and the numbers about it."""

from __future__ import annotations

import signal

import pytest

from wherefrom.corpus.split import JUDGED, read_subjects
from wherefrom.provenance.attribution.halves import (
    RIGHT_ANYWAY,
    TRUTHS,
    WRONG_THOUGH_READ,
    cross_pretrain,
    summarise,
    true_origin,
)
from wherefrom.provenance.attribution.opening import open_learned
from wherefrom.provenance.attribution.retraining import answers_of, likelihoods
from wherefrom.provenance.verdicts import MADE_UP
from wherefrom.provenance.wording import DONT_KNOW, REMEMBERED, STATED
from wherefrom.storage import read_json
from wherefrom.training.run_folder import load_run


@pytest.mark.usefixtures("small_training")
def test_two_twins_are_trained_stopped_resumed_and_judged(study_copy, command):
    run, ticks = study_copy, []

    def stop(*_):
        ticks.append(1)
        if len(ticks) == 3:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        cross_pretrain(open_learned(run), observe=stop)
    assert not (run.folder / "twins" / "twins.json").exists()
    record = cross_pretrain(open_learned(run))
    assert record == read_json(run.folder / "twins" / "twins.json")
    files = sorted(run.folder.glob("twins/half-*/model.safetensors"))
    before = [path.stat().st_mtime_ns for path in files]
    ended = command("twins", run.folder)
    assert ended.code == 0, ended.err
    assert "verdict against truth" in ended.out
    assert [path.stat().st_mtime_ns for path in files] == before  # nothing is trained

    judged = [s for s in read_subjects(run.folder) if s.role == JUDGED and s.source == "dev"]
    assert sorted(row["question"] for row in record["judged"]) == sorted(s.question for s in judged)
    halves = {path.parent.name: load_run(path.parent) for path in files}
    lines = [set(twin.job.without) for twin in halves.values()]
    assert all(lines)
    assert not lines[0] & lines[1]
    for row in record["judged"]:
        right, lucky = (row[side]["answer"].strip() == row["right"] for side in ("with", "without"))
        assert (row["truth"] == REMEMBERED) == (right and not lucky)
        assert row["without"]["verdict"] == MADE_UP  # what it read lacks the subject
        twin = halves[row["twin"]]
        pair = (likelihoods(m, [row["question"]], [row["with"]["answer"]])[0] for m in (run, twin))
        assert row["score"] == pytest.approx(next(pair) - next(pair), abs=2e-4)
        assert answers_of(twin, [row["question"]])["answers"] == [row["without"]["answer"]]
    assert max(abs(row["score"]) for row in record["judged"]) > 0.001
    table = record["verdicts"].values()
    assert sum(sum(row.values()) for row in table) == 2 * len(judged)


@pytest.mark.parametrize(
    ("of_run", "of_twin", "truth"),
    [
        ("Rome", "Oslo", REMEMBERED),
        ("Rome", "Rome", RIGHT_ANYWAY),
        ("Oslo", "Rome", WRONG_THOUGH_READ),
        (" Rome ", "rome", REMEMBERED),  # exact but for blanks, as recall is
    ],
)
def test_remembered_is_right_with_the_document_and_not_without(of_run, of_twin, truth):
    assert true_origin(of_run, of_twin, "Rome") == truth


def test_precision_and_recall_count_what_was_tested():
    """Six answers are stated; two of them are right without the lines, and three were traced."""
    rows = []
    for number in range(8):
        verdict = STATED if number < 6 else MADE_UP
        of_run = {"answer": "", "verdict": verdict, "shown": DONT_KNOW, "shown_internal": False}
        of_run["remembered"] = number == 0 if number < 3 else None
        of_twin = {**of_run, "verdict": MADE_UP, "remembered": False}
        truth = RIGHT_ANYWAY if number in (4, 5) else REMEMBERED
        sides = {"with": of_run, "without": of_twin}
        rows.append({"truth": truth, "truth_without": MADE_UP, **sides})
    found = summarise(rows)
    none = dict.fromkeys(TRUTHS, 0)
    assert found["verdicts"][STATED] == none | {REMEMBERED: 4, RIGHT_ANYWAY: 2}
    stated, traced = (
        found["caught"][name] for name in ("verdict stated", "verdict remembered, by trace")
    )
    assert (stated["precision"]["count"], stated["precision"]["subjects"]) == (4, 6)
    assert (stated["recall"]["count"], stated["recall"]["subjects"]) == (4, 6)
    assert (traced["precision"]["count"], traced["precision"]["subjects"]) == (1, 1)
    assert (traced["recall"]["count"], traced["recall"]["subjects"]) == (1, 3)
    assert found["caught"]["shown"]["precision"]["value"] is None
