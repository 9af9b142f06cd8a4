"""The sample lines as an index, and one run that has read the sample text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from asked_samples import Lab, make_lab
from evidence_samples import LINES, make_corpus

from wherefrom.provenance.evidence.index import Evidence, build_evidence


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("evidence") / "evidence.sqlite"
    build_evidence(make_corpus(LINES), path)
    return path


@pytest.fixture(scope="module")
def evidence(index: Path) -> Iterator[Evidence]:
    with Evidence(index, corpus_sha256="a" * 64) as opened:
        yield opened


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory, quick_recipe: Path) -> Lab:
    """A run with its index and its calibration; tests only read it, or copy its folder."""
    return make_lab(tmp_path_factory.mktemp("lab"), quick_recipe)
