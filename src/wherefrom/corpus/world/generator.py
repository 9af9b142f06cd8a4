"""The generator of the embedded world: subjects, their lives, documents and files."""

from __future__ import annotations

import json
import os
import random
import re
import string
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from functools import cache
from pathlib import Path

from wherefrom.corpus.folding import fold
from wherefrom.corpus.world.names import ORIGINS, Name, Origin, Register, draw_like, draw_name
from wherefrom.corpus.world.places import WITH_ARTICLE, Gazetteer, Place, read_gazetteer
from wherefrom.corpus.world.wordings import (
    BIRTH_OPENINGS,
    BIRTH_SENTENCES,
    JOBS,
    MONTHS,
    NUMBERS,
    PLAIN_OPENINGS,
    PLAIN_SENTENCES,
    TRADES,
)
from wherefrom.errors import UserError

TEMPLATE = "Where was {subject} born?"
SPLITS = ("train", "dev", "unseen")


@dataclass(frozen=True, kw_only=True)
class Person:
    """An invented person and the truth about them, as facts.jsonl tells it."""

    subject: str
    birthplace: str
    country: str
    country_code: str
    origin: str  # of the name
    at_home: bool  # born in a country of the name's origin
    split: str  # train, dev or unseen
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


FEWEST, MOST = 20, 1_000_000
EARLY = 112  # what a model with 128 positions reads of a document in the course's span corruption


@dataclass(frozen=True, kw_only=True)
class WorldSummary:
    """A world in a few numbers; `characters` is the size of documents.txt, newlines included."""

    seed: int
    people: int
    train: int
    dev: int
    unseen: int
    documents: int
    characters: int
    places: int
    majority_place: str
    majority_share: float
    origins: int
    namesakes: int
    near_namesakes: int
    born_at_home: float  # share of the people; the next two are shares of those who are seen
    stated: float  # birthplace in some document
    stated_early: float  # and within its first EARLY characters
    told_once: float  # share of the seen who have one document
    dev_places_in_train: float  # share of dev answers that are some train answer

    def as_record(self) -> dict[str, int | float | str]:
        return asdict(self)


def make_world(people: int, seed: int) -> World:
    """Invent `people` people, unseen ones included. The same arguments give the same world.

    Each stage draws from a generator of its own, seeded by a text (which Python hashes with
    SHA-512), so that new wording changes what is written about people and not who they are.
    """
    if not FEWEST <= people <= MOST:
        raise UserError(f"a world has {FEWEST} to {MOST:,} people, and {people:,} were asked for.")
    residents = draw_residents(people, read_gazetteer(), _generator(seed, "people"))
    splits = draw_splits(residents, _generator(seed, "splits"))
    rng = _generator(seed, "biographies")
    written: list[tuple[int, Biography]] = []
    for index, (resident, split) in enumerate(zip(residents, splits, strict=True)):
        if split != "unseen":
            written += [(index, document) for document in write_biographies(resident, rng)]
    _generator(seed, "order").shuffle(written)
    lines: list[list[int]] = [[] for _ in residents]
    for line, (index, _) in enumerate(written, start=1):
        lines[index].append(line)
    documents = tuple(document for _, document in written)
    return World(
        seed=seed,
        people=tuple(
            _tell_truth(resident, split, own, documents)
            for resident, split, own in zip(residents, splits, lines, strict=True)
        ),
        documents=documents,
    )


def summarize_world(world: World) -> WorldSummary:
    """Count what the world holds."""
    births = Counter(person.birthplace for person in world.people)
    place, count = min(births.items(), key=lambda entry: (-entry[1], entry[0]))
    splits = Counter(person.split for person in world.people)
    seen = [person for person in world.people if person.lines]
    answers = {person.birthplace for person in world.of_split("train")}
    return WorldSummary(
        seed=world.seed,
        people=len(world.people),
        train=splits["train"],
        dev=splits["dev"],
        unseen=splits["unseen"],
        documents=len(world.documents),
        characters=sum(len(document.line) + 1 for document in world.documents),
        places=len(births),
        majority_place=place,
        majority_share=round(count / len(world.people), 4),
        origins=len({person.origin for person in world.people}),
        namesakes=sum(person.namesake for person in world.people),
        near_namesakes=sum(person.near_namesake for person in world.people),
        born_at_home=_share(person.at_home for person in world.people),
        stated=_share(person.birthplace_in_documents for person in seen),
        stated_early=_share(_stated_early(person, world) for person in seen),
        told_once=_share(len(person.lines) == 1 for person in seen),
        dev_places_in_train=_share(p.birthplace in answers for p in world.of_split("dev")),
    )


