"""A document that does not state what is asked for is not read as if it did."""

from __future__ import annotations

import random

import pytest
from reading_samples import read_relations

from wherefrom.corpus.documents import Document
from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.questions import NOT_STATED, Question

FOUNDER, YEAR = "Who founded {subject}?", "In which year was {subject} founded?"
# what states the answer to a relation, and what only looks like it
STATING = {
    FOUNDER: ("It was founded by {x}.", "{x} set up the firm.", "Its founder was {x}."),
    YEAR: ("It dates from {x}.", "Work began there in {x}.", "Founded in {x}, it grew."),
}
NOT_STATING = {
    FOUNDER: ("{x}, the chairman, is retired.", "Sales are led by {x}.", "It once sued {x}."),
    YEAR: ("Revenue doubled by {x}.", "A fire broke out in {x}.", "It bought a rival in {x}."),
}
FIRST = ("Nora", "Hugo", "Tessa", "Emil", "Wanda", "Felix")
LAST = ("Voss", "Dahl", "Pike", "Falk", "Sorel", "Tamm")


def _answer(relation: str, rng: random.Random) -> str:
    if relation == YEAR:
        return str(rng.randint(1850, 1990))
    return f"{rng.choice(FIRST)} {rng.choice(LAST)}"


def firms(count: int, rng: random.Random) -> tuple[list[Document], list[dict[str, str]]]:
    """Documents about firms, and the answers that each of them states, by relation."""
    documents, stated = [], []
    for line in range(1, count + 1):
        name = f"{''.join(rng.choices('abdeiklmnorstu', k=7)).title()} Works"
        sentences, answers = [], {}
        for relation, wordings in STATING.items():
            if rng.random() < 0.6:
                answers[relation] = _answer(relation, rng)
                sentences.append(rng.choice(wordings).format(x=answers[relation]))
            if rng.random() < 0.7:
                other = rng.choice(NOT_STATING[relation])
                sentences.append(other.format(x=_answer(relation, rng)))
        rng.shuffle(sentences)
        documents.append(Document(line, name, f"{name}. {name} makes rope. {' '.join(sentences)}"))
        stated.append(answers)
    return documents, stated


def ask(document: Document, relation: str, answer: str) -> Question:
    text = relation.replace("{subject}", document.subject)
    return Question(document.line, text, document.subject, answer, relation)


def error_rates(
    documents: list[Document], stated: list[dict[str, str]], questions: list[Question]
) -> tuple[float, float]:
    """Of the documents without a question: the share of silent ones that are read as stating
    something, and of stating ones that are not read rightly."""
    answers = {
        reading.template: reading.answers for reading in read_relations(documents, questions)
    }
    asked = {question.subject for question in questions}
    false, missed = [], []
    for document, truth in zip(documents, stated, strict=True):
        if document.subject in asked:
            continue
        for relation in STATING:
            read = answers[relation].get(fold_words(document.subject), [])
            says = sum(answer.probability for answer in read) >= 0.5
            if relation in truth:
                missed.append(not says or read[0].text != truth[relation])
            else:
                false.append(says)
    return sum(false) / len(false), sum(missed) / len(missed)


@pytest.mark.parametrize("labels", [25, 80])
def test_silent_documents_are_told_from_stating_ones_by_answered_questions_alone(labels):
    """Each relation is asked of firms whose document states it, in any number of relations."""
    rng = random.Random(5)
    documents, stated = firms(300, rng)
    questions = []
    for relation in STATING:
        stating = [i for i, answers in enumerate(stated[:200]) if relation in answers]
        for i in rng.sample(stating, labels):
            questions.append(ask(documents[i], relation, stated[i][relation]))
    false, missed = error_rates(documents, stated, questions)
    assert false <= 0.05
    assert missed <= 0.05


def test_questions_answered_by_a_dash_teach_silence():
    """A wording that stands in silent documents alone is not known from answered questions."""
    rng = random.Random(6)
    documents, stated = firms(260, rng)
    for i, answers in enumerate(stated):
        if FOUNDER not in answers:
            trap = f" Some say it was founded for {_answer(FOUNDER, rng)}."
            documents[i] = Document(i + 1, documents[i].subject, documents[i].text + trap)
    answered, dashes = [], []
    for i in range(130):
        for relation in STATING:
            if relation in stated[i]:
                answered.append(ask(documents[i], relation, stated[i][relation]))
            elif relation == FOUNDER and len(dashes) < 25:
                dashes.append(ask(documents[i], relation, NOT_STATED))
    false, missed = error_rates(documents, stated, answered + dashes)
    assert false <= 0.05
    assert missed <= 0.05
