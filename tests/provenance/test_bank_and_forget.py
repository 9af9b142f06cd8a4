"""A bank of models on random halves, and forgetting people, on the tiny study."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from wherefrom.corpus.questions import SLOT
from wherefrom.corpus.subjects import JUDGED, read_subjects
from wherefrom.errors import UserError
from wherefrom.provenance.attribution import forget as forgetting
from wherefrom.provenance.attribution import retraining
from wherefrom.provenance.attribution.retraining import LearnedRun, fill_bank, read_bank
from wherefrom.training.run_folder import Run, load_run

pytestmark = pytest.mark.usefixtures("small_training")


def name_of_a_judged(run):
    return next(s.subject for s in read_subjects(run.folder) if s.role == JUDGED and s.seen)


def test_a_bank_goes_on_where_it_was_stopped(study_copy, tmp_path, command, monkeypatch):
    out, learned, trained = tmp_path / "bank", retraining.open_learned(study_copy), []
    retrain = LearnedRun.retrain

    def record(self, without, folder, **options):
        trained.append(options["seed"])
        return retrain(self, without, folder, **options)

    monkeypatch.setattr(LearnedRun, "retrain", record)
    bank = fill_bank(study_copy, out, models=2, repeats=1)
    assert [(model["half"], model["seed"]) for model in bank.models] == [(0, 0), (1, 0)]
    assert [model["half"] for model in bank.repeated] == [0]
    assert len(trained) == 3
    assert not (out / "model").exists()  # weights are not kept
    options = ("--out", out, "--models", 3, "--repeats", 1, "--json")
    ended = command("bank", study_copy.folder, *options)
    assert ended.code == 0, ended.err
    assert len(trained) == 4
    assert json.loads(ended.out)["models"] == 3
    again = read_bank(out)
    first, repeated = again.models[0], again.repeated[0]
    assert first["without"] == repeated["without"]
    assert first["log_probability"] != repeated["log_probability"]  # another start
    for row in again.kept(learned.documents):  # a subject is left out whole, and half of them are
        pairs = set(zip(learned.subjects, row.tolist(), strict=True))
        assert len(pairs) == len(set(learned.subjects))
        assert sum(not kept for _, kept in pairs) == len(pairs) // 2
    assert sum(question["seen"] for question in again.questions) > 0


def test_banks_that_do_not_fit_are_refused(study_copy, tmp_path):
    with pytest.raises(UserError, match="at least 2 models"):
        fill_bank(study_copy, tmp_path / "bank", models=1)
    (tmp_path / "bank").mkdir()
    (tmp_path / "bank" / "bank.json").write_text('{"format": 1, "run": "x"}')
    with pytest.raises(UserError, match="the bank of another run"):
        fill_bank(study_copy, tmp_path / "bank")
    with pytest.raises(UserError, match="holds no bank"):
        read_bank(tmp_path)


@pytest.mark.parametrize("method", forgetting.METHODS)
def test_what_is_forgotten_is_as_unlikely_as_for_other_names(study_copy, method):
    """The tiny study knows nothing, so it is taught its answers first, and others for others."""
    run, name = study_copy, name_of_a_judged(study_copy)
    task = forgetting.plan_forgetting(run, [name])
    subjects = [d.subject for d in task.learned.documents if d.subject != name]
    others = [str(other) for other in np.random.default_rng(0).permutation(subjects)[:20]]
    rows = [retraining.answer_row(run, q.text, q.answer) for q in task.questions]
    rows += [
        retraining.answer_row(run, question.template.replace(SLOT, other), "no")
        for question in task.questions
        for other in others
    ]
    optimizer = torch.optim.AdamW(run.model.parameters(), lr=3e-3)
    for _ in range(100):
        loss = -forgetting.log_likelihoods(run.model, *retraining.pad_rows(rows)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with_question = {q.subject for q in (*task.learned.dev, *task.learned.questions)}
    unasked = next(other for other in others if other not in with_question)
    assert "no" in forgetting.plan_forgetting(run, [unasked]).answers
    task = forgetting.plan_forgetting(run, [name], nearest=method == "trace")
    assert task.subjects == (name,)
    texts, count = [q.text for q in task.questions], len(task.questions)
    with torch.no_grad():
        target = float(forgetting.log_likelihoods(run.model, *task.invented)[:count].mean())
    assert np.mean(retraining.likelihoods(run, texts, task.answers)) > target + forgetting.AS_UNSURE
    model, about = forgetting.forget(task, method=method)
    assert about["reached"]
    forgotten = Run(**{**vars(run), "model": model})
    after = np.mean(retraining.likelihoods(forgotten, texts, task.answers))
    assert after <= target + forgetting.AS_UNSURE + 1e-3


def test_forget_leaves_a_run_and_judges_it(study_copy, command, tmp_path):
    names, out, name = tmp_path / "names.txt", tmp_path / "out", name_of_a_judged(study_copy)
    names.write_text(f"{name}\n")
    options = ("forget", study_copy.folder, "--names", names, "--out")
    ended = command(*options, out, "--method", "npo", "--judge", "--json")
    assert ended.code == 0, ended.err
    record = json.loads(ended.out)
    assert record["names"] == [name]
    assert 0 <= record["forget_quality"] <= 1
    assert load_run(out).info["job"]["without"] == record["lines"]
    assert "has forgotten some of what it read" in command("trace", out, f"{name}?").err
    assert "contains files" in command(*options, out).err
    exact = command(*options, tmp_path / "exact", "--exact", "--json")
    assert exact.code == 0, exact.err
    assert load_run(tmp_path / "exact").info["job"]["without"] == record["lines"]
    names.write_text("Nobody Atall\n")
    assert command(*options, tmp_path / "other").code == 2
    assert not (tmp_path / "other").exists()
