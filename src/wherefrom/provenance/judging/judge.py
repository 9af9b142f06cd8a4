"""How far the verdicts of a run can be believed: asked about subjects kept for judging it."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.questions import Question, read_questions
from wherefrom.corpus.subjects import CALIBRATION, JUDGED, Subject, read_subjects
from wherefrom.errors import UserError
from wherefrom.provenance.confidence.fit import Confidence, is_right, load_confidence
from wherefrom.provenance.confidence.guarantee import Guarantee
from wherefrom.provenance.evidence.index import Evidence, open_run_evidence
from wherefrom.provenance.judging.metrics import (
    LEVEL,
    RESAMPLES,
    Answers,
    Bools,
    Measure,
    Metric,
    accuracy,
    augrc,
    auroc,
    brier,
    check_level,
    coverage_at_precision,
    ece,
    ece_of_chance,
    grade,
    measure_with_intervals,
    open_world_floor,
    paired_difference,
    reliability_table,
    right_given_at_precision,
    risk_coverage,
    score_at_target,
    unseen_unknown,
)
from wherefrom.provenance.judging.rivals import RIVALS, SUPPORT, Score, always_answer, rival_scores
from wherefrom.provenance.verdicts import (
    DONT_KNOW,
    GUESSED,
    MADE_UP,
    MISREMEMBERED,
    REMEMBERED,
    Verdict,
    find_threshold,
    give_verdicts,
)
from wherefrom.storage import sha256_of, write_json, write_whole
from wherefrom.training.run_folder import Run, update_run

VERDICTS = (REMEMBERED, MISREMEMBERED, GUESSED, MADE_UP)
TARGETS = (0.5, 0.75, 0.9)
POINTS = 200  # of a drawn risk-coverage curve
BARS = 20  # of a drawn histogram
DRAWN = ("risk_coverage", "reliability", "histogram")  # what only figures need
MOST_DOCUMENTS = 4  # people with so many documents or more are counted together


@dataclass(frozen=True)
class Judged:
    """One judged person: what was said of them, what it was, and who would have been told it."""

    person: Subject
    said: str
    right: bool
    verdict: str  # "guessed" too, since here the truth is known
    shown: bool  # the answer is given in checked mode
    shown_internal: bool
    confidence: float
    internal_confidence: float
    naming: int  # documents that name the subject
    about: int  # documents about the subject

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self.person), **{k: v for k, v in asdict(self).items() if k != "person"}}


@dataclass(frozen=True)
class Judgement:
    """All that was measured; `record` is plain JSON, drawn from by the report and the page."""

    people: tuple[Judged, ...]
    record: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        return self.record

    def summary(self) -> dict[str, Any]:
        """The same without what is only drawn, and of the rivals all people together alone."""
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

    def rows(self) -> list[dict[str, Any]]:
        """The table of verdicts: seen and unseen people by where their answer came from."""
        return count_verdicts(self.people)


def name_with_truth(verdict: str, right: bool) -> str:
    """The verdict where the truth is known: right although no line states it is guessed."""
    return GUESSED if right and verdict != REMEMBERED else verdict


def count_verdicts(people: Iterable[Judged]) -> list[dict[str, Any]]:
    """One row for each of seen and unseen and each verdict; rows add up to all people."""
    people = list(people)
    rows = []
    for seen in (True, False):
        for verdict in VERDICTS:
            here = [one for one in people if one.person.seen == seen and one.verdict == verdict]
            rows.append(
                {
                    "people": "seen" if seen else "unseen",
                    "verdict": verdict,
                    "count": len(here),
                    "right": sum(one.right for one in here),
                    "wrong": sum(not one.right for one in here),
                    "shown": sum(one.shown for one in here),
                    "unknown": sum(not one.shown for one in here),
                    "shown_wrong": sum(one.shown and not one.right for one in here),
                    "internal_shown": sum(one.shown_internal for one in here),
                    "internal_unknown": sum(not one.shown_internal for one in here),
                    "internal_shown_wrong": sum(
                        one.shown_internal and not one.right for one in here
                    ),
                }
            )
    return rows


def judge_scores(
    scores: Sequence[Score],
    correct: Bools,
    seen: Bools,
    *,
    precision: float,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
    seed: int = 0,
) -> dict[str, Any]:
    """Every score by its name: what it is, and its numbers on each group of people."""
    groups = {"together": np.ones_like(seen), "seen": seen, "unseen": ~seen}
    found: dict[str, Any] = {}
    for score in scores:
        everyone = Answers(score.values, correct, seen)
        # for what is given and what is not, an answer that is withheld has no confidence at all
        given = (
            score.values
            if score.withheld is None
            else np.where(score.withheld, -1, everyone.confidence)
        )
        telling = Answers(given, correct, seen)
        judged = {}
        for at, (name, chosen) in enumerate(groups.items()):
            how = _How(resamples, level, (seed, at))  # the same resamples for every score
            mine = everyone.only(chosen)
            judged[name] = {
                "people": len(mine),
                "grades": _grades(score, telling.only(chosen)),
                "metrics": {
                    **_metrics(score, mine, precision, how),
                    **_telling(score, telling.only(chosen), how),
                },
                "ece_of_chance": asdict(_chance(score, mine, how)),
                "risk_coverage": _curve(mine),
                "reliability": [
                    asdict(one) for one in (reliability_table(mine) if score.probability else [])
                ],
                "histogram": _histogram(mine),
            }
        found[score.name] = {
            "about": score.about,
            "ours": score.ours,
            "probability": score.probability,
            "threshold": score.threshold,
            "threshold_reason": score.reason,
            "groups": judged,
        }
    return found


@dataclass(frozen=True)
class _How:
    """How intervals are made."""

    resamples: int
    level: float
    seed: tuple[int, int]


def _metrics(score: Score, answers: Answers, precision: float, how: _How) -> dict[str, Any]:
    measures: dict[str, Measure | str] = {
        "recall": accuracy,
        "auroc": auroc,
        "augrc": augrc,
        "coverage_at_precision": coverage_at_precision(precision),
        "right_given_at_precision": right_given_at_precision(precision),
    }
    of_probabilities: dict[str, Measure] = {"ece": ece, "brier": brier}
    of_probabilities |= {f"score_at_{target:g}": score_at_target(target) for target in TARGETS}
    for key, measure in of_probabilities.items():
        measures[key] = measure if score.probability else _no_probability(score)
    return _measure(measures, answers, how)


def _telling(score: Score, answers: Answers, how: _How) -> dict[str, Any]:
    """What depends on the threshold."""
    measure: Measure | str = score.reason or "no threshold was chosen."
    if score.threshold is not None:
        measure = unseen_unknown(score.threshold)
    return _measure({"unseen_unknown": measure}, answers, how)


def _measure(measures: Mapping[str, Measure | str], answers: Answers, how: _How) -> dict[str, Any]:
    """Metrics under short names; a sentence in place of a measure is the reason for none."""
    formulas = [one for one in measures.values() if isinstance(one, Measure)]
    rng = np.random.default_rng(how.seed)
    measured = measure_with_intervals(
        formulas, answers, rng, resamples=how.resamples, level=how.level
    )
    return {
        key: asdict(
            measured[one.name] if isinstance(one, Measure) else Metric(value=None, reason=one)
        )
        for key, one in measures.items()
    }


def _no_probability(score: Score) -> str:
    return f"{score.name} orders answers and is no probability, so this has no meaning for it."


def _chance(score: Score, answers: Answers, how: _How) -> Metric:
    if not score.probability:
        return Metric(value=None, reason=_no_probability(score))
    return ece_of_chance(answers, np.random.default_rng(how.seed))


def _grades(score: Score, answers: Answers) -> dict[str, Any]:
    if score.threshold is None:
        nothing = dict.fromkeys(("correct", "wrong", "not_attempted", "precision"))
        return {**nothing, "reason": score.reason or "no threshold was chosen."}
    graded = grade(answers, score.threshold)
    return {**asdict(graded), "precision": graded.precision, "reason": score.reason}


def _curve(answers: Answers) -> dict[str, list[float]]:
    """The risk-coverage curve, thinned to what a plot can show."""
    curve = risk_coverage(answers)
    points = len(curve.coverage)
    kept = np.unique(np.linspace(0, points - 1, min(points, POINTS)).round().astype(int))
    names = ("threshold", "coverage", "risk", "generalised_risk")
    return {name: getattr(curve, name)[kept].tolist() for name in names}


def _histogram(answers: Answers) -> dict[str, list[float]]:
    edges = np.linspace(0, 1, BARS + 1)
    counts = {
        name: np.histogram(answers.confidence[chosen], edges)[0].tolist()
        for name, chosen in (("right", answers.correct), ("wrong", ~answers.correct))
    }
    return {"edges": edges.tolist(), **counts}


def compare_with_best(
    scores: Sequence[Score],
    correct: Bools,
    seen: Bools,
    *,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """The internal score less the best rival by each measure, on the same resamples.

    The best is chosen after the fact on these very people, which favours the rival.
    """
    answers = {score.name: Answers(score.values, correct, seen) for score in scores}
    mine = next(score.name for score in scores if score.ours)
    rivals = [score.name for score in scores if not score.ours]
    found = []
    for key, measure, best_of in (("auroc", auroc, max), ("augrc", augrc, min)):
        values = {name: measure(answers[name]) for name in (mine, *rivals)}
        undefined = [metric.reason for metric in values.values() if metric.value is None]
        record: dict[str, Any] = {"measure": key, "score": mine, "rival": None}
        difference = Metric(value=None, reason=next(iter(undefined), "there is no rival."))
        if rivals and not undefined:
            best = best_of(rivals, key=lambda name: values[name].value or 0.0)
            record["rival"] = best
            difference = paired_difference(
                measure,
                answers[mine],
                answers[best],
                np.random.default_rng([seed, 0]),
                resamples=resamples,
                level=level,
            )
        found.append({**record, "difference": asdict(difference)})
    return found


def tell_stated(
    scores: Sequence[Score],
    people: Sequence[Judged],
    *,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """How well a score that reads no text tells answers that a line states from all others.

    Right and wrong are the questions' labels; whether an answer stands in the text does not
    depend on which of two places a label names.
    """
    stated = np.array([one.verdict == REMEMBERED for one in people], dtype=bool)
    how = _How(resamples, level, (seed, 0))
    measure: Measure | str = auroc
    if len(stated) and stated.all() == stated.any():
        measure = f"{'every' if stated.all() else 'no'} answer is stated by a line."
    return [
        {"score": score.name, **_measure({"auroc": measure}, Answers(score.values, stated), how)}
        for score in scores
        if not score.reads_text
    ]


def recall_by_documents(
    people: Sequence[Judged],
    *,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Recall of people with no document, one, two, and so on."""
    found = []
    for documents in range(MOST_DOCUMENTS + 1):
        here = [one for one in people if min(one.about, MOST_DOCUMENTS) == documents]
        answers = Answers([one.internal_confidence for one in here], [one.right for one in here])
        measured = _measure(
            {"recall": accuracy}, answers, _How(resamples, level, (seed, documents))
        )
        told = sum(one.shown_internal for one in here)
        found.append(
            {
                "documents": f"{documents} or more" if documents == MOST_DOCUMENTS else documents,
                "people": len(here),
                "recall": measured["recall"],
                "internal_shown": told,
            }
        )
    return found


