"""What a formula is tried on: keys, subspaces and words with numbers in them.

Without a generator an instance is the simplest one there is (the standard basis), which is what a
counterexample should be shown in. With one it is in random position. `grouped_keys` holds any
number of orthonormal keys in a few coordinates, in floating point or exactly.

Shapes: keys (n, d), one per row; A (d, m), B (d, p), C (d, r); u (4, d), one per row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wherefrom.attention.checker.algebra import Scalar
from wherefrom.attention.checker.problems import Problem

Floats = NDArray[np.float64]
Values = dict[str, Any]
Variants = Callable[[Floats, int, np.random.Generator, int], Iterator[tuple[str, Floats]]]
WORDS = ("x1", "x2", "x3")


def orthonormal(n: int, d: int, rng: np.random.Generator | None = None) -> Floats:
    """n orthonormal rows in R^d, n <= d, in random position if there is a generator."""
    if rng is None:
        return np.eye(d)[:n]
    rows: Floats = np.linalg.qr(rng.standard_normal((d, d)))[0][:n]
    return rows


def picked_groups(problem: Problem) -> list[str]:
    """The keys that have a name: a and b, or j."""
    return [group for group in problem.target if group != "others"]


def key_values(problem: Problem, keys: Floats, beta: float) -> Values:
    """The values of the names that may be written, over keys (or their means) as rows."""
    others = keys[len(picked_groups(problem)) :].sum(axis=0)
    ones = np.ones(len(keys))
    values = _key_names(problem, keys, others, keys.sum(axis=0), ones)
    return values | {"beta": beta, "n": len(keys)}


def grouped_keys(
    problem: Problem, beta: float | Scalar, n: int | Scalar, root: float | Scalar
) -> Values:
    """The same over n orthonormal keys in few coordinates: the named keys, the sum of the others
    over its length `root`, one direction for all other combinations of keys, and one for what no
    key reaches.

    Nothing that can be written tells the other keys apart, so a matrix is a multiple of the
    identity on those last two, and every formula has the same value as over all n keys.
    """
    named = len(picked_groups(problem))
    rows = np.eye(named + 2, named + 3, dtype=int).astype(object)
    others = [0] * named + [root, 0, 0]
    everything = [1] * named + [root, 0, 0]
    values = _key_names(problem, rows, others, everything, everything[:-1])
    return values | {"beta": beta, "n": n}


def _key_names(problem: Problem, rows: Any, others: Any, everything: Any, ones: Any) -> Values:
    stem, table = ("mu", "Mu") if problem.noise != "none" else ("k", "K")
    identity = np.eye(rows.shape[1], dtype=int).astype(rows.dtype)
    values: Values = {table: rows, "I": identity, "ones": ones}
    values |= {"sum_others": others, "sum_all": everything}
    for index, group in enumerate(picked_groups(problem)):
        values[f"{stem}_{group}"] = rows[index]
        values[f"e_{group}"] = np.eye(len(rows), dtype=int).astype(rows.dtype)[index]
    return values


def space_values(A: Any, B: Any, C: Any) -> Values:
    """A, B, C, S, D and I for three bases that complete one another."""
    S = np.hstack([A, B, C])
    D = np.diag([1] * A.shape[1] + [0] * (B.shape[1] + C.shape[1])).astype(S.dtype)
    return {"A": A, "B": B, "C": C, "S": S, "D": D, "I": np.eye(len(S), dtype=int).astype(S.dtype)}


def space_instance(m: int, p: int, r: int, rng: np.random.Generator | None = None) -> Values:
    basis = orthonormal(m + p + r, m + p + r, rng).T
    return space_values(basis[:, :m], basis[:, m : m + p], basis[:, m + p :])


def word_values(u: Any, beta: float | Scalar) -> Values:
    """u_a..u_d, the three words, beta and I, for the rows u."""
    named = dict(zip("abcd", u, strict=True))
    values: Values = {f"u_{name}": vector for name, vector in named.items()}
    values |= {"x1": u[3] + u[1], "x2": u[0], "x3": u[2] + u[1]}
    return values | {"beta": beta, "I": np.eye(u.shape[1], dtype=int).astype(u.dtype)}


def word_instance(d: int, beta: float, rng: np.random.Generator | None = None) -> Values:
    return word_values(beta * orthonormal(4, d, rng), beta)


def unequal_norms(
    rows: Floats, named: int, rng: np.random.Generator, draws: int
) -> Iterator[tuple[str, Floats]]:
    """Orthogonal rows of other lengths: one row after another stretched, then drawn lengths."""
    for index in range(min(len(rows), named + 1)):
        for length in (1.4, 0.7):
            stretched = rows.copy()
            stretched[index] *= length
            which = "abcd"[index] if index < named else "another"
            yield f"{which} stretched to {length:g} of its length", stretched
    for _ in range(draws):
        lengths = rng.uniform(0.7, 1.4, size=(len(rows), 1))
        yield "lengths drawn between 0.7 and 1.4", rows * lengths


def oblique_angles(
    rows: Floats, named: int, rng: np.random.Generator, draws: int
) -> Iterator[tuple[str, Floats]]:
    """Rows of the same lengths at other angles: another row turned between the named ones, each
    row turned towards another, then drawn directions."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)

    def turned(changed: Floats) -> Floats:
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
    for _ in range(draws):
        spread = rng.uniform(0.1, 1.0) * size
        yield "directions drawn at random", turned(rows + spread * rng.standard_normal(rows.shape))


def shown(values: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """Some of the values as plain lists, for a counterexample."""
    return {name: np.round(np.asarray(values[name], float), 6).tolist() for name in names}
