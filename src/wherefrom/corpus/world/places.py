"""Places of the embedded world: real cities with a realistic skew, some regions and countries."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from random import Random

_DATA = tomllib.loads(Path(__file__).with_name("places.toml").read_text(encoding="utf-8"))
WITH_ARTICLE = frozenset(_DATA["with_article"])
TEMPER = 0.95  # weight of a city: its inhabitants to this power
CAPITAL = 2.2  # capitals weigh this much more, since many biographies come from there
AS_REGION = 0.035  # share of births given as a region, in countries that have some
AS_COUNTRY = 0.025  # share given as the country alone


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
        return rng.choices(_CITIES[self.code], cum_weights=_WEIGHTS[self.code])[0]

    def draw_birthplace(self, rng: Random) -> Place:
        """Mostly a city; sometimes a region, or just the country, as in real biographies."""
        kind = rng.random()
        if kind < AS_COUNTRY:
            return Place(self.name, self)
        if kind < AS_COUNTRY + AS_REGION and self.regions:
            return Place(rng.choice(self.regions), self)
        return self.draw_city(rng)


@dataclass(frozen=True)
class Place:
    """A place as answers write it, and the country that it lies in."""

    name: str
    country: Country


COUNTRIES = {entry["code"]: Country(**entry) for entry in _DATA["countries"]}
_CITIES = {code: [Place(n, land) for n in land.cities] for code, land in COUNTRIES.items()}
_PULL = {code: country.pull for code, country in COUNTRIES.items()}
_WEIGHTS = {
    code: list(
        accumulate(
            people**TEMPER * (CAPITAL if name == country.capital else 1)
            for name, people in country.cities.items()
        )
    )
    for code, country in COUNTRIES.items()
}


def draw_country(rng: Random, weights: dict[str, float] | None = None) -> Country:
    """A country: by the given weights of codes, or by how many people are born there."""
    pulls = weights or _PULL
    return COUNTRIES[rng.choices(list(pulls), list(pulls.values()))[0]]
