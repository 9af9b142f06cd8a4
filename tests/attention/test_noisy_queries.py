"""The designs for noisy keys keep their promise at e = 1, and their names and limits hold."""

from __future__ import annotations

import numpy as np
import pytest

from wherefrom.attention.equation import attend
from wherefrom.attention.noisy_queries import NAMES, design_for_noise
from wherefrom.errors import UserError


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n", [3, 5, 40])
@pytest.mark.parametrize("eps", [0.05, 1e-4])
def test_at_the_mean_length_the_average_is_within_the_tolerance(
    name: str, n: int, eps: float
) -> None:
    built = design_for_noise(name, n=n, d=n + 2, tolerance=eps)
    keys = np.eye(n, n + 2)
    weights = attend(built.design.queries, keys, np.eye(n)).weights.mean(axis=0)
    assert weights[2:].sum() <= eps * (1 + 1e-9)
    assert abs(weights[0] - 0.5) <= eps
    assert abs(weights[1] - 0.5) <= eps
    assert built.design.formula
    assert all(assumption.holds for assumption in built.design.assumptions)


@pytest.mark.parametrize("scale", [-2.0, 0.0, 0.3, 5.0])
def test_the_avoiding_query_does_not_see_the_length_of_the_noisy_key(scale: float) -> None:
    built = design_for_noise("avoiding-head", n=6, beta=8.0)
    keys = np.eye(6)
    keys[0] *= scale
    np.testing.assert_allclose(
        attend(built.design.query, keys, np.eye(6)).weights,
        attend(built.design.query, np.eye(6), np.eye(6)).weights,
        rtol=1e-14,
    )


def test_one_head_a_value_for_any_number_of_heads() -> None:
    built = design_for_noise("two-heads", n=9, heads=5, tolerance=0.01)
    weights = attend(built.design.queries, np.eye(9), np.eye(9)).weights.mean(axis=0)
    np.testing.assert_allclose(weights[:5], 0.2, atol=0.01)
    assert built.targets == (0, 1, 2, 3, 4)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"name": "one-haed"}, 'Did you mean "one-head"'),
        ({"n": 1}, "at least 2"),
        ({"beta": -1.0}, "beta must be"),
        ({"beta": float("nan")}, "beta must be"),
        ({"heads": 0}, "heads must be"),
        ({"d": 2}, "width of at least 4"),
        ({"name": "repelling-heads", "heads": 3}, "has 2 heads"),
        ({"name": "repelling-heads", "repel": -1.0}, "must be 0 or more"),
        ({"name": "avoiding-head", "n": 2}, "needs others"),
        ({"name": "two-heads", "heads": 5}, "need 5 keys"),
        ({"tolerance": 2.0}, "tolerance is between"),
    ],
)
def test_wrong_input_gets_a_sentence(change: dict[str, object], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        design_for_noise(**{"name": "one-head", "n": 4, **change})
