"""A bank of models on random halves, and rivals of forgetting, on the tiny study."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from wherefrom.corpus.split import JUDGED, read_subjects
from wherefrom.errors import UserError
from wherefrom.provenance.attribution.opening import open_learned
from wherefrom.provenance.attribution.own_run import LearnedOwnRun
from wherefrom.training.run_folder import load_run

pytestmark = pytest.mark.usefixtures("small_training")


@pytest.fixture
def study(tiny_study, tmp_path):
    """The tiny study in a folder of its own."""
    return load_run(shutil.copytree(tiny_study, tmp_path / "run"))


def test_a_bank_goes_on_where_it_was_stopped(benchmark, study, tmp_path, monkeypatch):
    banks, out, learned = benchmark("bank"), tmp_path / "bank", open_learned(study)
    retrain, trained = LearnedOwnRun.retrain, []

    def record(self, without, folder, **options):
        trained.append(options["seed"])
        return retrain(self, without, folder, **options)

    monkeypatch.setattr(LearnedOwnRun, "retrain", record)
    bank = banks.fill_bank(learned, out, banks.BankPlan(models=2, repeats=1))
    assert [(model["number"], model["seed"]) for model in bank.models] == [(0, 0), (1, 0)]
    assert [model["number"] for model in bank.repeated] == [0]
    assert len(trained) == 3
    assert not (out / "model").exists()  # weights are not kept
    words = [str(study.folder), "--out", str(out), "--models", "3", "--repeats", "1"]
    monkeypatch.setattr("sys.argv", ["bank.py", *words])
    assert banks.run_main(banks.main) == 0
    assert len(trained) == 4
    again = banks.read_bank(out)
    assert len(again.models) == 3
    first, repeated = again.models[0], again.repeated[0]
    assert first["without"] == repeated["without"]
    assert first["log_probability"] != repeated["log_probability"]  # another start
    for row in again.kept(learned.documents):  # a subject is left out whole, and half of them are
        pairs = set(zip(learned.subjects, row.tolist(), strict=True))
        assert len(pairs) == len(set(learned.subjects))
        assert sum(not kept for _, kept in pairs) == len(pairs) // 2
    assert sum(question["seen"] for question in again.questions) > 0


def test_lines_are_dealt_out_and_each_is_left_out_once(benchmark, study):
    banks, learned = benchmark("bank"), open_learned(study)
    plan, count = banks.BankPlan(share=0.1, by_lines=True), len(learned.documents)
    size = int(0.1 * count)
    groups = [plan.lines_without(learned, number) for number in range(count // size)]
    dealt = [line for group in groups for line in group]
    assert {len(group) for group in groups} == {size}
    assert len(set(dealt)) == len(dealt) > 0.8 * count
    assert plan.lines_without(learned, count // size) not in groups  # dealt anew


def test_banks_that_do_not_fit_are_refused(benchmark, study, tmp_path):
    banks = benchmark("bank")
    with pytest.raises(UserError, match="at least 2 models"):
        banks.fill_bank(open_learned(study), tmp_path / "bank", banks.BankPlan(models=1))
    (tmp_path / "bank").mkdir()
    (tmp_path / "bank" / "bank.json").write_text('{"format": 1, "run": "x"}')
    with pytest.raises(UserError, match="the bank of another run"):
        banks.fill_bank(open_learned(study), tmp_path / "bank", banks.BankPlan())
    with pytest.raises(UserError, match="holds no bank"):
        banks.read_bank(tmp_path)


def test_rivals_of_forgetting_are_judged_beside_it(benchmark, study, tmp_path, capsys):
    subjects = read_subjects(study.folder)
    name = next(s.subject for s in subjects if s.role == JUDGED and s.seen)
    (tmp_path / "names.txt").write_text(f"{name}\n")
    forgetting, out = benchmark("forgetting"), tmp_path / "rows.jsonl"
    forgetting.main([str(study.folder), str(tmp_path / "names.txt"), "--out", str(out)])
    rows = benchmark("rows").read_rows(out)
    assert [row["name"] for row in rows] == [f"forgetting, {way}" for way in forgetting.WAYS]
    assert all(0 <= row["as_unsure"] <= row["questions"] for row in rows)
    assert "forgetting, npo" in capsys.readouterr().out


def test_klom_is_zero_for_models_like_the_oracles_and_large_for_others(benchmark):
    find_klom = benchmark("forgetting").find_klom
    oracles = np.random.default_rng(0).normal(-4, 1, size=(10, 3))
    assert find_klom(oracles, oracles) == pytest.approx(0)
    assert find_klom(oracles + 9, oracles).min() > 10
    assert find_klom(np.full((10, 3), 40.0), oracles).max() == 100  # at most
