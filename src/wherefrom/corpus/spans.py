"""Candidate spans: every short run of words in every document, with hashed features of its context.

Words are those of corpus/folding.py, so a Chinese character is a word and nothing depends on
capitals. A span may also start or end inside a word, where the training answers show that the
language attaches particles to its words ("춘천" in "춘천이며"). Signs inside a token join its words
to one span ("Stoke-on-Trent", "http://a.org/~b"), and so does the full stop of an abbreviation
("Andrew G. Morgan"); which words are abbreviations is learned from the text.
"""

from __future__ import annotations

import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise, starmap
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from wherefrom.corpus.database import Database
from wherefrom.corpus.documents import Document
from wherefrom.corpus.folding import SIGNS, fold, fold_words, is_unspaced, split_words
from wherefrom.corpus.inflection import learn_forms

T = TypeVar("T")
Hashes = NDArray[np.uint64]
Ints = NDArray[np.int64]
Features = NDArray[np.int32]  # (spans, features), each a number below 2 ** FEATURE_BITS
FEATURE_BITS = 20  # of a hashed feature
FEATURE_MASK = np.uint64((1 << FEATURE_BITS) - 1)
MAX_SPAN_WORDS = 32
COVERED_SHARE = 0.998  # share of the training answers that fit into the longest span
UNSPACED_LENGTH_FACTOR = 1.5  # how much longer answers in an unspaced script may be than those seen
MAX_AFFIX_LETTERS = 6
MIN_INFLECTED_SHARE = 0.1  # share of answers missing from their documents that shows inflection
MIN_OWN_NAME_SHARE = (
    0.02  # share of answers that repeat the subject's name, from which on spans may do so
)
STOPS = frozenset(".!?;")  # end a sentence if a blank follows,
SENTENCE_END = frozenset("^\n\u3002\uff01\uff1f\uff1b\u0964\u061f\u06d4")  # always; "^": a start
ABBREVIATED = "\0. "  # the gap behind an abbreviation, which no text has
PARTING = frozenset(
    ',;!"()[]{}<>\u2013\u2014\u2026\u201c\u201d\u201e\u00ab\u00bb'
)  # signs between tokens
MAX_ABBREVIATION_LETTERS = 4
FEWEST_ABBREVIATED, ABBREVIATED_SHARE = 3, 0.9  # times and share with a full stop of such a word
SAMPLED_DOCUMENTS = 500  # documents from which abbreviations and frequent words are learned
FREQUENT_SHARE, MIN_FREQUENT_DOCUMENTS = (
    0.05,
    5,
)  # share of the documents, and documents, with a frequent word
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

    doc: index of the document; text_of_document: a number for each text, of which documents on
    consecutive lines about one subject are passages; first: index of each document's first word;
    start, end: characters; own: whether it is a word of the subject's name; heading: whether it is
    in the name that opens the document; form: index of its spelling in `forms`; sentence: a number
    for each sentence of each document; joined: whether it is in one token with the word before.
    Hashes: the folded word (word), the word as context of another (context), how it is spelt
    (shape), its last letters (suffix), what stands between it and the word before (gap, with one
    more entry at the end) and the kind of that (gap_kind), and the label or heading that it stands
    under (label).
    """

    def __init__(
        self,
        documents: Sequence[Document],
        abbreviations: Collection[str] = (),
        frequent: Collection[str] = (),
    ) -> None:
        self.documents = documents
        forms: dict[tuple[str, str], int] = {}  # spelling and folded word -> index
        gaps: dict[str, int] = {"^": 0}  # "^" at the start of a document
        rows = array("q")
        for doc, document in enumerate(documents):
            text, subject, last = document.text, fold_words(document.subject), -1
            before = ""
            for i, (folded, start, end) in enumerate(split_words(text)):
                between = text[last:start] if last >= 0 else "^"
                if between[:1] == "." and between[-1].isspace():
                    is_short = before in abbreviations or _is_initial(text[last - 1 : last], before)
                    between = ABBREVIATED if is_short else between
                gap = gaps.setdefault(between[:3], len(gaps))
                form = forms.setdefault((text[start:end], folded), len(forms))
                rows.extend((form, gap, start, end, doc, folded in subject, i < len(subject)))
                last, before = end, folded
        columns = np.array(rows, dtype=np.int64).reshape(-1, 7).T
        self.form, before_word, self.start, self.end, self.doc, own, heading = columns.copy()
        self.forms = [spelling for spelling, _ in forms]
        self.own, self.heading = own.astype(bool), heading.astype(bool)
        self.first = np.searchsorted(self.doc, np.arange(len(documents) + 1))
        goes_on = [
            other.line == one.line + 1 and other.subject == one.subject
            for one, other in pairwise(documents)
        ]
        self.text_of_document = np.cumsum([0, *(not going for going in goes_on)])
        gap_rows = np.append(before_word, 0)
        self.sentence = np.cumsum(np.array([_ends_sentence(gap) for gap in gaps])[before_word])
        self.gap = np.array([hash_text(gap) for gap in gaps], dtype=np.uint64)[gap_rows]
        kinds = np.array([hash_text(_kind_of_gap(gap)) for gap in gaps], dtype=np.uint64)
        self.gap_kind = kinds[gap_rows]
        spaced = np.array([not is_unspaced(word) for _, word in forms], dtype=bool)[self.form]
        self.joined = np.array([_joins(gap) for gap in gaps])[before_word] & spaced
        self.joined[1:] &= spaced[:-1]
        described = [_describe(spelling, word, word in frequent) for spelling, word in forms]
        hashes = np.array(described, dtype=np.uint64).reshape(-1, 4)
        self.word, context, self.shape, self.suffix = hashes[self.form].T.copy()
        self.context = np.where(self.own, np.uint64(hash_text("<own>")), context)
        self.label = self._find_labels(list(forms), gaps, gap_rows, frequent)

    def _find_labels(
        self,
        forms: Sequence[tuple[str, str]],
        gaps: Iterable[str],
        gap_rows: Ints,
        frequent: Collection[str],
    ) -> Hashes:
        """For each word the last frequent word before it, in its document, that is a label: in
        capitals throughout ("AUTHORS"), or before a colon ("Maintainer:")."""
        is_heading = [
            len(spelling) > 2 and spelling.isupper() and word in frequent
            for spelling, word in forms
        ]
        is_frequent = np.array([word in frequent for _, word in forms], dtype=bool)[self.form]
        colon = np.array([gap[0] in ":\uff1a" if gap else False for gap in gaps])[gap_rows[1:]]
        label = np.array(is_heading, dtype=bool)[self.form] | (colon & is_frequent)
        label &= ~self.heading
        # the index of the last label before each word; -1 for none
        last = np.where(label, np.arange(len(label)), -1)
        last = np.append(-1, np.maximum.accumulate(last)[:-1])[: len(label)]
        inside = last >= self.first[self.doc]
        return np.where(inside, self.word[last], NO_WORD)

    def __len__(self) -> int:
        return len(self.word)


def _is_initial(letter: str, word: str) -> bool:
    """Whether a word, given by its last letter and folded, is one capital letter."""
    return len(word) == 1 and letter.isupper()


def _ends_sentence(gap: str) -> bool:
    if not SENTENCE_END.isdisjoint(gap):
        return True
    return gap != ABBREVIATED and not STOPS.isdisjoint(gap) and any(map(str.isspace, gap))


def _joins(gap: str) -> bool:
    """Whether what stands between two words makes one token of them."""
    return bool(gap) and PARTING.isdisjoint(gap) and gap != "^" and not any(map(str.isspace, gap))


def _kind_of_gap(gap: str) -> str:
    """What all gaps of a kind share, so that one that was never seen is like others."""
    if gap in ("", " ", "^", ABBREVIATED):
        return gap
    return "joined" if _joins(gap) else "parted"


def _describe(spelling: str, word: str, is_frequent: bool) -> tuple[int, int, int, int]:
    """Hashes of a spelling and its folded word: word, context, shape, suffix.

    As context, numbers of equal length are alike, and so are all capitalised words that are not
    frequent: the wording around a fact matters, not the other facts.
    """
    if spelling.lstrip(SIGNS)[:1].isdigit():
        shape = f"0{len(spelling)}"
        context = f"<{shape}>"
    else:
        capital = spelling[0].isupper()
        has_case = spelling.lower() != spelling.upper()
        shape = ("A" if capital else "a") if has_case else "x"
        shape = "I" if capital and len(spelling) == 1 else shape  # as an initial
        is_name = capital and len(spelling) > 1 and not is_frequent
        context = f"<{shape}>" if is_name else word
    return hash_text(word), hash_text(context), hash_text(shape), hash_text(word[-3:])


@dataclass(frozen=True)
class SpanRules:
    """Which spans of a text may be answers.

    longest: words, where those of one token count once; prefixes, suffixes: what may be cut off a
    word; gaps: what may stand between words; abbreviations: folded words whose full stop ends no
    sentence; frequent: folded words that many documents have; own_name: whether a span may be made
    of words of the subject's name alone ("Hotel Roma is in Roma"); forms: `phrase_key` of an
    inflected answer -> that of the answer.
    """

    longest: int = 1
    prefixes: frozenset[str] = frozenset()
    suffixes: frozenset[str] = frozenset()
    gaps: frozenset[str] = frozenset({" ", ""})
    abbreviations: frozenset[str] = frozenset()
    frequent: frozenset[str] = frozenset()
    own_name: bool = False
    forms: Mapping[int, int] = field(default_factory=dict)


def learn_rules(
    expected: Sequence[tuple[Document, Iterable[str]]], sample: Sequence[Document] = ()
) -> SpanRules:
    """The rules that fit documents and the answers that each of them is expected to state.

    sample: documents that show abbreviations and frequent words; by default those of `expected`.
    """
    prefixes, suffixes = Counter[str](), Counter[str]()
    gaps, lengths, own, inner = Counter[str](), [1], 0, set[str]()
    for document, answers in expected:
        text, subject = document.text, set(fold_words(document.subject))
        words = split_words(text)
        for answer in answers:
            folded = fold_words(answer)
            lengths.append(_count_tokens(answer))
            own += subject.issuperset(folded)
            start = text.find(answer)
            while start >= 0:
                stop = start + len(answer)
                inside = [word for word in words if word.end > start and word.start < stop]
                if inside:
                    prefixes[text[inside[0].start : start]] += 1
                    suffixes[text[stop : inside[-1].end]] += 1
                for a, b in pairwise(inside):
                    gap = text[a.end : b.start]
                    if gap[:1] == "." and gap[-1].isspace() and _may_abbreviate(a.folded):
                        inner.add(a.folded)
                    else:
                        gaps[gap[:3]] += 1
                start = text.find(answer, start + 1)
    sample = sample or [document for document, _ in expected]
    return SpanRules(
        longest=min(MAX_SPAN_WORDS, int(np.quantile(lengths, COVERED_SHARE, method="higher"))),
        prefixes=_repeated(prefixes),
        suffixes=_repeated(suffixes),
        gaps=frozenset({" ", "", ABBREVIATED, *gaps}),
        abbreviations=frozenset(inner | _find_abbreviations(sample)),
        frequent=_find_frequent(sample),
        own_name=own >= max(2, MIN_OWN_NAME_SHARE * len(lengths)),
        forms=_find_forms([(d.text, answer) for d, answers in expected for answer in answers]),
    )


def _count_tokens(answer: str) -> int:
    """How long an answer is, as `SpanRules.longest` counts."""
    words = split_words(answer)
    if all(is_unspaced(word.folded) for word in words):
        # a word of an unspaced script is one letter: answers that were not seen may be longer
        return round(UNSPACED_LENGTH_FACTOR * len(words))
    return 1 + sum(not _joins(answer[a.end : b.start]) for a, b in pairwise(words))


def _may_abbreviate(word: str) -> bool:
    return len(word) <= MAX_ABBREVIATION_LETTERS and word.isalpha()


def _find_abbreviations(documents: Sequence[Document]) -> set[str]:
    """Short words that nearly always have a full stop, and mostly go on in the same sentence."""
    total, stopped, going_on = Counter[str](), Counter[str](), Counter[str]()
    for document in documents:
        text = document.text
        for word, behind in pairwise(split_words(text)):
            gap = text[word.end : behind.start]
            total[word.folded] += 1
            if gap[:1] == ".":
                stopped[word.folded] += 1
                next_letter = text[behind.start]
                going_on[word.folded] += next_letter.islower() or gap[1:2] in (",", ";", ":")
    return {
        word
        for word, count in stopped.items()
        if _may_abbreviate(word)
        and 2 * going_on[word] >= count
        and count >= max(FEWEST_ABBREVIATED, ABBREVIATED_SHARE * total[word])
    }


def _find_frequent(documents: Sequence[Document]) -> frozenset[str]:
    """The folded words that many documents have: their wording, not their facts."""
    counts: Counter[str] = Counter()
    for document in documents:
        counts.update(set(fold_words(document.text)) - set(fold_words(document.subject)))
    fewest = max(MIN_FREQUENT_DOCUMENTS, FREQUENT_SHARE * len(documents))
    return frozenset(word for word, count in counts.items() if count >= fewest)


def _repeated(affixes: Counter[str]) -> frozenset[str]:
    """Affixes that were seen more than once: one alone may be chance."""
    counts = affixes.items()
    return frozenset(x for x, count in counts if count > 1 and 0 < len(x) <= MAX_AFFIX_LETTERS)


def _find_forms(pairs: Sequence[tuple[str, str]]) -> dict[int, int]:
    """`SpanRules.forms` by pairs of a text and an answer that it should state; empty unless many
    texts do not have the answer as it is spelt."""
    missing = [(text, answer) for text, answer in pairs if fold(answer) not in fold(text)]
    if len(missing) < MIN_INFLECTED_SHARE * len(pairs):
        return {}
    forms = learn_forms(missing, {fold_words(answer) for _, answer in pairs})
    return {
        phrase_key(" ".join(form)): phrase_key(" ".join(answer)) for form, answer in forms.items()
    }


class SpanBoundaries(NamedTuple):
    """Where spans may start, or where they may end, in the order of the words.

    word: index of the word; offset: character; affix: hash of what is cut off the word, 0 for
    nothing; rest: hash of what remains of it.
    """

    word: Ints
    offset: Ints
    affix: Hashes
    rest: Hashes

    def take(self, rows: NDArray[Any]) -> SpanBoundaries:
        """Those of the given indices, or where a mask is true."""
        return SpanBoundaries(self.word[rows], self.offset[rows], self.affix[rows], self.rest[rows])


def _find_edges(words: Words, affixes: Iterable[str], *, front: bool) -> SpanBoundaries:
    """The start (front) or end of every word, and the places inside it where an affix ends."""
    offset = words.start if front else words.end
    whole = np.zeros(len(words), dtype=np.uint64)
    parts = [SpanBoundaries(np.arange(len(words)), offset, whole, words.word)]
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
        parts.append(
            SpanBoundaries(cut, offset[cut] + (size if front else -size), hashes, rest[cut])
        )
    joined = SpanBoundaries(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    return joined.take(np.argsort(joined.word, kind="stable"))


class Spans:
    """All candidate spans of documents, as columns, ordered by document, start and end.

    documents: by their index in the corpus, which `docs` has as an array; documents of one owner
    (by default each has its own) stand together.
    Columns: first_word, last_word: indices into `words`, both included; start, end: characters;
    start_edge, end_edge: indices into `starts` and `ends`; key: `phrase_key` of its text; doc:
    index into `docs`; owner: index into `owners`.
    """

    def __init__(
        self,
        documents: Mapping[int, Document],
        rules: SpanRules,
        owners: Sequence[int] | None = None,
    ) -> None:
        self.docs = np.array(list(documents), dtype=np.int64)
        self.words = words = Words(list(documents.values()), rules.abbreviations, rules.frequent)
        starts = _find_edges(words, rules.prefixes, front=True)
        self.starts = starts = starts.take(~words.heading[starts.word])
        self.ends = _find_edges(words, rules.suffixes, front=False)
        columns = self._enumerate(rules)
        order = np.lexsort((columns[3], columns[2], words.doc[columns[0]]))
        self.first_word, self.last_word, self.start, self.end = (c[order] for c in columns[:4])
        self.start_edge, self.end_edge, self.key = (column[order] for column in columns[4:])
        self.doc = words.doc[self.first_word]
        owner_of_doc = np.array(list(documents) if owners is None else owners, dtype=np.int64)
        changes = np.append(True, np.diff(owner_of_doc) != 0)[: len(owner_of_doc)]
        self.owners = owner_of_doc[changes].tolist()
        self.owner = (np.cumsum(changes) - 1)[self.doc]
        bounds = np.searchsorted(self.owner, np.arange(len(self.owners) + 1)).tolist()
        self._slices = dict(zip(self.owners, starmap(slice, pairwise(bounds)), strict=True))
        # a word that is cut on both sides: neither hash of a rest is that of the span
        both = self.starts.affix[self.start_edge] > 0
        both &= (self.ends.affix[self.end_edge] > 0) & (self.first_word == self.last_word)
        for i in np.flatnonzero(both).tolist():
            self.key[i] = phrase_key(self.text(i))
        if rules.forms:
            self.key = look_up(rules.forms, self.key, self.key)

    def _enumerate(self, rules: SpanRules) -> list[NDArray[Any]]:
        """First and last word, start, end, edges and key of every span, the shorter first."""
        words, starts, ends = self.words, self.starts, self.ends
        first_end = np.searchsorted(ends.word, np.arange(len(words) + 1))  # of each word
        may_follow = np.isin(words.gap[:-1], [hash_text(gap) for gap in rules.gaps]) | words.joined
        edge = np.arange(len(starts.word))  # the start from which a span goes on
        key = np.zeros(len(edge), dtype=np.uint64)  # of the words so far
        own = np.ones(len(edge), dtype=bool)  # are they all of the subject's name?
        tokens = np.zeros(len(edge), dtype=np.int64)  # of the words so far
        columns: list[tuple[NDArray[Any], ...]] = []
        for length in range(MAX_SPAN_WORDS):
            # the starts from which a span can go on to one more word
            last = starts.word[edge] + length
            fits = last < len(words)
            if length:
                fits[fits] &= may_follow[last[fits]]
            fits[fits] &= words.doc[last[fits]] == words.doc[starts.word[edge[fits]]]
            tokens[fits] += ~words.joined[last[fits]] if length else 1
            fits &= tokens <= rules.longest
            edge, last, tokens = edge[fits], last[fits], tokens[fits]
            own, key_before = own[fits], key[fits]
            if not len(edge):
                break
            own &= words.own[last]
            key = mix(key_before + (words.word[last] if length else starts.rest[edge]))
            # each of them with every end inside its last word
            count = first_end[last + 1] - first_end[last]
            row = np.repeat(np.arange(len(last)), count)
            end = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
            end += first_end[last[row]]
            good = ends.offset[end] > starts.offset[edge[row]]
            good &= rules.own_name | ~own[row]
            row, end = row[good], end[good]
            keys = np.where(ends.affix[end] > 0, mix(key_before[row] + ends.rest[end]), key[row])
            at = edge[row]
            place = starts.word[at], last[row], starts.offset[at], ends.offset[end]
            columns.append((*place, at, end, keys))
        if not columns:
            return [*(np.zeros(0, dtype=np.int64) for _ in range(6)), np.zeros(0, dtype=np.uint64)]
        return [np.concatenate(column) for column in zip(*columns, strict=True)]

    @classmethod
    def about(
        cls, subjects: Iterable[tuple[int, Sequence[tuple[int, Document]]]], rules: SpanRules
    ) -> Spans:
        """The spans of the documents about some subjects, given by number, who own them."""
        owners, documents = [], {}
        for number, about in subjects:
            for index, document in about:
                owners.append(number)
                documents[index] = document
        return cls(documents, rules, owners)

    def __len__(self) -> int:
        return len(self.key)

    def ending(self, row: int) -> int:
        """The hash of what is cut off the last word of a span, 0 for nothing."""
        return int(self.ends.affix[self.end_edge[row]])

    def of(self, owner: int) -> slice:
        """The spans of the documents of this owner."""
        return self._slices[owner]

    def rows_of(self, owner: int) -> Ints:
        """The indices of these spans."""
        here = self.of(owner)
        return np.arange(here.start, here.stop)

    def document(self, row: int) -> Document:
        return self.words.documents[int(self.doc[row])]

    def text(self, row: int) -> str:
        return self.document(row).text[self.start[row] : self.end[row]]

    def features(self, rows: Ints) -> Features:
        """Hashed features of these spans: the words in them and around them, and their position."""
        at_start = self._start_features[self.start_edge[rows]]
        at_end = self._end_features[self.end_edge[rows]]
        return np.hstack((at_start, at_end, self._joint_features[rows]))

    def scores(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """The sum of the weights of the features of every span."""
        total = weights[self._start_features].sum(axis=1)[self.start_edge]
        total += weights[self._end_features].sum(axis=1)[self.end_edge]
        return total + weights[self._joint_features].sum(axis=1)

    def _context(self, word: Ints, distance: int) -> Hashes:
        """The words at a distance from others as context; none beyond the ends of a sentence."""
        words, position = self.words, np.clip(word + distance, 0, len(self.words) - 1)
        inside = (position == word + distance) & (words.sentence[position] == words.sentence[word])
        return np.where(inside, words.context[position], NO_WORD)

    @cached_property
    def alike(self) -> Hashes:
        """The same number for starts that look alike: behind the same mark, or, where there is only
        a blank, behind the same two words; and with a word of the same shape."""
        words, first = self.words, self.starts.word
        gap = words.gap[first]
        two_before = mix(self._context(first, -1), 1) + self._context(first, -2)
        is_blank = np.isin(gap, [hash_text(" "), hash_text("")])
        return mix(np.where(is_blank, mix(two_before, 3), gap), 5) + words.shape[first]

    @cached_property
    def alike_counts(self) -> tuple[Ints, Ints]:
        """For each start how many of the same text look like it: before it, and in all.

        They tell the first of several records from the others.
        """
        word = self.starts.word
        text = self.words.text_of_document[self.words.doc[word]]
        order = np.lexsort((word, self.alike, text))
        alike, text = self.alike[order], text[order]
        is_first = np.ones(len(order), dtype=bool)
        is_first[1:] = (alike[1:] != alike[:-1]) | (text[1:] != text[:-1])
        bounds = np.append(np.flatnonzero(is_first), len(order))
        sizes = np.diff(bounds)
        before, total = np.empty((2, len(order)), dtype=np.int64)
        before[order] = np.arange(len(order)) - np.repeat(bounds[:-1], sizes)
        total[order] = np.repeat(sizes, sizes)
        return before, total

    @cached_property
    def _start_features(self) -> Features:
        """Features of where a span starts, for each of `starts`."""
        words, first = self.words, self.starts.word
        before = [self._context(first, -distance) for distance in (1, 2, 3, 4)]
        cut = self.starts.affix > 0
        left = np.where(cut, self.starts.affix, words.gap[first])
        kind = np.where(cut, self.starts.affix, words.gap_kind[first])
        shape, label = words.shape[first], words.label[first]
        place = (np.minimum(first - words.first[words.doc[first]], 40) // 4).astype(np.uint64)
        two_before = mix(before[0], 1) + before[1]
        features = [
            *before,
            two_before,
            mix(two_before, 1) + before[2],
            left,
            mix(left, 1) + before[0],
            kind,
            shape,
            place,
            mix(place, 1) + shape,
            label,
            mix(label, 1) + shape,
            mix(label, 2) + before[0],
        ]
        record = np.minimum(self.alike_counts[0], 2).astype(np.uint64)
        features.append(mix(self.alike, 4) + record)
        salted = [mix(feature, 10 + i) for i, feature in enumerate(features)]
        # the words before a span once more, at whatever distance
        return _as_features(salted + [mix(word, 8) for word in before])

    @cached_property
    def _end_features(self) -> Features:
        """Features of where a span ends, for each of `ends`."""
        words, last = self.words, self.ends.word
        behind = [self._context(last, distance) for distance in (1, 2, 3)]
        cut = self.ends.affix > 0
        right = np.where(cut, self.ends.affix, words.gap[last + 1])
        kind = np.where(cut, self.ends.affix, words.gap_kind[last + 1])
        features = [
            *behind,
            mix(behind[0], 1) + behind[1],
            right,
            mix(right, 1) + behind[0],
            kind,
            words.shape[last],
            words.suffix[last],
        ]
        salted = [mix(feature, 30 + i) for i, feature in enumerate(features)]
        return _as_features(salted + [mix(word, 9) for word in behind])

    @cached_property
    def _joint_features(self) -> Features:
        """Features of both ends of each span."""
        words, first, last = self.words, self.first_word, self.last_word
        token = np.cumsum(~words.joined)
        length = (token[last] - token[first]).astype(np.uint64)
        pieces = np.minimum(last - first, 4).astype(np.uint64) + mix(length, 3)
        shape = mix(words.shape, 1)[first] + mix(words.shape, 2)[last] + length
        starts, ends = self.starts, self.ends
        left = np.where(starts.affix > 0, starts.affix, words.gap[starts.word])
        before = self._context(starts.word, -1)
        right = np.where(ends.affix > 0, ends.affix, words.gap[ends.word + 1])
        behind = self._context(ends.word, 1)
        at_start = (mix(left, 5) + mix(before, 1))[self.start_edge]
        at_end = (mix(right, 6) + mix(behind, 2))[self.end_edge]
        label = mix(words.label, 7)[first]
        features = [at_start + shape, at_end + shape, shape, length, pieces, label + shape]
        return _as_features([mix(feature, 50 + i) for i, feature in enumerate(features)])

    def known_features(self, rows: Ints, known: Ints) -> Features:
        """Features of how many other subjects have each span as their answer (a small number)."""
        counts = known.astype(np.uint64)
        shape = self.words.shape[self.first_word[rows]]
        return _as_features([mix(counts, 60), mix(mix(counts, 3) + shape, 61)])


def _as_features(hashes: Sequence[Hashes]) -> Features:
    return np.stack([(each & FEATURE_MASK).astype(np.int32) for each in hashes], axis=1)


def spans_of(
    database: Database,
    subjects: Iterable[int],
    rules: SpanRules,
    silenced: Mapping[int, Sequence[Document]] = {},
) -> Spans:
    """The spans of the documents about subjects, by number; -n stands for `silenced[n]`."""
    documents, parts = database.documents, []
    index = -1  # of a silenced document, which has none in the database
    for number in sorted(subjects):
        about = [(doc, documents[doc]) for doc in database.documents_of(number)]
        for document in silenced.get(-number, ()):
            about.append((index, document))
            index -= 1
        parts.append((number, about))
    return Spans.about(parts, rules)


def batch_by_size(items: Iterable[T], size: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """Consecutive items in lists, each ended by the item with which its size exceeds `most`."""
    batch: list[T] = []
    total = 0
    for item in items:
        batch.append(item)
        total += size(item)
        if total > most:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch
