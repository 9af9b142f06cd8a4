r"""Answers as students write them: each spelling is understood as meant, or asked back."""

from __future__ import annotations

import random
import re

import brute_force
import pytest

from wherefrom.checker import PROBLEMS, check
from wherefrom.checker.reading import read_construction
from wherefrom.errors import UserError

AVERAGE = {"q": "beta*(k_a + k_b)"}
PROJECTION = {"M": "A@A.T"}
HEADS = {"q1": "beta*mu_a", "q2": "beta*mu_b"}
UNDERSTOOD = [
    ("identity-self-attention", r"c_2 = u_a \odot \lVert u_b\rVert^2/\beta^2", None),
    ("average", "q ≈ β(k_a + k_b)", AVERAGE),
    ("extract", "M = S D S^-1", {"M": "S@D@inv(S)"}),
    ("extract", r"\sum_i a_i a_i^\top", PROJECTION),
    (
        "two-heads",
        r"$$q_1 = \beta \mu_a \quad \text{where } 0 \ll \beta. \quad (29)$$"
        "\n"
        r"$$q_2 = \beta \mu_b \quad \text{where } 0 \ll \beta. \quad (30)$$",
        HEADS,
    ),
    ("identity-self-attention", r"$c_2 \approx u_a$", {"c2": "u_a"}),
    ("average", r"\(q = \beta \cdot (k_a + k_b)\)", {"q": "beta*(k_a + k_b)"}),
    ("average", "q = β·kₐ + β·k_b", {"q": "beta*k_a + beta*k_b"}),
    ("average", "q = T(k_a + k_b) as T → ∞", AVERAGE),
    ("average", r"q = -\beta \sum_{i \neq a,b} k_i", {"q": "-beta*sum_others"}),
    ("average", r"q = \beta \sum_{i \in \{a,b\}} k_i", AVERAGE),
    (
        "average",
        r"q = \beta\left(\frac{k_a}{\|k_a\|^2} + \frac{k_b}{\|k_b\|^2}\right)",
        {"q": "beta*(k_a/norm(k_a)**2 + k_b/norm(k_b)**2)"},
    ),
    ("average", r"q = e^{\beta}(k_a + k_b)", {"q": "exp(beta)*(k_a + k_b)"}),
    ("average", r"q = \sqrt{\beta}(k_a+k_b)", {"q": "sqrt(beta)*(k_a + k_b)"}),
    ("average", "q = β^{1/2}(k_a+k_b)", {"q": "sqrt(beta)*(k_a + k_b)"}),
    ("average", "q = βK⁺(e_a + e_b)", {"q": "beta*pinv(K)@(e_a + e_b)"}),
    ("copy", r"q = \beta(n k_j - \sum_{i=1}^n k_i)", {"q": "beta*(n*k_j - sum_all)"}),
    ("copy", r"q = \sum_{i}\beta k_i", {"q": "beta*sum_all"}),
    ("copy", r"q = -\sum_{i=1, i \neq j}^n \beta k_i", {"q": "-beta*sum_others"}),
    ("average", r"q = -\beta \sum_{i \ne a, i \ne b} k_i", {"q": "-beta*sum_others"}),
    ("extract", r"M = A(A^TA)^{-1}A^T", {"M": "A@inv(A.T@A)@A.T"}),
    ("extract", "M = I − BBᵀ", {"M": "I - B@B.T"}),
    ("extract", r"M = \boldsymbol{A}\boldsymbol{A}^{\mathrm{T}}", PROJECTION),
    ("extract", "M = (1/2)(2 A A^⊤)", {"M": "1/2*(2*A@A.T)"}),
    ("average", r"q = \frac12\beta(k_a + k_b)", {"q": "1/2*beta*(k_a + k_b)"}),  # not 12/beta
    ("average", r"q = \dfrac{\beta}2 (k_a + k_b)", {"q": "beta/2*(k_a + k_b)"}),
    ("average", r"q = \frac1\epsilon (k_a + k_b)", {"q": "1/(1/beta)*(k_a + k_b)"}),
    (
        "two-heads",
        r"q_1 = q_2 = t(\mu_a+\mu_b)",
        {"q1": "beta*(mu_a + mu_b)", "q2": "beta*(mu_a + mu_b)"},
    ),
    ("extract", "M = A @ A.transpose()", PROJECTION),
    ("average", r"q^T = \beta (k_a + k_b)^T", {"q": "(beta*(k_a + k_b).T).T"}),
    ("average", "q= 𝛽(𝑘_𝑎 + 𝑘_𝑏)", AVERAGE),
    ("average", "q = √β(k_a + k_b)", {"q": "sqrt(beta)*(k_a + k_b)"}),
    ("self-attention", "V=u_b⊗u_b, W=u_c⊗u_d", {"V": "outer(u_b, u_b)", "W": "outer(u_c, u_d)"}),
    ("sinusoids", "p = cos(t), sin(t)", {"p": "[cos(t), sin(t)]"}),
    ("sinusoids", "p = sin(t/pow(9, 2*i/d))", {"p": "sin(t/9**(2*i/d))"}),
    ("sinusoids", "p = sin t cos 2t", {"p": "sin(t)*cos(2*t)"}),
    ("hull", "K = [1 1; -1 0; 0 1]", {"K": "[[1, 1], [-1, 0], [0, 1]]"}),
    ("perceiver-cost", r"vanilla: \Theta(L\ell^2), perceiver: O(Lm^2 + \ell m)", None),
    ("average", r"$g = \beta (K_{\alpha}+K_b)$", AVERAGE),
    ("average", "q = np.exp(beta) * (k[a] + k[b])", {"q": "exp(beta)*(k_a + k_b)"}),
    ("extract", "M = np.dot(A, A.T)", PROJECTION),
    (
        "sinusoids",
        r"PE_{(pos,2i)} = \sin(pos/9^{2i/d_{model}}), PE_{(pos,2i+1)} = \cos(pos/9)",
        {"p": "[sin(t/9**(2*i/d)), cos(t/9)]"},
    ),
    (
        "rotary",
        r"R_t = \left(\begin{array}{cc} \cos t\theta & 0 \\ 0 & 1 \end{array}\right)",
        {"R": "[[cos(t*theta), 0], [0, 1]]"},
    ),
    ("permutation", "FFN(X) = max(0, X W_1) W_2", {"f": "relu(X@W_1)@W_2"}),
    ("two-heads", r"(q_1, q_2) = (\beta\mu_a, \beta\mu_b)", HEADS),
    ("two-heads", "q1, q2 = beta*mu_a, beta*mu_b", HEADS),
    ("average", r"\textstyle q \equiv \beta \left[ \mathbf{k}_a + \mathbf{k}_b \right]", AVERAGE),
    ("average", r"\tilde{q} \triangleq \beta(\vec k_a + \vec k_b) [\beta large]", AVERAGE),
    ("average", "q' = β[k_a + k_b]", AVERAGE),
    ("average", "q = β(k_a + k_b)\n\nTherefore, q = β(k_a + k_b).", AVERAGE),
    ("extract", r"M=\sum_{j=1}^m a_ja_j^T", PROJECTION),
    ("extract", r"M = AA^\top \in \mathbb{R}^{d \times d}", PROJECTION),
    ("two-heads", r"q_1 = t_1\mu_a, q_2 = t_2\mu_b, t_1 = t_2 \gg 0", HEADS),
    ("self-attention", "V = u_b u_b'\nK = np.eye(d)\nQ=u_d u_a'", None),
]


