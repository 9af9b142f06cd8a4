"""Verdicts: right constructions for unusual reasons, wrong ones for subtle ones, exact figures."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest

from wherefrom.attention.checker import judge_keys, key_trials
from wherefrom.attention.checker.check import check
from wherefrom.attention.checker.construction import read_construction
from wherefrom.attention.checker.language import ExpressionError
from wherefrom.attention.checker.problems import PROBLEMS
from wherefrom.attention.checker.query_model import QueryModel
from wherefrom.errors import UserError

PHI = NormalDist().cdf
V = "V=(outer(u_b,u_b)-outer(u_c,u_c))/beta**2"
Q = "Q=(outer(u_c,u_d)+outer(u_d,u_a))/beta**2"


PROVED = [
    ("copy", "q=beta*k_j"),
    ("copy", "q=-beta*sum_others"),
    ("copy", "q=beta*(2*k_j+sum_others)"),  # everybody is raised, j twice
    ("copy", "q=beta*(n*k_j-sum_all)"),
    ("copy", "q=beta*k_j+1e9*sum_all"),
    ("average", "q=beta*(k_a+k_b)+5*sum_all"),  # a constant for all keys cancels
    ("average", "q=-beta*sum_others"),
    ("average", "q=beta*(sum_all-sum_others)"),
    ("average", "q=beta**2*(k_a+k_b)"),
    ("average", "q=10*beta*(k_a+k_b)/3"),
    ("average", "q=(beta+beta**2-1)*(k_a+k_b)"),
    ("average", "q=sqrt(beta)*(k_a+k_b)"),
    ("average", "q=beta*unit(k_a+k_b)"),
    ("average", "q=beta*(k_a+k_b)/norm(k_a+k_b)"),
    ("average", "q=beta*(k_a+k_b)/norm(sum_others)"),  # slower for larger n, and still enough
    ("average", "q=beta*(k_a/norm(k_a)**2+k_b/norm(k_b)**2)"),
    ("average", "q=beta*pinv(K)@(e_a+e_b)"),
    ("average", "q=beta*K.T@(e_a+e_b)"),
    ("average", "q=beta*K.T@(ones-K@sum_others)"),
    ("average", "q=beta*inv(I+outer(k_a,k_a)+outer(k_b,k_b))@(k_a+k_b)"),
    ("average", "q=beta*(k_a+k_b)+k_a/beta"),  # uneven, but less and less
    ("average", "q=log(2)*beta*(k_a+k_b)"),
    ("average", "q=beta*(n**2-5*n+7)*(k_a+k_b)"),  # positive for every n, though not by sight
    ("average", "q=outer(k_a+k_b,k_a)@k_a*t"),
    ("noisy-average", "q=β*(μ_a+μ_b)"),
    ("noisy-average", "q=-beta*sum_others+sum_all/2"),
    ("stretched-average", "q=-beta*sum_others"),
    ("stretched-average", "q=beta*(mu_a+mu_b-sum_all)"),
    ("stretched-average", "q=mu_a/beta-beta*sum_others"),
    ("stretched-average", "q=sqrt(beta)*mu_a-sqrt(beta)*mu_a-beta*sum_others"),
    ("two-heads", "q1=beta*mu_a|q2=beta*mu_b"),
    ("two-heads", "q1=beta*mu_b|q2=beta*mu_a"),
    ("two-heads", "q1=beta*mu_a|q2=beta**2*mu_b-sum_others"),
    ("two-heads", "q1=beta*(mu_a-mu_b-sum_others)|q2=beta*(mu_b-mu_a-sum_others)"),
    ("two-heads", "q1=-beta*sum_others|q2=-beta*sum_others"),  # twice the same, and right
    ("two-heads", "q1=beta*mu_a-beta**2*mu_b|q2=beta*mu_b"),
    ("extract", "M=A@A.T"),
    ("extract", "M=I-B@B.T"),
    ("extract", "M=A@A.T+C@C.T"),
    ("extract", "M=A@pinv(A)"),
    ("extract", "M=A@inv(A.T@A)@A.T"),
    ("extract", "M=S@D@inv(S)"),
    ("extract", "M=hstack(A,0*B)@pinv(hstack(A,B))"),
    ("extract", "M=(A@A.T)@(A@A.T)"),
    ("extract", "M=inv(I+B@B.T)@(2*A@A.T)/2"),
    ("self-attention", f"K=I|{Q}|{V}"),
    ("self-attention", f"W=outer(u_c-u_d,u_d-u_a)/beta**2|{V}"),
    ("self-attention", f"K=outer(u_a,u_c-u_d)/beta|Q=outer(u_a,u_d-u_a)/beta**3|{V}"),
    ("self-attention", f"K=I|Q=outer(u_c,u_d)+outer(u_d,u_a)|{V}"),
    ("self-attention", f"K=10*I|{Q}|V=(outer(u_b,u_b)-outer(u_c,u_c))/dot(u_b,u_b)"),
    ("self-attention", f"K=I|{Q}|V=(u_b@u_b.T-u_c@u_c.T)/beta**2+outer(u_a,u_a)/beta"),
    ("identity-self-attention", "c2=u_a"),
    ("identity-self-attention", "c2=x2"),
    ("identity-self-attention", "x2=u_a+u_d|c2=u_a+u_d"),
    ("identity-self-attention", "x2=u_a+u_d|c2=x2"),
    ("stretched-average", "low=1-2*sqrt(2)|high=1+2*sqrt(2)"),
]


@pytest.mark.parametrize(("problem", "text"), PROVED)
def test_right_for_a_reason_that_algebra_sees(problem: str, text: str) -> None:
    verdict = check(problem, text.split("|"))
    assert verdict.verdict == "proved", verdict.because
    assert verdict.exit_code == 0
    assert verdict.counterexample is None


HOLDS = [
    ("average", "q=exp(beta)*(k_a+k_b)", "does not reach"),
    ("average", "q=log(beta+1)*beta*(k_a+k_b)", "does not reach"),
    ("average", "q=beta*(k_a+k_b)+0.001*k_a", "not for every tolerance"),
    ("average", "q=(10+2*log(n))*(k_a+k_b)", "not for every tolerance"),  # no beta, and right
    ("average", "q=norm(beta*k_a+k_b)*(k_a+k_b)", "does not reach"),
    ("copy", "q=exp(beta)*k_j", "does not reach"),
    ("stretched-average", "q=0.001*mu_a-beta*sum_others", "not for every tolerance"),
    ("two-heads", "q1=exp(beta)*mu_a|q2=beta*mu_b", "does not reach"),
    ("extract", "M=sqrt(2)*A@A.T/sqrt(2)", "does not reach"),
    ("self-attention", f"K=I|{Q}|V=exp(1/beta)*(outer(u_b,u_b)-outer(u_c,u_c))/beta**2", "numbers"),
]


@pytest.mark.parametrize(("problem", "text", "words"), HOLDS)
def test_right_as_far_as_numbers_reach(problem: str, text: str, words: str) -> None:
    verdict = check(problem, text.split("|"))
    assert verdict.verdict == "holds", verdict.because
    assert words in verdict.because
    assert verdict.checked or problem == "stretched-average"


REFUTED = [
    ("copy", "q=k_j", 2, "nothing in the formula grows"),
    ("copy", "q=-beta*k_j", 2, "tend to"),
    ("copy", "q=beta*sum_all", 2, "tend to"),
    ("average", "q=(k_a+k_b)/2", 3, "nothing in the formula grows"),
    ("average", "q=k_a+k_b", 3, "nothing in the formula grows"),
    ("average", "q=0*k_a", 3, "nothing in the formula grows"),  # right at n = 2 only
    ("average", "q=beta*k_a", 3, "one of the two takes all"),
    ("average", "q=beta*(k_a-k_b)", 3, "one of the two takes all"),
    ("average", "q=beta*(k_a+1.01*k_b)", 3, "one of the two takes all"),
    ("average", "q=beta*(k_a+k_b)+k_a", 3, "0.731"),
    ("average", "q=(k_a+k_b)/beta", 3, "tend to"),
    ("average", "q=beta*(5-n)*(k_a+k_b)", 5, "tend to"),  # right at n = 3 and 4
    ("average", "q=beta*(k_a+k_b)+beta*sum_others/2*(n-3)", 5, "tend to"),
    ("average", "q=2*log(n)*(k_a+k_b)", 3, "nothing in the formula grows"),
    ("noisy-average", "q=(mu_a+mu_b)/2", 3, "nothing in the formula grows"),
    ("stretched-average", "q=beta*(mu_a+mu_b)", 3, "component beta along the noisy direction"),
    ("stretched-average", "q=10*(mu_a+mu_b)", 3, "nothing in the formula grows"),
    ("stretched-average", "q=-beta*sum_others+5*sum_all", 3, "component 5 along"),
    ("stretched-average", "q=-sum_others", 3, "nothing in the formula grows"),
    ("stretched-average", "q=beta*mu_b", 3, "samples"),
    ("two-heads", "q1=beta*(mu_a+mu_b)|q2=beta*(mu_a+mu_b)", 3, "one head written twice"),
    ("two-heads", "q1=beta*mu_a|q2=beta*mu_a", 3, "one head written twice"),
    ("two-heads", "q1=-beta*mu_a|q2=beta*mu_b", 3, "samples"),
    ("two-heads", "q1=mu_a|q2=mu_b", 3, "nothing in the formula grows"),
    ("two-heads", "q1=beta*(mu_a+sum_others/2)|q2=beta*mu_b", 3, "samples"),  # fails for e < 1/2
    ("two-heads", "q1=beta*mu_a|q2=beta*(mu_b+mu_a/2)", 3, "samples"),  # fails for e > 2
    ("two-heads", "q1=beta*(mu_a+mu_b)|q2=2*beta*(mu_a+mu_b)", 3, "samples"),
]


@pytest.mark.parametrize(("problem", "text", "n", "words"), REFUTED)
def test_wrong_with_the_smallest_counterexample(
    problem: str, text: str, n: int, words: str
) -> None:
    verdict = check(problem, text.split("|"))
    assert verdict.verdict == "refuted", verdict.because
    assert verdict.exit_code == 1
    assert words in verdict.because
    example = verdict.counterexample
    assert example is not None
    assert example.sizes == {"n": n, "d": n}
    assert example.numbers["misplaced"] > verdict.tolerance
    weights = np.array(example.numbers["weights"])
    keys, queries = np.array(example.numbers["keys"]), np.array(example.numbers["queries"])
    again = np.exp(queries @ keys.T)  # the numbers shown are enough to see it oneself
    again = (again / again.sum(axis=1, keepdims=True)).mean(axis=0)
    np.testing.assert_allclose(weights, again, atol=2e-6)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("M=A.T", "M is m x d and must be d x d: it gives the coordinates"),
        ("M=A", "M is d x m and must be d x d"),
        ("M=A.T@A", "M is m x m"),
        ("M=2*A@A.T", "right for the average"),
        ("M=I", "lets v_b through"),
        ("M=B@B.T", "returns 0 where v_a is wanted, it lets v_b through"),
        ("M=0*I", "returns 0"),
        ("M=A@A.T-B@B.T", "lets -1 v_b through"),
        ("M=0.999999*A@A.T", "999999/1000000 v_a"),
        ("M=exp(1)*A@A.T", "not v_a"),
    ],
)
def test_a_wrong_extraction(text: str, words: str) -> None:
    verdict = check("extract", [text])
    assert verdict.verdict == "refuted"
    assert words in verdict.because
    assert verdict.counterexample is not None
    assert verdict.counterexample.sizes == {"d": 2, "m": 1, "p": 1}


@pytest.mark.parametrize(
    ("problem", "text", "words"),
    [
        ("self-attention", f"K=I|Q=I|{V}", "c1 tends to u_b and not to u_b - u_c"),
        ("self-attention", f"K=I|{Q}|V=I", "c1 tends to u_b + u_c"),
        ("self-attention", f"K=I|{Q}|V=outer(u_b,u_b)-outer(u_c,u_c)", "beta**2"),
        ("self-attention", f"K=0*I|{Q}|{V}", "(1/3, 1/3, 1/3)"),
        ("self-attention", f"K=I|Q=(outer(u_c,u_d)+outer(u_d,u_a))/beta**4|{V}", "misses its goal"),
        ("self-attention", f"K=I|Q=outer(u_d,u_a)/beta**2|{V}", "word 1 tend to (1/3, 1/3, 1/3)"),
        ("identity-self-attention", "c2=u_b", "c2 tends to u_a and not to u_b"),
        ("identity-self-attention", "x2=u_a+u_d|c2=u_b", "tends to u_a + u_d"),
        ("identity-self-attention", "x2=u_a+u_c|c2=u_b", "tends to u_a + u_c"),
        ("identity-self-attention", "c2=(x1+x2+x3)/3", "tends to u_a"),
        ("identity-self-attention", "c2=1.02*u_a", "tends to u_a"),
        ("identity-self-attention", "c2=I", "c2 is d x d and must be d x 1"),
    ],
)
def test_wrong_words(problem: str, text: str, words: str) -> None:
    verdict = check(problem, text.split("|"))
    assert verdict.verdict == "refuted", verdict.because
    assert words in verdict.because
    assert verdict.counterexample is not None
    assert verdict.counterexample.sizes == {"d": 4}


def test_a_formula_without_a_value_at_one_n_is_refuted_there() -> None:
    verdict = check("average", ["q=beta*(k_a+k_b)/(n-5)**2"])
    assert verdict.verdict == "refuted"
    assert "at n = 5 the formula has no value: this divides by zero." in verdict.because
    assert verdict.counterexample is not None
    assert verdict.counterexample.sizes["n"] == 5
    settled = check("average", ["q=beta*(sqrt(n)-1)*(k_a+k_b)"])
    assert settled.verdict == "holds"
    assert "could not be settled for every n" in settled.because


def test_an_extraction_within_a_wider_tolerance_holds_there_only() -> None:
    assert check("extract", ["M=0.999*A@A.T"]).verdict == "refuted"
    verdict = check("extract", ["M=0.999*A@A.T"], tolerance=0.01)
    assert verdict.verdict == "holds"
    assert "within this tolerance only" in verdict.because


def test_numbers_beyond_floats_are_never_a_wrong_verdict() -> None:
    with pytest.raises(ExpressionError, match="grow beyond"):
        check("average", ["q=exp(1000)*(k_a+k_b)"])
    assert check("average", ["q=exp(200)**8*(k_a+k_b)"]).verdict == "inconclusive"


def test_a_fixed_factor_is_enough_up_to_a_point_and_the_point_is_exact() -> None:
    """leftover > eps iff n > 2 + 2 e^20 eps/(1-eps)."""
    verdict = check("average", ["q=20*(k_a+k_b)"])
    smallest = 2 + math.floor(2 * math.exp(20) * 0.01 / 0.99) + 1
    assert verdict.verdict == "refuted"
    assert verdict.counterexample is not None
    assert verdict.counterexample.sizes["n"] == smallest


def test_a_contradiction_between_algebra_and_numbers_is_owned_up_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(judge_keys, "proves_fixed", lambda model: True)
    monkeypatch.setattr(
        judge_keys,
        "_beta_needed",
        lambda model, tolerance: judge_keys.BetaNeeded("", 1.0, 10, {3: 1.0, 10: 1.0, 25: 1.0}),
    )
    verdict = check("average", ["q=beta*(k_a+k_b)"])
    assert verdict.verdict == "inconclusive"
    assert "a fault of the checker" in verdict.because
    assert verdict.exit_code == 3


def test_a_simulation_that_disagrees_is_owned_up_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_trials, "simulate", lambda *a: (0.5, 0.001, 1000))
    verdict = check("stretched-average", ["q=-beta*sum_others"])
    assert verdict.verdict == "inconclusive"
    assert "disagree" in verdict.because


def test_numbers_that_do_not_settle_are_inconclusive() -> None:
    """log(log(beta)) grows beyond all bounds, but not on any ladder: no false refutation."""
    slow = "log(log(beta+3)+1)"
    for problem, texts in (
        ("average", [f"q={slow}*(k_a+k_b)"]),
        ("copy", [f"q={slow}*k_j"]),
        ("stretched-average", [f"q=-{slow}*sum_others"]),
        ("two-heads", [f"q1={slow}*mu_a", f"q2={slow}*mu_b"]),
        ("self-attention", ["K=I", Q, f"V=(outer(u_b,u_b)-outer(u_c,u_c))/beta**2*(1+1/{slow})"]),
    ):
        verdict = check(problem, texts)
        assert verdict.verdict == "inconclusive", (problem, verdict.because)
        assert verdict.exit_code == 3
    assert check("average", ["q=log(beta+1)*(k_a+k_b)"]).verdict == "holds"


@pytest.mark.parametrize(
    ("problem", "texts", "words"),
    [
        ("average", ["q=beta*k_a", "q=beta*k_b"], "written twice"),
        ("average", ["p=beta*k_a"], "does not ask for"),
        ("average", ["beta*k_a"], 'expects "q=..."'),
        ("two-heads", ["q1=beta*mu_a"], "needs q1, q2"),
        ("self-attention", ["K=I", "Q=I"], "needs K, Q, V or W, V"),
        ("noisy-average", ["q=beta*(k_a+k_b)"], "sampled after the query is chosen"),
        ("two-heads", ["q1=beta*k_a", "q2=beta*k_b"], "write mu_a"),
        ("average", ["q=beta*(mu_a+mu_b)"], "write k_a"),
        ("average", ["q=beta*(v_a+v_b)"], "cannot mention one"),
        ("extract", ["M=A@B.T"], "d x m times p x d does not fit"),
        ("stretched-average", ["q=alpha*mu_a"], "unknown to whoever writes"),
    ],
)
def test_what_is_not_an_answer_is_refused(problem: str, texts: list[str], words: str) -> None:
    with pytest.raises(UserError, match=words.replace("(", r"\(").replace(".", r"\.")):
        check(problem, texts)


def test_tolerance_and_seed_are_validated() -> None:
    for tolerance in (0.0, -1.0, 0.5, math.nan, math.inf):
        with pytest.raises(UserError, match="tolerance"):
            check("copy", ["q=beta*k_j"], tolerance=tolerance)
    with pytest.raises(UserError, match="seed"):
        check("copy", ["q=beta*k_j"], seed=-1)


def test_two_factors_are_read_as_one_and_it_says_so() -> None:
    verdict = check("two-heads", ["q_a=t1*mu_a", "q_b=t2*mu_b"])
    assert verdict.verdict == "proved"
    assert any("one large factor" in note for note in verdict.notes)


@pytest.mark.parametrize(
    ("factor", "expected"),
    [
        ("sqrt(beta-50)", {"holds"}),  # has no value before beta = 50
        ("log(beta-50)", {"holds", "inconclusive"}),
        ("1/(beta-10)", {"refuted"}),
        ("(beta-10)", {"proved"}),
        ("beta*(beta-1e6)", {"proved"}),  # wrong all the way up to a million, right beyond
        ("beta**8*(1-beta)", {"refuted"}),
        ("exp(-beta)", {"refuted"}),
        ("exp(beta)/exp(beta)", {"refuted"}),
    ],
)
def test_a_factor_is_judged_where_it_is_large(factor: str, expected: set[str]) -> None:
    assert check("average", [f"q={factor}*(k_a+k_b)"]).verdict in expected
    assert check("noisy-average", [f"q={factor}*(mu_a+mu_b)"]).verdict in expected
    assert check("stretched-average", [f"q={factor}*(mu_a+mu_b)"]).verdict == "refuted"
    two = check("two-heads", [f"q1={factor}*mu_a", f"q2={factor}*mu_b"]).verdict
    assert two in expected | {"inconclusive"}


def test_an_exact_form_too_large_falls_back_to_numbers() -> None:
    text = "q=" + "*".join(f"(beta+n+{i})**8" for i in range(1, 9)) + "*(k_a+k_b)"
    model = QueryModel(read_construction(PROBLEMS["average"], [text]))
    assert model.exact is None
