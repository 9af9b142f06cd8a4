"""Queries and matrices built by hand, and the table of all constructions by name.

What each does, its proof, formula and claim are in designs.toml. Assumptions are measured on the
numbers at hand, and the check is computed by the attention equation.

The tolerance eps bounds how far the weights are from the wanted ones (total variation distance),
so that |c - wanted| <= eps times the widest distance between values. Key a is the first key and
b the second.

Shapes: keys (n, d), queries (h, d), weights (n,); matrices that act on column vectors (d, d);
T tokens, maps (T, T) with rows that sum to one, values (T, e).
"""

from __future__ import annotations

import inspect
import math
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wherefrom.attention.equation import attend, log_sum_exp, softmax_over_keys
from wherefrom.attention.laws import A, B, HeadsLaw, NoisyKeys
from wherefrom.errors import Printable, UserError, did_you_mean

Floats = NDArray[np.float64]

FLAT = 1e-9  # a distance below this, relative to the keys' spread, is rounding
MAX_N = 200
TEXTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


@dataclass(frozen=True)
class Measured:
    """A statement about the numbers at hand: how far off it is, and how far is allowed."""

    statement: str
    value: float = 0.0
    allowed: float = 1e-9

    @property
    def holds(self) -> bool:
        return self.value <= self.allowed


@dataclass(frozen=True, eq=False, repr=False)
class Design(Printable):
    """A construction: what it consists of, what it claims, what that rests on, and its check."""

    name: str
    formula: str
    claim: str
    matrices: dict[str, Floats]
    assumptions: tuple[Measured, ...]
    checks: tuple[Measured, ...]  # computed by the attention equation
    beta: float | None = None  # the factor in use, if the construction has one
    beta_needed: float | None = None  # the least factor that meets the tolerance
    targets: tuple[int, ...] = ()  # the key that each query is meant to copy

    @property
    def queries(self) -> Floats:
        """One query per head, (h, d)."""
        return self.matrices["queries"]

    def summary(self) -> list[tuple[str, str]]:
        rows = [(self.name, self.formula), ("claim", self.claim)]
        if self.beta is not None:
            rows.append(("beta", f"{self.beta:.6g}, needed {self.beta_needed:.6g}"))
        return rows + [("check", f"{m.statement}: {m.value:.3g}") for m in self.checks]


def tv_distance(weights: Floats, wanted: Floats) -> float:
    """Total variation distance of two distributions: half the sum of absolute differences."""
    return float(np.abs(weights - wanted).sum() / 2)


def beta_to_average(n: int, size: int, tolerance: float) -> float:
    """The beta from which `size` logits of beta leave n - size zeros at most `tolerance`.
    Proof: the leftover is (n-s)e^-beta / (s + (n-s)e^-beta). For s = 1 it is the margin by which
    a logit must lead: if all others are at least D below, they weigh at most (n-1)e^-D."""
    if not 0 < tolerance < 1:
        raise UserError(f"a tolerance is between 0 and 1; this one is {tolerance}.")
    if size == n:
        return 0.0
    return max(0.0, math.log((n - size) * (1 - tolerance) / (size * tolerance)))


