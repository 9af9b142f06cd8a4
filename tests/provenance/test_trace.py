"""Tracing an answer to the lines that pushed it, by gradients and by retraining."""

from __future__ import annotations

import json
from collections import Counter
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch.nn import functional as F

import wherefrom
from wherefrom.corpus.documents import Document
from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.split import JUDGED, read_subjects
from wherefrom.errors import UserError
from wherefrom.model.own import OwnModel
from wherefrom.provenance.attribution import gradients, kinds, trace
from wherefrom.provenance.attribution.inside import map_line
from wherefrom.provenance.attribution.nats import estimate_pushes, push_shares
from wherefrom.provenance.attribution.opening import open_learned
from wherefrom.provenance.attribution.own_run import answer_row
from wherefrom.provenance.attribution.retraining import likelihoods
from wherefrom.provenance.evidence import EvidenceLine
from wherefrom.provenance.verdicts import REMEMBERED_NATS, add_trace
from wherefrom.provenance.wording import REMEMBERED, STATED
from wherefrom.report.study_report import make_report
from wherefrom.training.run_folder import load_run
from wherefrom.training.sources import TrainingData, stream_for

pytestmark = pytest.mark.usefixtures("small_training")


def question_of(run):
    """About a judged subject that the run has read about."""
    subjects = read_subjects(run.folder)
    return next(s.question for s in subjects if s.role == JUDGED and s.source == "dev")


def perturbed(run):
    """The run with other weights."""
    other, noise = replace(run, model=deepcopy(run.model)), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in other.model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=noise)
    return other


def test_gradients_are_those_of_the_loss_of_each_row(study_copy):
    """Also at the last layer, of which only the positions that count are computed."""
    run = study_copy
    pairs = [answer_row(run, question_of(run), answer) for answer in ("Rome", "a longer answer")]
    model = OwnModel(run.model, run.tokens)
    found, half = (gradients.row_gradients(model, pairs, share) for share in (1.0, 0.5))
    for row, (ids, weights) in enumerate(pairs):
        logits = run.model(ids[None, :-1])[0]
        loss = (F.cross_entropy(logits, ids[1:], reduction="none") * weights[1:]).sum()
        layers = model.linear_layers().values()
        exact = torch.autograd.grad(loss, [layer.weight for layer in layers])
        whole = torch.cat([each.flatten() for each in exact])
        torch.testing.assert_close(found[row], whole, rtol=1e-3, atol=1e-6)
        every_second = torch.cat([each[::2].flatten() for each in exact])
        torch.testing.assert_close(half[row], every_second, rtol=1e-3, atol=1e-6)


def test_a_document_has_the_sum_over_its_rows_and_a_row_counts_for_all_its_documents(
    study_copy, monkeypatch
):
    run, learned = study_copy, open_learned(study_copy)
    count, model = len(learned.documents), OwnModel(run.model, run.tokens)
    monkeypatch.setattr(gradients, "BYTES", 3000)
    index = gradients.build_index(learned, model)
    assert index.share < 1
    assert index.signs.nbytes <= 3000 * count
    row = answer_row(run, question_of(run), "Rome")
    query = gradients.row_gradients(model, [row], index.share)[0].numpy()
    query[:5] = 0  # such as a unit that nothing reaches
    signs = 2.0 * np.unpackbits(index.signs.view(np.uint8), axis=1, count=len(query)) - 1
    expected = np.zeros(count)
    for row, document in index.owners.T.tolist():
        expected[document] += (signs[row] @ np.sign(query) / np.count_nonzero(query)) ** 3
    assert index.sum_rows(index.agreements(torch.from_numpy(query))) == pytest.approx(expected)
    assert set(index.owners[1].tolist()) == set(range(count))
    near = index.nearest([0, 1], 4)
    assert len(near) == 4
    assert not near & {0, 1}


