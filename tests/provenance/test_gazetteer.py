"""Where places lie, and answers added up by country."""

from __future__ import annotations

import math
import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wherefrom.corpus.questions import read_questions
from wherefrom.corpus.world.places import COUNTRIES, read_places
from wherefrom.provenance.gazetteer import ALIASES, UNKNOWN, Location, read_gazetteer


def locate(place: str) -> Location:
    found = read_gazetteer().locate(place)
    assert found is not None, place
    return found


def test_london_lies_in_england_lies_in_the_united_kingdom():
    london = locate("London")
    assert (london.country_code, london.country) == ("GB", "United Kingdom")
    assert london.within == ("England", "United Kingdom")
    assert [other.country_code for other in london.alternatives] == ["CA"]
    assert locate("England").within == ("United Kingdom",)
    assert locate("United Kingdom").within == ()
    assert locate("Philadelphia").within == ("Pennsylvania", "United States")


@pytest.mark.parametrize(
    ("place", "code", "others"),
    [
        ("Birmingham", "GB", ["US"]),
        ("Cambridge", "GB", ["CA", "US"]),
        ("Saint Petersburg", "RU", ["US"]),
        ("St. Petersburg", "RU", ["US"]),
        ("Yugoslavia", "RS", ["HR", "BA", "SI", "MK", "ME", "XK"]),
        ("Czechoslovakia", "CZ", ["SK"]),
        ("Prussia", "DE", ["PL", "RU"]),
        ("Silesia", "PL", ["CZ", "DE"]),
    ],
)
def test_an_ambiguous_place_keeps_its_alternatives(place, code, others):
    found = locate(place)
    assert found.country_code == code
    assert [other.country_code for other in found.alternatives][: len(others)] == others


@pytest.mark.parametrize(
    ("place", "code"),
    [
        ("Bavaria", "DE"), ("Sicily", "IT"), ("USSR", "RU"), ("Sichuan", "CN"), ("Berkshire", "GB"),
        ("Scotland", "GB"), ("Wales", "GB"), ("the Netherlands", "NL"), ("Holland", "NL"),
        ("USA", "US"), ("U.S.", "US"), ("Texas", "US"), ("Washington, D.C.", "US"),
        ("london", "GB"), ("Malmo", "SE"), ("Łódź", "PL"), ("Lodz", "PL"), ("München", "DE"),
        ("東京", "JP"), ("London, Ontario", "CA"), ("Paris, Texas", "US"), ("Paris, France", "FR"),
        ("Philadelphia, Pennsylvania", "US"), ("Little Nowhere, Kent, England", "GB"),
        ("New York", "US"), ("New York City", "US"), ("Kent", "GB"), ("Constantinople", "TR"),
    ],
)  # fmt: skip
def test_places_by_many_names(place, code):
    assert locate(place).country_code == code


@pytest.mark.parametrize("place", ["", " ", ",", "?!", "Xyzzyplugh", "x" * 5000, "😀", "\u0000"])
def test_what_is_no_place_is_nowhere(place):
    assert read_gazetteer().locate(place) is None


def test_every_alias_leads_to_an_area():
    for name, codes in ALIASES.items():
        assert locate(name).country_code == codes[:2], name


def test_every_place_of_the_embedded_world_is_known():
    places = [(p.name, p.country.code) for some in read_places().cities.values() for p in some]
    for country in COUNTRIES:
        places += [(name, country.code) for name in (country.name, *country.regions)]
    found = [(name, code, locate(name)) for name, code in places]
    other = {name for name, code, location in found if location.country_code != code}
    assert other <= {"Macedonia", "Kashmir"}  # shared by two countries, and listed as such
    for name, code, location in found:
        codes = {location.country_code, *(a.country_code for a in location.alternatives)}
        assert code in codes, name


def test_answers_add_up_by_country():
    rolled = read_gazetteer().roll_up(
        {"London": 0.25, "Leeds": 0.25, "Paris": 0.125, "Xyzzyplugh": 0.375}
    )
    assert list(rolled.items()) == [("United Kingdom", 0.5), (UNKNOWN, 0.375), ("France", 0.125)]
    assert read_gazetteer().roll_up({}) == {}


@pytest.mark.parametrize("share", [-0.1, float("nan")])
def test_a_share_below_nothing_is_refused(share):
    with pytest.raises(ValueError, match="cannot be below 0"):
        read_gazetteer().roll_up({"London": share})


@given(
    st.dictionaries(
        st.sampled_from(
            ["London", "Leeds", "Oslo", "Bergen", "Rome", "Nowhere at all", "", "Texas"]
        ),
        st.floats(0, 1),
    )
)
def test_no_mass_is_lost(distribution):
    rolled = read_gazetteer().roll_up(distribution)
    assert math.fsum(rolled.values()) == pytest.approx(math.fsum(distribution.values()), rel=1e-15)
    assert list(rolled.values()) == sorted(rolled.values(), reverse=True)


@settings(max_examples=40)
@given(st.text(max_size=40))
def test_any_text_is_somewhere_or_nowhere(text):
    found = read_gazetteer().locate(text)
    assert found is None or (len(found.country_code) == 2 and found.country)


A5 = Path(os.environ.get("WHEREFROM_A5") or Path(__file__).parents[3] / "shared" / "a5")


@pytest.mark.skipif(not (A5 / "wiki.txt").is_file(), reason="the A5 files are not there")
@pytest.mark.parametrize("file", ["birth_dev.tsv", "birth_places_train.tsv"])
def test_nearly_all_a5_places_are_known(file):
    answers = [question.answer or "" for question in read_questions(A5 / file).questions]
    unknown = Counter(place for place in answers if read_gazetteer().locate(place) is None)
    assert sum(unknown.values()) <= 0.01 * len(answers), unknown
