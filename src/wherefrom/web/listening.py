"""The socket that the page listens on, or a sentence about why it cannot be had."""

from __future__ import annotations

import socket

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
    except (OSError, UnicodeError, OverflowError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise UserError(
            f"{host}:{port} cannot be listened on: {reason}; choose another --port."
        ) from None
    return bound