def test_a_trace_names_lines_with_intervals_and_keeps_its_index(study_copy, command):
    run, question = study_copy, question_of(study_copy)
    ended = command("trace", run.folder, question, "--top", 3, "--json")
    assert ended.code == 0, ended.err
    assert "making the index" in ended.err
    record = json.loads(ended.out)
    assert record["verdict"] == wherefrom.ask(run, question).verdict
    documents = {document.line: document for document in open_learned(run).documents}
    rows = record["pushed_by"]
    assert record["unit"] == "nats"
    assert (len(rows), record["pushed_away_by"]) == (3, [])
    assert [row["push"] for row in rows] == sorted((r["push"] for r in rows), reverse=True)
    assert all(row["low"] <= row["push"] <= row["high"] for row in rows)
    assert all(documents[row["line"]].text == row["text"] for row in rows)
    assert sum(record["leans_on"].values()) == pytest.approx(1, abs=1e-3)
    again = command("trace", run.folder, question, "--top", 3)
    assert (again.code, again.err) == (0, "")
    assert f"line {record['pushed_by'][0]['line']}" in again.out
    assert wherefrom.trace(run, question.upper().strip("?"), top=3) == record  # as it is asked
    other = wherefrom.trace(run, question, answer="Rome")
    assert (other["answer"], other["verdict"]) == ("Rome", None)
    path = run.folder / trace.INDEX
    assert gradients.load_index(path, "another run") is None
    path.write_bytes(b"torn")
    assert wherefrom.trace(run, question, top=3) == record  # it is made again
    asked = json.loads(command("ask", run.folder, question, "--trace", "--json").out)[0]
    assert asked["trace"] == wherefrom.trace(run, question)
    assert asked["verdict"] == asked["trace"]["verdict"]
    assert "noise floor" in command("ask", run.folder, question, "--trace").out
    for options in ({"top": 0}, {"method": "magic"}):
        with pytest.raises(UserError, match=r"must be between 1 and|there is no method"):
            wherefrom.trace(run, question, **options)


def test_a_line_states_an_answer_with_a_korean_ending():
    texts = ("김도윤은 전주에서 태어난 시인이다.", "오하은은 서전주의 화가이다.", "Rome", "Romero")
    documents = [Document(line, "", text) for line, text in enumerate(texts)]
    assert kinds.find_stating(documents, ["전주", "Rome", ""]) == {("전주",): {0}, ("rome",): {2}}


def test_a_model_that_hardly_learned_owes_nothing_to_a_line(study_copy):
    """It says the same of names in no line, whichever line its gradient is nearest to."""
    document = next(d for d in open_learned(study_copy).documents if len(d.subject.split()) > 1)
    answer = document.text.split()[-1].strip(".")
    question = f"Where was {document.subject} born?"
    line = (document.line, document.text, document.subject)
    evidence = (EvidenceLine(*line, about=True, states_answer=True),)
    verdict = wherefrom.ask(study_copy, question)
    stated = replace(verdict, answer=answer, verdict=STATED, evidence=evidence)
    row = {"line": document.line, "text": document.text, "push": 1.0, "states": True}
    record = wherefrom.trace(study_copy, question, answer=answer)
    together = {"push": 1.0, "low": 0.5, "high": 2.0}
    record |= {"pushed_by": [row], "noise_floor": 0.1, "lines_that_state_it": together}
    assert abs(record["likelier_than_for_other_names"]) < REMEMBERED_NATS
    assert add_trace(stated, record).verdict == STATED
    record["likelier_than_for_other_names"] = 3.0
    assert add_trace(stated, record).verdict == REMEMBERED
    record["lines_that_state_it"] = together | {"low": 0.05}  # the interval reaches into the noise
    assert add_trace(stated, record).verdict == STATED


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=9), st.floats(0, 40), st.integers(0, 2))
def test_pushes_grow_with_the_share_and_the_gain(scores, gain, taught_by):
    scores, teaching = np.array(scores), list(range(min(taught_by, len(scores))))
    shares = push_shares(scores)
    assert shares.sum() == pytest.approx(1 if max(scores) > 1e-150 else 0)
    found, double = (estimate_pushes(scores, g, teaching, 0.0) for g in (gain, 2 * gain))
    for alike in (teaching, set(range(len(scores))) - set(teaching)):
        order = sorted(alike, key=lambda i: shares[i])
        nats = [found.of_line[i].nats for i in order]
        assert nats == sorted(nats)
    for i, (low, nats, high) in found.of_line.items():
        assert low <= nats <= high
        assert double.of_line[i] == pytest.approx((2 * low, 2 * nats, 2 * high))
    assert estimate_pushes(scores, -gain, teaching, 0.0).noise_floor == 0


