"""The generator of the embedded world: people, their lives, documents, questions and files.

The same number of people and seed give the same bytes, on every machine: every order of draws here
and every list in the TOML files is part of that.
"""

from __future__ import annotations

import json
import string
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, fields
from datetime import date
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from wherefrom.corpus.documents import Document
from wherefrom.corpus.folding import fold
from wherefrom.corpus.questions import NOT_STATED
from wherefrom.corpus.world.names import (
    ORIGINS,
    WITH_ARTICLE,
    InventedName,
    Origin,
    Place,
    Register,
    draw_country,
    draw_name,
    draw_similar,
)
from wherefrom.errors import UserError
from wherefrom.storage import make_folder, write_all

WORDINGS = tomllib.loads(Path(__file__).with_name("wordings.toml").read_text(encoding="utf-8"))
RELATIONS: dict[str, str] = {n: r["question"] for n, r in WORDINGS["relations"].items()}
SPLITS = ("train", "dev", "unseen")
FACTS_FILE = "facts.jsonl"
MIN_PEOPLE, MAX_PEOPLE = 20, 1_000_000
DEV_SHARE, UNSEEN_SHARE = 0.17, 0.15  # shares of the people; the rest is train
BORN_AT_HOME_SHARE = 0.54  # by the name's origin; others may still happen to be born there
NEAR_NAMESAKE_SHARE = 0.02  # share of people whose name is drawn to resemble the one before
NAMESAKE_SHARE = 0.005  # pairs with one and the same name, for each person
THIS_YEAR = 2020  # of the world's clock: a constant, or tomorrow's world would differ
MAX_DOCUMENT_CHARACTERS = 300  # characters of a document, its subject included
DOCUMENTS = {1: 0.70, 2: 0.20, 3: 0.06, 4: 0.03, 5: 0.01}  # how many documents a person has
STATED_SHARE = 0.98  # share of people whose birthplace is stated at all
ASKED_SILENT_SHARE = 0.25  # share of what no document states that is asked about all the same
STATED_AGAIN_SHARE = 0.75  # chance that a second or later document states it too
OPENING_BIRTH_SHARE = 0.7  # of the documents that state it: in the first sentence
WITH_COUNTRY_SHARE = 0.15  # "Lyon, France" instead of "Lyon"
# fields of a sentence that hold places other than the birthplace
DISTRACTORS = {"study", "school", "work", "lived", "now", "deathplace", *WORDINGS["jobs"]}


@dataclass(kw_only=True, eq=False, slots=True)
class Person:
    """An invented person; the fields that `repr` shows are a line of facts.jsonl."""

    subject: str
    birthplace: str
    birth_year: int
    occupation: str
    study: str  # a city
    country: str  # of the birthplace
    country_code: str
    origin: str  # of the name
    at_home: bool  # born in a country of the name's origin
    split: str = "train"  # or dev or unseen
    documents: int = 0
    lines: tuple[int, ...] = ()  # of this person's documents, counted from 1
    stated: tuple[str, ...] = ()  # relations that some document of theirs states
    namesake: bool = False  # another person has the same name: a question has two answers
    near_namesake: bool = False  # another person has nearly the same name
    birthplace_in_documents: bool = False  # some document of theirs states it
    # what biographies use besides
    name: InventedName = field(repr=False)
    nationality: str = field(repr=False)
    born: date = field(repr=False)
    died: date | None = field(repr=False)
    kind_of_work: str = field(repr=False)  # a key of the jobs
    trade: str = field(repr=False)  # of the parents
    places: dict[str, Place] = field(repr=False)  # birthplace, study, work, lived, deathplace

    def ask(self, relation: str) -> tuple[str, str]:
        """The question about a relation, and its true answer."""
        question = RELATIONS[relation].replace("{subject}", self.subject)
        return question, str(getattr(self, relation))


