"""What people write is read as meant; what may not be written ends in a sentence with a column."""

from __future__ import annotations

import json
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wherefrom.attention.checker import PROBLEMS, check
from wherefrom.attention.checker.instances import Numeric
from wherefrom.attention.checker.language import (
    MAX_DEPTH,
    MAX_LENGTH,
    MAX_NODES,
    ExpressionError,
    Shape,
    evaluate,
    parse,
)
from wherefrom.errors import UserError

KNOWN = {"beta": "beta", "k_a": "k_a", "k_b": "k_b", "A": "A", "n": "n"}
SHAPES = {"beta": Shape(), "n": Shape(), "A": Shape(("d",), ("m",))}
SHAPES |= dict.fromkeys(("k_a", "k_b"), Shape(("d",)))
VALUES = {
    "beta": 3.0,
    "n": 7,
    "k_a": np.array([1.0, 0.0, 2.0]),
    "k_b": np.array([0.0, 5.0, 1.0]),
    "A": np.array([[1.0, 2.0], [0.0, 1.0], [3.0, 0.0]]),
}


def value(text):
    expression = parse(text, KNOWN, {}, SHAPES)
    return np.asarray(evaluate(expression, Numeric(VALUES)))


def error(text):
    with pytest.raises(ExpressionError) as caught:
        value(text)
    return caught.value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("beta*(k_a+k_b)", 3 * (VALUES["k_a"] + VALUES["k_b"])),
        ("β·k_a − k_b", 3 * VALUES["k_a"] - VALUES["k_b"]),
        ("dot(k_a, k_b)", 2.0),
        ("k_a @ k_b.T", np.outer(VALUES["k_a"], VALUES["k_b"])),
        ("norm(k_a)**2", 5.0),
        ("unit(k_a)", VALUES["k_a"] / np.sqrt(5)),
        ("pinv(A) @ A", np.eye(2)),
        ("inv(A.T@A) @ (A.T@A)", np.eye(2)),
        ("hstack(A, k_a)", np.hstack([VALUES["A"], VALUES["k_a"][:, None]])),
        ("exp(log(n))", 7.0),
        ("sqrt(beta**2)", 3.0),
        ("2**0 + 2**8", 257.0),
    ],
)
def test_the_language_means_what_it_says(text, expected):
    want = np.atleast_1d(np.asarray(expected, float))
    want = want.reshape(-1, 1) if want.ndim == 1 else want
    np.testing.assert_allclose(value(text), want, atol=1e-12)


@pytest.mark.parametrize(
    ("text", "column", "words"),
    [
        ("β*foo", 3, 'no name "foo"'),  # columns count characters, not bytes
        ("k_a^2", 1, "a power is of a number"),
        ("beta^{1/3}", 6, "whole number"),
        ("k_a.shape", 4, "only T, for transpose, may follow a dot"),
        ("k_a[0]", 1, "square brackets"),
        ('"beta"', 1, "text in quotes"),
        ("1e13*k_a", 1, "1e12"),
        ("k_a*k_b", 1, "outer(x, y)"),
        ("k_a + beta", 1, "shapes differ"),
        ("k_a/k_b", 1, "divide by a number"),
        ("k_a/(beta-beta)", 1, "divides by zero"),
        ("sqrt(-beta)", 1, "negative"),
        ("inv(A)", 1, "square"),
        ("inv(outer(k_a,k_a))", 1, "no inverse"),
        ("norm(k_a, k_b)", 1, "takes 1 argument"),
        ("beta*(k_a", 10, "bracket"),
        ("", 1, "expected here"),
        ("k_a\x00", 4, "can be seen"),
        ("k_a if n", 5, 'the word "if"'),
        ("\\foo k_a", 1, 'command "\\foo"'),
        ("A ⊙ A", 1, "entry by entry"),
        ("\\sum_i k_i", 1, "sum is not understood"),
        ("exp(exp(exp(n)))", 5, "too large to compute with"),
    ],
)
def test_what_may_not_be_written_is_pointed_at(text, column, words):
    mistake = error(text)
    assert words in mistake.sentence
    assert mistake.column == column
    lines = str(mistake).splitlines()
    assert len(lines) == 3
    assert lines[2] == "  " + " " * (column - 1) + "^"


def test_the_caps():
    assert parse("0.1", {}, {}, {}).tree.number == Fraction(1, 10)  # a literal is exact
    assert str(MAX_LENGTH) in error("1+" * 1500 + "1").sentence
    assert str(MAX_NODES) in error("+".join(["n"] * 100)).sentence
    assert str(MAX_DEPTH) in error("(" * 30 + "n").sentence
    assert "inv and pinv" in error("pinv(pinv(pinv(pinv(pinv(A)))))").sentence
    assert value("+".join(["n"] * 60)).item() == 7 * 60  # a long sum is not a deep one


