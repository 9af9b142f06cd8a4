"""Who is refused before anything is looked at, and what every reply carries."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.testclient import TestClient
from starlette.types import Message
from web_samples import run

from wherefrom.web.app import create_app
from wherefrom.web.guard import Guard, Limits

PAGE = {"Accept": "text/html"}


@pytest.fixture
def strict(tmp_path: Path) -> TestClient:
    app = create_app(tmp_path, limits=Limits(body=1000, address=500))
    return TestClient(app, base_url="http://127.0.0.1:8765", raise_server_exceptions=False)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example", "evil.example:8765", "127.0.0.1.evil.example", "localhost.evil.example",
        "127.0.0.1@evil.example", "evil@127.0.0.1", "", "127.0.0.1:99999999", "[::1",
        "127.0.0.1/x", "0.0.0.0",
    ],
)  # fmt: skip
def test_a_foreign_host_is_refused(strict: TestClient, host: str) -> None:
    reply = strict.get("/runs.json", headers={"Host": host})
    assert reply.status_code == 403
    assert set(reply.json()) == {"error"}


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:1234", "localhost:8765", "[::1]:8765"])
def test_names_of_this_machine_are_served(strict: TestClient, host: str) -> None:
    assert strict.get("/runs.json", headers={"Host": host}).status_code == 200


def test_a_host_that_was_allowed_is_served(tmp_path: Path) -> None:
    client = TestClient(create_app(tmp_path, hosts=["lab.example"]), base_url="http://lab.example")
    assert client.get("/runs.json").status_code == 200


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example", "null", "http://127.0.0.1:9999", "http://localhost:8765",
        "http://127.0.0.1:8765.evil.example", "",
    ],
)  # fmt: skip
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_foreign_origin_is_refused(strict: TestClient, origin: str, method: str) -> None:
    reply = strict.request(method, "/runs.json", headers={"Origin": origin})
    assert reply.status_code == 403


def test_our_own_origin_is_served(strict: TestClient) -> None:
    reply = strict.get("/runs.json", headers={"Origin": "http://127.0.0.1:8765"})
    assert reply.status_code == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_another_site_may_link_here_and_nothing_more(strict: TestClient, site: str) -> None:
    cross = {"Sec-Fetch-Site": site}
    link = cross | {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    framed = cross | {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}
    assert strict.get("/runs", headers=link).status_code == 200
    assert strict.get("/runs", headers=framed).status_code == 403
    assert (
        strict.get("/runs.json", headers=cross | {"Sec-Fetch-Mode": "no-cors"}).status_code == 403
    )
    assert strict.post("/runs/stop", headers=link).status_code == 403


def test_a_long_body_is_refused_with_and_without_a_length(strict: TestClient) -> None:
    def pieces() -> object:
        for _ in range(20):
            yield b"x" * 100

    assert strict.post("/ask/batch.json", data={"run": "x", "text": "y" * 1000}).status_code == 413
    reply = strict.post(
        "/ask/batch.json",
        content=pieces(),  # type: ignore[arg-type]
        headers={"Content-Type": "application/x-www-form-urlencoded"},
    )
    assert reply.status_code == 413
    assert "1,000 bytes" in reply.json()["error"]


def status_before_reading(length: bytes) -> int:
    """How a request with this Content-Length is refused, to the byte, before its body is read."""

    async def never(*_: object) -> None:
        raise AssertionError("nothing is read, and nobody is asked")

    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(b"host", b"127.0.0.1"), (b"content-length", length)]
    scope = {"type": "http", "method": "POST", "query_string": b"", "headers": headers}
    guard = Guard(never, limits=Limits(body=1000))  # type: ignore[arg-type]
    run(guard(scope, never, send))  # type: ignore[arg-type]
    return int(sent[0]["status"])


def test_a_body_that_is_announced_as_too_long_is_not_waited_for() -> None:
    assert status_before_reading(b"1001") == 413


@pytest.mark.parametrize("length", [b"-5", b"x", b"\xb2", b""])
def test_a_length_that_is_no_number_is_refused(length: bytes) -> None:
    assert status_before_reading(length) == 400


def test_a_long_address_is_refused(strict: TestClient) -> None:
    assert strict.get("/ask", params={"question": "x" * 600}).status_code == 414


@pytest.mark.parametrize("path", ["/runs", "/runs.json", "/nowhere", "/static/site.css", "/ask"])
def test_every_reply_carries_the_policy(strict: TestClient, path: str) -> None:
    headers = strict.get(path, headers=PAGE).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "unsafe-inline" not in policy
    assert "unsafe-eval" not in policy
    assert "http" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["cache-control"]


def test_what_was_asked_is_kept_nowhere(strict: TestClient) -> None:
    assert strict.get("/ask", headers=PAGE).headers["cache-control"] == "no-store"


def test_refusals_carry_it_too(strict: TestClient) -> None:
    reply = strict.get("/runs", headers={"Host": "evil.example"})
    assert "default-src 'none'" in reply.headers["content-security-policy"]


def test_pages_hold_no_script_or_style_of_their_own(strict: TestClient) -> None:
    import re

    for path in ("/ask", "/workbench", "/workbench/copy?formulas=q%3Dk_j", "/runs", "/report"):
        page = strict.get(path, headers=PAGE).text
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:", page)
        for attributes in re.findall(r"<script([^>]*)>", page):
            assert "src=" in attributes or "application/json" in attributes
        for address in re.findall(r'(?:src|href|action)="([^"]*)"', page):
            assert address.startswith(("/", "#")), address


def test_the_description_needs_nothing_from_elsewhere(strict: TestClient) -> None:
    assert strict.get("/docs").status_code == 404
    assert strict.get("/redoc").status_code == 404
    assert strict.get("/openapi.json").status_code == 200


def test_a_websocket_is_closed(strict: TestClient) -> None:
    from starlette.websockets import WebSocketDisconnect

    with pytest.raises(WebSocketDisconnect), strict.websocket_connect("/runs"):
        pass


def test_a_second_host_header_is_refused(strict: TestClient) -> None:
    reply = strict.get("/runs.json", headers=[("Host", "127.0.0.1"), ("Host", "evil.example")])
    assert reply.status_code == 403
