"""Which facts are asked for is learned from how training answers stand in the text."""

from __future__ import annotations

import numpy as np
import pytest

from wherefrom.corpus.documents import Document
from wherefrom.corpus.facts import FEWEST, weigh_facts
from wherefrom.corpus.questions import Question

PLACES = [start + end for start in ("Bon", "Ulm", "Os", "Lun") for end in ("ster", "by", "dorf")]


def person(i: int) -> tuple[Document, list[tuple[int, int]], str]:
    """Born in one place and living in another; which comes first changes from one to the next."""
    born, lives = PLACES[i % len(PLACES)], PLACES[(i * 5 + 1) % len(PLACES)]
    sentences = [f"She was born in {born} long ago.", f"She moved to {lives} after that."]
    text = f"Ann X{i}. " + " ".join(sentences if i % 2 else sentences[::-1])
    spans = sorted(
        (text.index(before) + len(before), text.index(before) + len(before) + len(place))
        for before, place in (("born in ", born), ("moved to ", lives))
    )
    return Document(i + 1, f"Ann X{i}", text), spans, born


PEOPLE = [person(i) for i in range(90)]
DOCUMENTS = [document for document, _, _ in PEOPLE]
SPANS = [spans for _, spans, _ in PEOPLE]


def asked(people: range, *, right: bool = True) -> list[Question]:
    return [
        Question(i + 1, "?", PEOPLE[i][0].subject, PEOPLE[i][2] if right else "Nowhere")
        for i in people
    ]


def test_people_nobody_asked_about_get_the_asked_kind_of_fact_most_of_the_weight():
    weights = weigh_facts(DOCUMENTS, SPANS, asked(range(60)))
    for (document, spans, born), each in list(zip(PEOPLE, weights, strict=True))[60:]:
        start, end = spans[int(np.argmax(each))]
        assert document.text[start:end] == born
        assert each.max() > 0.8


@pytest.mark.parametrize("questions", [[], asked(range(60)), asked(range(FEWEST - 1))])
def test_weights_are_a_distribution_over_each_documents_facts(questions):
    documents = [*DOCUMENTS, Document(99, "Bo", "Bo. nothing")]
    weights = weigh_facts(documents, [*SPANS, []], questions)
    assert len(weights) == len(documents)
    assert len(weights[-1]) == 0
    for spans, each in zip(SPANS, weights, strict=False):
        assert len(each) == len(spans)
        assert each.sum() == pytest.approx(1)


@pytest.mark.parametrize(
    "questions",
    [[], asked(range(FEWEST - 1)), asked(range(60), right=False)],
    ids=["none", "too-few", "not-in-the-text"],
)
def test_where_nothing_can_be_learned_all_facts_weigh_the_same(questions):
    for each in weigh_facts(DOCUMENTS, SPANS, questions):
        assert each.tolist() == [0.5, 0.5]
