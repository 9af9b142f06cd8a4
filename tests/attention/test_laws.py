"""The law of one weight: the homework's setting, and the distribution where it is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import ndtr

from wherefrom.attention.laws import FIXED, INDEPENDENT, LOGIT_NORMAL, law_of_logits, law_of_weight
from wherefrom.attention.noise import NoisyKeys
from wherefrom.errors import UserError


def one_head(n: int, beta: float, alpha: float = 0.0):
    query = np.zeros(n)
    query[:2] = beta
    return law_of_weight(NoisyKeys(n, n, alpha), query)


@pytest.mark.parametrize("n", [2, 3, 8, 1000])
@pytest.mark.parametrize("beta", [0.5, 2.0, 10.0])
def test_one_head_is_logit_normal_for_every_n(n: int, beta: float) -> None:
    law = one_head(n, beta)
    assert law.form == LOGIT_NORMAL
    assert law.logit_mean == pytest.approx(-math.log(1 + (n - 2) * math.exp(-beta)), abs=1e-13)
    assert law.logit_sd == pytest.approx(beta / math.sqrt(2), rel=1e-15)


def test_check_values_of_one_head() -> None:
    assert one_head(8, 10.0, alpha=1e-6).sd == pytest.approx(0.442, abs=5e-4)
    assert one_head(8, 10.0).sd == pytest.approx(0.442, abs=5e-4)
    between = one_head(2, 20.0).cdf(np.array([0.05, 0.95]))
    assert between[1] - between[0] == pytest.approx(0.165, abs=5e-4)
    assert one_head(8, 4000.0).sd ** 2 == pytest.approx(0.25, abs=2e-4)  # 1/4 as beta grows


@pytest.mark.parametrize(("beta", "modes"), [(1.9, 1), (1.99, 1), (2.05, 2), (3.0, 2)])
def test_two_modes_exactly_above_beta_2(beta: float, modes: int) -> None:
    density = one_head(2, beta).pdf(np.linspace(0.001, 0.999, 1999))
    assert int((np.diff(np.sign(np.diff(density))) < 0).sum()) == modes


def test_the_scale_of_the_noisy_key_is_not_confined_to_half_and_three_halves() -> None:
    keys = NoisyKeys(2, 2)
    direction = np.array([[1.0, 0.0]])  # k_a . mu_a = e
    sd = float(keys.logit_sds(direction)[0, 0])
    assert sd == pytest.approx(0.7071, abs=1e-4)
    outside = 2 * ndtr(-0.5 / sd)
    assert outside == pytest.approx(0.4795, abs=1e-4)  # nearly half of all samples


def test_instability_at_the_even_split_grows_with_beta() -> None:
    # a_a = sigma(beta (e - 1)): its slope at e = 1 is beta/4
    for beta in (1.0, 7.0, 20.0):
        step = 1e-6
        up = law_of_logits(np.array([beta * (1 + step), beta]), np.zeros(2), 0).mean
        down = law_of_logits(np.array([beta * (1 - step), beta]), np.zeros(2), 0).mean
        assert (up - down) / (2 * step) == pytest.approx(beta / 4, rel=1e-6)


def test_isotropic_noise_adds_two_alpha_beta_squared() -> None:
    beta, alpha = 7.0, 1e-3
    query = np.zeros((1, 5))
    query[0, :2] = beta
    quiet = NoisyKeys(5, 5).logit_sds(query)[0] ** 2
    noisy = NoisyKeys(5, 5, alpha).logit_sds(query)[0] ** 2
    np.testing.assert_allclose((noisy - quiet)[:2], 2 * alpha * beta**2, rtol=1e-12)


def test_vanishing_noise_means_alpha_beta_squared_much_below_one() -> None:
    keys = NoisyKeys(8, 8, alpha=1e-4, stretch=0.0)
    query = np.zeros(8)
    for beta, spread in ((10.0, 0.05), (100.0, 0.3)):  # alpha beta^2 = 0.01, then 1
        query[:2] = beta
        assert (law_of_weight(keys, query).sd < spread) == (beta == 10.0)


@given(st.floats(-3, 3), st.floats(0.1, 4))
@settings(max_examples=25, deadline=None)
def test_quantile_inverts_the_distribution(location: float, scale: float) -> None:
    law = law_of_logits(np.array([location, 0.0]), np.array([scale, 0.0]), 0)
    for p in (0.01, 0.3, 0.5, 0.9):
        assert float(law.cdf(np.array(law.quantile(p)))) == pytest.approx(p, abs=1e-12)


def test_the_density_integrates_to_the_distribution_and_the_mean() -> None:
    for law in (
        one_head(8, 3.0),
        one_head(8, 3.0, alpha=0.01),
        law_of_logits(np.array([1.0, 0.5, 0.0]), np.array([0.0, 2.0, 0.0]), 0),
    ):
        middle = law.quantile(0.6)
        area = quad(lambda x, law=law: float(law.pdf(np.array(x))), 0, middle, epsabs=1e-11)[0]
        assert area == pytest.approx(0.6, abs=1e-8)
        mean = quad(lambda x, law=law: 1 - float(law.cdf(np.array(x))), 0, law.share, epsabs=1e-11)[
            0
        ]
        assert mean == pytest.approx(law.mean, abs=1e-8)


def test_the_inversion_meets_the_closed_form_as_the_other_noise_vanishes() -> None:
    x = np.linspace(0.01, 0.99, 9)
    closed, inverted = one_head(8, 10.0), one_head(8, 10.0, alpha=1e-14)
    assert inverted.form == INDEPENDENT
    # alpha beta^2 is 1e-12, so the two laws differ by about its square root times nothing
    np.testing.assert_allclose(inverted.cdf(x), closed.cdf(x), atol=1e-12)
    np.testing.assert_allclose(inverted.pdf(x), closed.pdf(x), atol=1e-10)
    assert inverted.quantile(0.3) == pytest.approx(closed.quantile(0.3), abs=1e-11)


def test_the_inversion_is_exact_down_to_its_stated_limit() -> None:
    means = np.array([0.2, 0.5, -0.3])
    near = law_of_logits(means, np.array([0.5, 1e-9, 0.0]), 0)
    exact = law_of_logits(means, np.array([0.5, 0.0, 0.0]), 0)
    x = np.linspace(0.05, 0.95, 11)
    np.testing.assert_allclose(near.cdf(x), exact.cdf(x), atol=1e-12)
    assert (near.cdf(np.array([0.0, 1.0])) == [0.0, 1.0]).all()


def test_below_that_limit_it_says_that_only_trials_can_answer() -> None:
    law = law_of_logits(np.zeros(3), np.array([0.1, 0.1, 0.1]), 0)
    assert law.p_below_half is None
    assert law.mean == pytest.approx(1 / 3, abs=1e-14)
    with pytest.raises(UserError, match="only trials"):
        law.cdf(np.array(0.5))
    with pytest.raises(UserError, match="only trials"):
        law.quantile(0.5)


def test_a_still_key_beside_a_noisy_one_shares_what_is_left() -> None:
    means = np.array([1.0, 0.5, 0.0])
    sds = np.array([0.0, 2.0, 0.0])
    law = law_of_logits(means, sds, 0)
    z = np.random.default_rng(0).standard_normal(400_000)
    other = np.exp(0.5 + 2 * z)
    weight = np.e / (np.e + 1 + other)
    assert law.mean == pytest.approx(weight.mean(), abs=5 * weight.std() / 632)
    logits = np.log(weight / (1 - weight))
    assert law.logit_mean == pytest.approx(logits.mean(), abs=5 * logits.std() / 632)
    assert law.logit_sd == pytest.approx(logits.std(), rel=0.01)
    assert float(law.cdf(np.array(0.4))) == pytest.approx((weight <= 0.4).mean(), abs=0.004)
    assert float(law.cdf(np.array(0.9))) == 1.0  # it never gets more than its share, 0.73


def test_nothing_random() -> None:
    law = law_of_logits(np.array([1.0, 0.0, 0.0]), np.zeros(3), 0)
    assert law.form == FIXED
    assert law.mean == pytest.approx(math.e / (math.e + 2), rel=1e-14)
    assert law.sd == 0
    assert law.p_below_half == 0.0
    even = law_of_logits(np.zeros(2), np.zeros(2), 0)
    assert even.p_below_half == 0.0  # one half is not below one half
    assert float(even.cdf(np.array(0.5))) == 1.0
    with pytest.raises(UserError, match="no density"):
        law.pdf(np.array(0.5))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"n": 1}, "at least 2 keys"),
        ({"d": 3}, "width of at least"),
        ({"alpha": -1.0}, "alpha is a variance"),
        ({"stretch": math.nan}, "stretch is a variance"),
        ({"covariance": np.eye(3)}, "must be 4 x 4"),
        ({"covariance": -np.eye(4)}, "no negative eigenvalue"),
        ({"covariance": np.triu(np.ones((4, 4)))}, "symmetric"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(change: dict[str, object], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        NoisyKeys(**{"n": 4, "d": 4, **change})


def test_wrong_questions_get_a_sentence() -> None:
    keys = NoisyKeys(3, 3)
    with pytest.raises(UserError, match="heads x 3"):
        law_of_weight(keys, np.ones(4))
    with pytest.raises(UserError, match="one query"):
        law_of_weight(keys, np.ones((2, 3)))
    with pytest.raises(UserError, match="no key 3"):
        law_of_weight(keys, np.ones(3), key=3)
    with pytest.raises(UserError, match="finite"):
        law_of_weight(keys, np.full(3, np.inf))
    with pytest.raises(UserError, match="between 0 and 1"):
        law_of_weight(keys, np.ones(3)).quantile(1.5)
