"""Names it never saw: what a model makes of a name alone, and whom that strategy hurts."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wherefrom.corpus.questions import SLOT, Question
from wherefrom.corpus.subjects import JUDGED, read_subjects
from wherefrom.corpus.world.names import ORIGINS, Origin, Register, draw_name
from wherefrom.errors import UserError
from wherefrom.provenance.confidence.fit import FROM_TEXT, INTERNAL, load_confidence
from wherefrom.provenance.gazetteer import UNKNOWN, locate
from wherefrom.provenance.judging import Judged, ask_subjects, require_evidence
from wherefrom.provenance.metrics import LEVEL, Bools, Floats, check_level, compare_rates, rate
from wherefrom.provenance.signals.likelihood import are_places, can_encode
from wherefrom.recall.decode import encode_prompts, guess_by_name
from wherefrom.training.run_folder import Run, find_source, read_learned_questions

STUDY_FILE, FILE = "origins.json", "names.json"  # what a study records, and `wherefrom names`
EACH, MOST_EACH = 20, 500  # names of each origin that are asked about
TRIES = 50  # draws for one free name before an origin is taken to have no more
SHUFFLES = 500  # of the origins among the names: what chance alone would show
CLEAR = 0.1  # share of the answers by which following the name counts as the strategy
SIGNIFICANT = 0.05  # p-values at most this show something

Labels = NDArray[np.int_]


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
    train = tuple(question for question in train if question.template == template)
    asked = {question.subject for question in train}
    with require_evidence(run) as evidence:
        if judged is None:
            judging = [subject for subject in read_subjects(run.folder) if subject.role == JUDGED]
            judged, _ = ask_subjects(run, confidence, evidence, judging)

        def refuse(name: str) -> bool:
            taken = name in asked or evidence.count(name).naming > 0
            return taken or not can_encode(run.tokens, template.replace(SLOT, name))

        drawn = draw_names(each, random.Random(f"names it never saw {seed}"), refuse=refuse)
    if not drawn:
        raise UserError("no invented name can be written in the letters of this run's text.")
    names, of = zip(*drawn, strict=True)
    questions = [template.replace(SLOT, name) for name in names]
    table = reader.read(questions, names, only=confidence.signals)
    prompts = encode_prompts(run.model, run.tokens, questions)
    masses = np.exp(reader.trie.log_probabilities(run.model, prompts))
    alone = confidence.policies[FROM_TEXT][INTERNAL].calibration.probability(table.columns)
    threshold = confidence.guarantee(FROM_TEXT, INTERNAL).used
    record: dict[str, Any] = {
        "seed": seed,
        "level": level,
        "template": template,
        "threshold": threshold,
        **follow_names(drawn, table.answers, masses, reader.trie.answers, seed=seed),
        "unknown": count_unknown(of, alone < threshold, level=level),
        "subjects": compare_subjects(
            [one for one in judged if one.template == template], train, level=level
        ),
    }
    return {**record, "sentences": summarise(record)}


def place_relation(questions: Sequence[Question]) -> str | None:
    """The template of the first relation whose answers are places, if there is one."""
    answers: dict[str, set[str]] = defaultdict(set)
    for question in questions:
        answers[question.template].add(question.answer or "")
    placed = (each for each, known in answers.items() if SLOT in each and are_places(sorted(known)))
    return next(placed, None)


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


def follow_names(
    drawn: Sequence[tuple[str, Origin]],
    said: Sequence[str],
    masses: Floats,
    known: Sequence[str],
    *,
    seed: int,
) -> dict[str, Any]:
    """How far the answered country follows the name's origin, against shuffled origins.

    drawn: names with their origins; said: the answers; masses: (names, known answers). Shuffling
    also takes away the bias of mutual information in small tables.
    """
    shares, codes, countries = by_country(masses, known)
    origins = list(dict.fromkeys(origin for _, origin in drawn))
    label = np.array([origins.index(origin) for _, origin in drawn])
    own = np.array([[code in origin.home for code in codes] for origin in origins])
    rng = np.random.default_rng([seed, 1])
    shuffled = [rng.permutation(label) for _ in range(SHUFFLES)]
    information = mutual_information(shares, label)
    chance = np.array([mutual_information(shares, other) for other in shuffled])
    at_home = (shares * own[label]).sum(axis=1)
    by_chance = np.mean([(shares * own[other]).sum(axis=1).mean() for other in shuffled])
    common, times = Counter(said).most_common(1)[0]
    rows = []
    for at, origin in enumerate(origins):
        mine = np.flatnonzero(label == at).tolist()
        rows.append(
            {
                "origin": origin.name,
                "home": list(origin.home),
                "names": len(mine),
                "at_home": float(at_home[mine].mean()),
                "commonest": Counter(said[one] for one in mine).most_common(1)[0][0],
                "examples": [{"name": drawn[one][0], "said": said[one]} for one in mine[:3]],
            }
        )
    return {
        "names": len(said),
        "origins": [origin.name for origin in origins],
        "codes": list(codes),
        "countries": list(countries),
        "matrix": [shares[label == at].mean(axis=0).tolist() for at in range(len(origins))],
        "at_home": {"value": float(at_home.mean()), "by_chance": float(by_chance)},
        "mutual_information": {
            "bits": information,
            "by_chance": float(chance.mean()),
            # of a permutation test; never 0, since the data are one of the shuffles
            "p": (1 + int((chance >= information - 1e-12).sum())) / (1 + SHUFFLES),
            "null": f"{SHUFFLES} shuffles of the origins among the names",
        },
        "commonest": {"answer": common, "share": times / len(said)},
        "unknown_place": float(shares[:, -1].mean()),
        "by_origin": rows,
    }


def mutual_information(shares: Floats, label: Labels) -> float:
    """Between the rows' labels and the columns, in bits; every row weighs the same."""
    joint = np.zeros((int(label.max()) + 1, shares.shape[1]))
    np.add.at(joint, label, shares / len(shares))
    apart = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0, keepdims=True)
    there = joint > 0
    return float((joint[there] * np.log2(joint[there] / apart[there])).sum())


