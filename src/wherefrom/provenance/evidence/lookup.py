"""What the text says of an answer: whether lines about the subject state it or another one."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from wherefrom.corpus.folding import find_phrase, fold_words, is_unspaced, split_words

if TYPE_CHECKING:
    from wherefrom.provenance.evidence.index import Evidence, StoredReading

STATED = 0.2  # probability from which on a reading counts as stated; chosen on people set aside
READ_OTHER = 0.5  # and from which on it speaks against another answer
LINES = 3  # lines that are shown for an answer
LOOKED_AT = 1_000  # documents that are weighed to choose such lines from
_LINES_OF_A_NAME = 5  # documents of one similar name, which must not hide the next name
SUFFIXES = frozenset({"jr", "sr", "ii", "iii", "iv"})  # they make another subject of a name
_JOINED = re.compile(r"[ \u00a0]|[ \u00a0]?[-\u2010\u2011'’][ \u00a0]?")
_INITIAL_GAP = re.compile(r"\.?[ \u00a0]?")
_SUFFIX_GAP = re.compile(r",?[ \u00a0]")
_SENTENCE_ENDS = re.compile(r"[.!?…。！？؟]")

Words = tuple[str, ...]
Phrases = dict[str, list[tuple[Words, str]]]  # first word -> known answers, the longest first


@dataclass(frozen=True)
class EvidenceLine:
    """A document and what it is to a question; only one that names the subject is evidence."""

    line: int
    text: str
    subject: str  # of the document, as it writes the name
    about: bool  # that is the very name asked for
    names_subject: bool  # it is about the subject or names it in its text
    states_answer: bool
    similarity: float = 1.0  # of the names: below 1 where the subject only looks alike


@dataclass(frozen=True)
class Support:
    """What the evidence says of one subject and one answer.

    seen: some document names the subject. states_answer: a line about the subject states the
    answer to this relation. states_other: one states another answer and none states this. lines:
    the most telling. similar: lines about names that look alike, where this name is not known.
    others: other answers that lines about the subject state, likeliest first. probability: how
    likely the answer is the one that the lines state for this relation. of_kind: it is no number
    where the relation's answers are words, and the reverse; one that is not is never stated.
    """

    seen: bool
    states_answer: bool
    states_other: bool
    lines: tuple[EvidenceLine, ...]
    similar: tuple[EvidenceLine, ...]
    others: tuple[str, ...] = ()
    probability: float = 0.0
    of_kind: bool = True


def find_support(
    evidence: Evidence,
    subjects: Sequence[str],
    answers: Sequence[str],
    known_answers: Sequence[str],
    *,
    templates: Sequence[str] | None = None,
    limit: int = LINES,
) -> list[Support]:
    """The support of each answer about each subject; `templates` names the relations asked for.

    What was read for a relation decides. Where nothing could be, the answer's words do: those of
    a line about the subject state it, and `known_answers` are what else they can state. An answer
    without a letter or digit is stated nowhere; a subject without one is refused.
    """
    known = _by_first_word(tuple(dict.fromkeys(known_answers)))
    relations = templates if templates is not None else [""] * len(subjects)
    found = []
    for subject, answer, template in zip(subjects, answers, relations, strict=True):
        readings = evidence.readings(subject, template)
        of_kind = evidence.is_of_kind(answer, template)
        if readings is not None:
            one = _support_read(evidence, subject, answer if of_kind else "", readings, limit)
        else:
            one = _support_words(evidence, subject, answer if of_kind else "", known, limit)
        found.append(one if of_kind else replace(one, of_kind=False))
    return found


def _support_read(
    evidence: Evidence, subject: str, answer: str, readings: Sequence[StoredReading], limit: int
) -> Support:
    """By what the documents about the subject were read to state for the relation."""
    lines = evidence.find(subject, limit=LOOKED_AT)
    if not lines or not lines[0].names_subject:
        return _unseen(lines, limit)
    said = fold_words(answer)
    mine = [one for one in readings if fold_words(one.answer) == said]
    rest = [one for one in readings if fold_words(one.answer) != said]
    probability = sum(one.probability for one in mine)
    states = probability >= STATED
    where = {line for one in (mine if states else rest[:1]) for line, _, _ in one.spans}
    lines.sort(key=lambda line: (line.line not in where, not line.about, line.line))
    kept = [
        replace(line, states_answer=states and line.about and line.line in where)
        for line in lines[:limit]
    ]
    others = tuple(one.answer for one in rest if one.probability >= STATED)
    states_other = not states and bool(rest) and rest[0].probability >= READ_OTHER
    return Support(True, states, states_other, tuple(kept), (), others, probability)


def _unseen(lines: Sequence[EvidenceLine], limit: int) -> Support:
    """Of a subject that no document names; the lines are about similar names, each once."""
    similar = {line.subject: line for line in reversed(lines)}
    best = sorted(similar.values(), key=lambda line: -line.similarity)[:limit]
    return Support(False, False, False, (), tuple(best))


def _support_words(
    evidence: Evidence, subject: str, answer: str, known: Phrases, limit: int
) -> Support:
    """By the words of the documents about the subject."""
    said = fold_words(answer)
    lines = evidence.find(subject, answer if said else None, limit=limit * _LINES_OF_A_NAME)
    if not lines or not lines[0].names_subject:
        return _unseen(lines, limit)
    if any(line.about and line.states_answer for line in lines):
        # only a line about the subject states; the rest are shown as naming
        kept = (line if line.about else replace(line, states_answer=False) for line in lines)
        return Support(True, True, False, tuple(kept)[:limit], (), (), 1.0)
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


class DocumentBody:
    """The text of a document behind its subject's name, in words.

    Names and answers are looked for as folded words (corpus/folding.py).
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.words = split_words(text)
        self.folded = [word.folded for word in self.words]

    def names(self, subject: Sequence[str], is_name: Callable[[str], bool]) -> bool:
        """Whether the text holds the subject's name and not only as part of a longer one.

        `is_name` says of a folded word whether it is in the name of any subject of the corpus.
        """
        found = find_phrase(self.folded, subject)
        return any(not self._is_longer(at, len(subject), is_name) for at in found)

    def states(self, answer: Sequence[str], subject: Sequence[str]) -> bool:
        """Whether the text holds the answer other than as a part of the subject's own name."""
        own = set(subject)
        inside = own.issuperset(answer)
        return any(
            not (inside and self._is_self(at, len(answer), own)) and not self._is_new(at)
            for at in find_phrase(self.folded, answer)
        )

    def _is_longer(self, at: int, size: int, is_name: Callable[[str], bool]) -> bool:
        """Whether the phrase is part of a longer name: "Mary Ann Clark", "Ann Clark Jr."."""
        if is_unspaced(self.folded[at]):
            return False
        for near, gap_at, behind in ((at - 1, at - 1, False), (at + size, at + size - 1, True)):
            if not 0 <= near < len(self.words) or is_unspaced(self.folded[near]):
                continue
            word, gap = self.words[near], self._gap(gap_at)
            if behind and word.folded in SUFFIXES and _SUFFIX_GAP.fullmatch(gap):
                return True
            first = self.text[word.start]
            if first.islower() or not first.isalpha():
                continue
            if word.end - word.start == 1:  # an initial; behind a name it needs a mere space
                if (_JOINED if behind else _INITIAL_GAP).fullmatch(gap):
                    return True
            elif _JOINED.fullmatch(gap) and (
                gap.strip() in {"-", "‐", "‑"} or is_name(word.folded)
            ):
                return True
        return False

    def _is_self(self, at: int, size: int, own: set[str]) -> bool:
        """Whether part of the subject's name stands for the subject: "London was born in ..."."""
        if at == 0 or _SENTENCE_ENDS.search(self._gap(at - 1)):
            return True
        behind = at + size
        before_joins = self.folded[at - 1] in own and _JOINED.fullmatch(self._gap(at - 1))
        return bool(
            before_joins
            or (
                behind < len(self.words)
                and self.folded[behind] in own
                and _JOINED.fullmatch(self._gap(behind - 1))
            )
        )

    def _is_new(self, at: int) -> bool:
        """ "New York", "New England": named after the place, and another one."""
        if at == 0 or self.folded[at - 1] != "new":
            return False
        return self.text[self.words[at - 1].start].isupper() and self._gap(at - 1) in {" ", "-"}

    def _gap(self, at: int) -> str:
        """What stands between a word and the next."""
        return self.text[self.words[at].end : self.words[at + 1].start]
