"""Workbench: sliders for the noisy keys, and the homework's problems as chapters with a box."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from wherefrom.attention.checker.problems import PROBLEMS
from wherefrom.errors import UserError
from wherefrom.web.bench import DESIGNS, Setting, draw_length, work_out
from wherefrom.web.chapters import BY_NAME, CHAPTERS, Chapter
from wherefrom.web.replies import Record, twin
from wherefrom.web.state import lab_of

router = APIRouter(tags=["workbench"])
Design = Literal["one-head", "two-heads", "avoiding-head", "repelling-heads"]
FORMULAS = 2_000


class WorkbenchPage(BaseModel):
    """Where the sliders stand and what follows from it."""

    setting: dict[str, Any]
    result: dict[str, Any] = Field(description="weights and c now, the exact law, the trials")
    next_length: float = Field(description="a length of key a, drawn from its law")
    designs: dict[str, str]
    chapters: list[dict[str, str]]


class ChapterPage(BaseModel):
    """A problem of the homework and, if something was written, the verdict on it."""

    chapter: dict[str, Any]
    problem: dict[str, Any]
    written: str
    verdict: dict[str, Any] | None
    chapters: list[dict[str, str]]
    before: str | None
    after: str | None


@twin(router, "/workbench", "workbench.html", WorkbenchPage)
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
    result = await lab_of(request).gate.run(work_out, setting)
    return {
        "setting": vars(setting),
        "result": result,
        "next_length": draw_length(stretch, seed + 1),
        "designs": DESIGNS,
        "chapters": _contents(),
    }


@twin(router, "/workbench/{name}", "chapter.html", ChapterPage, typed="formulas")
async def chapter(
    request: Request,
    name: Annotated[str, Path(max_length=60, description="the problem's name")],
    formulas: Annotated[
        str | None,
        Query(max_length=FORMULAS, description="the construction, one formula a line"),
    ] = None,
) -> Record:
    """A chapter of the homework; what is written into `formulas` is checked."""
    if name not in BY_NAME:
        raise HTTPException(404)
    told = BY_NAME[name]
    at = CHAPTERS.index(told)
    verdict = None
    if formulas is not None:
        verdict = await lab_of(request).gate.run(_check, name, formulas)
    return {
        "chapter": _as_dict(told),
        "problem": PROBLEMS[name].to_dict(),
        "written": told.start if formulas is None else formulas,
        "verdict": verdict,
        "chapters": _contents(),
        "before": CHAPTERS[at - 1].problem if at else None,
        "after": CHAPTERS[at + 1].problem if at + 1 < len(CHAPTERS) else None,
    }


def _check(name: str, formulas: str) -> dict[str, Any]:
    from wherefrom.attention.checker.check import check

    lines = [line.strip() for line in formulas.replace(";", "\n").splitlines()]
    written = [line for line in lines if line]
    if not written:
        raise UserError("write a formula first, as in the example below the box.")
    return check(name, written).to_dict()


def _contents() -> list[dict[str, str]]:
    return [{"name": c.problem, "part": c.part, "title": c.title} for c in CHAPTERS]


def _as_dict(told: Chapter) -> dict[str, Any]:
    return {
        "name": told.problem,
        "part": told.part,
        "title": told.title,
        "question": list(told.question),
        "write": told.write,
        "answer": list(told.answer),
        "formulas": list(told.formulas),
        "bench": told.bench,
    }
