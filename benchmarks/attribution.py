"""How far scores of lines can be believed, judged by models that were really retrained.

    python benchmarks/bank.py RUN --out BANK --models 32 --repeats 8
    python benchmarks/attribution.py RUN --bank BANK [--only METHOD] [--removals 20]
    python benchmarks/attribution.py RUN --kinds 20
    python benchmarks/attribution.py RUN --bank BANK_OF_LINES --nats

One row per method with its CPU seconds, intervals of 95 % over questions:

    LDS          Spearman's correlation, over the halves, of the sum of a method's scores of what
                 was kept with log p of the answer by the model that was retrained; mean over
                 questions, of people in the text and of others. The ceiling replaces the sum by
                 the log p of a model that was retrained on the same half from another start.
    MRR, first   mean reciprocal rank, and share in the first place, of the subject's own lines, of
                 answers that are right
    QLD          nats that log p of an answer loses by retraining without its top 1 % of the lines
                 (--removals answers of each kind), less what it loses by retraining without those
                 of other answers
    kinds        nats that made-up answers (--kinds of them) lose by retraining without all lines
                 of a kind (`trace --unseen`), beside the share of the push by gradient
    nats         how the nats that `trace` prints agree with a bank that leaves out lines, 5 % at
                 once: slope and R^2, coverage of the 90 % intervals, and the multiples that nats.py
                 would have if they were measured on this bank

Memory at most is that of one method only with --only METHOD.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from time import process_time

import numpy as np
from bank import Bank, ask_twin, bank_questions, read_bank, read_lines
from numpy.typing import NDArray
from rows import Record, keep_row, run_main, say, table
from scipy.stats import spearmanr

from wherefrom.corpus.folding import fold_words
from wherefrom.errors import UserError
from wherefrom.provenance.attribution.kinds import (
    KINDS,
    find_stating,
    shares_of_kinds,
)
from wherefrom.provenance.attribution.nats import (
    TABLES,
    estimate_pushes,
    push_shares,
    table_of,
)
from wherefrom.provenance.attribution.opening import open_learned
from wherefrom.provenance.attribution.retraining import LearnedRun
from wherefrom.provenance.attribution.trace import Tracer
from wherefrom.provenance.attribution.unseen import trace_unseen
from wherefrom.training.run_folder import Run

Floats = NDArray[np.float64]
QUANTILES = (0.05, 0.5, 0.95)
TOP_SHARE, LEFT_OUT_SHARE = 0.01, 0.075  # of all lines: for one answer; at most of one training
MOST_TRAININGS = 4  # without lines of one kind


@dataclass(frozen=True, eq=False)
class Material:
    """A run with what it learned, and the bank with its questions."""

    learned: LearnedRun
    bank: Bank

    @property
    def run(self) -> Run:
        return self.learned.run

    @cached_property
    def own(self) -> NDArray[np.bool_]:
        """(questions, documents): whether a document is about the subject."""
        names = [fold_words(document.subject) for document in self.learned.documents]
        subjects = [fold_words(row["subject"]) for row in self.bank.questions]
        return np.array([[name == subject for name in names] for subject in subjects])

    @property
    def seen(self) -> NDArray[np.bool_]:
        return self.own.any(axis=1)

    @property
    def right(self) -> NDArray[np.bool_]:
        said = [row["answer"] == row["right"] for row in self.bank.questions]
        return np.array(said) & self.seen

    @property
    def rows(self) -> list[tuple[str, str]]:
        return [(row["question"], row["answer"]) for row in self.bank.questions]


def by_name(material: Material) -> Floats:
    """1 for documents about the subject; ties are broken at random."""
    noise = np.random.default_rng(0).random(material.own.shape)
    return material.own + 1e-9 * noise


def by_words(material: Material) -> Floats:
    """BM25 (k1 = 1.2, b = 0.75) of the question with its answer."""
    texts = [list(fold_words(document.text)) for document in material.learned.documents]
    counts = [Counter(words) for words in texts]
    lengths = np.array([len(words) for words in texts]) / np.mean([len(words) for words in texts])
    scores = np.zeros((len(material.rows), len(texts)))
    for row, (question, answer) in enumerate(material.rows):
        for word in set(fold_words(f"{question} {answer}")):
            here = np.array([count[word] for count in counts], dtype=float)
            found = (here > 0).sum()
            idf = np.log(1 + (len(texts) - found + 0.5) / (found + 0.5))
            scores[row] += idf * here * 2.2 / (here + 1.2 * (0.25 + 0.75 * lengths))
    return scores


def by_gradient(material: Material) -> Floats:
    """`wherefrom trace`."""
    tracer = Tracer(material.learned, say=say)
    keys = ("question", "subject", "answer")
    return np.array([tracer.scores(*(row[key] for key in keys)) for row in material.bank.questions])


def by_question_alone(material: Material) -> Floats:
    """The gradient of the question's row alone, without windows of the text."""
    tracer = Tracer(material.learned, say=say)
    rows = [material.learned.answer_rows(q, "", answer) for q, answer in material.rows]
    return np.array([tracer.index.scores(tracer.snapshot, each) for each in rows])


