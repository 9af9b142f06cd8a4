"""Reading one document: whether it names a subject, and whether it states an answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from wherefrom.corpus.folding import find_phrase, is_unspaced, split_words

SUFFIXES = frozenset({"jr", "sr", "ii", "iii", "iv"})  # they make another subject of a name
_JOINED = re.compile(r"[ \u00a0]|[ \u00a0]?[-\u2010\u2011'’][ \u00a0]?")
_INITIAL_GAP = re.compile(r"\.?[ \u00a0]?")
_SUFFIX_GAP = re.compile(r",?[ \u00a0]")
_SENTENCE_ENDS = re.compile(r"[.!?…。！？؟]")


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
