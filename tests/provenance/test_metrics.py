"""Each number against its definition, against scikit-learn, and where it has no value."""

from __future__ import annotations

import math
import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sklearn_metrics

from wherefrom.errors import UserError
from wherefrom.provenance import metrics
from wherefrom.provenance.metrics import (
    Answers,
    Bootstrap,
    Measure,
    Metric,
    compare_rates,
    ece_of_chance,
    open_world_floor,
    rate,
    reliability_table,
    risk_coverage,
)

MEASURES = {
    "recall": metrics.accuracy,
    "auroc": metrics.auroc,
    "augrc": metrics.augrc,
    "brier": metrics.brier,
    "ece": metrics.ece,
    "log loss": metrics.log_loss,
    "coverage": metrics.coverage_at_precision(0.95),
    "of the right": metrics.coverage_at_precision(0.95, of_right=True),
}
EACH_MEASURE = pytest.mark.parametrize("measure", MEASURES.values(), ids=MEASURES)
# a coarse grid of confidences, so that ties are the rule
TICKS = st.integers(0, 7).map(lambda tick: tick / 7)
ROWS = st.lists(st.tuples(TICKS, st.booleans(), st.booleans()), max_size=23)
SOME = ROWS.filter(bool)


def drawn(count: int, *, seed: int = 0) -> Answers:
    rng = np.random.default_rng(seed)
    confidence = rng.beta(0.7, 0.5, count).round(2)
    return Answers(confidence, rng.random(count) < confidence, rng.random(count) < 0.8)


def made(rows: list[tuple[float, bool, bool]]) -> Answers:
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    return Answers(*(np.array(column) for column in columns))


def value_of(measure: Measure, answers: Answers) -> float:
    value = measure(answers).value
    assert value is not None
    return value


@pytest.mark.parametrize("seed", range(3))
def test_numbers_agree_with_scikit_learn(seed):
    answers = drawn(317, seed=seed)
    inside = Answers(np.clip(answers.confidence, 0.01, 0.99), answers.correct)
    for measure, theirs in (
        (metrics.auroc, sklearn_metrics.roc_auc_score),
        (metrics.brier, sklearn_metrics.brier_score_loss),
        (metrics.log_loss, sklearn_metrics.log_loss),
    ):
        expected = theirs(inside.correct, inside.confidence)
        assert value_of(measure, inside) == pytest.approx(expected, abs=1e-12)
    certain = Answers([1.0], [False])  # a sure mistake is large and finite
    assert value_of(metrics.log_loss, certain) == pytest.approx(-math.log(1e-12))


@settings(max_examples=40)
@given(SOME)
def test_augrc_is_wrong_and_at_least_as_sure_as_a_random_other(rows):
    answers = made(rows)
    total = 0.0
    for one, right in zip(answers.confidence, answers.correct, strict=True):
        for other in answers.confidence:
            total += (not right) * ((one > other) + (one == other) / 2)
    assert value_of(metrics.augrc, answers) == pytest.approx(total / len(answers) ** 2)
    curve = risk_coverage(answers)
    generalised = curve["risk"] * curve["coverage"]  # wrong answers given among all questions
    area = np.trapezoid([0, *generalised], [0, *curve["coverage"]])
    assert value_of(metrics.augrc, answers) == pytest.approx(area)


@settings(max_examples=40)
@given(SOME, st.sampled_from([0.5, 0.8, 0.95, 1.0]))
def test_coverage_at_a_precision_by_trying_every_threshold(rows, precision):
    answers = made(rows)
    coverage, of_right = 0.0, 0.0
    for threshold in answers.confidence:
        given = answers.confidence >= threshold
        if answers.correct[given].mean() >= precision - 1e-12:
            right = (given & answers.correct).sum()
            coverage = max(coverage, given.mean())
            of_right = max(of_right, right / max(1, answers.correct.sum()))
    found = metrics.coverage_at_precision(precision)(answers)
    assert found.value == pytest.approx(coverage)
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
    edges = [edge for each in table for edge in (each["low"], each["high"])]
    assert edges == sorted(edges)
    assert all(one["high"] < other["low"] for one, other in pairwise(table))
    apart = Answers(np.linspace(0, 1, 200), np.arange(200) % 2)  # without ties, bins are equal
    assert [each["subjects"] for each in reliability_table(apart)] == [20] * 10


