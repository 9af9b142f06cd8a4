"""People are dealt out once, from the seed, and nobody plays two parts."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wherefrom.corpus.documents import Corpus, Document, read_documents
from wherefrom.corpus.questions import Question, QuestionSet, read_questions
from wherefrom.corpus.subjects import (
    ASSUMED_UNSEEN,
    CALIBRATION,
    DEV,
    FITTING,
    INVENTED,
    JUDGED,
    LEFT_OUT,
    PEOPLE,
    SET_ASIDE,
    SPARE_NAMES,
    UNSEEN_FILE,
    Split,
    Subject,
    find_named,
    key_of,
    read_people,
    split_subjects,
    write_people,
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


def tell(names: list[str], *more: str) -> Corpus:
    texts = [f"{name}. {name} was born in Oslo." for name in names] + list(more)
    documents = [Document(at, text.split(".")[0], text) for at, text in enumerate(texts, start=1)]
    return Corpus(Path("documents.txt"), "1" * 64, tuple(documents))


def deal(train: int = 60, dev: int = 20, unseen: int = 0, **options: Any) -> Split:
    """A deal of so many people, all but the unseen with a document each."""
    asked, judged, strangers = (
        NAMES[:train],
        NAMES[train : train + dev],
        NAMES[train + dev : train + dev + unseen],
    )
    return split_subjects(
        tell([*asked, *judged]),
        ask(asked),
        ask(judged),
        ask(strangers) if strangers else None,
        **{"seed": 0, **options},
    )


def count(dealt: Split) -> Counter[tuple[str, bool, str]]:
    return Counter((p.role, p.seen, p.source) for p in dealt.people)


def test_a_tenth_is_set_aside_and_invented_names_stand_in_for_the_unseen():
    dealt = deal()
    found = count(dealt)
    assert 50 < found.pop((FITTING, False, INVENTED)) <= SPARE_NAMES
    assert found == {
        (CALIBRATION, True, SET_ASIDE): 6,
        (CALIBRATION, False, INVENTED): 2,  # a fifth or so of eight
        (JUDGED, True, DEV): 20,
    }
    assert len({key_of(person.subject) for person in dealt.people}) == len(dealt.people)
    assert len(dealt.train.questions) == 54
    assert len(dealt.corpus.documents) == 80
    invented = [person for person in dealt.people if person.source == INVENTED]
    assert all(p.answer is None and p.question == BORN.format(subject=p.subject) for p in invented)
    assert len(dealt.notes) == 1
    assert "nobody is left out: 2 invented names stand in" in dealt.notes[0]


def test_a_fifth_left_out_of_both_files_is_the_unseen_of_both_halves():
    dealt = deal(leave_out=0.2)
    assert count(dealt) == {
        (CALIBRATION, True, SET_ASIDE): 6,
        (CALIBRATION, False, LEFT_OUT): 2,  # of twelve: so many as among the judged
        (JUDGED, True, DEV): 16,
        (JUDGED, False, LEFT_OUT): 4,
        (FITTING, False, LEFT_OUT): 10,
    }
    assert len(dealt.train.questions) == 60 - 12 - 6
    assert len(dealt.corpus.documents) == 80 - 12 - 4
    assert len(dealt.left_out) == 16
    assert dealt.notes == ()


def test_half_of_the_unseen_file_calibrates_and_half_is_judged():
    dealt = deal(unseen=20)
    assert count(dealt) == {
        (CALIBRATION, True, SET_ASIDE): 6,
        (CALIBRATION, False, UNSEEN_FILE): 3,
        (JUDGED, True, DEV): 20,
        (JUDGED, False, UNSEEN_FILE): 10,
        (FITTING, False, UNSEEN_FILE): 7,
    }
    assert dealt.notes == ()


def test_with_too_few_of_a_side_the_other_is_made_smaller():
    few = deal(train=50, dev=10, unseen=40, set_aside=0.8)  # 40 seen, 20 of 30 judged unseen
    assert count(few) == {
        (CALIBRATION, True, SET_ASIDE): 10,
        (CALIBRATION, False, UNSEEN_FILE): 20,
        (JUDGED, True, DEV): 10,
        (JUDGED, False, UNSEEN_FILE): 20,
        (FITTING, True, SET_ASIDE): 30,
    }
    assert few.notes == ()
    fewer = deal(train=50, dev=20, unseen=20, set_aside=0.8)  # 10 unseen are not enough
    assert count(fewer)[CALIBRATION, True, SET_ASIDE] == 40
    assert count(fewer)[CALIBRATION, False, UNSEEN_FILE] == 10
    assert count(fewer)[CALIBRATION, False, INVENTED] == 10
    assert "too few people are left out: 10 invented names stand in" in fewer.notes[0]


def test_nobody_set_aside_is_no_calibration_and_a_sentence():
    dealt = deal(set_aside=0.0, leave_out=0.2)
    assert count(dealt) == {(JUDGED, True, DEV): 16, (JUDGED, False, LEFT_OUT): 4}
    assert dealt.notes == (
        "nobody is set aside (--set-aside is 0), so no confidence can be fitted.",
    )


def test_the_seed_decides_and_one_share_does_not_move_the_other():
    assert deal(leave_out=0.2) == deal(leave_out=0.2)
    assert deal(leave_out=0.2).left_out != deal(leave_out=0.2, seed=1).left_out
    aside = [p.subject for p in deal().people if p.source == SET_ASIDE]
    other = [p.subject for p in deal(seed=1).people if p.source == SET_ASIDE]
    assert aside != other
    assert deal(leave_out=0.2).left_out == deal(leave_out=0.2, set_aside=0.3).left_out
    judged = [p for p in deal(unseen=20).people if p.role == JUDGED]
    assert judged == [p for p in deal(unseen=20, set_aside=0.4).people if p.role == JUDGED]


def test_namesakes_and_people_in_two_files_play_no_part():
    names = NAMES[:30]
    train = ask(names)
    twice = replace(train.questions[3], line=99, answer="Cork")
    train = replace(train, questions=(*train.questions, twice))
    dev = ask([*NAMES[30:40], "ADA  moé"])  # the first name of train, spelled otherwise
    for seed in range(20):
        dealt = split_subjects(
            tell(NAMES[:40]), train, dev, set_aside=0.8, leave_out=0.1, seed=seed
        )
        assert not {names[3], "ADA  moé", names[0]} & {p.subject for p in dealt.people}
        assert sum(q.subject == names[3] for q in dealt.train.questions) == 2
        assert names[0] in {q.subject for q in dealt.train.questions}


def test_nobody_whom_another_document_names_is_left_out():
    corpus = tell(NAMES[:20], "Zed Zed. A friend of ÁDA MOE and of Bo Nys, as they say.")
    for seed in range(20):
        dealt = split_subjects(corpus, ask(NAMES[:14]), ask(NAMES[14:20]), leave_out=0.8, seed=seed)
        assert not {"Ada Moe", "Bo Nys"} & set(dealt.left_out)
    few = split_subjects(
        tell(["Ada Moe", "Bo Nys"], *(f"Z Z{i}. By Ada Moe and Bo Nys." for i in range(3))),
        ask(["Ada Moe", "Cy Cox"]),
        ask(["Bo Nys"]),
        leave_out=0.5,
        set_aside=0,
        seed=0,
    )
    assert few.left_out == ()
    assert "0 people are left out where 1 were wanted" in few.notes[0]


def test_people_with_no_document_are_unseen_as_they_are():
    names = NAMES[:40]
    dealt = split_subjects(
        tell(names[:20] + names[30:35]), ask(names[:30]), ask(names[30:]), seed=0
    )
    judged = Counter(p.seen for p in dealt.people if p.role == JUDGED)
    assert judged == {True: 5, False: 5}
    calibrating = Counter(p.seen for p in dealt.people if p.role == CALIBRATION)
    assert calibrating[True] == calibrating[False]


def test_every_spelling_of_a_person_leaves_and_all_their_documents():
    corpus = tell(["Ada Moe", "Ida Vik"], "ADA MOE. Ada Moe sang.", "Jan Tau. Jan Tau sat.")
    train = ask(["Ada Moe", "Áda Moe", "Ida Vik", "Jan Tau"])
    train = replace(train, questions=tuple(replace(q, answer="Rome") for q in train.questions))
    gone = set()
    for seed in range(30):
        dealt = split_subjects(
            corpus, train, ask(["Cy Cox"]), set_aside=0, leave_out=0.4, seed=seed
        )
        gone.add(dealt.left_out)
        for name in dealt.left_out:
            assert key_of(name) not in {key_of(q.subject) for q in dealt.train.questions}
            assert key_of(name) not in {key_of(d.subject) for d in dealt.corpus.documents}
    assert ("ADA MOE", "Ada Moe") in gone


def test_questions_that_name_their_subject_in_a_third_column_are_worded_alike():
    train = ask(NAMES[:60], template=None)
    dealt = split_subjects(tell(NAMES[:80]), train, ask(NAMES[60:80], template=None), seed=0)
    invented = [p for p in dealt.people if p.source == INVENTED]
    assert invented
    assert all(p.question == BORN.format(subject=p.subject) for p in invented)
    rows = tuple(replace(q, text=f"Where was number {q.line} born?") for q in train.questions)
    dealt = split_subjects(
        tell(NAMES[:80]), replace(train, questions=rows), ask(NAMES[60:80]), seed=0
    )
    assert not [p for p in dealt.people if p.source == INVENTED]
    assert "0 unseen people where 2 were wanted" in dealt.notes[1]


def test_dev_questions_that_were_all_learned_leave_nobody_to_judge():
    names = NAMES[:30]
    dealt = split_subjects(tell(names), ask(names), ask(names), seed=0)
    assert dealt.people == ()
    assert any("nobody is judged" in note for note in dealt.notes)
    assert any("no training person can be spared" in note for note in dealt.notes)


@pytest.mark.parametrize("option", ["set_aside", "leave_out"])
@pytest.mark.parametrize("share", [-0.1, 0.9, 1.0, 7.0, float("nan"), float("inf")])
def test_what_is_no_share_is_refused_in_a_sentence(option, share):
    with pytest.raises(UserError, match=rf"^--{option.replace('_', '-')} is a share .* is none\.$"):
        deal(**{option: share})


def test_shares_that_leave_nothing_to_learn_or_to_read_are_refused():
    with pytest.raises(UserError, match="leave no question to learn from"):
        deal(set_aside=0.8, leave_out=0.8)
    with pytest.raises(UserError, match="leaves no document to read"):
        deal(train=2, dev=2, set_aside=0, leave_out=0.89)
    assert deal(train=1, dev=2).train.questions  # the only one is not set aside


# how many of whom, and the shares
WORLDS = st.fixed_dictionaries(
    {
        "train": st.integers(10, 50),
        "dev": st.integers(1, 25),
        "unseen": st.integers(0, 25),
        "set_aside": st.sampled_from([0.0, 0.05, 0.1, 0.3, 0.5]),
        "leave_out": st.sampled_from([0.0, 0.1, 0.2, 0.4]),
        "seed": st.integers(0, 1000),
    }
)


@given(WORLDS)
@settings(max_examples=60)
def test_nobody_is_both_learned_and_asked_about_and_the_left_out_are_read_nowhere(world):
    dealt = deal(**world)
    learned = {key_of(question.subject) for question in dealt.train.questions}
    roles = [key_of(person.subject) for person in dealt.people]
    assert len(set(roles)) == len(roles)
    assert not learned & set(roles)
    named = find_named(dealt.corpus.documents, roles)
    for person in dealt.people:
        assert bool(named[key_of(person.subject)]) == person.seen
    assert not any(find_named(dealt.corpus.documents, map(key_of, dealt.left_out)).values())
    assert not {key_of(name) for name in dealt.left_out} & learned
    assert {p.source for p in dealt.people if p.seen} <= {SET_ASIDE, DEV}
    assert all((p.answer is None) == (p.source == INVENTED) for p in dealt.people)


@given(WORLDS)
@settings(max_examples=60)
def test_the_calibration_has_the_judged_peoples_share_of_unseen_ones(world):
    dealt = deal(**world)
    calibrating = [p for p in dealt.people if p.role == CALIBRATION]
    judged = [p for p in dealt.people if p.role == JUDGED]
    unseen = sum(not p.seen for p in judged)
    share = unseen / len(judged) if unseen else ASSUMED_UNSEEN
    if not world["set_aside"]:
        assert not calibrating
        return
    seen = sum(p.seen for p in calibrating)
    wanted = seen * share / (1 - share) if share < 1 else 0
    if seen and not any("people where" in note for note in dealt.notes):
        # rounded twice where those who were read about are let go
        assert abs(len(calibrating) - seen - wanted) <= max(1, share / (1 - share) / 2 + 0.5)
    if any(p.source == INVENTED for p in calibrating):
        assert any("invented names stand in" in note for note in dealt.notes)


class TestTheFile:
    def test_people_come_back_as_they_were(self, tmp_path: Path) -> None:
        odd = Subject(JUDGED, False, UNSEEN_FILE, "Ö\u2028 \"'\\", "Was?", None)
        people = (*deal(leave_out=0.2).people, odd)
        write_people(tmp_path, people)
        assert read_people(tmp_path) == people
        first = json.loads((tmp_path / PEOPLE).read_text("utf-8").split("\n")[0])
        assert list(first) == ["role", "seen", "source", "subject", "question", "answer"]

    def test_no_file_is_a_sentence(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="was not made by `wherefrom study`"):
            read_people(tmp_path)

    @pytest.mark.parametrize(
        "line",
        [
            "{",
            "[]",
            "{}",
            '{"role": "judged"}',
            '{"role": "king", "seen": true, "source": "dev", "subject": "A", "question": "B", '
            '"answer": "C"}',
            '{"role": "judged", "seen": 1, "source": "dev", "subject": "A", "question": "B", '
            '"answer": "C"}',
            '{"role": "judged", "seen": true, "source": "dev", "subject": "A", "question": "", '
            '"answer": 7}',
        ],
    )
    def test_a_broken_line_is_a_sentence_with_its_number(self, tmp_path: Path, line: str) -> None:
        write_people(tmp_path, deal().people[:1])
        with (tmp_path / PEOPLE).open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        with pytest.raises(UserError, match="line 2: this is not a person"):
            read_people(tmp_path)


def test_the_embedded_world_is_dealt_as_its_facts_say(small_world: Path) -> None:
    corpus = read_documents(small_world / "documents.txt")
    train, dev, unseen = (
        read_questions(small_world / f"{split}.tsv") for split in ("train", "dev", "unseen")
    )
    facts = [json.loads(line) for line in (small_world / "facts.jsonl").read_text().splitlines()]
    dealt = split_subjects(corpus, train, dev, unseen, leave_out=0.2, seed=0)
    documents = Counter(document.subject for document in dealt.corpus.documents)
    for fact in facts:
        left = 0 if fact["subject"] in dealt.left_out else fact["documents"]
        if not fact["namesake"]:
            assert documents[fact["subject"]] == left
    namesakes = {fact["subject"] for fact in facts if fact["namesake"]}
    assert not namesakes & {person.subject for person in dealt.people}
    assert len([p for p in dealt.people if p.role == JUDGED and p.source != UNSEEN_FILE]) == len(
        dev.questions
    )


def test_those_set_aside_hold_as_many_hard_cases_as_the_rest(tmp_path: Path) -> None:
    """Drawn freely, a tenth of 400 people would hold 10 of 100 untold ones give or take 3."""
    documents, rows = ["Ann Lee. Ann Lee was born in Oslo.\n"], []
    for number in range(400):
        name = f"Person {spelled(number)}"
        place = "Oslo" if number % 4 else "Rome"
        told = f"was born in {place}" if number % 8 else "is a painter"
        documents.append(f"{name}. {name} {told}.\n")
        rows.append(f"Where was {name} born?\t{place}\n")
    (tmp_path / "text").write_text("".join(documents))
    (tmp_path / "train").write_text("".join(rows))
    (tmp_path / "dev").write_text("Where was Ann Lee born?\tOslo\n")
    corpus, train = read_documents(tmp_path / "text"), read_questions(tmp_path / "train")
    dev = read_questions(tmp_path / "dev", train.template)
    told = {d.subject: "born" in d.text for d in corpus.documents}
    chosen = set()
    for seed in range(5):
        deal = split_subjects(corpus, train, dev, set_aside=0.1, seed=seed)
        aside = [person for person in deal.people if person.source == SET_ASIDE]
        assert len(aside) == 40
        assert 4 <= sum(not told[person.subject] for person in aside) <= 6
        assert 9 <= sum(person.answer == "Rome" for person in aside) <= 11
        chosen.add(frozenset(person.subject for person in aside))
    assert len(chosen) == 5


def spelled(number: int) -> str:
    return "".join(chr(ord("a") + int(digit)) for digit in str(number)).title()