@pytest.mark.parametrize(("problem", "text", "read_as"), UNDERSTOOD)
def test_what_students_write_is_understood(problem, text, read_as):
    read = read_construction(PROBLEMS[problem], [text])
    if read_as is not None:
        assert read.read_as == read_as
    again = read_construction(PROBLEMS[problem], [f"{n}={f}" for n, f in read.read_as.items()])
    assert again.read_as == read.read_as  # what is echoed can be written again


def test_an_answer_over_several_lines_with_steps_between():
    """The last form of each matrix is judged, once all forms are equal; typed as it was found."""
    answer = r"""
$V=u_b u_b^T \odot \dfrac{1}{\lVert u_b\rVert^2_2}-u_cu_c^T \odot \dfrac{1}{\lVert u_c\rVert^2_2}$
$=(u_bu_b^T - u_cu_c^T)\odot \dfrac{1}{\beta^2}$
$K=I$
$Q=u_d u_a^T \odot \dfrac{1}{\lVert u_a\rVert^2_2}+u_cu_d^T \odot \dfrac{1}{\lVert u_d\rVert^2_2}$
$=(u_du_a^T + u_cu_d^T)\odot \dfrac{1}{\beta^2}$"""
    result = check("self-attention", answer)
    assert result.verdict == "proved"
    assert result.read_as["Q"] == "(u_d@u_a.T + u_c@u_d.T)*(1/beta**2)"
    assert check("self-attention", answer.strip().splitlines()).read_as == result.read_as
    with pytest.raises(UserError, match="not seen to be equal; write one of them"):
        check("self-attention", answer.replace("u_cu_d^T)", "u_cu_b^T)"))


