"""The course's own files load as they are, where they are at hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from wherefrom.corpus.database import read_documents
from wherefrom.corpus.questions import read_questions
from wherefrom.corpus.tokenizer import Tokenizer

REPOSITORY = Path(__file__).resolve().parents[2]
FOLDER = Path(os.environ.get("WHEREFROM_A5") or REPOSITORY.parent / "shared" / "a5")
FILES = {"birth_places_train.tsv": 2000, "birth_dev.tsv": 500, "birth_test_inputs.tsv": 437}

pytestmark = pytest.mark.skipif(
    not (FOLDER / "wiki.txt").is_file(),
    reason="the A5 files are not there; set WHEREFROM_A5 to their folder",
)


def test_every_line_is_a_document_and_every_question_is_about_a_subject_of_one():
    corpus = read_documents(FOLDER / "wiki.txt")
    assert len(corpus.documents) == 2937
    texts = [document.text for document in corpus.documents]
    text = (FOLDER / "wiki.txt").read_text(encoding="utf-8")
    assert len(set(text)) == 254
    assert {"\n", *"".join(texts)} == set(text)
    assert sum(len(line) + 1 for line in texts) == pytest.approx(418_351, abs=1)
    tokens = Tokenizer.of_characters(texts)
    assert tokens.size == 254 - 1 + 2  # the course's, but for the line end
    known = {document.subject for document in corpus.documents}
    for name, count in FILES.items():
        asked = read_questions(FOLDER / name)
        assert len(asked.questions) == count
        assert asked.templates == ("Where was {subject} born?",)
        assert asked.answered is not ("inputs" in name)
        assert known.issuperset(question.subject for question in asked.questions)
        assert tokens.encode_all([question.text for question in asked.questions])
