"""What would it have said, had it never read this line? A twin without its subject."""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from wherefrom.corpus.documents import Document
from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.questions import SLOT, Question
from wherefrom.corpus.subjects import find_named
from wherefrom.errors import UserError
from wherefrom.model.decoder import Block, Decoder
from wherefrom.provenance.attribution.cross_pretraining import RIGHT_ANYWAY, WRONG, true_origin
from wherefrom.provenance.attribution.gradients import answer_row
from wherefrom.provenance.attribution.retraining import (
    LearnedRun,
    Record,
    compare_others,
    open_learned,
    outcome,
)
from wherefrom.provenance.verdicts import REMEMBERED
from wherefrom.storage import write_json
from wherefrom.training.distributed import join_processes
from wherefrom.training.loop import Observer
from wherefrom.training.run_folder import Run, is_finished
from wherefrom.training.settings import Runtime

FORMAT = 1
RECORD = "without.json"
LONGEST_SLUG = 60
Patches = dict[str, tuple[Tensor, Tensor]]  # by place: the donor's states, and which to take (B, T)


@dataclass(frozen=True, eq=False)
class Plan:
    """What the twin is to be trained without, and what both are asked."""

    learned: LearnedRun
    documents: tuple[Document, ...]
    question: Question


def plan_twin(run: Run, name: str) -> Plan:
    """All that can be refused, before anything is trained."""
    learned = open_learned(run)
    documents = learned.documents_about(name)
    subject = documents[0].subject
    for question in (*learned.dev, *learned.questions):
        if fold_words(question.subject) == fold_words(subject):
            return Plan(learned, documents, question)
    wording = next((each for each in run.templates if SLOT in each), None)
    if wording is None:
        raise UserError(
            f'nobody asks about "{subject}", and the questions of {run.folder} share no wording '
            "to ask in; choose somebody whom a question is about."
        )
    question = Question(0, wording.replace(SLOT, subject), subject, None, wording)
    return Plan(learned, documents, question)


def twin_folder(run: Run, *names: str) -> Path:
    """Where the twin without these subjects is; names that are compared as one share it."""
    words = "--".join(sorted({"-".join(fold_words(name)) for name in names}))
    if len(words) > LONGEST_SLUG:
        words = f"{words[:LONGEST_SLUG]}-{sha256(words.encode()).hexdigest()[:8]}"
    return run.folder / "twins" / f"without-{words}"


def command_without(folder: Path, subject: str) -> str:
    """The command that trains a twin of the run in `folder`, to be typed in this directory."""
    relative = os.path.relpath(folder)
    path = relative if not relative.startswith("..") else os.path.abspath(folder)
    return shlex.join(["wherefrom", "twins", path, "--without", subject])


def leave_out(
    run: Run,
    *plans: Plan,
    settings: Runtime | None = None,
    observe: Observer | None = None,
) -> Record:
    """Train the twin without the documents of all plans, compare, and write `without.json`.

    For several plans the record has `people`, with what `compare` says of each.
    """
    settings = settings or Runtime(device="cpu")
    subjects = [plan.question.subject for plan in plans]
    folder, learned = twin_folder(run, *subjects), plans[0].learned
    twin = learned.retrain(
        [document.line for plan in plans for document in plan.documents],
        folder,
        settings=replace(settings, resume=settings.resume or is_finished(folder)),
        observe=observe,
    )
    others = compare_others(run, twin, learned.dev, subjects)
    records = [compare(run, twin, plan) | others for plan in plans]
    record = records[0]
    if len(plans) > 1:
        keys = ("format", "twin_of", "others", "noise_floor")
        record = {**{key: record[key] for key in keys}, "subjects": subjects, "people": records}
    join_processes().on_rank0(lambda: write_json(folder / RECORD, record))
    return record


