"""Verdicts: right constructions for unusual reasons, wrong ones for subtle ones, exact figures."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from wherefrom.checker import PROBLEMS, check
from wherefrom.errors import UserError

V = "V=(outer(u_b,u_b)-outer(u_c,u_c))/beta**2"
Q = "Q=(outer(u_c,u_d)+outer(u_d,u_a))/beta**2"
SLOW = "log(log(beta+3)+1)"  # grows beyond all bounds, but not on any ladder


def judged(problem, text, **options):
    return check(problem, text.split("|"), **options)


@pytest.mark.parametrize(
    ("problem", "texts"),
    [
        ("copy", ["q=-beta*sum_others", "q=beta*(n*k_j-sum_all)", "q=beta*k_j+1e9*sum_all"]),
        ("copy", ["q=beta*(2*k_j+sum_others)", "q=beta*unit(k_j)/norm(sum_all)"]),
        ("average", ["q=t*(k_a+k_b)", "q=(k_a+k_b)*β", "q=beta*(sum_all-sum_others)"]),
        ("average", ["q=beta*(k_a+k_b)+5*sum_all", "q=beta*(k_a+k_b)/norm(sum_others)"]),
        ("average", ["q=beta*pinv(K)@(e_a+e_b)", "q=beta*K.T@(ones-K@sum_others)"]),
        ("average", ["q=beta*inv(I+outer(k_a,k_a)+outer(k_b,k_b))@(k_a+k_b)"]),
        ("average", ["q=beta*inv(I+outer(sum_all,sum_all))@(k_a+k_b)"]),
        ("average", ["q=beta*(k_a+k_b)+k_a/beta", "q=log(2)*beta*(k_a+k_b)"]),
        ("average", ["q=beta*(n**2-5*n+7)*(k_a+k_b)"]),  # positive for every n, not by sight
        ("average", ["q=beta*(k_a+k_b)/(n-4.5)**2", "q=beta*(k_a+k_b)/(n+1)"]),  # no whole root
        ("average", ["q=outer(k_a+k_b,k_a)@k_a*t"]),
        ("noisy-average", ["q=β*(μ_a+μ_b)", "q=t*(u_a+u_b)", "q=-beta*sum_others+sum_all/2"]),
        ("stretched-average", ["q=beta*(mu_a+mu_b-sum_all)", "q=mu_a/beta-beta*sum_others"]),
        ("stretched-average", ["q=sqrt(beta)*mu_a-sqrt(beta)*mu_a-beta*sum_others"]),
        ("stretched-average", ["low=1-2*sqrt(2)|high=1+2*sqrt(2)", "low=-1|high=3"]),
        ("two-heads", ["q1=beta*mu_b|q2=beta*mu_a", "q1=beta*mu_a-beta**2*mu_b|q2=beta*mu_b"]),
        ("two-heads", ["q1=beta*(mu_a-mu_b-sum_others)|q2=beta*(mu_b-mu_a-sum_others)"]),
        ("two-heads", ["q1=beta*mu_a|q2=beta*mu_b+mu_a", "q1=beta*mu_a|q2=log(beta)*mu_b"]),
        ("two-heads", ["q1=-beta*sum_others|q2=-beta*sum_others"]),  # twice the same, and right
        ("extract", ["M=I-B@B.T", "M=A@A.T+C@C.T", "M=A@pinv(A)", "M=A@inv(A.T@A)@A.T"]),
        ("extract", ["M=S@D@inv(S)", "M=hstack(A,0*B)@pinv(hstack(A,B))", "M=(A@A.T)@(A@A.T)"]),
        ("extract", ["M=inv(I+B@B.T)@(2*A@A.T)/2", "M=sqrt(2)*A@A.T/sqrt(2)", "M=S@pinv(D)@S.T"]),
        ("self-attention", [f"W=outer(u_c-u_d,u_d-u_a)/beta**2|{V}", f"K=10*I|{Q}|{V}"]),
        ("self-attention", [f"K=outer(u_a,u_c-u_d)/beta|Q=outer(u_a,u_d-u_a)/beta**3|{V}"]),
        ("self-attention", [f"K=I|Q=outer(u_c,u_d)+outer(u_d,u_a)|{V}+outer(u_a,u_a)/beta"]),
        ("identity-self-attention", ["c2=x2", "x2=u_a+u_d|c2=u_a+u_d", "x2=u_a+u_d|c2=x2"]),
        *((problem.name, ["|".join(problem.example)]) for problem in PROBLEMS.values()),
    ],
)
def test_right_for_a_reason_that_algebra_sees(problem, texts):
    for text in texts:
        result = judged(problem, text)
        assert result.verdict == "proved", (text, result.because)
        assert (result.exit_code, result.counterexample) == (0, None)


REFUTED = [
    ("copy", "q=k_j", 2, "nothing in the formula grows"),
    ("average", "q=(k_a+k_b)/2", 3, "nothing in the formula grows"),
    ("average", "q=beta*(k_a+1.01*k_b)", 3, "one of the two takes all"),
    ("average", "q=beta*(k_a+k_b)+k_a", 3, "0.731"),
    ("average", "q=beta*(1e8-beta)*(k_a+k_b)", 3, "tend to"),  # right up to beta = 1e8
    ("average", "q=beta*(5-n)*(k_a+k_b)", 5, "tend to"),  # right at n = 3 and 4
    ("stretched-average", "q=t*(mu_a+mu_b)", 3, "component beta along the noisy direction"),
    ("two-heads", "q1=t*(mu_a+mu_b)|q2=t*(mu_a+mu_b)", 3, "one head written twice"),
    # right for e > 0, but no head looks along mu_a, so that no sample is set aside
    ("two-heads", "q1=-beta*mu_a-beta*sum_others|q2=-beta*mu_b-beta*sum_others", 3, "samples"),
    ("two-heads", "q1=beta*(mu_a+sum_others/2)|q2=beta*mu_b", 3, "samples"),  # fails for e < 1/2
    ("two-heads", "q1=beta*mu_a|q2=beta*(mu_b+mu_a/2)", 3, "samples"),  # fails for e > 2
]


@pytest.mark.parametrize(("problem", "text", "n", "words"), REFUTED)
def test_wrong_with_the_smallest_counterexample(problem, text, n, words):
    result = judged(problem, text)
    assert (result.verdict, result.exit_code) == ("refuted", 1), result.because
    assert words in result.because
    example = result.counterexample
    assert example.sizes == {"n": n, "d": n}
    assert example.numbers["misplaced"] > result.tolerance
    weights = np.array(example.numbers["weights"])
    keys, queries = np.array(example.numbers["keys"]), np.array(example.numbers["queries"])
    scores = queries @ keys.T  # the numbers shown are enough to see it oneself
    again = np.exp(scores - scores.max(axis=1, keepdims=True))
    again = (again / again.sum(axis=1, keepdims=True)).mean(axis=0)
    np.testing.assert_allclose(weights, again, atol=2e-6)


CASES = [
    ("average", "q=exp(beta)*(k_a+k_b)", "proved", "for every n"),
    ("average", "q=log(beta)*exp(-n)*(k_a+k_b)", "proved", "for every n"),
    ("average", "q=beta**8*(k_a+k_b)+exp(-beta)*beta**8*k_a", "proved", "for every n"),
    ("average", "q=beta**8*(k_a+k_b)-exp(beta)*k_a", "refuted", "one of the two takes all"),
    ("average", "q=log(beta)**8*(k_a+k_b)-sqrt(beta)*sum_all", "proved", "for every n"),
    ("average", "q=sqrt(beta**2+beta)*(k_a+k_b)", "holds", "n = 3, 4, 5"),
    ("average", "q=(sqrt(beta**4+beta)-beta**2)*(k_a+k_b)", "refuted", "0.333"),
    ("average", "q=(sqrt(beta+sqrt(beta))-sqrt(beta))*(k_a+k_b)", "refuted", "0.384"),
    ("average", "q=beta*(k_a+k_b)+0.001*k_a", "holds", "not within every one"),
    ("average", "q=(10+2*log(n))*(k_a+k_b)", "holds", "not within every one"),  # no beta, and right
    ("average", "q=beta*(sqrt(n)-1)*(k_a+k_b)", "proved", "for every n"),
    ("average", "q=outer(k_a,k_b)", "refuted", "q is d x d and must be d x 1"),
    ("average", f"q={SLOW}*(k_a+k_b)", "inconclusive", ""),
    ("stretched-average", "q=0.001*mu_a-beta*sum_others", "holds", "no proof"),
    ("stretched-average", "low=0.5|high=1.5", "refuted", "48.0%"),
    ("stretched-average", "low=3|high=-1", "refuted", "outside"),
    ("stretched-average", f"q=-{SLOW}*sum_others", "inconclusive", ""),
    ("two-heads", "q1=exp(beta)*mu_a|q2=beta*mu_b", "proved", "every length e"),
    ("extract", "M=A.T", "refuted", "M is m x d and must be d x d: it gives the coordinates"),
    ("extract", "M=2*A@A.T", "refuted", "right for the average"),
    ("extract", "M=B@B.T", "refuted", "returns 0 where v_a is wanted, it lets v_b through"),
    ("extract", "M=0.999999*A@A.T", "refuted", "999999/1000000 v_a"),
    ("extract", "M=D", "refuted", "M (v_a + v_b) is not v_a"),  # right in the basis S, only there
    ("self-attention", f"K=I|{Q}|{V.replace('=', '=exp(1/beta)*')}", "inconclusive", "algebra"),
    ("self-attention", f"K=I|Q=I|{V}", "refuted", "c1 tends to u_b and not to u_b - u_c"),
    # beta must be above 2,000 for the first term to win
    (
        "self-attention",
        f"W=outer(u_d,u_b)/(1000*beta)+outer(u_d,u_a-u_b)/beta**2+outer(u_c,u_d)/beta**2|{V}",
        "refuted",
        "c1 tends to u_b",
    ),
    (
        "self-attention",
        f"K=I|Q=(outer(u_c,u_d)+outer(u_d,u_a))/beta**4|{V}",
        "refuted",
        "tend to (0.2119",
    ),
    # with weights (1/2, 0, 1/2), as a public answer has it, c2 would be u_b - u_c/2
    ("self-attention", f"K=I|{Q}+outer(u_c,u_a)/beta**2|{V}", "refuted", "(0.5, 0, 0.5)"),
    ("self-attention", f"K=I|{Q}|{V}*(1+1/{SLOW})", "inconclusive", ""),
    ("identity-self-attention", "c2=u_b", "refuted", "c2 tends to u_a and not to u_b"),
    ("identity-self-attention", "x2=u_a+u_c|c2=u_b", "refuted", "tends to u_a + u_c"),
    # at n = 1e9 and beta = 1e9 this has no value, and at a larger beta it has one
    (
        "two-heads",
        "q1=log(beta-n)*mu_a+n*sum_others|q2=(25-beta)*mu_a+abs(n-7.5)*sum_others",
        "inconclusive",
        "",
    ),
    ("copy", "q=(40+(n-40.5)**2)*k_j", "holds", "40, 41"),
    ("copy", "q=(n-200.5)**2*k_j", "refuted", "at n = 198"),
    ("copy", "q=(n-200.5)**2*k_j+(beta-beta)*sum_others", "refuted", "at n = 198"),
    ("permutation", "f=X+1e12*P-1e12*P", "holds", "no proof"),
    ("permutation", "f=X+P-P+1e-12*P", "refuted", "position table"),  # found by exact numbers
    ("sinusoids", "p=sin(t)/(d-80)", "refuted", "no value with d = 80"),
    ("sinusoids", "p=sin(t*(d-40))", "refuted", "p(0) = p(1)"),
    ("identity-self-attention", "c2=u_a/(beta-2)*beta", "proved", "tend to"),  # not at beta = 2
    ("extract", "M=A@A.T+1e12*(D-D)", "inconclusive", "mixes"),
    # permutation
    ("permutation", "softmax(X W_q W_k^T X^T) X V", "proved", "commute"),
    ("permutation", "ReLU(X W_1) W_2 + LayerNorm(X)", "proved", "commute"),
    ("permutation", "f=ones*(ones.T@X)/n", "proved", "commute"),
    ("permutation", "softmax(mask(X X^T)) X", "refuted", "the mask"),
    ("permutation", "softmax(XXᵀ+M)X", "refuted", "the mask M"),
    ("permutation", "softmax((X+P)(X+P)^T)X", "refuted", "the position table P"),
    ("permutation", "X+P-P", "holds", "no proof"),
    # sinusoids
    ("sinusoids", r"p = (\sin(t/10000^{2i/d}), \cos(t/10000^{2i/d}))", "proved", "irrational"),
    ("sinusoids", "p=sin t", "proved", "irrational"),
    ("sinusoids", "p=[1, t/7]", "proved", "grows"),
    ("sinusoids", "p=[sin(2*pi*t/10), cos(2πt/10)]", "refuted", "p(0) = p(10)"),
    ("sinusoids", "p=cos(t-3)", "refuted", "p(2) = p(4)"),
    ("sinusoids", "p=[sin(t)*cos(t)]", "holds", "no proof"),
    ("sinusoids", "p=sin(t)**2+cos(t)**2", "inconclusive", "agree to nine digits"),
    ("sinusoids", "p=2*d", "refuted", "p(0) = p(1)"),
    ("sinusoids", "p=d*t", "proved", "grows"),
    ("sinusoids", "p=t*sin(pi*t)", "inconclusive", "agree to nine digits"),
    ("sinusoids", "p=[1/t, t]", "refuted", "no value at t = 0"),
    ("sinusoids", "p=t*sin(pi)", "inconclusive", "agree to nine digits"),  # is 0 at every t
    ("sinusoids", "p=(d-2)*t", "refuted", "p(0) = p(1)"),  # is 0 for d = 2
    ("sinusoids", "p=t*sin(1)", "holds", "no proof"),
    ("sinusoids", "p=[[sin(t), cos(t)], [t, 1]]", "proved", "irrational"),
    # rotary
    ("rotary", "y=(x1 cos(tθ) - x2 sin(tθ), x1 sin(tθ) + x2 cos(tθ))", "proved", "s - t alone"),
    ("variance", "Var(c) = ¼ Var(c₁)", "proved", "equal at every n"),
    ("rotary", r"y = x e^{i t \theta}", "proved", "s - t alone"),
    ("rotary", "R=[[cos(tθ), -sin(tθ)], [sin(tθ), cos(tθ)]]", "proved", "s - t alone"),
    (
        "rotary",
        r"R = \begin{pmatrix} \cos t\theta & \sin t\theta \\ \sin t\theta & \cos t\theta "
        r"\end{pmatrix}",
        "refuted",
        "the sign of x2 in y1",
    ),
    ("rotary", "y=x", "refuted", "does not depend on the positions"),
    ("rotary", "y1=x1+t|y2=x2", "inconclusive", "linear"),
    ("rotary", "y=t*x", "refuted", "more than s - t"),
    ("rotary", "y=x/t", "inconclusive", "sums of products"),
    # perceiver-cost
    ("perceiver-cost", "vanilla=O(L l^2)|perceiver=O(L m^2 + l m)", "proved", "d held fixed"),
    ("perceiver-cost", "vanilla=L*L*l*l/L", "proved", "constant"),
    ("perceiver-cost", "vanilla=O(L l^2 d)", "holds", "attention alone"),
    ("perceiver-cost", "perceiver=L m^2", "refuted", "l*m is missing"),
    ("perceiver-cost", "perceiver=L l m", "refuted", "L*l*m is too large"),
    ("perceiver-cost", "vanilla=L*l*l*d+L*l*d*d-l", "inconclusive", "negative terms"),  # is right
    ("perceiver-cost", "vanilla=l^2*log(l)", "inconclusive", "sum of products"),
    # synthesizer
    ("synthesizer", "S=β X Xᵀ", "proved", "ahead of all others by beta"),
    ("synthesizer", "beta**2*X@X.T/3-beta*X@X.T", "proved", "grows with beta"),
    ("synthesizer", "S=X A X^T", "refuted", "whatever is learned"),
    ("synthesizer", "relu(X A) B", "refuted", "whatever is learned"),
    ("synthesizer", "S=-beta*X@X.T", "refuted", "not enough"),
    ("synthesizer", "S=(beta-4000)*X@X.T", "proved", "beta - 4000"),
    ("permutation", "f=X/(n-5)", "refuted", "no value at n = 5"),
    ("permutation", "f=X+M@X-M@X", "holds", "no proof"),
    ("rotary", "y=x*exp(i*t*theta)*t/t", "inconclusive", "may be zero"),
    ("sinusoids", "p=t*t/t", "refuted", "no value at t = 0"),
    ("variance", "var_one->0.2500000001", "refuted", "tends to 0.25"),
    ("variance", "var_c1 -> 0.0724638", "refuted", "the right side to 0.0724638,"),
    ("synthesizer", "S=beta*relu(X@X.T)", "holds", "no proof"),
    # variance
    ("variance", "Var(c) < Var(c_1)", "proved", "from some beta on"),
    ("variance", "var_one → 1/4, var_norm << var_one", "proved", "tends to"),
    ("variance", "Var(c_1) is smaller than Var(c_2)", "refuted", "tends to"),
    ("variance", "var_one = 1/4", "refuted", "the same limit"),
    ("variance", "var_c < var_c1/4", "refuted", "equal at every n"),
    ("variance", "var_one < 1/4", "inconclusive", "limits"),
    # hull
    ("hull", "K=[[0.5, 0.5], [1, 0], [0, 1]]", "refuted", "0.3333"),
    ("hull", "K=[[1/2, 1/2], [1, 0], [0, 1]]|w=(1/2, 1/2)", "proved", "0.3333"),
    ("hull", "K=[[1, 1], [1, 0], [0, 1]]", "proved", "corner"),
    ("hull", "K=[[1, 1], [1, 0], [0, 1]]|q=β(1, 0)", "refuted", "k_2.q = 0 does not grow"),
    ("hull", "K=[[1, 1], [1, 0], [0, 1]]|w=[1, 1]", "refuted", "sums to 2"),
]
SMALLEST = {
    "extract": {"d": 2, "m": 1, "p": 1},
    "stretched-average": {},
    "self-attention": {"d": 4},
    "identity-self-attention": {"d": 4},
}


@pytest.mark.parametrize(("problem", "text", "verdict", "words"), CASES)
def test_verdicts_and_their_reasons(problem, text, verdict, words):
    result = judged(problem, text)
    assert (result.verdict, words in result.because) == (verdict, True), result.because
    assert result.exit_code == {"refuted": 1, "inconclusive": 3}.get(verdict, 0)
    assert (result.counterexample is not None) == (verdict == "refuted")
    if verdict == "refuted" and problem in SMALLEST:
        assert result.counterexample.sizes == SMALLEST[problem]
    assert result.read_as
    assert result.to_dict()["verdict"] == verdict


@pytest.mark.parametrize("zero", [5, 777, 10**9 + 7])
def test_a_divisor_must_not_be_zero_at_any_n(zero):
    """The algebra cancels (n-5)/(n-5), and at n = 5 it is 0/0 all the same."""
    for text in (
        f"q=(n-{zero})/(n-{zero})*beta*(k_a+k_b)",
        f"q=beta*(k_a+k_b)/(n-{zero})**2",
        f"q=beta*(k_a+inv(I+(n-{zero + 1})*outer(k_a,k_a))@k_b)",
    ):
        result = check("average", text)
        assert result.verdict == "refuted", text
        assert f"at n = {zero} the formula has no value: this" in result.because
        assert result.counterexample.sizes["n"] == zero
    assert check("average", f"q=beta*(k_a+k_b)*(n-{zero})**2").verdict == "refuted"  # a wrong limit


@pytest.mark.parametrize("factor", [20, 33, 600])
def test_a_constant_factor_is_enough_up_to_a_point_and_the_point_is_exact(factor):
    """leftover > eps iff n > 2 + 2 e^factor eps/(1-eps)."""
    result = check("average", f"q={factor}*(k_a+k_b)")
    assert result.verdict == "refuted"
    assert "nothing in the formula grows" in result.because
    smallest = 2 + 2 * math.exp(factor) * 0.01 / 0.99
    assert -2e-9 * smallest < result.counterexample.sizes["n"] - smallest < 1 + 2e-9 * smallest


def test_no_constant_factor_is_large_enough_for_every_n():
    for problem, text in (
        ("average", "q=1e9*(k_a+k_b)"),
        ("average", "q=exp(sqrt(60))*(k_a+k_b)"),  # the algebra does not reach this constant
        ("average", "q=e^{100}(k_a+k_b)"),
        ("two-heads", "q1=1e9*mu_a|q2=1e9*mu_b"),
    ):
        result = judged(problem, text)
        assert result.verdict == "refuted"
        lead, digits = (result.counterexample.numbers[name] for name in ("lead", "log10_n"))
        assert digits * math.log(10) > 0.999999 * lead  # so many keys outweigh e^lead


def test_a_constant_factor_beyond_floats_is_inconclusive():
    factor = "*".join(["(1e12)**8"] * 3 + ["(1e12)**2"])
    assert check("average", f"q={factor}*(k_a+k_b)").verdict == "inconclusive"


def test_a_tolerance_and_a_seed_are_validated_and_used():
    for tolerance in (0.0, -1.0, 0.5, math.nan, math.inf):
        with pytest.raises(UserError, match="tolerance"):
            check("copy", "q=beta*k_j", tolerance=tolerance)
    with pytest.raises(UserError, match="seed"):
        check("copy", "q=beta*k_j", seed=-1)
    result = check("extract", "M=0.999*A@A.T", tolerance=0.01)
    assert (result.verdict, "right only within this tolerance" in result.because) == ("holds", True)


@pytest.mark.parametrize("tolerance", [0.1, 0.001])
def test_the_beta_that_is_needed_is_the_closed_form(tolerance):
    odds = (1 - tolerance) / tolerance
    for problem, text, formula, closed in (
        (
            "average",
            "q=beta*(k_a+k_b)",
            "beta >= ln((n-2)*(1-eps)/(2*eps))",
            lambda n: math.log((n - 2) / 2 * odds),
        ),
        (
            "average",
            "q=3*beta**2*(k_a+k_b)",
            "beta >= (ln((n-2)*(1-eps)/(2*eps))/3)**(1/2)",
            lambda n: math.sqrt(math.log((n - 2) / 2 * odds) / 3),
        ),
        (
            "copy",
            "q=beta*k_j",
            "beta >= ln((n-1)*(1-eps)/(eps))",
            lambda n: math.log((n - 1) * odds),
        ),
    ):
        needed = check(problem, text, tolerance=tolerance).beta
        assert needed.formula == formula
        for n in (10, 100, 1000):
            assert needed.by_n[n] == pytest.approx(closed(n), rel=1e-9)


def test_the_errors_of_the_words_at_beta_two():
    for text, errors in (
        (f"K=I|{Q}|{V}", "|c1 - goal| = 0.0790, |c2 - goal| = 0.0500"),
        (f"W=outer(u_c-u_d,u_d-u_a)/beta**2|{V}", "|c1 - goal| = 0.0513, |c2 - goal| = 0.0360"),
    ):
        assert errors in judged("self-attention", text).beta.formula
    weight = math.exp(-4) / (1 + 2 * math.exp(-4))
    identity = check("identity-self-attention", "c2=u_a").beta
    assert f"{math.sqrt(10) * 2 * weight:.4f}" in identity.formula


@pytest.mark.parametrize(
    ("problem", "text", "first", "second"),
    [
        # a unit key between k_a and k_b gets more weight than either
        ("average", "q=beta*(k_a+k_b)", True, True),
        ("average", "q=beta*(k_a/norm(k_a)**2+k_b/norm(k_b)**2)", None, True),
        ("average", "q=beta*pinv(K)@(e_a+e_b)", None, None),
        ("average", "q=-beta*sum_others", None, True),
        ("copy", "q=beta*k_j", None, None),  # true of all unit keys
        ("two-heads", "q1=beta*mu_a|q2=beta*mu_b", None, True),
        ("extract", "M=A@A.T", True, True),
        ("extract", "M=A@inv(A.T@A)@A.T", None, True),
        ("extract", "M=hstack(A,0*B)@pinv(hstack(A,B))", None, None),
        ("self-attention", f"K=I|{Q}|{V}", True, True),
    ],
)
def test_which_assumptions_are_needed(problem, text, first, second):
    for seed in range(2):
        found = judged(problem, text, seed=seed).assumptions
        assert [item.used for item in found[:2]] == [first, second], found
        for item in found[:2]:
            assert item.evidence.startswith("with " if item.used else "no counterexample in")
        if text == "q=beta*(k_a+k_b)":
            assert "3 keys and another one between the named ones" in found[1].evidence


def test_a_result_is_plain_json():
    result = check("two-heads", ["q1=beta*mu_a", "q2=beta*mu_b"])
    for each in (result, replace(result, tolerance=math.nan)):
        record = each.to_dict()
        assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert record["tolerance"] is None
    assert record["beta_required"]["by_n"]["10"] == result.beta.by_n[10]
