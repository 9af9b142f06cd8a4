"""The core: exact signs for every n, certificates that the verifier refuses, linear programmes."""

from __future__ import annotations

import copy
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from wherefrom.checker.asymptotics import asymptotics
from wherefrom.checker.field import Atom, Field, StepBudget, TooLargeError, UndefinedError
from wherefrom.checker.goals import Claim, certificate, decide
from wherefrom.checker.linear import solve_nonnegative
from wherefrom.checker.problems.queries import near_zeros
from wherefrom.checker.problems.sinusoids import Wave
from wherefrom.checker.problems.stretched import failure_probability
from wherefrom.checker.verifier import verify


def new_field(least_n=3, n=None):
    return Field(StepBudget(1_000_000), least_n, n)


def polynomial(field, coefficients):
    total = field.number(0)
    for power, c in enumerate(coefficients):
        total = total + field.number(c) * field.n**power
    return total


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(-40, 40), min_size=1, max_size=5), st.lists(st.integers(0, 60)))
def test_the_sign_of_a_polynomial_is_known_at_every_n(p, roots):
    for root in roots[:3]:
        p = [a - root * b for a, b in zip([0, *p], [*p, 0], strict=True)]
    pieces = asymptotics(polynomial(new_field(), p))
    assert pieces[0].low == 3
    assert pieces[-1].high is None
    for n in range(3, 130):
        value = sum(c * n**k for k, c in enumerate(p))
        (piece,) = [x for x in pieces if x.low <= n and (x.high is None or n <= x.high)]
        assert piece.sign == (value > 0) - (value < 0)


@settings(max_examples=100, deadline=None)
@given(*[st.integers(-9, 9)] * 5, st.integers(-2, 60))
def test_signs_with_roots_agree_with_fifty_digits(a, b, c, d, inside, shift):
    """a + b n + (c + d n) sqrt(n + shift^2) + inside sqrt(2), at every n."""
    field = new_field(1)
    under = field.n + field.number(shift * shift)
    x = field.number(a) + field.number(b) * field.n
    x = x + (field.number(c) + field.number(d) * field.n) * field.root(under)
    x = x + field.number(inside) * field.root(field.number(2))
    pieces = asymptotics(x)
    with mpmath.workdps(50):
        for n in range(1, 80):
            value = a + b * n + (c + d * n) * mpmath.sqrt(n + shift**2) + inside * mpmath.sqrt(2)
            (piece,) = [p for p in pieces if p.low <= n and (p.high is None or n <= p.high)]
            if abs(value) > 1e-30:
                assert piece.sign == mpmath.sign(value)
            else:
                assert piece.sign in (0, None)


def test_exact_numbers():
    field = new_field()
    gap = field.n - field.number(2)
    assert str(field.root(gap) * field.root(gap)) == "n - 2"
    assert str(field.beta * field.beta / field.beta) == "beta"
    assert (
        field.function("sqrt", field.number(2)) * field.root(field.number(3))
        - field.root(field.number(6))
    ).names  # not the same symbol, but zero all the same
    with pytest.raises(UndefinedError):
        field.number(1) / (field.n - field.n)
    with pytest.raises(TooLargeError):
        (field.beta + field.n + field.number(2)) ** 200


def test_what_is_divided_by_is_remembered():
    field = new_field()
    five = field.n - field.number(5)
    assert str(five / five) == "1"
    assert not decide(field, []).is_proved  # n = 5 is 0/0


def test_a_root_of_a_negative_logarithm_has_no_zeros_nearby():
    """Brute force found a TypeError here: sqrt(log(n/58)) is no number below 58."""
    field = new_field()
    root = field.root(field.function("log", field.n / field.number(58)))
    assert {58, 3167, 3168} <= near_zeros(root - field.number(2)) | near_zeros(root)


def claims_certificate():
    field = new_field()
    lead = field.beta * (field.n - field.number(2)) + field.root(field.n) - field.number(7)
    decision = decide(field, [Claim(lead, "grows", "lead")])
    return certificate(decision, [{"n": 4, "beta": 2.0, "scale": 1.0, "lead": -1.0}])


