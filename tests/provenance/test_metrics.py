"""Each number against its definition, against scikit-learn, and where it has no value."""

from __future__ import annotations

import dataclasses
import math
import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sklearn_metrics

from wherefrom.errors import UserError
from wherefrom.provenance.judging import metrics
from wherefrom.provenance.judging.metrics import (
    Answers,
    Measure,
    Metric,
    ece_of_chance,
    grade,
    measure_with_intervals,
    open_world_floor,
    paired_difference,
    reliability_table,
    resample_weights,
    risk_coverage,
    with_interval,
)

MEASURES = [
    metrics.accuracy,
    metrics.auroc,
    metrics.augrc,
    metrics.brier,
    metrics.ece,
    metrics.log_loss,
    metrics.coverage_at_precision(0.95),
    metrics.right_given_at_precision(0.95),
    metrics.score_at_target(0.75),
    metrics.score_at_target(0.75, threshold=0.5),
    metrics.unseen_unknown(0.5),
]
EACH_MEASURE = pytest.mark.parametrize("measure", MEASURES, ids=lambda measure: measure.name)
# a coarse grid of confidences, so that ties are the rule
people = st.lists(
    st.tuples(st.integers(0, 7).map(lambda tick: tick / 7), st.booleans(), st.booleans()),
    max_size=23,
)


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


@pytest.mark.parametrize("seed", range(5))
def test_numbers_agree_with_scikit_learn(seed):
    answers = drawn(317, seed=seed)
    right, score = answers.correct, answers.confidence
    assert value_of(metrics.auroc, answers) == pytest.approx(
        sklearn_metrics.roc_auc_score(right, score), abs=1e-12
    )
    assert value_of(metrics.brier, answers) == pytest.approx(
        sklearn_metrics.brier_score_loss(right, score), abs=1e-12
    )
    inside = np.clip(score, 0.01, 0.99)  # where both take the logarithm of the same number
    assert value_of(metrics.log_loss, Answers(inside, right)) == pytest.approx(
        sklearn_metrics.log_loss(right, inside), abs=1e-12
    )


def test_log_loss_of_a_sure_mistake_is_large_and_finite():
    assert value_of(metrics.log_loss, Answers([1.0], [False])) == pytest.approx(-math.log(1e-12))


@settings(max_examples=40)
@given(people.filter(bool))
def test_augrc_is_wrong_and_at_least_as_sure_as_a_random_other(rows):
    answers = made(rows)
    total = 0.0
    for one, right in zip(answers.confidence, answers.correct, strict=True):
        for other in answers.confidence:
            total += (not right) * ((one > other) + (one == other) / 2)
    assert value_of(metrics.augrc, answers) == pytest.approx(total / len(answers) ** 2)


@settings(max_examples=40)
@given(people.filter(bool))
def test_augrc_is_the_area_under_the_curve_that_is_drawn(rows):
    answers = made(rows)
    curve = risk_coverage(answers)
    area = np.trapezoid([0, *curve.generalised_risk], [0, *curve.coverage])
    assert value_of(metrics.augrc, answers) == pytest.approx(area)


def test_augrc_splits_into_ranking_and_recall():
    """(1 - AUROC) a (1 - a) + (1 - a)^2 / 2, with a the share right (Traub et al. 2024)."""
    answers = drawn(211)
    share = answers.correct.mean()
    ranking = (1 - value_of(metrics.auroc, answers)) * share * (1 - share)
    assert value_of(metrics.augrc, answers) == pytest.approx(ranking + (1 - share) ** 2 / 2)


