"""The notebooks run from top to bottom on a tiny study, and show what they say they show."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

import wherefrom

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
PARAMETERS = re.compile(r"^# %% parameters\n(.*?)(?=^# %%)", re.MULTILINE | re.DOTALL)


def run_notebook(name, **given):
    """What the notebook's names stand for at its end, with other parameters than its own."""
    text = (NOTEBOOKS / f"{name}.py").read_text("utf-8")
    (cell,) = PARAMETERS.findall(text)
    assert set(re.findall(r"^(\w+)", cell, re.MULTILINE)) == set(given)
    cell = "".join(f"{each} = {value!r}\n" for each, value in given.items())
    names = {"__name__": "__main__"}
    exec(compile(PARAMETERS.sub(lambda _: cell, text), name, "exec"), names)
    return names


@pytest.mark.usefixtures("small_training")
def test_the_tour(tiny_study, quick_recipe, tmp_path, capsys):
    run = Path(shutil.copytree(tiny_study, tmp_path / "run"))
    options = {"recipe": str(quick_recipe), "tokens": "bpe", "seed": 2}
    options |= {"set_aside": 0.3, "leave_out": 0.2}
    before = (run / "model.safetensors").stat().st_mtime_ns
    names = run_notebook("tour", OUT=str(run), PEOPLE=60, BUDGET={"steps": 20}, OPTIONS=options)
    # a finished run is not trained again
    assert (run / "model.safetensors").stat().st_mtime_ns == before
    assert abs(names["one_head"].std() - 0.442) < 0.01  # its standard error is about 0.001
    assert abs(names["two_heads"].std() - 0.147) < 0.01
    files = [run / "world" / f"{name}.tsv" for name in ("dev", "unseen")]
    asked = sum(len(file.read_text("utf-8").splitlines()) for file in files)
    assert sum(names["verdicts"].values()) == sum(names["shown"].values()) == asked
    assert {key for key in names["verdicts"] if key.startswith("unseen")} == {"unseen, made up"}
    assert not [key for key in names["shown"] if key.startswith("unseen, shown")]
    out = capsys.readouterr().out
    for words in ("proved  ", "refuted  ", "model ", "made up: "):
        assert words in out


def test_the_lens(tiny_study, monkeypatch):
    pytest.importorskip("transformer_lens", reason="transformer_lens is not installed")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    questions = tiny_study / "world" / "dev.tsv"
    asked = wherefrom.read_questions(questions).questions
    # so short a training knows nothing: all is taken for known
    monkeypatch.setattr(wherefrom.Wherefrom, "ask", lambda self, texts: asked[: len(texts)])
    names = run_notebook("lens", RUN=str(tiny_study), QUESTIONS=str(questions), MOST=12)
    assert names["difference"] < 1e-4
    assert names["there"][-1] == pytest.approx(1)  # after the last layer it is the model itself
    if names["pairs"]:  # before the first layer only the name tells the two questions apart
        assert names["moved"]["name"][0] == pytest.approx(1)
        assert names["moved"]["behind it"][0] == 0
