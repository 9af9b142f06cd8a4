"""From signals to the probability that an answer is right, fitted on people set aside for it.

Standardise, weigh, squash: a logistic regression, since a few hundred people do not feed more.
A second step (Platt's) corrects the curve only where held-out people show that it helps. All of
it is stored as plain numbers and applied with numpy alone. What was tried and measured, and what
the probability does not say: docs/calibration.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wherefrom.errors import UserError
from wherefrom.provenance.answers import Answers, Bools, Floats, as_flags
from wherefrom.provenance.logistic import (
    FOLDS,
    choose_strength,
    deal_folds,
    fit_logistic,
    losses_of,
    sigmoid,
)
from wherefrom.provenance.metrics import ece

VERSION = 1
FEWEST = 20  # fewer people, or fewer than FEWEST_EACH right or wrong: no weights are fitted
FEWEST_EACH = 5
OFTEN = 0.05  # a signal missing for at least this share gets a weight for being missing


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
    """A fitted probability: sigmoid(slope * (intercept + sum of signals) + shift).

    slope 1 and shift 0 mean that no second step was needed. `note` says what a reader must know.
    """

    signals: tuple[Signal, ...]
    intercept: float
    slope: float
    shift: float
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
        return sigmoid(self.slope * logits + self.shift)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers for JSON; `from_dict` gives back exactly the same probabilities."""
        return {"version": VERSION, **asdict(self), "signals": [asdict(s) for s in self.signals]}

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
        numbers = numbers_of(cls, record, leave=("signals", "note"))
        return cls(signals=signals, note=note, **numbers)


def signal_name(entry: Any) -> str:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise UserError("a signal of the calibration has no name; fit it again.")
    return str(entry["name"])


def numbers_of(kind: type[Any], record: dict[str, Any], *, leave: tuple[str, ...]) -> Any:
    """The numeric fields of a record, each there and finite."""
    numbers = {}
    for each in fields(kind):
        if each.name in leave:
            continue
        value = record.get(each.name)
        if not isinstance(value, int | float) or isinstance(value, bool) or not np.isfinite(value):
            raise UserError(f"the calibration's {each.name} must be a number, not {value!r}.")
        numbers[each.name] = value
    if numbers.get("scale", 1) <= 0:
        raise UserError(f"the calibration's scale must be above 0, not {numbers['scale']}.")
    return numbers


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


def fit_calibration(
    signals: Mapping[str, ArrayLike],
    correct: ArrayLike,
    *,
    signs: Mapping[str, int] | None = None,
    groups: ArrayLike | None = None,
    seed: int,
) -> Calibration:
    """Fit on people set aside. `signs`: +1 or -1 where a signal's direction is to be held.

    `groups` numbers the people where somebody has several rows; they then share a fold.
    """
    columns = {name: as_column(values, name) for name, values in signals.items()}
    rows = equal_length(columns)
    right = as_flags(correct, "correct")
    if right.shape != (rows,):
        raise UserError(f"{rows} people have signals and {right.size} have grades.")
    for name in signs or {}:
        if name not in columns or (signs or {})[name] not in (-1, 0, 1):
            raise UserError(f"the sign of {name} must be -1, 0 or 1, for a signal that is there.")
    usable = {name: column for name, column in columns.items() if tells_something(column)}
    fewer = min(int(right.sum()), int((~right).sum()))
    if rows < FEWEST or fewer < FEWEST_EACH or not usable:
        return constant_calibration(rows, int(right.sum()), usable=bool(usable))

    people = np.arange(rows) if groups is None else np.unique(groups, return_inverse=True)[1]
    if people.shape != (rows,):
        raise UserError(f"{rows} people have signals and {people.size} have a group.")
    names, table, held, kept = standardise(usable, signs or {})
    folds = deal_folds(right, people, np.random.default_rng(seed))
    strength, held_out = choose_strength(table, right, folds, held)
    beta = fit_logistic(table, right.astype(np.float64), strength=strength, signs=held)
    slope, shift = second_step(held_out, right, folds)
    weights = dict(zip(names, beta[:-1].tolist(), strict=True))
    fitted = tuple(
        Signal(
            **numbers, weight=weights[name], missing_weight=weights.get(missing_name(name), 0.0)
        )
        for name, numbers in kept.items()
    )
    return Calibration(
        signals=fitted,
        intercept=float(beta[-1]),
        slope=slope,
        shift=shift,
        strength=strength,
        people=rows,
        right=int(right.sum()),
        note=None,
    )
