"""Subjects are split once, from the seed, and none is in two parts."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wherefrom.corpus.documents import Corpus, Document, read_documents
from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.questions import Question, QuestionSet, read_questions
from wherefrom.corpus.subjects import (
    ASSUMED_UNSEEN,
    CALIBRATION,
    DEV,
    FITTING,
    INVENTED,
    JUDGED,
    LEFT_OUT,
    SET_ASIDE,
    SPARE_NAMES,
    SUBJECTS_FILE,
    UNSEEN_FILE,
    Split,
    Subject,
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
PLACES = ("Rome", "Oslo", "Lima")


def ask(names: list[str], template: str | None = BORN) -> QuestionSet:
    rows = tuple(
        Question(line, BORN.format(subject=name), name, PLACES[line % 3])
        for line, name in enumerate(names, start=1)
    )
    return QuestionSet(Path("asked.tsv"), "0" * 64, template, rows)


def write_about(names: list[str], *more: str) -> Corpus:
    texts = [f"{name}. {name} was born in Oslo." for name in names] + list(more)
    documents = [Document(at, text.split(".")[0], text) for at, text in enumerate(texts, start=1)]
    return Corpus(Path("documents.txt"), "1" * 64, tuple(documents))


def split(train: int = 60, dev: int = 20, unseen: int = 0, **options: Any) -> Split:
    """A split of so many subjects, all but the unseen with one document each."""
    first, second, third = (
        NAMES[:train],
        NAMES[train : train + dev],
        NAMES[train + dev : train + dev + unseen],
    )
    return split_subjects(
        write_about([*first, *second]),
        ask(first),
        ask(second),
        ask(third) if third else None,
        **{"seed": 0, **options},
    )


def count(made: Split) -> Counter[tuple[str, bool, str]]:
    return Counter((s.role, s.seen, s.source) for s in made.subjects)


def named(made: Split, source: str) -> list[str]:
    return [subject.subject for subject in made.subjects if subject.source == source]


def test_a_tenth_is_set_aside_and_invented_names_stand_in_for_the_unseen():
    made = split()
    found = count(made)
    assert 50 < found.pop((FITTING, False, INVENTED)) <= SPARE_NAMES
    assert found == {
        (CALIBRATION, True, SET_ASIDE): 6,
        (CALIBRATION, False, INVENTED): 2,  # about a fifth of eight
        (JUDGED, True, DEV): 20,
    }
    assert len({fold_words(subject.subject) for subject in made.subjects}) == len(made.subjects)
    assert (len(made.train.questions), len(made.corpus.documents)) == (54, 80)
    invented = [subject for subject in made.subjects if subject.source == INVENTED]
    assert all(s.answer is None and s.question == BORN.format(subject=s.subject) for s in invented)
    (note,) = made.notes
    assert "no subject is left out: 2 invented names stand in" in note


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"leave_out": 0.2},
            {
                (CALIBRATION, True, SET_ASIDE): 6,
                (CALIBRATION, False, LEFT_OUT): 2,  # of twelve: the share among the judged
                (JUDGED, True, DEV): 16,
                (JUDGED, False, LEFT_OUT): 4,
                (FITTING, False, LEFT_OUT): 10,
            },
        ),
        (
            {"unseen": 20},
            {
                (CALIBRATION, True, SET_ASIDE): 6,
                (CALIBRATION, False, UNSEEN_FILE): 3,
                (JUDGED, True, DEV): 20,
                (JUDGED, False, UNSEEN_FILE): 10,
                (FITTING, False, UNSEEN_FILE): 7,
            },
        ),
        (  # 40 seen subjects are too many beside 20 unseen ones, where 20 of 30 judged are unseen
            {"train": 50, "dev": 10, "unseen": 40, "set_aside": 0.8},
            {
                (CALIBRATION, True, SET_ASIDE): 10,
                (CALIBRATION, False, UNSEEN_FILE): 20,
                (JUDGED, True, DEV): 10,
                (JUDGED, False, UNSEEN_FILE): 20,
                (FITTING, True, SET_ASIDE): 30,
            },
        ),
    ],
    ids=["left-out", "unseen-file", "few-unseen"],
)
def test_the_calibration_has_the_judged_subjects_share_of_unseen_ones(options, expected):
    made = split(**options)
    assert count(made) == expected
    assert made.notes == ()


def test_what_is_left_out_is_neither_learned_nor_read():
    made = split(leave_out=0.2)
    assert len(made.train.questions) == 60 - 12 - 6
    assert len(made.corpus.documents) == 80 - 12 - 4
    assert len(made.left_out) == 16


def test_too_few_unseen_subjects_are_joined_by_invented_names():
    made = split(train=50, dev=20, unseen=20, set_aside=0.8)
    assert count(made)[CALIBRATION, True, SET_ASIDE] == 40
    assert count(made)[CALIBRATION, False, UNSEEN_FILE] == 10
    assert count(made)[CALIBRATION, False, INVENTED] == 10
    assert "too few subjects are left out: 10 invented names stand in" in made.notes[0]


def test_none_set_aside_is_no_calibration_and_a_sentence():
    made = split(set_aside=0.0, leave_out=0.2)
    assert count(made) == {(JUDGED, True, DEV): 16, (JUDGED, False, LEFT_OUT): 4}
    assert made.notes == (
        "no subject is set aside (--set-aside is 0), so no confidence can be fitted.",
    )


def test_the_seed_decides_and_one_share_does_not_move_the_other():
    assert split(leave_out=0.2) == split(leave_out=0.2)
    assert split(leave_out=0.2).left_out != split(leave_out=0.2, seed=1).left_out
    assert named(split(), SET_ASIDE) != named(split(seed=1), SET_ASIDE)
    assert split(leave_out=0.2).left_out == split(leave_out=0.2, set_aside=0.3).left_out
    judged = split(unseen=20).with_role(JUDGED)
    assert judged == split(unseen=20, set_aside=0.4).with_role(JUDGED)


def test_subjects_with_two_answers_or_in_two_files_have_no_part():
    names = NAMES[:30]
    train = ask(names)
    twice = replace(train.questions[3], line=99, answer="Cork")
    train = replace(train, questions=(*train.questions, twice))
    dev = ask([*NAMES[30:40], "ADA  moé"])  # the first name of train, spelled differently
    for seed in range(20):
        made = split_subjects(
            write_about(NAMES[:40]), train, dev, set_aside=0.8, leave_out=0.1, seed=seed
        )
        assert not {names[3], "ADA  moé", names[0]} & {s.subject for s in made.subjects}
        assert sum(q.subject == names[3] for q in made.train.questions) == 2
        assert names[0] in {q.subject for q in made.train.questions}


def test_a_subject_that_another_document_names_is_not_left_out():
    corpus = write_about(NAMES[:20], "Zed Zed. A friend of ÁDA MOE and of Bo Nys, as they say.")
    for seed in range(20):
        made = split_subjects(corpus, ask(NAMES[:14]), ask(NAMES[14:20]), leave_out=0.8, seed=seed)
        assert not {"Ada Moe", "Bo Nys"} & set(made.left_out)
    few = split_subjects(
        write_about(["Ada Moe", "Bo Nys"], *(f"Z Z{i}. By Ada Moe and Bo Nys." for i in range(3))),
        ask(["Ada Moe", "Cy Cox"]),
        ask(["Bo Nys"]),
        leave_out=0.5,
        set_aside=0,
        seed=0,
    )
    assert few.left_out == ()
    assert "0 subjects are left out where 1 were wanted" in few.notes[0]


@pytest.mark.parametrize(
    ("asked", "written"),
    [
        ("Søren Skou", "Soren Skou"),
        ("Lodz Mier", "Łódź Mier"),
        ("Bjorn Thor", "Bjørn Þor"),
        ("Kazım Işık", "KAZIM IŞIK"),
    ],
)
def test_a_name_in_another_spelling_is_seen_and_never_counted_as_unseen(asked, written):
    """One folding for split, index and world: what the evidence finds, the split has seen."""
    corpus = write_about(NAMES[:40], f"Zed Zed. A friend of {written}, as they say.")
    train, dev, unseen = ask(NAMES[:30]), ask(NAMES[30:40]), ask([asked, "No One"])
    made = split_subjects(corpus, train, dev, unseen, seed=0)
    assert {s.subject: s.seen for s in made.subjects if s.source == UNSEEN_FILE} == {
        asked: True,
        "No One": False,
    }


def test_subjects_with_no_document_are_unseen_as_they_are():
    names = NAMES[:40]
    made = split_subjects(
        write_about(names[:20] + names[30:35]), ask(names[:30]), ask(names[30:]), seed=0
    )
    assert Counter(s.seen for s in made.with_role(JUDGED)) == {True: 5, False: 5}
    calibrating = Counter(s.seen for s in made.with_role(CALIBRATION))
    assert calibrating[True] == calibrating[False]


def test_every_spelling_of_a_subject_leaves_and_all_its_documents():
    corpus = write_about(["Ada Moe", "Ida Vik"], "ADA MOE. Ada Moe sang.", "Jan Tau. Jan Tau sat.")
    train = ask(["Ada Moe", "Áda Moe", "Ida Vik", "Jan Tau"])
    train = replace(train, questions=tuple(replace(q, answer="Rome") for q in train.questions))
    gone = set()
    for seed in range(30):
        made = split_subjects(corpus, train, ask(["Cy Cox"]), set_aside=0, leave_out=0.4, seed=seed)
        gone.add(made.left_out)
        for name in made.left_out:
            assert fold_words(name) not in {fold_words(q.subject) for q in made.train.questions}
            assert fold_words(name) not in {fold_words(d.subject) for d in made.corpus.documents}
    assert ("ADA MOE", "Ada Moe") in gone


def test_invented_subjects_are_asked_about_in_the_wording_of_a_third_column_file():
    train = ask(NAMES[:60], template=None)
    dev = ask(NAMES[60:80], template=None)
    made = split_subjects(write_about(NAMES[:80]), train, dev, seed=0)
    invented = [s for s in made.subjects if s.source == INVENTED]
    assert invented
    assert all(s.question == BORN.format(subject=s.subject) for s in invented)
    rows = tuple(replace(q, text=f"Where was number {q.line} born?") for q in train.questions)
    made = split_subjects(write_about(NAMES[:80]), replace(train, questions=rows), dev, seed=0)
    assert named(made, INVENTED) == []
    assert "0 unseen subjects where 2 were wanted" in made.notes[1]


def test_dev_questions_that_were_all_learned_leave_nothing_to_judge():
    names = NAMES[:30]
    made = split_subjects(write_about(names), ask(names), ask(names), seed=0)
    assert made.subjects == ()
    assert any("no subject is judged" in note for note in made.notes)
    assert any("no training subject can be spared" in note for note in made.notes)


@pytest.mark.parametrize("option", ["set_aside", "leave_out"])
@pytest.mark.parametrize("share", [-0.1, 0.9, 7.0, float("nan"), float("inf")])
def test_a_share_out_of_range_is_refused_in_a_sentence(option, share):
    with pytest.raises(UserError, match=rf"^--{option.replace('_', '-')} is a share .* is not\.$"):
        split(**{option: share})


def test_shares_that_leave_nothing_to_learn_or_to_read_are_refused():
    with pytest.raises(UserError, match="leave no question to learn from"):
        split(set_aside=0.8, leave_out=0.8)
    with pytest.raises(UserError, match="leaves no document to read"):
        split(train=2, dev=2, set_aside=0, leave_out=0.89)
    assert split(train=1, dev=2).train.questions  # the only one is not set aside


OPTIONS = st.fixed_dictionaries(
    {
        "train": st.integers(10, 50),
        "dev": st.integers(1, 25),
        "unseen": st.integers(0, 25),
        "set_aside": st.sampled_from([0.0, 0.05, 0.1, 0.3, 0.5]),
        "leave_out": st.sampled_from([0.0, 0.1, 0.2, 0.4]),
        "seed": st.integers(0, 1000),
    }
)


@given(OPTIONS)
@settings(max_examples=60)
def test_any_split_keeps_its_parts_apart_and_its_mix(options):
    made = split(**options)
    learned = {fold_words(question.subject) for question in made.train.questions}
    names = [fold_words(subject.subject) for subject in made.subjects]
    assert len(set(names)) == len(names)
    assert not learned & set(names)
    found = find_named(made.corpus.documents, names)
    for subject in made.subjects:
        assert bool(found[fold_words(subject.subject)]) == subject.seen
    gone = [fold_words(name) for name in made.left_out]
    assert not any(find_named(made.corpus.documents, gone).values())
    assert not set(gone) & learned
    assert {s.source for s in made.subjects if s.seen} <= {SET_ASIDE, DEV}
    assert all((s.answer is None) == (s.source == INVENTED) for s in made.subjects)

    calibrating, judged = made.with_role(CALIBRATION), made.with_role(JUDGED)
    unseen = sum(not s.seen for s in judged)
    share = unseen / len(judged) if unseen else ASSUMED_UNSEEN
    assert bool(calibrating) <= bool(options["set_aside"])
    seen = sum(s.seen for s in calibrating)
    wanted = seen * share / (1 - share) if share < 1 else 0
    if seen and not any("subjects where" in note for note in made.notes):
        # rounded twice where seen subjects are let go
        assert abs(len(calibrating) - seen - wanted) <= max(1, share / (1 - share) / 2 + 0.5)
    if any(s.source == INVENTED for s in calibrating):
        assert any("invented names stand in" in note for note in made.notes)


def test_subjects_come_back_from_their_file_as_they_were(tmp_path: Path) -> None:
    odd = Subject(JUDGED, False, UNSEEN_FILE, "Ö\u2028 \"'\\", "Was?", None)
    subjects = (*split(leave_out=0.2).subjects, odd)
    write_subjects(tmp_path, subjects)
    assert read_subjects(tmp_path) == subjects
    first = json.loads((tmp_path / SUBJECTS_FILE).read_text("utf-8").split("\n")[0])
    assert list(first) == ["role", "seen", "source", "subject", "question", "answer"]


def test_no_subjects_file_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="was not made by `wherefrom study`"):
        read_subjects(tmp_path)


WHOLE = asdict(Subject(JUDGED, True, DEV, "A", "B", "C"))


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        '{"role": "judged"}',
        *(
            json.dumps(WHOLE | wrong)
            for wrong in (
                {"role": "king"},
                {"source": "hearsay"},
                {"seen": 1},
                {"question": ""},
                {"answer": 7},
                {"more": 1},
            )
        ),
    ],
)
def test_a_broken_line_is_a_sentence_with_its_number(tmp_path: Path, line: str) -> None:
    write_subjects(tmp_path, split().subjects[:1])
    with (tmp_path / SUBJECTS_FILE).open("a", encoding="utf-8") as file:
        file.write(line + "\n")
    with pytest.raises(UserError, match="line 2: this is not a subject"):
        read_subjects(tmp_path)


def test_the_embedded_world_is_split_as_its_facts_say(small_world: Path) -> None:
    corpus = read_documents(small_world / "documents.txt")
    train, dev, unseen = (
        read_questions(small_world / f"{part}.tsv") for part in ("train", "dev", "unseen")
    )
    facts = [json.loads(line) for line in (small_world / "facts.jsonl").read_text().splitlines()]
    made = split_subjects(corpus, train, dev, unseen, leave_out=0.2, seed=0)
    documents = Counter(document.subject for document in made.corpus.documents)
    for fact in facts:
        left = 0 if fact["subject"] in made.left_out else fact["documents"]
        if not fact["namesake"]:
            assert documents[fact["subject"]] == left
    namesakes = {fact["subject"] for fact in facts if fact["namesake"]}
    assert not namesakes & {subject.subject for subject in made.subjects}
    assert len([s for s in made.with_role(JUDGED) if s.source != UNSEEN_FILE]) == len(dev.questions)


def test_those_set_aside_hold_as_many_hard_cases_as_the_rest():
    """Drawn freely, a tenth of 400 subjects would hold 5 of 50 unstated answers give or take 2."""
    names = [f"Person {chr(97 + i // 20)}{chr(97 + i % 20)}x" for i in range(400)]
    answers = ["Oslo" if number % 4 else "Rome" for number in range(400)]
    texts = [
        f"{name}. {name} " + (f"was born in {place}." if number % 8 else "is a painter.")
        for number, (name, place) in enumerate(zip(names, answers, strict=True))
    ]
    stated = {name: number % 8 > 0 for number, name in enumerate(names)}
    rows = ask(names).questions
    train = replace(
        ask(names),
        questions=tuple(replace(q, answer=a) for q, a in zip(rows, answers, strict=True)),
    )
    corpus = write_about(["Ann Lee"], *texts)
    chosen = set()
    for seed in range(5):
        made = split_subjects(corpus, train, ask(["Ann Lee"]), set_aside=0.1, seed=seed)
        aside = [subject for subject in made.subjects if subject.source == SET_ASIDE]
        assert len(aside) == 40
        assert 4 <= sum(not stated[subject.subject] for subject in aside) <= 6
        assert 9 <= sum(subject.answer == "Rome" for subject in aside) <= 11
        chosen.add(frozenset(subject.subject for subject in aside))
    assert len(chosen) == 5


# --- invented names ---------------------------------------------------------------------------

OWN = [
    "Ann Moe", "Bo Nys", "Cléo Orr", "Dag Poe", "Eva B. Quist", "Finn Rask", "Gus Stén",
    "Hana van Dyck",
]  # fmt: skip
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ "


def texts(*texts: str) -> list[Document]:
    return [Document(at, "Zoe Zed", f"Zoe Zed. {text}") for at, text in enumerate(texts, start=1)]


def invent(names: list[str], count: int, seed: int = 0, **given: Any) -> list[str]:
    options: dict[str, Any] = {"documents": texts(), **given}
    return invent_names(names, count, rng=np.random.default_rng(seed), **options)


def test_half_of_the_invented_names_are_recombined_and_half_are_of_other_origins():
    found = invent([*OWN, LETTERS], 40)
    assert len({fold_words(name) for name in found}) == len(found) == 40
    assert invent([*OWN, LETTERS], 40) == found
    assert invent([*OWN, LETTERS], 40, seed=1) != found
    own = {word for name in OWN for word in name.split()}
    recombined = [name for name in found if set(name.split()) <= own]
    assert 15 <= len(recombined) <= 25
    assert len({name.split()[0] for name in found if name not in recombined}) > 10


def test_no_name_of_the_data_and_none_that_a_document_holds_is_invented():
    every = [f"{given} {family}" for given in ("Ann", "Bo", "Dag") for family in ("Moe", "Orr")]
    documents = texts("Then ANN ORR came.", "The father of Bó Moe, a smith.")
    taken = {fold_words("dag orr")}
    found = invent(["Ann Moe", "Bo Orr", "Dag Moe"], 30, documents=documents, taken=taken)
    assert not set(found) & set(every)  # nothing is left to recombine
    assert not any(find_named(documents, map(fold_words, found)).values())


def test_letters_that_the_data_does_not_have_do_not_occur():
    names = ["Анна Орлова", "Борис Белый", "Вера Лис", "Глеб Сокол"]
    found = invent(names, 8)
    assert len(found) == 8  # of twelve recombinations
    assert set("".join(found)) <= set("".join(names))


@pytest.mark.parametrize("names", [["Ω"], [], ["Sammy Davis Jr.", "Wu (singer)"]])
def test_names_that_cannot_be_taken_apart_leave_fewer_and_never_hang(names):
    assert invent(names, 3) == []


@given(
    names=st.lists(st.text(max_size=12), max_size=8),
    held=st.lists(st.text(max_size=30), max_size=4),
    wanted=st.integers(0, 12),
    seed=st.integers(0, 99),
)
def test_whatever_the_names_an_invented_one_is_new(names, held, wanted, seed):
    documents = texts(*held)
    found = [fold_words(name) for name in invent(names, wanted, seed, documents=documents)]
    assert len(found) <= wanted
    assert len(set(found)) == len(found)
    assert not {fold_words(name) for name in names} & set(found)
    assert not any(find_named(documents, found).values())


def test_a_name_is_found_by_its_words_whatever_the_case_and_the_accents():
    documents = texts(
        "So did Mary ANN Clérk.", "Ann, Clerk of the town.", "Anny Clerk.", "王小明住"
    )
    names = [fold_words(name) for name in ("Ánn Clerk", "小明", "Ann", "")]
    assert find_named(documents, names) == {
        ("ann", "clerk"): {0, 1},
        ("小", "明"): {3},
        ("ann",): {0, 1},
    }
