"""What is refused before a page looks at a request: foreign names, foreign sites, too much.

The server is for one machine. A site elsewhere can point its own name at 127.0.0.1, or make a
visitor's browser send requests here; the Host, Origin and Sec-Fetch headers show both.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from contextlib import suppress

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from wherefrom.report.study_report import hash_for_policy

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
MAX_BODY_BYTES = 1_000_000
MAX_UPLOAD_BYTES = 64_000_000  # of a text to learn from
MAX_ADDRESS_BYTES = 8_000  # of path and query together
BODY_SECONDS = 60.0  # in which a body has to arrive

# The style attributes that plotly.js writes (for bold, italic and lowered text in labels, and to
# clear one), allowed by their hashes: exactly this text as an attribute and nothing else.
PLOTLY_STYLES = ("", "font-weight:bold", "font-style:italic", "font-size:70%")
PLOTLY_HASHES = " ".join(map(hash_for_policy, PLOTLY_STYLES))
# Scripts, styles and pictures come from this server only, and none is written inside a page.
# plotly.js needs two exceptions: pictures as data: (its maps), and the attributes above; its style
# element is replaced by /static/plotly.css.
POLICY = (
    "default-src 'none'; script-src 'self'; "
    f"style-src 'self' 'unsafe-hashes' {PLOTLY_HASHES}; img-src 'self' data:; connect-src 'self'; "
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


class Guard:
    """Middleware around every page: checks the sender, limits the body, adds the headers."""

    def __init__(self, app: ASGIApp, hosts: Iterable[str] = ()) -> None:
        self.app = app
        names = [f"[{host}]" if ":" in host else host for host in LOOPBACK.union(hosts)]
        self.own_host = re.compile(rf"({'|'.join(map(re.escape, names))})(:\d{{1,5}})?", re.I)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # no page uses a WebSocket, and the router closes them
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            self._check_sender(Request(scope))
        except HTTPException as refusal:
            reply = JSONResponse({"error": refusal.detail}, refusal.status_code, refusal.headers)
            await reply(scope, receive, send_with_headers)
        else:
            await self._answer(scope, Body(scope, receive), send_with_headers)

    async def _answer(self, scope: Scope, body: Body, send: Send) -> None:
        """Let the page answer; what it does for the reply ends when the client has gone."""
        answering = asyncio.ensure_future(self.app(scope, body.receive, send))
        watching = asyncio.ensure_future(body.wait_for_disconnect())
        try:
            await asyncio.wait({answering, watching}, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                answering.cancel()
            with suppress(asyncio.CancelledError):
                await answering
        finally:
            answering.cancel()
            watching.cancel()

    def _check_sender(self, request: Request) -> None:
        """Refuse a request under a foreign name, or from another site unless it follows a link."""
        headers, scope = request.headers, request.scope
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self.own_host.fullmatch(hosts[0]):
            raise HTTPException(
                403, "This page answers only under the name of its own machine, such as 127.0.0.1."
            )
        own_origins = {f"{scheme}://{hosts[0].lower()}" for scheme in ("http", "https")}
        if not own_origins.issuperset(map(str.lower, headers.getlist("origin"))):
            raise HTTPException(403, "This request comes from another site, and is refused.")
        follows_link = scope["method"] in ("GET", "HEAD") and (
            headers.get("sec-fetch-mode") == "navigate"
            and headers.get("sec-fetch-dest", "document") == "document"
        )
        if headers.get("sec-fetch-site") in ("cross-site", "same-site") and not follows_link:
            raise HTTPException(403, "This request was made by another site, and is refused.")
        if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > MAX_ADDRESS_BYTES:
            most = f"An address may have {MAX_ADDRESS_BYTES:,} bytes, and this one has more."
            raise HTTPException(414, most)


class Body:
    """The body of a request, which is refused if it is too long or arrives too slowly.

    The error closes the connection, since what is left of the body is not read.
    """

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._receive = receive
        is_upload = scope["path"].startswith("/runs/text")
        self._max_bytes = MAX_UPLOAD_BYTES if is_upload else MAX_BODY_BYTES
        self._received_bytes = 0
        self._deadline = asyncio.get_running_loop().time() + BODY_SECONDS
        self._is_empty = scope["method"] in ("GET", "HEAD")  # whatever the client sends
        self._has_arrived = asyncio.Event()
        self._has_gone = asyncio.Event()

    async def receive(self) -> Message:
        """The next part of the body; after the last one, that the client has gone."""
        if self._has_arrived.is_set():
            await self._has_gone.wait()
            return {"type": "http.disconnect"}
        if self._is_empty:
            self._has_arrived.set()
            return {"type": "http.request", "body": b"", "more_body": False}
        close = {"Connection": "close"}
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            raise HTTPException(
                408, "The body of this request took too long to arrive.", close
            ) from None
        self._received_bytes += len(message.get("body", b""))
        if self._received_bytes > self._max_bytes:
            raise HTTPException(
                413,
                f"A request may carry {self._max_bytes:,} bytes, and this one carries more.",
                close,
            )
        if not message.get("more_body"):
            self._has_arrived.set()
        return message

    async def wait_for_disconnect(self) -> None:
        """Return when the client has gone; nothing is read before the body has arrived."""
        if not self._is_empty:
            await self._has_arrived.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._has_gone.set()
