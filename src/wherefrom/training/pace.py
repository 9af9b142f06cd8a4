"""Pace: how far along a phase is at a given step, which is all that the schedule looks at.

With a budget of steps the answer is a division. A budget of minutes depends on the machine's mood,
which cannot be replayed; so every decision about the pace is recorded before it is used. A resumed
run reads the record and takes the same steps at the same rates as the run that was stopped.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from wherefrom.storage import write_whole

FIRST_STEPS = 2  # slow for reasons of their own, so not counted
FIRST_LOOK = 4  # steps before the first estimate
LOOK_EVERY = 5.0  # seconds between estimates


class Pace(Protocol):
    """The interface that the loop needs."""

    def progress(self, step: int) -> float: ...

    def after_step(self, step: int, seconds: float) -> None: ...


class StepPace:
    """A fixed number of steps."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def progress(self, step: int) -> float:
        return step / self.steps

    def after_step(self, step: int, seconds: float) -> None:
        """Time does not matter here."""


@dataclass(frozen=True)
class Stretch:
    """From `step` on, progress grows from `progress` by `per_step` a step."""

    phase: int
    step: int
    progress: float
    per_step: float


class MinutePace:
    """A number of seconds, turned into recorded stretches of steady pace."""

    def __init__(self, seconds: float, record: Path, phase: int, *, writes: bool = True) -> None:
        self.budget = seconds
        self.phase = phase
        self._record = record
        self._writes = writes  # of several processes one keeps the record
        self._stretches = [Stretch(phase, 0, 0.0, 0.0), *self._read()]
        self._looks = 0
        self._last_step, self._last_seconds = 0, 0.0
        self._known_until = self._stretches[-1].step

    def progress(self, step: int) -> float:
        for stretch in reversed(self._stretches):
            if stretch.step <= step:
                along = stretch.progress + (step - stretch.step) * stretch.per_step
                return min(1.0, along)
        return 0.0

    def after_step(self, step: int, seconds: float) -> None:
        """`step` steps are done and took `seconds` in all: look again now and then."""
        self._looks += 1  # and not `step`: the first steps after a resume are slow as well
        if step <= self._known_until or self._looks <= FIRST_STEPS:
            self._last_step, self._last_seconds = step, seconds
            return
        taken = step - self._last_step
        due = FIRST_LOOK if self._known_until == 0 else 1
        enough = seconds - self._last_seconds >= min(LOOK_EVERY, self.budget / 50)
        if seconds < self.budget and (taken < due or not enough):
            return
        speed = (seconds - self._last_seconds) / taken
        left = (self.budget - seconds) / speed
        at = self.progress(step)
        per_step = (1 - at) / left if left > 0.5 else 1.0
        self._add(Stretch(self.phase, step, at, per_step))
        self._last_step, self._last_seconds = step, seconds

    def _add(self, stretch: Stretch) -> None:
        if self._writes:
            with open(self._record, "a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(stretch)) + "\n")
                file.flush()
                os.fsync(file.fileno())
        self._stretches.append(stretch)
        self._known_until = stretch.step

    def _read(self) -> list[Stretch]:
        """What was decided before; a last line cut short by a kill was never used, and goes."""
        if not self._record.exists():
            return []
        text = self._record.read_text(encoding="utf-8")
        whole, _, torn = text.rpartition("\n")
        if torn and self._writes:
            write_whole(self._record, whole + "\n" if whole else "")
        stretches = [Stretch(**json.loads(line)) for line in whole.splitlines()]
        return [stretch for stretch in stretches if stretch.phase == self.phase]
