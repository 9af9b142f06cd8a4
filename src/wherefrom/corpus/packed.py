"""Records in a file instead of in memory, so that a text may have more of them than memory holds.

The file is temporary (TMPDIR says where) and mapped into memory: what is read stays in the cache of
the operating system as long as there is room. Every process of a training has its own.
"""

from __future__ import annotations

import mmap
import tempfile
import weakref
from array import array
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from wherefrom.errors import UserError

T = TypeVar("T")
WORD = 8  # bytes: every array starts at a multiple of them


class Ragged(Sequence[NDArray[Any]]):
    """Arrays of different lengths, one behind the other: `ends` says where each one ends."""

    def __init__(self, values: NDArray[Any], ends: NDArray[Any]) -> None:
        self._values, self._ends = values, ends

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, at: Any) -> Any:
        return self._values[self._ends[at - 1] if at else 0 : self._ends[at]]


class Packed(Sequence[T]):
    """A sequence that grows at its end: of each record arrays of the given types are kept, and
    `make` makes the record of them, each time that it is read."""

    def __init__(self, make: Callable[..., T], *dtypes: DTypeLike) -> None:
        self._make, self._dtypes = make, [np.dtype(each) for each in dtypes]
        self._file = tempfile.TemporaryFile(buffering=1 << 16)  # noqa: SIM115
        # close it without what is not written yet
        weakref.finalize(self, self._file.raw.close)  # type: ignore[attr-defined]
        self._ends = array("q", [0])
        self._bytes: mmap.mmap | None = None

    def add(self, *arrays: ArrayLike) -> None:
        parts = [np.asarray(a, dtype=d) for a, d in zip(arrays, self._dtypes, strict=True)]
        sizes = np.array([part.size for part in parts], dtype=np.int64)
        content = b"".join(
            part.tobytes().ljust(-(-part.nbytes // WORD) * WORD, b"\0") for part in (sizes, *parts)
        )
        self._write(lambda: self._file.write(content))
        self._ends.append(self._ends[-1] + len(content))

    def _write(self, act: Callable[[], object]) -> None:
        try:
            act()
        except OSError as problem:
            raise UserError(
                f"the folder of temporary files ({tempfile.gettempdir()}) cannot be written: "
                f"{problem.strerror}; name another one in TMPDIR."
            ) from None

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, at: Any) -> Any:
        index = range(len(self))[at]
        if isinstance(index, range):
            return [self[each] for each in index]
        if self._bytes is None or len(self._bytes) < self._ends[index + 1]:
            self._write(self._file.flush)
            self._bytes = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        place, parts = self._ends[index] + WORD * len(self._dtypes), []
        sizes = np.frombuffer(self._bytes, np.int64, len(self._dtypes), self._ends[index])
        for size, dtype in zip(sizes.tolist(), self._dtypes, strict=True):
            parts.append(np.frombuffer(self._bytes, dtype, size, place))
            place += -(-size * dtype.itemsize // WORD) * WORD
        return self._make(*parts)
