"""The reader that recall is compared with: it answers from the text, and never looks up answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from wherefrom.corpus.questions import Question, read_questions


@pytest.fixture(scope="module")
def library(benchmark: Any, small_world: Path) -> Any:
    return benchmark("reader").open_library(small_world / "documents.txt")


def test_it_answers_from_the_documents_of_people_it_learned_nothing_about(
    benchmark: Any, library: Any, small_world: Path
) -> None:
    train = read_questions(small_world / "train.tsv").questions
    dev = read_questions(small_world / "dev.tsv").questions
    row = benchmark("reader").count("judged", dev, library.read(train, dev))
    assert row["total"] == len(dev)
    assert row["correct"] <= row["first_two"] <= row["stated"] <= row["total"]
    assert row["value"] > 0.8  # a guess among a document's facts would have a quarter


def test_answers_of_those_it_is_asked_about_change_nothing(library: Any, small_world: Path) -> None:
    train = read_questions(small_world / "train.tsv").questions
    dev = read_questions(small_world / "dev.tsv").questions
    lies = [replace(question, answer="Nowhere") for question in dev]
    assert library.read(train, lies) == library.read(train, dev)


def test_folds_learn_from_other_people_only(
    benchmark: Any, library: Any, small_world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = benchmark("reader")
    train = read_questions(small_world / "train.tsv").questions
    met: list[Question] = []

    def read(_: Any, learn: list[Question], judge: list[Question]) -> list[list[str]]:
        assert not {q.subject for q in learn} & {q.subject for q in judge}
        assert len(learn) + len(judge) == len(train)
        met.extend(judge)
        return [[q.subject] for q in judge]

    monkeypatch.setattr(reader.Library, "read", read)
    assert reader.by_folds(library, train, 3) == [[q.subject] for q in train]
    assert len(met) == len(train)


def test_a_person_without_a_document_is_not_answered(benchmark: Any, library: Any) -> None:
    nobody = Question(text="Where was No One born?", subject="No One", answer="Rome", line=1)
    answers = library.read([], [nobody])
    assert answers == [[]]
    row = benchmark("reader").count("judged", [nobody], answers)
    assert (row["correct"], row["stated"]) == (0, 0)
    assert "| judged | 1 | 0.0 % | 0, 0.0 % | 0.0 % |" in benchmark("reader").markdown([row])
