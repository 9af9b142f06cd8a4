"""Listening: the socket of the page, or a sentence about why it cannot be had; and how it ends.

Ctrl-C ends the page at once. Whoever waits for an answer is not waited for: a thousand questions
may be under way, and a client that sends half of its body never comes to an end.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

import uvicorn
from fastapi import FastAPI

from wherefrom.errors import UserError


def listen(host: str, port: int) -> socket.socket:
    """A bound socket; port 0 takes any that is free."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        # named as TCP, or asyncio would leave Nagle's algorithm on: 40 ms a reply
        bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(128)  # from here on who comes early waits instead of being refused
    except (OSError, UnicodeError, OverflowError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise UserError(
            f"{host}:{port} cannot be listened on: {reason}; choose another --port."
        ) from None
    return bound


class _Server(uvicorn.Server):
    """Ends at the first signal, and remembers which it was."""

    told: int | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.told = sig
        self.should_exit = self.force_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()


def serve_until_told(app: FastAPI, bound: socket.socket, on_exit: Callable[[], None]) -> NoReturn:
    """Answer until a signal comes, then say farewell and end this process with 128 + the signal.

    The process is left without waiting for its threads: none of them holds anything that would be
    lost. `farewell` is the place to wait for what must not be cut short.
    """
    config = uvicorn.Config(
        app, log_level="warning", server_header=False, timeout_keep_alive=30, lifespan="off"
    )
    server = _Server(config)

    async def serve() -> None:
        await server.serve(sockets=[bound])
        on_exit()
        sys.stderr.flush()
        os._exit(1 if server.told is None else 128 + server.told)

    asyncio.run(serve())
    raise AssertionError("the server has left already")
