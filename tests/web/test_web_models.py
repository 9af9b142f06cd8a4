"""Questions are answered in batches, too many are refused, and loading holds up nobody else."""

from __future__ import annotations

import asyncio
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from web_samples import run

from wherefrom.audit import runs as audit
from wherefrom.web.guard import Limits
from wherefrom.web.models import LANES, BatchQueue, BusyError, Limiter, Models
from wherefrom.web.runs import RunIndex


def ask_all(answer, count, *, leave=None, **limits):
    """The answers, or errors, to 0, 1, ... asked while the only thread is busy."""

    async def ask():
        go_on = threading.Event()
        with ThreadPoolExecutor(1) as threads:
            threads.submit(go_on.wait, 10)
            queue = BatchQueue(answer, threads, **({"waiting": 100, "together": 8} | limits))
            tasks = [asyncio.ensure_future(queue.ask(number)) for number in range(count)]
            await asyncio.sleep(0)
            if leave is not None:
                tasks[leave].cancel()
                await asyncio.sleep(0)
            go_on.set()
            async with asyncio.timeout(10):
                return await asyncio.gather(*tasks, return_exceptions=True)

    return list(run(ask()))


def test_questions_that_wait_share_batches_and_keep_their_answers():
    seen: list[int] = []

    def answer(questions):
        seen.append(len(questions))
        return [10 * question for question in questions]

    assert ask_all(answer, 20) == [10 * number for number in range(20)]
    assert seen == [8, 8, 4]


def test_one_bad_question_fails_alone():
    def answer(questions):
        if 3 in questions:
            raise ValueError("three")
        return list(questions)

    answers = ask_all(answer, 6)
    assert [number for number in answers if isinstance(number, int)] == [0, 1, 2, 4, 5]
    assert isinstance(answers[3], ValueError)


def test_too_many_questions_are_refused():
    answers = ask_all(list, 5, waiting=3, together=2)
    assert answers[:3] == [0, 1, 2]
    assert [type(each) for each in answers[3:]] == [BusyError, BusyError]


def test_a_visitor_who_leaves_is_not_answered_and_does_not_stop_the_others():
    seen: list[int] = []

    def answer(questions):
        seen.extend(questions)
        return list(questions)

    answers = ask_all(answer, 3, leave=1)
    assert (answers[0], answers[2], seen) == (0, 2, [0, 2])


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
        limiter.close()

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

    async def question():
        models = Models(RunIndex(tmp_path), Limits())
        loaded = await models.get("loaded")
        waiting = [asyncio.create_task(models.get("slow")) for _ in range(3)]
        async with asyncio.timeout(60):
            while not begun.is_set():
                await asyncio.sleep(0.01)
            assert await models.get("loaded") is loaded
            assert (await loaded.ask(f"Where was {people[0]} born?"))["subject"] == people[0]
        assert not any(each.done() for each in waiting)
        go_on.set()
        first, *others = await asyncio.gather(*waiting)
        assert all(each is first for each in others)
        assert len(opened) == 2 * LANES
        models.close()

    run(question())
