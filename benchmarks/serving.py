"""How many questions a second the page answers, and how long a visitor waits.

    python benchmarks/serving.py RUN [--requests 3000] [--clients 16] [--training] [--out FILE]

A real server (`wherefrom serve`) and its clients share the machine. Every client keeps one
connection and asks again as soon as it is answered; every question is about another name, invented
beyond those of the run, in the wordings of the run's relations in turn. Latency is from the first
byte sent to the last received. With --training a `wherefrom study` runs beside it, as if the page
had started one. For each process of the server the CPU time per question is printed, which a busy
machine disturbs less than the rate.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from records import keep

WARM_UP_QUESTIONS = 200
TRAINING_START_SECONDS = 15.0  # until a study has read its text and trains
FIRST = ["Ada", "Bram", "Carla", "Dmitri", "Elena", "Farid", "Greta", "Hugo", "Ines", "Jonas"]
LAST = ["Moe", "Okafor", "Lindqvist", "Haddad", "Novak", "Ferreira", "Tanaka", "Byrne", "Costa"]


async def ask_all(port: int, run: str, questions: list[str], clients: int) -> list[float]:
    """Ask every question once; the seconds that each took."""
    waiting = iter(questions)
    seconds: list[float] = []

    async def ask_one_after_another() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for question in waiting:
            path = f"/ask.json?run={quote(run, safe='')}&question={quote(question)}"
            began = time.perf_counter()
            writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
            assert length is not None
            await reader.readexactly(int(length[1]))
            seconds.append(time.perf_counter() - began)
            assert head.startswith(b"HTTP/1.1 200"), head
        writer.close()

    await asyncio.gather(*(ask_one_after_another() for _ in range(clients)))
    return seconds


def choose_questions(run: Path, count: int) -> list[str]:
    """One question each about the subjects that the run is judged by, and then invented names."""
    from wherefrom.corpus.questions import SLOT
    from wherefrom.corpus.split import read_subjects

    rows = read_subjects(run)
    wordings = sorted({row.question.replace(row.subject, SLOT, 1) for row in rows})
    invented = [f"{FIRST[i % 10]} {LAST[i // 10 % 9]} {i // 90 + 1}" for i in range(count)]
    names = [*sorted({row.subject for row in rows}), *invented][:count]
    return [wordings[i % len(wordings)].replace(SLOT, name) for i, name in enumerate(names)]


@contextmanager
def started(*words: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """`wherefrom` with these words as a process, which is interrupted at the end."""
    command = [sys.executable, "-m", "wherefrom", *words]
    process = subprocess.Popen(command, text=True, **options)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


def processes_below(pid: int) -> list[int]:
    """A process and all that it has started."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += processes_below(int(child))
    return found


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(port: int, server: int, run: Path, requests: int, clients: int) -> dict[str, Any]:
    """Warm up, ask, and sum up."""
    name = run.resolve().name
    warm_up = [f"Nobody Here {number}" for number in range(WARM_UP_QUESTIONS)]
    asyncio.run(ask_all(port, name, warm_up, clients))
    before = {pid: cpu_seconds(pid) for pid in processes_below(server)}
    began = time.perf_counter()
    seconds = sorted(asyncio.run(ask_all(port, name, choose_questions(run, requests), clients)))
    rate = len(seconds) / (time.perf_counter() - began)
    used = [cpu_seconds(pid) - start for pid, start in before.items()]
    return {
        "value": rate,
        "unit": "questions/s",
        "requests": requests,
        "clients": clients,
        "p50_ms": 1000 * statistics.median(seconds),
        "p99_ms": 1000 * seconds[int(0.99 * (len(seconds) - 1))],
        "longest_ms": 1000 * seconds[-1],
        "cpu_ms_per_question": [round(1000 * each / requests, 3) for each in used if each],
        "load_average": os.getloadavg()[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--requests", type=int, default=3000)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--training", action="store_true")
    parser.add_argument("--out", default="serving.jsonl")
    options = parser.parse_args()
    with ExitStack() as stack:
        if options.training:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            words = ("study", "--out", f"{folder}/run", "--minutes", "10")
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            stack.enter_context(started(*words, preexec_fn=lambda: os.nice(5), **quiet))
            time.sleep(TRAINING_START_SECONDS)
        words = ("serve", str(options.run), "--port", "0")
        server = stack.enter_context(started(*words, stderr=subprocess.PIPE))
        assert server.stderr is not None
        address = re.search(r"http://127\.0\.0\.1:(\d+)", server.stderr.readline())
        assert address is not None
        found = measure(int(address[1]), server.pid, options.run, options.requests, options.clients)
    name = "serving beside a training" if options.training else "serving"
    keep([{"name": name, **found}], options.out)


if __name__ == "__main__":
    main()