HOSTILE = r"""
__import__('os').system('id') ¦ ().__class__.__bases__[0].__subclasses__() ¦ k_a.__class__
¦ k_a.T.__init__.__globals__ ¦ (lambda: 1)() ¦ [x for x in (1,)] ¦ {k_a: k_b} ¦ {**{}}
¦ f'{k_a}' ¦ (k_a := k_b) ¦ exec('1') ¦ eval('1') ¦ open('/etc/passwd') ¦ getattr(k_a, 'T')
¦ 9**9**9**9 ¦ ((((9**8)**8)**8)**8)**8 ¦ beta**8**8**8 ¦ 1e308*1e308 ¦ 1/0 ¦ 0**0 ¦ 0/0*k_a
¦ exp(1e12)*k_a ¦ exp(exp(exp(beta)))*k_a ¦ log(log(log(beta)))*k_a ¦ k_a/(beta-beta)
¦ k_a/(n-n) ¦ inv(0*I)@k_a ¦ pinv(0*I)@k_a ¦ unit(0*k_a) ¦ sqrt(-1)*k_a ¦ 𝓴_a ¦ k_a#comment
¦ k_a;k_b ¦ $k_a ¦ k_a! ¦ yield k_a ¦ await k_a ¦ *k_a ¦ k_a, ¦ ... ¦ None ¦ b''
¦ nan*k_a ¦ inf*k_a ¦ 1_000*k_a ¦ 0x10*k_a ¦ 1if 1else 2
¦ (beta+n+1)**8*(beta+n+2)**8*(beta+n+3)**8*(beta+n+4)**8*k_a
"""
ATTACKS = [
    *(text.strip() for text in HOSTILE.split("¦")),
    *("9" * 399, "(" * 200 + ")" * 200, "(" * 398, "-" * 399, "~" * 399, "not " * 99, '"' * 300),
    *("k_a" + ".T" * 198, "1+" * 199 + "1", "n*" * 199 + "n", "\x00", "k_a\x00", "k_a\\\nk_b"),
    "﷽" * 100,
    "/".join(["k_a"] + ["(beta+n+sqrt(2)+sqrt(3))**8"] * 12),
    "+".join([f"k_a/(beta+{i}+n)" for i in range(20)]),
    "@".join(["(I+beta*outer(k_a+k_b+sum_others,k_a-k_b))"] * 8) + "@k_a",
    "@".join(["pinv(I+exp(beta)*outer(k_a,k_b))"] * 4) + "@k_a",
    "@".join(["inv(I+(beta+n)*outer(k_a+k_b+sum_all,k_a+n*sum_others))"] * 4) + "@k_a",
]


GATED = """
import json, resource, sys, time
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
sys.path[:0] = json.loads(sys.argv[1])
from wherefrom.attention.checker import check
from wherefrom.errors import UserError
check("average", ["q=exp(beta)*pinv(K)@(e_a+e_b)"])
found = {}
for text in json.load(sys.stdin):
    noisy = text.replace("k_", "mu_").replace("K", "Mu")
    heads = ["q1=" + noisy, "q2=" + noisy]
    for problem, formulas in (("average", ["q=" + text]), ("two-heads", heads)):
        start = time.process_time()
        try:
            said = check(problem, formulas).because
        except UserError as mistake:
            said = str(mistake)
        found[problem + ": " + text] = [time.process_time() - start, said]
def peak():  # ru_maxrss would begin with what the parent process used before this one started
    try:
        status = open("/proc/self/status").read()
        return int(status.split("VmHWM:")[1].split()[0]) / 1024
    except (OSError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"found": found, "megabytes": peak(), "torch": "torch" in sys.modules}))
"""


def test_an_attack_gets_an_answer_in_time_and_in_memory():
    """2 seconds of processor time for each and 200 MB for all, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", GATED, json.dumps([p for p in sys.path if p])],
        input=json.dumps(ATTACKS),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    slowest = max(report["found"], key=lambda text: report["found"][text][0])
    assert report["found"][slowest][0] < 2.0, slowest
    assert all(said.strip() for _, said in report["found"].values())
    assert report["megabytes"] < 200
    assert not report["torch"]


WORDS = r"""
k_a k_j mu_a u_a x1 beta n I K A B S ones sum_all e_a 1 0 2.5 1e9 **2 **8 .T ( ) + - * / @ , ^ [ ] =
' lambda _ é { } \frac \sum_i ‖ where ² ᵀ \mathbf \begin{pmatrix} sin t inv( norm( outer( hstack(
"""


@settings(max_examples=250, deadline=None)
@given(
    st.lists(st.sampled_from([*WORDS.split(), " "]), max_size=40).map("".join) | st.text(),
    st.sampled_from(sorted(PROBLEMS)),
)
def test_anything_gets_an_answer_or_a_sentence(text, problem):
    form = PROBLEMS[problem].forms[0]
    try:
        verdict = check(problem, [f"{wanted}={text}" for wanted in form])
    except UserError:
        return
    assert verdict.verdict in ("proved", "holds", "refuted", "inconclusive")
    assert verdict.because.endswith(".")
