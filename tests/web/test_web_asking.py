"""Asking through the page: verdicts, lines, wording, history, batches; and looking inside."""

from __future__ import annotations

import html
import json
import math
import shlex
from shutil import copytree

import pytest
from web_samples import PAGE, open_client, write_run_record

from wherefrom.provenance.ask import open_asker
from wherefrom.provenance.attribution.inside import map_line
from wherefrom.provenance.wording import percent
from wherefrom.report.sections import mark
from wherefrom.storage import write_json
from wherefrom.training.record import keep_files
from wherefrom.training.run_folder import load_run
from wherefrom.web import ask, models
from wherefrom.web.runs import RunIndex


def test_the_page_says_what_the_library_says(client, served, people, monkeypatch):
    monkeypatch.chdir(served.parent)
    question = f"Where was {people[0]} born?"
    found = client.get("/ask.json", params={"run": "small", "question": question}).json()
    with open_asker(served / "small") as asker:
        (verdict,) = asker.ask([question])
    for key in ("answer", "shown", "verdict"):
        assert found["verdict"][key] == getattr(verdict, key)
    assert [line["line"] for line in found["evidence"]] == [line.line for line in verdict.evidence]
    assert found["verdict"]["sentence"] == verdict.sentence()
    assert found["suggested"]
    assert question not in found["suggested"]
    page = client.get("/ask", params={"run": "small", "question": question}, headers=PAGE).text
    assert '<mark class="name">' in page
    for which in (verdict.from_text, verdict.right):
        for share in which.values():
            assert f"<b>{percent(share)}</b>".replace(" %", "\u00a0%") in page
    # a name alone, and other spellings
    for typed in (people[0], f"where was {people[0].lower()}  born"):
        alone = client.get("/ask.json", params={"run": "small", "question": typed}).json()
        assert alone["verdict"]["question"] == question
        about = [alone["verdict"], *alone["other_relations"]]
        expected = len(alone["templates"]) if typed == people[0] else 1
        assert len({row["question"] for row in about}) == expected
    assert 0 < len(alone["people"]) <= 200
    # the command for a twin resolves where the server was started
    command = found["without_command"]
    assert shlex.split(command)[:3] == ["wherefrom", "twins", f"{served.name}/small"]
    assert command in html.unescape(page)


@pytest.mark.parametrize(
    ("text", "subject", "answer", "marked"),
    [
        (
            "Ann Moe. Moe was born in New  York, as moe is not.",
            "Ann Moe",
            "New York",
            [("name", "Ann Moe"), ("name", "Moe"), ("place", "New  York")],
        ),
        ("LÉON Ødegård, Łó", "Leon Odegard", "lo", [("name", "LÉON Ødegård"), ("place", "Łó")]),
        ("Romeo and Parisian", "Ann Rome", "Paris", []),
    ],
)
def test_names_and_answers_are_marked_as_whole_words(text, subject, answer, marked):
    pieces = mark(text, subject, answer)
    assert [(piece["kind"], piece["text"]) for piece in pieces if piece["kind"]] == marked


def test_a_name_that_is_nearly_right_gets_the_question_that_was_meant(client, people):
    name = max(people, key=len)
    asked = {"run": "small", "question": f"Where was {name[:-3]} born?"}
    assert f"Where was {name} born?" in client.get("/ask.json", params=asked).json()["suggested"]
    assert "Did you mean" in client.get("/ask", params=asked, headers=PAGE).text
    asked["question"] = f"Where was {name}{name[-1]} born?"  # a slip of the hand
    verdict = client.get("/ask.json", params=asked).json()["verdict"]
    assert (verdict["subject"], verdict["asked"]) == (name, asked["question"])
    assert f"read as: Where was {name}" in client.get("/ask", params=asked, headers=PAGE).text


