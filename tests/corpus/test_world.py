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
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wherefrom.corpus.documents import find_subject, read_documents
from wherefrom.corpus.folding import fold
from wherefrom.corpus.questions import read_questions
from wherefrom.corpus.world import Person, World, make_world, summarize_world, write_world
from wherefrom.corpus.world.generator import SPLITS, TEMPLATE, WORDINGS, states
from wherefrom.corpus.world.names import ORIGINS, InventedName, Register, romanise
from wherefrom.corpus.world.places import read_places
from wherefrom.errors import UserError

SEEDS = (0, 1, 2)
FILES = ("documents.txt", "train.tsv", "dev.tsv", "unseen.tsv", "facts.jsonl")


@cache
def world_of(seed: int, people: int = 3000) -> World:
    return make_world(people, seed)


def texts_of(world: World, person: Person) -> list[str]:
    return [world.documents[line - 1].text for line in person.lines]


def digest(folder: Path) -> str:
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)
    return hashlib.sha256(b"".join((folder / name).read_bytes() for name in FILES)).hexdigest()


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(-(10**9), 10**18), people=st.integers(20, 160))
def test_any_world_keeps_its_laws(seed: int, people: int) -> None:
    world = make_world(people, seed)
    assert len(world.people) == people
    assert len(world.of_split("dev")) == round(0.17 * people)
    assert len(world.of_split("unseen")) == round(0.15 * people)
    assert sorted(n for p in world.people for n in p.lines) == [*range(1, len(world.documents) + 1)]
    births: dict[str, list[str]] = {}
    for person in world.people:
        births.setdefault(fold(person.subject), []).append(person.birthplace)
        assert bool(person.lines) == (person.split != "unseen")
        assert person.birthplace_in_documents == any(
            states(text, person.birthplace) for text in texts_of(world, person)
        )
        for line in person.lines:
            document = world.documents[line - 1]
            assert document.subject == person.subject
            assert find_subject(document.line) == person.subject
            assert len(document.line) <= 300
            assert not re.search(r"[\n\t{}“”‘’]|  ", document.line)
        assert not person.namesake or person.split == "train"
    for person in world.people:  # namesakes contradict each other, and nobody else shares a name
        places = births[fold(person.subject)]
        assert len(places) == len(set(places)) == (2 if person.namesake else 1)


def test_the_same_seed_gives_the_same_bytes_in_another_process(tmp_path: Path) -> None:
    code = (
        "import sys; from wherefrom.corpus.world import make_world, write_world; "
        "write_world(make_world(300, 7), sys.argv[1])"
    )
    for hash_seed in ("1", "2"):
        paths = os.pathsep.join(path for path in sys.path if path)
        environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": paths}
        arguments = [sys.executable, "-c", code, str(tmp_path / hash_seed)]
        subprocess.run(arguments, env=environment, check=True)
    write_world(make_world(300, 7), tmp_path / "here")
    write_world(make_world(300, 8), tmp_path / "other")
    assert digest(tmp_path / "1") == digest(tmp_path / "2") == digest(tmp_path / "here")
    assert digest(tmp_path / "other") != digest(tmp_path / "here")


@pytest.mark.parametrize("seed", SEEDS)
def test_the_documented_shares(seed: int) -> None:
    world = world_of(seed)
    summary = summarize_world(world)
    known = [person for person in world.people if person.split != "unseen"]
    assert [summary[split] for split in SPLITS] == [2040, 510, 450]
    assert 300 <= summary["places"] <= 500
    assert summary["majority_place"] == "London"
    assert 0.04 <= summary["majority_share"] <= 0.065
    counts = Counter(len(person.lines) for person in known)
    assert 0.66 < counts[1] / len(known) < 0.74
    assert 0.17 < counts[2] / len(known) < 0.23
    assert 130 <= mean(len(document.line) for document in world.documents) <= 150
    assert 0.55 <= summary["born_at_home"] <= 0.62
    at_home = mean(person.at_home for person in world.people)
    assert summary["born_at_home"] == pytest.approx(at_home, abs=1e-4)
    assert summary["told_once"] == pytest.approx(counts[1] / len(known), abs=1e-4)
    assert 0.965 <= summary["stated"] <= 0.995
    assert 0.85 <= summary["stated_early"] < summary["stated"]
    assert summary["dev_places_in_train"] >= 0.88
    assert summary["namesakes"] == 30
    assert 60 < summary["near_namesakes"] < 180
    assert summary["origins"] == len(ORIGINS) >= 25
    assert 0.1 < mean(not person.subject.isascii() for person in world.people) < 0.25


@pytest.mark.parametrize("seed", SEEDS)
def test_dev_can_be_answered_by_a_reader_and_unseen_cannot(seed: int) -> None:
    world = world_of(seed)
    dev = world.of_split("dev")
    assert mean(any(states(t, p.birthplace) for t in texts_of(world, p)) for p in dev) >= 0.95
    everything = fold("\n".join(document.line for document in world.documents))
    for person in world.of_split("unseen"):
        name = fold(person.subject)
        assert name not in everything or not states(everything, name)


def test_position_alone_does_not_give_the_birthplace_away() -> None:
    world = world_of(0)
    names = {place.name for cities in read_places().cities.values() for place in cities}
    names |= {person.birthplace for person in world.people}
    longest_first = sorted(names, key=lambda name: (-len(name), name))
    any_place = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, longest_first))})(?!\w)")
    first = last = distracted = telling = 0
    for person in world.people:
        for text in texts_of(world, person):
            places = any_place.findall(text)
            distracted += any(place != person.birthplace for place in places)
            if person.birthplace in places:
                telling += 1
                first += places[0] == person.birthplace
                last += places[-1] == person.birthplace
    assert distracted / len(world.documents) > 0.85
    assert 0.5 < first / telling < 0.69
    assert last / telling < 0.6