LARGE = [
    *("beta >> 0", "where beta is large", "for large beta", "beta → ∞", "as β goes to infinity"),
    *(r"$\beta \gg 0$", r"\beta\to\infty", "β ≫ 1", "for all large beta", "beta is very large"),
    *("where beta is a large positive constant", "(beta large)", "for sufficiently large β"),
    *("β ∈ ℝ⁺", "β ∈ (0, ∞)", r"\forall\beta>0", "for some large constant beta"),
    *("a very large scalar beta", "where beta is an arbitrarily large positive constant"),
    *("for a large positive number beta", "where beta is sufficiently large and positive"),
]


@pytest.mark.parametrize("condition", LARGE)
def test_a_condition_that_lets_beta_grow_is_used(condition):
    assert check("average", f"q=beta*(k_a+k_b), {condition}").verdict == "proved"


NOT_LARGE = [
    *("beta = 1", "beta = O(1)", "beta <= 10", "where beta is close to 1", "for small beta"),
    *("with beta near zero", "beta << 1", "0 < beta < 1", "beta in (0, 1)", "beta ∈ [0, 10]"),
    *("where beta is at most 7", "unless beta is large", "beta never grows", "beta is not large"),
    *("where beta is fixed", "for beta = 5", "if beta is finite", "beta is a constant"),
    *("where beta goes to 1", "beta tends to a constant", "where 1/beta is large"),
    *("where beta is small and n is large", "beta < 0", "beta → -∞", "where |beta| is bounded"),
    *("where beta does not go to infinity", "hardly ever", "with beta large only if n = 3"),
    *("a very large scalar s", "t >> 0", "for some small constant beta", "n = 2", "beta = n"),
    *("beta large for most n", "where k_a = k_b", "with 0 < beta < infinity", "if n is even"),
    *("except when n=7", "(where beta need not be large)", "1/beta → ∞", "β → ∞ slowly"),
    *("β ∈ ℝ^-", "β² < 4", "fixed β > 0", "1 >> beta", "% beta small", "alpha -> 0"),
    *("beta > -5", "for n > 5", "as n -> infinity", "beta grows like log n", "beta ~ N(0,1)"),
]


@pytest.mark.parametrize("condition", NOT_LARGE)
def test_a_condition_is_never_dropped(condition):
    """It is applied, which makes the answer wrong, or asked back; the rest alone is proved."""
    try:
        verdict = check("average", f"q=beta*(k_a+k_b), {condition}").verdict
    except UserError:
        return
    assert verdict == "refuted"


