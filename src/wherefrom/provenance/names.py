"""Names it never saw: what a model makes of a name alone, and whom that strategy hurts."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wherefrom.corpus.questions import SLOT, Question
from wherefrom.corpus.subjects import JUDGED, read_subjects
from wherefrom.corpus.world.names import ORIGINS, Origin, Register, draw_name, read_names
from wherefrom.errors import UserError
from wherefrom.provenance.confidence.fit import Confidence, load_confidence
from wherefrom.provenance.evidence.index import Evidence
from wherefrom.provenance.gazetteer import UNKNOWN, locate
from wherefrom.provenance.judging.judge import Judged, ask_subjects, require_evidence
from wherefrom.provenance.metrics import (
    LEVEL,
    Floats,
    check_level,
    compare_rates,
    rate,
)
from wherefrom.provenance.signals.known_answers import are_places, find_countries
from wherefrom.provenance.signals.likelihood import can_encode, encode_prompts
from wherefrom.recall.decode import guess_by_name
from wherefrom.training.run_folder import Run, find_source, read_learned_questions

STUDY_FILE, FILE = "origins.json", "names.json"  # what a study records, and `wherefrom names`
EACH, MOST_EACH = 20, 500  # names of each origin that are asked about
TRIES = 50  # draws for one free name before an origin is taken to have no more
SHUFFLES = 500  # of the origins among the names: what chance alone would show
LEARNED, HELD_OUT = 150, 0.2  # names of each origin, and share of words kept from the first fit
CLEAR = 0.1  # share of the answers by which following the name counts as the strategy
SIGNIFICANT = 0.05  # p-values at most this show something

Labels = NDArray[np.int_]


@dataclass(frozen=True, eq=False)
class NameAnswers:
    """What the model says of n invented names.

    label: (n) which of the origins each name has. shares: (n, countries) of the distribution over
    the known answers, rows sum to 1; the last country is UNKNOWN, for places in no gazetteer and
    for answers that the training questions do not have. said: the greedy answers.
    """

    names: tuple[str, ...]
    origins: tuple[Origin, ...]
    label: Labels
    said: tuple[str, ...]
    codes: tuple[str, ...]
    countries: tuple[str, ...]
    shares: Floats
    confidence: Floats


def probe_run(
    run: Run,
    *,
    judged: Sequence[Judged] | None = None,
    each: int = EACH,
    level: float = LEVEL,
    seed: int = 0,
) -> dict[str, Any]:
    """Ask about `each` invented names of every origin and look at the judged subjects; the record.

    `judged` are asked about if not given.
    """
    check_level(level)
    if not 1 <= each <= MOST_EACH:
        raise UserError(f"1 to {MOST_EACH} names of each origin can be asked about, not {each}.")
    source = find_source(run, "questions")
    train = read_learned_questions(source).questions if source else ()
    template = place_relation(train)
    if template is None:
        raise UserError(
            f"no questions of {run.folder} ask for places, each with a name that an invented one "
            "could replace; names looks at where a model puts people by their names."
        )
    confidence = load_confidence(run)
    train = tuple(question for question in train if question.template == template)
    with require_evidence(run) as evidence:
        if judged is None:
            asked = [subject for subject in read_subjects(run.folder) if subject.role == JUDGED]
            judged, _ = ask_subjects(run, confidence, evidence, asked)
        judged = [subject for subject in judged if subject.template == template]
        answers = ask_about_names(run, confidence, evidence, train, each=each, seed=seed)
    threshold = confidence.guarantee(checked=False).used
    record: dict[str, Any] = {
        "seed": seed,
        "level": level,
        "template": template,
        "threshold": threshold,
        **follow_names(answers, level=level, seed=seed),
        "unknown": count_unknown(answers, threshold, level=level, seed=seed),
        "people": compare_subjects(judged, train, level=level, seed=seed),
    }
    record["sentences"] = summarise(record)
    return record


def place_relation(questions: Sequence[Question]) -> str | None:
    """The template of the first relation whose answers are places, if there is one."""
    answers: dict[str, set[str]] = defaultdict(set)
    for question in questions:
        answers[question.template].add(question.answer or "")
    for template, known in answers.items():
        if SLOT in template and are_places(find_countries(sorted(known))):
            return template
    return None


def draw_names(
    each: int, rng: random.Random, *, refuse: Callable[[str], bool] = lambda _: False
) -> list[tuple[str, Origin]]:
    """Up to `each` new names of every origin; `refuse(name)` turns down what is not to be used."""
    register = Register()
    drawn = []
    for origin in ORIGINS:
        names = (draw_name(origin, register, rng).full for _ in range(each * TRIES))
        free = (name for name in names if not refuse(name))
        drawn += [(name, origin) for _, name in zip(range(each), free, strict=False)]
    return drawn


def ask_about_names(
    run: Run,
    confidence: Confidence,
    evidence: Evidence,
    train: Sequence[Question],
    *,
    each: int,
    seed: int,
) -> NameAnswers:
    """The exact distribution over the known answers for every name, by country."""
    template = train[0].template
    asked = {question.subject for question in train}

    def refuse(name: str) -> bool:
        taken = name in asked or evidence.count(name).naming > 0
        return taken or not can_encode(run.tokens, template.replace(SLOT, name))

    drawn = draw_names(each, random.Random(f"names it never saw {seed}"), refuse=refuse)
    if not drawn:
        raise UserError("no invented name can be written in the letters of this run's text.")
    names = [name for name, _ in drawn]
    origins = tuple(dict.fromkeys(origin for _, origin in drawn))
    questions = [template.replace(SLOT, name) for name in names]
    reader = confidence.reader
    table = reader.read(questions, names, only=confidence.signals)
    found = reader.trie.log_probabilities(
        run.model, encode_prompts(run.model, run.tokens, questions)
    )
    shares, codes, countries = by_country(np.exp(found), reader.trie.answers)
    return NameAnswers(
        names=tuple(names),
        origins=origins,
        label=np.array([origins.index(origin) for _, origin in drawn]),
        said=table.answers,
        codes=codes,
        countries=countries,
        shares=shares,
        confidence=confidence.policies["from_text"]["internal"].calibration.probability(
            table.columns
        ),
    )


def by_country(
    masses: Floats, answers: Sequence[str]
) -> tuple[Floats, tuple[str, ...], tuple[str, ...]]:
    """Shares (n, countries), codes and names, the heaviest first; what is left is UNKNOWN."""
    located = [locate(answer) for answer in answers]
    found = sorted({place for place in located if place is not None})
    shares = np.zeros((len(masses), len(found) + 1))
    for at, place in enumerate(located):
        if place is not None:
            shares[:, found.index(place)] += masses[:, at]
    shares[:, -1] = np.maximum(0.0, 1 - shares.sum(axis=1))
    shares /= shares.sum(axis=1, keepdims=True)
    order = [*np.argsort(-shares[:, :-1].sum(axis=0), kind="stable").tolist(), len(found)]
    codes, countries = zip(*([*found, ("", UNKNOWN)][at] for at in order), strict=True)
    return shares[:, order], codes, countries


def follow_names(answers: NameAnswers, *, level: float, seed: int) -> dict[str, Any]:
    """How far the answered country follows the name's origin, against shuffled origins.

    Both numbers are compared with what they become when the origins are dealt anew among the
    names, which takes away the bias of mutual information in small tables as well.
    """
    shares, label, said = answers.shares, answers.label, answers.said
    own = np.array([[code in origin.home for code in answers.codes] for origin in answers.origins])
    rng = np.random.default_rng([seed, 1])
    shuffled = [rng.permutation(label) for _ in range(SHUFFLES)]
    information = mutual_information(shares, label)
    chance = np.array([mutual_information(shares, other) for other in shuffled])
    at_home = (shares * own[label]).sum(axis=1)
    by_chance = np.array([(shares * own[other]).sum(axis=1).mean() for other in shuffled])
    draws = at_home[rng.integers(at_home.size, size=(1000, at_home.size))].mean(axis=1)
    low, high = np.quantile(draws, ((1 - level) / 2, (1 + level) / 2))
    common, times = Counter(said).most_common(1)[0]
    rows = [np.flatnonzero(label == at) for at in range(len(answers.origins))]
    return {
        "names": len(said),
        "origins": [origin.name for origin in answers.origins],
        "codes": list(answers.codes),
        "countries": list(answers.countries),
        "matrix": [shares[mine].mean(axis=0).tolist() for mine in rows],
        "at_home": {
            "value": float(at_home.mean()),
            "low": float(low),
            "high": float(high),
            "by_chance": float(by_chance.mean()),
            "p": _p_value(by_chance, float(at_home.mean())),
        },
        "mutual_information": {
            "bits": information,
            "by_chance": float(chance.mean()),
            "above_chance": information - float(chance.mean()),
            "p": _p_value(chance, information),
            "null": f"{SHUFFLES} shuffles of the origins among the names",
        },
        "commonest": {"answer": common, "share": times / len(said)},
        "unknown_place": float(shares[:, -1].mean()),
        "by_origin": [
            {
                "origin": origin.name,
                "home": list(origin.home),
                "names": len(mine),
                "at_home": float(at_home[mine].mean()),
                "commonest": Counter(said[at] for at in mine).most_common(1)[0][0],
                "examples": [{"name": answers.names[at], "said": said[at]} for at in mine[:3]],
            }
            for origin, mine in zip(answers.origins, rows, strict=True)
        ],
    }


def mutual_information(shares: Floats, label: Labels) -> float:
    """Between the rows' labels and the columns, in bits; every row weighs the same."""
    joint = np.zeros((int(label.max()) + 1, shares.shape[1]))
    np.add.at(joint, label, shares / len(shares))
    apart = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0, keepdims=True)
    there = joint > 0
    return float((joint[there] * np.log2(joint[there] / apart[there])).sum())


