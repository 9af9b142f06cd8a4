"""Commands of the workbench as a user runs them: JSON, tables, a plot, sentences, exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from wherefrom.attention import simulate
from wherefrom.attention.designs import CONSTRUCTIONS
from wherefrom.cli.workbench import NUMBERS


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("one-head --n 8 --beta 10", {"logit_sd": 7.0711, "sd": 0.442}),
        ("two-heads --n 100 --beta 10", {"logit_mean": 5.4049, "p_below_half": 0.2223}),
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
    assert "this is a bug" in done.err
    assert json.loads(done.out)["agreement"]["agrees"] is False


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("law one-haed", 'Did you mean "one-head"'),
        ("law one-head --d 3", "width of at least 8"),
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
        ("design average --keys no/such/file", "cannot be read"),
        ("design copy --weights 0.5,0.5", "takes no weights"),
        ("design weights --weights half", "takes numbers"),
        ("check average", "needs a problem and a formula"),
        ("check averge q=k_a", 'Did you mean "average"'),
        ("check average q=k_a --tolerance 2", "tolerance"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_2(command, words, sentence):
    done = command(*words.split())
    assert (done.code, done.out) == (2, "")
    assert sentence in done.err
    assert done.err.count("\n") == 1


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
    for name in ("average", "extract", "words"):
        done = command("design", name)
        record = json.loads(command("design", name, "--json").out)
        beta = [] if record["beta"] is None else [f"beta = {record['beta']:.6g}"]
        parts = [part["statement"] for part in record["assumptions"] + record["checks"]]
        assert all(text in done.out for text in ("Proof", record["formula"], *beta, *parts))
    assert command("design", "average", "--n", "10", "--beta", "0.5").code == 1  # too small


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


# ---- problems and checks


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["average", "q=beta*(k_a+k_b)"], 0, "k_a.q = beta|5.981|keys of equal norm|needs"),
        (["copy", "q=beta*k_j"], 0, "may need|no counterexample in"),
        (["stretched-average", "q=t*(mu_a+mu_b)"], 1, "counterexample|e = 0.5|exactly 99.55"),
        (["two-heads", "q1=beta*mu_a", "q2=beta*mu_b"], 0, "7.86% set aside|note"),
        (["average", r"$q=t(k_a+k_b),\ t \gg 0$"], 0, "read as|q = beta*(k_a + k_b)"),
        (["average", "q=log(log(beta+3)+1)*(k_a+k_b)*2"], 3, "inconclusive"),
    ],
)
def test_a_person_gets_the_reason_and_a_program_the_exit_code(command, arguments, status, words):
    done = command("check", *arguments)
    assert done.code == status
    assert all(word in done.out for word in words.split("|"))


def test_problems_lists_and_describes_and_solutions_can_be_hidden(command):
    every = json.loads(command("problems", "--json").out)
    assert len(every) == 15
    assert json.loads(command("problems", "two-heads", "--json").out) in every
    told = command("problems", "stretched-average").out
    assert all(
        words in told for words in ("sum_others", "must hold for", "tolerance", "in symbols")
    )
    for words in (["problems"], ["problems", "copy"], ["problems", "copy", "--json"]):
        assert "beta*k_j" in command(*words).out
        assert "beta*k_j" not in command(*words, "--no-solutions").out


@pytest.mark.parametrize(
    "words", [["check", "two-heads", "q1=beta*mu_a", "q2=beta*mu_b"], ["problems"]]
)
def test_a_check_imports_no_heavy_library(words):
    """Each costs more to import than a check takes."""
    code = f"import sys; sys.argv = {['wherefrom', *words]}; from wherefrom.cli import main\n"
    code += "try: main()\nexcept SystemExit: pass\n"
    code += "heavy = {'torch', 'scipy', 'sympy', 'pandas', 'plotly', 'transformers', 'fastapi'}\n"
    code += "print('imported', heavy & set(sys.modules))"
    paths = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run([sys.executable, "-c", code], env=paths, capture_output=True, check=True)
    assert done.stdout.splitlines()[-1] == b"imported set()"
