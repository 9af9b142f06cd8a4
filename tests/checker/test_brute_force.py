"""Verdicts of all fifteen problems against brute force that shares nothing with the checker."""

from __future__ import annotations

import random
from dataclasses import replace

import brute_force
import pytest

from wherefrom.checker import PROBLEMS, check
from wherefrom.errors import UserError


@pytest.mark.parametrize("problem", brute_force.PROBLEMS)
def test_verdicts_against_brute_force(problem):
    """Also run with 100,000: python benchmarks/checker.py --constructions 100000."""
    verdicts, wrong = brute_force.run(40, seed=0, only=problem)
    assert not wrong
    assert verdicts.get(f"{problem} proved", 0) + verdicts.get(f"{problem} holds", 0) > 0
    assert verdicts.get(f"{problem} refuted", 0) > 2


def test_every_problem_is_compared():
    assert set(brute_force.PROBLEMS) == set(PROBLEMS)


@pytest.mark.parametrize("problem", brute_force.PROBLEMS)
def test_brute_force_notices_a_wrong_verdict(problem):
    rng = random.Random(3)
    draw, contradicts = brute_force.PROBLEMS[problem]
    noticed = 0
    for _ in range(40):
        drawn = draw(rng, problem)
        try:
            result = check(problem, drawn.texts)
            if result.verdict == "refuted":
                noticed += bool(contradicts(drawn, replace(result, verdict="proved")))
        except UserError:
            continue
    assert noticed > 5
