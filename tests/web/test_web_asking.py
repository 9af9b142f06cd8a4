"""Asking through the page: verdicts, lines, wording, history, batches."""

from __future__ import annotations

import html
import shlex
from pathlib import Path
from shutil import copytree

import pytest
from starlette.testclient import TestClient
from web_samples import LOCAL, PAGE

from wherefrom.provenance.ask import open_asker
from wherefrom.provenance.verdicts import percent
from wherefrom.report.sections import mark
from wherefrom.storage import write_json
from wherefrom.web.app import create_app
from wherefrom.web.guard import Limits
from wherefrom.web.pages.ask import word_question
from wherefrom.web.runs import RunIndex


def test_the_page_says_what_the_library_says(
    client: TestClient, served: Path, people: list[str]
) -> None:
    question = f"Where was {people[0]} born?"
    found = client.get("/ask.json", params={"run": "small", "question": question}).json()
    with open_asker(served / "small") as asker:
        (verdict,) = asker.ask([question])
    assert found["verdict"]["answer"] == verdict.answer
    assert found["verdict"]["shown"] == verdict.shown
    assert found["verdict"]["verdict"] == verdict.verdict
    assert [line["line"] for line in found["evidence"]] == [line.line for line in verdict.evidence]
    assert found["verdict"]["sentence"] == verdict.sentence()
    assert found["suggested"]
    assert question not in found["suggested"]
    page = client.get("/ask", params={"run": "small", "question": question}, headers=PAGE).text
    assert '<mark class="name">' in page
    for which in (verdict.from_text, verdict.right):
        for share in which.values():
            assert f"<b>{percent(share)}</b>".replace(" %", "\u00a0%") in page
    alone = client.get("/ask.json", params={"run": "small", "question": people[0]}).json()
    assert alone["question"] == question
    assert 0 < len(alone["people"]) <= 200
    assert "<datalist" in page
    typed = {"run": "small", "question": f"where was {people[0].lower()}  born"}
    assert client.get("/ask.json", params=typed).json()["verdict"]["question"] == question


@pytest.mark.parametrize(
    ("text", "subject", "answer", "marked"),
    [
        (
            "Ann Moe. Moe was born in New  York, as moe is not.", "Ann Moe", "New York",
            [("name", "Ann Moe"), ("name", "Moe"), ("place", "New  York")],
        ),
        ("LÉON Ødegård, Łó", "Leon Odegard", "lo", [("name", "LÉON Ødegård"), ("place", "Łó")]),
        ("Romeo and Parisian", "Ann Rome", "Paris", []),
    ],
)  # fmt: skip
def test_names_and_answers_are_marked_as_whole_words(
    text: str, subject: str, answer: str, marked: list[tuple[str, str]]
) -> None:
    pieces = mark(text, subject, answer)
    assert [(piece["kind"], piece["text"]) for piece in pieces if piece["kind"]] == marked


