"""The probability and the guarantee against scikit-learn, mapie, exact bounds and the truth."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from wherefrom.errors import UserError
from wherefrom.provenance import guarantee, metrics
from wherefrom.provenance.confidence import calibration
from wherefrom.provenance.confidence.calibration import (
    Calibration,
    Product,
    fit_calibration,
    guarantee_threshold,
    sigmoid,
)
from wherefrom.provenance.metrics import Answers

WEIGHTS = np.array([2.0, -1.0, 0.5, 0.0])
SIGNS = {"signal0": 1, "signal1": -1, "signal2": 1, "signal3": 1}


def logistic_subjects(count: int, seed: int):
    """Signals and grades that a logistic regression describes exactly, and the true chances."""
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(count, 4))
    chance = sigmoid(table @ WEIGHTS + 0.3)
    signals = {f"signal{i}": 7 + 3 * table[:, i] for i in range(4)}
    return signals, rng.random(count) < chance, chance


def fit(signals, right, **more) -> Calibration:
    return fit_calibration(signals, right, seed=more.pop("seed", 0), **more)[0]


@pytest.fixture(scope="module")
def fitted() -> Calibration:
    signals, right, _ = logistic_subjects(300, 1)
    return fit(signals, right, signs=SIGNS, seed=5)


def value_of(formula, confidence, right) -> float:
    return metrics.measure(formula, Answers(confidence, right))["value"]


@pytest.mark.parametrize("strength", [0.01, 1.0, 100.0])
def test_weights_agree_with_scikit_learn_also_where_rows_count_for_more(strength):
    rng = np.random.default_rng(2)
    table = rng.normal(size=(211, 5))
    right = rng.random(211) < sigmoid(table[:, 0] - table[:, 1])
    for counts in (np.ones(211), rng.uniform(0.2, 3, 211)):
        ours = calibration.fit_logistic(table, right, np.zeros(5, dtype=int), counts, strength)
        theirs = LogisticRegression(C=1 / strength, tol=1e-10, max_iter=10_000)
        theirs.fit(table, right, sample_weight=counts)
        assert ours == pytest.approx([*theirs.coef_[0], theirs.intercept_[0]], abs=1e-4)


def test_a_held_sign_holds_and_costs_nothing_where_it_is_true():
    signals, right, _ = logistic_subjects(300, 3)
    against = fit(signals, right, signs={"signal0": -1, "signal1": 1})
    assert [against.signals[name].weight for name in ("signal0", "signal1")] == [0, 0]
    held = fit(signals, right, signs={"signal0": 1, "signal1": -1})
    free = fit(signals, right).probability(signals)
    assert held.probability(signals) == pytest.approx(free, abs=0.02)


def test_probabilities_come_near_the_true_chances_and_the_seed_decides(fitted):
    signals, right, chance = logistic_subjects(5000, 4)
    found = fitted.probability(signals)
    # five numbers from 300 subjects: about sqrt(5 / 300 * p (1 - p)) = 0.05 in the root mean square
    assert np.abs(found - chance).mean() < 0.06
    assert value_of(metrics.ece, found, right) < 0.06
    signals, right, _ = logistic_subjects(300, 1)
    assert fit(signals, right, signs=SIGNS, seed=5) == fitted


def test_a_product_is_the_sum_over_seen_and_unseen(fitted):
    signals, _, _ = logistic_subjects(50, 6)
    seen, likely = np.arange(50) % 2 == 0, fitted.probability(signals)
    told = Product(seen=None, given=fitted, guessed=0.1).probability({**signals, "seen": seen})
    assert told == pytest.approx(np.where(seen, likely, 0.1))
    both = Product(seen=fitted, given=fitted, guessed=0.1).probability(signals)
    assert both == pytest.approx(likely**2 + (1 - likely) * 0.1)


def test_a_missing_value_counts_as_the_mean_and_one_beyond_as_the_strongest_seen(fitted):
    signals, _, _ = logistic_subjects(7, 10)
    first = fitted.signals["signal0"]

    def ask(value: float):
        return fitted.probability(signals | {"signal0": np.full(7, value)})

    assert ask(np.nan) == pytest.approx(ask(first.mean))
    without = {name: column for name, column in signals.items() if name != "signal0"}
    assert (fitted.probability(without) == ask(np.nan)).all()
    assert (ask(np.inf) == ask(first.high)).all()
    sure = Calibration(signals={}, intercept=99.0, subjects=1, right=1)
    assert sure.probability(signals)[0] < 1  # nothing is certain, whatever the weights


def test_a_signal_that_says_nothing_is_left_out():
    signals, right, _ = logistic_subjects(100, 13)
    idle = {"constant": np.ones(100), "absent": np.full(100, np.nan)}
    idle["rounding"] = 0.1 + 1e-17 * np.arange(100)
    assert set(fit(signals | idle, right).signals) == set(signals)
    assert "no signal varies" in fit(idle, right).note


@pytest.mark.parametrize("all_right", [True, False])
def test_one_kind_of_answers_gives_a_note_and_the_signs_rank_them(all_right):
    signals, _, _ = logistic_subjects(60, 14)
    right, share = np.full(60, all_right), 61 / 62 if all_right else 1 / 62
    found = fit(signals, right)
    assert found.probability(signals) == pytest.approx(np.full(60, share))
    assert "so few" in found.note
    name = next(iter(signals))
    found = fit({name: signals[name]}, right, signs={name: 1}).probability(signals)
    assert (np.diff(found[np.argsort(signals[name])]) >= 0).all()
    assert found.max() > found.min()
    assert found.mean() == pytest.approx(share, abs=0.05)


def test_held_out_is_blind_to_the_own_grade():
    """Signals of pure noise: in the fit they seem to tell right from wrong, held out not."""
    rng = np.random.default_rng(15)
    signals = {f"noise{i}": rng.normal(size=200) for i in range(12)}
    right = rng.random(200) < 0.5
    found, held_out = fit_calibration(signals, right, seed=0)
    assert value_of(metrics.auroc, held_out, right) < 0.58
    assert value_of(metrics.auroc, found.probability(signals), right) > 0.58
    # rows of one group are held out together: copies of a row do not vouch for it
    twice = {name: np.repeat(values[:80], 2) for name, values in signals.items()}
    groups, graded = np.repeat(np.arange(80), 2), np.repeat(right[:80], 2)
    _, blind = fit_calibration(twice, graded, groups=groups, seed=0)
    assert (blind[::2] == blind[1::2]).all()


def test_folds_spread_the_right_evenly_and_rows_count_for_all_that_they_stand_for():
    rng = np.random.default_rng(3)
    right = rng.random(151) < 0.3
    folds = calibration.assign_folds(right, rng)
    for rows in (right, ~right):
        sizes = np.bincount(folds[rows], minlength=5)
        assert sizes.max() - sizes.min() <= 1
    signals, right, _ = logistic_subjects(90, 2)
    counts = rng.integers(1, 4, size=90)
    again = np.repeat(np.arange(90), counts)
    many = {name: values[again] for name, values in signals.items()}
    weighted, held_out = fit_calibration(
        signals, right, counts=counts, groups=np.arange(90), seed=0
    )
    repeated, others = fit_calibration(many, right[again], groups=again, seed=0)
    assert held_out[again] == pytest.approx(others, abs=1e-3)
    assert weighted.strength == repeated.strength


# ---- the guarantee ----


def graded_subjects(count: int, rng: np.random.Generator, *, grid_risk: bool = False):
    """Calibrated confidences, or ones that are right exactly 95 % of the time or never sure."""
    knows = rng.random(count) < 0.6
    if grid_risk:  # the share wrong is just above 5 % from 0.9 on: every guarantee there is false
        confidence = np.where(knows, rng.uniform(0.9, 1, count), rng.uniform(0, 0.9, count))
        return confidence, rng.random(count) < np.where(knows, 0.9499, 0.5)
    confidence = np.where(knows, 1 - rng.beta(1, 30, count), rng.beta(1, 10, count))
    return confidence, rng.random(count) < confidence


def test_the_bound_is_clopper_and_pearsons():
    assert guarantee.upper_bound(5, 5, 0.05) == 1
    for wrong, given_answers in ((0, 59), (3, 153), (17, 90)):
        bound = guarantee.upper_bound(wrong, given_answers, 0.05)
        assert guarantee.tail(wrong, given_answers, bound) == pytest.approx(0.05)
    assert guarantee.fewest_answers(0.05, 0.05) == 59  # the rule of three
    assert guarantee.tail(0, 59, 0.05) <= 0.05 < guarantee.tail(0, 58, 0.05)


@pytest.mark.parametrize("always_false", [False, True])
def test_the_guarantee_fails_no_more_often_than_it_says(always_false):
    rng = np.random.default_rng(18)
    failed, guaranteed = 0, 0
    score, right = graded_subjects(200_000, rng, grid_risk=always_false)
    order = np.argsort(score)
    score, wrong_from = score[order], np.cumsum(~right[order][::-1])[::-1]
    for _ in range(400):
        found = guarantee_threshold(*graded_subjects(300, rng, grid_risk=always_false))
        if found.threshold is not None:
            guaranteed += 1
            # where every guarantee is false by construction, the finite truth need not decide
            at = int(np.searchsorted(score, found.threshold))
            failed += always_false or wrong_from[at] / (score.size - at) > 0.05
    assert failed <= 33  # 20 expected at most; more than 33 has probability 0.002
    assert guaranteed > (0 if always_false else 200)


def test_the_choice_agrees_with_mapie():
    """Same grid, same start, same order, same exact tails."""
    control = pytest.importorskip("mapie.risk_control")
    methods = pytest.importorskip("mapie.risk_control.methods")
    guaranteed = 0
    for seed in range(8):
        confidence, right = graded_subjects(500, np.random.default_rng(seed))
        some, bad = (
            guarantee.count_from(each, calibration.GRID)
            for each in (confidence, confidence[~right])
        )
        start = int(np.argmax(some >= guarantee.first_count(500, 0.05, 0.05)))
        grid, some, bad = calibration.GRID[start:], some[start:], bad[start:]
        share = np.maximum(bad / some - 1e-12, 0)  # so that its ceiling finds the count again
        theirs = methods.compute_hoeffding_bentkus_p_value(share, some, np.array([0.05]), True)
        assert theirs[:, 0] == pytest.approx(guarantee.tail(bad, some, 0.05), abs=1e-6)
        passed = control.control_fwer(theirs[:, 0], 0.05, "fixed_sequence")
        found = guarantee_threshold(confidence, right).threshold
        assert found == (grid[passed].min() if len(passed) else None)
        guaranteed += found is not None
    assert guaranteed >= 2


def test_the_first_failure_ends_the_tests():
    """Sure answers are wrong where the tests begin; below, where more are right, none is tried."""
    confidence = np.repeat([0.99, 0.6], [300, 1000])
    right = np.concatenate([np.arange(300) % 10 > 0, np.ones(1000, dtype=bool)])
    assert guarantee_threshold(confidence, right).threshold is None
    assert guarantee_threshold(confidence, np.ones(1300, dtype=bool)).threshold == 0.5


@given(
    st.lists(st.tuples(st.floats(0, 1), st.booleans()), max_size=200),
    st.floats(0.01, 0.5),
    st.floats(0.01, 0.5),
)
@settings(max_examples=60)
def test_a_guarantee_is_kept_here_or_a_sentence_says_why_not(rows, risk, delta):
    confidence, right = np.array([c for c, _ in rows]), np.array([r for _, r in rows], dtype=bool)
    found = guarantee_threshold(confidence, right, risk=risk, delta=delta)
    if found.threshold is None:
        assert found.reason.endswith(".")
        assert found.bound is None
    else:
        given_answers = confidence >= found.threshold
        assert found.given == given_answers.sum()
        assert found.wrong == (given_answers & ~right).sum() <= risk * found.given
        bound = guarantee.upper_bound(found.wrong, found.given, delta)
        assert found.bound == pytest.approx(bound)
        assert bound <= risk + 1e-9
    equal = np.repeat([0.9, 0.6], 300)  # one that is equal to the threshold is given
    assert guarantee_threshold(equal, equal > 0.7).threshold == 0.601
    assert guarantee_threshold(equal, equal > 0.5).threshold == 0.5  # never below


def test_where_nothing_is_guaranteed_a_threshold_is_estimated_and_says_so():
    confidence = np.repeat([0.96, 0.8, 0.3], 30)
    right = np.arange(90) % 60 > 0
    right[60:] = False
    found = guarantee_threshold(confidence, right)
    assert (found.threshold, found.given, found.wrong) == (None, 60, 1)
    assert found.used == found.estimate == 0.95  # stricter than where 1 of 60 is wrong
    assert "by estimate (1 of 60 are wrong)" in found.reason
    right[1] = False
    stricter = guarantee_threshold(confidence, right)
    assert (stricter.given, stricter.used) == (0, calibration.NEVER)  # 2 of 60 are too many
    few = guarantee_threshold([0.99] * 26, [True] * 26)
    assert (few.threshold, few.given, few.used) == (None, 0, calibration.NEVER)
    assert few.reason.endswith("no answer is shown.")


def test_a_threshold_must_also_keep_the_unseen_out():
    confidence, right = np.repeat([0.99, 0.6, 0.2], 200), np.repeat([True, True, False], 200)
    assert guarantee_threshold(confidence, right).threshold <= 0.6
    unseen = np.repeat([0.7, 0.1], 200)
    held = guarantee_threshold(confidence, right, unseen=unseen)
    assert 0.7 < held.threshold <= 0.99
    assert (held.unseen, held.unseen_given) == (400, 0)
    # few unseen, too: one in a hundred at most, but one of less than a hundred
    one = np.append(np.full(39, 0.1), 0.95)
    assert guarantee_threshold(confidence, right, unseen=one).threshold <= 0.6
    assert guarantee_threshold(confidence, right, unseen=np.append(one, 0.95)).threshold > 0.95
    assert guarantee_threshold(confidence, right, unseen=unseen[:100]).used > 0.7
    none = guarantee_threshold(confidence, right, unseen=np.full(100, 0.999))
    assert "(100 of 100 unseen subjects have " in none.reason
    assert "; 1 may)" in none.reason


def test_a_risk_lies_between_0_and_1():
    for risk in (0.0, 1.0):
        with pytest.raises(UserError, match="must lie between 0 and 1"):
            guarantee_threshold([0.9], [True], risk=risk)
