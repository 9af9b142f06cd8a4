"""How far the verdicts of a run can be believed: asked about subjects kept for judging it."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from wherefrom.corpus.subjects import CALIBRATION, JUDGED, Subject, read_subjects
from wherefrom.errors import UserError
from wherefrom.provenance import metrics
from wherefrom.provenance.confidence.fit import Confidence, is_right, load_confidence
from wherefrom.provenance.evidence.index import Evidence, open_run_evidence
from wherefrom.provenance.judging.rivals import RIVALS, SUPPORT, Score, rival_scores
from wherefrom.provenance.metrics import Answers, Bools, Bootstrap, Measure, Metric
from wherefrom.provenance.verdicts import (
    DONT_KNOW,
    GUESSED,
    MADE_UP,
    MISREMEMBERED,
    REMEMBERED,
    Verdict,
    give_verdicts,
)
from wherefrom.storage import write_json, write_whole
from wherefrom.training.run_folder import Run, update_run

VERDICTS = (REMEMBERED, MISREMEMBERED, GUESSED, MADE_UP)
MODES = ("internal", "checked")
RIVAL_SIGNALS = tuple(rival.column for rival in RIVALS if rival.column != SUPPORT)
TARGETS = (0.5, 0.75, 0.9)
POINTS = 200  # of a drawn risk-coverage curve
BARS = 20  # of a drawn histogram
DRAWN = ("risk_coverage", "reliability", "histogram")  # what only figures need
MOST_DOCUMENTS = 4  # subjects with so many documents or more are counted together
PEOPLE_FILE, NUMBERS_FILE = "judged.jsonl", "judgement.json"


@dataclass(frozen=True)
class Judged(Subject):
    """A judged subject with what the run said, whether that is right, and whether it is shown.

    verdict: "guessed" too, since here the truth is known. shown_internal: by the model's own
    signals alone. naming, about: documents that name the subject, and that are about it.
    """

    said: str
    right: bool
    verdict: str
    shown: bool
    shown_internal: bool
    confidence: float
    internal_confidence: float
    naming: int
    about: int


@dataclass(frozen=True)
class Judgement:
    """The judged subjects, and all that was measured on them as plain JSON (docs/verdicts.md)."""

    people: tuple[Judged, ...]
    record: dict[str, Any]

    def summary(self) -> dict[str, Any]:
        """The record without what is only drawn, and of the rivals all subjects together alone."""
        scores = {
            name: {
                **score,
                "groups": {
                    group: {key: value for key, value in found.items() if key not in DRAWN}
                    for group, found in score["groups"].items()
                    if score["ours"] or group == "together"
                },
            }
            for name, score in self.record["scores"].items()
        }
        return {**self.record, "scores": scores}


def judge_run(
    run: Run,
    *,
    risk: float | None = None,
    resamples: int = metrics.RESAMPLES,
    level: float = metrics.LEVEL,
    seed: int = 0,
    report: Callable[[int], None] | None = None,
) -> Judgement:
    """Ask about the judged subjects of a study and measure everything; nothing is written.

    `risk` is that of the calibration if not given.
    """
    bootstrap = Bootstrap(resamples, level, (seed, 0))
    confidence, people = load_confidence(run), read_subjects(run.folder)
    delta = confidence.internal.guarantee.delta
    risk = confidence.internal.guarantee.risk if risk is None else risk
    guarantees = {mode: confidence.guarantee(risk, checked=mode == "checked") for mode in MODES}
    asked = [subject for subject in people if subject.role == JUDGED]
    calibrating = [subject for subject in people if subject.role == CALIBRATION]
    if not asked:
        raise UserError(f"{run.folder} has nobody to be judged by: its subjects.jsonl has none.")
    with require_evidence(run) as evidence:
        judged, verdicts = ask_subjects(
            run, confidence, evidence, asked, risk=risk, also=RIVAL_SIGNALS, report=report
        )
        rivals, notes = rival_scores(
            _signals_of(verdicts, judged),
            *_read_calibration(confidence, evidence, calibrating, report),
            risk=risk,
            delta=delta,
        )
        subjects = evidence.subjects()
    scores = [
        *_our_scores(judged, confidence, risk),
        Score(
            "always answer",
            "every answer is given and taken for certain",
            values=np.ones(len(judged)),
            threshold=0.0,
        ),
        *rivals,
    ]
    measured = measure_scores(scores, judged, precision=1 - risk, bootstrap=bootstrap)
    miscalibration = measured["scores"]["internal"]["groups"]["together"]["metrics"]["ece"]
    seen = sum(one.seen for one in judged)
    stale = {f"{mode}: {confidence.guarantee(checked=mode == 'checked').reason}" for mode in MODES}
    record = {
        "weights_sha256": run.info.get("sha256"),
        "people": {
            "judged": len(judged),
            "seen": seen,
            "unseen": len(judged) - seen,
            "calibration": len(calibrating),
        },
        "risk": risk,
        "delta": delta,
        "precision": 1 - risk,
        "resamples": resamples,
        "level": level,
        "seed": seed,
        "guarantees": {mode: asdict(found) for mode, found in guarantees.items()},
        **measured,
        "open_world_floor": asdict(metrics.open_world_floor(subjects, Metric(**miscalibration))),
        # the calibration's notes, but for those about another risk than the one asked for
        "notes": [note for note in confidence.notes if note not in stale]
        + [f"{mode}: {found.reason}" for mode, found in guarantees.items() if found.reason]
        + notes,
    }
    return Judgement(people=judged, record=record)


def ask_subjects(
    run: Run,
    confidence: Confidence,
    evidence: Evidence,
    asked: Sequence[Subject],
    *,
    risk: float | None = None,
    also: Collection[str] = (),
    report: Callable[[int], None] | None = None,
) -> tuple[tuple[Judged, ...], list[Verdict]]:
    """The run's answers about these subjects, graded, and the verdicts that they rest on.

    `also` names signals beyond those that the confidence takes.
    """
    questions, names = [one.question for one in asked], [one.subject for one in asked]
    verdicts = give_verdicts(
        run, confidence, evidence, questions, names, risk=risk, also=also, report=report
    )
    threshold = confidence.guarantee(risk, checked=False).used
    judged = []
    for subject, found in zip(asked, verdicts, strict=True):
        assert found.verdict is not None
        assert found.confidence is not None
        assert found.internal_confidence is not None
        right, count = is_right(found.answer, subject), evidence.count(subject.subject)
        judged.append(
            Judged(
                **asdict(subject),
                said=found.answer,
                right=right,
                verdict=name_with_truth(found.verdict, right),
                shown=found.shown != DONT_KNOW,
                shown_internal=found.internal_confidence >= threshold,
                confidence=found.confidence,
                internal_confidence=found.internal_confidence,
                naming=count.naming,
                about=count.about,
            )
        )
    return tuple(judged), verdicts


def name_with_truth(verdict: str, right: bool) -> str:
    """The verdict where the truth is known: right although no line states it is guessed."""
    return GUESSED if right and verdict != REMEMBERED else verdict


def write_judgement(run: Run, judgement: Judgement) -> None:
    """Every subject, every number, and the numbers without the curves in run.json."""
    lines = (json.dumps(asdict(one), ensure_ascii=False) + "\n" for one in judgement.people)
    write_whole(run.folder / PEOPLE_FILE, "".join(lines))
    write_json(run.folder / NUMBERS_FILE, judgement.record)
    update_run(run.folder, judgement=judgement.summary())


def require_evidence(run: Run) -> Evidence:
    """The index of a run that must have one."""
    opened = open_run_evidence(run)
    if opened is None:
        raise UserError(f"{run.folder} read no documents, so that no verdict can be judged.")
    return opened


def _signals_of(verdicts: Sequence[Verdict], judged: Sequence[Judged]) -> dict[str, list[float]]:
    columns = {
        name: [np.nan if (value := one.signals[name]) is None else value for one in verdicts]
        for name in verdicts[0].signals
    }
    return {**columns, SUPPORT: [float(one.naming) for one in judged]}


def _read_calibration(
    confidence: Confidence,
    evidence: Evidence,
    people: Sequence[Subject],
    report: Callable[[int], None] | None,
) -> tuple[dict[str, Any], list[bool]]:
    """The rivals' signals of the calibration subjects, and whether their answers are right."""
    if not people:
        return {}, []
    names, questions = [one.subject for one in people], [one.question for one in people]
    table = confidence.reader.read(questions, names, only=RIVAL_SIGNALS, report=report)
    counts = [float(evidence.count(name).naming) for name in names]
    graded = [is_right(said, one) for said, one in zip(table.answers, people, strict=True)]
    return {**table.columns, SUPPORT: counts}, graded