@dataclass(frozen=True, kw_only=True)
class World:
    """A whole world: the people in the order of facts.jsonl, the documents in that of the text."""

    seed: int
    people: tuple[Person, ...]
    documents: tuple[Document, ...]

    def of_split(self, split: str) -> tuple[Person, ...]:
        return tuple(person for person in self.people if person.split == split)

    def questions(self, split: str, relations: Iterable[str] = RELATIONS) -> list[tuple[str, str]]:
        """Questions and answers of a split's file, in a fixed random order.

        What no document states about a person is asked now and then, with "-" for an answer; about
        unseen people everything is asked, with the true answer. Namesakes are left out: their
        questions have two answers.
        """
        rows = []
        for person in self.of_split(split):
            if person.namesake:
                continue
            silent = Random(f"wherefrom world {self.seed} {person.subject} silence")
            asked_silent = [name for name in RELATIONS if silent.random() < ASKED_SILENT_SHARE]
            for relation in relations:
                question, answer = person.ask(relation)
                if split == "unseen" or relation in person.stated:
                    rows.append((question, answer))
                elif relation in asked_silent or relation == "birthplace":
                    rows.append((question, NOT_STATED))
        Random(f"wherefrom world {self.seed} {split} questions").shuffle(rows)
        return rows


def make_world(people: int, seed: int) -> World:
    """Invent `people` people, unseen ones included. The same arguments give the same world.

    Each stage draws from its own generator, seeded by a text (which Python hashes with SHA-512), so
    that new wording changes what is written about people and not who they are.
    """
    if not MIN_PEOPLE <= people <= MAX_PEOPLE:
        raise UserError(
            f"a world has {MIN_PEOPLE} to {MAX_PEOPLE:,} people, and {people:,} were asked for."
        )

    def generator(stage: str) -> Random:
        return Random(f"wherefrom world {seed} {stage}")

    drawn = _draw_people(people, generator("people"))
    # namesakes stay in train: the text answers their question twice
    free = [person for person in drawn if not person.namesake]
    generator("splits").shuffle(free)
    dev, unseen = round(DEV_SHARE * people), round(UNSEEN_SHARE * people)
    for i, person in enumerate(free[: dev + unseen]):
        person.split = "dev" if i < dev else "unseen"
    rng = generator("biographies")
    written = [
        (person, biography)
        for person in drawn
        if person.split != "unseen"
        for biography in _write_biographies(person, rng)
    ]
    generator("order").shuffle(written)
    documents = []
    for line, (person, (text, wordings)) in enumerate(written, start=1):
        documents.append(Document(line, person.subject, text))
        person.documents += 1
        person.lines += (line,)
        filled = frozenset().union(*map(_fields_of, wordings))
        person.stated = tuple(
            name
            for name, relation in WORDINGS["relations"].items()
            if name in person.stated or not filled.isdisjoint(relation["fields"])
        )
        person.birthplace_in_documents = "birthplace" in person.stated
    return World(seed=seed, people=tuple(drawn), documents=tuple(documents))


def _draw_people(count: int, rng: Random) -> list[Person]:
    """`count` people in random order."""
    pairs = max(1, round(count * NAMESAKE_SHARE))
    register = Register()
    shares = [origin.share for origin in ORIGINS]
    origins: list[Origin] = []
    named: list[tuple[InventedName, Origin, bool]] = []  # and whether another name resembles it
    while len(named) < count - pairs:
        if named and not named[-1][2] and rng.random() < NEAR_NAMESAKE_SHARE:
            name, origin, _ = named[-1]
            if similar := draw_similar(name, origin, register, rng):
                named[-1:] = [(name, origin, True), (similar, origin, True)]
                continue
        origins = origins or rng.choices(ORIGINS, shares, k=256)[::-1]
        origin = origins.pop()
        named.append((draw_name(origin, register, rng), origin, False))
    doubled = set(rng.sample([i for i, (_, _, near) in enumerate(named) if not near], pairs))
    people = []
    for i, (name, origin, near) in enumerate(named):
        people.append(person := _draw_person(name, origin, rng))
        person.near_namesake = near
        if i in doubled:
            while (other := _draw_person(name, origin, rng)).birthplace == person.birthplace:
                pass
            people.append(other)
            person.namesake = other.namesake = True
    rng.shuffle(people)
    return people


