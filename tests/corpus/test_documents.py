"""Files become documents: what is harmless is taken, what would change the data is refused."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wherefrom.corpus.documents import LONGEST_DOCUMENT, find_subject, read_documents
from wherefrom.errors import UserError

TWO = "Ann Lee. Ann was born in Oslo.\nBo Ek. Bo was born in Lund.\n"


def written(folder: Path, content: bytes | str) -> Path:
    path = folder / "documents.txt"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def refusal(path: Path) -> str:
    with pytest.raises(UserError) as caught:
        read_documents(path)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    "content",
    [
        TWO,
        TWO.rstrip("\n"),
        TWO.replace("\n", "\r\n"),
        TWO.replace("\n", "\r\n").removesuffix("\r\n"),
        "\ufeff" + TWO,
        TWO.replace("\n", "\n\n  \n\t\n"),
        "\n\n" + TWO,
        "  " + TWO,
    ],
    ids=["plain", "no-last-newline", "crlf", "crlf-no-last", "bom", "blank", "blank-first", "dent"],
)
def test_harmless_ways_to_save_a_file_give_the_same_documents(tmp_path, content):
    documents = read_documents(written(tmp_path, content)).documents
    assert [document.subject for document in documents] == ["Ann Lee", "Bo Ek"]
    assert [document.text for document in documents] == TWO.splitlines()


def test_a_document_knows_its_line_in_the_file_blank_lines_counted(tmp_path):
    corpus = read_documents(written(tmp_path, "\n" + TWO.replace("\n", "\n\n")))
    assert [document.line for document in corpus.documents] == [2, 4]


def test_the_hash_is_of_the_bytes_of_the_file(tmp_path):
    path = written(tmp_path, TWO)
    assert read_documents(path).sha256 == hashlib.sha256(TWO.encode()).hexdigest()


def test_bad_utf8_is_refused_with_its_line_and_byte(tmp_path):
    message = refusal(written(tmp_path, TWO.encode() + b"Cy M\xfcller. text\n"))
    assert "line 3" in message
    assert "0xfc" in message


@pytest.mark.parametrize("content", ["", "\n", "\r\n \r\n", "\ufeff"])
def test_a_file_without_text_is_refused_as_empty(tmp_path, content):
    assert "empty" in refusal(written(tmp_path, content))


def test_a_missing_file_and_a_folder_are_each_one_sentence(tmp_path):
    assert "does not exist" in refusal(tmp_path / "nowhere.txt")
    assert "folder" in refusal(tmp_path)


@pytest.mark.parametrize("line", ["no name is here", "Ann Lee.", ". text", "Ann Lee.text", " . x"])
def test_a_line_that_names_nobody_is_refused_with_its_number(tmp_path, line):
    assert "line 3" in refusal(written(tmp_path, TWO + line + "\n"))


def test_a_document_longer_than_the_limit_is_refused_with_its_number(tmp_path):
    fits = "Ann Lee. " + "x" * (LONGEST_DOCUMENT - len("Ann Lee. "))
    assert len(read_documents(written(tmp_path, fits)).texts) == 1
    assert "line 1" in refusal(written(tmp_path, fits + "x"))


def test_without_leaves_out_every_document_of_the_subjects_and_no_other(tmp_path):
    corpus = read_documents(written(tmp_path, TWO + "Ann Lee. Ann sings.\n"))
    left = corpus.without(["Ann Lee", "nobody"])
    assert [document.subject for document in left.documents] == ["Bo Ek"]
    assert len(corpus.documents) == 3


@pytest.mark.parametrize(
    ("line", "subject"),
    [
        ("Ann Lee. She was born in Oslo. She sings.", "Ann Lee"),
        ("A. G. E. Blake. Anthony Blake was born in Bristol.", "A. G. E. Blake"),
        ("J.C. Patterson. Born in Armagh.", "J.C. Patterson"),
        ("Brian G. W. Manning. Brian G W Manning (born 1926) is", "Brian G. W. Manning"),
        ("Theodore J. van den Broek. The second child", "Theodore J. van den Broek"),
        ("Asa G. Yancey, Sr.. Asa G Yancey Sr., M.D., was born", "Asa G. Yancey, Sr."),
        ("Horatio Bisbee, Jr.. Born in Canton, Maine.", "Horatio Bisbee, Jr."),
        ("No I.D.. No I.D., officially known as", "No I.D."),
        ("St. John Philby. He was born in Ceylon.", "St. John Philby"),
        ("Dr. Ann Lee. She was born in Oslo.", "Dr. Ann Lee"),
        ("Charles W. Moorman III. Charles was born", "Charles W. Moorman III"),
        ("Asa G. al-Rashid. He was born in Basra.", "Asa G. al-Rashid"),
        ("Anastasius I. Pope Saint Anastasius I, born in Rome. He", "Anastasius I"),
        ("Malcolm X. He was born in Omaha. He spoke.", "Malcolm X"),
        ("Malcolm X. was", "Malcolm X"),
        ("Frank Lee Jr. Frank was born in Oslo. He sings.", "Frank Lee Jr"),
        ("J. R. Malcolm X. He was born in Omaha. He spoke.", "J. R. Malcolm X"),
        ("김 민준. 서울에서 태어났다.", "김 민준"),
    ],
)
def test_the_name_ends_where_a_reader_would_end_it(line, subject):
    assert find_subject(line) == subject


WORDS = st.text(st.characters(categories=["Lu", "Ll", "Lo"]), min_size=2, max_size=9)


@given(words=st.lists(WORDS, min_size=1, max_size=4), rest=st.text(min_size=1))
def test_any_name_without_full_stops_is_found_whole(words, rest):
    name = " ".join(word.capitalize() for word in words)
    last = name.split(" ")[-1]
    if len(last) == 1 or last in {"Dr", "Jr", "Mr", "Ms", "Mrs", "Prof", "Sr", "St"}:
        name += "son"
    assert find_subject(f"{name}. {rest}") == name
