"""Candidate spans: every short run of words in every document, with hashed features of its context.

Words are those of corpus/folding.py, so a Chinese character is a word and nothing depends on
capitals. A span may also start or end inside a word, where the training answers show that the
language attaches particles to its words ("춘천" in "춘천이며").
"""

from __future__ import annotations

import zlib
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, starmap
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wherefrom.corpus.documents import Document
from wherefrom.corpus.folding import SIGNS, fold, fold_words, is_unspaced, split_words
from wherefrom.corpus.inflection import learn_forms

Hashes = NDArray[np.uint64]
Ints = NDArray[np.int64]
Features = NDArray[np.int32]  # (spans, features), each a number below 2 ** BITS
BITS = 20  # of a hashed feature
FEATURE_MASK = np.uint64((1 << BITS) - 1)
LONGEST = 32  # words of a span, at most
COVERED = 0.998  # share of the training answers that fit into the longest span
UNSPACED_ROOM = 1.5  # how much longer answers in an unspaced script may be than those seen
LONGEST_AFFIX = 6  # letters
INFLECTED = 0.1  # share of answers missing from their documents that shows inflection
OWN_NAME = 0.05  # share of answers that repeat the subject's name, from which on spans may do so
SENTENCE_END = frozenset("^.!?;\n\u3002\uff01\uff1f\uff1b\u0964\u061f\u06d4")  # "^": a start
NO_WORD = np.uint64(7)  # the context beyond either end of a document


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


def look_up(table: Mapping[int, int], keys: Hashes, default: Hashes | np.uint64) -> Hashes:
    """`table.get(key, default)` for an array of keys; the table is not empty."""
    known = np.fromiter(table, np.uint64, len(table))
    values = np.fromiter(table.values(), np.uint64, len(table))
    order = np.argsort(known)
    nearest = order[np.searchsorted(known, keys, sorter=order).clip(max=len(table) - 1)]
    return np.where(known[nearest] == keys, values[nearest], default)


class Words:
    """The words of documents, one after another, as columns.

    doc: index of the document; first: index of each document's first word; start, end: characters;
    own: whether it is a word of the subject's name; heading: whether it is in the name that opens
    the document; form: index of its spelling in `forms`; sentence: a number for each sentence of
    each document. Hashes: the folded word (word), the word
    as context of another (context), how it is spelt (shape), its last letters (suffix), and what
    stands between it and the word before (gap, with one more entry at the end).
    """

    def __init__(self, documents: Sequence[Document]) -> None:
        self.documents = documents
        forms: dict[tuple[str, str], int] = {}  # spelling and folded word -> index
        gaps: dict[str, int] = {"^": 0}  # "^" at the start of a document
        rows = array("q")
        for doc, document in enumerate(documents):
            text, subject, last = document.text, fold_words(document.subject), -1
            for i, (folded, start, end) in enumerate(split_words(text)):
                gap = gaps.setdefault(text[last:start][:3] if last >= 0 else "^", len(gaps))
                form = forms.setdefault((text[start:end], folded), len(forms))
                rows.extend((form, gap, start, end, doc, folded in subject, i < len(subject)))
                last = end
        columns = np.array(rows, dtype=np.int64).reshape(-1, 7).T
        self.form, before, self.start, self.end, self.doc, own, heading = columns.copy()
        self.forms = [spelling for spelling, _ in forms]
        self.own, self.heading = own.astype(bool), heading.astype(bool)
        self.first = np.searchsorted(self.doc, np.arange(len(documents) + 1))
        opens_sentence = np.array([not SENTENCE_END.isdisjoint(gap) for gap in gaps])
        self.sentence = np.cumsum(opens_sentence[before])
        gap_hashes = np.array([hash_text(gap) for gap in gaps], dtype=np.uint64)
        self.gap = gap_hashes[np.append(before, 0)]
        hashes = np.array([_describe(*form) for form in forms], dtype=np.uint64).reshape(-1, 4)
        self.word, context, self.shape, self.suffix = hashes[self.form].T.copy()
        self.context = np.where(self.own, np.uint64(hash_text("<own>")), context)

    def __len__(self) -> int:
        return len(self.word)


def _describe(spelling: str, word: str) -> tuple[int, int, int, int]:
    """Hashes of a spelling and its folded word: word, context, shape, suffix.

    As context, numbers of equal length are alike, and so are all capitalised words: the wording
    around a fact matters, not the other facts.
    """
    if spelling.lstrip(SIGNS)[:1].isdigit():
        shape = f"0{len(spelling)}"
        context = f"<{shape}>"
    else:
        capital = spelling[0].isupper()
        has_case = spelling.lower() != spelling.upper()
        shape = ("A" if capital else "a") if has_case else "x"
        context = f"<{shape}>" if capital and len(spelling) > 1 else word
    return hash_text(word), hash_text(context), hash_text(shape), hash_text(word[-3:])


