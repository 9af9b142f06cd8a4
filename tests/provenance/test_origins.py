"""What a name alone does: invented names by country, and whom guessing by them hurts."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wherefrom.corpus.folding import fold
from wherefrom.corpus.questions import Question
from wherefrom.corpus.subjects import Subject
from wherefrom.corpus.world.names import ORIGINS, Origin
from wherefrom.provenance.gazetteer import UNKNOWN
from wherefrom.provenance.judging.judge import Judged
from wherefrom.provenance.judging.metrics import compare_rates, rate
from wherefrom.provenance.names import (
    Countries,
    NamedOrigin,
    Said,
    by_country,
    compare_people,
    count_unknown,
    draw_names,
    fit_guesser,
    follow_names,
    mutual_information,
    tell,
)

JAPANESE, ITALIAN, POLISH = (
    next(origin for origin in ORIGINS if origin.name == name)
    for name in ("Japanese", "Italian", "Polish")
)
CODES, COUNTRIES = ("JP", "IT", "PL", ""), ("Japan", "Italy", "Poland", UNKNOWN)
LEVEL = 0.95


def said(origins: list[Origin], shares: list[list[float]], confidence: list[float]) -> Said:
    return Said(
        names=tuple(NamedOrigin(f"Name {at}", origin) for at, origin in enumerate(origins)),
        greedy=tuple(COUNTRIES[int(np.argmax(row))] for row in shares),
        codes=CODES,
        countries=COUNTRIES,
        shares=np.array(shares),
        confidence=np.array(confidence),
    )


def following(times: int = 10) -> Said:
    """A model that always says a place of the name's own origin."""
    origins = [JAPANESE, ITALIAN, POLISH] * times
    return said(origins, np.eye(4)[:3].tolist() * times, [0.1, 0.2, 0.3] * times)


def ignoring(times: int = 10) -> Said:
    """A model that says Italy to everybody."""
    origins = [JAPANESE, ITALIAN, POLISH] * times
    return said(origins, [[0, 1, 0, 0]] * 3 * times, [0.1, 0.2, 0.3] * times)


def test_answers_add_up_by_country_and_what_is_left_is_unknown():
    answers = ("Tokyo", "Rome", "Milan", "Qwxyz")
    masses = np.array([[0.1, 0.2, 0.3, 0.2], [0.5, 0.0, 0.5, 0.0]])
    shares, codes, countries = by_country(masses, answers, Countries())
    assert codes == ("IT", "JP", "")
    assert countries == ("Italy", "Japan", UNKNOWN)
    np.testing.assert_allclose(shares, [[0.5, 0.1, 0.4], [0.5, 0.5, 0.0]])


def test_mass_a_hair_above_one_stays_a_share():
    shares, _, _ = by_country(np.array([[0.6, 0.4 + 1e-9]]), ("Tokyo", "Rome"), Countries())
    assert shares.sum() == pytest.approx(1)
    assert (shares >= 0).all()


@pytest.mark.parametrize(
    ("shares", "label", "bits"),
    [
        (np.eye(4), [0, 1, 2, 3], 2.0),
        (np.eye(2)[[0, 0, 1, 1]], [0, 0, 1, 1], 1.0),
        (np.full((4, 2), 0.5), [0, 0, 1, 1], 0.0),
        (np.eye(2)[[0, 1, 0, 1]], [0, 0, 1, 1], 0.0),
    ],
)
def test_mutual_information_in_bits(shares, label, bits):
    assert mutual_information(np.asarray(shares), np.array(label)) == pytest.approx(bits, abs=1e-12)


@given(st.integers(2, 12), st.integers(1, 4), st.integers(0, 99))
def test_mutual_information_is_bounded_by_both_entropies(names, countries, seed):
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.ones(countries), size=names)
    label = rng.integers(0, 3, size=names)
    information = mutual_information(shares, label)
    assert -1e-9 <= information <= np.log2(max(1, countries)) + 1e-9
    assert information <= np.log2(len(set(label.tolist()))) + 1e-9


def test_a_model_that_follows_the_name_is_found_out():
    found = follow_names(following(), level=LEVEL, seed=0)
    assert found["at_home"]["value"] == 1
    assert found["at_home"]["by_chance"] == pytest.approx(1 / 3, abs=0.02)
    assert found["mutual_information"]["bits"] == pytest.approx(np.log2(3))
    assert 0 < found["mutual_information"]["by_chance"] < 0.3
    assert found["mutual_information"]["p"] < 0.01
    assert found["origins"] == ["Japanese", "Italian", "Polish"]
    assert found["matrix"] == np.eye(4)[:3].tolist()
    assert [row["commonest"] for row in found["by_origin"]] == ["Japan", "Italy", "Poland"]


