"""The generator of the embedded world: people, their lives, documents and files.

The same number of people and seed give the same bytes, on every machine: every order of draws here
and every list in the TOML files is part of that.
"""

from __future__ import annotations

import json
import re
import string
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from wherefrom.corpus.folding import fold
from wherefrom.corpus.world.names import (
    ORIGINS,
    InventedName,
    Origin,
    Register,
    draw_name,
    draw_similar,
)
from wherefrom.corpus.world.places import WITH_ARTICLE, Place, WorldPlaces, read_places
from wherefrom.errors import UserError
from wherefrom.storage import make_folder, write_all

WORDINGS = tomllib.loads(Path(__file__).with_name("wordings.toml").read_text(encoding="utf-8"))
TEMPLATE = "Where was {subject} born?"
SPLITS = ("train", "dev", "unseen")
FACTS_FILE = "facts.jsonl"
FEWEST, MOST = 20, 1_000_000  # people
DEV, UNSEEN = 0.17, 0.15  # shares of the people; the rest is train
BORN_AT_HOME = 0.54  # by the name's origin; others may still happen to be born there
NEAR_NAMESAKES = 0.02  # share of people whose name is drawn to resemble the one before
NAMESAKES = 0.005  # pairs with one and the same name, for each person
THIS_YEAR = 2020  # of the world's clock: a constant, or tomorrow's world would differ
LONGEST = 300  # characters of a document, its subject included
DOCUMENTS = {1: 0.70, 2: 0.20, 3: 0.06, 4: 0.03, 5: 0.01}  # how many documents a person has
STATED = 0.98  # share of people whose birthplace is stated at all
STATED_AGAIN = 0.75  # chance that a second or later document states it too
OPENS_WITH_BIRTH = 0.7  # of the documents that state it: in the first sentence
WITH_COUNTRY = 0.15  # "Lyon, France" instead of "Lyon"
EARLY = 112  # what a model with 128 positions reads of a document in the course's span corruption
# fields of a sentence that hold places other than the birthplace
DISTRACTORS = frozenset({"study", "work", "lived", "now", "deathplace", *WORDINGS["jobs"]})


@dataclass(frozen=True, kw_only=True)
class Person:
    """An invented person and the truth about them: a line of facts.jsonl."""

    subject: str
    birthplace: str
    country: str
    country_code: str
    origin: str  # of the name
    at_home: bool  # born in a country of the name's origin
    split: str  # train, dev or unseen
    documents: int
    lines: tuple[int, ...]  # of this person's documents, counted from 1
    namesake: bool  # another person has the very same name: the question has two answers
    near_namesake: bool  # another person has nearly the same name
    birthplace_in_documents: bool  # some document of theirs states it

    @property
    def question(self) -> str:
        return TEMPLATE.replace("{subject}", self.subject)


@dataclass(frozen=True, kw_only=True)
class Biography:
    """One line of documents.txt; `wording` is the template that states the birthplace, if any."""

    subject: str
    text: str  # without the subject in front
    wording: str | None

    @property
    def line(self) -> str:
        return f"{self.subject}. {self.text}"


@dataclass(frozen=True, kw_only=True)
class World:
    """A whole world: the people in the order of facts.jsonl, the documents in that of the text."""

    seed: int
    people: tuple[Person, ...]
    documents: tuple[Biography, ...]

    def of_split(self, split: str) -> tuple[Person, ...]:
        return tuple(person for person in self.people if person.split == split)


def make_world(people: int, seed: int) -> World:
    """Invent `people` people, unseen ones included. The same arguments give the same world.

    Each stage draws from its own generator, seeded by a text (which Python hashes with SHA-512), so
    that new wording changes what is written about people and not who they are.
    """
    if not FEWEST <= people <= MOST:
        raise UserError(f"a world has {FEWEST} to {MOST:,} people, and {people:,} were asked for.")

    def generator(stage: str) -> Random:
        return Random(f"wherefrom world {seed} {stage}")

    lives = _draw_lives(people, read_places(), generator("people"))
    splits = _draw_splits(lives, generator("splits"))
    rng = generator("biographies")
    written: list[tuple[int, Biography]] = []
    for index, (life, split) in enumerate(zip(lives, splits, strict=True)):
        if split != "unseen":
            written += [(index, document) for document in _write_biographies(life, rng)]
    generator("order").shuffle(written)
    lines: list[list[int]] = [[] for _ in lives]
    for line, (index, _) in enumerate(written, start=1):
        lines[index].append(line)
    documents = tuple(document for _, document in written)
    truths = tuple(
        Person(
            subject=life.name.full,
            birthplace=life.birthplace.name,
            country=life.birthplace.country.name,
            country_code=life.birthplace.country.code,
            origin=life.origin.name,
            at_home=life.birthplace.country.code in life.origin.home,
            split=split,
            documents=len(own),
            lines=tuple(own),
            namesake=life.namesake,
            near_namesake=life.near_namesake,
            birthplace_in_documents=any(
                states(documents[line - 1].text, life.birthplace.name) for line in own
            ),
        )
        for life, split, own in zip(lives, splits, lines, strict=True)
    )
    return World(seed=seed, people=truths, documents=documents)