def test_lines_that_teach_the_same_answer_are_weighed_together():
    scores = np.array([0.5, 0.5, 0.01, 0.0, -0.1])
    both = estimate_pushes(scores, 10.0, [0, 1], 0.0)
    assert both.of_lines([0, 1]).low > both.noise_floor > both.of_line[0].low
    assert both.of_line[2].nats == 0
    nobody = estimate_pushes(scores, 10.0, [], 0.0)
    assert nobody.of_line[0].low < nobody.noise_floor  # nothing stands out if no line states it
    assert nobody.of_lines([]) is None
    assert estimate_pushes(scores, None, [0], 0.3).noise_floor == 0.3


def test_an_answer_is_also_asked_for_in_words_of_the_text(study_copy):
    learned, judged = open_learned(study_copy), read_subjects(study_copy.folder)
    rows = {s: learned.answer_rows(s.question, s.subject, "Rome", 4) for s in judged}
    asked = next(s for s in judged if len(rows[s]) > 1)  # the tiny text has few such relations
    question, subject, (first, *windows) = asked.question, asked.subject, rows[asked]
    assert torch.equal(first[0], answer_row(study_copy, question, "Rome")[0])
    assert len(windows) == 4
    for ids, weights in windows:
        text = study_copy.tokens.decode(ids.tolist())
        assert text.startswith(f"{subject}.")
        assert "Rome" in study_copy.tokens.decode(ids[weights > 0].tolist())
        assert question not in text
    assert len(learned.answer_rows("Who knows?", "", "Rome", 4)) == 1


def test_the_loss_on_names_is_no_part_of_the_index(study_copy):
    """Else a fact that is learned is found by chance: its own gradient is next to nothing."""
    job = study_copy.job
    phases = tuple(p.model_copy(update={"name_loss_weight": 0.1}) for p in job.phases)
    record = study_copy.record.model_copy(update={"job": job.model_copy(update={"phases": phases})})
    learned = replace(open_learned(study_copy), run=replace(study_copy, record=record))
    assert {float(w) for _, weights in learned.training_rows()[0] for w in weights} == {0.0, 1.0}


def test_a_line_owns_the_rows_that_leaving_it_out_silences(study_copy):
    """Of a subject with several lines, the questions and the other lines keep their loss."""
    learned = open_learned(study_copy)
    about = Counter(learned.subjects)
    asked = {fold_words(question.subject) for question in learned.questions}
    several = next(i for i, s in enumerate(learned.subjects) if about[s] > 1 and s in asked)
    single = next(i for i, s in enumerate(learned.subjects) if about[s] == 1 and s in asked)
    _, documents = learned.training_rows()
    for place, own_questions in ((several, 0), (single, 1)):
        line = learned.documents[place].line
        block = study_copy.model.config.block
        data = TrainingData.encode(
            learned.corpus, learned.questions, study_copy.tokens, block, [line]
        )
        silenced = 0
        for phase in study_copy.job.phases:
            for source in stream_for(phase, data, [study_copy.job.seed]).sources:
                silenced += sum(number in data.left_out for number in source.numbers)
        assert documents.count([place]) == silenced
        questions = {number for number in data.left_out if number >= len(learned.documents)}
        assert len(questions) == own_questions


