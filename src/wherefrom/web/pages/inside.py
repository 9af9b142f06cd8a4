"""Inside: where each head looks, what each layer would say, and where a line enters the answer."""

from __future__ import annotations

from collections.abc import Iterable
from math import exp
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query, Request

from wherefrom.corpus.questions import find_subject_in
from wherefrom.corpus.tokenizer import MASK_CHARACTER
from wherefrom.errors import UserError
from wherefrom.web.pages.ask import Question, Run
from wherefrom.web.replies import html_and_json, site_of
from wherefrom.web.runs import Record

if TYPE_CHECKING:
    from wherefrom.provenance.ask import Asker

router = APIRouter()
MOST_TOKENS = 80  # beyond this a map is too fine to see
SIGNS = str.maketrans({MASK_CHARACTER: "▮", " ": "␣", "\n": "⏎"})
PLACES = {"attention": ("attention",), "feed-forward": ("feed-forward",),
          "whole state": ("embedding", "hidden", "output")}  # fmt: skip


@html_and_json(router, "/inside", "inside.html", typed="question")
async def inside(
    request: Request,
    run: Run = None,
    other: Run = None,
    question: Question = None,
    layer: Annotated[int | None, Query(ge=0, le=255, description="whose map to show")] = None,
    head: Annotated[int | None, Query(ge=0, le=255, description="whose map to show")] = None,
) -> Record:
    """Inside a trained model for a question: heads, layers, and where a line enters the answer.

    sides: each run. lens: what the head reads off each layer. entry: by place and position, how
    many nats log p(answer) falls with the state of a twin that never read the line; entries: whose
    twin has such a map; entry_command: what trains one.
    """
    from wherefrom.provenance.attribution.twins import command_without

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
    page["question"], _ = loaded.asker.understand(" ".join(question.split()))
    asked = page["question"]
    for name in [page["run"], *([other] if other else [])]:
        each = await site.models.get(name)
        side = await each.run(lambda asker: view_heads(asker, asked, layer, head))
        folder = site.index.find(name)
        twins = await site.reading.run(site.index.twins_without, folder)
        entries = {twin["question"]: twin for twin in twins if twin["where"]["places"]}
        side["entry"] = map_entry(entries[asked]) if asked in entries else None
        side["entries"] = [{key: twin[key] for key in ("subject", "question")}
                           for twin in entries.values()]  # fmt: skip
        side["entry_command"] = command_without(folder, side["subject"] or "NAME")
        page["sides"].append({"run": name, **side})
    return page


def map_entry(twin: Record) -> Record:
    """Where a line enters the answer: nats lost with the twin's state, in the order of PLACES.

    most: the largest loss of each part; share: of that, which is how strong its colour is.
    """
    where, rows, most = twin["where"], [], {}
    for part, starts in PLACES.items():
        places = [place for place, values in where["places"].items()
                  if place.startswith(starts) and len(values) == len(where["tokens"])]  # fmt: skip
        lost = [[round((where["with"] or 0) - (p or 0), 4) for p in where["places"][place]]
                for place in places]  # fmt: skip
        most[part] = max((nats for row in lost for nats in row), default=0.0)
        for place, row in zip(places, lost, strict=True):
            share = [round(max(0.0, nats) / max(most[part], 0.01), 4) for nats in row]
            rows.append({"place": place, "nats": row, "share": share})
    keys = ("subject", "question", "with", "without", "documents", "notes", "score")
    tokens = label_tokens(where["tokens"])
    return {**{key: twin[key] for key in keys}, "tokens": tokens, "rows": rows, "most": most}


def label_tokens(tokens: Iterable[str | None]) -> list[str]:
    """Tokens as they can be read: the blank, the mask and the end of a line as signs."""
    return [(token or "").translate(SIGNS) or "∅" for token in tokens]


def view_heads(asker: Asker, question: str, layer: int | None, head: int | None) -> Record:
    """What one run does with the question: answer, heads, and the whole map of one head."""
    from wherefrom.provenance.attribution.twins import logit_lens
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
    lens = logit_lens(run, question, answer.text)
    labels, lens["tokens"] = label_tokens(view.tokens), label_tokens(lens["tokens"])
    for row in lens["layers"]:
        row["says"] = label_tokens(row["says"])
    rows, columns = (  # a learned basis has no tokens
        labels if count == len(labels) else [f"latent {at}" for at in range(count)]
        for count in weights.shape
    )
    return {
        "answer": answer.text,
        "probability": float(f"{exp(min(0.0, answer.log_probability)):.4g}"),
        "subject": subject,
        "variant": run.model.config.variant,
        "lens": lens,
        "tokens": labels,
        "name": list(view.name),
        "heads": [each.to_dict() for each in view.heads],
        "layers": 1 + max(at for at, _ in places),
        "heads_a_layer": 1 + max(at for _, at in places),
        "map": {"layer": shown[0], "head": shown[1], "rows": rows, "columns": columns,
                "weights": weights.round(4).tolist()},
    }  # fmt: skip
