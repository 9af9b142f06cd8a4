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


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join(path for path in sys.path if path)
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return python("from wherefrom.cli import main; main()", *arguments)


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


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["average", "q=beta*(k_a+k_b)"], 0, "k_a.q = beta|5.981|keys of equal norm|drawn keys"),
        (["average", "q=beta*(k_a+k_b)"], 0, "needs|another one between"),
        (["copy", "q=beta*k_j"], 0, "may need|not refuted by"),
        (["stretched-average", "q=t*(mu_a+mu_b)"], 1, "counterexample|e = 0.5|exactly 99.55|simul"),
        (["two-heads", "q1=beta*mu_a", "q2=beta*mu_b"], 0, "7.86% set aside|note"),
    ],
)
def test_a_person_gets_the_reason_and_what_was_measured(
    here: Here, arguments: list[str], status: int, words: str
) -> None:
    code, out, _ = here("check", *arguments)
    assert code == status
    assert out.split(":")[0] in ("proved", "refuted")
    assert all(word in out for word in words.split("|"))


def test_problems_lists_and_describes(here: Here) -> None:
    every = json.loads(here("problems", "--json")[1])
    assert len(every) == 15
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
    grading = ["check", "--grade", str(answers), "--rubric", str(rubric)]
    assert json.loads(here(*grading, "--format", "json")[1])[0]["score"] == 2.0
    table = tmp_path / "grades.tsv"
    here(*grading, "--out", str(table))
    assert table.read_text("utf-8").splitlines()[1].split("\t")[:5] == [
        "",
        "1",
        "copy",
        "proved",
        "2/2",
    ]
    status, _, err = here(*grading, "--out", str(tmp_path / "nowhere" / "results.json"))
    assert (status, "cannot be written" in err) == (2, True)


def test_a_check_needs_neither_torch_nor_scipy() -> None:
    """Each costs more to import than a check takes."""
    code = "import sys; from wherefrom.attention.checker.check import check; "
    code += "check('two-heads', ['q1=beta*mu_a', 'q2=beta*mu_b']); "
    code += "print({'torch', 'scipy', 'sympy'} & set(sys.modules))"
    done = python(code)
    assert done.stdout.strip() == "set()", done.stderr


def test_a_folder_of_submissions(here: Here, tmp_path: Path) -> None:
    rubric, handed_in, out = tmp_path / "rubric.toml", tmp_path / "in", tmp_path / "out"
    rubric.write_text('[[answer]]\nid="1"\nproblem="copy"\npoints=2\n')
    handed_in.mkdir()
    (handed_in / "ann.toml").write_text('[[answer]]\nid="1"\nanswer="$q = \\beta k_j$"\n')
    (handed_in / "bob.toml").write_text('[[answer]]\nid="1"\nanswer="q = k_j\n')
    grading = ["check", "--grade", str(handed_in), "--rubric", str(rubric), "--format"]
    assert here(*grading, "gradescope", "--out", str(out))[0] == 0
    assert sorted(path.name for path in out.iterdir()) == ["ann.json", "bob.json"]
    ann, bob = (json.loads((out / f"{who}.json").read_text("utf-8")) for who in ("ann", "bob"))
    assert (ann["tests"][0]["score"], bob["tests"][0]["score"]) == (2.0, 0.0)
    assert "read as: q = beta*k_j" in ann["tests"][0]["output"]
    assert "ann" not in json.dumps(bob)  # nobody sees another's answers
    assert "not valid TOML" in bob["output"]
    assert here(*grading, "csv")[1].splitlines()[1] == "ann,2,2,2,,"
    assert "name a folder" in here(*grading, "gradescope")[2]
    assert here(*grading, "otter", "--out", str(tmp_path / "tests"))[0] == 0
    assert (tmp_path / "tests" / "1.py").exists()


def test_what_was_understood_is_echoed_and_solutions_can_be_hidden(here: Here) -> None:
    told = here("check", "average", r"$q=t(k_a+k_b),\ t \gg 0$")[1]
    assert "read as" in told
    assert "q = beta*(k_a + k_b)" in told
    for words in (["problems"], ["problems", "copy"], ["problems", "copy", "--json"]):
        assert "beta*k_j" in here(*words)[1]
        assert "beta*k_j" not in here(*words, "--no-solutions")[1]
