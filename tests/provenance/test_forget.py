"""Forgetting people, on the tiny study."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from wherefrom.corpus.questions import SLOT
from wherefrom.corpus.split import JUDGED, read_subjects
from wherefrom.model.own import OwnModel
from wherefrom.provenance.attribution import forget as forgetting
from wherefrom.provenance.attribution import retraining
from wherefrom.provenance.attribution.gradients import log_likelihoods
from wherefrom.provenance.attribution.opening import open_learned
from wherefrom.provenance.attribution.own_run import answer_row
from wherefrom.training.run_folder import load_run

pytestmark = pytest.mark.usefixtures("small_training")


def name_of_a_judged(run):
    return next(s.subject for s in read_subjects(run.folder) if s.role == JUDGED and s.seen)


def test_what_is_forgotten_is_as_unlikely_as_for_other_names(study_copy):
    """The tiny study knows nothing, so it is taught its answers first, and others for others."""
    run, name = study_copy, name_of_a_judged(study_copy)
    learned = open_learned(run)
    plan = forgetting.plan_forgetting(learned, [name])
    subjects = [d.subject for d in learned.documents if d.subject != name]
    others = [str(other) for other in np.random.default_rng(0).permutation(subjects)[:20]]
    others += retraining.recombine_names(learned.documents, 1)
    rows = [answer_row(run, q.text, q.answer) for q in plan.questions]
    rows += [
        answer_row(run, question.template.replace(SLOT, other), "no")
        for question in plan.questions
        for other in others
    ]
    model = OwnModel(run.model, run.tokens)
    optimizer = torch.optim.AdamW(run.model.parameters(), lr=3e-3)
    for _ in range(200):
        loss = -log_likelihoods(model, *retraining.pad_rows(rows)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with_question = {q.subject for q in (*learned.dev, *learned.questions)}
    unasked = next(other for other in others if other not in with_question)
    answers = [target.answer for target in forgetting.plan_forgetting(learned, [unasked]).right]
    assert "no" in answers
    plan = forgetting.plan_forgetting(learned, [name])
    assert plan.subjects == (name,)
    assert not forgetting.is_forgotten(plan, run)
    model, _ = forgetting.train_on(plan)
    assert forgetting.is_forgotten(plan, replace(run, model=model.decoder))


def test_forget_leaves_a_run_and_judges_it(study_copy, command, tmp_path, monkeypatch):
    # fewer examples than subjects, as in a large text: no batch need hold a row of the person
    monkeypatch.setattr("wherefrom.corpus.batches.POOL_ROWS", 2)
    names, out, name = tmp_path / "names.txt", tmp_path / "out", name_of_a_judged(study_copy)
    names.write_text(f"{name}\n")
    options = ("forget", study_copy.folder, "--names", names, "--out")
    ended = command(*options, out, "--judge", "--json")
    assert ended.code == 0, ended.err
    record = json.loads(ended.out)
    assert record["names"] == [name]
    assert 0 <= record["as_unsure"] <= record["questions"]
    assert list(load_run(out).job.without) == record["lines"]
    assert "has forgotten some of what it read" in command("trace", out, f"{name}?").err
    assert "contains files" in command(*options, out).err
    exact = command(*options, tmp_path / "exact", "--exact", "--json")
    assert exact.code == 0, exact.err
    assert list(load_run(tmp_path / "exact").job.without) == record["lines"]
    names.write_text("Nobody Atall\n")
    assert command(*options, tmp_path / "other").code == 2
    assert not (tmp_path / "other").exists()
