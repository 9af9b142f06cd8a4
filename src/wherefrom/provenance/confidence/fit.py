"""The confidence of a run: fitted on the calibration subjects and kept as plain numbers.

`fit_confidence` fits it, `fit_policies` being its core; `calibration.json` keeps it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, InstanceOf, TypeAdapter, ValidationError

from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.split import CALIBRATION, FITTING, INVENTED, TEXT, HeldOutQuestion
from wherefrom.errors import UserError
from wherefrom.provenance.confidence.calibration import (
    Calibration,
    Number,
    SeenMixture,
    Signs,
    fit_calibration,
)
from wherefrom.provenance.confidence.threshold import (
    HALF,
    UNSEEN_RISK,
    Flag,
    HeldOutScores,
    TestedThreshold,
    find_threshold,
)
from wherefrom.provenance.evidence import Evidence, Support, find_support
from wherefrom.provenance.metrics import Bools, Floats
from wherefrom.provenance.signals.reader import (
    CORE,
    GIVEN_SEEN,
    RIVALS,
    SIGNS,
    Rivals,
    SignalReader,
    SignalState,
    Window,
)
from wherefrom.storage import format_json, read_json
from wherefrom.training.record import check_file, keep_files, read_record
from wherefrom.training.run_folder import Run

CALIBRATED = "calibration.json"
VERSION = 10
RISK = 0.05  # of the guarantee that a calibration stores
ENOUGH_UNSEEN = 100  # with so many unseen subjects of the text, invented ones test no threshold
WITHHELD_PROBABILITY = -1.0  # the probability of an answer that is withheld at any threshold
FROM_TEXT, RIGHT = TARGETS = ("from_text", "right")  # what a probability is about
INTERNAL, CHECKED = MODES = ("internal", "checked")  # by the model alone, or with the text
ERRORS = {FROM_TEXT: "not from the text", RIGHT: "wrong"}  # what a guarantee bounds
# what the text says about the answer, and in which direction it counts
EVIDENCE_SIGNS = {"states_answer": 1, "states_other": -1, "probability": 1}

Fitted = Calibration | SeenMixture


class CalibrationRows(NamedTuple):
    """The answers that a confidence is fitted on; all have one row per question.

    columns: the signals. support: what the text says. right: the grades.
    """

    subjects: Sequence[HeldOutQuestion]
    columns: Mapping[str, Floats]
    support: Sequence[Support]
    right: Bools


@dataclass(frozen=True)
class TestedCalibration:
    """A probability of `target`, and the answers that test its thresholds.

    unseen_risk: the share of answers about unseen subjects that may be shown. looked_up: lines that
    state the answer decide. guarantee: at the risk of the calibration.
    """

    calibration: Fitted
    target: str
    testers: HeldOutScores
    unseen_risk: Number = UNSEEN_RISK
    looked_up: Flag = False
    guarantee: TestedThreshold | None = None

    def at_risk(self, risk: float) -> TestedThreshold:
        """The threshold at a risk."""
        if self.guarantee is not None and self.guarantee.risk == risk:
            return self.guarantee
        what = ERRORS[self.target]
        found = find_threshold(self.testers, risk=risk, unseen_risk=self.unseen_risk, what=what)
        if found.threshold is None and self.looked_up:
            why = str(found.reason).rpartition("; ")[0]
            reason = f"{why}; what a line states is shown all the same."
            return replace(found, estimate=HALF, reason=reason)
        return found


@dataclass(frozen=True, eq=False)
class Confidence:
    """All that turns an answer of a run into probabilities: calibration.json and the run.

    policies: by target and mode. seen: p(the subject was read about).
    """

    run: InstanceOf[Run]
    policies: Mapping[str, Mapping[str, TestedCalibration]]
    seen: Calibration
    risk: Number
    notes: tuple[str, ...]
    weights_sha256: str
    subjects_sha256: str
    signal_state: Annotated[SignalState, Field(alias="reader")]

    def __post_init__(self) -> None:
        modes = {target: tuple(policies) for target, policies in self.policies.items()}
        if modes != dict.fromkeys(TARGETS, MODES):
            raise ValueError("both probabilities must be there in both modes")

    @cached_property
    def reader(self) -> SignalReader:
        return SignalReader(self.run, self.signal_state)

    @property
    def rivals(self) -> Rivals:
        """What others would use in its place, to compare it with."""
        return RIVALS

    def grade(self, answer: str, subject: HeldOutQuestion) -> bool:
        """Whether an answer is right."""
        return is_right(answer, subject)

    @property
    def signals(self) -> tuple[str, ...]:
        """The signals that have a weight, which are all that asking has to read."""
        used = {CORE[0], *self.seen.used}
        for policy in (policy for modes in self.policies.values() for policy in modes.values()):
            used.update(policy.calibration.used)
        return tuple(name for name in (*CORE, *GIVEN_SEEN) if name in used)

    def probabilities(
        self, columns: Mapping[str, Floats], support: Sequence[Support] | None
    ) -> dict[str, dict[str, Any]]:
        """By target and mode, from the model's signals and, for `checked`, the text's support."""
        known = {INTERNAL: columns}
        if support is not None:
            known[CHECKED] = {**columns, **evidence_columns(support)}
        return {
            target: {
                mode: modes[mode].calibration.probability(known[mode]) if mode in known else None
                for mode in MODES
            }
            for target, modes in self.policies.items()
        }

    def guarantee(self, target: str, mode: str, risk: float | None = None) -> TestedThreshold:
        """The threshold at the risk of the calibration, or at another one."""
        return self.policies[target][mode].at_risk(self.risk if risk is None else risk)


def fit_confidence(
    run: Run,
    evidence: Evidence,
    subjects: Sequence[HeldOutQuestion],
    known_answers: Sequence[str],
    *,
    windows: Mapping[str, tuple[Window, ...]] | None = None,
    seed: int,
    report: Callable[[int], None] | None = None,
) -> Confidence:
    """Read the signals of the calibration subjects, and fit both targets in both modes on them.

    windows: by relation, words around answers in the text, in tokens.
    """
    asked = [subject for subject in subjects if subject.role in (CALIBRATION, FITTING)]
    if not any(subject.role == CALIBRATION for subject in asked):
        raise UserError(
            "no confidence can be fitted, since no subject is set aside for it; repeat the study "
            "with --set-aside 0.1 and another --out."
        )
    known = tuple(dict.fromkeys(answer.strip() for answer in known_answers))
    reader = SignalReader(run, SignalState(known, dict(windows or {})))
    names, questions = [one.subject for one in asked], [one.question for one in asked]
    table = reader.read(questions, names, only={*CORE, *GIVEN_SEEN}, report=report)
    relations = [subject.template for subject in asked]
    support = find_support(evidence, names, table.answers, known, templates=relations)
    right = np.array(list(map(is_right, table.answers, asked)))
    rows = CalibrationRows(asked, table.columns, support, right)
    policies, seen = fit_policies(rows, risk=RISK, seed=seed)
    labels: dict[str, list[str]] = {}  # remark -> the probabilities that it is about
    for target, modes in policies.items():
        for mode, policy in modes.items():
            for remark in (policy.calibration.note, policy.at_risk(RISK).reason):
                if remark:
                    labels.setdefault(remark, []).append(f"{target.replace('_', ' ')}, {mode}")
    remarks = [f"{' and '.join(names)}: {remark}" for remark, names in labels.items()]
    return Confidence(
        run=run,
        policies=policies,
        seen=seen,
        risk=RISK,
        notes=tuple(dict.fromkeys(remarks)),
        weights_sha256=run.record.sha256,
        subjects_sha256=hash_subjects(asked),
        signal_state=reader.state,
    )


def fit_policies(
    rows: CalibrationRows,
    *,
    parts: tuple[Sequence[str], Sequence[str]] = (CORE, GIVEN_SEEN),
    signs: Signs = SIGNS,
    risk: float,
    unseen_risk: float = UNSEEN_RISK,
    seed: int,
) -> tuple[dict[str, dict[str, TestedCalibration]], Calibration]:
    """The policies by target and mode, and p(seen).

    parts: the signals of p(seen), and those of p(hit | seen).
    """
    subjects, columns, support, right = rows
    text = evidence_columns(support)
    stated, was_read = text["states_answer"].astype(bool), text["seen"].astype(bool)
    is_silent = np.array([subject.is_silent for subject in subjects], dtype=bool)
    of_kind = np.array([answer.of_kind for answer in support], dtype=bool)
    is_seen = np.array([subject.seen for subject in subjects])
    is_real = np.array([subject.answer is not None for subject in subjects])
    is_graded = has_grade(subjects)
    # free subjects of the text help if the text answers the question about them at all
    is_answered = is_graded | stated | text["states_other"].astype(bool)
    for_seen, for_hit = ({name: columns[name] for name in part} for part in parts)
    options: dict[str, Any] = {"signs": {**signs, **EVIDENCE_SIGNS}, "seed": seed}
    seen, p_seen = fit_held_out(subjects, for_seen, is_seen, **options)
    # (who was seen, p(seen), the signals of p(hit | seen), which answers may be shown): with the
    # text at hand, the text tells
    checked_inputs = for_hit | {name: text[name] for name in EVIDENCE_SIGNS}
    modes = {
        INTERNAL: (is_seen, p_seen, for_hit, of_kind),
        CHECKED: (was_read, text["seen"], checked_inputs, of_kind & stated),
    }
    # where no document states an answer, one that seems to be stated is not from the text
    targets = {FROM_TEXT: (stated & ~is_silent, is_answered), RIGHT: (right, is_graded)}
    policies: dict[str, dict[str, TestedCalibration]] = {target: {} for target in TARGETS}
    for target, (hits, usable) in targets.items():
        for mode, (was_seen, p_read, inputs, may_show) in modes.items():
            given, p_hit = fit_held_out(subjects, inputs, hits, rows=usable & was_seen, **options)
            unseen = usable & ~was_seen
            if (unseen & is_real).any():
                unseen &= is_real
            guessed = float((hits[unseen].sum() + 1) / (unseen.sum() + 2))
            sure = np.where(
                may_show, p_read * p_hit + (1 - p_read) * guessed, WITHHELD_PROBABILITY
            ).round(6)
            policy = TestedCalibration(
                SeenMixture(seen=None if mode == CHECKED else seen, given=given, guessed=guessed),
                target,
                choose_testers(subjects, sure, hits, usable, seed=seed),
                unseen_risk=unseen_risk,
                looked_up=mode == CHECKED and target == FROM_TEXT,
            )
            policies[target][mode] = replace(policy, guarantee=policy.at_risk(risk))
    return policies, seen


def fit_held_out(
    subjects: Sequence[HeldOutQuestion],
    columns: Mapping[str, Floats],
    hits: Bools,
    *,
    rows: Bools | None = None,
    signs: Signs | None = None,
    seed: int,
) -> tuple[Calibration, Floats]:
    """A calibration on some rows, and each subject's probability by a fit without it.

    rows: all if None or empty.
    """
    use = np.ones(len(subjects), dtype=bool)
    if rows is not None and rows.any():
        use = rows
    fitted, held_out = fit_calibration(
        {name: values[use] for name, values in columns.items()},
        hits[use],
        signs=signs,
        counts=mixed_counts(subjects, use)[use],
        groups=_subject_ids(subjects)[use],
        seed=seed,
    )
    likely = fitted.probability(columns)
    likely[use] = held_out
    return fitted, likely


def choose_testers(
    subjects: Sequence[HeldOutQuestion], sure: Floats, hits: Bools, usable: Bools, *, seed: int
) -> HeldOutScores:
    """As many of the usable rows as there are with the calibration's share of unseen subjects.

    Subjects with a question of the files come before free ones. Unseen subjects of the text test
    alone, without invented ones, if they are enough.
    """
    ids, seen = _subject_ids(subjects), np.array([subject.seen for subject in subjects], bool)
    invented = ~seen & np.array([one.source == INVENTED for one in subjects], dtype=bool)
    if np.unique(ids[usable & ~seen & ~invented]).size >= ENOUGH_UNSEEN:
        usable = usable & ~invented
    is_free = np.array([one.source in (INVENTED, TEXT) for one in subjects], dtype=bool)
    place = np.random.default_rng([seed, 23]).permutation(ids.max() + 1)[ids]  # of its subject
    order = np.lexsort((place, is_free))
    order = order[usable[order]]
    share = _seen_share(subjects)
    kinds = [(order[seen[order]], share), (order[~seen[order]], 1 - share)]
    size = min((rows.size / part for rows, part in kinds if part > 0), default=0.0)
    rows = np.concatenate([rows[: round(size * part)] for rows, part in kinds])
    return HeldOutScores(
        confidence=tuple(sure[rows].tolist()),
        hits=tuple(hits[rows].tolist()),
        subjects=tuple(ids[rows].tolist()),
        unseen=tuple(sure[usable & ~seen].tolist()),
    )


def mixed_counts(subjects: Sequence[HeldOutQuestion], rows: Bools) -> Floats:
    """How much each of the rows counts, so that seen and unseen weigh as in the calibration."""
    seen = np.array([subject.seen for subject in subjects], dtype=bool)
    share = min(max(_seen_share(subjects), 1e-6), 1 - 1e-6)
    seen_rows, unseen_rows = max(1, (seen & rows).sum()), max(1, (~seen & rows).sum())
    return np.where(seen, share / seen_rows, (1 - share) / unseen_rows) * rows.sum()


def _seen_share(subjects: Sequence[HeldOutQuestion]) -> float:
    """The share of seen ones among the subjects that calibrate."""
    return float(np.mean([subject.seen for subject in subjects if subject.role == CALIBRATION]))


def _subject_ids(subjects: Sequence[HeldOutQuestion]) -> NDArray[np.intp]:
    """A number for each row, the same for rows of one subject."""
    names = [" ".join(fold_words(subject.subject)) for subject in subjects]
    return np.asarray(np.unique(names, return_inverse=True)[1])


def is_right(answer: str, subject: HeldOutQuestion) -> bool:
    """Exact match, blanks aside; about an invented subject every answer is wrong."""
    return subject.answer is not None and answer.strip() == subject.answer.strip()


def has_grade(subjects: Sequence[HeldOutQuestion]) -> Bools:
    """Which answers are right or wrong; for a free subject of the text, nobody knows."""
    return np.array([subject.source != TEXT for subject in subjects], dtype=bool)


def evidence_columns(support: Sequence[Support]) -> dict[str, Floats]:
    """What the text says about each answer, as columns for the checked calibration."""
    return {
        name: np.array([getattr(answer, name) for answer in support], dtype=np.float64)
        for name in ("seen", *EVIDENCE_SIGNS)
    }


def hash_subjects(subjects: Sequence[HeldOutQuestion]) -> str:
    """Identifies the subjects that a confidence was fitted on."""
    rows = [asdict(subject) for subject in subjects if subject.role in (CALIBRATION, FITTING)]
    return sha256(json.dumps(rows).encode()).hexdigest()


def save_confidence(folder: Path, confidence: Confidence) -> None:
    """calibration.json in the run folder: numbers and sentences, no code."""
    record = TypeAdapter(Confidence).dump_python(confidence, by_alias=True, exclude={"run"})
    keep_files(folder, {CALIBRATED: format_json({"version": VERSION, **record})})


def load_confidence(run: Run) -> Confidence:
    """The confidence of a run, or a UserError that says why there is none."""
    path = run.folder / CALIBRATED
    if not path.is_file() and CALIBRATED not in read_record(run.folder).files:
        raise UserError(
            f"{run.folder} holds no {CALIBRATED}: it was not made by `wherefrom study` with "
            "subjects set aside, or is not finished; make it so, or repeat its command with "
            "--resume."
        )
    record = read_json(check_file(run.folder, CALIBRATED), dict)
    again = "repeat the study's command with --resume, which fits it again"
    if record.get("version") != VERSION:
        raise UserError(f"{path} is not a calibration of this version; {again}.")
    if record.get("weights_sha256") != run.record.sha256:
        raise UserError(f"{path} was fitted for other weights than the run has; {again}.")
    try:
        return TypeAdapter(Confidence).validate_python({**record, "run": run})
    except ValidationError as problem:
        first: Any = problem.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UserError(f"{path} is broken ({where}: {first['msg']}); {again}.") from None