METHODS: dict[str, Callable[[Material], Floats]] = {
    "look-up by name": by_name,
    "BM25": by_words,
    "gradient, question alone": by_question_alone,
    "gradient": by_gradient,
}


def correlate(one: Floats, other: Floats) -> Floats:
    """Spearman's over the rows, for each column; 0 where one of the two is constant."""
    pairs = zip(one.T, other.T, strict=True)
    return np.nan_to_num([float(spearmanr(a, b).statistic) for a, b in pairs])


def own_ranks(material: Material, scores: Floats) -> Floats:
    """The best rank of a document about the subject, for each question; infinite without one."""
    best = np.where(material.own, scores, -np.inf).max(axis=1, keepdims=True)
    ranks = 1.0 + (scores > best).sum(axis=1)
    return np.where(material.seen, ranks, np.inf)


def interval(values: Floats) -> list[float]:
    """A mean with its bootstrap interval over questions."""
    if not len(values):
        return []
    drawn = np.random.default_rng(0).integers(len(values), size=(1000, len(values)))
    low, high = np.quantile(values[drawn].mean(axis=1), [0.025, 0.975])
    return [round(float(each), 3) for each in (values.mean(), low, high)]


def measure_removals(material: Material, scores: Floats, count: int, folder: Path) -> Record:
    """QLD: what answers lose by retraining without their top lines, less what others lose."""
    rng = np.random.default_rng(0)
    size = max(1, round(TOP_SHARE * len(material.learned.documents)))
    found = {}
    for kind, which in (("in the text", material.right), ("not in it", ~material.seen)):
        asked = rng.permutation(np.flatnonzero(which))[:count]
        top = {int(at): np.argsort(-scores[at])[:size] for at in asked}
        found[kind] = interval(lost_without(material, top, which, folder))
    return found


def lost_without(
    material: Material,
    left_out: dict[int, NDArray[np.intp]],
    alike: NDArray[np.bool_],
    folder: Path,
    trainings: int = 99,
) -> Floats:
    """Nats that each answer loses without its lines, less what other answers like it lose.

    left_out: indices of documents by answer. Those of several answers are left out of one training
    while they are few of all lines; answers that need more than so many trainings are not measured.
    """
    lines = np.array([document.line for document in material.learned.documents])
    groups: list[list[int]] = []
    for at in left_out:
        together = {
            *left_out[at],
            *(i for other in groups[-1:] for o in other for i in left_out[o]),
        }
        if groups and len(together) <= LEFT_OUT_SHARE * len(lines):
            groups[-1].append(at)
        else:
            groups.append([at])
    every, found = np.arange(len(material.bank.questions)), []
    for group in groups[:trainings]:
        gone = np.unique(np.concatenate([left_out[at] for at in group]))
        said = ask_without(material, lines[gone].tolist(), folder)
        lost, is_own = nats_lost(material, said, every), np.isin(every, group)
        found.append(lost[is_own] - lost[alike & ~is_own].mean())
    return np.concatenate(found)


def remove_kinds(material: Material, count: int, folder: Path) -> Record:
    """Nats that made-up answers lose by retraining without all lines of a kind.

    What other made-up answers lose by the same trainings is subtracted. push: the share of the kind
    by gradient, of the same answers.
    """
    rng = np.random.default_rng(0)
    places = {row["question"]: at for at, row in enumerate(material.bank.questions)}
    traced = [*trace_unseen(Tracer(material.learned, say=say))]
    chosen = [traced[i] for i in rng.permutation(len(traced))[:count]]
    found = {}
    for kind in KINDS[1:-1]:
        left_out, shares = {}, []
        for subject, _, scores, kinds in chosen:
            if (kinds == kind).any():
                left_out[places[subject.question]] = np.flatnonzero(kinds == kind)
                shares.append(shares_of_kinds(kinds, scores).get(kind, 0.0))
        if left_out:
            nats = lost_without(material, left_out, ~material.seen, folder, MOST_TRAININGS)
            found[kind] = {
                "answers": len(nats),
                "lines": float(np.mean([len(lines) for lines in left_out.values()])),
                "push": interval(np.array(shares)),
                "nats": interval(nats),
            }
    return found


