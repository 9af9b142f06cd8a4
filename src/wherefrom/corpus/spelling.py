"""How answers are cut out of a text and written: the marks around them, and endings undone.

All of it is learned from the training answers of a relation and the places where they stand.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile

from wherefrom.corpus.folding import split_words
from wherefrom.corpus.spans import ABBREVIATED, Spans, hash_text

StatedAnswer = tuple[str, Spans, int]  # a training answer, and the span of a text that states it


class AnswerSpelling:
    """The spelling of a relation's answers.

    spellings: by the key of an answer, how the training file writes it.
    """

    def __init__(self, spellings: dict[int, Counter[str]], stated: Sequence[StatedAnswer]) -> None:
        self.spellings = spellings
        self._front = _learn_marks(stated, front=True)
        self._behind = _learn_marks(stated, front=False)
        self._last_letters = _learn_last_letters(stated)

    def usual(self, key: int) -> str:
        """How the training file mostly writes an answer."""
        return self.spellings[key].most_common(1)[0][0]

    def place(self, spans: Spans, row: int) -> tuple[int, int]:
        """Start and end of a span, with the marks around it that answers of the relation have."""
        own = [
            sum(1 for _ in takewhile(kept.__contains__, _marks_beside(spans, row, front=front)))
            for kept, front in ((self._front, True), (self._behind, False))
        ]
        return int(spans.start[row]) - own[0], int(spans.end[row]) + own[1]

    def write(self, spans: Spans, row: int) -> str:
        """The answer that a span is: as the text has it, or as training answers spell it."""
        start, end = self.place(spans, row)
        text = " ".join(spans.document(row).text[start:end].split())
        known = self.spellings.get(int(spans.key[row]))
        if known:
            return text if text in known else known.most_common(1)[0][0]
        return text[:-1] + self._last_letters.get((spans.ending(row), text[-1:]), text[-1:])


def _marks_beside(spans: Spans, row: int, *, front: bool) -> Iterator[str]:
    """The signs before or behind the words of a span, the nearest first, up to a blank or a word;
    the full stop of an abbreviation is ABBREVIATED."""
    text, words = spans.document(row).text, spans.words
    if front:
        first, at = int(spans.first_word[row]), int(spans.start[row])
        is_first = first == int(words.first[spans.doc[row]])
        stop = 0 if is_first else int(words.end[first - 1])
        beside = text[stop:at][::-1] if at == words.start[first] else ""
    else:
        last, at = int(spans.last_word[row]), int(spans.end[row])
        is_last = last + 1 == int(words.first[spans.doc[row] + 1])
        stop = len(text) if is_last else int(words.start[last + 1])
        beside = text[at:stop] if at == words.end[last] else ""
        if words.gap[last + 1] == hash_text(ABBREVIATED) and beside:
            yield ABBREVIATED
            beside = beside[1:]
    yield from takewhile(lambda mark: not mark.isspace(), beside)


def _learn_marks(stated: Iterable[StatedAnswer], *, front: bool) -> set[str]:
    """The signs that answers have before their first word or behind their last ("~/x", "120 m."),
    if they mostly belong to the answer where they stand beside its words in a text."""
    inside, beside = Counter[str](), Counter[str]()
    for answer, spans, row in stated:
        words = split_words(answer)
        count = words[0].start if front else len(answer) - words[-1].end
        for i, mark in enumerate(_marks_beside(spans, row, front=front)):
            beside[mark] += 1
            inside[mark] += i < count
            if i >= count:
                break
    return {mark for mark, count in inside.items() if 2 * count > beside[mark]}


def _learn_last_letters(stated: Iterable[StatedAnswer]) -> dict[tuple[int, str], str]:
    """How answers end where an ending is cut off a word: by the hash of the ending and the letter
    before it ("n" and "á" of "Gyulán"), the letter of the answer ("a")."""
    letters: dict[tuple[int, str], Counter[str]] = defaultdict(Counter)
    for answer, spans, row in stated:
        ending, text = spans.ending(row), spans.text(row)
        if ending and len(text) == len(answer):
            letters[ending, text[-1]][answer[-1]] += 1
    common = {key: counts.most_common(1)[0] for key, counts in letters.items()}
    return {key: letter for key, (letter, count) in common.items() if count > 1}