def _our_scores(judged: Sequence[Judged], confidence: Confidence, risk: float) -> list[Score]:
    internal, checked = (confidence.guarantee(risk, checked=mode) for mode in (False, True))
    return [
        Score(
            "internal",
            "our probability by the model's own signals",
            values=np.array([one.internal_confidence for one in judged]),
            threshold=internal.used,
            reason=internal.reason,
            ours=True,
        ),
        Score(
            "checked",
            "our probability with what the lines of the text say; given only if remembered",
            values=np.array([one.confidence for one in judged]),
            threshold=checked.used,
            reason=checked.reason,
            ours=True,
            withheld=np.array([one.verdict != REMEMBERED for one in judged]),
            reads_text=True,
        ),
    ]


def measure_scores(
    scores: Sequence[Score], judged: Sequence[Judged], *, precision: float, bootstrap: Bootstrap
) -> dict[str, Any]:
    """All numbers of a judgement that come from the judged subjects and the scores of them."""
    correct = np.array([one.right for one in judged], dtype=bool)
    seen = np.array([one.seen for one in judged], dtype=bool)
    groups = {"together": np.ones_like(seen), "seen": seen, "unseen": ~seen}
    found: dict[str, Any] = {}
    for score in scores:
        found[score.name] = {
            "about": score.about,
            "ours": score.ours,
            "probability": score.probability,
            "threshold": score.threshold,
            "threshold_reason": score.reason,
            "groups": {
                # the same resamples of a group for every score
                name: _measure_group(
                    score, correct, seen, chosen, precision, _reseed(bootstrap, at)
                )
                for at, (name, chosen) in enumerate(groups.items())
            },
        }
    return {
        "scores": found,
        "against_the_best": _compare_with_best(scores, correct, seen, bootstrap),
        "stated": _separate_stated(scores, judged, bootstrap),
        "verdicts": count_verdicts(judged),
        "by_documents": _recall_by_documents(judged, bootstrap),
    }


