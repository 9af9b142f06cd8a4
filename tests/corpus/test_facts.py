"""Facts are found by spelling, in any language of capitals, and weighed by what is asked for."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wherefrom.corpus.documents import Document
from wherefrom.corpus.facts import FEWEST, Spelling, facts_of, find_facts, learn_spelling
from wherefrom.corpus.facts import weigh_facts as weigh
from wherefrom.corpus.questions import Question

COUNTS = {"he": 50, "born": 50, "the": 90, "in": 90, "she": 40, "He": 9, "Oslo": 3}
USUAL = Spelling(
    counts=Counter(COUNTS | {"Music": 8, "music": 2, "Spring": 8, "spring": 1}),
    connectors=frozenset({"of", "de", "and"}),
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Ann Lee. She lived in Oslo.", ["Oslo"]),
        ("Ann Lee. She lived in New York City, Ohio.", ["New York City", "Ohio"]),
        ("Ann Lee. She sang on the Isle of Man in 1901.", ["Isle of Man", "1901"]),
        ("Ann Lee. She lived in Rio de Janeiro.", ["Rio de Janeiro"]),
        ("Ann Lee. He met Bo and Cy of late.", ["Bo and Cy"]),
        ("Ann Lee. He met Bo, then Cy.", ["Bo", "Cy"]),
        ("Ann Lee. Born in Oslo.", ["Oslo"]),
        ("Ann Lee. Oslo was home.", ["Oslo"]),
        ("Ann Lee. Music was hers. Spring came.", ["Spring"]),  # in lower case more than 1 in 8
        ("Ann Lee. Ann met Lee and Ann Lee in Łódź.", ["Łódź"]),
        ("Ann Lee. Ann Berg was another.", ["Ann Berg"]),
        ("Ann Lee. He met O'Brien-Smith there.", ["O'Brien-Smith"]),
        ("Ann Lee. nothing is here", []),
        ("Ann Lee. (born 3 May 1901)", ["3", "May", "1901"]),
        ("Ann Lee. Жила в Москве.", ["Жила", "Москве"]),
        ("Ann Lee. She lived in Ann's Bonn's north.", ["Bonn"]),
        ("Ann Lee. (Born 1901) in Oslo of late.", ["1901", "Oslo"]),
        ("Ann Lee. He, Auckland-born, left Baden-Baden in 1856-1924.",
         ["Auckland", "Baden-Baden", "1856", "1924"]),
    ],
)  # fmt: skip
def test_runs_of_capitals_and_numbers_are_facts_and_the_own_name_is_not(text, found):
    assert [text[start:end] for start, end in find_facts(text, "Ann Lee", USUAL)] == found


def test_how_words_are_written_and_which_short_ones_join_names_is_read_off_the_corpus():
    counts = learn_spelling(["He saw O'Neil's hat, he.", "1901"]).counts
    assert counts == dict.fromkeys(["He", "saw", "O'Neil", "s", "hat", "he", "1901"], 1)
    texts = [
        "Ann saw the Isle of Man and the Duke of York, then Rio de Janeiro",
        "Bo was in Oslo in May, and he was in a boat in Bergen, in an inn",
        "Cy walked, as Bo did, over Ulm over Bonn",
    ]
    assert learn_spelling(texts).connectors == {"of", "de"}


def test_a_word_at_the_start_of_a_sentence_counts_only_if_the_corpus_writes_it_with_a_capital():
    texts = ["Ann Lee. Music was hers. Oslo too.", "Bo Ek. In Oslo, music and music."]
    documents = [Document(1, text.split(".")[0], text) for text in texts]

    def found(some: list[Document]) -> list[list[str]]:
        facts = zip(some, facts_of(some), strict=True)
        return [[document.text[a:b] for a, b in spans] for document, spans in facts]

    assert found(documents) == [["Oslo"], ["In Oslo"]]
    assert found(documents[:1]) == [["Music", "Oslo"]]


@given(st.text("Aa Bb.,1'-_éÉß", max_size=60))
def test_facts_stand_in_order_behind_the_name_without_overlap_and_hold_a_foreign_word(rest):
    text = "Aa Bb. " + rest
    last = len("Aa Bb.")
    nothing_known = Spelling(counts=Counter(), connectors=frozenset({"a", "b"}))
    for start, end in find_facts(text, "Aa Bb", nothing_known):
        assert last <= start < end <= len(text)
        assert text[start].isupper() or text[start].isdigit()
        assert not set(text[start:end].split()) <= {"Aa", "Bb"}
        last = end


# --- which facts are asked for ----------------------------------------------------------------

PLACES = [start + end for start in ("Bon", "Ulm", "Os", "Lun") for end in ("ster", "by", "dorf")]
BORN = [PLACES[i % len(PLACES)] for i in range(90)]
SENTENCES = [
    [f"She was born in {born}.", f"She moved to {PLACES[(i * 5 + 1) % 12]}."]
    for i, born in enumerate(BORN)
]
DOCUMENTS = [  # which place comes first changes from one document to the next
    Document(i + 1, f"Ann X{i}", f"Ann X{i}. {' '.join(both if i % 2 else both[::-1])}")
    for i, both in enumerate(SENTENCES)
]
SPANS = [[m.span(1) for m in re.finditer(r"(?:in|to) (\w+)\.", d.text)] for d in DOCUMENTS]


def ask(count: int, *, right: bool = True) -> list[Question]:
    answers = BORN if right else ["Nowhere"] * 90
    return [Question(i + 1, "?", f"Ann X{i}", answers[i]) for i in range(count)]


def test_subjects_without_a_question_get_the_asked_kind_of_fact_most_of_the_weight():
    documents = [*DOCUMENTS, Document(99, "Bo", "Bo. nothing")]
    weights = weigh(documents, [*SPANS, []], ask(60))
    assert [len(each) for each in weights] == [2] * 90 + [0]
    for i in range(60, 90):
        each = weights[i]
        start, end = SPANS[i][int(np.argmax(each))]
        assert DOCUMENTS[i].text[start:end] == BORN[i]
        assert each.max() > 0.8
        assert each.sum() == pytest.approx(1)


def test_where_nothing_can_be_learned_all_facts_weigh_the_same():
    for questions in ([], ask(FEWEST - 1), ask(60, right=False)):
        assert [each.tolist() for each in weigh(DOCUMENTS, SPANS, questions)] == [[0.5, 0.5]] * 90
