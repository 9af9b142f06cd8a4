"""`wherefrom attention` on a real run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., Any]

QUESTION = "Where was Mia Ott born?"


@pytest.fixture
def run_folder(command: Command, small_world: Path, quick_recipe: Path, tmp_path: Path) -> Path:
    out = tmp_path / "run"
    files = [small_world / name for name in ("documents.txt", "train.tsv", "dev.tsv")]
    ended = command("study", *files, "--recipe", quick_recipe, "--steps", 4, "--out", out)
    assert ended.code == 0, ended.err
    return out


def test_every_head_is_told_as_json_and_as_a_table(command: Command, run_folder: Path) -> None:
    ended = command("attention", run_folder, QUESTION, "--json", "--maps")
    record = json.loads(ended.out)
    assert ended.code == 0
    assert record["subject"] == "Mia Ott"
    assert "".join(record["tokens"][i] for i in record["name"]) == "Mia Ott"
    assert len(record["heads"]) == 3 * 2
    assert len(record["maps"]) == 3
    for head in record["heads"]:
        assert sum(head["weights"]) == pytest.approx(1, abs=1e-4)
        assert 0 <= head["mass_on_name"] <= 1
    table = command("attention", run_folder, QUESTION)
    assert "on the name" in table.out
    assert "2.1" in table.out


def test_the_maps_are_written_as_one_page(
    command: Command, run_folder: Path, tmp_path: Path
) -> None:
    page = tmp_path / "maps.html"
    assert command("attention", run_folder, QUESTION, "--plot", page).code == 0
    text = page.read_text(encoding="utf-8")
    assert "Weight on the name" in text
    assert "Layer 2" in text
    assert "src=" not in text.split("<body>")[0]


def test_a_folder_that_is_no_run_and_an_unknown_letter_are_sentences(
    command: Command, run_folder: Path, tmp_path: Path
) -> None:
    for arguments in ((tmp_path, QUESTION), (run_folder, "Where was 東 born?")):
        ended = command("attention", *arguments)
        assert ended.code == 2
        assert ended.err.count("\n") == 1
