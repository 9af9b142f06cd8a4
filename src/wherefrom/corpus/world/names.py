"""Names of invented people by origin, in Latin letters, and the places of their lives."""

from __future__ import annotations

import importlib
import re
import tomllib
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import NamedTuple

from wherefrom.corpus.documents import ABBREVIATIONS
from wherefrom.corpus.folding import FoldedName, fold, fold_words

_NAMES, _PLACES = (
    tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text(encoding="utf-8"))
    for name in ("names", "places")
)
# Letters, then single spaces, hyphens or apostrophes between letters; the last word is no initial.
_WRITABLE = re.compile(r"(?:[^\W\d_]+[ '-])*[^\W\d_]{2,}")
INITIALS = "ABCDEFGHJKLMNPRSTW"
NAME_SKEW = 2.0  # how much more often common names are given; 1 would make all equally common
WITH_ARTICLE = frozenset(_PLACES["with_article"])
CITY_WEIGHT_EXPONENT = 0.95  # weight of a city: its inhabitants to this power
CAPITAL_WEIGHT = 2.2  # capitals weigh this much more, since many biographies come from there
REGION_SHARE = 0.035  # share of births given as a region, in countries that have some
COUNTRY_SHARE = 0.025  # share given as the country alone


@dataclass(frozen=True)
class Origin:
    """Where a name comes from; names.toml explains the fields."""

    name: str
    locale: str
    share: float
    home: dict[str, float] = field(hash=False)
    lists: str = "gendered"
    script: str = "latin"
    initials: bool = False


ORIGINS = tuple(Origin(**entry) for entry in _NAMES["origins"])


class NameLists(NamedTuple):
    """Names of one origin, common ones first, each as (men's, women's): `given[woman]`."""

    given: tuple[tuple[str, ...], tuple[str, ...]]
    family: tuple[tuple[str, ...], tuple[str, ...]]


@dataclass(frozen=True)
class InventedName:
    """A name in its parts; `full` is how documents and questions write it."""

    given: str
    family: str
    woman: bool
    initial: str = ""

    @property
    def full(self) -> str:
        middle = f" {self.initial}. " if self.initial else " "
        return self.given + middle + self.family


class Register:
    """The names given so far; refuses a name that contains another or is contained in one, so that
    a document that names one person never seems to name another."""

    def __init__(self) -> None:
        self._names: set[FoldedName] = set()
        self._parts: set[FoldedName] = set()

    def enter(self, name: InventedName) -> bool:
        """Keep the name if it is free; return whether it was."""
        words = fold_words(name.full)
        length = len(words)
        parts = {words[i:j] for i in range(length) for j in range(i + 2, length + 1)} - {words}
        if words in self._names or words in self._parts or not parts.isdisjoint(self._names):
            return False
        self._names.add(words)
        self._parts |= parts
        return True


@cache
def read_names(origin: Origin) -> NameLists:
    """The lists of one origin. Cached: they are constants."""
    provider = importlib.import_module(f"faker.providers.person.{origin.locale}").Provider
    given_women, given_men, family_women, family_men = (
        _clean(getattr(provider, field), origin.script) for field in _NAMES["lists"][origin.lists]
    )
    if origin.name == "Icelandic":  # the lists hold fathers' names in the genitive
        family_women = tuple(name + "dóttir" for name in family_women)
        family_men = tuple(name + "son" for name in family_men)
    return NameLists((given_men, given_women), (family_men, family_women))


def _clean(names: Iterable[str], script: str) -> tuple[str, ...]:
    """The names that can be written in Latin letters without ending in an abbreviation.

    Greek and Cyrillic are romanised; Latin is unchanged, but not all in capitals.
    """
    spelling = _NAMES["scripts"].get(script)
    kept = set()
    for name in names:
        name = unicodedata.normalize("NFC", name).strip().replace("’", "'")
        if spelling:
            name = fold(name) if script == "greek" else name.lower()
            for letters, latin in spelling["longer"].items():
                name = name.replace(letters, latin)
            name = name.translate(str.maketrans(spelling["from"], spelling["to"]))
            name = "-".join(part.capitalize() for part in name.split("-"))
        elif name.isupper():
            name = name.capitalize()
        is_latin = all("LATIN" in unicodedata.name(c, "") for c in name if c.isalpha())
        last_word = re.split(r"[ '-]", name)[-1]
        if is_latin and _WRITABLE.fullmatch(name) and last_word not in ABBREVIATIONS:
            kept.add(name)
    ordered = sorted(kept)
    Random("common names first").shuffle(ordered)  # which names are common is invented too
    return tuple(ordered)


def draw_name(origin: Origin, register: Register, rng: Random) -> InventedName:
    """A new name. Short lists run out in a large world; then people get middle initials."""
    lists = read_names(origin)
    for attempt in range(1000):
        woman = rng.random() < 0.45
        parts = lists.given[woman], lists.family[woman]
        given, family = (names[int(len(names) * rng.random() ** NAME_SKEW)] for names in parts)
        initials = attempt // 12 or (origin.initials and rng.random() < 0.2)
        middle = ". ".join(rng.choice(INITIALS) for _ in range(initials))
        name = InventedName(given, family, woman, middle)
        if register.enter(name):
            return name
    raise AssertionError(f"no free {origin.name} name left")


def draw_similar(
    name: InventedName, origin: Origin, register: Register, rng: Random
) -> InventedName | None:
    """The same family name with a similar given name, or with a middle initial; None if taken."""
    alike = [g for g in read_names(origin).given[name.woman] if g[:3] == name.given[:3]]
    other = InventedName(rng.choice(alike) if alike else name.given, name.family, name.woman)
    if rng.random() < 1 / 3 or other.given == name.given:
        other = InventedName(name.given, name.family, name.woman, rng.choice(INITIALS))
    return other if register.enter(other) else None


@dataclass(frozen=True, eq=False)
class Country:
    """A country in which people of the world are born, study, work and die."""

    code: str
    name: str
    adjective: str
    pull: float
    cities: dict[str, int]  # and their inhabitants
    capital: str = ""
    regions: tuple[str, ...] = ()

    def draw_city(self, rng: Random) -> Place:
        return Place(rng.choices(list(self.cities), cum_weights=self._weights)[0], self)

    @cached_property
    def _weights(self) -> list[float]:
        weights = {
            name: inhabitants**CITY_WEIGHT_EXPONENT for name, inhabitants in self.cities.items()
        }
        if self.capital:
            weights[self.capital] *= CAPITAL_WEIGHT
        return list(accumulate(weights.values()))

    def draw_birthplace(self, rng: Random) -> Place:
        """Mostly a city; sometimes a region, or just the country, as in real biographies."""
        draw = rng.random()
        if draw < COUNTRY_SHARE:
            return Place(self.name, self)
        if draw < COUNTRY_SHARE + REGION_SHARE and self.regions:
            return Place(rng.choice(self.regions), self)
        return self.draw_city(rng)


class Place(NamedTuple):
    """A place as answers write it, and the country that it lies in."""

    name: str
    country: Country


COUNTRIES = {entry["code"]: Country(**entry) for entry in _PLACES["countries"]}


def draw_country(rng: Random, weights: dict[str, float] | None = None) -> Country:
    """A country: by the given weights of codes, or by how many people are born there."""
    weights = weights or {code: country.pull for code, country in COUNTRIES.items()}
    return COUNTRIES[rng.choices(list(weights), list(weights.values()))[0]]
