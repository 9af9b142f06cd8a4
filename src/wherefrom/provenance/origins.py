"""Names it never saw: what a model makes of a name alone, and whom that strategy hurts.

Invented names of many origins are asked about. What the model would say is added up by country: if
it listens to the sound of a name, the countries follow the name's origin. Then the judged people:
those born where their name is at home against those born elsewhere. Everything is a record, so
that a report or a page can draw it without a model.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from wherefrom.corpus.people import JUDGED, read_people
from wherefrom.corpus.questions import SLOT, Question
from wherefrom.errors import UserError
from wherefrom.provenance.answers import Bools, Floats
from wherefrom.provenance.confidence import Confidence, load_confidence
from wherefrom.provenance.gazetteer import UNKNOWN
from wherefrom.provenance.intervals import LEVEL, check_level
from wherefrom.provenance.judgement import Judged
from wherefrom.provenance.judging import ask_people, require_evidence, trained_questions
from wherefrom.provenance.likelihood import can_encode, encode_prompts
from wherefrom.provenance.lines import EvidenceReader
from wherefrom.provenance.name_origins import NamedOrigin, draw_names
from wherefrom.provenance.origin_people import Countries, compare_people, tell
from wherefrom.provenance.proportions import rate
from wherefrom.provenance.verdicts import find_threshold
from wherefrom.storage import write_json
from wherefrom.training.run import Run

if TYPE_CHECKING:
    from wherefrom.corpus.world.origins import Origin

FILE = "origins.json"
EACH = 20
MOST_EACH = 500
SHUFFLES = 500  # of the origins among the names: what chance alone would show


@dataclass(frozen=True, eq=False)
class Said:
    """What the model says of the invented names: shares by country, and its greedy answers.

    shares: (names, countries), rows sum to 1; the last country is UNKNOWN, for places in no
    gazetteer and for answers that the training questions do not have.
    """

    names: tuple[NamedOrigin, ...]
    greedy: tuple[str, ...]
    codes: tuple[str, ...]
    countries: tuple[str, ...]
    shares: Floats
    confidence: Floats


def probe_run(run: Run, *, each: int = EACH, level: float = LEVEL, seed: int = 0) -> dict[str, Any]:
    """The probe on a finished study, with all that it needs read from the run folder."""
    check_probe(run, each, level)
    confidence = load_confidence(run)
    train = trained_questions(run)
    asked = [person for person in read_people(run.folder) if person.role == JUDGED]
    with require_evidence(run) as evidence:
        judged, _ = ask_people(run, confidence, evidence, asked)
        return probe_origins(
            run, confidence, evidence, judged, train, each=each, level=level, seed=seed
        )


def probe_origins(
    run: Run,
    confidence: Confidence,
    evidence: EvidenceReader,
    judged: Sequence[Judged],
    train: Sequence[Question],
    *,
    each: int = EACH,
    level: float = LEVEL,
    seed: int = 0,
    report: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Ask about `each` invented names of every origin, look at the judged people, and record it."""
    check_probe(run, each, level)
    threshold = find_threshold(confidence, checked=False).value
    countries = Countries()
    said = ask_about_names(
        run, confidence, evidence, train, countries, each=each, seed=seed, report=report
    )
    record: dict[str, Any] = {
        "seed": seed,
        "level": level,
        "template": run.template,
        "threshold": threshold,
        **follow_names(said, level=level, seed=seed),
        "unknown": count_unknown(said, threshold, level=level, seed=seed),
        "people": compare_people(judged, train, countries, level=level, seed=seed),
    }
    record["sentences"] = tell(record)
    return record


def check_probe(run: Run, each: int, level: float) -> None:
    """Refuse what cannot be probed before anything is computed."""
    check_level(level, 1)
    if not 1 <= each <= MOST_EACH:
        raise UserError(f"1 to {MOST_EACH} names of each origin can be asked about, not {each}.")
    if run.template is None:
        raise UserError(
            f"the questions of {run.folder} share no wording into which an invented name could be "
            "put; names needs a run whose questions were read by a template."
        )


def write_origins(run: Run, record: dict[str, Any]) -> None:
    write_json(run.folder / FILE, record)


def ask_about_names(
    run: Run,
    confidence: Confidence,
    evidence: EvidenceReader,
    train: Sequence[Question],
    countries: Countries,
    *,
    each: int,
    seed: int,
    report: Callable[[int], None] | None = None,
) -> Said:
    """The exact distribution over the known answers for every name, by country."""
    template = run.template or SLOT
    asked = {question.subject for question in train}

    def refuse(name: str) -> bool:
        taken = name in asked or evidence.count(name).naming > 0
        return taken or not can_encode(run.tokens, template.replace(SLOT, name))

    names = draw_names(each, random.Random(f"names it never saw {seed}"), refuse=refuse)
    if not names:
        raise UserError("no invented name can be written in the letters of this run's text.")
    subjects = [one.name for one in names]
    questions = [template.replace(SLOT, subject) for subject in subjects]
    reader = confidence.reader
    table = reader.read(questions, subjects, only=confidence.signals, report=report)
    trie = reader.trie
    found = trie.distribution(run.model, encode_prompts(run.model, run.tokens, questions))
    shares, codes, known = by_country(np.exp(found.log_probabilities), trie.answers, countries)
    return Said(
        names=tuple(names),
        greedy=table.answers,
        codes=codes,
        countries=known,
        shares=shares,
        confidence=confidence.internal_probability(table),
    )


