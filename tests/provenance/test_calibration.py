"""The probability against scikit-learn and the truth."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from wherefrom.errors import UserError
from wherefrom.provenance.confidence import calibration as logistic
from wherefrom.provenance.confidence.calibration import (
    NO_CURVE,
    Calibration,
    fit_calibration,
    fit_with_held_out,
    out_of_fold,
    sigmoid,
    squash,
)
from wherefrom.provenance.confidence.guarantee import guarantee_threshold
from wherefrom.provenance.judging import metrics
from wherefrom.provenance.judging.metrics import Answers

WEIGHTS = np.array([2.0, -1.0, 0.5, 0.0])
SIGNS = {"signal0": 1, "signal1": -1, "signal2": 1, "signal3": 1}


def logistic_people(count: int, seed: int):
    """Signals and grades that a logistic regression describes exactly, and the true chances."""
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(count, 4))
    chance = sigmoid(table @ WEIGHTS + 0.3)
    signals = {f"signal{i}": 7 + 3 * table[:, i] for i in range(4)}
    return signals, rng.random(count) < chance, chance


def remembering_people(count: int, seed: int):
    """Some are remembered and 95 % right, some not and 6 % right: no logistic curve."""
    rng = np.random.default_rng(seed)
    knows = rng.random(count) < 0.65
    right = rng.random(count) < np.where(knows, 0.95, 0.06)
    signals = {f"signal{i}": 2.5 * knows * (3 - i) / 3 + rng.normal(size=count) for i in range(3)}
    return signals, right


@pytest.fixture(scope="module")
def fitted() -> Calibration:
    signals, right, _ = logistic_people(300, 1)
    return fit_calibration(signals, right, signs=SIGNS, seed=5)


@pytest.mark.parametrize("strength", [0.01, 1.0, 100.0])
def test_weights_agree_with_scikit_learn(strength):
    rng = np.random.default_rng(2)
    table = rng.normal(size=(211, 5))
    right = rng.random(211) < sigmoid(table[:, 0] - table[:, 1])
    ours = logistic.fit_logistic(table, right.astype(float), strength=strength)
    theirs = LogisticRegression(C=1 / strength, tol=1e-10, max_iter=10_000).fit(table, right)
    assert ours == pytest.approx([*theirs.coef_[0], theirs.intercept_[0]], abs=1e-4)


def test_a_held_sign_holds_and_costs_nothing_where_it_is_true():
    signals, right, _ = logistic_people(300, 3)
    against = fit_calibration(signals, right, signs={"signal0": -1, "signal1": 1}, seed=0)
    weights = {signal.name: signal.weight for signal in against.signals}
    assert (weights["signal0"], weights["signal1"]) == (0, 0)
    held = fit_calibration(signals, right, signs={"signal0": 1, "signal1": -1}, seed=0)
    free = fit_calibration(signals, right, seed=0)
    assert held.probability(signals) == pytest.approx(free.probability(signals), abs=1e-3)


def test_probabilities_come_near_the_true_chances(fitted):
    signals, right, chance = logistic_people(5000, 4)
    found = fitted.probability(signals)
    # five numbers from 300 people: about sqrt(5 / 300 * p (1 - p)) = 0.05 in the root mean square
    assert np.abs(found - chance).mean() < 0.06
    assert fitted.curve == NO_CURVE  # a logistic curve needs no bending
    error = metrics.ece(Answers(found, right)).value
    assert error is not None
    assert error < 0.06


def test_the_curve_is_bent_where_it_must_be():
    signals, right = remembering_people(800, 6)
    fresh, truth = remembering_people(5000, 7)
    calibration = fit_calibration(signals, right, seed=0)
    assert calibration.curve.knots
    record = calibration.to_dict() | {"curve": {"knots": [], "heights": []}}
    straight = Calibration.from_dict(record)
    for measure in (metrics.ece, metrics.log_loss):
        bent_value = measure(Answers(calibration.probability(fresh), truth)).value
        straight_value = measure(Answers(straight.probability(fresh), truth)).value
        assert bent_value is not None
        assert straight_value is not None
        assert bent_value < straight_value
    # and the order of people is kept
    order = np.argsort(straight.probability(fresh), kind="stable")
    assert (np.diff(calibration.probability(fresh)[order]) >= 0).all()


def test_the_curve_is_venn_abers():
    rng = np.random.default_rng(8)
    logits = rng.normal(size=60).round(1)  # with ties
    right = rng.random(60) < sigmoid(2 * logits)
    curve = logistic.fit_curve(logits, right)
    for knot, height in zip(curve.knots, curve.heights, strict=True):
        p0, p1 = (
            IsotonicRegression()
            .fit(np.append(logits, knot), np.append(right, label).astype(float))
            .predict([knot])[0]
            for label in (0, 1)
        )
        assert height == pytest.approx(p1 / (1 - p0 + p1), abs=1e-9)
    assert len(curve.knots) == np.unique(logits).size
    assert (np.diff(curve.heights) >= -1e-12).all()


@pytest.mark.parametrize("people", [logistic_people, remembering_people])
def test_a_round_trip_through_json_changes_no_bit(people):
    signals, right, *_ = people(300, 9)
    calibration = fit_calibration(signals, right, seed=0)
    text = json.dumps(calibration.to_dict(), allow_nan=False)
    again = Calibration.from_dict(json.loads(text))
    assert again == calibration
    assert (again.probability(signals) == calibration.probability(signals)).all()


def test_asking_needs_numpy_alone():
    code = (
        "import sys, wherefrom.provenance.confidence.calibration;"
        "assert not {'scipy', 'sklearn', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_same_seed_gives_the_same_calibration(fitted):
    signals, right, _ = logistic_people(300, 1)
    assert fit_calibration(signals, right, signs=SIGNS, seed=5) == fitted


def test_a_missing_value_counts_as_the_mean(fitted):
    signals, _, _ = logistic_people(7, 10)
    mean = next(s.mean for s in fitted.signals if s.name == "signal0")
    missing = fitted.probability(signals | {"signal0": np.full(7, np.nan)})
    assert missing == pytest.approx(fitted.probability(signals | {"signal0": np.full(7, mean)}))
    left_out = {name: column for name, column in signals.items() if name != "signal0"}
    assert (fitted.probability(left_out) == missing).all()
    unknown = fitted.probability(signals | {"shoe size": np.full(7, 43.0)})
    assert (unknown == fitted.probability(signals)).all()


def test_missing_often_has_a_weight_of_its_own():
    signals, right, _ = logistic_people(400, 11)
    hidden = np.where(right, signals["signal3"], np.nan)  # missing only for the wrong
    calibration = fit_calibration(signals | {"signal3": hidden}, right, seed=0)
    numbers = next(signal for signal in calibration.signals if signal.name == "signal3")
    assert numbers.missing_weight < -1
    without = calibration.probability(signals | {"signal3": np.full(400, np.nan)})
    average = calibration.probability(signals | {"signal3": np.full(400, numbers.mean)})
    assert without.mean() < average.mean() - 0.1


def test_what_was_never_seen_is_no_stronger_than_the_strongest(fitted):
    signals, _, _ = logistic_people(3, 12)
    high = next(s.high for s in fitted.signals if s.name == "signal0")
    at_the_edge = fitted.probability(signals | {"signal0": np.full(3, high)})
    for beyond in (1e9, np.inf):
        assert (fitted.probability(signals | {"signal0": np.full(3, beyond)}) == at_the_edge).all()


@settings(max_examples=25)
@given(st.lists(st.floats(), min_size=1, max_size=5))
def test_any_number_gets_a_probability(fitted, values):
    found = fitted.probability({"signal0": values, "signal1": values})
    assert ((found >= 0) & (found <= 1)).all()


def test_a_signal_that_says_nothing_is_left_out():
    signals, right, _ = logistic_people(100, 13)
    idle = {
        "constant": np.ones(100),
        "absent": np.full(100, np.nan),
        "rounding": 0.1 + 1e-17 * np.arange(100),
        "beyond": np.where(right, 1e300, -1e300),
    }
    calibration = fit_calibration(signals | idle, right, seed=0)
    assert {s.name for s in calibration.signals} == set(signals)


@pytest.mark.parametrize(
    ("right", "share"), [(np.ones(60, bool), 61 / 62), (np.zeros(60, bool), 1 / 62)]
)
def test_one_kind_of_answers_gives_one_probability_and_a_note(right, share):
    signals, _, _ = logistic_people(60, 14)
    calibration = fit_calibration(signals, right, seed=0)
    assert calibration.probability(signals) == pytest.approx(np.full(60, share))
    assert calibration.note is not None
    assert "too few" in calibration.note
    assert Calibration.from_dict(calibration.to_dict()) == calibration
    assert out_of_fold(signals, right, seed=0) == pytest.approx(np.full(60, share), abs=0.01)


def test_out_of_fold_is_blind_to_the_persons_own_grade():
    """Signals of pure noise: in the fit they seem to tell right from wrong, out of fold not."""
    rng = np.random.default_rng(15)
    signals = {f"noise{i}": rng.normal(size=200) for i in range(12)}
    right = rng.random(200) < 0.5
    inside = fit_calibration(signals, right, seed=0).probability(signals)
    fitted_auroc = metrics.auroc(Answers(inside, right)).value
    assert fitted_auroc is not None
    held_out = fit_with_held_out(signals, right, seed=0).held_out
    for honest in (out_of_fold(signals, right, seed=0), held_out):
        honest_auroc = metrics.auroc(Answers(honest, right)).value
        assert honest_auroc is not None
        assert honest_auroc < 0.58 < fitted_auroc


def test_held_out_confidences_are_near_those_that_will_be_asked_for():
    signals, right = remembering_people(400, 19)
    found = fit_with_held_out(signals, right, seed=0)
    assert found.calibration == fit_calibration(signals, right, seed=0)
    difference = np.abs(found.held_out - found.calibration.probability(signals))
    assert 0 < difference.mean() < 0.02


def test_folds_keep_people_together_and_spread_the_right():
    rng = np.random.default_rng(16)
    people = np.repeat(np.arange(50), 3)
    right = np.repeat(rng.random(50) < 0.3, 3)
    folds = logistic.deal_folds(right, people, rng)
    assert all(np.unique(folds[people == person]).size == 1 for person in range(50))
    per_fold = [right[folds == fold].sum() / 3 for fold in range(5)]
    assert max(per_fold) - min(per_fold) <= 1


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"version": 99}, "version 99"),
        ({"intercept": float("nan")}, "intercept"),
        ({"intercept": True}, "intercept"),
        ({"people": 10**400}, "people"),
        ({"signals": None}, "signals"),
        ({"signals": [{"weight": 1.0}]}, "name"),
        ({"signals": [{"name": "x"}]}, "mean"),
        ({"curve": None}, "curve"),
        ({"curve": {"knots": [1.0, 0.0], "heights": [0.1, 0.2]}}, "curve"),
        ({"curve": {"knots": [0.0, 1.0], "heights": [0.1, 1.2]}}, "curve"),
        ({"curve": {"knots": [0.0], "heights": []}}, "curve"),
        ({"note": 3}, "note"),
    ],
)
def test_a_record_that_was_tampered_with_is_refused(fitted, change, word):
    with pytest.raises(UserError, match=word):
        Calibration.from_dict(fitted.to_dict() | change)


@pytest.mark.parametrize("record", [None, [], {}, "x"])
def test_what_is_no_calibration_is_refused(record):
    with pytest.raises(UserError, match="record with a version"):
        Calibration.from_dict(record)


@pytest.mark.parametrize(
    "mistake",
    [
        lambda: fit_calibration({}, [], seed=0),
        lambda: fit_calibration({"a": [1.0], "b": [1.0, 2.0]}, [True], seed=0),
        lambda: fit_calibration({"a": [[1.0]]}, [True], seed=0),
        lambda: fit_calibration({"a": [1.0]}, [True, False], seed=0),
        lambda: fit_calibration({"a": [1.0]}, [True], signs={"b": 1}, seed=0),
        lambda: fit_calibration({"a": [1.0]}, [True], signs={"a": 2}, seed=0),
        lambda: out_of_fold({"a": np.ones(30)}, np.ones(30), groups=[1, 2], seed=0),
        lambda: guarantee_threshold([0.5], [True], risk=0),
        lambda: guarantee_threshold([0.5], [True], delta=1),
        lambda: guarantee_threshold([0.5], [True], grid=np.array([0.1, 0.2])),
    ],
)
def test_a_mistake_is_one_sentence(mistake):
    with pytest.raises(UserError, match=r"^[a-z].*\.$"):
        mistake()


def test_squash_without_a_curve_is_the_sigmoid():
    assert squash(np.array([-800.0, 0.0, 800.0]), NO_CURVE) == pytest.approx([0, 0.5, 1])
