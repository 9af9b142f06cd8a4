"""Runs: what is in the folder, curves that grow while a run trains, starting and stopping one."""

from __future__ import annotations

import asyncio
import json
from html import escape
from typing import Annotated, Any

from fastapi import APIRouter, Form, Query, Request
from fastapi.responses import RedirectResponse, Response
from pydantic import BaseModel, Field

from wherefrom.errors import UserError
from wherefrom.model.config import SIZES
from wherefrom.model.mixers import VARIANTS, find_variant
from wherefrom.training.recipes import shipped_recipes
from wherefrom.web.jobs import TrainingRequest
from wherefrom.web.replies import Record, twin
from wherefrom.web.runs import curve, describe, files_of, summarise
from wherefrom.web.state import Lab, lab_of

router = APIRouter(tags=["runs"])
COMPARED = 6


class RunsPage(BaseModel):
    """Every run of the served folder, and the trainings that were started from here."""

    folder: str
    runs: list[dict[str, Any]]
    trainings: list[dict[str, Any]]
    choices: dict[str, Any] = Field(description="what a new training can be told")
    can_start: bool


class RunPage(BaseModel):
    """One run: what it is, how it was trained, what it recalls."""

    run: dict[str, Any]
    curves: dict[str, dict[str, list[Any]]] = Field(description="by run: this one and its twins")
    training: dict[str, Any] | None
    figure: dict[str, Any] | None = Field(description="the curves, as the drawing library takes it")


class ComparePage(BaseModel):
    """A few runs side by side."""

    runs: list[dict[str, Any]]
    curves: dict[str, dict[str, list[Any]]]
    figure: dict[str, Any] | None
    all: list[str] = Field(description="every run there is, to choose from")


class TrainingState(BaseModel):
    """A training that was started from the page."""

    training: dict[str, Any]


@twin(router, "/runs", "runs.html", RunsPage)
async def runs(request: Request) -> Record:
    """All runs with variant, recipe, recall and time, and the trainings in progress."""
    return await asyncio.to_thread(_all, lab_of(request))


@twin(router, "/run", "run.html", RunPage)
async def run(
    request: Request,
    name: Annotated[str, Query(max_length=300, description="the run's name")],
) -> Record:
    """One run with the curve of its training so far; asked again, the curve has grown."""
    return await asyncio.to_thread(_one, lab_of(request), name)


@twin(router, "/compare", "compare.html", ComparePage)
async def compare(
    request: Request,
    run: Annotated[list[str], Query(max_length=COMPARED, description="names of runs")] = [],  # noqa: B006
) -> Record:
    """Several runs side by side: shape, recipe, recall, and their curves in one picture."""
    lab = lab_of(request)

    def gather() -> Record:
        chosen = {name: lab.shelf.find(name) for name in dict.fromkeys(run)}
        return {
            "runs": [describe(name, folder) for name, folder in chosen.items()],
            "curves": (curves := {name: curve(folder) for name, folder in chosen.items()}),
            "figure": _figure(curves),
            "all": list(lab.shelf.runs()),
        }

    return await asyncio.to_thread(gather)


Name = Annotated[str, Form(max_length=300, description="the run's name")]


async def start(
    request: Request,
    name: Annotated[str, Form(max_length=100, description="a name for the new run")],
    minutes: Annotated[float, Form(gt=0, le=600, description="how long to train")] = 8.0,
    recipe: Annotated[str, Form(max_length=60)] = "speedrun",
    variant: Annotated[str, Form(max_length=60, description="the recipe's if empty")] = "",
    size: Annotated[str, Form(max_length=40, description="the recipe's if empty")] = "",
    seed: Annotated[int, Form(ge=0, lt=2**31)] = 0,
    people: Annotated[int, Form(ge=50, le=20_000, description="of the embedded world")] = 3000,
    texts_of: Annotated[
        str, Form(max_length=300, description="train on the files of this run instead")
    ] = "",
) -> dict[str, Any]:
    """Start a training; it goes on when the page, or the server, is closed."""
    lab = lab_of(request)

    def begin() -> dict[str, Any]:
        if recipe not in shipped_recipes():
            raise UserError(f"there is no recipe of that name; there are {_listed(_recipes())}.")
        if variant:
            find_variant(variant)
        if size and size not in SIZES:
            raise UserError(f"there is no size of that name; there are {_listed(SIZES)}.")
        files: tuple[str, ...] = ()
        if texts_of:
            found = files_of(lab.shelf.find(texts_of))
            if found is None:
                raise UserError("the files that this run learned from are not there any more.")
            files = tuple(found)
        wish = TrainingRequest(
            name, minutes, recipe, variant or None, size or None, seed, people, files
        )
        return {"training": lab.trainings.start(wish)}

    return await asyncio.to_thread(begin)