def _reseed(bootstrap: Bootstrap, at: int) -> Bootstrap:
    return replace(bootstrap, seed=(bootstrap.seed[0], at))


def _measure_group(
    score: Score,
    correct: Bools,
    seen: Bools,
    chosen: Bools,
    precision: float,
    bootstrap: Bootstrap,
) -> dict[str, Any]:
    """The numbers of one score on some of the subjects."""
    answers = Answers(score.values, correct, seen).select(chosen)
    # an answer that is withheld is given at no threshold, as if its confidence were below all
    held = score.values if score.withheld is None else np.where(score.withheld, -1, score.values)
    shown = Answers(held, correct, seen).select(chosen)
    unranked = f"{score.name} orders answers and is no probability, so this has no meaning for it."
    of_probabilities: dict[str, Measure] = {
        "ece": metrics.ece,
        "brier": metrics.brier,
        **{f"score_at_{target:g}": metrics.score_at_target(target) for target in TARGETS},
    }
    measured = _measure(
        {
            "recall": metrics.accuracy,
            "auroc": metrics.auroc,
            "augrc": metrics.augrc,
            "coverage_at_precision": metrics.coverage_at_precision(precision),
            "right_given_at_precision": metrics.coverage_at_precision(precision, of_right=True),
            **{k: m if score.probability else unranked for k, m in of_probabilities.items()},
        },
        answers,
        bootstrap,
    )
    unseen: Measure | str = score.reason or "no threshold was chosen."
    nothing = dict.fromkeys(("correct", "wrong", "not_attempted", "precision"))
    grades: dict[str, Any] = {**nothing, "reason": unseen}
    if score.threshold is not None:
        grades = {**metrics.grade(shown, score.threshold), "reason": score.reason}
        unseen = metrics.unseen_unknown(score.threshold)
    chance = Metric(value=None, reason=unranked)
    if score.probability:
        chance = metrics.ece_of_chance(answers, np.random.default_rng(bootstrap.seed))
    curve = metrics.risk_coverage(answers)
    points = len(curve["coverage"])
    kept = np.unique(np.linspace(0, points - 1, min(points, POINTS)).round().astype(int))
    edges = np.linspace(0, 1, BARS + 1)
    return {
        "people": len(answers),
        "grades": grades,
        "metrics": {**measured, **_measure({"unseen_unknown": unseen}, shown, bootstrap)},
        "ece_of_chance": asdict(chance),
        "risk_coverage": {name: values[kept].tolist() for name, values in curve.items()},
        "reliability": metrics.reliability_table(answers) if score.probability else [],
        "histogram": {
            "edges": edges.tolist(),
            "right": np.histogram(answers.confidence[answers.correct], edges)[0].tolist(),
            "wrong": np.histogram(answers.confidence[~answers.correct], edges)[0].tolist(),
        },
    }


