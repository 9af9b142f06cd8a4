"""What is refused before a page looks at a request: foreign names, foreign sites, too much.

The server is for one machine. A site elsewhere can point its own name at 127.0.0.1, or have a
visitor's browser send requests here; both are known by their Host, Origin and Sec-Fetch headers.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})

# The style attributes that plotly.js writes (for bold, italic and lowered text in labels, and to
# clear one), let through by their hashes: this very text as an attribute and nothing else.
ATTRIBUTES = ("", "font-weight:bold", "font-style:italic", "font-size:70%")
HASHES = " ".join(
    f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}'"
    for text in ATTRIBUTES
)
# Scripts, styles and pictures come from here and nowhere else, and none of them is written inside
# a page. For plotly.js two things are loosened: pictures as data: (its maps), and the attributes
# above; its style element is replaced by /static/plotly.css.
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        f"style-src 'self' 'unsafe-hashes' {HASHES}",
        "img-src 'self' data:",
        "connect-src 'self'",
        "font-src 'self'",
        "form-action 'self'",
        "frame-src 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}


@dataclass(frozen=True)
class Limits:
    """How much one request, and all of them together, may ask for."""

    body: int = 1_000_000  # bytes
    address: int = 8_000  # bytes of path and query together
    question: int = 300  # characters
    batch: int = 1_000  # questions
    waiting: int = 256  # questions that wait for the model
    together: int = 64  # questions that go through the model at once
    heavy: int = 2  # checks, laws, reports and lists of runs that are worked on at once
    heavy_waiting: int = 32
    body_seconds: float = 20.0  # to send a body in


class RefusedError(Exception):
    """A request that is not served, with the reason as a sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Guard:
    """Middleware around everything: who asks, under which name, how much; and the headers."""

    def __init__(self, app: ASGIApp, *, hosts: Iterable[str] = (), limits: Limits | None = None):
        self.app = app
        self.hosts = LOOPBACK | {host.lower() for host in hosts}
        self.limits = limits or Limits()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # no page uses a WebSocket
            await send({"type": "websocket.close", "code": 1008})
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        try:
            self._check_sender(scope)
            body = await self._read_body(scope, receive)
        except RefusedError as refusal:
            # the connection is closed, since what is left of the body is not read
            headers = {"Connection": "close"}
            reply = JSONResponse({"error": str(refusal)}, refusal.status, headers)
            await reply(scope, receive, send_with_headers)
            return
        messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive_body() -> Message:
            return messages.pop() if messages else await receive()

        await self.app(scope, receive_body, send_with_headers)

    def _check_sender(self, scope: Scope) -> None:
        """Refuse a request under a foreign name, or from another site unless it follows a link."""
        headers = Headers(scope=scope)
        names = headers.getlist("host")
        if len(names) != 1 or self._host_of(f"//{names[0]}") is None:
            raise RefusedError(
                403, "This page answers only under the name of its own machine, such as 127.0.0.1."
            )
        own = names[0].lower()
        for origin in headers.getlist("origin"):
            if self._host_of(origin) is None or urlsplit(origin).netloc.lower() != own:
                raise RefusedError(403, "This request comes from another site, and is refused.")
        site = headers.get("sec-fetch-site", "same-origin")
        follows_link = scope["method"] in ("GET", "HEAD") and (
            headers.get("sec-fetch-mode") == "navigate"
            and headers.get("sec-fetch-dest", "document") == "document"
        )
        if site in ("cross-site", "same-site") and not follows_link:
            raise RefusedError(403, "This request was made by another site, and is refused.")
        if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > self.limits.address:
            raise RefusedError(
                414, f"An address may have {self.limits.address:,} bytes, and this one has more."
            )

    def _host_of(self, address: str) -> str | None:
        """The host of an address if it is one of ours."""
        try:
            parts = urlsplit(address)
            host, _ = parts.hostname, parts.port
        except ValueError:
            return None
        if parts.username is not None or parts.path.strip("/") or parts.query or parts.fragment:
            return None
        return host if host in self.hosts else None

    async def _read_body(self, scope: Scope, receive: Receive) -> bytes:
        """The whole body, as long as it is no longer than allowed."""
        most, headers = self.limits.body, Headers(scope=scope)
        too_long = RefusedError(
            413, f"A request may carry {most:,} bytes, and this one carries more."
        )
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit():
            raise RefusedError(400, "The Content-Length of this request is not a number.")
        if int(length) > most:
            raise too_long
        if length == "0" and "transfer-encoding" not in headers:
            return b""
        body = bytearray()
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise RefusedError(400, "The request ended before its body did.")
                    body += message.get("body", b"")
                    if len(body) > most:
                        raise too_long
                    if not message.get("more_body", False):
                        return bytes(body)
        except TimeoutError:
            raise RefusedError(408, "The body of this request took too long to arrive.") from None