async def stop(request: Request, name: Name) -> dict[str, Any]:
    """Stop a training as Ctrl-C does: it saves what it has, and can be resumed."""
    return {"training": await asyncio.to_thread(lab_of(request).trainings.stop, name)}


async def resume(request: Request, name: Name) -> dict[str, Any]:
    """Go on with a training that was stopped, to the weights it would have had."""
    return {"training": await asyncio.to_thread(lab_of(request).trainings.resume, name)}


def _add_actions() -> None:
    """The three actions: as JSON they tell the training's state, as a form they go to the list."""
    import inspect

    for action in (start, stop, resume):
        path = f"/runs/{action.__name__}"

        def as_form(action: Any = action) -> Any:
            async def act(**arguments: Any) -> Response:
                await action(**arguments)
                return RedirectResponse("/runs", status_code=303)

            act.__signature__ = inspect.signature(action, eval_str=True)  # type: ignore[attr-defined]
            return act

        router.add_api_route(path, as_form(), methods=["POST"], include_in_schema=False)
        router.add_api_route(
            path + ".json",
            action,
            methods=["POST"],
            response_model=TrainingState,
            summary=(action.__doc__ or "").partition("\n")[0],
            name=action.__name__,
        )


_add_actions()


def _all(lab: Lab) -> Record:
    found = [summarise(name, folder) for name, folder in lab.shelf.runs().items()]
    trainings = lab.trainings.all()
    running = {each["name"] for each in trainings if each["running"]}
    for each in found:
        each["running"] = each["name"] in running
    sources = [name for name, folder in lab.shelf.runs().items() if files_of(folder)]
    return {
        "folder": lab.shelf.root.name,
        "runs": found,
        "trainings": trainings,
        "choices": {
            "recipes": _recipes(),
            "variants": {name: variant.about for name, variant in VARIANTS.items()},
            "sizes": list(SIZES),
            "texts_of": sources,
        },
        "can_start": not lab.shelf.holds_one,
    }


def _one(lab: Lab, name: str) -> Record:
    folder = lab.shelf.find(name)
    curves = {name: curve(folder)}
    for other, path in lab.shelf.runs().items():
        if other.startswith(f"{name}/twins/") and len(curves) < COMPARED:
            curves[other] = curve(path)
    return {
        "run": describe(name, folder),
        "curves": curves,
        "figure": _figure(curves),
        "training": lab.trainings.of(name),
    }


def _figure(curves: dict[str, dict[str, list[Any]]]) -> dict[str, Any] | None:
    """Loss against minutes of training, a line for each run."""
    import plotly.graph_objects as go

    from wherefrom.report.figures import themed

    figure = go.Figure()
    for name, each in curves.items():
        if each["step"]:
            minutes = [None if second is None else second / 60 for second in each["seconds"]]
            figure.add_scatter(x=minutes, y=each["loss"], name=escape(name), mode="lines")
    if not figure.data:
        return None
    themed(figure, x="minutes of training", y="loss (nats a token)")
    figure.update_layout(height=380, showlegend=True)
    drawn: dict[str, Any] = json.loads(figure.to_json())
    return {"data": drawn["data"], "layout": drawn["layout"]}


def _recipes() -> list[str]:
    names = shipped_recipes()
    return sorted(names, key=lambda name: (name != "speedrun", name))


def _listed(names: Any) -> str:
    return ", ".join(names)
