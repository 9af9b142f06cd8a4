"""Whatever takes too long, too much memory, or is wanted no more, is ended with its process."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from pathlib import Path
from urllib.parse import quote
from urllib.request import urlopen

import pytest
from web_samples import PAGE, list_modules, loop_for_ever, open_client, run, start_server

from wherefrom.web import workbench
from wherefrom.web.workers import (
    GRACE_SECONDS,
    PRELOADED,
    BusyError,
    OverBudgetError,
    WorkerFailedError,
    Workers,
)

LONG = 60.0  # seconds; longer than anything here takes on a busy machine


def is_alive(pid):
    """Whether a process runs; one that ended and was not waited for yet does not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


async def wait_until(what):
    async with asyncio.timeout(LONG):
        while not what():
            await asyncio.sleep(0.05)


def test_few_calls_run_few_wait_and_others_are_refused():
    async def call():
        workers = Workers(1, waiting=1)
        calls = [asyncio.create_task(workers.run(time.sleep, 1, seconds=LONG)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(BusyError):
            await workers.run(os.getpid, seconds=LONG)
        assert await asyncio.gather(*calls) == [None, None]

    run(call())


def test_a_call_ends_with_its_budget_and_the_next_one_works():
    async def call():
        workers = Workers(1, waiting=2)
        pid = await workers.run(os.getpid, seconds=LONG)
        assert pid != os.getpid()
        assert await workers.run(os.getpid, seconds=LONG) == pid  # a process is used again
        with pytest.raises(OverBudgetError, match="took longer than"):
            await workers.run(loop_for_ever, seconds=0.5)
        await wait_until(lambda: not is_alive(pid))
        assert await workers.run(os.getpid, seconds=LONG) != pid

    run(call())


def test_a_call_ends_when_nobody_waits_for_it():
    async def call():
        workers = Workers(1, waiting=2)
        pid = await workers.run(os.getpid, seconds=LONG)
        task = asyncio.create_task(workers.run(loop_for_ever, seconds=10 * LONG))
        await asyncio.sleep(0.2)
        began = time.monotonic()
        task.cancel()
        await wait_until(lambda: not is_alive(pid))
        assert time.monotonic() - began < GRACE_SECONDS + 10
        assert await workers.run(os.getpid, seconds=LONG) != pid

    run(call())


def test_a_process_that_ended_while_idle_is_replaced():
    async def call():
        workers = Workers(1, waiting=2)
        pid = await workers.run(os.getpid, seconds=LONG)
        os.kill(pid, signal.SIGKILL)
        await wait_until(lambda: not is_alive(pid))
        assert await workers.run(os.getpid, seconds=LONG) != pid

    run(call())


def test_a_process_has_imported_what_it_needs():
    async def call():
        imported = await Workers(1, waiting=2).run(list_modules, seconds=LONG)
        assert set(PRELOADED) <= set(imported)

    run(call())


def test_what_goes_wrong_in_a_process_is_told_apart():
    async def call():
        workers = Workers(1, waiting=2)
        with pytest.raises(OverBudgetError, match="memory"):
            await workers.run(bytearray, 3 * 2**30, seconds=LONG)
        with pytest.raises(WorkerFailedError, match="ZeroDivisionError"):
            await workers.run(divmod, 1, 0, seconds=LONG)
        pid = await workers.run(os.getpid, seconds=LONG)
        with pytest.raises(OverBudgetError, match="was stopped"):  # as if the system had killed it
            await workers.run(os.kill, pid, signal.SIGKILL, seconds=LONG)
        assert await workers.run(os.getpid, seconds=LONG) != pid

    run(call())


def test_a_check_that_takes_too_long_is_said_beside_the_formula(tmp_path, monkeypatch):
    monkeypatch.setattr(workbench, "check_formulas", loop_for_ever)
    monkeypatch.setattr(workbench, "WORK_SECONDS", 3.0)
    client = open_client(tmp_path)
    page = client.get("/workbench/copy", params={"formulas": "q=k_j"}, headers=PAGE)
    assert page.status_code == 400
    assert "took longer than" in page.text
    assert "q=k_j</textarea>" in page.text


def test_formulas_that_take_long_do_not_stop_the_page(served, start_process):
    """Two of these stopped workbench and report for all, also after their clients had gone."""
    server, port = start_server(start_process, served)
    try:
        lines = []
        for number in range(8):
            line = socket.create_connection(("127.0.0.1", port), timeout=LONG)
            formula = quote(f"p=[sin(t-{10**8 + number}), cos(t)]")
            head = f"GET /workbench/sinusoids.json?formulas={formula} HTTP/1.1\r\n"
            line.sendall(f"{head}Host: 127.0.0.1:{port}\r\n\r\n".encode())
            lines.append(line)
        time.sleep(0.5)
        for line in lines:
            line.close()
        began = time.monotonic()
        for path in ("workbench.json", "workbench/copy.json?formulas=q%3Dbeta*k_j", "report.json"):
            with urlopen(f"http://127.0.0.1:{port}/{path}", timeout=LONG) as reply:
                assert reply.status == 200
        assert time.monotonic() - began < 30
    finally:
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=LONG)


def test_workers_end_with_the_server_and_leave_no_files(
    served, start_process, tmp_path, monkeypatch
):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    server, port = start_server(start_process, served)
    formula = quote("p=[sin(t-100000000), cos(t)]")
    line = socket.create_connection(("127.0.0.1", port), timeout=LONG)
    head = f"GET /workbench/sinusoids.json?formulas={formula} HTTP/1.1\r\n"
    line.sendall(f"{head}Host: 127.0.0.1:{port}\r\n\r\n".encode())
    with urlopen(f"http://127.0.0.1:{port}/workbench.json", timeout=LONG) as reply:
        assert reply.status == 200
    started = descendants(server.pid)
    assert len(started) >= 2
    server.send_signal(signal.SIGINT)
    server.communicate(timeout=LONG)
    line.close()
    run(wait_until(lambda: not any(map(is_alive, started))))
    assert list(tmp_path.iterdir()) == []


def descendants(pid):
    """The processes below this one."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            found += [child, *descendants(child)]
    return found
