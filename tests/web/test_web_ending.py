"""Ctrl-C or a plain kill ends the page at once, whatever it is doing; a training goes on."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from wherefrom.storage import read_json
from wherefrom.web.jobs import birth_of

Start = Callable[..., subprocess.Popen[str]]
WISH = {"minutes": "10", "people": "60", "size": "tiny", "seed": "1"}
LONG = 30.0  # seconds; it takes a fraction of one, and without a signal for ever


def open_page(start_process: Start, folder: Path) -> tuple[subprocess.Popen[str], int]:
    server = start_process("serve", folder, "--port", "0")
    assert server.stderr is not None
    said = server.stderr.readline()
    found = re.search(r"http://127\.0\.0\.1:(\d+)", said)
    assert found is not None, said
    return server, int(found[1])


def send(port: int, head: str, body: bytes = b"") -> socket.socket:
    line = socket.create_connection(("127.0.0.1", port), timeout=LONG)
    line.sendall(f"{head}\r\nHost: 127.0.0.1:{port}\r\n".encode() + body)
    return line


def end(server: subprocess.Popen[str], told: signal.Signals) -> str:
    server.send_signal(told)
    try:
        _, rest = server.communicate(timeout=LONG)
    finally:
        server.kill()
    return rest


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Path]:
    """A folder for new runs; whatever still trains there at the end is killed."""
    folder = tmp_path / "runs"
    folder.mkdir()
    yield folder
    for path in (folder / ".wherefrom").glob("*.json"):
        known = read_json(path)
        if birth_of(known["pid"]) == known["born"]:
            os.kill(known["pid"], signal.SIGKILL)


@pytest.mark.parametrize(("told", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_it_ends_with_one_sentence_whatever_is_under_way(
    served: Path, start_process: Start, told: signal.Signals, code: int
) -> None:
    server, port = open_page(start_process, served)
    idle = send(port, "GET /runs HTTP/1.1", b"\r\n")
    assert idle.recv(12) == b"HTTP/1.1 200"  # and the connection is kept open
    half = send(port, "POST /ask/batch.json HTTP/1.1", b"Content-Length: 100\r\n\r\nrun=")
    names = "\n".join(f"Ada Moe {number}" for number in range(1000))
    asked = urlencode({"run": "small", "text": names}).encode()
    head = "Content-Type: application/x-www-form-urlencoded\r\n"
    many = send(
        port,
        "POST /ask/batch.json HTTP/1.1",
        f"{head}Content-Length: {len(asked)}\r\n\r\n".encode() + asked,
    )
    time.sleep(0.5)  # the thousand are being asked, or about to be
    assert end(server, told) == "ended.\n"
    assert server.returncode == code
    for line in (idle, half, many):
        line.close()


@pytest.mark.parametrize("told", [signal.SIGINT, signal.SIGKILL])
def test_a_training_goes_on_without_the_page_and_can_be_resumed(
    runs: Path, start_process: Start, told: signal.Signals
) -> None:
    server, port = open_page(start_process, runs)
    wish = urlencode({"name": "mine", **WISH}).encode()
    with urlopen(f"http://127.0.0.1:{port}/runs/start.json", wish, timeout=LONG) as reply:
        assert json.load(reply)["training"]["running"]
    rest = end(server, told)
    if told is not signal.SIGKILL:
        assert rest == "ended; the training of mine goes on.\n"
    known = read_json(runs / ".wherefrom" / "mine.json")
    assert birth_of(known["pid"]) == known["born"]

    again, port = open_page(start_process, runs)
    here = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + 300

    def look() -> dict[str, object]:
        with urlopen(f"{here}/runs.json", timeout=LONG) as reply:
            found = json.load(reply)["trainings"][0]
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
        return dict(found)

    with urlopen(f"{here}/runs/stop.json", b"name=mine", timeout=LONG):
        pass
    while look()["running"]:
        pass
    assert look()["resumable"]
    assert end(again, signal.SIGTERM) == "ended.\n"
