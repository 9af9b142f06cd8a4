from __future__ import annotations

import json
import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from wherefrom.training.loop import MinutePace, StepPace


def run(
    pace: MinutePace,
    cost: Callable[[int], float],
    *,
    start: int = 0,
    seconds: float = 0.0,
    until: int = 10**6,
) -> tuple[list[float], float]:
    """Train on a simulated clock: the progress before each step, and the time at the end."""
    seen: list[float] = []
    step = start
    while pace.progress(step) < 1 and step < until:
        seen.append(pace.progress(step))
        step += 1
        seconds += cost(step)
        pace.after_step(step, seconds)
    return seen, seconds


def noisy(seed: int, mean: float = 0.1) -> Callable[[int], float]:
    """Steps that take between a half and twice their usual time, in moods of 40 steps."""

    def cost(step: int) -> float:
        rng = random.Random(seed * 1_000_003 + step)
        mood = random.Random(seed * 7919 + step // 40)
        return mean * rng.uniform(0.8, 1.2) * mood.uniform(0.6, 1.7)

    return cost


def test_steps_are_a_division() -> None:
    pace = StepPace(8)
    pace.after_step(2, 1e9)
    assert [pace.progress(step) for step in (0, 2, 8)] == [0, 0.25, 1]


@pytest.mark.parametrize("seed", range(5))
def test_progress_never_falls_and_ends_with_the_budget(tmp_path: Path, seed: int) -> None:
    budget = 60.0
    seen, seconds = run(MinutePace(budget, tmp_path / "pace.jsonl", 0), noisy(seed))
    assert all(a <= b for a, b in pairwise(seen))
    assert seen[-1] < 1
    # the last look is a fiftieth of the budget before its end, and until then the machine may
    # change its mood by a factor of three
    assert abs(seconds - budget) < 3 * budget / 50


def test_on_a_steady_clock_progress_is_the_share_of_the_time(tmp_path: Path) -> None:
    seen, seconds = run(MinutePace(30.0, tmp_path / "pace.jsonl", 0), lambda step: 0.05)
    assert seconds == pytest.approx(30.0, abs=0.051)  # one step
    middle = len(seen) // 2
    assert seen[middle] == pytest.approx(0.5, abs=0.02)  # it stood still for the first look


def test_slow_first_steps_do_not_make_progress_jump(tmp_path: Path) -> None:
    def cost(step: int) -> float:
        return 4.0 if step <= 2 else 0.1

    seen, seconds = run(MinutePace(60.0, tmp_path / "pace.jsonl", 0), cost)
    assert max(b - a for a, b in pairwise(seen)) < 2 / len(seen)
    assert seconds == pytest.approx(60.0, abs=0.21)


def test_slow_first_steps_after_a_resume_do_not_either(tmp_path: Path) -> None:
    record = tmp_path / "pace.jsonl"
    before, seconds = run(MinutePace(60.0, record, 0), lambda step: 0.1, until=200)

    def cost(step: int) -> float:
        return 4.0 if step <= 202 else 0.1

    after, end = run(MinutePace(60.0, record, 0), cost, start=200, seconds=seconds)
    jumps = [b - a for a, b in pairwise([*before, *after])]
    assert min(jumps) >= 0
    assert max(jumps) < 2 / len(jumps)
    assert end == pytest.approx(60.0, abs=0.21)


def test_every_decision_is_recorded_before_it_is_used(tmp_path: Path) -> None:
    record = tmp_path / "pace.jsonl"
    pace = MinutePace(10.0, record, 0)
    seen, _ = run(pace, lambda step: 0.1)
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    assert len(lines) >= 10
    for line in lines:
        if line["step"] < len(seen):
            assert seen[line["step"]] == line["progress"]


def test_a_resumed_pace_replays_the_record_whatever_the_clock_says(tmp_path: Path) -> None:
    record = tmp_path / "pace.jsonl"
    first, _ = run(MinutePace(20.0, record, 0), noisy(1), until=100)
    decided = [json.loads(line) for line in record.read_text().splitlines()]
    lines = record.read_text()
    resumed = MinutePace(20.0, record, 0)
    known = decided[-1]["step"]
    again, _ = run(resumed, lambda step: 9.0, start=50, seconds=5.0, until=known)
    assert again == first[50:known]
    assert record.read_text() == lines


def test_a_finished_pace_replays_to_the_same_number_of_steps(tmp_path: Path) -> None:
    record = tmp_path / "pace.jsonl"
    first, _ = run(MinutePace(20.0, record, 0), noisy(2))
    again, _ = run(MinutePace(20.0, record, 0), noisy(3))
    assert again == first


def test_a_torn_last_line_was_never_used_and_goes(tmp_path: Path) -> None:
    record = tmp_path / "pace.jsonl"
    run(MinutePace(20.0, record, 0), noisy(4), until=60)
    whole = record.read_text()
    record.write_text(whole + '{"phase": 0, "st')
    pace = MinutePace(20.0, record, 0)
    assert record.read_text() == whole
    record.write_text(whole)
    assert [pace.progress(i) for i in range(90)] == [
        MinutePace(20.0, record, 0).progress(i) for i in range(90)
    ]
    record.write_text('{"phase": 0, "st')
    assert MinutePace(20.0, record, 0).progress(50) == 0
    assert record.read_text() == ""


def test_phases_keep_apart_in_one_record(tmp_path: Path) -> None:
    record = tmp_path / "pace.jsonl"
    first, _ = run(MinutePace(10.0, record, 0), lambda step: 0.1)
    second, seconds = run(MinutePace(5.0, record, 1), lambda step: 0.1)
    assert seconds == pytest.approx(5.0, abs=0.11)
    assert run(MinutePace(10.0, record, 0), noisy(1))[0] == first
    assert run(MinutePace(5.0, record, 1), noisy(1))[0] == second


def test_of_several_processes_one_keeps_the_record_and_all_agree(tmp_path: Path) -> None:
    record = tmp_path / "pace.jsonl"
    leader = MinutePace(10.0, record, 0)
    follower = MinutePace(10.0, record, 0, writes=False)
    for step in range(1, 60):
        for pace in (leader, follower):  # which are told the same seconds
            pace.after_step(step, 0.1 * step)
        assert leader.progress(step) == follower.progress(step)
    lines = record.read_text().splitlines()
    assert len(lines) == len(set(lines)) > 3


def test_a_budget_too_short_for_one_look_still_ends(tmp_path: Path) -> None:
    seen, _ = run(MinutePace(0.5, tmp_path / "pace.jsonl", 0), lambda step: 1.0)
    assert len(seen) <= 6
