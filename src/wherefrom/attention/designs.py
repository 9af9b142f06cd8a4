"""Matrices built by hand, and the table of all constructions with the way to build one by name.

Three families: taking one value back out of a sum, K, Q and V for the three words of the homework,
and two limits that a map of attention weights hides. Queries are in `queries`.

Shapes: rows of numbers (n, d); matrices that act on column vectors (d, d); T tokens, maps (T, T)
with rows that sum to one, values (T, e).
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wherefrom.attention import queries
from wherefrom.attention.equation import attend, softmax_over_keys
from wherefrom.attention.queries import Design, Measured, tv_distance
from wherefrom.errors import UserError, did_you_mean

Floats = NDArray[np.float64]
Goals = dict[str, tuple[int, Floats]]  # what is measured -> the word and what its c should be

# ---- taking v_a back out of v_a + v_b; the first half of the rows spans A, the others span B


def extract(keys: Floats) -> Design:
    """M = A A^T takes v_a out of v_a + v_b for orthonormal A and spans that are orthogonal.

    Proof: with v_a = Ax and v_b = By, M(v_a + v_b) = A(A^T A)x + A(A^T B)y = Ax = v_a. From the
    average (v_a + v_b)/2 it is 2M that is wanted. An orthogonal projection enlarges no noise. A^T
    alone gives the coordinates x, not the vector.
    """
    a, b = _spans(keys)
    within = Measured("A^T A = I", float(np.abs(a.T @ a - np.eye(a.shape[1])).max()))
    across = Measured("A^T B = 0", float(np.abs(a.T @ b).max()))
    return _extraction("extract", "M = A*A^T", a @ a.T, a, b, (within, across))


def extract_oblique(keys: Floats) -> Design:
    """M = [A, 0][A, B]^+ does it for any spans that meet only in 0, at the cost of a noise gain.

    Proof: [A, B] has full column rank, so [A, B]^+ [A, B] = I and the coordinates (x, y) of
    Ax + By come back exactly; [A, 0] keeps x. The norm of a projection along another space is
    1/sin of the smallest principal angle between the two: nearly parallel spans drown in noise.
    """
    a, b = _spans(keys)
    matrix = np.hstack([a, np.zeros_like(b)]) @ np.linalg.pinv(np.hstack([a, b]))
    formula = "M = [A, 0]*pinv([A, B])"
    return _extraction("extract-oblique", formula, matrix, a, b, (_apart(a, b),))


def extract_similarity(keys: Floats) -> Design:
    """M = S D S^-1 with S = [A, B, completion] and D = diag(1..1, 0..0) is the same map.

    Proof: the columns of S are eigenvectors of M, of eigenvalue 1 for those of A and 0 for the
    rest; so M is the identity on span A and zero on span B. With a completion orthogonal to both
    it is zero there too, as [A, 0][A, B]^+ is, and the two agree on a basis, hence everywhere.
    """
    a, b = _spans(keys)
    apart = _apart(a, b)
    both = np.hstack([a, b])
    S = np.hstack([both, np.linalg.svd(both)[0][:, both.shape[1] :]])
    D = np.diag((np.arange(len(S)) < a.shape[1]).astype(np.float64))
    formula = "M = S*D*inv(S), S = [A, B, completion], D = diag(1..1, 0..0)"
    return _extraction("extract-similarity", formula, S @ D @ np.linalg.inv(S), a, b, (apart,))


def _extraction(
    name: str, formula: str, M: Floats, a: Floats, b: Floats, assumptions: tuple[Measured, ...]
) -> Design:
    """Checked on values of one head that averages: q = 0 over two keys."""
    rng = np.random.default_rng(0)
    values = np.stack([span @ rng.standard_normal(span.shape[1]) for span in (a, b)])
    c = attend(np.zeros(2), np.eye(2), values).context
    gain = float(np.linalg.norm(M, 2))
    size = float(np.abs(values).max())
    missed = float(np.abs(2 * M @ c - values[0]).max())
    return Design(
        name=name,
        formula=formula,
        claim=f"M(v_a + v_b) = v_a; noise in the sum grows by a factor of up to {gain:.6g}",
        matrices={"M": M, "noise gain": np.array(gain)},
        assumptions=assumptions,
        checks=(Measured("|2 M c - v_a| for c = (v_a + v_b)/2", missed, 1e-9 * gain * size),),
    )


def _spans(rows: Floats) -> tuple[Floats, Floats]:
    half = len(rows) // 2
    return rows[:half].T, rows[half:].T


def _apart(a: Floats, b: Floats) -> Measured:
    from scipy.linalg import subspace_angles

    both = np.hstack([a, b])
    if np.linalg.matrix_rank(both) < both.shape[1]:
        raise UserError(
            "the spans of A and B share a direction (or a basis is not one), so v_a + v_b does "
            "not determine v_a and no M can."
        )
    angle = float(subspace_angles(a, b).min())
    return Measured(f"the spans meet only in 0 (their smallest angle is {angle:.6g})", 0.0)


# ---- self-attention by hand: the three words x_1 = u_d + u_b, x_2 = u_a, x_3 = u_c + u_b

E = np.eye(4)  # u_a, u_b, u_c, u_d for beta = 1, and K of all three designs
X = np.stack([E[3] + E[1], E[0], E[2] + E[1]])
V = np.diag([0.0, 1.0, -1.0, 0.0])  # V x_1 = u_b, V x_2 = 0, V x_3 = u_b - u_c
FORMULA_V = "V = (u_b u_b^T - u_c u_c^T)/beta^2"
GOALS = {"|c_1 - (u_b - u_c)|": (0, E[1] - E[2]), "|c_2 - u_b|": (1, E[1])}


def words_identity(beta: float | None = None, tolerance: float = 0.01) -> Design:
    """K = Q = V = I on the three words: c_2 is close to u_a, the word's own content.

    Proof: x_2.x_2 = beta^2 and x_2 is orthogonal to the others, so a_2 = (a, 1 - 2a, a) with
    a = e^-beta^2/(1 + 2e^-beta^2), and c_2 - u_a = a(u_d + 2u_b + u_c - 2u_a), of norm
    sqrt10 beta a. Adding g u_d (or g u_c) to x_2, g >= 0, cannot give u_b: in c_2 the parts u_b,
    u_c, u_d have coefficients a_1 + a_3, a_3 and a_1 + g a_2, and no weights make those 1, 0, 0;
    the least distance over all of them is beta/sqrt3.
    """
    goals = {"|c_2 - u_a|": (1, E[0])}
    return _words("words-identity", "K = Q = V = I", E, E, goals, beta, tolerance)


def words(beta: float | None = None, tolerance: float = 0.01) -> Design:
    """K, Q and V of rank 2 with which c_1 is close to u_b - u_c and c_2 to u_b.

    Proof: V takes the words to u_b, 0 and u_b - u_c; Q takes x_1 to u_c, x_2 to u_d, x_3 to 0.
    So word 1 has logits (0, 0, beta^2) and word 2 (beta^2, 0, 0): weights (a, a, 1-2a) and
    (1-2a, a, a) with a = e^-beta^2/(1 + 2e^-beta^2). Hence c_1 - (u_b - u_c) = -a u_b + 2a u_c, of
    norm sqrt5 beta a, and c_2 - u_b = -a u_b - a u_c, of norm sqrt2 beta a.
    """
    formula = f"K = I, Q = (u_c u_d^T + u_d u_a^T)/beta^2, {FORMULA_V}"
    Q = np.outer(E[2], E[3]) + np.outer(E[3], E[0])
    return _words("words", formula, Q, V, GOALS, beta, tolerance)


def words_rank_1(beta: float | None = None, tolerance: float = 0.01) -> Design:
    """The same with Q of rank 1: one direction to ask with, one to answer, and smaller errors.

    Proof: Q takes x_1 to u_c - u_d, x_2 to u_d - u_c and x_3 to 0, so word 1 has logits
    (-beta^2, 0, beta^2) and word 2 the reverse: weights (l, m, h) and (h, m, l), in the ratios
    e^-beta^2 : 1 : e^beta^2. With V as before c_1 - (u_b - u_c) = -m u_b + (1-h) u_c and
    c_2 - u_b = -m u_b - l u_c.
    """
    formula = f"K = I, Q = (u_c - u_d)(u_d - u_a)^T/beta^2, {FORMULA_V}"
    Q = np.outer(E[2] - E[3], E[3] - E[0])
    return _words("words-rank-1", formula, Q, V, GOALS, beta, tolerance)


def _words(
    name: str,
    formula: str,
    Q: Floats,
    V: Floats,
    goals: Goals,
    beta: float | None,
    tolerance: float,
) -> Design:
    """A design for words whose orthogonal parts u have the norm beta, which is no free factor here.

    Each error is beta times a weight that falls like e^-beta^2, and decreases from beta = 1 on.
    """
    from scipy.optimize import brentq

    if not 0 < tolerance < math.inf:
        raise UserError(f"a tolerance is above 0; this one is {tolerance}.")
    if beta is not None and not 0 < beta < math.inf:
        raise UserError(f"beta is a norm and must be above 0; it is {beta}.")

    def found(norm: float) -> tuple[Floats, dict[str, float]]:
        x = norm * X
        attention = attend(x @ Q.T, x, x @ V.T)
        gaps = {what: attention.context[i] - norm * goal for what, (i, goal) in goals.items()}
        return attention.weights, {what: float(np.linalg.norm(gap)) for what, gap in gaps.items()}

    def excess(norm: float) -> float:
        return max(found(norm)[1].values()) - tolerance

    needed = 1.0 if excess(1.0) <= 0 else float(brentq(excess, 1.0, 27.0, xtol=1e-12))
    beta = needed if beta is None else beta
    weights, errors = found(beta)
    return Design(
        name=name,
        formula=formula,
        claim=" and ".join(f"{what} <= {tolerance:g}" for what in errors),
        matrices={"x": beta * X, "K": E, "Q": Q, "V": V, "weights": weights},
        assumptions=(
            Measured("u_i . u_j = 0 for i != j", 0.0),
            Measured("|u_a| = |u_b| = |u_c| = |u_d| = beta", 0.0),
        ),
        checks=tuple(Measured(what, miss, tolerance * (1 + 1e-9)) for what, miss in errors.items()),
        beta=beta,
        beta_needed=needed,
    )


# ---- two limits that a map of attention weights hides


def head_width(keys: Floats) -> Design:
    """Q and K of the narrowest head whose attention map is the given one (rows that sum to one).

    Proof: ln A = S - z 1^T with scores S = X Q K^T X^T of rank <= d_k, and taking each row's mean
    off removes z 1^T; so rank(ln A (I - 11^T/T)) <= d_k. Conversely factor the centred logarithm
    L = U W^T with as many columns as its rank; X of full rank, T <= d, has a right inverse X^+, so
    Q = X^+ U and K = X^+ W have X Q K^T X^T = L, and the softmax of L is the map because a row's
    constant cancels. Here X = I.
    """
    if keys.shape[0] != keys.shape[1]:
        raise UserError(f"a map is square, T x T; this one is {keys.shape[0]} x {keys.shape[1]}.")
    if not (keys > 0).all() or float(np.abs(keys.sum(axis=1) - 1).max()) > 1e-9:
        raise UserError("a map has positive entries and rows that sum to one.")
    logs = np.log(keys)
    centred = logs - logs.mean(axis=1, keepdims=True)
    width = int(np.linalg.matrix_rank(centred, tol=1e-9))
    left, sizes, right = np.linalg.svd(centred)
    root = np.sqrt(sizes[:width])
    Q, K = left[:, :width] * root, right[:width].T * root
    gap = float(np.abs(attend(Q, K, keys).weights - keys).max())
    return Design(
        name="head-width",
        formula="X*Q*K^T*X^T = ln A with each row's mean taken off, X = I",
        claim=f"a head of width {width} has this map, and no narrower head has it",
        matrices={"Q": Q, "K": K, "map": keys},
        assumptions=(),
        checks=(Measured("largest gap between the weights and the map", gap, 1e-8),),
    )


def second_weights(values: Floats, weights: Floats) -> tuple[int, Floats | None, float]:
    """The dimension of the weights with the same c, a far corner of them or None, its distance.

    Weights a and a + z give the same c and both sum to one iff z^T [V, 1] = 0, a space of dimension
    T - rank([V, 1]): a map of weights is not a proof of use. The weights with this c that are not
    negative form a polytope. Two of its corners are found, the one with the least on the heaviest
    key and the one with the most on the lightest. `wherefrom attention` shows the further one.
    """
    values, weights = np.asarray(values, np.float64), np.asarray(weights, np.float64)
    if values.ndim != 2 or weights.shape != (len(values),):
        raise UserError(f"{values.shape} values cannot have {weights.shape} weights, one for each.")
    if (weights < 0).any() or abs(float(weights.sum()) - 1) > 1e-6:
        raise UserError("weights must be 0 or more and sum to one.")
    largest = max(1.0, float(np.abs(values).max()))
    space = np.hstack([values / largest, np.ones((len(values), 1))])
    dimension = int(len(values) - np.linalg.matrix_rank(np.hstack([values, space[:, -1:]])))
    if dimension == 0:
        return 0, None, 0.0
    # fewer, orthonormal equations say the same and keep the solver's tolerance meaningful
    _, sizes, right = np.linalg.svd(space.T, full_matrices=False)
    equations = right[: int((sizes > 1e-12 * sizes[0]).sum())]
    axes = np.eye(len(weights))
    objectives = (axes[weights.argmax()], -axes[weights.argmin()])
    corners = [_corner(equations, weights, objective) for objective in objectives]
    distances = [tv_distance(corner, weights) for corner in corners]
    best = int(np.argmax(distances))
    if distances[best] <= 1e-9:
        return dimension, None, 0.0
    return dimension, corners[best], distances[best]


def _corner(equations: Floats, weights: Floats, objective: Floats) -> Floats:
    """The weights with the same output that minimise the objective, or the given ones."""
    from scipy.optimize import linprog

    found = linprog(objective, A_eq=equations, b_eq=equations @ weights, bounds=(0, 1))
    if not found.success or found.x is None:
        return weights
    # what the solver's tolerance left over is put back within the given row space
    corner = np.maximum(found.x - equations.T @ (equations @ (found.x - weights)), 0.0)
    result: Floats = corner / corner.sum()
    return result


# ---- all of them by name


CONSTRUCTIONS: dict[str, Callable[..., Design]] = {
    "copy": queries.copy,
    "hull": queries.hull,
    "average": queries.average,
    "average-orthogonal": queries.average_orthogonal,
    "average-independent": queries.average_independent,
    "weights": queries.given_weights,
    **queries.NOISE_DESIGNS,
    "extract": extract,
    "extract-oblique": extract_oblique,
    "extract-similarity": extract_similarity,
    "words-identity": words_identity,
    "words": words,
    "words-rank-1": words_rank_1,
    "head-width": head_width,
}
MAX_N = 200


def example_keys(name: str, n: int) -> Floats:
    """Rows (n, d) on which a construction shows what it does, if none are given."""
    if name == "hull":  # corners of a polygon, and the middle of one side
        angles = 2 * np.pi * np.arange(n - 1) / (n - 1)
        corners = np.stack([np.cos(angles), np.sin(angles)], axis=1)
        return np.vstack([corners, corners[:2].mean(axis=0)])
    if name == "head-width":  # each token looks at the one before it
        return np.asarray(softmax_over_keys(5.0 * np.roll(np.eye(n), -1, axis=1)))
    rows = np.eye(n)
    if name == "average-orthogonal":
        return rows * (1 + 0.1 * np.arange(n))[:, None]
    if name in ("average-independent", "weights"):
        return rows + 0.5
    if name in ("extract-oblique", "extract-similarity"):  # spans at 45 degrees
        rows[n // 2 :, : n // 2] += np.eye(n - n // 2, n // 2)
    return rows


def build_design(name: str, *, keys: Any = None, n: int | None = None, **settings: Any) -> Design:
    """A construction by its name, for given keys or for an example of n; settings are its own.

    Settings that are None count as not given; one that the construction does not have is refused.
    """
    if name not in CONSTRUCTIONS:
        raise UserError(f'there is no design "{name}".{did_you_mean(name, CONSTRUCTIONS)}')
    build = CONSTRUCTIONS[name]
    known = inspect.signature(build).parameters
    given = {setting: value for setting, value in settings.items() if value is not None}
    for setting in (*given, *(["keys"] if keys is not None else []), *(["n"] if n else [])):
        if setting not in known and not (setting == "n" and "keys" in known):
            raise UserError(f"the design {name} takes no {setting}.")
    if keys is not None and n is not None:
        raise UserError("n is the number of keys: give either n or the keys.")
    n = 8 if n is None else n
    if not 2 <= n <= MAX_N:
        raise UserError(f"n must be between 2 and {MAX_N}; it is {n}.")
    if "keys" not in known:
        return build(**({"n": n} if "n" in known else {}), **given)
    rows = example_keys(name, n) if keys is None else np.asarray(keys, dtype=np.float64)
    if rows.ndim != 2 or not 2 <= len(rows) <= MAX_N or rows.shape[1] > MAX_N:
        raise UserError(f"keys must be a table of 2 to {MAX_N} rows; they are {rows.shape}.")
    if not rows.size or not np.isfinite(rows).all():
        raise UserError("keys must be made of finite numbers.")
    return build(rows, **given)
