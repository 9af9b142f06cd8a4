"""From signals to a probability: a penalised logistic fit, its curve, and which signals it uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wherefrom.errors import UserError
from wherefrom.provenance.judging.metrics import Answers, Bools, Floats, as_flags, ece, log_loss

VERSION = 1
RANKING = 0.05


@dataclass(frozen=True)
class Curve:
    """A rising curve from logits to probabilities: heights at knots, straight lines between."""

    knots: tuple[float, ...] = ()
    heights: tuple[float, ...] = ()


NO_CURVE = Curve()


@dataclass(frozen=True)
class Signal:
    """One signal's numbers: value -> within [low, high] -> (value - mean) / scale -> * weight.

    A missing value counts as the mean, plus `missing_weight`.
    """

    name: str
    mean: float
    scale: float
    low: float
    high: float
    weight: float
    missing_weight: float


@dataclass(frozen=True)
class Calibration:
    """A fitted probability: the curve, or without one the sigmoid, of intercept + signals.

    `strength` is the penalty that was chosen; `note` says what a reader must know.
    """

    signals: tuple[Signal, ...]
    intercept: float
    curve: Curve
    strength: float
    people: int
    right: int
    note: str | None

    def probability(self, signals: Mapping[str, ArrayLike]) -> Floats:
        """The probability for each row; a signal that is not there at all is missing for all."""
        columns = {name: as_column(values, name) for name, values in signals.items()}
        rows = equal_length(columns)
        logits = np.full(rows, self.intercept)
        for signal in self.signals:
            values = columns.get(signal.name, np.full(rows, np.nan))
            missing = np.isnan(values)
            kept = np.clip(np.where(missing, signal.mean, values), signal.low, signal.high)
            scaled = (kept - signal.mean) / signal.scale * signal.weight
            logits = logits + np.where(missing, signal.missing_weight, scaled)
        return squash(logits, self.curve)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers for JSON; `from_dict` gives back exactly the same probabilities."""
        curve = {"knots": list(self.curve.knots), "heights": list(self.curve.heights)}
        signals = [asdict(signal) for signal in self.signals]
        return {"version": VERSION, **asdict(self), "signals": signals, "curve": curve}

    @classmethod
    def from_dict(cls, record: Any) -> Calibration:
        """The calibration in a record of `to_dict`, or a sentence about what is wrong with it."""
        if not isinstance(record, dict) or "version" not in record:
            raise UserError("a calibration must be a record with a version; this is none.")
        if record["version"] != VERSION:
            raise UserError(
                f"the calibration has version {record['version']!r} and this program reads"
                f" version {VERSION}; fit it again."
            )
        listed = record.get("signals")
        if not isinstance(listed, list):
            raise UserError("the calibration has no list of signals; fit it again.")
        note = record.get("note")
        if note is not None and not isinstance(note, str):
            raise UserError("the note of a calibration must be a sentence; fit it again.")
        signals = tuple(
            Signal(name=signal_name(entry), **numbers_of(Signal, entry, leave=("name",)))
            for entry in listed
        )
        numbers = numbers_of(cls, record, leave=("signals", "note", "curve"))
        return cls(signals=signals, note=note, curve=curve_of(record.get("curve")), **numbers)


def sigmoid(logits: Floats) -> Floats:
    """1 / (1 + exp(-logits)) without overflow."""
    small = np.exp(-np.abs(logits))
    return np.where(logits >= 0, 1.0, small) / (1.0 + small)


def squash(logits: Floats, curve: Curve) -> Floats:
    """Probabilities from logits: the curve where there is one, with a little of the sigmoid.

    That little (RANKING) keeps the order of people whom a flat piece of the curve makes equal.
    """
    plain = sigmoid(logits)
    if not curve.knots:
        return plain
    return np.asarray((1 - RANKING) * np.interp(logits, curve.knots, curve.heights)) + (
        RANKING * plain
    )


def signal_name(entry: Any) -> str:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise UserError("a signal of the calibration has no name; fit it again.")
    return str(entry["name"])


def numbers_of(kind: type[Any], record: dict[str, Any], *, leave: tuple[str, ...]) -> Any:
    """The numeric fields of a record, each there and finite."""
    numbers: dict[str, Any] = {}
    for each in fields(kind):
        if each.name in leave:
            continue
        value = record.get(each.name)
        if not is_number(value):
            raise UserError(f"the calibration's {each.name} must be a number, not {value!r}.")
        numbers[each.name] = value
    if numbers.get("scale", 1) <= 0:
        raise UserError(f"the calibration's scale must be above 0, not {numbers['scale']}.")
    return numbers


