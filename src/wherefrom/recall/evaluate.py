"""Recall: the share of questions answered exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Recall:
    """How many of how many, as the course prints it and as a number."""

    correct: int
    total: int

    @property
    def share(self) -> float:
        return self.correct / self.total if self.total else 0.0

    def __str__(self) -> str:
        return f"Correct: {self.correct} out of {self.total}: {100 * self.share:.4g}%"

    def to_dict(self) -> dict[str, float | int]:
        return {"correct": self.correct, "total": self.total, "recall": self.share}


def score(predictions: Sequence[str], answers: Sequence[str]) -> Recall:
    """Exact match, blanks at the ends aside."""
    assert len(predictions) == len(answers)
    pairs = zip(predictions, answers, strict=True)
    correct = sum(said.strip() == right.strip() for said, right in pairs)
    return Recall(correct=correct, total=len(answers))
