"""The guarantee of a threshold against exact bounds, simulation and mapie."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wherefrom.errors import UserError
from wherefrom.provenance.confidence import guarantee
from wherefrom.provenance.confidence.guarantee import guarantee_threshold
from wherefrom.provenance.metrics import Answers


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


@given(st.floats(0.001, 0.9), st.floats(0.001, 0.9), st.integers(0, 5))
def test_the_fewest_answers_are_enough_and_one_less_is_not(risk, delta, wrong):
    fewest = guarantee.fewest_answers(risk, delta, wrong=wrong)
    assert guarantee.tail(wrong, fewest, risk) <= delta + 1e-9
    assert fewest == wrong + 1 or guarantee.tail(wrong, fewest - 1, risk) > delta - 1e-9


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
    confidence = np.repeat([0.9, 0.1], 300)  # one that is equal to the threshold is given
    assert guarantee_threshold(confidence, confidence > 0.5).threshold == 0.101


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
    """Same grid, same order, same exact tails."""
    control = pytest.importorskip("mapie.risk_control")
    methods = pytest.importorskip("mapie.risk_control.methods")
    guaranteed = 0
    for seed in range(4):
        confidence, right = graded_subjects(500, np.random.default_rng(seed))
        some, bad = guarantee.counts_at(Answers(confidence, right), guarantee.GRID)
        tested = some >= guarantee.starting_count(500, 0.05, 0.05)  # mapie starts where it is told
        grid, some, bad = guarantee.GRID[tested], some[tested], bad[tested]
        share = np.maximum(bad / some - 1e-12, 0)  # so that its ceiling finds the count again
        theirs = methods.compute_hoeffding_bentkus_p_value(share, some, np.array([0.05]), True)
        assert theirs[:, 0] == pytest.approx(guarantee.tail(bad, some, 0.05), abs=1e-6)
        passed = control.control_fwer(theirs[:, 0], 0.05, "fixed_sequence")
        found = guarantee_threshold(confidence, right).threshold
        assert found == (grid[passed].min() if len(passed) else None)
        guaranteed += found is not None
    assert guaranteed >= 2


@pytest.mark.parametrize(
    ("confidence", "right", "words"),
    [
        ([], [], "at least 59 answers"),
        (np.full(20, 0.9), np.ones(20), "about 181 like them"),
        (np.full(500, 0.9), np.arange(500) % 2 == 0, "too many answers are wrong"),
    ],
)
def test_no_guarantee_says_why_and_how_many_it_takes(confidence, right, words):
    found = guarantee_threshold(confidence, np.array(right, dtype=bool))
    assert found.threshold is None
    assert found.bound is None
    assert words in found.reason


def test_as_many_subjects_as_were_asked_for_are_enough():
    needed = guarantee_threshold(np.full(40, 0.9), np.ones(40, bool)).subjects_needed
    assert guarantee_threshold(np.full(needed, 0.9), np.ones(needed, bool)).threshold == 0


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.floats(0, 1), st.booleans()), max_size=150),
    st.sampled_from([0.05, 0.2, 0.5]),
    st.sampled_from([0.05, 0.3]),
)
def test_a_guarantee_is_kept_here_or_a_sentence_says_why_not(rows, risk, delta):
    confidence = np.array([row[0] for row in rows])
    right = np.array([row[1] for row in rows], dtype=bool)
    found = guarantee_threshold(confidence, right, risk=risk, delta=delta)
    if found.threshold is None:
        assert found.reason.endswith(".")
    else:
        assert (~right[confidence >= found.threshold]).mean() <= risk
        assert found.bound <= risk + 1e-9


def test_where_nothing_is_guaranteed_a_threshold_is_estimated_and_says_so():
    confidence = np.concatenate((np.full(30, 0.9), np.full(30, 0.6), np.full(40, 0.2)))
    correct = np.concatenate((np.ones(58), np.zeros(42))).astype(bool)  # 2 of 60 wrong from 0.6 on
    found = guarantee_threshold(confidence, correct)
    assert found.threshold is None
    assert (found.given, found.wrong) == (60, 2)
    assert found.used == found.estimate == 0.95  # stricter than where 2 of 60 are wrong
    assert "by estimate, not by guarantee" in found.reason
    assert (found.wrong + 1) / (found.given + 2) <= found.risk
    stricter = guarantee_threshold(confidence, correct, risk=0.04)
    assert (stricter.given, stricter.estimate) == (30, 0.96)  # 3 of 62 are too many
    loose = guarantee_threshold(confidence, correct, risk=0.3)
    assert loose.estimate is None
    assert loose.used == 0.5 > loose.threshold


def test_with_too_few_to_estimate_on_nothing_is_shown():
    few = guarantee_threshold([0.9] * 10, [True] * 10)
    assert (few.threshold, few.given, few.used) == (None, 0, guarantee.NEVER)
    assert few.reason.endswith("so that no answer is shown.")


def test_a_threshold_must_also_keep_the_unseen_out_and_no_test_begins_above_the_start():
    confidence, right = np.repeat([0.9, 0.6, 0.1], 100), np.repeat([True, True, False], 100)
    assert guarantee_threshold(confidence, right).threshold <= 0.6
    unseen = np.repeat([0.7, 0.05], [20, 380])  # of 400, 20 would be given an answer from 0.7 on
    held = guarantee_threshold(confidence, right, unseen=unseen)
    assert 0.7 < held.threshold <= 0.9
    assert (held.unseen, held.unseen_given) == (400, 0)
    # 100 are too few to test a share of 2 %, so that they decide an estimate alone
    assert guarantee_threshold(confidence, right, unseen=unseen[:100]).threshold <= 0.6
    # the surest 200 are wrong too often, all 700 are not
    many = np.repeat([0.9, 0.6, 0.1], [200, 500, 100])
    graded = np.repeat([False, True, False], [15, 685, 100])
    assert guarantee_threshold(many, graded).threshold is None
    assert guarantee_threshold(many, graded, start=0.6).threshold <= 0.6


def test_nothing_is_shown_below_one_half_and_people_who_chose_guarantee_nothing():
    confidence, right = np.full(200, 0.3), np.ones(200, dtype=bool)
    assert guarantee_threshold(confidence, right).threshold <= 0.3
    assert guarantee_threshold(confidence, right).used == 0.5
    reused = guarantee_threshold(confidence, right, fresh=False)
    assert reused.threshold is None
    assert reused.used == 0.95


@pytest.mark.parametrize("mistake", [{"risk": 0}, {"risk": 1.5}, {"delta": 1}])
def test_a_mistake_is_one_sentence(mistake):
    with pytest.raises(UserError, match=r"^[a-z].*\.$"):
        guarantee_threshold([0.5], [True], **mistake)
