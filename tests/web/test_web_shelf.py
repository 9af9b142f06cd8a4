"""Only runs inside the served folder are reachable, whatever is written for a name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from web_samples import HOSTILE, write_record

from wherefrom.errors import UserError
from wherefrom.web.runs import RunIndex, UnknownRunError, summarise


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> RunIndex:
    root = tmp_path_factory.mktemp("shelf")
    write_record(root / "outside" / "secret", kind="study")
    runs = root / "runs"
    write_record(runs / "one", kind="study")
    write_record(runs / "one" / "twins" / "scratch", kind="scratch")
    write_record(runs / "group" / "two", kind="study")
    write_record(runs / ".hidden" / "three", kind="study")
    write_record(runs / 'a "quoted" <b>', kind="study")
    (runs / "out").symlink_to(root / "outside")
    (runs / "again").symlink_to(runs / "one")
    (runs / "loop").symlink_to(runs)
    return RunIndex(runs)


def test_runs_are_found_with_their_twins(shelf: RunIndex) -> None:
    names = set(shelf.runs())
    assert {"one", "one/twins/scratch", "group/two", 'a "quoted" <b>', "again"} <= names
    assert not [name for name in names if "secret" in name or ".hidden" in name]


@pytest.mark.parametrize(
    ("kind", "command", "recipe"),
    [
        ("study", ["study"], "speedrun"),
        ("pretrain", ["pretrain"], "course"),
        ("study", ["study", "--recipe", "mine/own.toml"], "own.toml"),
        ("ablation", ["benchmarks/ablation.py"], None),
        ("study", [], None),
    ],
)
def test_a_recipe_is_told_where_the_record_tells_it(
    tmp_path: Path, kind: str, command: list[str], recipe: str | None
) -> None:
    write_record(tmp_path / "run", kind=kind, command=command)
    assert summarise("run", tmp_path / "run")["recipe"] == recipe


@pytest.mark.parametrize(
    "name",
    [
        "../outside/secret", "out/secret", "out", "/etc", "one/../one", "./one", "one/", "",
        "one\0", "group", "..", "one/twins", HOSTILE, "%2e%2e/outside/secret", "two\\..\\one",
    ],
)  # fmt: skip
def test_no_spelling_leads_out_of_the_folder(shelf: RunIndex, name: str) -> None:
    with pytest.raises(UnknownRunError):
        shelf.find(name)


@given(st.lists(st.sampled_from(["..", ".", "one", "out", "secret", "outside", "/", "~"])))
def test_what_is_found_is_always_inside(shelf: RunIndex, parts: list[str]) -> None:
    try:
        found = shelf.find("/".join(parts))
    except UnknownRunError:
        return
    assert found.resolve().is_relative_to(shelf.root)


def test_one_run_is_served_with_its_twins_and_no_neighbours(shelf: RunIndex) -> None:
    alone = RunIndex(shelf.root / "one")
    assert set(alone.runs()) == {"one", "one/twins/scratch"}
    with pytest.raises(UserError, match="one run is served"):
        alone.place_for("new")


@pytest.mark.parametrize("name", ["../x", "a/b", ".x", "-x", "x y", "", "x" * 61, "é", "x\n"])
def test_a_new_run_has_a_plain_name(shelf: RunIndex, name: str) -> None:
    with pytest.raises(UserError, match="letters, digits"):
        shelf.place_for(name)


def test_a_new_run_takes_no_name_that_is_there(shelf: RunIndex) -> None:
    with pytest.raises(UserError, match="taken"):
        shelf.place_for("one")
    assert shelf.place_for("fresh_1.0-x").parent == shelf.root


def test_what_is_no_folder_cannot_be_served(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a folder"):
        RunIndex(tmp_path / "nothing")


def test_a_folder_whose_name_is_not_text_is_passed_over(tmp_path: Path) -> None:
    folder = os.path.join(os.fsencode(tmp_path), b"bad\xff")
    os.mkdir(folder)
    with open(os.path.join(folder, b"run.json"), "w") as file:
        file.write("{}")
    assert RunIndex(tmp_path).runs() == {}