def curve_of(entry: Any) -> Curve:
    """The curve in a record: as many knots as heights, both rising, heights within 0 and 1."""
    lists = (entry.get("knots"), entry.get("heights")) if isinstance(entry, dict) else (None, None)
    if all(isinstance(one, list) and all(is_number(x) for x in one) for one in lists):
        knots, heights = (np.array(one, dtype=np.float64) for one in lists)
        rises = (np.diff(knots) > 0).all() and (np.diff(heights) >= -1e-12).all()
        if knots.size == heights.size and rises and ((heights >= 0) & (heights <= 1)).all():
            return Curve(tuple(knots.tolist()), tuple(heights.tolist()))
    raise UserError("the calibration's curve must rise from 0 to 1 over its knots; fit it again.")


def is_number(value: Any) -> bool:
    """A number that arithmetic can use: no truth value, no NaN, nothing beyond floating point."""
    return type(value) in (int, float) and -1e300 < value < 1e300


def as_column(values: ArrayLike, name: str) -> Floats:
    column = np.asarray(values, dtype=np.float64)
    if column.ndim != 1:
        raise UserError(f"the signal {name} must be one number a person, not {column.ndim}-fold.")
    return column


def equal_length(columns: Mapping[str, Floats]) -> int:
    lengths = {name: column.size for name, column in columns.items()}
    if not lengths:
        raise UserError("a probability needs at least one signal, and none came.")
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name}: {length}" for name, length in lengths.items())
        raise UserError(f"all signals must have one entry a person, but came as {told}.")
    return next(iter(lengths.values()))


STRENGTHS = np.logspace(-2, 3, 6)  # of the penalty strength / 2 * |weights|^2 on the summed loss
FOLDS = 5
OFTEN = 0.05  # a signal missing for at least this share gets a weight for being missing
KNOTS = 50


@dataclass(frozen=True, eq=False)
class Table:
    """Signals made comparable: columns (n, d), their signs, and the numbers that made them so.

    The first columns are the signals; absent[i] is the column that says signal i is missing.
    """

    columns: Floats
    signs: NDArray[np.int_]
    spreads: list[dict[str, Any]]
    absent: list[int | None]


def losses_of(logits: Floats, correct: Bools) -> Floats:
    """Each person's log loss at these logits."""
    return np.asarray(np.logaddexp(0.0, np.where(correct, -logits, logits)))


def fit_logistic(
    columns: Floats,
    targets: Floats,
    *,
    strength: float,
    signs: NDArray[np.int_] | None = None,
    start: Floats | None = None,
    exact: bool = True,
    counts: Floats | None = None,
) -> Floats:
    """Weights and, last, the intercept: minimise summed log loss + strength / 2 * |weights|^2.

    columns (n, d), targets (n) in [0, 1]; a sign of +1 or -1 holds the weight on that side of
    zero, 0 leaves it free. The intercept is free and not penalised. Not exact is good enough to
    compare penalties. `counts` is how many people each row stands for, one if not given.
    """
    from scipy.optimize import minimize

    width = columns.shape[1]
    held = np.zeros(width, dtype=int) if signs is None else signs
    many = np.ones(targets.size) if counts is None else counts
    bounds = [(0.0 if s > 0 else None, 0.0 if s < 0 else None) for s in held] + [(None, None)]

    def objective(beta: Floats) -> tuple[float, Floats]:
        logits = columns @ beta[:-1] + beta[-1]
        loss = many @ (np.logaddexp(0.0, logits) - targets * logits)
        error = many * (sigmoid(logits) - targets)
        slope = np.append(columns.T @ error + strength * beta[:-1], error.sum())
        return float(loss + strength / 2 * beta[:-1] @ beta[:-1]), slope

    begin = np.zeros(width + 1) if start is None else start
    found = minimize(
        objective,
        begin,
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxiter": 500, **({"ftol": 1e-12, "gtol": 1e-7} if exact else {"ftol": 1e-8})},
    )
    return np.asarray(found.x, dtype=np.float64)


def deal_folds(
    correct: Bools, groups: NDArray[np.int_], rng: np.random.Generator, *, folds: int = FOLDS
) -> NDArray[np.int_]:
    """A fold for each row: rows of one group stay together, right and wrong are spread evenly."""
    names, member = np.unique(groups, return_inverse=True)
    mostly_right = np.bincount(member, weights=correct) * 2 > np.bincount(member)
    shuffled = rng.permutation(names.size)
    dealt = np.empty(names.size, dtype=int)
    dealt[shuffled[np.argsort(mostly_right[shuffled], kind="stable")]] = np.arange(names.size)
    return np.asarray((dealt % folds)[member])


