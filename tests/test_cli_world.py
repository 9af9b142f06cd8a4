"""`wherefrom world` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest


def test_it_writes_a_world_and_says_what_is_in_it(tmp_path: Path, command) -> None:
    out = tmp_path / "world"
    done = command("world", "--people", 100, "--seed", 3, "--out", out, "--json")
    assert done.code == 0, done.err
    summary = json.loads(done.out)
    assert (summary["people"], summary["seed"], summary["out"]) == (100, 3, str(out))
    assert (summary["train"], summary["dev"], summary["unseen"]) == (68, 17, 15)
    table = command("world", "--people", 100, "--seed", 3, "--out", out)
    assert table.code == 0, table.err
    assert "68 / 17 / 15" in table.out
    assert "written to" in table.err


@pytest.mark.parametrize(
    ("people", "out", "sentence"),
    [
        (19, "new", "20 to 1,000,000 people, and 19 were"),
        (20, ".", "holds no world (it holds file)"),
        (20, "file", "is a file; a folder"),
        (20, "file/deeper", "cannot be made"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_2(
    tmp_path: Path, command, people: int, out: str, sentence: str
) -> None:
    (tmp_path / "file").write_text("mine")
    done = command("world", "--people", people, "--out", tmp_path / out)
    assert (done.code, done.out) == (2, "")
    assert sentence in done.err
    assert done.err.count("\n") == 1
    assert (tmp_path / "file").read_text() == "mine"
    assert not (tmp_path / "new").exists()
