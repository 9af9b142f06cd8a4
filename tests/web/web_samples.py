"""What the page's tests share: headers, hostile text, a run that is only a record, and a loop."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

LOCAL = "http://127.0.0.1:8765"
PAGE = {"Accept": "text/html"}
HOSTILE = '"><script>alert(1)</script>'


def run(task):
    """To its end in a loop of its own: a browser's tests may hold this thread's."""
    with ThreadPoolExecutor(1) as apart:
        return apart.submit(asyncio.run, task).result()


def write_record(folder, **record):
    """A run folder that holds a record and nothing else."""
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(record), encoding="utf-8")
    return folder
