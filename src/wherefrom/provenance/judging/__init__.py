"""How far the verdicts of a run can be believed: asked about subjects kept for judging it.

Rivals get what ours gets: weights and a guaranteed or estimated threshold, from the same subjects.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from wherefrom.corpus.subjects import CALIBRATION, FITTING, JUDGED, Subject, read_subjects
from wherefrom.errors import UserError, checked
from wherefrom.provenance import metrics
from wherefrom.provenance.confidence.calibration import Guarantee
from wherefrom.provenance.confidence.fit import (
    CHECKED,
    FROM_TEXT,
    INTERNAL,
    MODES,
    RIGHT,
    TARGETS,
    Confidence,
    choose_testers,
    fit_held_out,
    is_right,
    load_confidence,
)
from wherefrom.provenance.evidence import Evidence, EvidenceCount, open_run_evidence
from wherefrom.provenance.metrics import Answers, Bools, Bootstrap, Floats, rate
from wherefrom.provenance.verdicts import (
    DONT_KNOW,
    GUARANTEES,
    GUESSED,
    MADE_UP,
    MISREMEMBERED,
    STATED,
    SUPPORTED,
    Verdict,
    give_verdicts,
)
from wherefrom.storage import write_json, write_whole
from wherefrom.training.run_folder import Run, update_run

PEOPLE_FILE, NUMBERS_FILE = "judged.jsonl", "judgement.json"
VERDICTS = (STATED, MISREMEMBERED, GUESSED, MADE_UP)
DRAWN = ("risk_coverage", "reliability", "histogram")  # what only figures need
POINTS = 200  # of a drawn risk-coverage curve
BARS = 20  # of a drawn histogram
MOST_DOCUMENTS = 4  # subjects with so many documents or more are counted together
SUPPORT = "documents_naming"  # the column that counts the documents that name the subject
# our own scores, and the columns of the judged that hold them and what is shown by them
OURS = {
    INTERNAL: ("our probability by the model's own signals",
               "internal_confidence", "shown_internal"),
    CHECKED: ("our probability with what the lines of the text say; given only if stated",
              "confidence", "shown"),
}  # fmt: skip
# what others would use: the signals, and what they are
Rivals = Mapping[str, tuple[tuple[str, ...], str]]
RIVALS: Rivals = {
    "greedy likelihood": (("log_probability",), "log p of the model's own answer"),
    "predictive entropy": (("entropy",), "of the model's distribution over the known answers"),
    "semantic entropy": (("country_entropy",), "of the same distribution added up by country"),
    "reference ratio": (
        ("log_probability", "reference"),
        "log p of the answer beside that by the twin without the text",
    ),
    "name support": ((SUPPORT,), "documents that name the subject; it needs the text"),
}


@dataclass(frozen=True)
class Judged(Subject):
    """A judged subject, what the run said, and its verdict, which may be `guessed` here.

    naming, about: documents that name the subject, and that are about it.
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
    stated: bool = False
    from_text: float = 0.0
    internal_from_text: float = 0.0


@dataclass(frozen=True)
class Judgement:
    """The judged subjects, and all that was measured on them as plain JSON (docs/provenance.md)."""

    subjects: tuple[Judged, ...]
    record: dict[str, Any]

    def summary(self) -> dict[str, Any]:
        """The record without what is only drawn, and of the rivals all subjects together alone."""
        scores = {}
        for name, score in self.record["scores"].items():
            kept = score["groups"] if score["ours"] else {"together": score["groups"]["together"]}
            groups = {
                group: {key: value for key, value in found.items() if key not in DRAWN}
                for group, found in kept.items()
            }
            scores[name] = {**score, "groups": groups}
        return {**self.record, "scores": scores}


class Score(NamedTuple):
    """How likely one method finds each answer to be right, and which it gives from where on.

    reads_text: it looks something up.
    """

    name: str
    about: str
    values: Floats
    given: Bools
    threshold: float = 0.0
    reason: str | None = None
    ours: bool = False
    reads_text: bool = False