MODES = ("internal", "checked")
RIVAL_SIGNALS = tuple(rival.column for rival in RIVALS if rival.column != SUPPORT)
PEOPLE_FILE, NUMBERS_FILE = "judged.jsonl", "judgement.json"


def judge_run(
    run: Run,
    *,
    confidence: Confidence | None = None,
    evidence: Evidence | None = None,
    people: Sequence[Subject] | None = None,
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
    delta = confidence.internal.guarantee.delta
    risk = confidence.internal.guarantee.risk if risk is None else risk
    promises = {mode: confidence.guarantee(risk, checked=mode == "checked") for mode in MODES}
    people = read_subjects(run.folder) if people is None else people
    asked = [person for person in people if person.role == JUDGED]
    if not asked:
        raise UserError(f"{run.folder} has nobody to be judged by: its subjects.jsonl has none.")
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
        "guarantees": {mode: asdict(promised) for mode, promised in promises.items()},
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
    evidence: Evidence,
    asked: Sequence[Subject],
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
            names = [person.subject for person in read_subjects(run.folder)]
            dealt = {fold_words(name) for name in (*names, *run.info.get("left_out", ()))}
            asked = read_questions(place, run.template).questions
            return [question for question in asked if fold_words(question.subject) not in dealt]
    what = "has changed since" if places else "is not there any more"
    raise UserError(f"the questions {path} that {run.folder} learned from: the file {what}.")


def _judge_person(
    person: Subject, verdict: Verdict, evidence: Evidence, threshold: float
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
        shown=verdict.shown != DONT_KNOW,
        shown_internal=verdict.internal_confidence >= threshold,
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
    evidence: Evidence,
    people: Sequence[Subject],
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
    before = (confidence.internal.guarantee.reason, confidence.checked.guarantee.reason)
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
