"""Names of invented people by origin, in Latin letters."""

from __future__ import annotations

import importlib
import random
import re
import unicodedata
from dataclasses import dataclass, field
from functools import cache

from wherefrom.corpus.documents import ABBREVIATIONS
from wherefrom.corpus.folding import fold


@dataclass(frozen=True)
class Origin:
    """Where a name comes from; `lists` names given (female, male) and family (female, male)."""

    name: str
    locale: str
    share: float
    home: dict[str, float] = field(hash=False)
    lists: tuple[str, str, str, str] = (
        "first_names_female",
        "first_names_male",
        "last_names_female",
        "last_names_male",
    )
    script: str = "latin"
    initials: bool = False  # middle initials, as in "Ann B. Clark", are in use


_ONE_FAMILY = ("first_names_female", "first_names_male", "last_names", "last_names")
_NO_GENDER = ("first_names", "first_names", "last_names", "last_names")
_ROMANISED = (
    "first_romanized_names_female",
    "first_romanized_names_male",
    "last_romanized_names",
    "last_romanized_names",
)
_POLISH = ("first_names_female", "first_names_male", "unisex_last_names", "unisex_last_names")
_ICELANDIC = (
    "first_names_female",
    "first_names_male",
    "last_names_without_suffix",
    "last_names_without_suffix",
)

_BRITISH_HOME = {"GB": 5.5, "US": 2.0, "AU": 1.2, "CA": 1.0, "NZ": 0.6, "ZA": 0.3}
_AMERICAN_HOME = {"US": 8.0, "CA": 1.5, "GB": 0.5}

ORIGINS: tuple[Origin, ...] = (
    Origin("English", "en_GB", 13, _BRITISH_HOME, _ONE_FAMILY, initials=True),
    Origin("American", "en_US", 11, _AMERICAN_HOME, _ONE_FAMILY, initials=True),
    Origin("Irish", "en_IE", 4, {"IE": 6, "US": 2, "GB": 1}, _ONE_FAMILY, initials=True),
    Origin("German", "de_DE", 8, {"DE": 8, "AT": 1.5, "CH": 1}, _ONE_FAMILY),
    Origin("French", "fr_FR", 7.5, {"FR": 8, "BE": 1, "CA": 0.7, "CH": 0.4}, _ONE_FAMILY),
    Origin("Italian", "it_IT", 5, {"IT": 1}, _ONE_FAMILY),
    Origin("Spanish", "es_ES", 5, {"ES": 7, "AR": 1.4, "CO": 0.8, "CL": 0.6}, _ONE_FAMILY),
    Origin("Mexican", "es_MX", 2, {"MX": 8, "US": 1}, _ONE_FAMILY),
    Origin("Portuguese", "pt_PT", 1, {"PT": 7, "BR": 2}, _ONE_FAMILY),
    Origin("Brazilian", "pt_BR", 2, {"BR": 1}, _ONE_FAMILY),
    Origin("Dutch", "nl_NL", 3.5, {"NL": 8, "BE": 1.5}, _ONE_FAMILY),
    Origin("Swedish", "sv_SE", 2.5, {"SE": 9, "FI": 1}, _ONE_FAMILY),
    Origin("Norwegian", "no_NO", 1.5, {"NO": 1}, _ONE_FAMILY),
    Origin("Danish", "da_DK", 1.5, {"DK": 1}, _ONE_FAMILY),
    Origin("Finnish", "fi_FI", 1.5, {"FI": 1}, _ONE_FAMILY),
    Origin("Icelandic", "is_IS", 0.5, {"IS": 1}, _ICELANDIC),
    Origin("Estonian", "et_EE", 0.6, {"EE": 1}, _ONE_FAMILY),
    Origin("Latvian", "lv_LV", 0.6, {"LV": 1}),
    Origin("Polish", "pl_PL", 3, {"PL": 1}, _POLISH),
    Origin("Czech", "cs_CZ", 2.5, {"CZ": 8, "SK": 1.5}),
    Origin("Slovene", "sl_SI", 0.7, {"SI": 1}, _ONE_FAMILY),
    Origin("Croatian", "hr_HR", 1, {"HR": 1}, _ONE_FAMILY),
    Origin("Hungarian", "hu_HU", 2, {"HU": 8, "RO": 1}, _ONE_FAMILY),
    Origin("Romanian", "ro_RO", 1, {"RO": 1}, _ONE_FAMILY),
    Origin("Russian", "ru_RU", 3, {"RU": 8, "UA": 1}, script="cyrillic"),
    Origin("Ukrainian", "uk_UA", 1.2, {"UA": 1}, script="cyrillic"),
    Origin("Greek", "el_GR", 1.5, {"GR": 1}, script="greek"),
    Origin("Turkish", "tr_TR", 1.5, {"TR": 1}, _ONE_FAMILY),
    Origin("Azerbaijani", "az_AZ", 0.5, {"AZ": 8, "IR": 1}),
    Origin("Algerian", "fr_DZ", 1, {"DZ": 8, "FR": 1}, _ONE_FAMILY),
    Origin("Indian", "en_IN", 3, {"IN": 1}, _ONE_FAMILY),
    Origin("Pakistani", "en_PK", 1, {"PK": 1}, _NO_GENDER),
    Origin("Indonesian", "id_ID", 1, {"ID": 1}),
    Origin("Japanese", "ja_JP", 2, {"JP": 1}, _ROMANISED),
    Origin("Chinese", "zh_TW", 2, {"CN": 7, "TW": 3}, _ROMANISED),
    Origin("Kenyan", "en_KE", 0.7, {"KE": 1}, _ONE_FAMILY),
    Origin("Yoruba", "yo_NG", 0.9, {"NG": 1}),
    Origin("Ghanaian", "tw_GH", 0.6, {"GH": 1}),
    Origin("Zulu", "zu_ZA", 0.6, {"ZA": 1}),
)


