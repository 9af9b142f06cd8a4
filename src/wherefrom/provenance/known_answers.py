"""Numbers taken from the distribution over known answers: entropy, margin, rank, by country.

The outcomes are the k known answers, the answer asked about where it is not one of them, and
anything else; together they have probability 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from wherefrom.provenance.answer_trie import Distribution, entropy_of
from wherefrom.provenance.answers import Floats
from wherefrom.provenance.gazetteer import read_gazetteer

MOSTLY = 0.5  # where fewer of the known answers are places, countries mean nothing


@dataclass
class Countries:
    """The country of each known answer as a number; a place in no gazetteer is its own.

    `names` are the countries if they were looked up before, None where there is none.
    """

    answers: Sequence[str]
    names: Sequence[str | None] | None = None
    _numbers: dict[str, int] = field(default_factory=dict)
    _others: dict[str, int] = field(default_factory=dict)

    @cached_property
    def located(self) -> list[str | None]:
        """The country of each answer; the gazetteer is read when first asked."""
        if self.names is not None:
            return list(self.names)
        places = [read_gazetteer().locate(answer) for answer in self.answers]
        return [place.country if place else None for place in places]

    @cached_property
    def found(self) -> float:
        """The share of the answers that are places."""
        return sum(name is not None for name in self.located) / max(1, len(self.located))

    @cached_property
    def matrix(self) -> Floats:
        """(k, countries) of ones and zeros."""
        pairs = zip(self.located, self.answers, strict=True)
        texts = [f"in {name}" if name is not None else f"at {answer}" for name, answer in pairs]
        columns = [self._numbers.setdefault(text, len(self._numbers)) for text in texts]
        matrix = np.zeros((len(self.answers), len(self._numbers)))
        matrix[np.arange(len(self.answers)), columns] = 1.0
        return matrix

    def of(self, answer: str) -> int:
        """The number of the country of an answer that is not known; -1 for one of its own."""
        if answer not in self._others:
            place = read_gazetteer().locate(answer)
            self._others[answer] = self._numbers.get(f"in {place.country}", -1) if place else -1
        return self._others[answer]


def are_places(answers: Sequence[str]) -> bool:
    """Whether the gazetteer knows most of these answers."""
    return Countries(answers).found >= MOSTLY


def outcomes(distribution: Distribution, position: NDArray[np.intp], scores: Floats) -> Floats:
    """(n, k + 2): known answers, this answer if it is none of them, anything else."""
    known = np.exp(distribution.log_probabilities)
    this = np.where(position < 0, np.exp(scores), 0.0)
    rest = np.maximum(0.0, 1.0 - known.sum(axis=1) - this)
    return np.concatenate((known, this[:, None], rest[:, None]), axis=1)


def others(distribution: Distribution, position: NDArray[np.intp]) -> Floats:
    """log p of the known answers, -inf for the one that is asked about."""
    scores = distribution.log_probabilities.copy()
    rows = np.flatnonzero(position >= 0)
    scores[rows, position[rows]] = -np.inf
    return scores


def margin_of(others: Floats, scores: Floats, floor: float) -> Floats:
    """log p of this answer over that of the likeliest other, which counts as no less than floor."""
    best = others.max(axis=1, initial=-np.inf)
    return np.asarray(scores - np.maximum(best, np.log(floor)))


def rank_of(others: Floats, scores: Floats) -> Floats:
    return np.asarray(1.0 + (others > scores[:, None]).sum(axis=1))


def country_entropy_of(
    masses: Floats, countries: Countries, answers: Sequence[str], position: NDArray[np.intp]
) -> Floats:
    """Entropy by country, one product for all; NaN for all where the answers are not places."""
    if countries.found < MOSTLY:
        return np.full(len(masses), np.nan)
    by_country = masses[:, :-2] @ countries.matrix
    this = masses[:, -2].copy()
    new: list[int] = np.flatnonzero(position < 0).tolist()
    places = {answer: countries.of(answer) for answer in {answers[at] for at in new}}
    for at in new:
        country = places[answers[at]]
        if country >= 0:
            by_country[at, country] += this[at]
            this[at] = 0.0
    return entropy_of(np.concatenate((by_country, this[:, None], masses[:, -1:]), axis=1))