def test_calibration_error_of_a_calibrated_score_is_that_of_chance():
    rng = np.random.default_rng(5)
    found, expected = [], []
    for _ in range(60):
        score = rng.beta(0.7, 0.5, 400)
        answers = Answers(score, rng.random(400) < score)
        found.append(value_of(metrics.ece, answers))
        expected.append(ece_of_chance(answers, rng, draws=100).value)
    # the errors vary by about 0.01, so that their mean over 60 varies by 0.0013
    assert np.mean(found) == pytest.approx(np.mean(expected), abs=0.005)
    assert np.mean(expected) > 0.03
    overconfident = Answers(np.full(400, 0.9), rng.random(400) < 0.7)
    assert value_of(metrics.ece, overconfident) > 0.1


def test_19_of_20_is_95_percent():
    answers = Answers(np.full(20, 0.5), [False] + [True] * 19)
    assert value_of(metrics.coverage_at_precision(0.95), answers) == 1.0


def test_open_world_floor_is_singletons_less_miscalibration():
    assert open_world_floor(["Ann", "Ann", "Bo", "Cy"], 0.1).value == pytest.approx(0.5 - 0.1)
    assert open_world_floor(["Ann", "Ann"], 0.1).value == 0
    for unknown in (open_world_floor([], 0.1), open_world_floor(["Ann"], None)):
        assert unknown.value is None
        assert unknown.reason


@EACH_MEASURE
@settings(max_examples=15)
@given(rows=ROWS)
def test_a_value_is_finite_or_a_sentence_says_why(measure, rows):
    answers = made(rows)
    metric = measure(answers)
    if metric.value is None:
        assert re.fullmatch(r"[a-z].*\.", metric.reason)
    found = Bootstrap(resamples=20).measure({"it": measure}, answers)["it"]
    numbers = [found.value, found.low, found.high]
    assert all(number is None or math.isfinite(number) for number in numbers)
    assert (found.low is None) == (found.high is None)
    assert found.value == metric.value


@pytest.mark.parametrize(
    ("measure", "answers", "word"),
    [
        ("auroc", Answers([0.1, 0.9], [True, True]), "all answers are right or all are wrong"),
        ("auroc", Answers([0.1, 0.9], [False, False]), "all answers are right or all are wrong"),
        ("auroc", Answers([], []), "nobody"),
        ("augrc", Answers([], []), "nobody"),
        ("of the right", Answers([0.5], [False]), "no answer is right"),
    ],
)
def test_what_is_undefined_says_why(measure, answers, word):
    metric = MEASURES[measure](answers)
    assert metric.value is None
    assert word in metric.reason


def test_an_empty_table_is_no_error():
    nobody = Answers([], [])
    assert reliability_table(nobody) == []
    assert risk_coverage(nobody)["coverage"].size == 0
    assert ece_of_chance(nobody, np.random.default_rng(0)).value is None


@pytest.mark.parametrize("name", sorted(MEASURES.keys() - {"ece"}))  # its bins stay as they are
def test_a_weight_of_two_is_the_answer_twice(name):
    """The bootstrap draws answers: a resample must equal the table with those answers in it."""
    answers, measure = drawn(61, seed=2), MEASURES[name]
    twice = np.random.default_rng(4).integers(0, 3, 61)
    repeated = np.repeat(np.arange(61), twice)
    table = Answers(answers.confidence[repeated], answers.correct[repeated], answers.seen[repeated])
    weighted = measure.values(answers, twice[None, :].astype(float))[0]
    assert weighted == pytest.approx(value_of(measure, table), abs=1e-12)


def test_resamples_keep_the_number_of_seen_and_unseen_and_come_in_blocks(monkeypatch):
    seen = drawn(53).seen
    (weights,) = Bootstrap(resamples=31).weights(53, seen)
    assert weights.shape == (31, 53)
    assert (weights[:, seen].sum(axis=1) == seen.sum()).all()
    assert weights.std() > 0.5
    monkeypatch.setattr(metrics, "CELLS", 53 * 7)
    assert [len(block) for block in Bootstrap(resamples=31).weights(53)] == [7, 7, 7, 7, 3]


