"""Trainings from the page: started, stopped, resumed, and found again by another server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from wherefrom.errors import UserError
from wherefrom.storage import read_json, write_json
from wherefrom.web.app import create_app
from wherefrom.web.jobs import TrainingRequest, Trainings, birth_of
from wherefrom.web.runs import RunIndex

PAGE = {"Accept": "text/html"}
FORM = {"minutes": "5", "people": "60", "size": "tiny", "recipe": "speedrun", "seed": "3"}


def wait_for(what: Callable[[], Any], seconds: float = 90) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.1)
    return found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    runs = tmp_path / "runs"
    runs.mkdir()
    yield runs
    mine = runs / ".wherefrom" / "mine.json"
    if mine.exists() and birth_of(read_json(mine)["pid"]) == read_json(mine)["born"]:
        os.kill(read_json(mine)["pid"], signal.SIGKILL)


def test_a_training_is_started_grows_is_stopped_and_goes_on(folder: Path) -> None:
    client = TestClient(create_app(folder), base_url="http://127.0.0.1")
    reply = client.post("/runs/start", data={"name": "mine", **FORM}, follow_redirects=False)
    assert (reply.status_code, reply.headers["location"]) == (303, "/runs")
    told = client.get("/runs.json").json()["trainings"][0]
    assert told["running"]
    assert 'data-refresh="2000"' in client.get("/runs", headers=PAGE).text
    again = client.post("/runs/start.json", data={"name": "other", **FORM})
    assert again.status_code == 400
    assert "one training at a time" in again.json()["error"]

    # a server that was killed and started anew finds it
    second = TestClient(create_app(folder), base_url="http://127.0.0.1")
    wait_for(lambda: second.get("/runs.json").json()["trainings"][0]["progress"]["step"])
    assert second.get("/runs.json").json()["trainings"][0]["running"]
    assert second.post("/runs/stop.json", data={"name": "mine"}).json()["training"]["stopping"]
    stopped = wait_for(
        lambda: [t for t in second.get("/runs.json").json()["trainings"] if not t["running"]]
    )[0]
    assert stopped["resumable"]
    assert "resume" in stopped["said"]
    assert "Go on" in client.get("/runs", headers=PAGE).text
    steps = stopped["progress"]["step"]

    resumed = client.post("/runs/resume.json", data={"name": "mine"}).json()["training"]
    assert resumed["running"]
    assert resumed["command"][-1] == "--resume"
    assert resumed["progress"]["step"] <= steps + 10
    wait_for(lambda: client.get("/runs.json").json()["trainings"][0]["progress"]["step"] > steps)
    client.post("/runs/stop.json", data={"name": "mine"})
    wait_for(lambda: not client.get("/runs.json").json()["trainings"][0]["running"])


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"name": "../x"}, "letters, digits"),
        ({"name": "x;rm"}, "letters, digits"),
        ({"recipe": "/etc/passwd"}, "no recipe"),
        ({"recipe": "--help"}, "no recipe"),
        ({"variant": "--out=/"}, "no variant"),
        ({"size": "999x999x9"}, "no size"),
        ({"texts_of": "nothing"}, "no run"),
        ({"minutes": "0"}, "minutes"),
        ({"minutes": "inf"}, "minutes"),
        ({"people": "1000000"}, "people"),
        ({"seed": "-1"}, "seed"),
    ],
)
def test_what_cannot_be_trained_is_not_started(
    folder: Path, change: dict[str, str], word: str
) -> None:
    client = TestClient(create_app(folder), base_url="http://127.0.0.1")
    reply = client.post("/runs/start.json", data={"name": "x", **FORM, **change})
    assert reply.status_code in (400, 404, 422)
    assert word in reply.json()["error"]
    assert list(folder.iterdir()) == []


def test_nothing_is_stopped_but_what_was_started_here(folder: Path) -> None:
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        trainings = Trainings(RunIndex(folder))
        record = {
            "name": "x", "pid": bystander.pid, "born": "1", "since": 0.0,
            "out": str(folder / "x"), "command": ["study"],
        }  # fmt: skip
        (folder / ".wherefrom").mkdir()
        write_json(folder / ".wherefrom" / "x.json", record)  # the number was given to another
        with pytest.raises(UserError, match="no training"):
            trainings.stop("x")
        for name in ("nothing", "../x", "a/b", ".x", "x\0"):
            with pytest.raises(UserError, match="no training"):
                trainings.stop(name)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_broken_files_of_trainings_are_passed_over(folder: Path) -> None:
    kept = folder / ".wherefrom"
    kept.mkdir()
    (kept / "a.json").write_text("{")
    (kept / "b.json").write_text("[]")
    write_json(kept / "c.json", {"pid": 1, "born": "x", "since": 0, "out": "/", "command": []})
    assert Trainings(RunIndex(folder)).all() == []


def test_the_command_holds_each_wish_as_its_own_word() -> None:
    wish = TrainingRequest("x", 0.5, "speedrun", "llama", "tiny", 7, 100)
    words = wish.command(Path("/runs/x"))
    assert words[:3] == ["study", "--out", "/runs/x"]
    assert words[words.index("--minutes") + 1] == "0.5"
    with_files = TrainingRequest("x", 8.0, "speedrun", None, None, 0, 100, ("a", "b", "c")).command(
        Path("y")
    )
    assert with_files[:4] == ["study", "a", "b", "c"]
    assert "--people" not in with_files
