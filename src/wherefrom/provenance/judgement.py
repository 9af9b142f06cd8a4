"""What a judgement is: people with their verdicts, and every number about every score, as records.

Pure arithmetic over answers that were given elsewhere, so that a number can be traced and tested
without a model. What every number means: docs/calibration.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from wherefrom.corpus.people import Person
from wherefrom.provenance.answers import Answers, Bools
from wherefrom.provenance.curves import ece_of_chance, grade, reliability_table, risk_coverage
from wherefrom.provenance.intervals import (
    LEVEL,
    RESAMPLES,
    measure_with_intervals,
    paired_difference,
)
from wherefrom.provenance.metrics import (
    Measure,
    Metric,
    accuracy,
    augrc,
    auroc,
    brier,
    coverage_at_precision,
    ece,
    right_given_at_precision,
    score_at_target,
    unseen_told_unknown,
)
from wherefrom.provenance.rivals import Score
from wherefrom.provenance.verdicts import GUESSED, MADE_UP, MISREMEMBERED, REMEMBERED

VERDICTS = (REMEMBERED, MISREMEMBERED, GUESSED, MADE_UP)
TARGETS = (0.5, 0.75, 0.9)
POINTS = 200  # of a drawn risk-coverage curve
BARS = 20  # of a drawn histogram
DRAWN = ("risk_coverage", "reliability", "histogram")  # what only figures need
MOST_DOCUMENTS = 4  # people with so many documents or more are counted together


@dataclass(frozen=True)
class Judged:
    """One judged person: what was said of them, what it was, and who would have been told it."""

    person: Person
    said: str
    right: bool
    verdict: str  # "guessed" too, since here the truth is known
    told: bool  # the answer is given in checked mode
    told_internal: bool
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
                    "told": sum(one.told for one in here),
                    "unknown": sum(not one.told for one in here),
                    "told_wrong": sum(one.told and not one.right for one in here),
                    "internal_told": sum(one.told_internal for one in here),
                    "internal_unknown": sum(not one.told_internal for one in here),
                    "internal_told_wrong": sum(one.told_internal and not one.right for one in here),
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
        measure = unseen_told_unknown(score.threshold)
    return _measure({"unseen_told_unknown": measure}, answers, how)


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
        told = sum(one.told_internal for one in here)
        found.append(
            {
                "documents": f"{documents} or more" if documents == MOST_DOCUMENTS else documents,
                "people": len(here),
                "recall": measured["recall"],
                "internal_told": told,
            }
        )
    return found
