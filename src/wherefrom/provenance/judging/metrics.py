"""How well a confidence tells right answers from wrong ones: metrics, curves and intervals."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wherefrom.errors import UserError

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Answers:
    """One row a person: the confidence, whether the answer is right, whether the person was seen.

    Sorted by falling confidence where a measure needs it: people of equal confidence form a
    group, and no threshold can part them.
    """

    confidence: Floats
    correct: Bools
    seen: Bools | None = None
    order: NDArray[np.intp] = field(init=False, repr=False)
    starts: NDArray[np.intp] = field(init=False, repr=False)

    def __init__(self, confidence: ArrayLike, correct: ArrayLike, seen: ArrayLike | None = None):
        scores = np.asarray(confidence, dtype=np.float64)
        right = as_flags(correct, "correct")
        known = None if seen is None else as_flags(seen, "seen")
        if scores.ndim != 1 or scores.shape != right.shape:
            raise UserError(
                f"confidence and correctness must be two lists of equal length, one entry a person,"
                f" not of shapes {scores.shape} and {right.shape}."
            )
        if known is not None and known.shape != right.shape:
            raise UserError(
                f"seen must have one entry a person: {right.size} expected, {known.size} came."
            )
        if not np.isfinite(scores).all():
            bad = int(np.flatnonzero(~np.isfinite(scores))[0])
            raise UserError(f"the confidence of person {bad + 1} is {scores[bad]}, not a number.")
        order = np.argsort(-scores, kind="stable")
        falling = scores[order]
        first = np.ones(scores.size, dtype=np.bool_)
        first[1:] = falling[1:] != falling[:-1]
        for name, value in (
            ("confidence", scores),
            ("correct", right),
            ("seen", known),
            ("order", order),
            ("starts", np.flatnonzero(first)),
        ):
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return int(self.correct.size)

    def by_group(self, weights: Floats) -> Floats:
        """Sums of weights over people of equal confidence, the surest first: (r, n) -> (r, g)."""
        return np.asarray(np.add.reduceat(weights[:, self.order], self.starts, axis=1))

    def only(self, chosen: Bools) -> Answers:
        """The same for some of the people."""
        seen = None if self.seen is None else self.seen[chosen]
        return Answers(self.confidence[chosen], self.correct[chosen], seen)


def as_flags(values: ArrayLike, name: str) -> Bools:
    """Yes or no for each person; 0 and 1 will do, anything else is a mistake."""
    array = np.asarray(values)
    if array.dtype != np.bool_ and not np.isin(array, (0, 1)).all():
        raise UserError(f"{name} must be yes or no for each person, not {array.ravel()[:3]}.")
    return array.astype(np.bool_)


SURE = 1e-12  # log loss takes a probability for at least this far from 0 and from 1
BINS = 10


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A number with its interval, or a sentence why there is none.

    A reason beside a value is what the reader must know about it.
    """

    value: float | None
    reason: str | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Measure:
    """A named formula: `measure(answers)` is the number, `values` the formula over weights.

    `values` gives one number a row of weights, NaN where that row leaves it undefined; the NaN
    stays between here and the intervals. `undefined` is the sentence for the people as they are.
    """

    name: str
    values: Callable[[Answers, Floats], Floats]
    undefined: Callable[[Answers], str | None]
    note: Callable[[float], str | None] = lambda value: None

    def __call__(self, answers: Answers) -> Metric:
        reason = self.undefined(answers)
        if reason is not None:
            return Metric(value=None, reason=reason)
        value = float(self.values(answers, np.ones((1, len(answers))))[0])
        assert np.isfinite(value), f"{self.name} is undefined and does not say why"
        return Metric(value=value, reason=self.note(value))


def ratio(above: Floats, below: Floats) -> Floats:
    """above / below, NaN where below is 0."""
    shape = np.broadcast_shapes(above.shape, below.shape)
    return np.divide(above, below, out=np.full(shape, np.nan), where=below > 0)


