"""Who is refused before anything is looked at, and what every reply carries."""

from __future__ import annotations

import asyncio
import re

import pytest
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect
from web_samples import LOCAL, PAGE, open_client, run

from wherefrom.web import guard
from wherefrom.web.app import create_app

CROSS, SAME = [("Sec-Fetch-Site", "cross-site")], [("Sec-Fetch-Site", "same-site")]
LINK = [("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "document")]
FRAME = [("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "iframe")]
FOREIGN_HOSTS = (
    "evil.example",
    "evil.example:8765",
    "127.0.0.1.evil.example",
    "localhost.evil.example",
    "127.0.0.1@evil.example",
    "evil@127.0.0.1",
    "",
    "127.0.0.1:99999999",
    "[::1",
    "127.0.0.1/x",
    "0.0.0.0",
)
FOREIGN_ORIGINS = (
    "https://evil.example",
    "null",
    "http://127.0.0.1:9999",
    "http://localhost:8765",
    "http://127.0.0.1:8765.evil.example",
    "http://[::1",
    "",
)


@pytest.fixture(scope="module")
def strict(tmp_path_factory):
    return open_client(tmp_path_factory.mktemp("empty"))


@pytest.mark.parametrize(
    "headers",
    [
        *([("Host", host)] for host in FOREIGN_HOSTS),
        *([("Origin", origin)] for origin in FOREIGN_ORIGINS),
        [("Host", "127.0.0.1"), ("Host", "evil.example")],
        [*CROSS, ("Sec-Fetch-Mode", "no-cors")],
        *([*site, *FRAME] for site in (CROSS, SAME)),
    ],
)
def test_foreign_names_and_sites_are_refused(strict, headers):
    for method in ("GET", "POST"):
        reply = strict.request(method, "/runs.json", headers=headers)
        assert (reply.status_code, set(reply.json())) == (403, {"error"})
        assert "default-src 'none'" in reply.headers["content-security-policy"]


@pytest.mark.parametrize(
    "headers",
    [
        *([("Host", host)] for host in ("127.0.0.1", "127.0.0.1:12", "localhost:8765", "[::1]:8")),
        [("Origin", LOCAL)],
        *([*site, *LINK] for site in (CROSS, SAME)),
    ],
)
def test_this_machine_is_served_and_a_link_may_lead_here(strict, headers):
    assert strict.get("/runs.json", headers=headers).status_code == 200


def test_another_site_may_not_send_a_form_and_a_named_host_is_allowed(strict, tmp_path):
    assert strict.post("/runs/stop", headers=[*CROSS, *LINK]).status_code == 403
    client = TestClient(create_app(tmp_path, hosts=["lab.example"]), base_url="http://lab.example")
    assert client.get("/runs.json").status_code == 200


def test_too_much_is_refused(strict, monkeypatch):
    monkeypatch.setattr(guard, "MAX_BODY_BYTES", 1000)
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    pieces = (b"x" * 100 for _ in range(20))  # without a Content-Length
    for content in (b"x" * 1001, pieces):
        reply = strict.post("/ask/batch.json", content=content, headers=form)
        assert (reply.status_code, reply.headers["connection"]) == (413, "close")
        assert "1,000 bytes" in reply.json()["error"]
    assert strict.get("/ask", params={"question": "x" * guard.MAX_ADDRESS_BYTES}).status_code == 414


def test_a_body_that_does_not_arrive_is_given_up(strict, monkeypatch):
    monkeypatch.setattr(guard, "BODY_SECONDS", 0.1)

    async def never():
        await asyncio.sleep(60)

    async def send(message):
        sent.append(message)

    sent = []
    scope = {"type": "http", "method": "POST", "query_string": b"", "path": "/ask/batch.json"}
    kind = b"application/x-www-form-urlencoded"
    scope["headers"] = [(b"host", b"127.0.0.1"), (b"content-type", kind)]
    run(strict.app(scope, never, send))
    assert sent[0]["status"] == 408


@pytest.mark.parametrize("path", ["/runs", "/runs.json", "/nowhere", "/static/site.css", "/ask"])
def test_every_reply_carries_the_policy(strict, path):
    headers = strict.get(path, headers=PAGE).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert not re.search("unsafe-inline|unsafe-eval|http", policy)
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["cache-control"] == "no-store" or path.startswith("/static")


def test_a_failure_of_ours_carries_the_policy_and_tells_nothing(tmp_path, monkeypatch):
    client = open_client(tmp_path)
    monkeypatch.setattr(client.app.state.site.index, "runs", lambda: 1 / 0)
    reply = client.get("/runs", headers=PAGE)
    assert reply.status_code == 500
    assert "default-src 'none'" in reply.headers["content-security-policy"]
    assert 'role="alert"' in reply.text
    assert "division" not in reply.text
    assert set(client.get("/runs.json").json()) == {"error"}


def test_pages_hold_no_script_or_style_of_their_own(strict):
    for path in ("/ask", "/workbench", "/workbench/copy?formulas=q%3Dk_j", "/runs", "/report"):
        page = strict.get(path, headers=PAGE).text
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:", page)
        for attributes in re.findall(r"<script([^>]*)>", page):
            assert "src=" in attributes or "application/json" in attributes
        for address in re.findall(r'(?:src|href|action)="([^"]*)"', page):
            assert address.startswith(("/", "#")), address


def test_nothing_from_elsewhere_and_no_websocket(strict):
    found = [strict.get(path).status_code for path in ("/docs", "/redoc", "/openapi.json")]
    assert found == [404, 404, 200]
    with pytest.raises(WebSocketDisconnect), strict.websocket_connect("/runs"):
        pass
