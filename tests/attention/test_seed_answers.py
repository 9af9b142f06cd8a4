"""Public homework answers, paraphrased as formulas, each with the verdict that it deserves.

Five students answered the same questions. Some are right, some are right only in words, and
some are wrong in ways that a grader overlooks; the checker must tell which is which.
"""

from __future__ import annotations

import pytest

from wherefrom.attention.checker.check import check
from wherefrom.attention.checker.language import ExpressionError

# problem, formulas, verdict, a word of the reason
ANSWERS = [
    # copying: "the key is much more similar to the query than the others are"
    ("copy", ["q=beta*k_j"], "proved", "runs away"),
    ("copy", ["q=k_j"], "refuted", "nothing in the formula grows"),  # "q is the same as a key"
    # taking v_a out of the sum
    ("extract", ["M=A@A.T"], "proved", "M A = A"),
    ("extract", ["M=A.T"], "refuted", "coordinates"),
    ("extract", ["M=S@D@inv(S)"], "proved", "M B = 0"),  # eigenvectors, 1 on A and 0 on B
    # the average of two
    ("average", ["q=beta*(k_a+k_b)"], "proved", "for every n"),
    ("average", ["q=t*(k_a+k_b)"], "proved", "for every n"),
    ("average", ["q=(k_a+k_b)*β"], "proved", "for every n"),
    ("average", ["q=(k_a+k_b)/2"], "refuted", "nothing in the formula grows"),
    ("average", ["q=k_a+k_b"], "refuted", "nothing in the formula grows"),
    # the same with slightly blurred keys
    ("noisy-average", ["q=beta*(mu_a+mu_b)"], "proved", "for every n"),
    ("noisy-average", ["q=t*(mu_a+mu_b)"], "proved", "for every n"),
    ("noisy-average", ["q=t*(u_a+u_b)"], "proved", "for every n"),  # one writes u for mu
    # one key of varying length: c goes back and forth between v_a and v_b
    ("stretched-average", ["q=beta*(mu_a+mu_b)"], "refuted", "noisy direction"),
    ("stretched-average", ["q=t*(mu_a+mu_b)"], "refuted", "noisy direction"),
    ("stretched-average", ["low=0.5", "high=1.5"], "refuted", "48.0%"),
    # two heads
    ("two-heads", ["q1=beta*mu_a", "q2=beta*mu_b"], "proved", "not set aside"),
    ("two-heads", ["q_a=t_1*mu_a", "q_b=t_2*mu_b"], "proved", "not set aside"),
    (
        "two-heads",
        ["q1=t*(mu_a+mu_b)", "q2=t*(mu_a+mu_b)"],
        "refuted",
        "one head written twice",
    ),
    # three words
    ("identity-self-attention", ["c2=u_a"], "proved", "(0, 1, 0)"),
    ("identity-self-attention", ["x2=u_a+u_d", "c2=u_b"], "refuted", "u_a + u_d"),
    ("identity-self-attention", ["x2=u_a+u_c", "c2=u_b"], "refuted", "u_a + u_c"),
    (
        "self-attention",
        [
            "V=u_b@u_b.T/norm(u_b)**2-u_c@u_c.T/norm(u_c)**2",
            "K=I",
            "Q=u_d@u_a.T/norm(u_a)**2+u_c@u_d.T/norm(u_d)**2",
        ],
        "proved",
        "word 2 tend to (1, 0, 0)",  # the student's own proof says (1, 0, 1), and is mistaken
    ),
]


@pytest.mark.parametrize(("problem", "formulas", "expected", "words"), ANSWERS)
def test_an_answer_gets_the_verdict_that_it_deserves(
    problem: str, formulas: list[str], expected: str, words: str
) -> None:
    verdict = check(problem, formulas)
    assert verdict.verdict == expected, verdict.because
    assert words in verdict.because


@pytest.mark.parametrize(
    ("problem", "formulas"),
    [
        ("two-heads", ["q1=lam*k_a", "q2=lam*k_b"]),
        ("two-heads", ["q1=beta*k_a", "q2=beta*k_b"]),
        ("noisy-average", ["q=beta*(k_a+k_b)"]),
    ],
)
def test_a_query_made_of_sampled_keys_is_refused(problem: str, formulas: list[str]) -> None:
    with pytest.raises(ExpressionError, match="only the means are known; write mu_a"):
        check(problem, formulas)


def test_the_second_row_of_weights_is_not_one_zero_one() -> None:
    """With weights (1/2, 0, 1/2) c2 would be u_b - u_c/2, and no beta gives that."""
    verdict = check(
        "self-attention",
        [
            "V=(outer(u_b,u_b)-outer(u_c,u_c))/beta**2",
            "K=I",
            "Q=(outer(u_d,u_a)+outer(u_c,u_a)+outer(u_c,u_d))/beta**2",
        ],
    )
    assert verdict.verdict == "refuted"
    assert "(1/2, 0, 1/2)" in verdict.because
