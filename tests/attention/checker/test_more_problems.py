"""Positions, costs, variances and keys as numbers: verdicts, and independent checks of each."""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wherefrom.attention.checker import check
from wherefrom.attention.checker.judge_layers import Wave, _not_dominated, model_cost
from wherefrom.attention.checker.judge_queries import LIMITS, variances
from wherefrom.attention.checker.language import ExpressionError
from wherefrom.attention.designs import law_of_design
from wherefrom.attention.laws import normalised_law
from wherefrom.errors import UserError

CASES = [
    # permutation
    ("permutation", "softmax(X W_q W_k^T X^T) X V", "proved", "commute"),
    ("permutation", r"f = \mathrm{softmax}(QK^\top/\sqrt{d})V", "proved", "commute"),
    ("permutation", "ReLU(X W_1) W_2 + LayerNorm(X)", "proved", "commute"),
    ("permutation", "f=ones*(ones.T@X)/n", "proved", "commute"),
    ("permutation", "softmax(mask(X X^T)) X", "refuted", "the mask"),
    ("permutation", "softmax(XXᵀ+M)X", "refuted", "the mask M"),
    ("permutation", "softmax((X+P)(X+P)^T)X", "refuted", "the position table P"),
    ("permutation", "X+P-P", "holds", "no proof"),
    # sinusoids
    ("sinusoids", r"p = (\sin(t/10000^{2i/d}), \cos(t/10000^{2i/d}))", "proved", "irrational"),
    ("sinusoids", "PE=[sin(pos/10000**(2i/d_model)), cos(pos/10000**(2i/d_model))]", "proved", ""),
    ("sinusoids", "p=sin t", "proved", "irrational"),
    ("sinusoids", "p=[1, t/7]", "proved", "grows"),
    ("sinusoids", "p=[sin(2*pi*t/10), cos(2πt/10)]", "refuted", "p(0) = p(10)"),
    ("sinusoids", "p=cos(t-3)", "refuted", "p(2) = p(4)"),
    ("sinusoids", "p=[sin(t)*cos(t)]", "holds", "no proof"),
    ("sinusoids", "p=sin(t)**2+cos(t)**2", "inconclusive", "p(0) and p(1) agree to nine digits"),
    ("sinusoids", "p=2*d", "inconclusive", "only angles"),
    ("sinusoids", "p=d*t", "proved", "grows"),
    ("sinusoids", "p=t*sin(pi*t)", "inconclusive", "agree to nine digits"),
    # rotary
    ("rotary", "y=(x1 cos(tθ) - x2 sin(tθ), x1 sin(tθ) + x2 cos(tθ))", "proved", "s - t alone"),
    ("rotary", "y=(x1, x2, x1)", "inconclusive", "sums of products"),
    ("rotary", "R=[[[1,2],[1,2]],[[1,2],[1,2]]]", "inconclusive", "sums of products"),
    ("perceiver-cost", "vanilla=[L, l]", "inconclusive", "sum of products"),
    ("variance", "var_c < [1, 2]", "inconclusive", "sums and products"),
    ("variance", "Var(c) = ¼ Var(c₁)", "proved", "equal at every n"),
    ("rotary", r"y = x e^{i t \theta}", "proved", "s - t alone"),
    ("rotary", "R=[[cos(tθ), -sin(tθ)], [sin(tθ), cos(tθ)]]", "proved", "s - t alone"),
    ("rotary", r"R = \begin{pmatrix} \cos t\theta & \sin t\theta \\ \sin t\theta & \cos t\theta "
     r"\end{pmatrix}", "refuted", "the sign of x2 in y1"),
    ("rotary", "y=x", "refuted", "does not depend on the positions"),
    ("rotary", "y1=x1+t|y2=x2", "refuted", "linear"),
    ("rotary", "y=t*x", "refuted", "more than s - t"),
    # perceiver-cost
    ("perceiver-cost", "vanilla=O(L l^2)|perceiver=O(L m^2 + l m)", "proved", "d held fixed"),
    ("perceiver-cost", r"perceiver = \mathcal{O}((L-2)m^2 + 2\ell m)", "proved", "constant"),
    ("perceiver-cost", "vanilla=L*L*l*l/L", "proved", "constant"),
    ("perceiver-cost", "vanilla=O(L l^2 d)", "holds", "attention alone"),
    ("perceiver-cost", "perceiver=L m^2", "refuted", "l*m is missing"),
    ("perceiver-cost", "perceiver=L l m", "refuted", "L*l*m is too large"),
    ("perceiver-cost", "vanilla=(L-3)*l**2", "refuted", "zero or negative"),
    ("perceiver-cost", "vanilla=l^2*log(l)", "inconclusive", "sum of products"),
    # synthesizer
    ("synthesizer", "S=β X Xᵀ", "proved", "X X^T"),
    ("synthesizer", "beta**2*X@X.T/3-beta*X@X.T", "proved", "X X^T"),
    ("synthesizer", "S=X A X^T", "holds", "no proof"),
    ("synthesizer", "relu(X A) B", "refuted", "whatever is learned"),
    ("synthesizer", "S=-beta*X@X.T", "refuted", "does not end up"),
    # variance
    ("variance", "Var(c) < Var(c_1)", "proved", "from some beta on"),
    ("variance", r"\mathrm{Var}(c_2) = 0", "proved", "equal at every n"),
    ("variance", "var_one → 1/4, var_norm << var_one", "proved", "tends to"),
    ("variance", "variance of c_1 is smaller than variance of c_2", "refuted", "tends to"),
    ("variance", "var_one = 1/4", "refuted", "the same limit"),
    ("variance", "var_c < var_c1/4", "refuted", "equal at every n"),
    ("variance", "var_one < 1/4", "holds", "no proof"),
    ("variance", "n - 1 < n", "holds", "no proof"),
    # hull
    ("hull", "K=[[0.5, 0.5], [1, 0], [0, 1]]", "refuted", "0.3333"),
    ("hull", "K=[[1/2, 1/2], [1, 0], [0, 1]]|w=(1/2, 1/2)", "proved", "0.3333"),
    ("hull", "K=[[1, 1], [1, 0], [0, 1]]", "proved", "corner"),
    ("hull", "K=[[1, 1], [1, 0], [0, 1]]|q=β(1, 0)", "refuted", "k_2.q = 0 does not grow"),
    ("hull", "K=[[1, 1], [1, 0], [0, 1]]|w=[1, 1]", "refuted", "sums to 2"),
]  # fmt: skip


