"""Names it never saw: what a model makes of a name alone, and whom that strategy hurts."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from wherefrom.corpus.questions import SLOT, Question
from wherefrom.corpus.subjects import JUDGED, read_subjects
from wherefrom.corpus.world.names import ORIGINS, Origin, Register, draw_name, read_names
from wherefrom.errors import UserError
from wherefrom.provenance.confidence.fit import Confidence, load_confidence
from wherefrom.provenance.evidence.index import Evidence
from wherefrom.provenance.gazetteer import UNKNOWN, read_gazetteer
from wherefrom.provenance.judging.judge import (
    Judged,
    ask_people,
    require_evidence,
    trained_questions,
)
from wherefrom.provenance.judging.metrics import (
    LEVEL,
    Bools,
    Floats,
    check_level,
    compare_rates,
    rate,
)
from wherefrom.provenance.signals.likelihood import can_encode, encode_prompts
from wherefrom.provenance.verdicts import find_threshold
from wherefrom.recall.baselines import guess_by_name
from wherefrom.storage import write_json
from wherefrom.training.run_folder import Run

EACH = 150  # names of each origin that the classifier learns from
HELD_OUT = 0.2  # share of given and of family names that the first fit does not see
TRIES = 50  # draws for one free name before an origin is taken to have no more


@dataclass(frozen=True)
class NamedOrigin:
    """An invented name and where it comes from."""

    name: str
    origin: Origin


@dataclass(frozen=True)
class OriginGuesser:
    """Naive Bayes on the letters of a name, with its accuracy on names made of unknown words.

    exact: share of held-out names given their own origin; home: share given an origin that has
    a country in common with it (American and English, German and French ...).
    """

    classifier: Any
    exact: float
    home: float
    held_out: int

    def guess(self, names: Sequence[str]) -> list[Origin]:
        by_name = {origin.name: origin for origin in ORIGINS}
        return [by_name[str(found)] for found in self.classifier.predict(list(names))]

    def to_dict(self) -> dict[str, float | int | str]:
        return {
            "about": "naive Bayes on the letters of invented names, every origin equally likely; "
            "accuracy is measured on names made of words that it did not learn from",
            "exact": self.exact,
            "shares_a_country": self.home,
            "held_out": self.held_out,
            "origins": len(ORIGINS),
        }


def draw_names(
    each: int, rng: random.Random, *, refuse: Callable[[str], bool] = lambda _: False
) -> list[NamedOrigin]:
    """Up to `each` new names of every origin; `refuse(name)` turns down what is not to be used."""
    register = Register()
    drawn = []
    for origin in ORIGINS:
        left, tries = each, each * TRIES
        while left and tries:
            tries -= 1
            name = draw_name(origin, register, rng).full
            if not refuse(name):
                drawn.append(NamedOrigin(name, origin))
                left -= 1
    return drawn


@cache
def fit_guesser(seed: int, *, each: int = EACH) -> OriginGuesser:
    """Fit twice: on a part of the words, to be judged on the others, then on all of them.

    Cached: the lists are constants.
    """
    rng = random.Random(f"origins of names {seed}")
    learned: list[NamedOrigin] = []
    unknown: list[NamedOrigin] = []
    for origin in ORIGINS:
        known, other = _split_words(origin, rng)
        learned += _combine(origin, known, each, rng)
        unknown += _combine(origin, other, max(1, each // 5), rng)
    judged = OriginGuesser(_fit(learned), 0.0, 0.0, 0)
    guesses = judged.guess([one.name for one in unknown])
    pairs = [(one.origin, guess) for one, guess in zip(unknown, guesses, strict=True)]
    everything = [one for o in ORIGINS for one in _combine(o, _words(o), each, rng)]
    return OriginGuesser(
        classifier=_fit(everything),
        exact=sum(own == guess for own, guess in pairs) / len(pairs),
        home=sum(not own.home.keys().isdisjoint(guess.home) for own, guess in pairs) / len(pairs),
        held_out=len(pairs),
    )


def _fit(names: Sequence[NamedOrigin]) -> Any:
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.naive_bayes import MultinomialNB
    from sklearn.pipeline import make_pipeline

    classifier = make_pipeline(
        CountVectorizer(analyzer="char_wb", ngram_range=(1, 4), lowercase=True),
        MultinomialNB(alpha=0.1, fit_prior=False),
    )
    return classifier.fit([one.name for one in names], [one.origin.name for one in names])


Words = tuple[list[str], list[str]]  # given names, family names


def _words(origin: Origin) -> Words:
    lists = read_names(origin)
    return (
        sorted({*lists.given[0], *lists.given[1]}),
        sorted({*lists.family[0], *lists.family[1]}),
    )


def _split_words(origin: Origin, rng: random.Random) -> tuple[Words, Words]:
    kept, held = [], []
    for words in _words(origin):
        rng.shuffle(words)
        cut = max(1, round(len(words) * HELD_OUT))
        held.append(words[:cut])
        kept.append(words[cut:] or words[:cut])
    return (kept[0], kept[1]), (held[0], held[1])


def _combine(origin: Origin, words: Words, each: int, rng: random.Random) -> list[NamedOrigin]:
    """Up to `each` names in which every word comes as often as every other, or not at all."""
    given, family = (rng.sample(part, len(part)) for part in words)
    count = min(each, max(len(given), len(family)))
    pairs = (f"{given[at % len(given)]} {family[at % len(family)]}" for at in range(count))
    return [NamedOrigin(name, origin) for name in pairs]


if TYPE_CHECKING:
    from wherefrom.corpus.world.names import Origin

FILE = "origins.json"
ORIGINS_EACH = 20
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


def probe_run(
    run: Run, *, each: int = ORIGINS_EACH, level: float = LEVEL, seed: int = 0
) -> dict[str, Any]:
    """The probe on a finished study, with all that it needs read from the run folder."""
    check_probe(run, each, level)
    confidence = load_confidence(run)
    train = trained_questions(run)
    asked = [person for person in read_subjects(run.folder) if person.role == JUDGED]
    with require_evidence(run) as evidence:
        judged, _ = ask_people(run, confidence, evidence, asked)
        return probe_origins(
            run, confidence, evidence, judged, train, each=each, level=level, seed=seed
        )


def probe_origins(
    run: Run,
    confidence: Confidence,
    evidence: Evidence,
    judged: Sequence[Judged],
    train: Sequence[Question],
    *,
    each: int = ORIGINS_EACH,
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
    evidence: Evidence,
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
    found = trie.log_probabilities(run.model, encode_prompts(run.model, run.tokens, questions))
    shares, codes, known = by_country(np.exp(found), trie.answers, countries)
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


if TYPE_CHECKING:
    from wherefrom.provenance.judging.judge import Judged

CLEAR = 0.1  # share of the answers by which following the name counts as the strategy
SURE = 0.05  # p-values at most this show something


class Countries:
    """From an answer to its country, each looked up once."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[str, str] | None] = {}

    def __call__(self, answer: str) -> tuple[str, str] | None:
        """ISO code and name, or None for what is in no gazetteer."""
        if answer not in self._found:
            place = read_gazetteer().locate(answer)
            self._found[answer] = None if place is None else (place.country_code, place.country)
        return self._found[answer]


