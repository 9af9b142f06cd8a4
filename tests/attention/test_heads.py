"""Several heads: the published check values, what is exact, and what is left to trials."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtr

from wherefrom.attention.heads import HeadsLaw
from wherefrom.attention.noise import NoisyKeys
from wherefrom.attention.noisy_queries import design_for_noise
from wherefrom.errors import UserError


def law(name: str, *, n: int, beta: float, alpha: float = 0.0, **more: object) -> HeadsLaw:
    built = design_for_noise(name, n=n, beta=beta, **more)
    return HeadsLaw(NoisyKeys(n, n, alpha), built.design.queries, built.targets)


@pytest.mark.parametrize(
    ("n", "beta", "expected"),
    [
        (2, 1.0, 0.0786), (2, 10.0, 0.0786), (10, 10.0, 0.135), (10, 20.0, 0.104),
        (100, 10.0, 0.222), (100, 20.0, 0.138),
    ],
)  # fmt: skip
def test_how_often_head_1_fails(n: int, beta: float, expected: float) -> None:
    first = law("two-heads", n=n, beta=beta).heads[0]
    assert first.logit_mean == pytest.approx(beta - math.log(n - 1), abs=1e-13)
    assert first.logit_sd == pytest.approx(beta / math.sqrt(2), rel=1e-15)
    assert first.p_below_half == pytest.approx(expected, abs=5e-4)
    closed = ndtr(-math.sqrt(2) * (1 - math.log(n - 1) / beta))
    assert first.p_below_half == pytest.approx(closed, abs=1e-14)


def test_head_2_does_not_move() -> None:
    second = law("two-heads", n=10, beta=10.0).heads[1]
    assert second.sd == pytest.approx(0, abs=1e-15)
    assert second.mean == pytest.approx(1 / (1 + 9 * math.exp(-10)), rel=1e-14)


def test_when_the_key_points_backwards_head_1_goes_to_the_mean_of_the_others() -> None:
    from wherefrom.attention.equation import attend

    n, beta = 7, 50.0
    keys = np.eye(n)
    keys[0] *= -1.0  # e = -1
    found = attend(beta * np.eye(n)[0], keys, np.eye(n))
    np.testing.assert_allclose(found.weights[1:], 1 / (n - 1), rtol=1e-12)
    assert law("two-heads", n=n, beta=beta).p_negative == pytest.approx(ndtr(-math.sqrt(2)))


def ratio(n: int, beta: float) -> float:
    one, two = (law(name, n=n, beta=beta).spread() for name in ("one-head", "two-heads"))
    assert one is not None
    assert two is not None
    return one**2 / two**2


def test_variance_of_one_head_over_that_of_two() -> None:
    assert ratio(100, 10.0) == pytest.approx(5.8, abs=0.05)
    p = ndtr(-math.sqrt(2))
    limit = 0.25 / (p * (1 - p) / 4)
    assert limit == pytest.approx(13.8, abs=0.05)
    assert ratio(2, 5000.0) == pytest.approx(limit, rel=1e-3)


@pytest.mark.parametrize("alpha", [0.0, 1e-3])
def test_one_head_written_twice_removes_no_variance(alpha: float) -> None:
    once = law("one-head", n=5, beta=6.0, alpha=alpha)
    twice = law("one-head", n=5, beta=6.0, alpha=alpha, heads=2)
    assert twice.spread() == pytest.approx(once.spread(), rel=1e-12)


def test_the_query_that_avoids_the_noisy_direction_is_stable() -> None:
    spread = law("avoiding-head", n=8, beta=10.0, alpha=1e-6).spread()
    assert spread == pytest.approx(0.0087, abs=5e-5)
    assert law("avoiding-head", n=8, beta=10.0).spread() == pytest.approx(0, abs=1e-15)


@pytest.mark.parametrize(("t", "expected"), [(0.0, 0.0786), (1.0, 0.0023)])
def test_the_repelling_term(t: float, expected: float) -> None:
    first = law("repelling-heads", n=8, beta=20_000.0, repel=t).heads[0]
    assert first.p_below_half == pytest.approx(expected, abs=1e-4)
    assert first.p_below_half == pytest.approx(ndtr(-math.sqrt(2) * (1 + t)), rel=1e-3)


def test_the_repelling_heads_leave_the_noise_to_head_1() -> None:
    second = law("repelling-heads", n=8, beta=3.0, repel=2.0).heads[1]
    assert second.sd == pytest.approx(0, abs=1e-15)
    others = math.exp(-3) + 6 * math.exp(-9)  # a at 0, the rest at -beta t, against beta
    assert second.mean == pytest.approx(1 / (1 + others), rel=1e-12)


def test_the_covariance_of_all_weights_agrees_with_each_route() -> None:
    for alpha in (0.0, 1e-3):
        two = law("two-heads", n=6, beta=4.0, alpha=alpha)
        full = two.weight_covariance()
        np.testing.assert_allclose(full.sum(axis=0), 0, atol=1e-14)
        for key in (0, 1, 5):
            assert math.sqrt(full[key, key]) == pytest.approx(two.spread(key), rel=1e-10)
        assert two.mean_weights.sum() == pytest.approx(1, abs=1e-14)


def test_the_law_of_c_is_linear_in_that_of_the_weights() -> None:
    two = law("two-heads", n=6, beta=4.0)
    values = np.random.default_rng(0).standard_normal((6, 3))
    context = two.context(values)
    np.testing.assert_allclose(context.mean, two.mean_weights @ values, rtol=1e-14)
    # only a is noisy: c moves along one line a head, so its covariance has rank one here
    assert context.covariance is not None
    assert np.linalg.matrix_rank(context.covariance, tol=1e-12) == 1
    one = law("one-head", n=6, beta=4.0).context(np.eye(6))
    assert one.covariance is not None
    assert math.sqrt(one.covariance[0, 0]) == pytest.approx(
        law("one-head", n=6, beta=4.0).spread(), rel=1e-12
    )


def test_correlated_heads_are_left_to_trials_and_it_says_so() -> None:
    keys = NoisyKeys(4, 4, alpha=0.01)
    queries = np.array([[3.0, 1.0, 0.0, 0.0], [1.0, 3.0, 0.0, 0.0]])
    heads = HeadsLaw(keys, queries, (0, 1))
    assert heads.spread() is None
    assert "heads 1 and 2" in heads.why_no_spread
    assert heads.heads[0].sd > 0  # each head's own law stays exact
    assert heads.context(np.eye(4)).covariance is None
    with pytest.raises(UserError, match="trials alone"):
        heads.weight_covariance()


def test_two_directions_of_noise_in_one_key_are_a_double_integral() -> None:
    covariance = np.array([[0.5, 0.3, 0.0], [0.3, 0.4, 0.0], [0.0, 0.0, 0.0]])
    keys = NoisyKeys(3, 3, covariance=covariance)
    queries = np.array([[4.0, 0.0, 0.0], [0.0, 3.0, 0.0]])
    heads = HeadsLaw(keys, queries, (0, 1))
    rng = np.random.default_rng(3)
    noise = rng.multivariate_normal(np.zeros(3), covariance, size=400_000)
    a1 = 1 / (1 + 2 * np.exp(-4 * (1 + noise[:, 0])))
    a2 = 1 / (1 + (np.exp(3) + 1) * np.exp(-3 * noise[:, 1]))
    average = (a1 + a2) / 2
    assert heads.mean_weights[0] == pytest.approx(average.mean(), abs=5 * average.std() / 632)
    assert heads.spread() == pytest.approx(average.std(), rel=0.01)


def test_the_curve_of_the_average_has_the_average_moments() -> None:
    two = law("two-heads", n=10, beta=6.0)
    curve = two.average_curve(points=40_001)
    assert curve is not None
    x, p = curve
    assert (np.diff(x) >= 0).all()
    mean = float((x[1:] + x[:-1]) @ np.diff(p) / 2)
    assert mean == pytest.approx(two.mean_weights[0], abs=1e-6)
    assert law("two-heads", n=10, beta=6.0, alpha=0.1).average_curve() is None


def test_targets_must_match_the_heads() -> None:
    with pytest.raises(UserError, match="one target key"):
        HeadsLaw(NoisyKeys(3, 3), np.ones((2, 3)), (0,))