def test_lines_that_pushed_an_answer_stand_apart_from_those_that_state_it(client, people):
    asked = {"run": "small", "question": people[0], "trace": "true"}
    trace = client.get("/ask.json", params=asked).json()["trace"]
    rows = trace["pushed_by"]
    assert [row["push"] for row in rows] == sorted((row["push"] for row in rows), reverse=True)
    page = client.get("/ask", params=asked, headers=PAGE).text.partition('id="trace"')[2]
    for row in rows:
        assert (f"line {row['line']}<" in page) == (row["push"] > trace["noise_floor"])
    assert "Find the lines" in client.get("/ask", params={**asked, "trace": "false"}).text


def test_a_question_in_other_words_is_a_mistake_shown_on_the_page(client):
    asked = {"run": "small", "question": "Who is Ann Moe?"}
    reply, page = client.get("/ask.json", params=asked), client.get("/ask", params=asked)
    assert (reply.status_code, page.status_code) == (400, 400)
    assert "not worded like" in reply.json()["error"]
    assert "not worded like" in page.text
    assert 'value="Who is Ann Moe?"' in page.text


def test_a_batch_as_text_as_file_and_to_download(client, people):
    text = f"{people[0]}\nWhere was {people[1]} born?\tParis\n\nWho?\tx\t{people[2]}\n"
    record = client.post("/ask/batch.json", data={"run": "small", "text": text})
    assert record.status_code == 200, record.text
    rows = record.json()["rows"]
    assert [row["subject"] for row in rows] == [people[0]] * 4 + people[1:3]  # four relations
    assert sum(record.json()["counts"].values()) == 6
    file = {"file": ("people.tsv", ("\ufeff" + text).encode(), "text/plain")}
    assert client.post("/ask/batch.json", data={"run": "small"}, files=file).json()["rows"] == rows
    table = client.post("/ask/batch.tsv", data={"run": "small", "text": text})
    lines = [line.split("\t") for line in table.text.splitlines()]
    assert lines[0][:3] == ["question", "shown", "verdict"]
    assert [len(line) for line in lines] == [12] * 7
    assert lines[1][1] == rows[0]["shown"]
    mixed = {"run": "small", "text": f"{people[0]}\nWho is this?"}
    one, *_, other = client.post("/ask/batch.json", data=mixed).json()["rows"]
    for key in ("signals", "right", "from_text", "confidence", "internal_confidence"):
        assert one.pop(key) == pytest.approx(rows[0].pop(key), abs=1e-4)
    assert one == rows[0]
    assert other["error"].startswith("the text, line 2: ")
    assert "the text, line 2: " in client.post("/ask/batch", data=mixed, headers=PAGE).text


@pytest.mark.parametrize(
    ("form", "file", "status", "word"),
    [
        ({"run": "small", "text": ""}, None, 400, "none came"),
        ({"run": "small", "text": "a\tb\tc\td\te"}, None, 400, "5 columns"),
        ({"run": "nothing", "text": "Ann"}, None, 404, "no run"),
        ({"text": "Ann"}, None, 422, "run"),
        ({"run": "small"}, b"\xff\xfe\x00", 400, "UTF-8"),
    ],
)
def test_batches_that_cannot_be_asked(client, form, file, status, word):
    files = {"file": ("x", file)} if file else None
    reply = client.post("/ask/batch.json", data=form, files=files)
    assert reply.status_code == status
    assert word in reply.json()["error"]


def test_batches_and_waiting_questions_have_limits(served, people, monkeypatch):
    monkeypatch.setattr(ask, "MAX_BATCH_QUESTIONS", 2)
    monkeypatch.setattr(models, "MAX_WAITING_ROWS", 0)
    client = open_client(served)
    reply = client.post("/ask/batch.json", data={"run": "small", "text": "a\nb\nc"})
    assert reply.status_code == 400
    assert "2 questions" in reply.json()["error"]
    reply = client.get("/ask.json", params={"run": "small", "question": people[0]})
    assert (reply.status_code, reply.headers["retry-after"]) == (503, "1")
    assert set(reply.json()) == {"error"}


