"""`wherefrom law` as a user meets it: JSON, a table, a plot, sentences and exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from wherefrom.attention import agreement
from wherefrom.cli import main

KEYS = ("logit_mean", "logit_sd", "mean", "sd", "p_below_half")


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple:
    monkeypatch.setattr("sys.argv", ["wherefrom", "law", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    out, err = capsys.readouterr()
    return stop.value.code or 0, out, err


@pytest.fixture
def law(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    return lambda *words: run(capsys, monkeypatch, *words)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("one-head", "--n", "8", "--beta", "10"), {"logit_sd": 7.0711, "sd": 0.442}),
        (
            ("two-heads", "--n", "100", "--beta", "10"),
            {"logit_mean": 5.4049, "logit_sd": 7.0711, "p_below_half": 0.2223},
        ),
        (("two-heads", "--n", "2", "--beta", "2"), {"mean": 0.8160602794142788}),
        (
            ("avoiding-head", "--n", "8", "--beta", "10", "--alpha", "1e-6"),
            {"sd": 0.00866, "mean": 0.49993},
        ),
        (("repelling-heads", "--n", "2", "--beta", "10", "--t", "1"), {"p_below_half": 0.00234}),
    ],
)
def test_json_has_the_check_values_and_the_trials_beside_them(
    law: Any, words: tuple[str, ...], expected: dict[str, float]
) -> None:
    code, out, _ = law(*words, "--json")
    assert code == 0
    record = json.loads(out)
    for key, value in expected.items():
        assert record[key] == pytest.approx(value, rel=1e-3), key
    assert set(KEYS) <= set(record) & set(record["trials"])
    assert set(record["trials"]["errors"]) == set(KEYS)
    for key in KEYS:
        if record[key] is not None:
            error = record["trials"]["errors"][key]
            assert record["trials"][key] == pytest.approx(record[key], abs=5 * error + 1e-6)
    assert record["agreement"]["agrees"] is True


def test_a_seed_repeats_and_another_does_not(law: Any) -> None:
    outputs = [law("one-head", "--trials", "2000", "--seed", s, "--json")[1] for s in "112"]
    assert outputs[0] == outputs[1] != outputs[2]


def test_the_table_says_what_only_trials_know(law: Any) -> None:
    code, out, _ = law(
        "repelling-heads", "--alpha", "0.001", "--beta", "6", "--trials", "20000"
    )  # fmt: skip
    assert code == 0
    assert "trials only" in out
    assert "trials alone" in out
    assert "P(weight < 1/2)" in out


def test_one_head_twice_has_the_spread_of_one(law: Any) -> None:
    records = [
        json.loads(law("one-head", "--n", "5", "--beta", "5", "--heads", h, "--json")[1])
        for h in "12"
    ]
    spreads = [record["average"]["sd"] for record in records]
    assert spreads[0] == pytest.approx(spreads[1], rel=1e-12)


def test_disagreement_is_a_failure_of_the_tool(law: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreement, "GATE", 1e-9)
    code, out, err = law("one-head", "--trials", "2000", "--json")
    assert code == 1
    assert "failure of this tool" in err
    assert json.loads(out)["agreement"]["agrees"] is False


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("one-haed",), 'Did you mean "one-head"'),
        (("one-head", "--n", "1"), "at least 2 keys"),
        (("one-head", "--d", "3"), "width of at least 8"),
        (("one-head", "--alpha", "-1"), "alpha is a variance"),
        (("one-head", "--beta", "nan"), "beta must be"),
        (("one-head", "--beta", "1e9"), "too wide"),
        (("one-head", "--trials", "10"), "trials must be between"),
        (("one-head", "--seed", "-1"), "seed is 0 or more"),
        (("one-head", "--n", "10000000"), "at most 100000"),
        (("one-head", "--n", "90000", "--trials", "100000"), "too long"),
        (("repelling-heads", "--heads", "3"), "has 2 heads"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_2(
    law: Any, words: tuple[str, ...], sentence: str
) -> None:
    code, out, err = law(*words)
    assert code == 2
    assert sentence in err
    assert out == ""
    assert "Traceback" not in err


def test_the_plot_is_one_file_that_stands_alone(law: Any, tmp_path: Path) -> None:
    path = tmp_path / "law.html"
    code, _, err = law("two-heads", "--beta", "6", "--trials", "2000", "--plot", str(path))
    assert code == 0
    assert str(path) in err
    html = path.read_text(encoding="utf-8")
    assert html.count('class="plotly-graph-div"') == 5
    assert 'src="http' not in html
    assert list(tmp_path.iterdir()) == [path]
    code, _, err = law("one-head", "--trials", "2000", "--plot", str(tmp_path / "no" / "x.html"))
    assert code == 2
    assert "cannot be written" in err