def ask_without(material: Material, lines: Sequence[int], folder: Path) -> Record:
    """What a model trained without some lines says; kept in a file, and not trained twice."""
    without, path = sorted(lines), folder / "removals.jsonl"
    run = material.run.record.sha256
    for row in read_lines(path):
        if row["without"] == without and row["run"] == run:
            return row
    shutil.rmtree(folder / "t", ignore_errors=True)  # of a training that was cut off
    row = {"run": run, **ask_twin(material.learned, material.bank.questions, without, folder / "t")}
    folder.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row, ensure_ascii=False) + "\n")
    say(f"trained without {len(without)} lines")
    return row


def nats_lost(material: Material, said: Record, asked: Sequence[int]) -> Floats:
    """By how many nats log p of each answer falls."""
    rows = material.bank.questions
    return np.array([rows[at]["log_probability"] - said["log_probability"][at] for at in asked])


@dataclass(frozen=True)
class LeftOutLine:
    """A top line of an answer, or one that teaches it, that one model was trained without.

    low, nats, high: what `trace` says. push: nats, as retraining has it.
    """

    table: str
    share: float
    gain: float
    low: float
    nats: float
    high: float
    push: float


def left_out_lines(material: Material, top: int = 5) -> list[LeftOutLine]:
    """The top lines of all answers, each with the push that the bank's model without it tells.

    Lines that were left out together with another line about the subject, or with another top
    line, do not count: their pushes cannot be told apart.
    """
    documents, bank = material.learned.documents, material.bank
    tracer, rows = Tracer(material.learned, say=say), []
    index_of = {document.line: i for i, document in enumerate(documents)}
    without = [{index_of[line] for line in model["without"]} for model in bank.models]
    stating = find_stating(documents, [row["answer"] for row in bank.questions])
    for at, row in enumerate(bank.questions):
        asked = row["question"], row["subject"], row["answer"]
        scores, gain = tracer.scores(*asked), tracer.gain(*asked)
        if gain is None:
            continue
        own = set(np.flatnonzero(material.own[at]).tolist())
        teaching = sorted(own & stating.get(fold_words(row["answer"]), set()))
        watched = {*np.argsort(-scores)[:top].tolist(), *own}
        shares, pushes = push_shares(scores), estimate_pushes(scores, gain, teaching, 0.0)
        for model, gone in zip(bank.models, without, strict=True):
            if len(gone & watched) == 1:
                (line,) = gone & watched
                push = row["log_probability"] - model["log_probability"][at]
                table = table_of(line, teaching)
                said = pushes.of_line[line]
                rows.append(LeftOutLine(table, float(shares[line]), gain, *said, push))
    return rows


def check_nats(material: Material) -> Record:
    """How far the nats of nats.py hold on a bank that leaves out lines."""
    rows, found = left_out_lines(material), {}
    for name, bins_of in TABLES.items():
        group = [row for row in rows if row.table == name]
        if not group:
            continue
        pushes, said = (np.array([getattr(r, key) for r in group]) for key in ("push", "nats"))
        covered = [row.low <= row.push <= row.high for row in group]
        varies = said.std() > 0 and pushes.std() > 0
        bounds = [bound for bound, _ in bins_of]
        bins = np.searchsorted(bounds[:-1], [row.share for row in group], side="right")
        ratios = np.array([row.push / max(row.gain, 0.1) for row in group])
        found[name] = {
            "lines": len(group),
            "slope": round(float(said @ pushes / max(said @ said, 1e-9)), 3),
            "r_squared": round(float(np.corrcoef(said, pushes)[0, 1] ** 2), 3) if varies else None,
            "covered": interval(np.array(covered, dtype=float)),
            "multiples": [
                [int((bins == i).sum()), *np.round(np.quantile(ratios[bins == i], QUANTILES), 3)]
                for i in range(len(bounds))
                if (bins == i).any()
            ],
        }
    return found


