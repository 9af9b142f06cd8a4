"""How far the verdicts of a run can be believed: it is asked about subjects kept for judging it.

Each rival gets what our own confidence gets: weights and a threshold from the same subjects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np

from wherefrom.corpus.database import RUN_DATABASE
from wherefrom.corpus.questions import NOT_STATED
from wherefrom.corpus.split import CALIBRATION, FITTING, JUDGED, HeldOutQuestion, read_subjects
from wherefrom.errors import UserError, checked
from wherefrom.provenance import metrics
from wherefrom.provenance.answers import Row, write_judged
from wherefrom.provenance.audited import AuditRun, load_confidence
from wherefrom.provenance.confidence import fit
from wherefrom.provenance.confidence.fit import CHECKED, FROM_TEXT, INTERNAL, RIGHT, Confidence
from wherefrom.provenance.confidence.threshold import TestedThreshold
from wherefrom.provenance.evidence import (
    Evidence,
    EvidenceCount,
    find_support,
    open_run_evidence,
)
from wherefrom.provenance.metrics import Bools, Bootstrap, ScoredAnswers, share_with_interval
from wherefrom.provenance.rivals import (
    Score,
    control_columns,
    control_rivals,
    rival_scores,
    tell_seen,
    within_relations,
)
from wherefrom.provenance.signals.reader import SUPPORT
from wherefrom.provenance.silence import count_misread
from wherefrom.provenance.verdicts import (
    GUARANTEES,
    GUESSED,
    MADE_UP,
    MISREMEMBERED,
    AskedRun,
    AskOptions,
)
from wherefrom.provenance.wording import DONT_KNOW, STATED, SUPPORTED
from wherefrom.provenance.world_record import WorldRecord, find_world_record
from wherefrom.storage import format_json
from wherefrom.training.learned_files import (
    find_source,
    read_learned_documents,
    read_learned_questions,
)
from wherefrom.training.record import check_file, keep_files, update_run
from wherefrom.training.run_folder import Run

NUMBERS_FILE = "judgement.json"
VERDICTS = (STATED, MISREMEMBERED, GUESSED, MADE_UP)
DRAWN_KEYS = ("risk_coverage", "reliability", "histogram")  # what only figures need
CURVE_POINTS = 200  # of a drawn risk-coverage curve
HISTOGRAM_BARS = 20  # of a drawn histogram
MAX_COUNTED_DOCUMENTS = 4  # subjects with this many documents or more are counted together


@dataclass(frozen=True)
class Judgement:
    """The judged answers, as rows of the table of answers, and all that was measured on them as
    plain JSON (docs/provenance.md)."""

    rows: tuple[Row, ...]
    record: dict[str, Any]

    def summary(self) -> dict[str, Any]:
        """The record without what is only drawn."""
        scores = {}
        for name, score in self.record["scores"].items():
            together = score["groups"]["together"]
            kept = {key: value for key, value in together.items() if key not in DRAWN_KEYS}
            scores[name] = {**score, "groups": {**score["groups"], "together": kept}}
        return {**self.record, "scores": scores}


@checked
def judge_run(
    run: Run,
    *,
    risk: float | None = None,
    guarantee: str = "from-text",
    resamples: int = metrics.RESAMPLES,
    level: float = metrics.LEVEL,
    seed: int = 0,
    report: Callable[[int], None] | None = None,
) -> Judgement:
    """Ask about the judged subjects of a study or an audit and measure everything.

    Nothing is written. Without a text, a guarantee can only be about what is right.
    """
    bootstrap = Bootstrap(resamples, level, (seed, 0))
    opened = open_run_evidence(run) if isinstance(run, AuditRun) else require_evidence(run)
    confidence = load_confidence(run)
    check_file(run.folder, RUN_DATABASE)
    subjects = read_subjects(run.folder)
    to_judge = [subject for subject in subjects if subject.role == JUDGED]
    calibrating = [subject for subject in subjects if subject.role in (CALIBRATION, FITTING)]
    if not to_judge:
        raise UserError(f"{run.folder} has no held-out questions to judge the run by.")
    world = find_world_record(run)
    signals = {name for names, _ in confidence.rivals.values() for name in names} - {SUPPORT}
    options = AskOptions(
        risk=confidence.risk if risk is None else risk,
        guarantee="right" if opened is None else guarantee,
        also=signals,
        report=report,
    )
    with opened or nullcontext() as evidence:
        known = confidence.signal_state.known_answers
        asked = AskedRun(run, evidence, confidence, known)
        judged = ask_subjects(asked, to_judge, options, grade=confidence.grade, world=world)
        origins = world.origins if world else {}
        rivals, told_seen = ask_rivals(asked, judged, calibrating, options, origins, bootstrap)
    record = measure_judgement(judged, rivals, confidence, options, bootstrap)
    record["weights_sha256"] = run.record.sha256
    record["seen_from_unseen"] = told_seen
    record["from_text_by"] = "the world's own record" if world else "the reader"
    record["subjects"]["calibration"] = sum(subject.role == CALIBRATION for subject in calibrating)
    misread: dict[str, dict[str, int]] = {}
    if opened is not None and not any(subject.is_silent for subject in to_judge):
        misread = _remove_answers(run, to_judge)
    for template, counts in record["silence"].items():
        counts.update(misread.get(template, {"removed": 0, "misread": 0}))
    return Judgement(rows=judged, record=record)


def ask_subjects(
    asked: AskedRun,
    subjects: Sequence[HeldOutQuestion],
    options: AskOptions,
    *,
    grade: Callable[[str, HeldOutQuestion], bool] = fit.is_right,
    world: WorldRecord | None = None,
) -> tuple[Row, ...]:
    """The run's answers about these subjects, graded, with their verdicts and signals.

    naming, about: how many documents name the subject and are about it. states_truth: whether the
    right answer was read in the text; reads_any: whether any was. stated: the reader says that the
    text states the answer. in_text: it does, by the embedded world's own record, or else by the
    reader.
    """
    questions = [subject.question for subject in subjects]
    names = [subject.subject for subject in subjects]
    verdicts = asked.give_verdicts(questions, names, options)
    evidence, rows = asked.evidence, []
    truths = [subject.answer or "" for subject in subjects]
    relations = [subject.template for subject in subjects]
    support = (
        find_support(evidence, names, truths, asked.known_answers, templates=relations)
        if evidence
        else [None] * len(subjects)
    )
    for subject, verdict, of_truth in zip(subjects, verdicts, support, strict=True):
        said, stated = verdict.answer, verdict.verdict in SUPPORTED
        right, in_text = grade(said, subject), stated
        if world is not None:
            in_text = subject.seen and world.states(subject.subject, subject.template, said)
        count = evidence.count(subject.subject) if evidence else EvidenceCount(0, 0)
        rows.append(
            {
                **asdict(subject),
                "said": said,
                "right": right,
                "verdict": GUESSED if right and not stated else verdict.verdict or MADE_UP,
                "shown": verdict.shown != DONT_KNOW,
                "shown_internal": verdict.shown_internal,
                "confidence": verdict.right[CHECKED if evidence else INTERNAL] or 0.0,
                "internal_confidence": verdict.right[INTERNAL] or 0.0,
                "from_text": verdict.from_text[CHECKED] or 0.0,
                "internal_from_text": verdict.from_text[INTERNAL] or 0.0,
                "naming": count.naming,
                "about": count.about,
                "stated": stated,
                "states_truth": bool(of_truth and of_truth.states_answer),
                "reads_any": bool(of_truth and (of_truth.states_answer or of_truth.others)),
                "in_text": in_text,
                **verdict.signals,
            }
        )
    return tuple(rows)


def ask_rivals(
    asked: AskedRun,
    judged: Sequence[Row],
    calibrating: Sequence[HeldOutQuestion],
    options: AskOptions,
    origins: Mapping[str, str],
    bootstrap: Bootstrap,
) -> tuple[list[Score], dict[str, Any]]:
    """The rivals of the confidence and the controls, which read their signals for the same
    subjects; and how well seen subjects are told from unseen ones, `origins` being those of names.
    """
    confidence, evidence, run = asked.confidence, asked.evidence, asked.run
    assert confidence is not None
    assert options.also is not None
    assert options.risk is not None
    names = [subject.subject for subject in calibrating]
    questions = [subject.question for subject in calibrating]
    table = confidence.reader.read(questions, names, only=options.also, report=options.report)
    naming = [evidence.count(name).naming if evidence else 0 for name in names]
    relations = list(dict.fromkeys(row["template"] for row in judged))
    encode = run.audited.encode if isinstance(run, AuditRun) else run.tokens.encode
    of_judged, of_calibrating = (
        control_columns(several, relations, lambda name: len(encode(name)))
        for several in (
            [(row["subject"], row["template"]) for row in judged],
            [(subject.subject, subject.template) for subject in calibrating],
        )
    )
    signals = {*confidence.signals, *table.columns}.intersection(judged[0])
    judged_columns = {name: column(judged, name) for name in signals}
    judged_columns |= {SUPPORT: column(judged, "naming"), **of_judged}
    columns = {**table.columns, SUPPORT: np.array(naming, dtype=float), **of_calibrating}
    scores = rival_scores(
        {**confidence.rivals, **control_rivals(relations)},
        judged_columns,
        columns,
        calibrating,
        np.array(list(map(confidence.grade, table.answers, calibrating))),
        risk=options.risk,
    )
    p_seen = confidence.seen.probability(judged_columns)
    return scores, tell_seen(
        (calibrating, columns), (judged, judged_columns), p_seen, origins, bootstrap
    )


def measure_judgement(
    judged: Sequence[Row],
    rivals: Sequence[Score],
    confidence: Confidence,
    options: AskOptions,
    bootstrap: Bootstrap,
) -> dict[str, Any]:
    """All that is measured on the judged subjects, as plain JSON."""
    assert options.risk is not None
    thresholds = {
        target: {mode: confidence.guarantee(target, mode, options.risk) for mode in fit.MODES}
        for target in fit.TARGETS
    }
    shown = thresholds[GUARANTEES[options.guarantee]]
    scores, precision = [*own_scores(judged, shown), *rivals], 1 - options.risk
    by_relation: dict[str, list[Row]] = {}
    for row in judged:
        by_relation.setdefault(row["template"], []).append(row)
    return {
        "weights_sha256": "",
        "subjects": {
            "judged": len(judged),
            "seen": sum(row["seen"] for row in judged),
            "unseen": sum(not row["seen"] for row in judged),
        },
        "risk": options.risk,
        "precision": precision,
        "resamples": bootstrap.resamples,
        "level": bootstrap.level,
        "seed": bootstrap.seed[0],
        "guarantee": options.guarantee,
        "guarantees": {mode: asdict(found) for mode, found in shown.items()},
        "targets": measure_targets(judged, thresholds, bootstrap),
        "relations": {name: count_shown(rows) for name, rows in by_relation.items()},
        "silence": {name: count_silence(rows) for name, rows in by_relation.items()},
        **measure_scores(scores, judged, precision=precision, bootstrap=bootstrap),
        # the calibration's notes, except those about its own risk
        "notes": [note for note in confidence.notes if "can guarantee" not in note]
        + [f"{mode}: {found.reason}" for mode, found in shown.items() if found.reason],
    }


def write_judgement(run: Run, judgement: Judgement) -> None:
    """Every answer, every number, and the numbers without the curves in run.json.

    In between the run is not judged, so that answers and numbers are always of one judgement.
    """
    update_run(run.folder, judgement=None)
    write_judged(run.folder, judgement.rows)
    numbers = {NUMBERS_FILE: format_json(judgement.record)}
    keep_files(run.folder, numbers, judgement=judgement.summary())


def require_evidence(run: Run) -> Evidence:
    """The index of a run that must have one."""
    evidence = open_run_evidence(run)
    if evidence is None:
        raise UserError(f"{run.folder} read no documents, so that no verdict can be judged.")
    return evidence


def column(rows: Sequence[Row], name: str, kind: type = float) -> Any:
    """One column of some rows as an array; None becomes NaN."""
    return np.array([row[name] for row in rows], dtype=kind)


def own_scores(judged: Sequence[Row], thresholds: Mapping[str, TestedThreshold]) -> list[Score]:
    """Our probability of *right* without and with the text, and the policy of always answering."""
    signals, text = (
        "our probability by the model's own signals",
        "our probability with what the lines of the text say; given only if stated",
    )
    scores = []
    for mode, about, confidence, shown in (
        (INTERNAL, signals, "internal_confidence", "shown_internal"),
        (CHECKED, text, "confidence", "shown"),
    ):
        values, given = column(judged, confidence), column(judged, shown, bool)
        threshold, reason = thresholds[mode].used, thresholds[mode].reason
        scores.append(Score(mode, about, values, given, threshold, reason, True))
    always = np.ones(len(judged), dtype=bool)
    about = "every answer is taken for certain"
    return [*scores, Score("always answer", about, always.astype(float), always)]


def measure_scores(
    scores: Sequence[Score], judged: Sequence[Row], *, precision: float, bootstrap: Bootstrap
) -> dict[str, Any]:
    """All numbers of a judgement that compare the scores of the judged subjects."""
    correct, seen = column(judged, "right", bool), column(judged, "seen", bool)
    relations = [row["template"] for row in judged]
    measured = {
        score.name: {
            "about": score.about,
            "ours": score.ours,
            "threshold": score.threshold,
            "within_relations": within_relations(score.values, correct, relations),
            "groups": _measure_groups(score, correct, seen, precision, bootstrap),
        }
        for score in scores
    }
    return {
        "scores": measured,
        "verdicts": count_verdicts(judged),
        "by_documents": _recall_by_documents(judged, bootstrap.level),
    }


def _measure_groups(
    score: Score, correct: Bools, seen: Bools, precision: float, bootstrap: Bootstrap
) -> dict[str, Any]:
    """The numbers of one score on all judged subjects, and fewer on the seen and the unseen."""
    answers, given = ScoredAnswers(score.values, correct, seen), score.given
    measures = {
        "recall": metrics.accuracy,
        "auroc": metrics.auroc,
        "augrc": metrics.augrc,
        "coverage_at_precision": metrics.coverage_at_precision(precision),
        "right_given_at_precision": metrics.coverage_at_precision(precision, of_right=True),
        "ece": metrics.ece,
    }
    unseen = ~seen
    unknown = share_with_interval(
        int((unseen & ~given).sum()), int(unseen.sum()), level=bootstrap.level
    )
    curve = metrics.risk_coverage(answers)
    points = len(curve["coverage"])
    kept = np.unique(np.linspace(0, points - 1, min(points, CURVE_POINTS)).round().astype(int))
    edges = np.linspace(0, 1, HISTOGRAM_BARS + 1)
    grades = {
        name: _count_grades(given[rows], correct[rows], score.reason)
        for name, rows in (("together", seen | unseen), ("seen", seen), ("unseen", unseen))
    }
    among_seen = bootstrap.measure({"auroc": metrics.auroc}, answers.select(seen))
    return {
        "together": {
            "grades": grades["together"],
            "metrics": {**bootstrap.measure(measures, answers), "unseen_unknown": unknown},
            "risk_coverage": {name: values[kept].tolist() for name, values in curve.items()},
            "reliability": metrics.reliability_table(answers),
            "histogram": {
                "edges": edges.tolist(),
                "right": np.histogram(answers.confidence[correct], edges)[0].tolist(),
                "wrong": np.histogram(answers.confidence[~correct], edges)[0].tolist(),
            },
        },
        "seen": {"grades": grades["seen"], "metrics": among_seen},
        "unseen": {"grades": grades["unseen"], "metrics": {"unseen_unknown": unknown}},
    }


def _count_grades(given: Bools, correct: Bools, reason: str | None) -> dict[str, Any]:
    """Right, wrong and not attempted; reason: why the threshold is not guaranteed."""
    right, shown = int((given & correct).sum()), int(given.sum())
    return {
        "correct": right,
        "wrong": shown - right,
        "not_attempted": given.size - shown,
        "precision": right / shown if shown else None,
        "reason": reason,
    }


def measure_targets(
    judged: Sequence[Row],
    guarantees: Mapping[str, Mapping[str, TestedThreshold]],
    bootstrap: Bootstrap,
) -> dict[str, Any]:
    """By target and mode: how good the probability is, and what its threshold shows.

    The checked probability of *from the text* has no metrics: the text decides both the
    probability and the truth, so that they would be perfect by construction.
    """
    right, in_text, seen = (column(judged, name, bool) for name in ("right", "in_text", "seen"))
    columns = {
        (FROM_TEXT, INTERNAL): (in_text, "internal_from_text"),
        (FROM_TEXT, CHECKED): (in_text, "from_text"),
        (RIGHT, INTERNAL): (right, "internal_confidence"),
        (RIGHT, CHECKED): (right, "confidence"),
    }
    targets: dict[str, Any] = {target: {} for target in fit.TARGETS}
    for (target, mode), (hits, name) in columns.items():
        answers, policy = ScoredAnswers(column(judged, name), hits, seen), guarantees[target][mode]
        shown = answers.confidence >= policy.used
        if mode == CHECKED:
            shown &= column(judged, "stated", bool)
        measured = {}
        if (target, mode) != (FROM_TEXT, CHECKED):
            measured = bootstrap.measure({"auroc": metrics.auroc, "ece": metrics.ece}, answers)
            among = bootstrap.measure({"auroc": metrics.auroc}, answers.select(seen))
            measured["auroc_among_seen"] = among["auroc"]
        shares = {
            "right_shown": (shown, right),
            "missed": (~hits, shown),
            "wrong_shown": (~right, shown),
            "unseen_shown": (shown, ~seen),
        }
        targets[target][mode] = {
            "threshold": policy.threshold,
            "used": policy.used,
            "metrics": measured,
            **{
                name: share_with_interval(
                    int((part & whole).sum()), int(whole.sum()), level=bootstrap.level
                )
                for name, (part, whole) in shares.items()
            },
        }
    return targets


def count_shown(judged: Sequence[Row]) -> dict[str, int]:
    """How many answers are right and stated, and what is shown with and without the text."""
    counts = {
        "subjects": len(judged),
        "right": sum(row["right"] for row in judged),
        "stated": sum(row["in_text"] for row in judged),
    }
    for name, key in (("shown", "shown"), ("internal_shown", "shown_internal")):
        shown = [row for row in judged if row[key]]
        counts[name] = len(shown)
        counts[f"{name}_wrong"] = sum(not row["right"] for row in shown)
        counts[f"{name}_unstated"] = sum(not row["in_text"] for row in shown)
    return counts


def _remove_answers(run: Run, judged: Sequence[HeldOutQuestion]) -> dict[str, dict[str, int]]:
    """By relation, what is read where the answer was removed; nothing if the files are gone."""
    corpus, questions = find_source(run, "corpus"), find_source(run, "questions")
    if corpus is None or questions is None:
        return {}
    try:
        learned = read_learned_questions(questions).questions
        with read_learned_documents(corpus) as database:
            return count_misread(database, learned, judged)
    except UserError:
        return {}


def count_silence(judged: Sequence[Row]) -> dict[str, int]:
    """How often the text was misread: what it states was missed, or it seemed to state what it
    does not.

    silent: questions that no document answers. false_stated: those for which an answer was read all
    the same; false_shown: those whose answer is shown as stated. stated: questions about subjects
    that were read about, with an answer; missed_stated: those whose answer was not read. Where no
    silent question is given, `removed` and `misread` count those made by removal (silence.py).
    """
    silent = [row for row in judged if row["answer"] == NOT_STATED]
    stated = [row for row in judged if row["seen"] and row["answer"] not in (None, "", NOT_STATED)]
    return {
        "stated": len(stated),
        "missed_stated": sum(not row["states_truth"] for row in stated),
        "silent": len(silent),
        "false_stated": sum(row["reads_any"] for row in silent),
        "false_shown": sum(row["shown"] and row["stated"] for row in silent),
    }


def count_verdicts(judged: Sequence[Row]) -> list[dict[str, Any]]:
    """A row for each verdict of the seen, then of the unseen; rows add up to all subjects."""
    rows = []
    for seen, verdict in product((True, False), VERDICTS):
        members = [row for row in judged if (row["seen"], row["verdict"]) == (seen, verdict)]
        counts = count_shown(members)
        rows.append(
            {
                "subjects": "seen" if seen else "unseen",
                "verdict": verdict,
                "count": len(members),
                "right": counts["right"],
                "wrong": len(members) - counts["right"],
                "shown": counts["shown"],
                "internal_shown": counts["internal_shown"],
            }
        )
    return rows


def _recall_by_documents(judged: Sequence[Row], level: float) -> list[dict[str, Any]]:
    """Recall of subjects with no document about them, one, two, and so on; silent questions, which
    no answer is right for, do not count."""
    counted: dict[int, list[Row]] = {many: [] for many in range(MAX_COUNTED_DOCUMENTS + 1)}
    for row in judged:
        if row["answer"] != NOT_STATED:
            counted[min(row["about"], MAX_COUNTED_DOCUMENTS)].append(row)
    return [
        {
            "documents": f"{many} or more" if many == MAX_COUNTED_DOCUMENTS else many,
            "subjects": len(rows),
            "recall": share_with_interval(
                sum(row["right"] for row in rows), len(rows), level=level
            ),
            "internal_shown": sum(row["shown_internal"] for row in rows),
        }
        for many, rows in counted.items()
    ]
