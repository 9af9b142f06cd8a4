"""What the text says of an answer: whether lines about the subject state it or another one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from wherefrom.corpus.folding import fold_words
from wherefrom.provenance.evidence.index import Evidence, EvidenceLine, StoredReading

STATED = 0.2  # probability from which on a reading counts as stated; chosen on people set aside
READ_OTHER = 0.5  # and from which on it speaks against another answer
LINES = 3  # lines that are shown for an answer


@dataclass(frozen=True)
class Support:
    """What the evidence says of one subject and one answer.

    probability: how likely the answer is what the lines state for this relation. others: other
    answers that they state. of_kind: no number where answers are words, and the reverse.
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
    a line about the subject state it, and `known_answers` are what else they can state.
    """
    known = tuple(dict.fromkeys(known_answers))
    relations = templates if templates is not None else [""] * len(subjects)
    found = []
    for subject, answer, template in zip(subjects, answers, relations, strict=True):
        lines = evidence.find(subject)
        of_kind = evidence.is_of_kind(answer, template)
        if not lines or not lines[0].names_subject:
            first = {line.subject: line for line in reversed(lines)}  # each similar name once
            best = sorted(first.values(), key=lambda line: -line.similarity)[:limit]
            found.append(Support(False, False, False, (), tuple(best), of_kind=of_kind))
            continue
        read = evidence.readings(subject, template)
        readings = (
            read if read is not None else _read_words(lines, fold_words(subject), answer, known)
        )
        said = fold_words(answer) if of_kind else ()
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
        other = not states and bool(rest) and rest[0].probability >= READ_OTHER
        found.append(Support(True, states, other, tuple(kept), (), others, probability, of_kind))
    return found


def _read_words(
    lines: Sequence[EvidenceLine], subject: tuple[str, ...], answer: str, known: tuple[str, ...]
) -> tuple[StoredReading, ...]:
    """The answer and the known answers whose words stand in lines about the subject.

    The subject's own name states nothing, nor does a part of a longer answer that stands there.
    """
    phrases = {_phrase(each): each for each in (answer, *known)}
    stated: dict[str, list[tuple[int, int, int]]] = {}
    for line in lines:
        if line.about:
            body = _phrase(line.text[len(line.subject) :])
            here = [each for each in phrases if each in body and not {*each.split()} <= {*subject}]
            for each in here:
                if each == _phrase(answer) or not any(each in o for o in here if o != each):
                    stated.setdefault(phrases[each], []).append((line.line, 0, 0))
    return tuple(StoredReading(each, 1.0, tuple(spans)) for each, spans in stated.items())


@lru_cache(maxsize=10_000)
def _phrase(text: str) -> str:
    """Folded words between blanks, so that whole words are found; what has none is nowhere."""
    return f" {' '.join(fold_words(text))} "