def states(text: str, place: str) -> bool:
    """Whether the text holds the place as whole words."""
    return re.search(rf"(?<!\w){re.escape(place)}(?!\w)", text) is not None


# --- people -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Life:
    """A person before documents are written: the name and all that a biography may tell."""

    name: InventedName
    origin: Origin
    namesake: bool = False
    near_namesake: bool = False
    birthplace: Place
    nationality: str
    born: date
    died: date | None
    field: str  # what kind of work, a key of the jobs
    job: str
    trade: str  # of the parents
    study: Place
    work: Place
    lived: Place
    deathplace: Place


def _draw_lives(count: int, places: WorldPlaces, rng: Random) -> list[Life]:
    """`count` people in random order."""
    pairs = max(1, round(count * NAMESAKES))
    named = _draw_names(count - pairs, rng)
    usual = [index for index, entry in enumerate(named) if not entry[2]]
    doubled = set(rng.sample(usual, pairs))
    lives = []
    for index, (name, origin, near) in enumerate(named):
        life = _draw_life(name, origin, places, rng)
        lives.append(replace(life, namesake=index in doubled, near_namesake=near))
        if index in doubled:
            other = _draw_life(name, origin, places, rng)
            while other.birthplace == life.birthplace:
                other = _draw_life(name, origin, places, rng)
            lives.append(replace(other, namesake=True))
    rng.shuffle(lives)
    return lives


def _draw_names(count: int, rng: Random) -> list[tuple[InventedName, Origin, bool]]:
    """Distinct names with their origins, and whether another name resembles them."""
    register = Register()
    shares = [origin.share for origin in ORIGINS]
    origins: list[Origin] = []
    named: list[tuple[InventedName, Origin, bool]] = []
    while len(named) < count:
        if named and not named[-1][2] and rng.random() < NEAR_NAMESAKES:
            name, origin, _ = named[-1]
            similar = draw_similar(name, origin, register, rng)
            if similar is not None:
                named[-1] = (name, origin, True)
                named.append((similar, origin, True))
                continue
        if not origins:
            origins = rng.choices(ORIGINS, shares, k=256)[::-1]
        origin = origins.pop()
        named.append((draw_name(origin, register, rng), origin, False))
    return named


def _draw_splits(lives: list[Life], rng: Random) -> list[str]:
    """A split for each. Namesakes are in train: the text answers their question twice, which
    would blur recall in dev and the word "unseen" in unseen."""
    splits = ["train"] * len(lives)
    free = [index for index, life in enumerate(lives) if not life.namesake]
    rng.shuffle(free)
    dev, unseen = round(DEV * len(lives)), round(UNSEEN * len(lives))
    for index in free[:dev]:
        splits[index] = "dev"
    for index in free[dev : dev + unseen]:
        splits[index] = "unseen"
    return splits


def _draw_life(name: InventedName, origin: Origin, places: WorldPlaces, rng: Random) -> Life:
    """A birthplace and what came after; no other place of the life is, or holds, the birthplace."""
    at_home = rng.random() < BORN_AT_HOME
    code = places.draw_country(rng, origin.home if at_home else None)
    birthplace = places.draw_birthplace(code, rng)
    while _overlap(birthplace.name, name.full):
        birthplace = places.draw_birthplace(code, rng)
    taken = [birthplace.name, name.full]
    others = []
    for _ in range(4):
        others.append(_draw_elsewhere(origin, code, taken, places, rng))
        taken.append(others[-1].name)
    study, work, lived, deathplace = others
    born = date(rng.randint(1790, 1990), rng.randint(1, 12), rng.randint(1, 28))
    died = None
    last_year = min(born.year + rng.randint(38, 94), THIS_YEAR)
    if born.year < 1925 or (last_year < THIS_YEAR and rng.random() < 0.5):
        died = date(last_year, rng.randint(1, 12), rng.randint(1, 28))
    field = rng.choice(list(WORDINGS["jobs"]))
    country = rng.choices([birthplace, work, lived], [7, 2, 1])[0].country
    return Life(
        name=name,
        origin=origin,
        birthplace=birthplace,
        nationality="" if country.adjective == birthplace.name else country.adjective,
        born=born,
        died=died,
        field=field,
        job=rng.choice(WORDINGS["jobs"][field]),
        trade=rng.choice(WORDINGS["trades"]),
        study=study,
        work=work,
        lived=lived,
        deathplace=deathplace,
    )


