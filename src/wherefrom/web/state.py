"""What all pages share: the shelf of runs, the loaded models, the trainings, and who asked what."""

from __future__ import annotations

import secrets
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi import Request

from wherefrom.web.guard import Limits
from wherefrom.web.jobs import Trainings
from wherefrom.web.models import Limiter, Models
from wherefrom.web.runs import RunIndex, summarise

VISITORS = 200
ASKED = 20


class Histories:
    """What each visitor asked lately; known by a cookie, kept in memory, both bounded."""

    def __init__(self) -> None:
        self._by_visitor: OrderedDict[str, deque[dict[str, Any]]] = OrderedDict()

    def of(self, visitor: str | None) -> list[dict[str, Any]]:
        return list(self._by_visitor.get(visitor or "", ()))

    def add(self, visitor: str | None, entry: dict[str, Any]) -> None:
        if visitor is None or visitor not in self._by_visitor:
            return
        asked = self._by_visitor[visitor]
        for old in [old for old in asked if old["question"] == entry["question"]]:
            asked.remove(old)
        asked.appendleft(entry)
        self._by_visitor.move_to_end(visitor)

    def welcome(self) -> str:
        """A new visitor."""
        visitor = secrets.token_urlsafe(16)
        self._by_visitor[visitor] = deque(maxlen=ASKED)
        while len(self._by_visitor) > VISITORS:
            self._by_visitor.popitem(last=False)
        return visitor

    def knows(self, visitor: str | None) -> bool:
        return visitor in self._by_visitor


@dataclass
class Lab:
    """One for each server."""

    shelf: RunIndex
    limits: Limits
    models: Models
    gate: Limiter
    trainings: Trainings
    histories: Histories = field(default_factory=Histories)
    _askable: tuple[dict[str, Path], list[str]] | None = None

    def askable(self) -> list[str]:
        """Runs that have a model: those with a calibration first, twins last."""
        runs = self.shelf.runs()
        if self._askable is None or self._askable[0] is not runs:  # walked anew
            found = [summarise(name, folder) for name, folder in runs.items()]
            found = [run for run in found if run["can_answer"]]
            found.sort(key=lambda run: (run["is_twin"], not run["calibrated"]))
            self._askable = (runs, [run["name"] for run in found])
        return list(self._askable[1])

    @classmethod
    def on(cls, shelf: RunIndex, limits: Limits) -> Lab:
        return cls(
            shelf=shelf,
            limits=limits,
            models=Models(shelf, limits),
            gate=Limiter(limits.heavy, limits.heavy_waiting),
            trainings=Trainings(shelf),
        )

    def close(self) -> list[str]:
        """Take no more work; the names of trainings that go on without this server."""
        self.models.close()
        self.gate.close()
        return self.trainings.leave()


def lab_of(request: Request) -> Lab:
    lab = request.app.state.lab
    assert isinstance(lab, Lab)
    return lab
