"""Batches: examples of similar length together, in a seeded order that can be resumed anywhere.

Examples are drawn in pools. Pool k depends only on the seed and on k, each source gives its share
of every pool, and within a source every record is visited once before any is visited again. A
position in the stream is therefore two numbers (pool, batch in pool), and resuming costs one pool.

A stream can leave records out: their rows stay in the batch with weight 0, and the denominator of
the loss stays that of the whole batch, so that every other row counts as much as before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.random import Generator

from wherefrom.corpus.examples import Example

POOL_ROWS = 4096
PART_ROWS = 16  # rows of similar length that are padded alike, in batches of so many rows


@dataclass(frozen=True)
class ExampleSource:
    """One part of a mixture: its share, and how record i becomes an example.

    numbers: for each record the number by which batches identify it (`MicroBatch.sources`).
    """

    share: float
    make: Callable[[int, Generator], Example]
    numbers: Sequence[int]


@dataclass(frozen=True, eq=False)
class MicroBatch:
    """Rows of similar length: ids (rows, length) int64, the loss weight of each token, and for each
    row the number of the record that it was made of."""

    ids: torch.Tensor
    weights: torch.Tensor
    sources: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Batch:
    """What one optimizer step is computed on; the loss of its parts is divided by `weight`."""

    parts: tuple[MicroBatch, ...]
    weight: float
    tokens: int  # without padding


@dataclass(frozen=True)
class StreamPosition:
    """Position of the next batch in a stream."""

    pool: int = 0
    batch: int = 0


class BatchStream:
    """An endless, seeded stream of batches of about `tokens` tokens or exactly `examples` rows."""

    def __init__(
        self,
        sources: Sequence[ExampleSource],
        *,
        seed: Sequence[int],
        tokens: int | None = None,
        examples: int | None = None,
        left_out: Collection[int] = (),
    ) -> None:
        assert (tokens is None) != (examples is None), "a batch is sized by tokens or by examples"
        self.sources, self._seed = list(sources), list(seed)
        self._tokens, self._examples = tokens, examples
        self._left_out = frozenset(left_out)
        self._pool_size = POOL_ROWS if examples is None else examples * -(-POOL_ROWS // examples)
        # how many examples of a pool come from each source: whole numbers proportional to the
        # shares, where the largest remainders are rounded up
        shares = np.array([source.share for source in sources], dtype=np.float64)
        exact = shares / shares.sum() * self._pool_size
        self._quotas = np.floor(exact).astype(int)
        missing = self._pool_size - int(self._quotas.sum())
        self._quotas[np.argsort(self._quotas - exact, kind="stable")[:missing]] += 1

    def epoch_steps(self) -> float:
        """Steps that show every record of the source with the largest share once; for batches that
        are sized by tokens, estimated from the first pool."""
        counts = (len(source.numbers) for source in self.sources)
        quota, count = max(zip(self._quotas.tolist(), counts, strict=True))
        examples = round(count * self._pool_size / quota)
        return examples / (self._examples or self._pool_size / len(self.pool(0)))

    def from_position(self, position: StreamPosition) -> Iterator[tuple[Batch, StreamPosition]]:
        """Batches from `position` on, each with the position of the one after it.

        A thread prepares the next pool while the current one is used.
        """
        with ThreadPoolExecutor(1) as executor:
            number, start = position.pool, position.batch
            next_pool = executor.submit(self.pool, number)
            while True:
                batches = next_pool.result()
                next_pool = executor.submit(self.pool, number + 1)
                for index in range(start, len(batches) - 1):
                    yield batches[index], StreamPosition(number, index + 1)
                number, start = number + 1, 0
                yield batches[-1], StreamPosition(number, 0)

    def pool(self, number: int) -> list[Batch]:
        """All batches of one pool, a pure function of the seed and the number."""
        rng = np.random.default_rng([*self._seed, 1, number])
        examples = []
        for i, (source, quota) in enumerate(zip(self.sources, self._quotas, strict=True)):
            # the next `quota` records of the source, which is permuted anew in each epoch
            visits, count = np.arange(number * quota, (number + 1) * quota), len(source.numbers)
            epochs, places = np.divmod(visits, count)
            for epoch in np.unique(epochs).tolist():
                order = np.random.default_rng([*self._seed, 2, i, epoch]).permutation(count)
                for record in order[places[epochs == epoch]].tolist():
                    example = source.make(record, rng)
                    examples.append(replace(example, source=source.numbers[record]))
        shuffled = [examples[i] for i in rng.permutation(len(examples))]
        if self._examples is not None:
            groups = [sorted(group, key=len) for group in _cut(shuffled, self._examples)]
            return [self._batch(_cut(group, PART_ROWS)) for group in groups]
        assert self._tokens is not None
        parts: list[list[Example]] = [[]]  # of examples of similar length, padding included
        for example in sorted(shuffled, key=len):
            if parts[-1] and (len(parts[-1]) + 1) * len(example) > self._tokens:
                parts.append([])
            parts[-1].append(example)
        return [self._batch([parts[i]]) for i in rng.permutation(len(parts))]

    def _batch(self, groups: list[list[Example]]) -> Batch:
        """A batch with one part for each group; rows that are left out get weight 0."""
        parts, weight = [], 0.0
        for group in groups:
            ids = np.zeros((len(group), max(map(len, group))), dtype=np.int64)
            weights = np.zeros(ids.shape, dtype=np.float32)
            for row, example in enumerate(group):
                ids[row, : len(example)] = example.ids
                weights[row, : len(example)] = example.weights
            sources = tuple(example.source for example in group)
            part = MicroBatch(torch.from_numpy(ids), torch.from_numpy(weights), sources)
            # the first token of a row is predicted from nothing, so it has no loss
            weight += float(part.weights[:, 1:].sum().item())
            if self._left_out:
                part.weights[[source in self._left_out for source in sources]] = 0
            parts.append(part)
        tokens = sum(len(example) for group in groups for example in group)
        return Batch(tuple(parts), weight, tokens)


def _cut(examples: list[Example], size: int) -> list[list[Example]]:
    return [examples[i : i + size] for i in range(0, len(examples), size)]