NOT_READ = [
    ("identity-self-attention", "c2 = u_a for beta -> 0"),  # beta is the norm of the given u
    ("self-attention", "K=I, Q=I, V=I, beta -> -infinity"),
    ("average", "q = 20*log(n)*(k_a+k_b), beta -> 0"),  # about a letter that is not used
    ("average", "The query should be beta times the sum of k_a and k_b"),
    ("average", r"let's define $q$ as $q = \beta(k_a + k_b)$ where $\beta$ is big"),
    ("average", "for big β the term exp(0) is small, so q = β(k_a + k_b)"),
    ("average", "q = beta*(k_a+k_b) but only sometimes"),
    ("average", "q = &beta;(k<sub>a</sub> + k<sub>b</sub>)"),
    ("extract", r"we conclude that $M = AA^\top \in \mathbb{R}^{d \times d}$ allows us to"),
    ("extract", r"M = \sum_{i=2}^{m} a_i a_i^T"),  # the bounds of a sum are not dropped
    ("extract", r"M = \sum_{i=1}^{3} a_i a_i^T"),
    ("extract", r"M = \sum_{i>1} a_i a_i^T"),
    ("average", r"q = -\beta \sum_{i=3}^n k_i"),
    ("average", r"q = -\beta \sum_{i > 2} k_i"),
    ("average", r"q = \beta(k_a+k_b) + \sum_{i=1}^{n-1} k_i"),
    ("average", r"q = \beta(k_a+k_b) + \sum_{i \text{ even}} k_i"),
    ("copy", r"q = \beta \sum_{i=j} k_i"),
    ("copy", r"q = \beta k_j + \sum_{i}^"),
    ("copy", "q = beta*log2(n)*k_j"),  # was log(2)*n
    ("sinusoids", "p(2t) = sin(t)"),
    ("sinusoids", "p = pow(t)"),  # was an IndexError
    ("sinusoids", "p = 10^{[1, 2]}"),
    ("sinusoids", "p = e^{it}"),  # i is the pair there
    ("copy", r"q = \beta \sqrt[3]{n} k_j"),  # was sqrt(3)*n
    ("average", r"q = \text{-}\beta(k_a + k_b)"),
    ("average", r"q = \beta(k_a + k_b) \text{, β <} 1"),
    ("variance", "var_c < var_one except for large n"),
    ("variance", "the variance of c is smaller"),
    ("hull", "K=[[1,2]]"),
]


@pytest.mark.parametrize(("problem", "text"), NOT_READ)
def test_nothing_is_judged_with_words_missing(problem, text):
    with pytest.raises(UserError):
        check(problem, text)


ASKED_BACK = [
    ("average", r"g = \pm \left(\mathcal{M}_a + \mathcal{M}_b\right), \ \pm > 0", "two signs"),
    ("two-heads", r"q_1 = q_2 = \pm (\mu_a + \mu_b)", "two signs"),
    ("two-heads", "$$q_1 = \\lambda k_a$$\n$$q_2 = \\lambda k_b$$", "write mu_a"),
    ("average", "q = g(k_a+k_b)", "A large factor is written beta"),
    ("average", "q=beta(k_a+k_b), beta = 5", "does not let beta grow"),
    ("average", "q=t(k_a+k_b), t << 0", "does not let t grow"),
    ("average", "We set $q = t(k_a+k_b)$ where $t$ is a small number here", "does not let t grow"),
    ("average", "q ∝ k_a + k_b", "does not say the factor"),
    ("average", "q = t_1 k_a + t_2 k_b", "two large factors"),
    ("self-attention", "K=t*I|Q=outer(u_c,u_d)/beta**4|V=outer(u_b,u_b)", "two large factors"),
    ("average", "the query is close to both keys", "not read"),
    ("copy", r"$i\not=j, \ k_j^Tq \gg k_i^Tq$", "not read"),
    ("extract", "M=A;k_b", "not read"),
    ("average", "q = 1,000(k_a+k_b)", "not read"),
    ("average", "q = beta*(k[0] + k[1])", "does not say which key is meant"),
    ("copy", "q = ∞ k_j", "infinity is not a number"),
    ("extract", "$$V_2 = M(V_2 + V_B)$$", 'no name "M"'),
    ("stretched-average", "0.5 <= e <= 1.5 +", "not read"),
    ("copy", "q = βk_i", "k_i is any key"),
    ("hull", "K=[[[1,2],[3,4]],[[1,2],[3,4]]]", "made of numbers"),
    # no answer to this problem
    ("average", "q=beta*k_a|q=beta*k_b", "not seen to be equal"),
    ("permutation", "f=X|f=X@W_1", "not seen to be equal"),
    ("two-heads", "beta*mu_a", "asks for q1 and q2; write q1 = ..."),
    ("two-heads", "q1=beta*mu_a", "needs q1 and q2"),
    ("average", "q=beta*(v_a+v_b)", "cannot mention one"),
    ("extract", "M=A@B.T", "d x m times p x d does not fit"),
    ("extract", "M=A@v_a.T", "M has to work for all of them"),
    ("stretched-average", "low=beta|high=1.5", 'no name "beta"'),
    ("hull", "K=[[1, 2], [3]]", "same number of entries"),
    ("hull", "K=3", "needs two at least"),
    ("hull", "K=[[1, 2], [3, 4]]|q=(1, 1, 1)", "q needs 2 entries"),
    ("variance", "var_c", "not read"),
    ("variance", "var_q < 1", 'Did you mean "var_c"'),
    ("variance", "var_c <", "two sides"),
    ("variance", "Var(c_1) > 2*mu", "column 14"),
    ("perceiver-cost", "vanilla=[L, l]", "one number is expected"),
    ("average", "q=beta*(k_1+k_2)", "the keys are k_a, k_b"),
    ("average", "q=softmax(k_a)", 'no function "softmax"'),
]


