"""Exact laws under noisy keys: check values, identities without quadrature, and their limits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import ndtr

from wherefrom.attention import laws
from wherefrom.attention.designs import law_of_design
from wherefrom.attention.laws import (
    HeadsLaw,
    IndependentLogits,
    NoisyKeys,
    law_of_logits,
    normal_nodes,
)
from wherefrom.errors import UserError


def law_of(name, **settings):
    return law_of_design(name, **settings)[1]


def one_head(n, beta, alpha=0.0):
    return law_of("one-head", n=n, beta=beta, alpha=alpha).heads[0]


def logistic_mean(mean, sd):
    return law_of_logits(np.array([mean, 0.0]), np.array([sd, 0.0]), 0).mean


# ---- quadrature


@given(st.floats(-6, 6), st.floats(0.05, 12))
@settings(max_examples=60, deadline=None)
def test_logistic_identity(m, s):
    # F(m + s^2) = 1 - exp(-m - s^2/2) F(m): completing the square under the integral
    right = 1 - math.exp(-m - s * s / 2) * logistic_mean(m, s)
    # the factor exp(-m) enlarges the rounding of F(m)
    assert logistic_mean(m + s * s, s) == pytest.approx(right, abs=1e-14 * (1 + math.exp(-m)))
    # hence F(s^2) = 1 - exp(-s^2/2)/2; here logit ~ N(beta - ln 1, beta^2/2) = N(2, 2)
    assert logistic_mean(2.0, math.sqrt(2)) == pytest.approx(0.8160602794142788, abs=1e-15)


@given(st.lists(st.tuples(st.floats(-8, 8), st.floats(0, 4)), min_size=2, max_size=7))
@settings(max_examples=30, deadline=None)
def test_mean_weights_sum_to_one(logits):
    means, sds = np.array(logits).T
    law = IndependentLogits(means, sds)
    assert sum(law.moments(key)[0] for key in range(len(means))) == pytest.approx(1, abs=1e-14)


@given(st.floats(-4, 4), st.floats(-4, 4), st.floats(0, 3), st.floats(0, 3), st.integers(1, 900))
@settings(max_examples=30, deadline=None)
def test_many_random_logits_meet_the_logit_normal(m1, m2, s1, s2, fixed):
    two = IndependentLogits(np.array([m1, m2]), np.array([s1, s2])).moments(0)
    many = IndependentLogits(np.r_[m1, np.full(fixed, m2)], np.r_[s1, np.zeros(fixed)]).moments(0)
    for found, mean, sd in (
        (two, m1 - m2, math.hypot(s1, s2)),
        (many, m1 - m2 - math.log(fixed), s1),
    ):
        z, p = normal_nodes(sd)
        exact = 1 / (1 + np.exp(-(mean + sd * z)))
        np.testing.assert_allclose(found, [p @ exact**k for k in (1, 2, 3, 4)], atol=1e-12)


# ---- one head


def test_check_values_of_one_head():
    law = one_head(1000, 10.0)  # exactly logit-normal, for every n
    assert law.form == laws.LOGIT_NORMAL
    assert law.logit_mean == pytest.approx(-math.log(1 + 998 * math.exp(-10)), abs=1e-13)
    assert law.logit_sd == pytest.approx(10 / math.sqrt(2), rel=1e-15)
    assert one_head(8, 10.0, alpha=1e-6).sd == pytest.approx(0.442, abs=5e-4)
    between = one_head(2, 20.0).cdf(np.array([0.05, 0.95]))
    assert between[1] - between[0] == pytest.approx(0.165, abs=5e-4)
    assert one_head(8, 4000.0).sd ** 2 == pytest.approx(0.25, abs=2e-4)  # 1/4 as beta grows
    for beta, modes in ((1.99, 1), (2.05, 2)):  # bimodal iff beta > 2
        density = one_head(2, beta).pdf(np.linspace(0.001, 0.999, 1999))
        assert int((np.diff(np.sign(np.diff(density))) < 0).sum()) == modes


def test_the_density_integrates_to_the_distribution_and_the_mean():
    law = one_head(8, 3.0)
    area = quad(lambda x: float(law.pdf(np.array(x))), 0, 0.6, epsabs=1e-11)[0]
    assert area == pytest.approx(float(law.cdf(np.array(0.6))), abs=1e-8)
    mean = quad(lambda x: 1 - float(law.cdf(np.array(x))), 0, 1, epsabs=1e-11)[0]
    assert mean == pytest.approx(law.mean, abs=1e-8)


def test_moments_meet_the_closed_form_as_the_other_noise_vanishes():
    closed, blurred = one_head(8, 10.0), one_head(8, 10.0, alpha=1e-14)
    assert blurred.form == laws.INDEPENDENT
    for name in ("mean", "sd", "fourth", "logit_mean", "logit_sd"):
        assert getattr(blurred, name) == pytest.approx(getattr(closed, name), rel=1e-11), name
    assert blurred.p_below_half is None  # the distribution is left to trials
    with pytest.raises(UserError, match="left to trials"):
        blurred.cdf(np.array(0.5))


def test_nothing_random():
    law = law_of_logits(np.array([1.0, 0.0, 0.0]), np.zeros(3), 0)
    assert (law.form, law.sd, law.p_below_half) == (laws.FIXED, 0, 0.0)
    assert law.mean == pytest.approx(math.e / (math.e + 2), rel=1e-14)
    even = law_of_logits(np.zeros(2), np.zeros(2), 0)
    assert even.p_below_half == 0.0  # one half is not below one half
    assert float(even.cdf(np.array(0.5))) == 1.0
    with pytest.raises(UserError, match="no density"):
        law.pdf(np.array(0.5))


# ---- several heads


@pytest.mark.parametrize(
    ("n", "beta", "expected"),
    [(2, 1.0, 0.0786), (2, 10.0, 0.0786), (10, 10.0, 0.135), (100, 20.0, 0.138)],
)
def test_how_often_head_1_fails(n, beta, expected):
    law = law_of("two-heads", n=n, beta=beta)
    first, second = law.heads
    assert law.p_negative == pytest.approx(ndtr(-math.sqrt(2)))  # the key points backwards
    assert first.logit_mean == pytest.approx(beta - math.log(n - 1), abs=1e-13)
    assert first.logit_sd == pytest.approx(beta / math.sqrt(2), rel=1e-15)
    assert first.p_below_half == pytest.approx(expected, abs=5e-4)
    closed = ndtr(-math.sqrt(2) * (1 - math.log(n - 1) / beta))
    assert first.p_below_half == pytest.approx(closed, abs=1e-14)
    assert second.sd == pytest.approx(0, abs=1e-15)  # head 2 does not move
    assert second.mean == pytest.approx(1 / (1 + (n - 1) * math.exp(-beta)), rel=1e-14)


def test_variance_of_one_head_over_that_of_two():
    p = ndtr(-math.sqrt(2))
    for n, beta, expected in ((100, 10.0, 5.8), (2, 5000.0, 0.25 / (p * (1 - p) / 4))):
        one, two = (law_of(name, n=n, beta=beta).spread for name in ("one-head", "two-heads"))
        assert (one / two) ** 2 == pytest.approx(expected, abs=0.05)
    for alpha in (0.0, 1e-3):  # one head written twice removes no variance
        once, twice = (law_of("one-head", n=5, beta=6.0, alpha=alpha, heads=h) for h in (1, 2))
        assert twice.spread == pytest.approx(once.spread, rel=1e-12)


@pytest.mark.parametrize(("t", "expected"), [(0.0, 0.0786), (1.0, 0.0023)])
def test_the_repelling_term(t, expected):
    first = law_of("repelling-heads", n=8, beta=20_000.0, repel=t).heads[0]
    assert first.p_below_half == pytest.approx(expected, abs=1e-4)
    assert first.p_below_half == pytest.approx(ndtr(-math.sqrt(2) * (1 + t)), rel=1e-3)
    second = law_of("repelling-heads", n=8, beta=3.0, repel=t).heads[1]
    assert second.sd == pytest.approx(0, abs=1e-15)  # the noise is left to head 1
    others = math.exp(-3) + 6 * math.exp(-3 * (1 + t))  # a at 0, the rest at -beta t
    assert second.mean == pytest.approx(1 / (1 + others), rel=1e-12)


def test_heads_that_lean_opposite_ways_cancel_and_correlated_ones_are_left_to_trials():
    queries = np.array([[4.0, 4.0], [-4.0, -4.0]])  # a_1 + a_2 = 1 for every length of key a
    law = HeadsLaw(NoisyKeys(2, 2), queries, (0, 1))
    assert (law.mean, law.spread) == (pytest.approx(0.5), pytest.approx(0, abs=1e-14))
    assert law.average_curve() is None
    queries = np.array([[3.0, 1.0, 0.0, 0.0], [1.0, 3.0, 0.0, 0.0]])
    law = HeadsLaw(NoisyKeys(4, 4, alpha=0.01), queries, (0, 1))
    assert law.spread is None
    assert "heads 1 and 2" in law.why_no_spread
    assert law.heads[0].sd > 0  # each head's own law stays exact


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_curve_of_the_average_has_the_average_moments(sign):
    queries = sign * law_of("two-heads", n=10, beta=6.0).queries
    two = HeadsLaw(NoisyKeys(10, 10), queries, (0, 1))
    x, p = two.average_curve(points=40_001)
    assert (np.diff(x) >= 0).all()
    mean = float((x[1:] + x[:-1]) @ np.diff(p) / 2)
    assert mean == pytest.approx(two.mean, abs=1e-6)
    second = float((x[1:] ** 2 + x[:-1] ** 2) @ np.diff(p) / 2)
    assert math.sqrt(second - mean**2) == pytest.approx(two.spread, abs=1e-5)


def test_a_stretch_must_be_a_number():
    with pytest.raises(UserError, match="stretch is a variance"):
        NoisyKeys(4, 4, stretch=math.nan)