@dataclass(frozen=True)
class SpanRules:
    """Which spans of a text may be answers.

    longest: words; prefixes, suffixes: what may be cut off a word; gaps: what may stand between
    words; own_name: whether a span may be made of words of the subject's name alone ("Hotel Roma is
    in Roma"); forms: `phrase_key` of an inflected answer -> that of the answer.
    """

    longest: int = 1
    prefixes: frozenset[str] = frozenset()
    suffixes: frozenset[str] = frozenset()
    gaps: frozenset[str] = frozenset({" ", ""})
    own_name: bool = False
    forms: Mapping[int, int] = field(default_factory=dict)


def learn_rules(expected: Sequence[tuple[Document, Iterable[str]]]) -> SpanRules:
    """The rules that fit documents and the answers that each of them is expected to state."""
    prefixes, suffixes = Counter[str](), Counter[str]()
    gaps, lengths, own = {" ", ""}, [1], 0
    for document, answers in expected:
        text, subject = document.text, set(fold_words(document.subject))
        words = split_words(text)
        for answer in answers:
            folded = fold_words(answer)
            # a word of an unspaced script is one letter: answers that were not seen may be longer
            unspaced = all(map(is_unspaced, folded))
            lengths.append(round(UNSPACED_ROOM * len(folded)) if unspaced else len(folded))
            own += subject.issuperset(folded)
            start = text.find(answer)
            while start >= 0:
                stop = start + len(answer)
                inside = [word for word in words if word.end > start and word.start < stop]
                if inside:
                    prefixes[text[inside[0].start : start]] += 1
                    suffixes[text[stop : inside[-1].end]] += 1
                    gaps.update(text[a.end : b.start][:3] for a, b in pairwise(inside))
                start = text.find(answer, start + 1)
    return SpanRules(
        longest=min(LONGEST, int(np.quantile(lengths, COVERED, method="higher"))),
        prefixes=_repeated(prefixes),
        suffixes=_repeated(suffixes),
        gaps=frozenset(gaps),
        own_name=own >= max(2, OWN_NAME * len(lengths)),
        forms=_find_forms([(d.text, answer) for d, answers in expected for answer in answers]),
    )


def _repeated(affixes: Counter[str]) -> frozenset[str]:
    """Affixes that were seen more than once: one alone may be chance."""
    counts = affixes.items()
    return frozenset(x for x, count in counts if count > 1 and 0 < len(x) <= LONGEST_AFFIX)


def _find_forms(pairs: Sequence[tuple[str, str]]) -> dict[int, int]:
    """`SpanRules.forms` by pairs of a text and an answer that it should state; empty unless many
    texts do not have the answer as it is spelt."""
    missing = [(text, answer) for text, answer in pairs if fold(answer) not in fold(text)]
    if len(missing) < INFLECTED * len(pairs):
        return {}
    forms = learn_forms(missing, {fold_words(answer) for _, answer in pairs})
    return {
        phrase_key(" ".join(form)): phrase_key(" ".join(answer)) for form, answer in forms.items()
    }


class Edges(NamedTuple):
    """Where spans may start, or where they may end, in the order of the words.

    word: index of the word; offset: character; affix: hash of what is cut off the word, 0 for
    nothing; rest: hash of what remains of it.
    """

    word: Ints
    offset: Ints
    affix: Hashes
    rest: Hashes

    def take(self, rows: NDArray[Any]) -> Edges:
        """Those of the given indices, or where a mask is true."""
        return Edges(self.word[rows], self.offset[rows], self.affix[rows], self.rest[rows])


