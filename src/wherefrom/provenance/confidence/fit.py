"""The confidence of a run: fitted on the calibration subjects and kept as plain numbers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, InstanceOf, TypeAdapter, ValidationError

from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.subjects import CALIBRATION, FITTING, INVENTED, TEXT, Subject
from wherefrom.errors import UserError
from wherefrom.provenance.confidence.calibration import (
    HALF,
    UNSEEN_RISK,
    Calibration,
    Guarantee,
    Number,
    Product,
    Signs,
    fit_calibration,
    guarantee_threshold,
)
from wherefrom.provenance.evidence import Evidence, Support, find_support
from wherefrom.provenance.metrics import Bools, Floats
from wherefrom.provenance.signals.reader import CORE, GIVEN_SEEN, SIGNS, SignalReader, SignalState
from wherefrom.storage import read_json, write_json
from wherefrom.training.run_folder import Run

CALIBRATED = "calibration.json"
VERSION = 7
ENOUGH_UNSEEN = 100  # unseen subjects of the text, from which on none that are invented test
BELOW = -1.0  # the probability of an answer that is withheld at any threshold
FROM_TEXT, RIGHT = TARGETS = ("from_text", "right")
INTERNAL, CHECKED = MODES = ("internal", "checked")
ERRORS = {FROM_TEXT: "not from the text", RIGHT: "wrong"}  # what a guarantee bounds
# of what the text says about seen subjects, the directions
EVIDENCE_SIGNS = {"states_answer": 1, "states_other": -1, "probability": 1}

Flag = Annotated[bool, Field(strict=True)]
Fitted = Calibration | Product


@dataclass(frozen=True)
class Policy:
    """A probability of `target`, and who tests from where on answers are shown by it.

    tested: of each testing subject by a fit without it, BELOW if withheld anyway. looked_up: the
    text itself has said what the probability is of. unseen_risk: share of unseen subjects that may
    be given an answer. guarantee: at the risk of the calibration.
    """

    calibration: Fitted
    target: str
    tested: tuple[Number, ...]
    hits: tuple[Flag, ...]
    seen: tuple[Flag, ...]
    share: Number
    unseen_risk: Number = UNSEEN_RISK
    looked_up: Flag = False
    guarantee: Guarantee | None = None

    def __post_init__(self) -> None:
        if not len(self.tested) == len(self.hits) == len(self.seen):
            raise ValueError("there must be one probability and two flags per testing subject")

    def at_risk(self, risk: float, delta: float, share: float | None = None) -> Guarantee:
        """The threshold at a risk, where a `share` of the subjects is unseen."""
        known = self.guarantee
        if share is None and known is not None and (known.risk, known.delta) == (risk, delta):
            return known
        sure, hits, seen = (np.array(each) for each in (self.tested, self.hits, self.seen))
        seen = seen.astype(bool)
        mixed = mix(seen, self.share if share is None else share)
        found = guarantee_threshold(
            sure[mixed],
            hits[mixed],
            risk=risk,
            delta=delta,
            unseen=sure[~seen],
            unseen_risk=self.unseen_risk,
            what=ERRORS[self.target],
        )
        if found.threshold is None and self.looked_up:  # whether a line states it needs no test
            return replace(found, estimate=HALF, reason=None)
        return found


@dataclass(frozen=True, eq=False)
class Confidence:
    """All that turns an answer of this run into probabilities; calibration.json but for the run.

    seen: that the subject was read about. share: of unseen subjects in the calibration.
    """

    run: InstanceOf[Run]
    policies: Mapping[str, Mapping[str, Policy]]
    seen: Calibration
    share: Number
    risk: Number
    delta: Number
    notes: tuple[str, ...]
    weights_sha256: str
    subjects_sha256: str
    signal_state: Annotated[SignalState, Field(alias="reader")]

    def __post_init__(self) -> None:
        modes = {target: tuple(each) for target, each in self.policies.items()}
        if modes != dict.fromkeys(TARGETS, MODES):
            raise ValueError("both probabilities must be there in both modes")

    @cached_property
    def reader(self) -> SignalReader:
        return SignalReader(self.run, self.signal_state)

    @property
    def signals(self) -> tuple[str, ...]:
        """The signals that a probability takes, which are all that asking has to read."""
        fits = [each.calibration for modes in self.policies.values() for each in modes.values()]
        parts = [(one.seen, one.given) if isinstance(one, Product) else (one,) for one in fits]
        used = {name for part in (*chain(*parts), self.seen) if part for name in part.signals}
        return tuple(name for name in (*CORE, *GIVEN_SEEN) if name in used or name == CORE[0])

    def probabilities(
        self, columns: Mapping[str, Floats], support: Sequence[Support] | None
    ) -> dict[str, dict[str, Any]]:
        """By target and mode: by the model's own signals, and with what lines of the text say."""
        checked = None if support is None else {**columns, **evidence_columns(support)}
        return {
            target: {
                mode: None if known is None else modes[mode].calibration.probability(known)
                for mode, known in ((INTERNAL, columns), (CHECKED, checked))
            }
            for target, modes in self.policies.items()
        }

    def reweight(self, likely: Floats, columns: Mapping[str, Floats], share: float) -> Floats:
        """An internal probability where another `share` of the subjects is unseen.

        What is hoped for happens among the seen alone, or nearly so: with p(seen) by the same
        signals, only the weights of seen and unseen change.
        """
        seen = np.maximum(self.seen.probability(columns), likely)
        more, less = (1 - share) / (1 - self.share), share / max(self.share, 1e-9)
        return np.asarray(likely * more / (seen * more + (1 - seen) * less))

    def guarantee(
        self, target: str, mode: str, risk: float | None = None, share: float | None = None
    ) -> Guarantee:
        """The threshold that is guaranteed at the risk of the calibration, or at another one."""
        risk = self.risk if risk is None else risk
        return self.policies[target][mode].at_risk(risk, self.delta, share)


