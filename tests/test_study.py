"""The main job from end to end, on a world of a few people."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from wherefrom.corpus import batches
from wherefrom.errors import UserError
from wherefrom.model.mixers import VARIANTS
from wherefrom.recall.decode import Answer
from wherefrom.storage import sha256_of
from wherefrom.study import StudyFiles, StudyResult, embedded_files, run_study, write_predictions
from wherefrom.training.jobs import Budget, Settings
from wherefrom.training.recipes import load_recipe
from wherefrom.training.run import load_run

ROWS = ["majority", "by name", "no pretraining", "pretrained", "unseen people"]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    monkeypatch.setattr(batches, "POOL", 64)


def study(out: Path, recipe: Path, *, resume: bool = False) -> StudyResult:
    files = embedded_files(out / "world", people=40, seed=2)
    settings = Settings(
        recipe=load_recipe(str(recipe)), budget=Budget(steps=20), seed=2, resume=resume
    )
    return run_study(files, settings, out)


def test_a_study_compares_the_model_with_all_that_needs_no_reading(
    tmp_path: Path, quick_recipe: Path
) -> None:
    out = tmp_path / "run"
    result = study(out, quick_recipe)
    assert [row.name for row in result.rows] == ROWS
    dev = (out / "world" / "dev.tsv").read_text("utf-8").splitlines()
    unseen = (out / "world" / "unseen.tsv").read_text("utf-8").splitlines()
    assert [row.recall.total for row in result.rows] == [len(dev)] * 4 + [len(unseen)]
    assert result.rows[0].about.startswith("always ")
    assert [row.seconds is None for row in result.rows] == [True, True, False, False, False]

    predictions = (out / "predictions" / "dev.txt").read_text("utf-8").split("\n")
    assert predictions.pop() == ""
    right = [line.split("\t")[1] for line in dev]
    assert len(predictions) == len(right)
    correct = sum(a.strip() == b for a, b in zip(predictions, right, strict=True))
    assert correct == result.rows[3].recall.correct

    twin = load_run(out / "twins" / "scratch")
    assert twin.info["kind"] == "scratch"
    assert twin.tokens.to_json() == result.run.tokens.to_json()
    assert twin.model.config == result.run.model.config


def test_run_json_holds_all_that_the_numbers_depend_on(tmp_path: Path, quick_recipe: Path) -> None:
    out = tmp_path / "run"
    result = study(out, quick_recipe)
    info = json.loads((out / "run.json").read_text("utf-8"))
    assert isinstance(info["command"], list)
    assert info["job"]["seed"] == 2
    assert info["job"]["phases"][0]["steps"] + info["job"]["phases"][1]["steps"] == 20
    world = out / "world"
    assert info["data"]["corpus"]["sha256"] == sha256_of(world / "documents.txt")
    assert info["data"]["questions"]["sha256"] == sha256_of(world / "train.tsv")
    assert info["dev"]["sha256"] == sha256_of(world / "dev.tsv")
    assert info["sha256"] == sha256_of(out / "model.safetensors")
    assert {"wherefrom", "commit", "python", "torch"} <= info["versions"].keys()
    assert info["started"].startswith("20")
    assert info["seconds"] > 0
    assert (info["status"], info["kind"], info["steps"]) == ("finished", "study", 20)
    assert info["template"] == "Where was {subject} born?"
    assert info["results"] == result.to_dict()["results"]
    expected = {"config.json", "tokenizer.json", "model.safetensors", "run.json", "metrics.jsonl"}
    assert expected <= {path.name for path in out.iterdir()}


def test_resuming_a_finished_study_trains_nothing_and_says_the_same(
    tmp_path: Path, quick_recipe: Path
) -> None:
    out = tmp_path / "run"
    first = study(out, quick_recipe)
    metrics = (out / "metrics.jsonl").stat().st_mtime_ns
    began = time.process_time()
    again = study(out, quick_recipe, resume=True)
    assert time.process_time() - began < 5  # decoding and no step of training
    assert again.to_dict() == first.to_dict()
    assert (out / "metrics.jsonl").stat().st_mtime_ns == metrics


def test_the_command_prints_json_and_nothing_else(
    tmp_path: Path, quick_recipe: Path, start_process: Callable[..., subprocess.Popen[str]]
) -> None:
    out = tmp_path / "run"
    arguments = ("study", "--people", 40, "--recipe", quick_recipe, "--steps", 12, "--out", out)
    printed, said = start_process(*arguments, "--json").communicate(timeout=120)
    result = json.loads(printed)
    assert [row["name"] for row in result["results"]] == ROWS
    assert result["run"] == str(out)
    assert "training the model" in said
    assert json.loads((out / "run.json").read_text())["results"] == result["results"]


def test_the_command_prints_a_table_and_the_folder(
    tmp_path: Path, quick_recipe: Path, small_world: Path, command: Any
) -> None:
    files = [small_world / name for name in ("documents.txt", "train.tsv", "dev.tsv")]
    out = tmp_path / "run"
    options = ("--recipe", quick_recipe, "--steps", 12, "--out", out, "--quiet")
    ended = command("study", *files, *options)
    assert (ended.code, ended.err) == (0, "")
    for name in ROWS[:-1]:  # who is unseen is known of the embedded world alone
        assert name in ended.out
    assert ROWS[-1] not in ended.out
    assert ended.out.rstrip().endswith(f"run folder: {out}")


class TestNothingIsLost:
    """A study that is refused leaves what was there as it was."""

    def contents(self, folder: Path) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def test_another_seed_or_size_of_the_world_is_refused(
        self, tmp_path: Path, quick_recipe: Path, command: Any
    ) -> None:
        out = tmp_path / "run"
        base = ("study", "--recipe", quick_recipe, "--steps", 4, "--out", out, "--people", 40)
        assert command(*base).code == 0
        before = self.contents(out)
        for more in ((), ("--seed", 1)):
            ended = command(*base, *more)
            assert ended.code == 2
            assert "already holds a run; add --resume" in ended.err
        for more in (("--seed", 1, "--resume"), ("--people", 50, "--resume")):
            ended = command(*base, *more)
            assert ended.code == 2
            assert "holds another world than that of" in ended.err
        assert command(*base, "--steps", 5, "--resume").code == 2
        assert self.contents(out) == before

    def test_a_folder_of_other_things_is_refused_before_any_training(
        self, tmp_path: Path, quick_recipe: Path, small_world: Path, command: Any
    ) -> None:
        (tmp_path / "mine.txt").write_text("mine")
        files = [small_world / name for name in ("documents.txt", "train.tsv", "dev.tsv")]
        for given in ((), files):
            ended = command("study", *given, "--recipe", quick_recipe, "--out", tmp_path)
            assert ended.code == 2
            assert "exists and is not a run" in ended.err
        assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]

    def test_a_changed_corpus_is_refused_while_only_the_twin_has_started(
        self, tmp_path: Path, quick_recipe: Path, small_world: Path
    ) -> None:
        corpus = tmp_path / "documents.txt"
        corpus.write_bytes((small_world / "documents.txt").read_bytes())
        files = StudyFiles(corpus, small_world / "train.tsv", small_world / "dev.tsv")
        recipe = load_recipe(str(quick_recipe))

        def stop(*_: object) -> None:
            signal.raise_signal(signal.SIGINT)

        settings = Settings(recipe=recipe, budget=Budget(steps=12))
        with pytest.raises(KeyboardInterrupt):
            run_study(files, settings, tmp_path / "run", observe=stop)
        corpus.write_text(corpus.read_text("utf-8") + "Al Bo. Al Bo sang.\n", "utf-8")
        again = Settings(recipe=recipe, budget=Budget(steps=12), resume=True)
        with pytest.raises(UserError, match="its vocabulary comes from has changed"):
            run_study(files, again, tmp_path / "run")


def test_a_prediction_is_one_line_whatever_was_said(tmp_path: Path) -> None:
    said = ["a\nb", "c\u2028d", "", "e"]
    answers = [Answer(text=text, log_probabilities=(), closed=True) for text in said]
    write_predictions(tmp_path / "deep" / "out.txt", answers)
    lines = (tmp_path / "deep" / "out.txt").read_text("utf-8").splitlines()
    assert lines == ["a b", "c d", "", "e"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_trains_resumes_decodes_and_is_judged_on_the_embedded_world(
    tmp_path: Path, quick_recipe: Path, small_world: Path, command: Any, variant: str, monkeypatch
) -> None:
    base, tuned = tmp_path / "base", tmp_path / "tuned"
    options = ("--recipe", quick_recipe, "--quiet")
    pretrain = ("pretrain", variant, small_world / "documents.txt", "--out", base, *options)
    with monkeypatch.context() as patch:
        patch.setattr(
            "wherefrom.cli.lab.TrainingProgress.__call__",
            lambda *_: signal.raise_signal(signal.SIGINT),
        )
        assert command(*pretrain, "--steps", 14, "--tokens", "bpe").code == 130
    ended = command(*pretrain, "--steps", 14, "--tokens", "bpe", "--resume", "--json")
    assert json.loads(ended.out)["steps"] == 14
    finetune = ("finetune", base, small_world / "train.tsv", "--out", tuned, "--steps", 8)
    assert command(*finetune, *options).code == 0
    out = tmp_path / "predictions.txt"
    ended = command("evaluate", tuned, small_world / "dev.tsv", "--out", out)
    assert ended.code == 0
    assert ended.out.startswith("Correct: ")
    asked = (small_world / "dev.tsv").read_text("utf-8").splitlines()
    assert len(out.read_text("utf-8").splitlines()) == len(asked)
    assert load_run(tuned).model.config.variant == variant
