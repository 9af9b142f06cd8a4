"""Candidate spans: every short run of words in every document, with what stands around it.

Words are those of corpus/folding.py, so a letter of Chinese is a word and nothing depends on
capitals. A span may also start or end inside a word, where the training answers show that a
language glues particles to its words ("춘천" in "춘천이며"). Surroundings become hashed features.
"""

from __future__ import annotations

import zlib
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from wherefrom.corpus.documents import Document
from wherefrom.corpus.folding import SIGNS, fold, fold_words, split_words
from wherefrom.corpus.inflection import learn_forms

Hashes = NDArray[np.uint64]
Ints = NDArray[np.int64]
BITS = 20  # features are hashed to this many bits
LONGEST = 32  # words of a span, at most
COVERED = 0.998  # share of the answers that are no longer than spans may be
LONGEST_AFFIX = 6  # letters
INFLECTED = 0.1  # share of the answers, not in their documents, from which on forms are looked for
OWN = 0.05  # share of the answers that are words of the subject's name, from which on spans may be
NOTHING = np.uint64(7)  # the word beyond either end of a document
FEATURE_BITS = np.uint64((1 << BITS) - 1)


def hash_text(text: str) -> int:
    raw = text.encode("utf-8")
    return zlib.crc32(raw) | zlib.adler32(raw) << 32


def mix(values: Hashes, salt: int | Hashes = 0) -> Hashes:
    """Scatter 64-bit values; another salt gives other values (splitmix64)."""
    with np.errstate(over="ignore"):
        mixed = (values + np.asarray(salt, dtype=np.uint64) * np.uint64(0x632BE59BD9B4E019)) * (
            np.uint64(0x9E3779B97F4A7C15)
        )
        mixed ^= mixed >> np.uint64(29)
        mixed *= np.uint64(0xBF58476D1CE4E5B9)
        return mixed ^ mixed >> np.uint64(32)


def phrase_key(text: str) -> int:
    """The same number for all spellings of a phrase that fold to the same words."""
    key = np.zeros(1, dtype=np.uint64)
    for word in fold_words(text):
        key = mix(key + np.uint64(hash_text(word)))
    return int(key[0])


class Words:
    """The words of documents, one after another, in numpy arrays.

    start, end: character ranges; doc: index of the document, of which `first` has the first word;
    own: a word of the document's subject; heading: of the subject's name at its beginning. Hashes:
    what a word is (word), what it is as a neighbour (context), how it is spelt (shape), how it ends
    (suffix), and the characters before it (gap, with one more entry).
    """

    def __init__(self, documents: Sequence[Document]) -> None:
        self.documents = documents
        forms: dict[tuple[str, str], int] = {}  # distinct spellings, and what each folds to
        gaps: dict[str, int] = {"^": 0}
        rows = array("q")
        for index, document in enumerate(documents):
            text, subject, last = document.text, fold_words(document.subject), -1
            for at, (folded, start, end) in enumerate(split_words(text)):
                gap = gaps.setdefault(text[last:start][:3] if last >= 0 else "^", len(gaps))
                form = forms.setdefault((text[start:end], folded), len(forms))
                rows.extend((form, gap, start, end, index, folded in subject, at < len(subject)))
                last = end
        columns = np.array(rows, dtype=np.int64).reshape(-1, 7).T
        self.form, before, self.start, self.end, self.doc, own, heading = columns.copy()
        self.forms = [raw for raw, _ in forms]
        self.own, self.heading = own.astype(bool), heading.astype(bool)
        self.first = np.searchsorted(self.doc, np.arange(len(documents) + 1))
        self.gap = np.array([hash_text(each) for each in gaps], dtype=np.uint64)[
            np.append(before, 0)
        ]
        spelt = np.array([_describe(*each) for each in forms], dtype=np.uint64).reshape(-1, 4)
        self.word, context, self.shape, self.suffix = spelt[self.form].T.copy()
        self.context = np.where(self.own, np.uint64(hash_text("<own>")), context)

    def __len__(self) -> int:
        return len(self.word)


def _describe(raw: str, word: str) -> tuple[int, int, int, int]:
    """Hashes of one spelling and its folded word: word, context, shape, suffix.

    As a neighbour a number stands for all numbers of its length, and a capitalised word of a cased
    script for all of them: what matters is the wording around a fact, not the other facts.
    """
    kind = "0" if raw.lstrip(SIGNS)[:1].isdigit() else "A" if raw[0].isupper() else "a"
    shape = f"{kind}{len(raw)}" if kind == "0" else kind if raw.lower() != raw.upper() else "x"
    context = f"<{shape}>" if kind == "0" or (kind == "A" and len(raw) > 1) else word
    return hash_text(word), hash_text(context), hash_text(shape), hash_text(word[-3:])


