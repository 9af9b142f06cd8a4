"""`wherefrom law` and `wherefrom design`: JSON, tables, a plot, sentences and exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from wherefrom.attention import simulate
from wherefrom.attention.designs import CONSTRUCTIONS
from wherefrom.cli import main

KEYS = ("logit_mean", "logit_sd", "mean", "sd", "p_below_half")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    def call(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["wherefrom", *words])
        with pytest.raises(SystemExit) as stop:
            main()
        return stop.value.code or 0, *capsys.readouterr()

    return call


@pytest.fixture
def law(run: Any) -> Any:
    return lambda *words: run("law", *words)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("one-head --n 8 --beta 10", {"logit_sd": 7.0711, "sd": 0.442}),
        ("two-heads --n 100 --beta 10", {"logit_mean": 5.4049, "p_below_half": 0.2223}),
        ("two-heads --n 2 --beta 2", {"mean": 0.8160602794142788}),
        ("avoiding-head --n 8 --beta 10 --alpha 1e-6", {"sd": 0.00866, "mean": 0.49993}),
        ("repelling-heads --n 2 --beta 10 --t 1", {"p_below_half": 0.00234}),
    ],
)
def test_json_has_the_check_values_and_the_trials_beside_them(
    law: Any, words: str, expected: dict[str, float]
) -> None:
    code, out, _ = law(*words.split(), "--json")
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
    words = "repelling-heads --alpha 0.001 --beta 6 --trials 20000"
    code, out, _ = law(*words.split())
    assert code == 0
    assert "trials only" in out
    assert "trials alone" in out
    assert "P(weight < 1/2)" in out


def test_disagreement_is_a_failure_of_the_tool(law: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulate, "GATE", 1e-9)
    code, out, err = law("one-head", "--trials", "2000", "--json")
    assert code == 1
    assert "failure of this tool" in err
    assert json.loads(out)["agreement"]["agrees"] is False


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("law one-haed", 'Did you mean "one-head"'),
        ("law one-head --n 1", "at least 2 keys"),
        ("law one-head --d 3", "width of at least 8"),
        ("law one-head --alpha -1", "alpha is a variance"),
        ("law one-head --beta nan", "beta must be"),
        ("law one-head --beta 1e9", "too wide"),
        ("law one-head --beta 1e4 --alpha 0.1", "up to 1000"),
        ("law one-head --trials 999", "trials must be between"),
        ("law one-head --trials 1000000000", "trials must be between"),
        ("law one-head --seed -1", "seed is 0 or more"),
        ("law one-head --n 10000000", "at most 100000"),
        ("law one-head --n 90000 --trials 100000", "too long"),
        ("law repelling-heads --heads 3", "has 2 heads"),
        ("design avreage", 'Did you mean "average"'),
        ("design average --n 1", "between 2 and"),
        ("design average --tolerance 2", "tolerance is between"),
        ("design average --keys no/such/file", "cannot be read"),
        ("design extract --beta 3", "takes no beta"),
        ("design copy --weights 0.5,0.5", "takes no weights"),
        ("design weights --weights half", "takes numbers"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_2(run: Any, words: str, sentence: str) -> None:
    code, out, err = run(*words.split())
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
    assert html.count('class="drawing"') == 2
    assert 'src="http' not in html
    assert list(tmp_path.iterdir()) == [path]
    code, _, err = law("one-head", "--trials", "2000", "--plot", str(tmp_path / "no" / "x.html"))
    assert code == 2
    assert "cannot be written" in err


def test_constructions_are_listed_and_printed_with_proof_beta_and_check(run: Any) -> None:
    code, out, _ = run("design")
    assert code == 0
    listed = [line.split()[0] for line in out.splitlines() if not line.startswith(" ")]
    assert listed == list(CONSTRUCTIONS)
    assert max(map(len, out.splitlines())) <= 80
    assert list(json.loads(run("design", "--json")[1])) == list(CONSTRUCTIONS)
    for name in ("average", "extract", "words", "two-heads"):
        code, out, _ = run("design", name)
        record = json.loads(run("design", name, "--json")[1])
        assert code == 0
        beta = [] if record["beta"] is None else [f"beta = {record['beta']:.6g}"]
        parts = [part["statement"] for part in record["assumptions"] + record["checks"]]
        assert all(text in out for text in ("Proof", record["formula"], *beta, *parts))


def test_a_factor_that_is_too_small_fails_the_check_with_exit_1(run: Any) -> None:
    code, out, _ = run("design", "average", "--n", "10", "--beta", "0.5", "--json")
    record = json.loads(out)
    assert code == 1
    assert record["beta_needed"] == pytest.approx(5.981, abs=5e-4)
    assert record["matrices"]["weights"][0][0] == pytest.approx(0.146, abs=5e-4)
    assert [check["holds"] for check in record["checks"]] == [False]


def test_keys_come_from_a_file(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "keys.txt"
    path.write_text("0.5 0.5\n1, 0\n\n0\t1\n", encoding="utf-8")
    code, out, _ = run("design", "hull", "--keys", str(path), "--json")
    record = json.loads(out)
    assert code == 0
    assert "0.333333" in record["claim"]
    assert record["matrices"]["most weight of each key"] == pytest.approx([1 / 3, 1, 1])
    words = ("design", "weights", "--keys", str(path), "--weights")
    reached = json.loads(run(*words, "0.25,0.5,0.25", "--json")[1])
    assert "no query" in reached["claim"]
    for text, sentence in (
        ("1 2\n3\n", "one width"),
        ("1 x\n", "numbers"),
        ("", "one width"),
        ("1 " * 600_000, "too large"),
    ):
        path.write_text(text, encoding="utf-8")
        code, _, err = run("design", "copy", "--keys", str(path))
        assert code == 2
        assert sentence in err
    path.write_bytes(b"\xff\xfe1")
    assert run("design", "copy", "--keys", str(path))[0] == 2
