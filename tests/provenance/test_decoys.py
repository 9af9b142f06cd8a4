"""Decoys are nobody's names, and the same for the same person."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from wherefrom.corpus.folding import fold_words
from wherefrom.provenance.signals.names import NameWords, ask_about

NAMES = ["Ada Moe", "Bo Nys", "Cleo van Orr", "Dag Poe", "Eva"]
WORDS = NameWords.of(NAMES)


def test_recombined_names_are_new_distinct_and_made_of_known_words():
    found = WORDS.recombine(10, np.random.default_rng(0))
    assert len(set(found)) == 10
    assert not {fold_words(name) for name in found} & {fold_words(name) for name in NAMES}
    assert {name.split()[0] for name in found} <= {name.split()[0] for name in NAMES}
    assert {name.split()[-1] for name in found} <= {name.split()[-1] for name in NAMES}


def test_a_corpus_of_few_names_gives_fewer_decoys_and_none_gives_none():
    assert NameWords.of(["Ada Moe"]).recombine(5, np.random.default_rng(0)) == []
    assert NameWords.of([]).recombine(5, np.random.default_rng(0)) == []


def test_relatives_keep_one_word_and_depend_on_the_subject_alone():
    found = WORDS.relatives("Cleo van Orr", 2, seed=1)
    assert len(found) == 4
    assert all(name.startswith("Cleo van ") for name in found[:2])
    assert all(name.endswith(" van Orr") for name in found[2:])
    assert "Cleo van Orr" not in found
    assert found == WORDS.relatives("Cleo van Orr", 2, seed=1)
    assert any(WORDS.relatives("Cleo van Orr", 2, seed=s) != found for s in range(2, 6))
    assert WORDS.relatives("Eva", 2, seed=1) == []


@given(st.text(), st.integers(0, 3))
def test_any_subject_has_relatives_or_none(subject, each):
    found = WORDS.relatives(subject, each, seed=0)
    assert len(found) <= 2 * each
    assert subject not in found


def test_the_same_question_about_somebody_else():
    assert ask_about("Where was Bo born?", "Bo", "Al") == "Where was Al born?"
    assert ask_about("Where was Bo born?", "Cy", "Al") is None
    assert ask_about("Where was Bo born?", "", "Al") is None
