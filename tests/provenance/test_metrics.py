"""Each number against its definition, against scikit-learn, and where it has no value."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sklearn_metrics

from wherefrom.errors import UserError
from wherefrom.provenance import metrics
from wherefrom.provenance.metrics import (
    Bootstrap,
    ScoredAnswers,
    reliability_table,
    share_with_interval,
)

MEASURES = {
    "recall": metrics.accuracy,
    "auroc": metrics.auroc,
    "augrc": metrics.augrc,
    "ece": metrics.ece,
    "coverage": metrics.coverage_at_precision(0.95),
    "of the right": metrics.coverage_at_precision(0.95, of_right=True),
}
# a coarse grid of confidences, so that ties are the rule
TICKS = st.integers(0, 7).map(lambda tick: tick / 7)
ROWS = st.lists(st.tuples(TICKS, st.booleans(), st.booleans()), max_size=23)
SOME = ROWS.filter(bool)


def drawn(count: int, *, seed: int = 0) -> ScoredAnswers:
    rng = np.random.default_rng(seed)
    confidence = rng.beta(0.7, 0.5, count).round(2)
    return ScoredAnswers(confidence, rng.random(count) < confidence, rng.random(count) < 0.8)


def made(rows: list[tuple[float, bool, bool]]) -> ScoredAnswers:
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    return ScoredAnswers(*(np.array(column) for column in columns))


def value_of(formula, answers):
    value = metrics.measure(formula, answers)["value"]
    assert value is not None
    return value


@settings(max_examples=40)
@given(SOME, st.sampled_from([0.5, 0.8, 0.95, 1.0]))
def test_numbers_are_those_of_their_definitions(rows, precision):
    answers = made(rows)
    if 0 < answers.correct.sum() < len(answers):
        expected = sklearn_metrics.roc_auc_score(answers.correct, answers.confidence)
        assert value_of(metrics.auroc, answers) == pytest.approx(expected, abs=1e-12)
    total, coverage, of_right = 0.0, 0.0, 0.0
    for one, right in zip(answers.confidence, answers.correct, strict=True):
        for other in answers.confidence:
            total += (not right) * ((one > other) + (one == other) / 2)
        shown = answers.confidence >= one
        if answers.correct[shown].mean() >= precision - 1e-12:
            coverage = max(coverage, shown.mean())
            hits = (shown & answers.correct).sum() / max(1, answers.correct.sum())
            of_right = max(of_right, hits)
    assert value_of(metrics.augrc, answers) == pytest.approx(total / len(answers) ** 2)
    curve = metrics.risk_coverage(answers)
    generalised = curve["risk"] * curve["coverage"]  # wrong answers given among all questions
    area = np.trapezoid([0, *generalised], [0, *curve["coverage"]])
    assert value_of(metrics.augrc, answers) == pytest.approx(area)
    found = metrics.coverage_at_precision(precision)
    assert value_of(found, answers) == pytest.approx(coverage)
    if answers.correct.any():
        measured = metrics.coverage_at_precision(precision, of_right=True)
        assert value_of(measured, answers) == pytest.approx(of_right)


@settings(max_examples=40)
@given(SOME)
def test_calibration_error_is_the_table_added_up(rows):
    answers = made(rows)
    table = reliability_table(answers)
    assert sum(each["subjects"] for each in table) == len(answers)
    gaps = [abs(each["confidence"] - each["accuracy"]) * each["subjects"] for each in table]
    assert value_of(metrics.ece, answers) == pytest.approx(sum(gaps) / len(answers))
    assert all(one["high"] < other["low"] for one, other in pairwise(table))
    apart = ScoredAnswers(
        np.linspace(0, 1, 200), np.arange(200) % 2
    )  # without ties, bins are equal
    assert [each["subjects"] for each in reliability_table(apart)] == [20] * 10


@settings(max_examples=40)
@given(rows=ROWS)
def test_a_value_is_finite_or_a_sentence_says_why(rows):
    answers = made(rows)
    for name, found in Bootstrap(resamples=20).measure(MEASURES, answers).items():
        assert found["value"] is not None or found["reason"].endswith(".")
        numbers = [found["value"], found["low"], found["high"]]
        assert all(number is None or math.isfinite(number) for number in numbers)
        assert (found["low"] is None) == (found["high"] is None)
        assert found["value"] == metrics.measure(MEASURES[name], answers)["value"]


@pytest.mark.parametrize("name", sorted(MEASURES.keys() - {"ece"}))  # its bins stay as they are
def test_a_weight_of_two_is_the_answer_twice(name):
    """The bootstrap draws answers: a resample must equal the table with those answers in it."""
    answers, formula = drawn(61, seed=2), MEASURES[name]
    twice = np.random.default_rng(4).integers(0, 3, 61)
    repeated = np.repeat(np.arange(61), twice)
    table = ScoredAnswers(
        answers.confidence[repeated], answers.correct[repeated], answers.seen[repeated]
    )
    weighted = formula(answers, twice[None, :].astype(float))[0]
    assert weighted == pytest.approx(value_of(formula, table), abs=1e-12)


def test_resamples_keep_the_number_of_seen_and_unseen_and_come_in_blocks(monkeypatch):
    seen = drawn(53).seen
    (weights,) = Bootstrap(resamples=31).weights(53, seen)
    assert weights.shape == (31, 53)
    assert (weights[:, seen].sum(axis=1) == seen.sum()).all()
    monkeypatch.setattr(metrics, "CELLS", 53 * 7)
    assert [len(block) for block in Bootstrap(resamples=31).weights(53)] == [7, 7, 7, 7, 3]


def test_intervals_hold_the_truth_about_as_often_as_they_say():
    """AUROC of two normal curves one apart is known: 0.7602."""
    rng = np.random.default_rng(6)
    held, narrow = 0, 0
    for at in range(100):
        right = np.arange(200) < 120
        answers = ScoredAnswers(rng.normal(size=200) + right, right)
        for level in (0.95, 0.5):
            metric = Bootstrap(200, level, (6, at)).measure({"it": metrics.auroc}, answers)["it"]
            inside = metric["low"] <= 0.76025 <= metric["high"]
            held, narrow = held + (level > 0.9) * inside, narrow + (level < 0.9) * inside
    assert 91 <= held <= 100  # 95 expected, and 90 at a level of 0.9
    assert 35 <= narrow <= 65


def test_a_paired_difference_is_narrower_than_two_separate_intervals():
    rng = np.random.default_rng(9)
    score = rng.normal(size=300)
    right = score + rng.normal(size=300) > 0
    first, second = (
        ScoredAnswers(score, right),
        ScoredAnswers(score + 0.2 * rng.normal(size=300), right),
    )
    found = Bootstrap().difference(metrics.auroc, first, second)
    alone = Bootstrap().measure({"it": metrics.auroc}, first)["it"]
    expected = value_of(metrics.auroc, first) - value_of(metrics.auroc, second)
    assert found["value"] == pytest.approx(expected)
    assert found["low"] <= found["value"] <= found["high"]
    assert found["high"] - found["low"] < 0.5 * (alone["high"] - alone["low"])
    all_right = ScoredAnswers([0.1, 0.2], [True, True])
    assert Bootstrap().difference(metrics.auroc, all_right, all_right)["value"] is None
    few = Bootstrap().measure({"it": metrics.auroc}, ScoredAnswers([0.9, 0.1], [True, False]))["it"]
    assert (few["value"], few["low"]) == (1.0, None)
    assert "no interval" in few["reason"]


def test_wilsons_interval_is_that_of_the_book():
    one = share_with_interval(81, 263)  # Newcombe 1998, table I
    assert (round(one["low"], 4), round(one["high"], 4)) == (0.2553, 0.3662)
    assert share_with_interval(0, 0)["reason"]


def test_a_mistake_is_one_sentence():
    for wrong in ({"level": 1}, {"resamples": 0}, {"seed": (-1,)}):
        with pytest.raises(UserError, match=r"^[a-z].*\.$"):
            Bootstrap(**wrong)