def by_country(
    masses: Floats, answers: Sequence[str], countries: Countries
) -> tuple[Floats, tuple[str, ...], tuple[str, ...]]:
    """Shares (n, countries), codes and names, the heaviest first; what is left is UNKNOWN."""
    located = [countries(answer) for answer in answers]
    found = sorted({place for place in located if place is not None})
    column = {place: at for at, place in enumerate(found)}
    shares = np.zeros((len(masses), len(found) + 1))
    for at, place in enumerate(located):
        if place is not None:
            shares[:, column[place]] += masses[:, at]
    shares[:, -1] = np.maximum(0.0, 1 - shares.sum(axis=1))
    shares /= shares.sum(axis=1, keepdims=True)
    order = [*np.argsort(-shares[:, :-1].sum(axis=0), kind="stable").tolist(), len(found)]
    named = [*found, ("", UNKNOWN)]
    return (
        shares[:, order],
        tuple(named[at][0] for at in order),
        tuple(named[at][1] for at in order),
    )


def follow_names(said: Said, *, level: float, seed: int) -> dict[str, Any]:
    """How far the answered country follows the name's origin, against shuffled origins.

    Both numbers are compared with what they become when the origins are dealt anew among the
    names, which takes away the bias of mutual information in small tables as well.
    """
    origins = list(dict.fromkeys(one.origin for one in said.names))
    label = np.array([origins.index(one.origin) for one in said.names])
    own = np.array([[code in origin.home for code in said.codes] for origin in origins])
    rng = np.random.default_rng([seed, 1])
    shuffled = [rng.permutation(label) for _ in range(SHUFFLES)]
    information = mutual_information(said.shares, label)
    chance = np.array([mutual_information(said.shares, other) for other in shuffled])
    at_home = (said.shares * own[label]).sum(axis=1)
    by_chance = np.array([(said.shares * own[other]).sum(axis=1).mean() for other in shuffled])
    draws = at_home[rng.integers(at_home.size, size=(1000, at_home.size))].mean(axis=1)
    low, high = np.quantile(draws, ((1 - level) / 2, (1 + level) / 2))
    common, times = Counter(said.greedy).most_common(1)[0]
    return {
        "names": len(said.names),
        "origins": [origin.name for origin in origins],
        "codes": list(said.codes),
        "countries": list(said.countries),
        "matrix": [said.shares[label == at].mean(axis=0).tolist() for at in range(len(origins))],
        "at_home": {
            "value": float(at_home.mean()),
            "low": float(low),
            "high": float(high),
            "by_chance": float(by_chance.mean()),
            "p": _share_at_least(by_chance, float(at_home.mean())),
        },
        "mutual_information": {
            "bits": information,
            "by_chance": float(chance.mean()),
            "above_chance": information - float(chance.mean()),
            "p": _share_at_least(chance, information),
            "null": f"{SHUFFLES} shuffles of the origins among the names",
        },
        "commonest": {"answer": common, "share": times / len(said.greedy)},
        "unknown_place": float(said.shares[:, -1].mean()),
        "by_origin": [
            _describe(origin, label == at, at_home, said) for at, origin in enumerate(origins)
        ],
    }


def _describe(origin: Origin, mine: Bools, at_home: Floats, said: Said) -> dict[str, Any]:
    rows = np.flatnonzero(mine)
    common, _ = Counter(said.greedy[at] for at in rows).most_common(1)[0]
    return {
        "origin": origin.name,
        "home": list(origin.home),
        "names": len(rows),
        "at_home": float(at_home[mine].mean()),
        "commonest": common,
        "examples": [{"name": said.names[at].name, "said": said.greedy[at]} for at in rows[:3]],
    }


def mutual_information(shares: Floats, label: NDArray[np.int_]) -> float:
    """Between the rows' labels and the columns, in bits; every row weighs the same."""
    joint = np.zeros((int(label.max()) + 1, shares.shape[1]))
    np.add.at(joint, label, shares / len(shares))
    apart = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0, keepdims=True)
    there = joint > 0
    return float((joint[there] * np.log2(joint[there] / apart[there])).sum())


def _share_at_least(chance: Floats, value: float) -> float:
    """The p-value of a permutation test; never 0, since the data are one of the shuffles."""
    return (1 + int((chance >= value - 1e-12).sum())) / (1 + chance.size)


def count_unknown(said: Said, threshold: float, *, level: float, seed: int) -> dict[str, Any]:
    """How often each origin is told "I don't know", and whether the origins differ in that."""
    unknown = said.confidence < threshold
    origins = list(dict.fromkeys(one.origin.name for one in said.names))
    label = np.array([origins.index(one.origin.name) for one in said.names])

    def spread(labels: NDArray[np.int_]) -> float:
        rates = np.bincount(labels, weights=unknown) / np.bincount(labels)
        return float(rates.std())

    rng = np.random.default_rng([seed, 2])
    chance = np.array([spread(rng.permutation(label)) for _ in range(SHUFFLES)])
    rows = [
        {
            "origin": origin,
            **rate(int(unknown[label == at].sum()), int((label == at).sum()), level=level),
            "mean_confidence": float(said.confidence[label == at].mean()),
        }
        for at, origin in enumerate(origins)
    ]
    return {
        "all": rate(int(unknown.sum()), unknown.size, level=level),
        "by_origin": rows,
        "spread": {
            "value": spread(label),
            "by_chance": float(chance.mean()),
            "p": _share_at_least(chance, spread(label)),
            "about": "standard deviation over the origins of the share told I don't know",
        },
    }
