"""What the page's tests share: a served folder, and a client that asks like a browser."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from web_samples import LOCAL

from wherefrom.corpus.questions import read_questions
from wherefrom.web.app import create_app


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory, tiny_study: Path) -> Path:
    """A folder with one finished study in it; tests read it and leave it as it is."""
    folder = tmp_path_factory.mktemp("served") / "runs"
    shutil.copytree(tiny_study, folder / "small")
    return folder


@pytest.fixture(scope="session")
def people(served: Path) -> list[str]:
    """Names that the served study was judged on."""
    dev = read_questions(served / "small" / "world" / "dev.tsv").questions
    return list(dict.fromkeys(question.subject for question in dev))


@pytest.fixture(scope="session")
def client(served: Path) -> Iterator[TestClient]:
    with TestClient(create_app(served), base_url=LOCAL, raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def empty_client(tmp_path: Path) -> TestClient:
    """The page over a folder without a run."""
    (tmp_path / "runs").mkdir()
    return TestClient(create_app(tmp_path / "runs"), base_url=LOCAL)
