"""Evidence: who is named, what is stated, and what a stranger may type."""

from __future__ import annotations

import os
import string
from pathlib import Path

import pytest
from evidence_samples import LINES, make_corpus, naming
from hypothesis import given, settings
from hypothesis import strategies as st

from wherefrom.corpus.documents import Corpus, Document, read_documents
from wherefrom.corpus.folding import find_phrase, fold, fold_words, trigrams
from wherefrom.corpus.questions import read_questions
from wherefrom.errors import UserError
from wherefrom.provenance.evidence import index as namesakes
from wherefrom.provenance.evidence.index import (
    Evidence,
    build_evidence,
    ensure_evidence,
    open_evidence,
)


def stating(evidence: Evidence, name: str, answer: str) -> list[int]:
    return sorted(line.line for line in evidence.find(name, answer) if line.states_answer)


def test_a_document_about_the_subject_comes_before_one_that_mentions_it(evidence):
    own, mention = evidence.find("Stanley Corrsin", "philadelphia")
    assert (own.line, own.about, own.names_subject, own.states_answer) == (1, True, True, True)
    assert (mention.line, mention.about, mention.names_subject) == (3, False, True)
    assert not mention.states_answer
    assert own.exact
    assert own.similarity == 1
    assert [line.line for line in evidence.find("Ann Lee", "York")] == [11, 10, 12]
    assert own.text == LINES[0]
    assert evidence.find("Stanley Corrsin", limit=1) == [evidence.find("Stanley Corrsin")[0]]


def test_counts_are_of_documents(evidence):
    count = evidence.count("Ann Lee", "York")
    assert (count.naming, count.about, count.stating) == (3, 2, 1)
    nobody = evidence.count("Ann Clark", "Boston")
    assert (nobody.naming, nobody.about, nobody.stating) == (0, 0, 0)


def test_subjects_are_told_a_document_each_and_alike_for_one_name(evidence):
    subjects = evidence.subjects()
    assert len(subjects) == len(LINES)
    assert subjects[9] == subjects[10] != subjects[4]
    assert len(set(subjects)) == len(LINES) - 1


@pytest.mark.parametrize(
    "name", ["jose munoz", "JOSÉ MUÑOZ", "Jose\u0301 Mun\u0303oz", "José-Muñoz"]
)
def test_case_accents_and_hyphens_make_no_difference(evidence, name):
    assert naming(evidence, name) == [3]
    assert stating(evidence, name, "Lodz") == [3]


def test_only_whole_words_count(evidence):
    assert naming(evidence, "Stanley Corrs") == []
    assert stating(evidence, "Stanley Corrsin", "Phil") == []
    assert stating(evidence, "Stanley Corrsin", "Philadelphia Pennsylvania") == [1]


def test_a_near_namesake_is_similar_and_never_evidence(evidence):
    lines = evidence.find("Ann Clark", "Boston")
    assert lines[0].subject == "Ann B. Clark"
    for line in lines:
        assert not line.names_subject
        assert not line.states_answer
        assert not line.exact
        assert not line.about
        assert 0 < line.similarity < 1
    assert naming(evidence, "Ann B Clark") == [2]


def test_a_part_of_a_longer_name_names_somebody_else(evidence):
    assert naming(evidence, "Ann Poole") == []  # Mary Ann Poole, Ann Poole Jr.
    assert naming(evidence, "Mary Ann Poole") == [5]
    assert naming(evidence, "Ann Lee") == [10, 11, 12]  # Pianist Ann Lee; Ann Lee Reed is not her
    assert naming(evidence, "Lee Reed") == []


@pytest.mark.parametrize("name", ["Stanly Corrsin", "Stanley Corsin", "Stanley Corrsín Jr"])
def test_a_misspelt_name_leads_to_the_right_one(evidence, name):
    best = evidence.find(name)[0]
    assert best.subject == "Stanley Corrsin"
    assert not best.names_subject
    assert best.similarity < 1


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("Stanly Corsin", "Stanley Corrsin"),
        ("Ann Clark", "Ann B. Clark"),
        ("Stanley P. Corrsin", "Stanley Corrsin"),
        ("Mary Anne Poole", "Mary Ann Poole"),
    ],
)
def test_among_too_many_names_the_words_lead_on(evidence, monkeypatch, asked, meant):
    monkeypatch.setattr(namesakes, "_NAMES", namesakes._NAMES._replace(postings=0))
    assert evidence.find(asked)[0].subject == meant
    assert not evidence.find(asked)[0].names_subject


