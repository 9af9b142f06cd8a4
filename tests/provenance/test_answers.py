"""The table of answers: one row for each question and who answers it, and no kill breaks a run."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from wherefrom.corpus.database import Database
from wherefrom.corpus.questions import Question, QuestionSet
from wherefrom.corpus.split import JUDGED, read_subjects
from wherefrom.provenance.answers import read_dev_answers, read_judged, write_dev_answers
from wherefrom.provenance.confidence.fit import load_confidence
from wherefrom.training.record import find_problem, read_record
from wherefrom.training.run_folder import load_run

BORN = "Where was {subject} born?"


@pytest.fixture
def run(tiny_study, tmp_path):
    """A copy that a test may change."""
    return shutil.copytree(tiny_study, tmp_path / "run")


def ask(folder, *names):
    asked = (
        Question(line, BORN.replace("{subject}", name), name, "Rome", BORN)
        for line, name in enumerate(names, start=1)
    )
    return QuestionSet(folder / "dev.tsv", "", (BORN,), tuple(asked))


def test_plain_sql_finds_what_the_model_said_and_why(tiny_study):
    judged = [one for one in read_subjects(tiny_study) if one.role == JUDGED]
    with closing(sqlite3.connect(tiny_study / "run.sqlite")) as database:
        database.row_factory = sqlite3.Row
        rows = database.execute("SELECT * FROM answers WHERE verdict IS NOT NULL").fetchall()
        recall = dict(
            database.execute(
                "SELECT answered_by, sum(is_right) FROM answers WHERE line GROUP BY answered_by"
            )
        )
    assert {row["question"] for row in rows} == {one.question for one in judged}
    assert {row["answered_by"] for row in rows} == {"model"}
    signals = load_confidence(load_run(tiny_study)).signals  # those that have a weight
    for row in rows:
        assert row["is_right"] == (row["answer"] == row["truth"])
        assert all(isinstance(row[signal], float | None) for signal in signals)
        assert row["log_probability"] < 0
    table = {row["name"]: row["correct"] for row in read_record(tiny_study).results}
    table["model"] += table["left-out subjects"]
    assert recall.items() <= table.items()
    assert len(recall) == 5


def test_new_dev_answers_replace_the_old_ones_and_leave_the_verdicts(run):
    judged = read_judged(run)
    first = next(row for row in judged if row["source"] == "dev")
    asked = ask(run, "Zoe Hart", first["subject"], "Zoe Hart")
    said = {"model": ["Rome", "Oslo", "Rome"], "majority": ["Rome"] * 3}
    write_dev_answers(run, asked, said)
    answers = read_dev_answers(run)
    rows = [(name, row) for name, by_question in answers.items() for row in by_question.values()]
    assert len(rows) == 4
    assert {(name, row["subject"], row["answer"]) for name, row in rows} == {
        ("model", "Zoe Hart", "Rome"),
        ("model", first["subject"], "Oslo"),
        ("majority", "Zoe Hart", "Rome"),
        ("majority", first["subject"], "Rome"),
    }
    assert len(read_judged(run)) == len(judged)
    write_dev_answers(run, ask(run), {"model": []})
    assert read_dev_answers(run) == {}
    assert len(read_judged(run)) == len(judged)


KILLED = """
import os, signal, sys
from pathlib import Path
from wherefrom.corpus.questions import Question, QuestionSet
from wherefrom.provenance.answers import write_dev_answers
from wherefrom.training import record

calls = 0

def kill_at(function):
    def called(*arguments, **options):
        global calls
        if calls == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
        calls += 1
        return function(*arguments, **options)
    return called

for name in ("sha256_of", "write_record", "sync_folder"):
    setattr(record, name, kill_at(getattr(record, name)))
record.os.replace = kill_at(os.replace)
asked = QuestionSet(Path("dev.tsv"), "", (), (Question(1, "Who?", "Who", "Ann", "Who?"),))
write_dev_answers(Path(sys.argv[1]), asked, {"model": ["Bo"]}, notes=("new",))
"""


def test_a_kill_at_any_step_leaves_a_run_whose_files_are_its_own(run):
    """run.json has the hashes of the old and of the new database while one replaces the other."""
    before, steps, found = list(read_dev_answers(run)["model"]), 0, []
    while True:
        whole = shutil.copytree(run, run.with_name(f"killed-{steps}"))
        command = [sys.executable, "-c", KILLED, str(whole), str(steps)]
        ended = subprocess.run(command, check=False)
        assert find_problem(whole, "run.sqlite") is None
        found.append(list(read_dev_answers(whole)["model"]))
        if ended.returncode == 0:
            break
        assert ended.returncode == -signal.SIGKILL
        steps += 1
        # the next change goes through, and leaves nothing behind
        write_dev_answers(whole, ask(whole, "Zoe Hart"), {"model": ["Oslo"]})
        assert find_problem(whole, "run.sqlite") is None
        assert read_record(whole).replacing == {}
        assert not list(whole.glob(".run.sqlite*"))
    assert steps >= 5
    assert found[0] == before
    assert found[-1] == ["Who?"]
    assert all(answers in (before, ["Who?"]) for answers in found)


def test_a_database_of_other_columns_keeps_its_answers_when_it_is_replaced(tmp_path):
    file = tmp_path / "run.sqlite"
    Database().save(file)
    row = {"question": "Who?", "answered_by": "model", "template": "", "subject": "", "answer": "A"}
    with Database.open(file) as database:
        database.write_answers([row | {"record": "{}", 'odd "name"': 1.5}])
    with Database(source_sha256="other") as other:
        other.save(file)
        (kept,) = other.answers()
    assert kept['odd "name"'] == 1.5
    assert (kept | row) == kept
