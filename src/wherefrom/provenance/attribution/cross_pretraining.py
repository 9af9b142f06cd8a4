"""Two-fold twins: two quiet retrainings of a run, each without half of the judged people.

Every judged subject is read by the run and not by one of the twins. An answer of the run is
remembered in truth if it is right and the twin's is not; what the cheap scores of one model say
about that is measured against it (docs/provenance.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import numpy as np
from numpy.random import Generator
from scipy.stats import rankdata

from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.subjects import DEV, JUDGED, Subject, find_named, read_subjects
from wherefrom.errors import UserError
from wherefrom.provenance.attribution.retraining import LearnedRun, likelihoods, open_learned
from wherefrom.provenance.confidence.fit import load_confidence
from wherefrom.provenance.evidence.index import EVIDENCE_FILE, ensure_evidence
from wherefrom.provenance.judging.judge import RIVALS, SUPPORT
from wherefrom.provenance.metrics import DEFINED, LEVEL, RESAMPLES, Floats
from wherefrom.provenance.signals.reader import SIGNS, SLOW
from wherefrom.provenance.verdicts import (
    DONT_KNOW,
    GUESSED,
    MADE_UP,
    REMEMBERED,
    STATED,
    Verdict,
    give_verdicts,
)
from wherefrom.recall.decode import score
from wherefrom.storage import write_json
from wherefrom.training.distributed import join_processes
from wherefrom.training.loop import Observer
from wherefrom.training.run_folder import Run
from wherefrom.training.settings import Runtime

FORMAT = 2
RESULT = "twins/twins.json"
HALVES = ("a", "b")

# in truth: REMEMBERED is right with the documents and not without them, RIGHT_ANYWAY with and
# without them; of what was not read, GUESSED is right and MADE_UP is wrong
RIGHT_ANYWAY, WRONG = "right anyway", "wrong though read"
TRUTHS = (REMEMBERED, RIGHT_ANYWAY, WRONG, GUESSED, MADE_UP)

Row = dict[str, Any]  # a judged subject as twins.json has it: "with" is the run, "without" its twin
# what takes an answer of one model for remembered, and is tested as such
TESTS: dict[str, Callable[[Row], bool]] = {
    "verdict stated": lambda said: said["verdict"] == STATED,
    "shown": lambda said: said["shown"] != DONT_KNOW,
    "shown without the text": lambda said: said["shown_internal"],
}


def draw_halves(learned: LearnedRun) -> tuple[tuple[list[Subject], list[Subject]], list[str]]:
    """The judged subjects that the run read about, in two random halves; and notes.

    Those whom another subject's document names are in neither: they cannot be left out cleanly.
    """
    run = learned.run
    judged = [s for s in read_subjects(run.folder) if s.role == JUDGED and s.source == DEV]
    about = [fold_words(document.subject) for document in learned.documents]
    found = find_named(learned.documents, {fold_words(each.subject) for each in judged})
    clean = {name for name, at in found.items() if at and all(about[i] == name for i in at)}
    names = sorted(clean)
    if len(names) < 2:
        raise UserError(
            f"two halves need at least two judged people whose documents can be left out, and "
            f"{run.folder} has {len(names)}."
        )
    order = np.random.default_rng([run.info["job"]["seed"], 0x7717]).permutation(len(names))
    half = {names[at]: number % 2 for number, at in enumerate(order)}
    kept = [
        (each, half[fold_words(each.subject)])
        for each in judged
        if fold_words(each.subject) in half
    ]
    others = len({fold_words(each.subject) for each in judged}) - len(names)
    note = (
        f"{others} of the dev people are not judged: they have no document of their own, or a "
        "name that another document holds too."
    )
    first, second = ([each for each, at in kept if at == number] for number in (0, 1))
    return (first, second), [note] if others else []


def cross_pretrain(
    run: Run,
    *,
    settings: Runtime | None = None,
    observe: Observer | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Train both twins of a run, judge its answers by theirs, and write twins.json.

    Twins that are there are not trained again.
    """
    learned = open_learned(run)
    halves, notes = draw_halves(learned)
    rows: list[Row] = []
    twins = []
    for name, subjects in zip(HALVES, halves, strict=True):
        folder = run.folder / "twins" / f"half-{name}"
        say(f"training again without half {name.upper()} of the judged people ({folder})")
        gone = {fold_words(each.subject) for each in subjects}
        lines = [d.line for d in learned.documents if fold_words(d.subject) in gone]
        twin = learned.retrain(lines, folder, settings=settings, observe=observe)
        twins.append(twin)
        rows += pair_answers(learned, twin, subjects)
    right = [row["right"] for row in rows]
    record = {
        "format": FORMAT,
        "notes": notes,
        "recall": {
            side: score([row[side]["answer"] for row in rows], right).to_dict()
            for side in ("with", "without")
        },
        "twins": [
            {
                "folder": each.folder.name,
                **{k: each.info[k] for k in ("steps", "seconds", "sha256")},
            }
            for each in twins
        ],
        **summarise(rows, np.random.default_rng([run.info["job"]["seed"], 0xD4A3])),
    }
    join_processes().on_rank0(lambda: write_json(run.folder / RESULT, record))
    return record