@checked
def judge_run(
    run: Run,
    *,
    confidence: Confidence | None = None,
    rivals: Rivals = RIVALS,
    grade: Callable[[str, Subject], bool] = is_right,
    risk: float | None = None,
    guarantee: str = "from-text",
    resamples: int = metrics.RESAMPLES,
    level: float = metrics.LEVEL,
    seed: int = 0,
    report: Callable[[int], None] | None = None,
) -> Judgement:
    """Ask about the judged subjects of a study and measure everything; nothing is written.

    confidence: of a run that keeps it in a way of its own. grade: whether an answer is right.
    """
    bootstrap = Bootstrap(resamples, level, (seed, 0))
    opened = require_evidence(run) if confidence is None else open_run_evidence(run)
    confidence = load_confidence(run) if confidence is None else confidence
    people = read_subjects(run.folder)
    asked = [subject for subject in people if subject.role == JUDGED]
    calibrating = [subject for subject in people if subject.role in (CALIBRATION, FITTING)]
    if not asked:
        raise UserError(f"{run.folder} has nothing to be judged by: its subjects.jsonl has none.")
    risk = confidence.risk if risk is None else risk
    thresholds = {
        target: {mode: confidence.guarantee(target, mode, risk) for mode in MODES}
        for target in TARGETS
    }
    signals = {name for columns, _ in rivals.values() for name in columns} - {SUPPORT}
    options: dict[str, Any] = {"risk": risk, "guarantee": guarantee, "also": signals}
    names, questions = zip(*((one.subject, one.question) for one in calibrating), strict=True)
    with opened or nullcontext() as evidence:
        judged, verdicts = ask_subjects(
            run, confidence, evidence, asked, grade=grade, report=report, **options
        )
        table = confidence.reader.read(questions, names, only=signals, report=report)
        naming = [evidence.count(name).naming if evidence else 0 for name in names]
    columns = {name: [one.signals[name] for one in verdicts] for name in signals}
    columns[SUPPORT] = [one.naming for one in judged]
    mine = {name: np.array(values, dtype=float) for name, values in columns.items()}  # None: NaN
    theirs = {**table.columns, SUPPORT: np.array(naming, dtype=float)}
    pairs = zip(table.answers, calibrating, strict=True)
    right = np.array([grade(said, one) for said, one in pairs])
    shown = thresholds[GUARANTEES[guarantee]]
    scores = [
        Score(mode, about, _column(judged, sure), _column(judged, given, bool), shown[mode].used,
              shown[mode].reason, ours=True, reads_text=mode == CHECKED)
        for mode, (about, sure, given) in OURS.items()
    ]  # fmt: skip
    all_of_them = np.ones(len(judged)), np.ones(len(judged), dtype=bool)
    scores += [
        Score("always answer", "every answer is taken for certain", *all_of_them),
        *rival_scores(rivals, mine, theirs, calibrating, right, risk=risk, delta=confidence.delta),
    ]
    measured = measure_scores(scores, judged, precision=1 - risk, bootstrap=bootstrap)
    record: dict[str, Any] = {
        "weights_sha256": run.info["sha256"],
        "subjects": {
            "judged": len(judged),
            "seen": sum(one.seen for one in judged),
            "unseen": sum(not one.seen for one in judged),
            "calibration": sum(one.role == CALIBRATION for one in calibrating),
        },
        "risk": risk,
        "delta": confidence.delta,
        "precision": 1 - risk,
        "resamples": resamples,
        "level": level,
        "seed": seed,
        "guarantee": guarantee,
        "guarantees": {mode: asdict(found) for mode, found in shown.items()},
        "targets": measure_targets(judged, thresholds, bootstrap),
        "relations": {
            template: measure_policy([one for one in judged if one.template == template])
            for template in dict.fromkeys(one.template for one in judged)
        },
        **measured,
        # the calibration's notes, but for those about a risk
        "notes": [note for note in confidence.notes if "can guarantee" not in note]
        + [f"{mode}: {found.reason}" for mode, found in shown.items() if found.reason],
    }
    return Judgement(subjects=judged, record=record)


