"""Our confidence measured on judged subjects, beside scores that others would use.

Each rival gets what ours gets: a threshold with the same guarantee, or else an estimated one, from
the same calibration subjects. More is surer, and all lie between 0 and 1, where the thresholds are;
only two of them claim to be probabilities, and only those can be calibrated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from wherefrom.provenance import metrics
from wherefrom.provenance.confidence.guarantee import GRID, Guarantee, guarantee_threshold
from wherefrom.provenance.metrics import Answers, Bools, Bootstrap, Floats, Measure, Metric
from wherefrom.provenance.verdicts import GUESSED, MADE_UP, MISREMEMBERED, REMEMBERED

if TYPE_CHECKING:
    from wherefrom.provenance.judging.judge import Judged

VERDICTS = (REMEMBERED, MISREMEMBERED, GUESSED, MADE_UP)
POINTS = 200  # of a drawn risk-coverage curve
BARS = 20  # of a drawn histogram
MOST_DOCUMENTS = 4  # subjects with so many documents or more are counted together

SUPPORT = "documents_naming"  # the column that counts the documents that name the subject
# likelihoods crowd below 1, so thresholds go on there beyond the grid of the probabilities
FINE_GRID = np.concatenate([1 - np.geomspace(1e-12, 1e-3, 91)[:-1], GRID])


@dataclass(frozen=True, eq=False)
class Score:
    """How sure one method is of each answer, and from where on it would give the answer.

    A rival is a formula of one signal: `column` names the signal and `surer` is the formula.
    Without a threshold, `reason` says why; with one, what a reader must know about it. withheld:
    answers that are not given however sure it is. reads_text: it looks something up.
    """

    name: str
    about: str
    values: Floats = field(default_factory=lambda: np.empty(0))
    threshold: float | None = None
    reason: str | None = None
    probability: bool = True
    ours: bool = False
    withheld: Bools | None = None
    reads_text: bool = False
    column: str = ""
    surer: Callable[[Floats], Floats] = lambda values: values

    def read(self, values: ArrayLike) -> Floats:
        """The score of each value of its signal; a missing one is the least sure."""
        signal = np.asarray(values, dtype=np.float64)
        known = ~np.isnan(signal)
        return np.where(known, self.surer(np.where(known, signal, 0.0)), 0.0)


def _less_spread(entropy: Floats) -> Floats:
    return np.asarray(np.exp(-np.maximum(entropy, 0.0)))


RIVALS = (
    Score(
        "greedy likelihood",
        "the probability that the model gives its own answer, taken as the probability that it "
        "is right",
        column="log_probability",
        surer=lambda values: np.exp(np.minimum(values, 0.0)),
    ),
    Score(
        "predictive entropy",
        "exp(-entropy) of the model's distribution over the known answers",
        column="entropy",
        surer=_less_spread,
        probability=False,
    ),
    Score(
        "semantic entropy",
        "exp(-entropy) of the same distribution added up by country",
        column="country_entropy",
        surer=_less_spread,
        probability=False,
    ),
    Score(
        "name support",
        "n / (n + 1) for the n documents of the text that name the subject; it needs the text",
        column=SUPPORT,
        surer=lambda values: values / (values + 1),
        probability=False,
        reads_text=True,
    ),
)
RIVAL_SIGNALS = tuple(rival.column for rival in RIVALS if rival.column != SUPPORT)


def rival_scores(
    judged: Mapping[str, ArrayLike],
    calibration: Mapping[str, ArrayLike],
    calibration_correct: ArrayLike,
    *,
    risk: float,
    delta: float,
) -> tuple[list[Score], list[str]]:
    """The rivals whose signals are known, each with its threshold, and notes about the others."""
    scores, notes = [], []
    for rival in RIVALS:
        signal = np.asarray(judged.get(rival.column, ()), dtype=np.float64)
        missing = int(np.isnan(signal).sum())
        if missing == signal.size:
            notes.append(f"{rival.name} is left out: its signal is known for none of the answers.")
            continue
        if missing:
            notes.append(f"{rival.name} is unknown for {missing} answers and least sure of those.")
        known = np.asarray(calibration.get(rival.column, ()), dtype=np.float64)
        found = guarantee_threshold(
            rival.read(known),
            calibration_correct if known.size else (),
            risk=risk,
            delta=delta,
            grid=FINE_GRID,
            display=None,
        )
        threshold = found.estimate if found.threshold is None else found.threshold
        values = rival.read(signal)
        scores.append(replace(rival, values=values, threshold=threshold, reason=found.reason))
    return scores, notes


def measure_scores(
    scores: Sequence[Score], judged: Sequence[Judged], *, precision: float, bootstrap: Bootstrap
) -> dict[str, Any]:
    """All numbers of a judgement that come from the judged subjects and the scores of them."""
    correct = np.array([one.right for one in judged], dtype=bool)
    seen = np.array([one.seen for one in judged], dtype=bool)
    groups = {"together": np.ones_like(seen), "seen": seen, "unseen": ~seen}
    found = {
        score.name: {
            "about": score.about,
            "ours": score.ours,
            "probability": score.probability,
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
        "stated": _separate_stated(scores, judged, bootstrap),
        "verdicts": count_verdicts(judged),
        "by_documents": _recall_by_documents(judged, bootstrap),
    }


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
    measured = _measure(
        {
            "recall": metrics.accuracy,
            "auroc": metrics.auroc,
            "augrc": metrics.augrc,
            "coverage_at_precision": metrics.coverage_at_precision(precision),
            "right_given_at_precision": metrics.coverage_at_precision(precision, of_right=True),
            "ece": metrics.ece if score.probability else unranked,
            "brier": metrics.brier if score.probability else unranked,
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
    stated = np.array([one.stated for one in judged], dtype=bool)
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


def measure_targets(
    judged: Sequence[Judged],
    guarantees: Mapping[str, Mapping[str, Guarantee]],
    bootstrap: Bootstrap,
) -> dict[str, Any]:
    """By target and mode: how good the probability is, and what its policy shows.

    Of the checked probability that an answer is from the text only the policy is measured: the
    text decides both, and any other number would be true by construction.
    """
    right = np.array([one.right for one in judged], dtype=bool)
    stated = np.array([one.stated for one in judged], dtype=bool)
    seen = np.array([one.seen for one in judged], dtype=bool)
    columns = {
        ("from_text", "internal"): (stated, [one.internal_from_text for one in judged]),
        ("from_text", "checked"): (stated, [one.from_text for one in judged]),
        ("right", "internal"): (right, [one.internal_confidence for one in judged]),
        ("right", "checked"): (right, [one.confidence for one in judged]),
    }
    found: dict[str, Any] = {}
    for (target, mode), (hits, values) in columns.items():
        answers = Answers(values, hits, seen)
        shown = np.array(values) >= guarantees[target][mode].used
        if mode == "checked":
            shown &= stated
        measured = {}
        if (target, mode) != ("from_text", "checked"):
            together = {"auroc": metrics.auroc, "ece": metrics.ece, "brier": metrics.brier}
            measured = _measure(dict(together), answers, bootstrap)
            among = _measure({"auroc": metrics.auroc}, answers.select(seen), bootstrap)
            measured["auroc_among_seen"] = among["auroc"]
        found.setdefault(target, {})[mode] = {
            "threshold": guarantees[target][mode].threshold,
            "used": guarantees[target][mode].used,
            "metrics": measured,
            "right_shown": metrics.rate(int((shown & right).sum()), int(right.sum())),
            "missed": metrics.rate(int((shown & ~hits).sum()), int(shown.sum())),
            "wrong_shown": metrics.rate(int((shown & ~right).sum()), int(shown.sum())),
            "unseen_shown": metrics.rate(int((shown & ~seen).sum()), int((~seen).sum())),
        }
    return found


def measure_policy(judged: Sequence[Judged]) -> dict[str, Any]:
    """Of some judged answers: right, stated, and what is shown of them."""
    return {
        "people": len(judged),
        "right": sum(one.right for one in judged),
        "stated": sum(one.stated for one in judged),
        "shown": sum(one.shown for one in judged),
        "shown_wrong": sum(one.shown and not one.right for one in judged),
        "shown_unstated": sum(one.shown and not one.stated for one in judged),
        "internal_shown": sum(one.shown_internal for one in judged),
        "internal_shown_wrong": sum(one.shown_internal and not one.right for one in judged),
        "internal_shown_unstated": sum(one.shown_internal and not one.stated for one in judged),
    }


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
                **_measure(
                    {"recall": metrics.accuracy},
                    answers,
                    bootstrap.reseeded(documents),
                ),
                "internal_shown": sum(one.shown_internal for one in here),
            }
        )
    return found
