"""From what a model gave away to signals: one number of each kind for every answer.

Some signals are learned from the subjects that fit the confidence: how often answers of a relation
are right, how often this very answer is, and a linear probe of the hidden states. What such a
signal says of those subjects themselves leaves them out, as it does of everybody else.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wherefrom.audit.asking import normalise, unpack
from wherefrom.audit.models import SAMPLES
from wherefrom.corpus.folding import fold_words
from wherefrom.provenance.metrics import Bools, Floats

PLACES = ("name", "prompt", "answer")  # whose last tokens' hidden states are probed
PENALTIES = np.logspace(-1, 3, 5)  # of the probe, per dimension
FOLDS = 5
SHRINK = 4.0  # answers that a relation's share of right ones counts for, beside those of an answer
FEWEST = 40  # subjects that fit, of whom a quarter right and a quarter wrong, for probes
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
SIGNS = {
    **RAW,
    "lift": 1,
    "relation_recall": 1,
    "answer_recall": 1,
    "answer_count": -1,
    **{f"probe_{place}": 1 for place in PLACES},
}
# what others would use, each tuned on the same subjects
RIVALS = {
    "greedy likelihood": (("log_probability",), "log p of the model's own answer"),
    "semantic entropy": (("semantic_entropy",), f"of {SAMPLES} samples that mean the same or not"),
    "P(True)": (("p_true",), "the model asked whether its answer is right, behind examples"),
}
COUNTED = ("relation_recall", "answer_recall", "answer_count")
Record = Mapping[str, Any]


@dataclass(frozen=True)
class Probe:
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
class Counts:
    """How answers of the fitting subjects fared, by relation and by answer: right ones, all."""

    relations: Mapping[str, tuple[int, int]]
    answers: Mapping[str, Mapping[str, tuple[int, int]]]


@dataclass(frozen=True)
class Learned:
    """What signals were learned from the subjects that fit the confidence."""

    counts: Counts
    probes: Mapping[str, Probe]


def learn_signals(
    records: Sequence[Record], right: Bools, fits: Bools, seed: int
) -> tuple[Learned, dict[str, Floats]]:
    """What is learned from those that fit, and the signals of all; held out for those that fit."""
    rows = np.flatnonzero(fits)
    fitting = [each for each, fit in zip(records, fits, strict=True) if fit]
    counts = count_answers(fitting, right[rows])
    probes: dict[str, Probe] = {}
    held_out: dict[str, Floats] = {}
    enough = min(right[rows].sum(), (~right[rows]).sum()) >= FEWEST / 4 and rows.size >= FEWEST
    if enough and all(np.prod(each["states"]["shape"]) for each in records):
        folds = group_folds([each["subject"] for each in fitting], seed)
        states, relations = read_states(fitting), [each["relation"] for each in fitting]
        for at, place in enumerate(PLACES):
            found = fit_probe(states[:, at], right[rows], relations, folds)
            probes[place], held_out[f"probe_{place}"] = found
    learned = Learned(counts, probes)
    own = [bool(hit) if fit else None for hit, fit in zip(right, fits, strict=True)]
    columns = read_signals(records, learned, own)
    for name, values in held_out.items():
        columns[name][rows] = values
    return learned, columns


def read_signals(
    records: Sequence[Record], learned: Learned, own: Sequence[bool | None] | None = None
) -> dict[str, Floats]:
    """A column of each signal, and of those of the rivals; NaN where one is not known.

    own: of records that `learned` was learned from, whether they are right.
    """
    none = [None] * len(records)
    found = {name: [each[name] for each in records] for name in (*RAW, "prior", "p_true")}
    counted = [
        read_counts(learned.counts, each, mine)
        for each, mine in zip(records, own or none, strict=True)
    ]
    found |= {name: [each[name] for each in counted] for name in COUNTED}
    columns = {name: np.array(values, dtype=np.float64) for name, values in found.items()}
    columns["lift"] = columns["log_probability"] - columns.pop("prior")
    columns["semantic_entropy"] = np.array([semantic_entropy(e["samples"]) for e in records])
    relations = [each["relation"] for each in records]
    states = read_states(records) if learned.probes and records else None
    for at, place in enumerate(PLACES):
        probe = learned.probes.get(place)
        columns[f"probe_{place}"] = (
            np.full(len(records), np.nan)
            if probe is None or states is None
            else probe.read(states[:, at], relations)
        )
    return columns


def semantic_entropy(samples: Sequence[str]) -> float:
    """Of the answers that were drawn, those that `normalise` to the same taken together; nats."""
    if not samples:
        return float("nan")
    shares = np.array(list(Counter(map(normalise, samples)).values())) / len(samples)
    return float(-(shares * np.log(shares)).sum())


def read_states(records: Sequence[Record]) -> Floats:
    """(n, places, layers, width)"""
    return np.stack([unpack(each["states"]) for each in records]).astype(np.float64)


def group_folds(subjects: Sequence[str], seed: int) -> NDArray[np.intp]:
    """A fold for each row, the same for all rows of a subject."""
    names = [" ".join(fold_words(subject)) or subject for subject in subjects]
    group = np.unique(names, return_inverse=True)[1]
    drawn = np.random.default_rng([seed, 41]).permutation(group.max() + 1) % FOLDS
    return np.asarray(drawn[group])


def fit_probe(
    states: Floats, right: Bools, relations: Sequence[str], folds: NDArray[np.intp]
) -> tuple[Probe, Floats]:
    """The probe at the layer and penalty that separate best, and what it says held out.

    Ridge regression on what relation and overall share do not explain already.
    """
    hits = right - np.array([right[np.array(relations) == one].mean() for one in relations])
    kinds = np.array(relations)
    centers = {one: states[kinds == one].mean(0) for one in dict.fromkeys(relations)}
    centred = states - np.stack([centers[one] for one in relations])
    best: tuple[float, int, float, Floats] = (-np.inf, 0, 1.0, np.zeros(right.size))
    for layer in range(states.shape[1]):
        columns = centred[:, layer] / (centred[:, layer].std(0) + 1e-6)
        kernel = columns @ columns.T
        for penalty in PENALTIES * columns.shape[1]:
            held_out = np.empty(right.size)
            for fold in range(FOLDS):
                out, rest = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
                inside = kernel[np.ix_(rest, rest)] + penalty * np.eye(rest.size)
                held_out[out] = kernel[np.ix_(out, rest)] @ np.linalg.solve(inside, hits[rest])
            score = float(np.corrcoef(held_out, hits)[0, 1]) if held_out.std() else 0.0
            if score > best[0]:
                best = (score, layer, float(penalty), held_out)
    _, layer, penalty, held_out = best
    scale = centred[:, layer].std(0) + 1e-6
    columns = centred[:, layer] / scale
    kernel = columns @ columns.T + penalty * np.eye(right.size)
    weights = columns.T @ np.linalg.solve(kernel, hits)
    flat = {one: tuple(each[layer].tolist()) for one, each in centers.items()}
    return Probe(layer, tuple(scale.tolist()), tuple(weights.tolist()), flat), held_out


def count_answers(records: Sequence[Record], right: Bools) -> Counts:
    relations: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    answers: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
    for record, hit in zip(records, right.tolist(), strict=True):
        said = " ".join(normalise(record["answer"]))
        for entry in (relations[record["relation"]], answers[record["relation"]][said]):
            entry[0] += hit
            entry[1] += 1
    return Counts(
        {one: (hits, all_) for one, (hits, all_) in relations.items()},
        {
            one: {said: (hits, all_) for said, (hits, all_) in each.items()}
            for one, each in answers.items()
        },
    )


def read_counts(counts: Counts, record: Record, own: bool | None = None) -> dict[str, float]:
    """What the counts say of an answer; `own`: it is among them itself, right or not."""
    hits, total = counts.relations.get(record["relation"], (0, 0))
    said = " ".join(normalise(record["answer"]))
    here, many = counts.answers.get(record["relation"], {}).get(said, (0, 0))
    if own is not None:
        hits, total, here, many = hits - own, total - 1, here - own, many - 1
    overall = (1 + sum(h for h, _ in counts.relations.values())) / (
        2 + sum(t for _, t in counts.relations.values())
    )
    share = (hits + SHRINK * overall) / (total + SHRINK)
    answer = (here + SHRINK * share) / (many + SHRINK)
    return {
        "relation_recall": float(np.log(share / (1 - share))),
        "answer_recall": float(np.log(answer / (1 - answer)) - np.log(share / (1 - share))),
        "answer_count": float(np.log1p(many) - np.log1p(total)) if total else 0.0,
    }
