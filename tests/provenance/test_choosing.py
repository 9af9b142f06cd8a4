"""Signals have to earn their place, and people may count for more or less than one."""

from __future__ import annotations

import numpy as np
import pytest

from wherefrom.errors import UserError
from wherefrom.provenance.confidence.calibration import (
    choose_strength,
    fit_curve,
    fit_logistic,
    fit_with_held_out,
    pick_signals,
    second_step,
    standardise,
)


def people(count: int, seed: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Right by a core signal and a second one; noise tells nothing."""
    rng = np.random.default_rng(seed)
    right = rng.random(count) < 0.6
    signals = {name: rng.normal(size=count) for name in ("core", "second", "noise1", "noise2")}
    signals["core"] += 1.5 * right
    signals["second"] += 1.5 * right
    return signals, right


def test_what_helps_is_added_and_noise_is_not():
    signs = dict.fromkeys(("core", "second", "noise1", "noise2", "same"), 1)
    added = []
    for seed in range(5):
        signals, right = people(200, seed)
        signals["same"] = np.ones(200)
        chosen = pick_signals(signals, right, signs=signs, core=["core", "same"], seed=seed)
        assert chosen[:2] == ("core", "second")
        added += chosen[2:]
    assert len(added) <= 1


def test_with_few_wrong_answers_the_core_is_all():
    signals, _ = people(40, 0)
    right = np.arange(40) > 2
    assert pick_signals(signals, right, signs={}, core=["core"], seed=0) == ("core",)


def test_a_row_that_counts_twice_acts_as_two_rows():
    signals, right = people(80, 1)
    signals["second"][::7] = np.nan
    counts = np.random.default_rng(2).integers(1, 4, size=80)
    again = np.repeat(np.arange(80), counts)
    signs = dict.fromkeys(signals, 1)
    many = counts.astype(np.float64)
    weighed = standardise(signals, signs, many)
    repeated = standardise({name: column[again] for name, column in signals.items()}, signs)
    for one, other in zip(weighed.spreads, repeated.spreads, strict=True):
        assert one["name"] == other["name"]
        assert one["mean"] == pytest.approx(other["mean"])
        assert one["scale"] == pytest.approx(other["scale"])
    assert weighed.columns[again] == pytest.approx(repeated.columns)
    beta = fit_logistic(weighed.columns, right.astype(float), strength=0.5, counts=many)
    twin = fit_logistic(repeated.columns, right[again].astype(float), strength=0.5)
    assert beta == pytest.approx(twin, abs=1e-5)
    assert beta != pytest.approx(
        fit_logistic(weighed.columns, right.astype(float), strength=0.5), abs=1e-2
    )
    folds = np.arange(80) % 5
    strength, logits = choose_strength(weighed.columns, right, folds, weighed.signs, many)
    same, others = choose_strength(repeated.columns, right[again], folds[again], repeated.signs)
    assert strength == same
    assert logits[again] == pytest.approx(others, abs=1e-2)
    curve, twin_curve = fit_curve(logits, right, many), fit_curve(logits[again], right[again])
    assert curve.knots == twin_curve.knots
    assert curve.heights == pytest.approx(twin_curve.heights)
    assert second_step(logits, right, folds, many).knots in ((), curve.knots)


def test_counts_move_the_mix_and_nonsense_is_refused():
    signals, right = people(200, 3)
    fewer_right = np.where(right, 0.1, 1.0)
    plain = fit_with_held_out(signals, right, seed=0).calibration
    mixed = fit_with_held_out(signals, right, counts=fewer_right, seed=0).calibration
    expected = (fewer_right @ right) / fewer_right.sum()
    mean = float(np.average(mixed.probability(signals), weights=fewer_right))
    assert mean == pytest.approx(expected, abs=0.05)
    assert mixed.probability(signals).mean() < plain.probability(signals).mean() - 0.1
    for counts in (np.zeros(200), np.ones(3), np.full(200, np.nan)):
        with pytest.raises(UserError, match="must count for a number above 0"):
            fit_with_held_out(signals, right, counts=counts, seed=0)
    few = fit_with_held_out(signals, np.ones(200, dtype=bool), counts=fewer_right, seed=0)
    assert few.calibration.signals == ()
