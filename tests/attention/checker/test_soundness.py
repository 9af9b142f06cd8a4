"""No verdict that brute force contradicts (see brute_force.py), and exact numbers behind them."""

from __future__ import annotations

import contextlib
import itertools
import math
import random
from dataclasses import replace
from fractions import Fraction
from statistics import NormalDist

import brute_force
import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wherefrom.attention.checker import PROBLEMS, check
from wherefrom.attention.checker.algebra import Field, NotExactError, _sign_runs
from wherefrom.attention.checker.instances import Numeric, key_values, orthonormal
from wherefrom.attention.checker.judge_layers import Wave, _not_dominated, model_cost
from wherefrom.attention.checker.judge_queries import LIMITS, variances
from wherefrom.attention.checker.language import ExpressionError, evaluate, read_construction
from wherefrom.attention.checker.logits import Queries, failure_probability
from wherefrom.attention.designs import law_of_design
from wherefrom.attention.laws import normalised_law

PHI = NormalDist().cdf

SCALARS = st.randoms(use_true_random=False).map(
    lambda rng: brute_force.write(brute_force.draw_scalar(rng, 2))
)
VECTORS = st.recursive(
    st.sampled_from(["k_a", "k_b", "sum_others", "sum_all"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-"), inner).map(lambda t: f"({''.join(t)})"),
        st.tuples(SCALARS, inner).map(lambda t: f"({t[0]})*{t[1]}"),
        st.tuples(inner, inner, inner).map(lambda t: f"outer({t[0]},{t[1]})@({t[2]})"),
        st.tuples(SCALARS, inner).map(lambda t: f"inv(I+({t[0]})*outer(k_a,k_a))@({t[1]})"),
        inner.map(lambda x: f"unit({x})"),
        inner.map(lambda x: f"pinv(K)@K@({x})"),
    ),
    max_leaves=4,
)


def test_verdicts_against_brute_force():
    """Also run with 100,000: python benchmarks/checker.py --constructions 100000."""
    verdicts, wrong = brute_force.run(800, seed=0)
    assert not wrong
    assert all(verdicts[word] > 5 for word in ("proved", "holds", "refuted"))


def test_brute_force_notices_a_wrong_verdict():
    rng = random.Random(3)
    turned = {"proved": "refuted", "refuted": "proved"}
    noticed = dict.fromkeys(turned, 0)
    for _ in range(60):
        drawn = brute_force.draw(rng)
        with contextlib.suppress(ExpressionError, np.linalg.LinAlgError):
            result = brute_force.decided(drawn)
            if result.verdict in turned:
                flipped = replace(result, verdict=turned[result.verdict])
                noticed[result.verdict] += bool(brute_force.contradiction(drawn, flipped))
    assert noticed["proved"] > 5
    assert noticed["refuted"] > 20


@settings(max_examples=150, deadline=None, derandomize=True)
@given(VECTORS)
def test_exact_logits_are_those_of_drawn_keys(text):
    """Where the exact algebra has logits, floating point on drawn keys finds the same ones."""
    problem = PROBLEMS["average"]
    try:
        model = Queries(read_construction(problem, ["q=" + text]))
        n, beta = 6, 1.7
        exact = model.logits(beta, n)[0]
        keys = orthonormal(n, 9, np.random.default_rng(5))
        q = evaluate(model.expressions["q"], Numeric(key_values(problem, keys, beta))).ravel()
    except ExpressionError:
        return
    model.exact = []  # the same in a few coordinates, in floating point
    scale = max(1.0, float(np.abs(q).max()), *map(abs, exact))
    if scale < 1e9:  # differences of larger numbers keep no digits to compare
        np.testing.assert_allclose((keys @ q)[:3], exact, atol=1e-6 * scale)
        np.testing.assert_allclose(model.compute_logits(beta, n)[0], exact, atol=1e-6 * scale)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(-40, 40), min_size=1, max_size=5), st.lists(st.integers(0, 60)))