@pytest.mark.parametrize(("problem", "text", "words"), ASKED_BACK)
def test_what_is_ambiguous_or_no_answer_is_asked_back(problem, text, words):
    with pytest.raises(UserError, match=re.escape(words)):
        check(problem, text.split("|"))


POINTED_AT = [
    ("β*foo", 5, 'no name "foo"'),  # columns count characters, not bytes
    ("k_a^2", 3, "a power is of a number"),
    ("beta^{1/3}", 8, "whole number"),
    ("k_a.shape", 6, "only T, for transpose, may follow a dot"),
    ("k_a[0]", 3, "square brackets"),
    ('"beta"', 3, "text in quotes"),
    ("1e13*k_a", 3, "1e12"),
    ("k_a*k_b", 3, "outer(x, y)"),
    ("k_a + beta", 3, "shapes differ"),
    ("k_a/k_b", 3, "divide by a number"),
    ("inv(K)", 3, "square"),
    ("norm(k_a, k_b)", 3, "takes 1 argument"),
    ("beta*(k_a", 12, "bracket"),
    ("\\foo k_a", 3, 'command "\\foo"'),
]


@pytest.mark.parametrize(("text", "column", "words"), POINTED_AT)
def test_what_may_not_be_written_is_pointed_at(text, column, words):
    with pytest.raises(UserError) as caught:
        check("average", "q=" + text)
    message, shown, caret = str(caught.value).splitlines()
    assert words in message
    assert message.startswith(f"column {column}:")
    assert caret == "  " + " " * (column - 1) + "^"
    assert shown.strip() == "q=" + text


LATEX = {
    "/": r"\frac{%s}{%s}",
    "*": r"\left(%s\right) \left(%s\right)",
    "+": r"\left(%s + %s\right)",
    "-": r"\left(%s - %s\right)",
    "sqrt": r"\sqrt{%s}",
    "abs": r"\left|%s\right|",
    "**2": r"\left(%s\right)^2",
    "log": r"\log\left(%s\right)",
    "exp": r"\exp\left(%s\right)",
}


def in_latex(tree):
    if isinstance(tree, str):
        return {"beta": r"\beta"}.get(tree, tree)
    op, *parts = tree
    return LATEX[op] % tuple(map(in_latex, parts))


def test_a_formula_in_latex_is_the_formula_in_plain_text():
    rng = random.Random(0)
    for _ in range(200):
        tree = brute_force.draw_number(rng, 3)
        plain, latex = f"q=({brute_force.write(tree)})*k_j", f"q = {in_latex(tree)} k_j"
        first, second = (read_construction(PROBLEMS["copy"], [t]) for t in (plain, latex))
        assert first.read_as == second.read_as, latex


def test_a_pair_may_have_a_condition():
    texts = [r"(q_1,q_2) = (\beta\mu_a, \beta\mu_b), \beta\gg 0", "(q1, q2) = t(mu_a, mu_b), t > 0"]
    for text in texts:
        assert set(check("two-heads", text).read_as) == {"q1", "q2"}


def test_keys_of_one_number_are_rows():
    assert check("hull", "K=[[0],[1],[2]]").verdict == "proved"
    assert check("hull", "K=[[1],[0],[2]]").verdict == "refuted"
    assert check("hull", "K=[[-1],[0],[2.5]]").verdict == "proved"