def ask_subjects(
    run: Run,
    confidence: Confidence,
    evidence: Evidence | None,
    asked: Sequence[Subject],
    *,
    grade: Callable[[str, Subject], bool] = is_right,
    risk: float | None = None,
    guarantee: str = "from-text",
    also: Collection[str] = (),
    report: Callable[[int], None] | None = None,
) -> tuple[tuple[Judged, ...], list[Verdict]]:
    """The run's answers about these subjects, graded, and the verdicts that they rest on.

    `also` names signals beyond those that the confidence takes.
    """
    questions, names = [one.question for one in asked], [one.subject for one in asked]
    verdicts = give_verdicts(
        run,
        confidence,
        evidence,
        questions,
        names,
        risk=risk,
        guarantee=guarantee,
        also=also,
        report=report,
    )
    judged = []
    for subject, found in zip(asked, verdicts, strict=True):
        right = grade(found.answer, subject)
        count = evidence.count(subject.subject) if evidence else EvidenceCount(0, 0)
        judged.append(
            Judged(
                **asdict(subject),
                said=found.answer,
                right=right,
                verdict=name_with_truth(found.verdict or MADE_UP, right),
                shown=found.shown != DONT_KNOW,
                shown_internal=found.shown_internal,
                confidence=found.right[CHECKED]
                or (0.0 if evidence else found.right[INTERNAL])
                or 0.0,
                internal_confidence=found.right[INTERNAL] or 0.0,
                naming=count.naming,
                about=count.about,
                stated=found.verdict in SUPPORTED,
                from_text=found.from_text[CHECKED] or 0.0,
                internal_from_text=found.from_text[INTERNAL] or 0.0,
            )
        )
    return tuple(judged), verdicts


def name_with_truth(verdict: str, right: bool) -> str:
    """The verdict where the truth is known: right although no line states it is guessed."""
    return GUESSED if right and verdict not in SUPPORTED else verdict


def write_judgement(run: Run, judgement: Judgement) -> None:
    """Every subject, every number, and the numbers without the curves in run.json."""
    lines = (json.dumps(asdict(one), ensure_ascii=False) + "\n" for one in judgement.subjects)
    write_whole(run.folder / PEOPLE_FILE, "".join(lines))
    write_json(run.folder / NUMBERS_FILE, judgement.record)
    update_run(run.folder, judgement=judgement.summary())


def require_evidence(run: Run) -> Evidence:
    """The index of a run that must have one."""
    opened = open_run_evidence(run)
    if opened is None:
        raise UserError(f"{run.folder} read no documents, so that no verdict can be judged.")
    return opened


def rival_scores(
    rivals: Rivals,
    judged: Mapping[str, Floats],
    calibration: Mapping[str, Floats],
    subjects: Sequence[Subject],
    right: Bools,
    *,
    risk: float,
    delta: float,
) -> list[Score]:
    """The rivals whose signals are known, each tuned on the calibration subjects."""
    scores = []
    for name, (columns, about) in rivals.items():
        known = {each: x for each, x in calibration.items() if each in columns}
        there = np.asarray(np.isfinite([*known.values()]).all(axis=0))
        if len(known) < len(columns) or not there.any():
            continue
        fitted, likely = fit_held_out(subjects, known, right, rows=there, seed=0)
        policy = choose_testers(subjects, fitted, likely, right, there, seed=0)
        found = policy.at_risk(risk, delta)
        values = fitted.probability({each: judged[each] for each in known})
        reads = SUPPORT in columns
        given = values >= found.used
        scores.append(Score(name, about, values, given, found.used, found.reason, False, reads))
    return scores