LINEAR = (0, 1, 0)  # in beta
CHANGED_CLAIMS = [
    {"must": "vanishes"},
    {"must": "zero"},
    {"must": "not above"},
    {"bottom": {(): Fraction(-1)}},
    {"bottom": {}},
    {"bottom": {(("n", 1),): Fraction(1), (): Fraction(-7)}},  # zero at n = 7
    {"top": {(("beta", 1),): Fraction(1)}},  # grows, but is not what was measured
    {"pieces": []},
    *(
        {"pieces": pieces}
        for pieces in (
            [(4, None, LINEAR, 1)],
            [(3, 9, LINEAR, 1)],
            [(3, 3, LINEAR, 1)],  # one n is not every n
            [(3, 9, LINEAR, 1), (11, None, LINEAR, 1)],
            [(3, 9, LINEAR, 1), (9, None, LINEAR, 1)],
            [(3, None, (0, 2, 0), 1)],
            [(3, None, (1, 1, 0), 1)],
            [(3, None, LINEAR, -1)],
            [(3, None, LINEAR, 0)],
        )
    ),
]


@pytest.mark.parametrize("change", CHANGED_CLAIMS)
def test_the_verifier_refuses_a_changed_claim(change):
    changed = claims_certificate()
    assert verify(changed) == ""
    changed["claims"][0] |= change
    assert verify(changed) != ""


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_no_single_change_of_a_number_is_accepted(data):
    """Coefficients, powers, signs and ends of intervals, each changed by a little."""
    changed = copy.deepcopy(claims_certificate())
    claim = changed["claims"][0]
    by = data.draw(st.sampled_from([-2, -1, 1, 2]))
    if data.draw(st.booleans()):
        part = claim[data.draw(st.sampled_from(["top", "bottom"]))]
        part[data.draw(st.sampled_from(sorted(part)))] += by
    else:
        index = data.draw(st.integers(0, len(claim["pieces"]) - 1))
        piece = list(claim["pieces"][index])
        place = data.draw(st.sampled_from([i for i in range(4) if piece[i] is not None]))
        piece[place] = (0, 1 + by, 0) if place == 2 else piece[place] + by
        claim["pieces"][index] = tuple(piece)
    assert verify(changed) != ""


def layer(operation, *parts):
    return (operation, parts)


X, N, TWO = layer("X"), layer("n"), layer(Fraction(2))


@pytest.mark.parametrize(
    ("tree", "is_right"),
    [
        (layer("softmax", layer("@", X, layer("transpose", X))), True),
        (layer("/", X, layer("sqrt", layer("*", TWO, layer("d")))), True),
        (layer("/", X, layer("+", layer("**", N, TWO), TWO)), True),
        (layer("+", X, layer("P")), False),
        (layer("mask", X), False),
        (layer("/", X, layer("-", N, TWO)), False),  # zero at n = 2
        (layer("/", X, layer("*", layer(Fraction(0)), N)), False),
        (layer("*", layer("sqrt", layer(Fraction(-1))), X), False),
        (layer("/", X, layer("norm", X)), False),
        (layer("inv", X), False),
    ],
)
def test_the_verifier_looks_at_every_part_of_a_layer(tree, is_right):
    assert (verify({"kind": "layer", "tree": tree}) == "") == is_right


@pytest.mark.parametrize(
    ("monomials", "is_right"),
    [
        ([(("z_s", 1), ("z_t", -1))], True),
        ([(("z_s", 1), ("z_t", -1)), ()], True),
        ([()], False),  # does not depend on the distance
        ([], False),
        ([(("z_s", 1), ("z_t", 1))], False),
        ([(("z_s", 1), ("z_t", -1)), (("s", 1),)], False),
    ],
)
def test_the_verifier_knows_a_function_of_the_distance(monomials, is_right):
    assert (verify({"kind": "turns", "monomials": monomials}) == "") == is_right


def test_the_verifier_refuses_an_unknown_certificate():
    assert verify({"kind": "other"}) != ""


def test_the_verifier_takes_no_value_at_one_n_for_every_n():
    """100 - exp(sqrt(n)) is positive at n = 1, and not from n = 22 on."""
    root = {(("sqrt(n)", 1),): Fraction(1)}
    atoms = {
        "sqrt(n)": Atom("sqrt", {(("n", 1),): Fraction(1)}, 0),
        "exp(sqrt(n))": Atom("exp", root, 1),
    }
    gap = {(): Fraction(100), (("exp(sqrt(n))", 1),): Fraction(-1)}
    claim = {"must": "positive", "name": "", "top": gap, "bottom": {(): Fraction(1)}}
    claim["pieces"] = [(1, None, (0, 0, 0), 1)]
    rest = {"kind": "claims", "sizes": (1, None), "atoms": atoms, "samples": []}
    assert verify(rest | {"claims": [claim]}) != ""