def choose_strength(
    columns: Floats,
    correct: Bools,
    folds: NDArray[np.int_],
    signs: NDArray[np.int_],
    counts: Floats | None = None,
) -> tuple[float, Floats]:
    """The penalty with the least held-out log loss, and every row's held-out logit under it."""
    many = np.ones(correct.size) if counts is None else counts
    logits = np.empty((STRENGTHS.size, correct.size))
    for fold in np.unique(folds):
        out = folds == fold
        beta = None
        for at in reversed(range(STRENGTHS.size)):  # from the strongest, each starts the next
            beta = fit_logistic(
                columns[~out],
                correct[~out].astype(np.float64),
                strength=float(STRENGTHS[at]),
                signs=signs,
                start=beta,
                exact=False,
                counts=many[~out],
            )
            logits[at, out] = columns[out] @ beta[:-1] + beta[-1]
    best = int(np.argmin([many @ losses_of(row, correct) for row in logits]))
    return float(STRENGTHS[best]), logits[best]


def tells_something(column: Floats) -> bool:
    """A signal that is missing for all or the same for all can have no weight."""
    finite = column[np.isfinite(column)]
    if not finite.size:
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        spread = float(finite.std())
    # a spread of rounding errors is none, and one beyond floating point cannot be divided by
    return bool(1e-12 * np.abs(finite).max() < spread < np.inf) and spread > 1e-150


def standardise(
    signals: Mapping[str, Floats], signs: Mapping[str, int], counts: Floats | None = None
) -> Table:
    """Mean 0 and spread 1 over these people; missing is the mean, and a column where frequent.

    Values are kept within the range seen here, infinite ones too: what lies beyond it is as
    strong as the strongest seen, not stronger.
    """
    columns, spreads, missing = [], [], []
    for name, values in signals.items():
        there = np.isfinite(values)
        finite = values[there]
        many = None if counts is None else counts[there]
        mean = float(np.average(finite, weights=many))
        scale = float(np.sqrt(np.average((finite - mean) ** 2, weights=many)))
        low, high = float(finite.min()), float(finite.max())
        spreads.append({"name": name, "mean": mean, "scale": scale, "low": low, "high": high})
        lacking = np.isnan(values)
        columns.append((np.clip(np.where(lacking, mean, values), low, high) - mean) / scale)
        missing.append(lacking)
    shares = [np.average(lacking, weights=counts) for lacking in missing]
    often = [bool(OFTEN <= share <= 1 - OFTEN) for share in shares]
    places = len(columns) + np.cumsum(often) - 1
    held = [signs.get(name, 0) for name in signals] + [0] * sum(often)
    columns += [
        lacking.astype(np.float64)
        for lacking, is_often in zip(missing, often, strict=True)
        if is_often
    ]
    absent = [
        int(place) if is_often else None for place, is_often in zip(places, often, strict=True)
    ]
    return Table(np.stack(columns, axis=1), np.array(held), spreads, absent)


def second_step(
    logits: Floats, correct: Bools, folds: NDArray[np.int_], counts: Floats | None = None
) -> Curve:
    """The Venn-Abers curve over held-out logits, or no curve where it does not help.

    It helps if, on people held out from the curve too, the mean log loss falls and the expected
    calibration error does not rise.
    """
    many = np.ones(correct.size) if counts is None else counts
    curved = np.empty_like(logits)
    for fold in np.unique(folds):
        out = folds == fold
        curved[out] = squash(logits[out], fit_curve(logits[~out], correct[~out], many[~out]))
    plain, bent = Answers(sigmoid(logits), correct), Answers(curved, correct)
    everyone = many[None]
    loss_falls = log_loss.values(bent, everyone) < log_loss.values(plain, everyone)
    error_stays = ece.values(bent, everyone) <= ece.values(plain, everyone)
    return fit_curve(logits, correct, many) if loss_falls and error_stays else NO_CURVE


