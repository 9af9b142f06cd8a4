"""Names that look alike: what somebody who misspelt a name may have meant.

How alike two names are is the share of their trigrams that both have. Names that are alike share
some of their rarest trigrams, so those are looked up first. Among very many names even rare
trigrams are common; a budget then ends the search, and a second one goes by words: the name with
one or two of its words replaced by similar words of the corpus (the words of all names are few),
with a word left out, with words added. Neither takes much longer the more names there are.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations, product
from typing import Any, NamedTuple

from wherefrom.provenance.folding import trigrams

ALIKE = 0.45  # names that share fewer of their trigrams are not alike
NEVER_THE_SAME = 0.99  # the similarity of another name, however alike
WORDS = 6  # words of a name that are tried; a longer one is compared by its rarest trigrams alone
_FOR_ONE = 8  # similar words tried alone
_FOR_TWO = 3  # and in two places at once
_LONGER = 50  # names that hold all words of this one


class _Among(NamedTuple):
    """Where trigrams lead: tables and columns, the share that must fit, entries to read."""

    table: str
    spelled: str
    grams: str
    counted: str
    share: float
    postings: int
    rescored: int  # of what they lead to, compared in full


_NAMES = _Among("names", "words", "name_grams", "names", ALIKE, 1_000, 24)
_WORDS = _Among("name_words", "word", "word_grams", "words", ALIKE / 2, 200, 12)

Fetch = Callable[..., list[tuple[Any, ...]]]


def find_similar(words: Sequence[str], fetch: Fetch) -> list[tuple[float, int]]:
    """(similarity, id of the name), the most alike first; `fetch` asks the index."""
    wanted = trigrams(words)
    found, complete = _by_trigrams(wanted, _NAMES, fetch)
    if not complete and len(words) <= WORDS:
        found = list({*found, *_by_words(words, fetch)})
    scored = []
    for name, spelled in found:
        likeness = _likeness(wanted, trigrams(spelled.split()))
        if likeness >= ALIKE:
            scored.append((min(likeness, NEVER_THE_SAME), name))
    return sorted(scored, key=lambda pair: (-pair[0], pair[1]))


def word_term(word: str) -> str:
    """How a whole word is written among trigrams; it is longer than any of them."""
    return f"__{word}__"


def _by_words(words: Sequence[str], fetch: Fetch) -> list[tuple[int, str]]:
    """Names that are this one with a word or two replaced, a word left out, or words added."""
    similar = [_similar_words(word, fetch) for word in words]
    tries: dict[str, None] = {}
    for at, others in enumerate(similar):
        for other in others[:_FOR_ONE]:
            tries[" ".join((*words[:at], other, *words[at + 1 :]))] = None
        tries[" ".join((*words[:at], *words[at + 1 :]))] = None
    for one, two in combinations(range(len(words)), 2):
        for first, second in product(similar[one][:_FOR_TWO], similar[two][:_FOR_TWO]):
            changed = list(words)
            changed[one], changed[two] = first, second
            tries[" ".join(changed)] = None
    marks = ", ".join("?" * len(tries))
    found = fetch(f"SELECT id, words FROM names WHERE words IN ({marks})", *tries)
    terms = " AND ".join(f'"{word_term(word)}"' for word in dict.fromkeys(words))
    longer = fetch(
        "SELECT id, words FROM names WHERE id IN "
        "(SELECT rowid FROM name_grams WHERE name_grams MATCH ? LIMIT ?)",
        terms,
        _LONGER,
    )
    return [(name, spelled) for name, spelled in {*found, *longer}]


def _similar_words(word: str, fetch: Fetch) -> list[str]:
    """Words of names that look like this one, the most alike first, itself left out."""
    wanted = trigrams([word])
    found, _ = _by_trigrams(wanted, _WORDS, fetch)
    scored = [
        (-_likeness(wanted, trigrams([spelled])), spelled)
        for _, spelled in found
        if spelled != word
    ]
    return [spelled for _, spelled in sorted(scored)]


def _by_trigrams(
    wanted: frozenset[str], among: _Among, fetch: Fetch
) -> tuple[list[tuple[int, str]], bool]:
    """Names, or words of names, that share the rarest trigrams; and whether these are all.

    Two sets that share a part of their trigrams must share one of the rarest, so only these are
    looked up, the rarest first.
    """
    marks = ", ".join("?" * len(wanted))
    query = f"SELECT gram, {among.counted} FROM gram_counts WHERE gram IN ({marks})"
    common: dict[str, int] = dict(fetch(query, *wanted))
    rarest = sorted(wanted, key=lambda gram: (common.get(gram, 0), gram))
    needed = len(rarest) - math.ceil(among.share * len(rarest)) + 1
    votes: Counter[int] = Counter()
    left = among.postings
    for gram in (gram for gram in rarest[:needed] if common.get(gram)):
        if left <= 0:
            break
        query = f"SELECT rowid FROM {among.grams} WHERE {among.grams} MATCH ? LIMIT ?"
        found = fetch(query, f'"{gram}"', left)
        votes.update(row for (row,) in found)
        left -= len(found)
    chosen = [row for row, _ in votes.most_common(among.rescored)]
    marks = ", ".join("?" * len(chosen))
    query = f"SELECT id, {among.spelled} FROM {among.table} WHERE id IN ({marks})"
    return [(row, spelled) for row, spelled in fetch(query, *chosen)], left > 0


def _likeness(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / max(1, len(one | other))
