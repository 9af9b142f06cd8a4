"""A fitted calibration: plain numbers that turn signals into a probability, with numpy alone.

Kept apart from the fitting, so that asking needs neither scipy nor scikit-learn, and so that
what is stored in a run folder is all there is to read: no class, no code, no pickle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from wherefrom.errors import UserError
from wherefrom.provenance.answers import Floats

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
