"""The newest run: finished, started last, and no twin inside another."""

from __future__ import annotations

from pathlib import Path

import pytest

from wherefrom.errors import UserError
from wherefrom.storage import write_json
from wherefrom.training.run_folder import find_newest_run, is_run


def make(folder: Path, started: str, status: str = "finished", *, weights: bool = True) -> Path:
    folder.mkdir(parents=True)
    write_json(folder / "run.json", {"started": started, "status": status})
    if weights:
        (folder / "model.safetensors").write_bytes(b"")
    return folder


def test_the_finished_run_that_was_started_last_is_taken(tmp_path: Path) -> None:
    make(tmp_path / "b" / "deep", "2026-03-02T00:00:00+00:00")
    newest = make(tmp_path / "a", "2026-03-03T00:00:00+00:00")
    make(newest / "twins" / "scratch", "2026-03-04T00:00:00+00:00")
    make(tmp_path / "c", "2026-03-05T00:00:00+00:00", "training")
    make(tmp_path / "d", "2026-03-05T00:00:00+00:00", weights=False)
    make(tmp_path / "e", "2026-03-05T00:00:00+00:00")
    (tmp_path / "e" / "run.json").write_text("{", "utf-8")
    assert find_newest_run(tmp_path) == newest
    make(tmp_path / "b" / "later", "2026-03-04T00:00:00+00:00")
    assert find_newest_run(tmp_path) == tmp_path / "b" / "later"


def test_no_run_is_one_sentence(tmp_path: Path) -> None:
    make(tmp_path / "c", "2026-03-05T00:00:00+00:00", "stopped")
    for below in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(UserError, match=f"there is no finished run below {below}; name the"):
            find_newest_run(below)


def test_a_question_is_no_run(tmp_path: Path) -> None:
    make(tmp_path / "c", "2026-03-05T00:00:00+00:00", "stopped")
    assert is_run(tmp_path / "c")
    assert not is_run(tmp_path)
    for words in ("", "Where was Ada Moe born?", "x" * 10_000, "a\0b"):
        assert not is_run(words)
