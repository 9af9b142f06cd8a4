"""The application: pages, their JSON, static files, the guard around them; and serving it."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path
from types import FrameType

import uvicorn
from fastapi import FastAPI
from fastapi.responses import FileResponse, RedirectResponse, Response
from starlette.staticfiles import StaticFiles

from wherefrom.errors import UserError
from wherefrom.web import ask, records, workbench
from wherefrom.web.connections import MAX_NEW_CONNECTIONS, BoundedProtocol
from wherefrom.web.guard import Guard
from wherefrom.web.replies import ERRORS, HANDLED, Site, find_plotly, reply_to_error
from wherefrom.web.runs import RunIndex
from wherefrom.web.workers import end_all, start_fork_server

ABOUT = (
    "Every page of Wherefrom as JSON: ask a trained model and learn where its answers come from, "
    "work out attention under noisy keys, look inside a model, and train."
)


def create_app(folder: str | Path, *, hosts: Iterable[str] = ()) -> FastAPI:
    """The page over one run or a folder of runs, answering under `hosts` and loopback names."""
    app = FastAPI(
        title="Wherefrom",
        version=version("wherefrom"),
        description=ABOUT,
        docs_url=None,  # these load scripts from elsewhere
        redoc_url=None,
        responses=ERRORS,
        exception_handlers=dict.fromkeys(HANDLED, reply_to_error),
    )
    app.state.site = Site(RunIndex(folder))
    for pages in (ask, workbench, records):
        app.include_router(pages.router)

    @app.get("/", include_in_schema=False)
    async def start() -> Response:
        return RedirectResponse("/ask", status_code=307)

    @app.get("/static/plotly.min.js", include_in_schema=False)
    async def drawing_library() -> Response:
        headers = {"Cache-Control": "max-age=86400"}
        return FileResponse(find_plotly(), media_type="text/javascript", headers=headers)

    app.mount("/static", StaticFiles(directory=Path(__file__).parent / "static"), name="static")
    app.add_middleware(Guard, hosts=frozenset(hosts))
    return app


def listen(host: str, port: int) -> socket.socket:
    """A bound socket, or a sentence about why there is none; port 0 takes any that is free."""
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = addresses[0]
        # named as TCP, or asyncio would leave Nagle's algorithm on: 40 ms a reply
        bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(MAX_NEW_CONNECTIONS)  # from here on a client waits instead of being refused
        return bound
    except (OSError, UnicodeError, OverflowError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        sentence = f"{host}:{port} cannot be listened on: {reason}; choose another --port."
        raise UserError(sentence) from None


class _Server(uvicorn.Server):
    """Ends the process at the first signal, with 128 + the signal as its exit code.

    Clients, threads and workers hold nothing that would be lost, and are not waited for.
    """

    on_exit: Callable[[], None]

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # not inside the signal handler, which may interrupt a write to stderr
        asyncio.get_running_loop().call_soon_threadsafe(self._end, sig)

    def _end(self, sig: int) -> None:
        self.on_exit()
        end_all()
        sys.stderr.flush()
        os._exit(128 + sig)


def serve_until_signal(app: FastAPI, bound: socket.socket, on_exit: Callable[[], None]) -> None:
    """Answer until a signal comes, call `on_exit`, and end this process."""
    start_fork_server()
    config = uvicorn.Config(
        app,
        http=BoundedProtocol,
        backlog=MAX_NEW_CONNECTIONS,
        log_level="error",  # not a line for every request that is no HTTP
        server_header=False,
        timeout_keep_alive=30,
        lifespan="off",
        ws="none",
    )
    server = _Server(config)
    server.on_exit = on_exit
    server.run(sockets=[bound])
