"""Constructions do what they claim with the beta they ask for, and not with less."""

from __future__ import annotations

import inspect
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wherefrom.attention.designs import (
    CONSTRUCTIONS,
    TEXTS,
    beta_to_average,
    build_design,
    copyability,
    law_of_design,
    second_weights,
    tv_distance,
)
from wherefrom.attention.equation import attend, softmax_over_keys
from wherefrom.errors import UserError

SEEDS = st.integers(0, 10_000)


def rotation(d, seed=0):
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((d, d)))[0]


def holds(design):
    return all(part.holds for part in (*design.checks, *design.assumptions))


@pytest.mark.parametrize("name", CONSTRUCTIONS)
@pytest.mark.parametrize("n", [3, 9])
def test_every_construction_holds_on_its_example_and_carries_its_proof(name, n):
    known = inspect.signature(CONSTRUCTIONS[name]).parameters
    size = {"n": n} if {"keys", "n"} & set(known) else {}
    design = build_design(name, **size)
    assert design.name == name
    assert design.checks
    assert holds(design)
    assert "Proof" in TEXTS[name]["about"]
    if "beta" in known and design.beta > 1:  # and with less it does not, or not by as much
        less = build_design(name, **size, beta=0.9 * design.beta)
        assert less.beta_needed == pytest.approx(design.beta_needed)
        assert less.checks[0].value > design.checks[0].value


# ---- copying and averaging


@given(SEEDS, st.integers(3, 30), st.floats(1e-6, 0.2))
@settings(max_examples=40, deadline=None)
def test_the_average_and_its_exact_error(seed, n, eps):
    assert beta_to_average(10, 2, 0.01) == pytest.approx(5.981, abs=5e-4)
    assert beta_to_average(1000, 2, 0.001) == pytest.approx(13.119, abs=5e-4)
    keys, values = rotation(n + 2, seed)[:n], np.random.default_rng(seed).standard_normal((n, 3))
    design = build_design("average", keys=keys, tolerance=eps)
    found = attend(design.queries[0], keys, values)
    delta = (n - 2) * math.exp(-design.beta) / (2 + (n - 2) * math.exp(-design.beta))
    wanted = values[:2].mean(axis=0)
    expected = wanted + delta * (values[2:].mean(axis=0) - wanted)
    np.testing.assert_allclose(found.context, expected, rtol=1e-9, atol=1e-12)
    assert delta <= eps * (1 + 1e-9) or design.beta == 0


def test_an_assumption_that_fails_is_measured():
    keys = rotation(6) * np.array([1.1, 1.0, 1.0, 1.0, 1.0, 1.0])[:, None]
    flawed = build_design("average", keys=keys, beta=20.0)
    a, b = flawed.matrices["weights"][0, :2]
    assert a / b == pytest.approx(math.exp(20 * 0.21), rel=1e-9)
    assert [part.holds for part in flawed.assumptions] == [True, False]
    assert not flawed.checks[0].holds
    assert holds(build_design("average-orthogonal", keys=keys))
    keys = np.random.default_rng(4).standard_normal((5, 8)) + 1.5
    assert holds(build_design("average-independent", keys=keys, tolerance=1e-3))
    dependent = np.vstack([keys[:2], keys[:1] + keys[1:2]])
    assert not build_design("average-independent", keys=dependent).assumptions[0].holds
    rows = rotation(5)[:4]
    rows[0] *= 2
    rows[2] += 0.1 * rows[0]
    broken = build_design("extract", keys=rows)
    assert [part.holds for part in broken.assumptions] == [False, False]
    assert not broken.checks[0].holds


# ---- what a query can reach


