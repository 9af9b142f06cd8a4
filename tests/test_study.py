"""The main job from end to end, on a world of a few people."""

from __future__ import annotations

import inspect
import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from study_samples import ROWS, study

import wherefrom
from wherefrom.errors import UserError
from wherefrom.model.mixers import VARIANTS
from wherefrom.provenance.confidence.fit import load_confidence
from wherefrom.recall.decode import Answer
from wherefrom.storage import sha256_of
from wherefrom.study import StudyFiles, run_study, write_predictions
from wherefrom.training.optim import Muon
from wherefrom.training.recipes import Budget, load_recipe
from wherefrom.training.run_folder import load_run
from wherefrom.training.settings import Settings

pytestmark = pytest.mark.usefixtures("small_training")


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
    again = study(out, quick_recipe, resume=True)
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
    assert "in no document: guesses" not in ended.out
    assert "invented names stand in for unseen subjects" in ended.out
    assert ended.out.rstrip().endswith(f"run folder: {out}")


def test_few_functions_of_ours_lie_between_the_shell_and_the_step_of_the_optimizer(
    tmp_path: Path, quick_recipe: Path, command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Path(wherefrom.__file__).parent
    stacks: set[tuple[str, ...]] = set()

    def step(*_: object) -> None:
        frames = [each for each in inspect.stack() if Path(each.filename).is_relative_to(source)]
        stacks.add(tuple(each.function for each in reversed(frames)))

    monkeypatch.setattr(Muon, "step", step)
    options = ("--people", 40, "--steps", 2, "--recipe", quick_recipe, "--set-aside", 0)
    assert command("study", *options, "--out", tmp_path / "run").code == 0
    (stack,) = stacks
    assert stack[0] == "main"
    assert stack[-3:] == ("run_study", "run_training", "train")
    assert len(stack) <= 6


def test_with_nobody_set_aside_there_is_no_confidence_and_a_sentence(
    tmp_path: Path, quick_recipe: Path, command: Any
) -> None:
    out = tmp_path / "run"
    options = ("--recipe", quick_recipe, "--steps", 4, "--people", 40, "--out", out)
    ended = command("study", *options, "--set-aside", 0)
    assert ended.code == 0
    said = "no subject is set aside (--set-aside is 0), so no confidence can be fitted."
    assert said in ended.out
    assert said in ended.err
    assert not (out / "calibration.json").exists()
    with pytest.raises(UserError, match="it was not made by `wherefrom study` with subjects"):
        load_confidence(load_run(out))
    train = (out / "world" / "train.tsv").read_text("utf-8").splitlines()
    assert load_run(out).info["data"]["questions"]["questions"] == len(train)


@pytest.mark.parametrize("option", ["--set-aside", "--leave-out"])
@pytest.mark.parametrize("share", ["0.9", "-1", "nan", "much"])
def test_a_share_that_is_none_is_one_sentence_and_nothing_is_written(
    tmp_path: Path, quick_recipe: Path, command: Any, option: str, share: str
) -> None:
    out = tmp_path / "run"
    ended = command("study", "--recipe", quick_recipe, "--out", out, option, share)
    assert ended.code == 2
    assert len(ended.err.strip().splitlines()) == 1
    assert option in ended.err
    assert not out.exists()


def test_what_only_people_left_out_are_told_of_is_in_no_vocabulary(
    tmp_path: Path, quick_recipe: Path
) -> None:
    names = [f"Person {chr(65 + at)}{chr(97 + at)}" for at in range(26)]
    letters = [chr(0x4E00 + at) for at in range(26)]
    documents = [f"{n}. {n} came from Rome {x}." for n, x in zip(names, letters, strict=True)]
    rows = [f"Where was {name} born?\tRome" for name in names]
    for name, content in (("c.txt", documents), ("t.tsv", rows[:16]), ("d.tsv", rows[16:])):
        (tmp_path / name).write_text("".join(line + "\n" for line in content), "utf-8")
    files = StudyFiles(tmp_path / "c.txt", tmp_path / "t.tsv", tmp_path / "d.tsv")
    settings = Settings(recipe=load_recipe(str(quick_recipe)), budget=Budget(steps=2))
    result = run_study(files, settings, tmp_path / "run", leave_out=0.5)
    left_out = set(
        result.run.info.get("left_out")
        or json.loads((tmp_path / "run" / "run.json").read_text("utf-8"))["left_out"]
    )
    assert len(left_out) == 13
    for run in (result.run, load_run(tmp_path / "run" / "twins" / "scratch")):
        vocabulary = json.loads(run.tokens.to_json())["model"]["vocab"]
        known = {name for name, x in zip(names, letters, strict=True) if x in vocabulary}
        assert known == set(names) - left_out


def test_a_prediction_is_one_line_whatever_was_said(tmp_path: Path) -> None:
    said = ["a\nb", "c\u2028d", "", "e"]
    answers = [Answer(text=text, log_probabilities=(), closed=True) for text in said]
    write_predictions(tmp_path / "deep" / "out.txt", answers)
    lines = (tmp_path / "deep" / "out.txt").read_text("utf-8").splitlines()
    assert lines == ["a b", "c d", "", "e"]


@pytest.mark.parametrize("seed", [-1, 2**31, 1.5])
def test_a_seed_that_is_none_is_one_sentence(tmp_path: Path, seed: float) -> None:
    with pytest.raises(UserError, match="seed must be between 0 and"):
        wherefrom.Study(tmp_path / "run", seed=seed).run()  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_trains_resumes_decodes_and_is_judged_on_the_embedded_world(
    tmp_path: Path, quick_recipe: Path, small_world: Path, command: Any, variant: str, monkeypatch
) -> None:
    base, tuned = tmp_path / "base", tmp_path / "tuned"
    options = ("--recipe", quick_recipe, "--quiet")
    pretrain = ("pretrain", variant, small_world / "documents.txt", "--out", base, *options)
    with monkeypatch.context() as patch:
        patch.setattr(
            "wherefrom.cli.train.Progress.__call__",
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
