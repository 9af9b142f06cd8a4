"""`wherefrom report`, and the report that a study ends with, from the outside."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from wherefrom.report.study_report import make_report


@pytest.fixture(scope="module")
def studied(tmp_path_factory: pytest.TempPathFactory, quick_recipe: Path) -> Path:
    """A study from the command line, a few steps long."""
    from click.testing import CliRunner

    from wherefrom.cli import cli

    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("runs") / "run"
    arguments = ["study", "--out", out, "--people", 36, "--seed", 3, "--steps", 4,
                 "--set-aside", 0.3, "--recipe", quick_recipe]  # fmt: skip
    ended = CliRunner().invoke(cli, [str(word) for word in arguments])
    assert ended.exit_code == 0, ended.output
    assert f"report written to {out / 'report.html'}" in ended.stderr
    return out


def test_a_study_ends_with_its_report(studied):
    text = (studied / "report.html").read_text("utf-8")
    assert text.startswith("<!doctype html>")
    assert "Recall against the baselines" in text


def test_a_quiet_study_writes_it_too(command, studied, quick_recipe):
    (studied / "report.html").unlink()
    again = ["--people", 36, "--seed", 3, "--steps", 4, "--set-aside", 0.3]
    ended = command(
        "--quiet", "study", "--out", studied, *again, "--recipe", quick_recipe, "--resume"
    )
    assert (ended.code, ended.err) == (0, "")
    assert (studied / "report.html").is_file()


def test_real_records_fill_every_section(studied):
    report = make_report(studied)
    assert [one["id"] for one in report["sections"] if one["missing"]] == ["twins"]
    assert all(one["answered"] for one in report["questions"])
    results = json.loads((studied / "run.json").read_text("utf-8"))["results"]
    recall = next(one for one in report["sections"] if one["id"] == "recall")
    assert [row[2] for row in recall["table"]["rows"]] == [row["correct"] for row in results]


def test_the_same_records_give_the_same_file(command, studied, tmp_path):
    for name in ("one.html", "two.html"):
        ended = command("report", studied, "--out", tmp_path / name)
        assert ended.code == 0, ended.err
        assert ended.out == ""
        assert "report written to" in ended.err
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "two.html").read_bytes()


def test_json_and_markdown_go_to_stdout_or_by_the_ending(command, studied, tmp_path):
    ended = command("report", studied, "--format", "json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out) == make_report(studied)
    command("report", studied, "--out", tmp_path / "report.json")
    assert (tmp_path / "report.json").read_text("utf-8") == ended.out
    ended = command("report", studied, "--format", "md")
    assert ended.out.startswith("# run\n")
    command("report", studied, "--out", tmp_path / "report.md")
    assert (tmp_path / "report.md").read_text("utf-8") == ended.out


def test_without_out_the_page_lies_in_the_run(command, studied):
    (studied / "report.html").unlink()
    assert command("report", studied).code == 0
    assert (studied / "report.html").is_file()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("nowhere",), "is not a run"),
        (("{run}", "--format", "pdf"), "pdf"),
        (("{run}", "--out", "{run}/run.json"), "belongs to the run"),
        (("{run}", "--out", "{run}/no/such/folder/report.html"), "cannot be written"),
        ((), "there is no finished run"),
    ],
)
def test_a_mistake_is_one_sentence(command, studied, monkeypatch, tmp_path, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    ended = command("report", *(str(word).format(run=studied) for word in arguments))
    assert ended.code == 2
    assert sentence in ended.err
    assert ended.err.count("\n") == 1
    assert "Traceback" not in ended.err


def test_an_unfinished_run_is_one_sentence(command, tmp_path):
    (tmp_path / "run.json").write_text('{"status": "training"}', encoding="utf-8")
    ended = command("report", tmp_path)
    assert ended.code == 2
    assert "has not finished training" in ended.err
