"""`wherefrom ask`, `attention`, `judge` and `names`: from a question to a verdict and its worth."""

from __future__ import annotations

import io
import json
import re
import shutil
import sys

import pytest

from wherefrom.cli import ask as ask_module
from wherefrom.corpus.questions import read_questions
from wherefrom.provenance.answers import read_judged


@pytest.fixture
def run(tiny_study):
    return tiny_study


@pytest.fixture
def dev(run):
    """Questions about people whose documents the run has read."""
    unread = json.loads((run / "run.json").read_text("utf-8"))["left_out"]
    questions = read_questions(run / "world" / "dev.tsv").questions
    return [question for question in questions if question.subject not in unread]


def pipe(monkeypatch, raw):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw), "utf-8"))


def test_a_study_can_be_asked(command, run, dev):
    ended = command("ask", run, dev[0].text)
    assert (ended.code, ended.err) == (0, "")
    first, *rest = ended.out.splitlines()
    assert re.search(r"^I don't know\. |^.+\. Stated by line \d+", first)
    line = rest[0].split(maxsplit=2)
    assert line[0] == "line"
    assert line[2].startswith(dev[0].subject)
    documents = (run / "world" / "documents.txt").read_text("utf-8").splitlines()
    assert documents[int(line[1]) - 1].startswith(f"{dev[0].subject}. ")


def test_json_is_a_list_of_records_and_one_that_cannot_be_asked_does_not_stop_the_others(
    command, run, dev
):
    typed, nobody = f"  {dev[0].text.upper().rstrip('?')} ", "Where was 😀 born?"
    asked = ("ask", run, typed, "B?", nobody)
    ended = command(*asked)
    assert ended.code == 2
    assert ended.err.startswith('wherefrom: question 2: "B?" is not worded like')
    assert len(re.findall(r"I don't know\.|likely to be right", ended.out)) == 2
    records = json.loads(command(*asked, "--json").out)
    assert [record["question"] for record in records] == [dev[0].text, "B?", nobody]
    assert [key for key in records[1] if key not in records[0]] == ["error"]
    made_up = {"verdict": "made up", "shown": "I don't know", "evidence": []}
    assert made_up.items() <= records[2].items()
    (alone,) = json.loads(command("ask", run, nobody, "--always-answer", "--json").out)
    assert alone["shown"] == alone["answer"] == records[2]["answer"]


def test_questions_come_from_a_file_or_from_stdin(command, run, dev, tmp_path, monkeypatch):
    file = tmp_path / "asked.tsv"
    file.write_text(f"{dev[0].text}\tRome\nWho?\tRome\t{dev[1].subject}\n", "utf-8")
    pipe(monkeypatch, f"\ufeff{dev[2].text}\r\n\n{dev[3].text}\tx\n".encode())
    ended = command("ask", run, dev[4].text, "-", "--file", file, "--json")
    assert ended.code == 0
    subjects = [record["subject"] for record in json.loads(ended.out)]
    assert subjects == [dev[at].subject for at in (4, 2, 3, 0, 1)]


def test_stdin_that_is_no_text_or_too_much_is_one_sentence(command, run, monkeypatch):
    for most, raw, said in (
        (1 << 20, b"Where was A born?\n\xff\n", "stdin, line 2: this is not UTF-8"),
        (10, b"Where was A born?\n", "more than 10 bytes"),
    ):
        monkeypatch.setattr(ask_module, "MAX_STDIN_BYTES", most)
        pipe(monkeypatch, raw)
        assert said in command("ask", run, "-").err


NAMED = "Where was Mia Ott born?"


def test_every_head_is_shown_as_json_as_a_table_and_as_one_page(command, run, tmp_path):
    page = tmp_path / "maps.html"
    ended = command("attention", run, NAMED, "--json", "--plot", page)
    record = json.loads(ended.out)
    assert (ended.code, record["subject"]) == (0, "Mia Ott")
    assert "".join(record["tokens"][i] for i in record["name"]).strip() == "Mia Ott"
    assert len(record["heads"]) == 3 * 2
    for head in record["heads"]:
        assert sum(head["weights"]) == pytest.approx(1, abs=1e-4)
        assert 0 <= head["mass_on_name"] <= 1
    table = command("attention", run, NAMED).out
    text = page.read_text(encoding="utf-8")
    for word, place in (("on the name", table), ("2.1", table), ("Weight on the name", text)):
        assert word in place
    assert "Layer 2" in text
    assert "src=" not in text.split("<body>")[0]


def test_judge_and_names_print_and_write_what_they_find(command, run, tmp_path):
    studied = shutil.copytree(run, tmp_path / "run")
    before = (studied / "origins.json").read_bytes()
    shown = (
        "internal",
        "checked",
        "always answer",
        "greedy likelihood",
        "name support",
        "AUROC",
        "ECE",
        "I don't know",
        "verdict",
        "made up",
    )
    told = ("Asked about", "that it never saw", "commonest answer")
    for words, file, said in (
        (("judge", studied, "--resamples", 20, "--risk", 0.2, "--level", 0.9), "judgement", shown),
        (("names", studied, "--people", 1), "names", told),
    ):
        ended = command(*words)
        assert ended.code == 0, ended.err
        assert [word for word in said if word not in ended.out] == []
        record = json.loads((studied / f"{file}.json").read_text("utf-8"))
        if file == "judgement":
            assert (record["risk"], record["level"]) == (0.2, 0.9)
    assert "judgement" in json.loads((studied / "run.json").read_text("utf-8"))
    assert read_judged(studied)
    assert (studied / "origins.json").read_bytes() == before  # of the study