@settings(max_examples=40)
@given(people.filter(bool), st.sampled_from([0.5, 0.8, 0.95, 1.0]))
def test_coverage_at_a_precision_by_trying_every_threshold(rows, precision):
    answers = made(rows)
    coverage, of_right = 0.0, 0.0
    for threshold in answers.confidence:
        grades = grade(answers, threshold)
        if grades.precision is not None and grades.precision >= precision - 1e-12:
            coverage = max(coverage, (grades.correct + grades.wrong) / len(answers))
            of_right = max(of_right, grades.correct / max(1, answers.correct.sum()))
    assert value_of(metrics.coverage_at_precision(precision), answers) == pytest.approx(coverage)
    if answers.correct.any():
        measured = value_of(metrics.right_given_at_precision(precision), answers)
        assert measured == pytest.approx(of_right)


def test_19_of_20_is_95_percent():
    answers = Answers(np.full(20, 0.5), [False] + [True] * 19)
    assert value_of(metrics.coverage_at_precision(0.95), answers) == 1.0


def test_a_precision_never_reached_says_so():
    metric = metrics.coverage_at_precision(0.95)(Answers([0.9, 0.1], [False, True]))
    assert metric.value == 0
    assert metric.reason is not None
    assert "95%" in metric.reason


@settings(max_examples=40)
@given(people.filter(bool))
def test_calibration_error_is_the_table_added_up(rows):
    answers = made(rows)
    table = reliability_table(answers)
    assert sum(each.people for each in table) == len(answers)
    gaps = [abs(each.confidence - each.accuracy) * each.people for each in table]
    assert value_of(metrics.ece, answers) == pytest.approx(sum(gaps) / len(answers))
    edges = [edge for each in table for edge in (each.low, each.high)]
    assert edges == sorted(edges)
    assert all(one.high < other.low for one, other in pairwise(table))


def test_bins_hold_equally_many_people_where_there_are_no_ties():
    rng = np.random.default_rng(3)
    answers = Answers(rng.random(200), rng.random(200) < 0.5)
    assert [each.people for each in reliability_table(answers)] == [20] * 10


def test_calibration_error_of_a_calibrated_score_is_that_of_chance():
    rng = np.random.default_rng(5)
    found, promised = [], []
    for _ in range(60):
        score = rng.beta(0.7, 0.5, 400)
        answers = Answers(score, rng.random(400) < score)
        found.append(value_of(metrics.ece, answers))
        promised.append(ece_of_chance(answers, rng, draws=100).value)
    # the errors vary by about 0.01, so that their mean over 60 varies by 0.0013
    assert np.mean(found) == pytest.approx(np.mean(promised), abs=0.005)
    assert np.mean(promised) > 0.03
    overconfident = Answers(np.full(400, 0.9), rng.random(400) < 0.7)
    assert value_of(metrics.ece, overconfident) > 0.1


def test_grades_add_up_and_the_threshold_itself_is_answered():
    grades = grade(Answers([0.9, 0.5, 0.5, 0.2], [True, True, False, True]), 0.5)
    assert (grades.correct, grades.wrong, grades.not_attempted) == (2, 1, 1)
    assert grades.precision == pytest.approx(2 / 3)
    assert grade(Answers([0.1], [True]), 0.5).precision is None


def test_score_at_a_target_by_hand():
    answers = Answers([0.9, 0.8, 0.75, 0.1], [True, False, True, False])
    assert value_of(metrics.score_at_target(0.75), answers) == pytest.approx((1 - 3 + 1) / 4)
    always = metrics.score_at_target(0.75, threshold=0.0)
    assert value_of(always, answers) == pytest.approx((1 - 3 + 1 - 3) / 4)


def test_unseen_unknown_counts_only_the_unseen():
    answers = Answers([0.1, 0.6, 0.2, 0.9], [False] * 4, [True, False, False, False])
    assert value_of(metrics.unseen_unknown(0.6), answers) == pytest.approx(1 / 3)