def pair_answers(learned: LearnedRun, twin: Run, subjects: Sequence[Subject]) -> list[Row]:
    """What the run and a twin that did not read about the subjects say, each with its verdict.

    The twin's answers are looked up in what it read, and rated by the run's confidence.
    """
    run, confidence = learned.run, load_confidence(learned.run)
    questions = [each.question for each in subjects]
    names = [each.subject for each in subjects]
    gone = {d.subject for d in learned.documents if d.line in set(twin.info["job"]["without"])}
    said: dict[str, list[Verdict]] = {}
    naming: dict[str, list[float]] = {}
    for side, model, corpus in (
        ("with", run, learned.corpus),
        ("without", twin, learned.corpus.without(sorted(gone))),
    ):
        path = model.folder / EVIDENCE_FILE
        with closing(ensure_evidence(corpus, path, learned.questions)) as evidence:
            said[side] = give_verdicts(model, confidence, evidence, questions, names, also=None)
            naming[side] = [float(evidence.count(name).naming) for name in names]
    ours = [verdict.answer for verdict in said["with"]]
    likely = {
        "with": likelihoods(run, questions, ours),
        "without": likelihoods(twin, questions, ours),
    }
    rows = []
    for at, subject in enumerate(subjects):
        right = subject.answer or ""
        answers = {side: said[side][at].answer for side in said}
        truth, without = true_origin(answers["with"], answers["without"], right)
        rows.append(
            {
                "subject": subject.subject,
                "question": subject.question,
                "right": right,
                "twin": twin.folder.name,
                "truth": truth,
                "truth_without": without,
                "score": likely["with"][at] - likely["without"][at],
                **{
                    side: {
                        "answer": answers[side],
                        "log_probability_of_with": likely[side][at],
                        **_judge_cheaply(said[side][at], naming[side][at]),
                    }
                    for side in said
                },
            }
        )
    return rows


def true_origin(reader: str, other: str, right: str) -> tuple[str, str]:
    """The truth about a reader's answer and about the answer of the model that did not read."""
    by_reader, by_other = (said.strip() == right.strip() for said in (reader, other))
    truth = (RIGHT_ANYWAY if by_other else REMEMBERED) if by_reader else WRONG
    return truth, GUESSED if by_other else MADE_UP


def _judge_cheaply(verdict: Verdict, naming: float) -> Row:
    """What one model alone gives away about its answer; higher scores: likelier remembered."""
    scores = {
        "internal confidence": verdict.internal_confidence or 0.0,
        "checked confidence": verdict.confidence or 0.0,
        "verdict stated": float(verdict.verdict == STATED),
    }
    for name, (columns, _) in RIVALS.items():
        value = naming if columns == (SUPPORT,) else verdict.signals.get(columns[0])
        if len(columns) == 1 and columns[0] in (SUPPORT, *SIGNS) and columns[0] not in SLOW:
            scores[name] = SIGNS.get(columns[0], 1) * (-1e3 if value is None else value)
    return {
        "shown": verdict.shown,
        "shown_internal": verdict.shown_internal,
        "verdict": verdict.verdict or "",
        "scores": scores,
    }