def _find_edges(words: Words, affixes: Iterable[str], *, front: bool) -> Edges:
    """The start (front) or end of every word, and the places inside it where an affix ends."""
    offset = words.start if front else words.end
    whole = np.zeros(len(words), dtype=np.uint64)
    parts = [Edges(np.arange(len(words)), offset, whole, words.word)]
    for affix in sorted(affixes):
        size, rest_of_form = len(affix), np.zeros(len(words.forms), dtype=np.uint64)
        for i, spelling in enumerate(words.forms):
            has_affix = spelling.startswith(affix) if front else spelling.endswith(affix)
            if has_affix and len(spelling) > size:
                folded = fold_words(spelling[size:] if front else spelling[:-size])
                rest_of_form[i] = hash_text(folded[0]) if len(folded) == 1 else 0
        rest = rest_of_form[words.form]
        cut = np.flatnonzero(rest)
        hashes = np.full(len(cut), hash_text(affix), dtype=np.uint64)
        parts.append(Edges(cut, offset[cut] + (size if front else -size), hashes, rest[cut]))
    joined = Edges(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    return joined.take(np.argsort(joined.word, kind="stable"))


class Spans:
    """All candidate spans of documents, as columns, ordered by document, start and end.

    documents: by their index in the corpus, which `docs` has as an array.
    Columns: first_word, last_word: indices into `words`, both included; start, end: characters;
    left, right: hash of what is cut off its first and last word, 0 for nothing; key: `phrase_key`
    of its text; doc: index into `docs`.
    """

    def __init__(self, documents: Mapping[int, Document], rules: SpanRules) -> None:
        self.docs = np.array(list(documents), dtype=np.int64)
        self.words = words = Words(list(documents.values()))
        starts = _find_edges(words, rules.prefixes, front=True)
        starts = starts.take(~words.heading[starts.word])
        ends = _find_edges(words, rules.suffixes, front=False)
        first_end = np.searchsorted(ends.word, np.arange(len(words) + 1))  # of each word
        may_follow = np.isin(words.gap, [hash_text(gap) for gap in rules.gaps])
        key = np.zeros(len(starts.word), dtype=np.uint64)  # of the words so far
        own = np.ones(len(starts.word), dtype=bool)  # are they all of the subject's name?
        columns = []
        for length in range(rules.longest):
            # the starts from which a span can go on to one more word
            last = starts.word + length
            fits = last < len(words)
            if length:
                fits[fits] &= may_follow[last[fits]]
            fits[fits] &= words.doc[last[fits]] == words.doc[starts.word[fits]]
            starts = starts.take(fits)
            last, own, key_before = last[fits], own[fits], key[fits]
            own &= words.own[last]
            key = mix(key_before + (words.word[last] if length else starts.rest))
            # each of them with every end inside its last word
            count = first_end[last + 1] - first_end[last]
            row = np.repeat(np.arange(len(last)), count)
            end = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
            end += first_end[last[row]]
            good = (ends.offset[end] > starts.offset[row]) & (rules.own_name | ~own[row])
            row, end = row[good], end[good]
            cut = ends.affix[end] > 0
            keys = np.where(cut, mix(key_before[row] + ends.rest[end]), key[row])
            start = starts.word[row], last[row], starts.offset[row], ends.offset[end]
            columns.append((*start, starts.affix[row], ends.affix[end], keys))
        joined = [np.concatenate(column) for column in zip(*columns, strict=True)]
        order = np.lexsort((joined[3], joined[2], words.doc[joined[0]]))
        self.first_word, self.last_word, self.start, self.end = (c[order] for c in joined[:4])
        self.left, self.right, self.key = (column[order] for column in joined[4:])
        self.doc = words.doc[self.first_word]
        bounds = np.searchsorted(self.doc, np.arange(len(documents) + 1)).tolist()
        self._slices = dict(zip(documents, starmap(slice, pairwise(bounds)), strict=True))
        # a word that is cut on both sides: neither hash of a rest is that of the span
        both = (self.left > 0) & (self.right > 0) & (self.first_word == self.last_word)
        for i in np.flatnonzero(both).tolist():
            self.key[i] = phrase_key(self.text(i))
        if rules.forms:
            self.key = look_up(rules.forms, self.key, self.key)

    def __len__(self) -> int:
        return len(self.key)

    def of(self, doc: int) -> slice:
        """The spans of the document with this index in the corpus."""
        return self._slices[doc]

    def document(self, row: int) -> Document:
        return self.words.documents[int(self.doc[row])]

    def text(self, row: int) -> str:
        return self.document(row).text[self.start[row] : self.end[row]]

    def features(self, rows: Ints) -> Features:
        """Hashed features of these spans: the words in them and around them, and their position."""
        words = self.words
        first, last = self.first_word[rows], self.last_word[rows]
        low, high = words.first[self.doc[rows]], words.first[self.doc[rows] + 1]

        def context(position: Ints) -> Hashes:
            inside = (position >= low) & (position < high)
            return np.where(inside, words.context[np.clip(position, 0, len(words) - 1)], NO_WORD)

        before = [context(first - distance) for distance in (1, 2, 3, 4)]
        behind = [context(last + distance) for distance in (1, 2, 3)]
        left = np.where(self.left[rows] > 0, self.left[rows], words.gap[first])
        right = np.where(self.right[rows] > 0, self.right[rows], words.gap[last + 1])
        length = (last - first).astype(np.uint64)
        first_shape, last_shape = words.shape[first], words.shape[last]
        shape = mix(first_shape, 1) + mix(last_shape, 2) + length
        place = (np.minimum(first - low, 40) // 4).astype(np.uint64)
        two_before, two_behind = mix(before[0], 1) + before[1], mix(behind[0], 1) + behind[1]
        features = [
            *before, two_before, mix(two_before, 1) + before[2],
            *behind, two_behind,
            left, right, mix(left, 1) + before[0], mix(right, 1) + behind[0],
            mix(left, 5) + mix(before[0], 1) + shape, mix(right, 5) + mix(behind[0], 1) + shape,
            shape, length, first_shape, last_shape, words.suffix[last],
            place, mix(place, 1) + first_shape,
        ]  # fmt: skip
        salted = [mix(feature, 10 + i) for i, feature in enumerate(features)]
        # the words around a span once more, at whatever distance
        salted += [mix(word, 8) for word in before] + [mix(word, 9) for word in behind]
        return _as_features(salted)

    def known_features(self, rows: Ints, known: Ints) -> Features:
        """Features of how many other subjects have each span as their answer (a small number)."""
        counts = known.astype(np.uint64)
        shape = self.words.shape[self.first_word[rows]]
        return _as_features([mix(counts, 60), mix(mix(counts, 3) + shape, 61)])


def _as_features(hashes: Sequence[Hashes]) -> Features:
    return np.stack([(each & FEATURE_MASK).astype(np.int32) for each in hashes], axis=1)