def measure_scores(
    scores: Sequence[Score], judged: Sequence[Judged], *, precision: float, bootstrap: Bootstrap
) -> dict[str, Any]:
    """All numbers of a judgement that come from the judged subjects and the scores of them."""
    correct, stated, seen = (_column(judged, name, bool) for name in ("right", "stated", "seen"))
    groups = {"together": np.ones_like(seen), "seen": seen, "unseen": ~seen}
    found = {
        score.name: {
            "about": score.about,
            "ours": score.ours,
            "reads_text": score.reads_text,
            "threshold": score.threshold,
            "threshold_reason": score.reason,
            "groups": {
                # the same resamples of a group for every score
                name: _measure_group(
                    score, correct, seen, chosen, precision, bootstrap.reseeded(at)
                )
                for at, (name, chosen) in enumerate(groups.items())
            },
        }
        for score in scores
    }
    return {
        "scores": found,
        "against_the_best": _compare_with_best(scores, correct, seen, bootstrap),
        # right and wrong are the questions' labels; whether an answer stands in the text does not
        # depend on which of two places a label names
        "stated": [
            {
                "score": one.name,
                **bootstrap.measure({"auroc": metrics.auroc}, Answers(one.values, stated)),
            }
            for one in scores
            if not one.reads_text
        ],
        "verdicts": count_verdicts(judged),
        "by_documents": _recall_by_documents(judged),
    }