def _draw_elsewhere(
    origin: Origin, birth_country: str, taken: list[str], places: WorldPlaces, rng: Random
) -> Place:
    """A city of the later life: near the birthplace, where the name is at home, or anywhere."""
    while True:
        way = rng.random()
        code = birth_country
        if way > 0.4:
            code = places.draw_country(rng, origin.home if way > 0.8 else None)
        place = places.draw_city(code, rng)
        if not any(_overlap(place.name, name) for name in taken):
            return place


def _overlap(one: str, other: str) -> bool:
    """Whether one name is spelled inside the other, so that finding one would find the other."""
    one, other = fold(one), fold(other)
    return one in other or other in one


# --- documents --------------------------------------------------------------------------------


def _write_biographies(life: Life, rng: Random) -> list[Biography]:
    """All documents of one person, no two with the same wording of the birth."""
    count = rng.choices(list(DOCUMENTS), list(DOCUMENTS.values()))[0]
    stated = rng.random() < STATED
    used: set[str] = set()
    documents = []
    for number in range(count):
        states_birth = stated and (number == 0 or rng.random() < STATED_AGAIN)
        documents.append(_write_biography(life, states_birth, used, rng))
        used |= {documents[-1].wording or ""}
    return documents


def _write_biography(life: Life, states_birth: bool, used: set[str], rng: Random) -> Biography:
    """One document; `used` are wordings of the birth that it must not repeat."""
    fields = _fill_fields(life, rng)
    chosen: list[str] = []

    def add(kind: str) -> str:
        chosen.append(_choose_wording(WORDINGS[kind], fields, used, chosen, rng))
        return chosen[-1]

    wording = None
    if states_birth and rng.random() < OPENS_WITH_BIRTH:
        wording = add("birth_openings")
        if rng.random() < 0.88:
            add("plain_sentences")
    else:
        add("plain_openings")
        if states_birth:
            wording = add("birth_sentences")
        else:
            add("plain_sentences")
    if len(chosen) == 2 and rng.random() < 0.55:
        add("plain_sentences")
    sentences = [template.format_map(fields) for template in chosen]
    subject = life.name.full
    if len(f"{subject}. {' '.join(sentences)}") > LONGEST:
        del sentences[2:]
    return Biography(subject=subject, text=" ".join(sentences), wording=wording)


def _choose_wording(
    templates: Sequence[str], fields: dict[str, str], used: set[str], before: list[str], rng: Random
) -> str:
    """A new template whose fields this person has, and that repeats no place named before."""
    named = {fields[field] for template in before for field in _fields_of(template) & DISTRACTORS}
    for attempt in range(1000):
        template = rng.choice(templates)
        needs = _fields_of(template)
        if template in used or not fields.keys() >= needs:
            continue
        if attempt > 20 or named.isdisjoint(fields[field] for field in needs & DISTRACTORS):
            return template
    raise AssertionError("no wording fits this person")


@cache
def _fields_of(template: str) -> frozenset[str]:
    return frozenset(name for _, name, _, _ in string.Formatter().parse(template) if name)


