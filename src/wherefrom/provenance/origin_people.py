"""Whom guessing by the name hurts: people born elsewhere than their name suggests.

A model that listens to the sound of a name is right about those who were born where such names
are at home, and pays with the others. Both groups are compared among people whose truth is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from wherefrom.corpus.questions import Question
from wherefrom.provenance.gazetteer import read_gazetteer
from wherefrom.provenance.name_origins import fit_guesser
from wherefrom.provenance.proportions import compare_rates
from wherefrom.recall.baselines import guess_by_name

if TYPE_CHECKING:
    from wherefrom.provenance.judgement import Judged

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
        withheld = np.array([one.right and not one.told_internal for one in people], bool)[mine]
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
