"""`wherefrom problems` and `wherefrom check` as a user runs them, with their exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from wherefrom.cli import main


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    code = "from wherefrom.cli import main; main()"
    paths = os.pathsep.join(path for path in sys.path if path)
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )


Here = Callable[..., tuple[int, str, str]]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Here:
    """The same entry point without a process of its own: status, stdout, stderr."""

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["wherefrom", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        seen = capsys.readouterr()
        return int(ended.value.code or 0), seen.out, seen.err

    return call


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
def test_the_verdict_is_the_exit_code(arguments: list[str], status: int, verdict: str) -> None:
    done = run("check", *arguments, "--json")
    record = json.loads(done.stdout)
    assert (record["verdict"], done.returncode) == (verdict, status), record["because"]
    assert done.stderr == ""
    for key in ("beta_required", "assumptions", "failure", "counterexample", "derived"):
        assert key in record


def test_what_may_not_be_written_is_one_sentence_with_a_caret() -> None:
    done = run("check", "two-heads", "q1=beta*k_a", "q2=beta*mu_b")
    assert done.returncode == 2
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert lines[0].startswith("wherefrom: column 9: k_a is sampled")
    assert lines[2].index("^") == lines[1].index("k_a")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["check"], "needs a problem and a formula"),
        (["check", "average"], "needs a problem and a formula"),
        (["check", "averge", "q=k_a"], 'Did you mean "average"'),
        (["check", "average", "q=k_a", "--tolerance", "2"], "tolerance"),
        (["check", "average", "q=k_a", "--out", "x"], "belong to --grade"),
        (["check", "--grade", "no-such-file.toml"], "cannot be read"),
        (["check", "average", "--grade", "x.toml"], "takes problems"),
        (["problems", "averge"], 'Did you mean "average"'),
    ],
)
def test_a_mistake_is_a_sentence_and_exit_2(here: Here, arguments: list[str], words: str) -> None:
    status, out, err = here(*arguments)
    assert status == 2
    assert out == ""
    assert words in err
    assert "Traceback" not in err


def test_a_person_gets_the_reason_the_beta_and_the_assumptions(here: Here) -> None:
    status, out, _ = here("check", "average", "q=beta*(k_a+k_b)")
    assert status == 0
    assert out.startswith("proved: for every n")
    for words in ("k_a.q = beta", "5.981", "keys of equal norm", "float32", "drawn keys"):
        assert words in out


def test_a_person_gets_the_counterexample_and_the_exact_chance(here: Here) -> None:
    status, out, _ = here("check", "stretched-average", "q=beta*(mu_a+mu_b)")
    assert status == 1
    for words in ("counterexample", "e = 0.5", "exactly 99.55", "simulated"):
        assert words in out


def test_problems_lists_and_describes(here: Here) -> None:
    every = json.loads(here("problems", "--json")[1])
    assert len(every) == 8
    one = json.loads(here("problems", "two-heads", "--json")[1])
    assert one in every
    told = here("problems", "stretched-average")[1]
    for words in ("sum_others", "for whom", "tolerance", "in symbols"):
        assert words in told
    assert "identity-self-attention" in here("problems")[1]


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


def test_grading(here: Here, tmp_path: Path) -> None:
    answers, out = tmp_path / "answers.toml", tmp_path / "results.json"
    answers.write_text(FILE, encoding="utf-8")
    status, table, echo_err = here("check", "--grade", str(answers))
    assert status == 0
    assert "[/red] 1b" in table  # a cell is text, whatever it looks like
    assert "not writable" in table
    assert "4 of 5 points." in echo_err
    done = run("check", "--grade", str(answers), "--format", "gradescope", "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    record = json.loads(out.read_text(encoding="utf-8"))
    assert [test["score"] for test in record["tests"]] == [4.0, 0.0]
    printed = json.loads(here("check", "--grade", str(answers), "--format", "json")[1])
    assert [item["verdict"] for item in printed] == ["proved", "not writable"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["answers.toml", "results.json"]


def test_a_rubric_has_the_last_word(here: Here, tmp_path: Path) -> None:
    answers, rubric = tmp_path / "answers.toml", tmp_path / "rubric.toml"
    answers.write_text('[[answer]]\nid="1"\nproblem="copy"\npoints=99\nq="beta*k_j"\n')
    rubric.write_text('[[answer]]\nid="1"\nproblem="copy"\npoints=2\n')
    _, out, _ = here("check", "--grade", str(answers), "--rubric", str(rubric), "--format", "json")
    assert json.loads(out)[0]["score"] == 2.0


def test_a_result_that_cannot_be_written_is_a_sentence(here: Here, tmp_path: Path) -> None:
    answers = tmp_path / "answers.toml"
    answers.write_text(FILE, encoding="utf-8")
    out = tmp_path / "nowhere" / "results.json"
    status, _, err = here(
        "check", "--grade", str(answers), "--format", "gradescope", "--out", str(out)
    )
    assert status == 2
    assert "cannot be written" in err


def test_no_torch_for_a_check() -> None:
    code = (
        "import sys; from wherefrom.attention.checker.check import check; "
        "check('copy', ['q=beta*k_j']); print('torch' in sys.modules)"
    )
    paths = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "False"
