"""How many questions a second the page holds: 16 clients that ask as fast as they are answered.

    python benchmarks/serving.py RUN [--requests 10000] [--clients 16] [--rate 50]

A real server (`wherefrom serve`) and its clients share the machine. First the clients keep to the
rate that the page must hold, then they ask as fast as they can. Every question is about another
name where the run has that many, and names are invented beyond that; with --repeat 500 people are
asked about again and again. Latency is from the first byte sent to the last received; the server's
memory is read as the requests go by. A table is printed, the records are kept in
benchmarks/results, and `python docs/figures/make.py` draws them.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

from records import keep

RESULTS = "serving.jsonl"
SLICES = 50  # points of a curve
FIRST = ["Ada", "Bram", "Carla", "Dmitri", "Elena", "Farid", "Greta", "Hugo", "Ines", "Jonas"]
LAST = ["Moe", "Okafor", "Lindqvist", "Haddad", "Novak", "Ferreira", "Tanaka", "Byrne", "Costa"]


class Client:
    """One connection that is kept open, and as little as possible around it."""

    def __init__(self, port: int, run: str) -> None:
        self.port, self.run = port, run
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None

    async def ask(self, question: str) -> int:
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        assert self.reader is not None
        path = f"/ask.json?run={quote(self.run, safe='')}&question={quote(question)}"
        head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n\r\n"
        self.writer.write(head.encode())
        reply = await self.reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", reply, re.IGNORECASE)
        assert length is not None
        await self.reader.readexactly(int(length[1]))
        return int(reply.split(b" ", 2)[1])


async def load(
    port: int,
    run: str,
    questions: list[str],
    *,
    clients: int,
    rate: float | None,
    server: int | None = None,
) -> dict[str, Any]:
    """Ask all questions; with a rate no faster than that, all clients together.

    server: the process whose memory is read as it goes.
    """
    began = time.perf_counter()
    waiting = iter(enumerate(questions))
    took: list[float] = []
    memory: list[list[float]] = []
    stride = max(1, len(questions) // SLICES)
    errors = 0

    async def work() -> None:
        nonlocal errors
        client = Client(port, run)
        for at, question in waiting:
            if rate is not None:
                await asyncio.sleep(max(0.0, began + at / rate - time.perf_counter()))
            start = time.perf_counter()
            status = await client.ask(question)
            took.append(time.perf_counter() - start)
            errors += status != 200
            if server is not None and len(took) % stride == 0:
                memory.append([len(took), round(resident(server), 1)])

    await asyncio.gather(*(work() for _ in range(clients)))
    seconds = time.perf_counter() - began
    ordered = sorted(took)
    slices = [sorted(took[at : at + stride]) for at in range(0, len(took), stride)]
    return {
        "requests": len(took),
        "errors": errors,
        "rate": len(took) / seconds,
        "p50": statistics.median(ordered),
        "p99": ordered[int(0.99 * (len(ordered) - 1))],
        "longest": ordered[-1],
        "over_time": [
            [min((at + 1) * stride, len(took)), statistics.median(each), each[-1]]
            for at, each in enumerate(slices)
        ],  # requests so far, and of those since the last line the median and the slowest
        "memory": memory,  # requests so far, megabytes
    }


def resident(pid: int) -> float:
    """Megabytes that the server holds."""
    text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    found = re.search(r"VmRSS:\s+(\d+) kB", text)
    assert found is not None
    return int(found[1]) / 1024


def names(run: Path, count: int) -> list[str]:
    """The people whom the run is judged by, and then invented ones."""
    from wherefrom.corpus.subjects import read_subjects
    from wherefrom.errors import UserError

    try:
        known = sorted({person.subject for person in read_subjects(run)})
    except UserError:
        known = []
    invented = [f"{FIRST[i % 10]} {LAST[i // 10 % 9]} {i // 90 + 1}" for i in range(count)]
    return (known + invented)[:count]


def table(records: list[dict[str, Any]]) -> str:
    """The records as a person reads them."""
    head = (
        "",
        "requests",
        "errors",
        "a second",
        "p50 ms",
        "p99 ms",
        "longest ms",
        "MB",
        "MB after",
    )
    rows = [head]
    for one in records:
        times = [f"{1000 * one[key]:.0f}" for key in ("p50", "p99", "longest")]
        held = [f"{one[key]:.0f}" for key in ("resident_before_mb", "resident_after_mb")]
        counts = [f"{one[key]:,}" for key in ("requests", "errors")]
        rows.append((one["name"], *counts, f"{one['rate']:.1f}", *times, *held))
    widths = [max(len(row[at]) for row in rows) for at in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(w) if not at else cell.rjust(w) for at, (cell, w) in enumerate(pairs))
        for pairs in (list(zip(row, widths, strict=True)) for row in rows)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--rate", type=float, default=50.0)
    parser.add_argument(
        "--repeat", action="store_true", help="ask about 500 people again and again"
    )
    parser.add_argument("--out", default=RESULTS)
    options = parser.parse_args()
    server = subprocess.Popen(
        [sys.executable, "-m", "wherefrom", "serve", str(options.run), "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert server.stderr is not None
    found = re.search(r"http://127\.0\.0\.1:(\d+)", server.stderr.readline())
    assert found is not None
    port, run = int(found[1]), options.run.resolve().name
    try:
        asked = names(options.run, options.requests)  # the page words the question
        if options.repeat:
            asked = [asked[i % 500] for i in range(options.requests)]
        warm = [f"Nobody Here {number}" for number in range(200)]  # not those asked below
        asyncio.run(load(port, run, warm, clients=options.clients, rate=None))
        before = resident(server.pid)
        half = len(asked) // 2
        records = []
        for name, part, rate in (
            ("serving at a rate", asked[:half], options.rate),
            ("serving at full speed", asked[half:], None),
        ):
            seen = asyncio.run(
                load(port, run, part, clients=options.clients, rate=rate, server=server.pid)
            )
            after = resident(server.pid)
            records.append(
                {
                    "name": name,
                    "value": seen["rate"],
                    "unit": "questions/s",
                    "clients": options.clients,
                    "repeat": options.repeat,
                    **seen,
                    "resident_before_mb": before,
                    "resident_after_mb": after,
                }
            )
        keep(records, options.out)
        print(table(records))
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(30)


if __name__ == "__main__":
    main()
