"""Names of invented people by origin, in Latin letters; names.toml has the origins."""

from __future__ import annotations

import importlib
import re
import tomllib
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from typing import NamedTuple

from wherefrom.corpus.documents import ABBREVIATIONS
from wherefrom.corpus.folding import FoldedName, fold, fold_words

_DATA = tomllib.loads(Path(__file__).with_name("names.toml").read_text(encoding="utf-8"))
# Letters, then single spaces, hyphens or apostrophes between letters; the last word is no initial.
_WRITABLE = re.compile(r"(?:[^\W\d_]+[ '-])*[^\W\d_]{2,}")
INITIALS = "ABCDEFGHJKLMNPRSTW"
SKEW = 2.0  # how much more often common names are given; 1 would make all equally common


@dataclass(frozen=True)
class Origin:
    """Where a name comes from; names.toml explains the fields."""

    name: str
    locale: str
    share: float
    home: dict[str, float] = field(hash=False)
    lists: str = "gendered"
    script: str = "latin"
    initials: bool = False


ORIGINS = tuple(Origin(**entry) for entry in _DATA["origins"])


class NameLists(NamedTuple):
    """Names of one origin, common ones first, each as (men's, women's): `given[woman]`."""

    given: tuple[tuple[str, ...], tuple[str, ...]]
    family: tuple[tuple[str, ...], tuple[str, ...]]


@dataclass(frozen=True)
class InventedName:
    """A name in its parts; `full` is how documents and questions write it."""

    given: str
    family: str
    woman: bool
    initial: str = ""

    @property
    def full(self) -> str:
        middle = f" {self.initial}. " if self.initial else " "
        return self.given + middle + self.family


class Register:
    """The names given so far; refuses a name that contains another or is contained in one.

    Next to "Ana Lee Wong" it refuses "Aña Lee", so a document that names one person never seems to
    name another.
    """

    def __init__(self) -> None:
        self._names: set[FoldedName] = set()
        self._parts: set[FoldedName] = set()

    def enter(self, name: InventedName) -> bool:
        """Keep the name if it is free; return whether it was."""
        words = fold_words(name.full)
        length = len(words)
        parts = {words[i:j] for i in range(length) for j in range(i + 2, length + 1)} - {words}
        if words in self._names or words in self._parts or not parts.isdisjoint(self._names):
            return False
        self._names.add(words)
        self._parts |= parts
        return True


@cache
def read_names(origin: Origin) -> NameLists:
    """The lists of one origin. Cached: they are constants."""
    provider = importlib.import_module(f"faker.providers.person.{origin.locale}").Provider
    given_women, given_men, family_women, family_men = (
        _clean(getattr(provider, field), origin.script) for field in _DATA["lists"][origin.lists]
    )
    if origin.name == "Icelandic":  # the lists hold fathers' names in the genitive
        family_women = tuple(name + "dóttir" for name in family_women)
        family_men = tuple(name + "son" for name in family_men)
    return NameLists((given_men, given_women), (family_men, family_women))


def draw_name(origin: Origin, register: Register, rng: Random) -> InventedName:
    """A new name. Short lists run out in a large world; then people get middle initials."""
    lists = read_names(origin)
    for attempt in range(1000):
        woman = rng.random() < 0.45
        given = _draw_common(lists.given[woman], rng)
        family = _draw_common(lists.family[woman], rng)
        initials = attempt // 12 or (origin.initials and rng.random() < 0.2)
        middle = ". ".join(rng.choice(INITIALS) for _ in range(initials))
        name = InventedName(given, family, woman, middle)
        if register.enter(name):
            return name
    raise AssertionError(f"no free {origin.name} name left")


def draw_similar(
    name: InventedName, origin: Origin, register: Register, rng: Random
) -> InventedName | None:
    """The same family name with a similar given name, or with a middle initial; None if taken."""
    alike = [g for g in read_names(origin).given[name.woman] if g[:3] == name.given[:3]]
    other = InventedName(rng.choice(alike) if alike else name.given, name.family, name.woman)
    if rng.random() < 1 / 3 or other.given == name.given:
        initial = rng.choice(INITIALS)
        other = InventedName(name.given, name.family, name.woman, initial)
    return other if register.enter(other) else None


def _draw_common(names: tuple[str, ...], rng: Random) -> str:
    """A name from the list, those in front more often than those behind."""
    return names[int(len(names) * rng.random() ** SKEW)]


def romanise(text: str, script: str) -> str:
    """Greek or Cyrillic in Latin letters; Latin unchanged, but not all in capitals."""
    if script == "latin":
        return text.capitalize() if text.isupper() else text
    letters: dict[str, str] = _DATA["scripts"][script]
    plain = fold(text) if script == "greek" else text.lower()
    longest_first = "|".join(sorted(letters, key=len, reverse=True))
    latin = re.sub(longest_first, lambda found: letters[found[0]], plain)
    return "-".join(part.capitalize() for part in latin.split("-"))


def _clean(names: Iterable[str], script: str) -> tuple[str, ...]:
    """The names that can be written in Latin letters without ending in an abbreviation."""
    kept = set()
    for name in names:
        name = romanise(unicodedata.normalize("NFC", name).strip().replace("’", "'"), script)
        latin = all("LATIN" in unicodedata.name(c, "") for c in name if c.isalpha())
        last = re.split(r"[ '-]", name)[-1]
        if latin and _WRITABLE.fullmatch(name) and last not in ABBREVIATIONS:
            kept.add(name)
    ordered = sorted(kept)
    Random("common names first").shuffle(ordered)  # which names are common is invented too
    return tuple(ordered)