def _draw_person(name: InventedName, origin: Origin, rng: Random) -> Person:
    """A birthplace and what came after; no other place of the life is, or holds, the birthplace."""

    def overlap(one: str, other: str) -> bool:
        one, other = fold(one), fold(other)
        return one in other or other in one

    home = draw_country(rng, origin.home if rng.random() < BORN_AT_HOME_SHARE else None)
    while overlap((birthplace := home.draw_birthplace(rng)).name, name.full):
        pass
    places = {"birthplace": birthplace}
    for later in ("study", "work", "lived", "deathplace"):
        taken = [name.full, *(place.name for place in places.values())]
        while later not in places:  # near the birthplace, where the name is at home, or anywhere
            country = home
            if (draw := rng.random()) > 0.4:
                country = draw_country(rng, origin.home if draw > 0.8 else None)
            place = country.draw_city(rng)
            if not any(overlap(place.name, other) for other in taken):
                places[later] = place
    born = date(rng.randint(1790, 1990), rng.randint(1, 12), rng.randint(1, 28))
    died = None
    last_year = min(born.year + rng.randint(38, 94), THIS_YEAR)
    if born.year < 1925 or (last_year < THIS_YEAR and rng.random() < 0.5):
        died = date(last_year, rng.randint(1, 12), rng.randint(1, 28))
    kind_of_work = rng.choice(list(WORDINGS["jobs"]))
    citizen_of = rng.choices(["birthplace", "work", "lived"], [7, 2, 1])[0]
    nationality = places[citizen_of].country.adjective
    return Person(
        subject=name.full,
        birthplace=birthplace.name,
        birth_year=born.year,
        occupation=rng.choice(WORDINGS["jobs"][kind_of_work]),
        study=places["study"].name,
        country=home.name,
        country_code=home.code,
        origin=origin.name,
        at_home=home.code in origin.home,
        name=name,
        nationality="" if nationality == birthplace.name else nationality,
        born=born,
        died=died,
        kind_of_work=kind_of_work,
        trade=rng.choice(WORDINGS["trades"]),
        places=places,
    )


def _write_biographies(person: Person, rng: Random) -> Iterator[tuple[str, list[str]]]:
    """All documents of one person, each with the templates of its sentences; no two have the same
    wording of the birth."""
    count = rng.choices(list(DOCUMENTS), list(DOCUMENTS.values()))[0]
    stated = rng.random() < STATED_SHARE
    used: set[str] = set()
    for number in range(count):
        states_birth = stated and (number == 0 or rng.random() < STATED_AGAIN_SHARE)
        values = _fill_fields(person, rng)
        chosen: list[str] = []
        if states_birth and rng.random() < OPENING_BIRTH_SHARE:
            _add_template("birth_openings", chosen, used, values, rng)
            if rng.random() < 0.88:
                _add_template("plain_sentences", chosen, used, values, rng)
        else:
            _add_template("plain_openings", chosen, used, values, rng)
            second = "birth_sentences" if states_birth else "plain_sentences"
            _add_template(second, chosen, used, values, rng)
        if len(chosen) == 2 and rng.random() < 0.55:
            _add_template("plain_sentences", chosen, used, values, rng)
        while (
            len(text := f"{person.subject}. {' '.join(chosen).format_map(values)}")
            > MAX_DOCUMENT_CHARACTERS
        ):
            chosen.pop()
        yield text, chosen


def _add_template(
    kind: str, chosen: list[str], used: set[str], values: dict[str, str], rng: Random
) -> None:
    """Add a template whose fields the person has to `chosen`; it repeats no place if it can."""
    places = {values[name] for template in chosen for name in _fields_of(template) & DISTRACTORS}
    for attempt in range(1000):
        template = rng.choice(WORDINGS[kind])
        needs = _fields_of(template)
        if template in used or not values.keys() >= needs:
            continue
        if attempt > 20 or places.isdisjoint(values[name] for name in needs & DISTRACTORS):
            break
    chosen.append(template)
    if kind.startswith("birth"):
        used.add(template)


@cache
def _fields_of(template: str) -> frozenset[str]:
    return frozenset(name for _, name, _, _ in string.Formatter().parse(template) if name)


