"""Exact scalars: rational functions of beta and n with roots, within a budget."""

from __future__ import annotations

import pytest

from wherefrom.attention.checker.exact_scalars import BETA, Field, N, NotExactError


def test_exact_scalars() -> None:
    field = Field(least_n=3)
    beta, n = field.symbol(BETA), field.symbol(N)
    two = field.rational(2)
    gap = field.subtract(n, two)
    root = field.sqrt(gap)
    assert field.multiply(root, root) == gap
    assert str(field.sqrt(field.multiply(gap, gap))) == "n - 2"
    assert str(field.sqrt(field.rational(8))) == "2*sqrt(2)"
    assert field.divide(field.multiply(beta, beta), beta) == beta
    assert field.at(field.divide(beta, gap), beta=6.0, n=5) == 2.0
    with pytest.raises(NotExactError):
        field.sqrt(field.add(field.multiply(beta, beta), two))
    with pytest.raises(NotExactError):
        field.power(field.add(field.add(beta, n), two), 80)


def test_a_field_has_a_budget() -> None:
    field = Field(least_n=3)
    x = field.add(field.symbol(BETA), field.symbol(N))
    for _ in range(1_000):
        field.multiply(x, x)  # eight products of terms each
    field.steps += 22_000
    with pytest.raises(NotExactError):
        field.multiply(x, x)
