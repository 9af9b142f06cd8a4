"""What the page's tests share: a served folder, and a client that asks like a browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from web_samples import make_study

from wherefrom.web.app import create_app

LOCAL = "http://127.0.0.1:8765"


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory, quick_recipe: Path) -> Path:
    """A folder with one finished study in it; tests read it and leave it as it is."""
    folder = tmp_path_factory.mktemp("served") / "runs"
    make_study(folder / "small", quick_recipe)
    return folder


@pytest.fixture(scope="session")
def client(served: Path) -> Iterator[TestClient]:
    with TestClient(create_app(served), base_url=LOCAL, raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def empty_client(tmp_path: Path) -> Iterator[TestClient]:
    """The page over a folder without a run."""
    folder = tmp_path / "runs"
    folder.mkdir()
    with TestClient(create_app(folder), base_url=LOCAL, raise_server_exceptions=False) as client:
        yield client