def fit_confidence(
    run: Run,
    evidence: Evidence,
    subjects: Sequence[Subject],
    known_answers: Sequence[str],
    *,
    contexts: Mapping[str, tuple[str, ...]] | None = None,
    seed: int,
    risk: float = 0.05,
    delta: float = 0.05,
    notes: Sequence[str] = (),
    report: Callable[[int], None] | None = None,
) -> Confidence:
    """Read the signals of the calibration subjects, and fit both targets in both modes on them.

    contexts: words that lead to an answer in the text.
    """
    asked = [one for one in subjects if one.role in (CALIBRATION, FITTING)]
    if not any(one.role == CALIBRATION for one in asked):
        raise UserError(
            "no confidence can be fitted, since no subject is set aside for it; repeat the study "
            "with --set-aside 0.1 and another --out."
        )
    known = tuple(dict.fromkeys(answer.strip() for answer in known_answers))
    reader = SignalReader(run, SignalState(known, dict(contexts or {})))
    people, questions = [one.subject for one in asked], [one.question for one in asked]
    table = reader.read(questions, people, only={*CORE, *GIVEN_SEEN}, report=report)
    relations = [one.template for one in asked]
    support = find_support(evidence, people, table.answers, known, templates=relations)
    right = np.array([is_right(said, one) for said, one in zip(table.answers, asked, strict=True)])
    policies, seen = fit_policies(
        asked, table.columns, support, right, risk=risk, delta=delta, seed=seed
    )
    remarks = [
        f"{target.replace('_', ' ')}, {mode}: {remark}"
        for target, modes in policies.items()
        for mode, one in modes.items()
        for remark in (note_of(one.calibration), one.at_risk(risk, delta).reason)
        if remark
    ]
    return Confidence(
        run=run,
        policies=policies,
        seen=seen,
        share=policies[RIGHT][INTERNAL].share,
        risk=risk,
        delta=delta,
        notes=tuple(dict.fromkeys([*notes, *remarks])),
        weights_sha256=str(run.info["sha256"]),
        subjects_sha256=hash_subjects(asked),
        signal_state=reader.state,
    )


def note_of(fitted: Fitted) -> str | None:
    """What a reader must know of a fit."""
    if not isinstance(fitted, Product):
        return fitted.note
    if fitted.given.note or fitted.seen is None or not fitted.seen.note:
        return fitted.given.note
    return (
        f"{fitted.seen.right} of {fitted.seen.subjects} calibration questions are about seen "
        "subjects: too few of either kind to tell them apart, so that the probabilities are rough."
    )


def fit_policies(
    subjects: Sequence[Subject],
    columns: Mapping[str, Floats],
    support: Sequence[Support],
    right: Bools,
    *,
    signs: Signs = SIGNS,
    parts: tuple[Sequence[str], Sequence[str]] = (CORE, GIVEN_SEEN),
    risk: float,
    unseen_risk: float = UNSEEN_RISK,
    delta: float,
    seed: int,
) -> tuple[dict[str, dict[str, Policy]], Calibration]:
    """Both targets in both modes from the signals of the subjects, what the text says, and grades.

    parts: the signals of p(seen), and those of p(as hoped | seen). The second result is the
    probability that a subject was seen.
    """
    stated = np.array([one.states_answer for one in support], dtype=bool)
    of_kind = np.array([one.of_kind for one in support], dtype=bool)
    labelled = np.array([one.source != TEXT for one in subjects], dtype=bool)
    text = evidence_columns(support)
    found: dict[str, dict[str, Policy]] = {target: {} for target in TARGETS}
    everyone = np.array([one.seen for one in subjects])
    real = np.array([one.answer is not None for one in subjects])
    first, second = ({name: columns[name] for name in part} for part in parts)
    about: dict[str, Any] = {"signs": {**signs, **EVIDENCE_SIGNS}, "seed": seed}
    seen, alone = fit_held_out(subjects, first, everyone, **about)
    # of the free subjects of the text those help of whom it answers the question at all
    answered = labelled | stated | text["states_other"].astype(bool)
    for target, hits, rows in ((FROM_TEXT, stated, answered), (RIGHT, right, labelled)):
        for mode in MODES:
            checked = mode == CHECKED
            named = text["seen"].astype(bool) if checked else everyone
            known = {**second, **{name: text[name] for name in EVIDENCE_SIGNS if checked}}
            given, likely = fit_held_out(subjects, known, hits, rows=rows & named, **about)
            others = rows & ~named
            others &= real if (others & real).any() else True
            guessed = float((hits[others].sum() + 1) / (others.sum() + 2))
            whole: Fitted = Product(seen=None if checked else seen, given=given, guessed=guessed)
            part = text["seen"] if checked else alone
            sure = np.asarray(part * likely + (1 - part) * guessed)
            sure = np.where(of_kind & stated if checked else of_kind, sure, BELOW)
            policy = choose_testers(subjects, whole, sure, hits, rows, target, seed=seed)
            looked_up = checked and target == FROM_TEXT
            policy = replace(policy, looked_up=looked_up, unseen_risk=unseen_risk)
            found[target][mode] = replace(policy, guarantee=policy.at_risk(risk, delta))
    return found, seen


