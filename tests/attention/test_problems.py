"""Every problem is complete, speaks for itself, and accepts its own example."""

from __future__ import annotations

import json

import numpy as np
import pytest

from wherefrom.attention.checker.check import check
from wherefrom.attention.checker.instances import (
    Bend,
    key_instance,
    space_instance,
    word_instance,
)
from wherefrom.attention.checker.problems import PROBLEMS, find_problem
from wherefrom.errors import UserError

EIGHT = {
    "copy",
    "average",
    "noisy-average",
    "stretched-average",
    "two-heads",
    "extract",
    "self-attention",
    "identity-self-attention",
}


def test_there_are_eight() -> None:
    assert set(PROBLEMS) == EIGHT


@pytest.mark.parametrize("name", sorted(EIGHT))
def test_a_problem_says_all_that_it_must(name: str) -> None:
    record = find_problem(name).to_dict()
    for key in ("given", "goal", "symbols", "quantifiers", "tolerance_means", "title"):
        assert len(record[key]) > 10, key
    assert record["tolerance"] > 0
    assert json.loads(json.dumps(record)) == record
    spellings = [s for given in PROBLEMS[name].givens for s in (given.name, *given.aliases)]
    assert len(spellings) == len(set(spellings)), "one spelling, one meaning"
    assert not set(spellings) & set(PROBLEMS[name].refused)


@pytest.mark.parametrize("name", sorted(EIGHT))
def test_its_own_example_is_proved(name: str) -> None:
    assert check(name, PROBLEMS[name].example).verdict == "proved"


def test_a_misspelt_problem_is_answered_with_the_right_one() -> None:
    with pytest.raises(UserError, match='Did you mean "two-heads"'):
        find_problem("two-head")


def test_every_name_has_a_value_and_every_value_a_name() -> None:
    for problem in PROBLEMS.values():
        names = {given.name for given in problem.givens}
        if problem.family == "keys":
            values, _ = key_instance(problem, n=5, d=7, beta=2.0)
        elif problem.family == "extract":
            values = space_instance(m=2, p=3, r=1)
        else:
            values = word_instance(d=5, beta=2.0)
        assert set(values) == names, problem.name


def test_drawn_keys_are_what_is_given() -> None:
    rng = np.random.default_rng(3)
    values, keys = key_instance(PROBLEMS["average"], n=5, d=7, beta=2.0, rng=rng)
    np.testing.assert_allclose(keys @ keys.T, np.eye(5), atol=1e-12)
    np.testing.assert_allclose(values["k_a"], keys[0])
    np.testing.assert_allclose(values["sum_others"], keys[2:].sum(axis=0))
    np.testing.assert_allclose(values["sum_all"], keys.sum(axis=0))
    space = space_instance(m=2, p=3, r=2, rng=rng)
    np.testing.assert_allclose(space["S"].T @ space["S"], np.eye(7), atol=1e-12)
    words = word_instance(d=5, beta=3.0, rng=rng)
    assert np.linalg.norm(words["u_c"]) == pytest.approx(3.0)
    assert words["x1"] @ words["x3"] == pytest.approx(9.0)  # they share u_b


def test_a_bend_gives_up_one_assumption_and_keeps_the_other() -> None:
    problem = PROBLEMS["average"]

    def gram(bend: Bend) -> np.ndarray:
        rng = np.random.default_rng(4)
        keys = key_instance(problem, n=5, d=7, beta=1.0, rng=rng, bend=bend)[1]
        return np.asarray(keys @ keys.T)

    norms, angles = gram(Bend(norms=True)), gram(Bend(angles=True))
    off = ~np.eye(5, dtype=bool)
    assert np.abs(norms[off]).max() < 1e-12
    assert np.ptp(np.diag(norms)) > 0.1
    assert np.abs(np.diag(angles) - 1).max() < 1e-12
    assert np.abs(angles[off]).max() > 0.05