def nobody(answers: Answers) -> str | None:
    return None if len(answers) else "nobody was asked."


def one_kind(answers: Answers) -> str | None:
    if len(answers) and answers.correct.all():
        return "all answers are right, so there is no wrong one to tell from them."
    if len(answers) and not answers.correct.any():
        return "all answers are wrong, so there is no right one to tell from them."
    return nobody(answers)


def no_right(answers: Answers) -> str | None:
    if len(answers) and not answers.correct.any():
        return "no answer is right, so there is no share of the right ones."
    return nobody(answers)


def no_probability(answers: Answers) -> str | None:
    score = answers.confidence
    if len(answers) and (score.min() < 0 or score.max() > 1):
        return "the score is not a probability: it leaves the range from 0 to 1."
    return nobody(answers)


def no_unseen(answers: Answers) -> str | None:
    if answers.seen is None:
        return "it is not known who was seen."
    return "nobody unseen was asked." if answers.seen.all() else None


def auroc_values(answers: Answers, weights: Floats) -> Floats:
    right = answers.by_group(weights * answers.correct)
    wrong = answers.by_group(weights * ~answers.correct)
    above = np.cumsum(right, axis=1) - right / 2  # right answers surer than the group, ties half
    pairs = right.sum(axis=1) * wrong.sum(axis=1)
    return ratio((above * wrong).sum(axis=1), pairs)


def augrc_values(answers: Answers, weights: Floats) -> Floats:
    group = answers.by_group(weights)
    wrong = answers.by_group(weights * ~answers.correct)
    given_wrong = np.cumsum(wrong, axis=1) - wrong / 2  # the middle of each straight piece
    return ratio((given_wrong * group).sum(axis=1), weights.sum(axis=1) ** 2)


def share_at_precision(precision: float, *, of_right: bool) -> Callable[..., Floats]:
    def values(answers: Answers, weights: Floats) -> Floats:
        given = np.cumsum(answers.by_group(weights), axis=1)
        right = np.cumsum(answers.by_group(weights * answers.correct), axis=1)
        # a hair of tolerance, so that 19 of 20 is 95 % in floating point too
        enough = (right >= precision * given - 1e-9) & (given > 0)
        share = ratio(right, right[:, -1:]) if of_right else ratio(given, given[:, -1:])
        return np.where(np.isnan(share[:, -1]), np.nan, np.where(enough, share, 0.0).max(axis=1))

    return values


def calibration_bins(answers: Answers, bins: int = BINS) -> NDArray[np.intp]:
    """Where each bin starts in the sorted order: equally many people, equals never parted."""
    cuts = np.arange(bins) * len(answers) // bins
    at = answers.starts[np.searchsorted(answers.starts, cuts, side="right") - 1]
    return np.asarray(np.unique(at))


def ece_values(bins: int) -> Callable[[Answers, Floats], Floats]:
    def values(answers: Answers, weights: Floats) -> Floats:
        gaps = (weights * (answers.confidence - answers.correct))[:, answers.order]
        by_bin = np.add.reduceat(gaps, calibration_bins(answers, bins), axis=1)
        return ratio(np.abs(by_bin).sum(axis=1), weights.sum(axis=1))

    return values


def mean_of(loss: Callable[[Answers], Floats]) -> Callable[[Answers, Floats], Floats]:
    """The weighted mean of a number that each person has alone."""
    return lambda answers, weights: ratio(weights @ loss(answers), weights.sum(axis=1))


def log_losses(answers: Answers) -> Floats:
    sure = np.clip(answers.confidence, SURE, 1 - SURE)
    return -np.log(np.where(answers.correct, sure, 1 - sure))


auroc = Measure("AUROC", auroc_values, one_kind)
augrc = Measure("AUGRC", augrc_values, nobody)
accuracy = Measure("recall", mean_of(lambda a: a.correct.astype(np.float64)), nobody)
brier = Measure("Brier score", mean_of(lambda a: (a.confidence - a.correct) ** 2), no_probability)
log_loss = Measure("log loss", mean_of(log_losses), no_probability)
ece = Measure("expected calibration error", ece_values(BINS), no_probability)


