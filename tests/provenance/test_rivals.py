"""Controls that know only the relation or only the name, and the embedded world's own record."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wherefrom.corpus.split import (
    CALIBRATION,
    FITTING,
    INVENTED,
    JUDGED,
    SET_ASIDE,
    TEXT,
    HeldOutQuestion,
)
from wherefrom.corpus.world import make_world, write_world
from wherefrom.corpus.world.generator import FACTS_FILE
from wherefrom.provenance import rivals
from wherefrom.provenance.metrics import Bootstrap
from wherefrom.provenance.world_record import read_world_record

RELATIONS = ["Where was {subject} born?", "Where did {subject} study?"]
RIGHT_SHARE = {RELATIONS[0]: 0.9, RELATIONS[1]: 0.3}


def people(count, seed, role=CALIBRATION, *, seen_names=False):
    """Answers that are right by relation only; `seen_names`: seen subjects have longer names."""
    rng = np.random.default_rng(seed)
    subjects, right = [], []
    for number in range(count):
        relation = RELATIONS[int(rng.integers(2))]
        seen = bool(rng.random() < 0.6)
        letters = "".join(rng.choice(list("abcdefghij"), size=6 + 4 * (seen_names and seen)))
        name = f"{letters.title()} {role[0]}{number}"
        question = relation.replace("{subject}", name)
        subjects.append(HeldOutQuestion(role, seen, SET_ASIDE, name, question, "Rome", relation))
        right.append(rng.random() < RIGHT_SHARE[relation])
    return subjects, np.array(right)


def columns_of(subjects):
    questions = [(one.subject, one.template) for one in subjects]
    return rivals.control_columns(questions, RELATIONS, len)


def judge_controls(calibrating, right, judged):
    known, asked = columns_of(calibrating), columns_of(judged)
    controls = rivals.control_rivals(RELATIONS)
    scores = rivals.rival_scores(controls, asked, known, calibrating, right, risk=0.05)
    return {score.name: score for score in scores}


def test_the_relation_only_control_gives_the_share_of_right_answers_of_each_relation():
    calibrating, right = people(800, 0)
    judged, judged_right = people(400, 1, JUDGED)
    score = judge_controls(calibrating, right, judged)[rivals.RELATION_ONLY]
    for relation, share in RIGHT_SHARE.items():
        here = np.array([one.template == relation for one in judged])
        assert np.ptp(score.values[here]) < 1e-12
        assert score.values[here][0] == pytest.approx(share, abs=0.05)
    # within relations such a score is a coin, however well it does on all questions together
    relations = [one.template for one in judged]
    assert rivals.within_relations(score.values, judged_right, relations)["value"] == 0.5


def test_free_subjects_of_the_text_have_no_grade_and_fit_no_rival_but_invented_ones_do():
    calibrating, right = people(300, 0)
    judged, _ = people(50, 1, JUDGED)
    plain = judge_controls(calibrating, right, judged)
    extra = people(200, 2, FITTING)[0]
    for source, is_used in ((TEXT, False), (INVENTED, True)):
        more = [replace(one, seen=source == TEXT, source=source, answer=None) for one in extra]
        found = judge_controls([*calibrating, *more], np.append(right, [False] * 200), judged)
        for name, score in found.items():
            assert np.allclose(score.values, plain[name].values) != is_used


@pytest.mark.parametrize("seen_names", [False, True])
def test_the_name_only_control_tells_seen_from_unseen_only_where_names_differ(seen_names):
    calibrating, _ = people(600, 0, seen_names=seen_names)
    judged, _ = people(600, 1, JUDGED, seen_names=seen_names)
    seen = np.array([one.seen for one in judged], dtype=float)
    bootstrap = Bootstrap(20, 0.95, (0,))
    known, asked = (calibrating, columns_of(calibrating)), columns_of(judged)
    rows = [asdict(one) for one in judged]
    told = rivals.tell_seen(known, (rows, asked), seen, {}, bootstrap)
    assert told["internal"]["value"] == 1.0
    by_name = told[rivals.NAME_ONLY]["value"]
    assert by_name > 0.95 if seen_names else abs(by_name - 0.5) < 0.08
    # names of one length each cannot be matched; names that are alike all can
    assert (told["matched"]["questions"] == 0) == seen_names


NAMES = st.lists(
    st.text("abc ", min_size=1, max_size=9).filter(str.strip), max_size=30, unique=True
)


@settings(max_examples=60, deadline=None)
@given(NAMES, st.randoms(use_true_random=False))
def test_matched_names_are_as_often_seen_as_unseen_for_every_kind(names, draw):
    seen = np.array([draw.random() < 0.5 for _ in names], dtype=bool)
    tokens = np.array([len(name) % 3 for name in names], dtype=float)
    kept = rivals.match_names(names, seen, tokens, {})
    counts: dict[tuple[int, ...], list[int]] = {}
    for i, name in enumerate(names):
        kind = (len(name) // rivals.LENGTH_STEP, len(name.split()), int(tokens[i]))
        counts.setdefault(kind, [0, 0, 0, 0])
        counts[kind][int(seen[i])] += 1
        counts[kind][2 + int(seen[i])] += bool(kept[i])
    for unseen, seen, kept_unseen, kept_seen in counts.values():
        assert kept_unseen == kept_seen == min(unseen, seen)


def test_the_worlds_own_record_says_what_its_text_states(tmp_path):
    world = make_world(60, 3)
    folder = write_world(world, tmp_path / "world")
    record = read_world_record(folder / FACTS_FILE)
    texts = {d.line: d.text for d in world.documents}
    for person in world.people:
        if person.namesake:
            continue
        question, birthplace = person.ask("birthplace")
        template = question.replace(person.subject, "{subject}")
        states = record.states(person.subject.upper(), template, birthplace)
        assert states == any(birthplace in texts[line] for line in person.lines)
        assert not record.states(person.subject, template, "Nowhere")
        assert not record.states(person.subject, "Who was {subject}?", birthplace)
    for broken in ("", "no JSON", '{"subject": 3}', '{"subject": "Ann", "origin": "Irish"}', "[]"):
        (tmp_path / "other.jsonl").write_text(f"{broken}\n", encoding="utf-8")
        assert read_world_record(tmp_path / "other.jsonl") is None
    assert read_world_record(tmp_path / "missing.jsonl") is None
