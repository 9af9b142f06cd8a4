"""`wherefrom judge` and `wherefrom names`, from the outside."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def studied(tmp_path_factory: pytest.TempPathFactory, tiny_study: Path) -> Path:
    return shutil.copytree(tiny_study, tmp_path_factory.mktemp("runs") / "run")


def test_judge_prints_every_score_and_the_verdicts(command, studied):
    ended = command("judge", studied, "--resamples", 20)
    assert ended.code == 0, ended.err
    for name in ("internal", "checked", "always answer", "greedy likelihood", "name support"):
        assert name in ended.out
    for word in ("AUROC", "ECE", "I don't know", "verdict", "made up"):
        assert word in ended.out
    assert (studied / "judged.jsonl").is_file()


def test_judge_as_json_is_what_it_wrote(command, studied):
    ended = command("judge", studied, "--resamples", 20, "--risk", 0.2, "--level", 0.9, "--json")
    assert ended.code == 0, ended.err
    record = json.loads(ended.out)
    assert record.pop("run") == str(studied)
    assert record["risk"] == 0.2
    assert record["level"] == 0.9
    assert record == json.loads((studied / "judgement.json").read_text("utf-8"))
    assert "judgement" in json.loads((studied / "run.json").read_text("utf-8"))


def test_names_says_what_strategy_the_model_follows_and_keeps_the_studys_record(command, studied):
    before = (studied / "origins.json").read_bytes()
    ended = command("names", studied, "--people", 1)
    assert ended.code == 0, ended.err
    for word in ("Asked about", "that it never saw", "bits", "commonest answer"):
        assert word in ended.out
    again = command("names", studied, "--people", 1, "--json")
    record = json.loads(again.out)
    assert record.pop("run") == str(studied)
    assert record == json.loads((studied / "names.json").read_text("utf-8"))
    assert (studied / "origins.json").read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("judge", "{run}", "--level", 2), "the level of an interval must lie between 0 and 1"),
        (("judge", "{run}", "--risk", 0), "risk must lie between 0 and 1"),
        (("judge", "{run}", "--resamples", 0), "at least one resample"),
        (("judge", "nowhere"), "is not a run"),
        (("names", "nowhere"), "is not a run"),
        (("names", "{run}", "--people", 0), "names of each origin"),
        (("names", "{run}", "--level", 1.5), "the level of an interval"),
        (("judge", "{run}/twins/scratch"), "was not made by `wherefrom study`"),
    ],
)
def test_a_mistake_is_one_sentence(command, studied, arguments, sentence):
    filled = [str(argument).replace("{run}", str(studied)) for argument in arguments]
    ended = command(*filled)
    assert ended.code == 2, ended.err
    assert sentence in ended.err
    assert len(ended.err.strip().splitlines()) == 1
    assert ended.out == ""
