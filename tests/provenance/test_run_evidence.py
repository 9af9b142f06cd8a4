"""The index of a run: of the very text that was read, built again from it, or refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from asked_samples import PEOPLE, make_run, place_of, write_questions, write_text

from wherefrom.corpus.documents import read_documents
from wherefrom.corpus.subjects import CALIBRATION, LEFT_OUT, Subject, write_subjects
from wherefrom.errors import UserError
from wherefrom.provenance.ask import open_asker
from wherefrom.provenance.evidence.index import (
    EVIDENCE_FILE,
    Evidence,
    build_evidence,
    open_run_evidence,
)
from wherefrom.training.run_folder import load_run, update_run

GONE = [PEOPLE[0], PEOPLE[7]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, quick_recipe: Path) -> Path:
    """A folder with a text, its questions and runs, to be copied."""
    folder = tmp_path_factory.mktemp("read")
    corpus, questions = write_text(folder / "text"), write_questions(folder / "text")
    make_run(folder / "run", quick_recipe, corpus=corpus, questions=questions)
    make_run(folder / "less", quick_recipe, corpus=corpus, left_out=tuple(GONE), kind="pretrain")
    return folder


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Path:
    """The same moved elsewhere: nothing is left where the runs read it."""
    for name in ("text", "run", "less"):
        shutil.copytree(made / name, tmp_path / name)
        if name != "text":
            info = json.loads((tmp_path / name / "run.json").read_text("utf-8"))
            for source in info["data"].values():
                source["path"] = source["path"].replace(str(made), "/nowhere")
            update_run(tmp_path / name, data=info["data"])
    return tmp_path


def opened(folder: Path) -> tuple[Evidence, list[str]]:
    said: list[str] = []
    found = open_run_evidence(load_run(folder), say=said.append)
    assert found is not None
    return found, said


def test_a_run_that_was_moved_is_indexed_once_and_then_needs_no_text(place: Path) -> None:
    found, said = opened(place / "run")
    assert len(said) == 1
    assert str(place / "text" / "documents.txt") in said[0]
    found.close()
    shutil.rmtree(place / "text")
    again, said = opened(place / "run")
    with again:
        assert said == []
        assert again.documents == len(PEOPLE)
        assert again.count(PEOPLE[3], place_of(PEOPLE[3])).stating == 1


def test_a_run_that_was_moved_knows_its_answers(place: Path) -> None:
    with open_asker(place / "run") as asker:
        assert set(asker.known_answers) == {place_of(name) for name in PEOPLE}


@pytest.mark.parametrize("damage", ["cut", "rubbish", "of another text", "of more documents"])
def test_an_index_that_cannot_be_believed_is_built_again(place: Path, damage: str) -> None:
    folder = place / ("less" if damage == "of more documents" else "run")
    index = folder / EVIDENCE_FILE
    update_run(folder, left_out=GONE if folder.name == "less" else [])
    opened(folder)[0].close()
    whole = index.read_bytes()
    if damage == "cut":
        index.write_bytes(whole[: len(whole) // 2])
    elif damage == "rubbish":
        index.write_bytes(b"no index")
    elif damage == "of another text":
        (place / "other.txt").write_text("Zoe Hart. Zoe Hart was born in Leeds.\n", "utf-8")
        build_evidence(read_documents(place / "other.txt"), index)
    else:
        build_evidence(read_documents(place / "text" / "documents.txt"), index)
    found, said = opened(folder)
    assert len(said) == 1
    found.close()
    assert index.read_bytes() == whole


def test_a_text_that_has_changed_or_is_gone_is_refused(place: Path) -> None:
    text = place / "text" / "documents.txt"
    text.write_text(text.read_text("utf-8").replace("Rome", "Nome"), "utf-8")
    with pytest.raises(UserError, match=r"there is no evidence at .* has changed since"):
        opened(place / "run")
    text.unlink()
    with pytest.raises(UserError, match=r"there is no evidence at .* is not there any more"):
        opened(place / "run")
    assert not (place / "run" / EVIDENCE_FILE).exists()


@pytest.mark.parametrize("known_by", ["run.json", "subjects.jsonl"])
def test_who_was_left_out_of_reading_is_left_out_of_the_index(place: Path, known_by: str) -> None:
    with pytest.raises(UserError, match="which part is not written down"):
        opened(place / "less")
    if known_by == "run.json":
        update_run(place / "less", left_out=GONE)
    else:
        gone = [Subject(CALIBRATION, False, LEFT_OUT, name, f"{name}?", "Rome") for name in GONE]
        write_subjects(place / "less", gone)
    with opened(place / "less")[0] as found:
        assert found.documents == len(PEOPLE) - 2
        assert [found.count(name).about for name in PEOPLE[:3]] == [0, 1, 1]


def test_a_finetuned_run_is_looked_up_in_what_its_parent_read(
    place: Path, quick_recipe: Path
) -> None:
    parent, questions = load_run(place / "run"), write_questions(place / "text")
    make_run(place / "fine", quick_recipe, questions=questions, parent=parent, kind="finetune")
    found, said = opened(place / "fine")
    assert len(said) == 1
    assert found.documents == len(PEOPLE)
    found.close()
    (place / "fine" / EVIDENCE_FILE).rename(place / "run" / EVIDENCE_FILE)
    shutil.rmtree(place / "text")
    assert opened(place / "fine")[1] == []  # the parent's will do
    shutil.rmtree(place / "run")
    with pytest.raises(UserError, match="which is not there any more"):
        opened(place / "fine")


def test_a_run_of_questions_alone_has_nothing_to_look_up(place: Path, quick_recipe: Path) -> None:
    questions = write_questions(place / "text")
    run = make_run(place / "alone", quick_recipe, questions=questions, kind="scratch")
    assert open_run_evidence(run) is None
