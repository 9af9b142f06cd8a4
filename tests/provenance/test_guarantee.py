"""The guarantee: its claim over redraws, its start, groups, estimates, and what it refuses."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wherefrom import Guarantee, UserError
from wherefrom.provenance import guarantee
from wherefrom.provenance.confidence.threshold import NEVER_REACHED, HeldOutScores, find_threshold

EACH = 4  # answers of a subject


def graded(subjects, rng, *, together=0.0, flat=False):
    """Scores, errors and groups; `together`: how often the errors of a subject come together.

    flat: the scores say nothing, and more than 5 % are wrong at any threshold.
    """
    groups = np.repeat(np.arange(subjects), EACH)
    draws = rng.random(groups.size)
    draws = np.where(rng.random(subjects)[groups] < together, rng.random(subjects)[groups], draws)
    errors = draws < (0.055 if flat else 0.3)
    scores = 0.8 * rng.normal(size=groups.size) + 0.6 * rng.normal(size=subjects)[groups]
    return scores + np.where(errors | flat, 0.0, 2.7), errors, groups


@pytest.mark.parametrize("together", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("flat", [True, False])
def test_the_claim_breaks_no_more_often_than_it_says(together, flat):
    rng = np.random.default_rng(4)
    scores, errors, _ = graded(50_000, rng, together=together, flat=flat)
    order = np.argsort(-scores)
    falling, shares = -scores[order], np.cumsum(errors[order]) / np.arange(1, order.size + 1)
    broken = coverage = 0.0
    for _ in range(200):
        found = Guarantee(*graded(150, rng, together=together, flat=flat))
        shown = int(np.searchsorted(falling, -found.threshold, side="right"))
        broken += shown > 0 and shares[shown - 1] > 0.05
        coverage += shown / falling.size / 200
    assert broken <= 19  # 10 expected at most; more than 19 has probability 0.002
    assert flat or coverage > 0.35


def test_answers_about_one_subject_count_by_how_far_they_are_wrong_together():
    scores, errors = np.full(200, 0.9), np.zeros(200, dtype=bool)
    assert Guarantee(scores, errors).coverage == 1.0
    assert Guarantee(scores, errors, groups=np.arange(200) // 10).coverage == 0.0
    pairs = Guarantee(scores, errors, groups=[f"subject {i // 2}" for i in range(200)])
    assert pairs.bound == pytest.approx(1 - 0.05 ** (1 / 100))  # without errors a pair is one
    rng = np.random.default_rng(0)
    scores, errors = rng.random(400), rng.random(400) < 0.03
    once = Guarantee(scores, errors)
    copied = Guarantee(np.repeat(scores, 3), np.repeat(errors, 3), np.repeat(np.arange(400), 3))
    assert (copied.threshold, copied.bound) == pytest.approx((once.threshold, once.bound))
    apart = Guarantee(scores, errors, np.arange(400) // 2)  # pairs at random
    assert once.coverage >= apart.coverage > 0.5


@given(st.lists(st.tuples(st.integers(0, 30), st.booleans()), max_size=300), st.randoms())
@settings(max_examples=60)
def test_the_start_depends_on_neither_grades_nor_the_size_of_the_scores(rows, random):
    scores = np.array([score for score, _ in rows], dtype=float)
    errors = np.array([error for _, error in rows], dtype=bool)
    shuffled = list(errors)
    random.shuffle(shuffled)
    groups = np.arange(scores.size) // 2
    starts = {
        Guarantee(scores, grades, groups, 0.1, 0.9).first_
        for grades in (errors, np.array(shuffled, dtype=bool), ~errors)
    }
    assert len(starts) == 1
    first, second = (Guarantee(x, errors, risk=0.2) for x in (scores, np.exp(scores / 10) - 7))
    assert (first.coverage, first.bound) == (second.coverage, second.bound)


def test_the_first_failure_ends_the_tests():
    """Sure answers are wrong where the tests begin; below, where more are right, none is tried."""
    scores = np.repeat([0.99, 0.6], [300, 1000])
    errors = np.concatenate([np.arange(300) % 10 == 0, np.zeros(1000, dtype=bool)])
    assert Guarantee(scores, errors).coverage == 0
    assert Guarantee(scores, np.zeros(1300)).threshold == 0.6


def test_the_choice_agrees_with_mapie():
    """Same scores, same start, same order, same exact tails."""
    control = pytest.importorskip("mapie.risk_control")
    methods = pytest.importorskip("mapie.risk_control.methods")
    chosen = 0
    for seed in range(8):
        scores, errors, _ = graded(125, np.random.default_rng(seed))
        order = np.argsort(-scores)
        start = guarantee.first_count(500, 0.05, 0.05) - 1
        shown, wrong = np.arange(1, 501)[start:], np.cumsum(errors[order])[start:]
        share = np.maximum(wrong / shown - 1e-12, 0)  # so that its ceiling finds the count again
        theirs = methods.compute_hoeffding_bentkus_p_value(share, shown, np.array([0.05]), True)
        assert theirs[:, 0] == pytest.approx(guarantee.tail(wrong, shown, 0.05), abs=1e-6)
        passed = control.control_fwer(theirs[:, 0], 0.05, "fixed_sequence")
        expected = scores[order][start:][passed].min() if len(passed) else math.inf
        assert Guarantee(scores, errors).threshold == expected
        chosen += expected < math.inf
    assert chosen >= 2


def test_the_bound_is_exact_and_the_attributes_follow_scikit_learn():
    found = Guarantee(risk=0.1, confidence=0.9).fit(np.arange(60), np.zeros(60))
    assert found.threshold_ == found.threshold == 0.0
    assert found.bound == pytest.approx(1 - 0.1 ** (1 / 60))
    assert found.predict([-1.0, 0.0, 70.0]).tolist() == [False, True, True]
    nothing = Guarantee([1.0, 2.0], [False, False])
    assert (nothing.threshold, nothing.bound, nothing.coverage) == (math.inf, 1.0, 0.0)
    assert not nothing.predict([1e300]).any()
    assert "not fitted" in repr(Guarantee())
    for wrong, shown in ((0, 59), (3, 153), (17, 90)):
        bound = guarantee.upper_bound(wrong, shown, 0.05)
        assert guarantee.tail(wrong, shown, bound) == pytest.approx(0.05)
    assert guarantee.fewest_answers(0.05, 0.05) == 59  # the rule of three


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
    with pytest.raises(UserError, match=words):
        Guarantee(*arguments)
    with pytest.raises(UserError, match="no answers yet"):
        Guarantee().threshold  # noqa: B018


# ---- the threshold of a run ----


def find(confidence, hits, unseen=(), risk=0.05):
    rows = range(len(confidence))
    testers = HeldOutScores(tuple(confidence), tuple(map(bool, hits)), tuple(rows), tuple(unseen))
    return find_threshold(testers, risk=risk)


@given(
    st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=200),
    st.floats(0.01, 0.5),
)
@settings(max_examples=60)
def test_a_guarantee_is_kept_here_or_a_sentence_says_why_not(rows, risk):
    confidence, hits = np.array([c for c, _ in rows]), np.array([h for _, h in rows], dtype=bool)
    found = find(confidence, hits, risk=risk)
    shown = confidence >= found.used
    assert found.used >= 0.5
    if found.threshold is None:
        assert found.reason.endswith(".")
        assert found.bound is None
    else:
        assert (found.given, found.wrong) == (shown.sum(), (shown & ~hits).sum())
        assert found.wrong <= risk * found.given
        assert found.bound == pytest.approx(guarantee.upper_bound(found.wrong, found.given, 0.05))
        assert found.bound <= risk + 1e-9


def test_where_nothing_is_guaranteed_a_threshold_is_estimated_and_says_so():
    confidence, hits = np.repeat([0.96, 0.8, 0.3], 30), np.arange(90) % 60 > 0
    hits[60:] = False
    found = find(confidence, hits)
    assert (found.threshold, found.used, found.given) == (
        None,
        NEVER_REACHED,
        0,
    )  # 1 of the first 30
    hits[[0, 30]] = True, False
    found = find(confidence, hits)
    assert (found.threshold, found.used, found.given, found.wrong) == (None, 0.95, 30, 0)
    assert "from 0.95 on, by estimate (0 of 30 are wrong)" in found.reason
    few = find([0.99] * 26, [True] * 26)
    assert (few.threshold, few.given, few.used) == (None, 0, NEVER_REACHED)
    assert few.reason.endswith("no answer is shown.")
    with pytest.raises(UserError, match="must lie between 0 and 1"):
        find([0.9], [True], risk=0.0)


def test_a_threshold_must_also_keep_the_unseen_out():
    confidence, hits = np.repeat([0.99, 0.6, 0.2], 200), np.repeat([True, True, False], 200)
    assert find(confidence, hits).threshold == 0.6
    unseen = np.repeat([0.7, 0.1], 200)
    assert find(confidence, hits, unseen).threshold == 0.99
    # few unseen, too: one in a hundred at most, but one of less than a hundred
    one = np.append(np.full(39, 0.1), 0.95)
    assert find(confidence, hits, one).threshold == 0.6
    assert find(confidence, hits, np.append(one, 0.95)).threshold == 0.99
    none = find(confidence, hits, np.full(100, 0.999))
    assert none.threshold is None
    assert none.used > 0.999
    assert "(100 of 100 unseen subjects would get one, and 1 may;" in none.reason
