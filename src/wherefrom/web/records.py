"""What runs have recorded: the list, one run, several compared, the report; and trainings.

Everything here is read from files by the RunIndex, in a few threads, and no model is loaded.
"""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, File, Form, Query, Request, UploadFile
from fastapi.responses import Response

from wherefrom.errors import UserError
from wherefrom.model.config import SIZES
from wherefrom.model.mixers import VARIANTS
from wherefrom.report.study_report import render_html
from wherefrom.web.ask import Run
from wherefrom.web.jobs import RECIPES, TrainingRequest
from wherefrom.web.replies import html_and_json, site_of
from wherefrom.web.runs import POINT, Record, RunIndex

router = APIRouter()
MOST_COMPARED = 6
CHOICES = {
    "recipes": RECIPES,
    "variants": {name: variant.about for name, variant in VARIANTS.items()},
    "sizes": list(SIZES),
}
RunName = Annotated[str, Query(max_length=300, description="a run's name")]
Name = Annotated[str, Form(max_length=300, description="the run's name")]
Option = Annotated[str, Form(max_length=300, description="as of `wherefrom study`")]


@html_and_json(router, "/runs", "runs.html")
async def runs(request: Request) -> Record:
    """All runs with variant, recall and time, and the trainings in progress."""
    index, trainings = site_of(request).index, site_of(request).trainings

    def gather() -> Record:
        found, started = index.runs(), trainings.all()
        running = {each["name"] for each in started if each["running"]}
        lending = [name for name in found if index.text_files(found[name])]
        return {
            "folder": index.root.name,
            "runs": [
                {**index.summary(name, folder), "running": name in running}
                for name, folder in found.items()
            ],
            "trainings": started,
            "choices": {**CHOICES, "texts_of": lending},
            "can_start": not index.holds_one,
        }

    return await site_of(request).reading.run(gather)


@html_and_json(router, "/run", "run.html")
async def run(request: Request, name: RunName) -> Record:
    """One run with the curve of its training so far; asked again, the curve has grown."""
    site = site_of(request)

    def gather() -> Record:
        twins = [each for each in site.index.runs() if each.startswith(f"{name}/twins/")]
        page = describe(site.index, [name, *twins][:MOST_COMPARED])
        described, *_ = page.pop("runs")
        return {"run": described, **page, "training": site.trainings.state(name)}

    return await site.reading.run(gather)


@html_and_json(router, "/compare", "compare.html")
async def compare(
    request: Request,
    run: Annotated[list[str], Query(max_length=MOST_COMPARED, description="names of runs")] = [],  # noqa: B006
) -> Record:
    """Several runs side by side: shape, recipe, recall, and their curves in one picture."""
    index, names = site_of(request).index, list(dict.fromkeys(run))
    page = await site_of(request).reading.run(describe, index, names)
    return {**page, "all": list(index.runs())}


def describe(index: RunIndex, names: list[str]) -> Record:
    """Details and curves of runs: loss, speed and recall against minutes, a line for each run."""
    from wherefrom.report.figures import as_record, label, training_curves

    folders = {name: index.find(name) for name in names}
    points = {name: index.curve(folder) for name, folder in folders.items()}
    drawn = [(label(name, 60), each) for name, each in points.items() if each]
    return {
        "runs": [index.details(name, folder) for name, folder in folders.items()],
        "curves": {
            name: {column: [point[column] for point in each] for column in POINT}
            for name, each in points.items()
        },
        "figure": as_record(training_curves(drawn)) if drawn else None,
    }


@html_and_json(router, "/runs/start", redirect="/runs", method="POST")
async def start(request: Request, form: Annotated[TrainingRequest, Form()]) -> Record:
    """Start a training; it goes on when the page, or the server, is closed."""
    site = site_of(request)
    return {"training": await site.reading.run(site.trainings.start, form)}


@html_and_json(router, "/runs/text", redirect="/text?name={name}", method="POST")
async def upload(
    request: Request,
    name: Name,
    corpus: Annotated[list[UploadFile], File(description="the text: one file, or many")],
    train: Annotated[UploadFile, File(description="a TSV: question, answer, and maybe subject")],
    dev: Annotated[UploadFile | None, File(description="questions to judge by")] = None,
    subject_field: Option = "",
    text_field: Option = "",
    template: Option = "",
) -> Record:
    """Upload a text and questions for a new run; says how they are understood, trains nothing."""
    site = site_of(request)
    files = [(each.filename or "", await each.read()) for each in corpus]
    learned, judged = await train.read(), b"" if dev is None else await dev.read()
    options = {"subject_field": subject_field, "text_field": text_field, "template": template}
    keep = site.trainings.keep_text
    return await site.computing.run(keep, name, files, learned, judged, options)


@html_and_json(router, "/text", "text.html")
async def text(request: Request, name: RunName) -> Record:
    """How an uploaded text is understood, before anything is trained on it."""
    site = site_of(request)
    found = await site.computing.run(site.trainings.describe_text, name)
    return {**found, "choices": CHOICES}


@html_and_json(router, "/runs/{action}", redirect="/runs", method="POST")
async def act(request: Request, action: Literal["stop", "resume"], name: Name) -> Record:
    """Stop a training as Ctrl-C does, with all that it has saved; or go on with it from there."""
    site = site_of(request)
    return {"training": await site.reading.run(getattr(site.trainings, action), name)}


@html_and_json(router, "/report", "report.html")
async def report(request: Request, run: Run = None) -> Record:
    """The report of a study: recall against the baselines, data, command, time, and findings."""
    index = site_of(request).index

    def gather() -> Record:
        found = index.runs()
        studies = [name for name in found if index.summary(name, found[name])["recall"] is not None]
        names = studies or list(found)
        name = run or next(iter(names), None)
        if name is None:
            return {"run": None, "runs": [], "report": None}
        folder = index.find(name)
        described = index.details(name, folder)
        return {"run": described, "runs": names, "report": index.report(folder)}

    return await site_of(request).reading.run(gather)


@router.get(
    "/report.html",
    summary="The report as one file to keep, with figures; it asks for nothing.",
    response_class=Response,
    responses={200: {"content": {"text/html": {}}, "description": "one file that needs no other"}},
)
async def report_as_file(request: Request, run: RunName) -> Response:
    """The report as one file to keep: it opens from disk, with figures, and asks for nothing."""
    index = site_of(request).index

    def make() -> str:
        record = index.report(index.find(run))
        if record is None:
            raise UserError("there is no report on this run yet: it has not finished.")
        return render_html(record)

    text = await site_of(request).computing.run(make)
    headers = {"Content-Disposition": 'attachment; filename="report.html"'}
    return Response(text, media_type="text/html", headers=headers)


@html_and_json(router, "/api", "api.html")
async def api(request: Request) -> Record:
    """What a program can ask for; /openapi.json says the same in full."""
    addresses = []
    for path, methods in request.app.openapi()["paths"].items():
        for method, operation in methods.items():
            given = operation.get("parameters", [])
            named = [{"name": each["name"], "about": each.get("description", "")} for each in given]
            addresses.append(
                {"path": path, "method": method.upper(), "summary": operation.get("summary", ""),
                 "parameters": named}
            )  # fmt: skip
    return {"addresses": addresses}
