"""Invented names: what a model answers from a name alone."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import islice
from typing import Any

import numpy as np

from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.questions import SLOT, Question
from wherefrom.corpus.world.names import ORIGINS, Origin, Register, draw_name, read_names
from wherefrom.errors import UserError
from wherefrom.provenance.confidence.fit import FROM_TEXT, INTERNAL, load_confidence
from wherefrom.provenance.gazetteer import UNKNOWN, locate
from wherefrom.provenance.judging import require_evidence
from wherefrom.provenance.metrics import LEVEL, Bools, Floats, check_level, share_with_interval
from wherefrom.provenance.signals.likelihood import are_places, can_encode, encode_known
from wherefrom.recall.decode import encode_prompts
from wherefrom.training.learned_files import find_source, read_learned_questions
from wherefrom.training.run_folder import Run

STUDY_FILE, FILE = "origins.json", "names.json"  # what a study records, and `wherefrom names`
EACH, MOST_EACH = 20, 500  # names of each origin that are asked about
MAX_DRAWS_PER_NAME = 50  # draws for one free name before an origin is taken to have no more
SHUFFLES = 500  # of the origins among the names: what chance alone would show
MIN_CLEAR_SHARE = 0.1  # share of the answers by which following the name counts as the strategy
MOST_NAMES_LOOKED_AT = 1_000  # to tell whether they are of people,
LEAST_WITH_GIVEN_NAME = 0.3  # which many of them show
SIGNIFICANT = 0.05  # p-values at most this show something


def probe_run(run: Run, *, each: int = EACH, level: float = LEVEL, seed: int = 0) -> dict[str, Any]:
    """Ask about `each` invented names of every origin; the record."""
    check_level(level, seed)
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
    reader = confidence.reader
    learned = {question.subject for question in train if question.template == template}
    with require_evidence(run) as evidence:

        def refuse(name: str) -> bool:
            taken = name in learned or evidence.count(name).naming > 0
            return taken or not can_encode(run.tokens, template.replace(SLOT, name))

        drawn = draw_names(each, random.Random(f"names it never saw {seed}"), refuse=refuse)
    if not drawn:
        raise UserError("no invented name can be written in the letters of this run's text.")
    names, origins = zip(*drawn, strict=True)
    questions = [template.replace(SLOT, name) for name in names]
    table = reader.read(questions, names, only=confidence.signals)
    prompts = encode_prompts(run.model, run.tokens, questions)
    known = encode_known(run.tokens, confidence.signal_state.known_answers)
    masses = np.exp(reader.model.score_known(prompts, list(known.values())))
    internal = confidence.policies[FROM_TEXT][INTERNAL].calibration.probability(table.columns)
    threshold = confidence.guarantee(FROM_TEXT, INTERNAL).used
    record: dict[str, Any] = {
        "seed": seed,
        "level": level,
        "template": template,
        "threshold": threshold,
        **follow_names(drawn, table.answers, masses, tuple(known), seed=seed),
        "unknown": count_unknown(origins, internal < threshold, level=level),
    }
    return {**record, "sentences": summarise(record)}


def place_relation(questions: Sequence[Question]) -> str | None:
    """The template that asks most questions of those whose answers are places, if there is one."""
    answers: dict[str, list[str]] = defaultdict(list)
    for question in questions:
        if not question.is_silent and SLOT in question.template:
            answers[question.template].append(question.answer or "")
    of_places = [template for template, known in answers.items() if are_places(sorted(set(known)))]
    return max(of_places, key=lambda template: len(answers[template]), default=None)


def are_people(subjects: Iterable[str]) -> bool:
    """Whether subjects have names of people: many begin with a given name of some origin."""
    names = [fold_words(subject) for subject in islice(subjects, MOST_NAMES_LOOKED_AT)]
    full = [name for name in names if len(name) > 1]
    given = _given_names()
    return sum(name[0] in given for name in full) >= LEAST_WITH_GIVEN_NAME * max(1, len(names))


@cache
def _given_names() -> frozenset[str]:
    """The given names of all origins, folded."""
    lists = (read_names(origin).given for origin in ORIGINS)
    several = (name for by_sex in lists for names in by_sex for name in names)
    return frozenset(fold_words(name)[0] for name in several if fold_words(name))


def draw_names(
    each: int, rng: random.Random, *, refuse: Callable[[str], bool] = lambda _: False
) -> list[tuple[str, Origin]]:
    """Up to `each` new names of every origin that `refuse` does not turn down."""
    register = Register()
    drawn = []
    for origin in ORIGINS:
        names = (draw_name(origin, register, rng).full for _ in range(each * MAX_DRAWS_PER_NAME))
        free = (name for name in names if not refuse(name))
        drawn += [(name, origin) for name in islice(free, each)]
    return drawn


def by_country(
    masses: Floats, answers: Sequence[str]
) -> tuple[Floats, tuple[str, ...], tuple[str, ...]]:
    """Shares (n, countries), codes and names, the heaviest first; what is left is UNKNOWN."""
    places = [locate(answer) for answer in answers]
    located = sorted({place for place in places if place is not None})
    shares = np.zeros((len(masses), len(located) + 1))
    for i, place in enumerate(places):
        if place is not None:
            shares[:, located.index(place)] += masses[:, i]
    shares[:, -1] = np.maximum(0.0, 1 - shares.sum(axis=1))
    shares /= shares.sum(axis=1, keepdims=True)
    order = [*np.argsort(-shares[:, :-1].sum(axis=0), kind="stable").tolist(), len(located)]
    codes, countries = zip(*([*located, ("", UNKNOWN)][i] for i in order), strict=True)
    return shares[:, order], codes, countries


def follow_names(
    drawn: Sequence[tuple[str, Origin]],
    answers: Sequence[str],
    masses: Floats,
    known: Sequence[str],
    *,
    seed: int,
) -> dict[str, Any]:
    """How far the answered country is one where such names are at home, against shuffled origins.

    drawn: names with their origins; masses: (names, known answers).
    """
    shares, codes, countries = by_country(masses, known)
    origins = list(dict.fromkeys(origin for _, origin in drawn))
    label = np.array([origins.index(origin) for _, origin in drawn])
    is_home = np.array([[code in origin.home for code in codes] for origin in origins])
    rng = np.random.default_rng([seed, 1])
    at_home = (shares * is_home[label]).sum(axis=1)
    by_chance = np.array(
        [(shares * is_home[rng.permutation(label)]).sum(axis=1).mean() for _ in range(SHUFFLES)]
    )
    commonest, times = Counter(answers).most_common(1)[0]
    rows = []
    for number, origin in enumerate(origins):
        members = np.flatnonzero(label == number).tolist()
        rows.append(
            {
                "origin": origin.name,
                "home": list(origin.home),
                "names": len(members),
                "at_home": float(at_home[members].mean()),
                "commonest": Counter(answers[i] for i in members).most_common(1)[0][0],
                "examples": [{"name": drawn[i][0], "said": answers[i]} for i in members[:3]],
            }
        )
    return {
        "names": len(answers),
        "origins": [origin.name for origin in origins],
        "codes": list(codes),
        "countries": list(countries),
        "matrix": [shares[label == i].mean(axis=0).tolist() for i in range(len(origins))],
        "at_home": {
            "value": float(at_home.mean()),
            "by_chance": float(by_chance.mean()),
            # of a permutation test; never 0, since the data are one of the shuffles
            "p": (1 + int((by_chance >= at_home.mean() - 1e-12).sum())) / (1 + SHUFFLES),
        },
        "commonest": {"answer": commonest, "share": times / len(answers)},
        "unknown_place": float(shares[:, -1].mean()),
        "by_origin": rows,
    }


def count_unknown(origins: Sequence[Origin], unknown: Bools, *, level: float) -> dict[str, Any]:
    """How often the model alone says "I don't know", in all and by origin."""
    names = np.array([origin.name for origin in origins])
    groups = {name: unknown[names == name] for name in dict.fromkeys(names.tolist())}
    return {
        "all": share_with_interval(int(unknown.sum()), unknown.size, level=level),
        "by_origin": [
            {"origin": name, **share_with_interval(int(group.sum()), group.size, level=level)}
            for name, group in groups.items()
        ],
    }


def summarise(record: dict[str, Any]) -> list[str]:
    """What strategy the model follows for names it never saw, in sentences."""
    home, common, lost = record["at_home"], record["commonest"], record["unknown_place"]
    strategy = "it cannot be shown to follow the name"
    if home["p"] <= SIGNIFICANT:
        little = home["value"] - home["by_chance"] < MIN_CLEAR_SHARE
        strategy = "it follows the sound of the name"
        strategy += " a little, and mostly something else" if little else ""
    elsewhere = (
        f"; {lost:.0%} is no known answer, or in no gazetteer" if lost >= MIN_CLEAR_SHARE else ""
    )
    commonest = f"{common['answer'] or 'nothing'} ({common['share']:.0%})"
    where = (
        f"Asked about {record['names']} names that it never saw, {strategy}: "
        f"{home['value']:.0%} of what it would say lies in a country where such names are at home, "
        f"and {home['by_chance']:.0%} would if the name made no difference (p = {home['p']:.3f}); "
        f"its commonest answer is {commonest}{elsewhere}."
    )
    if len(record["countries"]) == 1:
        nowhere = "No answer is a place that the gazetteer knows"
        where = f"{nowhere}, so nothing is added up by country."
    unknown = record["unknown"]
    rows = sorted(unknown["by_origin"], key=lambda row: float(row["value"]))
    silent = (
        f'By its own signals it says "I don\'t know" to {unknown["all"]["value"]:.0%} of these '
        f"names, from {rows[0]['value']:.0%} ({rows[0]['origin']}) to {rows[-1]['value']:.0%} "
        f"({rows[-1]['origin']})."
    )
    return [where, silent]
