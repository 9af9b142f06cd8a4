"""Vectors without an assumption of the problem: of other lengths, or at other angles."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from wherefrom.checker.results import Assumption
from wherefrom.checker.spaces import Matrix

DRAWS = 8  # of rows that break an assumption, after the chosen ones
STUCK = 0.999  # an error that falls by more from beta to beta may yet vanish


def search_assumptions(
    noun: str,
    drawn: Sequence[Matrix],
    named: int,
    error_at: Callable[[Matrix, float], float],
    betas: Sequence[float],
    seed: int,
) -> Iterator[Assumption]:
    """Give up each assumption in turn, and look for rows on which the goal is missed (the error is
    above 0) however large beta is. `drawn`: orthonormal rows; `error_at`: nan where floats fail."""
    rng = np.random.default_rng(seed)
    searches = (
        (f"{noun} of equal norm", unequal_norms),
        (f"{noun} that are orthogonal", oblique_angles),
    )
    for name, variants in searches:
        tried = [variant for straight in drawn for variant in variants(straight, named, rng)]
        used, evidence = None, f"no counterexample in {len(tried)} sets, some chosen to break it"
        for what, rows in tried:
            errors = [error_at(rows, beta) for beta in betas]
            *_, before, last = [0.0, 0.0, *(x for x in errors if not math.isnan(x))]
            if before > 0 and last >= STUCK * before:
                used = True
                evidence = f"with {len(rows)} {noun} and {what}, the goal is missed by {last:.2g}"
                break
        yield Assumption(name, used, evidence)


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
    """Rows of length one at other angles: another row turned between the named ones, each row
    turned towards another, then drawn directions."""

    def unit(changed: Matrix) -> Matrix:
        return np.asarray(changed / np.linalg.norm(changed, axis=1, keepdims=True))

    for weight in (0.2, 0.5):
        between = rows.copy()
        between[-1] = rows[:named].sum(axis=0) + weight * rows[-1]
        yield "another one between the named ones", unit(between)
    for index in range(min(len(rows), named + 1)):
        for sign in (0.5, -0.5):
            tilted = rows.copy()
            tilted[index] += sign * rows[index - 1]
            yield "one tilted towards another", unit(tilted)
    for _ in range(DRAWS):
        spread = rng.uniform(0.1, 1.0) / np.sqrt(rows.shape[1])
        yield "directions drawn at random", unit(rows + spread * rng.standard_normal(rows.shape))
