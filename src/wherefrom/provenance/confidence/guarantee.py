"""A threshold with a guarantee: among the answers shown, at most `risk` are wrong.

It is about subjects like those it was made on, and holds with confidence 1 - delta over the luck of
who they were. Thresholds from a grid fixed beforehand are tested from the highest down, each by the
exact binomial tail (the bound of Clopper and Pearson), and the first that fails ends it: so the
choice among many thresholds costs nothing ("learn then test" with fixed-sequence testing;
Angelopoulos et al. 2021). Where unseen subjects are given, a threshold must also pass the test that
at most `unseen_risk` of them are given an answer; since it must pass both, neither costs the other
confidence. Where nothing can be guaranteed, a threshold is estimated, and says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wherefrom.errors import UserError
from wherefrom.provenance.metrics import Answers, Floats

HALF = 0.5  # nothing is shown below, whatever is guaranteed
NEVER = 1.0  # the threshold that no probability reaches
GRID = np.round(np.arange(999, -1, -1) / 1000, 3)  # 0.999, 0.998, ..., 0
SLACK = 3  # testing starts where the test could forgive up to so many wrong answers
MOST = 10_000_000  # subjects beyond which more are not asked for
UNSEEN_RISK = 0.02  # share of unseen subjects that may be given an answer

Counts = NDArray[np.intp]


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """The lowest threshold that is guaranteed, or a sentence why none is, and an estimate.

    given, wrong: answers at the threshold, guaranteed or estimated. bound: the upper confidence
    bound of the share wrong at a guaranteed one. estimate: the threshold to use where none is
    guaranteed. subjects_needed: about how many like these it would take, if known. unseen,
    unseen_given: unseen subjects asked about, and those given an answer at the threshold.
    """

    threshold: float | None
    reason: str | None = None
    risk: float
    delta: float
    subjects: int
    given: int
    wrong: int
    bound: float | None = None
    subjects_needed: int | None = None
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
    grid: Floats = GRID,
    start: float = math.inf,
    display: Callable[[float], float] = float,
    fresh: bool = True,
    what: str = "wrong",
) -> Guarantee:
    """The lowest threshold of the grid at which "at most `risk` wrong" holds with 1 - delta.

    One row per subject, with confidences by fits that the subject took no part in; `fresh` says
    whether they chose nothing else, and where they did nothing is guaranteed. Then a threshold is
    estimated: the lowest with (wrong + 1) / (given + 2) within the risk, and at least 1 - `risk`;
    where there is none, nothing is shown. `unseen`: confidences about unseen subjects. `start`: no
    higher threshold is tested; it must have been chosen on other subjects. `display` turns a
    confidence into the probability that thresholds are given as. `what`: what a wrong answer is.
    """
    for name, value in (("risk", risk), ("delta", delta)):
        if not 0 < value < 1:
            raise UserError(f"the {name} must lie between 0 and 1, not at {value}.")
    answers = Answers(confidence, correct)
    subjects, unknown = len(answers), np.sort(np.asarray(unseen, dtype=np.float64))
    given, wrong = counts_at(answers, grid)
    strangers = unknown.size - np.searchsorted(unknown, grid, side="left")
    tested = np.flatnonzero((given >= starting_count(subjects, risk, delta)) & (grid <= start))
    failed = tail(wrong[tested], given[tested], risk) > delta
    if unknown.size >= fewest_answers(unseen_risk, delta):
        failed |= tail(strangers[tested], unknown.size, unseen_risk) > delta
    passed = tested[: np.argmax(failed)] if failed.any() else tested
    passed = passed if fresh else passed[:0]
    # one wrong answer more and one right one more than there were: so a handful of lucky answers
    # estimates nothing
    within = (wrong + 1 <= risk * (given + 2)) & (strangers <= unseen_risk * unknown.size)
    fits = passed if passed.size else np.flatnonzero(within)
    at = int(fits[-1]) if fits.size else None
    some, bad, met = (0, 0, 0) if at is None else (int(x[at]) for x in (given, wrong, strangers))
    about: dict[str, Any] = {"risk": risk, "delta": delta, "subjects": subjects}
    about |= {"given": some, "wrong": bad, "unseen": unknown.size, "unseen_given": met}
    if passed.size:
        bound = upper_bound(bad, some, delta)
        return Guarantee(threshold=display(float(grid[passed[-1]])), bound=bound, **about)
    estimate = NEVER if at is None else max(display(float(grid[at])), round(1 - risk, 6))
    needed = subjects_needed(given, wrong, subjects, risk, delta)
    why = _why_none(subjects, risk, delta, needed, what, fresh=fresh)
    return Guarantee(
        threshold=None,
        reason=f"{why}; {_what_instead(estimate, risk, some, bad, what)}",
        subjects_needed=needed,
        estimate=estimate,
        **about,
    )


def tail(wrong: ArrayLike, given: ArrayLike, risk: float) -> Floats:
    """How likely so few are wrong among so many, were each wrong with probability `risk`."""
    from scipy.special import bdtr

    return np.asarray(bdtr(np.asarray(wrong, dtype=float), np.asarray(given, dtype=int), risk))


def upper_bound(wrong: int, given: int, delta: float) -> float:
    """Clopper and Pearson's one-sided bound: the largest risk that is not yet refuted."""
    from scipy.special import betaincinv

    return 1.0 if wrong >= given else float(betaincinv(wrong + 1, given - wrong, 1 - delta))