def test_open_world_floor_is_singletons_less_miscalibration():
    floor = open_world_floor(["Ann", "Ann", "Bo", "Cy"], Metric(value=0.1))
    assert floor.value == pytest.approx(0.5 - 0.1)
    assert floor.reason is not None
    assert "yet to be met" in floor.reason
    assert open_world_floor(["Ann", "Ann"], Metric(value=0.1)).value == 0
    assert open_world_floor([], Metric(value=0.1)).value is None
    unknown = open_world_floor(["Ann"], Metric(value=None, reason="nobody was asked."))
    assert unknown.reason == "no miscalibration is known: nobody was asked."


@EACH_MEASURE
@settings(max_examples=15)
@given(rows=people)
def test_a_value_is_finite_or_a_sentence_says_why(measure, rows):
    answers = made(rows)
    metric = measure(answers)
    if metric.value is None:
        assert metric.reason is not None
        assert re.fullmatch(r"[a-z].*\.", metric.reason)
    interval = measure_with_intervals([measure], answers, np.random.default_rng(1), resamples=20)[
        measure.name
    ]
    numbers = [interval.value, interval.low, interval.high]
    assert all(number is None or math.isfinite(number) for number in numbers)
    assert (interval.low is None) == (interval.high is None)
    assert interval.value == metric.value


@pytest.mark.parametrize(
    ("measure", "answers", "word"),
    [
        (metrics.auroc, Answers([0.1, 0.9], [True, True]), "all answers are right"),
        (metrics.auroc, Answers([0.1, 0.9], [False, False]), "all answers are wrong"),
        (metrics.auroc, Answers([], []), "nobody"),
        (metrics.augrc, Answers([], []), "nobody"),
        (metrics.ece, Answers([-3.0, -2.0], [True, False]), "not a probability"),
        (metrics.log_loss, Answers([1.5], [True]), "not a probability"),
        (metrics.score_at_target(0.5), Answers([1.5], [True]), "not a probability"),
        (metrics.right_given_at_precision(0.5), Answers([0.5], [False]), "no answer is right"),
        (metrics.unseen_unknown(0.5), Answers([0.5], [True]), "not known who was seen"),
        (metrics.unseen_unknown(0.5), Answers([0.5], [True], [True]), "nobody unseen"),
    ],
)
def test_what_is_undefined_says_why(measure, answers, word):
    metric = measure(answers)
    assert metric.value is None
    assert metric.reason is not None
    assert word in metric.reason


def test_an_empty_table_is_no_error():
    nobody = Answers([], [])
    assert reliability_table(nobody) == []
    assert risk_coverage(nobody).coverage.size == 0
    assert ece_of_chance(nobody, np.random.default_rng(0)).value is None
    assert dataclasses.astuple(grade(nobody, 0.5)) == (0, 0, 0)


@pytest.mark.parametrize(
    "measure",
    [measure for measure in MEASURES if measure is not metrics.ece],  # its bins stay as they are
    ids=lambda measure: measure.name,
)
def test_a_weight_of_two_is_the_person_twice(measure):
    """The bootstrap draws people: a resample must equal the table with those people in it."""
    answers = drawn(61, seed=2)
    twice = np.random.default_rng(4).integers(0, 3, 61)
    repeated = np.repeat(np.arange(61), twice)
    assert answers.seen is not None
    table = Answers(answers.confidence[repeated], answers.correct[repeated], answers.seen[repeated])
    weighted = measure.values(answers, twice[None, :].astype(float))[0]
    assert weighted == pytest.approx(value_of(measure, table), abs=1e-12)


def test_resamples_keep_the_number_of_seen_and_unseen():
    answers = drawn(53)
    assert answers.seen is not None
    (weights,) = resample_weights(answers, np.random.default_rng(0), resamples=31)
    assert weights.shape == (31, 53)
    assert (weights[:, answers.seen].sum(axis=1) == answers.seen.sum()).all()
    assert weights.std() > 0.5


