"""Designs do what they claim with the beta they ask for, and not with less."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wherefrom.attention.designs import (
    average_by_pseudo_inverse,
    average_of_orthogonal,
    average_of_orthonormal,
    beta_to_average,
    beta_to_copy,
    copy_by_own_key,
    leftover_of_average,
)
from wherefrom.attention.equation import attend, log_leftover
from wherefrom.errors import UserError


def rotation(d: int, seed: int = 0) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((d, d)))[0]


def leftover(query: np.ndarray, keys: np.ndarray, chosen: list[int]) -> float:
    keep = np.isin(np.arange(len(keys)), chosen)
    return float(np.exp(log_leftover(keys @ query, keep)))


@pytest.mark.parametrize(
    ("n", "size", "eps", "beta"), [(10, 2, 0.01, 5.981), (1000, 2, 0.001, 13.119)]
)
def test_check_values_of_the_required_beta(n: int, size: int, eps: float, beta: float) -> None:
    assert beta_to_average(n, size, eps) == pytest.approx(beta, abs=5e-4)
    assert leftover_of_average(n, size, beta_to_average(n, size, eps)) == pytest.approx(eps)


@given(st.integers(2, 500), st.floats(1e-9, 0.4), st.floats(0, 5))
@settings(max_examples=60, deadline=None)
def test_a_margin_bounds_the_weight(n: int, eps: float, more: float) -> None:
    margin = beta_to_copy(n, eps)
    scores = np.full(n, 0.0)
    scores[0] = margin  # the worst case: all others exactly the margin below
    keep = np.arange(n) == 0
    assert math.exp(log_leftover(scores, keep)) == pytest.approx(eps if margin else 1 - 1 / n)
    scores[1] = -more  # any other logit further down only helps
    assert math.exp(log_leftover(scores, keep)) <= max(eps, 1 - 1 / n) * (1 + 1e-9)


def test_error_of_a_copy_is_bounded_by_leftover_times_the_widest_distance() -> None:
    rng = np.random.default_rng(0)
    keys, values = rng.standard_normal((7, 5)), rng.standard_normal((7, 3))
    for seed in range(20):
        query = 3 * np.random.default_rng(seed).standard_normal(5)
        found = attend(query, keys, values)
        j = int(found.weights.argmax())
        widest = np.linalg.norm(values - values[j], axis=1).max()
        bound = leftover(query, keys, [j]) * widest
        assert np.linalg.norm(found.context - values[j]) <= bound * (1 + 1e-12)


def test_distinct_keys_of_equal_norm_can_always_be_copied() -> None:
    keys = np.random.default_rng(1).standard_normal((40, 3))  # far more keys than dimensions
    keys *= 2 / np.linalg.norm(keys, axis=1, keepdims=True)
    for j in (0, 17, 39):
        design = copy_by_own_key(keys, j, tolerance=1e-3)
        assert leftover(design.query, keys, [j]) <= 1e-3 * (1 + 1e-9)
        assert not design.broken
    with pytest.raises(UserError, match="cannot copy value"):
        copy_by_own_key(np.array([[1.0, 0.0], [3.0, 0.0]]), 0, tolerance=0.1)


@given(st.integers(3, 30), st.floats(1e-6, 0.2), st.data())
@settings(max_examples=40, deadline=None)
def test_average_of_orthonormal_keys(n: int, eps: float, data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=n, unique=True))
    keys = rotation(n + 2)[:n]
    design = average_of_orthonormal(keys, chosen, tolerance=eps)
    beta, s = design.beta, len(chosen)
    found = attend(design.query, keys, np.eye(n))
    np.testing.assert_allclose(
        found.weights[chosen], 1 / (s + (n - s) * math.exp(-beta)), rtol=1e-12
    )
    assert leftover(design.query, keys, chosen) <= eps * (1 + 1e-9) or beta == 0
    if beta > 0:  # and no smaller beta would do
        assert leftover(0.999 * design.query, keys, chosen) > eps


def test_exact_error_of_the_average() -> None:
    n, chosen, rest = 9, [2, 5], [0, 1, 3, 4, 6, 7, 8]
    keys, values = rotation(n), np.random.default_rng(2).standard_normal((n, 4))
    query = 3.0 * keys[chosen].sum(axis=0)
    delta = leftover_of_average(n, 2, 3.0)
    wanted = values[chosen].mean(axis=0)
    expected = wanted + delta * (values[rest].mean(axis=0) - wanted)
    np.testing.assert_allclose(attend(query, keys, values).context, expected, rtol=1e-12)


def test_unequal_norms_break_the_sum_and_not_the_scaled_sum() -> None:
    keys = rotation(6) * np.array([1.1, 1.0, 1.0, 1.0, 1.0, 1.0])[:, None]
    naive = attend(20 * (keys[0] + keys[1]), keys, np.eye(6)).weights
    assert naive[0] / naive[1] == pytest.approx(math.exp(20 * 0.21), rel=1e-9)
    assert naive[0] / naive[1] == pytest.approx(67, abs=0.5)
    flawed = average_of_orthonormal(keys, [0, 1], tolerance=0.01)
    assert [a.name for a in flawed.broken] == ["unit norms"]
    design = average_of_orthogonal(keys, [0, 1], tolerance=0.01)
    weights = attend(design.query, keys, np.eye(6)).weights
    assert weights[0] == pytest.approx(weights[1], rel=1e-12)
    assert not design.broken
    assert leftover(design.query, keys, [0, 1]) == pytest.approx(0.01, rel=1e-9)


def test_pseudo_inverse_averages_any_independent_keys() -> None:
    keys = np.random.default_rng(4).standard_normal((5, 8)) + 1.5
    design = average_by_pseudo_inverse(keys, [1, 3], tolerance=1e-3)
    found = attend(design.query, keys, np.eye(5)).weights
    assert found[1] == pytest.approx(found[3], rel=1e-9)
    assert leftover(design.query, keys, [1, 3]) == pytest.approx(1e-3, rel=1e-9)
    assert not design.broken
    dependent = np.vstack([keys[:2], keys[:1] + keys[1:2]])
    assert average_by_pseudo_inverse(dependent, [0], tolerance=0.1).broken


def test_a_query_without_a_large_factor_does_not_average() -> None:
    keys = np.eye(10)
    weights = attend((keys[0] + keys[1]) / 2, keys, np.eye(10)).weights
    assert weights[0] == pytest.approx(0.146, abs=5e-4)


def test_wrong_questions_get_a_sentence() -> None:
    keys = np.eye(3)
    with pytest.raises(UserError, match="tolerance is between"):
        beta_to_copy(3, 0.0)
    with pytest.raises(UserError, match="out of 3"):
        beta_to_average(3, 4, 0.1)
    with pytest.raises(UserError, match="each once"):
        average_of_orthonormal(keys, [1, 1], tolerance=0.1)
    with pytest.raises(UserError, match="no key 3"):
        average_of_orthonormal(keys, [3], tolerance=0.1)
    with pytest.raises(UserError, match="length zero"):
        average_of_orthogonal(np.zeros((2, 2)), [0], tolerance=0.1)
    with pytest.raises(UserError, match="table"):
        average_of_orthogonal(np.ones(3), [0], tolerance=0.1)
