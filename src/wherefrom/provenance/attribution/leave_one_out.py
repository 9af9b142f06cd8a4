"""What would it have said, had it never read this line? The twin without some subjects' documents.

RUN/twins/without-NAME/ is a run folder like any other, with one file more, `without.json`:

    subject, question        whom, and what both models were asked
    documents                [{line, text}]: what the twin did not read
    named_elsewhere          numbers of lines about others that name the subject, and were read
    asked_in_training        whether the run learned the question itself with its answer
    right                    the right answer, where a file of questions has it; else null
    with                     {answer, log_probability}: the run
    without                  {answer, log_probability, log_probability_of_with}: the twin
    score                    the push: nats by which the run is surer of its answer than the twin
    noise_floor              nats by which log p of the run's answer differs between run and twin
                             for 19 in 20 of the others, to whom those documents cannot matter
    where                    {tokens, with, without, places}: log p of the run's answer with the
                             twin's state at each place and position (patching.py)
    truth                    "remembered", "right anyway" or "wrong though read"
    why                      the same as a sentence
    others                   {people, other_answer}: dev subjects, not left out, whom the twin
                             answers otherwise; so much is the chance of training
    notes                    sentences that the reader must know

Where several subjects are left out at once, the file has `subjects`, `people` with such a record of
each, and `others` and `noise_floor` once.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

from wherefrom.corpus.documents import Corpus, Document
from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.questions import SLOT, Question
from wherefrom.corpus.subjects import find_named
from wherefrom.errors import UserError
from wherefrom.provenance.attribution.cross_pretraining import RIGHT_ANYWAY, true_origin
from wherefrom.provenance.attribution.patching import map_line
from wherefrom.provenance.attribution.retraining import (
    LearnedRun,
    compare_others,
    likelihoods,
    open_learned,
)
from wherefrom.provenance.verdicts import REMEMBERED, shorten
from wherefrom.recall.decode import answer_all
from wherefrom.storage import write_json
from wherefrom.training.distributed import join_processes
from wherefrom.training.loop import Observer
from wherefrom.training.run_folder import Run, is_finished
from wherefrom.training.settings import Runtime

FORMAT = 1
RECORD = "without.json"
LONGEST_SLUG = 60


@dataclass(frozen=True, eq=False)
class Plan:
    """What the twin is to be trained without, and what both are asked."""

    learned: LearnedRun
    documents: tuple[Document, ...]
    question: Question


def plan_twin(run: Run, name: str) -> Plan:
    """All that can be refused, before anything is trained."""
    learned = open_learned(run)
    documents = find_documents(learned.corpus, name)
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


def find_documents(corpus: Corpus, name: str) -> tuple[Document, ...]:
    """The documents about that subject, or a sentence with the nearest names."""
    wanted = fold_words(name)
    found = tuple(d for d in corpus.documents if wanted and fold_words(d.subject) == wanted)
    if not found:
        subjects = {" ".join(fold_words(d.subject)): d.subject for d in corpus.documents}
        near = get_close_matches(" ".join(wanted), subjects, n=3, cutoff=0.6)
        hint = ", ".join(f'"{subjects[each]}"' for each in near)
        raise UserError(
            f'no document is about "{shorten(name)}", so there is nothing to leave out; '
            + (f"near names are {hint}." if near else "no name in the corpus is near it.")
        )
    return found


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
) -> dict[str, Any]:
    """Train the twin without the documents of all plans, compare, and write `without.json`."""
    settings = settings or Runtime(device="cpu")
    subjects = [plan.question.subject for plan in plans]
    folder = twin_folder(run, *subjects)
    learned = plans[0].learned
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


def compare(run: Run, twin: Run, plan: Plan) -> dict[str, Any]:
    """What both say, and whether the documents made the difference; see the module's docstring."""
    question, wanted = plan.question, fold_words(plan.question.subject)
    said, instead = (
        answer_all(each.model, each.tokens, [question.text])[0].text for each in (run, twin)
    )
    (of_run,) = likelihoods(run, [question.text], [said])
    of_twin, own = likelihoods(twin, [question.text] * 2, [said, instead])
    expected = question.answer
    if expected is None:  # a line that states the answer makes it right
        words = fold_words(said)
        stated = bool(words) and bool(find_named(plan.documents, [words])[words])
        expected = said if stated else "\0"
    truth, _ = true_origin(said, instead, expected)
    in_training = any(fold_words(q.subject) == wanted for q in plan.learned.questions)
    read = plan.learned.documents
    naming = {read[at].line for at in find_named(read, [wanted])[wanted]}
    elsewhere = sorted(naming - {document.line for document in plan.documents})
    return {
        "format": FORMAT,
        "twin_of": run.info["sha256"],
        "subject": question.subject,
        "question": question.text,
        "documents": [{"line": d.line, "text": d.text} for d in plan.documents],
        "named_elsewhere": elsewhere,
        "asked_in_training": in_training,
        "right": question.answer,
        "with": {"answer": said, "log_probability": round(of_run, 4)},
        "without": {
            "answer": instead,
            "log_probability": round(own, 4),
            "log_probability_of_with": round(of_twin, 4),
        },
        "score": round(of_run - of_twin, 4),
        "where": map_line(run, twin, question.text, said),
        "truth": truth,
        "why": _explain(truth, said, instead, question.answer, len(plan.documents)),
        "notes": _notes(run, elsewhere, in_training, question.answer is None),
    }


def _explain(truth: str, said: str, instead: str, right: str | None, documents: int) -> str:
    lines = "the line" if documents == 1 else f"the {documents} lines"
    if truth == REMEMBERED:
        return (
            f'With {lines} about them it says "{said}"; had it never read {lines}, it would have '
            f'said "{instead}": it remembers.'
        )
    if truth == RIGHT_ANYWAY:
        return f'It says "{said}" without {lines} too, so {lines} cannot be why.'
    what = f"the right answer is {right!r}" if right is not None else f"{lines} do not state it"
    same = "the same" if said == instead else f'"{instead}"'
    return f'It says "{said}" although {what}; without {lines} it says {same}.'


def _notes(run: Run, elsewhere: Sequence[int], in_training: bool, unknown: bool) -> list[str]:
    threads, here = run.info.get("versions", {}).get("threads"), torch.get_num_threads()
    notes: dict[str, Any] = {
        "the run learned their question and its answer in training too; the twin learned neither "
        "the question nor the document.": in_training,
        f"{len(elsewhere)} other documents name them and were read by the twin.": elsewhere,
        "no file has the right answer; a line that states the answer makes it right.": unknown,
        f"the run was trained on {threads} threads and this machine uses {here}: sums differ in "
        "their last bits.": threads != str(here),
    }
    return [note for note, applies in notes.items() if applies]
