"""What a verdict says besides: the factor that is needed, the assumptions used, figures."""

from __future__ import annotations

import json
import math

import pytest

from wherefrom.attention.checker.check import check
from wherefrom.attention.checker.problems import PROBLEMS
from wherefrom.attention.checker.result import CheckResult
from wherefrom.attention.designs import beta_to_average, beta_to_copy

V = "V=(outer(u_b,u_b)-outer(u_c,u_c))/beta**2"
Q = "Q=(outer(u_c,u_d)+outer(u_d,u_a))/beta**2"


def used(verdict: CheckResult) -> dict[str, bool]:
    return {item.name: item.used for item in verdict.assumptions}


@pytest.mark.parametrize("tolerance", [0.1, 0.01, 0.001])
def test_the_beta_that_is_needed_is_the_closed_form(tolerance: float) -> None:
    average = check("average", ["q=beta*(k_a+k_b)"], tolerance=tolerance).beta
    copy = check("copy", ["q=beta*k_j"], tolerance=tolerance).beta
    squared = check("average", ["q=3*beta**2*(k_a+k_b)"], tolerance=tolerance).beta
    assert average is not None
    assert copy is not None
    assert squared is not None
    for n in (10, 100, 1000):
        closed = beta_to_average(n, 2, tolerance)
        assert average.by_n[n] == pytest.approx(closed, rel=1e-9)
        assert squared.by_n[n] == pytest.approx(math.sqrt(closed / 3), rel=1e-9)
        assert copy.by_n[n] == pytest.approx(beta_to_copy(n, tolerance), rel=1e-9)
    assert average.formula == "beta >= ln((n-2)*(1-eps)/(2*eps))"
    assert squared.formula == "beta >= (ln((n-2)*(1-eps)/(2*eps))/3)**(1/2)"


def test_check_values() -> None:
    assert check("average", ["q=beta*(k_a+k_b)"]).beta.value == pytest.approx(5.981, abs=5e-4)  # type: ignore[union-attr]
    thousand = check("average", ["q=beta*(k_a+k_b)"], tolerance=0.001).beta
    assert thousand is not None
    assert thousand.by_n[1000] == pytest.approx(13.119, abs=5e-4)
    textbook = check("self-attention", ["K=I", Q, V]).beta
    assert textbook is not None
    assert "|c1 - goal| = 0.0790, |c2 - goal| = 0.0500" in textbook.formula
    rank_one = check("self-attention", ["W=outer(u_c-u_d,u_d-u_a)/beta**2", V]).beta
    assert rank_one is not None
    assert "|c1 - goal| = 0.0513, |c2 - goal| = 0.0360" in rank_one.formula
    a = math.exp(-4) / (1 + 2 * math.exp(-4))
    identity = check("identity-self-attention", ["c2=u_a"]).beta
    assert identity is not None
    assert f"{math.sqrt(10) * 2 * a:.4f}" in identity.formula


def test_which_assumptions_are_used() -> None:
    plain = used(check("average", ["q=beta*(k_a+k_b)"]))
    assert plain["keys of equal norm"]
    scaled = used(check("average", ["q=beta*(k_a/norm(k_a)**2+k_b/norm(k_b)**2)"]))
    assert not scaled["keys of equal norm"]
    inverse = used(check("average", ["q=beta*pinv(K)@(e_a+e_b)"]))
    assert not any(inverse.values())
    away = used(check("average", ["q=-beta*sum_others"]))
    assert away["keys that are orthogonal"]
    projector = used(check("extract", ["M=A@A.T"]))
    assert projector["bases that are orthonormal"]
    assert projector["spaces that are orthogonal"]
    general = used(check("extract", ["M=hstack(A,0*B)@pinv(hstack(A,B))"]))
    assert not any(general.values())
    least_squares = used(check("extract", ["M=A@inv(A.T@A)@A.T"]))
    assert not least_squares["bases that are orthonormal"]
    assert least_squares["spaces that are orthogonal"]


def test_float32_breaks_a_factor_that_outgrows_it() -> None:
    verdict = check("average", ["q=beta*(k_a+k_b)+1e9*sum_all"])
    assert verdict.verdict == "proved"
    assert used(verdict)["double precision"]
    assert not used(check("average", ["q=beta*(k_a+k_b)"]))["double precision"]


def test_the_seed_decides_what_is_drawn_and_nothing_else() -> None:
    first, again, other = (
        check("two-heads", ["q1=beta*mu_a", "q2=beta*mu_b"], seed=seed) for seed in (1, 1, 2)
    )
    assert first == again
    assert first.failure is not None
    assert other.failure is not None
    assert first.failure.simulated != other.failure.simulated
    assert first.verdict == other.verdict


def test_a_verdict_is_plain_json() -> None:
    for problem in PROBLEMS.values():
        record = check(problem.name, problem.example).to_dict()
        assert json.loads(json.dumps(record, allow_nan=False)) == record
