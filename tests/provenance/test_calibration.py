"""The probability against scikit-learn, its definition and the truth."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from wherefrom.provenance import metrics
from wherefrom.provenance.confidence import calibration
from wherefrom.provenance.confidence.calibration import (
    Calibration,
    SeenMixture,
    fit_calibration,
    sigmoid,
)
from wherefrom.provenance.metrics import ScoredAnswers

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
    return metrics.measure(formula, ScoredAnswers(confidence, right))["value"]


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
    told = SeenMixture(seen=None, given=fitted, guessed=0.1).probability({**signals, "seen": seen})
    assert told == pytest.approx(np.where(seen, likely, 0.1))
    both = SeenMixture(seen=fitted, given=fitted, guessed=0.1).probability(signals)
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
