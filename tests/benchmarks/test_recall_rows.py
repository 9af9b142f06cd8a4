"""The benchmarks of recall still run: tiny ones of each, and that no row is measured twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from wherefrom.corpus.questions import read_questions
from wherefrom.corpus.world import make_world
from wherefrom.errors import UserError
from wherefrom.storage import sha256_of
from wherefrom.training.loop import peak_memory
from wherefrom.training.recipes import load_recipe


class TestRows:
    def test_a_row_is_measured_once_and_anew_when_a_setting_changes(
        self, benchmark: Any, tmp_path: Path
    ) -> None:
        rows, measured = benchmark("rows"), []

        def measure(settings: dict[str, Any]) -> dict[str, Any]:
            measured.append(settings["row"])
            if settings["row"] == "explodes":
                raise UserError("the loss is no longer a number.")
            return {"name": settings["row"], "value": 1.0}

        out = tmp_path / "rows.jsonl"
        plan = [{"row": name, "seed": 0} for name in ("a", "explodes", "b")]
        first = rows.measure_rows(plan, measure, out)
        assert [row["name"] for row in first] == ["a", "b"]
        with open(out, "a", encoding="utf-8") as file:
            file.write('{"name": "cut sho')
        again = rows.measure_rows([plan[0], plan[2], {"row": "a", "seed": 1}], measure, out)
        assert measured == ["a", "explodes", "b", "a"]
        assert [row["settings"]["seed"] for row in again] == [0, 0, 1]
        assert {"machine", "versions", "commit", "time"} <= set(again[0])

    def test_a_process_of_its_own_has_a_peak_of_its_own(
        self, benchmark: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rows = benchmark("rows")
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        held = bytearray(b"x") * 2**29
        text = '{"a": "' + "x" * 2**25 + '"}'
        found = rows.run_apart(json.loads, text, threads=1)
        assert len(found["a"]) == 2**25
        assert 64 < found["peak_mb"] < len(held) / 2**20 < peak_memory()


class TestAblation:
    def test_every_row_changes_the_shipped_recipe_and_is_a_recipe(self, benchmark: Any) -> None:
        ablation, rows = benchmark("ablation"), benchmark("rows")
        found = {
            name: rows.recipe_digest(ablation.changed_recipe(name, "speedrun"))
            for name in ablation.ROWS
        }
        assert found["shipped"] == rows.recipe_digest(load_recipe("speedrun"))
        assert len(set(found.values())) == len(found)

    def test_shares_are_what_the_rows_say(self, benchmark: Any) -> None:
        ablation = benchmark("ablation")

        def shares(name: str) -> dict[str, float]:
            (phase,) = ablation.changed_recipe(name, "speedrun").phases
            return phase.mixture.shares()

        assert shares("questions-30")["question"] == pytest.approx(0.3)
        assert sum(shares("questions-30").values()) == pytest.approx(1.0)
        before = load_recipe("speedrun").phases[0].mixture
        assert shares("no-salient")["question"] == before.question
        assert shares("text")["text"] == pytest.approx(0.07)
        assert sum(shares("text").values()) == pytest.approx(1.0)
        assert "name" not in shares("no-names")
        assert sum(shares("no-salient").values()) == pytest.approx(sum(before.shares().values()))
        assert "salient" not in shares("no-salient")
        read, ask = ablation.changed_recipe("questions-end", "speedrun").phases
        assert read.mixture.question == 0
        assert set(ask.mixture.shares()) == {"question"}
        assert ask.share / (read.share + ask.share) == pytest.approx(before.question)

    def test_held_out_people_are_not_learned_from(self, benchmark: Any, small_world: Path) -> None:
        ablation = benchmark("ablation")
        train = read_questions(small_world / "train.tsv")
        learn, judge = ablation.hold_out(train, 7, 3)
        assert len({q.subject for q in judge.questions}) == 7
        assert not {q.subject for q in learn.questions} & {q.subject for q in judge.questions}
        assert len(learn.questions) + len(judge.questions) == len(train.questions)
        assert len({part.sha256 for part in (train, learn, judge)}) == 3
        assert ablation.hold_out(train, 7, 3)[1] == judge
        assert ablation.hold_out(train, 7, 4)[1] != judge
        with pytest.raises(UserError, match="give fewer with --held-out"):
            ablation.hold_out(train, 1000, 0)

    @pytest.mark.usefixtures("one_thread")
    def test_a_tiny_row_trains_and_is_told(
        self, benchmark: Any, small_world: Path, tmp_path: Path, quick_recipe: Path
    ) -> None:
        ablation = benchmark("ablation")
        base = {"minutes": None, "steps": 3, "held_out": 5, "threads": 1}
        rows = []
        for name, seed in (("shipped", 0), ("questions-end", 0), ("chars", 1)):
            settings = {"row": name, "seed": seed, **base}
            files = [str(small_world / file) for file in ("documents.txt", "train.tsv")]
            row = ablation.train_row(settings, *files, str(tmp_path / name), str(quick_recipe))
            assert row["total"] >= 5  # questions about five people
            rows.append({**row, "settings": settings})
        text = ablation.markdown(rows)
        assert "| speedrun as it is shipped | 0.0 % |  | 3 |" in text
        assert "| questions only at the end | 0.0 % | +0.0 |" in text
        assert "| characters | 0.0 % |  |" in text  # another seed is compared with nothing


class TestAccuracy:
    @pytest.mark.parametrize("recipe", ["twostep", "speedrun"])
    def test_a_finished_run_says_of_itself_what_was_planned(
        self, benchmark: Any, tmp_path: Path, small_world: Path, recipe: str
    ) -> None:
        accuracy = benchmark("accuracy")
        names = {"corpus": "documents.txt", "train": "train.tsv", "dev": "dev.tsv"}
        files = {what: small_world / name for what, name in names.items()}
        told = {"recipe": recipe, "minutes": 20.0, "variant": "perceiver"}
        planned = accuracy.plan_row(told, 2, files)
        run = tmp_path / "run"
        run.mkdir()
        (run / "run.json").write_text(json.dumps(finished_run(accuracy, files, told, seed=2)))
        row = accuracy.read_run(run)
        assert row["settings"] == planned
        assert (row["value"], row["twin"], row["unseen"]) == (0.8, 0.1, None)
        out = tmp_path / "accuracy.jsonl"
        for _ in range(2):
            (collected,) = accuracy.collect([run], str(out))
        assert len(out.read_text().splitlines()) == 1
        assert "80.0 %" in accuracy.markdown([collected, row])
        assert "Looks at dev: 2" in accuracy.markdown([collected, row])


def finished_run(
    accuracy: Any, files: dict[str, Path], told: dict[str, Any], seed: int
) -> dict[str, Any]:
    """What a study leaves in run.json, as far as it is read."""
    recipe = load_recipe(told["recipe"])
    phases = accuracy.Budget(minutes=told["minutes"]).divide(recipe.phases)
    hashes = {name: {"sha256": sha256_of(path)} for name, path in files.items()}
    width, layers, heads = accuracy.parse_size(recipe.size)
    shape = {"variant": told["variant"], "width": width, "layers": layers, "heads": heads}
    dumped = [phase.model_dump(mode="json") for phase in phases]
    model = {**shape, "dropout": recipe.dropout}
    correct = {"no pretraining": 1, "pretrained": 8}
    return {
        "status": "finished",
        "job": {"phases": dumped, "model": model, "tokens": "bpe of 1500", "seed": seed},
        "data": {"corpus": hashes["corpus"], "questions": {**hashes["train"], "questions": 9}},
        "dev": hashes["dev"],
        "results": [
            {"name": name, "recall": count / 10, "correct": count, "total": 10}
            for name, count in correct.items()
        ],
        "seconds": 1200.0,
        "steps": 5,
        "trained_tokens": 6,
        "sha256": "abc",
        "versions": {"threads": "2"},
    }


class TestScale:
    def test_bits_of_people_who_are_all_recalled_are_their_surprise(self, benchmark: Any) -> None:
        scale = benchmark("scale")
        people = make_world(400, 0).of_split("dev")
        bits = scale.surprise(["Rome"] * 3 + ["Oslo"], places=4)
        assert bits == {"Rome": 1.0, "Oslo": 2.0, "": 3.0}
        truth = [person.birthplace for person in people]
        wanted = np.mean([bits.get(place, 3.0) for place in truth])
        assert scale.bits_said(people, truth, bits) == pytest.approx(wanted)
        assert scale.bits_said(people, ["nowhere"] * len(people), bits) == 0
        shares = {"train": 5.0, "dev": 0.25, "unseen": 0.5}
        assert scale.stored_bits(shares, {"train": 10, "dev": 4, "unseen": 2}) == 45.0
        width, layers, heads = map(int, scale.size_of(30e6).split("x"))
        assert width == 64 * heads
        assert 20e6 < 2 * width * 32_768 + 12 * layers * width**2 < 60e6

    @pytest.mark.usefixtures("one_thread")
    def test_a_tiny_row_trains_and_is_carried_over(self, benchmark: Any, tmp_path: Path) -> None:
        scale = benchmark("scale")
        settings = {"people": 40, "size": "16x2x2", "seed": 0, "minutes": None, "steps": 2}
        row = scale.train_row({**settings, "threads": 1}, str(tmp_path))
        assert set(row["recall"]) == {"train", "dev", "unseen"}
        row["settings"] = settings
        assert "nothing to carry over" in scale.markdown([row], gpus=8, flops=1e12)
        good = {**row, "value": 0.9, "bits_per_person": 5.0, "bits_per_parameter": 0.01}
        text = scale.markdown([row, good], gpus=8, flops=1e12)
        assert "| 2,000,000 | 1,000 M |" in text
        assert "torchrun --nproc-per-node 8 -m wherefrom study" in text
