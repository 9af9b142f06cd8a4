"""From which probability on answers are shown: guaranteed, or estimated where subjects are few.

The guarantee: among the answers shown, at most a share of `risk` is wrong. It holds for subjects
like those that it was tested on, with confidence 1 - delta over which of them were drawn. The
probabilities are tested downwards by `wherefrom.provenance.guarantee`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from wherefrom.errors import UserError
from wherefrom.provenance.confidence.calibration import Number
from wherefrom.provenance.guarantee import Guarantee, fewest_answers

DELTA = 0.05  # how often a guarantee may fail
ESTIMATE_DELTA = 0.25  # the same for an estimate: 27 answers without a mistake at a risk of 5 %
HALF = 0.5  # no answer below is shown, whatever is guaranteed
NEVER_REACHED = 1.0  # the threshold that no probability reaches
UNSEEN_RISK = 0.01  # share of answers about unseen subjects that may be shown
Flag = Annotated[bool, Field(strict=True)]


@dataclass(frozen=True)
class HeldOutScores:
    """The answers that test thresholds, with probabilities by fits without their subjects.

    confidence: negative for an answer that is never shown. hits: whether it is right, or from the
    text. subjects: a number for each. unseen: the probabilities of answers about unseen subjects.
    """

    confidence: tuple[Number, ...]
    hits: tuple[Flag, ...]
    subjects: tuple[int, ...]
    unseen: tuple[Number, ...]

    def __post_init__(self) -> None:
        if not len(self.confidence) == len(self.hits) == len(self.subjects):
            raise ValueError("every testing answer has a probability, a grade and a subject")


@dataclass(frozen=True, kw_only=True)
class TestedThreshold:
    """The lowest threshold that is guaranteed, or the reason why none is, and an estimate.

    subjects: how many tested it. given, wrong: how many answers are shown at the threshold,
    guaranteed or estimated, and how many of them are wrong. bound: the upper confidence bound of
    the share wrong, if guaranteed. estimate: the threshold to use if none is guaranteed.
    """

    threshold: float | None
    reason: str | None = None
    risk: float
    delta: float = DELTA
    subjects: int
    given: int
    wrong: int
    bound: float | None = None
    estimate: float | None = None

    @property
    def used(self) -> float:
        """The threshold from which on answers are shown: the guaranteed or the estimated one."""
        threshold = self.estimate if self.threshold is None else self.threshold
        return NEVER_REACHED if threshold is None else max(HALF, threshold)


def find_threshold(
    testers: HeldOutScores, *, risk: float, unseen_risk: float = UNSEEN_RISK, what: str = "wrong"
) -> TestedThreshold:
    """The lowest threshold at which "at most `risk` wrong" holds with confidence 1 - DELTA.

    A threshold must also give at most `unseen_risk` of the unseen, or one of them, an answer; this
    is tested, not guaranteed. If no threshold passes, one is estimated: the lowest that would pass
    with ESTIMATE_DELTA, and at least 1 - risk. what: the word for an error.
    """
    if not 0 < risk < 1:
        raise UserError(f"the risk must lie between 0 and 1, not at {risk}.")
    confidence, hits, unseen = map(np.array, (testers.confidence, testers.hits, testers.unseen))
    subjects, misses = np.array(testers.subjects), ~hits.astype(bool)
    most_unseen = max(1, int(unseen_risk * unseen.size))
    lowest = HALF  # that the unseen allow: just above the first of them that is too many
    if unseen.size > most_unseen:
        lowest = max(HALF, math.nextafter(np.sort(unseen)[-most_unseen - 1], math.inf))
    graded = (confidence, misses, subjects)
    found = Guarantee(risk=risk, confidence=1 - DELTA).fit(*graded, least=HALF)
    is_guaranteed = found.shown_ > 0 and lowest <= found.first_
    if is_guaranteed:
        found.fit(*graded, least=lowest)
        used = found.threshold
    else:
        likely = Guarantee(risk=risk, confidence=1 - ESTIMATE_DELTA).fit(*graded, least=HALF)
        used = min(NEVER_REACHED, max(likely.threshold, lowest, 1 - risk))
    shown = confidence >= used
    given, wrong = int(shown.sum()), int((shown & misses).sum())
    about: dict[str, Any] = {"risk": risk, "given": given, "wrong": wrong}
    about["subjects"] = np.unique(subjects).size
    if is_guaranteed:
        return TestedThreshold(threshold=used, bound=found.bound, **about)
    first = confidence >= found.first_
    why = f"{int((first & misses).sum())} of the {int(first.sum())} surest answers are {what}"
    if found.shown_:
        why = (
            f"{int((unseen >= found.first_).sum())} of {unseen.size} unseen subjects would get one"
        )
        why += f", and {most_unseen} may"
    reason = (
        f'no threshold can guarantee "at most {risk:.1%} {what}" with {1 - DELTA:.0%} confidence '
        f"on {about['subjects']} subjects ({why}; at least {fewest_answers(risk, DELTA)} answers "
        f"are needed, more if some are {what}); "
    )
    reason += (
        f"answers are shown from {used:.3g} on, by estimate ({wrong} of {given} are {what})."
        if given
        else "no answer is shown."
    )
    return TestedThreshold(threshold=None, reason=reason, estimate=used, **about)