def never_that_precise(precision: float) -> Callable[[float], str | None]:
    sentence = f"no threshold reaches {precision:.0%} precision, so no answer would be given."
    return lambda value: sentence if value == 0 else None


def coverage_at_precision(precision: float) -> Measure:
    """The largest share of all questions that can be answered with at least this precision."""
    return Measure(
        f"coverage at {precision:.0%} precision",
        share_at_precision(in_unit(precision, "a precision"), of_right=False),
        nobody,
        never_that_precise(precision),
    )


def right_given_at_precision(precision: float) -> Measure:
    """The largest share of the right answers that can be given with at least this precision."""
    return Measure(
        f"right answers given at {precision:.0%} precision",
        share_at_precision(in_unit(precision, "a precision"), of_right=True),
        no_right,
        never_that_precise(precision),
    )


def unseen_unknown(threshold: float) -> Measure:
    """The share of unseen people whose confidence is below the threshold: "I don't know"."""

    def values(answers: Answers, weights: Floats) -> Floats:
        assert answers.seen is not None
        unseen = weights * ~answers.seen
        return ratio(unseen @ (answers.confidence < threshold).astype(float), unseen.sum(axis=1))

    return Measure('unseen told "I don\'t know"', values, no_unseen)


def score_at_target(target: float, *, threshold: float | None = None) -> Measure:
    """Mean of +1 for right, -t/(1-t) for wrong, 0 for not attempted, at the confidence target t.

    An answer is given from the threshold on; without one, from t on, which is best for a
    calibrated probability, and then the score must be a probability.
    """
    if not 0 <= target < 1:
        raise UserError(f"a confidence target must be at least 0 and below 1, not {target}.")
    start = target if threshold is None else threshold

    def points(answers: Answers) -> Floats:
        grade = np.where(answers.correct, 1.0, -target / (1 - target))
        return np.where(answers.confidence >= start, grade, 0.0)

    undefined = no_probability if threshold is None else nobody
    return Measure(f"score at confidence target {target:g}", mean_of(points), undefined)


def in_unit(value: float, what: str) -> float:
    if not 0 < value <= 1:
        raise UserError(f"{what} must be above 0 and at most 1, not {value}.")
    return value


@dataclass(frozen=True)
class Grades:
    """Every question has one grade; an answer below the threshold is not attempted."""

    correct: int
    wrong: int
    not_attempted: int

    @property
    def precision(self) -> float | None:
        """Right among given; none where nothing is given."""
        given = self.correct + self.wrong
        return self.correct / given if given else None


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """One point for every threshold that changes anything, the surest answers first.

    coverage: share of questions answered; risk: share of wrong among the answers given;
    generalised_risk: share of wrong answers given among all questions.
    """

    threshold: Floats
    coverage: Floats
    risk: Floats
    generalised_risk: Floats


@dataclass(frozen=True)
class ReliabilityBin:
    """People of like confidence: what was promised and what came true."""

    low: float
    high: float
    confidence: float
    accuracy: float
    people: int


def grade(answers: Answers, threshold: float) -> Grades:
    """Correct, wrong and not attempted, where answers are given from the threshold on."""
    given = answers.confidence >= threshold
    right = int((given & answers.correct).sum())
    return Grades(right, int(given.sum()) - right, len(answers) - int(given.sum()))


def risk_coverage(answers: Answers) -> RiskCoverage:
    """The curve; without anybody it has no points."""
    if not len(answers):
        return RiskCoverage(*(np.empty(0) for _ in range(4)))
    given = np.cumsum(answers.by_group(np.ones((1, len(answers))))[0])
    wrong = np.cumsum(answers.by_group((~answers.correct[None, :]).astype(np.float64))[0])
    threshold = answers.confidence[answers.order][answers.starts]
    people = len(answers)
    return RiskCoverage(threshold, given / people, wrong / given, wrong / people)


