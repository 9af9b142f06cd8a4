"""What would it have said, had it never read this line? The twin without some subjects' documents.

The twin is trained just as the run was, on the same batches in the same order, in which rows made
of those documents or of questions about their subjects count nothing (training/jobs.py); then it
is asked the same question.

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
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch

from wherefrom.corpus.documents import Corpus, Document
from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.questions import SLOT, Question, read_questions
from wherefrom.corpus.subjects import find_named
from wherefrom.errors import UserError
from wherefrom.provenance.attribution.cross_pretraining import (
    RIGHT_ANYWAY,
    likelihoods,
    true_origin,
)
from wherefrom.provenance.verdicts import REMEMBERED, shorten
from wherefrom.recall.decode import answer_all
from wherefrom.storage import make_folder, read_json, write_json
from wherefrom.training.distributed import join_processes
from wherefrom.training.jobs import retrain
from wherefrom.training.loop import Observer
from wherefrom.training.run_folder import (
    Run,
    find_source,
    read_learned_documents,
    read_learned_questions,
)
from wherefrom.training.settings import Runtime

FORMAT = 1
RECORD = "without.json"
LONGEST_SLUG = 60
NOISE_SHARE = 0.95  # of the others' answers lie below the noise floor


@dataclass(frozen=True)
class Plan:
    """What the run learned, what the twin is to be trained without, and what both are asked.

    dev: the run's dev questions, if their file is still there.
    """

    corpus: Corpus
    questions: tuple[Question, ...]
    dev: tuple[Question, ...]
    documents: tuple[Document, ...]
    question: Question


def plan_twin(run: Run, name: str) -> Plan:
    """All that can be refused, before anything is trained."""
    sources = {what: find_source(run, what) for what in ("corpus", "questions", "dev")}
    read, asked, dev = sources.values()
    if run.info["job"].get("without"):
        raise UserError(f"{run.folder} is a twin itself; give the run that it is a twin of.")
    if read is None or asked is None or not read.folder == asked.folder == run.folder:
        raise UserError(
            f"{run.folder} did not learn documents and questions in one training, so there is "
            "nothing to leave one out of; give a run that study made."
        )
    corpus, learned = read_learned_documents(read), read_learned_questions(asked).questions
    held: tuple[Question, ...] = ()
    if dev is not None:
        with suppress(UserError):  # without the file nobody else is compared
            held = read_questions(dev.locate(), run.templates).questions
    documents = find_documents(corpus, name)
    subject = documents[0].subject
    for question in (*held, *learned):
        if fold_words(question.subject) == fold_words(subject):
            return Plan(corpus, learned, held, documents, question)
    wording = next((each for each in run.templates if SLOT in each), None)
    if wording is None:
        raise UserError(
            f'nobody asks about "{subject}", and the questions of {run.folder} share no wording '
            "to ask in; choose somebody whom a question is about."
        )
    question = Question(0, wording.replace(SLOT, subject), subject, None, wording)
    return Plan(corpus, learned, held, documents, question)


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


def is_finished(folder: Path) -> bool:
    """Whether a twin is there that need not be trained any more."""
    record = folder / "run.json"
    return record.is_file() and read_json(record).get("status") == "finished"


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
    folder = twin_folder(run, *(plan.question.subject for plan in plans))
    make_folder(folder.parent)
    twin = retrain(
        run,
        plans[0].corpus.documents,
        plans[0].questions,
        folder,
        without=[document.line for plan in plans for document in plan.documents],
        settings=replace(settings, resume=settings.resume or is_finished(folder)),
        observe=observe,
    )
    gone = {fold_words(plan.question.subject) for plan in plans}
    others = compare_others(
        run, twin, [q for q in plans[0].dev if fold_words(q.subject) not in gone]
    )
    records = [compare(run, twin, plan) | others for plan in plans]
    record = records[0]
    if len(plans) > 1:
        keys = ("format", "twin_of", "others", "noise_floor")
        subjects = [plan.question.subject for plan in plans]
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
    in_training = any(fold_words(q.subject) == wanted for q in plan.questions)
    naming = {
        plan.corpus.documents[at].line for at in find_named(plan.corpus.documents, [wanted])[wanted]
    }
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
        "truth": truth,
        "why": _explain(truth, said, instead, question.answer, len(plan.documents)),
        "notes": _notes(run, elsewhere, in_training, question.answer is None),
    }


def compare_others(run: Run, twin: Run, questions: Sequence[Question]) -> dict[str, Any]:
    """How much the answers to others' questions differ between a run and its twin, by chance.

    `others` and `noise_floor` as the module's docstring has them; the floor is None without others.
    """
    asked = [question.text for question in questions]
    if not asked:
        return {"others": {"people": 0, "other_answer": 0}, "noise_floor": None}
    ours, theirs = (
        [answer.text for answer in answer_all(each.model, each.tokens, asked)]
        for each in (run, twin)
    )
    gaps = np.subtract(likelihoods(run, asked, ours), likelihoods(twin, asked, ours))
    changed = sum(one != other for one, other in zip(ours, theirs, strict=True))
    return {
        "others": {"people": len(asked), "other_answer": changed},
        "noise_floor": round(float(np.quantile(np.abs(gaps), NOISE_SHARE)), 4),
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
