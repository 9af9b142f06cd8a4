"""What a name alone does: invented names by country, and whom guessing by them hurts."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from wherefrom.corpus.questions import Question, read_questions
from wherefrom.corpus.world.names import ORIGINS, fold
from wherefrom.errors import UserError
from wherefrom.provenance.gazetteer import UNKNOWN
from wherefrom.provenance.judging import Judged, require_evidence
from wherefrom.provenance.names import (
    by_country,
    compare_subjects,
    count_unknown,
    draw_names,
    follow_names,
    mutual_information,
    place_relation,
    probe_run,
    summarise,
)
from wherefrom.training.run_folder import load_run

JAPANESE, ITALIAN, POLISH = (
    next(origin for origin in ORIGINS if origin.name == name)
    for name in ("Japanese", "Italian", "Polish")
)
CAPITALS = ("Tokyo", "Rome", "Warsaw")
ORIGINS_IN_TURN = [JAPANESE, ITALIAN, POLISH] * 10
DRAWN = [(f"Name {at}", origin) for at, origin in enumerate(ORIGINS_IN_TURN)]


def follow(masses: Any) -> dict[str, Any]:
    """30 names of Japanese, Italian and Polish origin in turn, with masses of the capitals."""
    masses = np.asarray(masses, dtype=float)
    said = [CAPITALS[int(np.argmax(row))] for row in masses]
    return follow_names(DRAWN, said, masses, CAPITALS, seed=0)


FOLLOWING = np.eye(3).tolist() * 10  # the name's own origin
IGNORING = [[0, 1, 0]] * 30  # Rome to everybody


def test_answers_add_up_by_country_and_what_is_left_is_unknown():
    masses = np.array([[0.1, 0.2, 0.3, 0.2], [0.5, 0.0, 0.5, 0.0]])
    shares, codes, countries = by_country(masses, ("Tokyo", "Rome", "Milan", "Qwxyz"))
    assert codes == ("IT", "JP", "")
    assert countries == ("Italy", "Japan", UNKNOWN)
    np.testing.assert_allclose(shares, [[0.5, 0.1, 0.4], [0.5, 0.5, 0.0]])
    above, _, _ = by_country(np.array([[0.6, 0.4 + 1e-9]]), ("Tokyo", "Rome"))
    assert above.sum() == pytest.approx(1)  # mass a hair above one stays a share
    assert (above >= 0).all()


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


def test_a_model_that_follows_the_name_is_found_out():
    found = follow(FOLLOWING)
    assert found["at_home"]["value"] == 1
    assert found["at_home"]["by_chance"] == pytest.approx(1 / 3, abs=0.02)
    assert found["mutual_information"]["bits"] == pytest.approx(np.log2(3))
    assert 0 < found["mutual_information"]["by_chance"] < 0.3
    assert found["mutual_information"]["p"] < 0.01
    assert found["origins"] == ["Japanese", "Italian", "Polish"]
    assert [row["commonest"] for row in found["by_origin"]] == list(CAPITALS)


def test_a_model_that_ignores_the_name_is_at_home_by_chance_alone():
    found = follow(IGNORING)
    assert found["at_home"] == pytest.approx({"value": 1 / 3, "by_chance": 1 / 3})
    assert found["mutual_information"]["bits"] == pytest.approx(0, abs=1e-12)
    assert found["mutual_information"]["p"] == 1
    assert found["commonest"] == {"answer": "Rome", "share": 1}
    # random answers share only the bits that chance gives small tables
    rows = np.eye(3)[np.random.default_rng(3).integers(0, 3, size=30)]
    found = follow(rows)["mutual_information"]
    assert found["bits"] > 0.01  # the plain number is biased upwards
    assert found["p"] > 0.05


def test_abstaining_that_depends_on_the_origin_is_found_out():
    found = count_unknown(ORIGINS_IN_TURN, np.array([False, True, True] * 10), level=0.95)
    assert [row["value"] for row in found["by_origin"]] == [0, 1, 1]
    assert found["all"]["count"] == 20
    assert found["p"] < 0.01
    even = count_unknown(ORIGINS_IN_TURN, np.arange(30) % 2 == 0, level=0.95)
    assert even["p"] > 0.5
    assert count_unknown(ORIGINS_IN_TURN, np.ones(30, dtype=bool), level=0.95)["p"] == 1


def person(subject: str, answer: str, *, right: bool, shown: bool = True) -> Judged:
    return Judged(
        role="judged",
        seen=True,
        source="dev",
        subject=subject,
        question=f"Where was {subject} born?",
        answer=answer,
        template="Where was {subject} born?",
        said=answer if right else "Nowhere",
        right=right,
        verdict="stated" if right else "made up",
        shown=right,
        shown_internal=shown,
        confidence=0.5,
        internal_confidence=0.5,
        naming=1,
        about=1,
    )


def people_and_questions() -> tuple[list[Judged], list[Question]]:
    """Japanese names: right about those born in Japan, wrong about those born in Italy."""
    names = [name for name, origin in draw_names(60, random.Random(5)) if origin is JAPANESE]
    judged = [person(name, "Tokyo", right=True) for name in names[:20]]
    judged += [person(name, "Rome", right=False) for name in names[20:40]]
    judged.append(person("Ann Clark", "Qwxyz", right=False))
    italian = [name for name, origin in draw_names(20, random.Random(6)) if origin is ITALIAN]
    rows = [*((name, "Osaka") for name in names[40:]), *((name, "Milan") for name in italian)]
    train = [Question(at, f"Where was {n} born?", n, place) for at, (n, place) in enumerate(rows)]
    return judged, train


def test_those_born_elsewhere_than_their_name_suggests_are_compared_with_the_others():
    judged, train = people_and_questions()
    found = compare_subjects(judged, train, level=0.95)
    assert found["judged"] == 41
    assert found["located"] == 40  # Qwxyz is in no gazetteer
    wrong = found["seen"]["wrong"]
    assert wrong["group"]["value"] > 0.8
    assert wrong["others"]["value"] < 0.2
    assert wrong["difference"]["low"] > 0.5
    nobody = found["unseen"]["wrong"]
    assert nobody["group"]["value"] is None
    assert nobody["difference"]["reason"]
    json.dumps(found, allow_nan=False)
    # of the right ones alone it is counted who is withheld
    judged[0] = person(judged[0].subject, "Tokyo", right=True, shown=False)
    withheld = compare_subjects(judged, train, level=0.95)["seen"]
    counts = [withheld["right_but_withheld"][key] for key in ("group", "others")]
    assert sum(each["count"] for each in counts) == 1


def test_the_sentences_say_what_the_numbers_say():
    judged, train = people_and_questions()
    unknown = count_unknown(ORIGINS_IN_TURN, np.array([True, True, False] * 10), level=0.95)
    compared = compare_subjects(judged, train, level=0.95)
    rest = {"level": 0.95, "unknown": unknown, "subjects": compared}
    record = {**follow(FOLLOWING), **rest}
    strategy, silent, harm = summarise(record)
    assert "it follows the sound of the name:" in strategy
    assert "100% of what it would say" in strategy
    assert "from 0% (Polish) to 100%" in silent
    assert "differ by more than chance" in silent
    assert "which hurts them" in harm
    record["countries"] = [UNKNOWN]
    assert "nothing is added up by country" in summarise(record)[0]
    gap = compared["seen"]["wrong"]["difference"]
    gap.update(value=0.02, low=-0.05, high=0.1)
    assert "which may be chance" in summarise(record)[-1]
    assert "cannot be shown to follow the name" in summarise({**follow(IGNORING), **rest})[0]


def test_names_are_new_of_every_origin_and_refused_ones_do_not_come():
    drawn = draw_names(3, random.Random(0))
    assert Counter(origin.name for _, origin in drawn) == {origin.name: 3 for origin in ORIGINS}
    assert len({fold(name) for name, _ in drawn}) == len(drawn)
    again = draw_names(3, random.Random(0), refuse=lambda name: name == drawn[0][0])
    assert drawn[0][0] not in {name for name, _ in again}
    assert len(again) == len(drawn)
    assert draw_names(3, random.Random(0)) == drawn
    assert draw_names(1, random.Random(0), refuse=lambda _: True) == []


def test_a_run_is_probed_with_names_that_no_document_holds(tiny_study: Path, tmp_path: Path):
    run = load_run(shutil.copytree(tiny_study, tmp_path / "run"))
    record = probe_run(run, each=2)
    json.dumps(record, allow_nan=False)
    assert 30 < record["names"] <= 78
    assert len(record["matrix"]) == len(record["origins"])
    assert all(sum(row) == pytest.approx(1) for row in record["matrix"])
    assert len(record["sentences"]) >= 2
    with require_evidence(run) as evidence:
        examples = [one["name"] for row in record["by_origin"] for one in row["examples"]]
        assert len(examples) == record["names"]
        assert not any(evidence.count(name).naming for name in examples)
    with pytest.raises(UserError, match="1 to 500 names of each origin"):
        probe_run(run, each=0)
    path = run.folder / "world" / "train.tsv"
    assert place_relation(read_questions(path).questions) == "Where was {subject} born?"
    assert place_relation([Question(1, "Who is A?", "A", "x", "Who is {subject}?")]) is None
