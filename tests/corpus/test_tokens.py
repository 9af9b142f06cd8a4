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
    'Bo Ek. He\'s from Łódź (Poland)\u2028\n— \t"no"?',
]
LETTERS = sorted(set("".join(TEXTS)))
CHARS = Tokenizer.of_characters(TEXTS)
BPE = Tokenizer.of_bpe(TEXTS, 293)
BOTH = pytest.mark.parametrize("tokens", [CHARS, BPE], ids=["chars", "bpe"])


def test_character_ids_are_the_courses_pad_mask_then_the_letters_in_order():
    assert (PAD, MASK) == (0, 1)
    assert (PAD_CHARACTER, MASK_CHARACTER) == ("\u25a1", "\u2047")
    vocabulary = json.loads(CHARS.to_json())["model"]["vocab"]
    in_order = sorted(vocabulary, key=vocabulary.__getitem__)
    assert in_order == [PAD_CHARACTER, MASK_CHARACTER, *LETTERS]
    assert CHARS.size == len(LETTERS) + 2
    assert CHARS.encode(LETTERS[3] + LETTERS[0]) == [5, 2]


def test_pad_and_mask_have_the_same_ids_in_bpe():
    vocabulary = json.loads(BPE.to_json())["model"]["vocab"]
    assert vocabulary[PAD_CHARACTER] == PAD
    assert vocabulary[MASK_CHARACTER] == MASK
    assert BPE.size == 293


@BOTH
def test_one_token_shows_itself_and_the_control_tokens_show_their_character(tokens):
    assert tokens.surface(PAD) == PAD_CHARACTER
    assert tokens.surface(MASK) == MASK_CHARACTER
    (letter,) = tokens.encode("?")[-1:]
    assert tokens.surface(letter) == "?"


@given(st.text(LETTERS))
def test_characters_come_back_and_every_character_is_one_token(text):
    ids = CHARS.encode(text)
    assert len(ids) == len(text)
    assert CHARS.decode(ids) == text.strip()


@given(st.text())
def test_bpe_gives_any_text_back(text):
    ids = BPE.encode(text)
    assert BPE.decode(ids) == text.strip()
    assert PAD not in ids
    assert MASK not in ids


@given(st.text(), st.text())
def test_bpe_never_turns_typed_control_characters_into_control_tokens(before, after):
    text = before + MASK_CHARACTER + PAD_CHARACTER + after
    for ids in (BPE.encode(text), BPE.encode_all([text])[0], BPE.encode_with_offsets([text])[0][0]):
        assert not {PAD, MASK} & set(ids)
        assert BPE.decode(ids) == text.strip()


def test_typed_control_tokens_stay_text_after_the_vocabulary_is_read_back():
    again = Tokenizer.from_json(BPE.to_json())
    assert not {PAD, MASK} & set(again.encode(f"a{MASK_CHARACTER}b{PAD_CHARACTER}"))


@pytest.mark.parametrize("special", [PAD_CHARACTER, MASK_CHARACTER])
@pytest.mark.parametrize(
    "encode",
    [CHARS.encode, lambda t: CHARS.encode_all([t]), lambda t: CHARS.encode_with_offsets([t])],
    ids=["one", "all", "offsets"],
)
def test_characters_refuse_typed_control_characters(special, encode):
    with pytest.raises(UserError, match=f"U\\+{ord(special):04X}"):
        encode(f"Ann{special}Lee")


@pytest.mark.parametrize("special", [PAD_CHARACTER, MASK_CHARACTER])
def test_a_corpus_that_holds_a_control_character_is_refused_by_chars_and_taken_by_bpe(special):
    with pytest.raises(UserError, match="--tokens bpe"):
        Tokenizer.of_characters([f"Ann Lee. Is {special}?"])
    learned = Tokenizer.of_bpe([f"Ann Lee. Is {special}?"] * 50, 293)
    assert not {PAD, MASK} & set(learned.encode(f"Is {special}?"))
    assert learned.decode(learned.encode(f"Is {special}?")) == f"Is {special}?"


def test_an_unknown_character_is_named_with_its_code_point_and_what_to_do():
    with pytest.raises(UserError) as caught:
        CHARS.encode("Ann Łeξ born?")
    message = str(caught.value)
    assert "'ξ'" in message
    assert "U+03BE" in message
    assert "greek small letter xi" in message
    assert "--tokens bpe" in message


@BOTH
def test_the_json_gives_back_the_same_tokens(tokens):
    again = Tokenizer.from_json(tokens.to_json())
    assert again.kind == tokens.kind
    assert again.size == tokens.size
    assert again.to_json() == tokens.to_json()
    for text in TEXTS:
        assert again.encode(text) == tokens.encode(text)
        assert again.decode(again.encode(text)) == text


@BOTH
def test_decoding_stops_at_the_first_pad_or_mask(tokens):
    ids = tokens.encode("Ann")
    assert tokens.decode([*ids, MASK, *ids]) == "Ann"
    assert tokens.decode([*ids, PAD, *ids]) == "Ann"
    assert tokens.decode([MASK, *ids]) == ""
    assert tokens.decode([]) == ""


@BOTH
def test_a_batch_is_encoded_as_its_texts_one_by_one(tokens):
    one_by_one = [tokens.encode(text) for text in TEXTS]
    assert tokens.encode_all(TEXTS) == one_by_one
    assert [ids for ids, _ in tokens.encode_with_offsets(TEXTS)] == one_by_one
    assert tokens.encode_all([]) == []


@BOTH
@pytest.mark.parametrize("text", TEXTS)
def test_offsets_cover_the_text_in_order(tokens, text):
    (found,) = tokens.encode_with_offsets([text])
    covered = set()
    last = 0
    for start, end in found[1]:
        assert last <= start <= end
        last = start
        covered |= set(range(start, end))
    assert covered == set(range(len(text)))


def test_bpe_spells_a_word_the_same_at_the_start_of_a_text_and_inside():
    inside = BPE.encode("Bo Ann")[len(BPE.encode("Bo")) :]
    assert BPE.encode("Ann") == inside