def fewest_answers(risk: float, delta: float, *, wrong: int = 0) -> int:
    """The fewest answers, so many of them wrong, from which `risk` can be guaranteed."""
    from scipy.special import bdtrin

    return math.ceil(bdtrin(wrong, delta, risk) - 1e-9)  # which may be a hair above the integer


def counts_at(answers: Answers, grid: Floats) -> tuple[Counts, Counts]:
    """Answers given and wrong ones among them, from each threshold on."""
    sides = (np.sort(answers.confidence), np.sort(answers.confidence[~answers.correct]))
    given, wrong = (side.size - np.searchsorted(side, grid, side="left") for side in sides)
    return given, wrong


def starting_count(subjects: int, risk: float, delta: float) -> int:
    """How many answers the first tested threshold must give; decided by the number of subjects.

    The fewest that could pass leave no room for one unlucky wrong answer, and a test that fails
    ends all. So it starts lower, where up to SLACK would be forgiven, while that is within a
    third of the subjects.
    """
    counts = [fewest_answers(risk, delta, wrong=wrong) for wrong in range(SLACK + 1)]
    return max([counts[0], *(count for count in counts if count <= subjects / 3)])


def subjects_needed(
    given: Counts, wrong: Counts, subjects: int, risk: float, delta: float
) -> int | None:
    """About how many subjects the best threshold would take, were it to go on as it went here.

    The share wrong is taken as (wrong + 1/2) / (given + 1), so that one right answer alone
    guarantees nothing; for thresholds that are too often wrong no number is enough.
    """
    share = (wrong + 0.5) / (given + 1)
    some, share = given[(given > 0) & (share < risk)], share[(given > 0) & (share < risk)]
    if not some.size:
        return None
    low, high = np.zeros(some.size), np.full(some.size, float(MOST))
    while (high - low > 1).any():  # the fewest answers for each threshold, by halving
        middle = np.floor((low + high) / 2)
        enough = tail(np.floor(share * middle), middle, risk) <= delta
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    needed = math.ceil(float((high * subjects / some).min()))
    return needed if needed < MOST else None


def _what_instead(estimate: float, risk: float, given: int, wrong: int, what: str) -> str:
    if not given:
        return "nor can one be estimated, so that no answer is shown."
    return (
        f"answers are shown from {estimate:.3g} on, where by estimate, not by guarantee, at most "
        f"{100 * risk:.3g} % are {what} ({wrong} of {given} were)."
    )


def _why_none(
    subjects: int, risk: float, delta: float, needed: int | None, what: str, *, fresh: bool
) -> str:
    least = fewest_answers(risk, delta)
    goal = f'"at most {risk:.1%} {what}" with {1 - delta:.0%} confidence'
    none = f"no threshold can guarantee {goal} on {subjects} subjects"
    if not fresh:
        return f"{none}: too few to fit a confidence on some and test it on {least} others"
    if needed is not None and needed > subjects:
        return f"{none}; about {needed} like them would be needed"
    if needed is not None:
        return f"{none}: too many of the surest answers are {what}; more subjects may help"
    if subjects < least:
        return f"{none}; it takes at least {least} answers, even if none of them is {what}"
    return f"{none}: at every threshold too many answers are {what} for more subjects to help"
