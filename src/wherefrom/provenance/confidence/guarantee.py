"""A threshold with a promise: among the answers given, at most `risk` wrong.

The promise is about people like those it was made on, and holds with confidence 1 - delta over
the luck of who they were. Thresholds from a grid fixed beforehand are tested from the highest
down, each by the exact binomial tail (the bound of Clopper and Pearson), and the first that
fails ends it: so the choice among many thresholds costs nothing ("learn then test", with
fixed-sequence testing; Angelopoulos et al. 2021). The proof for our starting point, and what
the promise does not say: docs/calibration.md.

Where nothing can be promised, a threshold is estimated, and says of itself that it is no promise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from wherefrom.errors import UserError
from wherefrom.provenance.judging.metrics import Answers, Floats

GRID = np.round(np.arange(999, -1, -1) / 1000, 3)  # 0.999, 0.998, ..., 0
SLACK = 3  # testing starts where the test could forgive up to so many wrong answers
MOST = 10_000_000  # people beyond which nobody is told to look for more


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """The lowest threshold that can be promised, or a sentence why none can, and an estimate.

    given and wrong are those at the threshold, promised or estimated; bound: the upper confidence
    bound of the share wrong among answers given at a promised one; estimate: the threshold to use
    where none is promised; people_needed: about how many calibration people like these a promise
    would take, if known.
    """

    threshold: float | None
    reason: str | None
    risk: float
    delta: float
    people: int
    given: int
    wrong: int
    bound: float | None
    people_needed: int | None
    estimate: float | None = None

    @property
    def used(self) -> float:
        """From which confidence on answers are told: as promised, or else as estimated."""
        if self.threshold is not None:
            return self.threshold
        return 1 - self.risk if self.estimate is None else self.estimate


def fewest_answers(risk: float, delta: float, *, wrong: int = 0) -> int:
    """The fewest answers, so many of them wrong, from which `risk` can be promised."""
    low, high = wrong, wrong + 1
    while tail(wrong, high, risk) > delta:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if tail(wrong, middle, risk) > delta else (low, middle)
    return high


def tail(wrong: int, given: int, risk: float) -> float:
    """How likely so few are wrong among so many, were each wrong with probability `risk`."""
    from scipy.special import bdtr

    return float(bdtr(wrong, given, risk)) if given else 1.0


def upper_bound(wrong: int, given: int, delta: float) -> float:
    """Clopper and Pearson's one-sided bound: the largest risk that is not yet refuted."""
    from scipy.special import betaincinv

    return 1.0 if wrong >= given else float(betaincinv(wrong + 1, given - wrong, 1 - delta))


def guarantee_threshold(
    confidence: ArrayLike,
    correct: ArrayLike,
    *,
    risk: float = 0.05,
    delta: float = 0.05,
    grid: Floats = GRID,
    probability: bool = True,
) -> Guarantee:
    """The lowest threshold of the grid at which "at most `risk` wrong" holds with 1 - delta.

    One row a person, and confidences of people who took no part in fitting them. Where nothing
    can be promised a threshold is estimated (`estimated_place`); where too few answers are given
    for that too, it is 1 - `risk` for a confidence that is a probability, else there is none.
    """
    for name, value in (("risk", risk), ("delta", delta)):
        if not 0 < value < 1:
            raise UserError(f"the {name} must lie between 0 and 1, not at {value}.")
    if not (np.diff(grid) < 0).all():
        raise UserError("thresholds must be tested from the highest down, each once.")
    answers = Answers(confidence, correct)
    given, wrong = counts_at(answers, grid)
    start = starting_count(len(answers), risk, delta)
    chosen = None
    for at in np.flatnonzero(np.array(given) >= start).tolist():
        if tail(wrong[at], given[at], risk) > delta:
            break
        chosen = at
    if chosen is not None:
        return Guarantee(
            threshold=float(grid[chosen]),
            reason=None,
            risk=risk,
            delta=delta,
            people=len(answers),
            given=given[chosen],
            wrong=wrong[chosen],
            bound=upper_bound(wrong[chosen], given[chosen], delta),
            people_needed=None,
        )
    needed = people_needed(given, wrong, len(answers), risk, delta)
    guess = estimated_place(given, wrong, risk)
    some, bad = (0, 0) if guess is None else (given[guess], wrong[guess])
    believed = round(1 - risk, 6) if probability else None
    estimate = believed if guess is None else float(grid[guess])
    reason = why_none(len(answers), risk, delta, needed)
    return Guarantee(
        threshold=None,
        reason=f"{reason}; {what_instead(estimate, risk, some, bad)}",
        risk=risk,
        delta=delta,
        people=len(answers),
        given=some,
        wrong=bad,
        bound=None,
        people_needed=needed,
        estimate=estimate,
    )


