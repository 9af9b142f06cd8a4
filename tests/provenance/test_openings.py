"""The words that lead to an answer are learned from the text, whatever the relation."""

from __future__ import annotations

from wherefrom.corpus.documents import Document
from wherefrom.corpus.questions import Question
from wherefrom.corpus.tokenizer import MASK, Tokenizer
from wherefrom.provenance.signals.names import encode_names, encode_words, learn_contexts

NAMES = [f"{first} {last}" for first in ("Ada", "Bo", "Cleo", "Dag") for last in ("Moe", "Nys")]


def documents(text: str) -> list[Document]:
    return [
        Document(at, name, f"{name}. {text.format(name=name)}") for at, name in enumerate(NAMES)
    ]


def questions(answer: str) -> list[Question]:
    return [Question(at, f"What of {name}?", name, answer) for at, name in enumerate(NAMES)]


def test_the_commonest_words_before_the_answers_come_first():
    texts = documents("{name} was born in Rome, and died in Oslo.")
    assert learn_contexts(texts, questions("Rome")) == ("born in", "was born in")
    assert learn_contexts(texts, questions("Oslo"), count=1) == ("and died in",)
    trades = documents("In 1950 {name} became a famous painter.")
    assert learn_contexts(trades, questions("painter")) == ("a famous", "became a famous")


def test_numbers_rare_words_and_other_peoples_documents_teach_nothing():
    texts = documents("{name} lived 1950 in Rome.")
    assert learn_contexts(texts, questions("Rome")) == ()
    born = documents("{name} was born in Rome.")
    assert learn_contexts(born[:4], questions("Rome")) == ()  # four are too few
    strangers = [Question(1, "What of Eva?", "Eva", "Rome")] * 9
    assert learn_contexts(born, strangers) == ()
    assert learn_contexts(born, questions("Rom")) == ()  # no whole word


def test_names_and_words_are_cut_as_the_documents_are():
    line = "Ada Moe. born in Rome"
    for tokens in (Tokenizer.of_characters([line]), Tokenizer.of_bpe([line], 300)):
        words = encode_words(tokens, "born in")
        assert words[-2:] == [MASK, MASK]
        [name] = encode_names(tokens, ["Ada Moe"])
        whole = tokens.encode(line)
        assert [*name, *words[:-2]] == whole[: len(name) + len(words) - 2]
        assert encode_words(tokens, "") == [MASK, MASK]
    letters = Tokenizer.of_characters([line])
    assert encode_names(letters, ["Ž", "Ada Moe", ""])[0] == []
    assert encode_names(letters, ["Ž", "Ada Moe", ""])[2] == []
    assert encode_words(letters, "Žijící v") == [MASK, MASK]
