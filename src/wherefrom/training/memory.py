"""How much memory a job took, for its record."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path


def peak_memory() -> float:
    """The most memory this process has held, in MB.

    Linux hands ru_maxrss down from parent to child, so a child of a large process would look
    large; VmHWM starts anew with every program and is taken where there is one.
    """
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    import resource

    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size / (1024 * 1024 if sys.platform == "darwin" else 1024)
