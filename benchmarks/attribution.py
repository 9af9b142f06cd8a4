"""How far scores of lines can be believed, judged by models that were really retrained.

    python benchmarks/bank.py RUN --out BANK --models 32 --repeats 8
    python benchmarks/attribution.py RUN --bank BANK [--patch] [--libraries] [--kinds]
    python benchmarks/attribution.py RUN [--flips 50] [--out FILE.jsonl]
    python benchmarks/attribution.py RUN --bank BANK_OF_LINES --nats

One row per method, intervals of 95 % over questions:

    LDS          Spearman's correlation, over the halves, of the sum of a method's scores of what
                 was kept with log p of the answer by the model that was retrained; mean over
                 questions, of people in the text and of others. The ceiling replaces the sum by
                 the log p of a model that was retrained on the same half from another start.
    MRR, R@10    mean reciprocal rank, and share in the first ten, of the subject's own lines, of
                 answers that are right
    tail-patch   nats that log p of the answer gains from one step on its five top lines
    flips        by gradient: right answers that change without the top line, made-up ones that
                 change without the top 20 lines, and both without random ones
    kinds        what made-up answers owe to all lines of a kind (`trace --unseen`)
    nats         how the nats that `trace` prints agree with a bank that leaves out lines, 5 % at
                 once: slope and R^2, coverage of the 90 % intervals, and the multiples that nats.py
                 would have if they were measured on this bank
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bank import Bank, ask_twin, bank_questions, read_bank
from numpy.typing import NDArray
from rows import Record, keep_row, run_main, say, table
from scipy.stats import spearmanr

from wherefrom.corpus.folding import fold_words
from wherefrom.provenance.attribution.nats import (
    OTHER_BOUNDS,
    QUANTILES,
    STATED_BOUNDS,
    push_shares,
    to_nats,
)
from wherefrom.provenance.attribution.retraining import (
    LearnedRun,
    answer_row,
    likelihoods,
    open_learned,
)
from wherefrom.provenance.attribution.trace import NOTHING, Tracer, find_stating
from wherefrom.training.run_folder import Run, load_run
from wherefrom.training.sources import stream_for

Floats = NDArray[np.float64]
SHARE = 0.075  # of all lines, left out of one training for several answers at once
TOP = {"right": 1, "made up": 20}  # lines that are left out for one answer
PATCH_LINES, PATCH_LENGTH = 5, 0.05  # of a tail-patch: lines, and the length of the step


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


def by_hidden_state(material: Material) -> Floats:
    """Cosine of the mean last hidden states of question with answer, and of document."""
    run = material.run

    def states(texts: Sequence[str]) -> Any:
        rows = []
        for ids in run.tokens.encode_all(list(texts)):
            cut = torch.tensor([ids[: run.model.config.longest_input]])
            with torch.inference_mode():
                rows.append(run.model.hidden(cut)[0].mean(0))
        return torch.nn.functional.normalize(torch.stack(rows), dim=1)

    asked = states([f"{question} {answer}" for question, answer in material.rows])
    read = states([document.text for document in material.learned.documents])
    return np.asarray((asked @ read.T).numpy(), dtype=np.float64)


def by_gradient(material: Material, chosen: Sequence[int] | None = None) -> Floats:
    """`wherefrom trace`, of all questions or of those that were chosen."""
    tracer = Tracer(material.run, say=say)
    rows = material.bank.questions
    asked = range(len(rows)) if chosen is None else chosen
    return np.array(
        [
            tracer.scores(*(rows[at][key] for key in ("question", "subject", "answer")))
            for at in asked
        ]
    )


def by_question_alone(material: Material) -> Floats:
    """The gradient of the question's row alone, without windows of the text."""
    tracer = Tracer(material.run, say=say)
    index = tracer.index
    rows = [answer_row(material.run, *row) for row in material.rows]
    return np.array([index.scores(material.run.model, [row]) for row in rows])