def fit_curve(logits: Floats, correct: Bools, counts: Floats | None = None) -> Curve:
    """Venn-Abers: fit a rising step function as if the asked person were wrong, then right.

    p0 and p1 are its heights at the person; p1 / (1 - p0 + p1) is the probability that loses
    least in the worst case. Taken at up to KNOTS of the logits and joined by straight lines.
    """
    from sklearn.isotonic import isotonic_regression

    places, member = np.unique(logits, return_inverse=True)
    many = np.ones(correct.size) if counts is None else counts
    right = np.bincount(member, weights=correct * many)
    people = np.bincount(member, weights=many)
    chosen = np.unique(np.linspace(0, places.size - 1, KNOTS).round().astype(int))
    heights = []
    for at in chosen:
        people[at] += 1
        as_wrong = isotonic_regression(right / people, sample_weight=people)[at]
        right[at] += 1
        as_right = isotonic_regression(right / people, sample_weight=people)[at]
        people[at] -= 1
        right[at] -= 1
        heights.append(float(as_right / (1 - as_wrong + as_right)))
    return Curve(tuple(places[chosen].tolist()), tuple(heights))


__all__ = ["Calibration", "Fitted", "fit_calibration", "fit_with_held_out", "out_of_fold"]
FEWEST = 20  # fewer people, or fewer than FEWEST_EACH right or wrong: no weights are fitted
FEWEST_EACH = 5


@dataclass(frozen=True, eq=False)
class Fitted:
    """A calibration, and the confidence of each calibration person for choosing a threshold.

    held_out: the person's signals weighed by a fit without that person, then bent by the one
    final curve. The curve only rises, so it cannot change the order that those fits gave; with a
    curve for each fold, far fewer thresholds could be promised (docs/calibration.md).
    """

    calibration: Calibration
    held_out: Floats


def graded(correct: ArrayLike, rows: int) -> Bools:
    right = as_flags(correct, "correct")
    if right.shape != (rows,):
        raise UserError(f"there are signals for {rows} people and grades for {right.size}.")
    return right


def numbered(groups: ArrayLike | None, rows: int) -> NDArray[np.int_]:
    people = np.arange(rows) if groups is None else np.unique(groups, return_inverse=True)[1]
    if people.shape != (rows,):
        raise UserError(f"there are signals for {rows} people and groups for {people.size}.")
    return people


def counted(counts: ArrayLike | None, rows: int) -> Floats:
    """How many people each row stands for."""
    many = np.ones(rows) if counts is None else as_column(counts, "counts")
    if many.shape != (rows,) or not (np.isfinite(many) & (many > 0)).all():
        raise UserError(f"each of {rows} people must count for a number above 0.")
    return many


def fit_calibration(
    signals: Mapping[str, ArrayLike],
    correct: ArrayLike,
    *,
    signs: Mapping[str, int] | None = None,
    groups: ArrayLike | None = None,
    counts: ArrayLike | None = None,
    seed: int,
) -> Calibration:
    """The calibration alone; see `fit_with_held_out`."""
    fitted = fit_with_held_out(
        signals, correct, signs=signs, groups=groups, counts=counts, seed=seed
    )
    return fitted.calibration


def fit_with_held_out(
    signals: Mapping[str, ArrayLike],
    correct: ArrayLike,
    *,
    signs: Mapping[str, int] | None = None,
    groups: ArrayLike | None = None,
    counts: ArrayLike | None = None,
    bend: bool = True,
    seed: int,
) -> Fitted:
    """Fit on people set aside. `signs`: +1 or -1 where a signal's direction is to be held.

    `groups` numbers the people where somebody has several rows; they then share a fold. `counts`
    is how many people each row stands for: a row that counts 2 acts as two rows would. Without
    `bend` there is no second step.
    """
    columns = {name: as_column(values, name) for name, values in signals.items()}
    rows = equal_length(columns)
    right = graded(correct, rows)
    for name in signs or {}:
        if name not in columns or (signs or {})[name] not in (-1, 0, 1):
            raise UserError(f"the sign of {name} must be -1, 0 or 1, for a signal that is there.")
    usable = {name: column for name, column in columns.items() if tells_something(column)}
    many = counted(counts, rows)
    fewer = min(int(right.sum()), int((~right).sum()))
    if rows < FEWEST or fewer < FEWEST_EACH or not usable:
        same = constant_calibration(right, many, usable=bool(usable))
        return Fitted(same, same.probability(columns))

    people = numbered(groups, rows)
    table = standardise(usable, signs or {}, many)
    folds = deal_folds(right, people, np.random.default_rng(seed))
    strength, held_out = choose_strength(table.columns, right, folds, table.signs, many)
    beta = fit_logistic(
        table.columns,
        right.astype(np.float64),
        strength=strength,
        signs=table.signs,
        counts=many,
    )
    calibration = Calibration(
        signals=tuple(
            Signal(
                **spread,
                weight=float(beta[at]),
                missing_weight=0.0 if absent is None else float(beta[absent]),
            )
            for at, (spread, absent) in enumerate(zip(table.spreads, table.absent, strict=True))
        ),
        intercept=float(beta[-1]),
        curve=second_step(held_out, right, folds, many) if bend else NO_CURVE,
        strength=strength,
        people=rows,
        right=int(right.sum()),
        note=None,
    )
    return Fitted(calibration, squash(held_out, calibration.curve))


