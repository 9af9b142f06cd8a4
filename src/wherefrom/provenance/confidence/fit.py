"""The confidence of a run: fitted on the calibration subjects and kept as plain numbers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field, InstanceOf, TypeAdapter, ValidationError

from wherefrom.corpus.subjects import CALIBRATION, FITTING, Subject
from wherefrom.errors import UserError
from wherefrom.provenance.confidence.calibration import Calibration, Number, fit_calibration
from wherefrom.provenance.confidence.guarantee import Guarantee, guarantee_threshold
from wherefrom.provenance.evidence.index import Evidence
from wherefrom.provenance.evidence.lookup import Support, find_support
from wherefrom.provenance.metrics import Bools, Floats
from wherefrom.provenance.signals.reader import (
    CORE,
    NAME_SIGNALS,
    SIGNS,
    SignalReader,
    SignalState,
    SignalTable,
)
from wherefrom.storage import read_json, write_json
from wherefrom.training.run_folder import Run

CALIBRATED = "calibration.json"
VERSION = 3
FEWEST_FOR_NAMES = 10  # subjects seen and unseen, each, below which `name_read` is not fitted
# of what the text says, the directions that are known; being seen counts beside what is stated
EVIDENCE_SIGNS = {"seen": 0, "states_answer": 1, "states_other": -1}


@dataclass(frozen=True)
class ConfidenceMode:
    """One way to a probability, by the model's signals alone or with the text: what was fitted.

    held_out: the confidence of each calibration subject by a fit without it, from which a
    threshold can be guaranteed at any risk.
    """

    calibration: Calibration
    guarantee: Guarantee
    held_out: tuple[Number, ...]


@dataclass(frozen=True, eq=False)
class Confidence:
    """All that turns an answer of this run into a probability; calibration.json but for the run.

    correct: whether the answer about each calibration subject is right.
    """

    run: InstanceOf[Run]
    internal: ConfidenceMode
    checked: ConfidenceMode
    correct: tuple[Annotated[bool, Field(strict=True)], ...]
    notes: tuple[str, ...]
    weights_sha256: str
    subjects_sha256: str
    signal_state: Annotated[SignalState, Field(alias="reader")]

    def __post_init__(self) -> None:
        if any(len(mode.held_out) != len(self.correct) for mode in (self.internal, self.checked)):
            raise ValueError("there must be one held-out confidence per subject")

    @cached_property
    def reader(self) -> SignalReader:
        return SignalReader(self.run, self.signal_state)

    @property
    def signals(self) -> tuple[str, ...]:
        """The signals that a probability takes, which are all that asking has to read."""
        modes = (self.internal, self.checked)
        used = {each.name for mode in modes for each in mode.calibration.signals}
        return tuple(name for name in CORE if name in used or name == CORE[0])

    def internal_probability(self, table: SignalTable) -> Floats:
        """How likely each answer is right, by the model's own signals."""
        return self.internal.calibration.probability(table.columns)

    def checked_probability(self, table: SignalTable, support: Sequence[Support]) -> Floats:
        """The same, confirmed or denied by the lines of the text."""
        columns = {**table.columns, **evidence_columns(support)}
        return self.checked.calibration.probability(columns)

    def guarantee(self, risk: float | None = None, *, checked: bool = True) -> Guarantee:
        """The threshold that is guaranteed at the risk of the calibration, or at another one."""
        mode = self.checked if checked else self.internal
        if risk is None or risk == mode.guarantee.risk:
            return mode.guarantee
        delta = mode.guarantee.delta
        return guarantee_threshold(mode.held_out, self.correct, risk=risk, delta=delta)


def fit_confidence(
    run: Run,
    evidence: Evidence,
    subjects: Sequence[Subject],
    known_answers: Sequence[str],
    *,
    names: Sequence[str],
    contexts: Mapping[str, tuple[str, ...]] | None = None,
    seed: int,
    risk: float = 0.05,
    delta: float = 0.05,
    notes: Sequence[str] = (),
    report: Callable[[int], None] | None = None,
) -> Confidence:
    """Read the signals of the calibration subjects, and fit both modes on them.

    `names` are those of the data, from which other first words are taken; `contexts` the words
    that lead to an answer in the text. Subjects for fitting alone help to fit the weights, and
    count as many as there are of their kind in the calibration, so that its mix stays; thresholds
    are guaranteed without them. `report` is called with the number of subjects just done.
    """
    asked = [one for one in subjects if one.role == CALIBRATION]
    if not asked:
        raise UserError(
            "no confidence can be fitted, since no subject is set aside for it; repeat the study "
            "with --set-aside 0.1 and another --out."
        )
    everyone, counts = with_spare_subjects(subjects)
    reader = SignalReader.prepare(run, known_answers, names, contexts=contexts, seed=seed)
    reader, table, right = read_signals(reader, everyone, counts, seed=seed, report=report)
    people = [one.subject for one in everyone]
    support = find_support(evidence, people, table.answers, reader.known_answers)

    def fit(columns: Mapping[str, Floats]) -> ConfidenceMode:
        signs = SIGNS | EVIDENCE_SIGNS
        fitted = fit_calibration(columns, right, signs=signs, counts=counts, seed=seed)
        held_out = tuple(fitted.held_out[: len(asked)].tolist())
        grades = right[: len(asked)]
        guarantee = guarantee_threshold(held_out, grades, risk=risk, delta=delta)
        return ConfidenceMode(fitted.calibration, guarantee, held_out)

    with_text = {**table.columns, **evidence_columns(support)}
    modes = {"internal": fit(table.columns), "checked": fit(with_text)}
    remarks = [
        f"{name}: {remark}"
        for name, mode in modes.items()
        for remark in (mode.calibration.note, mode.guarantee.reason)
        if remark
    ]
    return Confidence(
        run=run,
        **modes,
        correct=tuple(right[: len(asked)].tolist()),
        notes=tuple(dict.fromkeys([*notes, *_note_on_names(everyone), *remarks])),
        weights_sha256=str(run.info["sha256"]),
        subjects_sha256=hash_subjects(subjects),
        signal_state=reader.state,
    )


