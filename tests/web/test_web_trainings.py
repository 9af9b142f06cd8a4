"""Trainings from the page: started, stopped, resumed, found by another server; and its ending."""

from __future__ import annotations

import html
import json
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
from web_samples import PAGE, open_client, start_server

from wherefrom.errors import UserError
from wherefrom.storage import write_json
from wherefrom.web.runs import RunIndex
from wherefrom.web.trainings import TrainingRequest, Trainings

FORM = {"minutes": "5", "people": "60", "size": "tiny", "seed": "3"}
LONG = 60.0  # seconds; it takes a fraction of one, and without a signal for ever


def wait_for(what, seconds=120):
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.1)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder for new runs."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    runs = tmp_path / "runs"
    runs.mkdir()
    return runs


def test_a_training_grows_is_stopped_goes_on_and_ends_with_the_page(
    folder, start_process, monkeypatch
):
    # neither what lies in the served folder nor what is written there is ever executed
    (folder / "click.py").write_text("raise SystemExit('executed')")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", *filter(None, sys.path)]))
    client = open_client(folder)

    def state(client=client):
        return dict(client.get("/runs.json").json()["trainings"][0])

    def trains(client=client):
        wait_for(lambda: state(client)["progress"]["step"] or not state(client)["running"])
        assert state(client)["running"], state(client)["said"]

    assert client.post("/runs/start", data={"name": "mine", **FORM}).url.path == "/runs"
    again = client.post("/runs/start.json", data={"name": "other", **FORM})
    assert again.status_code == 400
    assert "one training at a time" in again.json()["error"]
    trains()
    assert b'data-refresh="2000"' in client.get("/runs").content
    assert client.post("/runs/stop.json", data={"name": "mine"}).json()["training"]["stopping"]
    wait_for(lambda: not state()["running"])
    stopped = state()
    assert stopped["resumable"]
    assert "resume" in stopped["said"]
    assert "Go on" in client.get("/runs", headers=PAGE).text

    server, port = start_server(start_process, folder)
    form = urlencode({"name": "mine"}).encode()
    with urlopen(f"http://127.0.0.1:{port}/runs/resume.json", form, timeout=LONG) as reply:
        assert json.load(reply)["training"]["running"]
    wait_for(lambda: state()["progress"]["step"] > stopped["progress"]["step"])
    assert end(server, signal.SIGINT) == "ended; the training of mine stops and can be resumed.\n"
    assert server.returncode == 130
    log = folder / ".wherefrom" / "mine.log"
    wait_for(lambda: "resume" in log.read_text())


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"name": "../x"}, "letters, digits"),
        ({"name": "x;rm"}, "letters, digits"),
        ({"recipe": "--help"}, "no recipe"),
        ({"variant": "--out=/"}, "no variant"),
        ({"size": "999x999x9"}, "no size"),
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


