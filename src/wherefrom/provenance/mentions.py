"""What one document says: whether it names a subject, and whether it states an answer.

Finding the words is the index's work; here it is decided what they mean. "Mary Ann Clark" holds
the words "Ann Clark" and names somebody else, "New York" does not state York, and "Jack London.
London was born in San Francisco." does not state London.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from wherefrom.provenance.folding import Word, find_phrase, is_unspaced, split_words

SUFFIXES = frozenset({"jr", "sr", "ii", "iii", "iv"})  # they make another person of a name
_JOINED = re.compile(r"[ \u00a0]|[ \u00a0]?[-\u2010\u2011'’][ \u00a0]?")
_INITIAL_GAP = re.compile(r"\.?[ \u00a0]?")
_SUFFIX_GAP = re.compile(r",?[ \u00a0]")
_SENTENCE_ENDS = re.compile(r"[.!?…。！？؟]")


@dataclass(frozen=True)
class Reading:
    """What a document is to a question."""

    about: bool  # its own subject has this name
    names: bool  # it is about the subject or names it in its text
    states: bool  # its text holds the answer, outside the subject's name


def read_document(
    text: str,
    head_length: int,
    subject: Sequence[str],
    answer: Sequence[str] | None,
    is_name: Callable[[str], bool],
) -> Reading:
    """Read a document whose first `head_length` characters are its own subject's name.

    `subject` and `answer` are folded words; `is_name` tells whether a folded word is part of the
    name of anybody whom the corpus has a document about.
    """
    about = tuple(word.folded for word in split_words(text[:head_length])) == tuple(subject)
    body = text[head_length:]
    words = split_words(body)
    folded = [word.folded for word in words]
    found = find_phrase(folded, subject)
    size = len(subject)
    names = about or any(not _is_longer(body, words, at, size, is_name) for at in found)
    states = False
    if names and answer:
        own = set(subject)
        states = any(
            not (own.issuperset(answer) and _is_self(body, words, at, len(answer), own))
            and not _is_new(body, words, at)
            for at in find_phrase(folded, answer)
        )
    return Reading(about=about, names=names, states=states)


def _is_longer(
    text: str, words: Sequence[Word], at: int, size: int, is_name: Callable[[str], bool]
) -> bool:
    """Whether the phrase is part of a longer name: "Mary Ann Clark", "Ann Clark Jr."."""
    if is_unspaced(words[at].folded):
        return False
    for near, side in ((at - 1, -1), (at + size, 1)):
        if not 0 <= near < len(words) or is_unspaced(words[near].folded):
            continue
        word = words[near]
        gap = _gap(text, words, min(near, at + size - 1 if side > 0 else near))
        if side > 0 and word.folded in SUFFIXES and _SUFFIX_GAP.fullmatch(gap):
            return True
        first = text[word.start]
        if first.islower() or not first.isalpha():
            continue
        if word.end - word.start == 1:  # an initial; behind a name it needs a mere space
            if (_INITIAL_GAP if side < 0 else _JOINED).fullmatch(gap):
                return True
        elif _JOINED.fullmatch(gap) and (gap.strip() in {"-", "‐", "‑"} or is_name(word.folded)):
            return True
    return False


def _is_self(text: str, words: Sequence[Word], at: int, size: int, own: set[str]) -> bool:
    """Whether a part of the subject's name stands for the subject: "London was born in ..."."""
    if at == 0 or _SENTENCE_ENDS.search(_gap(text, words, at - 1)):
        return True
    if words[at - 1].folded in own and _JOINED.fullmatch(_gap(text, words, at - 1)):
        return True
    behind = at + size
    return (
        behind < len(words)
        and words[behind].folded in own
        and _JOINED.fullmatch(_gap(text, words, behind - 1)) is not None
    )


def _is_new(text: str, words: Sequence[Word], at: int) -> bool:
    """ "New York", "New England": named after the place, and another one."""
    if at == 0 or words[at - 1].folded != "new":
        return False
    return text[words[at - 1].start].isupper() and _gap(text, words, at - 1) in {" ", "-"}


def _gap(text: str, words: Sequence[Word], at: int) -> str:
    """What stands between a word and the next."""
    return text[words[at].end : words[at + 1].start]