def _p_value(chance: Floats, value: float) -> float:
    """Of a permutation test; never 0, since the data are one of the shuffles."""
    return (1 + int((chance >= value - 1e-12).sum())) / (1 + chance.size)


def count_unknown(
    answers: NameAnswers, threshold: float, *, level: float, seed: int
) -> dict[str, Any]:
    """How often each origin gets "I don't know", and whether the origins differ in that."""
    unknown, label = answers.confidence < threshold, answers.label

    def spread(labels: Labels) -> float:
        return float((np.bincount(labels, weights=unknown) / np.bincount(labels)).std())

    rng = np.random.default_rng([seed, 2])
    chance = np.array([spread(rng.permutation(label)) for _ in range(SHUFFLES)])
    return {
        "all": rate(int(unknown.sum()), unknown.size, level=level),
        "by_origin": [
            {
                "origin": origin.name,
                **rate(int(unknown[label == at].sum()), int((label == at).sum()), level=level),
                "mean_confidence": float(answers.confidence[label == at].mean()),
            }
            for at, origin in enumerate(answers.origins)
        ],
        "spread": {
            "value": spread(label),
            "by_chance": float(chance.mean()),
            "p": _p_value(chance, spread(label)),
            "about": "standard deviation over the origins of the share told I don't know",
        },
    }


