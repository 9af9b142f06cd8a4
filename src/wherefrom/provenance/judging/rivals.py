"""What our confidence is compared with: scores that others would use, on the same answers.

Each rival gets what ours gets: a threshold with the same guarantee, or else an estimated one, from
the same calibration subjects. More is surer, and all lie between 0 and 1, where the thresholds are;
only two of them claim to be probabilities, and only those can be calibrated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike

from wherefrom.provenance.confidence.guarantee import GRID, guarantee_threshold
from wherefrom.provenance.metrics import Bools, Floats

SUPPORT = "documents_naming"  # the column that counts the documents that name the subject
# likelihoods crowd below 1, so thresholds go on there beyond the grid of the probabilities
FINE_GRID = np.concatenate([1 - np.geomspace(1e-12, 1e-3, 91)[:-1], GRID])


@dataclass(frozen=True, eq=False)
class Score:
    """How sure one method is of each answer, and from where on it would give the answer.

    A rival is a formula of one signal: `column` names the signal and `surer` is the formula.
    Without a threshold, `reason` says why; with one, what a reader must know about it. withheld:
    answers that are not given however sure it is. reads_text: it looks something up.
    """

    name: str
    about: str
    values: Floats = field(default_factory=lambda: np.empty(0))
    threshold: float | None = None
    reason: str | None = None
    probability: bool = True
    ours: bool = False
    withheld: Bools | None = None
    reads_text: bool = False
    column: str = ""
    surer: Callable[[Floats], Floats] = lambda values: values

    def read(self, values: ArrayLike) -> Floats:
        """The score of each value of its signal; a missing one is the least sure."""
        signal = np.asarray(values, dtype=np.float64)
        known = ~np.isnan(signal)
        return np.where(known, self.surer(np.where(known, signal, 0.0)), 0.0)


def _less_spread(entropy: Floats) -> Floats:
    return np.asarray(np.exp(-np.maximum(entropy, 0.0)))


RIVALS = (
    Score(
        "greedy likelihood",
        "the probability that the model gives its own answer, taken as the probability that it "
        "is right",
        column="log_probability",
        surer=lambda values: np.exp(np.minimum(values, 0.0)),
    ),
    Score(
        "predictive entropy",
        "exp(-entropy) of the model's distribution over the known answers",
        column="entropy",
        surer=_less_spread,
        probability=False,
    ),
    Score(
        "semantic entropy",
        "exp(-entropy) of the same distribution added up by country",
        column="country_entropy",
        surer=_less_spread,
        probability=False,
    ),
    Score(
        "name support",
        "n / (n + 1) for the n documents of the text that name the subject; it needs the text",
        column=SUPPORT,
        surer=lambda values: values / (values + 1),
        probability=False,
        reads_text=True,
    ),
)


def rival_scores(
    judged: Mapping[str, ArrayLike],
    calibration: Mapping[str, ArrayLike],
    calibration_correct: ArrayLike,
    *,
    risk: float,
    delta: float,
) -> tuple[list[Score], list[str]]:
    """The rivals whose signals are known, each with its threshold, and notes about the others."""
    scores, notes = [], []
    for rival in RIVALS:
        signal = np.asarray(judged.get(rival.column, ()), dtype=np.float64)
        missing = int(np.isnan(signal).sum())
        if missing == signal.size:
            notes.append(f"{rival.name} is left out: its signal is known for none of the answers.")
            continue
        if missing:
            notes.append(f"{rival.name} is unknown for {missing} answers and least sure of those.")
        known = np.asarray(calibration.get(rival.column, ()), dtype=np.float64)
        found = guarantee_threshold(
            rival.read(known),
            calibration_correct if known.size else (),
            risk=risk,
            delta=delta,
            grid=FINE_GRID,
            probability=False,
        )
        threshold = found.estimate if found.threshold is None else found.threshold
        values = rival.read(signal)
        scores.append(replace(rival, values=values, threshold=threshold, reason=found.reason))
    return scores, notes
