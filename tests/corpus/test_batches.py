"""Batches: little padding, all visited once before any twice, resumable at any position."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from wherefrom.corpus import batches
from wherefrom.corpus.batches import POOL_ROWS, Batch, BatchStream, ExampleSource, StreamPosition
from wherefrom.corpus.examples import Example
from wherefrom.corpus.tokenizer import PAD

EACH_SIZE = pytest.mark.parametrize(
    "size", [{"tokens": 2048}, {"examples": 128}], ids=lambda size: next(iter(size))
)


def counted(share: float, count: int, tag: int, *, fixed: int | None = None) -> ExampleSource:
    """Record i becomes tag, i+1, and filling of a length like those of span corruption."""

    def make(i: int, rng: np.random.Generator) -> Example:
        length = fixed or int(rng.integers(7, 116))
        ids = np.full(length, 3, dtype=np.int32)
        ids[:2] = tag, i + 1
        return Example(ids=ids, weights=np.linspace(0.5, 1.0, length, dtype=np.float32))

    return ExampleSource(share, make, range(count))


def stream(size: dict[str, int], seed: tuple[int, ...] = (7,)) -> BatchStream:
    sources = [counted(3, 2937, 10), counted(1, 500, 20, fixed=31)]
    return BatchStream(sources, seed=seed, **size)


def visits(made: list[Batch], tag: int) -> list[int]:
    rows = [row for batch in made for part in batch.parts for row in part.ids.tolist()]
    return [row[1] - 1 for row in rows if row[0] == tag]


def rows(batch: Batch) -> int:
    return sum(len(part.ids) for part in batch.parts)


def padded(batch: Batch) -> int:
    return sum(part.ids.numel() for part in batch.parts)


def content(batch: Batch) -> list[tuple[object, ...]]:
    return [(part.ids.tolist(), part.weights.tolist(), part.sources) for part in batch.parts]


@EACH_SIZE
def test_about_a_tenth_of_the_tokens_at_most_is_padding_and_padding_weighs_nothing(size):
    made = stream(size).pool(0)
    real = sum(int((part.ids != PAD).sum()) for batch in made for part in batch.parts)
    assert sum(batch.tokens for batch in made) == real
    assert 1 - real / sum(padded(batch) for batch in made) < 0.11
    longest = [max(part.ids.shape[1] for part in batch.parts) for batch in made]
    assert longest not in (sorted(longest), sorted(longest, reverse=True))
    for batch in made[:3]:
        total = 0.0
        for part in batch.parts:
            assert part.ids.shape == part.weights.shape
            assert part.ids.dtype == torch.int64
            assert torch.equal(part.weights > 0, part.ids != PAD)
            total += part.weights[:, 1:].sum().item()  # the first token is predicted from nothing
        assert batch.weight == pytest.approx(total)


def test_a_batch_has_the_size_that_was_given():
    made = stream({"tokens": 2048}).pool(0)
    assert all(padded(batch) <= 2048 for batch in made)
    assert np.median([padded(batch) for batch in made]) > 0.9 * 2048
    assert {rows(batch) for batch in stream({"examples": 37}).pool(0)} == {37}
    alone = BatchStream([counted(1, 9, 10, fixed=90)], seed=[1], tokens=50).pool(0)
    assert [rows(batch) for batch in alone] == [1] * POOL_ROWS  # longer than a batch may be


@EACH_SIZE
def test_every_record_is_seen_once_before_any_is_seen_twice(size):
    the_stream = stream(size)
    pools = [the_stream.pool(number) for number in range(3)]
    text, question = len(visits(pools[1], 10)), len(visits(pools[1], 20))
    assert text / (text + question) == pytest.approx(
        3 / 4, abs=1 / POOL_ROWS
    )  # its share of each pool
    for tag, count in ((10, 2937), (20, 500)):
        seen = np.zeros(count, dtype=int)
        for pool in pools:
            seen += np.bincount(visits(pool, tag), minlength=count)
            assert seen.max() - seen.min() <= 1
        assert seen.min() >= 1
        twice, other = (Counter(visits(s.pool(0), tag)) for s in (the_stream, stream(size, (8,))))
        assert twice != other  # which ones come first is drawn


def test_an_epoch_is_as_many_examples_as_show_every_record_of_the_largest_source():
    the_stream = BatchStream([counted(1, 3000, 10)], seed=[1], examples=100)
    assert the_stream.epoch_steps() == pytest.approx(30)
    assert sum(rows(batch) for batch in the_stream.pool(0)[:30]) == 3000
    mixed = stream({"examples": 128})
    assert mixed.epoch_steps() == pytest.approx(2937 * 4 / 3 / 128, abs=0.01)
    by_tokens = stream({"tokens": 2048})
    per_batch = POOL_ROWS / len(by_tokens.pool(0))
    assert by_tokens.epoch_steps() == pytest.approx(2937 * 4 / 3 / per_batch, rel=0.01)


@EACH_SIZE
@given(skip=st.integers(0, 40))
@settings(max_examples=10)
def test_resuming_at_any_position_goes_on_with_the_same_batches_of_the_seed(size, skip):
    tiny = {name: number // 8 for name, number in size.items()}
    with mock.patch.object(batches, "POOL_ROWS", 100):  # so that 40 batches cross several pools
        *_, (_, position) = islice(stream(tiny).from_position(StreamPosition()), skip + 1)
        ahead = islice(stream(tiny).from_position(StreamPosition()), skip + 1, skip + 4)
        resumed = islice(stream(tiny).from_position(position), 3)
        another = islice(stream(tiny, (8,)).from_position(position), 3)
        for (expected, at), (got, then), (other, _) in zip(ahead, resumed, another, strict=True):
            assert (content(got), then) == (content(expected), at)
            assert content(other) != content(expected)
