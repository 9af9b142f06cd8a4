"""From a number of people and a seed to a whole world, and what it amounts to."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from wherefrom.corpus.world.biographies import write_biographies
from wherefrom.corpus.world.people import Resident, draw_residents, draw_splits
from wherefrom.corpus.world.places import read_gazetteer
from wherefrom.corpus.world.records import Biography, Person, World
from wherefrom.errors import UserError

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
