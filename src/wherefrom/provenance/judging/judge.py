"""How far the verdicts of a run can be believed: asked about subjects kept for judging it."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from wherefrom.corpus.subjects import CALIBRATION, JUDGED, Subject, read_subjects
from wherefrom.errors import UserError
from wherefrom.provenance import metrics
from wherefrom.provenance.confidence.fit import (
    MODES,
    TARGETS,
    Confidence,
    is_right,
    load_confidence,
)
from wherefrom.provenance.evidence.index import Evidence, open_run_evidence
from wherefrom.provenance.judging.measure import (
    RIVAL_SIGNALS,
    SUPPORT,
    Score,
    measure_policy,
    measure_scores,
    measure_targets,
    rival_scores,
)
from wherefrom.provenance.metrics import Bootstrap, Metric
from wherefrom.provenance.verdicts import (
    DONT_KNOW,
    GUARANTEES,
    GUESSED,
    REMEMBERED,
    Verdict,
    give_verdicts,
)
from wherefrom.storage import write_json, write_whole
from wherefrom.training.run_folder import Run, update_run

DRAWN = ("risk_coverage", "reliability", "histogram")  # what only figures need
PEOPLE_FILE, NUMBERS_FILE = "judged.jsonl", "judgement.json"


@dataclass(frozen=True)
class Judged(Subject):
    """A judged subject with what the run said, whether that is right, and whether it is shown.

    verdict: "guessed" too, since here the truth is known. stated: a line about the subject states
    it for this relation. shown_internal: by the model's own signals alone. from_text,
    internal_from_text: how likely it is stated, with the text and without. naming, about: documents
    that name the subject, and that are about it.
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
    guarantee: str = "from-text",
    resamples: int = metrics.RESAMPLES,
    level: float = metrics.LEVEL,
    seed: int = 0,
    report: Callable[[int], None] | None = None,
) -> Judgement:
    """Ask about the judged subjects of a study and measure everything; nothing is written.

    `risk` is that of the calibration if not given; `guarantee` says what of: answers that are not
    "from-text", or not "right".
    """
    bootstrap = Bootstrap(resamples, level, (seed, 0))
    confidence, people = load_confidence(run), read_subjects(run.folder)
    delta = confidence.delta
    risk = confidence.risk if risk is None else risk
    targets = {
        target: {
            mode: confidence.guarantee(risk, checked=mode == "checked", target=target)
            for mode in MODES
        }
        for target in TARGETS
    }
    guarantees = targets[GUARANTEES[guarantee]]
    asked = [subject for subject in people if subject.role == JUDGED]
    calibrating = [subject for subject in people if subject.role == CALIBRATION]
    if not asked:
        raise UserError(f"{run.folder} has nobody to be judged by: its subjects.jsonl has none.")
    with require_evidence(run) as evidence:
        judged, verdicts = ask_subjects(
            run,
            confidence,
            evidence,
            asked,
            risk=risk,
            guarantee=guarantee,
            also=RIVAL_SIGNALS,
            report=report,
        )
        names = [one.subject for one in calibrating]
        questions = [one.question for one in calibrating]
        table = confidence.reader.read(questions, names, only=RIVAL_SIGNALS, report=report)
        naming = [evidence.count(name).naming for name in names]
        subjects = evidence.subjects()
    right = [is_right(said, one) for said, one in zip(table.answers, calibrating, strict=True)]
    mine: dict[str, Any] = {
        name: np.array([one.signals[name] for one in verdicts], dtype=float)  # None becomes NaN
        for name in RIVAL_SIGNALS
    }
    rivals, notes = rival_scores(
        {**mine, SUPPORT: [one.naming for one in judged]},
        {**table.columns, SUPPORT: naming},
        right,
        risk=risk,
        delta=delta,
    )
    internal, checked = targets["right"].values()
    scores = [
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
            withheld=np.array([not one.stated for one in judged]),
            reads_text=True,
        ),
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
        "guarantee": guarantee,
        "guarantees": {mode: asdict(found) for mode, found in guarantees.items()},
        "targets": measure_targets(judged, targets, bootstrap),
        "relations": {
            template: measure_policy([one for one in judged if one.template == template])
            for template in dict.fromkeys(one.template for one in judged)
        },
        **measured,
        "open_world_floor": asdict(metrics.open_world_floor(subjects, Metric(**miscalibration))),
        # the calibration's notes, but for those about a risk
        "notes": [note for note in confidence.notes if "can guarantee" not in note]
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
                shown_internal=found.shown_internal,
                confidence=found.confidence,
                internal_confidence=found.internal_confidence,
                naming=count.naming,
                about=count.about,
                stated=found.verdict == REMEMBERED,
                from_text=found.from_text["checked"] or 0.0,
                internal_from_text=found.from_text["internal"] or 0.0,
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
