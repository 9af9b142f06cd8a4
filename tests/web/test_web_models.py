"""Questions of several visitors are answered together, and a run is loaded once for all of them."""

from __future__ import annotations

import asyncio
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlencode

import pytest
from web_samples import open_client, run

from wherefrom.errors import UserError
from wherefrom.provenance.ask import AskedRow, open_asker
from wherefrom.web import models
from wherefrom.web.models import Models
from wherefrom.web.runs import RunIndex
from wherefrom.web.workers import BusyError, WorkerFailedError, Workers


@pytest.fixture
def calls(monkeypatch):
    """The functions that were run in processes, with their arguments, as they are called."""
    made = []
    real = Workers.run

    async def run_and_note(self, function, *arguments, seconds):
        made.append((function.__name__, *arguments))
        return await real(self, function, *arguments, seconds=seconds)

    monkeypatch.setattr(Workers, "run", run_and_note)
    return made


def test_visitors_share_a_batch_and_get_what_each_would_get_alone(served, people, calls):
    questions = [f"Where was {name} born?" for name in people[:20]]

    async def ask_at_once():
        loaded = await Models(RunIndex(served)).get("small")
        return await asyncio.gather(*(loaded.ask(AskedRow(question)) for question in questions))

    records = run(ask_at_once())
    batches = [len(rows) for name, *_, rows in calls if name == "answer_rows"]
    assert sum(batches) == len(questions)
    assert len(batches) <= 2
    with open_asker(served / "small") as asker:
        for question, (record,) in zip(questions, records, strict=True):
            (alone,) = asker.ask([question])
            assert (record["question"], record["answer"]) == (question, alone.answer)
            assert record["verdict"] == alone.verdict
            assert record["right"] == pytest.approx(alone.right, abs=1e-4)


def test_sixty_visitors_at_once_are_all_answered(served, people):
    names = [people[i % len(people)] for i in range(60)]
    with open_client(served) as client, ThreadPoolExecutor(60) as visitors:
        addresses = [f"/ask.json?{urlencode({'question': name})}" for name in names]
        replies = list(visitors.map(client.get, addresses))
    assert [reply.status_code for reply in replies] == [200] * 60
    assert [reply.json()["verdict"]["subject"] for reply in replies] == names


def test_a_visitor_who_has_gone_is_not_answered_and_the_others_are(served, people, calls):
    async def ask_and_go():
        loaded = await Models(RunIndex(served)).get("small")
        first = asyncio.create_task(loaded.ask(AskedRow(people[0])))
        await asyncio.sleep(0)  # the first is on its way, and the others wait
        others = [asyncio.create_task(loaded.ask(AskedRow(name))) for name in people[1:4]]
        await asyncio.sleep(0)
        others[0].cancel()
        return [records[0]["subject"] for records in await asyncio.gather(first, *others[1:])]

    assert run(ask_and_go()) == [people[0], people[2], people[3]]
    asked = [row.question for name, *_, rows in calls if name == "answer_rows" for row in rows]
    assert people[1] not in asked


def test_a_question_that_breaks_does_not_spoil_the_batch(served, people):
    async def ask_at_once():
        loaded = await Models(RunIndex(served)).get("small")
        rows = [AskedRow(people[0]), AskedRow(None), AskedRow(people[1])]
        asked = (loaded.ask(row) for row in rows)
        return await asyncio.gather(*asked, return_exceptions=True)

    first, broken, last = run(ask_at_once())
    assert (first[0]["subject"], last[0]["subject"]) == (people[0], people[1])
    assert isinstance(broken, WorkerFailedError)


def test_too_many_waiting_questions_are_refused(served, people, monkeypatch):
    monkeypatch.setattr(models, "MAX_WAITING_ROWS", 2)

    async def ask_too_many():
        loaded = await Models(RunIndex(served)).get("small")
        tasks = [asyncio.create_task(loaded.ask(AskedRow(people[0]))) for _ in range(3)]
        return await asyncio.gather(*tasks, return_exceptions=True)

    assert [type(each) for each in run(ask_too_many())] == [list, list, BusyError]


def test_a_run_is_loaded_once_and_again_when_it_has_changed(served, tmp_path, calls):
    shutil.copytree(served / "small", tmp_path / "one")
    loaded_names = ["describe_run"]

    async def load():
        found = Models(RunIndex(tmp_path))
        first, *others = await asyncio.gather(*(found.get("one") for _ in range(3)))
        assert all(each is first for each in others)
        assert [name for name, *_ in calls] == loaded_names
        (tmp_path / "one" / "model.safetensors").touch()
        assert await found.get("one") is not first
        assert [name for name, *_ in calls] == loaded_names * 2
        swap_within_a_second(tmp_path / "one" / "calibration.json")
        with pytest.raises(UserError, match=r"calibration\.json is not the file"):
            await found.get("one")

    run(load())


def swap_within_a_second(path):
    """Other content of the same size and with the same time of change."""
    before = path.stat()
    content = path.read_bytes()
    path.write_bytes(content.replace(b"1", b"2", 1))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.read_bytes() != content
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
