"""Decoys: people who are not in the text, made from the words of those who are.

What a model says of a decoy is a guess. An answer that is as likely for the decoys as for the
person asked about was not remembered, however likely it is. There are two kinds: a fixed handful
of recombined names, which shows what the model says when it knows nothing, and for each person
names that share one word with theirs, which shows what it makes of the sound of that word.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256

import numpy as np

from wherefrom.provenance.folding import fold_words

TRIES = 20  # draws for each decoy before a corpus of few names is taken to have no more


@dataclass(frozen=True)
class NameWords:
    """First and last words of names, and the names that no decoy may be."""

    first: tuple[str, ...]
    last: tuple[str, ...]
    taken: frozenset[tuple[str, ...]]

    @classmethod
    def of(cls, names: Iterable[str]) -> NameWords:
        """The distinct words, in order of appearance; of a name of one word, that word."""
        first: dict[str, None] = {}
        last: dict[str, None] = {}
        taken = set()
        for name in names:
            words = name.split()
            taken.add(fold_words(name))
            if words:
                first[words[0]] = None
                last[words[-1]] = None
        return cls(tuple(first), tuple(last), frozenset(taken))

    def recombine(self, count: int, rng: np.random.Generator) -> list[str]:
        """Up to `count` distinct new names: a first word of one person, a last word of another."""
        found: dict[str, None] = {}
        for _ in range(count * TRIES if self.first else 0):
            if len(found) == count:
                break
            name = f"{_pick(self.first, rng)} {_pick(self.last, rng)}"
            if self._is_new(name):
                found[name] = None
        return list(found)

    def relatives(self, subject: str, each: int, seed: int) -> list[str]:
        """New names that keep the subject's first word or last word, up to `each` of both kinds.

        They depend on the subject and the seed alone, so that a question has the same signals
        whoever is asked about beside it. A name of one word has none.
        """
        words = subject.split()
        if len(words) < 2 or not self.first:
            return []
        digest = sha256(f"{seed} {subject}".encode("utf-8", "replace")).digest()
        rng = np.random.default_rng(int.from_bytes(digest[:8], "big"))
        found: dict[str, None] = {}
        for kept_first in (True, False):
            before = len(found)
            for _ in range(each * TRIES):
                if len(found) - before == each:
                    break
                if kept_first:
                    name = " ".join((*words[:-1], _pick(self.last, rng)))
                else:
                    name = " ".join((_pick(self.first, rng), *words[1:]))
                if self._is_new(name) and name != subject:
                    found[name] = None
        return list(found)

    def _is_new(self, name: str) -> bool:
        return fold_words(name) not in self.taken


def ask_about(question: str, subject: str, other: str) -> str | None:
    """The same question about somebody else, or None where the subject does not stand in it."""
    at = question.find(subject) if subject else -1
    return None if at < 0 else question[:at] + other + question[at + len(subject) :]


def _pick(words: Sequence[str], rng: np.random.Generator) -> str:
    return words[int(rng.integers(len(words)))]
