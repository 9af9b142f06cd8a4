"""What a check answers, as a record: the verdict, its reason, and everything measured beside it.

`proved`        for all n, by exact algebra over the givens
`holds`         numerically, over at least three sizes and many instances, but not by algebra
`refuted`       with the smallest counterexample found
`inconclusive`  neither could be shown; the reason says what is missing
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

Word = Literal["proved", "holds", "refuted", "inconclusive"]
EXIT_CODES: dict[Word, int] = {"proved": 0, "holds": 0, "refuted": 1, "inconclusive": 3}


@dataclass(frozen=True)
class BetaNeeded:
    """How large the large factor must be for the tolerance."""

    formula: str
    value: float  # at the n below
    n: int
    by_n: dict[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Assumption:
    """One assumption of the problem, and whether this construction leans on it."""

    name: str
    used: bool
    evidence: str


@dataclass(frozen=True)
class Failure:
    """How often noise spoils the result, exactly and by simulation."""

    meaning: str
    n: int
    beta: float
    probability: float  # among the samples not set aside
    set_aside: float
    in_all: float  # counting the samples set aside as they come out
    simulated: float | None = None
    standard_error: float | None = None
    samples: int = 0
    spread: float | None = None  # standard deviation of the weight on a
    alpha_allowed: float | None = None  # largest alpha for a failure rate of 5 in 100


@dataclass(frozen=True)
class Counterexample:
    """The smallest instance found on which the construction misses its goal."""

    sizes: dict[str, int]
    numbers: dict[str, Any]
    sentence: str


@dataclass(frozen=True)
class CheckResult:
    """The answer to one construction."""

    problem: str
    construction: dict[str, str]
    verdict: Word
    because: str
    tolerance: float
    seed: int
    derived: tuple[str, ...] = ()
    beta: BetaNeeded | None = None
    assumptions: tuple[Assumption, ...] = ()
    failure: Failure | None = None
    counterexample: Counterexample | None = None
    checked: str = ""
    notes: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.verdict]

    @property
    def passed(self) -> bool:
        return self.exit_code == 0

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; numbers that JSON has no word for become null."""
        record = {
            "problem": self.problem,
            "construction": self.construction,
            "verdict": self.verdict,
            "because": self.because,
            "tolerance": self.tolerance,
            "seed": self.seed,
            "derived": list(self.derived),
            "beta_required": self.beta and vars(self.beta),
            "assumptions": [vars(assumption) for assumption in self.assumptions],
            "failure": self.failure and vars(self.failure),
            "counterexample": self.counterexample and vars(self.counterexample),
            "checked": self.checked,
            "notes": list(self.notes),
        }
        plain: dict[str, Any] = _plain(record)
        return plain


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
