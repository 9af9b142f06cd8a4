"""What the page's tests share: a served folder, and a client that asks like a browser."""

from __future__ import annotations

import shutil

import pytest
from web_samples import open_client

from wherefrom.corpus.questions import read_questions


@pytest.fixture(scope="session")
def served(tmp_path_factory, tiny_study):
    """A folder with one finished study in it; tests read it and leave it as it is."""
    folder = tmp_path_factory.mktemp("served") / "runs"
    shutil.copytree(tiny_study, folder / "small")
    return folder


@pytest.fixture(scope="session")
def people(served):
    """Names that the served study was judged on."""
    dev = read_questions(served / "small" / "world" / "dev.tsv").questions
    return list(dict.fromkeys(question.subject for question in dev))


@pytest.fixture(scope="session")
def client(served):
    with open_client(served) as client:
        yield client
