"""How far the verdicts of a run can be believed: it is asked about people kept for judging it.

They took no part in fitting the confidence. Ours stands twice, internal and checked, beside what
others would use (rivals.py), all on the same answers, for seen and unseen people together and
apart. The numbers themselves are computed in judgement.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from wherefrom.corpus.named import key_of
from wherefrom.corpus.people import CALIBRATION, JUDGED, Person, read_people
from wherefrom.corpus.questions import Question, read_questions
from wherefrom.errors import UserError
from wherefrom.provenance.confidence import Confidence, load_confidence
from wherefrom.provenance.curves import open_world_floor
from wherefrom.provenance.evidence import Evidence
from wherefrom.provenance.fitting_people import is_right
from wherefrom.provenance.guarantee import Guarantee
from wherefrom.provenance.intervals import LEVEL, RESAMPLES, check_level
from wherefrom.provenance.judgement import (
    Judged,
    Judgement,
    compare_with_best,
    count_verdicts,
    judge_scores,
    name_with_truth,
    recall_by_documents,
    tell_stated,
)
from wherefrom.provenance.lines import EvidenceReader
from wherefrom.provenance.metrics import Metric
from wherefrom.provenance.rivals import RIVALS, SUPPORT, Score, always_answer, rival_scores
from wherefrom.provenance.run_evidence import open_run_evidence
from wherefrom.provenance.verdicts import (
    DONT_KNOW,
    REMEMBERED,
    Verdict,
    find_threshold,
    give_verdicts,
)
from wherefrom.storage import sha256_of, write_json, write_whole
from wherefrom.training.run import Run, update_run

MODES = ("internal", "checked")
RIVAL_SIGNALS = tuple(rival.column for rival in RIVALS if rival.column != SUPPORT)
PEOPLE_FILE, NUMBERS_FILE = "judged.jsonl", "judgement.json"


def judge_run(
    run: Run,
    *,
    confidence: Confidence | None = None,
    evidence: EvidenceReader | None = None,
    people: Sequence[Person] | None = None,
    risk: float | None = None,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
    seed: int = 0,
    report: Callable[[int], None] | None = None,
) -> Judgement:
    """Ask about the judged people and measure everything; nothing is written.

    What is not given is read from the run folder. `risk` is that of the calibration if not given.
    """
    check_level(level, resamples)
    confidence = load_confidence(run) if confidence is None else confidence
    delta = confidence.internal_guarantee.delta
    risk = confidence.internal_guarantee.risk if risk is None else risk
    promises = {mode: confidence.guarantee(risk, checked=mode == "checked") for mode in MODES}
    people = read_people(run.folder) if people is None else people
    asked = [person for person in people if person.role == JUDGED]
    if not asked:
        raise UserError(f"{run.folder} has nobody to be judged by: its people.jsonl has none.")
    calibrating = [person for person in people if person.role == CALIBRATION]
    with ExitStack() as stack:
        if evidence is None:
            evidence = stack.enter_context(require_evidence(run))
        judged, verdicts = ask_people(
            run, confidence, evidence, asked, risk=risk, also=RIVAL_SIGNALS, report=report
        )
        calibration_columns = _calibration_columns(confidence, evidence, calibrating, report)
        subjects = evidence.subjects()
    rivals, notes = rival_scores(
        _judged_columns(verdicts, judged), *calibration_columns, risk=risk, delta=delta
    )
    scores = [*_our_scores(judged, confidence, risk), always_answer(len(judged)), *rivals]
    correct = np.array([one.right for one in judged])
    seen = np.array([one.person.seen for one in judged])
    how: dict[str, Any] = {"resamples": resamples, "level": level, "seed": seed}
    measured = judge_scores(scores, correct, seen, precision=1 - risk, **how)
    miscalibration = Metric(**measured["internal"]["groups"]["together"]["metrics"]["ece"])
    record = {
        "weights_sha256": run.info.get("sha256"),
        "people": {
            "judged": len(judged),
            "seen": int(seen.sum()),
            "unseen": int((~seen).sum()),
            "calibration": len(calibrating),
        },
        "risk": risk,
        "delta": delta,
        "precision": 1 - risk,
        **how,
        "promises": {mode: asdict(promised) for mode, promised in promises.items()},
        "scores": measured,
        "against_the_best": compare_with_best(scores, correct, seen, **how),
        "stated": tell_stated(scores, judged, **how),
        "open_world_floor": asdict(open_world_floor(subjects, miscalibration)),
        "verdicts": count_verdicts(judged),
        "by_documents": recall_by_documents(judged, **how),
        "notes": [*_remarks(confidence, promises), *notes],
    }
    return Judgement(people=judged, record=record)


def ask_people(
    run: Run,
    confidence: Confidence,
    evidence: EvidenceReader,
    asked: Sequence[Person],
    *,
    risk: float | None = None,
    also: Collection[str] = (),
    report: Callable[[int], None] | None = None,
) -> tuple[tuple[Judged, ...], list[Verdict]]:
    """The run's answers about these people, graded, and the verdicts that they rest on.

    `also` names signals beyond those that the confidence takes.
    """
    verdicts = give_verdicts(
        run,
        confidence,
        evidence,
        [person.question for person in asked],
        [person.subject for person in asked],
        risk=risk,
        also=also,
        report=report,
    )
    threshold = find_threshold(confidence, risk, checked=False).value
    judged = tuple(
        _judge_person(person, verdict, evidence, threshold)
        for person, verdict in zip(asked, verdicts, strict=True)
    )
    return judged, verdicts


def write_judgement(run: Run, judgement: Judgement) -> None:
    """Every person, every number, and the numbers without the curves in run.json."""
    lines = (json.dumps(one.to_dict(), ensure_ascii=False) + "\n" for one in judgement.people)
    write_whole(run.folder / PEOPLE_FILE, "".join(lines))
    write_json(run.folder / NUMBERS_FILE, judgement.to_dict())
    update_run(run.folder, judgement=judgement.summary())


def trained_questions(run: Run) -> list[Question]:
    """The questions that a run learned from: those of its file, without people dealt out.

    Somebody who is left out may be in no part at all: run.json names them.
    """
    source = run.info.get("data", {}).get("questions")
    if not source:
        raise UserError(f"{run.folder} learned from no questions.")
    path = Path(source["path"])
    # a run folder that was moved takes an embedded world along
    places = [place for place in (path, run.folder / "world" / path.name) if place.is_file()]
    for place in places:
        if sha256_of(place) == source["sha256"]:
            names = [person.subject for person in read_people(run.folder)]
            dealt = {key_of(name) for name in (*names, *run.info.get("left_out", ()))}
            asked = read_questions(place, run.template).questions
            return [question for question in asked if key_of(question.subject) not in dealt]
    what = "has changed since" if places else "is not there any more"
    raise UserError(f"the questions {path} that {run.folder} learned from: the file {what}.")


def _judge_person(
    person: Person, verdict: Verdict, evidence: EvidenceReader, threshold: float
) -> Judged:
    assert verdict.verdict is not None
    assert verdict.confidence is not None
    assert verdict.internal_confidence is not None
    right = is_right(verdict.answer, person)
    found = evidence.count(person.subject)
    return Judged(
        person=person,
        said=verdict.answer,
        right=right,
        verdict=name_with_truth(verdict.verdict, right),
        told=verdict.told != DONT_KNOW,
        told_internal=verdict.internal_confidence >= threshold,
        confidence=verdict.confidence,
        internal_confidence=verdict.internal_confidence,
        naming=found.naming,
        about=found.about,
    )


def _judged_columns(
    verdicts: Sequence[Verdict], judged: Sequence[Judged]
) -> dict[str, list[float]]:
    names = list(verdicts[0].signals)
    columns = {
        name: [np.nan if (value := one.signals[name]) is None else value for one in verdicts]
        for name in names
    }
    return {**columns, SUPPORT: [float(one.naming) for one in judged]}


def _calibration_columns(
    confidence: Confidence,
    evidence: EvidenceReader,
    people: Sequence[Person],
    report: Callable[[int], None] | None,
) -> tuple[dict[str, Any], list[bool]]:
    """The rivals' signals of the people on whom thresholds are promised, and their grades."""
    if not people:
        return {}, []
    subjects = [person.subject for person in people]
    questions = [person.question for person in people]
    table = confidence.reader.read(questions, subjects, only=RIVAL_SIGNALS, report=report)
    counts = [float(evidence.count(subject).naming) for subject in subjects]
    graded = [is_right(said, person) for said, person in zip(table.answers, people, strict=True)]
    return {**table.columns, SUPPORT: counts}, graded


