"""What our confidence must be compared with: scores that others would use, on the same answers.

Each rival gets what ours gets: a threshold with the same promise, or where none can be made an
estimated one, from the same calibration people. Scores are written so that more is surer and so
that they lie between 0 and 1, where the thresholds are; only two of them claim to be
probabilities, and only those can be calibrated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from wherefrom.provenance.confidence.guarantee import GRID, guarantee_threshold
from wherefrom.provenance.judging.metrics import Bools, Floats

SUPPORT = "documents_naming"  # the column that counts the documents that name the subject
# likelihoods crowd below 1, so thresholds go on there beyond the grid of the probabilities
FINE_GRID = np.concatenate([1 - np.geomspace(1e-12, 1e-3, 91)[:-1], GRID])


@dataclass(frozen=True, eq=False)
class Score:
    """How sure one method is of each answer, and from where on it would give the answer.

    Without a threshold, `reason` says why; with one, what a reader must know about it.
    """

    name: str
    about: str
    values: Floats
    threshold: float | None
    reason: str | None = None
    probability: bool = True
    ours: bool = False
    withheld: Bools | None = None  # answers that are not given however sure it is
    reads_text: bool = False  # it looks the person or the answer up


@dataclass(frozen=True)
class Rival:
    """A rival as a formula of one signal."""

    name: str
    about: str
    column: str
    surer: Callable[[Floats], Floats]
    probability: bool = False
    reads_text: bool = False


RIVALS: tuple[Rival, ...] = (
    Rival(
        "greedy likelihood",
        "the probability that the model gives its own answer, taken as the probability that it "
        "is right",
        "log_probability",
        lambda values: np.exp(np.minimum(values, 0.0)),
        probability=True,
    ),
    Rival(
        "predictive entropy",
        "exp(-entropy) of the model's distribution over the known answers",
        "entropy",
        lambda values: np.exp(-np.maximum(values, 0.0)),
    ),
    Rival(
        "semantic entropy",
        "exp(-entropy) of the same distribution added up by country",
        "country_entropy",
        lambda values: np.exp(-np.maximum(values, 0.0)),
    ),
    Rival(
        "name support",
        "n / (n + 1) for the n documents of the text that name the subject; it needs the text",
        SUPPORT,
        lambda values: values / (values + 1),
        reads_text=True,
    ),
)


def always_answer(people: int) -> Score:
    """The model as it is: every answer is given, and none is doubted."""
    return Score(
        name="always answer",
        about="every answer is given and taken for certain",
        values=np.ones(people),
        threshold=0.0,
    )


def rival_scores(
    judged: Mapping[str, ArrayLike],
    calibration: Mapping[str, ArrayLike],
    calibration_correct: ArrayLike,
    *,
    risk: float,
    delta: float,
    rivals: Sequence[Rival] = RIVALS,
) -> tuple[list[Score], list[str]]:
    """The rivals that can be had from these signals, and a sentence about each that cannot.

    A value that is missing for one answer makes the rival least sure of it.
    """
    scores, notes = [], []
    for rival in rivals:
        mine = np.asarray(judged.get(rival.column, ()), dtype=np.float64)
        if not np.isfinite(mine).any() and not np.isneginf(mine).any():
            notes.append(f"{rival.name} is left out: its signal is known for none of the answers.")
            continue
        missing = int(np.isnan(mine).sum())
        if missing:
            notes.append(f"{rival.name} is unknown for {missing} answers and least sure of those.")
        theirs = np.asarray(calibration.get(rival.column, ()), dtype=np.float64)
        promise = guarantee_threshold(
            _surer(rival, theirs),
            calibration_correct if theirs.size else (),
            risk=risk,
            delta=delta,
            grid=FINE_GRID,
            probability=False,
        )
        scores.append(
            Score(
                name=rival.name,
                about=rival.about,
                values=_surer(rival, mine),
                threshold=promise.estimate if promise.threshold is None else promise.threshold,
                reason=promise.reason,
                probability=rival.probability,
                reads_text=rival.reads_text,
            )
        )
    return scores, notes


def _surer(rival: Rival, values: Floats) -> Floats:
    return np.where(np.isnan(values), 0.0, rival.surer(np.where(np.isnan(values), 0.0, values)))