METHODS: dict[str, Callable[[Material], Floats]] = {
    "look-up by name": by_name,
    "BM25": by_words,
    "hidden states": by_hidden_state,
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


def tail_patch(material: Material, scores: Floats, most: int = 40) -> Floats:
    """What log p of each of some right answers gains from one step on its top lines."""
    learned, run = material.learned, material.run
    data = learned.data
    stream = stream_for(run.job.phases[-1], data, [1])
    rows: dict[int, list[Any]] = {}
    for part in (part for batch in stream.pool(0) for part in batch.parts):
        for ids, weights, source in zip(part.ids, part.weights, part.sources, strict=True):
            for document in data.documents_of(source):
                rows.setdefault(document, []).append((ids, weights))
    gains = []
    for at in np.flatnonzero(material.right)[:most]:
        model = deepcopy(run.model)
        top = np.argsort(-scores[at])[:PATCH_LINES]
        for ids, weights in (row for document in top for row in rows.get(int(document), ())):
            logits = model(ids[None, :-1])[0]
            losses = torch.nn.functional.cross_entropy(logits, ids[1:], reduction="none")
            (losses * weights[1:]).sum().backward()
        moved = [p for p in model.parameters() if p.grad is not None]
        length = torch.stack([p.grad.square().sum() for p in moved]).sum().sqrt()  # type: ignore[union-attr]
        with torch.no_grad():
            for p in moved:
                p -= PATCH_LENGTH * p.grad / length.clamp(min=1e-12)
        patched = Run(**{**vars(run), "model": model})
        question, answer = material.rows[at]
        after, before = (likelihoods(each, [question], [answer])[0] for each in (patched, run))
        gains.append(after - before)
    return np.array(gains)


def ask_without(material: Material, lines: Sequence[int], folder: Path) -> Record:
    """What a model trained without some lines says; kept in a file, and not trained twice."""
    without, path = sorted({int(line) for line in lines}), folder / "flips.jsonl"
    run = material.run.record.sha256
    for text in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        row: Record = json.loads(text)
        if row["without"] == without and row["run"] == run:
            return row
    row = {"run": run, **ask_twin(material.learned, material.bank.questions, without, folder / "t")}
    folder.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row, ensure_ascii=False) + "\n")
    say(f"trained without {len(without)} lines")
    return row


def changes(material: Material, said: Record, asked: Sequence[int]) -> Floats:
    """(asked, 2): whether an answer changes, and by how many nats its log p falls."""
    rows = material.bank.questions
    ours = likelihoods(material.run, *zip(*(material.rows[at] for at in asked), strict=True))
    return np.array(
        [
            [said["answers"][at] != rows[at]["answer"], log_p - said["log_probability"][at]]
            for at, log_p in zip(asked, ours, strict=True)
        ],
        dtype=float,
    )


def count_flips(material: Material, most: int, folder: Path) -> Record:
    """How many answers change without their top lines, and without as many random ones.

    The top lines of several answers are left out of one training while they are few of all lines;
    `others` are answers of the same kind whose own top lines were left out of another training.
    """
    rng = np.random.default_rng(0)
    lines = np.array([document.line for document in material.learned.documents])
    asked = {
        kind: rng.permutation(np.flatnonzero(which))[:most]
        for kind, which in (("right", material.right), ("made up", ~material.seen))
    }
    tops = {
        kind: np.argsort(-by_gradient(material, each), axis=1)[:, : TOP[kind]]
        for kind, each in asked.items()
    }
    groups = ceil(sum(each.size for each in tops.values()) / (SHARE * len(lines)))
    found: dict[str, list[Floats]] = {}
    size = 0
    for group in range(groups):
        gone = np.unique(np.concatenate([each[group::groups].flatten() for each in tops.values()]))
        said = ask_without(material, lines[gone], folder)
        size = max(size, len(gone))
        for kind, each in asked.items():
            own = each[group::groups]
            for key, which in ((f"top {TOP[kind]}", own), ("others", np.setdiff1d(each, own))):
                if len(which):
                    found.setdefault(f"{kind}, {key}", []).append(changes(material, said, which))
    free = np.flatnonzero(~material.own[asked["right"]].any(0))
    said = ask_without(material, lines[rng.choice(free, size, replace=False)], folder)
    for kind, each in asked.items():
        found[f"{kind}, {size} random"] = [changes(material, said, each)]
    return {key: summary(np.concatenate(parts)) for key, parts in found.items()}


def summary(values: Floats) -> Record:
    return {
        "answers": len(values),
        "changed": interval(values[:, 0]),
        "nats": interval(values[:, 1]),
    }


