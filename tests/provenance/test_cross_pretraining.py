"""Two-fold twins: who is left out of which, what is counted, and the numbers about it."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score

from wherefrom.corpus.subjects import JUDGED, read_subjects
from wherefrom.provenance.attribution.retraining import likelihoods, outcome
from wherefrom.provenance.attribution.twins import (
    RIGHT_ANYWAY,
    WRONG,
    cross_pretrain,
    summarise,
    true_origin,
)
from wherefrom.provenance.verdicts import DONT_KNOW, GUESSED, MADE_UP, REMEMBERED, STATED
from wherefrom.storage import read_json
from wherefrom.training.run_folder import load_run


@pytest.mark.usefixtures("small_training")
def test_two_twins_are_trained_stopped_resumed_and_judged(
    tiny_study: Path, tmp_path: Path, command: Any
) -> None:
    run = load_run(shutil.copytree(tiny_study, tmp_path / "run"))
    ticks = []

    def stop(*_: object) -> None:
        ticks.append(1)
        if len(ticks) == 3:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        cross_pretrain(run, observe=stop)
    assert not (run.folder / "twins" / "twins.json").exists()
    record = cross_pretrain(run)
    assert record == read_json(run.folder / "twins" / "twins.json")
    files = [*run.folder.glob("twins/half-*/model.safetensors")]
    before = {path: path.stat().st_mtime_ns for path in files}
    ended = command("twins", run.folder)
    assert ended.code == 0, ended.err
    assert "verdict against truth" in ended.out
    assert {path: path.stat().st_mtime_ns for path in before} == before  # nothing is trained

    judged = [s for s in read_subjects(run.folder) if s.role == JUDGED and s.source == "dev"]
    assert sorted(row["question"] for row in record["judged"]) == sorted(s.question for s in judged)
    lines = [load_run(path.parent).info["job"]["without"] for path in sorted(files)]
    assert lines[0]
    assert lines[1]
    assert not {*lines[0]} & {*lines[1]}
    for row in record["judged"]:
        right, lucky = (row[side]["answer"].strip() == row["right"] for side in ("with", "without"))
        assert (row["truth"] == REMEMBERED) == (right and not lucky)
        assert row["without"]["verdict"] == MADE_UP  # what it read lacks the subject
        gap = row["with"]["log_probability_of_with"] - row["without"]["log_probability_of_with"]
        assert row["score"] == pytest.approx(gap, abs=2e-4) != 0
        twin = load_run(run.folder / "twins" / row["twin"])
        (own,) = likelihoods(twin, [row["question"]], [row["with"]["answer"]])
        assert row["without"]["log_probability_of_with"] == pytest.approx(own, abs=1e-4)
        assert outcome(twin, [row["question"]])["answers"] == [row["without"]["answer"]]
    for table in (record["verdicts"], record["internal"]):
        assert sum(sum(row.values()) for row in table.values()) == 2 * len(judged)


@pytest.mark.parametrize(
    ("reader", "other", "truths"),
    [
        ("Rome", "Oslo", (REMEMBERED, MADE_UP)),
        ("Rome", "Rome", (RIGHT_ANYWAY, GUESSED)),
        ("Oslo", "Rome", (WRONG, GUESSED)),
        ("Oslo", "Oslo", (WRONG, MADE_UP)),
        (" Rome ", "rome", (REMEMBERED, MADE_UP)),  # exact but for blanks, as recall is
    ],
)
def test_remembered_is_right_with_the_document_and_not_without(
    reader: str, other: str, truths: tuple[str, str]
) -> None:
    assert true_origin(reader, other, "Rome") == truths


def row(read: str, unread: str, score: float, x: float, y: float) -> dict[str, Any]:
    """The right answer is Rome; x and y are the cheap scores of the two answers."""
    truth, without = true_origin(read, unread, "Rome")
    sides = {
        side: {"scores": {"x": value}, "verdict": STATED if value > 0.5 else MADE_UP,
               "shown": DONT_KNOW, "shown_internal": False}
        for side, value in (("with", x), ("without", y))
    }  # fmt: skip
    return {"truth": truth, "truth_without": without, "score": score, **sides}


def drawn_rows(count: int, *, telling: float) -> list[dict[str, Any]]:
    """The run remembers four of five; the score `x` tells that from the rest by `telling`."""
    rng = np.random.default_rng(3)
    rows = []
    for _ in range(count):
        knows, lucky = rng.random() < 0.8, rng.random() < 0.05
        x, y = rng.normal() + telling * knows, rng.normal()
        said = ("Rome" if knows else "Oslo", "Rome" if lucky else "Oslo")
        rows.append(row(*said, 2 + rng.random() - rng.random(), float(x), float(y)))
    return rows


@pytest.mark.parametrize("telling", [0.0, 1.0, 3.0])
def test_numbers_are_those_of_scipy_and_sklearn(telling: float) -> None:
    rows = drawn_rows(150, telling=telling)
    found = summarise(rows, np.random.default_rng(0))["agreement"]["x"]
    read, unread = ([each[side]["scores"]["x"] for each in rows] for side in ("with", "without"))
    true = [each["truth"] == REMEMBERED for each in rows]
    expected = {
        "all": roc_auc_score([*true, *[False] * len(rows)], [*read, *unread]),
        "readers": roc_auc_score(true, read),
        "rank": spearmanr(read, [each["score"] for each in rows]).statistic,
    }
    for key, value in expected.items():
        assert found[key]["value"] == pytest.approx(value, abs=1e-12)
        assert found[key]["low"] < value < found[key]["high"]


def test_a_subject_is_drawn_with_both_answers_and_what_is_undefined_says_why() -> None:
    """Alone, each subject is told perfectly; together one pair of three or four is wrong."""
    rows = [row("Rome", "Oslo", 1.0, 1.0 + n, 0.5 + n) for n in range(2)]
    rng = np.random.default_rng(0)
    found = summarise(rows, rng)["agreement"]["x"]
    assert (found["all"]["value"], found["all"]["low"], found["all"]["high"]) == (0.75, 0.75, 1)
    assert found["readers"]["value"] is None
    assert "all answers are of one kind" in found["readers"]["reason"]
    assert "same for everybody" in found["rank"]["reason"]


def test_a_cheap_verdict_is_counted_against_the_truth_and_tested() -> None:
    rows = drawn_rows(200, telling=2.0)
    record = summarise(rows, np.random.default_rng(0))
    table, found = record["verdicts"], record["caught"]["verdict stated"]
    assert sum(sum(each.values()) for each in table.values()) == 400
    took = [r for r in rows if r["with"]["scores"]["x"] > 0.5 and r["truth"] == REMEMBERED]
    assert table[STATED][REMEMBERED] == len(took)
    yes, remembered = table[STATED], sum(each[REMEMBERED] for each in table.values())
    assert found["precision"]["value"] == pytest.approx(yes[REMEMBERED] / sum(yes.values()))
    assert found["recall"]["value"] == pytest.approx(yes[REMEMBERED] / remembered)
    assert found["recall"]["low"] < found["recall"]["value"] < found["recall"]["high"]
    none = record["caught"]["shown without the text"]
    assert none["precision"]["value"] is None
    assert none["recall"]["value"] == 0.0
