"""Rivals: the same answers, the same people, the same promise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wherefrom.provenance.confidence.guarantee import guarantee_threshold
from wherefrom.provenance.judging.rivals import (
    FINE_GRID,
    RIVALS,
    SUPPORT,
    always_answer,
    rival_scores,
)

COLUMNS = ("log_probability", "entropy", "country_entropy", SUPPORT)


def columns(*rows: tuple[float, float, float, float]) -> dict[str, list[float]]:
    return dict(zip(COLUMNS, map(list, zip(*rows, strict=True)), strict=True))


def scores_by_name(judged, calibration, correct):
    scores, notes = rival_scores(judged, calibration, correct, risk=0.05, delta=0.05)
    return {score.name: score for score in scores}, notes


def test_a_rival_is_surer_of_what_is_likelier_and_less_spread_out():
    judged = columns((-0.1, 0.2, 0.1, 3), (-2.0, 1.5, 0.9, 0))
    found, notes = scores_by_name(judged, {}, ())
    assert list(found) == [
        "greedy likelihood",
        "predictive entropy",
        "semantic entropy",
        "name support",
    ]
    assert notes == []
    expected = {
        "greedy likelihood": [math.exp(-0.1), math.exp(-2)],
        "predictive entropy": [math.exp(-0.2), math.exp(-1.5)],
        "semantic entropy": [math.exp(-0.1), math.exp(-0.9)],
        "name support": [0.75, 0],
    }
    for name, values in expected.items():
        np.testing.assert_allclose(found[name].values, values)


def test_only_the_likelihood_and_being_certain_claim_to_be_probabilities():
    found, _ = scores_by_name(columns((-0.1, 0.2, 0.1, 3)), {}, ())
    assert [score.probability for score in found.values()] == [True, False, False, False]
    assert always_answer(3).probability
    assert always_answer(3).values.tolist() == [1, 1, 1]
    assert always_answer(3).threshold == 0


def test_each_rival_has_the_threshold_that_is_promised_on_the_calibration_people():
    rng = np.random.default_rng(0)
    likelihood = rng.uniform(-3, 0, 300)
    correct = likelihood > -1.0
    calibration = {"log_probability": likelihood}
    found, _ = scores_by_name(columns((-0.1, 0.2, 0.1, 3)), calibration, correct)
    mine = found["greedy likelihood"]
    promised = guarantee_threshold(np.exp(likelihood), correct, grid=FINE_GRID)
    assert mine.threshold == promised.threshold
    assert mine.threshold is not None
    assert math.exp(-1.1) < mine.threshold <= math.exp(-1.0)
    assert mine.reason is None


def test_likelihoods_that_crowd_below_one_are_still_told_apart():
    near = 1 - np.concatenate([np.full(200, 1e-6), np.full(200, 1e-4)])
    correct = np.arange(400) < 200
    calibration = {"log_probability": np.log(near)}
    found, _ = scores_by_name({"log_probability": [-0.5]}, calibration, correct)
    threshold = found["greedy likelihood"].threshold
    assert threshold is not None
    assert 1 - 1e-4 < threshold <= 1 - 1e-6


def test_without_calibration_people_there_is_no_threshold_and_a_reason():
    found, _ = scores_by_name(columns((-0.1, 0.2, 0.1, 3)), {}, ())
    for score in found.values():
        assert score.threshold is None
        assert score.reason


def test_a_signal_that_nobody_has_leaves_its_rival_out_and_says_so():
    judged = columns((-0.1, 0.2, math.nan, 3), (-0.2, 0.2, math.nan, 1))
    found, notes = scores_by_name(judged, {}, ())
    assert "semantic entropy" not in found
    assert len(notes) == 1
    assert "semantic entropy is left out" in notes[0]
    del judged["entropy"]
    assert "predictive entropy" not in scores_by_name(judged, {}, ())[0]


def test_a_missing_value_is_the_least_sure_of_all():
    judged = columns((-9.0, 0.2, 0.4, 3), (-1.0, 0.1, math.nan, 1))
    found, notes = scores_by_name(judged, {}, ())
    assert found["semantic entropy"].values.tolist() == [math.exp(-0.4), 0]
    assert "unknown for 1 answers" in notes[0]


@pytest.mark.parametrize("rival", RIVALS, ids=lambda rival: rival.name)
@given(value=st.floats(-1e3, 1e3) | st.just(-math.inf))
def test_a_rival_stays_between_nothing_and_certain(rival, value):
    if rival.column == SUPPORT:
        value = abs(value) if math.isfinite(value) else 0.0
    surer = rival.surer(np.array([value]))
    assert 0 <= surer[0] <= 1


def test_the_finer_thresholds_fall_all_the_way():
    assert (np.diff(FINE_GRID) < 0).all()
    assert FINE_GRID[0] < 1
    assert FINE_GRID[-1] == 0
