"""The table of signals in docs/provenance.md, on a run's own people: one JSON line a row.

python benchmarks/signals.py RUN            # each signal and some sets, on the calibration people
python benchmarks/signals.py RUN --judged   # on the judged people: to report, not to choose
python benchmarks/signals.py RUN --cost     # CPU milliseconds a question, sets of signals in turn
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence

import numpy as np
import torch

from wherefrom.corpus.split import CALIBRATION, FITTING, JUDGED, HeldOutQuestion, read_subjects
from wherefrom.provenance.confidence.calibration import fit_calibration
from wherefrom.provenance.confidence.fit import (
    Confidence,
    is_right,
    load_confidence,
)
from wherefrom.provenance.metrics import (
    Answers,
    Bools,
    Floats,
    auroc,
    coverage_at_precision,
    ece,
    measure,
)
from wherefrom.provenance.signals.reader import CORE, SIGNS
from wherefrom.training.run_folder import load_run

PRECISION = 0.95
DEALS = 3  # of the folds
SETS = {
    "log_probability": ("log_probability",),
    "core": CORE,
    **{f"core without {name}": tuple(n for n in CORE if n != name) for name in CORE},
}


def split_auroc(values: Floats, truth: Bools) -> float | None:
    known = np.isfinite(values)
    found = measure(auroc, Answers(values[known], truth[known]))["value"]
    return None if found is None else round(found, 3)


def judge_signals(columns: dict[str, Floats], right: Bools, seen: Bools) -> None:
    """Each signal alone: right against wrong, seen against unseen, right among the seen."""
    for name, sign in SIGNS.items():
        if name in columns:
            values = sign * columns[name]
            row = {"right": split_auroc(values, right), "seen": split_auroc(values, seen)}
            row["right_among_seen"] = split_auroc(values[seen], right[seen])
            print(json.dumps({"signal": name, **row}), flush=True)


def judge_sets(columns: dict[str, Floats], right: Bools) -> None:
    """Sets of signals, each person's probability by fits without them."""
    for name, signals in {**SETS, "all": tuple(columns)}.items():
        used = {each: columns[each] for each in signals if np.isfinite(columns[each]).any()}
        fits = [fit_calibration(used, right, signs=SIGNS, seed=seed) for seed in range(DEALS)]
        deals = [held_out for _, held_out in fits]
        measures = {
            "auroc": auroc,
            "ece": ece,
            "right_given": coverage_at_precision(PRECISION, of_right=True),
        }
        row = {
            key: round(
                float(np.mean([measure(formula, Answers(d, right))["value"] for d in deals])), 4
            )
            for key, formula in measures.items()
        }
        print(json.dumps({"set": name, "signals": list(used), **row}), flush=True)


def read_calibration(
    confidence: Confidence, people: Sequence[HeldOutQuestion], seed: int
) -> tuple[dict[str, Floats], list[HeldOutQuestion], Bools]:
    """All signals of the calibration people; what is fitted is held out."""
    asked = [one for one in people if one.role in (CALIBRATION, FITTING)]
    questions, names = zip(*((one.question, one.subject) for one in asked), strict=True)
    table = confidence.reader.read(questions, names)
    pairs = zip(table.answers, asked, strict=True)
    return dict(table.columns), asked, np.array([is_right(said, one) for said, one in pairs])


def measure_cost(confidence: Confidence, people: Sequence[HeldOutQuestion], repeats: int) -> None:
    """Sets of signals in turn, so that a busy machine is busy for all of them."""
    reader = confidence.reader
    sets: dict[str, Sequence[str] | None] = {
        "decoding alone": ("log_probability",),
        "the confidence": confidence.signals,
        "all": None,
    }
    asked = people[:128]
    spent: dict[tuple[str, str], list[float]] = {}
    for _ in range(repeats):
        for name, only in sets.items():
            for how, parts in (("batch", [asked]), ("single", [[one] for one in asked[:20]])):
                start = time.process_time()
                for part in parts:
                    questions = [person.question for person in part]
                    reader.read(questions, [person.subject for person in part], only=only)
                each = 1000 * (time.process_time() - start) / sum(map(len, parts))
                spent.setdefault((name, how), []).append(each)
    for (name, how), times in spent.items():
        row = {"median": round(float(np.median(times)), 2), "least": round(min(times), 2)}
        print(json.dumps({"set": name, "questions": how, "cpu_ms": row}), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run")
    parser.add_argument("--judged", action="store_true")
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("--repeats", type=int, default=5)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    run = load_run(asked.run)
    found, dealt = load_confidence(run), read_subjects(run.folder)
    judged = [person for person in dealt if person.role == JUDGED]
    if asked.cost:
        measure_cost(found, judged, asked.repeats)
    elif asked.judged:
        table = found.reader.read([p.question for p in judged], [p.subject for p in judged])
        pairs = zip(table.answers, judged, strict=True)
        grades = np.array([is_right(said, person) for said, person in pairs])
        judge_signals(table.columns, grades, np.array([p.seen for p in judged]))
    else:
        columns, people, grades = read_calibration(found, dealt, run.info["job"]["seed"])
        judge_signals(columns, grades, np.array([p.seen for p in people]))
        judge_sets(columns, grades)