def test_two_orders_of_the_same_words_are_two_names(evidence):
    best = evidence.find("Lee Ann")[0]
    assert (best.subject, best.exact) == ("Ann Lee", False)
    assert best.similarity < 1


def test_the_subjects_own_name_states_nothing(evidence):
    assert stating(evidence, "Jack London", "London") == []
    assert stating(evidence, "Jack London", "San Francisco") == [4]
    assert stating(evidence, "Paris Hill", "Paris") == [8]
    assert stating(evidence, "Paris Hill", "Hill") == []
    assert stating(evidence, "Bristol", "Bristol") == [14]
    assert stating(evidence, "Mary Ann Poole", "York") == []
    assert stating(evidence, "Mary Ann Poole", "New York") == [5]


def test_scripts_without_spaces_and_from_right_to_left(evidence):
    assert naming(evidence, "王伟") == [6]
    assert stating(evidence, "王伟", "北京") == [6]
    assert stating(evidence, "王伟", "南京") == []
    assert stating(evidence, "محمد علي", "القاهرة") == [9]
    assert naming(evidence, "\u202bمحمد علي\u202c") == [9]


@pytest.mark.parametrize(
    "name",
    [
        'Robert "Bob" O\'Neil',
        "robert bob o’neil",
        "Robert AND Bob",
        'x" OR "1"="1',
        "'; DROP TABLE names; --",
        "NEAR(Stanley Corrsin, 3)",
        "Stan*",
        "^Stanley",
        "terms: Stanley",
        "NOT Stanley",
        "%_?",
        "👩‍🚀 😀",
        "x" * 1000,
        "Ann " * 250,
        "\u0000Ann",
    ],
)
def test_query_languages_are_plain_words(evidence, name):
    lines = evidence.find(name, name) if fold_words(name) else []
    assert all(line.names_subject == (line.similarity == 1) for line in lines)
    exact = [line.line for line in lines if line.exact]
    assert exact == ([7] if "neil" in name.lower() or "DROP TABLE names" in name else [])


@pytest.mark.parametrize(
    ("name", "says"),
    [("", "at least one letter"), ("?! ...", "at least one"), ("x" * 2001, "2,001")],
)
def test_what_cannot_be_looked_for_is_refused(evidence, name, says):
    with pytest.raises(UserError, match=says):
        evidence.find(name)
    with pytest.raises(UserError, match=says):
        evidence.count("Ann Lee", name)


def test_no_lines_cannot_be_asked_for(evidence):
    with pytest.raises(UserError, match="at least 1 line"):
        evidence.find("Ann Lee", limit=0)


@given(st.text(max_size=60), st.text(max_size=20))
def test_any_text_is_answered_or_refused(index, name, answer):
    with open_evidence(index) as opened:
        try:
            lines = opened.find(name, answer)
            count = opened.count(name, answer)
        except UserError:
            assert not fold_words(name) or not fold_words(answer)
            return
    assert count.naming == sum(line.names_subject for line in lines)
    assert all(0 < line.similarity <= 1 for line in lines)
    assert all(line.exact == line.names_subject == (line.similarity == 1) for line in lines)


@settings(max_examples=30)
@given(
    st.lists(st.text("abÄé 王", min_size=1, max_size=6).filter(fold_words), min_size=1, max_size=8)
)
def test_find_agrees_with_reading_every_line(tmp_path_factory, names):
    lines = [f"{name}. Here {other} lived." for name, other in zip(names, names[::-1], strict=True)]
    corpus = Corpus(
        Path("x"), "b" * 64, tuple(Document(n, t.split(".")[0], t) for n, t in enumerate(lines, 1))
    )
    path = tmp_path_factory.mktemp("any") / "e.sqlite"
    build_evidence(corpus, path)
    with open_evidence(path) as opened:
        for name in names:
            wanted = fold_words(name)
            about = {d.line for d in corpus.documents if fold_words(d.subject) == wanted}
            holding = {
                d.line
                for d in corpus.documents
                if find_phrase(fold_words(d.text[len(d.subject) :]), wanted)
            }
            found = {line.line for line in opened.find(name, limit=50) if line.names_subject}
            assert about <= found <= about | holding
            assert {line.line for line in opened.find(name, limit=50) if line.about} == about


