"""notebooks/lens.py runs on a tiny study, and what must hold for any model holds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import wherefrom

NOTEBOOK = Path(__file__).parents[1] / "notebooks" / "lens.py"


def test_it_runs_from_top_to_bottom(
    tiny_study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformer_lens", reason="transformer_lens is not installed")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    questions = tiny_study / "world" / "dev.tsv"
    asked = wherefrom.read_questions(questions).questions
    # so short a training knows nothing: all is taken for known
    monkeypatch.setattr(wherefrom.Wherefrom, "ask", lambda self, texts: asked[: len(texts)])
    given = f"RUN, QUESTIONS, MOST = {str(tiny_study)!r}, {str(questions)!r}, 12\n"
    text = re.sub(r"(?ms)^# %% parameters\n.*?(?=^# %%)", lambda _: given, NOTEBOOK.read_text())
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(text, str(NOTEBOOK), "exec"), names)
    assert names["difference"] < 1e-4
    assert names["there"][-1] == pytest.approx(1)  # after the last layer it is the model itself
    if names["pairs"]:  # before the first layer only the name tells the two questions apart
        assert names["moved"]["name"][0] == pytest.approx(1)
        assert names["moved"]["behind it"][0] == 0