@pytest.mark.parametrize(
    ("angle", "odd", "is_right"),
    [
        ((1, 0, -1, 0), True, True),  # sin(t - 1)
        ((1, 0, -1, 0), False, False),  # cos(t - 1) at 0 and 2
        ((1, 0, 1, 0), False, True),
        ((0, 1, 0, 0), True, False),  # sin(pi t)
        ((1, 0, -1, "1/2"), True, False),  # cos(t - 1), as a sine
    ],
)
def test_the_verifier_knows_which_waves_return(angle, odd, is_right):
    proof = {"kind": "wave", "angle": tuple(map(Fraction, angle)), "odd": odd}
    proof |= {"sizes": (0, None), "atoms": {}, "claims": [], "samples": []}
    assert (verify(proof) == "") == is_right


SMALL_NUMBERS = st.integers(-4, 4)


@settings(max_examples=80, deadline=None)
@given(
    st.integers(1, 3).flatmap(
        lambda d: st.lists(st.lists(SMALL_NUMBERS, min_size=d, max_size=d), min_size=2, max_size=6)
    )
)
def test_linear_programmes_agree_with_scipy(rows):
    target, *columns = [[Fraction(x) for x in row] for row in rows]
    x, y = solve_nonnegative(columns, target, StepBudget(1_000_000))
    table = np.array(columns, float).T
    status = linprog(np.zeros(len(columns)), A_eq=table, b_eq=np.array(target, float)).status
    assert (x is not None) == (status == 0)
    if x is not None:
        assert min(x) >= 0
        for i, wanted in enumerate(target):
            assert sum(w * c[i] for w, c in zip(x, columns, strict=True)) == wanted
    else:
        assert all(sum(a * b for a, b in zip(y, c, strict=True)) <= 0 for c in columns)
        assert sum(a * b for a, b in zip(y, target, strict=True)) > 0


SMALL_FRACTIONS = st.fractions(-2, 2, max_denominator=6)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.sampled_from(["sin", "cos"]), *[SMALL_FRACTIONS] * 4)
def test_two_angles_meet_exactly_where_fifty_digits_say_so(kind, w, v, f, g):
    wave = Wave(kind, w, v, f, g)
    with mpmath.workdps(50):
        w_, v_, f_, g_ = (mpmath.mpf(x.numerator) / x.denominator for x in (w, v, f, g))
        angles = [(w_ + v_ * mpmath.pi) * t + f_ + g_ * mpmath.pi for t in range(25)]
        values = [getattr(mpmath, kind)(angle) for angle in angles]
        met = [(s, t) for t in range(25) for s in range(t) if abs(values[s] - values[t]) < 1e-40]
    assert met == [(s, t) for t in range(25) for s in range(t) if wave.meets(s, t)]
    if wave.w and wave.reflection is None:
        assert not met


def test_the_failure_probability_of_two_heads_is_the_normal_law():
    """q1 = beta mu_a, q2 = beta mu_b: samples fail where head 1 loses its lead."""
    lost = 0.5 * math.erfc(1.0)
    heads = [(1e6, 0.0, 0.0, 0.0), (0.0, 1e6, -1e6, 0.0)]
    given_, aside, in_all = failure_probability(heads, 10, 0.01)
    assert given_ == pytest.approx(0.0, abs=1e-4)
    assert aside == pytest.approx(lost, abs=1e-9)
    assert in_all == pytest.approx(lost, abs=1e-4)
    repelling = [(1e6, -1e6, 0.0, -1e6), (-1e6, 1e6, -2e6, -1e6)]
    in_all = failure_probability(repelling, 10, 0.01)[2]
    assert in_all == pytest.approx(0.5 * math.erfc(2.0), abs=2e-4)


def test_the_verifier_compares_a_count_with_the_models_own():
    one = Fraction(1)
    terms = ((1, 2, 0, 1), (1, 1, 0, 2))
    shrunk = {(0, 2, 0, 1): {terms[0]: one}, (0, 1, 0, 2): {terms[1]: one}}
    same = {term: {term: one} for term in terms}
    count = {"model": "vanilla", "d_is_fixed": False, "written": dict.fromkeys(terms, one)}
    count |= {"above": same, "below": same | shrunk}
    assert verify({"kind": "costs", "counts": [count]}) == ""
    larger = {(2, 2, 0, 1): one, **count["written"]}
    wrong = [
        {"model": "perceiver"},
        {"written": dict.fromkeys(terms, -one)},
        {"written": larger},  # a term that nothing is said about
        {"written": larger, "above": same | {(2, 2, 0, 1): {terms[0]: one}}},
        {"below": same},  # terms of the model are forgotten
        {"below": same | {term: {(3, 3, 3, 3): one} for term in shrunk}},
        {"above": {term: {term: 2 * one} for term in terms}},
        {"d_is_fixed": True},
    ]
    for change in wrong:
        assert verify({"kind": "costs", "counts": [count | change]}) != ""
