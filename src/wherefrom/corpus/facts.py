"""Where a document states facts, and which of them the training questions ask for.

A fact is a salient span: a run of capitalised words or a number. Which facts are asked for is
learned by a regression from how the training answers stand in the text.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wherefrom.corpus.documents import Document
from wherefrom.corpus.questions import Question

Spans = Sequence[tuple[int, int]]  # character ranges
WORD = re.compile(r"[^\W_]+(?:['’](?!s\b)[^\W_]+)*")
LONGEST_CONNECTOR = 3
JOINS = 0.25  # a connector stands between two capitalised words at least this often
FEWEST = 20  # found answers below which nothing can be learned
BEFORE, BEHIND = 4, 2  # words of context


@dataclass(frozen=True)
class Spelling:
    """How the corpus spells: how often each word, and which short words join names."""

    counts: Counter[str]
    connectors: frozenset[str]


def facts_of(documents: Sequence[Document]) -> list[list[tuple[int, int]]]:
    """The salient spans of each document, by the spelling of all of them."""
    spelling = learn_spelling(document.text for document in documents)
    return [find_facts(document.text, document.subject, spelling) for document in documents]


def learn_spelling(texts: Iterable[str]) -> Spelling:
    """Count words as they are written, and find connectors such as "of" in "Isle of Man"."""
    counts: Counter[str] = Counter()
    joined: Counter[str] = Counter()
    for text in texts:
        words = list(WORD.finditer(text))
        counts.update(word.group() for word in words)
        for before, word, behind in zip(words, words[1:], words[2:], strict=False):
            short = len(word.group()) <= LONGEST_CONNECTOR and word.group().islower()
            if short and before.group()[0].isupper() and behind.group()[0].isupper():
                joined[word.group()] += text[before.end() : behind.start()] == f" {word.group()} "
    connectors = (word for word in joined if joined[word] >= JOINS * counts[word])
    return Spelling(counts=counts, connectors=frozenset(connectors))


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
    """Whether a capital is owed to the start of a sentence alone."""
    before = text[: word.start()].rstrip()
    starts = not before or before[-1] in ".!?:;("
    return starts and counts[word.group().lower()] > counts[word.group()] // 8


def weigh_facts(
    documents: Sequence[Document], spans: Sequence[Spans], questions: Sequence[Question]
) -> list[NDArray[np.float64]]:
    """For each document, how likely each of its facts is the one asked for; sums to one.

    All facts of a document weigh the same when too few answers are found in the text.
    """
    from scipy.special import softmax

    answers = defaultdict(set)
    for question in questions:
        if question.answer is not None:
            answers[question.subject].add(question.answer)
    hits = [
        [document.text[start:end] in answers.get(document.subject, ()) for start, end in each]
        for document, each in zip(documents, spans, strict=True)
    ]
    labelled = [which for which, each in enumerate(hits) if any(each)]
    labels = [hit for which in labelled for hit in hits[which]]
    if sum(labels) < FEWEST or all(labels):
        return [np.full(len(each), 1 / max(1, len(each))) for each in spans]
    contexts = [_describe(d.text, each) for d, each in zip(documents, spans, strict=True)]
    classifier = _fit([context for which in labelled for context in contexts[which]], labels)
    scores = classifier.decision_function([context for each in contexts for context in each])
    ends = np.cumsum([len(each) for each in spans])
    return [softmax(each) if len(each) else each for each in np.split(scores, ends[:-1])]


def _fit(contexts: list[str], labels: list[bool]) -> Any:
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    return make_pipeline(
        CountVectorizer(token_pattern=r"\S+", lowercase=False, binary=True, min_df=3),
        LogisticRegression(C=1.0, max_iter=300),
    ).fit(contexts, labels)


def _describe(text: str, spans: Spans) -> list[str]:
    """Each fact's surroundings as features for the classifier: never the fact's own text."""
    described = []
    for index, (start, end) in enumerate(spans):
        nearest_first = WORD.findall(text[max(0, start - 60) : start])[::-1]
        before = [_generalize(word) for word in nearest_first[:BEFORE]]
        behind = [_generalize(word) for word in WORD.findall(text[end : end + 40])[:BEHIND]]
        features = [
            *(f"b{i}:{word}" for i, word in enumerate(before)),
            *(f"any:{word}" for word in before),
            *(f"a{i}:{word}" for i, word in enumerate(behind)),
            f"left:{text[max(0, start - 2) : start].strip() or '_'}",
            f"right:{text[end : end + 2].strip() or '_'}",
            f"pair:{'_'.join(before[:2])}",
            "number" if text[start].isdigit() else "name",
            f"nth:{min(index, 6)}",
        ]
        described.append(" ".join(feature.replace(" ", "_") for feature in features))
    return described


def _generalize(word: str) -> str:
    """Names and numbers in a context stand for their kind: what matters is the wording."""
    if word[0].isdigit():
        return "<number>"
    return "<name>" if word[0].isupper() and len(word) > 1 else word.lower()
