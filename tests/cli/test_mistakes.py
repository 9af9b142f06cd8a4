"""Mistakes at the command line: each is one sentence and exit code 2, and nothing is written."""

from __future__ import annotations

import io
import json
import re
import shlex
import subprocess
import sys

import pytest

# a command with a mistake in it, and words of the sentence that says so
MISTAKES = """
studdy => there is no command "studdy". Did you mean "study"?
study --stepps 3 => --stepps
study {docs} => it got 1 file.
study {docs} {train} {dev} --template {subject}!o => fits no question of
study --variant rotery => Did you mean "rotary"?
study --recipe cours => Did you mean "course"?
study --seed -1 => --seed must be between 0 and
study --steps 0 => --steps must be a positive number
study --steps 3 --epochs 2 => give one of --minutes, --epochs and --steps, not 2.
study --people 3 --quiet => and 3 were
study --set-aside 0.9 => --set-aside
study --leave-out 0.9 => --leave-out
recipes cours => Did you mean "course"?
pretrain lama {docs} => mean "llama"?
pretrain llama {docs} --size big => no size "big"
pretrain perceiver {docs} --size 8x2x2 => at least 3 layers
pretrain llama {none} => none
pretrain llama {train} => line 1
finetune a b c => it got 3 arguments.
finetune {run} {train} --size tiny => --size cannot be changed
finetune {run} {asked} => answer
finetune {run} {train} --template Who? => a template holds {subject} once
evaluate {folder} {dev} => is not a run: it holds no run.json.
evaluate {run} {dev} --out {dev}/x => x
evaluate {run} {dev} --beside {folder} => is not a run: it holds no run.json.
examples {none} => none
examples {docs} --block 4 => block
baseline {train} {asked} => answer
ask {run} => ask takes a question
ask {run} "" => the question is empty
ask {run} {long} => 2,000 characters
ask {run} "Who was Ada Moe?" => is not worded like
ask {run} "Where was {name} born?" => tokens and this model reads
ask {run} "Where was ?! born?" => at least one letter or digit
ask {run} "Where was A born?" --risk 1.5 => the risk must lie between 0 and 1
ask {none} "Where was A born?" => is not a run: it holds no run.json.
ask {run} --file {none} => does not exist
ask {run} - => stdin has no question
judge {run}/twins/scratch => was not made by `wherefrom study`
judge {run} --level 2 => the level of an interval must lie between 0 and 1
judge {run} --resamples 0 => at least one resample
names {run} --people 0 => names of each origin
report => there is no finished run
report {none} => is not a run
report {run} --format pdf => pdf
report {run} --out {run}/run.json => belongs to the run
report {run} --out {run}/no/such/folder/report.html => cannot be written
"""
NEED_OUT = ("study", "pretrain", "finetune", "export", "world")


@pytest.mark.parametrize("line", MISTAKES.strip().splitlines())
def test_a_mistake_is_one_sentence_and_exit_2(
    line, command, tiny_study, small_world, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\n \n"), "utf-8"))
    (tmp_path / "asked.tsv").write_text("Where was Al Bo born?\nWhere was Cy Do born?\n")
    (tmp_path / "folder").mkdir()
    given = {
        "{asked}": tmp_path / "asked.tsv",
        "{dev}": small_world / "dev.tsv",
        "{docs}": small_world / "documents.txt",
        "{folder}": tmp_path / "folder",
        "{none}": tmp_path / "none",
        "{run}": tiny_study,
        "{train}": small_world / "train.tsv",
        "{long}": "x" * 10_000,
        "{name}": "q~" * 500,
    }
    words, sentence = line.split(" => ")
    arguments = shlex.split(words)
    for name, value in given.items():
        arguments = [argument.replace(name, str(value)) for argument in arguments]
    if arguments[0] in NEED_OUT:
        arguments += ["--out", str(tmp_path / "out")]
    budgets = {"--steps", "--minutes", "--epochs", "--stepps"}
    if arguments[0] in NEED_OUT[:3] and not budgets & set(arguments):
        arguments += ["--steps", "1"]  # a mistake that is overlooked shall not train for a day
    ended = command(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("wherefrom: ")
    assert ended.err.count("\n") == 1
    assert sentence in ended.err
    assert ended.err.rstrip().endswith((".", "?", ")"))
    assert not (tmp_path / "out" / "run.json").exists()
    assert arguments[0] != "study" or not (tmp_path / "out").exists()


def run_python(code, *arguments):
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_without_the_file_locks_of_posix_a_training_is_refused_in_a_sentence(tmp_path, small_world):
    """As on Windows, which has no fcntl; what needs no lock still works."""
    code = "import sys; sys.modules['fcntl'] = None; from wherefrom.cli import main; main()"
    out = tmp_path / "out"
    documents = small_world / "documents.txt"
    ended = run_python(code, "pretrain", "vanilla", documents, "--steps", "1", "--out", out)
    assert ended.returncode == 2, ended.stderr
    assert "on Windows, use Wherefrom in WSL" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (out / "run.json").exists()
    assert run_python(code, "recipes").returncode == 0


def test_evaluate_counts_says_all_as_json_and_writes_predictions_in_order(
    command, tiny_study, small_world, tmp_path
):
    run, dev = tiny_study, small_world / "dev.tsv"
    rows = [row.split("\t") for row in dev.read_text("utf-8").splitlines()]
    record = json.loads(command("evaluate", run, dev, "--json").out)
    said = [answer["prediction"] for answer in record["answers"]]
    assert [answer["question"] for answer in record["answers"]] == [row[0] for row in rows]
    assert all(answer["log_probability"] <= 0 for answer in record["answers"])
    assert record["correct"] == sum(a == row[1] for a, row in zip(said, rows, strict=True))
    stated = [row for row in rows if row[1] != "-"]
    assert record["total"] == len(stated)
    ended = command("evaluate", run, dev)
    first, *table = ended.out.splitlines()
    assert re.fullmatch(rf"Correct: {record['correct']} out of {len(stated)}: [\d.]+%", first)
    assert any(line.split()[:1] == ["majority"] for line in table)
    path, out = tmp_path / "asked.tsv", tmp_path / "said.txt"
    path.write_text("".join(f"{row[0]}\n" for row in reversed(rows)), "utf-8")  # no answers
    ended = command("evaluate", run, path)
    assert ended.out.split("\n")[:-1] == said[::-1]
    assert command("evaluate", run, path, "--out", out).out == ""
    assert out.read_text("utf-8") == ended.out