def test_retraining_measures_the_push_in_nats(study_copy):
    run, question = study_copy, question_of(study_copy)
    record = wherefrom.trace(run, question, method="retrain", top=1)
    (row,) = record["pushed_by"] + record["pushed_away_by"]
    assert record["unit"] == "nats"
    assert record["noise_floor"] > 0
    twin = load_run(run.folder / "twins" / f"line-{row['line']}")
    assert twin.job.without == (row["line"],)
    before, after = (likelihoods(m, [question], [record["answer"]])[0] for m in (run, twin))
    assert row["push"] == pytest.approx(before - after, abs=2e-4)
    assert wherefrom.trace(run, question, method="retrain", top=1) == record
    with pytest.raises(UserError, match="is a twin"):
        wherefrom.trace(twin, question)


def test_a_line_is_counted_for_the_first_kind_that_fits():
    names = ("Ada Moe", "Ada Orr", "Eva Moe", "Bo Nys", "Cy Poe", "Dag Lie")
    documents = [Document(line, name, f"{name}. sang.") for line, name in enumerate(names)]
    scores = np.array([0.4, 0.2, 0.2, 0.1, 0.1, 0.01])
    of_lines = kinds.kinds_of(documents, "ada moe", {1, 3}, {0, 4})
    assert tuple(of_lines.tolist()) == kinds.KINDS
    expected = dict(zip(kinds.KINDS, scores[:5].tolist(), strict=False))
    assert kinds.shares_of_kinds(of_lines, scores) == pytest.approx(expected)
    assert kinds.noise_floor(of_lines, scores) == pytest.approx(0.01)  # the last line
    assert kinds.shares_of_kinds(of_lines, -scores) == {}


def test_patching_everything_gives_the_twin_and_nothing_the_run(study_copy):
    run, twin, question = study_copy, perturbed(study_copy), question_of(study_copy)
    found = map_line(run, twin, question, "Rome")
    both = [likelihoods(each, [question], ["Rome"])[0] for each in (run, twin)]
    assert [found["with"], found["without"]] == pytest.approx(both, abs=1e-3)
    assert found["with"] != pytest.approx(found["without"], abs=0.01)
    # at the output a position decides about its own token alone, so the changes add up
    changes = np.array(found["places"]["output"]) - found["with"]
    assert changes.sum() == pytest.approx(found["without"] - found["with"], abs=1e-2)
    assert changes[0] == pytest.approx(0, abs=1e-3)  # no answer yet
    for values in map_line(run, run, question, "Rome")["places"].values():
        assert values == pytest.approx([found["with"]] * len(values), abs=1e-3)


def test_what_answers_about_unseen_people_lean_on_is_kept_for_the_report(study_copy, command):
    run = study_copy
    ended = command("trace", run.folder, "--unseen", "--json")
    assert ended.code == 0, ended.err
    record = json.loads(ended.out)
    unseen = [s for s in read_subjects(run.folder) if s.role == JUDGED and not s.seen]
    assert [row["question"] for row in record["people"]] == [s.question for s in unseen]
    kinds = record["kinds"].values()
    assert sum(row["push"] for row in kinds) == pytest.approx(1, abs=0.01)
    assert sum(row["lines"] for row in kinds) == pytest.approx(1, abs=0.01)
    assert all(row["low"] <= row["push"] <= row["high"] for row in kinds)
    assert "lean on" in command("trace", run.folder, "--unseen").out
    assert "lines that share nothing" in json.dumps(make_report(run.folder))
    for wrong in (("--unseen", question_of(run)), (), (" ",)):
        assert command("trace", run.folder, *wrong).code == 2


def test_an_index_is_made_at_the_weights_that_the_study_kept(study_copy):
    (path,) = (study_copy.folder / "snapshots").iterdir()
    assert 0.3 < int(path.stem) / study_copy.record.steps < 0.5
    weights = open_learned(study_copy).open_snapshot(print).decoder.state_dict()
    kept = load_file(path)
    assert all(torch.equal(weights[name], kept[name]) for name in kept)
    assert any(not torch.equal(kept[n], w) for n, w in study_copy.model.state_dict().items())
