"""notebooks/tour.py runs from top to bottom, on a tiny study, and shows what it says it shows."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[1] / "notebooks" / "tour.py"
PARAMETERS = re.compile(r"^# %% parameters\n(.*?)(?=^# %%)", re.MULTILINE | re.DOTALL)


@pytest.mark.usefixtures("small_training")
def test_it_runs_from_top_to_bottom(tiny_study, quick_recipe, tmp_path, capsys):
    text = NOTEBOOK.read_text("utf-8")
    assert text.count("\n# %%") > 10
    options = {"recipe": str(quick_recipe), "tokens": "bpe", "seed": 2}
    parameters: dict[str, object] = {
        "OUT": str(shutil.copytree(tiny_study, tmp_path / "run")),
        "PEOPLE": 60,
        "BUDGET": {"steps": 20},
        "OPTIONS": {**options, "set_aside": 0.3, "leave_out": 0.2},
    }
    (cell,) = PARAMETERS.findall(text)
    assert set(re.findall(r"^(\w+)", cell, re.MULTILINE)) == set(parameters)
    given = "".join(f"{name} = {value!r}\n" for name, value in parameters.items())
    weights = tmp_path / "run" / "model.safetensors"
    before = weights.stat().st_mtime_ns
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(PARAMETERS.sub(lambda _: given, text), str(NOTEBOOK), "exec"), names)

    assert weights.stat().st_mtime_ns == before  # a finished run is not trained again
    assert abs(names["one_head"].std() - 0.442) < 0.01  # its standard error is about 0.001
    assert abs(names["two_heads"].std() - 0.147) < 0.01
    files = [tmp_path / "run" / "world" / f"{name}.tsv" for name in ("dev", "unseen")]
    asked = sum(len(file.read_text("utf-8").splitlines()) for file in files)
    assert sum(names["verdicts"].values()) == sum(names["shown"].values()) == asked
    assert {key for key in names["verdicts"] if key.startswith("unseen")} == {"unseen, made up"}
    assert not [key for key in names["shown"] if key.startswith("unseen, shown")]
    out = capsys.readouterr().out
    for words in ("proved  ", "refuted  ", "pretrained ", "made up: "):
        assert words in out
