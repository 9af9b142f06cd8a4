"""The database of a run: documents, subjects and facts as they were put in, and whole files."""

from __future__ import annotations

import os
import pickle
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wherefrom.corpus import database as module
from wherefrom.corpus.database import AskedRelation, Database, Fact, read_documents
from wherefrom.corpus.documents import Document
from wherefrom.corpus.folding import fold_words
from wherefrom.errors import UserError

EVERY = [
    Document(at, f"né{at % 7}", f"né{at % 7}. " + "ü" * (at * 97 % 4000)) for at in range(1, 100)
]
SUBJECTS = ["Łódź", "", "Bo Ek", "LODZ", "Cy", "bo ek", "Bo Ek"]
BORN = "Where was {subject} born?"


def about(subjects: list[str]) -> Database:
    return Database.of(Document(at, who, f"{who}. x") for at, who in enumerate(subjects))


@pytest.mark.parametrize("rows", [1, 7, 1000])
def test_documents_are_read_in_any_order(monkeypatch, rows):
    monkeypatch.setattr(module, "ROWS_AT_ONCE", rows)
    database = Database.of(EVERY, "x.txt", "0")
    documents = database.documents
    assert list(documents) == EVERY == [documents[at] for at in range(99)]
    assert (documents[-1], documents[90:]) == (EVERY[-1], EVERY[90:])
    with pytest.raises(IndexError):
        documents[99]
    part = database.select(lambda document: document.line > 30)
    assert list(part.documents) == EVERY[30:]
    assert (part.source, part.source_sha256) == (Path("x.txt"), "0")
    assert sorted(database.documents_on([5, 3, 1000])) == [2, 4]
    assert list(Database().documents) == []


def test_half_a_surrogate_pair_becomes_a_question_mark():
    (kept,) = Database.of([Document(9, "né\udc00", "né\udc00. more \ud800")]).documents
    assert kept == Document(9, "né?", "né?. more ?")


def test_subjects_are_numbered_as_they_come_and_found_in_any_spelling():
    database = about(SUBJECTS)
    assert [database.subject_of(at) for at in range(7)] == [1, 0, 2, 1, 3, 2, 2]
    assert database.spellings() == {("lodz",): "LODZ", ("bo", "ek"): "Bo Ek", ("cy",): "Cy"}
    assert list(map(database.spell, (1, 2, 3))) == ["LODZ", "Bo Ek", "Cy"]
    assert database.documents_about(("lodz",)) == [0, 3]
    assert database.documents_about(("bo", "ek")) == database.documents_of(2) == [2, 5, 6]
    assert (database.documents_about(("bo",)), database.documents_about(())) == ([], [])
    assert database.subject_id(("bo",)) == 0


@given(st.lists(st.text("abÉ 王-", max_size=5), max_size=12))
def test_every_document_with_a_name_is_about_one_subject(subjects):
    database = about(subjects)
    names = {fold_words(subject) for subject in subjects} - {()}
    assert database.spellings().keys() == names
    assert database.subject_count == len(names)
    by_subject = dict(database.by_subject())
    assert list(by_subject) == list(range(1, len(names) + 1))
    for name in names:
        expected = [at for at, subject in enumerate(subjects) if fold_words(subject) == name]
        found = by_subject[database.subject_id(name)]
        assert [at for at, _ in found] == database.documents_about(name) == expected


def with_facts() -> Database:
    database = about(SUBJECTS)
    database.start_facts("q")
    for number, template in enumerate((BORN, "Home of {subject}?"), start=1):
        database.add_relation(number, AskedRelation(template, 9, 8, ("Ur",), kind="words"))
    rows = [(1, "Rome", 0.25, 0), (1, "Rome", 0.25, 3), (1, "Oslo", 0.1, 0), (3, "Bonn", 0.9, 4)]
    database.add_facts(Fact(1, who, what, p, doc, 0, 1) for who, what, p, doc in rows)
    return database