def compare(run: Run, twin: Run, plan: Plan) -> Record:
    """What both say, and whether the documents made the difference: see docs/trace.md."""
    question, wanted, read = plan.question, fold_words(plan.question.subject), plan.learned
    ours, own = (outcome(each, [question.text]) for each in (run, twin))
    said, instead = ours["answers"][0], own["answers"][0]
    of_run = ours["log_probability"][0]
    of_twin = outcome(twin, [question.text], [said])["log_probability"][0]
    expected = question.answer
    if expected is None:  # a line that states the answer makes it right
        words = fold_words(said)
        stated = bool(words) and bool(find_named(plan.documents, [words])[words])
        expected = said if stated else "\0"
    truth, _ = true_origin(said, instead, expected)
    in_training = any(fold_words(q.subject) == wanted for q in read.questions)
    naming = {read.documents[at].line for at in find_named(read.documents, [wanted])[wanted]}
    elsewhere = sorted(naming - {document.line for document in plan.documents})
    threads, here = run.info.get("versions", {}).get("threads"), torch.get_num_threads()
    notes = {
        "the run learned their question and its answer in training too; the twin learned neither "
        "the question nor the document.": in_training,
        f"{len(elsewhere)} other documents name them and were read by the twin.": bool(elsewhere),
        "no file has the right answer; a line that states the answer makes it right.": (
            question.answer is None
        ),
        f"the run was trained on {threads} threads and this machine uses {here}: sums differ in "
        "their last bits.": threads != str(here),
    }
    lines = "the line" if len(plan.documents) == 1 else f"the {len(plan.documents)} lines"
    same = "the same" if said == instead else f'"{instead}"'
    what = f"{lines} do not state it"
    if question.answer is not None:
        what = f"the right answer is {question.answer!r}"
    why = {
        REMEMBERED: f'With {lines} about them it says "{said}"; had it never read {lines}, it '
        f"would have said {same}: it remembers.",
        RIGHT_ANYWAY: f'It says "{said}" without {lines} too, so {lines} cannot be why.',
        WRONG: f'It says "{said}" although {what}; without {lines} it says {same}.',
    }
    return {
        "format": FORMAT,
        "twin_of": run.info["sha256"],
        "subject": question.subject,
        "question": question.text,
        "documents": [{"line": d.line, "text": d.text} for d in plan.documents],
        "named_elsewhere": elsewhere,
        "asked_in_training": in_training,
        "right": question.answer,
        "with": {"answer": said, "log_probability": of_run},
        "without": {
            "answer": instead,
            "log_probability": own["log_probability"][0],
            "log_probability_of_with": of_twin,
        },
        "score": round(of_run - of_twin, 4),
        "where": map_line(run, twin, question.text, said),
        "truth": truth,
        "why": why[truth],
        "notes": [note for note, applies in notes.items() if applies],
    }


@torch.inference_mode()
def run_patched(model: Decoder, ids: Tensor, patches: Patches) -> tuple[Tensor, dict[str, Tensor]]:
    """Logits with patched states; and the states at every place, from embedding to output."""
    places: dict[str, nn.Module] = {"embedding": model.embed}
    for layer, block in enumerate(model.blocks, start=1):
        assert isinstance(block, Block)
        places[f"attention {layer}"] = block.mixer
        places[f"feed-forward {layer}"] = block.feed
        places[f"hidden {layer}"] = block
    places["output"] = model.head
    states: dict[str, Tensor] = {}

    def patch(name: str, module: nn.Module, given: Any, out: Tensor) -> Tensor:
        states[name] = out
        donor, where = patches.get(name, (out, torch.ones(1, 1, dtype=torch.bool)))
        return torch.where(where[..., None], donor, out)

    with ExitStack() as stack:
        for name, module in places.items():
            stack.enter_context(module.register_forward_hook(partial(patch, name)))
        return model.eval()(ids), states


def map_line(
    run: Run, twin: Run, question: str, answer: str, *, everywhere: Collection[str] = ()
) -> dict[str, Any]:
    """log p of the answer with the twin's state at each place and position.

    everywhere: places at which the twin's states are taken at all positions in any case.
    """
    ids, weights = answer_row(run, question, answer)
    given, targets, counts = ids[None, :-1], ids[1:], weights[1:]
    length = given.shape[1]

    def log_p(logits: Tensor) -> list[float]:
        wanted = targets.expand(len(logits), -1)
        losses = F.cross_entropy(logits.transpose(1, 2), wanted, reduction="none")
        return [round(-float(value), 4) for value in (losses * counts).sum(1)]

    of_run, _ = run_patched(run.model, given, {})
    of_twin, donor = run_patched(twin.model, given, {})
    whole = torch.ones(1, length, dtype=torch.bool)
    always = {place: (donor[place], whole) for place in everywhere}
    rows = {}
    for place, state in donor.items():
        if state.shape[1] == length:  # a perceiver's latents are no positions
            patches = {place: (state, torch.eye(length, dtype=torch.bool)), **always}
            rows[place] = log_p(run_patched(run.model, given.expand(length, -1), patches)[0])
    return {
        "tokens": [run.tokens.surface(token) for token in given[0].tolist()],
        "with": log_p(of_run)[0],
        "without": log_p(of_twin)[0],
        "places": rows,
    }
