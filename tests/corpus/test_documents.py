"""Files become documents: what is harmless is taken, what would change the data is refused."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from wherefrom.corpus.database import read_documents
from wherefrom.corpus.documents import MAX_DOCUMENT_CHARACTERS, find_subject
from wherefrom.errors import UserError

TWO = "Ann Lee. Ann was born in Oslo.\nBo Ek. Bo was born in Lund.\n"


def written(folder: Path, content: bytes | str) -> Path:
    path = folder / "documents.txt"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


WINDOWS = TWO.replace("\n", "\r\n")
BLANKS = TWO.replace("\n", "\n\n  \n\t\n")


@pytest.mark.parametrize(
    "content",
    [
        TWO,
        TWO.rstrip("\n"),
        WINDOWS,
        WINDOWS.removesuffix("\r\n"),
        "\ufeff" + TWO,
        "  " + TWO,
        "\n\n" + TWO,
        BLANKS,
    ],
)
def test_harmless_ways_to_save_a_file_give_the_same_documents(tmp_path, content):
    corpus = read_documents(written(tmp_path, content))
    assert [document.subject for document in corpus.documents] == ["Ann Lee", "Bo Ek"]
    assert [document.text for document in corpus.documents] == TWO.splitlines()
    assert corpus.source_sha256 == hashlib.sha256(content.encode()).hexdigest()
    lines = [line.lstrip("\ufeff ") for line in content.splitlines()]
    assert [lines[document.line - 1] for document in corpus.documents] == TWO.splitlines()


FITS = "Ann Lee. " + "x" * (MAX_DOCUMENT_CHARACTERS - len("Ann Lee. "))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (TWO.encode() + b"Cy M\xfcller. text\n", "line 3 holds the byte 0xfc"),
        ((TWO * 9_000).encode() + b"\xfc", "line 18001 holds the byte 0xfc"),
        (TWO + "Cy Muller. te\0xt\n", "line 3: a NUL byte"),
        *((content, "is empty") for content in ("", "\n", "\r\n \r\n", "\ufeff")),
        *(
            (TWO + line + "\n", "line 3: a document is")
            for line in ("no name is here", "Ann Lee.", ". text", "Ann Lee.text", " . x")
        ),
        (FITS + "x", "line 1: a document may have"),
    ],
)
def test_what_is_no_corpus_is_refused_in_one_sentence_with_its_line(tmp_path, content, says):
    with pytest.raises(UserError) as caught:
        read_documents(written(tmp_path, content))
    assert str(tmp_path / "documents.txt") in str(caught.value)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(read_documents(written(tmp_path, FITS)).documents) == 1


@pytest.mark.parametrize(
    ("line", "subject"),
    [
        ("Ann Lee. She was born in Oslo. She sings.", "Ann Lee"),
        ("A. G. E. Blake. Anthony Blake was born in Bristol.", "A. G. E. Blake"),
        ("Brian G. W. Manning. Brian G W Manning (born 1926) is", "Brian G. W. Manning"),
        ("Theodore J. van den Broek. The second child", "Theodore J. van den Broek"),
        ("Asa G. Yancey, Sr.. Asa G Yancey Sr., M.D., was born", "Asa G. Yancey, Sr."),
        ("St. John Philby. He was born in Ceylon.", "St. John Philby"),
        ("Asa G. al-Rashid. He was born in Basra.", "Asa G. al-Rashid"),
        ("Anastasius I. Pope Saint Anastasius I, born in Rome. He", "Anastasius I"),
        ("Malcolm X. He was born in Omaha. He spoke.", "Malcolm X"),
        ("Frank Lee Jr. Frank was born in Oslo. He sings.", "Frank Lee Jr"),
        ("J. R. Malcolm X. He was born in Omaha. He spoke.", "J. R. Malcolm X"),
        ("김 민준. 서울에서 태어났다.", "김 민준"),
        ("李明。李明是北京的画家。", "李明"),
    ],
)
def test_the_name_ends_where_a_reader_would_end_it(line, subject):
    assert find_subject(line) == subject
