"""The clock of a budget: steps are a division, minutes are recorded segments that are replayed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from wherefrom.training.loop import BudgetClock

Cost = Callable[[int], float]


@pytest.fixture
def record(tmp_path: Path) -> Path:
    return tmp_path / "pace.jsonl"


def clock(record: Path, seconds: float, phase: int = 0, *, writes: bool = True) -> BudgetClock:
    return BudgetClock(seconds=seconds, record=record, phase=phase, writes=writes)


def run(
    clock: BudgetClock, cost: Cost, *, start: int = 0, seconds: float = 0.0, until: int = 10**6
) -> tuple[list[float], float]:
    """Train on a simulated clock: the progress before each step, and the time at the end."""
    seen: list[float] = []
    step = start
    while clock.progress(step) < 1 and step < until:
        seen.append(clock.progress(step))
        step += 1
        seconds += cost(step)
        clock.after_step(step, seconds)
    return seen, seconds


def noisy(seed: int, mean: float = 0.1) -> Cost:
    """Steps that take between a half and twice their usual time, in moods of 40 steps."""

    def cost(step: int) -> float:
        rng = random.Random(seed * 1_000_003 + step)
        mood = random.Random(seed * 7919 + step // 40)
        return mean * rng.uniform(0.8, 1.2) * mood.uniform(0.6, 1.7)

    return cost


def test_steps_are_a_division() -> None:
    clock = BudgetClock(steps=8)
    clock.after_step(2, 1e9)
    assert [clock.progress(step) for step in (0, 2, 8)] == [0, 0.25, 1]


@pytest.mark.parametrize("seed", range(5))
def test_progress_never_falls_and_ends_with_the_budget(record: Path, seed: int) -> None:
    budget = 60.0
    seen, seconds = run(clock(record, budget), noisy(seed))
    assert all(a <= b for a, b in pairwise(seen))
    assert seen[-1] < 1
    # the last estimate is a fiftieth of the budget before its end, and until then the machine may
    # change its mood by a factor of three
    assert abs(seconds - budget) < 3 * budget / 50


def test_on_a_steady_clock_progress_is_the_share_of_the_time(record: Path) -> None:
    seen, seconds = run(clock(record, 30.0), lambda step: 0.05)
    assert seconds == pytest.approx(30.0, abs=0.051)  # one step
    assert seen[len(seen) // 2] == pytest.approx(0.5, abs=0.02)  # 0 until the first estimate


@pytest.mark.parametrize("resumed_at", [0, 200])
def test_slow_first_steps_do_not_make_progress_jump(record: Path, resumed_at: int) -> None:
    before, seconds = run(clock(record, 60.0), lambda step: 0.1, until=resumed_at)

    def cost(step: int) -> float:
        return 4.0 if step <= resumed_at + 2 else 0.1

    after, end = run(clock(record, 60.0), cost, start=resumed_at, seconds=seconds)
    jumps = [b - a for a, b in pairwise([*before, *after])]
    assert min(jumps) >= 0
    assert max(jumps) < 2 / len(jumps)
    assert end == pytest.approx(60.0, abs=0.21)


def test_every_estimate_is_recorded_before_it_is_used(record: Path) -> None:
    seen, _ = run(clock(record, 10.0), lambda step: 0.1)
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    assert len(lines) >= 10
    assert all(seen[line["step"]] == line["progress"] for line in lines if line["step"] < len(seen))


def test_a_resumed_clock_replays_the_record_whatever_the_time_is(record: Path) -> None:
    first, _ = run(clock(record, 20.0), noisy(1), until=100)
    lines = record.read_text()
    known = json.loads(lines.splitlines()[-1])["step"]
    again, _ = run(clock(record, 20.0), lambda step: 9.0, start=50, seconds=5.0, until=known)
    assert again == first[50:known]
    assert record.read_text() == lines
    whole, _ = run(clock(record, 20.0), noisy(2))
    assert run(clock(record, 20.0), noisy(3))[0] == whole


def test_a_torn_last_line_was_never_used_and_goes(record: Path) -> None:
    run(clock(record, 20.0), noisy(4), until=60)
    whole = record.read_text()
    expected = [clock(record, 20.0).progress(step) for step in range(90)]
    record.write_text(whole + '{"phase": 0, "st')
    assert [clock(record, 20.0).progress(step) for step in range(90)] == expected
    assert record.read_text() == whole
    record.write_text('{"phase": 0, "st')
    assert clock(record, 20.0).progress(50) == 0
    assert record.read_text() == ""


def test_phases_keep_apart_in_one_record(record: Path) -> None:
    first, _ = run(clock(record, 10.0, 0), lambda step: 0.1)
    second, seconds = run(clock(record, 5.0, 1), lambda step: 0.1)
    assert seconds == pytest.approx(5.0, abs=0.11)
    assert run(clock(record, 10.0, 0), noisy(1))[0] == first
    assert run(clock(record, 5.0, 1), noisy(1))[0] == second


def test_of_several_processes_one_keeps_the_record_and_all_agree(record: Path) -> None:
    rank0, rank1 = clock(record, 10.0), clock(record, 10.0, writes=False)
    for step in range(1, 60):
        for each in (rank0, rank1):  # which get the same seconds
            each.after_step(step, 0.1 * step)
        assert rank0.progress(step) == rank1.progress(step)
    lines = record.read_text().splitlines()
    assert len(lines) == len(set(lines)) > 3


def test_a_budget_too_short_for_one_estimate_still_ends(record: Path) -> None:
    assert len(run(clock(record, 0.5), lambda step: 1.0)[0]) <= 6