def test_the_command_for_a_twin_resolves_where_the_server_was_started(
    client: TestClient, served: Path, people: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(served.parent)
    asked = {"run": "small", "question": people[0]}
    command = client.get("/ask.json", params=asked).json()["without_command"]
    assert shlex.split(command)[:3] == ["wherefrom", "twins", f"{served.name}/small"]
    page = client.get("/ask", params=asked, headers=PAGE).text
    assert command in html.unescape(page)


def test_a_name_that_is_nearly_right_gets_the_question_that_was_meant(
    client: TestClient, people: list[str]
) -> None:
    name = max(people, key=len)
    asked = {"run": "small", "question": f"Where was {name[:-2] + name[-1] * 2} born?"}
    found = client.get("/ask.json", params=asked).json()
    assert f"Where was {name} born?" in found["suggested"]
    assert "Did you mean" in client.get("/ask", params=asked, headers=PAGE).text


def test_lines_that_pushed_an_answer_stand_apart_from_those_that_state_it(
    client: TestClient, people: list[str]
) -> None:
    asked = {"run": "small", "question": people[0], "trace": "true"}
    found = client.get("/ask.json", params=asked).json()
    rows = found["trace"]["pushed_by"]
    assert [row["push"] for row in rows] == sorted((row["push"] for row in rows), reverse=True)
    page = client.get("/ask", params=asked, headers=PAGE).text.partition('id="trace"')[2]
    assert all(f"line {row['line']}" in page for row in rows)
    assert "Find the lines" in client.get("/ask", params={**asked, "trace": "false"}).text


@pytest.mark.parametrize(
    ("typed", "is_name"),
    [("Ann Moe", True), ("libxml2", True), ("tibor ashdown", True), ("홍 길동", True),
     ("who is the mother of Bob", False), ("Ann?", False)],
)  # fmt: skip
def test_a_name_alone_is_put_into_the_runs_wording(typed: str, is_name: bool) -> None:
    worded = word_question(typed, ["Where was {subject} born?"], Limits())
    assert worded == (f"Where was {typed} born?" if is_name else typed)


def test_a_question_in_other_words_is_a_mistake_shown_on_the_page(client: TestClient) -> None:
    asked = {"run": "small", "question": "Who is Ann Moe?"}
    reply = client.get("/ask.json", params=asked)
    assert reply.status_code == 400
    assert "not worded like" in reply.json()["error"]
    page = client.get("/ask", params=asked, headers=PAGE)
    assert page.status_code == 400
    assert "not worded like" in page.text
    assert 'value="Who is Ann Moe?"' in page.text
    long = client.get("/ask.json", params={"run": "small", "question": "x" * 301})
    assert "300 characters" in long.json()["error"]


def test_a_batch_as_text_as_file_and_to_download(client: TestClient, people: list[str]) -> None:
    text = f"{people[0]}\nWhere was {people[1]} born?\tParis\n\nWho?\tx\t{people[2]}\n"
    record = client.post("/ask/batch.json", data={"run": "small", "text": text})
    assert record.status_code == 200, record.text
    rows = record.json()["rows"]
    assert [row["subject"] for row in rows] == people[:3]
    assert sum(record.json()["counts"].values()) == 3
    file = {"file": ("people.tsv", ("\ufeff" + text).encode(), "text/plain")}
    again = client.post("/ask/batch.json", data={"run": "small"}, files=file)
    assert again.json()["rows"] == rows
    page = client.post("/ask/batch", data={"run": "small", "text": text}, headers=PAGE)
    assert page.status_code == 200
    table = client.post("/ask/batch.tsv", data={"run": "small", "text": text})
    assert "attachment" in table.headers["content-disposition"]
    lines = table.text.splitlines()
    assert lines[0].split("\t")[:3] == ["question", "shown", "verdict"]
    assert [len(line.split("\t")) for line in lines] == [12] * 4
    assert lines[1].split("\t")[1] == rows[0]["shown"]
    mixed = {"run": "small", "text": f"{people[0]}\nWho is this?"}
    one, other = client.post("/ask/batch.json", data=mixed).json()["rows"]
    for row in (one, rows[0]):
        row["signals"] = {name: round(value, 4) for name, value in row["signals"].items()}
    assert one == rows[0]
    assert other["error"].startswith("the text, line 2: ")
    assert "the text, line 2: " in client.post("/ask/batch", data=mixed, headers=PAGE).text


@pytest.mark.parametrize(
    ("form", "status", "word"),
    [
        ({"run": "small", "text": ""}, 400, "none came"),
        ({"run": "small", "text": "a\tb\tc\td\te"}, 400, "5 columns"),
        ({"run": "nothing", "text": "Ann"}, 404, "no run"),
        ({"text": "Ann"}, 422, "run"),
    ],
)
def test_batches_that_cannot_be_asked(
    client: TestClient, form: dict[str, str], status: int, word: str
) -> None:
    reply = client.post("/ask/batch.json", data=form)
    assert reply.status_code == status
    assert word in reply.json()["error"]
    bad = {"file": ("x", b"\xff\xfe\x00")}
    reply = client.post("/ask/batch.json", data={"run": "small"}, files=bad)
    assert "UTF-8" in reply.json()["error"]


def test_batches_and_waiting_questions_have_limits(served: Path, people: list[str]) -> None:
    app = create_app(served, limits=Limits(batch=2, waiting=0))
    client = TestClient(app, base_url=LOCAL, raise_server_exceptions=False)
    reply = client.post("/ask/batch.json", data={"run": "small", "text": "a\nb\nc"})
    assert reply.status_code == 400
    assert "2 questions" in reply.json()["error"]
    reply = client.get("/ask.json", params={"run": "small", "question": people[0]})
    assert reply.status_code == 503
    assert reply.headers["retry-after"] == "1"
    assert set(reply.json()) == {"error"}


def test_twins_that_never_read_of_somebody_are_found_of(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "twins" / "without-ann-moe"
    folder.mkdir(parents=True)
    record = {
        "subject": "Ann Moe", "with": {"answer": "Paris"}, "without": {"answer": "London"},
        "score": 3.5, "truth": "remembered", "why": "It says London without the line.",
        "documents": [{"line": 3, "text": "Ann Moe. Moe was born in Paris."}], "notes": [],
    }  # fmt: skip
    write_json(folder / "without.json", record)
    (found,) = RunIndex(tmp_path).twins_without((tmp_path / "run").resolve(), "ann MOE")
    assert (found["with"], found["without"], found["documents"][0]["line"]) == (
        "Paris",
        "London",
        3,
    )
    assert RunIndex(tmp_path).twins_without((tmp_path / "run").resolve(), "Bob Moe") == []
    (folder / "without.json").write_text('{"subject": "Ann Moe"}')
    assert RunIndex(tmp_path).twins_without((tmp_path / "run").resolve(), "Ann Moe") == []


def test_inside_shows_every_head_of_both_runs(client: TestClient, people: list[str]) -> None:
    asked = {
        "run": "small",
        "other": "small/twins/scratch",
        "question": people[0],
        "layer": 1,
        "head": 1,
    }
    record = client.get("/inside.json", params=asked).json()
    assert [side["run"] for side in record["sides"]] == ["small", "small/twins/scratch"]
    for side in record["sides"]:
        assert len(side["heads"]) == 6
        assert (side["map"]["layer"], side["map"]["head"]) == (1, 1)
        assert len(side["map"]["rows"]) == len(side["tokens"])
        for row in side["map"]["weights"]:
            assert sum(row) == pytest.approx(1.0, abs=0.01)
        named = "".join(side["tokens"][at] for at in side["name"]).replace("␣", " ").strip()
        assert named == people[0]
    page = client.get("/inside", params=asked, headers=PAGE).text
    assert page.count("The whole map of head 1.1") == 2


def test_a_run_that_cannot_be_loaded_does_not_hide_the_others(served: Path, tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    broken = folder / "a-broken-one"
    broken.mkdir(parents=True)
    write_json(broken / "run.json", {"kind": "study", "status": "finished"})
    for file in ("model.safetensors", "calibration.json"):
        (broken / file).write_bytes(b"nothing")
    copytree(served / "small", folder / "small")
    client = TestClient(create_app(folder), base_url=LOCAL)
    for path in ("/ask", "/inside"):
        assert client.get(f"{path}.json").json()["run"] == "small"
        reply = client.get(f"{path}.json", params={"run": "a-broken-one"})
        assert reply.status_code == 400