def with_spare_subjects(subjects: Sequence[Subject]) -> tuple[list[Subject], Floats]:
    """The calibration subjects and behind them those for fitting alone; how much each counts.

    All subjects of a kind (seen or not, and where from) count together as many as the calibration
    has of that kind; a kind that it has not is left out.
    """

    def kind(one: Subject) -> tuple[bool, str]:
        return one.seen, one.source

    asked = [one for one in subjects if one.role == CALIBRATION]
    wanted = Counter(map(kind, asked))
    spare = [one for one in subjects if one.role == FITTING and wanted[kind(one)]]
    everyone = [*asked, *spare]
    there = Counter(map(kind, everyone))
    return everyone, np.array([wanted[kind(one)] / there[kind(one)] for one in everyone])


def read_signals(
    reader: SignalReader,
    subjects: Sequence[Subject],
    counts: Floats,
    *,
    seed: int,
    report: Callable[[int], None] | None = None,
) -> tuple[SignalReader, SignalTable, Bools]:
    """The reader with `name_read` fitted, the core signals, and whether each answer is right.

    The subjects' own `name_read` is by fits without them; NaN where too few are seen or unseen.
    """
    names = [one.subject for one in subjects]
    questions = [one.question for one in subjects]
    table = reader.read(questions, names, only=CORE, report=report)
    columns = {name: table.columns[name] for name in CORE}
    if not _note_on_names(subjects):
        fitted = fit_calibration(
            {name: table.columns[name] for name in NAME_SIGNALS},
            [one.seen for one in subjects],
            signs=SIGNS,
            counts=counts,
            bend=False,
            seed=seed,
        )
        reader = reader.with_curve(fitted.calibration)
        columns["name_read"] = fitted.held_out
    right = [is_right(said, one) for said, one in zip(table.answers, subjects, strict=True)]
    return reader, SignalTable(table.answers, columns), np.array(right)


def is_right(answer: str, subject: Subject) -> bool:
    """Exact match, blanks aside; about an invented subject every answer is wrong."""
    return subject.answer is not None and answer.strip() == subject.answer.strip()


def evidence_columns(support: Sequence[Support]) -> dict[str, Floats]:
    """What the text says of each answer, as numbers for the checked calibration."""
    return {
        name: np.array([getattr(one, name) for one in support], dtype=np.float64)
        for name in EVIDENCE_SIGNS
    }


def hash_subjects(subjects: Sequence[Subject]) -> str:
    """Which subjects a confidence was fitted on."""
    rows = [asdict(one) for one in subjects if one.role in (CALIBRATION, FITTING)]
    return sha256(json.dumps(rows).encode()).hexdigest()


def save_confidence(folder: Path, confidence: Confidence) -> None:
    """calibration.json in the run folder: numbers and sentences, no code."""
    record = TypeAdapter(Confidence).dump_python(confidence, by_alias=True, exclude={"run"})
    write_json(folder / CALIBRATED, {"version": VERSION, **record})


def load_confidence(run: Run) -> Confidence:
    """The confidence of a run, or a sentence about why there is none."""
    path = run.folder / CALIBRATED
    if not path.is_file():
        raise UserError(
            f"{run.folder} holds no {CALIBRATED}: it was not made by `wherefrom study` with "
            "subjects set aside, or is not finished; make it so, or repeat its command with "
            "--resume."
        )
    record = read_json(path)
    again = "repeat the study's command with --resume, which fits it again"
    if not isinstance(record, dict) or record.get("version") != VERSION:
        raise UserError(f"{path} is not a calibration of this version; {again}.")
    if record.get("weights_sha256") != run.info.get("sha256"):
        raise UserError(f"{path} was fitted for other weights than the run has; {again}.")
    try:
        return TypeAdapter(Confidence).validate_python({**record, "run": run})
    except ValidationError as problem:
        first: Any = problem.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UserError(f"{path} is broken ({where}: {first['msg']}); {again}.") from None


def _note_on_names(subjects: Sequence[Subject]) -> list[str]:
    """Why `name_read` cannot be fitted on these subjects, if so."""
    seen = sum(one.seen for one in subjects)
    unseen = len(subjects) - seen
    if min(seen, unseen) >= FEWEST_FOR_NAMES:
        return []
    return [
        f"the calibration has {seen} seen and {unseen} unseen subjects; telling known names takes "
        f"{FEWEST_FOR_NAMES} of each and is left out."
    ]
