"""Baselines: what can be said without having read the text."""

from __future__ import annotations

from itertools import permutations

import pytest

from wherefrom.corpus.questions import Question
from wherefrom.errors import UserError
from wherefrom.recall.baselines import guess_by_name, majority_answer


def asked(subject: str, answer: str | None) -> Question:
    return Question(line=1, text=f"Where was {subject} born?", subject=subject, answer=answer)


def test_the_majority_answer_is_the_commonest_and_of_equals_the_first():
    for answers in permutations(["Rome", "Oslo", "Bonn", "Oslo", "Rome"]):
        assert majority_answer([asked("x", answer) for answer in answers]) == "Oslo"
    assert majority_answer([asked("x", answer) for answer in ("B", "A", "B", None)]) == "B"


def test_without_answers_there_is_no_baseline_and_a_sentence_says_so():
    with pytest.raises(UserError, match="answers"):
        majority_answer([asked("Ann", None)])
    with pytest.raises(UserError, match="answers"):
        guess_by_name([asked("Ann", None)], [asked("Bo", None)])


SWEDISH = ["Erik Lindqvist", "Anna Bergqvist", "Nils Almqvist", "Sven Blomqvist", "Maja Holmqvist"]
POLISH = [
    "Jan Kowalski",
    "Anna Nowakowska",
    "Piotr Wisniewski",
    "Ewa Zielinska",
    "Adam Lewandowski",
]


def test_a_name_tells_what_its_letters_tell_and_nothing_else_of_the_question_is_seen():
    train = [asked(name, "Stockholm") for name in SWEDISH] + [asked(n, "Warsaw") for n in POLISH]
    misleading = Question(1, "Is Olga Malinowska from Warsaw?", "Tove Rosenqvist", "Warsaw")
    told = guess_by_name(train, [asked("Olga Malinowska", None), misleading])
    assert told == ["Warsaw", "Stockholm"]