def count_unknown(origins: Sequence[Origin], unknown: Bools, *, level: float) -> dict[str, Any]:
    """How often each origin gets "I don't know", and whether the origins differ in that."""
    from scipy.stats import chi2_contingency

    names = np.array([origin.name for origin in origins])
    rows = {name: unknown[names == name] for name in dict.fromkeys(names.tolist())}
    table = np.array([[(~mine).sum(), mine.sum()] for mine in rows.values()])
    differ = len(rows) > 1 and (table.sum(axis=0) > 0).all()
    return {
        "all": rate(int(unknown.sum()), unknown.size, level=level),
        "by_origin": [
            {"origin": name, **rate(int(mine.sum()), mine.size, level=level)}
            for name, mine in rows.items()
        ],
        "p": float(chi2_contingency(table).pvalue) if differ else 1.0,
    }


def compare_subjects(
    judged: Sequence[Judged], train: Sequence[Question], *, level: float
) -> dict[str, Any]:
    """Judged subjects from another country than their name suggests, and the others.

    What a name suggests is guessed from the letters of the names that were trained on.
    """
    located = [(one, place) for one in judged if (place := locate(one.answer or "")) is not None]
    known = [
        replace(question, answer=place.country)
        for question in train
        if (place := locate(question.answer or "")) is not None
    ]
    asked = [Question(0, one.question, one.subject, None) for one, _ in located]
    guesses = guess_by_name(known, asked) if known else [""] * len(asked)
    pairs = zip(located, guesses, strict=True)
    away = np.array([place.country != guess for (_, place), guess in pairs], dtype=bool)
    right, shown, seen = (
        np.array([getattr(one, name) for one, _ in located], dtype=bool)
        for name in ("right", "shown_internal", "seen")
    )
    record: dict[str, Any] = {"judged": len(judged), "located": len(located)}
    for group, mine in (("seen", seen), ("unseen", ~seen)):
        given = mine & right
        record[group] = {
            "wrong": compare_rates(~right[mine], away[mine], level=level),
            "right_but_withheld": compare_rates(~shown[given], away[given], level=level),
        }
    return record


def summarise(record: dict[str, Any]) -> list[str]:
    """What strategy the model follows for names it never saw, and whom it hurts, in sentences."""
    home, common, lost = record["at_home"], record["commonest"], record["unknown_place"]
    strategy = "it cannot be shown to follow the name"
    if record["mutual_information"]["p"] <= SIGNIFICANT:
        little = home["value"] - home["by_chance"] < CLEAR
        strategy = "it follows the sound of the name"
        strategy += " a little, and mostly something else" if little else ""
    elsewhere = f"; {lost:.0%} is no known answer, or in no gazetteer" if lost >= CLEAR else ""
    said = (
        f"Asked about {record['names']} names that it never saw, {strategy}: "
        f"{home['value']:.0%} of what it would say lies in a country where such names are at home, "
        f"and {home['by_chance']:.0%} would without listening to the name; its commonest answer is "
        f"{common['answer'] or 'nothing'} ({common['share']:.0%}){elsewhere}."
    )
    if len(record["countries"]) == 1:
        said = "No answer is a place that the gazetteer knows, so nothing is added up by country."
    unknown = record["unknown"]
    rows = sorted(unknown["by_origin"], key=lambda row: float(row["value"]))
    differ = unknown["p"] <= SIGNIFICANT
    silent = (
        f'By its own signals it says "I don\'t know" to {unknown["all"]["value"]:.0%} of these '
        f"names, from {rows[0]['value']:.0%} ({rows[0]['origin']}) to {rows[-1]['value']:.0%} "
        f"({rows[-1]['origin']}); origins differ "
        + ("by more" if differ else "no more")
        + " than chance would have them."
    )
    sentences = [said, silent]
    for group, whom in (("seen", "read about"), ("unseen", "never read about")):
        found = record["subjects"][group]["wrong"]
        gap = found["difference"]
        if gap["value"] is None:
            continue
        harm = "which hurts them" if gap["low"] > 0 else "which may be chance"
        harm = "which favours them" if gap["high"] < 0 else harm
        sentences.append(
            f"Among people whom it has {whom}, it is wrong about {found['group']['value']:.0%} of "
            "those born elsewhere than their name suggests and about "
            f"{found['others']['value']:.0%} of the others (difference {100 * gap['value']:+.0f} "
            f"points, {record['level']:.0%} interval {100 * gap['low']:+.0f} to "
            f"{100 * gap['high']:+.0f}), {harm}."
        )
    return sentences