def reliability_table(answers: Answers, *, bins: int = BINS) -> list[ReliabilityBin]:
    """The bins of the expected calibration error, the least sure first, to be drawn."""
    if no_probability(answers) is not None:
        return []
    starts = calibration_bins(answers, bins)
    table = []
    for members in reversed(np.split(answers.order, starts[1:])):
        score = answers.confidence[members]
        table.append(
            ReliabilityBin(
                low=float(score.min()),
                high=float(score.max()),
                confidence=float(score.mean()),
                accuracy=float(answers.correct[members].mean()),
                people=len(members),
            )
        )
    return table


def ece_of_chance(
    answers: Answers, rng: np.random.Generator, *, bins: int = BINS, draws: int = 1000
) -> Metric:
    """The calibration error that a perfectly calibrated score would show on as many people.

    Rights and wrongs are drawn from the confidences themselves; mean and central 95 % of the
    draws. An expected calibration error within this interval is no evidence of miscalibration.
    """
    reason = no_probability(answers)
    if reason is not None:
        return Metric(value=None, reason=reason)
    score = answers.confidence[answers.order]
    gaps = score - (rng.random((draws, score.size)) < score)
    by_bin = np.add.reduceat(gaps, calibration_bins(answers, bins), axis=1)
    errors = np.abs(by_bin).sum(axis=1) / score.size
    low, high = np.quantile(errors, (0.025, 0.975))
    return Metric(value=float(errors.mean()), low=float(low), high=float(high))


def open_world_floor(subjects: Iterable[str], miscalibration: Metric) -> Metric:
    """How often a model that must always answer is bound to make things up about *new* people.

    `subjects` names the person of each document. The share of documents whose person occurs
    only once estimates how likely the next document is about somebody never met (Good and
    Turing); a model that generates facts as often as it believes them must invent at least that
    share, less its miscalibration (Kalai and Vempala 2024, small terms left out). It is no bound
    on the error about people who were read, and none on a model that may say "I don't know".
    """
    counts = Counter(subjects)
    if not counts:
        return Metric(value=None, reason="there are no documents to count singletons in.")
    if miscalibration.value is None:
        return Metric(value=None, reason=f"no miscalibration is known: {miscalibration.reason}")
    if miscalibration.value < 0:
        raise UserError(f"a miscalibration cannot be below 0, and {miscalibration.value} is.")
    singletons = sum(count == 1 for count in counts.values()) / counts.total()
    return Metric(
        value=max(0.0, singletons - miscalibration.value),
        reason="this is about people yet to be met, not about the people asked here.",
    )


RESAMPLES = 1000
LEVEL = 0.95
DEFINED = 0.9  # an interval needs this share of the resamples; the others leave it undefined
CELLS = 2_000_000  # weights held at once, so that many people do not need much memory


