"""One run that has read the sample text, and copies of the tiny study."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from asked_samples import Lab, make_lab

from wherefrom.training.run_folder import Run, load_run


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory, quick_recipe: Path) -> Lab:
    """A run with its index and its calibration; tests only read it, or copy its folder."""
    return make_lab(tmp_path_factory.mktemp("lab"), quick_recipe)


@pytest.fixture
def study_copy(tiny_study: Path, tmp_path: Path) -> Run:
    """The tiny study in a folder of its own, which a test may change."""
    return load_run(shutil.copytree(tiny_study, tmp_path / "run"))
