"""Records in a file instead of in memory, so that a text may have more of them than memory holds.

The file is temporary (TMPDIR says where); what was read of it stays in the cache of the operating
system as long as there is room. Every process of a training has its own.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from wherefrom.errors import UserError

T = TypeVar("T")
WORD = 8  # bytes: every array starts at a multiple of them
READ = 1 << 16  # bytes read at once, where records are read in their order


class Computed(Sequence[T]):
    """`count` items, each of them made by `make` from its number whenever it is read, or by
    `every`, if given, when all of them are read in their order."""

    def __init__(
        self,
        make: Callable[[int], T],
        count: int,
        every: Callable[[], Iterator[T]] | None = None,
    ) -> None:
        self._make, self._count, self._every = make, count, every

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, at: Any) -> Any:
        index = range(self._count)[at]
        return [self[each] for each in index] if isinstance(index, range) else self._make(index)

    def __iter__(self) -> Iterator[T]:
        return self._every() if self._every else map(self._make, range(self._count))


class Ragged(Sequence[NDArray[Any]]):
    """Arrays of different lengths, one behind the other: `ends` says where each one ends."""

    def __init__(self, values: NDArray[Any], ends: NDArray[Any]) -> None:
        self._values, self._ends = values, ends

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, at: Any) -> Any:
        return self._values[self._ends[at - 1] if at else 0 : self._ends[at]]


class ByteFile(Sequence[bytes]):
    """Byte strings in a temporary file, which grows at its end."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(buffering=READ)  # noqa: SIM115
        # close it without what is not written yet
        weakref.finalize(self, self._file.raw.close)  # type: ignore[attr-defined]
        self._ends = array("q", [0])
        self._flushed = 0

    def append(self, content: bytes) -> None:
        self._try(lambda: self._file.write(content))
        self._ends.append(self._ends[-1] + len(content))

    def _try(self, act: Callable[[], object]) -> None:
        try:
            act()
        except OSError as problem:
            raise UserError(
                f"the folder of temporary files ({tempfile.gettempdir()}) cannot be written: "
                f"{problem.strerror}; name another one in TMPDIR."
            ) from None

    def __len__(self) -> int:
        return len(self._ends) - 1

    def _read(self, start: int, stop: int) -> bytes:
        if stop > self._flushed:
            self._try(self._file.flush)
            self._flushed = self._ends[-1]
        return os.pread(self._file.fileno(), stop - start, start)

    def __getitem__(self, at: Any) -> Any:
        return self._read(self._ends[at], self._ends[at + 1])

    def __iter__(self) -> Iterator[bytes]:
        at, many, ends = 0, len(self), self._ends
        while at < many:
            first = at
            while at < many and (at == first or ends[at + 1] - ends[first] <= READ):
                at += 1
            block = self._read(ends[first], ends[at])
            for each in range(first, at):
                yield block[ends[each] - ends[first] : ends[each + 1] - ends[first]]


class Packed(Sequence[T]):
    """A sequence that grows at its end: of each record arrays of the given types are kept, and
    `make` makes the record of them, each time that it is read."""

    def __init__(self, make: Callable[..., T], *dtypes: DTypeLike) -> None:
        self._make, self._dtypes = make, [np.dtype(each) for each in dtypes]
        self._records = ByteFile()

    def add(self, *arrays: ArrayLike) -> None:
        parts = [np.asarray(a, dtype=d) for a, d in zip(arrays, self._dtypes, strict=True)]
        sizes = np.array([part.size for part in parts], dtype=np.int64)
        self._records.append(
            b"".join(
                part.tobytes().ljust(-(-part.nbytes // WORD) * WORD, b"\0")
                for part in (sizes, *parts)
            )
        )

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, at: Any) -> Any:
        index = range(len(self))[at]
        if isinstance(index, range):
            return [self[each] for each in index]
        return self._unpack(self._records[index])

    def __iter__(self) -> Iterator[T]:
        return map(self._unpack, self._records)

    def _unpack(self, record: bytes) -> T:
        place, parts = WORD * len(self._dtypes), []
        sizes = np.frombuffer(record, np.int64, len(self._dtypes))
        for size, dtype in zip(sizes.tolist(), self._dtypes, strict=True):
            parts.append(np.frombuffer(record, dtype, size, place))
            place += -(-size * dtype.itemsize // WORD) * WORD
        return self._make(*parts)