def resample_weights(
    answers: Answers, rng: np.random.Generator, *, resamples: int = RESAMPLES
) -> Iterator[Floats]:
    """Weights in blocks of shape (r, n): each row draws as many people as there are."""
    people = len(answers)
    strata = [np.arange(people)]
    if answers.seen is not None:
        strata = [np.flatnonzero(answers.seen), np.flatnonzero(~answers.seen)]
    block = max(1, CELLS // max(1, people))
    for done in count(step=block):
        rows = min(block, resamples - done)
        if rows <= 0:
            return
        weights = np.zeros((rows, people))
        for members in strata:
            if members.size:
                draws = rng.integers(members.size, size=(rows, members.size))
                cells = draws + members.size * np.arange(rows)[:, None]
                counts = np.bincount(cells.ravel(), minlength=rows * members.size)
                weights[:, members] = counts.reshape(rows, members.size)
        yield weights


def measure_with_intervals(
    measures: Iterable[Measure],
    answers: Answers,
    rng: np.random.Generator,
    *,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
) -> dict[str, Metric]:
    """Each measure by its name, with the central `level` of its values over the resamples."""
    check_level(level, resamples)
    measures = list(measures)
    points = {measure.name: measure(answers) for measure in measures}
    defined = [measure for measure in measures if points[measure.name].value is not None]
    if defined:
        drawn: dict[str, list[Floats]] = {measure.name: [] for measure in defined}
        for weights in resample_weights(answers, rng, resamples=resamples):
            for measure in defined:
                drawn[measure.name].append(measure.values(answers, weights))
        for name, values in drawn.items():
            points[name] = with_interval(points[name], np.concatenate(values), level)
    return points


def paired_difference(
    measure: Measure,
    first: Answers,
    second: Answers,
    rng: np.random.Generator,
    *,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
) -> Metric:
    """measure(first) - measure(second), where row i of both is the same person's same answer."""
    check_level(level, resamples)
    same_seen = (first.seen is None) == (second.seen is None) and (
        first.seen is None or second.seen is None or np.array_equal(first.seen, second.seen)
    )
    if not np.array_equal(first.correct, second.correct) or not same_seen:
        raise UserError(
            "two scores can be compared only on the same answers of the same people, and these"
            " differ in who was asked, who was right or who was seen."
        )
    one, other = measure(first), measure(second)
    if one.value is None or other.value is None:
        return Metric(value=None, reason=one.reason if one.value is None else other.reason)
    differences = [
        measure.values(first, weights) - measure.values(second, weights)
        for weights in resample_weights(first, rng, resamples=resamples)
    ]
    return with_interval(Metric(value=one.value - other.value), np.concatenate(differences), level)


def with_interval(point: Metric, values: Floats, level: float) -> Metric:
    """The point with the central `level` of the resampled values, those that are defined."""
    defined = values[np.isfinite(values)]
    if defined.size < DEFINED * values.size:
        sentence = "no interval: too many resamples of so few people leave it undefined."
        return replace(point, reason=" ".join(filter(None, (point.reason, sentence))))
    low, high = np.quantile(defined, ((1 - level) / 2, (1 + level) / 2))
    return replace(point, low=float(low), high=float(high))


def check_level(level: float, resamples: int) -> None:
    if not 0 < level < 1:
        raise UserError(f"the level of an interval must lie between 0 and 1, not at {level}.")
    if resamples < 1:
        raise UserError(f"an interval needs at least one resample, not {resamples}.")


def rate(count: int, people: int, *, level: float = LEVEL) -> dict[str, Any]:
    """count / people with Wilson's interval; without anybody no value and a reason."""
    check_level(level, 1)
    if not people:
        reason = "nobody is in this group."
        return {"count": 0, "people": 0, "value": None, "low": None, "high": None, "reason": reason}
    z = NormalDist().inv_cdf((1 + level) / 2)
    share = count / people
    middle = (share + z * z / (2 * people)) / (1 + z * z / people)
    half = z * math.sqrt(share * (1 - share) / people + (z / (2 * people)) ** 2)
    half /= 1 + z * z / people
    return {
        "count": count,
        "people": people,
        "value": share,
        "low": min(share, max(0.0, middle - half)),
        "high": max(share, min(1.0, middle + half)),
        "reason": None,
    }


def compare_rates(event: Bools, group: Bools, *, level: float = LEVEL) -> dict[str, Any]:
    """The share of `event` in the group, among the others, and the difference of the two."""
    first = rate(int(event[group].sum()), int(group.sum()), level=level)
    other = rate(int(event[~group].sum()), int((~group).sum()), level=level)
    difference: dict[str, Any] = {"value": None, "low": None, "high": None}
    if first["value"] is None or other["value"] is None:
        difference["reason"] = "one of the two groups is empty."
    else:
        value = first["value"] - other["value"]
        below = math.hypot(first["value"] - first["low"], other["high"] - other["value"])
        above = math.hypot(first["high"] - first["value"], other["value"] - other["low"])
        difference = {"value": value, "low": value - below, "high": value + above, "reason": None}
    return {"group": first, "others": other, "difference": difference}
