"""Invented names: new to the text, made of its own letters, the same for the same seed."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from wherefrom.corpus.documents import Document
from wherefrom.corpus.subjects import find_named, invent_names, key_of

GIVEN = ["Ann", "Bo", "Cléo", "Dag", "Eva B.", "Finn", "Gus", "Hana"]
FAMILY = ["Moe", "Nys", "Orr", "Poe", "Quist", "Rask", "Stén", "van Dyck"]
NAMES = [f"{given} {family}" for given, family in zip(GIVEN, FAMILY, strict=True)]
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ "


def about(*texts: str) -> list[Document]:
    return [Document(at, "Zoe Zed", f"Zoe Zed. {text}") for at, text in enumerate(texts, start=1)]


def invent(names: list[str], count: int, seed: int = 0, **given: object) -> list[str]:
    given = {"documents": about(), **given}
    return invent_names(names, count, rng=np.random.default_rng(seed), **given)


def test_as_many_as_are_wanted_no_two_alike_the_same_for_the_same_seed():
    found = invent([*NAMES, LETTERS], 40)
    assert len(found) == 40
    assert len({key_of(name) for name in found}) == 40
    assert invent([*NAMES, LETTERS], 40) == found
    assert invent([*NAMES, LETTERS], 40, seed=1) != found
    assert invent(NAMES, 0) == []


def test_half_are_recombined_and_half_are_of_other_origins():
    found = invent([*NAMES, LETTERS], 40)
    own = {word for name in NAMES for word in name.split()}
    recombined = [name for name in found if set(name.split()) <= own]
    assert 15 <= len(recombined) <= 25
    assert len({name.split()[0] for name in found if name not in recombined}) > 10


def test_no_name_of_the_data_and_none_that_a_document_holds():
    every = [f"{given} {family}" for given in ("Ann", "Bo", "Dag") for family in ("Moe", "Orr")]
    names = ["Ann Moe", "Bo Orr", "Dag Moe"]
    documents = about("Then ANN ORR came.", "The father of Bó Moe, a smith.")
    found = invent(names, 30, documents=documents, taken={key_of("dag orr")})
    assert not set(found) & set(every)  # nothing is left to recombine
    assert find_named(documents, map(key_of, found)) == {key_of(name): set() for name in found}


def test_letters_that_the_data_does_not_have_do_not_occur():
    names = ["Анна Орлова", "Борис Белый", "Вера Лис", "Глеб Сокол"]
    found = invent(names, 8)
    assert len(found) == 8  # of twelve recombinations
    assert set("".join(found)) <= set("".join(names))


def test_names_that_cannot_be_taken_apart_leave_fewer_and_never_hang():
    assert invent(["Ω"], 5) == []
    assert invent([], 5) == []
    assert invent(["Sammy Davis Jr.", "Wu (singer)"], 3) == []


@given(
    names=st.lists(st.text(max_size=12), max_size=8),
    texts=st.lists(st.text(max_size=30), max_size=4),
    count=st.integers(0, 12),
    seed=st.integers(0, 99),
)
def test_whatever_the_names_what_is_invented_is_nobodys(names, texts, count, seed):
    documents = about(*texts)
    found = invent(names, count, seed, documents=documents)
    keys = [key_of(name) for name in found]
    assert len(found) <= count
    assert len(set(keys)) == len(keys)
    assert not {key_of(name) for name in names} & set(keys)
    assert not any(find_named(documents, keys).values())


def test_a_name_is_found_by_its_words_whatever_the_case_and_the_accents():
    documents = about(
        "So did Mary ANN Clérk.", "Ann, Clerk of the town.", "Anny Clerk.", "王小明住"
    )
    named = find_named(documents, [key_of("Ánn Clerk"), key_of("小明"), key_of("Ann"), ()])
    assert named == {("ann", "clerk"): {0, 1}, ("小", "明"): {3}, ("ann",): {0, 1}}