def summarise(rows: Sequence[Row], rng: Generator) -> dict[str, Any]:
    """All numbers about the judged subjects, and the subjects themselves."""
    if not rows:
        raise UserError("nobody was judged, so there is nothing to agree about.")
    return {
        "people": {"judged": len(rows)},
        "truth": {
            "with": dict(Counter(row["truth"] for row in rows)),
            "without": dict(Counter(row["truth_without"] for row in rows)),
        },
        "verdicts": count_table(rows, lambda said: said["verdict"]),
        "internal": count_table(rows, lambda s: "shown" if s["shown_internal"] else DONT_KNOW),
        "agreement": {
            name: measure_agreement(rows, name, rng) for name in rows[0]["with"]["scores"]
        },
        "caught": {name: measure_test(rows, test, rng) for name, test in TESTS.items()},
        "judged": list(rows),
    }


def count_table(rows: Sequence[Row], word: Callable[[Row], str]) -> dict[str, dict[str, int]]:
    """The table of a cheap word (a verdict, say) against the truth, over both models' answers."""
    pairs = [(word(row["with"]), row["truth"]) for row in rows]
    pairs += [(word(row["without"]), row["truth_without"]) for row in rows]
    words = sorted({word for word, _ in pairs})
    return {each: {truth: pairs.count((each, truth)) for truth in TRUTHS} for each in words}


def measure_agreement(rows: Sequence[Row], name: str, rng: Generator) -> dict[str, Any]:
    """How one cheap score agrees with the truth.

    AUROC on all answers and on the readers', rank correlation with the push on the readers'.
    """
    scores = _both(rows, lambda said: said["scores"][name])
    true, push = _remembered(rows), np.array([row["score"] for row in rows])
    one_kind = "all answers are of one kind, so there is nothing to tell apart."
    constant = "one of the two scores is the same for everybody."
    return {
        "all": estimate(_auroc, one_kind, rng, scores, true),
        "readers": estimate(_auroc, one_kind, rng, scores[:, :1], true[:, :1]),
        "rank": estimate(_rank_correlation, constant, rng, scores[:, :1], push[:, None]),
    }


def measure_test(
    rows: Sequence[Row], test: Callable[[Row], bool], rng: Generator
) -> dict[str, Any]:
    """Precision and recall of a cheap test for being remembered, over both models' answers."""
    yes, true = _both(rows, test), _remembered(rows)
    none = "no answer is taken for remembered."
    return {
        "precision": estimate(_share, none, rng, yes * true, yes),
        "recall": estimate(_share, "no answer is remembered.", rng, yes * true, true),
    }


def _both(rows: Sequence[Row], value: Callable[[Row], float]) -> Floats:
    """(n, 2): what each subject's two answers, with and without the documents, have."""
    return np.array([[float(value(row[side])) for side in ("with", "without")] for row in rows])


def _remembered(rows: Sequence[Row]) -> Floats:
    return (
        np.array([[row[key] == REMEMBERED for key in ("truth", "truth_without")] for row in rows])
        * 1.0
    )


def estimate(
    statistic: Callable[..., Floats], why: str, rng: Generator, *columns: Floats
) -> dict[str, Any]:
    """A number with its interval over subjects, or why there is none.

    columns: (n, answers) each; the statistic gets (draws, n * answers) of each and gives one
    number per draw. A subject is drawn with all its answers.
    """
    point = float(statistic(*(column.reshape(1, -1) for column in columns))[0])
    if not np.isfinite(point):
        return {"value": None, "reason": why, "low": None, "high": None}
    drawn = rng.integers(len(columns[0]), size=(RESAMPLES, len(columns[0])))
    values = statistic(*(column[drawn].reshape(RESAMPLES, -1) for column in columns))
    values = values[np.isfinite(values)]
    low, high = None, None
    if len(values) >= DEFINED * RESAMPLES:
        low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).tolist()
    return {"value": point, "reason": None, "low": low, "high": high}


def _auroc(scores: Floats, true: Floats) -> Floats:
    right = true.sum(axis=1)
    above = (rankdata(scores, axis=1) * true).sum(axis=1) - right * (right + 1) / 2
    return _ratio(above, right * (true.shape[1] - right))


def _rank_correlation(one: Floats, other: Floats) -> Floats:
    x, y = (rankdata(each, axis=1) - (each.shape[1] + 1) / 2 for each in (one, other))
    return _ratio((x * y).sum(axis=1), np.sqrt((x**2).sum(axis=1) * (y**2).sum(axis=1)))


def _share(part: Floats, whole: Floats) -> Floats:
    return _ratio(part.sum(axis=1), whole.sum(axis=1))


def _ratio(above: Floats, below: Floats) -> Floats:
    return np.divide(above, below, out=np.full(len(below), np.nan), where=below > 0)
