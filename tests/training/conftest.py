from __future__ import annotations

import pytest
import torch

from wherefrom.corpus import batches


@pytest.fixture
def small_pools(monkeypatch):
    """A pool of 4,096 examples is most of the work of a short training; 64 are enough here."""
    monkeypatch.setattr(batches, "POOL", 64)


@pytest.fixture(autouse=True)
def one_thread():
    """Sums are equal to the last bit when they are made in the same order."""
    torch.set_num_threads(1)
