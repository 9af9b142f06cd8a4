"""Verdicts under noisy keys: failure probabilities against laws solved by hand, and simulation."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest

from wherefrom.attention.checker.check import check
from wherefrom.attention.checker.failure import failure_probability, misplaced, weight_on_a
from wherefrom.attention.checker.language import ExpressionError

PHI = NormalDist().cdf


def test_the_failure_probability_of_one_head_is_the_normal_law() -> None:
    """misplaced <= eps iff the logit of a lies in a window whose ends are solved by hand."""
    n, beta, eps = 10, 10.0, 0.01
    rest = math.exp(beta) + (n - 2)
    share = math.exp(beta) / rest  # of what a leaves, b's part
    # f(t) = (|t - 1/2| + |(1-t) share - 1/2| + (1-t)(1-share))/2 equals eps at these two t
    low = 0.5 - eps  # below 1/2 the other two terms grow exactly as t falls
    high = 1 - (0.5 - eps) / share if (1 - (0.5 - eps) / share) > 0.5 else None
    assert high is not None
    ends = [math.log(t / (1 - t)) for t in (low, high)]
    e = [(math.log(rest) + end) / beta for end in ends]
    sd = math.sqrt(0.5)
    expected = 1 - (PHI((e[1] - 1) / sd) - PHI((e[0] - 1) / sd))
    got, aside, in_all = failure_probability([(beta, beta, 0.0)], n, eps, backwards_aside=False)
    window = [float(misplaced([(beta, beta, 0.0)], np.array([x]), n)[0]) for x in e]
    assert window[0] == pytest.approx(eps, rel=0.05)
    assert got == pytest.approx(expected, abs=2e-5)
    assert (aside, in_all) == (0.0, got)


def test_the_failure_probability_of_two_heads_is_the_normal_law() -> None:
    """q1 = beta mu_a, q2 = beta mu_b: the leftover of both heads, halved, is eps at one e."""
    n, beta, eps = 10, 40.0, 0.01
    second = (n - 1) * math.exp(-beta) / (1 + (n - 1) * math.exp(-beta))
    first = 2 * eps - second  # the leftover that head 1 may have
    e = (math.log(n - 1) + math.log((1 - first) / first)) / beta
    lost = PHI(-math.sqrt(2))
    expected = (PHI((e - 1) * math.sqrt(2)) - lost) / (1 - lost)
    heads = [(beta, 0.0, 0.0), (0.0, beta, 0.0)]
    given, aside, in_all = failure_probability(heads, n, eps, backwards_aside=True)
    # head 1's leftover goes partly to b, so it is misplaced twice over only up to 1/(n-1)
    assert given == pytest.approx(expected, abs=5e-3)
    assert aside == pytest.approx(0.0786, abs=5e-5)
    assert in_all == pytest.approx(lost + (1 - lost) * given, abs=1e-12)


def test_the_repelling_term_fails_as_rarely_as_the_law_says() -> None:
    heads = [(1e6, -1e6, -1e6), (-1e6, 1e6, -1e6)]
    _, _, in_all = failure_probability(heads, 10, 0.01, backwards_aside=True)
    assert in_all == pytest.approx(PHI(-2 * math.sqrt(2)), abs=2e-4)  # 0.0023


def test_the_spread_of_one_head() -> None:
    assert weight_on_a([(10.0, 10.0, 0.0)], 8)[1] == pytest.approx(0.442, abs=5e-4)


def test_noise_is_reported_exactly_and_by_simulation() -> None:
    failure = check("two-heads", ["q1=beta*mu_a", "q2=beta*mu_b"]).failure
    assert failure is not None
    assert failure.set_aside == pytest.approx(0.0786, abs=5e-5)
    assert failure.probability <= 0.05 + 1e-6
    assert failure.in_all > failure.set_aside
    assert failure.simulated is not None
    assert failure.standard_error is not None
    assert abs(failure.simulated - failure.in_all) < 5 * failure.standard_error
    blur = check("noisy-average", ["q=beta*(mu_a+mu_b)"]).failure
    assert blur is not None
    level = math.log(0.51 / 0.49)
    spread = math.sqrt(2 * 1e-6 * 2 * 10.0**2)
    assert blur.probability == pytest.approx(2 * PHI(-level / spread), rel=1e-9)
    avoids = check("stretched-average", ["q=-beta*sum_others"]).failure
    assert avoids is not None
    assert avoids.probability == 0.0
    assert avoids.set_aside == 0.0


def test_a_range_is_judged_by_its_exact_probability() -> None:
    verdict = check("stretched-average", ["low=0.5", "high=1.5"])
    assert verdict.verdict == "refuted"
    assert verdict.failure is not None
    assert verdict.failure.probability == pytest.approx(2 * PHI(-math.sqrt(0.5)), abs=1e-12)
    assert "48.0%" in verdict.because
    assert check("stretched-average", ["low=0.5", "high=1.5"], tolerance=0.4).exit_code == 1
    assert check("stretched-average", ["low=-1", "high=3"]).verdict == "proved"
    assert check("stretched-average", ["low=3", "high=-1"]).verdict == "refuted"
    with pytest.raises(ExpressionError):
        check("stretched-average", ["low=beta", "high=1.5"])
