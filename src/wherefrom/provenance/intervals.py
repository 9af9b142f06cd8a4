"""How far a number may be off: the paired bootstrap over people.

A resample is a row of weights: how often each person was drawn. The same rows serve every
measure and every score, so two scores are compared on the same draws of the same people and
what they share cancels out. Seen and unseen people are drawn apart, since how many of each
there are was decided by us and is not chance.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import count

import numpy as np

from wherefrom.errors import UserError
from wherefrom.provenance.answers import Answers, Floats
from wherefrom.provenance.metrics import Measure, Metric

RESAMPLES = 1000
LEVEL = 0.95
DEFINED = 0.9  # an interval needs this share of the resamples; the others leave it undefined
CELLS = 2_000_000  # weights held at once, so that many people do not need much memory


def resample_weights(
    answers: Answers, rng: np.random.Generator, *, resamples: int = RESAMPLES
) -> Iterator[Floats]:
    """Weights in blocks of shape (r, n): each row draws as many people as there are."""
    people = len(answers)
    strata = [np.arange(people)]
    if answers.seen is not None:
        strata = [np.flatnonzero(answers.seen), np.flatnonzero(~answers.seen)]
    block = max(1, CELLS // max(1, people))
    for done in count(step=block):
        rows = min(block, resamples - done)
        if rows <= 0:
            return
        weights = np.zeros((rows, people))
        for members in strata:
            if members.size:
                draws = rng.integers(members.size, size=(rows, members.size))
                cells = draws + members.size * np.arange(rows)[:, None]
                counts = np.bincount(cells.ravel(), minlength=rows * members.size)
                weights[:, members] = counts.reshape(rows, members.size)
        yield weights


def measure_with_intervals(
    measures: Iterable[Measure],
    answers: Answers,
    rng: np.random.Generator,
    *,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
) -> dict[str, Metric]:
    """Each measure by its name, with the central `level` of its values over the resamples."""
    check_level(level, resamples)
    measures = list(measures)
    points = {measure.name: measure(answers) for measure in measures}
    defined = [measure for measure in measures if points[measure.name].value is not None]
    if defined:
        drawn: dict[str, list[Floats]] = {measure.name: [] for measure in defined}
        for weights in resample_weights(answers, rng, resamples=resamples):
            for measure in defined:
                drawn[measure.name].append(measure.values(answers, weights))
        for name, values in drawn.items():
            points[name] = with_interval(points[name], np.concatenate(values), level)
    return points


def paired_difference(
    measure: Measure,
    first: Answers,
    second: Answers,
    rng: np.random.Generator,
    *,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
) -> Metric:
    """measure(first) - measure(second), where row i of both is the same person's same answer."""
    check_level(level, resamples)
    same_seen = (first.seen is None) == (second.seen is None) and (
        first.seen is None or second.seen is None or np.array_equal(first.seen, second.seen)
    )
    if not np.array_equal(first.correct, second.correct) or not same_seen:
        raise UserError(
            "two scores can be compared only on the same answers of the same people, and these"
            " differ in who was asked, who was right or who was seen."
        )
    one, other = measure(first), measure(second)
    if one.value is None or other.value is None:
        return Metric(value=None, reason=one.reason if one.value is None else other.reason)
    differences = [
        measure.values(first, weights) - measure.values(second, weights)
        for weights in resample_weights(first, rng, resamples=resamples)
    ]
    return with_interval(Metric(value=one.value - other.value), np.concatenate(differences), level)


def with_interval(point: Metric, values: Floats, level: float) -> Metric:
    """The point with the central `level` of the resampled values, those that are defined."""
    defined = values[np.isfinite(values)]
    if defined.size < DEFINED * values.size:
        sentence = "no interval: too many resamples of so few people leave it undefined."
        return replace(point, reason=" ".join(filter(None, (point.reason, sentence))))
    low, high = np.quantile(defined, ((1 - level) / 2, (1 + level) / 2))
    return replace(point, low=float(low), high=float(high))


def check_level(level: float, resamples: int) -> None:
    if not 0 < level < 1:
        raise UserError(f"the level of an interval must lie between 0 and 1, not at {level}.")
    if resamples < 1:
        raise UserError(f"an interval needs at least one resample, not {resamples}.")
