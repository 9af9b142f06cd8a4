"""Tokens: PAD and MASK are 0 and 1, text comes back as it was, nobody can type a control token."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wherefrom.corpus.tokenizer import MASK, MASK_CHARACTER, PAD, PAD_CHARACTER, Tokenizer
from wherefrom.errors import UserError

TEXTS = [
    "Ann Lee. Ann was born in Zürich, in 1901.",
    'Bo Ek. He\'s from Łódź (Poland)\u2028\n— \t"no"?_',
]
LETTERS = sorted(set("".join(TEXTS)))
CHARS = Tokenizer.of_characters(TEXTS)
BPE = Tokenizer.of_bpe(TEXTS, 293)
BOTH = pytest.mark.parametrize("tokens", [CHARS, BPE], ids=["chars", "bpe"])


def test_ids_are_the_courses_pad_mask_then_the_letters_in_order():
    assert (PAD, MASK) == (0, 1)
    assert (PAD_CHARACTER, MASK_CHARACTER) == ("\u25a1", "\u2047")
    vocabulary = json.loads(CHARS.to_json())["model"]["vocab"]
    in_order = sorted(vocabulary, key=vocabulary.__getitem__)
    assert in_order == [PAD_CHARACTER, MASK_CHARACTER, *LETTERS]
    assert CHARS.encode(LETTERS[3] + LETTERS[0]) == [5, 2]
    assert (CHARS.size, BPE.size) == (len(LETTERS) + 2, 293)
    vocabulary = json.loads(BPE.to_json())["model"]["vocab"]
    assert (vocabulary[PAD_CHARACTER], vocabulary[MASK_CHARACTER]) == (PAD, MASK)


@BOTH
def test_one_token_shows_itself_and_decoding_stops_at_the_first_control_token(tokens):
    assert tokens.surface(PAD) == PAD_CHARACTER
    assert tokens.surface(MASK) == MASK_CHARACTER
    ids = tokens.encode("Ann?")
    assert tokens.surface(ids[-1]) == "?"
    assert tokens.decode([*ids, MASK, *ids]) == tokens.decode([*ids, PAD, *ids]) == "Ann?"
    assert tokens.decode([MASK, *ids]) == tokens.decode([]) == ""


@given(st.text(LETTERS))
def test_characters_come_back_and_every_character_is_one_token(text):
    ids = CHARS.encode(text)
    assert len(ids) == len(text)
    assert CHARS.decode(ids) == text.strip()


@given(st.text(), st.text())
def test_bpe_gives_any_text_back_and_typed_control_characters_stay_text(before, after):
    for text in (before, before + MASK_CHARACTER + PAD_CHARACTER + after):
        for tokens in (BPE, Tokenizer.from_json(BPE.to_json())):
            ids = tokens.encode(text)
            assert not {PAD, MASK} & set(ids)
            assert tokens.decode(ids) == text.strip()


@BOTH
@pytest.mark.parametrize("text", ["___", "born in ____, in 1901", "Ann___"])
def test_underscores_stay_text(tokens, text):
    ids = tokens.encode(text)
    assert not {PAD, MASK} & set(ids)
    assert tokens.decode(ids) == text


@pytest.mark.parametrize("special", [PAD_CHARACTER, MASK_CHARACTER])
def test_characters_refuse_typed_control_characters_and_bpe_learns_them(special):
    with pytest.raises(UserError, match=f"U\\+{ord(special):04X}"):
        CHARS.encode(f"Ann{special}Lee")
    with pytest.raises(UserError, match="--tokens bpe"):
        Tokenizer.of_characters([f"Ann Lee. Is {special}?"])
    learned = Tokenizer.of_bpe([f"Ann Lee. Is {special}?"] * 50, 293)
    ids = learned.encode(f"Is {special}?")
    assert not {PAD, MASK} & set(ids)
    assert learned.decode(ids) == f"Is {special}?"


@BOTH
def test_a_batch_is_encoded_as_its_texts_one_by_one_with_offsets(tokens):
    assert tokens.encode_all(TEXTS) == [tokens.encode(text) for text in TEXTS]
    assert tokens.encode_all([]) == []
    for text, (ids, offsets) in zip(TEXTS, tokens.encode_with_offsets(TEXTS), strict=True):
        assert ids == tokens.encode(text)
        assert offsets == sorted(offsets)
        assert {at for start, end in offsets for at in range(start, end)} == set(range(len(text)))
