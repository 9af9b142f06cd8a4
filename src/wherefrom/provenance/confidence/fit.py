"""The confidence of a run: fitted on the calibration subjects and kept as plain numbers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, InstanceOf, TypeAdapter, ValidationError

from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.subjects import CALIBRATION, FITTING, SET_ASIDE, TEXT, Subject
from wherefrom.errors import UserError
from wherefrom.provenance.confidence.calibration import (
    Calibration,
    Number,
    fit_calibration,
    sigmoid,
)
from wherefrom.provenance.confidence.guarantee import (
    HALF,
    Guarantee,
    fewest_answers,
    guarantee_threshold,
)
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
VERSION = 4
FEWEST_FOR_NAMES = 10  # subjects seen and unseen, each, below which `name_read` is not fitted
FITS = 0.4  # share of the subjects that fit the weights; the others test thresholds
RAW_GRID = sigmoid(np.linspace(15.0, -5.0, 401))  # of thresholds, fixed beforehand
FROM_TEXT, RIGHT = TARGETS = ("from_text", "right")
INTERNAL, CHECKED = MODES = ("internal", "checked")
WRONG = {FROM_TEXT: "not from the text", RIGHT: "wrong"}  # the error that a guarantee bounds
# of what the text says, the directions that are known; being seen counts beside what is stated
EVIDENCE_SIGNS = {"seen": 0, "states_answer": 1, "states_other": -1, "probability": 1}


@dataclass(frozen=True)
class ConfidenceMode:
    """One way to a probability, by the model's signals alone or with the text: what was fitted.

    tested: raw confidence (before `scale` and curve) of each subject that tests thresholds, 0 if
    the answer would be withheld anyway; hits: whether its answer is as hoped. fresh: those
    subjects chose nothing else. error: what a miss is called. looked_up: the text itself has said
    what the probability is of. guarantee: at the risk of the calibration.
    """

    calibration: Calibration
    scale: tuple[Number, Number]
    tested: tuple[Number, ...]
    hits: tuple[Annotated[bool, Field(strict=True)], ...]
    fresh: bool
    error: str
    looked_up: bool = False
    guarantee: Guarantee | None = None

    def __post_init__(self) -> None:
        if len(self.tested) != len(self.hits):
            raise ValueError("there must be one tested confidence per subject")

    def display(self, raw: float) -> float:
        """The probability of a raw confidence."""
        slope, offset = self.scale
        logit = np.array([np.log(raw / (1 - raw))])
        return float(self.calibration.curve.bend(slope * logit + offset)[0])

    def guarantee_at(self, risk: float, delta: float) -> Guarantee:
        """The threshold of the policy at a risk."""
        known = self.guarantee
        if known is not None and (known.risk, known.delta) == (risk, delta):
            return known
        found = guarantee_threshold(
            self.tested,
            self.hits,
            risk=risk,
            delta=delta,
            grid=RAW_GRID,
            display=self.display,
            fresh=self.fresh,
            what=self.error,
        )
        if found.threshold is None and self.looked_up:  # whether a line states it needs no test
            return replace(found, estimate=HALF, reason=None)
        return found


@dataclass(frozen=True)
class TargetFit:
    """One question about an answer (is it from the text, is it right) in both modes."""

    internal: ConfidenceMode
    checked: ConfidenceMode


@dataclass(frozen=True, eq=False)
class Confidence:
    """All that turns an answer of this run into probabilities; calibration.json but for the run.

    from_text: that the text states the answer for this relation. right: that it is the one asked
    for. risk, delta: of the guarantee, if no other risk is asked for.
    """

    run: InstanceOf[Run]
    from_text: TargetFit
    right: TargetFit
    risk: Number
    delta: Number
    notes: tuple[str, ...]
    weights_sha256: str
    subjects_sha256: str
    signal_state: Annotated[SignalState, Field(alias="reader")]

    @cached_property
    def reader(self) -> SignalReader:
        return SignalReader(self.run, self.signal_state)

    @property
    def signals(self) -> tuple[str, ...]:
        """The signals that a probability takes, which are all that asking has to read."""
        modes = [getattr(getattr(self, t), m) for t in TARGETS for m in MODES]
        used = {each.name for mode in modes for each in mode.calibration.signals}
        return tuple(name for name in CORE if name in used or name == CORE[0])

    def probabilities(
        self, table: SignalTable, support: Sequence[Support] | None
    ) -> dict[str, dict[str, Floats | None]]:
        """By target and mode: by the model's own signals, and with what lines of the text say."""
        checked = None if support is None else {**table.columns, **evidence_columns(support)}
        found: dict[str, dict[str, Floats | None]] = {}
        for target in TARGETS:
            fit: TargetFit = getattr(self, target)
            found[target] = {
                INTERNAL: fit.internal.calibration.probability(table.columns),
                CHECKED: None if checked is None else fit.checked.calibration.probability(checked),
            }
        return found

    def guarantee(
        self, risk: float | None = None, *, checked: bool = True, target: str = FROM_TEXT
    ) -> Guarantee:
        """The threshold that is guaranteed at the risk of the calibration, or at another one."""
        fit: TargetFit = getattr(self, target)
        mode = fit.checked if checked else fit.internal
        return mode.guarantee_at(self.risk if risk is None else risk, self.delta)


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
    """Read the signals of the calibration subjects, and fit both targets in both modes on them.

    `names` are those of the data, from which other first words are taken; `contexts` the words
    that lead to an answer in the text. Subjects for fitting alone help to fit the weights, and
    count as many as there are of their kind in the calibration, so that its mix stays. Subjects of
    the text without a question tell what is from the text, and nothing about what is right.
    `report` is called with the number of subjects just done.
    """
    if not any(one.role == CALIBRATION for one in subjects):
        raise UserError(
            "no confidence can be fitted, since no subject is set aside for it; repeat the study "
            "with --set-aside 0.1 and another --out."
        )
    everyone, counts = with_spare_subjects(subjects)
    reader = SignalReader.prepare(run, known_answers, names, contexts=contexts, seed=seed)
    reader, table, right = read_signals(reader, everyone, counts, seed=seed, report=report)
    support = find_support(
        evidence,
        [one.subject for one in everyone],
        table.answers,
        reader.known_answers,
        templates=[one.template for one in everyone],
    )
    targets = fit_targets(
        everyone, table.columns, support, right, risk=risk, delta=delta, seed=seed
    )
    remarks = [
        f"{target.replace('_', ' ')}, {mode}: {remark}"
        for target, fit in targets.items()
        for mode, one in ((INTERNAL, fit.internal), (CHECKED, fit.checked))
        for remark in (one.calibration.note, one.guarantee_at(risk, delta).reason)
        if remark
    ]
    return Confidence(
        run=run,
        from_text=targets[FROM_TEXT],
        right=targets[RIGHT],
        risk=risk,
        delta=delta,
        notes=tuple(dict.fromkeys([*notes, *_note_on_names(everyone), *remarks])),
        weights_sha256=str(run.info["sha256"]),
        subjects_sha256=hash_subjects(subjects),
        signal_state=reader.state,
    )