def _measure(
    measures: dict[str, Measure | str], answers: Answers, bootstrap: Bootstrap
) -> dict[str, Any]:
    """Metrics as JSON; a sentence in place of a measure is the reason why there is none."""
    formulas = {name: one for name, one in measures.items() if isinstance(one, Measure)}
    found = bootstrap.measure(formulas, answers)
    return {
        name: asdict(Metric(value=None, reason=one) if isinstance(one, str) else found[name])
        for name, one in measures.items()
    }


def _compare_with_best(
    scores: Sequence[Score], correct: Bools, seen: Bools, bootstrap: Bootstrap
) -> list[dict[str, Any]]:
    """The internal score less the best rival by each measure, on the same resamples.

    The best is chosen after the fact on these very subjects, which favours the rival.
    """
    answers = {score.name: Answers(score.values, correct, seen) for score in scores}
    mine = next(score.name for score in scores if score.ours)
    rivals = [score.name for score in scores if not score.ours]
    found = []
    for key, measure, best_of in (("auroc", metrics.auroc, max), ("augrc", metrics.augrc, min)):
        values = {name: measure(answers[name]) for name in (mine, *rivals)}
        undefined = [metric.reason for metric in values.values() if metric.value is None]
        best = None
        difference = Metric(value=None, reason=next(iter(undefined), "there is no rival."))
        if rivals and not undefined:
            best = best_of(rivals, key=lambda name: values[name].value or 0.0)
            difference = bootstrap.difference(measure, answers[mine], answers[best])
        row = {"measure": key, "score": mine, "rival": best, "difference": asdict(difference)}
        found.append(row)
    return found


def _separate_stated(
    scores: Sequence[Score], judged: Sequence[Judged], bootstrap: Bootstrap
) -> list[dict[str, Any]]:
    """How well a score that reads no text separates answers that a line states from all others.

    Right and wrong are the questions' labels; whether an answer stands in the text does not
    depend on which of two places a label names.
    """
    stated = np.array([one.verdict == REMEMBERED for one in judged], dtype=bool)
    measure: Measure | str = metrics.auroc
    if len(stated) and stated.all() == stated.any():
        measure = f"{'every' if stated.all() else 'no'} answer is stated by a line."
    return [
        {
            "score": score.name,
            **_measure({"auroc": measure}, Answers(score.values, stated), bootstrap),
        }
        for score in scores
        if not score.reads_text
    ]


def count_verdicts(judged: Sequence[Judged]) -> list[dict[str, Any]]:
    """One row for each of seen and unseen and each verdict; rows add up to all subjects."""
    rows = []
    for seen, verdict in ((seen, verdict) for seen in (True, False) for verdict in VERDICTS):
        here = [one for one in judged if one.seen == seen and one.verdict == verdict]
        wrong = [one for one in here if not one.right]
        shown = sum(one.shown for one in here)
        internal = sum(one.shown_internal for one in here)
        rows.append(
            {
                "people": "seen" if seen else "unseen",
                "verdict": verdict,
                "count": len(here),
                "right": len(here) - len(wrong),
                "wrong": len(wrong),
                "shown": shown,
                "unknown": len(here) - shown,
                "shown_wrong": sum(one.shown for one in wrong),
                "internal_shown": internal,
                "internal_unknown": len(here) - internal,
                "internal_shown_wrong": sum(one.shown_internal for one in wrong),
            }
        )
    return rows


def _recall_by_documents(judged: Sequence[Judged], bootstrap: Bootstrap) -> list[dict[str, Any]]:
    """Recall of subjects with no document, one, two, and so on."""
    found = []
    for documents in range(MOST_DOCUMENTS + 1):
        here = [one for one in judged if min(one.about, MOST_DOCUMENTS) == documents]
        answers = Answers([one.internal_confidence for one in here], [one.right for one in here])
        found.append(
            {
                "documents": f"{documents} or more" if documents == MOST_DOCUMENTS else documents,
                "people": len(here),
                **_measure({"recall": metrics.accuracy}, answers, _reseed(bootstrap, documents)),
                "internal_shown": sum(one.shown_internal for one in here),
            }
        )
    return found
