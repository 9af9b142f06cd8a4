"""A study that is refused leaves what was there as it was."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from wherefrom.errors import UserError
from wherefrom.study import StudyFiles, run_study
from wherefrom.training.recipes import Budget, load_recipe
from wherefrom.training.settings import Settings

pytestmark = pytest.mark.usefixtures("small_training")


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_another_seed_or_size_of_the_world_is_refused(
    tmp_path: Path, quick_recipe: Path, command: Any
) -> None:
    out = tmp_path / "run"
    base = ("study", "--recipe", quick_recipe, "--steps", 4, "--out", out, "--people", 40)
    assert command(*base).code == 0
    before = contents(out)
    for more in ((), ("--seed", 1)):
        ended = command(*base, *more)
        assert ended.code == 2
        assert "already holds a run; add --resume" in ended.err
    for more in (("--seed", 1, "--resume"), ("--people", 50, "--resume")):
        ended = command(*base, *more)
        assert ended.code == 2
        assert "holds another world than that of" in ended.err
    assert command(*base, "--steps", 5, "--resume").code == 2
    assert contents(out) == before


def test_a_folder_of_other_things_is_refused_before_any_training(
    tmp_path: Path, quick_recipe: Path, small_world: Path, command: Any
) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    files = [small_world / name for name in ("documents.txt", "train.tsv", "dev.tsv")]
    for given in ((), files):
        ended = command("study", *given, "--recipe", quick_recipe, "--out", tmp_path)
        assert ended.code == 2
        assert "exists and is not a run" in ended.err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_changed_corpus_is_refused_while_only_the_twin_has_started(
    tmp_path: Path, quick_recipe: Path, small_world: Path
) -> None:
    corpus = tmp_path / "documents.txt"
    corpus.write_bytes((small_world / "documents.txt").read_bytes())
    files = StudyFiles(corpus, small_world / "train.tsv", small_world / "dev.tsv")
    recipe = load_recipe(str(quick_recipe))

    def stop(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)

    settings = Settings(recipe=recipe, budget=Budget(steps=12))
    with pytest.raises(KeyboardInterrupt):
        run_study(files, settings, tmp_path / "run", observe=stop)
    corpus.write_text(corpus.read_text("utf-8") + "Al Bo. Al Bo sang.\n", "utf-8")
    again = Settings(recipe=recipe, budget=Budget(steps=12), resume=True)
    with pytest.raises(UserError, match="its vocabulary comes from has changed"):
        run_study(files, again, tmp_path / "run")
