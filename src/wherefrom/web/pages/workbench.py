"""Workbench: sliders for the noisy keys, and the homework's problems as chapters with a box."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Request
from starlette.exceptions import HTTPException

from wherefrom.attention.checker.problems import PROBLEMS
from wherefrom.errors import UserError
from wherefrom.web.bench import DESIGNS, Setting, draw_length, work_out
from wherefrom.web.chapters import BY_NAME, CHAPTERS
from wherefrom.web.replies import html_and_json
from wherefrom.web.runs import Record
from wherefrom.web.state import site_of

router = APIRouter()
Design = Literal["one-head", "two-heads", "avoiding-head", "repelling-heads"]
CONTENTS = [{"name": each.problem, "part": each.part, "title": each.title} for each in CHAPTERS]


@html_and_json(router, "/workbench", "workbench.html")
async def workbench(
    request: Request,
    design: Annotated[Design, Query(description="how the two values are asked for")] = "one-head",
    n: Annotated[int, Query(ge=2, le=200, description="number of keys")] = 8,
    beta: Annotated[float, Query(ge=0, le=60, description="factor of the query")] = 10.0,
    alpha: Annotated[float, Query(ge=0, le=0.05, description="blur of every key")] = 0.0,
    stretch: Annotated[float, Query(ge=0, le=1, description="variance of key a's length")] = 0.5,
    heads: Annotated[int, Query(ge=1, le=4, description="number of heads")] = 1,
    e: Annotated[float, Query(ge=-1, le=3, description="length of key a just now")] = 1.3,
    seed: Annotated[int, Query(ge=0, le=1_000_000, description="decides the trials")] = 0,
) -> Record:
    """The weights under noisy keys: for one length of the key, by exact law, and by trials."""
    if design == "avoiding-head":
        n = max(3, n)
    if design == "repelling-heads":
        heads = 2
    elif design == "two-heads":
        heads = max(2, heads)
    setting = Setting(design, n, beta, alpha, stretch, min(heads, n), e, seed)
    return {
        "setting": vars(setting),
        "result": await site_of(request).computing.run(work_out, setting),
        "next_length": draw_length(stretch, seed + 1),
        "designs": DESIGNS,
        "chapters": CONTENTS,
    }


@html_and_json(router, "/workbench/{name}", "chapter.html", typed="formulas")
async def chapter(
    request: Request,
    name: Annotated[str, Path(max_length=60, description="the problem's name")],
    formulas: Annotated[
        str | None,
        Query(max_length=2_000, description="the construction, one formula a line"),
    ] = None,
) -> Record:
    """A chapter of the homework; what is written into `formulas` is checked."""
    if name not in BY_NAME:
        raise HTTPException(404)
    found = BY_NAME[name]
    at = CHAPTERS.index(found)
    shown = {key: value for key, value in vars(found).items() if key not in ("problem", "start")}
    verdict = None
    if formulas is not None:
        verdict = await site_of(request).computing.run(_check, name, formulas)
    return {
        "chapter": {"name": name, "write": found.write, **shown},
        "problem": PROBLEMS[name].to_dict(),
        "written": found.start if formulas is None else formulas,
        "verdict": verdict,
        "chapters": CONTENTS,
        "before": CHAPTERS[at - 1].problem if at else None,
        "after": CHAPTERS[at + 1].problem if at + 1 < len(CHAPTERS) else None,
    }


def _check(name: str, formulas: str) -> Record:
    from wherefrom.attention.checker.check import check

    lines = [line.strip() for line in formulas.replace(";", "\n").splitlines()]
    written = [line for line in lines if line]
    if not written:
        raise UserError("write a formula first, as in the example below the box.")
    return check(name, written).to_dict()
