"""What a query can reach, with the certificate checked by itself."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wherefrom.attention.equation import attend
from wherefrom.attention.reach import (
    all_weights_reachable,
    copy_value,
    copyability,
    reach_weights,
)
from wherefrom.errors import UserError


def weight_on(query: np.ndarray, keys: np.ndarray, j: int) -> float:
    return float(attend(query, keys, keys).weights[j])


def test_the_best_margin_is_the_distance_to_the_hull() -> None:
    square = np.array([[0.0, 3.0], [-1.0, 0.0], [1.0, 0.0], [0.5, 1.0]])
    found = copyability(square, 0)
    # the nearest point of the triangle to (0, 3) is its corner (0.5, 1)
    assert found.copyable
    assert found.margin == pytest.approx(math.hypot(0.5, 2.0), rel=1e-12)
    assert found.direction is not None
    margins = (square[0] - square[1:]) @ found.direction
    assert margins.min() == pytest.approx(found.margin, rel=1e-9)


@given(st.integers(0, 10_000), st.integers(2, 9), st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_a_margin_or_a_bound_and_no_query_beats_either(seed: int, n: int, d: int) -> None:
    rng = np.random.default_rng(seed)
    keys = rng.standard_normal((n, d))
    found = copyability(keys, 0)
    directions = rng.standard_normal((200, d))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    margins = (directions @ (keys[0] - keys[1:]).T).min(axis=1)
    assert margins.max() <= found.margin + 1e-9
    if found.copyable:
        design = copy_value(keys, 0, tolerance=0.01)
        assert weight_on(design.query, keys, 0) >= 0.99 - 1e-9
        assert np.linalg.norm(design.query) == pytest.approx(design.beta, rel=1e-9)
    else:
        np.testing.assert_allclose(found.mixture @ keys, keys[0], atol=1e-7)
        best = max(weight_on(scale * q, keys, 0) for q in directions for scale in (0.1, 1, 5))
        assert best <= found.most_weight + 1e-9


def test_a_midpoint_never_gets_more_than_a_third() -> None:
    keys = np.array([[0.5, 0.5], [1.0, 0.0], [0.0, 1.0]])
    found = copyability(keys, 0)
    assert not found.copyable
    assert found.most_weight == pytest.approx(1 / 3, rel=1e-9)
    assert weight_on(np.array([7.0, 7.0]), keys, 0) == pytest.approx(1 / 3, rel=1e-12)
    with pytest.raises(UserError, match=r"more than 0\.3333"):
        copy_value(keys, 0, tolerance=0.01)


def test_the_bound_is_reached_in_the_middle_of_a_square() -> None:
    keys = np.array([[0.0, 0.0], [1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    found = copyability(keys, 0)
    assert found.most_weight == pytest.approx(1 / 5, rel=1e-6)  # q = 0 has it, none has more


def test_a_key_that_is_there_twice_gets_at_most_half() -> None:
    keys = np.array([[1.0, 2.0], [1.0, 2.0], [-3.0, 0.0]])
    assert copyability(keys, 0).most_weight == pytest.approx(0.5, rel=1e-9)
    same = np.ones((4, 2))
    assert copyability(same, 0).most_weight == pytest.approx(0.25, rel=1e-12)


def test_a_single_key_is_always_copied() -> None:
    assert copyability(np.ones((1, 3)), 0).copyable
    assert weight_on(copy_value(np.ones((1, 3)), 0, tolerance=0.1).query, np.ones((1, 3)), 0) == 1


@given(st.integers(0, 10_000), st.integers(2, 6))
@settings(max_examples=30, deadline=None)
def test_affinely_independent_keys_reach_every_weighting(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    keys, wanted = rng.standard_normal((n, n - 1)), rng.dirichlet(np.ones(n)) + 1e-3
    wanted /= wanted.sum()
    assert all_weights_reachable(keys)
    found = reach_weights(keys, wanted)
    assert found.reachable
    assert found.certificate is None
    np.testing.assert_allclose(found.weights, wanted, rtol=1e-6)
    assert not all_weights_reachable(rng.standard_normal((n, n - 2)))


def test_the_certificate_refutes_by_itself() -> None:
    keys = np.array([[-1.0], [0.0], [1.0]])  # three keys on a line: ln a must be linear
    wanted = np.array([0.1, 0.8, 0.1])
    found = reach_weights(keys, wanted)
    assert not found.reachable
    r = found.certificate
    assert r is not None
    assert abs(r.sum()) < 1e-12
    assert np.abs(r @ keys).max() < 1e-12
    for q in (-5.0, 0.3, 20.0):  # r . ln a is 0 for every query, and |r|^2 for the wanted weights
        scores = keys[:, 0] * q
        log_weights = scores - np.logaddexp.reduce(scores)
        assert r @ log_weights == pytest.approx(0, abs=1e-12)
    assert r @ np.log(wanted) == pytest.approx(r @ r, rel=1e-9)
    assert r @ r > 0.1


def test_wrong_questions_get_a_sentence() -> None:
    with pytest.raises(UserError, match="positive"):
        reach_weights(np.eye(2), np.array([0.0, 1.0]))
    with pytest.raises(UserError, match="sum to one"):
        reach_weights(np.eye(2), np.array([1.0, 1.0]))
    with pytest.raises(UserError, match="one a key"):
        reach_weights(np.eye(2), np.ones(3) / 3)
    with pytest.raises(UserError, match="no key 2"):
        copyability(np.eye(2), 2)
    with pytest.raises(UserError, match="finite"):
        copyability(np.full((2, 2), np.nan), 0)