# Letters, then single spaces, hyphens or apostrophes between letters; the last word is no initial.
_WRITABLE = re.compile(r"(?:[^\W\d_]+[ '-])*[^\W\d_]{2,}")

INITIALS = "ABCDEFGHJKLMNPRSTW"
SKEW = 2.0  # how much more often common names are given; 1 would be all alike

_GREEK = str.maketrans(
    dict(zip("αβγδεζηικλμνξοπρστυφω", "avgdeziiklmnxoprstyfo", strict=True))
    | {"ς": "s", "θ": "th", "χ": "ch", "ψ": "ps"}
)
_GREEK_PAIRS = (("ου", "ou"), ("μπ", "b"), ("ντ", "nt"), ("γκ", "gk"), ("αυ", "av"), ("ευ", "ev"))
_CYRILLIC = str.maketrans(
    dict(zip("абвгдезийклмнопрстуфыэіґ", "abvgdeziyklmnoprstufyeig", strict=True))
    | {"ё": "yo", "ж": "zh", "х": "kh", "ц": "ts", "ч": "ch", "ш": "sh", "щ": "shch"}
    | {"ъ": "", "ь": "", "ю": "yu", "я": "ya", "є": "ye", "ї": "yi"}
)


@dataclass(frozen=True)
class NameLists:
    """Given and family names of one origin, for women and for men, common ones first."""

    given_women: tuple[str, ...]
    given_men: tuple[str, ...]
    family_women: tuple[str, ...]
    family_men: tuple[str, ...]

    def given(self, woman: bool) -> tuple[str, ...]:
        return self.given_women if woman else self.given_men

    def family(self, woman: bool) -> tuple[str, ...]:
        return self.family_women if woman else self.family_men


@dataclass(frozen=True)
class Name:
    """A name in its parts; `full` is how a document and a question write it."""

    given: str
    family: str
    woman: bool
    initial: str = ""

    @property
    def full(self) -> str:
        middle = f" {self.initial}. " if self.initial else " "
        return self.given + middle + self.family


