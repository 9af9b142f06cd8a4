"""What the page's tests share: headers, hostile text, a run that is only a record, and a loop."""

from __future__ import annotations

import asyncio
import re
import sys
from concurrent.futures import ThreadPoolExecutor

from starlette.testclient import TestClient

from wherefrom.training.record import RunRecord, write_record
from wherefrom.web.app import create_app

LOCAL = "http://127.0.0.1:8765"
PAGE = {"Accept": "text/html"}
HOSTILE_RUN = "x'\"><img src=x onerror=alert(1)>&amp;"
HOSTILE = '"><script>alert(1)</script>'


def open_client(folder):
    """A client of the page over this folder; a failure of ours is a reply with status 500."""
    return TestClient(create_app(folder), base_url=LOCAL, raise_server_exceptions=False)


def start_server(start_process, folder):
    """`wherefrom serve` as a user starts it: its process and its port."""
    server = start_process("serve", folder, "--port", "0")
    address = re.search(r"http://127\.0\.0\.1:(\d+)", server.stderr.readline())
    return server, int(address[1])


def run(task):
    """To its end in a loop of its own: a browser's tests may hold this thread's."""
    with ThreadPoolExecutor(1) as apart:
        return apart.submit(asyncio.run, task).result()


MODEL = {"variant": "llama", "vocabulary": 99, "block": 96, "layers": 5, "width": 32}
PHASE = {"name": "mixed", "mixture": {"text": 1}, "batch_tokens": 64, "steps": 9, "lr": 0.01}
JOB = {"kind": "study", "model": MODEL, "phases": [PHASE], "seed": 3, "tokens": "chars"}
JOB["zero_init"] = True


def write_run_record(folder, **fields):
    """A run folder that holds a record and nothing else."""
    folder.mkdir(parents=True)
    fields = {"kind": "study", "status": "finished", "job": JOB, **fields}
    write_record(folder, RunRecord.model_validate(fields))
    return folder


def list_modules():
    """In a worker process: what it has imported."""
    return list(sys.modules)


def loop_for_ever(*_):
    """In a worker process: what a hostile request might do."""
    while True:
        pass
