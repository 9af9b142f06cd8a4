"""The confidence of a run: signals, calibration and promised thresholds, kept as plain numbers.

Fitted once, when a study has trained its model, on the people dealt out for it: some of them were
read about and some were not, and nobody's question was learned. Internal is what the model gives
away by itself; checked adds what the lines of the text say. Asking a run needs no fitting again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from wherefrom.corpus.people import CALIBRATION, FITTING, Person
from wherefrom.errors import UserError
from wherefrom.provenance.answers import Bools, Floats
from wherefrom.provenance.calibration import Calibration, fit_with_held_out
from wherefrom.provenance.fitting_people import read_signals, with_spare_people
from wherefrom.provenance.guarantee import Guarantee, guarantee_threshold
from wherefrom.provenance.lines import EvidenceReader
from wherefrom.provenance.probability import is_number
from wherefrom.provenance.signal_reader import SignalReader
from wherefrom.provenance.signals import CORE, SIGNALS, SignalTable
from wherefrom.provenance.support import Support, find_support
from wherefrom.storage import read_json, write_json
from wherefrom.training.run import Run, load_run

CALIBRATED = "calibration.json"
TWIN = Path("twins", "scratch")
VERSION = 2
# of what the text says, the directions that are known; being seen counts beside what is stated
EVIDENCE_SIGNS = {"seen": 0, "states_answer": 1, "states_other": -1}


@dataclass(frozen=True, eq=False)
class Confidence:
    """All that turns an answer of this run into a probability, and the thresholds promised.

    The held-out confidences and the grades of the calibration people (`correct`) are kept, so
    that a threshold can be promised at any risk.
    """

    reader: SignalReader
    internal: Calibration
    internal_guarantee: Guarantee
    internal_held_out: Floats
    checked: Calibration
    checked_guarantee: Guarantee
    checked_held_out: Floats
    correct: Bools
    assumed_unseen: float  # share of the calibration people whom no document names
    notes: tuple[str, ...]
    weights_sha256: str
    twin_sha256: str | None
    people_sha256: str

    @property
    def people(self) -> int:
        return self.correct.size

    @property
    def signals(self) -> tuple[str, ...]:
        """The signals that a probability takes, which are all that asking has to read."""
        used = {each.name for each in (*self.internal.signals, *self.checked.signals)}
        return tuple(name for name in SIGNALS if name in used or name == CORE[0])

    def internal_probability(self, table: SignalTable) -> Floats:
        """How likely each answer is right, by the model's own signals."""
        return self.internal.probability(table.columns)

    def checked_probability(self, table: SignalTable, support: Sequence[Support]) -> Floats:
        """The same, confirmed or denied by the lines of the text."""
        return self.checked.probability({**table.columns, **evidence_columns(support)})

    def guarantee(
        self, risk: float, *, checked: bool = True, delta: float | None = None
    ) -> Guarantee:
        """The threshold that can be promised at another risk, from the same people."""
        promised = self.checked_guarantee if checked else self.internal_guarantee
        held_out = self.checked_held_out if checked else self.internal_held_out
        sure = promised.delta if delta is None else delta
        return guarantee_threshold(held_out, self.correct, risk=risk, delta=sure)


def fit_confidence(
    run: Run,
    evidence: EvidenceReader,
    people: Sequence[Person],
    known_answers: Sequence[str],
    *,
    names: Sequence[str] = (),
    contexts: Sequence[str] = (),
    twin: Run | None,
    seed: int,
    risk: float = 0.05,
    delta: float = 0.05,
    notes: Sequence[str] = (),
    report: Callable[[int], None] | None = None,
) -> Confidence:
    """Read the signals of the calibration people, and fit both modes on them.

    `names` are those of the data, from which decoys are made; the people's own if not given.
    `contexts` are the words that lead to an answer in the text. People dealt out for fitting
    alone help to fit the weights, and count as many as there are of their kind in the
    calibration, so that its mix stays; signals are chosen and thresholds promised without them.
    `report` is told of people as they are done.
    """
    asked = [person for person in people if person.role == CALIBRATION]
    if not asked:
        raise UserError(
            "no confidence can be fitted, since nobody is set aside for it; repeat the study with "
            "--set-aside 0.1 and another --out."
        )
    everybody, counts = with_spare_people(people)
    known_names = list(names) or [person.subject for person in asked]
    reader = SignalReader.prepare(
        run, twin, known_answers, known_names, contexts=contexts, seed=seed
    )
    said: list[str] = [*notes]
    table, correct = read_signals(reader, everybody, counts, seed=seed, notes=said, report=report)
    columns = table.columns
    support = find_support(evidence, table.subjects, table.answers, reader.known_answers)
    signs = {name: SIGNALS[name].sign for name in columns}

    def fit(columns: Mapping[str, Floats], signs: Mapping[str, int]) -> _Mode:
        """A mode's calibration, and what the calibration people's held-out confidences promise."""
        fitted = fit_with_held_out(columns, correct, signs=signs, counts=counts, seed=seed)
        held_out, grades = fitted.held_out[: len(asked)], correct[: len(asked)]
        promised = guarantee_threshold(held_out, grades, risk=risk, delta=delta)
        return _Mode(fitted.calibration, promised, held_out)

    internal = fit(columns, signs)
    checked = fit({**columns, **evidence_columns(support)}, {**signs, **EVIDENCE_SIGNS})
    fitted = Confidence(
        reader=reader,
        internal=internal.calibration,
        internal_guarantee=internal.guarantee,
        internal_held_out=internal.held_out,
        checked=checked.calibration,
        checked_guarantee=checked.guarantee,
        checked_held_out=checked.held_out,
        correct=correct[: len(asked)],
        assumed_unseen=sum(not person.seen for person in asked) / len(asked),
        notes=(),
        weights_sha256=str(run.info["sha256"]),
        twin_sha256=None if twin is None else str(twin.info["sha256"]),
        people_sha256=hash_people(people),
    )
    return replace(fitted, notes=tuple(dict.fromkeys([*said, *_remarks(fitted)])))


