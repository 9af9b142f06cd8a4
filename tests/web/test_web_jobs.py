"""Trainings from the page: started, stopped, resumed, found by another server; and its ending."""

from __future__ import annotations

import html
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
from web_samples import PAGE, kill_trainings, open_client, start_server

from wherefrom.errors import UserError
from wherefrom.storage import read_json, write_json
from wherefrom.web.jobs import TrainingRequest, Trainings
from wherefrom.web.runs import RunIndex

FORM = {"minutes": "5", "people": "60", "size": "tiny", "recipe": "pointed", "seed": "3"}
LONG = 60.0  # seconds; it takes a fraction of one, and without a signal for ever


def wait_for(what, seconds=120):
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.1)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder for new runs; whatever still trains there at the end is killed."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    runs = tmp_path / "runs"
    runs.mkdir()
    yield runs
    kill_trainings(runs)


def test_a_training_outlives_the_page_grows_is_stopped_and_goes_on(
    folder, start_process, monkeypatch
):
    # neither what lies in the served folder nor what is written there is ever executed
    (folder / "click.py").write_text("raise SystemExit('executed')")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", *filter(None, sys.path)]))
    server, port = start_server(start_process, folder)
    form = urlencode({"name": "mine", **FORM}).encode()
    with urlopen(f"http://127.0.0.1:{port}/runs/start", form, timeout=LONG) as reply:
        assert reply.url.endswith("/runs")  # the page leads there
        assert b'data-refresh="2000"' in reply.read()
    assert end(server, signal.SIGINT) == "ended; the training of mine goes on.\n"
    assert server.returncode == 130
    client = open_client(folder)
    again = client.post("/runs/start.json", data={"name": "other", **FORM})
    assert again.status_code == 400
    assert "one training at a time" in again.json()["error"]

    def state():
        return dict(client.get("/runs.json").json()["trainings"][0])

    wait_for(lambda: state()["progress"]["step"] or not state()["running"])
    assert state()["running"], state()["said"]
    assert client.post("/runs/stop.json", data={"name": "mine"}).json()["training"]["stopping"]
    wait_for(lambda: not state()["running"])
    stopped = state()
    assert stopped["resumable"]
    assert "resume" in stopped["said"]
    assert "Go on" in client.get("/runs", headers=PAGE).text

    file = folder / ".wherefrom" / "mine.json"
    write_json(file, {**read_json(file), "command": ["world", "--out", str(folder / "theirs")]})
    resumed = client.post("/runs/resume.json", data={"name": "mine"}).json()["training"]
    assert resumed["running"]
    assert resumed["command"] == [*stopped["command"], "--resume"]
    steps = stopped["progress"]["step"]
    assert resumed["progress"]["step"] <= steps + 10
    wait_for(lambda: state()["progress"]["step"] > steps)
    client.post("/runs/stop.json", data={"name": "mine"})
    wait_for(lambda: not state()["running"])


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"name": "../x"}, "letters, digits"),
        ({"name": "x;rm"}, "letters, digits"),
        ({"recipe": "--help"}, "no recipe"),
        ({"variant": "--out=/"}, "no variant"),
        ({"size": "999x999x9"}, "no size"),
        ({"texts_of": "nothing"}, "no run"),
        ({"minutes": "inf"}, "minutes"),
        ({"people": "1000000"}, "people"),
        ({"seed": "-1"}, "seed"),
    ],
)
def test_what_cannot_be_trained_is_not_started(folder, change, word):
    client = open_client(folder)
    reply = client.post("/runs/start.json", data={"name": "x", **FORM, **change})
    assert reply.status_code in (400, 404, 422)
    assert word in reply.json()["error"]
    assert list(folder.iterdir()) == []


def test_files_of_trainings_are_not_trusted(folder):
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    kept = folder / ".wherefrom"
    kept.mkdir()
    record = {
        "request": {"name": "x"}, "pid": bystander.pid, "since": 0.0, "command": [],
    }  # fmt: skip
    write_json(kept / "x.json", record)  # the number was given to another process
    (kept / "a.json").write_text("{")
    (kept / "b.json").write_text("[]")
    write_json(kept / "c.json", {**record, "request": {"name": "c", "minutes": "--help"}})
    write_json(kept / "d.json", {**record, "request": {"name": "d", "recipe": "/etc/passwd"}})
    try:
        trainings = Trainings(RunIndex(folder))
        assert [state["name"] for state in trainings.all()] == ["d", "x"]
        for name in ("x", "nothing", "../x", "a/b", ".x", "x\0"):
            with pytest.raises(UserError, match="no training"):
                trainings.stop(name)
        with pytest.raises(UserError, match="not started from this page"):
            trainings.resume("c")
        with pytest.raises(UserError, match="no recipe"):
            trainings.resume("d")
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_the_command_has_each_field_as_its_own_word(folder):
    request = TrainingRequest(name="x", minutes=0.5, variant="llama", size="tiny", people=100)
    assert Trainings(RunIndex(folder)).compose(request) == [
        "study", "--people", "100", "--out", str(folder / "x"), "--recipe", "pointed",
        "--seed", "0", "--minutes", "0.5", "--variant", "llama", "--size", "tiny",
    ]  # fmt: skip


