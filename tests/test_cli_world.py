"""`wherefrom world` as a user runs it: in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    code = "from wherefrom.cli import main; main()"
    paths = os.pathsep.join(path for path in sys.path if path)
    return subprocess.run(
        [sys.executable, "-c", code, "world", *arguments],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )


def test_it_writes_a_world_and_says_what_is_in_it(tmp_path: Path) -> None:
    out = tmp_path / "world"
    done = run("--people", "100", "--seed", "3", "--out", str(out), "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["people"], summary["seed"], summary["out"]) == (100, 3, str(out))
    assert (summary["train"], summary["dev"], summary["unseen"]) == (68, 17, 15)
    text = (out / "documents.txt").read_text("utf-8")
    assert summary["documents"] == text.count("\n")
    assert summary["characters"] == len(text)
    assert len((out / "unseen.tsv").read_text("utf-8").splitlines()) == 15


def test_the_table_is_for_people(tmp_path: Path) -> None:
    done = run("--people", "100", "--out", str(tmp_path / "world"))
    assert done.returncode == 0, done.stderr
    assert "68 / 17 / 15" in done.stdout
    assert "written to" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--people", "19", "--out", "{tmp}/new"), "20 to 1,000,000 people, and 19 were"),
        (("--people", "20", "--out", "{tmp}"), "holds no world (it holds file)"),
        (("--people", "20", "--out", "{tmp}/file"), "is a file; a folder"),
        (("--people", "20", "--out", "{tmp}/file/deeper"), "cannot be written"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_2(
    tmp_path: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    (tmp_path / "file").write_text("mine")
    done = run(*(argument.replace("{tmp}", str(tmp_path)) for argument in arguments))
    assert done.returncode == 2
    assert done.stdout == ""
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1
    assert (tmp_path / "file").read_text() == "mine"
    assert not (tmp_path / "new").exists()
