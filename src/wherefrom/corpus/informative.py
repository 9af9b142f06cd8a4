"""Informative spans: what a text tells where no question says what to look for.

A word is informative if few documents have it. Neighbours that occur together more often than by
chance are one span.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence

import numpy as np

from wherefrom.corpus.documents import Document
from wherefrom.corpus.spans import Hashes, Ints, Words, batch_by_size, hash_text, mix

COUNTED_CHARACTERS = 250_000  # of text whose words are counted at once
MAX_DOCUMENT_SHARE = 0.1  # of the documents that have an informative word
MIN_MUTUAL_INFORMATION = 0.3  # normalised, of neighbours that are one span


def informative_spans(documents: Sequence[Document]) -> Iterator[list[tuple[int, int]]]:
    """For each document the start and end of its informative spans, in order.

    A word is informative if at most a tenth of the documents have it and it is no word of the
    subject's name. Neighbours that occur together more often than by chance (normalised mutual
    information) are one span. All words are counted first, and kept in a file meanwhile.
    """
    counts, document_counts, pair_counts, total = Tally(), Tally(), Tally(), 0
    gaps = [hash_text(gap) for gap in ("", " ", "-")]
    with tempfile.TemporaryFile() as file:
        parts = 0
        for batch in batch_by_size(documents, lambda d: len(d.text), COUNTED_CHARACTERS):
            words = Words(batch)
            parts, total = parts + 1, total + len(words)
            counts.add(words.word)
            pair_counts.add(_pairs(words.word))
            # each word of a document once
            keys = mix(words.word, 2) + words.doc.astype(np.uint64)
            document_counts.add(words.word[np.unique(keys, return_index=True)[1]])
            adjacent = np.isin(words.gap[1:-1], gaps) & (words.doc[1:] == words.doc[:-1])
            free = ~words.own & ~words.heading
            size = np.array(len(batch))
            for column in (words.word, free, adjacent, words.doc, words.start, words.end, size):
                np.save(file, column, allow_pickle=False)
        file.seek(0)
        for _ in range(parts):
            word, free, adjacent, doc, start, end, size = (np.load(file) for _ in range(7))
            rare = free & (document_counts.of(word) <= max(2, MAX_DOCUMENT_SHARE * len(documents)))
            count, together = counts.of(word), pair_counts.of(_pairs(word))
            joint = together / total
            information = np.log(joint) - np.log(count[:-1] / total * count[1:] / total)
            linked = adjacent & (together > 1) & rare[1:] & rare[:-1]
            linked &= information > MIN_MUTUAL_INFORMATION * -np.log(joint)
            joined = np.append(False, linked)[: len(word)]  # to the word before
            span = np.cumsum(~joined)
            firsts = np.flatnonzero(rare & ~joined)
            lasts = np.searchsorted(span, span[firsts], side="right") - 1
            spans: list[list[tuple[int, int]]] = [[] for _ in range(int(size))]
            columns = doc[firsts], start[firsts], end[lasts]
            for index, left, right in zip(*(column.tolist() for column in columns), strict=True):
                spans[index].append((left, right))
            yield from spans


class Tally:
    """How often each hash was added.

    New counts are merged with the others when there are more of them, and not each time.
    """

    def __init__(self) -> None:
        self._keys, self._counts = np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.int64)
        self._pending: list[tuple[Hashes, Ints]] = []

    def add(self, hashes: Hashes) -> None:
        self._pending.append(np.unique(hashes, return_counts=True))
        if sum(len(keys) for keys, _ in self._pending) > len(self._keys):
            self._merge()

    def _merge(self) -> None:
        keys, counts = zip((self._keys, self._counts), *self._pending, strict=True)
        self._keys, inverse = np.unique(np.concatenate(keys), return_inverse=True)
        total = np.bincount(inverse, np.concatenate(counts), len(self._keys))
        self._counts, self._pending = total.astype(np.int64), []

    def of(self, hashes: Hashes) -> Ints:
        """The counts of hashes that were all added."""
        if self._pending:
            self._merge()
        return np.asarray(self._counts[np.searchsorted(self._keys, hashes)])


def _pairs(word: Hashes) -> Hashes:
    """A hash of each word together with the next one."""
    return mix(word[:-1], 1) + word[1:]
