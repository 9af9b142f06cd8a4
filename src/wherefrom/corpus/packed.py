"""Records in a temporary file instead of in memory, for texts that are larger than memory.

The file is in TMPDIR; the operating system caches what was read of it. Every process of a
distributed training has its own.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from array import array
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from wherefrom.errors import UserError

T = TypeVar("T")
READ = 1 << 16  # bytes that are buffered before they are written
BLOCK = 64  # records that are read at once by an iteration over all of them


class Computed(Sequence[T]):
    """`count` items that are not stored: `make` computes item i each time it is read.

    every: a faster way to iterate over all items, if there is one.
    """

    def __init__(
        self,
        make: Callable[[int], T],
        count: int,
        every: Callable[[], Iterator[T]] | None = None,
    ) -> None:
        self._make, self._count, self._every = make, count, every

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        chosen = range(self._count)[index]
        return [self[i] for i in chosen] if isinstance(chosen, range) else self._make(chosen)

    def __iter__(self) -> Iterator[T]:
        return self._every() if self._every else map(self._make, range(self._count))


class RecordFile(Sequence[T]):
    """Records in a temporary file, appended as bytes; `decode` makes a record of its bytes each
    time it is read."""

    def __init__(self, decode: Callable[[bytes], T]) -> None:
        self._decode = decode
        self._file = tempfile.TemporaryFile(buffering=READ)  # noqa: SIM115
        # closing the raw file drops what is still buffered: nobody will read it
        weakref.finalize(self, self._file.raw.close)  # type: ignore[attr-defined]
        self._ends = array("q", [0])
        self._flushed = 0

    def append(self, content: bytes) -> None:
        self._try(lambda: self._file.write(content))
        self._ends.append(self._ends[-1] + len(content))

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, index: Any) -> Any:
        i = range(len(self))[index]
        return self._decode(self._read(self._ends[i], self._ends[i + 1]))

    def __iter__(self) -> Iterator[T]:
        for first in range(0, len(self), BLOCK):
            ends = self._ends[first : first + BLOCK + 1]
            block = self._read(ends[0], ends[-1])
            for start, stop in pairwise(ends):
                yield self._decode(block[start - ends[0] : stop - ends[0]])

    def _read(self, start: int, stop: int) -> bytes:
        if stop > self._flushed:
            self._try(self._file.flush)
            self._flushed = self._ends[-1]
        return os.pread(self._file.fileno(), stop - start, start)

    def _try(self, write: Callable[[], object]) -> None:
        try:
            write()
        except OSError as problem:
            raise UserError(
                f"the folder of temporary files ({tempfile.gettempdir()}) cannot be written: "
                f"{problem.strerror}; name another one in TMPDIR."
            ) from None


class Packed(RecordFile[T]):
    """Records that are stored as arrays of the given types; `make` makes a record of them."""

    def __init__(self, make: Callable[..., T], *dtypes: DTypeLike) -> None:
        self._dtypes = [np.dtype(dtype) for dtype in dtypes]
        super().__init__(partial(_unpack, make, self._dtypes))

    def add(self, *arrays: ArrayLike) -> None:
        """Append a record: one array for each type, of any length."""
        parts = [np.asarray(a, dtype=d) for a, d in zip(arrays, self._dtypes, strict=True)]
        sizes = np.array([part.size for part in parts], dtype=np.int64)
        self.append(b"".join(part.tobytes() for part in (sizes, *parts)))


def _unpack(make: Callable[..., T], dtypes: Sequence[np.dtype[Any]], content: bytes) -> T:
    sizes = np.frombuffer(content, np.int64, len(dtypes))
    offset, arrays = sizes.nbytes, []
    for size, dtype in zip(sizes.tolist(), dtypes, strict=True):
        arrays.append(np.frombuffer(content, dtype, size, offset))
        offset += arrays[-1].nbytes
    return make(*arrays)
