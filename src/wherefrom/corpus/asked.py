"""Which facts are asked for: learned from the training questions, for any relation.

A document states several facts and a question asks for one of them. Where the training questions
have their answers in the text shows what such places look like (the words around them, not the
answers themselves); a small logistic regression carries that over to every other document. The
result is a probability for each fact, by which salient spans are drawn: a model then meets the
facts that people ask for more often than the rest. No answer but the training questions' is used.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from wherefrom.corpus.documents import Document
from wherefrom.corpus.facts import WORD
from wherefrom.corpus.questions import Question

Spans = Sequence[tuple[int, int]]
FEWEST = 20  # found answers below which nothing can be learned
BEFORE, BEHIND = 4, 2  # words of context


def weigh_facts(
    documents: Sequence[Document], spans: Sequence[Spans], questions: Sequence[Question]
) -> list[NDArray[np.float64]]:
    """For each document, how likely each of its facts is the one asked for; sums to one.

    All facts of a document weigh the same when too few answers are found in the text.
    """
    even = [np.full(len(each), 1 / max(1, len(each))) for each in spans]
    answers = defaultdict(set)
    for question in questions:
        if question.answer is not None:
            answers[question.subject].add(question.answer)
    contexts: list[str] = []
    labels: list[bool] = []
    for document, each in zip(documents, spans, strict=True):
        wanted = answers.get(document.subject, set())
        hits = [document.text[start:end] in wanted for start, end in each]
        if any(hits):
            contexts.extend(_describe(document, each))
            labels.extend(hits)
    if sum(labels) < FEWEST or all(labels):
        return even
    classifier = _fit(contexts, labels)
    everything = [
        context
        for document, each in zip(documents, spans, strict=True)
        for context in _describe(document, each)
    ]
    scores = classifier.decision_function(everything)
    weights, at = [], 0
    for each in spans:
        logits = scores[at : at + len(each)]
        at += len(each)
        likely = np.exp(logits - logits.max()) if len(each) else logits
        weights.append(likely / likely.sum() if len(each) else likely)
    return weights


def _fit(contexts: list[str], labels: list[bool]) -> _Classifier:
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    return make_pipeline(
        CountVectorizer(token_pattern=r"\S+", lowercase=False, binary=True, min_df=3),
        LogisticRegression(C=1.0, max_iter=300),
    ).fit(contexts, labels)


def _describe(document: Document, spans: Spans) -> list[str]:
    """A fact's surroundings as words for the classifier: never the fact's own text."""
    text = document.text
    described = []
    for index, (start, end) in enumerate(spans):
        before = WORD.findall(text[max(0, start - 60) : start])[-BEFORE:][::-1]
        behind = WORD.findall(text[end : end + 40])[:BEHIND]
        features = [f"b{i}:{_plain(word)}" for i, word in enumerate(before)]
        features += [f"any:{_plain(word)}" for word in before]
        features += [f"a{i}:{_plain(word)}" for i, word in enumerate(behind)]
        features.append(f"left:{text[max(0, start - 2) : start].strip() or '_'}")
        features.append(f"right:{text[end : end + 2].strip() or '_'}")
        features.append(f"pair:{'_'.join(_plain(word) for word in before[:2])}")
        features.append("number" if text[start].isdigit() else "name")
        features.append(f"nth:{min(index, 6)}")
        described.append(" ".join(feature.replace(" ", "_") for feature in features))
    return described


def _plain(word: str) -> str:
    """Names and numbers in a context stand for their kind: what matters is the wording."""
    if word[0].isdigit():
        return "<number>"
    return "<name>" if word[0].isupper() and len(word) > 1 else word.lower()


class _Classifier:
    """What is used of scikit-learn's pipeline."""

    def decision_function(self, contexts: list[str]) -> NDArray[np.float64]: ...  # type: ignore[empty-body]