def test_the_sign_of_a_polynomial_is_known_at_every_n(p, roots):
    for root in roots[:3]:
        p = [a - root * b for a, b in zip([0, *p], [*p, 0], strict=True)]
    runs = dict(_sign_runs(p, 3))
    sign = 0
    for n in range(3, 130):
        value = sum(c * n**k for k, c in enumerate(p))
        sign = runs.get(n, sign)
        assert sign == (value > 0) - (value < 0)
    assert max(runs) < 130 or len(p) > 2


def test_a_term_lost_in_rounding_is_not_a_counterexample():
    """At n = 35 k_a.q - k_i.q = beta*exp(-35) + 2 grows: n = 36 is the first that fails."""
    result = check("average", "q=beta*(exp(-n)+35)*(k_a+k_b)+(beta*n-2)*sum_others")
    assert result.counterexample.sizes["n"] == 36
    steep = check("average", "q=(n-6.5)**2*beta*(k_a+k_b)")  # n = 6 and 7 need the largest beta
    assert steep.verdict == "proved"
    late = check("average", "q=beta*(k_a+k_b)+1e-12*sqrt(beta)*k_a").counterexample
    assert late.numbers["beta"] > 1e20  # where a takes all, not a beta that is too small for b
    hidden = check("average", "q=beta*(exp(-n)+35)*(k_a+k_b)+(beta*35-2)*sum_others")
    assert hidden.verdict != "refuted"  # right at every n, for a beta above e^n


def test_a_term_that_wins_beyond_every_beta_tried_refutes():
    W = "W=(outer(u_d,u_a)+outer(u_c,u_d))/beta**2"
    V = "V=(outer(u_b,u_b)-outer(u_c,u_c))/beta**2"
    slow = f"{W}-outer(u_d,u_b)/beta**2+1e-9*outer(u_d,u_b)/beta"
    result = check("self-attention", [slow, V])
    assert (result.verdict, bool(result.counterexample)) == ("refuted", True)
    assert check("self-attention", [W, V + "+0.001*outer(u_a,u_d)/beta**2"]).verdict == "holds"


def test_exact_numbers():
    field = Field(least_n=3)
    gap = field.n - field.rational(2)
    root = field.function("sqrt", gap)
    assert str(root * root) == "n - 2"
    assert str(field.function("sqrt", field.rational(8)) * field.beta) == "2*beta*sqrt(2)"
    assert str(field.beta * field.beta / field.beta) == "beta"
    assert (field.beta / gap).at(6.0, 5) == 2.0
    assert not field.doubts
    assert (field.beta / (gap - field.rational(3))).at(1.0, 7) == 0.5
    assert [str(doubt) for doubt in field.doubts] == ["n - 5"]
    assert [field.has_doubt(n) for n in (4, 5, 6)] == [False, True, False]
    assert field.trend(field.beta * (gap - field.rational(Fraction(1, 2)))).kind == "up"
    assert field.trend(field.beta * (gap - field.rational(3))).kind == "unclear"
    assert field.trend(field.beta * (gap - field.rational(3)), 4).kind == "down"
    two, three, six = (field.function("sqrt", field.rational(x)) for x in (2, 3, 6))
    assert field.trend(field.beta * (two * three - six)).kind == "unclear"  # it is zero
    for power in (80, 200):
        with pytest.raises(NotExactError):
            (field.beta + field.n + field.rational(2)) ** power
    large = "q=" + "*".join(f"(beta+n+{i})**8" for i in range(1, 9)) + "*(k_a+k_b)"
    assert not Queries(read_construction(PROBLEMS["average"], [large])).exact  # numbers have to do


