"""Which origin a name sounds like, by its letters, and how often such a judgement is right.

The origins and their names are those of the embedded world (Faker's lists): for a name of a real
person they are all that is known, so the origin is the one whose names' letters fit best.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from wherefrom.corpus.world.names import Register, draw_name, read_names
from wherefrom.corpus.world.origins import ORIGINS, Origin

EACH = 150  # names of each origin that the classifier learns from
HELD_OUT = 0.2  # share of given and of family names that the first fit does not see
TRIES = 50  # draws for one free name before an origin is taken to have no more


@dataclass(frozen=True)
class NamedOrigin:
    """An invented name and where it comes from."""

    name: str
    origin: Origin


@dataclass(frozen=True)
class OriginGuesser:
    """Naive Bayes on the letters of a name, with its accuracy on names made of unknown words.

    exact: share of held-out names given their own origin; home: share given an origin that has
    a country in common with it (American and English, German and French ...).
    """

    classifier: Any
    exact: float
    home: float
    held_out: int

    def guess(self, names: Sequence[str]) -> list[Origin]:
        by_name = {origin.name: origin for origin in ORIGINS}
        return [by_name[str(found)] for found in self.classifier.predict(list(names))]

    def to_dict(self) -> dict[str, float | int | str]:
        return {
            "about": "naive Bayes on the letters of invented names, every origin equally likely; "
            "accuracy is measured on names made of words that it did not learn from",
            "exact": self.exact,
            "shares_a_country": self.home,
            "held_out": self.held_out,
            "origins": len(ORIGINS),
        }


def draw_names(
    each: int, rng: random.Random, *, refuse: Callable[[str], bool] = lambda _: False
) -> list[NamedOrigin]:
    """Up to `each` new names of every origin; `refuse(name)` turns down what is not to be used."""
    register = Register()
    drawn = []
    for origin in ORIGINS:
        left, tries = each, each * TRIES
        while left and tries:
            tries -= 1
            name = draw_name(origin, register, rng).full
            if not refuse(name):
                drawn.append(NamedOrigin(name, origin))
                left -= 1
    return drawn


@cache
def fit_guesser(seed: int, *, each: int = EACH) -> OriginGuesser:
    """Fit twice: on a part of the words, to be judged on the others, then on all of them.

    Cached: the lists are constants.
    """
    rng = random.Random(f"origins of names {seed}")
    learned: list[NamedOrigin] = []
    unknown: list[NamedOrigin] = []
    for origin in ORIGINS:
        known, other = _split_words(origin, rng)
        learned += _combine(origin, known, each, rng)
        unknown += _combine(origin, other, max(1, each // 5), rng)
    judged = OriginGuesser(_fit(learned), 0.0, 0.0, 0)
    guesses = judged.guess([one.name for one in unknown])
    pairs = [(one.origin, guess) for one, guess in zip(unknown, guesses, strict=True)]
    everything = [one for o in ORIGINS for one in _combine(o, _words(o), each, rng)]
    return OriginGuesser(
        classifier=_fit(everything),
        exact=sum(own == guess for own, guess in pairs) / len(pairs),
        home=sum(not own.home.keys().isdisjoint(guess.home) for own, guess in pairs) / len(pairs),
        held_out=len(pairs),
    )


def _fit(names: Sequence[NamedOrigin]) -> Any:
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.naive_bayes import MultinomialNB
    from sklearn.pipeline import make_pipeline

    classifier = make_pipeline(
        CountVectorizer(analyzer="char_wb", ngram_range=(1, 4), lowercase=True),
        MultinomialNB(alpha=0.1, fit_prior=False),
    )
    return classifier.fit([one.name for one in names], [one.origin.name for one in names])


Words = tuple[list[str], list[str]]  # given names, family names


def _words(origin: Origin) -> Words:
    lists = read_names(origin)
    return (
        sorted({*lists.given_women, *lists.given_men}),
        sorted({*lists.family_women, *lists.family_men}),
    )


def _split_words(origin: Origin, rng: random.Random) -> tuple[Words, Words]:
    kept, held = [], []
    for words in _words(origin):
        rng.shuffle(words)
        cut = max(1, round(len(words) * HELD_OUT))
        held.append(words[:cut])
        kept.append(words[cut:] or words[:cut])
    return (kept[0], kept[1]), (held[0], held[1])


def _combine(origin: Origin, words: Words, each: int, rng: random.Random) -> list[NamedOrigin]:
    """Up to `each` names in which every word comes as often as every other, or not at all."""
    given, family = (rng.sample(part, len(part)) for part in words)
    count = min(each, max(len(given), len(family)))
    pairs = (f"{given[at % len(given)]} {family[at % len(family)]}" for at in range(count))
    return [NamedOrigin(name, origin) for name in pairs]
