"""Opening a run, of ours or of a model that others trained, with what it learned."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from wherefrom.corpus.facts import read_facts
from wherefrom.corpus.questions import Question, read_questions
from wherefrom.errors import UserError
from wherefrom.provenance.attribution.base_run import LearnedBaseRun
from wherefrom.provenance.attribution.own_run import LearnedOwnRun
from wherefrom.provenance.attribution.retraining import LearnedRun
from wherefrom.provenance.audited import BaseRun, open_run
from wherefrom.training.learned_files import (
    find_source,
    read_learned_documents,
    read_learned_questions,
)
from wherefrom.training.loop import Count, no_count
from wherefrom.training.run_folder import Run, load_run


def open_traceable(source: Run | str | Path) -> Run:
    """A run of ours or the study of a model of others; a UserError for an audit."""
    run = open_run(source)
    return run if isinstance(run, BaseRun) or run.model is not None else load_run(run.folder)


def open_learned(source: Run | str | Path, count: Count = no_count) -> LearnedRun:
    """The run with what it learned, or an error if it cannot be trained again."""
    run = open_traceable(source)
    if getattr(run.record.job, "without", ()):
        forgot = run.record.kind == "forgotten"
        which = "has forgotten some of what it read" if forgot else "is a twin itself"
        raise UserError(f"{run.folder} {which}; give the run that it was made of.")
    text, train, dev = (find_source(run, what) for what in ("corpus", "questions", "dev"))
    if text is None or train is None or not text.folder == train.folder == run.folder:
        raise UserError(
            f"{run.folder} did not learn documents and questions in one training, so nothing can "
            "be left out of it or traced; give a run that study made."
        )
    questions = read_learned_questions(train).questions
    corpus = read_facts(read_learned_documents(text), questions)
    dev_questions: tuple[Question, ...] = ()
    with suppress(UserError):  # without the file nobody else is compared
        dev_questions = read_questions(dev.locate(), run.templates).questions if dev else ()
    if isinstance(run, BaseRun):
        return LearnedBaseRun(run, corpus, questions, dev_questions, count)
    return LearnedOwnRun(run, corpus, questions, dev_questions)