def fit_targets(
    subjects: Sequence[Subject],
    columns: Mapping[str, Floats],
    support: Sequence[Support],
    right: Bools,
    *,
    risk: float,
    delta: float,
    seed: int,
) -> dict[str, TargetFit]:
    """Both targets in both modes from the signals of the subjects, what the text says, and grades.

    Subjects are split at random: some fit the weights, and so the order of the answers; the others
    test thresholds, one row of each, in the calibration's mix of seen and unseen. Where those are
    too few to guarantee the risk, all of them fit and nothing is guaranteed.
    """
    least = fewest_answers(risk, delta)
    rng = np.random.default_rng([seed, 23])
    stated = np.array([one.states_answer for one in support], dtype=bool)
    of_kind = np.array([one.of_kind for one in support], dtype=bool)
    seen = np.array([one.seen for one in subjects], dtype=bool)
    asked = np.array([one.role == CALIBRATION for one in subjects], dtype=bool)
    labelled = np.array([one.source != TEXT for one in subjects], dtype=bool)
    first = np.zeros(len(subjects), dtype=bool)  # one row of each subject, at random
    shuffled = rng.permutation(len(subjects))
    first[shuffled[np.unique(_people(subjects)[shuffled], return_index=True)[1]]] = True
    fitting = fitting_part(subjects, seed)
    share = seen[asked].mean()
    found = {}
    for target, hits in ((FROM_TEXT, stated), (RIGHT, right)):
        rows = np.ones(len(subjects), bool) if target == FROM_TEXT else labelled
        counts = np.where(
            seen, share / max(1, (seen & rows).sum()), (1 - share) / max(1, (~seen & rows).sum())
        )
        testing = rows & ~fitting & first & (asked if target == RIGHT else True)
        if target == FROM_TEXT and 0 < share < 1:  # in the calibration's mix, the asked ones first
            people = min((testing & seen).sum() / share, (testing & ~seen).sum() / (1 - share))
            for kind, part in ((seen, share), (~seen, 1 - share)):
                here = np.flatnonzero(testing & kind)
                here = here[np.argsort(~asked[here], kind="stable")]
                testing[here[round(people * part) :]] = False
        fresh = int(testing.sum()) >= least
        fits = fitting if fresh else np.ones(len(subjects), bool)
        tested = testing if fresh else rows & asked & first
        modes = {}
        for mode in MODES:
            known = dict(columns) | (evidence_columns(support) if mode == CHECKED else {})
            fitted = fit_calibration(
                {name: values[rows] for name, values in known.items()},
                hits[rows],
                signs=SIGNS | EVIDENCE_SIGNS,
                counts=(counts * rows.sum())[rows],
                fits=fits[rows],
                seed=seed,
            )
            raw = np.zeros(len(subjects))
            raw[rows] = fitted.raw
            raw[~of_kind | (~stated if mode == CHECKED else False)] = 0.0
            one = ConfidenceMode(
                fitted.calibration,
                fitted.scale,
                tuple(np.clip(raw[tested], 0.0, 1.0).tolist()),
                tuple(hits[tested].tolist()),
                fresh,
                WRONG[target],
                looked_up=mode == CHECKED and target == FROM_TEXT,
            )
            modes[mode] = replace(one, guarantee=one.guarantee_at(risk, delta))
        found[target] = TargetFit(**modes)
    return found