def _query(
    name: str,
    units: Floats,
    keys: Floats | None,
    assumptions: tuple[Measured, ...],
    beta: float | None,
    tolerance: float,
    wanted: tuple[int, ...] = (A, B),
    targets: tuple[int, ...] = (A,),
    margin: float = 1.0,
) -> Design:
    """q_h = beta * units_h, (h, d): the mean weights over heads should be even on `wanted`.
    Keys of None are unit vectors. `margin` is by how much the wanted logits lead at beta = 1."""
    logits = units if keys is None else units @ keys.T
    needed = beta_to_average(logits.shape[1], len(wanted) // len(set(targets)), tolerance) / margin
    beta = needed if beta is None else beta
    if not (math.isfinite(beta) and beta >= 0):
        raise UserError(f"beta must be a number of 0 or more; it is {beta}.")
    weights = softmax_over_keys(beta * logits)
    even = np.isin(np.arange(logits.shape[1]), wanted) / len(wanted)
    missed = tv_distance(weights.mean(axis=0), even)
    allowed = tolerance * (1 + 1e-9) + 1e-15
    check = Measured("distance of the weights and the wanted", missed, allowed)
    matrices = {"queries": beta * units, "weights": weights}
    text = (name, TEXTS[name]["formula"], TEXTS[name]["claim"])
    return Design(*text, matrices, assumptions, (check,), beta, needed, targets)


def copyability(keys: Floats, j: int) -> tuple[float, Floats, float]:
    """Of copying key j: the margin per unit of |q|, the nearest mixture (n,), the most weight.

    Non-negative least squares on |D m|^2 + (sum m - 1)^2, D the differences k_i - k_j, has its
    minimum at a multiple of the nearest mixture. Where the margin is 0, the mixture of largest
    entropy gives the best bound: the softmax of the q that minimises ln sum exp(q.(k_i - k_j)); on
    a face of the hull that q lies at infinity, and the mixture already found stays.
    """
    from scipy.optimize import minimize, nnls
    from scipy.special import entr

    others = np.delete(np.arange(len(keys)), j)
    mixture = np.zeros(len(keys))
    differences = (keys[others] - keys[j]).T  # (d, n-1)
    scale = float(np.linalg.norm(differences, axis=0).max())
    unit = differences / (scale or 1.0)
    solution, _ = nnls(np.vstack([unit, np.ones(len(others))]), np.eye(len(unit) + 1)[-1])
    mixture[others] = solution / solution.sum()
    distance = float(np.linalg.norm(keys[j] - mixture @ keys))
    if distance > FLAT * scale:
        return distance, mixture, 1.0

    def free_energy(q: Floats) -> tuple[float, Floats]:
        return float(log_sum_exp(q @ unit)), unit @ softmax_over_keys(q @ unit)

    best = minimize(free_energy, np.zeros(len(unit)), jac=True, method="BFGS", tol=1e-12)
    even = softmax_over_keys(best.x @ unit)
    if np.linalg.norm(unit @ even) <= FLAT and entr(even).sum() > entr(mixture).sum():
        mixture[others] = even
    return 0.0, mixture, 1 / (1 + math.exp(float(entr(mixture).sum())))


def second_weights(values: Floats, weights: Floats) -> tuple[int, Floats | None, float]:
    """The dimension of the weights with the same c, a far corner of them or None, its distance.
    Weights a and a + z give the same c and both sum to one iff z^T [V, 1] = 0, a space of dimension
    T - rank([V, 1]): a map of weights is not a proof of use. Of the polytope of such weights two
    corners are found, with the least on the heaviest key and with the most on the lightest."""
    from scipy.optimize import linprog

    ones = np.ones((len(values), 1))
    dimension = int(len(values) - np.linalg.matrix_rank(np.hstack([values, ones])))
    if dimension == 0:
        return 0, None, 0.0
    # fewer, orthonormal equations say the same and keep the solver's tolerance meaningful
    space = np.hstack([values / max(1.0, float(np.abs(values).max())), ones])
    _, sizes, right = np.linalg.svd(space.T, full_matrices=False)
    equations = right[: int((sizes > 1e-12 * sizes[0]).sum())]
    axes, best = np.eye(len(weights)), weights
    for objective in (axes[weights.argmax()], -axes[weights.argmin()]):
        solved = linprog(objective, A_eq=equations, b_eq=equations @ weights, bounds=(0, 1))
        if solved.success and solved.x is not None:
            # what the solver's tolerance left over is put back within the equations' row space
            corner = np.maximum(solved.x - equations.T @ (equations @ (solved.x - weights)), 0.0)
            best = max(best, corner / corner.sum(), key=lambda it: tv_distance(it, weights))
    distance = tv_distance(best, weights)
    return (dimension, best, distance) if distance > 1e-9 else (dimension, None, 0.0)


# ---- queries for keys that are known


def _copy(name: str, keys: Floats, beta: float | None = None, tolerance: float = 0.01) -> Design:
    margin = float((keys[A] @ keys[A] - keys[1:] @ keys[A]).min(initial=math.inf))
    if margin <= 0:
        raise UserError(
            "q = beta k_a cannot copy v_a: another key has at least as large a product with k_a "
            f"(margin {margin:.6g}); the design hull says whether any query can."
        )
    norms = Measured("|k_i| is the same for all i", float(np.ptp(np.linalg.norm(keys, axis=1))))
    return _query(name, keys[[A]], keys, (norms,), beta, tolerance, wanted=(A,), margin=margin)


def _hull(name: str, keys: Floats, beta: float | None = None, tolerance: float = 0.01) -> Design:
    margins, mixtures, bounds = zip(*(copyability(keys, j) for j in range(len(keys))), strict=True)
    margin, mixture, most = margins[A], mixtures[A], bounds[A]
    of_each = {"best margin of each key": np.array(margins)}
    of_each["most weight of each key"] = np.array(bounds)
    if margin > 0:
        vertex = (Measured("k_a is a vertex of the keys' convex hull"),)
        units = (keys[[A]] - mixture @ keys) / margin
        design = _query(name, units, keys, vertex, beta, tolerance, wanted=(A,), margin=margin)
        return replace(design, matrices={**design.matrices, **of_each})
    scale = float(np.ptp(keys, axis=0).max()) or 1.0
    drawn = np.random.default_rng(0).standard_normal((1000, keys.shape[1]))
    queries = np.vstack([drawn * size / scale for size in (0.1, 1, 10)])
    heaviest = float(attend(queries, keys, keys).weights[:, A].max())
    apart = float(np.abs(keys[A] - mixture @ keys).max()) / scale
    return Design(
        name=name,
        formula="k_a = sum of lambda_i*k_i over the other keys",
        claim=f"no query gives k_a more than {most:.6g} of the weight",
        matrices={"lambda": mixture, **of_each},
        assumptions=(Measured("k_a is that mixture", apart, 1e-8),),
        checks=(Measured("most weight on k_a of 3,000 queries", heaviest, most + FLAT),),
    )


def _average(name: str, keys: Floats, beta: float | None = None, tolerance: float = 0.01) -> Design:
    norms, gram = np.linalg.norm(keys, axis=1), keys @ keys.T
    off = float(np.abs(gram - np.diag(np.diag(gram))).max())
    assumed = [Measured("k_i . k_j = 0 for i != j", off)]
    if name == "average":
        units = keys[[A]] + keys[[B]]
        assumed.append(Measured("|k_i| = 1", float(np.abs(norms - 1).max())))
    elif name == "average-orthogonal":
        if not norms[[A, B]].all():
            raise UserError("a key of length zero has the logit 0 whatever the query.")
        units = (keys[[A, B]] / (keys[[A, B]] ** 2).sum(1, keepdims=True)).sum(0, keepdims=True)
    else:
        target = (np.arange(len(keys)) <= B).astype(np.float64)
        units = (np.linalg.pinv(keys) @ target)[None]
        missed = float(np.abs(keys @ units[0] - target).max())
        assumed = [Measured("the keys are linearly independent", missed, allowed=1e-8)]
    return _query(name, units, keys, tuple(assumed), beta, tolerance)


def _weights(name: str, keys: Floats, weights: Floats | None = None) -> Design:
    n = len(keys)
    default = np.arange(n, 0, -1) / (n * (n + 1) / 2)
    wanted = default if weights is None else np.asarray(weights, dtype=np.float64)
    if wanted.shape != (n,) or not (wanted > 0).all() or not abs(wanted.sum() - 1) <= 1e-9:
        raise UserError(f"{n} keys need {n} positive weights that sum to one.")
    space, logs = np.hstack([keys, np.ones((n, 1))]), np.log(wanted)
    solution = np.linalg.lstsq(space, logs, rcond=None)[0]
    residual, query = logs - space @ solution, solution[:-1]
    reached = attend(query, keys, keys).weights
    rounding = 1e-9 * max(1.0, float(np.abs(logs).max()))
    solved = Measured("ln w = K q + c", float(np.abs(residual).max()), rounding)
    size = max(1.0, float(np.abs(keys).max()))
    check = Measured("r.[K, 1] = 0", float(np.abs(residual @ space).max()), rounding * size)
    if solved.holds:
        check = Measured("distance of the weights and w", tv_distance(reached, wanted))
    claim = TEXTS[name]["claim"] if solved.holds else "no query has the weights w: r refutes them"
    matrices = {"w": wanted, "queries": query[None], "weights": reached[None], "r": residual}
    assumed = (solved,) if solved.holds else ()
    return Design(name, TEXTS[name]["formula"], claim, matrices, assumed, (check,))


# ---- queries for noisy keys, written in the means, which are known: mu_i is the i-th unit vector.
# Check and beta are those of keys at their means (e = 1); `laws.HeadsLaw` says what the noise does.


def _noise(
    name: str,
    n: int,
    beta: float | None = None,
    tolerance: float = 0.01,
    heads: int | None = None,
    repel: float = 1.0,
) -> Design:
    heads = (1 if name in ("one-head", "avoiding-head") else 2) if heads is None else heads
    wanted: tuple[int, ...] = (A, B)
    targets: tuple[int, ...] = (A,) * heads
    on = (np.arange(n) <= B).astype(np.float64)
    if name == "one-head":
        units = np.tile(on, (heads, 1))
    elif name == "two-heads":
        if heads > n:
            raise UserError(f"{heads} heads that copy one key each need {heads} keys; n is {n}.")
        wanted = targets = tuple(range(heads))
        units = np.eye(heads, n)
    elif name == "avoiding-head":
        if n < 3:
            raise UserError("a query that pushes the other keys away needs others: n of 3 or more.")
        units = np.tile(on - 1, (heads, 1))
    else:
        if heads != 2:
            raise UserError(f"repelling-heads has 2 heads, one for a and one for b, not {heads}.")
        if not 0 <= repel < math.inf:
            raise UserError(f"the repelling term t must be 0 or more; it is {repel}.")
        targets, units = (A, B), np.eye(2, n)
        units[0, 1:n] = units[1, 2:n] = -repel
    assumed = [Measured("mu_i . mu_j = 1 if i = j, else 0")]
    if name in ("avoiding-head", "repelling-heads"):
        assumed.append(Measured("the large noise of key a lies along mu_a"))
    assumed.append(Measured("key b has no noise beyond alpha I"))
    return _query(name, units, None, tuple(assumed), beta, tolerance, wanted, targets)


# ---- taking v_a back out of v_a + v_b; the first half of the rows spans A, the others span B


def _extract(name: str, keys: Floats) -> Design:
    from scipy.linalg import subspace_angles

    a, b = np.split(keys.T, [len(keys) // 2], axis=1)
    if name == "extract":
        M = a @ a.T
        within = Measured("A^T A = I", float(np.abs(a.T @ a - np.eye(a.shape[1])).max()))
        assumed: tuple[Measured, ...] = (
            within,
            Measured("A^T B = 0", float(np.abs(a.T @ b).max())),
        )
    else:
        if np.linalg.matrix_rank(keys) < len(keys):
            raise UserError(
                "the spans of A and B share a direction (or a basis is not one), so v_a + v_b does "
                "not determine v_a and no M can."
            )
        angle = float(subspace_angles(a, b).min())
        assumed = (Measured(f"the spans meet only in 0 (their smallest angle is {angle:.6g})"),)
        M = np.hstack([a, np.zeros_like(b)]) @ np.linalg.pinv(keys.T)
        if name == "extract-similarity":
            S = np.hstack([keys.T, np.linalg.svd(keys.T)[0][:, len(keys) :]])
            D = np.diag((np.arange(len(S)) < a.shape[1]).astype(np.float64))
            M = S @ D @ np.linalg.inv(S)
    rng = np.random.default_rng(0)
    values = np.stack([span @ rng.standard_normal(span.shape[1]) for span in (a, b)])
    c = attend(np.zeros(2), np.eye(2), values).context  # one head that averages
    gain, size = float(np.linalg.norm(M, 2)), float(np.abs(values).max())
    missed = float(np.abs(2 * M @ c - values[0]).max())
    check = Measured("|2 M c - v_a| for c = (v_a + v_b)/2", missed, 1e-9 * gain * size)
    claim = TEXTS[name]["claim"].format(gain=gain)
    matrices = {"M": M, "noise gain": np.array(gain)}
    return Design(name, TEXTS[name]["formula"], claim, matrices, assumed, (check,))


# ---- self-attention by hand: the three words x_1 = u_d + u_b, x_2 = u_a, x_3 = u_c + u_b

E = np.eye(4)  # u_a, u_b, u_c, u_d for beta = 1, and K of all three designs
X = np.stack([E[3] + E[1], E[0], E[2] + E[1]])
V = np.diag([0.0, 1.0, -1.0, 0.0])  # V x_1 = u_b, V x_2 = 0, V x_3 = u_b - u_c
GOALS = {"|c_1 - (u_b - u_c)|": (0, E[1] - E[2]), "|c_2 - u_b|": (1, E[1])}
# Q, V, and what is measured: the word and what its c should be
WORD_DESIGNS: dict[str, tuple[Floats, Floats, dict[str, tuple[int, Floats]]]] = {
    "words-identity": (E, E, {"|c_2 - u_a|": (1, E[0])}),
    "words": (np.outer(E[2], E[3]) + np.outer(E[3], E[0]), V, GOALS),
    "words-rank-1": (np.outer(E[2] - E[3], E[3] - E[0]), V, GOALS),
}


def _words(name: str, beta: float | None = None, tolerance: float = 0.01) -> Design:
    """For words whose orthogonal parts u have the norm beta, which is no free factor here.
    Each error is beta times a weight that falls like e^-beta^2, and decreases from beta = 1 on."""
    from scipy.optimize import brentq

    Q, V, goals = WORD_DESIGNS[name]
    if not 0 < tolerance < math.inf:
        raise UserError(f"a tolerance is above 0; this one is {tolerance}.")
    if beta is not None and not 0 < beta < math.inf:
        raise UserError(f"beta is a norm and must be above 0; it is {beta}.")

    def weights_and_errors(norm: float) -> tuple[Floats, list[float]]:
        x = norm * X
        context, weights, _ = attend(x @ Q.T, x, x @ V.T)
        gaps = [np.linalg.norm(context[i] - norm * goal) for i, goal in goals.values()]
        return weights, [float(gap) for gap in gaps]

    def excess(norm: float) -> float:
        return max(weights_and_errors(norm)[1]) - tolerance

    needed = 1.0 if excess(1.0) <= 0 else float(brentq(excess, 1.0, 27.0, xtol=1e-12))
    beta = needed if beta is None else beta
    weights, errors = weights_and_errors(beta)
    norms = "|u_a| = |u_b| = |u_c| = |u_d| = beta"
    allowed = tolerance * (1 + 1e-9)
    return Design(
        name=name,
        formula=TEXTS[name]["formula"],
        claim=" and ".join(f"{what} <= {tolerance:g}" for what in goals),
        matrices={"x": beta * X, "K": E, "Q": Q, "V": V, "weights": weights},
        assumptions=(Measured("u_i . u_j = 0 for i != j"), Measured(norms)),
        checks=tuple(Measured(what, e, allowed) for what, e in zip(goals, errors, strict=True)),
        beta=beta,
        beta_needed=needed,
    )


def _head_width(name: str, keys: Floats) -> Design:
    rows, columns = keys.shape
    if rows != columns or not (keys > 0).all() or float(np.abs(keys.sum(axis=1) - 1).max()) > 1e-9:
        raise UserError("a map is square, with positive entries and rows that sum to one.")
    logs = np.log(keys)
    left, sizes, right = np.linalg.svd(logs - logs.mean(axis=1, keepdims=True))
    width = int((sizes > 1e-9).sum())
    root = np.sqrt(sizes[:width])
    Q, K = left[:, :width] * root, right[:width].T * root
    gap = float(np.abs(attend(Q, K, keys).weights - keys).max())
    check = Measured("largest gap between the weights and the map", gap, 1e-8)
    claim = TEXTS[name]["claim"].format(width=width)
    return Design(name, TEXTS[name]["formula"], claim, {"Q": Q, "K": K, "map": keys}, (), (check,))


# ---- all of them by name

NOISE_DESIGNS = ("one-head", "two-heads", "avoiding-head", "repelling-heads")
CONSTRUCTIONS: dict[str, Callable[..., Design]] = {
    "copy": _copy,
    "hull": _hull,
    **dict.fromkeys(("average", "average-orthogonal", "average-independent"), _average),
    "weights": _weights,
    **dict.fromkeys(NOISE_DESIGNS, _noise),
    **dict.fromkeys(("extract", "extract-oblique", "extract-similarity"), _extract),
    **dict.fromkeys(WORD_DESIGNS, _words),
    "head-width": _head_width,
}


def example_keys(name: str, n: int) -> Floats:
    """Rows (n, d) on which a construction shows what it does, if none are given."""
    if name == "hull":  # corners of a polygon, and the middle of one side
        angles = 2 * np.pi * np.arange(n - 1) / (n - 1)
        corners = np.stack([np.cos(angles), np.sin(angles)], axis=1)
        return np.vstack([corners, corners[:2].mean(axis=0)])
    rows = np.eye(n)
    if name == "head-width":  # each token looks at the one before it
        rows = softmax_over_keys(5.0 * np.roll(rows, -1, axis=1))
    elif name == "average-orthogonal":
        rows *= (1 + 0.1 * np.arange(n))[:, None]
    elif name in ("average-independent", "weights"):
        rows += 0.5
    elif name in ("extract-oblique", "extract-similarity"):  # spans at 45 degrees
        rows[n // 2 :, : n // 2] += np.eye(n - n // 2, n // 2)
    return rows


def build_design(name: str, *, keys: Any = None, n: int | None = None, **settings: Any) -> Design:
    """A construction by its name, for these keys or for an example with n keys.
    `settings` that are None count as absent; one that the construction does not have is refused."""
    build = _find(name, CONSTRUCTIONS)
    parameters = inspect.signature(build).parameters
    settings = {setting: value for setting, value in settings.items() if value is not None}
    for setting, value in {**settings, "keys": keys, "n": n}.items():
        takes = setting in parameters or (setting == "n" and "keys" in parameters)
        if value is not None and not takes:
            raise UserError(f"the design {name} takes no {setting}.")
    if keys is not None and n is not None:
        raise UserError("n is the number of keys: give either n or the keys.")
    if n is None:
        n = int(np.size(settings["weights"])) if "weights" in settings else 8
    if not 2 <= n <= MAX_N:
        raise UserError(f"n must be between 2 and {MAX_N}; it is {n}.")
    if "n" in parameters:
        return build(name, n, **settings)
    if "keys" not in parameters:
        return build(name, **settings)
    rows = example_keys(name, n) if keys is None else np.asarray(keys, dtype=np.float64)
    if rows.ndim != 2 or not 2 <= len(rows) <= MAX_N or rows.shape[1] > MAX_N:
        raise UserError(f"keys must be a table of 2 to {MAX_N} rows; they are {rows.shape}.")
    if not rows.size or not np.isfinite(rows).all():
        raise UserError("keys must be made of finite numbers.")
    return build(name, rows, **settings)


def law_of_design(
    name: str,
    *,
    n: int = 8,
    d: int | None = None,
    alpha: float = 0.0,
    stretch: float = 0.5,
    heads: int | None = None,
    **settings: Any,
) -> tuple[Design, HeadsLaw]:
    """A design for noisy keys by its name, and its exact law.
    `settings` are beta, tolerance and repel, which only repelling-heads has a use for."""
    _find(name, NOISE_DESIGNS)
    keys = NoisyKeys(n, n if d is None else d, alpha, stretch)
    if heads is not None and not 1 <= heads <= 64:
        raise UserError(f"heads must be between 1 and 64; they are {heads}.")
    design = _noise(name, n, heads=heads, **settings)
    queries = np.pad(design.queries, ((0, 0), (0, keys.d - n)))
    design = replace(design, matrices={**design.matrices, "queries": queries})
    return design, HeadsLaw(keys, queries, design.targets)


def _find(name: str, among: Iterable[str]) -> Callable[..., Design]:
    if name not in among:
        raise UserError(f'there is no design "{name}".{did_you_mean(name, among)}')
    return CONSTRUCTIONS[name]
