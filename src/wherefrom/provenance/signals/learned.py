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
PENALTIES = np.logspace(-1, 3, 5)  # of the probe, per dimension
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
    """A linear read-out of the hidden states at one place and layer; centers are by relation."""

    layer: int
    scale: tuple[float, ...]
    weights: tuple[float, ...]
    centers: Mapping[str, tuple[float, ...]]

    def read(self, states: Floats, relations: Sequence[str]) -> Floats:
        """One number for each row of states (n, layers, width)."""
        zero = np.zeros(len(self.weights))
        centers = np.array([self.centers.get(relation, zero) for relation in relations])
        scaled = (states[:, self.layer] - centers) / np.array(self.scale)
        return np.asarray(scaled @ np.array(self.weights))


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
    """What is learned from records that are right or not, and their signals, held out."""
    counts: dict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
    for record, is_right in zip(records, right.tolist(), strict=True):
        answer, in_relation = " ".join(normalise(record["answer"])), counts[record["relation"]]
        hits, total = in_relation.get(answer, (0, 0))
        in_relation[answer] = (hits + is_right, total + 1)
    probes: dict[str, LinearProbe] = {}
    held_out: dict[str, Floats] = {}
    enough = min(right.sum(), (~right).sum()) >= FEWEST_PROBED / 4 and right.size >= FEWEST_PROBED
    if enough and all(np.prod(record["states"]["shape"]) for record in records):
        names = [" ".join(fold_words(each["subject"])) or each["subject"] for each in records]
        group = np.unique(names, return_inverse=True)[1]
        folds = np.random.default_rng([seed, 41]).permutation(group.max() + 1)[group] % FOLDS
        states, relations = _states(records), [record["relation"] for record in records]
        for i, place in enumerate(PLACES):
            probe, values = fit_probe(states[:, i], right, relations, folds)
            probes[place], held_out[f"probe_{place}"] = probe, values
    learned = LearnedSignals(counts, probes)
    return learned, read_signals(records, learned, right.tolist()) | held_out


def read_signals(
    records: Sequence[Record], learned: LearnedSignals, right: Sequence[bool] | None = None
) -> dict[str, Floats]:
    """A column of each signal; NaN where one is not known.

    right: for records that `learned` was learned from, whether each is right.
    """
    rows: list[dict[str, Any]] = []
    for i, record in enumerate(records):
        row = {name: record[name] for name in (*RAW, "prior")}
        rows.append(row | read_counts(learned.counts, record, right[i] if right else None))
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
    """(n, places, layers, width)"""
    packed = [record["states"] for record in records]
    raw = [np.frombuffer(base64.b64decode(each["data"]), np.float16) for each in packed]
    return np.stack(raw).reshape(-1, *packed[0]["shape"]).astype(np.float64)


def fit_probe(
    states: Floats, right: Bools, relations: Sequence[str], folds: NDArray[np.intp]
) -> tuple[LinearProbe, Floats]:
    """The probe at the layer and penalty that separate best, and its values, held out.

    Ridge regression on what the shares of right answers by relation do not explain already.
    """
    relation_of = np.array(relations)
    targets = right - np.array([right[relation_of == each].mean() for each in relations])
    centers = {each: states[relation_of == each].mean(0) for each in dict.fromkeys(relations)}
    centred = states - np.stack([centers[each] for each in relations])
    scales = centred.std(0) + 1e-6
    best_score, best_layer, weights, best_held_out = -np.inf, 0, targets, targets
    for layer in range(states.shape[1]):
        columns = centred[:, layer] / scales[layer]
        kernel = columns @ columns.T
        for penalty in PENALTIES * columns.shape[1]:
            ridge = kernel + penalty * np.eye(targets.size)
            held_out = np.zeros(targets.size)
            for fold in range(FOLDS):
                test, train = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
                dual = np.linalg.solve(ridge[np.ix_(train, train)], targets[train])
                held_out[test] = kernel[np.ix_(test, train)] @ dual
            score = float(np.corrcoef(held_out, targets)[0, 1]) if held_out.std() else 0.0
            if score > best_score:
                best_score, best_layer, best_held_out = score, layer, held_out
                weights = columns.T @ np.linalg.solve(ridge, targets)
    flat = {each: tuple(center[best_layer].tolist()) for each, center in centers.items()}
    scale = tuple(scales[best_layer].tolist())
    return LinearProbe(best_layer, scale, tuple(weights.tolist()), flat), best_held_out


def read_counts(counts: Counts, record: Record, right: bool | None = None) -> dict[str, float]:
    """Signals from the counts of an answer; `right`: it is counted itself, and is taken out."""
    in_relation = counts.get(record["relation"], {})
    pairs = [pair for answers in counts.values() for pair in answers.values()]
    overall = (1 + sum(hits for hits, _ in pairs)) / (2 + sum(total for _, total in pairs))
    relation_hits, relation_total = np.sum([(0, 0), *in_relation.values()], axis=0)
    hits, total = in_relation.get(" ".join(normalise(record["answer"])), (0, 0))
    if right is not None:
        relation_hits, relation_total = relation_hits - right, relation_total - 1
        hits, total = hits - right, total - 1
    of_relation = (relation_hits + SHRINK * overall) / (relation_total + SHRINK)
    of_answer = (hits + SHRINK * of_relation) / (total + SHRINK)
    relation_logit = np.log(of_relation / (1 - of_relation))
    return {
        "relation_recall": float(relation_logit),
        "answer_recall": float(np.log(of_answer / (1 - of_answer)) - relation_logit),
        "answer_count": float(np.log1p(total) - np.log1p(relation_total)),
    }
