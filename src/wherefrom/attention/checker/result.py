"""What a check answers, as a record: the verdict, its reason, and everything measured beside it.

`proved`        for all n, by exact algebra over the givens, and confirmed in numbers
`holds`         numerically, over many sizes and instances, but not by algebra
`refuted`       with the smallest counterexample found
`inconclusive`  neither could be shown; the reason says what is missing
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from wherefrom.results import Printable

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
    """One assumption of the problem, and whether this construction needs it.

    `used` is true with a counterexample as evidence, false with an argument, and None where a
    search found neither.
    """

    name: str
    used: bool | None
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


@dataclass(frozen=True, repr=False)
class CheckResult(Printable):
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

    def summary(self) -> list[tuple[str, str]]:
        rows = [(self.verdict, self.because), *(("derived", line) for line in self.derived)]
        if self.counterexample is not None:
            rows.append(("counterexample", self.counterexample.sentence))
        return rows + [("note", note) for note in self.notes]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; numbers that JSON has no word for become null."""
        record = {"beta_required" if k == "beta" else k: v for k, v in asdict(self).items()}
        plain: dict[str, Any] = json.loads(json.dumps(record), parse_constant=lambda _: None)
        return plain
