"""What would a run have said without some lines? Found by training it again."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import torch

from wherefrom.corpus.documents import Document
from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.questions import SLOT, Question
from wherefrom.corpus.split import find_named
from wherefrom.errors import UserError
from wherefrom.provenance.attribution.halves import RIGHT_ANYWAY, WRONG_THOUGH_READ, true_origin
from wherefrom.provenance.attribution.inside import map_line
from wherefrom.provenance.attribution.retraining import (
    LearnedRun,
    Record,
    answers_of,
    compare_others,
    likelihoods,
)
from wherefrom.provenance.audited import BaseRun
from wherefrom.provenance.knowledge import add_twin_answers
from wherefrom.provenance.wording import REMEMBERED
from wherefrom.storage import format_json
from wherefrom.training.distributed import join_processes
from wherefrom.training.loop import Observer
from wherefrom.training.record import keep_files
from wherefrom.training.run_folder import Run
from wherefrom.training.settings import Runtime


@dataclass(frozen=True, eq=False)
class Plan:
    """The documents of one subject that the twin is trained without, and what both are asked."""

    learned: LearnedRun
    documents: tuple[Document, ...]
    question: Question


def plan_twin(learned: LearnedRun, name: str) -> Plan:
    """Find the documents and a question, or refuse, before anything is trained."""
    run = learned.run
    documents = learned.documents_about(name)
    subject = documents[0].subject
    for question in (*learned.dev, *learned.questions):
        if fold_words(question.subject) == fold_words(subject):
            return Plan(learned, documents, question)
    template = next((template for template in run.templates if SLOT in template), None)
    if template is None:
        raise UserError(
            f'nobody asks about "{subject}", and the questions of {run.folder} share no wording '
            "to ask in; choose somebody whom a question is about."
        )
    text = template.replace(SLOT, subject)
    return Plan(learned, documents, Question(0, text, subject, None, template))


def twin_folder(run: Run, *names: str) -> Path:
    """Where the twin without these subjects is; names that are compared as one share it."""
    words = "--".join(sorted({"-".join(fold_words(name)) for name in names}))
    if len(words) > 60:
        words = f"{words[:60]}-{sha256(words.encode()).hexdigest()[:8]}"
    return run.folder / "twins" / f"without-{words}"


def command_without(folder: Path, subject: str) -> str:
    """The command that trains a twin of the run in `folder`, to be typed in this directory."""
    relative = os.path.relpath(folder)
    path = relative if not relative.startswith("..") else os.path.abspath(folder)
    return shlex.join(["wherefrom", "twins", path, "--without", subject])


def leave_out(
    *plans: Plan, settings: Runtime | None = None, observe: Observer | None = None
) -> Record:
    """Train the twin without the documents of all plans, compare, and write `without.json`.

    For a model that others trained, the twin checks what was called learned from the text.
    """
    subjects = [plan.question.subject for plan in plans]
    lines = [document.line for plan in plans for document in plan.documents]
    learned = plans[0].learned
    run, folder = learned.run, twin_folder(learned.run, *subjects)
    twin = learned.retrain(lines, folder, settings=settings, observe=observe)
    others = compare_others(learned, twin, subjects)
    records = [compare(twin, plan) | others for plan in plans]
    record = records[0]
    if len(plans) > 1:
        keys = ("format", "twin_of", "others", "noise_floor")
        record = {**{key: record[key] for key in keys}, "subjects": subjects, "people": records}
    files = {"without.json": format_json(record)}
    join_processes().on_rank0(lambda: keep_files(folder, files))
    if isinstance(run, BaseRun):
        folded = {fold_words(subject) for subject in subjects}
        asked = [q.text for q in learned.dev if fold_words(q.subject) in folded]
        add_twin_answers(run, dict(zip(asked, answers_of(twin, asked)["answers"], strict=True)))
    return record


def compare(twin: Run, plan: Plan) -> Record:
    """What both say, and whether the documents made the difference: see docs/trace.md."""
    run = plan.learned.run
    question, documents = plan.question, plan.documents
    by_run, by_twin = (answers_of(model, [question.text]) for model in (run, twin))
    answer, instead = by_run["answers"][0], by_twin["answers"][0]
    log_p_run = by_run["log_probability"][0]
    log_p_twin = round(likelihoods(twin, [question.text], [answer])[0], 4)
    right = question.answer
    if right is None and is_stated(answer, documents):  # the line that states it makes it right
        right = answer
    truth = WRONG_THOUGH_READ if right is None else true_origin(answer, instead, right)
    where: Record = {"tokens": [], "with": log_p_run, "without": log_p_twin, "places": {}}
    if not isinstance(run, BaseRun):
        where = map_line(run, twin, question.text, answer)
    asked_in_training, elsewhere = find_other_sources(plan)
    return {
        "format": 1,
        "twin_of": run.record.sha256,
        "subject": question.subject,
        "question": question.text,
        "documents": [{"line": d.line, "text": d.text} for d in documents],
        "named_elsewhere": elsewhere,
        "asked_in_training": asked_in_training,
        "right": question.answer,
        "with": {"answer": answer, "log_probability": log_p_run},
        "without": {
            "answer": instead,
            "log_probability": by_twin["log_probability"][0],
            "log_probability_of_with": log_p_twin,
        },
        "score": round(log_p_run - log_p_twin, 4),
        "where": where,
        "truth": truth,
        "why": explain_truth(truth, plan, answer, instead),
        "notes": list_caveats(plan, elsewhere, asked_in_training=asked_in_training),
    }


def is_stated(answer: str, documents: Sequence[Document]) -> bool:
    """Whether the words of an answer are in some of the documents."""
    words = fold_words(answer)
    return bool(words) and bool(find_named(documents, [words])[words])


def find_other_sources(plan: Plan) -> tuple[bool, list[int]]:
    """Whether the run learned a question about the subject; other lines that name the subject."""
    learned, subject = plan.learned, fold_words(plan.question.subject)
    asked_in_training = any(fold_words(q.subject) == subject for q in learned.questions)
    naming = {learned.documents[i].line for i in find_named(learned.documents, [subject])[subject]}
    return asked_in_training, sorted(naming - {document.line for document in plan.documents})


def explain_truth(truth: str, plan: Plan, answer: str, instead: str) -> str:
    """The truth about the run's answer in a sentence."""
    count = len(plan.documents)
    lines = "the line" if count == 1 else f"the {count} lines"
    same = "the same" if answer == instead else f'"{instead}"'
    if truth == REMEMBERED:
        return (
            f'With {lines} about them it says "{answer}"; had it never read {lines}, it would have '
            f"said {same}: it remembers."
        )
    if truth == RIGHT_ANYWAY:
        return f'It says "{answer}" without {lines} too, so {lines} cannot be why.'
    right = plan.question.answer
    although = f"{lines} do not state it" if right is None else f"the right answer is {right!r}"
    return f'It says "{answer}" although {although}; without {lines} it says {same}.'


def list_caveats(plan: Plan, elsewhere: Sequence[int], *, asked_in_training: bool) -> list[str]:
    """What a reader of the comparison should know."""
    run, notes = plan.learned.run, []
    if asked_in_training:
        notes.append(
            "the run learned their question and its answer in training too; the twin learned "
            "neither the question nor the document."
        )
    if elsewhere:
        notes.append(f"{len(elsewhere)} other documents name them and were read by the twin.")
    if plan.question.answer is None:
        notes.append("no file has the right answer; a line that states the answer makes it right.")
    threads, here = run.record.versions.get("threads"), torch.get_num_threads()
    if threads != str(here):
        notes.append(
            f"the run was trained on {threads} threads and this machine uses {here}: sums differ "
            "in their last bits."
        )
    if isinstance(run, BaseRun):
        notes.append("where in the model its lines matter is not mapped for a model of others.")
    return notes
