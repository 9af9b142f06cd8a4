"""What the text says of an answer: it states it, it states another, or it does not know the person.

Evidence finds lines; here they become the few facts that a verdict and a checked confidence rest
on. Only a line about the subject can state an answer: one that merely names Ann may tell of
somebody else's birth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from wherefrom.provenance.folding import fold_words, split_words
from wherefrom.provenance.lines import LOOKED_AT, EvidenceLine, EvidenceReader
from wherefrom.provenance.mentions import read_document

LINES = 3  # lines that are shown for an answer
_NAMESAKE_LINES = 5  # documents of one similar name, which must not hide the next name

Words = tuple[str, ...]
Phrases = dict[str, list[tuple[Words, str]]]  # first word -> known answers, the longest first


@dataclass(frozen=True)
class Support:
    """What the evidence says of one subject and one answer.

    seen: some document names the subject; states_answer: a line about the subject states the
    answer; states_other: one states another known answer and none states this. `lines` are the
    most telling, `others` the known answers that lines about the subject state instead, and
    `similar` lines about names that look alike, where nobody of this name is known.
    """

    seen: bool
    states_answer: bool
    states_other: bool
    lines: tuple[EvidenceLine, ...]
    similar: tuple[EvidenceLine, ...]
    others: tuple[str, ...] = ()


def find_support(
    evidence: EvidenceReader,
    subjects: Sequence[str],
    answers: Sequence[str],
    known_answers: Sequence[str],
    *,
    limit: int = LINES,
) -> list[Support]:
    """The support of each answer about each subject; `known_answers` are what else can be stated.

    An answer without a letter or digit is stated nowhere; a subject without one is refused.
    """
    known = _by_first_word(tuple(dict.fromkeys(known_answers)))
    return [
        _support(evidence, subject, answer, known, limit)
        for subject, answer in zip(subjects, answers, strict=True)
    ]


def _support(
    evidence: EvidenceReader, subject: str, answer: str, known: Phrases, limit: int
) -> Support:
    said = fold_words(answer)
    told = answer if said else None
    lines = evidence.find(subject, told, limit=limit * _NAMESAKE_LINES)
    if not lines or not lines[0].exact:
        similar = {line.subject: line for line in reversed(lines)}  # each name once
        best = sorted(similar.values(), key=lambda line: -line.similarity)[:limit]
        return Support(False, False, False, (), tuple(best))
    if any(line.about and line.states_answer for line in lines):
        # only a line about the subject states; the rest are shown as naming
        kept = (line if line.about else replace(line, states_answer=False) for line in lines)
        return Support(True, True, False, tuple(kept)[:limit], ())
    own = fold_words(subject)
    lines = evidence.find(subject, told, limit=LOOKED_AT)
    stated = {line.line: _stated(line, own, said, known) for line in lines if line.about}
    others = tuple(dict.fromkeys(place for places in stated.values() for place in places))
    lines.sort(key=lambda line: (not stated.get(line.line), not line.about, line.line))
    kept = (replace(line, states_answer=False) for line in lines[:limit])
    return Support(True, False, bool(others), tuple(kept), (), others)


def _stated(line: EvidenceLine, subject: Words, said: Words, known: Phrases) -> list[str]:
    """The known answers, but the one said, that a line about the subject states, as they stand."""
    head = len(line.subject)
    words = [word.folded for word in split_words(line.text[head:])]
    found: dict[str, None] = {}
    at = 0
    while at < len(words):
        step = 1
        for phrase, answer in known.get(words[at], ()):
            if tuple(words[at : at + len(phrase)]) == phrase:
                step = len(phrase)  # "San Francisco" is not Francisco too
                reading = read_document(line.text, head, subject, phrase, _nobody)
                if phrase != said and reading.states:
                    found[answer] = None
                break
        at += step
    return list(found)


def _nobody(_: str) -> bool:
    """Whether a word is part of a name: not asked for in a document about the subject."""
    return False


@lru_cache(maxsize=8)
def _by_first_word(known: tuple[str, ...]) -> Phrases:
    phrases: Phrases = {}
    for answer in known:
        words = fold_words(answer)
        if words:
            phrases.setdefault(words[0], []).append((words, answer))
    for entries in phrases.values():
        entries.sort(key=lambda entry: -len(entry[0]))
    return phrases
