"""Evidence: who is named, what is stated, whatever is asked, and the file that holds it."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wherefrom.corpus.documents import Corpus, Document, find_subject, read_documents
from wherefrom.corpus.folding import find_phrase, fold_words
from wherefrom.corpus.questions import read_questions
from wherefrom.errors import UserError
from wherefrom.provenance.evidence import Evidence, build_evidence, ensure_evidence, find_support

LINES = [
    "Stanley Corrsin. Corrsin was born on 3 April 1920 in Philadelphia, Pennsylvania .",
    "Ann B. Clark. Clark was born in Boston.",
    "José Muñoz. Born in Łódź, he knew Stanley Corrsin well.",
    "Jack London. London was born in San Francisco and died in Glen Ellen.",
    "Mary Ann Poole. Mary Ann Poole, born in New York, met Ann Clark-Smith and Ann Poole Jr.",
    "王伟. 王伟1950年出生于北京。",
    'Robert "Bob" O\'Neil. O’Neil was born in Cork; DROP TABLE names; NEAR(a b).',
    "Paris Hill. Paris Hill was born in Paris.",
    "محمد علي. ولد محمد علي في القاهرة.",
    "Ann Lee. Ann Lee was born in Leeds.",
    "Ann Lee. This Ann Lee was born in York.",
    "Tom Reed. Friends: Anna Leeds, Pianist Ann Lee, and Ann Lee Reed.",
    "Zoe Hart. Hart taught J. Ann Lee and Ann Lee B. Stone.",
    "Bristol. Once more Bristol sang. Bristol was born in Bristol.",
]


def make_corpus(lines: list[str], sha256: str = "a" * 64) -> Corpus:
    documents = [Document(at, find_subject(line) or "", line) for at, line in enumerate(lines, 1)]
    return Corpus(Path("lines.txt"), sha256, tuple(documents))


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("evidence") / "evidence.sqlite"
    build_evidence(make_corpus(LINES), path)
    return path


@pytest.fixture(scope="module")
def evidence(index: Path) -> Iterator[Evidence]:
    with Evidence(index, corpus_sha256="a" * 64) as opened:
        yield opened


def naming(evidence: Evidence, name: str) -> list[int]:
    return sorted(line.line for line in evidence.find(name) if line.names_subject)


def test_a_document_about_the_subject_comes_before_one_that_mentions_it(evidence):
    own, mention = evidence.find("Stanley Corrsin")
    assert (own.line, own.about, own.names_subject, own.similarity) == (1, True, True, 1)
    assert (mention.line, mention.about, mention.names_subject) == (3, False, True)
    assert own.text == LINES[0]
    assert [line.line for line in evidence.find("Ann Lee")] == [10, 11, 12]
    assert evidence.find("Stanley Corrsin") == [own, mention]


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        *((name, [3]) for name in ("jose munoz", "JOSÉ MUÑOZ", "Jose\u0301 Mun\u0303oz")),
        ("José-Muñoz", [3]),
        ("Stanley Corrs", []),  # only whole words count
        ("Ann B Clark", [2]),
        ("Ann Clark", []),
        ("Ann Poole", []),  # Mary Ann Poole, Ann Poole Jr.
        ("Mary Ann Poole", [5]),
        ("Ann Lee", [10, 11, 12]),  # Pianist Ann Lee; Ann Lee Reed is somebody else
        ("Lee Reed", []),
        ("王伟", [6]),
        ("\u202bمحمد علي\u202c", [9]),
    ],
)
def test_who_is_named(evidence, name, lines):
    assert naming(evidence, name) == lines


@pytest.mark.parametrize(
    ("name", "answer", "lines"),
    [
        ("jose munoz", "Lodz", [3]),
        ("Stanley Corrsin", "Phil", []),
        ("Stanley Corrsin", "Philadelphia Pennsylvania", [1]),
        ("Jack London", "London", []),  # the subject's own name states nothing
        ("Jack London", "San Francisco", [4]),
        ("王伟", "北京", [6]),
        ("王伟", "南京", []),
        ("محمد علي", "القاهرة", [9]),
    ],
)
def test_what_is_stated_by_words_alone(evidence, name, answer, lines):
    (found,) = find_support(evidence, [name], [answer], [])
    assert [line.line for line in found.lines if line.states_answer] == lines


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("Ann Clark", "Ann B. Clark"),
        *((name, "Stanley Corrsin") for name in ("Stanly Corrsin", "Stanley Corrsín Jr")),
        *((name, "Stanley Corrsin") for name in ("Stanley P. Corrsin", "Corrsin, Stanley")),
        ("Mary Anne Poole", "Mary Ann Poole"),
        ("Poole", "Mary Ann Poole"),
        ("Lee Ann", "Ann Lee"),
    ],
)
def test_a_misspelt_name_leads_to_the_right_one_which_is_no_evidence(evidence, asked, meant):
    lines = evidence.find(asked)
    assert lines[0].subject == meant
    for line in lines:
        assert line.names_subject is line.about is False
        assert 0 < line.similarity < 1
    assert evidence.find("Xavier Quill") == evidence.find("Annabel") == []


@pytest.mark.parametrize(
    "name",
    [
        'Robert "Bob" O\'Neil', "robert bob o’neil", "Robert AND Bob", 'x" OR "1"="1',
        "'; DROP TABLE names; --", "NEAR(Stanley Corrsin, 3)", "Stan*", "^Stanley",
        "terms: Stanley", "NOT Stanley", "👩‍🚀 😀", "x" * 1000, "Ann " * 250, "\u0000Ann",
    ],
)  # fmt: skip
def test_query_languages_are_plain_words(evidence, name):
    assert naming(evidence, name) == (
        [7] if "neil" in name.lower() or "DROP TABLE names" in name else []
    )


@pytest.mark.parametrize("name", ["", "?! ..."])
def test_what_cannot_be_looked_for_is_refused(evidence, name):
    for look in (evidence.find, evidence.count):
        with pytest.raises(UserError, match="at least one letter"):
            look(name)


@settings(max_examples=30)
@given(
    st.lists(st.text("abÄé 王", min_size=1, max_size=6).filter(fold_words), min_size=1, max_size=8)
)
def test_find_agrees_with_reading_every_line(tmp_path_factory, names):
    lines = [f"{name}. Here {other} lived." for name, other in zip(names, names[::-1], strict=True)]
    documents = tuple(Document(n, t.split(".")[0], t) for n, t in enumerate(lines, 1))
    path = tmp_path_factory.mktemp("any") / "e.sqlite"
    build_evidence(Corpus(Path("x"), "b" * 64, documents), path)
    with Evidence(path) as opened:
        for name in names:
            wanted = fold_words(name)
            about = {d.line for d in documents if fold_words(d.subject) == wanted}
            holding = {
                d.line
                for d in documents
                if find_phrase(fold_words(d.text[len(d.subject) :]), wanted)
            }
            found = [line for line in opened.find(name) if line.names_subject]
            assert about <= {line.line for line in found} <= about | holding
            assert {line.line for line in found if line.about} == about


def test_the_embedded_world_tells_who_was_seen(small_world, tmp_path):
    corpus = read_documents(small_world / "documents.txt")
    facts = [json.loads(line) for line in (small_world / "facts.jsonl").read_text().splitlines()]
    with ensure_evidence(corpus, tmp_path / "evidence.sqlite") as opened:
        for fact in facts:
            lines = opened.find(fact["subject"])
            about = {line.line for line in lines if line.about}
            assert set(fact["lines"]) <= about
            if not fact["namesake"]:
                assert set(fact["lines"]) == about
            if fact["split"] == "unseen":
                assert not any(line.names_subject for line in lines)
            if fact["birthplace_in_documents"]:
                (found,) = find_support(opened, [fact["subject"]], [fact["birthplace"]], [])
                assert found.states_answer


A5 = Path(os.environ.get("WHEREFROM_A5") or Path(__file__).parents[3] / "shared" / "a5")


@pytest.mark.skipif(not (A5 / "wiki.txt").is_file(), reason="the A5 files are not there")
def test_a5_subjects_are_all_found_and_nearly_all_birthplaces_are_stated(tmp_path):
    corpus = read_documents(A5 / "wiki.txt")
    questions = read_questions(A5 / "birth_dev.tsv").questions
    with ensure_evidence(corpus, tmp_path / "evidence.sqlite") as opened:
        asked = [(q.subject, q.answer or "") for q in questions]
        found = find_support(opened, *zip(*asked, strict=True), [])
    assert all(one.lines[0].about for one in found)
    assert sum(one.states_answer for one in found) >= 475  # 479 hold the letters


def test_an_index_is_known_by_its_text(tmp_path):
    path = tmp_path / "a run?#%20" / "evidence.sqlite"  # what an address may not hold
    path.parent.mkdir()
    corpus = make_corpus(LINES)
    with ensure_evidence(corpus, path) as made:
        assert (made.documents, made.meta["corpus_sha256"]) == (len(LINES), "a" * 64)
    before = path.stat().st_ino
    ensure_evidence(corpus, path).close()
    assert path.stat().st_ino == before
    for gone in ("Ann Lee", "Tom Reed", "Zoe Hart"):  # the file's hash is the same
        with ensure_evidence(corpus.without([gone]), path) as fewer:
            assert fewer.count(gone).about == 0
    with pytest.raises(UserError, match="another corpus, or the corpus has changed"):
        Evidence(path, corpus_sha256="c" * 64)
    with ensure_evidence(make_corpus(LINES[:3], "c" * 64), path) as changed:
        assert changed.documents == 3
    assert [entry.name for entry in path.parent.iterdir()] == ["evidence.sqlite"]


def test_a_missing_cut_or_foreign_file_is_refused_and_built_again(tmp_path, index):
    path, other = tmp_path / "evidence.sqlite", tmp_path / "other.sqlite"
    whole = index.read_bytes()
    with sqlite3.connect(other) as database:
        database.execute("CREATE TABLE meta(key, value)")
    database.close()
    wrongs = [
        (b"", "no such table"),
        (b"no database at all " * 400, "not a database"),
        (whole[: len(whole) // 2], "malformed"),
        (whole[:50], "malformed"),
        (whole + bytes(4096), "not written to its end"),
        (other.read_bytes(), "not an index of this version"),
    ]
    with pytest.raises(UserError, match="there is no evidence"):
        Evidence(path)
    for content, why in wrongs:
        path.write_bytes(content)
        with pytest.raises(UserError, match=rf"cannot be used: .*{why}.*; build it again"):
            Evidence(path)
        with ensure_evidence(make_corpus(LINES), path) as built:
            assert naming(built, "Ann Lee") == [10, 11, 12], why
    rotten = whole[:8192] + b"\xa5" * (len(whole) - 8192)
    path.write_bytes(rotten)
    with pytest.raises(UserError, match="cannot be used"), Evidence(path) as opened:
        opened.find("Ann Lee")


def test_a_build_that_fails_leaves_what_was_there(tmp_path, index, monkeypatch):
    path = tmp_path / "evidence.sqlite"
    path.write_bytes(index.read_bytes())

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(UserError, match="No space left on device; what was there before"):
        build_evidence(make_corpus(LINES[:2]), path)
    assert path.read_bytes() == index.read_bytes()
    assert [entry.name for entry in tmp_path.iterdir()] == ["evidence.sqlite"]
    monkeypatch.undo()
    with pytest.raises(UserError, match="cannot be written"):
        build_evidence(make_corpus(LINES), tmp_path / "nowhere" / "evidence.sqlite")