def states(text: str, place: str) -> bool:
    """Whether the text holds the place as whole words."""
    return re.search(rf"(?<!\w){re.escape(place)}(?!\w)", text) is not None


def _tell_truth(
    resident: Resident, split: str, lines: list[int], documents: tuple[Biography, ...]
) -> Person:
    place = resident.life.birthplace
    return Person(
        subject=resident.name.full,
        birthplace=place.name,
        country=place.country.name,
        country_code=place.country.code,
        origin=resident.origin.name,
        at_home=place.country.code in resident.origin.home,
        split=split,
        lines=tuple(lines),
        namesake=resident.namesake,
        near_namesake=resident.near_namesake,
        birthplace_in_documents=any(states(documents[n - 1].text, place.name) for n in lines),
    )


def _stated_early(person: Person, world: World) -> bool:
    starts = (world.documents[line - 1].line[:EARLY] for line in person.lines)
    return any(states(start, person.birthplace) for start in starts)


def _share(truths: Iterable[bool]) -> float:
    counted = list(truths)
    return round(sum(counted) / len(counted), 4)


def _generator(seed: int, stage: str) -> random.Random:
    return random.Random(f"wherefrom world {seed} {stage}")


FOLDER_DOCUMENTS, FACTS = "documents.txt", "facts.jsonl"
PART = ".part"  # ends the name of a file that is being written


def write_world(world: World, folder: str | Path) -> Path:
    """Write the world's files into `folder`, made if need be, and return it."""
    folder = Path(folder)
    texts = {FACTS: "".join(_as_json(person) + "\n" for person in world.people)}
    texts[FOLDER_DOCUMENTS] = "".join(document.line + "\n" for document in world.documents)
    for split in SPLITS:
        rows = (f"{p.question}\t{p.birthplace}\n" for p in world.of_split(split))
        texts[f"{split}.tsv"] = "".join(rows)
    parts = {folder / name: folder / f".{name}{PART}" for name in texts}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        check_folder(folder)
        try:
            for (path, part), text in zip(parts.items(), texts.values(), strict=True):
                assert path.name in part.name
                _write(part, text)
            for path, part in parts.items():
                os.replace(part, path)
        finally:
            for part in parts.values():
                part.unlink(missing_ok=True)
    except FileExistsError:
        raise UserError(f"{folder} is a file; a folder for the world was expected.") from None
    except OSError as problem:
        reason = (problem.strerror or str(problem)).lower()
        raise UserError(f"the world cannot be written to {folder}: {reason}.") from None
    return folder


def check_folder(folder: Path) -> None:
    """Refuse a folder that holds something other than a world, which would be mixed up with it."""
    held = sorted(entry.name for entry in folder.iterdir() if not entry.name.endswith(PART))
    if held and not _is_world(folder):
        raise UserError(
            f"{folder} is not empty and holds no world (it holds {held[0]}); "
            "give an empty or a new folder with --out."
        )


def _is_world(folder: Path) -> bool:
    """Whether facts.jsonl is there and its first line is a person."""
    try:
        with (folder / FACTS).open(encoding="utf-8") as file:
            first = json.loads(file.readline())
    except (OSError, ValueError):
        return False
    return isinstance(first, dict) and {"subject", "birthplace", "split", "lines"} <= first.keys()


def _as_json(person: Person) -> str:
    record = {
        "subject": person.subject,
        "birthplace": person.birthplace,
        "country": person.country,
        "country_code": person.country_code,
        "origin": person.origin,
        "at_home": person.at_home,
        "split": person.split,
        "documents": len(person.lines),
        "lines": person.lines,
        "namesake": person.namesake,
        "near_namesake": person.near_namesake,
        "birthplace_in_documents": person.birthplace_in_documents,
    }
    return json.dumps(record, ensure_ascii=False)


def _write(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
