"""How far a guess from the name, or from the position of a place, goes in the embedded world.

    python benchmarks/world_guessing.py

prints one JSON line for each of three seeds: shares of dev people whose birthplace is the commonest
one, is guessed by naive Bayes on the letters of the name, is the commonest one of the name's origin
(which no reader of names alone can know), or is the first or the last place that their first
document names.
"""

from __future__ import annotations

import json
import re
from collections import Counter

from sklearn.feature_extraction.text import CountVectorizer
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import make_pipeline

from wherefrom.corpus.world import World, make_world, summarize_world

PEOPLE, SEEDS = 3000, (0, 1, 2)


def measure_guesses(world: World) -> dict[str, float]:
    """Each way of guessing, and the share of dev that it gets right."""
    train, dev = world.of_split("train"), world.of_split("dev")
    letters = CountVectorizer(analyzer="char_wb", ngram_range=(1, 3))
    guesser = make_pipeline(letters, MultinomialNB(alpha=0.1))
    guesser.fit([p.subject for p in train], [p.birthplace for p in train])
    commonest = summarize_world(world)["relations"]["birthplace"]["commonest"]
    by_origin: dict[str, Counter[str]] = {}
    for person in train:
        by_origin.setdefault(person.origin, Counter())[person.birthplace] += 1
    places = sorted({p.birthplace for p in world.people}, key=lambda name: (-len(name), name))
    any_place = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, places))})(?!\w)")
    named = [any_place.findall(world.documents[p.lines[0] - 1].text) or [""] for p in dev]
    guesses = {
        "majority": [commonest] * len(dev),
        "letters": list(guesser.predict([p.subject for p in dev])),
        "origin": [by_origin[p.origin].most_common(1)[0][0] for p in dev],
        "first_place": [found[0] for found in named],
        "last_place": [found[-1] for found in named],
    }
    return {
        way: round(sum(g == p.birthplace for g, p in zip(said, dev, strict=True)) / len(dev), 4)
        for way, said in guesses.items()
    }


if __name__ == "__main__":
    for seed in SEEDS:
        print(json.dumps({"seed": seed, **measure_guesses(make_world(PEOPLE, seed))}))
