"""Who lives in the embedded world: names, births, namesakes, splits, and the course of each life.

A name's origin makes some birthplaces likelier and decides none: about half are born in a country
of the origin, the others anywhere. That is what makes a guess from the name possible and poor.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

from wherefrom.corpus.world.names import Name, Register, draw_like, draw_name, fold
from wherefrom.corpus.world.origins import ORIGINS, Origin
from wherefrom.corpus.world.places import Gazetteer, Place
from wherefrom.corpus.world.wordings import JOBS, TRADES

BORN_AT_HOME = 0.54  # by the name's origin; others may still happen to be born there
NEAR_NAMESAKES = 0.02  # share of people who are drawn to resemble the one before
NAMESAKES = 0.005  # pairs with one and the same name, for each person
DEV, UNSEEN = 0.17, 0.15  # shares of the people; the rest is train
THIS_YEAR = 2020  # of the world's clock: a constant, or tomorrow's world would differ


@dataclass(frozen=True)
class Life:
    """All that a biography may tell, besides the name."""

    birthplace: Place
    nationality: str
    born: date
    died: date | None
    field: str  # what kind of work, a key of JOBS
    job: str
    trade: str  # of the parents
    study: Place
    work: Place
    lived: Place
    deathplace: Place


@dataclass(frozen=True)
class Resident:
    """A person before their documents are written."""

    name: Name
    origin: Origin
    life: Life
    namesake: bool
    near_namesake: bool


def draw_residents(count: int, places: Gazetteer, rng: random.Random) -> list[Resident]:
    """`count` people in random order."""
    pairs = max(1, round(count * NAMESAKES))
    named = _draw_names(count - pairs, rng)
    usual = [index for index, entry in enumerate(named) if not entry[2]]
    doubled = set(rng.sample(usual, pairs))
    residents = []
    for index, (name, origin, near) in enumerate(named):
        life = draw_life(name, origin, places, rng)
        residents.append(Resident(name, origin, life, index in doubled, near))
        if index in doubled:
            other = draw_life(name, origin, places, rng)
            while other.birthplace == life.birthplace:
                other = draw_life(name, origin, places, rng)
            residents.append(Resident(name, origin, other, True, False))
    rng.shuffle(residents)
    return residents


def draw_splits(residents: list[Resident], rng: random.Random) -> list[str]:
    """A split for each. Namesakes are in train: the text answers their question twice over,
    which would blur recall in dev and the word "unseen" in unseen."""
    splits = ["train"] * len(residents)
    free = [index for index, resident in enumerate(residents) if not resident.namesake]
    rng.shuffle(free)
    dev, unseen = round(DEV * len(residents)), round(UNSEEN * len(residents))
    for index in free[:dev]:
        splits[index] = "dev"
    for index in free[dev : dev + unseen]:
        splits[index] = "unseen"
    return splits


def draw_life(name: Name, origin: Origin, places: Gazetteer, rng: random.Random) -> Life:
    """A birthplace and what came after; no other place of the life is, or holds, the birthplace."""
    at_home = rng.random() < BORN_AT_HOME
    code = places.draw_country(rng, origin.home if at_home else None)
    birthplace = places.draw_birthplace(code, rng)
    while _meet(birthplace.name, name.full):
        birthplace = places.draw_birthplace(code, rng)
    taken = [birthplace.name, name.full]
    others = []
    for _ in range(4):
        place = _draw_elsewhere(origin, code, taken, places, rng)
        taken.append(place.name)
        others.append(place)
    study, work, lived, deathplace = others
    born = date(rng.randint(1790, 1990), rng.randint(1, 12), rng.randint(1, 28))
    died = None
    last_year = min(born.year + rng.randint(38, 94), THIS_YEAR)
    if born.year < 1925 or (last_year < THIS_YEAR and rng.random() < 0.5):
        died = date(last_year, rng.randint(1, 12), rng.randint(1, 28))
    field = rng.choice(list(JOBS))
    country = rng.choices([birthplace, work, lived], [7, 2, 1])[0].country
    return Life(
        birthplace=birthplace,
        nationality="" if country.adjective == birthplace.name else country.adjective,
        born=born,
        died=died,
        field=field,
        job=rng.choice(JOBS[field]),
        trade=rng.choice(TRADES),
        study=study,
        work=work,
        lived=lived,
        deathplace=deathplace,
    )


def _draw_names(count: int, rng: random.Random) -> list[tuple[Name, Origin, bool]]:
    """Distinct names with their origins, and whether a near-namesake is among them."""
    register = Register()
    origins = _draw_origins(rng)
    named: list[tuple[Name, Origin, bool]] = []
    while len(named) < count:
        if named and not named[-1][2] and rng.random() < NEAR_NAMESAKES:
            name, origin, _ = named[-1]
            like = draw_like(name, origin, register, rng)
            if like is not None:
                named[-1] = (name, origin, True)
                named.append((like, origin, True))
                continue
        origin = next(origins)
        named.append((draw_name(origin, register, rng), origin, False))
    return named


def _draw_origins(rng: random.Random) -> Iterator[Origin]:
    shares = [origin.share for origin in ORIGINS]
    while True:
        yield from rng.choices(ORIGINS, shares, k=256)


def _draw_elsewhere(
    origin: Origin, birth_country: str, taken: list[str], places: Gazetteer, rng: random.Random
) -> Place:
    """A city of the later life: near the birthplace, where the name is at home, or anywhere."""
    while True:
        way = rng.random()
        code = birth_country
        if way > 0.4:
            code = places.draw_country(rng, origin.home if way > 0.8 else None)
        place = places.draw_city(code, rng)
        if not any(_meet(place.name, name) for name in taken):
            return place


def _meet(one: str, other: str) -> bool:
    """Whether one name is spelt inside the other, so that finding one would find the other."""
    one, other = fold(one), fold(other)
    return one in other or other in one