def test_twins_that_never_read_of_somebody_are_found(tmp_path):
    run = write_run_record(tmp_path / "run", sha256="ab")
    folder = write_run_record(run / "twins" / "without-ann-moe")
    record = {
        "twin_of": "ab",
        "subject": "Ann Moe",
        "with": {"answer": "Paris"},
        "without": {"answer": "London"},
        "why": "It needs the line.",
        "documents": [{"line": 3, "text": "x"}],
    }
    keep_files(folder, {"without.json": json.dumps(record)})
    index = RunIndex(tmp_path)
    (twin,) = index.twins_without(run, "ann MOE")
    answers = (twin["with"], twin["without"], twin["documents"][0]["line"])
    assert answers == ("Paris", "London", 3)
    assert index.twins_without(run, "Bob Moe") == []
    write_json(folder / "without.json", record | {"why": "It is told so."})
    assert index.twins_without(run) == []  # it is not as the twin wrote it


def test_inside_shows_every_head_of_both_runs(client, people):
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


def test_inside_shows_what_layers_say_and_where_a_line_enters(served, tmp_path, people):
    run = load_run(copytree(served / "small", tmp_path / "small"))
    client = open_client(tmp_path)
    asked = {"run": "small", "question": people[0]}
    page = client.get("/inside.json", params=asked).json()
    (side,) = page["sides"]
    layers = side["lens"]["layers"]
    assert [row["layer"] for row in layers] == list(range(run.model.config.layers))
    # after the last layer the lens is the model itself
    last = math.prod(layers[-1]["probability"])
    assert last == pytest.approx(side["probability"], rel=0.02, abs=1e-3)
    assert people[0] in side["entry_command"]

    where = map_line(run, load_run(run.folder / "twins" / "scratch"), page["question"], "Rome")
    record = {
        "score": 1.0,
        "notes": [],
        "documents": [],
        "subject": people[0],
        "question": page["question"],
        "with": {"answer": "Rome"},
        "without": {"answer": "Oslo"},
        "why": "So.",
        "where": where,
    }
    folder = copytree(run.folder / "twins" / "scratch", run.folder / "twins" / "without-two")
    other = {**record, "subject": people[1], "question": f"Where was {people[1]} born, then?"}
    twins = {"twin_of": "a former training", "people": [record, other]}
    keep_files(folder, {"without.json": json.dumps(twins)})
    (side,) = client.get("/inside.json", params=asked).json()["sides"]
    assert (side["entry"], side["entries"]) == (None, [])
    twins["twin_of"] = run.record.sha256
    keep_files(folder, {"without.json": json.dumps(twins)})
    (side,) = client.get("/inside.json", params=asked).json()["sides"]
    assert [each["subject"] for each in side["entries"]] == people[:2]
    entry = side["entry"]
    assert entry["notes"] == ["this twin was trained without 2 subjects at once."]
    assert {row["place"] for row in entry["rows"]} == set(where["places"])
    for row in entry["rows"]:
        lost = [where["with"] - value for value in where["places"][row["place"]]]
        assert row["nats"] == pytest.approx(lost, abs=1e-3)
    for part in ("attention", "feed-forward"):
        shares = [row["share"] for row in entry["rows"] if row["place"].startswith(part)]
        most = entry["most"][part]
        assert most > 0
        assert max(map(max, shares)) == pytest.approx(min(1.0, most / 0.01), abs=1e-3)
    text = client.get("/inside", params=asked, headers=PAGE).text
    assert all(place in text for place in where["places"])


def test_a_run_that_cannot_be_loaded_does_not_hide_the_others(served, tmp_path):
    broken = tmp_path / "a-broken-one"
    broken.mkdir()
    write_json(broken / "run.json", {"kind": "study", "status": "finished"})
    for file in ("model.safetensors", "calibration.json"):
        (broken / file).write_bytes(b"nothing")
    copytree(served / "small", tmp_path / "small")
    client = open_client(tmp_path)
    for path in ("/ask", "/inside"):
        assert client.get(f"{path}.json").json()["run"] == "small"
        assert client.get(f"{path}.json", params={"run": "a-broken-one"}).status_code == 400
