"""Subjects are split once, from the seed, and none is in two parts."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wherefrom.corpus.database import Database
from wherefrom.corpus.documents import Document
from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.questions import Question, QuestionSet
from wherefrom.corpus.split import (
    ASSUMED_UNSEEN_SHARE,
    HeldOutQuestion,
    Split,
    default_set_aside,
    find_named,
    invent_names,
    read_subjects,
    split_subjects,
    write_subjects,
)
from wherefrom.errors import UserError

BORN = "Where was {subject} born?"
GIVEN = ("Ada", "Bo", "Cleo", "Dag", "Eva", "Finn", "Gus", "Hana", "Ida", "Jan")
FAMILY = ("Moe", "Nys", "Orr", "Poe", "Quist", "Rask", "Sten", "Tau", "Ulf", "Vik")
# a hundred, of which the first ten already have every word
NAMES = [f"{GIVEN[at % 10]} {FAMILY[(at + at // 10) % 10]}" for at in range(100)]


def ask(names: list[str], template: str = BORN) -> QuestionSet:
    places = ("Rome", "Oslo", "Lima")
    rows = tuple(
        Question(line, BORN.format(subject=name), name, places[line % 3], template)
        for line, name in enumerate(names, start=1)
    )
    return QuestionSet(Path("asked.tsv"), "0" * 64, (template,), rows)


def write_about(names: list[str], *more: str) -> Database:
    texts = [f"{name}. {name} was born in Oslo." for name in names] + list(more)
    documents = [Document(at, text.split(".")[0], text) for at, text in enumerate(texts, start=1)]
    return Database.of(documents, "documents.txt", "1" * 64)


def save_subjects(folder: Path, subjects: Iterable[HeldOutQuestion]) -> None:
    """Write held-out questions into the database of a folder."""
    file = folder / "run.sqlite"
    if not file.exists():
        Database().save(file)
    with Database.open(file) as database:
        write_subjects(database, subjects)


def split(train: int = 60, dev: int = 20, unseen: int = 0, **options: Any) -> Split:
    """A split of so many subjects, all but the unseen with one document each."""
    seen, new = NAMES[: train + dev], NAMES[train + dev : train + dev + unseen]
    files = ask(seen[:train]), ask(seen[train:]), ask(new) if new else None
    return split_subjects(write_about(seen), *files, **{"seed": 0, "set_aside": 0.1, **options})


def named(made: Split, source: str) -> list[str]:
    return [subject.subject for subject in made.subjects if subject.source == source]


def test_the_seed_decides_and_one_share_does_not_move_the_other():
    made, other = split(leave_out=0.2), split(leave_out=0.2, seed=1)
    again = split(leave_out=0.2)
    assert replace(made, corpus=again.corpus) == again
    assert list(made.corpus.documents) == list(again.corpus.documents)
    assert (len(made.train.questions), len(made.corpus.documents)) == (60 - 12 - 6, 80 - 12 - 4)
    assert made.left_out == split(leave_out=0.2, set_aside=0.3).left_out != other.left_out
    assert named(made, "set aside") != named(other, "set aside")
    judged = split(unseen=20).with_role("judged")
    assert judged == split(unseen=20, set_aside=0.4).with_role("judged")


def test_subjects_with_two_answers_or_in_two_files_have_no_part():
    train = ask(NAMES[:30])
    twice = replace(train.questions[3], line=99, answer="Cork")
    train = replace(train, questions=(*train.questions, twice))
    dev = ask([*NAMES[30:40], "ADA  moé"])  # the first name of train, spelled differently
    for seed in range(20):
        corpus = write_about(NAMES[:40])
        made = split_subjects(corpus, train, dev, set_aside=0.8, leave_out=0.1, seed=seed)
        assert not {NAMES[3], "ADA  moé", NAMES[0]} & {s.subject for s in made.subjects}
        learned = Counter(question.subject for question in made.train.questions)
        assert (learned[NAMES[3]], learned[NAMES[0]]) == (2, 1)


def test_a_subject_that_another_document_names_is_not_left_out():
    corpus = write_about(NAMES[:20], "Zed Zed. A friend of ÁDA MOE, Cleo Orr and Bo Nys, they say.")
    for seed in range(20):
        files = ask(NAMES[:14]), ask(NAMES[14:20])
        made = split_subjects(corpus, *files, set_aside=0.1, leave_out=0.85, seed=seed)
        assert not {"Ada Moe", "Cleo Orr", "Bo Nys"} & set(made.left_out)
        assert made.notes[0].startswith("16 subjects are left out where 17 were wanted")


def test_a_name_in_another_spelling_is_seen_and_never_counted_as_unseen():
    """One folding for split, index and world: what the evidence finds, the split has seen."""
    spellings = {
        "Søren Skou": "Soren Skou",
        "Lodz Mier": "Łódź Mier",
        "Bjorn Thor": "Bjørn Þor",
        "Kazım Işık": "KAZIM IŞIK",
    }
    corpus = write_about(NAMES[:40], *(f"Zed. A friend of {name}." for name in spellings.values()))
    files = ask(NAMES[:30]), ask(NAMES[30:40]), ask([*spellings, "No One"])
    made = split_subjects(corpus, *files, seed=0)
    seen = {s.subject: s.seen for s in made.subjects if s.source == "unseen file"}
    assert seen == {**dict.fromkeys(spellings, True), "No One": False}


def test_shares_out_of_range_or_that_leave_nothing_to_learn_or_to_read_are_refused():
    for option, share in (("set_aside", -0.1), ("set_aside", float("nan")), ("leave_out", 0.9)):
        with pytest.raises(UserError, match=f"^--{option.replace('_', '-')} is a share .* is not"):
            split(**{option: share})
    with pytest.raises(UserError, match="leave no question to learn from"):
        split(set_aside=0.8, leave_out=0.8)
    with pytest.raises(UserError, match="leaves no document to read"):
        split(train=2, dev=2, set_aside=0, leave_out=0.89)
    assert split(train=1, dev=2).train.questions  # the only one is not set aside


def test_every_question_of_a_judged_subject_is_judged_and_few_subjects_set_more_aside():
    died = "Where did {subject} die?"
    train, dev = ask(NAMES[:40]), ask(NAMES[40:60])
    more = ask(NAMES[30:60], died)  # the first ten of them are learned from, but not asked this
    both = replace(dev, templates=(BORN, died), questions=(*dev.questions, *more.questions))
    made = split_subjects(write_about(NAMES[:60]), train, both, seed=0)
    judged = made.with_role("judged")
    assert Counter(subject.template for subject in judged) == {BORN: 20, died: 30}
    assert len(named(made, "set aside")) == round(0.2 * 40)
    assert any("a guarantee takes about 100" in note for note in made.notes)


@given(subjects=st.integers(1, 100_000))
def test_as_many_are_set_aside_as_buy_a_guarantee(subjects):
    aside = default_set_aside(subjects)
    assert aside <= 200
    assert aside >= 100 or aside <= max(1, subjects // 4)
    assert subjects - aside >= aside
    assert (aside >= 100) == (subjects >= 200)


def test_every_relation_has_its_share_of_those_set_aside():
    """One question about each subject, in three relations of different sizes."""
    names = [f"{first} {last}{end}" for first in GIVEN for last in FAMILY for end in ("", "by")]
    sizes = {BORN: 100, "Who taught {subject}?": 60, "Whom did {subject} teach?": 40}
    questions, start = [], 0
    for template, size in sizes.items():
        questions += ask(names[start : start + size], template).questions
        start += size
    train = replace(ask(names), questions=tuple(questions), templates=tuple(sizes))
    corpus = write_about([*names, "Xo Zed"])
    made = split_subjects(corpus, train, ask(["Xo Zed"]), set_aside=0.1, seed=3)
    aside = Counter(s.template for s in made.subjects if s.source == "set aside")
    assert all(abs(aside[template] - size / 10) <= 1 for template, size in sizes.items())


@given(
    train=st.integers(10, 50),
    dev=st.integers(1, 25),
    unseen=st.integers(0, 25),
    set_aside=st.sampled_from([0.0, 0.05, 0.1, 0.3, 0.5]),
    leave_out=st.sampled_from([0.0, 0.1, 0.2, 0.4]),
    seed=st.integers(0, 1000),
)
@settings(max_examples=60)
def test_any_split_keeps_its_parts_apart_and_its_mix(set_aside, **options):
    made = split(set_aside=set_aside, **options)
    learned = {fold_words(question.subject) for question in made.train.questions}
    names = [fold_words(subject.subject) for subject in made.subjects]
    assert len(set(names)) == len(names)
    assert not learned & set(names)
    found = find_named(made.corpus.documents, names)
    for subject in made.subjects:
        assert bool(found[fold_words(subject.subject)]) == subject.seen
        assert not subject.seen or subject.source in ("set aside", "dev")
        assert (subject.answer is None) == (subject.source == "invented")
    gone = [fold_words(name) for name in made.left_out]
    assert not any(find_named(made.corpus.documents, gone).values())
    assert not set(gone) & learned

    calibrating, judged = made.with_role("calibration"), made.with_role("judged")
    unseen = sum(not s.seen for s in judged)
    share = unseen / len(judged) if unseen else ASSUMED_UNSEEN_SHARE
    assert bool(calibrating) <= bool(set_aside)
    seen = sum(s.seen for s in calibrating)
    wanted = seen * share / (1 - share) if share < 1 else 0
    if seen and not any("unseen subjects instead of" in note for note in made.notes):
        # rounded twice where seen subjects are let go
        assert abs(len(calibrating) - seen - wanted) <= max(1, share / (1 - share) / 2 + 0.5)
    if any(s.source == "invented" for s in calibrating):
        assert any("are invented names" in note for note in made.notes)


def test_those_set_aside_hold_as_many_hard_cases_as_the_rest():
    """Drawn freely, a tenth of 400 subjects would hold 5 of 50 unstated answers give or take 2."""
    names = [f"Person {chr(97 + i // 20)}{chr(97 + i % 20)}x" for i in range(400)]
    answers = ["Oslo" if i % 4 else "Rome" for i in range(400)]
    texts = [
        f"{name}. She was {f'born in {answer}' if i % 8 else 'a painter'}."
        for i, (name, answer) in enumerate(zip(names, answers, strict=True))
    ]
    corpus, train = write_about(["Ann Lee"], *texts), ask(names)
    rows = (replace(q, answer=a) for q, a in zip(train.questions, answers, strict=True))
    train = replace(train, questions=tuple(rows))
    draws = set()
    for seed in range(5):
        made = split_subjects(corpus, train, ask(["Ann Lee"]), set_aside=0.1, seed=seed)
        aside = {s.subject: s.answer for s in made.subjects if s.source == "set aside"}
        assert len(aside) == 40
        assert 4 <= len(aside.keys() & names[::8]) <= 6
        assert 9 <= sum(answer == "Rome" for answer in aside.values()) <= 11
        draws.add(frozenset(aside))
    assert len(draws) == 5


def test_subjects_come_back_from_their_file_as_they_were(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="was not made by `wherefrom study`"):
        read_subjects(tmp_path)
    odd = HeldOutQuestion("judged", False, "unseen file", "Ö\u2028 \"'\\", "Was?", None, "")
    subjects = (*split(leave_out=0.2).subjects, odd)
    save_subjects(tmp_path, subjects)
    assert read_subjects(tmp_path) == subjects
    save_subjects(tmp_path, subjects[:3])  # which replace the others
    assert read_subjects(tmp_path) == subjects[:3]


@pytest.mark.parametrize(
    "wrong", ["role = 'judged', source = 'king'", "question = ''", "subject = ''"]
)
def test_a_broken_row_is_a_sentence_with_its_number(tmp_path: Path, wrong: str) -> None:
    save_subjects(tmp_path, [HeldOutQuestion("judged", True, "dev", "A", "B", "C", "")] * 2)
    with sqlite3.connect(tmp_path / "run.sqlite") as database:
        database.execute(f"UPDATE questions SET {wrong} WHERE id = 2")
    database.close()
    with pytest.raises(UserError, match="held-out question 2: this is not a question"):
        read_subjects(tmp_path)


# --- invented names ---------------------------------------------------------------------------

OWN = ["Ann Moe", "Bo Nys", "Cléo Orr", "Dag Poe", "Eva B. Quist", "Finn Rask", "Gus Stén"]
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ "


def invent(
    names: list[str], count: int, seed: int = 0, texts: list[str] | None = None
) -> list[str]:
    """Names that are not `names` and not in the texts."""
    documents = [Document(1, "Zoe Zed", f"Zoe Zed. {text}") for text in texts or []]
    taken = {fold_words(name) for name in names}
    rng = np.random.default_rng(seed)
    invented = invent_names(names, count, documents=documents, taken=taken, rng=rng)
    folded = [fold_words(name) for name in invented]
    assert len(set(folded)) == len(folded) <= count
    assert not taken & set(folded)
    assert not any(find_named(documents, folded).values())
    return invented


@given(
    names=st.lists(st.text(max_size=12), max_size=8),
    texts=st.lists(st.text(max_size=30), max_size=4),
    wanted=st.integers(0, 12),
    seed=st.integers(0, 99),
)
def test_whatever_the_names_an_invented_one_is_new(names, texts, wanted, seed):
    invent(names, wanted, seed, texts)


@pytest.mark.parametrize(
    ("names", "foreign"),
    [
        (OWN, True),
        (["Анна Орлова", "Борис Белый", "Вера Лис", "Глеб Сокол"], False),
        (["王小明", "李秀英", "张伟", "刘洋洋", "陈静", "libfoo", "libbar"], False),
    ],
)
def test_names_are_recombined_in_the_letters_of_the_data_beside_those_of_other_origins(
    names, foreign
):
    known = [*names, LETTERS] if foreign else names
    invented = invent(known, 8)
    assert len(invented) == 8
    assert invent(known, 8) == invented != invent(known, 8, seed=1)
    assert set("".join(invented)) <= set("".join(known))
    own = {word for name in names for word in name.split()}
    assert any(not set(name.split()) <= own for name in invented) or not foreign
