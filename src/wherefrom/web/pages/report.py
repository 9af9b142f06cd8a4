"""Report: what a study found, from its records; the whole report where the run has one."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from wherefrom.errors import UserError
from wherefrom.report.render import render_html
from wherefrom.report.study_report import read_report
from wherefrom.web.replies import Record, twin
from wherefrom.web.runs import describe, summarise
from wherefrom.web.state import Lab, lab_of

router = APIRouter(tags=["report"])


class ReportPage(BaseModel):
    """What was trained on what, and what came of it."""

    run: dict[str, Any] | None
    runs: list[str]
    report: dict[str, Any] | None = Field(description="the study's report, where there is one")


@twin(router, "/report", "report.html", ReportPage)
async def report(
    request: Request,
    run: Annotated[str | None, Query(max_length=300, description="a run's name")] = None,
) -> Record:
    """The report of a study: recall against the baselines, data, command, time, and findings."""
    return await asyncio.to_thread(_gather, lab_of(request), run)


@router.get(
    "/report.html",
    summary="The report as one file to keep, with figures; it asks for nothing.",
    response_class=Response,
    responses={200: {"content": {"text/html": {}}, "description": "one file that needs no other"}},
)
async def report_as_file(
    request: Request,
    run: Annotated[str, Query(max_length=300, description="a run's name")],
) -> Response:
    """The report as one file to keep: it opens from disk, with figures, and asks for nothing."""
    folder = lab_of(request).shelf.find(run)

    def make() -> str:
        record = read_report(folder)
        if record is None:
            raise UserError("there is no report on this run yet: it has not finished.")
        return render_html(record)

    return Response(
        await lab_of(request).gate.run(make),
        media_type="text/html",
        headers={"Content-Disposition": 'attachment; filename="report.html"'},
    )


def _gather(lab: Lab, chosen: str | None) -> Record:
    found = lab.shelf.runs()
    studies = [
        name for name, folder in found.items() if summarise(name, folder)["recall"] is not None
    ]
    name = chosen or next(iter(studies), None) or next(iter(found), None)
    if name is None:
        return {"run": None, "runs": [], "report": None}
    folder = lab.shelf.find(name)
    return {
        "run": describe(name, folder),
        "runs": studies or list(found),
        "report": read_report(folder),
    }
