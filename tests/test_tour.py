"""notebooks/tour.py runs from top to bottom, on a tiny world, and shows what it says it shows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from wherefrom.corpus import batches

NOTEBOOK = Path(__file__).parents[1] / "notebooks" / "tour.py"
CELL = re.compile(r"^# %%.*\n", re.MULTILINE)
PARAMETERS = re.compile(r"^# %% parameters\n(.*?)(?=^# %%)", re.MULTILINE | re.DOTALL)


def run_tour(parameters: dict[str, object]) -> dict[str, Any]:
    """The notebook's names after all cells, run with these in the place of its parameters."""
    text = NOTEBOOK.read_text("utf-8")
    (cell,) = PARAMETERS.findall(text)
    assert set(re.findall(r"^(\w+)", cell, re.MULTILINE)) == set(parameters)
    given = "".join(f"{name} = {value!r}\n" for name, value in parameters.items())
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(PARAMETERS.sub(lambda _: given, text), str(NOTEBOOK), "exec"), names)
    return names


@pytest.fixture(scope="module")
def tour(
    tmp_path_factory: pytest.TempPathFactory, quick_recipe: Path
) -> tuple[dict[str, object], dict[str, Any]]:
    torch.set_num_threads(1)
    parameters: dict[str, object] = {
        "OUT": str(tmp_path_factory.mktemp("tour") / "run"),
        "PEOPLE": 60,
        "BUDGET": {"steps": 8},
        "OPTIONS": {"recipe": str(quick_recipe), "tokens": "bpe"},
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "POOL", 64)
        return parameters, run_tour(parameters)


def test_it_is_a_notebook_of_many_cells() -> None:
    assert len(CELL.findall(NOTEBOOK.read_text("utf-8"))) > 10


def test_noise_moves_one_head_and_two_as_the_law_says(tour: Any) -> None:
    names = tour[1]
    assert abs(names["one_head"].std() - 0.442) < 0.01  # its standard error is about 0.001
    assert abs(names["two_heads"].std() - 0.147) < 0.01


def test_it_trains_asks_and_counts_everybody(tour: Any) -> None:
    names = tour[1]
    world = names["world"]
    asked = sum(
        len((world / f"{n}.tsv").read_text("utf-8").splitlines()) for n in ("dev", "unseen")
    )
    assert sum(names["verdicts"].values()) == sum(names["told"].values()) == asked
    assert {key for key in names["verdicts"] if key.startswith("unseen")} == {"unseen, made up"}
    assert not [key for key in names["told"] if key.startswith("unseen, told")]


def test_a_finished_run_is_not_trained_again(tour: Any, capsys: pytest.CaptureFixture[str]) -> None:
    parameters, names = tour
    weights = Path(names["OUT"]) / "model.safetensors"
    before = weights.stat().st_mtime_ns
    again = run_tour(parameters)
    assert weights.stat().st_mtime_ns == before
    assert again["told"] == names["told"]
    out = capsys.readouterr().out
    assert "q=beta*(k_a+k_b)   proved: for every n" in out
    assert "training the model" not in out
    assert "made up: " in out
