"""What is refused before a page looks at a request: foreign names, foreign sites, too much.

The server is for one machine. A site elsewhere can point its own name at 127.0.0.1, or have a
visitor's browser send requests here; both are known by their Host, Origin and Sec-Fetch headers.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
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
POLICY = (
    "default-src 'none'; script-src 'self'; "
    f"style-src 'self' 'unsafe-hashes' {HASHES}; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; form-action 'self'; frame-src 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True)
class Limits:
    """How much one request, and all of them together, may ask for."""

    body: int = 1_000_000  # bytes
    upload: int = 64_000_000  # bytes of a text to learn from
    address: int = 8_000  # bytes of path and query together
    batch: int = 1_000  # questions
    waiting: int = 256  # questions that wait for the model
    heavy: int = 2  # checks, laws, reports and lists of runs that are worked on at once
    heavy_waiting: int = 32
    body_seconds: float = 60.0  # to send a body in


class Guard:
    """Middleware around everything: who asks, under which name, how much; and the headers.

    on_error: makes the reply to a failure of ours, so that it has the headers too.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: Iterable[str] = (),
        limits: Limits | None = None,
        on_error: Callable[[Request, Exception], Awaitable[Response]] | None = None,
    ) -> None:
        self.app = app
        self.hosts = LOOPBACK | {host.lower() for host in hosts}
        self.limits = limits or Limits()
        self.on_error = on_error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # no page uses a WebSocket
            await send({"type": "websocket.close", "code": 1008})
            return
        begun = False

        async def send_with_headers(message: Message) -> None:
            nonlocal begun
            begun = True
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        request = Request(scope, receive)
        try:
            self._check_sender(request)
            body = await self._read_body(request)
        except HTTPException as refusal:
            # the connection is closed, since what is left of the body is not read
            headers = {"Connection": "close"}
            reply = JSONResponse({"error": refusal.detail}, refusal.status_code, headers)
            await reply(scope, receive, send_with_headers)
            return
        messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive_body() -> Message:
            return messages.pop() if messages else await receive()

        try:
            await self.app(scope, receive_body, send_with_headers)
        except Exception as problem:
            if self.on_error is not None and not begun:
                failure = await self.on_error(request, problem)
                await failure(scope, receive, send_with_headers)
            raise  # into the server's log

    def _check_sender(self, request: Request) -> None:
        """Refuse a request under a foreign name, or from another site unless it follows a link."""
        headers, scope, most = request.headers, request.scope, self.limits.address
        names = headers.getlist("host")
        if len(names) != 1 or not self._is_ours(f"//{names[0]}"):
            raise HTTPException(
                403, "This page answers only under the name of its own machine, such as 127.0.0.1."
            )
        own = names[0].lower()
        for origin in headers.getlist("origin"):
            if not self._is_ours(origin) or urlsplit(origin).netloc.lower() != own:
                raise HTTPException(403, "This request comes from another site, and is refused.")
        follows_link = scope["method"] in ("GET", "HEAD") and (
            headers.get("sec-fetch-mode") == "navigate"
            and headers.get("sec-fetch-dest", "document") == "document"
        )
        if headers.get("sec-fetch-site") in ("cross-site", "same-site") and not follows_link:
            raise HTTPException(403, "This request was made by another site, and is refused.")
        if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > most:
            raise HTTPException(414, f"An address may have {most:,} bytes, and this one has more.")

    def _is_ours(self, address: str) -> bool:
        """Whether an address is one of our hosts, with or without a port, and nothing else."""
        try:
            parts = urlsplit(address)
            host, _ = parts.hostname, parts.port
        except ValueError:
            return False
        rest = parts.username is not None or parts.path.strip("/") or parts.query or parts.fragment
        return host in self.hosts and not rest

    async def _read_body(self, request: Request) -> bytes:
        """The whole body, as long as it is no longer than allowed."""
        uploads = request.scope["path"].startswith("/runs/text")
        most = self.limits.upload if uploads else self.limits.body
        length = request.headers.get("content-length", "0")
        too_long = f"A request may carry {most:,} bytes, and this one carries more."
        if not length.isascii() or not length.isdigit():
            raise HTTPException(400, "The Content-Length of this request is not a number.")
        if int(length) > most:
            raise HTTPException(413, too_long)
        if length == "0" and "transfer-encoding" not in request.headers:
            return b""
        body = bytearray()
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                async for piece in request.stream():
                    body += piece
                    if len(body) > most:
                        raise HTTPException(413, too_long)
        except TimeoutError:
            raise HTTPException(408, "The body of this request took too long to arrive.") from None
        except ClientDisconnect:
            raise HTTPException(400, "The request ended before its body did.") from None
        return bytes(body)