@dataclass(frozen=True)
class SpanRules:
    """What a span of this text may look like: its most words, what may be glued to it inside a
    word, what may stand between its words, and whether it may be made of the subject's own words
    alone ("Hotel Roma is in Roma"). forms: by the `phrase_key` of an answer's inflected form that
    of the answer itself."""

    longest: int = 1
    prefixes: frozenset[str] = frozenset()
    suffixes: frozenset[str] = frozenset()
    gaps: frozenset[str] = frozenset({" ", ""})
    own: bool = False
    forms: Mapping[int, int] = field(default_factory=dict)


def learn_rules(documents: Sequence[Document], answers: Sequence[Iterable[str]]) -> SpanRules:
    """The rules by the answers that each document is expected to state."""
    glued = Counter[str](), Counter[str]()
    gaps, lengths, own = {" ", ""}, [1], 0
    for document, wanted in zip(documents, answers, strict=True):
        text, subject = document.text, set(fold_words(document.subject))
        words = split_words(text)
        for answer in wanted:
            lengths.append(len(fold_words(answer)))
            own += subject.issuperset(fold_words(answer))
            found = text.find(answer)
            while found >= 0:
                stop = found + len(answer)
                inside = [word for word in words if word.end > found and word.start < stop]
                if inside:
                    glued[0][text[inside[0].start : found]] += 1
                    glued[1][text[stop : inside[-1].end]] += 1
                    gaps.update(text[a.end : b.start][:3] for a, b in pairwise(inside))
                found = text.find(answer, found + 1)
    prefixes, suffixes = (
        frozenset(s for s, count in each.items() if count > 1 and 0 < len(s) <= LONGEST_AFFIX)
        for each in glued
    )
    longest = int(np.quantile(lengths, COVERED, method="higher"))
    allowed = own >= max(2, OWN * len(lengths))
    return SpanRules(
        min(LONGEST, longest), prefixes, suffixes, frozenset(gaps), allowed,
        _find_forms(documents, answers),
    )  # fmt: skip


def _find_forms(documents: Sequence[Document], answers: Sequence[Iterable[str]]) -> dict[int, int]:
    """`SpanRules.forms`, where many answers are not in their documents as they are written."""
    pairs = [(d.text, each) for d, here in zip(documents, answers, strict=True) for each in here]
    lost = [(text, answer) for text, answer in pairs if fold(answer) not in fold(text)]
    if len(lost) < INFLECTED * len(pairs):
        return {}
    forms = learn_forms(lost, {fold_words(answer) for _, answer in pairs})
    return {phrase_key(" ".join(form)): phrase_key(" ".join(each)) for form, each in forms.items()}


