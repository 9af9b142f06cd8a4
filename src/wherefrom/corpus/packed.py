"""Records in a file instead of in memory, so that a text may have more of them than memory holds.

The file is temporary (TMPDIR says where) and mapped into memory: what is read stays in the cache of
the operating system as long as there is room. Every process of a training has its own.
"""

from __future__ import annotations

import marshal
import mmap
import tempfile
import weakref
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar, overload

import numpy as np
from numpy.typing import DTypeLike, NDArray

from wherefrom.errors import UserError

T = TypeVar("T")


class Arrays(Sequence[NDArray[Any]]):
    """Arrays that were packed as bytes, each made when it is read."""

    def __init__(self, parts: tuple[bytes, ...], dtype: DTypeLike) -> None:
        self._parts, self._dtype = parts, dtype

    def __len__(self) -> int:
        return len(self._parts)

    def __getitem__(self, at: Any) -> Any:
        return np.frombuffer(self._parts[at], dtype=self._dtype)


class Packed(Sequence[T], Generic[T]):
    """A sequence that grows at its end; `make` turns the plain values that were added (numbers,
    texts, bytes and tuples of them) into a record, each time that it is read."""

    def __init__(self, make: Callable[..., T], rows: Iterable[tuple[Any, ...]] = ()) -> None:
        self._make = make
        self._file = tempfile.TemporaryFile(buffering=1 << 16)  # noqa: SIM115
        weakref.finalize(self, self._file.close)
        self._ends = array("q", [0])
        self._bytes: mmap.mmap | None = None
        for row in rows:
            self.add(row)

    def add(self, row: tuple[Any, ...]) -> None:
        content = marshal.dumps(row)
        try:
            self._file.write(content)
        except OSError as problem:
            raise UserError(
                f"the folder of temporary files ({tempfile.gettempdir()}) cannot be written: "
                f"{problem.strerror}; name another one in TMPDIR."
            ) from None
        self._ends.append(self._ends[-1] + len(content))

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> list[T]: ...
    def __getitem__(self, at: int | slice) -> T | list[T]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        at = range(len(self))[at]
        if self._bytes is None or len(self._bytes) < self._ends[at + 1]:
            self._file.flush()
            self._bytes = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        return self._make(*marshal.loads(self._bytes[self._ends[at] : self._ends[at + 1]]))