def test_a_model_that_ignores_the_name_is_at_home_by_chance_alone():
    found = follow_names(ignoring(), level=LEVEL, seed=0)
    assert found["at_home"]["value"] == pytest.approx(1 / 3)
    assert found["at_home"]["by_chance"] == pytest.approx(1 / 3)
    assert found["at_home"]["p"] == 1
    assert found["mutual_information"]["bits"] == pytest.approx(0, abs=1e-12)
    assert found["mutual_information"]["p"] == 1
    assert found["commonest"] == {"answer": "Italy", "share": 1}


def test_random_answers_share_only_the_bits_that_chance_gives_small_tables():
    rng = np.random.default_rng(3)
    rows = np.eye(4)[rng.integers(0, 3, size=45)]
    drawn = said([JAPANESE, ITALIAN, POLISH] * 15, rows.tolist(), [0.1] * 45)
    found = follow_names(drawn, level=LEVEL, seed=0)["mutual_information"]
    assert found["bits"] > 0.01  # the plain number is biased upwards
    assert abs(found["above_chance"]) < 0.1
    assert found["p"] > 0.05


def test_abstaining_that_depends_on_the_origin_is_found_out():
    biased = said([JAPANESE, ITALIAN, POLISH] * 20, [[1, 0, 0, 0]] * 60, [0.9, 0.1, 0.1] * 20)
    found = count_unknown(biased, 0.5, level=LEVEL, seed=0)
    assert [row["value"] for row in found["by_origin"]] == [0, 1, 1]
    assert found["all"]["count"] == 40
    assert found["spread"]["value"] > found["spread"]["by_chance"]
    assert found["spread"]["p"] < 0.01
    even = said([JAPANESE, ITALIAN] * 20, [[1, 0, 0, 0]] * 40, [0.9, 0.9, 0.1, 0.1] * 10)
    assert count_unknown(even, 0.5, level=LEVEL, seed=0)["spread"]["p"] > 0.2


def person(subject: str, answer: str, *, right: bool, seen: bool = True) -> Judged:
    whom = Subject("judged", seen, "dev", subject, f"Where was {subject} born?", answer)
    return Judged(
        person=whom,
        said=answer if right else "Nowhere",
        right=right,
        verdict="remembered" if right else "made up",
        shown=right,
        shown_internal=right,
        confidence=0.5,
        internal_confidence=0.5,
        naming=1,
        about=1,
    )


def people_and_questions() -> tuple[list[Judged], list[Question]]:
    """Japanese names: right about those born in Japan, wrong about those born in Italy."""
    names = [one.name for one in draw_names(60, random.Random(5)) if one.origin is JAPANESE]
    judged = [person(name, "Tokyo", right=True) for name in names[:20]]
    judged += [person(name, "Rome", right=False) for name in names[20:40]]
    judged.append(person("Ann Clark", "Qwxyz", right=False))
    italian = [one.name for one in draw_names(20, random.Random(6)) if one.origin is ITALIAN]
    rows = [*((name, "Osaka") for name in names[40:]), *((name, "Milan") for name in italian)]
    train = [Question(at, f"Where was {n} born?", n, place) for at, (n, place) in enumerate(rows)]
    return judged, train


def test_those_born_elsewhere_than_their_name_suggests_are_compared_with_the_others():
    judged, train = people_and_questions()
    found = compare_people(judged, train, Countries(), level=LEVEL, seed=0)
    assert found["judged"] == 41
    assert found["located"] == 40  # Qwxyz is in no gazetteer
    wrong = found["seen"]["elsewhere_and_at_home"]["wrong"]
    # the classifier is not perfect, but these names are far apart
    assert wrong["group"]["value"] > 0.8
    assert wrong["others"]["value"] < 0.2
    assert wrong["difference"]["low"] > 0.5
    guess = found["seen"]["hard_and_easy"]["wrong"]
    assert guess["difference"]["low"] > 0.5
    nobody = found["unseen"]["elsewhere_and_at_home"]["wrong"]
    assert nobody["group"]["value"] is None
    assert nobody["difference"]["reason"]
    json.dumps(found, allow_nan=False)


