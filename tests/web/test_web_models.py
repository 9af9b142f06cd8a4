"""Few questions are answered at once, too many are refused, and loading holds up nobody else."""

from __future__ import annotations

import asyncio
import shutil
import threading

import pytest
from web_samples import run

from wherefrom.audit import runs as audit
from wherefrom.web.models import BusyError, Limiter, Models
from wherefrom.web.runs import RunIndex


def test_a_limiter_runs_few_and_lets_few_wait():
    go_on, inside = threading.Event(), []

    def work(number):
        inside.append(number)
        go_on.wait(5)
        return number

    async def ask():
        limiter = Limiter(2, 1)
        tasks = [asyncio.ensure_future(limiter.run(work, number)) for number in range(3)]
        while len(inside) < 2:
            await asyncio.sleep(0.01)
        assert sorted(inside) == [0, 1]
        with pytest.raises(BusyError):
            await limiter.run(work, 9)
        go_on.set()
        assert await asyncio.gather(*tasks) == [0, 1, 2]

    run(ask())


def test_a_loaded_run_answers_while_another_is_loaded_once(served, tmp_path, people, monkeypatch):
    for name in ("loaded", "slow"):
        shutil.copytree(served / "small", tmp_path / name)
    opened, begun, go_on = [], threading.Event(), threading.Event()
    open_asker = audit.open_asker

    def slowly(folder):
        opened.append(folder)
        if folder.name == "slow":
            begun.set()
            assert go_on.wait(60)
        return open_asker(folder)

    monkeypatch.setattr(audit, "open_asker", slowly)

    async def ask():
        models = Models(RunIndex(tmp_path))
        loaded = await models.get("loaded")
        waiting = [asyncio.create_task(models.get("slow")) for _ in range(3)]
        async with asyncio.timeout(60):
            while not begun.is_set():
                await asyncio.sleep(0.01)
            assert await models.get("loaded") is loaded
            question = f"Where was {people[0]} born?"
            (verdict,) = await loaded.run(lambda asker: asker.ask([question]))
            assert verdict.subject == people[0]
        assert not any(each.done() for each in waiting)
        go_on.set()
        first, *others = await asyncio.gather(*waiting)
        assert all(each is first for each in others)
        assert len(opened) == 2

    run(ask())
