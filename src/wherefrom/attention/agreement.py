"""Law against trials: the two must agree, and if they do not, this tool is wrong and says so.

Each number is compared in units of its standard error. The gate is 5: with a handful of numbers
a run, 3 would cry wolf every few dozen runs, 5 about once in a hundred thousand.

A simulated standard error can itself be wrong in one direction. If the law's spread is made by
events rarer than the trials can see, the trials see no spread and claim a precision that they do
not have. Where the law's kurtosis says so, its own standard error is used instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from wherefrom.attention.heads import HeadsLaw
from wherefrom.attention.laws import FIXED, WeightLaw
from wherefrom.attention.trials import Estimate, HeadsTrials, WeightTrials

GATE = 5.0
ROUNDING = 1e-9  # relative: what sums of a million rounded terms may differ by
CANCELLED = 1e-3  # a pair that cancels better than this leaves its error to rare pairs


@dataclass(frozen=True)
class Comparison:
    """One number by both routes, and how many standard errors lie between."""

    quantity: str
    exact: float
    simulated: float
    error: float
    deviations: float


@dataclass(frozen=True)
class Agreement:
    """All comparisons of one run."""

    comparisons: tuple[Comparison, ...]

    @property
    def worst(self) -> Comparison:
        """The comparison that is furthest off."""
        return max(self.comparisons, key=lambda comparison: comparison.deviations)

    @property
    def agrees(self) -> bool:
        """Whether every comparison is within the gate."""
        return self.worst.deviations <= GATE

    @property
    def sentence(self) -> str:
        """What to tell the reader."""
        worst = self.worst
        if self.agrees:
            return (
                f"law and trials agree on {len(self.comparisons)} numbers; "
                f"the furthest is {worst.quantity}, {worst.deviations:.1f} standard errors apart."
            )
        return (
            f"the law says {worst.exact:.9g} for {worst.quantity} and the trials "
            f"{worst.simulated:.9g}, {worst.deviations:.1f} standard errors apart: "
            "that is a failure of this tool, and neither number should be used."
        )


def compare(law: HeadsLaw, trials: HeadsTrials) -> Agreement:
    """Every number that both the law and the trials give."""
    found: list[Comparison] = []
    for head, (exact, seen) in enumerate(zip(law.heads, trials.heads, strict=True), start=1):
        found += _compare_weight(f"head {head}'s", exact, seen, trials.count)
    found += _compare_average(law, trials)
    return Agreement(tuple(found))


def _compare_weight(
    whose: str, law: WeightLaw, seen: WeightTrials, count: int
) -> Iterator[Comparison]:
    rare = _is_rare(law, count)
    least = CANCELLED * law.sd / math.sqrt(count)
    own = law.sd / math.sqrt(count) if rare else least
    yield _judge(f"{whose} mean weight", law.mean, seen.mean, own)
    own = math.sqrt(law.fourth / count) if rare else 0.0
    yield _judge_variance(f"{whose} standard deviation", law.sd, seen.sd, own)
    own = CANCELLED * law.logit_sd / math.sqrt(count)
    yield _judge(f"{whose} mean logit", law.logit_mean, seen.logit_mean, own)
    yield _judge_variance(f"{whose} logit deviation", law.logit_sd, seen.logit_sd, 0.0)
    below = law.p_below_half
    # a weight that is fixed at one half is below it or not by its last bit alone
    if below is not None and law.form != FIXED:
        own = math.sqrt(below * (1 - below) / count) if rare else 0.0
        yield _judge(f"{whose} probability below one half", below, seen.p_below_half, own)


def _compare_average(law: HeadsLaw, trials: HeadsTrials) -> Iterator[Comparison]:
    spread = law.spread()
    rare = any(_is_rare(head, trials.count) for head in law.heads)
    width = 1.0 if spread is None else spread
    own = (1.0 if rare else CANCELLED) * width / math.sqrt(trials.count)
    yield _judge("the average's mean weight on a", law.mean_weights[0], trials.average.mean, own)
    if spread is not None:
        # (x - m)^4 <= (x - m)^2 for weights, so the fourth moment is at most the variance
        own = spread / math.sqrt(trials.count) if rare else 0.0
        yield _judge_variance("the average's standard deviation", spread, trials.average.sd, own)


def _is_rare(law: WeightLaw, count: int) -> bool:
    """Kurtosis above count/1000: fewer than about a thousand trials make the spread."""
    return law.fourth * 1000 > law.sd**4 * count


def _judge_variance(quantity: str, exact: float, seen: Estimate, own: float) -> Comparison:
    """Deviations are compared as variances, whose estimate is the one without bias."""
    error = 2 * seen.value * seen.error
    variance = _judge(quantity, exact**2, Estimate(seen.value**2, error), own)
    return Comparison(quantity, exact, seen.value, seen.error, variance.deviations)


def _judge(quantity: str, exact: float, seen: Estimate, own: float) -> Comparison:
    error = max(seen.error, own)
    difference = max(abs(seen.value - exact) - ROUNDING * max(1.0, abs(exact)), 0.0)
    apart = difference / error if error > 0 else math.inf
    deviations = apart if difference > 0 else 0.0
    return Comparison(quantity, float(exact), seen.value, error, deviations)