@pytest.mark.parametrize(("problem", "text", "verdict", "words"), CASES)
def test_verdicts_and_their_reasons(problem, text, verdict, words):
    result = check(problem, text.split("|"))
    assert (result.verdict, words in result.because) == (verdict, True), result.because
    assert (result.counterexample is not None) == (verdict == "refuted")
    assert result.read_as
    assert result.to_dict()["verdict"] == verdict


@pytest.mark.parametrize(
    ("problem", "text", "words"),
    [
        ("hull", "K=[[1, 2], [3]]", "same number of entries"),
        ("hull", "K=3", "two keys at least"),
        ("hull", "K=[[1, 2], [3, 4]]|q=(1, 1, 1)", "q needs 2 entries"),
        ("variance", "var_c", "one comparison"),
        ("variance", "var_q < 1", 'Did you mean "var_c"'),
        ("rotary", "y=x*cos(t)", "whole multiple of t*theta"),
        ("permutation", "f=X @ Z", 'no name "Z"'),
        ("average", "q=softmax(k_a)", 'no function "softmax"'),
    ],
)
def test_what_cannot_be_read_is_asked_back(problem, text, words):
    with pytest.raises(UserError, match=words.replace("*", r"\*")):
        check(problem, text.split("|"))


@pytest.mark.parametrize(
    ("claim", "column"), [("var_c <", 8), ("var_c < var_x", 9), ("Var(c_1) > 2*mu", 14)]
)
def test_the_caret_of_a_claim(claim, column):
    with pytest.raises(ExpressionError) as caught:
        check("variance", claim)
    assert caught.value.column == column
    assert claim in str(caught.value)


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
