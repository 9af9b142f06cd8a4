"""Batches: examples of similar length side by side, in a seeded order that can be resumed anywhere.

Examples are drawn in pools. Pool k depends only on the seed and on k, each source gives its share
of every pool, and within a source every record is visited once before any is visited again. A
position in the stream is therefore two numbers (pool, batch in pool), and resuming costs one pool.

A stream may leave sources out quietly: their rows stay where they are and count nothing, and the
denominator of the loss stays that of the whole batch, so that every other row counts what it did.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.random import Generator

from wherefrom.corpus.examples import Example

POOL = 4096
WASTE = 0.09  # padding allowed in a part, as a share of its real tokens


@dataclass(frozen=True)
class ExampleSource:
    """One ingredient of a mixture: `count` records, and how record i becomes an example.

    numbers: by which number a batch knows each record that its rows were made of.
    """

    share: float
    count: int
    make: Callable[[int, Generator], Example]
    numbers: Sequence[int] = ()


@dataclass(frozen=True, eq=False)
class MicroBatch:
    """Rows of similar length: ids (rows, length) int64, the loss weight of each token, and the
    number of the record that each row was made of."""

    ids: torch.Tensor
    weights: torch.Tensor
    sources: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Batch:
    """What one optimizer step learns from; its parts share one loss denominator, `weight`."""

    parts: tuple[MicroBatch, ...]
    weight: float
    tokens: int  # without padding


@dataclass(frozen=True)
class StreamPosition:
    """Where the next batch of a stream is."""

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
        self._pool_size = POOL if examples is None else examples * -(-POOL // examples)
        # whole numbers proportional to the shares; the largest remainders get the rest
        shares = np.array([source.share for source in sources], dtype=np.float64)
        exact = shares / shares.sum() * self._pool_size
        self._quotas = np.floor(exact).astype(int)
        missing = self._pool_size - int(self._quotas.sum())
        self._quotas[np.argsort(self._quotas - exact, kind="stable")[:missing]] += 1

    def epoch_steps(self) -> float:
        """Steps that show every record of the source with the largest share once.

        If batches are sized by tokens, as measured on the first pool.
        """
        counts = (source.count for source in self.sources)
        quota, count = max(zip(self._quotas.tolist(), counts, strict=True))
        examples = round(count * self._pool_size / quota)
        return examples / (self._examples or self._pool_size / len(self.pool(0)))

    def from_position(self, position: StreamPosition) -> Iterator[tuple[Batch, StreamPosition]]:
        """Batches from `position` on, each with the position of the one after it.

        A thread prepares the next pool while the current one is learned from.
        """
        with ThreadPoolExecutor(1) as ahead:
            number, start = position.pool, position.batch
            coming = ahead.submit(self.pool, number)
            while True:
                batches = coming.result()
                coming = ahead.submit(self.pool, number + 1)
                for index in range(start, len(batches) - 1):
                    yield batches[index], StreamPosition(number, index + 1)
                number, start = number + 1, 0
                yield batches[-1], StreamPosition(number, 0)

    def pool(self, number: int) -> list[Batch]:
        """All batches of one pool, a pure function of the seed and the number."""
        rng = np.random.default_rng([*self._seed, 1, number])
        examples = []
        for which, (source, quota) in enumerate(zip(self.sources, self._quotas, strict=True)):
            # the next `quota` records of the source's endless sequence of permutations
            wanted = np.arange(number * quota, (number + 1) * quota)
            for epoch in np.unique(wanted // source.count).tolist():
                drawn = np.random.default_rng([*self._seed, 2, which, epoch])
                here = wanted[wanted // source.count == epoch] % source.count
                for record in drawn.permutation(source.count)[here].tolist():
                    at = source.numbers[record] if len(source.numbers) else -1
                    examples.append(replace(source.make(record, rng), source=at))
        shuffled = [examples[i] for i in rng.permutation(len(examples))]
        if self._examples is not None:
            size = self._examples
            groups = [shuffled[i : i + size] for i in range(0, len(shuffled), size)]
            return [self._batch(_cut_by_waste(group)) for group in groups]
        assert self._tokens is not None
        parts: list[list[Example]] = [[]]  # of neighbours in length, padding included
        for example in sorted(shuffled, key=len):
            if parts[-1] and (len(parts[-1]) + 1) * len(example) > self._tokens:
                parts.append([])
            parts[-1].append(example)
        return [self._batch([parts[i]]) for i in rng.permutation(len(parts))]

    def _batch(self, groups: list[list[Example]]) -> Batch:
        """A batch with one part for each group; the rows of what is left out weigh nothing."""
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
        return Batch(tuple(parts), weight, sum(len(each) for group in groups for each in group))


def _cut_by_waste(group: list[Example]) -> list[list[Example]]:
    """One batch's rows cut into parts of similar length, so that few tokens are padding."""
    parts: list[list[Example]] = []
    real = 0  # tokens in the last part
    for example in sorted(group, key=len, reverse=True):
        more = real + len(example)
        if not parts or len(parts[-1][0]) * (len(parts[-1]) + 1) - more > WASTE * more:
            parts.append([])
            more = len(example)
        parts[-1].append(example)
        real = more
    return parts