def constant_calibration(correct: Bools, counts: Floats, *, usable: bool) -> Calibration:
    """One probability for everybody, (right + 1) / (people + 2), where no weights can be fitted."""
    why = "too few right or wrong answers" if usable else "no signal that varies"
    rows, right = correct.size, int(correct.sum())
    share = (float(counts @ correct) + 1) / (float(counts.sum()) + 2)
    return Calibration(
        signals=(),
        intercept=float(np.log(share / (1 - share))),
        curve=NO_CURVE,
        strength=0.0,
        people=rows,
        right=right,
        note=f"{right} of {rows} calibration answers are right: {why} to fit weights, so that"
        " everybody gets the same probability.",
    )


def out_of_fold(
    signals: Mapping[str, ArrayLike],
    correct: ArrayLike,
    *,
    signs: Mapping[str, int] | None = None,
    groups: ArrayLike | None = None,
    counts: ArrayLike | None = None,
    seed: int,
) -> Floats:
    """Each person's probability by a calibration fitted, all steps of it, without that person.

    For judging the calibration on its own people; for a threshold take `Fitted.held_out`.
    """
    columns = {name: as_column(values, name) for name, values in signals.items()}
    rows = equal_length(columns)
    right = graded(correct, rows)
    people = numbered(groups, rows)
    many = counted(counts, rows)
    folds = deal_folds(right, people, np.random.default_rng([seed, 1]))
    probability = np.empty(rows)
    for fold in np.unique(folds):
        out = folds == fold
        fitted = fit_calibration(
            {name: column[~out] for name, column in columns.items()},
            right[~out],
            signs=signs,
            groups=people[~out],
            counts=many[~out],
            seed=seed,
        )
        probability[out] = fitted.probability({n: column[out] for n, column in columns.items()})
    return probability


DEALS = 3  # of the folds; what one deal favours the next does not
GAIN = 0.02  # of the log loss, that a signal has to save
SURE = 2.0  # standard errors of the saving, which it has to exceed
MOST = 4  # signals beyond the core
CHOOSING_FEWEST_EACH = 10  # right and wrong answers, below which the core is all


def pick_signals(
    columns: Mapping[str, Floats],
    correct: Bools,
    *,
    signs: Mapping[str, int],
    core: Sequence[str],
    seed: int,
) -> tuple[str, ...]:
    """The core as far as it tells anything, and whatever clearly helps beside it, best first.

    By forward selection on these people alone, each judged by fits without them.
    """
    usable = {name: column for name, column in columns.items() if tells_something(column)}
    chosen = [name for name in core if name in usable]
    rest = [name for name in usable if name not in chosen]
    if min(int(correct.sum()), int((~correct).sum())) < CHOOSING_FEWEST_EACH:
        return tuple(chosen or core)
    losses = _losses({name: usable[name] for name in chosen}, correct, signs, seed)
    while rest and len(chosen) < len(core) + MOST:
        tried = {
            name: _losses({each: usable[each] for each in (*chosen, name)}, correct, signs, seed)
            for name in rest
        }
        best = min(rest, key=lambda name: float(tried[name].mean()))
        saved = losses - tried[best]
        error = float(saved.std()) / np.sqrt(saved.size)
        if saved.mean() < max(GAIN * losses.mean(), SURE * error):
            break
        chosen.append(best)
        rest.remove(best)
        losses = tried[best]
    return tuple(chosen or core)


def _losses(
    columns: Mapping[str, Floats], correct: Bools, signs: Mapping[str, int], seed: int
) -> Floats:
    """Each person's held-out log loss, the mean over the deals of the folds."""
    if not columns:
        share = (correct.sum() + 1) / (correct.size + 2)
        return losses_of(np.full(correct.size, np.log(share / (1 - share))), correct)
    table = standardise(columns, signs)
    people = np.arange(correct.size)
    losses = []
    for deal in range(DEALS):
        folds = deal_folds(correct, people, np.random.default_rng([seed, deal, 23]))
        _, logits = choose_strength(table.columns, correct, folds, table.signs)
        losses.append(losses_of(logits, correct))
    return np.asarray(np.mean(losses, axis=0))
