"""Clients that send half a head, or do not read, hold no connection for ever and stop nobody."""

from __future__ import annotations

import resource
import signal
import socket
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from urllib.request import urlopen

import pytest
import uvicorn
from web_samples import start_server

from wherefrom.web import connections

LONG = 60.0  # seconds; longer than anything here takes on a busy machine
HALF_HEAD = b"GET /runs.json HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Half: "
HEAD = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


async def reply_at_length(scope, receive, send):
    """A page of 64 MB, which is more than the buffers of a connection take."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(64):
        await send({"type": "http.response.body", "body": bytes(1_000_000), "more_body": True})
    await send({"type": "http.response.body", "body": b""})


@contextmanager
def serve_here(app):
    """A server with our connections in a thread of this process, and its port."""
    config = uvicorn.Config(app, http=connections.BoundedProtocol, port=0, log_level="error")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = server.force_exit = True
        thread.join()


@pytest.fixture
def connect():
    with ExitStack() as open_lines:

        def connect(port, sent):
            line = socket.create_connection(("127.0.0.1", port), timeout=LONG)
            open_lines.callback(line.close)
            line.sendall(sent)
            return line

        yield connect


def receive_all(line):
    """How many bytes come before the server closes the connection, which it must."""
    received = 0
    with suppress(ConnectionResetError):
        while chunk := line.recv(1_000_000):
            received += len(chunk)
    return received


@pytest.mark.parametrize(
    "sent", [b"", HALF_HEAD, HEAD + HALF_HEAD], ids=["nothing", "half a head", "half a second one"]
)
def test_a_head_that_does_not_arrive_ends_the_connection(connect, monkeypatch, sent):
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.5)
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 8)
    with serve_here(reply_at_length) as port:
        receive_all(connect(port, sent))


def test_a_head_that_drips_ends_the_connection(connect, monkeypatch):
    monkeypatch.setattr(connections, "HEAD_SECONDS", 1.0)
    with serve_here(reply_at_length) as port:
        line = connect(port, HALF_HEAD)
        line.settimeout(0.1)
        began = time.monotonic()
        while time.monotonic() - began < LONG:
            try:
                line.sendall(b"x")
                if line.recv(1) == b"":
                    return
            except TimeoutError:
                pass
            except ConnectionError:
                return
        pytest.fail("a client that sends a byte now and then holds its connection")


def test_a_reply_that_is_not_read_ends_the_connection(connect, monkeypatch):
    monkeypatch.setattr(connections, "WRITE_SECONDS", 0.5)
    with serve_here(reply_at_length) as port:
        line = connect(port, HEAD)
        time.sleep(1.5)
        assert receive_all(line) < 64_000_000


def test_many_half_heads_do_not_stop_the_page(tmp_path, start_process, connect):
    """1,100 of them took all files of the server, which wrote megabytes of log a second."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, limits[1]))  # as most systems have it
    server, port = start_server(start_process, tmp_path)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
        for _ in range(1_100):
            connect(port, HALF_HEAD)
        for _ in range(3):
            with urlopen(f"http://127.0.0.1:{port}/runs.json", timeout=LONG) as reply:
                assert reply.status == 200
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        server.send_signal(signal.SIGINT)
        printed = server.communicate(timeout=LONG)[1]
    assert printed == "ended.\n"
