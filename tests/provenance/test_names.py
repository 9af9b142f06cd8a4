"""In which country places lie, and what a name alone does: what follows from it."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from wherefrom.corpus.questions import Question, read_questions
from wherefrom.corpus.world.names import COUNTRIES, ORIGINS, fold
from wherefrom.errors import UserError
from wherefrom.provenance import names
from wherefrom.provenance.gazetteer import UNKNOWN, locate
from wherefrom.provenance.judging import require_evidence
from wherefrom.provenance.names import count_unknown, draw_names, summarise
from wherefrom.training.run_folder import load_run


def code_of(place):
    found = locate(place)
    assert found is not None, place
    return found.country_code


@pytest.mark.parametrize(
    ("code", "places"),
    [
        (
            "GB",
            "London|England|United Kingdom|Birmingham|Cambridge|UK|Scotland|Wales|london|"
            "Little Nowhere, Kent, England|Kent",
        ),
        (
            "US",
            "Philadelphia|USA|U.S.|Texas|Washington, D.C.|Paris, Texas|New York|New York City|"
            "Philadelphia, Pennsylvania",
        ),
        ("RU", "Saint Petersburg|St. Petersburg|USSR"),
        ("DE", "Bavaria|München"),
        ("PL", "Silesia|Łódź|Lodz"),
        ("NL", "the Netherlands|Holland"),
        ("IT", "Sicily"),
        ("CZ", "Bohemia"),
        ("CN", "Sichuan"),
        ("SE", "Malmo"),
        ("JP", "東京"),
        ("CA", "London, Ontario"),
        ("FR", "Paris, France"),
        ("TR", "Constantinople"),
    ],
)
def test_places_by_many_names(code, places):
    assert {place: code_of(place) for place in places.split("|") if code_of(place) != code} == {}


def test_every_place_of_the_embedded_world_is_known_and_no_other_text():
    assert locate("Leeds").country == "United Kingdom"
    places = [
        (name, country.code)
        for country in COUNTRIES.values()
        for name in (country.name, *country.regions, *country.cities)
    ]
    other = {name for name, code in places if code_of(name) != code}
    assert other <= {"Macedonia", "Kashmir"}  # shared by several countries
    for text in ("", " ", ",", "?!", "Xyzzyplugh", "x" * 5000, "😀", "\u0000"):
        assert locate(text) is None


A5 = Path(os.environ.get("WHEREFROM_A5") or Path(__file__).parents[3] / "shared" / "a5")


@pytest.mark.skipif(not (A5 / "wiki.txt").is_file(), reason="the A5 files are not there")
@pytest.mark.parametrize("file", ["birth_dev.tsv", "birth_places_train.tsv"])
def test_nearly_all_a5_places_are_known(file):
    answers = [question.answer or "" for question in read_questions(A5 / file).questions]
    unknown = Counter(place for place in answers if locate(place) is None)
    assert sum(unknown.values()) <= 0.02 * len(answers), unknown


# ---- names it never saw ----

BY_NAME = {origin.name: origin for origin in ORIGINS}
THREE = [BY_NAME[name] for name in ("Japanese", "Italian", "Polish")]
CAPITALS = ("Tokyo", "Rome", "Warsaw")
IN_TURN = THREE * 10
FOLLOWING = np.eye(3)[[0, 1, 2] * 10]  # the name's own origin
IGNORING = np.eye(3)[[1] * 30]  # Rome to everybody


def follow(masses):
    """30 names of Japanese, Italian and Polish origin in turn, with masses of the capitals."""
    answers = [CAPITALS[i] for i in np.argmax(masses, axis=1)]
    drawn = [(f"Name {i}", origin) for i, origin in enumerate(IN_TURN)]
    return names.follow_names(drawn, answers, masses, CAPITALS, seed=0)


def test_answers_add_up_by_country_and_what_is_left_is_unknown():
    masses = np.array([[0.1, 0.2, 0.3, 0.2], [0.5, 0.0, 0.5, 0.0]])
    shares, codes, countries = names.by_country(masses, ("Tokyo", "Rome", "Milan", "Qwxyz"))
    assert (codes, countries) == (("IT", "JP", ""), ("Italy", "Japan", UNKNOWN))
    np.testing.assert_allclose(shares, [[0.5, 0.1, 0.4], [0.5, 0.5, 0.0]])
    above, _, _ = names.by_country(np.array([[0.6, 0.4 + 1e-9]]), ("Tokyo", "Rome"))
    assert above.sum() == pytest.approx(1)  # mass a hair above one stays a share
    assert (above >= 0).all()


def test_a_model_that_follows_the_name_is_told_from_one_that_does_not():
    found = follow(FOLLOWING)
    assert found["at_home"]["value"] == pytest.approx(1)
    assert found["at_home"]["by_chance"] == pytest.approx(1 / 3, abs=0.02)
    assert found["at_home"]["p"] < 0.01
    assert found["origins"] == ["Japanese", "Italian", "Polish"]
    assert [row["commonest"] for row in found["by_origin"]] == list(CAPITALS)
    found = follow(IGNORING)
    assert found["at_home"] == pytest.approx({"value": 1 / 3, "by_chance": 1 / 3, "p": 1})
    assert found["commonest"] == {"answer": "Rome", "share": 1}
    by_luck = follow(np.eye(3)[np.random.default_rng(3).integers(0, 3, size=30)])
    assert by_luck["at_home"]["p"] > 0.05


def test_the_sentences_say_what_is_followed_and_who_is_told_nothing():
    unknown = count_unknown(IN_TURN, np.array([True, True, False] * 10), level=0.95)
    assert unknown["all"]["count"] == 20
    assert [row["value"] for row in unknown["by_origin"]] == [1, 1, 0]
    record = {**follow(FOLLOWING), "unknown": unknown}
    strategy, silent = summarise(record)
    assert "it follows the sound of the name: 100% of what it would say" in strategy
    assert "from 0% (Polish) to 100%" in silent
    assert "nothing is added up" in summarise(record | {"countries": [UNKNOWN]})[0]
    ignoring = {**follow(IGNORING), "unknown": unknown}
    assert "cannot be shown to follow the name" in summarise(ignoring)[0]


def test_names_are_new_of_every_origin_and_refused_ones_do_not_come():
    drawn = draw_names(3, random.Random(0))
    assert Counter(origin.name for _, origin in drawn) == dict.fromkeys(BY_NAME, 3)
    assert len({fold(name) for name, _ in drawn}) == len(drawn)
    again = draw_names(3, random.Random(0), refuse=lambda name: name == drawn[0][0])
    assert drawn[0][0] not in {name for name, _ in again}
    assert len(again) == len(drawn)
    assert draw_names(1, random.Random(0), refuse=lambda _: True) == []


def test_a_run_is_probed_with_names_that_no_document_holds(tiny_study):
    run = load_run(tiny_study)
    record = names.probe_run(run, each=2)
    assert json.dumps(record, allow_nan=False) == json.dumps(names.probe_run(run, each=2))
    assert 30 < record["names"] <= 78
    assert [sum(row) for row in record["matrix"]] == pytest.approx([1] * len(record["origins"]))
    assert len(record["sentences"]) >= 2
    with require_evidence(run) as evidence:
        examples = [one["name"] for row in record["by_origin"] for one in row["examples"]]
        assert len(examples) == record["names"]
        assert not any(evidence.count(name).naming for name in examples)
    with pytest.raises(UserError, match="1 to 500 names of each origin"):
        names.probe_run(run, each=0)
    questions = read_questions(tiny_study / "world" / "train.tsv").questions
    assert names.place_relation(questions) == "Where was {subject} born?"
    assert names.place_relation([Question(1, "Who is A?", "A", "x", "Who is {subject}?")]) is None
