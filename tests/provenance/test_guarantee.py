"""The guarantee of a threshold against exact bounds, simulation and mapie."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wherefrom.errors import UserError
from wherefrom.provenance.confidence import calibration as guarantee
from wherefrom.provenance.confidence.calibration import guarantee_threshold


def graded_subjects(count: int, rng: np.random.Generator, *, grid_risk: bool = False):
    """Calibrated confidences, or ones that are right exactly 95 % of the time or never sure."""
    knows = rng.random(count) < 0.6
    if grid_risk:  # the share wrong is just above 5 % from 0.9 on: every guarantee there is false
        confidence = np.where(knows, rng.uniform(0.9, 1, count), rng.uniform(0, 0.9, count))
        return confidence, rng.random(count) < np.where(knows, 0.9499, 0.5)
    confidence = np.where(knows, 1 - rng.beta(1, 30, count), rng.beta(1, 10, count))
    return confidence, rng.random(count) < confidence


def test_the_bound_is_clopper_and_pearsons():
    assert guarantee.upper_bound(0, 59, 0.05) == pytest.approx(1 - 0.05 ** (1 / 59))
    assert guarantee.upper_bound(5, 5, 0.05) == 1
    for wrong, given_answers in ((0, 10), (3, 153), (17, 90)):
        bound = guarantee.upper_bound(wrong, given_answers, 0.05)
        assert guarantee.tail(wrong, given_answers, bound) == pytest.approx(0.05)
    assert guarantee.fewest_answers(0.05, 0.05) == 59  # the rule of three


@given(st.floats(0.001, 0.9), st.floats(0.001, 0.9))
def test_the_fewest_answers_are_enough_and_one_less_is_not(risk, delta):
    fewest = guarantee.fewest_answers(risk, delta)
    assert guarantee.tail(0, fewest, risk) <= delta + 1e-9
    assert fewest == 1 or guarantee.tail(0, fewest - 1, risk) > delta - 1e-9


def test_a_threshold_keeps_its_guarantee_on_the_subjects_it_was_made_on():
    confidence, right = graded_subjects(800, np.random.default_rng(17))
    found = guarantee_threshold(confidence, right)
    assert found.threshold is not None
    assert found.reason is None
    given_answers = confidence >= found.threshold
    assert found.given == given_answers.sum()
    assert found.wrong == (given_answers & ~right).sum()
    assert found.bound == pytest.approx(guarantee.upper_bound(found.wrong, found.given, 0.05))
    assert found.bound <= 0.05
    confidence = np.repeat([0.9, 0.6], 300)  # one that is equal to the threshold is given
    assert guarantee_threshold(confidence, confidence > 0.7).threshold == 0.601
    assert guarantee_threshold(confidence, confidence > 0.5).threshold == 0.5  # never below


@pytest.mark.parametrize("always_false", [False, True])
def test_the_guarantee_fails_no_more_often_than_it_says(always_false):
    rng = np.random.default_rng(18)
    failed, guaranteed = 0, 0
    score, right = graded_subjects(200_000, rng, grid_risk=always_false)
    order = np.argsort(score)
    score, wrong_from = score[order], np.cumsum(~right[order][::-1])[::-1]
    for _ in range(400):
        found = guarantee_threshold(*graded_subjects(300, rng, grid_risk=always_false))
        if found.threshold is not None:
            guaranteed += 1
            # where every guarantee is false by construction, the finite truth need not decide
            at = int(np.searchsorted(score, found.threshold))
            failed += always_false or wrong_from[at] / (score.size - at) > 0.05
    assert failed <= 33  # 20 expected at most; more than 33 has probability 0.002
    assert guaranteed > (0 if always_false else 200)


def test_the_choice_agrees_with_mapie():
    """Same grid, same start, same order, same exact tails."""
    control = pytest.importorskip("mapie.risk_control")
    methods = pytest.importorskip("mapie.risk_control.methods")
    guaranteed = 0
    for seed in range(4):
        confidence, right = graded_subjects(500, np.random.default_rng(seed))
        some, bad = (guarantee.count_from(each) for each in (confidence, confidence[~right]))
        doubt = [(1 - confidence[confidence >= at]).sum() for at in guarantee.GRID]
        start = int(np.argmin(guarantee.tail(np.floor(doubt), some, 0.05)))
        grid, some, bad = guarantee.GRID[start:], some[start:], bad[start:]
        share = np.maximum(bad / some - 1e-12, 0)  # so that its ceiling finds the count again
        theirs = methods.compute_hoeffding_bentkus_p_value(share, some, np.array([0.05]), True)
        assert theirs[:, 0] == pytest.approx(guarantee.tail(bad, some, 0.05), abs=1e-6)
        passed = control.control_fwer(theirs[:, 0], 0.05, "fixed_sequence")
        found = guarantee_threshold(confidence, right).threshold
        assert found == (grid[passed].min() if len(passed) else None)
        guaranteed += found is not None
    assert guaranteed >= 2


def test_the_first_failure_ends_the_tests():
    """Sure answers are wrong where the tests begin; below, where more are right, none is tried."""
    confidence = np.repeat([0.99, 0.6], [300, 3000])
    right = np.concatenate([np.arange(300) % 10 > 0, np.ones(3000, dtype=bool)])
    assert guarantee_threshold(confidence, right).threshold is None
    assert guarantee_threshold(confidence, np.ones(3300, dtype=bool)).threshold == 0.5


@given(
    st.lists(st.tuples(st.floats(0, 1), st.booleans()), max_size=200),
    st.floats(0.01, 0.5),
    st.floats(0.01, 0.5),
)
@settings(max_examples=60)
def test_a_guarantee_is_kept_here_or_a_sentence_says_why_not(rows, risk, delta):
    confidence, right = np.array([c for c, _ in rows]), np.array([r for _, r in rows], dtype=bool)
    found = guarantee_threshold(confidence, right, risk=risk, delta=delta)
    if found.threshold is None:
        assert found.reason.endswith(".")
        assert found.bound is None
    else:
        assert (~right[confidence >= found.threshold]).mean() <= risk
        assert found.bound <= risk + 1e-9


def test_where_nothing_is_guaranteed_a_threshold_is_estimated_and_says_so():
    confidence = np.repeat([0.96, 0.8, 0.3], 30)
    right = np.arange(90) % 60 > 0
    right[60:] = False
    found = guarantee_threshold(confidence, right)
    assert (found.threshold, found.given, found.wrong) == (None, 60, 1)
    assert found.used == found.estimate == 0.95  # stricter than where 1 of 60 is wrong
    assert "by estimate (1 of 60 are wrong)" in found.reason
    right[1] = False
    stricter = guarantee_threshold(confidence, right)
    assert (stricter.given, stricter.used) == (0, guarantee.NEVER)  # 2 of 60 are too many
    few = guarantee_threshold([0.99] * 26, [True] * 26)
    assert (few.threshold, few.given, few.used) == (None, 0, guarantee.NEVER)
    assert few.reason.endswith("so that no answer is shown.")


def test_a_threshold_must_also_keep_the_unseen_out():
    confidence, right = np.repeat([0.99, 0.6, 0.2], 200), np.repeat([True, True, False], 200)
    assert guarantee_threshold(confidence, right).threshold <= 0.6
    unseen = np.repeat([0.7, 0.1], 200)
    held = guarantee_threshold(confidence, right, unseen=unseen)
    assert 0.7 < held.threshold <= 0.99
    assert (held.unseen, held.unseen_given) == (400, 0)
    # few unseen, too: one in a hundred at most, but one of less than a hundred
    one = np.append(np.full(39, 0.1), 0.95)
    assert guarantee_threshold(confidence, right, unseen=one).threshold <= 0.6
    assert guarantee_threshold(confidence, right, unseen=np.append(one, 0.95)).threshold > 0.95
    assert guarantee_threshold(confidence, right, unseen=unseen[:100]).used > 0.7
    none = guarantee_threshold(confidence, right, unseen=np.full(100, 0.999))
    assert "(100 of 100 unseen subjects have " in none.reason
    assert "; 1 may)" in none.reason


@pytest.mark.parametrize("wrong", [{"risk": 0.0}, {"risk": 1.0}, {"delta": 2.0}])
def test_a_mistake_is_one_sentence(wrong):
    with pytest.raises(UserError, match="must lie between 0 and 1"):
        guarantee_threshold([0.9], [True], **wrong)
