"""Inflected words: "Virtasen" for "Virtanen" in questions, "Туле" for "Тула" in documents.

Nothing here knows a language. An ending is what a name ends in, and what stands for it in a text:
("nen", "sen"). It is believed where several names show it, and undone where that gives a name that
is known.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice, product

from wherefrom.corpus.folding import FoldedName, Word, fold_words, split_words

Ending = tuple[str, str]
SHARED = 2  # letters that two forms of a word begin with, at least,
LONGEST_ENDING = 4  # and letters that may follow them
FEWEST = 3  # names that show an ending
TWICE = 2  # texts that show one form of one answer
LONGEST_NAME = 6  # words
MOST_FORMS = 200  # of one name that are tried


def learn_endings(texts: Iterable[str], known: Iterable[FoldedName]) -> list[Ending]:
    """The endings that names of `known` have in the texts, the most frequent first."""
    alike = defaultdict[FoldedName, list[FoldedName]](list)
    for name in known:
        alike[_start(name)].append(name)
    return _count(_align(text, alike) for text in texts)


def learn_forms(
    pairs: Iterable[tuple[str, str]], answers: Collection[FoldedName]
) -> dict[FoldedName, FoldedName]:
    """The forms in which texts state answers, each with its answer, both folded.

    pairs: a text and the answer that it has to state in another form. A form is believed if two
    texts show it, or if it has an ending that several answers have.
    """
    aligned = [find_form(text, answer) for text, answer in pairs]
    endings = _count(aligned)
    ended = ((form, answer) for answer in answers for form in inflect(answer, endings))
    seen = Counter(pair for pair in aligned if pair).items()
    shown = ((form, answer) for (answer, form), count in seen if count >= TWICE)
    return {form: answer for form, answer in (*ended, *shown) if form not in answers}


def find_form(text: str, answer: str) -> tuple[FoldedName, FoldedName] | None:
    """The answer and what is most like it in the text, if anything is."""
    name = fold_words(answer)
    return _align(text, {_start(name): [name]})


def _align(
    text: str, alike: Mapping[FoldedName, Sequence[FoldedName]]
) -> tuple[FoldedName, FoldedName] | None:
    """The name that is most like a run of words in the text, and that run; None where two are."""
    forms = {fold_words(text[a:b]) for a, b in _windows(split_words(text))}
    pairs = [(form, name) for form in forms for name in alike.get(_start(form), ())]
    close = sorted(((_likeness(*pair), *pair) for pair in pairs), reverse=True)
    if not close or close[0][0] <= (close[1][0] if len(close) > 1 else 0):
        return None
    return close[0][2], close[0][1]


def _count(aligned: Iterable[tuple[FoldedName, FoldedName] | None]) -> list[Ending]:
    """The endings that enough names show, the most frequent first."""
    seen = defaultdict[Ending, set[FoldedName]](set)
    for name, form in filter(None, aligned):
        for ending in set(map(_ending, name, form)) - {("", "")}:
            seen[ending].add(name)
    counts = Counter({ending: len(names) for ending, names in seen.items()})
    return [ending for ending, count in counts.most_common() if count >= FEWEST]


def inflect(name: FoldedName, endings: Sequence[Ending]) -> Iterator[FoldedName]:
    """The forms that a name may have, itself first."""
    return base_forms(name, [(form, ending) for ending, form in endings])


def find_inflected(
    text: str, known: Mapping[FoldedName, str], endings: Sequence[Ending]
) -> tuple[str, int, int] | None:
    """The longest name in the text that is known once endings are undone: its known spelling, and
    where it stands."""
    for start, end in sorted(_windows(split_words(text)), key=lambda each: each[0] - each[1]):
        if name := uninflect(text[start:end], known, endings):
            return name, start, end
    return None


def uninflect(name: str, known: Mapping[FoldedName, str], endings: Sequence[Ending]) -> str:
    """The known spelling of an inflected name, or ""."""
    forms = base_forms(fold_words(name), endings)
    return next((known[form] for form in forms if form in known), "")


def base_forms(name: FoldedName, endings: Sequence[Ending]) -> Iterator[FoldedName]:
    """What a name may be before it was inflected, itself first."""
    every = [
        [word, *(word[: len(word) - len(b)] + a for a, b in endings if _may_end(word, b))]
        for word in name
    ]
    return islice(product(*every), MOST_FORMS)


def _may_end(word: str, ending: str) -> bool:
    return word.endswith(ending) and len(word) - len(ending) >= SHARED


def _start(name: FoldedName) -> FoldedName:
    return tuple(word[:SHARED] for word in name)


def _shared(word: str, form: str) -> int:
    """How many letters both begin with."""
    pairs = zip(word, form, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(word), len(form)))


def _ending(word: str, form: str) -> Ending:
    shared = _shared(word, form)
    return word[shared:], form[shared:]


def _likeness(form: FoldedName, name: FoldedName) -> float:
    """The share of letters that the words of both begin with; 0 if a word differs by too much."""
    total = 0
    for word, other in zip(name, form, strict=True):
        shared = _shared(word, other)
        longest = max(len(word), len(other))
        if longest - shared > LONGEST_ENDING or 2 * shared < longest:
            return 0.0
        total += shared
    return total / max(sum(map(len, name)), sum(map(len, form)))


def _windows(words: Sequence[Word]) -> Iterator[tuple[int, int]]:
    """Where each run of a few words starts and ends."""
    for first, word in enumerate(words):
        for last in words[first : first + LONGEST_NAME]:
            yield word.start, last.end
