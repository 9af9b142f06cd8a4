"""The confidence of a run: fitted on the calibration subjects and kept as plain numbers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from wherefrom.corpus.subjects import CALIBRATION, FITTING, Subject
from wherefrom.errors import UserError
from wherefrom.provenance.confidence.calibration import (
    Calibration,
    fit_with_held_out,
    is_number,
    pick_signals,
)
from wherefrom.provenance.confidence.guarantee import Guarantee, guarantee_threshold
from wherefrom.provenance.evidence.lookup import EvidenceReader, Support, find_support
from wherefrom.provenance.judging.metrics import Bools, Floats
from wherefrom.provenance.signals.reader import (
    CORE,
    NAME_SIGNALS,
    SIGNALS,
    SignalReader,
    SignalTable,
)
from wherefrom.storage import read_json, write_json
from wherefrom.training.run_folder import Run, load_run

PROBE, READ = "known_name", "name_read"
FEWEST_FOR_PROBE = 10  # people known and unknown, each, below which no name can be told apart


def with_spare_people(people: Sequence[Subject]) -> tuple[list[Subject], Floats]:
    """The calibration people and behind them those for fitting alone; how much each counts.

    All people of a kind (seen or not, and where from) count together as many as the calibration
    has of that kind; a kind that it has not is left out.
    """
    asked = [person for person in people if person.role == CALIBRATION]
    wanted = Counter(map(_kind, asked))
    spare = [one for one in people if one.role == FITTING and wanted[_kind(one)]]
    there = Counter(map(_kind, [*asked, *spare]))
    everybody = [*asked, *spare]
    return everybody, np.array([wanted[_kind(one)] / there[_kind(one)] for one in everybody])


def read_signals(
    reader: SignalReader,
    people: Sequence[Subject],
    counts: Floats,
    *,
    seed: int,
    notes: list[str],
    report: Callable[[int], None] | None = None,
) -> tuple[SignalTable, Bools]:
    """The signals that were chosen, and whether each answer is right; fits the reader's parts.

    All signals are read of the calibration people, who come first, and the choice is made on
    them; of the others the chosen ones alone. A note says what could not be fitted.
    """
    many = sum(person.role == CALIBRATION for person in people)
    asked, spare = people[:many], people[many:]
    probe = _fit_probe(reader, people, counts, seed, notes)
    table, others = _read(reader, asked, None, report), _read(reader, spare, CORE, report)
    fitted = {PROBE: probe, READ: _fit_curve(reader, _join(table, others), people, counts, seed)}
    answers = (*table.answers, *others.answers)
    right = np.array([is_right(said, one) for said, one in zip(answers, people, strict=True)])
    columns = {**table.columns, **{name: column[:many] for name, column in fitted.items()}}
    signs = {name: SIGNALS[name].sign for name in columns}
    chosen = pick_signals(columns, right[:many], signs=signs, core=CORE, seed=seed)
    missing = {*chosen} - others.columns.keys() - fitted.keys()
    if missing:
        others = _read(reader, spare, [*CORE, *missing], None)
    whole = {**_join(table, others), **fitted}
    return SignalTable(
        questions=(*table.questions, *others.questions),
        subjects=(*table.subjects, *others.subjects),
        answers=answers,
        columns={name: whole[name] for name in chosen},
    ), right


def is_right(answer: str, person: Subject) -> bool:
    """Exact match, blanks aside; of an invented person every answer is wrong."""
    return person.answer is not None and answer.strip() == person.answer.strip()


def _kind(person: Subject) -> tuple[bool, str]:
    return person.seen, person.source


def _read(
    reader: SignalReader,
    people: Sequence[Subject],
    only: Sequence[str] | None,
    report: Callable[[int], None] | None,
) -> SignalTable:
    questions = [person.question for person in people]
    return reader.read(questions, [one.subject for one in people], only=only, report=report)


def _join(one: SignalTable, other: SignalTable) -> dict[str, Floats]:
    """The columns that both have, one below the other."""
    return {
        name: np.concatenate((one.columns[name], column)) for name, column in other.columns.items()
    }


def _fit_probe(
    reader: SignalReader, people: Sequence[Subject], counts: Floats, seed: int, notes: list[str]
) -> Floats:
    """The known-name score of each person by a probe fitted without them, NaN without a probe."""
    scores = np.full(len(people), np.nan)
    known, unknown = _split(people)
    if min(len(known), len(unknown)) < FEWEST_FOR_PROBE:
        notes.append(
            f"the calibration has {len(known)} people who were read about and {len(unknown)} who "
            f"were not; a probe for known names takes {FEWEST_FOR_PROBE} of each and is left out."
        )
        return scores
    pairs = [(person.question, person.subject) for person in people]
    order = [*known, *unknown]
    scores[order] = reader.fit_probe(
        [pairs[at] for at in known], [pairs[at] for at in unknown], seed=seed, counts=counts[order]
    )
    return scores


def _fit_curve(
    reader: SignalReader,
    columns: dict[str, Floats],
    people: Sequence[Subject],
    counts: Floats,
    seed: int,
) -> Floats:
    """Each person's probability of having been read about, by a curve fitted without them."""
    if min(map(len, _split(people))) < FEWEST_FOR_PROBE:
        return np.full(len(people), np.nan)
    fitted = fit_with_held_out(
        {name: columns[name] for name in NAME_SIGNALS},
        [person.seen for person in people],
        signs={name: SIGNALS[name].sign for name in NAME_SIGNALS},
        counts=counts,
        bend=False,
        seed=seed,
    )
    reader.name_curve = fitted.calibration
    return fitted.held_out


def _split(people: Sequence[Subject]) -> tuple[list[int], list[int]]:
    """The places of those who were read about and of those who were not."""
    known = [at for at, person in enumerate(people) if person.seen]
    return known, [at for at, person in enumerate(people) if not person.seen]


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
    people: Sequence[Subject],
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


def hash_people(people: Sequence[Subject]) -> str:
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
