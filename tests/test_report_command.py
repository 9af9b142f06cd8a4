"""`wherefrom report`, and the report that a study ends with, from the outside."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from wherefrom.report.study_report import make_report


@pytest.fixture(scope="module")
def studied(tiny_study: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the study, in which reports are written and removed."""
    return Path(shutil.copytree(tiny_study, tmp_path_factory.mktemp("runs") / "run"))


def test_a_study_ends_with_its_report(command, studied, quick_recipe, tiny_study_options):
    words = ("study", *tiny_study_options, "--recipe", quick_recipe, "--out", studied, "--resume")
    for quiet in ((), ("--quiet",)):
        (studied / "report.html").unlink()
        ended = command(*quiet, *words)
        assert ended.code == 0, ended.err
        assert (f"report written to {studied / 'report.html'}" in ended.err) is not bool(quiet)
        text = (studied / "report.html").read_text("utf-8")
        assert text.startswith("<!doctype html>")
        assert "Recall against the baselines" in text


def test_real_records_fill_every_section(studied):
    report = make_report(studied)
    assert [one["id"] for one in report["sections"] if one["missing"]] == ["twins"]
    assert all(one["answered"] for one in report["questions"])
    results = json.loads((studied / "run.json").read_text("utf-8"))["results"]
    recall = next(one for one in report["sections"] if one["id"] == "recall")
    assert [row[2] for row in recall["table"]["rows"]] == [row["correct"] for row in results]


def test_the_same_records_give_the_same_file(command, studied, tmp_path):
    (studied / "report.html").unlink()
    for out in ((), ("--out", tmp_path / "two.html")):
        ended = command("report", studied, *out)
        assert (ended.code, ended.out) == (0, "")
        assert "report written to" in ended.err
    assert (studied / "report.html").read_bytes() == (tmp_path / "two.html").read_bytes()


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