def test_blocks_of_resamples_add_up(monkeypatch):
    monkeypatch.setattr("wherefrom.provenance.judging.metrics.CELLS", 53 * 7)
    blocks = list(resample_weights(drawn(53), np.random.default_rng(0), resamples=31))
    assert [len(block) for block in blocks] == [7, 7, 7, 7, 3]


def test_the_same_seed_gives_the_same_interval():
    one, other = (
        measure_with_intervals(MEASURES, drawn(97), np.random.default_rng(8), resamples=50)
        for _ in range(2)
    )
    assert one == other


def test_an_interval_is_the_central_part_of_the_defined_values():
    values = np.append(np.random.default_rng(0).permutation(1001).astype(float), np.full(9, np.nan))
    metric = with_interval(Metric(value=1.0), values, 0.95)
    assert (metric.low, metric.high) == pytest.approx((25, 975))


def test_intervals_hold_the_truth_about_as_often_as_they_say():
    """AUROC of two normal curves one apart is known: 0.7602."""
    rng = np.random.default_rng(6)
    held = 0
    for _ in range(100):
        right = np.arange(200) < 120
        score = rng.normal(size=200) + right
        found = measure_with_intervals([metrics.auroc], Answers(score, right), rng, resamples=200)
        metric = found["AUROC"]
        assert metric.low is not None
        assert metric.high is not None
        held += metric.low <= 0.76025 <= metric.high
    assert 88 <= held <= 100  # 95 expected; fewer than 88 has probability 0.002


def test_a_paired_difference_is_narrower_than_two_separate_intervals():
    rng = np.random.default_rng(9)
    score = rng.normal(size=300)
    right = score + rng.normal(size=300) > 0
    first = Answers(score, right)
    second = Answers(score + 0.2 * rng.normal(size=300), right)
    found = paired_difference(metrics.auroc, first, second, rng)
    alone = measure_with_intervals([metrics.auroc], first, rng)["AUROC"]
    assert found.value == pytest.approx(
        value_of(metrics.auroc, first) - value_of(metrics.auroc, second)
    )
    assert found.low is not None
    assert found.high is not None
    assert alone.low is not None
    assert alone.high is not None
    assert found.low <= found.value <= found.high
    assert found.high - found.low < 0.5 * (alone.high - alone.low)
    itself = paired_difference(metrics.auroc, first, first, rng)
    assert (itself.value, itself.low, itself.high) == (0, 0, 0)


def test_a_difference_of_the_undefined_says_why():
    all_right = Answers([0.1, 0.2], [True, True])
    metric = paired_difference(metrics.auroc, all_right, all_right, np.random.default_rng(0))
    assert metric == metrics.auroc(all_right)


def test_too_few_people_for_an_interval_is_said():
    answers = Answers([0.9, 0.1], [True, False])
    metric = measure_with_intervals([metrics.auroc], answers, np.random.default_rng(0))["AUROC"]
    assert (metric.value, metric.low) == (1.0, None)
    assert metric.reason is not None
    assert "no interval" in metric.reason


@pytest.mark.parametrize(
    "mistake",
    [
        lambda: Answers([0.5, float("nan")], [True, False]),
        lambda: Answers([0.5], [True, False]),
        lambda: Answers([[0.5]], [[True]]),
        lambda: Answers([0.5], [0.3]),
        lambda: Answers([0.5], [True], [True, False]),
        lambda: metrics.coverage_at_precision(0),
        lambda: metrics.score_at_target(1.0),
        lambda: open_world_floor(["Ann"], Metric(value=-0.1)),
        lambda: measure_with_intervals([], drawn(5), np.random.default_rng(0), level=1),
        lambda: measure_with_intervals([], drawn(5), np.random.default_rng(0), resamples=0),
        lambda: paired_difference(
            metrics.auroc, drawn(5), drawn(5, seed=1), np.random.default_rng(0)
        ),
    ],
)
def test_a_mistake_is_one_sentence(mistake):
    with pytest.raises(UserError, match=r"^[a-z].*\.$"):
        mistake()