def fitting_part(subjects: Sequence[Subject], seed: int) -> Bools:
    """Whose rows fit weights; all rows of a subject are in one part."""
    person = _people(subjects)
    drawn = np.random.default_rng([seed, 31]).permutation(person.max() + 1)
    return np.asarray(drawn[person] < FITS * drawn.size)


def _people(subjects: Sequence[Subject]) -> NDArray[np.intp]:
    """A number for each row, the same for rows of one subject."""
    names = [" ".join(fold_words(one.subject)) for one in subjects]
    return np.asarray(np.unique(names, return_inverse=True)[1])


def with_spare_subjects(subjects: Sequence[Subject]) -> tuple[list[Subject], Floats]:
    """The calibration subjects and behind them those for fitting alone; how much each counts.

    All subjects of a kind (seen or not, and where from) count together as many as the calibration
    has of that kind; a kind that it has not is left out, but for subjects of the text, who count
    as those set aside.
    """

    def kind(one: Subject) -> tuple[bool, str]:
        return one.seen, SET_ASIDE if one.source == TEXT else one.source

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

    `name_read` is fitted on those who fit weights, their own by fits without them; NaN where too
    few are seen or unseen.
    """
    names = [one.subject for one in subjects]
    questions = [one.question for one in subjects]
    table = reader.read(questions, names, only=CORE, report=report)
    columns = {name: table.columns[name] for name in CORE}
    if not _note_on_names(subjects):
        part = fitting_part(subjects, seed)
        if _note_on_names([one for one, fits in zip(subjects, part, strict=True) if fits]):
            part[:] = True
        signals = {name: table.columns[name] for name in NAME_SIGNALS}
        fitted = fit_calibration(
            {name: values[part] for name, values in signals.items()},
            np.array([one.seen for one in subjects])[part],
            signs=SIGNS,
            counts=counts[part],
            bend=False,
            seed=seed,
        )
        reader = reader.with_curve(fitted.calibration)
        columns["name_read"] = fitted.calibration.probability(signals)
        columns["name_read"][part] = fitted.held_out
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
