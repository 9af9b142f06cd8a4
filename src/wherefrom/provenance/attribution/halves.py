"""Two twins, each without one half of the judged people: which verdicts of the run are true?

An answer is remembered in truth if it is right with the documents about the person and not without
them. Every judged person is read about by the run and not by one of the twins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from wherefrom.corpus.database import RUN_DATABASE, Database
from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.split import DEV, JUDGED, HeldOutQuestion, find_named, read_subjects
from wherefrom.errors import UserError
from wherefrom.provenance.attribution.retraining import (
    LearnedRun,
    Record,
    answers_of,
    likelihoods,
)
from wherefrom.provenance.attribution.trace import Tracer
from wherefrom.provenance.audited import BaseRun
from wherefrom.provenance.confidence.fit import load_confidence
from wherefrom.provenance.evidence import Evidence, save_database
from wherefrom.provenance.knowledge import add_twin_answers
from wherefrom.provenance.metrics import share_with_interval
from wherefrom.provenance.verdicts import GUESSED, MADE_UP, AskedRun, AskOptions, Verdict
from wherefrom.provenance.wording import DONT_KNOW, REMEMBERED, STATED
from wherefrom.recall.table import score
from wherefrom.storage import format_json
from wherefrom.training.distributed import join_processes
from wherefrom.training.loop import Observer, Say
from wherefrom.training.record import check_file, keep_files
from wherefrom.training.run_folder import Run
from wherefrom.training.settings import Runtime

# the run, and the twin that did not read about the subject, each with where its truth is written
SIDES = {"with": "truth", "without": "truth_without"}
MOST_TRACED = 200  # answers of the run in each half

# in truth: REMEMBERED is right with the documents and not without them, RIGHT_ANYWAY with and
# without them; of what was not read, GUESSED is right and MADE_UP is wrong
RIGHT_ANYWAY, WRONG_THOUGH_READ = "right anyway", "wrong though read"
TRUTHS = (REMEMBERED, RIGHT_ANYWAY, WRONG_THOUGH_READ, GUESSED, MADE_UP)

# what takes an answer of one model for remembered, and is tested as such; None: it was not traced
TESTS: dict[str, Callable[[Record], bool | None]] = {
    "verdict remembered, by trace": lambda answer: answer["remembered"],
    "verdict stated": lambda answer: answer["verdict"] == STATED,
    "shown": lambda answer: answer["shown"] != DONT_KNOW,
    "shown without the text": lambda answer: answer["shown_internal"],
}


def draw_halves(learned: LearnedRun) -> tuple[list[list[HeldOutQuestion]], list[str]]:
    """The judged subjects that the run read about, in two random halves; and notes.

    A subject whom another subject's document names is in neither: the twin would read about it.
    """
    run = learned.run
    check_file(run.folder, RUN_DATABASE)
    judged = [s for s in read_subjects(run.folder) if s.role == JUDGED and s.source == DEV]
    judged_names = {fold_words(s.subject) for s in judged}
    about, named_in = learned.subjects, find_named(learned.documents, judged_names)
    names = sorted(n for n, rows in named_in.items() if rows and all(about[i] == n for i in rows))
    if len(names) < 2:
        raise UserError(
            f"two halves need at least two judged people whose documents can be left out, and "
            f"{run.folder} has {len(names)}."
        )
    order = np.random.default_rng([run.record.job.seed, 0x7717]).permutation(len(names))
    half_of = {names[i]: rank % 2 for rank, i in enumerate(order)}
    halves = [[s for s in judged if half_of.get(fold_words(s.subject)) == half] for half in (0, 1)]
    excluded = len(judged_names) - len(names)
    note = "dev people are not judged: no document is about them, or others name them too."
    return halves, [f"{excluded} {note}"] if excluded else []


def cross_pretrain(
    learned: LearnedRun,
    *,
    settings: Runtime | None = None,
    observe: Observer | None = None,
    say: Say = lambda _: None,
) -> Record:
    """Train both twins of a run, judge its answers by theirs, and write twins.json.

    Twins of a model that others trained check what was called learned from the text instead.
    """
    run, tracer = learned.run, Tracer(learned, say=say)
    halves, notes = draw_halves(learned)
    rows: list[Record] = []
    twins, knowledge = [], None
    for name, subjects in zip("ab", halves, strict=True):
        folder = run.folder / "twins" / f"half-{name}"
        say(f"training again without half {name.upper()} of the judged people ({folder})")
        lines = learned.lines_about({fold_words(s.subject) for s in subjects})
        twin = learned.retrain(lines, folder, settings=settings, observe=observe)
        about = twin.record.model_dump(include={"steps", "seconds", "sha256"})
        twins.append({"folder": folder.name, **about})
        if isinstance(run, BaseRun):
            asked = [subject.question for subject in subjects]
            answers = answers_of(twin, asked)["answers"]
            knowledge = add_twin_answers(run, dict(zip(asked, answers, strict=True)))
        else:
            rows += pair_answers(tracer, twin, subjects)
    if isinstance(run, BaseRun):
        if knowledge is None:
            raise UserError(f"{run.folder} has no record of what it knew before; study it again.")
        return {"run": str(run.folder), "notes": notes, "knowledge": knowledge}
    right = [row["right"] for row in rows]
    recall = {side: score([row[side]["answer"] for row in rows], right) for side in SIDES}
    record = {
        "format": 3,
        "notes": notes,
        "recall": {side: found.to_dict() for side, found in recall.items()},
        "twins": twins,
        **summarise(rows),
    }
    files = {"twins/twins.json": format_json(record)}
    join_processes().on_rank0(lambda: keep_files(run.folder, files))
    return record


def pair_answers(tracer: Tracer, twin: Run, subjects: Sequence[HeldOutQuestion]) -> list[Record]:
    """What the run and a twin that did not read about the subjects say, each with its verdict."""
    learned, left_out = tracer.learned, set(twin.job.without)
    corpus = learned.corpus.select(lambda document: document.line not in left_out)
    of_run = give_verdicts(learned, learned.run, learned.corpus, subjects)
    of_twin = give_verdicts(learned, twin, corpus, subjects)
    questions, answers = [s.question for s in subjects], [verdict.answer for verdict in of_run]
    log_p, log_p_twin = (likelihoods(model, questions, answers) for model in (learned.run, twin))
    rows = []
    for i, subject in enumerate(subjects):
        right = subject.answer or ""
        guessed = is_same(of_twin[i].answer, right)
        remembered = None
        if i < MOST_TRACED:
            remembered = of_run[i].verdict == STATED and (
                tracer.trace(subject.question)["verdict"] == REMEMBERED
            )
        rows.append(
            {
                "subject": subject.subject,
                "question": subject.question,
                "right": right,
                "twin": twin.folder.name,
                "truth": true_origin(answers[i], of_twin[i].answer, right),
                "truth_without": GUESSED if guessed else MADE_UP,
                "score": log_p[i] - log_p_twin[i],
                "with": {**as_record(of_run[i]), "remembered": remembered},
                "without": {**as_record(of_twin[i]), "remembered": False},
            }
        )
    return rows


def give_verdicts(
    learned: LearnedRun, model: Run, corpus: Database, subjects: Sequence[HeldOutQuestion]
) -> list[Verdict]:
    """Verdicts on a model's answers, by the run's confidence and a corpus."""
    run, confidence = learned.run, load_confidence(learned.run)
    rated_by = replace(confidence, run=replace(model, folder=run.folder))
    database = save_database(corpus, model.folder / RUN_DATABASE, learned.questions)
    questions, names = [s.question for s in subjects], [s.subject for s in subjects]
    with Evidence(database.reopen()) as evidence:
        asked = AskedRun(model, evidence, rated_by, confidence.signal_state.known_answers)
        return asked.give_verdicts(questions, names, AskOptions())


def as_record(verdict: Verdict) -> Record:
    return {
        "answer": verdict.answer,
        "shown": verdict.shown,
        "shown_internal": verdict.shown_internal,
        "verdict": verdict.verdict or "",
    }


def is_same(answer: str, right: str) -> bool:
    """Whether two answers are equal but for blanks around them."""
    return answer.strip() == right.strip()


def true_origin(with_lines: str, without_lines: str, right: str) -> str:
    """The truth about an answer, by what a model says that did not read the lines."""
    if not is_same(with_lines, right):
        return WRONG_THOUGH_READ
    return RIGHT_ANYWAY if is_same(without_lines, right) else REMEMBERED


def summarise(rows: Sequence[Record]) -> Record:
    """All numbers about the judged subjects, and the subjects themselves.

    caught: for each test of what is remembered, how much of what it takes is (precision), and how
    much of what is it takes (recall).
    """
    pairs = [(row[side], row[key]) for row in rows for side, key in SIDES.items()]
    counts = Counter((answer["verdict"], truth) for answer, truth in pairs)
    words = sorted({answer["verdict"] for answer, _ in pairs})
    caught = {}
    for name, test in TESTS.items():
        tested = [(test(answer), truth == REMEMBERED) for answer, truth in pairs]
        hits = sum(taken is True and is_true for taken, is_true in tested)
        called = sum(taken is True for taken, _ in tested)
        remembered = sum(is_true for taken, is_true in tested if taken is not None)
        caught[name] = {
            "precision": share_with_interval(hits, called),
            "recall": share_with_interval(hits, remembered),
        }
    return {
        "people": {"judged": len(rows)},
        "truth": {side: dict(Counter(row[key] for row in rows)) for side, key in SIDES.items()},
        "verdicts": {word: {truth: counts[word, truth] for truth in TRUTHS} for word in words},
        "caught": caught,
        "judged": list(rows),
    }
