"""The memory of a training: what it may take, what it took, and what glibc keeps of it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from pathlib import Path

from wherefrom.errors import UserError
from wherefrom.model.config import ModelConfig

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h


def check_memory(config: ModelConfig) -> None:
    """Refuse a model whose layers alone cannot be trained in the memory of this machine."""
    parameters = 12 * config.layers * config.width**2
    needed = 16 * parameters  # weights, gradients and two moments, 4 bytes each
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > memory:
        raise UserError(
            f"a model of width {config.width:,} with {config.layers:,} layers has about "
            f"{parameters:,} parameters, takes {needed / 1e9:,.0f} GB to train, and this machine "
            f"has {memory / 1e9:,.0f} GB; choose a smaller --size."
        )


def keep_freed_memory() -> None:
    """Let glibc reuse what a step frees, so that the next step need not fault its pages again."""
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_THRESHOLD, 32 << 20)
        libc.mallopt(M_TRIM_THRESHOLD, 1 << 30)


def trim_memory() -> None:
    """Give back to the system what glibc keeps of freed memory: a fifth of a study's peak."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def peak_memory() -> float:
    """The most memory this process has held, in MB."""
    with contextlib.suppress(OSError):  # Linux hands ru_maxrss down from parent to child
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return int(status.partition("VmHWM:")[2].split()[0]) / 1024
    import resource

    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size / (1024 * 1024 if sys.platform == "darwin" else 1024)
