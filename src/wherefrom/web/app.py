"""The application: pages, their JSON twins, static files, and the guard around all of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import FileResponse, RedirectResponse, Response
from starlette.staticfiles import StaticFiles

from wherefrom.web.guard import Guard, Limits
from wherefrom.web.pages import api, ask, inside, report, runs, workbench
from wherefrom.web.replies import ERRORS, PLOTLY, install_error_handlers
from wherefrom.web.runs import RunIndex
from wherefrom.web.state import Lab

ABOUT = (
    "Every page of Wherefrom as JSON: ask a trained model and learn where its answers come from, "
    "work out attention under noisy keys, look inside a model, and train."
)


def create_app(
    folder: str | Path, *, hosts: Iterable[str] = (), limits: Limits | None = None
) -> FastAPI:
    """The page over one run or a folder of runs, answering under `hosts` and loopback names."""
    limits = limits or Limits()
    lab = Lab.on(RunIndex(folder), limits)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        lab.close()

    app = FastAPI(
        title="Wherefrom",
        version=version("wherefrom"),
        description=ABOUT,
        docs_url=None,  # the usual ones load scripts from elsewhere; /api is ours
        redoc_url=None,
        responses=ERRORS,
        lifespan=lifespan,
    )
    app.state.lab = lab
    install_error_handlers(app)
    for page in (ask, workbench, inside, runs, report, api):
        app.include_router(page.router)

    @app.get("/", include_in_schema=False)
    async def start() -> Response:
        return RedirectResponse("/ask", status_code=307)

    @app.get("/static/plotly.min.js", include_in_schema=False)
    async def drawing_library() -> Response:
        headers = {"Cache-Control": "max-age=86400"}
        return FileResponse(PLOTLY, media_type="text/javascript", headers=headers)

    app.mount("/static", StaticFiles(directory=Path(__file__).parent / "static"), name="static")
    app.add_middleware(Guard, hosts=frozenset(hosts), limits=limits)
    return app
