"""Biographies: a life told in one to three sentences, each document in its own words.

Every fact of a life is fixed before it is told, so several documents about a person agree.
"""

from __future__ import annotations

import random
import string
from collections.abc import Sequence
from datetime import date
from functools import cache

from wherefrom.corpus.world.countries import WITH_ARTICLE
from wherefrom.corpus.world.names import fold
from wherefrom.corpus.world.people import THIS_YEAR, Life, Resident
from wherefrom.corpus.world.places import Place
from wherefrom.corpus.world.records import Biography
from wherefrom.corpus.world.wordings import (
    BIRTH_OPENINGS,
    BIRTH_SENTENCES,
    JOBS,
    MONTHS,
    NUMBERS,
    PLAIN_OPENINGS,
    PLAIN_SENTENCES,
)

LONGEST = 300  # characters of a document, the subject in front included
STATED = 0.98  # share of people whose birthplace is told at all
STATED_AGAIN = 0.75  # chance that a second or later document tells it too
OPENS_WITH_BIRTH = 0.7  # of the documents that tell it: in the first sentence
WITH_COUNTRY = 0.15  # "Lyon, France" instead of "Lyon"
PLACES = frozenset({"study", "work", "lived", "now", "deathplace", *JOBS})  # fields of distractors
DOCUMENTS = {1: 0.70, 2: 0.20, 3: 0.06, 4: 0.03, 5: 0.01}  # how many documents a person has


def write_biographies(resident: Resident, rng: random.Random) -> list[Biography]:
    """All documents of one person, no two with the same wording of the birth."""
    count = rng.choices(list(DOCUMENTS), list(DOCUMENTS.values()))[0]
    stated = rng.random() < STATED
    used: set[str] = set()
    documents = []
    for number in range(count):
        tells = stated and (number == 0 or rng.random() < STATED_AGAIN)
        document = write_biography(resident, tells, used, rng)
        if document.wording is not None:
            used.add(document.wording)
        documents.append(document)
    return documents


def write_biography(
    resident: Resident, tells_birth: bool, used: set[str], rng: random.Random
) -> Biography:
    """One document; `used` are wordings of the birth that it must not repeat."""
    fields = _fields(resident, rng)
    chosen: list[str] = []
    wording = None
    if tells_birth and rng.random() < OPENS_WITH_BIRTH:
        wording = _choose(BIRTH_OPENINGS, fields, used, chosen, rng)
        chosen.append(wording)
        if rng.random() < 0.88:
            chosen.append(_choose(PLAIN_SENTENCES, fields, used, chosen, rng))
    else:
        chosen.append(_choose(PLAIN_OPENINGS, fields, used, chosen, rng))
        if tells_birth:
            wording = _choose(BIRTH_SENTENCES, fields, used, chosen, rng)
            chosen.append(wording)
        else:
            chosen.append(_choose(PLAIN_SENTENCES, fields, used, chosen, rng))
    if len(chosen) == 2 and rng.random() < 0.55:
        chosen.append(_choose(PLAIN_SENTENCES, fields, used, chosen, rng))
    sentences = [template.format_map(fields) for template in chosen]
    subject = resident.name.full
    if len(f"{subject}. {' '.join(sentences)}") > LONGEST:
        del sentences[2:]
    return Biography(subject=subject, text=" ".join(sentences), wording=wording)


def _choose(
    templates: Sequence[str],
    fields: dict[str, str],
    used: set[str],
    before: list[str],
    rng: random.Random,
) -> str:
    """A new template whose fields this person has, and that does not repeat a place told before."""
    told = {fields[field] for template in before for field in _needs(template) & PLACES}
    for attempt in range(1000):
        template = rng.choice(templates)
        needs = _needs(template)
        if template in used or not fields.keys() >= needs:
            continue
        if attempt > 20 or told.isdisjoint(fields[field] for field in needs & PLACES):
            return template
    raise AssertionError("no wording fits this person")


@cache
def _needs(template: str) -> frozenset[str]:
    return frozenset(name for _, name, _, _ in string.Formatter().parse(template) if name)


def _fields(resident: Resident, rng: random.Random) -> dict[str, str]:
    """What the templates may ask for; a field that does not apply to the person is left out."""
    name, life = resident.name, resident.life
    he, his, child = ("she", "her", "daughter") if name.woman else ("he", "his", "son")
    american_dates = rng.random() < 0.3
    job = life.job
    if life.nationality and rng.random() < 0.5:
        job = f"{life.nationality} {job}"
    year1 = life.born.year + 18 + life.born.day % 9
    year2 = min(year1 + 3 + life.born.month, life.died.year if life.died else THIS_YEAR)
    fields = {
        "name": name.full,
        "last": name.family[0].upper() + name.family[1:],
        "he": he,
        "He": he.capitalize(),
        "his": his,
        "His": his.capitalize(),
        "child": child,
        "is": "was" if life.died else "is",
        "job": job,
        "plain_job": life.job,
        "jobs": life.job + "s",
        "a_job": _article(job),
        "trades": life.trade + "s",
        "a_trade": _article(life.trade),
        "place": life.birthplace.name,
        "a_place_born": _article(f"{life.birthplace.name}-born"),
        "where": _written(life.birthplace, life, rng),
        "study": _written(life.study, life, rng),
        "lived": _written(life.lived, life, rng),
        "work": life.work.name,
        life.field: life.work.name,
        "born": _day(life.born, american_dates),
        "on_born": f"on {_day(life.born, american_dates)}",
        "born_year": str(life.born.year),
        "year1": str(year1),
        "year2": str(year2),
        "decade": str(year2 // 10 * 10),
        "number": NUMBERS[life.born.day % len(NUMBERS)],
    }
    if rng.random() < 0.3:
        fields["on_born"] = f"in {life.born.year}"
    if life.died is None:
        fields["now"] = _written(life.deathplace, life, rng)
        fields["a_job_alive"] = fields["a_job"]
    else:
        fields["deathplace"] = _written(life.deathplace, life, rng)
        fields["died"] = _day(life.died, american_dates)
        fields["on_died"] = f"on {fields['died']}"
        fields["died_year"] = str(life.died.year)
    return fields


def _written(place: Place, life: Life, rng: random.Random) -> str:
    """The place, at times with its country, unless that would give the birthplace away."""
    if place.kind == "country":
        return f"the {place.name}" if place.name in WITH_ARTICLE else place.name
    if place.country.name == life.birthplace.name or rng.random() >= WITH_COUNTRY:
        return place.name
    return f"{place.name}, {place.country.name}"


def _day(day: date, american: bool) -> str:
    month = MONTHS[day.month - 1]
    return f"{month} {day.day}, {day.year}" if american else f"{day.day} {month} {day.year}"


def _article(noun: str) -> str:
    vowel = fold(noun[0]) in "aeiou" and not noun.startswith(("Uk", "Uni"))
    return f"{'an' if vowel else 'a'} {noun}"
