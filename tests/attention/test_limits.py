"""What one head cannot draw, and what a map does not prove."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wherefrom.attention.equation import attend, softmax_over_keys
from wherefrom.attention.limits import freedom, realise_map, second_weights, width_needed
from wherefrom.errors import UserError


def map_of_rank(seed: int, T: int, rank: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return softmax_over_keys(rng.standard_normal((T, rank)) @ rng.standard_normal((rank, T)))


@given(st.integers(0, 10_000), st.integers(1, 4))
@settings(max_examples=30, deadline=None)
def test_a_head_as_wide_as_the_rank_draws_the_map(seed: int, rank: int) -> None:
    T, d = 7, 11
    wanted = map_of_rank(seed, T, rank)
    needed = width_needed(wanted)
    assert needed <= rank  # scores of rank r give a map that needs at most r
    tokens = np.random.default_rng(seed + 1).standard_normal((T, d))
    Q, K = realise_map(wanted, tokens, needed)
    assert Q.shape == K.shape == (d, needed)
    drawn = attend(tokens @ Q, tokens @ K, tokens).weights
    np.testing.assert_allclose(drawn, wanted, atol=1e-8)
    with pytest.raises(UserError, match="too narrow"):
        realise_map(wanted, tokens, needed - 1)


def test_no_map_needs_more_than_t_minus_one_and_a_uniform_one_needs_nothing() -> None:
    rng = np.random.default_rng(0)
    assert width_needed(rng.dirichlet(np.ones(5), size=5)) == 4
    assert width_needed(np.full((5, 5), 0.2)) == 0


def test_sharp_attention_to_oneself_needs_width() -> None:
    T = 6
    sharp = softmax_over_keys(20 * np.eye(T))
    assert width_needed(sharp) == T - 1


@given(st.integers(0, 10_000), st.integers(2, 9), st.integers(1, 6))
@settings(max_examples=40, deadline=None)
def test_other_weights_give_the_same_context(seed: int, T: int, width: int) -> None:
    rng = np.random.default_rng(seed)
    values, weights = rng.standard_normal((T, width)), rng.dirichlet(np.ones(T))
    found = second_weights(values, weights)
    assert found.dimension == freedom(values) == max(0, T - width - 1)
    if found.dimension == 0:
        assert found.weights is None
        return
    assert found.weights is not None
    assert found.weights.min() >= 0
    assert found.weights.sum() == pytest.approx(1, abs=1e-12)
    np.testing.assert_allclose(found.weights @ values, weights @ values, atol=1e-9)
    moved = np.abs(found.weights - weights).sum() / 2
    assert moved == pytest.approx(found.distance, abs=1e-9)
    assert moved > 0


def test_values_that_repeat_leave_the_weights_free() -> None:
    values = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    found = second_weights(values, np.array([0.7, 0.1, 0.2]))
    assert found.dimension == 1
    assert found.weights is not None
    np.testing.assert_allclose(found.weights, [0.0, 0.8, 0.2], atol=1e-12)


def test_wrong_input_gets_a_sentence() -> None:
    with pytest.raises(UserError, match="square"):
        width_needed(np.ones((2, 3)))
    with pytest.raises(UserError, match="rows that sum to one"):
        width_needed(np.eye(3))
    with pytest.raises(UserError, match="linearly independent"):
        realise_map(np.full((3, 3), 1 / 3), np.ones((3, 5)), 1)
    with pytest.raises(UserError, match="one a value"):
        second_weights(np.eye(3), np.ones(2) / 2)
    with pytest.raises(UserError, match="sum to one"):
        second_weights(np.eye(3), np.ones(3))
