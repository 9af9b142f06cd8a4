"""How tests import the benchmarks."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import torch


@pytest.fixture
def benchmark(monkeypatch):
    """Imports a benchmark by name, as it imports its neighbours when it is run."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield importlib.import_module
    torch.set_num_threads(before)
