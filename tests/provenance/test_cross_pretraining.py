"""Two-fold twins: who is left out of which, what is counted, and the numbers about it."""

from __future__ import annotations

import signal

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score

from wherefrom.corpus.split import JUDGED, read_subjects
from wherefrom.provenance.attribution import twins
from wherefrom.provenance.attribution.retraining import likelihoods, outcome
from wherefrom.provenance.attribution.twins import cross_pretrain, summarise, true_origin
from wherefrom.provenance.verdicts import GUESSED, MADE_UP
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
        cross_pretrain(run, observe=stop)
    assert not (run.folder / "twins" / "twins.json").exists()
    record = cross_pretrain(run)
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
        (log_p,) = likelihoods(twin, [row["question"]], [row["with"]["answer"]])
        assert row["without"]["log_probability_of_with"] == pytest.approx(log_p, abs=1e-4)
        gap = row["with"]["log_probability_of_with"] - log_p
        assert row["score"] == pytest.approx(gap, abs=2e-4)
        assert outcome(twin, [row["question"]])["answers"] == [row["without"]["answer"]]
    assert max(abs(row["score"]) for row in record["judged"]) > 0.001
    for table in (record["verdicts"], record["internal"]):
        assert sum(sum(row.values()) for row in table.values()) == 2 * len(judged)


@pytest.mark.parametrize(
    ("reader", "other", "truths"),
    [
        ("Rome", "Oslo", (REMEMBERED, MADE_UP)),
        ("Rome", "Rome", (twins.RIGHT_ANYWAY, GUESSED)),
        ("Oslo", "Rome", (twins.WRONG, GUESSED)),
        ("Oslo", "Oslo", (twins.WRONG, MADE_UP)),
        (" Rome ", "rome", (REMEMBERED, MADE_UP)),  # exact but for blanks, as recall is
    ],
)
def test_remembered_is_right_with_the_document_and_not_without(reader, other, truths):
    assert true_origin(reader, other, "Rome") == truths


def make_row(read, unread, push, x, y):
    """The right answer is Rome; x and y are the cheap scores of the two answers."""
    truth, without = true_origin(read, unread, "Rome")
    row = {"truth": truth, "truth_without": without, "score": push}
    for side, value in (("with", x), ("without", y)):
        verdict = STATED if value > 0.5 else MADE_UP
        row[side] = {"scores": {"x": value}, "verdict": verdict, "shown": DONT_KNOW}
        row[side]["shown_internal"] = False
    return row


def draw_rows(count, *, telling):
    """The run remembers four of five; the score `x` tells that from the rest by `telling`."""
    rng = np.random.default_rng(3)
    rows = []
    for _ in range(count):
        knows, lucky = rng.random() < 0.8, rng.random() < 0.05
        x, y = rng.normal() + telling * knows, rng.normal()
        answers = ("Rome" if knows else "Oslo", "Rome" if lucky else "Oslo")
        rows.append(make_row(*answers, 2 + rng.random() - rng.random(), float(x), float(y)))
    return rows


@pytest.mark.parametrize("telling", [0.0, 1.0, 3.0])
def test_numbers_are_those_of_scipy_and_sklearn(telling):
    rows = draw_rows(150, telling=telling)
    record = summarise(rows, np.random.default_rng(0))
    read, unread = ([row[side]["scores"]["x"] for row in rows] for side in ("with", "without"))
    true = [row["truth"] == REMEMBERED for row in rows]
    expected = {
        "all": roc_auc_score([*true, *[False] * len(rows)], [*read, *unread]),
        "readers": roc_auc_score(true, read),
        "rank": spearmanr(read, [row["score"] for row in rows]).statistic,
    }
    for key, value in expected.items():
        found = record["agreement"]["x"][key]
        assert found["value"] == pytest.approx(value, abs=1e-12)
        assert found["low"] < value < found["high"]
    taken = np.array([*read, *unread]) > 0.5
    hits = int((taken[: len(rows)] & true).sum())
    assert record["verdicts"][STATED][REMEMBERED] == hits
    assert sum(sum(row.values()) for row in record["verdicts"].values()) == 2 * len(rows)
    caught = record["caught"]["verdict stated"]
    assert caught["precision"]["value"] == pytest.approx(hits / taken.sum())
    assert caught["recall"]["value"] == pytest.approx(hits / sum(true))
    assert caught["recall"]["low"] < caught["recall"]["value"] < caught["recall"]["high"]
    none = record["caught"]["shown without the text"]
    assert (none["precision"]["value"], none["recall"]["value"]) == (None, 0.0)


def test_a_subject_is_drawn_with_both_answers_and_what_is_undefined_says_why():
    """Alone, each subject is told perfectly; together one pair of three or four is wrong."""
    rows = [make_row("Rome", "Oslo", 1.0, 1.0 + n, 0.5 + n) for n in range(2)]
    found = summarise(rows, np.random.default_rng(0))["agreement"]["x"]
    assert (found["all"]["value"], found["all"]["low"], found["all"]["high"]) == (0.75, 0.75, 1)
    assert found["readers"]["value"] is None
    assert "all answers are of one kind" in found["readers"]["reason"]
    assert "same for everybody" in found["rank"]["reason"]
