"""Vectors without an assumption of the problem: of other lengths, or at other angles."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from wherefrom.checker.spaces import Matrix

DRAWS = 8  # of rows that break an assumption, after the chosen ones
Variants = Callable[[Matrix, int, np.random.Generator], Iterator[tuple[str, Matrix]]]


def unequal_norms(
    rows: Matrix, named: int, rng: np.random.Generator
) -> Iterator[tuple[str, Matrix]]:
    """Orthogonal rows of other lengths: one row after another stretched, then drawn lengths."""
    for index in range(min(len(rows), named + 1)):
        for length in (1.4, 0.7):
            stretched = rows.copy()
            stretched[index] *= length
            which = "abcd"[index] if index < named else "another"
            yield f"{which} stretched to {length:g} of its length", stretched
    for _ in range(DRAWS):
        lengths = rng.uniform(0.7, 1.4, size=(len(rows), 1))
        yield "lengths drawn between 0.7 and 1.4", rows * lengths


def oblique_angles(
    rows: Matrix, named: int, rng: np.random.Generator
) -> Iterator[tuple[str, Matrix]]:
    """Rows of the same lengths at other angles: another row turned between the named ones, each
    row turned towards another, then drawn directions."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)

    def turned(changed: Matrix) -> Matrix:
        return changed / np.linalg.norm(changed, axis=1, keepdims=True) * lengths

    for weight in (0.2, 0.5):
        between = rows.copy()
        between[-1] = rows[:named].sum(axis=0) + weight * rows[-1]
        yield "another one between the named ones", turned(between)
    for index in range(min(len(rows), named + 1)):
        for sign in (0.5, -0.5):
            tilted = rows.copy()
            tilted[index] += sign * rows[index - 1]
            yield "one tilted towards another", turned(tilted)
    size = np.linalg.norm(rows) / np.sqrt(rows.size)
    for _ in range(DRAWS):
        spread = rng.uniform(0.1, 1.0) * size
        yield "directions drawn at random", turned(rows + spread * rng.standard_normal(rows.shape))
