"""What all pages share: the state of the server, and replies as a dictionary first.

`.json` gives the dictionary of a page as it is, the same address without renders it. Everything
that is put into a page is escaped by the template engine, always; data for the scripts travels in
blocks of JSON in which no character can end the block. Errors have one shape, {"error": a
sentence}, and one page.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from markupsafe import Markup, escape
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from wherefrom.errors import UserError
from wherefrom.report.study_report import make_environment
from wherefrom.web.guard import HEADERS
from wherefrom.web.models import Models
from wherefrom.web.runs import Record, RunIndex, Stamp, UnknownRunError
from wherefrom.web.trainings import Trainings
from wherefrom.web.workers import BusyError, Workers

Endpoint = Callable[..., Awaitable[Record]]


class Site:
    """The runs, the loaded models, the trainings, and the processes that work."""

    def __init__(self, index: RunIndex) -> None:
        self.index = index
        self.models = Models(index)
        self.trainings = Trainings(index)
        self.computing = Workers(3, waiting=32)  # checks, laws and drawings of the workbench
        self.preparing = Workers(2, waiting=8)  # reports, uploaded texts
        self.reports: dict[Path, tuple[Stamp, Record | None]] = {}  # by the run's folder


async def site_of(request: Request) -> Site:  # a plain function would run in a thread
    site = request.app.state.site
    assert isinstance(site, Site)
    return site


TheSite = Annotated[Site, Depends(site_of)]  # the parameter of an endpoint that needs it


# ---- numbers and words in templates


def percent(share: float | None, digits: int = 0) -> str:
    """0.935 -> 94 %."""
    return "" if share is None else f"{100 * share:.{digits}f} %"


def duration(seconds: float | None) -> str:
    """100 -> 1.7 min."""
    if seconds is None:
        return ""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def significant(value: Any, digits: int = 3) -> str:
    """A number to a few digits; anything else as it is."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "" if value is None else str(value)
    if isinstance(value, int) or value == 0:
        return f"{value:,.0f}"
    return f"{value:.{digits}g}" if abs(value) >= 1e-4 else f"{value:.1e}"


GREEK = {"mu": "μ", "beta": "β", "alpha": "α", "Sigma": "Σ", "eps": "ε", "theta": "θ", "pi": "π"}


def maths(text: str) -> Markup:
    """Our plain spelling of mathematics as it is usually set: k_a, A^T, beta, >=."""
    safe = str(escape(text))
    safe = re.sub(rf"\b({'|'.join(GREEK)})(?=\b|_)", lambda m: GREEK[m[1]], safe)
    safe = re.sub(r"(?<![A-Za-z])([A-Za-zμΣ])_([a-z0-9])\b", r"<i>\1</i><sub>\2</sub>", safe)
    safe = re.sub(r"\^\(([^()]*)\)", r"<sup>\1</sup>", safe)
    safe = re.sub(r"\^(-?[A-Za-z0-9β]+)", r"<sup>\1</sup>", safe)
    for plain, sign in (("&gt;=", "≥"), ("&lt;=", "≤"), ("-&gt;", "→"), (" . ", " · ")):
        safe = safe.replace(plain, sign)
    safe = re.sub(r"</sub>\.(?=\w)", "</sub> · ", safe)
    return Markup(re.sub(r"(?<=[ (\d])-(?=[ \dβ<])", "−", safe))


def formula(text: str) -> Markup:
    """A formula of the expression language as it is usually set: beta*(k_a+k_b), A@A.T."""
    plain = re.sub(r"\.T\b", "^T", text).replace("**", "^").replace("@", " ")
    plain = re.sub(r"\bvar_(\w+)", r"Var(\1)", re.sub(r"\s*\*\s*", " ", plain))
    return maths(re.sub(r"\b([a-zA-Z])([0-9])\b", r"\1_\2", plain))


def find_plotly() -> Path:
    """The drawing library that the pages load, as the package plotly brings it."""
    spec = find_spec("plotly")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "package_data" / "plotly.min.js"


@cache
def find_unwanted_styles() -> list[str]:
    """Ids of style elements that the drawing library adds unless there is an element of that id.

    The page's policy would refuse them, and nothing here draws the kinds of map that they are for.
    """
    script = find_plotly().read_text(encoding="utf-8")
    return sorted(set(re.findall(r'getElementById\("([0-9a-f]{64})"\)', script)))


TEMPLATES = make_environment(
    "wherefrom.web",
    "wherefrom.report",
    duration=duration,
    formula=formula,
    maths=maths,
    percent=percent,
    significant=significant,
)
TEMPLATES.globals["find_unwanted_styles"] = find_unwanted_styles


# ---- replies


