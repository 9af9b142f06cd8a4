"""The probability against scikit-learn and the truth."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError
from sklearn.linear_model import LogisticRegression

from wherefrom.provenance import metrics
from wherefrom.provenance.confidence import calibration as logistic
from wherefrom.provenance.confidence.calibration import (
    Calibration,
    Product,
    fit_calibration,
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


def remembering_subjects(count: int, seed: int):
    """Some are remembered and 95 % right, some not and 6 % right: no logistic curve."""
    rng = np.random.default_rng(seed)
    knows = rng.random(count) < 0.65
    right = rng.random(count) < np.where(knows, 0.95, 0.06)
    signals = {f"signal{i}": 2.5 * knows * (3 - i) / 3 + rng.normal(size=count) for i in range(3)}
    return signals, right


def fit(signals, right, **more) -> Calibration:
    return fit_calibration(signals, right, seed=more.pop("seed", 0), **more)[0]


@pytest.fixture(scope="module")
def fitted() -> Calibration:
    signals, right, _ = logistic_subjects(300, 1)
    return fit(signals, right, signs=SIGNS, seed=5)


@pytest.mark.parametrize("strength", [0.01, 1.0, 100.0])
def test_weights_agree_with_scikit_learn_also_where_rows_count_for_more(strength):
    rng = np.random.default_rng(2)
    table = rng.normal(size=(211, 5))
    right = rng.random(211) < sigmoid(table[:, 0] - table[:, 1])
    for counts in (np.ones(211), rng.uniform(0.2, 3, 211)):
        ours = logistic.fit_logistic(table, right, np.zeros(5, dtype=int), counts, strength)
        theirs = LogisticRegression(C=1 / strength, tol=1e-10, max_iter=10_000)
        theirs.fit(table, right, sample_weight=counts)
        assert ours == pytest.approx([*theirs.coef_[0], theirs.intercept_[0]], abs=1e-4)


def test_a_held_sign_holds_and_costs_nothing_where_it_is_true():
    signals, right, _ = logistic_subjects(300, 3)
    against = fit(signals, right, signs={"signal0": -1, "signal1": 1})
    assert [against.signals[name].weight for name in ("signal0", "signal1")] == [0, 0]
    held = fit(signals, right, signs={"signal0": 1, "signal1": -1})
    assert held.probability(signals) == pytest.approx(
        fit(signals, right).probability(signals), abs=0.02
    )


def test_probabilities_come_near_the_true_chances_and_the_seed_decides(fitted):
    signals, right, chance = logistic_subjects(5000, 4)
    found = fitted.probability(signals)
    # five numbers from 300 subjects: about sqrt(5 / 300 * p (1 - p)) = 0.05 in the root mean square
    assert np.abs(found - chance).mean() < 0.06
    assert metrics.measure(metrics.ece, Answers(found, right))["value"] < 0.06
    signals, right, _ = logistic_subjects(300, 1)
    assert fit(signals, right, signs=SIGNS, seed=5) == fitted


def test_a_product_levels_off_where_some_are_remembered_and_some_of_those_are_wrong():
    """Seen subjects are right by one signal, and who was seen is told by another."""
    rng = np.random.default_rng(6)

    def draw(count: int):
        seen, sure = rng.random(count) < 0.6, rng.normal(size=count)
        right = seen & (rng.random(count) < sigmoid(3 + 2 * sure))
        return (
            {"name": np.where(seen, 2.5, -2.5) + rng.normal(size=count), "sure": sure},
            seen,
            right,
        )

    (signals, seen, right), (fresh, met, truth) = draw(900), draw(5000)
    plain = fit(signals, right)
    given = fit({"sure": signals["sure"][seen]}, right[seen])
    both = Product(seen=fit({"name": signals["name"]}, seen), given=given, guessed=0.0)
    among = [Answers(each.probability(fresh)[met], truth[met]) for each in (both, plain)]
    assert (
        metrics.measure(metrics.auroc, among[0])["value"]
        > metrics.measure(metrics.auroc, among[1])["value"] + 0.02
    )
    errors = [
        metrics.measure(metrics.ece, Answers(each.probability(fresh), truth))["value"]
        for each in (both, plain)
    ]
    assert errors[0] < min(0.02, errors[1])
    # where the text tells who was seen, that is taken
    told = Product(seen=None, given=given, guessed=0.1).probability(fresh | {"seen": 1.0 * met})
    assert told[~met] == pytest.approx(0.1)
    assert told[met] == pytest.approx(given.probability(fresh)[met])


@pytest.mark.parametrize("subjects", [logistic_subjects, remembering_subjects])
def test_a_round_trip_through_json_changes_no_bit(subjects):
    signals, right, *_ = subjects(300, 9)
    calibration = fit(signals, right)
    text = json.dumps(asdict(calibration), allow_nan=False)
    again = TypeAdapter(Calibration).validate_python(json.loads(text))
    assert again == calibration
    assert (again.probability(signals) == calibration.probability(signals)).all()


@pytest.mark.parametrize(
    ("change", "word"),
    [
        *(({"intercept": wrong}, "intercept") for wrong in (float("nan"), True, None)),
        ({"signals": {"signal0": [1.0]}}, "signals"),
        ({"note": 3}, "note"),
    ],
)
def test_a_record_that_was_tampered_with_is_refused(fitted, change, word):
    with pytest.raises(ValidationError, match=word):
        TypeAdapter(Calibration).validate_python(asdict(fitted) | change)


def test_a_missing_value_counts_as_the_mean_and_one_beyond_as_the_strongest_seen(fitted):
    signals, _, _ = logistic_subjects(7, 10)
    first = fitted.signals["signal0"]

    def ask(value: float):
        return fitted.probability(signals | {"signal0": np.full(7, value)})

    assert ask(np.nan) == pytest.approx(ask(first.mean))
    without = {name: column for name, column in signals.items() if name != "signal0"}
    assert (fitted.probability(without) == ask(np.nan)).all()
    assert (ask(1e9) == ask(first.high)).all()
    assert (ask(np.inf) == ask(first.high)).all()
    sure = Calibration(signals={}, intercept=99.0, subjects=1, right=1)
    assert sure.probability(signals)[0] < 1  # nothing is certain, whatever the weights
    unknown = fitted.probability(signals | {"shoe size": np.full(7, 43.0)})
    assert (unknown == fitted.probability(signals)).all()


def test_a_signal_that_says_nothing_is_left_out():
    signals, right, _ = logistic_subjects(100, 13)
    idle = {
        "constant": np.ones(100),
        "absent": np.full(100, np.nan),
        "rounding": 0.1 + 1e-17 * np.arange(100),
    }
    assert set(fit(signals | idle, right).signals) == set(signals)
    assert "no signal varies" in fit(idle, right).note


@pytest.mark.parametrize("all_right", [True, False])
def test_one_kind_of_answers_gives_a_note_and_the_signs_rank_them(all_right):
    signals, _, _ = logistic_subjects(60, 14)
    right, share = np.full(60, all_right), 61 / 62 if all_right else 1 / 62
    calibration = fit(signals, right)
    assert calibration.probability(signals) == pytest.approx(np.full(60, share))
    assert "too few" in calibration.note
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
    assert metrics.measure(metrics.auroc, Answers(held_out, right))["value"] < 0.58
    assert (
        metrics.measure(metrics.auroc, Answers(found.probability(signals), right))["value"] > 0.58
    )
    # and yet near what will be said when asked
    signals, right = remembering_subjects(400, 19)
    found, held_out = fit_calibration(signals, right, seed=0)
    assert 0 < np.abs(held_out - found.probability(signals)).mean() < 0.02
    # rows of one group are held out together: copies of a row do not vouch for it
    twice = {name: np.repeat(values[:80], 2) for name, values in signals.items()}
    groups, graded = np.repeat(np.arange(80), 2), np.repeat(right[:80], 2)
    _, blind = fit_calibration(twice, graded, groups=groups, seed=0)
    assert (blind[::2] == blind[1::2]).all()


def test_folds_spread_the_right_evenly_and_rows_count_for_all_that_they_stand_for():
    rng = np.random.default_rng(3)
    right = rng.random(151) < 0.3
    folds = logistic.assign_folds(right, rng)
    for rows in (right, ~right):
        sizes = np.bincount(folds[rows], minlength=5)
        assert sizes.max() - sizes.min() <= 1
    signals, right = remembering_subjects(90, 2)
    counts = rng.integers(1, 4, size=90)
    again = np.repeat(np.arange(90), counts)
    many = {name: values[again] for name, values in signals.items()}
    weighted, held_out = fit_calibration(
        signals, right, counts=counts, groups=np.arange(90), seed=0
    )
    repeated, others = fit_calibration(many, right[again], groups=again, seed=0)
    assert held_out[again] == pytest.approx(others, abs=1e-3)
    assert weighted.strength == repeated.strength
