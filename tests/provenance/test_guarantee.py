"""The public guarantee: its claim over redraws, its start, groups, and what it refuses."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wherefrom
from wherefrom import Guarantee
from wherefrom.provenance import guarantee
from wherefrom.provenance.confidence.calibration import guarantee_threshold


def graded(count, rng, share_wrong=0.3, distance=2.5):
    errors = rng.random(count) < share_wrong
    return rng.normal(size=count) + np.where(errors, 0.0, distance), errors


def test_the_claim_breaks_no_more_often_than_it_says():
    rng = np.random.default_rng(4)
    scores, errors = graded(200_000, rng)
    order = np.argsort(-scores)
    sorted_scores, shares = -scores[order], np.cumsum(errors[order]) / np.arange(1, 200_001)
    broken = found = 0
    for _ in range(400):
        own = Guarantee(*graded(300, rng))
        if own.coverage > 0:
            found += 1
            broken += (
                shares[np.searchsorted(sorted_scores, -own.threshold, side="right") - 1] > 0.05
            )
    assert broken <= 33  # 20 expected at most; more than 33 has probability 0.002
    assert found > 200


@given(st.lists(st.tuples(st.integers(0, 30), st.booleans()), max_size=300), st.randoms())
@settings(max_examples=60)
def test_the_start_depends_on_neither_grades_nor_the_size_of_the_scores(rows, random):
    """As many answers are in the first test whatever is wrong, and however scores are stretched."""
    scores = np.array([score for score, _ in rows], dtype=float)
    errors = np.array([error for _, error in rows], dtype=bool)
    shuffled = list(errors)
    random.shuffle(shuffled)
    thresholds = np.unique(scores)[::-1]
    shown = guarantee.count_from(scores, thresholds)
    starts = set()
    for grades in (errors, np.array(shuffled, dtype=bool), ~errors):
        wrong = guarantee.count_from(scores[grades], thresholds)
        starts.add(guarantee.pass_in_order(shown, wrong, scores.size, 0.1, 0.1)[0])
    assert len(starts) <= 1
    first, second = (Guarantee(x, errors, risk=0.2) for x in (scores, np.exp(scores / 10) - 7))
    assert first.coverage == second.coverage
    assert first.bound == second.bound


def test_where_a_run_begins_to_test_does_not_follow_from_how_sure_it_is():
    """The probabilities are fitted to grades, so only their order may say where tests begin."""
    confidence = np.linspace(0.99, 0.51, 400)
    right = np.ones(400, dtype=bool)
    right[[60, 150, 250, 300]] = False
    found = guarantee_threshold(confidence, right)
    modest = guarantee_threshold(0.5 + (confidence - 0.5) / 3, right)
    assert found.threshold is not None
    assert (modest.given > 0) == (found.given > 0)
    assert modest.given == pytest.approx(found.given, abs=3)  # the grid is finite


def test_answers_about_one_subject_count_once():
    """A hundred answers about one subject are one draw, not a hundred."""
    scores, errors = np.full(200, 0.9), np.zeros(200, dtype=bool)
    assert Guarantee(scores, errors).coverage == 1.0
    assert Guarantee(scores, errors, groups=np.arange(200) // 10).coverage == 0.0
    pairs = Guarantee(scores, errors, groups=[f"subject {i // 2}" for i in range(200)])
    assert (pairs.coverage, pairs.shown_) == (1.0, 100)


def test_copies_of_the_answers_do_not_tighten_the_bound():
    rng = np.random.default_rng(0)
    scores, errors = graded(300, rng, share_wrong=0.02)
    once = Guarantee(scores, errors)
    copied = Guarantee(np.repeat(scores, 3), np.repeat(errors, 3), np.repeat(np.arange(300), 3))
    assert (copied.threshold, copied.bound) == (once.threshold, once.bound)


def test_the_bound_is_exact_and_the_attributes_follow_scikit_learn():
    found = wherefrom.Guarantee(risk=0.1, confidence=0.9).fit(np.arange(60), np.zeros(60))
    assert found.threshold_ == found.threshold == 0.0
    assert found.bound == pytest.approx(1 - 0.1 ** (1 / 60))
    assert found.predict([-1.0, 0.0, 70.0]).tolist() == [False, True, True]
    nothing = wherefrom.Guarantee([1.0, 2.0], [False, False])
    assert (nothing.threshold, nothing.bound, nothing.coverage) == (math.inf, 1.0, 0.0)
    assert not nothing.predict([1e300]).any()
    assert "not fitted" in repr(wherefrom.Guarantee())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([1.0], [True, False]), "one length"),
        (([1.0, math.nan], [0, 1]), "nan"),
        (([1.0, 2.0], [0, 2]), "true or false"),
        ((["a"], [True]), "numbers"),
        (([1.0], None), "scores and errors"),
        (([1.0, 2.0], [0, 1], ["one"]), "groups"),
        (([1.0], [0], None, 0.0), "between 0 and 1"),
        (([1.0], [0], None, 0.05, 95), "between 0 and 1"),
    ],
)
def test_a_mistake_gets_a_sentence(arguments, words):
    with pytest.raises(wherefrom.UserError, match=words):
        Guarantee(*arguments)
    with pytest.raises(wherefrom.UserError, match="no answers yet"):
        Guarantee().threshold  # noqa: B018