def test_nobody_with_a_place_is_no_failure():
    judged = [person("Ann Clark", "1815", right=True)]
    train = [Question(1, "When was Bob Moe born?", "Bob Moe", "Qwxyz")]
    found = compare_people(judged, train, Countries(), level=LEVEL, seed=0)
    json.dumps(found, allow_nan=False)
    assert found["located"] == 0


def whole_record(what: Said) -> dict[str, Any]:
    judged, train = people_and_questions()
    return {
        "level": LEVEL,
        **follow_names(what, level=LEVEL, seed=0),
        "unknown": count_unknown(what, 0.25, level=LEVEL, seed=0),
        "people": compare_people(judged, train, Countries(), level=LEVEL, seed=0),
    }


def test_the_sentences_say_what_the_numbers_say():
    strategy, unknown, harm = tell(whole_record(following()))
    assert "it follows the sound of the name" in strategy
    assert "100% of what it would say" in strategy
    assert "from 0% (Polish) to 100% (Japanese)" in unknown
    assert "abstaining is itself biased" in unknown
    assert "which hurts them" in harm
    strategy, *_ = tell(whole_record(ignoring()))
    assert "cannot be shown to follow the name" in strategy
    assert strategy.endswith("Italy (100%).")
    record = whole_record(ignoring())
    record["unknown_place"] = 0.31
    assert "31% is no known answer, or in no gazetteer" in tell(record)[0]


def test_one_rate_for_all_origins_is_no_span():
    record = whole_record(following())
    for row in record["unknown"]["by_origin"]:
        row["value"] = 1.0
    assert tell(record)[1].endswith("names, whatever their origin.")


def test_what_is_no_place_is_not_added_up():
    record = whole_record(following())
    record["countries"] = [UNKNOWN]
    assert "nothing is added up by country" in tell(record)[0]


def test_a_gap_that_may_be_chance_is_no_harm():
    record = whole_record(following())
    gap = record["people"]["seen"]["elsewhere_and_at_home"]["wrong"]["difference"]
    gap.update(value=0.02, low=-0.05, high=0.1)
    assert "which may be chance" in tell(record)[-1]
    gap.update(value=-0.2, low=-0.3, high=-0.1)
    assert "which favours them" in tell(record)[-1]


def test_names_are_new_of_every_origin_and_refused_ones_do_not_come():
    drawn = draw_names(3, random.Random(0))
    assert Counter(one.origin.name for one in drawn) == {origin.name: 3 for origin in ORIGINS}
    assert len({fold(one.name) for one in drawn}) == len(drawn)
    again = draw_names(3, random.Random(0), refuse=lambda name: name == drawn[0].name)
    assert drawn[0].name not in {one.name for one in again}
    assert len(again) == len(drawn)
    assert draw_names(3, random.Random(0)) == drawn
    assert draw_names(1, random.Random(0), refuse=lambda _: True) == []


def test_the_origin_of_a_name_is_told_by_its_letters_better_than_by_chance():
    guesser = fit_guesser(0)
    assert len(ORIGINS) < guesser.held_out <= 30 * len(ORIGINS)
    assert 15 / len(ORIGINS) < guesser.exact < 1
    assert guesser.exact <= guesser.home <= 1
    found = [origin.name for origin in guesser.guess(["Yoko Takahashi", "Giuseppe Bianchi"])]
    assert found == ["Japanese", "Italian"]


@given(st.integers(0, 200), st.integers(0, 200), st.floats(0.5, 0.999))
def test_a_share_lies_within_its_interval(count, more, level):
    people = count + more
    found = rate(count, people, level=level)
    if people == 0:
        assert found["value"] is None
        assert found["reason"]
        return
    assert 0 <= found["low"] <= found["value"] <= found["high"] <= 1
    assert found["high"] > found["low"]


def test_wilsons_and_newcombes_intervals_are_those_of_the_books():
    # Newcombe 1998: 81 of 263 (table I), and 56 of 70 against 48 of 80 (table II, method 10)
    one = rate(81, 263)
    assert (round(one["low"], 4), round(one["high"], 4)) == (0.2553, 0.3662)
    event = np.array([True] * 56 + [False] * 14 + [True] * 48 + [False] * 32)
    group = np.arange(150) < 70
    difference = compare_rates(event, group)["difference"]
    assert difference["value"] == pytest.approx(0.2)
    assert (round(difference["low"], 4), round(difference["high"], 4)) == (0.0524, 0.3339)
