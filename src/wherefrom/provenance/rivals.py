"""What our confidence is compared with: methods of others, and controls that know next to nothing.

The controls know only which relation is asked, or only what the name looks like. An AUROC that
they reach too is no evidence that a model gives anything away. Every rival is fitted on the rows
that our own probability of *right* is fitted on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.split import HeldOutQuestion
from wherefrom.provenance import metrics
from wherefrom.provenance.answers import Row
from wherefrom.provenance.confidence import fit
from wherefrom.provenance.confidence.threshold import find_threshold
from wherefrom.provenance.metrics import Bools, Bootstrap, Floats, ScoredAnswers
from wherefrom.provenance.signals.reader import Rivals

RELATION_ONLY, NAME_ONLY = "relation only", "name only"
NGRAM_LENGTHS = (2, 3)
NGRAM_COLUMNS = 128  # into which the n-grams of a name are hashed
MOST_RELATIONS = 50  # that the first control tells apart
LENGTH_STEP = 3  # letters; names whose lengths fall into the same step are alike
NAME_COLUMNS = (
    "name letters",
    "name words",
    "name tokens",
    *(f"name n-gram {i}" for i in range(NGRAM_COLUMNS)),
)
Columns = Mapping[str, Floats]


class Score(NamedTuple):
    """One method: its probability that each answer is right, and which answers it shows.

    reason: why the threshold is not guaranteed, if it is not.
    """

    name: str
    about: str
    values: Floats
    given: Bools
    threshold: float = 0.0
    reason: str | None = None
    ours: bool = False


def control_rivals(relations: Sequence[str]) -> Rivals:
    """The two controls, for these relations."""
    indicators = tuple(f"asks {relation}" for relation in relations[:MOST_RELATIONS])
    return {
        RELATION_ONLY: (indicators, "a control: knows only which relation is asked"),
        NAME_ONLY: (NAME_COLUMNS, "a control: knows only the letters and tokens of the name"),
    }


def control_columns(
    questions: Sequence[tuple[str, str]],
    relations: Sequence[str],
    count_tokens: Callable[[str], int],
) -> dict[str, Floats]:
    """What the controls know of each question, which is its subject and its relation."""
    names, asked = [name for name, _ in questions], np.array([each for _, each in questions])
    columns = {
        f"asks {relation}": (asked == relation).astype(float)
        for relation in relations[:MOST_RELATIONS]
    }
    described = {name: describe_name(name, count_tokens(name)) for name in dict.fromkeys(names)}
    table = np.array([described[name] for name in names]).reshape(-1, len(NAME_COLUMNS))
    return columns | dict(zip(NAME_COLUMNS, table.T, strict=True))


def describe_name(name: str, tokens: int) -> Floats:
    """The length of a name in letters, words and tokens, and how often each n-gram occurs."""
    row = np.zeros(len(NAME_COLUMNS))
    row[:3] = len(name), len(name.split()), tokens
    for word in name.lower().split():
        ended = f" {word} "
        for length in NGRAM_LENGTHS:
            for start in range(len(ended) - length + 1):
                row[3 + crc32(ended[start : start + length].encode()) % NGRAM_COLUMNS] += 1
    return row


def rival_scores(
    rivals: Rivals,
    judged: Columns,
    calibration: Columns,
    subjects: Sequence[HeldOutQuestion],
    right: Bools,
    *,
    risk: float,
) -> list[Score]:
    """The rivals whose signals are known, each fitted on the subjects that our own fit has.

    judged, calibration: columns of signals. subjects, right: of the calibration.
    """
    scores, graded = [], fit.has_grade(subjects)
    for name, (signals, about) in rivals.items():
        columns = {signal: x for signal, x in calibration.items() if signal in signals}
        if len(columns) < len(signals) or not columns:
            continue
        known = np.asarray(np.isfinite([*columns.values()]).all(axis=0)) & graded
        if not known.any():
            continue
        fitted, held_out = fit.fit_held_out(subjects, columns, right, rows=known, seed=0)
        testers = fit.choose_testers(subjects, held_out, right, known, seed=0)
        found = find_threshold(testers, risk=risk)
        values = fitted.probability({signal: judged[signal] for signal in columns})
        given = values >= found.used
        scores.append(Score(name, about, values, given, found.used, found.reason))
    return scores


def within_relations(values: Floats, correct: Bools, relations: Sequence[str]) -> dict[str, Any]:
    """The mean of the AUROCs within each relation, which knowing the relation cannot raise.

    Relations whose answers are all right or all wrong have none.
    """
    relation_of = np.array(relations)
    found = []
    for relation in dict.fromkeys(relations):
        rows = relation_of == relation
        value = metrics.measure(metrics.auroc, ScoredAnswers(values[rows], correct[rows]))["value"]
        if value is not None:
            found.append(value)
    if not found:
        return metrics.as_metric(reason="in every relation all answers are right or all are wrong.")
    return metrics.as_metric(float(np.mean(found)))


def tell_seen(
    calibration: tuple[Sequence[HeldOutQuestion], Columns],
    judged: tuple[Sequence[Row], Columns],
    p_seen: Floats,
    origins: Mapping[str, str],
    bootstrap: Bootstrap,
) -> dict[str, Any]:
    """How well seen subjects are told from unseen ones by our signals, and by their names alone.

    calibration, judged: subjects and their columns. p_seen: of the judged, by our signals. origins:
    of names, where they are known. `matched` is the same among as many seen as unseen names of
    each origin, length, number of words and number of tokens.
    """
    subjects, columns = calibration
    rows, row_columns = judged
    names = {name: columns[name] for name in NAME_COLUMNS}
    is_seen = np.array([subject.seen for subject in subjects], dtype=bool)
    seen = np.array([row["seen"] for row in rows], dtype=bool)
    fitted, _ = fit.fit_held_out(subjects, names, is_seen, seed=0)
    by_name = fitted.probability({name: row_columns[name] for name in NAME_COLUMNS})
    of_rows = [row["subject"] for row in rows]
    matched = match_names(of_rows, seen, row_columns["name tokens"], origins)

    def measure(values: Floats, chosen: Bools) -> metrics.Metric:
        answers = ScoredAnswers(values[chosen], seen[chosen])
        return bootstrap.measure({"auroc": metrics.auroc}, answers)["auroc"]

    everyone = np.ones_like(seen)
    return {
        "internal": measure(p_seen, everyone),
        NAME_ONLY: measure(by_name, everyone),
        "matched": {
            "questions": int(matched.sum()),
            "internal": measure(p_seen, matched),
            NAME_ONLY: measure(by_name, matched),
        },
    }


def match_names(
    names: Sequence[str], seen: Bools, tokens: Floats, origins: Mapping[str, str]
) -> Bools:
    """Rows with as many seen as unseen names of each kind, the first of each."""
    kinds: dict[tuple[Any, ...], dict[bool, list[str]]] = defaultdict(lambda: defaultdict(list))
    first = {name: i for i, name in reversed(list(enumerate(names)))}
    for name, i in sorted(first.items(), key=lambda pair: pair[1]):
        origin = origins.get(" ".join(fold_words(name)), "")
        kind = (origin, len(name) // LENGTH_STEP, len(name.split()), int(tokens[i]))
        kinds[kind][bool(seen[i])].append(name)
    chosen: set[str] = set()
    for by_seen in kinds.values():
        count = min(len(by_seen[True]), len(by_seen[False]))
        chosen.update(by_seen[True][:count], by_seen[False][:count])
    return np.array([name in chosen for name in names], dtype=bool)
