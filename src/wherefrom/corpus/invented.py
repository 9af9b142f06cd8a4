"""Invented names: people whom nobody has written about, for asking what a model says of them.

Half are recombined from the names in the data (the given names of one, the family name of another),
so that every part is familiar and the whole is not; half are drawn from Faker's lists of many
origins. None is a name that the corpus or the questions have, and the same seed gives the same.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from wherefrom.corpus.documents import Document
from wherefrom.corpus.named import Key, find_named, key_of
from wherefrom.corpus.world.names import read_names
from wherefrom.corpus.world.origins import ORIGINS

ROUNDS = 6  # tries to find as many as are wanted; a handful of names has few recombinations
SPARE = 10  # candidates beyond those wanted, since some will turn out to be somebody's name


def invent_names(
    names: Sequence[str],
    count: int,
    *,
    documents: Sequence[Document],
    taken: Collection[Key] = (),
    rng: np.random.Generator,
) -> list[str]:
    """Up to `count` names that no document holds and that are not `taken`, no two alike.

    `names` are those of the data. Letters that none of them has do not occur: a model would know
    such a name by its letters alone.
    """
    letters = set("".join(names))
    parts = [_split(name) for name in names]
    usable = [part for part in parts if part is not None]
    found: list[str] = []
    known = {*taken, *map(key_of, names)}
    for _ in range(ROUNDS if count > 0 else 0):
        wanted = count - len(found) + SPARE
        foreign = [_draw_foreign(rng) for _ in range(wanted)]
        own = [_recombine(usable, rng) for _ in range(wanted)] if len(usable) > 1 else foreign
        fresh: dict[Key, str] = {}
        for name in (each for pair in zip(own, foreign, strict=True) for each in pair):
            if letters.issuperset(name) and key_of(name) not in known:
                fresh.setdefault(key_of(name), name)
        held = find_named(documents, fresh)
        found += [name for key, name in fresh.items() if not held[key]]
        known.update(fresh)
        if len(found) >= count:
            break
    return found[:count]


def _split(name: str) -> tuple[str, str] | None:
    """Given names and family name, where a name has both: "Ann B.", "Clark"."""
    given, _, family = name.rpartition(" ")
    fits = given.strip() and family[:1].isalpha() and not family.endswith((".", ")"))
    return (given.strip(), family) if fits else None


def _recombine(parts: Sequence[tuple[str, str]], rng: np.random.Generator) -> str:
    one, other = rng.choice(len(parts), size=2, replace=False)
    return f"{parts[one][0]} {parts[other][1]}"


def _draw_foreign(rng: np.random.Generator) -> str:
    """A name from Faker's lists, every origin as likely as every other."""
    lists = read_names(ORIGINS[int(rng.integers(len(ORIGINS)))])
    woman = bool(rng.random() < 0.5)
    given, family = lists.given(woman), lists.family(woman)
    return f"{given[int(rng.integers(len(given)))]} {family[int(rng.integers(len(family)))]}"