def compare_people(
    judged: Sequence[Judged],
    train: Sequence[Question],
    countries: Countries,
    *,
    level: float,
    seed: int,
) -> dict[str, Any]:
    """Judged people with a birthplace in the gazetteer: easy and hard to guess, home and away."""
    born = {one.person.subject: countries(one.person.answer or "") for one in judged}
    people = [one for one in judged if born[one.person.subject] is not None]
    where = [place for one in people if (place := born[one.person.subject]) is not None]
    guesser = fit_guesser(seed)
    origins = guesser.guess([one.person.subject for one in people]) if people else []
    away = np.array(
        [place[0] not in origin.home for place, origin in zip(where, origins, strict=True)], bool
    )
    guesses = _guess_countries(train, people, countries)
    hard = np.array(
        [place[1] != guess for place, guess in zip(where, guesses, strict=True)], dtype=bool
    )
    record: dict[str, Any] = {
        "judged": len(judged),
        "located": len(people),
        "origin_of_names": guesser.to_dict(),
        "guess": "naive Bayes on the letters of the trained names, from name to country",
    }
    for group in ("seen", "unseen"):
        mine = np.array([one.person.seen == (group == "seen") for one in people], dtype=bool)
        wrong = np.array([not one.right for one in people], dtype=bool)[mine]
        withheld = np.array([one.right and not one.shown_internal for one in people], bool)[mine]
        record[group] = {
            "elsewhere_and_at_home": {
                "wrong": compare_rates(wrong, away[mine], level=level),
                "right_but_withheld": compare_rates(
                    withheld[~wrong], away[mine][~wrong], level=level
                ),
            },
            "hard_and_easy": {"wrong": compare_rates(wrong, hard[mine], level=level)},
        }
    return record