class Register:
    """Names given so far; refuses one that another spells out, accents and case aside.

    "Ana Lee" is refused next to "Ana Lee" and next to "Ana Lee Wong", so a document that names one
    person never seems to name another.
    """

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._parts: set[str] = set()

    def enter(self, name: Name) -> bool:
        """Keep the name if it is free; say whether it was."""
        folded = fold(name.full)
        words = re.split(r"[\s-]+", folded)
        key = " ".join(words)
        spans = {
            " ".join(words[i:j])
            for i in range(len(words) - 1)
            for j in range(i + 2, len(words) + 1)
            if j - i < len(words)
        }
        if key in self._names or key in self._parts or not spans.isdisjoint(self._names):
            return False
        self._names.add(key)
        self._parts |= spans
        return True


@cache
def read_names(origin: Origin) -> NameLists:
    """The lists of one origin. Cached: they are constants."""
    provider = importlib.import_module(f"faker.providers.person.{origin.locale}").Provider
    given_women, given_men, family_women, family_men = (
        _clean(getattr(provider, field), origin.script) for field in origin.lists
    )
    if origin.name == "Icelandic":  # the lists hold fathers' names in the genitive
        family_women = tuple(name + "dóttir" for name in family_women)
        family_men = tuple(name + "son" for name in family_men)
    return NameLists(given_women, given_men, family_women, family_men)


def draw_name(origin: Origin, register: Register, rng: random.Random) -> Name:
    """A new name. Short lists run out in a large world; then people get middle initials."""
    lists = read_names(origin)
    for attempt in range(1000):
        woman = rng.random() < 0.45
        given = _draw_common(lists.given(woman), rng)
        family = _draw_common(lists.family(woman), rng)
        initials = attempt // 12 or (origin.initials and rng.random() < 0.2)
        middle = ". ".join(rng.choice(INITIALS) for _ in range(initials))
        name = Name(given, family, woman, middle)
        if register.enter(name):
            return name
    raise AssertionError(f"no free {origin.name} name left")


def draw_like(name: Name, origin: Origin, register: Register, rng: random.Random) -> Name | None:
    """A near-namesake: the same family name with a like given name, or with a middle initial."""
    alike = [g for g in read_names(origin).given(name.woman) if g[:3] == name.given[:3]]
    other = Name(rng.choice(alike) if alike else name.given, name.family, name.woman)
    if rng.random() < 1 / 3 or other.given == name.given:
        initial = rng.choice(INITIALS)
        other = Name(name.given, name.family, name.woman, initial)
    return other if register.enter(other) else None


def _draw_common(names: tuple[str, ...], rng: random.Random) -> str:
    """A name from the list, those in front more often than those behind."""
    return names[int(len(names) * rng.random() ** SKEW)]


def romanise(text: str, script: str) -> str:
    """Greek or Cyrillic in Latin letters; Latin as it is, but not all in capitals."""
    if script == "latin":
        return text.capitalize() if text.isupper() else text
    plain = text.lower()
    if script == "greek":
        plain = fold(plain)
        for pair, latin in _GREEK_PAIRS:
            plain = plain.replace(pair, latin)
    plain = plain.translate(_GREEK if script == "greek" else _CYRILLIC)
    return "-".join(part.capitalize() for part in plain.split("-"))


def _clean(names: object, script: str) -> tuple[str, ...]:
    assert isinstance(names, list | tuple | dict), "a list of names was expected"
    kept = set()
    for name in names:
        name = romanise(unicodedata.normalize("NFC", name).strip().replace("’", "'"), script)
        latin = all("LATIN" in unicodedata.name(c, "") for c in name if c.isalpha())
        last = re.split(r"[ '-]", name)[-1]
        if latin and _WRITABLE.fullmatch(name) and last not in ABBREVIATIONS:
            kept.add(name)
    ordered = sorted(kept)
    random.Random("common names first").shuffle(ordered)  # which are common is ours to invent
    return tuple(ordered)
