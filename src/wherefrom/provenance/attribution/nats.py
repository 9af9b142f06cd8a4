"""What a score by gradient means in nats: the push that retraining would find, with an interval.

Had a model never read the lines that taught it an answer, it would say of the name what it says of
names in no line. So a push is measured as a multiple of the answer's `gain`: its log p less its
mean log p for such names. How large a multiple depends on how far a line stands out: on its share
of the squares of all positive scores. A line that shares the push with another one hardly matters,
since the other one teaches the answer as well. All lines about the subject that state the answer,
taken together, are its gain.

The multiples were measured once, for the recipe `pointed`, on the embedded world (320 people, seed
3): its lines were left out of 20 quiet trainings, each line of one, and its people of 12 on random
halves. docs/trace.md has the coverage on another world;
`benchmarks/attribution.py RUN --bank BANK --nats` measures it on yours.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
QUANTILES = (0.05, 0.5, 0.95)

# shares up to each bound, and the quantiles of push / gain that were measured there: for answers
# that a line about the subject states, and for all others
STATED_BOUNDS = (0.01, 0.3, 0.8, 0.95, 1.0)
STATED_MULTIPLES = (
    (-0.05, 0.00, 0.09),
    (-0.02, 0.00, 0.58),
    (-0.02, 0.01, 1.89),
    (0.00, 1.03, 2.32),
    (0.65, 1.32, 2.70),
)
OTHER_BOUNDS = (0.3, 1.0)
OTHER_MULTIPLES = ((-0.02, 0.47, 1.61), (-0.04, 0.71, 2.67))
# the same for all lines about the subject that state the answer, left out together: whatever their
# share, the answer is lost
TOGETHER_MULTIPLES = (0.51, 1.50, 4.52)


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
    def of_gain(cls, gain: float, multiples: tuple[float, float, float]) -> Push:
        low, middle, high = (max(gain, 0.0) * multiple for multiple in multiples)
        return cls(low, middle, high)

    def to_dict(self) -> dict[str, float]:
        """For JSON."""
        low, nats, high = (round(value, 4) for value in self)
        return {"push": nats, "low": low, "high": high}


def push_shares(scores: Floats) -> Floats:
    """The share of each line in the squares of all positive scores."""
    squares = np.clip(scores, 0, None) ** 2
    return np.asarray(squares / max(float(squares.sum()), 1e-300), dtype=np.float64)


def to_nats(share: float, gain: float, *, is_stated: bool) -> Push:
    """The push of lines that have a share of the squares, on an answer with a gain."""
    bounds = STATED_BOUNDS if is_stated else OTHER_BOUNDS
    multiples = STATED_MULTIPLES if is_stated else OTHER_MULTIPLES
    return Push.of_gain(gain, multiples[int(np.searchsorted(bounds[:-1], share, side="right"))])


def together_in_nats(gain: float) -> Push:
    """The push of all lines about the subject that state the answer."""
    return Push.of_gain(gain, TOGETHER_MULTIPLES)


def noise_in_nats(gain: float, *, is_stated: bool) -> float:
    """What 19 in 20 lines that have next to no share stay below."""
    return to_nats(0.0, gain, is_stated=is_stated).high
