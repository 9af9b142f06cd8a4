"""The record of memory is that of this very process, at its peak."""

from __future__ import annotations

from wherefrom.training.loop import peak_memory


def test_the_peak_grows_with_what_is_held_and_stays() -> None:
    before = peak_memory()
    held = bytearray(b"x") * (300 * 2**20)
    during = peak_memory()
    assert during > 280
    del held
    assert peak_memory() > during - 8  # the kernel counts in batches
    assert during >= before
