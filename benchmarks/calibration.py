"""Who calibrates is drawn again and again: how often what was guaranteed does not hold.

python benchmarks/calibration.py table RUN --out FILE   # signals and grades of a study's people
python benchmarks/calibration.py study FILE             # the study's own people, as it judges them
python benchmarks/calibration.py drop FILE              # the held-out loss without each signal
python benchmarks/calibration.py redraw FILE            # one JSON line per size and policy
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wherefrom.corpus.split import (
    CALIBRATION,
    FITTING,
    JUDGED,
    HeldOutQuestion,
    Role,
    read_subjects,
)
from wherefrom.provenance.confidence.calibration import Calibration
from wherefrom.provenance.confidence.fit import (
    MODES,
    TARGETS,
    WITHHELD_PROBABILITY,
    CalibrationRows,
    TestedCalibration,
    evidence_columns,
    fit_policies,
    is_right,
    load_confidence,
)
from wherefrom.provenance.evidence import Support, find_support
from wherefrom.provenance.judging import require_evidence
from wherefrom.provenance.metrics import ScoredAnswers, auroc, ece, measure
from wherefrom.provenance.signals.reader import CORE, GIVEN_SEEN
from wherefrom.training.run_folder import load_run

RISK = 0.05
SIZES = (400, 200, 100)
FITS = 3  # whose losses are averaged
Rows = NDArray[np.intp]
Fitted = tuple[dict[str, dict[str, TestedCalibration]], Calibration]


def select(rows: CalibrationRows, at: Rows, role: Role | None = None) -> CalibrationRows:
    """Some rows, perhaps with another role."""
    people = [rows.subjects[i] for i in at]
    if role is not None:
        people = [replace(one, role=role) for one in people]
    columns = {name: values[at] for name, values in rows.columns.items()}
    return CalibrationRows(people, columns, [rows.support[i] for i in at], rows.right[at])


def join(first: CalibrationRows, second: CalibrationRows) -> CalibrationRows:
    """The rows of both."""
    return CalibrationRows(
        [*first.subjects, *second.subjects],
        {name: np.append(values, second.columns[name]) for name, values in first.columns.items()},
        [*first.support, *second.support],
        np.append(first.right, second.right),
    )


def are_seen(rows: CalibrationRows) -> NDArray[np.bool_]:
    return np.array([one.seen for one in rows.subjects], dtype=bool)


def write_table(folder: str, out: Path) -> None:
    """Read the signals of everybody who learned nothing: calibration, judged, spare, free."""
    run = load_run(folder)
    confidence, everyone = load_confidence(run), read_subjects(run.folder)
    questions, subjects = [one.question for one in everyone], [one.subject for one in everyone]
    table = confidence.reader.read(questions, subjects, only={*CORE, *GIVEN_SEEN})
    relations, known = [one.template for one in everyone], confidence.signal_state.known_answers
    with require_evidence(run) as evidence:
        support = find_support(evidence, subjects, table.answers, known, templates=relations)
    keys = ("seen", "states_answer", "states_other", "probability", "of_kind")
    with out.open("w", encoding="utf-8") as file:
        for at, one in enumerate(everyone):
            row = {
                "subject": asdict(one),
                "right": is_right(table.answers[at], one),
                "signals": {name: float(column[at]) for name, column in table.columns.items()},
                "support": {key: getattr(support[at], key) for key in keys},
            }
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def read_table(path: str) -> CalibrationRows:
    with open(path, encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    columns = {
        name: np.array([row["signals"][name] for row in rows], dtype=float)
        for name in rows[0]["signals"]
    }
    support = [Support(**row["support"], lines=(), similar=()) for row in rows]
    people = [HeldOutQuestion(**row["subject"]) for row in rows]
    right = np.array([row["right"] for row in rows], dtype=bool)
    return CalibrationRows(people, columns, support, right)


def judge(fitted: Fitted, table: CalibrationRows) -> dict[str, dict[str, float]]:
    """What each policy shows of people who calibrated nothing."""
    policies, _ = fitted
    stated, of_kind = (
        np.array([getattr(one, name) for one in table.support], dtype=bool)
        for name in ("states_answer", "of_kind")
    )
    alike, seen = table.columns["log_probability"], are_seen(table)
    rows = {}
    for target in TARGETS:
        hits = stated if target == "from_text" else table.right
        for mode in MODES:
            policy = policies[target][mode]
            text = evidence_columns(table.support) if mode == "checked" else {}
            sure = policy.calibration.probability({**table.columns, **text})
            found = policy.at_risk(RISK)
            shown = (sure >= found.used) & of_kind & (stated if mode == "checked" else True)
            rows[f"{target}, {mode}"] = {
                "guaranteed": float(found.threshold is not None),
                "shown": float(shown.sum()),
                "missed": float((shown & ~hits).sum() / max(1, shown.sum())),
                "right_shown": float((shown & table.right).sum() / max(1, table.right.sum())),
                "unseen_shown": float((shown & ~seen).sum() / max(1, (~seen).sum())),
                "ece": measure(ece, ScoredAnswers(sure, hits))["value"] or 0.0,
                "auroc": rank(sure, hits),
                "auroc_seen": rank(sure[seen], hits[seen]),
                "likelihood": rank(alike, hits),
                "likelihood_seen": rank(alike[seen], hits[seen]),
                "mistakes_seen": float((seen & ~hits).sum()),
            }
    return rows


def rank(sure: NDArray[np.float64], hits: NDArray[np.bool_]) -> float:
    return measure(auroc, ScoredAnswers(sure, hits))["value"] or np.nan


def draw(
    table: CalibrationRows, size: int, rng: np.random.Generator
) -> tuple[CalibrationRows, CalibrationRows]:
    """`size` seen people and as many unseen as the mix has calibrate; the other real ones judge."""
    people, seen = table.subjects, are_seen(table)
    names = np.unique([one.subject for one in people], return_inverse=True)[1]
    free = np.array([one.answer is None for one in people])
    order = rng.permutation(names.max() + 1)[names]  # a random place for each person
    labelled = np.array([one.role in (CALIBRATION, JUDGED) for one in people])
    share = 1 - seen[labelled].mean()
    chosen = np.zeros(len(names), dtype=bool)
    for kind, many in ((seen, size), (~seen, round(size * share / (1 - share)))):
        here = np.unique(order[kind & ~free])
        chosen |= kind & ~free & np.isin(order, here[: min(many, here.size // 2)])
    # free people stand in as many as there would be: five unseen for each that calibrates
    spare = np.flatnonzero(free)
    unseen = spare[~seen[spare]][: 5 * int(chosen.sum())]
    spare = np.concatenate([spare[seen[spare]], unseen])
    part = select(table, np.flatnonzero(chosen), CALIBRATION)
    rest = select(table, np.flatnonzero(labelled & ~chosen & ~free))
    return join(part, select(table, spare, FITTING)), rest


def redraw(path: str, repeats: int, sizes: Sequence[int]) -> None:
    table = read_table(path)
    for size in sizes:
        found: dict[str, list[dict[str, float]]] = {}
        for seed in range(repeats):
            part, rest = draw(table, size, np.random.default_rng([seed, size]))
            for name, row in judge(fit_policies(part, risk=RISK, seed=seed), rest).items():
                row["failed"] = float(row["missed"] > RISK)
                found.setdefault(name, []).append(row)
        for name, rows in found.items():
            means = {key: round(float(np.nanmean([r[key] for r in rows])), 4) for key in rows[0]}
            line = {"calibrating": size, "redraws": repeats, "policy": name, **means}
            print(json.dumps(line), flush=True)


def judge_study(path: str) -> None:
    table = read_table(path)
    judged = np.array([one.role == JUDGED for one in table.subjects])
    part, rest = (select(table, np.flatnonzero(rows)) for rows in (~judged, judged))
    for name, row in judge(fit_policies(part, risk=RISK, seed=0), rest).items():
        rounded = {key: round(value, 4) for key, value in row.items()}
        print(json.dumps({"policy": name, **rounded}), flush=True)


def drop_signals(path: str) -> None:
    """The held-out log loss of who calibrates, with all signals and without each.

    In thousandths of a nat, the mean over both probabilities and several fits.
    """
    table = read_table(path)
    part = select(table, np.flatnonzero([one.role != JUDGED for one in table.subjects]))
    for dropped in ("", *dict.fromkeys((*CORE, *GIVEN_SEEN))):
        kept = [[name for name in names if name != dropped] for names in (CORE, GIVEN_SEEN)]
        losses = []
        for seed in range(FITS):
            policies, _ = fit_policies(part, parts=(kept[0], kept[1]), risk=RISK, seed=seed)
            for target in TARGETS:
                tested = policies[target]["internal"].testers
                sure, hits = np.array(tested.confidence), np.array(tested.hits, dtype=bool)
                sure = np.clip(np.where(hits, sure, 1 - sure), 1e-6, 1)[
                    sure != WITHHELD_PROBABILITY
                ]
                losses.append(float(-np.log(sure).mean()))
        row = {"without": dropped or None, "loss": round(1000 * float(np.mean(losses)), 1)}
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("table", "study", "drop", "redraw"))
    parser.add_argument("source")
    parser.add_argument("--out", type=Path, default=Path("signals.jsonl"))
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    given = parser.parse_args()
    if given.what == "table":
        write_table(given.source, given.out)
    elif given.what == "study":
        judge_study(given.source)
    elif given.what == "drop":
        drop_signals(given.source)
    else:
        redraw(given.source, given.repeats, given.sizes)
