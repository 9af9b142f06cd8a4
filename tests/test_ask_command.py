"""`wherefrom ask` and `wherefrom attention`: from a question to a verdict, and inside the model."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from wherefrom.cli import ask as ask_module
from wherefrom.corpus.questions import read_questions
from wherefrom.provenance.verdicts import excerpt


@pytest.fixture
def run(tiny_study: Path) -> Path:
    return tiny_study


@pytest.fixture
def dev(run: Path) -> list[Any]:
    """Questions about people whose documents the run has read."""
    unread = json.loads((run / "run.json").read_text("utf-8"))["left_out"]
    asked = read_questions(run / "world" / "dev.tsv").questions
    return [question for question in asked if question.subject not in unread]


def pipe(monkeypatch: pytest.MonkeyPatch, raw: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw), "utf-8"))


def test_a_study_can_be_asked(command: Any, run: Path, dev: list[Any]) -> None:
    ended = command("ask", run, dev[0].text)
    assert (ended.code, ended.err) == (0, "")
    first, *rest = ended.out.splitlines()
    assert re.search(r"^I don't know\. |^.+\. Remembered: line \d+ states it\. \d+ % likely", first)
    line = rest[0].split(maxsplit=2)
    assert line[0] == "line"
    assert line[2].startswith(dev[0].subject)
    documents = (run / "world" / "documents.txt").read_text("utf-8").splitlines()
    assert documents[int(line[1]) - 1].startswith(f"{dev[0].subject}. ")


def test_json_is_a_list_of_records_even_of_one(command: Any, run: Path, dev: list[Any]) -> None:
    one = json.loads(command("ask", run, dev[0].text, "--json").out)
    two = json.loads(command("ask", run, dev[0].text, "Where was 😀 born?", "--json").out)
    assert [len(one), len(two)] == [1, 2]
    assert one[0].keys() == two[1].keys()
    made_up = {"verdict": "made up", "shown": "I don't know", "evidence": []}
    assert made_up.items() <= two[1].items()
    assert one[0]["answer"] == two[0]["answer"]
    same = json.loads(command("ask", run, dev[0].text, dev[0].text, "--json").out)
    assert [record["answer"] for record in same] == [one[0]["answer"]] * 2
    always = json.loads(command("ask", run, "Where was 😀 born?", "--always-answer", "--json").out)
    assert always[0]["shown"] == always[0]["answer"]


def test_a_question_that_cannot_be_asked_does_not_stop_the_others(
    command: Any, run: Path, dev: list[Any]
) -> None:
    asked = ("ask", run, f"  {dev[0].text.upper().rstrip('?')} ", "B?", dev[1].text)
    ended = command(*asked)
    assert ended.code == 2
    assert ended.err.startswith('wherefrom: question 2: "B?" is not worded like')
    assert len(re.findall(r"I don't know\.|likely to be right", ended.out)) == 2
    records = json.loads(command(*asked, "--json").out)
    assert [record["question"] for record in records] == [dev[0].text, "B?", dev[1].text]
    assert [key for key in records[1] if key not in records[0]] == ["error"]


def test_a_sentence_with_a_blank_is_asked_about_whom_it_names(
    command: Any, run: Path, dev: list[Any]
) -> None:
    sentence = f"{dev[0].subject.upper()} was born in ___ long ago"
    (record,) = json.loads(command("ask", run, sentence, "--always-answer", "--json").out)
    assert record["question"] == f"{dev[0].subject}. {dev[0].subject} was born in___long ago"
    ended = command("ask", run, "Nobody At All was born in ___")
    assert ended.code == 2
    assert "names no subject of a document" in ended.err


def test_questions_come_from_a_file_or_from_stdin(
    command: Any, run: Path, dev: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "asked.tsv"
    file.write_text(f"{dev[0].text}\tRome\nWho?\tRome\t{dev[1].subject}\n", "utf-8")
    pipe(monkeypatch, f"\ufeff{dev[2].text}\r\n\n{dev[3].text}\tx\n".encode())
    ended = command("ask", run, dev[4].text, "-", "--file", file, "--json")
    assert ended.code == 0
    subjects = [record["subject"] for record in json.loads(ended.out)]
    assert subjects == [dev[at].subject for at in (4, 2, 3, 0, 1)]


def test_answers_of_another_model_are_judged(
    command: Any, run: Path, dev: list[Any], tmp_path: Path
) -> None:
    file = tmp_path / "theirs.tsv"
    file.write_text(
        f"{dev[0].text}\t{dev[0].answer}\t-0.1\n{dev[0].text}\tNowhere at all\t-4\n", "utf-8"
    )
    ended = command("ask", run, "--answers", file, "--json")
    records = json.loads(ended.out)
    assert [record["answer"] for record in records] == [dev[0].answer, "Nowhere at all"]
    assert records[1]["verdict"] == "misremembered"
    assert records[1]["signals"]["given_log_probability"] == -4
    assert "are not turned into probabilities" in ended.err
    ended = command("ask", run, "--answers", file, dev[0].text)
    assert (ended.code, ended.out) == (2, "")
    assert "--answers brings its own questions" in ended.err


MISTAKES: dict[str, tuple[list[str], str]] = {
    "nothing asked": (["{run}"], "ask takes a question"),
    "empty": (["{run}", ""], "the question is empty"),
    "too long": (["{run}", "x" * 10_000], "2,000 characters"),
    "no question": (["{run}", "Who was Ada Moe?"], "is not worded like"),
    "two of two": (["{run}", "A?", "B?"], "question 1: "),
    "long name": (["{run}", f"Where was {'q~' * 500} born?"], "tokens and this model reads"),
    "no letter": (["{run}", "Where was ?! born?"], "at least one letter or digit"),
    "risk": (["{run}", "Where was A born?", "--risk", "1.5"], "the risk must lie between 0 and 1"),
    "unseen share": (
        ["{run}", "Where was A born?", "--unseen-share", "1"],
        "the unseen share must lie between 0 and 1",
    ),
    "risk in words": (["{run}", "Where was A born?", "--risk", "low"], "'low'"),
    "no run": (["{none}", "Where was A born?"], "is not a run: it holds no run.json."),
    "a folder": (["{folder}", "Where was A born?"], "is not a run: it holds no run.json."),
    "no file": (["{run}", "--file", "{none}"], "does not exist"),
    "no answers": (["{run}", "--answers", "{none}"], "does not exist"),
    "nothing on stdin": (["{run}", "-"], "stdin brings no question"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_one_sentence(
    command: Any, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    words, said = MISTAKES[case]
    pipe(monkeypatch, b"\n \n")
    names = {"{run}": run, "{none}": tmp_path / "none", "{folder}": tmp_path}
    ended = command("ask", *(names.get(word, word) for word in words))
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("wherefrom: ")
    assert said in ended.err
    assert ended.err.count("\n") == 1


def test_stdin_that_is_no_text_or_too_much_is_one_sentence(
    command: Any, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for most, raw, said in (
        (1 << 20, b"Where was A born?\n\xff\n", "stdin, line 2: this is not UTF-8"),
        (10, b"Where was A born?\n", "more than 10 bytes"),
    ):
        monkeypatch.setattr(ask_module, "MOST_BYTES", most)
        pipe(monkeypatch, raw)
        assert said in command("ask", run, "-").err


def test_a_long_line_is_shown_where_the_answer_is() -> None:
    text = "Ada Moe. " + "word " * 100 + "born in Oslo " + "word " * 100
    shown = excerpt(text, "Oslo")
    assert "Oslo" in shown
    assert shown.startswith("...")
    assert shown.endswith("...")
    assert excerpt(text, "Rome").startswith("Ada Moe. word")
    assert excerpt("Ada\tMoe\x1b[0m.", "") == "Ada Moe [0m."


NAMED = "Where was Mia Ott born?"


def test_every_head_is_shown_as_json_as_a_table_and_as_one_page(
    command: Any, run: Path, tmp_path: Path
) -> None:
    page = tmp_path / "maps.html"
    ended = command("attention", run, NAMED, "--json", "--maps", "--plot", page)
    record = json.loads(ended.out)
    assert (ended.code, record["subject"]) == (0, "Mia Ott")
    assert "".join(record["tokens"][i] for i in record["name"]).strip() == "Mia Ott"
    assert (len(record["heads"]), len(record["maps"])) == (3 * 2, 3)
    for head in record["heads"]:
        assert sum(head["weights"]) == pytest.approx(1, abs=1e-4)
        assert 0 <= head["mass_on_name"] <= 1
    table = command("attention", run, NAMED).out
    text = page.read_text(encoding="utf-8")
    for word, place in (("on the name", table), ("2.1", table), ("Weight on the name", text)):
        assert word in place
    assert "Layer 2" in text
    assert "src=" not in text.split("<body>")[0]