def test_the_failure_probability_of_two_heads_is_the_normal_law():
    """q1 = beta mu_a, q2 = beta mu_b: the leftover of both heads, halved, is eps at one e."""
    n, beta, eps = 10, 40.0, 0.01
    second = (n - 1) * math.exp(-beta) / (1 + (n - 1) * math.exp(-beta))
    first = 2 * eps - second  # the leftover that head 1 may have
    e = (math.log(n - 1) + math.log((1 - first) / first)) / beta
    lost = PHI(-math.sqrt(2))
    expected = (PHI((e - 1) * math.sqrt(2)) - lost) / (1 - lost)
    heads = [(beta, 0.0, 0.0), (0.0, beta, 0.0)]
    given_, aside, in_all = failure_probability(heads, n, eps)
    # head 1's leftover goes partly to b, so it is misplaced twice over only up to 1/(n-1)
    assert given_ == pytest.approx(expected, abs=5e-3)
    assert aside == pytest.approx(0.0786, abs=5e-5)
    assert in_all == pytest.approx(lost + (1 - lost) * given_, abs=1e-12)
    repelling = [(1e6, -1e6, -1e6), (-1e6, 1e6, -1e6)]
    in_all = failure_probability(repelling, 10, 0.01)[2]
    assert in_all == pytest.approx(PHI(-2 * math.sqrt(2)), abs=2e-4)  # 0.0023


def test_noise_is_reported_exactly_and_by_simulation():
    failure = check("two-heads", ["q1=beta*mu_a", "q2=beta*mu_b"]).failure
    assert failure.set_aside == pytest.approx(0.0786, abs=5e-5)
    assert failure.probability <= 0.05 + 1e-6
    assert failure.in_all > failure.set_aside
    assert abs(failure.simulated - failure.probability) < 5 * failure.standard_error
    blur = check("noisy-average", "q=beta*(mu_a+mu_b)").failure
    spread = math.sqrt(2 * 1e-6 * 2 * 10.0**2)
    assert blur.probability == pytest.approx(2 * PHI(-math.log(0.51 / 0.49) / spread), rel=1e-9)


# ---- layers, costs, variances and keys as numbers

SMALL = st.fractions(-2, 2, max_denominator=6)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.sampled_from(["sin", "cos"]), SMALL, SMALL, SMALL, SMALL)
def test_two_angles_meet_exactly_where_fifty_digits_say_so(kind, w, v, f, g):
    wave = Wave(kind, w, v, f, g)
    with mpmath.workdps(50):
        w_, v_, f_, g_ = (mpmath.mpf(x.numerator) / x.denominator for x in (w, v, f, g))
        angles = [(w_ + v_ * mpmath.pi) * t + f_ + g_ * mpmath.pi for t in range(25)]
        values = [getattr(mpmath, kind)(angle) for angle in angles]
        met = [(s, t) for t in range(25) for s in range(t) if abs(values[s] - values[t]) < 1e-40]
    assert met == [(s, t) for t in range(25) for s in range(t) if wave.meet(s, t)]
    if wave.injective:
        assert not met


def test_rotary_verdicts_of_all_small_matrices():
    """Entries 0, +-cos, +-sin: the verdict is what the products say at many positions."""
    entries = ("0", "cos(t*theta)", "-cos(t*theta)", "sin(t*theta)", "-sin(t*theta)")
    numbers = [lambda a: 0.0, math.cos, lambda a: -math.cos(a), math.sin, lambda a: -math.sin(a)]
    rng = np.random.default_rng(0)
    for which in rng.permutation(list(itertools.product(range(5), repeat=4)))[:150]:
        a, b, c, d = (entries[i] for i in which)
        verdict = check("rotary", f"R=[[{a}, {b}], [{c}, {d}]]").verdict
        at = [np.array([numbers[i](0.7 * t) for i in which]).reshape(2, 2) for t in range(9)]
        products = [[at[s].T @ at[s + by] for s in range(5)] for by in range(4)]
        alone = all(np.allclose(p, row[0]) for row in products for p in row)
        moves = not np.allclose(products[0][0], products[1][0])
        assert verdict == ("proved" if alone and moves else "refuted"), which