def weigh_kinds(material: Material) -> Record:
    """Nats of log p that made-up answers owe to all lines of a kind, by the bank's models.

    For each answer the slope of log p over the share of its lines of the kind that a model kept;
    the mean over answers has the variance of that share as weight.
    """
    kept = material.bank.kept(material.learned.documents)
    said = np.array([row["log_probability"] for row in material.bank.models])
    places = {row["question"]: at for at, row in enumerate(material.bank.questions)}
    slopes: dict[str, list[tuple[float, float, int]]] = {}
    for subject, _, _, kinds in Tracer(material.run, say=say).trace_unseen():
        log_p = said[:, places[subject.question]]
        for kind in set(kinds.tolist()) - {NOTHING}:  # all halves have the same size
            share = kept[:, kinds == kind].mean(axis=1)
            if share.var() > 0:
                product = float(np.mean((share - share.mean()) * log_p))
                pair = product, float(share.var()), int((kinds == kind).sum())
                slopes.setdefault(kind, []).append(pair)
    found = {}
    for kind, pairs in slopes.items():
        table = np.array(pairs)
        drawn = np.random.default_rng(0).integers(len(table), size=(1000, len(table)))
        low, high = np.quantile(np.divide(*table[drawn].sum(axis=1)[:, :2].T), [0.025, 0.975])
        nats = [
            round(float(each), 2) for each in (table[:, 0].sum() / table[:, 1].sum(), low, high)
        ]
        found[kind] = {"answers": len(table), "lines": float(table[:, 2].mean()), "nats": nats}
    return found


@dataclass(frozen=True)
class LeftOutLine:
    """A top line of an answer that one model of a bank was trained without."""

    is_stated: bool
    is_own: bool
    is_right: bool
    share: float
    gain: float
    push: float  # nats, as retraining has it


def left_out_lines(material: Material, top: int = 5) -> list[LeftOutLine]:
    """The top lines of all answers, each with the push that the bank's model without it tells.

    Lines that were left out together with another line about the subject, or with another top
    line, do not count: their pushes cannot be told apart.
    """
    documents, bank = material.learned.documents, material.bank
    tracer, rows = Tracer(material.run, say=say), []
    place_of = {document.line: i for i, document in enumerate(documents)}
    without = [{place_of[line] for line in model["without"]} for model in bank.models]
    stating = find_stating(documents, [row["answer"] for row in bank.questions])
    for at, row in enumerate(bank.questions):
        asked = row["question"], row["subject"], row["answer"]
        scores, gain = tracer.scores(*asked), tracer.gain(*asked)
        first = np.argsort(-scores)[:top].tolist()
        own = set(np.flatnonzero(material.own[at]).tolist())
        is_stated = bool(own & stating.get(fold_words(row["answer"]), set()))
        for model, gone in zip(bank.models, without, strict=True):
            found = gone & set(first)
            if len(found) != 1 or gain is None or (gone & own) - found:
                continue
            (place,) = found
            push = row["log_probability"] - model["log_probability"][at]
            share = float(push_shares(scores)[place])
            right = bool(material.right[at])
            rows.append(LeftOutLine(is_stated, place in own, right, share, gain, push))
    return rows


def check_nats(material: Material) -> Record:
    """How far the nats of nats.py hold on a bank that leaves out lines."""
    rows, found = left_out_lines(material), {}
    groups = {
        "stated": [row for row in rows if row.is_stated],
        "stated, own lines": [row for row in rows if row.is_stated and row.is_own],
        "others": [row for row in rows if not row.is_stated],
    }
    for name, group in groups.items():
        pushes = np.array([row.push for row in group])
        told = np.array([to_nats(r.share, r.gain, is_stated=r.is_stated) for r in group])
        low, middle, high = told.T
        found[name] = {
            "lines": len(group),
            "slope": round(float(middle @ pushes / (middle @ middle)), 3),
            "r_squared": round(float(np.corrcoef(middle, pushes)[0, 1] ** 2), 3),
            "covered": interval(((low <= pushes) & (pushes <= high)).astype(float)),
            "below": round(float((pushes < low).mean()), 3),
            "median_error": round(float(np.median(np.abs(pushes - middle))), 2),
        }
    for is_stated, bounds in ((True, STATED_BOUNDS), (False, OTHER_BOUNDS)):
        group = [row for row in rows if row.is_stated == is_stated]
        bins = np.searchsorted(bounds[:-1], [row.share for row in group], side="right")
        ratios = np.array([row.push / max(row.gain, 0.1) for row in group])
        found[f"multiples, {'stated' if is_stated else 'others'}"] = [
            [int((bins == i).sum()), *np.round(np.quantile(ratios[bins == i], QUANTILES), 3)]
            for i in range(len(bounds))
            if (bins == i).any()
        ]
    return found