def compare_subjects(
    judged: Sequence[Judged], train: Sequence[Question], *, level: float, seed: int
) -> dict[str, Any]:
    """Judged subjects whose answer is in the gazetteer: easy and hard to guess, home and away."""
    pairs = [(one, locate(one.answer or "")) for one in judged]
    located = [(one, place) for one, place in pairs if place is not None]
    asked = [Question(0, one.question, one.subject, None) for one, _ in located]
    known = [
        replace(question, answer=place.country)
        for question in train
        if (place := locate(question.answer or "")) is not None
    ]
    guesses = guess_by_name(known, asked) if known else [""] * len(asked)
    named, accuracy = origin_names(seed)
    home = {origin.name: origin.home for origin in ORIGINS}
    origins = guess_by_name(named, asked)
    away, hard, right, shown, seen = (
        np.array(flags, dtype=np.bool_)
        for flags in (
            [p.country_code not in home[o] for (_, p), o in zip(located, origins, strict=True)],
            [p.country != guess for (_, p), guess in zip(located, guesses, strict=True)],
            [one.right for one, _ in located],
            [one.shown_internal for one, _ in located],
            [one.seen for one, _ in located],
        )
    )
    record: dict[str, Any] = {
        "judged": len(judged),
        "located": len(located),
        "origin_of_names": accuracy,
        "guess": "naive Bayes on the letters of the trained names, from name to country",
    }
    for group, mine in (("seen", seen), ("unseen", ~seen)):
        given = mine & right
        record[group] = {
            "elsewhere_and_at_home": {
                "wrong": compare_rates(~right[mine], away[mine], level=level),
                "right_but_withheld": compare_rates(~shown[given], away[given], level=level),
            },
            "hard_and_easy": {"wrong": compare_rates(~right[mine], hard[mine], level=level)},
        }
    return record


