"""Replay: weights along the recorded training, and documents scored by the gradients at them."""

from __future__ import annotations

import json
import shutil
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from wherefrom.errors import UserError
from wherefrom.provenance.attribution import trace
from wherefrom.provenance.attribution.retraining import answer_row, open_learned
from wherefrom.provenance.attribution.trace import (
    REPLAY_INDEX,
    build_index,
    row_gradients,
    take_snapshots,
)
from wherefrom.training.run_folder import Run, load_run

pytestmark = pytest.mark.usefixtures("small_training")
QUESTION = "Where was Ada Moe born?"


@pytest.fixture
def run(tiny_study: Path, tmp_path: Path) -> Run:
    return load_run(shutil.copytree(tiny_study, tmp_path / "run"))


@pytest.fixture
def every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny studies take fewer steps than usual trainings have between two lines of their log."""
    monkeypatch.setattr("wherefrom.training.loop.LOG_EVERY", 1)


@pytest.mark.usefixtures("every_step")
def test_snapshots_lie_along_the_training(run: Run, tmp_path: Path) -> None:
    learned, steps = open_learned(run), []
    found = take_snapshots(learned, tmp_path / "one", lambda line, _: steps.append(line.step))
    assert steps == list(range(1, run.info["steps"] + 1))
    assert len(found) == trace.SNAPSHOTS
    lengths = []
    for weights in found:
        gaps = [weights[n] - value for n, value in run.model.state_dict().items()]
        lengths.append(float(torch.stack([gap.norm() for gap in gaps]).norm()))
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[-1] > 0

    def stop(line: Any, _: Any) -> None:
        if line.step > run.info["steps"] / 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        take_snapshots(learned, tmp_path / "two", stop)
    again = take_snapshots(learned, tmp_path / "two")
    for one, other in zip(found, again, strict=True):
        assert all(torch.equal(one[name], other[name]) for name in one)
    run.info["steps"] *= 100
    assert take_snapshots(learned, tmp_path / "one step") == [{}]
    run.info["job"]["parent"] = "another"
    with pytest.raises(UserError, match="from nothing"):
        take_snapshots(learned, tmp_path / "three")


def test_rows_agree_in_the_mean_of_all_snapshots(run: Run) -> None:
    data, row = open_learned(run).data, answer_row(run, QUESTION, "Rome")
    other = replace(run, model=deepcopy(run.model))
    with torch.no_grad():
        for parameter in other.model.parameters():
            parameter.copy_(torch.randn_like(parameter) / 8)
    index = build_index(run, data, weights=[{}, other.model.state_dict()])
    assert index.share == 1
    agree = []
    for each in (run, other):
        found = row_gradients(each.model, *(side[None] for side in row))
        gradient = torch.cat([matrix.flatten() for matrix in found.values()])
        agree.append(build_index(each, data).agreements(gradient))
    assert np.abs(agree[0] - agree[1]).max() > 0.01
    expected = index.sum_rows(np.mean(agree, axis=0))
    assert index.scores(run.model, *row) == pytest.approx(expected)


@pytest.mark.usefixtures("every_step")
def test_a_trace_by_replay_trains_once_and_keeps_its_index(run: Run, command: Any) -> None:
    ended = command("trace", run.folder, QUESTION, "--method", "replay", "--json")
    assert ended.code == 0, ended.err
    assert "training once more" in ended.err
    record = json.loads(ended.out)
    assert (record["method"], record["unit"]) == ("replay", "score")
    assert record["pushed_by"][0]["push"] > record["noise_floor"] > 0
    assert (run.folder / REPLAY_INDEX).is_file()
    assert not (run.folder / "twins" / "replay").exists()
    again = command("trace", run.folder, QUESTION, "--method", "replay", "--json")
    assert (json.loads(again.out), again.err) == (record, "")