def measure(material: Material, name: str, scores: Floats) -> Record:
    """One row of the table."""
    bank = material.bank
    row: Record = {"name": f"attribution, {name}", "value": None, "unit": "LDS"}
    seen, right, ranks = material.seen, material.right, own_ranks(material, scores)
    row["mrr"] = interval(1 / ranks[right])
    row["first"] = interval((ranks[right] == 1).astype(float))
    row["questions"] = {"seen": int(seen.sum()), "unseen": int((~seen).sum())}
    if bank.models:
        kept = bank.kept(material.learned.documents)
        lds = correlate(kept @ scores.T, log_p_of(bank.models))
        row["lds"], row["lds_unseen"] = interval(lds[seen]), interval(lds[~seen])
        row["value"], row["models"] = row["lds"][0], len(bank.models)
    return row


def measure_ceiling(material: Material) -> Record:
    """LDS of models that were trained once more, from another start."""
    bank, seen = material.bank, material.seen
    repeated = {row["number"] for row in bank.repeated}
    first = [row for row in bank.models if row["number"] in repeated]
    ceiling = correlate(log_p_of(first), log_p_of(bank.repeated))
    value, outside = interval(ceiling[seen]), interval(ceiling[~seen])
    row: Record = {"name": "attribution, ceiling", "value": value[0], "unit": "LDS"}
    return row | {"lds": value, "lds_unseen": outside, "models": len(first)}


def log_p_of(models: Sequence[Record]) -> Floats:
    """(models, questions): log p of the run's answers."""
    return np.array([model["log_probability"] for model in models])


def find_methods(only: str | None) -> dict[str, Callable[[Material], Floats]]:
    """Our methods; or the one that is named, which may be one of a library."""
    if only is None:
        return METHODS
    from attribution_libraries import LIBRARIES

    known = METHODS | LIBRARIES
    if only not in known:
        raise UserError(f'there is no method "{only}"; there are {", ".join(known)}.')
    return {only: known[only]}


def score_methods(material: Material, only: str | None, removals: int, out: Path) -> list[Record]:
    """A row for each method."""
    rows: list[Record] = []
    for name, method in find_methods(only).items():
        started = process_time()
        scores = method(material)
        row = measure(material, name, scores) | {
            "cpu_seconds": round(process_time() - started, 1),
            "megabytes": round(getrusage(RUSAGE_SELF).ru_maxrss / 1024),
        }
        if removals:
            row["qld"] = measure_removals(material, scores, removals, out.parent / "removals")
        rows.append(row)
        keep_row(row, out)
    if len(material.bank.repeated) > 2 and only is None:
        rows.append(measure_ceiling(material))
        keep_row(rows[-1], out)
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--bank", type=Path, help="folder; without one there is no LDS")
    parser.add_argument("--questions", type=int, help="so many, of people in the text; no bank")
    parser.add_argument("--only", help="one method, also of a library", metavar="METHOD")
    parser.add_argument("--removals", type=int, default=0, help="answers of each kind for QLD")
    parser.add_argument("--kinds", type=int, help="only: so many answers, trained without a kind")
    parser.add_argument("--nats", action="store_true", help="only check the nats of trace")
    parser.add_argument("--out", type=Path, default="attribution.jsonl", help="JSON lines")
    args = parser.parse_args(arguments)
    learned = open_learned(args.run)
    bank = read_bank(args.bank) if args.bank else Bank(bank_questions(learned), [], [])
    if args.questions and not bank.models:
        order = np.random.default_rng(0).permutation(len(bank.questions))
        drawn = [bank.questions[i] for i in order if bank.questions[i]["seen"]][: args.questions]
        bank = Bank(drawn, [], [])
    material = Material(learned, bank)
    checks: dict[str, Callable[[], Record]] = {
        "nats": lambda: check_nats(material),
        "kinds": lambda: remove_kinds(material, args.kinds, args.out.parent / "kinds"),
    }
    wanted = [name for name in checks if getattr(args, name)]
    for name in wanted:
        row = {"name": f"attribution, {name}", "value": None, "found": checks[name]()}
        keep_row(row, args.out)
        print(json.dumps(row["found"], indent=2, ensure_ascii=False))
    if not wanted:
        rows = score_methods(material, args.only, args.removals, args.out)
        keys = ["name", "lds", "lds_unseen", "mrr", "first", "qld", "cpu_seconds", "megabytes"]
        print(table(keys, [[row.get(key, "") for key in keys] for row in rows]))


if __name__ == "__main__":
    raise SystemExit(run_main(main))