class Spans:
    """All candidate spans of documents: from word `first_word` to `last_word`, both included.

    start, end: character ranges; left, right: hash of what is glued to the span, 0 for nothing;
    key: `phrase_key` of its text. Spans made of the subject's own words alone are left out unless
    the rules allow them.
    """

    def __init__(self, documents: Sequence[Document], rules: SpanRules) -> None:
        self.words = words = Words(documents)
        starts = _cuts(words, rules.prefixes, words.start, front=True)
        ends = _cuts(words, rules.suffixes, words.end, front=False)
        by_word = np.searchsorted(ends[0], np.arange(len(words) + 1))
        allowed = np.isin(words.gap, [hash_text(gap) for gap in rules.gaps])
        word, start, left, opening = (column[~words.heading[starts[0]]] for column in starts)
        key = np.zeros(len(word), dtype=np.uint64)
        only_own = np.ones(len(word), dtype=bool)
        columns = []
        for length in range(rules.longest):
            last = word + length
            fits = last < len(words)
            if length:
                fits[fits] &= allowed[last[fits]]
            fits[fits] &= words.doc[last[fits]] == words.doc[word[fits]]
            word, start, left, opening, key, only_own, last = (
                column[fits] for column in (word, start, left, opening, key, only_own, last)
            )
            before, key = key, mix(key + (words.word[last] if length else opening))
            only_own = only_own & words.own[last]
            count = by_word[last + 1] - by_word[last]
            row = np.repeat(np.arange(len(word)), count)
            offset = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
            end = by_word[last[row]] + offset
            good = (ends[1][end] > start[row]) & (rules.own | ~only_own[row])
            row, end = row[good], end[good]
            right = ends[2][end]
            keys = np.where(right > 0, mix(before[row] + ends[3][end]), key[row])
            columns.append((word[row], last[row], start[row], ends[1][end], left[row], right, keys))
        joined = [np.concatenate(column) for column in zip(*columns, strict=True)]
        order = np.lexsort((joined[3], joined[2], words.doc[joined[0]]))
        self.first_word, self.last_word, self.start, self.end = (c[order] for c in joined[:4])
        self.left, self.right, self.key = (column[order] for column in joined[4:])
        self.doc = words.doc[self.first_word]
        self.first = np.searchsorted(self.doc, np.arange(len(words.documents) + 1))
        inside = (self.left > 0) & (self.right > 0) & (self.first_word == self.last_word)
        for part in np.flatnonzero(inside):
            self.key[part] = phrase_key(self.text(int(part)))
        if rules.forms:
            forms = np.array(sorted(rules.forms), dtype=np.uint64)
            answers = np.array([rules.forms[int(form)] for form in forms], dtype=np.uint64)
            nearest = np.clip(np.searchsorted(forms, self.key), 0, len(forms) - 1)
            self.key = np.where(forms[nearest] == self.key, answers[nearest], self.key)

    def __len__(self) -> int:
        return len(self.key)

    def of(self, doc: int) -> slice:
        """The spans of one document."""
        return slice(self.first[doc], self.first[doc + 1])

    def document(self, at: int) -> Document:
        return self.words.documents[int(self.doc[at])]

    def text(self, at: int) -> str:
        return self.document(at).text[self.start[at] : self.end[at]]

    def features(self, at: Ints) -> NDArray[np.int32]:
        """Hashed features (spans, features) of the spans at `at`: what stands in and around."""
        words = self.words
        first, last = self.first_word[at], self.last_word[at]
        low, high = words.first[self.doc[at]], words.first[self.doc[at] + 1]

        def near(position: Ints) -> Hashes:
            inside = (position >= low) & (position < high)
            return np.where(inside, words.context[np.clip(position, 0, len(words) - 1)], NOTHING)

        before = [near(first - distance) for distance in (1, 2, 3, 4)]
        behind = [near(last + distance) for distance in (1, 2, 3)]
        left = np.where(self.left[at] > 0, self.left[at], words.gap[first])
        right = np.where(self.right[at] > 0, self.right[at], words.gap[last + 1])
        length = (last - first).astype(np.uint64)
        shape = words.shape[first]
        inside = mix(shape, 1) + mix(words.shape[last], 2) + length
        place = (np.minimum(first - low, 40) // 4).astype(np.uint64)
        pair, pair_behind = mix(before[0], 1) + before[1], mix(behind[0], 1) + behind[1]
        features = [
            *before, pair, mix(pair, 1) + before[2],
            *behind, pair_behind,
            left, right, mix(left, 1) + before[0], mix(right, 1) + behind[0],
            mix(left, 5) + mix(before[0], 1) + inside, mix(right, 5) + mix(behind[0], 1) + inside,
            inside, length, shape, words.shape[last], words.suffix[last],
            place, mix(place, 1) + shape,
        ]  # fmt: skip
        salted = [(each, 10 + number) for number, each in enumerate(features)]
        salted += [(each, 8) for each in before] + [(each, 9) for each in behind]  # anywhere
        return np.stack([(mix(*each) & FEATURE_BITS).astype(np.int32) for each in salted], axis=1)

    def known_features(self, at: Ints, known: Ints) -> NDArray[np.int32]:
        """Features of how many other subjects have each span as their answer, in small numbers."""
        seen = known.astype(np.uint64)
        hashed = mix(seen, 60), mix(mix(seen, 3) + self.words.shape[self.first_word[at]], 61)
        return np.stack([(each & FEATURE_BITS).astype(np.int32) for each in hashed], axis=1)


def _cuts(
    words: Words, affixes: Iterable[str], edge: Ints, *, front: bool
) -> tuple[Ints, Ints, Hashes, Hashes]:
    """Where a span may start (front) or end: word, character, hashes of what is cut and left."""
    every = np.arange(len(words))
    rows = [(every, edge, np.zeros(len(words), dtype=np.uint64), words.word)]
    for affix in sorted(affixes):
        cut, rest = len(affix), np.zeros(len(words.forms), dtype=np.uint64)
        for number, text in enumerate(words.forms):
            if len(text) > cut and (text.startswith(affix) if front else text.endswith(affix)):
                folded = fold_words(text[cut:] if front else text[:-cut])
                rest[number] = hash_text(folded[0]) if len(folded) == 1 else 0
        left = rest[words.form]
        hits = np.flatnonzero(left)
        glued = np.full(len(hits), hash_text(affix), dtype=np.uint64)
        rows.append((hits, edge[hits] + (cut if front else -cut), glued, left[hits]))
    where, character, cuts, hashes = (np.concatenate(column) for column in zip(*rows, strict=True))
    order = np.argsort(where, kind="stable")
    return where[order], character[order], cuts[order], hashes[order]