def render(
    template: str, record: Record, *, status: int = 200, tab: str = "", mistake: str | None = None
) -> HTMLResponse:
    """The record as a page; `tab` is the part of the site that it belongs to."""
    text = TEMPLATES.get_template(template).render(page=record, tab=tab, mistake=mistake)
    return HTMLResponse(text, status_code=status)


def html_and_json(
    router: APIRouter,
    path: str,
    template: str = "",
    *,
    method: str = "GET",
    typed: str = "",
    redirect: str = "",
) -> Callable[[Endpoint], Endpoint]:
    """Serve the dictionary of a function at `path`.json, and rendered by `template` at `path`.

    A mistake in the parameter `typed` is shown on the page that it was typed into; programs get
    the error. With `redirect` the page does what it was sent for and leads there.
    """
    tag = path.split("/")[1]

    def add(function: Endpoint) -> Endpoint:
        async def as_html(**arguments: Any) -> Response:
            mistake, status = None, 200
            try:
                record = await function(**arguments)
            except UserError as problem:
                if isinstance(problem, UnknownRunError) or arguments.get(typed) is None:
                    raise
                mistake, status = capitalise(str(problem)), 400
                record = await function(**{**arguments, typed: None})
                record["written"] = arguments[typed]
            if redirect:
                return RedirectResponse(redirect.format(**record), status_code=303)
            return render(template, record, status=status, tab=tag, mistake=mistake)

        async def as_json(**arguments: Any) -> Response:
            return JSONResponse(await function(**arguments))

        for endpoint in (as_html, as_json):
            endpoint.__signature__ = inspect.signature(function, eval_str=True)  # type: ignore[attr-defined]
        as_json.__name__, as_json.__doc__ = function.__name__, function.__doc__
        summary = (inspect.getdoc(function) or "").partition("\n")[0]
        # the JSON before the page, whose {name} would take "x.json" for a name
        router.add_api_route(
            f"{path}.json",
            as_json,
            methods=[method],
            tags=[tag],
            summary=summary,
            response_model=Record,
        )
        router.add_api_route(path, as_html, methods=[method], include_in_schema=False)
        return function

    return add


class ErrorShape(BaseModel):
    """What every error is."""

    error: str = Field(description="What was expected, what came, and what to do, as a sentence.")


ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": ErrorShape, "description": "What was asked for is not there or not allowed."},
    "503": {"model": ErrorShape, "description": "Too much is asked at once; try again."},
}
HANDLED = (UserError, HTTPException, RequestValidationError, BusyError, Exception)
SENTENCES = {
    404: "There is no such page.",
    405: "This address does not take that method.",
    500: "Something went wrong on our side; the server's log says what.",
    503: "Too much is being asked of this page at once; try again in a moment.",
}


def capitalise(text: str) -> str:
    """A message that follows "wherefrom:" on the command line, as a sentence of its own."""
    first = text.split(" ")[0]
    return text[0].upper() + text[1:] if len(first) > 1 and first.isalpha() else text


async def reply_to_error(request: Request, problem: Exception) -> Response:
    """Every error in one shape: JSON for programs, a page for people."""
    status, sentence, headers = 500, "", {}
    if isinstance(problem, UserError):
        status = 404 if isinstance(problem, UnknownRunError) else 400
        sentence = capitalise(str(problem))
    elif isinstance(problem, HTTPException):
        status, headers = problem.status_code, dict(problem.headers or {})
        sentence = SENTENCES.get(status, problem.detail)
    elif isinstance(problem, RequestValidationError):
        status, sentence = 422, _say_invalid(problem.errors()[0])
    elif isinstance(problem, BusyError):
        status, headers = 503, {"Retry-After": "1"}
    sentence = sentence or SENTENCES[status]
    reply: Response = JSONResponse({"error": sentence}, status_code=status)
    wants_page = "text/html" in request.headers.get("accept", "")
    if wants_page and not request.url.path.endswith(".json"):
        reply = render("error.html", {"error": sentence, "status": status}, status=status)
    # the guard does not see the reply to an internal error, which needs its headers too
    reply.headers.update(HEADERS | headers)
    return reply


def _say_invalid(error: Record) -> str:
    """What a request lacks or has wrong, as a sentence that names it and says what came."""
    where = ".".join(str(part) for part in error["loc"][1:])
    named = f'"{where}"' if where else "the body"
    if error["type"] == "missing":
        return f"The request needs {named}, which was not given."
    reason = error["msg"].removeprefix("Value error, ").removesuffix(".")
    reason = re.sub("^Input ", "it ", reason)
    came = error.get("input")
    shown = f"; it was {came!r:.80}" if isinstance(came, str | int | float) else ""
    return f"Something is wrong with {named}: {reason}{shown}."[:500]
