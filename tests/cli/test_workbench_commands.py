"""`wherefrom law` and `wherefrom design`: JSON, tables, a plot, sentences and exit codes."""

from __future__ import annotations

import json

import pytest

from wherefrom.attention import simulate
from wherefrom.attention.designs import CONSTRUCTIONS
from wherefrom.cli.workbench import NUMBERS


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
def test_json_has_the_check_values_and_the_trials_beside_them(command, words, expected):
    done = command("law", *words.split(), "--trials", 20_000, "--json")
    assert done.code == 0
    record = json.loads(done.out)
    for key, value in expected.items():
        assert record[key] == pytest.approx(value, rel=1e-3), key
    for key in NUMBERS:
        if record[key] is not None:
            error = record["trials"]["errors"][key]
            assert record["trials"][key] == pytest.approx(record[key], abs=5 * error + 1e-6)
    assert record["agreement"]["agrees"] is True


def test_a_seed_repeats_and_another_does_not(command):
    words = ("law", "one-head", "--trials", "2000", "--json", "--seed")
    outputs = [command(*words, seed).out for seed in "112"]
    assert outputs[0] == outputs[1] != outputs[2]


def test_the_table_says_what_only_trials_know(command):
    words = "law repelling-heads --alpha 0.001 --beta 6 --trials 20000"
    done = command(*words.split())
    assert done.code == 0
    assert all(text in done.out for text in ("trials only", "trials alone", "P(weight < 1/2)"))


def test_disagreement_is_a_failure_of_the_tool(command, monkeypatch):
    monkeypatch.setattr(simulate, "GATE", 1e-9)
    done = command("law", "one-head", "--trials", "2000", "--json")
    assert done.code == 1
    assert "failure of this tool" in done.err
    assert json.loads(done.out)["agreement"]["agrees"] is False


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
        ("law one-head --seed -1", "seed is 0 or more"),
        ("law one-head --n 10000000", "at most 100000"),
        ("law one-head --n 90000 --trials 100000", "too long"),
        ("law one-head --trials 2000 --plot no/such/x.html", "cannot be written"),
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
def test_a_mistake_is_one_sentence_and_exit_2(command, words, sentence):
    done = command(*words.split())
    assert (done.code, done.out) == (2, "")
    assert sentence in done.err
    assert "Traceback" not in done.err


def test_the_plot_is_one_file_that_stands_alone(command, tmp_path):
    path = tmp_path / "law.html"
    done = command("law", "two-heads", "--beta", 6, "--trials", 2000, "--plot", path)
    assert done.code == 0
    assert str(path) in done.err
    html = path.read_text(encoding="utf-8")
    assert html.count('class="drawing"') == 2
    assert 'src="http' not in html
    assert list(tmp_path.iterdir()) == [path]


def test_constructions_are_listed_and_printed_with_proof_beta_and_check(command):
    out = command("design").out
    listed = [line.split()[0] for line in out.splitlines() if not line.startswith(" ")]
    assert listed == list(CONSTRUCTIONS) == list(json.loads(command("design", "--json").out))
    assert max(map(len, out.splitlines())) <= 80
    for name in ("average", "extract", "words", "two-heads"):
        done = command("design", name)
        record = json.loads(command("design", name, "--json").out)
        assert done.code == 0
        beta = [] if record["beta"] is None else [f"beta = {record['beta']:.6g}"]
        parts = [part["statement"] for part in record["assumptions"] + record["checks"]]
        assert all(text in done.out for text in ("Proof", record["formula"], *beta, *parts))
    done = command("design", "average", "--n", "10", "--beta", "0.5", "--json")  # too small
    record = json.loads(done.out)
    assert done.code == 1
    assert record["beta_needed"] == pytest.approx(5.981, abs=5e-4)
    assert record["matrices"]["weights"][0][0] == pytest.approx(0.146, abs=5e-4)
    assert [check["holds"] for check in record["checks"]] == [False]


def test_keys_come_from_a_file(command, tmp_path):
    path = tmp_path / "keys.txt"
    path.write_text("0.5 0.5\n1, 0\n\n0\t1\n", encoding="utf-8")
    record = json.loads(command("design", "hull", "--keys", path, "--json").out)
    assert "0.333333" in record["claim"]
    assert record["matrices"]["most weight of each key"] == pytest.approx([1 / 3, 1, 1])
    words = ("design", "weights", "--keys", path, "--weights", "0.25,0.5,0.25", "--json")
    assert "no query" in json.loads(command(*words).out)["claim"]
    for text, sentence in (
        (b"1 2\n3\n", "one width"),
        (b"1 x\n", "numbers"),
        (b"", "one width"),
        (b"1 " * 600_000, "too large"),
        (b"\xff\xfe1", "numbers"),
    ):
        path.write_bytes(text)
        done = command("design", "copy", "--keys", path)
        assert (done.code, sentence in done.err) == (2, True)
