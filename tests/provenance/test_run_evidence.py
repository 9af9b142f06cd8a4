"""The index of a run: of the very text that was read, rebuilt from it, or refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from asked_samples import PEOPLE, make_run, place_of, write_questions, write_text

from wherefrom.corpus.documents import read_documents
from wherefrom.corpus.subjects import CALIBRATION, LEFT_OUT, Subject, write_subjects
from wherefrom.errors import UserError
from wherefrom.provenance.evidence.index import build_evidence
from wherefrom.provenance.evidence.run_text import NAME, open_run_evidence
from wherefrom.training.run_folder import Run, load_run, update_run


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, quick_recipe: Path) -> Path:
    """A folder with a text, its questions and a run, to be copied."""
    folder = tmp_path_factory.mktemp("read")
    corpus = write_text(folder / "text")
    make_run(
        folder / "run", quick_recipe, corpus=corpus, questions=write_questions(folder / "text")
    )
    gone = (PEOPLE[0], PEOPLE[7])
    make_run(folder / "less", quick_recipe, corpus=corpus, left_out=gone, kind="pretrain")
    return folder


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Path:
    """The same once more, with run.json pointing at the text beside it."""
    for name in ("text", "run", "less"):
        shutil.copytree(made / name, tmp_path / name)
    for name in ("run", "less"):
        point(tmp_path / name, tmp_path / "text" / "documents.txt")
    return tmp_path


def point(run: Path, corpus: Path) -> None:
    info = json.loads((run / "run.json").read_text("utf-8"))
    info["data"]["corpus"]["path"] = str(corpus)
    update_run(run, data=info["data"])


def opened(folder: Path) -> tuple[Any, list[str]]:
    said: list[str] = []
    found = open_run_evidence(load_run(folder), say=said.append)
    assert found is not None
    return found, said


def test_an_index_is_made_once_and_then_opened_without_the_text(place: Path) -> None:
    found, said = opened(place / "run")
    assert said == [f"the index of the documents is made anew from {place}/text/documents.txt"]
    found.close()
    shutil.rmtree(place / "text")
    with opened(place / "run")[0] as again:
        assert again.documents == len(PEOPLE)
        assert again.count(PEOPLE[3], place_of(PEOPLE[3])).stating == 1
    assert opened(place / "run")[1] == []


@pytest.mark.parametrize("damage", ["cut", "rubbish", "of another text", "of more documents"])
def test_an_index_that_cannot_be_believed_is_made_anew(place: Path, damage: str) -> None:
    folder = place / ("less" if damage == "of more documents" else "run")
    index = folder / NAME
    update_run(folder, left_out=[PEOPLE[0], PEOPLE[7]] if folder.name == "less" else [])
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
    assert "made anew" in said[0]
    found.close()
    assert index.read_bytes() == whole


def test_a_text_that_has_changed_is_not_what_was_read(place: Path) -> None:
    text = place / "text" / "documents.txt"
    text.write_text(text.read_text("utf-8").replace("Rome", "Nome"), "utf-8")
    with pytest.raises(UserError, match=r"there is no evidence at .* has changed since the run"):
        opened(place / "run")
    text.unlink()
    with pytest.raises(
        UserError, match=r"there is no evidence at .*and the corpus .* is not there"
    ):
        opened(place / "run")
    assert not (place / "run" / NAME).exists()


def test_a_run_that_was_moved_finds_its_own_world(place: Path) -> None:
    shutil.move(place / "text", place / "run" / "world")
    with opened(place / "run")[0] as found:
        assert found.documents == len(PEOPLE)


@pytest.mark.parametrize("told_by", ["run.json", "subjects.jsonl"])
def test_who_was_left_out_of_reading_is_left_out_of_the_index(place: Path, told_by: str) -> None:
    gone = [PEOPLE[0], PEOPLE[7]]
    if told_by == "run.json":
        update_run(place / "less", left_out=gone)
    else:
        people = [Subject(CALIBRATION, False, LEFT_OUT, name, f"{name}?", "Rome") for name in gone]
        write_subjects(place / "less", people)
    with opened(place / "less")[0] as found:
        assert found.documents == len(PEOPLE) - 2
        assert [found.count(name).about for name in PEOPLE[:3]] == [0, 1, 1]


def test_a_part_that_nobody_wrote_down_cannot_be_read_again(place: Path) -> None:
    with pytest.raises(UserError, match="which part is not written down"):
        opened(place / "less")
    update_run(place / "less", left_out=[PEOPLE[1], PEOPLE[7]])
    with pytest.raises(UserError, match="which part is not written down"):
        opened(place / "less")


def finetuned(place: Path, recipe: Path) -> Run:
    parent = load_run(place / "run")
    return make_run(
        place / "fine",
        recipe,
        questions=write_questions(place / "text"),
        parent=parent,
        kind="finetune",
    )


def test_a_finetuned_run_is_looked_up_in_what_its_parent_read(
    place: Path, quick_recipe: Path
) -> None:
    finetuned(place, quick_recipe)
    found, said = opened(place / "fine")
    assert "made anew" in said[0]
    assert found.documents == len(PEOPLE)
    found.close()
    (place / "fine" / NAME).rename(place / "run" / NAME)
    shutil.rmtree(place / "text")
    assert opened(place / "fine")[1] == []  # the parent's will do
    update_run(place / "run", sha256="0" * 64)
    with pytest.raises(UserError, match="another one is there now"):
        opened(place / "fine")
    shutil.rmtree(place / "run")
    with pytest.raises(UserError, match="which is not there any more"):
        opened(place / "fine")


def test_a_run_of_questions_alone_has_nothing_to_look_up(place: Path, quick_recipe: Path) -> None:
    run = make_run(
        place / "alone", quick_recipe, questions=write_questions(place / "text"), kind="scratch"
    )
    assert open_run_evidence(run) is None


def test_records_that_say_nonsense_are_refused(place: Path) -> None:
    update_run(place / "run", data={"corpus": {"path": 3}})
    with pytest.raises(UserError, match="does not say which corpus"):
        opened(place / "run")
