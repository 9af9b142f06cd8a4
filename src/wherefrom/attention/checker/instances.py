"""Drawn instances of the problems: keys, subspaces and words with numbers in them.

Without a generator an instance is the simplest one there is (the standard basis), which is what
a counterexample should be shown in. With one it is turned into a random position, and the
assumptions of the problem can be bent one at a time: `norms` makes lengths unequal, `angles`
makes directions oblique.

Shapes: keys (n, d) one a row; A (d, m), B (d, p), C (d, d-m-p); u (4, d) one a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wherefrom.attention.checker.problems import Problem

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Bend:
    """Which assumption is given up."""

    norms: bool = False
    angles: bool = False


STRAIGHT = Bend()


def key_instance(
    problem: Problem,
    *,
    n: int,
    d: int,
    beta: float,
    rng: np.random.Generator | None = None,
    bend: Bend = STRAIGHT,
) -> tuple[dict[str, Any], Floats]:
    """The values of the writable names, and the keys (or their means) as rows."""
    keys = _rows(n, d, rng, bend)
    picked = [group for group in problem.target if group != "others"]
    stem, table = ("mu", "Mu") if problem.noise != "none" else ("k", "K")
    values: dict[str, Any] = {"beta": beta, "n": n, "I": np.eye(d), table: keys}
    values["ones"] = np.ones(n)
    for index, group in enumerate(picked):
        values[f"{stem}_{group}"] = keys[index]
        values[f"e_{group}"] = np.eye(n)[index]
    values["sum_all"] = keys.sum(axis=0)
    values["sum_others"] = keys[len(picked) :].sum(axis=0)
    return values, keys


def space_instance(
    *, m: int, p: int, r: int, rng: np.random.Generator | None = None, bend: Bend = STRAIGHT
) -> dict[str, Any]:
    """A, B, C, S, D and I. Bent norms: A and B are bases but not orthonormal ones; bent angles:
    the two spaces are not orthogonal, and the completion is oblique."""
    d = m + p + r
    basis = _rows(d, d, rng, STRAIGHT).T
    A, B, C = basis[:, :m], basis[:, m : m + p], basis[:, m + p :]
    if rng is not None and bend.norms:
        A = A @ (np.eye(m) + 0.4 * rng.standard_normal((m, m)) / np.sqrt(m)) * 1.3
        B = B @ (np.eye(p) + 0.4 * rng.standard_normal((p, p)) / np.sqrt(p)) * 0.8
    if rng is not None and bend.angles:
        B = B + A @ rng.uniform(0.2, 0.5, size=(m, p)) / np.sqrt(m)
        C = C + 0.3 * B @ rng.standard_normal((p, r))
    S = np.hstack([A, B, C])
    D = np.diag([1.0] * m + [0.0] * (p + r))
    return {"A": A, "B": B, "C": C, "S": S, "D": D, "I": np.eye(d)}


def word_instance(
    *, d: int, beta: float, rng: np.random.Generator | None = None, bend: Bend = STRAIGHT
) -> dict[str, Any]:
    """u_a..u_d of norm beta, and the three words."""
    u = dict(zip("abcd", beta * _rows(4, d, rng, bend), strict=True))
    values: dict[str, Any] = {f"u_{name}": vector for name, vector in u.items()}
    values |= {"x1": u["d"] + u["b"], "x2": u["a"], "x3": u["c"] + u["b"]}
    return values | {"beta": beta, "I": np.eye(d)}


def shown(values: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """Some of the values as plain lists, for a counterexample."""
    return {name: np.round(np.asarray(values[name], float), 6).tolist() for name in names}


def _rows(n: int, d: int, rng: np.random.Generator | None, bend: Bend) -> Floats:
    """n orthonormal rows in R^d, n <= d, in random position if there is a generator."""
    if rng is None:
        return np.eye(d)[:n]
    rows: Floats = np.linalg.qr(rng.standard_normal((d, d)))[0][:n]
    if bend.angles:
        rows = rows + 0.3 * rng.standard_normal((n, d)) / np.sqrt(d)
        rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    if bend.norms:
        rows = rows * rng.uniform(0.7, 1.4, size=(n, 1))
    return rows
