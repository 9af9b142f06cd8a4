"""Signals of records, some of which are learned from the subjects that calibrate.

Learned are how often answers to a relation, and this very answer, are right, and linear probes of
hidden states. For the subjects that they are learned from they are held out.
"""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wherefrom.corpus.folding import fold_words
from wherefrom.provenance.metrics import Bools, Floats
from wherefrom.provenance.signals.prompted import Record, normalise

PLACES = ("name", "prompt", "answer")  # whose last tokens' hidden states are probed
PENALTIES = np.logspace(-1, 3, 5)  # of a probe, per dimension
FOLDS = 5
SHRINK = 4.0  # answers that a relation's share of right ones counts for, beside an answer's own
FEWEST_PROBED = 40  # subjects that fit, for probes, a quarter of them right and a quarter wrong
# +1: more of it speaks for a right answer; the first ones stand in the records as they are
RAW = {
    "log_probability": 1,
    "first_log_probability": 1,
    "margin": 1,
    "entropy": -1,
    "known_mass": 1,
    "known_entropy": -1,
    "known_gap": 1,
    "is_known": 1,
    "other_log_probability": 1,
    "other_margin": 1,
    "name_likelihood": 1,
}
COUNTED = {"relation_recall": 1, "answer_recall": 1, "answer_count": -1}
SIGNS = {**RAW, "lift": 1, **COUNTED, **{f"probe_{place}": 1 for place in PLACES}}
# what others would use, tuned on the same subjects
RIVALS = {"greedy likelihood": (("log_probability",), "log p of the model's own answer")}
Counts = Mapping[str, Mapping[str, tuple[int, int]]]


@dataclass(frozen=True)
class LinearProbe:
    """A linear read-out of the hidden states of all layers at one place; offsets: by relation."""

    weights: tuple[float, ...]
    offsets: Mapping[str, float]

    def read(self, states: Floats, relations: Sequence[str]) -> Floats:
        """One number for each row of states (n, layers * width)."""
        usual = float(np.mean([*self.offsets.values()]))
        offsets = [self.offsets.get(relation, usual) for relation in relations]
        return np.asarray(states @ np.array(self.weights) - offsets)


@dataclass(frozen=True)
class LearnedSignals:
    """What is learned from calibrating subjects: counts of right and of all answers, and probes.

    counts: by relation and answer. probes: by place.
    """

    counts: Counts
    probes: Mapping[str, LinearProbe]


def learn_signals(
    records: Sequence[Record], right: Bools, seed: int
) -> tuple[LearnedSignals, dict[str, Floats]]:
    """What is learned from records that are right or not, and their signals held out by subject."""
    names = [" ".join(fold_words(each["subject"])) or each["subject"] for each in records]
    group = np.unique(names, return_inverse=True)[1]
    folds = np.random.default_rng([seed, 41]).permutation(group.max() + 1)[group] % FOLDS
    relations = [record["relation"] for record in records]
    probes: dict[str, LinearProbe] = {}
    held_out: dict[str, Floats] = {}
    enough = min(right.sum(), (~right).sum()) >= FEWEST_PROBED / 4 and right.size >= FEWEST_PROBED
    if enough and all(np.prod(record["states"]["shape"]) for record in records):
        states = _states(records)
        for i, place in enumerate(PLACES):
            probe, values = fit_probe(states[:, i], right, relations, folds)
            probes[place], held_out[f"probe_{place}"] = probe, values
    learned = LearnedSignals(count_answers(records, right), probes)
    columns = read_signals(records, learned) | held_out
    for fold in range(FOLDS):
        others = np.flatnonzero(folds != fold)
        counts = count_answers([records[i] for i in others], right[others])
        for i in np.flatnonzero(folds == fold):
            for name, value in read_counts(counts, records[i]).items():
                columns[name][i] = value
    return learned, columns


def count_answers(records: Sequence[Record], right: Bools) -> Counts:
    """By relation and answer, how many are right, and how many there are."""
    counts: dict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
    for record, is_right in zip(records, right.tolist(), strict=True):
        answer, in_relation = " ".join(normalise(record["answer"])), counts[record["relation"]]
        hits, total = in_relation.get(answer, (0, 0))
        in_relation[answer] = (hits + is_right, total + 1)
    return counts


