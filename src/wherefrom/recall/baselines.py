"""What recall must be compared with: answers that no reading of the text is needed for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from wherefrom.corpus.questions import Question
from wherefrom.errors import UserError


def majority_answer(questions: Sequence[Question]) -> str:
    """The commonest training answer; of equals, the first in the alphabet."""
    counts = Counter(question.answer for question in questions if question.answer is not None)
    if not counts:
        raise UserError("the majority answer needs training questions with answers.")
    return min(counts, key=lambda answer: (-counts[answer], answer))


def guess_by_name(train: Sequence[Question], asked: Sequence[Question]) -> list[str]:
    """Answers from the letters of the name alone: naive Bayes on its letter n-grams.

    Whatever this gets right can be had without having read a word about the person.
    """
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.naive_bayes import MultinomialNB
    from sklearn.pipeline import make_pipeline

    answered = [question for question in train if question.answer is not None]
    if not answered:
        raise UserError("guessing by name needs training questions with answers.")
    if not asked:
        return []
    classifier = make_pipeline(
        CountVectorizer(analyzer="char_wb", ngram_range=(2, 4), lowercase=True),
        MultinomialNB(alpha=0.1),
    )
    classifier.fit([q.subject for q in answered], [q.answer for q in answered])
    return [str(answer) for answer in classifier.predict([q.subject for q in asked])]