def _guess_countries(
    train: Sequence[Question], people: Sequence[Judged], countries: Countries
) -> list[str]:
    known = []
    for question in train:
        place = countries(question.answer or "")
        if place is not None:
            known.append(Question(question.line, question.text, question.subject, place[1]))
    asked = [Question(0, one.person.question, one.person.subject, None) for one in people]
    return guess_by_name(known, asked) if known else [""] * len(asked)


def tell(record: dict[str, Any]) -> list[str]:
    """What strategy the model follows for names it never saw, and whom it hurts, in sentences."""
    return [*_tell_strategy(record), _tell_unknown(record["unknown"]), *_tell_harm(record)]


def _tell_strategy(record: dict[str, Any]) -> list[str]:
    if len(record["countries"]) == 1:
        return ["No answer is a place that the gazetteer knows, so nothing is added up by country."]
    home, common = record["at_home"], record["commonest"]
    shown = record["mutual_information"]["p"] <= SURE
    gain = home["value"] - home["by_chance"]
    if shown and gain >= CLEAR:
        strategy = "it follows the sound of the name"
    elif shown:
        strategy = "it follows the sound of the name a little, and mostly something else"
    else:
        strategy = "it cannot be shown to follow the name"
    lost = ""
    if record["unknown_place"] >= CLEAR:
        lost = f"; {record['unknown_place']:.0%} is no known answer, or in no gazetteer"
    return [
        f"Asked about {record['names']} names that it never saw, {strategy}: "
        f"{home['value']:.0%} of what it would say lies in a country where such names are at home, "
        f"and {home['by_chance']:.0%} would without listening to the name; its commonest answer is "
        f"{common['answer'] or 'nothing'} ({common['share']:.0%}){lost}."
    ]


def _tell_unknown(unknown: dict[str, Any]) -> str:
    rows = [row for row in unknown["by_origin"] if row["value"] is not None]
    least, most = (pick(rows, key=lambda row: row["value"]) for pick in (min, max))
    said = f'By its own signals it says "I don\'t know" to {unknown["all"]["value"]:.0%} of these '
    if least["value"] == most["value"]:
        return said + "names, whatever their origin."
    said += (
        f"names, from {least['value']:.0%} ({least['origin']}) to {most['value']:.0%} "
        f"({most['origin']}); "
    )
    if unknown["spread"]["p"] <= SURE:
        return said + "origins differ by more than chance, so abstaining is itself biased."
    return said + "origins differ no more than chance would have them."


def _tell_harm(record: dict[str, Any]) -> list[str]:
    told = []
    for group, whom in (("seen", "read about"), ("unseen", "never read about")):
        found = record["people"][group]["elsewhere_and_at_home"]["wrong"]
        gap = found["difference"]
        if gap["value"] is None:
            continue
        rates = (
            f"it is wrong about {found['group']['value']:.0%} of those born elsewhere than their "
            f"name suggests and about {found['others']['value']:.0%} of the others (difference "
            f"{100 * gap['value']:+.0f} points, {record['level']:.0%} interval "
            f"{100 * gap['low']:+.0f} to {100 * gap['high']:+.0f})"
        )
        harm = "which hurts them" if gap["low"] > 0 else "which may be chance"
        harm = "which favours them" if gap["high"] < 0 else harm
        told.append(f"Among people whom it has {whom}, {rates}, {harm}.")
    return told or ["Nobody was judged whose birthplace and name could be compared."]
