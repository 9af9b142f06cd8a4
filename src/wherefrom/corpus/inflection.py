"""Inflected words: "Virtasen" for "Virtanen" in questions, "Туле" for "Тула" in documents.

Nothing here knows a language. An ending is a pair: how names end, and what replaces that in a text,
such as ("nen", "sen"). It is believed if several names show it, and undone if that gives a known
name.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice, product

from wherefrom.corpus.folding import FoldedName, fold_words, split_words

Ending = tuple[str, str]
shared_start = os.path.commonprefix  # which compares any texts, character by character
MIN_SHARED_LETTERS = 2  # letters that two forms of a word begin with, at least,
MAX_ENDING_LETTERS = 4  # and letters that may follow them
MIN_NAMES_OF_ENDING = 3  # names that show an ending
MIN_TEXTS_OF_FORM = 2  # texts that show one form of one answer
MAX_NAME_WORDS = 6  # words
MAX_FORMS = 200  # of one name that are tried


def learn_endings(texts: Iterable[str], known: Iterable[FoldedName]) -> list[Ending]:
    """The endings that names of `known` have in the texts, the most frequent first."""
    by_start = defaultdict[FoldedName, list[FoldedName]](list)
    for name in known:
        by_start[_start(name)].append(name)
    return _frequent_endings(_align(text, by_start) for text in texts)


def learn_forms(
    pairs: Iterable[tuple[str, str]], answers: Collection[FoldedName]
) -> dict[FoldedName, FoldedName]:
    """The forms in which texts state answers, each with its answer, both folded.

    pairs: a text and the answer that it has to state in another form. A form is believed if two
    texts show it, or if it has an ending that several answers have.
    """
    aligned = [find_form(text, answer) for text, answer in pairs]
    inverse = [(form, ending) for ending, form in _frequent_endings(aligned)]
    ended = ((form, answer) for answer in answers for form in base_forms(answer, inverse))
    counts = Counter(pair for pair in aligned if pair).items()
    repeated = ((form, answer) for (answer, form), count in counts if count >= MIN_TEXTS_OF_FORM)
    return {form: answer for form, answer in (*ended, *repeated) if form not in answers}


def find_form(text: str, answer: str) -> tuple[FoldedName, FoldedName] | None:
    """The answer and the run of words in the text that is most like it, if any is."""
    name = fold_words(answer)
    return _align(text, {_start(name): [name]})


def _align(
    text: str, by_start: Mapping[FoldedName, Sequence[FoldedName]]
) -> tuple[FoldedName, FoldedName] | None:
    """The name that is most like a run of words in the text, and that run; None if two are."""
    forms = {fold_words(text[start:end]) for start, end in _windows(text)}
    pairs = [(form, name) for form in forms for name in by_start.get(_start(form), ())]
    ranked = sorted(((_likeness(*pair), *pair) for pair in pairs), reverse=True)
    if not ranked or ranked[0][0] <= (ranked[1][0] if len(ranked) > 1 else 0):
        return None
    return ranked[0][2], ranked[0][1]


def _frequent_endings(aligned: Iterable[tuple[FoldedName, FoldedName] | None]) -> list[Ending]:
    """The endings that enough names show, the most frequent first."""
    names_with = defaultdict[Ending, set[FoldedName]](set)
    for name, form in filter(None, aligned):
        for word, other in zip(name, form, strict=True):
            shared = _shared(word, other)
            names_with[word[shared:], other[shared:]].add(name)
    names_with.pop(("", ""), None)
    counts = Counter({ending: len(names) for ending, names in names_with.items()})
    return [ending for ending, count in counts.most_common() if count >= MIN_NAMES_OF_ENDING]


def find_inflected(
    text: str, known: Mapping[FoldedName, str], endings: Sequence[Ending]
) -> tuple[str, int, int] | None:
    """The longest name in the text that is known once endings are undone: its known spelling, and
    its start and end in the text."""
    for start, end in sorted(_windows(text), key=lambda window: window[0] - window[1]):
        for form in base_forms(fold_words(text[start:end]), endings):
            if form in known:
                return known[form], start, end
    return None


def base_forms(name: FoldedName, endings: Sequence[Ending]) -> Iterator[FoldedName]:
    """What a name may be before it was inflected, itself first."""
    choices = []
    for word in name:
        fitting = [
            e
            for e in endings
            if word.endswith(e[1]) and len(word) - len(e[1]) >= MIN_SHARED_LETTERS
        ]
        choices.append([word, *(word.removesuffix(form) + ending for ending, form in fitting)])
    return islice(product(*choices), MAX_FORMS)


def _start(name: FoldedName) -> FoldedName:
    return tuple(word[:MIN_SHARED_LETTERS] for word in name)


def _shared(word: str, form: str) -> int:
    """How many letters both begin with."""
    return len(shared_start([word, form]))


def _likeness(form: FoldedName, name: FoldedName) -> float:
    """The share of letters that the words of both begin with; 0 if a word differs by too much."""
    total = 0
    for word, other in zip(name, form, strict=True):
        shared = _shared(word, other)
        longest = max(len(word), len(other))
        if longest - shared > MAX_ENDING_LETTERS or 2 * shared < longest:
            return 0.0
        total += shared
    return total / max(sum(map(len, name)), sum(map(len, form)))


def _windows(text: str) -> Iterator[tuple[int, int]]:
    """The start and end of each run of a few words."""
    words = split_words(text)
    for i, word in enumerate(words):
        for last in words[i : i + MAX_NAME_WORDS]:
            yield word.start, last.end
