"""What runs have recorded: the list, one run, several compared, the report; and trainings.

Records are read by the RunIndex in threads; reports are made, and uploaded texts read, in
worker processes. No model is loaded.
"""

from __future__ import annotations

from asyncio import to_thread
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

from fastapi import APIRouter, File, Form, Query, UploadFile
from fastapi.responses import Response

from wherefrom.errors import UserError
from wherefrom.model.config import SIZES
from wherefrom.model.mixers import VARIANTS
from wherefrom.web.ask import Run
from wherefrom.web.replies import Site, TheSite, html_and_json
from wherefrom.web.runs import Point, Record, RunIndex
from wherefrom.web.trainings import RECIPES, TrainingRequest
from wherefrom.web.uploads import UploadedText, describe_text

router = APIRouter()
MAX_COMPARED_RUNS = 6
MAX_KEPT_REPORTS = 8
REPORT_SECONDS = 60.0  # to make one, or to render it
TEXT_SECONDS = 600.0  # to read an uploaded text
CHOICES = {
    "recipes": RECIPES,
    "variants": {name: variant.about for name, variant in VARIANTS.items()},
    "sizes": list(SIZES),
}
RunName = Annotated[str, Query(max_length=300, description="a run's name")]
Name = Annotated[str, Form(max_length=300, description="the run's name")]
Option = Annotated[str, Form(max_length=300, description="as of `wherefrom study`")]


@html_and_json(router, "/runs", "runs.html")
async def runs(site: TheSite) -> Record:
    """All runs with variant, recall and time, and the trainings in progress."""
    index = site.index

    def gather() -> Record:
        folders, trainings = index.runs(), site.trainings.all()
        running = site.trainings.running()
        return {
            "folder": index.root.name,
            "runs": [
                {**index.summary(name, folder), "running": name == running}
                for name, folder in folders.items()
            ],
            "trainings": trainings,
            "choices": CHOICES,
            "can_start": not index.holds_one,
        }

    return await to_thread(gather)


@html_and_json(router, "/run", "run.html")
async def run(site: TheSite, name: RunName) -> Record:
    """One run with the curve of its training so far; asked again, the curve has grown."""

    def gather() -> Record:
        twins = [twin for twin in site.index.runs() if twin.startswith(f"{name}/twins/")]
        page = describe(site.index, [name, *twins][:MAX_COMPARED_RUNS])
        described, *_ = page.pop("runs")
        return {"run": described, **page, "training": site.trainings.state(name)}

    return await to_thread(gather)


@html_and_json(router, "/compare", "compare.html")
async def compare(
    site: TheSite,
    run: Annotated[
        list[str], Query(max_length=MAX_COMPARED_RUNS, description="names of runs")
    ] = [],  # noqa: B006
) -> Record:
    """Several runs side by side: shape, recipe, recall, and their curves in one picture."""
    page = await to_thread(describe, site.index, list(dict.fromkeys(run)))
    return {**page, "all": list(site.index.runs())}


def describe(index: RunIndex, names: list[str]) -> Record:
    """Details and curves of runs: loss, speed and recall against minutes, a line for each run."""
    from wherefrom.report.figures import as_record, label, training_curves

    folders = {name: index.find(name) for name in names}
    points = {name: index.curve(folder) for name, folder in folders.items()}
    curves = [(label(name, 60), curve) for name, curve in points.items() if curve]
    return {
        "runs": [index.details(name, folder) for name, folder in folders.items()],
        "curves": {
            name: {column: [point[column] for point in curve] for column in Point.model_fields}
            for name, curve in points.items()
        },
        "figure": as_record(training_curves(curves)) if curves else None,
    }


@html_and_json(router, "/runs/start", redirect="/runs", method="POST")
async def start(site: TheSite, form: Annotated[TrainingRequest, Form()]) -> Record:
    """Start a training; it goes on when the page is closed, and stops with the server."""
    return {"training": await to_thread(site.trainings.start, form)}


@html_and_json(router, "/runs/text", redirect="/text?name={name}", method="POST")
async def upload(
    site: TheSite,
    name: Name,
    corpus: Annotated[list[UploadFile], File(description="the text: one file, or many")],
    train: Annotated[UploadFile, File(description="a TSV: question, answer, and maybe subject")],
    dev: Annotated[UploadFile | None, File(description="questions to judge by")] = None,
    subject_field: Option = "",
    text_field: Option = "",
    template: Option = "",
) -> Record:
    """Upload a text and questions for a new run; says how they are understood, trains nothing."""
    files = [(file.filename or "", await file.read()) for file in corpus]
    questions = await train.read(), b"" if dev is None else await dev.read()
    options = {"subject_field": subject_field, "text_field": text_field, "template": template}
    site.index.new_folder(name)
    text = UploadedText(site.index.root, name)
    try:
        await to_thread(text.keep, files, *questions, options)
        return await understand_text(site, name)
    except BaseException:  # also when the client has gone
        text.remove()
        raise


@html_and_json(router, "/text", "text.html")
async def text(site: TheSite, name: RunName) -> Record:
    """How an uploaded text is understood, before anything is trained on it."""
    return {**await understand_text(site, name), "choices": CHOICES}


async def understand_text(site: Site, name: str) -> Record:
    return await site.preparing.run(describe_text, site.index.root, name, seconds=TEXT_SECONDS)


@html_and_json(router, "/runs/{action}", redirect="/runs", method="POST")
async def act(site: TheSite, action: Literal["stop", "resume"], name: Name) -> Record:
    """Stop a training as Ctrl-C does, with all that it has saved; or go on with it from there."""
    return {"training": await to_thread(getattr(site.trainings, action), name)}


@html_and_json(router, "/report", "report.html")
async def report(site: TheSite, run: Run = None) -> Record:
    """The report of a study: recall against the baselines, data, command, time, and findings."""
    index = site.index

    def gather() -> Record:
        runs = index.runs()
        judged = [name for name in runs if index.summary(name, runs[name])["recall"] is not None]
        names = judged or list(runs)
        name = run or next(iter(names), None)
        return {"run": index.details(name, index.find(name)) if name else None, "runs": names}

    page = await to_thread(gather)
    page["report"] = await get_report(site, page["run"]["name"]) if page["run"] else None
    return page


async def get_report(site: Site, name: str) -> Record | None:
    """The report on a run, or None while there can be none; made again once its records change."""
    folder = site.index.find(name)
    stamp = await to_thread(site.index.stamp_of_records, folder)
    if site.reports.get(folder, (None, None))[0] != stamp:
        record = await site.preparing.run(make_report, folder, seconds=REPORT_SECONDS)
        site.reports.pop(folder, None)
        site.reports[folder] = (stamp, record)
        if len(site.reports) > MAX_KEPT_REPORTS:
            del site.reports[next(iter(site.reports))]
    return site.reports[folder][1]


def make_report(folder: Path) -> Record | None:
    """In a worker: the report on a run, or None if it has not finished."""
    from wherefrom.report import study_report

    with suppress(UserError):
        return study_report.make_report(folder)
    return None


@router.get(
    "/report.html",
    summary="The report as one file to keep, with figures; it asks for nothing.",
    response_class=Response,
    responses={200: {"content": {"text/html": {}}, "description": "one file that needs no other"}},
)
async def report_as_file(site: TheSite, run: RunName) -> Response:
    """The report as one file to keep: it opens from disk, with figures, and asks for nothing."""
    from wherefrom.report.study_report import render_html

    record = await get_report(site, run)
    if record is None:
        raise UserError("there is no report on this run yet: it has not finished.")
    text = await site.preparing.run(render_html, record, seconds=REPORT_SECONDS)
    headers = {"Content-Disposition": 'attachment; filename="report.html"'}
    return Response(text, media_type="text/html", headers=headers)
