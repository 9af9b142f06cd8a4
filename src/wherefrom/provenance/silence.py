"""Silence made by removal: is an answer still read where its sentence was taken out?

A file of questions may say that no document answers some of them ("-"). Where it does not, such
questions are made: of judged subjects, the sentences with the answer are removed from their
documents, and the reader, trained on the same questions as before, reads what is left. None of
these documents has an answer to the question any more.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from wherefrom.corpus.database import Database
from wherefrom.corpus.documents import Document
from wherefrom.corpus.facts import is_stated, read_facts
from wherefrom.corpus.folding import find_phrase, fold_words
from wherefrom.corpus.questions import Question
from wherefrom.corpus.split import HeldOutQuestion

MAX_REMOVED_QUESTIONS = 50  # questions of a relation whose sentence is removed
SENTENCE_START = re.compile(r"(?<=[.!?;。！？])\s*(?=\S)")


def remove_answer(document: Document, answer: str) -> Document | None:
    """The document without the sentences that hold the answer; None if there are none, or if no
    sentence is left."""
    head, body = document.text[: len(document.subject)], document.text[len(document.subject) :]
    sentences = SENTENCE_START.split(body)
    phrase = fold_words(answer)
    kept = [each for each in sentences if not find_phrase(fold_words(each), phrase)]
    if len(kept) == len(sentences) or not fold_words(" ".join(kept)):
        return None
    return replace(document, text=head + " ".join(kept))


def count_misread(
    corpus: Database, learned: Sequence[Question], held_out: Sequence[HeldOutQuestion]
) -> dict[str, dict[str, int]]:
    """By relation, how many documents were left without their answer, and in how many of them an
    answer was read all the same."""
    drawn: dict[str, HeldOutQuestion] = {}  # one question about each subject
    removed: dict[str, list[Document]] = {}
    counts: Counter[str] = Counter()
    for one in held_out:
        is_usable = one.seen and one.answer and not one.is_silent and one.subject not in drawn
        if not is_usable or counts[one.template] >= MAX_REMOVED_QUESTIONS:
            continue
        about = _documents_about(corpus, one.subject)
        shorter = [remove_answer(document, one.answer or "") for document in about]
        left = [document for document in shorter if document is not None]
        if left and len(left) == len(about):
            drawn[one.subject], removed[one.subject] = one, left
            counts[one.template] += 1
    if not drawn:
        return {}
    asked = dict.fromkeys(question.subject for question in learned)
    texts = [document for subject in asked for document in _documents_about(corpus, subject)]
    texts += [document for several in removed.values() for document in several]
    found = {template: {"removed": count, "misread": 0} for template, count in counts.items()}
    with read_facts(Database.of(texts), learned) as reduced:
        for one in drawn.values():
            answers = reduced.extracted(one.template, fold_words(one.subject))
            found[one.template]["misread"] += is_stated(answers)
    return found


def _documents_about(corpus: Database, subject: str) -> list[Document]:
    return [corpus.documents[i] for i in corpus.documents_about(fold_words(subject))]
