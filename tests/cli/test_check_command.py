"""`wherefrom problems` and `wherefrom check` as a user runs them, with their exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("arguments", "status", "verdict"),
    [
        (["average", "q=beta*(k_a+k_b)"], 0, "proved"),
        (["average", "q=exp(beta)*(k_a+k_b)"], 0, "holds"),
        (["stretched-average", "q=beta*(mu_a+mu_b)"], 1, "refuted"),
        (["average", "q=log(log(beta+3)+1)*(k_a+k_b)*2"], 3, "inconclusive"),
        (["extract", "M=A.T"], 1, "refuted"),
        (["two-heads", "q1=beta*mu_a", "q2=beta*mu_b", "--tolerance", "0.05"], 0, "proved"),
    ],
)
def test_the_verdict_is_the_exit_code(command, arguments, status, verdict):
    done = command("check", *arguments, "--json")
    record = json.loads(done.out)
    assert (record["verdict"], done.code) == (verdict, status), record["because"]
    assert done.err == ""
    for key in ("beta_required", "assumptions", "failure", "counterexample", "derived"):
        assert key in record


def test_what_may_not_be_written_is_one_sentence_with_a_caret(command):
    done = command("check", "two-heads", "q1=beta*k_a", "q2=beta*mu_b")
    assert (done.code, done.out) == (2, "")
    lines = done.err.splitlines()
    assert lines[0].startswith("wherefrom: column 9: k_a is sampled")
    assert lines[2].index("^") == lines[1].index("k_a")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["check", "average"], "needs a problem and a formula"),
        (["check", "averge", "q=k_a"], 'Did you mean "average"'),
        (["check", "average", "q=k_a", "--tolerance", "2"], "tolerance"),
        (["check", "average", "q=k_a", "--out", "x"], "belong to --grade"),
        (["check", "--grade", "no-such-file.toml"], "cannot be read"),
        (["check", "average", "--grade", "x.toml"], "takes problems"),
        (["problems", "averge"], 'Did you mean "average"'),
    ],
)
def test_a_mistake_is_a_sentence_and_exit_2(command, arguments, words):
    done = command(*arguments)
    assert (done.code, done.out) == (2, "")
    assert words in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["average", "q=beta*(k_a+k_b)"],
            "k_a.q = beta|5.981|keys of equal norm|random|needs",
        ),
        (["copy", "q=beta*k_j"], "may need|no counterexample in"),
        (["stretched-average", "q=t*(mu_a+mu_b)"], "counterexample|e = 0.5|exactly 99.55|simul"),
        (["two-heads", "q1=beta*mu_a", "q2=beta*mu_b"], "7.86% set aside|note"),
        (["average", r"$q=t(k_a+k_b),\ t \gg 0$"], "read as|q = beta*(k_a + k_b)"),
    ],
)
def test_a_person_gets_the_reason_and_what_was_measured(command, arguments, words):
    told = command("check", *arguments).out
    assert told.split(":")[0] in ("proved", "refuted")
    assert all(word in told for word in words.split("|"))


def test_problems_lists_and_describes_and_solutions_can_be_hidden(command):
    every = json.loads(command("problems", "--json").out)
    assert len(every) == 15
    assert json.loads(command("problems", "two-heads", "--json").out) in every
    told = command("problems", "stretched-average").out
    assert all(words in told for words in ("sum_others", "for whom", "tolerance", "in symbols"))
    for words in (["problems"], ["problems", "copy"], ["problems", "copy", "--json"]):
        assert "beta*k_j" in command(*words).out
        assert "beta*k_j" not in command(*words, "--no-solutions").out


FILE = """
[[answer]]
id = "[/red] 1b"
problem = "average"
points = 4
q = "beta*(k_a+k_b)"
[[answer]]
id = "1a"
problem = "extract"
M = "__import__('os')"
"""


def test_grading(command, tmp_path):
    answers, out = tmp_path / "answers.toml", tmp_path / "results.json"
    answers.write_text(FILE, encoding="utf-8")
    done = command("check", "--grade", answers)
    assert done.code == 0
    assert "[/red] 1b" in done.out  # a cell is text, whatever it looks like
    assert "not writable" in done.out
    assert "4 of 5 points." in done.err
    done = command("check", "--grade", answers, "--format", "gradescope", "--out", out)
    assert (done.code, done.out) == (0, "")
    record = json.loads(out.read_text(encoding="utf-8"))
    assert [test["score"] for test in record["tests"]] == [4.0, 0.0]
    printed = json.loads(command("check", "--grade", answers, "--format", "json").out)
    assert [item["verdict"] for item in printed] == ["proved", "not writable"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["answers.toml", "results.json"]


def test_a_rubric_has_the_last_word_over_a_folder_of_submissions(command, tmp_path):
    rubric, handed_in, out = tmp_path / "rubric.toml", tmp_path / "in", tmp_path / "out"
    rubric.write_text('[[answer]]\nid="1"\nproblem="copy"\npoints=2\n')
    handed_in.mkdir()
    (handed_in / "ann.toml").write_text(
        '[[answer]]\nid="1"\npoints=99\nanswer="$q = \\beta k_j$"\n'
    )
    (handed_in / "bob.toml").write_text('[[answer]]\nid="1"\nanswer="q = k_j\n')
    grading = ["check", "--grade", handed_in, "--rubric", rubric, "--format"]
    assert command(*grading, "gradescope", "--out", out).code == 0
    assert sorted(path.name for path in out.iterdir()) == ["ann.json", "bob.json"]
    ann, bob = (json.loads((out / f"{who}.json").read_text("utf-8")) for who in ("ann", "bob"))
    assert (ann["tests"][0]["score"], bob["tests"][0]["score"]) == (2.0, 0.0)
    assert "read as: q = beta*k_j" in ann["tests"][0]["output"]
    assert "ann" not in json.dumps(bob)  # nobody sees another's answers
    assert "not valid TOML" in bob["output"]
    assert command(*grading, "csv").out.splitlines()[1].startswith("ann,2,2,2,,")
    assert "name a folder" in command(*grading, "gradescope").err
    assert command(*grading, "otter", "--out", tmp_path / "tests").code == 0
    assert (tmp_path / "tests" / "1.py").exists()
    table = tmp_path / "grades.tsv"
    assert command(*grading, "table", "--out", table).code == 0
    assert table.read_text("utf-8").splitlines()[1].split("\t")[3:5] == ["proved", "2/2"]
    done = command(*grading, "csv", "--out", tmp_path / "nowhere" / "grades.csv")
    assert (done.code, "cannot be written" in done.err) == (2, True)


def test_a_check_needs_neither_torch_nor_scipy():
    """Each costs more to import than a check takes."""
    code = "import sys; from wherefrom.attention.checker import check; "
    code += "check('two-heads', ['q1=beta*mu_a', 'q2=beta*mu_b']); "
    code += "print({'torch', 'scipy', 'sympy'} & set(sys.modules))"
    paths = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run([sys.executable, "-c", code], env=paths, capture_output=True, check=True)
    assert done.stdout.strip() == b"set()"
