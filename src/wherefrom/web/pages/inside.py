"""Inside: where each head of a trained model looks as it is about to answer; two runs compared."""

from __future__ import annotations

from math import exp
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query, Request

from wherefrom.corpus.questions import find_subject_in
from wherefrom.corpus.tokenizer import MASK_CHARACTER
from wherefrom.errors import UserError
from wherefrom.web.pages.ask import Question, Run, word_question
from wherefrom.web.replies import html_and_json, site_of
from wherefrom.web.runs import Record

if TYPE_CHECKING:
    from wherefrom.provenance.ask import Asker

router = APIRouter()
MOST_TOKENS = 80  # beyond this a map is too fine to see


@html_and_json(router, "/inside", "inside.html", typed="question")
async def inside(
    request: Request,
    run: Run = None,
    other: Run = None,
    question: Question = None,
    layer: Annotated[int | None, Query(ge=0, le=255, description="whose map to show")] = None,
    head: Annotated[int | None, Query(ge=0, le=255, description="whose map to show")] = None,
) -> Record:
    """Attention of a trained model for a question: every head's weights, token by token."""
    site = site_of(request)
    page: Record = {"run": None, "other": other or None, "runs": site.index.answering(),
                    "people": [], "question": None, "sides": []}  # fmt: skip
    found = await site.models.first_of([run] if run else page["runs"])
    if found is None:
        if question is not None:
            raise UserError("there is no trained run here yet to look into.")
        return page
    page["run"], loaded = found
    page["people"] = loaded.subjects
    if question is None and loaded.subjects:
        question = loaded.subjects[len(loaded.subjects) // 3]  # something to see at once
    if question is None or not question.strip():
        return page
    page["question"] = asked = word_question(question, loaded.templates, site.limits)
    for name in [page["run"], *([other] if other else [])]:
        each = await site.models.get(name)
        side = await each.run(lambda asker: view_heads(asker, asked, layer, head))
        page["sides"].append({"run": name, **side})
    return page


def view_heads(asker: Asker, question: str, layer: int | None, head: int | None) -> Record:
    """What one run does with the question: answer, heads, and the whole map of one head."""
    from wherefrom.recall.decode import answer_all
    from wherefrom.recall.inside import look_inside

    run = asker.run
    subject = find_subject_in(run.templates, question)
    view = look_inside(run.model, run.tokens, question, subject)
    (answer,) = answer_all(run.model, run.tokens, [question])
    if len(view.tokens) > MOST_TOKENS:
        raise UserError(
            f"this question has {len(view.tokens)} tokens, and a map of more than {MOST_TOKENS} "
            "is too fine to see; ask a shorter one."
        )
    best = max(view.heads, key=lambda each: each.mass_on_name or 0.0)
    places = {(each.layer, each.head) for each in view.heads}
    shown = (best.layer if layer is None else layer, best.head if head is None else head)
    shown = shown if shown in places else (best.layer, best.head)
    weights = view.maps[shown[0]][shown[1]]
    # the blank, the mask and the end of a line have signs of their own
    signs = str.maketrans({MASK_CHARACTER: "▮", " ": "␣", "\n": "⏎"})
    labels = [token.translate(signs) or "∅" for token in view.tokens]
    rows, columns = (  # a learned basis has no tokens
        labels if count == len(labels) else [f"latent {at}" for at in range(count)]
        for count in weights.shape
    )
    return {
        "answer": answer.text,
        "probability": float(f"{exp(min(0.0, answer.log_probability)):.4g}"),
        "subject": subject,
        "variant": run.model.config.variant,
        "tokens": labels,
        "name": list(view.name),
        "heads": [each.to_dict() for each in view.heads],
        "layers": 1 + max(at for at, _ in places),
        "heads_a_layer": 1 + max(at for _, at in places),
        "map": {"layer": shown[0], "head": shown[1], "rows": rows, "columns": columns,
                "weights": weights.round(4).tolist()},
    }  # fmt: skip