@dataclass(frozen=True, eq=False)
class _Mode:
    calibration: Calibration
    guarantee: Guarantee
    held_out: Floats


def evidence_columns(support: Sequence[Support]) -> dict[str, Floats]:
    """What the text says of each answer, as numbers for the checked calibration."""
    return {
        name: np.array([getattr(one, name) for one in support], dtype=np.float64)
        for name in EVIDENCE_SIGNS
    }


def hash_people(people: Sequence[Person]) -> str:
    """Which people a confidence was fitted on."""
    rows = [asdict(person) for person in people if person.role in (CALIBRATION, FITTING)]
    return sha256(json.dumps(rows).encode()).hexdigest()


def save_confidence(folder: Path, confidence: Confidence) -> None:
    """calibration.json in the run folder: numbers and sentences, no code."""
    modes = {
        mode: {
            "calibration": getattr(confidence, mode).to_dict(),
            "guarantee": asdict(getattr(confidence, f"{mode}_guarantee")),
            "held_out": getattr(confidence, f"{mode}_held_out").tolist(),
        }
        for mode in ("internal", "checked")
    }
    write_json(
        folder / CALIBRATED,
        {
            "version": VERSION,
            "weights_sha256": confidence.weights_sha256,
            "twin_sha256": confidence.twin_sha256,
            "people_sha256": confidence.people_sha256,
            "people": confidence.people,
            "right": int(confidence.correct.sum()),
            "assumed_unseen": confidence.assumed_unseen,
            "notes": list(confidence.notes),
            **modes,
            "correct": confidence.correct.tolist(),
            "reader": confidence.reader.to_dict(),
        },
    )


def load_confidence(run: Run) -> Confidence:
    """The confidence of a run, or a sentence about why there is none."""
    path = run.folder / CALIBRATED
    if not path.is_file():
        raise UserError(
            f"{run.folder} holds no {CALIBRATED}: it was not made by `wherefrom study` with people "
            "set aside, or has not come that far; make it so, or repeat its command with --resume."
        )
    record = read_json(path)
    again = "repeat the study's command with --resume, which fits it again"
    if not isinstance(record, dict) or record.get("version") != VERSION:
        raise UserError(f"{path} is not a calibration of this version; {again}.")
    if record.get("weights_sha256") != run.info.get("sha256"):
        raise UserError(f"{path} was fitted for other weights than the run has; {again}.")
    twin = load_twin(run)
    if record.get("twin_sha256") != (None if twin is None else twin.info.get("sha256")):
        raise UserError(f"{path} was fitted beside another twin than {run.folder / TWIN}; {again}.")
    try:
        return _from_record(record, run, twin)
    except (KeyError, TypeError, ValueError, AttributeError, UserError) as problem:
        raise UserError(f"{path} is broken ({problem}); {again}.") from None


def load_twin(run: Run) -> Run | None:
    """The run's twin without pretraining, where a study left one."""
    folder = run.folder / TWIN
    if not (folder / "model.safetensors").is_file():
        return None
    return load_run(folder, device=next(run.model.parameters()).device)


def _from_record(record: dict[str, Any], run: Run, twin: Run | None) -> Confidence:
    correct = np.array(record["correct"])
    if correct.ndim != 1 or correct.dtype != np.bool_:
        raise ValueError("the grades must be true or false")
    modes: dict[str, Any] = {}
    for mode in ("internal", "checked"):
        numbers = record[mode]["held_out"]
        if len(numbers) != correct.size or not all(map(is_number, numbers)):
            raise ValueError("there must be one held-out confidence a person")
        guarantee = {
            field.name: record[mode]["guarantee"][field.name] for field in fields(Guarantee)
        }
        modes[mode] = Calibration.from_dict(record[mode]["calibration"])
        modes[f"{mode}_guarantee"] = Guarantee(**guarantee)
        modes[f"{mode}_held_out"] = np.array(numbers, dtype=np.float64)
    if not is_number(record["assumed_unseen"]):
        raise ValueError("the share of the unseen must be a number")
    notes = record["notes"]
    if not isinstance(notes, list) or not all(isinstance(note, str) for note in notes):
        raise ValueError("the notes must be sentences")
    return Confidence(
        reader=SignalReader.from_dict(record["reader"], run, twin),
        **modes,
        correct=correct,
        assumed_unseen=record["assumed_unseen"],
        notes=tuple(notes),
        weights_sha256=str(record["weights_sha256"]),
        twin_sha256=record["twin_sha256"],
        people_sha256=str(record["people_sha256"]),
    )


def _remarks(fitted: Confidence) -> list[str]:
    """What a reader must know of each mode: why nothing was fitted, why nothing is promised."""
    remarks = []
    for mode, calibration, promised in (
        ("internal", fitted.internal, fitted.internal_guarantee),
        ("checked", fitted.checked, fitted.checked_guarantee),
    ):
        if calibration.note:
            remarks.append(f"{mode}: {calibration.note}")
        if promised.reason:
            remarks.append(f"{mode}: {promised.reason}")
    return remarks
