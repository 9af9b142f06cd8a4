"""Questions are answered together, each gets its own answer, and too many are told so."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from web_samples import run

from wherefrom.web.models import BatchQueue, BusyError, Limiter


def test_concurrent_questions_share_a_batch_and_keep_their_answers() -> None:
    sizes: list[int] = []

    def answer(questions: Sequence[int]) -> list[int]:
        sizes.append(len(questions))
        return [10 * question for question in questions]

    async def ask() -> list[int]:
        with ThreadPoolExecutor(1) as thread:
            desk = BatchQueue(answer, thread, waiting=100, together=8)
            return await asyncio.gather(*(desk.ask(number) for number in range(20)))

    assert run(ask()) == [10 * number for number in range(20)]
    assert sizes == [8, 8, 4]


def test_questions_are_dealt_out_evenly_to_the_lanes() -> None:
    sizes: list[int] = []

    def answer(questions: Sequence[int]) -> list[int]:
        sizes.append(len(questions))
        return list(questions)

    async def ask() -> list[int]:
        with ThreadPoolExecutor(2) as threads:
            desk = BatchQueue(answer, threads, waiting=100, together=64, lanes=2)
            return await asyncio.gather(*(desk.ask(number) for number in range(17)))

    assert run(ask()) == list(range(17))
    assert sorted(sizes) == [8, 9]


def test_one_bad_question_fails_alone() -> None:
    def answer(questions: Sequence[int]) -> list[int]:
        if 3 in questions:
            raise ValueError("three")
        return list(questions)

    async def ask() -> list[object]:
        with ThreadPoolExecutor(1) as thread:
            desk = BatchQueue(answer, thread, waiting=100, together=8)
            asked = (desk.ask(number) for number in range(6))
            async with asyncio.timeout(10):
                return await asyncio.gather(*asked, return_exceptions=True)

    told = run(ask())
    assert [number for number in told if isinstance(number, int)] == [0, 1, 2, 4, 5]
    assert isinstance(told[3], ValueError)


def test_a_desk_with_too_many_waiting_says_so_and_recovers() -> None:
    async def ask() -> None:
        with ThreadPoolExecutor(1) as thread:
            desk = BatchQueue(lambda questions: list(questions), thread, waiting=3, together=2)
            asked = (desk.ask(number) for number in range(5))
            told = await asyncio.gather(*asked, return_exceptions=True)
            assert told[:3] == [0, 1, 2]
            assert [type(each) for each in told[3:]] == [BusyError, BusyError]
            assert await desk.ask(7) == 7

    run(ask())


def test_a_visitor_who_leaves_does_not_stop_the_others() -> None:
    async def ask() -> None:
        with ThreadPoolExecutor(1) as thread:
            desk = BatchQueue(lambda questions: list(questions), thread, waiting=10, together=2)
            leaving = asyncio.ensure_future(desk.ask(1))
            staying = asyncio.ensure_future(desk.ask(2))
            await asyncio.sleep(0)
            leaving.cancel()
            assert await staying == 2

    run(ask())


def test_a_gate_lets_few_in_and_few_wait() -> None:
    open_it = threading.Event()
    inside: list[int] = []

    def work(number: int) -> int:
        inside.append(number)
        open_it.wait(5)
        return number

    async def ask() -> None:
        gate = Limiter(2, 1)
        tasks = [asyncio.ensure_future(gate.run(work, number)) for number in range(3)]
        while len(inside) < 2:
            await asyncio.sleep(0.01)
        assert sorted(inside) == [0, 1]
        with pytest.raises(BusyError):
            await gate.run(work, 9)
        open_it.set()
        assert await asyncio.gather(*tasks) == [0, 1, 2]
        gate.close()

    run(ask())
