"""Who calibrates is drawn again and again: how often what was guaranteed does not hold.

python benchmarks/calibration.py table RUN --out FILE   # signals and grades of a study's people
python benchmarks/calibration.py redraw FILE            # one JSON line per number of people
python benchmarks/calibration.py shares FILE            # other shares of unseen people
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wherefrom.corpus.subjects import CALIBRATION, FITTING, JUDGED, TEXT, Subject, read_subjects
from wherefrom.provenance.confidence.calibration import fit_calibration
from wherefrom.provenance.confidence.fit import (
    MODES,
    TARGETS,
    TargetFit,
    evidence_columns,
    fit_targets,
    fitting_part,
    is_right,
    load_confidence,
)
from wherefrom.provenance.evidence.lookup import Support, find_support
from wherefrom.provenance.judging.judge import require_evidence
from wherefrom.provenance.metrics import Answers, Bools, Floats, auroc, ece
from wherefrom.provenance.signals.reader import CORE, NAME_SIGNALS, SIGNS
from wherefrom.training.run_folder import load_run, read_learned_documents

RISK = DELTA = 0.05
SIZES = (40, 100, 200, 400)


class Table:
    """People of a study with their signals, what the text says of the answers, and grades."""

    def __init__(self, rows: Sequence[dict[str, Any]]) -> None:
        self.people = [Subject(**row["subject"]) for row in rows]
        names = rows[0]["signals"]
        self.columns = {
            name: np.array([row["signals"][name] for row in rows], dtype=float) for name in names
        }
        empty: dict[str, Any] = {"lines": (), "similar": ()}
        self.support = [Support(**row["support"], **empty) for row in rows]
        self.right = np.array([row["right"] for row in rows], dtype=bool)

    def select(self, at: NDArray[np.intp]) -> Table:
        part = object.__new__(Table)
        part.people = [self.people[i] for i in at]
        part.columns = {name: values[at] for name, values in self.columns.items()}
        part.support = [self.support[i] for i in at]
        part.right = self.right[at]
        return part

    def flags(self, name: str) -> Bools:
        return np.array([getattr(one, name) for one in self.support], dtype=bool)


def write_table(folder: str, out: Path, unlabelled: int) -> None:
    """Read the signals of everybody who learned nothing: calibration, judged, spare, the text."""
    run = load_run(folder)
    confidence, people = load_confidence(run), list(read_subjects(run.folder))
    from wherefrom.corpus.folding import fold_words
    from wherefrom.corpus.questions import SLOT
    from wherefrom.training.run_folder import find_source, read_learned_questions

    source, asked = find_source(run, "corpus"), find_source(run, "questions")
    assert source is not None
    assert asked is not None
    learned = read_learned_questions(asked).questions
    taken = {fold_words(one.subject) for one in (*people, *learned)}
    names = dict.fromkeys(document.subject for document in read_learned_documents(source).documents)
    template = people[0].template
    people += [
        Subject(FITTING, True, TEXT, name, template.replace(SLOT, name), None, template)
        for name in [name for name in names if fold_words(name) not in taken][:unlabelled]
    ]
    questions, subjects = [one.question for one in people], [one.subject for one in people]
    table = confidence.reader.read(questions, subjects, only={*CORE, *NAME_SIGNALS})
    with require_evidence(run) as evidence:
        support = find_support(
            evidence,
            subjects,
            table.answers,
            confidence.reader.known_answers,
            templates=[one.template for one in people],
        )
    keys = ("seen", "states_answer", "states_other", "others", "probability", "of_kind")
    with out.open("w", encoding="utf-8") as file:
        for at, one in enumerate(people):
            row = {
                "subject": asdict(one),
                "answer": table.answers[at],
                "right": is_right(table.answers[at], one),
                "signals": {name: float(column[at]) for name, column in table.columns.items()},
                "support": {key: getattr(support[at], key) for key in keys},
            }
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def read_table(path: str) -> Table:
    with open(path, encoding="utf-8") as file:
        return Table([json.loads(line) for line in file])


def fit(table: Table, seed: int) -> tuple[dict[str, TargetFit], Any]:
    """Both targets on these people, and the curve of `name_read`, as a study fits them."""
    part = fitting_part(table.people, seed)
    seen = np.array([one.seen for one in table.people])
    if min(seen[part].sum(), (~seen[part]).sum()) < 10:
        part[:] = True
    names = {name: table.columns[name] for name in NAME_SIGNALS}
    wanted = np.mean([one.seen for one in table.people if one.role == CALIBRATION])
    counts = np.where(seen, wanted / max(1, seen.sum()), (1 - wanted) / max(1, (~seen).sum()))
    fitted = fit_calibration(
        {name: values[part] for name, values in names.items()},
        seen[part],
        signs=SIGNS,
        counts=counts[part] * len(seen),
        bend=False,
        seed=seed,
    )
    read = fitted.calibration.probability(names)
    read[part] = fitted.held_out
    columns = {name: table.columns[name] for name in CORE} | {"name_read": read}
    found = fit_targets(
        table.people, columns, table.support, table.right, risk=RISK, delta=DELTA, seed=seed
    )
    return found, fitted.calibration


def judge(found: dict[str, TargetFit], curve: Any, table: Table) -> dict[str, dict[str, float]]:
    """What each policy shows of people who calibrated nothing."""
    columns = {name: table.columns[name] for name in CORE}
    columns["name_read"] = curve.probability(table.columns)
    stated, of_kind = table.flags("states_answer"), table.flags("of_kind")
    seen = np.array([one.seen for one in table.people])
    rows = {}
    for target in TARGETS:
        hits = stated if target == "from_text" else table.right
        for mode in MODES:
            fitted = getattr(found[target], mode)
            known = columns | (evidence_columns(table.support) if mode == "checked" else {})
            sure: Floats = fitted.calibration.probability(known)
            policy = fitted.guarantee_at(RISK, DELTA)
            shown = (sure >= policy.used) & of_kind & (stated if mode == "checked" else True)
            rows[f"{target}, {mode}"] = {
                "guaranteed": float(policy.threshold is not None),
                "shown": float(shown.sum()),
                "missed": float((shown & ~hits).sum() / max(1, shown.sum())),
                "right_shown": float((shown & table.right).sum() / table.right.sum()),
                "unseen_shown": float((shown & ~seen).sum() / max(1, (~seen).sum())),
                "ece": ece(Answers(sure, hits)).value or 0.0,
                "auroc": auroc(Answers(sure, hits)).value or np.nan,
                "auroc_among_seen": auroc(Answers(sure[seen], hits[seen])).value or np.nan,
            }
    return rows


def draw(
    table: Table, size: int, unlabelled: int, rng: np.random.Generator, share: float | None = None
) -> tuple[Table, Table]:
    """`size` people who calibrate, with the mix of all or another, and all others who judge."""
    labelled = np.array([one.role in (CALIBRATION, JUDGED) for one in table.people])
    seen = np.array([one.seen for one in table.people])
    mix = float(seen[labelled].mean())
    wanted = mix if share is None else 1 - share
    order = rng.permutation(len(seen))
    known = [order[(labelled & (seen == kind))[order]] for kind in (True, False)]
    chosen = np.concatenate(
        [known[0][: round(size * wanted)], known[1][: round(size * (1 - wanted))]]
    )
    judging = np.setdiff1d(np.flatnonzero(labelled), chosen)
    spare = order[(~labelled)[order]]
    text = [i for i in spare if table.people[i].source == TEXT][:unlabelled]
    others = [i for i in spare if table.people[i].source != TEXT]
    part = table.select(np.array([*chosen, *text, *others], dtype=int))
    role = [CALIBRATION] * len(chosen) + [FITTING] * (len(text) + len(others))
    part.people = [replace(one, role=r) for one, r in zip(part.people, role, strict=True)]
    return part, table.select(judging)


def redraw(path: str, repeats: int, unlabelled: int, sizes: Sequence[int]) -> None:
    table = read_table(path)
    for size in sizes:
        found: dict[str, list[dict[str, float]]] = {}
        for seed in range(repeats):
            part, rest = draw(table, size, unlabelled, np.random.default_rng([seed, size]))
            for name, row in judge(*fit(part, seed), rest).items():
                row["failed"] = float(row["missed"] > RISK)
                found.setdefault(name, []).append(row)
        for name, rows in found.items():
            means = {key: round(float(np.nanmean([r[key] for r in rows])), 4) for key in rows[0]}
            print(json.dumps({"calibrating": size, "policy": name} | means), flush=True)


def other_shares(path: str, repeats: int) -> None:
    """Calibrated on the study's mix, judged on others: how far off the probabilities are."""
    table = read_table(path)
    for share in (0.1, 0.3, 0.7):
        found: dict[str, list[float]] = {}
        for seed in range(repeats):
            rng = np.random.default_rng([seed, 5])
            part, rest = draw(table, 200, 0, rng)
            seen = np.array([one.seen for one in rest.people])
            many = min(seen.sum() / (1 - share), (~seen).sum() / share)
            at = np.concatenate(
                [
                    np.flatnonzero(seen)[: int(many * (1 - share))],
                    np.flatnonzero(~seen)[: int(many * share)],
                ]
            )
            for name, row in judge(*fit(part, seed), rest.select(at)).items():
                found.setdefault(name, []).append(row["ece"])
        for name, values in found.items():
            row = {"unseen": share, "policy": name, "ece": round(float(np.mean(values)), 4)}
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("table", "redraw", "shares"))
    parser.add_argument("source")
    parser.add_argument("--out", type=Path, default=Path("signals.jsonl"))
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--unlabelled", type=int, default=0, help="subjects of the text to add")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    given = parser.parse_args()
    if given.what == "table":
        write_table(given.source, given.out, given.unlabelled)
    elif given.what == "redraw":
        redraw(given.source, given.repeats, given.unlabelled, given.sizes)
    else:
        other_shares(given.source, given.repeats)