def test_every_wording_is_used_and_never_twice_for_one_person() -> None:
    world = world_of(0)
    wordings = {*WORDINGS["birth_openings"], *WORDINGS["birth_sentences"]}
    assert len(wordings) >= 40
    assert {document.wording for document in world.documents} - {None} == wordings
    for person in world.people:
        used = Counter(world.documents[line - 1].wording for line in person.lines)
        assert all(count == 1 for wording, count in used.items() if wording is not None)


def test_guessing_from_the_name_beats_the_majority_and_stays_poor() -> None:
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.naive_bayes import MultinomialNB
    from sklearn.pipeline import make_pipeline

    scores, majorities, ceilings = [], [], []
    for seed in SEEDS:
        train, dev = world_of(seed).of_split("train"), world_of(seed).of_split("dev")
        letters = CountVectorizer(analyzer="char_wb", ngram_range=(1, 3))
        guesser = make_pipeline(letters, MultinomialNB(alpha=0.1))
        guesser.fit([p.subject for p in train], [p.birthplace for p in train])
        guesses = guesser.predict([p.subject for p in dev])
        scores.append(mean(g == p.birthplace for g, p in zip(guesses, dev, strict=True)))
        majorities.append(mean(person.birthplace == "London" for person in dev))
        usual = {
            origin.name: Counter(
                p.birthplace for p in train if p.origin == origin.name
            ).most_common(1)[0][0]
            for origin in ORIGINS
        }
        ceilings.append(mean(usual[person.origin] == person.birthplace for person in dev))
    assert mean(majorities) < mean(scores)
    assert 0.06 <= mean(scores) <= 0.15
    assert mean(scores) < mean(ceilings) < 0.3  # even knowing every origin by heart is not enough


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


def test_names_stay_distinct_in_a_large_world() -> None:
    world = world_of(0, 10_000)
    names = Counter(fold(person.subject) for person in world.people if not person.namesake)
    assert max(names.values()) == 1
    assert summarize_world(world)["majority_place"] == "London"


def test_the_files_load_and_agree_with_the_facts(tmp_path: Path) -> None:
    world = world_of(1, 200)
    folder = write_world(world, tmp_path / "a" / "world")
    corpus = read_documents(folder / "documents.txt")
    assert [d.text for d in corpus.documents] == [d.line for d in world.documents]
    facts = [json.loads(line) for line in (folder / "facts.jsonl").read_text("utf-8").splitlines()]
    for fact, person in zip(facts, world.people, strict=True):
        assert fact["subject"] == person.subject
        assert fact["documents"] == len(fact["lines"])
        assert {corpus.documents[n - 1].subject for n in fact["lines"]} <= {person.subject}
    for split in SPLITS:
        asked = read_questions(folder / f"{split}.tsv")
        assert asked.template == TEMPLATE
        true = [(f["subject"], f["birthplace"]) for f in facts if f["split"] == split]
        assert [(q.subject, q.answer) for q in asked.questions] == true


def test_a_world_replaces_a_world_and_nothing_else(tmp_path: Path) -> None:
    write_world(make_world(20, 0), tmp_path / "w")
    (tmp_path / "w" / "notes").write_text("mine")
    write_world(make_world(25, 0), tmp_path / "w")
    assert len((tmp_path / "w" / "facts.jsonl").read_text("utf-8").splitlines()) == 25
    assert sorted(p.name for p in (tmp_path / "w").iterdir()) == sorted([*FILES, "notes"])
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "documents.txt").write_text("Ann. My own corpus.")
    with pytest.raises(UserError, match="holds no world"):
        write_world(make_world(20, 0), mine)
    assert [path.name for path in mine.iterdir()] == ["documents.txt"]
    assert (mine / "documents.txt").read_text() == "Ann. My own corpus."
    crashed = tmp_path / "crashed"
    crashed.mkdir()
    (crashed / ".facts.jsonl.0a1b2c").write_text("left by a kill before any file was whole")
    assert write_world(make_world(20, 0), crashed) == crashed


@pytest.mark.parametrize("full_at", [1, 3, 5])
def test_a_failed_write_keeps_the_old_world(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full_at: int
) -> None:
    folder = write_world(make_world(20, 0), tmp_path / "w")
    before, calls = digest(folder), []

    def full(handle: int) -> None:
        calls.append(handle)
        if len(calls) == full_at:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match="No space left on device"):
        write_world(make_world(30, 1), folder)
    assert digest(folder) == before


@pytest.mark.parametrize("people", [-1, 0, 19, 1_000_001])
def test_too_few_or_too_many_people_are_refused(people: int) -> None:
    with pytest.raises(UserError, match="20 to 1,000,000 people"):
        make_world(people, 0)


@pytest.mark.parametrize(
    ("text", "script", "latin"),
    [
        ("Щербакова", "cyrillic", "Shcherbakova"),
        ("Юлия", "cyrillic", "Yuliya"),
        ("Παπαδόπουλος", "greek", "Papadopoulos"),
        ("Χριστίνα", "greek", "Christina"),
        ("CHIN-FENG", "latin", "Chin-feng"),
        ("Łucja", "latin", "Łucja"),
    ],
)
def test_names_are_romanised(text: str, script: str, latin: str) -> None:
    assert romanise(text, script) == latin