@given(SEEDS, st.integers(2, 9), st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_a_margin_or_a_bound_and_no_query_beats_either(seed, n, d):
    rng = np.random.default_rng(seed)
    keys = rng.standard_normal((n, d))
    margin, mixture, most = copyability(keys, 0)
    directions = rng.standard_normal((200, d))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    assert (directions @ (keys[0] - keys[1:]).T).min(axis=1).max() <= margin + 1e-9
    design = build_design("hull", keys=keys)
    assert holds(design)
    if margin > 0:
        assert np.linalg.norm(design.queries) == pytest.approx(design.beta, rel=1e-9)
        least = (keys[0] - keys[1:]) @ design.queries[0] / design.beta
        assert least.min() == pytest.approx(margin, rel=1e-6)
    else:
        np.testing.assert_allclose(mixture @ keys, keys[0], atol=1e-7)
        best = attend(np.vstack([0.1 * directions, directions, 5 * directions]), keys, keys).weights
        assert best[:, 0].max() <= most + 1e-9


@pytest.mark.parametrize(
    ("keys", "margin", "most"),
    [
        ([[0.0, 3.0], [-1.0, 0.0], [1.0, 0.0], [0.5, 1.0]], math.hypot(0.5, 2.0), 1.0),
        ([[0.5, 0.5], [1.0, 0.0], [0.0, 1.0]], 0.0, 1 / 3),  # a midpoint
        ([[0.0, 0.0], [1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]], 0.0, 1 / 5),
        ([[1.0, 2.0], [1.0, 2.0], [-3.0, 0.0]], 0.0, 1 / 2),  # there twice
        (np.ones((4, 2)), 0.0, 1 / 4),
    ],
)
def test_which_keys_can_be_copied(keys, margin, most):
    found = copyability(np.array(keys), 0)
    assert found[0] == pytest.approx(margin, rel=1e-9)
    assert found[2] == pytest.approx(most, rel=1e-6)


def test_given_weights_are_reached_or_refuted_by_a_certificate():
    rng = np.random.default_rng(0)
    wanted = rng.dirichlet(np.ones(5)) + 1e-3
    found = build_design("weights", keys=rng.standard_normal((5, 4)), weights=wanted / wanted.sum())
    assert found.assumptions[0].holds  # affinely independent keys reach every weighting
    np.testing.assert_allclose(found.matrices["weights"][0], wanted / wanted.sum(), rtol=1e-6)
    keys = np.array([[-1.0], [0.0], [1.0]])  # three keys on a line: ln a must be linear
    wanted = np.array([0.1, 0.8, 0.1])
    found = build_design("weights", keys=keys, weights=wanted)
    assert "no query" in found.claim
    r = found.matrices["r"]
    for q in (-5.0, 0.3, 20.0):  # r . ln a is 0 for every query, and |r|^2 for the wanted weights
        scores = keys[:, 0] * q
        assert r @ (scores - np.logaddexp.reduce(scores)) == pytest.approx(0, abs=1e-12)
    assert r @ np.log(wanted) == pytest.approx(r @ r, rel=1e-9)
    assert r @ r > 0.1


# ---- extraction


@given(SEEDS, st.integers(2, 7))
@settings(max_examples=40, deadline=None)
def test_oblique_and_similarity_are_the_same_map(seed, n):
    rng = np.random.default_rng(seed)
    rows, half = rng.standard_normal((n, 11)), n // 2
    oblique = build_design("extract-oblique", keys=rows).matrices
    M, rounding = oblique["M"], 1e-11 * float(oblique["noise gain"]) ** 2
    np.testing.assert_allclose(M @ rows[:half].T, rows[:half].T, atol=rounding)
    np.testing.assert_allclose(M @ rows[half:].T, 0, atol=rounding)
    similar = build_design("extract-similarity", keys=rows).matrices
    np.testing.assert_allclose(similar["M"], M, atol=rounding)
    orthonormal = rotation(11, seed)[:n]
    simple, oblique = (
        build_design(name, keys=orthonormal) for name in ("extract", "extract-oblique")
    )
    assert holds(simple)
    np.testing.assert_allclose(oblique.matrices["M"], simple.matrices["M"], atol=1e-12)


@pytest.mark.parametrize("angle", [1.0, 1e-5])
def test_the_noise_gain_is_one_over_the_sine(angle):
    rows = [[1.0, 0.0, 0.0], [math.cos(angle), math.sin(angle), 0.0], [0.0, 0.0, 1.0]]
    gain = build_design("extract-oblique", keys=rows).matrices["noise gain"]
    assert float(gain) == pytest.approx(1 / math.sin(angle), rel=1e-9)


# ---- the three words


@pytest.mark.parametrize("beta", [0.5, 2.0])
def test_the_exact_errors_of_the_words(beta):
    small = math.exp(-(beta**2))
    a, total = small / (1 + 2 * small), 1 + small + small**2
    low, middle = small**2 / total, small / total
    for name, rank, errors in (
        ("words-identity", 4, [math.sqrt(10) * beta * a]),
        ("words", 2, [math.sqrt(5) * beta * a, math.sqrt(2) * beta * a]),
        ("words-rank-1", 1, [beta * math.hypot(middle, x + low) for x in (middle, 0)]),
    ):
        design = build_design(name, beta=beta)
        assert [check.value for check in design.checks] == pytest.approx(errors, rel=1e-9)
        assert np.linalg.matrix_rank(design.matrices["Q"]) == rank
        assert build_design(name, tolerance=1e-6).checks[0].value > 0.999e-6
        assert build_design(name, tolerance=100.0).beta == 1.0
    #                          x1   x2   x3
    expected = np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    sharp = build_design("words", beta=4.0).matrices["weights"]
    np.testing.assert_allclose(sharp[:2], expected, atol=1e-6)


# ---- limits


@given(SEEDS, st.integers(1, 4))
@settings(max_examples=30, deadline=None)
def test_a_head_as_wide_as_the_rank_draws_the_map(seed, rank):
    rng = np.random.default_rng(seed)
    wanted = softmax_over_keys(rng.standard_normal((7, rank)) @ rng.standard_normal((rank, 7)))
    matrices = build_design("head-width", keys=wanted).matrices
    assert matrices["Q"].shape[1] <= rank  # scores of rank r give a map that needs at most r
    drawn = attend(matrices["Q"], matrices["K"], wanted).weights
    np.testing.assert_allclose(drawn, wanted, atol=1e-8)
    flat = np.full((5, 5), 0.2)
    assert build_design("head-width", keys=flat).matrices["Q"].shape[1] == 0


@given(SEEDS, st.integers(2, 9), st.integers(1, 6))
@settings(max_examples=40, deadline=None)
def test_other_weights_give_the_same_context(seed, T, width):
    rng = np.random.default_rng(seed)
    values, first = rng.standard_normal((T, width)), rng.dirichlet(np.ones(T))
    dimension, second, distance = second_weights(values, first)
    assert dimension == max(0, T - width - 1)
    if dimension == 0:
        assert second is None
        return
    assert second.min() >= 0
    assert second.sum() == pytest.approx(1, abs=1e-12)
    np.testing.assert_allclose(second @ values, first @ values, atol=1e-9)
    assert 0 < distance == pytest.approx(tv_distance(second, first), abs=1e-9)


def test_values_that_repeat_leave_the_weights_free():
    values, first = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), np.array([0.7, 0.1, 0.2])
    dimension, second, distance = second_weights(values, first)
    assert (dimension, distance) == (1, pytest.approx(0.7))
    np.testing.assert_allclose(second, [0.0, 0.8, 0.2], atol=1e-12)


