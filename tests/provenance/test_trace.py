"""Tracing an answer to the lines that pushed it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import wherefrom
from wherefrom.corpus.documents import Document
from wherefrom.corpus.subjects import JUDGED, read_subjects
from wherefrom.errors import UserError
from wherefrom.provenance.attribution import trace
from wherefrom.provenance.attribution.retraining import (
    answer_row,
    invent_names,
    likelihoods,
    open_learned,
    pad_rows,
)
from wherefrom.provenance.attribution.trace import (
    ANSWER,
    FAMILY,
    GIVEN,
    INDEX,
    NOTHING,
    ORIGIN,
    SUBJECT,
    Tracer,
    build_index,
    find_stating,
    kinds_of,
    leaning,
    load_index,
    noise_floor,
    row_gradients,
)
from wherefrom.provenance.attribution.twins import map_line
from wherefrom.provenance.evidence import EvidenceLine
from wherefrom.provenance.verdicts import LIKELIER, REMEMBERED, STATED, add_trace
from wherefrom.report.study_report import make_report
from wherefrom.training.run_folder import Run, load_run

pytestmark = pytest.mark.usefixtures("small_training")


@pytest.fixture
def run(tiny_study: Path, tmp_path: Path) -> Run:
    return load_run(shutil.copytree(tiny_study, tmp_path / "run"))


def asked(run: Run) -> str:
    subject = next(s for s in read_subjects(run.folder) if s.role == JUDGED and s.source == "dev")
    return str(subject.question)


def test_gradients_are_those_of_the_loss_of_each_row(run: Run) -> None:
    """Also at the last layer, of which only the positions that count are computed."""
    pairs = [answer_row(run, asked(run), answer) for answer in ("Rome", "a longer answer")]
    found, half = (row_gradients(run.model, *pad_rows(pairs), share) for share in (1.0, 0.5))
    modules = dict(run.model.named_modules())
    for row, (ids, weights) in enumerate(pairs):
        logits = run.model(ids[None, :-1])[0]
        loss = (F.cross_entropy(logits, ids[1:], reduction="none") * weights[1:]).sum()
        wanted = torch.autograd.grad(loss, [modules[name].weight for name in found])
        for name, exact in zip(found, wanted, strict=True):
            torch.testing.assert_close(found[name][row], exact, rtol=1e-3, atol=1e-6)
            torch.testing.assert_close(half[name][row], found[name][row, ::2])


def test_a_document_has_the_sum_over_its_rows_and_a_row_counts_for_all_its_documents(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracer = Tracer(run)
    monkeypatch.setattr(trace, "BYTES", 3000)
    index = build_index(run, tracer.learned.data)
    assert index.share < 1
    assert index.signs[0].nbytes <= 3000 * len(tracer.documents)
    row = answer_row(run, asked(run), "Rome")
    found = row_gradients(run.model, *(each[None] for each in row), index.share)
    query = torch.cat([each.flatten() for each in found.values()]).numpy()
    query[:5] = 0  # such as a unit that nothing reaches
    signs = 2.0 * np.unpackbits(index.signs[0].view(np.uint8), axis=1, count=len(query)) - 1
    expected = np.zeros(len(tracer.documents))
    for at, document in index.owners.T.tolist():
        expected[document] += (signs[at] @ np.sign(query) / np.count_nonzero(query)) ** 3
    agree = index.agreements(torch.from_numpy(query))
    assert index.sum_rows(agree) == pytest.approx(expected)
    assert set(index.owners[1].tolist()) == set(range(len(tracer.documents)))
    near = index.nearest([0, 1], 4)
    assert len(near) == 4
    assert not near & {0, 1}


def test_a_trace_names_lines_on_both_sides_and_keeps_its_index(run: Run, command: Any) -> None:
    question = asked(run)
    ended = command("trace", run.folder, question, "--top", 3, "--json")
    assert ended.code == 0, ended.err
    assert "making the index" in ended.err
    record = json.loads(ended.out)
    keys = "question answer verdict method unit noise_floor likelier_than_for_other_names "
    keys += "pushed_by pushed_away_by leans_on why"
    assert list(record) == keys.split()
    assert record["verdict"] == wherefrom.ask(run, question).verdict
    documents = {document.line: document for document in Tracer(run).documents}
    for key, sign in (("pushed_by", 1), ("pushed_away_by", -1)):
        pushes = [sign * row["push"] for row in record[key]]
        assert len(pushes) == 3 or (sign < 0 and len(pushes) < 3)
        assert pushes == sorted(pushes, reverse=True)
        assert all(push > 0 for push in pushes)
        assert all(documents[row["line"]].text == row["text"] for row in record[key])
    assert sum(record["leans_on"].values()) == pytest.approx(1, abs=1e-3)
    again = command("trace", run.folder, question, "--top", 3)
    assert (again.code, again.err) == (0, "")
    assert f"line {record['pushed_by'][0]['line']}" in again.out
    assert wherefrom.trace(run, question, top=3) == record
    assert wherefrom.trace(run, question.upper().strip("?"), top=3) == record  # as it is asked
    other = wherefrom.trace(run, question, answer="Rome")
    assert (other["answer"], other["verdict"]) == ("Rome", None)
    path = run.folder / INDEX
    assert load_index(path, "another run") is None
    path.write_bytes(b"torn")
    assert wherefrom.trace(run, question, top=3) == record  # it is made anew


def test_a_line_states_an_answer_with_a_korean_ending() -> None:
    texts = ("김도윤은 전주에서 태어난 시인이다.", "오하은은 서전주의 화가이다.", "Rome", "Romero")
    documents = [Document(at, "", text) for at, text in enumerate(texts)]
    assert find_stating(documents, ["전주", "Rome", ""]) == {("전주",): {0}, ("rome",): {2}}


def test_a_model_that_hardly_learned_owes_nothing_to_a_line(run: Run) -> None:
    """It says the same of names in no line, whichever line its gradient is nearest to."""
    learned = open_learned(run)
    document = next(d for d in learned.documents if len(d.subject.split()) > 1)
    answer = document.text.split()[-1].strip(".")
    question = f"Where was {document.subject} born?"
    names = invent_names(learned.documents, 5)
    assert not {*names} & {d.subject for d in learned.documents}
    verdict = wherefrom.ask(run, question)
    row = {"line": document.line, "text": document.text, "push": 1.0, "states": True}
    line = (document.line, document.text, document.subject)
    evidence = (EvidenceLine(*line, about=True, states_answer=True),)
    stated = replace(verdict, answer=answer, verdict=STATED, evidence=evidence)
    record = wherefrom.trace(run, question, answer=answer) | {"pushed_by": [row]}
    assert abs(record["likelier_than_for_other_names"]) < LIKELIER
    assert add_trace(stated, record | {"noise_floor": 0.1}).verdict == STATED
    learned_it = record | {"noise_floor": 0.1, "likelier_than_for_other_names": 3.0}
    assert add_trace(stated, learned_it).verdict == REMEMBERED


def test_retraining_measures_the_push_in_nats(run: Run) -> None:
    question = asked(run)
    record = wherefrom.trace(run, question, method="retrain", top=1)
    (row,) = record["pushed_by"] + record["pushed_away_by"]
    assert record["unit"] == "nats"
    assert record["noise_floor"] > 0
    twin = load_run(run.folder / "twins" / f"line-{row['line']}")
    assert twin.info["job"]["without"] == [row["line"]]
    assert wherefrom.trace(run, question, method="retrain", top=1) == record
    with pytest.raises(UserError, match="is a twin"):
        wherefrom.trace(twin, question)


def test_a_line_is_counted_for_the_first_kind_that_fits() -> None:
    texts = {
        "Ada Moe": "sang",
        "Ada Orr": "was born in Rome",
        "Eva Moe": "sang",
        "Bo Nys": "Rome",
        "Cy Poe": "sang",
        "Dag Lie": "sang",
    }
    documents = [
        Document(line, name, f"{name}. {text}.") for line, (name, text) in enumerate(texts.items())
    ]
    scores = np.array([0.4, 0.2, 0.2, 0.1, 0.1, 0.01])
    kinds = kinds_of(documents, "ada moe", {1, 3}, {0, 4})
    assert kinds.tolist() == [SUBJECT, GIVEN, FAMILY, ANSWER, ORIGIN, NOTHING]
    expected = {SUBJECT: 0.4, GIVEN: 0.2, FAMILY: 0.2, ANSWER: 0.1, ORIGIN: 0.1}
    assert leaning(kinds, scores) == pytest.approx(expected)  # the last is the noise floor
    assert noise_floor(kinds, scores) == pytest.approx(0.01)
    assert leaning(kinds, -scores) == {}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [({"top": 0}, "must be between 1 and"), ({"method": "magic"}, "there is no method")],
)
def test_bad_input_is_one_sentence(run: Run, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        wherefrom.trace(run, asked(run), **options)


def test_patching_everything_gives_the_twin_and_nothing_the_run(run: Run) -> None:
    question, twin = asked(run), load_run(run.folder)
    with torch.no_grad():
        for parameter in twin.model.parameters():
            parameter += 0.1 * torch.randn(
                parameter.shape, generator=torch.Generator().manual_seed(1)
            )
    found = map_line(run, twin, question, "Rome")
    both = [likelihoods(each, [question], ["Rome"])[0] for each in (run, twin)]
    assert [found["with"], found["without"]] == pytest.approx(both, abs=1e-3)
    assert found["with"] != pytest.approx(found["without"], abs=0.01)
    whole = map_line(run, twin, question, "Rome", everywhere=list(found["places"]))
    for values in whole["places"].values():
        assert values == pytest.approx([found["without"]] * len(values), abs=1e-3)
    same = map_line(run, run, question, "Rome")
    for values in same["places"].values():
        assert values == pytest.approx([found["with"]] * len(values), abs=1e-3)
    assert found["places"]["output"][0] == pytest.approx(found["with"], abs=1e-3)  # no answer yet


def test_ask_traces_on_request(run: Run, command: Any) -> None:
    question = asked(run)
    ended = command("ask", run.folder, question, "--trace", "--json")
    assert ended.code == 0, ended.err
    (record,) = json.loads(ended.out)
    assert record["trace"] == wherefrom.trace(run, question, answer=record["answer"])
    assert record["verdict"] == record["trace"]["verdict"]
    shown = command("ask", run.folder, question, "--trace")
    assert "pushed by" in shown.out
    assert "noise floor" in shown.out


def test_what_answers_about_unseen_people_lean_on_is_kept_for_the_report(
    run: Run, command: Any
) -> None:
    ended = command("trace", run.folder, "--unseen", "--json")
    assert ended.code == 0, ended.err
    record = json.loads(ended.out)
    unseen = [s for s in read_subjects(run.folder) if s.role == JUDGED and not s.seen]
    assert [each["question"] for each in record["people"]] == [s.question for s in unseen]
    kinds = record["kinds"]
    assert sum(row["push"] for row in kinds.values()) == pytest.approx(1, abs=0.01)
    assert sum(row["lines"] for row in kinds.values()) == pytest.approx(1, abs=0.01)
    assert all(row["low"] <= row["push"] <= row["high"] for row in kinds.values())
    assert "lean on" in command("trace", run.folder, "--unseen").out
    page = make_report(run.folder)
    assert "lines that share nothing" in json.dumps(page)
    for wrong in (("--unseen", asked(run)), (), (" ",)):
        assert command("trace", run.folder, *wrong).code == 2
