"""Deadlines for connections: heads that do not arrive, and replies that are not read.

uvicorn has neither, and a client that sends half a head would hold a file of the server for ever.
"""

from __future__ import annotations

import asyncio
from typing import cast

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 10.0  # in which the head of a request has to arrive
WRITE_SECONDS = 60.0  # for which a client may leave a reply unread
MAX_CONNECTIONS = 512  # half of the usual limit of open files
MAX_NEW_CONNECTIONS = 128  # that are taken at once, before the limit above is looked at


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 with deadlines, and a limit beyond which the oldest waiting connection is ended."""

    waiting_since = 0.0
    _head_deadline: asyncio.TimerHandle | None = None
    _write_deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.waiting_since = self.loop.time()
        self._head_deadline = self.loop.call_later(HEAD_SECONDS, transport.abort)
        connections = cast("set[BoundedProtocol]", self.connections)
        still_open = [each for each in connections if not each.transport.is_closing()]
        if len(still_open) > MAX_CONNECTIONS:
            waiting = [each for each in still_open if each.is_waiting]
            oldest = min(waiting, key=lambda each: each.waiting_since)  # at the latest this one
            oldest.transport.abort()

    @property
    def is_waiting(self) -> bool:
        """Whether the client has to send something before there is anything to answer."""
        return self.cycle is None or self.cycle.more_body or self.cycle.response_complete

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        is_between_requests = self.cycle is None or self.cycle.response_complete
        if not is_between_requests:
            self._cancel_head_deadline()
        elif self._head_deadline is None:
            self.waiting_since = self.loop.time()
            self._head_deadline = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_deadline = self.loop.call_later(WRITE_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._cancel_write_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_head_deadline()
        self._cancel_write_deadline()
        super().connection_lost(exc)

    def _cancel_head_deadline(self) -> None:
        if self._head_deadline is not None:
            self._head_deadline.cancel()
            self._head_deadline = None

    def _cancel_write_deadline(self) -> None:
        if self._write_deadline is not None:
            self._write_deadline.cancel()
            self._write_deadline = None
