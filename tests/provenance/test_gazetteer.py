"""In which country places lie."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wherefrom.corpus.questions import read_questions
from wherefrom.corpus.world.names import COUNTRIES
from wherefrom.provenance.gazetteer import locate, read_aliases


def code_of(place: str) -> str:
    found = locate(place)
    assert found is not None, place
    return found.country_code


@pytest.mark.parametrize(
    ("place", "code"),
    [
        ("London", "GB"), ("England", "GB"), ("United Kingdom", "GB"), ("Philadelphia", "US"),
        ("Birmingham", "GB"), ("Cambridge", "GB"), ("Saint Petersburg", "RU"),
        ("St. Petersburg", "RU"), ("Yugoslavia", "RS"), ("Czechoslovakia", "CZ"),
        ("Prussia", "DE"), ("Silesia", "PL"), ("Bavaria", "DE"), ("Sicily", "IT"), ("USSR", "RU"),
        ("Sichuan", "CN"), ("Berkshire", "GB"), ("Scotland", "GB"), ("Wales", "GB"),
        ("the Netherlands", "NL"), ("Holland", "NL"), ("USA", "US"), ("U.S.", "US"),
        ("Texas", "US"), ("Washington, D.C.", "US"), ("london", "GB"), ("Malmo", "SE"),
        ("Łódź", "PL"), ("Lodz", "PL"), ("München", "DE"), ("東京", "JP"),
        ("London, Ontario", "CA"),
        ("Paris, Texas", "US"), ("Paris, France", "FR"), ("Philadelphia, Pennsylvania", "US"),
        ("Little Nowhere, Kent, England", "GB"), ("New York", "US"), ("New York City", "US"),
        ("Kent", "GB"), ("Constantinople", "TR"),
    ],
)  # fmt: skip
def test_places_by_many_names(place, code):
    assert code_of(place) == code


@pytest.mark.parametrize("place", ["", " ", ",", "?!", "Xyzzyplugh", "x" * 5000, "😀", "\u0000"])
def test_what_is_no_place_is_nowhere(place):
    assert locate(place) is None


def test_countries_have_names_and_every_alias_leads_to_one():
    assert locate("Leeds").country == "United Kingdom"
    aliases = read_aliases()
    assert len(aliases) > 300
    for name, codes in aliases.items():
        assert code_of(name) == codes[:2], name


def test_every_place_of_the_embedded_world_is_known():
    places = [
        (name, country.code)
        for country in COUNTRIES.values()
        for name in (country.name, *country.regions, *country.cities)
    ]
    other = {name for name, code in places if code_of(name) != code}
    assert other <= {"Macedonia", "Kashmir"}  # shared by several countries


@settings(max_examples=40)
@given(st.text(max_size=40))
def test_any_text_is_somewhere_or_nowhere(text):
    found = locate(text)
    assert found is None or (len(found.country_code) == 2 and found.country)


A5 = Path(os.environ.get("WHEREFROM_A5") or Path(__file__).parents[3] / "shared" / "a5")


@pytest.mark.skipif(not (A5 / "wiki.txt").is_file(), reason="the A5 files are not there")
@pytest.mark.parametrize("file", ["birth_dev.tsv", "birth_places_train.tsv"])
def test_nearly_all_a5_places_are_known(file):
    answers = [question.answer or "" for question in read_questions(A5 / file).questions]
    unknown = Counter(place for place in answers if locate(place) is None)
    assert sum(unknown.values()) <= 0.01 * len(answers), unknown