def read_signals(records: Sequence[Record], learned: LearnedSignals) -> dict[str, Floats]:
    """A column of each signal; NaN where one is not known."""
    rows: list[dict[str, Any]] = [
        {name: record[name] for name in (*RAW, "prior")} | read_counts(learned.counts, record)
        for record in records
    ]
    names = rows[0] if rows else ()
    columns = {name: np.array([row[name] for row in rows], dtype=np.float64) for name in names}
    columns["lift"] = columns["log_probability"] - columns.pop("prior")
    columns |= {f"probe_{place}": np.full(len(records), np.nan) for place in PLACES}
    if learned.probes:
        states, relations = _states(records), [record["relation"] for record in records]
        for i, place in enumerate(PLACES):
            columns[f"probe_{place}"] = learned.probes[place].read(states[:, i], relations)
    return columns


def _states(records: Sequence[Record]) -> Floats:
    """(n, places, layers * width)"""
    packed = [record["states"] for record in records]
    raw = [np.frombuffer(base64.b64decode(each["data"]), np.float16) for each in packed]
    return np.stack(raw).reshape(len(raw), len(PLACES), -1).astype(np.float64)


def fit_probe(
    states: Floats, right: Bools, relations: Sequence[str], folds: NDArray[np.intp]
) -> tuple[LinearProbe, Floats]:
    """The probe at the penalty that separates best, and its values, held out.

    Ridge regression on what the shares of right answers by relation do not explain already. All
    layers are read together: to choose one of many by the same few rows would flatter it.
    """
    relation_of = np.array(relations)
    distinct = list(dict.fromkeys(relations))
    targets = right - np.array([right[relation_of == each].mean() for each in relations])
    centers = {each: states[relation_of == each].mean(0) for each in distinct}
    centred = states - np.stack([centers[each] for each in relations])
    scale = centred.std(0) + 1e-6
    columns = centred / scale
    kernel = columns @ columns.T
    best_score, best_penalty, best_held_out = -np.inf, 1.0, np.zeros(targets.size)
    for penalty in PENALTIES * columns.shape[1]:
        ridge = kernel + penalty * np.eye(targets.size)
        held_out = np.zeros(targets.size)
        for fold in range(FOLDS):
            test, train = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
            dual = np.linalg.solve(ridge[np.ix_(train, train)], targets[train])
            held_out[test] = kernel[np.ix_(test, train)] @ dual
        score = float(np.corrcoef(held_out, targets)[0, 1]) if held_out.std() else 0.0
        if score > best_score:
            best_score, best_penalty, best_held_out = score, float(penalty), held_out
    dual = np.linalg.solve(kernel + best_penalty * np.eye(targets.size), targets)
    weights = columns.T @ dual / scale
    offsets = {each: float(centers[each] @ weights) for each in distinct}
    return LinearProbe(tuple(weights.tolist()), offsets), best_held_out


def read_counts(counts: Counts, record: Record) -> dict[str, float]:
    """Signals from the counts of an answer, which do not hold the answer itself."""
    in_relation = counts.get(record["relation"], {})
    pairs = [pair for answers in counts.values() for pair in answers.values()]
    overall = (1 + sum(hits for hits, _ in pairs)) / (2 + sum(total for _, total in pairs))
    relation_hits, relation_total = np.sum([(0, 0), *in_relation.values()], axis=0)
    hits, total = in_relation.get(" ".join(normalise(record["answer"])), (0, 0))
    of_relation = (relation_hits + SHRINK * overall) / (relation_total + SHRINK)
    of_answer = (hits + SHRINK * of_relation) / (total + SHRINK)
    relation_logit = np.log(of_relation / (1 - of_relation))
    return {
        "relation_recall": float(relation_logit),
        "answer_recall": float(np.log(of_answer / (1 - of_answer)) - relation_logit),
        "answer_count": float(np.log1p(total) - np.log1p(relation_total)),
    }
