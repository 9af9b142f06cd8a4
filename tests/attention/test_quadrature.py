"""Expectations by the trapezoid rule, against identities that no quadrature enters."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wherefrom.attention.quadrature import IndependentLogits, expected_logistic, normal_nodes
from wherefrom.errors import UserError


def test_two_heads_at_n_2_and_beta_2() -> None:
    # logit ~ N(beta - ln 1, beta^2/2) = N(2, 2): F(s^2) = 1 - exp(-s^2/2)/2
    assert expected_logistic(2.0, math.sqrt(2)) == pytest.approx(0.8160602794142788, abs=1e-15)


@given(st.floats(0.01, 12))
@settings(max_examples=40, deadline=None)
def test_logistic_identity_at_zero(s: float) -> None:
    expected = 1 - math.exp(-s * s / 2) / 2
    assert expected_logistic(s * s, s) == pytest.approx(expected, abs=1e-14)


@given(st.floats(-6, 6), st.floats(0.05, 6))
@settings(max_examples=40, deadline=None)
def test_logistic_identity_anywhere(m: float, s: float) -> None:
    # F(m + s^2) = 1 - exp(-m - s^2/2) F(m): completing the square under the integral
    right = 1 - math.exp(-m - s * s / 2) * expected_logistic(m, s)
    # the factor exp(-m) enlarges the rounding of F(m)
    assert expected_logistic(m + s * s, s) == pytest.approx(right, abs=1e-14 * (1 + math.exp(-m)))


def test_moments_of_a_normal() -> None:
    z, p = normal_nodes(3.0)
    assert [float(p @ z**k) for k in (0, 2, 4, 6)] == pytest.approx([1, 1, 3, 15], rel=1e-14)


def test_a_spread_too_wide_is_refused() -> None:
    with pytest.raises(UserError, match="too wide"):
        normal_nodes(1e9)
    with pytest.raises(UserError, match="up to 1000"):
        IndependentLogits(np.zeros(3), np.full(3, 5000.0)).moments()


@given(
    st.lists(st.tuples(st.floats(-8, 8), st.floats(0, 4)), min_size=2, max_size=7),
)
@settings(max_examples=30, deadline=None)
def test_weights_sum_to_one_in_the_mean_and_in_every_product(
    logits: list[tuple[float, float]],
) -> None:
    means, sds = np.array(logits).T
    law = IndependentLogits(means, sds)
    assert float(law.moments()[0] @ law.counts) == pytest.approx(1, abs=1e-14)
    # sum_k Cov(a_j, a_k) = Cov(a_j, 1) = 0
    np.testing.assert_allclose(law.covariance().sum(axis=1), 0, atol=1e-14)


@given(st.floats(-4, 4), st.floats(-4, 4), st.floats(0, 3), st.floats(0, 3))
@settings(max_examples=30, deadline=None)
def test_two_keys_are_a_logit_normal(m1: float, m2: float, s1: float, s2: float) -> None:
    law = IndependentLogits(np.array([m1, m2]), np.array([s1, s2]))
    for power in range(1, 5):
        expected = expected_logistic(m1 - m2, math.hypot(s1, s2), power)
        found = law.moments()[power - 1][law.kind_of[0]]
        assert found == pytest.approx(expected, abs=1e-13)


def test_one_random_logit_among_many_is_a_logit_normal_to_1e_12() -> None:
    means, sds = np.array([10.0, 10.0, *[0.0] * 998]), np.array([7.0, *[0.0] * 999])
    law = IndependentLogits(means, sds)
    offset = 10 - math.log(math.exp(10) + 998)
    for power in range(1, 5):
        found = law.moments()[power - 1][law.kind_of[0]]
        assert found == pytest.approx(expected_logistic(offset, 7.0, power), abs=1e-12)


def test_log_sum_of_fixed_logits() -> None:
    law = IndependentLogits(np.array([1.0, 2.0, 3.0]), np.zeros(3), step=0.125)
    mean, variance = law.log_sum_moments()
    assert mean == pytest.approx(math.log(sum(map(math.exp, (1, 2, 3)))), abs=1e-13)
    assert variance == pytest.approx(0, abs=1e-13)


def test_log_sum_of_one_random_logit_is_that_logit() -> None:
    law = IndependentLogits(np.array([1.5]), np.array([0.7]), step=0.125)
    mean, variance = law.log_sum_moments()
    assert mean == pytest.approx(1.5, abs=1e-13)
    assert variance == pytest.approx(0.49, abs=1e-13)
