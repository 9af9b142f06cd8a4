"""The process above a training that the page started; it stops the training on request.

    python -P -m wherefrom.web.supervisor STOP_FILE study ...

A file is the request, so that a page that was started later can stop the training, and only the
process that started it ever signals it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

POLL_SECONDS = 0.5
NICENESS = 5  # so that the page answers while a training runs


def supervise(stop_file: Path, command: list[str]) -> int:
    """Run `wherefrom` with these words; interrupt it once the stop file exists."""
    os.nice(NICENESS)
    child = subprocess.Popen([sys.executable, "-P", "-m", "wherefrom", *command])
    is_interrupted = False
    while child.poll() is None:
        if stop_file.exists() and not is_interrupted:
            child.send_signal(signal.SIGINT)
            is_interrupted = True
        time.sleep(POLL_SECONDS)
    return child.returncode


if __name__ == "__main__":
    sys.exit(supervise(Path(sys.argv[1]), sys.argv[2:]))