# ---- mistakes


@pytest.mark.parametrize(
    ("name", "settings", "sentence"),
    [
        ("average", {"n": 3, "keys": np.eye(3)}, "either"),
        ("average", {"keys": np.ones(3)}, "table"),
        ("average", {"keys": np.full((2, 2), np.nan)}, "finite"),
        ("copy", {"keys": [[1.0, 0.0], [3.0, 0.0]]}, "cannot copy"),
        ("average-orthogonal", {"keys": np.zeros((2, 2))}, "length zero"),
        ("extract-oblique", {"keys": np.ones((2, 3))}, "share a direction"),
        ("words", {"n": 4}, "takes no n"),
        ("one-head", {"keys": np.eye(3)}, "takes no keys"),
        ("words", {"tolerance": 0.0}, "tolerance"),
        ("weights", {"n": 2, "weights": [0.0, 1.0]}, "2 positive weights"),
        ("weights", {"n": 2, "weights": [1.0, 1.0]}, "sum to one"),
        ("weights", {"n": 2, "weights": [1.0]}, "2 positive weights"),
        ("head-width", {"keys": np.full((2, 3), 1 / 3)}, "square"),
        ("head-width", {"keys": np.eye(3)}, "rows that sum to one"),
        ("one-head", {"heads": 0}, "heads must be"),
        ("repelling-heads", {"repel": -1.0}, "must be 0 or more"),
        ("avoiding-head", {"n": 2}, "needs others"),
        ("two-heads", {"n": 4, "heads": 5}, "need 5 keys"),
    ],
)
def test_a_design_that_cannot_be_built_says_why(name, settings, sentence):
    build = law_of_design if "heads" in settings else build_design
    with pytest.raises(UserError, match=sentence):
        build(name, **settings)
