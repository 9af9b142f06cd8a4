"""What answers about people in no document lean on."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wherefrom.corpus.database import RUN_DATABASE
from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.questions import Question
from wherefrom.corpus.split import JUDGED, HeldOutQuestion, read_subjects
from wherefrom.errors import UserError
from wherefrom.provenance.attribution.kinds import (
    KINDS,
    OWN,
    Floats,
    find_stating,
    kinds_of,
    shares_of_kinds,
)
from wherefrom.provenance.attribution.retraining import Record, answers_of
from wherefrom.provenance.attribution.trace import Tracer
from wherefrom.provenance.names import draw_names
from wherefrom.recall.table import guess_by_name
from wherefrom.storage import format_json
from wherefrom.training.record import check_file, keep_files

LEANING = "leaning.json"


class UnseenAnswer(NamedTuple):
    """An answer about somebody in no document, with scores and kinds of all documents."""

    subject: HeldOutQuestion
    answer: str
    scores: Floats
    kinds: NDArray[np.str_]


def trace_unseen(tracer: Tracer) -> Iterator[UnseenAnswer]:
    """The answers about judged people in no document, traced by gradient."""
    run, documents, read_about = tracer.run, tracer.documents, set(tracer.learned.subjects)
    check_file(run.folder, RUN_DATABASE)
    judged = [s for s in read_subjects(run.folder) if s.role == JUDGED]
    unseen = [s for s in judged if fold_words(s.subject) not in read_about]
    if not unseen:
        raise UserError(f"{run.folder} judges nobody whom no document is about.")
    answers = answers_of(run, [s.question for s in unseen])["answers"]
    stating = find_stating(documents, answers)
    known = [Question(0, "", name, origin.name) for name, origin in draw_names(100, Random(0))]
    names = [*(d.subject for d in documents), *(s.subject for s in unseen)]
    origins = np.array(guess_by_name(known, [Question(0, "", name, None) for name in names]))
    of_documents, of_unseen = np.split(origins, [len(documents)])
    for subject, answer, origin in zip(unseen, answers, of_unseen, strict=True):
        scores = tracer.scores(subject.question, subject.subject, answer)
        same_origin = set(np.flatnonzero(of_documents == origin).tolist())
        states = stating.get(fold_words(answer), set())
        kinds = kinds_of(documents, subject.subject, states, same_origin)
        yield UnseenAnswer(subject, answer, scores, kinds)


def lean_unseen(tracer: Tracer) -> Record:
    """What answers about judged people in no document lean on, by gradient: RUN/leaning.json.

    push: the mean share of a kind, with its interval, over the people for whom some line is
    above the noise floor; lines: the share of lines of that kind.
    """
    people: list[Record] = []
    counts = []
    for subject, answer, scores, kinds in trace_unseen(tracer):
        shares = shares_of_kinds(kinds, scores)
        people.append({"question": subject.question, "answer": answer, "leans_on": shares})
        counts.append([float((kinds == kind).mean()) for kind in KINDS])
    traced = [row["leans_on"] for row in people if row["leans_on"]] or [{}]
    table = np.array([[shares.get(kind, 0.0) for kind in KINDS] for shares in traced])
    drawn = np.random.default_rng(0).integers(len(table), size=(1000, len(table)))
    low, high = np.quantile(table[drawn].mean(axis=1), [0.025, 0.975], axis=0)
    columns = {"push": table.mean(0), "low": low, "high": high, "lines": np.mean(counts, 0)}
    record = {
        "run": tracer.run.record.sha256,
        "kinds": {
            kind: {key: round(float(values[i]), 4) for key, values in columns.items()}
            for i, kind in enumerate(KINDS)
            if kind != OWN
        },
        "people": people,
    }
    try:
        keep_files(tracer.run.folder, {LEANING: format_json(record)})
    except UserError as not_kept:
        tracer.say(f"The run does not keep this: {not_kept}")
    return record
