"""K, Q and V for the three words: exact errors, ranks, and what cannot be done."""

from __future__ import annotations

import math

import numpy as np
import pytest

from wherefrom.attention.equation import attend
from wherefrom.attention.selfattention import (
    WordDesign,
    beta_for_words,
    identity_words,
    parts,
    rank_one_words,
    textbook_words,
    three_words,
)
from wherefrom.errors import UserError


def measured(design: WordDesign, beta: float, d: int) -> dict[str, float]:
    context = design.attend(three_words(beta, d)).context
    rows = {"c1": context[0], "c2": context[1]}
    return {name: float(np.linalg.norm(rows[name] - goal)) for name, goal in design.goals.items()}


@pytest.mark.parametrize("build", [identity_words, textbook_words, rank_one_words])
@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0, 3.0])
@pytest.mark.parametrize("d", [4, 7])
def test_the_stated_errors_are_exact(build, beta: float, d: int) -> None:
    design = build(beta, d)
    assert measured(design, beta, d) == pytest.approx(design.errors, rel=1e-9)


def test_check_values_at_beta_2() -> None:
    assert textbook_words(2.0).errors == pytest.approx({"c1": 0.0790, "c2": 0.0500}, abs=5e-5)
    assert rank_one_words(2.0).errors == pytest.approx({"c1": 0.0513, "c2": 0.0360}, abs=5e-5)
    a = math.exp(-4) / (1 + 2 * math.exp(-4))
    assert identity_words(2.0).errors["c2"] == pytest.approx(math.sqrt(10) * 2 * a, rel=1e-14)


def test_ranks_of_the_two_solutions() -> None:
    for build, rank in ((textbook_words, 2), (rank_one_words, 1)):
        design = build(2.0)
        assert np.linalg.matrix_rank(design.K.T @ design.Q) == rank


def test_the_second_row_of_weights_is_one_zero_zero() -> None:
    weights = textbook_words(4.0).attend(three_words(4.0)).weights
    #                                 x1   x2   x3
    np.testing.assert_allclose(
        weights[:2], [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]], atol=1e-6
    )  # fmt: skip


@pytest.mark.parametrize("part", [2, 3])  # u_c or u_d
def test_adding_a_part_to_x2_cannot_make_c2_close_to_u_b(part: int) -> None:
    beta = 3.0
    u = parts(beta)
    for much in np.linspace(0, 4, 41):
        words = three_words(beta)
        words[1] += much * u[part]
        c2 = attend(words, words, words).context[1]
        assert np.linalg.norm(c2 - u[1]) >= beta / math.sqrt(3) - 1e-12


@pytest.mark.parametrize("build", [identity_words, textbook_words, rank_one_words])
@pytest.mark.parametrize("tolerance", [0.1, 1e-6])
def test_the_required_norm(build, tolerance: float) -> None:
    beta = beta_for_words(build, tolerance)
    assert max(build(beta).errors.values()) <= tolerance * (1 + 1e-6)
    assert max(build(beta * 0.999).errors.values()) > tolerance
    assert beta_for_words(build, 100.0) == 1.0


def test_wrong_input_gets_a_sentence() -> None:
    with pytest.raises(UserError, match="at least 4"):
        parts(1.0, 3)
    with pytest.raises(UserError, match="above 0"):
        parts(0.0)
    with pytest.raises(UserError, match="tolerance"):
        beta_for_words(textbook_words, 0.0)