def test_the_cost_is_what_our_models_multiply():
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from wherefrom.model.config import ModelConfig
    from wherefrom.model.decoder import Decoder

    for variant in ("vanilla", "perceiver"):
        L, tokens, m, d, vocabulary = 5, 12, 4, 16, 11
        sizes = {"block": tokens + 1, "layers": L, "heads": 2, "width": d, "latents": m}
        config = ModelConfig(
            variant=variant, vocabulary=vocabulary, dropout=0.0, reads="first", **sizes
        )
        model = Decoder(config).eval().requires_grad_(False)
        counter = FlopCounterMode(display=False)
        with counter:
            model(torch.zeros(1, tokens, dtype=torch.long), record=[])
        head = tokens * d * vocabulary
        expected = model_cost(variant, L, tokens, m, d)
        assert counter.get_total_flops() == 2 * (expected + head), variant


@settings(max_examples=80, deadline=None, derandomize=True)
@given(*[st.lists(st.tuples(*[st.integers(0, 2)] * 4), min_size=1, max_size=3)] * 2)
def test_a_term_that_is_dominated_never_outgrows(terms, others):
    found = _not_dominated(terms, others)
    rng = np.random.default_rng(0)
    for term in terms:
        ratios = []
        for scale in (1.0, 40.0):
            logs = rng.uniform(0, scale, (300, 4))
            logs[:, 1] += logs[:, 2]  # l >= m
            own = logs @ term
            best = np.max([logs @ other for other in others], axis=0)
            ratios.append(float((own - best).max()))
        if term in found:
            L, alone, both, d = found[term]
            logs = np.array([L, alone + both, both, d])
            assert all(logs @ term > logs @ other for other in others)
        else:
            assert ratios[1] <= 1e-9


def test_variances_are_those_of_the_laws_and_reach_their_limits():
    for n, beta in ((3, 2.0), (8, 10.0)):
        found = variances(n, beta)
        for name, design in (("var_one", "one-head"), ("var_c", "two-heads")):
            law = law_of_design(design, n=n, beta=beta)[1]
            assert found[name] == pytest.approx(law.spread**2, rel=1e-9)
        e = 1 + math.sqrt(0.5) * np.random.default_rng(1).standard_normal(200_000)
        mass = np.exp(beta * np.sign(e))
        weight = mass / (mass + math.exp(beta) + n - 2)
        mean, sd = normalised_law(n, beta)
        assert (weight.mean(), weight.std()) == pytest.approx((mean, sd), abs=2e-3)
    far = variances(9, 3000.0)
    assert {name: far[name] for name in LIMITS} == pytest.approx(LIMITS, abs=2e-3)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=2, max_size=5))
def test_a_key_is_copied_or_mixed(keys):
    text = ", ".join(f"[{x}, {y}]" for x, y in keys)
    result = check("hull", f"K=[{text}]")
    rng = np.random.default_rng(0)
    drawn = rng.standard_normal((4000, 2)) * 30
    logits = drawn @ np.array(keys, dtype=float).T
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    best = float((weights[:, 0] / weights.sum(axis=1)).max())
    if result.verdict == "proved":
        assert best > 0.9
    else:
        assert result.verdict == "refuted"
        assert best <= result.counterexample.numbers["most"] + 1e-9


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.randoms(use_true_random=False))
def test_what_is_proved_equivariant_is(rng):
    """Layers drawn from the grammar: the verdict against reordering, by eyes of its own."""

    def rows(depth):
        if depth == 0:
            return rng.choice(["X", "X", "P", "Q"])
        a, b = rows(depth - 1), rows(depth - 1)
        attention = f"softmax(({a})@({b}).T)@({b})"
        masked = f"softmax(mask(({a})@({a}).T))@({b})"
        return rng.choice([attention, masked, f"relu({a})@W_1", f"({a}+{b})", f"({a}-{a}+{b})"])

    text = rows(2)
    verdict = check("permutation", f"f={text}").verdict
    knows = "P" in text or "mask" in text
    assert verdict == "proved" if not knows else verdict in ("refuted", "holds")