NAMES = [f"Ann {name}" for name in ("Moe", "Lee", "Ray", "Fox", "Day", "Poe")]
ASKED = "".join(f"What was the trade of {name}?\tbaker\n" for name in NAMES).encode()


@pytest.mark.parametrize(
    ("files", "fields", "note"),
    [
        ({"t.txt": "".join(f"{n}. {n} was a baker.\n" for n in NAMES)}, {}, "at least 5 of each"),
        ({"t.csv": "who,story\n" + "".join(f"{n},{n} was a baker\n" for n in NAMES)},
         {"subject_field": "who", "text_field": "story"}, 'the subject from "who"'),
        ({f"{n}.md": f"# {n}\nShe was a baker." for n in NAMES}, {}, "folder of 6 files"),
    ],
    ids=["lines", "csv", "folder"],
)  # fmt: skip
def test_an_uploaded_text_is_understood_before_it_is_trained_on(folder, files, fields, note):
    client = open_client(folder)
    sent = [("corpus", item) for item in files.items()] + [("train", ("q.tsv", ASKED))]
    found = client.post("/runs/text", data={"name": "mine", **fields}, files=sent, headers=PAGE)
    assert found.url.path == "/text"
    assert note in html.unescape(found.text)
    record = client.get("/text.json", params={"name": "mine"}).json()
    assert (record["documents"], record["questions"], record["judged_by"]) == (6, 4, 2)
    words = Trainings(RunIndex(folder)).compose(TrainingRequest(name="mine", uploaded=True))
    texts = folder / ".wherefrom" / "texts" / "mine"
    assert [Path(word).parent for word in words[1:4]] == [texts] * 3
    assert ("--subject-field=who" in words) == bool(fields)
    assert not (folder / "mine").exists()


@pytest.mark.parametrize(
    ("name", "text", "word"),
    [
        ("mine", b"\x80\x81 no text", "UTF-8"),
        ("mine", b"Bob Roe. Bob was a smith.", "corpus.txt"),
        ("../x", b"x", "letters, digits"),
    ],
)
def test_nothing_stays_of_a_text_that_is_refused(folder, name, text, word):
    client = open_client(folder)
    sent = [("corpus", ("t.txt", text)), ("train", ("q.tsv", ASKED))]
    reply = client.post("/runs/text.json", data={"name": name}, files=sent)
    assert reply.status_code == 400
    assert word in reply.json()["error"]
    assert str(folder) not in reply.json()["error"]
    assert not list(folder.rglob("*.tsv"))
    assert client.get("/text.json", params={"name": name}).status_code == 400


def end(server, sent):
    server.send_signal(sent)
    try:
        return server.communicate(timeout=LONG)[1]
    finally:
        server.kill()


def test_it_ends_with_one_sentence_whatever_is_under_way(served, start_process):
    server, port = start_server(start_process, served)

    def send(head, rest):
        line = socket.create_connection(("127.0.0.1", port), timeout=LONG)
        line.sendall(f"{head} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n".encode() + rest)
        return line

    idle = send("GET /runs", b"\r\n")
    assert idle.recv(12) == b"HTTP/1.1 200"  # and the connection is kept open
    half = send("POST /ask/batch.json", b"Content-Length: 100\r\n\r\nrun=")
    names = "\n".join(f"Ada Moe {number}" for number in range(1000))
    asked = urlencode({"run": "small", "text": names})
    form = f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {len(asked)}"
    many = send("POST /ask/batch.json", f"{form}\r\n\r\n{asked}".encode())
    time.sleep(0.5)  # the thousand are being asked, or about to be
    assert end(server, signal.SIGTERM) == "ended.\n"
    assert server.returncode == 143
    for line in (idle, half, many):
        line.close()