def fit_held_out(
    subjects: Sequence[Subject],
    columns: Mapping[str, Floats],
    hits: Bools,
    *,
    rows: Bools | None = None,
    signs: Signs | None = None,
    seed: int,
) -> tuple[Calibration, Floats]:
    """A calibration on the rows that can be graded, and everybody's probability by a fit without.

    rows: None, or none at all, for everybody.
    """
    use = np.ones(len(subjects), dtype=bool)
    if rows is not None and rows.any():
        use = rows
    found, held_out = fit_calibration(
        {name: values[use] for name, values in columns.items()},
        hits[use],
        signs=signs,
        counts=mixed_counts(subjects, use)[use],
        groups=_people(subjects)[use],
        seed=seed,
    )
    likely = found.probability(columns)
    likely[use] = held_out
    return found, likely


def choose_testers(
    subjects: Sequence[Subject],
    calibration: Fitted,
    sure: Floats,
    hits: Bools,
    rows: Bools,
    target: str = RIGHT,
    *,
    seed: int,
) -> Policy:
    """Who tests thresholds of a probability: one row of each subject, by a fit without it.

    Unseen subjects of the text itself count before invented ones, and alone if they are enough.
    """
    seen = np.array([one.seen for one in subjects], dtype=bool)
    share = 1 - float(seen[[one.role == CALIBRATION for one in subjects]].mean())
    order = np.random.default_rng([seed, 23]).permutation(len(subjects))
    order = order[np.sort(np.unique(_people(subjects)[order], return_index=True)[1])]
    late = np.array([subjects[at].source in (INVENTED, TEXT) for at in order], dtype=bool)
    order = order[np.argsort(late, kind="stable")]
    testing = order[rows[order]]
    real = np.array([subjects[at].source != INVENTED or seen[at] for at in testing], dtype=bool)
    if (~seen[testing[real]]).sum() >= ENOUGH_UNSEEN:
        testing = testing[real]
    tested, hit = np.round(sure[testing], 6).tolist(), hits[testing].tolist()
    seen_too = seen[testing].tolist()
    return Policy(calibration, target, tuple(tested), tuple(hit), tuple(seen_too), share)


def mix(seen: Bools, share: float) -> NDArray[np.intp]:
    """The most rows of which a `share` is unseen, the first of each kind; all if one is missing."""
    kinds = [(np.flatnonzero(seen), 1 - share), (np.flatnonzero(~seen), share)]
    size = min((rows.size / part for rows, part in kinds if part > 0), default=0.0)
    return np.concatenate([rows[: round(size * part)] for rows, part in kinds])


def mixed_counts(subjects: Sequence[Subject], rows: Bools) -> Floats:
    """How much each of the rows counts, so that seen and unseen weigh as in the calibration."""
    seen = np.array([one.seen for one in subjects], dtype=bool)
    share = float(seen[[one.role == CALIBRATION for one in subjects]].mean())
    share = min(max(share, 1e-6), 1 - 1e-6)
    weights = np.where(seen, share / max(1, (seen & rows).sum()), 1.0)
    return np.where(seen, weights, (1 - share) / max(1, (~seen & rows).sum())) * rows.sum()


def _people(subjects: Sequence[Subject]) -> NDArray[np.intp]:
    """A number for each row, the same for rows of one subject."""
    names = [" ".join(fold_words(one.subject)) for one in subjects]
    return np.asarray(np.unique(names, return_inverse=True)[1])


def is_right(answer: str, subject: Subject) -> bool:
    """Exact match, blanks aside; about an invented subject every answer is wrong."""
    return subject.answer is not None and answer.strip() == subject.answer.strip()


def evidence_columns(support: Sequence[Support]) -> dict[str, Floats]:
    """What the text says of each answer, as numbers for the checked calibration."""
    return {
        name: np.array([getattr(one, name) for one in support], dtype=np.float64)
        for name in ("seen", *EVIDENCE_SIGNS)
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
