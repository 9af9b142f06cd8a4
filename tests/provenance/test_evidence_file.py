"""The file behind the evidence: whole and of this very text, or refused and made again."""

from __future__ import annotations

import os
import sqlite3
import threading

import pytest
from evidence_samples import LINES, make_corpus, naming

from wherefrom.errors import UserError
from wherefrom.provenance.evidence.index import build_evidence, ensure_evidence, open_evidence


def test_an_index_is_known_by_its_text(tmp_path):
    path = tmp_path / "evidence.sqlite"
    corpus = make_corpus(LINES)
    with ensure_evidence(corpus, path) as made:
        assert (made.documents, made.corpus_sha256) == (len(LINES), "a" * 64)
    before = path.stat().st_ino
    ensure_evidence(corpus, path).close()
    assert path.stat().st_ino == before
    with ensure_evidence(corpus.without(["Ann Lee"]), path) as fewer:  # the file's hash is the same
        assert fewer.count("Ann Lee").about == 0
    with pytest.raises(UserError, match="another corpus, or the corpus has changed"):
        open_evidence(path, corpus_sha256="c" * 64)
    with ensure_evidence(make_corpus(LINES[:3], "c" * 64), path) as changed:
        assert changed.documents == 3
    assert [entry.name for entry in tmp_path.iterdir()] == ["evidence.sqlite"]


def test_a_missing_cut_or_foreign_file_is_refused_and_mended(tmp_path, index):
    path = tmp_path / "evidence.sqlite"
    whole = index.read_bytes()
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as database:
        database.execute("CREATE TABLE meta(key, value)")
    database.close()
    wrongs = [
        (b"", "not an index"),
        (b"no database at all " * 400, "not a database"),
        (whole[:-4096], "malformed"),
        (whole[: len(whole) // 2], "malformed"),
        (whole[:50], "malformed"),
        (whole + bytes(4096), "not written to its end"),
        (other.read_bytes(), "not an index of Wherefrom"),
        (whole[:60] + (99).to_bytes(4, "big") + whole[64:], "its format is 99"),
    ]
    with pytest.raises(UserError, match="there is no evidence"):
        open_evidence(path)
    for content, why in wrongs:
        path.write_bytes(content)
        with pytest.raises(UserError, match=rf"cannot be used: .*{why}.*; build it again"):
            open_evidence(path)
        with ensure_evidence(make_corpus(LINES), path) as mended:
            assert naming(mended, "Ann Lee") == [10, 11, 12], why


def test_pages_that_rot_are_a_sentence(tmp_path, index):
    path = tmp_path / "evidence.sqlite"
    content = bytearray(index.read_bytes())
    content[4096 * 2 :] = b"\xa5" * (len(content) - 4096 * 2)
    path.write_bytes(content)
    with pytest.raises(UserError, match="cannot be used"), open_evidence(path) as opened:
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


def test_a_path_may_hold_what_an_address_may_not(tmp_path):
    path = tmp_path / "a run?#%20" / "evidence.sqlite"
    path.parent.mkdir()
    with ensure_evidence(make_corpus(LINES), path) as opened:
        assert naming(opened, "Ann Lee") == [10, 11, 12]


def test_threads_share_one_index(evidence):
    names = ["Ann Lee", "Stanley Corrsin", "Stanly Corsin", "王伟"]
    expected = {name: evidence.find(name) for name in names}
    wrong: list[str] = []

    def ask() -> None:
        for _ in range(40):
            wrong.extend(name for name in names if evidence.find(name) != expected[name])

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