def _measure_group(
    score: Score, correct: Bools, seen: Bools, chosen: Bools, precision: float, bootstrap: Bootstrap
) -> dict[str, Any]:
    """The numbers of one score on some of the subjects."""
    answers = Answers(score.values, correct, seen).select(chosen)
    given = score.given[chosen]
    right, shown = int((given & answers.correct).sum()), int(given.sum())
    unseen = ~seen[chosen]
    measures = {
        "recall": metrics.accuracy,
        "auroc": metrics.auroc,
        "augrc": metrics.augrc,
        "coverage_at_precision": metrics.coverage_at_precision(precision),
        "right_given_at_precision": metrics.coverage_at_precision(precision, of_right=True),
        "ece": metrics.ece,
    }
    unknown = rate(int((unseen & ~given).sum()), int(unseen.sum()), level=bootstrap.level)
    chance = metrics.ece_of_chance(answers, np.random.default_rng(bootstrap.seed))
    curve = metrics.risk_coverage(answers)
    points = len(curve["coverage"])
    kept = np.unique(np.linspace(0, points - 1, min(points, POINTS)).round().astype(int))
    edges = np.linspace(0, 1, BARS + 1)
    return {
        "subjects": len(answers),
        "grades": {
            "correct": right,
            "wrong": shown - right,
            "not_attempted": len(answers) - shown,
            "precision": right / shown if shown else None,
            "reason": score.reason,
        },
        "metrics": {**bootstrap.measure(measures, answers), "unseen_unknown": unknown},
        "ece_of_chance": chance,
        "risk_coverage": {name: values[kept].tolist() for name, values in curve.items()},
        "reliability": metrics.reliability_table(answers),
        "histogram": {
            "edges": edges.tolist(),
            "right": np.histogram(answers.confidence[answers.correct], edges)[0].tolist(),
            "wrong": np.histogram(answers.confidence[~answers.correct], edges)[0].tolist(),
        },
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
    for key, formula, sign in (("auroc", metrics.auroc, 1), ("augrc", metrics.augrc, -1)):
        values = {name: metrics.measure(formula, answers[name])["value"] for name in rivals}
        best = max(rivals, key=lambda name: sign * (values[name] or 0.0), default=mine)
        difference = bootstrap.difference(formula, answers[mine], answers[best])
        rival = None if best == mine or difference["value"] is None else best
        found.append({"measure": key, "score": mine, "rival": rival, "difference": difference})
    return found


def measure_targets(
    judged: Sequence[Judged],
    guarantees: Mapping[str, Mapping[str, Guarantee]],
    bootstrap: Bootstrap,
) -> dict[str, Any]:
    """By target and mode: how good the probability is, and what its policy shows.

    Of the checked probability that an answer is from the text only the policy is measured: the
    text decides both, and any other number would be true by construction.
    """
    right, stated, seen = (_column(judged, name, bool) for name in ("right", "stated", "seen"))
    columns = {
        (FROM_TEXT, INTERNAL): (stated, "internal_from_text"),
        (FROM_TEXT, CHECKED): (stated, "from_text"),
        (RIGHT, INTERNAL): (right, "internal_confidence"),
        (RIGHT, CHECKED): (right, "confidence"),
    }
    found: dict[str, Any] = {target: {} for target in TARGETS}
    for (target, mode), (hits, name) in columns.items():
        answers, policy = Answers(_column(judged, name), hits, seen), guarantees[target][mode]
        shown = answers.confidence >= policy.used
        measured = {}
        if mode == CHECKED:
            shown &= stated
        if (target, mode) != (FROM_TEXT, CHECKED):
            together = {"auroc": metrics.auroc, "ece": metrics.ece}
            measured = bootstrap.measure(together, answers)
            among = bootstrap.measure({"auroc": metrics.auroc}, answers.select(seen))
            measured["auroc_among_seen"] = among["auroc"]
        found[target][mode] = {
            "threshold": policy.threshold,
            "used": policy.used,
            "metrics": measured,
            "right_shown": rate(int((shown & right).sum()), int(right.sum())),
            "missed": rate(int((shown & ~hits).sum()), int(shown.sum())),
            "wrong_shown": rate(int((shown & ~right).sum()), int(shown.sum())),
            "unseen_shown": rate(int((shown & ~seen).sum()), int((~seen).sum())),
        }
    return found


def _column(judged: Sequence[Judged], name: str, kind: type = float) -> Any:
    return np.array([getattr(one, name) for one in judged], dtype=kind)


def measure_policy(judged: Sequence[Judged]) -> dict[str, Any]:
    """Of some judged answers: right, stated, and what is shown of them."""
    counts = {"subjects": len(judged)} | {
        name: sum(getattr(one, name) for one in judged) for name in ("right", "stated")
    }
    for name, key in (("shown", "shown"), ("internal_shown", "shown_internal")):
        shown = [one for one in judged if getattr(one, key)]
        counts[name] = len(shown)
        counts[f"{name}_wrong"] = sum(not one.right for one in shown)
        counts[f"{name}_unstated"] = sum(not one.stated for one in shown)
    return counts


def count_verdicts(judged: Sequence[Judged]) -> list[dict[str, Any]]:
    """One row for each of seen and unseen and each verdict; rows add up to all subjects."""
    rows = []
    for seen, verdict in product((True, False), VERDICTS):
        found = measure_policy([o for o in judged if (o.seen, o.verdict) == (seen, verdict)])
        count = found.pop("subjects")
        row = {"subjects": "seen" if seen else "unseen", "verdict": verdict, "count": count}
        row |= {key: value for key, value in found.items() if "stated" not in key}
        shown = {"unknown": found["shown"], "internal_unknown": found["internal_shown"]}
        row |= {key: count - many for key, many in {"wrong": found["right"], **shown}.items()}
        rows.append(row)
    return rows


def _recall_by_documents(judged: Sequence[Judged]) -> list[dict[str, Any]]:
    """Recall of subjects with no document, one, two, and so on."""
    found = []
    for documents in range(MOST_DOCUMENTS + 1):
        here = [one for one in judged if min(one.about, MOST_DOCUMENTS) == documents]
        right, shown = (sum(getattr(one, n) for one in here) for n in ("right", "shown_internal"))
        name = f"{documents} or more" if documents == MOST_DOCUMENTS else documents
        row = {"documents": name, "subjects": len(here), "recall": rate(right, len(here))}
        found.append({**row, "internal_shown": shown})
    return found
