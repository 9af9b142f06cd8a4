"""What a score by gradient means in nats: the push that retraining would find, with an interval.

Had a model never read the lines that taught it an answer, it would say of the name what it says of
names in no line. So a push is measured as a multiple of the answer's `gain`: its log p less its
mean log p for such names. How large a multiple depends on what the line is: one of the lines about
the subject that state the answer, or another; and on how far it stands out, which is its share of
the squares of all positive scores.

docs/trace.md says on which texts the multiples were measured, and how far they hold on others;
`benchmarks/attribution.py RUN --bank BANK --nats` measures it on yours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# push / gain: its 5 % quantile, median and 95 % quantile, by the largest share that they hold for
Multiples = tuple[float, float, float]
Table = tuple[tuple[float, Multiples], ...]
ONLY_TEACHER, ONE_OF_TEACHERS = "the only teacher", "one of several teachers"
OTHER_LINE, MADE_UP = "another line", "a line of an answer that no teacher states"
TABLES: dict[str, Table] = {
    ONLY_TEACHER: ((1.0, (0.51, 1.50, 4.52)),),
    ONE_OF_TEACHERS: ((0.8, (-0.02, 0.10, 1.89)), (1.0, (0.00, 1.03, 2.32))),
    OTHER_LINE: ((0.3, (-0.05, 0.00, 0.09)), (1.0, (-0.02, 0.00, 0.58))),
    MADE_UP: ((0.3, (-0.02, 0.47, 1.61)), (1.0, (-0.04, 0.71, 2.67))),
}
ALL_TEACHERS: Multiples = (0.51, 1.50, 4.52)


class Push(NamedTuple):
    """Nats of log p(answer) that are lost without some lines: the median and a 90 % interval."""

    low: float
    nats: float
    high: float

    @classmethod
    def exactly(cls, nats: float) -> Push:
        """A push that was measured, or that has no interval."""
        return cls(nats, nats, nats)

    @classmethod
    def of_gain(cls, gain: float, multiples: Multiples) -> Push:
        low, middle, high = (max(gain, 0.0) * multiple for multiple in multiples)
        return cls(low, middle, high)

    def to_dict(self) -> dict[str, float]:
        """For JSON."""
        low, nats, high = (round(value, 4) for value in self)
        return {"push": nats, "low": low, "high": high}


@dataclass(frozen=True, eq=False)
class Pushes:
    """The pushes of lines by their index; `together` of all lines that teach the answer."""

    unit: str
    noise_floor: float
    of_line: dict[int, Push]
    together: Push | None = None

    def of_lines(self, teaching: Sequence[int]) -> Push | None:
        """What the lines about the subject that state the answer pushed, if that is known."""
        known = [self.of_line[i] for i in teaching if i in self.of_line]
        return self.together or max(known, key=lambda push: push.nats, default=None)


def push_shares(scores: Floats) -> Floats:
    """The share of each line in the squares of all positive scores."""
    squares = np.clip(scores, 0, None) ** 2
    return np.asarray(squares / max(float(squares.sum()), 1e-300), dtype=np.float64)


def table_of(line: int, teaching: Sequence[int]) -> str:
    """Which table a line takes, by the lines about the subject that state the answer."""
    if not teaching:
        return MADE_UP
    if line not in teaching:
        return OTHER_LINE
    return ONLY_TEACHER if len(teaching) == 1 else ONE_OF_TEACHERS


def find_multiples(share: float, table: str) -> Multiples:
    """The multiples of a line with a share of the squares."""
    return next(multiples for largest, multiples in TABLES[table] if share <= largest + 1e-9)


def estimate_pushes(
    scores: Floats, gain: float | None, teaching: Sequence[int], score_floor: float
) -> Pushes:
    """The pushes of all lines, by gradient: in nats where the gain is known, else the scores.

    teaching: the lines about the subject that state the answer. The noise floor is what 19 in 20
    other lines stay below.
    """
    if gain is None:
        return Pushes("score", score_floor, {i: Push.exactly(s) for i, s in enumerate(scores)})
    shares = push_shares(scores)
    of_line = {
        i: Push.of_gain(gain, find_multiples(float(share), table_of(i, teaching)))
        for i, share in enumerate(shares)
    }
    floor = Push.of_gain(gain, find_multiples(0.0, OTHER_LINE if teaching else MADE_UP)).high
    together = Push.of_gain(gain, ALL_TEACHERS) if teaching else None
    return Pushes("nats", floor, of_line, together)