def test_an_interval_is_the_central_part_of_the_defined_values():
    values = np.append(np.random.default_rng(0).permutation(1001).astype(float), np.full(9, np.nan))
    point = {"it": Metric(value=1.0)}
    found = Bootstrap(resamples=1).intervals(point, {"it": lambda _: values}, 5)["it"]
    assert (found.low, found.high) == pytest.approx((25, 975))
    one, other = (Bootstrap(50, 0.95, (8,)).measure(MEASURES, drawn(97)) for _ in range(2))
    assert one == other  # the same seed draws the same


def test_intervals_hold_the_truth_about_as_often_as_they_say():
    """AUROC of two normal curves one apart is known: 0.7602."""
    rng = np.random.default_rng(6)
    held = 0
    for at in range(100):
        right = np.arange(200) < 120
        answers = Answers(rng.normal(size=200) + right, right)
        metric = Bootstrap(200, 0.95, (6, at)).measure({"it": metrics.auroc}, answers)["it"]
        held += metric.low <= 0.76025 <= metric.high
    assert 88 <= held <= 100  # 95 expected; fewer than 88 has probability 0.002


def test_a_paired_difference_is_narrower_than_two_separate_intervals():
    rng = np.random.default_rng(9)
    score = rng.normal(size=300)
    right = score + rng.normal(size=300) > 0
    first, second = Answers(score, right), Answers(score + 0.2 * rng.normal(size=300), right)
    found = Bootstrap().difference(metrics.auroc, first, second)
    alone = Bootstrap().measure({"it": metrics.auroc}, first)["it"]
    expected = value_of(metrics.auroc, first) - value_of(metrics.auroc, second)
    assert found.value == pytest.approx(expected)
    assert found.low <= found.value <= found.high
    assert found.high - found.low < 0.5 * (alone.high - alone.low)
    itself = Bootstrap().difference(metrics.auroc, first, first)
    assert (itself.value, itself.low, itself.high) == (0, 0, 0)
    all_right = Answers([0.1, 0.2], [True, True])
    undefined = Bootstrap().difference(metrics.auroc, all_right, all_right)
    assert undefined == metrics.auroc(all_right)


def test_too_few_answers_for_an_interval_is_said():
    answers = Answers([0.9, 0.1], [True, False])
    metric = Bootstrap().measure({"it": metrics.auroc}, answers)["it"]
    assert (metric.value, metric.low) == (1.0, None)
    assert "no interval" in metric.reason


@given(st.integers(0, 200), st.integers(0, 200), st.floats(0.5, 0.999))
def test_a_share_lies_within_its_interval(count, more, level):
    found = rate(count, count + more, level=level)
    if count + more == 0:
        assert found["value"] is None
        assert found["reason"]
        return
    assert 0 <= found["low"] <= found["value"] <= found["high"] <= 1
    assert found["high"] > found["low"]


def test_wilsons_and_newcombes_intervals_are_those_of_the_books():
    # Newcombe 1998: 81 of 263 (table I), and 56 of 70 against 48 of 80 (table II, method 10)
    one = rate(81, 263)
    assert (round(one["low"], 4), round(one["high"], 4)) == (0.2553, 0.3662)
    event = np.array([True] * 56 + [False] * 14 + [True] * 48 + [False] * 32)
    difference = compare_rates(event, np.arange(150) < 70)["difference"]
    assert difference["value"] == pytest.approx(0.2)
    assert (round(difference["low"], 4), round(difference["high"], 4)) == (0.0524, 0.3339)


@pytest.mark.parametrize(
    "mistake",
    [
        lambda: Answers([0.5, float("nan")], [True, False]),
        lambda: Answers([0.5], [True, False]),
        lambda: Answers([[0.5]], [[True]]),
        lambda: Answers([0.5], [0.3]),
        lambda: Answers([0.5], [True], [True, False]),
        lambda: metrics.coverage_at_precision(0),
        lambda: Bootstrap(level=1),
        lambda: Bootstrap(resamples=0),
    ],
)
def test_a_mistake_is_one_sentence(mistake):
    with pytest.raises(UserError, match=r"^[a-z].*\.$"):
        mistake()
