"""One run that has read the sample text."""

from __future__ import annotations

from pathlib import Path

import pytest
from asked_samples import Lab, make_lab


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory, quick_recipe: Path) -> Lab:
    """A run with its index and its calibration; tests only read it, or copy its folder."""
    return make_lab(tmp_path_factory.mktemp("lab"), quick_recipe)
