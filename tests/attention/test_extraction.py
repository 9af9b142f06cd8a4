"""M takes v_a out of v_a + v_b: three forms, one map."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wherefrom.attention.extraction import (
    extract_by_similarity,
    extract_oblique,
    extract_orthogonal,
    smallest_angle,
)
from wherefrom.errors import UserError


def orthogonal_spans(d: int, m: int, p: int) -> tuple[np.ndarray, np.ndarray]:
    basis = np.linalg.qr(np.random.default_rng(0).standard_normal((d, d)))[0]
    return basis[:, :m], basis[:, m : m + p]


def test_orthogonal_extraction_from_the_sum_and_from_the_average() -> None:
    A, B = orthogonal_spans(11, 3, 5)
    found = extract_orthogonal(A, B)
    v_a, v_b = A @ np.arange(1.0, 4.0), B @ np.arange(5.0)
    np.testing.assert_allclose(found.matrix @ (v_a + v_b), v_a, atol=1e-13)
    np.testing.assert_allclose(2 * found.matrix @ ((v_a + v_b) / 2), v_a, atol=1e-13)
    assert all(assumption.holds for assumption in found.assumptions)
    assert A.T.shape != found.matrix.shape  # coordinates, not the vector


def test_orthogonal_extraction_says_when_its_assumptions_fail() -> None:
    A, B = orthogonal_spans(5, 2, 2)
    broken = extract_orthogonal(2 * A, B + 0.1 * A)
    assert [a.holds for a in broken.assumptions] == [False, False]


@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_oblique_and_similarity_are_the_same_map(seed: int, m: int, p: int) -> None:
    rng = np.random.default_rng(seed)
    A, B = rng.standard_normal((11, m)), rng.standard_normal((11, p))
    oblique, similar = extract_oblique(A, B), extract_by_similarity(A, B)
    v_a, v_b = A @ rng.standard_normal(m), B @ rng.standard_normal(p)
    rounding = 1e-11 * oblique.noise_gain**2
    np.testing.assert_allclose(oblique.matrix @ (v_a + v_b), v_a, atol=rounding)
    np.testing.assert_allclose(similar.matrix, oblique.matrix, atol=rounding)
    assert oblique.noise_gain == pytest.approx(np.linalg.norm(oblique.matrix, 2), rel=1e-7)


@pytest.mark.parametrize("angle", [1.0, 0.1, 1e-5])
def test_the_noise_gain_is_one_over_the_sine(angle: float) -> None:
    A = np.array([[1.0], [0.0], [0.0]])
    B = np.array([[math.cos(angle), 0.0], [math.sin(angle), 0.0], [0.0, 1.0]])
    assert smallest_angle(A, B) == pytest.approx(angle, rel=1e-9)
    assert extract_oblique(A, B).noise_gain == pytest.approx(1 / math.sin(angle), rel=1e-9)


def test_on_orthonormal_spans_the_general_form_is_the_simple_one() -> None:
    A, B = orthogonal_spans(7, 2, 3)
    np.testing.assert_allclose(
        extract_oblique(A, B).matrix, extract_orthogonal(A, B).matrix, atol=1e-13
    )


def test_a_shared_direction_and_a_wrong_shape_are_refused() -> None:
    A, B = orthogonal_spans(5, 2, 2)
    with pytest.raises(UserError, match="share a direction"):
        extract_oblique(A, np.hstack([B, A[:, :1]]))
    with pytest.raises(UserError, match="columns"):
        extract_orthogonal(A, B[:3])
