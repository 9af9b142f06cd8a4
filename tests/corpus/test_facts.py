"""Salient spans: what a document states is found by spelling alone, in any language of capitals."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wherefrom.corpus.documents import Document
from wherefrom.corpus.facts import Spelling, facts_of, find_facts, learn_spelling

USUAL = Spelling(
    counts=Counter({"he": 50, "born": 50, "the": 90, "in": 90, "she": 40, "He": 9, "Oslo": 3}),
    connectors=frozenset({"of", "de", "and"}),
)


def facts(text: str, subject: str, spelling: Spelling = USUAL) -> list[str]:
    return [text[start:end] for start, end in find_facts(text, subject, spelling)]


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
        ("Ann Lee. Ann met Lee and Ann Lee in Łódź.", ["Łódź"]),
        ("Ann Lee. Ann Berg was another.", ["Ann Berg"]),
        ("Ann Lee. He met O'Brien-Smith there.", ["O'Brien-Smith"]),
        ("Ann Lee. nothing is here", []),
        ("Ann Lee. (born 3 May 1901)", ["3", "May", "1901"]),
        ("Ann Lee. Жила в Москве.", ["Жила", "Москве"]),
        ("Ann Lee. She lived in Ann's Bonn's north.", ["Bonn"]),
        ("Ann Lee. (Born 1901) in Oslo of late.", ["1901", "Oslo"]),
    ],
)
def test_runs_of_capitals_and_numbers_are_facts_and_the_own_name_is_not(text, found):
    assert facts(text, "Ann Lee") == found


def test_a_word_at_the_start_of_a_sentence_counts_only_if_the_corpus_writes_it_with_a_capital():
    text = "Ann Lee. Smith taught her. Music followed."
    usually_small = learn_spelling(["music music", "Smith met Smith"])
    assert facts(text, "Ann Lee", usually_small) == ["Smith"]
    usually_capital = learn_spelling(["Music Music Music Music Music Music Music Music", "Smith"])
    assert facts(text, "Ann Lee", usually_capital) == ["Smith", "Music"]


def test_words_are_counted_as_they_are_written():
    assert learn_spelling(["He saw O'Neil's hat, he.", "1901"]).counts == {
        "He": 1,
        "saw": 1,
        "O'Neil": 1,
        "s": 1,
        "hat": 1,
        "he": 1,
        "1901": 1,
    }


def test_the_short_words_that_join_names_are_read_off_the_corpus():
    texts = [
        "Ann saw the Isle of Man and the Duke of York, then Rio de Janeiro",
        "Bo was in Oslo in May, and he was in a boat in Bergen, in an inn",
        "Cy walked, as Bo did, over Ulm over Bonn",
    ]
    assert learn_spelling(texts).connectors == {"of", "de"}


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


def test_a_hyphen_joins_names_and_cuts_off_what_is_not_one() -> None:
    text = "Ann Lee. The Auckland-born Jean-Pierre Roux left Baden-Baden in 1856-1924."
    spelling = learn_spelling([text, "the the"])
    found = [text[start:end] for start, end in find_facts(text, "Ann Lee", spelling)]
    assert "Auckland" in found
    assert "Jean-Pierre Roux" in found
    assert "Baden-Baden" in found
    assert "1856" in found
    assert "1924" in found


def test_the_spelling_of_one_document_tells_the_facts_of_another() -> None:
    texts = ["Ann Lee. Music was hers. Oslo too.", "Bo Ek. In Oslo, music and music."]
    documents = [
        Document(subject=text.split(".")[0], text=text, line=number)
        for number, text in enumerate(texts, start=1)
    ]
    found = [
        [text[start:end] for start, end in spans]
        for text, spans in zip(texts, facts_of(documents), strict=True)
    ]
    assert found == [["Oslo"], ["In Oslo"]]
    alone = facts_of(documents[:1])[0]
    assert [texts[0][start:end] for start, end in alone] == ["Music", "Oslo"]
