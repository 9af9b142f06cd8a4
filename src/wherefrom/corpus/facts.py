"""Where a document states facts: its capitalised spans and its numbers.

Masking exactly these ("salient spans") makes a model learn what a text says of its subject rather
than how sentences go on. What counts is read off the spelling and the corpus itself: there is no
list of places, no gazetteer and no word of any relation here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from wherefrom.corpus.documents import Document

WORD = re.compile(r"[^\W_]+(?:['’](?!s\b)[^\W_]+)*")
LONGEST_CONNECTOR = 3
JOINS = 0.25  # a connector stands between two capitalised words at least this often


@dataclass(frozen=True)
class Spelling:
    """How the corpus spells: how often each word, and which short words join names."""

    counts: Counter[str]
    connectors: frozenset[str]


def learn_spelling(texts: Iterable[str]) -> Spelling:
    """Count words as they are written, and find the likes of "of" in "Isle of Man"."""
    counts: Counter[str] = Counter()
    joined: Counter[str] = Counter()
    for text in texts:
        words = list(WORD.finditer(text))
        counts.update(word.group() for word in words)
        for before, word, behind in zip(words, words[1:], words[2:], strict=False):
            short = len(word.group()) <= LONGEST_CONNECTOR and word.group().islower()
            if short and before.group()[0].isupper() and behind.group()[0].isupper():
                spaced = text[before.end() : behind.start()] == f" {word.group()} "
                joined[word.group()] += spaced
    connectors = (word for word in joined if joined[word] >= JOINS * counts[word])
    return Spelling(counts=counts, connectors=frozenset(connectors))


def facts_of(documents: Sequence[Document]) -> list[list[tuple[int, int]]]:
    """The salient spans of each document, by the spelling of all of them."""
    spelling = learn_spelling(document.text for document in documents)
    return [find_facts(document.text, document.subject, spelling) for document in documents]


def find_facts(text: str, subject: str, spelling: Spelling) -> list[tuple[int, int]]:
    """Character ranges of the salient spans after the subject's own `Name. `.

    A span is a run of capitalised words, connectors inside it included, or a number. Spans made of
    the subject's own words are left out, and so is a capitalised word at the start of a sentence
    that the corpus usually writes in lower case ("Born", "He").
    """
    own = set(WORD.findall(subject))
    spans: list[tuple[int, int]] = []
    run: list[re.Match[str]] = []  # capitalised words of the span being built
    connector: re.Match[str] | None = None

    def close() -> None:
        nonlocal connector
        if run and not all(word.group() in own for word in run):
            spans.append((run[0].start(), run[-1].end()))
        run.clear()
        connector = None

    for word in WORD.finditer(text, len(subject) + 1):
        token = word.group()
        last = connector or (run[-1] if run else None)
        if last is not None and text[last.end() : word.start()] not in (" ", "-"):
            close()
        if token[0].isdigit():
            close()
            spans.append(word.span())
        elif token[0].isupper() and not _opens_sentence(text, word, spelling.counts):
            run.append(word)
            connector = None
        elif run and connector is None and token in spelling.connectors:
            connector = word
        else:
            close()
    close()
    return spans


def _opens_sentence(text: str, word: re.Match[str], counts: Counter[str]) -> bool:
    before = text[: word.start()].rstrip()
    if before and before[-1] not in ".!?:;(":
        return False
    token = word.group()
    return counts[token.lower()] > counts[token] // 8
