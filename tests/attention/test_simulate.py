"""Simulation beside the law: they agree, the errors are honest, and memory is bounded."""

from __future__ import annotations

import math
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from wherefrom.attention import simulate as module
from wherefrom.attention.designs import law_of_design
from wherefrom.attention.laws import HeadsLaw, NoisyKeys
from wherefrom.attention.simulate import Estimate, compare, simulate


def both(name, *, seed=0, count=20000, **settings):
    law = law_of_design(name, **settings)[1]
    return law, simulate(law, count=count, rng=np.random.default_rng(seed))


@pytest.mark.parametrize("alpha", [0.0, 1e-6, 1e-2])
@pytest.mark.parametrize(
    ("name", "n", "d", "beta"),
    [
        ("one-head", 2, 2, 10.0),
        ("one-head", 8, 8, 10.0),
        ("one-head", 3, 17, 5.0),
        ("two-heads", 2, 2, 2.0),
        ("two-heads", 20, 20, 10.0),
        ("avoiding-head", 8, 8, 10.0),
        ("repelling-heads", 8, 8, 6.0),
        ("repelling-heads", 8, 8, 60.0),
    ],
)
def test_law_and_trials_agree(name, n, d, beta, alpha):
    agreement = compare(*both(name, n=n, d=d, beta=beta, alpha=alpha))
    assert agreement.agrees, agreement.sentence
    assert "agree" in agreement.sentence


@pytest.mark.parametrize("wrong", ["mean", "sd", "logit_mean", "logit_sd", "p_below_half", "c"])
def test_a_wrong_number_is_noticed(wrong):
    def moved(estimate):
        return Estimate(estimate.value + 12 * max(estimate.error, 1e-3), estimate.error)

    law, found = both("two-heads", n=100, beta=10.0)
    head = found.heads[0]
    if wrong == "c":
        found = replace(found, average=replace(found.average, sd=moved(found.average.sd)))
    else:
        head = replace(head, **{wrong: moved(getattr(head, wrong))})
        found = replace(found, heads=(head, *found.heads[1:]))
    agreement = compare(law, found)
    assert not agreement.agrees
    assert "this is a bug" in agreement.sentence


def test_events_too_rare_for_the_trials_raise_no_alarm():
    # head 1 fails once in 10^8 draws; the law's deviation is made of those alone
    law, found = both("repelling-heads", n=4, beta=40.0, repel=3.0)
    assert law.heads[0].sd > 1e-5 > found.heads[0].sd.value
    agreement = compare(law, found)
    assert agreement.agrees, agreement.sentence


def test_standard_errors_are_what_repetition_shows():
    runs = [both("two-heads", n=10, beta=4.0, seed=s, count=2_000)[1].heads[0] for s in range(120)]
    for name in ("mean", "sd", "logit_sd", "p_below_half"):
        values = [getattr(run, name).value for run in runs]
        stated = np.mean([getattr(run, name).error for run in runs])
        # the spread of 120 runs is itself known to 1/sqrt(240) = 6.5 %; four of those
        assert np.std(values) == pytest.approx(stated, rel=0.26), name


def test_drawing_logits_alone_has_the_same_joint_law(monkeypatch):
    queries = np.array([[3.0, 1.0, 0.0, 0.0], [1.0, 3.0, 0.5, 0.0]])  # correlated heads
    correlated = HeadsLaw(NoisyKeys(4, 4, alpha=0.05), queries, (0, 1))
    whole = simulate(correlated, count=40_000, rng=np.random.default_rng(0))
    monkeypatch.setattr(module, "WHOLE_KEYS", 0)
    part = simulate(correlated, count=40_000, rng=np.random.default_rng(1))
    assert (whole.drawn, part.drawn) == ("keys", "logits")
    apart = abs(whole.average.sd.value - part.average.sd.value)
    assert apart < 5 * math.hypot(whole.average.sd.error, part.average.sd.error)
    agreement = compare(*both("two-heads", n=6, beta=4.0, alpha=0.05))
    assert agreement.agrees, agreement.sentence


def test_memory_does_not_grow_with_the_number_of_trials():
    peaks = []
    for count in (40_000, 320_000):
        tracemalloc.start()
        both("one-head", n=8, beta=10.0, alpha=1e-6, count=count)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.3 * peaks[0]
    assert peaks[1] < 64e6
