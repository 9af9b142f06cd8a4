"""A bank of models on random halves, and forgetting people, on the tiny study."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.questions import SLOT
from wherefrom.corpus.subjects import JUDGED, read_subjects
from wherefrom.errors import UserError
from wherefrom.provenance.attribution import forget as forgetting
from wherefrom.provenance.attribution.retraining import (
    answer_row,
    fill_bank,
    likelihoods,
    open_learned,
    pad_rows,
    read_bank,
)
from wherefrom.training.run_folder import Run, load_run

pytestmark = pytest.mark.usefixtures("small_training")


@pytest.fixture
def run(tiny_study: Path, tmp_path: Path) -> Run:
    return load_run(shutil.copytree(tiny_study, tmp_path / "run"))


def test_a_bank_goes_on_where_it_was_stopped(
    run: Run, tmp_path: Path, command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, trained = tmp_path / "bank", []
    learned = open_learned(run)
    train = type(learned).retrain

    def retrain(self: Any, without: Any, folder: Path, **options: Any) -> Run:
        trained.append((len(without), options["seed"]))
        return train(self, without, folder, **options)

    monkeypatch.setattr(type(learned), "retrain", retrain)
    found = fill_bank(run, out, models=2, repeats=1)
    assert [(m["half"], m["seed"]) for m in found.models] == [(0, 0), (1, 0)]
    assert [m["half"] for m in found.repeated] == [0]
    assert len(trained) == 3
    assert not (out / "model").exists()  # weights are not kept
    with (out / "models.jsonl").open("a") as file:
        file.write('{"half": 2, "se')  # a kill cut it short
    ended = command("bank", run.folder, "--out", out, "--models", 3, "--repeats", 1, "--json")
    assert ended.code == 0, ended.err
    assert len(trained) == 4
    assert json.loads(ended.out)["models"] == 3
    again = read_bank(out)
    first, repeated = again.models[0], again.repeated[0]
    assert first["without"] == repeated["without"]
    assert first["log_probability"] != repeated["log_probability"]  # another start
    kept = again.kept(learned.documents)
    about = [fold_words(document.subject) for document in learned.documents]
    for row in kept:  # a subject is left out whole, and half of them are
        gone = {name for name, stays in zip(about, row, strict=True) if not stays}
        assert not gone & {name for name, stays in zip(about, row, strict=True) if stays}
        assert len(gone) == len(set(about)) // 2
    assert sum(q["seen"] for q in again.questions) > 0


def test_banks_and_lines_that_do_not_fit_are_refused(run: Run, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="at least 2 models"):
        fill_bank(run, tmp_path / "bank", models=1)
    (tmp_path / "bank").mkdir()
    (tmp_path / "bank" / "bank.json").write_text('{"format": 1, "run": "x"}')
    with pytest.raises(UserError, match="the bank of another run"):
        fill_bank(run, tmp_path / "bank")
    with pytest.raises(UserError, match="holds no bank"):
        read_bank(tmp_path)
    with pytest.raises(UserError, match="no document on line 100000"):
        open_learned(run).retrain([100000], tmp_path / "twin")


@pytest.mark.parametrize("method", forgetting.METHODS)
def test_what_is_forgotten_is_as_unlikely_as_for_other_names(run: Run, method: str) -> None:
    """The tiny study knows nothing, so it is taught its answers first, and others for others."""
    name = next(s.subject for s in read_subjects(run.folder) if s.role == JUDGED and s.seen)
    rng = np.random.default_rng(0)
    task = forgetting.plan_forgetting(run, [name])
    others = rng.permutation([d.subject for d in task.learned.documents if d.subject != name])[:20]
    rows = [answer_row(run, q.text, q.answer or "") for q in task.questions]
    rows += [
        answer_row(run, q.template.replace(SLOT, str(other)), "no")
        for q in task.questions
        for other in others
    ]
    optimizer = torch.optim.AdamW(run.model.parameters(), lr=3e-3)
    for _ in range(100):
        loss = -forgetting.log_likelihoods(run.model, *pad_rows(rows)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    asked = {q.subject for q in (*task.learned.dev, *task.learned.questions)}
    unasked = forgetting.plan_forgetting(run, [next(str(o) for o in others if o not in asked)])
    assert "no" in unasked.answers  # of somebody whom no question is about
    task = forgetting.plan_forgetting(run, [name], nearest=method == "trace")
    assert task.subjects == (name,)
    texts, count = [q.text for q in task.questions], len(task.questions)
    with torch.no_grad():
        target = float(forgetting.log_likelihoods(run.model, *task.invented)[:count].mean())
    before = np.mean(likelihoods(run, texts, task.answers))
    model, about = forgetting.forget(task, method=method)
    forgotten = Run(**{**vars(run), "model": model})
    after = np.mean(likelihoods(forgotten, texts, task.answers))
    assert before > target + forgetting.AS_UNSURE
    assert about["reached"]
    assert after <= target + forgetting.AS_UNSURE + 1e-3


def test_forget_leaves_a_run_and_judges_it(run: Run, command: Any, tmp_path: Path) -> None:
    names, out = tmp_path / "names.txt", tmp_path / "out"
    name = next(s.subject for s in read_subjects(run.folder) if s.role == JUDGED and s.seen)
    names.write_text(f"{name}\n")
    options = ("forget", run.folder, "--names", names, "--out")
    ended = command(*options, out, "--method", "npo", "--judge", "--json")
    assert ended.code == 0, ended.err
    record = json.loads(ended.out)
    assert record["names"] == [name]
    assert 0 <= record["forget_quality"] <= 1
    assert record["why"].startswith("as unsure of them as the model that never read them: ")
    forgotten = load_run(out)
    assert forgotten.info["job"]["without"] == record["lines"]
    assert "has forgotten some of what it read" in command("trace", out, f"{name}?").err
    again = command(*options, out)
    assert again.code == 2
    assert "holds files" in again.err
    names.write_text("Nobody Atall\n")
    assert command(*options, tmp_path / "other").code == 2
    assert not (tmp_path / "other").exists()
    names.write_text(f"{name}\n")
    exact = command(*options, tmp_path / "exact", "--exact", "--json")
    assert exact.code == 0, exact.err
    assert load_run(tmp_path / "exact").info["job"]["without"] == record["lines"]
