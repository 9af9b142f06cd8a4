"""What the text says of an answer: whether lines about the subject state it or another one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from wherefrom.corpus.folding import fold_words
from wherefrom.provenance.evidence.index import LOOKED_AT, Evidence, EvidenceLine, Words
from wherefrom.provenance.evidence.reading import DocumentBody

LINES = 3  # lines that are shown for an answer
_LINES_OF_A_NAME = 5  # documents of one similar name, which must not hide the next name

Phrases = dict[str, list[tuple[Words, str]]]  # first word -> known answers, the longest first


@dataclass(frozen=True)
class Support:
    """What the evidence says of one subject and one answer.

    seen: some document names the subject. states_answer: a line about the subject states the
    answer. states_other: one states another known answer and none states this. lines: the most
    telling. similar: lines about names that look alike, where this name is not known.
    others: the known answers that lines about the subject state instead.
    """

    seen: bool
    states_answer: bool
    states_other: bool
    lines: tuple[EvidenceLine, ...]
    similar: tuple[EvidenceLine, ...]
    others: tuple[str, ...] = ()


def find_support(
    evidence: Evidence,
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


def _support(evidence: Evidence, subject: str, answer: str, known: Phrases, limit: int) -> Support:
    said = fold_words(answer)
    lines = evidence.find(subject, answer if said else None, limit=limit * _LINES_OF_A_NAME)
    if not lines or not lines[0].names_subject:
        similar = {line.subject: line for line in reversed(lines)}  # each name once
        best = sorted(similar.values(), key=lambda line: -line.similarity)[:limit]
        return Support(False, False, False, (), tuple(best))
    if any(line.about and line.states_answer for line in lines):
        # only a line about the subject states; the rest are shown as naming
        kept = (line if line.about else replace(line, states_answer=False) for line in lines)
        return Support(True, True, False, tuple(kept)[:limit], ())
    lines = evidence.find(subject, limit=LOOKED_AT)
    own = fold_words(subject)
    stated = {line.line: _stated(line, own, said, known) for line in lines if line.about}
    others = tuple(dict.fromkeys(place for places in stated.values() for place in places))
    lines.sort(key=lambda line: (not stated.get(line.line), not line.about, line.line))
    return Support(True, False, bool(others), tuple(lines[:limit]), (), others)


def _stated(line: EvidenceLine, subject: Words, said: Words, known: Phrases) -> list[str]:
    """The known answers, but the one said, that a line about the subject states, as they stand."""
    body = DocumentBody(line.text[len(line.subject) :])
    found: dict[str, None] = {}
    at = 0
    while at < len(body.folded):
        step = 1
        for phrase, answer in known.get(body.folded[at], ()):
            if tuple(body.folded[at : at + len(phrase)]) == phrase:
                step = len(phrase)  # "San Francisco" is not Francisco too
                if phrase != said and body.states(phrase, subject):
                    found[answer] = None
                break
        at += step
    return list(found)


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
