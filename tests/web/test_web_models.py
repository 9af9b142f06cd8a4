"""Questions are answered in batches, too many are refused, and loading holds up nobody else."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from web_samples import run

from wherefrom.audit import runs as audit
from wherefrom.provenance.ask import Asker
from wherefrom.web.guard import Limits
from wherefrom.web.models import LANES, BatchQueue, BusyError, Limiter, Models
from wherefrom.web.runs import RunIndex


def ask_all(
    answer: Callable[[Sequence[int]], list[int]], count: int, *, lanes: int = 1, **limits: int
) -> list[Any]:
    """The answers, or errors, to 0, 1, ... asked at once."""

    async def ask() -> list[Any]:
        with ThreadPoolExecutor(lanes) as threads:
            queue = BatchQueue(
                answer, threads, **({"waiting": 100, "together": 8} | limits), lanes=lanes
            )
            async with asyncio.timeout(10):
                asked = (queue.ask(number) for number in range(count))
                return await asyncio.gather(*asked, return_exceptions=True)

    return list(run(ask()))


@pytest.mark.parametrize(
    ("count", "lanes", "together", "sizes"), [(20, 1, 8, [4, 8, 8]), (17, 2, 64, [8, 9])]
)
def test_concurrent_questions_share_batches_and_keep_their_answers(
    count: int, lanes: int, together: int, sizes: list[int]
) -> None:
    seen: list[int] = []

    def answer(questions: Sequence[int]) -> list[int]:
        seen.append(len(questions))
        return [10 * question for question in questions]

    answers = ask_all(answer, count, lanes=lanes, together=together)
    assert answers == [10 * number for number in range(count)]
    assert sorted(seen) == sizes


def test_one_bad_question_fails_alone() -> None:
    def answer(questions: Sequence[int]) -> list[int]:
        if 3 in questions:
            raise ValueError("three")
        return list(questions)

    answers = ask_all(answer, 6)
    assert [number for number in answers if isinstance(number, int)] == [0, 1, 2, 4, 5]
    assert isinstance(answers[3], ValueError)


def test_too_many_questions_are_refused() -> None:
    answers = ask_all(list, 5, waiting=3, together=2)
    assert answers[:3] == [0, 1, 2]
    assert [type(each) for each in answers[3:]] == [BusyError, BusyError]


def test_a_visitor_who_leaves_does_not_stop_the_others() -> None:
    async def ask() -> None:
        with ThreadPoolExecutor(1) as thread:
            queue = BatchQueue(list, thread, waiting=10, together=2)
            leaving, staying = (asyncio.ensure_future(queue.ask(number)) for number in (1, 2))
            await asyncio.sleep(0)
            leaving.cancel()
            assert await staying == 2
            assert await queue.ask(3) == 3

    run(ask())


def test_a_limiter_runs_few_and_lets_few_wait() -> None:
    go_on = threading.Event()
    inside: list[int] = []

    def work(number: int) -> int:
        inside.append(number)
        go_on.wait(5)
        return number

    async def ask() -> None:
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


def test_a_loaded_run_answers_while_another_is_loaded_once(
    tiny_study: Path, tmp_path: Path, people: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("loaded", "slow"):
        shutil.copytree(tiny_study, tmp_path / name)
    opened: list[Path] = []
    begun, go_on, open_asker = threading.Event(), threading.Event(), audit.open_asker

    def slowly(folder: Path) -> Asker:
        opened.append(folder)
        if folder.name == "slow":
            begun.set()
            assert go_on.wait(60)
        return open_asker(folder)

    monkeypatch.setattr(audit, "open_asker", slowly)

    async def question() -> None:
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
