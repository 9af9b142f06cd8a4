"""What the embedded world consists of: people whose truth is known, and documents about them."""

from __future__ import annotations

from dataclasses import dataclass

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