@given(st.text())
def test_folding_twice_is_folding_once(text):
    words = fold_words(text)
    assert tuple(word for part in words for word in fold_words(part)) == words
    assert not any(
        character.isupper() for character in fold(text) if character in string.ascii_letters
    )


def test_words_of_many_scripts():
    assert fold_words("Łódź ŒUVRE Straße İzmir") == ("lodz", "oeuvre", "strasse", "izmir")
    assert fold_words("o\u0338re עִבְרִית") == ("ore", "עברית")
    assert fold_words("がか") == ("が", "か")
    assert fold_words("हिन्दी_नाम") == ("हिन्दी", "नाम")
    assert fold_words("a\u00adb c\u200dd") == ("ab", "cd")
    assert trigrams(["ann"]) == {"__a", "_an", "ann", "nn_"}


def test_the_embedded_world_tells_who_was_seen(small_world, tmp_path):
    import json

    corpus = read_documents(small_world / "documents.txt")
    facts = [json.loads(line) for line in (small_world / "facts.jsonl").read_text().splitlines()]
    with ensure_evidence(corpus, tmp_path / "evidence.sqlite") as opened:
        for person in facts:
            lines = opened.find(person["subject"], person["birthplace"], limit=50)
            about = {line.line for line in lines if line.about}
            assert set(person["lines"]) <= about
            if not person["namesake"]:
                assert set(person["lines"]) == about
            if person["split"] == "unseen":
                assert not any(line.names_subject for line in lines)
            if person["birthplace_in_documents"]:
                assert any(line.about and line.states_answer for line in lines)


A5 = Path(os.environ.get("WHEREFROM_A5") or Path(__file__).parents[3] / "shared" / "a5")


@pytest.mark.skipif(not (A5 / "wiki.txt").is_file(), reason="the A5 files are not there")
def test_a5_people_are_all_found_and_nearly_all_birthplaces_are_stated(tmp_path):
    corpus = read_documents(A5 / "wiki.txt")
    questions = read_questions(A5 / "birth_dev.tsv").questions
    with ensure_evidence(corpus, tmp_path / "evidence.sqlite") as opened:
        lines = [opened.find(q.subject, q.answer, limit=3) for q in questions]
    assert all(found[0].about for found in lines)
    assert sum(found[0].states_answer for found in lines) >= 475  # 479 hold the letters


def test_infini_gram_answers_alike(tmp_path, evidence):
    pytest.importorskip("infini_gram")
    from wherefrom.provenance.evidence.infini import build_infini, open_infini

    corpus = make_corpus(LINES)
    build_infini(corpus, tmp_path / "infini")
    build_infini(corpus, tmp_path / "infini")  # anew, over what was there
    assert [entry.name for entry in tmp_path.iterdir()] == ["infini"]
    with open_infini(tmp_path / "infini", corpus_sha256="a" * 64) as other:
        assert other.subjects() == evidence.subjects()
        for document in corpus.documents:
            for name in (document.subject, "Ann Poole", "Lee Reed", "Stanly", "Ann Lee"):
                for answer in ("Paris", "New York", "York", "北京", "London"):
                    ours = [line for line in evidence.find(name, answer) if line.exact]
                    assert other.find(name, answer) == ours
                    assert other.count(name, answer) == evidence.count(name, answer)
        with pytest.raises(UserError, match="at least one letter"):
            other.find("...")
    with pytest.raises(UserError, match="another corpus"):
        open_infini(tmp_path / "infini", corpus_sha256="c" * 64)
    with pytest.raises(UserError, match="there is no evidence"):
        open_infini(tmp_path / "nowhere")
    with pytest.raises(UserError, match="only letters"):
        build_infini(corpus, tmp_path / "a folder; rm")
    (tmp_path / "infini" / "table.0").unlink()
    with pytest.raises(UserError, match="not written to its end"):
        open_infini(tmp_path / "infini")