def measure(material: Material, name: str, scores: Floats) -> Record:
    """One row of the table."""
    bank = material.bank
    kept = bank.kept(material.learned.documents)
    truth = np.array([row["log_probability"] for row in bank.models])
    lds, ranks = correlate(kept @ scores.T, truth), own_ranks(material, scores)
    seen, right = material.seen, material.right
    value = interval(lds[seen])
    return {
        "name": f"attribution, {name}",
        "value": value[0] if value else None,
        "unit": "LDS, people in the text",
        "lds": value,
        "lds_unseen": interval(lds[~seen]),
        "mrr": interval(1 / ranks[right]),
        "recall_at_10": interval((ranks[right] <= 10).astype(float)),
        "models": len(bank.models),
        "questions": {"seen": int(seen.sum()), "unseen": int((~seen).sum())},
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--bank", type=Path, help="folder; without one there is no LDS")
    parser.add_argument("--flips", type=int, default=0, help="answers of each kind to flip")
    parser.add_argument("--kinds", action="store_true", help="also nats of each kind of line")
    parser.add_argument("--nats", action="store_true", help="only check the nats of trace")
    parser.add_argument("--patch", action="store_true", help="also tail-patch")
    parser.add_argument("--libraries", action="store_true", help="also TrackStar, EK-FAC and TRAK")
    parser.add_argument("--out", type=Path, default="attribution.jsonl", help="JSON lines")
    args = parser.parse_args(arguments)
    learned = open_learned(load_run(args.run))
    bank = read_bank(args.bank) if args.bank else Bank(bank_questions(learned), [], [])
    material = Material(learned, bank)
    if args.bank and not args.nats:
        methods = dict(METHODS)
        if args.libraries:
            from attribution_libraries import LIBRARIES, find_libraries

            find_libraries()
            methods = LIBRARIES | methods
        score_methods(material, methods, args.out, patch=args.patch)
    found = {"nats": check_nats(material)} if args.bank and args.nats else {}
    if args.flips:
        found["flips"] = count_flips(material, args.flips, args.out.parent / "flips")
    if args.bank and args.kinds:
        found["kinds of lines"] = weigh_kinds(material)
    for title, record in found.items():
        keep_row({"name": f"attribution, {title}", "value": None, "found": record}, args.out)
        print(json.dumps(record, indent=2, ensure_ascii=False))


def score_methods(
    material: Material,
    methods: dict[str, Callable[[Material], Floats]],
    out: Path,
    *,
    patch: bool,
) -> None:
    """The table of LDS, ranks and tail-patch."""
    rows: list[Record] = []

    def keep(row: Record) -> None:
        rows.append(row)
        keep_row(row, out)

    for name, method in methods.items():
        scores = method(material)
        row = measure(material, name, scores)
        if patch:
            row["tail_patch"] = interval(tail_patch(material, scores))
        keep(row)
    if len(material.bank.repeated) > 2:
        by_number = {row["number"]: row["log_probability"] for row in material.bank.models}
        first = np.array([by_number[row["number"]] for row in material.bank.repeated])
        again = np.array([row["log_probability"] for row in material.bank.repeated])
        ceiling, seen = correlate(first, again), material.seen
        value = interval(ceiling[seen])
        row = {"name": "attribution, ceiling", "value": value[0], "unit": "LDS", "lds": value}
        keep({**row, "lds_unseen": interval(ceiling[~seen]), "models": len(again)})
    keys = ("name", "lds", "lds_unseen", "mrr", "recall_at_10", "tail_patch")
    print(table(keys, [[row.get(key, "") for key in keys] for row in rows]))


if __name__ == "__main__":
    raise SystemExit(run_main(main))
