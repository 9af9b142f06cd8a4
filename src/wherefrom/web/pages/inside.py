"""Inside: where each head of a trained model looks as it is about to answer; two runs compared."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field

from wherefrom.corpus.questions import match_template
from wherefrom.corpus.tokenizer import MASK_CHARACTER
from wherefrom.errors import UserError
from wherefrom.web.models import Loaded
from wherefrom.web.pages.ask import worded
from wherefrom.web.replies import Record, twin
from wherefrom.web.state import lab_of

router = APIRouter(tags=["inside"])
MOST_TOKENS = 80  # beyond this a map is too fine to see


class InsidePage(BaseModel):
    """One question, seen from inside one run or two."""

    run: str | None
    other: str | None = Field(description="a second run to compare with")
    runs: list[str]
    people: list[str]
    question: str | None
    sides: list[dict[str, Any]] = Field(description="for each run: answer, tokens, heads, a map")


@twin(router, "/inside", "inside.html", InsidePage, typed="question")
async def inside(
    request: Request,
    run: Annotated[str | None, Query(max_length=300, description="a run's name")] = None,
    other: Annotated[str | None, Query(max_length=300, description="another's")] = None,
    question: Annotated[
        str | None, Query(max_length=2_000, description="a question, or a name alone")
    ] = None,
    layer: Annotated[int | None, Query(ge=0, le=255, description="whose map to show")] = None,
    head: Annotated[int | None, Query(ge=0, le=255, description="whose map to show")] = None,
) -> Record:
    """Attention of a trained model for a question: every head's weights, token by token."""
    lab = lab_of(request)
    names = lab.askable()
    found = await lab.models.choose([run] if run else names)
    page: Record = {
        "run": None,
        "other": other or None,
        "runs": names,
        "people": [],
        "question": None,
        "sides": [],
    }
    if found is None:
        if question is not None:
            raise UserError("there is no trained run here yet to look into.")
        return page
    chosen, loaded = found
    page["run"] = chosen
    page["people"] = list(loaded.people)
    if question is None and loaded.people:
        question = loaded.people[len(loaded.people) // 3]  # something to see at once
    if question is None or not question.strip():
        return page
    page["question"] = worded(lab, loaded, question)
    for name in [chosen, *([other] if other else [])]:
        each = await lab.models.get(name)
        side = await lab.models.run(look, each, page["question"], layer, head)
        page["sides"].append({"run": name, **side})
    return page


def look(loaded: Loaded, question: str, layer: int | None, head: int | None) -> dict[str, Any]:
    """What one run does with the question: answer, heads, and the whole map of one head."""
    from wherefrom.recall.decode import answer_all
    from wherefrom.recall.inside import look_inside

    with loaded.borrow() as asker:
        run = asker.run
        subject = match_template(run.template, question) if run.template else None
        view = look_inside(run.model, run.tokens, question, subject)
        (answer,) = answer_all(run.model, run.tokens, [question])
    if len(view.tokens) > MOST_TOKENS:
        raise UserError(
            f"this question has {len(view.tokens)} tokens, and a map of more than {MOST_TOKENS} "
            "is too fine to see; ask a shorter one."
        )
    known = {(each.layer, each.head) for each in view.heads}
    best = max(view.heads, key=lambda each: each.mass_on_name or 0.0)
    at = (best.layer if layer is None else layer, best.head if head is None else head)
    if at not in known:
        at = (best.layer, best.head)
    weights = view.maps[at[0]][at[1]]
    labels = [label(token) for token in view.tokens]
    return {
        "answer": answer.text,
        "probability": float(f"{_probability(answer.log_probability):.4g}"),
        "subject": subject,
        "variant": run.model.config.variant,
        "tokens": labels,
        "name": list(view.name),
        "heads": [each.to_dict() for each in view.heads],
        "layers": 1 + max(each.layer for each in view.heads),
        "heads_a_layer": 1 + max(each.head for each in view.heads),
        "map": {
            "layer": at[0],
            "head": at[1],
            "rows": _labels(labels, weights.shape[0]),
            "columns": _labels(labels, weights.shape[1]),
            "weights": weights.round(4).tolist(),
        },
    }


def label(token: str) -> str:
    """A token as it can be shown: the blank and the mask have signs of their own."""
    if token == MASK_CHARACTER:
        return "▮"
    return token.replace(" ", "␣").replace("\n", "⏎") or "∅"


def _labels(labels: list[str], count: int) -> list[str]:
    return labels if count == len(labels) else [f"latent {at}" for at in range(count)]


def _probability(log_probability: float) -> float:
    from math import exp

    return exp(min(0.0, log_probability))