@cache
def origin_names(seed: int) -> tuple[list[Question], dict[str, Any]]:
    """Invented names with their origins as answers, and how well such tell those of others.

    The accuracy is that of names made of words that were kept from the ones to learn from.
    """
    rng = random.Random(f"origins of names {seed}")
    learned, unknown, everything = [], [], []
    for origin in ORIGINS:
        lists = read_names(origin)
        words = [sorted({*chain(*part)}) for part in (lists.given, lists.family)]
        mixed = [rng.sample(part, len(part)) for part in words]
        cuts = [max(1, round(len(part) * HELD_OUT)) for part in mixed]
        kept = [part[cut:] or part for part, cut in zip(mixed, cuts, strict=True)]
        held = [part[:cut] for part, cut in zip(mixed, cuts, strict=True)]
        learned += _combine(origin, kept, LEARNED, rng)
        unknown += _combine(origin, held, LEARNED // 5, rng)
        everything += _combine(origin, words, LEARNED, rng)
    guesses = guess_by_name(learned, unknown)
    hits = sum(one.answer == guess for one, guess in zip(unknown, guesses, strict=True))
    return everything, {
        "about": "naive Bayes on the letters of invented names; accuracy is "
        " measured on names made of words that it did not learn from",
        "exact": hits / len(unknown),
        "held_out": len(unknown),
        "origins": len(ORIGINS),
    }


def _combine(
    origin: Origin, words: Sequence[list[str]], each: int, rng: random.Random
) -> list[Question]:
    """Up to `each` names in which every word comes as often as every other, or not at all."""
    given, family = (rng.sample(part, len(part)) for part in words)
    count = min(each, max(len(given), len(family)))
    names = (f"{given[at % len(given)]} {family[at % len(family)]}" for at in range(count))
    return [Question(0, "", name, origin.name) for name in names]


def summarise(record: dict[str, Any]) -> list[str]:
    """What strategy the model follows for names it never saw, and whom it hurts, in sentences."""
    sentences = [_say_strategy(record), _say_unknown(record["unknown"])]
    compared = []
    for group, whom in (("seen", "read about"), ("unseen", "never read about")):
        found = record["people"][group]["elsewhere_and_at_home"]["wrong"]
        gap = found["difference"]
        if gap["value"] is None:
            continue
        harm = "which hurts them" if gap["low"] > 0 else "which may be chance"
        harm = "which favours them" if gap["high"] < 0 else harm
        compared.append(
            f"Among people whom it has {whom}, it is wrong about {found['group']['value']:.0%} of "
            "those born elsewhere than their name suggests and about "
            f"{found['others']['value']:.0%} of the others (difference {100 * gap['value']:+.0f} "
            f"points, {record['level']:.0%} interval {100 * gap['low']:+.0f} to "
            f"{100 * gap['high']:+.0f}), {harm}."
        )
    nobody = ["Nobody was judged whose birthplace and name could be compared."]
    return sentences + (compared or nobody)


def _say_strategy(record: dict[str, Any]) -> str:
    if len(record["countries"]) == 1:
        return "No answer is a place that the gazetteer knows, so nothing is added up by country."
    home, common, lost = record["at_home"], record["commonest"], record["unknown_place"]
    strategy = "it cannot be shown to follow the name"
    if record["mutual_information"]["p"] <= SIGNIFICANT:
        strategy = "it follows the sound of the name"
        if home["value"] - home["by_chance"] < CLEAR:
            strategy += " a little, and mostly something else"
    elsewhere = f"; {lost:.0%} is no known answer, or in no gazetteer" if lost >= CLEAR else ""
    return (
        f"Asked about {record['names']} names that it never saw, {strategy}: "
        f"{home['value']:.0%} of what it would say lies in a country where such names are at home, "
        f"and {home['by_chance']:.0%} would without listening to the name; its commonest answer is "
        f"{common['answer'] or 'nothing'} ({common['share']:.0%}){elsewhere}."
    )


def _say_unknown(unknown: dict[str, Any]) -> str:
    rows = [row for row in unknown["by_origin"] if row["value"] is not None]
    least, most = (pick(rows, key=lambda row: row["value"]) for pick in (min, max))
    said = f'By its own signals it says "I don\'t know" to {unknown["all"]["value"]:.0%} of these '
    if least["value"] == most["value"]:
        return said + "names, whatever their origin."
    said += (
        f"names, from {least['value']:.0%} ({least['origin']}) to {most['value']:.0%} "
        f"({most['origin']}); "
    )
    if unknown["spread"]["p"] <= SIGNIFICANT:
        return said + "origins differ by more than chance, so abstaining is itself biased."
    return said + "origins differ no more than chance would have them."