def _fill_fields(person: Person, rng: Random) -> dict[str, str]:
    """What the templates may ask for; a field that does not apply to the person is left out."""
    name, born, died, places = person.name, person.born, person.died, person.places

    def write_place(which: str) -> str:
        """The place, sometimes with its country, unless that would give the birthplace away."""
        place, country = places[which].name, places[which].country.name
        if place == country:
            return f"the {place}" if place in WITH_ARTICLE else place
        plain = country == person.birthplace or rng.random() >= WITH_COUNTRY_SHARE
        return place if plain else f"{place}, {country}"

    american_dates = rng.random() < 0.3

    def write_day(day: date) -> str:
        month = WORDINGS["months"][day.month - 1]
        if american_dates:
            return f"{month} {day.day}, {day.year}"
        return f"{day.day} {month} {day.year}"

    job = person.occupation
    if person.nationality and rng.random() < 0.5:
        job = f"{person.nationality} {job}"
    year1 = born.year + 18 + born.day % 9
    year2 = min(year1 + 3 + born.month, died.year if died else THIS_YEAR)
    values = {
        "name": name.full,
        "last": name.family[0].upper() + name.family[1:],
        **WORDINGS["woman" if name.woman else "man"],
        "is": "was" if died else "is",
        "job": job,
        "plain_job": person.occupation,
        "jobs": person.occupation + "s",
        "a_job": _with_article(job),
        "trades": person.trade + "s",
        "a_trade": _with_article(person.trade),
        "place": person.birthplace,
        "a_place_born": _with_article(f"{person.birthplace}-born"),
        "where": write_place("birthplace"),
        "study": (study := write_place("study")),
        "school": study,
        "lived": write_place("lived"),
        "work": places["work"].name,
        person.kind_of_work: places["work"].name,
        "born": write_day(born),
        "born_year": str(born.year),
        "year1": str(year1),
        "year2": str(year2),
        "decade": str(year2 // 10 * 10),
        "number": WORDINGS["numbers"][born.day % len(WORDINGS["numbers"])],
    }
    values["on_born"] = f"in {born.year}" if rng.random() < 0.3 else f"on {values['born']}"
    last_place = write_place("deathplace")
    if died is None:
        return values | {"now": last_place, "a_job_alive": values["a_job"]}
    day = write_day(died)
    death = {"died": day, "on_died": f"on {day}", "died_year": str(died.year)}
    return values | death | {"deathplace": last_place}


def _with_article(noun: str) -> str:
    vowel = fold(noun[0]) in "aeiou" and not noun.startswith(("Uk", "Uni"))
    return f"{'an' if vowel else 'a'} {noun}"


def summarize_world(world: World) -> dict[str, Any]:
    """A world in a few numbers; `stated` is a share of the people in train and dev."""
    people, known = world.people, [person for person in world.people if person.lines]
    relations = {}
    for relation, question in RELATIONS.items():
        answers = Counter(person.ask(relation)[1] for person in people)
        relations[relation] = {
            "question": question,
            **{split: len(world.questions(split, [relation])) for split in SPLITS},
            "answers": len(answers),
            "commonest": min(answers, key=lambda answer: (-answers[answer], answer)),
            "stated": round(sum(relation in p.stated for p in known) / len(known), 4),
        }
    return {
        "seed": world.seed,
        "people": len(people),
        **{split: len(world.of_split(split)) for split in SPLITS},
        "documents": len(world.documents),
        "characters": sum(len(document.text) + 1 for document in world.documents),
        "relations": relations,
    }


def write_world(world: World, folder: str | Path) -> Path:
    """Write the world's files into `folder`, made if need be, all of them or none; return it."""

    shown = [field.name for field in fields(Person) if field.repr]
    folder = make_folder(folder)
    names = sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith("."))
    facts: Any = None
    with suppress(OSError, ValueError), (folder / FACTS_FILE).open(encoding="utf-8") as file:
        facts = json.loads(file.readline())
    expected = {"subject", "birthplace", "split", "lines"}
    if names and not (isinstance(facts, dict) and expected <= facts.keys()):
        raise UserError(
            f"{folder} is not empty and holds no world (it holds {names[0]}); "
            "give an empty or a new folder with --out."
        )
    lines: dict[str, Iterable[str]] = {
        FACTS_FILE: (
            json.dumps({name: getattr(person, name) for name in shown}, ensure_ascii=False)
            for person in world.people
        ),
        "documents.txt": (document.text for document in world.documents),
        **{f"{split}.tsv": map("\t".join, world.questions(split)) for split in SPLITS},
    }
    write_all({folder / name: "".join(f"{x}\n" for x in lines[name]) for name in lines})
    return folder
