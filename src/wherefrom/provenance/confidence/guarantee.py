"""A threshold with a guarantee: among the answers shown, at most `risk` are wrong.

It is about subjects like those it was made on, and holds with confidence 1 - delta over the luck of
who they were. Thresholds of a fixed grid are tested downwards from a start that no grade has
chosen, each by the exact binomial tail (the bound of Clopper and Pearson), and the first failure
ends it, so that trying many costs nothing (fixed-sequence testing; Angelopoulos et al. 2021).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from wherefrom.errors import UserError
from wherefrom.provenance.metrics import Floats

HALF = 0.5  # nothing is shown below, whatever is guaranteed
NEVER = 1.0  # the threshold that no probability reaches
GRID = np.round(np.arange(999, 499, -1) / 1000, 3)  # 0.999, 0.998, ..., 0.5
LIKELY = 0.25  # the delta of an estimate: 27 answers without a mistake at a risk of 5 %
UNSEEN_RISK = 0.01  # share of unseen subjects that may be given an answer


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """The lowest threshold that is guaranteed, or a sentence why none is, and an estimate.

    given, wrong: answers at the threshold, guaranteed or estimated. bound: the upper confidence
    bound of the share wrong at a guaranteed one. estimate: the threshold to use where none is
    guaranteed. unseen, unseen_given: unseen subjects, and those given an answer at the threshold.
    """

    threshold: float | None
    reason: str | None = None
    risk: float
    delta: float
    subjects: int
    given: int
    wrong: int
    bound: float | None = None
    estimate: float | None = None
    unseen: int = 0
    unseen_given: int = 0

    @property
    def used(self) -> float:
        """From which confidence on answers are shown: as guaranteed, or else as estimated."""
        found = self.estimate if self.threshold is None else self.threshold
        return NEVER if found is None else max(HALF, found)


def guarantee_threshold(
    confidence: ArrayLike,
    correct: ArrayLike,
    *,
    risk: float = 0.05,
    delta: float = 0.05,
    unseen: ArrayLike = (),
    unseen_risk: float = UNSEEN_RISK,
    what: str = "wrong",
) -> Guarantee:
    """The lowest threshold at which "at most `risk` wrong" holds with confidence 1 - delta.

    One row per subject, with probabilities by fits without it; below 0 for what is never shown.
    A threshold must also give at most `unseen_risk` of the `unseen`, or one, an answer (of these;
    it is not guaranteed of others). Where none passes, one is estimated: the lowest that would pass
    with delta = LIKELY, and at least 1 - risk; if there is none, nothing is shown. `what` an error
    is.
    """
    for name, value in (("risk", risk), ("delta", delta)):
        if not 0 < value < 1:
            raise UserError(f"the {name} must lie between 0 and 1, not at {value}.")
    sure, hits = np.asarray(confidence, dtype=np.float64), np.asarray(correct, dtype=np.bool_)
    others = np.asarray(unseen, dtype=np.float64)
    given, wrong, strangers = (count_from(each) for each in (sure, sure[~hits], others))
    # where the probabilities themselves, and no grade, give the best hope of passing both tests
    doubt = np.array([(1 - sure[sure >= at]).sum() for at in GRID])
    allowed = max(1.0, unseen_risk * others.size)
    failing = tail(np.floor(doubt), given, risk)
    if others.size >= fewest_answers(unseen_risk, delta):
        failing += np.floor(doubt * others.size / max(1, sure.size)) > allowed
    failed = (tail(wrong, given, risk) > delta) | (strangers > allowed)
    start = int(np.argmin(failing))
    ended = start + int(np.argmax(np.append(failed[start:], True)))
    within = (tail(wrong, given, risk) <= LIKELY) & (strangers <= allowed)
    at = ended - 1 if ended > start else int(within.nonzero()[0].max(initial=-1))
    about: dict[str, Any] = {"risk": risk, "delta": delta, "subjects": sure.size}
    some, bad, met = (int(x[at]) if at >= 0 else 0 for x in (given, wrong, strangers))
    about |= {"given": some, "wrong": bad, "unseen": others.size, "unseen_given": met}
    if ended > start:
        return Guarantee(threshold=float(GRID[at]), bound=upper_bound(bad, some, delta), **about)
    estimate = NEVER if at < 0 else max(float(GRID[at]), round(1 - risk, 6))
    least = f"{GRID[start]:.3g}"
    why = f"{int(wrong[start])} of {int(given[start])} answers from {least} on are {what}; "
    why += f"it takes at least {fewest_answers(risk, delta)}"
    if tail(wrong[start], given[start], risk) <= delta:  # the other test failed
        why = f"{int(strangers[start])} of {others.size} unseen subjects have {least} or more; "
        why += f"{int(allowed)} may"
    reason = (
        f'no threshold can guarantee "at most {risk:.1%} {what}" with {1 - delta:.0%} confidence '
        f"on {sure.size} subjects ({why}); "
    )
    reason += (
        f"answers are shown from {estimate:.3g} on, by estimate ({bad} of {some} are {what})."
        if some
        else "nor can one be estimated, so that no answer is shown."
    )
    return Guarantee(threshold=None, reason=reason, estimate=estimate, **about)


def count_from(values: Floats) -> Floats:
    """How many values there are from each threshold of the grid on."""
    return np.asarray(values.size - np.searchsorted(np.sort(values), GRID, side="left"))


def tail(wrong: ArrayLike, given: ArrayLike, risk: float) -> Floats:
    """How likely so few are wrong among so many, were each wrong with probability `risk`."""
    from scipy.special import bdtr

    return np.asarray(bdtr(np.asarray(wrong, dtype=float), np.asarray(given, dtype=int), risk))


def upper_bound(wrong: int, given: int, delta: float) -> float:
    """Clopper and Pearson's one-sided bound: the largest risk that is not yet refuted."""
    from scipy.special import betaincinv

    return 1.0 if wrong >= given else float(betaincinv(wrong + 1, given - wrong, 1 - delta))


def fewest_answers(risk: float, delta: float) -> int:
    """The fewest answers, none of them wrong, from which `risk` can be guaranteed."""
    return math.ceil(math.log(delta) / math.log1p(-risk) - 1e-9)
