"""How long a stage still takes is said now and then, and not when it is over."""

from __future__ import annotations

import pytest

from wherefrom.provenance import after_training as account
from wherefrom.provenance.after_training import EVERY, TimeLeft


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(account.time, "monotonic", lambda: now[0])
    return now


def test_an_estimate_is_said_every_few_seconds_until_the_last_person(clock: list[float]) -> None:
    said: list[str] = []
    estimate = TimeLeft("asked about", 1000, said.append, began=clock[0], said=clock[0])
    clock[0] += EVERY / 2
    estimate(100)
    assert said == []
    clock[0] += EVERY / 2
    estimate(100)  # 200 in 2 s
    assert said == ["asked about 200 of 1,000 questions, about 8 s left"]
    estimate(100)
    assert len(said) == 1
    clock[0] += EVERY
    estimate(100)
    assert said[1:] == ["asked about 400 of 1,000 questions, about 6 s left"]
    clock[0] += EVERY
    estimate(600)
    assert len(said) == 2
