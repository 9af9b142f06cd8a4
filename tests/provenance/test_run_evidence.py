"""The index of a run: of the very text that was read, built again from it, or refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from wherefrom.corpus.documents import read_documents
from wherefrom.errors import UserError
from wherefrom.provenance.evidence import (
    EVIDENCE_FILE,
    Evidence,
    build_evidence,
    open_run_evidence,
)
from wherefrom.training.run_folder import load_run, update_run


def info_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "run.json").read_text("utf-8"))


@pytest.fixture
def moved(tiny_study: Path, tmp_path: Path) -> Path:
    """A study in another folder, without an index; nothing is left where it read its text."""
    folder = Path(shutil.copytree(tiny_study, tmp_path / "moved"))
    data = info_of(folder)["data"]
    for source in data.values():
        source["path"] = source["path"].replace(str(tiny_study), "/nowhere")
    update_run(folder, data=data)
    (folder / EVIDENCE_FILE).unlink()
    return folder


def opened(folder: Path) -> tuple[Evidence, list[str]]:
    said: list[str] = []
    found = open_run_evidence(load_run(folder), say=said.append)
    assert found is not None
    return found, said


def test_a_run_that_was_moved_is_indexed_once_and_then_needs_no_text(moved: Path) -> None:
    info = info_of(moved)
    found, said = opened(moved)
    found.close()
    assert said == [f"building the index of the documents again from {moved}/world/documents.txt"]
    shutil.rmtree(moved / "world")
    again, said = opened(moved)
    with again:
        assert said == []
        assert again.documents == info["data"]["corpus"]["documents"]
        assert info["left_out"]
        assert not any(again.count(name).about for name in info["left_out"])


@pytest.mark.parametrize("damage", ["cut", "rubbish", "of another text", "of more documents"])
def test_an_index_that_cannot_be_believed_is_built_again(moved: Path, damage: str) -> None:
    opened(moved)[0].close()
    index, text = moved / EVIDENCE_FILE, moved / "world" / "documents.txt"
    whole = index.read_bytes()
    if damage == "cut":
        index.write_bytes(whole[: len(whole) // 2])
    elif damage == "rubbish":
        index.write_bytes(b"no index")
    elif damage == "of another text":
        (moved / "other.txt").write_text("Zoe Hart. Zoe Hart was born in Leeds.\n", "utf-8")
        build_evidence(read_documents(moved / "other.txt"), index)
    else:
        build_evidence(read_documents(text), index)
    found, said = opened(moved)
    assert len(said) == 1
    found.close()
    assert index.read_bytes() == whole


def test_a_text_that_has_changed_or_is_gone_is_refused(moved: Path) -> None:
    text = moved / "world" / "documents.txt"
    text.write_text(text.read_text("utf-8") + "Zoe Hart. Zoe Hart sang.\n", "utf-8")
    with pytest.raises(UserError, match=r"there is no evidence at .* has changed since"):
        opened(moved)
    text.unlink()
    with pytest.raises(UserError, match=r"there is no evidence at .* is not there any more"):
        opened(moved)
    assert not (moved / EVIDENCE_FILE).exists()


def test_a_run_is_looked_up_in_what_the_run_that_it_goes_on_from_read(moved: Path) -> None:
    fine, info = moved.with_name("fine"), info_of(moved)
    shutil.copytree(moved, fine, ignore=shutil.ignore_patterns("world"))
    parent = {"path": str(moved), "sha256": info["sha256"]}
    update_run(fine, data={"questions": info["data"]["questions"], "parent": parent})
    opened(moved)[0].close()
    shutil.rmtree(moved / "world")
    found, said = opened(fine)
    with found:
        assert (found.path.parent, said) == (moved, [])
    shutil.rmtree(moved)
    with pytest.raises(UserError, match="is not there any more; put the run back"):
        opened(fine)


def test_a_run_of_questions_alone_has_nothing_to_look_up(tiny_study: Path) -> None:
    assert open_run_evidence(load_run(tiny_study / "twins" / "scratch")) is None