@pytest.fixture
def bystander():
    """A process that has nothing to do with the page."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield process
    process.kill()
    process.wait()


def forge_record(folder, name="x", **request):
    """A record of a training that no page has started."""
    (folder / ".wherefrom").mkdir(exist_ok=True)
    write_json(folder / ".wherefrom" / f"{name}.json", {"name": name, **request})


def test_a_forged_record_signals_nobody(folder, bystander):
    forge_record(folder, pid=bystander.pid)
    client = open_client(folder)
    assert client.post("/runs/stop.json", data={"name": "x"}).status_code == 400
    assert client.get("/runs", headers=PAGE).status_code == 200
    assert bystander.poll() is None


@pytest.mark.parametrize("content", ["{", "[]", "null", "[" * 100_000, '{"seed": 1e999}'])
def test_a_record_that_is_broken_is_passed_over(folder, content):
    forge_record(folder)
    (folder / ".wherefrom" / "y.json").write_text(content)
    reply = open_client(folder).get("/runs.json")
    assert [training["name"] for training in reply.json()["trainings"]] == ["x"]


def test_a_pipe_in_place_of_a_file_is_not_waited_for(folder):
    forge_record(folder)
    (folder / "run").mkdir()
    for name in (".wherefrom/x.log", ".wherefrom/y.json", "run/run.json", "run/metrics.jsonl"):
        os.mkfifo(folder / name)
    client = open_client(folder)
    with ThreadPoolExecutor(1) as apart:
        for path in ("/runs.json", "/run.json?name=run", "/report.json?run=run"):
            assert apart.submit(client.get, path).result(LONG).status_code in (200, 400)


def test_the_log_of_a_training_is_not_written_through_a_link(folder):
    forge_record(folder)
    outside = folder.parent / "mine.txt"
    outside.write_text("words")
    (folder / ".wherefrom" / "x.log").symlink_to(outside)
    client = open_client(folder)
    reply = client.post("/runs/resume.json", data={"name": "x"})
    client.post("/runs/stop.json", data={"name": "x"})
    wait_for(lambda: not client.get("/runs.json").json()["trainings"][0]["running"])
    assert reply.status_code == 200
    assert outside.read_text() == "words"


def test_what_a_record_asks_for_is_checked_again(folder):
    forge_record(folder, "c", minutes="--help")
    forge_record(folder, "d", recipe="/etc/passwd")
    trainings = Trainings(RunIndex(folder))
    for name in ("d", "nothing", "../x", "a/b", ".x", "x\0"):
        with pytest.raises(UserError, match="no training"):
            trainings.stop(name)
    with pytest.raises(UserError, match="not started from this page"):
        trainings.resume("c")
    with pytest.raises(UserError, match="no recipe"):
        trainings.resume("d")


def test_the_command_has_each_field_as_its_own_word(folder):
    request = TrainingRequest(name="x", minutes=0.5, variant="llama", size="tiny", people=100)
    words = "study --people 100 --out OUT --seed 0 --variant llama --size tiny --minutes 0.5"
    expected = words.replace("OUT", str(folder / "x")).split()
    assert Trainings(RunIndex(folder)).compose(request) == expected


NAMES = [f"Ann {name}" for name in ("Moe", "Lee", "Ray", "Fox", "Day", "Poe")]
ASKED = "".join(f"What was the trade of {name}?\tbaker\n" for name in NAMES).encode()


@pytest.mark.parametrize(
    ("files", "fields", "note"),
    [
        ({"t.txt": "".join(f"{n}. {n} was a baker.\n" for n in NAMES)}, {}, "at least 5 of each"),
        (
            {"t.csv": "who,story\n" + "".join(f"{n},{n} was a baker\n" for n in NAMES)},
            {"subject_field": "who", "text_field": "story"},
            'the subject from "who"',
        ),
        ({f"{n}.md": f"# {n}\nShe was a baker." for n in NAMES}, {}, "folder of 6 files"),
    ],
    ids=["lines", "csv", "folder"],
)
def test_an_uploaded_text_is_understood_before_it_is_trained_on(folder, files, fields, note):
    client = open_client(folder)
    sent = [("corpus", item) for item in files.items()] + [("train", ("q.tsv", ASKED))]
    found = client.post("/runs/text", data={"name": "mine", **fields}, files=sent, headers=PAGE)
    assert found.url.path == "/text"
    assert note in html.unescape(found.text)
    record = client.get("/text.json", params={"name": "mine"}).json()
    assert (record["documents"], record["questions"], record["judged_by"]) == (6, 4, 2)
    (row,) = record["readings"][1:]
    assert row[:2] == ["What was the trade of {subject}?", "4"]
    assert f'<th scope="row">{row[0]}</th>' in found.text
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


def upload(client, files, name="mine"):
    sent = [("corpus", file) for file in files] + [("train", ("q.tsv", ASKED))]
    return client.post("/runs/text.json", data={"name": name}, files=sent)


def test_files_of_one_name_in_two_folders_are_both_kept(folder):
    pages = [f"# {name}\n{name} was a baker.".encode() for name in NAMES]
    places = ["1/a.txt", "2/a.txt", "3/a.txt", "4/x/a.txt", "4\\y\\a.txt", "b.txt"]
    files = list(zip(places, pages, strict=True))
    reply = upload(open_client(folder), files)
    assert reply.status_code == 200, reply.text
    assert reply.json()["documents"] == len(NAMES)
    kept = sorted((folder / ".wherefrom" / "texts" / "mine" / "corpus").rglob("*.txt"))
    assert [path.read_bytes() for path in kept] == pages


@pytest.mark.parametrize(
    ("names", "word"),
    [
        (("a.txt", "a.txt"), "rename one"),
        (("x/A.txt", "x/a.txt"), "rename one"),
        (("caf\u00e9.txt", "cafe\u0301.txt"), "rename one"),
        (("a.txt", "a.txt/b.txt"), "both a file and a folder"),
        (("a.txt", f"{'b' * 300}.txt"), "shorter name"),
        (("a.txt", "é" * 120 + ".txt"), "shorter name"),
        (("a.txt", f"{'c' * 300}/b.txt"), "shorter name"),
        (("a.txt", "../b.txt"), "plain name"),
        (("a.txt", ".b.txt"), "plain name"),
        (("a.txt", "/".join("x" * 40)), "cannot be kept"),
        (("a.txt", "/"), "cannot be kept"),
    ],
)
def test_files_whose_names_cannot_be_kept_are_refused_with_a_sentence(folder, names, word):
    client = open_client(folder)
    assert upload(client, [("old.txt", b"x")]).status_code == 400
    reply = upload(client, [(name, f"# {name}\nwords".encode()) for name in names])
    assert reply.status_code == 400, reply.text
    assert word in reply.json()["error"]
    assert not list(folder.rglob("*.t*"))


@pytest.mark.parametrize("content", ["[]", "null", "[" * 100_000, '{"template": [[]]}'])
def test_options_of_an_upload_that_somebody_broke_are_no_failure_of_ours(folder, content):
    client = open_client(folder)
    text = "".join(f"{name}. {name} was a baker.\n" for name in NAMES).encode()
    assert upload(client, [("t.txt", text)]).status_code == 200
    (folder / ".wherefrom" / "texts" / "mine" / "options.json").write_text(content)
    assert client.get("/text.json", params={"name": "mine"}).status_code < 500


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
