"""The clock of a budget: steps are a division, minutes become segments that can be followed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest

from wherefrom.training.checkpoint import Segment
from wherefrom.training.loop import BudgetClock

Cost = Callable[[int], float]


def run(
    seconds: float,
    cost: Cost,
    *,
    start: int = 0,
    spent: float = 0.0,
    until: int = 10**6,
    segments: Sequence[Segment] = (),
) -> tuple[list[float], float, list[Segment]]:
    """Train on a simulated clock: the progress before each step, time at the end, all segments."""
    clock, seen, known = BudgetClock(seconds=seconds, segments=segments), [], [*segments]
    step = start
    while clock.progress(step) < 1 and step < until:
        seen.append(clock.progress(step))
        step += 1
        spent += cost(step)
        known += clock.after_step(step, spent)
    return seen, spent, known


def noisy(seed: int, mean: float = 0.1) -> Cost:
    """Steps that take between a half and twice their usual time, in moods of 40 steps."""

    def cost(step: int) -> float:
        rng = random.Random(seed * 1_000_003 + step)
        mood = random.Random(seed * 7919 + step // 40)
        return mean * rng.uniform(0.8, 1.2) * mood.uniform(0.6, 1.7)

    return cost


def test_steps_are_a_division() -> None:
    clock = BudgetClock(steps=8)
    assert clock.after_step(2, 1e9) == ()
    assert [clock.progress(step) for step in (0, 2, 8)] == [0, 0.25, 1]


@pytest.mark.parametrize("seed", range(5))
def test_progress_never_falls_and_ends_with_the_budget(seed: int) -> None:
    seen, seconds, _ = run(60.0, noisy(seed))
    assert all(a <= b for a, b in pairwise(seen))
    assert seen[-1] < 1
    # the last estimate is a fiftieth of the budget before its end, and until then the machine may
    # change its mood by a factor of three
    assert abs(seconds - 60) < 3 * 60 / 50


def test_on_a_steady_clock_progress_is_the_share_of_the_time() -> None:
    seen, seconds, _ = run(30.0, lambda step: 0.05)
    assert seconds == pytest.approx(30.0, abs=0.051)  # one step
    assert seen[len(seen) // 2] == pytest.approx(0.5, abs=0.02)  # 0 until the first estimate


@pytest.mark.parametrize("resumed_at", [0, 200])
def test_slow_first_steps_do_not_make_progress_jump(resumed_at: int) -> None:
    before, spent, segments = run(60.0, lambda step: 0.1, until=resumed_at)

    def cost(step: int) -> float:
        return 4.0 if step <= resumed_at + 2 else 0.1

    after, end, _ = run(60.0, cost, start=resumed_at, spent=spent, segments=segments)
    jumps = [b - a for a, b in pairwise([*before, *after])]
    assert min(jumps) >= 0
    assert max(jumps) < 2 / len(jumps)
    assert end == pytest.approx(60.0, abs=0.21)


def test_segments_are_followed_without_a_look_at_the_time() -> None:
    seen, _, segments = run(20.0, noisy(1))
    assert len(segments) >= 10
    clock = BudgetClock(segments=segments)
    assert clock.after_step(3, 1e9) == ()
    assert [clock.progress(step) for step in range(len(seen))] == seen
