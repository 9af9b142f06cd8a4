"""Answers of other models: judged by the text, their own numbers taken for what they are."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from asked_samples import (
    PEOPLE,
    PLACES,
    calibrate,
    make_run,
    open_index,
    place_of,
    question,
    write_questions,
    write_text,
)

from wherefrom.errors import UserError
from wherefrom.provenance.ask import AskedRow, Asker, as_rows
from wherefrom.provenance.judging.external_answers import judge_answers, trust_log_probabilities
from wherefrom.provenance.signals.likelihood import encode_answers, encode_prompts, score_answers
from wherefrom.provenance.verdicts import DONT_KNOW, MADE_UP, MISREMEMBERED, REMEMBERED


@pytest.fixture(scope="module")
def asker(tmp_path_factory: pytest.TempPathFactory, quick_recipe: Path) -> Asker:
    folder = tmp_path_factory.mktemp("foreign")
    corpus = write_text(folder / "text")
    asked = write_questions(folder / "text")
    run = make_run(folder / "run", quick_recipe, corpus=corpus, questions=asked)
    evidence = open_index(run, corpus)
    return Asker(run, evidence, calibrate(run, evidence), PLACES)


def row(name: str, answer: str, log_probability: float | None = None) -> AskedRow:
    return AskedRow(question(name), None, answer, log_probability)


def other_than(place: str) -> str:
    return PLACES[(PLACES.index(place) + 1) % len(PLACES)]


def test_the_text_judges_anybodys_answer(asker: Asker) -> None:
    name = PEOPLE[3]
    rows = [row(name, place_of(name)), row(name, other_than(place_of(name))), row("Al Om", "Rome")]
    judged = judge_answers(asker, rows, always_answer=True)
    assert judged.note is None
    assert [each.verdict for each in judged.verdicts] == [REMEMBERED, MISREMEMBERED, MADE_UP]
    assert [each.answer for each in judged.verdicts] == [each.answer for each in rows]
    assert not any("given_log_probability" in each.signals for each in judged.verdicts)
    held_back = judge_answers(asker, rows[2:]).verdicts[0]
    assert held_back.shown == DONT_KNOW
    assert "the answer given is Rome" in held_back.why


def test_the_confidence_is_about_the_given_answer_and_not_the_models_own(asker: Asker) -> None:
    name, model, tokens = PEOPLE[3], asker.run.model, asker.run.tokens
    prompts = encode_prompts(model, tokens, [question(name)] * len(PLACES))
    expected = score_answers(model, prompts, encode_answers(tokens, PLACES))
    judged = judge_answers(asker, [row(name, place) for place in PLACES]).verdicts
    assert [each.signals["log_probability"] for each in judged] == pytest.approx(expected, 1e-4)
    assert len(set(expected.round(3))) == len(PLACES)


def test_log_probabilities_become_shares_on_rows_that_the_text_can_check(asker: Asker) -> None:
    rows = [row(name, place_of(name), -0.1) for name in PEOPLE[:15]]
    rows += [row(name, other_than(place_of(name)), -3.0) for name in PEOPLE[15:30]]
    rows += [row("Al Om", "Rome", -0.1), row("Ed Um", "Rome", -3.0), row("Cy Im", "Rome")]
    judged = judge_answers(asker, rows)
    assert judged.note is None
    sure = [each.signals["given_confidence"] for each in judged.verdicts]
    assert min(sure[:15]) > 0.7
    assert max(sure[15:30]) < 0.3
    assert sure[30] > 0.7
    assert sure[31] < 0.3
    assert sure[32] is None
    assert [each.signals["given_log_probability"] for each in judged.verdicts[30:]] == [
        -0.1,
        -3,
        None,
    ]
    json.dumps([each.to_dict() for each in judged.verdicts], allow_nan=False)


def test_a_row_does_not_vouch_for_itself() -> None:
    # log-probabilities that say nothing: were a row in its own fit, it would be drawn to its truth
    rng = np.random.default_rng(5)
    given, stated = rng.normal(-2, 1, 400).clip(max=0), rng.random(400) < 0.5
    sure, note = trust_log_probabilities(given, np.ones(400, dtype=bool), stated)
    assert note is None
    assert abs(sure[stated].mean() - sure[~stated].mean()) < 0.03
    assert abs(sure.mean() - 0.5) < 0.1


def test_too_few_rows_to_check_are_said_to_be_too_few(asker: Asker) -> None:
    rows = [row(name, place_of(name), -0.1) for name in PEOPLE[:10]]
    judged = judge_answers(asker, rows)
    assert judged.note is not None
    assert "the text can check 10 of the answers and states 10" in judged.note
    assert {each.signals["given_confidence"] for each in judged.verdicts} == {None}


def test_rows_without_an_answer_are_refused(asker: Asker) -> None:
    with pytest.raises(UserError, match="there is no answer to judge"):
        judge_answers(asker, as_rows([question(PEOPLE[0])]))
    with pytest.raises(UserError, match="either all rows bring an answer"):
        asker.ask_rows([row(PEOPLE[0], "Rome"), AskedRow(question(PEOPLE[1]))])