def _fill_fields(life: Life, rng: Random) -> dict[str, str]:
    """What the templates may ask for; a field that does not apply to the person is left out."""
    name = life.name
    american_dates = rng.random() < 0.3
    job = life.job
    if life.nationality and rng.random() < 0.5:
        job = f"{life.nationality} {job}"
    year1 = life.born.year + 18 + life.born.day % 9
    year2 = min(year1 + 3 + life.born.month, life.died.year if life.died else THIS_YEAR)
    numbers = WORDINGS["numbers"]
    fields = {
        "name": name.full,
        "last": name.family[0].upper() + name.family[1:],
        **WORDINGS["woman" if name.woman else "man"],
        "is": "was" if life.died else "is",
        "job": job,
        "plain_job": life.job,
        "jobs": life.job + "s",
        "a_job": _with_article(job),
        "trades": life.trade + "s",
        "a_trade": _with_article(life.trade),
        "place": life.birthplace.name,
        "a_place_born": _with_article(f"{life.birthplace.name}-born"),
        "where": _write_place(life.birthplace, life, rng),
        "study": _write_place(life.study, life, rng),
        "lived": _write_place(life.lived, life, rng),
        "work": life.work.name,
        life.field: life.work.name,
        "born": _write_day(life.born, american_dates),
        "on_born": f"on {_write_day(life.born, american_dates)}",
        "born_year": str(life.born.year),
        "year1": str(year1),
        "year2": str(year2),
        "decade": str(year2 // 10 * 10),
        "number": numbers[life.born.day % len(numbers)],
    }
    if rng.random() < 0.3:
        fields["on_born"] = f"in {life.born.year}"
    if life.died is None:
        fields["now"] = _write_place(life.deathplace, life, rng)
        fields["a_job_alive"] = fields["a_job"]
    else:
        fields["deathplace"] = _write_place(life.deathplace, life, rng)
        fields["died"] = _write_day(life.died, american_dates)
        fields["on_died"] = f"on {fields['died']}"
        fields["died_year"] = str(life.died.year)
    return fields


def _write_place(place: Place, life: Life, rng: Random) -> str:
    """The place, sometimes with its country, unless that would give the birthplace away."""
    if place.kind == "country":
        return f"the {place.name}" if place.name in WITH_ARTICLE else place.name
    if place.country.name == life.birthplace.name or rng.random() >= WITH_COUNTRY:
        return place.name
    return f"{place.name}, {place.country.name}"


def _write_day(day: date, american: bool) -> str:
    month = WORDINGS["months"][day.month - 1]
    return f"{month} {day.day}, {day.year}" if american else f"{day.day} {month} {day.year}"


def _with_article(noun: str) -> str:
    vowel = fold(noun[0]) in "aeiou" and not noun.startswith(("Uk", "Uni"))
    return f"{'an' if vowel else 'a'} {noun}"


# --- summary and files ------------------------------------------------------------------------


def summarize_world(world: World) -> dict[str, Any]:
    """A world in a few numbers, as `wherefrom world --json` prints them.

    `characters` is the size of documents.txt, newlines included; `stated`, `stated_early` (within
    the first EARLY characters) and `told_once` (one document) are shares of train and dev.
    """
    births = Counter(person.birthplace for person in world.people)
    place, count = min(births.items(), key=lambda entry: (-entry[1], entry[0]))
    splits = {split: world.of_split(split) for split in SPLITS}
    seen = [person for person in world.people if person.lines]
    answers = {person.birthplace for person in splits["train"]}

    def stated_early(person: Person) -> bool:
        starts = (world.documents[line - 1].line[:EARLY] for line in person.lines)
        return any(states(start, person.birthplace) for start in starts)

    return {
        "seed": world.seed,
        "people": len(world.people),
        **{split: len(people) for split, people in splits.items()},
        "documents": len(world.documents),
        "characters": sum(len(document.line) + 1 for document in world.documents),
        "places": len(births),
        "majority_place": place,
        "majority_share": round(count / len(world.people), 4),
        "origins": len({person.origin for person in world.people}),
        "namesakes": sum(person.namesake for person in world.people),
        "near_namesakes": sum(person.near_namesake for person in world.people),
        "born_at_home": _share(person.at_home for person in world.people),
        "stated": _share(person.birthplace_in_documents for person in seen),
        "stated_early": _share(map(stated_early, seen)),
        "told_once": _share(person.documents == 1 for person in seen),
        "dev_places_in_train": _share(p.birthplace in answers for p in splits["dev"]),
    }


def _share(truths: Iterable[bool]) -> float:
    counted = list(truths)
    return round(sum(counted) / len(counted), 4)


def write_world(world: World, folder: str | Path) -> Path:
    """Write the world's files into `folder`, made if need be, all of them or none; return it."""
    folder = make_folder(folder)
    held = sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith("."))
    if held and not _is_world(folder):
        raise UserError(
            f"{folder} is not empty and holds no world (it holds {held[0]}); "
            "give an empty or a new folder with --out."
        )
    facts = (json.dumps(asdict(person), ensure_ascii=False) for person in world.people)
    lines = {FACTS_FILE: facts, "documents.txt": (document.line for document in world.documents)}
    for split in SPLITS:
        lines[f"{split}.tsv"] = (f"{p.question}\t{p.birthplace}" for p in world.of_split(split))
    write_all({folder / name: "".join(f"{line}\n" for line in of) for name, of in lines.items()})
    return folder


def _is_world(folder: Path) -> bool:
    """Whether facts.jsonl is there and its first line is a person."""
    try:
        with (folder / FACTS_FILE).open(encoding="utf-8") as file:
            first = json.loads(file.readline())
    except (OSError, ValueError):
        return False
    return isinstance(first, dict) and {"subject", "birthplace", "split", "lines"} <= first.keys()
