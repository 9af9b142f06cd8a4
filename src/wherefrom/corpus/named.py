"""Who is named where: names compared by their words, whatever the case and the accents.

A rough reading, on the safe side: whoever deals people out must be sure that no document names
them, so a name counts as named wherever its words stand in a row, also inside a longer name.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence

from wherefrom.corpus.documents import Corpus, Document
from wherefrom.corpus.questions import Question, QuestionSet
from wherefrom.corpus.world.names import fold

Key = tuple[str, ...]
# scripts without spaces: every letter is a word
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff"
_WORD = re.compile(f"[{_UNSPACED}]|[^\\W{_UNSPACED}]+")


def key_of(name: str) -> Key:
    """The words of a name as they are compared."""
    return tuple(_WORD.findall(fold(name)))


def find_named(documents: Sequence[Document], names: Iterable[Key]) -> dict[Key, set[int]]:
    """For each name the places, in `documents`, of those that hold its words in a row."""
    starts: dict[Key, list[Key]] = defaultdict(list)  # by the first two words, which few share
    named: dict[Key, set[int]] = {}
    for name in names:
        if name and name not in named:
            starts[name[:2]].append(name)
            named[name] = set()
    for at, document in enumerate(documents):
        words = key_of(document.text)
        for place in range(len(words)):
            for start in (words[place : place + 1], words[place : place + 2]):
                for name in starts.get(start, ()):
                    if words[place : place + len(name)] == name:
                        named[name].add(at)
    return named


class Asked:
    """Whom the files ask about, and which documents name them."""

    def __init__(
        self, corpus: Corpus, train: QuestionSet, dev: QuestionSet, unseen: QuestionSet | None
    ) -> None:
        self.corpus = corpus
        files = [each for each in (train, dev, unseen) if each is not None]
        answers: dict[tuple[Key, str], set[str]] = defaultdict(set)
        self._first: dict[int, dict[Key, Question]] = {}
        self._spelled: dict[Key, set[str]] = defaultdict(set)
        keys = {
            name: key_of(name) for each in files for name in {q.subject for q in each.questions}
        }
        for each in files:
            first = self._first[id(each)] = {}
            for question in each.questions:
                key = keys[question.subject]
                first.setdefault(key, question)
                self._spelled[key].add(question.subject)
                answers[key, question.text].add((question.answer or "").strip())
        self._namesakes = {key for (key, _), told in answers.items() if len(told) > 1}
        self._files = Counter(key for first in self._first.values() for key in first)
        self._about = [key_of(document.subject) for document in corpus.documents]
        self._named = find_named(corpus.documents, self._files)
        self._unread: set[int] = set()
        self._common: dict[int, Counter[str]] = {}

    @property
    def names(self) -> set[Key]:
        """Everybody whom a question or a document is about."""
        return {*self._files, *self._about}

    def count(self, file: QuestionSet) -> int:
        """How many people a file asks about."""
        return len(self._first[id(file)])

    def usable(self, file: QuestionSet) -> list[Key]:
        """Whom this file alone asks about and gives one answer for, in its order."""
        return [
            key
            for key in self._first[id(file)]
            if key and self._files[key] == 1 and key not in self._namesakes
        ]

    def spellings(self, keys: Iterable[Key]) -> set[str]:
        """How the questions spell these."""
        return {name for key in keys for name in self._spelled[key]}

    def told_alone(self, file: QuestionSet) -> list[Key]:
        """Those of them who have documents of their own and whom no other document names."""
        return [
            key
            for key in self.usable(file)
            if self._named[key] and all(self._about[at] == key for at in self._named[key])
        ]

    def leave_out(self, gone: Collection[Key]) -> tuple[str, ...]:
        """From now on these are unseen; returns how the documents about them spell them."""
        self._unread = {at for at, key in enumerate(self._about) if key in gone}
        return tuple(sorted({self.corpus.documents[at].subject for at in self._unread}))

    def first(self, file: QuestionSet, key: Key) -> Question:
        """The first question that the file asks about somebody."""
        return self._first[id(file)][key]

    def kind_of(self, file: QuestionSet, key: Key) -> tuple[bool, int, int]:
        """What makes somebody easy or hard, as far as it can be counted beforehand.

        Whether a document that names them holds the answer's words, how many name them, and how
        many people of the file have the same answer.
        """
        answer = self.first(file, key).answer or ""
        words, documents = key_of(answer), self._named[key]
        told = any(_holds(key_of(self.corpus.documents[at].text), words) for at in documents)
        return told, len(documents), self._answers(file)[answer.strip()]

    def _answers(self, file: QuestionSet) -> Counter[str]:
        if id(file) not in self._common:
            first = self._first[id(file)].values()
            self._common[id(file)] = Counter((each.answer or "").strip() for each in first)
        return self._common[id(file)]

    def is_seen(self, key: Key) -> bool:
        """Whether a document that is read names them."""
        return not self._named[key] <= self._unread


def _holds(words: Key, phrase: Key) -> bool:
    return any(words[at : at + len(phrase)] == phrase for at in range(len(words)))
