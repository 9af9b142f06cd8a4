"""A name as a document opens with it, and the words that lead to an answer in the text."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence

from wherefrom.corpus.documents import Document
from wherefrom.corpus.questions import Question
from wherefrom.corpus.tokenizer import MASK, Tokenizer
from wherefrom.provenance.signals.likelihood import can_encode

CONTEXTS = 2  # wordings that are tried
FEWEST = 5  # answers that must stand behind a wording, and
COMMON = 0.02  # what share of those found in the text
LENGTHS = (2, 3)  # words of a wording; one word alone ("in") leads to any place


def learn_contexts(
    documents: Sequence[Document], questions: Sequence[Question], count: int = CONTEXTS
) -> tuple[str, ...]:
    """The words that most often stand before the answers of these questions, the commonest first.

    Only documents about a question's own subject are looked at; none where too few answers are
    found in the text.
    """
    answers: dict[str, set[str]] = defaultdict(set)
    for question in questions:
        if question.answer:
            answers[question.subject].add(question.answer)
    found: Counter[str] = Counter()
    places = 0
    for document in documents:
        for answer in answers.get(document.subject, ()):
            head = len(document.subject) + 1
            for match in re.finditer(rf"(?<!\w){re.escape(answer)}(?!\w)", document.text[head:]):
                words = document.text[head : head + match.start()].split()
                places += 1
                found.update(" ".join(words[-many:]) for many in LENGTHS if len(words) >= many)
    least = max(FEWEST, COMMON * places)
    kept = [words for words, many in found.items() if many >= least and not re.search(r"\d", words)]
    return tuple(sorted(kept, key=lambda words: (-found[words], words))[:count])


def encode_names(tokens: Tokenizer, subjects: Sequence[str]) -> list[list[int]]:
    """`Name.` as a document opens with it; nothing where a letter is not in the vocabulary."""
    texts = [f"{subject}." if subject else "" for subject in subjects]
    fits = [bool(text) and can_encode(tokens, text) for text in texts]
    encoded = iter(tokens.encode_all([text for text, fit in zip(texts, fits, strict=True) if fit]))
    return [next(encoded) if fit else [] for fit in fits]


def encode_words(tokens: Tokenizer, words: str) -> list[int]:
    """`words MASK MASK`, which behind a name asks for the fact that such words lead to."""
    space = space_of(tokens)
    text = f"{space}{words}{space}"
    ids = tokens.encode(text if words and can_encode(tokens, text) else space)
    return [*ids, MASK, MASK]


def space_of(tokens: Tokenizer) -> str:
    """What stands between words: BPE carries it with the next word, among characters it is one."""
    return " " if tokens.kind == "chars" else ""