def test_facts_are_grouped_by_answer_and_shared_by_wordings_of_one_relation():
    database = with_facts()
    answers = [
        ("Rome", 0.5, ((0, 0, 1), (3, 0, 1)), (0.25, 0.25)),
        ("Oslo", 0.1, ((0, 0, 1),), (0.1,)),
    ]
    assert database.extracted(BORN, ("lodz",)) == answers
    assert database.extracted(BORN, ("bo", "ek")) == database.extracted("?", ("lodz",)) == []
    assert [number for number, _ in database.all_extracted(BORN)] == [1, 3]
    assert database.stated_subjects() == [(BORN, 1), (BORN, 3)]
    database.set_same(2, 1)
    assert database.extracted("Home of {subject}?", ("lodz",)) == answers
    assert [relation.same_as for relation in database.relations()] == ["", BORN]
    assert [relation.missing for relation in database.relations()] == [("Ur",), ("Ur",)]
    database.start_facts("other")
    assert (database.relations(), database.stated_subjects()) == ([], [])


def test_a_saved_database_says_the_same_and_other_tools_read_it(tmp_path):
    database = with_facts()
    before = list(database.documents), database.extracted(BORN, ("lodz",)), database.relations()
    database.save(tmp_path / "run.sqlite")
    in_another_process = pickle.loads(pickle.dumps(database))
    for saved in (database, Database.open(tmp_path / "run.sqlite"), in_another_process):
        now = list(saved.documents), saved.extracted(BORN, ("lodz",)), saved.relations()
        assert now == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.sqlite"]
    with sqlite3.connect(tmp_path / "run.sqlite") as plain:
        query = (
            "SELECT template, subject, answer, sum(probability) FROM facts "
            "JOIN relations ON relation_id = relations.id JOIN documents ON document_id = "
            "documents.id GROUP BY facts.subject_id, answer ORDER BY answer"
        )
        rows = plain.execute(query).fetchall()
        assert [row[2:] for row in rows] == [("Bonn", 0.9), ("Oslo", 0.1), ("Rome", 0.5)]
        assert plain.execute("PRAGMA foreign_key_check").fetchall() == []
        kinds = plain.execute("SELECT sql FROM sqlite_schema WHERE name = 'documents'").fetchone()
        assert "BLOB" not in kinds[0]
    plain.close()


def test_the_same_text_and_questions_are_not_written_again(tmp_path):
    file = tmp_path / "a run?#%20"  # what an address may not hold
    with_facts().save(file)
    before = file.stat().st_ino
    with_facts().save(file)
    assert file.stat().st_ino == before
    asked = [("train", 1, "train", "Cy", "Where was Cy born?", "Bonn", BORN)]
    with Database.open(file) as saved:
        assert saved.questions(["train"]) is None
        saved.write_questions(["train"], asked)
    other = with_facts()
    other.start_facts("other questions")
    other.save(file)
    assert file.stat().st_ino != before
    assert other.questions(["train"]) == asked  # what was asked is kept


def test_a_missing_cut_or_foreign_file_is_refused(tmp_path):
    file, other = tmp_path / "run.sqlite", tmp_path / "other.sqlite"
    about(SUBJECTS * 99).save(file)
    whole = file.read_bytes()
    with sqlite3.connect(other) as foreign:
        foreign.execute("CREATE TABLE about(key, value)")
    foreign.close()
    with pytest.raises(UserError, match="there is no database"):
        Database.open(tmp_path / "nothing.sqlite")
    for content, why in (
        (b"", "no such table"),
        (b"no database at all " * 400, "not a database"),
        (whole[: len(whole) // 2], "malformed"),
        (whole + bytes(4096), "not written to its end"),
        (other.read_bytes(), "not a database of this version"),
    ):
        file.write_bytes(content)
        with pytest.raises(UserError, match=rf"cannot be used: .*{why}"):
            Database.open(file)
        about(SUBJECTS).save(file)  # which replaces it
        assert len(Database.open(file).documents) == len(SUBJECTS)


def test_a_save_that_fails_leaves_what_was_there(tmp_path, monkeypatch):
    file = tmp_path / "run.sqlite"
    about(SUBJECTS).save(file)
    before = file.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(UserError, match="No space left on device; what was there before"):
            about(SUBJECTS[1:]).save(file)
    assert file.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.sqlite"]
    with pytest.raises(UserError, match="cannot be written"):
        about(SUBJECTS).save(tmp_path / "nowhere" / "run.sqlite")


def test_a_text_of_questions_is_refused(tmp_path):
    path = tmp_path / "text.tsv"
    path.write_text("Who?\tAnn\nWhy?\tBo\n", "utf-8")
    with pytest.raises(UserError, match="these are questions"):
        read_documents(path)