def _remarks(confidence: Confidence, promises: Mapping[str, Guarantee]) -> list[str]:
    """The notes of the calibration; what cannot be promised is told of the risk asked for."""
    before = (confidence.internal_guarantee.reason, confidence.checked_guarantee.reason)
    stale = {f"{mode}: {reason}" for mode, reason in zip(MODES, before, strict=True)}
    kept = [note for note in confidence.notes if note not in stale]
    return kept + [f"{mode}: {one.reason}" for mode, one in promises.items() if one.reason]


def _our_scores(judged: Sequence[Judged], confidence: Confidence, risk: float) -> list[Score]:
    internal, checked = (find_threshold(confidence, risk, checked=mode) for mode in (False, True))
    return [
        Score(
            name="internal",
            about="our probability by the model's own signals",
            values=np.array([one.internal_confidence for one in judged]),
            threshold=internal.value,
            reason=internal.no_promise,
            ours=True,
        ),
        Score(
            name="checked",
            about="our probability with what the lines of the text say; given only if remembered",
            values=np.array([one.confidence for one in judged]),
            threshold=checked.value,
            reason=checked.no_promise,
            ours=True,
            withheld=np.array([one.verdict != REMEMBERED for one in judged]),
            reads_text=True,
        ),
    ]


def require_evidence(run: Run) -> Evidence:
    """The index of a run that must have one."""
    opened = open_run_evidence(run)
    if opened is None:
        raise UserError(f"{run.folder} read no documents, so that no verdict can be judged.")
    return opened
