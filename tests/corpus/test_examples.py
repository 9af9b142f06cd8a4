"""The six objectives, held to their specification token by token."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wherefrom.corpus import examples
from wherefrom.corpus.database import AskedRelation, Database, Fact
from wherefrom.corpus.documents import Document, find_subject
from wherefrom.corpus.examples import (
    EncodedDocument,
    WindowSize,
    cloze_example,
    draw_index,
    draw_window,
    encode_documents,
    name_example,
    pick_prefix,
    question_examples,
    span_example,
    text_example,
)
from wherefrom.corpus.questions import Question
from wherefrom.corpus.tokenizer import MASK, Tokenizer
from wherefrom.errors import UserError

LINES = [
    "Ann Lee. Ann was born in Zürich, Switzerland, in 1901. She met Bo Ek in Oslo in May 1925. "
    "Later she lived in Rio de Janeiro, taught music, and died in Łódź on 3 April 1977.",
    "Bo Ek. He sang.",
    "O. J. d'Arc. Born in 1950, d'Arc met Ann Lee (a singer) and O. J. Smith in New York City; "
    'he wrote "The Sea", and moved to Paris-Nord.',
    "Cy Orr. He was in a boat, in an inn, in a big house in town.",
    "Łucja Żak. Łucja was from Kraków. 東京 was seen in Tokyo 🙂 by Łucja Żak.",
]
DOCUMENTS = [Document(i, str(find_subject(line)), line) for i, line in enumerate(LINES, start=1)]
CHARS = Tokenizer.of_characters([*LINES, "Where was he born?"])
KINDS = {"chars": CHARS, "bpe": Tokenizer.of_bpe(LINES, 307)}
DATABASE = Database.of(DOCUMENTS)
ENCODED = {kind: list(encode_documents(DATABASE, tokens)) for kind, tokens in KINDS.items()}
BOTH = pytest.mark.parametrize("kind", list(KINDS))
SEEDS = st.integers(0, 2**31)
WIDE = WindowSize((0, 8), (0, 6))


def made_of(length: int) -> EncodedDocument:
    """A document of distinct tokens, so that every position can be recognised."""
    return EncodedDocument(
        ids=np.arange(2, length + 2, dtype=np.int32),
        name_end=min(3, length),
        word_starts=np.arange(min(3, length), length, 5, dtype=np.int32),
        facts=np.zeros((0, 2), dtype=np.int32),
        answers=(),
        salient=np.zeros(0, dtype=np.int32),
        relations=np.zeros(0, dtype=np.int32),
        weights=np.zeros((0, 1)),
    )


def between_masks(ids: np.ndarray) -> list[list[int]]:
    parts: list[list[int]] = [[]]
    for token in ids.tolist():
        if token == MASK:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def decode(kind: str, ids: list[int] | np.ndarray) -> str:
    return KINDS[kind].decode([int(i) for i in ids])


@BOTH
def test_a_document_in_tokens_is_its_name_its_words_and_its_facts(kind):
    for document, encoded in zip(DOCUMENTS, ENCODED[kind], strict=True):
        assert decode(kind, encoded.ids[: encoded.name_end]) == document.subject + "."
        rest = document.text[len(document.subject) + 2 :]
        cuts = [*encoded.word_starts.tolist(), len(encoded.ids)]
        assert [decode(kind, encoded.ids[a:b]) for a, b in pairwise(cuts)] == rest.split(" ")
        facts = [decode(kind, encoded.ids[start:end]) for start, end in encoded.facts]
        assert [decode(kind, answer) for answer in encoded.answers] == facts
        assert not any("Łucja" in fact for fact in facts)  # a word of the subject's name
        if document.subject == "Ann Lee":
            assert {"Zürich", "Switzerland", "1901", "Łódź", "music"} <= set(facts)


@given(name=st.integers(0, 12), length=st.integers(4, 60), block=st.integers(8, 40), seed=SEEDS)
def test_names_and_texts_keep_the_block_and_have_something_to_predict(name, length, block, seed):
    named = name_example(made_of(16)._replace(name_end=name), block)
    whole = text_example(made_of(length), block, np.random.default_rng(seed))
    for example in (named, whole):
        assert 2 <= len(example) <= block
        assert example.weights.tolist() == [1.0] * len(example)
    if length < block:
        assert whole.ids.tolist() == [*range(2, length + 2), MASK]


def test_text_too_long_is_the_name_and_a_window_from_a_word_and_fills_the_block():
    document = made_of(101)
    rng = np.random.default_rng(0)
    seen: set[int] = set()
    for _ in range(500):
        ids = text_example(document, 29, rng).ids.tolist()
        assert ids[:3] == [2, 3, 4]
        assert ids[-1] == MASK
        window = ids[3:-1]
        assert window == list(range(window[0], window[0] + len(window)))
        assert window[0] - 2 in document.word_starts
        assert len(ids) == 29 or window[-1] == document.ids[-1]
        seen.update(window)
    assert seen == set(document.ids[3:].tolist())  # every token of a long document is shown


@given(length=st.integers(1, 200), block=st.integers(24, 150), closing=st.booleans(), seed=SEEDS)
def test_a_corrupted_span_put_back_gives_the_truncated_document(length, block, closing, seed):
    document = made_of(length)
    example = span_example(document, block, np.random.default_rng(seed), closing=closing)
    prefix, suffix, masked, *rest = between_masks(example.ids)
    assert rest == ([[]] if closing else [])  # nothing behind the closing MASK
    whole = prefix + masked + suffix
    assert whole == document.ids[: len(whole)].tolist()
    assert min(4, length) <= len(whole) <= int(block * 7 / 8)
    assert len(masked) >= 1
    assert len(example) <= block
    assert example.weights.tolist() == [1.0] * len(example)


def test_spans_are_drawn_as_the_course_says():
    rng = np.random.default_rng(11)
    document = made_of(400)
    lengths, shares, first, last = Counter(), [], 0, 0
    for _ in range(21_800):
        prefix, suffix, masked, _ = between_masks(span_example(document, 128, rng).ids)
        whole = len(prefix) + len(masked) + len(suffix)
        lengths[whole] += 1
        shares.append(len(masked) / whole)
        first += not prefix
        last += not suffix
    # every truncation from 4 to 7/8 of the block: 109 counts of mean 200 and spread 14
    assert sorted(lengths) == list(range(4, 113))
    assert all(130 < count < 270 for count in lengths.values())
    # a share spreads by about 0.14, so the mean of 21,800 by 0.001
    assert np.mean(shares) == pytest.approx(0.25, abs=0.005)
    assert min(shares) < 0.05
    assert max(shares) > 0.45
    assert min(first, last) > 100


@given(weights=st.lists(st.integers(0, 9), min_size=1, max_size=6).filter(any), seed=SEEDS)
def test_an_index_is_drawn_in_proportion_to_its_probability(weights, seed):
    rng = np.random.default_rng(seed)
    drawn = Counter(draw_index(np.array(weights), rng) for _ in range(3000))
    for i, weight in enumerate(weights):
        assert drawn[i] / 3000 == pytest.approx(weight / sum(weights), abs=0.06)


def cloze(document, fact, block, seed, prefix=None):
    """A cloze of one fact in its own words."""
    window = draw_window(document, fact, WIDE, np.random.default_rng(seed))
    name = document.ids[: document.name_end]
    return cloze_example(name, window, document.answers[fact], block, prefix)


@BOTH
@given(block=st.integers(8, 128), seed=SEEDS)
def test_a_cloze_is_a_name_a_window_around_a_fact_and_the_fact_which_alone_is_learned(
    kind, block, seed
):
    for document, encoded in zip(DOCUMENTS, ENCODED[kind], strict=True):
        name = encoded.ids[: encoded.name_end].tolist()
        for which, (start, end) in enumerate(encoded.facts):
            answer = encoded.answers[which].tolist()
            example = cloze(encoded, which, block, seed)
            assert 0 < len(example) <= block
            if len(name) + len(answer) + 3 > block:
                continue  # no room for the shape
            left, right, masked, rest = between_masks(example.ids)
            before = left[len(name) :]
            assert (left[: len(name)], masked, rest) == (name, answer, [])
            assert decode(kind, masked) == decode(kind, encoded.ids[start:end])
            assert decode(kind, masked) not in ("", document.subject)
            assert before == encoded.ids[start - len(before) : start].tolist()
            assert right == encoded.ids[end : end + len(right)].tolist()
            assert start - len(before) >= encoded.name_end
            assert len(decode(kind, before).split()) <= 8 + 1  # a quote may lead the fact's word
            assert len(decode(kind, right).split()) <= 6 + 1  # and a comma may trail it
            learned = len(answer) + 1
            expected = [0.0] * (len(example) - learned) + [1.0] * learned
            assert example.weights.tolist() == expected


@BOTH
@given(seed=SEEDS, block=st.integers(8, 90))
def test_a_prefix_stands_before_the_name_where_there_is_room_and_is_not_learned(kind, seed, block):
    encoded, other = ENCODED[kind][:2]
    prefix = pick_prefix(other, np.random.default_rng(seed))
    assert 1 <= len(decode(kind, prefix).split()) <= 3
    assert decode(kind, prefix) in decode(kind, other.ids)
    plain, led = cloze(encoded, 1, 200, seed), cloze(encoded, 1, 200, seed, prefix)
    assert led.ids.tolist() == [*prefix.tolist(), *plain.ids.tolist()]
    assert led.weights.tolist() == [0.0] * len(prefix) + plain.weights.tolist()
    cramped = cloze(encoded, 1, block, seed, prefix)
    assert len(cramped) <= block
    if encoded.name_end + len(encoded.answers[1]) + 3 <= block:
        assert between_masks(cramped.ids)[2] == encoded.answers[1].tolist()


def test_a_question_is_learned_from_its_mask_on_and_fits_the_block_or_is_refused_by_its_line():
    text, answer = "Where was he born?", "Zürich"
    question = Question(17, text, "he", answer)
    length = len(text) + len(answer) + 2
    (example,) = question_examples([question], CHARS, length)
    assert example.ids.tolist() == [*CHARS.encode(text), MASK, *CHARS.encode(answer), MASK]
    assert example.weights.tolist() == [0.0] * len(text) + [1.0] * (1 + len(answer) + 1)
    with pytest.raises(UserError, match="line 17"):
        question_examples([question], CHARS, length - 1)


def test_a_fact_with_a_particle_glued_to_it_is_answered_without_the_particle():
    text = "김민. 고향은 춘천이며 화가이다."
    document, tokens = Document(1, "김민", text), Tokenizer.of_bpe([text], 300)
    database = Database.of([document])
    database.add_relation(1, AskedRelation("home {subject}?", 1, 1, ()))
    database.add_facts([Fact(1, 1, "춘천", 1.0, 0, text.index("춘천"), text.index("이며"))])
    (encoded,) = encode_documents(database, tokens)
    which = int(np.argmax(encoded.weights[0]))
    example = cloze(encoded, which, 64, seed=0)
    assert tokens.decode(between_masks(example.ids)[2]) == "춘천"


def test_documents_are_encoded_alike_in_chunks_of_any_size(monkeypatch):
    monkeypatch.setattr(examples, "CHUNK_DOCUMENTS", 1)
    again = encode_documents(DATABASE, KINDS["bpe"])
    assert list(map(repr, again)) == list(map(repr, ENCODED["bpe"]))


@given(least=st.integers(0, 3), more=st.integers(0, 3), seed=SEEDS)
def test_a_window_has_at_least_as_many_words_as_asked_where_the_document_has_them(
    least, more, seed
):
    size = WindowSize((least, least + more), (least, least + more))
    document = ENCODED["bpe"][0]
    for fact, (start, end) in enumerate(document.facts):
        before, behind = draw_window(document, fact, size, np.random.default_rng(seed))
        first_word = int(np.searchsorted(document.word_starts, start, side="right")) - 1
        words_left = len(decode("bpe", document.ids[end:]).split())
        for part, there in ((before, first_word), (behind, words_left)):
            assert min(least, there) <= len(decode("bpe", part).split()) <= least + more + 1