def estimated_place(given: list[int], wrong: list[int], risk: float) -> int | None:
    """The lowest threshold at which (wrong + 1) / (given + 2) is within the risk, by its place.

    One wrong answer more and one right one more than there were: so a handful of lucky answers
    estimates nothing.
    """
    places = range(len(given))
    fits = [at for at in places if wrong[at] + 1 <= risk * (given[at] + 2)]
    return max(fits, default=None)


def what_instead(estimate: float | None, risk: float, given: int, wrong: int) -> str:
    """What is done where nothing is promised."""
    if estimate is None:
        return "nor can one be estimated."
    if not given:
        return (
            f"nothing can be estimated either, so answers are told from a confidence of "
            f"{estimate:.3g} on."
        )
    return (
        f"answers are told from {estimate:.3g} on, where by estimate, not by promise, at most "
        f"{100 * risk:.3g} % are wrong ({wrong} of {given} were)."
    )


def counts_at(answers: Answers, grid: Floats) -> tuple[list[int], list[int]]:
    """Answers given and wrong ones among them, from each threshold on."""
    everyone = np.sort(answers.confidence)
    wrong = np.sort(answers.confidence[~answers.correct])
    counts = [side.size - np.searchsorted(side, grid, side="left") for side in (everyone, wrong)]
    return counts[0].tolist(), counts[1].tolist()


def starting_count(people: int, risk: float, delta: float) -> int:
    """How many answers the first tested threshold must give; decided by the number of people.

    The fewest that could pass leave no room for one unlucky wrong answer, and a test that fails
    ends all. So it starts lower, where up to SLACK would be forgiven, while that is within a
    third of the people.
    """
    counts = [fewest_answers(risk, delta, wrong=wrong) for wrong in range(SLACK + 1)]
    return max([counts[0], *(count for count in counts if count <= people / 3)])


def people_needed(
    given: list[int], wrong: list[int], people: int, risk: float, delta: float
) -> int | None:
    """About how many people the best threshold would take, were it to go on as it went here.

    The share wrong is taken as (wrong + 1/2) / (given + 1), so that one right answer alone
    promises nothing; thresholds that are too often wrong need no number of people.
    """
    from scipy.special import bdtr

    tables = {(some, bad) for some, bad in zip(given, wrong, strict=True) if some}
    hopeful = [pair for pair in sorted(tables) if (pair[1] + 0.5) / (pair[0] + 1) < risk]
    if not hopeful:
        return None
    some, bad = np.array(hopeful, dtype=np.float64).T
    share = (bad + 0.5) / (some + 1)
    low, high = np.zeros(some.size), np.full(some.size, float(MOST))
    while (high - low > 1).any():  # the fewest answers for each threshold, by halving
        middle = np.floor((low + high) / 2)
        enough = bdtr(np.floor(share * middle), middle.astype(int), risk) <= delta
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    needed = math.ceil(float((high * people / some).min()))
    return needed if needed < MOST else None


def why_none(people: int, risk: float, delta: float, needed: int | None) -> str:
    least = fewest_answers(risk, delta)
    promise = f'"at most {risk:.1%} wrong" with {1 - delta:.0%} confidence'
    said = f"no threshold can promise {promise} on {people} people"
    if needed is not None and needed > people:
        return f"{said}; about {needed} like them would be needed"
    if needed is not None:
        return f"{said}: too many of the surest answers are wrong; more people may mend it"
    if people < least:
        return f"{said}; it takes at least {least} answers, even if none of them is wrong"
    return f"{said}: at every threshold too many answers are wrong for more people to mend it"
