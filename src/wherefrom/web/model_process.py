"""What the process of a loaded run does: open the run, answer, trace, look inside.

The page calls these functions by way of workers.py; see models.py.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import chain, islice
from math import exp
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wherefrom.corpus.tokenizer import MASK_CHARACTER
from wherefrom.errors import UserError
from wherefrom.web.runs import Record

if TYPE_CHECKING:
    from wherefrom.provenance.ask import AskedRow, Asker
    from wherefrom.provenance.attribution.trace import Tracer

MAX_MAP_TOKENS = 80  # beyond this a map is too fine to see
READABLE = str.maketrans({MASK_CHARACTER: "▮", " ": "␣", "\n": "⏎"})


@lru_cache(1)
def _open_run(folder: Path) -> Asker:
    """The run of this process, which is opened at its first call."""
    import torch

    from wherefrom.provenance.ask import open_asker

    # several processes with more threads would compete
    torch.set_num_threads(1)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    return open_asker(folder)


@lru_cache(1)
def _open_tracer(folder: Path) -> Tracer:
    import torch

    from wherefrom.provenance.attribution.trace import open_tracer

    torch.set_num_threads(1)
    return open_tracer(folder)


def describe_run(folder: Path) -> Record:
    """What the page shows of a run before a question is asked."""
    from wherefrom.corpus.split import read_subjects
    from wherefrom.training.run_folder import AUDIT

    asker = _open_run(folder)
    questions: dict[str, list[str]] = {}
    with suppress(UserError):  # without names, everything can still be asked
        for row in read_subjects(folder):
            if row.role == "judged":
                questions.setdefault(row.subject, []).append(row.question)
    return {
        "templates": list(asker.run.templates),
        "is_audit": asker.run.record.kind == AUDIT,
        "notes": list(asker.notes),
        "has_text": asker.evidence is not None,
        "questions": questions,
    }


def answer_rows(folder: Path, rows: Sequence[AskedRow]) -> list[list[Record]]:
    """For each row the verdict on its question, or one for each relation if it is a name alone.

    Verdicts are dictionaries, with their sentence and the lines about names that look alike.
    """
    asker, keys = _open_run(folder), ("line", "text", "subject")
    questions = [asker.expand_names([row]) for row in rows]
    records = iter(
        {
            **verdict.to_dict(),
            "sentence": verdict.error or verdict.sentence(),
            "similar": [{key: getattr(line, key) for key in keys} for line in verdict.similar],
        }
        for verdict in asker.ask_rows(list(chain.from_iterable(questions)))
    )
    return [list(islice(records, len(part))) for part in questions]


def trace_answer(folder: Path, question: str) -> Record:
    """As `wherefrom trace --json` prints it."""
    return _open_tracer(folder).trace(question)


def label_tokens(tokens: Sequence[str | None]) -> list[str]:
    """Tokens as they can be read: the blank, the mask and the end of a line as signs."""
    return [(token or "").translate(READABLE) or "∅" for token in tokens]


def view_heads(folder: Path, question: str, layer: int | None, head: int | None) -> Record:
    """What a run does with the question: answer, heads, layers, and the whole map of one head."""
    from wherefrom.provenance.attribution.heads import look_inside_any
    from wherefrom.provenance.attribution.inside import logit_lens
    from wherefrom.provenance.attribution.retraining import likelihoods
    from wherefrom.provenance.audited import BaseRun

    asker = _open_run(folder)
    run = asker.run
    understood = asker.understand(" ".join(question.split()))
    question, subject = understood.text, understood.subject
    view, answer = look_inside_any(run, question, subject)
    if len(view.tokens) > MAX_MAP_TOKENS:
        raise UserError(
            f"this question has {len(view.tokens)} tokens, and a map of more than "
            f"{MAX_MAP_TOKENS} is too fine to see; ask a shorter one."
        )
    (log_probability,) = likelihoods(run, [question], [answer])
    lens: Record = {"tokens": [], "layers": []}
    if not isinstance(run, BaseRun):  # the norm before the head has another name in every model
        lens = logit_lens(run, question, answer)
    lens["tokens"] = label_tokens(lens["tokens"])
    for row in lens["layers"]:
        row["says"] = label_tokens(row["says"])
    places = {(one.layer, one.head) for one in view.heads}
    return {
        "question": question,
        "answer": answer,
        "probability": float(f"{exp(min(0.0, log_probability)):.4g}"),
        "subject": subject,
        "variant": describe_variant(run),
        "lens": lens,
        "tokens": label_tokens(view.tokens),
        "name": list(view.name),
        "heads": [one.to_dict() for one in view.heads],
        "layers": 1 + max(layer for layer, _ in places),
        "heads_a_layer": 1 + max(head for _, head in places),
        "map": _map_of_head(view, layer, head),
    }


def describe_variant(run: Any) -> str:
    """The variant of a model that Wherefrom trained, or where another model is from."""
    return str(run.model.config.variant) if run.model is not None else Path(run.record.model).name


def _map_of_head(view: Any, layer: int | None, head: int | None) -> Record:
    """The map of the head that was asked for, or else of the one that looks at the name most."""
    best = max(view.heads, key=lambda one: one.mass_on_name or 0.0)
    shown = (best.layer if layer is None else layer, best.head if head is None else head)
    if shown not in {(one.layer, one.head) for one in view.heads}:
        shown = (best.layer, best.head)
    weights = view.maps[shown[0]][shown[1]]
    labels = label_tokens(view.tokens)
    rows, columns = (  # a learned basis has no tokens
        labels if count == len(labels) else [f"latent {i}" for i in range(count)]
        for count in weights.shape
    )
    return {
        "layer": shown[0],
        "head": shown[1],
        "rows": rows,
        "columns": columns,
        "weights": weights.round(4).tolist(),
    }
